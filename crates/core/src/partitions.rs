//! All partitions of the broker: looked up by topic id on the hot path, opened and deleted when the
//! image changes.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use ottla_log::LogError;
use ottla_log::directory::remove_partition_directory;
use ottla_log::disk::Disk;
use ottla_wire::primitives::Uuid;
use tracing::warn;

use crate::partition::{Identity, Partition, Traffic};
use crate::time::Timestamp;

/// Indexed by partition number; `None` where the log could not be opened.
type TopicPartitions = Arc<[Option<Arc<Partition>>]>;

/// The table of open partitions.
///
/// - Readers take no lock; a change copies the map of topics (16 + 16 bytes each) and is made on
///   the controller thread.
#[derive(Debug, Default)]
pub struct Partitions {
    by_topic: ArcSwap<BTreeMap<Uuid, TopicPartitions>>,
    /// What went through partitions that have been removed.
    departed: Mutex<Traffic>,
    /// At least one log could not be opened for lack of space or descriptors.
    lacks_logs: AtomicBool,
    /// Directories of deleted logs that still hold files.
    deleted: Mutex<Vec<DeletedDirectory>>,
    /// Partitions whose logs are damaged; they are left untouched until the next start.
    refused: Mutex<Vec<Identity>>,
    /// Topic names of partitions that could not be opened at the start; retried when there is space
    /// or a descriptor.
    postponed: Mutex<BTreeMap<(Uuid, i32), Arc<str>>>,
}

/// A renamed directory; its files stay for readers that still use them.
#[derive(Debug)]
pub(crate) struct DeletedDirectory {
    pub path: PathBuf,
    pub remove_at: Timestamp,
}

impl Partitions {
    pub fn get(&self, topic_id: Uuid, index: i32) -> Option<Arc<Partition>> {
        let by_topic = self.by_topic.load();
        by_topic
            .get(&topic_id)?
            .get(usize::try_from(index).ok()?)?
            .clone()
    }

    pub fn all(&self) -> Vec<Arc<Partition>> {
        self.by_topic
            .load()
            .values()
            .flat_map(|topic| topic.iter().flatten().cloned())
            .collect()
    }

    pub fn of_topic(&self, topic_id: Uuid) -> Vec<Arc<Partition>> {
        self.by_topic
            .load()
            .get(&topic_id)
            .map_or(Vec::new(), |topic| topic.iter().flatten().cloned().collect())
    }

    /// Adds partitions to those of the same topic that are already present.
    pub fn insert(&self, partitions: Vec<Arc<Partition>>) {
        let mut by_topic = BTreeMap::clone(&self.by_topic.load());
        let mut postponed = self.postponed();
        let mut grown: BTreeMap<Uuid, Vec<Option<Arc<Partition>>>> = BTreeMap::new();
        for partition in partitions {
            postponed.remove(&(partition.topic_id, partition.index));
            let topic = grown.entry(partition.topic_id).or_insert_with(|| {
                by_topic
                    .get(&partition.topic_id)
                    .map_or(Vec::new(), |topic| topic.to_vec())
            });
            let place = usize::try_from(partition.index).expect("partition numbers are not negative");
            if topic.len() <= place {
                topic.resize(place + 1, None);
            }
            topic[place] = Some(partition);
        }
        by_topic.extend(grown.into_iter().map(|(id, topic)| (id, topic.into())));
        self.by_topic.store(Arc::new(by_topic));
    }

    pub(crate) fn refuse(&self, identity: Identity) {
        self.postponed().remove(&(identity.topic_id, identity.index));
        self.refused().push(identity);
    }

    pub(crate) fn postpone(&self, identity: Identity) {
        self.postponed()
            .insert((identity.topic_id, identity.index), identity.topic);
    }

    pub(crate) fn is_postponed(&self, identity: &Identity) -> bool {
        self.postponed()
            .contains_key(&(identity.topic_id, identity.index))
    }

    fn postponed(&self) -> MutexGuard<'_, BTreeMap<(Uuid, i32), Arc<str>>> {
        self.postponed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn is_refused(&self, topic_id: Uuid, index: i32) -> bool {
        let refused = self.refused();
        refused
            .iter()
            .any(|identity| identity.topic_id == topic_id && identity.index == index)
    }

    /// Returns topic and number of each partition that is not served because its log is damaged, or
    /// could not be opened yet.
    pub fn all_unserved(&self) -> Vec<(String, i32)> {
        let name = |identity: &Identity| (identity.topic.to_string(), identity.index);
        let mut unserved: Vec<(String, i32)> = self.refused().iter().map(name).collect();
        let postponed = self.postponed();
        unserved.extend(
            postponed
                .iter()
                .map(|((_, index), topic)| (topic.to_string(), *index)),
        );
        unserved
    }

    /// Removes a topic's unserved partitions from the lists and returns their numbers.
    pub(crate) fn forget_unserved(&self, topic_id: Uuid) -> Vec<i32> {
        let mut refused = self.refused();
        let of_topic = refused.extract_if(.., |identity| identity.topic_id == topic_id);
        let mut indexes: Vec<i32> = of_topic.map(|identity| identity.index).collect();
        let mut postponed = self.postponed();
        let of_topic = postponed.extract_if((topic_id, 0)..=(topic_id, i32::MAX), |_, _| true);
        indexes.extend(of_topic.map(|((_, index), _)| index));
        indexes
    }

    fn refused(&self) -> MutexGuard<'_, Vec<Identity>> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn note_failure(&self, error: &LogError) {
        if error.is_lack() {
            self.lacks_logs.store(true, Ordering::Relaxed);
        }
    }

    /// Whether a log could not be opened for lack of space or descriptors since the last call.
    pub(crate) fn take_lack_of_logs(&self) -> bool {
        self.lacks_logs.swap(false, Ordering::Relaxed)
    }

    /// The files of these directories are removed when their time has come.
    pub(crate) fn remove_later(&self, directories: Vec<DeletedDirectory>) {
        let mut deleted = self.deleted.lock().unwrap_or_else(PoisonError::into_inner);
        deleted.extend(directories);
    }

    /// Removes the files of deleted logs whose `file.delete.delay.ms` has passed. Waits for the
    /// disk.
    pub(crate) fn remove_deleted(&self, disk: &dyn Disk, now: Timestamp) {
        // The lock is not held while the disk is used, because the controller thread takes it.
        let mut deleted = self.deleted.lock().unwrap_or_else(PoisonError::into_inner);
        let due: Vec<DeletedDirectory> = deleted.extract_if(.., |entry| entry.remove_at <= now).collect();
        drop(deleted);
        for directory in due {
            // What cannot be removed now is removed at the next start.
            if let Err(error) = remove_partition_directory(disk, &directory.path) {
                warn!(%error, "cannot remove the files of a deleted topic");
            }
        }
    }

    /// Returns what went through all partitions since the start; it never falls.
    pub fn traffic(&self) -> Traffic {
        // Under the lock no partition is counted as present and as removed.
        let departed = self.departed.lock().unwrap_or_else(PoisonError::into_inner);
        let mut traffic = *departed;
        for partition in self.all() {
            traffic += partition.traffic();
        }
        traffic
    }

    /// Removes a topic and returns its partitions.
    pub fn remove(&self, topic_id: Uuid) -> Vec<Arc<Partition>> {
        let mut departed = self.departed.lock().unwrap_or_else(PoisonError::into_inner);
        let removed = self.of_topic(topic_id);
        for partition in &removed {
            *departed += partition.traffic();
        }
        let mut by_topic = BTreeMap::clone(&self.by_topic.load());
        by_topic.remove(&topic_id);
        self.by_topic.store(Arc::new(by_topic));
        removed
    }
}
