//! Metrics of topics and partitions, with a bounded number of series.
//!
//! A topic whose partitions do not fit has one series with their sum, `partition="all"`, so that
//! sums by topic stay right.

use std::sync::Arc;

use ottla_core::partition::{Partition, Traffic};
use ottla_core::partitions::Partitions;

use super::exposition::Page;

/// The most partitions with series of their own: a scrape must stay bounded with forty thousand.
const PARTITIONS_MAX: usize = 2_000;

/// The most topics with series of their own.
const TOPICS_MAX: usize = 2_000;

/// The partition label of a sum over all partitions of a topic.
const ALL_PARTITIONS: &str = "all";

/// All topics at approximately one moment.
#[derive(Debug, Default)]
pub struct TopicsReading {
    /// By name; at most [`TOPICS_MAX`].
    pub topics: Vec<TopicReading>,
    /// Of all topics since the start, deleted ones too.
    pub total: Traffic,
    pub topics_left_out: usize,
    /// Partitions without series of their own.
    pub partitions_left_out: usize,
    pub log_bytes: i64,
}

#[derive(Debug)]
pub struct TopicReading {
    pub name: Arc<str>,
    pub traffic: Traffic,
    pub partition_count: usize,
    /// What has series: each partition, or their sum.
    pub rows: Vec<Row>,
    pub sum: Row,
}

/// One partition, or the sum of all of a topic.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Row {
    pub partition: String,
    pub count: i64,
    pub bytes: i64,
    pub start: i64,
    pub end: i64,
    pub high_watermark: i64,
}

impl Row {
    fn of(partition: &Partition) -> Row {
        let offsets = partition.offsets();
        Row {
            partition: partition.index.to_string(),
            count: 1,
            bytes: partition.with_log(|log| log.bytes()).cast_signed(),
            start: offsets.start,
            end: offsets.end,
            high_watermark: offsets.high_watermark,
        }
    }

    fn add(&mut self, other: &Row) {
        self.count += other.count;
        self.bytes += other.bytes;
        self.start += other.start;
        self.end += other.end;
        self.high_watermark += other.high_watermark;
    }
}

impl TopicReading {
    /// - Shape: the partitions of one topic, at least one.
    fn of(partitions: &[Arc<Partition>]) -> TopicReading {
        let rows: Vec<Row> = partitions.iter().map(|partition| Row::of(partition)).collect();
        let mut sum = Row {
            partition: ALL_PARTITIONS.to_owned(),
            ..Row::default()
        };
        rows.iter().for_each(|row| sum.add(row));
        let mut traffic = Traffic::default();
        for partition in partitions {
            traffic += partition.traffic();
        }
        TopicReading {
            name: partitions[0].topic.clone(),
            traffic,
            partition_count: partitions.len(),
            rows,
            sum,
        }
    }
}

impl TopicsReading {
    pub fn of(partitions: &Partitions) -> TopicsReading {
        let all = partitions.all();
        let of_topics = all.chunk_by(|one, next| one.topic_id == next.topic_id);
        let topics = of_topics.map(TopicReading::of).collect();
        TopicsReading {
            total: partitions.traffic(),
            ..TopicsReading::bounded(topics)
        }
    }

    fn bounded(mut topics: Vec<TopicReading>) -> TopicsReading {
        topics.sort_by(|one, other| one.name.cmp(&other.name));
        let log_bytes = topics.iter().map(|topic| topic.sum.bytes).sum();
        let topics_left_out = topics.len().saturating_sub(TOPICS_MAX);
        let gone: usize = (topics.iter().skip(TOPICS_MAX))
            .map(|topic| topic.partition_count)
            .sum();
        topics.truncate(TOPICS_MAX);
        let mut room = PARTITIONS_MAX;
        let mut partitions_left_out = gone;
        for topic in &mut topics {
            match room.checked_sub(topic.partition_count) {
                Some(left) => room = left,
                None => {
                    partitions_left_out += topic.partition_count;
                    topic.rows = vec![topic.sum.clone()];
                }
            }
        }
        TopicsReading {
            topics,
            total: Traffic::default(),
            topics_left_out,
            partitions_left_out,
            log_bytes,
        }
    }

    /// What has series.
    pub fn rows(&self) -> impl Iterator<Item = (&str, &Row)> {
        let topics = self.topics.iter();
        topics.flat_map(|topic| topic.rows.iter().map(|row| (&*topic.name, row)))
    }
}

/// Kafka's counters by topic: name without ending, help, value.
type OfTraffic = (&'static str, &'static str, fn(&Traffic) -> u64);

const TRAFFIC: [OfTraffic; 7] = [
    ("messagesin", "Records appended by producers.", |traffic| {
        traffic.records_in
    }),
    ("bytesin", "Bytes of record batches appended.", |traffic| {
        traffic.bytes_in
    }),
    (
        "bytesout",
        "Bytes of record batches sent to consumers.",
        |traffic| traffic.bytes_out,
    ),
    (
        "totalproducerequests",
        "Produce requests; one counts once for each partition.",
        |traffic| traffic.requests.produce,
    ),
    (
        "totalfetchrequests",
        "Answered fetches; one counts once for each partition.",
        |traffic| traffic.requests.fetch,
    ),
    (
        "failedproducerequests",
        "Produce requests answered with an error for a partition.",
        |traffic| traffic.requests.produce_failed,
    ),
    (
        "failedfetchrequests",
        "Fetches answered with an error for a partition.",
        |traffic| traffic.requests.fetch_failed,
    ),
];

/// Writes Kafka's counters by topic: the total without a label, and one series a topic.
///
/// - `ending`: of the names, which differs between exporters.
pub fn write_traffic(page: &mut Page, reading: &TopicsReading, ending: &str) {
    for (name, help, of) in TRAFFIC {
        let name = format!("kafka_server_brokertopicmetrics_{name}{ending}");
        page.metric(&name, "counter", help);
        page.sample(&name, &[], of(&reading.total));
        for topic in &reading.topics {
            page.sample(&name, &[("topic", &topic.name)], of(&topic.traffic));
        }
    }
}

/// Kafka's gauges by partition, and kafka_exporter's.
type OfRow = (&'static str, &'static str, fn(&Row) -> i64);

const ROWS: [OfRow; 12] = [
    ("kafka_log_log_size", "Bytes of the log.", |row| row.bytes),
    (
        "kafka_log_log_logstartoffset",
        "First offset of the log.",
        |row| row.start,
    ),
    (
        "kafka_log_log_logendoffset",
        "Offset behind the last record.",
        |row| row.end,
    ),
    (
        "ottla_partition_high_watermark",
        "Offset up to which consumers read.",
        |row| row.high_watermark,
    ),
    (
        "kafka_cluster_partition_replicascount",
        "Always 1: one replica each.",
        |row| row.count,
    ),
    (
        "kafka_cluster_partition_atminisr",
        "Always 1: the one replica is in sync, and no more are needed.",
        |row| row.count,
    ),
    (
        "kafka_cluster_partition_underminisr",
        "Always 0: one replica each.",
        |_| 0,
    ),
    (
        "kafka_topic_partition_current_offset",
        "Offset up to which consumers read.",
        |row| row.high_watermark,
    ),
    (
        "kafka_topic_partition_oldest_offset",
        "First offset of the log.",
        |row| row.start,
    ),
    (
        "kafka_topic_partition_replicas",
        "Always 1: one replica each.",
        |row| row.count,
    ),
    (
        "kafka_topic_partition_in_sync_replica",
        "Always 1: one replica each.",
        |row| row.count,
    ),
    (
        "kafka_topic_partition_under_replicated_partition",
        "Always 0: one replica each.",
        |_| 0,
    ),
];

pub fn write_partitions(page: &mut Page, reading: &TopicsReading, node_id: i32) {
    page.single(
        "ottla_partitions_without_metrics",
        "gauge",
        "Partitions without series of their own; their topic has partition=\"all\".",
        reading.partitions_left_out,
    );
    page.single(
        "ottla_topics_without_metrics",
        "gauge",
        "Topics beyond the limit of this page.",
        reading.topics_left_out,
    );
    for (name, help, of) in ROWS {
        page.metric(name, "gauge", help);
        for (topic, row) in reading.rows() {
            page.sample(name, &[("topic", topic), ("partition", &row.partition)], of(row));
        }
    }
    write_leaders(page, reading, node_id);
    const COUNT: &str = "kafka_topic_partitions";
    page.metric(COUNT, "gauge", "Partitions of the topic.");
    for topic in &reading.topics {
        page.sample(COUNT, &[("topic", &topic.name)], topic.partition_count);
    }
}

/// Writes the ends of partitions by the name of kafka-lag-exporter.
pub fn write_latest(page: &mut Page, reading: &TopicsReading, cluster_id: &str) {
    const LATEST: &str = "kafka_partition_latest_offset";
    page.metric(LATEST, "gauge", "Offset up to which consumers read.");
    for (topic, row) in reading.rows() {
        let labels = [
            ("cluster_name", cluster_id),
            ("topic", topic),
            ("partition", &*row.partition),
        ];
        page.sample(LATEST, &labels, row.high_watermark);
    }
}

/// A sum over partitions has no leader.
fn write_leaders(page: &mut Page, reading: &TopicsReading, node_id: i32) {
    let single = || {
        let is_single = |(_, row): &(&str, &Row)| row.partition != ALL_PARTITIONS;
        reading.rows().filter(is_single)
    };
    for (name, help, value) in [
        ("kafka_topic_partition_leader", "Id of this broker.", node_id),
        (
            "kafka_topic_partition_leader_is_preferred",
            "Always 1: one replica each.",
            1,
        ),
    ] {
        page.metric(name, "gauge", help);
        for (topic, row) in single() {
            page.sample(name, &[("topic", topic), ("partition", &row.partition)], value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topic(name: &str, partitions: i64) -> TopicReading {
        let row = |index: i64| Row {
            partition: index.to_string(),
            count: 1,
            bytes: 10,
            start: 1,
            end: 5,
            high_watermark: 4,
        };
        let rows: Vec<Row> = (0..partitions).map(row).collect();
        let mut sum = Row {
            partition: ALL_PARTITIONS.to_owned(),
            ..Row::default()
        };
        rows.iter().for_each(|row| sum.add(row));
        let mut traffic = Traffic {
            records_in: 7,
            ..Traffic::default()
        };
        traffic.requests.produce_failed = 2;
        TopicReading {
            name: name.into(),
            traffic,
            partition_count: rows.len(),
            rows,
            sum,
        }
    }

    fn lines_of(reading: &TopicsReading) -> Vec<String> {
        let mut page = Page::default();
        write_traffic(&mut page, reading, "_total");
        write_partitions(&mut page, reading, 3);
        page.finish().lines().map(str::to_owned).collect()
    }

    #[track_caller]
    fn check(lines: &[String], wanted: &str) {
        assert!(
            lines.iter().any(|line| line == wanted),
            "{wanted} is not in {lines:#?}"
        );
    }

    #[test]
    fn a_family_has_its_total_without_a_label_and_one_series_a_topic() {
        let mut reading = TopicsReading::bounded(vec![topic("b\"", 1), topic("a", 2)]);
        reading.total.records_in = 20;
        let lines = lines_of(&reading);
        check(&lines, "kafka_server_brokertopicmetrics_messagesin_total 20");
        check(
            &lines,
            "kafka_server_brokertopicmetrics_messagesin_total{topic=\"b\\\"\"} 7",
        );
        check(
            &lines,
            "kafka_server_brokertopicmetrics_failedproducerequests_total{topic=\"a\"} 2",
        );
        check(&lines, "kafka_log_log_size{topic=\"a\",partition=\"1\"} 10");
        check(&lines, "kafka_topic_partitions{topic=\"a\"} 2");
        check(
            &lines,
            "kafka_topic_partition_leader{topic=\"a\",partition=\"0\"} 3",
        );
        check(&lines, "ottla_partitions_without_metrics 0");
    }

    #[test]
    fn topics_beyond_the_limit_of_partitions_have_one_series_with_their_sum() {
        let topics = vec![topic("a", 1_500), topic("b", 501), topic("c", 500)];
        let reading = TopicsReading::bounded(topics);
        let lines = lines_of(&reading);
        check(&lines, "ottla_partitions_without_metrics 501");
        check(
            &lines,
            "kafka_log_log_logendoffset{topic=\"b\",partition=\"all\"} 2505",
        );
        check(
            &lines,
            "kafka_cluster_partition_replicascount{topic=\"b\",partition=\"all\"} 501",
        );
        let of_size = |line: &&String| line.starts_with("kafka_log_log_size{");
        assert_eq!(lines.iter().filter(of_size).count(), 2_001);
        let leader_of_b = "kafka_topic_partition_leader{topic=\"b\"";
        assert!(!lines.iter().any(|line| line.starts_with(leader_of_b)));
    }

    #[test]
    fn topics_beyond_their_limit_are_counted() {
        let name = |number: usize| format!("t{number:05}");
        let topics = (0..2_003).map(|number| topic(&name(number), 1)).collect();
        let reading = TopicsReading::bounded(topics);
        assert_eq!((reading.topics_left_out, reading.partitions_left_out), (3, 3));
        assert_eq!(reading.log_bytes, 20_030);
        let lines = lines_of(&reading);
        check(&lines, "ottla_topics_without_metrics 3");
        assert!(!lines.iter().any(|line| line.contains(&name(2_000))));
    }
}
