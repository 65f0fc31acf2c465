//! The boundary between request handlers and the controller.

use std::sync::Arc;
use std::task::{Poll, Waker};

use ottla_wire::error_code::ErrorCode;
use tracing::{error, warn};

use crate::access::granted::OwnedGrant;
use crate::config::NodeConfig;
use crate::controller::topics::NewTopic;
use crate::controller::{Controller, ControllerError};
use crate::group::OFFSETS_TOPIC;
use crate::node::Node;
use crate::pending::PendingReply;
use crate::quota::mutation::MutationQuota;
use crate::refusal::Refusal;
use crate::reply::{ReplyBuffer, WaitKind};
use crate::slot::Slot;
use crate::time::Moment;
use crate::transaction::transactions::TRANSACTIONS_TOPIC;

/// Runs `job` on the controller thread. Its changes are published before the slot is filled.
pub fn submit<T: Send + 'static>(
    node: &Node,
    job: impl FnOnce(&Node, &mut Controller) -> Result<T, ControllerError> + Send + 'static,
) -> Arc<Slot<Result<T, Refusal>>> {
    let slot = Arc::new(Slot::default());
    let filled = slot.clone();
    node.executor()
        .control(Box::new(move |node| filled.fill(run(node, job))));
    slot
}

fn run<T>(
    node: &Node,
    job: impl FnOnce(&Node, &mut Controller) -> Result<T, ControllerError>,
) -> Result<T, Refusal> {
    let result = node.with_controller(|controller| job(node, controller));
    result.map_err(|error| {
        error!(%error, "metadata change failed");
        Refusal::new(ErrorCode::KafkaStorageError, error.to_string())
    })
}

/// A reply that waits for the controller; `write` encodes it from the result.
pub struct ControllerReply<T, W> {
    slot: Arc<Slot<Result<T, Refusal>>>,
    deadline: Option<Moment>,
    write: Option<W>,
}

impl<T, W> ControllerReply<T, W>
where
    T: Send + 'static,
    W: FnOnce(&Node, Result<T, Refusal>, &mut ReplyBuffer) + Send + 'static,
{
    /// Boxes the reply.
    ///
    /// - `deadline`: after it the answer is REQUEST_TIMED_OUT; the change may still happen.
    pub fn boxed(
        slot: Arc<Slot<Result<T, Refusal>>>,
        deadline: Option<Moment>,
        write: W,
    ) -> Box<dyn PendingReply> {
        Box::new(ControllerReply {
            slot,
            deadline,
            write: Some(write),
        })
    }
}

impl<T, W> PendingReply for ControllerReply<T, W>
where
    T: Send + 'static,
    W: FnOnce(&Node, Result<T, Refusal>, &mut ReplyBuffer) + Send + 'static,
{
    fn poll(&mut self, node: &Node, waker: &Waker, reply: &mut ReplyBuffer) -> Poll<()> {
        let result = match self.slot.take_or_register(waker) {
            Some(result) => result,
            None if self
                .deadline
                .is_some_and(|deadline| deadline <= node.clock().moment()) =>
            {
                Err(Refusal::plain(ErrorCode::RequestTimedOut))
            }
            None => return Poll::Pending,
        };
        let write = self
            .write
            .take()
            .expect("a reply is not polled after it was ready");
        write(node, result, reply);
        Poll::Ready(())
    }

    fn deadline(&self) -> Option<Moment> {
        self.deadline
    }

    fn waits_for(&self) -> WaitKind {
        WaitKind::Controller
    }
}

/// An internal topic, created when the first client needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InternalTopic {
    /// `__consumer_offsets`
    ConsumerOffsets,
    /// `__transaction_state`
    TransactionState,
}

impl InternalTopic {
    pub fn name(self) -> &'static str {
        match self {
            InternalTopic::ConsumerOffsets => OFFSETS_TOPIC,
            InternalTopic::TransactionState => TRANSACTIONS_TOPIC,
        }
    }

    /// Returns the definition that Apache Kafka uses, but with one replica, as there is one
    /// machine.
    pub fn definition(self, config: &NodeConfig) -> NewTopic {
        let value = |key: &str, value: String| (key.to_owned(), Some(value));
        let (partition_count, configs) = match self {
            InternalTopic::ConsumerOffsets => {
                let settings = &config.offsets_topic;
                let configs = vec![
                    value("cleanup.policy", "compact".to_owned()),
                    value("compression.type", "producer".to_owned()),
                    value("segment.bytes", settings.segment_bytes.to_string()),
                ];
                (settings.partition_count, configs)
            }
            InternalTopic::TransactionState => {
                let settings = &config.transactions;
                let configs = vec![
                    value("cleanup.policy", "compact".to_owned()),
                    value("compression.type", "uncompressed".to_owned()),
                    value("min.insync.replicas", settings.min_in_sync.to_string()),
                    value("segment.bytes", settings.segment_bytes.to_string()),
                    value("unclean.leader.election.enable", "false".to_owned()),
                ];
                (settings.partition_count, configs)
            }
        };
        NewTopic {
            name: OwnedGrant::own(self.name()),
            partition_count,
            replication_factor: 1,
            assignments: Vec::new(),
            configs,
        }
    }
}

/// Creates an internal topic unless it exists; the slot is filled when it exists, or cannot be
/// created.
pub fn ensure_internal_topic(node: &Node, topic: InternalTopic) -> Arc<Slot<Result<(), ErrorCode>>> {
    let slot = Arc::new(Slot::default());
    if node.image().topic(topic.name()).is_some() {
        slot.fill(Ok(()));
        return slot;
    }
    let filled = slot.clone();
    let create = move |node: &Node, controller: &mut Controller| {
        // Many clients may ask at once; only the first request creates the topic.
        if controller.image().topic(topic.name()).is_some() {
            return Ok(Ok(()));
        }
        let mut results = controller.create_topics(
            &mut MutationQuota::unlimited(),
            &[topic.definition(node.config())],
            false,
            node.clock().timestamp(),
        )?;
        Ok(results.remove(0).map(|_created| ()))
    };
    node.executor().control(Box::new(move |node| {
        let created = run(node, create).and_then(|result| result);
        if let Err(refusal) = &created {
            warn!(topic = topic.name(), problem = %refusal.message, "internal topic cannot be created");
        }
        filled.fill(created.map_err(|refusal| refusal.code));
    }));
    slot
}
