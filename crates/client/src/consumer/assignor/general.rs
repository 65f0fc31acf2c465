//! The sticky assignment where members subscribe to different topics: moves partitions one by one
//! until no move makes it more even.

use std::collections::{BTreeMap, BTreeSet};

use super::java_order;
use super::movements::Movements;
use super::sticky::{Problem, Solution, remove};

struct Balancing<'a> {
    problem: &'a Problem<'a>,
    /// Members by topic.
    subscribers: Vec<Vec<usize>>,
    /// Partitions that each member could have.
    partitions_max: Vec<usize>,
    /// Partitions by member; `None` for members that no longer take part.
    current: Vec<Option<Vec<usize>>>,
    /// Member by partition.
    owners: Vec<Option<usize>>,
    /// Members that take part, by count of partitions, then by id.
    by_count: BTreeSet<(usize, usize, usize)>,
    /// Owners of an older generation: member and generation by partition.
    previous: BTreeMap<usize, (usize, i32)>,
    movements: Movements,
    /// A member owned a partition that it must not have: rebalance everything, not only the unowned
    /// partitions.
    must_revoke: bool,
}

pub fn solve(problem: &Problem<'_>) -> Solution {
    let mut balancing = Balancing::new(problem);
    balancing.find_previous_owners();
    let kept = balancing.keep();
    // Topics with few subscribers first: they have the least choice.
    let mut topics: Vec<usize> = (0..problem.topics.len()).collect();
    topics.sort_by_key(|topic| (balancing.subscribers[*topic].len(), *topic));
    let all: Vec<usize> = topics
        .iter()
        .map(|topic| &problem.topics[*topic])
        .flat_map(|topic| topic.first..topic.first + topic.count)
        .collect();
    let unassigned: Vec<usize> = all
        .iter()
        .copied()
        .filter(|partition| !kept.contains(partition))
        .collect();
    for member in 0..problem.members.len() {
        let key = balancing.key(member);
        balancing.by_count.extend(key);
    }
    balancing.balance(all, unassigned);
    Solution {
        partitions: balancing
            .current
            .into_iter()
            .map(Option::unwrap_or_default)
            .collect(),
        moved: None,
    }
}

impl<'a> Balancing<'a> {
    fn new(problem: &'a Problem<'a>) -> Balancing<'a> {
        let mut subscribers = vec![Vec::new(); problem.topics.len()];
        let mut owners = vec![None; problem.partition_topics.len()];
        for (index, member) in problem.members.iter().enumerate() {
            member
                .topics
                .iter()
                .for_each(|topic| subscribers[*topic].push(index));
            member
                .owned
                .iter()
                .for_each(|partition| owners[*partition] = Some(index));
        }
        let partitions_max = |topics: &BTreeSet<usize>| -> usize {
            topics.iter().map(|topic| problem.topics[*topic].count).sum()
        };
        Balancing {
            problem,
            subscribers,
            partitions_max: problem
                .members
                .iter()
                .map(|member| partitions_max(&member.topics))
                .collect(),
            current: problem
                .members
                .iter()
                .map(|member| Some(member.owned.clone()))
                .collect(),
            owners,
            by_count: BTreeSet::new(),
            previous: BTreeMap::new(),
            movements: Movements::default(),
            must_revoke: false,
        }
    }

    fn count(&self, member: usize) -> Option<usize> {
        self.current[member].as_ref().map(Vec::len)
    }

    fn key(&self, member: usize) -> Option<(usize, usize, usize)> {
        Some((self.count(member)?, self.problem.members[member].rank, member))
    }

    fn find_previous_owners(&mut self) {
        for (index, member) in self.problem.members.iter().enumerate() {
            let generation = member.generation.unwrap_or(super::user_data::NO_GENERATION);
            if generation >= self.problem.generation_max {
                continue;
            }
            for partition in &member.claimed {
                let known = self.previous.entry(*partition).or_insert((index, generation));
                if generation > known.1 {
                    *known = (index, generation);
                }
            }
        }
    }

    /// Lets members keep partitions that they own, may own, and have in their rack.
    fn keep(&mut self) -> BTreeSet<usize> {
        let problem = self.problem;
        let mut kept = BTreeSet::new();
        for (index, member) in problem.members.iter().enumerate() {
            let Some(partitions) = &mut self.current[index] else {
                continue;
            };
            let before = partitions.len();
            partitions.retain(|partition| {
                member.topics.contains(&problem.partition_topics[*partition])
                    && !problem.racks.mismatch(index, *partition)
            });
            self.must_revoke |= partitions.len() < before;
            kept.extend(partitions.iter().copied());
        }
        kept
    }

    fn balance(&mut self, mut all: Vec<usize>, mut unassigned: Vec<usize>) {
        let is_first = self.by_count.last().is_none_or(|last| last.0 == 0);
        let mut to_assign = unassigned.clone();
        if self.problem.racks.are_used() {
            to_assign.retain(|partition| !self.assign_new(*partition, true));
        }
        for partition in &to_assign {
            self.assign_new(*partition, false);
        }
        // Topics and members without a choice take no part in what follows.
        let has_choice =
            |partition: &usize| self.subscribers[self.problem.partition_topics[*partition]].len() >= 2;
        all.retain(has_choice);
        unassigned.retain(has_choice);
        let fixed = self.take_out_fixed();
        let before = self.current.clone();
        if !self.must_revoke {
            self.reassign_all(&unassigned);
        }
        let is_changed = self.reassign_all(&all);
        if !is_first && is_changed && unevenness(&self.current) >= unevenness(&before) {
            self.current = before;
        }
        for (member, partitions) in fixed {
            self.current[member] = Some(partitions);
        }
    }

    /// Assigns the partition to the subscriber with the fewest; false when no member may have it.
    fn assign_new(&mut self, partition: usize, must_be_near: bool) -> bool {
        let topic = self.problem.partition_topics[partition];
        let may_have = |(_, _, member): &&(usize, usize, usize)| {
            self.problem.members[*member].topics.contains(&topic)
                && !(must_be_near && self.problem.racks.mismatch(*member, partition))
        };
        let Some(&key) = self.by_count.iter().find(may_have) else {
            return false;
        };
        let member = key.2;
        self.by_count.remove(&key);
        self.current[member].get_or_insert_default().push(partition);
        self.owners[partition] = Some(member);
        self.by_count.extend(self.key(member));
        true
    }

    fn take_out_fixed(&mut self) -> Vec<(usize, Vec<usize>)> {
        let mut fixed = Vec::new();
        for member in 0..self.current.len() {
            if self.may_change(member) {
                continue;
            }
            if let Some(key) = self.key(member) {
                self.by_count.remove(&key);
            }
            fixed.extend(self.current[member].take().map(|partitions| (member, partitions)));
        }
        fixed
    }

    fn may_change(&self, member: usize) -> bool {
        let partitions = self.current[member].as_deref().unwrap_or_default();
        partitions.len() < self.partitions_max[member]
            || partitions
                .iter()
                .any(|partition| self.subscribers[self.problem.partition_topics[*partition]].len() >= 2)
    }

    /// Moves partitions until nothing changes; true if any was moved.
    fn reassign_all(&mut self, partitions: &[usize]) -> bool {
        let mut is_changed = false;
        loop {
            let mut is_changed_in_round = false;
            for partition in partitions {
                if self.is_balanced() {
                    break;
                }
                is_changed_in_round |= self.improve(*partition);
            }
            if !is_changed_in_round {
                return is_changed;
            }
            is_changed = true;
        }
    }

    /// Moves the partition, or another one of its topic, to a member that has at least two fewer.
    fn improve(&mut self, partition: usize) -> bool {
        let Some(owner) = self.owners[partition] else {
            return false;
        };
        let Some(count) = self.count(owner) else {
            return false;
        };
        let topic = self.problem.partition_topics[partition];
        if let Some(&(previous, _)) = self.previous.get(&partition) {
            // Kafka gives it back even when the previous owner no longer subscribes, and fails when
            // that owner takes no part; both end in a group that never becomes stable.
            let may_return = self.problem.members[previous].topics.contains(&topic);
            if may_return && self.count(previous).is_some_and(|other| count > other + 1) {
                self.reassign(partition, previous);
                return true;
            }
        }
        let has_fewer = |member: &usize| self.count(*member).is_some_and(|other| count > other + 1);
        if !self.subscribers[topic].iter().any(has_fewer) {
            return false;
        }
        let may_have = |key: &&(usize, usize, usize)| self.problem.members[key.2].topics.contains(&topic);
        let Some(&(_, _, to)) = self.by_count.iter().find(may_have) else {
            return false;
        };
        self.reassign(partition, to);
        true
    }

    fn reassign(&mut self, partition: usize, to: usize) {
        let Some(from) = self.owners[partition] else {
            return;
        };
        let topic = self.problem.partition_topics[partition];
        let partition = self.movements.to_be_moved(topic, partition, from, to);
        let Some(from) = self.owners[partition] else {
            return;
        };
        for key in [self.key(from), self.key(to)].into_iter().flatten() {
            self.by_count.remove(&key);
        }
        let named = &self.problem.topics[topic];
        let hash = java_order::partition_hash(named.name, (partition - named.first) as i32);
        self.movements.record(topic, partition, hash, from, to);
        if let Some(partitions) = &mut self.current[from] {
            remove(partitions, partition);
        }
        if let Some(partitions) = &mut self.current[to] {
            partitions.push(partition);
        }
        self.owners[partition] = Some(to);
        self.by_count
            .extend([self.key(to), self.key(from)].into_iter().flatten());
    }

    /// Whether no member could take a partition from one that has two more.
    fn is_balanced(&self) -> bool {
        let (Some(first), Some(last)) = (self.by_count.first(), self.by_count.last()) else {
            return true;
        };
        if first.0 + 1 >= last.0 {
            return true;
        }
        // The count of the owner with the most partitions, for each topic.
        let count_of_owner = |owner: &Option<usize>| owner.and_then(|owner| self.count(owner));
        let richest: Vec<usize> = self
            .problem
            .topics
            .iter()
            .map(|topic| {
                let owners = &self.owners[topic.first..topic.first + topic.count];
                owners.iter().filter_map(count_of_owner).max().unwrap_or(0)
            })
            .collect();
        self.by_count.iter().all(|(count, _, member)| {
            let topics = &self.problem.members[*member].topics;
            *count == self.partitions_max[*member] || topics.iter().all(|topic| count + 1 >= richest[*topic])
        })
    }
}

/// The sum of the differences between all pairs of members: 0 is even.
fn unevenness(assignment: &[Option<Vec<usize>>]) -> usize {
    let counts: Vec<usize> = assignment.iter().flatten().map(Vec::len).collect();
    let pairs = counts
        .iter()
        .enumerate()
        .flat_map(|(index, count)| counts[index + 1..].iter().map(|other| count.abs_diff(*other)));
    pairs.sum()
}
