//! Rules: pure functions from a snapshot to what they find. Their comments are the manual (docs/reference/doctor-rules.md); how these are
//! written stands in README.md beside this file.

pub(crate) mod words;
pub(crate) mod inference;
pub mod broker;
pub mod tenant;
pub mod consumer;
pub mod producer;

use super::diagnosis::Diagnosis;
use super::snapshot::{Role, Snapshot};
use super::time;

/// Judges one client over one window: the one bottleneck, the arithmetic, the change, and what would not help.
///
/// - Shape: any snapshot, however incomplete; nothing in it makes this panic or say a number that is not finite.
pub fn examine(snapshot: &Snapshot) -> Diagnosis {
    let diagnosis = match snapshot.client.role {
        Role::Producer => producer::diagnose(snapshot),
        Role::Consumer => consumer::diagnose(snapshot),
    };
    Diagnosis {
        time: time::split(snapshot),
        ..diagnosis
    }
}
