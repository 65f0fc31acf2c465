//! Ottla's own client: Kafka's names with Kafka's meanings, and its own for what Kafka does not measure.
//!
//! Without a sample it sends nothing. The ratio of idle polls is computed as Kafka's is, an idle consumer's 0.5 included.

use super::{Taken, Value, java};

/// Its own names begin with it.
pub const PREFIX: &str = "ottla.";

pub fn take(value: &Value<'_>) -> Taken {
    java::take(value)
}
