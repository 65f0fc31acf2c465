//! Decisions about topics: whether they may be created, grown and deleted, and the records for it.
//!
//! Every function reads an image and returns records; nothing changes until they are replayed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ottla_wire::error_code::ErrorCode;
use ottla_wire::metadata_records::{
    MetadataRecord, config::ConfigRecord, remove_topic::RemoveTopicRecord, topic::TopicRecord,
};
use ottla_wire::primitives::Uuid;

use super::Decider;
use crate::access::granted::{OwnedGrant, Topic};
use crate::config::{ConfigResourceType, ConfigValues};
use crate::config::{TopicConfig, topic_values_error};
use crate::image::METADATA_TOPIC;
use crate::image::MetadataImage;
use crate::image::record::RecordList;
use crate::image::snapshot::{PARTITION_RECORD_VERSION, partition_record};
use crate::image::topics::{PartitionImage, TopicImage};
use crate::quota::mutation::MutationQuota;
use crate::random::Random;
use crate::refusal::Refusal;

/// A topic as requested by a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewTopic {
    pub name: OwnedGrant<Topic>,
    /// −1: `num.partitions`.
    pub partition_count: i32,
    /// −1: `default.replication.factor`.
    pub replication_factor: i16,
    /// Partition number and its replicas; empty unless the client chose them.
    pub assignments: Vec<(i32, Vec<i32>)>,
    pub configs: Vec<(String, Option<String>)>,
}

/// A topic to be created, as decided.
#[derive(Clone, Debug, PartialEq)]
pub struct CreatedTopic {
    pub id: Uuid,
    pub partition_count: i32,
    pub replication_factor: i16,
    pub config: TopicConfig,
    pub values: ConfigValues,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewPartitions {
    pub topic: OwnedGrant<Topic>,
    /// Total number of partitions, old and new.
    pub count: i32,
    /// Replicas of each new partition.
    pub assignments: Option<Vec<Vec<i32>>>,
}

/// A topic to delete, by name or id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicToDelete {
    pub name: Option<String>,
    pub id: Uuid,
    /// For the topic of that name or id; `None`: there was none.
    pub granted: Option<OwnedGrant<Topic>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeletedTopic {
    pub name: Option<String>,
    pub id: Uuid,
    pub refusal: Option<Refusal>,
}

// As in Apache Kafka: more than this in one request would make a batch of records too large.
const PARTITIONS_PER_REQUEST_MAX: i64 = 10_000;
const TOPIC_NAME_BYTES_MAX: usize = 249;

/// Returns why `name` is no valid topic name, or `None` when it is.
pub fn topic_name_problem(name: &str) -> Option<String> {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    if name.is_empty() {
        return Some("topic name is invalid: it is empty".to_owned());
    }
    if name == "." || name == ".." {
        return Some(format!(
            "topic name is invalid: '{name}' is a directory of the file system"
        ));
    }
    if name.len() > TOPIC_NAME_BYTES_MAX {
        return Some(format!(
            "topic name is invalid: it has {} characters, {TOPIC_NAME_BYTES_MAX} are allowed",
            name.chars().count()
        ));
    }
    if !name.bytes().all(legal) {
        return Some(format!(
            "topic name is invalid: '{name}' has characters other than ASCII letters, digits, '.', '_' and '-'"
        ));
    }
    None
}

// '.' and '_' become the same character in metric names.
fn collision_key(name: &str) -> String {
    name.replace('.', "_")
}

fn has_collision_characters(name: &str) -> bool {
    name.contains(['.', '_'])
}

/// Indexes existing topics that may collide with a new name, because the names differ only in '.'
/// and '_'.
fn collision_index(image: &MetadataImage, topics: &[NewTopic]) -> BTreeMap<String, Arc<str>> {
    if !topics
        .iter()
        .any(|topic| has_collision_characters(topic.name.name()))
    {
        return BTreeMap::new();
    }
    let existing = image
        .topics
        .iter()
        .filter(|topic| has_collision_characters(&topic.name));
    existing
        .map(|topic| (collision_key(&topic.name), topic.name.clone()))
        .collect()
}

impl Decider<'_> {
    /// Decides about every topic of a CreateTopics request, in the request's order.
    ///
    /// - Shape: the results are parallel to `topics`; too many partitions in total refuse every
    ///   topic. Records are those of the accepted topics, each topic's together.
    pub fn create_topics(
        &self,
        topics: &[NewTopic],
        random: &Random,
        quota: &mut MutationQuota,
    ) -> (RecordList, Vec<Result<CreatedTopic, Refusal>>) {
        if let Err(refusal) = self.check_partition_total(topics) {
            return (RecordList::default(), vec![Err(refusal); topics.len()]);
        }
        let mut seen = BTreeMap::<&str, usize>::new();
        for topic in topics {
            *seen.entry(topic.name.name()).or_default() += 1;
        }
        let collisions = collision_index(self.image, topics);
        let mut records = RecordList::default();
        let mut results = Vec::with_capacity(topics.len());
        for topic in topics {
            results.push(if seen[&**topic.name.name()] > 1 {
                Err(Refusal::new(ErrorCode::InvalidRequest, "Duplicate topic name."))
            } else {
                self.create_topic(topic, &collisions, random, quota, &mut records)
            });
        }
        (records, results)
    }

    fn check_partition_total(&self, topics: &[NewTopic]) -> Result<(), Refusal> {
        let partitions_of = |topic: &NewTopic| match (topic.assignments.len(), topic.partition_count) {
            (0, -1) => i64::from(self.config.partition_count_default),
            (0, count) => i64::from(count.max(0)),
            (assigned, _) => assigned as i64,
        };
        let total: i64 = topics.iter().map(partitions_of).sum();
        if total > PARTITIONS_PER_REQUEST_MAX {
            return Err(Refusal::new(
                ErrorCode::PolicyViolation,
                format!("{total} partitions in one request, {PARTITIONS_PER_REQUEST_MAX} are allowed"),
            ));
        }
        Ok(())
    }

    fn create_topic(
        &self,
        topic: &NewTopic,
        collisions: &BTreeMap<String, Arc<str>>,
        random: &Random,
        quota: &mut MutationQuota,
        records: &mut RecordList,
    ) -> Result<CreatedTopic, Refusal> {
        let name = &**topic.name.name();
        if name == METADATA_TOPIC {
            return Err(Refusal::new(
                ErrorCode::InvalidRequest,
                format!("Creation of internal topic {METADATA_TOPIC} is prohibited."),
            ));
        }
        if let Some(problem) = topic_name_problem(name) {
            return Err(Refusal::new(ErrorCode::InvalidTopicException, problem));
        }
        if self.image.topic(name).is_some() {
            return Err(Refusal::new(
                ErrorCode::TopicAlreadyExists,
                format!("Topic '{name}' already exists."),
            ));
        }
        if has_collision_characters(name)
            && let Some(existing) = collisions.get(&collision_key(name))
        {
            return Err(Refusal::new(
                ErrorCode::InvalidTopicException,
                format!("Topic '{name}' collides with existing topic: {existing}"),
            ));
        }
        let values = creation_values(topic)?;
        if let Some(problem) = topic_values_error(&values) {
            return Err(Refusal::new(ErrorCode::InvalidConfig, problem));
        }
        let partition_count = self.partition_count(topic)?;
        quota.take(usize::try_from(partition_count).unwrap_or(0))?;
        let id = random.uuid();
        let created = CreatedTopic {
            id,
            partition_count,
            replication_factor: 1,
            config: self.image.topic_defaults.with(&values),
            values,
        };
        records.push(MetadataRecord::Topic(TopicRecord { name, topic_id: id }), 0);
        for (key, value) in &created.values {
            let record = ConfigRecord {
                resource_type: ConfigResourceType::Topic.code(),
                resource_name: name,
                name: key,
                value: Some(value),
            };
            records.push(MetadataRecord::Config(record), 0);
        }
        self.push_partitions(id, 0..partition_count, records);
        Ok(created)
    }

    fn partition_count(&self, topic: &NewTopic) -> Result<i32, Refusal> {
        if !topic.assignments.is_empty() {
            return self.assigned_partition_count(topic);
        }
        let replication_factor = match topic.replication_factor {
            -1 => self.config.replication_factor_default,
            factor => factor,
        };
        if topic.replication_factor < -1 || topic.replication_factor == 0 {
            return Err(Refusal::new(
                ErrorCode::InvalidReplicationFactor,
                "Replication factor must be larger than 0, or -1 to use the default value.",
            ));
        }
        let partition_count = match topic.partition_count {
            -1 => self.config.partition_count_default,
            count => count,
        };
        if partition_count <= 0 {
            return Err(Refusal::new(
                ErrorCode::InvalidPartitions,
                "Number of partitions was set to an invalid non-positive value.",
            ));
        }
        if replication_factor != 1 {
            return Err(Refusal::new(
                ErrorCode::InvalidReplicationFactor,
                format!(
                    "Unable to replicate the partition {replication_factor} time(s): The target replication factor of \
                     {replication_factor} cannot be reached because only 1 broker(s) are registered."
                ),
            ));
        }
        Ok(partition_count)
    }

    fn assigned_partition_count(&self, topic: &NewTopic) -> Result<i32, Refusal> {
        let invalid = |message: &str| Err(Refusal::new(ErrorCode::InvalidRequest, message));
        if topic.replication_factor != -1 {
            return invalid(
                "A manual partition assignment was specified, but replication factor was not set to -1.",
            );
        }
        if topic.partition_count != -1 {
            return invalid(
                "A manual partition assignment was specified, but numPartitions was not set to -1.",
            );
        }
        let mut indexes = BTreeSet::new();
        for (index, replicas) in &topic.assignments {
            if !indexes.insert(*index) {
                return Err(Refusal::new(
                    ErrorCode::InvalidReplicaAssignment,
                    format!("Found multiple manual partition assignments for partition {index}"),
                ));
            }
            self.check_assignment(replicas)?;
        }
        if indexes
            .iter()
            .enumerate()
            .any(|(expected, index)| expected as i64 != i64::from(*index))
        {
            return Err(Refusal::new(
                ErrorCode::InvalidReplicaAssignment,
                "partitions should be a consecutive 0-based integer sequence",
            ));
        }
        Ok(indexes.len() as i32)
    }

    /// Checks an assignment: on one machine the only valid replica is this broker.
    fn check_assignment(&self, replicas: &[i32]) -> Result<(), Refusal> {
        let invalid = |message: String| Err(Refusal::new(ErrorCode::InvalidReplicaAssignment, message));
        if replicas.is_empty() {
            return invalid("The manual partition assignment includes an empty replica list.".to_owned());
        }
        if let Some(stranger) = replicas.iter().find(|replica| **replica != self.config.node_id) {
            return invalid(format!(
                "The manual partition assignment includes broker {stranger}, but no such broker is registered."
            ));
        }
        if replicas.len() > 1 {
            return invalid(format!(
                "The manual partition assignment includes the broker {} more than once.",
                self.config.node_id
            ));
        }
        Ok(())
    }

    fn push_partitions(&self, topic_id: Uuid, indexes: std::ops::Range<i32>, records: &mut RecordList) {
        let partition = PartitionImage {
            replicas: [self.config.node_id].into(),
            directories: [self.directory_id].into(),
            isr: [self.config.node_id].into(),
            removing_replicas: Box::default(),
            adding_replicas: Box::default(),
            eligible_leader_replicas: Box::default(),
            last_known_elr: Box::default(),
            leader: self.config.node_id,
            leader_recovery_state: 0,
            leader_epoch: 0,
            partition_epoch: 0,
        };
        for index in indexes {
            let record = partition_record(topic_id, index, &partition, false);
            records.push(MetadataRecord::Partition(record), PARTITION_RECORD_VERSION);
        }
    }

    /// Decides about every topic of a CreatePartitions request, in the request's order.
    pub fn create_partitions(
        &self,
        requests: &[NewPartitions],
        quota: &mut MutationQuota,
    ) -> (RecordList, Vec<Result<(), Refusal>>) {
        let mut records = RecordList::default();
        let mut seen = BTreeMap::<&str, usize>::new();
        for request in requests {
            *seen.entry(request.topic.name()).or_default() += 1;
        }
        let results = requests
            .iter()
            .map(|request| {
                if seen[&**request.topic.name()] > 1 {
                    return Err(Refusal::new(ErrorCode::InvalidRequest, "Duplicate topic name."));
                }
                self.grow_topic(request, quota, &mut records)
            })
            .collect();
        (records, results)
    }

    fn grow_topic(
        &self,
        request: &NewPartitions,
        quota: &mut MutationQuota,
        records: &mut RecordList,
    ) -> Result<(), Refusal> {
        let topic = self
            .image
            .topic(request.topic.name())
            .ok_or_else(|| Refusal::plain(ErrorCode::UnknownTopicOrPartition))?;
        let existing = topic.partitions.len() as i32;
        let invalid = |message: String| Err(Refusal::new(ErrorCode::InvalidPartitions, message));
        if request.count == existing {
            return invalid(format!("Topic already has {existing} partition(s)."));
        }
        if request.count < existing {
            return invalid(format!(
                "The topic {} currently has {existing} partition(s); {} would not be an increase.",
                topic.name, request.count
            ));
        }
        let additional = request.count - existing;
        if i64::from(additional) > PARTITIONS_PER_REQUEST_MAX {
            return Err(Refusal::new(
                ErrorCode::PolicyViolation,
                format!(
                    "{additional} new partitions in one request, {PARTITIONS_PER_REQUEST_MAX} are allowed"
                ),
            ));
        }
        if let Some(assignments) = &request.assignments {
            if assignments.len() as i64 != i64::from(additional) {
                return Err(Refusal::new(
                    ErrorCode::InvalidReplicaAssignment,
                    format!(
                        "Attempted to add {additional} additional partition(s), but only {} assignment(s) were specified.",
                        assignments.len()
                    ),
                ));
            }
            for replicas in assignments {
                self.check_assignment(replicas)?;
            }
        }
        quota.take(usize::try_from(additional).unwrap_or(0))?;
        self.push_partitions(topic.id, existing..request.count, records);
        Ok(())
    }

    /// Decides about every topic of a DeleteTopics request.
    ///
    /// - Shape: one result per entry that can be answered by itself; duplicate entries share one.
    pub fn delete_topics(
        &self,
        topics: &[TopicToDelete],
        quota: &mut MutationQuota,
    ) -> (RecordList, Vec<DeletedTopic>) {
        let mut records = RecordList::default();
        let mut results = Vec::with_capacity(topics.len());
        let mut times = BTreeMap::<(Option<&str>, Uuid), usize>::new();
        for topic in topics {
            *times.entry((topic.name.as_deref(), topic.id)).or_default() += 1;
        }
        let mut doomed = BTreeSet::new();
        for topic in topics {
            let Some(times) = times.remove(&(topic.name.as_deref(), topic.id)) else {
                continue;
            };
            let (name, id, refusal) = match self.topic_to_delete(topic, times > 1) {
                Ok(existing) if !doomed.insert(existing.id) => {
                    let message = "The provided topic name maps to an ID that was already supplied.";
                    let refusal = Refusal::new(ErrorCode::InvalidRequest, message);
                    (topic.name.clone(), existing.id, Some(refusal))
                }
                Ok(existing) => {
                    let refusal = quota.take(existing.partitions.len()).err();
                    let topic_id = existing.id;
                    if refusal.is_none() {
                        records.push(MetadataRecord::RemoveTopic(RemoveTopicRecord { topic_id }), 0);
                    }
                    (Some(existing.name.to_string()), topic_id, refusal)
                }
                Err(refusal) => (topic.name.clone(), topic.id, Some(refusal)),
            };
            results.push(DeletedTopic { name, id, refusal });
        }
        (records, results)
    }

    fn topic_to_delete(&self, topic: &TopicToDelete, duplicate: bool) -> Result<&Arc<TopicImage>, Refusal> {
        let invalid = |message: &str| Err(Refusal::new(ErrorCode::InvalidRequest, message));
        let (existing, unknown) = match &topic.name {
            None if topic.id.is_zero() => return invalid("Neither topic name nor id were specified."),
            Some(_) if !topic.id.is_zero() => {
                return invalid("You may not specify both topic name and topic id.");
            }
            Some(_) if duplicate => return invalid("Duplicate topic name."),
            None if duplicate => return invalid("Duplicate topic id."),
            Some(name) => (self.image.topic(name), ErrorCode::UnknownTopicOrPartition),
            None => (self.image.topic_by_id(topic.id), ErrorCode::UnknownTopicId),
        };
        // A topic may have come to be after the client was checked.
        let granted = topic.granted.as_ref().map(OwnedGrant::name);
        existing
            .filter(|existing| granted == Some(&existing.name))
            .ok_or_else(|| Refusal::plain(unknown))
    }
}

fn creation_values(topic: &NewTopic) -> Result<ConfigValues, Refusal> {
    let nulls: Vec<&str> = topic
        .configs
        .iter()
        .filter(|(_, value)| value.is_none())
        .map(|(key, _)| key.as_str())
        .collect();
    if !nulls.is_empty() {
        return Err(Refusal::new(
            ErrorCode::InvalidConfig,
            format!("Null value not supported for topic configs: {}", nulls.join(",")),
        ));
    }
    let values = topic
        .configs
        .iter()
        .filter_map(|(key, value)| Some((Arc::from(key.as_str()), Arc::from(value.as_deref()?))));
    Ok(values.collect())
}
