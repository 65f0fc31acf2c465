//! What rules write: symbols, lines of arithmetic, steps.

use crate::doctor::diagnosis::{Evidence, Step, Symbol};
use crate::doctor::snapshot::{Origin, Setting};
use crate::numbers::number;

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

/// A sentence's beginning in upper case.
pub(crate) fn capitalised(text: &str) -> String {
    let mut characters = text.chars();
    let first = characters.next().into_iter().flat_map(char::to_uppercase);
    first.chain(characters).collect()
}
