//! Asks the kernel of this machine for what clients of Apache Kafka do not push: round trips, where
//! a broker is here, and the use of the processors, where a client is.

use std::sync::Arc;
use std::time::Duration;

use ottla_lab::doctor::history::Collector;
use ottla_lab::doctor::observe::paths::{Machine, Paths};

use super::super::{Failure, now_ms};

const INTERVAL: Duration = Duration::from_secs(5);

/// Starts the thread that asks until the process ends.
pub fn watch(collector: Arc<Collector>) -> Result<(), Failure> {
    let ask_again_and_again = move || {
        let mut paths = Paths::default();
        loop {
            let clients = collector.speaking(now_ms());
            for observed in paths.take(Machine::read(now_ms()), &clients) {
                collector.observe(observed, now_ms());
            }
            std::thread::sleep(INTERVAL);
        }
    };
    let thread = std::thread::Builder::new().name("doctor-machine".into());
    let started = thread.spawn(ask_again_and_again);
    started
        .map(drop)
        .map_err(|error| Failure::unanswered(format!("cannot start a thread: {error}")))
}
