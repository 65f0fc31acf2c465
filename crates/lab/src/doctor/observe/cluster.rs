//! What any Kafka cluster tells of its clients by the Admin protocol: members of consumer groups,
//! their committed offsets and the ends of their logs, who writes to topics (`writers.rs`), quotas
//! (`quotas.rs`), and whether any client is asked for metrics. For clients that push nothing it is
//! all there is.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;

use ottla_client::Error;
use ottla_client::admin::{
    Admin, ClientMetricsSubscription, GroupDescription, OffsetSpec, QuotaEntity, QuotaFilter, TopicPartition,
};

use super::paths::is_this_machine;
use super::quotas::Quotas;
use super::seldom::Seldom;
use super::writers::{self, INTERVAL_MS, Pushing, Writers, Writing};
use crate::doctor::history::Observed;
use crate::doctor::snapshot::{BrokerSide, Client, ClusterSide, ConsumedPartition, Role};
use crate::formulas::consumer::COMMIT_SECONDS;
use crate::machine::host::HostCounts;
use crate::numbers;

/// At most this many groups and partitions are asked about, first by name: each reading asks every
/// group's coordinator and every partition's leader.
const GROUPS_MAX: usize = 500;
const PARTITIONS_MAX: usize = 20_000;

/// The limits of each entity, by the quota's name.
type Described = BTreeMap<QuotaEntity, BTreeMap<String, f64>>;

/// Rates are those of the last minute.
const WINDOW_MS: i64 = 60_000;

/// The cluster's groups at one moment.
#[derive(Clone, Debug, Default)]
pub struct ClusterReading {
    /// Milliseconds since 1970.
    pub at_ms: i64,
    /// Some client is asked for metrics (KIP-714).
    pub asks_for_metrics: bool,
    /// The longest interval of those that are asked.
    pub push_interval_ms: i64,
    pub writing: Writing,
    /// By group id.
    pub groups: BTreeMap<String, Vec<Member>>,
    /// Of each group's partitions: the committed offset and the log's end.
    pub positions: BTreeMap<(String, TopicPartition), Position>,
    pub quotas: Quotas,
    pub seldom: Seldom,
    /// This machine, where every broker is on it.
    pub host: Option<HostCounts>,
    /// What this reading lacks.
    pub shortcomings: Vec<Shortcoming>,
}

/// What is not known of a cluster, for the one who runs the collector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shortcoming {
    /// Nothing is known.
    Unanswered(String),
    Groups {
        followed: usize,
        of: usize,
    },
    /// Partitions with a committed offset of a member's group.
    Partitions {
        followed: usize,
        of: usize,
    },
    Quotas(String),
    /// The ends of topics, and their producers.
    Topics {
        followed: usize,
        of: usize,
    },
    Writers(String),
    /// The buffers of the brokers' sockets.
    Sockets(String),
    RecordSizes(String),
}

impl fmt::Display for Shortcoming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = |number: &usize| numbers::count(*number as u64);
        match self {
            Shortcoming::Unanswered(why) => f.write_str(why),
            Shortcoming::Groups { followed, of } => write!(
                f,
                "{} of {} groups are followed, the first by name; the members of the others are not listed",
                count(followed),
                count(of)
            ),
            Shortcoming::Partitions { followed, of } => write!(
                f,
                "{} of {} partitions of consumer groups are followed, the first by group; the lag of the others is unknown",
                count(followed),
                count(of)
            ),
            Shortcoming::Topics { followed, of } => write!(
                f,
                "{} of {} topics are followed, those of clients that push first; who else writes to the others is not known",
                count(followed),
                count(of)
            ),
            Shortcoming::Writers(why) => write!(f, "who writes to topics is unknown: {why}"),
            Shortcoming::Sockets(why) => write!(
                f,
                "the buffers of the brokers' sockets are unknown, and whether one of them is a ceiling: {why}"
            ),
            Shortcoming::RecordSizes(why) => write!(
                f,
                "how large records are is unknown, so that nothing tells what consumers read which push no bytes: {why}"
            ),
            Shortcoming::Quotas(why) => {
                write!(f, "quotas are unknown, whether there are any or not: {why}")
            }
        }
    }
}

/// A member of a group, as its coordinator describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    pub id: String,
    pub client_id: String,
    /// As Kafka writes it: Java's form, with a leading slash.
    pub client_host: String,
    pub assignment: BTreeSet<TopicPartition>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    pub committed: i64,
    pub end: i64,
}

/// Asks the cluster; waits for its brokers.
///
/// - `pushing`: the clients that push.
/// - `windows`: that the last reading went to.
/// - Errors: of a question that concerns all groups. A group or partition that cannot be asked
///   about is left out.
pub fn ask(
    admin: &Admin,
    at_ms: i64,
    pushing: &[Pushing],
    windows: &ClusterWindows,
) -> Result<ClusterReading, Error> {
    let listed = admin.list_groups().wait()?;
    let consumers = listed.iter().filter(|(_, group)| {
        // KIP-848's have no protocol type of their own.
        group.protocol_type == "consumer" || group.kind.eq_ignore_ascii_case("consumer")
    });
    let mut ids: Vec<String> = consumers.map(|(id, _)| id.clone()).collect();
    let mut shortcomings = Vec::new();
    if ids.len() > GROUPS_MAX {
        shortcomings.push(Shortcoming::Groups {
            followed: GROUPS_MAX,
            of: ids.len(),
        });
        ids.truncate(GROUPS_MAX);
    }
    let described = admin.describe_groups(ids).wait()?.into_iter();
    let groups: BTreeMap<String, Vec<Member>> = described
        .filter_map(|(id, group)| Some((id, members(group.ok()?))))
        .filter(|(_, members)| !members.is_empty())
        .collect();
    let positions = positions(admin, &groups, &mut shortcomings)?;
    let limits = admin.describe_client_quotas(QuotaFilter::new()).wait();
    let quotas = Quotas::new(all_limits(limits, &mut shortcomings));
    let writing = writers::ask(admin, pushing, windows.ends(), &mut shortcomings);
    let writing = writing.unwrap_or_else(|error| {
        shortcomings.push(Shortcoming::Writers(error.to_string()));
        Writing::default()
    });
    let intervals = push_intervals(admin)?;
    let brokers = admin.describe_cluster().wait()?.nodes;
    let ids = brokers.keys().copied().collect();
    let seldom = Seldom::ask(admin, at_ms, ids, &positions, windows.seldom());
    shortcomings.extend(seldom.shortcomings.iter().cloned());
    let mut brokers = brokers.into_values();
    let are_here = brokers.len() > 0 && brokers.all(|broker| is_this_machine(&broker.address.host));
    Ok(ClusterReading {
        at_ms,
        asks_for_metrics: !intervals.is_empty(),
        push_interval_ms: intervals.into_iter().max().unwrap_or(INTERVAL_MS),
        writing,
        positions,
        quotas,
        groups,
        seldom,
        host: are_here.then(HostCounts::read).flatten(),
        shortcomings,
    })
}

fn members(group: GroupDescription) -> Vec<Member> {
    let members = group.members.into_iter().map(|member| Member {
        id: member.id,
        client_id: member.client_id,
        client_host: member.client_host,
        assignment: member.assignment,
    });
    members.collect()
}

fn positions(
    admin: &Admin,
    groups: &BTreeMap<String, Vec<Member>>,
    shortcomings: &mut Vec<Shortcoming>,
) -> Result<BTreeMap<(String, TopicPartition), Position>, Error> {
    let mut committed = Vec::new();
    for (group, members) in groups {
        let assigned: BTreeSet<&TopicPartition> =
            members.iter().flat_map(|member| &member.assignment).collect();
        let Ok(offsets) = admin.list_group_offsets(group).wait() else {
            continue;
        };
        for (partition, offset) in offsets {
            if assigned.contains(&partition) {
                committed.push(((group.clone(), partition), offset.offset));
            }
        }
    }
    shorten(&mut committed, PARTITIONS_MAX, shortcomings);
    let asked = committed
        .iter()
        .map(|((_, partition), _)| (partition.clone(), OffsetSpec::Latest));
    let ends = admin.list_offsets(asked.collect()).wait()?;
    let end_of = |partition: &TopicPartition| ends.get(partition)?.as_ref().ok().map(|end| end.offset);
    let positions = committed.into_iter().filter_map(|(key, committed)| {
        let end = end_of(&key.1)?;
        Some((key, Position { committed, end }))
    });
    Ok(positions.collect())
}

/// Keeps the first of all partitions.
fn shorten<T>(partitions: &mut Vec<T>, count_max: usize, shortcomings: &mut Vec<Shortcoming>) {
    if partitions.len() > count_max {
        shortcomings.push(Shortcoming::Partitions {
            followed: count_max,
            of: partitions.len(),
        });
        partitions.truncate(count_max);
    }
}

/// The interval of each subscription to clients' metrics.
fn push_intervals(admin: &Admin) -> Result<Vec<i64>, Error> {
    let subscriptions = admin.list_client_metrics_subscriptions().wait()?;
    let names: Vec<&str> = subscriptions.iter().map(|one| &*one.name).collect();
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let described = admin.describe_client_metrics_subscriptions(&names).wait()?;
    let interval_ms = |entries: &_| ClientMetricsSubscription::from_entries(entries).ok()?.interval_ms;
    let intervals = described
        .into_values()
        .map(|entries| entries.ok().and_then(|entries| interval_ms(&entries)));
    Ok(intervals.map(|ms| ms.map_or(INTERVAL_MS, i64::from)).collect())
}

/// Clusters may forbid to describe them: `DescribeConfigs` of the cluster is needed.
fn all_limits<E: fmt::Display>(
    described: Result<Described, E>,
    shortcomings: &mut Vec<Shortcoming>,
) -> Described {
    described.unwrap_or_else(|error| {
        shortcomings.push(Shortcoming::Quotas(error.to_string()));
        Described::default()
    })
}

/// Turns successive readings into observations of the groups' members and of producers.
#[derive(Debug, Default)]
pub struct ClusterWindows {
    readings: VecDeque<ClusterReading>,
    commits: Commits,
    writers: Writers,
}

impl ClusterWindows {
    /// The ends of partitions in the last reading.
    fn ends(&self) -> &BTreeMap<TopicPartition, i64> {
        static NONE: BTreeMap<TopicPartition, i64> = BTreeMap::new();
        self.readings.back().map_or(&NONE, |last| &last.writing.ends)
    }

    fn seldom(&self) -> Option<&Seldom> {
        Some(&self.readings.back()?.seldom)
    }

    /// Takes the next reading and returns one observation for every member, for every producer of
    /// `pushing`, and for every topic that others write to.
    pub fn take(&mut self, reading: ClusterReading, pushing: &[Pushing]) -> Vec<Observed> {
        self.readings
            .retain(|earlier| earlier.at_ms > reading.at_ms - WINDOW_MS && earlier.at_ms < reading.at_ms);
        note_commits(&mut self.commits, &reading, self.readings.back());
        let (earlier, commits) = (&self.readings, &self.commits);
        let users = users(pushing);
        let mut observed = Vec::new();
        for (group, members) in &reading.groups {
            let assigned: usize = members.iter().map(|member| member.assignment.len()).sum();
            for member in members {
                let mut one = observation(&reading, (earlier, commits), group, member, &users);
                one.group_members = Some(members.len() as f64);
                one.group_partitions = (assigned > 0).then_some(assigned as f64);
                one.rejoined = rejoined(members, earlier, group, member);
                observed.push(one);
            }
        }
        observed.extend(gone(&reading, earlier));
        observed.extend(self.writers.take(&reading, earlier, pushing));
        self.readings.push_back(reading);
        observed
    }
}

fn observation(
    reading: &ClusterReading,
    (earlier, commits): (&VecDeque<ClusterReading>, &Commits),
    group: &str,
    member: &Member,
    users: &Users<'_>,
) -> Observed {
    let first = earlier.front();
    let user = users
        .get(&(&*member.client_id, address(member)))
        .copied()
        .flatten();
    let quota = |kind| reading.quotas.of(kind, user, &member.client_id);
    let read = |partition| consumed(reading, earlier, commits, group, partition);
    let partitions: Vec<ConsumedPartition> = member.assignment.iter().filter_map(read).collect();
    let side = ClusterSide {
        sockets: reading.seldom.sockets,
        record_bytes: reading.seldom.record_bytes_of(&partitions),
        ..ClusterSide::default()
    };
    Observed {
        seconds: first.map_or(0.0, |first| (reading.at_ms - first.at_ms) as f64 / 1e3),
        broker: BrokerSide {
            quota_bytes_per_second: quota("consumer_byte_rate"),
            quota_request_share: quota("request_percentage").map(|percent| percent / 100.0),
            ..BrokerSide::default()
        },
        is_off_at_broker: !reading.asks_for_metrics,
        cluster: (side != ClusterSide::default()).then_some(side),
        partitions,
        ..of_member(group, member)
    }
}

/// The users of consumers that push, by client id and address; `None`: several of them have these.
type Users<'a> = BTreeMap<(&'a str, &'a str), Option<&'a str>>;

fn users(pushing: &[Pushing]) -> Users<'_> {
    let mut users = Users::new();
    for one in pushing.iter().filter(|one| !one.is_producer()) {
        let Some(address) = one.client.address.as_deref() else {
            continue;
        };
        let (name, user) = ((&*one.client.client_id, address), one.user());
        users
            .entry(name)
            .and_modify(|before| *before = before.filter(|before| Some(*before) == user))
            .or_insert(user);
    }
    users
}

/// A client as its group knows it, whatever its member id.
fn name(member: &Member) -> (&str, &str) {
    (&member.client_id, &member.client_host)
}

/// How often the client of a member was there under another id, or was not between two readings;
/// `None`: never, or several clients have its name.
fn rejoined(
    members: &[Member],
    earlier: &VecDeque<ClusterReading>,
    group: &str,
    member: &Member,
) -> Option<f64> {
    let now = of_name(members, name(member))?;
    let mut before: Option<&str> = None;
    let (mut count, mut is_away) = (0, false);
    let readings = earlier
        .iter()
        .map(|reading| reading.groups.get(group).map(Vec::as_slice));
    for there in readings.map(|members| members.unwrap_or_default()) {
        if !there.iter().any(|other| name(other) == name(member)) {
            is_away = before.is_some();
            continue;
        }
        let id = of_name(there, name(member))?;
        count += i32::from(is_away || before.is_some_and(|before| before != id));
        (before, is_away) = (Some(id), false);
    }
    count += i32::from(is_away || before.is_some_and(|before| before != now));
    (count > 0).then(|| f64::from(count))
}

/// The id of the only member with a name.
fn of_name<'a>(members: &'a [Member], wanted: (&str, &str)) -> Option<&'a str> {
    let mut found = members.iter().filter(|other| name(other) == wanted);
    let only = found.next()?;
    found.next().is_none().then_some(&*only.id)
}

/// Members of earlier readings whose clients are not in their groups now: if they still push, they
/// have left.
fn gone(reading: &ClusterReading, earlier: &VecDeque<ClusterReading>) -> Vec<Observed> {
    let mut last: BTreeMap<(&str, (&str, &str)), &Member> = BTreeMap::new();
    for (group, members) in earlier.iter().flat_map(|before| &before.groups) {
        for member in members {
            last.insert((group.as_str(), name(member)), member);
        }
    }
    for (group, members) in &reading.groups {
        for member in members {
            last.remove(&(group.as_str(), name(member)));
        }
    }
    let gone = last.into_iter().map(|((group, _), member)| Observed {
        rejoined: Some(1.0),
        is_complement: true,
        ..of_member(group, member)
    });
    gone.collect()
}

fn address(member: &Member) -> &str {
    member.client_host.trim_start_matches('/')
}

fn of_member(group: &str, member: &Member) -> Observed {
    Observed {
        client: Client {
            client_id: member.client_id.clone(),
            role: Role::Consumer,
            address: Some(address(member).to_owned()),
            group_id: Some(group.to_owned()),
            member_id: Some(member.id.clone()),
            ..Client::default()
        },
        ..Observed::default()
    }
}

/// A group that has committed nothing for this many of its intervals does not commit any more.
const INTERVALS_MAX: i64 = 2;

/// By group and partition.
type Commits = BTreeMap<(String, TopicPartition), Commit>;

/// A group's last commit in a partition.
#[derive(Clone, Copy, Debug)]
struct Commit {
    /// The first reading that has it.
    at_ms: i64,
    /// Records behind the end at that time, and at the commit before.
    lag: f64,
    lag_before: Option<f64>,
    /// Since the commit before, where that is known.
    interval_ms: Option<i64>,
    /// The group commits less often than it is asked, though it has something to commit.
    is_rare: bool,
}

impl Commit {
    fn is_over(&self, now_ms: i64) -> bool {
        let patience_ms = self.interval_ms.map_or(WINDOW_MS, |ms| INTERVALS_MAX * ms);
        now_ms - self.at_ms > patience_ms
    }

    /// The growth of the lag from commit to commit, where there are readings between them.
    fn slope(&self) -> Option<f64> {
        let seconds = self.interval_ms.filter(|_| self.is_rare)? as f64 / 1e3;
        Some((self.lag - self.lag_before?) / seconds)
    }
}

/// Notes the commits since the last reading. The lag is that at the commit, not what has arrived
/// since: a commit that is seen in each reading is as old as commits usually get, and a rare one
/// was made at any time since the last reading.
fn note_commits(commits: &mut Commits, reading: &ClusterReading, last: Option<&ClusterReading>) {
    commits.retain(|key, _| reading.positions.contains_key(key));
    let Some(last) = last else { return };
    let since_ms = reading.at_ms - last.at_ms;
    for (key, now) in &reading.positions {
        let position = last.positions.get(key);
        let Some(before) = position.filter(|before| before.committed != now.committed) else {
            continue;
        };
        let earlier = commits.get(key).copied();
        let is_rare =
            before.end > before.committed && earlier.is_some_and(|earlier| earlier.at_ms < last.at_ms);
        let share = match is_rare {
            true => 1.0,
            false => (1e3 * COMMIT_SECONDS / since_ms as f64).min(1.0),
        };
        let lag = (now.end - now.committed) as f64 - share * (now.end - before.end) as f64;
        let commit = Commit {
            at_ms: reading.at_ms,
            lag: lag.max(0.0),
            lag_before: earlier.map(|earlier| earlier.lag),
            interval_ms: earlier.map(|earlier| {
                if is_rare {
                    reading.at_ms - earlier.at_ms
                } else {
                    since_ms
                }
            }),
            is_rare,
        };
        commits.insert(key.clone(), commit);
    }
}

/// The lag at the group's last commit: a reader at the end would otherwise seem to be behind by all
/// that it has not committed yet. A group that does not commit any more has the whole lag. With one
/// reading of the partition alone it is not known; at the first commit it is where the growth of
/// the log is.
fn consumed(
    reading: &ClusterReading,
    earlier: &VecDeque<ClusterReading>,
    commits: &Commits,
    group: &str,
    partition: &TopicPartition,
) -> Option<ConsumedPartition> {
    let key = (group.to_owned(), partition.clone());
    let now = reading.positions.get(&key)?;
    let growth = writers::growth_of(partition, reading, earlier);
    let earlier = earlier.iter().find_map(|before| {
        let seconds = (reading.at_ms - before.at_ms) as f64 / 1e3;
        Some((before.positions.get(&key)?, seconds)).filter(|_| seconds >= 1.0)
    });
    let commit = commits.get(&key).filter(|commit| !commit.is_over(reading.at_ms));
    let rate =
        |of: fn(&Position) -> i64| earlier.map(|(before, seconds)| (of(now) - of(before)) as f64 / seconds);
    let produced = rate(|position| position.end).or(growth);
    let unread = (now.end - now.committed) as f64;
    let lag = match (commit, earlier) {
        (Some(commit), _) => Some(commit.lag),
        (None, Some(_)) => Some(unread.max(0.0)),
        (None, None) => growth.map(|rate| (unread - COMMIT_SECONDS * rate).max(0.0)),
    };
    // Between rare commits the positions stand still.
    let slope = commit.and_then(Commit::slope);
    let by_slope = slope
        .zip(produced)
        .map(|(slope, produced)| (produced - slope).max(0.0));
    Some(ConsumedPartition {
        topic: partition.topic.to_string(),
        partition: partition.partition,
        lag,
        lag_slope: slope.or_else(|| rate(|position| position.end - position.committed)),
        consumed_per_second: by_slope.or_else(|| rate(|position| position.committed)),
        produced_per_second: produced,
        ..ConsumedPartition::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::history::Collector;

    fn member(number: u32, partitions: &[i32]) -> Member {
        Member {
            id: format!("m-{number}"),
            client_id: "reader".to_owned(),
            client_host: "/10.0.0.1".to_owned(),
            assignment: partitions
                .iter()
                .map(|index| TopicPartition::new("t", *index))
                .collect(),
        }
    }

    fn reading(at_ms: i64, positions: &[(i32, i64, i64)]) -> ClusterReading {
        let members = vec![member(1, &[0, 1]), member(2, &[2])];
        let position = |(index, committed, end): &(i32, i64, i64)| {
            let key = ("g".to_owned(), TopicPartition::new("t", *index));
            let position = Position {
                committed: *committed,
                end: *end,
            };
            (key, position)
        };
        ClusterReading {
            at_ms,
            groups: BTreeMap::from([("g".to_owned(), members)]),
            positions: positions.iter().map(position).collect(),
            quotas: default_of_client_ids("consumer_byte_rate", 1e6),
            ..ClusterReading::default()
        }
    }

    fn default_of_client_ids(kind: &str, limit: f64) -> Quotas {
        let entity = BTreeMap::from([("client-id".to_owned(), None)]);
        let limits = BTreeMap::from([(kind.to_owned(), limit)]);
        Quotas::new([(entity, limits)].into_iter().collect())
    }

    #[test]
    fn what_is_left_out_is_counted() {
        let mut shortcomings = Vec::new();
        let mut all: Vec<u32> = (0..20_000).collect();
        shorten(&mut all, PARTITIONS_MAX, &mut shortcomings);
        assert_eq!((all.len(), shortcomings.len()), (20_000, 0));
        all.push(0);
        shorten(&mut all, PARTITIONS_MAX, &mut shortcomings);
        let told = shortcomings[0].to_string();
        assert!(
            all.len() == 20_000 && told.starts_with("20,000 of 20,001 partitions "),
            "{told}"
        );
    }

    #[test]
    fn quotas_that_may_not_be_described_are_unknown_and_not_none() {
        let mut shortcomings = Vec::new();
        let none: Result<Described, &str> = Ok(Described::default());
        assert!(all_limits(none, &mut shortcomings).is_empty() && shortcomings.is_empty());
        assert!(all_limits(Err("CLUSTER_AUTHORIZATION_FAILED"), &mut shortcomings).is_empty());
        let told = shortcomings[0].to_string();
        let expected = "quotas are unknown, whether there are any or not: CLUSTER_AUTHORIZATION_FAILED";
        assert_eq!(told, expected);
        assert_eq!(shortcomings.len(), 1);
    }

    #[test]
    fn a_member_has_the_quota_of_the_user_that_pushes_in_its_name() {
        let mut reading = reading(0, &[]);
        let user = BTreeMap::from([("user".to_owned(), Some("alice".to_owned()))]);
        let limits = BTreeMap::from([("consumer_byte_rate".to_owned(), 5e5)]);
        reading.quotas = Quotas::new([(user, limits)].into_iter().collect());
        let quota = |pushing: &[Pushing]| {
            let observed = ClusterWindows::default().take(reading.clone(), pushing);
            observed[0].broker.quota_bytes_per_second
        };
        let pushing = |role, principal: &str| Pushing {
            client: Client {
                client_id: "reader".to_owned(),
                address: Some("10.0.0.1".to_owned()),
                principal: Some(principal.to_owned()),
                role,
                ..Client::default()
            },
            topics: BTreeMap::new(),
        };
        let (alice, bob) = (
            pushing(Role::Consumer, "User:alice"),
            pushing(Role::Consumer, "User:bob"),
        );
        assert_eq!(quota(std::slice::from_ref(&alice)), Some(5e5));
        assert_eq!(quota(std::slice::from_ref(&bob)), None);
        assert_eq!(quota(&[alice, bob]), None, "which of them it is is not known");
        assert_eq!(quota(&[pushing(Role::Producer, "User:alice")]), None);
    }

    #[test]
    fn a_member_has_the_lag_and_the_rates_of_its_partitions() {
        let mut windows = ClusterWindows::default();
        windows.take(reading(0, &[(0, 100, 200), (2, 5, 5)]), &[]);
        let observed = windows.take(reading(10_000, &[(0, 150, 450), (1, 0, 7), (2, 5, 5)]), &[]);
        let [one, two] = &observed[..] else {
            panic!("two members")
        };
        assert_eq!((one.group_members, one.group_partitions), (Some(2.0), Some(3.0)));
        assert_eq!(one.client.address.as_deref(), Some("10.0.0.1"));
        assert!(one.is_off_at_broker, "there is no subscription");
        assert_eq!(one.broker.quota_bytes_per_second, Some(1e6));
        let partition = &one.partitions[0];
        assert_eq!((partition.lag, partition.lag_slope), (Some(175.0), Some(20.0)));
        assert_eq!(
            (partition.consumed_per_second, partition.produced_per_second),
            (Some(5.0), Some(25.0))
        );
        assert_eq!(
            (one.partitions[1].lag, one.partitions[1].lag_slope),
            (None, None),
            "its first commit"
        );
        assert_eq!((two.partitions.len(), two.partitions[0].lag), (1, Some(0.0)));
    }

    #[test]
    fn a_client_that_leaves_its_group_and_joins_again_is_counted() {
        let with = |at_ms, members: &[Member]| ClusterReading {
            at_ms,
            groups: match members {
                [] => BTreeMap::new(),
                some => BTreeMap::from([("g".to_owned(), some.to_vec())]),
            },
            ..ClusterReading::default()
        };
        let rejoined = |courses: &[&[Member]]| {
            let mut windows = ClusterWindows::default();
            let mut last = Vec::new();
            for (index, members) in courses.iter().enumerate() {
                last = windows.take(with(10_000 * index as i64, members), &[]);
            }
            let told = last
                .iter()
                .map(|one| (one.client.member_id.clone(), one.rejoined));
            told.collect::<Vec<_>>()
        };
        let one = |number| vec![member(number, &[0])];
        let told = |number, count| vec![(Some(format!("m-{number}")), count)];
        assert_eq!(rejoined(&[&one(1), &one(1)]), told(1, None));
        assert_eq!(rejoined(&[&one(1), &one(2), &one(3)]), told(3, Some(2.0)));
        // KIP-848: the id stays.
        assert_eq!(rejoined(&[&[], &one(1), &[], &one(1)]), told(1, Some(1.0)));
        // It is away.
        assert_eq!(rejoined(&[&one(1), &[]]), told(1, Some(1.0)));
        // Two of one name: which of them came back is not known.
        let both = [member(1, &[0]), member(2, &[1])];
        let others = [member(1, &[0]), member(3, &[1])];
        let counts: Vec<_> = rejoined(&[&both, &others]).into_iter().map(|one| one.1).collect();
        assert_eq!(counts, [None, None]);
    }

    /// Regression: until a group's second commit its lag was the clients' own gauges, by which one
    /// that fell behind kept up.
    #[test]
    fn at_its_first_commit_a_partition_has_the_lag_that_the_growth_of_its_log_leaves() {
        let lag = |end: i64| {
            let mut windows = ClusterWindows::default();
            let with_end = |at_ms, end, positions: &[_]| {
                let mut one = reading(at_ms, positions);
                one.writing.ends.insert(TopicPartition::new("t", 0), end);
                one
            };
            windows.take(with_end(0, end - 4_000, &[]), &[]);
            let observed = windows.take(with_end(10_000, end, &[(0, 5_000, end)]), &[]);
            let partition = &observed[0].partitions[0];
            assert_eq!(partition.produced_per_second, Some(400.0));
            assert_eq!((partition.lag_slope, partition.consumed_per_second), (None, None));
            partition.lag
        };
        // Five seconds of records may be read and not committed.
        assert_eq!(lag(6_500), Some(0.0));
        assert_eq!(lag(9_000), Some(2_000.0));
    }

    /// Regression: for a minute after a group's first commit its lag was the clients' own gauges,
    /// and one that fell behind on Apache Kafka was said to catch up.
    #[test]
    fn a_partition_is_compared_with_the_first_reading_that_has_it() {
        let mut windows = ClusterWindows::default();
        windows.take(reading(0, &[]), &[]);
        windows.take(reading(10_000, &[(0, 100, 400)]), &[]);
        let observed = windows.take(reading(20_000, &[(0, 200, 800), (1, 5, 9)]), &[]);
        let [zero, one] = &observed[0].partitions[..] else {
            panic!("two partitions: {:?}", observed[0].partitions)
        };
        assert_eq!((zero.lag, zero.lag_slope), (Some(400.0), Some(30.0)));
        assert_eq!(
            (zero.consumed_per_second, zero.produced_per_second),
            (Some(10.0), Some(40.0))
        );
        assert_eq!((one.lag, one.lag_slope), (None, None), "its first commit");
    }

    /// Regression: consumers that kept up on Apache Kafka were said to fall behind.
    #[test]
    fn what_is_not_committed_yet_is_no_lag_while_a_group_commits() {
        let lag = |later: (i64, i64)| {
            let mut windows = ClusterWindows::default();
            windows.take(reading(0, &[(0, 96_000, 100_000)]), &[]);
            let observed = windows.take(reading(10_000, &[(0, later.0, later.1)]), &[]);
            observed[0].partitions[0].lag
        };
        // 1,000 records/s, and the last commit was four seconds ago.
        assert_eq!(lag((106_000, 110_000)), Some(0.0));
        assert_eq!(lag((100_000, 110_000)), Some(5_000.0), "it is slower");
        assert_eq!(lag((96_000, 110_000)), Some(14_000.0), "it commits nothing");
    }

    /// Readings of every 10 s, until `seconds`, of a group that reads `per_second` of 1,000
    /// records/s and commits in this interval; the lag and its slope of each reading.
    fn rare(per_second: i64, interval: i64, seconds: i64) -> Vec<(Option<f64>, Option<f64>)> {
        let mut windows = ClusterWindows::default();
        let mut told = Vec::new();
        for second in (0..=seconds).step_by(10) {
            // The first commit comes at 7 s.
            let committed = (second - 7).max(0) / interval * interval + 7;
            let position = (0, per_second * committed, 1_000 * second.max(7));
            let observed = windows.take(reading(1_000 * second, &[position]), &[]);
            let partition = &observed[0].partitions[0];
            told.push((partition.lag, partition.lag_slope));
        }
        told
    }

    /// Regression: readers at the end that commit every 30 s (Kafka Streams) or 60 s (Connect) were
    /// behind by up to 55 s of records.
    #[test]
    fn what_comes_between_two_rare_commits_is_no_lag() {
        for interval in [20, 30, 60] {
            let told = rare(1_000, interval, 600);
            // Two commits tell the interval.
            let settled = 2 * interval as usize / 10 + 2;
            let is_healthy = |one: &(Option<f64>, Option<f64>)| *one == (Some(0.0), Some(0.0));
            let count = told
                .iter()
                .skip(settled + 1)
                .filter(|one| is_healthy(one))
                .count();
            assert_eq!(count, told.len() - settled - 1, "every {interval} s: {told:?}");
        }
    }

    #[test]
    fn a_reader_that_falls_behind_between_rare_commits_is_seen() {
        let told = rare(600, 30, 600);
        let (Some(lag), Some(slope)) = told[told.len() - 1] else {
            panic!("{told:?}")
        };
        // The commit of 577 s, and what came in the 10 s around it.
        assert!((220_000.0..=231_000.0).contains(&lag), "{lag}");
        assert!((390.0..=410.0).contains(&slope), "{slope}");
    }

    #[test]
    fn a_group_whose_rare_commits_end_has_the_whole_lag() {
        let mut windows = ClusterWindows::default();
        let mut lags = Vec::new();
        for second in (0..=200).step_by(10) {
            let committed = 1_000 * (second.min(119) / 30 * 30);
            let observed = windows.take(reading(1_000 * second, &[(0, committed, 1_000 * second)]), &[]);
            lags.push(observed[0].partitions[0].lag);
        }
        // The last one is of 90 s.
        assert_eq!(lags[15], Some(0.0), "{lags:?}");
        assert_eq!(lags[16], Some(70_000.0), "{lags:?}");
    }

    #[test]
    fn members_with_one_client_id_on_one_host_are_listed_each() {
        let collector = Collector::default();
        for observed in ClusterWindows::default().take(reading(0, &[(0, 100, 200), (2, 5, 9)]), &[]) {
            collector.observe(observed, 0);
        }
        let mut snapshots = collector.snapshots(1);
        snapshots.sort_by_key(|snapshot| snapshot.client.member_id.clone());
        let lags =
            |snapshot: &crate::doctor::Snapshot| snapshot.consumer.as_ref().and_then(|own| own.lag_max);
        assert_eq!(snapshots.iter().map(lags).collect::<Vec<_>>(), [None, None]);
        assert!(
            snapshots
                .iter()
                .all(|snapshot| snapshot.telemetry.pushes == Some(0))
        );
    }
}
