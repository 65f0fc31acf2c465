//! No event loop reads from the device.

mod support;

use support::page_cache::{MIB, catch_up, check};

#[test]
fn no_event_loop_reads_from_the_device() {
    for durability in ["page-cache", "disk"] {
        let counts = catch_up(32 * MIB, durability);
        check(&counts, 32 * MIB);
    }
}
