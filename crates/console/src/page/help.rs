//! `/help/metrics`: how Prometheus reads this broker.

use serde_json::json;

use super::{Page, View, document};
use crate::draw::block::{block, facts, head};
use crate::draw::text::{Piece, plain, text};

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

pub fn page(_view: &View<'_>) -> Page {
    let lead = [
        text("Prometheus reads "),
        Piece::Link {
            to: String::from("/metrics"),
            text: String::from("/metrics"),
        },
        text(" at this address; gauges cover the last minute, independent of readers."),
    ];
    let families: Vec<(&str, String)> = FAMILIES
        .iter()
        .map(|(name, what)| (*name, (*what).to_owned()))
        .collect();
    Page {
        title: String::from("Metrics"),
        place: "/help/metrics",
        json: document(json!({"summary": plain(&lead)})),
        blocks: vec![
            head("Metrics", "", &lead, &[]),
            block(
                "scrape",
                "Scrape configuration",
                "For a Prometheus on this machine.",
                |page| {
                    page.leaf("pre", &[("tabindex", &"0")], SCRAPE);
                },
            ),
            block(
                "families",
                "What is there",
                "The complete list is the page itself. Grafana dashboards for Apache Kafka: docs/guides/dashboards.md.",
                |page| facts(&families, page),
            ),
        ],
    }
}
