//! `/help/metrics`: how Prometheus reads this broker.

use std::fmt::Display;

use ottla_lab::markup::Markup;
use serde_json::json;

use super::{Page, View};
use crate::draw::block::{Block, block, facts, head, nothing};
use crate::draw::text::{Piece, link, plain, text};

/// Dashboards for Apache Kafka: their names, and the job of a scrape configuration that each needs.
/// The guide of dashboards has the same.
const DASHBOARDS: [(&str, &str); 3] = [
    (
        "kafka_exporter overview (7589), kafka-lag-exporter, kminion, Ottla’s own",
        "  - job_name: kafka-exporter
    params: {names: [kminion]}
    static_configs:
      - targets: [\"127.0.0.1:9644\"]",
    ),
    (
        "Strimzi Kafka, Strimzi Kafka Exporter",
        "  - job_name: strimzi
    static_configs:
      - targets: [\"127.0.0.1:9644\"]
        labels: {namespace: kafka, strimzi_io_cluster: ottla, kubernetes_pod_name: ottla-0, container: kafka}",
    ),
    (
        "Confluent: kafka-cluster-kraft, kafka-topics-kraft, kafka-quotas",
        "  - job_name: kafka-broker
    params: {names: [confluent]}
    static_configs:
      - targets: [\"127.0.0.1:9644\"]
        labels: {env: dev}
  - job_name: kafka-controller
    static_configs:
      - targets: [\"127.0.0.1:9644\"]
        labels: {env: dev}",
    ),
];

/// The address in the jobs: that of a broker that was given no other.
const TARGET: &str = "127.0.0.1:9644";

const FAMILIES: [(&str, &str); 6] = [
    ("kafka_server_…", "traffic and request counts by Kafka’s names"),
    (
        "kafka_network_…",
        "times of requests by Kafka’s parts, and idle shares of the event loops",
    ),
    (
        "ottla_request_stage_seconds",
        "a histogram by API and stage; stages sum to the total",
    ),
    ("ottla_client_…", "requests and stages by client id; bounded"),
    (
        "ottla_tenant_…",
        "what each tenant costs; the heaviest, and the rest summed",
    ),
    (
        "ottla_log_memory_bytes, ottla_descriptors, …",
        "what the process holds, beside its limits",
    ),
];

const ELSEWHERE: &str =
    "Apache Kafka’s brokers offer their metrics by JMX; an Ottla has them at its admin address.";

pub fn page(view: &View<'_>) -> Page {
    let is_here = view.source.identity().serves_metrics;
    let lead = lead(is_here);
    let mut blocks = vec![head("Metrics", "", &lead, &[])];
    match is_here {
        true => blocks.extend(here()),
        false => blocks.push(block("scrape", "Where they are", "", |page| {
            nothing(ELSEWHERE, page)
        })),
    }
    Page {
        title: String::from("Metrics"),
        place: "/help/metrics",
        json: view.document(|| {
            let jobs = DASHBOARDS.map(|(dashboards, job)| json!({"dashboards": dashboards, "job": job}));
            json!({"summary": plain(&lead), "target": TARGET, "jobs": jobs})
        }),
        blocks,
    }
}

fn lead(is_here: bool) -> Vec<Piece> {
    match is_here {
        true => vec![
            text("Prometheus reads "),
            link("/metrics", "/metrics"),
            text(" at this address; gauges cover the last minute, independent of readers."),
        ],
        false => vec![text(
            "This address has no metrics for Prometheus: it shows a cluster, and is no broker.",
        )],
    }
}

const SCRAPE_NOTE: &str = "For a Prometheus on this machine: put the job of a dashboard below scrape_configs, and the address of this broker for the one in it. \
    Which panels have an answer: docs/measurements/dashboards.md.";

fn jobs(page: &mut Markup) {
    for (index, (dashboards, job)) in DASHBOARDS.iter().enumerate() {
        let id = format!("job-{index}");
        page.nest("p", &[], |page| page.inline("b", &[], dashboards));
        page.leaf("pre", &[("tabindex", &"0"), ("id", &id)], job);
        page.nest("p", &[], |page| {
            let what = format!("Copy the job of {dashboards}");
            let of_button: [(&'static str, &dyn Display); 4] = [
                ("type", &"button"),
                ("data-copy", &id),
                ("aria-label", &what),
                ("hidden", &""),
            ];
            page.leaf("button", &of_button, "Copy");
        });
    }
}

fn here() -> [Block; 2] {
    let families: Vec<(&str, String)> = FAMILIES
        .iter()
        .map(|(name, what)| (*name, (*what).to_owned()))
        .collect();
    [
        block("scrape", "Scrape configuration", SCRAPE_NOTE, jobs),
        block(
            "families",
            "What is there",
            "The complete list is the page itself. Grafana dashboards for Apache Kafka: docs/guides/dashboards.md.",
            |page| facts(&families, page),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_jobs_are_those_of_the_guide() {
        let guide = include_str!("../../../../docs/guides/dashboards.md");
        for (_, job) in DASHBOARDS {
            assert!(guide.contains(job), "{job}");
            assert!(job.contains(TARGET));
        }
    }
}
