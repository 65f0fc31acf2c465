//! Apache Kafka's Java clients.
//!
//! - A gauge without a sample is NaN (reading rule 3).
//! - Averages and maxima are over the sample windows, 30 to 60 s; sums are since the last push.
//!   `.rate` gauges are never read: they divide by at least a whole window of 30 s, so a client
//!   that is 12 s old shows a third of its rate (rule 1).
//! - `poll.idle.ratio.avg` divides by the poll's time twice, so an idle consumer shows 0.5 (rule
//!   12).
//! - `last-…-seconds-ago` is −1 for "never", which counts as no sample.

use super::{Measure, Taken, Value};

/// An idle consumer's ratio would be infinite; a share is at most 1.
const SHARE_MAX: f64 = 1.0;

pub fn take(value: &Value<'_>) -> Taken {
    if !value.value.is_finite() {
        return Taken::NoSample;
    }
    match value.measure {
        Measure::PollIdle => Taken::Value(corrected_idle(value.value)),
        _ => Taken::Value(value.value),
    }
}

/// Returns `r / (1 - r)`, where r is poll time over poll time plus the time since the previous poll
/// began.
pub fn corrected_idle(ratio: f64) -> f64 {
    let ratio = ratio.clamp(0.0, 1.0);
    if ratio >= 0.5 {
        return SHARE_MAX;
    }
    ratio / (1.0 - ratio)
}
