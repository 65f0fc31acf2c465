//! The records of a partition as they come from a producer, or as they lie in a segment.

#![no_main]

use libfuzzer_sys::fuzz_target;
use ottla_wire::records::batch::{HEADER_BYTES, TimestampType, batches, seal};
use ottla_wire::records::compression::{Codec, Compression, decompress};
use ottla_wire::records::control::ControlRecord;
use ottla_wire::records::record::Records;
use ottla_wire::records::validate::{ProduceRules, validate};

const LIMIT_BYTES: usize = 1 << 20;

fuzz_target!(|input: &[u8]| {
    // The first byte chooses the rules.
    let Some((&choice, bytes)) = input.split_first() else { return };
    read_all(bytes);
    let rules = rules(choice);
    let _ = validate(bytes, &rules);
    // A checksum that fits lets the input reach the records behind it.
    let mut sealed = bytes.to_vec();
    if sealed.len() < HEADER_BYTES {
        return;
    }
    seal(&mut sealed);
    let Ok(valid) = validate(&sealed, &rules) else { return };
    let stored = [&valid.header_bytes(7, 1)[..], &valid.record_bytes].concat();
    for batch in batches(&stored) {
        let batch = batch.expect("what was valid is a batch");
        batch.verify_checksum().expect("its checksum was carried along");
        if batch.header.compression() == Some(Codec::None) {
            for record in batch.records() {
                record.expect("a valid batch has readable records");
            }
        }
    }
});

fn rules(choice: u8) -> ProduceRules {
    let is = |bit: u8| choice & bit != 0;
    ProduceRules {
        produce_version: if is(0x40) { 6 } else { 12 },
        max_message_bytes: LIMIT_BYTES,
        timestamp_type: if is(0x20) { TimestampType::LogAppendTime } else { TimestampType::CreateTime },
        timestamp_before_max_ms: if is(0x10) { 1_000_000 } else { i64::MAX },
        timestamp_after_max_ms: 3_600_000,
        is_compacted: is(0x08),
        compression: Codec::from_id((choice & 0x07).into()).map(Compression::from),
        uncompressed_limit_bytes: LIMIT_BYTES,
        now_ms: 1_700_000_000_000,
    }
}

fn read_all(bytes: &[u8]) {
    for batch in batches(bytes).map_while(Result::ok) {
        let _ = batch.verify_checksum();
        let Some(codec) = batch.header.compression() else { continue };
        let mut plain = Vec::new();
        if decompress(codec, batch.record_bytes(), LIMIT_BYTES, &mut plain).is_err() {
            continue;
        }
        for record in Records::new(&batch.header, &plain).map_while(Result::ok) {
            assert_eq!(record.headers.iter().count(), record.headers.len());
            let _ = ControlRecord::decode(&record);
        }
    }
}
