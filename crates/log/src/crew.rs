//! Threads for work on many logs at once. This crate starts no thread: the caller provides them.

/// Runs a piece of work for many items, concurrently if there are threads for it.
pub trait Crew: Send + Sync {
    /// Calls `work` once for every number below `count`, in no order, and returns when all calls
    /// have returned.
    fn for_each(&self, count: usize, work: &(dyn Fn(usize) + Sync));
}

/// Runs them one after the other, in order, on the calling thread.
#[derive(Clone, Copy, Debug)]
pub struct Alone;

impl Crew for Alone {
    fn for_each(&self, count: usize, work: &(dyn Fn(usize) + Sync)) {
        (0..count).for_each(work);
    }
}
