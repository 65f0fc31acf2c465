//! Transactions, each broker as it is delivered: a commit of Ottla is on disk, one of Apache Kafka
//! in the page cache.

use anyhow::Result;

use super::metrics::Samples;
use super::session::{self, figure, generate};
use super::{Lab, Plan};
use crate::interop::server::{Server, Target};

/// A load, and the metrics that it fills.
struct Case {
    name: &'static str,
    topic: &'static str,
    producers: &'static str,
    records: &'static str,
    commit_ms: &'static str,
    p99: &'static str,
    cpu: &'static str,
}

const CASES: [Case; 2] = [
    Case {
        name: "transactions of one record",
        topic: "one",
        producers: "1",
        records: "1",
        commit_ms: "transaction_one_ms",
        p99: "transaction_one_p99",
        cpu: "transaction_one_cpu",
    },
    Case {
        name: "transactions of 100 records",
        topic: "hundred",
        producers: "100",
        records: "100",
        commit_ms: "transaction_hundred_ms",
        p99: "transaction_hundred_p99",
        cpu: "transaction_hundred_cpu",
    },
];

pub fn run(lab: &Lab, plan: &Plan, target: Target, samples: &mut Samples) -> Result<()> {
    let durability = session::default_of(target);
    let site = session::site(target, durability, &[])?;
    let mut server = session::start(lab, &site, target, durability)?;
    for case in &CASES {
        one(lab, plan, target, &server, case, samples)?;
    }
    server.check_alive()?;
    server.stop()?;
    session::clear(&site);
    Ok(())
}

fn one(
    lab: &Lab,
    plan: &Plan,
    target: Target,
    server: &Server,
    case: &Case,
    samples: &mut Samples,
) -> Result<()> {
    generate(lab, "bench-create", server, case.topic, &[])?;
    let (seconds, warmup) = (
        plan.transaction_seconds.to_string(),
        plan.warmup_seconds.to_string(),
    );
    let load = [
        "-producers",
        case.producers,
        "-records",
        case.records,
        "-seconds",
        &seconds,
        "-warmup",
        &warmup,
    ];
    let result = generate(lab, "bench-transactions", server, case.topic, &load)?;
    samples.keep(target, case.name, &result);
    let commits = figure(&result, "/acknowledged");
    samples.add(target, case.commit_ms, 1_000.0 / figure(&result, "/rate_per_s"));
    samples.add(target, case.p99, figure(&result, "/service/p99"));
    let cpu = figure(&result, "/broker_cpu_s") / (commits / 1_000.0);
    samples.add(target, case.cpu, cpu);
    Ok(())
}
