//! `group.protocol=consumer`: one behaviour of a member per test.

use ottla_wire::messages::consumer_group_heartbeat::{
    Assignment, ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatResponseTopicPartitions,
};

use super::*;

const NEW: [(&str, &str); 1] = [("group.protocol", "consumer")];

/// What a heartbeat said.
#[derive(Debug, PartialEq)]
struct Said {
    epoch: i32,
    names: Option<Vec<String>>,
    pattern: Option<String>,
    owned: Option<Vec<(Uuid, Vec<i32>)>>,
    rebalance_timeout_ms: i32,
}

fn member(settings: &[(&str, &str)]) -> Bench {
    let mut bench = bench(&[&NEW, settings].concat(), Subscription::topics(["a"]));
    bench.poll();
    bench.find_coordinator();
    bench
}

/// A member of epoch 1 that owns these partitions of topic a.
fn settled(partitions: &[i32]) -> Bench {
    let mut bench = member(&[]);
    bench.beat(ErrorCode::None, 1, Some(&[("a", partitions)]));
    bench.acknowledge_call();
    bench.beat(ErrorCode::None, 1, None);
    bench
}

impl Bench {
    /// Answers the next heartbeat and returns what it said.
    fn beat(&mut self, code: ErrorCode, epoch: i32, assigned: Option<&[(&str, &[i32])]>) -> Said {
        self.turn();
        let (request, ticket, sent) = self.sent(ApiKey::ConsumerGroupHeartbeat);
        let mut reader = Reader::new(&sent);
        let read = ConsumerGroupHeartbeatRequest::decode(&mut reader, request.api_version).unwrap();
        let said = Said {
            epoch: read.member_epoch,
            names: read
                .subscribed_topic_names
                .map(|names| names.into_iter().map(str::to_owned).collect()),
            pattern: read.subscribed_topic_regex.map(str::to_owned),
            owned: read.topic_partitions.map(|topics| {
                let parts = topics.into_iter().map(|topic| (topic.topic_id, topic.partitions));
                parts.collect()
            }),
            rebalance_timeout_ms: read.rebalance_timeout_ms,
        };
        let topics = |assigned: &[(&str, &[i32])]| {
            let topics =
                assigned.iter().map(
                    |(name, partitions)| ConsumerGroupHeartbeatResponseTopicPartitions {
                        topic_id: id_of(name),
                        partitions: partitions.to_vec(),
                    },
                );
            topics.collect()
        };
        let response = ConsumerGroupHeartbeatResponse {
            error_code: code.code(),
            member_id: Some(read.member_id),
            member_epoch: epoch,
            heartbeat_interval_ms: 1_000,
            assignment: assigned.map(|assigned| Assignment {
                topic_partitions: topics(assigned),
            }),
            ..Default::default()
        };
        let mut body = Vec::new();
        response.encode(&mut body, request.api_version);
        self.answer(&request, ticket, Ok(body));
        said
    }

    /// The next call of the application's thread, which is then done.
    fn acknowledge_call(&mut self) -> RebalanceStep {
        while let Some(event) = self.events.pop_front() {
            if let GroupEvent::Call(call) = event {
                self.machine.acknowledge(self.now, call.id, Offsets::new());
                self.turn();
                return call.step;
            }
        }
        panic!("no call");
    }
}

fn of_a(partitions: &[i32]) -> BTreeSet<TopicPartition> {
    let all = partitions.iter().map(|index| TopicPartition::new("a", *index));
    all.collect()
}

#[test]
fn a_member_joins_with_everything_and_confirms_its_assignment_after_the_listener() {
    let mut bench = member(&[]);
    let said = bench.beat(ErrorCode::None, 1, Some(&[("a", &[0, 1])]));
    assert_eq!((said.epoch, said.names), (0, Some(vec!["a".to_owned()])));
    assert_eq!(
        (said.owned, said.rebalance_timeout_ms),
        (Some(Vec::new()), 300_000)
    );
    bench.nothing_sent();
    assert_eq!(bench.acknowledge_call(), RebalanceStep::Assigned(of_a(&[0, 1])));
    let said = bench.beat(ErrorCode::None, 1, None);
    assert_eq!(said.owned, Some(vec![(id_of("a"), vec![0, 1])]));
    assert_eq!((said.names, said.rebalance_timeout_ms), (None, -1));
    // From now on nothing, at the interval of the answer.
    bench.nothing_sent();
    bench.pass_ms(1_000);
    let said = bench.beat(ErrorCode::None, 1, None);
    assert_eq!((said.epoch, said.owned), (1, None));
    assert!(bench.machine.is_stable());
}

#[test]
fn partitions_are_revoked_before_others_are_taken() {
    let mut bench = settled(&[0, 1]);
    bench.pass_ms(1_000);
    bench.beat(ErrorCode::None, 2, Some(&[("a", &[1, 2])]));
    assert_eq!(bench.acknowledge_call(), RebalanceStep::Revoked(of_a(&[0])));
    assert_eq!(bench.acknowledge_call(), RebalanceStep::Assigned(of_a(&[2])));
    assert_eq!(bench.machine.assignment(), &of_a(&[1, 2]));
    let said = bench.beat(ErrorCode::None, 2, None);
    assert_eq!(said.owned, Some(vec![(id_of("a"), vec![1, 2])]));
}

#[test]
fn a_fenced_member_loses_everything_and_joins_again_under_its_id() {
    for code in [ErrorCode::FencedMemberEpoch, ErrorCode::UnknownMemberId] {
        let mut bench = settled(&[0]);
        let id = bench.machine.group_metadata().member_id;
        bench.pass_ms(1_000);
        bench.beat(code, 0, None);
        bench.nothing_sent();
        assert_eq!(bench.acknowledge_call(), RebalanceStep::Lost(of_a(&[0])));
        let said = bench.beat(ErrorCode::None, 5, Some(&[("a", &[3])]));
        assert_eq!((said.epoch, said.owned), (0, Some(Vec::new())));
        let metadata = bench.machine.group_metadata();
        assert_eq!((metadata.generation_id, metadata.member_id), (5, id));
    }
}

#[test]
fn a_topic_without_a_name_waits_for_the_metadata() {
    let mut bench = member(&[]);
    bench.beat(ErrorCode::None, 1, Some(&[("z", &[0])]));
    assert_eq!(bench.acknowledge_call(), RebalanceStep::Assigned(BTreeSet::new()));
    bench.set_topics(&[("a", 4), ("z", 1)]);
    bench.turn();
    let added = BTreeSet::from([TopicPartition::new("z", 0)]);
    assert_eq!(bench.acknowledge_call(), RebalanceStep::Assigned(added));
}

#[test]
fn a_pattern_goes_to_the_broker_in_its_own_syntax() {
    // A quotation, which this client's own expressions do not have.
    let text = "\\Qa.b\\E.*";
    assert!(TopicPattern::parse(text).is_err());
    let pattern = TopicPattern::of_broker(text);
    let mut bench = bench(&NEW, Subscription::Pattern(pattern));
    bench.poll();
    bench.find_coordinator();
    let said = bench.beat(ErrorCode::None, 1, None);
    assert_eq!(
        (said.names, said.pattern.as_deref()),
        (Some(Vec::new()), Some(text))
    );
}

#[test]
fn a_member_leaves_with_minus_one_and_a_static_one_with_minus_two() {
    for (settings, epoch) in [(&[][..], -1), (&[("group.instance.id", "s")][..], -2)] {
        let mut bench = member(settings);
        bench.beat(ErrorCode::None, 1, Some(&[("a", &[0])]));
        bench.acknowledge_call();
        bench.beat(ErrorCode::None, 1, None);
        bench.machine.close(bench.now, bench.now.after_ms(5_000));
        bench.turn();
        assert_eq!(bench.acknowledge_call(), RebalanceStep::Revoked(of_a(&[0])));
        assert_eq!(bench.beat(ErrorCode::None, epoch, None).epoch, epoch);
        bench.turn();
        assert!(bench.machine.is_closed());
    }
}

#[test]
fn a_refusal_reaches_the_application_and_is_tried_again_after_its_next_poll() {
    let mut bench = member(&[("group.remote.assignor", "none-such")]);
    bench.beat(ErrorCode::UnsupportedAssignor, 0, None);
    let failed = |event: &GroupEvent| {
        matches!(
            event,
            GroupEvent::Failed(Error::Broker {
                code: ErrorCode::UnsupportedAssignor,
                ..
            })
        )
    };
    assert!(bench.events.iter().any(failed));
    bench.pass_ms(60_000);
    bench.nothing_sent();
    bench.poll();
    bench.pass_ms(1_000);
    assert_eq!(bench.beat(ErrorCode::None, 1, None).epoch, 0);
}
