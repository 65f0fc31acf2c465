//! The records of a partition, from a producer or from a segment.
//!
//! Batches that pass the validation of a produce request can be read completely by a consumer: as
//! many records as announced, numbered from 0, without trailing bytes.

#![no_main]

use libfuzzer_sys::fuzz_target;
use ottla_wire::records::batch::{Batch, BatchHeader, HEADER_BYTES, LENGTH_PREFIX_BYTES, TimestampType, batches, seal};
use ottla_wire::records::compression::unfold::UnfoldingBudget;
use ottla_wire::records::compression::{Codec, Compression, compress, decompress};
use ottla_wire::records::control::ControlRecord;
use ottla_wire::records::record::Records;
use ottla_wire::records::validate::{ProduceRules, validate};

const LIMIT_BYTES: usize = 1 << 20;

fuzz_target!(|input: &[u8]| {
    // The first two bytes choose the rules, and how the rest is modified before validation.
    let Some((&[choice, form], bytes)) = input.split_first_chunk() else { return };
    read_all(bytes);
    let rules = rules(choice);
    check(bytes, &rules);
    if bytes.len() < HEADER_BYTES {
        return;
    }
    // A correct checksum lets the input reach the records; a correct length and counts let it reach
    // more of them.
    let mut sealed = bytes.to_vec();
    if form & 0x10 != 0 {
        sealed = with_sound_header(&sealed, None);
    }
    // The input as plain records, compressed here: so the fuzzer need not discover each codec's
    // framing.
    if form & 0x20 != 0 {
        sealed = with_sound_header(&sealed, Codec::from_id((form & 0x07).into()));
    }
    seal(&mut sealed);
    check(&sealed, &rules);
});

fn with_sound_header(bytes: &[u8], codec: Option<Codec>) -> Vec<u8> {
    let (header, records) = bytes.split_first_chunk::<HEADER_BYTES>().expect("it is longer");
    let mut header = BatchHeader::decode(header);
    let mut payload = records.to_vec();
    if let Some(codec) = codec {
        payload.clear();
        compress(codec.into(), records, &mut payload);
        header.attributes = header.attributes & !0x07 | codec.id();
    }
    header.base_offset = 0;
    header.magic = 2;
    header.batch_length = (HEADER_BYTES - LENGTH_PREFIX_BYTES + payload.len()) as i32;
    header.last_offset_delta = header.record_count.wrapping_sub(1);
    [&header.encode()[..], &payload].concat()
}

fn check(bytes: &[u8], rules: &ProduceRules) {
    let Ok(valid) = validate(bytes, rules, &mut UnfoldingBudget::new(LIMIT_BYTES)) else { return };
    let stored = [&valid.header_bytes(7, 1)[..], &valid.record_bytes].concat();
    let batch = Batch::parse(&stored).expect("what was valid is a batch");
    assert_eq!(batch.bytes.len(), stored.len(), "and nothing else");
    batch.verify_checksum().expect("its checksum was carried along");
    let codec = batch.header.compression().expect("a known codec");
    let mut plain = Vec::new();
    decompress(codec, batch.record_bytes(), LIMIT_BYTES, &mut plain).expect("a valid batch unfolds");
    let mut count = 0;
    for record in Records::new(&batch.header, &plain) {
        let record = record.expect("a valid batch has readable records");
        assert_eq!(record.offset, 7 + i64::from(count));
        count += 1;
    }
    assert_eq!(count, batch.header.record_count);
    assert_eq!(count, batch.header.last_offset_delta + 1);
}

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
