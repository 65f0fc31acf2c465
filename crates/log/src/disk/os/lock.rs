//! The lock that Kafka keeps on a log directory.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;

use crate::disk::DirectoryLock;

#[derive(Debug)]
struct OsLock {
    _file: fs::File,
}

impl DirectoryLock for OsLock {}

/// - Errors: `ResourceBusy` when another process holds it.
pub(super) fn lock(path: &Path) -> io::Result<Box<dyn DirectoryLock>> {
    let file = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)?;
    if lock_whole_file(&file)? {
        return Ok(Box::new(OsLock { _file: file }));
    }
    let problem = format!("{} is locked by another process", path.display());
    Err(io::Error::new(io::ErrorKind::ResourceBusy, problem))
}

/// Kafka takes a POSIX record lock (through Java's `FileChannel`). An open-file-description lock
/// conflicts with it and, unlike it, also with another broker in this process.
#[expect(unsafe_code, reason = "rustix has no open-file-description locks")]
fn lock_whole_file(file: impl AsFd) -> io::Result<bool> {
    let whole_file = libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    let fd = file.as_fd().as_raw_fd();
    // SAFETY: the struct lives across the call and the kernel only reads it.
    if unsafe { libc::fcntl(fd, libc::F_OFD_SETLK, &raw const whole_file) } == 0 {
        return Ok(true);
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EAGAIN | libc::EACCES) => Ok(false),
        _ => Err(error),
    }
}
