//! Numbers and dates as Java's formatters write them, because scripts parse the lines of Kafka's
//! tools.

use std::fmt::Write;
use std::time::SystemTime;

use jiff::Zoned;

/// Formats like Java's `%.4f`, with `digits` decimals.
pub fn fixed(number: f64, digits: usize) -> String {
    if number.is_infinite() {
        let sign = if number < 0.0 { "-" } else { "" };
        return format!("{sign}Infinity");
    }
    format!("{number:.digits$}")
}

/// A pattern of `java.text.SimpleDateFormat`, with its common letters: `yMdHhmsSaEZ`.
#[derive(Clone, Debug, PartialEq)]
pub struct DateFormat {
    pieces: Vec<Piece>,
}

#[derive(Clone, Debug, PartialEq)]
enum Piece {
    Text(String),
    /// A letter and how often it is repeated.
    Field(char, usize),
}

impl DateFormat {
    /// Parses a pattern.
    ///
    /// - Errors: a letter that Java does not know or that is not supported here.
    pub fn parse(pattern: &str) -> Result<DateFormat, String> {
        let mut pieces: Vec<Piece> = Vec::new();
        let mut letters = pattern.chars().peekable();
        while let Some(letter) = letters.next() {
            if letter == '\'' {
                pieces.push(Piece::Text(quoted(&mut letters)?));
            } else if letter.is_ascii_alphabetic() {
                if !"yMdHhmsSaEZ".contains(letter) {
                    return Err(format!(
                        "the letter {letter} of the date format {pattern:?} is not supported"
                    ));
                }
                let mut count = 1;
                while letters.next_if_eq(&letter).is_some() {
                    count += 1;
                }
                pieces.push(Piece::Field(letter, count));
            } else {
                pieces.push(Piece::Text(letter.to_string()));
            }
        }
        Ok(DateFormat { pieces })
    }

    /// Formats in the machine's time zone.
    pub fn format(&self, time: SystemTime) -> String {
        match Zoned::try_from(time) {
            Ok(zoned) => self.format_zoned(&zoned),
            // Beyond the year 9999.
            Err(_) => String::from("?"),
        }
    }

    fn format_zoned(&self, time: &Zoned) -> String {
        let mut text = String::new();
        for piece in &self.pieces {
            match piece {
                Piece::Text(piece) => text.push_str(piece),
                Piece::Field(letter, count) => text.push_str(&field(time, *letter, *count)),
            }
        }
        text
    }
}

/// Reads quoted text after a quotation mark; two quotation marks stand for one.
fn quoted(letters: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Result<String, String> {
    let mut text = String::new();
    if letters.next_if_eq(&'\'').is_some() {
        return Ok(String::from("'"));
    }
    while let Some(letter) = letters.next() {
        if letter != '\'' {
            text.push(letter);
        } else if letters.next_if_eq(&'\'').is_some() {
            text.push('\'');
        } else {
            return Ok(text);
        }
    }
    Err(String::from("the date format has an unclosed quotation mark"))
}

fn field(time: &Zoned, letter: char, count: usize) -> String {
    let number = match letter {
        'y' if count == 2 => i64::from(time.year()).rem_euclid(100),
        'y' => time.year().into(),
        'M' if count >= 3 => return name(time, if count == 3 { "%b" } else { "%B" }),
        'M' => time.month().into(),
        'd' => time.day().into(),
        'H' => time.hour().into(),
        'h' => (i64::from(time.hour()) + 11) % 12 + 1,
        'm' => time.minute().into(),
        's' => time.second().into(),
        'S' => time.millisecond().into(),
        'a' => return String::from(if time.hour() < 12 { "AM" } else { "PM" }),
        'E' => return name(time, if count <= 3 { "%a" } else { "%A" }),
        _ => return name(time, "%z"),
    };
    let mut text = String::new();
    write!(text, "{number:0count$}").expect("a string takes what is written");
    text
}

fn name(time: &Zoned, format: &str) -> String {
    time.strftime(format).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pattern: &str, expected: &str) {
        let time = jiff::civil::date(2026, 3, 7).at(15, 4, 5, 67_000_000);
        let time = time.to_zoned(jiff::tz::TimeZone::UTC).unwrap();
        assert_eq!(DateFormat::parse(pattern).unwrap().format_zoned(&time), expected);
    }

    #[test]
    fn dates_are_written_as_java_writes_them() {
        check("yyyy-MM-dd HH:mm:ss:SSS", "2026-03-07 15:04:05:067");
        check("d.M.yy h:mm a", "7.3.26 3:04 PM");
        check("yyyy-MM-dd'T'HH:mm:ss.SSSZ", "2026-03-07T15:04:05.067+0000");
        check("EEE, d MMM yyyy", "Sat, 7 Mar 2026");
        check("h 'o''clock' ''", "3 o'clock '");
    }

    #[test]
    fn unsupported_patterns_are_refused() {
        assert!(DateFormat::parse("yyyy w").is_err());
        assert!(DateFormat::parse("'open").is_err());
    }

    #[test]
    fn infinity_and_nan_are_written_as_in_java() {
        assert_eq!(fixed(1.0 / 0.0, 4), "Infinity");
        assert_eq!(fixed(f64::NAN, 2), "NaN");
        assert_eq!(fixed(2.0, 4), "2.0000");
    }
}
