//! From a scenario's groups to loads: names resolved, settings complete.

use std::collections::BTreeMap;
use std::time::Duration;

use super::error::BenchError;
use super::target::{Access, Topics};
use crate::load::{ConsumeLoad, ProduceLoad, TopicLoad};
use crate::scenario::model::{ConsumerSpec, ProducerSpec, Scalar, Scenario};
use crate::scenario::words;

/// What the groups of `scenario` do on one cluster.
pub struct Groups {
    pub producers: Vec<ProduceLoad>,
    pub consumers: Vec<ConsumeLoad>,
}

/// - `bootstrap`: where clients connect; a relay's address where there is a link.
pub fn resolve(
    scenario: &Scenario,
    access: &Access,
    bootstrap: &str,
    topics: &Topics,
) -> Result<Groups, BenchError> {
    let resolver = Resolver {
        scenario,
        access,
        bootstrap,
        topics,
    };
    Ok(Groups {
        producers: scenario
            .producers
            .iter()
            .map(|spec| resolver.producer(spec))
            .collect::<Result<_, _>>()?,
        consumers: scenario
            .consumers
            .iter()
            .map(|spec| resolver.consumer(spec))
            .collect::<Result<_, _>>()?,
    })
}

struct Resolver<'a> {
    scenario: &'a Scenario,
    access: &'a Access,
    bootstrap: &'a str,
    topics: &'a Topics,
}

impl Resolver<'_> {
    fn producer(&self, spec: &ProducerSpec) -> Result<ProduceLoad, BenchError> {
        Ok(ProduceLoad {
            name: spec.name.clone(),
            settings: self.settings(&spec.settings),
            topics: self.topics(&spec.topics)?,
            clients: spec.clients,
            threads: spec.threads,
            rate: spec.rate,
            records: spec.records,
            record_bytes: spec.record_bytes,
            contents: words::contents(&spec.contents).map_err(BenchError::Scenario)?,
            keys: words::keys(&spec.keys).map_err(BenchError::Scenario)?,
            partitioning: words::partitioning(&spec.partitioning).map_err(BenchError::Scenario)?,
            is_synchronous: spec.synchronous,
            callback: Duration::from_micros(spec.callback_micros),
            callback_threads: spec.callback_threads,
        })
    }

    fn consumer(&self, spec: &ConsumerSpec) -> Result<ConsumeLoad, BenchError> {
        let mut settings = self.settings(&spec.settings);
        // Topics are new: what lies before the first poll is of this run and must be counted.
        settings
            .entry(String::from("auto.offset.reset"))
            .or_insert_with(|| String::from("earliest"));
        Ok(ConsumeLoad {
            name: spec.name.clone(),
            settings,
            topics: self.topics(&spec.topics)?,
            clients: spec.clients,
            rate: spec.rate,
            from_beginning: spec.from_beginning,
        })
    }

    fn settings(&self, own: &BTreeMap<String, Scalar>) -> BTreeMap<String, String> {
        let mut settings: BTreeMap<String, String> = self.access.settings.iter().cloned().collect();
        settings.insert(String::from("bootstrap.servers"), self.bootstrap.to_owned());
        settings.extend(own.iter().map(|(key, value)| (key.clone(), value.to_string())));
        settings
    }

    fn topics(&self, wanted: &[String]) -> Result<Vec<TopicLoad>, BenchError> {
        let is_wanted = |name: &String| wanted.is_empty() || wanted.contains(name);
        if let Some(unknown) = wanted.iter().find(|name| self.topics.name(name).is_none()) {
            return Err(BenchError::Scenario(format!(
                "topic {unknown} is not among the scenario's topics"
            )));
        }
        Ok(self
            .scenario
            .topics
            .iter()
            .filter(|spec| is_wanted(&spec.name))
            .filter_map(|spec| {
                Some(TopicLoad {
                    name: self.topics.name(&spec.name)?.to_owned(),
                    partitions: spec.partitions,
                })
            })
            .collect())
    }
}
