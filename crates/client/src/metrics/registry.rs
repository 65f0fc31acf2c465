//! All metrics of one client.

#![cfg_attr(
    not(feature = "telemetry"),
    expect(
        dead_code,
        reason = "the counters of pushes stay in every build's metrics, at 0"
    )
)]

use std::sync::{Arc, Mutex, PoisonError};

use super::consumer::ConsumerMetrics;
use super::network::NetworkMetrics;
use super::producer::ProducerMetrics;
use super::sensor::{ClientKind, Family, Group, Metric, MetricKind, Tags, Value, sensors};
use super::settings;
use super::window::WindowSettings;
use crate::config::{ClientConfig, ConsumerConfig, ProducerConfig};
use crate::time::Clock;

sensors! {
    TELEMETRY: Group::Own, enum TelemetrySensor {
        Pushed {
            "telemetry-push-total" CountTotal "Pushes of metrics that a broker took (KIP-714).",
        }
        Failed {
            "telemetry-push-failed-total" CountTotal "Pushes of metrics that a broker refused or did not answer.",
        }
        LeftOut {
            "telemetry-left-out-total" Total "Metrics left out of pushes because they did not fit into the broker's telemetry.max.bytes.",
        }
    }
}

/// Parts of Kafka's metric names that this client does not have, and why.
pub(super) const LEFT_OUT: [(&str, &str); 2] = [
    (
        "txn-prepare-",
        "transactions that are part of an outer one are not supported",
    ),
    (
        "successful-authentication-no-reauth-total",
        "only a broker can know it; a client's is always 0",
    ),
];

/// The metrics of one producer, consumer or admin client.
#[derive(Debug)]
pub struct ClientMetrics {
    kind: ClientKind,
    tags: Tags,
    started_at_ms: i64,
    network: Arc<NetworkMetrics>,
    producer: Option<Arc<ProducerMetrics>>,
    consumer: Option<Arc<ConsumerMetrics>>,
    labels: Mutex<Vec<(&'static str, Arc<str>)>>,
    /// Its settings, as soon as they are told.
    told: Mutex<Option<Family>>,
    /// Totals only: they need no windows and no clock.
    telemetry: Mutex<Family>,
}

impl ClientMetrics {
    /// - `clock`: the client's own, so that a simulation's metrics follow its time.
    pub fn new(kind: ClientKind, config: &ClientConfig, clock: Arc<dyn Clock>) -> Arc<ClientMetrics> {
        let settings = WindowSettings {
            window_ms: config.metrics_sample_window_ms,
            sample_count: config.metrics_sample_count,
        };
        let metrics = ClientMetrics::with_settings(kind, config.client_id.clone(), settings, clock);
        if !config.client_rack.is_empty() {
            metrics.set_label("client_rack", config.client_rack.clone());
        }
        Arc::new(metrics)
    }

    fn with_settings(
        kind: ClientKind,
        client_id: Arc<str>,
        settings: WindowSettings,
        clock: Arc<dyn Clock>,
    ) -> ClientMetrics {
        let network = Arc::new(NetworkMetrics::new(kind, settings, clock.clone()));
        let producer = (kind == ClientKind::Producer).then(|| {
            let producer = Arc::new(ProducerMetrics::new(settings, clock.clone()));
            producer.join_network(network.clone());
            producer
        });
        let consumer = (kind == ClientKind::Consumer).then(|| {
            let consumer = Arc::new(ConsumerMetrics::new(settings, clock.clone()));
            consumer.join_network(network.clone());
            consumer
        });
        ClientMetrics {
            kind,
            tags: [("client-id", client_id)].into(),
            started_at_ms: clock.timestamp().0,
            network,
            producer,
            consumer,
            labels: Mutex::new(Vec::new()),
            told: Mutex::new(None),
            telemetry: Mutex::new(Family::new(&TELEMETRY)),
        }
    }

    /// Whose metrics these are.
    pub fn kind(&self) -> ClientKind {
        self.kind
    }

    /// The tag of every metric.
    pub(crate) fn client_id(&self) -> &str {
        &self.tags[0].1
    }

    /// Connections and requests.
    pub fn network(&self) -> &Arc<NetworkMetrics> {
        &self.network
    }

    /// - Panics: when this is not a producer's.
    pub fn producer(&self) -> &Arc<ProducerMetrics> {
        self.producer
            .as_ref()
            .expect("only a producer asks for a producer's metrics")
    }

    /// - Panics: when this is not a consumer's.
    pub fn consumer(&self) -> &Arc<ConsumerMetrics> {
        self.consumer
            .as_ref()
            .expect("only a consumer asks for a consumer's metrics")
    }

    pub(crate) fn tell_producer(&self, config: &ProducerConfig) {
        self.tell(settings::of_producer(config));
    }

    pub(crate) fn tell_consumer(&self, config: &ConsumerConfig) {
        self.tell(settings::of_consumer(config));
    }

    fn tell(&self, settings: Family) {
        *self.told.lock().unwrap_or_else(PoisonError::into_inner) = Some(settings);
    }

    /// Sets labels that a KIP-714 receiver gets about this client besides its metrics: `group_id`,
    /// `group_instance_id`, `client_rack`, `transactional_id`.
    pub fn set_label(&self, key: &'static str, value: impl Into<Arc<str>>) {
        let mut labels = self.labels.lock().unwrap_or_else(PoisonError::into_inner);
        labels.retain(|(known, _)| *known != key);
        labels.push((key, value.into()));
    }

    /// Names and values of what `set_label` has set, and of `group_member_id`.
    pub fn labels(&self) -> Vec<(&'static str, Arc<str>)> {
        let mut labels = self.labels.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let member_id = self.consumer.as_ref().and_then(|consumer| consumer.member_id());
        labels.extend(member_id.map(|id| ("group_member_id", id)));
        labels
    }

    /// The wall-clock time at which the client was created, in milliseconds since the Unix epoch.
    pub fn started_at_ms(&self) -> i64 {
        self.started_at_ms
    }

    /// Returns all metrics. Takes microseconds; rates and averages are over
    /// `metrics.sample.window.ms` × `metrics.num.samples`.
    pub fn snapshot(&self) -> Vec<Metric> {
        let mut metrics = Vec::with_capacity(256);
        self.network.collect(&self.tags, &mut metrics);
        if let Some(producer) = &self.producer {
            producer.collect(&self.tags, &mut metrics);
        }
        if let Some(consumer) = &self.consumer {
            consumer.collect(&self.tags, &mut metrics);
        }
        if let Some(told) = &mut *self.told.lock().unwrap_or_else(PoisonError::into_inner) {
            told.collect(WindowSettings::default(), 0, self.kind, &self.tags, &mut metrics);
        }
        let mut telemetry = self.telemetry.lock().unwrap_or_else(PoisonError::into_inner);
        telemetry.collect(WindowSettings::default(), 0, self.kind, &self.tags, &mut metrics);
        drop(telemetry);
        self.collect_app_info(&mut metrics);
        // Kafka counts the counter too.
        let count = metrics.len() as f64 + 1.0;
        metrics.push(self.gauge(Group::Count, "count", Value::Number(count)));
        metrics
    }

    fn count_telemetry(&self, sensor: TelemetrySensor, value: f64) {
        let mut telemetry = self.telemetry.lock().unwrap_or_else(PoisonError::into_inner);
        telemetry.record(WindowSettings::default(), 0, sensor, value);
    }

    /// A push was built and this many metrics did not fit.
    pub(super) fn telemetry_built(&self, left_out: usize) {
        self.count_telemetry(TelemetrySensor::LeftOut, left_out as f64);
    }

    pub(super) fn telemetry_answered(&self, is_taken: bool) {
        let sensor = match is_taken {
            true => TelemetrySensor::Pushed,
            false => TelemetrySensor::Failed,
        };
        self.count_telemetry(sensor, 1.0);
    }

    fn collect_app_info(&self, into: &mut Vec<Metric>) {
        let commit_id = option_env!("OTTLA_COMMIT_ID").unwrap_or("unknown");
        into.push(self.gauge(
            Group::AppInfo,
            "version",
            Value::Text(env!("CARGO_PKG_VERSION").into()),
        ));
        into.push(self.gauge(Group::AppInfo, "commit-id", Value::Text(commit_id.into())));
        let started = Value::Number(self.started_at_ms as f64);
        into.push(self.gauge(Group::AppInfo, "start-time-ms", started));
    }

    fn gauge(&self, group: Group, name: &'static str, value: Value) -> Metric {
        Metric {
            group: group.name(self.kind),
            name,
            tags: self.tags.clone(),
            kind: MetricKind::Gauge,
            value,
        }
    }

    /// The snapshot in Prometheus' text format.
    pub fn prometheus(&self) -> String {
        super::prometheus::render(self.kind, &self.snapshot())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::time::{Moment, Timestamp};

    /// A clock that the test advances.
    #[derive(Debug, Default)]
    pub struct TestClock {
        pub now_ms: AtomicU64,
    }

    impl TestClock {
        pub fn advance_ms(&self, ms: u64) {
            self.now_ms.fetch_add(ms, Ordering::Relaxed);
        }
    }

    impl Clock for TestClock {
        fn moment(&self) -> Moment {
            Moment::from_nanos(self.now_ms.load(Ordering::Relaxed) * 1_000_000)
        }

        fn timestamp(&self) -> Timestamp {
            Timestamp(1_700_000_000_000 + self.now_ms.load(Ordering::Relaxed) as i64)
        }
    }

    pub fn client(kind: ClientKind) -> (Arc<ClientMetrics>, Arc<TestClock>) {
        let clock = Arc::new(TestClock::default());
        let settings = WindowSettings::default();
        let metrics = ClientMetrics::with_settings(kind, "c".into(), settings, clock.clone());
        (Arc::new(metrics), clock)
    }

    /// A client that has done everything once, so that every metric with a tag exists.
    pub fn busy_client(kind: ClientKind) -> (Arc<ClientMetrics>, Arc<TestClock>) {
        let (metrics, clock) = client(kind);
        clock.advance_ms(1);
        metrics.network().request_sent(1, 100);
        match kind {
            ClientKind::Producer => metrics
                .producer()
                .batch_drained("t", 10, 500, 1000, 90, 2_000_000, 1_000_000),
            ClientKind::Consumer => {
                metrics.consumer().topic_consumed(&"t".into(), 10, 1000);
                metrics.consumer().position_moved(&"t".into(), 0, 5, Some(10));
            }
            ClientKind::Admin => {}
        }
        (metrics, clock)
    }

    /// The only metric of this name without tags of its own.
    pub fn value(metrics: &ClientMetrics, group: &str, name: &str) -> f64 {
        let snapshot = metrics.snapshot();
        let mut found = snapshot
            .iter()
            .filter(|metric| (metric.group, metric.name, metric.tags.len()) == (group, name, 1));
        found
            .next()
            .and_then(Metric::number)
            .expect("a number of this name")
    }

    pub const KINDS: [(&str, ClientKind); 3] = [
        ("producer", ClientKind::Producer),
        ("consumer", ClientKind::Consumer),
        ("admin", ClientKind::Admin),
    ];

    /// Client, group, name, tag keys.
    type Identity = (String, String, String, String);

    fn ours() -> BTreeMap<Identity, MetricKind> {
        let mut all = BTreeMap::new();
        for (client, kind) in KINDS {
            for metric in busy_client(kind).0.snapshot() {
                let mut keys: Vec<&str> = metric.tags.iter().map(|(key, _)| *key).collect();
                keys.sort_unstable();
                let identity = (
                    client.into(),
                    metric.group.into(),
                    metric.name.into(),
                    keys.join(","),
                );
                let before = all.insert(identity.clone(), metric.kind);
                assert_eq!(before, None, "{identity:?} is there twice");
            }
        }
        all
    }

    fn javas() -> BTreeMap<Identity, MetricKind> {
        include_str!("../../tests/fixtures/kafka-4.3.0-metric-names.tsv")
            .lines()
            .filter(|line| !line.starts_with('#'))
            .map(|line| {
                let fields: Vec<String> = line.split('\t').map(String::from).collect();
                let [client, group, name, tags, class] =
                    <[String; 5]>::try_from(fields).expect("five fields");
                let kind = match class.as_str() {
                    "CumulativeSum" | "CumulativeCount" => MetricKind::Sum,
                    _ => MetricKind::Gauge,
                };
                ((client, group, name, tags), kind)
            })
            .collect()
    }

    #[test]
    fn every_kafka_name_exists_here_or_is_left_out_for_a_reason() {
        let (ours, javas) = (ours(), javas());
        let missing: Vec<_> = javas
            .keys()
            .filter(|identity| !ours.contains_key(*identity))
            .filter(|(_, _, name, _)| !LEFT_OUT.iter().any(|(part, _)| name.contains(part)))
            .collect();
        assert!(missing.is_empty(), "{missing:#?}");
        for (part, reason) in LEFT_OUT {
            assert!(
                javas.keys().any(|(_, _, name, _)| name.contains(part)),
                "stale: {part}, {reason}"
            );
            assert!(
                !ours.keys().any(|(_, _, name, _)| name.contains(part)),
                "{part} is not left out"
            );
        }
    }

    #[test]
    fn metrics_that_kafka_does_not_have_use_names_of_our_own() {
        let javas = javas();
        let strangers: BTreeSet<_> = ours()
            .into_keys()
            .filter(|identity| !javas.contains_key(identity))
            .collect();
        assert!(!strangers.is_empty());
        assert!(
            strangers
                .iter()
                .all(|(_, group, _, _)| group.starts_with("ottla-")),
            "{strangers:#?}"
        );
    }

    #[test]
    fn sums_and_gauges_are_the_same_as_in_kafka() {
        let ours = ours();
        for (identity, kind) in javas() {
            if let Some(our_kind) = ours.get(&identity) {
                assert_eq!(*our_kind, kind, "{identity:?}");
            }
        }
    }
}
