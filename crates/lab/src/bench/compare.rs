//! Compares two reports: ratios with their spread, and a winner only where one can be named.

use std::collections::BTreeSet;
use std::fmt;

use serde::Serialize;

use crate::numbers;
use crate::report::label::{self, Better};
use crate::report::{Manifest, OnTarget, Point, Report};

/// Changes when a reader of the JSON would have to change.
pub const SCHEMA: &str = "ottla.bench.comparison/1";
/// Fewer rounds may all be on one side by chance: with five of each, the odds are one in 126.
const ROUNDS_MIN: usize = 5;
/// At most this many differing lines of each scenario are shown.
const LINES_SHOWN: usize = 4;

#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    pub schema: &'static str,
    pub a: Side,
    pub b: Side,
    /// What makes the two incomparable as a whole; then no row has a winner.
    pub differences: Vec<String>,
    /// Points that only one of them has.
    pub unmatched: Vec<String>,
    pub rows: Vec<Row>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Side {
    pub scenario: String,
    pub command: String,
    pub started_at: u64,
    pub verdict: &'static str,
}

#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub point: String,
    pub target: String,
    pub figure: String,
    /// Medians over the rounds.
    pub a: f64,
    pub b: f64,
    /// Ratio of the medians, b over a; `None` where a is 0.
    pub ratio: Option<f64>,
    /// Lowest of b over highest of a, and highest of b over lowest of a.
    pub ratio_low: Option<f64>,
    pub ratio_high: Option<f64>,
    /// The number of rounds of a and of b.
    pub rounds: [usize; 2],
    pub winner: Option<Winner>,
    /// Why there is no winner, although one side may look better.
    pub no_winner: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Winner {
    A,
    B,
}

/// Compares two reports. Points are matched by name; their targets by name, or by position where no
/// name matches.
pub fn compare(a: &Report, b: &Report) -> Comparison {
    let differences = differences(a, b);
    let mut comparison = Comparison {
        schema: SCHEMA,
        a: side(a),
        b: side(b),
        differences,
        unmatched: Vec::new(),
        rows: Vec::new(),
    };
    for point in &a.points {
        match b.points.iter().find(|other| other.name == point.name) {
            Some(other) => add_point(&mut comparison, (a, point), (b, other)),
            None => comparison
                .unmatched
                .push(format!("only a has the point {}", point.name)),
        }
    }
    for point in &b.points {
        if !a.points.iter().any(|other| other.name == point.name) {
            comparison
                .unmatched
                .push(format!("only b has the point {}", point.name));
        }
    }
    comparison
}

fn side(report: &Report) -> Side {
    Side {
        scenario: report.scenario.name.clone(),
        command: report.manifest.command.clone(),
        started_at: report.manifest.started_at,
        verdict: report.verdict.word(),
    }
}

fn differences(a: &Report, b: &Report) -> Vec<String> {
    let mut all = Vec::new();
    let (left, right) = (&a.manifest.machine, &b.manifest.machine);
    let text = |value: &dyn fmt::Display| value.to_string();
    let governor = |governor: &Option<String>| governor.clone().unwrap_or_else(|| String::from("not told"));
    for (what, left, right) in [
        ("kernel", text(&left.kernel), text(&right.kernel)),
        ("processor", text(&left.processor), text(&right.processor)),
        ("processors", text(&left.processors), text(&right.processors)),
        ("memory", text(&left.memory_bytes), text(&right.memory_bytes)),
        ("governor", governor(&left.governor), governor(&right.governor)),
        ("file system", text(&left.filesystem), text(&right.filesystem)),
    ] {
        if left != right {
            all.push(format!("the machines differ: {what}: {left} and {right}"));
        }
    }
    all.extend(scenario_difference(&a.manifest, &b.manifest));
    all
}

fn scenario_difference(a: &Manifest, b: &Manifest) -> Option<String> {
    if a.scenario_text == b.scenario_text {
        return None;
    }
    let lines = |manifest: &Manifest| -> BTreeSet<String> {
        manifest
            .scenario_text
            .lines()
            .map(|line| line.trim().to_owned())
            .collect()
    };
    let (left, right) = (lines(a), lines(b));
    let only = |these: &BTreeSet<String>, those: &BTreeSet<String>| -> String {
        let lines: Vec<&str> = these.difference(those).map(String::as_str).collect();
        let more = if lines.len() > LINES_SHOWN { ", ..." } else { "" };
        let shown = &lines[..lines.len().min(LINES_SHOWN)];
        if shown.is_empty() {
            return String::from("nothing");
        }
        format!("{}{more}", shown.join(", "))
    };
    Some(format!(
        "the scenarios differ: only a: {}; only b: {}",
        only(&left, &right),
        only(&right, &left)
    ))
}

fn add_point(comparison: &mut Comparison, a: (&Report, &Point), b: (&Report, &Point)) {
    let (report_a, point_a) = a;
    let (report_b, point_b) = b;
    for (index, on_a) in point_a.on.iter().enumerate() {
        let Some(target_a) = report_a.manifest.targets.get(index) else {
            continue;
        };
        let targets_b = &report_b.manifest.targets;
        let place = targets_b
            .iter()
            .position(|target| target.name == target_a.name)
            .or_else(|| {
                // Another version has another name; a target that matches another one is not used
                // for it.
                let candidate = targets_b.get(index)?;
                let is_taken = report_a
                    .manifest
                    .targets
                    .iter()
                    .any(|target| target.name == candidate.name);
                (!is_taken).then_some(index)
            });
        let found = place.and_then(|place| Some((point_b.on.get(place)?, targets_b.get(place)?)));
        let Some((on_b, target_b)) = found else {
            comparison.unmatched.push(format!(
                "{}: only a has the target {}",
                point_a.name, target_a.name
            ));
            continue;
        };
        let target = if target_a.name == target_b.name {
            target_a.name.clone()
        } else {
            format!("{} and {}", target_a.name, target_b.name)
        };
        let mut refusal = comparison.differences.first().cloned();
        if target_a.durability != target_b.durability {
            let (a, b) = (&target_a.durability, &target_b.durability);
            refusal.get_or_insert(format!("the durability differs: {a} and {b}"));
        }
        if point_a.settings != point_b.settings {
            refusal.get_or_insert(String::from("the point's settings differ"));
        }
        let refusal = refusal
            .or_else(|| spoilt(report_a, on_a, "a"))
            .or_else(|| spoilt(report_b, on_b, "b"));
        for figure in figures(on_a, on_b) {
            if let Some(row) = row(&figure, on_a, on_b, refusal.clone()) {
                comparison.rows.push(Row {
                    point: point_a.name.clone(),
                    target: target.clone(),
                    ..row
                });
            }
        }
    }
}

/// Why this side can neither win nor lose.
fn spoilt(report: &Report, on: &OnTarget, side: &str) -> Option<String> {
    if !on.verdict.is_valid()
        || on
            .measurements
            .iter()
            .any(|measurement| !measurement.verdict.is_valid())
    {
        let measured = on
            .measurements
            .iter()
            .flat_map(|measurement| &measurement.verdict.reasons);
        let reason = on.verdict.reasons.iter().chain(measured).next();
        return Some(format!(
            "{side} is INVALID: {}",
            reason.map_or("no reason given", String::as_str)
        ));
    }
    if report.was_interrupted {
        return Some(format!("{side} was interrupted"));
    }
    let errors: u64 = on
        .measurements
        .iter()
        .map(|measurement| {
            let groups = measurement.producers.iter().chain(&measurement.consumers);
            groups.map(|group| group.errors).sum::<u64>()
                + measurement.integrity.failed
                + measurement.integrity.lost
        })
        .sum();
    (errors > 0).then(|| format!("{side} had {errors} errors or losses"))
}

fn figures(a: &OnTarget, b: &OnTarget) -> Vec<String> {
    let names = |on: &OnTarget| -> BTreeSet<String> {
        on.measurements
            .iter()
            .flat_map(|measurement| measurement.figures.keys().cloned())
            .collect()
    };
    let mut names: Vec<String> = names(a).intersection(&names(b)).cloned().collect();
    names.sort_by_key(|name| label::order(name));
    names
}

fn row(figure: &str, on_a: &OnTarget, on_b: &OnTarget, refusal: Option<String>) -> Option<Row> {
    let (a, b) = (on_a.figure(figure)?, on_b.figure(figure)?);
    let (values_a, values_b) = (values(on_a, figure), values(on_b, figure));
    let ratio = |above: f64, below: f64| {
        (below > 0.0)
            .then(|| above / below)
            .filter(|ratio| ratio.is_finite())
    };
    let low = |values: &[f64]| values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = |values: &[f64]| values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let ratio_low = ratio(low(&values_b), high(&values_a));
    let ratio_high = ratio(high(&values_b), low(&values_a));
    let rounds = [values_a.len(), values_b.len()];
    let mut row = Row {
        point: String::new(),
        target: String::new(),
        figure: figure.to_owned(),
        a,
        b,
        ratio: ratio(b, a),
        ratio_low,
        ratio_high,
        rounds,
        winner: None,
        no_winner: refusal,
    };
    judge(&mut row, [on_a, on_b]);
    Some(row)
}

fn judge(row: &mut Row, on: [&OnTarget; 2]) {
    let better = label::of(&row.figure).map_or(Better::Neither, |label| label.better);
    if row.no_winner.is_some() || better == Better::Neither {
        return;
    }
    let is_latency = row.figure.ends_with("_ms") || row.figure.ends_with("_micros");
    if is_latency && on.iter().any(|on| on.is_saturated()) {
        row.no_winner = Some(String::from("saturated: latencies are those of a full queue"));
        return;
    }
    if row.rounds.iter().any(|count| *count < ROUNDS_MIN) {
        let [a, b] = row.rounds;
        row.no_winner = Some(format!("{a} and {b} rounds; {ROUNDS_MIN} of each are wanted"));
        return;
    }
    let Some((low, high)) = row.ratio_low.zip(row.ratio_high) else {
        return;
    };
    row.winner = match better {
        Better::Higher if low > 1.0 => Some(Winner::B),
        Better::Higher if high < 1.0 => Some(Winner::A),
        Better::Lower if low > 1.0 => Some(Winner::A),
        Better::Lower if high < 1.0 => Some(Winner::B),
        _ => None,
    };
    if row.winner.is_none() {
        row.no_winner = Some(String::from("the rounds overlap"));
    }
}

fn values(on: &OnTarget, figure: &str) -> Vec<f64> {
    let values = on
        .measurements
        .iter()
        .filter_map(|measurement| measurement.figures.get(figure).copied());
    values.collect()
}

/// Not interleaved, so slow drift of the machine affects the ratio.
pub const TWO_RUNS: &str = "The two were measured one after the other: what the machine did meanwhile is in the ratios. \
                        For a comparison in turn name both clusters in one run.";

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, side) in [("a", &self.a), ("b", &self.b)] {
            writeln!(f, "{name}  {}  {}  {}", side.verdict, side.scenario, side.command)?;
        }
        for difference in self.differences.iter().chain(&self.unmatched) {
            writeln!(f, "{difference}")?;
        }
        let mut before = (String::new(), String::new());
        for row in &self.rows {
            let here = (row.point.clone(), row.target.clone());
            if here != before {
                writeln!(f, "\n{}, on {}", row.point, row.target)?;
                writeln!(
                    f,
                    "  {:34} {:>12} {:>12} {:>7}  {:15}",
                    "", "a", "b", "b/a", "spread"
                )?;
                before = here;
            }
            let spread = match row.ratio_low.zip(row.ratio_high) {
                Some((low, high)) => format!("{} to {}", numbers::number(low), numbers::number(high)),
                None => String::new(),
            };
            let ratio = row.ratio.map_or_else(|| String::from("–"), numbers::number);
            let outcome = match (row.winner, &row.no_winner) {
                (Some(Winner::A), _) => "a is better",
                (Some(Winner::B), _) => "b is better",
                (None, Some(reason)) => reason,
                (None, None) => "",
            };
            let title = label::title(&row.figure);
            let (a, b) = (numbers::number(row.a), numbers::number(row.b));
            let line = format!("  {title:34} {a:>12} {b:>12} {ratio:>7}  {spread:15}  {outcome}");
            writeln!(f, "{}", line.trim_end())?;
        }
        writeln!(f, "\n{TWO_RUNS}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::sample;

    /// A valid report with five rounds that differ by one percent; `faster` multiplies the rates.
    fn report(faster: f64) -> Report {
        let mut report = sample::report();
        report.was_interrupted = false;
        report.points.truncate(1);
        for on in &mut report.points[0].on {
            let first = on.measurements[0].clone();
            on.measurements = (0..5)
                .map(|round| {
                    let mut measurement = first.clone();
                    let rate = measurement.figures.get_mut("records_per_second").unwrap();
                    *rate *= faster * (1.0 + 0.01 * f64::from(round));
                    measurement
                })
                .collect();
        }
        report
    }

    fn throughput(comparison: &Comparison) -> &Row {
        comparison
            .rows
            .iter()
            .find(|row| row.figure == "records_per_second")
            .unwrap()
    }

    fn refused(a: &Report, b: &Report, wanted: &str) {
        let comparison = compare(a, b);
        let row = throughput(&comparison);
        assert_eq!(row.winner, None);
        let reason = row.no_winner.as_deref().unwrap_or_default();
        assert!(reason.contains(wanted), "{wanted}: {reason}");
        assert!(comparison.to_string().contains(wanted));
    }

    #[test]
    fn clear_differences_have_a_winner() {
        let comparison = compare(&report(1.0), &report(2.0));
        let row = throughput(&comparison);
        assert_eq!((row.winner, row.ratio), (Some(Winner::B), Some(2.0)));
        assert!((row.ratio_low.unwrap() - 2.0 / 1.04).abs() < 1e-9);
        assert_eq!(
            throughput(&compare(&report(2.0), &report(1.0))).winner,
            Some(Winner::A)
        );
        let json = serde_json::to_value(&comparison).unwrap();
        assert_eq!(json["schema"], SCHEMA);
        assert_eq!(json["rows"][0]["winner"], "b");
    }

    #[test]
    fn rounds_that_overlap_have_no_winner() {
        refused(&report(1.0), &report(1.02), "overlap");
    }

    #[test]
    fn an_invalid_side_neither_wins_nor_loses() {
        let change = |change: &dyn Fn(&mut Report)| {
            let mut b = report(2.0);
            change(&mut b);
            b
        };
        let a = report(1.0);
        refused(
            &a,
            &change(&|b| b.points[0].on[0].verdict.reasons.push("late".into())),
            "b is INVALID: late",
        );
        refused(
            &a,
            &change(&|b| {
                b.points[0].on[0].measurements[2]
                    .verdict
                    .reasons
                    .push("late".into())
            }),
            "b is INVALID: late",
        );
        refused(
            &a,
            &change(&|b| b.points[0].on[0].measurements[0].integrity.lost = 3),
            "3 errors or losses",
        );
        refused(
            &a,
            &change(&|b| b.points[0].on[0].measurements[0].producers[0].errors = 1),
            "1 errors",
        );
        refused(
            &a,
            &change(&|b| b.manifest.targets[0].durability = "memory".into()),
            "durability differs",
        );
        refused(
            &a,
            &change(&|b| b.manifest.machine.processors = 64),
            "machines differ: processors: 2 and 64",
        );
        refused(
            &a,
            &change(&|b| b.manifest.scenario_text.push_str("rounds: 9\n")),
            "only b: rounds: 9",
        );
        refused(&a, &change(&|b| b.was_interrupted = true), "b was interrupted");
        refused(
            &a,
            &change(&|b| drop(b.points[0].settings.insert("x".into(), "1".into()))),
            "settings differ",
        );
        refused(
            &a,
            &change(&|b| b.points[0].on[0].measurements.truncate(2)),
            "5 and 2 rounds",
        );
    }

    #[test]
    fn saturated_latencies_have_no_winner() {
        let mut b = report(1.0);
        for measurement in &mut b.points[0].on[0].measurements {
            measurement.producers[0].is_saturated = true;
            for (name, value) in &mut measurement.figures {
                if name.starts_with("latency") {
                    *value *= 10.0;
                }
            }
        }
        let comparison = compare(&report(1.0), &b);
        let row = comparison
            .rows
            .iter()
            .find(|row| row.figure == "latency_p99_ms")
            .unwrap();
        assert!(row.winner.is_none() && row.no_winner.as_deref().unwrap().contains("saturated"));
    }

    #[test]
    fn what_only_one_side_has_is_reported() {
        let mut b = report(1.0);
        b.points[0].name = String::from("other");
        let comparison = compare(&report(1.0), &b);
        assert_eq!(comparison.rows.len(), 0);
        assert_eq!(
            comparison.unmatched,
            ["only a has the point 1000/s", "only b has the point other"]
        );
    }

    #[test]
    fn another_version_is_matched_by_its_position() {
        let mut b = report(2.0);
        b.manifest.targets[0].name = String::from("Ottla 0.2.0, embedded");
        let comparison = compare(&report(1.0), &b);
        assert_eq!(
            comparison.rows[0].target,
            "Ottla 0.1.0, embedded and Ottla 0.2.0, embedded"
        );
        // In the opposite order no target is used twice.
        b.manifest.targets.swap(0, 1);
        assert!(compare(&report(1.0), &b).unmatched[0].contains("only a has the target"));
    }
}
