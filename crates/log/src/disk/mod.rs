//! The only access to storage: a handful of methods, so that a memory disk can lose, tear and
//! reorder writes in tests.
//!
//! A [`Disk`] deals with paths, a [`DiskFile`] with positions in one open file. Nothing here knows
//! about logs.

pub mod memory;
pub mod damage;
pub mod os;
pub mod owned;
pub mod cold_cache;

use std::any::Any;
use std::error::Error;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use os::Descriptor;
use owned::{LogMemory, Pinned};

/// How a file is opened. Every mode can read; none truncates the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// The file must exist and is not written.
    Read,
    /// The file must exist.
    Write,
    /// The file is created when it does not exist.
    Create,
}

/// One name in a directory; links are followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryEntry {
    pub path: PathBuf,
    pub kind: EntryKind,
    pub bytes: u64,
}

/// What a name refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    File,
    Directory,
    /// A pipe, a socket, a device, or a dangling link.
    Other,
}

/// The size of a file system, and how much of it an unprivileged writer may still allocate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    pub total_bytes: u64,
    pub free_bytes: u64,
}

/// Nothing was left to open a file with: no descriptor, or no kernel memory. Nothing was done; a
/// retry succeeds once others give something back.
#[derive(Debug)]
struct Shortage(String);

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for Shortage {}

pub(crate) fn shortage(problem: String) -> io::Error {
    io::Error::other(Shortage(problem))
}

/// Whether an operation had no effect for lack of a descriptor. It may be retried, even a sync.
pub fn is_shortage(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<Shortage>())
}

/// A file system.
///
/// - Durability: a created, renamed or removed name survives a power cut only after
///   `sync_directory` on its parent.
/// - Shape: a rename stays within the directory. Open files follow it, also when their directory is
///   renamed.
/// - Errors: `is_shortage` from everything that opens something, or uses a file that was closed
///   meanwhile.
pub trait Disk: Send + Sync + fmt::Debug {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>>;
    /// Opens a file of batches: it is only appended to or truncated, in large pieces, and need not
    /// pass through the page cache.
    fn open_log(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        self.open(path, mode)
    }
    /// Begins a new file of batches, empty even if there is one of that name. Its name may appear
    /// only with the first sync. Never waits longer than creating a file takes.
    fn create_log(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let file = self.open_log(path, OpenMode::Create)?;
        if file.bytes()? > 0 {
            file.set_bytes(0)?;
        }
        Ok(file)
    }
    /// Opens a file past the page cache where that is possible; for `DiskFile::write_durably` and
    /// large reads.
    fn open_direct(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        self.open(path, mode)
    }
    /// Whether `open_direct` of this file would pass by the page cache.
    fn is_direct(&self, _file: &Path) -> bool {
        false
    }
    fn list(&self, directory: &Path) -> io::Result<Vec<DirectoryEntry>>;
    fn exists(&self, path: &Path) -> bool;
    fn create_directories(&self, directory: &Path) -> io::Result<()>;
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    fn remove_file(&self, path: &Path) -> io::Result<()>;
    fn remove_directory(&self, directory: &Path) -> io::Result<()>;
    fn sync_directory(&self, directory: &Path) -> io::Result<()>;
    /// Makes all of these files, and the names in these directories, durable, in any order.
    fn sync_all(&self, files: &[Arc<dyn DiskFile>], directories: &[&Path]) -> io::Result<()> {
        sync_each(self, files, directories)
    }
    /// Makes durable at once what earlier processes wrote below `directory`, where the file system
    /// supports that. `DiskFile::settle` then has nothing left to do.
    fn settle(&self, _directory: &Path) {}
    /// Waits a moment for others to give back what there is a shortage of. Never called by an event
    /// loop.
    fn pause(&self) {}
    /// The file system that holds `path`.
    fn space(&self, path: &Path) -> io::Result<Space>;
    /// Takes the exclusive lock that Kafka keeps on `.lock` while a broker uses a directory.
    /// Fails with `ResourceBusy` when another process holds it.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn DirectoryLock>>;
    /// The memory that holds the newest bytes of log files, if that is not the page cache.
    fn memory(&self) -> Option<&Arc<LogMemory>> {
        None
    }
    /// The disk below that memory.
    fn below(&self) -> Option<&Arc<dyn Disk>> {
        None
    }
}

/// An exclusive lock, given back when dropped.
pub trait DirectoryLock: Send + fmt::Debug {}

/// Retries while there is a shortage; for operations that must not be left half done. Never called
/// by an event loop.
pub fn outlast_shortage<T>(disk: &dyn Disk, mut attempt: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match attempt() {
            Err(error) if is_shortage(&error) => disk.pause(),
            outcome => return outcome,
        }
    }
}

fn sync_each(
    disk: &(impl Disk + ?Sized),
    files: &[Arc<dyn DiskFile>],
    directories: &[&Path],
) -> io::Result<()> {
    files.iter().try_for_each(|file| file.sync())?;
    directories
        .iter()
        .try_for_each(|directory| disk.sync_directory(directory))
}

/// One open file. All methods take `&self`; positions are explicit, so a file has no cursor.
///
/// - Shape: it may be closed and reopened below this trait; it stays usable while it is held, even
///   if its name is changed or removed.
pub trait DiskFile: Any + Send + Sync + fmt::Debug {
    /// Reads at most `buffer.len()` bytes; 0 means end of file. May wait for the device.
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize>;

    /// Like `read_at`, into consecutive parts, with one request to the device where that is
    /// possible.
    fn read_parts_at(&self, parts: &mut [io::IoSliceMut<'_>], position: u64) -> io::Result<usize> {
        let mut done = 0;
        for part in parts {
            let read = self.read_at(part, position + done as u64)?;
            done += read;
            if read < part.len() {
                break;
            }
        }
        Ok(done)
    }

    /// Like `read_at`, but fails with `WouldBlock` instead of waiting for the device. Short reads
    /// are possible.
    fn read_at_resident(&self, buffer: &mut [u8], position: u64) -> io::Result<usize>;

    /// Writes all parts consecutively, starting at `position`. On error an unknown prefix has been
    /// written.
    fn write_at(&self, parts: &[io::IoSlice<'_>], position: u64) -> io::Result<()>;

    /// Writes whole blocks of a file that `open_direct` has opened; they are durable when this
    /// returns.
    /// On error an unknown part has been written.
    ///
    /// - Shape: memory, length and position of each part are multiples of 4,096.
    fn write_durably(&self, parts: &[io::IoSlice<'_>], position: u64) -> io::Result<()> {
        self.write_at(parts, position)?;
        self.sync()
    }

    /// Gives the file its name now if it was begun with `Disk::create_log` and has none yet.
    fn create(&self) -> io::Result<()> {
        Ok(())
    }

    fn bytes(&self) -> io::Result<u64>;

    /// Truncates or extends (with zeros) the file to `bytes`, and gives back space reserved beyond
    /// it.
    fn set_bytes(&self, bytes: u64) -> io::Result<()>;

    /// Ends the file at `bytes` for its readers and for what is appended. Everything behind is
    /// zeros, which may stay until `set_bytes` is called.
    fn end_before_zeros(&self, bytes: u64) -> io::Result<()> {
        self.set_bytes(bytes)
    }

    /// Makes sure that writes below `bytes` cannot fail for lack of space; the file's visible
    /// length is unchanged.
    fn reserve(&self, bytes: u64) -> io::Result<()>;

    /// Data and whatever metadata is needed to read it back are on the medium when this returns
    /// (fdatasync). Never call it again after an error: the pages may be marked clean although they
    /// were not written.
    fn sync(&self) -> io::Result<()>;

    /// Makes what earlier processes wrote to the file durable. Guarantees nothing about this
    /// process's writes.
    fn settle(&self) -> io::Result<()> {
        self.sync()
    }

    /// Starts writing `position..position + bytes` to the medium without waiting for it.
    fn start_writeback(&self, position: u64, bytes: u64) -> io::Result<()>;

    /// True when every page of the range can be read without waiting for the device.
    fn is_resident(&self, position: u64, bytes: u64) -> bool;

    /// As `is_resident`, for a reader that comes a moment later.
    fn stays_resident(&self, position: u64, bytes: u64) -> bool {
        self.is_resident(position, bytes)
    }

    /// Returns how many of the first bytes of the range can be read without waiting for the device:
    /// all of them, or at least half of the resident prefix, in steps.
    fn resident_bytes(&self, position: u64, bytes: u64) -> u64 {
        if self.is_resident(position, bytes) {
            return bytes;
        }
        let mut found = 0;
        let mut tried = RESIDENT_STEP_BYTES;
        while tried < bytes && self.is_resident(position + found, tried - found) {
            found = tried;
            tried *= 2;
        }
        found
    }

    /// Brings the range into the page cache and returns when all of it is there; without a copy
    /// through this process's memory where the operating system allows. Anything beyond the end of
    /// the file is ignored. Waits for the device.
    fn load(&self, position: u64, bytes: u64) -> io::Result<()> {
        read_through(self, position, bytes)
    }

    /// Lets clean pages of the range leave the page cache, unless they are in use. A hint.
    fn forget(&self, position: u64, bytes: u64);

    /// Keeps the page at `position` in the page cache; for files that may be idle.
    fn keep_resident(&self, position: u64) -> io::Result<()> {
        self.read_at(&mut [0], position).map(drop)
    }

    /// The descriptor for `sendfile`, kept open until it is dropped. `None` for a file that is not
    /// the operating system's, or that would have to be reopened from the device.
    fn descriptor(&self) -> Option<Descriptor<'_>>;

    /// Whether what `load` brings can be sent without another copy: through `descriptor` or
    /// `pinned`.
    fn is_sendable(&self) -> bool {
        self.descriptor().is_some()
    }

    /// The beginning of the range, as far as it lies in memory of the log's own; `None` if nothing
    /// of it does. It stays there while it is held.
    fn pinned(&self, _position: u64, _bytes: u64) -> Option<Pinned> {
        None
    }
}

/// The buffer for loads that cannot avoid a copy.
const LOAD_BUFFER_BYTES: usize = 128 * 1024;

fn read_through(file: &(impl DiskFile + ?Sized), position: u64, bytes: u64) -> io::Result<()> {
    let mut buffer = vec![0; LOAD_BUFFER_BYTES];
    let mut done = 0;
    while done < bytes {
        let wanted = usize::try_from(bytes - done).map_or(buffer.len(), |left| left.min(buffer.len()));
        match file.read_at(&mut buffer[..wanted], position + done)? {
            0 => break,
            read => done += read as u64,
        }
    }
    Ok(())
}

/// The smallest range that [`DiskFile::resident_bytes`] asks for.
const RESIDENT_STEP_BYTES: u64 = 64 * 1024;

/// A range of an open file: record bytes on their way to a client without passing through this
/// process's memory.
/// Holding it keeps the file readable although its name may be gone.
#[derive(Clone, Debug)]
pub struct FileRegion {
    pub file: Arc<dyn DiskFile>,
    pub position: u64,
    pub bytes: u64,
}

impl FileRegion {
    /// As [`DiskFile::resident_bytes`], of its first `bytes_max` bytes.
    pub fn resident_bytes(&self, bytes_max: u64) -> u64 {
        self.file.resident_bytes(self.position, bytes_max.min(self.bytes))
    }
}

#[cfg(test)]
mod tests {
    use std::io::{IoSlice, IoSliceMut};

    use super::memory::MemoryDisk;
    use super::*;

    const KIB: u64 = 1024;

    fn create(disk: &MemoryDisk, bytes: &[u8]) -> Arc<dyn DiskFile> {
        let file = disk.open(Path::new("a"), OpenMode::Create).expect("opened");
        file.write_at(&[IoSlice::new(bytes)], 0).expect("written");
        file.sync().expect("synced");
        file
    }

    #[test]
    fn a_new_log_file_is_empty_whatever_had_its_name() {
        let disk = MemoryDisk::new(1);
        create(&disk, b"leftover");
        let file = disk.create_log(Path::new("a")).expect("created");
        assert_eq!(file.bytes().expect("known"), 0);
        let before = disk.operations();
        disk.create_log(Path::new("b")).expect("created");
        assert_eq!(disk.operations() - before, 1, "nothing is to be cut off");
    }

    #[test]
    fn a_disk_without_memory_of_its_own_sends_and_pins_nothing() {
        let disk = MemoryDisk::new(1);
        let file = create(&disk, b"some bytes");
        assert!(!disk.is_direct(Path::new("a")));
        assert!(!file.is_sendable() && file.pinned(0, 10).is_none());
    }

    #[test]
    fn parts_are_read_one_after_the_other_up_to_a_short_one() {
        let bytes: Vec<u8> = (0..450u16).map(|at| (at % 251) as u8).collect();
        for seed in 0..20 {
            let disk = MemoryDisk::new(seed);
            let file = create(&disk, &bytes);
            disk.set_short_reads(seed > 0);
            let (mut first, mut second, mut third) = ([0; 100], [0; 200], [0; 300]);
            let mut parts = [&mut first[..], &mut second, &mut third].map(IoSliceMut::new);
            let read = file.read_parts_at(&mut parts, 10).expect("read");
            let seen = [&first[..], &second, &third].concat();
            assert_eq!(seen[..read], bytes[10..10 + read]);
            assert!(read > 0 && (seed > 0 || read == 440), "{read}");
        }
    }

    #[test]
    fn a_load_brings_what_is_asked_for_and_no_more() {
        let disk = MemoryDisk::new(1);
        let file = create(&disk, &vec![1; 400 * KIB as usize]);
        disk.evict();
        file.load(0, 200_000).expect("loaded");
        assert!(file.is_resident(0, 200 * 1_000) && !file.is_resident(196 * KIB, 4 * KIB));
        file.load(396 * KIB, 400 * KIB)
            .expect("the end of the file ends it");
        assert!(file.is_resident(396 * KIB, 4 * KIB) && !file.is_resident(392 * KIB, 4 * KIB));
    }

    #[test]
    fn of_a_region_whole_steps_are_resident_or_all_that_is_asked_for() {
        let disk = MemoryDisk::new(1);
        let file = create(&disk, &vec![1; 1024 * KIB as usize]);
        let position = 12 * KIB;
        let resident = |warm: u64, bytes_max: u64| {
            disk.evict();
            file.load(position, warm).expect("loaded");
            let region = FileRegion {
                file: Arc::clone(&file),
                position,
                bytes: 1_000 * KIB,
            };
            region.resident_bytes(bytes_max)
        };
        let cases = [
            (0, 1_000, 0),
            (60, 1_000, 0),
            (64, 1_000, 64),
            (124, 1_000, 64),
            (128, 1_000, 128),
            (300, 1_000, 256),
            (300, 300, 300),
            (300, 304, 256),
            (12, 12, 12),
            (12, 16, 0),
            (996, 1_000, 512),
            (1_000, 5_000, 1_000),
        ];
        for (warm, bytes_max, expected) in cases {
            let found = resident(warm * KIB, bytes_max * KIB);
            assert_eq!(found, expected * KIB, "{warm} of {bytes_max} KiB");
        }
    }
}
