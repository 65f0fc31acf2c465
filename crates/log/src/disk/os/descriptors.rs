//! How many descriptors the process may have, and who has them.
//!
//! Files of logs get what connections leave. A file keeps its descriptor until another one needs it: a clock's hand goes
//! around the open files, and the first that nobody used since it last passed is closed.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use super::file::OsFile;
use crate::disk::shortage;

/// Neither for files of logs nor for connections: listeners, event loops, lock files, the admin address, and whatever is
/// open for a moment (a directory that is synced, a checkpoint). An eighth of the limit, within these bounds.
const RESERVE_MIN: usize = 32;
const RESERVE_MAX: usize = 128;

/// Files of logs keep at least this part of what is not reserved, however many connections there are.
const FILES_SHARE: usize = 4;

/// Counts descriptors and closes those of idle files.
#[derive(Debug)]
pub struct Descriptors {
    /// `RLIMIT_NOFILE`.
    limit: AtomicUsize,
    files: AtomicUsize,
    connections: AtomicUsize,
    /// How often a file was opened again after its descriptor was closed.
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

/// How many descriptors there are, and for what.
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

    /// Those of this process, which all its brokers share; with the limit as it is now.
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

    /// What files and connections share.
    fn shared(&self) -> usize {
        let limit = self.limit.load(Ordering::Relaxed);
        limit.saturating_sub((limit / 8).clamp(RESERVE_MIN, RESERVE_MAX))
    }

    /// How many connections there may be.
    pub fn connections_max(&self) -> usize {
        self.shared() - self.shared() / FILES_SHARE
    }

    fn files_max(&self) -> usize {
        let connections = self.connections.load(Ordering::Relaxed);
        let rest = self.shared().saturating_sub(connections);
        // A process with hardly any descriptors can still open one file at a time.
        rest.max(self.shared() / FILES_SHARE).max(1)
    }

    /// Room for one more connection, or `None` when there are as many as there may be. Closes files if need be.
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

    /// Opens something that keeps its descriptor, in place of another file if there are as many as there may be.
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

    /// Opens something that is closed again at once. When the kernel has no descriptor, idle files are closed for it.
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

    /// From now on the file's descriptor may be closed for others; returns its place.
    pub(super) fn enter(&self, file: Weak<OsFile>) -> usize {
        let mut clock = self.clock.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = clock.free.pop() {
            clock.places[place] = Some(file);
            return place;
        }
        clock.places.push(Some(file));
        clock.places.len() - 1
    }

    /// The file in `place` is gone, and its descriptor with it.
    pub(super) fn leave(&self, place: usize) {
        let mut clock = self.clock.lock().unwrap_or_else(PoisonError::into_inner);
        clock.vacate(place);
        drop(clock);
        self.files.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn count_reopened(&self) {
        self.reopened.fetch_add(1, Ordering::Relaxed);
    }

    /// Closes the descriptor of a file that nobody used lately; false if there is none that may be closed.
    pub fn close_idle_file(&self) -> bool {
        // A file that was given up meanwhile must not end under the lock: its end takes the lock, too.
        let mut seen = Vec::new();
        let mut clock = self.clock.lock().unwrap_or_else(PoisonError::into_inner);
        let mut was_closed = false;
        // Twice around: the first time everybody may have been used.
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

/// A connection's share; given back when dropped.
#[derive(Debug)]
pub struct ConnectionDescriptor(Arc<Descriptors>);

impl Drop for ConnectionDescriptor {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}
