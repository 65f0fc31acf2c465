//! What went through a partition, for its topic's metrics.

use std::ops::AddAssign;
use std::sync::atomic::{AtomicU64, Ordering};

/// Numbers of what went through a partition since it was opened, or through several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    pub records_in: u64,
    pub bytes_in: u64,
    pub bytes_out: u64,
    pub requests: Requests,
}

/// Requests that named a partition, and those of them that were answered with an error for it. As
/// in Apache Kafka a request counts once for each partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    pub produce: u64,
    pub produce_failed: u64,
    pub fetch: u64,
    pub fetch_failed: u64,
}

impl AddAssign for Traffic {
    fn add_assign(&mut self, other: Traffic) {
        self.records_in += other.records_in;
        self.bytes_in += other.bytes_in;
        self.bytes_out += other.bytes_out;
        self.requests += other.requests;
    }
}

impl AddAssign for Requests {
    fn add_assign(&mut self, other: Requests) {
        self.produce += other.produce;
        self.produce_failed += other.produce_failed;
        self.fetch += other.fetch;
        self.fetch_failed += other.fetch_failed;
    }
}

/// Counts that need no lock: one addition a request and partition.
#[derive(Debug, Default)]
pub(super) struct Counters {
    bytes_out: AtomicU64,
    produce: AtomicU64,
    produce_failed: AtomicU64,
    fetch: AtomicU64,
    fetch_failed: AtomicU64,
}

impl Counters {
    pub fn produced(&self) {
        self.produce.fetch_add(1, Ordering::Relaxed);
    }

    pub fn produce_failed(&self) {
        self.produce_failed.fetch_add(1, Ordering::Relaxed);
    }

    pub fn fetched(&self, bytes: u64, has_failed: bool) {
        self.fetch.fetch_add(1, Ordering::Relaxed);
        if bytes > 0 {
            self.bytes_out.fetch_add(bytes, Ordering::Relaxed);
        }
        if has_failed {
            self.fetch_failed.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub fn bytes_out(&self) -> u64 {
        self.bytes_out.load(Ordering::Relaxed)
    }

    pub fn requests(&self) -> Requests {
        Requests {
            produce: self.produce.load(Ordering::Relaxed),
            produce_failed: self.produce_failed.load(Ordering::Relaxed),
            fetch: self.fetch.load(Ordering::Relaxed),
            fetch_failed: self.fetch_failed.load(Ordering::Relaxed),
        }
    }
}
