//! Decisions about feature levels (KIP-584, KIP-1022): which changes are allowed, and the records
//! for them.

use ottla_wire::error_code::ErrorCode;
use ottla_wire::metadata_records::{MetadataRecord, config::ConfigRecord, feature_level::FeatureLevelRecord};

use super::Decider;
use crate::config::{ConfigResource, ConfigResourceType};
use crate::image::features::{
    ELIGIBLE_LEADER_REPLICAS_VERSION, KEPT_FEATURES, KRAFT_VERSION, METADATA_VERSION, kept_range,
    lowest_metadata_version_below,
};
use crate::image::record::RecordList;
use crate::refusal::Refusal;

/// Which changes of a level a client allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpgradeType {
    Upgrade,
    SafeDowngrade,
    UnsafeDowngrade,
    /// An unknown number.
    Unknown,
}

/// One feature of an UpdateFeatures request. Level 0 removes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeatureUpdate {
    pub name: String,
    pub level: i16,
    pub upgrade_type: UpgradeType,
}

/// All updates of one request: they are applied together or not at all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FeatureDecision {
    pub records: RecordList,
    /// kraft.version is not a record of the image: raising it makes the log itself list its voters
    /// (KIP-853).
    pub raises_kraft_version: bool,
}

const MIN_IN_SYNC_REPLICAS: &str = "min.insync.replicas";

impl Decider<'_> {
    /// Decides about an UpdateFeatures request; one refused update refuses all of them. Of two
    /// updates of one feature the later counts.
    pub fn update_features(&self, updates: &[FeatureUpdate]) -> Result<FeatureDecision, Refusal> {
        let mut decision = FeatureDecision::default();
        for (index, update) in updates.iter().enumerate() {
            if updates[index + 1..].iter().any(|later| later.name == update.name) {
                continue;
            }
            self.update_feature(update, &mut decision).map_err(|problem| {
                let name = &update.name;
                Refusal::new(
                    ErrorCode::InvalidUpdateVersion,
                    format!("{name} stays as it is, and all other features with it: {problem}"),
                )
            })?;
        }
        Ok(decision)
    }

    fn update_feature(&self, update: &FeatureUpdate, decision: &mut FeatureDecision) -> Result<(), String> {
        let FeatureUpdate {
            name,
            level,
            upgrade_type,
        } = update;
        let (level, current) = (*level, self.image.features.level(name));
        if *upgrade_type == UpgradeType::Unknown {
            return Err("the upgrade type is none of upgrade, safe and unsafe downgrade".to_owned());
        }
        if !KEPT_FEATURES.iter().any(|feature| feature.name == name) {
            return Err("there is no such feature".to_owned());
        }
        let (min, max) = kept_range(name);
        if !(min..=max).contains(&level) {
            return Err(format!("level {level} is not within {min} to {max}"));
        }
        if level < current && *upgrade_type == UpgradeType::Upgrade {
            return Err(format!(
                "an upgrade from {current} to {level} would be a downgrade"
            ));
        }
        if level > current && *upgrade_type != UpgradeType::Upgrade {
            return Err(format!(
                "a downgrade from {current} to {level} would be an upgrade"
            ));
        }
        match &**name {
            METADATA_VERSION if level < lowest_metadata_version_below(current) => {
                return Err(format!(
                    "records have another form since metadata version {}, and would be lost below it",
                    lowest_metadata_version_below(current)
                ));
            }
            KRAFT_VERSION if level < current => return Err("it cannot be lowered".to_owned()),
            KRAFT_VERSION => decision.raises_kraft_version |= level > current,
            ELIGIBLE_LEADER_REPLICAS_VERSION if level > current => {
                push_level(&mut decision.records, name, level);
                self.push_min_in_sync(&mut decision.records);
            }
            _ if level != current || **name == *METADATA_VERSION => {
                push_level(&mut decision.records, name, level);
            }
            _ => {}
        }
        Ok(())
    }

    /// KIP-966: eligible replicas follow from `min.insync.replicas`, so from now on all brokers
    /// must have the same value.
    pub(super) fn push_min_in_sync(&self, records: &mut RecordList) {
        let mut push = |resource: &ConfigResource, value: Option<&str>| {
            let record = ConfigRecord {
                resource_type: ConfigResourceType::Broker.code(),
                resource_name: &resource.name,
                name: MIN_IN_SYNC_REPLICAS,
                value,
            };
            records.push(MetadataRecord::Config(record), 0);
        };
        let has_value = |resource: &ConfigResource| {
            self.image
                .config(resource)
                .is_some_and(|values| values.contains_key(MIN_IN_SYNC_REPLICAS))
        };
        if !has_value(&ConfigResource::cluster_default()) {
            let values = &self.image.static_config.values;
            let value = values.get(MIN_IN_SYNC_REPLICAS).map_or("1", |value| value);
            push(&ConfigResource::cluster_default(), Some(value));
        }
        let own = ConfigResource::broker(self.config.node_id);
        if has_value(&own) {
            push(&own, None);
        }
    }
}

fn push_level(records: &mut RecordList, name: &str, feature_level: i16) {
    let record = FeatureLevelRecord { name, feature_level };
    records.push(MetadataRecord::FeatureLevel(record), 0);
}
