//! Properties that hold for any records and any bytes.

#![allow(clippy::unwrap_used, reason = "a failed step of a test is a failed test")]

use ottla_wire::records::batch::{Batch, BatchHeader, HEADER_BYTES, TimestampType, batches, seal};
use ottla_wire::records::builder::{BatchBuilder, BatchOptions};
use ottla_wire::records::compression::unfold::UnfoldingBudget;
use ottla_wire::records::compression::{Codec, Compression, compress, decompress};
use ottla_wire::records::control::ControlRecord;
use ottla_wire::records::record::{Header, Records};
use ottla_wire::records::validate::{ProduceError, ProduceRules, ValidBatch};
use proptest::prelude::*;
use proptest::sample::{Index, select};

type Bytes = Option<Vec<u8>>;

#[derive(Clone, Debug)]
struct Sample {
    timestamp: i64,
    key: Bytes,
    value: Bytes,
    headers: Vec<(Vec<u8>, Bytes)>,
}

fn bytes() -> impl Strategy<Value = Bytes> {
    proptest::option::of(proptest::collection::vec(any::<u8>(), 0..200))
}

fn samples() -> impl Strategy<Value = Vec<Sample>> {
    let headers = proptest::collection::vec((proptest::collection::vec(any::<u8>(), 0..20), bytes()), 0..4);
    let timestamp = prop_oneof![9 => 0..2 * NOW_MS, 1 => any::<i64>()];
    let sample = (timestamp, bytes(), bytes(), headers);
    let sample = sample.prop_map(|(timestamp, key, value, headers)| Sample {
        timestamp,
        key,
        value,
        headers,
    });
    proptest::collection::vec(sample, 1..40)
}

fn build(samples: &[Sample], compression: Compression) -> Vec<u8> {
    let mut builder = BatchBuilder::new(BatchOptions {
        compression,
        ..BatchOptions::default()
    });
    for sample in samples {
        let headers: Vec<Header<'_>> = sample
            .headers
            .iter()
            .map(|(key, value)| Header {
                key,
                value: value.as_deref(),
            })
            .collect();
        builder.append(
            sample.timestamp,
            sample.key.as_deref(),
            sample.value.as_deref(),
            &headers,
        );
    }
    builder.finish()
}

const LIMIT_BYTES: usize = 1 << 20;
const NOW_MS: i64 = 1_700_000_000_000;

fn validate<'a>(bytes: &'a [u8], rules: &ProduceRules) -> Result<ValidBatch<'a>, ProduceError> {
    ottla_wire::records::validate::validate(bytes, rules, &mut UnfoldingBudget::new(LIMIT_BYTES))
}

fn any_rules() -> impl Strategy<Value = ProduceRules> {
    let compression = proptest::option::of(select(&Codec::ALL[..]));
    let log_append_time = any::<bool>();
    (any::<bool>(), compression, log_append_time, any::<bool>()).prop_map(
        |(is_compacted, compression, log_append_time, limits_past)| ProduceRules {
            produce_version: 12,
            max_message_bytes: LIMIT_BYTES,
            timestamp_type: if log_append_time {
                TimestampType::LogAppendTime
            } else {
                TimestampType::CreateTime
            },
            timestamp_before_max_ms: if limits_past { 1_000_000 } else { i64::MAX },
            timestamp_after_max_ms: i64::MAX,
            is_compacted,
            compression: compression.map(Compression::from),
            now_ms: NOW_MS,
        },
    )
}

/// Reads everything that arbitrary bytes contain.
fn read_all(bytes: &[u8]) {
    for batch in batches(bytes).map_while(Result::ok) {
        let _ = batch.verify_checksum();
        let Some(codec) = batch.header.compression() else {
            continue;
        };
        let mut plain = Vec::new();
        if decompress(codec, batch.record_bytes(), LIMIT_BYTES, &mut plain).is_ok() {
            for record in Records::new(&batch.header, &plain).map_while(Result::ok) {
                let header_count = record.headers.iter().count();
                assert_eq!(header_count, record.headers.len());
                let _ = ControlRecord::decode(&record);
            }
        }
    }
}

/// One change to bytes, anywhere.
#[derive(Clone, Debug)]
enum Damage {
    Set(Index, u8),
    Flip(Index, u8),
    Cut(Index),
    Remove(Index, usize),
    Insert(Index, Vec<u8>),
    Repeat(Index, usize),
}

fn damage() -> impl Strategy<Value = Damage> {
    prop_oneof![
        (any::<Index>(), any::<u8>()).prop_map(|(at, value)| Damage::Set(at, value)),
        (any::<Index>(), 0..8_u8).prop_map(|(at, bit)| Damage::Flip(at, bit)),
        any::<Index>().prop_map(Damage::Cut),
        (any::<Index>(), 1..20_usize).prop_map(|(at, count)| Damage::Remove(at, count)),
        (any::<Index>(), proptest::collection::vec(any::<u8>(), 1..20))
            .prop_map(|(at, bytes)| Damage::Insert(at, bytes)),
        (any::<Index>(), 1..200_usize).prop_map(|(at, count)| Damage::Repeat(at, count)),
    ]
}

fn harm(bytes: &mut Vec<u8>, damage: &Damage) {
    if bytes.is_empty() {
        return;
    }
    let length = bytes.len();
    match damage {
        Damage::Set(at, value) => bytes[at.index(length)] = *value,
        Damage::Flip(at, bit) => bytes[at.index(length)] ^= 1 << bit,
        Damage::Cut(at) => bytes.truncate(at.index(length)),
        Damage::Remove(at, count) => {
            let at = at.index(length);
            bytes.drain(at..length.min(at + count));
        }
        Damage::Insert(at, more) => {
            let at = at.index(length);
            bytes.splice(at..at, more.iter().copied());
        }
        Damage::Repeat(at, count) => {
            let at = at.index(length);
            bytes.extend_from_within(at..length.min(at + count));
        }
    }
}

/// A fault of a batch, made before its length and checksum are corrected.
#[derive(Clone, Debug)]
struct Lie {
    records: Option<Damage>,
    packed: Option<Damage>,
    /// Added to the number of records.
    count: i32,
    attributes: i16,
}

fn lies() -> impl Strategy<Value = Lie> {
    let count = prop_oneof![8 => Just(0), 1 => -3..4, 1 => any::<i32>()];
    let attributes = prop_oneof![20 => Just(0), 1 => any::<i16>()];
    let sometimes = || proptest::option::of(damage());
    (sometimes(), sometimes(), count, attributes).prop_map(|(records, packed, count, attributes)| Lie {
        records,
        packed,
        count,
        attributes,
    })
}

/// Returns a batch with damage in its records, their compressed form or its header, and with a
/// correct length and checksum.
fn damaged(samples: &[Sample], codec: Codec, lie: &Lie) -> Vec<u8> {
    let mut bytes = build(samples, Compression::NONE);
    let mut header = BatchHeader::parse(&bytes).unwrap();
    let mut plain = bytes.split_off(HEADER_BYTES);
    if let Some(damage) = &lie.records {
        harm(&mut plain, damage);
    }
    let mut packed = Vec::new();
    compress(codec.into(), &plain, &mut packed);
    if let Some(damage) = &lie.packed {
        harm(&mut packed, damage);
    }
    header.attributes = codec.id() ^ lie.attributes;
    header.record_count = header.record_count.wrapping_add(lie.count);
    header.last_offset_delta = header.record_count.wrapping_sub(1);
    header.batch_length = (HEADER_BYTES - 12 + packed.len()) as i32;
    let mut bytes = [&header.encode()[..], &packed].concat();
    seal(&mut bytes);
    bytes
}

/// Reads the batch as a consumer does: all announced records, numbered from 0, and nothing else.
fn read_whole(stored: &[u8]) {
    let batch = Batch::parse(stored).unwrap();
    assert_eq!(batch.bytes.len(), stored.len());
    batch.verify_checksum().unwrap();
    let mut plain = Vec::new();
    let codec = batch.header.compression().unwrap();
    decompress(codec, batch.record_bytes(), LIMIT_BYTES, &mut plain).unwrap();
    let records: Vec<_> = Records::new(&batch.header, &plain)
        .collect::<Result<_, _>>()
        .unwrap();
    assert_eq!(records.len(), batch.header.record_count as usize);
    let first = batch.header.base_offset;
    assert!(
        records
            .iter()
            .map(|record| record.offset)
            .eq(first..first + records.len() as i64)
    );
    assert_eq!(batch.header.last_offset() + 1, first + records.len() as i64);
}

proptest! {
    #[test]
    fn a_damaged_batch_is_refused_or_read_whole(
        samples in samples(),
        codec in select(&Codec::ALL[..]),
        rules in any_rules(),
        lie in lies(),
    ) {
        let bytes = damaged(&samples, codec, &lie);
        if let Ok(valid) = validate(&bytes, &rules) {
            read_whole(&[&valid.header_bytes(7, 1)[..], &valid.record_bytes].concat());
        }
    }

    #[test]
    fn records_survive_every_codec(samples in samples(), codec in select(&Codec::ALL[..])) {
        let bytes = build(&samples, codec.into());
        let batch = Batch::parse(&bytes).unwrap();
        prop_assert_eq!(batch.bytes.len(), bytes.len());
        batch.verify_checksum().unwrap();
        let mut plain = Vec::new();
        decompress(codec, batch.record_bytes(), LIMIT_BYTES, &mut plain).unwrap();
        let records: Vec<_> = Records::new(&batch.header, &plain).collect::<Result<_, _>>().unwrap();
        prop_assert_eq!(records.len(), samples.len());
        for (index, (record, sample)) in records.iter().zip(&samples).enumerate() {
            prop_assert_eq!(record.offset, index as i64);
            prop_assert_eq!(record.timestamp, sample.timestamp);
            prop_assert_eq!(record.key, sample.key.as_deref());
            prop_assert_eq!(record.value, sample.value.as_deref());
            let headers = sample.headers.iter().map(|(key, value)| Header { key, value: value.as_deref() });
            prop_assert!(record.headers.iter().eq(headers));
        }
        prop_assert_eq!(batch.header.max_timestamp, samples.iter().map(|s| s.timestamp).max().unwrap().max(-1));
    }

    #[test]
    fn a_valid_batch_is_one_that_consumers_can_read(
        samples in samples(),
        codec in select(&Codec::ALL[..]),
        rules in any_rules(),
    ) {
        let bytes = build(&samples, codec.into());
        let Ok(valid) = validate(&bytes, &rules) else { return Ok(()) };
        let stored = [&valid.header_bytes(7, 1)[..], &valid.record_bytes].concat();
        let batch = Batch::parse(&stored).unwrap();
        batch.verify_checksum().unwrap();
        let codec = batch.header.compression().unwrap();
        let mut plain = Vec::new();
        decompress(codec, batch.record_bytes(), LIMIT_BYTES, &mut plain).unwrap();
        let keys: Vec<_> = Records::new(&batch.header, &plain).map(|record| record.unwrap().key.map(<[u8]>::to_vec)).collect();
        let expected: Vec<_> = samples.iter().map(|sample| sample.key.clone()).collect();
        prop_assert_eq!(keys, expected);
    }

    #[test]
    fn mutated_batches_are_refused_or_read_whole(
        samples in samples(),
        codec in select(&Codec::ALL[..]),
        rules in any_rules(),
        mutations in proptest::collection::vec(damage(), 1..4),
    ) {
        let mut bytes = build(&samples, codec.into());
        for damage in &mutations {
            harm(&mut bytes, damage);
        }
        read_all(&bytes);
        if bytes.len() < HEADER_BYTES {
            prop_assert!(validate(&bytes, &rules).is_err());
            return Ok(());
        }
        // With a correct checksum only the structure can be refused.
        seal(&mut bytes);
        let Ok(valid) = validate(&bytes, &rules) else { return Ok(()) };
        read_whole(&[&valid.header_bytes(7, 1)[..], &valid.record_bytes].concat());
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..2_000), rules in any_rules()) {
        read_all(&bytes);
        let _ = validate(&bytes, &rules);
        for codec in Codec::ALL {
            let mut plain = Vec::new();
            let _ = decompress(codec, &bytes, LIMIT_BYTES, &mut plain);
            prop_assert!(plain.len() <= LIMIT_BYTES + 1);
        }
    }
}
