//! All partitions of the broker: looked up by topic id on the hot path, opened and deleted when the
//! image changes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

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

/// The table of open partitions.
///
/// - Readers take no lock; a change copies the map of topics (16 + 16 bytes each) and is made on
///   the controller thread.
#[derive(Debug, Default)]
pub struct Partitions {
    by_topic: ArcSwap<BTreeMap<Uuid, TopicPartitions>>,
    /// At least one log could not be opened for lack of space or descriptors.
    lacks_logs: AtomicBool,
    /// Partitions that could not be synced for lack of descriptors.
    unsynced: Mutex<Vec<Weak<Partition>>>,
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

    fn refuse(&self, identity: Identity) {
        self.postponed().remove(&(identity.topic_id, identity.index));
        self.refused().push(identity);
    }

    fn postpone(&self, identity: Identity) {
        self.postponed()
            .insert((identity.topic_id, identity.index), identity.topic);
    }

    fn is_postponed(&self, identity: &Identity) -> bool {
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
    fn forget_unserved(&self, topic_id: Uuid) -> Vec<i32> {
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

    fn note_failure(&self, error: &LogError) {
        if error.is_lack() {
            self.lacks_logs.store(true, Ordering::Relaxed);
        }
    }

    /// Whether a log could not be opened for lack of space or descriptors since the last call.
    pub(crate) fn take_lack_of_logs(&self) -> bool {
        self.lacks_logs.swap(false, Ordering::Relaxed)
    }

    /// Postpones a sync that found no descriptor; the next sync covers it.
    pub(crate) fn note_unsynced(&self, partition: &Arc<Partition>, node: &Node, error: &LogError) {
        let mut unsynced = self.unsynced.lock().unwrap_or_else(PoisonError::into_inner);
        unsynced.push(Arc::downgrade(partition));
        drop(unsynced);
        if let Some(suppressed) = node.complaints.lacks.pass(node.clock.moment()) {
            let (topic, partition) = (&*partition.topic, partition.index);
            warn!(topic, partition, %error, suppressed, "sync put off");
        }
    }

    /// Requests the syncs that were postponed.
    pub(crate) fn sync_unsynced(&self, node: &Node) {
        let mut unsynced = self.unsynced.lock().unwrap_or_else(PoisonError::into_inner);
        let partitions = std::mem::take(&mut *unsynced);
        drop(unsynced);
        for partition in partitions.iter().filter_map(Weak::upgrade) {
            partition.request_sync(node);
        }
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

    /// Removes a topic and returns its partitions.
    pub fn remove(&self, topic_id: Uuid) -> Vec<Arc<Partition>> {
        let removed = self.of_topic(topic_id);
        let mut by_topic = BTreeMap::clone(&self.by_topic.load());
        by_topic.remove(&topic_id);
        self.by_topic.store(Arc::new(by_topic));
        removed
    }
}

/// Opens all partitions of the image and settles directories that it does not list. Waits for the
/// disk; called once, at start.
///
/// - Errors: the directory itself cannot be listed or renamed in. A partition whose log cannot be
///   opened is reported and stays unavailable; the others are served.
pub(crate) fn open_all(node: &Node, image: &MetadataImage) -> Result<(), LogError> {
    node.log_directory
        .settle_unknown(&known_directories(image), &node.removed_topics)?;
    let all = image
        .topics
        .iter()
        .map(|topic| (topic, 0..topic.partitions.len()));
    open_partitions(node, &identities(all), image, Occasion::Start);
    Ok(())
}

/// Returns the names of all partition directories, including the controller's own log, which no
/// image lists.
pub(crate) fn known_directories(image: &MetadataImage) -> BTreeSet<String> {
    let of_topic = |topic: &Arc<TopicImage>| {
        let name = topic.name.clone();
        (0..topic.partitions.len()).map(move |index| directory_name(&name, index as i32))
    };
    let mut known: BTreeSet<String> = image.topics.iter().flat_map(of_topic).collect();
    known.insert(directory_name(METADATA_TOPIC, 0));
    known
}

/// Applies the difference between `old` and `new` to the partitions. Waits for the disk; called on
/// the controller thread after `new` was written to the metadata log.
pub(crate) fn follow(node: &Node, old: &MetadataImage, new: &MetadataImage) {
    // Deletions first: a topic's name may be used again with a new topic id.
    for topic in old
        .topics
        .iter()
        .filter(|topic| new.topic_by_id(topic.id).is_none())
    {
        delete(node, topic);
    }
    let partitions_before = |topic: &TopicImage| {
        let before = old.topic_by_id(topic.id);
        before.map_or(0, |before| before.partitions.len())
    };
    let added = new
        .topics
        .iter()
        .map(|topic| (topic, partitions_before(topic)..topic.partitions.len()));
    open_partitions(node, &identities(added), new, Occasion::Change);
    for topic in new.topics.iter() {
        let before = old.topic_by_id(topic.id);
        if before.is_some_and(|before| before.config.log != topic.config.log) {
            for partition in node.partitions.of_topic(topic.id) {
                partition.with_log(|log| log.set_config(topic.config.log.clone()));
            }
        }
    }
}

/// Opens partitions that could not be opened for lack of space or descriptors. Runs on the
/// controller thread, as every such change.
pub(crate) fn open_missing(node: &Node) {
    let image = node.image();
    let all = image
        .topics
        .iter()
        .map(|topic| (topic, 0..topic.partitions.len()));
    let mut missing = identities(all);
    missing.retain(|identity| {
        let (topic_id, index) = (identity.topic_id, identity.index);
        node.partitions.get(topic_id, index).is_none() && !node.partitions.is_refused(topic_id, index)
    });
    let (old, new): (Vec<Identity>, Vec<Identity>) = missing
        .into_iter()
        .partition(|identity| node.partitions.is_postponed(identity));
    open_partitions(node, &old, &image, Occasion::Start);
    open_partitions(node, &new, &image, Occasion::Change);
}

fn identities<'a>(
    topics: impl Iterator<Item = (&'a Arc<TopicImage>, std::ops::Range<usize>)>,
) -> Vec<Identity> {
    let of_topic = |(topic, indexes): (&Arc<TopicImage>, std::ops::Range<usize>)| {
        let identity = |index| Identity {
            topic_id: topic.id,
            topic: topic.name.clone(),
            index: i32::try_from(index).expect("partition numbers are i32"),
        };
        indexes.map(identity).collect::<Vec<Identity>>()
    };
    topics.flat_map(of_topic).collect()
}

/// Why partitions are opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Occasion {
    /// At a start, or postponed from it: the directory may exist already.
    Start,
    /// After a change of the image: the partition is new.
    Change,
}

/// At most this many directories are created, and made durable, together.
const CREATED_TOGETHER_MAX: usize = 1_024;

/// Creates the missing logs and opens all of them, in parallel where there is a crew. What cannot
/// be opened is reported; the others are served.
fn open_partitions(node: &Node, identities: &[Identity], image: &MetadataImage, occasion: Occasion) {
    for some in identities.chunks(CREATED_TOGETHER_MAX) {
        let placements = place(node, some, occasion);
        let opened: Vec<OnceLock<Arc<Partition>>> = some.iter().map(|_| OnceLock::new()).collect();
        node.crew.for_each(some.len(), &|number| {
            let identity = &some[number];
            match open_partition(node, identity, image, &placements[number]) {
                Ok(partition) => drop(opened[number].set(Arc::new(partition))),
                Err(error) => tell_of_failure(node, identity, &error, occasion),
            }
        });
        let opened = opened.into_iter().filter_map(OnceLock::into_inner);
        node.partitions.insert(opened.collect());
    }
}

fn place(node: &Node, identities: &[Identity], occasion: Occasion) -> Vec<Result<Placement, LogError>> {
    let is_start = occasion == Occasion::Start;
    match node
        .log_directory
        .place(identities, is_start, &node.removed_topics)
    {
        Ok(placements) => placements.into_iter().map(Ok).collect(),
        Err(error) if identities.len() == 1 => vec![Err(error)],
        // One of them failed; retry each alone so that the others are served.
        Err(_) => identities
            .iter()
            .flat_map(|identity| place(node, std::slice::from_ref(identity), occasion))
            .collect(),
    }
}

fn open_partition(
    node: &Node,
    identity: &Identity,
    image: &MetadataImage,
    placement: &Result<Placement, LogError>,
) -> Result<Partition, LogError> {
    let placement = match placement {
        Ok(Placement::Refused(error)) | Err(error) => return Err(error.clone()),
        Ok(placement) => placement,
    };
    let topic = image
        .topic_by_id(identity.topic_id)
        .expect("only topics of the image are opened");
    let partition = topic
        .partition(identity.index)
        .expect("only partitions of the topic are opened");
    let config = topic.config.log.clone();
    let now = node.clock.timestamp();
    let opened = node.log_directory.open_log(identity, config, placement, now)?;
    let durability = node.config.durability;
    let leads = Partition::new(identity.clone(), partition.leader_epoch, durability, opened.log);
    leads.set_first_dirty_offset(opened.gaps_below);
    Ok(leads)
}

fn tell_of_failure(node: &Node, identity: &Identity, error: &LogError, occasion: Occasion) {
    if let LogError::Corrupt { .. } = error {
        node.log_directory.report_refusal(identity, error);
        return node.partitions.refuse(identity.clone());
    }
    node.partitions.note_failure(error);
    if occasion == Occasion::Start {
        node.partitions.postpone(identity.clone());
    }
    if let Some(suppressed) = node.complaints.failures.pass(node.clock.moment()) {
        let (topic, partition) = (&*identity.topic, identity.index);
        error!(topic, partition, %error, suppressed, "cannot open a log");
    }
}

fn delete(node: &Node, topic: &TopicImage) {
    let delay_ms = topic.config.log.file_delete_delay_ms;
    let remove_at = Timestamp(node.clock.timestamp().0.saturating_add(delay_ms));
    let open = node.partitions.remove(topic.id);
    open.iter().for_each(|partition| partition.delete());
    // Partitions that are not served have files, too.
    let indexes = node.partitions.forget_unserved(topic.id).into_iter();
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
