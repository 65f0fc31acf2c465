//! librdkafka and its bindings.
//!
//! - An average or maximum of 0 means "zero or no sample": no evidence (reading rule 3).
//! - `record.queue.time` is how long a request waits in the transmit queue, `outbuf_latency` of the
//!   library's statistics (2.5 to 2.12). Kafka uses the name for the time from a batch's creation
//!   to its drain: read as such, a record that waits 5 ms for its batch would wait 0.2 ms. The time
//!   before that, `int_latency`, is in the statistics and never pushed: this client's batching
//!   cannot be observed.
//! - `poll.idle.ratio.avg` is already a share from 0 to 1.
//! - Averages are over the time since the last push.

use super::{Measure, Taken, Value};

pub fn take(value: &Value<'_>) -> Taken {
    if value.measure == Measure::QueueTimeMax {
        return Taken::Ignored;
    }
    let is_zero = value.value == 0.0 && value.measure.needs_samples();
    if is_zero || !value.value.is_finite() {
        return Taken::NoSample;
    }
    match value.measure {
        Measure::QueueTime => Taken::As(Measure::TransmitQueue, value.value),
        _ => Taken::Value(value.value),
    }
}
