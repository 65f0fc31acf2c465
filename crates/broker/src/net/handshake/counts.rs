//! How handshakes have ended.

use std::sync::atomic::{AtomicU64, Ordering};

/// The end of a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Full,
    Resumed,
    /// The client left before the end.
    Gone,
    Plaintext,
    Refused,
    TooLarge,
    Overdue,
    /// Too many were under way.
    Dropped,
}

impl Outcome {
    pub const ALL: [Outcome; 8] = [
        Outcome::Full,
        Outcome::Resumed,
        Outcome::Gone,
        Outcome::Plaintext,
        Outcome::Refused,
        Outcome::TooLarge,
        Outcome::Overdue,
        Outcome::Dropped,
    ];

    /// Whether what the client sent was refused: a failed authentication, as Apache Kafka counts. A
    /// client that leaves or takes too long has none.
    pub fn is_failure(self) -> bool {
        matches!(self, Outcome::Plaintext | Outcome::Refused | Outcome::TooLarge)
    }

    /// The value of the counter's label.
    pub fn name(self) -> &'static str {
        match self {
            Outcome::Full => "full",
            Outcome::Resumed => "resumed",
            Outcome::Gone => "gone",
            Outcome::Plaintext => "plaintext",
            Outcome::Refused => "refused",
            Outcome::TooLarge => "too-large",
            Outcome::Overdue => "overdue",
            Outcome::Dropped => "dropped",
        }
    }
}

/// Written by the thread for handshakes, read by any.
#[derive(Debug, Default)]
pub struct HandshakeCounts([AtomicU64; Outcome::ALL.len()]);

impl HandshakeCounts {
    pub(super) fn add(&self, outcome: Outcome) {
        self.0[outcome as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub fn get(&self, outcome: Outcome) -> u64 {
        self.0[outcome as usize].load(Ordering::Relaxed)
    }
}
