//! `/help/metrics`: how Prometheus reads this broker.

use serde_json::json;

use super::{Page, View};
use crate::draw::block::{Block, block, facts, head, nothing};
use crate::draw::text::{Piece, link, plain, text};

const SCRAPE: &str = "scrape_configs:
  - job_name: ottla
    scrape_interval: 15s
    static_configs:
      - targets: [\"127.0.0.1:9644\"]";

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
        json: view.document(|| json!({"summary": plain(&lead)})),
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

fn here() -> [Block; 2] {
    let families: Vec<(&str, String)> = FAMILIES
        .iter()
        .map(|(name, what)| (*name, (*what).to_owned()))
        .collect();
    [
        block(
            "scrape",
            "Scrape configuration",
            "For a Prometheus on this machine.",
            |page| page.leaf("pre", &[("tabindex", &"0")], SCRAPE),
        ),
        block(
            "families",
            "What is there",
            "The complete list is the page itself. Grafana dashboards for Apache Kafka: docs/guides/dashboards.md.",
            |page| facts(&families, page),
        ),
    ]
}
