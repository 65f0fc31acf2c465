//! Watches the files of key stores and trust stores, and has their listeners read them again when
//! they have changed.
//!
//! They are looked at in intervals: a notification of the kernel is about one file, and misses an
//! exchange of the directory above it, by which Kubernetes replaces mounted secrets.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use tracing::{error, info};

use super::file_stamp::FileStamp;
use super::listener::TlsListener;

/// How often the files are looked at. A change takes effect after two looks that see the same.
const LOOK_INTERVAL: Duration = Duration::from_secs(10);

/// After this many looks, a minute, files that could not be used are tried again: what kept them
/// from being read may have nothing to do with them, as a lack of descriptors has.
const LOOKS_UNTIL_RETRY: u32 = 6;

/// After this many looks, a day, the log names certificates that expire soon.
const LOOKS_PER_DAY: u32 = 24 * 60 * 6;

/// The files of one listener.
#[derive(Debug)]
struct Watch {
    listener: Arc<TlsListener>,
    changes: Changes,
}

/// Decides when files that change are read: a file may be seen half written, and two files one
/// after the other.
#[derive(Debug)]
struct Changes {
    /// The stamps at the last look.
    seen: Vec<FileStamp>,
    /// Looks since the last attempt that failed.
    failing: u32,
}

impl Changes {
    /// Whether to read the files now.
    ///
    /// - `tried`: the stamps at the last attempt to read.
    /// - `is_failing`: that attempt failed.
    fn look(&mut self, now: Vec<FileStamp>, tried: &[FileStamp], is_failing: bool) -> bool {
        let is_stable = now == self.seen;
        let is_new = now != tried;
        self.seen = now;
        self.failing = if is_failing { self.failing + 1 } else { 0 };
        let is_due = self.failing >= LOOKS_UNTIL_RETRY;
        let is_read = is_stable && (is_new || is_due);
        if is_read {
            self.failing = 0;
        }
        is_read
    }
}

/// The thread that looks. Dropping it ends the thread.
#[derive(Debug)]
pub struct Reloader {
    stop: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Reloader {
    pub fn start(listeners: &[Arc<TlsListener>]) -> std::io::Result<Reloader> {
        let watch = |listener: &Arc<TlsListener>| Watch {
            changes: Changes {
                seen: listener.stamps().1,
                failing: 0,
            },
            listener: listener.clone(),
        };
        let mut watches: Vec<Watch> = listeners.iter().map(watch).collect();
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let stopped = stop.clone();
        let thread = std::thread::Builder::new()
            .name("ottla-tls-files".to_owned())
            .spawn(move || {
                let mut looks = 0u32;
                while !wait(&stopped) {
                    watches.iter_mut().for_each(look);
                    looks = looks.wrapping_add(1);
                    if looks.is_multiple_of(LOOKS_PER_DAY) {
                        watches.iter().for_each(|watch| watch.listener.warn_of_expiry());
                    }
                }
            })?;
        Ok(Reloader {
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for Reloader {
    fn drop(&mut self) {
        *self.stop.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.stop.1.notify_all();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            error!("the thread that watches the files of TLS panicked");
        }
    }
}

/// Waits one interval; returns whether to stop.
fn wait((stop, woken): &(Mutex<bool>, Condvar)) -> bool {
    let stop = stop.lock().unwrap_or_else(PoisonError::into_inner);
    let waited = woken.wait_timeout_while(stop, LOOK_INTERVAL, |stop| !*stop);
    *waited.unwrap_or_else(PoisonError::into_inner).0
}

fn look(watch: &mut Watch) {
    let (now, tried) = watch.listener.stamps();
    let is_failing = watch.listener.is_failing();
    if watch.changes.look(now, &tried, is_failing) {
        read_again(&watch.listener);
    }
}

/// Has the listener read its files, and says in the log how that ended.
pub(super) fn read_again(listener: &TlsListener) {
    let name = listener.name();
    match listener.reload() {
        Ok(()) => info!(listener = %name, "the files of TLS were read again"),
        Err(error) => error!(
            listener = %name, %error,
            "the files of TLS cannot be used; the listener keeps what it had"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::file_stamp::Stamp;
    use super::*;

    #[test]
    fn files_are_read_once_they_have_changed_and_rest() {
        let at = |size: u64| vec![Some(Stamp::of_bytes(size)), None];
        let mut changes = Changes {
            seen: at(1),
            failing: 0,
        };
        let mut tried = at(1);
        let mut look = |now: Vec<FileStamp>| {
            let is_read = changes.look(now.clone(), &tried, false);
            if is_read {
                tried = now;
            }
            is_read
        };
        let looks = [1, 2, 3, 3, 3, 1, 1, 1].map(|size| look(at(size)));
        assert_eq!(looks, [false, false, false, true, false, false, true, false]);
        // Changed and changed back between two looks at a file half written.
        let looks = [2, 1, 1].map(|size| look(at(size)));
        assert_eq!(looks, [false; 3]);
        assert!(!look(vec![None, None]));
        assert!(look(vec![None, None]), "a missing file is worth an error");
    }
    /// The process had no descriptor when a new certificate came.
    #[test]
    fn files_that_could_not_be_read_are_tried_again_although_they_do_not_change() {
        let at = || vec![Some(Stamp::of_bytes(2))];
        let mut changes = Changes {
            seen: at(),
            failing: 0,
        };
        let mut looks = |is_failing| (0..13).map(|_| changes.look(at(), &at(), is_failing)).collect();
        let read: Vec<bool> = looks(true);
        let times: Vec<usize> = (0..13).filter(|look| read[*look]).collect();
        assert_eq!(times, [5, 11]);
        let read: Vec<bool> = looks(false);
        assert_eq!(read, [false; 13]);
    }
}
