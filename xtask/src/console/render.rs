//! `cargo xtask console --render [--partitions N,N]`: what a page of a broker's console costs.
//!
//! A broker with that many partitions in topics of twenty, and nothing else to do. Each page is
//! asked for again and again; printed are the processor time of the whole broker for one, and the
//! time until it is there.

use std::fs;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use ottla_client::admin::{Admin, NewTopic};
use ottla_client::config::Config;
use ottla_lab::numbers::{count, number};

use super::Served;
use crate::bench_kafka::machine::cpu_seconds;
use crate::interop::client_metrics::get;
use crate::interop::toolchain;

const TOPIC_PARTITIONS: usize = 20;
const TOPICS_AT_ONCE: usize = 100;
/// The first ones fill what is kept between pages.
const UNCOUNTED: u32 = 5;
const ROUNDS: u32 = 40;

/// Up to that many partitions a page may take that many milliseconds of a processor.
const BUDGETS: [(usize, f64); 2] = [(2_000, 5.0), (40_000, 20.0)];

const PAGES: [&str; 16] = [
    "/",
    "/topics",
    "/topics?sort=name",
    "/topics/topic-00007",
    "/topics/topic-00007/3",
    "/topics.json",
    "/clients",
    "/groups",
    "/tenants",
    "/requests",
    "/messages/topic-00007",
    "/config",
    "/transactions",
    "/access",
    "/bench",
    "/metrics",
];

pub fn run(home: &Path, partitions: &str) -> Result<()> {
    let ottla = toolchain::build_ottla()?;
    for number in partitions.split(',') {
        let partitions: usize = number.parse().context("--partitions")?;
        let broker = Served::start(&ottla, home)?;
        create(&broker, partitions)?;
        print(&broker, partitions)?;
    }
    fs::remove_dir_all(home.join("data"))?;
    Ok(())
}

fn create(broker: &Served, partitions: usize) -> Result<()> {
    let admin = Admin::new(&Config::new().set("bootstrap.servers", &broker.bootstrap))?;
    let names: Vec<String> = (0..partitions.div_ceil(TOPIC_PARTITIONS))
        .map(|index| format!("topic-{index:05}"))
        .collect();
    for names in names.chunks(TOPICS_AT_ONCE) {
        let topics = names
            .iter()
            .map(|name| NewTopic::new(name).partitions(TOPIC_PARTITIONS as i32));
        for (name, result) in admin.create_topics(topics.collect()).wait()? {
            result.with_context(|| format!("creating {name}"))?;
        }
    }
    Ok(())
}

fn print(broker: &Served, partitions: usize) -> Result<()> {
    let (_, port) = broker.console.rsplit_once(':').context("the admin port")?;
    let port: u16 = port.trim_end_matches('/').parse().context("the admin port")?;
    let budget = BUDGETS.iter().find(|(most, _)| partitions <= *most);
    println!("\n{} partitions\n", count(partitions as u64));
    println!(
        "| page | KiB | ms of a processor | median ms until it is there | budget |\n|---|---|---|---|---|"
    );
    for page in PAGES {
        let mut bytes = 0;
        for _ in 0..UNCOUNTED {
            bytes = get(port, page)?.len();
        }
        ensure!(bytes > 0, "{page} is empty");
        let before = cpu_seconds(broker.child.id())?;
        let mut elapsed = Vec::new();
        for _ in 0..ROUNDS {
            let asked = Instant::now();
            get(port, page)?;
            elapsed.push(asked.elapsed().as_secs_f64() * 1e3);
        }
        let used = (cpu_seconds(broker.child.id())? - before) * 1e3 / f64::from(ROUNDS);
        elapsed.sort_by(f64::total_cmp);
        let verdict = match budget {
            Some((_, most)) if used <= *most => "met",
            Some(_) => "**falls short**",
            None => "",
        };
        println!(
            "| `{page}` | {} | {} | {} | {verdict} |",
            number(bytes as f64 / 1024.0),
            number(used),
            number(elapsed[elapsed.len() / 2]),
        );
    }
    Ok(())
}
