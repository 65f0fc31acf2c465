//! Life of a produce, 3 of 6. Before: core/src/dispatch.rs. After: partition/mod.rs.
//!
//! Produce, versions 3 to 13. `begin`: validate and append, partition by partition, writing the answer on the way.
//! `finish`: wait for the high watermark, amend the answer where that failed.
//!
//! - 9 (KIP-482) flexible; 8 (KIP-467) errors per record; 13 (KIP-516) topics by id.
//! - Deviation: a produce with a transactional id is answered INVALID_TXN_STATE; transactions are not served yet.

use std::sync::Arc;
use std::task::{Poll, Waker};

use ottla_log::BatchToAppend;
use ottla_log::{AppendError, LogError};
use ottla_wire::error_code::ErrorCode;
use ottla_wire::primitives::{
    DecodeError, put_count, put_i16, put_i32, put_i64, put_nullable_string, put_string, put_uuid,
};
use ottla_wire::produce::{self, ProduceRequest, ProduceTopic, TopicName};
use ottla_wire::records::batch::TimestampType;
use ottla_wire::records::compression::Codec;
use ottla_wire::records::validate::{ProduceError, ProduceRules, RecordFault, ValidBatch, validate};

use crate::batch_times::NewBatch;
use crate::image::topics::TopicImage;
use crate::long_answer::{ENTRIES_MAX, handle_elsewhere};
use crate::node::Node;
use crate::partition::{Appended, Failure, Partition, WaitToken};
use crate::reply::{Handled, PendingReply, ReplyBuffer, WaitKind};
use crate::request::Request;
use crate::seen::Seen;
use crate::time::Moment;

const ACKS_ALL: i16 = -1;
const ACKS_NONE: i16 = 0;

/// Bytes of a partition that may wait for their sync before acks=1 waits for it, too: a tenth of a second of a disk that
/// writes 160 MB/s, and far below the share of memory at which Linux stops writers.
const UNSYNCED_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// A batch whose records must be seen (compacted topic, other codec) may unfold to this much, like a whole request.
const UNCOMPRESSED_BYTES_MAX: usize = 100 * 1024 * 1024;

pub(crate) fn handle(
    node: &Node,
    request: &Request<'_>,
    reply: &mut ReplyBuffer,
) -> Result<Handled, DecodeError> {
    let produce = ProduceRequest::decode(request.body, request.api_version)?;
    if produce.partition_count as u64 > ENTRIES_MAX && !request.is_elsewhere {
        return Ok(handle_elsewhere(request));
    }
    let acks = produce.acks;
    let timeout_ms = u64::try_from(produce.timeout_ms).unwrap_or(0);
    let Begun { waits, refused } = begin(node, request, produce, reply)?;
    if acks == ACKS_NONE {
        reply.bytes.clear();
        // Without an answer the only way to tell the client is to hang up.
        return Ok(refused.map_or(Handled::NoReply, |code| {
            Handled::Close(format!("produce with acks=0 was refused: {}", code.name()))
        }));
    }
    if waits.iter().all(Wait::is_over) {
        return Ok(Handled::Replied);
    }
    Ok(Handled::Pending(Box::new(PendingProduce {
        answer: std::mem::take(&mut reply.bytes),
        waits,
        deadline: request.received.after_ms(timeout_ms),
    })))
}

/// A produce that was appended as far as it can be.
struct Begun {
    waits: Vec<Wait>,
    /// Why some partition took nothing.
    refused: Option<ErrorCode>,
}

/// Appends everything and writes the answer as if all of it will become durable.
fn begin(
    node: &Node,
    request: &Request<'_>,
    mut produce: ProduceRequest<'_>,
    reply: &mut ReplyBuffer,
) -> Result<Begun, DecodeError> {
    let version = request.api_version;
    let flexible = produce::is_flexible(version);
    let image = node.image();
    let refusal = refusal_of_all(&produce);
    let acks = produce.acks;
    reply.seen.acks = Some(acks);
    let mut waits = Vec::new();
    let mut refused = None;
    put_count(&mut reply.bytes, produce.topic_count, flexible);
    while let Some(asked) = produce.next_topic()? {
        let topic = match asked.topic {
            TopicName::Name(name) => image.topic(name),
            TopicName::Id(id) => image.topic_by_id(id),
        };
        begin_topic_answer(&asked, version, reply);
        while let Some(part) = produce.next_partition()? {
            let outcome = match (&refusal, topic) {
                (Some(refusal), _) => Err(refusal.clone()),
                (None, Some(topic)) => append(node, request, topic, part.index, part.records, reply),
                (None, None) => Err(Refusal::code(asked.unknown_topic())),
            };
            let position = put_partition_answer(part.index, version, &outcome, reply);
            match outcome {
                Ok(accepted) if acks == ACKS_ALL || accepted.is_ahead_of_the_disk() => waits.push(Wait {
                    required: accepted.appended.last_offset + 1,
                    position,
                    is_asked_for: acks == ACKS_ALL,
                    token: None,
                    partition: accepted.partition,
                }),
                Ok(_) => {}
                Err(refusal) => {
                    reply.seen.errors.see(refusal.code);
                    refused = Some(refusal.code);
                }
            }
        }
        reply.bytes.extend(flexible.then_some(0));
    }
    put_i32(&mut reply.bytes, 0); // throttle time
    reply.bytes.extend(flexible.then_some(0));
    Ok(Begun { waits, refused })
}

fn append(
    node: &Node,
    request: &Request<'_>,
    topic: &TopicImage,
    index: i32,
    records: Option<&[u8]>,
    reply: &mut ReplyBuffer,
) -> Result<Accepted, Refusal> {
    if topic.is_internal() {
        let message = format!("{} is written by the broker only", topic.name);
        return Err(Refusal::with_message(ErrorCode::InvalidTopicException, message));
    }
    let partition = node.partition(topic.id, index).map_err(Refusal::code)?;
    if !node.disk_has_room() {
        let message = "the disk is full: less than ottla.disk.reserve.bytes are free".to_string();
        return Err(Refusal::with_message(ErrorCode::KafkaStorageError, message));
    }
    let config = &topic.config;
    let rules = ProduceRules {
        produce_version: request.api_version,
        max_message_bytes: usize::try_from(config.max_message_bytes).unwrap_or(0),
        timestamp_type: config.timestamp_type,
        timestamp_before_max_ms: config.timestamp_before_max_ms,
        timestamp_after_max_ms: config.timestamp_after_max_ms,
        is_compacted: config.log.compact,
        compression: config.target_compression(),
        uncompressed_limit_bytes: UNCOMPRESSED_BYTES_MAX,
        now_ms: node.clock.timestamp().0,
    };
    let batch =
        validate(records.unwrap_or_default(), &rules).map_err(|error| Refusal::from_validation(&error))?;
    let log_append_time = match config.timestamp_type {
        TimestampType::LogAppendTime => rules.now_ms,
        TimestampType::CreateTime => -1,
    };
    let started = node.clock.moment();
    let appended = partition.append(
        node,
        &[BatchToAppend {
            header: batch.header,
            records: &batch.record_bytes,
        }],
    );
    reply.stages.append_micros += node.clock.moment().micros_since(started);
    let appended = appended.map_err(|error| Refusal::from_append(&error, &partition))?;
    see(&mut reply.seen, records.unwrap_or_default(), &batch);
    if node.batch_times.is_on() {
        node.batch_times.appended(
            &partition,
            NewBatch {
                base_offset: appended.base_offset,
                last_offset: appended.last_offset,
                end: appended.end,
                received: request.received,
                appended: node.clock.moment(),
            },
        );
    }
    Ok(Accepted {
        partition,
        appended,
        log_append_time,
    })
}

/// Notes what was taken: how large, how packed, by whom.
fn see(seen: &mut Seen, records: &[u8], batch: &ValidBatch<'_>) {
    // The low three bits of a batch's attributes, which end at byte 23.
    let came_as = records
        .get(22)
        .and_then(|bits| Codec::from_id(i16::from(bits & 7)));
    seen.batches += 1;
    seen.records += u64::try_from(batch.record_count()).unwrap_or(0);
    seen.batch_bytes += records.len() as u64;
    if let Some(codec) = came_as {
        seen.codecs.see(codec);
    }
    if let Some(codec) = batch.header.compression().filter(|codec| Some(*codec) != came_as) {
        seen.recompressed.see(codec);
    }
    if batch.header.has_producer_id() {
        seen.producer_id = Some(batch.header.producer_id);
    }
}

/// What refuses every partition of a request alike.
fn refusal_of_all(produce: &ProduceRequest<'_>) -> Option<Refusal> {
    if !matches!(produce.acks, ACKS_ALL..=1) {
        let message = format!("acks must be -1, 0 or 1, not {}", produce.acks);
        return Some(Refusal::with_message(ErrorCode::InvalidRequiredAcks, message));
    }
    let id = produce.transactional_id?;
    let message = format!("transactions are not served by this broker (transactional id {id})");
    Some(Refusal::with_message(ErrorCode::InvalidTxnState, message))
}

struct Accepted {
    partition: Arc<Partition>,
    appended: Appended,
    log_append_time: i64,
}

impl Accepted {
    /// More was written than the disk keeps up with. Without a pause of those who do not wait for it, dirty pages pile up
    /// until the kernel stops whoever writes the next one: an event loop.
    fn is_ahead_of_the_disk(&self) -> bool {
        self.appended.unsynced_bytes > UNSYNCED_BYTES_MAX
    }
}

#[derive(Clone, Debug)]
struct Refusal {
    code: ErrorCode,
    message: Option<String>,
    record_faults: Vec<RecordFault>,
}

impl Refusal {
    fn code(code: ErrorCode) -> Refusal {
        Refusal {
            code,
            message: None,
            record_faults: Vec::new(),
        }
    }

    fn with_message(code: ErrorCode, message: String) -> Refusal {
        Refusal {
            code,
            message: Some(message),
            record_faults: Vec::new(),
        }
    }

    fn from_validation(error: &ProduceError) -> Refusal {
        Refusal {
            code: error.error_code(),
            message: Some(error.to_string()),
            record_faults: error.record_faults().to_vec(),
        }
    }

    fn from_append(error: &AppendError, partition: &Partition) -> Refusal {
        if partition.is_deleted() {
            return Refusal::code(ErrorCode::UnknownTopicOrPartition);
        }
        let code = match error {
            AppendError::Log(LogError::Corrupt { .. }) => ErrorCode::CorruptMessage,
            AppendError::Log(_) => ErrorCode::KafkaStorageError,
            AppendError::OutOfOrderSequence { .. } => ErrorCode::OutOfOrderSequenceNumber,
            AppendError::InvalidProducerEpoch { .. } => ErrorCode::InvalidProducerEpoch,
            AppendError::InvalidTransactionState { .. } => ErrorCode::InvalidTxnState,
            AppendError::CoordinatorFenced { .. } => ErrorCode::TransactionCoordinatorFenced,
            AppendError::InvalidBatch { .. } => ErrorCode::InvalidRecord,
        };
        Refusal::with_message(code, error.to_string())
    }
}

trait UnknownTopic {
    fn unknown_topic(&self) -> ErrorCode;
}

impl UnknownTopic for ProduceTopic<'_> {
    fn unknown_topic(&self) -> ErrorCode {
        match self.topic {
            TopicName::Name(_) => ErrorCode::UnknownTopicOrPartition,
            TopicName::Id(_) => ErrorCode::UnknownTopicId,
        }
    }
}

fn begin_topic_answer(asked: &ProduceTopic<'_>, version: i16, reply: &mut ReplyBuffer) {
    let flexible = produce::is_flexible(version);
    match asked.topic {
        TopicName::Name(name) => put_string(&mut reply.bytes, name, flexible),
        TopicName::Id(id) => put_uuid(&mut reply.bytes, id),
    }
    put_count(&mut reply.bytes, asked.partition_count, flexible);
}

/// Writes one partition's answer and returns where its error code stands, for `amend`.
fn put_partition_answer(
    index: i32,
    version: i16,
    outcome: &Result<Accepted, Refusal>,
    reply: &mut ReplyBuffer,
) -> usize {
    let flexible = produce::is_flexible(version);
    let out = &mut reply.bytes;
    put_i32(out, index);
    let position = out.len();
    match outcome {
        Ok(Accepted {
            appended,
            log_append_time,
            ..
        }) => {
            put_i16(out, ErrorCode::None.code());
            put_i64(out, appended.base_offset);
            put_i64(out, *log_append_time);
            if version >= 5 {
                put_i64(out, appended.log_start_offset);
            }
        }
        Err(refusal) => {
            put_i16(out, refusal.code.code());
            put_i64(out, -1);
            put_i64(out, -1);
            if version >= 5 {
                put_i64(out, -1);
            }
        }
    }
    if version >= 8 {
        put_explanation(outcome.as_ref().err(), flexible, out);
    }
    out.extend(flexible.then_some(0));
    position
}

fn put_explanation(refusal: Option<&Refusal>, flexible: bool, out: &mut Vec<u8>) {
    let faults = refusal.map_or(&[][..], |refusal| &refusal.record_faults);
    put_count(out, faults.len(), flexible);
    for fault in faults {
        put_i32(out, fault.batch_index);
        put_nullable_string(out, Some(&fault.message), flexible);
        out.extend(flexible.then_some(0));
    }
    put_nullable_string(
        out,
        refusal.and_then(|refusal| refusal.message.as_deref()),
        flexible,
    );
}

/// One partition of a produce on its way to being durable.
struct Wait {
    partition: Arc<Partition>,
    /// The high watermark that says so.
    required: i64,
    /// Where the partition's error code stands in the answer.
    position: usize,
    /// With acks=1 nobody promised more than was done already; the wait only slows the client down.
    is_asked_for: bool,
    token: Option<WaitToken>,
}

impl Wait {
    fn is_over(&self) -> bool {
        self.partition.high_watermark() >= self.required
    }
}

/// The answer of a produce that waits for the disk, complete but for bad news.
struct PendingProduce {
    answer: Vec<u8>,
    waits: Vec<Wait>,
    deadline: Moment,
}

impl PendingReply for PendingProduce {
    fn poll(&mut self, node: &Node, waker: &Waker, reply: &mut ReplyBuffer) -> Poll<()> {
        let is_late = node.clock.moment() >= self.deadline;
        let answer = &mut self.answer;
        self.waits.retain_mut(|wait| {
            if wait.token.is_none() {
                wait.token = Some(wait.partition.wait_for_high_watermark(wait.required, waker));
            }
            if wait.is_over() {
                return false;
            }
            let bad_news = match wait.partition.failure() {
                Some(Failure::Deleted) => Some(ErrorCode::UnknownTopicOrPartition),
                Some(Failure::Storage(_)) => Some(ErrorCode::KafkaStorageError),
                None if is_late && !wait.is_asked_for => return false,
                None => is_late.then_some(ErrorCode::RequestTimedOut),
            };
            if let Some(code) = bad_news {
                reply.seen.errors.see(code);
                amend(answer, wait.position, code);
            }
            bad_news.is_none()
        });
        if !self.waits.is_empty() {
            return Poll::Pending;
        }
        reply.bytes.append(&mut self.answer);
        Poll::Ready(())
    }

    fn deadline(&self) -> Option<Moment> {
        Some(self.deadline)
    }

    fn waits_for(&self) -> WaitKind {
        WaitKind::Sync
    }
}

/// Replaces a good answer by an error: the code and, behind it, the base offset, which nobody may rely on.
fn amend(answer: &mut [u8], position: usize, code: ErrorCode) {
    answer[position..position + 2].copy_from_slice(&code.code().to_be_bytes());
    answer[position + 2..position + 10].copy_from_slice(&(-1i64).to_be_bytes());
}
