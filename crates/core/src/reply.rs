//! What the core hands back: bytes, ranges of files between them, and the promise of a later answer.

use std::task::{Poll, Waker};

use ottla_log::disk::FileRegion;

use crate::node::Node;
use crate::seen::{Fetched, Seen};
use crate::time::Moment;

/// A reply under construction, behind its response header. The connection frames it.
///
/// `regions` are inserted into `bytes` at their index when the reply is sent (sendfile).
#[derive(Debug, Default)]
pub struct ReplyBuffer {
    pub bytes: Vec<u8>,
    pub regions: Vec<InsertedRegion>,
    pub stages: HandlerStages,
    /// What the handler saw of its client on the way.
    pub seen: Seen,
    /// Where a fetch stood; the connection says whether it wants to know.
    pub fetched: Fetched,
    /// For how long the handler holds the client back, in milliseconds: the connection says so in the answer.
    pub throttle_ms: u32,
    /// Of a pending reply that is ready.
    pub ending: Ending,
}

/// What a pending reply turned out to be.
#[derive(Debug, Default)]
pub enum Ending {
    /// The bytes and regions.
    #[default]
    Reply,
    /// As [`Handled::NoReply`].
    NoReply,
    /// As [`Handled::Close`].
    Close(String),
}

#[derive(Debug)]
pub struct InsertedRegion {
    /// Index into `ReplyBuffer::bytes` before which the region is sent; ascending.
    pub at: usize,
    pub region: FileRegion,
}

/// What a handler measured itself, in microseconds; everything else is measured by the connection.
#[derive(Clone, Copy, Debug, Default)]
pub struct HandlerStages {
    pub append_micros: u64,
}

/// What a handler did with a request.
pub enum Handled {
    /// The reply is complete in the buffer.
    Replied,
    /// The client expects no answer (produce with acks=0).
    NoReply,
    /// The reply comes later.
    Pending(Box<dyn PendingReply>),
    /// The request broke the protocol; the connection logs the reason and closes.
    Close(String),
}

/// A reply that waits for something: a sync, new data, other group members, the controller.
///
/// Dropping it takes back everything it registered, so a closed connection frees what its request held.
pub trait PendingReply: Send {
    /// Writes the reply and returns `Ready`, or registers `waker` with whatever it waits for.
    /// Registration must come before the last check, so that no wake-up is lost.
    fn poll(&mut self, node: &Node, waker: &Waker, reply: &mut ReplyBuffer) -> Poll<()>;

    /// When to poll again although nothing woke us.
    fn deadline(&self) -> Option<Moment> {
        None
    }

    fn waits_for(&self) -> WaitKind;

    /// Whether what the request does is still to be done by another thread: the connection's next request is not served
    /// before. To be asked again after each poll.
    fn is_alone(&self) -> bool {
        false
    }

    /// About how much memory it keeps while it waits, if that is more than a small request explains.
    fn kept_bytes(&self) -> usize {
        0
    }
}

/// The stage a pending reply's waiting time is booked to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WaitKind {
    /// The group commit.
    Sync,
    /// New data (long poll).
    Data,
    /// A read that must wait for the device.
    ColdRead,
    /// Other members of the group.
    Group,
    /// The controller.
    Controller,
    /// A quota.
    Throttle,
    /// Another thread that reads what the request holds.
    Reading,
}
