//! Keeps a closed file's inode in memory, and with it the kernel's record of failed write-back.
//!
//! Written pages stay in the page cache when the descriptor is closed, and `fdatasync` on a later
//! descriptor covers them. But if writing them back fails in between, the kernel records the error
//! in the inode; an inode that no process has open may be evicted, and the next `fdatasync` would
//! succeed although the pages are lost. A mapping references the file like a descriptor, but does
//! not count against the descriptor limit.

use std::ffi::c_void;
use std::io;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// Half of the mappings that the kernel allows a process by default (`vm.max_map_count`, 65,530):
/// the rest is for memory.
const HOLDS_MAX: usize = 32 * 1024;

const PAGE_BYTES: usize = 4096;

static HOLDS: AtomicUsize = AtomicUsize::new(0);

/// One page of address space that maps the file. It is never read.
#[derive(Debug)]
pub(super) struct InodeHold(NonNull<c_void>);

#[expect(
    unsafe_code,
    reason = "an address that is never read may be unmapped by any thread"
)]
// SAFETY: the mapping belongs to the process, not to a thread, and is only ever unmapped.
unsafe impl Send for InodeHold {}

impl InodeHold {
    /// - Errors: there are too many, or the kernel refuses another mapping.
    pub fn of(file: impl AsFd) -> io::Result<InodeHold> {
        if HOLDS.fetch_add(1, Ordering::Relaxed) >= HOLDS_MAX {
            HOLDS.fetch_sub(1, Ordering::Relaxed);
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        #[expect(unsafe_code, reason = "mmap is unsafe where it may replace a mapping")]
        // SAFETY: the kernel chooses the address, so no other mapping is touched; only `self`
        // refers to the new one.
        let mapped = unsafe {
            mmap(
                std::ptr::null_mut(),
                PAGE_BYTES,
                ProtFlags::empty(),
                MapFlags::PRIVATE,
                file,
                0,
            )
        };
        let address = mapped.map(NonNull::new);
        match address {
            Ok(Some(address)) => Ok(InodeHold(address)),
            failed => {
                HOLDS.fetch_sub(1, Ordering::Relaxed);
                Err(failed.map_or_else(io::Error::from, |_| io::ErrorKind::OutOfMemory.into()))
            }
        }
    }
}

impl Drop for InodeHold {
    fn drop(&mut self) {
        #[expect(unsafe_code, reason = "munmap is unsafe where the memory may still be in use")]
        // SAFETY: `of` mapped exactly this page, and its address is known only here.
        let unmapped = unsafe { munmap(self.0.as_ptr(), PAGE_BYTES) };
        debug_assert!(unmapped.is_ok(), "a page of our own is unmapped");
        HOLDS.fetch_sub(1, Ordering::Relaxed);
    }
}
