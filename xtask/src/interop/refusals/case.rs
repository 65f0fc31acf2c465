//! A case: a wrong request and its expected answers.

use ottla_wire::api_key::ApiKey;
use ottla_wire::deviations::Deviation;
use ottla_wire::primitives::{Uuid, put_i8, put_i16, put_i32, put_i64, put_uuid, put_uvarint};

use super::exchange::Ask;

/// The facts common to both brokers while the cases run. They run on copies of one directory, so
/// even ids are the same.
#[derive(Clone, Copy, Debug)]
pub struct Scene {
    pub now_ms: i64,
    pub topic_id: Uuid,
    /// The partition used only by this case.
    pub partition: i32,
}

pub const TOPIC: &str = "lies";
pub const TOPIC_PARTITIONS: i32 = 600;

/// The expected answers of both brokers to the last request of a case: `Said::short`.
#[derive(Clone, Copy, Debug)]
pub enum Expected {
    /// The same answer, in every field that is not broker-specific.
    Both(&'static str),
    /// An intended deviation, listed in docs/reference/wire-support.md.
    Differ {
        kafka: &'static str,
        ottla: &'static str,
        why: &'static Deviation,
    },
    /// Apache Kafka answers partitions in the order of a hash table: the codes of Ottla's answer,
    /// in any order.
    KafkaInAnyOrder {
        ottla: &'static str,
        why: &'static Deviation,
    },
}

/// Whether two `Said::short` have the same codes.
pub fn same_codes(one: &str, other: &str) -> bool {
    let sorted = |short: &str| {
        let mut codes: Vec<String> = short.split(", ").map(str::to_owned).collect();
        codes.sort();
        codes
    };
    sorted(one) == sorted(other)
}

pub const fn differ(kafka: &'static str, ottla: &'static str, why: &'static Deviation) -> Expected {
    Expected::Differ { kafka, ottla, why }
}

/// Makes the requests of a case, in order.
type Script = dyn Fn(&Scene) -> Vec<Ask>;

pub struct Case {
    pub name: String,
    pub ask: Box<Script>,
    pub expected: Expected,
}

impl Case {
    pub fn new(name: impl Into<String>, expected: Expected, ask: impl Fn(&Scene) -> Ask + 'static) -> Case {
        Case::several(name, expected, move |scene| vec![ask(scene)])
    }

    /// A case with several requests on one connection; the last answer counts.
    pub fn several(
        name: impl Into<String>,
        expected: Expected,
        ask: impl Fn(&Scene) -> Vec<Ask> + 'static,
    ) -> Case {
        Case {
            name: name.into(),
            ask: Box::new(ask),
            expected,
        }
    }
}

/// A request's body, field by field.
#[derive(Clone, Debug, Default)]
pub struct Body(pub Vec<u8>);

impl AsRef<[u8]> for Body {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Body {
    pub fn new() -> Body {
        Body::default()
    }

    fn put(mut self, put: impl FnOnce(&mut Vec<u8>)) -> Body {
        put(&mut self.0);
        self
    }

    pub fn i8(self, value: i8) -> Body {
        self.put(|out| put_i8(out, value))
    }

    pub fn i16(self, value: i16) -> Body {
        self.put(|out| put_i16(out, value))
    }

    pub fn i32(self, value: i32) -> Body {
        self.put(|out| put_i32(out, value))
    }

    pub fn i64(self, value: i64) -> Body {
        self.put(|out| put_i64(out, value))
    }

    pub fn uuid(self, value: Uuid) -> Body {
        self.put(|out| put_uuid(out, value))
    }

    /// A string in its plain form.
    pub fn str(self, text: &str) -> Body {
        self.i16(text.len() as i16).raw(text.as_bytes())
    }

    /// Bytes in their plain form.
    pub fn bytes(self, bytes: &[u8]) -> Body {
        self.i32(bytes.len() as i32).raw(bytes)
    }

    /// A string in its compact form.
    pub fn compact_str(self, text: &str) -> Body {
        self.compact_count(text.len()).raw(text.as_bytes())
    }

    /// Bytes in their compact form.
    pub fn compact_bytes(self, bytes: &[u8]) -> Body {
        self.compact_count(bytes.len()).raw(bytes)
    }

    pub fn compact_count(self, count: usize) -> Body {
        self.uvarint(count as u32 + 1)
    }

    pub fn uvarint(self, value: u32) -> Body {
        self.put(|out| put_uvarint(out, value))
    }

    /// No tagged fields.
    pub fn tags(self) -> Body {
        self.raw(&[0])
    }

    pub fn raw(self, bytes: &[u8]) -> Body {
        self.put(|out| out.extend_from_slice(bytes))
    }
}

/// A Produce request of version 9 for one partition.
pub fn produce(scene: &Scene, records: &[u8]) -> Ask {
    Ask::new(
        ApiKey::Produce,
        9,
        produce_body(None, -1, TOPIC, scene.partition, records),
    )
}

pub fn produce_body(
    transactional_id: Option<&str>,
    acks: i16,
    topic: &str,
    partition: i32,
    records: &[u8],
) -> Body {
    let body = match transactional_id {
        None => Body::new().uvarint(0),
        Some(id) => Body::new().compact_str(id),
    };
    body.i16(acks)
        .i32(5_000)
        .compact_count(1)
        .compact_str(topic)
        .compact_count(1)
        .i32(partition)
        .compact_bytes(records)
        .tags()
        .tags()
        .tags()
}
