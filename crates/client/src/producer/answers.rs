//! Handles produce responses: batches are completed, failed, split, or put back for a retry.

use std::sync::Arc;

use bytes::Bytes;
use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::produce::{NodeEndpoint, PartitionProduceResponse, ProduceResponse};
use ottla_wire::primitives::Reader;
use ottla_wire::produce::uses_topic_ids;

use super::batch::SealedBatch;
use super::callbacks::Finished;
use super::completion::Placed;
use super::lane::{LanePlace, LeaderHint, Sent};
use super::response::{self, Certainty, Verdict, verdict};
use super::sender::{Passenger, ProducerMachine, SenderTicket};
use super::sequence::after;
use crate::error::Error;
use crate::events;
use crate::metadata::snapshot::NodeId;
use crate::network::cluster::Reply;
use crate::network::io::{Action, Address};
use crate::time::Moment;

/// KIP-219: from this version on the broker answers at once and relies on the client to wait out
/// the throttle time.
const CLIENT_THROTTLES_SINCE: i16 = 6;

/// Where a response came from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source {
    pub node: NodeId,
    pub version: i16,
    pub latency_nanos: u64,
}

impl ProducerMachine {
    pub(super) fn answered(&mut self, now: Moment, reply: Reply<SenderTicket>, actions: &mut Vec<Action>) {
        let source = Source {
            node: reply.node,
            version: reply.api_version,
            latency_nanos: reply.latency_nanos,
        };
        match reply.ticket {
            SenderTicket::Produce(passengers) => {
                self.produce_answered(now, source, passengers, reply.result, actions);
            }
            SenderTicket::InitProducerId => self.identified(now, source, reply.result),
            SenderTicket::Transaction => {
                self.transaction_answered(now, source.node, source.version, reply.result, actions);
            }
            SenderTicket::FindCoordinator => {
                self.coordinator_found(now, source.node, source.version, reply.result);
            }
            SenderTicket::Telemetry => self.telemetry.take_reply(now, reply.node, reply.result),
        }
    }

    pub(super) fn throttled(&mut self, now: Moment, node: NodeId, throttle_ms: i32) {
        if let Ok(throttle_ms @ 1..) = u64::try_from(throttle_ms) {
            self.cluster.throttle(now, node, throttle_ms);
        }
    }

    fn produce_answered(
        &mut self,
        now: Moment,
        source: Source,
        passengers: Vec<Passenger>,
        result: Result<Bytes, Error>,
        actions: &mut Vec<Action>,
    ) {
        match result {
            Err(error) => self.answer_lost(now, &passengers, &error),
            Ok(_) if self.config.acks == crate::config::Acks::None => {
                for passenger in &passengers {
                    self.appended(passenger, -1, -1);
                }
            }
            Ok(body) => match ProduceResponse::decode(&mut Reader::new(&body), source.version) {
                Ok(answer) => self.read_answer(now, source, &passengers, &answer),
                Err(error) => {
                    // Nothing later on this connection can be trusted either.
                    let error = malformed(source.node, format!("Produce: {error}"));
                    self.answer_lost(now, &passengers, &error);
                    self.disconnect(now, source.node, actions);
                }
            },
        }
        self.note_answered(source.node, passengers);
    }

    /// The result of these batches is unknown: their response was lost.
    fn answer_lost(&mut self, now: Moment, passengers: &[Passenger], error: &Error) {
        for passenger in passengers {
            let Some(sent) = self.lanes[passenger.lane].take_answered(passenger.place) else {
                continue;
            };
            match error {
                // The connection supports no version that could carry the request, so it was not
                // sent.
                Error::UnsupportedVersion { .. } => self.give_up(passenger.lane, sent, error.clone()),
                _ => self.retry(
                    now,
                    passenger.lane,
                    sent,
                    error.clone(),
                    Certainty::MaybeAppended,
                    None,
                ),
            }
        }
        self.cluster.request_metadata();
    }

    fn read_answer(
        &mut self,
        now: Moment,
        source: Source,
        passengers: &[Passenger],
        answer: &ProduceResponse<'_>,
    ) {
        let Source { node, version, .. } = source;
        let throttle_ms = answer.throttle_time_ms.max(0);
        self.metrics
            .produce_answered(node.0, source.latency_nanos, throttle_ms.unsigned_abs());
        if version >= CLIENT_THROTTLES_SINCE {
            self.throttled(now, node, throttle_ms);
        }
        let mut is_decided = vec![false; passengers.len()];
        // Brokers answer in the order of the request, so the next passenger is nearly always the
        // right one.
        let mut expected = 0;
        for topic in &answer.responses {
            for partition in &topic.partition_responses {
                let is_meant = |at: &usize| {
                    let passenger = &passengers[*at];
                    let queue = &self.lanes[passenger.lane].queue;
                    let is_topic = match uses_topic_ids(version) {
                        true => passenger.topic_id == topic.topic_id,
                        false => *queue.topic == *topic.name,
                    };
                    !is_decided[*at] && queue.partition == partition.index && is_topic
                };
                let found = (expected..passengers.len())
                    .chain(0..expected.min(passengers.len()))
                    .find(is_meant);
                // Ignore a partition that this request did not contain.
                let Some(at) = found else { continue };
                is_decided[at] = true;
                expected = at + 1;
                self.decide(now, &passengers[at], partition, &answer.node_endpoints);
            }
        }
        for (passenger, is_decided) in passengers.iter().zip(is_decided) {
            if !is_decided {
                let queue = &self.lanes[passenger.lane].queue;
                let reason = format!("Produce: the answer lacks {}-{}", queue.topic, queue.partition);
                self.answer_lost(now, &[*passenger], &malformed(node, reason));
            }
        }
    }

    fn decide(
        &mut self,
        now: Moment,
        passenger: &Passenger,
        answer: &PartitionProduceResponse<'_>,
        endpoints: &[NodeEndpoint<'_>],
    ) {
        let code = answer.error_code;
        let verdict = verdict(code);
        if verdict == Verdict::Appended {
            return self.appended(passenger, answer.base_offset, answer.log_append_time_ms);
        }
        let lane = passenger.lane;
        let leader = self.learn_leader(lane, answer, endpoints);
        if response::is_metadata_outdated(code) {
            self.cluster.request_metadata();
        }
        let Some(mut sent) = self.lanes[lane].take_answered(passenger.place) else {
            // It was given up at its delivery timeout.
            return;
        };
        let error = self.error(lane, &sent, answer);
        sent.maybe_appended |= verdict == Verdict::Fail(Certainty::MaybeAppended);
        if response::is_fatal(code) {
            self.give_up(lane, sent, error.clone());
            return match &mut self.transactions {
                Some(transactions) if error.needs_new_producer() => transactions.lose(error),
                _ => self.fail_for_good(error),
            };
        }
        match verdict {
            Verdict::Appended => {}
            Verdict::Retry(certainty) => self.retry(now, lane, sent, error, certainty, leader),
            Verdict::Gap => self.gap(now, lane, sent, error),
            Verdict::TooLarge => self.too_large(now, lane, sent, error),
            Verdict::Fail(_) if answer.record_errors.is_empty() => self.give_up(lane, sent, error),
            Verdict::Fail(_) => self.give_up_by_record(lane, sent, answer, &error),
        }
    }

    /// KIP-951: the response may name the current leader. `Some` when that is new to this client.
    fn learn_leader(
        &mut self,
        lane: usize,
        answer: &PartitionProduceResponse<'_>,
        endpoints: &[NodeEndpoint<'_>],
    ) -> Option<LeaderHint> {
        let named = &answer.current_leader;
        if named.leader_id < 0 || named.leader_epoch < 0 {
            return None;
        }
        let hint = LeaderHint {
            node: NodeId(named.leader_id),
            epoch: named.leader_epoch,
        };
        let snapshot = self.cluster.snapshot();
        if !snapshot.nodes.contains_key(&hint.node) {
            let endpoint = endpoints
                .iter()
                .find(|endpoint| endpoint.node_id == hint.node.0)?;
            let port = u16::try_from(endpoint.port).ok()?;
            let host: Arc<str> = endpoint.host.into();
            self.cluster.add_node(hint.node, Address { host, port });
        }
        self.lanes[lane].learn_leader(hint, &snapshot).then_some(hint)
    }

    fn appended(&mut self, passenger: &Passenger, base_offset: i64, log_append_time: i64) {
        let lane = &mut self.lanes[passenger.lane];
        let Some(sent) = lane.take_answered(passenger.place) else {
            return;
        };
        if let Some(sequence) = sent.batch.sending.sequence {
            lane.sequences.acknowledge(sequence);
        }
        let placed = Placed {
            base_offset,
            log_append_time: (log_append_time >= 0).then_some(log_append_time),
        };
        sent.batch.finish(Ok(placed), &self.callbacks);
    }

    /// Puts the batch back for a retry, if it is allowed one.
    fn retry(
        &mut self,
        now: Moment,
        lane: usize,
        mut sent: Sent,
        error: Error,
        certainty: Certainty,
        new_leader: Option<LeaderHint>,
    ) {
        sent.maybe_appended |= certainty == Certainty::MaybeAppended;
        let attempts = sent.batch.sending.attempts;
        let retries_done = attempts.saturating_sub(1);
        let is_over = sent.batch.created_at.after_ms(self.config.delivery_timeout_ms) <= now;
        if retries_done >= self.config.retries {
            return self.give_up(lane, sent, error);
        }
        if is_over {
            if let Some(sequence) = sent.batch.sending.sequence {
                self.lanes[lane].sequences.mark_unresolved(sequence);
            }
            sent.last_error = Some(error);
            return self.expire(sent);
        }
        // KIP-951: the new leader is known, so retry without backoff.
        sent.batch.sending.retry_not_before = match new_leader {
            Some(_) => None,
            None => Some(self.retry_at(now, attempts)),
        };
        let Sent { batch, .. } = &sent;
        events::batch_retried(
            &self.config.client.client_id,
            &batch.topic,
            batch.partition,
            batch.record_count,
            attempts,
            &error,
        );
        sent.last_error = Some(error);
        self.metrics
            .records_retried(&sent.batch.topic, sent.batch.record_count);
        self.lanes[lane].put_back(sent);
    }

    /// The broker misses something before this batch. Usually an earlier batch failed and is being
    /// retried; else it is lost, and sequences start again at 0 (KIP-360).
    fn gap(&mut self, now: Moment, lane: usize, mut sent: Sent, error: Error) {
        let Some(sequence) = sent.batch.sending.sequence else {
            return self.give_up(lane, sent, error);
        };
        sent.maybe_appended = false;
        let is_first = self.lanes[lane].is_first_undecided(sent.place);
        if is_first && self.transactions.is_some() {
            // A partition cannot raise the epoch of a transaction, so this one must be aborted.
            return self.give_up(lane, sent, error);
        }
        if is_first {
            self.lanes[lane].sequences.mark_unresolved(sequence);
        }
        self.retry(now, lane, sent, error, Certainty::NotAppended, None);
    }

    /// KIP-126: split, the records may fit. The attempts of the parts are counted from zero.
    fn too_large(&mut self, now: Moment, lane: usize, sent: Sent, error: Error) {
        // The broker would not recognize the parts as duplicates of a batch that an earlier attempt
        // may have appended.
        if sent.batch.record_count < 2 || sent.maybe_appended {
            return self.give_up(lane, sent, error);
        }
        self.metrics.batch_split();
        let order = sent.place.order;
        let mut next = sent.batch.sending.sequence;
        for mut batch in sent.batch.split(self.config.batch_bytes) {
            // The parts share the sequence range of the whole batch, so that the numbers of those
            // behind it stay valid.
            batch.sending.sequence = next;
            if let Some(sequence) = &mut next {
                sequence.base_sequence = after(sequence.base_sequence, batch.record_count);
            }
            let place = LanePlace {
                order,
                part: batch.completion_first,
            };
            self.lanes[lane].put_back(Sent {
                place,
                batch,
                maybe_appended: false,
                last_error: Some(error.clone()),
            });
        }
        self.due_at(now);
    }

    /// Fails the batch. Its sequence stays unresolved until the broker has decided on a later one.
    fn give_up(&mut self, lane: usize, sent: Sent, error: Error) {
        if let Some(sequence) = sent.batch.sending.sequence {
            self.lanes[lane].sequences.mark_unresolved(sequence);
        }
        self.fail(sent, error);
    }

    /// KIP-467: the broker named the records it rejects; the others merely share a batch with them.
    fn give_up_by_record(
        &mut self,
        lane: usize,
        mut sent: Sent,
        answer: &PartitionProduceResponse<'_>,
        error: &Error,
    ) {
        if let Some(sequence) = sent.batch.sending.sequence {
            self.lanes[lane].sequences.mark_unresolved(sequence);
        }
        let is_maybe_written = sent.maybe_appended;
        let batch = &mut sent.batch;
        self.note_failed(batch, error);
        let mut callbacks = std::mem::take(&mut batch.callbacks).into_iter().peekable();
        for index in 0..batch.record_count {
            let place = batch.completion_first + index;
            let fate = record_fate(batch, index, answer, error);
            let fate = if is_maybe_written {
                fate.maybe_written()
            } else {
                fate
            };
            let own: Vec<_> =
                std::iter::from_fn(|| callbacks.next_if(|record| record.index == place)).collect();
            if !own.is_empty() {
                self.callbacks.push(Finished {
                    partition: batch.partition,
                    first: place,
                    callbacks: own,
                    result: Err(fate.clone()),
                });
            }
            batch.completion.complete(place, 1, Err(fate));
        }
    }

    fn error(&self, lane: usize, sent: &Sent, answer: &PartitionProduceResponse<'_>) -> Error {
        let queue = &self.lanes[lane].queue;
        let what = || {
            let batch = &sent.batch;
            let message = answer
                .error_message
                .map(|text| format!(": {text}"))
                .unwrap_or_default();
            let text = format!(
                "{} record(s), {} bytes, for {}-{}{message}",
                batch.record_count,
                batch.wire_bytes(),
                queue.topic,
                queue.partition
            );
            text.into()
        };
        Error::from_code(answer.error_code, what).expect("success is not an error")
    }

    /// Fails a batch at its delivery timeout, wherever it is.
    pub(super) fn expire(&mut self, sent: Sent) {
        let batch = &sent.batch;
        let after = match (&sent.last_error, batch.sending.attempts) {
            (Some(error), attempts) => format!(" in {attempts} attempts; the last: {error}"),
            (None, 0) => ", never sent".to_string(),
            (None, attempts) => format!(", no answer to {attempts} attempts"),
        };
        let what = format!(
            "delivery of {} record(s) to {}-{}{after};",
            batch.record_count, batch.topic, batch.partition
        );
        let error = Error::Timeout {
            what: what.into(),
            limit_ms: self.config.delivery_timeout_ms,
            setting: "delivery.timeout.ms",
        };
        self.fail(sent, error);
    }

    /// Fails the batch; the error says whether the log may hold it.
    pub(super) fn fail(&mut self, sent: Sent, error: Error) {
        let error = sent.error(error);
        let batch = sent.batch;
        self.note_failed(&batch, &error);
        batch.finish(Err(error), &self.callbacks);
    }

    fn note_failed(&mut self, batch: &SealedBatch, error: &Error) {
        if let Some(transactions) = &mut self.transactions {
            transactions.note_failed(error, batch.sending.sequence.is_some());
            // Before the result is known: the next send of the transaction is refused.
            if let Some(trouble) = transactions.trouble() {
                self.commands.transactions.set_trouble(trouble);
            }
        }
        self.metrics.records_failed(&batch.topic, batch.record_count);
        events::batch_failed(
            &self.config.client.client_id,
            &batch.topic,
            batch.partition,
            batch.record_count,
            error,
        );
    }
}

/// Why one record of a refused batch failed.
///
/// - Source: KIP-467. Where several records are named, the batch's code need not apply to each.
fn record_fate(
    batch: &SealedBatch,
    index: u32,
    answer: &PartitionProduceResponse<'_>,
    error: &Error,
) -> Error {
    let Some(code) = ErrorCode::from_i16(answer.error_code) else {
        return error.clone();
    };
    let named = answer
        .record_errors
        .iter()
        .find(|record| u32::try_from(record.batch_index) == Ok(index));
    let (code, reason) = match named {
        Some(record) => {
            let message = record.batch_index_error_message.or(answer.error_message);
            let is_only = answer.record_errors.len() == 1;
            let code = if is_only { code } else { ErrorCode::InvalidRecord };
            (code, message.unwrap_or("refused"))
        }
        None => (ErrorCode::InvalidRecord, "others in its batch were refused"),
    };
    let place = format!(
        "record {index} of a batch for {}-{}: {reason}",
        batch.topic, batch.partition
    );
    Error::broker(code, place)
}

pub(super) fn malformed(node: NodeId, reason: String) -> Error {
    Error::Malformed {
        address: format!("node {}", node.0).into(),
        reason: reason.into(),
    }
}
