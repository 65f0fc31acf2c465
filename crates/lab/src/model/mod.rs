//! One model of what limits a rate and what a change brings: for the doctor's promises, the
//! calculator's predictions and the bench's.
//!
//! Reading order: the modules below, from the ceilings down to the constants.

pub mod ceilings;
pub mod growth;
pub mod pipe;
pub mod constants;
