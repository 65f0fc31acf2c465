//! Trogdor's ProduceBench, ConsumeBench and RoundTrip specifications, unchanged.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::Value;

use super::{Converted, name, settings};
use crate::load::stamp;
use crate::scenario::error::{ScenarioError, hint};
use crate::scenario::model::{ConsumerSpec, ProducerSpec, Scalar, Scenario, TopicSpec};

const CLASSES: [&str; 3] = ["ProduceBenchSpec", "ConsumeBenchSpec", "RoundTripWorkloadSpec"];
/// A range such as `foo[1-100000]` is more likely a mistake than a benchmark.
const NAMES_MAX: usize = 10_000;
/// Trogdor's default value: 512 bytes.
const VALUE_BYTES: u32 = 512;
/// RoundTrip's default value: 32 random bytes.
const ROUND_TRIP_BYTES: u32 = 32;
/// Sequential and random keys are unbounded in Trogdor.
const KEYS: u32 = 1_000_000;

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    class: String,
    duration_ms: f64,
    target_messages_per_sec: f64,
    max_messages: u64,
    key_generator: Option<Generator>,
    value_generator: Option<Generator>,
    producer_conf: BTreeMap<String, String>,
    consumer_conf: BTreeMap<String, String>,
    common_client_conf: BTreeMap<String, String>,
    active_topics: Value,
    inactive_topics: BTreeMap<String, Partitions>,
    use_configured_partitioner: bool,
    consumer_group: String,
    threads_per_worker: Option<u32>,
    #[serde(flatten)]
    others: BTreeMap<String, Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Generator {
    r#type: String,
    size: Option<u32>,
    #[serde(flatten)]
    others: BTreeMap<String, Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Partitions {
    num_partitions: i64,
    replication_factor: i16,
    partition_assignments: BTreeMap<String, Vec<i32>>,
    configs: BTreeMap<String, String>,
}

/// Fields that are known and have no effect.
const NO_EFFECT: &[(&str, &str)] = &[
    ("startMs", "it starts at once"),
    ("producerNode", "everything runs in this process"),
    ("consumerNode", "everything runs in this process"),
    ("clientNode", "everything runs in this process"),
    ("bootstrapServers", "the cluster is named on the command line"),
    (
        "adminClientConf",
        "topics are made with the settings of the command line",
    ),
    ("transactionGenerator", "records are sent outside of transactions"),
    ("skipFlush", "nothing is flushed"),
    ("recordProcessor", "every record's stamp is checked instead"),
];

/// - Errors: invalid JSON, another class, names that cannot be expanded.
pub fn convert(text: &str, origin: &str) -> Result<Converted, ScenarioError> {
    // Trogdor allows comments; lines are kept, so that messages name the right one.
    let lines: Vec<&str> = text
        .lines()
        .map(|line| {
            if line.trim_start().starts_with("//") {
                ""
            } else {
                line
            }
        })
        .collect();
    let spec: Spec = serde_json::from_str(&lines.join("\n"))
        .map_err(|error| ScenarioError::new(origin, error.to_string()).on_line(Some(error.line() as u64)))?;
    let class = spec.class.rsplit('.').next().unwrap_or_default();
    let mut conversion = Conversion {
        origin,
        spec: &spec,
        without_effect: Vec::new(),
    };
    for field in spec.others.keys() {
        let known = NO_EFFECT.iter().find(|(known, _)| known == field);
        conversion.note(field, known.map_or("is not known here", |(_, reason)| reason));
    }
    let scenario = match class {
        "ProduceBenchSpec" => conversion.produce()?,
        "ConsumeBenchSpec" => conversion.consume()?,
        "RoundTripWorkloadSpec" => conversion.round_trip()?,
        other => {
            let message = format!(
                "{other} is none of {}{}",
                CLASSES.join(", "),
                hint(other, CLASSES.into_iter())
            );
            return Err(ScenarioError::new(origin, message).at("class"));
        }
    };
    let stem = std::path::Path::new(origin).file_stem();
    Ok(Converted {
        scenario: Scenario {
            name: name(&stem.map_or(class.into(), |stem| stem.to_string_lossy())),
            source: Some(format!("Trogdor, {class}")),
            // Trogdor counts every record, from the first.
            warmup_seconds: 0.0,
            duration_seconds: spec.duration_ms / 1_000.0,
            ..scenario
        },
        without_effect: conversion.without_effect,
    })
}

struct Conversion<'a> {
    origin: &'a str,
    spec: &'a Spec,
    without_effect: Vec<String>,
}

impl Conversion<'_> {
    fn note(&mut self, field: &str, reason: &str) {
        self.without_effect
            .push(format!("{}: {field}: {reason}", self.origin));
    }

    fn wrong(&self, field: &str, message: impl Into<String>) -> ScenarioError {
        ScenarioError::new(self.origin, message).at(field)
    }

    fn produce(&mut self) -> Result<Scenario, ScenarioError> {
        let active: BTreeMap<String, Partitions> = self.topics_by_name()?;
        let mut topics = self.topics(&active, "activeTopics")?;
        let names = topics.iter().map(|topic| topic.name.clone()).collect();
        topics.extend(self.topics(&self.spec.inactive_topics, "inactiveTopics")?);
        let mut producers = self.producers(VALUE_BYTES)?;
        producers.topics = names;
        if self.spec.use_configured_partitioner {
            producers.keys = match self
                .spec
                .key_generator
                .as_ref()
                .map(|generator| generator.r#type.as_str())
            {
                Some("null") => String::from("none"),
                Some("constant") => String::from("sequential:1"),
                Some("uniformRandom") => format!("random:{KEYS}"),
                _ => format!("sequential:{KEYS}"),
            };
        } else {
            producers.partitioning = String::from("round-robin");
            if self.spec.key_generator.is_some() {
                self.note(
                    "keyGenerator",
                    "partitions are taken in turn, records have no keys",
                );
            }
        }
        Ok(Scenario {
            topics,
            producers: vec![producers],
            ..Scenario::default()
        })
    }

    fn round_trip(&mut self) -> Result<Scenario, ScenarioError> {
        let active: BTreeMap<String, Partitions> = self.topics_by_name()?;
        let topics = self.topics(&active, "activeTopics")?;
        let mut producers = self.producers(ROUND_TRIP_BYTES)?;
        producers.partitioning = String::from("round-robin");
        let settings = settings(
            &[&self.spec.common_client_conf, &self.spec.consumer_conf],
            "consumerConf",
            &mut Vec::new(),
        );
        Ok(Scenario {
            topics,
            producers: vec![producers],
            consumers: vec![ConsumerSpec {
                from_beginning: true,
                settings,
                ..ConsumerSpec::default()
            }],
            expect: vec![String::from("lost == 0"), String::from("duplicated == 0")],
            ..Scenario::default()
        })
    }

    /// Topics are new here, so they are filled with what is to be read.
    fn consume(&mut self) -> Result<Scenario, ScenarioError> {
        let spec = self.spec;
        let wanted: Vec<String> = serde_json::from_value(spec.active_topics.clone())
            .map_err(|error| self.wrong("activeTopics", format!("{error}; a list of names is expected")))?;
        let mut partitions: BTreeMap<String, u32> = BTreeMap::new();
        for expanded in self.expand_all(wanted.iter(), "activeTopics")? {
            let (topic, partition) = match expanded.split_once(':') {
                Some((topic, number)) => {
                    let wrong = |_| self.wrong("activeTopics", format!("{number} is not a partition"));
                    (topic.to_owned(), number.parse::<u32>().map_err(wrong)?)
                }
                None => (expanded, 0),
            };
            let count = partitions.entry(topic).or_insert(1);
            *count = (*count).max(partition.saturating_add(1));
        }
        if wanted.iter().any(|topic| topic.contains(':')) {
            self.note(
                "activeTopics",
                "partitions tell how many there are; consumers read them all",
            );
        }
        let clients = spec.threads_per_worker.unwrap_or(1);
        let total = spec.max_messages * u64::from(clients);
        let each = total.div_ceil(partitions.len().max(1) as u64);
        let topics = partitions
            .into_iter()
            .map(|(name, partitions)| TopicSpec {
                name,
                partitions,
                prefilled_records: each.max(1),
                prefilled_record_bytes: VALUE_BYTES,
                ..TopicSpec::default()
            })
            .collect();
        self.note(
            "maxMessages",
            "of each consumer; topics are new and hold this many records before the run, which consumers read to the end",
        );
        Ok(Scenario {
            topics,
            consumers: self.consumers(clients),
            ..Scenario::default()
        })
    }

    /// Without a group every consumer has one of its own, and reads everything.
    fn consumers(&mut self, clients: u32) -> Vec<ConsumerSpec> {
        let spec = self.spec;
        let settings = settings(
            &[&spec.common_client_conf, &spec.consumer_conf],
            "consumerConf",
            &mut self.without_effect,
        );
        let rate = (spec.target_messages_per_sec > 0.0).then_some(spec.target_messages_per_sec);
        let group = |name: String, clients: u32| {
            let mut settings = settings.clone();
            settings.insert(String::from("group.id"), Scalar::Text(name.clone()));
            ConsumerSpec {
                name,
                clients,
                rate: rate.map(|rate| rate * f64::from(clients)),
                from_beginning: true,
                settings,
                ..ConsumerSpec::default()
            }
        };
        if spec.consumer_group.is_empty() {
            (1..=clients)
                .map(|number| group(format!("consumer-{number}"), 1))
                .collect()
        } else {
            vec![group(spec.consumer_group.clone(), clients)]
        }
    }

    fn producers(&mut self, value_bytes: u32) -> Result<ProducerSpec, ScenarioError> {
        let spec = self.spec;
        if spec.target_messages_per_sec <= 0.0 {
            let message = format!("{} is not above 0", spec.target_messages_per_sec);
            return Err(self.wrong("targetMessagesPerSec", message));
        }
        let wanted = spec.value_generator.as_ref().and_then(|generator| generator.size);
        let wanted = wanted.unwrap_or(value_bytes);
        let least = stamp::BYTES as u32;
        if wanted < least {
            self.note(
                "valueGenerator.size",
                &format!("{wanted} bytes: every value has at least a stamp of {least}"),
            );
        }
        let settings = settings(
            &[&spec.common_client_conf, &spec.producer_conf],
            "producerConf",
            &mut self.without_effect,
        );
        Ok(ProducerSpec {
            name: String::from("producers"),
            rate: Some(spec.target_messages_per_sec),
            records: spec.max_messages,
            record_bytes: wanted.max(least),
            contents: self.contents(value_bytes == ROUND_TRIP_BYTES),
            settings,
            ..ProducerSpec::default()
        })
    }

    fn contents(&mut self, is_random_by_default: bool) -> String {
        let Some(generator) = &self.spec.value_generator else {
            return String::from(if is_random_by_default { "random" } else { "letters" });
        };
        let (word, told) = match generator.r#type.as_str() {
            "uniformRandom" | "timestampRandom" | "gaussianTimestampRandom" => ("random", None),
            "constant" | "timestampConstant" | "gaussianTimestampConstant" => {
                ("letters", Some("letters instead of one repeated value"))
            }
            _ => ("random", Some("random bytes instead")),
        };
        if let Some(told) = told {
            self.note(&format!("valueGenerator.type {}", generator.r#type), told);
        }
        for field in generator.others.keys() {
            self.note(
                &format!("valueGenerator.{field}"),
                "values are made behind a stamp of their own",
            );
        }
        String::from(word)
    }

    fn topics_by_name(&self) -> Result<BTreeMap<String, Partitions>, ScenarioError> {
        serde_json::from_value(self.spec.active_topics.clone())
            .map_err(|error| self.wrong("activeTopics", format!("{error}; topics by name are expected")))
    }

    fn topics(
        &mut self,
        topics: &BTreeMap<String, Partitions>,
        field: &str,
    ) -> Result<Vec<TopicSpec>, ScenarioError> {
        let mut specs = Vec::new();
        for (pattern, partitions) in topics {
            let assigned = partitions.partition_assignments.len();
            if assigned > 0 {
                self.note(
                    &format!("{field}.{pattern}.partitionAssignments"),
                    "only their number counts",
                );
            }
            let count = u32::try_from(partitions.num_partitions)
                .unwrap_or(0)
                .max(assigned as u32);
            for name in self.expand_all(std::iter::once(pattern), field)? {
                specs.push(TopicSpec {
                    name,
                    partitions: count.max(1),
                    replication_factor: if partitions.replication_factor > 0 {
                        partitions.replication_factor
                    } else {
                        -1
                    },
                    settings: (partitions.configs.iter())
                        .map(|(key, value)| (key.clone(), Scalar::Text(value.clone())))
                        .collect(),
                    ..TopicSpec::default()
                });
            }
        }
        Ok(specs)
    }

    /// Expands `foo[1-3]` to `foo1`, `foo2`, `foo3`, for every range in the name.
    fn expand_all<'p>(
        &self,
        patterns: impl Iterator<Item = &'p String>,
        field: &str,
    ) -> Result<BTreeSet<String>, ScenarioError> {
        let mut open: Vec<String> = patterns.cloned().collect();
        let mut names = BTreeSet::new();
        while let Some(pattern) = open.pop() {
            let Some((before, range, after)) = range(&pattern) else {
                names.insert(pattern);
                continue;
            };
            let (first, last) = range;
            if last < first || last - first >= NAMES_MAX as u64 || open.len() + names.len() > NAMES_MAX {
                let message = format!("{pattern} does not stand for 1 to {NAMES_MAX} names");
                return Err(self.wrong(field, message));
            }
            open.extend((first..=last).map(|number| format!("{before}{number}{after}")));
        }
        Ok(names)
    }
}

/// The first `[a-b]` of a text, with the text before and after it.
fn range(pattern: &str) -> Option<(&str, (u64, u64), &str)> {
    let (before, rest) = pattern.split_once('[')?;
    let (range, after) = rest.split_once(']')?;
    let (first, last) = range.split_once('-')?;
    Some((
        before,
        (first.trim().parse().ok()?, last.trim().parse().ok()?),
        after,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::foreign::{Source, read};

    fn converted(text: &str) -> Result<Converted, ScenarioError> {
        read(&[Source {
            text,
            origin: "spec.json",
        }])
    }

    const PRODUCE: &str = r#"
// An example.
{
  "class": "org.apache.kafka.trogdor.workload.ProduceBenchSpec",
  "durationMs": 10000000,
  "producerNode": "node0",
  "bootstrapServers": "localhost:9092",
  "targetMessagesPerSec": 10000,
  "maxMessages": 50000,
  "valueGenerator": {"type": "uniformRandom", "size": 256, "seed": 1, "padding": 0},
  "keyGenerator": {"type": "sequential", "size": 4},
  "transactionGenerator": {"type": "uniform", "messagesPerTransaction": 50},
  "producerConf": {"linger.ms": "5"},
  "commonClientConf": {"request.timeout.ms": "20000"},
  "activeTopics": {"foo[1-3]": {"numPartitions": 10, "replicationFactor": 1, "configs": {"retention.ms": "60000"}}},
  "inactiveTopics": {"foo[4-5]": {"numPartitions": 2, "replicationFactor": 1}}
}
"#;

    #[test]
    fn produce_bench() {
        let Converted {
            scenario,
            without_effect,
        } = converted(PRODUCE).unwrap();
        let names: Vec<&str> = scenario.topics.iter().map(|topic| topic.name.as_str()).collect();
        assert_eq!(names, ["foo1", "foo2", "foo3", "foo4", "foo5"]);
        let producers = &scenario.producers[0];
        assert_eq!(producers.topics, ["foo1", "foo2", "foo3"]);
        assert_eq!(
            (producers.rate, producers.records, producers.record_bytes),
            (Some(10_000.0), 50_000, 256)
        );
        assert_eq!(
            (producers.contents.as_str(), producers.partitioning.as_str()),
            ("random", "round-robin")
        );
        assert_eq!(producers.settings["request.timeout.ms"].to_string(), "20000");
        assert_eq!(scenario.topics[0].settings["retention.ms"].to_string(), "60000");
        assert_eq!(
            (scenario.duration_seconds, scenario.warmup_seconds),
            (10_000.0, 0.0)
        );
        for field in [
            "producerNode",
            "bootstrapServers",
            "transactionGenerator",
            "keyGenerator",
            "valueGenerator.seed",
        ] {
            assert!(
                without_effect.iter().any(|line| line.contains(field)),
                "{field}: {without_effect:?}"
            );
        }
    }

    #[test]
    fn the_configured_partitioner_sees_keys() {
        let text = PRODUCE.replace(
            "\"maxMessages\"",
            "\"useConfiguredPartitioner\": true, \"maxMessages\"",
        );
        let producers = &converted(&text).unwrap().scenario.producers[0];
        assert_eq!(
            (producers.keys.as_str(), producers.partitioning.as_str()),
            ("sequential:1000000", "client")
        );
    }

    #[test]
    fn consume_bench() {
        let text = r#"{
  "class": "org.apache.kafka.trogdor.workload.ConsumeBenchSpec",
  "durationMs": 10000,
  "consumerNode": "node0",
  "targetMessagesPerSec": 1000,
  "threadsPerWorker": 5,
  "consumerGroup": "cg",
  "maxMessages": 10000,
  "activeTopics": ["foo[1-3]:[0-3]", "bar"]
}"#;
        let scenario = converted(text).unwrap().scenario;
        let topics: Vec<(&str, u32)> = scenario
            .topics
            .iter()
            .map(|topic| (topic.name.as_str(), topic.partitions))
            .collect();
        assert_eq!(topics, [("bar", 1), ("foo1", 4), ("foo2", 4), ("foo3", 4)]);
        assert_eq!(scenario.topics[0].prefilled_records, 12_500);
        assert_eq!(
            (scenario.consumers[0].clients, scenario.consumers[0].rate),
            (5, Some(5_000.0))
        );
        assert_eq!(scenario.consumers[0].settings["group.id"].to_string(), "cg");
        let alone = converted(&text.replace("\"cg\"", "\"\"")).unwrap().scenario;
        assert_eq!((alone.consumers.len(), alone.consumers[4].clients), (5, 1));
    }

    #[test]
    fn round_trip() {
        let text = r#"{
  "class": "org.apache.kafka.trogdor.workload.RoundTripWorkloadSpec",
  "durationMs": 10000,
  "targetMessagesPerSec": 1000,
  "maxMessages": 100,
  "activeTopics": {"round_trip_topic[0-1]": {"numPartitions": 2, "replicationFactor": 1}}
}"#;
        let scenario = converted(text).unwrap().scenario;
        assert_eq!((scenario.topics.len(), scenario.consumers.len()), (2, 1));
        assert_eq!(
            (scenario.producers[0].record_bytes, scenario.producers[0].records),
            (32, 100)
        );
        assert_eq!(scenario.expect[0], "lost == 0");
    }

    #[test]
    fn what_cannot_be_run_is_refused() {
        let why = |from: &str, to: &str| converted(&PRODUCE.replace(from, to)).unwrap_err().to_string();
        assert!(why("ProduceBenchSpec", "ProduceBenchSpc").contains("ProduceBenchSpec may be meant"));
        assert!(why("10000,", "0,").contains("targetMessagesPerSec: 0 is not above 0"));
        assert!(why("foo[1-3]", "foo[1-99999]").contains("does not stand for 1 to 10000 names"));
        assert!(why("\"linger.ms\"", "\"lingr.ms\"").contains("linger.ms may be meant"));
        // The line in the file, including comments.
        assert!(why("50000,", "many,").starts_with("spec.json:9: "));
    }
}
