//! All partitions of the broker: found by topic id on the hot path, opened and deleted when the image changes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use ottla_log::LogError;
use ottla_log::directory::remove_partition_directory;
use ottla_log::disk::Disk;
use ottla_wire::primitives::Uuid;
use tracing::{error, warn};

use crate::controller::topics::METADATA_TOPIC;
use crate::image::MetadataImage;
use crate::image::topics::TopicImage;
use crate::log_directory::{Placement, directory_name};
use crate::node::Node;
use crate::partition::{Identity, Partition};
use crate::time::Timestamp;

/// Indexed by partition number; `None` where the log could not be opened.
type TopicPartitions = Arc<[Option<Arc<Partition>>]>;

/// - Readers take no lock; a change copies the map of topics (16 + 16 bytes each) and is made on the controller thread.
#[derive(Debug, Default)]
pub struct Partitions {
    by_topic: ArcSwap<BTreeMap<Uuid, TopicPartitions>>,
    /// Some log could not be created for lack of space.
    lacks_space: AtomicBool,
    /// Directories of deleted logs that still hold files.
    deleted: Mutex<Vec<DeletedDirectory>>,
    /// Partitions whose logs are damaged and were left alone, until the next start.
    refused: Mutex<Vec<Identity>>,
}

/// A renamed directory, whose files stay for those who are still reading them.
#[derive(Debug)]
struct DeletedDirectory {
    path: PathBuf,
    remove_at: Timestamp,
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

    /// Makes partitions known, in addition to those of the same topic that are known already.
    pub fn insert(&self, partitions: Vec<Arc<Partition>>) {
        let mut by_topic = BTreeMap::clone(&self.by_topic.load());
        let mut grown: BTreeMap<Uuid, Vec<Option<Arc<Partition>>>> = BTreeMap::new();
        for partition in partitions {
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

    fn refuse(&self, identity: Identity) {
        self.refused().push(identity);
    }

    pub fn is_refused(&self, topic_id: Uuid, index: i32) -> bool {
        let refused = self.refused();
        refused
            .iter()
            .any(|identity| identity.topic_id == topic_id && identity.index == index)
    }

    /// Topic and number of each partition that is not served because its log is damaged.
    pub fn all_refused(&self) -> Vec<(String, i32)> {
        let name = |identity: &Identity| (identity.topic.to_string(), identity.index);
        self.refused().iter().map(name).collect()
    }

    /// Takes the numbers of a topic's refused partitions out.
    fn forget_refused(&self, topic_id: Uuid) -> Vec<i32> {
        let mut refused = self.refused();
        let of_topic = refused.extract_if(.., |identity| identity.topic_id == topic_id);
        of_topic.map(|identity| identity.index).collect()
    }

    fn refused(&self) -> MutexGuard<'_, Vec<Identity>> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note_failure(&self, error: &LogError) {
        if matches!(error, LogError::NoSpace { .. }) {
            self.lacks_space.store(true, Ordering::Relaxed);
        }
    }

    /// Whether there may be logs to create that did not fit onto the disk; asking takes the note back.
    pub(crate) fn take_lack_of_space(&self) -> bool {
        self.lacks_space.swap(false, Ordering::Relaxed)
    }

    /// Removes the files of logs whose `file.delete.delay.ms` has passed since they were deleted. Waits for the disk.
    pub(crate) fn remove_deleted(&self, disk: &dyn Disk, now: Timestamp) {
        // The lock is not held over the disk: the controller thread takes it.
        let mut deleted = self.deleted.lock().unwrap_or_else(PoisonError::into_inner);
        let due: Vec<DeletedDirectory> = deleted.extract_if(.., |entry| entry.remove_at <= now).collect();
        drop(deleted);
        for directory in due {
            // What stays behind is removed at the next start.
            if let Err(error) = remove_partition_directory(disk, &directory.path) {
                warn!(%error, "cannot remove the files of a deleted topic");
            }
        }
    }

    /// Forgets a topic and returns its partitions.
    pub fn remove(&self, topic_id: Uuid) -> Vec<Arc<Partition>> {
        let removed = self.of_topic(topic_id);
        let mut by_topic = BTreeMap::clone(&self.by_topic.load());
        by_topic.remove(&topic_id);
        self.by_topic.store(Arc::new(by_topic));
        removed
    }
}

/// Settles what the image does not know and opens what it does. Waits for the disk; called once, at start.
///
/// - `removed`: topics that were deleted, as far back as the metadata log tells.
/// - Errors: the directory itself cannot be listed or renamed in. A partition whose log cannot be opened is reported
///   and stays unavailable; the others are served.
pub(crate) fn open_all(node: &Node, image: &MetadataImage, removed: &BTreeSet<Uuid>) -> Result<(), LogError> {
    node.log_directory
        .settle_unknown(&known_directories(image), removed)?;
    for topic in image.topics.iter() {
        open_partitions(
            node,
            topic,
            0..topic.partitions.len(),
            Occasion::Start { removed },
        );
    }
    Ok(())
}

/// The names of all partitions' directories, that of the controller's own log included, which no image lists.
pub(crate) fn known_directories(image: &MetadataImage) -> BTreeSet<String> {
    let of_topic = |topic: &Arc<TopicImage>| {
        let name = topic.name.clone();
        (0..topic.partitions.len()).map(move |index| directory_name(&name, index as i32))
    };
    let mut known: BTreeSet<String> = image.topics.iter().flat_map(of_topic).collect();
    known.insert(directory_name(METADATA_TOPIC, 0));
    known
}

/// Makes the partitions what `new` says, given that they are what `old` says. Waits for the disk; called on the
/// controller thread after `new` was written to the metadata log.
pub(crate) fn follow(node: &Node, old: &MetadataImage, new: &MetadataImage) {
    // Deletions first: a name may be used again with a new topic id.
    for topic in old
        .topics
        .iter()
        .filter(|topic| new.topic_by_id(topic.id).is_none())
    {
        delete(node, topic);
    }
    for topic in new.topics.iter() {
        let before = old.topic_by_id(topic.id);
        let partitions_before = before.map_or(0, |before| before.partitions.len());
        if topic.partitions.len() > partitions_before {
            let new = partitions_before..topic.partitions.len();
            open_partitions(node, topic, new, Occasion::Change);
        }
        if before.is_some_and(|before| before.config.log != topic.config.log) {
            for partition in node.partitions.of_topic(topic.id) {
                partition.with_log(|log| log.set_config(topic.config.log.clone()));
            }
        }
    }
}

/// Opens what did not fit onto the disk when its topic was created. On the controller thread, like every such change.
pub(crate) fn open_missing(node: &Node) {
    let image = node.image();
    for topic in image.topics.iter() {
        let is_missing = |index: &usize| {
            let index = *index as i32;
            node.partitions.get(topic.id, index).is_none() && !node.partitions.is_refused(topic.id, index)
        };
        let missing: Vec<usize> = (0..topic.partitions.len()).filter(is_missing).collect();
        if !missing.is_empty() {
            open_partitions(node, topic, missing.into_iter(), Occasion::Change);
        }
    }
}

/// When partitions are opened.
#[derive(Clone, Copy)]
enum Occasion<'a> {
    /// They may have been there before.
    Start { removed: &'a BTreeSet<Uuid> },
    /// They are new.
    Change,
}

fn open_partitions(
    node: &Node,
    topic: &TopicImage,
    indexes: impl Iterator<Item = usize>,
    occasion: Occasion<'_>,
) {
    let identities: Vec<Identity> = indexes
        .map(|index| Identity {
            topic_id: topic.id,
            topic: topic.name.clone(),
            index: i32::try_from(index).expect("partition numbers are i32"),
        })
        .collect();
    let nothing = BTreeSet::new();
    let (is_start, removed) = match occasion {
        Occasion::Start { removed } => (true, removed),
        Occasion::Change => (false, &nothing),
    };
    let placements = match node.log_directory.place(&identities, is_start, removed) {
        Ok(placements) => placements,
        Err(error) => {
            node.partitions.note_failure(&error);
            return error!(topic = &*topic.name, %error, "cannot create logs");
        }
    };
    let mut opened = Vec::new();
    for (identity, placement) in identities.into_iter().zip(placements) {
        match open_partition(node, topic, &identity, placement) {
            Ok(partition) => opened.push(Arc::new(partition)),
            Err(error @ LogError::Corrupt { .. }) => {
                node.log_directory.report_refusal(&identity, &error);
                node.partitions.refuse(identity);
            }
            Err(error) => {
                node.partitions.note_failure(&error);
                error!(topic = &*topic.name, partition = identity.index, %error, "cannot open a log");
            }
        }
    }
    node.partitions.insert(opened);
}

fn open_partition(
    node: &Node,
    topic: &TopicImage,
    identity: &Identity,
    placement: Placement,
) -> Result<Partition, LogError> {
    if let Placement::Refused(error) = placement {
        return Err(error);
    }
    let partition = topic
        .partition(identity.index)
        .expect("only partitions of the topic are opened");
    let config = topic.config.log.clone();
    let now = node.clock.timestamp();
    let opened = node.log_directory.open_log(identity, config, &placement, now)?;
    let durability = node.config.durability;
    let leads = Partition::new(identity.clone(), partition.leader_epoch, durability, opened.log);
    leads.set_first_dirty_offset(opened.gaps_below);
    Ok(leads)
}

fn delete(node: &Node, topic: &TopicImage) {
    let delay_ms = topic.config.log.file_delete_delay_ms;
    let remove_at = Timestamp(node.clock.timestamp().0.saturating_add(delay_ms));
    let open = node.partitions.remove(topic.id);
    open.iter().for_each(|partition| partition.delete());
    // Those that were refused have files, too.
    let indexes = node.partitions.forget_refused(topic.id).into_iter();
    let mut directories = Vec::new();
    for index in indexes.chain(open.iter().map(|partition| partition.index)) {
        match node.log_directory.mark_deleted(&topic.name, index, topic.id) {
            Ok(path) => directories.push(DeletedDirectory { path, remove_at }),
            Err(error) => {
                warn!(topic = &*topic.name, partition = index, %error, "cannot rename a deleted log");
            }
        }
    }
    let deleted = &node.partitions.deleted;
    deleted
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .extend(directories);
}
