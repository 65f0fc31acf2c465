//! A frame from a connection: a header, then the body of the header's API and version.

#![no_main]

#[path = "../../crates/wire/tests/golden/sample.rs"]
#[allow(dead_code, reason = "fuzzing needs the table of messages alone")]
mod sample;
#[path = "../../crates/wire/tests/golden/samples.rs"]
mod samples;

use libfuzzer_sys::fuzz_target;
use ottla_wire::frame::RequestHeader;
use ottla_wire::primitives::Reader;

fuzz_target!(|frame: &[u8]| {
    let mut reader = Reader::new(frame);
    let Ok(header) = RequestHeader::decode(&mut reader) else { return };
    let message = samples::MESSAGES
        .iter()
        .find(|entry| entry.name.strip_suffix("Request") == Some(header.api_key.name()))
        .expect("every API has a request");
    let _ = (message.decode)(reader.rest(), header.api_version);
});
