//! In place of telemetry/mod.rs in a build without the cargo feature `telemetry`: pushes nothing.

use std::sync::Arc;

use bytes::Bytes;

use super::ClientMetrics;
use super::instance_id::{InstanceId, InstanceState};
use crate::config::ClientConfig;
use crate::error::Error;
use crate::metadata::snapshot::NodeId;
use crate::network::cluster::Cluster;
use crate::network::io::Action;
use crate::time::{Moment, Timestamp};

/// The sub-machine, without requests.
#[derive(Debug)]
pub struct Telemetry {
    instance: Arc<InstanceId>,
    is_closed: bool,
}

impl Telemetry {
    pub fn new(_config: &ClientConfig, _metrics: Arc<ClientMetrics>, _seed: u64) -> Telemetry {
        let instance = Arc::new(InstanceId::default());
        instance.set(InstanceState::Never);
        Telemetry {
            instance,
            is_closed: false,
        }
    }

    pub fn instance(&self) -> &Arc<InstanceId> {
        &self.instance
    }

    pub fn turn<T>(
        &mut self,
        _now: Moment,
        _wall: Timestamp,
        _cluster: &mut Cluster<T>,
        _ticket: impl FnOnce() -> T,
        _actions: &mut Vec<Action>,
    ) {
    }

    pub fn next_deadline(&self) -> Option<Moment> {
        None
    }

    pub fn take_reply(&mut self, _now: Moment, _node: NodeId, _result: Result<Bytes, Error>) {}

    pub fn close(&mut self, _now: Moment) {
        self.is_closed = true;
    }

    pub fn is_closed(&mut self, _now: Moment) -> bool {
        self.is_closed
    }
}
