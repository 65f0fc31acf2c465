//! Sentences with figures and links; names that clients chose; addresses of pages.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use ottla_lab::markup::Markup;
use ottla_lab::numbers::{count, number};
use ottla_wire::text::printable;

/// A piece of a sentence.
#[derive(Clone, Debug, PartialEq)]
pub enum Piece {
    Text(String),
    /// What the sentence is about: at most two or three of them.
    Strong(String),
    Link {
        to: String,
        text: String,
    },
    Code(String),
}

pub fn text(text: impl Into<String>) -> Piece {
    Piece::Text(text.into())
}

pub fn strong(text: impl Into<String>) -> Piece {
    Piece::Strong(text.into())
}

pub fn link(to: impl Into<String>, text: impl Into<String>) -> Piece {
    Piece::Link {
        to: to.into(),
        text: text.into(),
    }
}

/// The sentence without markup, for JSON.
pub fn plain(sentence: &[Piece]) -> String {
    let of = |piece: &Piece| match piece {
        Piece::Text(text) | Piece::Strong(text) | Piece::Code(text) | Piece::Link { text, .. } => {
            text.clone()
        }
    };
    sentence.iter().map(of).collect()
}

pub fn write(sentence: &[Piece], page: &mut Markup) {
    for piece in sentence {
        match piece {
            Piece::Text(text) => page.text(text),
            Piece::Strong(text) => page.inline("b", &[], text),
            Piece::Code(text) => page.inline("code", &[], text),
            Piece::Link { to, text } => page.inline("a", &[("href", to)], text),
        }
    }
}

/// The longest name that is shown; Kafka's own limit for topics is 249.
const NAME_CHARS_MAX: usize = 300;

/// A name from the network: without characters that hide, reorder or break what stands beside it.
pub fn name(name: &str) -> String {
    let shown = printable(name);
    match shown.char_indices().nth(NAME_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &shown[..end]),
        None if shown.is_empty() => String::from("(no name)"),
        None => shown.into_owned(),
    }
}

/// The address of a page: `/topics/a%2Fb`.
pub fn address(place: &str, name: &str) -> String {
    format!("/{place}/{}", encoded(name))
}

/// RFC 3986, 2.3: everything but unreserved characters is encoded, so that a name is one segment
/// of a path or one value of a query. A name of dots alone would be a place in the path (5.2.4), so
/// its dots are encoded, too; ".json" at its end would ask for another format.
pub fn encoded(name: &str) -> String {
    let keeps_dots = name.bytes().any(|byte| byte != b'.') && !name.ends_with(".json");
    let mut out = String::with_capacity(name.len());
    for byte in name.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'~' => out.push(char::from(byte)),
            b'.' if keeps_dots => out.push('.'),
            other => out.push_str(&format!("%{other:02X}")),
        }
    }
    out
}

/// Keys of the rows of one list, for the script: rows change their places, and a focused one must
/// stay what it was. Rows of the same name are told apart by their order.
#[derive(Debug, Default)]
pub struct Keys(BTreeMap<String, usize>);

impl Keys {
    pub fn of(&mut self, parts: &[&str]) -> String {
        // A client chooses names of up to 32 KiB; a hash that collides swaps two rows, no more.
        let mut hasher = DefaultHasher::new();
        parts.hash(&mut hasher);
        let key = format!("{:016x}", hasher.finish());
        let before = self.0.entry(key.clone()).or_default();
        *before += 1;
        match before {
            1 => key,
            nth => format!("{key}-{nth}"),
        }
    }
}

/// The reverse; `None` for what is not UTF-8 or has a broken escape.
pub fn decoded(text: &str, plus_is_space: bool) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'%' => {
                let (high, low) = (bytes.next()?, bytes.next()?);
                let digit = |byte: u8| char::from(byte).to_digit(16);
                out.push((digit(high)? * 16 + digit(low)?) as u8);
            }
            b'+' if plus_is_space => out.push(b' '),
            other => out.push(other),
        }
    }
    String::from_utf8(out).ok()
}

/// `41,280`, and `0.4` for little.
pub fn rate(per_second: f64) -> String {
    match per_second {
        rate if rate >= 10.0 => count(rate.round() as u64),
        rate if rate < 0.005 => String::from("0"),
        rate => number((rate * 100.0).round() / 100.0),
    }
}

/// `0 to 5, 7`: partitions in their order, neighbours together.
pub fn ranges(partitions: &[i32]) -> String {
    const SHOWN_MAX: usize = 8;
    let together = partitions.chunk_by(|one, next| one.checked_add(1) == Some(*next));
    let runs: Vec<&[i32]> = together.collect();
    let shown = runs.iter().take(SHOWN_MAX).map(|run| match run {
        [first, .., last] => format!("{first} to {last}"),
        run => run.iter().map(i32::to_string).collect(),
    });
    let shown = shown.collect::<Vec<String>>().join(", ");
    match runs.iter().skip(SHOWN_MAX).map(|run| run.len()).sum() {
        0 => shown,
        more => format!("{shown} and {} more", count(more as u64)),
    }
}

/// `1 client`, `14 clients`.
pub fn counted(many: usize, what: &str) -> String {
    match many {
        1 => format!("1 {what}"),
        many => format!("{} {what}s", count(many as u64)),
    }
}

/// `14:32:05`, in universal time: the browser's zone is not the broker's.
pub fn clock(at_ms: i64) -> String {
    let seconds = at_ms.div_euclid(1_000).rem_euclid(86_400);
    format!(
        "{:02}:{:02}:{:02}",
        seconds / 3_600,
        seconds / 60 % 60,
        seconds % 60
    )
}

/// `14:32:05.118`.
pub fn clock_ms(at_ms: i64) -> String {
    format!("{}.{:03}", clock(at_ms), at_ms.rem_euclid(1_000))
}

/// `2026-11-23`, by the civil calendar.
pub fn date(at_ms: i64) -> String {
    let days = at_ms.div_euclid(86_400_000) + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_name_is_one_segment_and_comes_back() {
        for name in [
            "a/b?c#d%e",
            ".",
            "..",
            "<img onerror=1>",
            "å\u{202e}b",
            "report.json",
            "",
            "a b+c",
        ] {
            let encoded = encoded(name);
            assert!(!encoded.contains(['/', '?', '#', '<', ' ', '+']), "{encoded}");
            assert!(!matches!(&*encoded, "." | "..") && !encoded.ends_with(".json"));
            assert_eq!(decoded(&encoded, true).as_deref(), Some(name));
        }
        assert_eq!(
            (decoded("%zz", false), decoded("%C3", false), decoded("%", false)),
            (None, None, None)
        );
    }

    #[test]
    fn names_cannot_hide_reorder_or_flood() {
        assert!(!name("a\u{202e}b\u{200b}\n").contains(['\u{202e}', '\n']));
        assert_eq!(name(&"x".repeat(30_000)).chars().count(), NAME_CHARS_MAX + 1);
        assert_eq!(name(""), "(no name)");
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!((&*date(0), &*clock_ms(1)), ("1970-01-01", "00:00:00.001"));
        assert_eq!(date(951_782_400_000), "2000-02-29");
        assert_eq!(
            (&*date(1_793_385_598_000), &*clock(-1_000)),
            ("2026-10-30", "23:59:59")
        );
    }

    #[test]
    fn partitions_are_listed_as_ranges_and_not_without_end() {
        assert_eq!(ranges(&[]), "");
        assert_eq!(ranges(&[3]), "3");
        assert_eq!(ranges(&[0, 1, 2, 5, 7, 8]), "0 to 2, 5, 7 to 8");
        let apart: Vec<i32> = (0..100).map(|index| index * 2).collect();
        assert_eq!(ranges(&apart), "0, 2, 4, 6, 8, 10, 12, 14 and 92 more");
        assert_eq!(ranges(&[i32::MAX - 1, i32::MAX]), "2147483646 to 2147483647");
    }

    #[test]
    fn rates_keep_what_can_be_seen() {
        let rates = [0.0, 0.004, 0.4, 9.999, 41_280.4].map(rate);
        assert_eq!(rates, ["0", "0", "0.4", "10", "41,280"]);
    }
}
