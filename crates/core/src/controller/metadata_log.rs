//! `__cluster_metadata-0`: the log that everything in an image comes from, with its snapshots.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ottla_log::directory::{read_partition_metadata, write_partition_metadata};
use ottla_log::disk::Disk;
use ottla_log::{AppendError, BatchToAppend, LogConfig, OpenOptions, PartitionLog, Read, ReadMode};
use ottla_wire::primitives::Uuid;
use ottla_wire::records::batch::{Batch, BatchError, HEADER_BYTES, batches};
use ottla_wire::records::builder::{BatchBuilder, BatchOptions};
use ottla_wire::records::control::{ControlRecord, control_batch};

use super::ControllerError;
use super::bootstrap_file::BOOTSTRAP_FILE;
use super::directories::io_error;
use super::quorum_state::QuorumState;
use super::snapshot_file::{self, OwnVoter, SnapshotId};
use crate::config::NodeConfig;
use crate::image::Provenance;
use crate::image::record::RecordList;
use crate::image::replay::Replay;
use crate::image::snapshot::records_of;
use crate::time::Timestamp;

pub const METADATA_DIRECTORY: &str = "__cluster_metadata-0";

/// Segments are closed early, so that a snapshot lets the log shrink: Kafka's 1 GiB would keep everything for ever.
const SEGMENT_BYTES_MAX: u32 = 16 * 1024 * 1024;
/// Kafka's readers take batches of up to 8 MiB.
const BATCH_BYTES_MAX: usize = 4 * 1024 * 1024;
/// What one read of the log asks for; a batch that is larger comes whole.
const READ_BYTES: u32 = 1024 * 1024;

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
    /// Opens the log below `metadata_directory`, or creates it, and replays snapshot and log into `replay`.
    pub fn open(
        disk: Arc<dyn Disk>,
        metadata_directory: &Path,
        voter: OwnVoter<'_>,
        config: &NodeConfig,
        replay: &mut Replay,
        now: Timestamp,
    ) -> Result<MetadataLog, ControllerError> {
        let directory = metadata_directory.join(METADATA_DIRECTORY);
        format(&*disk, &directory, voter, now)?;
        let snapshot = snapshot_file::list(&*disk, &directory)?
            .last()
            .copied()
            .unwrap_or(SnapshotId::BOOTSTRAP);
        let options = OpenOptions {
            // The records since the snapshot are few, and reading them is what a start does anyway.
            clean_shutdown: false,
            recovery_point: snapshot.end_offset,
            log_start_offset: snapshot.end_offset,
            now_ms: now.0,
            ..OpenOptions::default()
        };
        let (log, _report) = PartitionLog::open(disk.clone(), &directory, log_config(config), options)?;
        let mut opened = MetadataLog {
            disk,
            directory,
            log,
            leader_epoch: 0,
            snapshot,
            bytes_since_snapshot: 0,
        };
        opened.replay_snapshot(replay)?;
        opened.replay_log(replay)?;
        opened.leader_epoch = opened.last_known_epoch()?;
        Ok(opened)
    }

    /// The end of what is written, also the offset of the next record.
    pub fn end_offset(&self) -> i64 {
        self.log.end_offset()
    }

    pub fn leader_epoch(&self) -> i32 {
        self.leader_epoch
    }

    fn replay_snapshot(&mut self, replay: &mut Replay) -> Result<(), ControllerError> {
        let path = self.snapshot.path(&self.directory);
        if !self.disk.exists(&path) {
            // A directory of kraft.version 0 has no bootstrap snapshot.
            return Ok(());
        }
        let bytes = snapshot_file::read(&*self.disk, &self.directory, self.snapshot)?;
        replay.apply_batches(&bytes)?;
        replay.set_provenance(Provenance {
            last_offset: self.snapshot.end_offset - 1,
            last_epoch: self.snapshot.epoch,
            last_timestamp_ms: replay.image().provenance.last_timestamp_ms,
        });
        Ok(())
    }

    fn replay_log(&mut self, replay: &mut Replay) -> Result<(), ControllerError> {
        let (start, end) = (self.log.start_offset(), self.log.end_offset());
        let mut offset = self.snapshot.end_offset;
        if start > offset || end < offset {
            return Err(ControllerError::Directory {
                path: self.directory.clone(),
                problem: format!("has records {start} to {end}, but its newest snapshot ends at {offset}"),
            });
        }
        let reader = self.log.reader();
        while offset < end {
            let read = reader
                .read(offset, READ_BYTES, true, self.log.end(), ReadMode::Blocking)
                .map_err(|error| ControllerError::Read(error.to_string()))?;
            let Read::Region(found) = read else {
                return Err(ControllerError::Read(format!(
                    "no record at offset {offset}, the log ends at {end}"
                )));
            };
            let bytes = read_region(&self.directory, &found.region)?;
            let next = self.replay_region(replay, &bytes, offset)?;
            if next == offset {
                return Err(ControllerError::Read(format!(
                    "no whole batch at offset {offset}"
                )));
            }
            offset = next;
        }
        Ok(())
    }

    /// Applies the whole batches of a region; returns the offset behind them.
    fn replay_region(
        &mut self,
        replay: &mut Replay,
        bytes: &[u8],
        from: i64,
    ) -> Result<i64, ControllerError> {
        let mut offset = from;
        for batch in batches(bytes) {
            let batch = match batch {
                Ok(batch) => batch,
                // The region may end within a batch.
                Err(BatchError::Truncated { .. }) => break,
                Err(error) => return Err(ControllerError::Read(format!("at offset {offset}: {error}"))),
            };
            batch.verify_checksum().map_err(|error| {
                ControllerError::Read(format!("at offset {}: {error}", batch.header.base_offset))
            })?;
            if batch.header.last_offset() < from {
                continue;
            }
            replay.apply_batch(&batch)?;
            self.bytes_since_snapshot += batch.bytes.len() as u64;
            offset = batch.header.next_offset();
        }
        Ok(offset)
    }

    fn last_known_epoch(&self) -> Result<i32, ControllerError> {
        let stored = QuorumState::read(&*self.disk, &self.directory)?.map_or(0, |state| state.leader_epoch);
        let in_log = self
            .log
            .leader_epochs()
            .latest()
            .map_or(0, |entry| entry.leader_epoch);
        Ok(stored.max(in_log).max(self.snapshot.epoch))
    }

    /// Begins a new epoch: raised and persisted before anything is written in it.
    pub fn begin_epoch(
        &mut self,
        node_id: i32,
        kraft_version: i16,
        now: Timestamp,
    ) -> Result<(), ControllerError> {
        let leader_epoch = self.leader_epoch + 1;
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

    /// Builds the batches that `records` will be, from the log's end on.
    ///
    /// - Shape: one batch unless they are more than 4 MiB.
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

    /// Builds the batch from whose end on the log itself says who votes: kraft.version and this voter (KIP-853).
    pub fn voters_batch(&self, voter: OwnVoter<'_>, now: Timestamp) -> Vec<u8> {
        let options = BatchOptions {
            base_offset: self.log.end_offset(),
            leader_epoch: self.leader_epoch,
            ..BatchOptions::default()
        };
        control_batch(options, now.0, &snapshot_file::voter_records(&voter))
    }

    /// Appends batches built with `batches`, all or none, without waiting for the device.
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

    /// Everything appended is durable when this returns.
    pub fn sync(&mut self) -> Result<(), ControllerError> {
        if let Some(job) = self.log.begin_sync() {
            let result = job.run();
            self.log.finish_sync(job, result)?;
        }
        if let Some(job) = self.log.take_checkpoint() {
            let result = job.run();
            self.log.finish_checkpoint(job, result)?;
        }
        Ok(())
    }

    pub fn bytes_since_snapshot(&self) -> u64 {
        self.bytes_since_snapshot
    }

    /// Writes a snapshot of all that is in the log and removes what it replaces.
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

    fn remove_what_the_snapshot_replaces(&mut self, now: Timestamp) -> Result<(), ControllerError> {
        // Segments first: a log must never begin behind its oldest snapshot.
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

    /// Leaves a log that opens without recovery.
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
        // Snapshots decide what may go.
        retention_ms: -1,
        retention_bytes: -1,
        delete: true,
        compact: false,
        file_delete_delay_ms: 0,
        ..LogConfig::default()
    }
}

/// Completes the files that a metadata log needs before its first record.
fn format(
    disk: &dyn Disk,
    directory: &Path,
    voter: OwnVoter<'_>,
    now: Timestamp,
) -> Result<(), ControllerError> {
    let parent = directory.parent().expect("it lies in a log directory");
    if !disk.exists(directory) {
        disk.create_directories(directory)
            .map_err(|source| io_error("create", directory, source))?;
        disk.sync_directory(parent)
            .map_err(|source| io_error("sync", parent, source))?;
    }
    match read_partition_metadata(disk, directory)? {
        Some(Uuid::METADATA_TOPIC_ID) => {}
        Some(id) => {
            return Err(ControllerError::Directory {
                path: directory.to_path_buf(),
                problem: format!("belongs to topic {id}, not to the metadata log"),
            });
        }
        None => write_partition_metadata(disk, directory, Uuid::METADATA_TOPIC_ID)?,
    }
    // A directory formatted for `controller.quorum.voters` has no voters in its log, and stays so.
    if lacks_files(disk, directory, |_| true)? && !disk.exists(&parent.join(BOOTSTRAP_FILE)) {
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
    Ok(())
}

/// Whether the log below `metadata_directory` has no record and no snapshot yet but the one that it is formatted with.
pub(super) fn is_new(disk: &dyn Disk, metadata_directory: &Path) -> Result<bool, ControllerError> {
    let directory = metadata_directory.join(METADATA_DIRECTORY);
    Ok(!disk.exists(&directory) || lacks_files(disk, &directory, |id| id > SnapshotId::BOOTSTRAP)?)
}

/// Whether there is neither a segment nor a snapshot of the kind that counts.
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

fn read_region(directory: &Path, region: &ottla_log::disk::FileRegion) -> Result<Vec<u8>, ControllerError> {
    // The region is within a file of ours, so its size is no stranger's number.
    let mut bytes = vec![0; usize::try_from(region.bytes).expect("a region fits into memory")];
    let mut done = 0;
    while done < bytes.len() {
        let read = region
            .file
            .read_at(&mut bytes[done..], region.position + done as u64)
            .map_err(|source| io_error("read", directory, source))?;
        if read == 0 {
            break;
        }
        done += read;
    }
    bytes.truncate(done);
    debug_assert!(done >= HEADER_BYTES);
    Ok(bytes)
}
