//! A consumer group: its members, target assignment and epochs.
//!
//! All of it changes only when a record is applied, except what says `seen` or `resolved`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};

use crate::image::topics::TopicsImage;
use crate::time::Moment;

use super::assignment::{Partitions, TopicPartition};
use super::member::{ConsumerMember, CurrentAssignment, MemberMetadata};
use super::record::{ConsumerRecord, ResolvedRegex, TargetEpoch};

/// The first change makes it 2, as in Apache Kafka.
const FIRST_EPOCH: i32 = 1;

#[derive(Clone, Debug)]
pub struct ConsumerGroup {
    pub epoch: i32,
    /// Of the subscribed topics at the last change of the group epoch.
    pub metadata_hash: i64,
    /// Whether the log has a record that only Apache Kafka before 4.1 wrote.
    pub has_partition_metadata: bool,
    pub members: BTreeMap<Arc<str>, ConsumerMember>,
    pub target_epoch: TargetEpoch,
    pub target: BTreeMap<Arc<str>, Arc<Partitions>>,
    pub regexes: BTreeMap<Arc<str>, Arc<ResolvedRegex>>,
    /// Instance id to member id (KIP-345).
    static_members: BTreeMap<Arc<str>, Arc<str>>,
    /// Who holds a partition, including one that it has been told to give up.
    holders: BTreeMap<TopicPartition, Arc<str>>,
    /// The topics for which `metadata_hash` was last compared.
    pub seen: Weak<TopicsImage>,
    /// When the regular expressions were last resolved, and in which topics.
    pub resolved: Option<(Moment, Weak<TopicsImage>)>,
}

impl Default for ConsumerGroup {
    fn default() -> Self {
        ConsumerGroup {
            epoch: FIRST_EPOCH,
            metadata_hash: 0,
            has_partition_metadata: false,
            members: BTreeMap::new(),
            target_epoch: TargetEpoch::default(),
            target: BTreeMap::new(),
            regexes: BTreeMap::new(),
            static_members: BTreeMap::new(),
            holders: BTreeMap::new(),
            seen: Weak::new(),
            resolved: None,
        }
    }
}

/// Applies a record to a group that may not exist yet.
pub fn apply(group: &mut Option<Box<ConsumerGroup>>, record: &ConsumerRecord) {
    match record {
        ConsumerRecord::Epoch(None) => *group = None,
        _ if record.is_tombstone() && group.is_none() => {}
        _ => group.get_or_insert_default().apply(record),
    }
}

impl ConsumerGroup {
    fn apply(&mut self, record: &ConsumerRecord) {
        match record {
            ConsumerRecord::Epoch(stored) => {
                if let Some(stored) = stored {
                    self.epoch = stored.epoch;
                    self.metadata_hash = stored.metadata_hash;
                }
            }
            ConsumerRecord::PartitionMetadata { is_present } => self.has_partition_metadata = *is_present,
            ConsumerRecord::Member(member_id, Some(metadata)) => self.set_metadata(member_id, metadata),
            ConsumerRecord::Member(member_id, None) => self.remove_member(member_id),
            ConsumerRecord::TargetEpoch(stored) => self.target_epoch = stored.unwrap_or_default(),
            ConsumerRecord::Target(member_id, Some(partitions)) => {
                self.target.insert(member_id.clone(), partitions.clone());
            }
            ConsumerRecord::Target(member_id, None) => {
                self.target.remove(member_id);
            }
            ConsumerRecord::Current(member_id, current) => {
                // A member without this record may be left by compaction: its metadata follows.
                if current.is_some() || self.members.contains_key(member_id) {
                    self.set_current(member_id, current.clone().unwrap_or_default());
                }
            }
            ConsumerRecord::Regex(regex, Some(resolved)) => {
                self.regexes.insert(regex.clone(), resolved.clone());
            }
            ConsumerRecord::Regex(regex, None) => {
                self.regexes.remove(regex);
            }
        }
    }

    fn set_metadata(&mut self, member_id: &Arc<str>, metadata: &Arc<MemberMetadata>) {
        if let Some(instance_id) = &metadata.instance_id {
            self.static_members.insert(instance_id.clone(), member_id.clone());
        }
        let member = self.members.entry(member_id.clone()).or_default();
        member.metadata = metadata.clone();
    }

    fn set_current(&mut self, member_id: &Arc<str>, current: Arc<CurrentAssignment>) {
        let member = self.members.entry(member_id.clone()).or_default();
        let before = std::mem::replace(&mut member.current, current.clone());
        self.release(member_id, &before);
        for (partition, _) in current.held() {
            self.holders.insert(*partition, member_id.clone());
        }
    }

    fn remove_member(&mut self, member_id: &Arc<str>) {
        let Some(member) = self.members.remove(member_id) else {
            return;
        };
        self.release(member_id, &member.current);
        if let Some(instance_id) = &member.metadata.instance_id
            && self.static_members.get(instance_id) == Some(member_id)
        {
            self.static_members.remove(instance_id);
        }
    }

    fn release(&mut self, member_id: &Arc<str>, current: &CurrentAssignment) {
        for (partition, _) in current.held() {
            if self.holders.get(partition) == Some(member_id) {
                self.holders.remove(partition);
            }
        }
    }

    /// Whether no member holds the partition.
    pub fn is_free(&self, partition: &TopicPartition) -> bool {
        !self.holders.contains_key(partition)
    }

    pub fn static_member(&self, instance_id: &str) -> Option<&Arc<str>> {
        self.static_members.get(instance_id)
    }

    pub fn classic_member_id(&self, member_id: &str) -> Option<&Arc<str>> {
        let (member_id, member) = self.members.get_key_value(member_id)?;
        member.metadata.classic.as_ref().map(|_| member_id)
    }

    pub fn target_of(&self, member_id: &str) -> Arc<Partitions> {
        self.target.get(member_id).cloned().unwrap_or_default()
    }

    /// Returns the topics that a member subscribes to, by name and by expression.
    pub fn topics_of<'a>(&'a self, metadata: &'a MemberMetadata) -> BTreeSet<&'a str> {
        let found = metadata.regex.as_ref().and_then(|regex| self.regexes.get(regex));
        let found = found.into_iter().flat_map(|resolved| &resolved.topics);
        metadata
            .topic_names
            .iter()
            .chain(found)
            .map(|name| &**name)
            .collect()
    }

    /// Returns the topics that any member subscribes to.
    pub fn subscribed_topics(&self) -> BTreeSet<&str> {
        let members = self.members.values();
        members
            .flat_map(|member| self.topics_of(&member.metadata))
            .collect()
    }

    pub fn is_subscribed_to(&self, topic: &str) -> bool {
        self.members
            .values()
            .any(|member| self.topics_of(&member.metadata).contains(topic))
    }

    /// Whether the topics have not changed since the group last looked at them.
    pub fn has_seen(&self, topics: &Arc<TopicsImage>) -> bool {
        std::ptr::eq(self.seen.as_ptr(), Arc::as_ptr(topics))
    }

    /// Returns a hash of the names, ids and partition counts of the subscribed topics that exist; 0
    /// if there are none. Apache Kafka computes another one: a group that changes its coordinator
    /// computes its assignment once more, which changes nothing.
    pub fn hash_of(&self, topics: &TopicsImage) -> i64 {
        let known = self
            .subscribed_topics()
            .into_iter()
            .filter_map(|name| topics.by_name(name));
        let mut hash = None;
        for topic in known {
            let partition_count = topic.partitions.len() as u64;
            let bytes = [topic.name.as_bytes(), &topic.id.0, &partition_count.to_be_bytes()];
            hash = Some(bytes.concat().iter().fold(hash.unwrap_or(FNV_OFFSET), fnv));
        }
        hash.map_or(0, u64::cast_signed)
    }

    /// Whether no member waits for partitions or has to give some up.
    pub fn is_settled(&self) -> bool {
        matches!(self.state_name(), "Stable" | "Empty")
    }

    pub fn state_name(&self) -> &'static str {
        let target_epoch = self.target_epoch.epoch;
        if self.members.is_empty() {
            "Empty"
        } else if self.epoch > target_epoch {
            "Assigning"
        } else if self
            .members
            .values()
            .any(|member| !member.current.is_at(target_epoch))
        {
            "Reconciling"
        } else {
            "Stable"
        }
    }

    /// Returns the tombstones of all that is left of a group without members, in the order in which
    /// Apache Kafka writes them: it refuses to load a group that is removed before its parts.
    pub fn removal(&self) -> Vec<ConsumerRecord> {
        let mut records: Vec<ConsumerRecord> = Vec::new();
        let target = self.target.keys();
        records.extend(target.map(|member_id| ConsumerRecord::Target(member_id.clone(), None)));
        records.push(ConsumerRecord::TargetEpoch(None));
        let regexes = self.regexes.keys();
        records.extend(regexes.map(|regex| ConsumerRecord::Regex(regex.clone(), None)));
        if self.has_partition_metadata {
            records.push(ConsumerRecord::PartitionMetadata { is_present: false });
        }
        records.push(ConsumerRecord::Epoch(None));
        records
    }
}

/// FNV-1a by Fowler, Noll and Vo, of 64 bits.
const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;

fn fnv(hash: u64, byte: &u8) -> u64 {
    (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
}

#[cfg(test)]
impl ConsumerGroup {
    /// Returns the state that a replay must reproduce.
    pub fn hard_state(&self) -> impl PartialEq + std::fmt::Debug + use<> {
        (
            (self.epoch, self.metadata_hash, self.has_partition_metadata),
            self.members.clone(),
            (self.target_epoch, self.target.clone(), self.regexes.clone()),
            (self.static_members.clone(), self.holders.clone()),
        )
    }
}
