//! The measured values: for each metric and broker one value per pair.

use crate::interop::server::Target;
use anyhow::Result;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// One row of the report.
pub struct Metric {
    pub key: &'static str,
    pub title: &'static str,
    pub unit: &'static str,
    /// The target of the ratio Ottla / Kafka, if any.
    pub aim: Option<f64>,
}

const fn metric(key: &'static str, title: &'static str, unit: &'static str, aim: Option<f64>) -> Metric {
    Metric {
        key,
        title,
        unit,
        aim,
    }
}

pub const METRICS: &[Metric] = &[
    metric(
        "start",
        "process start to first acknowledged record, after a clean stop",
        "ms",
        Some(0.02),
    ),
    metric("start_kill", "the same after kill -9", "ms", Some(0.02)),
    metric("idle_rss", "resident memory, idle", "MiB", Some(1.0 / 15.0)),
    metric("idle_cpu", "CPU, idle", "% of a core", None),
    metric("peak_rss", "peak resident memory", "MiB", None),
    metric(
        "full_cpu",
        "full batches: broker CPU per million records",
        "s",
        Some(0.6),
    ),
    metric("full_rate", "full batches: rate (saturated)", "records/s", None),
    metric(
        "full_generator",
        "full batches: generator CPU per million",
        "s",
        None,
    ),
    metric(
        "full_cpu_gzip",
        "full batches, gzip: broker CPU per million records",
        "s",
        None,
    ),
    metric(
        "full_cpu_snappy",
        "full batches, snappy: broker CPU per million records",
        "s",
        None,
    ),
    metric(
        "full_cpu_lz4",
        "full batches, lz4: broker CPU per million records",
        "s",
        None,
    ),
    metric(
        "full_cpu_zstd",
        "full batches, zstd: broker CPU per million records",
        "s",
        None,
    ),
    metric(
        "consume_cpu",
        "consume from page cache: broker CPU per million",
        "s",
        Some(0.8),
    ),
    metric("consume_rate", "consume from page cache: rate", "records/s", None),
    metric(
        "consume_device",
        "consume from page cache: read from the device all the same",
        "MiB",
        None,
    ),
    metric(
        "paced_cpu",
        "20,000 records/s, linger 0: broker CPU per million",
        "s",
        Some(1.0 / 3.0),
    ),
    metric("paced_p50", "20,000 records/s, linger 0: produce p50", "ms", None),
    metric(
        "paced_p99",
        "20,000 records/s, linger 0: produce p99",
        "ms",
        Some(0.5),
    ),
    metric(
        "paced_p999",
        "20,000 records/s, linger 0: produce p99.9",
        "ms",
        None,
    ),
    metric("paced_max", "20,000 records/s, linger 0: produce max", "ms", None),
    metric(
        "paced_service_p99",
        "20,000 records/s, linger 0: service time p99",
        "ms",
        None,
    ),
    metric(
        "java_cpu",
        "Java at 20,000 records/s, linger 0: broker CPU per million",
        "s",
        Some(1.0 / 3.0),
    ),
    metric(
        "java_p99",
        "Java at 20,000 records/s, linger 0: p99",
        "ms",
        Some(0.5),
    ),
    metric(
        "disk_cpu",
        "on disk before the answer, 20,000 records/s: broker CPU per million",
        "s",
        None,
    ),
    metric(
        "disk_p50",
        "on disk before the answer, 20,000 records/s: produce p50",
        "ms",
        None,
    ),
    metric(
        "disk_p99",
        "on disk before the answer, 20,000 records/s: produce p99",
        "ms",
        None,
    ),
    metric(
        "disk_max",
        "on disk before the answer, 20,000 records/s: produce max",
        "ms",
        None,
    ),
    metric(
        "sustained_rate",
        "1 KiB as fast as it goes, nothing deleted, page cache: rate",
        "records/s",
        None,
    ),
    metric(
        "sustained_cpu",
        "the same: broker CPU per million records",
        "s",
        None,
    ),
    metric(
        "sustained_drift",
        "the same: CPU per record, last ten seconds to first",
        "",
        None,
    ),
    metric(
        "sustained_disk_rate",
        "1 KiB as fast as it goes, nothing deleted, on disk before the answer: rate",
        "records/s",
        None,
    ),
    metric(
        "sustained_disk_cpu",
        "the same: broker CPU per million records",
        "s",
        None,
    ),
    metric(
        "sustained_disk_drift",
        "the same: CPU per record, last ten seconds to first",
        "",
        None,
    ),
    metric(
        "sustained_default_rate",
        "1 KiB as fast as it goes, each broker's default (Kafka: page cache, Ottla: disk): rate",
        "records/s",
        None,
    ),
    metric(
        "sustained_default_cpu",
        "the same: broker CPU per million records",
        "s",
        Some(1.0 / 6.0),
    ),
    metric(
        "full_disk_cpu",
        "full batches, on disk before the answer: broker CPU per million records",
        "s",
        Some(0.3),
    ),
    metric(
        "full_disk_rate",
        "full batches, on disk before the answer: rate (saturated)",
        "records/s",
        None,
    ),
    metric(
        "consume_librdkafka_cpu",
        "consume the newest million with librdkafka (kcat): broker CPU per million",
        "s",
        Some(0.8),
    ),
    metric(
        "catch_up_rate",
        "a consumer reads a log that is in no cache, beside a producer of 20,000 records/s: its rate",
        "MB/s",
        None,
    ),
    metric(
        "device_rate",
        "the device: the same files read one MiB at a time, past the page cache",
        "MB/s",
        None,
    ),
    metric(
        "steady_alone_p99",
        "that producer alone, on disk before the answer: p99",
        "ms",
        None,
    ),
    metric(
        "steady_beside_p99",
        "that producer beside the reader: p99",
        "ms",
        None,
    ),
    metric(
        "steady_ratio",
        "that producer beside the reader to alone",
        "",
        None,
    ),
    metric(
        "many_rss",
        "resident memory, idle, 1,000 partitions created",
        "MiB",
        None,
    ),
    metric(
        "transaction_one_ms",
        "transactions of one record, one producer: time of each",
        "ms",
        Some(0.2),
    ),
    metric(
        "transaction_one_p99",
        "transactions of one record, one producer: p99 of the commit",
        "ms",
        Some(0.5),
    ),
    metric(
        "transaction_one_cpu",
        "transactions of one record, one producer: broker CPU per thousand commits",
        "s",
        None,
    ),
    metric(
        "transaction_hundred_ms",
        "transactions of 100 records, 100 producers: time between commits",
        "ms",
        None,
    ),
    metric(
        "transaction_hundred_p99",
        "transactions of 100 records, 100 producers: p99 of the commit",
        "ms",
        None,
    ),
    metric(
        "transaction_hundred_cpu",
        "transactions of 100 records, 100 producers: broker CPU per thousand commits",
        "s",
        Some(0.5),
    ),
    metric(
        "streams_p50",
        "Kafka Streams word count, exactly_once_v2: p50 from a line due to its count read as committed",
        "ms",
        None,
    ),
    metric("streams_p99", "the same: p99", "ms", Some(0.5)),
    metric("streams_cpu", "the same: broker CPU of the whole run", "s", None),
    metric(
        "group_start",
        "consumer protocol, 500 members start: until their partitions are shared out",
        "s",
        Some(0.5),
    ),
    metric("group_join", "the same, one more member joins", "s", Some(0.5)),
    metric("group_leave", "the same, one leaves", "s", Some(0.5)),
    metric(
        "group_cpu",
        "the same: broker CPU until nothing changed for 12 s after each",
        "s",
        None,
    ),
    metric(
        "handshake_p256_cpu",
        "new connections with a full TLS 1.3 handshake, P-256: broker CPU per thousand",
        "s",
        Some(1.0 / 3.0),
    ),
    metric(
        "handshake_rsa_cpu",
        "the same, RSA-2048: broker CPU per thousand",
        "s",
        Some(1.0 / 1.2),
    ),
    metric(
        "tls_full_cpu",
        "full batches over TLS: broker CPU per GB",
        "s",
        Some(0.5),
    ),
    metric(
        "tls_consume_cpu",
        "consume over TLS what was just written: broker CPU per GB",
        "s",
        Some(0.6),
    ),
    metric(
        "plain_paced_cpu",
        "20,000 records/s, linger 0, without TLS: broker CPU per million",
        "s",
        None,
    ),
    metric(
        "tls_paced_cpu",
        "20,000 records/s, linger 0, over TLS: broker CPU per million",
        "s",
        None,
    ),
    metric(
        "plain_paced_p99",
        "20,000 records/s, linger 0, without TLS: produce p99",
        "ms",
        None,
    ),
    metric(
        "tls_paced_p99",
        "20,000 records/s, linger 0, over TLS: produce p99",
        "ms",
        None,
    ),
    metric("tls_paced_ratio", "that p99 over TLS to without", "", None),
    metric(
        "idle_plain_kib",
        "resident memory of an idle connection, one of 1,000, without TLS",
        "KiB",
        None,
    ),
    metric(
        "idle_tls_kib",
        "resident memory of an idle connection, one of 1,000, over TLS",
        "KiB",
        None,
    ),
    metric(
        "flood_quiet_p99",
        "1,000 records/s over TLS: produce p99",
        "ms",
        None,
    ),
    metric(
        "control_rate",
        "connections to a process that accepts and closes them, 10,000/s asked for: opened",
        "connections/s",
        None,
    ),
    metric(
        "control_p99",
        "1,000 records/s over TLS beside them: produce p99",
        "ms",
        None,
    ),
    metric(
        "control_ratio",
        "that p99 to without them: the generator's and the kernel's part",
        "",
        None,
    ),
    metric(
        "flood_1_rate",
        "half hellos from one address, 10,000/s asked for: opened",
        "connections/s",
        None,
    ),
    metric(
        "flood_1_p99",
        "1,000 records/s over TLS beside them: produce p99",
        "ms",
        None,
    ),
    metric(
        "flood_1_ratio",
        "that p99 to without half hellos, from one address",
        "",
        None,
    ),
    metric(
        "flood_1_broker_ratio",
        "that p99 to beside connections to the other process: the broker's part",
        "",
        None,
    ),
    metric(
        "flood_200_rate",
        "half hellos from 200 addresses, 10,000/s asked for: opened",
        "connections/s",
        None,
    ),
    metric(
        "flood_200_p99",
        "1,000 records/s over TLS beside them: produce p99",
        "ms",
        None,
    ),
    metric(
        "flood_200_ratio",
        "that p99 to without half hellos, from 200 addresses",
        "",
        None,
    ),
    metric(
        "flood_mib",
        "resident memory beside half hellos: growth",
        "MiB",
        None,
    ),
    metric(
        "open_paced_cpu",
        "20,000 records/s, linger 0, a broker without security: broker CPU per million",
        "s",
        None,
    ),
    metric("beside_paced_cpu", "the same, a broker with security", "s", None),
    metric(
        "beside_paced_ratio",
        "broker CPU per million with security to without, 20,000 records/s",
        "",
        None,
    ),
    metric(
        "open_full_cpu",
        "full batches, a broker without security: broker CPU per million",
        "s",
        None,
    ),
    metric("beside_full_cpu", "the same, a broker with security", "s", None),
    metric(
        "beside_full_ratio",
        "broker CPU per million with security to without, full batches",
        "",
        None,
    ),
    metric(
        "sync_p50",
        "the disk's own fdatasync, 4 KiB appended: p50",
        "ms",
        None,
    ),
    metric(
        "sync_p99",
        "the disk's own fdatasync, 4 KiB appended: p99",
        "ms",
        None,
    ),
    metric(
        "sync_max",
        "the disk's own fdatasync, 4 KiB appended: max",
        "ms",
        None,
    ),
];

#[derive(Default)]
pub struct Samples {
    values: BTreeMap<(&'static str, &'static str), Vec<f64>>,
    pub calibration: BTreeMap<&'static str, f64>,
    pub invalid: Vec<String>,
    /// CPU share of other programs before each broker's turn, 0 to 1.
    pub busy: Vec<f64>,
    raw: Vec<Value>,
}

fn column(target: Target) -> &'static str {
    match target {
        Target::Kafka => "kafka",
        Target::Ottla => "ottla",
    }
}

impl Samples {
    pub fn add(&mut self, target: Target, key: &'static str, value: f64) {
        debug_assert!(
            METRICS.iter().any(|metric| metric.key == key),
            "{key} is not in the table"
        );
        println!("  {} {key} {}", column(target), ottla_lab::numbers::number(value));
        self.values.entry((key, column(target))).or_default().push(value);
    }

    /// Keeps the generator's complete result, and its objections to its own validity.
    pub fn keep(&mut self, target: Target, name: &str, result: &Value) {
        for reason in result["invalid"].as_array().into_iter().flatten() {
            let text = format!(
                "{} {name}: {}",
                target.name(),
                reason.as_str().unwrap_or("no reason")
            );
            println!("  INVALID {text}");
            self.invalid.push(text);
        }
        self.raw
            .push(json!({"broker": column(target), "run": name, "result": result}));
    }

    pub fn of(&self, key: &'static str, target: Target) -> &[f64] {
        self.values.get(&(key, column(target))).map_or(&[], Vec::as_slice)
    }

    pub fn median(&self, key: &'static str, target: Target) -> Option<f64> {
        median(self.of(key, target))
    }

    /// Ottla / Kafka of each pair.
    pub fn ratios(&self, key: &'static str) -> Vec<f64> {
        let pairs = self
            .of(key, Target::Ottla)
            .iter()
            .zip(self.of(key, Target::Kafka));
        pairs
            .filter(|(_, kafka)| **kafka > 0.0)
            .map(|(ottla, kafka)| ottla / kafka)
            .collect()
    }

    pub fn raw_json(&self) -> Result<String> {
        Ok(serde_json::to_string(
            &json!({"runs": self.raw, "calibration": self.calibration}),
        )?)
    }
}

pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(sorted[odd / 2]),
        even => Some((sorted[even / 2 - 1] + sorted[even / 2]) / 2.0),
    }
}
