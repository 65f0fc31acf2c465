//! A slot for a descriptor that may be closed while it is not in use.

use std::os::fd::{AsFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};

/// A flag in `Slot::state`; the other bits count the users.
const OPEN: u32 = 1 << 31;

/// A descriptor or none.
///
/// - `get` is two atomic operations on one cache line, so that reads and writes pay next to nothing
///   when a descriptor is present.
/// - `put` and `take` are called under the file's lock.
#[derive(Debug, Default)]
pub(super) struct Slot {
    /// The number of users, and `OPEN` if there is a descriptor. A `get` that finds none is counted
    /// for a moment.
    state: AtomicU32,
    fd: AtomicI32,
    /// Set by a use; cleared when the clock's hand passes.
    is_recent: AtomicBool,
}

impl Slot {
    pub fn get(&self) -> Option<Descriptor<'_>> {
        // Acquire: a thread that sees OPEN also sees the number stored with it.
        let before = self.state.fetch_add(1, Ordering::Acquire);
        let descriptor = Descriptor { slot: self };
        (before & OPEN != 0).then_some(descriptor)
    }

    /// Like `get`, and marks the descriptor as recently used, so that it stays open longer.
    pub fn get_again(&self) -> Option<Descriptor<'_>> {
        let descriptor = self.get()?;
        if !self.is_recent.load(Ordering::Relaxed) {
            self.is_recent.store(true, Ordering::Relaxed);
        }
        Some(descriptor)
    }

    pub fn put(&self, fd: OwnedFd) {
        self.fd.store(fd.into_raw_fd(), Ordering::Relaxed);
        let before = self.state.fetch_or(OPEN, Ordering::Release);
        assert!(before & OPEN == 0, "a slot has one descriptor");
    }

    /// Takes the descriptor out, unless it is in use. The caller sees what its users stored before
    /// they released it.
    #[expect(
        unsafe_code,
        reason = "a number that was taken out of an OwnedFd becomes one again"
    )]
    pub fn take(&self) -> Option<OwnedFd> {
        let emptied = self
            .state
            .compare_exchange(OPEN, 0, Ordering::AcqRel, Ordering::Relaxed);
        emptied.ok()?;
        // SAFETY: `put` stored the number of a descriptor that it owned. The exchange above
        // succeeds once per `put`, and only while no `Descriptor` borrows it.
        Some(unsafe { OwnedFd::from_raw_fd(self.fd.load(Ordering::Relaxed)) })
    }

    /// Returns whether it was used since the last call.
    pub fn was_used(&self) -> bool {
        self.is_recent.swap(false, Ordering::Relaxed)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        drop(self.take());
    }
}

/// An open descriptor, which stays open until this is dropped.
#[derive(Debug)]
pub struct Descriptor<'a> {
    slot: &'a Slot,
}

impl Descriptor<'_> {
    pub(super) fn number(&self) -> RawFd {
        self.slot.fd.load(Ordering::Relaxed)
    }
}

impl AsFd for Descriptor<'_> {
    #[expect(unsafe_code, reason = "the descriptor is kept as a number")]
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: while `self` is counted in the slot's state, `take` fails and the descriptor is
        // not closed.
        unsafe { BorrowedFd::borrow_raw(self.number()) }
    }
}

impl Drop for Descriptor<'_> {
    fn drop(&mut self) {
        // Release: the thread that takes the descriptor next sees what was stored while it was in
        // use.
        self.slot.state.fetch_sub(1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::super::TemporaryDirectory;
    use super::*;

    fn slot() -> Slot {
        let slot = Slot::default();
        slot.put(File::open("/dev/null").expect("it is there").into());
        slot
    }

    #[test]
    fn a_descriptor_in_use_cannot_be_taken() {
        let slot = slot();
        let (first, second) = (slot.get().expect("open"), slot.get().expect("open"));
        assert!(slot.take().is_none());
        drop(first);
        assert!(slot.take().is_none());
        drop(second);
        assert!(slot.take().is_some());
        assert!(slot.get().is_none() && slot.take().is_none());
    }

    #[test]
    fn a_get_that_found_nothing_does_not_keep_a_later_descriptor_open() {
        let slot = Slot::default();
        assert!(slot.get().is_none());
        slot.put(File::open("/dev/null").expect("it is there").into());
        assert!(slot.take().is_some());
    }

    #[test]
    fn only_a_second_use_is_remembered() {
        let slot = slot();
        drop(slot.get());
        assert!(!slot.was_used());
        drop(slot.get_again());
        assert!(slot.was_used() && !slot.was_used());
    }

    #[test]
    fn a_descriptor_is_closed_with_its_slot() {
        let directory = TemporaryDirectory::new("slot").expect("created");
        let path = directory.path().join("in-the-slot");
        let is_open = || {
            let listed = std::fs::read_dir("/proc/self/fd").expect("Linux");
            listed
                .flatten()
                .filter_map(|entry| std::fs::read_link(entry.path()).ok())
                .any(|target| target.ends_with("in-the-slot"))
        };
        let slot = Slot::default();
        slot.put(File::create(&path).expect("created").into());
        assert!(is_open());
        drop(slot);
        assert!(!is_open());
    }
}
