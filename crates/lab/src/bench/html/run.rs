//! One point: the results of its middle round on each target, in charts and tables.

use super::axis::{Axis, Scale};
use super::chart::{Chart, Line};
use super::table::Table;
use super::{stages, summary, target_name};
use crate::markup::Markup;
use crate::numbers;
use crate::report::histogram::Latencies;
use crate::report::{GroupResult, LatencyResult, Measurement, OnTarget, Point, Report, Second};

/// The number of points of a line over time; a longer run is drawn in steps of several seconds.
const STEPS: usize = 120;
/// Bars of the histogram per decade.
const BARS_PER_DECADE: f64 = 12.0;
const MIB: f64 = 1_048_576.0;

pub(super) fn draw(report: &Report, point: &Point, is_open: bool, page: &mut Markup) {
    let is_open: &[(&'static str, &dyn std::fmt::Display)] = if is_open { &[("open", &"")] } else { &[] };
    page.nest("details", is_open, |page| {
        page.nest("summary", &[], |page| {
            page.text(&point.name);
            for on in &point.on {
                page.text(" ");
                let class = format!("word {}", summary::word_class(&on.verdict));
                page.leaf("span", &[("class", &class)], on.verdict.word());
            }
        });
        let settings: Vec<String> = point
            .settings
            .iter()
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        if !settings.is_empty() {
            page.leaf("p", &[("class", &"quiet")], settings.join(", "));
        }
        if let Some(diagnosis) = &point.diagnosis {
            page.leaf("p", &[], format!("The source's diagnosis: {diagnosis}"));
        }
        for (index, on) in point.on.iter().enumerate() {
            page.leaf(
                "h3",
                &[],
                format!("{}, on {}", point.name, target_name(report, index)),
            );
            draw_on_target(on, page);
        }
    });
}

fn draw_on_target(on: &OnTarget, page: &mut Markup) {
    summary::draw_verdict(&on.verdict, page);
    if let Some(prediction) = &on.prediction {
        if let Some(limit) = &prediction.limit {
            page.leaf("p", &[], format!("Predicted limit: {limit}"));
        }
        if !prediction.arithmetic.is_empty() {
            page.leaf("pre", &[], prediction.arithmetic.join("\n"));
        }
    }
    let mut expected = Table::of(&["what must hold", "measured", ""]);
    for expectation in &on.expectations {
        let outcome = if expectation.holds {
            "holds"
        } else {
            "does not hold"
        };
        expected.row(vec![
            expectation.text.clone(),
            numbers::number(expectation.measured),
            outcome.to_owned(),
        ]);
    }
    expected.draw(page);
    let Some(round) = on.middle_round() else {
        page.leaf("p", &[], "Nothing was measured here.");
        return;
    };
    if on.measurements.len() > 1 {
        let rounds = on.measurements.len();
        let text = format!("Charts of round {} of {rounds}, the middle one.", round + 1);
        page.leaf("p", &[("class", &"quiet")], text);
    }
    draw_measurement(&on.measurements[round], page);
    page.nest("details", &[], |page| {
        page.leaf("summary", &[], "All figures of all rounds");
        summary::draw_rounds(on, page);
    });
    draw_raw(on, page);
}

fn draw_measurement(measurement: &Measurement, page: &mut Markup) {
    let warmup = numbers::number(measurement.warmup_seconds);
    let seconds = numbers::number(measurement.seconds);
    page.leaf(
        "p",
        &[("class", &"quiet")],
        format!("{seconds} s measured, after {warmup} s of warm-up that are not counted."),
    );
    page.nest("div", &[("class", &"charts")], |page| {
        let steps = steps(&measurement.timeline);
        latency_over_time(&steps).draw(page);
        rates_over_time(&steps).draw(page);
        let series = latencies(measurement);
        histogram(&series).draw(page);
        percentiles(&series).draw(page);
        if let Some(found) = &measurement.stages {
            stages::draw(found, page);
        }
        cpu(&steps).draw(page);
        memory(&steps).draw(page);
        disk_and_network(&steps).draw(page);
    });
    draw_processes(measurement, page);
    draw_groups(measurement, page);
    draw_checks(measurement, page);
}

/// One second, or several of a long run.
struct TimeStep<'a> {
    at: f64,
    seconds: &'a [Second],
}

fn steps(timeline: &[Second]) -> Vec<TimeStep<'_>> {
    let size = timeline.len().div_ceil(STEPS).max(1);
    let steps = timeline.chunks(size).map(|seconds| TimeStep {
        at: seconds[0].at,
        seconds,
    });
    steps.collect()
}

impl TimeStep<'_> {
    fn mean(&self, value: impl Fn(&Second) -> f64) -> f64 {
        self.seconds.iter().map(value).sum::<f64>() / self.seconds.len() as f64
    }

    fn largest(&self, value: impl Fn(&Second) -> f64) -> f64 {
        self.seconds.iter().map(value).fold(0.0, f64::max)
    }
}

fn time_chart(title: &str, unit: &str, scale: Scale, steps: &[TimeStep<'_>], lines: Vec<Line>) -> Chart {
    let values = || {
        lines
            .iter()
            .flat_map(|line| line.points.iter().map(|point| point.1))
    };
    let step = steps.first().map_or(1, |step| step.seconds.len());
    Chart {
        title: title.to_owned(),
        x: Axis::fit(
            "s since the measured part began",
            Scale::Linear,
            steps.iter().map(|step| step.at),
        ),
        y: Axis::fit(unit, scale, values()),
        lines,
        note: (step > 1)
            .then(|| format!("In steps of {step} s: means of rates and shares, the largest of latencies.")),
    }
}

fn line(name: &str, index: usize, points: Vec<(f64, f64)>) -> Line {
    Line {
        name: name.to_owned(),
        points,
        colour: index,
        dash: index,
        ..Line::default()
    }
}

fn latency_over_time(steps: &[TimeStep<'_>]) -> Chart {
    type Value = fn(&Second) -> f64;
    let all: [(&str, Value); 3] = [
        ("p50", |second| second.latency_p50_ms),
        ("p99", |second| second.latency_p99_ms),
        ("max", |second| second.latency_max_ms),
    ];
    let lines = all.into_iter().enumerate().map(|(index, (name, value))| {
        let points = steps.iter().map(|step| (step.at, step.largest(value)));
        line(name, index, points.filter(|point| point.1 > 0.0).collect())
    });
    let lines = lines.filter(|line| !line.points.is_empty()).collect();
    time_chart(
        "Latency over time",
        "ms from the intended time",
        Scale::Log,
        steps,
        lines,
    )
}

fn rates_over_time(steps: &[TimeStep<'_>]) -> Chart {
    type Value = fn(&Second) -> f64;
    let all: [(&str, Value); 3] = [
        ("sent", |second| second.sent as f64),
        ("acknowledged", |second| second.acknowledged as f64),
        ("received", |second| second.received as f64),
    ];
    let lines = all.into_iter().enumerate().map(|(index, (name, value))| {
        let points = steps.iter().map(|step| (step.at, step.mean(value)));
        line(name, index, points.collect())
    });
    let lines = lines
        .filter(|line| line.points.iter().any(|point| point.1 > 0.0))
        .collect();
    time_chart("Rates over time", "records/s", Scale::Linear, steps, lines)
}

/// The names of all processes in the timeline, in a stable order.
fn process_names<'s>(
    steps: &'s [TimeStep<'_>],
    of: impl Fn(&'s Second) -> Vec<&'s String>,
) -> Vec<&'s String> {
    let seconds = steps.iter().flat_map(|step| step.seconds);
    let mut names: Vec<&String> = seconds.flat_map(of).collect();
    names.sort();
    names.dedup();
    names
}

fn cpu(steps: &[TimeStep<'_>]) -> Chart {
    let names = process_names(steps, |second| second.cpu.keys().collect());
    let lines = names.into_iter().enumerate().map(|(index, name)| {
        let share = |second: &Second| 100.0 * second.cpu.get(name).copied().unwrap_or(0.0);
        line(
            name,
            index,
            steps.iter().map(|step| (step.at, step.mean(share))).collect(),
        )
    });
    time_chart(
        "Processors",
        "% of all processors",
        Scale::Linear,
        steps,
        lines.collect(),
    )
}

fn memory(steps: &[TimeStep<'_>]) -> Chart {
    let names = process_names(steps, |second| second.memory_bytes.keys().collect());
    let lines = names.into_iter().enumerate().map(|(index, name)| {
        let mib = |second: &Second| second.memory_bytes.get(name).copied().unwrap_or(0) as f64 / MIB;
        line(
            name,
            index,
            steps.iter().map(|step| (step.at, step.largest(mib))).collect(),
        )
    });
    time_chart("Memory", "MiB resident", Scale::Linear, steps, lines.collect())
}

fn disk_and_network(steps: &[TimeStep<'_>]) -> Chart {
    type Value = fn(&Second) -> f64;
    let all: [(&str, Value); 2] = [
        ("disk written", |second| second.disk_written_bytes as f64 / MIB),
        ("network", |second| second.network_bytes as f64 / MIB),
    ];
    let lines = all.into_iter().enumerate().map(|(index, (name, value))| {
        line(
            name,
            index,
            steps.iter().map(|step| (step.at, step.mean(value))).collect(),
        )
    });
    time_chart(
        "Disk and network of the whole machine",
        "MiB/s",
        Scale::Linear,
        steps,
        lines.collect(),
    )
}

/// The starting points of latency, each with the latencies of all groups together.
fn latencies(measurement: &Measurement) -> Vec<(&'static str, Latencies)> {
    let merged = |of: fn(&crate::report::GroupResult) -> Option<&LatencyResult>| {
        let mut all = Latencies::default();
        for group in &measurement.producers {
            if let Some(result) = of(group) {
                all.add(&result.histogram);
            }
        }
        all
    };
    let end_to_end = measurement
        .end_to_end
        .as_ref()
        .map(|result| result.histogram.clone());
    let all = [
        ("latency", merged(|group| group.latency.as_ref())),
        ("service", merged(|group| group.service.as_ref())),
        ("end to end", end_to_end.unwrap_or_default()),
    ];
    all.into_iter()
        .filter(|(_, latencies)| latencies.count() > 0)
        .collect()
}

fn histogram(series: &[(&str, Latencies)]) -> Chart {
    let lines = series.iter().enumerate().map(|(index, (name, latencies))| Line {
        is_stepped: true,
        ..line(name, index, bars(latencies))
    });
    let lines: Vec<Line> = lines.collect();
    let of = |axis: fn(&(f64, f64)) -> f64| -> Vec<f64> {
        lines
            .iter()
            .flat_map(|line| line.points.iter().map(axis))
            .collect()
    };
    let note = "latency: from the intended time; service: from the actual send; end to end: from the intended time to the \
                consumer. Both axes logarithmic.";
    Chart {
        title: String::from("Histogram"),
        x: Axis::fit("ms", Scale::Log, of(|point| point.0).into_iter()),
        y: Axis::fit("records", Scale::Log, of(|point| point.1).into_iter()),
        lines,
        note: Some(note.to_owned()),
    }
}

/// Upper bounds in milliseconds and counts; the recorded buckets are finer than a screen.
fn bars(latencies: &Latencies) -> Vec<(f64, f64)> {
    let mut bars: Vec<(i64, u64)> = Vec::new();
    for (micros, count) in latencies.buckets() {
        let bar = (micros.max(1) as f64).log10() * BARS_PER_DECADE;
        let bar = bar.floor() as i64;
        match bars.last_mut() {
            Some((last, sum)) if *last == bar => *sum += count,
            _ => bars.push((bar, count)),
        }
    }
    let upper = |bar: i64| 10_f64.powf((bar + 1) as f64 / BARS_PER_DECADE) / 1_000.0;
    bars.into_iter()
        .map(|(bar, count)| (upper(bar), count as f64))
        .collect()
}

fn percentiles(series: &[(&str, Latencies)]) -> Chart {
    let lines = series.iter().enumerate().map(|(index, (name, latencies))| {
        let points = curve(latencies.count()).into_iter();
        let points = points.map(|percentile| (percentile, latencies.at(percentile) as f64 / 1_000.0));
        line(name, index, points.filter(|point| point.1 > 0.0).collect())
    });
    let lines: Vec<Line> = lines.collect();
    let of = |axis: fn(&(f64, f64)) -> f64| -> Vec<f64> {
        lines
            .iter()
            .flat_map(|line| line.points.iter().map(axis))
            .collect()
    };
    Chart {
        title: String::from("Percentiles"),
        x: Axis::fit("percentile", Scale::Nines, of(|point| point.0).into_iter()),
        y: Axis::fit("ms", Scale::Log, of(|point| point.1).into_iter()),
        lines,
        note: Some(String::from("Each nine to the right is ten times rarer.")),
    }
}

/// Percentiles: eight per nine, as far as this number of records has percentiles.
fn curve(count: u64) -> Vec<f64> {
    let nines = (count.max(1) as f64).log10().min(6.0);
    let steps = (nines * 8.0).floor() as i32;
    (0..=steps)
        .map(|step| 100.0 * (1.0 - 10_f64.powf(-f64::from(step) / 8.0)))
        .collect()
}

fn draw_processes(measurement: &Measurement, page: &mut Markup) {
    let mut table = Table::of(&[
        "process",
        "CPU, s",
        "CPU per million records, s",
        "peak memory",
        "read",
        "written",
    ]);
    let bytes =
        |value: Option<u64>| value.map_or_else(|| String::from("–"), |value| numbers::bytes(value as f64));
    for process in &measurement.processes {
        table.row(vec![
            process.name.clone(),
            numbers::number(process.cpu_seconds),
            numbers::number(process.cpu_seconds_per_million),
            bytes(process.peak_memory_bytes),
            bytes(process.read_bytes),
            bytes(process.written_bytes),
        ]);
    }
    table.draw(page);
}

fn draw_groups(measurement: &Measurement, page: &mut Markup) {
    let mut table = Table::of(&[
        "group",
        "clients × threads",
        "records",
        "records/s",
        "errors",
        "sent again",
        "p50, ms",
        "p99, ms",
        "p99.9, ms",
        "max, ms",
        "service p99, ms",
    ]);
    for group in groups(measurement) {
        let of = |result: &Option<LatencyResult>, value: fn(&LatencyResult) -> f64| {
            result
                .as_ref()
                .map_or_else(|| String::from("–"), |result| numbers::number(value(result)))
        };
        let saturated = if group.is_saturated { " (saturated)" } else { "" };
        table.row(vec![
            format!("{}{saturated}", group.name),
            format!("{} × {}", group.clients, group.threads.max(1)),
            numbers::number(group.records as f64),
            numbers::number(group.records_per_second),
            group.errors.to_string(),
            group.retries.to_string(),
            of(&group.latency, |result| result.percentiles.p50),
            of(&group.latency, |result| result.percentiles.p99),
            of(&group.latency, |result| result.percentiles.p99_9),
            of(&group.latency, |result| result.percentiles.max),
            of(&group.service, |result| result.percentiles.p99) + saturated,
        ]);
    }
    table.draw(page);
    let mut errors = Table::of(&["error", "group", "times"]);
    for group in groups(measurement) {
        for (text, count) in &group.error_kinds {
            errors.row(vec![text.clone(), group.name.clone(), count.to_string()]);
        }
    }
    errors.draw(page);
}

/// All groups: load that disturbs a run is part of it.
fn groups(measurement: &Measurement) -> impl Iterator<Item = &GroupResult> {
    let clients = measurement.producers.iter().chain(&measurement.consumers);
    clients.chain(&measurement.requests)
}

fn draw_checks(measurement: &Measurement, page: &mut Markup) {
    let integrity = &measurement.integrity;
    let mut table = Table::of(&[
        "sent",
        "acknowledged",
        "failed",
        "received",
        "lost",
        "duplicated",
        "out of order",
    ]);
    let received = integrity
        .received
        .map_or_else(|| String::from("no readers"), |count| count.to_string());
    table.row(vec![
        integrity.sent.to_string(),
        integrity.acknowledged.to_string(),
        integrity.failed.to_string(),
        received,
        integrity.lost.to_string(),
        integrity.duplicated.to_string(),
        integrity.disordered.to_string(),
    ]);
    table.draw(page);
    let generator = &measurement.generator;
    let late = generator.schedule_error.as_ref();
    let mut table = Table::of(&["the generator", ""]);
    table.row(vec![
        String::from("records were sent late by, p99"),
        late.map_or_else(
            || String::from("no schedule"),
            |late| format!("{} ms", numbers::number(late.percentiles.p99)),
        ),
    ]);
    table.row(vec![
        String::from("busiest sending thread, of a processor"),
        numbers::percent(generator.busiest_thread),
    ]);
    table.row(vec![
        String::from("waited for buffer memory"),
        format!("{} s", numbers::number(generator.buffer_wait_seconds)),
    ]);
    table.row(vec![
        String::from("reached, of what it can do alone"),
        numbers::percent(generator.share_of_calibration),
    ]);
    table.row(vec![
        String::from("rate of the last third over the first"),
        numbers::number(measurement.drift.last_to_first),
    ]);
    table.draw(page);
}

/// Writes the histograms of every round, for other tools and for merging.
fn draw_raw(on: &OnTarget, page: &mut Markup) {
    page.nest("details", &[], |page| {
        page.leaf(
            "summary",
            &[],
            "Raw histograms (HdrHistogram V2, base64, microseconds)",
        );
        for (round, measurement) in on.measurements.iter().enumerate() {
            for (name, latencies) in latencies(measurement) {
                page.leaf(
                    "p",
                    &[],
                    format!("round {}, {name}, {} records", round + 1, latencies.count()),
                );
                let text = serde_json::to_string(&latencies).unwrap_or_default();
                page.leaf("pre", &[], text.trim_matches('"'));
            }
        }
    });
}
