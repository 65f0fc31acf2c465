//! Answers that name thousands of things: written by a thread that nobody waits for, a connection's one at a time.

use std::sync::Arc;
use std::task::{Poll, Waker};

use crate::executor::{self, Payer};
use crate::node::Node;
use crate::reply::{PendingReply, ReplyBuffer, WaitKind};
use crate::slot::Slot;

/// What an event loop writes itself: about a fifth of a millisecond of work.
pub const ENTRIES_MAX: u64 = 1_000;

/// A reply that another thread writes. Dropping it lets a job that has not begun do nothing.
pub struct LongAnswer<W> {
    payer: Payer,
    entries: u64,
    stage: Stage<W>,
}

enum Stage<W> {
    /// The replies in front of this one are not out yet.
    Waiting(Option<W>),
    Writing(Arc<Slot<ReplyBuffer>>),
}

impl<W> LongAnswer<W>
where
    W: FnOnce(&Node, &mut ReplyBuffer) + Send + 'static,
{
    /// `write` fills the reply's bytes; `entries` is about how many things it names.
    pub fn new(payer: Payer, entries: u64, write: W) -> LongAnswer<W> {
        LongAnswer {
            payer,
            entries,
            stage: Stage::Waiting(Some(write)),
        }
    }
}

impl<W> PendingReply for LongAnswer<W>
where
    W: FnOnce(&Node, &mut ReplyBuffer) + Send + 'static,
{
    fn poll(&mut self, node: &Node, waker: &Waker, reply: &mut ReplyBuffer) -> Poll<()> {
        if let Stage::Waiting(write) = &mut self.stage {
            let write = write.take().expect("it is handed on once");
            self.stage = Stage::Writing(start(node, self.payer, self.entries, write));
        }
        let Stage::Writing(slot) = &self.stage else {
            unreachable!("the work was handed on above")
        };
        let Some(written) = slot.take_or_register(waker) else {
            return Poll::Pending;
        };
        reply.bytes = written.bytes;
        reply.seen.add(&written.seen);
        Poll::Ready(())
    }

    fn waits_for(&self) -> WaitKind {
        WaitKind::Reading
    }
}

fn start<W>(node: &Node, payer: Payer, entries: u64, write: W) -> Arc<Slot<ReplyBuffer>>
where
    W: FnOnce(&Node, &mut ReplyBuffer) + Send + 'static,
{
    let slot = Arc::new(Slot::default());
    let job_slot = slot.clone();
    let job = move |node: &Node| {
        // Nobody else holds the slot: the connection is gone.
        if Arc::strong_count(&job_slot) == 1 {
            return 0;
        }
        let mut reply = ReplyBuffer::default();
        write(node, &mut reply);
        job_slot.fill(reply);
        entries
    };
    node.executor().long_answer(executor::LongAnswer {
        payer,
        entries,
        job: Box::new(job),
    });
    slot
}
