//! What the core hands back: bytes, file ranges between them, and the promise of a later answer.

use ottla_log::disk::FileRegion;

use crate::seen::{Fetched, Seen, Written};

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
    pub written: Written,
    /// Positions of a fetch; the connection says whether it wants them.
    pub fetched: Fetched,
    /// Throttle time of the handler's quota in milliseconds; the connection puts it into the
    /// answer.
    pub throttle_ms: u32,
    /// Outcome of a pending reply that is ready.
    pub ending: Ending,
}

impl ReplyBuffer {
    /// Empties the buffer for the next reply; its memory is kept.
    ///
    /// - `wants_positions`: the connection wants to know where a fetch is.
    pub fn begin(&mut self, wants_positions: bool) {
        let (mut bytes, mut regions) = (std::mem::take(&mut self.bytes), std::mem::take(&mut self.regions));
        let mut written = std::mem::take(&mut self.written);
        bytes.clear();
        regions.clear();
        written.clear();
        *self = ReplyBuffer {
            bytes,
            regions,
            written,
            fetched: Fetched::wanted(wants_positions),
            ..ReplyBuffer::default()
        };
    }
}

/// The outcome of a pending reply.
#[derive(Debug, Default)]
pub enum Ending {
    /// The bytes and regions.
    #[default]
    Reply,
    /// As `Handled::NoReply`.
    NoReply,
    /// As `Handled::Close`.
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
    /// The transaction coordinator: its log, or the end of the producer's previous transaction.
    Transaction,
    /// The controller.
    Controller,
    /// A quota.
    Throttle,
    /// Another thread that reads what the request holds.
    Reading,
}
