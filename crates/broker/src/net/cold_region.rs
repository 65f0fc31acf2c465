//! A range of a file that must be fetched from the device: read on the cold-read pool, never on an event loop.

use std::io;
use std::sync::Arc;
use std::task::Waker;

use ottla_core::slot::Slot;
use ottla_log::disk::FileRegion;

/// How much is read in one go. What follows is then usually resident thanks to the kernel's read-ahead.
pub const COLD_READ_BYTES: u64 = 256 * 1024;

/// Bytes on their way from the device.
#[derive(Debug)]
pub struct ColdRegion {
    region: FileRegion,
    slot: Arc<Slot<io::Result<Vec<u8>>>>,
    waker: Waker,
}

impl ColdRegion {
    /// Starts reading the beginning of `region` through `run`; `waker` is called when it is there.
    pub fn fetch(region: FileRegion, waker: Waker, run: impl FnOnce(Box<dyn FnOnce() + Send>)) -> ColdRegion {
        let slot = Arc::new(Slot::default());
        let (job_region, job_slot) = (region.clone(), slot.clone());
        run(Box::new(move || job_slot.fill(read(&job_region))));
        ColdRegion { region, slot, waker }
    }

    /// The bytes and what remains of the region behind them; `None` while they are on their way.
    pub fn take(&self) -> Option<io::Result<(Vec<u8>, FileRegion)>> {
        let result = self.slot.take_or_register(&self.waker)?;
        Some(result.map(|bytes| {
            let read = bytes.len() as u64;
            let rest = FileRegion {
                file: self.region.file.clone(),
                position: self.region.position + read,
                bytes: self.region.bytes - read,
            };
            (bytes, rest)
        }))
    }
}

fn read(region: &FileRegion) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; region.bytes.min(COLD_READ_BYTES) as usize];
    let read = region.file.read_at(&mut bytes, region.position)?;
    if read == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    bytes.truncate(read);
    Ok(bytes)
}
