//! The interface between a machine and its driver. The driver handles sockets, names and TLS; the
//! machine handles bytes.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use crate::error::Error;
use crate::time::{Moment, Timestamp};

/// One connection attempt and the connection that it led to; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);

/// A broker's host and port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    pub host: Arc<str>,
    pub port: u16,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// Events from the driver to the machine.
#[derive(Debug)]
pub enum Event {
    /// TCP is connected, and TLS where it is enabled.
    Connected { connection: ConnectionId },
    /// One whole frame, without its length prefix.
    Received { connection: ConnectionId, frame: Bytes },
    /// The connection could not be made or is gone. No further event follows for it.
    Closed { connection: ConnectionId, reason: Error },
    /// The kernel's smoothed round trip time of this connection (TCP_INFO), about once a second
    /// while it is used.
    RoundTrip { connection: ConnectionId, nanos: u64 },
}

/// Actions that a machine requests, in this order.
#[derive(Debug)]
pub enum Action {
    /// Answered by `Connected` or `Closed`.
    Connect {
        connection: ConnectionId,
        address: Address,
    },
    Send {
        connection: ConnectionId,
        frame: Frame,
    },
    /// Not answered.
    Close {
        connection: ConnectionId,
    },
}

/// Bytes that are sent together, length prefix included; the parts are not joined, a vectored write
/// sends them as they are.
///
/// A part is dropped when the kernel has accepted it or the connection is gone, never before:
/// memory that it borrows (a batch's, see `producer::batch`) cannot be reused while it might still
/// be written.
#[derive(Debug, Default)]
pub struct Frame {
    pub parts: Vec<Bytes>,
}

impl Frame {
    pub fn byte_count(&self) -> usize {
        self.parts.iter().map(Bytes::len).sum()
    }
}

/// A client as a state machine: the producer's, the consumer's, the admin client's.
///
/// The driver (or a simulation) calls `handle` for every event, then `turn` once; it also calls
/// `turn` when `next_deadline` has come or the machine's waker was called.
pub trait Machine: Send {
    fn handle(&mut self, now: Moment, event: Event);

    /// Does everything that is due and appends actions for the driver to `actions`.
    fn turn(&mut self, now: Moment, wall: Timestamp, actions: &mut Vec<Action>);

    /// When `turn` must be called even if nothing happens.
    fn next_deadline(&self) -> Option<Moment>;

    /// Whether the machine is done: the driver then closes every connection and ends.
    fn is_finished(&self) -> bool;
}

/// Wakes a driver from another thread. Cheap when the driver is awake.
pub trait Wake: Send + Sync + fmt::Debug {
    fn wake(&self);
}
