//! What each kind of thread of a broker makes the kernel do while a consumer catches up through 2 GiB, beside a producer and a
//! consumer that keeps up: `cargo bench -p ottla-broker --bench page_cache`.
//!
//! To be run where the page cache is smaller, in a memory control group of, say, 256 MiB. Counts, not times: bytes that a thread
//! has made the device read, and page faults for which it waited for the device.

#[path = "../tests/support/mod.rs"]
mod support;

use support::page_cache::{MIB, catch_up};

fn main() {
    let counts = catch_up(2048 * MIB);
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
