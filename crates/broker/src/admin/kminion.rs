//! `/metrics?names=kminion`: topics and groups by the names of kminion.

use super::AdminView;
use super::exposition::Page;
use super::lag::{self, GroupLag, LagReading, PartitionLag, TopicLag};
use super::topics::{Row, TopicsReading};

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

fn labels_of<'a>(group: &'a GroupLag, partition: &'a PartitionLag) -> [(&'static str, &'a str); 3] {
    [
        ("group_id", &group.group_id),
        ("topic_name", &partition.topic),
        ("partition_id", &partition.partition),
    ]
}
