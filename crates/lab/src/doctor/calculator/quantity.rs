//! Numbers with units: `64KiB`, `72ms`, `1Gbit/s`, `5MB/s`, `80%`.

use std::fmt;

use super::hint;

/// What a number measures; it decides which units may follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dimension {
    Bytes,
    Milliseconds,
    BytesPerSecond,
    /// Records or requests.
    PerSecond,
    Count,
    /// Between 0 and 1.
    Share,
}

/// A unit and its factor to the base unit. The first one is the base, which a bare number is in.
type Units = &'static [(&'static str, f64)];

const BYTES: Units = &[
    ("B", 1.0),
    ("kB", 1e3),
    ("KB", 1e3),
    ("KiB", 1_024.0),
    ("MB", 1e6),
    ("MiB", 1_048_576.0),
    ("GB", 1e9),
    ("GiB", 1_073_741_824.0),
    ("TB", 1e12),
    ("TiB", 1_099_511_627_776.0),
];
const MILLISECONDS: Units = &[
    ("ms", 1.0),
    ("us", 1e-3),
    ("µs", 1e-3),
    ("ns", 1e-6),
    ("s", 1e3),
    ("min", 6e4),
    ("h", 3.6e6),
    ("d", 8.64e7),
];
const BYTES_PER_SECOND: Units = &[
    ("B/s", 1.0),
    ("kB/s", 1e3),
    ("KB/s", 1e3),
    ("KiB/s", 1_024.0),
    ("MB/s", 1e6),
    ("MiB/s", 1_048_576.0),
    ("GB/s", 1e9),
    ("GiB/s", 1_073_741_824.0),
    ("bit/s", 0.125),
    ("kbit/s", 125.0),
    ("Mbit/s", 125e3),
    ("Gbit/s", 125e6),
];
const PER_SECOND: Units = &[
    ("/s", 1.0),
    ("k", 1e3),
    ("k/s", 1e3),
    ("M", 1e6),
    ("M/s", 1e6),
    ("/min", 1.0 / 60.0),
    ("/h", 1.0 / 3_600.0),
];
const COUNT: Units = &[("", 1.0), ("k", 1e3), ("M", 1e6), ("G", 1e9)];
const SHARE: Units = &[("", 1.0), ("%", 0.01)];

impl Dimension {
    fn units(self) -> Units {
        match self {
            Dimension::Bytes => BYTES,
            Dimension::Milliseconds => MILLISECONDS,
            Dimension::BytesPerSecond => BYTES_PER_SECOND,
            Dimension::PerSecond => PER_SECOND,
            Dimension::Count => COUNT,
            Dimension::Share => SHARE,
        }
    }

    /// The unit of a bare number.
    pub fn base_unit(self) -> &'static str {
        self.units()[0].0
    }

    /// Reads a number and its unit, with or without a space between them; the result is in the base
    /// unit.
    ///
    /// - Errors: no number, no such unit (names the nearest one), or a number that makes no sense:
    ///   negative or infinite.
    pub fn parse(self, text: &str) -> Result<f64, String> {
        let text = text.trim();
        let end = text
            .find(|character: char| {
                !(character.is_ascii_digit() || matches!(character, '.' | '_' | '-' | '+'))
            })
            .unwrap_or(text.len());
        // `1e6` is a number, `1e` is not; no unit begins with e.
        let end = exponent_end(text, end);
        let (number, unit) = (text[..end].replace('_', ""), text[end..].trim());
        let value: f64 = number
            .parse()
            .map_err(|_| format!("{text:?} is no number; {self} is meant"))?;
        let factor = self.factor(unit).ok_or_else(|| {
            let known: Vec<&str> = self
                .units()
                .iter()
                .map(|unit| unit.0)
                .filter(|unit| !unit.is_empty())
                .collect();
            let near = hint(unit, known.iter().copied());
            if known.is_empty() {
                format!("{text:?}: {self} has no unit")
            } else {
                format!(
                    "{unit:?} in {text:?} is no unit of {self}; known are {}{near}",
                    known.join(", ")
                )
            }
        })?;
        let value = value * factor;
        if !value.is_finite() || value < 0.0 {
            return Err(format!("{text:?} cannot be {self}"));
        }
        if self == Dimension::Share && value > 1.0 {
            return Err(format!("{text:?} is more than 100 %"));
        }
        Ok(value)
    }

    fn factor(self, unit: &str) -> Option<f64> {
        if unit.is_empty() {
            return Some(1.0);
        }
        let units = self.units();
        units.iter().find(|known| known.0 == unit).map(|known| known.1)
    }
}

/// The end of `1e6`, if there is one.
fn exponent_end(text: &str, end: usize) -> usize {
    let rest = &text[end..];
    let Some(power) = rest.strip_prefix(['e', 'E']) else {
        return end;
    };
    let digits = power.bytes().take_while(u8::is_ascii_digit).count();
    if digits == 0 { end } else { end + 1 + digits }
}

impl fmt::Display for Dimension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Dimension::Bytes => "a size in bytes",
            Dimension::Milliseconds => "a time in ms",
            Dimension::BytesPerSecond => "a rate in bytes per second",
            Dimension::PerSecond => "a number per second",
            Dimension::Count => "a count",
            Dimension::Share => "a share between 0 and 1",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_converted() {
        for (dimension, text, value) in [
            (Dimension::Bytes, "64KiB", 65_536.0),
            (Dimension::Bytes, "102_400", 102_400.0),
            (Dimension::Bytes, "1 MB", 1e6),
            (Dimension::Milliseconds, "72ms", 72.0),
            (Dimension::Milliseconds, "1.5s", 1_500.0),
            (Dimension::Milliseconds, "350us", 0.35),
            (Dimension::BytesPerSecond, "1Gbit/s", 125e6),
            (Dimension::BytesPerSecond, "5MB/s", 5e6),
            (Dimension::PerSecond, "1e5", 100_000.0),
            (Dimension::PerSecond, "60/min", 1.0),
            (Dimension::PerSecond, "10k/s", 10_000.0),
            (Dimension::Count, "16", 16.0),
            (Dimension::Count, "5k", 5_000.0),
            (Dimension::Share, "92%", 0.92),
            (Dimension::Share, "0.5", 0.5),
        ] {
            let read = dimension.parse(text).unwrap();
            assert!((read - value).abs() < 1e-9 * value.max(1.0), "{text}: {read}");
        }
    }

    #[test]
    fn what_is_no_quantity_is_told() {
        for (dimension, text, part) in [
            (Dimension::Bytes, "64Kib", "KiB may be meant"),
            (Dimension::Bytes, "many", "is no number"),
            (Dimension::Bytes, "-1KiB", "cannot be"),
            (Dimension::Bytes, "1e999", "cannot be"),
            (Dimension::Milliseconds, "3KiB", "no unit of a time"),
            (Dimension::Share, "120%", "more than 100 %"),
            (Dimension::PerSecond, "5e", "no unit"),
            (Dimension::Count, "", "is no number"),
        ] {
            let error = dimension.parse(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
