//! One model of what limits a rate: the ceilings of the doctor's promises and the calculator's
//! predictions, and the constants that these share with the bench's.
//!
//! Reading order: the modules below, from the ceilings down to the constants.

pub mod ceilings;
pub mod constants;
