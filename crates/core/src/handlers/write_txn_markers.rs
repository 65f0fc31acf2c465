//! WriteTxnMarkers, versions 1 to 2 (KIP-98): ends transactions of producers in partitions. The
//! broker's own coordinator needs no request for that; administrators send it to end a transaction
//! that no coordinator knows of (KIP-664: `kafka-transactions.sh abort`).
//!
//! - 2 (KIP-1228) transaction version: from 2 on a marker must have an epoch of its own.
//! - The answer comes when the markers are durable.

use std::sync::Arc;
use std::task::{Poll, Waker};

use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::write_txn_markers::{
    WritableTxnMarker, WritableTxnMarkerPartitionResult, WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult, WriteTxnMarkersRequest, WriteTxnMarkersResponse,
};
use ottla_wire::records::control::{TransactionMarker, TransactionResult};

use super::deadline;
use crate::access::Caller;
use crate::access::acl::Operation;
use crate::access::granted::GrantedTopic;
use crate::group::OFFSETS_TOPIC;
use crate::node::Node;
use crate::partition::{Appended, Failure, Partition, WaitToken};
use crate::pending::{Handled, PendingReply};
use crate::reply::{ReplyBuffer, WaitKind};
use crate::request::Request;
use crate::time::Moment;

/// As long as the default `request.timeout.ms` of a broker.
const TIMEOUT_MS: i32 = 30_000;

pub(crate) fn handle(
    node: &Node,
    request: &Request<'_>,
    caller: Caller<'_>,
    body: WriteTxnMarkersRequest<'_>,
    reply: &mut ReplyBuffer,
) -> Handled {
    // KIP-664: administrators, or other brokers.
    let checked = match caller.cluster_if_allowed(Operation::Alter) {
        Some(granted) => Ok(granted),
        None => caller.cluster(Operation::ClusterAction),
    };
    let write = |marker: &WritableTxnMarker<'_>, topic: &str, index: i32| match checked {
        Err(code) => Outcome::Known(code),
        Ok(granted) => Outcome::of(append(node, granted.topic(topic), index, marker)),
    };
    let markers = body.markers.iter().map(|marker| Marker {
        producer_id: marker.producer_id,
        topics: marker
            .topics
            .iter()
            .map(|topic| {
                let indexes = topic.partition_indexes.iter();
                let outcomes = indexes.map(|index| (*index, write(marker, topic.name, *index)));
                (topic.name.to_owned(), outcomes.collect())
            })
            .collect(),
    });
    let pending = PendingMarkers {
        api_version: request.api_version,
        markers: markers.collect(),
        deadline: deadline(request, TIMEOUT_MS),
    };
    if pending
        .outcomes()
        .all(|outcome| matches!(outcome, Outcome::Known(_)))
    {
        pending.encode(reply);
        return Handled::Replied;
    }
    Handled::Pending(Box::new(pending))
}

fn append(
    node: &Node,
    topic: GrantedTopic<'_>,
    index: i32,
    marker: &WritableTxnMarker<'_>,
) -> Result<(Arc<Partition>, Appended), ErrorCode> {
    let version = marker.transaction_version;
    let marker = TransactionMarker {
        producer_id: marker.producer_id,
        producer_epoch: marker.producer_epoch,
        result: match marker.transaction_result {
            true => TransactionResult::Commit,
            false => TransactionResult::Abort,
        },
        coordinator_epoch: marker.coordinator_epoch,
    };
    // A marker without a producer would end nothing, and one may not be written for none.
    if marker.producer_id < 0 || marker.producer_epoch < 0 {
        return Err(ErrorCode::InvalidProducerIdMapping);
    }
    let partition = node.partition_by_name(topic, index)?;
    if topic.name() == OFFSETS_TOPIC {
        return node
            .groups
            .complete_transaction(&node.storage, index, marker, version);
    }
    let appended = partition.append_marker(node.services(), marker, version)?;
    Ok((partition, appended))
}

/// The markers of one producer.
struct Marker {
    producer_id: i64,
    topics: Vec<(String, Vec<(i32, Outcome)>)>,
}

enum Outcome {
    Known(ErrorCode),
    /// Appended, but not durable yet.
    Waiting {
        partition: Arc<Partition>,
        required: i64,
        token: Option<WaitToken>,
    },
}

impl Outcome {
    fn of(appended: Result<(Arc<Partition>, Appended), ErrorCode>) -> Outcome {
        match appended {
            Err(code) => Outcome::Known(code),
            Ok((partition, appended)) if partition.high_watermark() > appended.last_offset => {
                Outcome::Known(ErrorCode::None)
            }
            Ok((partition, appended)) => Outcome::Waiting {
                partition,
                required: appended.last_offset + 1,
                token: None,
            },
        }
    }

    fn poll(&mut self, is_late: bool, waker: &Waker) {
        let Outcome::Waiting {
            partition,
            required,
            token,
        } = self
        else {
            return;
        };
        token.get_or_insert_with(|| partition.wait_for_high_watermark(*required, waker));
        let code = match partition.failure() {
            _ if partition.high_watermark() >= *required => ErrorCode::None,
            Some(Failure::Deleted) => ErrorCode::UnknownTopicOrPartition,
            Some(Failure::Storage(_)) => ErrorCode::KafkaStorageError,
            None if is_late => ErrorCode::RequestTimedOut,
            None => return,
        };
        *self = Outcome::Known(code);
    }

    fn code(&self) -> ErrorCode {
        match self {
            Outcome::Known(code) => *code,
            Outcome::Waiting { .. } => unreachable!("written only when every outcome is known"),
        }
    }
}

struct PendingMarkers {
    api_version: i16,
    markers: Vec<Marker>,
    deadline: Moment,
}

impl PendingMarkers {
    fn outcomes(&self) -> impl Iterator<Item = &Outcome> {
        let topics = self.markers.iter().flat_map(|marker| &marker.topics);
        topics
            .flat_map(|(_, outcomes)| outcomes)
            .map(|(_, outcome)| outcome)
    }

    fn encode(&self, reply: &mut ReplyBuffer) {
        for outcome in self.outcomes() {
            reply.seen.errors.see(outcome.code());
        }
        let result = |(index, outcome): &(i32, Outcome)| WritableTxnMarkerPartitionResult {
            partition_index: *index,
            error_code: outcome.code().code(),
        };
        let markers = self.markers.iter().map(|marker| WritableTxnMarkerResult {
            producer_id: marker.producer_id,
            topics: marker
                .topics
                .iter()
                .map(|(name, outcomes)| WritableTxnMarkerTopicResult {
                    name,
                    partitions: outcomes.iter().map(result).collect(),
                })
                .collect(),
        });
        let response = WriteTxnMarkersResponse {
            markers: markers.collect(),
        };
        response.encode(&mut reply.bytes, self.api_version);
    }
}

impl PendingReply for PendingMarkers {
    fn poll(&mut self, node: &Node, waker: &Waker, reply: &mut ReplyBuffer) -> Poll<()> {
        let is_late = node.clock().moment() >= self.deadline;
        let topics = self.markers.iter_mut().flat_map(|marker| &mut marker.topics);
        let mut is_waiting = false;
        for (_, outcome) in topics.flat_map(|(_, outcomes)| outcomes) {
            outcome.poll(is_late, waker);
            is_waiting |= matches!(outcome, Outcome::Waiting { .. });
        }
        if is_waiting {
            return Poll::Pending;
        }
        self.encode(reply);
        Poll::Ready(())
    }

    fn deadline(&self) -> Option<Moment> {
        Some(self.deadline)
    }

    fn waits_for(&self) -> WaitKind {
        WaitKind::Sync
    }
}
