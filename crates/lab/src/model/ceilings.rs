//! Ceilings of a rate: the lowest wins, and no promise goes beyond a known one.

use crate::formulas::change;

use super::constants::GAIN_LOW;

/// A rate that something allows at most, and what that is.
#[derive(Clone, Debug, PartialEq)]
pub struct Ceiling {
    pub records_per_second: f64,
    pub text: String,
}

pub fn lowest(ceilings: &[Ceiling]) -> Option<&Ceiling> {
    ceilings
        .iter()
        .min_by(|a, b| a.records_per_second.total_cmp(&b.records_per_second))
}

/// A rate, cut at the lowest ceiling.
pub fn cut(ceilings: &[Ceiling], records_per_second: f64) -> f64 {
    lowest(ceilings).map_or(records_per_second, |ceiling| {
        records_per_second.min(ceiling.records_per_second)
    })
}

/// Names the next limit.
pub fn next(ceilings: &[Ceiling]) -> String {
    lowest(ceilings).map_or_else(
        || "not known: no number of the threads, the link or the broker limits it; measure again".to_owned(),
        |ceiling| ceiling.text.clone(),
    )
}

/// F30: the least and the most that requests `growth` times as large carry through a pipe that is
/// used to a share of `used`, before any ceiling.
pub fn grown(now: f64, growth: f64, used: f64) -> (f64, f64) {
    let high = change::records_per_second_after(f64::INFINITY, now, growth, used.clamp(0.5, 1.0));
    (GAIN_LOW * high, high)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ceiling(records_per_second: f64) -> Ceiling {
        Ceiling {
            records_per_second,
            text: format!("{records_per_second}"),
        }
    }

    #[test]
    fn the_lowest_ceiling_cuts_and_is_named() {
        let ceilings = [ceiling(300.0), ceiling(200.0), ceiling(900.0)];
        assert_eq!(cut(&ceilings, 250.0), 200.0);
        assert_eq!(cut(&ceilings, 150.0), 150.0);
        assert_eq!(next(&ceilings), "200");
        assert!(next(&[]).starts_with("not known"));
    }
}
