//! One partition on disk, in Apache Kafka's directory format.
//!
//! This crate knows no requests, no clients and no other partitions, and starts no threads. Work
//! that waits for the device is handed out as jobs: begin under the partition's lock, run without
//! it, finish under it again.
//!
//! Reading order: the modules below, from the entry point down to the foundations.

mod partition_log;
mod origin;
mod reader;
mod read_mode;
mod timestamp_search;
mod marker_search;
mod sync;
mod group_commit;
mod close;
mod retention;
mod compaction;
mod offset_map;
mod segment;
mod checked_ranges;
mod stored_batch;
mod index_file;
mod offset_index;
mod time_index;
mod transaction_index;
mod producer_state;
mod marker;
mod leader_epoch;
mod recovery;
pub mod inspection;
mod batch_scanner;
pub mod crew;
pub mod checkpoint;
pub mod directory;
mod config;
mod error;
pub mod disk;

pub use close::CloseJob;
pub use compaction::{CompactionJob, CompactionStatistics};
pub use config::LogConfig;
pub use error::{AppendError, LogError, ReadError};
pub use leader_epoch::{EpochEntry, LeaderEpochs};
pub use marker_search::FoundMarker;
pub use origin::{Origin, Ticket};
pub use partition_log::{Appended, BatchToAppend, PartitionLog, SegmentSummary, Visible};
pub use producer_state::ActiveProducer;
pub use read_mode::ReadMode;
pub use reader::{Bound, LogReader, Read, ReadRegion, SegmentPosition, UncheckedRegion};
pub use recovery::{Finding, FindingKind, OpenOptions, RecoveryReport};
pub use retention::SegmentRemoval;
pub use sync::{CheckpointJob, SyncJob, WritebackJob};
pub use timestamp_search::{Lookup, TimestampOffset};
pub use transaction_index::AbortedTransaction;

/// Returns the name of the file that holds the batches from `base_offset` on.
pub fn segment_file_name(base_offset: i64) -> String {
    segment::file_name(base_offset, segment::FileKind::Log)
}

/// The file of a partition's leader epochs.
pub const LEADER_EPOCH_FILE: &str = "leader-epoch-checkpoint";
