//! Page cache misses per kind of broker thread while a consumer catches up through 2 GiB, beside a
//! producer and a consumer that keeps up: `cargo bench -p ottla-broker --bench page_cache`.
//!
//! Run it where the page cache is smaller, say in a memory control group of 256 MiB. It counts
//! rather than times: bytes that a thread made the device read, and page faults for which it waited
//! for the device (major faults).

#[path = "../tests/support/mod.rs"]
mod support;

use support::page_cache::{MIB, catch_up};

fn main() {
    let counts = catch_up(2048 * MIB, "page-cache");
    println!(
        "{:<16} {:>7} {:>12} {:>12}",
        "threads", "number", "KiB read", "major faults"
    );
    for (name, counts) in &counts {
        let kib = counts.read_bytes / 1024;
        println!(
            "{name:<16} {:>7} {kib:>12} {:>12}",
            counts.threads, counts.major_faults
        );
    }
}
