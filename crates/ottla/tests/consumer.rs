//! The consumer against a broker: what was written is read, once, in order, from where it was asked for.

#![expect(clippy::unwrap_used, reason = "a failed step of a test is a failed test")]

mod support;

use std::time::{Duration, Instant};

use ottla_broker::Broker;
use ottla_client::Error;
use ottla_client::config::Config;
use ottla_client::consumer::{Consumer, TopicPartition};
use ottla_wire::records::builder::{BatchBuilder, BatchOptions};
use ottla_wire::records::compression::Codec;
use support::Writer;

/// Long enough that only a hang reaches it.
const HANG: Duration = Duration::from_secs(60);

fn consumer(broker: &Broker, more: &[(&str, &str)]) -> Consumer {
    let mut config = Config::new()
        .set("bootstrap.servers", broker.address())
        .set("auto.offset.reset", "earliest");
    for (key, value) in more {
        config = config.set(*key, *value);
    }
    Consumer::new(&config).unwrap()
}

fn batch(codec: Codec, first: i64, count: i64) -> Vec<u8> {
    let mut builder = BatchBuilder::new(BatchOptions {
        compression: codec.into(),
        ..BatchOptions::default()
    });
    for number in first..first + count {
        let value = format!("value {number}");
        builder.append(1_000 + number, None, Some(value.as_bytes()), &[]);
    }
    builder.finish()
}

/// Offset and value of the next `count` records.
fn read(consumer: &mut Consumer, count: usize) -> Vec<(i64, String)> {
    let begun = Instant::now();
    let mut found = Vec::new();
    while found.len() < count {
        assert!(begun.elapsed() < HANG, "{} of {count} records came", found.len());
        for record in &consumer.poll(Duration::from_secs(1)).unwrap() {
            let value = String::from_utf8(record.value.unwrap().to_vec()).unwrap();
            found.push((record.offset, value));
        }
    }
    found
}

fn expected(numbers: std::ops::Range<i64>) -> Vec<(i64, String)> {
    numbers
        .map(|number| (number, format!("value {number}")))
        .collect()
}

#[test]
fn every_codec_is_read_in_order() {
    let broker = Broker::start_temporary(&[]).unwrap();
    let mut writer = Writer::connect(broker.address());
    writer.create_topic("t", 1);
    for (index, codec) in Codec::ALL.into_iter().enumerate() {
        writer.append("t", 0, &batch(codec, index as i64 * 1000, 1000));
    }
    let mut consumer = consumer(&broker, &[("max.poll.records", "300")]);
    consumer.assign([TopicPartition::new("t", 0)]).unwrap();
    assert_eq!(read(&mut consumer, 5000), expected(0..5000));
    assert_eq!(consumer.position(&TopicPartition::new("t", 0)), Ok(5000));
    assert_eq!(consumer.current_lag(&TopicPartition::new("t", 0)), Some(0));
    consumer.close(Duration::from_secs(10)).unwrap();
    assert_eq!(consumer.poll(Duration::ZERO).unwrap_err(), Error::Closed);
}

#[test]
fn a_member_alone_gets_everything_and_goes_on_where_it_committed() {
    let broker = Broker::start_temporary(&[("group.initial.rebalance.delay.ms", "0")]).unwrap();
    let mut writer = Writer::connect(broker.address());
    writer.create_topic("t", 3);
    for partition in 0..3 {
        writer.append("t", partition, &batch(Codec::None, 0, 100));
    }
    let settings = [("group.id", "g"), ("enable.auto.commit", "false")];
    let mut first = consumer(&broker, &settings);
    first.subscribe(["t"]).unwrap();
    assert_eq!(read(&mut first, 300).len(), 300);
    first.commit_sync().unwrap();
    first.close(Duration::from_secs(10)).unwrap();

    for partition in 0..3 {
        writer.append("t", partition, &batch(Codec::None, 100, 10));
    }
    let mut second = consumer(&broker, &settings);
    second.subscribe_pattern("t|nothing").unwrap();
    let mut found = read(&mut second, 30);
    found.sort();
    let mut wanted: Vec<_> = (0..3).flat_map(|_| expected(100..110)).collect();
    wanted.sort();
    assert_eq!(found, wanted);
    let committed = second
        .committed((0..3).map(|partition| TopicPartition::new("t", partition)))
        .unwrap();
    assert!(
        committed.values().all(|offset| offset.offset == 100),
        "{committed:?}"
    );
    second.close(Duration::from_secs(10)).unwrap();
}
