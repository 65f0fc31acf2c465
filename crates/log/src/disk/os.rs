//! Real files on Linux.

use std::fs;
use std::io;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use rustix::fs::{Advice, FallocateFlags};
use rustix::io::{Errno, ReadWriteFlags};

use super::{DirectoryEntry, DirectoryLock, Disk, DiskFile, EntryKind, OpenMode, Space, read_through};

/// The operating system's files.
#[derive(Clone, Copy, Debug, Default)]
pub struct OsDisk;

impl OsDisk {
    pub fn shared() -> Arc<dyn Disk> {
        Arc::new(OsDisk)
    }
}

impl Disk for OsDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let file = fs::OpenOptions::new()
            .read(true)
            .write(mode != OpenMode::Read)
            .create(mode == OpenMode::Create)
            .truncate(false)
            // Opening a pipe would wait for its other end. For regular files the flag means nothing.
            .custom_flags(libc::O_NONBLOCK)
            .open(path)?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        Ok(Arc::new(OsFile::new(file)))
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<DirectoryEntry>> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            entries.extend(entry_at(entry.path())?);
        }
        entries.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(entries)
    }

    fn exists(&self, path: &Path) -> bool {
        path.exists()
    }

    fn create_directories(&self, directory: &Path) -> io::Result<()> {
        fs::create_dir_all(directory)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn remove_directory(&self, directory: &Path) -> io::Result<()> {
        fs::remove_dir(directory)
    }

    fn sync_directory(&self, directory: &Path) -> io::Result<()> {
        fs::File::open(directory)?.sync_all()
    }

    fn space(&self, path: &Path) -> io::Result<Space> {
        let status = rustix::fs::statvfs(path)?;
        Ok(Space {
            total_bytes: status.f_blocks.saturating_mul(status.f_frsize),
            free_bytes: status.f_bavail.saturating_mul(status.f_frsize),
        })
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn DirectoryLock>> {
        let file = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)?;
        if lock_whole_file(file.as_raw_fd())? {
            Ok(Box::new(OsLock { _file: file }))
        } else {
            Err(locked(path))
        }
    }
}

/// `None`: the name vanished between the listing and the look at it.
fn entry_at(path: PathBuf) -> io::Result<Option<DirectoryEntry>> {
    let (kind, bytes) = match fs::metadata(&path) {
        Ok(metadata) if metadata.is_file() => (EntryKind::File, metadata.len()),
        Ok(metadata) if metadata.is_dir() => (EntryKind::Directory, 0),
        Ok(_) => (EntryKind::Other, 0),
        Err(_) if fs::symlink_metadata(&path).is_ok() => (EntryKind::Other, 0),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    Ok(Some(DirectoryEntry { path, kind, bytes }))
}

/// Kafka takes a POSIX record lock (through Java's `FileChannel`). A lock of the open file description conflicts with
/// that one and, unlike it, also with another broker in this process.
#[expect(unsafe_code, reason = "rustix has no open-file-description locks")]
fn lock_whole_file(fd: RawFd) -> io::Result<bool> {
    let whole_file = libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
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

fn locked(path: &Path) -> io::Error {
    io::Error::new(
        io::ErrorKind::ResourceBusy,
        format!("{} is locked by another process", path.display()),
    )
}

#[derive(Debug)]
struct OsLock {
    _file: fs::File,
}

impl DirectoryLock for OsLock {}

#[derive(Debug)]
struct OsFile {
    file: fs::File,
    /// Loads under way: pages may be in the page cache and still be empty.
    loads: AtomicU32,
    /// The kernel was told not to read ahead.
    is_random: AtomicBool,
}

impl DiskFile for OsFile {
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        loop {
            match rustix::io::pread(&self.file, &mut *buffer, position) {
                Ok(bytes) => return Ok(bytes),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn read_at_resident(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        let mut parts = [io::IoSliceMut::new(buffer)];
        loop {
            match rustix::io::preadv2(&self.file, &mut parts, position, ReadWriteFlags::NOWAIT) {
                Ok(bytes) => return Ok(bytes),
                Err(Errno::INTR) => {}
                // A file system without RWF_NOWAIT cannot promise not to wait, so the caller must take the slow road.
                Err(Errno::OPNOTSUPP) => return Err(io::ErrorKind::WouldBlock.into()),
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn write_at(&self, parts: &[io::IoSlice<'_>], position: u64) -> io::Result<()> {
        let wanted: usize = parts.iter().map(|part| part.len()).sum();
        // 1024 is the kernel's limit of parts per call (UIO_MAXIOV).
        let written = if parts.len() <= 1024 {
            write_some(&self.file, parts, position)?
        } else {
            0
        };
        if written == wanted {
            Ok(())
        } else {
            write_rest(&self.file, parts, position, written)
        }
    }

    fn bytes(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn set_bytes(&self, bytes: u64) -> io::Result<()> {
        // ftruncate to the present length also frees blocks that fallocate reserved behind it (ext4, xfs).
        Ok(rustix::fs::ftruncate(&self.file, bytes)?)
    }

    fn reserve(&self, bytes: u64) -> io::Result<()> {
        let length = self.bytes()?;
        if bytes <= length {
            return Ok(());
        }
        loop {
            match rustix::fs::fallocate(&self.file, FallocateFlags::KEEP_SIZE, length, bytes - length) {
                Err(Errno::INTR) => {}
                // A file system without fallocate finds out about a lack of space at the write.
                Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::fdatasync(&self.file)?)
    }

    fn start_writeback(&self, position: u64, bytes: u64) -> io::Result<()> {
        sync_file_range_write(self.file.as_raw_fd(), position, bytes)
    }

    fn is_resident(&self, position: u64, bytes: u64) -> bool {
        match resident_pages(self.file.as_raw_fd(), position, bytes) {
            Some(false) => false,
            // The kernel counts pages that are still on their way from the device. Asked in this order: a load that began
            // before the pages were counted is seen, and one that begins later finds nothing to do.
            Some(true) if self.loads.load(Ordering::SeqCst) > 0 => {
                self.probe_resident(position, bytes, PAGE_BYTES)
            }
            // A file that was cold once may be cold again; what is on its way for others comes in larger pieces.
            Some(true) if self.is_random.load(Ordering::Relaxed) => {
                self.probe_resident(position, bytes, PROBE_STEP_BYTES)
            }
            Some(true) => true,
            None => self.probe_resident(position, bytes, PROBE_STEP_BYTES),
        }
    }

    fn load(&self, position: u64, bytes: u64) -> io::Result<()> {
        let bytes = bytes.min(self.bytes()?.saturating_sub(position));
        if bytes == 0 {
            return Ok(());
        }
        let _load = Load::begin(&self.loads);
        self.disable_read_ahead();
        self.ask_for(position, bytes);
        match nowhere() {
            Some(nowhere) => send_to(nowhere, &self.file, position, bytes),
            None => read_through(self, position, bytes),
        }
    }

    fn forget(&self, position: u64, bytes: u64) {
        if let Some(bytes) = NonZeroU64::new(bytes) {
            // A hint: nothing depends on its success.
            let _ = rustix::fs::fadvise(&self.file, position, Some(bytes), Advice::DontNeed);
        }
    }

    fn raw_fd(&self) -> Option<RawFd> {
        Some(self.file.as_fd().as_raw_fd())
    }
}

/// Until it is dropped, one more load is under way.
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

impl OsFile {
    fn new(file: fs::File) -> OsFile {
        OsFile {
            file,
            loads: AtomicU32::new(0),
            is_random: AtomicBool::new(false),
        }
    }

    /// Reads one byte in every `step_bytes`, without waiting. Pages between two probes may be missing: that costs a wait,
    /// never a wrong answer.
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

    /// The kernel's read-ahead leaves pages behind that are in the page cache and not yet filled; whoever sends them waits.
    /// From the first load on, what is read ahead is decided here.
    fn disable_read_ahead(&self) {
        if !self.is_random.swap(true, Ordering::Relaxed) {
            let _ = rustix::fs::fadvise(&self.file, 0, None, Advice::Random);
        }
    }

    /// Queues all of the range at the device, so that its parts are read side by side.
    fn ask_for(&self, position: u64, bytes: u64) {
        let end = position + bytes;
        let mut at = position;
        while at < end {
            let step = NonZeroU64::new(ASK_STEP_BYTES.min(end - at));
            // Where this fails, the pages are read one after the other when they are waited for.
            let _ = rustix::fs::fadvise(&self.file, at, step, Advice::WillNeed);
            at += ASK_STEP_BYTES;
        }
    }
}

/// Where the kernel takes pages without a copy and forgets them; `None` when it cannot be opened.
fn nowhere() -> Option<&'static fs::File> {
    static NOWHERE: OnceLock<Option<fs::File>> = OnceLock::new();
    NOWHERE
        .get_or_init(|| fs::OpenOptions::new().write(true).open("/dev/null").ok())
        .as_ref()
}

/// Waits until the range has been in the page cache, by sending it.
fn send_to(nowhere: &fs::File, file: &fs::File, position: u64, bytes: u64) -> io::Result<()> {
    let end = position + bytes;
    let mut at = position;
    while at < end {
        let wanted = usize::try_from(end - at).unwrap_or(usize::MAX);
        match rustix::fs::sendfile(nowhere, file, Some(&mut at), wanted) {
            Ok(0) => break,
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn write_some(file: &fs::File, parts: &[io::IoSlice<'_>], position: u64) -> io::Result<usize> {
    loop {
        match rustix::io::pwritev(file, parts, position) {
            Ok(bytes) => return Ok(bytes),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Goes on after a short write: part by part, skipping what is written.
fn write_rest(file: &fs::File, parts: &[io::IoSlice<'_>], position: u64, written: usize) -> io::Result<()> {
    let mut part_start = 0;
    let mut done = written;
    for part in parts {
        let part_end = part_start + part.len();
        while done < part_end {
            let rest = &part[done - part_start..];
            match write_some(file, &[io::IoSlice::new(rest)], position + done as u64)? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                bytes => done += bytes,
            }
        }
        part_start = part_end;
    }
    Ok(())
}

#[expect(
    unsafe_code,
    reason = "sync_file_range has no safe wrapper; it takes integers only"
)]
fn sync_file_range_write(fd: RawFd, position: u64, bytes: u64) -> io::Result<()> {
    let (Ok(position), Ok(bytes)) = (i64::try_from(position), i64::try_from(bytes)) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    // SAFETY: no pointers; a bad descriptor or range is an error code.
    match unsafe { libc::sync_file_range(fd, position, bytes, libc::SYNC_FILE_RANGE_WRITE) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

const PAGE_BYTES: u64 = 4096;

/// What others read ahead comes in pieces of about this size.
const PROBE_STEP_BYTES: u64 = 64 * 1024;

/// The kernel may cut a request to the device's limit, which is seldom smaller.
const ASK_STEP_BYTES: u64 = 128 * 1024;

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

/// Whether all pages of the range are in the page cache; `None` when the kernel cannot say.
#[expect(unsafe_code, reason = "cachestat has no safe wrapper")]
fn resident_pages(fd: RawFd, position: u64, bytes: u64) -> Option<bool> {
    static UNSUPPORTED: AtomicBool = AtomicBool::new(false);
    if bytes == 0 {
        return Some(true);
    }
    if UNSUPPORTED.load(Ordering::Relaxed) {
        return None;
    }
    let range = CachestatRange { position, bytes };
    let mut status = Cachestat::default();
    // SAFETY: both structs are alive, have the kernel's layout, and the kernel writes only the second.
    let result = unsafe { libc::syscall(SYS_CACHESTAT, fd, &raw const range, &raw mut status, 0u32) };
    if result != 0 {
        UNSUPPORTED.store(true, Ordering::Relaxed);
        return None;
    }
    let pages = (position + bytes).div_ceil(PAGE_BYTES) - position / PAGE_BYTES;
    Some(status.cached >= pages)
}

/// A directory that is removed when the value is dropped; for tests and benches.
#[derive(Debug)]
pub struct TemporaryDirectory {
    path: PathBuf,
}

impl TemporaryDirectory {
    pub fn new(name: &str) -> io::Result<TemporaryDirectory> {
        static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("ottla-{name}-{}-{number}", std::process::id()));
        fs::create_dir_all(&path)?;
        Ok(TemporaryDirectory { path })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for TemporaryDirectory {
    fn drop(&mut self) {
        // Nothing can be done about a failure here; the operating system cleans its temporary directory.
        let _ = fs::remove_dir_all(&self.path);
    }
}
