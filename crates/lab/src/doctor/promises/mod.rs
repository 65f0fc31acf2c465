//! The score of the doctor's own promises: when a client comes back with the recommended setting,
//! what was promised is compared with what is measured.
//!
//! Everything here is a pure function of values. The collector feeds a [`Ledger`] with what every
//! client looks like at an examination ([`Sighting`]), regularly and unasked. A promise is opened
//! when two examinations of one instance recommend the same setting with a range that can fail. It
//! is decided once, when the client is seen with the setting ([`applied`]) and its new window is
//! complete. The ledger is in memory only and bounded.
//!
//! Reading order: the modules below, from the entry point down to the foundations.

pub mod ledger;
pub mod document;
pub mod applied;
pub mod score;
pub mod sighting;
pub mod range;
pub mod change;
pub mod figures;

pub use document::{Promises, Row};
pub use ledger::Ledger;
pub use score::Score;
pub use sighting::Sighting;

/// At most this share of one processor is spent on examinations for the ledger.
const SHARE_MAX: f64 = 0.01;

/// The shortest time between two examinations: a quarter of a window.
pub const LOOK_EVERY: std::time::Duration = std::time::Duration::from_secs(15);

/// The time until the next examination, after one that took `took`.
pub fn pause_after(took: std::time::Duration) -> std::time::Duration {
    LOOK_EVERY.max(took.div_f64(SHARE_MAX))
}

#[cfg(test)]
mod tests;
