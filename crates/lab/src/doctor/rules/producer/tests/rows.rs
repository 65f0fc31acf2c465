//! A row of a table: what was measured, and the expected diagnosis.

use crate::doctor::diagnosis::{Diagnosis, FindingId, Verdict};
use crate::doctor::rules::examine;
use crate::doctor::snapshot::{
    Application, BrokerSide, Client, Codec, Earlier, Library, Network, Node, Origin, Partitioner, Producer,
    Setting, Settings, Snapshot, Telemetry, Topic,
};

/// What a source reports about one run. Zero: not reported, unless it is an `Option`.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    pub name: &'static str,
    pub records: f64,
    pub offered: f64,
    pub threads: f64,
    pub send_micros: f64,
    /// Mean and standard deviation of the acknowledgement time.
    pub acknowledged: (f64, f64),
    pub brokers: f64,
    pub requests: f64,
    pub request_bytes: f64,
    pub batch: f64,
    pub records_per_request: f64,
    pub queue: Option<f64>,
    pub queue_max: f64,
    pub latency: f64,
    pub buffer_wait: Option<f64>,
    /// i_wait and i_io.
    pub thread: Option<(f64, f64)>,
    pub throttle: f64,
    pub compression_rate: f64,
    pub codec: Option<Codec>,
    pub topic_codec: Option<Codec>,
    pub batch_size: f64,
    pub linger: Option<f64>,
    pub in_flight: f64,
    pub in_flight_seen: f64,
    pub send_buffer: f64,
    pub buffer: f64,
    pub acks: Option<i16>,
    pub partitions: f64,
    pub partitioner: Option<Partitioner>,
    pub round_trip: f64,
    pub window: f64,
    pub link: f64,
    /// D, and the local and remote parts of it.
    pub broker: Option<(f64, f64, f64)>,
    pub is_rounded: bool,
    pub earlier: &'static [(f64, f64, f64, f64)],
    pub failed: f64,
    pub exhausted: f64,
    pub expired: f64,
    /// Acceptable verdicts; the first is the intended one.
    pub verdict: &'static [Verdict],
    pub findings: &'static [FindingId],
    /// How the recommended change begins; empty: no change may be recommended.
    pub set: &'static str,
    pub refused: &'static [&'static str],
    /// A value that the promised range must contain.
    pub promise: Option<f64>,
}

pub const ROW: Row = Row {
    name: "",
    records: 0.0,
    offered: 0.0,
    threads: 0.0,
    send_micros: 0.0,
    acknowledged: (0.0, 0.0),
    brokers: 1.0,
    requests: 0.0,
    request_bytes: 0.0,
    batch: 0.0,
    records_per_request: 0.0,
    queue: None,
    queue_max: 0.0,
    latency: 0.0,
    buffer_wait: None,
    thread: None,
    throttle: 0.0,
    compression_rate: 0.0,
    codec: None,
    topic_codec: None,
    batch_size: 0.0,
    linger: None,
    in_flight: 0.0,
    in_flight_seen: 0.0,
    send_buffer: 0.0,
    buffer: 0.0,
    acks: None,
    partitions: 0.0,
    partitioner: None,
    round_trip: 0.0,
    window: 0.0,
    link: 0.0,
    broker: None,
    is_rounded: false,
    earlier: &[],
    failed: 0.0,
    exhausted: 0.0,
    expired: 0.0,
    verdict: &[],
    findings: &[],
    set: ANY,
    refused: &[],
    promise: None,
};

/// Any recommendation, or none.
pub const ANY: &str = "*";
/// No recommendation.
pub const NOTHING: &str = "";

fn some(value: f64) -> Option<f64> {
    (value != 0.0).then_some(value)
}

pub fn stated<T>(value: T) -> Option<Setting<T>> {
    Some(Setting {
        value,
        origin: Origin::Stated,
    })
}

fn stated_some(value: f64) -> Option<Setting<f64>> {
    some(value).and_then(stated)
}

impl Row {
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            client: Client {
                client_id: self.name.to_owned(),
                library: Library::Java,
                ..Client::default()
            },
            seconds: 60.0,
            telemetry: Telemetry::default(),
            settings: self.settings(),
            application: Application {
                threads: some(self.threads),
                send_micros: some(self.send_micros),
                offered_records_per_second: some(self.offered),
                acknowledged_ms: some(self.acknowledged.0),
                acknowledged_deviation_ms: some(self.acknowledged.1),
                buffer_errors: some(self.exhausted),
                expired_records: some(self.expired),
                ..Application::default()
            },
            network: Network {
                round_trip_ms: some(self.round_trip),
                bandwidth_bytes_per_second: some(self.link),
                window_bytes: some(self.window),
            },
            producer: Some(self.producer()),
            brokers: self.broker_sides(),
            earlier: self
                .earlier
                .iter()
                .map(|earlier| earlier_reading(*earlier))
                .collect(),
            ..Snapshot::default()
        }
    }

    fn settings(&self) -> Settings {
        Settings {
            batch_bytes: stated_some(self.batch_size),
            linger_ms: self.linger.and_then(stated),
            acks: self.acks.and_then(stated),
            in_flight: stated_some(self.in_flight),
            send_buffer_bytes: stated_some(self.send_buffer),
            buffer_bytes: stated_some(self.buffer),
            compression: self.codec.and_then(stated),
            topic_compression: self.topic_codec.and_then(stated),
            partitioner: self.partitioner.and_then(stated),
            ..Settings::default()
        }
    }

    fn producer(&self) -> Producer {
        let bytes = self.requests * self.request_bytes;
        let each = |all: f64| some(all / self.brokers);
        let nodes = (1..=self.brokers as i32)
            .filter(|_| self.requests > 0.0)
            .map(|node_id| Node {
                node_id,
                requests_per_second: each(self.requests),
                request_ms: some(self.latency),
                bytes_per_second: each(bytes),
                partitions: each(self.partitions),
                ..Node::default()
            })
            .collect();
        let topic = Topic {
            partitions: some(self.partitions),
            ..Topic::default()
        };
        Producer {
            records_per_second: some(self.records),
            bytes_per_second: some(bytes),
            requests_per_second: some(self.requests),
            request_bytes: some(self.request_bytes),
            batch_bytes: some(self.batch),
            records_per_request: some(self.records_per_request),
            queue_ms: self.queue,
            queue_ms_max: some(self.queue_max),
            request_ms: some(self.latency),
            in_flight_max: some(self.in_flight_seen),
            buffer_wait: self.buffer_wait,
            io_wait: self.thread.map(|shares| shares.0),
            io: self.thread.map(|shares| shares.1),
            throttle_ms: some(self.throttle),
            compression_rate: some(self.compression_rate),
            failed_records: some(self.failed),
            nodes,
            topics: [("t".to_owned(), topic)].into(),
            ..Producer::default()
        }
    }

    fn broker_sides(&self) -> Vec<BrokerSide> {
        let Some((all, local, remote)) = self.broker else {
            return Vec::new();
        };
        (1..=self.brokers as i32)
            .map(|node_id| BrokerSide {
                node_id: Some(node_id),
                requests_per_second: some(self.requests / self.brokers),
                total_micros: Some(1_000.0 * all),
                local_micros: some(1_000.0 * local),
                remote_micros: some(1_000.0 * remote),
                is_rounded_to_ms: self.is_rounded,
                ..BrokerSide::default()
            })
            .collect()
    }

    /// Fails with the row's name unless the diagnosis is what the table expects.
    #[track_caller]
    pub fn check(&self) -> Diagnosis {
        let diagnosis = examine(&self.snapshot());
        let name = self.name;
        let told = format!("{name}: {}", serde_json::to_string_pretty(&diagnosis).unwrap());
        assert!(self.verdict.contains(&diagnosis.verdict), "{told}");
        for finding in self.findings {
            assert!(
                diagnosis.findings.iter().any(|found| found.id == *finding),
                "{finding:?} is missing. {told}"
            );
        }
        let set = diagnosis.recommendation.as_ref().map_or("", |change| &change.set);
        match self.set {
            ANY => {}
            NOTHING => assert_eq!(set, "", "{told}"),
            begin => assert!(set.starts_with(begin), "{begin} should be recommended. {told}"),
        }
        for refused in self.refused {
            assert!(
                diagnosis.refused.iter().any(|refusal| refusal.set == *refused),
                "{refused} should be refused. {told}"
            );
        }
        if let Some(expected) = self.promise {
            let promise = &diagnosis.recommendation.as_ref().expect(name).promise;
            assert!(
                promise.low * 0.99 <= expected && expected <= promise.high * 1.01,
                "{expected} is not promised. {told}"
            );
        }
        diagnosis
    }
}

fn earlier_reading((threads, partitions, records, micros): (f64, f64, f64, f64)) -> Earlier {
    Earlier {
        threads: Some(threads),
        partitions: some(partitions),
        records_per_second: Some(records),
        send_micros: Some(micros),
    }
}
