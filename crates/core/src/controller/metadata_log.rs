//! `__cluster_metadata-0`: the log that images are built from, with its snapshots.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ottla_log::directory::{PARTITION_METADATA_FILE, read_partition_metadata, write_partition_metadata};
use ottla_log::disk::Disk;
use ottla_log::{AppendError, BatchToAppend, LogConfig, OpenOptions, PartitionLog};
use ottla_wire::primitives::Uuid;
use ottla_wire::records::batch::Batch;
use ottla_wire::records::builder::{BatchBuilder, BatchOptions};
use ottla_wire::records::control::{ControlRecord, control_batch};
use tracing::warn;

use super::ControllerError;
use super::bootstrap_file::BOOTSTRAP_FILE;
use super::directories::io_error;
use super::quorum_state::QuorumState;
use super::salvage;
use super::snapshot_file::{self, OwnVoter, SnapshotId};
use super::survey::{Survey, damaged};
use crate::config::NodeConfig;
use crate::image::record::RecordList;
use crate::image::replay::Replay;
use crate::image::snapshot::records_of;
use crate::time::Timestamp;

pub const METADATA_DIRECTORY: &str = "__cluster_metadata-0";

/// Segments are closed early, so that a snapshot lets the log shrink: with Kafka's 1 GiB it would
/// never be removed.
const SEGMENT_BYTES_MAX: u32 = 16 * 1024 * 1024;
/// Kafka's readers accept batches of up to 8 MiB.
const BATCH_BYTES_MAX: usize = 4 * 1024 * 1024;

#[derive(Debug)]
pub(super) struct MetadataLog {
    disk: Arc<dyn Disk>,
    directory: PathBuf,
    log: PartitionLog,
    leader_epoch: i32,
    snapshot: SnapshotId,
    /// Bytes appended or replayed since `snapshot`.
    bytes_since_snapshot: u64,
}

impl MetadataLog {
    /// Opens the log below `metadata_directory` at the end that `survey` found, or creates it and
    /// adds the initial records to the survey.
    ///
    /// - Errors: nothing was changed unless the disk failed.
    pub fn open(
        disk: Arc<dyn Disk>,
        metadata_directory: &Path,
        voter: OwnVoter<'_>,
        config: &NodeConfig,
        survey: &mut Survey,
        now: Timestamp,
    ) -> Result<MetadataLog, ControllerError> {
        let directory = metadata_directory.join(METADATA_DIRECTORY);
        if survey.is_salvaged {
            salvage::replace(&*disk, &directory, voter, survey, now)?;
        } else {
            salvage::remove_unfinished(&*disk, &directory)?;
        }
        check_owner(&*disk, &directory)?;
        if format(&*disk, &directory, voter, now)? {
            snapshot_file::replay(&*disk, &directory, SnapshotId::BOOTSTRAP, &mut survey.replay)?;
        }
        let options = OpenOptions {
            // There are few records since the snapshot, and a start reads them anyway.
            clean_shutdown: false,
            recovery_point: survey.snapshot.end_offset,
            log_start_offset: survey.snapshot.end_offset,
            proven_end: survey.end_offset,
            now_ms: now.0,
            ..OpenOptions::default()
        };
        // It stays in the page cache: it is small, each of its writes is synced, and a full disk
        // must be known before a record is in it.
        let disk = disk.below().cloned().unwrap_or(disk);
        let (log, _report) = PartitionLog::open(disk.clone(), &directory, log_config(config), options)?;
        Ok(MetadataLog {
            disk,
            directory,
            log,
            leader_epoch: survey.leader_epoch,
            snapshot: survey.snapshot,
            bytes_since_snapshot: survey.bytes_since_snapshot,
        })
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns the end of the log, which is the offset of the next record.
    pub fn end_offset(&self) -> i64 {
        self.log.end_offset()
    }

    pub fn leader_epoch(&self) -> i32 {
        self.leader_epoch
    }

    /// Begins a new epoch: it is raised and persisted before anything is written in it.
    pub fn begin_epoch(
        &mut self,
        node_id: i32,
        kraft_version: i16,
        now: Timestamp,
    ) -> Result<(), ControllerError> {
        let leader_epoch = self.leader_epoch.saturating_add(1);
        let state = QuorumState {
            leader_id: node_id,
            leader_epoch,
            data_version: kraft_version.min(1),
        };
        state.write(&*self.disk, &self.directory)?;
        self.leader_epoch = leader_epoch;
        let change = ControlRecord::leader_change(node_id, &[node_id], &[node_id]);
        let options = BatchOptions {
            base_offset: self.log.end_offset(),
            leader_epoch,
            ..BatchOptions::default()
        };
        self.append(&[control_batch(options, now.0, &[change])], now)
    }

    /// Encodes `records` as batches that begin at the log end.
    ///
    /// - Shape: one batch unless they exceed 4 MiB.
    pub fn batches(&self, records: &RecordList, now: Timestamp) -> Vec<Vec<u8>> {
        let mut base_offset = self.log.end_offset();
        let mut built = Vec::new();
        let mut values = records.values.iter().peekable();
        while values.peek().is_some() {
            let options = BatchOptions {
                base_offset,
                leader_epoch: self.leader_epoch,
                ..BatchOptions::default()
            };
            let mut builder = BatchBuilder::new(options);
            while let Some(value) = values.next_if(|value| {
                builder.record_count() == 0 || builder.uncompressed_bytes() + value.len() < BATCH_BYTES_MAX
            }) {
                builder.append(now.0, None, Some(value), &[]);
            }
            base_offset = builder.next_offset();
            built.push(builder.finish());
        }
        built
    }

    /// Builds the batch with kraft.version and this voter, after which the log itself lists its
    /// voters (KIP-853).
    pub fn voters_batch(&self, voter: OwnVoter<'_>, now: Timestamp) -> Vec<u8> {
        let options = BatchOptions {
            base_offset: self.log.end_offset(),
            leader_epoch: self.leader_epoch,
            ..BatchOptions::default()
        };
        control_batch(options, now.0, &snapshot_file::voter_records(&voter))
    }

    /// Appends batches built with `batches`, all or none, without waiting for the disk.
    pub fn append(&mut self, built: &[Vec<u8>], now: Timestamp) -> Result<(), ControllerError> {
        let mut parsed = Vec::with_capacity(built.len());
        for bytes in built {
            let batch = Batch::parse(bytes).map_err(|error| ControllerError::Read(error.to_string()))?;
            parsed.push(BatchToAppend::from(batch));
        }
        debug_assert_eq!(
            parsed.first().map(|batch| batch.header.base_offset),
            Some(self.log.end_offset())
        );
        self.log
            .append(&parsed, self.leader_epoch, now.0)
            .map_err(|error| match error {
                AppendError::Log(error) => ControllerError::Log(error),
                error => ControllerError::Read(error.to_string()),
            })?;
        self.bytes_since_snapshot += built.iter().map(|bytes| bytes.len() as u64).sum::<u64>();
        Ok(())
    }

    /// Makes everything appended durable. Waits until a shortage of descriptors ends, because
    /// records in the log can no longer be refused.
    pub fn sync(&mut self) -> Result<(), ControllerError> {
        while let Some(job) = self.log.begin_sync() {
            let result = job.run();
            match self.log.finish_sync(job, result) {
                Err(error) if error.is_shortage() => self.disk.pause(),
                finished => {
                    finished?;
                    break;
                }
            }
        }
        if let Some(job) = self.log.take_checkpoint() {
            let result = job.run();
            if let Err(error) = self.log.finish_checkpoint(job, result) {
                warn!(%error, "cannot write the indexes of the metadata log; the next start reads more of it");
            }
        }
        Ok(())
    }

    /// False after a write or a sync that failed half-way.
    pub fn is_sound(&self) -> bool {
        self.log.poison().is_none()
    }

    pub fn bytes_since_snapshot(&self) -> u64 {
        self.bytes_since_snapshot
    }

    /// Writes a snapshot of the whole log and removes what it replaces.
    pub fn take_snapshot(
        &mut self,
        replay: &Replay,
        voter: OwnVoter<'_>,
        now: Timestamp,
    ) -> Result<(), ControllerError> {
        let provenance = replay.image().provenance;
        let id = SnapshotId {
            end_offset: provenance.last_offset + 1,
            epoch: provenance.last_epoch,
        };
        if id == self.snapshot {
            return Ok(());
        }
        let voter = (replay.quorum().kraft_version > 0).then_some(voter);
        let records = records_of(replay.image());
        snapshot_file::write(
            &*self.disk,
            &self.directory,
            id,
            voter,
            &records,
            provenance.last_timestamp_ms,
        )?;
        self.snapshot = id;
        self.bytes_since_snapshot = 0;
        self.remove_what_the_snapshot_replaces(now)
    }

    /// Writes a snapshot even if none is due, because the newest one is damaged, and removes that
    /// one.
    pub fn replace_snapshots(
        &mut self,
        replay: &Replay,
        voter: OwnVoter<'_>,
        now: Timestamp,
    ) -> Result<(), ControllerError> {
        let intact = self.snapshot;
        self.take_snapshot(replay, voter, now)?;
        for id in snapshot_file::list(&*self.disk, &self.directory)? {
            if id != self.snapshot && id != intact {
                let path = id.path(&self.directory);
                self.disk
                    .remove_file(&path)
                    .map_err(|source| io_error("remove", &path, source))?;
            }
        }
        Ok(())
    }

    fn remove_what_the_snapshot_replaces(&mut self, now: Timestamp) -> Result<(), ControllerError> {
        // Segments first: a log must never begin after its oldest snapshot.
        self.log.delete_records_before(self.snapshot.end_offset);
        if let Some(mut removal) = self.log.retain(now.0, self.log.end_offset())? {
            removal.rename()?;
            removal.purge()?;
        }
        for id in snapshot_file::list(&*self.disk, &self.directory)? {
            if id < self.snapshot {
                let path = id.path(&self.directory);
                self.disk
                    .remove_file(&path)
                    .map_err(|source| io_error("remove", &path, source))?;
            }
        }
        Ok(())
    }

    /// Closes the log so that it opens without recovery.
    pub fn close(&mut self) -> Result<(), ControllerError> {
        self.log.close()?;
        Ok(())
    }
}

fn log_config(config: &NodeConfig) -> LogConfig {
    LogConfig {
        segment_bytes: u32::try_from(config.storage.metadata_segment_bytes)
            .unwrap_or(SEGMENT_BYTES_MAX)
            .min(SEGMENT_BYTES_MAX),
        segment_ms: i64::MAX,
        // Snapshots decide what may be removed.
        retention_ms: -1,
        retention_bytes: -1,
        delete: true,
        compact: false,
        file_delete_delay_ms: 0,
        ..LogConfig::default()
    }
}

fn check_owner(disk: &dyn Disk, directory: &Path) -> Result<(), ControllerError> {
    match read_partition_metadata(disk, directory)? {
        Some(id) if id != Uuid::METADATA_TOPIC_ID => Err(damaged(
            &directory.join(PARTITION_METADATA_FILE),
            0,
            format!("it belongs to topic id {id}, not to the metadata log"),
        )),
        _ => Ok(()),
    }
}

/// Creates the files that a metadata log needs before its first record; true if they include its
/// first snapshot.
fn format(
    disk: &dyn Disk,
    directory: &Path,
    voter: OwnVoter<'_>,
    now: Timestamp,
) -> Result<bool, ControllerError> {
    let parent = directory.parent().expect("it lies in a log directory");
    if !disk.exists(directory) {
        disk.create_directories(directory)
            .map_err(|source| io_error("create", directory, source))?;
        disk.sync_directory(parent)
            .map_err(|source| io_error("sync", parent, source))?;
    }
    if read_partition_metadata(disk, directory)?.is_none() {
        write_partition_metadata(disk, directory, Uuid::METADATA_TOPIC_ID)?;
    }
    // A directory formatted for `controller.quorum.voters` has no voters in its log; that is kept.
    let is_new = lacks_files(disk, directory, |_| true)? && !disk.exists(&parent.join(BOOTSTRAP_FILE));
    if is_new {
        let nothing = RecordList::default();
        snapshot_file::write(
            disk,
            directory,
            SnapshotId::BOOTSTRAP,
            Some(voter),
            &nothing,
            now.0,
        )?;
    }
    Ok(is_new)
}

/// Whether the log in `directory` has no record, and no snapshot other than the one it is formatted
/// with.
pub(super) fn is_new(disk: &dyn Disk, directory: &Path) -> Result<bool, ControllerError> {
    Ok(!disk.exists(directory) || lacks_files(disk, directory, |id| id > SnapshotId::BOOTSTRAP)?)
}

/// Whether there is neither a segment nor a snapshot that `counts`.
fn lacks_files(
    disk: &dyn Disk,
    directory: &Path,
    counts: impl Fn(SnapshotId) -> bool,
) -> Result<bool, ControllerError> {
    let entries = disk
        .list(directory)
        .map_err(|source| io_error("list", directory, source))?;
    let name = |path: &Path| path.file_name()?.to_str().map(str::to_owned);
    Ok(!entries
        .iter()
        .filter_map(|entry| name(&entry.path))
        .any(|name| name.ends_with(".log") || SnapshotId::parse(&name).is_some_and(&counts)))
}
