//! End-to-end latency over time at 100,000 records/s of 1 KiB.

use super::session::generate;
use super::{Durability, Lab, Plan};
use crate::interop::server::{Site, Target};
use anyhow::Result;
use serde_json::Value;

pub struct Curve {
    pub target: Target,
    pub durability: Durability,
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

pub fn run(lab: &Lab, plan: &Plan, target: Target, durability: Durability) -> Result<Curve> {
    let mut settings = RETENTION.to_vec();
    if target == Target::Kafka {
        settings.extend_from_slice(durability.kafka());
    }
    let site = Site::create("bench-tails", &settings)?;
    let mut server = site.start_with(&lab.programs, target, &[durability.ottla()])?;
    generate(lab, "bench-create", &server, "tails", &[])?;
    let (seconds, warmup) = (plan.tail_seconds.to_string(), plan.warmup_seconds.to_string());
    let load = [
        "-rate", "100000", "-bytes", "1024", "-linger", "1", "-seconds", &seconds, "-warmup", &warmup,
    ];
    let result = generate(lab, "bench-e2e", &server, "tails", &load)?;
    server.check_alive()?;
    server.stop()?;
    site.remove();
    Ok(Curve {
        target,
        durability,
        result,
    })
}
