//! A scenario's answer to its own question: one sentence from the measured figures, or why there
//! is none.
//!
//! What is compared follows from the scenario: points that expect a figure relative to another
//! point, points of rising load, points that differ in one setting, clusters. Which figure: latency
//! where all sides held the same rate, otherwise throughput.
//!
//! Reading order: the modules below, from the entry point down to the foundations.

mod knee;
mod axes;
mod contrast;

use self::axes::Axis;
use self::contrast::{Contrast, Side};
use crate::numbers::number;
use crate::report::{Answer, Report};
use crate::scenario::expect;
use crate::scenario::sweep::ConcretePoint;

/// A sentence without its full stop; `Err`: why there is no answer.
type Told = Result<String, String>;

/// Answers from a report that is otherwise complete.
///
/// - `points`: those of the report, in its order.
/// - Shape: with several clusters one sentence has a part for each, unless there is one point: then
///   the clusters are compared.
pub fn of(points: &[ConcretePoint], report: &Report) -> Answer {
    let targets = &report.manifest.targets;
    let told = match report.verdict.reasons.as_slice() {
        [reason] => Err(format!("the run is INVALID: {reason}")),
        [reason, rest @ ..] => Err(format!(
            "the run is INVALID: {reason}; reasons not repeated here: {}",
            rest.len()
        )),
        [] => match (report.points.as_slice(), targets.len()) {
            ([point], 2..) => {
                let names = targets.iter().map(|target| target.name.as_str());
                let sides = names.zip(&point.on).map(|(name, on)| Side { name, on });
                contrast::best_and_worst(&sides.collect::<Vec<_>>(), false)
            }
            (_, 0 | 1) => on_target(points, report, 0),
            _ => on_each(points, report),
        },
    };
    match told {
        Ok(sentence) => Answer {
            is_answered: true,
            sentence: format!("{}.", sentence.trim_end_matches('.')),
        },
        Err(why) => Answer {
            is_answered: false,
            sentence: format!("Not answered: {}.", why.trim_end_matches('.')),
        },
    }
}

/// Answered if each part is.
fn on_each(points: &[ConcretePoint], report: &Report) -> Told {
    let mut is_answered = true;
    let mut parts = Vec::new();
    for (which, target) in report.manifest.targets.iter().enumerate() {
        let (told, word) = match on_target(points, report, which) {
            Ok(told) => (told, ""),
            Err(why) => {
                is_answered = false;
                (why, "no answer, ")
            }
        };
        parts.push(format!("on {}: {word}{told}", target.name));
    }
    let all = parts.join("; ");
    match is_answered {
        true => Ok(all.replacen("on ", "On ", 1)),
        false => Err(all),
    }
}

fn on_target(points: &[ConcretePoint], report: &Report, which: usize) -> Told {
    let on = report.points.iter().map(|point| (point, point.on.get(which)));
    let sides: Option<Vec<Side<'_>>> = on
        .map(|(point, on)| {
            Some(Side {
                name: &point.name,
                on: on?,
            })
        })
        .collect();
    let Some(sides) = sides.filter(|sides| !sides.is_empty() && sides.len() == points.len()) else {
        return Err(String::from("nothing was measured"));
    };
    if let Some(told) = against_reference(points, &sides) {
        return told;
    }
    let axes = axes::of(points, &report.scenario.question);
    match axes.as_slice() {
        _ if sides.len() == 1 => of_one(sides[0]),
        [load] if load.is_load() => knee::find(load, &sides),
        [] => contrast::best_and_worst(&sides, false),
        [only] => contrast::best_and_worst(&sides, only.is_record_size()),
        several => largest_single_change(several, &sides),
    }
}

/// Of the points that expect a figure relative to another point, the one that is furthest on the
/// bad side of it.
fn against_reference(points: &[ConcretePoint], sides: &[Side<'_>]) -> Option<Told> {
    let mut pairs = Vec::new();
    for (point, side) in points.iter().zip(sides) {
        let sentences = point.scenario.expect.iter();
        for sentence in sentences.filter_map(|text| expect::parse(text).ok()) {
            let Some(name) = &sentence.of_point else { continue };
            let reference = sides.iter().find(|other| other.name == name)?;
            pairs.push((sentence.figure, *side, *reference));
        }
    }
    if pairs.is_empty() {
        return None;
    }
    let mut found: Vec<(f64, Contrast<'_>)> = Vec::new();
    for (figure, side, reference) in &pairs {
        match Contrast::between(figure, *side, *reference) {
            Ok(contrast) => found.push((contrast.badness_of(side.name), contrast)),
            Err(why) => return Some(Err(why)),
        }
    }
    let (_, worst) = found.into_iter().max_by(|a, b| a.0.total_cmp(&b.0))?;
    if let Some(doubt) = worst.doubt() {
        return Some(Err(doubt));
    }
    let most = match pairs.len() {
        1 => String::new(),
        count => format!(", the worst of {count}"),
    };
    Some(Ok(format!("{}{most}", worst.plain())))
}

/// A single point has no other side: its own figures, and the expectations.
fn of_one(side: Side<'_>) -> Told {
    let expectations = &side.on.expectations;
    if let Some(broken) = expectations.iter().find(|expectation| !expectation.holds) {
        let (text, measured) = (&broken.text, number(broken.measured));
        return Ok(format!("No: {text} does not hold, {measured} was measured"));
    }
    let figure = contrast::figure_of(&[side.on], false).ok_or("no figure was measured")?;
    // A latency alone does not say under which load.
    let mut text = contrast::quantity(
        side,
        if figure == "latency_p99_ms" {
            "records_per_second"
        } else {
            figure
        },
    )?;
    if figure == "latency_p99_ms" {
        text = format!("{text} at a latency p99 of {}", contrast::quantity(side, figure)?);
    }
    let held: Vec<&str> = expectations
        .iter()
        .map(|expectation| expectation.text.as_str())
        .collect();
    let held = match held.as_slice() {
        [] => String::new(),
        held => format!("; {} held", held.join(", ")),
    };
    Ok(format!(
        "{} had {text}{held}; nothing was measured to compare it with",
        side.name
    ))
}

/// Of all pairs of points that differ in one setting, the one with the largest ratio that the
/// rounds confirm. Settings that the question names come before others.
fn largest_single_change(axes: &[Axis], sides: &[Side<'_>]) -> Told {
    let mut found: Vec<(bool, Contrast<'_>, &Axis)> = Vec::new();
    for (a, one) in sides.iter().enumerate() {
        for (b, other) in sides.iter().enumerate().skip(a + 1) {
            let mut changed = axes.iter().filter(|axis| axis.values[a] != axis.values[b]);
            let (Some(axis), None) = (changed.next(), changed.next()) else {
                continue;
            };
            // What another load does to the rate is no finding.
            if axis.is_load() {
                continue;
            }
            let figure = contrast::figure_of(&[one.on, other.on], axis.is_record_size());
            let contrast = figure.and_then(|figure| Contrast::between(figure, *one, *other).ok());
            found.extend(contrast.map(|contrast| (axis.is_in_question, contrast, axis)));
        }
    }
    if found.iter().any(|(is_in_question, ..)| *is_in_question) {
        found.retain(|(is_in_question, ..)| *is_in_question);
    }
    found.sort_by(|a, b| b.1.ratio().total_cmp(&a.1.ratio()));
    let Some((_, largest, _)) = found.first() else {
        return contrast::best_and_worst(sides, false);
    };
    match found.iter().find(|(_, contrast, _)| contrast.doubt().is_none()) {
        Some((_, contrast, axis)) => Ok(format!(
            "Of single changes, {} matters most: {}",
            axis.name,
            contrast.plain()
        )),
        None => Err(largest.doubt().unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests;
