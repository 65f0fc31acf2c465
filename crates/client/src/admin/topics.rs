//! Topics: create, delete, list, describe, add partitions.

use std::collections::BTreeMap;
use std::sync::Arc;

use ottla_wire::api_key::ApiKey;
use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::create_partitions::{
    CreatePartitionsAssignment, CreatePartitionsRequest, CreatePartitionsResponse, CreatePartitionsTopic,
};
use ottla_wire::messages::create_topics::{
    CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig, CreateTopicsRequest,
    CreateTopicsResponse,
};
use ottla_wire::messages::delete_topics::{DeleteTopicState, DeleteTopicsRequest, DeleteTopicsResponse};
use ottla_wire::messages::metadata::{MetadataRequest, MetadataRequestTopic, MetadataResponse};
use ottla_wire::primitives::Uuid;

use super::context::{Context, Destination, Versions, decode_with};
use super::{Admin, Results, body, resource_error, resource_result};
use crate::error::Error;
use crate::metadata::snapshot::NodeId;
use crate::pending::Pending;

/// A topic to create. Without `partitions` and `replicas` the broker's defaults apply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct NewTopic {
    /// At most 249 of the characters `a-z A-Z 0-9 . _ -`.
    pub name: String,
    /// `None`: the broker's `num.partitions`.
    pub partitions: Option<i32>,
    /// `None`: the broker's `default.replication.factor`.
    pub replicas: Option<i16>,
    /// Brokers by partition, the preferred leader first; excludes the two fields above.
    pub assignment: BTreeMap<i32, Vec<i32>>,
    /// The topic's own settings.
    pub configs: BTreeMap<String, String>,
}

impl NewTopic {
    /// A topic with the broker's defaults.
    pub fn new(name: impl Into<String>) -> NewTopic {
        NewTopic {
            name: name.into(),
            ..NewTopic::default()
        }
    }

    /// Sets the number of partitions.
    #[must_use]
    pub fn partitions(mut self, partitions: i32) -> NewTopic {
        self.partitions = Some(partitions);
        self
    }

    /// Sets the number of replicas of each partition.
    #[must_use]
    pub fn replicas(mut self, replicas: i16) -> NewTopic {
        self.replicas = Some(replicas);
        self
    }

    /// Sets one setting of the topic.
    #[must_use]
    pub fn config(mut self, key: impl Into<String>, value: impl ToString) -> NewTopic {
        self.configs.insert(key.into(), value.to_string());
        self
    }
}

/// A topic as the broker created it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CreatedTopic {
    /// Zero from brokers older than 2.8.
    pub id: Uuid,
    /// −1 from brokers older than 2.4, or without the right to see it.
    pub partitions: i32,
    /// The number of replicas of each partition.
    pub replicas: i16,
}

/// A topic in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TopicListing {
    /// Zero from brokers before 2.8 (KIP-516).
    pub id: Uuid,
    /// Kafka's own, like `__consumer_offsets`.
    pub is_internal: bool,
}

/// A topic with its partitions.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TopicDescription {
    /// Zero from brokers before 2.8 (KIP-516).
    pub id: Uuid,
    /// Kafka's own, like `__consumer_offsets`.
    pub is_internal: bool,
    /// By index.
    pub partitions: BTreeMap<i32, PartitionDescription>,
}

/// One partition of a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PartitionDescription {
    /// `None`: there is none now.
    pub leader: Option<NodeId>,
    /// -1: the broker does not say.
    pub leader_epoch: i32,
    /// The brokers that have a replica; the preferred leader first.
    pub replicas: Vec<NodeId>,
    /// Those of them that are in sync.
    pub in_sync: Vec<NodeId>,
}

/// Partitions to add to a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NewPartitions {
    /// The topic's partition count afterwards.
    pub total: i32,
    /// Brokers for each added partition; empty: the controller chooses.
    pub assignment: Vec<Vec<i32>>,
}

impl NewPartitions {
    /// As many as it takes to have `total`, on brokers of the controller's choice.
    pub fn to(total: i32) -> NewPartitions {
        NewPartitions {
            total,
            assignment: Vec::new(),
        }
    }

    /// Sets the brokers of each added partition.
    #[must_use]
    pub fn assignment(mut self, assignment: Vec<Vec<i32>>) -> NewPartitions {
        self.assignment = assignment;
        self
    }
}

impl Admin {
    /// Creates topics.
    pub fn create_topics(&self, topics: Vec<NewTopic>) -> Pending<Results<String, CreatedTopic>> {
        self.call("create topics", |context| create_topics(context, topics, false))
    }

    /// Checks what `create_topics` would do, without doing it.
    pub fn validate_topics(&self, topics: Vec<NewTopic>) -> Pending<Results<String, CreatedTopic>> {
        self.call("validate topics", |context| create_topics(context, topics, true))
    }

    /// Deletes topics with all their records.
    pub fn delete_topics(&self, names: Vec<String>) -> Pending<Results<String, ()>> {
        self.call("delete topics", |context| delete_topics(context, names))
    }

    /// Returns every topic that this user may see.
    pub fn list_topics(&self) -> Pending<BTreeMap<String, TopicListing>> {
        self.call("list topics", |context| async move {
            let topics = fetch_topics(&context, None).await?;
            let listed = topics.into_iter().filter_map(|(name, topic)| {
                let topic = topic.ok()?;
                let listing = TopicListing {
                    id: topic.id,
                    is_internal: topic.is_internal,
                };
                Some((name, listing))
            });
            Ok(listed.collect())
        })
    }

    /// Describes topics; one that does not exist is `Err(UnknownTopicOrPartition)`.
    pub fn describe_topics(&self, names: Vec<String>) -> Pending<Results<String, TopicDescription>> {
        self.call("describe topics", |context| async move {
            fetch_topics(&context, Some(names)).await
        })
    }

    /// Adds partitions to topics; keys of later records may go to other partitions than before.
    pub fn create_partitions(&self, topics: BTreeMap<String, NewPartitions>) -> Pending<Results<String, ()>> {
        self.call("create partitions", |context| create_partitions(context, topics))
    }
}

/// Fails with a retriable error when a topic's code says that the asked broker is not the
/// controller.
pub(super) fn controller_moved<'a>(codes: impl IntoIterator<Item = &'a i16>) -> Result<(), Error> {
    let moved = codes
        .into_iter()
        .any(|code| *code == ErrorCode::NotController as i16);
    match moved {
        true => Err(Error::broker(ErrorCode::NotController, "the asked broker")),
        false => Ok(()),
    }
}

/// Repeats the call for the topics that the controller's mutation quota refused (KIP-599), while
/// there is time.
async fn within_quota<V, T, F>(
    context: &Context,
    mut open: BTreeMap<String, V>,
    ask: impl Fn(BTreeMap<String, V>) -> F,
) -> Result<Results<String, T>, Error>
where
    V: Clone,
    F: Future<Output = Result<Results<String, T>, Error>>,
{
    let mut results = Results::new();
    let mut failures = 0;
    loop {
        results.extend(ask(open.clone()).await?);
        let is_throttled = |result: &Result<T, Error>| {
            matches!(
                result,
                Err(Error::Broker {
                    code: ErrorCode::ThrottlingQuotaExceeded,
                    ..
                })
            )
        };
        open.retain(|name, _| results.get(name).is_some_and(is_throttled));
        let error = open
            .keys()
            .find_map(|name| results.get(name)?.as_ref().err().cloned());
        let Some(error) = error else {
            return Ok(results);
        };
        if context.back_off(error, &mut failures).await.is_err() {
            return Ok(results);
        }
    }
}

async fn create_topics(
    context: Context,
    topics: Vec<NewTopic>,
    validate_only: bool,
) -> Result<Results<String, CreatedTopic>, Error> {
    let by_name = topics.into_iter().map(|topic| (topic.name.clone(), topic));
    within_quota(&context, by_name.collect(), |topics| {
        create_topics_once(context.clone(), topics.into_values().collect(), validate_only)
    })
    .await
}

async fn create_topics_once(
    context: Context,
    topics: Vec<NewTopic>,
    validate_only: bool,
) -> Result<Results<String, CreatedTopic>, Error> {
    // Versions before 4 cannot leave the numbers to the broker.
    let needs_defaults = topics
        .iter()
        .any(|topic| topic.assignment.is_empty() && (topic.partitions.is_none() || topic.replicas.is_none()));
    let versions = Versions::from(if needs_defaults { 4 } else { 2 });
    let clock = context.clone();
    let encode = move |version| {
        let topics = topics.iter().map(encode_new_topic).collect();
        let request = CreateTopicsRequest {
            topics,
            timeout_ms: clock.remaining_ms(),
            validate_only,
        };
        body(|out| request.encode(out, version))
    };
    context
        .ask(
            Destination::Controller,
            ApiKey::CreateTopics,
            versions,
            encode,
            |answer| {
                let response = decode_with(answer, CreateTopicsResponse::decode)?;
                controller_moved(response.topics.iter().map(|topic| &topic.error_code))?;
                let results = response.topics.iter().map(|topic| {
                    let created = CreatedTopic {
                        id: topic.topic_id,
                        partitions: topic.num_partitions,
                        replicas: topic.replication_factor,
                    };
                    let what = || format!("topic {}", topic.name);
                    let result = resource_result(created, topic.error_code, topic.error_message, what);
                    (topic.name.to_owned(), result)
                });
                Ok(results.collect())
            },
        )
        .await
}

fn encode_new_topic(topic: &NewTopic) -> CreatableTopic<'_> {
    let is_assigned = !topic.assignment.is_empty();
    let assignments = topic
        .assignment
        .iter()
        .map(|(partition, brokers)| CreatableReplicaAssignment {
            partition_index: *partition,
            broker_ids: brokers.clone(),
        });
    let configs = topic.configs.iter().map(|(name, value)| CreatableTopicConfig {
        name,
        value: Some(value),
    });
    CreatableTopic {
        name: &topic.name,
        num_partitions: topic.partitions.filter(|_| !is_assigned).unwrap_or(-1),
        replication_factor: topic.replicas.filter(|_| !is_assigned).unwrap_or(-1),
        assignments: assignments.collect(),
        configs: configs.collect(),
    }
}

async fn delete_topics(context: Context, names: Vec<String>) -> Result<Results<String, ()>, Error> {
    let by_name = names.into_iter().map(|name| (name, ()));
    within_quota(&context, by_name.collect(), |names| {
        delete_topics_once(context.clone(), names.into_keys().collect())
    })
    .await
}

async fn delete_topics_once(context: Context, names: Vec<String>) -> Result<Results<String, ()>, Error> {
    let clock = context.clone();
    let encode = move |version| {
        let by_name = |name| DeleteTopicState {
            name: Some(name),
            topic_id: Uuid::ZERO,
        };
        let request = DeleteTopicsRequest {
            topics: names
                .iter()
                .map(String::as_str)
                .filter(|_| version >= 6)
                .map(by_name)
                .collect(),
            topic_names: names.iter().map(String::as_str).filter(|_| version < 6).collect(),
            timeout_ms: clock.remaining_ms(),
        };
        body(|out| request.encode(out, version))
    };
    context
        .ask(
            Destination::Controller,
            ApiKey::DeleteTopics,
            Versions::ALL,
            encode,
            |answer| {
                let response = decode_with(answer, DeleteTopicsResponse::decode)?;
                controller_moved(response.responses.iter().map(|topic| &topic.error_code))?;
                let results = response.responses.iter().map(|topic| {
                    let name = topic.name.unwrap_or_default();
                    let what = || format!("topic {name}");
                    (
                        name.to_owned(),
                        resource_result((), topic.error_code, topic.error_message, what),
                    )
                });
                Ok(results.collect())
            },
        )
        .await
}

async fn create_partitions(
    context: Context,
    topics: BTreeMap<String, NewPartitions>,
) -> Result<Results<String, ()>, Error> {
    within_quota(&context, topics, |topics| {
        create_partitions_once(context.clone(), topics)
    })
    .await
}

async fn create_partitions_once(
    context: Context,
    topics: BTreeMap<String, NewPartitions>,
) -> Result<Results<String, ()>, Error> {
    let clock = context.clone();
    let encode = move |version| {
        let topics = topics.iter().map(|(name, new)| CreatePartitionsTopic {
            name,
            count: new.total,
            assignments: (!new.assignment.is_empty()).then(|| {
                let brokers = new.assignment.iter().cloned();
                brokers
                    .map(|broker_ids| CreatePartitionsAssignment { broker_ids })
                    .collect()
            }),
        });
        let request = CreatePartitionsRequest {
            topics: topics.collect(),
            timeout_ms: clock.remaining_ms(),
            validate_only: false,
        };
        body(|out| request.encode(out, version))
    };
    context
        .ask(
            Destination::Controller,
            ApiKey::CreatePartitions,
            Versions::ALL,
            encode,
            |answer| {
                let response = decode_with(answer, CreatePartitionsResponse::decode)?;
                controller_moved(response.results.iter().map(|topic| &topic.error_code))?;
                let results = response.results.iter().map(|topic| {
                    let what = || format!("topic {}", topic.name);
                    let result = resource_result((), topic.error_code, topic.error_message, what);
                    (topic.name.to_owned(), result)
                });
                Ok(results.collect())
            },
        )
        .await
}

/// Fetches topics from any broker; `None`: all.
pub(super) async fn fetch_topics(
    context: &Context,
    names: Option<Vec<String>>,
) -> Result<Results<String, TopicDescription>, Error> {
    let names: Option<Arc<[String]>> = names.map(Into::into);
    let encode = move |version| {
        let by_name = |name| MetadataRequestTopic {
            topic_id: Uuid::ZERO,
            name: Some(name),
        };
        let request = MetadataRequest {
            topics: names
                .as_ref()
                .map(|names| names.iter().map(String::as_str).map(by_name).collect()),
            allow_auto_topic_creation: false,
            ..MetadataRequest::default()
        };
        body(|out| request.encode(out, version))
    };
    // Version 4 is the first that can avoid creating the topics it names.
    context
        .ask(
            Destination::Any,
            ApiKey::Metadata,
            Versions::from(4),
            encode,
            |answer| {
                let response = decode_with(answer, MetadataResponse::decode)?;
                if let Some(error) = resource_error(response.error_code, None, || "the cluster".into()) {
                    return Err(error);
                }
                let results = response.topics.iter().map(|topic| {
                    let name = topic.name.unwrap_or_default();
                    let partitions = topic.partitions.iter().map(|partition| {
                        let description = PartitionDescription {
                            leader: (partition.leader_id >= 0).then_some(NodeId(partition.leader_id)),
                            leader_epoch: partition.leader_epoch,
                            replicas: partition.replica_nodes.iter().copied().map(NodeId).collect(),
                            in_sync: partition.isr_nodes.iter().copied().map(NodeId).collect(),
                        };
                        (partition.partition_index, description)
                    });
                    let description = TopicDescription {
                        id: topic.topic_id,
                        is_internal: topic.is_internal,
                        partitions: partitions.collect(),
                    };
                    let what = || format!("topic {name}");
                    (
                        name.to_owned(),
                        resource_result(description, topic.error_code, None, what),
                    )
                });
                Ok(results.collect())
            },
        )
        .await
}
