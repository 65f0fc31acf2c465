//! Latency against load, over the points of a report; or point by point where the load was the
//! same.

use super::axis::{Axis, Scale};
use super::chart::{Chart, Line};
use super::target_name;
use crate::markup::Markup;
use crate::report::{OnTarget, Point, Report};

const PERCENTILES: [(&str, &str); 4] = [
    ("p50", "latency_p50_ms"),
    ("p99", "latency_p99_ms"),
    ("p99.9", "latency_p99_9_ms"),
    ("max", "latency_max_ms"),
];
/// Loads whose ratio is below this count as one: the points differ in another setting.
const SAME_LOAD: f64 = 1.1;
/// The number of letters of point names that fit side by side under a chart.
const LETTERS: usize = 54;

/// Draws one chart for each target; none where fewer than two points had a schedule.
pub(super) fn draw(report: &Report, page: &mut Markup) {
    let charts: Vec<Chart> = (0..report.manifest.targets.len())
        .filter_map(|target| of_target(report, target))
        .collect();
    if charts.is_empty() {
        return;
    }
    page.leaf("h2", &[], "Latency over load and settings");
    page.nest("div", &[("class", &"charts")], |page| {
        charts.iter().for_each(|chart| chart.draw(page));
    });
}

fn of_target(report: &Report, target: usize) -> Option<Chart> {
    let mut points: Vec<(f64, &Point, &OnTarget)> = report
        .points
        .iter()
        .filter_map(|point| {
            let on = point.on.get(target)?;
            on.figure("latency_p99_ms")?;
            Some((on.figure("records_per_second")?, point, on))
        })
        .collect();
    if points.len() < 2 {
        return None;
    }
    let rates = || points.iter().map(|point| point.0);
    let (low, high) = (rates().fold(f64::INFINITY, f64::min), rates().fold(0.0, f64::max));
    let is_over_load = high > SAME_LOAD * low;
    if is_over_load {
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    let lines = PERCENTILES
        .into_iter()
        .enumerate()
        .map(|(index, (name, figure))| {
            let places = points.iter().enumerate().filter_map(|(place, (rate, _, on))| {
                let x = if is_over_load { *rate } else { place as f64 };
                Some((x, on.figure(figure)?))
            });
            Line {
                name: name.to_owned(),
                points: places.collect(),
                colour: index,
                dash: index,
                has_marks: true,
                ..Line::default()
            }
        });
    let lines: Vec<Line> = lines.collect();
    let latencies: Vec<f64> = lines
        .iter()
        .flat_map(|line| line.points.iter().map(|point| point.1))
        .collect();
    let names: Vec<&str> = points.iter().map(|(_, point, _)| point.name.as_str()).collect();
    let invalid = points.iter().filter(|(_, _, on)| !on.verdict.is_valid());
    let invalid: Vec<&str> = invalid.map(|(_, point, _)| point.name.as_str()).collect();
    let name = target_name(report, target);
    Some(Chart {
        title: if is_over_load {
            format!("Latency over load: {name}")
        } else {
            format!("Latency by point: {name}")
        },
        x: if is_over_load {
            Axis::fit(
                "records/s, reached",
                Scale::Linear,
                points.iter().map(|point| point.0),
            )
        } else {
            Axis::of_names("point, at the same load", &names, LETTERS / names.len())
        },
        y: Axis::fit("ms from the intended time", Scale::Log, latencies.into_iter()),
        lines,
        note: (!invalid.is_empty()).then(|| format!("INVALID among them: {}", invalid.join(", "))),
    })
}
