//! Removal of large files in small steps.
//!
//! Removing a file frees all its blocks at once, and where the file system is mounted with
//! `discard`, the device frees them too. Writes to all other files wait meanwhile: 78 ms for 250 MB
//! on the machine of `docs/measurements/performance-notes.md`, where 1 MiB takes 0.4 ms.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

/// What is freed at once.
pub(super) const STEP_BYTES: u64 = 1024 * 1024;

/// Between two steps: as long as a step takes there.
const PAUSE: Duration = Duration::from_micros(400);

/// A unit of `st_blocks`, whatever the file system's blocks are.
const STATUS_BLOCK_BYTES: u64 = 512;

/// A large file whose name is about to be removed.
#[derive(Debug)]
pub(super) struct LargeFile {
    file: File,
}

impl LargeFile {
    /// Returns `None` for a file that is small, or no file.
    pub fn open(path: &Path) -> io::Result<Option<LargeFile>> {
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let file = OpenOptions::new().write(true).custom_flags(flags).open(path)?;
        let is_large = |status: &Metadata| status.is_file() && allocated(status) > STEP_BYTES;
        Ok(is_large(&file.metadata()?).then_some(LargeFile { file }))
    }

    /// Frees the blocks of the file, whose name is gone, from its end on. Does nothing where it has
    /// another name or is open elsewhere: then what it holds is needed, and the last one to close
    /// it frees the blocks.
    ///
    /// - Returns the number of steps.
    pub fn free(self) -> io::Result<u64> {
        let status = self.file.metadata()?;
        if status.nlink() > 0 || !is_open_here_only(&self.file) {
            return Ok(0);
        }
        let mut left = status.len();
        let mut steps = 0;
        while left > 0 {
            left = left.saturating_sub(STEP_BYTES);
            self.file.set_len(left)?;
            steps += 1;
            #[expect(clippy::disallowed_methods, reason = "the real disk is where waiting belongs")]
            std::thread::sleep(PAUSE);
        }
        Ok(steps)
    }
}

fn allocated(status: &Metadata) -> u64 {
    status.blocks() * STATUS_BLOCK_BYTES
}

/// Whether no other descriptor or mapping of any process refers to the file: only then does the
/// kernel grant a lease for writing.
#[expect(
    unsafe_code,
    reason = "F_SETLEASE has no safe wrapper; it takes integers only"
)]
fn is_open_here_only(file: impl AsFd) -> bool {
    let descriptor = file.as_fd().as_raw_fd();
    // SAFETY: no pointers; a bad descriptor or command is an error code. A lease that is granted
    // ends with the second call.
    unsafe {
        let is_granted = libc::fcntl(descriptor, libc::F_SETLEASE, libc::F_WRLCK) == 0;
        is_granted && libc::fcntl(descriptor, libc::F_SETLEASE, libc::F_UNLCK) == 0
    }
}
