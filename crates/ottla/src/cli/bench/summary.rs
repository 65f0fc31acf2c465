//! A report on a terminal: answer, verdict, table, small plots. Every number is shown with its
//! caveats.

use std::io::IsTerminal;

use ottla_lab::numbers::{self, number};
use ottla_lab::report::label;
use ottla_lab::report::{OnTarget, Point, Report, Verdict};

use crate::cli::doctor::text::clean;
use crate::cli::table::align;

/// Renders for standard output; in colour if it is a terminal and `NO_COLOR` is not set.
pub fn text(report: &Report) -> String {
    let is_coloured = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    render(report, is_coloured)
}

fn render(report: &Report, is_coloured: bool) -> String {
    let mut out = String::new();
    if let Some(answer) = &report.answer {
        line(&mut out, format_args!("{}", clean(&answer.sentence)));
    }
    let name = clean(&report.scenario.name);
    line(
        &mut out,
        format_args!("{}  {name}", word(&report.verdict, is_coloured)),
    );
    line(
        &mut out,
        format_args!("         {}", clean(&report.scenario.question)),
    );
    if let Some(source) = &report.scenario.source {
        line(&mut out, format_args!("         after: {}", clean(source)));
    }
    for reason in &report.verdict.reasons {
        line(&mut out, format_args!("  because  {}", clean(reason)));
    }
    for caveat in &report.verdict.caveats {
        line(&mut out, format_args!("  note     {}", clean(caveat)));
    }
    if report.was_interrupted {
        line(
            &mut out,
            format_args!("  note     interrupted: later points were not measured"),
        );
    }
    for target in &report.manifest.targets {
        let (name, durability) = (clean(&target.name), clean(&target.durability));
        line(&mut out, format_args!("  target   {name}: {durability}"));
    }
    out.push('\n');
    draw_table(report, is_coloured, &mut out);
    draw_load(report, &mut out);
    draw_points(report, is_coloured, &mut out);
    out
}

fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    out.push_str(text.to_string().trim_end());
    out.push('\n');
}

fn word(verdict: &Verdict, is_coloured: bool) -> String {
    let word = format!("{:7}", verdict.word());
    match (is_coloured, verdict.is_valid()) {
        (false, _) => word,
        (true, true) => format!("\x1b[1;32m{word}\x1b[0m"),
        (true, false) => format!("\x1b[1;31m{word}\x1b[0m"),
    }
}

const HEADS: [&str; 8] = [
    "point",
    "figure",
    "target",
    "source",
    "predicted",
    "measured",
    "of rounds",
    "error",
];
/// Point, figure and target; the target is left out where there is only one.
const TEXT_COLUMNS: usize = 3;
/// Longer names are cut so that the numbers stay on the screen.
const NAME_LETTERS: usize = 30;

fn draw_table(report: &Report, is_coloured: bool, out: &mut String) {
    let mut rows: Vec<[String; 8]> = vec![HEADS.map(String::from)];
    let mut remarks: Vec<String> = vec![String::new()];
    for point in &report.points {
        for (index, figure) in point.shown_figures().iter().enumerate() {
            for (target, on) in point.on.iter().enumerate() {
                let name = if index == 0 && target == 0 {
                    cut(&point.name)
                } else {
                    String::new()
                };
                rows.push(row(report, point, figure, target, name));
                remarks.push(remark(on, figure, is_coloured));
            }
        }
    }
    let lines = match report.manifest.targets.len() > 1 {
        true => align(&rows, TEXT_COLUMNS),
        false => {
            let without_target = |[point, figure, _, rest @ ..]: [String; 8]| {
                let [source, predicted, measured, of_rounds, error] = rest;
                [point, figure, source, predicted, measured, of_rounds, error]
            };
            let rows: Vec<[String; 7]> = rows.into_iter().map(without_target).collect();
            align(&rows, TEXT_COLUMNS - 1)
        }
    };
    for (text, remark) in lines.iter().zip(&remarks) {
        line(out, format_args!("{text}  {remark}"));
    }
    out.push('\n');
}

fn row(report: &Report, point: &Point, figure: &str, target: usize, name: String) -> [String; 8] {
    let on = &point.on[target];
    let predicted = on
        .prediction
        .as_ref()
        .and_then(|prediction| prediction.figures.get(figure));
    let measured = on.figure(figure);
    let is_first = target == 0;
    [
        name,
        if is_first {
            label::title(figure)
        } else {
            String::new()
        },
        report
            .manifest
            .targets
            .get(target)
            .map_or_else(String::new, |target| cut(&target.name)),
        match point.source.get(figure) {
            Some(value) if is_first => number(*value),
            _ => String::new(),
        },
        predicted.map_or_else(String::new, |range| {
            if range.low == range.high {
                number(range.low)
            } else {
                format!("{}..{}", number(range.low), number(range.high))
            }
        }),
        measured.map_or_else(String::new, number),
        on.spread(figure).map_or_else(String::new, |(low, high)| {
            format!("{}..{}", number(low), number(high))
        }),
        predicted
            .zip(measured)
            .map_or_else(String::new, |(range, measured)| {
                numbers::percent_change(range.error_percent(measured) / 100.0)
            }),
    ]
}

/// Returns the caveat of a number.
fn remark(on: &OnTarget, figure: &str, is_coloured: bool) -> String {
    if !on.verdict.is_valid() {
        return word(&on.verdict, is_coloured);
    }
    if on.is_saturated() && figure.contains("_ms") {
        return String::from("saturated");
    }
    String::new()
}

fn cut(name: &str) -> String {
    let name = clean(name);
    if name.chars().count() <= NAME_LETTERS {
        return name;
    }
    name.chars().take(NAME_LETTERS - 1).chain(['…']).collect()
}

/// Draws the latency of points sorted by rate, one line for each target.
fn draw_load(report: &Report, out: &mut String) {
    for (target, name) in report
        .manifest
        .targets
        .iter()
        .map(|target| &target.name)
        .enumerate()
    {
        let points = report.points.iter().filter_map(|point| {
            let on = point.on.get(target)?;
            Some((on.figure("records_per_second")?, on.figure("latency_p99_ms")?))
        });
        let mut points: Vec<(f64, f64)> = points.collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        let ([first, .., last], true) = (points.as_slice(), points.len() > 1) else {
            continue;
        };
        let p99: Vec<f64> = points.iter().map(|point| point.1).collect();
        let (from, to) = (number(first.0), number(last.0));
        let (bars, range) = (bars(&p99, Heights::Logarithms), range(&p99));
        line(
            out,
            format_args!(
                "p99 over load    {bars}  {range} ms, {from} to {to} records/s  {}",
                cut(name)
            ),
        );
    }
}

/// Draws rate and p99 of the median round over time, and the reasons of an INVALID point.
fn draw_points(report: &Report, is_coloured: bool, out: &mut String) {
    for point in &report.points {
        for (index, on) in point.on.iter().enumerate() {
            let target = report
                .manifest
                .targets
                .get(index)
                .map_or("", |target| target.name.as_str());
            draw_over_time(point, on, target, out);
            for reason in on
                .verdict
                .reasons
                .iter()
                .filter(|reason| !is_said(report, reason))
            {
                let (word, name) = (word(&on.verdict, is_coloured), cut(&point.name));
                line(
                    out,
                    format_args!("  {word} {name}, {}: {}", cut(target), clean(reason)),
                );
            }
            for caveat in on
                .verdict
                .caveats
                .iter()
                .filter(|caveat| !is_said(report, caveat))
            {
                line(
                    out,
                    format_args!(
                        "  note    {}, {}: {}",
                        cut(&point.name),
                        cut(target),
                        clean(caveat)
                    ),
                );
            }
            for expectation in on.expectations.iter().filter(|expectation| !expectation.holds) {
                let (text, measured) = (clean(&expectation.text), number(expectation.measured));
                let name = cut(&point.name);
                line(
                    out,
                    format_args!("  {name}, {}: {text} does not hold: {measured}", cut(target)),
                );
            }
        }
    }
}

/// Whether the report's verdict already contains this text of a point.
fn is_said(report: &Report, text: &str) -> bool {
    let verdict = &report.verdict;
    verdict
        .reasons
        .iter()
        .chain(&verdict.caveats)
        .any(|said| said.contains(text))
}

fn draw_over_time(point: &Point, on: &OnTarget, target: &str, out: &mut String) {
    let Some(measurement) = on.middle_round().and_then(|round| on.measurements.get(round)) else {
        return;
    };
    let of = |value: fn(&ottla_lab::report::Second) -> f64| -> Vec<f64> {
        measurement.timeline.iter().map(value).collect()
    };
    let mut rates = of(|second| second.acknowledged as f64);
    if rates.iter().all(|rate| *rate == 0.0) {
        rates = of(|second| second.received as f64);
    }
    let p99 = of(|second| second.latency_p99_ms);
    if rates.iter().all(|rate| *rate == 0.0) {
        return;
    }
    line(
        out,
        format_args!("{}, {} over time", cut(&point.name), cut(target)),
    );
    line(
        out,
        format_args!(
            "  records/s      {}  {}",
            bars(&rates, Heights::FromZero),
            range(&rates)
        ),
    );
    if p99.iter().any(|value| *value > 0.0) {
        line(
            out,
            format_args!(
                "  p99            {}  {} ms",
                bars(&p99, Heights::Logarithms),
                range(&p99)
            ),
        );
    }
}

fn range(values: &[f64]) -> String {
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    format!("{} to {}", number(low), number(high))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Heights {
    FromZero,
    /// From the smallest to the largest value: factors count.
    Logarithms,
}

const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// A longer run is drawn in this many steps, each with its largest value.
const BARS: usize = 60;

/// Returns one block character for each value; a blank where there is none.
fn bars(values: &[f64], heights: Heights) -> String {
    let size = values.len().div_ceil(BARS).max(1);
    let steps: Vec<f64> = values
        .chunks(size)
        .map(|step| {
            step.iter()
                .copied()
                .filter(|value| value.is_finite())
                .fold(0.0, f64::max)
        })
        .collect();
    let place = |value: f64| match heights {
        Heights::FromZero => value,
        Heights::Logarithms => value.ln(),
    };
    let drawn = || {
        steps
            .iter()
            .filter(|value| **value > 0.0)
            .map(|value| place(*value))
    };
    let high = drawn().fold(f64::NEG_INFINITY, f64::max);
    let low = match heights {
        Heights::FromZero => 0.0,
        Heights::Logarithms => drawn().fold(f64::INFINITY, f64::min),
    };
    let block = |value: &f64| {
        if *value <= 0.0 {
            return ' ';
        }
        let share = if high > low {
            (place(*value) - low) / (high - low)
        } else {
            0.5
        };
        BLOCKS[((share * 8.0) as usize).min(7)]
    };
    steps.iter().map(block).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ottla_lab::bench::sample;

    #[test]
    fn answer_verdict_reasons_and_caveats_come_before_the_numbers() {
        let text = render(&sample::report(), false);
        let mut lines = text.lines();
        let answer = lines.next().unwrap_or_default();
        assert!(answer.starts_with("Not answered: the run is INVALID: "), "{text}");
        assert!(lines.next().unwrap_or_default().starts_with("INVALID"), "{text}");
        let place = |what: &str| {
            text.find(what)
                .unwrap_or_else(|| panic!("{what} is missing:\n{text}"))
        };
        assert!(place("because") < place("predicted"));
        assert!(place("note     loopback") < place("predicted"));
        assert!(place("interrupted") < place("predicted"));
        assert!(place("on the disk before the answer") < place("predicted"));
    }

    #[test]
    fn columns_are_aligned() {
        let text = render(&sample::report(), false);
        let table: Vec<&str> = text
            .lines()
            .skip_while(|line| !line.starts_with("point"))
            .collect();
        let end = |line: &str, word: &str| line.split(word).next().unwrap().chars().count() + word.len();
        let throughput = table.iter().find(|line| line.contains("2,000")).unwrap();
        assert_eq!(end(table[0], "source"), end(throughput, "2,000"), "{text}");
    }

    #[test]
    fn every_number_of_an_invalid_point_is_marked() {
        let mut report = sample::report();
        report.points.remove(0);
        report.points.remove(0);
        let text = render(&report, false);
        let rows = text.lines().skip_while(|line| !line.starts_with("point")).skip(1);
        let rows: Vec<&str> = rows.take_while(|line| !line.is_empty()).collect();
        assert!(
            rows.len() > 4 && rows.iter().all(|row| row.ends_with("INVALID")),
            "{text}"
        );
    }

    #[test]
    fn latencies_without_a_schedule_are_called_saturated() {
        let mut report = sample::report();
        report.points.truncate(1);
        for on in &mut report.points[0].on {
            on.measurements[0].producers[0].is_saturated = true;
        }
        let text = render(&report, false);
        let row = text
            .lines()
            .find(|line| line.contains("latency p99, ms"))
            .unwrap();
        assert!(row.ends_with("saturated"), "{text}");
    }

    #[test]
    fn only_a_terminal_gets_colours_and_texts_cannot_add_their_own() {
        let mut report = sample::report();
        report.scenario.name = String::from("\x1b[2J\rgone\n");
        let plain = render(&report, false);
        assert!(!plain.contains('\x1b') && !plain.contains('\r'), "{plain}");
        let coloured = render(&report, true);
        assert!(coloured.contains("\n\x1b[1;31mINVALID"), "{coloured}");
        assert!(!coloured.contains("\x1b[2J"));
    }

    #[test]
    fn bars_show_values_and_gaps() {
        assert_eq!(bars(&[0.0, 1.0, 8.0], Heights::FromZero), " ▂█");
        assert_eq!(bars(&[1.0, 10.0, 100.0], Heights::Logarithms), "▁▅█");
        assert_eq!(bars(&[5.0, 5.0], Heights::Logarithms), "▅▅");
        assert_eq!(bars(&[f64::NAN], Heights::Logarithms), " ");
        assert_eq!(bars(&[], Heights::FromZero), "");
        assert_eq!(bars(&vec![1.0; 86_400], Heights::FromZero).chars().count(), BARS);
    }

    #[test]
    fn a_report_without_points_is_rendered_too() {
        let mut report = sample::report();
        report.points.clear();
        assert!(render(&report, false).contains("point"));
        report.points.push(Point {
            on: vec![OnTarget::default()],
            ..Point::default()
        });
        assert!(render(&report, false).contains("point"));
    }
}
