//! Finds a consumer's group by client id and host: the group's size, its partitions, and the
//! members that were removed because they polled too late (`max.poll.interval.ms`).

use std::collections::HashMap;
use std::net::IpAddr;

use super::counts::GroupCounts;
use super::windows::seen;
use crate::doctor::adapters::{Hints, Software};
use crate::doctor::history::Observed;
use crate::doctor::snapshot::Library;

/// A removed member counts as evidence for this long: the window of a verdict.
const DEPARTED_MS: i64 = 60_000;

/// The groups of one reading, by their members of the last minute.
#[derive(Default)]
pub struct Memberships<'a> {
    at_ms: i64,
    /// `None`: the same client id on the same host is in several groups, so a connection's group is
    /// unknown.
    groups: HashMap<(&'a str, IpAddr), Option<&'a GroupCounts>>,
    /// What the members of a client id and host said in JoinGroup; `None`: they differ.
    timeouts: HashMap<(&'a str, IpAddr), Option<Timeouts>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Timeouts {
    rebalance_ms: i32,
    session_ms: i32,
}

impl<'a> Memberships<'a> {
    pub fn of(groups: &'a [GroupCounts], at_ms: i64) -> Memberships<'a> {
        let mut memberships = Memberships {
            at_ms,
            groups: HashMap::new(),
            timeouts: HashMap::new(),
        };
        for group in groups {
            let gone = (group.late.iter())
                .filter(|(removed_ms, _)| is_recent(*removed_ms, at_ms))
                .map(|(_, member)| member);
            for member in group.members.iter().chain(gone) {
                // Kafka writes hosts as Java does, with a leading slash.
                let Ok(host) = member.client_host.trim_start_matches('/').parse() else {
                    continue;
                };
                let known = memberships
                    .groups
                    .entry((&member.client_id, host))
                    .or_insert(Some(group));
                if known.is_some_and(|known| known.group_id != group.group_id) {
                    *known = None;
                }
                let own = Timeouts {
                    rebalance_ms: member.rebalance_timeout_ms,
                    session_ms: member.session_timeout_ms,
                };
                let told = memberships
                    .timeouts
                    .entry((&member.client_id, host))
                    .or_insert(Some(own));
                *told = told.filter(|told| *told == own);
            }
        }
        memberships
    }

    /// The consumer's group, if it is known.
    pub fn group_of(&self, client_id: &str, address: IpAddr) -> Option<&'a GroupCounts> {
        self.groups.get(&(client_id, address)).copied().flatten()
    }

    /// Fills in the consumer's group, if it is known.
    pub fn tell(&self, observed: &mut Observed, address: IpAddr) {
        let key = (observed.client.client_id.as_str(), address);
        let group = self.groups.get(&key).copied().flatten();
        if let Some(timeouts) = self.timeouts.get(&key).copied().flatten() {
            timeouts.tell(observed);
        }
        let Some(group) = group else { return };
        observed.client.group_id = Some(group.group_id.to_string());
        observed.group_members = Some(group.members.len() as f64);
        observed.group_partitions = (group.partition_count > 0).then_some(group.partition_count as f64);
        observed.expelled = (group.late.iter())
            .filter(|(removed_ms, _)| is_recent(*removed_ms, self.at_ms))
            .map(|(_, member)| member.member_id.to_string())
            .collect();
    }
}

impl Timeouts {
    fn tell(self, observed: &mut Observed) {
        let milliseconds = |ms: i32| (ms > 0).then(|| f64::from(ms));
        observed.settings.session_timeout_ms = milliseconds(self.session_ms).and_then(seen);
        // These consumers name max.poll.interval.ms as their rebalance timeout (KIP-62); others
        // have a setting of its own for it, and no limit between polls.
        let client = &observed.client;
        let (name, version) = (
            client.software_name.as_deref(),
            client.software_version.as_deref(),
        );
        if matches!(
            Software::recognise(name, version, &Hints::default()).library,
            Library::Java | Library::Librdkafka | Library::Ottla
        ) {
            observed.settings.max_poll_interval_ms = milliseconds(self.rebalance_ms).and_then(seen);
        }
    }
}

/// Whether the member was removed within the window of a verdict.
fn is_recent(removed_ms: i64, at_ms: i64) -> bool {
    removed_ms > at_ms - DEPARTED_MS
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    use crate::doctor::observe::counts::MemberCounts;
    use crate::doctor::snapshot::Client;

    const HOST: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));

    fn member(client_id: &str, number: u32) -> MemberCounts {
        MemberCounts {
            member_id: format!("{client_id}-{number}").into(),
            client_id: client_id.into(),
            client_host: "/10.0.0.1".into(),
            rebalance_timeout_ms: 6_000 + i32::try_from(number).unwrap(),
            session_timeout_ms: 45_000,
        }
    }

    fn group(group_id: &str, members: Vec<MemberCounts>, late: Vec<(i64, MemberCounts)>) -> GroupCounts {
        GroupCounts {
            group_id: group_id.into(),
            members,
            partition_count: 6,
            late,
            committed: Vec::new(),
        }
    }

    fn told(groups: &[GroupCounts], client_id: &str) -> Observed {
        let mut observed = Observed {
            client: Client {
                client_id: client_id.to_owned(),
                ..Client::default()
            },
            ..Observed::default()
        };
        Memberships::of(groups, 100_000).tell(&mut observed, HOST);
        observed
    }

    #[test]
    fn a_consumers_reading_names_its_group_and_the_members_that_polled_late() {
        let groups = [group(
            "g",
            vec![member("quick", 1), member("quick", 2)],
            vec![(90_000, member("slow", 9)), (10_000, member("older", 9))],
        )];
        let quick = told(&groups, "quick");
        assert_eq!(quick.client.group_id.as_deref(), Some("g"));
        assert_eq!(
            (quick.group_members, quick.group_partitions),
            (Some(2.0), Some(6.0))
        );
        assert_eq!(quick.expelled, ["slow-9"]);
        // A removed member still has its group; one that left more than a minute ago has none.
        assert_eq!(told(&groups, "slow").expelled, ["slow-9"]);
        assert_eq!(told(&groups, "older").group_members, None);
    }

    #[test]
    fn the_timeouts_of_a_members_join_are_settings_that_were_seen() {
        let groups = [group(
            "g",
            vec![member("one", 1), member("two", 1), member("two", 2)],
            vec![],
        )];
        let told = |client_id: &str, software: Option<&str>| {
            let mut observed = Observed::default();
            observed.client.client_id = client_id.to_owned();
            observed.client.software_name = software.map(str::to_owned);
            Memberships::of(&groups, 100_000).tell(&mut observed, HOST);
            let settings = observed.settings;
            (settings.max_poll_interval_ms, settings.session_timeout_ms)
        };
        let java = told("one", Some("apache-kafka-java"));
        assert_eq!(java, (seen(6_001.0), seen(45_000.0)));
        assert_eq!(told("one", Some("kgo")), (None, seen(45_000.0)));
        assert_eq!(told("one", None), (None, seen(45_000.0)));
        assert_eq!(
            told("two", Some("apache-kafka-java")),
            (None, None),
            "which of both?"
        );
    }

    #[test]
    fn a_client_id_in_two_groups_has_no_known_group() {
        let groups = [
            group("g", vec![member("rdkafka", 1)], Vec::new()),
            group(
                "h",
                vec![member("rdkafka", 2), member("only-here", 1)],
                Vec::new(),
            ),
        ];
        assert_eq!(told(&groups, "rdkafka").group_members, None);
        assert_eq!(told(&groups, "only-here").group_members, Some(2.0));
    }
}
