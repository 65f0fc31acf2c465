//! Benchmarks of building, validating and reading batches, in time per record.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use ottla_wire::records::batch::{Batch, TimestampType};
use ottla_wire::records::builder::{BatchBuilder, BatchOptions};
use ottla_wire::records::compression::unfold::UnfoldingBudget;
use ottla_wire::records::compression::{Codec, compress, decompress};
use ottla_wire::records::crc32c;
use ottla_wire::records::record::Header;
use ottla_wire::records::validate::{ProduceRules, validate};

const NOW_MS: i64 = 1_700_000_000_000;
const RECORDS: usize = 1_000;

fn build(codec: Codec, value_bytes: usize, headers: &[Header<'_>]) -> Vec<u8> {
    let mut builder = BatchBuilder::new(BatchOptions {
        compression: codec.into(),
        ..BatchOptions::default()
    });
    let value = vec![b'v'; value_bytes];
    for i in 0..RECORDS {
        builder.append(NOW_MS + i as i64, Some(b"key-0123"), Some(&value), headers);
    }
    builder.finish()
}

fn rules() -> ProduceRules {
    ProduceRules {
        produce_version: 12,
        max_message_bytes: usize::MAX,
        timestamp_type: TimestampType::CreateTime,
        timestamp_before_max_ms: i64::MAX,
        timestamp_after_max_ms: 3_600_000,
        is_compacted: false,
        compression: None,
        now_ms: NOW_MS,
    }
}

fn is_valid(batch: &[u8]) -> bool {
    validate(black_box(batch), &rules(), &mut UnfoldingBudget::new(usize::MAX)).is_ok()
}

fn bench(criterion: &mut Criterion) {
    let one_header = [Header {
        key: b"trace-id",
        value: Some(b"0123456789abcdef"),
    }];
    let mut group = criterion.benchmark_group("batch of 1000 records");
    group.throughput(Throughput::Elements(RECORDS as u64));
    for value_bytes in [10, 256, 1024] {
        let batch = build(Codec::None, value_bytes, &[]);
        group.bench_with_input(
            BenchmarkId::new("build", value_bytes),
            &value_bytes,
            |bencher, &bytes| {
                bencher.iter(|| build(Codec::None, black_box(bytes), &[]));
            },
        );
        group.bench_with_input(
            BenchmarkId::new("checksum", value_bytes),
            &batch,
            |bencher, batch| {
                bencher.iter(|| crc32c::checksum(black_box(batch)));
            },
        );
        group.bench_with_input(
            BenchmarkId::new("validate", value_bytes),
            &batch,
            |bencher, batch| {
                bencher.iter(|| is_valid(batch));
            },
        );
        group.bench_with_input(
            BenchmarkId::new("decode", value_bytes),
            &batch,
            |bencher, batch| {
                bencher.iter(|| Batch::parse(black_box(batch)).map(|batch| batch.records().count()));
            },
        );
    }
    let with_header = build(Codec::None, 256, &one_header);
    group.bench_function("validate 256, one header", |bencher| {
        bencher.iter(|| is_valid(&with_header));
    });
    group.finish();
}

fn json_line(i: u64) -> Vec<u8> {
    let hash = i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20;
    let amount = hash % 99_991;
    format!("{{\"order\":{i},\"customer\":{hash},\"status\":\"accepted\",\"amount\":{amount}}}").into_bytes()
}

/// JSON records as input of the codecs: about 128 KiB, a full batch of a busy producer.
fn json_records() -> Vec<u8> {
    (0..).flat_map(json_line).take(128 * 1024).collect()
}

/// A batch of records of about 75 bytes.
fn json_batch(codec: Codec, records: u64) -> Vec<u8> {
    let mut builder = BatchBuilder::new(BatchOptions {
        compression: codec.into(),
        ..BatchOptions::default()
    });
    for i in 0..records {
        builder.append(NOW_MS + i as i64, None, Some(&json_line(i)), &[]);
    }
    builder.finish()
}

/// The broker's validation of a batch before the append: about 16, 128 and 1024 KiB of records.
fn bench_checks(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("check a batch of JSON");
    for records in [200, 1_600, 12_800] {
        group.throughput(Throughput::Elements(records));
        for codec in Codec::ALL {
            let batch = json_batch(codec, records);
            group.bench_with_input(
                BenchmarkId::new(codec.name(), records),
                &batch,
                |bencher, batch| {
                    bencher.iter(|| is_valid(batch));
                },
            );
        }
    }
    group.finish();
}

fn bench_codecs(criterion: &mut Criterion) {
    let plain = json_records();
    let mut group = criterion.benchmark_group("128 KiB of JSON");
    group.throughput(Throughput::Bytes(plain.len() as u64));
    for codec in Codec::ALL.into_iter().filter(|codec| *codec != Codec::None) {
        let mut packed = Vec::new();
        compress(codec.into(), &plain, &mut packed);
        let mut out = Vec::new();
        group.bench_with_input(BenchmarkId::new("compress", codec), &plain, |bencher, plain| {
            bencher.iter(|| {
                out.clear();
                compress(codec.into(), black_box(plain), &mut out);
            });
        });
        group.bench_with_input(
            BenchmarkId::new("decompress", codec),
            &packed,
            |bencher, packed| {
                bencher.iter(|| {
                    out.clear();
                    decompress(codec, black_box(packed), plain.len(), &mut out)
                });
            },
        );
    }
    group.finish();
}

criterion_group!(benches, bench, bench_checks, bench_codecs);
criterion_main!(benches);
