//! One model of what limits a rate: used by the doctor's promises and the calculator.
//!
//! Reading order: the modules below, from the ceilings down to the constants.

pub mod ceilings;
pub mod constants;
