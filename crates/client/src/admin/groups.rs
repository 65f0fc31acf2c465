//! Groups: list, describe, delete.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ottla_wire::api_key::ApiKey;
use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::consumer_group_describe::{
    self, ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse,
};
use ottla_wire::messages::delete_groups::{DeleteGroupsRequest, DeleteGroupsResponse};
use ottla_wire::messages::describe_groups::{self, DescribeGroupsRequest, DescribeGroupsResponse};
use ottla_wire::messages::list_groups::{ListGroupsRequest, ListGroupsResponse};

use super::context::{AdminAnswer, Context, Destination, Versions, decode_with, join_all};
use super::{Admin, Results, body, resource_error, resource_result};
use crate::consumer::assignor::subscription::decode_assignment;
use crate::consumer::topic_partition::TopicPartition;
use crate::error::Error;
use crate::metadata::snapshot::NodeId;
use crate::pending::Pending;

/// A group in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupListing {
    /// `consumer` for consumer groups; `connect` and other applications have their own.
    pub protocol_type: String,
    /// Empty from brokers older than 2.6.
    pub state: String,
    /// `classic`, `consumer` and the like; empty from brokers older than 3.8.
    pub kind: String,
}

/// A group with its members.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupDescription {
    /// Kafka's name, for example `Stable` or `Empty`.
    pub state: String,
    /// `consumer` for groups of consumers.
    pub protocol_type: String,
    /// The assignor that the members agreed on.
    pub assignor: String,
    /// In no particular order.
    pub members: Vec<GroupMember>,
}

/// A member of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupMember {
    /// Given by the coordinator.
    pub id: String,
    /// `group.instance.id` of a static member (KIP-345).
    pub instance_id: Option<String>,
    /// `client.id`.
    pub client_id: String,
    /// The address that the coordinator sees.
    pub client_host: String,
    /// Empty while the group rebalances, and for groups of other protocol types.
    pub assignment: BTreeSet<TopicPartition>,
    /// What the member is on its way to; `None` for classic groups, which have none.
    pub target_assignment: Option<BTreeSet<TopicPartition>>,
}

impl Admin {
    /// Returns the groups of every broker.
    ///
    /// - Errors: that of the first broker that could not be asked; a partial list would look
    ///   complete.
    pub fn list_groups(&self) -> Pending<BTreeMap<String, GroupListing>> {
        self.call("list groups", |context| async move {
            let nodes = super::cluster::broker_ids(&context).await?;
            let asked = nodes.into_iter().map(|node| list_groups(context.clone(), node));
            let mut all = BTreeMap::new();
            for listed in join_all(asked).await {
                all.extend(listed?);
            }
            Ok(all)
        })
    }

    /// Describes classic groups and those of KIP-848. A group that does not exist is
    /// `Err(GroupIdNotFound)`, or in state `Dead` with brokers older than 4.0.
    pub fn describe_groups(&self, ids: Vec<String>) -> Pending<Results<String, GroupDescription>> {
        self.call("describe groups", |context| async move {
            Ok(for_each_group(ids, |id| describe(context.clone(), id)).await)
        })
    }

    /// Deletes groups without members.
    pub fn delete_groups(&self, ids: Vec<String>) -> Pending<Results<String, ()>> {
        self.call("delete groups", |context| async move {
            Ok(for_each_group(ids, |id| delete(context.clone(), id)).await)
        })
    }
}

/// Asks for each group separately, because each has its own coordinator.
async fn for_each_group<T, F>(ids: Vec<String>, ask: impl Fn(Arc<str>) -> F) -> Results<String, T>
where
    F: Future<Output = Result<T, Error>>,
{
    let asked = ids.iter().map(|id| ask(id.as_str().into()));
    let results = join_all(asked).await;
    ids.into_iter().zip(results).collect()
}

async fn list_groups(context: Context, node: NodeId) -> Result<BTreeMap<String, GroupListing>, Error> {
    let encode = |version| body(|out| ListGroupsRequest::default().encode(out, version));
    context
        .ask(
            Destination::Node(node),
            ApiKey::ListGroups,
            Versions::ALL,
            encode,
            |answer| {
                let response = decode_with(answer, ListGroupsResponse::decode)?;
                if let Some(error) =
                    resource_error(response.error_code, None, || format!("groups of {node:?}"))
                {
                    return Err(error);
                }
                let groups = response.groups.iter().map(|group| {
                    let listing = GroupListing {
                        protocol_type: group.protocol_type.to_owned(),
                        state: group.group_state.to_owned(),
                        kind: group.group_type.to_owned(),
                    };
                    (group.group_id.to_owned(), listing)
                });
                Ok(groups.collect())
            },
        )
        .await
}

async fn describe(context: Context, id: Arc<str>) -> Result<GroupDescription, Error> {
    let classic = describe_classic(&context, id.clone()).await;
    match classic {
        // Since Kafka 4.0 the classic request does not find a group of the new protocol.
        Err(Error::Broker {
            code: ErrorCode::GroupIdNotFound,
            ..
        }) => match describe_consumer(&context, id).await {
            Err(Error::UnsupportedVersion { .. }) => classic,
            described => described,
        },
        described => described,
    }
}

/// Returns the only group of a response.
fn only<T>(groups: Vec<T>) -> Result<T, Error> {
    groups.into_iter().next().ok_or_else(|| Error::Malformed {
        address: "the coordinator".into(),
        reason: "no group in the answer".into(),
    })
}

async fn describe_classic(context: &Context, id: Arc<str>) -> Result<GroupDescription, Error> {
    let asked = id.clone();
    let encode = move |version| {
        let request = DescribeGroupsRequest {
            groups: vec![&asked],
            include_authorized_operations: false,
        };
        body(|out| request.encode(out, version))
    };
    let decode = |answer: &AdminAnswer| {
        let group = only(decode_with(answer, DescribeGroupsResponse::decode)?.groups)?;
        let description = GroupDescription {
            state: group.group_state.to_owned(),
            protocol_type: group.protocol_type.to_owned(),
            assignor: group.protocol_data.to_owned(),
            members: group
                .members
                .iter()
                .map(|member| classic_member(member, group.protocol_type))
                .collect(),
        };
        resource_result(description, group.error_code, group.error_message, || {
            format!("group {id}")
        })
    };
    let coordinator = Destination::Coordinator(id.clone());
    context
        .ask(coordinator, ApiKey::DescribeGroups, Versions::ALL, encode, decode)
        .await
}

fn classic_member(member: &describe_groups::DescribedGroupMember<'_>, protocol_type: &str) -> GroupMember {
    // Other kinds of groups use these bytes for their own formats.
    let assignment = match protocol_type {
        "consumer" => decode_assignment(member.member_assignment).unwrap_or_default(),
        _ => BTreeSet::new(),
    };
    GroupMember {
        id: member.member_id.to_owned(),
        instance_id: member.group_instance_id.map(str::to_owned),
        client_id: member.client_id.to_owned(),
        client_host: member.client_host.to_owned(),
        assignment,
        target_assignment: None,
    }
}

async fn describe_consumer(context: &Context, id: Arc<str>) -> Result<GroupDescription, Error> {
    let asked = id.clone();
    let encode = move |version| {
        let request = ConsumerGroupDescribeRequest {
            group_ids: vec![&asked],
            include_authorized_operations: false,
        };
        body(|out| request.encode(out, version))
    };
    let decode = |answer: &AdminAnswer| {
        let group = only(decode_with(answer, ConsumerGroupDescribeResponse::decode)?.groups)?;
        let description = GroupDescription {
            state: group.group_state.to_owned(),
            protocol_type: "consumer".to_owned(),
            assignor: group.assignor_name.to_owned(),
            members: group.members.iter().map(consumer_member).collect(),
        };
        resource_result(description, group.error_code, group.error_message, || {
            format!("group {id}")
        })
    };
    let coordinator = Destination::Coordinator(id.clone());
    context
        .ask(
            coordinator,
            ApiKey::ConsumerGroupDescribe,
            Versions::ALL,
            encode,
            decode,
        )
        .await
}

fn consumer_member(member: &consumer_group_describe::Member<'_>) -> GroupMember {
    GroupMember {
        id: member.member_id.to_owned(),
        instance_id: member.instance_id.map(str::to_owned),
        client_id: member.client_id.to_owned(),
        client_host: member.client_host.to_owned(),
        assignment: partitions(&member.assignment),
        target_assignment: Some(partitions(&member.target_assignment)),
    }
}

fn partitions(assignment: &consumer_group_describe::Assignment<'_>) -> BTreeSet<TopicPartition> {
    let of_topic = |topic: &consumer_group_describe::TopicPartitions<'_>| {
        let name: Arc<str> = topic.topic_name.into();
        let partitions = topic.partitions.iter();
        partitions
            .map(|index| TopicPartition::new(name.clone(), *index))
            .collect::<Vec<_>>()
    };
    assignment.topic_partitions.iter().flat_map(of_topic).collect()
}

async fn delete(context: Context, id: Arc<str>) -> Result<(), Error> {
    let asked = id.clone();
    let encode = move |version| {
        let request = DeleteGroupsRequest {
            groups_names: vec![&asked],
        };
        body(|out| request.encode(out, version))
    };
    let decode = |answer: &AdminAnswer| {
        let group = only(decode_with(answer, DeleteGroupsResponse::decode)?.results)?;
        resource_result((), group.error_code, None, || format!("group {id}"))
    };
    let coordinator = Destination::Coordinator(id.clone());
    context
        .ask(coordinator, ApiKey::DeleteGroups, Versions::ALL, encode, decode)
        .await
}
