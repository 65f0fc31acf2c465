//! Client quotas: `GET /quotas` with every known client, and Kafka's quota metrics for the
//! heaviest.

use std::sync::Arc;

use ottla_core::node::Node;
use ottla_core::quota::kind::KIND_COUNT;
use ottla_core::quota::limits::{Part, SetFor};
use ottla_core::quota::registry::{ClientReport, OTHERS};
use ottla_core::quota::{QuotaKind, Quotas};
use serde_json::{Map, Value, json};

use super::exposition::Page;

/// The version of the document; raised when a field changes its meaning.
const VERSION: u32 = 1;

/// Users and client ids with metrics of their own; the rest are summed up in one more.
const SHOWN_MAX: usize = 20;

/// Renders the document: limits, usage and number of throttles per user and client id, the heaviest
/// first. Rates are in the unit of the quota's key.
pub fn render(node: &Node) -> String {
    let quotas = &node.quotas;
    let clients: Vec<Value> = heaviest_first(quotas).iter().map(client).collect();
    let listeners = node.config().advertised_listeners.iter();
    let listeners: Vec<String> = listeners
        .map(|listener| format!("{}:{}", listener.host, listener.port))
        .collect();
    let document = json!({
        "version": VERSION,
        "bootstrap_servers": listeners.join(","),
        "is_dry_run": quotas.is_dry_run(),
        "connections_throttled": quotas.connections.throttled(),
        "clients": clients,
    });
    format!("{document:#}\n")
}

fn heaviest_first(quotas: &Quotas) -> Vec<ClientReport> {
    let mut clients = quotas.report();
    // By event loop time: a client that sends many tiny requests weighs more than one that sends
    // many bytes.
    let weight = |client: &ClientReport| client.sums.used[QuotaKind::Request as usize];
    clients.sort_by_key(|client| std::cmp::Reverse(weight(client)));
    clients
}

fn client(client: &ClientReport) -> Value {
    let kinds: Map<String, Value> = QuotaKind::ALL
        .iter()
        .map(|kind| (kind.key().to_owned(), quota(client, *kind)))
        .collect();
    json!({
        "user": &*client.user,
        "client_id": &*client.client_id,
        "is_connected": client.is_connected,
        "quotas": kinds,
    })
}

fn quota(client: &ClientReport, kind: QuotaKind) -> Value {
    let index = kind as usize;
    json!({
        "limit": client.limits[index],
        "set_for": client.set_for[index].map(|set_for| entity(client, set_for)),
        "used": client.sums.used[index] as f64 * kind.scale(),
        "rate": client.rates.now[index],
        "rate_max": client.rates.peak[index],
        "rate_of_one_second_max": client.rates.peak_second[index],
        "throttles": client.sums.throttles[index],
        "throttle_ms": client.sums.throttle_micros[index] / 1_000,
    })
}

/// The entity that a limit was set for, in the words of Kafka's tools: `user ana and client-id
/// default`.
pub fn entity(client: &ClientReport, set_for: SetFor) -> String {
    let parts = [
        ("user", set_for.user, &client.user),
        ("client-id", set_for.client_id, &client.client_id),
    ];
    let words = parts.into_iter().filter_map(|(kind, part, name)| match part {
        Part::Named => Some(format!("{kind} {name}")),
        Part::Default => Some(format!("{kind} default")),
        Part::Absent => None,
    });
    words.collect::<Vec<String>>().join(" and ")
}

/// Returns Kafka's names for a kind of quota: type, rate metric and its help.
fn kafka_name(kind: QuotaKind) -> (&'static str, &'static str, &'static str) {
    match kind {
        QuotaKind::Produce => ("produce", "byte_rate", "Bytes of produce requests per second"),
        QuotaKind::Fetch => ("fetch", "byte_rate", "Bytes of fetch answers per second"),
        QuotaKind::Request => ("request", "request_time", "Percent of one event loop's time"),
        QuotaKind::ControllerMutation => (
            "controllermutation",
            "mutation_rate",
            "Partitions created and deleted per second",
        ),
    }
}

/// Sums and rates of several clients.
#[derive(Default)]
struct Shown {
    user: Arc<str>,
    client_id: Arc<str>,
    rates: [f64; KIND_COUNT],
    throttle_ms: [f64; KIND_COUNT],
    throttles: [u64; KIND_COUNT],
}

impl Shown {
    fn add(&mut self, client: &ClientReport) {
        for index in 0..KIND_COUNT {
            self.rates[index] += client.rates.now[index];
            self.throttle_ms[index] = self.throttle_ms[index].max(client.rates.throttle_ms[index]);
            self.throttles[index] += client.sums.throttles[index];
        }
    }
}

fn shown(quotas: &Quotas) -> Vec<Shown> {
    let clients = heaviest_first(quotas);
    let (heavy, rest) = clients.split_at(clients.len().min(SHOWN_MAX));
    let mut all: Vec<Shown> = Vec::with_capacity(heavy.len() + 1);
    for client in heavy {
        let mut one = Shown {
            user: client.user.clone(),
            client_id: client.client_id.clone(),
            ..Shown::default()
        };
        one.add(client);
        all.push(one);
    }
    if !rest.is_empty() {
        let mut others = Shown {
            user: OTHERS.into(),
            client_id: OTHERS.into(),
            ..Shown::default()
        };
        rest.iter().for_each(|client| others.add(client));
        all.push(others);
    }
    all
}

/// Writes Kafka's quota metrics by user and client id, and how often each quota throttled.
pub fn write_metrics(page: &mut Page, quotas: &Quotas) {
    let shown = shown(quotas);
    for kind in QuotaKind::ALL {
        let (name, rate, help) = kafka_name(kind);
        let of = |one: &Shown| [one.rates[kind as usize], one.throttle_ms[kind as usize]];
        for (index, metric, help) in [
            (0, rate, format!("{help}, over ten seconds.")),
            (
                1,
                "throttle_time",
                "Mean throttle of answers that had one, in milliseconds.".to_owned(),
            ),
        ] {
            let name = format!("kafka_server_{name}_{metric}");
            page.metric(&name, "gauge", &help);
            for one in &shown {
                page.sample(
                    &name,
                    &[("user", &one.user), ("client_id", &one.client_id)],
                    of(one)[index],
                );
            }
        }
    }
    const THROTTLES: &str = "ottla_quota_throttles_total";
    let help = match quotas.is_dry_run() {
        true => "Answers that would have been throttled if the quotas were not in a dry run.",
        false => "Throttled answers, by quota.",
    };
    page.metric(THROTTLES, "counter", help);
    for one in &shown {
        for kind in QuotaKind::ALL {
            let labels = [
                ("user", &*one.user),
                ("client_id", &*one.client_id),
                ("quota", kind.key()),
            ];
            page.sample(THROTTLES, &labels, one.throttles[kind as usize]);
        }
    }
    page.single(
        "ottla_quota_connections_throttled_total",
        "counter",
        "Connections throttled by connection_creation_rate.",
        quotas.connections.throttled(),
    );
}
