//! The thread under a machine: sockets, names, TLS, sleeping and waking. The only part with I/O.

use std::sync::Arc;

use crate::config::ClientConfig;
use crate::error::Error;
use crate::metrics::NetworkMetrics;
use crate::network::io::{Machine, Wake};

/// A running driver; its thread ends when the machine is finished.
#[derive(Debug)]
pub struct Driver {
    _private: (),
}

/// Made before the machine, so that the machine's shared parts can hold the waker.
#[derive(Debug)]
pub struct DriverSetup {
    _private: (),
}

impl DriverSetup {
    /// - Errors: `Config` for key stores that cannot be read; `Disconnected` when the system has no more descriptors.
    pub fn new(_config: &Arc<ClientConfig>, _metrics: &Arc<NetworkMetrics>) -> Result<DriverSetup, Error> {
        todo!()
    }

    pub fn waker(&self) -> Arc<dyn Wake> {
        todo!()
    }

    /// `name` is the thread's name, e.g. `ottla-producer`.
    pub fn start(self, _name: &str, _machine: Box<dyn Machine>) -> Result<Driver, Error> {
        todo!()
    }
}

impl Driver {
    /// Waits for the thread; false when it did not end within `limit`.
    pub fn join(&mut self, _limit: std::time::Duration) -> bool {
        todo!()
    }
}
