//! ConsumerGroupHeartbeat, as the machine gets it and answers it.

use std::sync::Arc;

use ottla_wire::error_code::ErrorCode;
use ottla_wire::primitives::Uuid;

use crate::access::Caller;
use crate::image::topics::TopicsImage;

use super::assignment::Partitions;

/// The member epoch of a member that joins, or joins again.
pub const JOIN_EPOCH: i32 = 0;
/// The member epoch with which a member leaves for good.
pub const LEAVE_EPOCH: i32 = -1;
/// The member epoch with which a static member leaves for a while (KIP-345).
pub const STATIC_LEAVE_EPOCH: i32 = -2;

/// A heartbeat that has passed the checks which need no group. `None` in a field: unchanged since
/// the member's last heartbeat.
#[derive(Clone, Debug)]
pub struct ConsumerHeartbeat<'a> {
    pub group_id: &'a str,
    /// Empty only when a member of version 0 joins.
    pub member_id: &'a str,
    pub member_epoch: i32,
    pub instance_id: Option<&'a str>,
    pub rack_id: Option<&'a str>,
    pub rebalance_timeout_ms: Option<i32>,
    pub topic_names: Option<Vec<&'a str>>,
    pub regex: Option<&'a str>,
    pub assignor: Option<&'a str>,
    pub owned: Option<Partitions>,
    pub client_id: &'a str,
    pub client_host: &'a str,
    pub settings: GroupSettings,
    /// The topics that exist at this moment: an input of the machine, not a part of its state.
    pub topics: Arc<TopicsImage>,
    /// Decides which topics a regular expression finds.
    pub caller: Caller<'a>,
}

/// The settings of one group: its own over the broker's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupSettings {
    pub session_timeout_ms: i32,
    pub heartbeat_interval_ms: i32,
    /// At least this long between two assignments of the group.
    pub assignment_interval_ms: i32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeartbeatReply {
    pub member_id: Arc<str>,
    pub member_epoch: i32,
    pub heartbeat_interval_ms: i32,
    /// `None`: unchanged. The member takes these partitions and gives up all others.
    pub assignment: Option<Vec<(Uuid, Vec<i32>)>>,
}

/// Why a heartbeat is refused; the text says what is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeartbeatRefusal {
    pub error: ErrorCode,
    pub message: String,
}

impl HeartbeatRefusal {
    pub fn new(error: ErrorCode, message: impl Into<String>) -> HeartbeatRefusal {
        HeartbeatRefusal {
            error,
            message: message.into(),
        }
    }
}

pub type HeartbeatResult = Result<HeartbeatReply, HeartbeatRefusal>;
