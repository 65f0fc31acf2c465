//! Reads topics from start to end: every offset must be there, once and in order.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use ottla_client::admin::OffsetSpec;

use super::suite::{MINUTE, Suite, partition, partitions, same};

pub fn run(suite: &Suite, topics: &[String]) -> Result<()> {
    let described = suite.admin.describe_topics(topics.to_vec()).wait()?;
    let mut all = Vec::new();
    for (topic, described) in described {
        all.extend(partitions(&topic, i32::try_from(described?.partitions.len())?));
    }
    let asked = all.iter().map(|at| (at.clone(), OffsetSpec::Latest)).collect();
    let mut missing = 0;
    for (_, end) in suite.admin.list_offsets(asked).wait()? {
        missing += end?.offset;
    }
    let mut consumer = suite.consumer(&[("isolation.level", "read_committed")])?;
    consumer.assign(all.clone())?;
    consumer.seek_to_beginning(&all)?;
    let mut following: BTreeMap<_, i64> = all.into_iter().map(|at| (at, 0)).collect();
    let give_up = Instant::now() + MINUTE;
    while missing > 0 {
        ensure!(Instant::now() < give_up, "{missing} records are missing");
        for record in consumer.poll(Duration::from_secs(1))?.iter() {
            let at = partition(record.topic, record.partition);
            let next = following.get_mut(&at).context("a partition that was asked for")?;
            same(&*next, &record.offset, &format!("the offset in {at:?}"))?;
            *next += 1;
            missing -= 1;
        }
    }
    consumer.close(MINUTE)?;
    Ok(())
}
