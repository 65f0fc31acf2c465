//! Calculators and predictions as text: the answer first, then its derivation.

use ottla_lab::doctor::calculator::formula::{Calculation, Calculator, Presence};
use ottla_lab::doctor::calculator::predict::Prediction;

use super::{Paper, clean, explain, letters, promise, wrap};

pub fn render(calculation: &Calculation, paper: Paper) -> String {
    let mut out = String::new();
    for line in wrap(&calculation.answer, paper.width) {
        out.push_str(&paper.bold(&line));
        out.push('\n');
    }
    if !calculation.lines.is_empty() {
        out.push('\n');
        out.push_str(&explain::arithmetic(&calculation.lines, paper));
    }
    out.push_str(&notes(&calculation.notes, paper));
    out
}

/// Renders the predicted effects of a change on one client, and what stays the same.
pub fn prediction(prediction: &Prediction, paper: Paper) -> String {
    let mut out = String::new();
    for change in &prediction.changes {
        let from = change
            .from
            .as_ref()
            .map_or_else(String::new, |from| format!("{} → ", clean(from)));
        let text = format!("{}: {from}{}", clean(&change.set), clean(&change.to));
        out.push_str(&format!("{}\n", paper.bold(&text)));
    }
    if prediction.changed.is_empty() {
        out.push_str("  nothing changes\n");
    }
    let figure = |text: &str| clean(&text.replace('_', " "));
    let width = prediction
        .changed
        .iter()
        .map(|changed| letters(&figure(&changed.figure)))
        .max()
        .unwrap_or(0);
    for changed in &prediction.changed {
        let assumption = match changed.assumption.as_str() {
            "" => String::new(),
            text => format!(" ({})", clean(text)),
        };
        out.push_str(&format!(
            "  {:width$}  {}{assumption}\n",
            figure(&changed.figure),
            promise(changed)
        ));
    }
    if !prediction.next_ceiling.is_empty() {
        for line in wrap(
            &format!("then {}", prediction.next_ceiling),
            paper.width.saturating_sub(2),
        ) {
            out.push_str(&format!("  {line}\n"));
        }
    }
    if !prediction.lines.is_empty() {
        out.push_str(&format!("\n{}\n", paper.bold("The arithmetic")));
        out.push_str(&explain::arithmetic(&prediction.lines, paper));
    }
    if !prediction.unchanged.is_empty() {
        out.push_str(&format!("\n{}\n", paper.bold("What does not change")));
        for refusal in &prediction.unchanged {
            for line in wrap(
                &format!("{}: {}", refusal.set, refusal.why),
                paper.width.saturating_sub(2),
            ) {
                out.push_str(&format!("  {line}\n"));
            }
        }
    }
    if !prediction.missing.is_empty() {
        out.push_str(&format!("\n{}\n", paper.bold("What is missing to be sure")));
        for missing in &prediction.missing {
            for line in wrap(missing, paper.width.saturating_sub(2)) {
                out.push_str(&format!("  {line}\n"));
            }
        }
    }
    out.push_str(&notes(&prediction.notes, paper));
    out
}

fn notes(notes: &[String], paper: Paper) -> String {
    let mut out = String::new();
    for note in notes {
        for (index, line) in wrap(note, paper.width.saturating_sub(6)).iter().enumerate() {
            let head = if index == 0 { "\nnote" } else { "    " };
            out.push_str(&format!("{head}  {line}\n"));
        }
    }
    out
}

/// Renders the list of calculators with their inputs.
pub fn list(calculators: &[Calculator], paper: Paper) -> String {
    let mut out = String::new();
    for calculator in calculators {
        out.push_str(&format!(
            "{}  {}\n",
            paper.bold(calculator.name),
            calculator.question
        ));
        let width = calculator
            .inputs
            .iter()
            .map(|input| letters(input.name))
            .max()
            .unwrap_or(0);
        for input in calculator.inputs {
            let presence = match input.presence {
                Presence::Required => String::new(),
                Presence::Optional => String::from(" [optional]"),
                Presence::Default(value) => format!(" [default: {value}]"),
            };
            out.push_str(&format!(
                "  {:width$}  {}, {}{presence}\n",
                input.name, input.what, input.dimension
            ));
        }
        out.push('\n');
    }
    out
}
