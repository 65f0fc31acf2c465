//! The page: for each experiment the published result, the formulas' prediction and the
//! measurement.

use std::fmt::Write;

use ottla_lab::numbers::{duration, number, percent, percent_change};
use ottla_lab::report::{OnTarget, Point, Range, Report};

/// Figures shown if the source reports none: the first that was measured.
const INSTEAD: [&str; 3] = ["end_to_end_p99_ms", "latency_p99_ms", "records_per_second"];

pub fn write(reports: &[Report]) -> String {
    let mut page = String::from(
        "# The experiments of the sources, rerun\n\n\
         <!-- Written by `cargo xtask source-experiments`. -->\n\n\
         Every experiment of the five sources as a scenario of `ottla bench`, at the scale that the scenario uses on a small machine. The\n\
         source's own number, shown for reference, was measured at another scale. In each cell: measured, then in brackets what the formulas\n\
         predicted for this machine and how far outside that range the measurement is. Brokers were interleaved on one machine, over the\n\
         loopback or through a relay that adds delay; one round unless a spread is given. Figures of an INVALID run are struck through, and\n\
         the reason is given below the table.\n\n",
    );
    if let Some(report) = reports.first() {
        let machine = &report.manifest.machine;
        let _ = writeln!(
            page,
            "{} processors, {} GiB, {}, {}; a sync takes {} in the median, {} at p99.\n",
            machine.processors,
            machine.memory_bytes >> 30,
            machine.kernel,
            without_options(&machine.filesystem),
            duration(machine.sync_micros.p50 / 1e6),
            duration(machine.sync_micros.p99 / 1e6),
        );
    }
    for report in reports {
        section(&mut page, report);
    }
    page
}

fn section(page: &mut String, report: &Report) {
    let head = &report.scenario;
    let _ = writeln!(page, "## {}\n\n{}\n", head.name, head.question);
    if let Some(source) = &head.source {
        let _ = writeln!(page, "Source: {source}.");
    }
    let manifest = &report.manifest;
    let _ = writeln!(
        page,
        "Commit {}; processors {} busy before the run; `{}`.",
        manifest.commit.as_deref().unwrap_or("unknown"),
        percent(manifest.machine.busy_before),
        without_directories(&manifest.command),
    );
    let durability: Vec<String> = (manifest.targets.iter())
        .map(|target| format!("{}: {}", target.name, target.durability))
        .collect();
    let _ = writeln!(page, "Durability: {}.\n", durability.join("; "));
    page.push_str("| point | figure | source |");
    for target in &report.manifest.targets {
        let _ = write!(page, " {} |", target.name);
    }
    page.push_str(" the source's diagnosis; what the formulas say limits |\n|---|---|---|");
    page.push_str(&"---|".repeat(report.manifest.targets.len() + 1));
    page.push('\n');
    let mut remarks = Vec::new();
    for point in &report.points {
        rows(page, point);
        for (on, target) in point.on.iter().zip(&report.manifest.targets) {
            for reason in &on.verdict.reasons {
                let remark = format!("INVALID, {}, {}: {reason}", point.name, target.name);
                if !remarks.contains(&remark) {
                    remarks.push(remark);
                }
            }
            for failed in on.expectations.iter().filter(|expectation| !expectation.holds) {
                remarks.push(format!(
                    "{}, {}: expected {}, measured {}",
                    point.name,
                    target.name,
                    failed.text,
                    number(failed.measured)
                ));
            }
        }
    }
    page.push('\n');
    for remark in remarks {
        let _ = writeln!(page, "- {}", remark.replace('\n', " "));
    }
    page.push('\n');
}

/// Returns `ext4 on /dev/vda at /, rw,relatime` up to the comma.
pub fn without_options(filesystem: &str) -> &str {
    filesystem
        .split_once(", ")
        .map_or(filesystem, |(before, _)| before)
}

/// Returns a command with paths cut to their last part, independent of this machine.
fn without_directories(command: &str) -> String {
    let words: Vec<&str> = command
        .split(' ')
        .map(|word| match word.starts_with('/') {
            true => word.rsplit('/').next().unwrap_or(word),
            false => word,
        })
        .collect();
    words.join(" ")
}

fn rows(page: &mut String, point: &Point) {
    let is_measured = |name: &str| point.on.iter().any(|on| on.figure(name).is_some());
    let mut names: Vec<&str> = (point.source.keys().map(String::as_str))
        .filter(|name| is_measured(name))
        .collect();
    if names.is_empty() {
        names.extend(INSTEAD.into_iter().find(|name| is_measured(name)));
        names.extend((names.first() != Some(&"records_per_second")).then_some("records_per_second"));
    }
    for (index, name) in names.iter().enumerate() {
        let first = index == 0;
        let _ = write!(
            page,
            "| {} | {} | {} |",
            if first { point.name.as_str() } else { "" },
            name.replace('_', " "),
            point
                .source
                .get(*name)
                .map_or_else(String::new, |value| number(*value)),
        );
        for on in &point.on {
            let _ = write!(page, " {} |", cell(on, name));
        }
        let _ = writeln!(
            page,
            " {} |",
            if first { diagnosis(point) } else { String::new() }
        );
    }
}

fn diagnosis(point: &Point) -> String {
    let mut limits: Vec<&str> = (point.on.iter())
        .filter_map(|on| on.prediction.as_ref()?.limit.as_deref())
        .collect();
    limits.dedup();
    let own = point.diagnosis.as_deref().unwrap_or("");
    format!("{own}; {}", limits.join(", "))
        .trim_matches([';', ' '])
        .to_owned()
}

fn cell(on: &OnTarget, name: &str) -> String {
    let Some(measured) = on.figure(name) else {
        return String::from("-");
    };
    let values: Vec<f64> = (on.measurements.iter())
        .filter_map(|measurement| measurement.figures.get(name).copied())
        .collect();
    let mut text = number(measured);
    if values.len() > 1 {
        let low = values.iter().copied().fold(f64::INFINITY, f64::min);
        let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let _ = write!(text, " [{}, {}]", number(low), number(high));
    }
    if !on.verdict.is_valid() {
        text = format!("~~{text}~~");
    }
    if let Some(range) = (on.prediction.as_ref()).and_then(|prediction| prediction.figures.get(name)) {
        let _ = write!(text, " ({})", predicted(*range, measured));
    }
    text
}

fn predicted(range: Range, measured: f64) -> String {
    let error = range.error_percent(measured);
    let ends = match range.low == range.high {
        true => number(range.low),
        false => format!("{} to {}", number(range.low), number(range.high)),
    };
    match error.abs() < 0.5 {
        true => ends,
        false => format!("{ends}, {}", percent_change(error / 100.0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_significant_digits() {
        let shown: Vec<String> = [0.0, 0.126, 13.72, 678_113.4, 1_234_567.0, -1_234.0, -123.0]
            .map(number)
            .into();
        assert_eq!(
            shown,
            ["0", "0.126", "13.7", "678,113", "1,234,567", "-1,234", "-123"]
        );
    }

    #[test]
    fn a_command_is_shown_without_paths_of_one_machine() {
        assert_eq!(
            without_directories("/somewhere/ottla bench run acks --output /else/where"),
            "ottla bench run acks --output where"
        );
        assert_eq!(
            without_options("ext4 on /dev/vda at /, rw,relatime"),
            "ext4 on /dev/vda at /"
        );
    }

    #[test]
    fn a_prediction_shows_its_error_only_where_there_is_one() {
        let range = Range {
            low: 10.0,
            high: 20.0,
        };
        assert_eq!(predicted(range, 15.0), "10 to 20");
        assert_eq!(predicted(range, 22.0), "10 to 20, +10 %");
        assert_eq!(predicted(Range::exactly(10.0), 9.0), "10, -10 %");
    }
}
