//! The telemetry machine against scripted answers.

use std::time::Duration;

use super::*;
use crate::metrics::registry::tests::busy_client;
use crate::metrics::sensor::ClientKind;

const NODE: NodeId = NodeId(1);
const INSTANCE: Uuid = Uuid([7; 16]);
const WALL: Timestamp = Timestamp(1_700_000_000_000);

fn at_ms(ms: u64) -> Moment {
    Moment::from_nanos(ms * 1_000_000)
}

fn telemetry(seed: u64) -> Telemetry {
    Telemetry::with_limits(true, 30_000, busy_client(ClientKind::Producer).0, seed)
}

fn subscription(requested: Vec<&'static str>) -> GetTelemetrySubscriptionsResponse<'static> {
    GetTelemetrySubscriptionsResponse {
        client_instance_id: INSTANCE,
        subscription_id: 42,
        accepted_compression_types: vec![99, 4, 1],
        push_interval_ms: 10_000,
        telemetry_max_bytes: 1 << 20,
        delta_temporality: true,
        requested_metrics: requested,
        ..GetTelemetrySubscriptionsResponse::default()
    }
}

fn encoded(response: &GetTelemetrySubscriptionsResponse<'_>) -> Result<Bytes, Error> {
    let mut body = Vec::new();
    response.encode(&mut body, 0);
    Ok(body.into())
}

fn push_answer(code: ErrorCode) -> Result<Bytes, Error> {
    let mut body = Vec::new();
    let response = PushTelemetryResponse {
        error_code: code as i16,
        throttle_time_ms: 0,
    };
    response.encode(&mut body, 0);
    Ok(body.into())
}

fn disconnected() -> Result<Bytes, Error> {
    Err(Error::Disconnected {
        address: "a:1".into(),
        reason: "gone".into(),
    })
}

/// Subscribed to everything at time 0; its first push is at the returned moment.
fn subscribed(seed: u64) -> (Telemetry, Moment) {
    let mut telemetry = telemetry(seed);
    let request = telemetry.request(at_ms(0), WALL).unwrap();
    assert_eq!(request.api_key, ApiKey::GetTelemetrySubscriptions);
    telemetry.take_reply(at_ms(0), NODE, encoded(&subscription(vec![""])));
    let first = telemetry.next_deadline().unwrap();
    (telemetry, first)
}

/// One with a push in flight, sent at the returned moment.
fn pushing() -> (Telemetry, Moment) {
    let (mut telemetry, first) = subscribed(1);
    assert_eq!(
        telemetry.request(first, WALL).unwrap().api_key,
        ApiKey::PushTelemetry
    );
    (telemetry, first)
}

#[test]
fn the_first_push_comes_after_half_to_one_and_a_half_intervals() {
    let firsts: Vec<u64> = (0..200)
        .map(|seed| subscribed(seed).1.nanos() / 1_000_000)
        .collect();
    assert!(
        firsts.iter().all(|first| (5_000..15_000).contains(first)),
        "{firsts:?}"
    );
    assert!(
        firsts.iter().min().unwrap() < &6_000 && firsts.iter().max().unwrap() > &14_000,
        "{firsts:?}"
    );
}

#[test]
fn a_push_names_the_instance_the_subscription_and_the_preferred_known_codec() {
    let (mut telemetry, first) = subscribed(1);
    assert_eq!(telemetry.instance().get(), Some(INSTANCE));
    assert!(!telemetry.is_due(Moment::from_nanos(first.nanos() - 1)));
    assert!(telemetry.is_due(first));
    let request = telemetry.request(first, WALL).unwrap();
    let push = PushTelemetryRequest::decode(&mut Reader::new(&request.body[0]), 0).unwrap();
    assert_eq!(
        (push.client_instance_id, push.subscription_id, push.terminating),
        (INSTANCE, 42, false)
    );
    assert_eq!(push.compression_type, Codec::Zstd.id() as i8);
    assert_eq!(telemetry.next_deadline(), None, "one request at a time");
    telemetry.take_reply(first, NODE, push_answer(ErrorCode::None));
    assert_eq!(telemetry.next_deadline(), Some(first.after_ms(10_000)));
}

#[test]
fn every_error_has_its_reaction() {
    use ErrorCode as E;
    for (code, expected) in [
        (
            E::UnknownSubscriptionId,
            Some((ApiKey::GetTelemetrySubscriptions, 0)),
        ),
        (
            E::UnsupportedCompressionType,
            Some((ApiKey::GetTelemetrySubscriptions, 0)),
        ),
        (E::TelemetryTooLarge, Some((ApiKey::PushTelemetry, 10_000))),
        (E::ThrottlingQuotaExceeded, Some((ApiKey::PushTelemetry, 10_000))),
        (E::InvalidRequest, None),
        (E::InvalidRecord, None),
        (E::UnsupportedVersion, None),
        (E::UnknownServerError, None),
    ] {
        let (mut telemetry, sent) = pushing();
        telemetry.take_reply(sent, NODE, push_answer(code));
        let next = telemetry
            .next_deadline()
            .map(|at| (telemetry.api_key(), at.ms_since(sent)));
        assert_eq!(next, expected, "{code:?}");
    }
}

#[test]
fn a_broker_cannot_make_it_spin() {
    let mut asking = telemetry(1);
    asking.request(at_ms(0), WALL).unwrap();
    let response = GetTelemetrySubscriptionsResponse {
        error_code: ErrorCode::UnknownSubscriptionId as i16,
        ..subscription(vec![""])
    };
    asking.take_reply(at_ms(0), NODE, encoded(&response));
    assert_eq!(asking.next_deadline(), Some(at_ms(DEFAULT_INTERVAL_MS)));

    let mut hurried = telemetry(1);
    hurried.request(at_ms(0), WALL).unwrap();
    let response = GetTelemetrySubscriptionsResponse {
        push_interval_ms: 1,
        ..subscription(vec![""])
    };
    hurried.take_reply(at_ms(0), NODE, encoded(&response));
    let first = hurried.next_deadline().unwrap();
    assert!(first >= at_ms(INTERVAL_MS_MIN / 2), "{first:?}");
}

#[test]
fn the_counts_of_a_refused_push_are_in_the_next_one() {
    let (mut telemetry, sent) = pushing();
    telemetry.take_reply(sent, NODE, push_answer(ErrorCode::ThrottlingQuotaExceeded));
    assert_eq!(pushed_total(&mut telemetry, sent.after_ms(10_000)), 10.0);
    telemetry.take_reply(sent.after_ms(10_000), NODE, push_answer(ErrorCode::None));
    assert_eq!(pushed_total(&mut telemetry, sent.after_ms(20_000)), 0.0);
}

/// `byte-total` of topic t in the push that is due.
fn pushed_total(telemetry: &mut Telemetry, now: Moment) -> f64 {
    use crate::metrics::otlp::{Data, MetricsData, Number};
    use prost::Message as _;
    let request = telemetry.request(now, WALL).unwrap();
    let push = PushTelemetryRequest::decode(&mut Reader::new(&request.body[0]), 0).unwrap();
    let mut bytes = Vec::new();
    ottla_wire::records::compression::decompress(Codec::Zstd, push.metrics, 1 << 20, &mut bytes).unwrap();
    let data = MetricsData::decode(bytes.as_slice()).unwrap();
    let metrics = &data.resource_metrics[0].scope_metrics[0].metrics;
    let name = "org.apache.kafka.producer.topic.record.send.total";
    match metrics
        .iter()
        .find(|metric| metric.name == name)
        .unwrap()
        .data
        .as_ref()
        .unwrap()
    {
        Data::Sum(sum) => match sum.data_points[0].value.unwrap() {
            Number::Double(value) => value,
            Number::Int(_) => panic!("doubles only"),
        },
        Data::Gauge(_) => panic!("a sum"),
    }
}

#[test]
fn a_broken_connection_costs_one_interval_and_no_double_counting() {
    let (mut telemetry, sent) = pushing();
    telemetry.take_reply(sent, NODE, disconnected());
    assert_eq!(telemetry.next_deadline(), Some(sent.after_ms(10_000)));
    assert_eq!(pushed_total(&mut telemetry, sent.after_ms(10_000)), 0.0);
}

#[test]
fn without_an_interval_a_broken_connection_costs_thirty_seconds() {
    let mut telemetry = telemetry(1);
    telemetry.request(at_ms(0), WALL).unwrap();
    telemetry.take_reply(at_ms(5), NODE, disconnected());
    assert_eq!(telemetry.next_deadline(), Some(at_ms(30_005)));
    assert_eq!(telemetry.api_key(), ApiKey::GetTelemetrySubscriptions);
}

#[test]
fn without_wanted_metrics_it_asks_again_after_an_interval() {
    let mut telemetry = telemetry(1);
    telemetry.request(at_ms(0), WALL).unwrap();
    telemetry.take_reply(at_ms(0), NODE, encoded(&subscription(vec![])));
    assert_eq!(telemetry.next_deadline(), Some(at_ms(10_000)));
    assert_eq!(telemetry.api_key(), ApiKey::GetTelemetrySubscriptions);
    telemetry.close(at_ms(1));
    assert!(
        telemetry.is_closed(at_ms(1)),
        "nothing to push, nothing to wait for"
    );
}

#[test]
fn closing_pushes_a_last_time() {
    let (mut telemetry, _) = subscribed(1);
    telemetry.close(at_ms(100));
    assert!(!telemetry.is_closed(at_ms(100)));
    assert!(telemetry.is_due(at_ms(100)));
    let request = telemetry.request(at_ms(100), WALL).unwrap();
    let push = PushTelemetryRequest::decode(&mut Reader::new(&request.body[0]), 0).unwrap();
    assert!(push.terminating);
    telemetry.take_reply(at_ms(110), NODE, push_answer(ErrorCode::None));
    assert!(telemetry.is_closed(at_ms(110)));
}

#[test]
fn closing_lets_a_push_end_first() {
    let (mut telemetry, sent) = pushing();
    telemetry.close(sent);
    assert!(!telemetry.is_due(sent));
    telemetry.take_reply(sent, NODE, push_answer(ErrorCode::None));
    let request = telemetry.request(sent, WALL).unwrap();
    let push = PushTelemetryRequest::decode(&mut Reader::new(&request.body[0]), 0).unwrap();
    assert!(push.terminating);
}

#[test]
fn closing_does_not_wait_for_a_silent_broker() {
    let (mut telemetry, _) = subscribed(1);
    telemetry.close(at_ms(100));
    telemetry.request(at_ms(100), WALL).unwrap();
    assert_eq!(telemetry.next_deadline(), Some(at_ms(1100)));
    assert!(!telemetry.is_closed(at_ms(1099)));
    assert!(telemetry.is_closed(at_ms(1100)));
}

#[test]
fn switched_off_it_sends_nothing_and_reports_that() {
    let metrics = busy_client(ClientKind::Producer).0;
    let mut telemetry = Telemetry::with_limits(false, 30_000, metrics, 1);
    assert!(!telemetry.is_due(Moment::NEVER));
    assert_eq!(telemetry.next_deadline(), None);
    let answer = telemetry.instance().wait(Duration::from_secs(60));
    assert!(matches!(answer, Err(Error::IllegalState { .. })), "{answer:?}");
    telemetry.close(at_ms(0));
    assert!(telemetry.is_closed(at_ms(0)));
}

#[test]
fn nonsense_switches_it_off() {
    let mut telemetry = telemetry(1);
    telemetry.request(at_ms(0), WALL).unwrap();
    telemetry.take_reply(at_ms(0), NODE, Ok(Bytes::from_static(&[1, 2, 3])));
    assert_eq!(telemetry.next_deadline(), None);
}
