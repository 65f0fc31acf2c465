//! Calls about partitions. Each partition's leader must answer, so a call is split by leader.

use std::collections::BTreeMap;
use std::future::Future;

use ottla_wire::api_key::ApiKey;
use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::elect_leaders::{ElectLeadersRequest, ElectLeadersResponse, TopicPartitions};

use super::context::{Context, Destination, Versions, decode_with, join_all};
use super::topics::fetch_topics;
use super::{Admin, Results, body, resource_error, resource_result};
use crate::consumer::topic_partition::TopicPartition;
use crate::error::Error;
use crate::metadata::snapshot::NodeId;
use crate::pending::Pending;

/// A result for each named partition.
pub type PartitionResults<T> = Results<TopicPartition, T>;

/// Which replica to elect as leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ElectionKind {
    /// The first replica of the assignment.
    Preferred = 0,
    /// Any replica, even one that is not in sync: records can be lost.
    Unclean = 1,
}

impl Admin {
    /// Triggers leader elections; `None`: for all partitions. A partition that already has the
    /// wanted leader is `Err(ElectionNotNeeded)`.
    pub fn elect_leaders(
        &self,
        kind: ElectionKind,
        partitions: Option<Vec<TopicPartition>>,
    ) -> Pending<PartitionResults<()>> {
        self.call("elect leaders", move |context| {
            elect_leaders(context, kind, partitions)
        })
    }
}

async fn elect_leaders(
    context: Context,
    kind: ElectionKind,
    partitions: Option<Vec<TopicPartition>>,
) -> Result<PartitionResults<()>, Error> {
    let clock = context.clone();
    let encode = move |version| {
        let topic_partitions = partitions.as_ref().map(|partitions| {
            let by_topic = group_by_topic(partitions.iter().map(|key| (key, ())));
            let topics = by_topic.into_iter().map(|(topic, partitions)| TopicPartitions {
                topic,
                partitions: partitions.into_iter().map(|(partition, ())| partition).collect(),
            });
            topics.collect()
        });
        let request = ElectLeadersRequest {
            election_type: kind as i8,
            topic_partitions,
            timeout_ms: clock.remaining_ms(),
        };
        body(|out| request.encode(out, version))
    };
    // Version 0 supports preferred leaders only.
    let versions = Versions::from(if kind == ElectionKind::Preferred { 0 } else { 1 });
    context
        .ask(
            Destination::Controller,
            ApiKey::ElectLeaders,
            versions,
            encode,
            |answer| {
                let response = decode_with(answer, ElectLeadersResponse::decode)?;
                if let Some(error) = resource_error(response.error_code, None, || "the election".into()) {
                    return Err(error);
                }
                let results = response.replica_election_results.iter().flat_map(|topic| {
                    topic.partition_result.iter().map(|partition| {
                        let key = TopicPartition::new(topic.topic, partition.partition_id);
                        let what = || format!("partition {key}");
                        let result = resource_result((), partition.error_code, partition.error_message, what);
                        (key, result)
                    })
                });
                Ok(results.collect())
            },
        )
        .await
}

/// Groups by topic, the order of requests.
pub(super) fn group_by_topic<'a, V>(
    partitions: impl IntoIterator<Item = (&'a TopicPartition, V)>,
) -> BTreeMap<&'a str, Vec<(i32, V)>> {
    let mut topics: BTreeMap<&str, Vec<(i32, V)>> = BTreeMap::new();
    for (key, value) in partitions {
        topics.entry(&key.topic).or_default().push((key.partition, value));
    }
    topics
}

/// Asks every partition's leader; retries partitions with a retriable error after a metadata
/// refresh.
///
/// - `ask` gets a node and the partitions that it leads, and returns a result for each.
pub(super) async fn ask_leaders<V, T, F>(
    context: &Context,
    mut open: BTreeMap<TopicPartition, V>,
    ask: impl Fn(NodeId, BTreeMap<TopicPartition, V>) -> F,
) -> Result<PartitionResults<T>, Error>
where
    V: Clone,
    F: Future<Output = PartitionResults<T>>,
{
    let mut results = PartitionResults::new();
    let mut failures = 0;
    loop {
        let mut by_leader: BTreeMap<NodeId, BTreeMap<TopicPartition, V>> = BTreeMap::new();
        for (key, leader) in find_leaders(context, open.keys()).await? {
            match leader {
                Ok(leader) => {
                    let value = open[&key].clone();
                    by_leader.entry(leader).or_default().insert(key, value);
                }
                Err(error) => {
                    results.insert(key, Err(error));
                }
            }
        }
        let asked = by_leader
            .into_iter()
            .map(|(leader, partitions)| ask(leader, partitions));
        results.extend(join_all(asked).await.into_iter().flatten());
        open.retain(|key, _| results.get(key).is_some_and(may_pass));
        let Some(error) = open
            .keys()
            .find_map(|key| results.get(key)?.as_ref().err().cloned())
        else {
            return Ok(results);
        };
        if context.back_off(error, &mut failures).await.is_err() {
            return Ok(results);
        }
    }
}

fn may_pass<T>(result: &Result<T, Error>) -> bool {
    match result {
        // Not retried: a topic that does not exist is more likely misspelled than late.
        Err(Error::Broker {
            code: ErrorCode::UnknownTopicOrPartition,
            ..
        }) => false,
        Err(error) => error.is_retriable(),
        Ok(_) => false,
    }
}

async fn find_leaders<'a>(
    context: &Context,
    partitions: impl Iterator<Item = &'a TopicPartition> + Clone,
) -> Result<Vec<(TopicPartition, Result<NodeId, Error>)>, Error> {
    let mut names: Vec<String> = partitions.clone().map(|key| key.topic.to_string()).collect();
    names.dedup();
    let topics = fetch_topics(context, Some(names)).await?;
    let leader_of = |key: &TopicPartition| {
        let what = format!("partition {key}");
        let unknown = || Error::broker(ErrorCode::UnknownTopicOrPartition, what.clone());
        let description = topics.get(key.topic.as_ref()).ok_or_else(unknown)?;
        let description = description.as_ref().map_err(Error::clone)?;
        let partition = description.partitions.get(&key.partition).ok_or_else(unknown)?;
        partition
            .leader
            .ok_or_else(|| Error::broker(ErrorCode::LeaderNotAvailable, what.clone()))
    };
    Ok(partitions.map(|key| (key.clone(), leader_of(key))).collect())
}
