//! The boundary between request handlers and the controller.

use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};

use ottla_wire::error_code::ErrorCode;
use tracing::{error, warn};

use super::topics::{NewTopic, Refusal};
use super::{Controller, ControllerError, PRODUCER_ID_BLOCK};
use crate::node::Node;
use crate::reply::{PendingReply, ReplyBuffer, WaitKind};
use crate::slot::Slot;
use crate::time::Moment;

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
    let mut controller = node.controller.lock().unwrap_or_else(PoisonError::into_inner);
    let before = controller.image().clone();
    let result = job(node, &mut controller);
    if !Arc::ptr_eq(&before, controller.image()) {
        node.publish(controller.image().clone());
    }
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
                .is_some_and(|deadline| deadline <= node.clock.moment()) =>
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
}

impl InternalTopic {
    pub fn name(self) -> &'static str {
        match self {
            InternalTopic::ConsumerOffsets => "__consumer_offsets",
        }
    }

    /// Returns the definition that Apache Kafka uses, but with one replica, as there is one
    /// machine.
    pub fn definition(self, node: &Node) -> NewTopic {
        match self {
            InternalTopic::ConsumerOffsets => {
                let settings = &node.config.offsets_topic;
                let value = |key: &str, value: String| (key.to_owned(), Some(value));
                NewTopic {
                    name: self.name().to_owned(),
                    partition_count: settings.partition_count,
                    replication_factor: 1,
                    assignments: Vec::new(),
                    configs: vec![
                        value("cleanup.policy", "compact".to_owned()),
                        value("compression.type", "producer".to_owned()),
                        value("segment.bytes", settings.segment_bytes.to_string()),
                    ],
                }
            }
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
        let results = controller.create_topics(&[topic.definition(node)], false, node.clock.timestamp())?;
        Ok(results
            .and_then(|mut results| results.remove(0))
            .map(|_created| ()))
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

/// A block of producer ids, so that InitProducerId does not wait for the disk each time.
#[derive(Debug, Default)]
pub struct ProducerIds {
    block: Mutex<Block>,
}

#[derive(Debug, Default)]
struct Block {
    next: i64,
    end: i64,
}

impl ProducerIds {
    /// Returns an unused id, or `None` when a new block must be allocated first.
    pub fn take(&self) -> Option<i64> {
        let mut block = self.block.lock().unwrap_or_else(PoisonError::into_inner);
        (block.next < block.end).then(|| {
            block.next += 1;
            block.next - 1
        })
    }

    /// Returns an id from a new block, unless another request allocated one meanwhile. Runs on the
    /// controller thread.
    pub fn take_or_allocate(&self, node: &Node, controller: &mut Controller) -> Result<i64, ControllerError> {
        if let Some(id) = self.take() {
            return Ok(id);
        }
        let first = controller.allocate_producer_ids(node.clock.timestamp())?;
        let mut block = self.block.lock().unwrap_or_else(PoisonError::into_inner);
        *block = Block {
            next: first + 1,
            end: first + PRODUCER_ID_BLOCK,
        };
        Ok(first)
    }
}
