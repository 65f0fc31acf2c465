//! The end of a consumer.

use ottla_wire::api_key::ApiKey;
use ottla_wire::messages::get_telemetry_subscriptions::GetTelemetrySubscriptionsResponse;
use ottla_wire::messages::push_telemetry::{PushTelemetryRequest, PushTelemetryResponse};
use ottla_wire::primitives::{Reader, Uuid};

use super::world::{Seen, World};
use crate::consumer::exchange::Command;
use crate::network::io::Machine;

const INTERVAL_MS: i32 = 100;

/// A consumer whose metrics are wanted, with one long poll in flight: an idle topic.
fn idle_and_measured() -> (World, Seen) {
    let mut world = World::assigned(1, 0, &[("enable.metrics.push", "true")]);
    let asked = world.expect(ApiKey::GetTelemetrySubscriptions);
    let response = GetTelemetrySubscriptionsResponse {
        client_instance_id: Uuid([9; 16]),
        subscription_id: 1,
        push_interval_ms: INTERVAL_MS,
        telemetry_max_bytes: 1 << 20,
        requested_metrics: vec![""],
        ..GetTelemetrySubscriptionsResponse::default()
    };
    world.answer(&asked, |body, version| response.encode(body, version));
    let fetch = world.expect(ApiKey::Fetch);
    (world, fetch)
}

fn close(world: &mut World) {
    let deadline = world.now.after_ms(30_000);
    world.command(Command::Close { deadline });
}

fn expect_last_push(world: &mut World) -> Seen {
    let push = world.expect(ApiKey::PushTelemetry);
    let request = PushTelemetryRequest::decode(&mut Reader::new(&push.body), push.api_version);
    assert!(request.unwrap().terminating);
    push
}

fn answer_push(world: &mut World, push: &Seen) {
    let response = PushTelemetryResponse::default();
    world.answer(push, |body, version| response.encode(body, version));
}

/// Brokers answer in the order of the requests: behind a long poll the answer to the last push took
/// up to fetch.max.wait.ms, and so did `close`.
#[test]
fn the_last_push_of_an_idle_consumer_does_not_wait_behind_its_long_poll() {
    let (mut world, fetch) = idle_and_measured();
    close(&mut world);
    let push = expect_last_push(&mut world);
    assert_ne!(push.connection, fetch.connection);
    assert!(!world.machine.is_finished());
    // The clock stands still and the fetch has no answer.
    answer_push(&mut world, &push);
    assert!(world.machine.is_finished());
}

#[test]
fn a_push_held_up_by_a_long_poll_does_not_hold_up_the_last_one() {
    let (mut world, fetch) = idle_and_measured();
    world.advance(2 * INTERVAL_MS as u64);
    let held = world.expect(ApiKey::PushTelemetry);
    assert_eq!(held.connection, fetch.connection);
    close(&mut world);
    let push = expect_last_push(&mut world);
    assert_ne!(push.connection, fetch.connection);
    answer_push(&mut world, &push);
    assert!(world.machine.is_finished());
}

#[test]
fn an_overtaken_push_that_is_answered_first_does_not_count_as_the_last_one() {
    let (mut world, fetch) = idle_and_measured();
    world.advance(2 * INTERVAL_MS as u64);
    let held = world.expect(ApiKey::PushTelemetry);
    close(&mut world);
    let push = expect_last_push(&mut world);
    world.answer_fetch(&fetch, Vec::new());
    answer_push(&mut world, &held);
    assert!(!world.machine.is_finished());
    answer_push(&mut world, &push);
    assert!(world.machine.is_finished());
}

#[test]
fn without_a_free_connection_for_the_last_push_the_close_ends_nevertheless() {
    let (mut world, _fetch) = idle_and_measured();
    close(&mut world);
    let push = expect_last_push(&mut world);
    world.break_connection(&push);
    assert!(world.machine.is_finished());
}
