//! The logs of a running broker: opened and deleted as the image says, checkpointed, retained,
//! compacted, closed.
//!
//! Reading order: the modules below, top to bottom.

mod opening;
pub(crate) mod open_transactions;
pub mod maintenance;
mod stopping;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::{ArcSwap, Guard};
use ottla_log::LogError;
use ottla_log::crew::Crew;
use ottla_log::directory::write_clean_shutdown;
use ottla_log::disk::Disk;
use ottla_wire::error_code::ErrorCode;
use ottla_wire::primitives::Uuid;
use tracing::{info, warn};

use crate::config::NodeConfig;
use crate::image::{METADATA_TOPIC, MetadataImage};
use crate::log_directory::{CheckpointFile, CheckpointOffsets, LogDirectory, RemovedTopics};
use crate::partition::Partition;
use crate::partitions::Partitions;
use crate::services::Services;
use crate::shortage::outlast_shortage;
use maintenance::Maintenance;

pub struct Storage {
    pub services: Services,
    pub config: Arc<NodeConfig>,
    pub disk: Arc<dyn Disk>,
    pub log_directory: LogDirectory,
    pub partitions: Partitions,
    crew: Arc<dyn Crew>,
    image: ArcSwap<MetadataImage>,
    maintenance: Mutex<Maintenance>,
    /// Less than `ottla.disk.reserve.bytes` were free at the last check.
    disk_is_low: AtomicBool,
    is_stopping: AtomicBool,
    /// Topics deleted before the start, as far back as the metadata log reaches.
    removed_topics: RemovedTopics,
}

/// What a storage is made of.
pub(crate) struct Parts {
    pub services: Services,
    pub config: Arc<NodeConfig>,
    pub disk: Arc<dyn Disk>,
    pub crew: Arc<dyn Crew>,
    pub log_directory: LogDirectory,
    pub removed_topics: RemovedTopics,
    pub image: Arc<MetadataImage>,
}

impl Storage {
    /// Opens the logs of all partitions of the image. Waits for the disk.
    ///
    /// - Errors: the directory itself cannot be used.
    pub(crate) fn open(parts: Parts, broker_epoch: i64) -> Result<Storage, LogError> {
        let storage = Storage {
            services: parts.services,
            config: parts.config,
            disk: parts.disk,
            log_directory: parts.log_directory,
            partitions: Partitions::default(),
            crew: parts.crew,
            image: ArcSwap::new(parts.image.clone()),
            maintenance: Mutex::default(),
            disk_is_low: AtomicBool::new(false),
            is_stopping: AtomicBool::new(false),
            removed_topics: parts.removed_topics,
        };
        opening::open_all(&storage, &parts.image)?;
        // The checkpoints are signed as this broker's: they prove more than those of another
        // writer.
        storage.write_checkpoints()?;
        storage
            .log_directory
            .sign(broker_epoch, storage.config.durability)?;
        open_transactions::report(&storage);
        Ok(storage)
    }

    /// Whether so much waits for the disk that nothing more should be appended for now.
    pub fn is_short_of_memory(&self) -> bool {
        self.disk.memory().is_some_and(|memory| memory.is_short())
    }

    /// Returns the state of the cluster now.
    pub fn image(&self) -> Guard<Arc<MetadataImage>> {
        self.image.load()
    }

    pub(crate) fn image_full(&self) -> Arc<MetadataImage> {
        self.image.load_full()
    }

    /// Makes `image` the current one: opens and deletes logs, and lets requests see it. Waits for
    /// the disk; called on the controller thread when the records that made the image are durable.
    pub(crate) fn publish(&self, image: Arc<MetadataImage>) {
        let old = self.image.load_full();
        // A topic must not be seen before its partitions can be written.
        opening::follow(self, &old, &image);
        self.image.store(image.clone());
        if !Arc::ptr_eq(&old.topics, &image.topics) {
            let mut topics = old.topics.iter();
            let is_any_gone = topics.any(|topic| image.topic_by_id(topic.id).is_none());
            self.note_directories(is_any_gone);
        }
    }

    /// Records which partitions have directories now: one that is missing at a later start was
    /// lost.
    ///
    /// - `is_any_gone`: all checkpoints forget deleted topics at once. What they say of one would
    ///   count as evidence against a new topic of that name.
    fn note_directories(&self, is_any_gone: bool) {
        let files = match is_any_gone {
            true => &CheckpointFile::ALL[..],
            false => &[CheckpointFile::RecoveryPoints],
        };
        if let Err(error) = self.write_checkpoint_files(files) {
            warn!(%error, "cannot write the recovery points: a directory lost before they are written will go unnoticed");
        }
    }

    /// Returns a partition.
    ///
    /// - Errors: a partition that exists but whose log could not be opened is a storage error.
    pub fn partition(&self, topic_id: Uuid, index: i32) -> Result<Arc<Partition>, ErrorCode> {
        if let Some(partition) = self.partitions.get(topic_id, index) {
            return Ok(partition);
        }
        let image = self.image();
        let known = image.topic_by_id(topic_id);
        match known.and_then(|topic| topic.partition(index)) {
            Some(_) => Err(ErrorCode::KafkaStorageError),
            None => Err(ErrorCode::UnknownTopicOrPartition),
        }
    }

    pub fn partition_by_name(&self, topic: &str, index: i32) -> Result<Arc<Partition>, ErrorCode> {
        let image = self.image();
        let topic = image.topic(topic).ok_or(ErrorCode::UnknownTopicOrPartition)?;
        self.partition(topic.id, index)
    }

    /// Stops background work; `close` follows.
    pub(crate) fn begin_stop(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
    }

    fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Relaxed)
    }

    /// Closes all logs; false if one of them needs recovery. Waits for the disk.
    pub(crate) fn close_logs(&self) -> bool {
        stopping::close_logs(self)
    }

    /// Writes what the next start relies on, after the metadata log is closed with `image`. Waits
    /// for the disk.
    pub(crate) fn close(
        &self,
        image: Arc<MetadataImage>,
        broker_epoch: i64,
        all_closed: bool,
    ) -> Result<(), LogError> {
        // The checkpoints name the end of the metadata log, too.
        self.image.store(image);
        outlast_shortage(&*self.disk, LogError::is_shortage, || {
            self.write_checkpoints()?;
            // Without the mark the next start checks every log that may need it.
            if all_closed {
                write_clean_shutdown(&*self.disk, self.log_directory.path(), broker_epoch)
            } else {
                Ok(())
            }
        })
    }

    /// Opens logs that could not be opened for lack of space or descriptors. Called on the
    /// controller thread, like every change of the table.
    pub(crate) fn open_missing(&self) {
        opening::open_missing(self);
    }

    /// Background work on the logs; called about once a second where waiting for the disk is
    /// allowed.
    pub(crate) fn maintain(&self) {
        self.services.retry_syncs();
        self.maintenance
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .run(self);
    }

    /// False while the disk is too full for clients' records; the broker's own records still fit in
    /// the reserve.
    ///
    /// - Shape: `maintain` checks once a second; while the disk is low every caller checks again,
    ///   so that writes resume as soon as there is space.
    pub(crate) fn disk_has_room(&self) -> bool {
        !self.disk_is_low.load(Ordering::Relaxed) || !self.look_at_disk()
    }

    /// Asks the file system for its free space; true when it is below the reserve.
    pub(crate) fn look_at_disk(&self) -> bool {
        let reserve_bytes = u64::try_from(self.config.disk_reserve_bytes).unwrap_or(0);
        // A file system that does not answer counts as not full; the next write will show what is
        // wrong.
        let space = self.disk.space(self.log_directory.path());
        let is_low = space.is_ok_and(|space| space.free_bytes < reserve_bytes);
        if self.disk_is_low.swap(is_low, Ordering::Relaxed) != is_low {
            if is_low {
                warn!(reserve_bytes, "disk full: writes are refused, reads go on")
            } else {
                info!("disk has space again: writes are taken")
            }
        }
        is_low
    }

    /// Writes the four offset checkpoints of the log directory.
    pub(crate) fn write_checkpoints(&self) -> Result<(), LogError> {
        self.write_checkpoint_files(&CheckpointFile::ALL)
    }

    /// Makes the log start offsets of all logs durable.
    pub(crate) fn write_log_starts(&self) -> Result<(), LogError> {
        self.write_checkpoint_files(&[CheckpointFile::LogStarts])
    }

    fn write_checkpoint_files(&self, files: &[CheckpointFile]) -> Result<(), LogError> {
        let refused = self.partitions.all_unserved();
        self.log_directory
            .write_checkpoints(files, &refused, || self.checkpoint_offsets())
    }

    fn checkpoint_offsets(&self) -> CheckpointOffsets {
        let mut offsets = CheckpointOffsets::default();
        for partition in self.partitions.all() {
            let key = (partition.topic.to_string(), partition.index);
            let found = partition.offsets();
            offsets.high_watermarks.insert(key.clone(), found.high_watermark);
            if found.start > 0 {
                offsets.log_starts.insert(key.clone(), found.start);
            }
            if partition.first_dirty_offset() > 0 {
                offsets
                    .cleaned
                    .insert(key.clone(), partition.first_dirty_offset());
            }
            offsets
                .recovery_points
                .insert(key, partition.with_log(|log| log.recovery_point()));
        }
        // Every metadata record is durable before it is published.
        let durable_end = self.image().provenance.last_offset + 1;
        offsets
            .recovery_points
            .insert((METADATA_TOPIC.to_owned(), 0), durable_end);
        offsets
    }
}
