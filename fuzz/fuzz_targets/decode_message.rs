//! Any message in any version: requests, responses, metadata records and coordinator records. A
//! decoded message must survive being encoded and decoded again.

#![no_main]

#[path = "../../crates/wire/tests/golden/sample.rs"]
#[allow(dead_code, reason = "fuzzing needs the table of messages alone")]
mod sample;
#[path = "../../crates/wire/tests/golden/samples.rs"]
mod samples;

use libfuzzer_sys::fuzz_target;
use samples::MESSAGES;

fuzz_target!(|input: &[u8]| {
    let [message, version, body @ ..] = input else { return };
    let entry = &MESSAGES[usize::from(*message) % MESSAGES.len()];
    let _ = (entry.decode)(body, entry.min_version + i16::from(*version));
    let _ = ottla_wire::metadata_records::decode_frame(body);
    let _ = ottla_wire::coordinator_records::GroupRecordKey::decode(body);
});
