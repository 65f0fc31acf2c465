//! The set-up of every act: a broker with its doctor, and a way to run producers against it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ottla_broker::{Additions, Broker};
use ottla_client::admin::{Admin, NewTopic};
use ottla_client::config::Config;
use ottla_lab::doctor::snapshot::{Application, Network};
use ottla_lab::doctor::statements::Statements;
use ottla_lab::doctor::{Diagnosis, Snapshot, rules};
use ottla_lab::link::relay::Relay;
use ottla_lab::load::outcome::ProduceOutcome;
use ottla_lab::load::{Course, Live, ProduceLoad, TopicLoad, produce};
use ottla_lab::scenario::model::LinkSpec;

use crate::cli::serve::console::console;
use crate::cli::serve::doctor::Doctor;

/// Interval of the clients' telemetry pushes: an act is short, and a verdict needs two pushes.
const PUSH_INTERVAL_MS: u32 = 1_000;
const WARMUP: Duration = Duration::from_secs(2);

pub struct Stage {
    // Fields are dropped in this order: the broker stops before the doctor that watches it.
    broker: Broker,
    doctor: Doctor,
    admin: Admin,
    duration: Duration,
}

/// Facts given to the doctor by the owner of a producer, since no client sends them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Told {
    pub application: Application,
    pub network: Network,
}

/// One producer of a measurement: its load, its link and its owner's facts.
pub struct Role {
    pub load: ProduceLoad,
    pub link: Option<LinkSpec>,
    pub told: Told,
}

/// A producer's measured outcome, and the doctor's diagnosis while it ran.
pub struct Performance {
    pub outcome: ProduceOutcome,
    pub diagnosis: Diagnosis,
    /// Mean time from `send` to the answer.
    pub answered_ms: f64,
    /// Counted from when a record was due.
    pub latency_p99_ms: f64,
}

impl Performance {
    pub fn records_per_second(&self) -> f64 {
        self.outcome.acknowledged as f64 / self.outcome.seconds.max(f64::MIN_POSITIVE)
    }
}

impl Stage {
    pub fn open(duration: Duration) -> Result<Stage, String> {
        let mut doctor = Doctor::new(Statements::default());
        let interval = PUSH_INTERVAL_MS.to_string();
        let properties = [
            ("ottla.telemetry.default.interval.ms", interval.as_str()),
            // Sync times would only add the disk's noise to measurements of a few seconds.
            ("ottla.durability", "page-cache"),
            ("ottla.admin.listener", "127.0.0.1:0"),
        ];
        let additions = Additions {
            console: Some(console(doctor.shared_collector())),
            ..doctor.additions()
        };
        let broker =
            Broker::start_temporary_with(&properties, additions).map_err(|error| error.to_string())?;
        doctor
            .watch(
                broker.activity(),
                Duration::from_millis(u64::from(PUSH_INTERVAL_MS)),
            )
            .map_err(|error| format!("the doctor cannot watch: {error}"))?;
        let config = Config::new().set("bootstrap.servers", broker.address().to_string());
        let admin = Admin::new(&config).map_err(|error| error.to_string())?;
        Ok(Stage {
            broker,
            doctor,
            admin,
            duration,
        })
    }

    /// The address of the console.
    pub fn console(&self) -> SocketAddr {
        self.broker
            .admin_address()
            .expect("the admin listener is one of the stage's properties")
    }

    /// Creates a topic for one act.
    pub fn topic(&self, name: &str, partitions: u32) -> Result<TopicLoad, String> {
        let mut topic = NewTopic::new(name);
        topic.partitions = i32::try_from(partitions).ok();
        let created = self.admin.create_topics(vec![topic]).wait();
        let refused = |error: &dyn std::fmt::Display| format!("creating topic {name}: {error}");
        for (_, result) in created.map_err(|error| refused(&error))? {
            result.map_err(|error| refused(&error))?;
        }
        Ok(TopicLoad {
            name: name.to_owned(),
            partitions,
        })
    }

    /// Runs all roles concurrently and returns their performances in the same order.
    pub fn perform(&self, roles: Vec<Role>) -> Result<Vec<Performance>, String> {
        let course = Course {
            begin: Instant::now() + Duration::from_millis(200),
            warmup: WARMUP,
            duration: self.duration,
            stop: Arc::new(AtomicBool::new(false)),
        };
        thread::scope(|scope| {
            let running: Vec<_> = (roles.iter())
                .map(|role| scope.spawn(|| self.produce(role, &course)))
                .collect();
            // Diagnosed while the producers still run, as an operator would see it.
            let end = course.begin + course.warmup + course.duration;
            thread::sleep(
                end.saturating_duration_since(Instant::now())
                    .saturating_sub(Duration::from_millis(100)),
            );
            let snapshots = self
                .doctor
                .collector()
                .snapshots(crate::cli::serve::doctor::now_ms());
            thread::sleep(end.saturating_duration_since(Instant::now()));
            // Draining the backlog could take half a minute and would add no information.
            course.stop.store(true, Ordering::Relaxed);
            let mut performances = Vec::new();
            for (role, handle) in roles.iter().zip(running) {
                let outcome = handle
                    .join()
                    .map_err(|_| format!("producer {} panicked", role.load.name))??;
                performances.push(performance(outcome, examine(role, &snapshots)?));
            }
            Ok(performances)
        })
    }

    fn produce(&self, role: &Role, course: &Course) -> Result<ProduceOutcome, String> {
        let address = self.broker.address().to_string();
        let relay = match &role.link {
            Some(spec) => Some(Relay::start(&address, spec).map_err(|error| format!("the link: {error}"))?),
            None => None,
        };
        let mut load = role.load.clone();
        let bootstrap = relay.as_ref().map_or(address, Relay::bootstrap);
        load.settings.insert(String::from("bootstrap.servers"), bootstrap);
        produce::run(&load, course, &Live::default()).map_err(|error| format!("{}: {error}", load.name))
    }
}

fn performance(outcome: ProduceOutcome, diagnosis: Diagnosis) -> Performance {
    Performance {
        answered_ms: outcome.service.mean() / 1_000.0,
        latency_p99_ms: outcome.latency.at(99.0) as f64 / 1_000.0,
        outcome,
        diagnosis,
    }
}

fn examine(role: &Role, snapshots: &[Snapshot]) -> Result<Diagnosis, String> {
    let name = format!("{}-0", role.load.name);
    let mut snapshot = snapshots
        .iter()
        .filter(|snapshot| snapshot.client.client_id == name)
        .max_by_key(|snapshot| snapshot.telemetry.pushes)
        .cloned()
        .ok_or_else(|| {
            format!("no readings of producer {name}: it pushed no metrics and its broker saw no requests")
        })?;
    snapshot.application = told(snapshot.application, role.told.application);
    snapshot.network = role.told.network;
    Ok(rules::examine(&snapshot))
}

/// Fills in the owner's facts where the client reports none.
fn told(own: Application, told: Application) -> Application {
    Application {
        threads: own.threads.or(told.threads),
        send_micros: own.send_micros.or(told.send_micros),
        callback_micros: own.callback_micros.or(told.callback_micros),
        offered_records_per_second: own.offered_records_per_second.or(told.offered_records_per_second),
        ..own
    }
}

/// Makes a map of Kafka settings from pairs.
pub fn settings(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    (pairs.iter())
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use ottla_lab::ask::Door;

    use super::*;

    #[test]
    fn the_stage_has_a_console_that_answers() {
        let stage = Stage::open(Duration::from_secs(5)).unwrap();
        let door = Door::new(stage.console().to_string());
        let page = door.ask("GET", "/index.json", 1 << 20).unwrap();
        assert!(page.contains("summary"), "{page}");
    }
}
