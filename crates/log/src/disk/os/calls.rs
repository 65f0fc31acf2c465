//! System calls in the form that file access needs here.

use std::fs;
use std::io;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{Advice, OFlags};
use rustix::io::{Errno, ReadWriteFlags, retry_on_intr};

pub(super) const PAGE_BYTES: u64 = 4096;

/// The kernel may limit a read-ahead request to the device's maximum, which is seldom smaller.
const ASK_STEP_BYTES: u64 = 128 * 1024;

/// The kernel's limit of parts per call (`UIO_MAXIOV`).
const PARTS_MAX: usize = 1024;

/// Writes all parts consecutively.
///
/// - `flags`: with `RWF_DSYNC` they are durable when this returns.
pub(super) fn write_all(
    file: impl AsFd,
    parts: &[io::IoSlice<'_>],
    mut position: u64,
    flags: ReadWriteFlags,
) -> io::Result<()> {
    for parts in parts.chunks(PARTS_MAX) {
        let wanted: usize = parts.iter().map(|part| part.len()).sum();
        let written = write_some(&file, parts, position, flags)?;
        if written < wanted {
            write_rest(&file, parts, position, written, flags)?;
        }
        position += wanted as u64;
    }
    Ok(())
}

fn write_some(
    file: impl AsFd,
    parts: &[io::IoSlice<'_>],
    position: u64,
    flags: ReadWriteFlags,
) -> io::Result<usize> {
    Ok(retry_on_intr(|| {
        rustix::io::pwritev2(&file, parts, position, flags)
    })?)
}

/// Continues after a short write: part by part, skipping what has been written.
fn write_rest(
    file: impl AsFd,
    parts: &[io::IoSlice<'_>],
    position: u64,
    written: usize,
    flags: ReadWriteFlags,
) -> io::Result<()> {
    let mut part_start = 0;
    let mut done = written;
    for part in parts {
        let part_end = part_start + part.len();
        while done < part_end {
            let rest = &part[done - part_start..];
            match write_some(&file, &[io::IoSlice::new(rest)], position + done as u64, flags)? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                bytes => done += bytes,
            }
        }
        part_start = part_end;
    }
    Ok(())
}

/// Whether a direct read or write may use this memory at this position of a file.
pub(super) fn is_aligned(bytes: &[u8], position: u64) -> bool {
    let unit = PAGE_BYTES as usize;
    bytes.as_ptr().addr().is_multiple_of(unit)
        && bytes.len().is_multiple_of(unit)
        && position.is_multiple_of(PAGE_BYTES)
}

/// Lets a file that refused a direct transfer use the page cache.
pub(super) fn make_cached(file: impl AsFd) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(&file)?;
    Ok(rustix::fs::fcntl_setfl(&file, flags - OFlags::DIRECT)?)
}

/// Requests read-ahead of the whole range, so that its parts are read concurrently.
pub(super) fn ask_for(file: impl AsFd, position: u64, bytes: u64) {
    let end = position + bytes;
    let mut at = position;
    while at < end {
        let step = NonZeroU64::new(ASK_STEP_BYTES.min(end - at));
        // If this fails, the pages are read one after the other when they are needed.
        let _ = rustix::fs::fadvise(&file, at, step, Advice::WillNeed);
        at += ASK_STEP_BYTES;
    }
}

/// A file to which the kernel sends pages without a copy and discards them; `None` when it cannot
/// be opened.
pub(super) fn nowhere() -> Option<&'static fs::File> {
    static NOWHERE: OnceLock<Option<fs::File>> = OnceLock::new();
    NOWHERE
        .get_or_init(|| fs::OpenOptions::new().write(true).open("/dev/null").ok())
        .as_ref()
}

/// Brings the range into the page cache and waits for it, by sending it to `nowhere`.
pub(super) fn send_to(nowhere: &fs::File, file: impl AsFd, position: u64, bytes: u64) -> io::Result<()> {
    let end = position + bytes;
    let mut at = position;
    while at < end {
        let wanted = usize::try_from(end - at).unwrap_or(usize::MAX);
        match rustix::fs::sendfile(nowhere, &file, Some(&mut at), wanted) {
            Ok(0) => break,
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

#[expect(
    unsafe_code,
    reason = "sync_file_range has no safe wrapper; it takes integers only"
)]
pub(super) fn start_writeback(file: impl AsFd, position: u64, bytes: u64) -> io::Result<()> {
    let (Ok(position), Ok(bytes)) = (i64::try_from(position), i64::try_from(bytes)) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let fd = file.as_fd().as_raw_fd();
    // SAFETY: no pointers; a bad descriptor or range is an error code.
    match unsafe { libc::sync_file_range(fd, position, bytes, libc::SYNC_FILE_RANGE_WRITE) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// cachestat (Linux 6.5) has the same number on all architectures.
const SYS_CACHESTAT: libc::c_long = 451;

#[repr(C)]
struct CachestatRange {
    position: u64,
    bytes: u64,
}

#[repr(C)]
#[derive(Default)]
struct Cachestat {
    cached: u64,
    dirty: u64,
    writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// Whether all pages of the range are in the page cache; `None` when the kernel cannot tell.
pub(super) fn resident_pages(file: impl AsFd, position: u64, bytes: u64) -> Option<bool> {
    if bytes == 0 {
        return Some(true);
    }
    let pages = (position + bytes).div_ceil(PAGE_BYTES) - position / PAGE_BYTES;
    Some(cachestat(file, position, bytes)?.cached >= pages)
}

/// Whether something of the range is yet to be sent to the device.
#[cfg(test)]
pub(super) fn is_dirty(file: impl AsFd, position: u64, bytes: u64) -> bool {
    let status = cachestat(file, position, bytes);
    status.expect("tests need a kernel with cachestat (6.5)").dirty > 0
}

#[expect(unsafe_code, reason = "cachestat has no safe wrapper")]
fn cachestat(file: impl AsFd, position: u64, bytes: u64) -> Option<Cachestat> {
    static UNSUPPORTED: AtomicBool = AtomicBool::new(false);
    if UNSUPPORTED.load(Ordering::Relaxed) {
        return None;
    }
    let fd = file.as_fd().as_raw_fd();
    let range = CachestatRange { position, bytes };
    let mut status = Cachestat::default();
    // SAFETY: both structs are alive, have the kernel's layout, and the kernel writes only the
    // second.
    let result = unsafe { libc::syscall(SYS_CACHESTAT, fd, &raw const range, &raw mut status, 0u32) };
    if result != 0 {
        UNSUPPORTED.store(true, Ordering::Relaxed);
        return None;
    }
    Some(status)
}
