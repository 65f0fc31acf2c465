//! The page: the victim alone and beside each noisy neighbour, and the neighbour's own rate.

use std::collections::BTreeMap;
use std::fmt::Write;

use ottla_lab::numbers::{duration, number, percent};
use ottla_lab::report::{GroupResult, Measurement, OnTarget, Point, Report};

use super::processors::Processors;
use crate::source_experiments::page::without_options;

const ALONE: &str = "alone";
/// Prefix of a point's name, followed by the neighbour's name.
const BESIDE: &str = "beside ";
/// The largest accepted ratio of the victim's p99 beside a neighbour to that alone.
const RATIO_MAX: f64 = 1.2;

pub fn write(reports: &[Report], processors: &Processors) -> String {
    let mut page = String::from(
        "# Tenants: what a neighbour costs\n\n\
         <!-- Written by `cargo xtask tenant-experiments`. -->\n\n\
         A victim that sends a steady 20,000 records/s, alone and beside each of four disturbers, on Apache Kafka and on Ottla in one\n\
         run, interleaved round by round. [tenants-notes.md](tenants-notes.md#the-experiment) describes the experiment and how to rerun it.\n\
         Latency counts from when a record was due, so it includes the client's `linger.ms` of 5 ms; the mean time of a request\n\
         does not. Figures are medians of the rounds, ratios are medians of the rounds' own ratios, in brackets the lowest and the highest.\n\n",
    );
    if let Some(report) = reports.first() {
        let machine = &report.manifest.machine;
        let _ = writeln!(
            page,
            "{} GiB, {}, {}; a sync takes {} in the median, {} at p99. {} Commit {}.\n",
            machine.memory_bytes >> 30,
            machine.kernel,
            without_options(&machine.filesystem),
            duration(machine.sync_micros.p50 / 1e6),
            duration(machine.sync_micros.p99 / 1e6),
            places(processors),
            report.manifest.commit.as_deref().unwrap_or("unknown"),
        );
        page.push_str("| broker | durability |\n|---|---|\n");
        for (target, name) in report.manifest.targets.iter().zip(names(report)) {
            let _ = writeln!(page, "| {name} | {} |", target.durability);
        }
        page.push('\n');
    }
    for report in reports {
        section(&mut page, report, processors);
    }
    page
}

fn places(processors: &Processors) -> String {
    match processors.is_pinned() {
        true => format!(
            "Brokers had {} of {} processors for themselves, clients and disturbers the rest.",
            processors.brokers.len(),
            processors.brokers.len() + processors.clients.len()
        ),
        false => format!(
            "Brokers, clients and disturbers shared {} processors.",
            processors.brokers.len()
        ),
    }
}

/// Names of the brokers; two of the same kind are distinguished by their durability.
fn names(report: &Report) -> Vec<String> {
    let targets = &report.manifest.targets;
    let is_unique = |name: &str| targets.iter().filter(|target| target.name == name).count() == 1;
    (targets.iter())
        .map(|target| match is_unique(&target.name) {
            true => target.name.clone(),
            false if target.durability.contains("after fdatasync") => format!("{}, synced", target.name),
            false => target.name.clone(),
        })
        .collect()
}

fn section(page: &mut String, report: &Report, processors: &Processors) {
    let head = &report.scenario;
    let _ = writeln!(page, "## {}\n\n{}\n", head.name, head.question);
    let rounds = (report.points.first())
        .and_then(|point| point.on.first())
        .map_or(0, |on| on.measurements.len());
    let _ = writeln!(
        page,
        "{rounds} rounds. Processors {} busy before the run.\n",
        percent(report.manifest.machine.busy_before)
    );
    victims(page, report);
    disturbers(page, report, processors);
    for remark in remarks(report) {
        let _ = writeln!(page, "- {}", remark.replace('\n', " "));
    }
    page.push('\n');
}

fn victims(page: &mut String, report: &Report) {
    page.push_str(
        "| victim | broker | p50, ms | p99, ms | p99.9, ms | max, ms | p99 to alone | request, mean ms | broker's processors |\n\
         |---|---|---|---|---|---|---|---|---|\n",
    );
    for point in &report.points {
        if point.name != ALONE && !point.name.starts_with(BESIDE) {
            continue;
        }
        for (which, name) in names(report).iter().enumerate() {
            let on = &point.on[which];
            let ratio = match point.name == ALONE {
                true => String::from("1"),
                false => ratio_cell(&ratios(report, point, which)),
            };
            let _ = writeln!(
                page,
                "| {} | {name} | {} | {} | {} | {} | {} | {} | {} |",
                point.name,
                median(on, "latency_p50_ms"),
                struck(on, &spread(on, "latency_p99_ms")),
                median(on, "latency_p99_9_ms"),
                median(on, "latency_max_ms"),
                struck(on, &ratio),
                median(on, "request_latency_ms"),
                middle(on.measurements.iter().map(|one| cores(one, Some("broker"))))
                    .map_or_else(dash, number),
            );
        }
    }
    page.push('\n');
}

/// Ratios of the victim's p99 beside a neighbour to that of the same round alone.
fn ratios(report: &Report, point: &Point, which: usize) -> Vec<f64> {
    let Some(alone) = point_of(report, ALONE) else {
        return Vec::new();
    };
    let p99 = |one: &Measurement| one.figures.get("latency_p99_ms").copied();
    let pairs = point.on[which]
        .measurements
        .iter()
        .zip(&alone.on[which].measurements);
    pairs
        .filter_map(|(beside, alone)| Some(p99(beside)? / p99(alone)?))
        .collect()
}

fn ratio_cell(ratios: &[f64]) -> String {
    let Some(ratio) = middle(ratios.iter().copied()) else {
        return dash();
    };
    let text = match ratio <= RATIO_MAX {
        true => number(ratio),
        false => format!("**{}**", number(ratio)),
    };
    text + &range(ratios)
}

fn disturbers(page: &mut String, report: &Report, processors: &Processors) {
    page.push_str(
        "What the disturbers got. \"Left over\" is the share of its rate alone for which the victim leaves processor time.\n\n\
         | disturber | broker | alone, 1/s | beside, 1/s | of alone | left over | of what is left over | p99 alone, ms | p99 beside, ms | \
         disk read alone, MiB/s | beside |\n|---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for point in &report.points {
        let Some(disturber) = point.name.strip_prefix(BESIDE) else {
            continue;
        };
        let Some(alone) = point_of(report, &format!("{disturber} alone")) else {
            continue;
        };
        for (which, name) in names(report).iter().enumerate() {
            let _ = writeln!(
                page,
                "| {disturber} | {name} | {} |",
                disturber_row(report, disturber, alone, point, which, processors).join(" | ")
            );
        }
    }
    page.push('\n');
}

fn disturber_row(
    report: &Report,
    disturber: &str,
    alone: &Point,
    beside: &Point,
    which: usize,
    processors: &Processors,
) -> Vec<String> {
    let (alone, beside) = (&alone.on[which], &beside.on[which]);
    let rate = |one: &Measurement| group(one, disturber).map(|group| group.records_per_second);
    let rates = |on: &OnTarget| middle(on.measurements.iter().filter_map(rate));
    let kept: Vec<f64> = (beside.measurements.iter().zip(&alone.measurements))
        .filter_map(|(beside, alone)| Some(rate(beside)? / rate(alone)?))
        .filter(|ratio| ratio.is_finite())
        .collect();
    let left = point_of(report, ALONE).and_then(|victim| left_over(&victim.on[which], alone, processors));
    let of_left = middle(kept.iter().copied())
        .zip(left)
        .map(|(kept, left)| kept / left);
    let p99 = |on: &OnTarget| {
        let times = on.measurements.iter().filter_map(|one| {
            let group = group(one, disturber)?;
            let latency = group.latency.as_ref().or(group.service.as_ref())?;
            Some(latency.percentiles.p99)
        });
        middle(times).map_or_else(dash, number)
    };
    vec![
        rates(alone).map_or_else(dash, number),
        rates(beside).map_or_else(dash, number),
        middle(kept.iter().copied()).map_or_else(dash, percent),
        left.map_or_else(dash, percent),
        of_left.map_or_else(dash, percent),
        p99(alone),
        p99(beside),
        median(alone, "broker_read_mib_per_second"),
        median(beside, "broker_read_mib_per_second"),
    ]
}

fn group<'a>(one: &'a Measurement, name: &str) -> Option<&'a GroupResult> {
    one.requests
        .iter()
        .chain(&one.consumers)
        .find(|group| group.name == name)
}

/// The share of the neighbour's resources, when alone, that the victim leaves free: the minimum
/// over the resources that both use.
fn left_over(victim: &OnTarget, disturber: &OnTarget, processors: &Processors) -> Option<f64> {
    let used = |on: &OnTarget, process| middle(on.measurements.iter().map(|one| cores(one, process)));
    let share = |process, count: usize| {
        let (taken, wanted) = (used(victim, process)?, used(disturber, process)?);
        let free = (count as f64 - taken).max(0.0);
        Some(if wanted > 0.0 {
            (free / wanted).min(1.0)
        } else {
            1.0
        })
    };
    match processors.is_pinned() {
        true => {
            let broker = share(Some("broker"), processors.brokers.len())?;
            let generator = share(Some("generator"), processors.clients.len())?;
            Some(broker.min(generator))
        }
        false => share(None, processors.brokers.len()),
    }
}

/// Processors kept busy by one process, or by all that were watched.
fn cores(one: &Measurement, process: Option<&str>) -> f64 {
    let watched = one.processes.iter();
    let seconds = watched
        .filter(|watched| process.is_none_or(|name| watched.name == name))
        .fold(0.0, |sum, watched| sum + watched.cpu_seconds);
    match one.seconds > 0.0 {
        true => seconds / one.seconds,
        false => 0.0,
    }
}

/// Returns each remark once, with the points that it applies to.
fn remarks(report: &Report) -> Vec<String> {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for point in &report.points {
        for (on, name) in point.on.iter().zip(names(report)) {
            let reasons = on
                .verdict
                .reasons
                .iter()
                .map(|reason| format!("INVALID: {reason}"));
            // Expectations that do not hold are printed in bold.
            let caveats = on
                .verdict
                .caveats
                .iter()
                .filter(|text| !text.contains(" does not hold: "));
            for text in reasons.chain(caveats.cloned()) {
                let place = format!("{} ({name})", point.name);
                places.entry(text).or_default().push(place);
            }
        }
    }
    let all = report.points.iter().map(|point| point.on.len()).sum::<usize>();
    let told = places
        .into_iter()
        .map(|(text, places)| match places.len() == all {
            true => format!("everywhere: {text}"),
            false => format!("{}: {text}", places.join(", ")),
        });
    told.collect()
}

fn point_of<'a>(report: &'a Report, name: &str) -> Option<&'a Point> {
    report.points.iter().find(|point| point.name == name)
}

fn median(on: &OnTarget, figure: &str) -> String {
    on.figure(figure).map_or_else(dash, number)
}

fn spread(on: &OnTarget, figure: &str) -> String {
    let values = on
        .measurements
        .iter()
        .filter_map(|one| one.figures.get(figure).copied());
    median(on, figure) + &range(&values.collect::<Vec<f64>>())
}

fn range(values: &[f64]) -> String {
    if values.len() < 2 {
        return String::new();
    }
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    format!(" [{}, {}]", number(low), number(high))
}

fn struck(on: &OnTarget, text: &str) -> String {
    match on.verdict.is_valid() {
        true => text.to_owned(),
        false => format!("~~{text}~~"),
    }
}

fn middle(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let at = values.len() / 2;
    match values.len() {
        0 => None,
        count if count % 2 == 1 => Some(values[at]),
        _ => Some((values[at - 1] + values[at]) / 2.0),
    }
}

fn dash() -> String {
    String::from("-")
}

#[cfg(test)]
mod tests;
