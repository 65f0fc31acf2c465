//! Counters of telemetry requests, summed over all clients: instance ids come from the network and
//! must not be labels.

use std::sync::atomic::{AtomicU64, Ordering};

use ottla_wire::error_code::ErrorCode;

/// The error codes that a push may be refused with.
const REFUSALS: [ErrorCode; 6] = [
    ErrorCode::InvalidRequest,
    ErrorCode::ThrottlingQuotaExceeded,
    ErrorCode::UnknownSubscriptionId,
    ErrorCode::UnsupportedCompressionType,
    ErrorCode::TelemetryTooLarge,
    ErrorCode::InvalidRecord,
];

/// Counters since the broker was started.
#[derive(Debug, Default)]
pub struct Counts {
    questions: AtomicU64,
    questions_throttled: AtomicU64,
    pushes: AtomicU64,
    payload_bytes: AtomicU64,
    unfolded_bytes: AtomicU64,
    refusals: [AtomicU64; REFUSALS.len()],
}

/// The values of [`Counts`] at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counted {
    /// GetTelemetrySubscriptions requests that were answered with a subscription.
    pub questions: u64,
    /// Those that were throttled because they came too early.
    pub questions_throttled: u64,
    /// Pushes that the receiver accepted, their bytes as received, and decompressed.
    pub pushes: u64,
    pub payload_bytes: u64,
    pub unfolded_bytes: u64,
    /// Refused pushes, by Kafka's name of the error.
    pub refused: [(&'static str, u64); REFUSALS.len()],
}

impl Counts {
    pub(super) fn asked(&self, is_granted: bool) {
        let count = if is_granted {
            &self.questions
        } else {
            &self.questions_throttled
        };
        count.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn taken(&self, payload_bytes: usize, unfolded_bytes: usize) {
        self.pushes.fetch_add(1, Ordering::Relaxed);
        self.payload_bytes
            .fetch_add(payload_bytes as u64, Ordering::Relaxed);
        self.unfolded_bytes
            .fetch_add(unfolded_bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn refused(&self, code: ErrorCode) {
        if let Some(index) = REFUSALS.iter().position(|known| *known == code) {
            self.refusals[index].fetch_add(1, Ordering::Relaxed);
        }
    }

    pub fn read(&self) -> Counted {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Counted {
            questions: load(&self.questions),
            questions_throttled: load(&self.questions_throttled),
            pushes: load(&self.pushes),
            payload_bytes: load(&self.payload_bytes),
            unfolded_bytes: load(&self.unfolded_bytes),
            refused: std::array::from_fn(|index| (REFUSALS[index].name(), load(&self.refusals[index]))),
        }
    }
}
