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
