//! The cluster's metadata, and when to request it again.

pub mod snapshot;
#[expect(missing_docs, reason = "reachable through `machine` only")]
mod cell;
mod answer;
pub(crate) mod refresh;

pub use self::cell::{Interest, MetadataCell};
