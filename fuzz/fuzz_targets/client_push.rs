//! Telemetry payloads of clients, and files for `ottla doctor replay`: pushed twice and diagnosed;
//! memory is measured.

#![no_main]

use libfuzzer_sys::fuzz_target;
use ottla_lab::doctor::history::instance::BYTES_MAX;
use ottla_lab::doctor::history::{Collector, PushedFrom};
use ottla_lab::doctor::{replay, rules};

fuzz_target!(|input: &[u8]| {
    let collector = Collector::default();
    let from = PushedFrom {
        client_id: "c",
        instance_id: "i",
        ..PushedFrom::default()
    };
    for at_ms in [10_000, 20_000] {
        let _ = collector.push(from, input, at_ms);
    }
    assert!(collector.bytes() < BYTES_MAX + 4096);
    let examination = collector.examine(20_000);
    assert!(examination.clients.len() <= 1);
    if let Ok(text) = std::str::from_utf8(input) {
        for snapshot in replay::read(text).into_iter().flatten() {
            let _ = rules::examine(&snapshot);
        }
    }
});
