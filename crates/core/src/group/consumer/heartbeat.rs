//! ConsumerGroupHeartbeat: join, change, and learn the assignment.

use std::sync::Arc;

use crate::group::classic::Group;
use crate::group::rebalances::{Cause, Ended};
use crate::group::record::GroupRecord;
use crate::group::timer::Timer;
use crate::group::turn::Turn;
use crate::image::topics::TopicsImage;
use crate::time::Now;

use super::assignment::{Assigned, Partitions, by_topic};
use super::member::{ConsumerMember, MemberState};
use super::reconcile::{Reconciliation, subscribed};
use super::record::{ConsumerRecord, GroupEpoch};
use super::request::{
    ConsumerHeartbeat, GroupSettings, HeartbeatRefusal, HeartbeatReply, HeartbeatResult, JOIN_EPOCH,
};
use super::target::has_passed;

/// How soon a member is to ask again while partitions change hands.
pub(super) const SOON_MS: i32 = 500;
/// More for each member of a large group, so that it sends at most a thousand heartbeats a second.
const SOON_MS_PER_MEMBER: i32 = 1;

impl Group {
    pub(in crate::group) fn consumer_heartbeat(
        &mut self,
        turn: &mut Turn<'_>,
        request: &ConsumerHeartbeat<'_>,
    ) -> HeartbeatResult {
        if request.member_epoch < JOIN_EPOCH {
            return self.consumer_leave(turn, request);
        }
        self.check_regex(request)?;
        let member_id = self.admit(turn, request)?;
        let before = self.consumer_member(&member_id);
        let has_subscription_changed = self.update_member(turn, request, &member_id, before.as_ref());
        let have_topics_changed = self.update_regexes(turn, request);
        let why = match (&before, has_subscription_changed) {
            (None, true) => Some(Cause::Joined(request.client_id.into())),
            (Some(_), true) => Some(Cause::Asked(request.client_id.into())),
            (_, false) => have_topics_changed.then_some(Cause::TopicsChanged),
        };
        self.update_epoch(turn, &request.topics, why);
        self.update_target(turn, &request.topics, request.settings.assignment_interval_ms);
        self.reconcile(
            turn,
            &member_id,
            &request.topics,
            request.owned.as_ref(),
            has_subscription_changed || have_topics_changed,
        )?;
        let session = Timer::Session(self.group_id.clone(), member_id.clone());
        turn.schedule(session, request.settings.session_timeout_ms);
        let assigned = before
            .map(|member| member.current.assigned.clone())
            .unwrap_or_default();
        Ok(self.heartbeat_reply(turn.now, request, member_id, &assigned))
    }

    /// Records the member if it is new or has changed; returns whether its subscription has.
    fn update_member(
        &mut self,
        turn: &mut Turn<'_>,
        request: &ConsumerHeartbeat<'_>,
        member_id: &Arc<str>,
        before: Option<&ConsumerMember>,
    ) -> bool {
        let known = before.map(|member| member.metadata.clone()).unwrap_or_default();
        let metadata = known.updated(request);
        let is_new = before.is_none();
        let has_subscription_changed = !metadata.subscribes_as(&known);
        if known.classic.is_some() {
            let rejoin = Timer::Rejoin(self.group_id.clone(), member_id.clone());
            turn.timers.cancel(rejoin);
        }
        if is_new || metadata != *known {
            let record = ConsumerRecord::Member(member_id.clone(), Some(Arc::new(metadata)));
            self.record_consumer(turn, record);
        }
        has_subscription_changed
    }

    /// Raises the group epoch if it has to, or if the subscribed topics have changed.
    ///
    /// - `why`: it has to.
    pub(super) fn update_epoch(
        &mut self,
        turn: &mut Turn<'_>,
        topics: &Arc<TopicsImage>,
        why: Option<Cause>,
    ) {
        let Some(consumer) = &mut self.consumer else {
            return;
        };
        if why.is_none() && consumer.has_seen(topics) {
            return;
        }
        consumer.seen = Arc::downgrade(topics);
        let metadata_hash = consumer.hash_of(topics);
        if why.is_some() || metadata_hash != consumer.metadata_hash {
            let why = why.unwrap_or(Cause::TopicsChanged);
            self.rebalances.begin(turn.now.timestamp, why);
            self.raise_epoch(turn, metadata_hash);
        }
    }

    pub(super) fn raise_epoch(&mut self, turn: &mut Turn<'_>, metadata_hash: i64) {
        let Some(consumer) = &self.consumer else {
            return;
        };
        let epoch = consumer.epoch.saturating_add(1);
        let is_old = consumer.has_partition_metadata;
        self.record_consumer(
            turn,
            ConsumerRecord::Epoch(Some(GroupEpoch { epoch, metadata_hash })),
        );
        if is_old {
            self.record_consumer(turn, ConsumerRecord::PartitionMetadata { is_present: false });
        }
    }

    /// - `owned`: what the member says that it owns, if it does.
    pub(super) fn reconcile(
        &mut self,
        turn: &mut Turn<'_>,
        member_id: &Arc<str>,
        topics: &TopicsImage,
        owned: Option<&Partitions>,
        has_subscription_changed: bool,
    ) -> Result<(), HeartbeatRefusal> {
        let Some((group, member)) = self
            .consumer
            .as_ref()
            .and_then(|consumer| Some((consumer, consumer.members.get(member_id)?)))
        else {
            return Ok(());
        };
        if member.current.is_at(group.target_epoch.epoch) && !has_subscription_changed {
            return Ok(());
        }
        let names = group.topics_of(&member.metadata);
        let reconciliation = Reconciliation {
            group,
            current: &member.current,
            target: subscribed(&group.target_of(member_id), topics, &names),
            wanted: subscribed(&member.current.assigned.keys().copied().collect(), topics, &names),
            owned,
            has_subscription_changed,
        };
        let next = reconciliation.next()?;
        if next == *member.current {
            return Ok(());
        }
        let timer = Timer::Revocation(self.group_id.clone(), member_id.clone());
        if next.state == MemberState::Unrevoked {
            turn.schedule(timer, member.metadata.rebalance_timeout_ms);
        } else {
            turn.timers.cancel(timer);
        }
        self.record_consumer(
            turn,
            ConsumerRecord::Current(member_id.clone(), Some(Arc::new(next))),
        );
        self.end_rebalance(turn);
        Ok(())
    }

    /// Ends the rebalance when every member has what it is to have.
    pub(super) fn end_rebalance(&mut self, turn: &Turn<'_>) {
        let Some(consumer) = &self.consumer else {
            return;
        };
        if self.rebalances.is_under_way() && consumer.is_settled() {
            self.rebalances.end(Ended {
                at: turn.now.timestamp,
                generation: consumer.epoch,
                member_count: consumer.members.len(),
            });
        }
    }

    /// The assignment is in the answer if it has changed, or the member may not know it.
    fn heartbeat_reply(
        &self,
        now: Now,
        request: &ConsumerHeartbeat<'_>,
        member_id: Arc<str>,
        before: &Assigned,
    ) -> HeartbeatReply {
        let current = self.consumer_member(&member_id).unwrap_or_default().current;
        let is_full = request.rebalance_timeout_ms.is_some()
            && (request.topic_names.is_some() || request.regex.is_some())
            && request.owned.is_some();
        let has_changed = !before.keys().eq(current.assigned.keys());
        let is_told = request.member_epoch == JOIN_EPOCH || is_full || has_changed;
        HeartbeatReply {
            member_id,
            member_epoch: current.epoch,
            heartbeat_interval_ms: self.heartbeat_interval_ms(now, current.state, request.settings),
            assignment: is_told.then(|| by_topic(current.assigned.keys().copied())),
        }
    }

    /// Returns when the member is to ask again: as it is configured, but soon if it waits for a
    /// partition that another member gives up, if the target assignment is out of date, and for one
    /// heartbeat after it was made. What a coordinator has decided reaches a member only with the
    /// member's next heartbeat.
    fn heartbeat_interval_ms(&self, now: Now, state: MemberState, settings: GroupSettings) -> i32 {
        let configured_ms = settings.heartbeat_interval_ms;
        let Some(group) = &self.consumer else {
            return configured_ms;
        };
        let is_settled = state != MemberState::Unreleased
            && group.epoch <= group.target_epoch.epoch
            && has_passed(group.target_epoch, now, configured_ms);
        if is_settled {
            return configured_ms;
        }
        let members = i32::try_from(group.members.len()).unwrap_or(i32::MAX);
        let soon_ms = members.saturating_mul(SOON_MS_PER_MEMBER).max(SOON_MS);
        soon_ms.min(configured_ms)
    }

    pub(super) fn consumer_member(&self, member_id: &str) -> Option<ConsumerMember> {
        self.consumer.as_ref()?.members.get(member_id).cloned()
    }

    pub(super) fn record_consumer(&mut self, turn: &mut Turn<'_>, record: ConsumerRecord) {
        let group = self.group_id.clone();
        turn.record(self, GroupRecord::Consumer { group, record });
    }
}
