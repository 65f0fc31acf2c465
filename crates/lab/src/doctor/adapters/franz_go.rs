//! franz-go.
//!
//! - Before 1.21.4 its averages are sums over the interval, the mean number of requests in flight, and no latencies; maxima are
//!   right. A version that is not known counts as old.
//! - Values of zero are left out by the client; with the subscription `*`, a literal prefix to it, everything is.
//! - Averages are over the time since the last push, and there is none over all nodes.

use super::{Fold, Taken, Value, Version};

/// The first version whose averages are averages.
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
