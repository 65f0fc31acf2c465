//! Fetches that miss the page cache: found and loaded on threads that may wait for the disk, with
//! read-ahead from there on.
//!
//! A fetch gets what one job has loaded, not everything it asked for: its answer leaves sooner, and
//! every job stays short.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use ottla_log::disk::FileRegion;
use ottla_log::disk::cold_cache::ColdCache;
use ottla_log::{LogError, ReadMode, segment_file_name};
use ottla_wire::error_code::ErrorCode;

use super::read::{AnswerLimits, PartitionRead, ReadPass, Target, read_all, read_at_most};
use super::session::TopicRef;
use crate::services::{ColdRead, Payer, Services};
use crate::slot::Slot;

/// One job loads what the device gives in this time before its fetch is answered.
const LOAD_MS: u64 = 4;

/// Not less: it is what a disk of 128 MiB/s gives, and little for a single request.
const LOAD_BYTES_MIN: u64 = 512 * 1024;

const LOAD_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// What is loaded must stay until it is sent, and other readers' as well.
const LOADS_IN_CACHE_MIN: u64 = 32;

fn load_bytes(cache: &ColdCache) -> u64 {
    let room = cache.bytes_max() / LOADS_IN_CACHE_MIN;
    let wanted = cache.bytes_in(LOAD_MS).min(LOAD_BYTES_MAX);
    wanted.min(room).max(LOAD_BYTES_MIN)
}

/// Returns what a read-ahead loads at most of partitions that lag: what the next answer can hold of
/// them, also where the device, or the processor, is slow. Were it less, a consumer whose fetches
/// take their time would get less than producers write, and fall behind ever more.
fn ahead_bytes(
    cache: &ColdCache,
    targets: &[Target],
    pass: &ReadPass,
    lags: impl Fn(&PartitionRead) -> bool,
) -> u64 {
    let lagging = targets.iter().zip(&pass.reads).filter(|(_, read)| lags(read));
    let wanted: u64 = lagging
        .map(|(target, _)| u64::try_from(target.asked.bytes_max).unwrap_or(0))
        .sum();
    let room = cache.bytes_max() / LOADS_IN_CACHE_MIN;
    wanted.min(LOAD_BYTES_MAX).min(room).max(load_bytes(cache))
}

/// Whether more than its region is on the device.
fn has_more(read: &PartitionRead) -> bool {
    read.is_cut || read.is_cold_behind
}

/// The minimum for a partition when many share the above.
const PARTITION_LOAD_BYTES_MIN: u64 = 64 * 1024;

/// The client and connection that fetches.
#[derive(Clone, Copy, Debug)]
pub struct Fetcher {
    pub connection_id: u64,
    pub payer: Payer,
}

/// A fetch whose partitions are being loaded. Dropping it cancels a job that has not begun.
pub struct ColdFetch {
    slot: Arc<Slot<ColdPass>>,
}

/// The result of a cold fetch.
pub struct ColdPass {
    pub targets: Vec<Target>,
    /// To be answered: its flags, which say whether to go on waiting, are not kept.
    pub pass: ReadPass,
    /// How long a thread worked on it, waits for the device included.
    pub disk_micros: u64,
}

impl ColdFetch {
    pub fn start(
        services: &Services,
        cache: &Arc<ColdCache>,
        fetcher: Fetcher,
        targets: Vec<Target>,
        limits: AnswerLimits,
    ) -> ColdFetch {
        let cache = cache.clone();
        let load_max = load_bytes(&cache);
        let slot = Arc::new(Slot::default());
        let job_slot = slot.clone();
        let job = move |services: &Services| {
            // Nothing else holds the slot: the connection is gone, so there is no reason to read.
            if Arc::strong_count(&job_slot) == 1 {
                return 0;
            }
            let began = services.clock.moment();
            let (pass, device_bytes) = load_all(&targets, limits, &cache, load_max);
            let disk_micros = services.clock.moment().micros_since(began);
            cache.note_speed(device_bytes, disk_micros);
            let ahead = behind_of(&pass, ahead_bytes(&cache, &targets, &pass, has_more));
            job_slot.fill(ColdPass {
                targets,
                pass,
                disk_micros,
            });
            device_bytes + load_ahead(&cache, &ahead)
        };
        services.executor().cold_read(ColdRead {
            payer: fetcher.payer,
            bytes: 2 * load_max,
            job: Box::new(job),
        });
        ColdFetch { slot }
    }

    /// Takes the result, or registers `waker` for it.
    pub fn take_or_register(&self, waker: &Waker) -> Option<ColdPass> {
        self.slot.take_or_register(waker)
    }
}

/// As [`read_all`], then loads and checks the result: of each region that is on the device or older
/// than this process, only the part that was loaded and is undamaged is returned.
///
/// - `load_max`: bytes of all regions together, unless the first batch is larger.
fn load_all(targets: &[Target], limits: AnswerLimits, cache: &ColdCache, load_max: u64) -> (ReadPass, u64) {
    let mut pass = read_all(targets, limits, ReadMode::Blocking);
    let cold_count = pass.reads.iter().filter(|read| needs_work(read)).count();
    let share = (load_max / cold_count.max(1) as u64).max(PARTITION_LOAD_BYTES_MIN);
    let (mut bytes, mut device_bytes) = (0, 0);
    for (target, read) in targets.iter().zip(&mut pass.reads) {
        let Some(region) = &read.region else { continue };
        if needs_work(read) {
            let wanted = region.bytes.min(share.max(read.first_batch_bytes));
            if device_bytes > 0 && device_bytes + wanted > load_max {
                read.take_away();
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
                    continue;
                }
            }
        }
        bytes += read.reached_bytes;
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

/// Returns what follows on the device behind the regions, `bytes_max` bytes of all.
fn behind_of(pass: &ReadPass, bytes_max: u64) -> Vec<FileRegion> {
    let cut: Vec<&FileRegion> = pass
        .reads
        .iter()
        .filter(|read| has_more(read))
        .filter_map(|read| read.region.as_ref())
        .collect();
    let share = (bytes_max / cut.len().max(1) as u64).max(PARTITION_LOAD_BYTES_MIN);
    let behind = |region: &&FileRegion| FileRegion {
        file: region.file.clone(),
        position: region.position + region.bytes,
        bytes: share,
    };
    let count_max = (bytes_max / share) as usize;
    cut.iter().take(count_max).map(behind).collect()
}

/// Loads regions for a future fetch; read errors are left to the fetch that needs the region.
fn load_ahead(cache: &ColdCache, regions: &[FileRegion]) -> u64 {
    let within = |region: &FileRegion| FileRegion {
        file: region.file.clone(),
        position: region.position,
        bytes: (region.bytes).min(region.file.bytes().unwrap_or(0).saturating_sub(region.position)),
    };
    let regions = regions.iter().map(within);
    regions.map(|region| cache.load(&region).unwrap_or(0)).sum()
}

/// Reads ahead for fetches that are answered without waiting, at most one job at a time per
/// connection.
///
/// Without it a lagging partition would starve while another one of the same fetch always has new
/// records, and a consumer that catches up would wait for the device at every second fetch.
#[derive(Debug, Default)]
pub struct ReadAhead {
    turns: Turns,
}

/// By connection.
type Turns = Arc<Mutex<BTreeMap<u64, Turn>>>;

#[derive(Debug)]
enum Turn {
    /// The job is queued or runs.
    Taken,
    /// The job has loaded what begins here.
    Done(Vec<Beginning>),
}

/// The topic, the partition and the offset of a read.
type Beginning = (TopicRef, i32, i64);

/// Of connections that have ended, and of those that wait for their next fetch.
const TURNS_MAX: usize = 1_024;

/// A connection's turn. It ends with the job, whether that ran or not.
struct ColdTurn {
    turns: Turns,
    connection_id: u64,
    loaded: Vec<Beginning>,
}

impl Drop for ColdTurn {
    fn drop(&mut self) {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        turns.remove(&self.connection_id);
        if self.loaded.is_empty() {
            return;
        }
        if turns.len() >= TURNS_MAX {
            turns.retain(|_, turn| matches!(turn, Turn::Taken));
        }
        let loaded = std::mem::take(&mut self.loaded);
        turns.insert(self.connection_id, Turn::Done(loaded));
    }
}

impl ReadAhead {
    /// Called when the fetch is answered by `pass`: loads what was left out of it, and what follows
    /// its regions on the device.
    pub fn start(
        &self,
        services: &Services,
        cache: &Arc<ColdCache>,
        fetcher: Fetcher,
        targets: &[Target],
        pass: &ReadPass,
        limits: AnswerLimits,
    ) {
        let Some(mut turn) = self.turn(fetcher.connection_id) else {
            return;
        };
        let ahead = behind_of(pass, ahead_bytes(cache, targets, pass, has_more));
        let load_max = ahead_bytes(cache, targets, pass, |read| read.is_cold);
        let count_max = (load_max / PARTITION_LOAD_BYTES_MIN) as usize;
        let cold: Vec<Target> = cold_targets(targets, pass).take(count_max).cloned().collect();
        let estimate = ahead.iter().map(|region| region.bytes).sum::<u64>();
        let estimate = estimate + if cold.is_empty() { 0 } else { load_max };
        let cache = cache.clone();
        let job = move |_: &Services| {
            let mut bytes = load_ahead(&cache, &ahead);
            if !cold.is_empty() {
                let (pass, loaded) = load_all(&cold, limits, &cache, load_max);
                bytes += loaded;
                let is_done =
                    |(_, read): &(&Target, &PartitionRead)| read.region.is_some() || read.has_error();
                let done = cold.iter().zip(&pass.reads).filter(is_done);
                turn.loaded = done.map(|(target, _)| beginning(target)).collect();
            }
            drop(turn);
            bytes
        };
        services.executor().cold_read(ColdRead {
            payer: fetcher.payer,
            bytes: estimate,
            job: Box::new(job),
        });
    }

    /// Whether something that the last job of this connection has loaded is missing in `pass`: it
    /// cannot be read, or memory has lost it again. Then this fetch has to wait for the device,
    /// which returns the records, or the error, with the same answer.
    pub fn was_in_vain(&self, fetcher: Fetcher, targets: &[Target], pass: &ReadPass) -> bool {
        if !pass.has_cold {
            return false;
        }
        let mut turns = self.lock();
        let Some(Turn::Done(loaded)) = turns.get(&fetcher.connection_id) else {
            return false;
        };
        let is_in_vain = cold_targets(targets, pass).any(|target| loaded.contains(&beginning(target)));
        turns.remove(&fetcher.connection_id);
        is_in_vain
    }

    fn turn(&self, connection_id: u64) -> Option<ColdTurn> {
        let mut turns = self.lock();
        if let Some(Turn::Taken) = turns.insert(connection_id, Turn::Taken) {
            return None;
        }
        Some(ColdTurn {
            turns: self.turns.clone(),
            connection_id,
            loaded: Vec::new(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Turn>> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn cold_targets<'a>(targets: &'a [Target], pass: &'a ReadPass) -> impl Iterator<Item = &'a Target> {
    let cold = targets.iter().zip(&pass.reads).filter(|(_, read)| read.is_cold);
    cold.map(|(target, _)| target)
}

fn beginning(target: &Target) -> Beginning {
    let asked = &target.asked;
    (asked.topic.clone(), asked.index, asked.fetch_offset)
}
