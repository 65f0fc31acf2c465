//! `--recover-metadata`: builds an image from what is intact, at the operator's request.
//!
//! Intact records of a damaged snapshot or log are applied in order, except those that are invalid
//! without the lost ones. Then partition directories of unknown topics restore them:
//! `partition.metadata` has the id, the directory name the rest. Later changes to such a topic are
//! lost: its settings, and partitions whose directories are gone. Producer ids continue above all
//! that the logs know. The old files are kept under another name.
//!
//! The new log is written beside the old one, and takes its place when it is complete. An
//! interruption leaves the old log, or only the new one under its first name: then the next
//! recovery continues from that one.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use ottla_log::directory::{
    PartitionDirectory, PartitionDirectoryKind, partition_directory_name, remove_partition_directory,
    stray_directory_name,
};
use ottla_log::disk::{DirectoryEntry, Disk};
use ottla_log::inspection::{Inspected, inspect};
use ottla_wire::metadata_records::producer_ids::ProducerIdsRecord;
use ottla_wire::metadata_records::{MetadataRecord, partition::PartitionRecord, topic::TopicRecord};
use ottla_wire::primitives::Uuid;
use ottla_wire::records::batch::Batch;
use tracing::{info, warn};

use super::ControllerError;
use super::directories::io_error;
use super::producer_id_floor;
use super::snapshot_file::{self, OwnVoter, SnapshotId};
use super::survey::{Surroundings, Survey};
use crate::image::METADATA_TOPIC;
use crate::image::record::RecordList;
use crate::image::replay::Replay;
use crate::image::snapshot::{PARTITION_CHANGE_RECORD_VERSION, records_of};
use crate::log_directory::known_directories;
use crate::time::Timestamp;

/// The name of the new log until it takes the place of the old one. Apache Kafka ignores it.
pub(super) const UNFINISHED: &str = "__cluster_metadata-0.00000000000000000000000000000001-future";

/// The state recovered so far.
struct Salvage {
    replay: Replay,
    /// The offset after the largest of any record.
    end_offset: i64,
    leader_epoch: i32,
}

/// As [`Survey::read`], but skips all damage.
pub(super) fn read(around: &Surroundings<'_>) -> Result<Survey, ControllerError> {
    let mut salvage = Salvage {
        replay: around.fresh_replay(),
        end_offset: around.durable_end(),
        leader_epoch: around.quorum_state()?.map_or(0, |state| state.leader_epoch),
    };
    if around.disk.exists(&around.directory) {
        let from = salvage.take_snapshot(around)?;
        salvage.take_log(around, from)?;
    }
    // KIP-866: a transaction without an end has no effect. What follows must have one.
    salvage.replay.abandon_transaction();
    salvage.take_directories(around)?;
    salvage.raise_producer_ids(around)?;
    super::check_levels(&salvage.replay, &around.directory)?;
    Ok(Survey {
        replay: salvage.replay,
        bootstrap: None,
        snapshot: SnapshotId {
            end_offset: salvage.end_offset,
            epoch: salvage.leader_epoch,
        },
        damaged_snapshot: None,
        end_offset: salvage.end_offset,
        bytes_since_snapshot: 0,
        leader_epoch: salvage.leader_epoch,
        is_salvaged: true,
    })
}

impl Salvage {
    /// Applies the intact batches of the newest snapshot with readable records; returns the offset
    /// at which the log continues.
    ///
    /// - Shape: an older snapshot does not fill the gaps of a newer one: what it adds may have been
    ///   deleted since.
    fn take_snapshot(&mut self, around: &Surroundings<'_>) -> Result<i64, ControllerError> {
        for id in snapshot_file::list(around.disk, &around.directory)?
            .into_iter()
            .rev()
        {
            let (mut is_intact, mut has_records) = (true, false);
            let read =
                snapshot_file::each_intact_batch(around.disk, &around.directory, id, |found| match found {
                    Ok(batch) => {
                        has_records |= !batch.header.is_control();
                        self.apply(batch);
                    }
                    Err(error) => {
                        is_intact = false;
                        warn!(%error, "passed over damage in a snapshot of the metadata log");
                    }
                });
            if let Err(error) = read {
                is_intact = false;
                warn!(%error, "passed over a snapshot of the metadata log");
            }
            // The offsets of a snapshot's own records have no meaning.
            self.end_offset = self.end_offset.max(id.end_offset);
            self.leader_epoch = self.leader_epoch.max(id.epoch);
            if is_intact || has_records {
                return Ok(id.end_offset);
            }
        }
        Ok(0)
    }

    fn take_log(&mut self, around: &Surroundings<'_>, from: i64) -> Result<(), ControllerError> {
        let extent = inspect(around.disk, &around.directory, from, |inspected| {
            match inspected {
                Inspected::Batch { batch, .. } if batch.header.last_offset() < from => {}
                Inspected::Batch { batch, .. } => {
                    self.leader_epoch = self.leader_epoch.max(batch.header.leader_epoch);
                    self.apply(&batch);
                }
                Inspected::Damage(damage) => {
                    let (file, position) = (damage.path.display(), damage.position);
                    let (offset, next_offset) = (damage.offset, damage.next_offset);
                    warn!(
                        %file, position, offset, next_offset, reason = damage.reason,
                        "passed over damage in the metadata log"
                    );
                }
            }
            Ok::<_, ControllerError>(ControlFlow::Continue(()))
        })?;
        self.end_offset = self.end_offset.max(extent.end_offset);
        Ok(())
    }

    fn apply(&mut self, batch: &Batch<'_>) {
        let mut whole = self.replay.clone();
        if whole.apply_batch(batch).is_ok() {
            self.replay = whole;
            return;
        }
        let provenance = self.replay.image().provenance;
        for record in batch.records().map_while(Result::ok) {
            let mut next = self.replay.clone();
            match next.apply(provenance, record.value) {
                Ok(()) => self.replay = next,
                Err(error) => {
                    let offset = record.offset;
                    warn!(offset, %error, "left out a metadata record that makes no sense without lost ones");
                }
            }
        }
    }

    /// Restores topics that are known from their partition directories only.
    fn take_directories(&mut self, around: &Surroundings<'_>) -> Result<(), ControllerError> {
        let known = known_directories(self.replay.image());
        let mut unknown: BTreeMap<(String, Uuid), SalvageFindings> = BTreeMap::new();
        for directory in around.log_directory.unknown_directories(&known)? {
            let name = partition_directory_name(&directory.topic, directory.partition);
            let Some(topic_id) = directory.topic_id else {
                warn!(name, "a directory does not say which topic it belongs to");
                continue;
            };
            let found = unknown.entry((directory.topic, topic_id)).or_default();
            found.partition_count = found.partition_count.max(directory.partition + 1);
            found.leader_epoch = found.leader_epoch.max(directory.leader_epoch.unwrap_or(0));
        }
        for ((name, id), found) in unknown {
            let mut next = self.replay.clone();
            let records = topic_records(&name, id, found, around.config.node_id);
            let provenance = next.image().provenance;
            let partitions = found.partition_count;
            match next.apply(provenance, records.values.iter().map(|value| &**value)) {
                Ok(()) => {
                    self.replay = next;
                    info!(topic = name, %id, partitions, "took a topic back from its directories");
                }
                Err(error) => warn!(topic = name, %id, %error, "cannot take a topic back"),
            }
        }
        Ok(())
    }

    /// No producer id is given out again: the newest of their records may be among the lost ones.
    fn raise_producer_ids(&mut self, around: &Surroundings<'_>) -> Result<(), ControllerError> {
        let known = self.replay.image().next_producer_id;
        let floor = producer_id_floor::find(around.disk, around.log_directory, known)?;
        let Some(next_producer_id) = floor else {
            return Ok(());
        };
        let record = ProducerIdsRecord {
            broker_id: around.config.node_id,
            broker_epoch: -1,
            next_producer_id,
        };
        let mut records = RecordList::default();
        records.push(MetadataRecord::ProducerIds(record), 0);
        let provenance = self.replay.image().provenance;
        let values = records.values.iter().map(|value| &**value);
        self.replay.apply(provenance, values)?;
        info!(
            next_producer_id,
            "producer ids continue above those that the logs know"
        );
        Ok(())
    }
}

/// The evidence in the directories of one unknown topic.
#[derive(Clone, Copy, Default)]
struct SalvageFindings {
    /// One more than the highest partition number in their names.
    partition_count: i32,
    /// The largest of all: epochs must not go back.
    leader_epoch: i32,
}

fn topic_records(name: &str, topic_id: Uuid, found: SalvageFindings, node_id: i32) -> RecordList {
    let mut records = RecordList::default();
    records.push(MetadataRecord::Topic(TopicRecord { name, topic_id }), 0);
    for partition_id in 0..found.partition_count {
        let partition = PartitionRecord {
            partition_id,
            topic_id,
            replicas: vec![node_id],
            isr: vec![node_id],
            leader: node_id,
            leader_epoch: found.leader_epoch,
            directories: vec![Uuid::ZERO],
            ..PartitionRecord::default()
        };
        records.push(
            MetadataRecord::Partition(partition),
            PARTITION_CHANGE_RECORD_VERSION,
        );
    }
    records
}

/// Returns the directory to read: the metadata log, or what an interrupted recovery was about to
/// put in its place.
pub(super) fn source(disk: &dyn Disk, directory: PathBuf) -> PathBuf {
    let unfinished = directory.with_file_name(UNFINISHED);
    if disk.exists(&unfinished) && !disk.exists(&directory) {
        unfinished
    } else {
        directory
    }
}

/// Returns the name of a copy of the metadata log that a recovery made or kept.
pub(super) fn any_copy(disk: &dyn Disk, directory: &Path) -> Result<Option<String>, ControllerError> {
    let parent = directory.parent().expect("it lies in a log directory");
    let entries = disk
        .list(parent)
        .map_err(|source| io_error("list", parent, source))?;
    let copy = |entry: &DirectoryEntry| {
        let name = entry.path.file_name()?.to_str()?;
        let parsed = PartitionDirectory::parse(name)?;
        let is_copy = parsed.topic == METADATA_TOPIC && parsed.kind != PartitionDirectoryKind::Live;
        is_copy.then(|| name.to_owned())
    };
    Ok(entries.iter().find_map(copy))
}

/// Removes what an interrupted recovery left beside a metadata log: no later one may read it.
pub(super) fn remove_unfinished(disk: &dyn Disk, directory: &Path) -> Result<(), ControllerError> {
    Ok(remove_partition_directory(
        disk,
        &directory.with_file_name(UNFINISHED),
    )?)
}

/// Makes the survey's image the only content of the metadata log. The old log is kept beside it.
pub(super) fn replace(
    disk: &dyn Disk,
    directory: &Path,
    voter: OwnVoter<'_>,
    survey: &Survey,
    now: Timestamp,
) -> Result<(), ControllerError> {
    let parent = directory.parent().expect("it lies in a log directory");
    let sync = || {
        disk.sync_directory(parent)
            .map_err(|source| io_error("sync", parent, source))
    };
    let rename = |from: &Path, to: &Path| {
        disk.rename(from, to)
            .map_err(|source| io_error("rename", from, source))
    };
    let unfinished = directory.with_file_name(UNFINISHED);
    if disk.exists(directory) {
        remove_unfinished(disk, directory)?;
    }
    disk.create_directories(&unfinished)
        .map_err(|source| io_error("create", &unfinished, source))?;
    let records = records_of(survey.replay.image());
    snapshot_file::write(disk, &unfinished, survey.snapshot, Some(voter), &records, now.0)?;
    sync()?;
    if disk.exists(directory) {
        // Apache Kafka ignores a directory of this name.
        let unique = Uuid((now.0 as u128).to_be_bytes());
        let kept = parent.join(stray_directory_name(METADATA_TOPIC, 0, unique));
        rename(directory, &kept)?;
        info!(directory = %kept.display(), "kept the damaged metadata log");
    }
    rename(&unfinished, directory)?;
    sync()
}
