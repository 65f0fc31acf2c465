//! Calculators: each answers one question by formulas, from numbers with units that its user gives.

mod sending;
mod memory;
mod serving;
mod reading;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::quantity::Dimension;
use super::{Invalid, VERSION, assignment, hint};
use crate::doctor::diagnosis::{Evidence, Symbol};

/// A question that a calculator answers.
#[derive(Clone, Copy, Debug)]
pub struct Calculator {
    /// For example `throughput`.
    pub name: &'static str,
    pub question: &'static str,
    /// The formulas that it uses.
    pub formulas: &'static str,
    pub inputs: &'static [Input],
    work_out: fn(&Inputs) -> Answer,
}

/// A number that a calculator takes as `name=value`.
#[derive(Clone, Copy, Debug)]
pub struct Input {
    pub name: &'static str,
    pub what: &'static str,
    pub dimension: Dimension,
    pub presence: Presence,
}

/// What happens when a number is not given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    Required,
    /// Results that depend on it are left out or unlimited.
    Optional,
    /// Kafka's default, in the form of an argument.
    Default(&'static str),
}

/// A question with its answer and arithmetic.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Calculation {
    pub version: u32,
    pub name: String,
    /// The numbers that were used, given and defaults.
    pub inputs: Vec<Symbol>,
    pub lines: Vec<Evidence>,
    /// The result as a sentence.
    pub answer: String,
    pub notes: Vec<String>,
}

/// Returns all calculators, in the order of the listing.
pub fn calculators() -> &'static [Calculator] {
    &[
        sending::THROUGHPUT,
        sending::REQUEST_CEILING,
        sending::WINDOW,
        memory::BUFFER_TIME,
        serving::REPLICATION_LOAD,
        serving::QUEUEING,
        serving::COLD_READS,
        serving::SCALING,
        sending::SYNCHRONOUS,
        reading::CATCH_UP,
        reading::COMMITS,
    ]
}

/// Answers the question called `name` with arguments of the form `rtt=72ms`.
///
/// - Errors: an unknown name or input (names the nearest one), a number that cannot be read, a
///   required number that is missing, a number that is given twice.
pub fn calculate<S: AsRef<str>>(name: &str, arguments: &[S]) -> Result<Calculation, Invalid> {
    let calculator = calculators()
        .iter()
        .find(|known| known.name == name)
        .ok_or_else(|| {
            let names = || calculators().iter().map(|known| known.name);
            let near = hint(name, names());
            let all: Vec<&str> = names().collect();
            Invalid(format!(
                "{name:?} is not a formula{near}; known are {}",
                all.join(", ")
            ))
        })?;
    let inputs = Inputs::read(calculator, arguments)?;
    let mut answer = (calculator.work_out)(&inputs);
    // JSON has no number for "unbounded"; the answer says it in words.
    answer
        .lines
        .retain(|line| line.result.is_finite() && line.symbols.iter().all(|symbol| symbol.value.is_finite()));
    Ok(Calculation {
        version: VERSION,
        name: name.to_owned(),
        inputs: inputs.symbols(calculator),
        lines: answer.lines,
        answer: answer.text,
        notes: answer.notes,
    })
}

struct Answer {
    lines: Vec<Evidence>,
    text: String,
    notes: Vec<String>,
}

struct Inputs {
    /// The value in the base unit, and its origin.
    values: BTreeMap<&'static str, (f64, &'static str)>,
}

impl Inputs {
    fn read<S: AsRef<str>>(calculator: &Calculator, arguments: &[S]) -> Result<Inputs, Invalid> {
        let mut values = BTreeMap::new();
        for argument in arguments {
            let (name, text) = assignment(argument.as_ref())?;
            let input = calculator
                .inputs
                .iter()
                .find(|input| input.name == name)
                .ok_or_else(|| unknown_input(calculator, name))?;
            let value = input
                .dimension
                .parse(text)
                .map_err(|message| Invalid(format!("{name}: {message}")))?;
            if values.insert(input.name, (value, "stated")).is_some() {
                return Err(Invalid(format!("{name} is given twice")));
            }
        }
        for input in calculator.inputs {
            match input.presence {
                Presence::Default(text) => {
                    let value = input
                        .dimension
                        .parse(text)
                        .expect("the defaults in this file parse");
                    values.entry(input.name).or_insert((value, "default"));
                }
                Presence::Required if !values.contains_key(input.name) => {
                    return Err(Invalid(format!(
                        "{} needs {}: {}, {}",
                        calculator.name, input.name, input.what, input.dimension
                    )));
                }
                Presence::Required | Presence::Optional => {}
            }
        }
        Ok(Inputs { values })
    }

    fn symbols(&self, calculator: &Calculator) -> Vec<Symbol> {
        let given = calculator.inputs.iter().filter_map(|input| {
            let (value, origin) = *self.values.get(input.name)?;
            Some(Symbol {
                name: input.name.into(),
                value,
                unit: input.dimension.base_unit().into(),
                origin: origin.into(),
            })
        });
        given.collect()
    }

    fn maybe(&self, name: &str) -> Option<f64> {
        self.values.get(name).map(|value| value.0)
    }

    /// The value of a required input or of one with a default.
    fn value(&self, name: &str) -> f64 {
        self.maybe(name).expect("required inputs and defaults are there")
    }

    fn origin(&self, name: &str) -> &'static str {
        self.values.get(name).map_or("assumed", |value| value.1)
    }
}

fn unknown_input(calculator: &Calculator, name: &str) -> Invalid {
    let names: Vec<&str> = calculator.inputs.iter().map(|input| input.name).collect();
    let near = hint(name, names.iter().copied());
    Invalid(format!(
        "{} takes no {name}{near}; it takes {}",
        calculator.name,
        names.join(", ")
    ))
}

const fn required(name: &'static str, what: &'static str, dimension: Dimension) -> Input {
    Input {
        name,
        what,
        dimension,
        presence: Presence::Required,
    }
}

const fn optional(name: &'static str, what: &'static str, dimension: Dimension) -> Input {
    Input {
        name,
        what,
        dimension,
        presence: Presence::Optional,
    }
}

const fn preset(name: &'static str, what: &'static str, dimension: Dimension, text: &'static str) -> Input {
    Input {
        name,
        what,
        dimension,
        presence: Presence::Default(text),
    }
}

#[cfg(test)]
mod tests;
