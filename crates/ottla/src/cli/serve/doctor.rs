//! The doctor inside a running broker: collects the metrics that clients push and the broker's own
//! counts per client, and serves the diagnoses on the admin address.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ottla_broker::activity::{ActivityView, QuotaKind};
use ottla_broker::machine_memory::MachineMemory;
use ottla_broker::telemetry::{ClientTelemetryReceiver, Malformed, Pushed};
use ottla_broker::{AddedMetrics, Additions, MetricsPage, Page, PageBody};
use ottla_lab::doctor::history::{Collector, Observed, PushedFrom, instances_within};
use ottla_lab::doctor::observe::windows::Windows;
use ottla_lab::doctor::snapshot::Role;
use ottla_lab::doctor::statements::Statements;

use super::activity;
use crate::cli::doctor::scorekeeper::Scorekeeper;

/// Interval at which the broker's own counts are read: twelve readings are a window.
pub const READ_INTERVAL: Duration = Duration::from_secs(5);

/// A collector that a broker feeds.
pub struct Doctor {
    collector: Arc<Collector>,
    stop: Option<mpsc::Sender<()>>,
    reader: Option<JoinHandle<()>>,
    scorekeeper: Option<Scorekeeper>,
}

impl Doctor {
    /// - `statements`: what owners of clients state of their settings.
    pub fn new(statements: Statements) -> Doctor {
        let instances = instances_within(MachineMemory::look().bytes);
        Doctor {
            collector: Arc::new(Collector::new(instances).stating(statements)),
            stop: None,
            reader: None,
            scorekeeper: None,
        }
    }

    pub fn collector(&self) -> &Collector {
        &self.collector
    }

    pub fn shared_collector(&self) -> Arc<Collector> {
        self.collector.clone()
    }

    /// Returns what a broker must be started with: the telemetry receiver and the doctor's pages.
    pub fn additions(&self) -> Additions {
        Additions {
            telemetry: Some(Arc::new(Receiver(self.collector.clone()))),
            pages: vec![
                page("/doctor", &self.collector, |collector, at_ms| {
                    serde_json::to_string(&collector.examine(at_ms))
                }),
                page("/doctor/snapshots", &self.collector, |collector, at_ms| {
                    serde_json::to_string(&collector.snapshots(at_ms))
                }),
                page("/doctor/promises", &self.collector, |collector, at_ms| {
                    serde_json::to_string(&collector.promises(at_ms))
                }),
            ],
            metrics: vec![metrics(&self.collector)],
            ..Additions::default()
        }
    }

    /// Starts the thread that reads the broker's counts per client: the only source for clients
    /// that push no metrics. A second thread keeps score of the doctor's promises.
    pub fn watch(&mut self, activity: ActivityView, interval: Duration) -> std::io::Result<()> {
        let (stop, stopped) = mpsc::channel();
        let collector = self.collector.clone();
        let read = move || {
            let mut windows = Windows::default();
            loop {
                for mut observed in windows.take(activity::counts(activity.read())) {
                    name_quotas(&activity, &mut observed);
                    collector.observe(observed, now_ms());
                }
                if stopped.recv_timeout(interval) != Err(RecvTimeoutError::Timeout) {
                    return;
                }
            }
        };
        self.reader = Some(
            std::thread::Builder::new()
                .name("ottla-doctor".into())
                .spawn(read)?,
        );
        self.stop = Some(stop);
        self.scorekeeper = Some(Scorekeeper::start(self.collector.clone())?);
        Ok(())
    }
}

/// Fills in the client's quotas, so that the rules can explain a throttle.
fn name_quotas(activity: &ActivityView, observed: &mut Observed) {
    let client = &observed.client;
    let principal = client.principal.as_deref().unwrap_or_default();
    let quota = |kind| activity.quota(principal, &client.client_id, kind);
    let of_bytes = match client.role {
        Role::Producer => QuotaKind::Produce,
        _ => QuotaKind::Fetch,
    };
    observed.broker.quota_bytes_per_second = quota(of_bytes);
    // 100 percent is one event loop.
    observed.broker.quota_request_share = quota(QuotaKind::Request).map(|percent| percent / 100.0);
}

impl Drop for Doctor {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

struct Receiver(Arc<Collector>);

impl ClientTelemetryReceiver for Receiver {
    fn receive(&self, from: &Pushed, payload: &[u8]) -> Result<(), Malformed> {
        let instance_id = from.instance_id.to_string();
        let address = from.address.to_string();
        let pushed = PushedFrom {
            client_id: &from.client_id,
            instance_id: &instance_id,
            principal: Some(&from.principal),
            address: Some(&address),
            software_name: from.software_name.as_deref(),
            software_version: from.software_version.as_deref(),
            node_id: Some(from.node_id),
            push_interval_ms: Some(f64::from(from.push_interval_ms)),
            is_terminating: from.is_terminating,
        };
        self.0
            .push(pushed, payload, from.at.0)
            .map_err(|malformed| Malformed(malformed.to_string()))
    }
}

fn page(
    path: &'static str,
    collector: &Arc<Collector>,
    render: fn(&Collector, i64) -> serde_json::Result<String>,
) -> Page {
    let collector = collector.clone();
    Page {
        path,
        render: Arc::new(move || PageBody {
            content_type: "application/json",
            text: render(&collector, now_ms()).expect("the keys of the doctor's maps are strings"),
        }),
    }
}

/// Writes how many clients have each verdict: names of clients are on the pages only.
fn metrics(collector: &Arc<Collector>) -> AddedMetrics {
    let collector = collector.clone();
    Arc::new(move |page: &mut MetricsPage| {
        const CLIENTS: &str = "ottla_doctor_clients";
        page.metric(
            CLIENTS,
            "gauge",
            "Clients by their role and the doctor's verdict.",
        );
        let mut counts: BTreeMap<(&str, &str), u64> = BTreeMap::new();
        for client in &collector.examine(now_ms()).clients {
            let role = client.role.name();
            *counts.entry((role, client.verdict.name())).or_default() += 1;
        }
        for ((role, verdict), count) in counts {
            page.sample(CLIENTS, &[("role", role), ("verdict", verdict)], count);
        }
    })
}

pub fn now_ms() -> i64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX)
}
