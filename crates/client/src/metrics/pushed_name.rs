//! KIP-714's names for metrics.

/// The name under which a metric is pushed: `org.apache.kafka.producer.record.queue.time.avg`.
///
/// KIP-714's mapping: group and name joined, dashes to dots, `-metrics` removed. Metrics that Kafka
/// does not have are outside `org.apache.kafka.`, as the KIP requires of a client's private
/// metrics: `ottla.producer.send.time.avg`.
pub fn pushed_name(group: &str, name: &str) -> String {
    let domain = if group.starts_with("ottla-") {
        ""
    } else {
        "org.apache.kafka."
    };
    let group = group.replace('-', ".").replace(".metrics", "");
    format!("{domain}{group}.{}", name.replace('-', "."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_mapped_as_the_java_client_maps_them() {
        let cases = [
            (
                "producer-node-metrics",
                "request-latency-avg",
                "org.apache.kafka.producer.node.request.latency.avg",
            ),
            (
                "producer-metrics",
                "io-wait-time-ns-total",
                "org.apache.kafka.producer.io.wait.time.ns.total",
            ),
            (
                "consumer-fetch-manager-metrics",
                "records-lag",
                "org.apache.kafka.consumer.fetch.manager.records.lag",
            ),
            (
                "app-info",
                "start-time-ms",
                "org.apache.kafka.app.info.start.time.ms",
            ),
            (
                "kafka-metrics-count",
                "count",
                "org.apache.kafka.kafka.count.count",
            ),
            (
                "ottla-producer-metrics",
                "send-time-avg",
                "ottla.producer.send.time.avg",
            ),
        ];
        for (group, name, pushed) in cases {
            assert_eq!(pushed_name(group, name), pushed);
        }
    }
}
