//! The sticky assignment where all members subscribe to the same topics: every member keeps owned
//! partitions up to its quota, and the rest goes to members with too few.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::sticky::{Problem, Solution};

struct Dealing<'a> {
    problem: &'a Problem<'a>,
    quota_min: usize,
    quota_max: usize,
    /// How many members get `quota_max` where that is more than `quota_min`.
    over_min_expected: usize,
    over_min: usize,
    assigned: Vec<Vec<usize>>,
    /// Partitions that stay with their owner.
    kept: BTreeSet<usize>,
    /// Partitions that their owner may have to give up.
    maybe_revoked: BTreeMap<usize, usize>,
    /// Members with fewer than `quota_min`, and those with exactly that many that may get one more.
    under_min: Vec<usize>,
    exactly_min: VecDeque<usize>,
    moved: BTreeSet<usize>,
}

pub fn solve(problem: &Problem<'_>) -> Solution {
    let member_count = problem.members.len();
    if member_count == 0 {
        return Solution {
            partitions: Vec::new(),
            moved: Some(BTreeSet::new()),
        };
    }
    let partition_count = problem.partition_topics.len();
    let mut dealing = Dealing {
        problem,
        quota_min: partition_count / member_count,
        quota_max: partition_count.div_ceil(member_count),
        over_min_expected: partition_count % member_count,
        over_min: 0,
        assigned: vec![Vec::new(); member_count],
        kept: BTreeSet::new(),
        maybe_revoked: BTreeMap::new(),
        under_min: Vec::new(),
        exactly_min: VecDeque::new(),
        moved: BTreeSet::new(),
    };
    for member in 0..member_count {
        dealing.keep(member);
    }
    let mut unassigned: Vec<usize> = (0..partition_count)
        .filter(|partition| !dealing.kept.contains(partition))
        .collect();
    dealing
        .under_min
        .sort_by_key(|member| problem.members[*member].rank);
    dealing
        .exactly_min
        .make_contiguous()
        .sort_by_key(|member| problem.members[*member].rank);
    problem.racks.sort_by_nearby_members(&mut unassigned);
    if problem.racks.are_used() {
        dealing.deal_nearby(&mut unassigned);
    }
    dealing.deal(&unassigned);
    Solution {
        partitions: dealing.assigned,
        moved: Some(dealing.moved),
    }
}

impl Dealing<'_> {
    /// Lets the member keep what it owns, up to its quota.
    fn keep(&mut self, member: usize) {
        let problem = self.problem;
        let mut owned = Vec::new();
        for partition in &problem.members[member].owned {
            if problem.racks.mismatch(member, *partition) {
                self.maybe_revoked.insert(*partition, member);
            } else if !problem.doubly_claimed.contains(partition) {
                owned.push(*partition);
            }
        }
        // By index before topic, so that partitions are given up evenly from all topics.
        owned.sort_by_key(|partition| {
            let topic = problem.partition_topics[*partition];
            (partition - problem.topics[topic].first, topic)
        });
        let quota = if owned.len() < self.quota_min {
            self.under_min.push(member);
            owned.len()
        } else if owned.len() >= self.quota_max && self.over_min < self.over_min_expected {
            self.over_min += 1;
            if self.over_min == self.over_min_expected {
                self.exactly_min.clear();
            }
            self.quota_max
        } else {
            if self.over_min < self.over_min_expected {
                self.exactly_min.push_back(member);
            }
            self.quota_min
        };
        for partition in owned.drain(quota..) {
            self.maybe_revoked.insert(partition, member);
        }
        self.kept.extend(&owned);
        self.assigned[member] = owned;
    }

    /// Assigns partitions to members in a rack of their replicas, while such members have room
    /// (KIP-881).
    fn deal_nearby(&mut self, unassigned: &mut Vec<usize>) {
        let mut next = 0;
        unassigned.retain(|partition| {
            let Some(member) = self.nearby_with_room(*partition, &mut next) else {
                return true;
            };
            self.give(*partition, member);
            false
        });
    }

    fn nearby_with_room(&mut self, partition: usize, next: &mut usize) -> Option<usize> {
        let racks = &self.problem.racks;
        if let Some(index) = racks.next_nearby(partition, &self.under_min, *next) {
            let member = self.under_min[index];
            let mut after = index;
            let count = self.assigned[member].len() + 1;
            if count >= self.quota_min {
                self.under_min.remove(index);
                if count < self.quota_max && self.over_min < self.over_min_expected {
                    self.exactly_min.push_back(member);
                }
            } else {
                after += 1;
            }
            *next = after.checked_rem(self.under_min.len()).unwrap_or(0);
            return Some(member);
        }
        let index = racks.next_nearby(partition, self.exactly_min.make_contiguous(), 0)?;
        let member = self.exactly_min[index];
        if self.assigned[member].len() + 1 == self.quota_max {
            self.exactly_min.remove(index);
            self.over_min += 1;
            if self.over_min == self.over_min_expected {
                self.exactly_min.clear();
            }
        }
        Some(member)
    }

    /// Round robin over members with too few; then one more each for those with exactly the
    /// minimum.
    fn deal(&mut self, unassigned: &[usize]) {
        let mut next = 0;
        for partition in unassigned {
            if next == self.under_min.len() {
                next = 0;
            }
            let member = match self.under_min.get(next) {
                Some(member) => {
                    next += 1;
                    *member
                }
                None => self
                    .exactly_min
                    .pop_front()
                    .expect("the quotas of all members together are all partitions"),
            };
            let count = self.give(*partition, member);
            if count == self.quota_min {
                next -= 1;
                self.under_min.remove(next);
                self.exactly_min.push_back(member);
            } else if count == self.quota_max {
                self.over_min += 1;
            }
        }
    }

    /// Returns the member's new number of partitions.
    fn give(&mut self, partition: usize, member: usize) -> usize {
        self.assigned[member].push(partition);
        let is_anothers = self
            .maybe_revoked
            .get(&partition)
            .is_some_and(|owner| *owner != member);
        if is_anothers || self.problem.doubly_claimed.contains(&partition) {
            self.moved.insert(partition);
        }
        self.assigned[member].len()
    }
}
