//! What is known of the cluster, and when to ask again.

pub mod snapshot;

use std::sync::Arc;

use crate::error::Error;

use self::snapshot::{Snapshot, Topic};

/// The current snapshot, shared by the machine that replaces it and every thread that reads it.
///
/// - Reading costs one atomic load; nobody waits for a lock (the Kontur talk's experiments XIV and XV show what a lock here costs).
#[derive(Debug)]
pub struct MetadataCell {
    _private: (),
}

/// Which topics a client wants to know.
#[derive(Clone, Debug, PartialEq)]
pub enum Interest {
    /// Those that were named (producer; a consumer's assignment). Unused ones are forgotten after metadata.max.idle.ms.
    Named,
    /// All: a consumer with a pattern.
    All,
    /// None but brokers: the admin client.
    Nodes,
}

impl MetadataCell {
    pub fn new(_interest: Interest) -> MetadataCell {
        todo!()
    }

    pub fn load(&self) -> arc_swap::Guard<Arc<Snapshot>> {
        todo!()
    }

    pub fn set_interest(&self, _interest: Interest) {
        todo!()
    }

    /// Wants these topics known. True when one was not wanted before, so that the machine must be woken.
    pub fn want<'a>(&self, _topics: impl IntoIterator<Item = &'a str>) -> bool {
        todo!()
    }

    /// The topic, waiting until `deadline` for an answer that contains it.
    ///
    /// - Errors: `Timeout` with max.block.ms; the broker's error where waiting does not help (invalid name, not authorised).
    pub fn wait_for_topic(&self, _name: &str, _limit_ms: u64) -> Result<Arc<Topic>, Error> {
        todo!()
    }

    /// Wakes every waiter with `Closed`.
    pub fn close(&self) {
        todo!()
    }
}
