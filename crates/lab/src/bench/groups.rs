//! From a scenario's groups to loads: names resolved, settings completed.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::time::Duration;

use super::error::BenchError;
use super::target::{Access, Topics};
use crate::load::requests::RequestLoad;
use crate::load::{ConsumeLoad, ProduceLoad, TopicLoad};
use crate::scenario::model::{ConsumerSpec, ProducerSpec, RequestSpec, Scalar, Scenario};
use crate::scenario::words;

/// The loads of a scenario's groups on one cluster.
pub struct Groups {
    pub producers: Vec<ProduceLoad>,
    pub consumers: Vec<ConsumeLoad>,
    pub requests: Vec<RequestLoad>,
}

/// - `bootstrap`: the address that clients connect to; a relay's where there is a link.
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
        requests: scenario
            .requests
            .iter()
            .enumerate()
            .map(|(index, spec)| resolver.requests(index, spec))
            .collect::<Result<_, _>>()?,
    })
}

/// The source address of a group's connections: on the loopback each group has its own, as if they
/// were separate machines.
fn neighbour(broker: SocketAddr, index: usize) -> Option<IpAddr> {
    let last = u8::try_from(index + 2).ok()?;
    (broker.ip() == Ipv4Addr::LOCALHOST).then(|| Ipv4Addr::new(127, 0, 0, last).into())
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
        // Topics are new: records from before the first poll belong to this run and must be
        // counted.
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
            gives_way: spec.gives_way,
        })
    }

    fn requests(&self, index: usize, spec: &RequestSpec) -> Result<RequestLoad, BenchError> {
        let wrong = |why: String| BenchError::Scenario(format!("requests {}: {why}", spec.name));
        let protocol = self
            .access
            .settings
            .iter()
            .find(|(key, _)| key == "security.protocol");
        if let Some((_, protocol)) = protocol.filter(|(_, protocol)| protocol != "PLAINTEXT") {
            return Err(wrong(format!(
                "bare connections speak PLAINTEXT only, and this cluster wants {protocol}"
            )));
        }
        let first = self.bootstrap.split(',').next().unwrap_or_default();
        let address = first.to_socket_addrs().ok().and_then(|mut found| found.next());
        let address = address.ok_or_else(|| wrong(format!("{first} has no address")))?;
        Ok(RequestLoad {
            name: spec.name.clone(),
            address,
            source: neighbour(address, index),
            topics: self.topics(&spec.topics)?,
            api: words::api(&spec.api).map_err(BenchError::Scenario)?,
            record_bytes: spec.record_bytes,
            connections: spec.connections,
            in_flight: spec.in_flight,
            client_ids: spec.client_ids,
            rate: spec.rate,
            burst_every: Duration::from_millis(spec.burst_every_ms),
            reconnects: spec.reconnect,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_bare_requests_are_neighbours_on_the_loopback_only() {
        let of = |address: &str, index| neighbour(address.parse().unwrap(), index);
        assert_eq!(of("127.0.0.1:9092", 0), Some([127, 0, 0, 2].into()));
        assert_eq!(of("127.0.0.1:9092", 1), Some([127, 0, 0, 3].into()));
        assert_eq!(of("10.0.0.1:9092", 0), None);
        assert_eq!(of("[::1]:9092", 0), None);
        assert_eq!(of("127.0.0.1:9092", 300), None);
    }
}
