//! Real files on Linux.
//!
//! Reading order: the modules below, top to bottom.

mod file;
mod slot;
mod descriptors;
mod inode_hold;
mod names;
mod removal;
mod batch;
mod calls;
mod lock;
mod temporary;

#[cfg(test)]
mod tests;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::{DirectoryEntry, DirectoryLock, Disk, DiskFile, EntryKind, OpenMode, Space, sync_each};
use batch::SyncedFileSystems;
pub use descriptors::{ConnectionDescriptor, DescriptorUse, Descriptors};
use file::OsFile;
use names::Names;
use removal::LargeFile;
use rustix::fs::{Mode, OFlags};
pub use slot::Descriptor;
pub use temporary::TemporaryDirectory;

/// Long enough for another thread to finish a request, short enough for a waiting client.
const PAUSE: Duration = Duration::from_millis(10);

/// The operating system's files. Clones share the state of open files.
#[derive(Clone, Debug)]
pub struct OsDisk(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    descriptors: Arc<Descriptors>,
    names: Arc<Names>,
    file_systems: SyncedFileSystems,
}

impl Default for OsDisk {
    /// Uses the descriptors of this process.
    fn default() -> OsDisk {
        static OF_PROCESS: OnceLock<OsDisk> = OnceLock::new();
        let of_process = OF_PROCESS.get_or_init(|| OsDisk::with_descriptors(Descriptors::of_process()));
        of_process.clone()
    }
}

impl OsDisk {
    pub fn shared() -> Arc<dyn Disk> {
        Arc::new(OsDisk::default())
    }

    fn open_file(&self, path: &Path, mode: OpenMode, is_direct: bool) -> io::Result<Arc<dyn DiskFile>> {
        self.0.names.open(path, |directory| {
            let file = OsFile::open(path, mode, is_direct, directory, &self.0)?;
            Ok(file as Arc<dyn DiskFile>)
        })
    }

    /// Uses descriptors of its own; for tests.
    pub fn with_descriptors(descriptors: Arc<Descriptors>) -> OsDisk {
        OsDisk(Arc::new(Shared {
            descriptors,
            names: Arc::default(),
            file_systems: SyncedFileSystems::default(),
        }))
    }
}

impl Disk for OsDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        self.open_file(path, mode, false)
    }

    fn open_direct(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        self.open_file(path, mode, true)
    }

    fn is_direct(&self, file: &Path) -> bool {
        let flags = OFlags::RDONLY | OFlags::DIRECT | OFlags::CLOEXEC;
        let open = || Ok(rustix::fs::open(file, flags, Mode::empty())?);
        self.0.descriptors.open_for_a_moment(file, open).is_ok()
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<DirectoryEntry>> {
        let mut entries = Vec::new();
        let listed = self
            .0
            .descriptors
            .open_for_a_moment(directory, || fs::read_dir(directory))?;
        for entry in listed {
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
        self.0.names.rename(from, to, || fs::rename(from, to))
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let open = || LargeFile::open(path);
        // A file that cannot be opened is removed at once.
        let large = self.0.descriptors.open_for_a_moment(path, open).ok().flatten();
        self.0.names.remove(path, || fs::remove_file(path))?;
        // The name is gone: whatever fails now, the kernel frees what is left.
        let _ = large.map(LargeFile::free);
        Ok(())
    }

    fn remove_directory(&self, directory: &Path) -> io::Result<()> {
        fs::remove_dir(directory)
    }

    fn sync_directory(&self, directory: &Path) -> io::Result<()> {
        let open = || fs::File::open(directory);
        self.0.descriptors.open_for_a_moment(directory, open)?.sync_all()
    }

    fn space(&self, path: &Path) -> io::Result<Space> {
        let status = rustix::fs::statvfs(path)?;
        Ok(Space {
            total_bytes: status.f_blocks.saturating_mul(status.f_frsize),
            free_bytes: status.f_bavail.saturating_mul(status.f_frsize),
        })
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn DirectoryLock>> {
        self.0.file_systems.watch(path);
        self.0.descriptors.open_for_a_moment(path, || lock::lock(path))
    }

    fn settle(&self, directory: &Path) {
        self.0.file_systems.settle(directory);
    }

    fn pause(&self) {
        #[expect(clippy::disallowed_methods, reason = "the real disk is where waiting belongs")]
        std::thread::sleep(PAUSE);
    }

    fn sync_all(&self, files: &[Arc<dyn DiskFile>], directories: &[&Path]) -> io::Result<()> {
        if self.0.file_systems.sync(files, directories) {
            return Ok(());
        }
        sync_each(self, files, directories)
    }
}

/// Returns `None` if the name vanished between the listing and this call.
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
