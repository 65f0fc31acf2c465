//! The nodes of the cluster: brokers and controllers as they registered.

use std::collections::BTreeMap;
use std::sync::Arc;

use ottla_wire::primitives::Uuid;

/// The address of a listener, by the listener's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointImage {
    pub listener_name: Arc<str>,
    pub host: Arc<str>,
    pub port: u16,
    /// Kafka's numbers: 0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL.
    pub security_protocol: i16,
}

impl EndpointImage {
    pub fn new(listener_name: &str, host: &str, port: u16, security_protocol: i16) -> EndpointImage {
        EndpointImage {
            listener_name: listener_name.into(),
            host: host.into(),
            port,
            security_protocol,
        }
    }
}

/// Levels that a node supports, as (lowest, highest), by feature.
pub type FeatureRanges = BTreeMap<Arc<str>, (i16, i16)>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokerImage {
    pub broker_id: i32,
    /// Offset in the metadata log at which the controller accepted the registration.
    pub broker_epoch: i64,
    /// One per process run.
    pub incarnation_id: Uuid,
    pub endpoints: Vec<EndpointImage>,
    pub features: FeatureRanges,
    pub rack: Option<Arc<str>>,
    pub fenced: bool,
    pub in_controlled_shutdown: bool,
    pub log_directories: Vec<Uuid>,
    /// KIP-1066. `None`: the registration did not say.
    pub cordoned_log_directories: Option<Vec<Uuid>>,
}

impl BrokerImage {
    pub fn endpoint(&self, listener_name: &str) -> Option<&EndpointImage> {
        self.endpoints
            .iter()
            .find(|endpoint| &*endpoint.listener_name == listener_name)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerImage {
    pub controller_id: i32,
    pub incarnation_id: Uuid,
    pub zk_migration_ready: bool,
    pub endpoints: Vec<EndpointImage>,
    pub features: FeatureRanges,
}
