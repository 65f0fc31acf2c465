//! What the console reads: plain values, and the trait that brings them.
//!
//! There are two kinds of brokers. An Ottla in this process knows everything; Apache Kafka tells
//! over the wire only what its protocol has. What a source cannot tell is [`Untold`], with a
//! sentence for the place where it would stand: a page never shows an empty box.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use ottla_lab::doctor::Snapshot;
use ottla_lab::doctor::diagnosis::Examination;
use ottla_lab::doctor::promises::document::Promises;
use ottla_wire::acl::{Operation, ResourceType};
use serde::{Serialize, Serializer};

use crate::reports::Reports;
use crate::stage::StageMicros;
use crate::trend::{GroupProgress, Position, Progress};

/// Why something is not known, as a sentence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Untold(pub String);

impl fmt::Display for Untold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Untold {
    /// Only the broker itself measures `what`.
    pub fn by_kafka(what: &str) -> Untold {
        Untold(format!(
            "Apache Kafka does not tell {what}; an Ottla measures it."
        ))
    }
}

pub type Told<T> = Result<T, Untold>;

/// A broker or a cluster, as the console sees it. Called on threads that may wait.
pub trait Source: Send + Sync {
    /// Cumulative counts; two readings make a rate.
    fn counts(&self) -> Told<Counts>;
    fn identity(&self) -> Identity;
    fn examination(&self) -> Told<Examination>;
    fn snapshots(&self) -> Told<Vec<Snapshot>>;
    fn promises(&self) -> Told<Promises>;
    fn topics(&self) -> Told<Arc<Vec<Topic>>>;
    /// Everything about one topic; `None`: there is none of this name.
    fn topic(&self, name: &str) -> Told<Option<TopicDetail>>;
    /// Everything about one partition; `None`: there is none of this number.
    fn partition(&self, topic: &str, index: i32) -> Told<Option<PartitionDetail>>;
    fn groups(&self) -> Told<Arc<Groups>>;
    /// Whether counts and groups are asked for also while no page is: a cluster's groups cost it
    /// requests.
    fn is_sampled_unviewed(&self) -> bool {
        true
    }
    /// How far the groups have read; asked every few seconds, so it must be cheap.
    fn progress(&self) -> Told<Progress> {
        self.groups().map(|groups| groups.progress())
    }
    fn slow_requests(&self) -> Told<Vec<SlowRequest>>;
    /// By entity.
    fn quotas(&self) -> Told<Vec<SetQuota>>;
    /// The document of `GET /tenants`.
    fn tenants(&self) -> Told<String>;
    fn settings(&self) -> Told<Vec<BrokerSetting>>;
    /// By name.
    fn subscriptions(&self) -> Told<Vec<Subscription>>;
    fn peek(&self, ask: &Peek) -> Told<Peeked>;
    /// Time between two looks at the end of a partition that is followed.
    fn look_interval_ms(&self) -> u64 {
        1_000
    }
    fn access(&self) -> Told<Access>;
    fn explain_access(&self, question: &AccessQuestion) -> Told<AccessAnswer>;
    fn transactions(&self) -> Told<Vec<OpenTransaction>>;
    /// Reports of `ottla bench`; `None`: no directory was given.
    fn reports(&self) -> Option<&Reports> {
        None
    }
    /// How old an answer is that was kept; `None`: it is of this moment.
    fn as_of(&self, _part: Part<'_>) -> Option<AsOf> {
        None
    }
    /// Milliseconds since 1970.
    fn now_ms(&self) -> i64;
}

/// An answer of a source that may be kept.
#[derive(Clone, Copy, Debug)]
pub enum Part<'a> {
    Topics,
    Topic(&'a str),
    Partition(&'a str, i32),
    Groups,
    Quotas,
    Settings,
    Records(&'a Peek),
    Access,
    Transactions,
}

/// The age of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AsOf {
    /// Milliseconds since 1970.
    pub at_ms: i64,
    /// Why there is no newer one.
    pub problem: Option<Untold>,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct Identity {
    /// `Ottla 0.1.0`, or what a foreign broker says of itself.
    pub software: String,
    /// Where clients connect: `127.0.0.1:9092`.
    pub address: String,
    pub cluster_id: String,
    /// `/metrics` is at this address, too.
    pub serves_metrics: bool,
}

/// Everything that only grows, since the broker started, and a few gauges.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// On a clock that does not jump.
    pub moment_micros: u64,
    pub apis: Vec<ApiCounts>,
    pub records_in: u64,
    pub bytes_in: u64,
    pub bytes_out: u64,
    pub busy_micros: u64,
    pub loop_count: u64,
    pub connections: u64,
    pub memory_bytes: Option<u64>,
    pub disk: Option<Disk>,
    pub topics: Vec<TopicCounts>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Disk {
    pub used_bytes: u64,
    pub total_bytes: u64,
}

#[derive(Clone, Debug, Default)]
pub struct ApiCounts {
    pub name: &'static str,
    pub requests: u64,
    pub stage_micros: StageMicros,
    /// Times without what clients ask for: the largest value of a bucket in microseconds, and how
    /// many there are; ascending.
    pub own_buckets: Vec<(u32, u64)>,
    /// Requests that waited for a read of the disk.
    pub cold_reads: u64,
}

#[derive(Clone, Debug, Default)]
pub struct TopicCounts {
    pub name: Arc<str>,
    pub records_in: u64,
    pub bytes_in: u64,
    pub bytes_out: u64,
    /// As in Apache Kafka, a request counts once for each partition that it names.
    pub produce_requests: u64,
    pub fetch_requests: u64,
    /// Those of them that were answered with an error for the partition.
    pub failed_produce_requests: u64,
    pub failed_fetch_requests: u64,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct Topic {
    pub name: String,
    pub partitions: usize,
    pub is_internal: bool,
    /// On the disk.
    pub bytes: Option<u64>,
    /// As a sentence: `7 days`, `for ever`, `1 GiB a partition`.
    pub retention: Option<String>,
    pub failed_partitions: usize,
    /// The records of the fullest partition over the mean, since the broker started; `None`: one
    /// partition, no record, or not told.
    pub skew: Option<f64>,
}

impl Topic {
    /// - `records`: that came into each partition.
    pub fn skew_of(records: impl Iterator<Item = u64>) -> Option<f64> {
        let (mut count, mut sum, mut most) = (0_u64, 0_u64, 0_u64);
        for records in records {
            count += 1;
            sum += records;
            most = most.max(records);
        }
        (count > 1 && sum > 0).then(|| most as f64 * count as f64 / sum as f64)
    }
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct TopicDetail {
    pub topic: Topic,
    pub partitions: Vec<Partition>,
    /// Settings of its own, with the source of each.
    pub settings: Vec<BrokerSetting>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Partition {
    pub index: i32,
    pub log_start: i64,
    pub high_watermark: i64,
    pub log_end: i64,
    pub bytes: Option<u64>,
    pub records_in: Option<u64>,
    pub bytes_in: Option<u64>,
    /// Why it refuses writes.
    pub failure: Option<String>,
}

#[derive(Clone, Debug, Serialize)]
pub struct PartitionDetail {
    #[serde(flatten)]
    pub partition: Partition,
    /// Readers of committed records read up to it.
    #[serde(serialize_with = "told")]
    pub last_stable: Told<i64>,
    #[serde(serialize_with = "told")]
    pub leader_epoch: Told<i32>,
    /// The newest timestamp of a record, milliseconds since 1970; `None`: no record has one.
    #[serde(serialize_with = "told")]
    pub newest_at_ms: Told<Option<i64>>,
    /// Newest first.
    #[serde(serialize_with = "told")]
    pub segments: Told<Vec<LogSegment>>,
    pub segments_cut: usize,
    /// Those with an open transaction first.
    #[serde(serialize_with = "told")]
    pub producers: Told<Vec<PartitionProducer>>,
    pub producers_cut: usize,
}

/// What is told as it is; what is not, with the reason.
fn told<T: Serialize, S: Serializer>(told: &Told<T>, to: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Why<'a> {
        untold: &'a Untold,
    }
    match told {
        Ok(value) => value.serialize(to),
        Err(untold) => Why { untold }.serialize(to),
    }
}

/// A file of the log, with its indexes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LogSegment {
    pub base_offset: i64,
    pub bytes: u64,
    /// `None`: not known without reading it.
    pub newest_at_ms: Option<i64>,
}

/// An idempotent or transactional producer, as the partition knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PartitionProducer {
    pub producer_id: i64,
    pub producer_epoch: i32,
    pub last_sequence: i32,
    pub last_at_ms: Option<i64>,
    /// Where its open transaction begins.
    pub transaction_from: Option<i64>,
}

#[derive(Clone, Debug, Default)]
pub struct Groups {
    /// When they were read, milliseconds since 1970.
    pub at_ms: i64,
    pub groups: Vec<Group>,
    /// Groups that there are beyond these.
    pub cut: usize,
}

impl Groups {
    pub fn progress(&self) -> Progress {
        let with_offsets = self.groups.iter().filter(|group| !group.offsets.is_empty());
        Progress {
            at_ms: self.at_ms,
            groups: with_offsets.map(Group::progress).collect(),
        }
    }
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct Group {
    pub group_id: String,
    /// `Stable`, `Empty`, ...
    pub state: Option<String>,
    pub members: Vec<Member>,
    pub offsets: Vec<GroupOffset>,
    /// Committed partitions beyond these: the lag is at least that of `offsets`.
    pub cut_partitions: usize,
    /// The last first; `None`: the cluster does not tell.
    pub departures: Option<Vec<GroupDeparture>>,
    /// The last first; `None`: the cluster does not tell.
    pub rebalances: Option<Vec<GroupRebalance>>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Member {
    pub member_id: String,
    pub client_id: String,
    pub host: String,
    /// The partitions that it holds, by topic.
    pub holds: BTreeMap<String, Vec<i32>>,
    /// Partitions that it holds beyond these.
    pub holds_more: usize,
    /// Where it is on its way to its assignment; `None`: the group's protocol does not tell.
    pub state: Option<String>,
}

impl Member {
    pub fn has(&self, topic: &str, partition: i32) -> bool {
        let partitions = self.holds.get(topic);
        partitions.is_some_and(|partitions| partitions.contains(&partition))
    }
}

impl Group {
    fn progress(&self) -> GroupProgress {
        let mut progress = GroupProgress::new(&self.group_id);
        for offset in &self.offsets {
            progress.add(&offset.topic, offset.partition, offset.position());
        }
        progress
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct GroupOffset {
    pub topic: String,
    pub partition: i32,
    pub committed: i64,
    pub log_start: i64,
    pub log_end: i64,
    /// The time of the next record to be read, milliseconds since 1970.
    pub next_at_ms: Option<i64>,
    /// Why it is not known, where there is a record to be read.
    pub time_unknown: Option<TimeUnknown>,
}

/// Why the time of a record is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TimeUnknown {
    NotInMemory,
    NotSet,
    TooManyBehind,
    NotTold,
}

impl fmt::Display for TimeUnknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TimeUnknown::NotInMemory => "the next record is not in memory",
            TimeUnknown::NotSet => "the next record has no timestamp",
            TimeUnknown::TooManyBehind => "more partitions are behind than times are looked up for",
            TimeUnknown::NotTold => "Apache Kafka does not tell the time of the next record",
        })
    }
}

impl GroupOffset {
    fn position(&self) -> Position {
        Position {
            committed: self.committed,
            log_start: self.log_start,
            log_end: self.log_end,
        }
    }

    /// Records to be read.
    pub fn lag(&self) -> i64 {
        self.position().lag()
    }

    /// The age of the next record; zero when there is none.
    pub fn lag_seconds(&self, now_ms: i64) -> Option<f64> {
        match self.lag() {
            0 => Some(0.0),
            _ => self.next_at_ms.map(|at_ms| (now_ms - at_ms).max(0) as f64 / 1e3),
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct GroupDeparture {
    pub at_ms: i64,
    pub client_id: String,
    pub why: String,
}

/// From what made it necessary to the assignment of all members.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct GroupRebalance {
    pub began_at_ms: i64,
    /// `None`: under way.
    pub ended_at_ms: Option<i64>,
    /// `orders-2 joined`
    pub why: String,
    pub generation: Option<i32>,
    pub members: Option<usize>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SlowRequest {
    pub api: &'static str,
    pub client_id: Arc<str>,
    pub finished_at_ms: i64,
    pub request_bytes: u64,
    pub reply_bytes: u64,
    pub stage_micros: StageMicros,
}

/// A quota that is set, whether it applies to a client that has been seen or not.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SetQuota {
    /// `user ana and client-id default`.
    pub entity: String,
    /// Kafka's name: `producer_byte_rate`.
    pub quota: String,
    pub limit: f64,
}

impl SetQuota {
    /// - `parts`: of an entity, sorted by type: type and name; `None`: its default.
    pub fn entity<'a>(parts: impl DoubleEndedIterator<Item = (&'a str, Option<&'a str>)>) -> String {
        let words = parts
            .rev()
            .map(|(kind, name)| format!("{kind} {}", name.unwrap_or("default")));
        words.collect::<Vec<String>>().join(" and ")
    }
}

/// What clients are asked to push (KIP-714), with the values as they were set.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Subscription {
    pub name: String,
    /// Prefixes of names.
    pub metrics: String,
    pub interval_ms: String,
    /// Which clients; empty: all.
    #[serde(rename = "match")]
    pub matching: String,
}

impl Subscription {
    /// - `value`: of one of Kafka's keys.
    pub fn of<'a>(name: String, value: impl Fn(&str) -> Option<&'a str>) -> Subscription {
        let value = |key| value(key).unwrap_or_default().to_owned();
        Subscription {
            name,
            metrics: value("metrics"),
            interval_ms: value("interval.ms"),
            matching: value("match"),
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct BrokerSetting {
    pub name: String,
    /// `None`: not set, or secret.
    pub value: Option<String>,
    pub default: Option<String>,
    /// `file`, `set at run time`, `default`.
    pub origin: String,
    pub is_set: bool,
    pub is_secret: bool,
    /// Known, accepted, and without effect.
    pub is_without_effect: bool,
    pub about: String,
}

/// A question for records.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Peek {
    pub topic: String,
    pub partition: i32,
    pub from: PeekFrom,
    pub filter: Filter,
    pub records_max: usize,
    /// Bytes of a key, a value or a header that are returned.
    pub field_bytes_max: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PeekFrom {
    /// The last records.
    End,
    /// The last records, but none before this offset.
    Since(i64),
    Offset(i64),
    /// The first record that is not older; milliseconds since 1970.
    Time(i64),
}

/// Which records are wanted: those that meet each of the conditions.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Filter {
    /// This text is in the key, the value or a header.
    pub containing: Option<String>,
    /// The key is this text.
    pub key: Option<String>,
    pub json: Option<JsonIs>,
}

/// The value is JSON, and has something at this place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct JsonIs {
    /// RFC 6901: `/customer/id`.
    pub pointer: String,
    /// A text without its quotes, everything else as JSON without blanks; `None`: whatever it is.
    pub is: Option<String>,
}

impl Peek {
    /// How many offsets before the end the last records are looked for.
    pub fn tail_offsets(&self) -> i64 {
        const SEARCHED: i64 = 5_000;
        match self.filter == Filter::default() {
            true => self.records_max as i64,
            false => SEARCHED,
        }
    }
}

impl Filter {
    pub fn wants<'a>(
        &self,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        mut headers: impl Iterator<Item = Option<&'a [u8]>>,
    ) -> bool {
        let has = |text: &String, field: Option<&[u8]>| {
            field.is_some_and(|field| field.windows(text.len()).any(|part| part == text.as_bytes()))
        };
        let contains =
            |text: &String| has(text, key) || has(text, value) || headers.any(|header| has(text, header));
        self.key
            .as_ref()
            .is_none_or(|wanted| key == Some(wanted.as_bytes()))
            && self.containing.as_ref().is_none_or(contains)
            && self.json.as_ref().is_none_or(|json| json.holds(value))
    }
}

impl JsonIs {
    /// Longer values are not read: a tree of JSON takes several times the memory of its text.
    pub const VALUE_BYTES_MAX: usize = 1 << 20;

    fn holds(&self, value: Option<&[u8]>) -> bool {
        let Some(value) = value.filter(|value| value.len() <= JsonIs::VALUE_BYTES_MAX) else {
            return false;
        };
        let Ok(tree) = serde_json::from_slice::<serde_json::Value>(value) else {
            return false;
        };
        match (tree.pointer(&self.pointer), &self.is) {
            (None, _) => false,
            (Some(_), None) => true,
            (Some(serde_json::Value::String(text)), Some(wanted)) => text == wanted,
            (Some(found), Some(wanted)) => {
                let written = found.to_string();
                written == *wanted
            }
        }
    }
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct Peeked {
    pub partition_count: i32,
    pub log_start: i64,
    pub log_end: i64,
    /// The first offset that was looked at.
    pub from_offset: i64,
    pub records: Vec<PeekedRecord>,
    /// Records that were compared with what was asked for.
    pub looked_at: usize,
    /// Where a later look goes on.
    pub next_offset: i64,
    /// Why there are fewer than asked for.
    pub note: Option<String>,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct PeekedRecord {
    pub offset: i64,
    pub timestamp_ms: i64,
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    /// Complete lengths; key and value may be cut.
    pub key_bytes: usize,
    pub value_bytes: usize,
    pub headers: Vec<(String, Option<Vec<u8>>)>,
    /// `None`: not known.
    pub codec: Option<String>,
    pub producer_id: Option<i64>,
}

/// Who may do what.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Access {
    /// `None`: every client may do everything.
    pub authorizer: Option<String>,
    pub rules: Vec<AccessRule>,
    pub users: Vec<String>,
    /// Denials by type of resource, since the broker started.
    pub denials: Vec<(String, u64)>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct AccessRule {
    pub principal: String,
    pub permission: String,
    pub operation: String,
    pub resource: String,
    pub host: String,
}

/// May this principal do that?
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessQuestion {
    /// With its type: `User:app`.
    pub principal: String,
    /// Canonical; `None`: a host that no ACL names.
    pub host: Option<IpAddr>,
    pub operation: Operation,
    pub resource_type: ResourceType,
    pub resource: String,
}

impl AccessQuestion {
    /// - Errors: the principal has no type.
    pub fn principal(text: &str) -> Result<String, String> {
        match text.split_once(':') {
            Some((kind, _)) if !kind.is_empty() => Ok(text.to_owned()),
            _ => Err(format!(
                "{text:?} is not a principal: it has no type, as in User:{text}"
            )),
        }
    }

    /// What a client can ask for: everything but `All`, which only ACLs have.
    pub fn operation(name: &str) -> Result<Operation, String> {
        match Operation::named(name) {
            Some(Operation::All) => Err(String::from(
                "All is of ACLs: a client asks for one operation at a time",
            )),
            Some(operation) => Ok(operation),
            None => {
                let names: Vec<&str> = AccessQuestion::operations().map(Operation::name).collect();
                Err(format!("must be one of {}", names.join(", ")))
            }
        }
    }

    pub fn operations() -> impl Iterator<Item = Operation> {
        let all = Operation::ALL.iter().copied();
        all.filter(|operation| *operation != Operation::All)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct AccessAnswer {
    pub allowed: bool,
    /// `of this ACL: Allow User:app Write on literal Topic orders from *`
    pub because: String,
    /// What would allow it, in this order; empty if it is allowed.
    pub commands: Vec<String>,
    /// What the answer depends on besides.
    pub notes: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct OpenTransaction {
    pub transactional_id: String,
    pub producer_id: i64,
    pub state: String,
    pub since_ms: Option<i64>,
    pub partitions: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entity_is_named_with_its_user_first() {
        let pair = [("client-id", None), ("user", Some("ana"))];
        assert_eq!(
            SetQuota::entity(pair.into_iter()),
            "user ana and client-id default"
        );
        assert_eq!(SetQuota::entity([("ip", None)].into_iter()), "ip default");
    }

    #[test]
    fn a_filter_wants_records_that_meet_each_of_its_conditions() {
        let value = br#"{"customer":{"id":42,"name":"a/b"},"paid":true,"a/b":null,"list":[1,{"x":2}]}"#;
        let wants = |filter: &Filter| {
            let headers = [None, Some(&b"trace-7"[..])];
            filter.wants(Some(b"k1"), Some(value), headers.into_iter())
        };
        let json = |pointer: &str, is: Option<&str>| Filter {
            json: Some(JsonIs {
                pointer: pointer.to_owned(),
                is: is.map(str::to_owned),
            }),
            ..Filter::default()
        };
        for (pointer, is, expected) in [
            ("/customer/id", Some("42"), true),
            ("/customer/id", Some("4"), false),
            ("/customer/id", None, true),
            ("/customer/name", Some("a/b"), true),
            ("/paid", Some("true"), true),
            ("/a~1b", Some("null"), true),
            ("/a/b", None, false),
            ("/list/1/x", Some("2"), true),
            ("/list/1", Some("{\"x\":2}"), true),
            ("/list/2", None, false),
        ] {
            assert_eq!(wants(&json(pointer, is)), expected, "{pointer} {is:?}");
        }
        let of = |containing: Option<&str>, key: Option<&str>| Filter {
            containing: containing.map(str::to_owned),
            key: key.map(str::to_owned),
            json: None,
        };
        assert!(wants(&of(None, None)) && wants(&of(Some("trace"), Some("k1"))));
        assert!(!wants(&of(Some("trace"), Some("k"))) && !wants(&of(Some("none"), Some("k1"))));
        let no_json = |value: &[u8]| json("", None).wants(None, Some(value), std::iter::empty());
        assert!(no_json(b"7") && !no_json(b"seven") && !json("", None).wants(None, None, std::iter::empty()));
        let long = format!("\"{}\"", "x".repeat(JsonIs::VALUE_BYTES_MAX));
        assert!(!no_json(long.as_bytes()), "it would be a long tree");
    }

    #[test]
    fn skew_is_the_fullest_partition_over_the_mean() {
        let skew = |records: &[u64]| Topic::skew_of(records.iter().copied());
        assert_eq!(skew(&[30, 10, 20]), Some(1.5));
        assert_eq!(skew(&[7, 7]), Some(1.0));
        assert_eq!((skew(&[7]), skew(&[0, 0]), skew(&[])), (None, None, None));
    }
}
