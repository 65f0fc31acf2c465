//! Workloads and Kafka drivers of the OpenMessaging Benchmark, unchanged.

use std::collections::BTreeMap;

use ottla_wire::properties;
use serde::Deserialize;
use serde_json::Value;

use super::{Converted, Source, name, settings};
use crate::scenario::error::{ScenarioError, hint};
use crate::scenario::model::{ConsumerSpec, ProducerSpec, Scalar, Scenario, TopicSpec};

/// The number of keys that its key distributors cycle through.
const KEYS: u32 = 10_000;
/// The tool's own default.
const WARMUP_MINUTES: f64 = 1.0;

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Workload {
    name: String,
    topics: u32,
    partitions_per_topic: u32,
    key_distributor: Option<String>,
    message_size: u32,
    use_randomized_payloads: bool,
    subscriptions_per_topic: u32,
    producers_per_topic: u32,
    consumer_per_subscription: u32,
    producer_rate: f64,
    test_duration_minutes: f64,
    warmup_duration_minutes: Option<f64>,
    #[serde(flatten)]
    others: BTreeMap<String, Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Driver {
    driver_class: String,
    replication_factor: i16,
    topic_config: String,
    common_config: String,
    producer_config: String,
    consumer_config: String,
    #[serde(flatten)]
    others: BTreeMap<String, Value>,
}

/// Fields of workloads and drivers that are known and have no effect.
const NO_EFFECT: &[(&str, &str)] = &[
    (
        "payloadFile",
        "values are random bytes of messageSize behind the stamp that makes them checkable",
    ),
    ("randomBytesRatio", "values are random bytes"),
    ("randomizedPayloadPoolSize", "values are random bytes"),
    (
        "consumerBacklogSizeGB",
        "consumers read from the start; a topic's prefilled_records makes a backlog",
    ),
    ("backlogDrainRatio", "there is no backlog to drain"),
    ("acceptableBacklog", "no rate is searched for"),
    ("producerStartRate", "no rate is searched for"),
    ("producerIncrementRate", "the rate is constant"),
    ("producerIncrementSeconds", "the rate is constant"),
    ("producerPauseBeforeDrain", "there is no backlog to drain"),
    ("producerPauseDuringDrain", "there is no backlog to drain"),
    ("messageRateReceivedForSubscription", "there are no filters"),
    ("reset", "every run has topics of its own"),
    ("replicaFactor", "replicationFactor counts"),
    ("name", "the workload's name counts"),
    ("zoneAware", "producers have no zones"),
];

/// - Errors: invalid YAML, a driver that is not Kafka's, settings that cannot be read.
pub fn convert(workload: Source<'_>, driver: Option<Source<'_>>) -> Result<Converted, ScenarioError> {
    let mut without_effect = Vec::new();
    let from: Workload = read(workload)?;
    note_others(&from.others, workload.origin, &mut without_effect);
    let (driver, driver_origin) = match driver {
        Some(source) => {
            let driver: Driver = read(source)?;
            if !driver.driver_class.to_lowercase().contains("kafka") {
                let message = format!("{} is not the driver of Kafka", driver.driver_class);
                return Err(ScenarioError::new(source.origin, message).at("driverClass"));
            }
            note_others(&driver.others, source.origin, &mut without_effect);
            (driver, source.origin)
        }
        None => (
            Driver {
                replication_factor: -1,
                ..Driver::default()
            },
            workload.origin,
        ),
    };
    let lines = |field: &str, text: &str| -> Result<BTreeMap<String, String>, ScenarioError> {
        let parsed = properties::parse(text)
            .map_err(|error| ScenarioError::new(driver_origin, error.to_string()).at(field))?;
        Ok(parsed.into_iter().collect())
    };
    let common = lines("commonConfig", &driver.common_config)?;
    let producer = lines("producerConfig", &driver.producer_config)?;
    let consumer = lines("consumerConfig", &driver.consumer_config)?;
    let topic = lines("topicConfig", &driver.topic_config)?;
    // The address is in the common part; it is noted once.
    let producer = settings(&[&common, &producer], "commonConfig", &mut without_effect);
    let consumer = settings(&[&common, &consumer], "commonConfig", &mut Vec::new());
    let topics = (1..=from.topics)
        .map(|number| TopicSpec {
            name: format!("topic-{number}"),
            partitions: from.partitions_per_topic,
            replication_factor: if driver.replication_factor == 0 {
                -1
            } else {
                driver.replication_factor
            },
            settings: topic
                .iter()
                .map(|(key, value)| (key.clone(), Scalar::Text(value.clone())))
                .collect(),
            ..TopicSpec::default()
        })
        .collect();
    if from.topics > 1 {
        without_effect.push(format!(
            "{}: producersPerTopic, consumerPerSubscription: as many clients as asked for, but each uses every topic",
            workload.origin
        ));
    }
    let scenario = Scenario {
        name: name(&from.name),
        source: Some(String::from("OpenMessaging Benchmark")),
        topics,
        producers: vec![producers(&from, producer, workload, &mut without_effect)?],
        consumers: consumers(&from, &consumer),
        warmup_seconds: 60.0 * from.warmup_duration_minutes.unwrap_or(WARMUP_MINUTES),
        duration_seconds: 60.0 * from.test_duration_minutes,
        ..Scenario::default()
    };
    Ok(Converted {
        scenario,
        without_effect,
    })
}

fn producers(
    from: &Workload,
    settings: BTreeMap<String, Scalar>,
    workload: Source<'_>,
    without_effect: &mut Vec<String>,
) -> Result<ProducerSpec, ScenarioError> {
    let keys = match from.key_distributor.as_deref() {
        None | Some("NO_KEY") => String::from("none"),
        Some("KEY_ROUND_ROBIN") => format!("sequential:{KEYS}"),
        Some("RANDOM_NANO") => format!("random:{KEYS}"),
        Some(other) => {
            let near = hint(other, ["NO_KEY", "KEY_ROUND_ROBIN", "RANDOM_NANO"].into_iter());
            let message = format!("{other} is none of NO_KEY, KEY_ROUND_ROBIN, RANDOM_NANO{near}");
            return Err(ScenarioError::new(workload.origin, message).at("keyDistributor"));
        }
    };
    if from.producer_rate <= 0.0 {
        without_effect.push(format!(
            "{}: producerRate 0: the highest rate that consumers follow is not searched for; it goes as fast as possible",
            workload.origin
        ));
    }
    if !from.use_randomized_payloads {
        without_effect.push(format!(
            "{}: useRandomizedPayloads: values are random bytes all the same",
            workload.origin
        ));
    }
    Ok(ProducerSpec {
        name: String::from("producers"),
        clients: from.producers_per_topic * from.topics,
        rate: (from.producer_rate > 0.0).then_some(from.producer_rate),
        record_bytes: from.message_size,
        keys,
        settings,
        ..ProducerSpec::default()
    })
}

/// Each subscription reads everything.
fn consumers(from: &Workload, settings: &BTreeMap<String, Scalar>) -> Vec<ConsumerSpec> {
    (1..=from.subscriptions_per_topic)
        .filter(|_| from.consumer_per_subscription > 0)
        .map(|number| {
            let mut settings = settings.clone();
            let group = format!("subscription-{number}");
            settings.insert(String::from("group.id"), Scalar::Text(group.clone()));
            ConsumerSpec {
                name: group,
                clients: from.consumer_per_subscription * from.topics,
                settings,
                ..ConsumerSpec::default()
            }
        })
        .collect()
}

fn read<T: for<'de> Deserialize<'de>>(source: Source<'_>) -> Result<T, ScenarioError> {
    serde_saphyr::from_str(source.text).map_err(|error| {
        let line = error.location().map(|location| location.line());
        ScenarioError::new(source.origin, error.without_snippet().to_string()).on_line(line)
    })
}

fn note_others(others: &BTreeMap<String, Value>, origin: &str, without_effect: &mut Vec<String>) {
    for field in others.keys() {
        let known = NO_EFFECT.iter().find(|(known, _)| known == field);
        let reason = known.map_or("is not known here", |(_, reason)| reason);
        without_effect.push(format!("{origin}: {field}: {reason}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::foreign;

    const WORKLOAD: &str = "\
name: 4 producers, 2 topics
topics: 2
partitionsPerTopic: 16
keyDistributor: \"KEY_ROUND_ROBIN\"
messageSize: 1024
payloadFile: \"payload/payload-1Kb.data\"
subscriptionsPerTopic: 2
consumerPerSubscription: 3
producersPerTopic: 2
producerRate: 50000
consumerBacklogSizeGB: 0
testDurationMinutes: 15
somethingNew: 1
";

    const DRIVER: &str = "\
name: Kafka
driverClass: io.openmessaging.benchmark.driver.kafka.KafkaBenchmarkDriver
replicationFactor: 3
reset: true
topicConfig: |
  min.insync.replicas=2
commonConfig: |
  bootstrap.servers=localhost:9092
  request.timeout.ms=120000
producerConfig: |
  acks=all
  linger.ms=1
  batch.size=1048576
consumerConfig: |
  auto.offset.reset=earliest
  enable.auto.commit=false
";

    fn read(workload: &str, driver: &str) -> Result<Converted, ScenarioError> {
        let workload = Source {
            text: workload,
            origin: "w.yaml",
        };
        let driver = Source {
            text: driver,
            origin: "d.yaml",
        };
        foreign::read(&[workload, driver])
    }

    #[test]
    fn a_workload_and_its_driver_become_a_scenario() {
        let Converted {
            scenario,
            without_effect,
        } = read(WORKLOAD, DRIVER).unwrap();
        assert_eq!((scenario.topics.len(), scenario.topics[1].partitions), (2, 16));
        assert_eq!(scenario.topics[0].replication_factor, 3);
        assert_eq!(
            scenario.topics[0].settings["min.insync.replicas"].to_string(),
            "2"
        );
        let producers = &scenario.producers[0];
        assert_eq!(
            (producers.clients, producers.rate, producers.record_bytes),
            (4, Some(50_000.0), 1_024)
        );
        assert_eq!(producers.keys, "sequential:10000");
        assert_eq!(producers.settings["linger.ms"].to_string(), "1");
        assert_eq!(producers.settings["request.timeout.ms"].to_string(), "120000");
        assert_eq!(scenario.consumers.len(), 2);
        assert_eq!(
            (scenario.consumers[1].clients, scenario.consumers[1].name.as_str()),
            (6, "subscription-2")
        );
        assert_eq!(
            (scenario.warmup_seconds, scenario.duration_seconds),
            (60.0, 900.0)
        );
        for field in [
            "payloadFile",
            "consumerBacklogSizeGB",
            "somethingNew",
            "reset",
            "bootstrap.servers",
        ] {
            let told = without_effect.iter().filter(|line| line.contains(field)).count();
            assert_eq!(told, 1, "{field}: {without_effect:?}");
        }
    }

    #[test]
    fn impossible_requests_of_a_driver_are_refused() {
        let why = |from: &str, to: &str| read(WORKLOAD, &DRIVER.replace(from, to)).unwrap_err().to_string();
        assert!(
            why("kafka.KafkaBenchmarkDriver", "pulsar.PulsarBenchmarkDriver")
                .contains("d.yaml: driverClass: ")
        );
        let told = why("linger.ms=1", "lingr.ms=1");
        assert!(
            told.contains("lingr.ms: is no setting of a producer; linger.ms may be meant"),
            "{told}"
        );
        let told = read(&WORKLOAD.replace("ROUND_ROBIN", "ROUND_ROBEN"), DRIVER)
            .unwrap_err()
            .to_string();
        assert!(told.contains("KEY_ROUND_ROBIN may be meant"), "{told}");
        let told = read(&WORKLOAD.replace("topics: 2", "topics: two"), DRIVER)
            .unwrap_err()
            .to_string();
        assert!(told.starts_with("w.yaml:"), "{told}");
    }
}
