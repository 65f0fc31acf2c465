//! Instances and subscriptions: refusals in their order, time, bounds and matching.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ottla_wire::error_code::ErrorCode;
use ottla_wire::primitives::Uuid;

use super::instances::{Granted, INSTANCES_MAX, Instances, Push};
use super::subscription::{MatchedClient, SubscriptionError, Subscriptions, Wanted, check};
use crate::config::{ConfigResource, ConfigResourceType, ConfigValues};
use crate::time::Moment;

const INTERVAL_MS: u64 = 10_000;
const BYTES_MAX: usize = 1000;
const ZSTD: i8 = 4;

fn id(number: u32) -> Uuid {
    Uuid((u128::from(number) + 1000).to_be_bytes())
}

fn at(ms: u64) -> Moment {
    Moment::from_micros(1_000_000).after_ms(ms)
}

fn wanted(interval_ms: u64) -> Arc<Wanted> {
    Arc::new(Wanted {
        metrics: BTreeSet::from(["org.apache.kafka.producer.".into()]),
        interval_ms: interval_ms as u32,
    })
}

/// A set of instances and subscriptions.
#[derive(Default)]
struct Machine {
    instances: Instances,
    generation: u64,
    connection_id: u64,
}

impl Machine {
    fn ask(&mut self, ms: u64, id: Uuid) -> Result<Granted, ErrorCode> {
        let (connection_id, generation) = (self.connection_id, self.generation);
        self.instances.ask(at(ms), id, connection_id, generation, || {
            wanted(INTERVAL_MS + generation)
        })
    }

    fn push(&mut self, ms: u64, push: &Push) -> Result<u32, ErrorCode> {
        let (connection_id, generation) = (self.connection_id, self.generation);
        self.instances
            .push(at(ms), push, BYTES_MAX, connection_id, generation, || {
                wanted(INTERVAL_MS + generation)
            })
    }

    /// Returns a machine whose client has asked at 0, and a valid push of that client.
    fn subscribed() -> (Machine, Push) {
        let mut machine = Machine::default();
        let granted = machine.ask(0, id(1)).unwrap();
        (machine, push_of(id(1), &granted))
    }
}

fn push_of(id: Uuid, granted: &Granted) -> Push {
    Push {
        id,
        subscription_id: granted.subscription_id,
        is_terminating: false,
        compression_type: ZSTD,
        payload_bytes: BYTES_MAX,
    }
}

#[test]
fn a_push_is_accepted_right_after_the_subscription_and_then_once_per_interval() {
    let (mut machine, push) = Machine::subscribed();
    assert_eq!(machine.push(1, &push), Ok(INTERVAL_MS as u32));
    assert_eq!(machine.push(2, &push), Err(ErrorCode::ThrottlingQuotaExceeded));
    assert_eq!(
        machine.push(INTERVAL_MS, &push),
        Err(ErrorCode::ThrottlingQuotaExceeded)
    );
    assert!(machine.push(INTERVAL_MS + 1, &push).is_ok());
    assert_eq!(
        machine.push(2 * INTERVAL_MS, &push),
        Err(ErrorCode::ThrottlingQuotaExceeded)
    );
}

#[test]
fn the_first_push_may_come_after_half_and_after_one_and_a_half_intervals() {
    for jittered_ms in [INTERVAL_MS / 2, 3 * INTERVAL_MS / 2] {
        let (mut machine, push) = Machine::subscribed();
        assert!(machine.push(jittered_ms, &push).is_ok());
        assert!(machine.push(jittered_ms + INTERVAL_MS, &push).is_ok());
    }
}

#[test]
fn errors_come_in_kafkas_order() {
    let (mut machine, good) = Machine::subscribed();
    // A push with every fault is refused for the first; each line removes one fault.
    let mut push = Push {
        id: Uuid::ZERO,
        subscription_id: good.subscription_id ^ 1,
        is_terminating: false,
        compression_type: 77,
        payload_bytes: BYTES_MAX + 1,
    };
    assert_eq!(machine.push(0, &push), Err(ErrorCode::InvalidRequest));
    push.id = Uuid::METADATA_TOPIC_ID;
    assert_eq!(machine.push(0, &push), Err(ErrorCode::InvalidRequest));
    assert!(machine.instances.len() == 1, "reserved ids have no state");
    assert!(machine.push(1, &good).is_ok());
    push.id = good.id;
    assert_eq!(machine.push(2, &push), Err(ErrorCode::ThrottlingQuotaExceeded));
    let mut later = 1;
    let mut next = |machine: &mut Machine, push: &Push| {
        later += INTERVAL_MS;
        machine.push(later, push)
    };
    assert_eq!(next(&mut machine, &push), Err(ErrorCode::UnknownSubscriptionId));
    push.subscription_id = good.subscription_id;
    assert_eq!(
        next(&mut machine, &push),
        Err(ErrorCode::UnsupportedCompressionType)
    );
    push.compression_type = ZSTD;
    assert_eq!(next(&mut machine, &push), Err(ErrorCode::TelemetryTooLarge));
    push.payload_bytes = BYTES_MAX;
    assert!(next(&mut machine, &push).is_ok());
}

#[test]
fn every_codec_of_kafka_is_accepted_and_no_other() {
    for compression_type in i8::MIN..=i8::MAX {
        let (mut machine, mut push) = Machine::subscribed();
        push.compression_type = compression_type;
        let expected = match compression_type {
            0..=4 => Ok(INTERVAL_MS as u32),
            _ => Err(ErrorCode::UnsupportedCompressionType),
        };
        assert_eq!(machine.push(0, &push), expected, "{compression_type}");
    }
}

#[test]
fn a_terminating_push_is_never_throttled_and_is_the_last() {
    let (mut machine, push) = Machine::subscribed();
    assert!(machine.push(1, &push).is_ok());
    let last = Push {
        is_terminating: true,
        ..push
    };
    assert!(machine.push(2, &last).is_ok());
    assert_eq!(machine.push(3, &last), Err(ErrorCode::InvalidRequest));
    assert_eq!(
        machine.push(2 * INTERVAL_MS, &push),
        Err(ErrorCode::InvalidRequest)
    );
    machine.generation += 1;
    assert_eq!(
        machine.push(4 * INTERVAL_MS, &push),
        Err(ErrorCode::InvalidRequest)
    );
}

#[test]
fn a_terminating_push_also_needs_the_right_subscription() {
    let (mut machine, push) = Machine::subscribed();
    let last = Push {
        is_terminating: true,
        subscription_id: push.subscription_id + 1,
        ..push
    };
    assert_eq!(machine.push(1, &last), Err(ErrorCode::UnknownSubscriptionId));
}

#[test]
fn asking_is_throttled_unless_the_last_push_told_the_client_to_ask() {
    let (mut machine, push) = Machine::subscribed();
    assert_eq!(machine.ask(1, id(1)), Err(ErrorCode::ThrottlingQuotaExceeded));
    let stranger = Push {
        subscription_id: push.subscription_id + 1,
        ..push
    };
    assert_eq!(machine.push(2, &stranger), Err(ErrorCode::UnknownSubscriptionId));
    assert!(machine.ask(3, id(1)).is_ok());
    // The push after this request, too, comes whenever the jitter says.
    let unknown_codec = Push {
        compression_type: 9,
        ..push
    };
    assert_eq!(
        machine.push(4, &unknown_codec),
        Err(ErrorCode::UnsupportedCompressionType)
    );
    assert!(machine.ask(5, id(1)).is_ok());
    assert!(machine.push(6, &push).is_ok());
    assert_eq!(machine.ask(7, id(1)), Err(ErrorCode::ThrottlingQuotaExceeded));
    assert_eq!(
        machine.ask(INTERVAL_MS + 5, id(1)),
        Err(ErrorCode::ThrottlingQuotaExceeded)
    );
    assert!(machine.ask(INTERVAL_MS + 6, id(1)).is_ok());
}

#[test]
fn a_changed_subscription_is_reported_at_once() {
    let (mut machine, push) = Machine::subscribed();
    assert!(machine.push(1, &push).is_ok());
    machine.generation += 1;
    assert_eq!(machine.push(2, &push), Err(ErrorCode::UnknownSubscriptionId));
    let granted = machine.ask(3, id(1)).unwrap();
    assert_ne!(granted.subscription_id, push.subscription_id);
    assert!(machine.push(4, &push_of(id(1), &granted)).is_ok());
}

#[test]
fn an_instance_of_another_broker_pushes_without_asking() {
    let (_, push) = Machine::subscribed();
    let mut machine = Machine::default();
    assert!(machine.push(0, &push).is_ok());
    assert_eq!(machine.push(1, &push), Err(ErrorCode::ThrottlingQuotaExceeded));
}

#[test]
fn two_instances_have_two_subscription_ids_and_the_same_instance_one() {
    let mut machine = Machine::default();
    let one = machine.ask(0, id(1)).unwrap();
    let other = machine.ask(0, id(2)).unwrap();
    assert_ne!(one.subscription_id, other.subscription_id);
    assert_eq!(Machine::default().ask(0, id(1)).unwrap(), one);
}

#[test]
fn state_ends_with_the_connection() {
    let (mut machine, push) = Machine::subscribed();
    assert!(machine.push(1, &push).is_ok());
    machine.instances.disconnected(99);
    assert_eq!(machine.instances.len(), 1);
    machine.instances.disconnected(machine.connection_id);
    assert!(machine.instances.is_empty());
    assert!(machine.push(2, &push).is_ok(), "a fresh start");
}

#[test]
fn an_instance_that_moved_to_another_connection_outlives_the_first() {
    let (mut machine, push) = Machine::subscribed();
    machine.connection_id = 1;
    assert!(machine.push(1, &push).is_ok());
    machine.instances.disconnected(0);
    assert_eq!(machine.instances.len(), 1);
}

#[test]
fn a_silent_instance_is_forgotten_after_a_minute_or_three_intervals() {
    let mut machine = Machine::default();
    machine.ask(0, id(1)).unwrap();
    machine.instances.expire(at(59_999));
    assert_eq!(machine.instances.len(), 1);
    machine.instances.expire(at(60_000));
    assert!(machine.instances.is_empty());
    let mut instances = Instances::default();
    instances.ask(at(0), id(1), 0, 0, || wanted(100_000)).unwrap();
    instances.expire(at(299_999));
    assert_eq!(instances.len(), 1);
    instances.expire(at(300_000));
    assert!(instances.is_empty());
}

#[test]
fn a_hundred_thousand_instances_stay_within_the_limit() {
    let mut machine = Machine::default();
    for number in 0..100_000 {
        machine.connection_id = u64::from(number);
        machine.ask(u64::from(number) / 10, id(number)).unwrap();
        assert!(machine.instances.len() <= INSTANCES_MAX);
    }
    assert_eq!(machine.instances.len(), INSTANCES_MAX);
    // The instances heard of last are still known: they are throttled.
    machine.connection_id = 99_999;
    assert_eq!(
        machine.ask(10_000, id(99_999)),
        Err(ErrorCode::ThrottlingQuotaExceeded)
    );
    for number in 0..100_000 {
        machine.instances.disconnected(number);
    }
    assert!(machine.instances.is_empty());
}

#[test]
fn a_client_that_changes_its_id_evicts_only_its_own_instances() {
    let mut machine = Machine::default();
    machine.ask(0, id(1)).unwrap();
    machine.connection_id = 7;
    for number in 0..100_000 {
        machine.ask(1, id(10 + number)).unwrap();
    }
    assert!(machine.instances.len() <= 9, "{}", machine.instances.len());
    machine.connection_id = 0;
    assert_eq!(machine.ask(2, id(1)), Err(ErrorCode::ThrottlingQuotaExceeded));
}

fn values(pairs: &[(&str, &str)]) -> Arc<ConfigValues> {
    Arc::new(
        pairs
            .iter()
            .map(|(key, value)| ((*key).into(), (*value).into()))
            .collect(),
    )
}

fn subscriptions(default_interval_ms: u32, all: &[&[(&str, &str)]]) -> Subscriptions {
    let mut subscriptions = Subscriptions::new(default_interval_ms);
    subscriptions.follow(&configs(all));
    subscriptions
}

fn configs(all: &[&[(&str, &str)]]) -> Arc<BTreeMap<ConfigResource, Arc<ConfigValues>>> {
    let named = all.iter().enumerate().map(|(index, pairs)| {
        let resource = ConfigResource {
            resource_type: ConfigResourceType::ClientMetrics,
            name: format!("s{index}").into(),
        };
        (resource, values(pairs))
    });
    let topic = (ConfigResource::topic("t"), values(&[("retention.ms", "1")]));
    Arc::new(named.chain([topic]).collect())
}

fn client() -> MatchedClient {
    MatchedClient {
        instance_id: id(1).to_string(),
        client_id: "billing-7".into(),
        software_name: "apache-kafka-java".into(),
        software_version: "4.3.0".into(),
        source_address: "10.1.2.3".into(),
        source_port: "40123".into(),
    }
}

/// Checks the metrics requested from `client()`, as `metrics@interval`.
fn check_wanted(default_interval_ms: u32, all: &[&[(&str, &str)]], expected: &str) {
    let wanted = subscriptions(default_interval_ms, all).wanted(&client());
    let metrics: Vec<&str> = wanted.metrics.iter().map(|metric| &**metric).collect();
    assert_eq!(
        format!("{}@{}", metrics.join(","), wanted.interval_ms),
        expected,
        "{all:?}"
    );
}

#[test]
fn matching_subscriptions_are_merged_and_the_shortest_interval_wins() {
    check_wanted(
        0,
        &[&[("metrics", "a.,b."), ("interval.ms", "5000")]],
        "a.,b.@5000",
    );
    check_wanted(
        0,
        &[
            &[("metrics", "a.,b."), ("interval.ms", "5000")],
            &[("metrics", "b., c."), ("interval.ms", "900")],
            &[
                ("metrics", "x."),
                ("interval.ms", "100"),
                ("match", "client_id=other"),
            ],
        ],
        "a.,b.,c.@900",
    );
    check_wanted(0, &[&[("metrics", "a.")]], "a.@300000");
    check_wanted(
        0,
        &[&[("metrics", "a."), ("interval.ms", "3600000")]],
        "a.@3600000",
    );
    check_wanted(
        0,
        &[
            &[("metrics", "a.,*"), ("interval.ms", "1000")],
            &[("metrics", "b.")],
        ],
        "*@1000",
    );
}

#[test]
fn the_default_holds_only_while_no_subscription_matches() {
    let all = "org.apache.kafka.app.info.,org.apache.kafka.consumer.,org.apache.kafka.producer.,ottla.";
    check_wanted(10_000, &[], &format!("{all}@10000"));
    check_wanted(
        10_000,
        &[&[("metrics", "a."), ("match", "client_id=other")]],
        &format!("{all}@10000"),
    );
    check_wanted(
        10_000,
        &[&[("metrics", "a."), ("match", "client_id=billing-.*")]],
        "a.@300000",
    );
    // A subscription without metrics is respected.
    check_wanted(10_000, &[&[("interval.ms", "2000")]], "@2000");
    check_wanted(0, &[], "@300000");
}

#[test]
fn every_selector_is_matched_against_the_whole_value() {
    let instance = format!("client_instance_id={}", id(1));
    for (pattern, is_match) in [
        (instance.as_str(), true),
        ("client_id=billing-7", true),
        ("client_id=billing", false),
        ("client_id=7", false),
        ("client_id=.*7", true),
        ("client_id=x|billing-7", true),
        ("client_id=billing|x", false),
        ("client_id = billing-\\d", true),
        ("client_software_name=apache-kafka-java", true),
        ("client_software_version=4\\.3\\..*", true),
        ("client_software_version=4.2.*", false),
        ("client_source_address=10\\.1\\..*", true),
        ("client_source_port=40123", true),
        ("client_id=billing-7,client_software_version=4.*", true),
        ("client_id=billing-7,client_software_version=3.*", false),
        // Of a repeated selector the last counts.
        ("client_id=x,client_id=billing-7", true),
    ] {
        let expected = if is_match { "a.@300000" } else { "@300000" };
        check_wanted(0, &[&[("metrics", "a."), ("match", pattern)]], expected);
    }
}

#[test]
fn values_are_checked_with_kafkas_errors() {
    let request = |text: &str| Err(SubscriptionError::Request(text.to_owned()));
    let config = |text: &str| Err(SubscriptionError::Config(text.to_owned()));
    for (key, value, expected) in [
        ("metrics", "org.apache.kafka.", Ok(())),
        ("metrics", "", Ok(())),
        ("interval.ms", "100", Ok(())),
        ("interval.ms", "3600000", Ok(())),
        (
            "interval.ms",
            "99",
            request("Invalid value 99 for interval.ms, interval must be between 100 and 3600000 (1 hour)"),
        ),
        (
            "interval.ms",
            "3600001",
            request(
                "Invalid value 3600001 for interval.ms, interval must be between 100 and 3600000 (1 hour)",
            ),
        ),
        (
            "interval.ms",
            "soon",
            config("Invalid value soon for configuration interval.ms: Not a number of type INT"),
        ),
        (
            "interval",
            "1",
            request("Unknown client metrics configuration: interval"),
        ),
        ("match", "", Ok(())),
        (
            "match",
            "client_id",
            config("Illegal client matching pattern: client_id"),
        ),
        (
            "match",
            "client_id=",
            config("Illegal client matching pattern: client_id="),
        ),
        (
            "match",
            "client_id=a=b",
            config("Illegal client matching pattern: client_id=a=b"),
        ),
        (
            "match",
            "colour=red",
            config("Illegal client matching pattern: colour=red"),
        ),
        (
            "match",
            "client_id=a,client_id=(",
            config("Illegal client matching pattern: client_id=("),
        ),
        (
            "match",
            "client_id=a)|(b",
            config("Illegal client matching pattern: client_id=a)|(b"),
        ),
    ] {
        assert_eq!(check(&values(&[(key, value)])), expected, "{key}={value}");
    }
}

#[test]
fn a_pattern_that_only_java_supports_matches_no_client() {
    check_wanted(10_000, &[&[("metrics", "a."), ("match", "client_id=(?!x).*")]], {
        "org.apache.kafka.app.info.,org.apache.kafka.consumer.,org.apache.kafka.producer.,ottla.@10000"
    });
}

#[test]
fn only_a_change_of_subscriptions_is_a_new_generation() {
    let mut subscriptions = Subscriptions::new(0);
    assert_eq!(subscriptions.generation(), 0);
    subscriptions.follow(&configs(&[]));
    assert_eq!(
        subscriptions.generation(),
        0,
        "a topic's configuration is no subscription"
    );
    subscriptions.follow(&configs(&[&[("metrics", "a.")]]));
    assert_eq!(subscriptions.generation(), 1);
    subscriptions.follow(&configs(&[&[("metrics", "a.")]]));
    assert_eq!(subscriptions.generation(), 1);
    subscriptions.follow(&configs(&[&[("metrics", "a."), ("interval.ms", "100")]]));
    assert_eq!(subscriptions.generation(), 2);
    subscriptions.follow(&configs(&[]));
    assert_eq!(subscriptions.generation(), 3);
}
