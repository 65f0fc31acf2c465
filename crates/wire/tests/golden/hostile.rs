//! Invalid bytes: every decoder refuses them, in bounded memory and without a panic.

use ottla_wire::messages::list_groups::ListGroupsRequest;
use ottla_wire::messages::metadata::MetadataRequest;
use ottla_wire::primitives::{DecodeError, Reader, put_count, put_uvarint};

use super::sample::Kind;
use super::samples::MESSAGES;
use super::{GoldenSample, golden_samples};

/// Passes a body to every decoder in every version; only a panic or an excessive allocation fails.
fn decode_everywhere(body: &[u8]) {
    for entry in MESSAGES {
        for version in entry.min_version..=entry.max_version {
            let _ = (entry.decode)(body, version);
        }
    }
}

#[test]
fn a_message_cut_anywhere_is_refused() {
    for GoldenSample {
        entry,
        version,
        kind,
        body,
    } in golden_samples()
    {
        for end in 0..body.len() {
            let outcome = (entry.decode)(&body[..end], version);
            assert!(
                outcome.is_err(),
                "{} version {version} {kind:?} cut at {end}",
                entry.name
            );
        }
    }
}

#[test]
fn a_message_with_any_byte_replaced_is_read_or_refused() {
    for GoldenSample {
        entry,
        version,
        kind,
        body,
    } in golden_samples()
    {
        if kind != Kind::Populated {
            continue;
        }
        let mut damaged = body.clone();
        for index in 0..body.len() {
            for byte in [0, 0x7f, 0x80, 0xff] {
                damaged[index] = byte;
                let _ = (entry.decode)(&damaged, version);
            }
            damaged[index] = body[index];
        }
    }
}

#[test]
fn five_bytes_with_a_huge_count_allocate_nothing() {
    decode_everywhere(&[0x7f, 0xff, 0xff, 0xff, 0]);
    decode_everywhere(&[0x80, 0, 0, 0, 0]);
    decode_everywhere(&[0xff, 0xff, 0xff, 0xff, 0x07]);
    decode_everywhere(&[0xff, 0xff, 0xff, 0xff, 0x0f]);
    decode_everywhere(&[0xff, 0xff, 0xff, 0xff, 0xff]);
    let count_in =
        |body: &[u8], version| MetadataRequest::decode(&mut Reader::new(body), version).map(|_| ());
    assert_eq!(
        count_in(&[0x7f, 0xff, 0xff, 0xff, 0], 1),
        Err(DecodeError::CountTooLarge {
            count: 0x7fff_ffff,
            remaining: 1
        })
    );
    assert_eq!(
        count_in(&[0x80, 0, 0, 0, 0], 1),
        Err(DecodeError::NegativeLength {
            length: i64::from(i32::MIN)
        })
    );
    assert_eq!(
        count_in(&[0xff, 0xff, 0xff, 0xff, 0x0f], 9),
        Err(DecodeError::CountTooLarge {
            count: 0xffff_fffe,
            remaining: 0
        })
    );
}

#[test]
fn a_frame_of_the_smallest_elements_does_not_multiply_in_memory() {
    // An empty string is 1 byte in the frame and 16 in memory: 8 MiB would become 128, the budget
    // is 16 + 4 * 8.
    let count = 8 << 20;
    let mut body = Vec::new();
    put_count(&mut body, count, true);
    body.resize(body.len() + count, 1);
    let outcome = ListGroupsRequest::decode(&mut Reader::new(&body), 5);
    assert!(
        matches!(outcome, Err(DecodeError::MemoryBudget { .. })),
        "{:?}",
        outcome.map(|_| ())
    );
}

#[test]
fn a_million_unknown_tagged_fields_are_skipped_without_allocation() {
    // ListGroups version 5: two empty filters, then a million unknown tagged fields of no bytes.
    let count: u32 = 1_000_000;
    let mut body = vec![1, 1];
    put_uvarint(&mut body, count);
    for _ in 0..count {
        put_uvarint(&mut body, 99);
        body.push(0);
    }
    let request = ListGroupsRequest::decode(&mut Reader::new(&body), 5);
    assert_eq!(request, Ok(ListGroupsRequest::default()));
}

#[test]
fn random_bytes_are_read_or_refused() {
    let mut state: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut body = [0; 96];
    for round in 0..40 {
        for byte in &mut body {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            // Small bytes are plausible lengths, presence markers and tags, and reach deeper code.
            *byte = if state & 3 == 0 {
                (state >> 32) as u8
            } else {
                (state >> 32) as u8 & 3
            };
        }
        decode_everywhere(&body[..round * 2 + 16]);
    }
}
