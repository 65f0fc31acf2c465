//! `/metrics?names=kminion`: topics and groups by the names of kminion.

use super::AdminView;
use super::exposition::Page;
use super::lag::{self, GroupLag, LagReading, PartitionLag, TopicLag};
use super::topics::{Row, TopicsReading};
use ottla_core::group::held::TopicSpread;

pub fn write_metrics(page: &mut Page, view: &AdminView, topics: &TopicsReading, lags: &LagReading) {
    write_cluster(page, view, topics);
    write_topics(page, view, topics);
    write_groups(page, view, lags);
}

fn write_cluster(page: &mut Page, view: &AdminView, topics: &TopicsReading) {
    let config = view.node.config();
    let node_id = config.node_id.to_string();
    const CLUSTER: &str = "kminion_kafka_cluster_info";
    page.metric(CLUSTER, "gauge", "Always 1; this broker is the cluster.");
    let labels = [
        ("cluster_version", env!("CARGO_PKG_VERSION")),
        ("broker_count", "1"),
        ("controller_id", &*node_id),
        ("cluster_id", view.node.cluster_id()),
    ];
    page.sample(CLUSTER, &labels, 1);
    let listener = config.advertised_listeners.first();
    let (host, port) = listener.map_or((String::new(), String::new()), |listener| {
        (listener.host.to_string(), listener.port.to_string())
    });
    const BROKER: &str = "kminion_kafka_broker_info";
    page.metric(BROKER, "gauge", "Always 1; id and address of this broker.");
    let labels = [
        ("broker_id", &*node_id),
        ("address", &*host),
        ("port", &*port),
        ("rack_id", ""),
        ("is_controller", "true"),
    ];
    page.sample(BROKER, &labels, 1);
    const BYTES: &str = "kminion_kafka_broker_log_dir_size_total_bytes";
    page.metric(BYTES, "gauge", "Bytes of all logs.");
    page.sample(BYTES, &labels[..4], topics.log_bytes);
}

fn write_topics(page: &mut Page, view: &AdminView, topics: &TopicsReading) {
    const INFO: &str = "kminion_kafka_topic_info";
    page.metric(INFO, "gauge", "Always 1; what the topic is.");
    let image = view.node.image();
    for topic in &topics.topics {
        let is_compacted = image.topic(&topic.name).map(|topic| topic.config.log.compact);
        let labels = [
            ("topic_name", &*topic.name),
            ("partition_count", &*topic.partition_count.to_string()),
            ("replication_factor", "1"),
            (
                "cleanup_policy",
                if is_compacted == Some(true) {
                    "compact"
                } else {
                    "delete"
                },
            ),
        ];
        page.sample(INFO, &labels, 1);
    }
    let high: fn(&Row) -> i64 = |row| row.high_watermark;
    let low: fn(&Row) -> i64 = |row| row.start;
    for (name, help, of) in [
        ("high", "Offset up to which consumers read.", high),
        ("low", "First offset of the log.", low),
    ] {
        let single = format!("kminion_kafka_topic_partition_{name}_water_mark");
        page.metric(&single, "gauge", help);
        for (topic, row) in topics.rows() {
            let labels = [("topic_name", topic), ("partition_id", &*row.partition)];
            page.sample(&single, &labels, of(row));
        }
        let sum = format!("kminion_kafka_topic_{name}_water_mark_sum");
        page.metric(&sum, "gauge", help);
        for topic in &topics.topics {
            page.sample(&sum, &[("topic_name", &*topic.name)], of(&topic.sum));
        }
    }
    const BYTES: &str = "kminion_kafka_topic_log_dir_size_total_bytes";
    page.metric(BYTES, "gauge", "Bytes of the topic's logs.");
    for topic in &topics.topics {
        page.sample(BYTES, &[("topic_name", &*topic.name)], topic.sum.bytes);
    }
}

fn write_groups(page: &mut Page, view: &AdminView, lags: &LagReading) {
    const INFO: &str = "kminion_kafka_consumer_group_info";
    page.metric(INFO, "gauge", "1 for a stable group, otherwise 0.");
    let node_id = view.node.config().node_id.to_string();
    for group in &lags.groups {
        let labels = [
            ("group_id", &*group.group_id),
            ("state", group.state),
            ("coordinator_id", &*node_id),
        ];
        page.sample(INFO, &labels, u8::from(group.state == "Stable"));
    }
    const MEMBERS: &str = "kminion_kafka_consumer_group_members";
    page.metric(MEMBERS, "gauge", "Members of the group.");
    for group in &lags.groups {
        page.sample(MEMBERS, &[("group_id", &*group.group_id)], group.member_count);
    }
    write_spreads(page, view, lags);
    const COMMITS: &str = "kminion_kafka_consumer_group_offset_commits_total";
    page.metric(
        COMMITS,
        "counter",
        "Offsets committed by the group, and those found at the start.",
    );
    for group in &lags.groups {
        page.sample(COMMITS, &[("group_id", &*group.group_id)], group.offset_commits);
    }
    let lag: fn(&TopicLag) -> i64 = |sum| sum.lag;
    let offset: fn(&TopicLag) -> i64 = |sum| sum.offset;
    for (name, help, of) in [
        ("lag", "Records from the committed offsets on.", lag),
        ("offset_sum", "Committed offsets, summed.", offset),
    ] {
        let name = format!("kminion_kafka_consumer_group_topic_{name}");
        page.metric(&name, "gauge", help);
        for group in &lags.groups {
            for (topic, sum) in &group.sums {
                let labels = [("group_id", &*group.group_id), ("topic_name", &**topic)];
                page.sample(&name, &labels, of(sum));
            }
        }
    }
    const LAG: &str = "kminion_kafka_consumer_group_topic_partition_lag";
    page.metric(LAG, "gauge", "Records from the committed offset on.");
    for (group, partition) in lag::partitions(lags) {
        page.sample(LAG, &labels_of(group, partition), partition.lag);
    }
}

/// The most series by group and topic, as for lag.
const SPREADS_MAX: usize = 4_000;

fn write_spreads(page: &mut Page, view: &AdminView, lags: &LagReading) {
    let spreads = view.node.groups.spreads(&view.node.storage);
    const EMPTY: &str = "kminion_kafka_consumer_group_empty_members";
    page.metric(EMPTY, "gauge", "Members of the group without partitions.");
    for group in &lags.groups {
        let empty = spreads
            .get(&group.group_id)
            .map_or(0, |spread| spread.empty_members);
        page.sample(EMPTY, &[("group_id", &*group.group_id)], empty);
    }
    let members: fn(&TopicSpread) -> usize = |topic| topic.members;
    let partitions: fn(&TopicSpread) -> usize = |topic| topic.partitions;
    for (name, help, of) in [
        (
            "members",
            "Members of the group with partitions of the topic.",
            members,
        ),
        (
            "assigned_partitions",
            "Partitions of the topic that members of the group have.",
            partitions,
        ),
    ] {
        let name = format!("kminion_kafka_consumer_group_topic_{name}");
        page.metric(&name, "gauge", help);
        let topics = lags
            .groups
            .iter()
            .filter_map(|group| spreads.get_key_value(&group.group_id));
        let topics = topics.flat_map(|(group_id, spread)| {
            spread
                .topics
                .iter()
                .map(move |(topic, of_topic)| (group_id, topic, of_topic))
        });
        for (group_id, topic, of_topic) in topics.take(SPREADS_MAX) {
            let labels = [("group_id", &**group_id), ("topic_name", &**topic)];
            page.sample(&name, &labels, of(of_topic));
        }
    }
}

fn labels_of<'a>(group: &'a GroupLag, partition: &'a PartitionLag) -> [(&'static str, &'a str); 3] {
    [
        ("group_id", &group.group_id),
        ("topic_name", &partition.topic),
        ("partition_id", &partition.partition),
    ]
}
