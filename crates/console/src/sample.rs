//! A source with invented numbers that agree with each other: for tests of pages, and for a look at
//! states that are hard to reach with a real broker.

use std::sync::Arc;

use ottla_lab::doctor::Snapshot;
use ottla_lab::doctor::diagnosis::{
    Confidence, Diagnosis, Evidence, Examination, Promise, Recommendation, Refusal, Verdict,
};
use ottla_lab::doctor::promises::document::{Promises, Row};
use ottla_lab::doctor::promises::score::Score;
use ottla_lab::doctor::snapshot::{Consumer, Producer, Role};
use ottla_lab::doctor::time::{TimePart, TimeShare};

use crate::reports::Reports;
use crate::series::Series;
use crate::site::Site;
use crate::source::{
    Access, AccessAnswer, AccessQuestion, AccessRule, ApiCounts, BrokerSetting, Counts, Disk, Group,
    GroupDeparture, GroupOffset, GroupRebalance, Groups, Identity, LogSegment, Member, OpenTransaction,
    Partition, PartitionDetail, PartitionProducer, Peek, PeekFrom, Peeked, PeekedRecord, SetQuota,
    SlowRequest, Source, Subscription, TimeUnknown, Told, Topic, TopicCounts, TopicDetail, Untold,
};
use crate::stage::{STAGE_COUNT, Stage, StageMicros};

/// The time of the sample, milliseconds since 1970.
pub const NOW_MS: i64 = 1_793_385_598_000;

/// What is the matter with the broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It serves a load, and one client is limited.
    Loaded,
    /// Nothing has connected.
    Empty,
    /// It is an Apache Kafka: it tells little.
    Stock,
    /// As loaded, with names that try to break out of the page.
    Hostile,
}

/// Names that a client can choose, and that must stay text.
pub const HOSTILE: &str = "\"><img src=x onerror=alert(1)></script>\u{202e}\u{1b}[31m&amp;'";

/// The value of a record that is longer than what is shown.
pub const LONG_VALUE_BYTES: usize = 100_000;

#[derive(Clone, Debug)]
pub struct Sample {
    pub state: State,
    /// Topics beside those that are always there.
    pub more_topics: usize,
    pub reports: Option<Arc<Reports>>,
}

/// A site with fifteen minutes of samples.
pub fn site(state: State, more_topics: usize) -> Site {
    site_of(Sample {
        state,
        more_topics,
        reports: None,
    })
}

/// The same of a broker that was made up elsewhere.
pub fn site_of(source: Sample) -> Site {
    let mut series = Series::default();
    if source.state != State::Stock {
        for step in 0..=180 {
            series.add(source.counts_at(step * 5), NOW_MS - 900_000 + step as i64 * 5_000);
        }
    }
    for seconds_ago in (0..=60).rev().step_by(5) {
        let groups = source.groups_at(seconds_ago);
        series.groups.add(groups.progress());
    }
    Site::unsampled(Arc::new(source), series)
}

impl Sample {
    fn name(&self, plain: &str) -> String {
        match self.state {
            State::Hostile => format!("{plain}{HOSTILE}"),
            _ => plain.to_owned(),
        }
    }

    fn told<T>(&self, what: &str, told: impl FnOnce() -> T) -> Told<T> {
        match self.state {
            State::Stock => Err(Untold::by_kafka(what)),
            _ => Ok(told()),
        }
    }

    fn is_empty(&self) -> bool {
        self.state == State::Empty
    }

    fn counts_at(&self, second: u64) -> Counts {
        if self.is_empty() {
            return Counts {
                moment_micros: second * 1_000_000,
                loop_count: 2,
                ..Counts::default()
            };
        }
        let topics = (0..self.more_topics).map(|number| TopicCounts {
            name: format!("topic-{number:05}").into(),
            records_in: second * 10,
            bytes_in: second * 1_000,
            bytes_out: second * 1_000,
            ..TopicCounts::default()
        });
        let orders = TopicCounts {
            name: self.name("orders").into(),
            records_in: second * 41_280,
            bytes_in: second * 48_700_000,
            bytes_out: second * 97_100_000,
            produce_requests: second * 1_376,
            fetch_requests: second * 2_064,
            failed_produce_requests: second * 3,
            failed_fetch_requests: 0,
        };
        Counts {
            moment_micros: second * 1_000_000,
            apis: vec![
                api("Produce", second * 1_376, &PRODUCE),
                api("Fetch", second * 2_064, &FETCH),
                api("JoinGroup", second / 5, &JOIN),
            ],
            records_in: second * 41_280,
            bytes_in: second * 48_700_000,
            bytes_out: second * 97_100_000,
            busy_micros: second * 460_000,
            loop_count: 2,
            connections: 38,
            memory_bytes: Some(412 << 20),
            disk: Some(Disk {
                used_bytes: (55 << 30) + second * 100_000,
                total_bytes: 100 << 30,
            }),
            topics: std::iter::once(orders).chain(topics).collect(),
        }
    }

    fn client(&self) -> Diagnosis {
        let line = Evidence::new("F8", "R_max", "1000 / L * M", 510.2, "requests/s")
            .measured("L", 9.8, "ms")
            .with("M", 5.0, "", "default");
        Diagnosis {
            client_id: self.name("orders-writer"),
            role: Role::Producer,
            verdict: Verdict::SenderRate,
            confidence: Confidence::High,
            summary: String::from(
                "Sends 27,840 of 36,016 records/s: its requests are full, and no more may be in flight at once.",
            ),
            time: [
                (TimePart::Worker, 0.01),
                (TimePart::Queue, 2_207.44),
                (TimePart::Request, 8.44),
                (TimePart::Broker, 1.36),
            ]
            .map(|(part, ms)| TimeShare { part, ms })
            .into(),
            evidence: vec![line],
            recommendation: Some(Recommendation {
                set: String::from("batch.size=32768"),
                why: String::from(
                    "A request of twice the size carries twice the records and takes hardly longer.",
                ),
                promise: Promise {
                    figure: String::from("records_per_second"),
                    now: Some(27_840.0),
                    low: 34_200.0,
                    high: 36_016.0,
                    unit: String::from("records/s"),
                    assumption: String::from("the application goes on at 36,016 records/s"),
                    unknown: None,
                },
                next_ceiling: String::from("the application itself, at 36,016 records/s"),
                cost: String::new(),
            }),
            refused: vec![Refusal {
                set: "linger.ms".into(),
                why: "Every batch is full before it leaves; waiting longer fills nothing.".into(),
            }],
            missing: vec![self.name("its settings are not stated")],
            ..Diagnosis::default()
        }
    }
}

impl Sample {
    /// A consumer whose application is the limit.
    fn consumer(&self) -> Diagnosis {
        Diagnosis {
            client_id: self.name("billing-2"),
            role: Role::Consumer,
            verdict: Verdict::Processing,
            confidence: Confidence::Medium,
            summary: String::from(
                "Its application takes 212 µs for a record: 4,717 records/s, of 9,360 that come in.",
            ),
            time: [
                (TimePart::Broker, 0.41),
                (TimePart::Fetch, 3.2),
                (TimePart::Processing, 106.0),
            ]
            .map(|(part, ms)| TimeShare { part, ms })
            .into(),
            ..Diagnosis::default()
        }
    }

    fn consumer_snapshot(&self) -> Snapshot {
        let mut snapshot = Snapshot::default();
        snapshot.client.client_id = self.name("billing-2");
        snapshot.client.role = Role::Consumer;
        snapshot.client.address = Some(String::from("10.0.4.19:50710"));
        snapshot.client.group_id = Some(self.name("billing"));
        snapshot.consumer = Some(Consumer {
            records_per_second: Some(4_717.0),
            fetches_per_second: Some(9.4),
            fetch_bytes: Some(590_000.0),
            poll_idle_share: Some(0.03),
            lag_max: Some(418_090.0),
            assigned_partitions: Some(3.0),
            rebalances: Some(2.0),
            ..Consumer::default()
        });
        snapshot
    }

    fn rebalance(&self, seconds: i64, took_ms: Option<i64>, why: &str) -> GroupRebalance {
        let began_at_ms = NOW_MS - seconds * 1_000;
        GroupRebalance {
            began_at_ms,
            ended_at_ms: took_ms.map(|took_ms| began_at_ms + took_ms),
            why: self.name(why),
            generation: took_ms.map(|_| 17),
            members: took_ms.map(|_| 2),
        }
    }

    fn departure(&self, seconds: i64, why: &str) -> GroupDeparture {
        GroupDeparture {
            at_ms: NOW_MS - seconds * 1_000,
            client_id: self.name("billing-1"),
            why: why.to_owned(),
        }
    }
}

impl Sample {
    /// The groups some seconds ago: one falls behind by 4,643 records/s, and one reads nothing.
    fn groups_at(&self, seconds_ago: i64) -> Groups {
        let offset = |partition: i32, lag: i64, seconds: f64, (came, read): (i64, i64)| GroupOffset {
            topic: self.name("orders"),
            partition,
            committed: 18_600_000 - lag - read * seconds_ago,
            log_start: 0,
            log_end: 18_600_000 - came * seconds_ago,
            next_at_ms: (lag > 0 && self.state != State::Stock).then_some(NOW_MS - (seconds * 1e3) as i64),
            time_unknown: (lag > 0 && self.state == State::Stock).then_some(TimeUnknown::NotTold),
        };
        let billing = Group {
            group_id: self.name("billing"),
            state: Some(String::from("Stable")),
            members: vec![Member {
                member_id: self.name("billing-2-7d1f"),
                client_id: self.name("billing-2"),
                host: String::from("10.0.4.19"),
                holds: [(self.name("orders"), vec![0, 1, 2])].into(),
                holds_more: 0,
                state: (self.state != State::Stock).then(|| String::from("stable")),
            }],
            offsets: vec![
                offset(2, 418_090, 90.1, (9_360, 4_717)),
                offset(1, 371, 0.1, (0, 0)),
                offset(0, 0, 0.0, (0, 0)),
            ],
            departures: (self.state != State::Stock).then(|| {
                vec![
                    self.departure(42, "removed: no heartbeat for 45000 ms (session.timeout.ms)"),
                    self.departure(3_720, "left: consumer poll timeout has expired."),
                ]
            }),
            rebalances: (self.state != State::Stock).then(|| {
                vec![
                    self.rebalance(42, None, "billing-1 left or was removed"),
                    self.rebalance(3_720, Some(3_100), "billing-1 left or was removed"),
                ]
            }),
            cut_partitions: 0,
        };
        // Its consumers are gone: what it has committed stays, and its lag grows.
        let invoices = Group {
            group_id: self.name("invoices"),
            state: Some(String::from("Empty")),
            offsets: vec![offset(0, 1_840_000, 7_210.0, (255, 0))],
            cut_partitions: 4_000,
            departures: (self.state != State::Stock).then(Vec::new),
            rebalances: (self.state != State::Stock).then(Vec::new),
            ..Group::default()
        };
        let groups = match self.is_empty() {
            true => Vec::new(),
            false => vec![billing, invoices],
        };
        Groups {
            at_ms: NOW_MS - seconds_ago * 1_000,
            groups,
            cut: 0,
        }
    }
}

const PRODUCE: [(Stage, u64); 7] = [
    (Stage::Read, 60),
    (Stage::Queued, 90),
    (Stage::Handled, 140),
    (Stage::Appended, 110),
    (Stage::Synced, 820),
    (Stage::Behind, 40),
    (Stage::Written, 50),
];
const FETCH: [(Stage, u64); 6] = [
    (Stage::Read, 30),
    (Stage::Queued, 70),
    (Stage::Handled, 210),
    (Stage::WaitedForData, 96_240),
    (Stage::ColdRead, 180),
    (Stage::Written, 160),
];
const JOIN: [(Stage, u64); 3] = [
    (Stage::Read, 30),
    (Stage::Handled, 220),
    (Stage::WaitedForGroup, 1_840_000),
];

fn micros(stages: &[(Stage, u64)], times: u64) -> StageMicros {
    let mut all = [0; STAGE_COUNT];
    stages
        .iter()
        .for_each(|(stage, micros)| all[*stage as usize] = micros * times);
    all
}

fn api(name: &'static str, requests: u64, stages: &[(Stage, u64)]) -> ApiCounts {
    let own: u64 = stages
        .iter()
        .filter(|(stage, _)| !stage.is_asked_for())
        .map(|(_, micros)| micros)
        .sum();
    let own = u32::try_from(own).unwrap_or(u32::MAX);
    ApiCounts {
        name,
        requests,
        stage_micros: micros(stages, requests),
        own_buckets: vec![
            (own * 4 / 5, requests / 2),
            (own * 8 / 5, requests - requests / 2),
        ],
        cold_reads: if name == "Fetch" { requests / 34 } else { 0 },
    }
}

impl Source for Sample {
    fn counts(&self) -> Told<Counts> {
        self.told("where the time of its requests goes", || self.counts_at(900))
    }

    fn identity(&self) -> Identity {
        Identity {
            software: String::from(if self.state == State::Stock {
                "Apache Kafka"
            } else {
                "Ottla"
            }),
            address: String::from("broker-1:9092"),
            cluster_id: String::from("MkU3OEVBNTcwNTJENDM2Qk"),
            serves_metrics: self.state != State::Stock,
        }
    }

    fn examination(&self) -> Told<Examination> {
        let client = |client_id: &str, verdict| Diagnosis {
            client_id: self.name(client_id),
            verdict,
            summary: String::from(match verdict {
                Verdict::NotEnoughData => "Seen for 12 s: a verdict needs a minute of its traffic.",
                _ => "Keeps up.",
            }),
            ..Diagnosis::default()
        };
        let clients = match self.state {
            State::Empty => Vec::new(),
            _ => vec![
                self.client(),
                self.consumer(),
                client("audit-writer", Verdict::KeepsUp),
                client("new", Verdict::NotEnoughData),
            ],
        };
        Ok(Examination::of(NOW_MS, clients))
    }

    fn snapshots(&self) -> Told<Vec<Snapshot>> {
        let mut snapshot = Snapshot::default();
        snapshot.client.client_id = self.name("orders-writer");
        snapshot.client.address = Some(String::from("10.0.4.17:50422"));
        snapshot.client.software_name = Some(self.name("apache-kafka-java"));
        snapshot.producer = Some(Producer {
            records_per_second: Some(27_840.0),
            bytes_per_second: Some(8_350_000.0),
            requests_per_second: Some(510.0),
            request_bytes: Some(16_372.0),
            batch_bytes: Some(16_290.0),
            records_per_request: Some(54.6),
            record_bytes: Some(298.0),
            compression_rate: Some(1.0),
            queue_ms: Some(2_207.4),
            request_ms: Some(9.8),
            in_flight: Some(5.0),
            buffer_wait: Some(0.0),
            ..Producer::default()
        });
        Ok(if self.is_empty() {
            Vec::new()
        } else {
            vec![snapshot, self.consumer_snapshot()]
        })
    }

    fn promises(&self) -> Told<Promises> {
        let promise = |set: &str, score: Score, after: Option<f64>, because: &str| Row {
            client_id: self.name("orders-writer"),
            role: Role::Producer,
            set: set.to_owned(),
            unit: String::from("records/s"),
            low: 24_000.0,
            high: 28_500.0,
            promised_ms: NOW_MS - 86_400_000,
            score,
            after,
            because: because.to_owned(),
            ..Row::default()
        };
        let promises = match self.is_empty() {
            true => Vec::new(),
            false => vec![
                promise("batch.size=16384", Score::Kept, Some(27_840.0), ""),
                promise(
                    "compression.type=lz4",
                    Score::NotKept,
                    Some(21_300.0),
                    "its host was busy",
                ),
                promise(
                    "max.in.flight.requests.per.connection=5",
                    Score::NotTested,
                    None,
                    "another value was set",
                ),
            ],
        };
        Ok(Promises {
            promises,
            ..Promises::default()
        })
    }

    fn topics(&self) -> Told<Arc<Vec<Topic>>> {
        if self.is_empty() {
            return Ok(Arc::default());
        }
        let orders = Topic {
            name: self.name("orders"),
            partitions: 6,
            bytes: (self.state != State::Stock).then_some(18 << 30),
            retention: Some(String::from("7 days")),
            skew: (self.state != State::Stock).then_some(2.4),
            ..Topic::default()
        };
        let more = (0..self.more_topics).map(|number| Topic {
            name: format!("topic-{number:05}"),
            partitions: 1,
            bytes: Some(1 << 20),
            ..Topic::default()
        });
        Ok(Arc::new(std::iter::once(orders).chain(more).collect()))
    }

    fn topic(&self, name: &str) -> Told<Option<TopicDetail>> {
        let topics = self.topics()?;
        let found = topics.iter().find(|topic| topic.name == name).cloned();
        Ok(found.map(|topic| TopicDetail {
            partitions: (0..topic.partitions as i32)
                .map(|index| partition(index, self.state))
                .collect(),
            settings: vec![setting(&self.name("retention.ms"))],
            topic,
        }))
    }

    fn partition(&self, topic: &str, index: i32) -> Told<Option<PartitionDetail>> {
        let Some(detail) = self.topic(topic)? else {
            return Ok(None);
        };
        let found = detail.partitions.into_iter().find(|one| one.index == index);
        let producer = |producer_id: i64, transaction_from: Option<i64>| PartitionProducer {
            producer_id,
            producer_epoch: 3,
            last_sequence: 411,
            last_at_ms: Some(NOW_MS - 2_000),
            transaction_from,
        };
        let segment = |base_offset: i64, bytes: u64, newest_at_ms| LogSegment {
            base_offset,
            bytes,
            newest_at_ms,
        };
        Ok(found.map(|partition| PartitionDetail {
            last_stable: Ok(partition.high_watermark - 9),
            leader_epoch: Ok(7),
            newest_at_ms: Ok(Some(NOW_MS - 2_000)),
            segments: match self.state {
                State::Stock => Err(Untold::by_kafka("the segments of a partition")),
                _ => Ok(vec![
                    segment(17_000_000, 512 << 20, Some(NOW_MS - 2_000)),
                    segment(1_000, 1 << 30, None),
                ]),
            },
            segments_cut: 0,
            producers: Ok(vec![
                producer(4_002, Some(partition.high_watermark - 9)),
                producer(4_100, None),
            ]),
            producers_cut: 12,
            partition,
        }))
    }

    fn is_sampled_unviewed(&self) -> bool {
        self.state != State::Stock
    }

    fn groups(&self) -> Told<Arc<Groups>> {
        Ok(Arc::new(self.groups_at(0)))
    }

    fn slow_requests(&self) -> Told<Vec<SlowRequest>> {
        self.told("its slowest requests", || {
            let request = |api, client: &str, stages: &[(Stage, u64)], times| SlowRequest {
                api,
                client_id: self.name(client).into(),
                finished_at_ms: NOW_MS - 16_000,
                request_bytes: 64 << 10,
                reply_bytes: 96,
                stage_micros: micros(stages, times),
            };
            match self.state {
                State::Empty => Vec::new(),
                _ => vec![
                    request("Produce", "audit-writer", &PRODUCE, 14),
                    request("Produce", "orders-writer", &PRODUCE, 7),
                    request("Fetch", "billing-2", &FETCH, 12),
                ],
            }
        })
    }

    fn tenants(&self) -> Told<String> {
        self.told("what a client costs", || {
            match TENANTS.split_once("\"tenants\":[") {
                Some((head, _)) if self.is_empty() => format!("{head}\"tenants\":[]}}"),
                _ => TENANTS.replace(
                    "\"orders-writer\"",
                    &serde_json::json!(self.name("orders-writer")).to_string(),
                ),
            }
        })
    }

    fn quotas(&self) -> Told<Vec<SetQuota>> {
        let set = |entity: &str, quota: &str, limit: f64| SetQuota {
            entity: self.name(entity),
            quota: quota.to_owned(),
            limit,
        };
        Ok(match self.is_empty() {
            true => Vec::new(),
            false => vec![
                set("client-id default", "producer_byte_rate", 5e7),
                set(
                    "user ana and client-id orders-writer",
                    "request_percentage",
                    200.0,
                ),
            ],
        })
    }

    fn settings(&self) -> Told<Vec<BrokerSetting>> {
        Ok(vec![setting(&self.name("log.retention.ms"))])
    }

    fn subscriptions(&self) -> Told<Vec<Subscription>> {
        Ok(match self.is_empty() {
            true => Vec::new(),
            false => vec![Subscription {
                name: self.name("billing"),
                metrics: String::from("org.apache.kafka.consumer."),
                interval_ms: String::from("10000"),
                matching: self.name("client_id=billing-.*"),
            }],
        })
    }

    fn peek(&self, ask: &Peek) -> Told<Peeked> {
        let of = |offset, value: Vec<u8>| PeekedRecord {
            offset,
            timestamp_ms: NOW_MS,
            key: Some(self.name("key").into_bytes()),
            value_bytes: value.len(),
            value: Some(value[..value.len().min(ask.field_bytes_max)].to_vec()),
            headers: vec![(self.name("header"), Some(vec![0xff]))],
            codec: Some(String::from("lz4")),
            ..PeekedRecord::default()
        };
        let all = [
            of(40, [0xf0; LONG_VALUE_BYTES].to_vec()),
            of(41, self.name("value").into_bytes()),
        ];
        let from_offset = match ask.from {
            PeekFrom::Offset(offset) | PeekFrom::Since(offset) => offset,
            PeekFrom::End | PeekFrom::Time(_) => 0,
        };
        let found = all.into_iter().filter(|record| record.offset >= from_offset);
        Ok(Peeked {
            partition_count: 6,
            log_end: 42,
            from_offset,
            records: match ask.partition {
                0 => found.take(ask.records_max).collect(),
                _ => Vec::new(),
            },
            looked_at: 2,
            next_offset: 42,
            ..Peeked::default()
        })
    }

    fn access(&self) -> Told<Access> {
        if self.is_empty() || self.state == State::Stock {
            return Ok(Access::default());
        }
        let rule =
            |principal: &str, permission: &str, operation: &str, resource: &str, host: &str| AccessRule {
                principal: self.name(principal),
                permission: permission.to_owned(),
                operation: operation.to_owned(),
                resource: self.name(resource),
                host: host.to_owned(),
            };
        Ok(Access {
            authorizer: Some(String::from("StandardAuthorizer")),
            rules: vec![
                rule("User:orders", "ALLOW", "WRITE", "topic orders", "*"),
                rule("User:billing", "ALLOW", "READ", "topic orders", "10.0.4.19"),
                rule("User:billing", "ALLOW", "READ", "group billing", "*"),
                rule("User:guest", "DENY", "ALL", "topic prefix order", "*"),
            ],
            users: vec![self.name("billing"), self.name("orders")],
            denials: vec![(String::from("Topic"), 1_204)],
        })
    }

    fn explain_access(&self, question: &AccessQuestion) -> Told<AccessAnswer> {
        let (principal, resource) = (&question.principal, &question.resource);
        Ok(AccessAnswer {
            allowed: false,
            because: String::from("the resource has ACLs, and none of them allows this"),
            commands: vec![format!(
                "kafka-acls.sh --bootstrap-server 127.0.0.1:9092 --add --allow-principal {principal} --operation {} --topic {resource}",
                question.operation.name()
            )],
            notes: vec![self.name("from these hosts it is allowed: 10.0.4.19")],
        })
    }

    fn transactions(&self) -> Told<Vec<OpenTransaction>> {
        if self.is_empty() {
            return Ok(Vec::new());
        }
        let open = |id: &str, state: &str, seconds: i64, partitions: &[&str]| OpenTransaction {
            transactional_id: self.name(id),
            producer_id: 4_000 + seconds,
            state: state.to_owned(),
            since_ms: Some(NOW_MS - seconds * 1_000),
            partitions: partitions.iter().map(|partition| self.name(partition)).collect(),
        };
        Ok(vec![
            open("no coordinator knows it", "Hanging", 7_260, &["orders 4"]),
            open(
                "payments-1",
                "Ongoing",
                2,
                &["orders 0", "orders 2", "__consumer_offsets 17"],
            ),
        ])
    }

    fn reports(&self) -> Option<&Reports> {
        self.reports.as_deref()
    }

    fn now_ms(&self) -> i64 {
        NOW_MS
    }
}

fn partition(index: i32, state: State) -> Partition {
    Partition {
        index,
        log_start: 1_000,
        high_watermark: 18_600_000 + i64::from(index),
        log_end: 18_600_004 + i64::from(index),
        bytes: (state != State::Stock).then_some(3 << 30),
        records_in: (state != State::Stock).then_some(100_000 * (index as u64 + 1)),
        ..Partition::default()
    }
}

fn setting(name: &str) -> BrokerSetting {
    BrokerSetting {
        name: name.to_owned(),
        value: Some(String::from("3600000")),
        default: Some(String::from("604800000")),
        origin: String::from("the file"),
        is_set: true,
        about: String::from("How long a segment is kept."),
        ..BrokerSetting::default()
    }
}

const TENANTS: &str = r#"{"version":1,"at_ms":0,"moment_micros":900000000,"key":["client-id"],"event_loops":2,"busy_micros":400000000,"window_ms":60000,"utilisation":0.23,"charged":0.22,"past_minutes":2,"departed":{},"tenants":[{"kind":"client-id","name":"orders-writer","connections":3,"share":0.12,"past_shares":[0.1,0.08],"window":{"handling_micros":7000000,"sending_micros":200000,"disk_micros":0,"requests":82560,"records":1670400,"bytes_in":2922000000,"bytes_out":8000000,"cold_bytes":0,"throttled_ms":0,"inflicted_micros":900000,"suffered_micros":200000},"total":{"handling_micros":7000000,"sending_micros":200000,"disk_micros":0,"requests":82560,"records":1670400,"bytes_in":2922000000,"bytes_out":8000000,"cold_bytes":0,"throttled_ms":0,"inflicted_micros":900000,"suffered_micros":200000},"quotas":[{"quota":"producer_byte_rate","limit":50000000.0,"set_for":"client-id default","clients":1,"rate":48700000.0,"throttles":14,"throttle_ms":2310},{"quota":"request_percentage","limit":200.0,"set_for":"user ana and client-id orders-writer","clients":1,"rate":12.0,"throttles":1,"throttle_ms":0}],"quotas_cut":3},{"kind":"user","name":"ana","connections":3,"share":0.04,"past_shares":[0.1,0.08],"window":{"handling_micros":7000000,"sending_micros":200000,"disk_micros":0,"requests":82560,"records":1670400,"bytes_in":2922000000,"bytes_out":8000000,"cold_bytes":0,"throttled_ms":0,"inflicted_micros":900000,"suffered_micros":200000},"total":{"handling_micros":7000000,"sending_micros":200000,"disk_micros":0,"requests":82560,"records":1670400,"bytes_in":2922000000,"bytes_out":8000000,"cold_bytes":0,"throttled_ms":0,"inflicted_micros":900000,"suffered_micros":200000}}]}"#;
