//! The top of the page: the answer, the verdict, the question, and the table of source, prediction
//! and measurement.

use super::table::{Table, facts};
use crate::markup::Markup;
use crate::numbers;
use crate::report::label;
use crate::report::{OnTarget, Point, Report, Verdict};

pub(super) fn draw(report: &Report, page: &mut Markup) {
    page.leaf("h1", &[], &report.scenario.name);
    if let Some(answer) = &report.answer {
        page.leaf("p", &[("class", &"answer")], &answer.sentence);
    }
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

/// Draws the verdict with the reasons and the caveats, each as a list.
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
        heads.extend(
            ["predicted", "measured", "error"].map(|what| match report.manifest.targets.len() {
                1 => what.to_owned(),
                _ => format!("{what}, {}", target.name),
            }),
        );
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

fn draw_point(report: &Report, point: &Point, page: &mut Markup) {
    let targets = report.manifest.targets.len().max(point.on.len());
    for (row, figure) in point.shown_figures().iter().enumerate() {
        let class = if row == 0 { "first" } else { "" };
        page.nest("tr", &[("class", &class)], |page| {
            page.leaf("td", &[], if row == 0 { point.name.as_str() } else { "" });
            page.leaf("td", &[("class", &"left")], label::title(figure));
            let source = point
                .source
                .get(figure)
                .map_or_else(String::new, |value| numbers::number(*value));
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
                numbers::number(range.low)
            } else {
                format!("{} – {}", numbers::number(range.low), numbers::number(range.high))
            }
        }),
    );
    page.nest("td", &[], |page| {
        if let Some(measured) = measured {
            page.text(numbers::number(measured));
            if let Some((low, high)) = on.spread(figure) {
                page.text(format!(" ({} – {})", numbers::number(low), numbers::number(high)));
            }
            if !on.verdict.is_valid() {
                page.text(" ");
                page.leaf("span", &[("class", &"word invalid")], on.verdict.word());
            } else if figure.contains("_ms") && on.is_saturated() {
                page.text(" saturated");
            }
        }
    });
    let error = predicted
        .zip(measured)
        .map(|(range, measured)| range.error_percent(measured));
    page.leaf(
        "td",
        &[],
        error.map_or_else(String::new, |error| numbers::percent_change(error / 100.0)),
    );
}

/// Draws every figure of every round.
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
            cells.push(value.map_or_else(String::new, |value| numbers::number(*value)));
        }
        table.row(cells);
    }
    table.draw(page);
}
