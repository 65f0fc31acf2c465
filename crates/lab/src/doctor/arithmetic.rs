//! Lines of arithmetic: a formula, its numbers, the result.

use std::fmt;

use super::diagnosis::{Evidence, Symbol, Words};
use super::rules::words;
use super::snapshot::{Origin, Setting};
use crate::numbers::number;

impl Evidence {
    /// Creates a line without symbols.
    ///
    /// - `formula`: such as `F8`; `name`: the result's symbol; `expression`: the formula in
    ///   symbols.
    pub fn new(
        formula: &'static str,
        name: impl Into<Words>,
        expression: impl Into<Words>,
        result: f64,
        unit: impl Into<Words>,
    ) -> Evidence {
        Evidence {
            formula: formula.into(),
            expression: expression.into(),
            symbols: Vec::new(),
            name: name.into(),
            result,
            unit: unit.into(),
        }
    }

    /// Adds a symbol of the expression.
    ///
    /// - `origin`: measured, stated, inferred, default, seen or assumed.
    #[must_use]
    pub fn with(
        mut self,
        name: impl Into<Words>,
        value: f64,
        unit: impl Into<Words>,
        origin: impl Into<Words>,
    ) -> Evidence {
        self.symbols.push(Symbol {
            name: name.into(),
            value,
            unit: unit.into(),
            origin: origin.into(),
        });
        self
    }

    /// Adds a symbol that the client or the broker measured.
    #[must_use]
    pub fn measured(self, name: impl Into<Words>, value: f64, unit: impl Into<Words>) -> Evidence {
        self.with(name, value, unit, "measured")
    }

    /// The expression with numbers in place of the symbols.
    pub fn substituted(&self) -> String {
        let mut text = String::with_capacity(self.expression.len());
        let mut rest = &*self.expression;
        while let Some(at) = rest.find(is_of_name) {
            text.push_str(&rest[..at]);
            let from = &rest[at..];
            let end = from
                .find(|character| !is_of_name(character))
                .unwrap_or(from.len());
            let word = from[..end].trim_end_matches('.');
            match self.symbols.iter().find(|symbol| symbol.name == word) {
                Some(symbol) => text.push_str(&number(symbol.value)),
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

/// `R_max = 1000 / L * M * N = 1000 / 9.8 * 5 * 3 = 1,531 requests/s`.
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
        write!(f, " = {}", number(self.result))?;
        if !self.unit.is_empty() {
            write!(f, " {}", self.unit)?;
        }
        Ok(())
    }
}

fn is_of_name(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '_' | '.' | '\'')
}

/// The value of a setting with its origin, or the default.
pub(crate) fn setting(of: Option<Setting<f64>>, default: f64) -> (f64, &'static str) {
    match of {
        Some(setting) if setting.value.is_finite() => (setting.value, words::origin(setting.origin)),
        _ => (default, words::origin(Origin::Default)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_replace_symbols() {
        let line = Evidence::new("F8", "R_max", "1000 / L * M * N", 1_530.6, "requests/s")
            .measured("L", 9.8, "ms")
            .with("M", 5.0, "", "default")
            .with("N", 3.0, "", "measured");
        assert_eq!(
            line.to_string(),
            "R_max = 1000 / L * M * N = 1000 / 9.8 * 5 * 3 = 1,531 requests/s"
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
        assert_eq!(dotted.substituted(), "min(M * request, 102,400) / 0.073.");
    }
}
