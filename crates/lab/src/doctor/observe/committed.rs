//! How far a consumer is, by what its group has committed: a busy consumer has records of many
//! partitions at hand and asks for one partition at a time, so its fetches alone do not tell where
//! the others are.
//!
//! A group may commit rarely, so a commit that lies some time back is no lag. Fetches are noted
//! every few seconds; a fetch that was noted lately tells the lag of its own moment, unless commits
//! show that the records it brought wait for the application.
//!
//! Which member reads a partition follows from the last fetch of it; a group's only member reads
//! all.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::counts::{BrokerCounts, GroupCounts};
use super::membership::Memberships;
use super::windows::{ClientSums, Key, Stand};
use crate::doctor::snapshot::Role;

type Partition = (Arc<str>, i32);

/// A fetch noted within this time tells where its reader is.
const RECENT_MICROS: u64 = 4_000_000;

/// A commit is late if it is farther behind the end than what arrives in this time. An application
/// commits what it has worked on since its last poll.
const LATE_SECONDS: f64 = 2.0;

/// The readers of the groups' partitions.
#[derive(Default)]
pub(super) struct Committed {
    readers: HashMap<Arc<str>, BTreeMap<Partition, Reader>>,
}

struct Reader {
    key: Key,
    /// From where it last fetched, the end at that time, and when that was.
    fetched: Stand,
    /// The committed offset and the end at the last reading.
    committed: Option<Stand>,
    /// When the group last committed, it was far behind.
    is_late: bool,
}

impl Reader {
    fn of(key: &Key, fetched: Stand) -> Reader {
        Reader {
            key: key.clone(),
            fetched,
            committed: None,
            is_late: false,
        }
    }

    /// Compares a new commit with what has arrived since the last reading.
    fn note_committed(&mut self, now: Stand) {
        let Some(before) = self.committed.replace(now) else {
            return;
        };
        if before.offset == now.offset {
            return;
        }
        let seconds = now.at_micros.saturating_sub(before.at_micros) as f64 / 1e6;
        let arrived = (now.end - before.end).max(0) as f64;
        let late = arrived * (1.0 + LATE_SECONDS / seconds.max(1.0));
        self.is_late = (now.end - now.offset) as f64 > late.max(1.0);
    }

    fn stand(&self, committed: Stand) -> Stand {
        let is_recent = self.fetched.at_micros + RECENT_MICROS >= committed.at_micros;
        if self.is_late {
            return committed;
        }
        if is_recent {
            return self.fetched;
        }
        Stand {
            offset: self.fetched.offset.max(committed.offset),
            ..committed
        }
    }
}

impl Committed {
    /// Gives every consumer of a slice the positions of the partitions that it reads.
    pub(super) fn tell(
        &mut self,
        clients: &mut HashMap<Key, ClientSums>,
        memberships: &Memberships<'_>,
        reading: &BrokerCounts,
    ) {
        let groups: BTreeSet<&str> = reading.groups.iter().map(|group| &*group.group_id).collect();
        self.readers.retain(|group_id, _| groups.contains(&**group_id));
        let mut members: HashMap<&str, Vec<Key>> = HashMap::new();
        for (key, sums) in &*clients {
            let group = match key.role {
                Role::Consumer => memberships.group_of(&key.client_id, key.address),
                Role::Producer => None,
            };
            let Some(group) = group else { continue };
            members.entry(&group.group_id).or_default().push(key.clone());
            self.see(group, key, sums);
        }
        for group in &reading.groups {
            let only = match members.get(&*group.group_id).map(Vec::as_slice) {
                Some([only]) if group.members.len() == 1 => Some(only),
                Some(_) => None,
                None => continue,
            };
            self.tell_group(clients, group, only, reading.moment_micros);
        }
    }

    fn see(&mut self, group: &GroupCounts, key: &Key, sums: &ClientSums) {
        for (partition, (_, last)) in &sums.positions {
            let readers = self.readers.entry(group.group_id.clone()).or_default();
            match readers.get_mut(partition) {
                Some(reader) if reader.key == *key => reader.fetched = *last,
                Some(reader) if reader.fetched.at_micros >= last.at_micros => {}
                _ => {
                    readers.insert(partition.clone(), Reader::of(key, *last));
                }
            }
        }
    }

    fn tell_group(
        &mut self,
        clients: &mut HashMap<Key, ClientSums>,
        group: &GroupCounts,
        only: Option<&Key>,
        moment_micros: u64,
    ) {
        let mut readers = self.readers.get_mut(&group.group_id);
        for committed in &group.committed {
            let partition = (committed.topic.clone(), committed.partition);
            let mut reader = readers.as_mut().and_then(|readers| readers.get_mut(&partition));
            let committed = Stand {
                at_micros: moment_micros,
                offset: committed.offset,
                end: committed.end,
            };
            if let Some(reader) = &mut reader {
                reader.note_committed(committed);
            }
            let Some(key) = only.or(reader.as_ref().map(|reader| &reader.key)) else {
                continue;
            };
            let Some(sums) = clients.get_mut(key) else {
                continue;
            };
            let own = reader.as_ref().filter(|reader| reader.key == *key);
            let stand = own.map_or(committed, |reader| reader.stand(committed));
            sums.positions.insert(partition, (stand, stand));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;
    use crate::doctor::observe::counts::{ConnectionCounts, FetchCounts, MemberCounts, RequestCounts};
    use crate::doctor::observe::windows::Windows;

    const HOST: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));

    fn position(partition: i32, offset: i64, end: i64) -> FetchCounts {
        FetchCounts {
            topic: "t".into(),
            partition,
            offset,
            end,
        }
    }

    /// A consumer's connection; `fetched`: when, and from which partition and offset.
    fn consumer(
        client_id: &str,
        connection_id: u64,
        second: u64,
        fetched: (u64, i32, i64),
    ) -> ConnectionCounts {
        let (at, partition, offset) = fetched;
        ConnectionCounts {
            connection_id,
            client_id: client_id.into(),
            principal: "User:ANONYMOUS".into(),
            tls: None,
            address: HOST,
            is_local: false,
            is_off_at_broker: false,
            written: None,
            instance_id: None,
            push_interval_ms: None,
            software: None,
            produce: None,
            fetch: Some(RequestCounts {
                requests: second + 1,
                ..RequestCounts::default()
            }),
            other_micros: 0,
            commits: 0,
            commit_micros: 0,
            nameless_ends: 0,
            denied: Vec::new(),
            unknown_topics: Vec::new(),
            round_trip_micros: None,
            smoothed_micros: None,
            sending_micros: 0,
            fetched: Some((at * 1_000_000, vec![position(partition, offset, offset + 10)])),
            is_unheard: false,
            is_closed: false,
        }
    }

    fn group(members: &[&str], committed: Vec<FetchCounts>) -> GroupCounts {
        let member = |client_id: &&str| MemberCounts {
            member_id: format!("{client_id}-1").into(),
            client_id: (*client_id).into(),
            client_host: "/10.0.0.1".into(),
            rebalance_timeout_ms: 300_000,
            session_timeout_ms: 45_000,
        };
        GroupCounts {
            group_id: "g".into(),
            members: members.iter().map(member).collect(),
            partition_count: 2,
            late: Vec::new(),
            committed,
        }
    }

    fn reading(second: u64, connections: Vec<ConnectionCounts>, groups: Vec<GroupCounts>) -> BrokerCounts {
        BrokerCounts {
            node_id: 1,
            at_ms: second as i64 * 1_000,
            moment_micros: second * 1_000_000,
            loop_count: 1,
            processor_count: 1,
            connections,
            groups,
            ..BrokerCounts::default()
        }
    }

    // Two even partitions of 100 records/s; the consumer does 50/s in all. It fetched both once,
    // and has worked on what it brought of the first since.
    #[test]
    fn a_partition_that_is_not_fetched_falls_behind_as_its_group_does() {
        let mut windows = Windows::default();
        let mut told = Vec::new();
        for second in (0..=30).step_by(5) {
            let elapsed = second as i64;
            let committed = vec![
                position(0, 50 * elapsed, 100 * elapsed),
                position(1, 0, 100 * elapsed),
            ];
            told = windows.take(reading(
                second,
                vec![consumer("slow", 1, second, (0, 0, 0))],
                vec![group(&["slow"], committed)],
            ));
        }
        let [zero, one] = &told[0].partitions[..] else {
            panic!("two partitions: {:?}", told[0].partitions)
        };
        assert_eq!((zero.lag, one.lag), (Some(1_500.0), Some(3_000.0)));
        assert_eq!(
            (zero.consumed_per_second, one.consumed_per_second),
            (Some(50.0), Some(0.0))
        );
        assert_eq!(
            (zero.produced_per_second, one.produced_per_second),
            (Some(100.0), Some(100.0))
        );
        assert!(!zero.is_own_gauge && !one.is_own_gauge);
    }

    /// One partition of 100 records/s, read every second: its noted fetches, by what was committed.
    fn lag_of_one(fetched: impl Fn(u64) -> (u64, i64), committed: impl Fn(i64) -> i64) -> Option<f64> {
        let mut windows = Windows::default();
        let mut told = Vec::new();
        for second in 0..=30 {
            let (at, offset) = fetched(second);
            let committed = vec![position(0, committed(second as i64), 100 * second as i64)];
            told = windows.take(reading(
                second,
                vec![consumer("one", 1, second, (at, 0, offset))],
                vec![group(&["one"], committed)],
            ));
        }
        told[0].partitions[0].lag
    }

    // The fetch was noted two seconds ago, when ten records were new; the last commit is older.
    #[test]
    fn what_arrived_since_a_fetch_was_noted_is_no_lag() {
        let noted = |second: u64| (second.saturating_sub(2), 100 * (second as i64 - 2).max(0));
        assert_eq!(lag_of_one(noted, |second| second / 5 * 500), Some(10.0));
        // Nor is what arrives between rare commits.
        assert_eq!(lag_of_one(noted, |second| second / 20 * 2_000), Some(10.0));
    }

    // It fetches as fast as records arrive, and commits the 60 of 100 that it has worked on.
    #[test]
    fn records_that_were_fetched_and_wait_for_the_application_are_lag() {
        let noted = |second: u64| (second, 100 * second as i64);
        assert_eq!(lag_of_one(noted, |second| second / 5 * 300), Some(1_200.0));
    }

    #[test]
    fn a_partition_belongs_to_the_member_that_fetched_it_last() {
        let mut windows = Windows::default();
        let committed = |ends: i64| vec![position(0, 0, ends), position(1, 0, ends)];
        let both = ["one", "two"];
        let take = |windows: &mut Windows, second: u64, one: (u64, i32, i64), two: (u64, i32, i64)| {
            let connections = vec![consumer("one", 1, second, one), consumer("two", 2, second, two)];
            let told = windows.take(reading(second, connections, vec![group(&both, committed(500))]));
            told.iter()
                .map(|told| {
                    let partitions = told.partitions.iter().map(|partition| partition.partition);
                    (told.client.client_id.clone(), partitions.collect::<Vec<_>>())
                })
                .collect::<Vec<_>>()
        };
        take(&mut windows, 0, (0, 0, 7), (0, 1, 7));
        let told = take(&mut windows, 5, (5, 0, 7), (5, 1, 7));
        assert_eq!(told, [("one".into(), vec![0]), ("two".into(), vec![1])]);
        // The first partition moves to the other member, which has both from now on.
        let told = take(&mut windows, 10, (5, 0, 7), (10, 0, 9));
        assert_eq!(told[1], ("two".into(), vec![0, 1]));
    }
}
