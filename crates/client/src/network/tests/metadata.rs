//! Metadata: when it is requested, and which answers are accepted.

use super::world::*;

#[test]
fn a_waiting_topic_is_asked_for_at_once_and_alone() {
    let mut world = World::ready(Interest::Named);
    assert!(world.metadata.want(["a"]));
    assert!(!world.metadata.want(["a"]));
    world.turn();
    world.until_metadata();
    assert_eq!(world.now, Moment::from_nanos(1_000_000_000));
    assert_eq!(names(&world.seen[0]), Some(vec!["a".into()]));
    world.answer_metadata(vec![topic("a", 1, 0)]);
    world.metadata.want(["b"]);
    world.turn();
    assert_eq!(names(&world.seen[0]), Some(vec!["b".into()]));
    world.answer_metadata(vec![topic("b", 2, 0)]);
    let snapshot = world.cluster.snapshot();
    assert_eq!(
        (snapshot.leader("a", 0), snapshot.leader("b", 0)),
        (Some(NODE), Some(OTHER))
    );
    // Outdated metadata is requested as a whole, after retry.backoff.ms.
    world.cluster.request_metadata();
    world.turn();
    assert!(world.seen.is_empty());
    world.sleep(120);
    assert_eq!(names(&world.seen[0]), Some(vec!["a".into(), "b".into()]));
}

#[test]
fn leaders_change_and_never_go_back() {
    let mut world = World::new(Interest::Named);
    world.metadata.want(["t"]);
    world.turn();
    world.accept(9);
    world.answer_metadata(vec![topic("t", 1, 5)]);
    let mut answer = |topics: Vec<MetadataResponseTopic<'static>>| {
        world.cluster.request_metadata();
        world.until_metadata();
        world.answer_metadata(topics);
        world.cluster.snapshot()
    };
    assert_eq!(answer(vec![topic("t", 2, 6)]).leader("t", 0), Some(OTHER));
    // A lagging broker still names the former leader.
    let stale = answer(vec![topic("t", 1, 5)]);
    assert_eq!(
        (stale.leader("t", 0), stale.topics["t"].partitions[0].leader_epoch),
        (Some(OTHER), 6)
    );
    // A topic recreated under the same name starts again.
    let mut anew = topic("t", 1, 0);
    anew.topic_id = Uuid([6; 16]);
    let snapshot = answer(vec![anew]);
    assert_eq!(
        (
            snapshot.leader("t", 0),
            snapshot.topics["t"].partitions[0].leader_epoch
        ),
        (Some(NODE), 0)
    );
}

#[test]
fn missing_topics_are_requested_again_and_refused_ones_are_not() {
    let mut world = World::new(Interest::Named);
    world.metadata.want(["late", "bad name", "secret"]);
    world.turn();
    world.accept(9);
    world.answer_metadata(vec![
        broken_topic("late", ErrorCode::UnknownTopicOrPartition),
        broken_topic("bad name", ErrorCode::InvalidTopicException),
        broken_topic("secret", ErrorCode::TopicAuthorizationFailed),
    ]);
    let snapshot = world.cluster.snapshot();
    assert_eq!(
        snapshot.refused.keys().map(|name| &**name).collect::<Vec<_>>(),
        ["bad name", "secret"]
    );
    assert!(world.metadata.wait_for_topic("bad name", 60_000).is_err());
    world.until_metadata();
    assert_eq!(names(&world.seen[0]).unwrap().len(), 3);
    world.answer_metadata(vec![topic("late", -1, 0)]);
    // Without a leader: known, but it is asked for again.
    assert_eq!(world.cluster.snapshot().leader("late", 0), None);
    world.sleep(300);
    world.answer_metadata(vec![
        topic("late", 1, 0),
        topic("secret", 1, 0),
        topic("bad name", 1, 0),
    ]);
    assert!(world.cluster.snapshot().refused.is_empty());
    assert_eq!(world.cluster.snapshot().leader("late", 0), Some(NODE));
    assert!(world.cluster.next_deadline().unwrap() > world.now.after_ms(100_000));
}

#[test]
fn an_unused_topic_is_forgotten() {
    let mut world = World::new(Interest::Named);
    world.metadata.want(["used", "idle"]);
    world.turn();
    world.accept(9);
    world.answer_metadata(vec![topic("used", 1, 0), topic("idle", 1, 0)]);
    for _ in 0..3 {
        world.metadata.topic("used").unwrap();
        world.until_metadata();
        let asked = names(&world.seen[0]).unwrap();
        let topics = asked.iter().map(|name| topic(name, 1, 0)).collect();
        world.answer_metadata(topics);
    }
    let snapshot = world.cluster.snapshot();
    assert_eq!(
        snapshot.topics.keys().map(|name| &**name).collect::<Vec<_>>(),
        ["used"]
    );
}

#[test]
fn when_no_known_broker_can_be_reached_the_bootstrap_servers_are_asked_again() {
    let mut world = World::ready(Interest::Nodes);
    world.cluster.request_metadata();
    for _ in 0..50 {
        let bootstrap = world
            .attempts
            .iter()
            .filter(|(_, address)| address.port == 9)
            .count();
        if bootstrap > 1 {
            break;
        }
        match world.connections.values().next().map(|address| address.port) {
            Some(port) => world.refuse(port),
            None => world.sleep(1200),
        }
    }
    assert!(world.attempts.iter().any(|(_, address)| address.port == 2));
    assert_eq!(world.attempts.last().unwrap().1, address(9));
    // The old metadata stays until there is a newer one.
    assert_eq!(world.cluster.snapshot().nodes.len(), 2);
    world.accept(9);
    world.answer_metadata(Vec::new());
    assert_eq!(world.cluster.snapshot().version, 2);
}

#[test]
fn a_broker_that_asks_for_a_rebootstrap_is_not_asked_again() {
    let mut world = World::ready(Interest::Nodes);
    world.connect(NODE);
    world.cluster.request_metadata();
    world.until_metadata();
    let request = world.take(ApiKey::Metadata);
    let response = MetadataResponse {
        brokers: vec![broker(1)],
        error_code: ErrorCode::RebootstrapRequired.code(),
        ..Default::default()
    };
    world.answer(&request, |body, version| response.encode(body, version));
    assert!(world.cluster.snapshot().nodes.is_empty());
    world.until_metadata();
    assert_eq!(world.attempts.last().unwrap().1, address(9));
    world.answer_metadata(Vec::new());
    assert_eq!(world.cluster.snapshot().nodes.len(), 2);
}

#[test]
fn a_pattern_needs_all_topics_and_sees_new_ones() {
    let mut world = World::new(Interest::All);
    world.until_metadata();
    assert_eq!(names(&world.seen[0]), None);
    world.answer_metadata(vec![topic("a", 1, 0)]);
    world.until_metadata();
    assert_eq!(names(&world.seen[0]), None);
    world.answer_metadata(vec![topic("b", 1, 0)]);
    let snapshot = world.cluster.snapshot();
    assert_eq!(
        snapshot.topics.keys().map(|name| &**name).collect::<Vec<_>>(),
        ["b"]
    );
    world.metadata.set_interest(Interest::Nodes);
    world.until_metadata();
    assert_eq!(names(&world.seen[0]), Some(Vec::new()));
}

#[test]
fn hostile_metadata_is_malformed_and_changes_nothing() {
    let huge = |index| {
        let mut topic = topic("t", 1, 0);
        topic.partitions[0].partition_index = index;
        topic
    };
    for bad in [huge(i32::MAX), huge(-1)] {
        let mut world = World::new(Interest::Named);
        world.metadata.want(["t"]);
        world.turn();
        world.accept(9);
        world.answer_metadata(vec![bad]);
        assert_eq!(world.cluster.snapshot().version, 0);
        assert!(world.connections.is_empty());
    }
}

#[test]
fn a_timeout_on_an_unreachable_cluster_gives_the_reason() {
    let mut world = World::new(Interest::Named);
    world.metadata.want(["t"]);
    world.turn();
    let connection = world.to(9);
    let reason = Error::Resolve {
        host: "broker".into(),
        reason: "no such host".into(),
    };
    world.tell(Event::Closed { connection, reason });
    let error = world.metadata.wait_for_topic("t", 1).unwrap_err();
    assert_eq!(
        error.to_string(),
        "topic t not present in metadata after 1 ms (host broker cannot be resolved: no such host)"
    );
    assert!(error.is_retriable());
}

#[test]
fn a_failed_authentication_is_reported_to_every_waiter() {
    let mut world = World::new(Interest::Named);
    world.turn();
    let connection = world.to(9);
    let reason = Error::Tls {
        address: "broker:9".into(),
        reason: "certificate expired".into(),
    };
    world.tell(Event::Closed {
        connection,
        reason: reason.clone(),
    });
    assert_eq!(world.metadata.wait_for_topic("t", 60_000).unwrap_err(), reason);
    assert!(matches!(
        world.cluster.readiness(world.now, NodeId(-1)),
        Readiness::Impossible(Error::Tls { .. })
    ));
}

#[test]
fn a_topic_that_does_not_exist_is_told_once() {
    let events = told(|| {
        let mut world = World::ready(Interest::Named);
        world.metadata.want(["misspelt", "fine"]);
        world.turn();
        let mut answer = |code| {
            world.until_metadata();
            world.answer_metadata(vec![broken_topic("misspelt", code), topic("fine", 1, 0)]);
            world.cluster.request_metadata();
        };
        // A broker that is about to create the topic answers like this once.
        answer(ErrorCode::UnknownTopicOrPartition);
        answer(ErrorCode::None);
        for _ in 0..5 {
            answer(ErrorCode::UnknownTopicOrPartition);
        }
        answer(ErrorCode::None);
        for _ in 0..2 {
            answer(ErrorCode::UnknownTopicOrPartition);
        }
        for _ in 0..3 {
            answer(ErrorCode::TopicAuthorizationFailed);
        }
    });
    let topics: Vec<&str> = events
        .iter()
        .filter(|line| line.contains("topic="))
        .map(String::as_str)
        .collect();
    let [unknown, again, refused] = topics[..] else {
        panic!("{topics:#?}");
    };
    assert_eq!(
        unknown,
        r#"WARN ottla_client: topic does not exist client_id="test" topic="misspelt""#
    );
    assert_eq!(again, unknown);
    assert!(
        refused.starts_with(
            r#"WARN ottla_client: topic refused client_id="test" topic="misspelt" error=misspelt: TOPIC_AUTH"#
        ),
        "{refused}"
    );
}
