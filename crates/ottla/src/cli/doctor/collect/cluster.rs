//! Asks a cluster of Apache Kafka for what its clients do not push.

use std::sync::Arc;
use std::time::Duration;

use ottla_client::admin::Admin;
use ottla_client::config::Config;
use ottla_lab::doctor::history::Collector;
use ottla_lab::doctor::observe::cluster::{ClusterWindows, ask};

use super::super::{Failure, now_ms};

const INTERVAL: Duration = Duration::from_secs(10);

/// Starts the thread that asks until the process ends. A cluster that does not answer is reported
/// once, and asked again.
///
/// - Errors: a wrong setting.
pub fn watch(config: &Config, collector: Arc<Collector>) -> Result<(), Failure> {
    let admin = Admin::new(config).map_err(Failure::unanswered)?;
    let ask_again_and_again = move || {
        let mut windows = ClusterWindows::default();
        let mut told = String::new();
        loop {
            let problem = match ask(&admin, now_ms()) {
                Ok(reading) => {
                    let left_out = reading.groups_left_out;
                    for observed in windows.take(reading) {
                        collector.observe(observed, now_ms());
                    }
                    match left_out {
                        0 => String::new(),
                        count => format!("{count} groups are not looked at: there are too many"),
                    }
                }
                Err(error) => error.to_string(),
            };
            if problem != told {
                if !problem.is_empty() {
                    let clean = crate::cli::doctor::text::clean(&problem);
                    eprintln!("ottla doctor collect: the cluster: {clean}");
                }
                told = problem;
            }
            std::thread::sleep(INTERVAL);
        }
    };
    let thread = std::thread::Builder::new().name("doctor-cluster".into());
    let started = thread.spawn(ask_again_and_again);
    started
        .map(drop)
        .map_err(|error| Failure::unanswered(format!("cannot start a thread: {error}")))
}
