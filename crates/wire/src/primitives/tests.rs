//! Integers, strings and arrays at their limits.

use super::*;

fn check_uvarint(value: u32, expected: &[u8]) {
    let mut buffer = Vec::new();
    put_uvarint(&mut buffer, value);
    assert_eq!(buffer, expected);
    let mut reader = Reader::new(&buffer);
    assert_eq!(reader.uvarint(), Ok(value));
    assert_eq!(reader.finish(), Ok(()));
}

#[test]
fn unsigned_varints_take_seven_bits_a_byte() {
    check_uvarint(0, &[0]);
    check_uvarint(127, &[0x7f]);
    check_uvarint(128, &[0x80, 1]);
    check_uvarint(300, &[0xac, 2]);
    check_uvarint(u32::MAX, &[0xff, 0xff, 0xff, 0xff, 0x0f]);
}

#[test]
fn a_varint_that_does_not_fit_or_does_not_end_is_refused() {
    assert_eq!(
        Reader::new(&[0xff, 0xff, 0xff, 0xff, 0x10]).uvarint(),
        Err(DecodeError::VarintTooLong)
    );
    assert_eq!(
        Reader::new(&[0x80, 0x80, 0x80, 0x80, 0x80, 0]).uvarint(),
        Err(DecodeError::VarintTooLong)
    );
    assert_eq!(
        Reader::new(&[0x80, 0x80]).uvarint(),
        Err(DecodeError::Truncated {
            needed: 3,
            remaining: 2
        })
    );
    assert_eq!(
        Reader::new(&[0xff; 10]).uvarlong(),
        Err(DecodeError::VarintTooLong)
    );
    assert!(Reader::new(&[]).uvarint().is_err());
}

#[test]
fn zigzag_varints_keep_small_negative_numbers_small() {
    for (value, expected) in [
        (0, vec![0]),
        (-1, vec![1]),
        (1, vec![2]),
        (-64, vec![0x7f]),
        (64, vec![0x80, 1]),
    ] {
        let mut buffer = Vec::new();
        put_varint(&mut buffer, value);
        assert_eq!(buffer, expected);
        assert_eq!(Reader::new(&buffer).varint(), Ok(value));
    }
    for value in [i32::MIN, i32::MAX] {
        let mut buffer = Vec::new();
        put_varint(&mut buffer, value);
        assert_eq!(Reader::new(&buffer).varint(), Ok(value));
    }
    for value in [i64::MIN, -1, 0, i64::MAX] {
        let mut buffer = Vec::new();
        put_varlong(&mut buffer, value);
        assert_eq!(Reader::new(&buffer).varlong(), Ok(value));
    }
}

fn check_uuid(bytes: [u8; 16], text: &str) {
    assert_eq!(Uuid(bytes).to_string(), text);
    assert_eq!(text.parse(), Ok(Uuid(bytes)));
}

#[test]
fn a_uuid_reads_as_kafka_writes_it() {
    check_uuid([0; 16], "AAAAAAAAAAAAAAAAAAAAAA");
    check_uuid(Uuid::METADATA_TOPIC_ID.0, "AAAAAAAAAAAAAAAAAAAAAQ");
    check_uuid([0xff; 16], "_____________________w");
    check_uuid(
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
        "AAECAwQFBgcICQoLDA0ODw",
    );
    assert_eq!("too short".parse::<Uuid>(), Err(ParseUuidError));
    assert_eq!("AAAAAAAAAAAAAAAAAAAA+/".parse::<Uuid>(), Err(ParseUuidError));
}

#[test]
fn strings_have_a_plain_and_a_compact_form() {
    for (flexible, expected) in [(false, &[0, 2, b'h', b'i'][..]), (true, &[3, b'h', b'i'])] {
        let mut buffer = Vec::new();
        put_string(&mut buffer, "hi", flexible);
        assert_eq!(buffer, expected);
        assert_eq!(Reader::new(&buffer).string(flexible), Ok("hi"));
    }
    for (flexible, expected) in [(false, &[0xff, 0xff][..]), (true, &[0])] {
        let mut buffer = Vec::new();
        put_nullable_string(&mut buffer, None, flexible);
        assert_eq!(buffer, expected);
        assert_eq!(Reader::new(&buffer).nullable_string(flexible), Ok(None));
        assert_eq!(
            Reader::new(&buffer).string(flexible),
            Err(DecodeError::UnexpectedNull)
        );
    }
}

#[test]
fn a_string_that_is_not_utf8_is_refused() {
    assert_eq!(
        Reader::new(&[0, 3, b'a', 0xff, b'b']).string(false),
        Err(DecodeError::NotUtf8 { valid_bytes: 1 })
    );
}

#[test]
fn lengths_below_minus_one_are_refused() {
    assert_eq!(
        Reader::new(&[0xff, 0xfe]).string(false),
        Err(DecodeError::NegativeLength { length: -2 })
    );
    assert_eq!(
        Reader::new(&i32::MIN.to_be_bytes()).values(false, Reader::i32),
        Err(DecodeError::NegativeLength {
            length: i64::from(i32::MIN)
        })
    );
}

#[test]
fn a_count_beyond_the_frame_allocates_nothing() {
    let huge = [0x7f, 0xff, 0xff, 0xff, 0];
    assert_eq!(
        Reader::new(&huge).values(false, Reader::i32),
        Err(DecodeError::CountTooLarge {
            count: 0x7fff_ffff,
            remaining: 1
        })
    );
    assert_eq!(
        Reader::new(&[0xff, 0xff, 0xff, 0xff, 0x0f]).strings(true),
        Err(DecodeError::CountTooLarge {
            count: 0xffff_fffe,
            remaining: 0
        })
    );
}

#[test]
fn many_small_elements_hit_the_memory_budget() {
    // 2,000 empty strings: 2,000 bytes on the wire, 32,000 in memory.
    let mut frame = Vec::new();
    put_count(&mut frame, 2_000, true);
    frame.resize(frame.len() + 2_000, 1);
    assert_eq!(
        Reader::new(&frame).strings(true).map(|strings| strings.len()),
        Ok(2_000)
    );
    assert_eq!(
        Reader::with_memory_budget(&frame, 31_999).strings(true),
        Err(DecodeError::MemoryBudget {
            needed: 32_000,
            left: 31_999
        })
    );
}

#[test]
fn the_memory_budget_covers_all_arrays_of_a_frame() {
    let mut frame = Vec::new();
    for _ in 0..3 {
        put_count(&mut frame, 1, false);
        put_i64(&mut frame, 7);
    }
    let mut reader = Reader::with_memory_budget(&frame, 16);
    assert_eq!(reader.values(false, Reader::i64), Ok(vec![7]));
    assert_eq!(reader.values(false, Reader::i64), Ok(vec![7]));
    assert_eq!(
        reader.values(false, Reader::i64),
        Err(DecodeError::MemoryBudget { needed: 8, left: 0 })
    );
}

#[test]
fn unknown_tagged_fields_are_skipped() {
    // Two fields: tag 7 with 3 bytes, tag 300 with none; then a byte of the caller.
    let mut reader = Reader::new(&[2, 7, 3, 1, 2, 3, 0xac, 2, 0, 42]);
    assert_eq!(reader.skip_tagged_fields(), Ok(()));
    assert_eq!(reader.u8(), Ok(42));
}

#[test]
fn tagged_fields_beyond_the_frame_are_refused() {
    assert_eq!(
        Reader::new(&[0xff, 0xff, 0xff, 0xff, 0x0f, 0, 0]).skip_tagged_fields(),
        Err(DecodeError::CountTooLarge {
            count: u32::MAX.into(),
            remaining: 2
        })
    );
    assert_eq!(
        Reader::new(&[1, 0, 9, 1]).skip_tagged_fields(),
        Err(DecodeError::Truncated {
            needed: 9,
            remaining: 1
        })
    );
}

#[test]
fn the_size_of_a_tagged_field_goes_in_front_of_its_value() {
    for value_bytes in [0, 1, 127, 128, 20_000] {
        let mut buffer = vec![9, 9];
        buffer.resize(2 + value_bytes, 5);
        insert_tagged_size(&mut buffer, 2);
        let mut expected = vec![9, 9];
        put_uvarint(&mut expected, value_bytes as u32);
        expected.resize(expected.len() + value_bytes, 5);
        assert_eq!(buffer, expected);
    }
}

#[test]
fn messages_are_cut_to_the_limit_and_omitted_in_a_very_long_answer() {
    let long = "é".repeat(STRING_BYTES_MAX);
    for flexible in [false, true] {
        let mut buffer = Vec::new();
        put_nullable_message(&mut buffer, Some(&long), flexible);
        let read = Reader::new(&buffer).string(flexible).expect("it fits").to_owned();
        assert!(read.len() <= crate::text::MESSAGE_BYTES_MAX && read.contains('…'));
        while buffer.len() < 16 << 20 {
            put_nullable_message(&mut buffer, Some(&long), flexible);
        }
        let end = buffer.len();
        put_nullable_message(&mut buffer, Some("refused"), flexible);
        assert_eq!(Reader::new(&buffer[end..]).nullable_string(flexible), Ok(None));
    }
}
