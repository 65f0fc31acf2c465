//! What can be configured by requests: topics, brokers, client metrics, groups.

use std::collections::BTreeMap;
use std::sync::Arc;

/// A resource that has configurations: its type as on the wire, and its name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConfigResource {
    pub resource_type: ConfigResourceType,
    /// Empty for the cluster-wide default of a broker resource.
    pub name: Arc<str>,
}

impl ConfigResource {
    pub fn topic(name: &str) -> ConfigResource {
        ConfigResource {
            resource_type: ConfigResourceType::Topic,
            name: name.into(),
        }
    }

    pub fn broker(node_id: i32) -> ConfigResource {
        ConfigResource {
            resource_type: ConfigResourceType::Broker,
            name: node_id.to_string().into(),
        }
    }

    /// Returns the resource of the defaults of all brokers.
    pub fn cluster_default() -> ConfigResource {
        ConfigResource {
            resource_type: ConfigResourceType::Broker,
            name: "".into(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConfigResourceType {
    Topic,
    Broker,
    ClientMetrics,
    Group,
}

impl ConfigResourceType {
    pub fn from_code(code: i8) -> Option<ConfigResourceType> {
        match code {
            2 => Some(ConfigResourceType::Topic),
            4 => Some(ConfigResourceType::Broker),
            16 => Some(ConfigResourceType::ClientMetrics),
            32 => Some(ConfigResourceType::Group),
            _ => None,
        }
    }

    pub fn code(self) -> i8 {
        match self {
            ConfigResourceType::Topic => 2,
            ConfigResourceType::Broker => 4,
            ConfigResourceType::ClientMetrics => 16,
            ConfigResourceType::Group => 32,
        }
    }
}

/// The values set on one resource.
pub type ConfigValues = BTreeMap<Arc<str>, Arc<str>>;
