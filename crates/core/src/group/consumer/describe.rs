//! ConsumerGroupDescribe: a consumer group as administration tools see it.

use std::sync::Arc;

use crate::group::classic::Group;
use crate::group::overview::MemberOverview;

use super::assignment::Partitions;
use super::assignor::Assignor;
use super::group::ConsumerGroup;
use super::member::{ConsumerMember, MemberMetadata};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescribedConsumerGroup {
    pub group_id: Arc<str>,
    pub state: &'static str,
    pub epoch: i32,
    pub target_epoch: i32,
    pub assignor: &'static str,
    pub members: Vec<DescribedConsumer>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescribedConsumer {
    pub member_id: Arc<str>,
    pub metadata: Arc<MemberMetadata>,
    pub epoch: i32,
    pub assigned: Partitions,
    pub target: Arc<Partitions>,
}

impl Group {
    /// `None`: it is no consumer group.
    pub(in crate::group) fn describe_consumer(
        &self,
        configured: &[Assignor],
    ) -> Option<DescribedConsumerGroup> {
        let consumer = self.consumer.as_ref()?;
        let member = |(member_id, member): (&Arc<str>, &ConsumerMember)| DescribedConsumer {
            member_id: member_id.clone(),
            metadata: member.metadata.clone(),
            epoch: member.current.epoch,
            // Until it has given them up, it is responsible for those that it is to give up, too.
            assigned: (member.current.assigned.keys())
                .chain(member.current.revoking.keys())
                .copied()
                .collect(),
            target: consumer.target_of(member_id),
        };
        Some(DescribedConsumerGroup {
            group_id: self.group_id.clone(),
            state: consumer.state_name(),
            epoch: consumer.epoch,
            target_epoch: consumer.target_epoch.epoch,
            assignor: consumer.assignor(configured).name(),
            members: consumer.members.iter().map(member).collect(),
        })
    }
}

impl ConsumerGroup {
    pub fn overview(&self, session_timeout_ms: i32) -> Vec<MemberOverview> {
        let members = self.members.iter();
        members
            .map(|(member_id, member)| member.overview(member_id, session_timeout_ms))
            .collect()
    }
}

impl ConsumerMember {
    pub fn overview(&self, member_id: &Arc<str>, session_timeout_ms: i32) -> MemberOverview {
        MemberOverview {
            member_id: member_id.clone(),
            client_id: self.metadata.client_id.clone(),
            client_host: self.metadata.client_host.clone(),
            rebalance_timeout_ms: self.metadata.rebalance_timeout_ms,
            session_timeout_ms: (self.metadata.classic.as_ref())
                .map_or(session_timeout_ms, |classic| classic.session_timeout_ms),
        }
    }
}
