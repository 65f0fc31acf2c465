//! One partition as the sender sees it: which batches wait, are in flight or must be retried, and
//! in which order.
//!
//! Batches that were sent once stay here until they are decided; the accumulator's queue holds only
//! batches that were not. Two rules keep the order of an idempotent producer: a retry goes before
//! any new batch, and only when no earlier batch is undecided; and no batch gets another sequence
//! while it might be in the log under its old one.

use std::collections::VecDeque;
use std::sync::Arc;

use super::accumulator::{PartitionQueue, QueueState};
use super::batch::SealedBatch;
use super::sequence::{Identity, Sequences};
use crate::error::Error;
use crate::metadata::snapshot::{NodeId, Snapshot};
use crate::time::Moment;

/// A batch's place in the order of its partition, unique forever.
///
/// `part` tells the parts of a split batch apart: the index of the first record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LanePlace {
    pub order: u64,
    pub part: u32,
}

/// A batch that was sent at least once, or is about to be.
#[derive(Debug)]
pub(super) struct Sent {
    pub place: LanePlace,
    pub batch: SealedBatch,
    /// The log may hold it although no answer says so: the answer was lost, or the error came after
    /// the append.
    pub maybe_appended: bool,
    /// Why the last attempt was not acknowledged.
    pub last_error: Option<Error>,
}

impl Sent {
    /// The error of the batch's records when the batch fails with `error`.
    pub fn error(&self, error: Error) -> Error {
        match self.maybe_appended {
            true => error.maybe_written(),
            false => error,
        }
    }
}

/// A leader named in a response (KIP-951), newer than the metadata's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LeaderHint {
    pub node: NodeId,
    pub epoch: i32,
}

/// The settings and the current state that decide when a batch is sent.
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

    /// The node to send to, if it is known.
    pub fn leader(&mut self, snapshot: &Snapshot) -> Option<NodeId> {
        if self.known_leader.0 != snapshot.version {
            let leader = snapshot.leader(&self.queue.topic, self.queue.partition);
            self.known_leader = (snapshot.version, leader);
            let epoch = self.leader_epoch(snapshot);
            self.hint = self.hint.filter(|hint| hint.epoch > epoch);
        }
        self.hint.map(|hint| hint.node).or(self.known_leader.1)
    }

    /// Stores what a response says about the leader; false when it is not new.
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

    /// Whether a batch may be sent now; `queue` is the queue's state.
    pub fn readiness(
        &self,
        now: Moment,
        rules: &Rules,
        identity: &Identity,
        queue: &QueueState,
    ) -> Readiness {
        // With one request in flight Kafka guarantees order even without idempotence, also across a
        // change of leader.
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

    /// The broker detects duplicates of the last five batches only, so no batch may be more than
    /// four behind one that might have to be retried, even if those in between are acknowledged.
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
            // It is not in the log and will not be accepted under its sequence: `resolve` gives it
            // another.
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

    /// Takes the next batch, numbered, if it has at most `room_bytes`. Call it only after
    /// `readiness` was `Ready`.
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
            let sequence = self.sequences.assign(identity.known(), batch.record_count);
            batch.sending.sequence = Some(sequence.expect("a lane without an id is not ready"));
        }
        let place = LanePlace {
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

    /// Takes the batch whose answer has arrived; `None` when it was given up meanwhile.
    pub fn take_answered(&mut self, place: LanePlace) -> Option<Sent> {
        let at = self.in_flight.iter().position(|sent| sent.place == place)?;
        Some(self.in_flight.remove(at))
    }

    pub fn put_back(&mut self, sent: Sent) {
        let at = self.retries.partition_point(|other| other.place < sent.place);
        self.retries.insert(at, sent);
    }

    /// Whether every batch before this one is decided.
    pub fn is_first_undecided(&self, place: LanePlace) -> bool {
        let first_in_flight = self.in_flight.first().map(|sent| sent.place);
        let first_retry = self.retries.front().map(|sent| sent.place);
        [first_in_flight, first_retry]
            .into_iter()
            .flatten()
            .all(|other| place < other)
    }

    /// Gives the batches to retry new sequences under a new epoch, when that is needed and safe.
    ///
    /// Safe means: nothing is in flight, and the first batch is known not to be in the log; then
    /// those behind it are not either, because the broker accepts none without its predecessor.
    /// While the first might be in the log, it is retried under its old sequence until the broker
    /// has decided.
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

    /// Takes out what is not in flight.
    pub fn take_unsent(&mut self, queue: &QueueState) -> Vec<Sent> {
        let in_flight = std::mem::take(&mut self.in_flight);
        let unsent = self.take_expired(Moment::NEVER, queue);
        self.in_flight = in_flight;
        unsent
    }

    /// Takes out everything created at or before `created_before`; sequences of numbered batches
    /// stay unresolved.
    pub fn take_expired(&mut self, created_before: Moment, queue: &QueueState) -> Vec<Sent> {
        let is_expired = |sent: &Sent| sent.batch.created_at <= created_before;
        let mut expired: Vec<Sent> = Vec::new();
        if self.retries.iter().any(is_expired) {
            let (old, rest) = self.retries.drain(..).partition(is_expired);
            self.retries = rest;
            expired.extend::<VecDeque<Sent>>(old);
        }
        let in_flight = self.in_flight.extract_if(.., |sent| is_expired(sent));
        // The broker may be appending it while its answer is awaited.
        expired.extend(in_flight.map(|sent| Sent {
            maybe_appended: true,
            ..sent
        }));
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
                place: LanePlace {
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

    /// Whether anything waits to be sent, for the first time or again.
    pub fn has_unsent(&self, queue: &QueueState) -> bool {
        !self.retries.is_empty() || queue.sealed_batches > 0 || queue.open_since.is_some()
    }

    pub fn has_undecided(&self) -> bool {
        !self.in_flight.is_empty() || !self.retries.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::super::accumulator::Accumulator;
    use super::super::record::DeliveryStatus;
    use super::super::sequence::ProducerId;
    use super::super::test_batches::{accumulator, fill, queue, topic};
    use super::*;
    use crate::metadata::snapshot::Topic;

    const NOW: Moment = Moment::from_nanos(1_000_000_000);
    const RULES: Rules = Rules {
        linger_ms: 5,
        delivery_timeout_ms: 1_000,
        in_flight_max: 5,
        is_hurried: false,
    };
    const KNOWN: Identity = Identity::Known(ProducerId { id: 9, epoch: 0 });

    fn readiness(lane: &Lane, identity: &Identity) -> Readiness {
        lane.readiness(NOW, &RULES, identity, &lane.queue.state())
    }

    fn send(lane: &mut Lane, identity: &Identity) -> LanePlace {
        assert_eq!(readiness(lane, identity), Readiness::Ready);
        let mut sent = lane.take(NOW, identity, usize::MAX).unwrap();
        sent.batch.sending.attempts += 1;
        let place = sent.place;
        lane.note_in_flight(sent);
        place
    }

    fn base_sequence(sent: &Sent) -> i32 {
        sent.batch.sending.sequence.unwrap().base_sequence
    }

    fn acknowledge(lane: &mut Lane, place: LanePlace) {
        let sent = lane.take_answered(place).unwrap();
        lane.sequences.acknowledge(sent.batch.sending.sequence.unwrap());
    }

    /// A lane whose first batch is acknowledged, with one more closed batch to send per element of
    /// `counts`.
    fn proven_lane(counts: &[u32]) -> (Lane, Accumulator) {
        let accumulator = accumulator(&[]);
        let mut lane = Lane::new(queue(&accumulator, NOW, &[1]));
        accumulator.seal_all(NOW);
        let place = send(&mut lane, &KNOWN);
        acknowledge(&mut lane, place);
        fill(&accumulator, NOW, counts);
        accumulator.seal_all(NOW);
        (lane, accumulator)
    }

    #[test]
    fn an_open_batch_waits_for_linger_and_a_closed_one_does_not() {
        let accumulator = accumulator(&[]);
        let lane = Lane::new(queue(&accumulator, NOW, &[1]));
        assert_eq!(readiness(&lane, &Identity::None), Readiness::At(NOW.after_ms(5)));
        let hurried = Rules {
            is_hurried: true,
            ..RULES
        };
        let state = lane.queue.state();
        assert_eq!(
            lane.readiness(NOW, &hurried, &Identity::None, &state),
            Readiness::Ready
        );
        accumulator.seal_all(NOW);
        assert_eq!(readiness(&lane, &Identity::None), Readiness::Ready);
    }

    #[test]
    fn without_a_producer_id_an_idempotent_lane_waits() {
        let accumulator = accumulator(&[]);
        let lane = Lane::new(queue(&accumulator, NOW, &[1, 1]));
        assert_eq!(readiness(&lane, &Identity::new(true)), Readiness::Blocked);
    }

    #[test]
    fn the_first_batch_goes_alone_because_the_broker_accepts_any_sequence_from_a_new_producer() {
        let accumulator = accumulator(&[]);
        let mut lane = Lane::new(queue(&accumulator, NOW, &[1, 1, 1]));
        let first = send(&mut lane, &KNOWN);
        assert_eq!(readiness(&lane, &KNOWN), Readiness::Blocked);
        acknowledge(&mut lane, first);
        send(&mut lane, &KNOWN);
    }

    #[test]
    fn no_batch_is_more_than_four_behind_an_undecided_one_even_if_those_between_are_done() {
        let (mut lane, _accumulator) = proven_lane(&[1; 8]);
        let places: Vec<LanePlace> = (0..5).map(|_| send(&mut lane, &KNOWN)).collect();
        assert_eq!(readiness(&lane, &KNOWN), Readiness::Blocked);
        for place in &places[1..] {
            acknowledge(&mut lane, *place);
        }
        assert_eq!(readiness(&lane, &KNOWN), Readiness::Blocked);
        acknowledge(&mut lane, places[0]);
        send(&mut lane, &KNOWN);
    }

    #[test]
    fn a_retry_goes_before_new_batches_but_after_earlier_ones() {
        let (mut lane, _accumulator) = proven_lane(&[1, 1, 1]);
        let [first, second] = [(); 2].map(|()| send(&mut lane, &KNOWN));
        let sent = lane.take_answered(second).unwrap();
        lane.put_back(sent);
        assert_eq!(readiness(&lane, &KNOWN), Readiness::Blocked);
        let sent = lane.take_answered(first).unwrap();
        lane.put_back(sent);
        assert_eq!(send(&mut lane, &KNOWN), first);
        assert_eq!(readiness(&lane, &KNOWN), Readiness::Blocked);
        acknowledge(&mut lane, first);
        assert_eq!(send(&mut lane, &KNOWN), second);
    }

    #[test]
    fn a_retry_waits_for_its_backoff() {
        let (mut lane, _accumulator) = proven_lane(&[1]);
        let place = send(&mut lane, &KNOWN);
        let mut sent = lane.take_answered(place).unwrap();
        sent.batch.sending.retry_not_before = Some(NOW.after_ms(7));
        lane.put_back(sent);
        assert_eq!(readiness(&lane, &KNOWN), Readiness::At(NOW.after_ms(7)));
    }

    #[test]
    fn with_one_request_in_flight_a_lane_sends_nothing_until_the_answer() {
        let accumulator = accumulator(&[]);
        let mut lane = Lane::new(queue(&accumulator, NOW, &[1, 1, 1]));
        send(&mut lane, &Identity::None);
        let one = Rules {
            in_flight_max: 1,
            ..RULES
        };
        let state = lane.queue.state();
        assert_eq!(
            lane.readiness(NOW, &one, &Identity::None, &state),
            Readiness::Blocked
        );
        assert_eq!(readiness(&lane, &Identity::None), Readiness::Ready);
    }

    #[test]
    fn a_batch_that_might_be_in_the_log_keeps_its_number_until_the_broker_has_decided() {
        let (mut lane, _accumulator) = proven_lane(&[2, 3, 4]);
        let [first, second] = [(); 2].map(|()| send(&mut lane, &KNOWN));
        let expired = lane.take_expired(NOW, &QueueState::default());
        assert_eq!(expired.len(), 2);
        assert_eq!(
            expired.iter().map(|sent| sent.place).collect::<Vec<_>>(),
            [first, second]
        );
        let [_, possible] = <[Sent; 2]>::try_from(expired).unwrap();
        assert!(possible.maybe_appended, "it was in flight");
        lane.put_back(possible);
        lane.resolve(&mut KNOWN.clone());
        assert_eq!(base_sequence(&lane.retries[0]), 3);
        assert_eq!(send(&mut lane, &KNOWN), second);

        // The broker says that the one before it is missing, so this one is not in the log.
        let mut sent = lane.take_answered(second).unwrap();
        sent.maybe_appended = false;
        lane.put_back(sent);
        assert_eq!(readiness(&lane, &KNOWN), Readiness::Blocked);
        lane.resolve(&mut KNOWN.clone());
        let sequence = lane.retries[0].batch.sending.sequence.unwrap();
        assert_eq!((sequence.producer_epoch, sequence.base_sequence), (1, 0));
        assert_eq!(send(&mut lane, &KNOWN), second);
        acknowledge(&mut lane, second);
        let place = send(&mut lane, &KNOWN);
        assert_eq!(base_sequence(&lane.take_answered(place).unwrap()), 3);
    }

    #[test]
    fn only_an_expired_batch_that_was_sent_may_be_in_the_log() {
        let (mut lane, _accumulator) = proven_lane(&[1, 1]);
        send(&mut lane, &KNOWN);
        let state = lane.queue.state();
        let expired = lane.take_expired(NOW, &state);
        let fates: Vec<_> = expired
            .iter()
            .map(|sent| sent.error(Error::Closed).delivery_status())
            .collect();
        assert_eq!(fates, [DeliveryStatus::MaybeWritten, DeliveryStatus::NotWritten]);
    }

    #[test]
    fn nothing_new_is_sent_while_an_expired_batch_leaves_a_gap() {
        let (mut lane, _accumulator) = proven_lane(&[1, 1]);
        let [first, second] = [(); 2].map(|()| send(&mut lane, &KNOWN));
        let sent = lane.take_answered(first).unwrap();
        lane.sequences
            .mark_unresolved(sent.batch.sending.sequence.unwrap());
        lane.resolve(&mut KNOWN.clone());
        assert!(lane.sequences.is_unresolved(), "one is in flight still");
        acknowledge(&mut lane, second);
        assert!(
            !lane.sequences.is_unresolved(),
            "the log has the later one, so it has the earlier"
        );
    }

    #[test]
    fn used_up_epochs_ask_for_another_id() {
        let accumulator = accumulator(&[]);
        let mut lane = Lane::new(queue(&accumulator, NOW, &[1, 1, 1]));
        let mut identity = Identity::Known(ProducerId {
            id: 9,
            epoch: i16::MAX,
        });
        let place = send(&mut lane, &identity);
        let sent = lane.take_answered(place).unwrap();
        lane.sequences
            .mark_unresolved(sent.batch.sending.sequence.unwrap());
        lane.resolve(&mut identity);
        assert!(matches!(identity, Identity::Wanted { .. }));
        assert_eq!(readiness(&lane, &identity), Readiness::Blocked);
        identity = Identity::Known(ProducerId { id: 10, epoch: 0 });
        lane.resolve(&mut identity);
        let place = send(&mut lane, &identity);
        let sequence = lane.take_answered(place).unwrap().batch.sending.sequence.unwrap();
        assert_eq!((sequence.producer_id, sequence.base_sequence), (10, 0));
    }

    #[test]
    fn a_leader_hint_counts_until_the_metadata_is_as_new() {
        let accumulator = accumulator(&[]);
        let mut lane = Lane::new(queue(&accumulator, NOW, &[1]));
        let mut snapshot = Snapshot {
            version: 1,
            ..Snapshot::default()
        };
        let mut known = Topic::clone(&topic("t"));
        known.partitions[0].leader = Some(NodeId(1));
        known.partitions[0].leader_epoch = 5;
        snapshot
            .topics
            .insert(Arc::clone(&known.name), Arc::new(known.clone()));
        assert_eq!(lane.leader(&snapshot), Some(NodeId(1)));
        let hint = |node, epoch| LeaderHint {
            node: NodeId(node),
            epoch,
        };
        assert!(!lane.learn_leader(hint(2, 5), &snapshot));
        assert!(lane.learn_leader(hint(2, 6), &snapshot));
        assert_eq!(lane.leader(&snapshot), Some(NodeId(2)));
        // Another snapshot of the same age is not better informed; a newer one is.
        snapshot.version = 2;
        assert_eq!(lane.leader(&snapshot), Some(NodeId(2)));
        known.partitions[0].leader_epoch = 6;
        known.partitions[0].leader = Some(NodeId(3));
        snapshot.topics.insert(Arc::clone(&known.name), Arc::new(known));
        snapshot.version = 3;
        assert_eq!(lane.leader(&snapshot), Some(NodeId(3)));
    }
}
