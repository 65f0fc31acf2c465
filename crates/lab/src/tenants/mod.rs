//! What tenants and clients cost a broker: the answers of its admin address as values, how much a
//! heavy tenant delays the others, and quotas from what clients used.
//!
//! Reading order: the modules below, from the entry point down to the foundations.

pub mod figures;
pub mod quota;
pub mod document;
