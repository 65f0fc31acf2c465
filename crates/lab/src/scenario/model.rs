//! A scenario as a value. Field names are the keys of the YAML; `docs/guides/scenarios.md` describes them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Scenario {
    pub name: String,
    /// Ends with a question mark.
    pub question: String,
    /// The document that the experiment is taken from.
    pub source: Option<String>,
    pub topics: Vec<TopicSpec>,
    pub producers: Vec<ProducerSpec>,
    pub consumers: Vec<ConsumerSpec>,
    /// Connections that send bare requests, without a client: floods, storms, bursts.
    pub requests: Vec<RequestSpec>,
    /// Between all clients and the broker; `None`: none.
    pub link: Option<LinkSpec>,
    /// Of the broker, where it runs on this machine; `None`: as it is.
    pub disk: Option<DiskSpec>,
    /// Settings of the embedded broker; with `--bootstrap-server` they are named in the report as not applied.
    pub broker: BTreeMap<String, String>,
    pub warmup_seconds: f64,
    pub duration_seconds: f64,
    /// How often every point is run, in turn.
    pub rounds: u32,
    pub scale: Option<Scale>,
    /// Every combination of these values is a point.
    pub sweep: BTreeMap<String, Vec<Scalar>>,
    /// Points by name, with what the source reported; instead of `sweep` or in addition.
    pub points: Vec<PointSpec>,
    /// Sentences such as `latency_p99_ms < 20` or `lost == 0`.
    pub expect: Vec<String>,
}

/// The numbers of the file are the source's; here is what a small machine makes of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scale {
    /// Without `--scale`; 1 is the source's size.
    pub default: f64,
    /// Paths that are multiplied: `producers.load.rate`.
    pub of: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TopicSpec {
    pub name: String,
    pub partitions: u32,
    /// −1: the broker's default.
    pub replication_factor: i16,
    pub settings: BTreeMap<String, Scalar>,
    /// Written before anything is measured, for scenarios that only read.
    pub prefilled_records: u64,
    pub prefilled_record_bytes: u32,
    /// Its files leave the page cache before the clients begin; only where the broker runs on this machine.
    pub cold: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ProducerSpec {
    pub name: String,
    /// Names of `topics`; empty: all.
    pub topics: Vec<String>,
    pub clients: u32,
    pub threads: u32,
    /// Records a second of the whole group; without it as fast as possible.
    pub rate: Option<f64>,
    /// That the rate is more than can be held is what the scenario shows: a schedule that falls behind is then no reason to doubt
    /// the measurement.
    pub may_fall_behind: bool,
    pub records: u64,
    pub record_bytes: u32,
    /// `random`, `json`, `letters` or `file:PATH`.
    pub contents: String,
    /// `none`, `sequential:N` or `random:N`.
    pub keys: String,
    /// `client`, `round-robin` or `own`.
    pub partitioning: String,
    pub synchronous: bool,
    pub callback_micros: u64,
    /// Threads that a callback hands its work to; 0: it does it itself.
    pub callback_threads: u32,
    pub settings: BTreeMap<String, Scalar>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ConsumerSpec {
    pub name: String,
    pub topics: Vec<String>,
    pub clients: u32,
    pub rate: Option<f64>,
    pub from_beginning: bool,
    /// A neighbour, whose threads run when no other client's thread wants to.
    pub gives_way: bool,
    pub settings: BTreeMap<String, Scalar>,
}

/// Connections of one client id, or of many, that send the same small request again and again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RequestSpec {
    /// Client ids begin with it.
    pub name: String,
    /// Names of `topics`; empty: all.
    pub topics: Vec<String>,
    /// `produce`, `metadata` or `api-versions`.
    pub api: String,
    /// Of the value of the one record in a produce request, which is sent with acks=1.
    pub record_bytes: u32,
    pub connections: u32,
    /// Requests of each connection that wait for their answers.
    pub in_flight: u32,
    /// Different client ids, in turn, connection by connection.
    pub client_ids: u32,
    /// Requests a second of the whole group; without it as fast as they are answered.
    pub rate: Option<f64>,
    /// All requests of so long are due in its first moment; 0: evenly.
    pub burst_every_ms: u64,
    /// Every request has a connection of its own, which is closed after the answer.
    pub reconnect: bool,
}

/// What lies between clients and broker; 0 and absent: no limit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LinkSpec {
    pub round_trip_ms: f64,
    /// Of all connections together, each way.
    pub bytes_per_second: u64,
    /// Of each connection: bytes under way that were not taken in at the other end.
    pub window_bytes: u64,
    /// So often nothing passes...
    pub stall_every_ms: u64,
    /// ...for so long.
    pub stall_ms: u64,
}

/// What the broker's disk does; 0 and absent: no limit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DiskSpec {
    /// What misses the page cache; by a control group, where the system allows it.
    pub read_bytes_per_second: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PointSpec {
    pub name: String,
    /// Groups that do not take part.
    pub without: Vec<String>,
    /// By path: `producers.load.settings.batch.size`, `topics.t.partitions`, `link.round_trip_ms`. `none` takes a rate away.
    pub set: BTreeMap<String, Scalar>,
    /// What the source reported, by the names of `Measurement::figures`.
    pub reported: BTreeMap<String, f64>,
    /// Which verdict the rules give it, for the report.
    pub diagnosis: Option<String>,
    /// In addition to those of the scenario.
    pub expect: Vec<String>,
}

/// A number, a text or a truth value, as YAML has them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Scalar {
    Truth(bool),
    Whole(i64),
    Number(f64),
    Text(String),
}

impl Scalar {
    /// A value as it stands behind `=` on a command line, read as YAML would.
    pub fn from_text(text: &str) -> Scalar {
        match (text.parse(), text.parse(), text.parse::<f64>()) {
            (Ok(truth), _, _) => Scalar::Truth(truth),
            (_, Ok(whole), _) => Scalar::Whole(whole),
            (_, _, Ok(number)) if number.is_finite() => Scalar::Number(number),
            _ => Scalar::Text(text.to_owned()),
        }
    }
}

impl std::fmt::Display for Scalar {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Scalar::Truth(value) => value.fmt(f),
            Scalar::Whole(value) => value.fmt(f),
            Scalar::Number(value) => value.fmt(f),
            Scalar::Text(value) => f.write_str(value),
        }
    }
}

impl Default for Scenario {
    fn default() -> Scenario {
        Scenario {
            name: String::new(),
            question: String::new(),
            source: None,
            topics: Vec::new(),
            producers: Vec::new(),
            consumers: Vec::new(),
            requests: Vec::new(),
            link: None,
            disk: None,
            broker: BTreeMap::new(),
            warmup_seconds: 2.0,
            duration_seconds: 10.0,
            rounds: 1,
            scale: None,
            sweep: BTreeMap::new(),
            points: Vec::new(),
            expect: Vec::new(),
        }
    }
}

impl Default for TopicSpec {
    fn default() -> TopicSpec {
        TopicSpec {
            name: String::new(),
            partitions: 1,
            replication_factor: -1,
            settings: BTreeMap::new(),
            prefilled_records: 0,
            prefilled_record_bytes: 256,
            cold: false,
        }
    }
}

impl Default for ProducerSpec {
    fn default() -> ProducerSpec {
        ProducerSpec {
            name: String::from("load"),
            topics: Vec::new(),
            clients: 1,
            threads: 1,
            rate: None,
            may_fall_behind: false,
            records: 0,
            record_bytes: 256,
            contents: String::from("random"),
            keys: String::from("none"),
            partitioning: String::from("client"),
            synchronous: false,
            callback_micros: 0,
            callback_threads: 0,
            settings: BTreeMap::new(),
        }
    }
}

impl Default for ConsumerSpec {
    fn default() -> ConsumerSpec {
        ConsumerSpec {
            name: String::from("readers"),
            topics: Vec::new(),
            clients: 1,
            rate: None,
            from_beginning: false,
            gives_way: false,
            settings: BTreeMap::new(),
        }
    }
}

impl Default for RequestSpec {
    fn default() -> RequestSpec {
        RequestSpec {
            name: String::from("requests"),
            topics: Vec::new(),
            api: String::from("produce"),
            record_bytes: 32,
            connections: 1,
            in_flight: 1,
            client_ids: 1,
            rate: None,
            burst_every_ms: 0,
            reconnect: false,
        }
    }
}
