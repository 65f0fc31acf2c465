//! The effect of a change of settings on one client, from the formulas alone: what changes, what
//! does not, and why.

mod conclusion;
mod producer;
mod consumer;
mod setting;
mod pipe;

use serde::{Deserialize, Serialize};

use super::{Invalid, VERSION};
use crate::doctor::diagnosis::{Evidence, Promise, Refusal};
use crate::doctor::snapshot::{Role, Snapshot};
use setting::Wanted;
pub use setting::{KNOWN, Known, as_kafka_writes};

/// The predicted effect of a change of settings on a snapshot.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Prediction {
    pub version: u32,
    pub client_id: String,
    pub changes: Vec<Change>,
    /// The arithmetic, before and after.
    pub lines: Vec<Evidence>,
    /// What changes: low and high, capped at the next ceiling.
    pub changed: Vec<Promise>,
    /// What does not change, by setting, and why.
    pub unchanged: Vec<Refusal>,
    /// The limit after the change, with its number.
    pub next_ceiling: String,
    pub missing: Vec<String>,
    pub notes: Vec<String>,
}

/// One changed setting.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Change {
    pub set: String,
    /// The current value and its origin: `16384 (default)`.
    pub from: Option<String>,
    pub to: String,
}

/// Predicts what `batch.size=65536`, `linger.ms=20ms`, ... would change for the snapshot's client.
///
/// - Errors: a setting that is unknown (names the nearest one) or belongs to another kind of
///   client, a value that cannot be read, a setting given twice, nothing to change, or a snapshot
///   without the numbers that every prediction needs.
pub fn predict<S: AsRef<str>>(snapshot: &Snapshot, changes: &[S]) -> Result<Prediction, Invalid> {
    let role = snapshot.client.role;
    let wanted = Wanted::read(role, changes)?;
    let mut prediction = match role {
        Role::Producer => producer::predict(snapshot, &wanted)?,
        Role::Consumer => consumer::predict(snapshot, &wanted)?,
    };
    prediction.version = VERSION;
    prediction.client_id.clone_from(&snapshot.client.client_id);
    finish(&mut prediction);
    Ok(prediction)
}

/// Drops numbers that are not finite.
fn finish(prediction: &mut Prediction) {
    prediction
        .lines
        .retain(|line| line.result.is_finite() && line.symbols.iter().all(|symbol| symbol.value.is_finite()));
    prediction.changed.retain(|promise| {
        promise.low.is_finite() && promise.high.is_finite() && promise.now.is_none_or(f64::is_finite)
    });
}

#[cfg(test)]
mod tests;
