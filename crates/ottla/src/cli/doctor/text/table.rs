//! All clients on one page: the worst first, one line each, with a sentence for clients that are
//! not well.

use std::sync::Arc;

use ottla_lab::doctor::diagnosis::{Diagnosis, Examination, Seen};
use ottla_lab::doctor::promises::Promises;
use ottla_lab::doctor::severity::Severity;
use ottla_lab::numbers;

use super::promises::{indent, lately};
use super::{Paper, change, cut, letters, wrap};
use crate::cli::table::align;

/// Longer names are cut so that the verdict stays on the page.
const NAME_LETTERS_MAX: usize = 32;

const HEADS: [&str; 4] = ["client", "role", "verdict", "confidence"];

/// The head of the last column, which wraps.
const CHANGE: &str = "change";

/// A client that finds no broker that asks for metrics does not try again.
const NO_CLIENT: &str = "no client has been seen yet\n\
    \x20 On Apache Kafka its brokers need the plug-in (ottla doctor plugin), and clients that were\n\
    \x20 connected before it was there need a restart.\n";

/// Renders the page.
///
/// - Shape: `examination` is sorted.
/// - `promises`: repeated beside the clients that they were decided for lately.
pub fn render(examination: &Examination, promises: &Promises, paper: Paper) -> String {
    let clients = &examination.clients;
    if clients.is_empty() {
        return String::from(NO_CLIENT);
    }
    let mut rows = vec![HEADS.map(String::from)];
    rows.extend(clients.iter().map(|client| row(client)));
    let lines = align(&rows, HEADS.len());
    let mut out = String::new();
    let heads = format!("{}  {CHANGE}", lines[0]);
    out.push_str(&paper.faint(&heads));
    out.push('\n');
    let mut decided = lately(promises, examination).into_iter().peekable();
    for (place, (client, line)) in clients.iter().zip(&lines[1..]).enumerate() {
        draw(client, line, paper, &mut out);
        if let Some((_, sentence)) = decided.next_if(|(at, _)| *at == place) {
            indent(&sentence, paper, &mut out);
        }
    }
    out.push_str(&conclusion(clients));
    if let Some(sentence) = examination.seen.as_ref().and_then(visibility) {
        for line in wrap(&sentence, paper.width) {
            out.push_str(&line);
            out.push('\n');
        }
    }
    out
}

/// Names what is judged from the brokers' side alone; `None` where every client pushes.
fn visibility(seen: &Seen) -> Option<String> {
    if seen.pushing == seen.clients {
        return None;
    }
    let (pushing, clients) = (numbers::count(seen.pushing), numbers::count(seen.clients));
    Some(match seen.connections {
        Some(connections) => format!(
            "{} connections were seen by the broker. {pushing} of {clients} clients push metrics; the others are judged by what the broker saw.",
            numbers::count(connections)
        ),
        None => format!(
            "{pushing} of {clients} clients push metrics; of the others only what the cluster tells is known."
        ),
    })
}

fn row(client: &Diagnosis) -> [String; HEADS.len()] {
    [
        cut(&client.client_id, NAME_LETTERS_MAX),
        client.role.name().to_owned(),
        client.verdict.name().to_owned(),
        client.confidence.name().to_owned(),
    ]
}

fn draw(client: &Diagnosis, line: &str, paper: Paper, out: &mut String) {
    let severity = client.severity();
    let change = client
        .recommendation
        .as_ref()
        .map_or_else(|| String::from("–"), change);
    // The change gets the remaining width; a longer one goes on its own lines below.
    let is_long = letters(line) + 2 + letters(&change) > paper.width;
    let text = match is_long {
        true => line.to_owned(),
        false => format!("{line}  {change}"),
    };
    // The verdict is coloured after the columns are aligned, because colour codes have no width.
    let painted = text.replacen(
        client.verdict.name(),
        &paper.severe(severity, client.verdict.name()),
        1,
    );
    out.push_str(painted.trim_end());
    out.push('\n');
    if severity != Severity::Good {
        indent(&client.summary, paper, out);
    }
    if is_long {
        indent(&change, paper, out);
    }
}

fn conclusion(clients: &[Arc<Diagnosis>]) -> String {
    let bad: Vec<&Diagnosis> = clients
        .iter()
        .map(|client| &**client)
        .filter(|client| client.severity().is_bad())
        .collect();
    let of = match clients.len() {
        1 => String::from("1 client"),
        count => format!("{count} clients"),
    };
    match bad.as_slice() {
        [] => format!("\n{of}, none of them limited.\n"),
        [first, ..] => format!(
            "\n{} of {of} limited. Why: ottla doctor explain {}\n",
            bad.len(),
            super::clean(&first.client_id)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::doctor::sample;
    use ottla_lab::doctor::promises::{Row, Score};

    const PAPER: Paper = Paper {
        width: 100,
        is_coloured: false,
    };

    #[test]
    fn how_many_clients_push_nothing_is_said() {
        let mut examination = sample::examination();
        let mut page = |clients, connections| {
            examination.seen = Some(Seen {
                clients,
                pushing: 2,
                connections,
            });
            render(&examination, &Promises::default(), PAPER)
        };
        assert!(!page(2, Some(3)).contains("push"), "all push");
        let many = page(28_445, Some(30_000));
        let sentence = "30,000 connections were seen by the broker. 2 of 28,445 clients push metrics;";
        assert!(many.contains(sentence), "{many}");
        assert!(page(3, None).contains("2 of 3 clients push metrics; of the others only"));
    }

    #[test]
    fn clients_that_are_not_well_get_a_sentence() {
        let expected = "\
client         role      verdict      confidence  change
orders-writer  producer  SENDER_RATE  high        batch.size=32768: 83,550 → 100,000 records/s
  Requests leave at 91 % of the rate that their round trips allow, and every batch is full.
audit          producer  KEEPS_UP     medium      –

1 of 2 clients limited. Why: ottla doctor explain orders-writer
";
        assert_eq!(
            render(&sample::examination(), &Promises::default(), PAPER),
            expected
        );
    }

    #[test]
    fn a_promise_that_was_decided_lately_stands_below_its_client() {
        let examination = sample::examination();
        let decided = Row {
            client_id: "orders-writer".into(),
            instance_after: Some("5tqAxl0GTx2WJmZ2cqxIVw".into()),
            set: "linger.ms=5".into(),
            unit: "records/s".into(),
            low: 80_000.0,
            high: 80_000.0,
            after: Some(83_550.0),
            score: Score::Kept,
            decided_ms: Some(examination.at_ms - 1_000),
            ..Row::default()
        };
        let promises = Promises {
            promises: vec![decided],
            ..Promises::default()
        };
        let text = render(&examination, &promises, PAPER);
        let line = "\n  Promised 80,000 records/s by linger.ms=5; measured 83,550: kept.\naudit ";
        assert!(text.contains(line), "{text}");
    }

    #[test]
    fn a_narrow_page_puts_the_change_below() {
        let text = render(
            &sample::examination(),
            &Promises::default(),
            Paper { width: 60, ..PAPER },
        );
        assert!(text.lines().all(|line| letters(line) <= 64), "{text}");
        assert!(
            text.contains("\n  batch.size=32768: 83,550 → 100,000 records/s\n"),
            "{text}"
        );
    }

    #[test]
    fn an_empty_page_says_that_no_client_was_seen() {
        let mut examination = sample::examination();
        examination.clients.clear();
        assert_eq!(render(&examination, &Promises::default(), PAPER), NO_CLIENT);
    }

    #[test]
    fn colours_change_nothing_but_colour() {
        let coloured = render(
            &sample::examination(),
            &Promises::default(),
            Paper {
                is_coloured: true,
                ..PAPER
            },
        );
        assert!(coloured.contains("\x1b[31mSENDER_RATE\x1b[0m"), "{coloured}");
        let mut plain = coloured;
        for code in ["\x1b[31m", "\x1b[32m", "\x1b[2m", "\x1b[0m"] {
            plain = plain.replace(code, "");
        }
        assert_eq!(plain, render(&sample::examination(), &Promises::default(), PAPER));
    }
}
