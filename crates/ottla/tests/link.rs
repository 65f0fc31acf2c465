//! The laboratory's link and stages against a broker in this process: the client's connections all
//! go through the relay, and the broker's timestamps of a batch lie between the client's.

#![allow(clippy::unwrap_used, reason = "a failed step of a test is a failed test")]

mod support;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use ottla_broker::Broker;
use ottla_client::config::Config;
use ottla_client::consumer::Consumer;
use ottla_client::producer::{Producer, Record};
use ottla_lab::ask::Door;
use ottla_lab::bench::broker_log::BrokerLog;
use ottla_lab::bench::stages;
use ottla_lab::link::relay::Relay;
use ottla_lab::load::outcome::{ReceivedRecord, RecordPlace, SentRecord};
use ottla_lab::scenario::model::LinkSpec;
use ottla_wire::api_key::ApiKey;
use ottla_wire::messages::describe_cluster::{DescribeClusterRequest, DescribeClusterResponse};
use ottla_wire::messages::find_coordinator::{FindCoordinatorRequest, FindCoordinatorResponse};
use ottla_wire::messages::metadata::{MetadataRequest, MetadataResponse};
use ottla_wire::primitives::Reader;
use support::Writer;

/// Long enough that only a hang reaches it.
const HANG: Duration = Duration::from_secs(60);

const TOPIC: &str = "far-away";

fn broker() -> Broker {
    Broker::start_temporary(&[("ottla.admin.listener", "127.0.0.1:0")]).unwrap()
}

fn admin(broker: &Broker) -> Door {
    Door::new(broker.admin_address().unwrap().to_string())
}

fn writer(relay: &Relay) -> Writer {
    let address: SocketAddr = relay.bootstrap().parse().unwrap();
    Writer::connect(address)
}

fn producer(bootstrap: &str) -> Producer {
    let config = Config::new()
        .set("bootstrap.servers", bootstrap)
        .set("linger.ms", "1");
    Producer::new(&config).unwrap()
}

/// The clock of the laboratory's timestamps.
fn now_nanos() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Sends `count` records one after another; returns for each when it was due, its partition and
/// offset, and when it was acknowledged.
fn send(producer: &Producer, count: usize) -> Vec<SentRecord> {
    let send = |number: usize| {
        let due_nanos = now_nanos();
        let value = format!("value {number}");
        let sending = producer
            .send(&Record::new(TOPIC).value(value.as_bytes()))
            .unwrap();
        let metadata = sending.wait().unwrap();
        let place = RecordPlace {
            topic: TOPIC.into(),
            partition: metadata.partition,
            offset: metadata.offset,
        };
        SentRecord {
            place,
            due_nanos,
            sent_nanos: due_nanos,
            acknowledged_nanos: now_nanos(),
        }
    };
    (0..count).map(send).collect()
}

fn receive(bootstrap: &str, sent: &[SentRecord]) -> Vec<ReceivedRecord> {
    let config = Config::new()
        .set("bootstrap.servers", bootstrap)
        .set("group.id", "readers")
        .set("auto.offset.reset", "earliest");
    let mut consumer = Consumer::new(&config).unwrap();
    consumer.subscribe([TOPIC]).unwrap();
    let begun = Instant::now();
    let mut received = Vec::new();
    while received.len() < sent.len() {
        assert!(
            begun.elapsed() < HANG,
            "{} of {} records came",
            received.len(),
            sent.len()
        );
        for record in &consumer.poll(Duration::from_secs(1)).unwrap() {
            let place = RecordPlace {
                topic: TOPIC.into(),
                partition: record.partition,
                offset: record.offset,
            };
            let of = sent.iter().find(|sent| sent.place == place).expect("it was sent");
            received.push(ReceivedRecord {
                place,
                due_nanos: of.due_nanos,
                sent_nanos: of.sent_nanos,
                received_nanos: now_nanos(),
                log_append_ms: None,
            });
        }
    }
    received
}

#[test]
fn producer_and_group_work_through_the_relay_and_never_leave_it() {
    let broker = broker();
    let link = LinkSpec {
        round_trip_ms: 4.0,
        window_bytes: 50_000,
        bytes_per_second: 50_000_000,
        ..LinkSpec::default()
    };
    let relay = Relay::start(&broker.address().to_string(), &link).unwrap();
    let mut writer = writer(&relay);
    writer.create_topic(TOPIC, 3);
    let began = Instant::now();
    let sent = send(&producer(&relay.bootstrap()), 20);
    // Every record waited for its acknowledgement.
    assert!(began.elapsed() >= Duration::from_millis(20 * 4));
    assert!(
        sent.iter()
            .all(|sent| sent.acknowledged_nanos - sent.sent_nanos >= 4_000_000)
    );
    let received = receive(&relay.bootstrap(), &sent);
    assert_eq!(received.len(), sent.len());
    assert_eq!(relay.problems(), Vec::<String>::new());
}

#[test]
fn every_answer_with_an_address_names_the_relay() {
    let broker = broker();
    let relay = Relay::start(&broker.address().to_string(), &LinkSpec::default()).unwrap();
    let mut writer = writer(&relay);
    let own: SocketAddr = relay.bootstrap().parse().unwrap();
    let expected = (own.ip().to_string(), i32::from(own.port()));
    assert_ne!(own, broker.address());

    let answer = writer.ask(ApiKey::Metadata, 12, |body| {
        MetadataRequest {
            topics: None,
            ..MetadataRequest::default()
        }
        .encode(body, 12);
    });
    let answer = MetadataResponse::decode(&mut Reader::new(&answer), 12).unwrap();
    assert_eq!(
        (answer.brokers[0].host.to_owned(), answer.brokers[0].port),
        expected
    );

    let answer = writer.ask(ApiKey::FindCoordinator, 4, |body| {
        FindCoordinatorRequest {
            coordinator_keys: vec!["g"],
            ..FindCoordinatorRequest::default()
        }
        .encode(body, 4);
    });
    let answer = FindCoordinatorResponse::decode(&mut Reader::new(&answer), 4).unwrap();
    let coordinator = &answer.coordinators[0];
    assert_eq!((coordinator.host.to_owned(), coordinator.port), expected);

    let answer = writer.ask(ApiKey::DescribeCluster, 1, |body| {
        DescribeClusterRequest::default().encode(body, 1);
    });
    let answer = DescribeClusterResponse::decode(&mut Reader::new(&answer), 1).unwrap();
    assert_eq!(
        (answer.brokers[0].host.to_owned(), answer.brokers[0].port),
        expected
    );
}

#[test]
fn the_brokers_times_of_a_batch_lie_between_the_clients() {
    let broker = broker();
    let bootstrap = broker.address().to_string();
    Writer::connect(broker.address()).create_topic(TOPIC, 2);
    let reader = BrokerLog::begin(&admin(&broker), Duration::from_secs(60)).unwrap();
    let sent = send(&producer(&bootstrap), 100);
    let received = receive(&bootstrap, &sent);
    let log = BrokerLog::read(&admin(&broker), reader).unwrap();
    for record in &received {
        let batch = log.batch(&record.place).expect("every batch was written down");
        // The broker's timestamps have microseconds.
        assert!(
            batch.received_nanos + 1_000 >= record.due_nanos,
            "{record:?} {batch:?}"
        );
        assert!(batch.received_nanos <= batch.appended_nanos);
        let visible = batch.visible_nanos.expect("acknowledged by all replicas");
        assert!(batch.appended_nanos <= visible);
        // The consumer was started after all records were written.
        let fetched = batch.fetched_nanos.expect("a consumer has it");
        assert!(
            visible <= fetched && fetched <= record.received_nanos + 1_000,
            "{record:?} {batch:?}"
        );
    }
    let found = stages::of_ottla(&sent, &received, &log);
    assert_eq!(found.names.len(), 5);
    assert!(found.notes[0].starts_with("100 of 100"), "{:?}", found.notes);
    let seen_by_clients = stages::of_clients(&sent, &received);
    for (five, two) in found.slowest.iter().zip(&seen_by_clients.slowest) {
        assert_eq!(five.percentile, two.percentile);
        assert!((five.end_to_end_ms - two.end_to_end_ms).abs() < 1e-6);
    }
}

#[test]
fn batch_times_are_kept_only_while_a_reader_wants_them() {
    let broker = broker();
    let bootstrap = broker.address().to_string();
    let admin = admin(&broker);
    Writer::connect(broker.address()).create_topic(TOPIC, 1);
    let producer = producer(&bootstrap);
    let begin = || BrokerLog::begin(&admin, Duration::from_secs(60)).unwrap();
    let has_it = |reader, sent: &[SentRecord]| {
        let log = BrokerLog::read(&admin, reader).unwrap();
        sent.iter().all(|sent| log.batch(&sent.place).is_some())
    };
    let while_off = send(&producer, 1);
    let first = begin();
    let while_on = send(&producer, 3);
    assert!(has_it(first, &while_on) && has_it(first, &while_on) && !has_it(first, &while_off));
    // A second reader takes nothing from the first, neither when it begins nor when it ends.
    let second = begin();
    let later = send(&producer, 1);
    assert!(has_it(second, &later) && !has_it(second, &while_on));
    BrokerLog::end(&admin, second).unwrap();
    assert!(has_it(first, &while_on) && has_it(first, &later));
    BrokerLog::end(&admin, first).unwrap();
    assert!(BrokerLog::read(&admin, first).is_err());
    let third = begin();
    assert!(!has_it(third, &while_on) && !has_it(third, &later));
    let refused = BrokerLog::begin(&admin, Duration::from_secs(1_000_000)).unwrap_err();
    assert!(refused.to_string().contains("from 1 to 3600"), "{refused}");
}
