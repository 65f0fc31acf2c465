//! Our consumer with `group.protocol=consumer` (KIP-848).

use super::suite::{MINUTE, Suite, eventually, poll, same, take};
use anyhow::{Context, Result, bail, ensure};
use ottla_client::consumer::{Consumer, RebalanceListener, TopicPartition};
use ottla_client::{Error, ErrorCode};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

type Case = fn(&Suite) -> Result<()>;

const CASES: [(&str, Case); 6] = [
    ("a member reads, commits, leaves and goes on", go_on),
    ("members share, and one that leaves gives back", share),
    ("partitions are taken away after their listener has run", listen),
    ("a pattern finds a new topic", find_topic),
    ("a static member returns to its partitions", return_to_place),
    (
        "an assignor that the broker does not have is refused",
        unknown_assignor,
    ),
];

pub fn run(suite: &mut Suite) {
    for (name, case) in CASES {
        suite.run(&format!("group.protocol=consumer: {name}"), case);
    }
}

fn member(suite: &Suite, group: &str, settings: &[(&str, &str)]) -> Result<Consumer> {
    let own = [("group.protocol", "consumer"), ("group.id", group)];
    suite.consumer(&[&own, settings].concat())
}

fn go_on(suite: &Suite) -> Result<()> {
    let name = "ottla-848-go-on";
    suite.create_topic(name, 2, &[])?;
    suite.fill(name, Some(0), 20)?;
    suite.fill(name, Some(1), 20)?;
    let mut consumer = member(suite, name, &[])?;
    consumer.subscribe([name])?;
    take(&mut consumer, 40)?;
    consumer.commit_sync()?;
    let metadata = consumer.group_metadata().context("a member")?;
    ensure!(
        metadata.generation_id > 0 && !metadata.member_id.is_empty(),
        "{metadata:?}"
    );
    consumer.close(MINUTE)?;
    suite.fill(name, Some(1), 5)?;
    let mut consumer = member(suite, name, &[("group.remote.assignor", "range")])?;
    consumer.subscribe([name])?;
    let records = take(&mut consumer, 5)?;
    ensure!(
        records
            .iter()
            .all(|record| record.partition == 1 && record.offset >= 20),
        "{records:?}"
    );
    consumer.unsubscribe()?;
    consumer.subscribe([name])?;
    take(&mut consumer, 5).context("not committed, so read again after the rejoin")?;
    consumer.close(MINUTE)?;
    Ok(())
}

/// Polls all until their assignments are as many partitions each.
fn settle(members: &mut [&mut Consumer], counts: &[usize]) -> Result<()> {
    eventually("the members share the partitions", || {
        for member in members.iter_mut() {
            poll(member, Duration::from_millis(50))?;
        }
        let mut found: Vec<usize> = members.iter().map(|member| member.assignment().len()).collect();
        found.sort_unstable();
        let all: BTreeSet<TopicPartition> = members.iter().flat_map(|member| member.assignment()).collect();
        Ok(found == counts && all.len() == counts.iter().sum::<usize>())
    })
}

fn share(suite: &Suite) -> Result<()> {
    let name = "ottla-848-share";
    suite.create_topic(name, 4, &[])?;
    let settings = [("enable.auto.commit", "true")];
    let mut first = member(suite, name, &settings)?;
    first.subscribe([name])?;
    settle(&mut [&mut first], &[4])?;
    let mut second = member(suite, name, &settings)?;
    second.subscribe([name])?;
    settle(&mut [&mut first, &mut second], &[2, 2])?;
    for index in 0..4 {
        suite.fill(name, Some(index), 10)?;
    }
    let mut seen: BTreeMap<(i32, i64), usize> = BTreeMap::new();
    let mut note = |consumer: &mut Consumer| -> Result<usize> {
        for record in poll(consumer, Duration::from_millis(100))? {
            *seen.entry((record.partition, record.offset)).or_default() += 1;
        }
        Ok(seen.len())
    };
    eventually("all records", || {
        Ok(note(&mut first)?.max(note(&mut second)?) == 40)
    })?;
    second.close(MINUTE)?;
    settle(&mut [&mut first], &[4])?;
    // What the other had read was committed when it left.
    note(&mut first)?;
    ensure!(seen.values().all(|times| *times == 1), "read twice: {seen:?}");
    first.close(MINUTE)?;
    Ok(())
}

#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Vec<String>>>);

impl Notes {
    fn add(&self, what: &str, partitions: &BTreeSet<TopicPartition>) {
        let count = partitions.len();
        self.0
            .lock()
            .expect("a listener does not panic")
            .push(format!("{what} {count}"));
    }
}

impl RebalanceListener for Notes {
    fn partitions_assigned(&mut self, _consumer: &mut Consumer, partitions: &BTreeSet<TopicPartition>) {
        self.add("assigned", partitions);
    }

    fn partitions_revoked(&mut self, consumer: &mut Consumer, partitions: &BTreeSet<TopicPartition>) {
        let outcome = consumer.commit_sync();
        self.add(if outcome.is_ok() { "revoked" } else { "refused" }, partitions);
    }

    fn partitions_lost(&mut self, _consumer: &mut Consumer, partitions: &BTreeSet<TopicPartition>) {
        self.add("lost", partitions);
    }
}

fn listen(suite: &Suite) -> Result<()> {
    let name = "ottla-848-listen";
    suite.create_topic(name, 2, &[])?;
    suite.fill(name, Some(0), 5)?;
    suite.fill(name, Some(1), 5)?;
    let notes = Notes::default();
    let mut first = member(suite, name, &[])?;
    first.set_rebalance_listener(notes.clone());
    first.subscribe([name])?;
    take(&mut first, 10)?;
    let mut second = member(suite, name, &[])?;
    second.subscribe([name])?;
    settle(&mut [&mut first, &mut second], &[1, 1])?;
    // The listener has committed in time: the other begins behind it.
    let again = poll(&mut second, Duration::from_millis(500))?;
    ensure!(again.is_empty(), "read again: {again:?}");
    first.close(MINUTE)?;
    settle(&mut [&mut second], &[2])?;
    second.close(MINUTE)?;
    let notes = notes.0.lock().expect("a listener does not panic").clone();
    let told: Vec<&str> = notes
        .iter()
        .map(String::as_str)
        .filter(|note| *note != "assigned 0")
        .collect();
    same(
        &vec!["assigned 2", "revoked 1", "revoked 1"],
        &told,
        "the listener's calls",
    )
}

fn find_topic(suite: &Suite) -> Result<()> {
    suite.create_topic("ottla-848-pattern-one", 1, &[])?;
    suite.create_topic("ottla-848-other", 1, &[])?;
    let mut consumer = member(suite, "ottla-848-pattern", &[])?;
    consumer.subscribe_pattern("ottla-848-pattern-.*")?;
    settle(&mut [&mut consumer], &[1])?;
    suite.create_topic("ottla-848-pattern-two", 2, &[])?;
    settle(&mut [&mut consumer], &[3])?;
    suite.fill("ottla-848-pattern-two", Some(1), 3)?;
    take(&mut consumer, 3)?;
    consumer.close(MINUTE)?;
    Ok(())
}

fn return_to_place(suite: &Suite) -> Result<()> {
    let name = "ottla-848-static";
    suite.create_topic(name, 2, &[])?;
    let settings = |who| [("group.instance.id", who)];
    let mut one = member(suite, name, &settings("one"))?;
    let mut other = member(suite, name, &settings("other"))?;
    one.subscribe([name])?;
    other.subscribe([name])?;
    settle(&mut [&mut one, &mut other], &[1, 1])?;
    let had = one.assignment();
    one.close(MINUTE)?;
    // The partition is kept for it.
    for _ in 0..10 {
        poll(&mut other, Duration::from_millis(100))?;
    }
    same(&1, &other.assignment().len(), "partitions of the other")?;
    let mut one = member(suite, name, &settings("one"))?;
    one.subscribe([name])?;
    settle(&mut [&mut one, &mut other], &[1, 1])?;
    same(&had, &one.assignment(), "partitions of the one that came back")?;
    one.close(MINUTE)?;
    other.close(MINUTE)?;
    Ok(())
}

fn unknown_assignor(suite: &Suite) -> Result<()> {
    let name = "ottla-848-assignor";
    suite.create_topic(name, 1, &[])?;
    let mut consumer = member(suite, name, &[("group.remote.assignor", "no-such")])?;
    consumer.subscribe([name])?;
    let give_up = Instant::now() + MINUTE;
    loop {
        match consumer.poll(Duration::from_millis(100)).map(drop) {
            Err(Error::Broker {
                code: ErrorCode::UnsupportedAssignor,
                ..
            }) => break,
            Err(other) => bail!("{other}"),
            Ok(()) => ensure!(Instant::now() < give_up, "no refusal in a minute"),
        }
    }
    same(&0, &consumer.assignment().len(), "partitions")?;
    consumer.close(MINUTE)?;
    Ok(())
}
