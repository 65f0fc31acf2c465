//! Fetches of what is not in the page cache: found and loaded where waiting is allowed, and read ahead from there on.
//!
//! A fetch gets what one job has loaded, not all it asked for: its answer leaves sooner, and nobody's job is long.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;

use ottla_log::disk::FileRegion;
use ottla_log::disk::cold_cache::ColdCache;
use ottla_log::{LogError, ReadMode, segment_file_name};
use ottla_wire::error_code::ErrorCode;

use super::read::{AnswerLimits, PartitionRead, ReadPass, Target, read_all, read_at_most};
use crate::executor::{ColdRead, Payer};
use crate::node::Node;
use crate::slot::Slot;

/// What one job loads before its fetch is answered: 4 ms of a disk that reads 128 MiB/s, and more than a consumer that asks
/// for 1 MiB in each of its partitions needs to go on.
const LOAD_BYTES: u64 = 512 * 1024;

/// What it loads after that, while the answer is on its way.
const READ_AHEAD_BYTES: u64 = 512 * 1024;

/// What a partition gets at least when many share the above.
const PARTITION_LOAD_BYTES_MIN: u64 = 64 * 1024;

/// Who is fetching.
#[derive(Clone, Copy, Debug)]
pub struct Fetcher {
    pub connection_id: u64,
    pub payer: Payer,
}

/// A fetch whose partitions are being loaded. Dropping it lets a job that has not begun do nothing.
pub struct ColdFetch {
    slot: Arc<Slot<ColdPass>>,
}

/// What became of it.
pub struct ColdPass {
    pub targets: Vec<Target>,
    pub pass: ReadPass,
    /// For how long a thread was busy with it or waited.
    pub disk_micros: u64,
}

impl ColdFetch {
    pub fn start(node: &Node, fetcher: Fetcher, targets: Vec<Target>, limits: AnswerLimits) -> ColdFetch {
        let slot = Arc::new(Slot::default());
        let job_slot = slot.clone();
        let job = move |node: &Node| {
            // Nobody else holds the slot: the connection is gone, and with it the reason to read.
            if Arc::strong_count(&job_slot) == 1 {
                return 0;
            }
            let began = node.clock.moment();
            let (pass, device_bytes) = load_all(&targets, limits, &node.cold_cache);
            let ahead = behind_of(&pass);
            job_slot.fill(ColdPass {
                targets,
                pass,
                disk_micros: node.clock.moment().micros_since(began),
            });
            device_bytes + load_ahead(&node.cold_cache, &ahead)
        };
        node.executor().cold_read(ColdRead {
            payer: fetcher.payer,
            bytes: LOAD_BYTES + READ_AHEAD_BYTES,
            job: Box::new(job),
        });
        ColdFetch { slot }
    }

    /// The result, or `waker` is registered for it.
    pub fn take_or_register(&self, waker: &Waker) -> Option<ColdPass> {
        self.slot.take_or_register(waker)
    }
}

/// As [`read_all`], and loads and checks what it found: of each region that is on the device or older than this process, only
/// what was loaded and is undamaged is given out.
fn load_all(targets: &[Target], limits: AnswerLimits, cache: &ColdCache) -> (ReadPass, u64) {
    let mut pass = read_all(targets, limits, ReadMode::Blocking);
    let cold_count = pass.reads.iter().filter(|read| needs_work(read)).count();
    let share = (LOAD_BYTES / cold_count.max(1) as u64).max(PARTITION_LOAD_BYTES_MIN);
    let (mut bytes, mut device_bytes) = (0, 0);
    for (target, read) in targets.iter().zip(&mut pass.reads) {
        let Some(region) = &read.region else { continue };
        if needs_work(read) {
            let wanted = region.bytes.min(share.max(read.first_batch_bytes));
            if device_bytes > 0 && device_bytes + wanted > LOAD_BYTES {
                read.take_away();
                pass.has_cold = true;
                continue;
            }
            if wanted < region.bytes {
                *read = read_at_most(target, wanted, limits.isolation_level);
                read.is_cut = true;
            }
            match load_and_check(read, cache) {
                Ok(worked) => device_bytes += worked,
                Err(error) => {
                    let code = target
                        .partition
                        .as_ref()
                        .map(|partition| partition.cannot_read(&error));
                    read.fail(code.unwrap_or(ErrorCode::KafkaStorageError));
                    pass.is_urgent = true;
                    continue;
                }
            }
        }
        bytes += read.reached_bytes;
        pass.is_cut |= read.is_cut;
    }
    pass.bytes = bytes;
    (pass, device_bytes)
}

fn needs_work(read: &PartitionRead) -> bool {
    let is_cold = |region: &FileRegion| !region.file.is_resident(region.position, region.bytes);
    read.unchecked.is_some() || read.region.as_ref().is_some_and(is_cold)
}

/// Returns how many bytes were loaded or compared with checksums.
fn load_and_check(read: &mut PartitionRead, cache: &ColdCache) -> Result<u64, LogError> {
    let Some(region) = &read.region else {
        return Ok(0);
    };
    let segment = read.at.map_or(0, |at| at.segment_base_offset);
    let failed = |source| LogError::io("read", segment_file_name(segment).as_ref(), source);
    let loaded = cache.load(region).map_err(failed)?;
    let Some(unchecked) = read.unchecked.take() else {
        return Ok(loaded);
    };
    let bytes = region.bytes;
    let whole = unchecked.check(bytes)?;
    read.cut_to(whole);
    Ok(bytes.max(loaded))
}

/// What comes next in the partitions of which less than there is was given out.
fn behind_of(pass: &ReadPass) -> Vec<FileRegion> {
    let cut: Vec<&FileRegion> = pass
        .reads
        .iter()
        .filter(|read| read.is_cut)
        .filter_map(|read| read.region.as_ref())
        .collect();
    let share = (READ_AHEAD_BYTES / cut.len().max(1) as u64).max(PARTITION_LOAD_BYTES_MIN);
    let behind = |region: &&FileRegion| FileRegion {
        file: region.file.clone(),
        position: region.position + region.bytes,
        bytes: share,
    };
    let count_max = (READ_AHEAD_BYTES / share) as usize;
    cut.iter().take(count_max).map(behind).collect()
}

/// Loads regions for a fetch that has not come yet; what cannot be read now is reported to the fetch that needs it.
fn load_ahead(cache: &ColdCache, regions: &[FileRegion]) -> u64 {
    regions.iter().map(|region| cache.load(region).unwrap_or(0)).sum()
}

/// Reads ahead for fetches that are answered without waiting, at most once at a time for each connection.
///
/// Without it a partition that lags would get nothing as long as another one of the same fetch always has news, and a
/// consumer that catches up would wait for the device at every second fetch.
#[derive(Debug, Default)]
pub struct ReadAhead {
    /// Connections for which a job is queued or runs.
    busy: Arc<Mutex<BTreeSet<u64>>>,
}

/// A connection's entry in `busy`; goes with the job, whether it ran or not.
struct Turn {
    busy: Arc<Mutex<BTreeSet<u64>>>,
    connection_id: u64,
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        busy.remove(&self.connection_id);
    }
}

impl ReadAhead {
    /// The fetch is answered by `pass`: loads what was left out of it, and what is behind what was cut.
    pub fn start(
        &self,
        node: &Node,
        fetcher: Fetcher,
        targets: &[Target],
        pass: &ReadPass,
        limits: AnswerLimits,
    ) {
        let Some(turn) = self.turn(fetcher.connection_id) else {
            return;
        };
        let ahead = behind_of(pass);
        let count_max = (LOAD_BYTES / PARTITION_LOAD_BYTES_MIN) as usize;
        let cold = |(target, read): (&Target, &PartitionRead)| read.is_cold.then(|| target.clone());
        let cold: Vec<Target> = targets
            .iter()
            .zip(&pass.reads)
            .filter_map(cold)
            .take(count_max)
            .collect();
        let job = move |node: &Node| {
            let mut bytes = load_ahead(&node.cold_cache, &ahead);
            if !cold.is_empty() {
                bytes += load_all(&cold, limits, &node.cold_cache).1;
            }
            drop(turn);
            bytes
        };
        node.executor().cold_read(ColdRead {
            payer: fetcher.payer,
            bytes: LOAD_BYTES + READ_AHEAD_BYTES,
            job: Box::new(job),
        });
    }

    fn turn(&self, connection_id: u64) -> Option<Turn> {
        let mut busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        busy.insert(connection_id).then(|| Turn {
            busy: self.busy.clone(),
            connection_id,
        })
    }
}
