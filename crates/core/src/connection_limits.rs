//! The limits on connections at this moment, for the threads that accept them.

use std::sync::Arc;

use arc_swap::ArcSwap;
use tracing::error;

use crate::config::{ConfigError, ConnectionLimits};

/// Limits that can change while connections are accepted.
#[derive(Debug)]
pub struct LiveConnectionLimits(ArcSwap<ConnectionLimits>);

impl LiveConnectionLimits {
    pub fn new(limits: ConnectionLimits) -> LiveConnectionLimits {
        LiveConnectionLimits(ArcSwap::from_pointee(limits))
    }

    pub fn now(&self) -> Arc<ConnectionLimits> {
        self.0.load_full()
    }

    /// Takes over changed limits. Connections that are open stay open.
    ///
    /// - `changed`: an error only for values that Apache Kafka wrote: AlterConfigs refuses them
    ///   here.
    pub(crate) fn follow(&self, changed: Result<ConnectionLimits, ConfigError>) {
        match changed {
            Ok(limits) => self.0.store(Arc::new(limits)),
            Err(error) => error!(%error, "the limits on connections stay as they were"),
        }
    }
}
