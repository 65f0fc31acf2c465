//! A leader that came back as a static member keeps the assignment of the group (KIP-814), which it
//! did not make. Nothing tells it that a topic has grown since, or that its predecessor was about
//! to give up a partition for another member: such a partition would have no owner until the next
//! rebalance. The coordinator knows the assignment, so the leader asks it once.

use std::collections::BTreeSet;

use ottla_wire::api_key::ApiKey;
use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::describe_groups::{DescribeGroupsRequest, DescribeGroupsResponse, DescribedGroup};
use ottla_wire::primitives::Reader;

use super::assignor::subscription::decode_assignment;
use super::group::{GroupMembership, GroupTicket};
use super::group_network::GroupNetwork;
use super::rebalance::{Generation, MemberState, Step};
use super::topic_partition::TopicPartition;
use crate::metadata::snapshot::NodeId;
use crate::network::cluster::{Reply, Request};
use crate::time::Moment;

/// Kafka's name of the state in which members have their assignments.
const STABLE: &str = "Stable";

impl GroupMembership {
    pub(super) fn send_describe(
        &mut self,
        now: Moment,
        node: Option<NodeId>,
        network: &mut dyn GroupNetwork,
    ) {
        let is_due = self.watch.is_unchecked && self.is_settled();
        let (Some(node), true) = (node, is_due) else {
            return;
        };
        self.watch.is_unchecked = false;
        let Ok(api_version) = network.version(node, ApiKey::DescribeGroups, 0) else {
            return;
        };
        let message = DescribeGroupsRequest {
            groups: vec![&self.group_id],
            include_authorized_operations: false,
        };
        let mut body = Vec::new();
        message.encode(&mut body, api_version);
        let request = Request {
            api_key: ApiKey::DescribeGroups,
            api_version,
            body: vec![body.into()],
            timeout_ms: self.config.client.request_timeout_ms,
            expects_answer: true,
        };
        let sent = self.generation.clone();
        network.send(now, node, request, GroupTicket::Describe { sent });
    }

    /// Joins again where partitions of the group's topics have no owner. What cannot be told is
    /// left alone: the assignment is as good as the one that the predecessor had.
    pub(super) fn described(&mut self, sent: &Generation, reply: &Reply<GroupTicket>) {
        if self.generation != *sent || !self.is_settled() {
            return;
        }
        let Ok(body) = &reply.result else {
            self.watch.is_unchecked = true;
            return;
        };
        let response = DescribeGroupsResponse::decode(&mut Reader::new(body), reply.api_version);
        let Ok(response) = response else {
            return;
        };
        let group = response
            .groups
            .iter()
            .find(|group| *group.group_id == *self.group_id);
        if let Some(assigned) = group.and_then(assigned)
            && !self.is_whole(&assigned)
        {
            self.request_rejoin("the assignment that was kept is not whole");
        }
    }

    fn is_settled(&self) -> bool {
        self.state == MemberState::Stable
            && matches!(self.step, Step::Idle)
            && self.rebalance.rejoin_reason.is_none()
    }

    fn is_whole(&self, assigned: &BTreeSet<TopicPartition>) -> bool {
        let mut topics = self.watch.distributed.iter().flatten();
        topics.all(|(topic, replicas)| {
            let mut indexes = 0..i32::try_from(replicas.partition_count()).unwrap_or(i32::MAX);
            indexes.all(|index| assigned.contains(&TopicPartition::new(topic.clone(), index)))
        })
    }
}

/// What the members of a stable group have; `None` where that is not told.
fn assigned(group: &DescribedGroup<'_>) -> Option<BTreeSet<TopicPartition>> {
    let is_told = group.error_code == ErrorCode::None.code() && group.group_state == STABLE;
    let members = group.members.iter().filter(|_| is_told);
    let mut all = BTreeSet::new();
    for member in members {
        all.extend(decode_assignment(member.member_assignment).ok()?);
    }
    is_told.then_some(all)
}
