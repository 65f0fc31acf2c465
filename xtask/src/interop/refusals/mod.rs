//! `--only refusals`: requests and batches with one lie each, the same bytes to Apache Kafka and to Ottla, which run on copies
//! of one directory. Their answers must be the same, or differ as the table of cases says.

mod admin_cases;
mod answer;
mod batch_cases;
mod case;
mod codec_cases;
mod exchange;
mod forged;
mod group_cases;
mod log_cases;
mod produce_cases;
mod stage;
mod transaction_cases;

use std::time::Duration;

use anyhow::{Result, ensure};

use answer::Said;
use case::{Case, TOPIC_PARTITIONS};
use exchange::{Ask, Outcome, Wire};
use stage::Stage;

use super::server::Programs;
use super::table::Table;

/// Longer than any wait that a case asks for.
const PATIENCE: Duration = Duration::from_secs(8);

pub fn run(table: &mut Table, programs: &Programs) -> Result<()> {
    let mut cases = Vec::new();
    let only = std::env::var("REFUSALS").unwrap_or_default();
    let groups: [(&str, fn() -> Vec<Case>); 7] = [
        ("batch", batch_cases::cases),
        ("codec", codec_cases::cases),
        ("transaction", transaction_cases::cases),
        ("produce", produce_cases::cases),
        ("log", log_cases::cases),
        ("group", group_cases::cases),
        ("admin", admin_cases::cases),
    ];
    for (name, of) in groups {
        if only.is_empty() || only.contains(name) {
            cases.extend(of());
        }
    }
    let stage = Stage::set(programs)?;
    for (partition, case) in (0..).zip(&cases) {
        ensure!(partition < TOPIC_PARTITIONS, "more cases than partitions");
        let asks = (case.ask)(&stage.scene(partition));
        let kafka = last(stage.kafka_port(), &asks)?;
        let ottla = last(stage.ottla_port(), &asks)?;
        let (k, o) = (&kafka.0, &ottla.0);
        println!(
            "{} | kafka {} | ottla {}{}",
            case.name,
            k.short,
            o.short,
            if k.text == o.text { "" } else { "  !!" }
        );
        println!("      K {}", k.verbose);
        println!("      O {}", o.verbose);
    }
    let _ = table;
    stage.strike()
}

/// Sends the requests and returns what came of the last.
fn last(port: u16, asks: &[Ask]) -> Result<(Said, Outcome)> {
    let mut wire = Wire::connect(port, PATIENCE)?;
    let mut said = None;
    for ask in asks {
        let outcome = wire.ask(ask)?;
        said = Some((Said::of(ask, &outcome), outcome));
    }
    said.ok_or_else(|| anyhow::anyhow!("a case without requests"))
}
