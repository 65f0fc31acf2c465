//! The doctor's promises on one page: the latest first, one line each, with the reason below where
//! a promise was not kept.

use ottla_lab::doctor::diagnosis::Examination;
use ottla_lab::doctor::promises::{Promises, Row, Score};
use ottla_lab::doctor::severity::Severity;
use ottla_lab::numbers::number;

use super::{Paper, clean, cut, wrap};
use crate::cli::table::align;

/// Longer names and settings are cut so that the figures stay on the page.
const NAME_LETTERS_MAX: usize = 32;
const SETTING_LETTERS_MAX: usize = 40;

const HEADS: [&str; 7] = [
    "score", "client", "role", "change", "before", "promised", "measured",
];

/// The columns of text, before those of figures.
const TEXT_COLUMNS: usize = 4;

/// A promise is repeated beside its client's diagnosis for this long.
const LATELY_MS: i64 = 3_600_000;

/// Renders the page.
pub fn render(promises: &Promises, paper: Paper) -> String {
    let mut out = String::new();
    if !promises.promises.is_empty() {
        let mut rows = vec![HEADS.map(String::from)];
        rows.extend(promises.promises.iter().map(cells));
        let lines = align(&rows, TEXT_COLUMNS);
        out.push_str(&paper.faint(lines[0].trim_end()));
        out.push('\n');
        for (row, line) in promises.promises.iter().zip(&lines[1..]) {
            // The score is the first thing on the line.
            let name = row.score.name();
            out.push_str(
                &line
                    .trim_end()
                    .replacen(name, &painted(row.score, name, paper), 1),
            );
            out.push('\n');
            for text in explanations(row) {
                indent(&text, paper, &mut out);
            }
        }
        out.push('\n');
    }
    for line in wrap(&promises.summary(), paper.width) {
        out.push_str(&line);
        out.push('\n');
    }
    out
}

/// The sentences about promises that were decided lately, one for each client that has one.
pub fn lately(promises: &Promises, examination: &Examination) -> Vec<(usize, String)> {
    let since_ms = examination.at_ms - LATELY_MS;
    let clients = examination.clients.iter().enumerate();
    let sentences = clients.filter_map(|(place, client)| {
        let instance = client.instance_id.as_deref();
        let row = promises.decided_lately(&client.client_id, instance, client.role, since_ms)?;
        Some((place, row.sentence()))
    });
    sentences.collect()
}

fn cells(row: &Row) -> [String; HEADS.len()] {
    [
        row.score.name().to_owned(),
        cut(&row.client_id, NAME_LETTERS_MAX),
        row.role.name().to_owned(),
        cut(&row.set, SETTING_LETTERS_MAX),
        row.before.map_or_else(|| String::from("–"), number),
        clean(&row.promised()),
        row.after.map_or_else(|| String::from("–"), number),
    ]
}

fn painted(score: Score, name: &str, paper: Paper) -> String {
    let severity = match score {
        Score::Kept | Score::Exceeded => Severity::Good,
        Score::NotKept => Severity::Limited,
        Score::NotTested => Severity::Inefficient,
        Score::Open | Score::Measuring | Score::Unknown => Severity::Unknown,
    };
    paper.severe(severity, name)
}

fn explanations(row: &Row) -> Vec<String> {
    let texts = [("Applied: ", &row.applied), ("Because ", &row.because)];
    let texts = texts.into_iter().filter(|(_, text)| !text.is_empty());
    texts.map(|(head, text)| format!("{head}{text}.")).collect()
}

pub fn indent(text: &str, paper: Paper, out: &mut String) {
    for line in wrap(text, paper.width.saturating_sub(2)) {
        out.push_str("  ");
        out.push_str(&line);
        out.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::doctor::sample;

    const PAPER: Paper = Paper {
        width: 100,
        is_coloured: false,
    };

    fn row(client_id: &str, score: Score) -> Row {
        Row {
            client_id: client_id.into(),
            set: "batch.size=16384".into(),
            unit: "records/s".into(),
            before: Some(1_597.0),
            low: 4_000.0,
            high: 4_000.0,
            score,
            ..Row::default()
        }
    }

    fn promises() -> Promises {
        let kept = Row {
            after: Some(3_980.0),
            applied: "a new instance; the largest batch grew from 4,050 to 16,200 bytes".into(),
            instance_after: Some("5tqAxl0GTx2WJmZ2cqxIVw".into()),
            decided_ms: Some(1_759_999_000_000),
            ..row("orders-writer", Score::Kept)
        };
        let failed = Row {
            after: Some(2_100.0),
            because: "NETWORK_WINDOW: 64 KiB fill the window".into(),
            ..row("audit", Score::NotKept)
        };
        Promises {
            promises: vec![kept, failed, row("\x1b[2Jlate", Score::Open)],
            kept: 5,
            not_kept: 1,
            not_tested: 1,
            ..Promises::default()
        }
    }

    #[test]
    fn every_promise_has_a_line_and_the_reason_below() {
        let expected = "\
score     client         role      change            before         promised  measured
kept      orders-writer  producer  batch.size=16384   1,597  4,000 records/s     3,980
  Applied: a new instance; the largest batch grew from 4,050 to 16,200 bytes.
not kept  audit          producer  batch.size=16384   1,597  4,000 records/s     2,100
  Because NETWORK_WINDOW: 64 KiB fill the window.
open      \\u{1b}[2Jlate  producer  batch.size=16384   1,597  4,000 records/s         –

7 promises: 5 kept, 1 not kept, 1 not tested; 1 waiting for the client to come back with the
setting.
";
        assert_eq!(render(&promises(), PAPER), expected);
    }

    #[test]
    fn without_promises_the_page_says_so() {
        let text = render(&Promises::default(), PAPER);
        assert_eq!(text, "No promise has been decided.\n");
    }

    #[test]
    fn the_sentence_of_a_client_is_that_of_its_own_instance() {
        let found = lately(&promises(), &sample::examination());
        let expected = "Promised 4,000 records/s by batch.size=16384; measured 3,980: kept.";
        assert_eq!(found, [(0, String::from(expected))]);
        let mut later = sample::examination();
        later.at_ms += LATELY_MS;
        assert!(lately(&promises(), &later).is_empty());
    }
}
