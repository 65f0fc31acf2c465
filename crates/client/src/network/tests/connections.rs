//! Connections: negotiated, used, timed out, broken, reconnected.

use super::world::*;

#[test]
fn the_first_turn_connects_negotiates_and_asks_for_metadata() {
    let mut world = World::new(Interest::Nodes);
    world.turn();
    assert_eq!(world.attempts, [(world.now, address(9))]);
    let connection = world.to(9);
    world.tell(Event::Connected { connection });
    let request = world.take(ApiKey::ApiVersions);
    assert_eq!((request.api_version, &*request.client_id), (4, "test"));
    let asked = ApiVersionsRequest::decode(&mut Reader::new(&request.body), 4).unwrap();
    assert_eq!(asked.client_software_name, "ottla-client");
    world.answer_versions(&request, &[(ApiKey::Metadata, 0, 8)]);
    let request = world.seen[0].clone();
    assert_eq!((request.api_key, request.api_version), (ApiKey::Metadata, 8));
    assert_eq!(names(&request), Some(Vec::new()));
    world.answer_metadata(Vec::new());
    let snapshot = world.cluster.snapshot();
    assert_eq!(snapshot.nodes[&OTHER].address, address(2));
    assert_eq!((snapshot.controller, snapshot.version), (Some(NODE), 1));
    // The bootstrap connection is closed once brokers are known.
    assert!(world.connections.is_empty());
}

#[test]
fn a_broker_of_kafka_2_1_gets_versions_that_it_supports() {
    let mut world = World::new(Interest::Named);
    world.metadata.want(["t"]);
    world.turn();
    let connection = world.to(9);
    world.tell(Event::Connected { connection });
    let request = world.take(ApiKey::ApiVersions);
    // Older than KIP-511: the response does not say which versions it supports.
    let refusal = ApiVersionsResponse {
        error_code: ErrorCode::UnsupportedVersion.code(),
        ..Default::default()
    };
    world.answer(&request, |body, _| refusal.encode(body, 0));
    let request = world.take(ApiKey::ApiVersions);
    assert_eq!(request.api_version, 0);
    world.answer_versions(&request, &[(ApiKey::Metadata, 0, 7), (ApiKey::Produce, 0, 7)]);
    assert_eq!(world.seen[0].api_version, 7);
    world.answer_metadata(vec![topic("t", 2, 3)]);
    let snapshot = world.cluster.snapshot();
    assert_eq!(snapshot.leader("t", 0), Some(OTHER));
    // Leader epochs of brokers before 2.4 are unreliable.
    assert_eq!(snapshot.topics["t"].partitions[0].leader_epoch, -1);
}

#[test]
fn answers_are_matched_with_their_requests() {
    let mut world = World::ready(Interest::Nodes);
    world.connect(NODE);
    world.send(NODE, 10, 1000, true);
    world.send(NODE, 11, 1000, true);
    assert_eq!(world.cluster.in_flight(NODE), 2);
    for body in ["first", "second"] {
        let request = world.take(ApiKey::Heartbeat);
        assert_eq!(request.body, b"beat");
        world.answer(&request, |frame, _| frame.extend_from_slice(body.as_bytes()));
    }
    assert_eq!(
        world.outcomes(),
        [(10, Ok(Bytes::from("first"))), (11, Ok(Bytes::from("second")))]
    );
    assert_eq!(world.cluster.in_flight(NODE), 0);
}

#[test]
fn a_request_without_an_answer_is_replied_to_at_once() {
    let mut world = World::ready(Interest::Nodes);
    world.connect(NODE);
    world.send(NODE, 10, 1000, false);
    assert_eq!(world.cluster.in_flight(NODE), 0);
    world.turn();
    assert_eq!(world.outcomes(), [(10, Ok(Bytes::new()))]);
}

#[test]
fn a_wrong_correlation_id_closes_the_connection() {
    let mut world = World::ready(Interest::Nodes);
    world.connect(NODE);
    world.send(NODE, 10, 1000, true);
    world.send(NODE, 11, 1000, true);
    let mut request = world.take(ApiKey::Heartbeat);
    request.correlation_id += 1;
    world.answer(&request, |_, _| ());
    let outcomes = world.outcomes();
    assert_eq!(outcomes.len(), 2);
    for (_, result) in outcomes {
        let Err(Error::Malformed { address, reason }) = result else {
            panic!("{result:?}");
        };
        assert_eq!(&*address, "broker:1");
        assert!(
            reason.starts_with("correlation id 2 where 1 was expected"),
            "{reason}"
        );
    }
    assert!(!world.connections.contains_key(&request.connection));
    assert!(matches!(
        world.cluster.readiness(world.now, NODE),
        Readiness::BackingOff(_)
    ));
}

#[test]
fn a_silent_broker_loses_the_connection_and_every_request_on_it() {
    let mut world = World::ready(Interest::Nodes);
    world.connect(NODE);
    world.send(NODE, 10, 1000, true);
    world.send(NODE, 11, 5000, true);
    world.sleep(1000);
    let outcomes = world.outcomes();
    assert_eq!(
        outcomes[0].1.as_ref().unwrap_err().to_string(),
        "Heartbeat request to broker:1 not done after 1000 ms (request.timeout.ms)"
    );
    assert!(matches!(outcomes[1].1, Err(Error::Disconnected { .. })));
    assert!(
        outcomes
            .iter()
            .all(|(_, result)| result.as_ref().unwrap_err().is_retriable())
    );
    assert!(!world.connections.values().any(|address| address.port == 1));
}

#[test]
fn a_lost_connection_fails_its_requests_and_late_events_are_ignored() {
    let mut world = World::ready(Interest::Nodes);
    world.connect(NODE);
    world.connect(OTHER);
    world.send(NODE, 10, 1000, true);
    world.send(OTHER, 20, 1000, true);
    let request = world.take(ApiKey::Heartbeat);
    world.refuse(1);
    assert_eq!(
        world
            .outcomes()
            .iter()
            .map(|(ticket, _)| *ticket)
            .collect::<Vec<_>>(),
        [10]
    );
    world.answer(&request, |_, _| ());
    assert!(world.outcomes().is_empty());
    assert_eq!(world.cluster.in_flight(OTHER), 1);
}

#[test]
fn a_closed_request_is_sent_nowhere() {
    let mut world = World::ready(Interest::Nodes);
    world.send(NODE, 10, 1000, true);
    world.turn();
    assert!(matches!(
        world.outcomes()[..],
        [(10, Err(Error::Disconnected { .. }))]
    ));
    let unknown = world.cluster.readiness(world.now, NodeId(77));
    assert!(matches!(
        unknown,
        Readiness::Impossible(Error::Disconnected { .. })
    ));
}

#[test]
fn refused_connections_are_retried_with_growing_backoff() {
    let mut world = World::new(Interest::Nodes);
    world.turn();
    for _ in 0..12 {
        world.refuse(9);
        // Frequent calls of `readiness` or `least_loaded` must not hurry the next attempt.
        assert!(world.cluster.least_loaded(world.now).is_none());
        world.sleep(1200);
    }
    let waits: Vec<u64> = world
        .attempts
        .windows(2)
        .map(|pair| pair[1].0.ms_since(pair[0].0))
        .collect();
    assert!((40..=60).contains(&waits[0]), "{waits:?}");
    assert!(waits[1..5].is_sorted(), "{waits:?}");
    assert!(
        waits[6..].iter().all(|wait| (800..=1200).contains(wait)),
        "{waits:?}"
    );
    assert!(
        waits[6..].windows(2).any(|pair| pair[0] != pair[1]),
        "no jitter: {waits:?}"
    );
}

#[test]
fn a_ready_connection_forgets_its_failures() {
    let mut world = World::ready(Interest::Nodes);
    for _ in 0..6 {
        if let Readiness::BackingOff(at) = world.cluster.readiness(world.now, NODE) {
            world.now = at;
        }
        assert_eq!(world.cluster.readiness(world.now, NODE), Readiness::Connecting);
        world.turn();
        world.refuse(1);
    }
    let Readiness::BackingOff(at) = world.cluster.readiness(world.now, NODE) else {
        panic!("not backing off");
    };
    assert!(at.ms_since(world.now) > 700);
    world.now = at;
    world.connect(NODE);
    world.refuse(1);
    let Readiness::BackingOff(at) = world.cluster.readiness(world.now, NODE) else {
        panic!("not backing off");
    };
    assert!(at.ms_since(world.now) <= 60);
}

#[test]
fn a_machine_that_has_to_wait_is_called_when_the_wait_is_over() {
    let mut world = World::ready(Interest::Nodes);
    world.connect(NODE);
    world.refuse(1);
    let Readiness::BackingOff(at) = world.cluster.readiness(world.now, NODE) else {
        panic!("not backing off");
    };
    assert!(world.cluster.next_deadline().unwrap() <= at);
}

#[test]
fn a_connection_that_hangs_is_given_up() {
    let mut world = World::new(Interest::Nodes);
    world.turn();
    world.sleep(12_000);
    assert!(world.connections.is_empty());
    assert!(world.now.ms_since(Moment::from_nanos(1_000_000_000)) >= 8000);
    // The next attempt gets more time (socket.connection.setup.timeout.max.ms).
    world.sleep(60);
    let started = world.now;
    world.sleep(24_000);
    assert!(world.now.ms_since(started) >= 16_000);
}

#[test]
fn an_unused_connection_is_closed_without_backoff() {
    let mut config = client_config(address(9));
    config.connections_idle_ms_max = 5000;
    let mut world = World::with(Interest::Nodes, config);
    world.turn();
    world.accept(9);
    world.answer_metadata(Vec::new());
    world.connect(NODE);
    world.send(NODE, 1, 30_000, true);
    // In use as long as an answer is awaited.
    world.now = world.now.after_ms(20_000);
    world.turn();
    let request = world.take(ApiKey::Heartbeat);
    world.answer(&request, |_, _| ());
    assert!(!world.connections.is_empty());
    world.sleep(5000);
    assert!(world.connections.is_empty());
    assert_eq!(world.cluster.readiness(world.now, NODE), Readiness::Connecting);
}

#[test]
fn a_throttled_node_gets_no_request_before_its_time() {
    let mut world = World::ready(Interest::Nodes);
    world.connect(NODE);
    world.cluster.throttle(world.now, NODE, 300);
    let until = world.now.after_ms(300);
    assert_eq!(
        world.cluster.readiness(world.now, NODE),
        Readiness::BackingOff(until)
    );
    world.now = until;
    assert_eq!(world.cluster.readiness(world.now, NODE), Readiness::Ready);
}

#[test]
fn the_least_loaded_ready_node_is_chosen() {
    let mut world = World::ready(Interest::Nodes);
    world.connect(NODE);
    world.connect(OTHER);
    world.send(NODE, 1, 1000, true);
    assert_eq!(world.cluster.least_loaded(world.now), Some(OTHER));
    world.send(OTHER, 2, 1000, true);
    world.send(OTHER, 3, 1000, true);
    assert_eq!(world.cluster.least_loaded(world.now), Some(NODE));
}

#[test]
fn an_extra_node_lives_until_it_is_removed() {
    let mut world = World::ready(Interest::Nodes);
    let coordinator = NodeId(i32::MAX - 1);
    world.cluster.add_node(coordinator, address(1));
    assert_eq!(
        world.cluster.readiness(world.now, coordinator),
        Readiness::Connecting
    );
    world.turn();
    world.accept(1);
    assert_eq!(world.cluster.readiness(world.now, coordinator), Readiness::Ready);
    // It belongs to its owner: metadata requests do not go there.
    assert_eq!(world.cluster.least_loaded(world.now), None);
    world.cluster.remove_node(coordinator);
    world.turn();
    assert!(matches!(
        world.cluster.readiness(world.now, coordinator),
        Readiness::Impossible(_)
    ));
}

#[test]
fn a_broker_that_stays_away_is_told_once_above_debug() {
    let mut lines = told(|| {
        let mut world = World::ready(Interest::Nodes);
        world.connect(NODE);
        let connection = world.to(NODE.0 as u16);
        let reason = Error::Disconnected {
            address: "broker:1".into(),
            reason: "reset".into(),
        };
        world.tell(Event::Closed { connection, reason });
        for _ in 0..4 {
            world.now = world.now.after_ms(10_000);
            world.cluster.readiness(world.now, NODE);
            world.turn();
            world.refuse(NODE.0 as u16);
        }
    });
    lines.retain(|line| line.contains("node=1 "));
    let levels: Vec<(&str, &str)> = lines
        .iter()
        .filter_map(|line| line.split_once(" ottla_client: "))
        .map(|(level, rest)| (level, rest.split(" client_id").next().unwrap()))
        .collect();
    let failure = ("DEBUG", "connection fails");
    assert_eq!(
        levels,
        [
            ("DEBUG", "connection up"),
            ("INFO", "connection down"),
            ("WARN", "connection fails"),
            failure,
            failure,
            failure
        ],
        "{lines:#?}"
    );
}
