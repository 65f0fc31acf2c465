//! From a window's numbers to the snapshot that the rules read.

use std::collections::BTreeMap;

use super::super::adapters::{Measure, Subject};
use super::super::snapshot::{
    Application, ConsumedPartition, Consumer, Node, Origin, Producer, Role, Setting, Settings, Snapshot,
    Telemetry, Topic,
};
use super::window::Window;

const SECONDS_PER_NANO: f64 = 1e-9;
const MICROS_PER_MS: f64 = 1000.0;

/// What the client itself reports; brokers' and owners' numbers are added elsewhere.
pub fn snapshot(window: &Window<'_>) -> Snapshot {
    let instance = window.instance();
    let mut client = instance.client.clone();
    if client.software_version.is_none() {
        let version = instance.software.version;
        client.software_version = version.map(|version| format!("{}.{}.{}", version.0, version.1, version.2));
    }
    let (producer, consumer) = match client.role {
        _ if window.is_empty() => (None, None),
        Role::Producer => (Some(producer(window)), None),
        Role::Consumer => (None, Some(consumer(window))),
    };
    Snapshot {
        client,
        seconds: window.seconds,
        telemetry: telemetry(window),
        application: application(window),
        settings: settings(window),
        producer,
        consumer,
        ..Snapshot::default()
    }
}

fn telemetry(window: &Window<'_>) -> Telemetry {
    let instance = window.instance();
    Telemetry {
        pushes: Some(window.pushes),
        empty_pushes: window.empty_pushes,
        has_subscription: true,
        push_interval_ms: instance.push_interval_ms,
        restarted: instance.is_restarted(),
        heard_ms: instance.heard_ms,
        started_ms: instance.client_started_ms,
        ..Telemetry::default()
    }
}

/// What only Ottla's client sends.
fn application(window: &Window<'_>) -> Application {
    Application {
        threads: window
            .get(Measure::SendingThreads)
            .filter(|threads| *threads > 0.0),
        send_micros: window.get(Measure::SendTime).map(|ms| ms * MICROS_PER_MS),
        callback_micros: window.get(Measure::CallbackTime).map(|ms| ms * MICROS_PER_MS),
        ..Application::default()
    }
}

/// The settings that the client tells itself: only Ottla's does.
fn settings(window: &Window<'_>) -> Settings {
    use Measure as M;
    let told = |value| Setting {
        value,
        origin: Origin::Told,
    };
    let number = |measure| window.get(measure).map(told);
    // What is told as -1 (acks=all, a buffer of the system's choice) is no sample: not known.
    Settings {
        acks: window.get(M::SettingAcks).map(|acks| Setting {
            value: acks as i16,
            origin: Origin::Told,
        }),
        batch_bytes: number(M::SettingBatch),
        linger_ms: number(M::SettingLinger),
        in_flight: number(M::SettingInFlight),
        max_request_bytes: number(M::SettingRequest),
        send_buffer_bytes: number(M::SettingSendBuffer),
        max_block_ms: number(M::SettingMaxBlock),
        delivery_timeout_ms: number(M::SettingDeliveryTimeout),
        fetch_min_bytes: number(M::SettingFetchMin),
        fetch_max_bytes: number(M::SettingFetchMax),
        fetch_max_wait_ms: number(M::SettingFetchWait),
        max_partition_fetch_bytes: number(M::SettingPartitionFetch),
        max_poll_records: number(M::SettingPollRecords),
        max_poll_interval_ms: number(M::SettingPollInterval),
        session_timeout_ms: number(M::SettingSessionTimeout),
        receive_buffer_bytes: number(M::SettingReceiveBuffer),
        ..Settings::default()
    }
}

fn producer(window: &Window<'_>) -> Producer {
    use Measure::{self as M};
    let nodes = nodes(window);
    let over_nodes = mean(nodes.iter().filter_map(|node| node.request_ms));
    let max_over_nodes = nodes
        .iter()
        .filter_map(|node| node.request_ms_max)
        .reduce(f64::max);
    let share = |measure| window.rate(measure).map(|nanos| nanos * SECONDS_PER_NANO);
    Producer {
        records_per_second: window.rate(M::RecordsSent),
        bytes_per_second: window.rate(M::BytesOut),
        requests_per_second: window.rate(M::Requests),
        requests: window.get(M::Requests),
        request_bytes: window.get(M::RequestBytes),
        request_bytes_max: window.get(M::RequestBytesMax),
        batch_bytes: window.get(M::BatchBytes),
        batch_bytes_max: window.get(M::BatchBytesMax),
        records_per_request: window.get(M::RecordsPerRequest),
        compression_rate: window.get(M::Compression),
        record_bytes: window.get(M::RecordBytes),
        queue_ms: window.get(M::QueueTime),
        queue_ms_max: window.get(M::QueueTimeMax),
        transmit_queue_ms: window.get(M::TransmitQueue),
        queue_ms_max_course: window
            .instance()
            .queue_max_course
            .iter()
            .map(|ms| f64::from(*ms))
            .collect(),
        request_ms: window.get(M::RequestLatency).or(over_nodes),
        request_ms_max: window.get(M::RequestLatencyMax).or(max_over_nodes),
        in_flight: window.get(M::InFlight),
        in_flight_max: window.get(M::InFlightPeak),
        buffer_wait: share(M::BufferWaitNanos),
        buffer_bytes: window.get(M::BufferBytes),
        buffer_available_bytes: window.get(M::BufferAvailable),
        waiting_threads: window.get(M::WaitingThreads),
        pushes_with_waiting_threads: window.waiting_pushes,
        io_wait: share(M::IoWaitNanos),
        io: share(M::IoNanos),
        throttle_ms: window.get(M::Throttle),
        throttle_ms_max: window.get(M::ThrottleMax),
        failed_records: window.get(M::RecordsFailed),
        retried_records: window.get(M::RecordsRetried),
        exhausted: window.get(M::BufferExhausted),
        metadata_wait: metadata_wait(window),
        flush_wait: share(M::FlushNanos),
        transaction_wait: transaction_wait(window),
        metadata_age_s: window.get(M::MetadataAge),
        connections_created: window.get(M::ConnectionsCreated),
        connections_per_second: window.slowest(M::ConnectionsCreated),
        nodes,
        topics: topics(window),
        without_sample: without_sample(window),
    }
}

/// What the end of a transaction takes, in seconds per second: its records' answers, its offsets,
/// and the coordinator's.
fn transaction_wait(window: &Window<'_>) -> Option<f64> {
    use Measure::{self as M};
    let parts = [
        M::TransactionCommitNanos,
        M::TransactionAbortNanos,
        M::TransactionOffsetsNanos,
    ];
    let known = parts.into_iter().filter_map(|part| window.rate(part));
    known
        .reduce(|all, part| all + part)
        .map(|nanos| nanos * SECONDS_PER_NANO)
}

/// Returns seconds per second. A wait ends when metadata arrives, so no wait is younger than the
/// metadata: if they are older than half the window, the waiting was that of the start.
fn metadata_wait(window: &Window<'_>) -> Option<f64> {
    let wait = window.rate(Measure::MetadataWaitNanos)? * SECONDS_PER_NANO;
    let is_over = window
        .get(Measure::MetadataAge)
        .is_some_and(|age_seconds| age_seconds >= window.seconds / 2.0);
    Some(if is_over { 0.0 } else { wait })
}

/// Brokers that got a request in the window.
fn nodes(window: &Window<'_>) -> Vec<Node> {
    let mut nodes: Vec<Node> = Vec::new();
    for measure in [
        Measure::NodeRequests,
        Measure::NodeLatency,
        Measure::NodeLatencyMax,
    ] {
        for (subject, point) in window.each(measure) {
            let Subject::Node(node_id) = subject else { continue };
            let requests = window.beside(point, Measure::NodeRequests);
            if requests.is_some_and(|requests| requests.value <= 0.0) {
                continue;
            }
            let value_of = |measure| window.beside(point, measure).map(|point| point.value);
            let rate_of = |measure| window.beside(point, measure).and_then(|point| point.rate());
            let Err(place) = nodes.binary_search_by_key(&node_id, |node| node.node_id) else {
                continue;
            };
            nodes.insert(
                place,
                Node {
                    node_id,
                    requests_per_second: rate_of(Measure::NodeRequests),
                    request_ms: value_of(Measure::NodeLatency),
                    request_ms_max: value_of(Measure::NodeLatencyMax),
                    bytes_per_second: rate_of(Measure::NodeBytesOut),
                    partitions: None,
                },
            );
        }
    }
    nodes
}

fn topics(window: &Window<'_>) -> BTreeMap<String, Topic> {
    let topics = window.each(Measure::TopicRecords).filter_map(|(subject, point)| {
        let Subject::Topic(topic) = subject else {
            return None;
        };
        let value = Topic {
            records_per_second: point.rate(),
            bytes_per_second: window
                .beside(point, Measure::TopicBytes)
                .and_then(|bytes| bytes.rate()),
            compression_rate: window
                .beside(point, Measure::TopicCompression)
                .map(|rate| rate.value),
            partitions: None,
        };
        Some((topic.to_owned(), value))
    });
    topics.collect()
}

/// Records per second of each topic that it has sent to.
pub fn topics_written(window: &Window<'_>) -> BTreeMap<String, f64> {
    let topics = topics(window).into_iter();
    topics
        .filter_map(|(name, topic)| Some((name, topic.records_per_second.filter(|rate| *rate > 0.0)?)))
        .collect()
}

fn consumer(window: &Window<'_>) -> Consumer {
    use Measure::{self as M};
    let partitions = partitions(window);
    let lag_max = partitions
        .iter()
        .filter_map(|partition| partition.lag)
        .reduce(f64::max);
    let rebalances = rebalances(window);
    let is_rebalanced = rebalances.is_none_or(|count| count > 0.0);
    let of_rebalances = |measure| window.get(measure).filter(|_| is_rebalanced);
    Consumer {
        records_per_second: window.rate(M::ConsumedRecords),
        bytes_per_second: window.rate(M::ConsumedBytes),
        fetches_per_second: window.rate(M::Fetches),
        fetch_bytes: window.get(M::FetchBytes),
        fetch_ms: window.get(M::FetchLatency),
        fetch_ms_max: window.get(M::FetchLatencyMax),
        throttle_ms: window.get(M::FetchThrottle),
        throttle_ms_max: window.get(M::FetchThrottleMax),
        poll_idle_share: window.get(M::PollIdle),
        ms_between_polls: window.get(M::BetweenPolls),
        ms_between_polls_max: window.get(M::BetweenPollsMax),
        lag_max: lag_max.or(window.get(M::LagMax)),
        assigned_partitions: window.get(M::AssignedPartitions),
        rebalances,
        rebalance_ms: of_rebalances(M::RebalanceTime),
        rebalance_ms_max: of_rebalances(M::RebalanceTimeMax),
        failed_rebalances: window.get(M::FailedRebalances),
        heartbeat_gap_s: window.get(M::LastHeartbeat),
        commit_ms: window.get(M::CommitTime),
        commits_per_second: window.rate(M::Commits),
        commit_wait: window.rate(M::CommitSyncNanos).map(|nanos| nanos / 1e9),
        connections_per_second: window.slowest(M::ConsumerConnections),
        partitions,
        without_sample: without_sample(window),
        partitions_pushed: window.instance().partitions_pushed.map(|count| count as f64),
        ..Consumer::default()
    }
}

/// librdkafka does not count rebalances, but sends their total time.
fn rebalances(window: &Window<'_>) -> Option<f64> {
    let took = || window.get(Measure::RebalanceTimeTotal);
    window
        .get(Measure::Rebalances)
        .or_else(|| took().map(|ms| f64::from(u8::from(ms > 0.0))))
}

fn partitions(window: &Window<'_>) -> Vec<ConsumedPartition> {
    let partitions = window.each(Measure::Lag).filter_map(|(subject, lag)| {
        let Subject::Partition(topic, partition) = subject else {
            return None;
        };
        let lead = window.beside(lag, Measure::Lead);
        // A single reading has no earlier one to compare with, only its own mean.
        let drift = |now: f64, mean: Measure| {
            let mean = window.beside(lag, mean)?;
            Some(2.0 * (now - mean.value) / f64::from(mean.weight))
        };
        let lag_slope = window.slope(lag).or_else(|| drift(lag.value, Measure::LagMean));
        let lead_slope = lead.and_then(|lead| {
            window
                .slope(lead)
                .or_else(|| drift(lead.value, Measure::LeadMean))
        });
        // The lead also shrinks when the log start moves: then it does not tell what was consumed.
        let consumed = lead_slope.filter(|slope| *slope >= 0.0);
        Some(ConsumedPartition {
            topic: topic.to_owned(),
            partition,
            lag: Some(lag.value),
            lag_slope,
            consumed_per_second: consumed,
            produced_per_second: consumed
                .zip(lag_slope)
                .map(|(consumed, slope)| (consumed + slope).max(0.0)),
            lag_ms: None,
            is_own_gauge: true,
        })
    });
    partitions.collect()
}

fn without_sample(window: &Window<'_>) -> Vec<String> {
    let measures = window.instance().without_sample.iter();
    measures.map(|measure| measure.name().to_owned()).collect()
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0), |(sum, count), value| (sum + value, count + 1));
    (count > 0).then(|| sum / f64::from(count))
}
