//! Brokers: which part of a request's time is the largest, and what that means.

use crate::doctor::diagnosis::{Finding, FindingId};
use crate::doctor::snapshot::BrokerSide;

/// The finding that a broker's own numbers lead to: B3, B4, B5 or B6; none where no part of D stands out.
pub fn blame(side: &BrokerSide) -> Option<Finding> {
    let known = |value: Option<f64>| {
        value
            .filter(|micros| micros.is_finite() && *micros >= 0.0)
            .unwrap_or(0.0)
    };
    let parts = [
        (
            FindingId::B3,
            known(side.queue_micros),
            0.3,
            "in the request queue",
        ),
        (FindingId::B4, known(side.local_micros), 0.5, "in the log"),
        (
            FindingId::B5,
            known(side.remote_micros),
            0.5,
            "waiting for replicas",
        ),
        (
            FindingId::B6,
            known(side.response_queue_micros) + known(side.send_micros),
            0.3,
            "in the response queue and the socket",
        ),
    ];
    let all: f64 = parts.iter().map(|part| part.1).sum();
    if all <= 0.0 || (side.is_rounded_to_ms && all < 2_000.0) {
        return None;
    }
    let (id, micros, least, place) = parts.into_iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    (micros >= least * all).then(|| Finding {
        id,
        text: format!(
            "{:.0} % of the broker's {:.1} ms pass {place}",
            100.0 * micros / all,
            all / 1_000.0
        ),
        is_contributing: true,
    })
}
