//! Produce: compressed records that are not what their batch says.

use ottla_wire::records::compression::{Codec, compress};

use super::case::{Case, Expected, Scene, produce};
use super::forged::Forged;

use Expected::Both;

const CODECS: [Codec; 4] = [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd];

fn batch(name: String, forge: impl Fn(Forged) -> Forged + 'static) -> Case {
    Case::new(name, Both("?"), move |scene: &Scene| {
        produce(scene, &forge(Forged::new(scene.now_ms)).bytes())
    })
}

fn packed(codec: Codec, plain: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    compress(codec.into(), plain, &mut out);
    out
}

pub fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = CODECS.into_iter().flat_map(of).collect();
    cases.extend(framings());
    cases
}

fn of(codec: Codec) -> Vec<Case> {
    let with = move |what: &str, change: fn(&mut Forged)| {
        batch(format!("{codec}: {what}"), move |forged| {
            forged.codec(codec).with(change)
        })
    };
    let payload = move |what: &str, payload: fn(&Forged) -> Vec<u8>| {
        batch(format!("{codec}: {what}"), move |forged| {
            forged
                .codec(codec)
                .with(|batch| batch.payload = Some(payload(batch)))
        })
    };
    vec![
        with("three records", |_| {}),
        with("count 2^31-1", |batch| {
            batch.record_count = i32::MAX;
            batch.last_offset_delta = i32::MAX - 1;
        }),
        with("count 4 of 3", |batch| {
            batch.record_count = 4;
            batch.last_offset_delta = 3;
        }),
        with("count 2 of 3", |batch| {
            batch.record_count = 2;
            batch.last_offset_delta = 1;
        }),
        with("count 1 of 3", |batch| {
            batch.record_count = 1;
            batch.last_offset_delta = 0;
        }),
        with("nothing and count 3", |batch| batch.records.clear()),
        with("offset delta 7 for 1", |batch| batch.records[1].offset_delta = 7),
        with("offset delta 0 for 1", |batch| batch.records[1].offset_delta = 0),
        with("value length beyond the record", |batch| {
            batch.records[1].value_length = Some(1_000)
        }),
        with("header count 1 of 0", |batch| {
            batch.records[1].header_count = Some(1)
        }),
        with("header count -1", |batch| {
            batch.records[1].header_count = Some(-1)
        }),
        with("a header whose key is null", |batch| {
            batch.records[1].headers = vec![(-1, b"", 1, b"v")]
        }),
        with("a record's length too small", |batch| {
            batch.records[1].length = Some(10)
        }),
        with("a record's length too large", |batch| {
            batch.records[1].length = Some(17)
        }),
        with("bytes behind a record's headers", |batch| {
            batch.records[1].more = vec![0; 3]
        }),
        with("record attributes 1", |batch| batch.records[1].attributes = 1),
        with("a timestamp delta of a year", |batch| {
            batch.records[1].timestamp_delta = 31_536_000_000
        }),
        with("max timestamp too small", |batch| batch.max_timestamp = 17),
        payload("an empty payload", |_| Vec::new()),
        payload("garbage", |_| vec![0x55; 60]),
        payload("records that are not compressed", |batch| batch.plain()),
        payload("a cut end", |batch| {
            let packed = batch.packed();
            packed[..packed.len() - 3].to_vec()
        }),
        payload("a cut middle", |batch| {
            let packed = batch.packed();
            packed[..packed.len() / 2].to_vec()
        }),
        payload("a flipped bit in the middle", |batch| {
            let mut packed = batch.packed();
            let middle = packed.len() / 2;
            packed[middle] ^= 0x10;
            packed
        }),
        payload("a flipped bit in the last byte", |batch| {
            let mut packed = batch.packed();
            *packed.last_mut().expect("not empty") ^= 0x10;
            packed
        }),
        payload("bytes behind the compressed data", |batch| {
            [&batch.packed()[..], b"more"].concat()
        }),
        payload("records in two compressed parts", |batch| {
            let plain = batch.plain();
            let (first, second) = plain.split_at(plain.len() / 2);
            [packed(batch.codec, first), packed(batch.codec, second)].concat()
        }),
        payload("an empty part behind the records", |batch| {
            [batch.packed(), packed(batch.codec, &[])].concat()
        }),
        payload("bytes behind the last record", |batch| {
            packed(batch.codec, &[&batch.plain()[..], b"more"].concat())
        }),
        payload("the last record cut", |batch| {
            let plain = batch.plain();
            packed(batch.codec, &plain[..plain.len() - 3])
        }),
        payload("64 MiB of zeros", |batch| packed(batch.codec, &vec![0; 64 << 20])),
    ]
}

/// What only one codec can have.
fn framings() -> Vec<Case> {
    vec![batch("snappy: a bare block".into(), |forged| {
        forged.codec(Codec::Snappy).with(|batch| {
            // The length, then one literal: a block that needs no encoder.
            let plain = batch.plain();
            assert!(plain.len() < 128, "one byte holds the length");
            let length = plain.len() as u8;
            batch.payload = Some([&[length, 60 << 2, length - 1][..], &plain].concat());
        })
    })]
}
