//! Reads the metadata log and its snapshots before anything is changed: their contents, and whether
//! they are complete.
//!
//! A tail that a crash left unfinished is skipped; [`MetadataLog::open`] truncates it. Any other
//! damage refuses the start, because what is missing here would be lost for ever once new records
//! are written after it; so does a missing log in a directory that a broker has used.
//! `--recover-metadata` continues with what is intact (`salvage.rs`).

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ottla_log::LogError;
use ottla_log::checkpoint::is_irregular;
use ottla_log::directory::CLEAN_SHUTDOWN_FILE;
use ottla_log::disk::Disk;
use ottla_log::inspection::{Damage, Extent, Inspected, inspect};
use ottla_wire::records::batch::Batch;
use tracing::warn;

use super::ControllerError;
use super::activation;
use super::bootstrap_file::Bootstrap;
use super::directories::Directories;
use super::metadata_log::{self, METADATA_DIRECTORY};
use super::quorum_state::{QUORUM_STATE_FILE, QuorumState};
use super::salvage;
use super::snapshot_file::{self, SnapshotId};
use crate::config::NodeConfig;
use crate::image::METADATA_TOPIC;
use crate::image::MetadataImage;
use crate::image::error::ImageError;
use crate::image::replay::Replay;
use crate::log_directory::{LogDirectory, RemovedTopics, check_temporary};

/// The findings that a start relies on.
#[derive(Debug)]
pub struct Survey {
    pub(crate) replay: Replay,
    /// The first records of an empty log.
    pub(super) bootstrap: Option<Bootstrap>,
    /// The snapshot that the replay began with.
    pub(super) snapshot: SnapshotId,
    /// A newer snapshot, which is damaged, and the damage.
    pub(super) damaged_snapshot: Option<(SnapshotId, ControllerError)>,
    /// The offset after the last intact record.
    pub(super) end_offset: i64,
    pub(super) bytes_since_snapshot: u64,
    /// The largest known leader epoch.
    pub(crate) leader_epoch: i32,
    /// The log cannot be continued as it is: `replay` must be written to a new one.
    pub(super) is_salvaged: bool,
}

/// Where to read, and other evidence of records that must be there.
pub(super) struct Surroundings<'a> {
    pub disk: &'a dyn Disk,
    pub directory: PathBuf,
    pub log_directory: &'a LogDirectory,
    pub config: &'a NodeConfig,
}

impl Survey {
    /// Reads the files below `metadata_directory`, and compares them with the evidence in the log
    /// directory.
    ///
    /// - Errors: something is damaged or missing, or not supported. Nothing was changed.
    pub fn read(
        disk: &dyn Disk,
        metadata_directory: &Path,
        log_directory: &LogDirectory,
        config: &NodeConfig,
    ) -> Result<Survey, ControllerError> {
        let directory = metadata_directory.join(METADATA_DIRECTORY);
        let around = Surroundings {
            disk,
            directory: if config.recovery.recover_metadata {
                salvage::source(disk, directory)
            } else {
                directory
            },
            log_directory,
            config,
        };
        let bootstrap = Bootstrap::read(disk, metadata_directory, config.static_config.clone());
        let mut survey = if config.recovery.recover_metadata {
            salvage::read(&around)?
        } else {
            around.read()?
        };
        if survey.replay.image().features.metadata_version() == 0 {
            survey.bootstrap = bootstrap?;
            config
                .first_users
                .as_ref()
                .map_err(|error| ControllerError::Config(error.clone()))?;
        }
        Ok(survey)
    }

    pub fn image(&self) -> &Arc<MetadataImage> {
        self.replay.image()
    }

    /// Refuses a directory that more than one node uses.
    pub fn check_single_node(&self, directories: &Directories, node_id: i32) -> Result<(), ControllerError> {
        activation::check_single_node(&self.replay, directories, node_id)
    }

    /// Returns the topics that were deleted since the last snapshot.
    pub fn removed_topics(&self) -> RemovedTopics {
        let removed = self.replay.changes().topics_removed.iter();
        RemovedTopics(removed.map(|topic| (topic.id, topic.name.clone())).collect())
    }
}

impl Surroundings<'_> {
    pub fn fresh_replay(&self) -> Replay {
        Replay::new(Arc::new(MetadataImage::empty(self.config.static_config.clone())))
    }

    fn read(&self) -> Result<Survey, ControllerError> {
        if metadata_log::is_new(self.disk, &self.directory)? {
            self.check_never_used()?;
        }
        let mut survey = self.read_snapshot()?;
        let read = self.read_log(&mut survey);
        // Checked before an error of the replay, which may be due to an unsupported level.
        super::check_levels(&survey.replay, &self.directory)?;
        let checked = read.and_then(|extent| self.check_extent(&survey, extent));
        match (checked, &survey.damaged_snapshot) {
            (Ok(()), _) => {}
            // The records that are missing from the log were in the damaged snapshot.
            (Err(_), Some((_, damage))) => return Err(damage.clone()),
            (Err(error), None) => return Err(error),
        }
        self.check_epochs(&mut survey)?;
        Ok(survey)
    }

    /// Refuses a directory that was used and has no metadata log: one must have existed.
    fn check_never_used(&self) -> Result<(), ControllerError> {
        let known = BTreeSet::from([METADATA_DIRECTORY.to_owned()]);
        let unknown = self.log_directory.unknown_directories(&known)?;
        let partition = unknown
            .first()
            .map(|first| format!("{}-{}", first.topic, first.partition))
            .or_else(|| self.log_directory.any_listed());
        let proof = match partition {
            Some(partition) => Some(format!("there is or was a partition {partition}")),
            None => self.any_trace()?.map(|name| format!("there is {name}")),
        };
        match proof {
            Some(proof) => Err(damaged(
                &self.directory,
                0,
                format!("there is no metadata log, but {proof}"),
            )),
            None => Ok(()),
        }
    }

    /// Returns the name of anything else that only a broker with a metadata log leaves behind.
    fn any_trace(&self) -> Result<Option<String>, ControllerError> {
        match salvage::any_copy(self.disk, &self.directory)? {
            None => Ok(self.log_directory.any_trace()?),
            copy => Ok(copy),
        }
    }

    /// Reads the newest intact snapshot. An older one is sufficient only if the log continues from
    /// it, which is checked later.
    fn read_snapshot(&self) -> Result<Survey, ControllerError> {
        let mut damaged_snapshot = None;
        for id in snapshot_file::list(self.disk, &self.directory)?.into_iter().rev() {
            let mut replay = self.fresh_replay();
            match snapshot_file::replay(self.disk, &self.directory, id, &mut replay) {
                Ok(()) => return Ok(self.begin(replay, id, damaged_snapshot)),
                Err(error @ ControllerError::Damaged(_)) if id > SnapshotId::BOOTSTRAP => {
                    warn!(%error, "a snapshot of the metadata log is damaged: trying an older one");
                    damaged_snapshot.get_or_insert((id, error));
                }
                Err(error) => return Err(error),
            }
        }
        // A directory of kraft.version 0 has no bootstrap snapshot.
        Ok(self.begin(self.fresh_replay(), SnapshotId::BOOTSTRAP, damaged_snapshot))
    }

    fn begin(
        &self,
        replay: Replay,
        snapshot: SnapshotId,
        damaged_snapshot: Option<(SnapshotId, ControllerError)>,
    ) -> Survey {
        Survey {
            replay,
            bootstrap: None,
            snapshot,
            damaged_snapshot,
            end_offset: snapshot.end_offset,
            bytes_since_snapshot: 0,
            leader_epoch: snapshot.epoch,
            is_salvaged: false,
        }
    }

    fn read_log(&self, survey: &mut Survey) -> Result<Extent, ControllerError> {
        if !self.disk.exists(&self.directory) {
            return Ok(Extent {
                start_offset: None,
                end_offset: survey.end_offset,
            });
        }
        let from = survey.snapshot.end_offset;
        let extent = inspect(self.disk, &self.directory, from, |inspected| {
            let flow = match inspected {
                Inspected::Batch { batch, .. } if batch.header.last_offset() < from => {
                    ControlFlow::Continue(())
                }
                Inspected::Batch {
                    batch,
                    path,
                    position,
                } => {
                    replay_batch(survey, &batch).map_err(|error| ControllerError::NotUnderstood {
                        path: path.to_owned(),
                        position,
                        offset: batch.header.base_offset,
                        error,
                    })?;
                    ControlFlow::Continue(())
                }
                Inspected::Damage(damage) => {
                    self.judge(damage)?;
                    ControlFlow::Break(())
                }
            };
            Ok::<_, ControllerError>(flow)
        })?;
        survey.end_offset = extent.end_offset;
        Ok(extent)
    }

    /// Decides whether damage is only a tail that a crash left unfinished: no intact batch follows,
    /// there is no clean-shutdown mark, and no checkpoint proves more records.
    fn judge(&self, damage: Damage) -> Result<(), ControllerError> {
        let durable_end = self.durable_end();
        let because = if let Some(next) = damage.next_offset {
            format!("intact records follow from offset {next} on")
        } else if self.log_directory.has_clean_stop_mark() {
            format!("{CLEAN_SHUTDOWN_FILE} says that the log was complete")
        } else if damage.offset < durable_end {
            format!("everything below offset {durable_end} was durable")
        } else {
            let (file, position) = (damage.path.display(), damage.position);
            warn!(%file, position, reason = damage.reason, "cut an unfinished end off the metadata log");
            return Ok(());
        };
        let reason = format!("{}, and {because}", damage.reason);
        Err(damaged(&damage.path, damage.position, reason))
    }

    /// Returns the durable end of the metadata log, which the checkpoints list, too.
    pub fn durable_end(&self) -> i64 {
        self.log_directory.recovery_point(METADATA_TOPIC, 0).unwrap_or(0)
    }

    fn check_extent(&self, survey: &Survey, extent: Extent) -> Result<(), ControllerError> {
        let (snapshot_end, durable_end) = (survey.snapshot.end_offset, self.durable_end());
        if let Some(start) = extent.start_offset.filter(|start| *start > snapshot_end) {
            let reason = format!(
                "the log begins at offset {start}, the newest intact snapshot ends at {snapshot_end}"
            );
            return Err(damaged(&self.directory, 0, reason));
        }
        if extent.end_offset < durable_end || extent.start_offset.is_none() && snapshot_end < durable_end {
            let end = extent.end_offset;
            let reason =
                format!("the log ends at offset {end}, but everything below {durable_end} was durable");
            return Err(damaged(&self.directory, 0, reason));
        }
        match &survey.damaged_snapshot {
            Some((id, damage)) if id.end_offset > extent.end_offset => Err(damage.clone()),
            None if extent.end_offset == 0 => self.check_never_used(),
            _ => Ok(()),
        }
    }

    fn check_epochs(&self, survey: &mut Survey) -> Result<(), ControllerError> {
        let Some(stored) = self.quorum_state()? else {
            return Ok(());
        };
        let has_voters = survey.replay.quorum().kraft_version > 0;
        if stored.data_version > 0 && !has_voters {
            let reason = "missing, although quorum-state is of kraft.version 1".to_owned();
            return Err(damaged(&SnapshotId::BOOTSTRAP.path(&self.directory), 0, reason));
        }
        // The epoch is durable in quorum-state before anything is written in it; in a batch, no
        // checksum covers it. A single voter may continue with the larger of both.
        if survey.leader_epoch > stored.leader_epoch {
            let file = self.directory.join(QUORUM_STATE_FILE);
            let (file, newest, stored) = (file.display(), survey.leader_epoch, stored.leader_epoch);
            let detail = format!("it names leader epoch {stored}, a batch of the log epoch {newest}");
            warn!(%file, detail, "two files contradict each other");
        }
        survey.leader_epoch = survey.leader_epoch.max(stored.leader_epoch);
        Ok(())
    }

    /// Returns the quorum state; `None` also for a damaged file, because every batch carries its
    /// epoch.
    ///
    /// - Errors: a directory or the like has the file's name, or that of its next version, so that
    ///   it cannot be written either.
    pub fn quorum_state(&self) -> Result<Option<QuorumState>, ControllerError> {
        check_temporary(self.disk, &self.directory.join(QUORUM_STATE_FILE))?;
        match QuorumState::read(self.disk, &self.directory) {
            Err(error) if is_irregular(&error) => Err(ControllerError::Directory {
                path: self.directory.join(QUORUM_STATE_FILE),
                problem: "is not a regular file; nothing was changed: move it away, and the leader epoch is \
                          taken from the log"
                    .to_owned(),
            }),
            Err(error @ LogError::Corrupt { .. }) => {
                warn!(%error, "the file is damaged: the leader epoch is taken from the log");
                Ok(None)
            }
            read => Ok(read?),
        }
    }
}

fn replay_batch(survey: &mut Survey, batch: &Batch<'_>) -> Result<(), ImageError> {
    survey.replay.apply_batch(batch)?;
    survey.bytes_since_snapshot += batch.bytes.len() as u64;
    survey.leader_epoch = survey.leader_epoch.max(batch.header.leader_epoch);
    Ok(())
}

pub(super) fn damaged(path: &Path, position: u64, reason: String) -> ControllerError {
    ControllerError::Damaged(LogError::corrupt(path, position, reason))
}
