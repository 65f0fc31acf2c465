//! Decisions about configurations: which resources accept which values, and the records for it.

use std::collections::BTreeMap;
use std::sync::Arc;

use ottla_wire::config_keys::{BrokerKeyStatus, ValueType, broker_key_status};
use ottla_wire::error_code::ErrorCode;
use ottla_wire::metadata_records::{MetadataRecord, config::ConfigRecord};

use super::Decider;
use super::topics::topic_name_problem;
use crate::access::granted::GrantedConfig;
use crate::config;
use crate::config::{ConfigError, ConfigResource, ConfigResourceType, ConfigValues};
use crate::image::record::RecordList;
use crate::refusal::Refusal;
use crate::telemetry::subscription::{self, SubscriptionError};

/// An operation of IncrementalAlterConfigs on one value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigOperation {
    Set(String),
    Delete,
    /// Adds elements to a list, as the client writes them: `a,b`.
    Append(String),
    Subtract(String),
}

/// All changes of one request to one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigChange {
    pub resource: GrantedConfig,
    pub operations: Vec<(String, ConfigOperation)>,
}

/// The values that AlterConfigs leaves a resource with: settings that are not named are removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigReplacement {
    pub resource: GrantedConfig,
    pub values: Vec<(String, Option<String>)>,
}

const MIN_IN_SYNC: &str = "min.insync.replicas";
// Kafka's limit: the length of a string in the older encodings is an i16.
const VALUE_BYTES_MAX: usize = i16::MAX as usize;

impl Decider<'_> {
    /// Decides about every resource of an IncrementalAlterConfigs request, in the request's order.
    pub fn alter_configs_incrementally(
        &self,
        changes: &[ConfigChange],
    ) -> (RecordList, Vec<Result<(), Refusal>>) {
        let mut records = RecordList::default();
        let results = changes
            .iter()
            .map(|change| self.alter_resource(change, &mut records))
            .collect();
        (records, results)
    }

    /// Decides about every resource of an AlterConfigs request, in the request's order.
    pub fn replace_configs(
        &self,
        replacements: &[ConfigReplacement],
    ) -> (RecordList, Vec<Result<(), Refusal>>) {
        let mut records = RecordList::default();
        let results = replacements
            .iter()
            .map(|change| self.replace_resource(change, &mut records))
            .collect();
        (records, results)
    }

    fn current_values(&self, resource: &ConfigResource) -> Arc<ConfigValues> {
        self.image.config(resource).cloned().unwrap_or_default()
    }

    fn alter_resource(&self, change: &ConfigChange, records: &mut RecordList) -> Result<(), Refusal> {
        let resource = change.resource.resource();
        let current = self.current_values(resource);
        let mut next = ConfigValues::clone(&current);
        let mut touched = BTreeMap::<Arc<str>, Option<Arc<str>>>::new();
        for (key, operation) in &change.operations {
            let key: Arc<str> = key.as_str().into();
            if touched.contains_key(&key) {
                return Err(Refusal::new(
                    ErrorCode::InvalidRequest,
                    format!("Error due to duplicate config keys: {key}"),
                ));
            }
            let value = match operation {
                ConfigOperation::Set(value) => Some(Arc::from(value.as_str())),
                ConfigOperation::Delete => None,
                ConfigOperation::Append(elements) => {
                    Some(self.edit_list(change, &current, &key, elements, true)?)
                }
                ConfigOperation::Subtract(elements) => {
                    Some(self.edit_list(change, &current, &key, elements, false)?)
                }
            };
            match &value {
                Some(value) => next.insert(key.clone(), value.clone()),
                None => next.remove(&key),
            };
            touched.insert(key, value);
        }
        self.check_resource(resource, &touched, &next)?;
        self.push_changes(resource, &current, &touched, records);
        Ok(())
    }

    fn edit_list(
        &self,
        change: &ConfigChange,
        current: &ConfigValues,
        key: &Arc<str>,
        elements: &str,
        append: bool,
    ) -> Result<Arc<str>, Refusal> {
        let row = config::key_of(change.resource.resource().resource_type, key);
        if row.map(|row| row.value_type) != Some(ValueType::List) {
            let operation = if append { "APPEND" } else { "SUBTRACT" };
            return Err(Refusal::new(
                ErrorCode::InvalidConfig,
                format!("Can't {operation} to key {key} because its type is not LIST."),
            ));
        }
        let default = row.and_then(|row| row.default).unwrap_or_default();
        let start = current.get(key).map_or(default, |value| value);
        let mut list: Vec<&str> = start
            .split(',')
            .map(str::trim)
            .filter(|element| !element.is_empty())
            .collect();
        for element in elements.split(',').map(str::trim) {
            match (append, list.iter().position(|known| *known == element)) {
                (true, None) => list.push(element),
                (false, Some(index)) => {
                    list.remove(index);
                }
                (true, Some(_)) | (false, None) => {}
            }
        }
        Ok(list.join(",").into())
    }

    fn replace_resource(&self, change: &ConfigReplacement, records: &mut RecordList) -> Result<(), Refusal> {
        let resource = change.resource.resource();
        let current = self.current_values(resource);
        let mut next = ConfigValues::new();
        let mut touched: BTreeMap<Arc<str>, Option<Arc<str>>> =
            current.keys().map(|key| (key.clone(), None)).collect();
        for (key, value) in &change.values {
            let Some(value) = value else {
                return Err(Refusal::new(
                    ErrorCode::InvalidRequest,
                    format!("Null value not supported for : {key}"),
                ));
            };
            let (key, value): (Arc<str>, Arc<str>) = (key.as_str().into(), value.as_str().into());
            next.insert(key.clone(), value.clone());
            touched.insert(key, Some(value));
        }
        self.check_resource(resource, &touched, &next)?;
        self.push_changes(resource, &current, &touched, records);
        Ok(())
    }

    fn push_changes(
        &self,
        resource: &ConfigResource,
        current: &ConfigValues,
        touched: &BTreeMap<Arc<str>, Option<Arc<str>>>,
        records: &mut RecordList,
    ) {
        for (key, value) in touched {
            // As in Apache Kafka (KAFKA-14136), a store that is set once more is read again.
            let is_of_tls = config::is_of_tls(resource.resource_type, key);
            if current.get(key) == value.as_ref() && !(is_of_tls && value.is_some()) {
                continue;
            }
            let record = ConfigRecord {
                resource_type: resource.resource_type.code(),
                resource_name: &resource.name,
                name: key,
                value: value.as_deref(),
            };
            records.push(MetadataRecord::Config(record), 0);
        }
    }

    fn check_resource(
        &self,
        resource: &ConfigResource,
        touched: &BTreeMap<Arc<str>, Option<Arc<str>>>,
        next: &ConfigValues,
    ) -> Result<(), Refusal> {
        let invalid = |message: String| Err(Refusal::new(ErrorCode::InvalidConfig, message));
        if let Some((key, value)) = touched
            .iter()
            .find_map(|(key, value)| Some((key, value.as_ref()?)).filter(|(_, v)| v.len() > VALUE_BYTES_MAX))
        {
            return invalid(format!(
                "value of {key} has {} bytes, {VALUE_BYTES_MAX} are allowed",
                value.len()
            ));
        }
        // Settings of Apache Kafka that are unknown here must not fail this request.
        let is_judged = |key: &Arc<str>| {
            touched.contains_key(key) || config::key_of(resource.resource_type, key).is_some()
        };
        let next = &next
            .iter()
            .filter(|(key, _)| is_judged(key))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect::<ConfigValues>();
        match resource.resource_type {
            ConfigResourceType::Topic => self.check_topic(&resource.name, next),
            ConfigResourceType::Broker => self.check_broker(resource, touched, next),
            ConfigResourceType::Group => {
                if resource.name.is_empty() {
                    return Err(Refusal::new(
                        ErrorCode::InvalidRequest,
                        "Default group resources are not allowed.",
                    ));
                }
                let limits = &self.config.group.consumer.limits;
                let problem =
                    config::values_error(resource.resource_type, next).or_else(|| limits.values_error(next));
                match problem {
                    Some(problem) => invalid(problem),
                    None => Ok(()),
                }
            }
            ConfigResourceType::ClientMetrics => {
                if resource.name.is_empty() {
                    return Err(Refusal::new(
                        ErrorCode::InvalidRequest,
                        "Default client metrics resources are not allowed.",
                    ));
                }
                subscription::check(next).map_err(|error| match error {
                    SubscriptionError::Request(problem) => Refusal::new(ErrorCode::InvalidRequest, problem),
                    SubscriptionError::Config(problem) => Refusal::new(ErrorCode::InvalidConfig, problem),
                })
            }
        }
    }

    fn check_topic(&self, name: &str, next: &ConfigValues) -> Result<(), Refusal> {
        if name.is_empty() {
            return Err(Refusal::new(
                ErrorCode::InvalidRequest,
                "Default topic resources are not allowed.",
            ));
        }
        if let Some(problem) = topic_name_problem(name) {
            return Err(Refusal::new(ErrorCode::InvalidTopicException, problem));
        }
        if let Some(problem) = config::topic_values_error(next) {
            return Err(Refusal::new(ErrorCode::InvalidConfig, problem));
        }
        if self.image.topic(name).is_none() {
            return Err(Refusal::new(
                ErrorCode::UnknownTopicOrPartition,
                format!("The topic '{name}' does not exist."),
            ));
        }
        Ok(())
    }

    fn check_broker(
        &self,
        resource: &ConfigResource,
        touched: &BTreeMap<Arc<str>, Option<Arc<str>>>,
        next: &ConfigValues,
    ) -> Result<(), Refusal> {
        if !resource.name.is_empty() {
            let Ok(node_id) = resource.name.parse::<i32>() else {
                return Err(Refusal::new(
                    ErrorCode::InvalidRequest,
                    format!("Node id must be an integer, but it is: {}", resource.name),
                ));
            };
            if node_id != self.config.node_id {
                return Err(Refusal::new(
                    ErrorCode::InvalidRequest,
                    format!(
                        "Unexpected broker id, expected {}, but received {node_id}",
                        self.config.node_id
                    ),
                ));
            }
        }
        // As in Apache Kafka, whose tools remove settings whether they are set or not. A misspelt
        // one is told.
        let is_removed = |key: &str, value: &Option<Arc<str>>| {
            value.is_none() && !matches!(broker_key_status(key), BrokerKeyStatus::Unknown { .. })
        };
        for (key, _) in touched.iter().filter(|(key, value)| !is_removed(key, value)) {
            if let Some(problem) = config::broker_update_problem(key, resource.name.is_empty()) {
                return Err(Refusal::new(ErrorCode::InvalidRequest, problem));
            }
        }
        // KAFKA-13609: Apache Kafka also answers INVALID_REQUEST here.
        let invalid = |problem: String| Err(Refusal::new(ErrorCode::InvalidRequest, problem));
        match config::values_error(resource.resource_type, next) {
            Some(problem) => invalid(problem),
            None => self
                .check_listeners(resource, touched, next)
                .or_else(|error| invalid(error.to_string())),
        }?;
        self.check_min_in_sync(resource, touched)
    }

    /// KIP-966: with eligible leader replicas every broker has the cluster's value, which is always
    /// there.
    fn check_min_in_sync(
        &self,
        resource: &ConfigResource,
        touched: &BTreeMap<Arc<str>, Option<Arc<str>>>,
    ) -> Result<(), Refusal> {
        let Some(value) = touched.get(MIN_IN_SYNC) else {
            return Ok(());
        };
        let problem = match (&*resource.name, value) {
            ("", Some(_)) => return Ok(()),
            ("", None) => "Cluster-level min.insync.replicas cannot be removed while ELR is enabled.",
            (_, _) => "Broker-level min.insync.replicas cannot be altered while ELR is enabled.",
        };
        match self.image.features.eligible_leader_replicas() {
            true => Err(Refusal::new(ErrorCode::InvalidConfig, problem)),
            false => Ok(()),
        }
    }

    /// Checks whether every listener can be as the next values of one resource say, together with
    /// the file and the other resource.
    fn check_listeners(
        &self,
        resource: &ConfigResource,
        touched: &BTreeMap<Arc<str>, Option<Arc<str>>>,
        next: &ConfigValues,
    ) -> Result<(), ConfigError> {
        let is_touched = |is_one: &dyn Fn(&str) -> bool| touched.keys().any(|key| is_one(key));
        let (listeners, settings) = (&self.config.listeners, self.settings_with(resource, next));
        if is_touched(&config::is_of_addresses) {
            config::check_addresses(&settings)?;
        }
        if is_touched(&config::is_of_connections) {
            config::connection_limits_of(listeners, &settings)?;
        }
        if is_touched(&config::is_of_security) {
            config::security_of(listeners, &settings)?;
        }
        if is_touched(&|key| config::is_of_tls(resource.resource_type, key))
            && let Some(key_stores) = self.key_stores
        {
            key_stores.check(&settings)?;
        }
        Ok(())
    }

    /// Returns this broker's settings with the next values of one resource.
    fn settings_with(&self, resource: &ConfigResource, next: &ConfigValues) -> BTreeMap<String, String> {
        let image_values = |resource| self.image.config(&resource).map(|values| &**values);
        let defaults = image_values(ConfigResource::cluster_default());
        let own = image_values(ConfigResource::broker(self.config.node_id));
        let layers = if resource.name.is_empty() {
            [Some(next), own]
        } else {
            [defaults, Some(next)]
        };
        config::effective_settings(&self.config.static_config, layers.into_iter().flatten())
    }
}

#[cfg(test)]
mod tests {
    use ottla_wire::metadata_records::feature_level::FeatureLevelRecord;

    use super::super::tests::{NOW, World};
    use super::*;
    use crate::image::features::ELIGIBLE_LEADER_REPLICAS_VERSION;

    fn alter(
        world: &mut World,
        resource: &ConfigResource,
        key: &str,
        operation: ConfigOperation,
    ) -> Result<(), Refusal> {
        let change = ConfigChange {
            resource: GrantedConfig::of(resource.clone()),
            operations: vec![(key.to_owned(), operation)],
        };
        let mut controller = world.start();
        let results = controller.alter_configs_incrementally(&[change], false, NOW);
        results.unwrap().remove(0)
    }

    #[test]
    fn an_unknown_setting_is_kept_and_does_not_fail_other_changes() {
        let mut world = World::new("unknown-setting");
        let defaults = ConfigResource::cluster_default();
        let mut controller = world.start();
        // A setting of Apache Kafka that is unknown here, as its own controller writes it.
        let record = ConfigRecord {
            resource_type: defaults.resource_type.code(),
            resource_name: &defaults.name,
            name: "cordoned.log.dirs",
            value: Some("600"),
        };
        let mut records = RecordList::default();
        records.push(MetadataRecord::Config(record), 0);
        controller
            .write(&records, super::super::Atomicity::EachBatch, NOW)
            .unwrap();
        drop(controller);
        let set = |value: &str| ConfigOperation::Set(value.to_owned());
        assert_eq!(
            alter(&mut world, &defaults, "log.retention.ms", set("1000")),
            Ok(())
        );
        let values = world.start().image().configs[&defaults].clone();
        assert_eq!(&*values["cordoned.log.dirs"], "600");

        let refused = alter(&mut world, &defaults, "cordoned.log.dirs", set("700"));
        assert_eq!(refused.unwrap_err().code, ErrorCode::InvalidRequest);
        assert_eq!(
            alter(
                &mut world,
                &defaults,
                "cordoned.log.dirs",
                ConfigOperation::Delete
            ),
            Ok(())
        );
        assert!(!world.start().image().configs[&defaults].contains_key("cordoned.log.dirs"));
        let misspelt = alter(
            &mut world,
            &defaults,
            "remote.fetch.max.wait",
            ConfigOperation::Delete,
        );
        assert_eq!(misspelt.unwrap_err().code, ErrorCode::InvalidRequest);
    }

    #[test]
    fn addresses_that_no_start_would_take_are_refused() {
        let mut world = World::new("dynamic-addresses");
        let own = ConfigResource::broker(1);
        let set = |value: &str| ConfigOperation::Set(value.to_owned());
        for (key, value, problem) in [
            ("listeners", "somewhere", "somewhere"),
            ("listeners", "", "names no listener"),
            ("listener.security.protocol.map", "PLAINTEXT", "PLAINTEXT"),
            ("listener.security.protocol.map", "", "names no listener"),
        ] {
            let refusal = alter(&mut world, &own, key, set(value)).unwrap_err();
            assert_eq!(refusal.code, ErrorCode::InvalidRequest, "{key}");
            assert!(refusal.message.contains(problem), "{}", refusal.message);
        }
        let other = "PLAINTEXT://127.0.0.1:19092";
        assert_eq!(alter(&mut world, &own, "listeners", set(other)), Ok(()));
    }

    #[test]
    fn with_eligible_leader_replicas_the_cluster_has_a_minimum_and_no_broker_its_own() {
        let mut world = World::new("elr-minimum");
        let (defaults, own) = (ConfigResource::cluster_default(), ConfigResource::broker(1));
        let set = || ConfigOperation::Set("2".to_owned());
        assert_eq!(alter(&mut world, &own, MIN_IN_SYNC, set()), Ok(()));
        assert_eq!(
            alter(&mut world, &own, MIN_IN_SYNC, ConfigOperation::Delete),
            Ok(())
        );
        let record = FeatureLevelRecord {
            name: ELIGIBLE_LEADER_REPLICAS_VERSION,
            feature_level: 1,
        };
        let mut records = RecordList::default();
        records.push(MetadataRecord::FeatureLevel(record), 0);
        let mut controller = world.start();
        controller
            .write(&records, super::super::Atomicity::EachBatch, NOW)
            .unwrap();
        drop(controller);
        assert_eq!(alter(&mut world, &defaults, MIN_IN_SYNC, set()), Ok(()));
        for (resource, operation) in [
            (&own, set()),
            (&own, ConfigOperation::Delete),
            (&defaults, ConfigOperation::Delete),
        ] {
            let refusal = alter(&mut world, resource, MIN_IN_SYNC, operation).unwrap_err();
            assert_eq!(refusal.code, ErrorCode::InvalidConfig);
        }
    }

    #[test]
    fn every_known_setting_may_be_removed_even_where_it_may_not_be_set() {
        let mut world = World::new("removed-settings");
        let defaults = ConfigResource::cluster_default();
        for key in [
            "sasl.enabled.mechanisms",
            "ssl.keystore.location",
            "num.partitions",
            "listener.name.other.ssl.keystore.location",
        ] {
            let set = ConfigOperation::Set("some.value".to_owned());
            let refusal = alter(&mut world, &defaults, key, set).unwrap_err();
            assert_eq!(refusal.code, ErrorCode::InvalidRequest, "{key}");
            assert_eq!(
                alter(&mut world, &defaults, key, ConfigOperation::Delete),
                Ok(()),
                "{key}"
            );
        }
    }

    #[test]
    fn the_users_of_plain_can_be_changed_and_only_to_a_valid_entry() {
        const KEY: &str = "listener.name.sasl_plaintext.plain.sasl.jaas.config";
        const MODULE: &str = "org.apache.kafka.common.security.plain.PlainLoginModule";
        let jaas = |password: &str| format!("{MODULE} required user_alice=\"{password}\";");
        let mut world = World::new("plain-users");
        world.lines = vec![
            ("listeners", "SASL_PLAINTEXT://127.0.0.1:0".to_owned()),
            ("sasl.enabled.mechanisms", "PLAIN".to_owned()),
            (KEY, jaas("first")),
        ];
        let own = ConfigResource::broker(1);
        let set = |value: &str| ConfigOperation::Set(value.to_owned());
        assert_eq!(alter(&mut world, &own, KEY, set(&jaas("second"))), Ok(()));
        let refused = |world: &mut World, resource: &ConfigResource, key: &str, value: &str| {
            let refusal = alter(world, resource, key, set(value)).unwrap_err();
            assert_eq!(refusal.code, ErrorCode::InvalidRequest);
            assert!(!refusal.message.contains("secret"), "{}", refusal.message);
            refusal.message
        };
        let broken = refused(&mut world, &own, KEY, "x required user_alice=\"secret\";");
        assert!(broken.contains("PlainLoginModule"), "{broken}");
        let everywhere = refused(
            &mut world,
            &ConfigResource::cluster_default(),
            KEY,
            &jaas("secret"),
        );
        assert!(everywhere.contains("default cluster level"), "{everywhere}");
        let kerberos = refused(&mut world, &own, "sasl.enabled.mechanisms", "GSSAPI");
        assert!(kerberos.contains("Kerberos"), "{kerberos}");
        let fixed = refused(
            &mut world,
            &own,
            "listener.name.sasl_plaintext.connections.max.reauth.ms",
            "1",
        );
        assert!(fixed.contains("dynamically"), "{fixed}");
        assert_eq!(&*world.start().image().configs[&own][KEY], jaas("second"));
        // Back to the file's.
        assert_eq!(alter(&mut world, &own, KEY, ConfigOperation::Delete), Ok(()));
    }
}
