//! Whether a read may wait for the device.

use std::io;

use crate::disk::DiskFile;

/// Who is asking: an event loop must never wait, a thread of the cold-read pool may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadMode {
    /// Fails with `WouldBlock` instead of waiting for the device.
    Resident,
    /// Waits for the device.
    Blocking,
}

/// Fills `buffer` from `position` on; fewer bytes only at the end of the file.
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
            ReadMode::Resident => file.read_at_resident(rest, at)?,
            ReadMode::Blocking => file.read_at(rest, at)?,
        };
        if read == 0 {
            break;
        }
        done += read;
    }
    Ok(done)
}
