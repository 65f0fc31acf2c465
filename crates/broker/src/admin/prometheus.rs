//! `GET /metrics`: names that existing Kafka dashboards query, and Ottla's own with finer stages.

use ottla_log::disk::owned::LogMemory;
use ottla_wire::api_key::ApiKey;

use super::exposition::Page;
use super::lag::LagReading;
use super::names::Names;
use super::topics::TopicsReading;
use super::{AdminView, cluster, confluent, kminion, lag, reporter, topics};
use crate::metrics::accounts::{SUM_COUNT, Sum};
use crate::metrics::histogram::Histogram;
use crate::metrics::recorder::{ApiRecords, Totals};
use crate::metrics::stage::Stage;
use crate::metrics::tenants::{TenantReading, TenantRow};

const QUANTILES: [(&str, f64); 5] = [
    ("0.5", 0.5),
    ("0.75", 0.75),
    ("0.95", 0.95),
    ("0.99", 0.99),
    ("0.999", 0.999),
];

/// Upper bounds of the histogram buckets, in microseconds.
const BUCKETS_MICROS: [u32; 14] = [
    50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 1_000_000, 5_000_000,
];

/// Renders the page. May wait for the device: lag in seconds is the age of records.
///
/// - `names`: whose spelling is added.
pub fn render(view: &AdminView, names: Names) -> String {
    let totals = view.records.totals(view.clock.moment());
    let tenants = view.tenants.read();
    let topics = TopicsReading::of(&view.node.storage.partitions);
    let lags = LagReading::of(&view.node);
    let idle = idle_share(&tenants);
    let mut page = Page::default();
    topics::write_traffic(&mut page, &topics, "_total");
    write_replicas(&mut page, view);
    cluster::write_metrics(&mut page, view);
    write_request_times(&mut page, &totals, names.confluent);
    write_stages(&mut page, &totals);
    write_clients(&mut page, &totals);
    write_tenants(&mut page, &tenants, view.tenants.tenants().config().metrics_max);
    topics::write_partitions(&mut page, &topics, view.node.config().node_id);
    topics::write_latest(&mut page, &topics, view.node.cluster_id());
    lag::write_metrics(&mut page, &lags);
    lag::write_in_time(&mut page, &lags, view.node.cluster_id());
    write_loops(&mut page, &tenants, idle);
    super::transactions::write_metrics(&mut page, view);
    write_telemetry(&mut page, view);
    write_denials(&mut page, view);
    super::quotas::write_metrics(&mut page, &view.node.quotas);
    if let Some(tls) = &view.tls {
        super::tls::write_metrics(&mut page, tls);
    }
    write_process(&mut page, view);
    write_closed(&mut page, &totals);
    if names.confluent {
        topics::write_traffic(&mut page, &topics, "persec");
        confluent::write_metrics(&mut page, view, &totals, &lags, idle);
    }
    if names.reporter {
        topics::write_traffic(&mut page, &topics, "persec_total");
        reporter::write_metrics(&mut page, &tenants, (!names.confluent).then_some(idle));
    }
    if names.kminion {
        kminion::write_metrics(&mut page, view, &topics, &lags);
    }
    view.added.iter().for_each(|write| write(&mut page));
    page.finish()
}

/// The share of time the event loops waited, over a window of the broker's own: there may be
/// several scrapers.
fn idle_share(reading: &TenantReading) -> f64 {
    let available = reading.available_micros();
    let busy = reading.busy_micros.min(available);
    1.0 - busy as f64 / available.max(1) as f64
}

/// A request is handled on the loop that reads it, so both of Kafka's idle gauges are the same
/// number.
fn write_loops(page: &mut Page, reading: &TenantReading, idle: f64) {
    let help = "Share of time the event loops waited in the last minute.";
    page.single(
        "kafka_network_socketserver_networkprocessoravgidle_percent",
        "gauge",
        help,
        idle,
    );
    page.single(
        "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
        "gauge",
        help,
        idle,
    );
    let busy_seconds = reading.busy_micros_total as f64 / 1e6;
    page.single(
        "ottla_event_loops_busy_seconds_total",
        "counter",
        "Time the event loops worked.",
        busy_seconds,
    );
}

fn write_replicas(page: &mut Page, view: &AdminView) {
    let partitions = view.node.storage.partitions.all();
    let partition_count = partitions.len();
    page.single(
        "kafka_server_replicamanager_partitioncount",
        "gauge",
        "Partitions on this broker.",
        partition_count,
    );
    page.single(
        "kafka_server_replicamanager_leadercount",
        "gauge",
        "Partitions this broker leads.",
        partition_count,
    );
    page.single(
        "kafka_server_replicamanager_underreplicatedpartitions",
        "gauge",
        "Always 0: one replica each.",
        0,
    );
    let offline = partitions
        .iter()
        .filter(|partition| partition.failure().is_some())
        .count();
    page.single(
        "kafka_server_replicamanager_offlinereplicacount",
        "gauge",
        "Partitions that refuse writes after a failed write or sync.",
        offline,
    );
}

/// Kafka's parts of a request's time, each composed of Ottla's stages.
const REQUEST_TIMES: [(&str, &str, &[Stage]); 5] = [
    (
        "kafka_network_requestmetrics_requestqueuetimems",
        "Waiting to be served.",
        &[Stage::Queued],
    ),
    (
        "kafka_network_requestmetrics_localtimems",
        "Served on the event loop, append included.",
        &[Stage::Handled, Stage::Appended],
    ),
    (
        "kafka_network_requestmetrics_remotetimems",
        "Waiting for a sync, data, a device, a group, a transaction or the controller.",
        &[
            Stage::Synced,
            Stage::WaitedForData,
            Stage::ColdRead,
            Stage::WaitedForGroup,
            Stage::WaitedForTransaction,
            Stage::Controller,
        ],
    ),
    (
        "kafka_network_requestmetrics_responsequeuetimems",
        "Answered, behind an earlier request of the connection.",
        &[Stage::Behind],
    ),
    (
        "kafka_network_requestmetrics_responsesendtimems",
        "Until the socket took the answer.",
        &[Stage::Written],
    ),
];

/// Writes Kafka's request metrics, in milliseconds.
///
/// - `by_fetcher`: with fetches of consumers and of followers apart, as Confluent's dashboards ask
///   for them; here are no followers.
fn write_request_times(page: &mut Page, totals: &Totals, by_fetcher: bool) {
    let no_records = ApiRecords::default();
    let apis = totals.apis.iter();
    let mut requests: Vec<(&str, &ApiRecords)> =
        apis.map(|(api_key, records)| (api_key.name(), records)).collect();
    if by_fetcher {
        let fetches = totals.apis.get(&ApiKey::Fetch);
        requests.push(("FetchConsumer", fetches.unwrap_or(&no_records)));
        requests.push(("FetchFollower", &no_records));
    }
    const COUNT: &str = "kafka_network_requestmetrics_requests_total";
    page.metric(COUNT, "counter", "Requests by API.");
    for (api_key, records) in &totals.apis {
        page.sample(COUNT, &[("request", api_key.name())], records.count);
    }
    for (name, help, stages) in REQUEST_TIMES {
        page.metric(name, "summary", help);
        for (request, records) in &requests {
            let histograms: Vec<&Histogram> = stages
                .iter()
                .map(|stage| &records.stages[*stage as usize])
                .collect();
            write_summary(page, name, request, &histograms, records.count);
        }
    }
    const TOTAL: &str = "kafka_network_requestmetrics_totaltimems";
    page.metric(TOTAL, "summary", "From the first byte read to the last written.");
    for (request, records) in &requests {
        write_summary(page, TOTAL, request, &[&records.total], records.count);
    }
}

/// A quantile over several stages is that of the longest stage; sums are exact.
fn write_summary(page: &mut Page, name: &str, request: &str, histograms: &[&Histogram], count: u64) {
    let request = ("request", request);
    for (label, quantile) in QUANTILES {
        let micros = histograms
            .iter()
            .map(|histogram| histogram.quantile(quantile))
            .max();
        page.sample(
            name,
            &[request, ("quantile", label)],
            millis(micros.unwrap_or(0).into()),
        );
    }
    let sum = histograms.iter().map(|histogram| histogram.sum()).sum();
    page.sample(&format!("{name}_sum"), &[request], millis(sum));
    page.sample(&format!("{name}_count"), &[request], count);
}

fn write_stages(page: &mut Page, totals: &Totals) {
    const NAME: &str = "ottla_request_stage_seconds";
    page.metric(
        NAME,
        "histogram",
        "Time of requests by API and stage; stages sum to the total.",
    );
    for (api_key, records) in &totals.apis {
        for stage in Stage::ALL {
            let histogram = &records.stages[stage as usize];
            if histogram.sum() == 0 {
                continue;
            }
            let labels = [("api", api_key.name()), ("stage", stage.name())];
            for end in BUCKETS_MICROS {
                let le = (f64::from(end) / 1e6).to_string();
                let labels = [labels[0], labels[1], ("le", le.as_str())];
                page.sample(
                    "ottla_request_stage_seconds_bucket",
                    &labels,
                    histogram.count_up_to(end),
                );
            }
            let infinite = [labels[0], labels[1], ("le", "+Inf")];
            page.sample("ottla_request_stage_seconds_bucket", &infinite, histogram.count());
            page.sample(
                "ottla_request_stage_seconds_sum",
                &labels,
                histogram.sum() as f64 / 1e6,
            );
            page.sample("ottla_request_stage_seconds_count", &labels, histogram.count());
        }
    }
}

fn write_clients(page: &mut Page, totals: &Totals) {
    page.metric(
        "ottla_client_requests_total",
        "counter",
        "Requests by client id (bounded) and API.",
    );
    for (client_id, records) in &totals.clients {
        for (api_key, api) in &records.apis {
            let labels = [("client_id", &**client_id), ("api", api_key.name())];
            page.sample("ottla_client_requests_total", &labels, api.count);
        }
    }
    page.metric(
        "ottla_client_stage_seconds_total",
        "counter",
        "Time of requests by client id, API and stage.",
    );
    for (client_id, records) in &totals.clients {
        for (api_key, api) in &records.apis {
            for stage in Stage::ALL {
                let micros = api.stage_micros[stage as usize];
                if micros > 0 {
                    let labels = [
                        ("client_id", &**client_id),
                        ("api", api_key.name()),
                        ("stage", stage.name()),
                    ];
                    page.sample("ottla_client_stage_seconds_total", &labels, micros as f64 / 1e6);
                }
            }
        }
    }
}

/// A tenant's sums: metric name, help, and how many of the sum's unit make one of the metric's.
const TENANT_METRICS: [(Sum, &str, &str, f64); SUM_COUNT] = [
    (
        Sum::HandlingMicros,
        "handling_seconds",
        "Event loop time spent on the tenant's requests.",
        1e6,
    ),
    (
        Sum::SendingMicros,
        "sending_seconds",
        "Event loop time spent on sending answers to the tenant.",
        1e6,
    ),
    (
        Sum::DiskMicros,
        "disk_seconds",
        "Time of cold-read threads spent on the tenant.",
        1e6,
    ),
    (Sum::Requests, "requests", "Requests of the tenant.", 1.0),
    (
        Sum::Records,
        "records",
        "Records the tenant produced or fetched.",
        1.0,
    ),
    (Sum::BytesIn, "in_bytes", "Bytes of the tenant's requests.", 1.0),
    (
        Sum::BytesOut,
        "out_bytes",
        "Bytes of the answers to the tenant.",
        1.0,
    ),
    (
        Sum::ColdBytes,
        "cold_bytes",
        "Bytes read from the device for the tenant.",
        1.0,
    ),
    (
        Sum::ThrottledMs,
        "throttled_seconds",
        "Time a quota made the tenant wait.",
        1e3,
    ),
    (
        Sum::InflictedMicros,
        "wait_inflicted_seconds",
        "Time other tenants waited while the tenant was served, summed over them.",
        1e6,
    ),
    (
        Sum::SufferedMicros,
        "wait_suffered_seconds",
        "Time the tenant waited while others were served.",
        1e6,
    ),
];

/// The heaviest tenants, and the sum of all others: names come from the network, so their number is
/// bounded.
fn write_tenants(page: &mut Page, reading: &TenantReading, shown_max: usize) {
    page.single(
        "ottla_tenants",
        "gauge",
        "Tenants that are connected or have been served.",
        reading.tenants.len(),
    );
    let (heaviest, other) = reading.heaviest(shown_max);
    for (sum, name, help, unit) in TENANT_METRICS {
        let name = format!("ottla_tenant_{name}_total");
        page.metric(&name, "counter", help);
        for TenantRow {
            name: tenant, total, ..
        } in &heaviest
        {
            let labels = [("kind", tenant.kind.name()), ("tenant", &*tenant.name)];
            page.sample(&name, &labels, total.get(sum) as f64 / unit);
        }
        let labels = [("kind", "rest"), ("tenant", "other")];
        page.sample(&name, &labels, other.get(sum) as f64 / unit);
    }
}

/// Writes telemetry totals only: instance ids come from the network.
fn write_telemetry(page: &mut Page, view: &AdminView) {
    let telemetry = &view.node.telemetry;
    let counted = telemetry.counts.read();
    page.single(
        "ottla_telemetry_instances",
        "gauge",
        "Client instances whose subscription is known.",
        telemetry.instance_count(),
    );
    page.single(
        "ottla_telemetry_queued",
        "gauge",
        "Pushes that wait to be read.",
        telemetry.queued(),
    );
    for (name, help, value) in [
        (
            "subscriptions",
            "Subscriptions given to clients.",
            counted.questions,
        ),
        (
            "subscriptions_throttled",
            "Subscription requests that came too early.",
            counted.questions_throttled,
        ),
        ("pushes", "Pushes of client metrics accepted.", counted.pushes),
        (
            "payload_bytes",
            "Bytes of accepted pushes, as received.",
            counted.payload_bytes,
        ),
        (
            "unfolded_bytes",
            "Bytes of accepted pushes, uncompressed.",
            counted.unfolded_bytes,
        ),
    ] {
        page.single(&format!("ottla_telemetry_{name}_total"), "counter", help, value);
    }
    const REFUSED: &str = "ottla_telemetry_refused_total";
    page.metric(REFUSED, "counter", "Pushes refused, by error.");
    for (error, count) in counted.refused {
        page.sample(REFUSED, &[("error", error)], count);
    }
}

/// Without an authorizer there is nothing to count.
fn write_denials(page: &mut Page, view: &AdminView) {
    const DENIALS: &str = "ottla_authorization_denials_total";
    let Some(denials) = view.node.access.denials() else {
        return;
    };
    page.metric(
        DENIALS,
        "counter",
        "Operations denied by ACLs, by type of resource.",
    );
    for (resource_type, count) in denials {
        page.sample(DENIALS, &[("resource_type", resource_type)], count);
    }
    const BY_PRINCIPAL: &str = "ottla_authorization_denials_by_principal_total";
    page.metric(
        BY_PRINCIPAL,
        "counter",
        "Operations denied by ACLs, by principal and resource; without a name: those beyond the limit.",
    );
    for row in view.node.access.denials_by_principal() {
        let denied = row.denied.as_ref();
        let labels = [
            ("principal", row.principal.as_deref().unwrap_or_default()),
            ("resource_type", denied.map_or("", |denied| denied.resource_type)),
            ("resource", denied.map_or("", |denied| &denied.resource)),
            ("operation", denied.map_or("", |denied| denied.operation)),
        ];
        page.sample(BY_PRINCIPAL, &labels, row.count);
    }
}

fn write_memory(page: &mut Page, view: &AdminView) {
    let memory = &view.memory;
    page.single(
        "ottla_request_memory_bytes",
        "gauge",
        "Memory held for requests not yet received or served, and for answers not yet taken.",
        memory.used_bytes(),
    );
    page.single(
        "ottla_request_memory_limit_bytes",
        "gauge",
        "Limit of that memory (queued.max.request.bytes).",
        memory.limit_bytes(),
    );
    page.single(
        "ottla_request_memory_waiting",
        "gauge",
        "Connections that are not read because they wait for memory.",
        memory.waiting(),
    );
    page.single(
        "ottla_request_memory_waits_total",
        "counter",
        "How often a connection has waited for memory.",
        memory.waits(),
    );
}

fn write_log_memory(page: &mut Page, memory: &LogMemory) {
    let now = memory.now();
    const NAME: &str = "ottla_log_memory_bytes";
    page.metric(
        NAME,
        "gauge",
        "Memory of the logs by use: all that was taken (held), of it not yet written, read for lagging consumers, and free.",
    );
    for (purpose, bytes) in [
        ("held", now.held),
        ("unwritten", now.unwritten),
        ("loaded", now.loaded),
        ("free", now.free),
    ] {
        page.sample(NAME, &[("use", purpose)], bytes);
    }
    page.single(
        "ottla_log_memory_limit_bytes",
        "gauge",
        "Limit of that memory (ottla.log.memory.bytes and ottla.cold.read.cache.bytes).",
        now.limit,
    );
}

fn write_closed(page: &mut Page, totals: &Totals) {
    const NAME: &str = "ottla_connections_closed_total";
    page.metric(
        NAME,
        "counter",
        "Connections that ended, by reason; gone: closed by the client.",
    );
    for (reason, count) in &totals.closed {
        page.sample(NAME, &[("reason", reason)], count);
    }
}

fn write_process(page: &mut Page, view: &AdminView) {
    cluster::write_listeners(page, view);
    page.single(
        "ottla_connections_refused_total",
        "counter",
        "Connections refused by max.connections.per.ip, or for lack of a descriptor.",
        view.connections.refused(),
    );
    write_descriptors(page, view);
    cluster::write_open_files(page);
    cluster::write_disk(page);
    page.single(
        "ottla_cold_reads_queued",
        "gauge",
        "Reads that wait for a cold-read thread.",
        view.queues.cold_reads().queued(),
    );
    page.single(
        "ottla_long_answers_queued",
        "gauge",
        "Large requests and answers that wait for a thread for long answers.",
        view.queues.long_answers().queued(),
    );
    write_memory(page, view);
    if let Some(memory) = view.node.storage.disk.memory() {
        write_log_memory(page, memory);
    }
    if let Some(bytes) = resident_bytes() {
        page.single(
            "process_resident_memory_bytes",
            "gauge",
            "Resident memory.",
            bytes,
        );
    }
    let cpu = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let cpu_seconds = cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9;
    page.single(
        "process_cpu_seconds_total",
        "counter",
        "CPU time of the process.",
        cpu_seconds,
    );
}

fn write_descriptors(page: &mut Page, view: &AdminView) {
    let now = view.connections.descriptors().now();
    const NAME: &str = "ottla_descriptors";
    page.metric(
        NAME,
        "gauge",
        "Descriptors in use by log files and connections, and the limit of the process.",
    );
    for (holder, count) in [
        ("files", now.files),
        ("connections", now.connections),
        ("limit", now.limit),
    ] {
        page.sample(NAME, &[("holder", holder)], count);
    }
    page.single(
        "ottla_files_reopened_total",
        "counter",
        "Log files reopened after their descriptor had been given to another file.",
        now.reopened,
    );
}

fn millis(micros: u64) -> f64 {
    micros as f64 / 1e3
}

/// Second field of statm, in pages.
pub fn resident_bytes() -> Option<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}
