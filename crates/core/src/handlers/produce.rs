//! Life of a produce, 3 of 6. Before: core/src/dispatch.rs. After: partition/mod.rs.
//!
//! Produce, versions 3 to 13. `begin`: validates and appends partition by partition, and writes the
//! answer on the way. `finish`: waits for the high watermark, and amends the answer where that
//! failed.
//!
//! - 9 (KIP-482) flexible; 8 (KIP-467) errors per record; 13 (KIP-516) topics by id.
//! - Requests with transactional batches come here through `transactional_produce.rs`.
//! - Every batch is checked whole, compressed ones by decompressing them
//!   (wire/src/records/validate/mod.rs). When this becomes too much for an event loop, a
//!   long-answer thread continues from that partition on (`placement.rs`).

use std::sync::Arc;
use std::task::{Poll, Waker};

use ottla_log::BatchToAppend;
use ottla_log::{AppendError, Origin, Ticket};
use ottla_wire::error_code::ErrorCode;
use ottla_wire::primitives::{
    DecodeError, put_count, put_i16, put_i32, put_i64, put_nullable_message, put_string, put_uuid,
};
use ottla_wire::produce::{self, ProducePartition, ProduceRequest, ProduceTopic, TopicName};
use ottla_wire::records::batch::TimestampType;
use ottla_wire::records::compression::Codec;
use ottla_wire::records::validate::{ProduceError, ProduceRules, RecordFault, ValidBatch};
use ottla_wire::text;

use crate::access::acl::Operation;
use crate::access::granted::{GrantedTopic, OwnedGrant, TransactionalId};
use crate::batch_times::{Key, NewBatch};
use crate::config::TopicConfig;
use crate::image::topics::TopicImage;
use crate::long_answer::continue_elsewhere;
use crate::node::Node;
use crate::partition::{Appended, Failure, Partition, WaitToken};
use crate::pending::{Handled, PendingReply};
use crate::placement::{NotValid, Place, Unfolding};
use crate::reply::{Ending, ReplyBuffer, WaitKind};
use crate::request::Request;
use crate::seen::WrittenBatch;
use crate::time::Moment;

const ACKS_ALL: i16 = -1;
const ACKS_NONE: i16 = 0;

/// Unsynced bytes of a partition above which every produce waits for the sync (back pressure): a
/// tenth of a second of a disk that writes 160 MB/s, and far below the share of memory at which
/// Linux throttles writers.
const UNSYNCED_BYTES_MAX: u64 = 16 * 1024 * 1024;

pub(crate) fn handle(
    node: &Node,
    request: &Request<'_>,
    produce: ProduceRequest<'_>,
    unfolding: Unfolding,
    reply: &mut ReplyBuffer,
) -> Result<Handled, DecodeError> {
    let begun = Begun::new(node, request, &produce);
    serve(node, request, produce, begun, unfolding, reply)
}

/// Serves the rest of the request, or as much of it as `unfolding` allows here.
pub(super) fn serve(
    node: &Node,
    request: &Request<'_>,
    produce: ProduceRequest<'_>,
    mut begun: Begun,
    mut unfolding: Unfolding,
    reply: &mut ReplyBuffer,
) -> Result<Handled, DecodeError> {
    let acks = produce.acks;
    let timeout_ms = u64::try_from(produce.timeout_ms).unwrap_or(0);
    if begin(node, request, produce, &mut begun, &mut unfolding, reply)? == Progress::Cut {
        return Ok(serve_rest_elsewhere(request, begun, reply));
    }
    let Begun { waits, refused, .. } = begun;
    let is_over = waits.iter().all(Wait::is_over);
    if acks == ACKS_NONE {
        reply.bytes.clear();
        // Without an answer the only way to tell the client is to close the connection.
        if let Some(code) = refused {
            let reason = format!("produce with acks=0 was refused: {}", code.name());
            return Ok(Handled::Close(reason));
        }
    }
    if is_over {
        return Ok(if acks == ACKS_NONE {
            Handled::NoReply
        } else {
            Handled::Replied
        });
    }
    Ok(Handled::Pending(Box::new(PendingProduce {
        answer: std::mem::take(&mut reply.bytes),
        waits,
        deadline: request.received.after_ms(timeout_ms),
        is_silent: acks == ACKS_NONE,
        is_alone: acks == ACKS_NONE || node.storage.is_short_of_memory(),
    })))
}

fn serve_rest_elsewhere(request: &Request<'_>, begun: Begun, reply: &mut ReplyBuffer) -> Handled {
    let answer = std::mem::take(&mut reply.bytes);
    continue_elsewhere(request, move |node, request, reply| {
        reply.bytes = answer;
        let unfolding = Place::LongAnswerThread.unfolding(request.body.len());
        let served = ProduceRequest::decode(request.body, request.api_version)
            .and_then(|produce| serve(node, request, produce, begun, unfolding, reply));
        served.expect("the same bytes were decoded before")
    })
}

/// A produce request, appended as far as possible.
#[derive(Default)]
pub(super) struct Begun {
    /// Refuses every partition.
    pub refusal: Option<PartitionRefusal>,
    /// The id to whose transaction the client may write; `None` without transactional batches, and
    /// if every partition is refused.
    pub transactional_id: Option<OwnedGrant<TransactionalId>>,
    /// By the place of a partition in the request; empty without transactional batches.
    pub admitted: Vec<Admitted>,
    /// Topics whose answer is begun (all but the last are ended), and partitions that are answered.
    topics: usize,
    partitions: usize,
    waits: Vec<Wait>,
    /// An error that refused some partition.
    refused: Option<ErrorCode>,
}

/// What a partition of a request with transactional batches may append.
#[derive(Clone, Debug)]
pub(super) enum Admitted {
    /// Its batch is not transactional.
    Plain,
    Ticket(Ticket),
    Refused(PartitionRefusal),
}

#[derive(PartialEq, Eq)]
enum Progress {
    Done,
    /// The next partition, and all after it, are left to a long-answer thread.
    Cut,
}

/// Appends everything and writes the answer as if all of it will become durable; continues where
/// `begun` ends.
fn begin(
    node: &Node,
    request: &Request<'_>,
    mut produce: ProduceRequest<'_>,
    begun: &mut Begun,
    unfolding: &mut Unfolding,
    reply: &mut ReplyBuffer,
) -> Result<Progress, DecodeError> {
    let version = request.api_version;
    let flexible = produce::is_flexible(version);
    let image = node.image();
    let caller = node.access.caller(request);
    let acks = produce.acks;
    let (answered_topics, answered_partitions) = (begun.topics, begun.partitions);
    let (mut topics, mut partitions) = (0, 0);
    if answered_topics == 0 {
        reply.seen.acks = Some(acks);
        put_count(&mut reply.bytes, produce.topic_count, flexible);
    }
    while let Some(asked) = produce.next_topic()? {
        let topic = match asked.topic {
            TopicName::Name(name) => image.topic(name),
            TopicName::Id(id) => image.topic_by_id(id),
        };
        topics += 1;
        // A topic that is answered was checked by the thread that answered it.
        let is_answered = topics < answered_topics;
        let checked = match (asked.topic, topic) {
            _ if is_answered => None,
            (TopicName::Name(name), _) => Some(caller.topic(Operation::Write, name)),
            (TopicName::Id(_), Some(topic)) => Some(caller.topic(Operation::Write, &topic.name)),
            (TopicName::Id(_), None) => None,
        };
        if topics > answered_topics {
            begin_topic_answer(&asked, version, reply);
        }
        while let Some(part) = produce.next_partition()? {
            partitions += 1;
            if partitions <= answered_partitions {
                continue;
            }
            let place = partitions - 1;
            let outcome = match (&begun.refusal, checked, topic) {
                (Some(refusal), ..) => Err(refusal.clone()),
                (None, Some(Err(denied)), _) => Err(PartitionRefusal::code(denied)),
                (None, Some(Ok(granted)), Some(topic)) => match begun.origin(place).and_then(|origin| {
                    append(node, request, (granted, topic), part, origin, unfolding, reply)
                }) {
                    Err(NotTaken::Refused(refusal)) => Err(refusal),
                    Err(NotTaken::MovesOn) => {
                        (begun.topics, begun.partitions) = (topics, place);
                        return Ok(Progress::Cut);
                    }
                    Ok(accepted) => Ok(accepted),
                },
                (None, ..) => Err(PartitionRefusal::code(asked.unknown_topic())),
            };
            let position = put_partition_answer(part.index, version, &outcome, reply);
            begun.note(outcome, acks, position, reply);
        }
        if topics >= answered_topics {
            reply.bytes.extend(flexible.then_some(0));
        }
    }
    put_i32(&mut reply.bytes, 0); // throttle time
    reply.bytes.extend(flexible.then_some(0));
    Ok(Progress::Done)
}

impl Begun {
    pub fn new(node: &Node, request: &Request<'_>, produce: &ProduceRequest<'_>) -> Begun {
        let (transactional_id, refusal) = match check_request(node, request, produce) {
            Ok(transactional_id) => (transactional_id, None),
            Err(refusal) => (None, Some(refusal)),
        };
        Begun {
            refusal,
            transactional_id,
            ..Begun::default()
        }
    }

    /// Who writes to the partition at a place of the request.
    fn origin(&self, place: usize) -> Result<Origin, NotTaken> {
        match self.admitted.get(place) {
            None | Some(Admitted::Plain) => Ok(Origin::Client(None)),
            Some(Admitted::Ticket(ticket)) => Ok(Origin::Client(Some(*ticket))),
            Some(Admitted::Refused(refusal)) => Err(refusal.clone().into()),
        }
    }

    /// Records the outcome of one partition.
    ///
    /// - `position`: of the partition's error code in the answer.
    fn note(
        &mut self,
        outcome: Result<Accepted, PartitionRefusal>,
        acks: i16,
        position: usize,
        reply: &mut ReplyBuffer,
    ) {
        match outcome {
            Ok(accepted) if accepted.must_wait(acks) => self.waits.push(Wait {
                required: accepted.appended.last_offset + 1,
                position,
                is_asked_for: accepted.is_asked_for(acks),
                token: None,
                partition: accepted.partition,
            }),
            Ok(_) => {}
            Err(refusal) => {
                reply.seen.errors.see(refusal.code);
                self.refused = Some(refusal.code);
            }
        }
    }
}

/// Why a partition appended nothing.
enum NotTaken {
    Refused(PartitionRefusal),
    /// Its batch is left to a long-answer thread.
    MovesOn,
}

impl From<NotValid> for NotTaken {
    fn from(problem: NotValid) -> NotTaken {
        match problem {
            NotValid::Refused(error) => NotTaken::Refused(PartitionRefusal::from_validation(&error)),
            NotValid::MovesOn => NotTaken::MovesOn,
        }
    }
}

impl From<PartitionRefusal> for NotTaken {
    fn from(refusal: PartitionRefusal) -> NotTaken {
        NotTaken::Refused(refusal)
    }
}

fn append(
    node: &Node,
    request: &Request<'_>,
    (granted, topic): (GrantedTopic<'_>, &TopicImage),
    part: ProducePartition<'_>,
    origin: Origin,
    unfolding: &mut Unfolding,
    reply: &mut ReplyBuffer,
) -> Result<Accepted, NotTaken> {
    let partition = writable_partition(node, granted, topic, part.index)?;
    let write = Write {
        partition: &partition,
        config: &topic.config,
        records: part.records.unwrap_or_default(),
        origin,
    };
    let taken = append_to(node, request, write, unfolding, reply);
    // A batch that is left to a long-answer thread is counted there.
    if !matches!(taken, Err(NotTaken::MovesOn)) {
        partition.count_produce();
    }
    if matches!(taken, Err(NotTaken::Refused(_))) {
        partition.count_failed_produce();
    }
    let (appended, log_append_time) = taken?;
    Ok(Accepted {
        partition,
        appended,
        log_append_time,
    })
}

/// What is to be written to a partition, and by its topic's settings.
struct Write<'a> {
    partition: &'a Arc<Partition>,
    config: &'a TopicConfig,
    records: &'a [u8],
    origin: Origin,
}

/// Returns where the batch is, and its `LogAppendTime`.
fn append_to(
    node: &Node,
    request: &Request<'_>,
    write: Write<'_>,
    unfolding: &mut Unfolding,
    reply: &mut ReplyBuffer,
) -> Result<(Appended, i64), NotTaken> {
    let Write {
        partition,
        config,
        records,
        origin,
    } = write;
    let rules = ProduceRules {
        produce_version: request.api_version,
        max_message_bytes: usize::try_from(config.max_message_bytes).unwrap_or(0),
        timestamp_type: config.timestamp_type,
        timestamp_before_max_ms: config.timestamp_before_max_ms,
        timestamp_after_max_ms: config.timestamp_after_max_ms,
        is_compacted: config.log.compact,
        compression: config.target_compression(),
        now_ms: node.clock().timestamp().0,
    };
    let is_compressed = codec_of(records).is_some_and(|codec| codec != Codec::None);
    let batch = unfolding.validate(records, is_compressed, &rules)?;
    let log_append_time = match config.timestamp_type {
        TimestampType::LogAppendTime => rules.now_ms,
        TimestampType::CreateTime => -1,
    };
    let started = node.clock().moment();
    let appended = partition.append(
        node.services(),
        origin,
        &[BatchToAppend {
            header: batch.header,
            records: &batch.record_bytes,
        }],
    );
    reply.stages.append_micros += node.clock().moment().micros_since(started);
    let appended = appended.map_err(|error| PartitionRefusal::from_append(&error, partition))?;
    see(reply, partition.key(), records, &batch);
    if node.services().batch_times.is_on() {
        let batch = NewBatch {
            base_offset: appended.base_offset,
            last_offset: appended.last_offset,
            end: appended.end,
            received: request.received,
            appended: node.clock().moment(),
        };
        partition.record_append(&node.services().batch_times, batch);
    }
    Ok((appended, log_append_time))
}

fn writable_partition(
    node: &Node,
    granted: GrantedTopic<'_>,
    topic: &TopicImage,
    index: i32,
) -> Result<Arc<Partition>, PartitionRefusal> {
    if topic.is_internal() {
        let message = format!("{} is written by the broker only", topic.name);
        return Err(PartitionRefusal::with_message(
            ErrorCode::InvalidTopicException,
            message,
        ));
    }
    let partition = node.partition(granted, topic, index);
    let partition = partition.map_err(PartitionRefusal::code)?;
    if !node.storage.disk_has_room() {
        partition.count_produce();
        partition.count_failed_produce();
        let message = "the disk is full: less than ottla.disk.reserve.bytes are free".to_string();
        return Err(PartitionRefusal::with_message(
            ErrorCode::KafkaStorageError,
            message,
        ));
    }
    Ok(partition)
}

/// Returns the codec in the low three bits of a batch's attributes, which end at byte 23.
fn codec_of(records: &[u8]) -> Option<Codec> {
    let bits = records.get(22)?;
    Codec::from_id(i16::from(bits & 7))
}

/// Records size, codec and producer of an accepted batch.
fn see(reply: &mut ReplyBuffer, (topic_id, index): Key, records: &[u8], batch: &ValidBatch<'_>) {
    let came_as = codec_of(records);
    let count = u32::try_from(batch.record_count()).unwrap_or(0);
    let bytes = u32::try_from(records.len()).unwrap_or(u32::MAX);
    reply.written.see(WrittenBatch {
        topic_id,
        index,
        records: count,
        bytes,
    });
    let seen = &mut reply.seen;
    seen.batches += 1;
    seen.records += u64::from(count);
    seen.batch_bytes += u64::from(bytes);
    seen.batch_bytes_max = seen.batch_bytes_max.max(bytes);
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

/// Checks what concerns every partition of the request; returns the id of its transaction.
fn check_request(
    node: &Node,
    request: &Request<'_>,
    produce: &ProduceRequest<'_>,
) -> Result<Option<OwnedGrant<TransactionalId>>, PartitionRefusal> {
    let transactional_id = check_transaction(node, request, produce)?;
    if !matches!(produce.acks, ACKS_ALL..=1) {
        let message = format!("acks must be -1, 0 or 1, not {}", produce.acks);
        return Err(PartitionRefusal::with_message(
            ErrorCode::InvalidRequiredAcks,
            message,
        ));
    }
    Ok(transactional_id)
}

fn check_transaction(
    node: &Node,
    request: &Request<'_>,
    produce: &ProduceRequest<'_>,
) -> Result<Option<OwnedGrant<TransactionalId>>, PartitionRefusal> {
    if !produce.has_transactional_batch {
        return Ok(None);
    }
    // Without an id no client could ever end the transaction, and read_committed consumers would
    // stop at it for ever.
    let Some(id) = produce.transactional_id else {
        let message = "transactional batches need a transactional id in their request".to_owned();
        return Err(PartitionRefusal::with_message(
            ErrorCode::TransactionalIdAuthorizationFailed,
            message,
        ));
    };
    let caller = node.access.caller(request);
    let granted = caller.transactional_id(Operation::Write, id);
    let granted = granted.map_err(PartitionRefusal::code)?;
    Ok(Some(granted.keep()))
}

struct Accepted {
    partition: Arc<Partition>,
    appended: Appended,
    log_append_time: i64,
}

impl Accepted {
    fn must_wait(&self, acks: i16) -> bool {
        self.is_asked_for(acks) || self.is_ahead_of_the_disk()
    }

    /// Whether the client must not get its answer before the batch is on the disk. With acks=1 it
    /// may get it once a killed process loses nothing of it: with `ottla.durability=disk` that is
    /// after the write to the device, which is durable when it returns.
    fn is_asked_for(&self, acks: i16) -> bool {
        acks == ACKS_ALL || acks != ACKS_NONE && self.partition.is_read_when_durable()
    }

    /// True when the disk falls behind the appends. Without back pressure on producers that do not
    /// wait for it, unwritten bytes pile up: in memory of the log's own, or in the page cache until
    /// the kernel stalls the next writer, an event loop.
    fn is_ahead_of_the_disk(&self) -> bool {
        self.appended.unsynced_bytes > UNSYNCED_BYTES_MAX
    }
}

#[derive(Clone, Debug)]
pub(super) struct PartitionRefusal {
    code: ErrorCode,
    message: Option<String>,
    record_faults: Vec<RecordFault>,
}

impl PartitionRefusal {
    pub fn code(code: ErrorCode) -> PartitionRefusal {
        PartitionRefusal {
            code,
            message: None,
            record_faults: Vec::new(),
        }
    }

    pub fn with_message(code: ErrorCode, message: String) -> PartitionRefusal {
        PartitionRefusal {
            code,
            message: Some(text::message(&message).into_owned()),
            record_faults: Vec::new(),
        }
    }

    fn from_validation(error: &ProduceError) -> PartitionRefusal {
        PartitionRefusal {
            code: error.error_code(),
            message: Some(error.to_string()),
            record_faults: error.record_faults(),
        }
    }

    fn from_append(error: &AppendError, partition: &Partition) -> PartitionRefusal {
        match partition.refusal_code(error) {
            code @ ErrorCode::UnknownTopicOrPartition => PartitionRefusal::code(code),
            code => PartitionRefusal::with_message(code, error.to_string()),
        }
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

/// Writes one partition's answer and returns the position of its error code, for `amend`.
fn put_partition_answer(
    index: i32,
    version: i16,
    outcome: &Result<Accepted, PartitionRefusal>,
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

fn put_explanation(refusal: Option<&PartitionRefusal>, flexible: bool, out: &mut Vec<u8>) {
    let faults = refusal.map_or(&[][..], |refusal| &refusal.record_faults);
    put_count(out, faults.len(), flexible);
    for fault in faults {
        put_i32(out, fault.batch_index);
        put_nullable_message(out, Some(&fault.message), flexible);
        out.extend(flexible.then_some(0));
    }
    put_nullable_message(
        out,
        refusal.and_then(|refusal| refusal.message.as_deref()),
        flexible,
    );
}

/// One partition of a produce that is not durable yet.
struct Wait {
    partition: Arc<Partition>,
    /// The high watermark at which it is durable.
    required: i64,
    /// Position of the partition's error code in the answer.
    position: usize,
    /// False if the wait is back pressure only, so that a timeout is no error.
    is_asked_for: bool,
    token: Option<WaitToken>,
}

impl Wait {
    fn is_over(&self) -> bool {
        self.partition.high_watermark() >= self.required
    }
}

/// The complete answer of a produce that waits for the disk; only errors change it.
struct PendingProduce {
    answer: Vec<u8>,
    waits: Vec<Wait>,
    deadline: Moment,
    /// With acks=0 the client gets no answer.
    is_silent: bool,
    /// Nothing more may be appended for this connection until the wait is over.
    is_alone: bool,
}

impl PendingReply for PendingProduce {
    fn poll(&mut self, node: &Node, waker: &Waker, reply: &mut ReplyBuffer) -> Poll<()> {
        let is_late = node.clock().moment() >= self.deadline;
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
                wait.partition.count_failed_produce();
                amend(answer, wait.position, code);
            }
            bad_news.is_none()
        });
        if !self.waits.is_empty() {
            return Poll::Pending;
        }
        if self.is_silent {
            reply.ending = Ending::NoReply;
        }
        reply.bytes.append(&mut self.answer);
        Poll::Ready(())
    }

    fn is_alone(&self) -> bool {
        self.is_alone
    }

    fn deadline(&self) -> Option<Moment> {
        Some(self.deadline)
    }

    fn waits_for(&self) -> WaitKind {
        WaitKind::Sync
    }
}

/// Replaces success by an error: the code and, after it, the base offset, which is no longer valid.
fn amend(answer: &mut [u8], position: usize, code: ErrorCode) {
    answer[position..position + 2].copy_from_slice(&code.code().to_be_bytes());
    answer[position + 2..position + 10].copy_from_slice(&(-1i64).to_be_bytes());
}
