//! Responses that no correct broker sends.

use ottla_wire::api_key::ApiKey;
use ottla_wire::primitives::{put_i16, put_i32};
use ottla_wire::records::batch::{HEADER_BYTES, seal};
use ottla_wire::records::builder::BatchOptions;
use ottla_wire::records::compression::{Codec, compress};

use super::world::{World, batch, batch_with, nothing, with_records};
use crate::error::Error;

fn assert_corrupt(error: &Error, at_partition: i32, at_offset: i64) {
    match error {
        Error::CorruptBatch {
            topic,
            partition,
            offset,
            ..
        } => assert_eq!((&**topic, *partition, *offset), ("t", at_partition, at_offset)),
        other => panic!("{other}"),
    }
}

#[test]
fn a_corrupt_batch_stops_its_partition_until_a_seek_and_no_other() {
    let mut world = World::assigned(2, 0, &[("max.poll.records", "10")]);
    let mut damaged = [batch(0..5), batch(5..10), batch(10..15)].concat();
    let middle = batch(0..5).len() + HEADER_BYTES + 3;
    damaged[middle] ^= 1;
    let healthy = [batch(0..8), batch(8..16)];
    let second = world.second_fetch(vec![with_records(0, &damaged), with_records(1, &healthy[0])]);
    // Records before the damage are returned first.
    assert_eq!(world.poll().unwrap().len(), 5);
    assert_corrupt(&world.poll().unwrap_err(), 0, 5);
    assert_eq!(world.poll().unwrap().len(), 8);
    assert_corrupt(&world.poll().unwrap_err(), 0, 5);
    assert_eq!(world.position(0), Some(5));
    world.answer_fetch(&second, vec![with_records(1, &healthy[1])]);
    assert_corrupt(&world.poll().unwrap_err(), 0, 5);
    assert_eq!(world.poll().unwrap().len(), 8);
    assert_corrupt(&world.poll().unwrap_err(), 0, 5);

    let third = world.expect(ApiKey::Fetch);
    assert_eq!(third.fetch().forgotten_topics_data[0].partitions, [0]);
    world.seek(0, 10);
    assert_eq!(world.poll().unwrap(), []);
    world.answer_fetch(&third, vec![]);
    let fourth = world.expect(ApiKey::Fetch);
    assert_eq!(fourth.asked(), [(0, 10)]);
    let after = batch(10..15);
    world.answer_fetch(&fourth, vec![with_records(0, &after)]);
    assert_eq!(world.poll().unwrap().first(), Some(&(0, 10)));
}

#[test]
fn records_behind_a_corrupt_batch_are_not_returned() {
    let mut world = World::assigned(1, 0, &[]);
    let mut damaged = batch(0..5);
    damaged[HEADER_BYTES + 3] ^= 1;
    let behind = [batch(5..10), batch(10..15)];
    let second = world.second_fetch(vec![with_records(0, &damaged)]);
    world.answer_fetch(&second, vec![with_records(0, &behind[0])]);
    for _ in 0..3 {
        assert_corrupt(&world.poll().unwrap_err(), 0, 0);
    }
    world.advance(10_000);
    world.expect_nothing();
    world.seek(0, 5);
    world.run();
    let third = world.expect(ApiKey::Fetch);
    assert_eq!(third.asked(), [(0, 5)]);
    world.answer_fetch(&third, vec![with_records(0, &behind[0])]);
    assert_eq!(world.poll().unwrap().len(), 5);
}

#[test]
fn without_check_crcs_damage_is_not_detected() {
    let mut world = World::assigned(1, 0, &[("check.crcs", "false")]);
    let mut damaged = batch(0..5);
    // Within a value: the last byte of the last record is its header count.
    let value = damaged.len() - 2;
    damaged[value] ^= 1;
    let seen = world.expect(ApiKey::Fetch);
    world.answer_fetch(&seen, vec![with_records(0, &damaged)]);
    assert_eq!(world.poll().unwrap().len(), 5);
}

/// A batch of five with changed record bytes and a correct checksum.
fn forged(change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = batch(0..5);
    change(&mut bytes);
    let length = (bytes.len() - 12) as i32;
    bytes[8..12].copy_from_slice(&length.to_be_bytes());
    seal(&mut bytes);
    bytes
}

#[test]
fn records_that_contradict_their_batch_are_corrupt() {
    let cases: Vec<(&str, Vec<u8>)> = vec![
        (
            "too many announced",
            forged(|bytes| bytes[57..61].copy_from_slice(&6i32.to_be_bytes())),
        ),
        (
            "2^31 announced",
            forged(|bytes| bytes[57..61].copy_from_slice(&i32::MAX.to_be_bytes())),
        ),
        (
            "too few announced",
            forged(|bytes| bytes[57..61].copy_from_slice(&4i32.to_be_bytes())),
        ),
        ("cut", forged(|bytes| bytes.truncate(bytes.len() - 3))),
        (
            "a length beyond the end",
            forged(|bytes| bytes[HEADER_BYTES] = 0x7e),
        ),
        ("a negative length", forged(|bytes| bytes[HEADER_BYTES] = 1)),
        (
            "an endless varint",
            forged(|bytes| bytes[HEADER_BYTES..HEADER_BYTES + 6].fill(0xff)),
        ),
        ("no such codec", forged(|bytes| bytes[22] = 7)),
        (
            "not compressed at all",
            forged(|bytes| bytes[22] = Codec::Zstd as u8),
        ),
        ("an older format", {
            let mut bytes = batch(0..5);
            bytes[16] = 1;
            bytes
        }),
        ("a negative batch length", {
            let mut bytes = batch(0..5);
            bytes[8..12].copy_from_slice(&(-5i32).to_be_bytes());
            bytes
        }),
        ("only the beginning of a batch", batch(0..5)[..40].to_vec()),
        ("noise", vec![0xa5; 500]),
    ];
    for (what, bytes) in cases {
        let mut world = World::assigned(1, 0, &[]);
        let seen = world.expect(ApiKey::Fetch);
        world.answer_fetch(&seen, vec![with_records(0, &bytes)]);
        let error = loop {
            match world.poll() {
                Ok(records) => assert!(!records.is_empty(), "{what}: no error"),
                Err(error) => break error,
            }
        };
        assert!(
            matches!(error, Error::CorruptBatch { partition: 0, .. }),
            "{what}: {error}"
        );
        assert_eq!(world.poll(), Err(error), "{what}");
    }
}

#[test]
fn a_batch_that_unfolds_without_end_is_refused() {
    let mut frame = Vec::new();
    compress(Codec::Zstd.into(), &vec![0; 16 * 1024 * 1024], &mut frame);
    // Several frames in a row are allowed: 272 MiB.
    let records = frame.repeat(17);
    let mut bytes = batch_with(0..1, BatchOptions::default());
    bytes.truncate(HEADER_BYTES);
    bytes[22] = Codec::Zstd as u8;
    bytes.extend_from_slice(&records);
    let length = (bytes.len() - 12) as i32;
    bytes[8..12].copy_from_slice(&length.to_be_bytes());
    seal(&mut bytes);
    let mut world = World::assigned(1, 0, &[]);
    let seen = world.expect(ApiKey::Fetch);
    world.answer_fetch(&seen, vec![with_records(0, &bytes)]);
    let error = world.poll().unwrap_err().to_string();
    assert!(
        error.contains("more than the limit of 268435456 bytes"),
        "{error}"
    );
}

#[test]
fn a_truncated_batch_at_the_end_is_fetched_again() {
    let mut world = World::assigned(1, 0, &[]);
    let mut records = [batch(0..5), batch(5..10)].concat();
    records.truncate(records.len() - 1);
    let second = world.second_fetch(vec![with_records(0, &records)]);
    assert_eq!(second.asked(), [(0, 5)]);
    assert_eq!(world.poll().unwrap().len(), 5);
    assert_eq!(world.poll().unwrap(), []);
}

#[test]
fn a_partition_that_was_not_asked_for_voids_the_answer() {
    let mut world = World::assigned(1, 0, &[]);
    let records = batch(0..5);
    let seen = world.expect(ApiKey::Fetch);
    world.answer_fetch(&seen, vec![with_records(0, &records), nothing(9)]);
    assert_eq!(world.poll().unwrap(), []);
    world.expect_nothing();
    world.advance(200);
    let again = world.expect(ApiKey::Fetch);
    assert_eq!((again.fetch().session_epoch, again.asked()), (0, vec![(0, 0)]));
}

#[test]
fn batches_before_the_position_do_not_cause_a_fetch_loop() {
    let mut world = World::assigned(1, 100, &[]);
    let records = batch(0..5);
    let seen = world.expect(ApiKey::Fetch);
    world.answer_fetch(&seen, vec![with_records(0, &records)]);
    world.expect_nothing();
    assert_eq!(world.position(0), Some(100));
    world.advance(200);
    world.expect(ApiKey::Fetch);
}

#[test]
fn nonsense_is_reported_once_and_the_connection_closed() {
    let huge_count = |body: &mut Vec<u8>, _| {
        put_i32(body, 0);
        put_i16(body, 0);
        put_i32(body, 1);
        // Two thousand million topics, in a compact array's count.
        body.extend_from_slice(&[0xff, 0xff, 0xff, 0xff, 0x07]);
    };
    let nothing_at_all = |_: &mut Vec<u8>, _| {};
    let trailing = |body: &mut Vec<u8>, version| {
        ottla_wire::messages::fetch::FetchResponse::default().encode(body, version);
        body.push(0);
    };
    type Body = Box<dyn Fn(&mut Vec<u8>, i16)>;
    let cases: [Body; 3] = [Box::new(huge_count), Box::new(nothing_at_all), Box::new(trailing)];
    for nonsense in cases {
        let mut world = World::assigned(1, 10, &[]);
        let seen = world.expect(ApiKey::Fetch);
        world.answer(&seen, nonsense);
        assert!(matches!(world.poll(), Err(Error::Malformed { .. })));
        assert_eq!(world.poll(), Ok(vec![]));
        world.advance(2_000);
        let again = world.expect(ApiKey::Fetch);
        assert_ne!(again.connection, seen.connection);
        assert_eq!(again.asked(), [(0, 10)]);
    }
}
