//! The names of open files: a file that was closed temporarily is reopened under its current name.
//!
//! Renaming and removing lock a directory exclusively, opening locks it shared: a path that was
//! looked up stays the file's until the kernel has opened it. Lock order: parent directory,
//! directory, file, list of a directory's files; the map of directories is locked only for
//! look-ups, under any of them.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError, Weak,
};

use super::file::OsFile;

/// The directories that hold open files, by path.
#[derive(Debug, Default)]
pub(super) struct Names {
    directories: Mutex<BTreeMap<Arc<Path>, Weak<Directory>>>,
}

/// A directory that holds open files.
#[derive(Debug)]
pub(super) struct Directory {
    /// Its current path; empty when another directory has taken its place.
    path: RwLock<Arc<Path>>,
    /// Ordered by name; a file opened twice is listed twice.
    files: Mutex<Vec<(Arc<OsStr>, Weak<OsFile>)>>,
    names: Weak<Names>,
}

impl Names {
    /// Runs `open` while nothing in the parent of `path` can be renamed.
    pub fn open<T>(
        self: &Arc<Self>,
        path: &Path,
        open: impl FnOnce(&Arc<Directory>) -> io::Result<T>,
    ) -> io::Result<T> {
        let parent = parent(path);
        loop {
            let directory = self.directory(parent);
            let current = directory.shared();
            // It may have been renamed since the look-up; `parent` is then another directory, or
            // none.
            if **current == *parent {
                return open(&directory);
            }
        }
    }

    /// Runs `remove`, which removes the file's name. Holders of the open file can go on using it.
    pub fn remove(self: &Arc<Self>, path: &Path, remove: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        self.exclusively(parent(path), |directory, at| {
            directory.replace(at, name(path), remove)
        })
    }

    /// Runs `rename`, and updates the names of open files.
    ///
    /// - Errors: `CrossesDevices` when `from` and `to` are in different directories.
    pub fn rename(
        self: &Arc<Self>,
        from: &Path,
        to: &Path,
        rename: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        if parent(from) != parent(to) {
            return Err(io::ErrorKind::CrossesDevices.into());
        }
        let is_directory = from.is_dir();
        self.exclusively(parent(from), |directory, at| {
            if is_directory {
                return self.rename_directory(from, to, rename);
            }
            directory.replace(at, name(to), rename)?;
            directory.rename(name(from), name(to));
            Ok(())
        })
    }

    /// Called with the parent locked, so that no other thread renames either of the two.
    fn rename_directory(
        self: &Arc<Self>,
        from: &Path,
        to: &Path,
        rename: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        // Even if no file in the directory is open: one may be about to be opened.
        let (moved, replaced) = (self.directory(from), self.directory(to));
        let (mut moved_path, mut replaced_path) = (moved.exclusive(), replaced.exclusive());
        rename()?;
        *moved_path = to.into();
        *replaced_path = Path::new("").into();
        let mut directories = self.lock();
        directories.remove(from);
        directories.insert(Arc::clone(&moved_path), Arc::downgrade(&moved));
        Ok(())
    }

    fn exclusively<T>(
        self: &Arc<Self>,
        path: &Path,
        change: impl FnOnce(&Directory, &Path) -> io::Result<T>,
    ) -> io::Result<T> {
        loop {
            let directory = self.directory(path);
            let current = directory.exclusive();
            if **current == *path {
                return change(&directory, path);
            }
        }
    }

    fn directory(self: &Arc<Self>, path: &Path) -> Arc<Directory> {
        let mut directories = self.lock();
        if let Some(known) = directories.get(path).and_then(Weak::upgrade) {
            return known;
        }
        let path: Arc<Path> = path.into();
        let directory = Arc::new(Directory {
            path: RwLock::new(Arc::clone(&path)),
            files: Mutex::default(),
            names: Arc::downgrade(self),
        });
        directories.insert(path, Arc::downgrade(&directory));
        directory
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Arc<Path>, Weak<Directory>>> {
        // Insertions and removals leave the map consistent.
        self.directories.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or_else(|| Path::new(""))
}

fn name(path: &Path) -> &OsStr {
    path.file_name().unwrap_or_default()
}

impl Directory {
    /// Locks the path, which cannot change while the guard lives.
    pub fn shared(&self) -> RwLockReadGuard<'_, Arc<Path>> {
        self.path.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns `None` while something is being renamed or removed.
    pub fn try_shared(&self) -> Option<RwLockReadGuard<'_, Arc<Path>>> {
        match self.path.try_read() {
            Ok(path) => Some(path),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    fn exclusive(&self) -> RwLockWriteGuard<'_, Arc<Path>> {
        self.path.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers an open file. Called with the path locked.
    pub fn enter(&self, name: Arc<OsStr>, file: Weak<OsFile>) {
        let mut files = self.files();
        let place = files.partition_point(|(other, _)| *other <= name);
        files.insert(place, (name, file));
    }

    /// Unregisters a file that is closed or no longer has a name.
    pub fn leave(&self, name: &OsStr, file: &Weak<OsFile>) {
        let mut files = self.files();
        let first = files.partition_point(|(other, _)| **other < *name);
        let found = files[first..]
            .iter()
            .take_while(|(other, _)| **other == *name)
            .position(|(_, other)| other.ptr_eq(file));
        if let Some(found) = found {
            files.remove(first + found);
        }
        if files.is_empty() {
            files.shrink_to_fit();
        }
    }

    /// Runs `change`, after which `name` is another file's or free. Called with the path locked
    /// exclusively.
    fn replace(&self, path: &Path, name: &OsStr, change: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let losers = self.named(name);
        let lost = losers.iter().try_for_each(|file| file.lose_name(path));
        let changed = lost.and_then(|()| change());
        for file in &losers {
            match changed {
                Ok(()) => file.forget_name(self),
                Err(_) => file.keep_name(),
            }
        }
        changed
    }

    fn rename(&self, from: &OsStr, to: &OsStr) {
        let to: Arc<OsStr> = to.into();
        for file in self.named(from) {
            file.rename(self, Arc::clone(&to));
        }
    }

    fn named(&self, name: &OsStr) -> Vec<Arc<OsFile>> {
        let files = self.files();
        let first = files.partition_point(|(other, _)| **other < *name);
        files[first..]
            .iter()
            .take_while(|(other, _)| **other == *name)
            .filter_map(|(_, file)| file.upgrade())
            .collect()
    }

    fn files(&self) -> MutexGuard<'_, Vec<(Arc<OsStr>, Weak<OsFile>)>> {
        // Insertions and removals leave the list consistent.
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let Some(names) = self.names.upgrade() else { return };
        let path = self.path.get_mut().unwrap_or_else(PoisonError::into_inner);
        let mut directories = names.lock();
        // Another directory may already have taken its place.
        if directories
            .get(path)
            .is_some_and(|known| known.strong_count() == 0)
        {
            directories.remove(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_known_while_something_in_it_is_open() {
        let names = Arc::new(Names::default());
        let hold = |path: &str| {
            let held = names.open(Path::new(path), |directory| Ok(Arc::clone(directory)));
            held.expect("held")
        };
        let (first, second, other) = (hold("home/a"), hold("home/b"), hold("away/a"));
        assert!(Arc::ptr_eq(&first, &second) && !Arc::ptr_eq(&first, &other));
        drop((first, other));
        assert!(Arc::ptr_eq(&second, &hold("home/c")));
        assert_eq!(names.lock().len(), 1);
        drop(second);
        assert_eq!(names.lock().len(), 0);
    }
}
