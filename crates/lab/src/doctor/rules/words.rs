//! Formatting for rules: numbers with their significant digits, lines of arithmetic, steps.

use crate::doctor::diagnosis::{Evidence, Step, Symbol};
use crate::doctor::snapshot::{Origin, Setting};

/// Three significant digits, with thousands separated: `83 550`, `12.6`, `0.91`, `0.0042`.
pub fn number(value: f64) -> String {
    if !value.is_finite() {
        return if value.is_nan() { "unknown" } else { "unlimited" }.to_owned();
    }
    let size = value.abs();
    let decimals = match size {
        _ if size >= 100.0 || size == 0.0 => 0,
        _ if size >= 10.0 => 1,
        _ if size >= 0.1 => 2,
        _ if size >= 0.01 => 3,
        _ => 4,
    };
    let text = format!("{value:.decimals$}");
    let (whole, rest) = text.split_once('.').unwrap_or((&text, ""));
    let rest = rest.trim_end_matches('0');
    let point = if rest.is_empty() { "" } else { "." };
    format!("{}{point}{rest}", thousands(whole))
}

fn thousands(digits: &str) -> String {
    let (sign, digits) = match digits.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", digits),
    };
    let mut text = String::from(sign);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) && digits.len() > 4 {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// Formats `0.973` as `97 %`.
pub(crate) fn percent(share: f64) -> String {
    format!("{} %", number(100.0 * share))
}

/// Formats bytes for people: `16 KiB` where it is a whole number of KiB, else `45.5 kB`, `12.7 MB`.
pub(crate) fn bytes(value: f64) -> String {
    const KIB: f64 = 1_024.0;
    if value >= KIB && value % KIB == 0.0 && value < 1_024.0 * KIB {
        format!("{} KiB", number(value / KIB))
    } else if value >= KIB * KIB && value % (KIB * KIB) == 0.0 {
        format!("{} MiB", number(value / KIB / KIB))
    } else if value >= 1e6 {
        format!("{} MB", number(value / 1e6))
    } else if value >= 1e4 {
        format!("{} kB", number(value / 1e3))
    } else {
        format!("{} bytes", number(value))
    }
}

/// The value of a setting as a configuration file takes it: no thousands separators, no unit.
pub(crate) fn plain(value: f64) -> String {
    format!("{:.0}", value)
}

/// The origin of a setting, in one word.
pub(crate) fn origin(origin: Origin) -> &'static str {
    match origin {
        Origin::Stated => "stated",
        Origin::Seen => "seen",
        Origin::Inferred => "inferred",
        Origin::Default => "default",
    }
}

pub(crate) fn measured(name: &str, value: f64, unit: &str) -> Symbol {
    Symbol {
        name: name.to_owned(),
        value,
        unit: unit.to_owned(),
        origin: "measured".to_owned(),
    }
}

pub(crate) fn of_setting(name: &str, setting: Setting<f64>, unit: &str) -> Symbol {
    Symbol {
        origin: origin(setting.origin).to_owned(),
        ..measured(name, setting.value, unit)
    }
}

/// A line of arithmetic; none where one of its numbers is not finite.
pub(crate) fn evidence(
    formula: &str,
    expression: &str,
    symbols: Vec<Symbol>,
    (name, result, unit): (&str, f64, &str),
) -> Option<Evidence> {
    let is_finite = result.is_finite() && symbols.iter().all(|symbol| symbol.value.is_finite());
    is_finite.then(|| Evidence {
        formula: formula.to_owned(),
        expression: expression.to_owned(),
        symbols,
        name: name.to_owned(),
        result,
        unit: unit.to_owned(),
    })
}

pub(crate) fn step(rule: &str, question: &str, numbers: &[String], answer: impl Into<String>) -> Step {
    Step {
        rule: rule.to_owned(),
        question: question.to_owned(),
        numbers: numbers.join("; "),
        answer: answer.into(),
    }
}

/// Returns `name = 12.6 ms`, or that the value is not known.
pub(crate) fn known(name: &str, value: Option<f64>, unit: &str) -> String {
    match value {
        Some(value) if unit.is_empty() => format!("{name} = {}", number(value)),
        Some(value) => format!("{name} = {} {unit}", number(value)),
        None => format!("{name} unknown"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_digits_that_they_mean() {
        for (value, expected) in [
            (83_550.4, "83 550"),
            (1_391.0, "1391"),
            (12.64, "12.6"),
            (0.905, "0.91"),
            (5.0, "5"),
            (0.0042, "0.0042"),
            (-12_345.0, "-12 345"),
            (f64::INFINITY, "unlimited"),
        ] {
            assert_eq!(number(value), expected);
        }
        assert_eq!(bytes(16_384.0), "16 KiB");
        assert_eq!(bytes(45_469.0), "45.5 kB");
        assert_eq!(plain(32_768.0), "32768");
    }
}
