//! Above everything else: the verdict, the question, and the table of source, prediction and measurement.

use std::collections::BTreeSet;

use super::markup::Markup;
use super::table::{Table, facts};
use crate::bench::label;
use crate::bench::result::{OnTarget, Point, Report, Verdict};

/// Shown for every point; others only where a source or a prediction has them.
const ALWAYS: [&str; 9] = [
    "records_per_second",
    "mib_per_second",
    "latency_p50_ms",
    "latency_p99_ms",
    "latency_p99_9_ms",
    "latency_max_ms",
    "end_to_end_p99_ms",
    "cpu_seconds_per_million",
    "broker_cpu_seconds_per_million",
];

pub(super) fn draw(report: &Report, page: &mut Markup) {
    page.leaf("h1", &[], &report.scenario.name);
    draw_verdict(&report.verdict, page);
    if report.was_interrupted {
        page.leaf(
            "p",
            &[("class", &"caveats")],
            "The run was interrupted: points that are missing or short were not measured to their end.",
        );
    }
    page.leaf("p", &[("class", &"question")], &report.scenario.question);
    if let Some(source) = &report.scenario.source {
        page.leaf("p", &[("class", &"quiet")], format!("After: {source}"));
    }
    draw_targets(report, page);
    page.leaf("h2", &[], "Source, prediction, measurement");
    let figures: Vec<&Point> = report.points.iter().collect();
    draw_points(report, &figures, page);
    page.leaf(
        "p",
        &[("class", &"quiet")],
        "Measured: the median over the rounds, with the lowest and the highest in brackets. Error: of the prediction, in percent of \
         it; positive where more was measured; 0 % inside a predicted range. The source's numbers are of its own machines.",
    );
}

/// With the reasons and the caveats, as a list each.
pub(super) fn draw_verdict(verdict: &Verdict, page: &mut Markup) {
    let class = format!("verdict {}", word_class(verdict));
    page.nest("div", &[("class", &class), ("role", &"status")], |page| {
        page.leaf("strong", &[], verdict.word());
        draw_list(&verdict.reasons, page);
    });
    if !verdict.caveats.is_empty() {
        page.nest("div", &[("class", &"caveats")], |page| {
            page.text("To be known when reading these numbers:");
            draw_list(&verdict.caveats, page);
        });
    }
}

pub(super) fn word_class(verdict: &Verdict) -> &'static str {
    if verdict.is_valid() { "valid" } else { "invalid" }
}

fn draw_list(items: &[String], page: &mut Markup) {
    if !items.is_empty() {
        page.nest("ul", &[], |page| {
            items.iter().for_each(|item| page.leaf("li", &[], item))
        });
    }
}

fn draw_targets(report: &Report, page: &mut Markup) {
    for target in &report.manifest.targets {
        let place = match (target.is_embedded, target.is_loopback) {
            (true, _) => "embedded in the generator's process",
            (false, true) => "on this machine, over the loopback",
            (false, false) => "elsewhere",
        };
        facts(
            &[
                ("Target", target.name.clone()),
                (
                    "Where",
                    format!("{place}, {} broker(s), {}", target.brokers, target.bootstrap),
                ),
                ("Durability", target.durability.clone()),
            ],
            page,
        );
    }
}

fn draw_points(report: &Report, points: &[&Point], page: &mut Markup) {
    let mut heads: Vec<String> = ["point", "figure", "source"].map(String::from).to_vec();
    for target in &report.manifest.targets {
        heads.extend(["predicted", "measured", "error"].map(|what| format!("{what}: {}", target.name)));
    }
    page.nest("div", &[("class", &"scroll")], |page| {
        page.nest("table", &[("id", &"points")], |page| {
            page.nest("thead", &[], |page| {
                page.nest("tr", &[], |page| {
                    heads.iter().for_each(|head| page.leaf("th", &[], head))
                });
            });
            page.nest("tbody", &[], |page| {
                for point in points {
                    draw_point(report, point, page);
                }
            });
        });
    });
}

/// What the tables show of a point, in their order.
pub(crate) fn shown_figures(point: &Point) -> Vec<String> {
    let predicted = point.on.iter().filter_map(|on| on.prediction.as_ref());
    let mut names: BTreeSet<String> = point.source.keys().cloned().collect();
    names.extend(predicted.flat_map(|prediction| prediction.figures.keys().cloned()));
    let measured = |name: &&str| point.on.iter().any(|on| on.figure(name).is_some());
    names.extend(
        ALWAYS
            .iter()
            .filter(|name| measured(name))
            .map(|name| (*name).to_owned()),
    );
    let mut names: Vec<String> = names.into_iter().collect();
    names.sort_by_key(|name| label::order(name));
    names
}

fn draw_point(report: &Report, point: &Point, page: &mut Markup) {
    let targets = report.manifest.targets.len().max(point.on.len());
    for (row, figure) in shown_figures(point).iter().enumerate() {
        let class = if row == 0 { "first" } else { "" };
        page.nest("tr", &[("class", &class)], |page| {
            page.leaf("td", &[], if row == 0 { point.name.as_str() } else { "" });
            page.leaf("td", &[("class", &"left")], label::title(figure));
            let source = point
                .source
                .get(figure)
                .map_or_else(String::new, |value| label::number(*value));
            page.leaf("td", &[], source);
            for index in 0..targets {
                draw_on_target(point.on.get(index), figure, page);
            }
        });
    }
}

fn draw_on_target(on: Option<&OnTarget>, figure: &str, page: &mut Markup) {
    let Some(on) = on else {
        (0..3).for_each(|_| page.leaf("td", &[], ""));
        return;
    };
    let predicted = on
        .prediction
        .as_ref()
        .and_then(|prediction| prediction.figures.get(figure));
    let measured = on.figure(figure);
    page.leaf(
        "td",
        &[],
        predicted.map_or_else(String::new, |range| {
            if range.low == range.high {
                label::number(range.low)
            } else {
                format!("{} – {}", label::number(range.low), label::number(range.high))
            }
        }),
    );
    page.nest("td", &[], |page| {
        if let Some(measured) = measured {
            page.text(label::number(measured));
            if let Some((low, high)) = spread(on, figure) {
                page.text(format!(" ({} – {})", label::number(low), label::number(high)));
            }
            if !on.verdict.is_valid() {
                page.text(" ");
                page.leaf("span", &[("class", &"word invalid")], on.verdict.word());
            } else if figure.contains("_ms") && is_saturated(on) {
                page.text(" saturated");
            }
        }
    });
    let error = predicted
        .zip(measured)
        .map(|(range, measured)| range.error_percent(measured));
    page.leaf("td", &[], error.map_or_else(String::new, label::percent));
}

/// Without a schedule latencies are those of a full queue.
pub(crate) fn is_saturated(on: &OnTarget) -> bool {
    let groups = on
        .measurements
        .iter()
        .flat_map(|measurement| &measurement.producers);
    groups.into_iter().any(|group| group.is_saturated)
}

/// The lowest and the highest round, where there are several.
pub(crate) fn spread(on: &OnTarget, figure: &str) -> Option<(f64, f64)> {
    let values: Vec<f64> = on
        .measurements
        .iter()
        .filter_map(|measurement| measurement.figures.get(figure).copied())
        .collect();
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    (values.len() > 1).then_some((low, high))
}

/// Every figure of every round.
pub(super) fn draw_rounds(on: &OnTarget, page: &mut Markup) {
    let mut names: Vec<&String> = on.measurements.iter().flat_map(|m| m.figures.keys()).collect();
    names.sort_by_key(|name| (label::order(name), *name));
    names.dedup();
    let mut heads = vec![String::from("figure")];
    heads.extend((1..=on.measurements.len()).map(|round| format!("round {round}")));
    let mut table = Table::new(heads);
    for name in names {
        let mut cells = vec![label::title(name)];
        for measurement in &on.measurements {
            let value = measurement.figures.get(name);
            cells.push(value.map_or_else(String::new, |value| label::number(*value)));
        }
        table.row(cells);
    }
    table.draw(page);
}
