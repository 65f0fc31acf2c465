//! Rules: pure functions from a snapshot to a diagnosis. Their comments are the manual
//! (docs/reference/doctor-rules.md); README.md beside this file says how to write them.
//!
//! Reading order: the modules below, from the entry point down to the foundations.

pub mod producer;
pub mod consumer;
pub mod tenant;
mod host;
mod denied;
mod connections;
pub mod broker;
mod engine;
mod found;
pub(crate) mod inference;
pub(crate) mod words;

use super::diagnosis::Diagnosis;
use super::snapshot::{Role, Snapshot};
use super::time;

/// Diagnoses one client over one window: the one bottleneck, the arithmetic, the change, and what
/// would not help.
///
/// - Shape: any snapshot, however incomplete; nothing in it makes this panic or print a number that
///   is not finite.
pub fn examine(snapshot: &Snapshot) -> Diagnosis {
    let mut diagnosis = match snapshot.client.role {
        Role::Producer => producer::diagnose(snapshot),
        Role::Consumer => consumer::diagnose(snapshot),
    };
    host::doubt(&mut diagnosis, snapshot);
    Diagnosis {
        time: time::split(snapshot),
        ..diagnosis
    }
}

/// Random cases for a property, the same in every run; `PROPTEST_RNG_SEED` tries others.
#[cfg(test)]
pub(crate) fn cases(count: u32) -> proptest::test_runner::Config {
    use proptest::test_runner::{Config, RngSeed};
    let config = Config::with_cases(count);
    let seed = match config.rng_seed {
        RngSeed::Random => RngSeed::Fixed(1),
        seed => seed,
    };
    Config {
        rng_seed: seed,
        ..config
    }
}
