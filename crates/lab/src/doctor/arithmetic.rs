//! Lines of arithmetic: a formula, the numbers put into it, what comes out.

use std::fmt;

use super::diagnosis::{Evidence, Symbol};
use super::snapshot::{Origin, Setting};

impl Evidence {
    /// A line without symbols yet.
    ///
    /// - `formula`: `F8`; `name`: what is worked out; `expression`: in symbols.
    pub fn new(formula: &str, name: &str, expression: &str, result: f64, unit: &str) -> Evidence {
        Evidence {
            formula: formula.to_owned(),
            expression: expression.to_owned(),
            symbols: Vec::new(),
            name: name.to_owned(),
            result,
            unit: unit.to_owned(),
        }
    }

    /// With a symbol of the expression.
    ///
    /// - `origin`: measured, stated, inferred, default, seen or assumed.
    #[must_use]
    pub fn with(mut self, name: &str, value: f64, unit: &str, origin: &str) -> Evidence {
        self.symbols.push(Symbol {
            name: name.to_owned(),
            value,
            unit: unit.to_owned(),
            origin: origin.to_owned(),
        });
        self
    }

    /// With a symbol that the client or the broker measured.
    #[must_use]
    pub fn measured(self, name: &str, value: f64, unit: &str) -> Evidence {
        self.with(name, value, unit, "measured")
    }

    /// The expression with numbers in the place of symbols.
    pub fn substituted(&self) -> String {
        let mut text = String::with_capacity(self.expression.len());
        let mut rest = self.expression.as_str();
        while let Some(at) = rest.find(is_of_name) {
            text.push_str(&rest[..at]);
            let from = &rest[at..];
            let end = from
                .find(|character| !is_of_name(character))
                .unwrap_or(from.len());
            let word = from[..end].trim_end_matches('.');
            match self.symbols.iter().find(|symbol| symbol.name == word) {
                Some(symbol) => text.push_str(&figure(symbol.value)),
                None => text.push_str(word),
            }
            rest = &from[word.len().max(1)..];
            if word.is_empty() {
                text.push_str(&from[..1]);
            }
        }
        text.push_str(rest);
        text
    }
}

/// `R_max = 1000 / L * M * N = 1000 / 9.8 * 5 * 3 = 1531 requests/s`.
impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.name)?;
        if !self.expression.is_empty() && self.expression != self.name {
            write!(f, " = {}", self.expression)?;
            let substituted = self.substituted();
            if substituted != self.expression {
                write!(f, " = {substituted}")?;
            }
        }
        write!(f, " = {}", figure(self.result))?;
        if !self.unit.is_empty() {
            write!(f, " {}", self.unit)?;
        }
        Ok(())
    }
}

fn is_of_name(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '_' | '.' | '\'')
}

impl Origin {
    /// As symbols name it.
    pub fn word(self) -> &'static str {
        match self {
            Origin::Stated => "stated",
            Origin::Seen => "seen",
            Origin::Inferred => "inferred",
            Origin::Default => "default",
        }
    }
}

/// The value of a setting with where it is from, or the default.
pub(crate) fn setting(of: Option<Setting<f64>>, default: f64) -> (f64, &'static str) {
    match of {
        Some(setting) if setting.value.is_finite() => (setting.value, setting.origin.word()),
        _ => (default, Origin::Default.word()),
    }
}

/// A number as people write it: three or more figures, no exponent.
pub fn figure(value: f64) -> String {
    if value.is_nan() {
        return String::from("unknown");
    }
    if value.is_infinite() {
        return String::from(if value > 0.0 { "unbounded" } else { "-unbounded" });
    }
    let decimals = match value.abs() {
        size if size >= 100.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 1.0 => 2,
        size if size >= 0.1 => 3,
        size if size >= 0.01 => 4,
        size if size >= 1e-6 => 6,
        _ => 0,
    };
    let text = format!("{value:.decimals$}");
    let text = match text.split_once('.') {
        Some(_) => text.trim_end_matches('0').trim_end_matches('.'),
        None => &text,
    };
    // A small negative number rounds to one that is none.
    String::from(if text == "-0" { "0" } else { text })
}

/// Bytes in the unit that suits their size: `4.78 MB`; MB are 10^6 bytes.
pub fn bytes(value: f64) -> String {
    let (divisor, unit) = match value.abs() {
        size if size >= 1e9 => (1e9, "GB"),
        size if size >= 1e6 => (1e6, "MB"),
        size if size >= 1e3 => (1e3, "kB"),
        _ => (1.0, "B"),
    };
    format!("{} {unit}", figure(value / divisor))
}

/// A time in the unit that suits it: `22 ms`, `3.2 h`.
pub fn duration(seconds: f64) -> String {
    let (divisor, unit) = match seconds.abs() {
        size if !size.is_finite() => return figure(seconds),
        size if size >= 2.0 * 86_400.0 => (86_400.0, "days"),
        size if size >= 2.0 * 3_600.0 => (3_600.0, "h"),
        size if size >= 120.0 => (60.0, "min"),
        size if size >= 1.0 || size == 0.0 => (1.0, "s"),
        size if size >= 1e-3 => (1e-3, "ms"),
        _ => (1e-6, "µs"),
    };
    format!("{} {unit}", figure(seconds / divisor))
}

/// A share as a percentage: `97 %`.
pub fn percent(share: f64) -> String {
    format!("{} %", figure((share * 1_000.0).round() / 10.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_in_the_place_of_symbols() {
        let line = Evidence::new("F8", "R_max", "1000 / L * M * N", 1_530.6, "requests/s")
            .measured("L", 9.8, "ms")
            .with("M", 5.0, "", "default")
            .with("N", 3.0, "", "measured");
        assert_eq!(
            line.to_string(),
            "R_max = 1000 / L * M * N = 1000 / 9.8 * 5 * 3 = 1531 requests/s"
        );
        let dotted = Evidence::new(
            "F12",
            "speed",
            "min(M * request, send.buffer.bytes) / RTT.",
            1.0,
            "",
        )
        .measured("send.buffer.bytes", 102_400.0, "B")
        .measured("RTT", 0.073, "s");
        assert_eq!(dotted.substituted(), "min(M * request, 102400) / 0.073.");
    }

    #[test]
    fn figures_are_short_and_honest() {
        for (value, text) in [
            (1_530.6, "1531"),
            (22.03, "22"),
            (9.8, "9.8"),
            (0.917, "0.917"),
            (0.0296, "0.0296"),
            (0.000_5, "0.0005"),
            (0.0, "0"),
            (-0.000_000_1, "0"),
            (f64::INFINITY, "unbounded"),
            (f64::NAN, "unknown"),
            (1_048_576.0, "1048576"),
        ] {
            assert_eq!(figure(value), text);
        }
        assert_eq!(bytes(4_780_000.0), "4.78 MB");
        assert_eq!(duration(0.022), "22 ms");
        assert_eq!(duration(719.0), "12 min");
        assert_eq!(percent(0.9704), "97 %");
    }
}
