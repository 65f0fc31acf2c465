//! One behaviour of the machine per test.

use std::collections::BTreeMap;
use std::sync::Arc;

use ottla_wire::error_code::ErrorCode;
use ottla_wire::primitives::Uuid;

use crate::image::topics::TopicsImage;
use crate::time::{Moment, Now, Timestamp};

use super::classic::GroupState;
use super::config::GroupConfig;
use super::held::Held;
use super::machine::Machine;
use super::overview::Departure;
use super::rebalances::{Cause, Ended};
use super::record::GroupRecord;
use super::reply::{FetchedPartition, GroupReply, JoinReply, Step, SyncReply};
use super::request::{
    GroupRequest, JoinRequest, LeaveRequest, ListRequest, MemberRequest, OffsetCommitPartition,
    OffsetCommitRequest, OffsetCommitTopic, OffsetDeleteRequest, OffsetDeleteTopic, OffsetFetchRequest,
    SyncRequest, Ticket,
};

pub(super) const GROUP: &str = "g";
const DELAY_MS: i32 = 3_000;
const SESSION_MS: i32 = 10_000;
const REBALANCE_MS: i32 = 60_000;
/// An empty subscription of the consumer protocol, version 0.
const SUBSCRIPTION: &[u8] = b"\0\0\0\0\0\0\xff\xff\xff\xff";
const SUBSCRIBED_TO_T: &[u8] = b"\0\0\0\0\0\x01\0\x01t\xff\xff\xff\xff";

pub(super) struct Bench {
    pub(super) machine: Machine,
    config: Arc<GroupConfig>,
    now: Now,
    tickets: u64,
    replies: BTreeMap<Ticket, GroupReply>,
    pub(super) log: Vec<GroupRecord>,
}

impl Bench {
    pub(super) fn new() -> Bench {
        Bench::with(GroupConfig::default())
    }

    fn with(config: GroupConfig) -> Bench {
        let config = Arc::new(config);
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
            tickets: 0,
            replies: BTreeMap::new(),
            log: Vec::new(),
        }
    }

    fn send(&mut self, request: GroupRequest<'_>) -> Ticket {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        let step = self.machine.handle(self.now, ticket, request);
        self.take(step);
        ticket
    }

    pub(super) fn ask(&mut self, request: GroupRequest<'_>) -> GroupReply {
        let ticket = self.send(request);
        self.replies.remove(&ticket).expect("answered at once")
    }

    fn take(&mut self, step: Step) {
        self.log.extend(step.records);
        self.replies.extend(step.replies);
    }

    pub(super) fn pass(&mut self, ms: i32) {
        self.now.moment = self.now.moment.after_ms(ms as u64);
        self.now.timestamp.0 += i64::from(ms);
        let step = self.machine.on_deadline(self.now);
        self.take(step);
    }

    pub(super) fn replay(&mut self) {
        self.machine = Machine::new(self.config.clone(), 2);
        for record in &self.log {
            self.machine.apply(record);
        }
        let step = self.machine.arm(self.now);
        self.take(step);
    }

    fn join(&mut self, request: &JoinRequest<'_>) -> Ticket {
        self.send(GroupRequest::Join(request.clone()))
    }

    fn joined(&mut self, ticket: Ticket) -> JoinReply {
        match self.replies.remove(&ticket) {
            Some(GroupReply::Join(reply)) => reply,
            other => panic!("not joined: {other:?}"),
        }
    }

    pub(super) fn join_error(&mut self, request: &JoinRequest<'_>) -> ErrorCode {
        let ticket = self.join(request);
        self.joined(ticket).error
    }

    fn sync(&mut self, member: MemberRequest<'_>, assignments: Vec<(&str, &[u8])>) -> Ticket {
        self.send(GroupRequest::Sync(SyncRequest {
            member,
            assignments,
            ..SyncRequest::default()
        }))
    }

    fn synced(&mut self, ticket: Ticket) -> SyncReply {
        match self.replies.remove(&ticket) {
            Some(GroupReply::Sync(reply)) => reply,
            other => panic!("not synced: {other:?}"),
        }
    }

    fn heartbeat(&mut self, member: MemberRequest<'_>) -> ErrorCode {
        match self.ask(GroupRequest::Heartbeat(member)) {
            GroupReply::Heartbeat(error) => error,
            other => panic!("{other:?}"),
        }
    }

    fn leave(&mut self, members: Vec<(&str, Option<&str>)>) -> Vec<ErrorCode> {
        match self.ask(GroupRequest::Leave(LeaveRequest {
            reason: None,
            group_id: GROUP,
            members,
        })) {
            GroupReply::Leave(left) => left.iter().map(|member| member.error).collect(),
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn commit(&mut self, member: MemberRequest<'_>, topic: &str, offset: i64) -> ErrorCode {
        let partition = OffsetCommitPartition {
            partition: 0,
            offset,
            leader_epoch: 3,
            metadata: "m",
            error: ErrorCode::None,
        };
        self.commit_as(OffsetCommitRequest {
            member,
            topics: vec![OffsetCommitTopic {
                name: topic,
                topic_id: ID,
                partitions: vec![partition],
            }],
            ..OffsetCommitRequest::default()
        })
    }

    fn commit_as(&mut self, request: OffsetCommitRequest<'_>) -> ErrorCode {
        match self.ask(GroupRequest::OffsetCommit(request)) {
            GroupReply::OffsetCommit(topics) => topics[0].partitions[0].1,
            other => panic!("{other:?}"),
        }
    }

    fn fetch(&mut self, topic: &str) -> Option<FetchedPartition> {
        let fetch = OffsetFetchRequest {
            group_id: GROUP,
            member: None,
            topics: None,
            require_stable: true,
        };
        match self.ask(GroupRequest::OffsetFetch(fetch)) {
            GroupReply::OffsetFetch(topics) => topics
                .into_iter()
                .find(|found| found.name == topic)
                .map(|mut found| found.partitions.remove(0)),
            other => panic!("{other:?}"),
        }
    }

    fn fetch_offset(&mut self, topic: &str) -> Option<i64> {
        self.fetch(topic).map(|partition| partition.offset)
    }

    pub(super) fn delete(&mut self) -> ErrorCode {
        match self.ask(GroupRequest::Delete(vec![GROUP])) {
            GroupReply::Delete(results) => results[0].1,
            other => panic!("{other:?}"),
        }
    }

    fn state(&mut self) -> &'static str {
        match self.ask(GroupRequest::Describe(vec![GROUP])) {
            GroupReply::Describe(groups) => groups[0].state,
            other => panic!("{other:?}"),
        }
    }

    /// Forms a stable group of one member per request, without ids of their own; returns their
    /// member ids, the leader first.
    pub(super) fn stable(&mut self, requests: &[JoinRequest<'_>]) -> Vec<Arc<str>> {
        let tickets: Vec<Ticket> = requests.iter().map(|request| self.join(request)).collect();
        self.pass(DELAY_MS);
        self.pass(DELAY_MS);
        let replies: Vec<JoinReply> = tickets.into_iter().map(|ticket| self.joined(ticket)).collect();
        let generation_id = replies[0].generation_id;
        let leader = replies[0].leader.clone();
        let mut ids: Vec<Arc<str>> = replies.iter().map(|reply| reply.member_id.clone()).collect();
        ids.sort_by_key(|id| *id != leader);
        let assignments = ids.iter().map(|id| (&**id, id.as_bytes())).collect();
        let ticket = self.sync(of(&leader, generation_id), assignments);
        self.synced(ticket);
        for id in &ids[1..] {
            let ticket = self.sync(of(id, generation_id), Vec::new());
            assert_eq!(&*self.synced(ticket).assignment, id.as_bytes());
        }
        ids
    }
}

const ID: Uuid = Uuid([7; 16]);
pub(super) const NOBODY: MemberRequest<'_> = MemberRequest {
    group_id: GROUP,
    generation_id: -1,
    member_id: "",
    group_instance_id: None,
};

fn of(member_id: &str, generation_id: i32) -> MemberRequest<'_> {
    MemberRequest {
        group_id: GROUP,
        generation_id,
        member_id,
        group_instance_id: None,
    }
}

pub(super) fn member() -> JoinRequest<'static> {
    JoinRequest {
        group_id: GROUP,
        client_id: "c",
        client_host: "/127.0.0.1",
        session_timeout_ms: SESSION_MS,
        rebalance_timeout_ms: REBALANCE_MS,
        protocol_type: "consumer",
        protocols: vec![("range", SUBSCRIPTION)],
        ..JoinRequest::default()
    }
}

fn instance(instance_id: &str) -> JoinRequest<'_> {
    JoinRequest {
        group_instance_id: Some(instance_id),
        ..member()
    }
}

#[test]
fn a_modern_member_is_given_an_id_and_must_join_again_with_it() {
    let mut bench = Bench::new();
    let request = JoinRequest {
        requires_known_member_id: true,
        ..member()
    };
    let ticket = bench.join(&request);
    let reply = bench.joined(ticket);
    assert_eq!(reply.error, ErrorCode::MemberIdRequired);
    assert!(reply.member_id.starts_with("c-"));
    assert!(bench.log.is_empty(), "an unused id leaves no trace");
    let ticket = bench.join(&JoinRequest {
        member_id: &reply.member_id,
        ..request
    });
    bench.pass(DELAY_MS);
    assert_eq!(bench.joined(ticket).member_id, reply.member_id);
}

#[test]
fn an_id_that_is_not_used_within_its_session_is_forgotten_with_its_group() {
    let mut bench = Bench::new();
    let request = JoinRequest {
        requires_known_member_id: true,
        ..member()
    };
    let ticket = bench.join(&request);
    let reply = bench.joined(ticket);
    bench.pass(SESSION_MS);
    assert!(bench.machine.group(GROUP).is_none());
    let late = JoinRequest {
        member_id: &reply.member_id,
        ..request
    };
    assert_eq!(bench.join_error(&late), ErrorCode::UnknownMemberId);
}

#[test]
fn the_first_rebalance_waits_for_more_members_but_not_beyond_the_rebalance_timeout() {
    let mut bench = Bench::new();
    let impatient = JoinRequest {
        rebalance_timeout_ms: 2 * DELAY_MS,
        ..member()
    };
    let first = bench.join(&impatient);
    bench.pass(DELAY_MS - 1);
    let second = bench.join(&impatient);
    bench.pass(1);
    assert!(bench.replies.is_empty(), "the second member extends the delay");
    bench.pass(DELAY_MS - 1);
    let third = bench.join(&impatient);
    bench.pass(1);
    for ticket in [first, second, third] {
        assert_eq!(bench.joined(ticket).generation_id, 1);
    }
}

#[test]
fn only_the_leader_learns_the_members_of_the_group() {
    let mut bench = Bench::new();
    let tickets = [bench.join(&member()), bench.join(&member())];
    bench.pass(DELAY_MS);
    bench.pass(DELAY_MS);
    let replies = tickets.map(|ticket| bench.joined(ticket));
    assert_eq!(replies[0].leader, replies[1].leader);
    let counts = replies.map(|reply| (reply.member_id == reply.leader, reply.members.len()));
    assert!(
        counts.contains(&(true, 2)) && counts.contains(&(false, 0)),
        "{counts:?}"
    );
}

#[test]
fn members_get_what_the_leader_assigned_and_a_forgotten_one_gets_an_empty_assignment() {
    let mut bench = Bench::new();
    let tickets = [bench.join(&member()), bench.join(&member())];
    bench.pass(DELAY_MS);
    bench.pass(DELAY_MS);
    let replies = tickets.map(|ticket| bench.joined(ticket));
    let leader = replies[0].leader.clone();
    let follower = replies
        .iter()
        .map(|reply| reply.member_id.clone())
        .find(|id| *id != leader)
        .unwrap();
    let waiting = bench.sync(of(&follower, 1), Vec::new());
    assert!(bench.replies.is_empty(), "the leader has not assigned yet");
    let own = bench.sync(of(&leader, 1), vec![(&leader, b"mine"), ("stranger", b"?")]);
    assert_eq!(&*bench.synced(own).assignment, b"mine");
    assert_eq!(&*bench.synced(waiting).assignment, b"");
    assert_eq!(bench.state(), "Stable");
}

#[test]
fn a_stable_group_survives_a_replay_and_its_sessions_run_on() {
    let mut bench = Bench::new();
    let ids = bench.stable(&[member(), member()]);
    bench.replay();
    assert_eq!(bench.heartbeat(of(&ids[0], 1)), ErrorCode::None);
    let ticket = bench.sync(of(&ids[1], 1), Vec::new());
    assert_eq!(&*bench.synced(ticket).assignment, ids[1].as_bytes());
    bench.pass(SESSION_MS - 1);
    assert_eq!(bench.heartbeat(of(&ids[0], 1)), ErrorCode::None);
    bench.pass(1);
    assert_eq!(
        bench.heartbeat(of(&ids[0], 1)),
        ErrorCode::RebalanceInProgress,
        "the other one is gone"
    );
}

#[test]
fn a_member_that_falls_silent_is_removed_and_the_others_rebalance() {
    let mut bench = Bench::new();
    let ids = bench.stable(&[member(), member()]);
    bench.pass(SESSION_MS - 1);
    assert_eq!(bench.heartbeat(of(&ids[0], 1)), ErrorCode::None);
    bench.pass(1);
    assert_eq!(bench.heartbeat(of(&ids[0], 1)), ErrorCode::RebalanceInProgress);
    assert_eq!(bench.heartbeat(of(&ids[1], 1)), ErrorCode::UnknownMemberId);
    let ticket = bench.join(&JoinRequest {
        member_id: &ids[0],
        ..member()
    });
    assert_eq!(
        bench.joined(ticket).generation_id,
        2,
        "no other member is missing"
    );
}

#[test]
fn a_rebalance_completes_without_members_that_do_not_join_again() {
    let mut bench = Bench::new();
    let ids = bench.stable(&[member(), member()]);
    let new = bench.join(&member());
    let old = bench.join(&JoinRequest {
        member_id: &ids[0],
        ..member()
    });
    for _ in 0..REBALANCE_MS / 5_000 {
        assert!(bench.replies.is_empty());
        // A heartbeat renews the session; it does not replace joining.
        assert_eq!(bench.heartbeat(of(&ids[1], 1)), ErrorCode::RebalanceInProgress);
        bench.pass(5_000);
    }
    assert_eq!(bench.joined(new).generation_id, 2);
    assert_eq!(bench.joined(old).generation_id, 2);
    assert_eq!(bench.heartbeat(of(&ids[1], 2)), ErrorCode::UnknownMemberId);
}

#[test]
fn a_static_leader_that_misses_a_rebalance_loses_leadership_and_keeps_its_place() {
    let mut bench = Bench::new();
    let patient = JoinRequest {
        session_timeout_ms: 300_000,
        ..instance("i0")
    };
    let ids = bench.stable(&[patient, instance("i1")]);
    let leader = ids[0].split_once('-').unwrap().0.to_owned();
    let follower = if leader == "i0" { "i1" } else { "i0" };
    let request = JoinRequest {
        member_id: &ids[1],
        session_timeout_ms: 300_000,
        protocols: vec![("range", SUBSCRIBED_TO_T)],
        ..instance(follower)
    };
    let ticket = bench.join(&request);
    for _ in 0..REBALANCE_MS / 5_000 {
        bench.heartbeat(MemberRequest {
            group_instance_id: Some(&leader),
            ..of(&ids[0], 1)
        });
        bench.pass(5_000);
    }
    let reply = bench.joined(ticket);
    assert_eq!((reply.generation_id, &reply.leader), (2, &ids[1]));
    assert_eq!(reply.members.len(), 2);
}

#[test]
fn members_that_never_sync_are_removed_when_the_rebalance_timeout_ends() {
    let mut bench = Bench::new();
    let patient = JoinRequest {
        session_timeout_ms: 1_800_000,
        ..member()
    };
    let tickets = [bench.join(&patient), bench.join(&patient)];
    bench.pass(DELAY_MS);
    bench.pass(DELAY_MS);
    let replies = tickets.map(|ticket| bench.joined(ticket));
    let leader = replies[0].leader.clone();
    let ticket = bench.sync(of(&leader, 1), Vec::new());
    bench.synced(ticket);
    bench.pass(REBALANCE_MS);
    assert_eq!(bench.heartbeat(of(&leader, 1)), ErrorCode::RebalanceInProgress);
    assert_eq!(bench.machine.group(GROUP).unwrap().members.len(), 1);
}

#[test]
fn a_leaving_member_starts_a_rebalance_and_the_last_one_empties_the_group() {
    let mut bench = Bench::new();
    let ids = bench.stable(&[member(), member()]);
    assert_eq!(
        bench.leave(vec![(&ids[1], None), ("stranger", None)]),
        [ErrorCode::None, ErrorCode::UnknownMemberId]
    );
    assert_eq!(bench.state(), "PreparingRebalance");
    assert_eq!(bench.leave(vec![(&ids[0], None)]), [ErrorCode::None]);
    assert_eq!(bench.state(), "Empty");
    bench.replay();
    assert_eq!(bench.state(), "Empty");
    assert_eq!(bench.machine.group(GROUP).unwrap().generation, 2);
}

#[test]
fn a_group_remembers_departures_and_their_reasons() {
    let mut bench = Bench::new();
    let ids = bench.stable(&[member(), member(), member()]);
    let asked = GroupRequest::Leave(LeaveRequest {
        group_id: GROUP,
        members: vec![(&ids[2], None)],
        reason: Some("consumer poll timeout has expired."),
    });
    bench.ask(asked);
    bench.pass(SESSION_MS - 1);
    assert_eq!(bench.heartbeat(of(&ids[0], 1)), ErrorCode::RebalanceInProgress);
    bench.pass(1);
    let groups = bench.machine.overview(&|_| 0);
    let [group] = &groups[..] else {
        panic!("{groups:?}")
    };
    let departed: Vec<_> = (group.departed.iter())
        .map(|departed| (&*departed.member.member_id, departed.why.clone()))
        .collect();
    let left = Departure::left(Some("consumer poll timeout has expired."));
    assert!(left.is_late_poll());
    assert_eq!(
        departed,
        [(&*ids[2], left), (&*ids[1], Departure::SessionExpired)]
    );
    assert_eq!(group.members.len(), 1);
    // The last one keeps its session and does not join again: that is how Kafka's consumers behave
    // when their application does not poll.
    for _ in 0..REBALANCE_MS / 5_000 {
        bench.pass(5_000);
        bench.heartbeat(of(&ids[0], 1));
    }
    let groups = bench.machine.overview(&|_| 0);
    let last = groups[0].departed.last().unwrap();
    assert_eq!(
        (&*last.member.member_id, &last.why),
        (&*ids[0], &Departure::DidNotRejoin)
    );
}

/// Why, and once it has ended the milliseconds it took, the generation and the members.
type Told = (Cause, Option<(i64, i32, usize)>);

/// Of the only group.
pub(super) fn rebalances(machine: &Machine) -> Vec<Told> {
    let groups = machine.overview(&|_| 0);
    let told = groups[0].rebalances.iter();
    told.map(|one| {
        let took = |ended: &Ended| (ended.at.0 - one.began.0, ended.generation, ended.member_count);
        (one.why.clone(), one.ended.as_ref().map(took))
    })
    .collect()
}

#[test]
fn a_group_remembers_its_rebalances_and_what_began_each() {
    let mut bench = Bench::new();
    let ids = bench.stable(&[member(), member()]);
    let client: Arc<str> = member().client_id.into();
    let first = (
        Cause::Joined(client.clone()),
        Some((2 * i64::from(DELAY_MS), 1, 2)),
    );
    assert_eq!(rebalances(&bench.machine), std::slice::from_ref(&first));
    bench.leave(vec![(&ids[1], None)]);
    bench.pass(700);
    assert_eq!(
        rebalances(&bench.machine),
        [first.clone(), (Cause::Left(client.clone()), None)]
    );
    let again = JoinRequest {
        member_id: &ids[0],
        ..member()
    };
    let ticket = bench.join(&again);
    assert_eq!(bench.joined(ticket).generation_id, 2);
    bench.pass(50);
    let ticket = bench.sync(of(&ids[0], 2), vec![(&ids[0], b"x")]);
    bench.synced(ticket);
    let second = (Cause::Left(client.clone()), Some((750, 2, 1)));
    assert_eq!(rebalances(&bench.machine), [first, second]);
    // The leader asks for a rebalance of its own.
    bench.join(&again);
    assert_eq!(rebalances(&bench.machine)[2], (Cause::Asked(client), None));
    bench.replay();
    assert_eq!(rebalances(&bench.machine), []);
}

#[test]
fn an_overview_tells_what_a_group_with_members_has_committed() {
    let mut bench = Bench::new();
    let ids = bench.stable(&[member()]);
    assert_eq!(bench.commit(of(&ids[0], 1), "t", 42), ErrorCode::None);
    let groups = bench.machine.overview(&|_| 0);
    let [committed] = &groups[0].committed[..] else {
        panic!("{groups:?}")
    };
    assert_eq!(
        (&*committed.topic, committed.partition, committed.offset),
        ("t", 0, 42)
    );
    bench.leave(vec![(&ids[0], None)]);
    let groups = bench.machine.overview(&|_| 0);
    assert!(groups[0].committed.is_empty(), "nobody reads");
}

/// A group whose consumers had died read as if it had committed nothing, and was gone after a
/// restart.
#[test]
fn a_reading_tells_what_a_group_without_members_has_committed_also_after_a_restart() {
    let mut bench = Bench::new();
    let ids = bench.stable(&[member()]);
    assert_eq!(bench.commit(of(&ids[0], 1), "t", 42), ErrorCode::None);
    bench.leave(vec![(&ids[0], None)]);
    for is_restarted in [false, true] {
        if is_restarted {
            bench.replay();
        }
        let readings = bench.machine.readings(&TopicsImage::default(), &mut 10);
        let [reading] = &readings[..] else {
            panic!("{readings:?}")
        };
        assert_eq!((&*reading.overview.group_id, reading.cut), (GROUP, 0));
        assert!(reading.overview.members.is_empty());
        assert_eq!(reading.overview.committed[0].offset, 42, "{is_restarted}");
    }
    assert!(
        bench.machine.overview(&|_| 0).is_empty(),
        "the doctor has no consumer to judge"
    );
}

/// What its members hold is what the leader assigned, also where that cannot be read.
#[test]
fn a_reading_tells_what_members_of_a_classic_group_hold() {
    let mut bench = Bench::new();
    let tickets = [bench.join(&member()), bench.join(&member())];
    bench.pass(DELAY_MS);
    bench.pass(DELAY_MS);
    let leader = bench.joined(tickets[0]).leader;
    // Version 0: partitions 0 and 2 of t, and one of a topic that does not exist.
    let assignment =
        b"\0\0\0\0\0\x02\0\x01t\0\0\0\x02\0\0\0\0\0\0\0\x02\0\x04gone\0\0\0\x01\0\0\0\0\xff\xff\xff\xff";
    bench.sync(of(&leader, 1), vec![(&leader, assignment)]);
    let topics = TopicsImage::of(&[("t", ID, 4)]);
    let reading = bench.machine.readings(&topics, &mut 10).remove(0);
    let held = |of_leader: bool| {
        let mut members = reading.overview.members.iter().zip(&reading.held);
        let (_, held) = members
            .find(|(member, _)| (member.member_id == leader) == of_leader)
            .unwrap();
        held.clone()
    };
    assert_eq!(reading.state, "Stable");
    assert_eq!(held(true).partitions, BTreeMap::from([("t".into(), vec![0, 2])]));
    assert_eq!(held(false), Held::default());
    let mut garbage = Bench::new();
    garbage.stable(&[member()]);
    assert_eq!(
        garbage.machine.readings(&topics, &mut 10)[0].held,
        [Held::default()]
    );
}

#[test]
fn a_reading_says_how_many_committed_partitions_it_has_left_out() {
    let mut bench = Bench::new();
    for topic in ["a", "b", "c"] {
        assert_eq!(bench.commit(NOBODY, topic, 7), ErrorCode::None);
    }
    let mut rest = 2;
    let readings = bench.machine.readings(&TopicsImage::default(), &mut rest);
    assert_eq!(
        (readings[0].overview.committed.len(), readings[0].cut, rest),
        (2, 1, 0)
    );
}

#[test]
fn a_rejoining_member_whose_subscription_changed_starts_a_rebalance_and_another_does_not() {
    let mut bench = Bench::new();
    let ids = bench.stable(&[member(), member()]);
    let same = bench.join(&JoinRequest {
        member_id: &ids[1],
        ..member()
    });
    assert_eq!(bench.joined(same).generation_id, 1);
    let changed = JoinRequest {
        member_id: &ids[1],
        protocols: vec![("range", SUBSCRIBED_TO_T)],
        ..member()
    };
    bench.join(&changed);
    assert_eq!(bench.heartbeat(of(&ids[0], 1)), ErrorCode::RebalanceInProgress);
}

#[test]
fn a_rejoining_leader_always_starts_a_rebalance() {
    let mut bench = Bench::new();
    let ids = bench.stable(&[member(), member()]);
    bench.join(&JoinRequest {
        member_id: &ids[0],
        ..member()
    });
    assert_eq!(bench.heartbeat(of(&ids[1], 1)), ErrorCode::RebalanceInProgress);
}

#[test]
fn a_static_member_that_restarts_gets_its_assignment_back_without_a_rebalance() {
    let mut bench = Bench::new();
    let ids = bench.stable(&[instance("i0"), instance("i1")]);
    let follower = ids[1].clone();
    let instance_id = follower.split_once('-').unwrap().0;
    let ticket = bench.join(&instance(instance_id));
    let reply = bench.joined(ticket);
    assert_eq!((reply.error, reply.generation_id), (ErrorCode::None, 1));
    assert_ne!(reply.member_id, follower);
    let member = MemberRequest {
        group_instance_id: Some(instance_id),
        ..of(&reply.member_id, 1)
    };
    let ticket = bench.sync(member, Vec::new());
    assert_eq!(&*bench.synced(ticket).assignment, follower.as_bytes());
    let fenced = MemberRequest {
        group_instance_id: Some(instance_id),
        ..of(&follower, 1)
    };
    assert_eq!(bench.heartbeat(fenced), ErrorCode::FencedInstanceId);
    bench.replay();
    assert_eq!(
        bench.heartbeat(member),
        ErrorCode::None,
        "the new id is in the log"
    );
}

#[test]
fn a_static_leader_that_restarts_is_told_to_keep_the_assignment() {
    let mut bench = Bench::new();
    let ids = bench.stable(&[instance("i0"), instance("i1")]);
    let instance_id = ids[0].split_once('-').unwrap().0.to_owned();
    let old = bench.join(&instance(&instance_id));
    let old = bench.joined(old);
    assert_eq!(
        (old.leader, old.members.len()),
        (ids[0].clone(), 0),
        "an old client must not assign"
    );
    let modern = JoinRequest {
        supports_skipping_assignment: true,
        ..instance(&instance_id)
    };
    let ticket = bench.join(&modern);
    let reply = bench.joined(ticket);
    assert!(reply.skip_assignment);
    assert_eq!((reply.leader, reply.members.len()), (reply.member_id, 2));
}

#[test]
fn a_static_member_is_removed_by_its_instance_id() {
    let mut bench = Bench::new();
    bench.stable(&[instance("i0"), instance("i1")]);
    assert_eq!(
        bench.leave(vec![("", Some("i1")), ("", Some("i2"))]),
        [ErrorCode::None, ErrorCode::UnknownMemberId]
    );
    assert_eq!(bench.machine.group(GROUP).unwrap().members.len(), 1);
}

#[test]
fn a_parked_join_is_fenced_when_its_instance_joins_again() {
    let mut bench = Bench::new();
    let first = bench.join(&instance("i0"));
    let second = bench.join(&instance("i0"));
    assert_eq!(bench.joined(first).error, ErrorCode::FencedInstanceId);
    bench.pass(DELAY_MS);
    assert_eq!(bench.joined(second).error, ErrorCode::None);
}

#[test]
fn a_second_join_of_one_member_ends_the_first_with_an_error() {
    let mut bench = Bench::new();
    let ids = bench.stable(&[member(), member()]);
    let again = JoinRequest {
        member_id: &ids[0],
        ..member()
    };
    let first = bench.join(&again);
    let second = bench.join(&again);
    assert_eq!(bench.joined(first).error, ErrorCode::RebalanceInProgress);
    assert!(!bench.replies.contains_key(&second));
}

#[test]
fn a_member_whose_connection_closed_while_it_waited_expires_with_its_session() {
    let mut bench = Bench::new();
    let ids = bench.stable(&[member(), member()]);
    let ticket = bench.join(&JoinRequest {
        member_id: &ids[0],
        ..member()
    });
    bench.machine.abandon(bench.now, GROUP, ticket);
    bench.pass(SESSION_MS - 1);
    assert_eq!(
        bench.machine.group(GROUP).unwrap().members.len(),
        2,
        "the other one has just been heard"
    );
    bench.heartbeat(of(&ids[1], 1));
    bench.pass(1);
    assert_eq!(bench.machine.group(GROUP).unwrap().members.len(), 1);
}

#[test]
fn a_member_that_waits_for_a_rebalance_needs_no_heartbeat() {
    let mut bench = Bench::new();
    let ids = bench.stable(&[member(), member()]);
    let waiting = bench.join(&JoinRequest {
        member_id: &ids[0],
        ..member()
    });
    for _ in 0..5 {
        bench.heartbeat(of(&ids[1], 1));
        bench.pass(SESSION_MS - 1);
    }
    assert!(!bench.replies.contains_key(&waiting));
    assert!(bench.machine.group(GROUP).unwrap().members.contains_key(&ids[0]));
}

#[test]
fn a_joiner_that_shares_no_protocol_with_the_group_is_refused() {
    let mut bench = Bench::new();
    bench.stable(&[member()]);
    let other = JoinRequest {
        protocols: vec![("sticky", SUBSCRIPTION)],
        ..member()
    };
    assert_eq!(bench.join_error(&other), ErrorCode::InconsistentGroupProtocol);
    let connect = JoinRequest {
        protocol_type: "connect",
        ..member()
    };
    assert_eq!(bench.join_error(&connect), ErrorCode::InconsistentGroupProtocol);
    assert_eq!(bench.state(), "Stable");
}

#[test]
fn malformed_joins_are_refused_and_leave_nothing_behind() {
    let mut bench = Bench::new();
    let huge = vec![0; 300_000];
    let cases = [
        (
            JoinRequest {
                group_id: "",
                ..member()
            },
            ErrorCode::InvalidGroupId,
        ),
        (
            JoinRequest {
                session_timeout_ms: 5_999,
                ..member()
            },
            ErrorCode::InvalidSessionTimeout,
        ),
        (
            JoinRequest {
                session_timeout_ms: i32::MAX,
                ..member()
            },
            ErrorCode::InvalidSessionTimeout,
        ),
        (
            JoinRequest {
                session_timeout_ms: -1,
                ..member()
            },
            ErrorCode::InvalidSessionTimeout,
        ),
        (
            JoinRequest {
                protocols: vec![],
                ..member()
            },
            ErrorCode::InconsistentGroupProtocol,
        ),
        (
            JoinRequest {
                protocol_type: "",
                ..member()
            },
            ErrorCode::InconsistentGroupProtocol,
        ),
        (
            JoinRequest {
                protocols: vec![("a", SUBSCRIPTION), ("a", SUBSCRIPTION)],
                ..member()
            },
            ErrorCode::InconsistentGroupProtocol,
        ),
        (
            JoinRequest {
                protocols: vec![("a", &huge)],
                ..member()
            },
            ErrorCode::InvalidRequest,
        ),
        (
            JoinRequest {
                member_id: "stranger",
                ..member()
            },
            ErrorCode::UnknownMemberId,
        ),
    ];
    for (request, error) in cases {
        assert_eq!(bench.join_error(&request), error);
        assert!(bench.log.is_empty());
        assert_eq!(bench.machine.groups().count(), 0);
    }
}

#[test]
fn a_malformed_join_does_not_disturb_a_stable_group() {
    let mut bench = Bench::new();
    let ids = bench.stable(&[member(), member()]);
    let huge = vec![0; 300_000];
    for request in [
        JoinRequest {
            member_id: &ids[0],
            protocols: vec![],
            ..member()
        },
        JoinRequest {
            member_id: &ids[0],
            protocols: vec![("range", &huge)],
            ..member()
        },
        JoinRequest {
            member_id: &ids[0],
            session_timeout_ms: -1,
            ..member()
        },
        JoinRequest {
            member_id: &ids[0],
            group_instance_id: Some("i"),
            ..member()
        },
        JoinRequest {
            member_id: "stranger",
            ..member()
        },
    ] {
        assert_ne!(bench.join_error(&request), ErrorCode::None);
        assert_eq!(bench.heartbeat(of(&ids[0], 1)), ErrorCode::None);
        assert_eq!(bench.heartbeat(of(&ids[1], 1)), ErrorCode::None);
    }
}

#[test]
fn a_group_takes_no_more_subscriptions_than_fit_into_its_record() {
    let mut bench = Bench::new();
    let large = vec![0; 250_000];
    let request = JoinRequest {
        protocols: vec![("range", &large)],
        ..member()
    };
    let accepted: Vec<Ticket> = (0..3).map(|_| bench.join(&request)).collect();
    assert_eq!(bench.join_error(&request), ErrorCode::GroupMaxSizeReached);
    bench.pass(DELAY_MS);
    bench.pass(DELAY_MS);
    for ticket in accepted {
        assert_eq!(bench.joined(ticket).error, ErrorCode::None);
    }
}

#[test]
fn assignments_that_do_not_fit_into_one_record_are_refused_and_the_group_survives() {
    let mut bench = Bench::new();
    let ticket = bench.join(&member());
    bench.pass(DELAY_MS);
    let leader = bench.joined(ticket).leader;
    let huge = vec![0; 2_000_000];
    let ticket = bench.sync(of(&leader, 1), vec![(&leader, &huge)]);
    assert_eq!(bench.synced(ticket).error, ErrorCode::UnknownServerError);
    let ticket = bench.join(&JoinRequest {
        member_id: &leader,
        ..member()
    });
    assert_eq!(bench.joined(ticket).generation_id, 2);
}

#[test]
fn a_full_group_keeps_its_members_and_refuses_others() {
    let mut bench = Bench::with(GroupConfig {
        group_size_max: 2,
        ..GroupConfig::default()
    });
    let ids = bench.stable(&[member(), member()]);
    assert_eq!(bench.join_error(&member()), ErrorCode::GroupMaxSizeReached);
    assert_eq!(bench.heartbeat(of(&ids[0], 1)), ErrorCode::None);
}

#[test]
fn a_flood_of_joins_without_ids_is_stopped_before_it_fills_the_memory() {
    let mut bench = Bench::new();
    let request = JoinRequest {
        requires_known_member_id: true,
        ..member()
    };
    let errors: Vec<ErrorCode> = (0..5_001).map(|_| bench.join_error(&request)).collect();
    assert!(
        errors[..5_000]
            .iter()
            .all(|error| *error == ErrorCode::MemberIdRequired)
    );
    assert_eq!(errors[5_000], ErrorCode::CoordinatorNotAvailable);
}

#[test]
fn only_members_of_the_current_generation_may_commit() {
    let mut bench = Bench::new();
    assert_eq!(bench.commit(of("m", 1), "t", 5), ErrorCode::IllegalGeneration);
    let ids = bench.stable(&[member()]);
    assert_eq!(bench.commit(of(&ids[0], 1), "t", 5), ErrorCode::None);
    assert_eq!(bench.commit(of(&ids[0], 2), "t", 6), ErrorCode::IllegalGeneration);
    assert_eq!(
        bench.commit(of("stranger", 1), "t", 6),
        ErrorCode::UnknownMemberId
    );
    assert_eq!(bench.commit(NOBODY, "t", 6), ErrorCode::UnknownMemberId);
    assert_eq!(bench.fetch_offset("t"), Some(5));
}

/// A commit of offset 1 for partition 0 of `t`.
fn commit_of<'a>(member: MemberRequest<'a>, metadata: &'a str) -> OffsetCommitRequest<'a> {
    let partition = OffsetCommitPartition {
        partition: 0,
        offset: 1,
        leader_epoch: -1,
        metadata,
        error: ErrorCode::None,
    };
    OffsetCommitRequest {
        member,
        topics: vec![OffsetCommitTopic {
            name: "t",
            topic_id: ID,
            partitions: vec![partition],
        }],
        ..OffsetCommitRequest::default()
    }
}

#[test]
fn generation_0_is_one_of_a_member() {
    let mut bench = Bench::new();
    assert_eq!(bench.commit(of("m", 0), "t", 5), ErrorCode::IllegalGeneration);
    let ids = bench.stable(&[member()]);
    bench.leave(vec![(&ids[0], None)]);
    assert_eq!(bench.state(), "Empty");
    assert_eq!(bench.commit(of("m", 0), "t", 5), ErrorCode::UnknownMemberId);
    assert_eq!(bench.commit(NOBODY, "t", 5), ErrorCode::None);
}

/// KIP-447: a producer may name the group alone, but what it names of a member must be right.
#[test]
fn a_transactional_commit_to_a_group_in_use_names_all_of_a_member_or_nothing() {
    let mut bench = Bench::new();
    let ids = bench.stable(&[member()]);
    let unknown = ErrorCode::UnknownMemberId;
    for (member, expected) in [
        (NOBODY, ErrorCode::None),
        (of("", 0), unknown),
        (of("", 1), unknown),
        (of(&ids[0], -1), ErrorCode::IllegalGeneration),
        (of(&ids[0], 1), ErrorCode::None),
        (
            MemberRequest {
                group_instance_id: Some("i"),
                ..NOBODY
            },
            unknown,
        ),
    ] {
        let commit = OffsetCommitRequest {
            is_transactional: true,
            ..commit_of(member, "")
        };
        assert_eq!(bench.commit_as(commit), expected, "{member:?}");
    }
}

#[test]
fn the_largest_commit_fits_into_one_batch_by_its_estimate() {
    let metadata = "0123456789";
    let bytes = 96 + GROUP.len() + "t".len() + metadata.len();
    for (batch_bytes_max, expected) in [
        (bytes, ErrorCode::None),
        (bytes - 1, ErrorCode::InvalidCommitOffsetSize),
    ] {
        let mut bench = Bench::with(GroupConfig {
            batch_bytes_max,
            ..GroupConfig::default()
        });
        assert_eq!(bench.commit_as(commit_of(NOBODY, metadata)), expected);
    }
}

/// As Java counts.
#[test]
fn the_length_of_metadata_is_counted_in_utf_16_units() {
    let mut bench = Bench::new();
    for (metadata, expected) in [
        ("x".repeat(4_096), ErrorCode::None),
        ("ü".repeat(4_096), ErrorCode::None),
        ("ü".repeat(4_097), ErrorCode::OffsetMetadataTooLarge),
    ] {
        assert_eq!(bench.commit_as(commit_of(NOBODY, &metadata)), expected);
    }
}

#[test]
fn an_unknown_group_has_its_own_code_for_clients_that_know_it() {
    let mut bench = Bench::new();
    let partition = OffsetCommitPartition {
        partition: 0,
        offset: 1,
        leader_epoch: -1,
        metadata: "",
        error: ErrorCode::None,
    };
    let error = bench.commit_as(OffsetCommitRequest {
        member: of("m", 1),
        knows_group_id_not_found: true,
        topics: vec![OffsetCommitTopic {
            name: "t",
            topic_id: ID,
            partitions: vec![partition],
        }],
        ..OffsetCommitRequest::default()
    });
    assert_eq!(error, ErrorCode::GroupIdNotFound);
}

#[test]
fn no_commit_is_accepted_between_join_and_sync() {
    let mut bench = Bench::new();
    let ticket = bench.join(&member());
    bench.pass(DELAY_MS);
    let id = bench.joined(ticket).member_id;
    assert_eq!(bench.commit(of(&id, 1), "t", 5), ErrorCode::RebalanceInProgress);
}

#[test]
fn a_consumer_without_a_group_commits_and_finds_its_offset_after_a_replay() {
    let mut bench = Bench::new();
    assert_eq!(bench.commit(NOBODY, "t", 5), ErrorCode::None);
    assert_eq!(bench.commit(NOBODY, "t", 6), ErrorCode::None);
    bench.replay();
    let found = bench.fetch("t").unwrap();
    assert_eq!((found.offset, found.leader_epoch, &*found.metadata), (6, 3, "m"));
    assert_eq!(bench.state(), "Empty");
}

#[test]
fn a_partition_with_too_much_metadata_is_refused_alone() {
    let mut bench = Bench::new();
    let long = "x".repeat(4_097);
    let partition = |partition, metadata| OffsetCommitPartition {
        partition,
        offset: 1,
        leader_epoch: -1,
        metadata,
        error: ErrorCode::None,
    };
    let partitions = vec![partition(0, "fine"), partition(1, long.as_str())];
    let reply = bench.ask(GroupRequest::OffsetCommit(OffsetCommitRequest {
        member: NOBODY,
        topics: vec![OffsetCommitTopic {
            name: "t",
            topic_id: ID,
            partitions,
        }],
        ..OffsetCommitRequest::default()
    }));
    let GroupReply::OffsetCommit(topics) = reply else {
        panic!("{reply:?}")
    };
    assert_eq!(
        topics[0].partitions,
        [(0, ErrorCode::None), (1, ErrorCode::OffsetMetadataTooLarge)]
    );
    assert_eq!(bench.log.len(), 1);
}

#[test]
fn a_commit_that_does_not_fit_into_one_batch_is_refused_whole() {
    let mut bench = Bench::new();
    let metadata = "x".repeat(4_000);
    let partitions = (0..300).map(|partition| OffsetCommitPartition {
        partition,
        offset: 1,
        leader_epoch: -1,
        metadata: &metadata,
        error: ErrorCode::None,
    });
    let error = bench.commit_as(OffsetCommitRequest {
        member: NOBODY,
        topics: vec![OffsetCommitTopic {
            name: "t",
            topic_id: ID,
            partitions: partitions.collect(),
        }],
        ..OffsetCommitRequest::default()
    });
    assert_eq!(error, ErrorCode::InvalidCommitOffsetSize);
    assert!(bench.log.is_empty());
}

#[test]
fn offsets_of_a_deleted_topic_are_removed_and_those_of_its_successor_stay() {
    let mut bench = Bench::new();
    bench.commit(NOBODY, "t", 5);
    bench.commit(NOBODY, "u", 5);
    let step = bench
        .machine
        .on_topics_deleted(bench.now, &[("t", ID), ("u", Uuid([8; 16]))]);
    bench.take(step);
    bench.replay();
    assert_eq!(bench.fetch_offset("t"), None);
    assert_eq!(
        bench.fetch_offset("u"),
        Some(5),
        "it was committed for another topic of that name"
    );
}

#[test]
fn offsets_expire_when_the_group_has_been_empty_for_long_enough() {
    let retention_ms = 3_600_000;
    let mut bench = Bench::with(GroupConfig {
        offsets_retention_ms: retention_ms,
        ..GroupConfig::default()
    });
    let ids = bench.stable(&[member()]);
    bench.commit(of(&ids[0], 1), "t", 5);
    for _ in 0..retention_ms / 5_000 + 1_000 {
        bench.heartbeat(of(&ids[0], 1));
        bench.pass(5_000);
    }
    bench.heartbeat(of(&ids[0], 1));
    // The member subscribes to no topic, so the offset has expired.
    assert_eq!(bench.fetch_offset("t"), None);
    bench.commit(of(&ids[0], 1), "t", 6);
    bench.leave(vec![(&ids[0], None)]);
    bench.pass(retention_ms as i32 - 1_000);
    assert_eq!(bench.fetch_offset("t"), Some(6));
    bench.pass(1_200_000);
    assert_eq!(bench.fetch_offset("t"), None);
    bench.replay();
    assert_eq!(
        bench.state(),
        "Dead",
        "an empty group without offsets is removed, too"
    );
}

#[test]
fn offsets_of_subscribed_topics_do_not_expire() {
    let mut bench = Bench::with(GroupConfig {
        offsets_retention_ms: 60_000,
        ..GroupConfig::default()
    });
    let request = JoinRequest {
        protocols: vec![("range", SUBSCRIBED_TO_T)],
        ..member()
    };
    let ids = bench.stable(&[request]);
    bench.commit(of(&ids[0], 1), "t", 5);
    for _ in 0..1_000 {
        bench.heartbeat(of(&ids[0], 1));
        bench.pass(5_000);
    }
    assert_eq!(bench.fetch_offset("t"), Some(5));
}

#[test]
fn a_commit_with_its_own_retention_expires_by_it() {
    let mut bench = Bench::new();
    let partition = OffsetCommitPartition {
        partition: 0,
        offset: 1,
        leader_epoch: -1,
        metadata: "",
        error: ErrorCode::None,
    };
    bench.commit_as(OffsetCommitRequest {
        member: NOBODY,
        retention_ms: Some(1_000),
        topics: vec![OffsetCommitTopic {
            name: "t",
            topic_id: ID,
            partitions: vec![partition],
        }],
        ..OffsetCommitRequest::default()
    });
    bench.replay();
    bench.pass(600_000);
    assert_eq!(bench.fetch_offset("t"), None);
}

#[test]
fn an_offset_expires_at_the_end_of_its_retention_and_not_before() {
    let minute = 60_000;
    let mut bench = Bench::with(GroupConfig {
        offsets_retention_ms: 10 * i64::from(minute),
        ..GroupConfig::default()
    });
    let with_retention = |retention_ms| OffsetCommitRequest {
        retention_ms: Some(retention_ms),
        ..commit_of(NOBODY, "")
    };
    bench.commit(NOBODY, "u", 5);
    bench.commit_as(with_retention(10 * i64::from(minute)));
    bench.pass(minute);
    bench.commit(NOBODY, "v", 5);
    bench.pass(9 * minute);
    let found = ["t", "u", "v"].map(|topic| bench.fetch_offset(topic));
    assert_eq!(found, [None, None, Some(5)]);
    bench.pass(10 * minute);
    assert_eq!(bench.fetch_offset("v"), None);
}

/// It is not known which topics such a group still reads.
#[test]
fn offsets_of_a_group_in_use_stay_unless_it_is_stable_and_its_subscriptions_are_known() {
    let config = GroupConfig {
        offsets_retention_ms: 1_000,
        offsets_retention_check_interval_ms: 1_000,
        ..GroupConfig::default()
    };
    let of_another_kind = JoinRequest {
        protocol_type: "connect",
        ..member()
    };
    let unreadable = JoinRequest {
        protocols: vec![("range", &b"?"[..])],
        ..member()
    };
    for (request, is_rebalancing, expected) in [
        (of_another_kind, false, Some(5)),
        (unreadable, false, Some(5)),
        (member(), true, Some(5)),
        (member(), false, None),
    ] {
        let mut bench = Bench::with(config.clone());
        let ids = bench.stable(&[request]);
        assert_eq!(bench.commit(of(&ids[0], 1), "t", 5), ErrorCode::None);
        if is_rebalancing {
            bench.join(&member());
            assert_eq!(bench.state(), "PreparingRebalance");
        }
        bench.pass(2_000);
        assert_eq!(bench.fetch_offset("t"), expected);
    }
}

#[test]
fn an_offset_is_deleted_unless_its_topic_is_in_use() {
    let mut bench = Bench::new();
    let request = JoinRequest {
        protocols: vec![("range", SUBSCRIBED_TO_T)],
        ..member()
    };
    let ids = bench.stable(&[request]);
    bench.commit(of(&ids[0], 1), "t", 5);
    bench.commit(of(&ids[0], 1), "u", 5);
    let topic = |name| OffsetDeleteTopic {
        name,
        partitions: vec![(0, ErrorCode::None)],
    };
    let request = OffsetDeleteRequest {
        group_id: GROUP,
        topics: vec![topic("t"), topic("u")],
    };
    let GroupReply::OffsetDelete(reply) = bench.ask(GroupRequest::OffsetDelete(request)) else {
        panic!()
    };
    assert_eq!(reply.topics[0].1, [(0, ErrorCode::GroupSubscribedToTopic)]);
    assert_eq!(reply.topics[1].1, [(0, ErrorCode::None)]);
    bench.replay();
    assert_eq!(
        (bench.fetch_offset("t"), bench.fetch_offset("u")),
        (Some(5), None)
    );
}

#[test]
fn a_group_is_deleted_only_when_it_has_no_members() {
    let mut bench = Bench::new();
    assert_eq!(bench.delete(), ErrorCode::GroupIdNotFound);
    let ids = bench.stable(&[member()]);
    bench.commit(of(&ids[0], 1), "t", 5);
    assert_eq!(bench.delete(), ErrorCode::NonEmptyGroup);
    bench.leave(vec![(&ids[0], None)]);
    assert_eq!(bench.delete(), ErrorCode::None);
    bench.replay();
    assert_eq!(bench.fetch_offset("t"), None);
    assert_eq!(bench.delete(), ErrorCode::GroupIdNotFound);
}

#[test]
fn groups_are_listed_by_state_and_type() {
    let mut bench = Bench::new();
    bench.stable(&[member()]);
    bench.machine.apply(&GroupRecord::Foreign {
        group: "k".into(),
        key: b"\0\x11\0\x01k".to_vec(),
        is_present: true,
    });
    let mut list = |states: &[&str], types: &[&str]| {
        let own = |filter: &[&str]| filter.iter().map(|wanted| (*wanted).to_owned()).collect();
        let request = ListRequest {
            states: own(states),
            types: own(types),
        };
        let GroupReply::List(groups) = bench.ask(GroupRequest::List(request)) else {
            panic!()
        };
        groups
            .iter()
            .map(|group| format!("{} {} {}", group.group_id, group.state, group.group_type))
            .collect::<Vec<_>>()
    };
    assert_eq!(list(&[], &[]), ["g Stable classic", "k Empty streams"]);
    assert_eq!(list(&["stable"], &[]), ["g Stable classic"]);
    assert_eq!(list(&[], &["streams"]), ["k Empty streams"]);
    assert_eq!(list(&["dead"], &["classic"]), [""; 0]);
}

#[test]
fn a_group_of_another_protocol_keeps_its_records_and_its_offsets_are_served() {
    let mut bench = Bench::new();
    bench.commit(NOBODY, "t", 5);
    for key in [&b"\0\x11\0\x01g"[..], b"\0\x13\0\x01g\0\x01m"] {
        bench.log.push(GroupRecord::Foreign {
            group: GROUP.into(),
            key: key.to_vec(),
            is_present: true,
        });
    }
    bench.log.remove(0);
    let offset = GroupRecord::Offset {
        group: GROUP.into(),
        topic: "t".into(),
        partition: 0,
        value: Some(super::offsets::CommittedOffset {
            offset: 5,
            leader_epoch: -1,
            metadata: "".into(),
            commit_timestamp: Timestamp(0),
            expire_timestamp: None,
            topic_id: Uuid::ZERO,
        }),
    };
    bench.log.push(offset);
    let record_count = bench.log.len();
    bench.replay();
    assert_eq!(bench.fetch_offset("t"), Some(5));
    assert_eq!(bench.state(), "Dead", "it is no classic group");
    assert_eq!(bench.join_error(&member()), ErrorCode::InconsistentGroupProtocol);
    assert_eq!(bench.commit(NOBODY, "t", 6), ErrorCode::UnknownMemberId);
    assert_eq!(bench.delete(), ErrorCode::NonEmptyGroup);
    bench.pass(GroupConfig::default().offsets_retention_ms as i32);
    assert_eq!(bench.fetch_offset("t"), Some(5), "its coordinator expires them");
    assert_eq!(bench.log.len(), record_count);
}

#[test]
fn offsets_of_an_open_transaction_are_unstable_until_its_marker() {
    let mut bench = Bench::new();
    bench.commit(NOBODY, "t", 5);
    let GroupRecord::Offset {
        value: Some(committed),
        ..
    } = bench.log[0].clone()
    else {
        panic!()
    };
    let pending = |offset| GroupRecord::Offset {
        group: GROUP.into(),
        topic: "t".into(),
        partition: 0,
        value: Some(super::offsets::CommittedOffset {
            offset,
            ..committed.clone()
        }),
    };
    bench.machine.apply_transactional(1, pending(7));
    bench.machine.apply_transactional(2, pending(8));
    assert_eq!(bench.fetch("t").unwrap().error, ErrorCode::UnstableOffsetCommit);
    bench.machine.apply_marker(2, true);
    bench.machine.apply_marker(1, true);
    assert_eq!(
        bench.fetch_offset("t"),
        Some(8),
        "the commit that was written last wins"
    );
}

#[test]
fn an_aborted_transaction_changes_no_offset() {
    let mut bench = Bench::new();
    bench.commit(NOBODY, "t", 5);
    let GroupRecord::Offset { value, .. } = bench.log[0].clone() else {
        panic!()
    };
    let pending = GroupRecord::Offset {
        group: GROUP.into(),
        topic: "u".into(),
        partition: 0,
        value,
    };
    bench.machine.apply_transactional(1, pending);
    bench.machine.apply_marker(1, false);
    assert_eq!(
        (bench.fetch_offset("t"), bench.fetch_offset("u")),
        (Some(5), None)
    );
}

/// An offset of partition 0 of a topic.
fn offset_of(bench: &mut Bench, topic: &str, offset: i64) -> GroupRecord {
    GroupRecord::Offset {
        group: GROUP.into(),
        topic: topic.into(),
        partition: 0,
        value: Some(super::offsets::CommittedOffset {
            offset,
            leader_epoch: -1,
            metadata: "".into(),
            commit_timestamp: bench.now.timestamp,
            expire_timestamp: None,
            topic_id: Uuid::ZERO,
        }),
    }
}

/// A commit that came after a deletion brought the deleted offsets back, and their group.
#[test]
fn a_deletion_also_takes_what_an_open_transaction_holds() {
    type Deletion = fn(&mut Bench);
    let deletions: [Deletion; 3] = [
        |bench| assert_eq!(bench.delete(), ErrorCode::None),
        |bench| {
            let request = OffsetDeleteRequest {
                group_id: GROUP,
                topics: vec![OffsetDeleteTopic {
                    name: "t",
                    partitions: vec![(0, ErrorCode::None)],
                }],
            };
            let GroupReply::OffsetDelete(reply) = bench.ask(GroupRequest::OffsetDelete(request)) else {
                panic!()
            };
            assert_eq!(reply.topics[0].1, [(0, ErrorCode::None)]);
        },
        |bench| {
            let step = bench
                .machine
                .on_topics_deleted(bench.now, &[("t", Uuid([1; 16]))]);
            bench.take(step);
        },
    ];
    for deletion in deletions {
        let mut bench = Bench::new();
        let pending = offset_of(&mut bench, "t", 7);
        bench.machine.apply_transactional(1, pending.clone());
        deletion(&mut bench);
        assert_eq!(
            bench.log.last().map(is_tombstone),
            Some(true),
            "a replay has to find it"
        );
        bench.machine.apply_marker(1, true);
        assert!(bench.machine.group(GROUP).is_none());
        // A replay comes to the same.
        let mut replayed = Machine::new(Arc::default(), 2);
        replayed.apply_transactional(1, pending);
        bench.log.iter().for_each(|record| replayed.apply(record));
        replayed.apply_marker(1, true);
        assert!(replayed.group(GROUP).is_none());
    }
}

fn is_tombstone(record: &GroupRecord) -> bool {
    matches!(
        record,
        GroupRecord::Offset { value: None, .. } | GroupRecord::Group { value: None, .. }
    )
}

#[test]
fn a_group_whose_only_offsets_are_pending_exists_until_they_are_aborted() {
    let mut bench = Bench::new();
    let pending = offset_of(&mut bench, "t", 7);
    bench.machine.apply_transactional(1, pending);
    let listed = |bench: &mut Bench| match bench.ask(GroupRequest::List(ListRequest::default())) {
        GroupReply::List(groups) => groups.len(),
        other => panic!("{other:?}"),
    };
    assert_eq!(listed(&mut bench), 1);
    bench.machine.apply_marker(1, false);
    assert_eq!(listed(&mut bench), 0);
    assert_eq!(bench.delete(), ErrorCode::GroupIdNotFound);
}

/// The record of the group was removed: after the commit its offsets were those of a simple group.
#[test]
fn an_expiry_keeps_a_group_with_pending_offsets() {
    let mut bench = Bench::new();
    let ids = bench.stable(&[member()]);
    bench.leave(vec![(&ids[0], None)]);
    let pending = offset_of(&mut bench, "t", 7);
    bench.machine.apply_transactional(1, pending);
    let retention_ms = GroupConfig::default().offsets_retention_ms as i32;
    bench.pass(retention_ms);
    bench.pass(600_000);
    assert!(bench.machine.group(GROUP).unwrap().stored.is_some());
    bench.machine.apply_marker(1, false);
    bench.pass(600_000);
    assert!(bench.machine.group(GROUP).is_none());
}

#[test]
fn a_group_at_its_capacity_after_a_replay_goes_on() {
    let mut bench = Bench::with(GroupConfig {
        group_size_max: 2,
        ..GroupConfig::default()
    });
    bench.stable(&[member(), member()]);
    bench.replay();
    assert_eq!(bench.state(), "Stable");
}

#[test]
fn nobody_leaves_an_unknown_group() {
    let mut bench = Bench::new();
    let left = bench.leave(vec![("m", None), ("n", Some("i"))]);
    assert_eq!(left, [ErrorCode::UnknownMemberId; 2]);
}

#[test]
fn a_sync_that_names_another_protocol_is_refused() {
    let mut bench = Bench::new();
    let ids = bench.stable(&[member()]);
    for (protocol_type, protocol_name, expected) in [
        ("consumer", "range", ErrorCode::None),
        ("connect", "range", ErrorCode::InconsistentGroupProtocol),
        ("consumer", "uniform", ErrorCode::InconsistentGroupProtocol),
    ] {
        let ticket = bench.send(GroupRequest::Sync(SyncRequest {
            member: of(&ids[0], 1),
            protocol_type: Some(protocol_type),
            protocol_name: Some(protocol_name),
            ..SyncRequest::default()
        }));
        assert_eq!(bench.synced(ticket).error, expected);
    }
}

#[test]
fn a_sync_whose_connection_closed_gives_its_member_one_more_session() {
    let mut bench = Bench::new();
    let tickets = [bench.join(&member()), bench.join(&member())];
    bench.pass(DELAY_MS);
    bench.pass(DELAY_MS);
    let joined = tickets.map(|ticket| bench.joined(ticket));
    let leader = joined[0].leader.clone();
    let is_follower = |reply: &&JoinReply| reply.member_id != leader;
    let follower = joined.iter().find(is_follower).unwrap();
    let ticket = bench.sync(of(&follower.member_id, 1), Vec::new());
    bench.machine.abandon(bench.now, GROUP, ticket);
    let members = |bench: &Bench| bench.machine.group(GROUP).unwrap().members.len();
    bench.pass(SESSION_MS - 1);
    bench.heartbeat(of(&leader, 1));
    assert_eq!(members(&bench), 2);
    bench.pass(1);
    assert_eq!(members(&bench), 1);
}

#[test]
fn a_group_over_capacity_after_a_replay_rebalances() {
    let mut bench = Bench::new();
    let ids = bench.stable(&[member(), member(), member()]);
    bench.config = Arc::new(GroupConfig {
        group_size_max: 2,
        ..GroupConfig::default()
    });
    bench.replay();
    let tickets: Vec<Ticket> = ids
        .iter()
        .map(|id| {
            bench.join(&JoinRequest {
                member_id: id,
                ..member()
            })
        })
        .collect();
    assert_eq!(bench.joined(tickets[2]).error, ErrorCode::GroupMaxSizeReached);
    assert_eq!(
        bench.machine.group(GROUP).unwrap().state,
        GroupState::PreparingRebalance
    );
    bench.pass(REBALANCE_MS);
    assert_eq!(bench.joined(tickets[0]).generation_id, 2);
    assert_eq!(bench.joined(tickets[1]).generation_id, 2);
}
