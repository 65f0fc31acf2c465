//! A log file: its tail in memory, the rest on the device.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use super::BLOCK_BYTES;
use super::chunk::{Block, Chunk, ChunkWriter, Pinned};
use super::memory::{CHUNK_BYTES_MAX, LogMemory, Place};
use super::tail::{Tail, Unwritten};
use crate::disk::os::Descriptor;
use crate::disk::{Disk, DiskFile, OpenMode, shortage};
use crate::error::is_full;

/// Bytes that are not in the tail are read in pieces of this size, each at a multiple of it.
const GRANULE_BYTES: u64 = 128 * 1024;

/// One request to the device brings at most this many.
const GRANULES_MAX: usize = 8;

/// Space is reserved this far beyond the end, so that a full disk is known before a write fails and
/// a write need not allocate. It doubles from the first to the second number as the file grows, so
/// that a small log stays small.
const RESERVE_BYTES_MIN: u64 = 64 * 1024;
const RESERVE_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// One write to the device is at most this large, so that a flood does not make others wait for it.
const WRITE_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// A reader this close behind the tail has come too late for what memory held; farther away, more
/// memory would not have helped it.
const MISSED_BYTES_MAX: u64 = 1024 * 1024 * 1024;

/// A file at least this long has zeros written ahead of small writes, this far at most: a write
/// over blocks that have been written before changes nothing in the file system, and costs a third
/// less than one that does.
const ZEROS_AHEAD_MAX: u64 = 256 * 1024;

/// Larger writes have a cost of their own that outweighs the file system's.
const SMALL_WRITE_BYTES_MAX: u64 = 64 * 1024;

#[repr(C, align(4096))]
struct Zeros([u8; 64 * 1024]);

static ZEROS: Zeros = Zeros([0; 64 * 1024]);

pub(super) struct OwnedFile {
    below: Below,
    memory: Arc<LogMemory>,
    tail: Mutex<Tail>,
    /// Granules that were read from the device, by number.
    loaded: Mutex<BTreeMap<u64, Arc<Chunk>>>,
    /// Held by the one thread that writes to the device.
    turn: Mutex<Writer>,
    /// The last write found the disk full.
    is_full: AtomicBool,
    /// Where memory began to be used: the file's length when it was opened.
    opened_at: AtomicU64,
    this: Weak<OwnedFile>,
}

/// What only the writing thread knows.
#[derive(Debug, Default)]
struct Writer {
    /// Space is reserved up to here.
    reserved: u64,
    /// Blocks have been written up to here, with zeros at the end.
    zeroed: u64,
    /// The file below ends where this one does, and nothing is reserved beyond.
    is_trimmed: bool,
    /// How often the file below was given its exact length, which only a sync makes durable.
    trims: u64,
    /// The number of them that are durable.
    synced_trims: u64,
}

impl Writer {
    /// After the file below was given its exact length.
    fn note_trimmed(&mut self) {
        *self = Writer {
            is_trimmed: true,
            trims: self.trims + 1,
            synced_trims: self.synced_trims,
            ..Writer::default()
        };
    }
}

/// A file whose exact length a sync below makes durable.
pub(super) struct Trimmed {
    pub below: Arc<dyn DiskFile>,
    trims: u64,
}

/// The file on the device: opened, or to be created by the first thread that may wait for that.
struct Below {
    file: OnceLock<Arc<dyn DiskFile>>,
    /// Held by the thread that creates the file: another one would empty it again.
    creation: Mutex<()>,
    disk: Arc<dyn Disk>,
    path: PathBuf,
}

impl Below {
    /// Waits for the device if the file has to be created.
    fn get(&self) -> io::Result<&Arc<dyn DiskFile>> {
        if let Some(file) = self.file.get() {
            return Ok(file);
        }
        let _turn = self.creation.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = self.file.get() {
            return Ok(file);
        }
        let file = self.disk.open_direct(&self.path, OpenMode::Create)?;
        // A leftover of that name holds nothing that counts.
        if file.bytes()? > 0 {
            file.set_bytes(0)?;
        }
        Ok(self.file.get_or_init(|| file))
    }
}

impl fmt::Debug for OwnedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OwnedFile({})", self.below.path.display())
    }
}

impl OwnedFile {
    /// Opens a file. Waits for the device.
    pub fn open(
        disk: &Arc<dyn Disk>,
        path: &Path,
        mode: OpenMode,
        memory: &Arc<LogMemory>,
    ) -> io::Result<Arc<OwnedFile>> {
        let file = disk.open_direct(path, mode)?;
        let bytes = file.bytes()?;
        Ok(OwnedFile::new(Some(file), bytes, disk, path, memory))
    }

    /// A new file, which the first sync creates.
    pub fn create(disk: &Arc<dyn Disk>, path: &Path, memory: &Arc<LogMemory>) -> Arc<OwnedFile> {
        OwnedFile::new(None, 0, disk, path, memory)
    }

    fn new(
        file: Option<Arc<dyn DiskFile>>,
        bytes: u64,
        disk: &Arc<dyn Disk>,
        path: &Path,
        memory: &Arc<LogMemory>,
    ) -> Arc<OwnedFile> {
        Arc::new_cyclic(|this| OwnedFile {
            below: Below {
                file: file.map_or_else(OnceLock::new, OnceLock::from),
                creation: Mutex::default(),
                disk: Arc::clone(disk),
                path: path.to_path_buf(),
            },
            memory: Arc::clone(memory),
            tail: Mutex::new(Tail::of_length(bytes)),
            loaded: Mutex::default(),
            turn: Mutex::default(),
            is_full: AtomicBool::new(false),
            opened_at: AtomicU64::new(bytes),
            this: Weak::clone(this),
        })
    }

    fn tail(&self) -> MutexGuard<'_, Tail> {
        // Critical sections leave the tail consistent.
        self.tail.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn loaded(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Chunk>>> {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The file is `bytes` long; what memory held of it is forgotten if that is another length.
    fn end_at(&self, bytes: u64) {
        let mut tail = self.tail();
        if bytes != tail.end {
            self.memory.count_written(tail.end - tail.written);
            tail.reset(bytes);
            self.loaded().clear();
            self.opened_at.fetch_min(bytes, Ordering::Relaxed);
        }
    }

    fn note_written(&self, done: Vec<(u64, u64)>) {
        for (position, bytes) in done {
            self.memory.note_written(Place {
                file: Weak::clone(&self.this),
                position,
                bytes,
            });
        }
    }

    /// Called by the memory: the chunk at `position` is wanted for something else.
    pub fn let_go(&self, position: u64) {
        let gone = self.tail().let_go(position);
        drop(gone);
    }

    pub fn forget_loaded(&self, position: u64) {
        let gone = self.loaded().remove(&(position / GRANULE_BYTES));
        drop(gone);
    }

    /// Called about once a second while the last chunk is kept for more: true if nothing came since
    /// the last call, and the chunk may go like others.
    pub fn rest(&self) -> bool {
        let (done, rests) = {
            let mut tail = self.tail();
            let has_grown = std::mem::take(&mut tail.has_grown);
            let done = if has_grown { Vec::new() } else { tail.rest() };
            (done, tail.is_resting())
        };
        self.note_written(done);
        rests
    }

    /// Writes what was appended so far, durably, and trims the file if its end is final. Returns
    /// the file below if only a sync makes that durable; `note_synced` follows it. Waits for the
    /// device.
    ///
    /// - Errors: a shortage on a full disk; nothing is lost, and a later call goes on.
    pub fn write_out(&self) -> io::Result<Option<Trimmed>> {
        let mut writer = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let below = self.below.get().map_err(|error| self.put_off_if_full(error))?;
        let end = self.tail().end;
        loop {
            let unwritten = {
                let tail = self.tail();
                tail.unwritten().filter(|_| tail.written < end)
            };
            let Some(unwritten) = unwritten else { break };
            let written_to = self
                .write(&mut writer, &unwritten)
                .map_err(|error| self.put_off_if_full(error))?;
            self.is_full.store(false, Ordering::Relaxed);
            let done = {
                let mut tail = self.tail();
                self.memory.count_written(written_to - tail.written);
                tail.note_written(written_to)
            };
            self.note_written(done);
        }
        self.trim(&mut writer)?;
        let needs_sync = writer.synced_trims < writer.trims;
        Ok(needs_sync.then(|| Trimmed {
            below: Arc::clone(below),
            trims: writer.trims,
        }))
    }

    /// Notes that the file below was synced. Without this, the next sync does it again: one that
    /// found no descriptor has not begun.
    pub fn note_synced(&self, trimmed: &Trimmed) {
        let mut writer = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        writer.synced_trims = writer.synced_trims.max(trimmed.trims);
    }

    /// A full disk has lost nothing: what could not be written stays in memory, nothing more is
    /// appended, and a later sync goes on.
    fn put_off_if_full(&self, error: io::Error) -> io::Error {
        if !is_full(&error) {
            return error;
        }
        self.is_full.store(true, Ordering::Relaxed);
        shortage(format!("the disk is full: {error}"))
    }

    /// Cuts off the padding of the last block, and what is reserved, if the end is final.
    fn trim(&self, writer: &mut Writer) -> io::Result<()> {
        let (is_final, end) = {
            let tail = self.tail();
            (tail.is_final && tail.written == tail.end, tail.end)
        };
        if is_final {
            self.below.get()?.set_bytes(end)?;
            writer.note_trimmed();
            self.tail().is_final = false;
        }
        Ok(())
    }

    /// Writes blocks; returns up to where the file's bytes are durable now.
    fn write(&self, writer: &mut Writer, unwritten: &Unwritten) -> io::Result<u64> {
        let below = self.below.get()?;
        let end = unwritten.end.min(unwritten.start + WRITE_BYTES_MAX);
        let zeros_end = zeros_end(writer, unwritten.start, end);
        reserve_for(&**below, writer, zeros_end)?;
        let mut first = Block::zeros();
        let mut last = Block::zeros();
        let mut parts: Vec<IoSlice<'_>> = Vec::new();
        // The first block, if memory does not hold all of it: the file's own bytes, then memory's.
        let mut rest = unwritten.from;
        if unwritten.from > unwritten.start {
            let known = (unwritten.from - unwritten.start) as usize;
            let block = first.bytes_mut();
            read_exactly(&**below, &mut block[..known], unwritten.start)?;
            let block_end = (unwritten.start + BLOCK_BYTES).min(end);
            let count = (block_end - unwritten.from) as usize;
            copy_from(&unwritten.bytes, 0, &mut block[known..known + count]);
            rest = block_end;
        }
        let whole = (end / BLOCK_BYTES * BLOCK_BYTES).max(rest);
        if whole < end {
            let block = last.bytes_mut();
            let count = (end - whole) as usize;
            copy_from(&unwritten.bytes, whole - unwritten.from, &mut block[..count]);
        }
        if rest > unwritten.from {
            parts.push(IoSlice::new(first.bytes_mut()));
        }
        slices_of(
            &unwritten.bytes,
            rest - unwritten.from,
            whole - unwritten.from,
            &mut parts,
        );
        if whole < end {
            parts.push(IoSlice::new(last.bytes_mut()));
        }
        let mut at = end.next_multiple_of(BLOCK_BYTES);
        while at < zeros_end {
            let count = ((zeros_end - at) as usize).min(ZEROS.0.len());
            parts.push(IoSlice::new(&ZEROS.0[..count]));
            at += count as u64;
        }
        writer.is_trimmed = false;
        below.write_durably(&parts, unwritten.start)?;
        writer.zeroed = writer.zeroed.max(at);
        Ok(end)
    }

    /// Adds what is in memory of `from..to`, from its beginning on; returns where that ends.
    fn pin(&self, from: u64, to: u64) -> (Pinned, u64) {
        let mut pinned = Pinned::default();
        let tail_start = self.tail().start();
        let at = self.pin_loaded(from, to.min(tail_start), &mut pinned);
        let at = self.tail().pin(at, to, &mut pinned);
        (pinned, at)
    }

    /// As `pin`, of what was read from the device.
    fn pin_loaded(&self, from: u64, to: u64, pinned: &mut Pinned) -> u64 {
        let mut at = from;
        if at >= to {
            return at;
        }
        let loaded = self.loaded();
        while at < to
            && let Some(chunk) = loaded.get(&(at / GRANULE_BYTES))
        {
            let within = (at % GRANULE_BYTES) as usize;
            let until = ((to - at) as usize + within).min(chunk.filled());
            if until <= within {
                break;
            }
            pinned.push(chunk, within..until);
            at += (until - within) as u64;
        }
        at
    }

    /// Reads the granule that holds `position` from the device, and with the same request those
    /// behind it up to `to` that are whole on the device and were not loaded yet. Returns where
    /// they end.
    fn load_granules(&self, position: u64, to: u64) -> io::Result<u64> {
        let first = position / GRANULE_BYTES;
        let (tail_start, written) = {
            let tail = self.tail();
            (tail.start(), tail.written)
        };
        let whole_end = to.div_ceil(GRANULE_BYTES).min(written / GRANULE_BYTES);
        let count = {
            let loaded = self.loaded();
            let is_missing = |number: &u64| !loaded.contains_key(number);
            let more = (first + 1..whole_end)
                .take(GRANULES_MAX - 1)
                .take_while(is_missing);
            1 + more.count()
        };
        let start = first * GRANULE_BYTES;
        // Several are whole; one alone may be the file's last.
        let bytes = written.saturating_sub(start).min(GRANULE_BYTES) as usize;
        let mut writers: Vec<ChunkWriter> = (0..count).map(|_| self.memory.take_for_reading(bytes)).collect();
        self.fill(&mut writers, start, bytes)?;
        let lag = tail_start.saturating_sub(start);
        if self.opened_at.load(Ordering::Relaxed) <= start && (1..MISSED_BYTES_MAX).contains(&lag) {
            self.memory.note_missed(lag.min((count * bytes) as u64));
        }
        for (number, writer) in (first..).zip(writers) {
            let chunk = Arc::clone(writer.chunk());
            let place = Place {
                file: Weak::clone(&self.this),
                position: number * GRANULE_BYTES,
                bytes: chunk.capacity() as u64,
            };
            let before = self.loaded().insert(number, chunk);
            drop(before);
            self.memory.note_loaded(place);
        }
        Ok(start + count as u64 * GRANULE_BYTES)
    }

    /// Fills consecutive granules from `start` on, each with `bytes` or what the file has of them.
    fn fill(&self, writers: &mut [ChunkWriter], start: u64, bytes: usize) -> io::Result<()> {
        let below = self.below.get()?;
        if (bytes as u64).is_multiple_of(BLOCK_BYTES) {
            let mut parts: Vec<IoSliceMut<'_>> = writers
                .iter_mut()
                .map(|writer| IoSliceMut::new(&mut writer.free()[..bytes]))
                .collect();
            let mut read = below.read_parts_at(&mut parts, start)?;
            for writer in &mut *writers {
                let count = bytes.min(read);
                writer.skip(count);
                read -= count;
            }
        }
        // A short read, and a last granule that ends within a block.
        for (index, writer) in writers.iter_mut().enumerate() {
            let position = start + index as u64 * GRANULE_BYTES;
            writer.fill(bytes, |buffer, done| below.read_at(buffer, position + done))?;
        }
        Ok(())
    }
}

/// Where the zeros behind a write of `start..end` end; the write's own last block if there are
/// none.
fn zeros_end(writer: &Writer, start: u64, end: u64) -> u64 {
    let block_end = end.next_multiple_of(BLOCK_BYTES);
    if block_end <= writer.zeroed || end - start > SMALL_WRITE_BYTES_MAX {
        return block_end;
    }
    block_end + zeros_ahead(start)
}

fn zeros_ahead(position: u64) -> u64 {
    (position / 2 / BLOCK_BYTES * BLOCK_BYTES).min(ZEROS_AHEAD_MAX)
}

/// At most this many zeros are behind the bytes of a file that ends at `end`.
pub(crate) fn padding_bytes_max(end: u64) -> u64 {
    end.next_multiple_of(BLOCK_BYTES) - end + zeros_ahead(end)
}

fn reserve_for(below: &dyn DiskFile, writer: &mut Writer, end: u64) -> io::Result<()> {
    if end <= writer.reserved {
        return Ok(());
    }
    let wanted = end + end.clamp(RESERVE_BYTES_MIN, RESERVE_BYTES_MAX);
    writer.is_trimmed = false;
    writer.reserved = match below.reserve(wanted) {
        // A nearly full disk may still have room for what is needed now.
        Err(error) if is_full(&error) => below.reserve(end).map(|()| end)?,
        reserved => reserved.map(|()| wanted)?,
    };
    Ok(())
}

/// Copies `buffer.len()` bytes of `bytes` from `from` on.
fn copy_from(bytes: &Pinned, from: u64, buffer: &mut [u8]) -> usize {
    let mut done = 0;
    let mut parts = Vec::new();
    slices_of(bytes, from, from + buffer.len() as u64, &mut parts);
    for part in parts {
        buffer[done..done + part.len()].copy_from_slice(&part);
        done += part.len();
    }
    done
}

/// Adds the slices of `from..to`, counted from the beginning of `bytes`.
fn slices_of<'a>(bytes: &'a Pinned, from: u64, to: u64, parts: &mut Vec<IoSlice<'a>>) {
    let (from, to) = (from as usize, to as usize);
    let mut at = 0;
    for slice in bytes.slices() {
        let (start, end) = (from.max(at), to.min(at + slice.len()));
        if start < end {
            parts.push(IoSlice::new(&slice[start - at..end - at]));
        }
        at += slice.len();
    }
}

fn read_exactly(file: &dyn DiskFile, buffer: &mut [u8], position: u64) -> io::Result<()> {
    let mut done = 0;
    while done < buffer.len() {
        match file.read_at(&mut buffer[done..], position + done as u64)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => done += read,
        }
    }
    Ok(())
}

impl Drop for OwnedFile {
    fn drop(&mut self) {
        let tail = self.tail.get_mut().unwrap_or_else(PoisonError::into_inner);
        self.memory.count_written(tail.end - tail.written);
    }
}

impl DiskFile for OwnedFile {
    /// A read that is smaller than a granule loads the whole of it: the next one is likely to want
    /// what follows.
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        match self.read_at_resident(buffer, position) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            read => return read,
        }
        if (buffer.len() as u64) < GRANULE_BYTES {
            self.load_granules(position, position)?;
            match self.read_at_resident(buffer, position) {
                // The granule had to go for others at once, or the file is shorter than it was.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return read,
            }
        }
        let written = self.tail().written;
        let wanted = buffer.len().min(written.saturating_sub(position) as usize);
        self.below.get()?.read_at(&mut buffer[..wanted], position)
    }

    fn read_at_resident(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        let (pinned, end) = self.pin(position, position + buffer.len() as u64);
        if end == position && position < self.tail().end && !buffer.is_empty() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(copy_from(&pinned, 0, &mut buffer[..(end - position) as usize]))
    }

    /// Appends to the file's end; no system call.
    fn write_at(&self, parts: &[IoSlice<'_>], position: u64) -> io::Result<()> {
        if self.is_full.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let wanted: usize = parts.iter().map(|part| part.len()).sum();
        let mut parts = parts.iter().map(|part| &part[..]).filter(|part| !part.is_empty());
        let mut part = parts.next();
        let mut left = wanted;
        let mut tail = self.tail();
        if position != tail.end {
            let problem = format!("a write at {position} to a log file that ends at {}", tail.end);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
        }
        self.memory.count_unwritten(wanted as u64);
        while let Some(bytes) = part {
            if tail.room() == 0 {
                let (was_resting, size) = (tail.is_resting(), tail.next_chunk_bytes(left));
                drop(tail);
                let chunk = self.memory.take(size);
                if was_resting {
                    self.memory.note_growing(Weak::clone(&self.this));
                }
                tail = self.tail();
                // A look of the memory's may have ended the last chunk meanwhile.
                if tail.room() == 0 {
                    tail.add(chunk);
                }
            }
            let count = tail.append(bytes);
            left -= count;
            part = if count == bytes.len() {
                parts.next()
            } else {
                Some(&bytes[count..])
            };
        }
        Ok(())
    }

    fn create(&self) -> io::Result<()> {
        self.below.get().map(drop)
    }

    fn bytes(&self) -> io::Result<u64> {
        Ok(self.tail().end)
    }

    fn set_bytes(&self, bytes: u64) -> io::Result<()> {
        let stays_unwritten = {
            let mut tail = self.tail();
            if bytes == tail.end && tail.written < tail.end {
                tail.is_final = true;
                return Ok(());
            }
            tail.written < bytes.min(tail.end)
        };
        if stays_unwritten {
            self.write_out()?;
        }
        let mut writer = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        if writer.is_trimmed && bytes == self.tail().end {
            return Ok(());
        }
        self.below.get()?.set_bytes(bytes)?;
        writer.note_trimmed();
        self.end_at(bytes);
        Ok(())
    }

    /// The next write, or the trimming when the end is final, goes over the zeros: cutting them off
    /// now would be a change of the file system for each log that a killed broker has written.
    fn end_before_zeros(&self, bytes: u64) -> io::Result<()> {
        self.end_at(bytes);
        Ok(())
    }

    /// Space is reserved by the thread that writes.
    fn reserve(&self, _bytes: u64) -> io::Result<()> {
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let Some(trimmed) = self.write_out()? else {
            return Ok(());
        };
        trimmed.below.sync()?;
        self.note_synced(&trimmed);
        Ok(())
    }

    fn settle(&self) -> io::Result<()> {
        self.below.get()?.settle()
    }

    /// Nothing is written before a sync.
    fn start_writeback(&self, _position: u64, _bytes: u64) -> io::Result<()> {
        Ok(())
    }

    fn is_resident(&self, position: u64, bytes: u64) -> bool {
        let to = position + bytes;
        let (_, end) = self.pin(position, to);
        end >= to.min(self.tail().end)
    }

    /// To the byte: the memory is this process's own.
    fn resident_bytes(&self, position: u64, bytes: u64) -> u64 {
        if self.is_resident(position, bytes) {
            return bytes;
        }
        self.pin(position, position + bytes).1 - position
    }

    /// What lies near the beginning of the tail may go before a reader gets there, and a reader
    /// that finds a gap in front of it would never get past the beginning.
    fn stays_resident(&self, position: u64, bytes: u64) -> bool {
        let tail_start = self.tail().start();
        if position >= tail_start.saturating_add(bytes) {
            return self.is_resident(position, bytes);
        }
        let to = (position + bytes).min(self.tail().end);
        self.pin_loaded(position, to, &mut Pinned::default()) >= to
    }

    fn load(&self, position: u64, bytes: u64) -> io::Result<()> {
        if self.stays_resident(position, bytes) {
            return Ok(());
        }
        let to = (position + bytes).min(self.tail().end);
        let mut at = position;
        loop {
            at = self.pin_loaded(at, to, &mut Pinned::default());
            let is_only_in_tail = {
                let tail = self.tail();
                at >= tail.start() && at / GRANULE_BYTES >= tail.written / GRANULE_BYTES
            };
            if at >= to || is_only_in_tail {
                return Ok(());
            }
            at = self.load_granules(at, to)?;
        }
    }

    /// The memory forgets what it has loaded by itself.
    fn forget(&self, _position: u64, _bytes: u64) {}

    /// The last block is read back, if need be, by the thread that writes.
    fn keep_resident(&self, _position: u64) -> io::Result<()> {
        Ok(())
    }

    fn descriptor(&self) -> Option<Descriptor<'_>> {
        None
    }

    fn is_sendable(&self) -> bool {
        true
    }

    fn pinned(&self, position: u64, bytes: u64) -> Option<Pinned> {
        let (pinned, _) = self.pin(position, position + bytes);
        (!pinned.is_empty()).then_some(pinned)
    }
}

const _: () = assert!(GRANULE_BYTES <= CHUNK_BYTES_MAX as u64);
