//! Runs a scenario from its first line to its report: every point on every cluster, in turn, round
//! by round.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use super::answer;
use super::error::BenchError;
use super::measure::{self, Setting};
use super::predict::{self, Earlier, Observed};
use super::prepare;
use super::target::Access;
use crate::load::{Course, Live, calibrate};
use crate::machine;
use crate::report::{
    Calibration, Expectation, Manifest, OnTarget, Point, Report, SCHEMA, ScenarioHead, Target, Verdict,
};
use crate::scenario::expect;
use crate::scenario::model::Scenario;
use crate::scenario::sweep::{self, ConcretePoint};

/// What is run, and where.
pub struct Order<'a> {
    /// After `--scale` and `--set`.
    pub scenario: &'a Scenario,
    /// One cluster, or several to compare, which take turns.
    pub accesses: &'a [Access],
    /// The exact command line.
    pub command: String,
    pub ottla_version: String,
    pub commit: Option<String>,
    /// The data directory of an embedded broker; its disk is probed.
    pub data: &'a Path,
    /// The part of the machine's memory that this process may use.
    pub memory_bytes: u64,
    pub stop: &'a Arc<AtomicBool>,
    /// From a run just before this one; `None` measures the generator's capacity.
    pub calibration: Option<Vec<Calibration>>,
}

/// The progress of a run.
#[derive(Clone, Debug)]
pub enum Progress<'a> {
    Calibrating,
    /// The next measurement begins.
    Begins {
        point: &'a str,
        target: &'a str,
        /// The total number of measurements.
        number: usize,
        of: usize,
    },
    Ticks {
        course: &'a Course,
        live: &'a Live,
    },
    Ended {
        verdict: &'a Verdict,
    },
}

/// Runs the whole scenario. Ctrl-C ends it early and keeps what was measured.
///
/// - Errors: those found before the first record: of the scenario, the brokers, the calibration.
pub fn run(order: &Order<'_>, progress: &(dyn Fn(&Progress<'_>) + Sync)) -> Result<Report, BenchError> {
    let scenario = order.scenario;
    let points = sweep::points(scenario)?;
    let manifest = manifest(order)?;
    progress(&Progress::Calibrating);
    let calibration = match &order.calibration {
        Some(known) => known.clone(),
        None => calibrations()?,
    };
    let mut report = Report {
        schema: SCHEMA.to_owned(),
        answer: None,
        scenario: ScenarioHead {
            name: scenario.name.clone(),
            question: scenario.question.clone(),
            source: scenario.source.clone(),
        },
        verdict: Verdict::default(),
        manifest,
        calibration,
        points: points
            .iter()
            .map(|point| empty(point, order.accesses.len()))
            .collect(),
        was_interrupted: false,
    };
    let network_ms = report.manifest.machine.network_round_trip_micros.p50 / 1_000.0;
    let probes: Vec<Probes> = order
        .accesses
        .iter()
        .map(|access| prepare::probes(access, &points, network_ms, order.stop))
        .collect::<Result<_, _>>()?;
    measure_all(order, &points, &mut report, progress)?;
    conclude(&points, &probes, &mut report);
    report.answer = Some(answer::of(&points, &report));
    Ok(report)
}

fn empty(point: &ConcretePoint, targets: usize) -> Point {
    Point {
        name: point.name.clone(),
        settings: point.settings.clone(),
        source: point.reported.clone(),
        diagnosis: point.diagnosis.clone(),
        on: vec![OnTarget::default(); targets],
    }
}

/// Record sizes at which the generator alone is measured.
const CALIBRATED_BYTES: [u32; 2] = [100, 256];
const CALIBRATED_RATE: f64 = 200_000.0;

fn calibrations() -> Result<Vec<Calibration>, BenchError> {
    CALIBRATED_BYTES
        .iter()
        .map(|&bytes| {
            Ok(calibrate::calibrate(
                bytes,
                &Default::default(),
                Some(CALIBRATED_RATE),
            )?)
        })
        .collect()
}

fn manifest(order: &Order<'_>) -> Result<Manifest, BenchError> {
    let targets: Vec<Target> = order
        .accesses
        .iter()
        .map(super::target::describe)
        .collect::<Result<_, _>>()?;
    let broker = order.accesses.first().and_then(Access::socket_address);
    let started = SystemTime::now().duration_since(UNIX_EPOCH);
    Ok(Manifest {
        command: order.command.clone(),
        started_at: started.map_or(0, |since| since.as_secs()),
        ottla_version: order.ottla_version.clone(),
        commit: order.commit.clone(),
        machine: machine::describe(order.data, broker, order.memory_bytes),
        targets,
        scenario_text: crate::scenario::parse::render(order.scenario),
    })
}

fn measure_all(
    order: &Order<'_>,
    points: &[ConcretePoint],
    report: &mut Report,
    progress: &(dyn Fn(&Progress<'_>) + Sync),
) -> Result<(), BenchError> {
    let rounds = order.scenario.rounds.max(1) as usize;
    let of = rounds * points.len() * order.accesses.len();
    let mut number = 0;
    for round in 0..rounds {
        for (index, point) in points.iter().enumerate() {
            for turn in 0..order.accesses.len() {
                if order.stop.load(Ordering::Relaxed) {
                    report.was_interrupted = true;
                    return Ok(());
                }
                // The order of the clusters alternates from round to round.
                let which = match round % 2 {
                    0 => turn,
                    _ => order.accesses.len() - 1 - turn,
                };
                let access = &order.accesses[which].at(point.scenario.security);
                progress(&Progress::Begins {
                    point: &point.name,
                    target: &report.manifest.targets[which].name,
                    number,
                    of,
                });
                number += 1;
                let setting = Setting {
                    access,
                    label: &format!("{}-{}-{round}-{index}", std::process::id(), order.scenario.name),
                    stop: order.stop,
                    calibration: &report.calibration,
                    brokers: report.manifest.targets[which].brokers,
                    on_tick: &|course, live| progress(&Progress::Ticks { course, live }),
                };
                let measurement = match measure::run(&point.scenario, &setting) {
                    Ok(measurement) => measurement,
                    // What was measured before is kept.
                    Err(error) if number > 1 => {
                        let target = &report.manifest.targets[which].name;
                        let text = format!("{} on {target}: {error}; the run ended here", point.name);
                        report.verdict.reasons.push(text);
                        report.was_interrupted = true;
                        return Ok(());
                    }
                    Err(error) => return Err(error),
                };
                progress(&Progress::Ended {
                    verdict: &measurement.verdict,
                });
                report.points[index].on[which].measurements.push(measurement);
            }
        }
    }
    report.was_interrupted = order.stop.load(Ordering::Relaxed);
    Ok(())
}

/// Adds predictions, expectations and verdicts, once everything is measured.
fn conclude(points: &[ConcretePoint], probes: &[Probes], report: &mut Report) {
    for (which, probes) in probes.iter().enumerate() {
        let measured: BTreeMap<String, BTreeMap<String, f64>> = (report.points.iter())
            .map(|point| (point.name.clone(), point.on[which].figures()))
            .collect();
        for (index, point) in points.iter().enumerate() {
            let probed = probed(probes, point);
            let observed = Observed {
                broker_ms_per_request: probed.broker_ms_per_request,
                broker_ms_per_mb: probed.broker_ms_per_mb,
                ..observed(report, which, points, index)
            };
            let on = &mut report.points[index].on[which];
            on.prediction = predict::predict(point, &observed);
            for measurement in &on.measurements {
                for reason in &measurement.verdict.reasons {
                    add(&mut on.verdict.reasons, reason);
                }
                for caveat in &measurement.verdict.caveats {
                    add(&mut on.verdict.caveats, caveat);
                }
            }
            for sentence in &point.scenario.expect {
                match judge(sentence, on, &measured) {
                    Ok(expectation) => on.expectations.push(expectation),
                    Err(why) => add(&mut on.verdict.caveats, &why),
                }
            }
            for broken in on.expectations.iter().filter(|expectation| !expectation.holds) {
                let text = format!("{} does not hold: {}", broken.text, broken.measured);
                on.verdict.caveats.push(text);
            }
            for reason in &on.verdict.reasons {
                let target = &report.manifest.targets[which].name;
                let text = format!("{} on {target}: {reason}", point.name);
                report.verdict.reasons.push(text);
            }
        }
        let target = &report.manifest.targets[which];
        for caveat in machine::caveats(&report.manifest.machine, target) {
            add(&mut report.verdict.caveats, &caveat);
        }
    }
    if report.was_interrupted {
        report
            .verdict
            .reasons
            .push(String::from("interrupted: not all points were measured"));
    }
}

/// The cost of a request on one cluster, by acks.
type Probes = BTreeMap<String, Observed>;

fn probed(probes: &Probes, point: &ConcretePoint) -> Observed {
    let acks = prepare::acks(&point.scenario);
    acks.and_then(|acks| probes.get(&acks).cloned())
        .unwrap_or_default()
}

/// What a prediction may use: the machine, the cluster and the points before this one, never the
/// point itself.
fn observed(report: &Report, which: usize, points: &[ConcretePoint], index: usize) -> Observed {
    let target = &report.manifest.targets[which];
    let link = points[index].scenario.link.as_ref();
    let network_ms = report.manifest.machine.network_round_trip_micros.p50 / 1_000.0;
    let record_bytes = points[index]
        .scenario
        .producers
        .first()
        .map(|group| group.record_bytes);
    let earlier = points[..index]
        .iter()
        .zip(&report.points)
        .map(|(point, measured)| Earlier {
            scenario: point.scenario.clone(),
            figures: measured.on[which].figures(),
        });
    Observed {
        brokers: target.brokers,
        round_trip_ms: network_ms + link.map_or(0.0, |link| link.round_trip_ms),
        is_connection_serial: !target.name.starts_with("Ottla"),
        calibrated_rate: report
            .calibration
            .iter()
            .filter(|calibration| record_bytes.is_some_and(|bytes| calibration.record_bytes <= bytes))
            .max_by_key(|calibration| calibration.record_bytes)
            .map(|calibration| calibration.records_per_second),
        earlier: earlier.filter(|point| !point.figures.is_empty()).collect(),
        ..Observed::default()
    }
}

/// - Errors: the figure was not measured.
fn judge(
    sentence: &str,
    on: &OnTarget,
    points: &BTreeMap<String, BTreeMap<String, f64>>,
) -> Result<Expectation, String> {
    let sentence = expect::parse(sentence)?;
    let other = sentence.of_point.as_ref().and_then(|name| points.get(name));
    let elsewhere = other.and_then(|figures| figures.get(&sentence.figure).copied());
    let measured = on.figure(&sentence.figure);
    let figures = measured.map(|measured| (sentence.figure.clone(), measured));
    sentence.judge(&figures.into_iter().collect(), elsewhere)
}

fn add(texts: &mut Vec<String>, text: &str) {
    if !texts.iter().any(|known| known == text) {
        texts.push(text.to_owned());
    }
}
