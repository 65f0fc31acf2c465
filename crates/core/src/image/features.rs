//! Finalized feature levels, and which of them this broker understands.

use std::collections::BTreeMap;
use std::sync::Arc;

pub const METADATA_VERSION: &str = "metadata.version";
pub const KRAFT_VERSION: &str = "kraft.version";
pub const GROUP_VERSION: &str = "group.version";
pub const TRANSACTION_VERSION: &str = "transaction.version";
pub const ELIGIBLE_LEADER_REPLICAS_VERSION: &str = "eligible.leader.replicas.version";
pub const SHARE_VERSION: &str = "share.version";
pub const STREAMS_VERSION: &str = "streams.version";

/// A feature and the levels of it that this broker can work with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SupportedFeature {
    pub name: &'static str,
    pub min: i16,
    pub max: i16,
}

/// In the order of their names. A feature that is not here counts as 0 to 0.
pub const SUPPORTED_FEATURES: [SupportedFeature; 5] = [
    SupportedFeature {
        name: ELIGIBLE_LEADER_REPLICAS_VERSION,
        min: 0,
        max: 1,
    },
    SupportedFeature {
        name: GROUP_VERSION,
        min: 0,
        max: 1,
    },
    SupportedFeature {
        name: KRAFT_VERSION,
        min: 0,
        max: 1,
    },
    // 23 is 4.0-IV1, the first level whose partition records have the fields of KIP-966; 30 is 4.3-IV0.
    SupportedFeature {
        name: METADATA_VERSION,
        min: 23,
        max: 30,
    },
    SupportedFeature {
        name: TRANSACTION_VERSION,
        min: 0,
        max: 2,
    },
];

/// What a new directory is formatted with. 27 is 4.1-IV1: every Apache Kafka from 4.1 on can take the directory over,
/// and the levels above add nothing that a single node uses.
pub const FORMAT_LEVELS: [(&str, i16); 3] = [
    (METADATA_VERSION, 27),
    (GROUP_VERSION, 1),
    (TRANSACTION_VERSION, 2),
];

/// The levels of `name` that this broker can work with, as (lowest, highest).
pub fn supported_range(name: &str) -> (i16, i16) {
    SUPPORTED_FEATURES
        .iter()
        .find(|feature| feature.name == name)
        .map_or((0, 0), |feature| (feature.min, feature.max))
}

/// Finalized levels. A feature at level 0 is not in the map.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FeaturesImage {
    pub levels: BTreeMap<Arc<str>, i16>,
}

impl FeaturesImage {
    pub fn level(&self, name: &str) -> i16 {
        self.levels.get(name).copied().unwrap_or(0)
    }

    /// 0 before the first record said otherwise.
    pub fn metadata_version(&self) -> i16 {
        self.level(METADATA_VERSION)
    }

    /// KIP-966: partitions keep eligible leader replicas.
    pub fn eligible_leader_replicas(&self) -> bool {
        self.level(ELIGIBLE_LEADER_REPLICAS_VERSION) > 0
    }

    /// The version in which RegisterBrokerRecord is written at this level.
    pub fn register_broker_record_version(&self) -> i16 {
        // 4.3-IV0 adds cordoned directories.
        if self.metadata_version() >= 30 { 4 } else { 3 }
    }
}
