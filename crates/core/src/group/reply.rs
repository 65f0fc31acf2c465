//! Answers of a group machine, and its orders to the caller.

use std::sync::Arc;

use ottla_wire::error_code::ErrorCode;
use ottla_wire::primitives::Uuid;

use super::consumer::describe::DescribedConsumerGroup;
use super::consumer::request::HeartbeatResult;
use super::foreign::ForeignKind;
use super::record::GroupRecord;
use super::request::Ticket;

/// Make `records` durable, then send `replies`. The records have been applied already.
#[derive(Debug, Default)]
pub struct Step {
    pub records: Vec<GroupRecord>,
    /// Offsets of a transaction, which have not been applied: the log may refuse them.
    pub transactional: Vec<GroupRecord>,
    pub replies: Vec<(Ticket, GroupReply)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupReply {
    Join(JoinReply),
    Sync(SyncReply),
    Heartbeat(ErrorCode),
    Leave(Vec<LeftMember>),
    OffsetCommit(Vec<CommittedTopic>),
    OffsetFetch(Vec<FetchedTopic>),
    OffsetDelete(OffsetDeleteReply),
    List(Vec<ListedGroup>),
    Describe(Vec<DescribedGroup>),
    Delete(Vec<(Arc<str>, ErrorCode)>),
    ConsumerHeartbeat(HeartbeatResult),
    /// `None`: there is no consumer group of this id.
    ConsumerDescribe(Option<DescribedConsumerGroup>),
    /// The request as a whole is refused.
    Refused(ErrorCode),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinReply {
    pub error: ErrorCode,
    pub generation_id: i32,
    pub protocol_type: Option<Arc<str>>,
    pub protocol_name: Option<Arc<str>>,
    pub leader: Arc<str>,
    pub skip_assignment: bool,
    pub member_id: Arc<str>,
    /// Empty for members other than the leader.
    pub members: Vec<JoinReplyMember>,
}

impl JoinReply {
    pub fn error(error: ErrorCode, member_id: Arc<str>) -> JoinReply {
        JoinReply {
            error,
            generation_id: -1,
            protocol_type: None,
            protocol_name: None,
            leader: "".into(),
            skip_assignment: false,
            member_id,
            members: Vec::new(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinReplyMember {
    pub member_id: Arc<str>,
    pub group_instance_id: Option<Arc<str>>,
    pub metadata: Arc<[u8]>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyncReply {
    pub error: ErrorCode,
    pub protocol_type: Option<Arc<str>>,
    pub protocol_name: Option<Arc<str>>,
    pub assignment: Arc<[u8]>,
}

impl SyncReply {
    pub fn error(error: ErrorCode) -> SyncReply {
        SyncReply {
            error,
            protocol_type: None,
            protocol_name: None,
            assignment: Arc::from([]),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftMember {
    pub member_id: String,
    pub group_instance_id: Option<String>,
    pub error: ErrorCode,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommittedTopic {
    pub name: String,
    pub topic_id: Uuid,
    pub partitions: Vec<(i32, ErrorCode)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchedTopic {
    pub name: String,
    pub topic_id: Uuid,
    pub partitions: Vec<FetchedPartition>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchedPartition {
    pub partition: i32,
    /// −1: none committed.
    pub offset: i64,
    /// −1: unknown.
    pub leader_epoch: i32,
    pub metadata: Box<str>,
    pub error: ErrorCode,
}

impl FetchedPartition {
    pub fn error(partition: i32, error: ErrorCode) -> FetchedPartition {
        FetchedPartition {
            partition,
            offset: -1,
            leader_epoch: -1,
            metadata: "".into(),
            error,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetDeleteReply {
    /// An error of the group as a whole.
    pub error: ErrorCode,
    pub topics: Vec<(String, Vec<(i32, ErrorCode)>)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedGroup {
    pub group_id: Arc<str>,
    pub protocol_type: Arc<str>,
    pub state: &'static str,
    /// `classic`, `consumer`, `share` or `streams`.
    pub group_type: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescribedGroup {
    pub error: ErrorCode,
    pub group_id: Arc<str>,
    pub state: &'static str,
    pub protocol_type: Arc<str>,
    /// The elected assignor; empty unless stable.
    pub protocol: Arc<str>,
    pub members: Vec<DescribedMember>,
    /// The kind of a group that is not a classic one.
    pub kept_as: Option<ForeignKind>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescribedMember {
    pub member_id: Arc<str>,
    pub group_instance_id: Option<Arc<str>>,
    pub client_id: Arc<str>,
    pub client_host: Arc<str>,
    pub metadata: Arc<[u8]>,
    pub assignment: Arc<[u8]>,
}
