//! `/metrics?names=reporter`: the spelling of Strimzi's metrics reporter, where it differs.

use super::cluster::write_unclean_elections;
use super::exposition::Page;
use crate::metrics::tenants::TenantReading;

/// - `idle`: share of the event loops' time, unless it is on the page already.
pub fn write_metrics(page: &mut Page, reading: &TenantReading, idle: Option<f64>) {
    write_unclean_elections(page, "uncleanleaderelectionspersec_total");
    if let Some(idle) = idle {
        page.single(
            "kafka_network_socketserver_networkprocessoravgidlepercent",
            "gauge",
            "Share of time the event loops waited in the last minute.",
            idle,
        );
    }
    // Apache Kafka's meter counts the nanoseconds for which a thread was idle.
    let busy_nanos = reading.busy_micros_total * 1_000 / reading.loop_count.max(1) as u64;
    page.single(
        "kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent_total",
        "counter",
        "Nanoseconds for which an event loop waited, on average.",
        (reading.at.micros() * 1_000).saturating_sub(busy_nanos),
    );
}
