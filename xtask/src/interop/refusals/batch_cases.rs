//! Produce: a batch with a wrong header or wrong records.

use ottla_wire::deviations::{ATTRIBUTES, HEADER_VALUE, NUMBERING, UNNAMED};
use ottla_wire::records::batch::attributes;
use ottla_wire::records::compression::Codec;

use super::case::{Case, Expected, Scene, differ, produce};
use super::forged::{Forged, ForgedRecord};

use Expected::Both;

/// A case of one batch.
fn batch(name: &str, expected: Expected, forge: impl Fn(Forged) -> Forged + 'static) -> Case {
    Case::new(name, expected, move |scene: &Scene| {
        produce(scene, &forge(Forged::new(scene.now_ms)).bytes())
    })
}

fn header(name: &str, expected: Expected, change: impl Fn(&mut Forged) + 'static) -> Case {
    batch(name, expected, move |forged| forged.with(&change))
}

/// A case with a wrong second record of three.
fn record(name: &str, expected: Expected, change: impl Fn(&mut ForgedRecord) + 'static) -> Case {
    batch(name, expected, move |forged| forged.record(1, &change))
}

pub fn cases() -> Vec<Case> {
    let mut cases = headers();
    cases.extend(flags());
    cases.extend(records());
    cases.extend(producers());
    cases
}

fn headers() -> Vec<Case> {
    vec![
        header("a sound batch", Both("NONE"), |_| {}),
        header("a wrong checksum", Both("CORRUPT_MESSAGE"), |batch| {
            batch.crc = Some(7)
        }),
        header("base offset 7", Both("INVALID_RECORD"), |batch| {
            batch.base_offset = 7
        }),
        header("base offset -1", Both("INVALID_RECORD"), |batch| {
            batch.base_offset = -1
        }),
        header("leader epoch 9", Both("NONE"), |batch| batch.leader_epoch = 9),
        header("magic 0", Both("INVALID_RECORD"), |batch| batch.magic = 0),
        header("magic 1", Both("INVALID_RECORD"), |batch| batch.magic = 1),
        header("magic 3", Both("CORRUPT_MESSAGE"), |batch| batch.magic = 3),
        header("magic -1", Both("CORRUPT_MESSAGE"), |batch| batch.magic = -1),
        header("batch length -1", Both("CORRUPT_MESSAGE"), |batch| {
            batch.batch_length = Some(-1)
        }),
        header("batch length 0", Both("CORRUPT_MESSAGE"), |batch| {
            batch.batch_length = Some(0)
        }),
        header("batch length 48", Both("CORRUPT_MESSAGE"), |batch| {
            batch.batch_length = Some(48)
        }),
        header("batch length beyond the field", Both("INVALID_RECORD"), |batch| {
            batch.batch_length = Some(10_000)
        }),
        header(
            "batch length 2^31-1",
            differ("UNKNOWN_SERVER_ERROR", "INVALID_RECORD", &UNNAMED),
            |batch| batch.batch_length = Some(i32::MAX),
        ),
        header("count 4 of 3", Both("INVALID_RECORD"), |batch| {
            batch.record_count = 4
        }),
        header("count 2 of 3", Both("INVALID_RECORD"), |batch| {
            batch.record_count = 2
        }),
        header("count 0 of 3", Both("INVALID_RECORD"), |batch| {
            batch.record_count = 0
        }),
        header("count -1", Both("INVALID_RECORD"), |batch| {
            batch.record_count = -1
        }),
        header(
            "count 2^31-1 and its last offset delta",
            Both("INVALID_RECORD"),
            |batch| {
                batch.record_count = i32::MAX;
                batch.last_offset_delta = i32::MAX - 1;
            },
        ),
        header(
            "count 4 of 3 and its last offset delta",
            Both("INVALID_RECORD"),
            |batch| {
                batch.record_count = 4;
                batch.last_offset_delta = 3;
            },
        ),
        header(
            "count 2 of 3 and its last offset delta",
            Both("INVALID_RECORD"),
            |batch| {
                batch.record_count = 2;
                batch.last_offset_delta = 1;
            },
        ),
        header("last offset delta 5", Both("INVALID_RECORD"), |batch| {
            batch.last_offset_delta = 5
        }),
        header("last offset delta -1", Both("INVALID_RECORD"), |batch| {
            batch.last_offset_delta = -1
        }),
        header("last offset delta 2^31-1", Both("INVALID_RECORD"), |batch| {
            batch.last_offset_delta = i32::MAX
        }),
        header("no records and count 0", Both("INVALID_RECORD"), |batch| {
            batch.records.clear();
            batch.record_count = 0;
            batch.last_offset_delta = -1;
        }),
        header(
            "no records, count 0, last offset delta 0",
            Both("INVALID_RECORD"),
            |batch| {
                batch.records.clear();
                batch.record_count = 0;
                batch.last_offset_delta = 0;
            },
        ),
        header("no records and count 3", Both("INVALID_RECORD"), |batch| {
            batch.records.clear()
        }),
        header("max timestamp too small", Both("NONE"), |batch| {
            batch.max_timestamp = 17
        }),
        header("max timestamp a year ahead", Both("NONE"), |batch| {
            batch.max_timestamp += 31_536_000_000
        }),
        header("max timestamp -1", Both("NONE"), |batch| batch.max_timestamp = -1),
        header("a year ahead", Both("INVALID_TIMESTAMP"), |batch| {
            batch.base_timestamp += 31_536_000_000;
            batch.max_timestamp += 31_536_000_000;
        }),
        header("no timestamps", Both("NONE"), |batch| {
            batch.base_timestamp = -1;
            batch.max_timestamp = -1;
            batch
                .records
                .iter_mut()
                .for_each(|record| record.timestamp_delta = 0);
        }),
        header("negative timestamps", Both("NONE"), |batch| {
            batch.base_timestamp = -1_000;
            batch.max_timestamp = -998;
        }),
        header("timestamps that overflow", Both("INVALID_TIMESTAMP"), |batch| {
            batch.base_timestamp = i64::MAX - 1
        }),
    ]
}

fn flags() -> Vec<Case> {
    let mut cases = vec![
        header(
            "codec 5",
            differ("UNKNOWN_SERVER_ERROR", "UNSUPPORTED_COMPRESSION_TYPE", &UNNAMED),
            |batch| batch.attributes = 5,
        ),
        header(
            "codec 6",
            differ("UNKNOWN_SERVER_ERROR", "UNSUPPORTED_COMPRESSION_TYPE", &UNNAMED),
            |batch| batch.attributes = 6,
        ),
        header(
            "codec 7",
            differ("UNKNOWN_SERVER_ERROR", "UNSUPPORTED_COMPRESSION_TYPE", &UNNAMED),
            |batch| batch.attributes = 7,
        ),
        header(
            "LogAppendTime",
            differ("NONE", "INVALID_TIMESTAMP", &ATTRIBUTES),
            |batch| batch.attributes = attributes::LOG_APPEND_TIME,
        ),
        header(
            "a delete horizon",
            differ("NONE", "INVALID_RECORD", &ATTRIBUTES),
            |batch| batch.attributes = attributes::DELETE_HORIZON,
        ),
        header("a control batch", Both("INVALID_RECORD"), |batch| {
            batch.attributes = attributes::CONTROL
        }),
        batch(
            "LogAppendTime in zstd",
            differ("NONE", "INVALID_TIMESTAMP", &ATTRIBUTES),
            |batch| {
                batch
                    .with(|batch| batch.attributes = attributes::LOG_APPEND_TIME)
                    .codec(Codec::Zstd)
            },
        ),
        batch(
            "a delete horizon in zstd",
            differ("NONE", "INVALID_RECORD", &ATTRIBUTES),
            |batch| {
                batch
                    .with(|batch| batch.attributes = attributes::DELETE_HORIZON)
                    .codec(Codec::Zstd)
            },
        ),
    ];
    for bit in 7..16 {
        cases.push(header(
            &format!("attribute bit {bit}"),
            differ("NONE", "INVALID_RECORD", &ATTRIBUTES),
            move |batch| {
                batch.attributes = (1_u16 << bit) as i16;
            },
        ));
    }
    cases
}

fn records() -> Vec<Case> {
    vec![
        record("a record's length too large", Both("INVALID_RECORD"), |record| {
            record.length = Some(40)
        }),
        record("a record's length too small", Both("INVALID_RECORD"), |record| {
            record.length = Some(10)
        }),
        record("a record's length -1", Both("INVALID_RECORD"), |record| {
            record.length = Some(-1)
        }),
        record("a record's length 0", Both("INVALID_RECORD"), |record| {
            record.length = Some(0)
        }),
        record("a record's length 2^31-1", Both("INVALID_RECORD"), |record| {
            record.length = Some(i32::MAX)
        }),
        record(
            "bytes behind a record's headers",
            Both("INVALID_RECORD"),
            |record| record.more = vec![0; 3],
        ),
        record("record attributes 1", Both("NONE"), |record| {
            record.attributes = 1
        }),
        record("record attributes -1", Both("NONE"), |record| {
            record.attributes = -1
        }),
        record(
            "offset delta 7 for 1",
            differ("NONE", "INVALID_RECORD", &NUMBERING),
            |record| record.offset_delta = 7,
        ),
        record(
            "offset delta -1 for 1",
            differ("NONE", "INVALID_RECORD", &NUMBERING),
            |record| record.offset_delta = -1,
        ),
        record(
            "offset delta 0 for 1",
            differ("NONE", "INVALID_RECORD", &NUMBERING),
            |record| record.offset_delta = 0,
        ),
        record(
            "offset delta 2^31-1 for 1",
            differ("NONE", "INVALID_RECORD", &NUMBERING),
            |record| record.offset_delta = i32::MAX,
        ),
        record(
            "a timestamp delta of a year",
            Both("INVALID_TIMESTAMP"),
            |record| record.timestamp_delta = 31_536_000_000,
        ),
        record("a timestamp delta of minus a year", Both("NONE"), |record| {
            record.timestamp_delta = -31_536_000_000
        }),
        record(
            "a timestamp delta of 2^63-1",
            Both("INVALID_TIMESTAMP"),
            |record| record.timestamp_delta = i64::MAX,
        ),
        record(
            "a timestamp delta of -2^63",
            Both("INVALID_TIMESTAMP"),
            |record| record.timestamp_delta = i64::MIN,
        ),
        record("key length -1 with a key", Both("INVALID_RECORD"), |record| {
            record.key_length = Some(-1)
        }),
        record("key length -2", Both("INVALID_RECORD"), |record| {
            record.key_length = Some(-2)
        }),
        record("key length beyond the record", Both("INVALID_RECORD"), |record| {
            record.key_length = Some(1_000)
        }),
        record("key length 2^31-1", Both("INVALID_RECORD"), |record| {
            record.key_length = Some(i32::MAX)
        }),
        record("value length -2", Both("INVALID_RECORD"), |record| {
            record.value_length = Some(-2)
        }),
        record(
            "value length beyond the record",
            Both("INVALID_RECORD"),
            |record| record.value_length = Some(1_000),
        ),
        record(
            "value length into the next record",
            Both("INVALID_RECORD"),
            |record| record.value_length = Some(20),
        ),
        record("value length too small", Both("INVALID_RECORD"), |record| {
            record.value_length = Some(3)
        }),
        record("header count -1", Both("INVALID_RECORD"), |record| {
            record.header_count = Some(-1)
        }),
        record("header count 1 of 0", Both("INVALID_RECORD"), |record| {
            record.header_count = Some(1)
        }),
        record("header count 2^31-1", Both("INVALID_RECORD"), |record| {
            record.header_count = Some(i32::MAX)
        }),
        record("a header whose key is null", Both("INVALID_RECORD"), |record| {
            record.headers = vec![(-1, b"", 1, b"v")]
        }),
        record("a header whose value is null", Both("NONE"), |record| {
            record.headers = vec![(1, b"k", -1, b"")]
        }),
        record(
            "a header's value length -2",
            differ("NONE", "INVALID_RECORD", &HEADER_VALUE),
            |record| record.headers = vec![(1, b"k", -2, b"")],
        ),
        record(
            "a header's key length beyond the record",
            Both("INVALID_RECORD"),
            |record| {
                record.headers = vec![(1_000, b"k", 1, b"v")];
            },
        ),
        record("a header's key that is no UTF-8", Both("NONE"), |record| {
            record.headers = vec![(2, b"\xff\xfe", 1, b"v")];
        }),
        header(
            "a length of six bytes",
            differ("UNKNOWN_SERVER_ERROR", "INVALID_RECORD", &UNNAMED),
            |batch| {
                batch.payload = Some([&[0x80; 5][..], &[0x01], &batch.plain()].concat());
            },
        ),
        header("a length in five bytes where one does", Both("NONE"), |batch| {
            let plain = batch.plain();
            let long = [plain[0] | 0x80, 0x80, 0x80, 0x80, 0x00];
            batch.payload = Some([&long[..], &plain[1..]].concat());
        }),
        header("bytes behind the last record", Both("INVALID_RECORD"), |batch| {
            batch.payload = Some([&batch.plain()[..], b"more"].concat());
        }),
        header("the last record cut", Both("INVALID_RECORD"), |batch| {
            let plain = batch.plain();
            batch.payload = Some(plain[..plain.len() - 3].to_vec());
        }),
        header(
            "garbage for records",
            differ("UNKNOWN_SERVER_ERROR", "INVALID_RECORD", &UNNAMED),
            |batch| batch.payload = Some(vec![0xff; 60]),
        ),
    ]
}

fn producers() -> Vec<Case> {
    let idempotent = |name: &str, expected, producer_id: i64, producer_epoch: i16, base_sequence: i32| {
        header(name, expected, move |batch| {
            batch.producer_id = producer_id;
            batch.producer_epoch = producer_epoch;
            batch.base_sequence = base_sequence;
        })
    };
    vec![
        idempotent("an idempotent producer", Both("NONE"), 4_000, 0, 0),
        idempotent(
            "a producer id with sequence -1",
            Both("INVALID_RECORD"),
            4_000,
            0,
            -1,
        ),
        idempotent(
            "a producer id with sequence -2",
            Both("INVALID_RECORD"),
            4_000,
            0,
            -2,
        ),
        idempotent("a producer id with epoch -1", Both("NONE"), 4_000, -1, 0),
        idempotent(
            "a producer id with epoch -2",
            Both("INVALID_PRODUCER_EPOCH"),
            4_000,
            -2,
            0,
        ),
        idempotent(
            "a producer id with neither",
            Both("INVALID_RECORD"),
            4_000,
            -1,
            -1,
        ),
        idempotent("a first sequence of 100", Both("NONE"), 4_000, 0, 100),
        idempotent("a first sequence of 2^31-1", Both("NONE"), 4_000, 0, i32::MAX),
        idempotent("producer id -2", Both("NONE"), -2, 0, 0),
        idempotent("an epoch without a producer id", Both("NONE"), -1, 0, -1),
        idempotent("a sequence without a producer id", Both("NONE"), -1, -1, 0),
        idempotent("epoch and sequence without a producer id", Both("NONE"), -1, 3, 5),
    ]
}
