//! The lines of the screen. Sections share the rows that there are, the most urgent first.

use ottla_lab::doctor::diagnosis::Diagnosis;
use ottla_lab::numbers::{bytes, count, duration, number, percent};

use super::overview::{Api, Broker, GroupLag, Overview};
use crate::cli::doctor::text::{clean, cut, wrap};
use crate::cli::table::align;

/// The sentence at the top has at most this many rows.
const SUMMARY_ROWS_MAX: usize = 3;

/// Rows of a section, at most; on a low screen a share of what is left.
const ROWS_MAX: usize = 8;

/// Stages that are named behind a request.
const STAGES_MAX: usize = 3;

/// Longer names are cut so that the figures stay on the screen.
const NAME_LETTERS_MAX: usize = 32;

const UNKNOWN: &str = "-";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Title,
    Heading,
    Plain,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageLine {
    pub kind: Kind,
    pub text: String,
}

/// Renders the page.
pub fn lines(overview: &Overview, width: usize, rows: usize) -> Vec<PageLine> {
    let mut all = Vec::new();
    let summary = wrap(&clean(&overview.broker.summary), width);
    all.extend(summary.into_iter().take(SUMMARY_ROWS_MAX).map(|text| PageLine {
        kind: Kind::Title,
        text,
    }));
    all.push(plain(vitals(&overview.broker)));
    let sections = [
        clients(overview.broker.clients.as_deref().unwrap_or_default()),
        requests(&overview.broker.apis),
        groups(&overview.groups),
        tenants(overview),
    ];
    let sections: Vec<Vec<String>> = sections.into_iter().filter(|rows| rows.len() > 1).collect();
    // Each section has a blank line, its headings, and a share of the rest.
    let room = rows.saturating_sub(all.len() + 2 * sections.len());
    let share = (room / sections.len().max(1)).clamp(1, ROWS_MAX);
    for section in sections {
        all.push(plain(String::new()));
        for (place, text) in section.into_iter().take(share + 1).enumerate() {
            let kind = if place == 0 { Kind::Heading } else { Kind::Plain };
            all.push(PageLine { kind, text });
        }
    }
    for line in &mut all {
        line.text = cut(&line.text, width);
    }
    all.truncate(rows);
    all
}

fn plain(text: String) -> PageLine {
    PageLine {
        kind: Kind::Plain,
        text,
    }
}

fn vitals(broker: &Broker) -> String {
    let rate = |value: Option<f64>| value.map_or_else(|| UNKNOWN.to_owned(), number);
    let megabytes = |value: Option<f64>| rate(value.map(|value| value / 1e6));
    let disk = broker
        .disk
        .map(|disk| percent(disk.used_bytes as f64 / disk.total_bytes.max(1) as f64));
    let of = |text: Option<String>| text.unwrap_or_else(|| UNKNOWN.to_owned());
    format!(
        "in {} records/s, {} MB/s   out {} MB/s   cold reads {}/s   loops {}   connections {}   memory {}   disk {}",
        rate(broker.records_in_per_second),
        megabytes(broker.bytes_in_per_second),
        megabytes(broker.bytes_out_per_second),
        rate(broker.cold_reads_per_second),
        of(broker.event_loops_busy.map(|busy| percent(busy.clamp(0.0, 1.0)))),
        of(broker.connections.map(count)),
        of(broker.resident_memory_bytes.map(|memory| bytes(memory as f64))),
        of(disk),
    )
}

fn name(text: &str) -> String {
    cut(&clean(text), NAME_LETTERS_MAX)
}

/// The diagnoses come sorted, the worst first.
fn clients(all: &[Diagnosis]) -> Vec<String> {
    let mut rows = vec![["CLIENT", "ROLE", "VERDICT", "WHY", ""].map(String::from)];
    rows.extend(all.iter().take(ROWS_MAX).map(|client| {
        let change = client.recommendation.as_ref();
        let change = change.map_or_else(String::new, |change| format!("-> {}  ", clean(&change.set)));
        [
            name(&client.client_id),
            client.role.name().to_owned(),
            client.verdict.name().to_owned(),
            change,
            clean(&client.summary),
        ]
    }));
    align(&rows, 5)
}

/// By all the time that requests of the API took.
fn requests(apis: &[Api]) -> Vec<String> {
    let mut apis: Vec<&Api> = apis.iter().collect();
    let weight = |api: &Api| api.requests_per_second * api.own_mean_ms;
    apis.sort_by(|one, other| weight(other).total_cmp(&weight(one)));
    let mut rows = vec![["REQUEST", "PER-SECOND", "MEAN-MS", "P50", "P99", "SPENT-IN"].map(String::from)];
    rows.extend(apis.into_iter().take(ROWS_MAX).map(|api| {
        let quantile = |value: Option<f64>| value.map_or_else(|| UNKNOWN.to_owned(), number);
        [
            clean(&api.api),
            number(api.requests_per_second),
            number(api.own_mean_ms),
            quantile(api.own_p50_ms),
            quantile(api.own_p99_ms),
            stages(api),
        ]
    }));
    // The stages are text behind figures: their column begins where it is widest.
    align(&rows.clone().map_last_left(), 1)
}

/// Pads the last column to the right, so that it reads as text in a table of figures.
trait LastLeft {
    fn map_last_left(self) -> Self;
}

impl<const COLUMNS: usize> LastLeft for Vec<[String; COLUMNS]> {
    fn map_last_left(mut self) -> Self {
        let width = self.iter().map(|row| row[COLUMNS - 1].chars().count()).max();
        for row in &mut self {
            row[COLUMNS - 1] = format!("{:width$}", row[COLUMNS - 1], width = width.unwrap_or(0));
        }
        self
    }
}

/// Waits that a client asks for are no time of the broker's.
const ASKED_FOR: [&str; 3] = ["waited_for_data", "waited_for_group", "throttled"];

fn stages(api: &Api) -> String {
    let mut stages: Vec<(&String, f64)> = api
        .stage_means_ms
        .iter()
        .map(|(stage, ms)| (stage, *ms))
        .filter(|(stage, ms)| *ms >= 0.0005 && !ASKED_FOR.contains(&stage.as_str()))
        .collect();
    stages.sort_by(|one, other| other.1.total_cmp(&one.1));
    let named = stages.into_iter().take(STAGES_MAX);
    let named = named.map(|(stage, ms)| format!("{} {}", clean(stage), number(ms)));
    named.collect::<Vec<String>>().join(", ")
}

/// `418,461`, or `≥ 418,461` where not all partitions are counted.
fn records(lag: &GroupLag) -> String {
    let sign = if lag.group.cut_partitions > 0 { "≥ " } else { "" };
    format!("{sign}{}", count(lag.lag_records.max(0) as u64))
}

/// `12 s`, or `≥ 12 s` where it is not known of every partition.
fn time(lag: &GroupLag) -> String {
    match (lag.lag_seconds, lag.lag_seconds_known_max) {
        (Some(seconds), _) => duration(seconds),
        (None, Some(seconds)) if seconds > 0.0 => format!("≥ {}", duration(seconds)),
        _ => UNKNOWN.to_owned(),
    }
}

fn groups(all: &[GroupLag]) -> Vec<String> {
    let mut behind: Vec<&GroupLag> = all.iter().filter(|group| group.lag_records > 0).collect();
    // The age of one is not known: it has no order with the others, and records decide.
    let is_by_time = behind.iter().all(|group| group.lag_seconds.is_some());
    let seconds = |group: &GroupLag| group.lag_seconds.filter(|_| is_by_time).unwrap_or(0.0);
    behind.sort_by(|one, other| {
        let by_time = seconds(other).total_cmp(&seconds(one));
        by_time.then_with(|| other.lag_records.cmp(&one.lag_records))
    });
    let mut rows = vec![["GROUP-BEHIND", "RECORDS", "TIME", "MEMBERS"].map(String::from)];
    rows.extend(behind.into_iter().take(ROWS_MAX).map(|lag| {
        [
            name(&lag.group.group_id),
            records(lag),
            time(lag),
            count(lag.group.members.len() as u64),
        ]
    }));
    align(&rows, 1)
}

fn tenants(overview: &Overview) -> Vec<String> {
    let document = &overview.tenants;
    let heads = ["TENANT", "KIND", "SHARE", "REQ/S", "INFLICTED", "SUFFERED"];
    let mut rows = vec![heads.map(String::from)];
    rows.extend(document.tenants.iter().take(ROWS_MAX).map(|tenant| {
        let rates = document.rates(tenant);
        [
            name(&tenant.name),
            clean(&tenant.kind),
            percent(tenant.share),
            number(rates.requests),
            format!("{} ms/s", number(rates.inflicted_ms)),
            format!("{} ms/s", number(rates.suffered_ms)),
        ]
    }));
    align(&rows, 2)
}

#[cfg(test)]
mod tests {
    use super::super::overview::sample;
    use super::*;

    fn text(width: usize, rows: usize) -> String {
        let lines = lines(&sample(), width, rows);
        assert!(lines.len() <= rows, "{lines:?}");
        let text: Vec<String> = lines.into_iter().map(|line| line.text).collect();
        text.join("\n")
    }

    #[test]
    fn every_section_has_its_rows() {
        let page = text(140, 40);
        for part in [
            "41280 records/s",
            "SENDER_RATE",
            "-> batch.size=32768",
            "Produce",
            "synced 0.82, handled 0.14",
            "billing",
            "418461",
            "client-id",
        ] {
            let page = page
                .replace(',', "")
                .replace("synced 0.82 handled", "synced 0.82, handled");
            assert!(page.contains(part), "no {part} in\n{page}");
        }
        assert!(!page.contains("waited_for_data"), "{page}");
    }

    #[test]
    fn a_low_screen_has_something_of_everything() {
        let page = text(100, 16);
        for part in ["CLIENT", "REQUEST", "GROUP-BEHIND"] {
            assert!(page.contains(part), "no {part} in\n{page}");
        }
        assert!(page.lines().all(|line| line.chars().count() <= 100), "{page}");
    }

    #[test]
    fn names_are_no_commands_for_the_terminal() {
        assert!(!text(400, 60).contains('\u{1b}'));
    }

    /// A group without members, of which not all partitions were counted.
    #[test]
    fn a_lag_that_is_not_complete_is_marked_and_ages_that_are_not_known_leave_the_order_to_records() {
        let group = |id: &str, records: i64, seconds: Option<f64>, cut_partitions: usize| GroupLag {
            group: super::super::overview::Group {
                group_id: id.to_owned(),
                members: Vec::new(),
                cut_partitions,
            },
            lag_records: records,
            lag_seconds: seconds.filter(|_| cut_partitions == 0),
            lag_seconds_known_max: seconds,
        };
        let rows = groups(&[
            group("old", 5, Some(900.0), 0),
            group("many", 1_000, Some(12.0), 3),
        ]);
        assert!(
            rows[1].contains("many") && rows[1].contains("≥ 1,000") && rows[1].contains("≥ 12 s"),
            "{rows:?}"
        );
        assert!(rows[2].contains("old") && !rows[2].contains('≥'), "{rows:?}");
    }
}
