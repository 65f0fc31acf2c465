//! Finalized feature levels: which of them this broker accepts in a directory, and which of them it
//! serves.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

pub const METADATA_VERSION: &str = "metadata.version";
pub const KRAFT_VERSION: &str = "kraft.version";
pub const GROUP_VERSION: &str = "group.version";
pub const TRANSACTION_VERSION: &str = "transaction.version";
pub const ELIGIBLE_LEADER_REPLICAS_VERSION: &str = "eligible.leader.replicas.version";
pub const SHARE_VERSION: &str = "share.version";
pub const STREAMS_VERSION: &str = "streams.version";

/// A feature and the levels accepted in a directory: the broker either understands their records or
/// keeps them unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptFeature {
    pub name: &'static str,
    pub min: i16,
    pub max: i16,
    /// The highest level whose requests are served. Clients rely on the announced API keys instead.
    pub served_max: i16,
}

const fn kept(name: &'static str, min: i16, max: i16, served_max: i16) -> KeptFeature {
    KeptFeature {
        name,
        min,
        max,
        served_max,
    }
}

/// Sorted by name. A feature that is not listed counts as 0 to 0.
///
/// Registrations contain these ranges, because Apache Kafka demands that every registered broker
/// covers every finalized level.
pub const KEPT_FEATURES: [KeptFeature; 7] = [
    kept(ELIGIBLE_LEADER_REPLICAS_VERSION, 0, 1, 1),
    kept(GROUP_VERSION, 0, 1, 1),
    kept(KRAFT_VERSION, 0, 1, 1),
    // 23 is 4.0-IV1, the first level whose partition records have the fields of KIP-966; 30 is
    // 4.3-IV0.
    kept(METADATA_VERSION, 23, 30, 30),
    kept(SHARE_VERSION, 0, 1, 0),
    kept(STREAMS_VERSION, 0, 1, 0),
    kept(TRANSACTION_VERSION, 0, 2, 2),
];

/// The levels of a newly formatted directory. 27 is 4.1-IV1: every Apache Kafka from 4.1 on can
/// take over the directory, and the levels above add nothing that a single node uses.
pub const FORMAT_LEVELS: [(&str, i16); 3] = [
    (METADATA_VERSION, 27),
    (GROUP_VERSION, 1),
    (TRANSACTION_VERSION, 2),
];

/// Returns the levels of `name` that a directory may have, as (lowest, highest).
pub fn kept_range(name: &str) -> (i16, i16) {
    KEPT_FEATURES
        .iter()
        .find(|feature| feature.name == name)
        .map_or((0, 0), |feature| (feature.min, feature.max))
}

/// Returns the lowest level to which a metadata version may be lowered: just after the last level
/// that changed the format of a record, since such a record would be lost on the way down. Of the
/// accepted levels only 4.3-IV0 changed one, by adding cordoned directories.
pub fn lowest_metadata_version_below(level: i16) -> i16 {
    let (min, _) = kept_range(METADATA_VERSION);
    if level >= FIRST_VERSION_WITH_CORDONED_DIRECTORIES {
        FIRST_VERSION_WITH_CORDONED_DIRECTORIES
    } else {
        min
    }
}

/// 4.3-IV0.
const FIRST_VERSION_WITH_CORDONED_DIRECTORIES: i16 = 30;

/// A finalized level outside the accepted range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnkeptLevel {
    pub name: Arc<str>,
    pub level: i16,
}

impl fmt::Display for UnkeptLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (min, max) = kept_range(&self.name);
        write!(
            f,
            "{}={}, this broker keeps {min} to {max}",
            self.name, self.level
        )
    }
}

impl UnkeptLevel {
    /// Returns what an operator can do about a directory that has been used.
    pub fn way_out(&self) -> String {
        let (min, max) = kept_range(&self.name);
        let name = &self.name;
        let features = "`kafka-features --bootstrap-server HOST:PORT";
        if **name == *KRAFT_VERSION {
            return "it cannot be lowered: serve the directory with apache kafka".to_owned();
        }
        if **name != *METADATA_VERSION {
            return format!(
                "start apache kafka on it, lower the level with {features} downgrade --feature {name}={max}`, and stop it with \
                 SIGTERM"
            );
        }
        if self.level < min {
            return format!(
                "start apache kafka 4.0 or later on it, raise the level with {features} upgrade --release-version 4.0`, and \
                 stop it with SIGTERM"
            );
        }
        format!(
            "start apache kafka on it, try {features} downgrade --release-version 4.3`, and stop it with SIGTERM; where apache \
             kafka refuses to lower it, the form of records has changed, and only apache kafka can serve the directory"
        )
    }

    /// Returns what an operator can do about a directory that was formatted and never started.
    pub fn way_out_before_first_start(&self) -> String {
        let (min, max) = kept_range(&self.name);
        let levels = match &*self.name {
            METADATA_VERSION if self.level < min => "--release-version 4.0".to_owned(),
            METADATA_VERSION => "--release-version 4.3".to_owned(),
            name => format!("--feature {name}={max}"),
        };
        format!(
            "no broker has used the directory yet: empty it, and format it again with `kafka-storage format {levels}`"
        )
    }
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

    /// Returns the first level that this broker does not accept. Call it at the end of a replay: a
    /// later record may lower a level again.
    pub fn unkept(&self) -> Option<UnkeptLevel> {
        let is_kept = |name: &str, level: i16| {
            let (min, max) = kept_range(name);
            (min..=max).contains(&level)
        };
        self.levels
            .iter()
            .find(|(name, level)| !is_kept(name, **level))
            .map(|(name, level)| UnkeptLevel {
                name: name.clone(),
                level: *level,
            })
    }

    /// Returns levels that are kept in the directory although their features are not served: those
    /// that new directories do not have.
    pub fn kept_unserved(&self) -> impl Iterator<Item = (&'static str, i16)> + '_ {
        KEPT_FEATURES
            .iter()
            .map(|feature| (feature, self.level(feature.name)))
            .filter(|(feature, level)| *level > feature.served_max)
            .map(|(feature, level)| (feature.name, level))
            .filter(|of| !FORMAT_LEVELS.contains(of))
    }

    /// 0 before the first record of it.
    pub fn metadata_version(&self) -> i16 {
        self.level(METADATA_VERSION)
    }

    /// Whether KIP-966 is on: partitions keep eligible leader replicas.
    pub fn eligible_leader_replicas(&self) -> bool {
        self.level(ELIGIBLE_LEADER_REPLICAS_VERSION) > 0
    }

    /// Returns the version in which RegisterBrokerRecord is written at this level.
    pub fn register_broker_record_version(&self) -> i16 {
        if self.metadata_version() >= FIRST_VERSION_WITH_CORDONED_DIRECTORIES {
            4
        } else {
            3
        }
    }
}
