//! Batched durability: one `syncfs` instead of thousands of syncs that would each wait for a commit
//! of the file system's journal.

use std::any::Any;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::file::OsFile;
use crate::disk::DiskFile;

#[cfg(test)]
mod tests;

/// From this many files on, `syncfs` is faster although it also writes what was not requested.
const BATCH_MIN: usize = 16;

/// File systems whose `syncfs` is known to make files and names durable (`statfs` magic numbers of
/// ext4, xfs and btrfs). Others may treat it as a hint: FUSE does not even receive it.
const KNOWN_TYPES: [u64; 3] = [0xEF53, 0x5846_5342, 0x9123_683E];

/// `syncfs` reports failed write-back since Linux 5.8; before, it always succeeded.
const KERNEL_MIN: (u32, u32) = (5, 8);

/// The file systems of log directories.
#[derive(Debug, Default)]
pub(super) struct SyncedFileSystems {
    watched: Mutex<Vec<Watched>>,
    /// Set when a `syncfs` has failed. Its error concerns some file of the file system and is not
    /// reported a second time, so from then on only syncs of single files can report errors.
    is_distrusted: AtomicBool,
}

#[derive(Debug)]
struct Watched {
    device: u64,
    /// Opened before anything is written: from then on every error of the file system is reported
    /// through it.
    directory: fs::File,
    /// Whether what earlier processes wrote is durable.
    is_settled: bool,
}

impl SyncedFileSystems {
    /// Allows `sync` for the file system that holds `path` from now on.
    pub fn watch(&self, path: &Path) {
        let parent = path.parent().unwrap_or_else(|| Path::new(""));
        // A file system that cannot be watched is synced file by file.
        let _ = self.try_watch(parent);
    }

    fn try_watch(&self, directory: &Path) -> io::Result<()> {
        let directory = fs::File::open(directory)?;
        let device = directory.metadata()?.dev();
        let kind = rustix::fs::fstatfs(&directory)?.f_type as u64;
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        let is_known = watched.iter().any(|watched| watched.device == device);
        if !is_known && KNOWN_TYPES.contains(&kind) && kernel() >= KERNEL_MIN {
            watched.push(Watched {
                device,
                directory,
                is_settled: false,
            });
        }
        Ok(())
    }

    /// Makes durable what earlier processes wrote to the file system of `directory`.
    pub fn settle(&self, directory: &Path) {
        let Ok(device) = fs::metadata(directory).map(|metadata| metadata.dev()) else {
            return;
        };
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        for file_system in watched.iter_mut().filter(|watched| watched.device == device) {
            file_system.is_settled = self.sync_all_of(&file_system.directory);
        }
    }

    pub fn is_settled(&self, device: u64) -> bool {
        let watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        watched
            .iter()
            .any(|watched| watched.device == device && watched.is_settled)
    }

    /// Returns false if some page could not be written: it is then unknown which file it belonged
    /// to.
    fn sync_all_of(&self, directory: &fs::File) -> bool {
        let is_synced = rustix::fs::syncfs(directory).is_ok();
        if !is_synced {
            self.is_distrusted.store(true, Ordering::SeqCst);
        }
        is_synced
    }

    /// Makes everything durable in one call; false where that is not possible, not worth it, or
    /// failed.
    pub fn sync(&self, files: &[Arc<dyn DiskFile>], directories: &[&Path]) -> bool {
        if files.len() + directories.len() < BATCH_MIN || self.is_distrusted.load(Ordering::SeqCst) {
            return false;
        }
        let files: Option<Vec<&OsFile>> = files.iter().map(|file| os_file(&**file)).collect();
        let Some(files) = files else { return false };
        let watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(file_system) = watched
            .iter()
            .find(|watched| holds_all(watched.device, &files, directories))
        else {
            return false;
        };
        let writes: Vec<u32> = files.iter().map(|file| file.writes()).collect();
        if !self.sync_all_of(&file_system.directory) {
            return false;
        }
        // xfs flushes the device's cache together with its log, but only if there is something to
        // log; a file's own sync always flushes it.
        if let Some(file) = files.first()
            && file.sync().is_err()
        {
            return false;
        }
        files
            .iter()
            .zip(writes)
            .for_each(|(file, writes)| file.covered(writes));
        true
    }
}

fn os_file(file: &dyn DiskFile) -> Option<&OsFile> {
    let file: &dyn Any = file;
    file.downcast_ref()
}

fn holds_all(device: u64, files: &[&OsFile], directories: &[&Path]) -> bool {
    let is_there = |path: &&Path| fs::metadata(path).is_ok_and(|metadata| metadata.dev() == device);
    files.iter().all(|file| file.device() == device) && directories.iter().all(is_there)
}

/// Parses the kernel release: `6.1.0-18-amd64` gives 6 and 1.
fn kernel() -> (u32, u32) {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut numbers = release
        .split(|character: char| !character.is_ascii_digit())
        .map(|number| number.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}
