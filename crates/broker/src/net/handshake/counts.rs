//! How handshakes have ended.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::tls::spoken::Spoken;

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
pub struct HandshakeCounts {
    by_outcome: [AtomicU64; Outcome::ALL.len()],
    kinds: Mutex<HandshakeKinds>,
}

/// Counts by names, of which there are few: what listeners can speak, and why they refuse.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HandshakeKinds {
    /// By version and cipher suite.
    pub spoken: BTreeMap<Spoken, u64>,
    pub refusals: BTreeMap<String, u64>,
}

impl HandshakeCounts {
    pub(super) fn add(&self, outcome: Outcome) {
        self.by_outcome[outcome as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn speaks(&self, spoken: Spoken) {
        *self.lock().spoken.entry(spoken).or_default() += 1;
    }

    pub(super) fn refused(&self, cause: &str) {
        *self.lock().refusals.entry(cause.to_owned()).or_default() += 1;
    }

    pub fn kinds(&self) -> HandshakeKinds {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, HandshakeKinds> {
        self.kinds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn get(&self, outcome: Outcome) -> u64 {
        self.by_outcome[outcome as usize].load(Ordering::Relaxed)
    }
}
