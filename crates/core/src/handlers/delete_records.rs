//! DeleteRecords, versions 0 to 2 (KIP-107): moves the start of a log.
//!
//! Runs on the controller thread, because the new start is durable before the answer leaves.

use std::sync::Arc;
use std::task::{Poll, Waker};

use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::delete_records::{
    DeleteRecordsPartitionResult, DeleteRecordsRequest, DeleteRecordsResponse, DeleteRecordsTopicResult,
};

use crate::access::Caller;
use crate::access::acl::Operation;
use crate::access::granted::GrantedTopic;
use crate::node::Node;
use crate::pending::{Handled, PendingReply};
use crate::reply::{ReplyBuffer, WaitKind};
use crate::request::Request;
use crate::slot::Slot;

/// Means "up to the high watermark".
const HIGH_WATERMARK: i64 = -1;

pub(crate) fn handle(
    node: &Node,
    request: &Request<'_>,
    caller: Caller<'_>,
    body: DeleteRecordsRequest<'_>,
    _reply: &mut ReplyBuffer,
) -> Handled {
    let asked: AskedDeletes = body
        .topics
        .iter()
        .map(|topic| {
            let partitions = topic
                .partitions
                .iter()
                .map(|asked| (asked.partition_index, asked.offset));
            (topic.name.to_string(), partitions.collect())
        })
        .collect();
    let slot = Arc::new(Slot::default());
    let job_slot = slot.clone();
    let caller = caller.keep();
    node.executor().control(Box::new(move |node| {
        job_slot.fill(delete(node, &caller.borrow(), asked))
    }));
    Handled::Pending(Box::new(PendingDelete {
        slot,
        api_version: request.api_version,
    }))
}

type AskedDeletes = Vec<(String, Vec<(i32, i64)>)>;
type Deleted = Vec<(String, Vec<DeleteRecordsPartitionResult>)>;

fn delete(node: &Node, caller: &Caller<'_>, asked: AskedDeletes) -> Deleted {
    let mut deleted: Deleted = asked
        .into_iter()
        .map(|(topic, partitions)| {
            let checked = caller.topic(Operation::Delete, &topic);
            let results = partitions
                .into_iter()
                .map(|(index, offset)| match checked {
                    Ok(granted) => delete_one(node, granted, index, offset),
                    Err(error) => refused(index, error),
                })
                .collect();
            (topic, results)
        })
        .collect();
    if node.storage.write_log_starts().is_err() {
        for result in deleted.iter_mut().flat_map(|(_, results)| results) {
            *result = refused(result.partition_index, ErrorCode::KafkaStorageError);
        }
    }
    deleted
}

fn delete_one(
    node: &Node,
    topic: GrantedTopic<'_>,
    partition_index: i32,
    offset: i64,
) -> DeleteRecordsPartitionResult {
    match try_delete(node, topic, partition_index, offset) {
        Ok(low_watermark) => DeleteRecordsPartitionResult {
            partition_index,
            low_watermark,
            error_code: 0,
        },
        Err(error) => refused(partition_index, error),
    }
}

fn try_delete(
    node: &Node,
    topic: GrantedTopic<'_>,
    partition_index: i32,
    offset: i64,
) -> Result<i64, ErrorCode> {
    let partition = node.partition_by_name(topic, partition_index)?;
    let image = node.image();
    let topic = image
        .topic(topic.name())
        .ok_or(ErrorCode::UnknownTopicOrPartition)?;
    if topic.is_internal() {
        return Err(ErrorCode::InvalidTopicException);
    }
    // Records of a topic that is only compacted must not be deleted by offset.
    if !topic.config.log.delete {
        return Err(ErrorCode::PolicyViolation);
    }
    let high_watermark = partition.high_watermark();
    let offset = if offset == HIGH_WATERMARK {
        high_watermark
    } else {
        offset
    };
    if !(0..=high_watermark).contains(&offset) {
        return Err(ErrorCode::OffsetOutOfRange);
    }
    Ok(partition.with_log(|log| log.delete_records_before(offset)))
}

fn refused(partition_index: i32, error: ErrorCode) -> DeleteRecordsPartitionResult {
    DeleteRecordsPartitionResult {
        partition_index,
        low_watermark: -1,
        error_code: error.code(),
    }
}

struct PendingDelete {
    slot: Arc<Slot<Deleted>>,
    api_version: i16,
}

impl PendingReply for PendingDelete {
    fn poll(&mut self, _node: &Node, waker: &Waker, reply: &mut ReplyBuffer) -> Poll<()> {
        let Some(deleted) = self.slot.take_or_register(waker) else {
            return Poll::Pending;
        };
        let topics = deleted
            .iter()
            .map(|(name, partitions)| DeleteRecordsTopicResult {
                name,
                partitions: partitions.clone(),
            })
            .collect();
        let response = DeleteRecordsResponse {
            topics,
            ..Default::default()
        };
        response.encode(&mut reply.bytes, self.api_version);
        Poll::Ready(())
    }

    fn waits_for(&self) -> WaitKind {
        WaitKind::Controller
    }
}
