//! The newest bytes of one file: what is in memory, and how much of it is on the device.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use super::BLOCK_BYTES;
use super::chunk::{Chunk, ChunkWriter, Pinned};
use super::memory::CHUNK_BYTES_MAX;

/// Consecutive chunks up to the file's end. Only the last one has room.
#[derive(Debug, Default)]
pub(super) struct Tail {
    pieces: VecDeque<Piece>,
    /// Fills the last chunk while that has room or is not written.
    writer: Option<ChunkWriter>,
    /// The size of the last chunk.
    chunk_bytes: usize,
    /// Something came since the last rest.
    is_awake: bool,
    /// The length that readers see.
    pub end: u64,
    /// On the device, durable, up to here.
    pub written: u64,
    /// The file must end here once it is written: nothing more is expected.
    pub is_final: bool,
    /// Something was appended since the last look.
    pub has_grown: bool,
    /// Chunks with smaller keys have been noted as written.
    noted: u64,
}

#[derive(Debug)]
struct Piece {
    /// A multiple of the block size.
    start: u64,
    /// Bytes of the file from here on are in the chunk; later than `start` only if memory did not
    /// hold the beginning of that block when the chunk was taken.
    valid_from: u64,
    /// Where the file ended when the chunk was taken: no two have the same.
    key: u64,
    chunk: Arc<Chunk>,
}

impl Piece {
    fn end(&self) -> u64 {
        self.start + self.chunk.filled() as u64
    }

    /// The part of the chunk that holds `from..to`, as far as it does.
    fn range(&self, from: u64, to: u64) -> Range<usize> {
        let from = from.max(self.valid_from).max(self.start);
        let to = to.min(self.end()).max(from);
        (from - self.start) as usize..(to - self.start) as usize
    }
}

/// What a write to the device is made of.
#[derive(Debug)]
pub(super) struct Unwritten {
    /// Begins at a multiple of the block size; the bytes below `from` are on the device already.
    pub start: u64,
    /// The first byte that memory holds.
    pub from: u64,
    pub end: u64,
    pub bytes: Pinned,
}

impl Tail {
    pub fn of_length(bytes: u64) -> Tail {
        Tail {
            end: bytes,
            written: bytes,
            ..Tail::default()
        }
    }

    pub fn room(&self) -> usize {
        self.writer.as_ref().map_or(0, ChunkWriter::room)
    }

    /// The size of the chunk that an append should take when there is no room: as large as what is
    /// to be appended, or twice the last one.
    pub fn next_chunk_bytes(&self, bytes: usize) -> usize {
        (2 * self.chunk_bytes).max(bytes).min(CHUNK_BYTES_MAX)
    }

    /// Goes on in a new chunk.
    pub fn add(&mut self, mut writer: ChunkWriter) {
        debug_assert!(self.room() == 0, "the last chunk has room");
        let start = self.end / BLOCK_BYTES * BLOCK_BYTES;
        let mut begun = Pinned::default();
        let has_begun = self.pin(start, self.end, &mut begun) == self.end;
        match has_begun {
            true => begun.slices().for_each(|slice| {
                writer.append(slice);
            }),
            false => writer.skip((self.end - start) as usize),
        }
        self.pieces.push_back(Piece {
            start,
            valid_from: if has_begun { start } else { self.end },
            key: self.end,
            chunk: Arc::clone(writer.chunk()),
        });
        self.chunk_bytes = writer.chunk().capacity();
        self.is_awake = true;
        self.writer = Some(writer);
    }

    /// Appends what there is room for; returns how much that was.
    pub fn append(&mut self, bytes: &[u8]) -> usize {
        let Some(writer) = &mut self.writer else { return 0 };
        let count = writer.append(bytes);
        self.end += count as u64;
        self.has_grown = true;
        self.is_final = false;
        count
    }

    /// Where memory begins; the end if nothing is in memory.
    pub fn start(&self) -> u64 {
        self.pieces.front().map_or(self.end, |piece| piece.valid_from)
    }

    /// Adds the part of `from..to` that is in memory, from its beginning on, to `pinned`; returns
    /// where that ends.
    pub fn pin(&self, from: u64, to: u64, pinned: &mut Pinned) -> u64 {
        if from < self.start() {
            return from;
        }
        let first = self.pieces.partition_point(|piece| piece.end() <= from);
        self.pin_from_piece(first, from, to, pinned)
    }

    fn pin_from_piece(&self, first: usize, from: u64, to: u64, pinned: &mut Pinned) -> u64 {
        let to = to.min(self.end);
        let mut at = from;
        for piece in self.pieces.range(first..) {
            if at >= to {
                break;
            }
            let range = piece.range(at, to);
            at += range.len() as u64;
            pinned.push(&piece.chunk, range);
        }
        at
    }

    /// Returns what is to be written now, whole blocks from the last written one on.
    pub fn unwritten(&self) -> Option<Unwritten> {
        let start = self.written / BLOCK_BYTES * BLOCK_BYTES;
        // Two chunks may share a block; the later one has all of it that memory holds, and the
        // device wants a block in one piece.
        let first = self.pieces.partition_point(|piece| piece.end() <= self.written);
        let from = start.max(self.pieces.get(first)?.valid_from);
        let mut bytes = Pinned::default();
        let end = self.pin_from_piece(first, from, self.end, &mut bytes);
        debug_assert_eq!(end, self.end, "what is not written is in memory");
        Some(Unwritten {
            start,
            from,
            end,
            bytes,
        })
    }

    /// Notes that everything below `end` is on the device. Returns the chunks that hold nothing
    /// else and are full: key and capacity.
    pub fn note_written(&mut self, end: u64) -> Vec<(u64, u64)> {
        self.written = self.written.max(end);
        // A full chunk that is written goes as soon as memory is wanted; a writer would hold it.
        if self.written == self.end {
            self.writer.take_if(|writer| writer.room() == 0);
        }
        let whole = match self.writer {
            Some(_) => self.written / BLOCK_BYTES * BLOCK_BYTES,
            None => u64::MAX,
        };
        let mut done = Vec::new();
        for piece in &self.pieces {
            let piece_end = piece.start + piece.chunk.capacity() as u64;
            if piece.key < self.noted {
                continue;
            }
            if piece_end > whole {
                break;
            }
            done.push((piece.key, piece.chunk.capacity() as u64));
            self.noted = piece.key + 1;
        }
        done
    }

    /// Ends the last chunk although it has room, if all of it is written: memory need not hold its
    /// last block any more. Returns the chunks that this completes.
    pub fn rest(&mut self) -> Vec<(u64, u64)> {
        if self.written < self.end {
            return Vec::new();
        }
        (self.writer, self.chunk_bytes, self.is_awake) = (None, 0, false);
        self.note_written(self.end)
    }

    pub fn is_resting(&self) -> bool {
        !self.is_awake
    }

    /// Drops the oldest chunk, if it is the one with this key.
    pub fn let_go(&mut self, key: u64) -> Option<Arc<Chunk>> {
        let is_oldest = self.pieces.front()?.key == key;
        (is_oldest && key < self.noted)
            .then(|| self.pieces.pop_front())?
            .map(|piece| piece.chunk)
    }

    /// Forgets everything in memory; the file is `bytes` long.
    pub fn reset(&mut self, bytes: u64) {
        *self = Tail::of_length(bytes);
    }
}
