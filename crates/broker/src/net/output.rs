//! Life of a fetch, 6 of 6. Before: log/src/reader.rs.
//!
//! Reply bytes on their way to a socket: bytes in memory, with ranges of files between them.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use ottla_core::reply::ReplyBuffer;
use ottla_log::disk::FileRegion;
use ottla_log::disk::owned::Pinned;
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags};

use super::cold_region::{ColdPath, ColdRegion, Loaded};

/// Up to this size a range of a file is copied into the reply: one more copy is cheaper than one
/// more system call.
const REGION_COPIED_BYTES_MAX: u64 = 32 * 1024;

/// Reply memory above which ranges are left in their files after all: an answer may have 256 of
/// them.
pub const COPIED_BYTES_MAX: usize = 512 * 1024;

/// Spare capacity above which a buffer that stays until a client reads is shrunk.
const SPARE_BYTES_MAX: usize = 1024;

/// Replies up to this size are gathered in one buffer; larger ones keep their own.
const GATHERED_BYTES_MAX: usize = 16 * 1024;

/// How much of a file is checked for residency and sent per step.
const REGION_STEP_BYTES: u64 = 1024 * 1024;

const SLICES_MAX: usize = 32;

/// Capacity that the buffer in which replies are made keeps for the next one.
const KEPT_BYTES_MAX: usize = 256 * 1024;

/// Free gathering buffers of an event loop.
#[derive(Debug, Default)]
pub struct SparePages {
    free: Vec<Vec<u8>>,
}

impl SparePages {
    const COUNT_MAX: usize = 16;

    fn take(&mut self) -> Vec<u8> {
        self.free
            .pop()
            .unwrap_or_else(|| Vec::with_capacity(GATHERED_BYTES_MAX))
    }

    fn put(&mut self, mut page: Vec<u8>) {
        if self.free.len() < Self::COUNT_MAX && page.capacity() <= 4 * GATHERED_BYTES_MAX {
            page.clear();
            self.free.push(page);
        }
    }
}

#[derive(Debug)]
pub(super) enum Segment {
    Bytes(Vec<u8>),
    Region(FileRegion),
    Cold(ColdRegion),
}

impl Segment {
    /// Includes what another thread is about to read for it.
    fn memory_bytes(&self) -> usize {
        let of_content = match self {
            Segment::Bytes(bytes) => bytes.capacity(),
            Segment::Region(_) => 0,
            Segment::Cold(cold) => cold.memory_bytes(),
        };
        size_of::<Segment>() + of_content
    }
}

/// How far a flush got.
#[derive(Debug, PartialEq, Eq)]
pub enum Flushed {
    /// The socket took everything.
    All,
    /// The socket takes no more for now.
    SocketFull,
    /// The next bytes of a file are being read from the device; the waker is called when they are
    /// there.
    Cold,
    /// The socket would take more, but the time is up.
    Cut,
}

/// Why a flush failed.
#[derive(Debug)]
pub enum OutputError {
    Socket(io::Error),
    /// A file of the log could not be read: the reply is truncated, so the connection cannot go on.
    File(io::Error),
}

/// Replies in order.
#[derive(Debug, Default)]
pub struct Output {
    pub(super) segments: VecDeque<Segment>,
    /// Bytes of the first segment that the socket has taken.
    pub(super) front_sent: usize,
    /// Memory of all segments.
    memory_bytes: usize,
    /// The stream position of a leading region that has been loaded but not begun to be sent.
    pub(super) loaded_at: Option<u64>,
    /// Stream positions: bytes ever enqueued and sent on this connection.
    enqueued: u64,
    pub(super) sent: u64,
}

impl Output {
    pub fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    pub fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }

    /// The stream position behind the last byte enqueued.
    pub fn enqueued(&self) -> u64 {
        self.enqueued
    }

    /// The stream position behind the last byte the socket took.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Enqueues one framed reply: length, `header`, reply. Returns the memory it takes if all its
    /// ranges are left in their files, as they are from `copied_bytes_max` on.
    pub fn push(
        &mut self,
        header: &[u8],
        reply: &mut ReplyBuffer,
        copied_bytes_max: usize,
        spare: &mut SparePages,
    ) -> Result<usize, OutputError> {
        let region_bytes: u64 = reply.regions.iter().map(|inserted| inserted.region.bytes).sum();
        let length = header.len() as u64 + reply.bytes.len() as u64 + region_bytes;
        let length = i32::try_from(length).map_err(|_| {
            OutputError::File(io::Error::new(
                io::ErrorKind::FileTooLarge,
                "reply larger than 2 GiB",
            ))
        })?;
        self.push_bytes(&length.to_be_bytes(), spare);
        self.push_bytes(header, spare);
        let memory_bytes = header.len() + reply.bytes.len() + reply.regions.len() * size_of::<Segment>();
        if reply.regions.is_empty() && reply.bytes.len() > GATHERED_BYTES_MAX {
            self.push_vec(std::mem::take(&mut reply.bytes));
            return Ok(memory_bytes);
        }
        let mut copied = 0;
        for inserted in reply.regions.drain(..) {
            self.push_bytes(&reply.bytes[copied..inserted.at], spare);
            copied = inserted.at;
            let may_be_copied = self.memory_bytes < copied_bytes_max;
            self.push_region(inserted.region, may_be_copied, spare);
        }
        self.push_bytes(&reply.bytes[copied..], spare);
        if reply.bytes.capacity() > KEPT_BYTES_MAX {
            reply.bytes = Vec::new();
        }
        Ok(memory_bytes)
    }

    /// Appends a reply that is already framed.
    fn push_vec(&mut self, bytes: Vec<u8>) {
        self.enqueued += bytes.len() as u64;
        self.push_segment(Segment::Bytes(bytes));
    }

    fn push_segment(&mut self, segment: Segment) {
        self.memory_bytes += segment.memory_bytes();
        self.segments.push_back(segment);
    }

    /// Replaces the first segment by `segment`.
    pub(super) fn replace_first(&mut self, segment: Segment) {
        self.memory_bytes += segment.memory_bytes();
        let before = std::mem::replace(&mut self.segments[0], segment);
        self.memory_bytes -= before.memory_bytes();
    }

    /// Trims buffers that stay until the client reads.
    pub fn shrink(&mut self) {
        for segment in &mut self.segments {
            if let Segment::Bytes(bytes) = segment
                && bytes.capacity() - bytes.len() > SPARE_BYTES_MAX.max(bytes.len() / 4)
            {
                self.memory_bytes -= bytes.capacity();
                bytes.shrink_to_fit();
                self.memory_bytes += bytes.capacity();
            }
        }
    }

    fn push_bytes(&mut self, bytes: &[u8], spare: &mut SparePages) {
        if bytes.is_empty() {
            return;
        }
        self.enqueued += bytes.len() as u64;
        let page = self.gathering_page(bytes.len(), spare);
        let before = page.capacity();
        page.extend_from_slice(bytes);
        let grown = page.capacity() - before;
        self.memory_bytes += grown;
    }

    /// Returns the last segment if it has room for `bytes` more, or else a new one.
    fn gathering_page(&mut self, bytes: usize, spare: &mut SparePages) -> &mut Vec<u8> {
        let has_room = matches!(self.segments.back(),
            Some(Segment::Bytes(page)) if page.capacity() - page.len() >= bytes);
        if !has_room {
            self.push_segment(Segment::Bytes(spare.take()));
        }
        match self.segments.back_mut() {
            Some(Segment::Bytes(page)) => page,
            _ => unreachable!("the last segment was made or found to be bytes"),
        }
    }

    fn push_region(&mut self, region: FileRegion, may_be_copied: bool, spare: &mut SparePages) {
        if region.bytes == 0 {
            return;
        }
        if may_be_copied && region.bytes <= REGION_COPIED_BYTES_MAX && self.copy_resident(&region, spare) {
            return;
        }
        self.enqueued += region.bytes;
        self.push_segment(Segment::Region(region));
    }

    /// Copies a small region behind the last bytes; false if it is not resident.
    fn copy_resident(&mut self, region: &FileRegion, spare: &mut SparePages) -> bool {
        let bytes = region.bytes as usize;
        let page = self.gathering_page(bytes, spare);
        let (start, before) = (page.len(), page.capacity());
        page.resize(start + bytes, 0);
        let grown = page.capacity() - before;
        let is_complete = matches!(region.file.read_at_resident(&mut page[start..], region.position), Ok(read) if read == bytes);
        if is_complete {
            self.enqueued += region.bytes;
        } else {
            page.truncate(start);
        }
        self.memory_bytes += grown;
        is_complete
    }

    /// Sends until the socket takes no more or `is_over`, which is checked between system calls.
    ///
    /// `fetch_cold` starts to read a range that would block on the device.
    pub fn flush(
        &mut self,
        socket: BorrowedFd<'_>,
        spare: &mut SparePages,
        is_over: impl Fn() -> bool,
        mut fetch_cold: impl FnMut(FileRegion, ColdPath) -> ColdRegion,
    ) -> Result<Flushed, OutputError> {
        let mut has_sent = false;
        loop {
            self.drop_sent(spare);
            let progress = match self.segments.front_mut() {
                None => return Ok(Flushed::All),
                Some(_) if has_sent && is_over() => return Ok(Flushed::Cut),
                Some(Segment::Bytes(_)) => self.send_bytes(socket),
                Some(Segment::Region(region)) => match Source::of(region) {
                    Source::Memory(pinned) => self.send_memory(socket, &pinned),
                    Source::PageCache(step) => self.send_file(socket, step),
                    Source::Device => {
                        let stays = region.file.is_sendable() && self.loaded_at != Some(self.sent);
                        let path = if stays { ColdPath::Load } else { ColdPath::Copy };
                        let cold = fetch_cold(region.clone(), path);
                        self.replace_first(Segment::Cold(cold));
                        continue;
                    }
                },
                Some(Segment::Cold(cold)) => match cold.take() {
                    None => return Ok(Flushed::Cold),
                    Some(Err(error)) => return Err(OutputError::File(error)),
                    Some(Ok(Loaded::Resident(region))) => {
                        self.loaded_at = Some(self.sent);
                        self.replace_first(Segment::Region(region));
                        continue;
                    }
                    Some(Ok(Loaded::Bytes(bytes, rest))) => {
                        self.replace_cold(bytes, rest);
                        continue;
                    }
                },
            };
            match progress {
                Ok(true) => has_sent = true,
                Ok(false) => return Ok(Flushed::SocketFull),
                Err(error) => return Err(error),
            }
        }
    }

    pub(super) fn replace_cold(&mut self, bytes: Vec<u8>, rest: FileRegion) {
        self.replace_first(Segment::Bytes(bytes));
        if rest.bytes > 0 {
            let rest = Segment::Region(rest);
            self.memory_bytes += rest.memory_bytes();
            self.segments.insert(1, rest);
        }
    }

    /// Sends the leading segments of bytes. False when the socket is full.
    fn send_bytes(&mut self, socket: BorrowedFd<'_>) -> Result<bool, OutputError> {
        let mut slices = [io::IoSlice::new(&[]); SLICES_MAX];
        let mut count = 0;
        for segment in self.segments.iter().take(SLICES_MAX) {
            let Segment::Bytes(bytes) = segment else { break };
            let from = if count == 0 { self.front_sent } else { 0 };
            slices[count] = io::IoSlice::new(&bytes[from..]);
            count += 1;
        }
        // Without MSG_MORE the header of a fetch reply would leave in a packet of its own.
        let flags = if count < self.segments.len() {
            SendFlags::MORE
        } else {
            SendFlags::empty()
        };
        let (sent, took_all) = send(socket, &slices[..count], flags)?;
        self.sent += sent as u64;
        self.front_sent += sent;
        Ok(took_all)
    }

    /// Sends the beginning of the leading region. False when the socket is full.
    fn send_memory(&mut self, socket: BorrowedFd<'_>, pinned: &Pinned) -> Result<bool, OutputError> {
        let flags = if self.segments.len() > 1 {
            SendFlags::MORE
        } else {
            SendFlags::empty()
        };
        let Some(Segment::Region(region)) = self.segments.front_mut() else {
            unreachable!("called for a leading region");
        };
        let mut slices = [io::IoSlice::new(&[]); SLICES_MAX];
        let mut count = 0;
        for (place, slice) in slices.iter_mut().zip(pinned.slices()) {
            *place = io::IoSlice::new(slice);
            count += 1;
        }
        let (sent, took_all) = send(socket, &slices[..count], flags)?;
        region.position += sent as u64;
        region.bytes -= sent as u64;
        self.sent += sent as u64;
        Ok(took_all)
    }

    /// Sends the first `step` bytes of the leading region from the page cache. False when the
    /// socket is full.
    fn send_file(&mut self, socket: BorrowedFd<'_>, step: u64) -> Result<bool, OutputError> {
        let Some(Segment::Region(region)) = self.segments.front_mut() else {
            unreachable!("called for a leading region");
        };
        // No descriptor: the file was closed after the check. The next check reports it cold, and
        // it is read elsewhere.
        let Some(file) = region.file.descriptor() else {
            return Ok(true);
        };
        let mut position = region.position;
        let sent = rustix::fs::sendfile(socket.as_fd(), &file, Some(&mut position), step as usize);
        drop(file);
        match sent {
            Ok(0) => Err(OutputError::File(io::ErrorKind::UnexpectedEof.into())),
            Ok(sent) => {
                region.position += sent as u64;
                region.bytes -= sent as u64;
                self.sent += sent as u64;
                Ok(sent as u64 == step)
            }
            Err(Errno::AGAIN) => Ok(false),
            Err(Errno::INTR) => Ok(true),
            Err(error) => Err(OutputError::Socket(error.into())),
        }
    }

    /// Removes what the socket has taken.
    pub(super) fn drop_sent(&mut self, spare: &mut SparePages) {
        while let Some(segment) = self.segments.front_mut() {
            match segment {
                Segment::Bytes(bytes) if bytes.len() <= self.front_sent => self.front_sent -= bytes.len(),
                Segment::Region(region) if region.bytes == 0 => {}
                _ => return,
            }
            let Some(sent) = self.segments.pop_front() else {
                return;
            };
            self.memory_bytes -= sent.memory_bytes();
            if let Segment::Bytes(page) = sent {
                spare.put(page);
            }
        }
        // An idle connection must not keep memory from a past burst.
        if self.segments.capacity() > 64 {
            self.segments.shrink_to(4);
        }
    }
}

/// Returns how much the socket took, and whether it may take more.
fn send(
    socket: BorrowedFd<'_>,
    slices: &[io::IoSlice<'_>],
    flags: SendFlags,
) -> Result<(usize, bool), OutputError> {
    let wanted: usize = slices.iter().map(|slice| slice.len()).sum();
    let flags = flags | SendFlags::NOSIGNAL;
    let result = match slices {
        [slice] => rustix::net::send(socket, slice, flags),
        _ => rustix::net::sendmsg(socket, slices, &mut SendAncillaryBuffer::default(), flags),
    };
    match result {
        Ok(sent) => Ok((sent, sent == wanted)),
        Err(Errno::AGAIN) => Ok((0, false)),
        Err(Errno::INTR) => Ok((0, true)),
        Err(error) => Err(OutputError::Socket(error.into())),
    }
}

/// Where the beginning of a region can be sent from without blocking on the device.
enum Source {
    /// Memory of the log's own.
    Memory(Pinned),
    /// The page cache: this many bytes.
    PageCache(u64),
    Device,
}

impl Source {
    fn of(region: &FileRegion) -> Source {
        let step = region.bytes.min(REGION_STEP_BYTES);
        if let Some(pinned) = region.file.pinned(region.position, step) {
            return Source::Memory(pinned);
        }
        let resident = match region.file.descriptor() {
            Some(_) => region.resident_bytes(step),
            None => 0,
        };
        if resident > 0 {
            Source::PageCache(resident)
        } else {
            Source::Device
        }
    }
}
