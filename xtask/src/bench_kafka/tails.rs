//! End-to-end latency over time of records of 1 KiB, broker and clients on processors of their own.

use super::session::{clear, generate};
use super::{Durability, Lab, Plan};
use crate::interop::server::{Site, Target};
use crate::tenant_experiments::processors::Processors;
use anyhow::Result;
use serde_json::Value;

/// Records per second.
pub const LOADS: [u32; 2] = [60_000, 100_000];

pub struct Curve {
    pub target: Target,
    /// Records per second.
    pub load: u32,
    /// The generator's output.
    pub result: Value,
}

/// Keeps about 6 GB on disk for any duration: both brokers delete old segments under load.
const RETENTION: [(&str, &str); 4] = [
    ("log.retention.bytes", "1000000000"),
    ("log.segment.bytes", "250000000"),
    ("log.retention.check.interval.ms", "5000"),
    ("log.segment.delete.delay.ms", "1000"),
];

pub fn run(lab: &Lab, plan: &Plan, target: Target, load: u32) -> Result<Curve> {
    let durability = Durability::Disk;
    let processors = Processors::plan(true)?;
    let mut settings = RETENTION.to_vec();
    if target == Target::Kafka {
        settings.extend_from_slice(durability.kafka());
    }
    let site = Site::create("bench-tails", &settings)?;
    processors.for_brokers()?;
    let mut server = site.start_with(&lab.programs, target, &[durability.ottla()])?;
    processors.for_clients()?;
    generate(lab, "bench-create", &server, "tails", &[])?;
    let (seconds, warmup) = (plan.tail_seconds.to_string(), plan.warmup_seconds.to_string());
    let rate = load.to_string();
    let words = [
        "-rate", &rate, "-bytes", "1024", "-linger", "1", "-seconds", &seconds, "-warmup", &warmup,
    ];
    let result = generate(lab, "bench-e2e", &server, "tails", &words)?;
    processors.for_all()?;
    server.check_alive()?;
    server.stop()?;
    clear(&site);
    Ok(Curve { target, load, result })
}

pub fn raw_json(curves: &[Curve]) -> Result<String> {
    let results: Vec<&Value> = curves.iter().map(|curve| &curve.result).collect();
    Ok(serde_json::to_string(&results)?)
}
