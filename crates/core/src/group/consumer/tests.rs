//! One behaviour of consumer groups per test.

use std::collections::BTreeSet;
use std::sync::Arc;

use ottla_wire::error_code::ErrorCode;
use ottla_wire::primitives::Uuid;

use crate::access::Caller;
use crate::group::config::{ConsumerConfig, GroupConfig};
use crate::group::held::{Held, Standing};
use crate::group::machine::Machine;
use crate::group::rebalances::Cause;
use crate::group::record::{GroupRecord, StoredGroup};
use crate::group::reply::{GroupReply, Step};
use crate::group::request::{
    GroupRequest, JoinRequest, LeaveRequest, ListRequest, MemberRequest, OffsetCommitPartition,
    OffsetCommitRequest, OffsetCommitTopic, OffsetDeleteRequest, OffsetDeleteTopic, OffsetFetchRequest,
    Ticket,
};
use crate::group::tests::rebalances;
use crate::image::topics::TopicsImage;
use crate::time::Now;
use crate::time::{Moment, Timestamp};

use super::assignment::{Partitions, flat};
use super::assignor::{Assignor, AssignorInput, AssignorMember};
use super::describe::DescribedConsumerGroup;
use super::heartbeat::SOON_MS;
use super::member::MemberState;
use super::record::ConsumerRecord;
use super::request::{ConsumerHeartbeat, GroupSettings, HeartbeatReply, HeartbeatResult};

pub(super) const GROUP: &str = "g";
pub(super) const T: Uuid = Uuid([1; 16]);
const U: Uuid = Uuid([2; 16]);
const SESSION_MS: i32 = 45_000;
const REBALANCE_MS: i32 = 60_000;

pub(super) fn heartbeat<'a>(
    topics: &Arc<TopicsImage>,
    member_id: &'a str,
    epoch: i32,
) -> ConsumerHeartbeat<'a> {
    ConsumerHeartbeat {
        group_id: GROUP,
        member_id,
        member_epoch: epoch,
        instance_id: None,
        rack_id: None,
        rebalance_timeout_ms: None,
        topic_names: None,
        regex: None,
        assignor: None,
        owned: None,
        client_id: "c",
        client_host: "/127.0.0.1",
        settings: GroupSettings {
            session_timeout_ms: SESSION_MS,
            heartbeat_interval_ms: 5_000,
            assignment_interval_ms: 0,
        },
        topics: topics.clone(),
        caller: Caller::unlimited(),
    }
}

pub(super) struct Bench {
    pub machine: Machine,
    config: Arc<GroupConfig>,
    pub now: Now,
    pub log: Vec<GroupRecord>,
    pub topics: Arc<TopicsImage>,
}

impl Bench {
    pub fn new() -> Bench {
        Bench::with(ConsumerConfig::default())
    }

    pub fn with(consumer: ConsumerConfig) -> Bench {
        let config = Arc::new(GroupConfig {
            consumer,
            initial_rebalance_delay_ms: 0,
            ..GroupConfig::default()
        });
        let now = Now {
            moment: Moment::from_micros(0),
            timestamp: Timestamp(1_700_000_000_000),
        };
        let mut machine = Machine::new(config.clone(), 1);
        machine.arm(now);
        Bench {
            machine,
            config,
            now,
            log: Vec::new(),
            topics: Arc::new(TopicsImage::of(&[("t", T, 4)])),
        }
    }

    pub fn take(&mut self, step: Step) -> Option<GroupReply> {
        self.log.extend(step.records);
        step.replies.into_iter().next().map(|(_, reply)| reply)
    }

    pub fn ask(&mut self, request: GroupRequest<'_>) -> GroupReply {
        let step = self.machine.handle(self.now, Ticket(1), request);
        self.take(step).expect("answered at once")
    }

    pub fn beat(&mut self, request: ConsumerHeartbeat<'_>) -> HeartbeatResult {
        match self.ask(GroupRequest::ConsumerHeartbeat(Box::new(request))) {
            GroupReply::ConsumerHeartbeat(result) => result,
            other => panic!("{other:?}"),
        }
    }

    pub fn error(&mut self, request: ConsumerHeartbeat<'_>) -> ErrorCode {
        self.beat(request).expect_err("refused").error
    }

    pub fn joining<'a>(&self, member_id: &'a str) -> ConsumerHeartbeat<'a> {
        ConsumerHeartbeat {
            rebalance_timeout_ms: Some(REBALANCE_MS),
            topic_names: Some(vec!["t"]),
            owned: Some(Partitions::new()),
            ..heartbeat(&self.topics, member_id, 0)
        }
    }

    pub fn join(&mut self, member_id: &str) -> HeartbeatReply {
        let request = self.joining(member_id);
        self.beat(request).expect("admitted")
    }

    /// A heartbeat that says what the member owns.
    pub fn owning(&mut self, member_id: &str, epoch: i32, owned: &[i32]) -> HeartbeatReply {
        let owned = Some(owned.iter().map(|partition| (T, *partition)).collect());
        let request = ConsumerHeartbeat {
            owned,
            ..heartbeat(&self.topics, member_id, epoch)
        };
        self.beat(request).expect("accepted")
    }

    pub fn plain(&self, member_id: &'static str, epoch: i32) -> ConsumerHeartbeat<'static> {
        heartbeat(&self.topics, member_id, epoch)
    }

    pub fn pass(&mut self, ms: i32) {
        self.now.moment = self.now.moment.after_ms(ms as u64);
        self.now.timestamp.0 += i64::from(ms);
        let step = self.machine.on_deadline(self.now);
        self.take(step);
    }

    pub fn replay(&mut self) {
        let before = format!("{:?}", self.machine.hard_state());
        self.machine = Machine::new(self.config.clone(), 2);
        for record in &self.log {
            let (mut key, mut value) = (Vec::new(), Vec::new());
            let value = record.encode(&mut key, &mut value).map(<[u8]>::to_vec);
            let decoded = GroupRecord::decode(&key, value.as_deref()).unwrap().unwrap();
            assert_eq!(decoded, *record);
            self.machine.apply(&decoded);
        }
        assert_eq!(format!("{:?}", self.machine.hard_state()), before);
        let step = self.machine.arm(self.now);
        self.take(step);
    }

    pub fn describe(&mut self) -> DescribedConsumerGroup {
        match self.ask(GroupRequest::ConsumerDescribe(GROUP)) {
            GroupReply::ConsumerDescribe(Some(group)) => group,
            other => panic!("{other:?}"),
        }
    }

    pub fn commit(&mut self, member_id: &str, epoch: i32, partition: i32) -> ErrorCode {
        let request = OffsetCommitRequest {
            member: MemberRequest {
                group_id: GROUP,
                generation_id: epoch,
                member_id,
                group_instance_id: None,
            },
            knows_group_id_not_found: true,
            topics: vec![OffsetCommitTopic {
                name: "t",
                topic_id: T,
                partitions: vec![OffsetCommitPartition {
                    partition,
                    offset: 5,
                    leader_epoch: -1,
                    metadata: "",
                    error: ErrorCode::None,
                }],
            }],
            ..OffsetCommitRequest::default()
        };
        match self.ask(GroupRequest::OffsetCommit(request)) {
            GroupReply::OffsetCommit(topics) => topics[0].partitions[0].1,
            other => panic!("{other:?}"),
        }
    }

    pub fn fetch_error(&mut self, member: Option<(&str, i32)>) -> ErrorCode {
        let request = OffsetFetchRequest {
            group_id: GROUP,
            member,
            topics: None,
            require_stable: true,
        };
        match self.ask(GroupRequest::OffsetFetch(request)) {
            GroupReply::OffsetFetch(_) => ErrorCode::None,
            GroupReply::Refused(error) => error,
            other => panic!("{other:?}"),
        }
    }

    pub fn delete(&mut self) -> ErrorCode {
        match self.ask(GroupRequest::Delete(vec![GROUP])) {
            GroupReply::Delete(results) => results[0].1,
            other => panic!("{other:?}"),
        }
    }

    pub fn state(&self) -> MemberState {
        let group = self.machine.group(GROUP).unwrap().consumer.as_ref().unwrap();
        group.members["b"].current.state
    }
}

pub(super) fn partitions(reply: &HeartbeatReply) -> Option<Partitions> {
    let topics = reply.assignment.as_ref()?;
    Some(flat(
        topics
            .iter()
            .map(|(topic_id, partitions)| (*topic_id, partitions)),
    ))
}

fn of_t(reply: &HeartbeatReply) -> Option<Vec<i32>> {
    Some(
        partitions(reply)?
            .into_iter()
            .map(|(_, partition)| partition)
            .collect(),
    )
}

#[test]
fn a_lone_member_gets_everything_with_its_first_heartbeat() {
    let mut bench = Bench::new();
    let reply = bench.join("a");
    assert_eq!((&*reply.member_id, reply.member_epoch), ("a", 2));
    assert_eq!(of_t(&reply), Some(vec![0, 1, 2, 3]));
    let reply = bench.owning("a", 2, &[0, 1, 2, 3]);
    assert_eq!((reply.member_epoch, reply.assignment), (2, None));
    bench.replay();
    assert_eq!(bench.describe().state, "Stable");
}

#[test]
fn a_second_member_gets_its_share_when_the_first_has_given_it_up() {
    let mut bench = Bench::new();
    bench.join("a");
    let reply = bench.join("b");
    assert_eq!((reply.member_epoch, of_t(&reply)), (3, Some(vec![])));
    assert_eq!(bench.describe().state, "Reconciling");
    // The first keeps its epoch until it has given up what it must.
    let reply = bench.beat(bench.plain("a", 2)).unwrap();
    assert_eq!((reply.member_epoch, of_t(&reply)), (2, Some(vec![0, 1])));
    bench.replay();
    let reply = bench.beat(bench.plain("b", 3)).unwrap();
    assert_eq!(reply.assignment, None, "nothing is free yet");
    let reply = bench.owning("a", 2, &[0, 1]);
    assert_eq!((reply.member_epoch, reply.assignment), (3, None));
    let reply = bench.beat(bench.plain("b", 3)).unwrap();
    assert_eq!((reply.member_epoch, of_t(&reply)), (3, Some(vec![2, 3])));
    assert_eq!(bench.describe().state, "Stable");
}

#[test]
fn a_reading_tells_what_each_member_holds_and_where_it_is_on_its_way() {
    let mut bench = Bench::new();
    bench.join("a");
    bench.join("b");
    let reading = |bench: &Bench| bench.machine.readings(&bench.topics, &mut 10).remove(0);
    let held = |bench: &Bench| {
        let of = |held: &Held| {
            let of_t = held.partitions.get("t").cloned();
            (of_t.unwrap_or_default(), held.standing.unwrap())
        };
        reading(bench).held.iter().map(of).collect::<Vec<_>>()
    };
    assert_eq!(reading(&bench).state, "Reconciling");
    let all = vec![0, 1, 2, 3];
    assert_eq!(
        held(&bench),
        [(all.clone(), Standing::Behind), (vec![], Standing::Waiting)]
    );
    bench.beat(bench.plain("a", 2)).unwrap();
    assert_eq!(
        held(&bench)[0],
        (all, Standing::Revoking),
        "it holds what it gives up"
    );
    bench.owning("a", 2, &[0, 1]);
    bench.beat(bench.plain("b", 3)).unwrap();
    let halves = [(vec![0, 1], Standing::Stable), (vec![2, 3], Standing::Stable)];
    assert_eq!(held(&bench), halves);
    assert_eq!(reading(&bench).state, "Stable");
}

#[test]
fn a_consumer_group_remembers_its_rebalances_and_what_began_each() {
    let mut bench = Bench::new();
    bench.join("a");
    bench.join("b");
    bench.beat(bench.plain("a", 2)).unwrap();
    bench.pass(300);
    let joined = || Cause::Joined("c".into());
    let rebalances = |bench: &Bench| rebalances(&bench.machine);
    // The second member is in the group, and waits for its share.
    assert_eq!(
        rebalances(&bench),
        [(joined(), Some((0, 2, 1))), (joined(), None)]
    );
    bench.owning("a", 2, &[0, 1]);
    bench.beat(bench.plain("b", 3)).unwrap();
    assert_eq!(rebalances(&bench)[1], (joined(), Some((300, 3, 2))));
    bench.topics = Arc::new(TopicsImage::of(&[("t", T, 6)]));
    bench.beat(bench.plain("a", 3)).unwrap();
    assert_eq!(rebalances(&bench)[2], (Cause::TopicsChanged, None));
    bench.beat(bench.plain("b", 3)).unwrap();
    assert_eq!(rebalances(&bench)[2].1, Some((0, 4, 2)));
    bench.pass(SESSION_MS);
    let left = (Cause::Left("c".into()), Some((0, 6, 0)));
    assert_eq!(rebalances(&bench).last(), Some(&left), "both have left");
}

#[test]
fn a_member_that_does_not_give_up_partitions_in_time_is_fenced() {
    let mut bench = Bench::new();
    bench.join("a");
    bench.join("b");
    for _ in 0..3 {
        bench.owning("a", 2, &[0, 1, 2, 3]);
        bench.beat(bench.plain("b", 3)).unwrap();
        bench.pass(REBALANCE_MS / 3);
    }
    assert_eq!(bench.error(bench.plain("a", 2)), ErrorCode::UnknownMemberId);
    let reply = bench.beat(bench.plain("b", 3)).unwrap();
    assert_eq!((reply.member_epoch, of_t(&reply)), (4, Some(vec![0, 1, 2, 3])));
}

#[test]
fn the_time_to_give_up_partitions_runs_after_a_replay_too() {
    let mut bench = Bench::new();
    bench.join("a");
    bench.join("b");
    bench.owning("a", 2, &[0, 1, 2, 3]);
    bench.replay();
    for _ in 0..3 {
        bench.owning("a", 2, &[0, 1, 2, 3]);
        bench.beat(bench.plain("b", 3)).unwrap();
        bench.pass(REBALANCE_MS / 3);
    }
    assert_eq!(bench.error(bench.plain("a", 2)), ErrorCode::UnknownMemberId);
    assert_eq!(bench.describe().members.len(), 1);
}

#[test]
fn most_votes_choose_the_assignor_and_the_first_one_wins_a_tie() {
    for (votes, expected) in [
        ([None, None], "uniform"),
        ([Some("range"), None], "range"),
        ([Some("range"), Some("uniform")], "uniform"),
    ] {
        let mut bench = Bench::new();
        for (member_id, assignor) in ["a", "b"].into_iter().zip(votes) {
            let request = ConsumerHeartbeat {
                assignor,
                ..bench.joining(member_id)
            };
            bench.beat(request).unwrap();
        }
        assert_eq!(bench.describe().assignor, expected, "{votes:?}");
    }
    assert!(matches!(Assignor::of("range"), Some(Assignor::Range)));
    assert!(Assignor::of("sticky").is_none());
}

#[test]
fn a_heartbeat_that_changes_nothing_is_not_written() {
    let mut bench = Bench::new();
    bench.join("a");
    let count = bench.log.len();
    bench.owning("a", 2, &[0, 1, 2, 3]);
    assert_eq!(bench.log.len(), count);
}

/// The wall clock may go back.
#[test]
fn a_clock_that_went_back_does_not_stop_assignments() {
    let mut bench = Bench::new();
    bench.join("a");
    bench.now.timestamp.0 -= 3_600_000;
    let mut request = bench.joining("b");
    request.settings.assignment_interval_ms = 1_000;
    assert_eq!(bench.beat(request).unwrap().member_epoch, 3);
}

#[test]
fn what_a_member_no_longer_subscribes_to_is_taken_from_it_at_once_and_given_to_others() {
    let mut bench = Bench::new();
    bench.topics = Arc::new(TopicsImage::of(&[("t", T, 1), ("u", U, 1)]));
    let both = |bench: &Bench, member_id| ConsumerHeartbeat {
        topic_names: Some(vec!["t", "u"]),
        ..bench.joining(member_id)
    };
    let request = both(&bench, "a");
    bench.beat(request).unwrap();
    let narrowed = ConsumerHeartbeat {
        topic_names: Some(vec!["t"]),
        settings: GroupSettings {
            assignment_interval_ms: 10_000,
            ..bench.plain("a", 2).settings
        },
        ..bench.plain("a", 2)
    };
    let reply = bench.beat(narrowed).unwrap();
    assert_eq!(partitions(&reply), Some([(T, 0)].into()));

    // The topics of the group stay the same, and its assignment does not.
    let mut bench = Bench::new();
    bench.topics = Arc::new(TopicsImage::of(&[("t", T, 2), ("u", U, 2)]));
    for member_id in ["a", "b"] {
        let request = both(&bench, member_id);
        bench.beat(request).unwrap();
    }
    let epoch = bench.describe().epoch;
    let narrowed = ConsumerHeartbeat {
        topic_names: Some(vec!["t"]),
        ..bench.plain("a", 2)
    };
    bench.beat(narrowed).unwrap();
    assert_eq!(bench.describe().epoch, epoch + 1);
}

/// A client sends all its fields when it may have missed an answer.
/// Found beside Apache Kafka: a partition that a member gives up and is to have again counted as
/// held by another member, until the heartbeat after this.
#[test]
fn a_member_gets_again_what_it_was_about_to_give_up() {
    let mut bench = Bench::new();
    bench.join("a");
    let to_nothing = ConsumerHeartbeat {
        topic_names: Some(vec![]),
        owned: Some([(T, 1)].into()),
        ..heartbeat(&bench.topics, "a", 2)
    };
    bench.beat(to_nothing).unwrap();
    // Until it has given up the one, it is responsible for all that it is to give up.
    assert_eq!(bench.describe().members[0].assigned.len(), 4);
    let back = ConsumerHeartbeat {
        topic_names: Some(vec!["t"]),
        owned: Some(Partitions::new()),
        ..heartbeat(&bench.topics, "a", 2)
    };
    let reply = bench.beat(back).unwrap();
    assert_eq!(of_t(&reply), Some(vec![0, 1, 2, 3]));
}

/// Found beside Apache Kafka: while a member gave up partitions, topics that it no longer
/// subscribed to stayed assigned to it.
#[test]
fn a_member_that_gives_up_partitions_loses_a_topic_that_it_unsubscribes_from() {
    let mut bench = Bench::new();
    bench.join("a");
    bench.join("b");
    assert_eq!(
        of_t(&bench.owning("a", 2, &[0, 1, 2, 3])).map(|kept| kept.len()),
        Some(2)
    );
    let to_nothing = ConsumerHeartbeat {
        topic_names: Some(vec![]),
        ..bench.plain("a", 2)
    };
    let reply = bench.beat(to_nothing).unwrap();
    assert_eq!((reply.member_epoch, of_t(&reply)), (2, Some(vec![])));
}

#[test]
fn a_member_without_topics_begins_no_rebalance() {
    let mut bench = Bench::new();
    bench.join("a");
    let epoch = bench.describe().epoch;
    let idle = ConsumerHeartbeat {
        topic_names: Some(vec![]),
        ..bench.joining("b")
    };
    let reply = bench.beat(idle).unwrap();
    assert_eq!((reply.member_epoch, bench.describe().epoch), (epoch, epoch));
    bench.replay();
}

#[test]
fn a_full_heartbeat_is_answered_with_the_assignment() {
    let mut bench = Bench::new();
    bench.join("a");
    let full = ConsumerHeartbeat {
        member_epoch: 2,
        ..bench.joining("a")
    };
    let partial = [
        ConsumerHeartbeat {
            rebalance_timeout_ms: None,
            ..full.clone()
        },
        ConsumerHeartbeat {
            topic_names: None,
            ..full.clone()
        },
        ConsumerHeartbeat {
            owned: None,
            ..full.clone()
        },
    ];
    for request in partial {
        assert_eq!(of_t(&bench.beat(request).unwrap()), None);
    }
    assert_eq!(of_t(&bench.beat(full).unwrap()), Some(vec![0, 1, 2, 3]));
}

fn classic_join() -> JoinRequest<'static> {
    JoinRequest {
        group_id: GROUP,
        session_timeout_ms: 10_000,
        rebalance_timeout_ms: 10_000,
        protocol_type: "consumer",
        protocols: vec![("range", b"")],
        ..JoinRequest::default()
    }
}

#[test]
fn a_classic_group_whose_subscriptions_cannot_be_read_stays_one() {
    let mut bench = Bench::new();
    let join = classic_join();
    let step = bench
        .machine
        .handle(bench.now, Ticket(2), GroupRequest::Join(join));
    bench.take(step);
    bench.pass(0);
    let request = bench.joining("a");
    assert_eq!(bench.error(request), ErrorCode::GroupIdNotFound);
}

#[test]
fn the_record_of_an_empty_classic_group_is_removed_when_it_becomes_a_consumer_group() {
    let mut bench = Bench::new();
    let stored = StoredGroup::empty(bench.now.timestamp);
    bench.log.push(GroupRecord::Group {
        group: GROUP.into(),
        value: Some(Arc::new(stored)),
    });
    bench.machine = Machine::new(bench.config.clone(), 1);
    bench.log.iter().for_each(|record| bench.machine.apply(record));
    bench.join("a");
    let is_removal = |record: &GroupRecord| matches!(record, GroupRecord::Group { value: None, .. });
    assert!(bench.log.iter().any(is_removal));
    bench.replay();
}

#[test]
fn generation_0_is_not_that_of_a_tool() {
    let mut bench = Bench::new();
    bench.join("a");
    bench.beat(bench.plain("a", -1)).unwrap();
    assert_eq!(bench.commit("", 0, 3), ErrorCode::UnknownMemberId);
    assert_eq!(bench.commit("", -1, 3), ErrorCode::None);
}

/// Compaction leaves only the last record of each key, in any order of the keys.
#[test]
fn a_group_is_the_same_when_assignments_come_before_their_members() {
    let mut bench = Bench::new();
    bench.join("a");
    let before = bench.describe();
    let is_current = |record: &GroupRecord| {
        matches!(
            record,
            GroupRecord::Consumer {
                record: ConsumerRecord::Current(..),
                ..
            }
        )
    };
    let (first, rest): (Vec<_>, Vec<_>) = bench.log.iter().cloned().partition(is_current);
    let mut machine = Machine::new(bench.config.clone(), 2);
    for record in first.iter().chain(&rest) {
        machine.apply(record);
    }
    bench.machine = machine;
    assert_eq!(bench.describe().members[0].assigned, before.members[0].assigned);
}

#[test]
fn a_check_of_offsets_leaves_a_consumer_group_that_is_in_use_or_has_some() {
    let mut bench = Bench::new();
    bench.join("a");
    let pass = |bench: &mut Bench| {
        for _ in 0..30 {
            bench.beat(bench.plain("a", 2)).unwrap();
            bench.pass(SESSION_MS / 2);
        }
    };
    pass(&mut bench);
    assert_eq!(bench.describe().members.len(), 1, "without offsets");
    bench.commit("a", 2, 0);
    bench.beat(bench.plain("a", -1)).unwrap();
    let epoch = bench.describe().epoch;
    bench.pass(1_200_000);
    assert_eq!(bench.describe().epoch, epoch, "without members");
}

#[test]
fn an_expression_that_only_one_member_had_is_forgotten_with_it() {
    let mut bench = Bench::new();
    let request = ConsumerHeartbeat {
        topic_names: None,
        regex: Some("t"),
        ..bench.joining("a")
    };
    bench.beat(request).unwrap();
    bench.join("b");
    let count = |bench: &Bench| {
        let group = bench.machine.group(GROUP).unwrap();
        group.consumer.as_ref().unwrap().regexes.len()
    };
    assert_eq!(count(&bench), 1);
    bench.beat(bench.plain("a", -1)).unwrap();
    assert_eq!(count(&bench), 0);
}

#[test]
fn uniform_takes_what_is_too_much_and_gives_the_odd_ones_to_as_many() {
    let t: &[Uuid] = &[T];
    let own = |range: std::ops::Range<i32>| range.map(|index| (T, index)).collect::<Vec<_>>();
    let (first, second) = (own(0..2), own(2..4));
    let members = [("a", t, &first[..]), ("b", t, &second[..]), ("c", t, &[])];
    let assigned = Assignor::Uniform.assign(&input(&members, &[(T, 4)]));
    assert_eq!(["a", "b", "c"].map(|member| assigned[member].len()), [2, 1, 1]);
    let all = own(0..4);
    let assigned = Assignor::Uniform.assign(&input(&[("a", t, &all[..]), ("b", t, &[])], &[(T, 4)]));
    assert_eq!(["a", "b"].map(|member| assigned[member].len()), [2, 2]);
}

#[test]
fn a_silent_member_is_fenced_at_the_end_of_its_session_and_after_a_replay_too() {
    let mut bench = Bench::new();
    bench.join("a");
    bench.join("b");
    bench.replay();
    bench.pass(SESSION_MS - 1);
    bench.beat(bench.plain("b", 3)).unwrap();
    bench.pass(1);
    assert_eq!(bench.error(bench.plain("a", 2)), ErrorCode::UnknownMemberId);
    let reply = bench.beat(bench.plain("b", 3)).unwrap();
    assert_eq!(of_t(&reply), Some(vec![0, 1, 2, 3]));
    bench.pass(SESSION_MS);
    assert_eq!(bench.describe().state, "Empty");
    bench.replay();
}

#[test]
fn a_member_that_leaves_frees_its_partitions_at_once() {
    let mut bench = Bench::new();
    bench.join("a");
    bench.join("b");
    let reply = bench.beat(bench.plain("a", -1)).unwrap();
    assert_eq!((&*reply.member_id, reply.member_epoch), ("a", -1));
    let reply = bench.beat(bench.plain("b", 3)).unwrap();
    assert_eq!((reply.member_epoch, of_t(&reply)), (4, Some(vec![0, 1, 2, 3])));
    assert_eq!(bench.error(bench.plain("a", -1)), ErrorCode::UnknownMemberId);
    bench.replay();
}

#[test]
fn epochs_are_checked_as_apache_kafka_checks_them() {
    let mut bench = Bench::new();
    assert_eq!(bench.error(bench.plain("a", 1)), ErrorCode::GroupIdNotFound);
    assert_eq!(bench.error(bench.plain("a", -1)), ErrorCode::GroupIdNotFound);
    assert_eq!(bench.machine.groups().count(), 0);
    bench.join("a");
    assert_eq!(bench.error(bench.plain("x", 2)), ErrorCode::UnknownMemberId);
    assert_eq!(bench.error(bench.plain("a", 3)), ErrorCode::FencedMemberEpoch);
    assert_eq!(bench.error(bench.plain("a", 1)), ErrorCode::FencedMemberEpoch);
    // It has joined and not seen the answer: the previous epoch is accepted if nothing is owned
    // that is not assigned.
    bench.join("b");
    bench.owning("a", 2, &[0, 1]);
    let reply = bench.owning("a", 2, &[0]);
    assert_eq!(reply.member_epoch, 3);
    let request = ConsumerHeartbeat {
        owned: Some([(T, 0), (T, 3)].into()),
        ..bench.plain("a", 2)
    };
    assert_eq!(bench.error(request), ErrorCode::FencedMemberEpoch);
}

#[test]
fn a_member_of_version_0_may_join_without_an_id() {
    let mut bench = Bench::new();
    let reply = bench.join("");
    assert!(reply.member_id.starts_with("c-"), "{}", reply.member_id);
    assert_eq!(of_t(&reply), Some(vec![0, 1, 2, 3]));
}

#[test]
fn a_static_member_returns_under_another_id_to_what_it_had() {
    let mut bench = Bench::new();
    let instance = |request: ConsumerHeartbeat<'static>| ConsumerHeartbeat {
        instance_id: Some("i"),
        ..request
    };
    let joining = |bench: &Bench, member_id| ConsumerHeartbeat {
        instance_id: Some("i"),
        ..bench.joining(member_id)
    };
    bench.beat(joining(&bench, "a")).unwrap();
    assert_eq!(
        bench.error(joining(&bench, "a2")),
        ErrorCode::UnreleasedInstanceId
    );
    assert_eq!(
        bench.error(instance(bench.plain("x", 2))),
        ErrorCode::FencedInstanceId
    );
    assert_eq!(
        bench.error(instance(bench.plain("a", 99))),
        ErrorCode::FencedMemberEpoch
    );
    assert_eq!(bench.beat(joining(&bench, "a")).unwrap().member_epoch, 2);
    let reply = bench.beat(instance(bench.plain("a", -2))).unwrap();
    assert_eq!(reply.member_epoch, -2);
    bench.replay();
    let epoch = bench.describe().epoch;
    let reply = bench.beat(joining(&bench, "a2")).unwrap();
    assert_eq!((reply.member_epoch, of_t(&reply)), (2, Some(vec![0, 1, 2, 3])));
    assert_eq!(bench.describe().epoch, epoch, "no rebalance");
    assert_eq!(
        bench.error(instance(bench.plain("a", 2))),
        ErrorCode::FencedInstanceId
    );
    bench.replay();
}

#[test]
fn a_static_member_that_stays_away_is_removed() {
    let mut bench = Bench::new();
    let request = ConsumerHeartbeat {
        instance_id: Some("i"),
        ..bench.joining("a")
    };
    bench.beat(request.clone()).unwrap();
    let away = ConsumerHeartbeat {
        instance_id: Some("i"),
        ..bench.plain("a", -2)
    };
    bench.beat(away).unwrap();
    bench.pass(SESSION_MS);
    assert_eq!(bench.describe().state, "Empty");
}

#[test]
fn a_tool_removes_static_members_by_their_instance_and_no_others() {
    let mut bench = Bench::new();
    let request = ConsumerHeartbeat {
        instance_id: Some("i"),
        ..bench.joining("a")
    };
    bench.beat(request).unwrap();
    bench.join("b");
    let members = vec![("b", Some("i")), ("a", Some("i")), ("", Some("x")), ("b", None)];
    let leave = LeaveRequest {
        reason: None,
        group_id: GROUP,
        members,
    };
    let GroupReply::Leave(left) = bench.ask(GroupRequest::Leave(leave)) else {
        panic!()
    };
    let errors: Vec<ErrorCode> = left.iter().map(|member| member.error).collect();
    let unknown = ErrorCode::UnknownMemberId;
    let fenced = ErrorCode::FencedInstanceId;
    assert_eq!(errors, [fenced, ErrorCode::None, unknown, unknown]);
    assert_eq!(bench.describe().members.len(), 1);
    bench.replay();
}

#[test]
fn new_partitions_and_recreated_topics_are_assigned_with_the_next_heartbeat() {
    let mut bench = Bench::new();
    bench.join("a");
    bench.topics = Arc::new(TopicsImage::of(&[("t", T, 6), ("u", U, 1)]));
    let reply = bench.beat(bench.plain("a", 2)).unwrap();
    assert_eq!(
        (reply.member_epoch, of_t(&reply)),
        (3, Some(vec![0, 1, 2, 3, 4, 5]))
    );
    bench.topics = Arc::new(TopicsImage::of(&[("t", U, 1)]));
    let reply = bench.beat(bench.plain("a", 3)).unwrap();
    assert_eq!(
        partitions(&reply),
        Some(Partitions::new()),
        "the old topic is given up first"
    );
    let reply = bench.owning("a", 3, &[]);
    assert_eq!(partitions(&reply), Some([(U, 0)].into()));
    bench.replay();
}

#[test]
fn the_target_is_computed_at_most_once_per_assignment_interval() {
    let mut bench = Bench::new();
    let mut request = bench.joining("a");
    request.settings.assignment_interval_ms = 1_000;
    bench.beat(request).unwrap();
    let mut request = bench.joining("b");
    request.settings.assignment_interval_ms = 1_000;
    assert_eq!(bench.beat(request).unwrap().member_epoch, 2);
    assert_eq!(bench.describe().state, "Assigning");
    bench.pass(1_000);
    let mut request = bench.plain("b", 2);
    request.settings.assignment_interval_ms = 1_000;
    assert_eq!(bench.beat(request).unwrap().member_epoch, 3);
    assert_eq!(bench.state(), MemberState::Unreleased);
}

#[test]
fn a_member_asks_again_soon_while_partitions_change_hands() {
    let mut bench = Bench::new();
    assert_eq!(bench.join("a").heartbeat_interval_ms, SOON_MS);
    bench.pass(4_999);
    let settled = |bench: &mut Bench, member_id, epoch| {
        let request = bench.plain(member_id, epoch);
        bench.beat(request).unwrap().heartbeat_interval_ms
    };
    assert_eq!(settled(&mut bench, "a", 2), SOON_MS);
    bench.pass(1);
    assert_eq!(settled(&mut bench, "a", 2), 5_000);

    // Everything is held by the first member, however long it takes to give a part of it up.
    bench.join("b");
    bench.pass(10_000);
    assert_eq!(bench.state(), MemberState::Unreleased);
    assert_eq!(settled(&mut bench, "b", 3), SOON_MS);
    // A configured interval is never made longer.
    let mut request = bench.plain("b", 3);
    request.settings.heartbeat_interval_ms = 100;
    assert_eq!(bench.beat(request).unwrap().heartbeat_interval_ms, 100);
    bench.owning("a", 2, &[0, 1]);
    assert_eq!(settled(&mut bench, "b", 3), 5_000);
}

#[test]
fn a_large_group_sends_a_thousand_heartbeats_a_second_while_it_settles() {
    let mut bench = Bench::new();
    let mut reply = bench.join("0");
    for number in 1..2_000 {
        reply = bench.join(&number.to_string());
    }
    assert_eq!(reply.heartbeat_interval_ms, 2_000);
}

#[test]
fn a_full_group_refuses_new_members() {
    let mut bench = Bench::with(ConsumerConfig {
        size_max: 1,
        ..ConsumerConfig::default()
    });
    bench.join("a");
    assert_eq!(bench.error(bench.joining("b")), ErrorCode::GroupMaxSizeReached);
    bench.join("a");
}

#[test]
fn a_commit_is_accepted_with_an_epoch_at_which_the_partition_was_held() {
    let mut bench = Bench::new();
    bench.join("a");
    assert_eq!(bench.commit("a", 2, 0), ErrorCode::None);
    assert_eq!(bench.commit("a", 3, 0), ErrorCode::StaleMemberEpoch);
    assert_eq!(bench.commit("x", 2, 0), ErrorCode::UnknownMemberId);
    assert_eq!(bench.commit("", -1, 0), ErrorCode::UnknownMemberId);
    bench.join("b");
    bench.owning("a", 2, &[0, 1]);
    bench.beat(bench.plain("b", 3)).unwrap();
    // Epoch 3 is news to `a`; partition 0 is its own since epoch 2, partition 2 no more.
    assert_eq!(bench.commit("a", 2, 0), ErrorCode::None);
    assert_eq!(bench.commit("a", 2, 2), ErrorCode::StaleMemberEpoch);
    assert_eq!(bench.commit("b", 2, 2), ErrorCode::StaleMemberEpoch);
    assert_eq!(bench.commit("b", 3, 2), ErrorCode::None);
}

/// A zombie with generation -1 and its old member id could commit.
#[test]
fn a_transactional_commit_is_checked_if_it_names_anything_of_a_member() {
    let mut bench = Bench::new();
    bench.join("m");
    let commit = |bench: &mut Bench, member_id, generation_id, group_instance_id| {
        let request = OffsetCommitRequest {
            member: MemberRequest {
                group_id: GROUP,
                generation_id,
                member_id,
                group_instance_id,
            },
            is_transactional: true,
            topics: vec![OffsetCommitTopic {
                name: "t",
                topic_id: T,
                partitions: vec![OffsetCommitPartition {
                    partition: 0,
                    offset: 5,
                    leader_epoch: -1,
                    metadata: "",
                    error: ErrorCode::None,
                }],
            }],
            ..OffsetCommitRequest::default()
        };
        match bench.ask(GroupRequest::OffsetCommit(request)) {
            GroupReply::OffsetCommit(topics) => topics[0].partitions[0].1,
            other => panic!("{other:?}"),
        }
    };
    let unknown = ErrorCode::UnknownMemberId;
    assert_eq!(commit(&mut bench, "", -1, None), ErrorCode::None);
    assert_eq!(commit(&mut bench, "gone", -1, None), unknown);
    assert_eq!(commit(&mut bench, "", -1, Some("i")), unknown);
    assert_eq!(commit(&mut bench, "", 0, None), unknown);
    assert_eq!(commit(&mut bench, "", 1, None), unknown);
}

#[test]
fn a_fetch_of_offsets_checks_the_member_that_it_names() {
    let mut bench = Bench::new();
    // As Apache Kafka: a group that does not exist has no offsets.
    assert_eq!(bench.fetch_error(Some(("a", 2))), ErrorCode::None);
    assert_eq!(bench.fetch_error(None), ErrorCode::None);
    bench.join("a");
    assert_eq!(bench.fetch_error(Some(("a", 2))), ErrorCode::None);
    assert_eq!(bench.fetch_error(Some(("a", 1))), ErrorCode::StaleMemberEpoch);
    assert_eq!(bench.fetch_error(Some(("x", 2))), ErrorCode::UnknownMemberId);
    assert_eq!(bench.fetch_error(None), ErrorCode::None);
}

#[test]
fn a_group_with_members_is_neither_deleted_nor_joined_by_what_is_no_consumer() {
    let mut bench = Bench::new();
    bench.join("a");
    assert_eq!(bench.delete(), ErrorCode::NonEmptyGroup);
    let join = classic_join();
    match bench.ask(GroupRequest::Join(join.clone())) {
        GroupReply::Join(reply) => assert_eq!(reply.error, ErrorCode::InconsistentGroupProtocol),
        other => panic!("{other:?}"),
    }
    let deletion = OffsetDeleteRequest {
        group_id: GROUP,
        topics: ["t", "u"]
            .map(|name| OffsetDeleteTopic {
                name,
                partitions: vec![(0, ErrorCode::None)],
            })
            .into(),
    };
    match bench.ask(GroupRequest::OffsetDelete(deletion)) {
        GroupReply::OffsetDelete(reply) => {
            assert_eq!(reply.topics[0].1[0].1, ErrorCode::GroupSubscribedToTopic);
            assert_eq!(reply.topics[1].1[0].1, ErrorCode::None);
        }
        other => panic!("{other:?}"),
    }
    bench.commit("a", 2, 0);
    bench.beat(bench.plain("a", -1)).unwrap();
    // The first step parks the classic member: the empty group was converted.
    let step = bench
        .machine
        .handle(bench.now, Ticket(2), GroupRequest::Join(join));
    assert!(step.replies.is_empty());
    bench.take(step);
    let group = bench.machine.group(GROUP).unwrap();
    assert!(group.consumer.is_none() && group.offsets.get("t", 0).is_some());
    bench.replay();
}

#[test]
fn an_empty_classic_group_becomes_a_consumer_group_and_keeps_its_offsets() {
    let mut bench = Bench::new();
    assert_eq!(bench.commit("", -1, 3), ErrorCode::None);
    bench.join("a");
    let group = bench.machine.group(GROUP).unwrap();
    assert!(group.consumer.is_some() && group.offsets.get("t", 3).is_some());
    bench.beat(bench.plain("a", -1)).unwrap();
    assert_eq!(
        bench.commit("", -1, 3),
        ErrorCode::None,
        "a tool resets the offsets of an empty group"
    );
    assert_eq!(bench.delete(), ErrorCode::None);
    bench.replay();
    assert_eq!(bench.machine.groups().count(), 0);
}

#[test]
fn consumer_groups_are_listed_with_type_and_state() {
    let mut bench = Bench::new();
    bench.join("a");
    let GroupReply::List(groups) = bench.ask(GroupRequest::List(ListRequest::default())) else {
        panic!()
    };
    let listed = &groups[0];
    assert_eq!(
        (&*listed.protocol_type, listed.state, listed.group_type),
        ("consumer", "Stable", "consumer")
    );
    let GroupReply::Describe(described) = bench.ask(GroupRequest::Describe(vec![GROUP])) else {
        panic!()
    };
    assert_eq!(described[0].error, ErrorCode::GroupIdNotFound);
}

#[test]
fn an_expression_finds_topics_that_appear_later() {
    let mut bench = Bench::new();
    let mut request = bench.joining("a");
    request.topic_names = None;
    request.regex = Some("t|u.*");
    assert_eq!(
        of_t(&bench.beat(request.clone()).unwrap()),
        Some(vec![0, 1, 2, 3])
    );
    bench.topics = Arc::new(TopicsImage::of(&[
        ("t", T, 1),
        ("u2", U, 1),
        ("x", Uuid([3; 16]), 1),
    ]));
    let epoch = bench.describe().epoch;
    bench.pass(9_999);
    bench.beat(bench.plain("a", 2)).unwrap();
    let found = |bench: &Bench| {
        let group = bench.machine.group(GROUP).unwrap();
        group.consumer.as_ref().unwrap().regexes["t|u.*"].topics.len()
    };
    assert_eq!(found(&bench), 1, "looked for every ten seconds");
    bench.pass(1);
    bench.beat(bench.plain("a", 2)).unwrap();
    assert_eq!(found(&bench), 2);
    assert!(bench.describe().epoch > epoch);
    let reply = bench.owning("a", 2, &[0]);
    let described = bench.describe();
    assert_eq!(
        described.members[0].assigned,
        [(T, 0), (U, 0)].into(),
        "{reply:?}"
    );
    request.regex = Some("(");
    assert_eq!(bench.error(request), ErrorCode::InvalidRegularExpression);
    bench.replay();
    bench.beat(bench.plain("a", -1)).unwrap();
    assert!(
        bench
            .machine
            .group(GROUP)
            .unwrap()
            .consumer
            .as_ref()
            .unwrap()
            .regexes
            .is_empty()
    );
}

/// A member's id, topics and last target.
type Given<'a> = (&'a str, &'a [Uuid], &'a [(Uuid, i32)]);

fn input(members: &[Given<'_>], counts: &[(Uuid, i32)]) -> AssignorInput {
    let members = members.iter().map(|(member_id, topics, target)| AssignorMember {
        member_id: (*member_id).into(),
        topics: topics.iter().copied().collect(),
        target: Arc::new(target.iter().copied().collect()),
        ..AssignorMember::default()
    });
    AssignorInput::new(members.collect(), counts.iter().copied().collect())
}

#[test]
fn range_divides_each_topic_in_order() {
    let both: &[Uuid] = &[T, U];
    let assigned = Assignor::Range.assign(&input(&[("a", both, &[]), ("b", both, &[])], &[(T, 3), (U, 3)]));
    assert_eq!(assigned["a"], [(T, 0), (T, 1), (U, 0), (U, 1)].into());
    assert_eq!(assigned["b"], [(T, 2), (U, 2)].into());
}

#[test]
fn uniform_is_balanced_and_moves_no_more_than_it_must() {
    let t: &[Uuid] = &[T];
    let old: Vec<(Uuid, i32)> = (0..5).map(|partition| (T, partition)).collect();
    let assigned = Assignor::Uniform.assign(&input(&[("a", t, &old), ("b", t, &[])], &[(T, 5)]));
    assert_eq!((assigned["a"].len(), assigned["b"].len()), (3, 2));
    assert!(assigned["a"].iter().all(|partition| old.contains(partition)));
    // Different subscriptions: `a` gets only what `b` cannot.
    let both: &[Uuid] = &[T, U];
    let assigned = Assignor::Uniform.assign(&input(&[("a", both, &[]), ("b", &[U], &[])], &[(T, 2), (U, 2)]));
    assert_eq!(assigned["a"], [(T, 0), (T, 1)].into());
    assert_eq!(assigned["b"], [(U, 0), (U, 1)].into());
}

#[test]
fn random_inputs_are_assigned_completely_evenly_and_with_few_moves() {
    let mut random = ottla_wire::random::Random::new(7);
    let mut roll = |sides: u64| random.next_u64() % sides;
    for _ in 0..2_000 {
        let topics: Vec<(Uuid, i32)> = (0..1 + roll(4))
            .map(|id| (Uuid([id as u8; 16]), roll(9) as i32))
            .collect();
        let ids: Vec<String> = (0..1 + roll(6)).map(|index| format!("m{index}")).collect();
        let is_equal = roll(2) == 0;
        let mut subscription = || -> BTreeSet<Uuid> {
            topics
                .iter()
                .filter(|_| is_equal || roll(3) > 0)
                .map(|(id, _)| *id)
                .collect()
        };
        let members = ids.iter().map(|id| AssignorMember {
            member_id: (&**id).into(),
            topics: subscription(),
            ..AssignorMember::default()
        });
        let mut input = AssignorInput::new(members.collect(), topics.iter().copied().collect());
        let first = Assignor::Uniform.assign(&input);
        check_assignment(&input, &first, is_equal);
        for member in &mut input.members {
            member.target = Arc::new(first[&member.member_id].clone());
        }
        assert_eq!(
            Assignor::Uniform.assign(&input),
            first,
            "nothing moves without a reason"
        );
        input.members.pop();
        if !input.members.is_empty() {
            let second = Assignor::Uniform.assign(&input);
            check_assignment(&input, &second, is_equal);
            let kept = |member: &AssignorMember| member.target.is_subset(&second[&member.member_id]);
            assert!(
                !is_equal || input.members.iter().all(kept),
                "members lose nothing when another leaves"
            );
        }
        check_assignment(&input, &Assignor::Range.assign(&input), false);
    }
}

fn check_assignment(
    input: &AssignorInput,
    assigned: &std::collections::BTreeMap<Arc<str>, Partitions>,
    must_be_even: bool,
) {
    let mut all = Partitions::new();
    for member in &input.members {
        for partition in &assigned[&member.member_id] {
            assert!(member.topics.contains(&partition.0), "{input:?}");
            assert!(all.insert(*partition), "{partition:?} twice: {input:?}");
        }
    }
    let subscribed: BTreeSet<Uuid> = input
        .members
        .iter()
        .flat_map(|member| member.topics.clone())
        .collect();
    let expected: i32 = subscribed
        .iter()
        .map(|topic_id| input.partition_counts[topic_id])
        .sum();
    assert_eq!(all.len(), expected as usize, "{input:?}");
    let counts = assigned.values().map(Partitions::len);
    let (most, least) = (counts.clone().max().unwrap_or(0), counts.min().unwrap_or(0));
    assert!(!must_be_even || most - least <= 1, "{input:?}");
}
