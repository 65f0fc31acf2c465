//! The name of a partition's directory: after a deletion a new topic may have it.
//!
//! Jobs of a log find its files by name. One that ran after the deletion would write records of the
//! old topic into the new one's directory, or rename the new one's files.

use std::sync::{RwLock, RwLockReadGuard};

/// Whether the name is still this partition's.
#[derive(Debug)]
pub(super) struct DirectoryName(RwLock<bool>);

/// While this is held, the name stays the partition's.
#[derive(Debug)]
pub(crate) struct HeldName<'a>(#[expect(dead_code, reason = "held, not read")] RwLockReadGuard<'a, bool>);

impl Default for DirectoryName {
    fn default() -> DirectoryName {
        DirectoryName(RwLock::new(true))
    }
}

impl DirectoryName {
    /// `None` once the name is given up, or is about to be. Never waits.
    pub fn hold(&self) -> Option<HeldName<'_>> {
        let is_ours = self.0.try_read().ok()?;
        is_ours.then_some(HeldName(is_ours))
    }

    /// Waits until nothing holds the name.
    pub fn give_up(&self) {
        // Nothing panics under the lock that leaves a half changed value.
        *self.0.write().unwrap_or_else(std::sync::PoisonError::into_inner) = false;
    }
}
