//! `/metrics?names=confluent`: the spelling of Confluent's rules for the JMX exporter, where it
//! differs.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};

use ottla_wire::api_key::ApiKey;
use ottla_wire::error_code::ErrorCode;

use super::AdminView;
use super::cluster::write_unclean_elections;
use super::connection_rates::Rates;
use super::exposition::Page;
use super::lag::LagReading;
use crate::metrics::recorder::{Records, Totals, VERSIONS_MAX};

/// The most names and versions of client libraries; they come from the network.
const SOFTWARE_MAX: usize = 50;

pub fn write_metrics(page: &mut Page, view: &AdminView, totals: &Totals, lags: &LagReading, idle: f64) {
    write_unclean_elections(page, "uncleanleaderelectionspersec");
    write_requests(page, totals);
    write_errors(page, totals);
    write_queues(page, view, idle);
    write_replicas(page);
    write_sessions(page, view);
    write_connections(page, view);
    write_groups(page, lags);
}

/// By API and version. Kafka tells fetches of consumers and of followers apart; here are no
/// followers. A series begins with the first request, as in Kafka.
fn write_requests(page: &mut Page, totals: &Totals) {
    const REQUESTS: &str = "kafka_network_requestmetrics_requestspersec";
    page.metric(REQUESTS, "counter", "Requests by API and version.");
    let mut write = |request: &str, version: usize, count: u64| {
        let version = match version {
            VERSIONS_MAX => String::from("other"),
            version => version.to_string(),
        };
        let labels = [("request", request), ("version", &*version)];
        page.sample(REQUESTS, &labels, count);
    };
    for (api_key, records) in &totals.apis {
        let counts = records.versions.iter().enumerate();
        for (version, count) in counts.filter(|(_, count)| **count > 0) {
            write(api_key.name(), version, *count);
            if *api_key == ApiKey::Fetch {
                write("FetchConsumer", version, *count);
                write("FetchFollower", version, 0);
            }
        }
    }
}

fn write_errors(page: &mut Page, totals: &Totals) {
    const ERRORS: &str = "kafka_network_requestmetrics_errorspersec";
    page.metric(
        ERRORS,
        "counter",
        "Errors in answers to clients that move records, by API.",
    );
    for ((api_key, code), count) in &totals.errors {
        let error = ErrorCode::from_i16(*code).map_or("UNKNOWN", ErrorCode::name);
        page.sample(ERRORS, &[("request", api_key.name()), ("error", error)], count);
    }
}

fn write_queues(page: &mut Page, view: &AdminView, idle: f64) {
    let queued = view.queues.cold_reads().queued() + view.queues.long_answers().queued();
    page.single(
        "kafka_network_requestchannel_requestqueuesize",
        "gauge",
        "Reads that wait for a cold-read thread, and requests that wait for one of long answers.",
        queued,
    );
    page.single(
        "kafka_network_requestchannel_responsequeuesize",
        "gauge",
        "Always 0: the event loop that made an answer sends it.",
        0,
    );
    for name in [
        "kafka_network_socketserver_networkprocessoravgidlepercent",
        "kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent_oneminuterate",
    ] {
        page.single(
            name,
            "gauge",
            "Share of time the event loops waited in the last minute.",
            idle,
        );
    }
}

fn write_replicas(page: &mut Page) {
    const NO_REPLICAS: &str = "Always 0: one replica each.";
    const NO_STRAYS: &str = "Always 0: a directory of a deleted topic is removed.";
    const NO_CONVERSION: &str = "Always 0: there is one format of record batches.";
    for (name, kind, help) in [
        ("replicamanager_isrshrinkspersec", "counter", NO_REPLICAS),
        ("replicamanager_isrexpandspersec", "counter", NO_REPLICAS),
        ("replicamanager_straypartitionscount", "gauge", NO_STRAYS),
        (
            "replicamanager_straypartitionsmisclassifiedcount",
            "gauge",
            NO_STRAYS,
        ),
        ("replicamanager_straypartitionstotalsize", "gauge", NO_STRAYS),
        (
            "brokertopicmetrics_producemessageconversionspersec",
            "counter",
            NO_CONVERSION,
        ),
        (
            "brokertopicmetrics_fetchmessageconversionspersec",
            "counter",
            NO_CONVERSION,
        ),
    ] {
        page.single(&format!("kafka_server_{name}"), kind, help, 0);
    }
}

fn write_sessions(page: &mut Page, view: &AdminView) {
    page.single(
        "kafka_server_fetchsessioncache_numincrementalfetchsessions",
        "gauge",
        "Fetch sessions.",
        view.node.fetch_sessions.count(),
    );
    page.single(
        "kafka_server_fetchsessioncache_incrementalfetchsessionevictionspersec",
        "counter",
        "Idle fetch sessions that gave way to new ones.",
        view.node.fetch_sessions.evicted(),
    );
}

fn write_connections(page: &mut Page, view: &AdminView) {
    let rates = view.rates.read(&view.connections, view.clock.moment());
    let created: fn(&Rates) -> f64 = |rates| rates.created;
    let closed: fn(&Rates) -> f64 = |rates| rates.closed;
    for (name, help, of) in [
        (
            "creation",
            "Connections accepted per second in the last minute.",
            created,
        ),
        (
            "close",
            "Connections that ended per second in the last minute.",
            closed,
        ),
    ] {
        let name = format!("kafka_server_socketservermetrics_connection_{name}_rate");
        page.metric(&name, "gauge", help);
        for (listener, rates) in &rates {
            page.sample(&name, &[("listener", listener)], of(rates));
        }
    }
    const SOFTWARE: &str = "kafka_server_socketservermetrics_connections";
    page.metric(
        SOFTWARE,
        "gauge",
        "Connections that move records, by library of the client.",
    );
    for ((name, version), count) in software(&view.records) {
        let labels = [
            ("client_software_name", &*name),
            ("client_software_version", &*version),
        ];
        page.sample(SOFTWARE, &labels, count);
    }
}

/// Name and version of a client's library.
type Software = (Arc<str>, Arc<str>);

fn software(records: &Records) -> BTreeMap<Software, u64> {
    let mut all: BTreeMap<Software, u64> = BTreeMap::new();
    for records in &records.0 {
        let records = records.lock().unwrap_or_else(PoisonError::into_inner);
        for who in records.activities.clients() {
            let software = who.identity.software();
            let known = software.map(|software| (software.name.clone(), software.version.clone()));
            let mut named = known.unwrap_or_else(|| ("unknown".into(), "unknown".into()));
            if all.len() >= SOFTWARE_MAX && !all.contains_key(&named) {
                named = ("other".into(), "other".into());
            }
            *all.entry(named).or_default() += 1;
        }
    }
    all
}

fn write_groups(page: &mut Page, lags: &LagReading) {
    const GROUPS: &str = "kafka_coordinator_group_groupmetadatamanager_numgroups";
    page.single(GROUPS, "gauge", "Groups.", lags.group_count);
    for (ending, state) in [
        ("stable", "Stable"),
        ("preparingrebalance", "PreparingRebalance"),
        ("completingrebalance", "CompletingRebalance"),
        ("empty", "Empty"),
        ("dead", "Dead"),
    ] {
        let count = lags.states.get(state).copied().unwrap_or(0);
        page.single(
            &format!("{GROUPS}{ending}"),
            "gauge",
            "Groups in this state.",
            count,
        );
    }
}
