//! Where positions come from, and what happens when the log has changed.

use std::collections::BTreeMap;

use ottla_wire::api_key::ApiKey;
use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::fetch::{AbortedTransaction, PartitionData};
use ottla_wire::messages::list_offsets::{
    ListOffsetsPartitionResponse, ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopicResponse,
};
use ottla_wire::messages::offset_for_leader_epoch::{
    EpochEndOffset, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse, OffsetForLeaderTopicResult,
};
use ottla_wire::primitives::Reader;
use ottla_wire::records::builder::{BatchBuilder, BatchOptions};
use ottla_wire::records::control::{ControlRecord, TransactionResult, control_batch};

use super::world::{Seen, World, batch, batch_with, name, nothing, with_error, with_records};
use crate::consumer::exchange::Command;
use crate::consumer::offsets_by_time::{EARLIEST, LATEST};
use crate::consumer::position::ResetTo;
use crate::error::Error;
use crate::pending::{Pending, pending};

/// The timestamps in a ListOffsets request, by partition.
fn times(seen: &Seen) -> Vec<(i32, i64)> {
    let request = ListOffsetsRequest::decode(&mut Reader::new(&seen.body), seen.api_version).unwrap();
    let partitions = request.topics[0].partitions.iter();
    partitions
        .map(|partition| (partition.partition_index, partition.timestamp))
        .collect()
}

fn answer_offsets(world: &mut World, seen: &Seen, answers: &[(i32, i64, ErrorCode)]) {
    let partitions = answers
        .iter()
        .map(|&(partition_index, offset, code)| ListOffsetsPartitionResponse {
            partition_index,
            error_code: code.code(),
            offset,
            timestamp: 12,
            leader_epoch: 5,
        });
    let response = ListOffsetsResponse {
        topics: vec![ListOffsetsTopicResponse {
            name: "t",
            partitions: partitions.collect(),
        }],
        ..ListOffsetsResponse::default()
    };
    world.answer(seen, |body, version| response.encode(body, version));
}

fn answer_epoch(world: &mut World, seen: &Seen, leader_epoch: i32, end_offset: i64) {
    let response = OffsetForLeaderEpochResponse {
        topics: vec![OffsetForLeaderTopicResult {
            topic: "t",
            partitions: vec![EpochEndOffset {
                error_code: 0,
                partition: 0,
                leader_epoch,
                end_offset,
            }],
        }],
        ..OffsetForLeaderEpochResponse::default()
    };
    world.answer(seen, |body, version| response.encode(body, version));
}

#[test]
fn without_a_group_the_reset_policy_decides() {
    for (policy, time) in [
        ("earliest", EARLIEST),
        ("latest", LATEST),
        ("by_duration:PT1H", 1_700_000_000_000 - 3_600_000),
    ] {
        let mut world = World::new(1, &[("auto.offset.reset", policy)]);
        world.assign(1);
        world.run();
        let seen = world.expect(ApiKey::ListOffsets);
        assert_eq!(times(&seen), [(0, time)], "{policy}");
        answer_offsets(&mut world, &seen, &[(0, 42, ErrorCode::None)]);
        assert_eq!(world.position(0), Some(42));
        assert_eq!(world.expect(ApiKey::Fetch).asked(), [(0, 42)]);
    }
}

#[test]
fn with_policy_none_only_a_seek_helps() {
    let mut world = World::new(1, &[("auto.offset.reset", "none")]);
    world.assign(1);
    world.run();
    world.expect_nothing();
    world.seek(0, 3);
    world.run();
    assert_eq!(world.expect(ApiKey::Fetch).asked(), [(0, 3)]);
}

#[test]
fn a_time_after_the_last_record_is_the_end() {
    let mut world = World::assigned(1, 0, &[]);
    let seen = world.expect(ApiKey::Fetch);
    world
        .exchange
        .lock()
        .assignment
        .reset(&name(0), ResetTo::Timestamp(99))
        .unwrap();
    // Answers come in the order of the requests: the fetched data is void.
    let records = batch(0..5);
    world.answer_fetch(&seen, vec![with_records(0, &records)]);
    assert_eq!(world.poll().unwrap(), []);
    let seen = world.expect(ApiKey::ListOffsets);
    assert_eq!(times(&seen), [(0, 99)]);
    answer_offsets(&mut world, &seen, &[(0, -1, ErrorCode::None)]);
    let seen = world.expect(ApiKey::ListOffsets);
    assert_eq!(times(&seen), [(0, LATEST)]);
}

#[test]
fn a_retriable_refusal_is_asked_again_and_a_final_one_reported() {
    let mut world = World::new(1, &[]);
    world.assign(1);
    world.run();
    let seen = world.expect(ApiKey::ListOffsets);
    answer_offsets(&mut world, &seen, &[(0, -1, ErrorCode::NotLeaderOrFollower)]);
    world.expect_nothing();
    world.advance(200);
    let seen = world.expect(ApiKey::ListOffsets);
    answer_offsets(&mut world, &seen, &[(0, -1, ErrorCode::TopicAuthorizationFailed)]);
    let refused = world.poll().unwrap_err();
    assert!(matches!(
        refused,
        Error::Broker {
            code: ErrorCode::TopicAuthorizationFailed,
            ..
        }
    ));
}

#[test]
fn an_offset_out_of_range_is_reset() {
    let mut world = World::assigned(1, 5_000, &[]);
    let seen = world.expect(ApiKey::Fetch);
    world.answer_fetch(&seen, vec![with_error(0, ErrorCode::OffsetOutOfRange)]);
    let seen = world.expect(ApiKey::ListOffsets);
    assert_eq!(times(&seen), [(0, EARLIEST)]);
    answer_offsets(&mut world, &seen, &[(0, 100, ErrorCode::None)]);
    assert_eq!(world.expect(ApiKey::Fetch).asked(), [(0, 100)]);
}

#[test]
fn an_offset_out_of_range_is_an_error_with_policy_none_and_waits_for_unread_records() {
    let mut world = World::assigned(1, 0, &[("auto.offset.reset", "none")]);
    let records = batch(0..10);
    let second = world.second_fetch(vec![with_records(0, &records)]);
    world.answer_fetch(&second, vec![with_error(0, ErrorCode::OffsetOutOfRange)]);
    assert_eq!(world.poll().unwrap().len(), 10);
    world.advance(200);
    let third = world.expect(ApiKey::Fetch);
    assert_eq!(third.asked(), []);
    world.answer_fetch(&third, vec![with_error(0, ErrorCode::OffsetOutOfRange)]);
    let error = world.poll().unwrap_err();
    assert!(error.to_string().contains("t-0 at offset 10"), "{error}");
}

/// A world that has read up to offset 10 in epoch 5; then node 2 leads in epoch 6.
fn after_a_leader_change(settings: &[(&str, &str)]) -> (World, Seen) {
    let mut world = World::assigned(1, 0, settings);
    let records = batch(0..10);
    let second = world.second_fetch(vec![with_records(0, &records)]);
    assert_eq!(world.poll().unwrap().len(), 10);
    world.leaders.insert(0, (2, 6));
    world.answer_fetch(&second, vec![with_error(0, ErrorCode::FencedLeaderEpoch)]);
    world.advance(200);
    let seen = world.expect(ApiKey::OffsetForLeaderEpoch);
    assert_eq!(seen.node, 2);
    let request =
        OffsetForLeaderEpochRequest::decode(&mut Reader::new(&seen.body), seen.api_version).unwrap();
    let asked = &request.topics[0].partitions[0];
    assert_eq!((asked.current_leader_epoch, asked.leader_epoch), (6, 5));
    (world, seen)
}

#[test]
fn reading_continues_from_a_new_leader_with_the_whole_log() {
    let (mut world, seen) = after_a_leader_change(&[]);
    world.expect_nothing();
    answer_epoch(&mut world, &seen, 5, 10);
    let seen = world.expect(ApiKey::Fetch);
    assert_eq!((seen.node, seen.asked()), (2, vec![(0, 10)]));
}

#[test]
fn a_truncated_log_is_read_from_where_it_diverges() {
    let (mut world, seen) = after_a_leader_change(&[]);
    answer_epoch(&mut world, &seen, 5, 7);
    assert_eq!(world.expect(ApiKey::Fetch).asked(), [(0, 7)]);
    assert_eq!(world.position(0), Some(7));
}

#[test]
fn a_truncated_log_is_an_error_with_policy_none() {
    let (mut world, seen) = after_a_leader_change(&[("auto.offset.reset", "none")]);
    answer_epoch(&mut world, &seen, 5, 7);
    let expected = Error::LogTruncated {
        topic: "t".into(),
        partition: 0,
        offset: 10,
        divergent_offset: Some(7),
    };
    assert_eq!(world.poll(), Err(expected));
    world.seek(0, 7);
    world.run();
    assert_eq!(world.expect(ApiKey::Fetch).asked(), [(0, 7)]);
}

#[test]
fn with_a_leader_that_does_not_know_the_epoch_the_policy_decides() {
    let (mut world, seen) = after_a_leader_change(&[]);
    answer_epoch(&mut world, &seen, -1, -1);
    assert_eq!(times(&world.expect(ApiKey::ListOffsets)), [(0, EARLIEST)]);
}

#[test]
fn lookups_are_answered_by_every_leader_and_end_at_their_timeout() {
    let mut world = World::new(2, &[]);
    world.leaders.insert(1, (2, 5));
    let (promise, mut found) = pending();
    world.command(Command::ListOffsets {
        targets: BTreeMap::from([(name(0), 10), (name(1), 20)]),
        deadline: world.now.after_ms(60_000),
        promise,
    });
    let first = world.expect(ApiKey::ListOffsets);
    let second = world.expect(ApiKey::ListOffsets);
    assert_eq!((times(&first), times(&second)), (vec![(0, 10)], vec![(1, 20)]));
    answer_offsets(&mut world, &first, &[(0, 5, ErrorCode::None)]);
    assert_eq!(found.try_take(), None);
    answer_offsets(&mut world, &second, &[(1, -1, ErrorCode::None)]);
    let found = found.try_take().unwrap().unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(found[&name(0)].offset, 5);

    let (promise, mut never) = pending();
    world.command(Command::ListOffsets {
        targets: BTreeMap::from([(name(7), LATEST)]),
        deadline: world.now.after_ms(60_000),
        promise,
    });
    world.advance(59_000);
    assert_eq!(never.try_take(), None);
    world.advance(1_000);
    assert!(matches!(
        never.try_take(),
        Some(Err(Error::Timeout { limit_ms: 60_000, .. }))
    ));
}

fn ask_position(world: &mut World, partition: i32) -> Pending<i64> {
    let (promise, pending) = pending();
    world.command(Command::Position {
        partition: name(partition),
        deadline: world.now.after_ms(60_000),
        promise,
    });
    pending
}

#[test]
fn a_call_for_a_position_is_answered_when_it_is_known_without_a_poll() {
    let mut world = World::new(2, &[]);
    world.assign(2);
    world.run();
    let (mut first, mut second) = (ask_position(&mut world, 0), ask_position(&mut world, 1));
    let asked = world.expect(ApiKey::ListOffsets);
    assert_eq!(first.try_take(), None);
    answer_offsets(
        &mut world,
        &asked,
        &[(0, 5, ErrorCode::None), (1, 7, ErrorCode::None)],
    );
    assert_eq!(first.try_take(), Some(Ok(5)));
    assert_eq!(second.try_take(), Some(Ok(7)));
    let mut foreign = ask_position(&mut world, 2);
    assert!(matches!(
        foreign.try_take(),
        Some(Err(Error::IllegalState { .. }))
    ));
}

#[test]
fn a_call_for_a_position_that_nobody_answers_ends_at_its_deadline() {
    let mut world = World::new(1, &[("request.timeout.ms", "100000")]);
    world.assign(1);
    world.run();
    let mut position = ask_position(&mut world, 0);
    world.advance(59_000);
    assert_eq!(position.try_take(), None);
    world.advance(1_000);
    assert!(matches!(
        position.try_take(),
        Some(Err(Error::Timeout { limit_ms: 60_000, .. }))
    ));
}

fn transactional(offsets: std::ops::Range<i64>, producer_id: i64) -> Vec<u8> {
    let options = BatchOptions {
        producer_id,
        producer_epoch: 0,
        base_sequence: 0,
        is_transactional: true,
        ..BatchOptions::default()
    };
    batch_with(offsets, options)
}

fn marker(offset: i64, producer_id: i64, result: TransactionResult) -> Vec<u8> {
    let record = ControlRecord::EndTransaction {
        result,
        coordinator_epoch: 0,
    };
    let options = BatchOptions {
        base_offset: offset,
        leader_epoch: 5,
        producer_id,
        producer_epoch: 0,
        is_transactional: true,
        ..BatchOptions::default()
    };
    control_batch(options, 0, &[record])
}

#[test]
fn aborted_transactions_are_left_out_when_only_committed_ones_are_wanted() {
    let records = [
        transactional(0..3, 1),
        transactional(3..6, 2),
        marker(6, 1, TransactionResult::Abort),
        transactional(7..9, 1),
        marker(9, 2, TransactionResult::Commit),
        marker(10, 1, TransactionResult::Commit),
        batch(11..13),
    ]
    .concat();
    let answer = || PartitionData {
        aborted_transactions: Some(vec![AbortedTransaction {
            producer_id: 1,
            first_offset: 0,
        }]),
        last_stable_offset: 13,
        ..with_records(0, &records)
    };
    let offsets = |mut world: World| {
        let seen = world.expect(ApiKey::Fetch);
        world.answer_fetch(&seen, vec![answer()]);
        let found: Vec<i64> = world
            .poll()
            .unwrap()
            .into_iter()
            .map(|(_, offset)| offset)
            .collect();
        assert_eq!(world.position(0), Some(13));
        let lag = world.exchange.lock().assignment.get(&name(0)).unwrap().lag();
        (found, lag)
    };
    let committed = World::assigned(1, 0, &[("isolation.level", "read_committed")]);
    assert_eq!(offsets(committed), (vec![3, 4, 5, 7, 8, 11, 12], Some(0)));
    let all = World::assigned(1, 0, &[]);
    assert_eq!(offsets(all), (vec![0, 1, 2, 3, 4, 5, 7, 8, 11, 12], Some(987)));
}

#[test]
fn a_batch_that_was_compacted_away_moves_the_position() {
    let mut world = World::assigned(1, 0, &[]);
    let original = batch(0..5);
    let header = ottla_wire::records::batch::BatchHeader::parse(&original).unwrap();
    let emptied = BatchBuilder::replacing(&header, Vec::new(), None).finish();
    let second = world.second_fetch(vec![with_records(0, &emptied)]);
    assert_eq!(second.asked(), [(0, 5)]);
    assert_eq!(world.poll().unwrap(), []);
    assert_eq!(world.position(0), Some(5));
    world.answer_fetch(&second, vec![nothing(0)]);
}
