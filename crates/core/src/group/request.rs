//! Requests to a group machine. They borrow from the frame; what is kept is copied.

use std::sync::Arc;

use ottla_wire::error_code::ErrorCode;
use ottla_wire::primitives::Uuid;

use crate::image::topics::TopicsImage;

use super::consumer::request::ConsumerHeartbeat;

pub use crate::coordinator::runtime::Ticket;

#[derive(Clone, Debug)]
pub enum GroupRequest<'a> {
    Join(JoinRequest<'a>),
    Sync(SyncRequest<'a>),
    Heartbeat(MemberRequest<'a>),
    Leave(LeaveRequest<'a>),
    OffsetCommit(OffsetCommitRequest<'a>),
    OffsetFetch(OffsetFetchRequest<'a>),
    OffsetDelete(OffsetDeleteRequest<'a>),
    List(ListRequest),
    Describe(Vec<&'a str>),
    ConsumerHeartbeat(Box<ConsumerHeartbeat<'a>>),
    ConsumerDescribe(&'a str),
    Delete(Vec<&'a str>),
}

#[derive(Clone, Debug, Default)]
pub struct JoinRequest<'a> {
    pub group_id: &'a str,
    /// Empty: the member has no id yet.
    pub member_id: &'a str,
    pub group_instance_id: Option<&'a str>,
    pub client_id: &'a str,
    pub client_host: &'a str,
    pub session_timeout_ms: i32,
    pub rebalance_timeout_ms: i32,
    pub protocol_type: &'a str,
    /// Name and metadata, in the member's order of preference.
    pub protocols: Vec<(&'a str, &'a [u8])>,
    /// KIP-394, from version 4: a member must join again with the id that it was given.
    pub requires_known_member_id: bool,
    /// KIP-814, from version 9: a leader can be told to keep the assignment.
    pub supports_skipping_assignment: bool,
    /// The topics that exist at this moment: they matter in a group with members of both protocols.
    pub topics: Arc<TopicsImage>,
}

#[derive(Clone, Debug, Default)]
pub struct SyncRequest<'a> {
    pub member: MemberRequest<'a>,
    pub protocol_type: Option<&'a str>,
    pub protocol_name: Option<&'a str>,
    /// Member id and assignment.
    pub assignments: Vec<(&'a str, &'a [u8])>,
    /// As in `JoinRequest`.
    pub topics: Arc<TopicsImage>,
}

/// The identity and generation that a member claims.
#[derive(Clone, Copy, Debug, Default)]
pub struct MemberRequest<'a> {
    pub group_id: &'a str,
    pub generation_id: i32,
    pub member_id: &'a str,
    pub group_instance_id: Option<&'a str>,
}

#[derive(Clone, Debug, Default)]
pub struct LeaveRequest<'a> {
    pub group_id: &'a str,
    /// Member id and instance id; an empty member id removes by instance id (KIP-345).
    pub members: Vec<(&'a str, Option<&'a str>)>,
    /// KIP-800. The request has one for each member, but all that leave together share one.
    pub reason: Option<&'a str>,
}

#[derive(Clone, Debug, Default)]
pub struct OffsetCommitRequest<'a> {
    /// Generation −1 and an empty member id: a consumer that manages its partitions itself.
    pub member: MemberRequest<'a>,
    /// The commit takes effect when the producer's transaction commits.
    pub is_transactional: bool,
    /// From version 9: the client knows the error code for a group that does not exist.
    pub knows_group_id_not_found: bool,
    /// `None`: the broker's retention.
    pub retention_ms: Option<i64>,
    pub topics: Vec<OffsetCommitTopic<'a>>,
}

#[derive(Clone, Debug, Default)]
pub struct OffsetCommitTopic<'a> {
    pub name: &'a str,
    pub topic_id: Uuid,
    pub partitions: Vec<OffsetCommitPartition<'a>>,
}

#[derive(Clone, Copy, Debug)]
pub struct OffsetCommitPartition<'a> {
    pub partition: i32,
    pub offset: i64,
    /// −1: unknown.
    pub leader_epoch: i32,
    pub metadata: &'a str,
    /// An error that the caller found; such a partition is passed through.
    pub error: ErrorCode,
}

#[derive(Clone, Debug)]
pub struct OffsetFetchRequest<'a> {
    pub group_id: &'a str,
    /// Member id and epoch, which a member of a consumer group names.
    pub member: Option<(&'a str, i32)>,
    /// `None`: all topics with offsets.
    pub topics: Option<Vec<OffsetFetchTopic<'a>>>,
    /// KIP-447: refuse offsets that an open transaction may still change.
    pub require_stable: bool,
}

#[derive(Clone, Debug)]
pub struct OffsetFetchTopic<'a> {
    pub name: &'a str,
    /// Zero: the client asked by name.
    pub topic_id: Uuid,
    pub partitions: Vec<i32>,
    /// An error that the caller found; such a topic is passed through.
    pub error: ErrorCode,
}

#[derive(Clone, Debug, Default)]
pub struct OffsetDeleteRequest<'a> {
    pub group_id: &'a str,
    pub topics: Vec<OffsetDeleteTopic<'a>>,
}

#[derive(Clone, Debug)]
pub struct OffsetDeleteTopic<'a> {
    pub name: &'a str,
    /// Partition number, and an error that the caller found.
    pub partitions: Vec<(i32, ErrorCode)>,
}

/// Filters of ListGroups, in lower case. An empty filter lets everything pass.
#[derive(Clone, Debug, Default)]
pub struct ListRequest {
    pub states: Vec<String>,
    pub types: Vec<String>,
}
