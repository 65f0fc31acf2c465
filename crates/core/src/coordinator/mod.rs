//! What group and transaction coordinators share: their log is their state.

pub mod runtime;
pub mod registry;
pub mod call;
pub mod delivery;
pub mod batch;
pub mod replay;
