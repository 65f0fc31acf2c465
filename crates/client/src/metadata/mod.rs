//! What is known of the cluster, and when to ask again.

pub mod snapshot;
mod cell;
mod answer;
pub(crate) mod refresh;

pub use self::cell::{Interest, MetadataCell};
