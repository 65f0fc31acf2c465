//! The promised range: which side of it is better, and whether a measurement can be outside.

use super::super::diagnosis::Promise;

/// Whether less of the figure is better.
pub fn is_better_when_lower(promise: &Promise) -> bool {
    let by_name = promise.unit == "ms" || promise.figure == "requests_per_second";
    promise
        .now
        .map_or(by_name, |now| (promise.low + promise.high) / 2.0 < now)
}

/// Whether a measurement could show the promise to be wrong: a range that contains the present
/// value, or has no ends, cannot fail.
pub fn can_fail(promise: &Promise) -> bool {
    let (low, high) = (promise.low, promise.high);
    let is_range = low.is_finite() && high.is_finite() && low >= 0.0 && low <= high && high > 0.0;
    let improves = promise.now.is_none_or(|now| match is_better_when_lower(promise) {
        true => high < 0.99 * now,
        false => low > 1.01 * now,
    });
    is_range && promise.now.is_none_or(f64::is_finite) && improves
}
