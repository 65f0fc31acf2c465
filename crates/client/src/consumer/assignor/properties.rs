//! Properties of every assignment, for random groups.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::subscription::MemberSubscription;
use super::topics::TopicReplicas;
use super::user_data::LastAssignment;
use super::{GroupAssignment, RebalanceProtocol, common_protocol};
use crate::config::AssignorKind;
use crate::consumer::topic_partition::TopicPartition;
use crate::network::backoff::Random;

const KINDS: [AssignorKind; 4] = [
    AssignorKind::Range,
    AssignorKind::RoundRobin,
    AssignorKind::Sticky,
    AssignorKind::CooperativeSticky,
];

fn topics(random: &mut Random) -> BTreeMap<Arc<str>, TopicReplicas> {
    (0..1 + random.below(5))
        .map(|index| {
            let count = 1 + random.below(12) as usize;
            (format!("t{index}").into(), TopicReplicas::without_racks(count))
        })
        .collect()
}

fn members(
    random: &mut Random,
    topics: &BTreeMap<Arc<str>, TopicReplicas>,
    is_alike: bool,
) -> Vec<MemberSubscription> {
    (0..1 + random.below(9))
        .map(|index| MemberSubscription {
            member_id: format!("m{index}-{}", random.below(1_000)).into(),
            topics: topics
                .keys()
                .filter(|_| is_alike || random.below(3) > 0)
                .cloned()
                .collect(),
            ..MemberSubscription::default()
        })
        .collect()
}

fn partitions(topics: &BTreeMap<Arc<str>, TopicReplicas>) -> BTreeSet<TopicPartition> {
    let of_topic = |(name, replicas): (&Arc<str>, &TopicReplicas)| {
        let name = name.clone();
        (0..replicas.partition_count() as i32).map(move |index| TopicPartition::new(name.clone(), index))
    };
    topics.iter().flat_map(of_topic).collect()
}

/// Every partition that has a subscriber belongs to exactly one of its subscribers.
fn check_complete(
    topics: &BTreeMap<Arc<str>, TopicReplicas>,
    members: &[MemberSubscription],
    assignment: &GroupAssignment,
) {
    for partition in partitions(topics) {
        let owners: Vec<&MemberSubscription> = members
            .iter()
            .filter(|member| assignment[&member.member_id].contains(&partition))
            .collect();
        let is_wanted = members
            .iter()
            .any(|member| member.topics.contains(&partition.topic));
        assert_eq!(
            owners.len(),
            usize::from(is_wanted),
            "{partition} belongs to {owners:?}"
        );
        assert!(owners.iter().all(|owner| owner.topics.contains(&partition.topic)));
    }
}

fn counts(assignment: &GroupAssignment) -> Vec<usize> {
    let mut counts: Vec<usize> = assignment.values().map(BTreeSet::len).collect();
    counts.sort_unstable();
    counts
}

#[test]
fn every_partition_has_exactly_one_owner_that_subscribes_to_it() {
    for seed in 0..300 {
        let mut random = Random::new(seed);
        let topics = topics(&mut random);
        let members = members(&mut random, &topics, seed % 2 == 0);
        for kind in KINDS {
            let assignment = kind.assign(&topics, &members);
            assert_eq!(assignment.len(), members.len());
            check_complete(&topics, &members, &assignment);
        }
    }
}

#[test]
fn members_with_the_same_topics_get_equally_many_partitions() {
    for seed in 0..200 {
        let mut random = Random::new(seed);
        let topics = topics(&mut random);
        let members = members(&mut random, &topics, true);
        for kind in [
            AssignorKind::RoundRobin,
            AssignorKind::Sticky,
            AssignorKind::CooperativeSticky,
        ] {
            let counts = counts(&kind.assign(&topics, &members));
            assert!(
                counts[counts.len() - 1] - counts[0] <= 1,
                "seed {seed} {kind:?}: {counts:?}"
            );
        }
    }
}

#[test]
fn range_gives_the_same_indexes_of_topics_with_equally_many_partitions() {
    let topics: BTreeMap<Arc<str>, TopicReplicas> = ["a", "b"]
        .map(|name| (name.into(), TopicReplicas::without_racks(7)))
        .into();
    let members = members(&mut Random::new(3), &topics, true);
    for partitions in AssignorKind::Range.assign(&topics, &members).values() {
        let of = |topic: &str| -> Vec<i32> {
            partitions
                .iter()
                .filter(|other| &*other.topic == topic)
                .map(|other| other.partition)
                .collect()
        };
        assert_eq!(of("a"), of("b"));
    }
}

/// Makes every member report its assignment, as it does when it rejoins.
fn remember(
    members: &mut [MemberSubscription],
    assignment: &GroupAssignment,
    kind: AssignorKind,
    generation: i32,
) {
    for member in members {
        let Some(partitions) = assignment.get(&member.member_id) else {
            continue;
        };
        let mut last = LastAssignment::default();
        last.remember(partitions, generation);
        member.user_data = last.user_data(kind);
        member.generation = Some(generation);
        if kind == AssignorKind::CooperativeSticky {
            member.owned = partitions.iter().cloned().collect();
        }
    }
}

#[test]
fn nothing_moves_when_nothing_changed() {
    for seed in 0..200 {
        let mut random = Random::new(seed);
        let topics = topics(&mut random);
        let mut members = members(&mut random, &topics, seed % 2 == 0);
        for kind in [AssignorKind::Sticky, AssignorKind::CooperativeSticky] {
            let first = kind.assign(&topics, &members);
            remember(&mut members, &first, kind, 5);
            members.reverse();
            assert_eq!(kind.assign(&topics, &members), first, "seed {seed} {kind:?}");
        }
    }
}

#[test]
fn only_partitions_of_a_leaving_member_move() {
    for seed in 0..200 {
        let mut random = Random::new(seed);
        let topics = topics(&mut random);
        let mut members = members(&mut random, &topics, true);
        let first = AssignorKind::Sticky.assign(&topics, &members);
        remember(&mut members, &first, AssignorKind::Sticky, 5);
        if members.len() == 1 {
            continue;
        }
        members.remove(random.below(members.len() as u64) as usize);
        let second = AssignorKind::Sticky.assign(&topics, &members);
        for (member, partitions) in &second {
            assert!(
                partitions.is_superset(&first[member]),
                "seed {seed}: {member} lost something"
            );
        }
    }
}

#[test]
fn a_cooperative_rebalance_gives_no_member_what_another_still_owns() {
    for seed in 0..300 {
        let mut random = Random::new(seed);
        let topics = topics(&mut random);
        let mut members = members(&mut random, &topics, seed % 2 == 0);
        let kind = AssignorKind::CooperativeSticky;
        let mut assignment = kind.assign(&topics, &members);
        for generation in 1..12 {
            remember(&mut members, &assignment, kind, generation);
            if generation < 4 {
                let newcomer = MemberSubscription {
                    member_id: format!("new-{generation}").into(),
                    topics: topics.keys().filter(|_| random.below(4) > 0).cloned().collect(),
                    ..MemberSubscription::default()
                };
                members.push(newcomer);
            }
            let next = kind.assign(&topics, &members);
            for member in &members {
                for partition in &next[&member.member_id] {
                    let is_anothers = members
                        .iter()
                        .any(|other| other.member_id != member.member_id && other.owned.contains(partition));
                    assert!(!is_anothers, "seed {seed}: {partition} still belongs to another");
                }
            }
            assignment = next;
        }
        // Without further changes, the second rebalance assigns what the first one revoked.
        check_complete(&topics, &members, &assignment);
    }
}

#[test]
fn a_group_is_cooperative_only_when_every_assignor_is() {
    use AssignorKind::{CooperativeSticky, Range};
    assert_eq!(
        common_protocol(&[CooperativeSticky]),
        RebalanceProtocol::Cooperative
    );
    assert_eq!(
        common_protocol(&[Range, CooperativeSticky]),
        RebalanceProtocol::Eager
    );
    assert_eq!(common_protocol(&[Range]), RebalanceProtocol::Eager);
}

/// The leader runs the assignor on the client's thread, which must also send heartbeats.
#[test]
fn a_large_group_with_different_subscriptions_is_distributed() {
    let mut random = Random::new(1);
    let topics: BTreeMap<Arc<str>, TopicReplicas> = (0..40)
        .map(|index| (format!("t{index}").into(), TopicReplicas::without_racks(50)))
        .collect();
    let mut members: Vec<MemberSubscription> = (0..100)
        .map(|index| MemberSubscription {
            member_id: format!("m{index}").into(),
            topics: topics.keys().filter(|_| random.below(2) > 0).cloned().collect(),
            ..MemberSubscription::default()
        })
        .collect();
    let first = AssignorKind::Sticky.assign(&topics, &members);
    check_complete(&topics, &members, &first);
    remember(&mut members, &first, AssignorKind::Sticky, 5);
    members.truncate(70);
    let second = AssignorKind::Sticky.assign(&topics, &members);
    check_complete(&topics, &members, &second);
    let counts = counts(&second);
    assert!(counts[counts.len() - 1] - counts[0] <= 1, "{counts:?}");
}
