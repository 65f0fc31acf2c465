//! Opens, creates and deletes the logs of partitions when the image changes.

use std::sync::{Arc, OnceLock};

use ottla_log::LogError;
use tracing::{error, warn};

use super::Storage;
use crate::image::MetadataImage;
use crate::image::topics::TopicImage;
use crate::log_directory::{Placement, known_directories};
use crate::partition::{Identity, Partition};
use crate::partitions::DeletedDirectory;
use crate::time::Timestamp;

/// Opens all partitions of the image and settles directories that it does not list. Waits for the
/// disk; called once, at start.
///
/// - Errors: the directory itself cannot be listed or renamed in. A partition whose log cannot be
///   opened is reported and stays unavailable; the others are served.
pub(crate) fn open_all(storage: &Storage, image: &MetadataImage) -> Result<(), LogError> {
    storage
        .log_directory
        .settle_unknown(&known_directories(image), &storage.removed_topics)?;
    let all = image
        .topics
        .iter()
        .map(|topic| (topic, 0..topic.partitions.len()));
    open_partitions(storage, &identities(all), image, Occasion::Start);
    Ok(())
}

/// Applies the difference between `old` and `new` to the partitions. Waits for the disk; called on
/// the controller thread after `new` was written to the metadata log.
pub(crate) fn follow(storage: &Storage, old: &MetadataImage, new: &MetadataImage) {
    // Deletions first: a topic's name may be used again with a new topic id.
    for topic in old
        .topics
        .iter()
        .filter(|topic| new.topic_by_id(topic.id).is_none())
    {
        delete(storage, topic);
    }
    let partitions_before = |topic: &TopicImage| {
        let before = old.topic_by_id(topic.id);
        before.map_or(0, |before| before.partitions.len())
    };
    let added = new
        .topics
        .iter()
        .map(|topic| (topic, partitions_before(topic)..topic.partitions.len()));
    open_partitions(storage, &identities(added), new, Occasion::Change);
    for topic in new.topics.iter() {
        let before = old.topic_by_id(topic.id);
        if before.is_some_and(|before| before.config.log != topic.config.log) {
            for partition in storage.partitions.of_topic(topic.id) {
                partition.with_log(|log| log.set_config(topic.config.log.clone()));
            }
        }
    }
}

/// Opens partitions that could not be opened for lack of space or descriptors. Runs on the
/// controller thread, as every such change.
pub(crate) fn open_missing(storage: &Storage) {
    let image = storage.image();
    let all = image
        .topics
        .iter()
        .map(|topic| (topic, 0..topic.partitions.len()));
    let mut missing = identities(all);
    missing.retain(|identity| {
        let (topic_id, index) = (identity.topic_id, identity.index);
        storage.partitions.get(topic_id, index).is_none() && !storage.partitions.is_refused(topic_id, index)
    });
    let (old, new): (Vec<Identity>, Vec<Identity>) = missing
        .into_iter()
        .partition(|identity| storage.partitions.is_postponed(identity));
    open_partitions(storage, &old, &image, Occasion::Start);
    open_partitions(storage, &new, &image, Occasion::Change);
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
fn open_partitions(storage: &Storage, identities: &[Identity], image: &MetadataImage, occasion: Occasion) {
    for some in identities.chunks(CREATED_TOGETHER_MAX) {
        let placements = place(storage, some, occasion);
        let opened: Vec<OnceLock<Arc<Partition>>> = some.iter().map(|_| OnceLock::new()).collect();
        storage.crew.for_each(some.len(), &|number| {
            let identity = &some[number];
            match open_partition(storage, identity, image, &placements[number]) {
                Ok(partition) => drop(opened[number].set(Arc::new(partition))),
                Err(error) => tell_of_failure(storage, identity, &error, occasion),
            }
        });
        let opened = opened.into_iter().filter_map(OnceLock::into_inner);
        storage.partitions.insert(opened.collect());
    }
}

fn place(storage: &Storage, identities: &[Identity], occasion: Occasion) -> Vec<Result<Placement, LogError>> {
    let is_start = occasion == Occasion::Start;
    match storage
        .log_directory
        .place(identities, is_start, &storage.removed_topics)
    {
        Ok(placements) => placements.into_iter().map(Ok).collect(),
        Err(error) if identities.len() == 1 => vec![Err(error)],
        // One of them failed; retry each alone so that the others are served.
        Err(_) => identities
            .iter()
            .flat_map(|identity| place(storage, std::slice::from_ref(identity), occasion))
            .collect(),
    }
}

fn open_partition(
    storage: &Storage,
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
    let now = storage.services.clock.timestamp();
    let opened = storage.log_directory.open_log(identity, config, placement, now)?;
    let durability = storage.config.durability;
    let leads = Partition::new(identity.clone(), partition.leader_epoch, durability, opened.log);
    leads.set_first_dirty_offset(opened.gaps_below);
    Ok(leads)
}

fn tell_of_failure(storage: &Storage, identity: &Identity, error: &LogError, occasion: Occasion) {
    if let LogError::Corrupt { .. } = error {
        storage.log_directory.report_refusal(identity, error);
        return storage.partitions.refuse(identity.clone());
    }
    storage.partitions.note_failure(error);
    if occasion == Occasion::Start {
        storage.partitions.postpone(identity.clone());
    }
    if let Some(suppressed) = storage
        .services
        .complaints
        .failures
        .pass(storage.services.clock.moment())
    {
        let (topic, partition) = (&*identity.topic, identity.index);
        error!(topic, partition, %error, suppressed, "cannot open a log");
    }
}

fn delete(storage: &Storage, topic: &TopicImage) {
    let delay_ms = topic.config.log.file_delete_delay_ms;
    let remove_at = Timestamp(storage.services.clock.timestamp().0.saturating_add(delay_ms));
    let open = storage.partitions.remove(topic.id);
    open.iter().for_each(|partition| partition.delete());
    // Partitions that are not served have files, too.
    let indexes = storage.partitions.forget_unserved(topic.id).into_iter();
    let mut directories = Vec::new();
    for index in indexes.chain(open.iter().map(|partition| partition.index)) {
        match storage.log_directory.mark_deleted(&topic.name, index, topic.id) {
            Ok(path) => directories.push(DeletedDirectory { path, remove_at }),
            Err(error) => {
                warn!(topic = &*topic.name, partition = index, %error, "cannot rename a deleted log");
            }
        }
    }
    storage.partitions.remove_later(directories);
}
