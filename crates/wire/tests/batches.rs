//! Record batches against bytes written by Apache Kafka's own classes; see `batches/README.md`.

#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::fs;
use std::path::{Path, PathBuf};

use ottla_wire::messages::voters_record::{Endpoint, KRaftVersionFeature, Voter, VotersRecord};
use ottla_wire::primitives::Uuid;
use ottla_wire::records::batch::{Batch, BatchHeader, TimestampType, batches};
use ottla_wire::records::builder::{BatchBuilder, BatchOptions};
use ottla_wire::records::compression::unfold::UnfoldingBudget;
use ottla_wire::records::compression::{Codec, decompress};
use ottla_wire::records::control::{ControlRecord, TransactionMarker, TransactionResult, control_batch};
use ottla_wire::records::record::{Header, Records};
use ottla_wire::records::validate::{ProduceRules, validate};

const NOW_MS: i64 = 1_700_000_000_000;

#[derive(Clone, Debug, PartialEq)]
struct Sample {
    timestamp: i64,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

fn sample(
    timestamp: i64,
    key: Option<&str>,
    value: Option<&str>,
    headers: &[(&str, Option<&str>)],
) -> Sample {
    let bytes = |text: &str| text.as_bytes().to_vec();
    Sample {
        timestamp,
        key: key.map(bytes),
        value: value.map(bytes),
        headers: headers
            .iter()
            .map(|(key, value)| (bytes(key), value.map(bytes)))
            .collect(),
    }
}

fn few() -> Vec<Sample> {
    vec![
        sample(NOW_MS, Some("key"), Some("value"), &[]),
        sample(NOW_MS + 1, None, Some("only a value"), &[]),
        sample(NOW_MS - 5, Some("only a key"), None, &[]),
        sample(
            NOW_MS + 100_000,
            Some(""),
            Some(""),
            &[("trace", Some("abc")), ("", None), ("trace", Some(""))],
        ),
        sample(NOW_MS, Some("long"), Some(&"x".repeat(1000)), &[]),
    ]
}

/// More than one block of every codec.
fn many() -> Vec<Sample> {
    (0..700)
        .map(|i| {
            let value = format!("value {} ", i * 7919).repeat(10);
            sample(NOW_MS + i, Some(&format!("key-{i}")), Some(&value), &[])
        })
        .collect()
}

fn options() -> BatchOptions {
    BatchOptions {
        base_offset: 100,
        leader_epoch: 7,
        ..BatchOptions::default()
    }
}

fn build(options: BatchOptions, samples: &[Sample]) -> Vec<u8> {
    let mut builder = BatchBuilder::new(options);
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

fn golden(name: &str) -> Vec<u8> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/batches");
    fs::read(directory.join(format!("{name}.bin"))).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Decodes the records of a batch after all checks.
fn read(bytes: &[u8]) -> (BatchHeader, Vec<Sample>) {
    let all: Vec<Batch<'_>> = batches(bytes).collect::<Result<_, _>>().unwrap();
    let [batch] = all[..] else {
        panic!("{} batches", all.len())
    };
    batch.verify_checksum().unwrap();
    let mut plain = Vec::new();
    decompress(
        batch.header.compression().unwrap(),
        batch.record_bytes(),
        1 << 20,
        &mut plain,
    )
    .unwrap();
    let mut samples = Vec::new();
    for (index, record) in Records::new(&batch.header, &plain).enumerate() {
        let record = record.unwrap();
        assert_eq!(record.offset, 100 + index as i64);
        samples.push(Sample {
            timestamp: record.timestamp,
            key: record.key.map(<[u8]>::to_vec),
            value: record.value.map(<[u8]>::to_vec),
            headers: record
                .headers
                .iter()
                .map(|h| (h.key.to_vec(), h.value.map(<[u8]>::to_vec)))
                .collect(),
        });
    }
    (batch.header, samples)
}

/// Checks that our bytes equal Java's, and that they decode to the expected records.
#[track_caller]
fn check_same(name: &str, ours: &[u8]) {
    let theirs = golden(name);
    assert_eq!(
        Batch::parse(&theirs).unwrap().header,
        Batch::parse(ours).unwrap().header,
        "{name}"
    );
    assert_eq!(theirs, ours, "{name}");
}

#[test]
fn java_batches_are_read_in_every_codec() {
    for codec in Codec::ALL {
        let (header, samples) = read(&golden(&format!("few_{codec}")));
        assert_eq!(header.compression(), Some(codec));
        assert_eq!(
            (header.leader_epoch, header.last_offset(), header.record_count),
            (7, 104, 5)
        );
        assert_eq!(
            (header.base_timestamp, header.max_timestamp),
            (NOW_MS, NOW_MS + 100_000)
        );
        assert_eq!(samples, few());
        if codec != Codec::None {
            assert_eq!(read(&golden(&format!("many_{codec}"))).1, many(), "{codec}");
        }
    }
}

#[test]
fn uncompressed_batches_equal_javas_byte_for_byte() {
    let producer = BatchOptions {
        producer_id: 4242,
        producer_epoch: 3,
        ..options()
    };
    check_same("few_none", &build(options(), &few()));
    check_same(
        "idempotent",
        &build(
            BatchOptions {
                base_sequence: i32::MAX - 1,
                ..producer
            },
            &few(),
        ),
    );
    let transactional = BatchOptions {
        base_sequence: 17,
        is_transactional: true,
        ..producer
    };
    check_same("transactional", &build(transactional, &few()));
    let horizon = BatchOptions {
        delete_horizon_ms: Some(NOW_MS + 86_400_000),
        ..options()
    };
    check_same("delete_horizon", &build(horizon, &few()));
    check_same(
        "log_append_time",
        &build(
            BatchOptions {
                log_append_time: Some(NOW_MS + 9),
                ..options()
            },
            &few(),
        ),
    );
}

#[test]
fn sequences_and_times_of_headers_equal_javas() {
    // Two records before the wrap, three after it.
    assert_eq!(read(&golden("idempotent")).0.last_sequence(), 2);
    let (header, samples) = read(&golden("log_append_time"));
    assert_eq!(header.timestamp_type(), TimestampType::LogAppendTime);
    assert!(samples.iter().all(|sample| sample.timestamp == NOW_MS + 9));
    let (header, samples) = read(&golden("delete_horizon"));
    assert_eq!(header.delete_horizon_ms(), Some(NOW_MS + 86_400_000));
    assert_eq!(samples, few());
}

#[test]
fn a_batch_emptied_by_compaction_equals_javas() {
    let original = BatchHeader {
        record_count: 5,
        max_timestamp: NOW_MS,
        ..read(&golden("transactional")).0
    };
    check_same(
        "empty",
        &BatchBuilder::replacing(&original, Vec::new(), None).finish(),
    );
}

#[test]
fn transaction_markers_equal_javas() {
    let marker = |result| TransactionMarker {
        producer_id: 4242,
        producer_epoch: 3,
        result,
        coordinator_epoch: 11,
    };
    check_same(
        "commit",
        &marker(TransactionResult::Commit).to_batch(100, 7, NOW_MS),
    );
    check_same(
        "abort",
        &marker(TransactionResult::Abort).to_batch(100, 7, NOW_MS),
    );
}

#[test]
fn control_records_of_the_metadata_log_equal_javas() {
    let check = |name: &str, record: ControlRecord<'_>| {
        check_same(
            name,
            &control_batch(options(), NOW_MS, std::slice::from_ref(&record)),
        );
        let bytes = golden(name);
        let first = Batch::parse(&bytes).unwrap().records().next().unwrap().unwrap();
        assert_eq!(ControlRecord::decode(&first), Ok(record), "{name}");
    };
    check("leader_change", ControlRecord::leader_change(1, &[1, 2], &[2]));
    check(
        "snapshot_header",
        ControlRecord::SnapshotHeader {
            last_contained_log_timestamp: NOW_MS - 1,
        },
    );
    check("snapshot_footer", ControlRecord::SnapshotFooter);
    check("kraft_version", ControlRecord::KRaftVersion { kraft_version: 1 });
    let voter = Voter {
        voter_id: 1,
        voter_directory_id: Uuid([7; 16]),
        endpoints: vec![Endpoint {
            name: "CONTROLLER",
            host: "localhost",
            port: 65_000,
        }],
        k_raft_version_feature: KRaftVersionFeature {
            min_supported_version: 0,
            max_supported_version: 1,
        },
    };
    check(
        "voters",
        ControlRecord::Voters(VotersRecord {
            version: 0,
            voters: vec![voter],
        }),
    );
}

#[test]
fn a_producers_batch_from_java_passes_validation_untouched() {
    let rules = ProduceRules {
        produce_version: 12,
        max_message_bytes: 1 << 20,
        timestamp_type: TimestampType::CreateTime,
        timestamp_before_max_ms: i64::MAX,
        timestamp_after_max_ms: 3_600_000,
        is_compacted: false,
        compression: None,
        now_ms: NOW_MS,
    };
    for name in [
        "few_none",
        "few_gzip",
        "few_snappy",
        "few_lz4",
        "few_zstd",
        "transactional",
        "many_zstd",
    ] {
        let mut bytes = golden(name);
        // A producer sends offset 0; the checksum does not cover it.
        bytes[..8].fill(0);
        let valid = validate(&bytes, &rules, &mut UnfoldingBudget::new(1 << 24))
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        let stored = [&valid.header_bytes(100, 7)[..], &valid.record_bytes].concat();
        assert_eq!(stored, golden(name));
    }
}

#[test]
fn our_batches_are_read_back_in_every_codec() {
    let out = std::env::var_os("OTTLA_BATCHES_OUT").map(PathBuf::from);
    for codec in Codec::ALL {
        for (name, samples) in [("few", few()), ("many", many())] {
            let bytes = build(
                BatchOptions {
                    compression: codec.into(),
                    ..options()
                },
                &samples,
            );
            assert_eq!(read(&bytes).1, samples, "{name} {codec}");
            // For Java to read: `cargo xtask golden --verify`.
            if let Some(directory) = &out {
                fs::write(directory.join(format!("{name}_{codec}.bin")), &bytes).unwrap();
            }
        }
    }
}
