//! Produce: wrong requests with sound batches.

use ottla_wire::api_key::ApiKey;
use ottla_wire::deviations::{ATTRIBUTES, BEHIND_BATCH, SILENT, TEXT, TWICE};
use ottla_wire::primitives::Uuid;
use ottla_wire::records::batch::attributes;

use super::case::{Body, Case, Expected, Scene, TOPIC, differ, produce, produce_body};
use super::exchange::Ask;
use super::forged::Forged;

use Expected::{Both, KafkaInAnyOrder};

fn sound(scene: &Scene) -> Vec<u8> {
    Forged::new(scene.now_ms).bytes()
}

fn case(name: &str, expected: Expected, ask: impl Fn(&Scene) -> Ask + 'static) -> Case {
    Case::new(name, expected, ask)
}

/// A request of version 8 with a custom body.
fn raw(name: &str, expected: Expected, body: impl Fn(&Scene) -> Body + 'static) -> Case {
    case(name, expected, move |scene| {
        Ask::new(ApiKey::Produce, 8, body(scene))
    })
}

/// The fields before the topics of a request without a transactional id.
fn head(acks: i16, topics: i32) -> Body {
    Body::new().i16(-1).i16(acks).i32(5_000).i32(topics)
}

fn to(topic: &'static str, partition: Option<i32>, acks: i16) -> impl Fn(&Scene) -> Ask {
    move |scene| {
        let partition = partition.unwrap_or(scene.partition);
        Ask::new(
            ApiKey::Produce,
            9,
            produce_body(None, acks, topic, partition, &sound(scene)),
        )
    }
}

fn by_id(id: impl Fn(&Scene) -> Uuid) -> impl Fn(&Scene) -> Ask {
    move |scene| {
        let body = Body::new()
            .uvarint(0)
            .i16(-1)
            .i32(5_000)
            .compact_count(1)
            .uuid(id(scene))
            .compact_count(1)
            .i32(scene.partition)
            .compact_bytes(&sound(scene))
            .tags()
            .tags()
            .tags();
        Ask::new(ApiKey::Produce, 13, body)
    }
}

pub fn cases() -> Vec<Case> {
    let mut cases = destinations();
    cases.extend(envelopes());
    cases.extend(several());
    cases.extend(topics());
    cases
}

fn destinations() -> Vec<Case> {
    vec![
        case("acks 2", Both("INVALID_REQUIRED_ACKS"), to(TOPIC, None, 2)),
        case("acks -2", Both("INVALID_REQUIRED_ACKS"), to(TOPIC, None, -2)),
        case("acks 0", Both("silence"), to(TOPIC, None, 0)),
        case(
            "acks 0 to an unknown topic",
            Both("closed"),
            to("nowhere", None, 0),
        ),
        case(
            "an unknown topic",
            Both("UNKNOWN_TOPIC_OR_PARTITION"),
            to("nowhere", Some(0), -1),
        ),
        case(
            "a topic without a name",
            Both("UNKNOWN_TOPIC_OR_PARTITION"),
            to("", Some(0), -1),
        ),
        case(
            "a topic with a name that cannot be",
            Both("UNKNOWN_TOPIC_OR_PARTITION"),
            to("a/b", Some(0), -1),
        ),
        case(
            "an internal topic",
            Both("INVALID_TOPIC_EXCEPTION"),
            to("__consumer_offsets", Some(0), -1),
        ),
        case(
            "the metadata log",
            Both("UNKNOWN_TOPIC_OR_PARTITION"),
            to("__cluster_metadata", Some(0), -1),
        ),
        case(
            "an unknown partition",
            Both("UNKNOWN_TOPIC_OR_PARTITION"),
            to(TOPIC, Some(100_000), -1),
        ),
        case(
            "partition -1",
            Both("UNKNOWN_TOPIC_OR_PARTITION"),
            to(TOPIC, Some(-1), -1),
        ),
        case(
            "partition -2^31",
            Both("UNKNOWN_TOPIC_OR_PARTITION"),
            to(TOPIC, Some(i32::MIN), -1),
        ),
        case(
            "an id that no topic has",
            Both("UNKNOWN_TOPIC_ID"),
            by_id(|_| Uuid([7; 16])),
        ),
        case(
            "an id of zeros",
            Both("UNKNOWN_TOPIC_ID"),
            by_id(|_| Uuid([0; 16])),
        ),
        case(
            "an id that a topic has",
            Both("NONE"),
            by_id(|scene| scene.topic_id),
        ),
        case(
            "acks 2 with a transactional batch",
            Both("TRANSACTIONAL_ID_AUTHORIZATION_FAILED"),
            |scene| {
                let batch =
                    Forged::new(scene.now_ms).with(|batch| batch.attributes = attributes::TRANSACTIONAL);
                Ask::new(
                    ApiKey::Produce,
                    9,
                    produce_body(None, 2, TOPIC, scene.partition, &batch.bytes()),
                )
            },
        ),
        case(
            "a transactional batch to an unknown topic",
            Both("TRANSACTIONAL_ID_AUTHORIZATION_FAILED"),
            |scene| {
                let batch =
                    Forged::new(scene.now_ms).with(|batch| batch.attributes = attributes::TRANSACTIONAL);
                Ask::new(
                    ApiKey::Produce,
                    9,
                    produce_body(None, -1, "nowhere", scene.partition, &batch.bytes()),
                )
            },
        ),
    ]
}

fn envelopes() -> Vec<Case> {
    vec![
        raw(
            "null records",
            differ("hangs", "INVALID_RECORD", &SILENT),
            |scene| head(-1, 1).str(TOPIC).i32(1).i32(scene.partition).i32(-1),
        ),
        case("empty records", Both("INVALID_RECORD"), |scene| {
            produce(scene, &[])
        }),
        case("one byte of records", Both("INVALID_RECORD"), |scene| {
            produce(scene, &[0])
        }),
        case("half a header", Both("INVALID_RECORD"), |scene| {
            produce(scene, &sound(scene)[..30])
        }),
        case("a header and half its records", Both("INVALID_RECORD"), |scene| {
            produce(scene, &sound(scene)[..80])
        }),
        case("two batches", Both("INVALID_RECORD"), |scene| {
            produce(scene, &[sound(scene), sound(scene)].concat())
        }),
        case(
            "bytes behind the batch",
            differ("NONE", "INVALID_RECORD", &BEHIND_BATCH),
            |scene| produce(scene, &[&sound(scene)[..], b"more"].concat()),
        ),
        case(
            "a header's bytes behind the batch",
            differ("CORRUPT_MESSAGE", "INVALID_RECORD", &BEHIND_BATCH),
            |scene| produce(scene, &[&sound(scene)[..], &[0; 61]].concat()),
        ),
        case("a batch behind garbage", Both("CORRUPT_MESSAGE"), |scene| {
            produce(scene, &[&[0xff; 61][..], &sound(scene)].concat())
        }),
        case("a message of format 1", Both("INVALID_RECORD"), |scene| {
            // Offset 8, size 4, checksum 4, magic 1, attributes 1, timestamp 8, key's length 4,
            // value's length 4.
            let body = Body::new()
                .i64(0)
                .i32(22)
                .i32(0)
                .i8(1)
                .i8(0)
                .i64(scene.now_ms)
                .i32(-1)
                .i32(-1);
            produce(scene, body.as_ref())
        }),
        case("a message of format 0", Both("INVALID_RECORD"), |scene| {
            let body = Body::new().i64(0).i32(14).i32(0).i8(0).i8(0).i32(-1).i32(-1);
            produce(scene, body.as_ref())
        }),
        case(
            "a batch larger than max.message.bytes",
            Both("MESSAGE_TOO_LARGE"),
            |scene| {
                let batch = Forged::new(scene.now_ms).record(0, |record| record.value = vec![7; 200]);
                let body = produce_body(None, -1, "tight", 0, &batch.bytes());
                Ask::new(ApiKey::Produce, 9, body)
            },
        ),
        case(
            "zstd in version 6",
            Both("UNSUPPORTED_COMPRESSION_TYPE"),
            |scene| {
                let batch = Forged::new(scene.now_ms).codec(ottla_wire::records::compression::Codec::Zstd);
                let body = head(-1, 1)
                    .str(TOPIC)
                    .i32(1)
                    .i32(scene.partition)
                    .bytes(&batch.bytes());
                Ask::new(ApiKey::Produce, 6, body)
            },
        ),
        case("version 2", Both("closed"), |scene| {
            let body = Body::new().i16(-1).i32(5_000).i32(1).str(TOPIC).i32(1);
            Ask::new(ApiKey::Produce, 2, body.i32(scene.partition).bytes(&sound(scene)))
        }),
        case("version 14", Both("closed"), |scene| {
            Ask::new(ApiKey::Produce, 14, by_id(|scene| scene.topic_id)(scene).frame)
        }),
        case("version -1", Both("closed"), |scene| {
            Ask::new(
                ApiKey::Produce,
                -1,
                produce_body(None, -1, TOPIC, scene.partition, &sound(scene)),
            )
        }),
    ]
}

fn several() -> Vec<Case> {
    vec![
        raw("no topics", Both("no code"), |_| head(-1, 0)),
        raw(
            "a topic without partitions",
            differ("no code", "no code", &TWICE),
            |_| head(-1, 1).str(TOPIC).i32(0),
        ),
        raw("a partition twice", differ("NONE", "NONE", &TWICE), |scene| {
            let part = |body: Body| body.i32(scene.partition).bytes(&sound(scene));
            part(part(head(-1, 1).str(TOPIC).i32(2)))
        }),
        raw(
            "a topic twice, with another partition",
            differ("NONE", "NONE", &TWICE),
            |scene| {
                let topic =
                    |body: Body, partition| body.str(TOPIC).i32(1).i32(partition).bytes(&sound(scene));
                topic(topic(head(-1, 2), scene.partition), 0)
            },
        ),
        raw(
            "a topic and a partition twice",
            differ("NONE", "NONE", &TWICE),
            |scene| {
                let topic = |body: Body| body.str(TOPIC).i32(1).i32(scene.partition).bytes(&sound(scene));
                topic(topic(head(-1, 2)))
            },
        ),
        raw(
            "a sound partition beside a broken one",
            KafkaInAnyOrder {
                ottla: "INVALID_RECORD, NONE",
                why: &TWICE,
            },
            |scene| {
                let broken = Forged::new(scene.now_ms)
                    .with(|batch| batch.record_count = 4)
                    .bytes();
                let body = head(-1, 1).str(TOPIC).i32(2);
                body.i32(0)
                    .bytes(&broken)
                    .i32(scene.partition)
                    .bytes(&sound(scene))
            },
        ),
        raw(
            "a sound partition beside a transactional one",
            Both("TRANSACTIONAL_ID_AUTHORIZATION_FAILED"),
            |scene| {
                let batch =
                    Forged::new(scene.now_ms).with(|batch| batch.attributes = attributes::TRANSACTIONAL);
                let body = head(-1, 1).str(TOPIC).i32(2);
                body.i32(scene.partition)
                    .bytes(&sound(scene))
                    .i32(0)
                    .bytes(&batch.bytes())
            },
        ),
        raw("-1 topics", Both("closed"), |_| head(-1, -1)),
        raw("-2 topics", Both("closed"), |_| head(-1, -2)),
        raw("2^31-1 topics", Both("closed"), |_| head(-1, i32::MAX)),
        raw("-1 partitions", Both("closed"), |_| {
            head(-1, 1).str(TOPIC).i32(-1)
        }),
        raw("more partitions than there are", Both("closed"), |scene| {
            head(-1, 1)
                .str(TOPIC)
                .i32(2)
                .i32(scene.partition)
                .bytes(&sound(scene))
        }),
        raw(
            "records of length -2",
            differ("hangs", "closed", &SILENT),
            |scene| head(-1, 1).str(TOPIC).i32(1).i32(scene.partition).i32(-2),
        ),
        raw("records longer than the request", Both("closed"), |scene| {
            head(-1, 1)
                .str(TOPIC)
                .i32(1)
                .i32(scene.partition)
                .i32(1_000_000)
                .raw(&sound(scene))
        }),
        raw("a null topic name", Both("closed"), |scene| {
            head(-1, 1)
                .i16(-1)
                .i32(1)
                .i32(scene.partition)
                .bytes(&sound(scene))
        }),
        raw(
            "a topic name that is no UTF-8",
            differ("UNKNOWN_TOPIC_OR_PARTITION", "closed", &TEXT),
            |scene| {
                head(-1, 1)
                    .i16(2)
                    .raw(b"\xff\xfe")
                    .i32(1)
                    .i32(scene.partition)
                    .bytes(&sound(scene))
            },
        ),
        raw("bytes behind the request", Both("NONE"), |scene| {
            let body = head(-1, 1).str(TOPIC).i32(1).i32(scene.partition);
            body.bytes(&sound(scene)).raw(b"more")
        }),
    ]
}

/// Topics with settings of their own.
fn topics() -> Vec<Case> {
    let send = |topic: &'static str, forge: fn(Forged) -> Forged| {
        move |scene: &Scene| {
            let batch = forge(Forged::new(scene.now_ms)).bytes();
            Ask::new(
                ApiKey::Produce,
                9,
                produce_body(None, -1, topic, scene.partition % 20, &batch),
            )
        }
    };
    use ottla_wire::records::compression::Codec;
    vec![
        case(
            "compacted: a null key",
            Both("INVALID_RECORD"),
            send("compacted", |batch| {
                batch.record(1, |record| {
                    record.key_length = Some(-1);
                    record.key.clear();
                })
            }),
        ),
        case(
            "compacted: a null key in lz4",
            Both("INVALID_RECORD"),
            send("compacted", |batch| {
                batch.codec(Codec::Lz4).record(1, |record| {
                    record.key_length = Some(-1);
                    record.key.clear();
                })
            }),
        ),
        case(
            "compacted: an empty key",
            Both("NONE"),
            send("compacted", |batch| batch.record(1, |record| record.key.clear())),
        ),
        case(
            "recent: an old record",
            Both("INVALID_TIMESTAMP"),
            send("recent", |batch| {
                batch.record(1, |record| record.timestamp_delta = -7_200_000)
            }),
        ),
        case(
            "recent: an old record in zstd",
            Both("INVALID_TIMESTAMP"),
            send("recent", |batch| {
                batch
                    .codec(Codec::Zstd)
                    .record(1, |record| record.timestamp_delta = -7_200_000)
            }),
        ),
        case(
            "recent: records without timestamps",
            Both("NONE"),
            send("recent", |batch| {
                batch.with(|batch| {
                    batch.base_timestamp = -1;
                    batch.max_timestamp = -1;
                    batch
                        .records
                        .iter_mut()
                        .for_each(|record| record.timestamp_delta = 0);
                })
            }),
        ),
        case(
            "clocked: a year ahead",
            Both("NONE"),
            send("clocked", |batch| {
                batch.record(1, |record| record.timestamp_delta = 31_536_000_000)
            }),
        ),
        case(
            "clocked: LogAppendTime",
            differ("INVALID_TIMESTAMP", "INVALID_TIMESTAMP", &ATTRIBUTES),
            send("clocked", |batch| {
                batch.with(|batch| batch.attributes = attributes::LOG_APPEND_TIME)
            }),
        ),
        case(
            "unpacked: a batch that was packed",
            Both("NONE"),
            send("unpacked", |batch| batch.codec(Codec::Gzip)),
        ),
        case(
            "unpacked: count 4 of 3 in gzip",
            Both("INVALID_RECORD"),
            send("unpacked", |batch| {
                batch.codec(Codec::Gzip).with(|batch| {
                    batch.record_count = 4;
                    batch.last_offset_delta = 3;
                })
            }),
        ),
        case(
            "tight: a batch that unfolds to more",
            Both("NONE"),
            send("tight", |batch| {
                batch
                    .codec(Codec::Gzip)
                    .record(0, |record| record.value = vec![7; 500])
            }),
        ),
    ]
}
