//! A range of a file that left the page cache before it was sent: loaded by the cold-read pool,
//! never on an event loop.

use std::io;
use std::sync::Arc;
use std::task::Waker;

use ottla_core::services::Payer;
use ottla_core::slot::Slot;
use ottla_log::disk::FileRegion;

use crate::executor::cold_reads::ColdReads;

/// How much is loaded before sending goes on. The same amount behind it is loaded while that is
/// sent.
pub const COLD_READ_BYTES: u64 = 512 * 1024;

/// How much is copied at a time. A socket takes about this much at once (`unsent.rs`), so little of
/// it stays in memory when the client does not read.
const COPIED_BYTES: u64 = 64 * 1024;

/// How the bytes get to the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColdPath {
    /// From the page cache.
    Load,
    /// Through this process's memory: the file is not the operating system's, or its pages did not
    /// stay resident until they could be sent.
    Copy,
}

/// What has been read from the device.
#[derive(Debug)]
pub enum Loaded {
    /// The beginning of the region should be in the page cache.
    Resident(FileRegion),
    /// The beginning of the region, and what remains of it.
    Bytes(Vec<u8>, FileRegion),
}

/// A read from the device under way. Dropping it turns a read that has not begun into a no-op.
#[derive(Debug)]
pub struct ColdRegion {
    region: FileRegion,
    path: ColdPath,
    slot: Arc<Slot<io::Result<Option<Vec<u8>>>>>,
    waker: Waker,
}

impl ColdRegion {
    /// Starts reading the beginning of `region`; `waker` is called when it is there.
    pub fn fetch(
        region: FileRegion,
        path: ColdPath,
        waker: Waker,
        reads: &ColdReads,
        payer: Payer,
    ) -> ColdRegion {
        let slot = Arc::new(Slot::default());
        let (job_region, job_slot) = (region.clone(), slot.clone());
        let cache = reads.cache().clone();
        let work = move || {
            // Only this job holds the slot: the connection is closed.
            if Arc::strong_count(&job_slot) == 1 {
                return 0;
            }
            if path == ColdPath::Copy {
                let bytes = read(&job_region);
                let count = bytes.as_ref().map_or(0, |bytes| bytes.len() as u64);
                job_slot.fill(bytes.map(Some));
                return count;
            }
            let mut loaded = 0;
            let first = part(&job_region, 0);
            job_slot.fill(cache.load(&first).map(|bytes| {
                loaded = bytes;
                None
            }));
            // A failed read-ahead is reported when its bytes are needed.
            loaded + cache.load(&part(&job_region, first.bytes)).unwrap_or(0)
        };
        reads.run(payer, 2 * COLD_READ_BYTES, Box::new(work));
        ColdRegion {
            region,
            path,
            slot,
            waker,
        }
    }

    /// Bytes about to be read into this process's memory.
    pub fn memory_bytes(&self) -> usize {
        match self.path {
            ColdPath::Load => 0,
            ColdPath::Copy => self.region.bytes.min(COPIED_BYTES) as usize,
        }
    }

    /// Returns what was read; `None` while it is under way.
    pub fn take(&self) -> Option<io::Result<Loaded>> {
        let result = self.slot.take_or_register(&self.waker)?;
        Some(result.map(|bytes| match bytes {
            None => Loaded::Resident(self.region.clone()),
            Some(bytes) => {
                let rest = behind(&self.region, bytes.len() as u64);
                Loaded::Bytes(bytes, rest)
            }
        }))
    }
}

/// Returns at most [`COLD_READ_BYTES`] of the region from `start` on.
fn part(region: &FileRegion, start: u64) -> FileRegion {
    let rest = behind(region, start.min(region.bytes));
    FileRegion {
        bytes: rest.bytes.min(COLD_READ_BYTES),
        ..rest
    }
}

fn behind(region: &FileRegion, bytes: u64) -> FileRegion {
    FileRegion {
        file: region.file.clone(),
        position: region.position + bytes,
        bytes: region.bytes - bytes,
    }
}

fn read(region: &FileRegion) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; region.bytes.min(COPIED_BYTES) as usize];
    let read = region.file.read_at(&mut bytes, region.position)?;
    if read == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    bytes.truncate(read);
    Ok(bytes)
}
