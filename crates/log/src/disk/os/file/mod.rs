//! One open file, whose descriptor may be closed and reopened at any time.

use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};

use rustix::fs::{Advice, CWD, FallocateFlags, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::{Errno, ReadWriteFlags, retry_on_intr};

use super::inode_hold::InodeHold;
use super::names::Directory;
use super::slot::{Descriptor, Slot};
use super::{Shared, calls};
use crate::disk::owned::AlignedBuffer;
use crate::disk::{DiskFile, OpenMode, read_through};

#[cfg(test)]
mod tests;

/// Not in the clock.
const NO_PLACE: usize = usize::MAX;

pub(super) struct OsFile {
    slot: Slot,
    /// Counts writes; incremented while the descriptor is in use, so that the thread that closes it
    /// sees the count.
    writes: AtomicU32,
    /// How many of them a sync has covered.
    synced_writes: AtomicU32,
    /// Set once the kernel has been told not to read ahead.
    is_random: AtomicBool,
    is_writable: bool,
    /// Reads and writes go past the page cache.
    is_direct: AtomicBool,
    /// Loads under way: pages may be in the page cache without being filled yet.
    loads: AtomicU32,
    identity: Identity,
    state: Mutex<FileState>,
    directory: Arc<Directory>,
    disk: Arc<Shared>,
    this: Weak<OsFile>,
}

#[derive(Debug)]
struct FileState {
    name: Arc<OsStr>,
    /// False when the name was removed or is another file's: the descriptor is then the only way to
    /// the file, and stays open.
    has_name: bool,
    /// Set while a file is closed with unsynced writes.
    hold: Option<InodeHold>,
    /// Its index in the clock.
    place: usize,
}

/// Identifies the file independently of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
}

impl Identity {
    /// - Errors: `InvalidInput` for anything but a regular file.
    fn of(file: impl AsFd) -> io::Result<Identity> {
        let status = rustix::fs::fstat(file)?;
        if FileType::from_raw_mode(status.st_mode) != FileType::RegularFile {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        Ok(Identity {
            device: status.st_dev,
            inode: status.st_ino,
        })
    }
}

/// Whether opening a file again may wait for the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    Allowed,
    Never,
}

impl fmt::Debug for OsFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OsFile({})", self.state().name.display())
    }
}

/// Opening, closing and reopening.
impl OsFile {
    /// Opens a file. Called while nothing in `directory` can be renamed.
    ///
    /// - `is_direct`: past the page cache, where the file system allows that.
    pub fn open(
        path: &Path,
        mode: OpenMode,
        is_direct: bool,
        directory: &Arc<Directory>,
        disk: &Arc<Shared>,
    ) -> io::Result<Arc<OsFile>> {
        let is_writable = mode != OpenMode::Read;
        let create = if mode == OpenMode::Create {
            OFlags::CREATE
        } else {
            OFlags::empty()
        };
        let rights = Mode::from_raw_mode(0o666);
        let open = |is_direct| {
            let flags = access(is_writable, is_direct) | create;
            disk.descriptors.open_file(path, || {
                let fd = retry_on_intr(|| rustix::fs::open(path, flags, rights))?;
                let identity = Identity::of(&fd)?;
                Ok((fd, identity))
            })
        };
        let (is_direct, opened) = match open(is_direct) {
            // A file system without direct access (or this kind of file).
            Err(error) if is_direct && error.raw_os_error() == Some(libc::EINVAL) => (false, open(false)),
            opened => (is_direct, opened),
        };
        let (fd, identity) = opened?;
        let name: Arc<OsStr> = path.file_name().unwrap_or_default().into();
        let file = Arc::new_cyclic(|this| OsFile {
            slot: Slot::default(),
            writes: AtomicU32::new(0),
            synced_writes: AtomicU32::new(0),
            is_random: AtomicBool::new(false),
            is_writable,
            is_direct: AtomicBool::new(is_direct),
            loads: AtomicU32::new(0),
            identity,
            state: Mutex::new(FileState {
                name: Arc::clone(&name),
                has_name: true,
                hold: None,
                place: NO_PLACE,
            }),
            directory: Arc::clone(directory),
            disk: Arc::clone(disk),
            this: Weak::clone(this),
        });
        file.put(&mut file.state(), fd);
        directory.enter(name, Arc::downgrade(&file));
        Ok(file)
    }

    /// Returns the descriptor; a closed file is reopened, which may wait for the device.
    fn in_use(&self) -> io::Result<Descriptor<'_>> {
        match self.slot.get_again() {
            Some(descriptor) => Ok(descriptor),
            None => self.reopen(),
        }
    }

    /// Returns the descriptor, unless reopening would have to wait.
    fn in_use_now(&self) -> Option<Descriptor<'_>> {
        self.slot.get_again().or_else(|| {
            let directory = self.directory.try_shared()?;
            let mut state = self.try_state()?;
            self.reopen_locked(&directory, &mut state, Wait::Never).ok()
        })
    }

    #[cold]
    fn reopen(&self) -> io::Result<Descriptor<'_>> {
        let directory = self.directory.shared();
        self.reopen_locked(&directory, &mut self.state(), Wait::Allowed)
    }

    fn reopen_locked(
        &self,
        directory: &Path,
        state: &mut FileState,
        wait: Wait,
    ) -> io::Result<Descriptor<'_>> {
        // Another thread may have been faster.
        if let Some(descriptor) = self.slot.get() {
            return Ok(descriptor);
        }
        let path = directory.join(&*state.name);
        if !state.has_name {
            let problem = format!("{} was removed while it was closed", path.display());
            return Err(io::Error::new(io::ErrorKind::NotFound, problem));
        }
        let fd = self
            .disk
            .descriptors
            .open_file(&path, || self.open_same(&path, wait))?;
        self.disk.descriptors.count_reopened();
        self.put(state, fd);
        // It cannot be closed while the state is locked.
        let descriptor = self.slot.get().expect("it was opened just now");
        Ok(descriptor)
    }

    fn open_same(&self, path: &Path, wait: Wait) -> io::Result<OwnedFd> {
        let flags = access(self.is_writable, self.is_direct());
        let fd = match wait {
            Wait::Allowed => retry_on_intr(|| rustix::fs::open(path, flags, Mode::empty()))?,
            // Fails when a name or an inode would have to be read from the device.
            Wait::Never => rustix::fs::openat2(CWD, path, flags, Mode::empty(), ResolveFlags::CACHED)?,
        };
        if Identity::of(&fd)? != self.identity {
            let problem = format!(
                "{} is another file than the one that was opened: it has been replaced",
                path.display()
            );
            return Err(io::Error::other(problem));
        }
        if self.is_random.load(Ordering::Relaxed) {
            let _ = rustix::fs::fadvise(&fd, 0, None, Advice::Random);
        }
        Ok(fd)
    }

    /// Stores a descriptor, which may from now on be closed in favor of other files.
    fn put(&self, state: &mut FileState, fd: OwnedFd) {
        self.slot.put(fd);
        // The new descriptor pins the inode.
        state.hold = None;
        state.place = self.disk.descriptors.enter(Weak::clone(&self.this));
    }

    /// Closes the descriptor unless it is in use, was used recently, or is the only way to the
    /// file. True if it was closed.
    pub fn close_if_idle(&self) -> bool {
        if self.slot.was_used() {
            return false;
        }
        // The thread that holds the lock is about to use the file.
        let Some(mut state) = self.try_state() else {
            return false;
        };
        if !state.has_name {
            return false;
        }
        let Some(fd) = self.slot.take() else { return false };
        // No thread uses the descriptor any more, so all writes through it are counted.
        if self.writes() != self.synced_writes.load(Ordering::Relaxed) {
            match InodeHold::of(&fd) {
                Ok(hold) => state.hold = Some(hold),
                Err(_) => {
                    self.slot.put(fd);
                    return false;
                }
            }
        }
        state.place = NO_PLACE;
        true
    }

    /// The number of writes so far, to be passed to `covered` after a sync that begins now.
    pub fn writes(&self) -> u32 {
        self.writes.load(Ordering::Acquire)
    }

    /// Notes that a sync covered the first `writes` writes.
    pub fn covered(&self, writes: u32) {
        self.synced_writes.store(writes, Ordering::Relaxed);
        if writes == self.writes()
            && let Some(mut state) = self.try_state()
        {
            state.hold = None;
        }
    }

    fn is_direct(&self) -> bool {
        self.is_direct.load(Ordering::Relaxed)
    }

    pub fn device(&self) -> u64 {
        self.identity.device
    }

    fn state(&self) -> MutexGuard<'_, FileState> {
        // Critical sections leave the state consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn try_state(&self) -> Option<MutexGuard<'_, FileState>> {
        match self.state.try_lock() {
            Ok(state) => Some(state),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

/// Changes of names. Called with the directory locked exclusively.
impl OsFile {
    /// Opens the file if it is closed, and pins it: its name is about to be removed or to become
    /// another file's.
    ///
    /// - Errors: a shortage; the name must then not be changed.
    pub fn lose_name(&self, directory: &Path) -> io::Result<()> {
        let mut state = self.state();
        if state.has_name {
            match self.reopen_locked(directory, &mut state, Wait::Allowed) {
                Ok(_) => {}
                Err(error) if crate::disk::is_shortage(&error) => return Err(error),
                // The name is already gone, and with it the file.
                Err(_) => {}
            }
        }
        state.has_name = false;
        Ok(())
    }

    /// Undoes `lose_name` when the name was not removed after all.
    pub fn keep_name(&self) {
        self.state().has_name = true;
    }

    /// Notes that the name was removed.
    pub fn forget_name(&self, directory: &Directory) {
        directory.leave(&self.state().name, &self.this);
    }

    pub fn rename(&self, directory: &Directory, name: Arc<OsStr>) {
        let mut state = self.state();
        directory.leave(&state.name, &self.this);
        directory.enter(Arc::clone(&name), Weak::clone(&self.this));
        state.name = name;
    }
}

impl Drop for OsFile {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if state.place != NO_PLACE {
            self.disk.descriptors.leave(state.place);
        }
        if state.has_name {
            self.directory.leave(&state.name, &self.this);
        }
    }
}

impl DiskFile for OsFile {
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        let descriptor = self.in_use()?;
        if self.is_direct() && !calls::is_aligned(buffer, position) {
            return read_around(&descriptor, buffer, position);
        }
        Ok(retry_on_intr(|| {
            rustix::io::pread(&descriptor, &mut *buffer, position)
        })?)
    }

    /// - Shape: of a file opened past the page cache, aligned blocks.
    fn read_parts_at(&self, parts: &mut [io::IoSliceMut<'_>], position: u64) -> io::Result<usize> {
        let descriptor = self.in_use()?;
        Ok(retry_on_intr(|| {
            rustix::io::preadv(&descriptor, parts, position)
        })?)
    }

    fn read_at_resident(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        if self.is_direct() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let Some(descriptor) = self.in_use_now() else {
            return Err(io::ErrorKind::WouldBlock.into());
        };
        let mut parts = [io::IoSliceMut::new(buffer)];
        let read =
            retry_on_intr(|| rustix::io::preadv2(&descriptor, &mut parts, position, ReadWriteFlags::NOWAIT));
        match read {
            // A file system without RWF_NOWAIT cannot promise not to wait, so the caller must take
            // the slow path.
            Err(Errno::OPNOTSUPP) => Err(io::ErrorKind::WouldBlock.into()),
            read => Ok(read?),
        }
    }

    fn write_at(&self, parts: &[io::IoSlice<'_>], position: u64) -> io::Result<()> {
        let descriptor = self.in_use()?;
        let written = calls::write_all(&descriptor, parts, position, ReadWriteFlags::empty());
        // After the write: a sync that began before it must not count as covering it.
        self.writes.fetch_add(1, Ordering::Relaxed);
        written
    }

    fn write_durably(&self, parts: &[io::IoSlice<'_>], position: u64) -> io::Result<()> {
        if self.is_direct() {
            let descriptor = self.in_use()?;
            match calls::write_all(&descriptor, parts, position, ReadWriteFlags::DSYNC) {
                // A file system that refuses only the transfer.
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => calls::make_cached(&descriptor)?,
                written => return written,
            }
            self.is_direct.store(false, Ordering::Relaxed);
        }
        self.write_at(parts, position)?;
        self.sync()
    }

    fn bytes(&self) -> io::Result<u64> {
        bytes_of(&self.in_use()?)
    }

    fn set_bytes(&self, bytes: u64) -> io::Result<()> {
        // ftruncate to the current length also frees blocks that fallocate reserved beyond it
        // (ext4, xfs).
        Ok(rustix::fs::ftruncate(&self.in_use()?, bytes)?)
    }

    fn reserve(&self, bytes: u64) -> io::Result<()> {
        let descriptor = self.in_use()?;
        let length = bytes_of(&descriptor)?;
        if bytes <= length {
            return Ok(());
        }
        let reserved = retry_on_intr(|| {
            rustix::fs::fallocate(&descriptor, FallocateFlags::KEEP_SIZE, length, bytes - length)
        });
        match reserved {
            // A file system without fallocate detects a lack of space only at the write.
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            reserved => Ok(reserved?),
        }
    }

    fn sync(&self) -> io::Result<()> {
        let descriptor = self.in_use()?;
        let writes = self.writes();
        let synced = rustix::fs::fdatasync(&descriptor);
        // After an error, too: no later sync could report it again.
        self.covered(writes);
        Ok(synced?)
    }

    fn settle(&self) -> io::Result<()> {
        if self.disk.file_systems.is_settled(self.identity.device) {
            Ok(())
        } else {
            self.sync()
        }
    }

    fn start_writeback(&self, position: u64, bytes: u64) -> io::Result<()> {
        calls::start_writeback(&self.in_use()?, position, bytes)
    }

    fn is_resident(&self, position: u64, bytes: u64) -> bool {
        if self.is_direct() {
            return false;
        }
        let Some(descriptor) = self.in_use_now() else {
            return false;
        };
        match calls::resident_pages(&descriptor, position, bytes) {
            Some(false) => false,
            // The kernel also counts pages that are still being read from the device. The order
            // matters: a load that began before the pages were counted is seen here, and one that
            // begins later finds nothing to do.
            Some(true) if self.loads.load(Ordering::SeqCst) > 0 => {
                self.probe_resident(position, bytes, calls::PAGE_BYTES)
            }
            // A file that was cold once may be cold again; reads under way by others come in larger
            // pieces.
            Some(true) if self.is_random.load(Ordering::Relaxed) => {
                self.probe_resident(position, bytes, PROBE_STEP_BYTES)
            }
            Some(true) => true,
            None => self.probe_resident(position, bytes, PROBE_STEP_BYTES),
        }
    }

    fn load(&self, position: u64, bytes: u64) -> io::Result<()> {
        let descriptor = self.in_use()?;
        let bytes = bytes.min(bytes_of(&descriptor)?.saturating_sub(position));
        if bytes == 0 {
            return Ok(());
        }
        let _load = Load::begin(&self.loads);
        // The kernel's read-ahead leaves pages in the page cache that are not filled yet, and
        // sendfile would wait for them. From the first load on, read-ahead is decided here.
        if !self.is_random.swap(true, Ordering::Relaxed) {
            let _ = rustix::fs::fadvise(&descriptor, 0, None, Advice::Random);
        }
        calls::ask_for(&descriptor, position, bytes);
        match calls::nowhere() {
            Some(nowhere) => calls::send_to(nowhere, &descriptor, position, bytes),
            None => read_through(self, position, bytes),
        }
    }

    fn forget(&self, position: u64, bytes: u64) {
        if let Some(bytes) = NonZeroU64::new(bytes)
            && let Ok(descriptor) = self.in_use()
        {
            // A hint: its failure is harmless.
            let _ = rustix::fs::fadvise(&descriptor, position, Some(bytes), Advice::DontNeed);
        }
    }

    fn keep_resident(&self, position: u64) -> io::Result<()> {
        if let Some(descriptor) = self.slot.get() {
            retry_on_intr(|| rustix::io::pread(&descriptor, &mut [0], position))?;
            return Ok(());
        }
        // Opened temporarily, so that a pass over all files does not close those that are in use.
        let directory = self.directory.shared();
        let path = directory.join(&*self.state().name);
        let open = || self.open_same(&path, Wait::Allowed);
        let file = self.disk.descriptors.open_for_a_moment(&path, open)?;
        retry_on_intr(|| rustix::io::pread(&file, &mut [0], position))?;
        Ok(())
    }

    fn descriptor(&self) -> Option<Descriptor<'_>> {
        self.in_use_now()
    }
}

/// Other readers' read-ahead comes in pieces of about this size.
const PROBE_STEP_BYTES: u64 = 64 * 1024;

impl OsFile {
    /// Reads one byte every `step_bytes`, without waiting. Pages between two probes may be missing:
    /// that costs a wait, never a wrong answer.
    fn probe_resident(&self, position: u64, bytes: u64, step_bytes: u64) -> bool {
        let end = position.saturating_add(bytes);
        let mut at = position;
        let mut byte = [0];
        while at < end {
            if self.read_at_resident(&mut byte, at).is_err() {
                return false;
            }
            at = (at / step_bytes + 1) * step_bytes;
        }
        bytes == 0 || self.read_at_resident(&mut byte, end - 1).is_ok()
    }
}

/// The most that one unaligned read brings.
const AROUND_BYTES_MAX: u64 = 256 * 1024;

/// Reads whole blocks into memory that the device accepts, and copies what was asked for.
fn read_around(descriptor: &Descriptor<'_>, buffer: &mut [u8], position: u64) -> io::Result<usize> {
    let start = position / calls::PAGE_BYTES * calls::PAGE_BYTES;
    let end = (position + buffer.len() as u64).min(start + AROUND_BYTES_MAX);
    let mut around = AlignedBuffer::of((end - start) as usize);
    let read = retry_on_intr(|| rustix::io::pread(descriptor, around.bytes_mut(), start))?;
    let from = (position - start) as usize;
    let count = read.saturating_sub(from).min(buffer.len());
    buffer[..count].copy_from_slice(&around.bytes_mut()[from..from + count]);
    Ok(count)
}

fn bytes_of(descriptor: &Descriptor<'_>) -> io::Result<u64> {
    Ok(u64::try_from(rustix::fs::fstat(descriptor)?.st_size).unwrap_or(0))
}

fn access(is_writable: bool, is_direct: bool) -> OFlags {
    let mut access = if is_writable { OFlags::RDWR } else { OFlags::RDONLY };
    access.set(OFlags::DIRECT, is_direct);
    // Without this flag opening a pipe would wait for its other end. It has no effect on regular
    // files.
    access | OFlags::CLOEXEC | OFlags::NONBLOCK
}

/// Counts one load as under way until it is dropped.
struct Load<'a>(&'a AtomicU32);

impl Load<'_> {
    fn begin(loads: &AtomicU32) -> Load<'_> {
        loads.fetch_add(1, Ordering::SeqCst);
        Load(loads)
    }
}

impl Drop for Load<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}
