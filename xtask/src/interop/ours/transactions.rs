//! Our transactional producer: what read_committed consumers see of its transactions, and what the
//! producer says when something is in their way.

use super::suite::{MINUTE, Suite, Taken, eventually, partition, partitions, poll, same, take, text_record};
use anyhow::{Context, Result, bail, ensure};
use ottla_client::admin::OffsetSpec;
use ottla_client::consumer::{Consumer, OffsetAndMetadata};
use ottla_client::producer::{CommitError, Transaction, TransactionalProducer};
use ottla_client::{Error, ErrorCode};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

type Case = fn(&Bench<'_>) -> Result<()>;

const CASES: [(&str, Case); 11] = [
    ("commit, abort, drop", commit_abort_drop),
    ("transactions without records", empty),
    ("a second producer fences the first", fenced),
    ("a failed send must be aborted", failed_send),
    (
        "the coordinator aborts a transaction that takes too long",
        takes_too_long,
    ),
    ("offsets are committed with the transaction", offsets),
    ("offsets of a member that is gone are refused", stale_member),
    ("threads share a transaction", threads),
    ("one transaction after the other", in_a_row),
    (
        "a commit that is not finished in time is finished later",
        unfinished,
    ),
    (
        "consume, transform, produce: exactly once with restarts",
        exactly_once,
    ),
];

/// - `mark`: distinguishes the topics and ids of several runs against one broker.
pub fn run(suite: &mut Suite, mark: &str) {
    for (name, case) in CASES {
        let is_unmarked = mark.is_empty();
        let full = if is_unmarked {
            format!("transactional producer: {name}")
        } else {
            format!("transactional producer, {mark}: {name}")
        };
        suite.run(&full, |suite| case(&Bench { suite, mark }));
    }
}

struct Bench<'a> {
    suite: &'a Suite,
    mark: &'a str,
}

impl Bench<'_> {
    fn name(&self, what: &str) -> String {
        format!("ottla-txn-{}-{what}", self.mark.replace([' ', '.'], "-"))
    }

    fn topic(&self, what: &str, partitions: i32) -> Result<String> {
        let name = self.name(what);
        self.suite.create_topic(&name, partitions, &[])?;
        Ok(name)
    }

    fn producer(&self, id: &str, settings: &[(&str, &str)]) -> Result<TransactionalProducer> {
        let id = self.name(id);
        let own = [("transactional.id", id.as_str()), ("linger.ms", "2")];
        let config = self.suite.config(&[&own, settings].concat());
        Ok(TransactionalProducer::new(&config)?)
    }

    fn ready(&self, id: &str) -> Result<TransactionalProducer> {
        let producer = self.producer(id, &[])?;
        producer.init()?;
        Ok(producer)
    }

    /// The values that read_committed consumers see, by partition; `count` of them.
    fn committed(&self, topic: &str, partition_count: i32, count: usize) -> Result<Vec<Vec<String>>> {
        // The markers of the last transaction may not be written yet when it is committed.
        for index in 0..partition_count {
            eventually("the last transaction's marker", || {
                let mut reader = self.suite.consumer(&[("isolation.level", "read_committed")])?;
                let stable = reader.end_offsets([partition(topic, index)])?;
                let end = self.suite.offset(topic, index, OffsetSpec::Latest)?;
                Ok(stable.get(&partition(topic, index)) == Some(&end))
            })?;
        }
        let mut reader = self.suite.consumer(&[("isolation.level", "read_committed")])?;
        reader.assign(partitions(topic, partition_count))?;
        let mut values = vec![Vec::new(); usize::try_from(partition_count)?];
        for record in take(&mut reader, count)? {
            values[usize::try_from(record.partition)?].push(record.text());
        }
        Ok(values)
    }
}

fn send(transaction: &Transaction<'_>, topic: &str, index: i32, values: &[String]) -> Result<()> {
    for value in values {
        drop(transaction.send(&text_record(topic, index, value))?);
    }
    Ok(())
}

fn named(what: &str, count: usize) -> Vec<String> {
    (0..count).map(|i| format!("{what}-{i}")).collect()
}

fn commit(transaction: Transaction<'_>) -> Result<()> {
    Ok(transaction.commit().map_err(Error::from)?)
}

fn commit_abort_drop(bench: &Bench<'_>) -> Result<()> {
    let topic = bench.topic("ends", 2)?;
    let producer = bench.ready("ends")?;
    for (what, end) in [
        ("first", 'c'),
        ("second", 'a'),
        ("third", 'd'),
        ("fourth", 'c'),
        ("fifth", 'd'),
    ] {
        let transaction = producer.begin()?;
        send(&transaction, &topic, 0, &named(what, 10))?;
        let last = transaction.send(&text_record(&topic, 1, what))?;
        if what != "fifth" {
            // On its way in the log, so that an abort has something to take back.
            last.wait()?;
        }
        match end {
            'c' => commit(transaction)?,
            'a' => transaction.abort()?,
            _ => drop(transaction),
        }
    }
    let transaction = producer.begin()?;
    send(&transaction, &topic, 0, &named("sixth", 1))?;
    commit(transaction)?;
    producer.close(MINUTE)?;
    let first = [named("first", 10), named("fourth", 10), named("sixth", 1)].concat();
    let second = vec!["first".to_string(), "fourth".to_string()];
    let committed = bench.committed(&topic, 2, 23)?;
    same(&vec![first, second], &committed, "committed values")
}

fn empty(bench: &Bench<'_>) -> Result<()> {
    let producer = bench.ready("empty")?;
    commit(producer.begin()?)?;
    producer.begin()?.abort()?;
    drop(producer.begin()?);
    let open = producer.begin()?;
    match producer.begin() {
        Err(Error::IllegalState { .. }) => {}
        other => bail!("a second transaction: {other:?}"),
    }
    commit(open)?;
    producer.close(MINUTE)?;
    Ok(())
}

fn fenced(bench: &Bench<'_>) -> Result<()> {
    let topic = bench.topic("fenced", 1)?;
    let old = bench.ready("fenced")?;
    let transaction = old.begin()?;
    transaction.send(&text_record(&topic, 0, "of the old"))?.wait()?;
    let new = bench.ready("fenced")?;
    let taken = new.begin()?;
    taken.send(&text_record(&topic, 0, "of the new"))?.wait()?;
    match transaction.commit() {
        Err(CommitError::Recoverable(error)) if error.needs_new_producer() => {}
        other => bail!("commit of the old producer: {other:?}"),
    }
    let error = old.begin().map(drop).err().context("the old producer goes on")?;
    ensure!(error.needs_new_producer(), "begin of the old producer: {error}");
    commit(taken)?;
    same(
        &vec![vec!["of the new".to_string()]],
        &bench.committed(&topic, 1, 1)?,
        "committed",
    )?;
    // The way back: now the other one is fenced, also when only a record tells it.
    old.init()?;
    let transaction = old.begin()?;
    drop(transaction.send(&text_record(&topic, 0, "of the old again"))?);
    commit(transaction)?;
    let outcome = new.begin().map_err(anyhow::Error::from).and_then(|transaction| {
        drop(transaction.send(&text_record(&topic, 0, "too late"))?);
        commit(transaction)
    });
    ensure!(outcome.is_err(), "the new producer goes on");
    let expected = vec![vec!["of the new".to_string(), "of the old again".to_string()]];
    same(&expected, &bench.committed(&topic, 1, 2)?, "committed at the end")?;
    old.close(MINUTE)?;
    Ok(())
}

fn failed_send(bench: &Bench<'_>) -> Result<()> {
    let topic = bench.name("small");
    bench
        .suite
        .create_topic(&topic, 1, &[("max.message.bytes", "1000")])?;
    let producer = bench.ready("small")?;
    let transaction = producer.begin()?;
    transaction.send(&text_record(&topic, 0, "small"))?.wait()?;
    let large = "x".repeat(5_000);
    let refused = transaction.send(&text_record(&topic, 0, &large))?.wait();
    super::suite::fails_with(ErrorCode::MessageTooLarge, refused)?;
    let again = transaction.send(&text_record(&topic, 0, "after it"));
    ensure!(again.is_err(), "a send after a failed one: {again:?}");
    match transaction.commit() {
        Err(CommitError::Abortable(transaction, error)) => {
            ensure!(error.needs_abort(), "{error}");
            transaction.abort()?;
        }
        other => bail!("commit after a failed send: {other:?}"),
    }
    let transaction = producer.begin()?;
    send(&transaction, &topic, 0, &named("later", 3))?;
    commit(transaction)?;
    same(
        &vec![named("later", 3)],
        &bench.committed(&topic, 1, 3)?,
        "committed",
    )?;
    producer.close(MINUTE)?;
    Ok(())
}

fn takes_too_long(bench: &Bench<'_>) -> Result<()> {
    let topic = bench.topic("slow", 1)?;
    let producer = bench.producer("slow", &[("transaction.timeout.ms", "1000")])?;
    producer.init()?;
    let transaction = producer.begin()?;
    transaction.send(&text_record(&topic, 0, "slow"))?.wait()?;
    eventually("the coordinator has aborted the transaction", || {
        Ok(bench.suite.offset(&topic, 0, OffsetSpec::Latest)? == 2)
    })?;
    let error = match transaction.commit() {
        Ok(()) => bail!("committed after the time-out"),
        Err(CommitError::Recoverable(error)) => error,
        Err(other) => bail!("{other:?}"),
    };
    ensure!(error.needs_new_producer(), "{error}");
    producer.init()?;
    let transaction = producer.begin()?;
    send(&transaction, &topic, 0, &named("quick", 2))?;
    commit(transaction)?;
    same(
        &vec![named("quick", 2)],
        &bench.committed(&topic, 1, 2)?,
        "committed",
    )?;
    producer.close(MINUTE)?;
    Ok(())
}

fn member(bench: &Bench<'_>, group: &str, topic: &str, protocol: &str) -> Result<Consumer> {
    let settings = [
        ("group.id", group),
        ("group.protocol", protocol),
        ("isolation.level", "read_committed"),
        ("max.poll.records", "10"),
    ];
    let mut consumer = bench.suite.consumer(&settings)?;
    consumer.subscribe([topic])?;
    Ok(consumer)
}

fn polled(consumer: &mut Consumer) -> Result<Vec<Taken>> {
    let give_up = Instant::now() + MINUTE;
    loop {
        let records = poll(consumer, Duration::from_millis(200))?;
        if !records.is_empty() {
            return Ok(records);
        }
        ensure!(Instant::now() < give_up, "no record in a minute");
    }
}

fn group_offset(bench: &Bench<'_>, group: &str, topic: &str) -> Result<Option<i64>> {
    let mut reader = bench.suite.consumer(&[("group.id", group)])?;
    let committed = reader.committed([partition(topic, 0)])?;
    Ok(committed.get(&partition(topic, 0)).map(|offset| offset.offset))
}

fn offsets(bench: &Bench<'_>) -> Result<()> {
    let (source, target) = (bench.topic("offsets-in", 1)?, bench.topic("offsets-out", 1)?);
    let group = bench.name("offsets");
    bench.suite.fill(&source, Some(0), 10)?;
    let mut consumer = member(bench, &group, &source, "classic")?;
    let records = polled(&mut consumer)?;
    let metadata = consumer.group_metadata().context("a member")?;
    let producer = bench.ready("offsets")?;
    let at = |offset| BTreeMap::from([(partition(&source, 0), OffsetAndMetadata::new(offset))]);
    let transaction = producer.begin()?;
    send(&transaction, &target, 0, &named("aborted", 1))?;
    transaction.send_offsets(&at(7), &metadata)?;
    transaction.abort()?;
    same(&None, &group_offset(bench, &group, &source)?, "after an abort")?;
    let transaction = producer.begin()?;
    send(&transaction, &target, 0, &named("kept", 1))?;
    transaction.send_offsets(&at(3), &metadata)?;
    transaction.send_offsets(&at(i64::try_from(records.len())?), &metadata)?;
    commit(transaction)?;
    let expected = Some(i64::try_from(records.len())?);
    same(
        &expected,
        &group_offset(bench, &group, &source)?,
        "after a commit",
    )?;
    same(
        &vec![named("kept", 1)],
        &bench.committed(&target, 1, 1)?,
        "committed",
    )?;
    // Offsets alone make a transaction, too.
    let transaction = producer.begin()?;
    transaction.send_offsets(&at(5), &metadata)?;
    commit(transaction)?;
    same(&Some(5), &group_offset(bench, &group, &source)?, "offsets alone")?;
    consumer.close(MINUTE)?;
    producer.close(MINUTE)?;
    Ok(())
}

fn stale_member(bench: &Bench<'_>) -> Result<()> {
    stale_member_of(bench, "classic")?;
    stale_member_of(bench, "consumer")
}

/// - `protocol`: group.protocol.
fn stale_member_of(bench: &Bench<'_>, protocol: &str) -> Result<()> {
    let name = format!("stale-{protocol}");
    let source = bench.topic(&name, 1)?;
    let group = bench.name(&name);
    bench.suite.fill(&source, Some(0), 4)?;
    let mut consumer = member(bench, &group, &source, protocol)?;
    polled(&mut consumer)?;
    let old = consumer.group_metadata().context("a member")?;
    consumer.close(MINUTE)?;
    let producer = bench.ready(&name)?;
    let offsets = BTreeMap::from([(partition(&source, 0), OffsetAndMetadata::new(4))]);
    let transaction = producer.begin()?;
    let error = transaction
        .send_offsets(&offsets, &old)
        .err()
        .context("offsets of a member that has left")?;
    ensure!(error.needs_abort(), "{error}");
    match transaction.commit() {
        Err(CommitError::Abortable(transaction, _)) => transaction.abort()?,
        other => bail!("commit after refused offsets: {other:?}"),
    }
    same(
        &None,
        &group_offset(bench, &group, &source)?,
        "the group's offset",
    )?;
    let mut consumer = member(bench, &group, &source, protocol)?;
    polled(&mut consumer)?;
    let transaction = producer.begin()?;
    transaction.send_offsets(&offsets, &consumer.group_metadata().context("a member")?)?;
    commit(transaction)?;
    same(
        &Some(4),
        &group_offset(bench, &group, &source)?,
        "the offset of the new member",
    )?;
    consumer.close(MINUTE)?;
    producer.close(MINUTE)?;
    Ok(())
}

fn threads(bench: &Bench<'_>) -> Result<()> {
    let topic = bench.topic("threads", 4)?;
    let producer = bench.ready("threads")?;
    for round in 0..3 {
        let transaction = producer.begin()?;
        std::thread::scope(|scope| -> Result<()> {
            let senders: Vec<_> = (0..4)
                .map(|index| {
                    let (transaction, topic) = (&transaction, &topic);
                    scope.spawn(move || send(transaction, topic, index, &named(&format!("{round}"), 500)))
                })
                .collect();
            for sender in senders {
                sender.join().expect("a sender ends")?;
            }
            Ok(())
        })?;
        match round {
            1 => transaction.abort()?,
            _ => commit(transaction)?,
        }
    }
    let expected = [named("0", 500), named("2", 500)].concat();
    same(
        &vec![expected; 4],
        &bench.committed(&topic, 4, 4_000)?,
        "committed",
    )?;
    producer.close(MINUTE)?;
    Ok(())
}

fn in_a_row(bench: &Bench<'_>) -> Result<()> {
    const COUNT: usize = 100;
    let topic = bench.topic("row", 1)?;
    let producer = bench.ready("row")?;
    for value in named("row", COUNT) {
        let transaction = producer.begin()?;
        drop(transaction.send(&text_record(&topic, 0, &value))?);
        commit(transaction)?;
    }
    same(
        &vec![named("row", COUNT)],
        &bench.committed(&topic, 1, COUNT)?,
        "committed",
    )?;
    let end = bench.suite.offset(&topic, 0, OffsetSpec::Latest)?;
    same(&i64::try_from(2 * COUNT)?, &end, "records and markers")?;
    producer.close(MINUTE)?;
    Ok(())
}

fn unfinished(bench: &Bench<'_>) -> Result<()> {
    let topic = bench.topic("unfinished", 1)?;
    // Too short for a commit, long enough for the calls before it once everything is connected.
    let producer = bench.producer("unfinished", &[("max.block.ms", "60000")])?;
    producer.init()?;
    let transaction = producer.begin()?;
    transaction.send(&text_record(&topic, 0, "one"))?.wait()?;
    // Dropped in the middle: it goes on, and the next transaction waits for it.
    let mut commit_later = Box::pin(transaction.commit_async());
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let first = std::future::Future::poll(commit_later.as_mut(), &mut context);
    drop(first);
    drop(commit_later);
    let transaction = producer.begin()?;
    drop(transaction.send(&text_record(&topic, 0, "two"))?);
    commit(transaction)?;
    let expected = vec![vec!["one".to_string(), "two".to_string()]];
    same(&expected, &bench.committed(&topic, 1, 2)?, "committed")?;
    producer.close(MINUTE)?;
    Ok(())
}

/// Where an application of the next case stops without a word.
const STOPS: [&str; 4] = [
    "while it sends",
    "before the offsets",
    "before the commit",
    "after the commit",
];

fn exactly_once(bench: &Bench<'_>) -> Result<()> {
    copy(bench, "classic")?;
    copy(bench, "consumer")
}

/// - `protocol`: group.protocol.
fn copy(bench: &Bench<'_>, protocol: &str) -> Result<()> {
    const PER_PARTITION: usize = 120;
    let source = bench.topic(&format!("eos-{protocol}-in"), 2)?;
    let target = bench.topic(&format!("eos-{protocol}-out"), 2)?;
    for index in 0..2 {
        bench.suite.fill(&source, Some(index), PER_PARTITION)?;
    }
    let mut done = 0;
    for stop in STOPS.into_iter().cycle().take(8).chain(["at the end"]) {
        done += work(bench, protocol, &source, &target, stop, 2 * PER_PARTITION - done)?;
    }
    same(&(2 * PER_PARTITION), &done, "records of committed transactions")?;
    let committed = bench.committed(&target, 2, 2 * PER_PARTITION)?;
    let expected: Vec<String> = (0..PER_PARTITION).map(|i| format!("VALUE-{i}")).collect();
    same(&vec![expected; 2], &committed, "every value once and in order")
}

/// One life of the application; returns how many records it has committed.
fn work(
    bench: &Bench<'_>,
    protocol: &str,
    source: &str,
    target: &str,
    stop: &str,
    left: usize,
) -> Result<usize> {
    let producer = bench.ready("eos")?;
    let mut consumer = member(bench, &bench.name(protocol), source, protocol)?;
    let mut done = 0;
    let mut rounds = 0;
    while done < left {
        let records = polled(&mut consumer)?;
        rounds += 1;
        let is_last = rounds == 3 && stop != "at the end";
        let transaction = producer.begin()?;
        let mut offsets = BTreeMap::new();
        for (nth, record) in records.iter().enumerate() {
            if is_last && stop == STOPS[0] && nth == records.len() / 2 {
                break;
            }
            let value = record.text().to_uppercase();
            drop(transaction.send(&text_record(target, record.partition, &value))?);
            let at = OffsetAndMetadata::new(record.offset + 1);
            offsets.insert(partition(source, record.partition), at);
        }
        if is_last && (stop == STOPS[0] || stop == STOPS[1]) {
            // As after a kill: neither committed nor aborted.
            std::mem::forget(transaction);
            break;
        }
        transaction.send_offsets(&offsets, &consumer.group_metadata().context("a member")?)?;
        if is_last && stop == STOPS[2] {
            std::mem::forget(transaction);
            break;
        }
        commit(transaction)?;
        done += records.len();
        if is_last {
            break;
        }
    }
    consumer.close(MINUTE)?;
    Ok(done)
}
