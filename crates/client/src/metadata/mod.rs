//! The cluster's metadata, and when to request it again.

pub mod snapshot;
mod cell;
mod answer;
pub(crate) mod refresh;

pub use self::cell::{Interest, MetadataCell};
