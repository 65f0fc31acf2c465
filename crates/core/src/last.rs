//! The last different things that happened on a connection, and how often.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Things that are kept for one connection: the doctor advises one change at a time.
const KEPT_MAX: usize = 4;

/// Counts by what was counted; what has not happened for longest makes room.
#[derive(Debug)]
pub struct Last<T> {
    total: AtomicU64,
    /// The latest last.
    last: Mutex<Vec<(T, u64)>>,
}

impl<T> Default for Last<T> {
    fn default() -> Last<T> {
        Last {
            total: AtomicU64::new(0),
            last: Mutex::default(),
        }
    }
}

impl<T: Clone + PartialEq> Last<T> {
    pub(crate) fn see(&self, what: T) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let known = last.iter().position(|(known, _)| *known == what);
        let before = known.map_or(0, |index| last.remove(index).1);
        if last.len() == KEPT_MAX {
            last.remove(0);
        }
        last.push((what, before + 1));
        self.total.fetch_add(1, Ordering::Relaxed);
    }

    /// How often anything happened. Without a lock: asked for each request of a connection that has
    /// moved no records.
    pub fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    pub fn last(&self) -> Vec<(T, u64)> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_things_are_kept_with_their_counts() {
        let here = Last::default();
        assert_eq!(here.total(), 0);
        for name in ["a", "b", "a", "c", "d", "e"] {
            here.see(name);
        }
        assert_eq!(here.last(), [("a", 2), ("c", 1), ("d", 1), ("e", 1)]);
        assert_eq!(here.total(), 6);
    }
}
