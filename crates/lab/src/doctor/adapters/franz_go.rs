//! franz-go.
//!
//! - Before 1.21.4 its averages are sums over the interval, that is the mean number of requests in
//!   flight, not latencies; maxima are right. An unknown version counts as old.
//! - The client omits values of zero; with the subscription `*`, which it takes as a literal
//!   prefix, it omits everything.
//! - Averages are over the time since the last push, and there is none over all nodes.

use super::{Fold, Taken, Value, Version};

/// The first version whose averages are correct.
const AVERAGES_SINCE: Version = Version(1, 21, 4);

pub fn take(value: &Value<'_>, version: Option<Version>) -> Taken {
    let is_old = version.is_none_or(|version| version < AVERAGES_SINCE);
    if is_old && matches!(value.measure.fold(), Fold::Mean(_)) {
        return Taken::Ignored;
    }
    if !value.value.is_finite() {
        return Taken::NoSample;
    }
    Taken::Value(value.value)
}
