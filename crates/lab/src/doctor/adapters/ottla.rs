//! Ottla's own client: Kafka's names with Kafka's meanings, and its own names for what Kafka does
//! not measure.
//!
//! It sends nothing without a sample. The idle ratio of polls is computed as Kafka computes it,
//! including the 0.5 of an idle consumer.

use super::{Taken, Value, java};

/// The prefix of its own names.
pub const PREFIX: &str = "ottla.";

pub fn take(value: &Value<'_>) -> Taken {
    java::take(value)
}
