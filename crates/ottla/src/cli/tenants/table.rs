//! The heaviest tenants as a table, in the style of Kafka's tools.

use ottla_lab::tenants::document::Document;

use super::figures::{self, HEADS, LEGEND};
use crate::cli::doctor::text::{Paper, cut, wrap};
use crate::cli::table::align;

/// The name and the kind.
const TEXT_COLUMNS: usize = 2;

/// Longer names are cut so that the figures stay on the page; JSON has the full names.
const NAME_LETTERS_MAX: usize = 40;

/// Renders the page.
///
/// - `top`: number of tenants shown; 0 for all.
pub fn render(document: &Document, top: usize, paper: Paper) -> String {
    if document.tenants.is_empty() {
        return String::from("no client has connected yet\n");
    }
    let shown = match top {
        0 => document.tenants.len(),
        top => top.min(document.tenants.len()),
    };
    let mut out = String::new();
    for (number, line) in lines(document, shown).into_iter().enumerate() {
        let line = line.trim_end();
        match number {
            0 => out.push_str(&paper.faint(line)),
            _ => out.push_str(line),
        }
        out.push('\n');
    }
    let hidden = document.tenants.len() - shown;
    if hidden > 0 {
        out.push_str(&format!("and {hidden} more: --top 0 shows all\n"));
    }
    let mut paragraphs = vec![figures::summary(document) + "."];
    paragraphs.extend(figures::sentences(document));
    for paragraph in &paragraphs {
        out.push('\n');
        for line in wrap(paragraph, paper.width) {
            out.push_str(&line);
            out.push('\n');
        }
    }
    out.push('\n');
    for line in wrap(LEGEND, paper.width) {
        out.push_str(&paper.faint(&line));
        out.push('\n');
    }
    out
}

/// Returns the headings and one line for each of the first `shown` tenants: names left-aligned,
/// figures right-aligned.
pub fn lines(document: &Document, shown: usize) -> Vec<String> {
    let mut rows: Vec<[String; HEADS.len()]> = vec![HEADS.map(String::from)];
    for tenant in document.tenants.iter().take(shown) {
        let mut row = figures::row(document, tenant);
        row[0] = cut(&row[0], NAME_LETTERS_MAX);
        rows.push(row);
    }
    align(&rows, TEXT_COLUMNS)
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;
    use crate::cli::doctor::text::letters;

    const PAPER: Paper = Paper {
        width: 120,
        is_coloured: false,
    };

    #[test]
    fn the_table_shows_the_cost_of_each_tenant() {
        let text = render(&sample(), 20, PAPER);
        let expected = [
            "TENANT  KIND       CONN  SHARE  BEFORE   REQ/S   REC/S  IN-MB/S  OUT-MB/S  COLD-MB/S  INFLICTED  SUFFERED",
            "batch   client-id    40   41 %     0 %  18,200  54,600        6         1          0        500        10",
            "orders  user          1    5 %     0 %   1,000  20,000       20      0.01        0.1          2       500",
            "",
            "2 event loops, 92 % busy in the last 60 s; 2 tenants.",
        ];
        let found: Vec<&str> = text.lines().take(expected.len()).collect();
        assert_eq!(found, expected, "\n{text}");
        assert!(text.contains("queueing factor from 11.5 to 1.23"), "{text}");
    }

    #[test]
    fn the_number_of_hidden_tenants_is_printed() {
        let text = render(&sample(), 1, PAPER);
        assert!(text.contains("and 1 more") && !text.contains("orders"), "{text}");
        assert!(render(&sample(), 0, PAPER).contains("orders"));
    }

    #[test]
    fn a_clients_name_cannot_move_the_cursor_or_a_column() {
        let mut document = sample();
        document.tenants[0].name = format!("\x1b[2J\n{}", "x".repeat(200));
        let lines = lines(&document, 2);
        assert!(lines.iter().all(|line| !line.contains('\x1b')));
        assert_eq!(letters(&lines[1]), letters(&lines[2]));
    }
}
