//! The memory of all log files of a broker: one bound, touched once and used again.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::chunk::{Blocks, ChunkWriter, blocks};
use super::file::OwnedFile;

/// Sizes of chunks: powers of two from one block on.
const CLASSES: usize = 7;
const CHUNK_BYTES_MIN: usize = 4 * 1024;
pub(super) const CHUNK_BYTES_MAX: usize = CHUNK_BYTES_MIN << (CLASSES - 1);

/// What is kept of written bytes before a reader has missed any. Memory that is touched for the
/// first time is dear (the kernel clears it, a hypervisor may have to find it), so the memory grows
/// only when a reader came too late for what it held.
const KEPT_BYTES_MIN: u64 = 64 * 1024 * 1024;

/// What is kept when nothing is appended any more.
const KEPT_BYTES_IDLE: u64 = 4 * 1024 * 1024;

/// The memory shrinks by this fraction with each tick in which no reader has missed anything, and
/// by the larger one when nothing was appended either.
const SHRINK_SHARE: u64 = 64;
const SHRINK_SHARE_IDLE: u64 = 8;

/// Memory for the newest bytes of log files, and for older ones that are being read.
///
/// - Units: bytes. Unwritten bytes may take more than `tail_max` for a moment: an appender asks
///   `is_short` and waits.
pub struct LogMemory {
    tail_max: u64,
    loaded_max: u64,
    unwritten: AtomicU64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    free: [Vec<Blocks>; CLASSES],
    free_bytes: u64,
    /// In chunks and free.
    held: u64,
    /// Written bytes are dropped so that no more than this is held.
    target: u64,
    has_missed: bool,
    has_grown: bool,
    /// Chunks that hold only written bytes, oldest first.
    written: VecDeque<Place>,
    loaded: VecDeque<Place>,
    loaded_bytes: u64,
    /// Files with unwritten or written bytes in memory whose last chunk is not in `written`.
    growing: Vec<Weak<OwnedFile>>,
}

/// What a chunk holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// Appended bytes.
    Tail,
    /// Bytes that were read from the device.
    Loaded,
}

/// A chunk of a file.
pub(super) struct Place {
    pub file: Weak<OwnedFile>,
    pub position: u64,
    pub bytes: u64,
}

/// What the memory is used for, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryUse {
    pub limit: u64,
    /// All memory taken from the operating system.
    pub held: u64,
    pub free: u64,
    /// Appended and not written yet.
    pub unwritten: u64,
    /// Read for consumers that lag behind.
    pub loaded: u64,
}

impl std::fmt::Debug for LogMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.now())
    }
}

impl LogMemory {
    /// - `tail_max`: for what was appended; `loaded_max`: for older bytes that are read.
    pub fn new(tail_max: u64, loaded_max: u64) -> Arc<LogMemory> {
        Arc::new(LogMemory {
            tail_max,
            loaded_max,
            unwritten: AtomicU64::new(0),
            state: Mutex::new(State {
                target: tail_max.min(KEPT_BYTES_MIN),
                ..State::default()
            }),
        })
    }

    pub fn now(&self) -> MemoryUse {
        let state = self.state();
        MemoryUse {
            limit: self.tail_max + self.loaded_max,
            held: state.held,
            free: state.free_bytes,
            unwritten: self.unwritten.load(Ordering::Relaxed),
            loaded: state.loaded_bytes,
        }
    }

    /// Whether so much waits for the device that no more should be appended for now.
    pub fn is_short(&self) -> bool {
        self.unwritten.load(Ordering::Relaxed) > self.tail_max / 2
    }

    pub(super) fn count_unwritten(&self, bytes: u64) {
        self.unwritten.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn count_written(&self, bytes: u64) {
        self.unwritten.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Takes a chunk for `bytes`, at most `CHUNK_BYTES_MAX`. Called without the lock of any file:
    /// written chunks of other files may have to go for it.
    pub(super) fn take(self: &Arc<Self>, bytes: usize) -> ChunkWriter {
        let class = class_of(bytes);
        let size = (CHUNK_BYTES_MIN << class) as u64;
        let found = loop {
            let mut state = self.state();
            state.has_grown = true;
            state.target = state.target.max(self.least_kept());
            if let Some(blocks) = state.take_from(class) {
                break Some(blocks);
            }
            if state.kept() + size <= state.target {
                state.held += size;
                break None;
            }
            if let Some(unused) = state.take_free() {
                drop(state);
                drop(unused);
                continue;
            }
            let Some(oldest) = state.written.pop_front() else {
                state.held += size;
                break None;
            };
            drop(state);
            if let Some(file) = oldest.file.upgrade() {
                file.let_go(oldest.position);
            }
        };
        let blocks = found.unwrap_or_else(|| blocks(CHUNK_BYTES_MIN << class));
        ChunkWriter::new(blocks, Use::Tail, Arc::clone(self))
    }

    /// Takes a chunk for bytes that are read from the device; nothing that was appended goes for
    /// it.
    pub(super) fn take_for_reading(self: &Arc<Self>, bytes: usize) -> ChunkWriter {
        let class = class_of(bytes);
        let size = (CHUNK_BYTES_MIN << class) as u64;
        let found = {
            let mut state = self.state();
            state.loaded_bytes += size;
            let found = state.take_from(class);
            if found.is_none() {
                state.held += size;
            }
            found
        };
        let blocks = found.unwrap_or_else(|| blocks(CHUNK_BYTES_MIN << class));
        ChunkWriter::new(blocks, Use::Loaded, Arc::clone(self))
    }

    /// Called when a chunk ends.
    pub(super) fn give_back(&self, blocks: Blocks, used_for: Use) {
        let bytes = blocks.len() * CHUNK_BYTES_MIN;
        let mut state = self.state();
        if used_for == Use::Loaded {
            state.loaded_bytes -= bytes as u64;
        }
        state.free_bytes += bytes as u64;
        state.free[class_of(bytes)].push(blocks);
    }

    /// Notes that a chunk holds only written bytes.
    pub(super) fn note_written(&self, place: Place) {
        let mut state = self.state();
        state.written.push_back(place);
        forget_ended(&mut state.written);
    }

    /// Notes a chunk that was read; the oldest of those go when there are too many.
    pub(super) fn note_loaded(&self, place: Place) {
        {
            let mut state = self.state();
            state.loaded.push_back(place);
            forget_ended(&mut state.loaded);
        }
        while let Some(oldest) = self.surplus_loaded() {
            if let Some(file) = oldest.file.upgrade() {
                file.forget_loaded(oldest.position);
            }
        }
    }

    fn surplus_loaded(&self) -> Option<Place> {
        let mut state = self.state();
        let is_surplus = state.loaded_bytes > self.loaded_max && state.loaded.len() > 1;
        is_surplus.then(|| state.loaded.pop_front())?
    }

    /// Notes that `bytes` had to be read from the device although they had been in memory shortly
    /// before.
    pub(super) fn note_missed(&self, bytes: u64) {
        let mut state = self.state();
        state.has_missed = true;
        state.target = (state.target + bytes).min(self.tail_max);
    }

    pub(super) fn note_growing(&self, file: Weak<OwnedFile>) {
        self.state().growing.push(file);
    }

    /// Gives unused memory back; call about once a second.
    pub fn tick(&self) {
        let growing = std::mem::take(&mut self.state().growing);
        let still_growing: Vec<Weak<OwnedFile>> = growing
            .into_iter()
            .filter(|file| file.upgrade().is_some_and(|file| !file.rest()))
            .collect();
        let mut state = self.state();
        state.growing.extend(still_growing);
        let has_missed = std::mem::take(&mut state.has_missed);
        let (share, least) = match std::mem::take(&mut state.has_grown) {
            true => (SHRINK_SHARE, self.least_kept()),
            false => (SHRINK_SHARE_IDLE, self.least_kept().min(KEPT_BYTES_IDLE)),
        };
        if !has_missed {
            state.target = (state.target - state.target / share).max(least);
        }
        let mut surplus = Vec::new();
        let mut kept = state.kept().saturating_sub(state.free_bytes);
        while kept > state.target
            && let Some(oldest) = state.written.pop_front()
        {
            kept = kept.saturating_sub(oldest.bytes);
            surplus.push(oldest);
        }
        drop(state);
        for place in surplus {
            if let Some(file) = place.file.upgrade() {
                file.let_go(place.position);
            }
        }
        let mut state = self.state();
        let unused = std::mem::take(&mut state.free);
        state.held -= std::mem::take(&mut state.free_bytes);
        drop(state);
        drop(unused);
    }

    /// Lets everything go that is on the device, as a long lag would.
    pub fn forget(&self) {
        let (written, loaded) = {
            let mut state = self.state();
            (
                std::mem::take(&mut state.written),
                std::mem::take(&mut state.loaded),
            )
        };
        for place in written {
            if let Some(file) = place.file.upgrade() {
                file.let_go(place.position);
            }
        }
        for place in loaded {
            if let Some(file) = place.file.upgrade() {
                file.forget_loaded(place.position);
            }
        }
    }

    fn least_kept(&self) -> u64 {
        self.tail_max.min(KEPT_BYTES_MIN)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Under this lock nothing panics except a failed allocation.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// What is held for appended bytes, and free.
    fn kept(&self) -> u64 {
        self.held.saturating_sub(self.loaded_bytes)
    }

    fn take_from(&mut self, class: usize) -> Option<Blocks> {
        let blocks = self.free[class].pop()?;
        self.free_bytes -= (CHUNK_BYTES_MIN << class) as u64;
        Some(blocks)
    }

    /// Takes free memory of some other size, to be returned to the operating system.
    fn take_free(&mut self) -> Option<Blocks> {
        let blocks = self.free.iter_mut().find_map(Vec::pop)?;
        let bytes = (blocks.len() * CHUNK_BYTES_MIN) as u64;
        self.free_bytes -= bytes;
        self.held -= bytes;
        Some(blocks)
    }
}

/// Removes the oldest places whose files are gone: two for each that is added, so that such places
/// do not pile up.
fn forget_ended(places: &mut VecDeque<Place>) {
    for _ in 0..2 {
        if places.front().is_some_and(|place| place.file.strong_count() == 0) {
            places.pop_front();
        }
    }
}

/// - `bytes`: at most `CHUNK_BYTES_MAX`.
fn class_of(bytes: usize) -> usize {
    let blocks = bytes.div_ceil(CHUNK_BYTES_MIN).next_power_of_two();
    blocks.trailing_zeros() as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_of_files_that_are_gone_do_not_pile_up() {
        let memory = LogMemory::new(1 << 20, 1 << 20);
        let place = || Place {
            file: Weak::new(),
            position: 0,
            bytes: 4_096,
        };
        for _ in 0..100 {
            memory.note_written(place());
            memory.note_loaded(place());
        }
        let state = memory.state();
        assert_eq!((state.written.len(), state.loaded.len()), (0, 0));
    }
}
