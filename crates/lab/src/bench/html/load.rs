//! Latency against load, over the points of a report.

use super::axis::{Axis, Scale};
use super::chart::{Chart, Line};
use super::markup::Markup;
use super::target_name;
use crate::bench::result::Report;

const PERCENTILES: [(&str, &str); 4] = [
    ("p50", "latency_p50_ms"),
    ("p99", "latency_p99_ms"),
    ("p99.9", "latency_p99_9_ms"),
    ("max", "latency_max_ms"),
];

/// One chart for each target; none where fewer than two points had a schedule.
pub(super) fn draw(report: &Report, page: &mut Markup) {
    let charts: Vec<Chart> = (0..report.manifest.targets.len())
        .filter_map(|target| of_target(report, target))
        .collect();
    if charts.is_empty() {
        return;
    }
    page.leaf("h2", &[], "Latency over load");
    page.nest("div", &[("class", &"charts")], |page| {
        charts.iter().for_each(|chart| chart.draw(page));
    });
}

fn of_target(report: &Report, target: usize) -> Option<Chart> {
    let mut lines = Vec::new();
    for (index, (name, figure)) in PERCENTILES.into_iter().enumerate() {
        let points = report.points.iter().filter_map(|point| {
            let on = point.on.get(target)?;
            Some((on.figure("records_per_second")?, on.figure(figure)?))
        });
        let mut points: Vec<(f64, f64)> = points.collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        if points.len() > 1 {
            lines.push(Line {
                name: name.to_owned(),
                points,
                colour: index,
                dash: index,
                has_marks: true,
                ..Line::default()
            });
        }
    }
    if lines.is_empty() {
        return None;
    }
    let of = |axis: fn(&(f64, f64)) -> f64| -> Vec<f64> {
        lines
            .iter()
            .flat_map(|line| line.points.iter().map(axis))
            .collect()
    };
    let invalid: Vec<&str> = report
        .points
        .iter()
        .filter(|point| point.on.get(target).is_some_and(|on| !on.verdict.is_valid()))
        .map(|point| point.name.as_str())
        .collect();
    let note = (!invalid.is_empty()).then(|| format!("INVALID among them: {}", invalid.join(", ")));
    Some(Chart {
        title: format!("Latency over load: {}", target_name(report, target)),
        x: Axis::fit(
            "records/s, reached",
            Scale::Linear,
            of(|point| point.0).into_iter(),
        ),
        y: Axis::fit(
            "ms from the intended time",
            Scale::Log,
            of(|point| point.1).into_iter(),
        ),
        lines,
        note,
    })
}
