//! What is needed to reproduce the run: the command, the machine, the calibration, the scenario.

use super::table::{Table, facts};
use crate::markup::Markup;
use crate::numbers;
use crate::report::{Machine, Percentiles, Report};

pub(super) fn draw(report: &Report, page: &mut Markup) {
    let manifest = &report.manifest;
    page.leaf("h2", &[], "Run it again");
    page.leaf("pre", &[("id", &"command")], &manifest.command);
    draw_calibration(report, page);
    page.nest("details", &[("id", &"manifest")], |page| {
        page.leaf("summary", &[], "Manifest");
        facts(
            &[
                ("Report", report.schema.clone()),
                ("Started", format!("{} (UTC)", utc(manifest.started_at))),
                ("Ottla", manifest.ottla_version.clone()),
                (
                    "Commit",
                    manifest.commit.clone().unwrap_or_else(|| String::from("unknown")),
                ),
            ],
            page,
        );
        draw_machine(&manifest.machine, page);
        page.leaf("h4", &[], "The scenario as it was run");
        page.leaf("pre", &[], &manifest.scenario_text);
    });
}

fn draw_machine(machine: &Machine, page: &mut Markup) {
    let [one, five, fifteen] = machine.load_average;
    facts(
        &[
            ("Kernel", machine.kernel.clone()),
            (
                "Processors",
                format!("{} × {}", machine.processors, machine.processor),
            ),
            (
                "Governor",
                machine
                    .governor
                    .clone()
                    .unwrap_or_else(|| String::from("not told")),
            ),
            ("Memory", numbers::bytes(machine.memory_bytes as f64)),
            ("Load before", format!("{one} {five} {fifteen}")),
            (
                "Busy before",
                format!("{} of the processors", numbers::percent(machine.busy_before)),
            ),
            ("File system", machine.filesystem.clone()),
            ("Sync", probe(&machine.sync_micros)),
            ("Round trip", probe(&machine.network_round_trip_micros)),
        ],
        page,
    );
}

fn probe(micros: &Percentiles) -> String {
    if micros.count == 0 {
        return String::from("could not be measured");
    }
    format!(
        "p50 {} µs, p99 {} µs, max {} µs, of {}",
        numbers::number(micros.p50),
        numbers::number(micros.p99),
        numbers::number(micros.max),
        micros.count
    )
}

fn draw_calibration(report: &Report, page: &mut Markup) {
    if report.calibration.is_empty() {
        page.leaf("p", &[], "The generator was not calibrated.");
        return;
    }
    page.leaf("h2", &[], "What the generator can do alone");
    let mut table = Table::of(&[
        "record, bytes",
        "records/s",
        "CPU per million records, s",
        "scheduled records/s",
        "sent late by, p99",
    ]);
    for calibration in &report.calibration {
        table.row(vec![
            calibration.record_bytes.to_string(),
            numbers::number(calibration.records_per_second),
            numbers::number(calibration.cpu_seconds_per_million),
            numbers::number(calibration.scheduled_rate),
            format!("{} µs", numbers::number(calibration.schedule_error_p99_micros)),
        ]);
    }
    table.draw(page);
}

/// Formats `2026-03-01 12:30:59`.
fn utc(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Years are counted from March, so that a leap day is the last of its year: 719,468 days from
    // 0000-03-01 to the epoch.
    let days = days.min(3_000_000) + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + 400 * era + u64::from(month <= 2);
    let (hour, minute, second) = (rest / 3_600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_dates() {
        assert_eq!(utc(0), "1970-01-01 00:00:00");
        assert_eq!(utc(951_827_696), "2000-02-29 12:34:56");
        assert_eq!(utc(1_772_368_259), "2026-03-01 12:30:59");
        assert!(utc(u64::MAX).len() > 10);
    }
}
