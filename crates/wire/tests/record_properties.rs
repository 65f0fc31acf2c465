//! What must hold for any records and any bytes.

use ottla_wire::records::batch::{Batch, HEADER_BYTES, TimestampType, batches, seal};
use ottla_wire::records::builder::{BatchBuilder, BatchOptions};
use ottla_wire::records::compression::{Codec, Compression, decompress};
use ottla_wire::records::control::ControlRecord;
use ottla_wire::records::record::{Header, Records};
use ottla_wire::records::validate::{ProduceRules, validate};
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
    let sample = (any::<i64>(), bytes(), bytes(), headers);
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
            uncompressed_limit_bytes: LIMIT_BYTES,
            now_ms: 1_700_000_000_000,
        },
    )
}

/// Reads everything there is to read in bytes from nowhere.
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

proptest! {
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
    fn mutated_batches_are_refused_or_readable(
        samples in samples(),
        codec in select(&Codec::ALL[..]),
        rules in any_rules(),
        mutations in proptest::collection::vec((any::<Index>(), any::<u8>()), 1..4),
        cut in proptest::option::of(any::<Index>()),
    ) {
        let mut bytes = build(&samples, codec.into());
        for (index, value) in mutations {
            let position = index.index(bytes.len());
            bytes[position] = value;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        read_all(&bytes);
        if bytes.len() < HEADER_BYTES {
            prop_assert!(validate(&bytes, &rules).is_err());
            return Ok(());
        }
        // With a checksum that fits, only the structure is left to object.
        seal(&mut bytes);
        let Ok(valid) = validate(&bytes, &rules) else { return Ok(()) };
        if valid.header.compression() == Some(Codec::None) {
            for record in Records::new(&valid.header, &valid.record_bytes) {
                record.unwrap();
            }
        }
    }

    #[test]
    fn bytes_from_nowhere_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..2_000), rules in any_rules()) {
        read_all(&bytes);
        let _ = validate(&bytes, &rules);
        for codec in Codec::ALL {
            let mut plain = Vec::new();
            let _ = decompress(codec, &bytes, LIMIT_BYTES, &mut plain);
            prop_assert!(plain.len() <= LIMIT_BYTES + 1);
        }
    }
}
