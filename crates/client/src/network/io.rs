//! What a machine and its driver say to each other. Sockets, names and TLS are the driver's; bytes are the machine's.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use crate::error::Error;
use crate::time::{Moment, Timestamp};

/// One attempt to connect and what came of it; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);

/// Where a broker listens.
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

/// What the world did.
#[derive(Debug)]
pub enum Event {
    /// TCP stands, and TLS where it is asked for.
    Connected { connection: ConnectionId },
    /// One whole frame, without its length.
    Received { connection: ConnectionId, frame: Bytes },
    /// The connection could not be made or is gone. Nothing more comes of it.
    Closed { connection: ConnectionId, reason: Error },
    /// The kernel's smoothed round trip of this connection (TCP_INFO), about once a second while it is used.
    RoundTrip { connection: ConnectionId, nanos: u64 },
}

/// What a machine wants done, in this order.
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

/// Bytes that go out together, length prefix included; the parts are not joined, a vectored write takes them as they are.
///
/// A part is dropped when the kernel has taken it or the connection is gone, never before: memory that it borrows
/// (a batch's, see `producer::batch`) cannot be reused while it might still be written.
#[derive(Debug, Default)]
pub struct Frame {
    pub parts: Vec<Bytes>,
}

impl Frame {
    pub fn byte_count(&self) -> usize {
        self.parts.iter().map(Bytes::len).sum()
    }
}

/// A client as a machine: the producer's, the consumer's, the admin client's.
///
/// The driver (or a simulation) calls `handle` for every event, then `turn` once; and `turn` when `next_deadline` has
/// come or the machine's waker was called.
pub trait Machine: Send {
    fn handle(&mut self, now: Moment, event: Event);

    /// Does everything that is due and appends what the driver shall do to `actions`.
    fn turn(&mut self, now: Moment, wall: Timestamp, actions: &mut Vec<Action>);

    /// When `turn` wants to be called even if nothing happens.
    fn next_deadline(&self) -> Option<Moment>;

    /// The machine has nothing more to do: the driver closes every connection and ends.
    fn is_finished(&self) -> bool;
}

/// Ends a driver's sleep from another thread. Cheap when the driver is awake.
pub trait Wake: Send + Sync + fmt::Debug {
    fn wake(&self);
}
