//! The budget of descriptors: how many the process may have, and how they are divided.
//!
//! Log files get what connections leave. A file keeps its descriptor until another one needs it
//! (clock replacement): the clock's hand goes around the open files, and closes the first that has
//! not been used since it last passed.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use super::file::OsFile;
use crate::disk::shortage;

/// Descriptors for neither log files nor connections: listeners, event loops, lock files, the admin
/// address, and whatever is open briefly (a directory being synced, a checkpoint). An eighth of the
/// limit, within these bounds.
const RESERVE_MIN: usize = 32;
const RESERVE_MAX: usize = 128;

/// Log files keep at least this fraction of what is not reserved, however many connections there
/// are.
const FILES_SHARE: usize = 4;

/// Counts descriptors and closes those of idle files.
#[derive(Debug)]
pub struct Descriptors {
    /// `RLIMIT_NOFILE`.
    limit: AtomicUsize,
    files: AtomicUsize,
    connections: AtomicUsize,
    /// How often a file was reopened after its descriptor had been closed.
    reopened: AtomicU64,
    clock: Mutex<Clock>,
}

/// The files that have a descriptor.
#[derive(Debug, Default)]
struct Clock {
    places: Vec<Option<Weak<OsFile>>>,
    free: Vec<usize>,
    hand: usize,
}

/// The limit of descriptors, and their current use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DescriptorUse {
    pub limit: usize,
    pub files: usize,
    pub connections: usize,
    pub reopened: u64,
}

impl Descriptors {
    pub fn with_limit(limit: usize) -> Arc<Descriptors> {
        Arc::new(Descriptors {
            limit: AtomicUsize::new(limit),
            files: AtomicUsize::new(0),
            connections: AtomicUsize::new(0),
            reopened: AtomicU64::new(0),
            clock: Mutex::default(),
        })
    }

    /// Returns those of this process, shared by all its brokers; each call reads the limit again.
    pub fn of_process() -> Arc<Descriptors> {
        static OF_PROCESS: OnceLock<Arc<Descriptors>> = OnceLock::new();
        let of_process = OF_PROCESS.get_or_init(|| Descriptors::with_limit(0));
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        of_process.limit.store(limit, Ordering::Relaxed);
        Arc::clone(of_process)
    }

    pub fn now(&self) -> DescriptorUse {
        DescriptorUse {
            limit: self.limit.load(Ordering::Relaxed),
            files: self.files.load(Ordering::Relaxed),
            connections: self.connections.load(Ordering::Relaxed),
            reopened: self.reopened.load(Ordering::Relaxed),
        }
    }

    /// The descriptors that files and connections share.
    fn shared(&self) -> usize {
        let limit = self.limit.load(Ordering::Relaxed);
        limit.saturating_sub((limit / 8).clamp(RESERVE_MIN, RESERVE_MAX))
    }

    /// The maximum number of connections.
    pub fn connections_max(&self) -> usize {
        self.shared() - self.shared() / FILES_SHARE
    }

    fn files_max(&self) -> usize {
        let connections = self.connections.load(Ordering::Relaxed);
        let rest = self.shared().saturating_sub(connections);
        // A process with hardly any descriptors can still open one file at a time.
        rest.max(self.shared() / FILES_SHARE).max(1)
    }

    /// Reserves a descriptor for one more connection; `None` at the maximum. Closes files if
    /// necessary.
    pub fn admit(self: &Arc<Self>) -> Option<ConnectionDescriptor> {
        let admitted = self
            .connections
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |connections| {
                (connections < self.connections_max()).then_some(connections + 1)
            });
        admitted.ok()?;
        while self.files.load(Ordering::Relaxed) > self.files_max() && self.close_idle_file() {}
        Some(ConnectionDescriptor(Arc::clone(self)))
    }

    /// Opens something that keeps its descriptor, closing another file if the maximum is reached.
    ///
    /// - Errors: a shortage when no other file can be closed.
    pub(super) fn open_file<T>(&self, path: &Path, open: impl Fn() -> io::Result<T>) -> io::Result<T> {
        let is_below = |files: usize| (files < self.files_max()).then_some(files + 1);
        while self
            .files
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, is_below)
            .is_err()
        {
            if !self.close_idle_file() {
                return Err(self.shortage(path, "no file can be closed for it"));
            }
        }
        let opened = self.open_for_a_moment(path, open);
        if opened.is_err() {
            self.files.fetch_sub(1, Ordering::Relaxed);
        }
        opened
    }

    /// Opens something that is closed again at once. If the kernel has no descriptor left, idle
    /// files are closed.
    pub(super) fn open_for_a_moment<T>(
        &self,
        path: &Path,
        open: impl Fn() -> io::Result<T>,
    ) -> io::Result<T> {
        loop {
            let error = match open() {
                Ok(opened) => return Ok(opened),
                Err(error) => error,
            };
            match Errno::from_io_error(&error) {
                Some(Errno::MFILE | Errno::NFILE) if self.close_idle_file() => {}
                Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM) => {
                    return Err(self.shortage(path, &error.to_string()));
                }
                _ => return Err(error),
            }
        }
    }

    fn shortage(&self, path: &Path, reason: &str) -> io::Error {
        let now = self.now();
        shortage(format!(
            "no descriptor for {}: {reason} ({} files and {} connections are open; the process may have {} descriptors, \
             RLIMIT_NOFILE)",
            path.display(),
            now.files,
            now.connections,
            now.limit
        ))
    }

    /// Registers a file whose descriptor may from now on be closed; returns its index.
    pub(super) fn enter(&self, file: Weak<OsFile>) -> usize {
        let mut clock = self.clock.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = clock.free.pop() {
            clock.places[place] = Some(file);
            return place;
        }
        clock.places.push(Some(file));
        clock.places.len() - 1
    }

    /// Frees the index of a file that is gone together with its descriptor.
    pub(super) fn leave(&self, place: usize) {
        let mut clock = self.clock.lock().unwrap_or_else(PoisonError::into_inner);
        clock.vacate(place);
        drop(clock);
        self.files.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn count_reopened(&self) {
        self.reopened.fetch_add(1, Ordering::Relaxed);
    }

    /// Closes the descriptor of a file that has not been used recently; false if none may be
    /// closed.
    pub fn close_idle_file(&self) -> bool {
        // A file dropped meanwhile must not be destroyed under the lock: its drop takes the lock,
        // too.
        let mut seen = Vec::new();
        let mut clock = self.clock.lock().unwrap_or_else(PoisonError::into_inner);
        let mut was_closed = false;
        // Twice around: in the first round every file may have been used recently.
        for _ in 0..2 * clock.places.len() {
            let place = clock.hand;
            clock.hand = (place + 1) % clock.places.len();
            let Some(file) = clock.places[place].as_ref().and_then(Weak::upgrade) else {
                continue;
            };
            was_closed = file.close_if_idle();
            seen.push(file);
            if was_closed {
                clock.vacate(place);
                break;
            }
        }
        drop(clock);
        if was_closed {
            self.files.fetch_sub(1, Ordering::Relaxed);
        }
        was_closed
    }
}

impl Clock {
    fn vacate(&mut self, place: usize) {
        self.places[place] = None;
        self.free.push(place);
    }
}

/// A connection's descriptor; given back when dropped.
#[derive(Debug)]
pub struct ConnectionDescriptor(Arc<Descriptors>);

impl Drop for ConnectionDescriptor {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{OsDisk, TemporaryDirectory};
    use super::*;
    use crate::disk::{Disk, OpenMode};

    #[test]
    fn an_eighth_is_reserved_and_files_keep_a_quarter_of_the_rest() {
        let descriptors = Descriptors::with_limit(800);
        assert_eq!(
            (descriptors.connections_max(), descriptors.files_max()),
            (525, 700)
        );
        let connections: Vec<_> = std::iter::from_fn(|| descriptors.admit()).collect();
        assert_eq!((connections.len(), descriptors.files_max()), (525, 175));
        // The limit of the process was lowered while they are open.
        descriptors.limit.store(400, Ordering::Relaxed);
        assert_eq!(descriptors.files_max(), (400 - 50) / 4);
    }

    #[test]
    fn places_in_the_clock_are_used_again() {
        let directory = TemporaryDirectory::new("clock").expect("created");
        let descriptors = Descriptors::with_limit(40);
        let disk = OsDisk::with_descriptors(Arc::clone(&descriptors));
        let open = |index: usize| {
            let path = directory.path().join(index.to_string());
            disk.open(&path, OpenMode::Create).expect("opened")
        };
        let files: Vec<_> = (0..50).map(open).collect();
        for file in &files {
            file.bytes().expect("opened again");
        }
        drop(files);
        (0..50).for_each(|index| drop(open(index)));
        let clock = descriptors.clock.lock().unwrap_or_else(PoisonError::into_inner);
        assert_eq!((clock.places.len(), clock.free.len()), (8, 8));
    }
}
