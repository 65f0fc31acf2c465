//! The deadlines of one machine, at most one per purpose.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::time::Moment;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// Checks for expired offsets.
    Retention,
    /// The end of a group's join phase.
    Join(Arc<str>),
    /// The end of a group's sync phase.
    Sync(Arc<str>),
    /// The end of a member's session: group id, member id.
    Session(Arc<str>, Arc<str>),
    /// The end of the time in which a member of a consumer group gives up partitions: group id,
    /// member id.
    Revocation(Arc<str>, Arc<str>),
    /// The end of the time in which a classic member of a consumer group joins again, or fetches
    /// its assignment: group id, member id.
    Rejoin(Arc<str>, Arc<str>),
}

/// Two views of one set: by purpose, to move a deadline, and by time, to find the next.
#[derive(Debug, Default)]
pub struct Timers {
    deadlines: BTreeMap<Timer, Moment>,
    queue: BTreeSet<(Moment, Timer)>,
}

impl Timers {
    /// Arms `timer`, or moves its deadline.
    pub fn schedule(&mut self, timer: Timer, deadline: Moment) {
        if let Some(old) = self.deadlines.insert(timer.clone(), deadline) {
            if old == deadline {
                return;
            }
            self.queue.remove(&(old, timer.clone()));
        }
        self.queue.insert((deadline, timer));
    }

    pub fn cancel(&mut self, timer: Timer) {
        if let Some(deadline) = self.deadlines.remove(&timer) {
            self.queue.remove(&(deadline, timer));
        }
    }

    pub fn has(&self, timer: &Timer) -> bool {
        self.deadlines.contains_key(timer)
    }

    pub fn next(&self) -> Option<Moment> {
        self.queue.first().map(|(deadline, _)| *deadline)
    }

    /// Removes and returns one timer whose deadline has passed.
    pub fn pop(&mut self, now: Moment) -> Option<Timer> {
        if self.next()? > now {
            return None;
        }
        let (_, timer) = self.queue.pop_first()?;
        self.deadlines.remove(&timer);
        Some(timer)
    }

    pub fn count(&self) -> usize {
        self.deadlines.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_postponed_timer_fires_once_at_its_new_deadline() {
        let mut timers = Timers::default();
        timers.schedule(Timer::Retention, Moment::from_micros(5));
        timers.schedule(Timer::Retention, Moment::from_micros(9));
        assert_eq!(timers.pop(Moment::from_micros(8)), None);
        assert_eq!(timers.pop(Moment::from_micros(9)), Some(Timer::Retention));
        assert_eq!(timers.pop(Moment::from_micros(9)), None);
        assert_eq!(timers.next(), None);
    }

    #[test]
    fn timers_fire_in_the_order_of_their_deadlines() {
        let mut timers = Timers::default();
        timers.schedule(Timer::Join("b".into()), Moment::from_micros(2));
        timers.schedule(Timer::Sync("a".into()), Moment::from_micros(1));
        timers.schedule(Timer::Join("c".into()), Moment::from_micros(3));
        timers.cancel(Timer::Join("b".into()));
        assert_eq!(timers.pop(Moment::from_micros(7)), Some(Timer::Sync("a".into())));
        assert_eq!(timers.pop(Moment::from_micros(7)), Some(Timer::Join("c".into())));
        assert_eq!(timers.count(), 0);
    }
}
