//! Produce: compressed records that do not match their batch.

use ottla_wire::deviations::{CHECKSUMS, ONE_STREAM, RECORD_LENGTH, UNFOLDING, UNNAMED};
use ottla_wire::records::compression::{Codec, compress};

use super::case::{Case, Expected, Scene, differ, produce};
use super::forged::Forged;

use Expected::Both;

const CODECS: [Codec; 4] = [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd];

fn batch(name: &str, codec: Codec, expected: Expected, forge: impl Fn(Forged) -> Forged + 'static) -> Case {
    Case::new(format!("{codec}: {name}"), expected, move |scene: &Scene| {
        produce(scene, &forge(Forged::new(scene.now_ms).codec(codec)).bytes())
    })
}

fn packed(codec: Codec, plain: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    compress(codec.into(), plain, &mut out);
    out
}

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for codec in CODECS {
        cases.extend(counts(codec));
        cases.extend(records(codec));
        cases.extend(data(codec));
    }
    cases.extend(lz4_frames());
    cases.extend(snappy_streams());
    cases.extend(bombs());
    cases
}

fn counts(codec: Codec) -> Vec<Case> {
    let with = |name: &str, expected, change: fn(&mut Forged)| {
        batch(name, codec, expected, move |forged| forged.with(change))
    };
    vec![
        with("three records", Both("NONE"), |_| {}),
        with("count 2^31-1", Both("INVALID_RECORD"), |batch| {
            batch.record_count = i32::MAX;
            batch.last_offset_delta = i32::MAX - 1;
        }),
        with("count 4 of 3", Both("INVALID_RECORD"), |batch| {
            batch.record_count = 4;
            batch.last_offset_delta = 3;
        }),
        with("count 2 of 3", Both("INVALID_RECORD"), |batch| {
            batch.record_count = 2;
            batch.last_offset_delta = 1;
        }),
        with("count 1 of 3", Both("INVALID_RECORD"), |batch| {
            batch.record_count = 1;
            batch.last_offset_delta = 0;
        }),
        with("nothing and count 3", Both("INVALID_RECORD"), |batch| {
            batch.records.clear()
        }),
        with("max timestamp too small", Both("NONE"), |batch| {
            batch.max_timestamp = 17
        }),
    ]
}

fn records(codec: Codec) -> Vec<Case> {
    let with = |name: &str, expected, change: fn(&mut Forged)| {
        batch(name, codec, expected, move |forged| forged.with(change))
    };
    vec![
        with("offset delta 7 for 1", UNNAMED_RECORD, |batch| {
            batch.records[1].offset_delta = 7
        }),
        with("offset delta 0 for 1", UNNAMED_RECORD, |batch| {
            batch.records[1].offset_delta = 0
        }),
        with(
            "value length beyond the record",
            Both("INVALID_RECORD"),
            |batch| {
                batch.records[1].value_length = Some(1_000);
            },
        ),
        with("header count 1 of 0", Both("INVALID_RECORD"), |batch| {
            batch.records[1].header_count = Some(1);
        }),
        with("header count -1", Both("INVALID_RECORD"), |batch| {
            batch.records[1].header_count = Some(-1);
        }),
        with("a header whose key is null", Both("INVALID_RECORD"), |batch| {
            batch.records[1].headers = vec![(-1, b"", 1, b"v")];
        }),
        with("a record's length too small", WRONG_LENGTH, |batch| {
            batch.records[1].length = Some(10)
        }),
        with("a record's length too large", WRONG_LENGTH, |batch| {
            batch.records[1].length = Some(17)
        }),
        with(
            "bytes behind a record's headers",
            Both("INVALID_RECORD"),
            |batch| {
                batch.records[1].more = vec![0; 3];
            },
        ),
        with("record attributes 1", Both("NONE"), |batch| {
            batch.records[1].attributes = 1
        }),
        with(
            "a timestamp delta of a year",
            Both("INVALID_TIMESTAMP"),
            |batch| {
                batch.records[1].timestamp_delta = 31_536_000_000;
            },
        ),
    ]
}

const UNNAMED_RECORD: Expected = differ("UNKNOWN_SERVER_ERROR", "INVALID_RECORD", &UNNAMED);
const WRONG_LENGTH: Expected = differ("NONE", "INVALID_RECORD", &RECORD_LENGTH);
const MORE_THAN_ONE: Expected = differ("NONE", "INVALID_RECORD", &ONE_STREAM);

fn data(codec: Codec) -> Vec<Case> {
    let payload = |name: &str, expected, payload: fn(&Forged) -> Vec<u8>| {
        batch(name, codec, expected, move |forged| {
            forged.with(|batch| batch.payload = Some(payload(batch)))
        })
    };
    // Either the codec detects it, or the decompressed records are invalid, or it cannot be
    // detected.
    let of = |gzip, snappy, lz4, zstd| match codec {
        Codec::Gzip => gzip,
        Codec::Snappy => snappy,
        Codec::Lz4 => lz4,
        Codec::Zstd | Codec::None => zstd,
    };
    let refused = Both("INVALID_RECORD");
    let unseen = Both("NONE");
    vec![
        payload(
            "an empty payload",
            of(UNNAMED_RECORD, UNNAMED_RECORD, UNNAMED_RECORD, refused),
            |_| Vec::new(),
        ),
        payload("garbage", UNNAMED_RECORD, |_| vec![0x55; 60]),
        payload("records that are not compressed", UNNAMED_RECORD, Forged::plain),
        payload("a cut end", UNNAMED_RECORD, |batch| {
            let packed = batch.packed();
            packed[..packed.len() - 3].to_vec()
        }),
        payload("a cut middle", UNNAMED_RECORD, |batch| {
            let packed = batch.packed();
            packed[..packed.len() / 2].to_vec()
        }),
        payload(
            "a flipped bit in the middle",
            of(UNNAMED_RECORD, unseen, unseen, unseen),
            |batch| {
                let mut packed = batch.packed();
                let middle = packed.len() / 2;
                packed[middle] ^= 0x10;
                packed
            },
        ),
        payload(
            "a flipped bit in the last byte",
            of(UNNAMED_RECORD, refused, UNNAMED_RECORD, UNNAMED_RECORD),
            |batch| {
                let mut packed = batch.packed();
                *packed.last_mut().expect("not empty") ^= 0x10;
                packed
            },
        ),
        payload(
            "bytes behind the compressed data",
            of(MORE_THAN_ONE, UNNAMED_RECORD, MORE_THAN_ONE, UNNAMED_RECORD),
            |batch| [&batch.packed()[..], b"more"].concat(),
        ),
        payload(
            "records in two compressed parts",
            of(MORE_THAN_ONE, MORE_THAN_ONE, refused, unseen),
            |batch| {
                let plain = batch.plain();
                let (first, second) = plain.split_at(plain.len() / 2);
                [packed(batch.codec, first), packed(batch.codec, second)].concat()
            },
        ),
        payload(
            "an empty part behind the records",
            of(MORE_THAN_ONE, MORE_THAN_ONE, MORE_THAN_ONE, unseen),
            |batch| [batch.packed(), packed(batch.codec, &[])].concat(),
        ),
        payload("bytes behind the last record", refused, |batch| {
            packed(batch.codec, &[&batch.plain()[..], b"more"].concat())
        }),
        payload("the last record cut", refused, |batch| {
            let plain = batch.plain();
            packed(batch.codec, &plain[..plain.len() - 3])
        }),
        payload("two MiB of zeros", refused, |batch| {
            packed(batch.codec, &vec![0; 2 << 20])
        }),
    ]
}

/// A frame of one stored block; the last byte of its header is the checksum of the two before it.
fn lz4_frame(header: [u8; 3], plain: &[u8], behind: &[u8]) -> Vec<u8> {
    const MAGIC: [u8; 4] = 0x184D_2204_u32.to_le_bytes();
    let stored = plain.len() as u32 | 1 << 31;
    [&MAGIC[..], &header, &stored.to_le_bytes(), plain, &[0; 4], behind].concat()
}

fn lz4_frames() -> Vec<Case> {
    let frame = |name: &str, expected, header: [u8; 3], behind: &'static [u8]| {
        batch(name, Codec::Lz4, expected, move |forged| {
            forged.with(|batch| batch.payload = Some(lz4_frame(header, &batch.plain(), behind)))
        })
    };
    vec![
        frame(
            "independent blocks of 64 KiB",
            Both("NONE"),
            [0x60, 0x40, 0x82],
            &[],
        ),
        frame(
            "independent blocks of 4 MiB",
            Both("NONE"),
            [0x60, 0x70, 0x73],
            &[],
        ),
        frame(
            "blocks that depend on each other",
            UNNAMED_RECORD,
            [0x40, 0x40, 0xC0],
            &[],
        ),
        frame(
            "a header with a wrong checksum",
            UNNAMED_RECORD,
            [0x60, 0x40, 0x83],
            &[],
        ),
        frame(
            "a content checksum that is not there",
            UNNAMED_RECORD,
            [0x64, 0x40, 0xA7],
            &[],
        ),
        frame(
            "a content checksum that is wrong",
            differ("NONE", "INVALID_RECORD", &CHECKSUMS),
            [0x64, 0x40, 0xA7],
            &[1, 2, 3, 4],
        ),
    ]
}

fn snappy_streams() -> Vec<Case> {
    let stream = |name: &str, expected, head: &'static [u8]| {
        batch(name, Codec::Snappy, expected, move |forged| {
            forged.with(|batch| batch.payload = Some([head, &bare_block(&batch.plain())].concat()))
        })
    };
    vec![
        stream("a bare block", Both("NONE"), &[]),
        stream(
            "a stream of version 0",
            Both("NONE"),
            b"\x82SNAPPY\0\0\0\0\0\0\0\0\0\0\0\0\x36",
        ),
    ]
}

/// A block made without an encoder: the length, then one literal.
fn bare_block(plain: &[u8]) -> Vec<u8> {
    let length = u8::try_from(plain.len()).expect("one byte holds the length");
    [&[length, 60 << 2, length - 1][..], plain].concat()
}

/// Decompression bombs.
fn bombs() -> Vec<Case> {
    let record = |codec: Codec, expected, mib: usize| {
        let name = format!("a record of {mib} MiB");
        batch(&name, codec, expected, move |forged| {
            forged.record(1, move |record| record.value = vec![0; mib << 20])
        })
    };
    let mut cases: Vec<Case> = CODECS
        .into_iter()
        .map(|codec| record(codec, Both("NONE"), 2))
        .collect();
    cases.push(record(Codec::Zstd, Both("NONE"), 60));
    cases.push(record(
        Codec::Zstd,
        differ("NONE", "MESSAGE_TOO_LARGE", &UNFOLDING),
        101,
    ));
    cases
}
