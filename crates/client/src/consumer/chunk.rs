//! The records of one partition in one fetch response, from arrival until the application has taken
//! the last one.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use bytes::{Buf, Bytes};
use ottla_wire::messages::fetch::AbortedTransaction;
use ottla_wire::records::batch::{Batch, BatchError, BatchHeader, HEADER_BYTES, TimestampType, batches};
use ottla_wire::records::compression::{Codec, decompress};
use ottla_wire::records::record::RawRecord;

use super::position::Position;
use super::records::Run;
use super::topic_partition::TopicPartition;
use crate::error::{Error, Feature};

/// Limit for a decompressed batch; brokers refuse batches far below it unless `max.message.bytes`
/// was raised.
const BATCH_BYTES_MAX: usize = 256 * 1024 * 1024;

/// One fetch response, alive as long as a chunk of it has unread records. The number of a node's
/// unread responses is counted with it.
#[derive(Debug)]
pub struct FetchAnswer {
    /// Records handed to the application so far.
    pub records: AtomicU64,
    /// Their encoded bytes, uncompressed.
    pub bytes: AtomicU64,
}

impl FetchAnswer {
    pub fn new() -> Arc<FetchAnswer> {
        Arc::new(FetchAnswer {
            records: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        })
    }
}

/// How batches are read.
#[derive(Clone, Copy, Debug)]
pub struct ChunkReading {
    /// `check.crcs`.
    pub checks_crcs: bool,
    /// `isolation.level`.
    pub read_committed: bool,
}

/// The batches of one partition in one response.
#[derive(Debug)]
pub struct Chunk {
    pub topic_partition: TopicPartition,
    /// `PartitionState::version` at the time of the fetch.
    pub version: u64,
    /// `None` once the chunk owns its memory, see `detach`.
    pub answer: Option<Arc<FetchAnswer>>,
    reading: ChunkReading,
    /// Batches not yet begun.
    rest: Bytes,
    open: Option<OpenBatch>,
    position: Position,
    /// At least one whole batch was seen.
    has_begun: bool,
    aborted: VecDeque<AbortedTransaction>,
    aborting_producers: BTreeSet<i64>,
    /// Final: the chunk gives this error from now on.
    failure: Option<Error>,
}

/// A batch whose records are partly handed out.
#[derive(Debug)]
struct OpenBatch {
    header: BatchHeader,
    /// Uncompressed; starts with the next record.
    rest: Bytes,
    remaining: i32,
}

/// How far the batches of a response reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The position after the last whole batch; `None` without one.
    pub end: Option<Position>,
    /// The bytes after it are not a batch, or one of another format.
    pub is_broken: bool,
}

/// Reads the headers only.
pub fn extent(records: &[u8]) -> Extent {
    let mut end = None;
    for batch in batches(records) {
        match batch {
            Ok(batch) => {
                end = Some(Position {
                    offset: batch.header.next_offset(),
                    leader_epoch: leader_epoch(&batch.header),
                });
            }
            // Brokers may cut off the last batch at the size limit, but not the first.
            Err(BatchError::Truncated { .. }) => {
                return Extent {
                    end,
                    is_broken: end.is_none(),
                };
            }
            Err(_) => return Extent { end, is_broken: true },
        }
    }
    Extent {
        end,
        is_broken: false,
    }
}

fn leader_epoch(header: &BatchHeader) -> Option<i32> {
    (header.leader_epoch >= 0).then_some(header.leader_epoch)
}

impl Chunk {
    /// - `from`: the requested position; the first batch may begin before it.
    pub fn new(
        topic_partition: TopicPartition,
        version: u64,
        answer: Arc<FetchAnswer>,
        reading: ChunkReading,
        from: Position,
        records: Bytes,
        mut aborted: Vec<AbortedTransaction>,
    ) -> Chunk {
        aborted.sort_by_key(|transaction| transaction.first_offset);
        Chunk {
            topic_partition,
            version,
            answer: Some(answer),
            reading,
            rest: records,
            open: None,
            position: from,
            has_begun: false,
            aborted: aborted.into(),
            aborting_producers: BTreeSet::new(),
            failure: None,
        }
    }

    /// The position after the last record taken.
    pub fn position(&self) -> Position {
        self.position
    }

    pub fn is_exhausted(&self) -> bool {
        self.rest.is_empty() && self.open.is_none() && self.failure.is_none()
    }

    #[cfg(test)]
    pub fn unread_bytes(&self) -> usize {
        self.rest.len() + self.open.as_ref().map_or(0, |open| open.rest.len())
    }

    /// Copies the unread bytes, so that a chunk that stays for long (its partition is paused) does
    /// not keep a whole response in memory and does not count as unread.
    pub fn detach(&mut self) {
        if self.answer.take().is_some() {
            self.rest = Bytes::copy_from_slice(&self.rest);
            if let Some(open) = &mut self.open {
                open.rest = Bytes::copy_from_slice(&open.rest);
            }
        }
    }

    /// Takes at most `record_count_max` records and returns their number; 0 only when there are no
    /// more.
    ///
    /// - Errors: `CorruptBatch`, once the records before that batch were taken; every later call
    ///   returns it again.
    pub(super) fn take(&mut self, record_count_max: usize, runs: &mut Vec<Run>) -> Result<usize, Error> {
        let mut taken = 0;
        while taken < record_count_max && self.failure.is_none() {
            if self.open.is_none() && !self.open_next() {
                break;
            }
            if let Some(run) = self.take_run(record_count_max - taken) {
                taken += run.record_count as usize;
                runs.push(run);
            }
        }
        match &self.failure {
            Some(failure) if taken == 0 => Err(failure.clone()),
            _ => Ok(taken),
        }
    }

    /// Opens the next batch with records for the application; false at the end.
    fn open_next(&mut self) -> bool {
        while !self.rest.is_empty() && self.failure.is_none() {
            let (header, batch_bytes) = match self.next_batch() {
                Ok(Some(next)) => next,
                Ok(None) => {
                    self.rest = Bytes::new();
                    return false;
                }
                Err((offset, reason)) => {
                    self.fail(offset, reason);
                    return false;
                }
            };
            self.has_begun = true;
            let records = self.rest.slice(HEADER_BYTES..batch_bytes);
            if header.next_offset() <= self.position.offset {
                self.rest.advance(batch_bytes);
            } else if self.is_for_application(&header, &records) {
                match self.unfold(&header, records) {
                    Ok(rest) => {
                        self.rest.advance(batch_bytes);
                        self.open = Some(OpenBatch {
                            header,
                            rest,
                            remaining: header.record_count,
                        });
                        return true;
                    }
                    Err(failure) => self.stop_with(failure),
                }
            } else {
                self.rest.advance(batch_bytes);
                self.position = end_of(&header);
            }
        }
        false
    }

    /// The header and size of the batch at the start of `rest`; `None` for one that was cut off,
    /// which brokers may do with all but the first of a response.
    fn next_batch(&self) -> Result<Option<(BatchHeader, usize)>, (i64, String)> {
        let batch = match Batch::parse(&self.rest) {
            Ok(batch) => batch,
            Err(BatchError::Truncated { .. }) if self.has_begun => return Ok(None),
            Err(error) => return Err((self.position.offset, error.to_string())),
        };
        let is_wanted = batch.header.next_offset() > self.position.offset;
        if self.reading.checks_crcs
            && is_wanted
            && let Err(error) = batch.verify_checksum()
        {
            return Err((batch.header.base_offset, error.to_string()));
        }
        Ok(Some((batch.header, batch.bytes.len())))
    }

    /// Whether the records are data and, where aborted records are filtered, of no aborted
    /// transaction.
    ///
    /// - Source: KIP-98: a transaction counts as aborted from its first offset to its producer's
    ///   next abort marker.
    fn is_for_application(&mut self, header: &BatchHeader, records: &[u8]) -> bool {
        if self.reading.read_committed && header.has_producer_id() {
            while let Some(transaction) = self.aborted.front()
                && transaction.first_offset <= header.last_offset()
            {
                self.aborting_producers.insert(transaction.producer_id);
                self.aborted.pop_front();
            }
            if header.is_control() {
                if is_abort_marker(records) {
                    self.aborting_producers.remove(&header.producer_id);
                }
            } else if header.is_transactional() && self.aborting_producers.contains(&header.producer_id) {
                return false;
            }
        }
        !header.is_control()
    }

    /// Takes at most `record_count_max` records of the open batch; `None` when none is at or after
    /// the position.
    fn take_run(&mut self, record_count_max: usize) -> Option<Run> {
        let open = self.open.as_mut()?;
        let header = open.header;
        let mut record_count = 0;
        let mut run_start = 0;
        let mut rest: &[u8] = &open.rest;
        let mut broken = None;
        let mut position = self.position;
        while open.remaining > 0 && (record_count as usize) < record_count_max {
            let (fields, end) = match RawRecord::decode(rest, 0) {
                Ok(decoded) => decoded,
                Err(error) => {
                    broken = Some(error.to_string());
                    break;
                }
            };
            rest = &rest[end..];
            open.remaining -= 1;
            let offset = header.base_offset.wrapping_add(i64::from(fields.offset_delta));
            if record_count == 0 && offset < position.offset {
                run_start = open.rest.len() - rest.len();
                continue;
            }
            record_count += 1;
            position.offset = offset.saturating_add(1);
        }
        let run_end = open.rest.len() - rest.len();
        let run = (record_count > 0).then(|| Run {
            base_offset: header.base_offset,
            base_timestamp: match header.timestamp_type() {
                TimestampType::CreateTime => header.base_timestamp,
                TimestampType::LogAppendTime => header.max_timestamp,
            },
            timestamp_type: header.timestamp_type(),
            leader_epoch: header.leader_epoch,
            record_count,
            bytes: open.rest.slice(run_start..run_end),
        });
        open.rest.advance(run_end);
        position.leader_epoch = leader_epoch(&header);
        if let Some(reason) = broken {
            self.fail(position.offset, reason);
        } else if open.remaining <= 0 && !open.rest.is_empty() {
            let reason = format!("{} bytes follow its last record", open.rest.len());
            self.fail(header.base_offset, reason);
        } else if open.remaining <= 0 {
            position = end_of(&header);
            self.open = None;
        }
        if run.is_some() || self.open.is_none() {
            self.position = position;
        }
        run
    }

    fn corrupt(&self, offset: i64, reason: impl Into<Arc<str>>) -> Error {
        Error::CorruptBatch {
            topic: Arc::clone(&self.topic_partition.topic),
            partition: self.topic_partition.partition,
            offset,
            reason: reason.into(),
        }
    }

    fn fail(&mut self, offset: i64, reason: String) {
        self.stop_with(self.corrupt(offset, reason));
    }

    fn stop_with(&mut self, failure: Error) {
        self.failure = Some(failure);
        self.rest = Bytes::new();
        self.open = None;
    }

    /// The records' bytes, uncompressed.
    fn unfold(&self, header: &BatchHeader, records: Bytes) -> Result<Bytes, Error> {
        let offset = header.base_offset;
        match header.compression() {
            Some(Codec::None) => Ok(records),
            Some(codec) if !codec.is_built() => {
                let what = format!("{codec} batch at offset {offset} of {}", self.topic_partition);
                Err(Error::missing_feature(Feature::Zstd, what))
            }
            Some(codec) => {
                let mut unfolded = Vec::new();
                decompress(codec, &records, BATCH_BYTES_MAX, &mut unfolded)
                    .map_err(|error| self.corrupt(offset, error.to_string()))?;
                Ok(unfolded.into())
            }
            None => {
                let attributes = header.attributes;
                let reason = format!("its attributes {attributes:#06x} name no known compression");
                Err(self.corrupt(offset, reason))
            }
        }
    }
}

/// The position after a whole batch, even if records at its end were compacted away.
fn end_of(header: &BatchHeader) -> Position {
    Position {
        offset: header.next_offset(),
        leader_epoch: leader_epoch(header),
    }
}

/// Whether a control batch aborts a transaction: its record's key is a version (16 bits) and a
/// type.
fn is_abort_marker(records: &[u8]) -> bool {
    const ABORT: [u8; 2] = [0, 0];
    RawRecord::decode(records, 0)
        .ok()
        .and_then(|(fields, _)| fields.key)
        .is_some_and(|key| key.get(2..4) == Some(&ABORT[..]))
}
