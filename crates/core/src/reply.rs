//! What the core hands back: bytes, file ranges between them, and the promise of a later answer.

use std::task::{Poll, Waker};

use ottla_log::disk::FileRegion;

use crate::node::Node;
use crate::seen::{Fetched, Seen};
use crate::time::Moment;

/// A reply under construction, after its response header. The connection frames it.
///
/// `regions` are inserted into `bytes` at their index when the reply is sent (sendfile).
#[derive(Debug, Default)]
pub struct ReplyBuffer {
    pub bytes: Vec<u8>,
    pub regions: Vec<InsertedRegion>,
    pub stages: HandlerStages,
    /// What the handler observed about its client.
    pub seen: Seen,
    /// Positions of a fetch; the connection says whether it wants them.
    pub fetched: Fetched,
    /// Throttle time of the handler's quota in milliseconds; the connection puts it into the
    /// answer.
    pub throttle_ms: u32,
    /// Outcome of a pending reply that is ready.
    pub ending: Ending,
}

/// The outcome of a pending reply.
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

/// Times that only the handler can measure, in microseconds; the connection measures all others.
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
/// Dropping it undoes all its registrations, so a closed connection frees what its request held.
pub trait PendingReply: Send {
    /// Writes the reply and returns `Ready`, or registers `waker` with what it waits for.
    /// Registration must come before the last check, so that no wake-up is lost.
    fn poll(&mut self, node: &Node, waker: &Waker, reply: &mut ReplyBuffer) -> Poll<()>;

    /// When to poll again even without a wake-up.
    fn deadline(&self) -> Option<Moment> {
        None
    }

    fn waits_for(&self) -> WaitKind;

    /// Whether another thread has yet to handle the request itself; until then the connection does
    /// not serve its next request. Asked again after each poll.
    fn is_alone(&self) -> bool {
        false
    }

    /// Estimate of the memory it keeps while it waits, if that is more than a small request
    /// explains.
    fn kept_bytes(&self) -> usize {
        0
    }
}

/// The stage that a pending reply's waiting time is booked to.
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
