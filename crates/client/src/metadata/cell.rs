//! The current snapshot and the topics that the client's threads want, shared with the machine that
//! requests metadata.

use std::collections::BTreeMap;
use std::fmt;
use std::future::{Future, poll_fn};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

use arc_swap::ArcSwap;
use ottla_wire::error_code::ErrorCode;

use crate::error::Error;
use crate::network::io::Wake;
use crate::time::Moment;
use crate::wait;

use super::snapshot::{Snapshot, Topic};

/// Which topics a client wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// Named topics (producer; a consumer's assignment). Unused ones are forgotten after
    /// metadata.max.idle.ms.
    Named,
    /// All: a consumer with a pattern.
    All,
    /// Only the brokers: the admin client.
    Nodes,
}

/// The current snapshot, shared by the machine that replaces it and every thread that reads it.
///
/// - Reading costs one atomic load and no lock (experiments XIV and XV of the Kontur talk show what
///   a lock costs here). Only topics that are not known yet are requested under a lock.
pub struct MetadataCell {
    snapshot: ArcSwap<Snapshot>,
    wishes: Mutex<Wishes>,
    /// Changes with every wish, so that the machine need not lock to see that there is none.
    revision: AtomicU64,
    waker: OnceLock<Arc<dyn Wake>>,
}

/// What the client's threads want, under the cell's lock.
#[derive(Debug)]
struct Wishes {
    interest: Interest,
    topics: BTreeMap<Arc<str>, Wish>,
    is_update_wanted: bool,
    /// A failure that waiting does not fix (authentication); the next answer clears it.
    failure: Option<Error>,
    /// Why there is no answer yet, for the texts of timeouts.
    trouble: Option<Error>,
    is_closed: bool,
    wakers: Vec<Waker>,
}

/// One wanted topic.
#[derive(Debug)]
struct Wish {
    /// Never forgotten: a consumer's.
    is_pinned: bool,
    /// Not answered yet.
    is_new: bool,
    was_touched: bool,
    last_used: Moment,
}

/// The wishes as the machine takes them.
#[derive(Debug, PartialEq, Eq)]
pub struct WishList {
    pub interest: Interest,
    pub has_new_topics: bool,
    pub is_update_wanted: bool,
}

impl MetadataCell {
    pub fn new(interest: Interest) -> MetadataCell {
        MetadataCell {
            snapshot: ArcSwap::default(),
            wishes: Mutex::new(Wishes {
                interest,
                topics: BTreeMap::new(),
                is_update_wanted: false,
                failure: None,
                trouble: None,
                is_closed: false,
                wakers: Vec::new(),
            }),
            revision: AtomicU64::new(1),
            waker: OnceLock::new(),
        }
    }

    /// From now on a new wish wakes the machine. Only the first call counts.
    pub fn attach(&self, waker: Arc<dyn Wake>) {
        // A second waker would belong to a second driver, which no client has.
        let _ = self.waker.set(waker);
    }

    pub fn load(&self) -> arc_swap::Guard<Arc<Snapshot>> {
        self.snapshot.load()
    }

    pub fn load_full(&self) -> Arc<Snapshot> {
        self.snapshot.load_full()
    }

    /// Returns the topic if it is known, and marks it as used, so that it is not forgotten.
    pub fn topic(&self, name: &str) -> Option<Arc<Topic>> {
        let topic = self.snapshot.load().topic(name).map(Arc::clone)?;
        topic.usage.note();
        Some(topic)
    }

    pub fn set_interest(&self, interest: Interest) {
        let mut wishes = self.lock();
        if wishes.interest != interest {
            wishes.interest = interest;
            wishes.is_update_wanted = true;
            drop(wishes);
            self.announce();
        }
    }

    pub fn interest(&self) -> Interest {
        self.lock().interest
    }

    /// Adds these topics to the wanted ones. True when one is new, so that the machine must be
    /// woken (which happens here when a waker is attached).
    pub fn want<'a>(&self, topics: impl IntoIterator<Item = &'a str>) -> bool {
        let mut wishes = self.lock();
        let mut has_new = false;
        for topic in topics {
            has_new |= wishes.want(topic, false);
        }
        drop(wishes);
        if has_new {
            self.announce();
        }
        has_new
    }

    /// Makes these the only wanted topics and forgets the others; they do not expire. True when one
    /// is new.
    pub fn want_only<'a>(&self, topics: impl IntoIterator<Item = &'a str>) -> bool {
        let mut wishes = self.lock();
        let mut before = std::mem::take(&mut wishes.topics);
        let mut has_new = false;
        for topic in topics {
            if let Some((name, mut wish)) = before.remove_entry(topic) {
                wish.is_pinned = true;
                wishes.topics.insert(name, wish);
            } else {
                has_new |= wishes.want(topic, true);
            }
        }
        drop(wishes);
        if has_new {
            self.announce();
        }
        has_new
    }

    /// Requests new metadata as soon as `retry.backoff.ms` allows.
    pub fn request_update(&self) {
        self.lock().is_update_wanted = true;
        self.announce();
    }

    /// Returns the topic; waits up to `limit_ms` for an answer that contains it.
    ///
    /// - Errors: `TopicNotPresent` after the limit; the broker's error where waiting does not help
    ///   (invalid name, not authorised); `Authentication` and `Tls` when all brokers refuse this
    ///   client; `Closed`.
    pub fn wait_for_topic(&self, name: &str, limit_ms: u64) -> Result<Arc<Topic>, Error> {
        self.wait(name, None, limit_ms)
    }

    /// Returns the topic once it has `partition`; waits as `wait_for_topic` does.
    ///
    /// - Errors: as `wait_for_topic`, and `PartitionNotPresent` when only the partition is missing.
    pub fn wait_for_partition(&self, name: &str, partition: i32, limit_ms: u64) -> Result<Arc<Topic>, Error> {
        self.wait(name, Some(partition), limit_ms)
    }

    fn wait(&self, name: &str, partition: Option<i32>, limit_ms: u64) -> Result<Arc<Topic>, Error> {
        let deadline = wait::deadline_after(Duration::from_millis(limit_ms));
        wait::block_on_until(self.known(name, partition), deadline, None)
            .unwrap_or_else(|| Err(self.timed_out(name, partition, limit_ms)))
    }

    /// Like `wait_for_topic`, or `wait_for_partition`, as a future without a limit.
    pub fn known<'a>(
        &'a self,
        name: &'a str,
        partition: Option<i32>,
    ) -> impl Future<Output = Result<Arc<Topic>, Error>> + Send + use<'a> {
        let first_version = self.load().version;
        let mut asked_version = None;
        poll_fn(move |context| {
            let mut wishes = self.lock();
            if let Some(verdict) = self.verdict(&wishes, name, partition, first_version) {
                return Poll::Ready(verdict);
            }
            let version = self.load().version;
            if asked_version != Some(version) {
                asked_version = Some(version);
                if !wishes.want(name, false) {
                    wishes.is_update_wanted = true;
                }
                // No deadlock: the waker never locks the cell, and the machine that it wakes waits
                // only for `wishes`.
                self.announce();
            }
            let waker = context.waker();
            if !wishes.wakers.iter().any(|known| known.will_wake(waker)) {
                wishes.wakers.push(waker.clone());
            }
            Poll::Pending
        })
    }

    /// The topic's result, if there is one. A refusal for missing rights counts only when it is
    /// newer than `first_version`: rights may have been granted since.
    fn verdict(
        &self,
        wishes: &Wishes,
        name: &str,
        partition: Option<i32>,
        first_version: u64,
    ) -> Option<Result<Arc<Topic>, Error>> {
        if wishes.is_closed {
            return Some(Err(Error::Closed));
        }
        let snapshot = self.load();
        if let Some(topic) = snapshot.topic(name)
            && partition.is_none_or(|wanted| (wanted as usize) < topic.partitions.len())
        {
            topic.usage.note();
            return Some(Ok(Arc::clone(topic)));
        }
        if let Some(error) = snapshot.refused.get(name) {
            let is_lasting = matches!(
                error,
                Error::Broker {
                    code: ErrorCode::InvalidTopicException,
                    ..
                }
            );
            if is_lasting || snapshot.version > first_version {
                return Some(Err(error.clone()));
            }
        }
        wishes.failure.clone().map(Err)
    }

    /// The error of a wait that timed out.
    pub fn timed_out(&self, name: &str, partition: Option<i32>, limit_ms: u64) -> Error {
        match (self.load().topic(name), partition) {
            (Some(topic), Some(partition)) => Error::PartitionNotPresent {
                topic: Arc::clone(&topic.name),
                partition,
                partition_count: topic.partitions.len(),
                limit_ms,
            },
            _ => Error::TopicNotPresent {
                topic: name.into(),
                limit_ms,
                trouble: self.trouble().map(Arc::new),
            },
        }
    }

    /// Wakes every waiter with `Closed`.
    pub fn close(&self) {
        let mut wishes = self.lock();
        wishes.is_closed = true;
        self.notify(wishes);
    }

    fn lock(&self) -> MutexGuard<'_, Wishes> {
        // No code panics while the wishes are half changed.
        self.wishes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn announce(&self) {
        self.revision.fetch_add(1, Ordering::Release);
        if let Some(waker) = self.waker.get() {
            waker.wake();
        }
    }

    fn notify(&self, mut wishes: MutexGuard<'_, Wishes>) {
        let wakers = std::mem::take(&mut wishes.wakers);
        drop(wishes);
        for waker in wakers {
            waker.wake();
        }
    }
}

/// The machine's side.
impl MetadataCell {
    pub(crate) fn revision(&self) -> u64 {
        self.revision.load(Ordering::Acquire)
    }

    /// Takes the wishes; a request for an update is returned once.
    pub(crate) fn take_wishes(&self) -> WishList {
        let mut wishes = self.lock();
        WishList {
            interest: wishes.interest,
            has_new_topics: wishes.topics.values().any(|wish| wish.is_new),
            is_update_wanted: std::mem::take(&mut wishes.is_update_wanted),
        }
    }

    /// The wanted topics that no request has named yet.
    pub(crate) fn new_topics(&self) -> Vec<Arc<str>> {
        let wishes = self.lock();
        let new = wishes.topics.iter().filter(|(_, wish)| wish.is_new);
        new.map(|(name, _)| Arc::clone(name)).collect()
    }

    /// Every wanted topic, after forgetting those unused for `idle_ms_max`.
    pub(crate) fn wanted_topics(&self, now: Moment, idle_ms_max: u64) -> Vec<Arc<str>> {
        let snapshot = self.load();
        let mut wishes = self.lock();
        wishes.topics.retain(|name, wish| {
            let was_used = snapshot.topic(name).is_some_and(|topic| topic.usage.take());
            if was_used || std::mem::take(&mut wish.was_touched) {
                wish.last_used = now;
            }
            wish.is_pinned || now.ms_since(wish.last_used) < idle_ms_max
        });
        wishes.topics.keys().cloned().collect()
    }

    pub(crate) fn is_wanted(&self, topic: &str) -> bool {
        self.lock().topics.contains_key(topic)
    }

    /// Replaces the snapshot and wakes the waiters.
    pub fn publish(&self, snapshot: Snapshot) {
        let mut wishes = self.lock();
        for (name, wish) in &mut wishes.topics {
            if snapshot.topics.contains_key(name) || snapshot.refused.contains_key(name) {
                wish.is_new = false;
            }
        }
        wishes.failure = None;
        wishes.trouble = None;
        self.snapshot.store(Arc::new(snapshot));
        self.notify(wishes);
    }

    /// Marks topics that were requested as no longer new, whatever the answer said.
    pub(crate) fn mark_answered<'a>(&self, topics: impl IntoIterator<Item = &'a Arc<str>>) {
        let mut wishes = self.lock();
        for topic in topics {
            if let Some(wish) = wishes.topics.get_mut(topic) {
                wish.is_new = false;
            }
        }
    }

    /// No answer can come until this is fixed: fails every waiter.
    pub(crate) fn fail(&self, error: Error) {
        let mut wishes = self.lock();
        wishes.trouble = Some(error.clone());
        wishes.failure = Some(error);
        self.notify(wishes);
    }

    /// The error of `fail`, unless an answer has come since.
    pub(crate) fn failure(&self) -> Option<Error> {
        self.lock().failure.clone()
    }

    /// Like `failure`, once for every `fail`. A new call deserves a new attempt: an earlier failure
    /// does not count for it.
    pub(crate) fn take_failure(&self) -> Option<Error> {
        self.lock().failure.take()
    }

    pub(crate) fn trouble(&self) -> Option<Error> {
        self.lock().trouble.clone()
    }

    /// Why there is no answer yet; waits that time out include it.
    pub(crate) fn note_trouble(&self, error: Error) {
        self.lock().trouble = Some(error);
    }
}

impl Wishes {
    /// Returns true when the topic was not wanted before.
    fn want(&mut self, topic: &str, is_pinned: bool) -> bool {
        if let Some(wish) = self.topics.get_mut(topic) {
            wish.was_touched = true;
            wish.is_pinned |= is_pinned;
            return false;
        }
        self.topics.insert(
            topic.into(),
            Wish {
                is_pinned,
                is_new: true,
                was_touched: true,
                last_used: Moment::from_nanos(0),
            },
        );
        true
    }
}

impl fmt::Debug for MetadataCell {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("MetadataCell")
            .field("version", &self.load().version)
            .field("wishes", &self.wishes)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::snapshot::Partition;
    use std::pin::pin;
    use std::sync::atomic::AtomicUsize;
    use std::task::Context;
    use std::task::Wake as TaskWake;
    use std::thread;

    fn snapshot(cell: &MetadataCell, topics: &[(&str, usize)]) -> Snapshot {
        let topic = |name: &str, partitions| {
            Arc::new(Topic {
                name: name.into(),
                partitions: vec![Partition::default(); partitions],
                ..Topic::default()
            })
        };
        Snapshot {
            version: cell.load().version + 1,
            topics: topics
                .iter()
                .map(|(name, partitions)| (Arc::from(*name), topic(name, *partitions)))
                .collect(),
            ..Snapshot::default()
        }
    }

    #[derive(Debug, Default)]
    struct Calls(AtomicUsize);

    impl Wake for Calls {
        fn wake(&self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    impl TaskWake for Calls {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Until a thread waits for the topic.
    fn wanted(cell: &MetadataCell, topic: &str) {
        while !cell.is_wanted(topic) {
            thread::yield_now();
        }
    }

    #[test]
    fn a_wait_ends_when_the_topic_is_published() {
        let cell = MetadataCell::new(Interest::Named);
        let machine = Arc::new(Calls::default());
        cell.attach(Arc::clone(&machine) as _);
        thread::scope(|scope| {
            let waiter = scope.spawn(|| cell.wait_for_topic("t", u64::from(u32::MAX)));
            wanted(&cell, "t");
            // A change of something else does not end the wait: the waiter checks again.
            cell.publish(snapshot(&cell, &[("other", 1)]));
            cell.publish(snapshot(&cell, &[("t", 3)]));
            let topic = waiter.join().unwrap().unwrap();
            assert_eq!((&*topic.name, topic.partitions.len()), ("t", 3));
            assert!(topic.usage.take());
        });
        assert!(machine.0.load(Ordering::SeqCst) >= 1);
    }

    #[test]
    fn a_wait_for_a_partition_lasts_until_it_exists() {
        let cell = MetadataCell::new(Interest::Named);
        cell.publish(snapshot(&cell, &[("t", 2)]));
        assert!(cell.wait_for_partition("t", 1, 0).is_ok());
        let error = cell.wait_for_partition("t", 2, 1).unwrap_err();
        assert_eq!(
            error.to_string(),
            "partition 2 of topic t with partition count 2 is not present in metadata after 1 ms"
        );
        thread::scope(|scope| {
            let waiter = scope.spawn(|| cell.wait_for_partition("t", 2, u64::from(u32::MAX)));
            wanted(&cell, "t");
            cell.publish(snapshot(&cell, &[("t", 3)]));
            assert_eq!(waiter.join().unwrap().unwrap().partitions.len(), 3);
        });
    }

    #[test]
    fn closing_ends_every_wait() {
        let cell = MetadataCell::new(Interest::Named);
        let task = Arc::new(Calls::default());
        let waker = Waker::from(Arc::clone(&task));
        let mut known = pin!(cell.known("t", None));
        assert!(known.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        thread::scope(|scope| {
            let waiter = scope.spawn(|| cell.wait_for_topic("u", u64::from(u32::MAX)));
            wanted(&cell, "u");
            cell.close();
            assert_eq!(waiter.join().unwrap().unwrap_err(), Error::Closed);
        });
        assert_eq!(task.0.load(Ordering::SeqCst), 1);
        assert_eq!(cell.wait_for_topic("t", 1000).unwrap_err(), Error::Closed);
    }

    #[test]
    fn a_task_is_woken_once_at_the_next_change() {
        let cell = MetadataCell::new(Interest::Named);
        let task = Arc::new(Calls::default());
        let waker = Waker::from(Arc::clone(&task));
        let mut context = Context::from_waker(&waker);
        let mut known = pin!(cell.known("t", None));
        assert!(known.as_mut().poll(&mut context).is_pending());
        assert!(known.as_mut().poll(&mut context).is_pending());
        cell.publish(snapshot(&cell, &[("t", 1)]));
        assert_eq!(task.0.load(Ordering::SeqCst), 1);
        assert!(matches!(known.poll(&mut context), Poll::Ready(Ok(_))));
    }

    #[test]
    fn rights_that_were_missing_may_have_been_granted_since() {
        let cell = MetadataCell::new(Interest::Named);
        let refused = |code| {
            let mut refusing = snapshot(&cell, &[]);
            refusing.refused.insert("t".into(), Error::broker(code, "t"));
            refusing
        };
        cell.publish(refused(ErrorCode::TopicAuthorizationFailed));
        thread::scope(|scope| {
            let waiter = scope.spawn(|| cell.wait_for_topic("t", u64::from(u32::MAX)));
            wanted(&cell, "t");
            cell.publish(snapshot(&cell, &[("t", 1)]));
            assert!(waiter.join().unwrap().is_ok());
        });
        // An invalid name stays invalid.
        cell.publish(refused(ErrorCode::InvalidTopicException));
        assert!(cell.wait_for_topic("t", u64::from(u32::MAX)).is_err());
    }

    #[test]
    fn a_consumers_topics_do_not_expire_and_are_forgotten_when_no_longer_wanted() {
        let cell = MetadataCell::new(Interest::Named);
        assert!(cell.want_only(["a", "b"]));
        assert!(!cell.want_only(["b"]));
        cell.want(["c"]);
        let late = Moment::from_nanos(0).after_ms(1_000_000);
        assert_eq!(cell.wanted_topics(late, 1000), ["b".into(), "c".into()]);
        let later = late.after_ms(1000);
        assert_eq!(cell.wanted_topics(later, 1000), ["b".into()]);
    }
}
