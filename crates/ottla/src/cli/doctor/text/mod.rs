//! Diagnoses as text: numbers, lines and colours shared by all outputs.

pub mod table;
pub mod promises;
pub mod calculation;
pub mod explain;

use std::io::IsTerminal;

use ottla_broker::text::printable;
use ottla_lab::doctor::diagnosis::{Promise, Recommendation};
use ottla_lab::doctor::severity::Severity;
use ottla_lab::numbers::number;

/// The width of output that is not a terminal.
const WIDTH: usize = 100;

/// Longer lines are hard to read however wide the screen is.
const WIDTH_MAX: usize = 120;

/// The output medium: its width, and whether it shows colours.
#[derive(Clone, Copy, Debug)]
pub struct Paper {
    pub width: usize,
    pub is_coloured: bool,
}

impl Paper {
    /// Standard output.
    pub fn of_stdout() -> Paper {
        let is_terminal = std::io::stdout().is_terminal();
        let columns = ratatui::crossterm::terminal::size()
            .ok()
            .map(|(columns, _)| usize::from(columns));
        Paper {
            width: columns
                .filter(|_| is_terminal)
                .unwrap_or(WIDTH)
                .clamp(40, WIDTH_MAX),
            is_coloured: is_terminal && has_colours(),
        }
    }

    fn paint(self, code: &str, text: &str) -> String {
        match self.is_coloured {
            true => format!("\x1b[{code}m{text}\x1b[0m"),
            false => text.to_owned(),
        }
    }

    pub fn bold(self, text: &str) -> String {
        self.paint("1", text)
    }

    pub fn faint(self, text: &str) -> String {
        self.paint("2", text)
    }

    pub fn severe(self, severity: Severity, text: &str) -> String {
        let code = match severity {
            Severity::Failing => "1;31",
            Severity::Limited => "31",
            Severity::Inefficient => "33",
            Severity::Unknown => "2",
            Severity::Good => "32",
        };
        self.paint(code, text)
    }
}

/// <https://no-color.org>: set and not empty, it forbids them.
pub fn has_colours() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Escapes control characters: names and texts come from clients and must not move the cursor or
/// change colours.
pub fn clean(text: &str) -> String {
    printable(text).into_owned()
}

/// `9.8 ms`, `5`
pub fn quantity(value: f64, unit: &str) -> String {
    match unit {
        "" => number(value),
        unit => format!("{} {}", number(value), clean(unit)),
    }
}

/// Wraps text to lines of at most `width` characters; a longer word gets its own line.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace().map(clean) {
        match lines.last_mut() {
            Some(line) if letters(line) + 1 + letters(&word) <= width => {
                line.push(' ');
                line.push_str(&word);
            }
            _ => lines.push(word),
        }
    }
    lines
}

pub fn letters(text: &str) -> usize {
    text.chars().count()
}

/// Cuts text to `width` characters, with an ellipsis where something was removed.
pub fn cut(text: &str, width: usize) -> String {
    let text = clean(text);
    if letters(&text) <= width {
        return text;
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

/// `83,550 → 100,000 to 166,000 records/s`
pub fn promise(promise: &Promise) -> String {
    let range = clean(&promise.range());
    if promise.unknown.is_some() {
        return range;
    }
    let unit = match promise.unit.as_str() {
        "" => String::new(),
        unit => format!(" {}", clean(unit)),
    };
    match promise.now {
        Some(now) => format!("{} → {range}{unit}", number(now)),
        None => format!("{range}{unit}"),
    }
}

/// `batch.size=32768: 83,550 → 166,000 records/s`
pub fn change(recommendation: &Recommendation) -> String {
    format!(
        "{}: {}",
        clean(&recommendation.set),
        promise(&recommendation.promise)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantity_has_its_unit() {
        assert_eq!(quantity(9.8, "ms"), "9.8 ms");
        assert_eq!(quantity(5.0, ""), "5");
    }

    #[test]
    fn lines_are_no_wider_than_asked_unless_a_word_is() {
        assert_eq!(wrap("one two  three", 7), ["one two", "three"]);
        assert_eq!(wrap("abcdefgh i", 3), ["abcdefgh", "i"]);
        assert!(wrap(" ", 3).is_empty());
        assert_eq!(cut("abcdef", 4), "abc…");
        assert_eq!(cut("abcd", 4), "abcd");
    }

    #[test]
    fn text_from_clients_cannot_move_the_cursor() {
        assert_eq!(clean("a\x1b[2J\nb"), "a\\u{1b}[2J\\nb");
    }

    #[test]
    fn a_promise_is_a_range_from_where_it_starts() {
        let mut text = Promise {
            figure: "records_per_second".into(),
            now: Some(83_550.0),
            low: 100_000.0,
            high: 166_000.0,
            unit: "records/s".into(),
            ..Promise::default()
        };
        assert_eq!(promise(&text), "83,550 → 100,000 to 166,000 records/s");
        text.high = text.low;
        text.now = None;
        assert_eq!(promise(&text), "100,000 records/s");
        text.unknown = Some("how well these records compress".into());
        assert_eq!(promise(&text), "not known: how well these records compress");
    }
}
