//! A piece of memory that one thread fills while others read what is filled.

use std::cell::UnsafeCell;
use std::fmt;
use std::io;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::BLOCK_BYTES;
use super::memory::{LogMemory, Use};

const BLOCK: usize = BLOCK_BYTES as usize;

/// A block of memory, aligned as the device wants it.
#[repr(C, align(4096))]
pub(super) struct Block(UnsafeCell<[u8; BLOCK]>);

impl Block {
    pub fn zeros() -> Block {
        Block(UnsafeCell::new([0; BLOCK]))
    }

    pub fn bytes_mut(&mut self) -> &mut [u8; BLOCK] {
        self.0.get_mut()
    }
}

/// Memory that is in no chunk.
pub(super) type Blocks = Box<[Block]>;

pub(super) fn blocks(bytes: usize) -> Blocks {
    (0..bytes.div_ceil(BLOCK)).map(|_| Block::zeros()).collect()
}

/// Memory of one reader that the device can fill.
pub struct AlignedBuffer(Blocks);

impl AlignedBuffer {
    /// - `bytes`: rounded up to whole blocks.
    pub fn of(bytes: usize) -> AlignedBuffer {
        AlignedBuffer(blocks(bytes))
    }

    #[expect(unsafe_code, reason = "blocks side by side are one slice of bytes")]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: one allocation of initialised blocks without padding, borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_mut_ptr().cast::<u8>(), self.0.len() * BLOCK) }
    }
}

/// Memory of a log file. Its bytes below `filled` never change again; the others belong to the one
/// [`ChunkWriter`]. The memory returns to where it came from when the last holder drops it.
pub(super) struct Chunk {
    blocks: ManuallyDrop<Blocks>,
    filled: AtomicUsize,
    used_for: Use,
    memory: Arc<LogMemory>,
}

#[expect(unsafe_code, reason = "readers and the writer share the blocks")]
// SAFETY: bytes below `filled` are only read; those from it on are touched through the one
// `ChunkWriter` alone, which publishes them by a release store that readers load with acquire.
unsafe impl Sync for Chunk {}

impl fmt::Debug for Chunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Chunk({} of {})", self.filled(), self.capacity())
    }
}

impl Chunk {
    pub fn capacity(&self) -> usize {
        self.blocks.len() * BLOCK
    }

    pub fn filled(&self) -> usize {
        self.filled.load(Ordering::Acquire)
    }

    /// Returns what has been filled so far.
    #[expect(unsafe_code, reason = "a slice of memory that another thread goes on filling")]
    pub fn bytes(&self) -> &[u8] {
        let filled = self.filled();
        // SAFETY: the blocks are one allocation of at least `filled` initialised bytes, and nothing
        // writes below `filled` any more.
        unsafe { std::slice::from_raw_parts(self.start().cast_const(), filled) }
    }

    fn start(&self) -> *mut u8 {
        UnsafeCell::raw_get(self.blocks.as_ptr().cast::<UnsafeCell<u8>>())
    }
}

impl Drop for Chunk {
    #[expect(unsafe_code, reason = "the blocks outlive the chunk")]
    fn drop(&mut self) {
        // SAFETY: taken once, here, and not used afterwards.
        let blocks = unsafe { ManuallyDrop::take(&mut self.blocks) };
        self.memory.give_back(blocks, self.used_for);
    }
}

/// The only handle through which a chunk is filled.
#[derive(Debug)]
pub(super) struct ChunkWriter(Arc<Chunk>);

impl ChunkWriter {
    pub fn new(blocks: Blocks, used_for: Use, memory: Arc<LogMemory>) -> ChunkWriter {
        ChunkWriter(Arc::new(Chunk {
            blocks: ManuallyDrop::new(blocks),
            filled: AtomicUsize::new(0),
            used_for,
            memory,
        }))
    }

    pub fn chunk(&self) -> &Arc<Chunk> {
        &self.0
    }

    pub fn room(&self) -> usize {
        self.0.capacity() - self.0.filled()
    }

    /// Publishes the next `bytes`, whatever they are.
    pub fn skip(&mut self, bytes: usize) {
        assert!(bytes <= self.room());
        self.0.filled.store(self.0.filled() + bytes, Ordering::Release);
    }

    /// Copies as much of `bytes` as there is room for; returns how much that was.
    pub fn append(&mut self, bytes: &[u8]) -> usize {
        let count = bytes.len().min(self.room());
        self.free()[..count].copy_from_slice(&bytes[..count]);
        self.skip(count);
        count
    }

    /// Fills up to `bytes` in all by `read`, which gets the rest and how much there is already, and
    /// returns how many it has read, 0 at the end of its source.
    pub fn fill(
        &mut self,
        bytes: usize,
        mut read: impl FnMut(&mut [u8], u64) -> io::Result<usize>,
    ) -> io::Result<()> {
        while self.0.filled() < bytes {
            let done = self.0.filled();
            match read(&mut self.free()[..bytes - done], done as u64)? {
                0 => break,
                count => self.skip(count),
            }
        }
        Ok(())
    }

    /// The part that is not filled.
    #[expect(unsafe_code, reason = "the writer's part of shared memory")]
    pub fn free(&mut self) -> &mut [u8] {
        let filled = self.0.filled();
        // SAFETY: within the allocation, initialised, and no other thread touches bytes from
        // `filled` on: there is one writer, borrowed exclusively here.
        unsafe { std::slice::from_raw_parts_mut(self.0.start().add(filled), self.0.capacity() - filled) }
    }
}

/// A range of a file that stays in memory while this is held.
#[derive(Clone, Debug, Default)]
pub struct Pinned {
    parts: Vec<(Arc<Chunk>, Range<usize>)>,
}

impl Pinned {
    pub(super) fn push(&mut self, chunk: &Arc<Chunk>, range: Range<usize>) {
        if !range.is_empty() {
            self.parts.push((Arc::clone(chunk), range));
        }
    }

    pub fn slices(&self) -> impl Iterator<Item = &[u8]> {
        self.parts
            .iter()
            .map(|(chunk, range)| &chunk.bytes()[range.clone()])
    }

    pub fn bytes(&self) -> u64 {
        self.parts.iter().map(|(_, range)| range.len() as u64).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_writer_has_what_is_not_filled_and_readers_have_the_rest() {
        let memory = LogMemory::new(1 << 20, 1 << 20);
        let mut writer = memory.take(2 * BLOCK);
        assert_eq!(writer.append(&[1; 1_000]), 1_000);
        assert_eq!((writer.room(), writer.free().len()), (7_192, 7_192));
        assert_eq!(writer.chunk().bytes(), [1; 1_000]);
        assert_eq!(writer.append(&[2; 8_000]), 7_192);
        assert!(writer.free().is_empty());
        assert_eq!(writer.chunk().bytes()[1_000..], [2; 7_192]);
    }

    #[test]
    fn a_source_is_read_until_it_ends_or_nothing_more_is_wanted() {
        let memory = LogMemory::new(1 << 20, 1 << 20);
        let asked = |source: u64| {
            let mut writer = memory.take(BLOCK);
            let mut asked = Vec::new();
            let read = |buffer: &mut [u8], done: u64| {
                asked.push((done, buffer.len()));
                let count = buffer.len().min(1_000).min((source - done) as usize);
                buffer[..count].fill(9);
                Ok(count)
            };
            writer.fill(2_500, read).expect("read");
            (writer.chunk().filled(), asked)
        };
        assert_eq!(
            asked(10_000),
            (2_500, vec![(0, 2_500), (1_000, 1_500), (2_000, 500)])
        );
        assert_eq!(asked(1_000), (1_000, vec![(0, 2_500), (1_000, 1_500)]));
    }
}
