//! Groups with members of both protocols, and the ways into and out of them.

use std::collections::BTreeSet;

use ottla_wire::error_code::ErrorCode;

use crate::config::MigrationPolicy;
use crate::group::config::ConsumerConfig;
use crate::group::reply::{GroupReply, JoinReply, Step, SyncReply};
use crate::group::request::{
    GroupRequest, JoinRequest, LeaveRequest, ListRequest, MemberRequest, SyncRequest, Ticket,
};

use super::assignment::Partitions;
use super::protocol::{decode_assignment, encode_assignment};
use super::request::{ConsumerHeartbeat, STATIC_LEAVE_EPOCH};
use super::tests::{Bench, GROUP, T, partitions};

/// Version 1 of a subscription to `t`, and of what the member owns of it.
fn subscription(owned: &[i32]) -> Vec<u8> {
    let mut bytes = b"\0\x01\0\0\0\x01\0\x01t\xff\xff\xff\xff\0\0\0\x01\0\x01t".to_vec();
    bytes.extend((owned.len() as i32).to_be_bytes());
    bytes.extend(owned.iter().flat_map(|partition| partition.to_be_bytes()));
    bytes
}

fn of_t(list: &[i32]) -> Partitions {
    list.iter().map(|partition| (T, *partition)).collect()
}

/// A classic member as its client sees itself.
#[derive(Clone, Debug, Default)]
struct Classic {
    member_id: String,
    instance_id: Option<&'static str>,
    generation: i32,
    owned: Vec<i32>,
}

impl Classic {
    fn request(&self) -> MemberRequest<'_> {
        MemberRequest {
            group_id: GROUP,
            generation_id: self.generation,
            member_id: &self.member_id,
            group_instance_id: self.instance_id,
        }
    }
}

impl Bench {
    fn send(&mut self, ticket: u64, request: GroupRequest<'_>) -> Vec<(Ticket, GroupReply)> {
        let step = self.machine.handle(self.now, Ticket(ticket), request);
        self.keep(step)
    }

    fn keep(&mut self, step: Step) -> Vec<(Ticket, GroupReply)> {
        self.log.extend(step.records);
        step.replies
    }

    fn join_classic(&mut self, ticket: u64, member: &Classic) -> Vec<(Ticket, GroupReply)> {
        let metadata = subscription(&member.owned);
        let request = JoinRequest {
            group_id: GROUP,
            member_id: &member.member_id,
            group_instance_id: member.instance_id,
            client_id: "classic",
            session_timeout_ms: 10_000,
            rebalance_timeout_ms: 20_000,
            protocol_type: "consumer",
            protocols: vec![("range", &metadata), ("other", &metadata)],
            topics: self.topics.clone(),
            ..JoinRequest::default()
        };
        self.send(ticket, GroupRequest::Join(request))
    }

    /// The join of a member that is answered at once.
    fn rejoin(&mut self, member: &mut Classic) -> ErrorCode {
        let reply = only_join(self.join_classic(7, member));
        member.generation = reply.generation_id;
        if reply.error == ErrorCode::None {
            assert_eq!((&*reply.leader, reply.members.len()), ("", 0), "no member leads");
            assert_eq!(reply.protocol_name.as_deref(), Some("range"));
        }
        member.member_id = reply.member_id.to_string();
        reply.error
    }

    fn sync_classic(&mut self, member: &mut Classic) -> ErrorCode {
        let request = SyncRequest {
            member: member.request(),
            protocol_type: Some("consumer"),
            protocol_name: Some("range"),
            topics: self.topics.clone(),
            ..SyncRequest::default()
        };
        let reply = only_sync(self.send(7, GroupRequest::Sync(request)));
        if reply.error == ErrorCode::None {
            let assigned = decode_assignment(&reply.assignment, &self.topics).unwrap();
            member.owned = assigned.into_iter().map(|(_, partition)| partition).collect();
        }
        reply.error
    }

    fn heartbeat(&mut self, member: &Classic) -> ErrorCode {
        match self
            .send(7, GroupRequest::Heartbeat(member.request()))
            .remove(0)
            .1
        {
            GroupReply::Heartbeat(error) => error,
            other => panic!("{other:?}"),
        }
    }

    /// A stable classic group of two members with two partitions of `t` each.
    fn classic_pair(&mut self) -> [Classic; 2] {
        let new = Classic::default();
        assert!(self.join_classic(1, &new).is_empty());
        assert!(self.join_classic(2, &new).is_empty());
        let step = self.machine.on_deadline(self.now);
        let mut joined: Vec<JoinReply> = self.keep(step).into_iter().map(join_of).collect();
        joined.sort_by_key(|reply| reply.members.is_empty());
        let members = [0, 1].map(|index| Classic {
            member_id: joined[index].member_id.to_string(),
            generation: joined[index].generation_id,
            owned: vec![2 * index as i32, 2 * index as i32 + 1],
            ..Classic::default()
        });
        let assigned: Vec<_> = members
            .iter()
            .map(|member| encode_assignment(&of_t(&member.owned), &self.topics, &subscription(&[])))
            .collect();
        let follower = SyncRequest {
            member: members[1].request(),
            ..SyncRequest::default()
        };
        assert!(self.send(3, GroupRequest::Sync(follower)).is_empty());
        let leader = SyncRequest {
            member: members[0].request(),
            assignments: vec![
                (&members[0].member_id, &assigned[0]),
                (&members[1].member_id, &assigned[1]),
            ],
            ..SyncRequest::default()
        };
        assert_eq!(self.send(4, GroupRequest::Sync(leader)).len(), 2);
        members
    }

    fn group_type(&mut self) -> String {
        match self
            .send(7, GroupRequest::List(ListRequest::default()))
            .remove(0)
            .1
        {
            GroupReply::List(groups) => format!("{} {}", groups[0].state, groups[0].group_type),
            other => panic!("{other:?}"),
        }
    }
}

fn join_of((_, reply): (Ticket, GroupReply)) -> JoinReply {
    match reply {
        GroupReply::Join(reply) => reply,
        other => panic!("{other:?}"),
    }
}

fn only_join(mut replies: Vec<(Ticket, GroupReply)>) -> JoinReply {
    assert_eq!(replies.len(), 1, "{replies:?}");
    join_of(replies.remove(0))
}

fn only_sync(mut replies: Vec<(Ticket, GroupReply)>) -> SyncReply {
    match replies.remove(0).1 {
        GroupReply::Sync(reply) => reply,
        other => panic!("{other:?}"),
    }
}

fn with_policy(migration: MigrationPolicy) -> Bench {
    Bench::with(ConsumerConfig {
        migration,
        ..ConsumerConfig::default()
    })
}

/// Two classic members, and `c` of the consumer protocol, which waits for its share.
fn mixed(bench: &mut Bench) -> [Classic; 2] {
    let members = bench.classic_pair();
    let reply = bench.join("c");
    assert_eq!(partitions(&reply), Some(Partitions::new()));
    assert_eq!(bench.group_type(), "Reconciling consumer");
    members
}

#[test]
fn a_classic_group_becomes_a_consumer_group_while_its_members_go_on() {
    let mut bench = Bench::new();
    let [mut a, mut b] = mixed(&mut bench);
    bench.replay();
    // None has lost anything yet, and both are told to join again.
    for member in [&a, &b] {
        assert_eq!(bench.heartbeat(member), ErrorCode::RebalanceInProgress);
        assert_eq!(
            bench.commit(&member.member_id, member.generation, member.owned[0]),
            ErrorCode::None
        );
    }
    // A cooperative member keeps what it owns, and learns at the old generation what it gives up.
    let generation = a.generation;
    let mut told = BTreeSet::new();
    for member in [&mut a, &mut b] {
        assert_eq!(bench.rejoin(member), ErrorCode::None);
        let before = member.owned.clone();
        assert_eq!(bench.sync_classic(member), ErrorCode::None);
        if member.owned.len() < before.len() {
            assert_eq!(member.generation, generation);
            assert_eq!(bench.heartbeat(member), ErrorCode::RebalanceInProgress);
            assert_eq!(bench.rejoin(member), ErrorCode::None);
            assert_eq!(bench.sync_classic(member), ErrorCode::None);
        }
        assert!(member.generation > generation);
        assert_eq!(bench.heartbeat(member), ErrorCode::None);
        told.extend(member.owned.clone());
    }
    let reply = bench.beat(bench.plain("c", a.generation)).unwrap();
    let own = partitions(&reply).expect("it was waiting");
    assert_eq!(own.len(), 1, "{own:?}");
    told.extend(own.into_iter().map(|(_, partition)| partition));
    assert_eq!(told, (0..4).collect());
    assert_eq!(bench.group_type(), "Stable consumer");
    bench.replay();
    // The coordinator was lost; the members' sessions go on as they are configured.
    assert_eq!(bench.heartbeat(&a), ErrorCode::None);
    bench.pass(10_000);
    assert_eq!(
        bench.describe().members.len(),
        1,
        "the classic ones had ten seconds"
    );
}

#[test]
fn a_member_that_owns_nothing_when_it_joins_gets_everything_at_once() {
    let mut bench = Bench::new();
    let [mut a, mut b] = mixed(&mut bench);
    for member in [&mut a, &mut b] {
        // An eager client has given up all.
        member.owned.clear();
        assert_eq!(bench.rejoin(member), ErrorCode::None);
        assert_eq!(bench.sync_classic(member), ErrorCode::None);
    }
    bench.beat(bench.plain("c", a.generation)).unwrap();
    // The first could not have what the second still held.
    for member in [&mut a, &mut b] {
        if bench.heartbeat(member) == ErrorCode::RebalanceInProgress {
            assert_eq!(bench.rejoin(member), ErrorCode::None);
            assert_eq!(bench.sync_classic(member), ErrorCode::None);
        }
        assert_eq!(bench.heartbeat(member), ErrorCode::None);
    }
    assert_eq!(bench.group_type(), "Stable consumer");
}

#[test]
fn members_that_wait_for_a_rebalance_are_told_to_join_again() {
    let mut bench = Bench::new();
    let [a, _] = bench.classic_pair();
    let parked = Classic {
        owned: Vec::new(),
        ..a
    };
    assert!(bench.join_classic(5, &parked).is_empty());
    let request = bench.joining("c");
    let request = GroupRequest::ConsumerHeartbeat(Box::new(request));
    let step = bench.machine.handle(bench.now, Ticket(6), request);
    let replies = bench.keep(step);
    let answered = replies.iter().find(|(ticket, _)| *ticket == Ticket(5));
    match &answered.expect("it waited").1 {
        GroupReply::Join(reply) => assert_eq!(reply.error, ErrorCode::RebalanceInProgress),
        other => panic!("{other:?}"),
    }
    assert_eq!(bench.group_type(), "Reconciling consumer");
}

#[test]
fn the_policy_decides_which_way_a_group_changes() {
    for policy in [MigrationPolicy::Disabled, MigrationPolicy::Downgrade] {
        let mut bench = with_policy(policy);
        bench.classic_pair();
        let request = bench.joining("c");
        assert_eq!(bench.error(request), ErrorCode::GroupIdNotFound, "{policy:?}");
        assert_eq!(bench.group_type(), "Stable classic");
    }
    for (policy, expected) in [
        (MigrationPolicy::Upgrade, "consumer"),
        (MigrationPolicy::Bidirectional, "classic"),
    ] {
        let mut bench = with_policy(policy);
        let [mut a, _] = mixed(&mut bench);
        bench.beat(bench.plain("c", -1)).unwrap();
        assert_eq!(bench.heartbeat(&a), ErrorCode::RebalanceInProgress);
        match expected {
            "classic" => assert!(bench.join_classic(5, &a).is_empty(), "a rebalance of all"),
            _ => assert_eq!(bench.rejoin(&mut a), ErrorCode::None),
        }
        assert!(bench.group_type().ends_with(expected), "{policy:?}");
        bench.replay();
    }
}

#[test]
fn a_group_without_consumer_members_is_a_classic_one_when_one_of_it_joins() {
    let mut bench = Bench::new();
    let [a, mut b] = mixed(&mut bench);
    bench.beat(bench.plain("c", -1)).unwrap();
    assert!(bench.join_classic(5, &a).is_empty());
    assert_eq!(bench.group_type(), "PreparingRebalance classic");
    // The generation is the one that its members know.
    assert_eq!(bench.heartbeat(&b), ErrorCode::RebalanceInProgress);
    let replies = bench.join_classic(6, &b);
    let joined: Vec<JoinReply> = replies.into_iter().map(join_of).collect();
    assert_eq!(joined.len(), 2);
    assert!(joined.iter().all(|reply| reply.generation_id == a.generation + 1));
    let leader = joined.iter().find(|reply| !reply.members.is_empty());
    assert_eq!(leader.expect("one leads").members.len(), 2);
    bench.replay();
    b.generation += 1;
    bench.pass(10_000);
    assert_eq!(
        bench.heartbeat(&b),
        ErrorCode::UnknownMemberId,
        "its session has ended"
    );
}

#[test]
fn a_static_member_changes_its_protocol_and_keeps_its_place() {
    let mut bench = Bench::new();
    let mut a = Classic {
        instance_id: Some("i"),
        ..Classic::default()
    };
    let mut b = Classic {
        instance_id: Some("j"),
        ..Classic::default()
    };
    // Both start with a member of the consumer protocol, so that no leader is needed.
    bench.join("c");
    assert_eq!(bench.rejoin(&mut a), ErrorCode::None);
    bench.owning("c", 2, &[0, 1]);
    assert_eq!(bench.rejoin(&mut a), ErrorCode::None);
    assert_eq!(bench.sync_classic(&mut a), ErrorCode::None);
    assert_eq!(a.owned.len(), 2);
    // The instance comes back with the consumer protocol: no other member notices.
    let epoch = bench.describe().epoch;
    let request = ConsumerHeartbeat {
        instance_id: Some("i"),
        ..bench.joining("a2")
    };
    let reply = bench.beat(request).unwrap();
    assert_eq!(partitions(&reply), Some(of_t(&a.owned)));
    assert_eq!(bench.describe().epoch, epoch);
    assert_eq!(bench.heartbeat(&a), ErrorCode::FencedInstanceId);
    // And back again, without a release.
    let mut back = Classic {
        instance_id: Some("i"),
        ..Classic::default()
    };
    assert_eq!(bench.rejoin(&mut back), ErrorCode::None);
    assert_eq!(bench.sync_classic(&mut back), ErrorCode::None);
    assert_eq!((back.owned.clone(), bench.describe().epoch), (a.owned, epoch));
    // A wrong id of an instance, and one of no instance.
    b.member_id = "x".to_owned();
    assert_eq!(bench.rejoin(&mut b), ErrorCode::UnknownMemberId);
    (b.instance_id, b.member_id) = (Some("i"), "x".to_owned());
    assert_eq!(bench.rejoin(&mut b), ErrorCode::FencedInstanceId);
    bench.replay();

    // The last member of the consumer protocol is replaced: the group is classic at once, and
    // stable.
    let static_c = ConsumerHeartbeat {
        instance_id: Some("k"),
        ..bench.joining("d")
    };
    bench.beat(bench.plain("c", -1)).unwrap();
    let epoch = bench.beat(static_c).unwrap().member_epoch;
    assert_eq!(bench.rejoin(&mut back), ErrorCode::None);
    assert_eq!(bench.sync_classic(&mut back), ErrorCode::None);
    let request = ConsumerHeartbeat {
        instance_id: Some("k"),
        ..bench.plain("d", epoch)
    };
    bench.beat(request).unwrap();
    let away = ConsumerHeartbeat {
        instance_id: Some("k"),
        ..bench.plain("d", STATIC_LEAVE_EPOCH)
    };
    bench.beat(away).unwrap();
    let mut last = Classic {
        instance_id: Some("k"),
        ..Classic::default()
    };
    assert_eq!(bench.rejoin(&mut last), ErrorCode::None);
    assert_eq!(bench.group_type(), "Stable classic");
    assert_eq!(bench.sync_classic(&mut last), ErrorCode::None);
    let all: BTreeSet<i32> = back.owned.iter().chain(&last.owned).copied().collect();
    assert_eq!(all, (0..4).collect());
    assert_eq!(bench.heartbeat(&back), ErrorCode::None);
    bench.replay();
}

#[test]
fn a_member_that_does_not_come_back_when_it_is_told_to_is_removed() {
    let mut bench = Bench::new();
    let [a, b] = mixed(&mut bench);
    // It says every few seconds that it lives, and that is all.
    for _ in 0..4 {
        assert_eq!(bench.heartbeat(&a), ErrorCode::RebalanceInProgress);
        assert_eq!(bench.heartbeat(&b), ErrorCode::RebalanceInProgress);
        bench.pass(4_999);
    }
    assert_eq!(bench.describe().members.len(), 3);
    bench.pass(4);
    assert_eq!(bench.heartbeat(&a), ErrorCode::UnknownMemberId);
    assert_eq!(bench.describe().members.len(), 1);

    // One that joins and never asks what it is assigned.
    let mut d = Classic::default();
    assert_eq!(bench.rejoin(&mut d), ErrorCode::None);
    for _ in 0..4 {
        bench.heartbeat(&d);
        bench.pass(5_000);
    }
    assert_eq!(bench.heartbeat(&d), ErrorCode::UnknownMemberId);
}

#[test]
fn requests_of_classic_members_are_checked() {
    let mut bench = Bench::new();
    let [mut a, b] = mixed(&mut bench);
    let old = a.clone();
    a.owned.clear();
    assert_eq!(bench.rejoin(&mut a), ErrorCode::None);
    assert_eq!(bench.heartbeat(&old), ErrorCode::IllegalGeneration);
    assert_eq!(
        bench.commit(&a.member_id, a.generation + 1, 0),
        ErrorCode::IllegalGeneration
    );
    let mut consumer = Classic {
        member_id: "c".to_owned(),
        generation: bench.describe().epoch,
        ..Classic::default()
    };
    assert_eq!(bench.heartbeat(&consumer), ErrorCode::UnknownMemberId);
    assert_eq!(bench.sync_classic(&mut consumer), ErrorCode::UnknownMemberId);
    for (protocol_type, protocol_name) in [("connect", "range"), ("consumer", "unknown")] {
        let request = SyncRequest {
            member: a.request(),
            protocol_type: Some(protocol_type),
            protocol_name: Some(protocol_name),
            ..SyncRequest::default()
        };
        let reply = only_sync(bench.send(7, GroupRequest::Sync(request)));
        assert_eq!(reply.error, ErrorCode::InconsistentGroupProtocol);
    }
    let metadata = subscription(&[]);
    let join = |protocol_type, protocols| JoinRequest {
        group_id: GROUP,
        session_timeout_ms: 10_000,
        rebalance_timeout_ms: 10_000,
        protocol_type,
        protocols,
        ..JoinRequest::default()
    };
    for (protocol_type, protocols) in [
        ("connect", vec![("range", &metadata[..])]),
        ("consumer", vec![("alone", &metadata[..])]),
        ("consumer", vec![("range", &b"\0"[..])]),
    ] {
        let request = GroupRequest::Join(join(protocol_type, protocols));
        assert_eq!(
            only_join(bench.send(7, request)).error,
            ErrorCode::InconsistentGroupProtocol
        );
    }
    let request = JoinRequest {
        requires_known_member_id: true,
        ..join("consumer", vec![("range", &metadata[..])])
    };
    let reply = only_join(bench.send(7, GroupRequest::Join(request)));
    assert_eq!(reply.error, ErrorCode::MemberIdRequired);
    assert_eq!(bench.describe().members.len(), 3);
    // The id that was given out is good for one session, any other for nothing.
    for (member_id, expected) in [
        ("gone", ErrorCode::UnknownMemberId),
        (&*reply.member_id, ErrorCode::None),
    ] {
        let mut member = Classic {
            member_id: member_id.to_owned(),
            ..Classic::default()
        };
        assert_eq!(bench.rejoin(&mut member), expected);
    }

    let leave = LeaveRequest {
        group_id: GROUP,
        members: vec![(&b.member_id, None), ("c", None)],
        reason: None,
    };
    match bench.send(7, GroupRequest::Leave(leave)).remove(0).1 {
        GroupReply::Leave(left) => {
            let errors: Vec<ErrorCode> = left.iter().map(|member| member.error).collect();
            assert_eq!(errors, [ErrorCode::None, ErrorCode::UnknownMemberId]);
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(bench.describe().members.len(), 3);
}

#[test]
fn classic_members_that_leave_together_raise_the_epoch_once() {
    let mut bench = Bench::new();
    let [a, b] = mixed(&mut bench);
    let before = bench.describe();
    let leave = LeaveRequest {
        group_id: GROUP,
        members: vec![(&a.member_id, None), (&b.member_id, None)],
        reason: None,
    };
    bench.send(7, GroupRequest::Leave(leave));
    let after = bench.describe();
    assert_eq!(after.members.len() + 2, before.members.len());
    assert_eq!(after.epoch, before.epoch + 1);
}

#[test]
fn a_full_group_is_not_changed_by_who_finds_no_room() {
    let mut bench = Bench::with(ConsumerConfig {
        size_max: 2,
        ..ConsumerConfig::default()
    });
    bench.classic_pair();
    let request = bench.joining("c");
    assert_eq!(bench.error(request), ErrorCode::GroupMaxSizeReached);
    assert_eq!(bench.group_type(), "Stable classic");
    let mut bench = Bench::with(ConsumerConfig {
        size_max: 1,
        ..ConsumerConfig::default()
    });
    bench.join("c");
    assert_eq!(
        bench.rejoin(&mut Classic::default()),
        ErrorCode::GroupMaxSizeReached
    );
}
