//! What group and transaction coordinators share: their log is their state.

pub mod delivery;
pub mod batch;
pub mod replay;
