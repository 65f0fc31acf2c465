//! Whether a read may wait for the device.

use std::io;

use crate::disk::DiskFile;
use crate::group_commit::PAGE_BYTES;

/// Whether the calling thread may wait: an event loop never may, a thread of the cold-read pool
/// may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadMode {
    /// Fails with `WouldBlock` instead of waiting for the device.
    Resident,
    /// Waits for the device.
    Blocking,
}

/// Fills `buffer` from `position` on; returns fewer bytes only at the end of the file.
pub(crate) fn read_up_to(
    file: &dyn DiskFile,
    buffer: &mut [u8],
    position: u64,
    mode: ReadMode,
) -> io::Result<usize> {
    let mut done = 0;
    while done < buffer.len() {
        let rest = &mut buffer[done..];
        let at = position + done as u64;
        let read = match mode {
            ReadMode::Resident => read_resident(file, rest, at)?,
            ReadMode::Blocking => file.read_at(rest, at)?,
        };
        if read == 0 {
            break;
        }
        done += read;
    }
    Ok(done)
}

/// Reads what is resident, at least of the first page.
///
/// A page that is not resident is not even requested: the kernel would start to read it, and might
/// wait for room in the device's queue or for the file's block map.
fn read_resident(file: &dyn DiskFile, buffer: &mut [u8], position: u64) -> io::Result<usize> {
    if file.is_resident(position, buffer.len() as u64) {
        return file.read_at_resident(buffer, position);
    }
    let page_end = (PAGE_BYTES - position % PAGE_BYTES) as usize;
    let first = buffer.len().min(page_end);
    let is_end = || file.bytes().is_ok_and(|bytes| position >= bytes);
    if !file.is_resident(position, 1) && !is_end() {
        return Err(io::ErrorKind::WouldBlock.into());
    }
    file.read_at_resident(&mut buffer[..first], position)
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use super::*;
    use crate::disk::memory::MemoryDisk;
    use crate::disk::os::Descriptor;
    use crate::disk::{Disk, OpenMode};

    const BYTES: u64 = 3 * PAGE_BYTES + 100;

    /// A file as the operating system has it: beyond its end nothing is resident, and a request for
    /// what is not resident is begun although it would block.
    #[derive(Debug)]
    struct Strict(Arc<dyn DiskFile>);

    impl DiskFile for Strict {
        fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
            self.0.read_at(buffer, position)
        }

        fn read_at_resident(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
            let end = (position + buffer.len() as u64).min(BYTES);
            let is_cold = position < end && !self.0.is_resident(position, end - position);
            assert!(!is_cold, "requested from the device: {position}..{end}");
            self.0.read_at_resident(buffer, position)
        }

        fn write_at(&self, parts: &[io::IoSlice<'_>], position: u64) -> io::Result<()> {
            self.0.write_at(parts, position)
        }

        fn bytes(&self) -> io::Result<u64> {
            self.0.bytes()
        }

        fn set_bytes(&self, bytes: u64) -> io::Result<()> {
            self.0.set_bytes(bytes)
        }

        fn reserve(&self, bytes: u64) -> io::Result<()> {
            self.0.reserve(bytes)
        }

        fn sync(&self) -> io::Result<()> {
            self.0.sync()
        }

        fn start_writeback(&self, position: u64, bytes: u64) -> io::Result<()> {
            self.0.start_writeback(position, bytes)
        }

        fn is_resident(&self, position: u64, bytes: u64) -> bool {
            position + bytes <= BYTES && self.0.is_resident(position, bytes)
        }

        fn forget(&self, position: u64, bytes: u64) {
            self.0.forget(position, bytes);
        }

        fn descriptor(&self) -> Option<Descriptor<'_>> {
            None
        }
    }

    #[test]
    fn what_is_not_resident_is_not_even_requested() {
        let disk = MemoryDisk::new(1);
        let contents: Vec<u8> = (0..BYTES).map(|at| (at / 16) as u8).collect();
        disk.write_file(Path::new("f"), &contents);
        let file = Strict(disk.open(Path::new("f"), OpenMode::Read).expect("there"));
        disk.evict();
        // The second page stays on the device.
        for page in [0, 2, 3] {
            file.load(page * PAGE_BYTES, 1).expect("loaded");
        }
        let read = |position: u64, bytes: usize| {
            let mut buffer = vec![0; bytes];
            let count = read_up_to(&file, &mut buffer, position, ReadMode::Resident);
            count.inspect(|count| {
                assert_eq!(buffer[..*count], contents[position as usize..][..*count]);
            })
        };
        let blocks = |position: u64, bytes: usize| {
            let outcome = read(position, bytes);
            outcome.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
        };
        assert!(blocks(PAGE_BYTES, 10) && blocks(PAGE_BYTES + 90, 5_000));
        assert!(blocks(100, 5_000), "the rest of the first page is not enough");
        assert_eq!(read(100, 300).expect("resident"), 300);
        assert_eq!(read(2 * PAGE_BYTES, 4_196).expect("resident"), 4_196);
        // Up to the end of the file, from before it and at it.
        assert_eq!(read(2 * PAGE_BYTES + 10, 9_000).expect("resident"), 4_186);
        assert_eq!(read(BYTES, 10).expect("the end"), 0);
    }
}
