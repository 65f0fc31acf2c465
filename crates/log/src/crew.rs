//! Hands for work on many logs at once. This crate starts no thread: its caller may have some.

/// Runs a piece of work for many things, side by side where there are threads for it.
pub trait Crew: Send + Sync {
    /// Calls `work` once for every number below `count`, in no order, and returns when all calls have returned.
    fn for_each(&self, count: usize, work: &(dyn Fn(usize) + Sync));
}

/// One after the other, in order, by the caller.
#[derive(Clone, Copy, Debug)]
pub struct Alone;

impl Crew for Alone {
    fn for_each(&self, count: usize, work: &(dyn Fn(usize) + Sync)) {
        (0..count).for_each(work);
    }
}
