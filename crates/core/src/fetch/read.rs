//! Life of a fetch, 3 of 6. Before: handlers/fetch.rs. After: partition/mod.rs.
//!
//! One pass over the partitions of a fetch: finds, for each, the file range that answers it.

use std::sync::Arc;

use ottla_log::AbortedTransaction;
use ottla_log::ReadMode;
use ottla_log::disk::FileRegion;
use ottla_log::{Read, SegmentPosition, UncheckedRegion};
use ottla_wire::error_code::ErrorCode;

use super::session::{FetchPartition, SentState};
use crate::partition::{EpochEnd, Partition};

/// Which records a consumer may see (KIP-98).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IsolationLevel {
    #[default]
    ReadUncommitted,
    ReadCommitted,
}

impl IsolationLevel {
    /// Decodes the level.
    ///
    /// - Errors: INVALID_REQUEST for an unknown level. Apache Kafka answers UNKNOWN_SERVER_ERROR.
    pub fn from_wire(level: i8) -> Result<IsolationLevel, ErrorCode> {
        match level {
            0 => Ok(IsolationLevel::ReadUncommitted),
            1 => Ok(IsolationLevel::ReadCommitted),
            _ => Err(ErrorCode::InvalidRequest),
        }
    }
}

/// A partition of the fetch, resolved to the partition of that name at this moment.
#[derive(Clone, Debug)]
pub struct Target {
    pub asked: FetchPartition,
    pub partition: Result<Arc<Partition>, ErrorCode>,
}

impl Target {
    /// Returns the bytes that became readable so far; 0 for an unknown partition.
    pub fn readable_bytes(&self, isolation_level: IsolationLevel) -> u64 {
        match (&self.partition, isolation_level) {
            (Ok(partition), IsolationLevel::ReadUncommitted) => partition.visible_bytes(),
            (Ok(partition), IsolationLevel::ReadCommitted) => partition.stable_bytes(),
            (Err(_), _) => 0,
        }
    }

    pub fn is_deleted(&self) -> bool {
        self.partition
            .as_ref()
            .is_ok_and(|partition| partition.is_deleted())
    }
}

/// At most this many partitions of one answer carry records; more would hold up the event loop,
/// because a small file range is copied into the answer, which takes up to 8 µs. The others come
/// first in the next answer.
const REGIONS_MAX: usize = 256;

/// A client that asks for less of a partition at a time may be looking for something rather than
/// reading on: nothing is read ahead for it.
const READS_ON_BYTES_MIN: u64 = 512 * 1024;

/// Limits of the whole answer.
#[derive(Clone, Copy, Debug)]
pub struct AnswerLimits {
    pub bytes_max: u64,
    pub isolation_level: IsolationLevel,
}

/// The result of reading one partition.
#[derive(Clone, Debug)]
pub struct PartitionRead {
    pub error: ErrorCode,
    pub offsets: SentState,
    pub region: Option<FileRegion>,
    /// Bytes available to the client within its limits; `region` holds the whole batches of them.
    pub reached_bytes: u64,
    /// Size of the first batch in `region`.
    pub first_batch_bytes: u64,
    /// Where in the log the region begins.
    pub at: Option<SegmentPosition>,
    pub aborted_transactions: Option<Vec<AbortedTransaction>>,
    /// KIP-320: where the client's copy of the log diverges from this one.
    pub diverging: Option<EpochEnd>,
    /// Nothing could be read without waiting for the device.
    pub is_cold: bool,
    /// More than `region` is available, but on the device.
    pub is_cut: bool,
    /// The client's limit ended `region`, and what follows is on the device.
    pub is_cold_behind: bool,
    /// `region` must be compared with its checksums before it is served.
    pub unchecked: Option<UncheckedRegion>,
}

impl PartitionRead {
    pub fn bytes(&self) -> u64 {
        self.region.as_ref().map_or(0, |region| region.bytes)
    }

    pub fn has_error(&self) -> bool {
        self.error != ErrorCode::None
    }

    /// Replaces the result by an error.
    pub fn fail(&mut self, error: ErrorCode) {
        *self = PartitionRead {
            error,
            ..PartitionRead::empty(self.offsets)
        };
    }

    /// Keeps only the first `bytes` of the region.
    pub fn cut_to(&mut self, bytes: u64) {
        if let Some(region) = &mut self.region
            && bytes < region.bytes
        {
            region.bytes = bytes;
            (self.reached_bytes, self.is_cut) = (bytes, true);
        }
    }

    /// Drops the region: it is on the device and not loaded.
    pub fn take_away(&mut self) {
        (self.region, self.at, self.reached_bytes) = (None, None, 0);
        (self.is_cold, self.is_cut) = (true, false);
    }

    pub fn error(error: ErrorCode) -> PartitionRead {
        PartitionRead {
            error,
            ..PartitionRead::empty(SentState::default())
        }
    }

    fn empty(offsets: SentState) -> PartitionRead {
        PartitionRead {
            error: ErrorCode::None,
            offsets,
            region: None,
            reached_bytes: 0,
            first_batch_bytes: 0,
            at: None,
            aborted_transactions: None,
            diverging: None,
            is_cold: false,
            is_cut: false,
            is_cold_behind: false,
            unchecked: None,
        }
    }
}

/// The result of one pass.
#[derive(Debug, Default)]
pub struct ReadPass {
    /// Parallel to the targets.
    pub reads: Vec<PartitionRead>,
    /// Sum of [`PartitionRead::reached_bytes`]: a client whose limits are reached has enough.
    pub bytes: u64,
    /// An error or a diverging epoch: the client must get it without delay.
    pub is_urgent: bool,
    pub has_cold: bool,
    /// At least one partition has more, but on the device.
    pub is_cut: bool,
    /// What follows some region is on the device, although the client has all that it may have now.
    pub is_cold_behind: bool,
}

impl ReadPass {
    /// Whether readable bytes were left out because they are on the device.
    pub fn is_on_device(&self) -> bool {
        self.has_cold || self.is_cut
    }

    /// Whether a read-ahead would spare the next fetch a wait.
    pub fn wants_ahead(&self) -> bool {
        self.is_on_device() || self.is_cold_behind
    }
}

/// Reads all targets in order until `limits` is used up; the first batch found is returned whole,
/// however large.
pub fn read_all(targets: &[Target], limits: AnswerLimits, mode: ReadMode) -> ReadPass {
    let mut pass = ReadPass::default();
    let mut regions_left = REGIONS_MAX;
    for target in targets {
        let read = match &target.partition {
            Ok(partition) => {
                let left = match regions_left {
                    0 => 0,
                    _ => limits.bytes_max.saturating_sub(pass.bytes),
                };
                let left = u32::try_from(left).unwrap_or(u32::MAX);
                let share = Share {
                    bytes_max: left.min(u32::try_from(target.asked.bytes_max).unwrap_or(0)),
                    // KIP-74: the first batch is returned whole, however large, or a consumer could
                    // never get past it.
                    whole_first_batch: pass.bytes == 0,
                };
                read_one(&target.asked, partition, share, limits.isolation_level, mode)
            }
            Err(error) => PartitionRead::error(*error),
        };
        pass.bytes += read.reached_bytes;
        regions_left -= usize::from(read.bytes() > 0);
        pass.is_urgent |= read.has_error() || read.diverging.is_some();
        pass.has_cold |= read.is_cold;
        pass.is_cut |= read.is_cut;
        pass.is_cold_behind |= read.is_cold_behind;
        pass.reads.push(read);
    }
    pass
}

/// Reads one target where waiting is allowed: its first batch, and as many of the following as fit
/// into `bytes_max`.
pub fn read_at_most(target: &Target, bytes_max: u64, isolation_level: IsolationLevel) -> PartitionRead {
    let share = Share {
        bytes_max: u32::try_from(bytes_max).unwrap_or(u32::MAX),
        whole_first_batch: true,
    };
    match &target.partition {
        Ok(partition) => read_one(
            &target.asked,
            partition,
            share,
            isolation_level,
            ReadMode::Blocking,
        ),
        Err(error) => PartitionRead::error(*error),
    }
}

/// The part of the answer's limits that is left for one partition.
#[derive(Clone, Copy)]
struct Share {
    bytes_max: u32,
    whole_first_batch: bool,
}

fn read_one(
    asked: &FetchPartition,
    partition: &Partition,
    share: Share,
    isolation_level: IsolationLevel,
    mode: ReadMode,
) -> PartitionRead {
    if partition.is_deleted() {
        return PartitionRead::error(ErrorCode::UnknownTopicOrPartition);
    }
    if let Err(error) = partition.check_leader_epoch(asked.current_leader_epoch) {
        return PartitionRead::error(error);
    }
    let view = partition.view();
    let sent = SentState {
        high_watermark: view.offsets.high_watermark,
        last_stable_offset: view.offsets.last_stable,
        log_start_offset: view.offsets.start,
    };
    match divergence(asked, partition) {
        Ok(None) => {}
        Ok(diverging) => {
            return PartitionRead {
                diverging,
                ..PartitionRead::empty(sent)
            };
        }
        Err(error) => return PartitionRead::error(error),
    }
    let bound = match isolation_level {
        IsolationLevel::ReadCommitted => view.stable,
        IsolationLevel::ReadUncommitted => view.bound,
    };
    let mut answer = PartitionRead::empty(sent);
    match view.reader.read(
        asked.fetch_offset,
        share.bytes_max,
        share.whole_first_batch,
        bound,
        mode,
    ) {
        Ok(Read::Region(found)) => {
            if isolation_level == IsolationLevel::ReadCommitted {
                let reader = &view.reader;
                let aborted = reader.aborted_transactions(asked.fetch_offset, found.end_offset);
                answer.aborted_transactions = Some(aborted);
            }
            answer.region = Some(found.region);
            answer.reached_bytes = found.reached_bytes;
            answer.first_batch_bytes = found.first_batch_bytes;
            answer.is_cut = found.is_cut;
            answer.is_cold_behind = found.is_cold_behind && found.reached_bytes >= READS_ON_BYTES_MIN;
            answer.at = Some(found.at);
            answer.unchecked = found.unchecked;
        }
        Ok(Read::Empty) => {}
        Ok(Read::WouldBlock) => answer.is_cold = true,
        Err(error) => return PartitionRead::error(partition.read_failed(&error)),
    }
    if isolation_level == IsolationLevel::ReadCommitted {
        answer.aborted_transactions.get_or_insert_default();
    }
    answer
}

/// KIP-320: a client that names the epoch of its last record, and has more of it than the log, is
/// told where that epoch ended. OFFSET_OUT_OF_RANGE for an epoch that the log does not know, as
/// Apache Kafka answers.
fn divergence(asked: &FetchPartition, partition: &Partition) -> Result<Option<EpochEnd>, ErrorCode> {
    if asked.last_fetched_epoch < 0 {
        return Ok(None);
    }
    let end = partition.end_of_epoch(asked.last_fetched_epoch);
    let end = end.ok_or(ErrorCode::OffsetOutOfRange)?;
    let diverges = end.leader_epoch < asked.last_fetched_epoch || end.end_offset < asked.fetch_offset;
    Ok(diverges.then_some(end))
}
