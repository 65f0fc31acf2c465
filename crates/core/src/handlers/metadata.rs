//! Metadata, versions 0 to 13: topics by name or id, brokers, the cluster. 4: auto-creation of
//! topics. 8: KIP-430, authorized operations. 10: KIP-516, topic ids. 12: topics asked for by id.
//! 13: KIP-1102, a top-level error.
//!
//! Deviation: Apache Kafka answers that a topic is unknown while it creates it, and the client
//! retries. Here the answer waits for the creation, which takes one sync.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::metadata::{
    MetadataRequest, MetadataRequestTopic, MetadataResponse, MetadataResponseBroker,
    MetadataResponsePartition, MetadataResponseTopic,
};
use ottla_wire::primitives::Uuid;

use super::authorized::{NOT_ASKED, cluster_operations, topic_operations};
use crate::access::acl::Operation;
use crate::access::granted::{OwnedGrant, Topic};
use crate::access::{Caller, OwnedCaller};
use crate::controller::Controller;
use crate::controller::topics::{NewTopic, topic_name_problem};
use crate::image::MetadataImage;
use crate::image::topics::{NO_LEADER, PartitionImage, TopicImage, is_internal};
use crate::node::Node;
use crate::pending::Handled;
use crate::placement::{ENTRIES_UNBOUNDED, count};
use crate::quota::mutation::MutationQuota;
use crate::refusal::Refusal;
use crate::reply::ReplyBuffer;
use crate::request::{ClientIdentity, Request};
use crate::submit::{ControllerReply, InternalTopic, submit};

/// From this version on a missing listener is told apart from a missing leader.
const FIRST_VERSION_WITH_LISTENER_NOT_FOUND: i16 = 6;
const FIRST_VERSION_WITH_OPTIONAL_NAMES: i16 = 12;
/// If creation takes longer, the answer is what Apache Kafka answers at once: unknown topic, which
/// makes clients retry.
const CREATION_WAIT_MS: u64 = 5_000;

/// A copy of the request that outlives its frame.
struct OwnedRequest {
    version: i16,
    listener_name: Arc<str>,
    identity: Arc<ClientIdentity>,
    caller: OwnedCaller,
    topics: AskedTopics,
    cluster_operations: bool,
    topic_operations: bool,
}

enum AskedTopics {
    All,
    ByName(BTreeSet<String>),
    ById(BTreeSet<Uuid>),
}

pub(crate) fn handle(
    node: &Node,
    request: &Request<'_>,
    caller: Caller<'_>,
    body: MetadataRequest<'_>,
    reply: &mut ReplyBuffer,
) -> Handled {
    let version = request.api_version;
    if version < FIRST_VERSION_WITH_OPTIONAL_NAMES && names_by_id(&body) {
        refuse(&body, version, reply);
        return Handled::Replied;
    }
    let asked = OwnedRequest::new(request, caller, &body);
    let image = node.image();
    let (missing, refused) = match (&asked.topics, creates(node, &body)) {
        (AskedTopics::ByName(names), true) => asked.to_create(&image, names),
        _ => (Vec::new(), BTreeMap::new()),
    };
    if missing.is_empty() {
        asked.answer(node, &image, &refused, reply);
        return Handled::Replied;
    }
    let created = submit(node, move |node, controller| create(node, controller, missing));
    let deadline = request.received.after_ms(CREATION_WAIT_MS);
    Handled::Pending(ControllerReply::boxed(
        created,
        Some(deadline),
        move |node, created: Result<BTreeMap<String, ErrorCode>, Refusal>, reply| {
            // After the deadline, too, the answer tells what exists.
            let mut refusals = created.unwrap_or_default();
            refusals.extend(refused);
            asked.answer(node, &node.image(), &refusals, reply);
        },
    ))
}

/// The measure of a Metadata request: the topics and partitions that its answer names. One that
/// creates topics is answered from the image after the creation, which may name any number.
pub(crate) fn answer_entries(node: &Node, request: &Request<'_>, body: &MetadataRequest<'_>) -> u64 {
    let image = node.image();
    let entries =
        |topic: Option<&Arc<TopicImage>>| 1 + topic.map_or(0, |topic| topic.partitions.len() as u64);
    let Some(topics) = named_topics(request.api_version, body) else {
        return count(image.topics.iter().map(|topic| entries(Some(topic))));
    };
    if names_by_id(body) {
        return count(
            topics
                .iter()
                .map(|topic| entries(image.topic_by_id(topic.topic_id))),
        );
    }
    let names = || topics.iter().filter_map(|topic| topic.name);
    if creates(node, body) && names().any(|name| is_creatable(&image, name)) {
        return ENTRIES_UNBOUNDED;
    }
    count(names().map(|name| entries(image.topic(name))))
}

/// Returns the topics that the request names; `None` when it asks for all.
fn named_topics<'b, 'a>(
    version: i16,
    body: &'b MetadataRequest<'a>,
) -> Option<&'b [MetadataRequestTopic<'a>]> {
    // Version 0 has no null: an empty list means all topics.
    let topics = body.topics.as_deref()?;
    (version > 0 || !topics.is_empty()).then_some(topics)
}

/// Whether missing topics are created.
fn creates(node: &Node, body: &MetadataRequest<'_>) -> bool {
    body.allow_auto_topic_creation && node.config().auto_create_topics
}

fn names_by_id(body: &MetadataRequest<'_>) -> bool {
    let mut topics = body.topics.iter().flatten();
    topics.any(|topic| topic.name.is_none() || !topic.topic_id.is_zero())
}

/// Answers as Apache Kafka does where topic ids are not supported: each requested topic carries the
/// error.
fn refuse(body: &MetadataRequest<'_>, version: i16, reply: &mut ReplyBuffer) {
    let topics = body.topics.iter().flatten();
    let response = MetadataResponse {
        topics: topics
            .map(|topic| MetadataResponseTopic {
                error_code: ErrorCode::InvalidRequest.code(),
                name: Some(topic.name.unwrap_or_default()),
                topic_id: topic.topic_id,
                ..Default::default()
            })
            .collect(),
        ..Default::default()
    };
    response.encode(&mut reply.bytes, version);
}

fn is_creatable(image: &MetadataImage, name: &str) -> bool {
    image.topic(name).is_none()
        && topic_name_problem(name).is_none()
        && (!is_internal(name) || name == InternalTopic::ConsumerOffsets.name())
}

/// Creates missing topics; where that fails, returns the reason.
fn create(
    node: &Node,
    controller: &mut Controller,
    missing: Vec<OwnedGrant<Topic>>,
) -> Result<BTreeMap<String, ErrorCode>, crate::controller::ControllerError> {
    let is_missing = |granted: &OwnedGrant<Topic>| controller.image().topic(granted.name()).is_none();
    let topics: Vec<NewTopic> = missing
        .into_iter()
        .filter(is_missing)
        .map(|name| match InternalTopic::ConsumerOffsets {
            internal if **name.name() == *internal.name() => internal.definition(node.config()),
            _ => NewTopic {
                name,
                partition_count: -1,
                replication_factor: -1,
                assignments: Vec::new(),
                configs: Vec::new(),
            },
        })
        .collect();
    let mut quota = MutationQuota::unlimited();
    let results = controller.create_topics(&mut quota, &topics, false, node.clock().timestamp())?;
    let refused = topics.into_iter().zip(results);
    Ok(refused
        .filter_map(|(topic, result)| Some((topic.name.name().to_string(), result.err()?.code)))
        .collect())
}

impl OwnedRequest {
    fn new(request: &Request<'_>, caller: Caller<'_>, body: &MetadataRequest<'_>) -> OwnedRequest {
        let version = request.api_version;
        OwnedRequest {
            version,
            listener_name: request.connection.listener_name.clone(),
            identity: request.connection.identity.clone(),
            caller: caller.keep(),
            topics: AskedTopics::new(version, body),
            cluster_operations: body.include_cluster_authorized_operations,
            topic_operations: body.include_topic_authorized_operations,
        }
    }

    /// Returns the topics to create, and those that the client may see but not create; whether they
    /// could be created is not told to a client that may not.
    fn to_create(
        &self,
        image: &MetadataImage,
        names: &BTreeSet<String>,
    ) -> (Vec<OwnedGrant<Topic>>, BTreeMap<String, ErrorCode>) {
        let (mut missing, mut refused) = (Vec::new(), BTreeMap::new());
        let caller = self.caller.borrow();
        let cluster = caller.cluster_if_allowed(Operation::Create);
        let is_missing = |name: &&String| image.topic(name).is_none() && self.is_shown(name);
        for name in names.iter().filter(is_missing) {
            let granted = match cluster {
                Some(cluster) => Ok(cluster.topic(name)),
                None => caller.topic(Operation::Create, name),
            };
            match granted {
                Ok(granted) if is_creatable(image, name) => missing.push(granted.keep()),
                Ok(_) => {}
                Err(error) => drop(refused.insert(name.clone(), error)),
            }
        }
        (missing, refused)
    }

    fn is_shown(&self, topic: &str) -> bool {
        self.caller.borrow().may_on_topic(Operation::Describe, topic)
    }

    fn answer(
        &self,
        node: &Node,
        image: &MetadataImage,
        refusals: &BTreeMap<String, ErrorCode>,
        reply: &mut ReplyBuffer,
    ) {
        let brokers: Vec<MetadataResponseBroker<'_>> = image
            .brokers
            .values()
            .filter(|broker| !broker.fenced)
            .filter_map(|broker| {
                let endpoint = broker.endpoint(&self.listener_name)?;
                Some(MetadataResponseBroker {
                    node_id: broker.broker_id,
                    host: &endpoint.host,
                    port: i32::from(endpoint.port),
                    rack: broker.rack.as_deref(),
                })
            })
            .collect();
        let controller_id = brokers.first().map_or(NO_LEADER, |broker| broker.node_id);
        let alive: Vec<i32> = brokers.iter().map(|broker| broker.node_id).collect();
        let caller = self.caller.borrow();
        let topics = match &self.topics {
            AskedTopics::All => image
                .topics
                .iter()
                .filter(|topic| self.is_shown(&topic.name))
                .map(|topic| self.topic(image, &alive, topic))
                .collect(),
            AskedTopics::ByName(names) => names
                .iter()
                .map(|name| match image.topic(name) {
                    _ if caller.topic(Operation::Describe, name).is_err() => denied(Some(name), Uuid::ZERO),
                    Some(topic) => self.topic(image, &alive, topic),
                    None => self.unknown_name(name, refusals.get(name).copied()),
                })
                .collect(),
            AskedTopics::ById(ids) => ids
                .iter()
                .map(|id| match image.topic_by_id(*id) {
                    Some(topic) if caller.topic(Operation::Describe, &topic.name).is_err() => {
                        denied(self.nameless(), *id)
                    }
                    Some(topic) => self.topic(image, &alive, topic),
                    None => MetadataResponseTopic {
                        error_code: ErrorCode::UnknownTopicId.code(),
                        name: self.nameless(),
                        topic_id: *id,
                        ..Default::default()
                    },
                })
                .collect(),
        };
        let response = MetadataResponse {
            brokers,
            cluster_id: Some(node.cluster_id()),
            controller_id,
            topics,
            cluster_authorized_operations: if self.cluster_operations {
                cluster_operations(&caller)
            } else {
                NOT_ASKED
            },
            ..Default::default()
        };
        response.encode(&mut reply.bytes, self.version);
    }

    fn nameless(&self) -> Option<&'static str> {
        if self.version >= FIRST_VERSION_WITH_OPTIONAL_NAMES {
            None
        } else {
            Some("")
        }
    }

    fn unknown_name<'a>(&self, name: &'a str, refusal: Option<ErrorCode>) -> MetadataResponseTopic<'a> {
        let error = match refusal {
            Some(refusal) => refusal,
            None if topic_name_problem(name).is_some() => ErrorCode::InvalidTopicException,
            None => ErrorCode::UnknownTopicOrPartition,
        };
        if error == ErrorCode::UnknownTopicOrPartition {
            self.identity.see_unknown_topic(name);
        }
        MetadataResponseTopic {
            error_code: error.code(),
            name: Some(name),
            is_internal: is_internal(name) && error != ErrorCode::TopicAuthorizationFailed,
            ..Default::default()
        }
    }

    fn topic<'a>(
        &self,
        image: &MetadataImage,
        alive: &[i32],
        topic: &'a TopicImage,
    ) -> MetadataResponseTopic<'a> {
        let partitions = topic.partitions.iter().enumerate();
        MetadataResponseTopic {
            error_code: ErrorCode::None.code(),
            name: Some(&topic.name),
            topic_id: topic.id,
            is_internal: topic.is_internal(),
            partitions: partitions
                .map(|(index, partition)| self.partition(image, alive, index, partition))
                .collect(),
            topic_authorized_operations: if self.topic_operations {
                topic_operations(&self.caller.borrow(), &topic.name)
            } else {
                NOT_ASKED
            },
        }
    }

    fn partition(
        &self,
        image: &MetadataImage,
        alive: &[i32],
        index: usize,
        partition: &PartitionImage,
    ) -> MetadataResponsePartition {
        let is_reachable = alive.contains(&partition.leader);
        let error = if is_reachable {
            ErrorCode::None
        } else if image.brokers.contains_key(&partition.leader)
            && self.version >= FIRST_VERSION_WITH_LISTENER_NOT_FOUND
        {
            ErrorCode::ListenerNotFound
        } else {
            ErrorCode::LeaderNotAvailable
        };
        MetadataResponsePartition {
            error_code: error.code(),
            partition_index: index as i32,
            leader_id: if is_reachable { partition.leader } else { NO_LEADER },
            leader_epoch: partition.leader_epoch,
            replica_nodes: partition.replicas.to_vec(),
            isr_nodes: partition.isr.to_vec(),
            offline_replicas: partition
                .replicas
                .iter()
                .copied()
                .filter(|id| !alive.contains(id))
                .collect(),
        }
    }
}

/// The answer about a topic that the client may not describe: nothing about it, not even whether it
/// exists.
fn denied(name: Option<&str>, topic_id: Uuid) -> MetadataResponseTopic<'_> {
    MetadataResponseTopic {
        error_code: ErrorCode::TopicAuthorizationFailed.code(),
        name,
        topic_id,
        ..Default::default()
    }
}

impl AskedTopics {
    fn new(version: i16, body: &MetadataRequest<'_>) -> AskedTopics {
        let Some(topics) = named_topics(version, body) else {
            return AskedTopics::All;
        };
        // KIP-516: ids take precedence over names.
        let ids: BTreeSet<Uuid> = topics
            .iter()
            .filter(|topic| topic.name.is_none() || !topic.topic_id.is_zero())
            .map(|topic| topic.topic_id)
            .collect();
        if !ids.is_empty() {
            return AskedTopics::ById(ids);
        }
        AskedTopics::ByName(
            topics
                .iter()
                .filter_map(|topic| topic.name)
                .map(str::to_owned)
                .collect(),
        )
    }
}
