//! Measures what 10,000 pushing clients cost: reading their pushes, storing them, diagnosing all
//! clients.
//!
//! `cargo run --release -p ottla-lab --example doctor_at_scale [CLIENTS]`. Every client pushes what
//! a Java producer of a fixture pushed: 108 metrics, 9.7 kB, one resource for each. Times are
//! processor time unless marked "by the clock".

use std::time::{Duration, Instant};

use ottla_lab::doctor::history::{Collector, PushedFrom};
use rustix::time::{ClockId, clock_gettime};

mod pushes;

use pushes::{INTERVAL_MS, payload, payload_of};

/// As in the binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const ROUNDS: usize = 8;
/// A window has six pushes.
const WARM_UP: usize = 6;
const BEGIN_MS: i64 = 1_800_000_000_000;

fn main() {
    let clients: usize = std::env::args()
        .nth(1)
        .map_or(10_000, |count| count.parse().expect("a number of clients"));
    let payloads: Vec<Vec<u8>> = (1..=ROUNDS as i64)
        .map(|round| payload(BEGIN_MS + round * INTERVAL_MS))
        .collect();
    let instances: Vec<String> = (0..clients).map(|number| format!("{number:022}")).collect();
    let collector = Collector::default();
    println!(
        "{clients} clients, {ROUNDS} pushes each of {} bytes",
        payloads[0].len()
    );

    let begin = processor_time();
    for (round, payload) in payloads.iter().enumerate() {
        for instance in &instances {
            let at_ms = BEGIN_MS + (round as i64 + 1) * INTERVAL_MS;
            let pushed = collector.push(pushed_from(instance), payload, at_ms);
            pushed.expect("the payload is OTLP");
        }
    }
    let per_push = (processor_time() - begin).as_secs_f64() / (clients * ROUNDS) as f64;
    let share = per_push * clients as f64 / (INTERVAL_MS as f64 / 1000.0);
    println!(
        "a push: {:.1} us; {clients} per 10 s: {:.1} % of a core",
        per_push * 1e6,
        share * 100.0
    );
    println!(
        "kept: {:.1} KiB per instance",
        collector.bytes() as f64 / clients as f64 / 1024.0
    );

    let now_ms = BEGIN_MS + ROUNDS as i64 * INTERVAL_MS;
    let mut snapshots_ms = Vec::new();
    for _ in 0..5 {
        let begin = processor_time();
        let snapshots = collector.snapshots(now_ms);
        snapshots_ms.push((processor_time() - begin).as_secs_f64() * 1000.0);
        assert_eq!(snapshots.len(), clients);
    }
    println!("snapshots of all: {:.1} ms (median of 5)", median(snapshots_ms));
    for (what, share, growth) in [
        ("all have pushed other numbers", 1, 0.001),
        ("all have pushed the same numbers", 1, 0.0),
        ("every fifth has pushed", 5, 0.001),
        ("every tenth has pushed", 10, 0.001),
        ("nobody has pushed", usize::MAX, 0.0),
    ] {
        let mut verdicts_ms = Vec::new();
        let mut clock_ms = Vec::new();
        for round in 0..WARM_UP + 5 {
            let payload = payload_of(now_ms, 1.0 + growth * (round + 1) as f64);
            for instance in instances.iter().skip(round % share).step_by(share) {
                if share == usize::MAX {
                    break;
                }
                collector
                    .push(pushed_from(instance), &payload, now_ms)
                    .expect("the payload is OTLP");
            }
            let (begin, clock) = (processor_time(), Instant::now());
            let examination = collector.examine(now_ms);
            // The first rounds also judge clients that were not judged before, and fill windows.
            if round >= WARM_UP {
                verdicts_ms.push((processor_time() - begin).as_secs_f64() * 1000.0);
                clock_ms.push(clock.elapsed().as_secs_f64() * 1000.0);
            }
            assert_eq!(examination.clients.len(), clients);
        }
        println!(
            "verdicts on all, when {what}: {:.1} ms, {:.1} ms by the clock (medians of 5)",
            median(verdicts_ms),
            median(clock_ms)
        );
    }
}

fn pushed_from(instance: &str) -> PushedFrom<'_> {
    PushedFrom {
        client_id: instance,
        instance_id: instance,
        software_name: Some("apache-kafka-java"),
        software_version: Some("4.3.0"),
        principal: Some("User:ANONYMOUS"),
        address: Some("127.0.0.1"),
        push_interval_ms: Some(INTERVAL_MS as f64),
        ..PushedFrom::default()
    }
}

/// Processor time of this process, unaffected by other programs.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
