//! The client's producer against a broker in this process: real sockets, real threads, real
//! answers.

#![allow(clippy::unwrap_used, reason = "a failed step of a test is a failed test")]

use std::collections::BTreeMap;
use std::thread;

use ottla_broker::Broker;
use ottla_client::config::Config;
use ottla_client::producer::{Producer, Record, RecordMetadata};
use ottla_wire::api_key::ApiKey;
use ottla_wire::messages::create_topics::{
    CreatableTopic, CreatableTopicConfig, CreateTopicsRequest, CreateTopicsResponse,
};
use ottla_wire::messages::fetch::{FetchPartition, FetchRequest, FetchResponse, FetchTopic};
use ottla_wire::primitives::Reader;
use ottla_wire::records::batch::batches;
use ottla_wire::records::compression::decompress;
use ottla_wire::records::record::Records;

mod support;

use support::Writer;

const PARTITION_COUNT: i32 = 3;
const THREAD_COUNT: usize = 4;
const RECORDS_PER_THREAD: usize = 2_000;

fn producer(broker: &Broker, settings: &[(&str, &str)]) -> Producer {
    let address = broker.address().to_string();
    let base = Config::new().set("bootstrap.servers", address);
    let config = settings
        .iter()
        .fold(base, |config, (key, value)| config.set(*key, *value));
    Producer::new(&config).unwrap()
}

/// Reads the values of a partition, by offset.
fn stored(writer: &mut Writer, topic: &str, partition: i32) -> Vec<String> {
    let mut values = Vec::new();
    loop {
        let answer = writer.ask(ApiKey::Fetch, 12, |body| {
            let wanted = FetchPartition {
                partition,
                fetch_offset: values.len() as i64,
                partition_max_bytes: 1 << 20,
                ..Default::default()
            };
            FetchRequest {
                max_wait_ms: 0,
                min_bytes: 0,
                max_bytes: 1 << 20,
                topics: vec![FetchTopic {
                    topic,
                    partitions: vec![wanted],
                    ..Default::default()
                }],
                ..Default::default()
            }
            .encode(body, 12);
        });
        let answer = FetchResponse::decode(&mut Reader::new(&answer), 12).unwrap();
        let found = &answer.responses[0].partitions[0];
        assert_eq!(found.error_code, 0);
        for batch in batches(found.records.unwrap_or_default()).map_while(Result::ok) {
            batch.verify_checksum().unwrap();
            let codec = batch.header.compression().unwrap();
            let mut records = Vec::new();
            decompress(codec, batch.record_bytes(), 1 << 24, &mut records).unwrap();
            for record in Records::new(&batch.header, &records).map(Result::unwrap) {
                assert_eq!(record.offset, values.len() as i64);
                values.push(String::from_utf8(record.value.unwrap().to_vec()).unwrap());
            }
        }
        if values.len() as i64 >= found.high_watermark {
            return values;
        }
    }
}

/// Sends the thread's records over all partitions and returns where each one is.
fn send_all(producer: &Producer, topic: &str, thread: usize) -> Vec<(String, RecordMetadata)> {
    let futures: Vec<_> = (0..RECORDS_PER_THREAD)
        .map(|number| {
            let value = format!("{thread}:{number}");
            let record = Record {
                topic,
                partition: Some((number % PARTITION_COUNT as usize) as i32),
                value: Some(value.as_bytes()),
                ..Record::default()
            };
            let future = producer.send(&record).unwrap();
            (value, future)
        })
        .collect();
    futures
        .into_iter()
        .map(|(value, future)| (value, future.wait().unwrap()))
        .collect()
}

#[test]
fn records_of_every_codec_and_thread_arrive_once_in_order_at_the_offsets_of_their_futures() {
    let broker = Broker::start_temporary(&[]).unwrap();
    let mut writer = Writer::connect(broker.address());
    for codec in ["none", "gzip", "snappy", "lz4", "zstd"] {
        let topic = format!("every-{codec}");
        writer.create_topic(&topic, PARTITION_COUNT);
        let producer = producer(&broker, &[("compression.type", codec), ("batch.size", "2000")]);
        let sent: Vec<(String, RecordMetadata)> = thread::scope(|scope| {
            let (producer, topic) = (&producer, topic.as_str());
            let threads: Vec<_> = (0..THREAD_COUNT)
                .map(|number| scope.spawn(move || send_all(producer, topic, number)))
                .collect();
            threads
                .into_iter()
                .flat_map(|thread| thread.join().unwrap())
                .collect()
        });
        let stored: Vec<Vec<String>> = (0..PARTITION_COUNT)
            .map(|partition| stored(&mut writer, &topic, partition))
            .collect();
        let total: usize = stored.iter().map(Vec::len).sum();
        assert_eq!(total, THREAD_COUNT * RECORDS_PER_THREAD, "{codec}");
        for (value, place) in sent {
            assert_eq!(
                stored[place.partition as usize][place.offset as usize], value,
                "{codec}"
            );
        }
        stored.iter().for_each(|values| check_order(values));
    }
}

fn check_order(values: &[String]) {
    let mut last: BTreeMap<&str, usize> = BTreeMap::new();
    for value in values {
        let (thread, number) = value.split_once(':').unwrap();
        let number: usize = number.parse().unwrap();
        let before = last.insert(thread, number);
        assert!(
            before.is_none_or(|before| before < number),
            "{value} is behind {before:?}"
        );
    }
}

#[test]
fn a_batch_that_is_too_large_for_the_broker_is_split() {
    let broker = Broker::start_temporary(&[]).unwrap();
    let mut writer = Writer::connect(broker.address());
    let answer = writer.ask(ApiKey::CreateTopics, 7, |body| {
        let limit = CreatableTopicConfig {
            name: "max.message.bytes",
            value: Some("1500"),
        };
        CreateTopicsRequest {
            topics: vec![CreatableTopic {
                name: "narrow",
                num_partitions: 1,
                replication_factor: 1,
                configs: vec![limit],
                ..CreatableTopic::default()
            }],
            timeout_ms: 30_000,
            ..CreateTopicsRequest::default()
        }
        .encode(body, 7);
    });
    let answer = CreateTopicsResponse::decode(&mut Reader::new(&answer), 7).unwrap();
    assert_eq!(answer.topics[0].error_code, 0);

    let producer = producer(&broker, &[("linger.ms", "1000")]);
    let padding = "x".repeat(100);
    let send = |number: usize, padding: &str| {
        let value = format!("0:{number}:{padding}");
        producer
            .send(&Record::new("narrow").value(value.as_bytes()))
            .unwrap()
    };
    let small: Vec<_> = (0..300).map(|number| send(number, &padding)).collect();
    let large = send(300, &"x".repeat(3_000));
    let last = send(301, &padding);
    producer.flush().unwrap();
    for (number, future) in small.into_iter().enumerate() {
        assert_eq!(future.wait().unwrap().offset, number as i64);
    }
    let error = large.wait().unwrap_err().to_string();
    assert!(
        error.contains("MESSAGE_TOO_LARGE") && error.contains("narrow-0"),
        "{error}"
    );
    assert_eq!(last.wait().unwrap().offset, 300);
    let values = stored(&mut writer, "narrow", 0);
    assert_eq!(values.len(), 301);
    assert!(values[300].starts_with("0:301:"));
}

#[test]
fn acks_0_gives_no_offsets_and_close_sends_the_rest() {
    let broker = Broker::start_temporary(&[]).unwrap();
    let mut writer = Writer::connect(broker.address());
    writer.create_topic("unasked", PARTITION_COUNT);
    let producer = producer(&broker, &[("acks", "0"), ("linger.ms", "60000")]);
    let mut futures = Vec::new();
    for number in 0..500 {
        let value = format!("0:{number}");
        let record = Record {
            partition: Some(number % PARTITION_COUNT),
            ..Record::new("unasked").value(value.as_bytes())
        };
        futures.push(producer.send(&record).unwrap());
    }
    producer.close(std::time::Duration::from_secs(60)).unwrap();
    for future in futures {
        assert_eq!(future.wait().unwrap().offset, -1);
    }
    // The broker may still be reading: with acks=0 there is no answer to wait for.
    let mut found = 0;
    while found < 500 {
        found = (0..PARTITION_COUNT)
            .map(|partition| stored(&mut writer, "unasked", partition).len())
            .sum();
    }
    assert_eq!(found, 500);
}
