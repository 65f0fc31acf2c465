//! Points of rising load: up to which one latency stays low.

use super::Told;
use super::axes::Axis;
use super::contrast::{self, Contrast, Side};

/// The knee is before the first load whose p99 exceeds this many times the lowest.
const KNEE_FACTOR: f64 = 2.0;
const FIGURE: &str = "latency_p99_ms";

pub(super) fn find(load: &Axis, sides: &[Side<'_>]) -> Told {
    let rates = load
        .values
        .iter()
        .map(|value| value.as_ref()?.parse::<f64>().ok());
    let mut scheduled: Vec<(f64, Side<'_>)> = Vec::new();
    let mut open = None;
    for (rate, side) in rates.zip(sides) {
        match rate {
            Some(rate) => scheduled.push((rate, *side)),
            None => open = Some(*side),
        }
    }
    scheduled.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut loads: Vec<(f64, Side<'_>)> = Vec::new();
    for (_, side) in &scheduled {
        loads.push((contrast::median(*side, FIGURE)?, *side));
    }
    match (loads.as_slice(), open) {
        ([(_, only)], Some(open)) => Ok(format!(
            "{} carries {}, and the latency p99 of {} is {}",
            open.name,
            contrast::quantity(open, "records_per_second")?,
            only.name,
            contrast::quantity(*only, FIGURE)?
        )),
        ([_, _, ..], _) => among(&loads),
        _ => contrast::best_and_worst(sides, false),
    }
}

/// - `loads`: by rate, with the p99 of each.
fn among(loads: &[(f64, Side<'_>)]) -> Told {
    let lowest = loads.iter().map(|load| load.0).fold(f64::INFINITY, f64::min);
    // Above the load with the lowest p99: a nearly idle broker can be slower than a busy one.
    let at_lowest = loads.iter().position(|load| load.0 == lowest).unwrap_or(0);
    let beyond = (at_lowest..loads.len()).find(|index| loads[*index].0 > KNEE_FACTOR * lowest);
    let last = loads[loads.len() - 1].1;
    let Some(beyond) = beyond else {
        let highest = loads[at_lowest..].iter().map(|load| load.0).fold(0.0, f64::max);
        return Ok(format!(
            "There is no knee up to {}: the latency p99 stays between {} and {} ms",
            last.name,
            crate::numbers::number(lowest),
            crate::numbers::number(highest)
        ));
    };
    let (before, after) = (loads[beyond - 1].1, loads[beyond].1);
    let contrast = Contrast::between(FIGURE, before, after)?;
    match contrast.doubt() {
        Some(doubt) => Err(doubt),
        None => Ok(format!(
            "The knee is between {} and {}: {}",
            before.name,
            after.name,
            contrast.plain()
        )),
    }
}
