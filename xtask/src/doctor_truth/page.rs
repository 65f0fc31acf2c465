//! docs/measurements/doctor-truth.md.

use std::fmt::Write;

use ottla_lab::numbers::{number, percent};

use super::regimes;
use super::score::{Score, confusion};
use super::trial::Row;
use crate::interop::clients::CLIENTS;

pub fn write(rows: &[Row], commit: &str, command: &str, machine: &[(String, String)]) -> String {
    let mut page = format!(
        "# Is the doctor right?\n\n\
         <!-- Written by `cargo xtask doctor-truth`. -->\n\n\
         Clients whose bottleneck is known because it was built, on Ottla and on Apache Kafka. The doctor is asked as soon as its verdict is\n\
         stable; then a fresh client runs with the change that it advises (a consumer at the end of the log: what is promised is what is written,\n\
         not how fast it makes up a lag), and another with the true remedy. Delayed ways are kernel TCP\n\
         between network namespaces. A promise counts as kept when the measurement is in its range, give or take 15 %, and the range is no wider\n\
         than a factor of 2; its error is the distance from the nearer end of the range, in percent of the measurement (median and worst\n\
         below). A promise of more than the client offers is not counted. The advised change is tried also where the verdict is wrong, and it\n\
         helped when it gained at least 10 % where the true remedy did. Latency is from send to callback. A promise\n\
         that no member polls late is held against how often the advised client's group went on without it. A row whose remedy gained\n\
         less than 10 % says nothing about the doctor and is not counted. Where a broker cannot tell what a client does (Apache Kafka, of a Java\n\
         client that has no room to push its metrics, or pushes none, and of producers by librdkafka and franz-go, which push no rate, and of\n\
         consumers by franz-go, which push nothing of polls and fetches), NOT_ENOUGH_DATA with what would tell is right too.\n\
         Clients of brokers that are used side by side run at the same time, unless a regime needs the processors or the disk; rows that left\n\
         each other too little of the processors are measured again. Java's clients run with the first tier of its compiler.\n\n\
         Commit {commit}, `{command}`.\n\n**{}.**\n\n",
        Score::of(rows)
    );
    page.push_str("| machine | |\n|---|---|\n");
    for (name, value) in machine {
        let _ = writeln!(page, "| {name} | {value} |");
    }
    page.push_str("\n## Verdicts\n\n| true | given | clients |\n|---|---|---|\n");
    for (truth, verdict, count) in confusion(rows) {
        let mark = if truth == verdict { "" } else { "**" };
        let _ = writeln!(page, "| {truth} | {mark}{verdict}{mark} | {count} |");
    }
    page.push_str(
        "\n## Every client\n\n\
         | regime | broker | client | verdict | as built | advice: promise, then measured | with the true remedy |\n\
         |---|---|---|---|---|---|---|\n",
    );
    for row in rows {
        let _ = writeln!(
            page,
            "| {} | {} | {} | {} | {} {} | {} | {} |",
            row.regime,
            row.broker,
            row.client,
            verdict(row),
            number(row.first),
            row.unit,
            advice(row),
            row.remedied.map_or_else(|| "-".to_owned(), number),
        );
    }
    page.push_str("\n## How the regimes are built\n\n");
    let mut last = "";
    for row in rows {
        if row.regime != last {
            let _ = writeln!(
                page,
                "- `{}`: {}. True: {}.",
                row.regime,
                row.construction,
                truth(rows, row)
            );
            last = &row.regime;
        }
    }
    page.push_str(&combinations());
    page
}

/// What is true of a row's regime, and where else.
fn truth(rows: &[Row], row: &Row) -> String {
    let mut groups: Vec<(String, Vec<String>)> = Vec::new();
    for other in rows.iter().filter(|other| other.regime == row.regime) {
        let (words, place) = (
            other.truth.join(" or "),
            format!("{} with {}", other.broker, other.client),
        );
        match groups.iter_mut().find(|(group, _)| *group == words) {
            Some((_, places)) => places.push(place),
            None => groups.push((words, vec![place])),
        }
    }
    if let [(words, _)] = &groups[..] {
        return words.clone();
    }
    let texts: Vec<String> = groups
        .into_iter()
        .map(|(words, places)| format!("{words} (on {})", places.join(", ")))
        .collect();
    texts.join("; ")
}

/// Which clients each regime runs with, and why not with the others.
fn combinations() -> String {
    let mut text = "\n## Which clients\n\n\
        A key that a library or its load program does not have cannot be the cause of anything there.\n\n| regime |"
        .to_owned();
    let columns = CLIENTS.map(|client| format!(" {} |", client.name())).concat();
    let _ = writeln!(text, "{columns}\n|---|{}", "---|".repeat(CLIENTS.len()));
    for regime in regimes::all() {
        let cells = CLIENTS.map(|client| {
            let why = regime.why_not(client).unwrap_or_else(|| "yes".to_owned());
            format!(" {why} |")
        });
        let _ = writeln!(text, "| `{}` |{}", regime.name, cells.concat());
    }
    text
}

fn verdict(row: &Row) -> String {
    match &row.invalid {
        Some(why) => format!("not counted: {why}"),
        None if row.is_right() => format!("{} ({})", row.verdict, row.confidence),
        None => format!(
            "**{} ({})**, true is {}",
            row.verdict,
            row.confidence,
            row.truth.join(" or ")
        ),
    }
}

fn advice(row: &Row) -> String {
    let Some(advice) = &row.advice else {
        return "-".to_owned();
    };
    let mut text = format!("{advice}: ");
    match &row.promise {
        Some(promise) if promise.unknown.is_none() => {
            let _ = write!(text, "{} to {}", number(promise.low), number(promise.high));
        }
        _ => text.push_str("not promised"),
    }
    if let Some(measured) = row.promised_figure.or(row.advised) {
        let mark = if row.is_promise_kept() == Some(false) {
            "**"
        } else {
            ""
        };
        let _ = write!(text, ", {mark}{}{mark}", number(measured));
    }
    if let Some(error) = row.promise_error().filter(|error| *error > 0.0) {
        let _ = write!(text, " (error {})", percent(error));
    }
    if row.is_above_offer() {
        text.push_str(" (not counted: more than is offered)");
    }
    if row.has_helped == Some(false) {
        text.push_str("; **did not help**");
    }
    for refusal in &row.false_refusals {
        let _ = write!(text, "; **refused: {refusal}**");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::trial::Promise;
    use super::*;

    fn row(measured: f64, offered: f64, has_helped: bool) -> Row {
        Row {
            advice: Some("batch.size=131072".into()),
            promise: Some(Promise {
                figure: "records_per_second".into(),
                low: 1_000.0,
                high: 1_500.0,
                unknown: None,
            }),
            promised_figure: Some(measured),
            offered: Some(offered),
            has_helped: Some(has_helped),
            ..Row::default()
        }
    }

    #[test]
    fn what_is_true_on_one_broker_only_says_on_which() {
        let place = |broker: &str, truth: &[&str]| Row {
            regime: "silent".into(),
            broker: broker.into(),
            client: "java".into(),
            truth: truth.iter().map(|&truth| truth.into()).collect(),
            ..Row::default()
        };
        let ottla = place("ottla", &["NETWORK_RTT"]);
        let kafka = place("kafka", &["NETWORK_RTT", "NOT_ENOUGH_DATA"]);
        let same = [ottla.clone(), place("kafka", &["NETWORK_RTT"])];
        assert_eq!(truth(&same, &ottla), "NETWORK_RTT");
        assert_eq!(
            truth(&[ottla.clone(), kafka], &ottla),
            "NETWORK_RTT (on ottla with java); NETWORK_RTT or NOT_ENOUGH_DATA (on kafka with java)"
        );
    }

    #[test]
    fn a_promise_stands_with_its_error_and_an_offer_below_it_is_marked() {
        let made = "batch.size=131072: 1,000 to 1,500, ";
        assert_eq!(advice(&row(1_200.0, 9_000.0, true)), format!("{made}1,200"));
        let missed = "**2,000** (error 25 %); **did not help**";
        assert_eq!(advice(&row(2_000.0, 9_000.0, false)), format!("{made}{missed}"));
        let modest = "500 (not counted: more than is offered)";
        assert_eq!(advice(&row(500.0, 500.0, true)), format!("{made}{modest}"));
    }
}
