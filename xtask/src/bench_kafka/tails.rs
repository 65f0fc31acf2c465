//! End-to-end latency over time of records of 1 KiB, broker and clients on processors of their own.

use std::fmt;

use super::session::generate;
use super::{Durability, Lab, Plan};
use crate::interop::server::{Site, Target};
use crate::tenant_experiments::processors::Processors;
use anyhow::Result;
use ottla_lab::numbers::number;
use serde_json::Value;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Load {
    pub durability: Durability,
    pub records_per_second: u32,
}

pub const LOADS: [Load; 3] = [
    Load {
        durability: Durability::PageCache,
        records_per_second: 100_000,
    },
    Load {
        durability: Durability::Disk,
        records_per_second: 60_000,
    },
    Load {
        durability: Durability::Disk,
        records_per_second: 100_000,
    },
];

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rate = number(self.records_per_second.into());
        write!(f, "{rate} records/s, {}", self.durability.name())
    }
}

pub struct Curve {
    pub target: Target,
    pub load: Load,
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

pub fn run(lab: &Lab, plan: &Plan, target: Target, load: Load) -> Result<Curve> {
    let durability = load.durability;
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
    let rate = load.records_per_second.to_string();
    let words = [
        "-rate", &rate, "-bytes", "1024", "-linger", "1", "-seconds", &seconds, "-warmup", &warmup,
    ];
    let result = generate(lab, "bench-e2e", &server, "tails", &words)?;
    processors.for_all()?;
    server.check_alive()?;
    server.stop()?;
    site.remove();
    Ok(Curve { target, load, result })
}
