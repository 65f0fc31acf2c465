//! One run of one point on one cluster.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use ottla_client::Error;

use super::broker_log::BrokerLog;
use super::error::BenchError;
use super::figures::{self, InFlight};
use super::groups::{self, Groups};
use super::target::{Access, Topics};
use super::validity::{self, RequestedLoad};
use super::{disk, drift, group_result, integrity, prepare, stages};
use crate::ask::Door;
use crate::link::relay::{self, Relay};
use crate::load::outcome::{ConsumeOutcome, LoadSecond, ProduceOutcome, RequestOutcome};
use crate::load::{Course, Live, consume, lock, priority, produce, requests};
use crate::machine::others::Others;
use crate::numbers::count;
use crate::process::{ProcessSeries, Sampler, Watched};
use crate::report::histogram::Latencies;
use crate::report::{Calibration, Drift, GeneratorCheck, Measurement, ProcessResult, Second, Stages};
use crate::scenario::model::Scenario;

/// What a run needs in addition to the scenario.
pub struct Setting<'a> {
    pub access: &'a Access,
    /// Becomes part of the topics' names.
    pub label: &'a str,
    /// Set by Ctrl-C: what was measured until then is kept.
    pub stop: &'a Arc<AtomicBool>,
    pub calibration: &'a [Calibration],
    /// Brokers that may lead partitions: a producer has a connection to each.
    pub brokers: u32,
    /// Called about ten times per second.
    pub on_tick: &'a (dyn Fn(&Course, &Live) + Sync),
}

/// What the groups did, before evaluation.
struct Gathered {
    producers: Vec<ProduceOutcome>,
    consumers: Vec<ConsumeOutcome>,
    requests: Vec<RequestOutcome>,
    /// Groups that ended with an error.
    failures: Vec<String>,
    processes: Vec<ProcessSeries>,
    /// Ottla's own times; `None` for other brokers, or where they are not available.
    broker_log: Option<BrokerLog>,
    /// Caveats of the link and of the disk.
    caveats: Vec<String>,
    /// Requirements on the disk and on the rest of the machine that were not met.
    outside_reasons: Vec<String>,
}

/// Runs the point. Whatever goes wrong once load has begun ends up in the measurement's verdict.
///
/// - Errors: topics cannot be created, the link cannot be built, the scenario names something that
///   does not exist.
pub fn run(scenario: &Scenario, setting: &Setting<'_>) -> Result<Measurement, BenchError> {
    let topics = Topics::create(setting.access, &scenario.topics, setting.label)?;
    prepare::fill_all(scenario, setting.access, &topics, setting.stop)?;
    let relay = match &scenario.link {
        Some(spec) => {
            Some(
                Relay::start(&setting.access.bootstrap, spec).map_err(|source| BenchError::Io {
                    what: String::from("the link"),
                    source,
                })?,
            )
        }
        None => None,
    };
    let bootstrap = relay
        .as_ref()
        .map_or_else(|| setting.access.bootstrap.clone(), Relay::bootstrap);
    let groups = groups::resolve(scenario, setting.access, &bootstrap, &topics)?;
    let disk = disk::Disk::prepare(scenario, setting.access, &topics);
    let course = Course {
        // Clients connect and fetch metadata before anything is due.
        begin: Instant::now() + Duration::from_millis(300),
        warmup: Duration::from_secs_f64(scenario.warmup_seconds),
        duration: Duration::from_secs_f64(scenario.duration_seconds),
        stop: Arc::clone(setting.stop),
    };
    let log = BrokerTimes::begin(setting.access, &course, !groups.consumers.is_empty());
    let mut gathered = load(&groups, &course, setting, watched(setting.access, relay.as_ref()));
    gathered.broker_log = log.and_then(BrokerTimes::end);
    gathered
        .caveats
        .extend(relay.as_ref().map_or_else(Vec::new, Relay::caveats));
    gathered.caveats.extend_from_slice(disk.caveats());
    gathered.outside_reasons.extend_from_slice(disk.reasons());
    drop(disk);
    Ok(Report {
        scenario,
        groups: &groups,
        course: &course,
        setting,
    }
    .measurement(gathered))
}

fn load(groups: &Groups, course: &Course, setting: &Setting<'_>, watched: Vec<Watched>) -> Gathered {
    let live = Live::default();
    let refusals = Mutex::new(Vec::new());
    let give_way = |name: &str| {
        if let Err(why) = priority::give_way() {
            let refusal = format!("{name}: its threads compete with those that are measured: {why}");
            lock(&refusals).push(refusal);
        }
    };
    thread::scope(|scope| {
        let producers: Vec<_> = groups
            .producers
            .iter()
            .map(|load| scope.spawn(|| produce::run(load, course, &live)))
            .collect();
        let consumers: Vec<_> = groups
            .consumers
            .iter()
            .map(|load| {
                scope.spawn(|| {
                    if load.gives_way {
                        give_way(&load.name);
                    }
                    consume::run(load, course, &live)
                })
            })
            .collect();
        let requests: Vec<_> = groups
            .requests
            .iter()
            .map(|load| {
                scope.spawn(|| {
                    give_way(&load.name);
                    requests::run(load, course)
                })
            })
            .collect();
        let mut failures = Vec::new();
        let measured_from = course.begin + course.warmup;
        tick_until(measured_from, course, &live, setting, || false);
        let sampler = Sampler::start(watched);
        let others = setting
            .access
            .is_seen_whole()
            .then(|| Others::watch(setting.access.process));
        tick_until(measured_from + course.duration, course, &live, setting, || {
            producers.iter().all(ScopedJoinHandle::is_finished)
                && consumers.iter().all(ScopedJoinHandle::is_finished)
                && requests.iter().all(ScopedJoinHandle::is_finished)
        });
        let processes = sampler.stop();
        let foreign = others.and_then(|others| others.foreign());
        let produced = join(
            producers,
            &groups.producers,
            |load| load.name.as_str(),
            &mut failures,
        );
        live.is_produced.store(true, Ordering::Release);
        let consumed = join(
            consumers,
            &groups.consumers,
            |load| load.name.as_str(),
            &mut failures,
        );
        let asked = join(
            requests,
            &groups.requests,
            |load| load.name.as_str(),
            &mut failures,
        );
        Gathered {
            producers: produced,
            consumers: consumed,
            requests: asked,
            failures,
            processes,
            broker_log: None,
            caveats: std::mem::take(&mut lock(&refusals)),
            outside_reasons: foreign.and_then(|foreign| foreign.reason()).into_iter().collect(),
        }
    })
}

/// An Ottla that records the times of batches.
struct BrokerTimes<'a> {
    admin: &'a Door,
    reader: u64,
}

impl<'a> BrokerTimes<'a> {
    /// Returns `None` if there is no broker to ask: stages are then based on what clients know.
    fn begin(access: &'a Access, course: &Course, has_readers: bool) -> Option<BrokerTimes<'a>> {
        let admin = access.admin.as_ref().filter(|_| has_readers)?;
        let whole = course.warmup + course.duration + Duration::from_secs(30);
        let reader = BrokerLog::begin(admin, whole).ok()?;
        Some(BrokerTimes { admin, reader })
    }

    fn end(self) -> Option<BrokerLog> {
        let log = BrokerLog::read(self.admin, self.reader).ok();
        // It also ends by itself, at the time that `begin` gave.
        let _ = BrokerLog::end(self.admin, self.reader);
        log
    }
}

/// Computes stages of records that both ends sampled; `None` without readers, or without a
/// schedule, where the first stage would be a queue.
fn stages(
    producers: &[ProduceOutcome],
    consumers: &[ConsumeOutcome],
    log: Option<&BrokerLog>,
) -> Option<Stages> {
    let sent: Vec<_> = producers
        .iter()
        .flat_map(|group| group.samples.iter().cloned())
        .collect();
    let received: Vec<_> = consumers
        .iter()
        .flat_map(|group| group.samples.iter().cloned())
        .collect();
    let has_schedule = producers.iter().any(|group| group.latency.count() > 0);
    if sent.is_empty() || received.is_empty() || !has_schedule {
        return None;
    }
    Some(match log {
        Some(log) => stages::of_ottla(&sent, &received, log),
        None => stages::of_clients(&sent, &received),
    })
}

fn tick_until(
    until: Instant,
    course: &Course,
    live: &Live,
    setting: &Setting<'_>,
    is_over: impl Fn() -> bool,
) {
    while Instant::now() < until && !setting.stop.load(Ordering::Relaxed) && !is_over() {
        (setting.on_tick)(course, live);
        thread::sleep(Duration::from_millis(100).min(until.saturating_duration_since(Instant::now())));
    }
}

fn join<T, L>(
    handles: Vec<ScopedJoinHandle<'_, Result<T, Error>>>,
    loads: &[L],
    name: impl Fn(&L) -> &str,
    failures: &mut Vec<String>,
) -> Vec<T> {
    let mut outcomes = Vec::new();
    for (handle, load) in handles.into_iter().zip(loads) {
        match handle.join() {
            Ok(Ok(outcome)) => outcomes.push(outcome),
            Ok(Err(error)) => failures.push(format!("{}: {error}", name(load))),
            Err(_) => failures.push(format!("{}: the generator panicked", name(load))),
        }
    }
    outcomes
}

fn watched(access: &Access, relay: Option<&Relay>) -> Vec<Watched> {
    let mut watched = Vec::new();
    if access.is_embedded {
        watched.extend(Watched::broker_and_generator());
    } else {
        watched.push(Watched::own("generator"));
        if let Some(process) = access.process {
            watched.push(Watched::process("broker", process));
        }
    }
    if relay.is_some() {
        // Its processor time belongs neither to the generator nor to the broker.
        watched.push(Watched::ThreadsOf {
            name: String::from("link"),
            prefixes: vec![relay::THREAD_NAME.to_owned()],
        });
    }
    watched
}

/// Builds the measurement from what was gathered.
struct Report<'a> {
    scenario: &'a Scenario,
    groups: &'a Groups,
    course: &'a Course,
    setting: &'a Setting<'a>,
}

impl Report<'_> {
    fn measurement(&self, gathered: Gathered) -> Measurement {
        let Gathered {
            producers,
            consumers,
            requests,
            failures,
            processes,
            broker_log,
            caveats,
            outside_reasons,
        } = gathered;
        let was_stopped = self.setting.stop.load(Ordering::Relaxed);
        let mut measurement = Measurement {
            seconds: producers
                .iter()
                .map(|group| group.seconds)
                .chain(consumers.iter().map(|group| group.seconds))
                .chain(requests.iter().map(|group| group.seconds))
                .fold(0.0, f64::max),
            warmup_seconds: self.course.warmup.as_secs_f64(),
            figures: figures::of(&producers, &consumers, &requests, self.in_flight()),
            integrity: integrity::check(&producers, &consumers, !was_stopped && failures.is_empty()),
            ..Measurement::default()
        };
        measurement.end_to_end = {
            let mut all = Latencies::default();
            consumers.iter().for_each(|group| all.add(&group.end_to_end));
            all.result()
        };
        measurement.stages = stages(&producers, &consumers, broker_log.as_ref());
        measurement.producers = (producers.iter().zip(&self.groups.producers))
            .map(|(outcome, load)| {
                group_result::of_producers(outcome, load.clients, load.threads, load.rate.is_none())
            })
            .collect();
        measurement.consumers = (consumers.iter().zip(&self.groups.consumers))
            .map(|(outcome, load)| group_result::of_consumers(outcome, load.clients))
            .collect();
        measurement.requests = (requests.iter().zip(&self.groups.requests))
            .map(|(outcome, load)| group_result::of_requests(outcome, load.connections, load.rate.is_none()))
            .collect();
        measurement.timeline = timeline(&producers, &consumers);
        measurement.drift = self.drift(&measurement.timeline);
        measurement.generator = self.generator(&producers, &measurement);
        self.add_processes(&mut measurement, &processes);
        self.add_counts(&mut measurement);
        measurement.verdict = validity::judge(&measurement, &self.asked());
        measurement.verdict.reasons.extend(failures);
        measurement.verdict.reasons.extend(outside_reasons);
        measurement.verdict.caveats.extend(caveats);
        measurement.verdict.caveats.extend(self.ends_reached(&consumers));
        if was_stopped {
            measurement
                .verdict
                .reasons
                .push(String::from("stopped before the end"));
        }
        measurement
    }

    /// Names groups that have read everything that was there before; from then on they wait and
    /// cause no load.
    fn ends_reached(&self, consumers: &[ConsumeOutcome]) -> Vec<String> {
        let ended = self
            .scenario
            .consumers
            .iter()
            .zip(consumers)
            .filter(|(spec, outcome)| {
                let is_read = |name: &String| spec.topics.is_empty() || spec.topics.contains(name);
                let read = self.scenario.topics.iter().filter(|topic| is_read(&topic.name));
                let filled: u64 = read.map(|topic| topic.prefilled_records).sum();
                outcome.acknowledged_in_its_topics == 0 && filled > 0 && outcome.records_in_all >= filled
            });
        let told = ended.map(|(spec, outcome)| {
            format!(
                "{}: had read all {} records before the end and waited from then on",
                spec.name,
                count(outcome.records_in_all)
            )
        });
        told.collect()
    }

    fn asked(&self) -> Vec<RequestedLoad> {
        (self.groups.producers.iter().zip(&self.scenario.producers))
            .map(|(load, spec)| RequestedLoad {
                rate: load.rate,
                may_fall_behind: spec.may_fall_behind,
            })
            .collect()
    }

    fn in_flight(&self) -> InFlight {
        let settings = self.groups.producers.first().map(|load| &load.settings);
        let per_connection = settings
            .and_then(|settings| {
                settings
                    .get("max.in.flight.requests.per.connection")?
                    .parse()
                    .ok()
            })
            .unwrap_or(5.0);
        let clients: u32 = self.groups.producers.iter().map(|load| load.clients).sum();
        InFlight {
            per_connection,
            connections: f64::from(clients * self.setting.brokers),
        }
    }

    fn drift(&self, timeline: &[Second]) -> Drift {
        // The last second is rarely complete.
        let whole = timeline.len().saturating_sub(1);
        let rates: Vec<f64> = timeline[..whole]
            .iter()
            .map(|second| match self.groups.producers.is_empty() {
                true => second.received as f64,
                false => second.acknowledged as f64,
            })
            .collect();
        drift::of_rates(&rates)
    }

    fn generator(&self, producers: &[ProduceOutcome], measurement: &Measurement) -> GeneratorCheck {
        let mut late = Latencies::default();
        producers.iter().for_each(|group| late.add(&group.schedule_error));
        let record_bytes = self.groups.producers.iter().map(|load| load.record_bytes).max();
        // The calibration whose record size is nearest from below: smaller records are the harder
        // test.
        let calibrated = self
            .setting
            .calibration
            .iter()
            .filter(|calibration| {
                record_bytes.is_some_and(|bytes| calibration.record_bytes <= bytes.max(100))
            })
            .max_by_key(|calibration| calibration.record_bytes);
        let rate = measurement
            .figures
            .get("records_per_second")
            .copied()
            .unwrap_or(0.0);
        GeneratorCheck {
            schedule_error: late.result(),
            busiest_thread: producers
                .iter()
                .map(|group| group.busiest_thread)
                .fold(0.0, f64::max),
            buffer_wait_seconds: producers
                .iter()
                .filter_map(|group| group.metrics.get("bufferpool-wait-time-ns-total"))
                .sum::<f64>()
                / 1e9,
            share_of_calibration: calibrated.map_or(0.0, |calibration| match record_bytes {
                Some(_) => rate / calibration.records_per_second,
                None => 0.0,
            }),
        }
    }

    fn add_processes(&self, measurement: &mut Measurement, processes: &[ProcessSeries]) {
        let done = match self.groups.producers.is_empty() {
            true => measurement.integrity.received.unwrap_or(0),
            false => measurement.integrity.acknowledged,
        };
        for series in processes {
            let result = series.result(done);
            let figure = match result.name.as_str() {
                "broker" => Some("broker_cpu_seconds_per_million"),
                "generator" => Some("cpu_seconds_per_million"),
                // The relay's, or time that cannot be attributed.
                _ => None,
            };
            if let Some(figure) = figure {
                let seconds = result.cpu_seconds_per_million;
                measurement.figures.insert(figure.to_owned(), seconds);
            }
            add_reads(&result, measurement.seconds, &mut measurement.figures);
            measurement.processes.push(result);
            series.fill(&mut measurement.timeline);
        }
    }

    fn add_counts(&self, measurement: &mut Measurement) {
        let integrity = &measurement.integrity;
        for (name, count) in [
            ("lost", integrity.lost),
            ("duplicated", integrity.duplicated),
            ("disordered", integrity.disordered),
            ("failed", integrity.failed),
        ] {
            measurement.figures.insert(name.to_owned(), count as f64);
        }
    }
}

/// Adds the reads of a broker whose process is known, below the page cache.
fn add_reads(process: &ProcessResult, seconds: f64, figures: &mut BTreeMap<String, f64>) {
    const MIB: f64 = 1_048_576.0;
    if let Some(bytes) = process
        .read_bytes
        .filter(|_| process.name == "broker" && seconds > 0.0)
    {
        let rate = bytes as f64 / MIB / seconds;
        figures.insert(String::from("broker_read_mib_per_second"), rate);
    }
}

/// Adds up the seconds of all groups.
fn timeline(producers: &[ProduceOutcome], consumers: &[ConsumeOutcome]) -> Vec<Second> {
    let longest = |lines: &mut dyn Iterator<Item = usize>| lines.max().unwrap_or(0);
    let count = longest(
        &mut producers
            .iter()
            .map(|group| group.timeline.len())
            .chain(consumers.iter().map(|group| group.timeline.len())),
    );
    (0..count)
        .map(|index| {
            let produced: Vec<&LoadSecond> = producers
                .iter()
                .filter_map(|group| group.timeline.get(index))
                .collect();
            let received = consumers.iter().filter_map(|group| group.timeline.get(index));
            let mut latency = Latencies::default();
            produced.iter().for_each(|second| latency.add(&second.latency));
            let percentiles = latency.percentiles(1_000.0);
            Second {
                at: index as f64,
                sent: produced.iter().map(|second| second.sent).sum(),
                acknowledged: produced.iter().map(|second| second.done).sum(),
                received: received.map(|second| second.done).sum(),
                latency_p50_ms: percentiles.p50,
                latency_p99_ms: percentiles.p99,
                latency_max_ms: percentiles.max,
                ..Second::default()
            }
        })
        .collect()
}
