//! What rules write: symbols, lines of arithmetic, steps.

use crate::doctor::diagnosis::{Evidence, Step, Symbol, Words};
use crate::doctor::snapshot::{Origin, Setting};
use crate::doctor::used::{Used, UsedNumbers};

/// The origin of a setting, in one word.
pub(crate) fn origin(origin: Origin) -> &'static str {
    match origin {
        Origin::Stated => "stated",
        Origin::Told => "told by the client",
        Origin::Seen => "seen",
        Origin::Inferred => "inferred",
        Origin::Default => "default",
    }
}

pub(crate) fn measured(name: &'static str, value: f64, unit: &'static str) -> Symbol {
    Symbol {
        name: name.into(),
        value,
        unit: unit.into(),
        origin: "measured".into(),
    }
}

pub(crate) fn of_setting(name: &'static str, setting: Setting<f64>, unit: &'static str) -> Symbol {
    Symbol {
        origin: origin(setting.origin).into(),
        ..measured(name, setting.value, unit)
    }
}

/// A line of arithmetic; none where one of its numbers is not finite.
pub(crate) fn evidence(
    formula: &'static str,
    expression: &'static str,
    symbols: Vec<Symbol>,
    (name, result, unit): (&'static str, f64, &'static str),
) -> Option<Evidence> {
    let is_finite = result.is_finite() && symbols.iter().all(|symbol| symbol.value.is_finite());
    is_finite.then(|| Evidence {
        formula: formula.into(),
        expression: expression.into(),
        symbols,
        name: name.into(),
        result,
        unit: unit.into(),
    })
}

pub(crate) fn step(
    rule: &'static str,
    question: &'static str,
    numbers: impl Into<UsedNumbers>,
    answer: impl Into<Words>,
) -> Step {
    Step {
        rule: rule.into(),
        question: question.into(),
        numbers: numbers.into(),
        answer: answer.into(),
    }
}

/// A number that a step used, or that it is not known.
pub(crate) fn known(name: &'static str, value: Option<f64>, unit: &'static str) -> Used {
    Used::Number { name, value, unit }
}

/// A sentence's beginning in upper case.
pub(crate) fn capitalised(text: &str) -> String {
    let mut characters = text.chars();
    let first = characters.next().into_iter().flat_map(char::to_uppercase);
    first.chain(characters).collect()
}
