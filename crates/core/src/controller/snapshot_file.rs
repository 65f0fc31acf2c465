//! Snapshots of the metadata log: `<20-digit end offset>-<10-digit epoch>.checkpoint`.

use std::io;
use std::path::{Path, PathBuf};

use ottla_log::checkpoint::{read_file, write_file};
use ottla_log::disk::Disk;
use ottla_wire::messages::voters_record::{Endpoint, KRaftVersionFeature, Voter, VotersRecord};
use ottla_wire::primitives::Uuid;
use ottla_wire::records::batch::{Batch, BatchError, BatchHeader, batches};
use ottla_wire::records::builder::{BatchBuilder, BatchOptions};
use ottla_wire::records::control::{ControlRecord, control_batch};

use super::ControllerError;
use super::directories::io_error;
use super::survey::damaged;
use crate::config::Listener;
use crate::image::Provenance;
use crate::image::error::ImageError;
use crate::image::features::{KRAFT_VERSION, kept_range};
use crate::image::record::RecordList;
use crate::image::replay::Replay;

const SUFFIX: &str = ".checkpoint";
/// Kafka's readers accept batches of up to 8 MiB.
const BATCH_BYTES: usize = 1024 * 1024;

/// Identifies a snapshot: it contains everything below `end_offset`, the last of it written in
/// `epoch`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SnapshotId {
    pub end_offset: i64,
    pub epoch: i32,
}

impl SnapshotId {
    /// The snapshot that a directory is formatted with.
    pub const BOOTSTRAP: SnapshotId = SnapshotId {
        end_offset: 0,
        epoch: 0,
    };

    pub fn path(self, directory: &Path) -> PathBuf {
        directory.join(format!("{:020}-{:010}{SUFFIX}", self.end_offset, self.epoch))
    }

    /// Parses a file name; `None`: not the name of a finished snapshot.
    pub fn parse(name: &str) -> Option<SnapshotId> {
        let (offset, epoch) = name.strip_suffix(SUFFIX)?.split_once('-')?;
        if offset.len() != 20 || epoch.len() != 10 {
            return None;
        }
        Some(SnapshotId {
            end_offset: offset.parse().ok()?,
            epoch: epoch.parse().ok()?,
        })
    }
}

/// Lists the finished snapshots of a directory, oldest first; none if there is no directory.
pub fn list(disk: &dyn Disk, directory: &Path) -> Result<Vec<SnapshotId>, ControllerError> {
    let entries = match disk.list(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        listed => listed.map_err(|source| io_error("list", directory, source))?,
    };
    let mut ids: Vec<SnapshotId> = entries
        .iter()
        .filter_map(|entry| SnapshotId::parse(entry.path.file_name()?.to_str()?))
        .collect();
    ids.sort();
    Ok(ids)
}

/// Applies a snapshot to an empty replay.
///
/// - Errors: `Damaged` unless it is complete: every batch intact, from the header to the footer.
pub fn replay(
    disk: &dyn Disk,
    directory: &Path,
    id: SnapshotId,
    replay: &mut Replay,
) -> Result<(), ControllerError> {
    let mut is_complete = false;
    each_batch(disk, directory, id, |batch| {
        replay.apply_batch(batch)?;
        is_complete = ends_snapshot(batch);
        Ok(())
    })?;
    if !is_complete {
        let path = id.path(directory);
        return Err(damaged(&path, 0, "it ends without a snapshot footer".to_owned()));
    }
    stand_for(replay, id);
    Ok(())
}

/// Sets the image's offset and epoch to those of the snapshot; the offsets of its records have no
/// meaning.
pub fn stand_for(replay: &mut Replay, id: SnapshotId) {
    replay.set_provenance(Provenance {
        last_offset: id.end_offset - 1,
        last_epoch: id.epoch,
        last_timestamp_ms: replay.image().provenance.last_timestamp_ms,
    });
}

/// Calls `apply` with each batch of a snapshot.
///
/// - Errors: `Damaged` for the first batch that is not intact or out of sequence; `NotUnderstood`
///   where `apply` fails.
pub fn each_batch(
    disk: &dyn Disk,
    directory: &Path,
    id: SnapshotId,
    mut apply: impl FnMut(&Batch<'_>) -> Result<(), ImageError>,
) -> Result<(), ControllerError> {
    let path = id.path(directory);
    let bytes = read_file(disk, &path)?.unwrap_or_default();
    let mut found = batches(&bytes);
    let mut offset = 0;
    loop {
        let position = found.position() as u64;
        let Some(batch) = found.next() else {
            return Ok(());
        };
        let batch = batch
            .and_then(verified)
            .map_err(|error| damaged(&path, position, error.to_string()))?;
        let base_offset = batch.header.base_offset;
        if base_offset != offset {
            let reason = format!("offset {base_offset} where {offset} was due");
            return Err(damaged(&path, position, reason));
        }
        apply(&batch).map_err(|error| ControllerError::NotUnderstood {
            path: path.clone(),
            position,
            offset,
            error,
        })?;
        offset = batch.header.next_offset();
    }
}

/// Calls `visit` with each intact batch of a snapshot, and with each damage between them.
///
/// - Errors: the file cannot be read at all.
pub fn each_intact_batch(
    disk: &dyn Disk,
    directory: &Path,
    id: SnapshotId,
    mut visit: impl FnMut(Result<&Batch<'_>, ControllerError>),
) -> Result<(), ControllerError> {
    let path = id.path(directory);
    let bytes = read_file(disk, &path)?.unwrap_or_default();
    let (mut position, mut is_complete) = (0, false);
    while position < bytes.len() {
        match Batch::parse(&bytes[position..]).and_then(verified) {
            Ok(batch) => {
                visit(Ok(&batch));
                is_complete = ends_snapshot(&batch);
                position += batch.bytes.len();
            }
            Err(error) => {
                visit(Err(damaged(&path, position as u64, error.to_string())));
                position = next_intact(&bytes, position).unwrap_or(bytes.len());
            }
        }
    }
    if !is_complete {
        let reason = "it ends without a snapshot footer".to_owned();
        visit(Err(damaged(&path, bytes.len() as u64, reason)));
    }
    Ok(())
}

fn verified(batch: Batch<'_>) -> Result<Batch<'_>, BatchError> {
    batch.verify_checksum().map(|()| batch)
}

/// Returns the position of the next intact batch: usually where the damaged one says that it ends.
fn next_intact(bytes: &[u8], damaged: usize) -> Option<usize> {
    let header = BatchHeader::parse(&bytes[damaged..]).ok();
    let announced = header.map(|header| damaged + header.total_bytes());
    let mut candidates = announced.into_iter().chain(damaged + 1..bytes.len());
    let is_intact = |at: &usize| {
        let rest = bytes.get(*at..).unwrap_or_default();
        Batch::parse(rest).and_then(verified).is_ok()
    };
    candidates.find(is_intact)
}

fn ends_snapshot(batch: &Batch<'_>) -> bool {
    let last = batch.records().last();
    batch.header.is_control()
        && last.is_some_and(|record| {
            let control = record.ok().and_then(|record| ControlRecord::decode(&record).ok());
            matches!(control, Some(ControlRecord::SnapshotFooter))
        })
}

/// The only voter of a standalone controller (KIP-853).
#[derive(Clone, Copy, Debug)]
pub struct OwnVoter<'a> {
    pub node_id: i32,
    pub directory_id: Uuid,
    pub listener: &'a Listener,
}

/// Writes a snapshot; on return it is durable under its final name.
///
/// - `voter`: `None` for a quorum of kraft.version 0.
/// - `timestamp_ms`: of the last batch contained.
pub fn write(
    disk: &dyn Disk,
    directory: &Path,
    id: SnapshotId,
    voter: Option<OwnVoter<'_>>,
    records: &RecordList,
    timestamp_ms: i64,
) -> Result<(), ControllerError> {
    let mut offset = 0;
    let mut bytes = Vec::with_capacity(records.bytes() + 1024);
    let options = |base_offset| BatchOptions {
        base_offset,
        leader_epoch: id.epoch,
        ..BatchOptions::default()
    };

    let mut head = vec![ControlRecord::SnapshotHeader {
        last_contained_log_timestamp: timestamp_ms,
    }];
    if let Some(voter) = voter {
        head.extend(voter_records(&voter));
    }
    bytes.extend(control_batch(options(offset), timestamp_ms, &head));
    offset += head.len() as i64;

    let mut values = records.values.iter().peekable();
    while values.peek().is_some() {
        let mut builder = BatchBuilder::new(options(offset));
        while let Some(value) = values.next_if(|_| builder.uncompressed_bytes() < BATCH_BYTES) {
            builder.append(timestamp_ms, None, Some(value), &[]);
        }
        offset = builder.next_offset();
        bytes.extend(builder.finish());
    }

    bytes.extend(control_batch(
        options(offset),
        timestamp_ms,
        &[ControlRecord::SnapshotFooter],
    ));
    Ok(write_file(disk, &id.path(directory), &bytes)?)
}

/// Returns the control records that put the voters into the log.
pub(super) fn voter_records<'a>(voter: &OwnVoter<'a>) -> [ControlRecord<'a>; 2] {
    let kraft_version = kept_range(KRAFT_VERSION).1;
    [
        ControlRecord::KRaftVersion { kraft_version },
        ControlRecord::Voters(voters_record(voter)),
    ]
}

fn voters_record<'a>(voter: &OwnVoter<'a>) -> VotersRecord<'a> {
    let (min_supported_version, max_supported_version) = kept_range(KRAFT_VERSION);
    // A controller cannot be reached at "all addresses"; Kafka's own corrects the endpoint when it
    // takes over.
    let host = if voter.listener.host.is_empty() {
        "localhost"
    } else {
        &voter.listener.host
    };
    VotersRecord {
        version: 0,
        voters: vec![Voter {
            voter_id: voter.node_id,
            voter_directory_id: voter.directory_id,
            endpoints: vec![Endpoint {
                name: &voter.listener.name,
                host,
                port: voter.listener.port,
            }],
            k_raft_version_feature: KRaftVersionFeature {
                min_supported_version,
                max_supported_version,
            },
        }],
    }
}
