//! One partition as the sender sees it: what waits, what is under way, what must go again, and in which order.
//!
//! Batches that were sent once stay here until they are decided; the queue of the accumulator holds only those that were not.
//! Two rules keep the order of an idempotent producer: a batch to be sent again goes before any new one, and only when
//! no earlier one is undecided; and no batch gets another number while it might be in the log under its old one.

use std::collections::VecDeque;
use std::sync::Arc;

use super::accumulator::{PartitionQueue, QueueState};
use super::batch::SealedBatch;
use super::sequence::{Identity, Sequences};
use crate::error::Error;
use crate::metadata::snapshot::{NodeId, Snapshot};
use crate::time::Moment;

/// A batch's place in the order of its partition, unique for ever.
///
/// `part` tells the parts of a split batch apart: the index of the first record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub order: u64,
    pub part: u32,
}

/// A batch that was sent at least once, or is about to be.
#[derive(Debug)]
pub(super) struct Sent {
    pub place: Place,
    pub batch: SealedBatch,
    /// The log may hold it though nobody has said so: an answer was lost, or came after the append.
    pub maybe_appended: bool,
    /// Why it was not acknowledged last time.
    pub last_error: Option<Error>,
}

/// A leader that an answer named (KIP-951), newer than the metadata's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LeaderHint {
    pub node: NodeId,
    pub epoch: i32,
}

/// What of the configuration and of the moment decides when a batch goes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    pub linger_ms: u64,
    pub delivery_timeout_ms: u64,
    pub in_flight_max: usize,
    /// Closing, or threads wait for memory: no lingering.
    pub is_hurried: bool,
}

/// Whether a partition has something to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Readiness {
    Ready,
    /// Not before this moment.
    At(Moment),
    /// An answer or a producer id must come first.
    Blocked,
    Empty,
}

#[derive(Debug)]
pub(super) struct Lane {
    pub queue: Arc<PartitionQueue>,
    /// Ascending by place.
    pub in_flight: Vec<Sent>,
    /// Ascending by place.
    pub retries: VecDeque<Sent>,
    pub sequences: Sequences,
    pub is_active: bool,
    hint: Option<LeaderHint>,
    /// The leader in the snapshot of this version.
    known_leader: (u64, Option<NodeId>),
    next_order: u64,
}

impl Lane {
    pub fn new(queue: Arc<PartitionQueue>) -> Lane {
        Lane {
            queue,
            in_flight: Vec::new(),
            retries: VecDeque::new(),
            sequences: Sequences::default(),
            is_active: false,
            hint: None,
            known_leader: (0, None),
            next_order: 0,
        }
    }

    /// The node to send to, as far as it is known.
    pub fn leader(&mut self, snapshot: &Snapshot) -> Option<NodeId> {
        if self.known_leader.0 != snapshot.version {
            let leader = snapshot.leader(&self.queue.topic, self.queue.partition);
            self.known_leader = (snapshot.version, leader);
            let epoch = self.leader_epoch(snapshot);
            self.hint = self.hint.filter(|hint| hint.epoch > epoch);
        }
        self.hint.map(|hint| hint.node).or(self.known_leader.1)
    }

    /// Takes note of what an answer says about the leader; false when that is no news.
    pub fn learn_leader(&mut self, hint: LeaderHint, snapshot: &Snapshot) -> bool {
        let known = self
            .hint
            .map_or_else(|| self.leader_epoch(snapshot), |hint| hint.epoch);
        let is_news = hint.epoch > known;
        if is_news {
            self.hint = Some(hint);
        }
        is_news
    }

    fn leader_epoch(&self, snapshot: &Snapshot) -> i32 {
        let topic = snapshot.topic(&self.queue.topic);
        let index = usize::try_from(self.queue.partition).unwrap_or(usize::MAX);
        topic
            .and_then(|topic| topic.partitions.get(index))
            .map_or(-1, |partition| partition.leader_epoch)
    }

    /// Whether a batch may go now; `queue` is the queue's state.
    pub fn readiness(
        &self,
        now: Moment,
        rules: &Rules,
        identity: &Identity,
        queue: &QueueState,
    ) -> Readiness {
        // With one request in flight Kafka promises order even without idempotence, over a change of leader too.
        if rules.in_flight_max == 1 && !self.in_flight.is_empty() {
            return Readiness::Blocked;
        }
        if let Some(first) = self.retries.front() {
            return self.retry_readiness(now, first, identity);
        }
        if identity.is_idempotent() {
            let has_no_id = identity.known().is_none() && self.sequences.producer_id().is_none();
            let is_full = self.is_window_full(rules.in_flight_max);
            if (has_no_id || is_full || self.sequences.is_unresolved())
                && (queue.sealed_batches > 0 || queue.open_since.is_some())
            {
                return Readiness::Blocked;
            }
        }
        match queue {
            QueueState {
                sealed_batches: 1.., ..
            } => Readiness::Ready,
            QueueState {
                open_since: Some(since),
                ..
            } => {
                let due = since.after_ms(rules.linger_ms);
                match rules.is_hurried || due <= now {
                    true => Readiness::Ready,
                    false => Readiness::At(due),
                }
            }
            _ => Readiness::Empty,
        }
    }

    /// The broker recognises repetitions of the last five batches only, so no batch may be more than four behind one that might
    /// have to be repeated, even if those in between are acknowledged.
    fn is_window_full(&self, in_flight_max: usize) -> bool {
        let Some(first) = self.in_flight.first() else {
            return false;
        };
        let window = self.next_order - first.place.order;
        window >= in_flight_max as u64 || !self.sequences.is_proven()
    }

    fn retry_readiness(&self, now: Moment, first: &Sent, identity: &Identity) -> Readiness {
        if identity.is_idempotent() {
            let is_behind = self
                .in_flight
                .first()
                .is_some_and(|sent| sent.place < first.place);
            // It is not in the log and will not be accepted under its number: `resolve` gives it another.
            let needs_number = self.sequences.is_unresolved() && !first.maybe_appended;
            if is_behind || needs_number {
                return Readiness::Blocked;
            }
        }
        match first.batch.sending.retry_not_before {
            Some(moment) if moment > now => Readiness::At(moment),
            _ => Readiness::Ready,
        }
    }

    /// The next batch, numbered, if it takes at most `room_bytes`. Only after `readiness` was `Ready`.
    pub fn take(&mut self, now: Moment, identity: &Identity, room_bytes: usize) -> Option<Sent> {
        if let Some(first) = self.retries.front() {
            let fits = first.batch.wire_bytes() <= room_bytes;
            return if fits { self.retries.pop_front() } else { None };
        }
        let mut batch = self.queue.take(now, true)?;
        if batch.wire_bytes() > room_bytes {
            self.queue.put_back(batch);
            return None;
        }
        if identity.is_idempotent() {
            batch.sending.sequence = self.sequences.assign(identity.known(), batch.record_count);
        }
        let place = Place {
            order: self.next_order,
            part: batch.completion_first,
        };
        self.next_order += 1;
        Some(Sent {
            place,
            batch,
            maybe_appended: false,
            last_error: None,
        })
    }

    pub fn note_in_flight(&mut self, sent: Sent) {
        let at = self.in_flight.partition_point(|other| other.place < sent.place);
        self.in_flight.insert(at, sent);
    }

    /// The batch whose answer has come; `None` when it was given up meanwhile.
    pub fn take_answered(&mut self, place: Place) -> Option<Sent> {
        let at = self.in_flight.iter().position(|sent| sent.place == place)?;
        Some(self.in_flight.remove(at))
    }

    pub fn put_back(&mut self, sent: Sent) {
        let at = self.retries.partition_point(|other| other.place < sent.place);
        self.retries.insert(at, sent);
    }

    /// Whether every batch before this one is decided.
    pub fn is_first_undecided(&self, place: Place) -> bool {
        let first_in_flight = self.in_flight.first().map(|sent| sent.place);
        let first_retry = self.retries.front().map(|sent| sent.place);
        [first_in_flight, first_retry]
            .into_iter()
            .flatten()
            .all(|other| place < other)
    }

    /// Gives the batches that are to be sent again new numbers under a new epoch, when that is needed and safe.
    ///
    /// Safe: nothing is in flight, and the first one is known not to be in the log; so are those behind it, for the broker
    /// takes none without the one before. While the first might be in the log it is sent under its old number until the
    /// broker has decided.
    pub fn resolve(&mut self, identity: &mut Identity) {
        let is_due = self.sequences.is_unresolved() && self.in_flight.is_empty();
        if !is_due || self.retries.front().is_some_and(|first| first.maybe_appended) {
            return;
        }
        if !self.sequences.restart(identity.known()) {
            if let Some(used_up) = self.sequences.producer_id() {
                identity.renew(used_up);
            }
            return;
        }
        for sent in &mut self.retries {
            sent.maybe_appended = false;
            sent.batch.sending.sequence = self.sequences.assign(identity.known(), sent.batch.record_count);
        }
    }

    /// Takes out everything that was created at or before `created_before`; numbered batches leave their number unresolved.
    pub fn take_expired(&mut self, created_before: Moment, queue: &QueueState) -> Vec<Sent> {
        let is_expired = |sent: &Sent| sent.batch.created_at <= created_before;
        let mut expired: Vec<Sent> = Vec::new();
        if self.retries.iter().any(is_expired) {
            let (old, rest) = self.retries.drain(..).partition(is_expired);
            self.retries = rest;
            expired.extend::<VecDeque<Sent>>(old);
        }
        expired.extend(self.in_flight.extract_if(.., |sent| is_expired(sent)));
        for sent in &expired {
            if let Some(sequence) = sent.batch.sending.sequence {
                self.sequences.mark_unresolved(sequence);
            }
        }
        if queue
            .oldest_created_at
            .is_some_and(|oldest| oldest <= created_before)
        {
            let never_sent = self.queue.take_expired(created_before);
            expired.extend(never_sent.into_iter().map(|batch| Sent {
                place: Place {
                    order: u64::MAX,
                    part: 0,
                },
                batch,
                maybe_appended: false,
                last_error: None,
            }));
        }
        expired
    }

    /// When the oldest batch was created, wherever it is.
    pub fn oldest_created_at(&self, queue: &QueueState) -> Option<Moment> {
        let sent = self.in_flight.iter().chain(&self.retries);
        sent.map(|sent| sent.batch.created_at)
            .chain(queue.oldest_created_at)
            .min()
    }

    pub fn has_undecided(&self) -> bool {
        !self.in_flight.is_empty() || !self.retries.is_empty()
    }
}
