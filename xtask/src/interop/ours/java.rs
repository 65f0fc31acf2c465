//! Kafka's tool reads our commits, and our consumer reads Java's transactions.

use super::suite::{MINUTE, Suite, partition, poll, same, take};
use crate::interop::toolchain::{output_of, run_quietly};
use crate::kafka::Kafka;
use anyhow::{Context, Result};
use ottla_client::admin::OffsetSpec;
use std::time::Duration;

pub fn run(suite: &mut Suite) -> Result<()> {
    let kafka = Kafka::prepare()?;
    suite.run("commits seen by kafka-consumer-groups", |suite| {
        commits_seen(suite, &kafka)
    });
    Ok(())
}

fn commits_seen(suite: &Suite, kafka: &Kafka) -> Result<()> {
    let name = "ottla-tool-group";
    suite.create_topic(name, 1, &[])?;
    suite.fill(name, Some(0), 40)?;
    let mut consumer = suite.consumer(&[("group.id", name), ("max.poll.records", "25")])?;
    consumer.assign([partition(name, 0)])?;
    let mut count = 0;
    while count == 0 {
        count = poll(&mut consumer, Duration::from_millis(200))?.len();
    }
    same(&25, &count, "records of the first poll")?;
    consumer.commit_sync()?;
    consumer.close(MINUTE)?;
    let mut tool = kafka.tool("org.apache.kafka.tools.consumer.group.ConsumerGroupCommand");
    tool.args([
        "--bootstrap-server",
        &suite.bootstrap,
        "--describe",
        "--group",
        name,
    ]);
    let output = output_of(&mut tool)?;
    let row: Vec<&str> = output
        .lines()
        .find(|line| line.starts_with(name))
        .with_context(|| format!("no row of the group in {output}"))?
        .split_whitespace()
        .take(6)
        .collect();
    same(
        &vec![name, name, "0", "25", "40", "15"],
        &row,
        "group, topic, partition, offset, end, lag",
    )
}

/// Reads the records of Java's transactional producer in `ottla-transactions`: 10 committed, 10
/// aborted, 5 committed, 3 left open.
pub fn transactions(suite: &mut Suite) -> Result<()> {
    let kafka = Kafka::prepare()?;
    let name = "ottla-transactions";
    suite.run("read committed and aborted transactions", |suite| {
        suite.create_topic(name, 1, &[])?;
        let mut writer = kafka.tool("interop.Main");
        run_quietly(writer.args(["transactions", &suite.bootstrap, name]))?;
        let expected: Vec<String> = (0..10)
            .map(|i| format!("first-{i}"))
            .chain((0..5).map(|i| format!("third-{i}")))
            .collect();
        let of = partition(name, 0);
        let mut consumer = suite.consumer(&[("isolation.level", "read_committed")])?;
        consumer.assign([of.clone()])?;
        let read: Vec<String> = take(&mut consumer, 15)?
            .iter()
            .map(super::suite::Taken::text)
            .collect();
        same(&expected, &read, "committed records")?;
        // Three markers are between the records: 10 + 1, 10 + 1, 5 + 1; then come the open
        // transaction's.
        let stable = consumer.end_offsets([of.clone()])?;
        same(&Some(&28), &stable.get(&of), "last stable offset")?;
        let mut all = suite.consumer(&[])?;
        all.assign([of])?;
        take(&mut all, 28)?;
        same(&31, &suite.offset(name, 0, OffsetSpec::Latest)?, "end of the log")
    });
    Ok(())
}
