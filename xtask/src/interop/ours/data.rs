//! Producing, fetching and looking up offsets.

use super::suite::{
    MINUTE, Suite, eventually, fails_with, only, partition, partitions, poll, same, take, text_record,
};
use anyhow::{Result, bail, ensure};
use ottla_client::Error;
use ottla_client::admin::{NewTopic, OffsetSpec};
use ottla_client::producer::Record;
use ottla_wire::error_code::ErrorCode;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub fn run(suite: &mut Suite) {
    suite.run("acks 0, 1 and all", acks);
    suite.run("idempotent producer", idempotent);
    suite.run("offsets by time", offsets_by_time);
    suite.run("list offsets", list_offsets);
    suite.run("read committed", read_committed);
    suite.run("many partitions", many_partitions);
    suite.run("small fetch limits", small_fetch_limits);
    suite.run("long poll", long_poll);
    suite.run("record too large", record_too_large);
    suite.run("unknown topic", unknown_topic);
    suite.run("auto-creation", auto_creation);
    suite.run("log append time", log_append_time);
    suite.run("delete and recreate under load", recreate_under_load);
    suite.run("seek, pause and resume", seek_and_pause);
}

/// Features of a broker of 2018, and features that it lacks.
pub fn old_broker(suite: &mut Suite) {
    suite.run("old broker: acks 0, 1 and all", acks);
    suite.run("old broker: idempotent producer", idempotent);
    suite.run("old broker: offsets by time", offsets_by_time);
    suite.run("old broker: read committed", read_committed);
    suite.run("old broker: seek, pause and resume", seek_and_pause);
    for assignor in super::groups::ASSIGNORS {
        suite.run(&format!("old broker: group of two, {assignor}"), |suite| {
            super::groups::group_of_two(suite, assignor)
        });
    }
    suite.run("old broker: commit and fetch offsets", super::groups::offsets);
}

fn acks(suite: &Suite) -> Result<()> {
    suite.create_topic("ottla-acks", 1, &[])?;
    for acks in ["0", "1", "all"] {
        let producer = suite.producer(&[("acks", acks), ("enable.idempotence", "false")])?;
        for i in 0..100 {
            let value = format!("{acks}-{i}");
            drop(producer.send(&text_record("ottla-acks", 0, &value))?);
        }
        producer.flush()?;
        producer.close(MINUTE)?;
    }
    let mut consumer = suite.consumer(&[])?;
    consumer.assign([partition("ottla-acks", 0)])?;
    let records = take(&mut consumer, 300)?;
    same(&"0-0".to_string(), &records[0].text(), "first record")?;
    same(&"all-99".to_string(), &records[299].text(), "last record")
}

fn idempotent(suite: &Suite) -> Result<()> {
    const COUNT: usize = 20_000;
    suite.create_topic("ottla-idempotent", 4, &[])?;
    let producer = suite.producer(&[
        ("linger.ms", "0"),
        ("batch.size", "1024"),
        ("max.in.flight.requests.per.connection", "5"),
    ])?;
    let mut sent = Vec::new();
    for i in 0..COUNT {
        sent.push(producer.send(&text_record("ottla-idempotent", (i % 4) as i32, &i.to_string()))?);
    }
    producer.flush()?;
    for sent in sent {
        sent.wait()?;
    }
    producer.close(MINUTE)?;
    let mut consumer = suite.consumer(&[])?;
    consumer.assign(partitions("ottla-idempotent", 4))?;
    let mut next = [0, 1, 2, 3];
    for record in take(&mut consumer, COUNT)? {
        let of = &mut next[record.partition as usize];
        same(&of.to_string(), &record.text(), "order")?;
        *of += 4;
    }
    Ok(())
}

/// Timestamps 1,000,000 + 10 i, except record 50, which is the newest of all.
fn fill_times(suite: &Suite, topic: &str) -> Result<()> {
    suite.create_topic(topic, 1, &[("retention.ms", "-1")])?;
    let producer = suite.producer(&[])?;
    for i in 0..100 {
        let value = format!("v{i}");
        let record = Record {
            timestamp: Some(if i == 50 { 5_000_000 } else { 1_000_000 + 10 * i }),
            ..text_record(topic, 0, &value)
        };
        producer.send(&record)?.wait()?;
    }
    producer.close(MINUTE)?;
    Ok(())
}

fn offsets_by_time(suite: &Suite) -> Result<()> {
    fill_times(suite, "ottla-times")?;
    let of = partition("ottla-times", 0);
    let mut consumer = suite.consumer(&[])?;
    let cases = [
        (0, 0, 1_000_000),
        (1_000_200, 20, 1_000_200),
        (1_000_205, 21, 1_000_210),
        (2_000_000, 50, 5_000_000),
    ];
    for (time, offset, timestamp) in cases {
        let found = consumer.offsets_for_times([(of.clone(), time)])?;
        let found = found.get(&of).map(|found| (found.offset, found.timestamp));
        same(
            &Some((offset, timestamp)),
            &found,
            &format!("first record at {time}"),
        )?;
    }
    let beyond = consumer.offsets_for_times([(of.clone(), 5_000_001)])?;
    ensure!(beyond.is_empty(), "beyond the newest: {beyond:?}");
    consumer.assign([of.clone()])?;
    consumer.seek_to_time(std::slice::from_ref(&of), 1_000_905)?;
    // Record 50 has a far later timestamp, so it is the first one at or after the wanted time.
    same(
        &50,
        &take(&mut consumer, 50)?[0].offset,
        "first record after seeking to a time",
    )
}

fn list_offsets(suite: &Suite) -> Result<()> {
    let topic = "ottla-list-offsets";
    fill_times(suite, topic)?;
    same(&0, &suite.offset(topic, 0, OffsetSpec::Earliest)?, "earliest")?;
    same(&100, &suite.offset(topic, 0, OffsetSpec::Latest)?, "latest")?;
    let newest = suite.listed(topic, 0, OffsetSpec::MaxTimestamp)?;
    same(
        &(50, 5_000_000),
        &(newest.offset, newest.timestamp),
        "the greatest timestamp",
    )?;
    same(
        &30,
        &suite.offset(topic, 0, OffsetSpec::Timestamp(1_000_291))?,
        "by timestamp",
    )?;
    same(
        &0,
        &suite.listed(topic, 0, OffsetSpec::Latest)?.leader_epoch,
        "leader epoch of a new topic",
    )
}

fn read_committed(suite: &Suite) -> Result<()> {
    suite.create_topic("ottla-committed", 1, &[])?;
    suite.fill("ottla-committed", Some(0), 500)?;
    let of = partition("ottla-committed", 0);
    let mut consumer = suite.consumer(&[("isolation.level", "read_committed")])?;
    consumer.assign([of.clone()])?;
    take(&mut consumer, 500)?;
    same(
        &Some(&500),
        &consumer.end_offsets([of.clone()])?.get(&of),
        "last stable offset",
    )
}

fn many_partitions(suite: &Suite) -> Result<()> {
    const COUNT: i32 = 150;
    suite.create_topic("ottla-many", COUNT, &[])?;
    let all = partitions("ottla-many", COUNT);
    let mut consumer = suite.consumer(&[])?;
    let producer = suite.producer(&[("linger.ms", "2")])?;
    let send = |prefix: &str, count: i32| -> Result<()> {
        for i in 0..count {
            drop(producer.send(&text_record("ottla-many", i, &format!("{prefix}-{i}")))?);
        }
        Ok(producer.flush()?)
    };
    consumer.assign(all.clone())?;
    // Rounds over one fetch session: all partitions, then a changed set (KIP-227).
    for round in 0..3 {
        send(&round.to_string(), COUNT)?;
        let seen: BTreeMap<i32, String> = take(&mut consumer, COUNT as usize)?
            .iter()
            .map(|record| (record.partition, record.text()))
            .collect();
        for i in 0..COUNT {
            same(
                &Some(&format!("{round}-{i}")),
                &seen.get(&i),
                "a partition's record",
            )?;
        }
    }
    consumer.assign(all[10..40].to_vec())?;
    consumer.seek(&all[12], 2)?;
    send("last", 40)?;
    // Positions of partitions that stay assigned are kept; partition 12 reads one record again.
    take(&mut consumer, 31)?;
    Ok(())
}

fn small_fetch_limits(suite: &Suite) -> Result<()> {
    suite.create_topic("ottla-limits", 2, &[])?;
    let producer = suite.producer(&[("batch.size", "4096"), ("linger.ms", "5")])?;
    let value = "x".repeat(1000);
    for i in 0..400 {
        drop(producer.send(&text_record("ottla-limits", i % 2, &value))?);
    }
    producer.flush()?;
    // Each limit is smaller than one batch: the first batch must be returned anyway, or consumers
    // make no
    // progress.
    let mut consumer = suite.consumer(&[
        ("max.partition.fetch.bytes", "100"),
        ("fetch.max.bytes", "150"),
        ("fetch.min.bytes", "1"),
    ])?;
    consumer.assign(partitions("ottla-limits", 2))?;
    take(&mut consumer, 400)?;
    Ok(())
}

fn long_poll(suite: &Suite) -> Result<()> {
    suite.create_topic("ottla-poll", 1, &[])?;
    let mut consumer = suite.consumer(&[("fetch.max.wait.ms", "25000")])?;
    consumer.assign([partition("ottla-poll", 0)])?;
    same(
        &0,
        &poll(&mut consumer, Duration::from_millis(1500))?.len(),
        "records of an empty topic",
    )?;
    let producer = suite.producer(&[])?;
    producer.send(&text_record("ottla-poll", 0, "wake up"))?.wait()?;
    // The append must complete the waiting fetch, not its own timeout of 25 seconds.
    same(
        &1,
        &poll(&mut consumer, Duration::from_secs(12))?.len(),
        "records after the append",
    )
}

fn record_too_large(suite: &Suite) -> Result<()> {
    suite.create_topic("ottla-large", 1, &[("max.message.bytes", "2000")])?;
    let producer = suite.producer(&[])?;
    let refused = producer
        .send(&text_record("ottla-large", 0, &"x".repeat(3000)))?
        .wait();
    fails_with(ErrorCode::MessageTooLarge, refused)?;
    let next = producer.send(&text_record("ottla-large", 0, "small"))?.wait()?;
    same(&0, &next.offset, "offset after the refused record")?;
    // A record larger than max.request.size is not sent.
    let here = producer.send(&text_record("ottla-large", 0, &"x".repeat(2_000_000)));
    let here = here.and_then(|sent| sent.wait());
    ensure!(
        matches!(here, Err(Error::RecordTooLarge { .. })),
        "2,000,000 bytes: {here:?}"
    );
    Ok(())
}

fn unknown_topic(suite: &Suite) -> Result<()> {
    let described = only(
        suite
            .admin
            .describe_topics(vec!["ottla-no-such".to_string()])
            .wait(),
    );
    fails_with(ErrorCode::UnknownTopicOrPartition, described)?;
    let named = only(
        suite
            .admin
            .create_topics(vec![NewTopic::new("../x").partitions(1).replicas(1)])
            .wait(),
    );
    fails_with(ErrorCode::InvalidTopicException, named)?;
    suite.create_topic("ottla-range", 1, &[])?;
    suite.fill("ottla-range", Some(0), 10)?;
    let of = partition("ottla-range", 0);
    let mut consumer = suite.consumer(&[("auto.offset.reset", "none")])?;
    consumer.assign([of.clone()])?;
    consumer.seek(&of, 1000)?;
    for _ in 0..100 {
        match poll(&mut consumer, Duration::from_millis(100)) {
            Ok(records) => ensure!(records.is_empty(), "offset 1000 of 10 was served"),
            Err(error) => {
                let text = format!("{error:#}");
                ensure!(
                    text.contains("1000") && text.contains("ottla-range"),
                    "the error says {text}"
                );
                return Ok(());
            }
        }
    }
    bail!("offset 1000 of 10: no error within ten seconds")
}

fn auto_creation(suite: &Suite) -> Result<()> {
    suite.fill("ottla-auto-created", None, 10)?;
    let described = only(
        suite
            .admin
            .describe_topics(vec!["ottla-auto-created".to_string()])
            .wait(),
    )?;
    same(&1, &described.partitions.len(), "partitions (num.partitions=1)")
}

fn log_append_time(suite: &Suite) -> Result<()> {
    suite.create_topic(
        "ottla-append-time",
        1,
        &[("message.timestamp.type", "LogAppendTime")],
    )?;
    let before = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis() as i64;
    let producer = suite.producer(&[("compression.type", "lz4")])?;
    let record = Record {
        timestamp: Some(1000),
        ..text_record("ottla-append-time", 0, "v")
    };
    let metadata = producer.send(&record)?.wait()?;
    ensure!(
        metadata.timestamp >= before - 1000,
        "the answer carries {}",
        metadata.timestamp
    );
    let mut consumer = suite.consumer(&[])?;
    consumer.assign([partition("ottla-append-time", 0)])?;
    let record = take(&mut consumer, 1)?.remove(0);
    ensure!(record.is_append_time, "the record's time is not the log's");
    ensure!(
        record.timestamp >= before - 1000,
        "the record carries {}",
        record.timestamp
    );
    Ok(())
}

fn recreate_under_load(suite: &Suite) -> Result<()> {
    let topic = "ottla-recreated";
    suite.create_topic(topic, 2, &[])?;
    let is_over = AtomicBool::new(false);
    // As in the other clients' cases: records that cannot be delivered between two incarnations of
    // the
    // topic expire soon.
    let producer = suite.producer(&[
        ("linger.ms", "1"),
        ("max.block.ms", "2000"),
        ("request.timeout.ms", "2000"),
        ("delivery.timeout.ms", "3000"),
        ("metadata.max.age.ms", "500"),
    ])?;
    std::thread::scope(|scope| -> Result<()> {
        let load = scope.spawn(|| {
            for i in 0.. {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                // Records between two incarnations of the topic may fail; nothing may hang.
                let _ = producer.send(&text_record(topic, i % 2, "load"));
                std::thread::sleep(Duration::from_micros(200));
            }
        });
        let outcome = (|| {
            for _ in 0..3 {
                std::thread::sleep(Duration::from_millis(300));
                only(suite.admin.delete_topics(vec![topic.to_string()]).wait())?;
                eventually("the topic can be created again", || {
                    let new = NewTopic::new(topic).partitions(2).replicas(1);
                    match only(suite.admin.create_topics(vec![new]).wait()) {
                        Ok(_) => Ok(true),
                        // The load may have created the topic (auto-creation).
                        Err(Error::Broker {
                            code: ErrorCode::TopicAlreadyExists,
                            ..
                        }) => Ok(true),
                        Err(error) => Err(error.into()),
                    }
                })?;
            }
            Ok(())
        })();
        is_over.store(true, Ordering::Relaxed);
        load.join().expect("the load does not panic");
        outcome
    })?;
    producer.close(MINUTE)?;
    // Whatever the races were, the last incarnation is complete: from 0 to its end without a gap.
    let end = suite.offset(topic, 0, OffsetSpec::Latest)?;
    let mut consumer = suite.consumer(&[])?;
    consumer.assign([partition(topic, 0)])?;
    for (expected, record) in take(&mut consumer, end as usize)?.iter().enumerate() {
        same(&(expected as i64), &record.offset, "offset")?;
    }
    Ok(())
}

fn seek_and_pause(suite: &Suite) -> Result<()> {
    suite.create_topic("ottla-seek", 2, &[])?;
    suite.fill("ottla-seek", Some(0), 100)?;
    suite.fill("ottla-seek", Some(1), 100)?;
    let all = partitions("ottla-seek", 2);
    let mut consumer = suite.consumer(&[("max.poll.records", "7")])?;
    consumer.assign(all.clone())?;
    consumer.pause(&all[..1])?;
    let records = take(&mut consumer, 100)?;
    ensure!(
        records.iter().all(|record| record.partition == 1),
        "a paused partition was read"
    );
    consumer.seek(&all[0], 90)?;
    consumer.resume(&all[..1])?;
    let records = take(&mut consumer, 10)?;
    same(&90, &records[0].offset, "first record after the seek")?;
    same(&100, &consumer.position(&all[0])?, "position")?;
    consumer.seek_to_end(&all)?;
    same(
        &0,
        &poll(&mut consumer, Duration::from_millis(300))?.len(),
        "records behind the end",
    )?;
    consumer.seek_to_beginning(&all[1..])?;
    same(
        &0,
        &take(&mut consumer, 100)?[0].offset,
        "first record from the beginning",
    )
}
