//! Sessions, prefetching, leaders, pauses: which fetch follows which response.

use ottla_wire::api_key::ApiKey;
use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::fetch::{FetchResponse, FetchableTopicResponse, LeaderIdAndEpoch, PartitionData};
use ottla_wire::primitives::Uuid;

use super::world::{SESSION, World, batch, name, nothing, with_error, with_records};
use crate::consumer::exchange::Command;

/// A response with only a top-level error.
fn refuse(world: &mut World, seen: &super::world::Seen, code: ErrorCode) {
    let response = FetchResponse {
        error_code: code.code(),
        ..FetchResponse::default()
    };
    world.answer(seen, |body, version| response.encode(body, version));
}

#[test]
fn after_the_first_fetch_only_changes_are_sent() {
    let mut world = World::assigned(3, 10, &[]);
    let first = world.expect(ApiKey::Fetch);
    let fetch = first.fetch();
    assert_eq!((fetch.session_id, fetch.session_epoch), (0, 0));
    assert_eq!(
        (fetch.min_bytes, fetch.max_wait_ms, fetch.max_bytes),
        (1, 500, 52_428_800)
    );
    assert_eq!(first.asked(), [(0, 10), (1, 10), (2, 10)]);
    assert_eq!(fetch.topics[0].partitions[0].current_leader_epoch, 5);
    assert_eq!(fetch.topics[0].partitions[0].partition_max_bytes, 1_048_576);

    let records = batch(10..20);
    let second = world.second_fetch_from(&first, vec![nothing(0), with_records(1, &records), nothing(2)]);
    assert_eq!(
        (second.fetch().session_id, second.fetch().session_epoch),
        (SESSION, 1)
    );
    assert_eq!(second.asked(), [(1, 20)]);

    // The second response names no partition: nothing has changed, and the session continues.
    world.answer_fetch(&second, vec![]);
    let third = world.expect(ApiKey::Fetch);
    assert_eq!((third.fetch().session_epoch, third.asked()), (2, vec![]));
    world.expect_nothing();
}

#[test]
fn a_lost_session_is_reopened_at_once() {
    for (code, session_id) in [
        (ErrorCode::FetchSessionIdNotFound, 0),
        (ErrorCode::InvalidFetchSessionEpoch, SESSION),
        (ErrorCode::FetchSessionTopicIdError, SESSION),
    ] {
        let mut world = World::assigned(2, 10, &[]);
        let second = world.second_fetch(vec![nothing(0), nothing(1)]);
        refuse(&mut world, &second, code);
        let third = world.expect(ApiKey::Fetch);
        let fetch = third.fetch();
        assert_eq!((fetch.session_id, fetch.session_epoch), (session_id, 0), "{code}");
        assert_eq!(third.asked(), [(0, 10), (1, 10)]);
    }
}

#[test]
fn a_broken_connection_ends_the_session() {
    let mut world = World::assigned(1, 10, &[]);
    let second = world.second_fetch(vec![nothing(0)]);
    world.break_connection(&second);
    world.expect_nothing();
    world.advance(2_000);
    let third = world.expect(ApiKey::Fetch);
    assert_eq!(third.fetch().session_epoch, 0);
    assert_eq!(third.asked(), [(0, 10)]);
}

#[test]
fn brokers_without_sessions_and_topic_ids_are_asked_by_name_for_everything() {
    let mut world = World::new(2, &[]);
    world.versions_max.insert(ApiKey::Fetch, 6);
    world.versions_max.insert(ApiKey::Metadata, 9);
    world.assign(2);
    world.seek(0, 3);
    world.seek(1, 4);
    world.run();
    let first = world.expect(ApiKey::Fetch);
    assert_eq!(first.api_version, 6);
    assert_eq!(first.fetch().topics[0].topic, "t");
    let records = batch(3..5);
    let second = world.second_fetch_from(&first, vec![with_records(0, &records), nothing(1)]);
    assert_eq!(second.asked(), [(0, 5), (1, 4)]);
}

#[test]
fn without_ids_in_the_metadata_the_version_with_names_is_used() {
    let mut world = World::new(1, &[]);
    world.versions_max.insert(ApiKey::Metadata, 9);
    world.assign(1);
    world.seek(0, 3);
    world.run();
    assert_eq!(world.expect(ApiKey::Fetch).api_version, 12);
}

#[test]
fn two_responses_are_held_and_no_third_is_requested() {
    let mut world = World::assigned(1, 0, &[]);
    let (one, two, three) = (batch(0..10), batch(10..20), batch(20..30));
    let second = world.second_fetch(vec![with_records(0, &one)]);
    // Requested while the first waits.
    assert_eq!(second.asked(), [(0, 10)]);
    world.answer_fetch(&second, vec![with_records(0, &two)]);
    world.advance(60_000);
    world.expect_nothing();
    assert_eq!(world.exchange.lock().assignment.unread().0, 2);
    // The default of max.poll.records takes both, so there is room for two.
    assert_eq!(world.poll().unwrap().len(), 20);
    let third = world.expect(ApiKey::Fetch);
    assert_eq!(third.asked(), [(0, 20)]);
    world.answer_fetch(&third, vec![with_records(0, &three)]);
    assert_eq!(world.poll().unwrap().last(), Some(&(0, 29)));
}

#[test]
fn unread_memory_stays_within_two_answers_whatever_the_broker_sends() {
    let settings = [("max.partition.fetch.bytes", "1000"), ("max.poll.records", "7")];
    let mut world = World::assigned(4, 0, &settings);
    let (mut next, mut most_bytes, mut read) = ([0_i64; 4], 0, 0);
    for _ in 0..200 {
        if let Some(seen) = world.try_expect(ApiKey::Fetch) {
            let batches = next.map(|offset| batch(offset..offset + 20));
            let answer = (0..4).map(|index| with_records(index as i32, &batches[index]));
            world.answer_fetch(&seen, answer.collect());
            next = next.map(|offset| offset + 20);
        }
        most_bytes = most_bytes.max(world.exchange.lock().assignment.unread().1);
        read += world.poll().unwrap().len();
    }
    assert_eq!(read, 200 * 7);
    let answer_bytes = 4 * batch(100_000..100_020).len();
    assert!(most_bytes <= 2 * answer_bytes, "{most_bytes} of {answer_bytes}");
}

#[test]
fn a_paused_partition_keeps_its_records_and_is_not_fetched() {
    let mut world = World::assigned(2, 0, &[]);
    let records = [batch(0..5), batch(0..5)];
    let second = world.second_fetch(vec![with_records(0, &records[0]), with_records(1, &records[1])]);
    world
        .exchange
        .lock()
        .assignment
        .set_paused(&[name(1)], true)
        .unwrap();
    assert_eq!(world.poll().unwrap().len(), 5);
    world.answer_fetch(&second, vec![]);
    let third = world.expect(ApiKey::Fetch);
    let forgotten = &third.fetch().forgotten_topics_data[0].partitions;
    assert_eq!(forgotten, &[1]);
    assert_eq!(world.poll().unwrap(), []);
    world
        .exchange
        .lock()
        .assignment
        .set_paused(&[name(1)], false)
        .unwrap();
    assert_eq!(world.poll().unwrap(), [(1, 0), (1, 1), (1, 2), (1, 3), (1, 4)]);
    world.answer_fetch(&third, vec![]);
    assert_eq!(world.expect(ApiKey::Fetch).asked(), [(1, 5)]);
}

#[test]
fn a_seek_voids_fetches_in_flight_and_buffered_records() {
    let mut world = World::assigned(1, 0, &[]);
    let records = [batch(0..10), batch(10..20), batch(50..60)];
    let second = world.second_fetch(vec![with_records(0, &records[0])]);
    world.seek(0, 53);
    world.answer_fetch(&second, vec![with_records(0, &records[1])]);
    assert_eq!(world.poll().unwrap(), []);
    let third = world.expect(ApiKey::Fetch);
    assert_eq!(third.asked(), [(0, 53)]);
    world.answer_fetch(&third, vec![with_records(0, &records[2])]);
    // The batch begins before the position.
    assert_eq!(world.poll().unwrap().first(), Some(&(0, 53)));
    assert_eq!(world.position(0), Some(60));
}

#[test]
fn a_new_leader_named_in_a_refusal_is_asked_at_once() {
    let mut world = World::assigned(1, 10, &[]);
    let seen = world.expect(ApiKey::Fetch);
    assert_eq!(seen.node, 1);
    world.leaders.insert(0, (2, 6));
    let refusal = PartitionData {
        current_leader: LeaderIdAndEpoch {
            leader_id: 2,
            leader_epoch: 6,
        },
        ..with_error(0, ErrorCode::NotLeaderOrFollower)
    };
    world.answer_fetch(&seen, vec![refusal]);
    let seen = world.expect(ApiKey::Fetch);
    assert_eq!(seen.node, 2);
    assert_eq!(seen.fetch().topics[0].partitions[0].current_leader_epoch, 6);
}

#[test]
fn a_refusal_without_a_name_waits_for_metadata() {
    let mut world = World::assigned(1, 10, &[]);
    let seen = world.expect(ApiKey::Fetch);
    world.leaders.insert(0, (2, 6));
    world.answer_fetch(&seen, vec![with_error(0, ErrorCode::NotLeaderOrFollower)]);
    world.advance(200);
    assert_eq!(world.expect(ApiKey::Fetch).node, 2);
}

#[test]
fn a_recreated_topic_is_fetched_by_its_new_id() {
    let mut world = World::assigned(1, 10, &[]);
    let second = world.second_fetch(vec![nothing(0)]);
    let (old_id, new_id) = (world.topic_id, Uuid([9; 16]));
    world.topic_id = new_id;
    world.leaders.insert(0, (1, 0));
    let response = FetchResponse {
        session_id: SESSION,
        responses: vec![FetchableTopicResponse {
            topic_id: old_id,
            partitions: vec![with_error(0, ErrorCode::UnknownTopicId)],
            ..FetchableTopicResponse::default()
        }],
        ..FetchResponse::default()
    };
    world.answer(&second, |body, version| response.encode(body, version));
    world.advance(200);
    let third = world.expect(ApiKey::Fetch);
    let fetch = third.fetch();
    assert_eq!(fetch.topics[0].topic_id, new_id);
    assert_eq!(fetch.topics[0].partitions[0].current_leader_epoch, 0);
    assert_eq!(fetch.forgotten_topics_data[0].topic_id, old_id);
}

#[test]
fn a_preferred_replica_is_fetched_from_until_it_cannot_be() {
    let mut world = World::assigned(1, 10, &[("client.rack", "b")]);
    let seen = world.expect(ApiKey::Fetch);
    assert_eq!(seen.fetch().rack_id, "b");
    let referral = PartitionData {
        preferred_read_replica: 2,
        ..nothing(0)
    };
    world.answer_fetch(&seen, vec![referral]);
    let seen = world.expect(ApiKey::Fetch);
    assert_eq!(seen.node, 2);
    // A lagging follower does not make the consumer lose its position.
    world.answer_fetch(&seen, vec![with_error(0, ErrorCode::OffsetOutOfRange)]);
    world.advance(200);
    let seen = world.expect(ApiKey::Fetch);
    // Its session there is unchanged.
    assert_eq!((seen.node, seen.asked()), (1, vec![]));
    assert_eq!(world.position(0), Some(10));
}

#[test]
fn a_throttled_consumer_waits() {
    let mut world = World::assigned(1, 10, &[]);
    let seen = world.expect(ApiKey::Fetch);
    let response = FetchResponse {
        throttle_time_ms: 3_000,
        session_id: SESSION,
        ..FetchResponse::default()
    };
    world.answer(&seen, |body, version| response.encode(body, version));
    world.advance(2_900);
    world.expect_nothing();
    world.advance(200);
    world.expect(ApiKey::Fetch);
}

#[test]
fn max_poll_records_bounds_a_poll_and_nothing_is_lost_between() {
    let mut world = World::assigned(2, 0, &[("max.poll.records", "4")]);
    let records = [batch(0..10), batch(0..3)];
    let seen = world.expect(ApiKey::Fetch);
    world.answer_fetch(
        &seen,
        vec![with_records(0, &records[0]), with_records(1, &records[1])],
    );
    let mut found = Vec::new();
    for expected in [4, 4, 4, 1, 0] {
        let polled = world.poll().unwrap();
        assert_eq!(polled.len(), expected);
        found.extend(polled);
    }
    let wanted = (0..10)
        .map(|offset| (0, offset))
        .chain((0..3).map(|offset| (1, offset)));
    assert_eq!(found, wanted.collect::<Vec<_>>());
}

#[test]
fn closing_ends_the_sessions() {
    let mut world = World::assigned(1, 10, &[]);
    let second = world.second_fetch(vec![nothing(0)]);
    world.answer_fetch(&second, vec![]);
    world.expect(ApiKey::Fetch);
    let deadline = world.now.after_ms(1_000);
    world.command(Command::Close { deadline });
    let last = world.expect(ApiKey::Fetch);
    assert_eq!(
        (last.fetch().session_id, last.fetch().session_epoch),
        (SESSION, -1)
    );
    assert!(crate::network::io::Machine::is_finished(&world.machine));
}
