//! A hanging transaction, which no coordinator knows: Kafka's tool finds and ends it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};
use ottla_wire::api_key::ApiKey;
use ottla_wire::records::batch::attributes;

use super::refusals::{Ask, Forged, Outcome, Wire, produce_body};
use super::server::{Programs, Site, Target};
use super::tools::{CONSOLE_PRODUCER, TOPICS, Tools};
use super::transactions::{TRANSACTIONS, committed};

const TOPIC: &str = "hanging";
const PRODUCER_ID: i64 = 4_000;

/// Longer than a transaction may take, so that the tool does not wait for its coordinator.
const AGE: Duration = Duration::from_secs(3_600);

/// Without verification a partition takes transactional records of which the coordinator does not
/// know, as Apache Kafka did before 3.6.
pub fn find_and_abort(programs: &Programs, target: Target) -> Result<()> {
    let site = Site::create(
        "hanging",
        &[("transaction.partition.verification.enable", "false")],
    )?;
    let server = site.start(programs, target)?;
    let tools = Tools {
        kafka: &programs.kafka,
        bootstrap: server.bootstrap(),
    };
    tools.run(TOPICS, &["--create", "--topic", TOPIC, "--partitions", "1"], "")?;
    let find = ["find-hanging", "--topic", TOPIC];
    let before = tools.run(TRANSACTIONS, &find, "")?;
    ensure!(row(&before).is_none(), "found before there is one: {before}");

    write_hanging(site.port)?;
    tools.run(CONSOLE_PRODUCER, &["--topic", TOPIC], "after\n")?;
    committed(&tools, TOPIC, 0).context("an open transaction is passed")?;
    let found = tools.run(TRANSACTIONS, &find, "")?;
    let columns = row(&found).with_context(|| format!("nothing is found: {found}"))?;
    let [_, partition, producer_id, _, _, start_offset, ..] = columns[..] else {
        bail!("an unknown table: {found}")
    };
    ensure!(producer_id == PRODUCER_ID.to_string(), "{found}");

    let abort = [
        "abort",
        "--topic",
        TOPIC,
        "--partition",
        partition,
        "--start-offset",
        start_offset,
    ];
    tools.run(TRANSACTIONS, &abort, "")?;
    let after = tools.run(TRANSACTIONS, &find, "")?;
    ensure!(row(&after).is_none(), "found after it was aborted: {after}");
    committed(&tools, TOPIC, 1)?;
    server.stop()
}

/// The columns: topic, partition, producer id, its epoch, coordinator epoch, start offset, and
/// times.
fn row(table: &str) -> Option<Vec<&str>> {
    let row = table.lines().find(|line| line.starts_with(TOPIC))?;
    Some(row.split_whitespace().collect())
}

fn write_hanging(port: u16) -> Result<()> {
    let long_ago = SystemTime::now().duration_since(UNIX_EPOCH)? - AGE;
    let batch = Forged::new(i64::try_from(long_ago.as_millis())?).with(|batch| {
        batch.producer_id = PRODUCER_ID;
        batch.producer_epoch = 0;
        batch.base_sequence = 0;
        batch.attributes |= attributes::TRANSACTIONAL;
    });
    let body = produce_body(Some("lost"), -1, TOPIC, 0, &batch.bytes());
    let ask = Ask::new(ApiKey::Produce, 9, body);
    let outcome = Wire::connect(port, Duration::from_secs(30))?.ask(&ask)?;
    ensure!(matches!(outcome, Outcome::Answer(_)), "{outcome:?}");
    Ok(())
}
