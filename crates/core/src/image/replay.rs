//! Replays the metadata log into images, batch by batch.

use std::sync::Arc;

use ottla_wire::metadata_records::{MetadataRecord, decode_frame};
use ottla_wire::primitives::Uuid;
use ottla_wire::records::batch::{Batch, batches};
use ottla_wire::records::compression::Codec;
use ottla_wire::records::control::ControlRecord;

use super::delta::{ImageChanges, ImageDelta};
use super::error::ImageError;
use super::features::KRAFT_VERSION;
use super::{MetadataImage, Provenance};

/// The voters of the metadata log, from its control records (KIP-853).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QuorumImage {
    /// 0: voters are those of `controller.quorum.voters`; 1: voters are in the log.
    pub kraft_version: i16,
    /// Node and directory ids; empty at kraft version 0.
    pub voters: Vec<(i32, Uuid)>,
}

/// Applies batches in log order. Records inside a metadata transaction (KIP-866) take effect at its
/// end, or never.
#[derive(Clone, Debug)]
pub struct Replay {
    image: Arc<MetadataImage>,
    quorum: QuorumImage,
    /// Records of the open transaction, in an image that is not published yet.
    transaction: Option<ImageDelta>,
    /// Changes of the image since `take_changes`.
    changes: ImageChanges,
}

impl Replay {
    pub fn new(image: Arc<MetadataImage>) -> Replay {
        Replay {
            image,
            quorum: QuorumImage::default(),
            transaction: None,
            changes: ImageChanges::default(),
        }
    }

    /// Returns the image as of the last complete batch outside a transaction.
    pub fn image(&self) -> &Arc<MetadataImage> {
        &self.image
    }

    pub fn quorum(&self) -> &QuorumImage {
        &self.quorum
    }

    pub fn in_transaction(&self) -> bool {
        self.transaction.is_some()
    }

    /// Drops the records of an open transaction, as the record that aborts it would.
    pub fn abandon_transaction(&mut self) {
        self.transaction = None;
    }

    /// Returns the changes since the last call of `take_changes`.
    pub fn changes(&self) -> &ImageChanges {
        &self.changes
    }

    /// Returns and clears the changes since the last call.
    pub fn take_changes(&mut self) -> ImageChanges {
        std::mem::take(&mut self.changes)
    }

    /// Applies the data records of one batch, given as their values.
    ///
    /// - Errors: the batch had no effect, and the broker must not continue.
    pub fn apply<'a>(
        &mut self,
        provenance: Provenance,
        values: impl IntoIterator<Item = &'a [u8]>,
    ) -> Result<(), ImageError> {
        let mut image = self.image.clone();
        let mut changes = Vec::new();
        let mut transaction = self.transaction.take();
        let mut delta = ImageDelta::new(&image);
        for value in values {
            let (record, _version) = decode_frame(value)?;
            match (&record, &mut transaction) {
                (MetadataRecord::BeginTransaction(_), Some(_)) => {
                    return Err(ImageError::Transaction {
                        reason: "begin inside a transaction",
                    });
                }
                (MetadataRecord::BeginTransaction(_), None) => {
                    let (next, change) = delta.finish(provenance)?;
                    changes.push(change);
                    image = Arc::new(next);
                    delta = ImageDelta::new(&image);
                    transaction = Some(ImageDelta::new(&image));
                }
                (MetadataRecord::EndTransaction(_), open) => {
                    let Some(done) = open.take() else {
                        return Err(ImageError::Transaction {
                            reason: "end without begin",
                        });
                    };
                    let (next, change) = done.finish(provenance)?;
                    changes.push(change);
                    image = Arc::new(next);
                    delta = ImageDelta::new(&image);
                }
                (MetadataRecord::AbortTransaction(_), open) => {
                    if open.take().is_none() {
                        return Err(ImageError::Transaction {
                            reason: "abort without begin",
                        });
                    }
                    delta = ImageDelta::new(&image);
                }
                (record, Some(open)) => open.apply(record)?,
                (record, None) => delta.apply(record)?,
            }
        }
        // Inside a transaction only the image's position advances, not its contents.
        let (next, change) = delta.finish(provenance)?;
        changes.push(change);
        self.image = Arc::new(next);
        self.transaction = transaction;
        for change in changes {
            self.changes.merge(change);
        }
        Ok(())
    }

    /// Applies adjacent whole batches, as in a segment or a snapshot; returns their size in bytes.
    ///
    /// - Errors: a batch that is truncated, damaged or not understood; those before it have been
    ///   applied.
    pub fn apply_batches(&mut self, bytes: &[u8]) -> Result<usize, ImageError> {
        let mut iter = batches(bytes);
        for batch in iter.by_ref() {
            let batch = batch.map_err(batch_error)?;
            batch.verify_checksum().map_err(batch_error)?;
            self.apply_batch(&batch)?;
        }
        Ok(iter.position())
    }

    /// Applies one batch whose checksum was verified.
    pub fn apply_batch(&mut self, batch: &Batch<'_>) -> Result<(), ImageError> {
        let header = &batch.header;
        if header.compression() != Some(Codec::None) {
            return Err(ImageError::Batch {
                reason: format!("batch at offset {} is compressed", header.base_offset),
            });
        }
        let provenance = Provenance {
            last_offset: header.last_offset(),
            last_epoch: header.leader_epoch,
            last_timestamp_ms: header.max_timestamp,
        };
        if header.is_control() {
            for record in batch.records() {
                let record = record.map_err(batch_error)?;
                self.apply_control(&ControlRecord::decode(&record).map_err(batch_error)?)?;
            }
            let mut image = MetadataImage::clone(&self.image);
            image.provenance = provenance;
            self.image = Arc::new(image);
            return Ok(());
        }
        let mut values = Vec::with_capacity(header.record_count.clamp(0, 1024) as usize);
        for record in batch.records() {
            let record = record.map_err(batch_error)?;
            let value = record.value.ok_or_else(|| ImageError::Batch {
                reason: format!("record at offset {} has no value", record.offset),
            })?;
            values.push(value);
        }
        self.apply(provenance, values)
    }

    fn apply_control(&mut self, record: &ControlRecord<'_>) -> Result<(), ImageError> {
        match record {
            ControlRecord::KRaftVersion { kraft_version } => {
                let level = *kraft_version;
                self.quorum.kraft_version = level;
                let mut image = MetadataImage::clone(&self.image);
                let levels = &mut Arc::make_mut(&mut image.features).levels;
                match level {
                    0 => levels.remove(KRAFT_VERSION),
                    level => levels.insert(KRAFT_VERSION.into(), level),
                };
                self.image = Arc::new(image);
            }
            ControlRecord::Voters(record) => {
                self.quorum.voters = record
                    .voters
                    .iter()
                    .map(|voter| (voter.voter_id, voter.voter_directory_id))
                    .collect();
            }
            ControlRecord::LeaderChange(_)
            | ControlRecord::SnapshotHeader { .. }
            | ControlRecord::SnapshotFooter => {}
            ControlRecord::EndTransaction { .. } | ControlRecord::Unknown { .. } => {
                return Err(ImageError::Batch {
                    reason: format!(
                        "control record of type {} is not allowed here",
                        record.record_type()
                    ),
                });
            }
        }
        Ok(())
    }

    /// Replaces the position of the image: a snapshot represents another offset than those of its
    /// own records.
    pub fn set_provenance(&mut self, provenance: Provenance) {
        let mut image = MetadataImage::clone(&self.image);
        image.provenance = provenance;
        self.image = Arc::new(image);
    }
}

fn batch_error(error: impl std::fmt::Display) -> ImageError {
    ImageError::Batch {
        reason: error.to_string(),
    }
}

impl ImageChanges {
    fn merge(&mut self, later: ImageChanges) {
        for topic in &later.topics_removed {
            self.topics_changed.remove(&topic.id);
        }
        self.topics_changed.extend(later.topics_changed);
        self.topics_removed.extend(later.topics_removed);
        self.configs_changed.extend(later.configs_changed);
    }
}
