//! The last rebalances of a group: what made each necessary, and when all members had their
//! assignment. A replay does not restore them.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::time::Timestamp;

/// At most this many rebalances of a group are kept.
const KEPT_MAX: usize = 8;

/// From what made it necessary to the assignment of all members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rebalance {
    /// What came first; more may have happened before it ended.
    pub why: Cause,
    pub began: Timestamp,
    pub ended: Option<Ended>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    pub at: Timestamp,
    /// Of a consumer group (KIP-848) its epoch.
    pub generation: i32,
    pub member_count: usize,
}

/// What makes a rebalance necessary; members are named by their client id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    Joined(Arc<str>),
    /// It left or was removed; a departure says why.
    Left(Arc<str>),
    /// A member joined again: its subscription has changed, or it leads and has seen that the
    /// topics have.
    Asked(Arc<str>),
    /// The broker, which assigns, has seen that the subscribed topics have changed.
    TopicsChanged,
}

#[derive(Clone, Debug, Default)]
pub struct Rebalances(VecDeque<Rebalance>);

impl Rebalances {
    /// Begins a rebalance, unless one is under way.
    pub fn begin(&mut self, now: Timestamp, why: Cause) {
        if self.is_under_way() {
            return;
        }
        if self.0.len() == KEPT_MAX {
            self.0.pop_front();
        }
        self.0.push_back(Rebalance {
            why,
            began: now,
            ended: None,
        });
    }

    /// Ends the one that is under way, if there is one.
    pub fn end(&mut self, ended: Ended) {
        if let Some(last) = self.0.back_mut().filter(|last| last.ended.is_none()) {
            last.ended = Some(ended);
        }
    }

    pub fn is_under_way(&self) -> bool {
        self.0.back().is_some_and(|last| last.ended.is_none())
    }

    /// The oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Rebalance> {
        self.0.iter()
    }
}
