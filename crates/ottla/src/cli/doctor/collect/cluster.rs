//! Asks a cluster of Apache Kafka for what its clients do not push.

use std::mem::{Discriminant, discriminant};
use std::sync::Arc;
use std::time::Duration;

use ottla_client::admin::Admin;
use ottla_client::config::Config;
use ottla_lab::doctor::history::Collector;
use ottla_lab::doctor::observe::cluster::{ClusterWindows, Shortcoming, ask};

use super::super::{Failure, now_ms};

const INTERVAL: Duration = Duration::from_secs(10);

/// Starts the thread that asks until the process ends. A cluster that does not answer, or not to
/// everything, is reported once, and asked again.
///
/// - `program`: what the reports begin with.
/// - Errors: a wrong setting.
pub fn watch(program: &'static str, config: &Config, collector: Arc<Collector>) -> Result<(), Failure> {
    let admin = Admin::new(config).map_err(Failure::unanswered)?;
    let ask_again_and_again = move || {
        let mut windows = ClusterWindows::default();
        let mut told = Told::default();
        loop {
            let pushing = collector.pushing(now_ms());
            let shortcomings = match ask(&admin, now_ms(), &pushing, &windows) {
                Ok(mut reading) => {
                    let shortcomings = std::mem::take(&mut reading.shortcomings);
                    for observed in windows.take(reading, &pushing) {
                        collector.observe(observed, now_ms());
                    }
                    shortcomings
                }
                Err(error) => vec![Shortcoming::Unanswered(error.to_string())],
            };
            for news in told.news(shortcomings) {
                let clean = crate::cli::doctor::text::clean(&news.to_string());
                eprintln!("{program}: the cluster: {clean}");
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

/// The shortcomings of the last reading by kind: their numbers change from one reading to the next.
#[derive(Debug, Default)]
struct Told(Vec<Discriminant<Shortcoming>>);

impl Told {
    /// Returns those that the last reading did not have.
    fn news(&mut self, now: Vec<Shortcoming>) -> Vec<Shortcoming> {
        let kinds = now.iter().map(discriminant).collect();
        let before = std::mem::replace(&mut self.0, kinds);
        let is_new = |one: &Shortcoming| !before.contains(&discriminant(one));
        now.into_iter().filter(is_new).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shortcoming_is_told_once_until_it_ends() {
        let partitions = |of| Shortcoming::Partitions { followed: 1, of };
        let quotas = Shortcoming::Quotas("refused".into());
        let mut told = Told::default();
        assert_eq!(told.news(vec![partitions(2)]), [partitions(2)]);
        assert_eq!(told.news(vec![partitions(3), quotas.clone()]), [quotas]);
        assert_eq!(told.news(Vec::new()), []);
        assert_eq!(told.news(vec![partitions(3)]), [partitions(3)]);
    }
}
