//! The laboratory: load, measurement and prediction. It returns values; the binary prints them.
//!
//! It knows a broker only through the wire protocol, so that everything here runs against Apache
//! Kafka too.
//!
//! Reading order: the modules below, top to bottom.

pub mod numbers;
pub mod formulas;
pub mod report;
pub mod machine;
pub mod process;
pub mod ask;
pub mod load;
pub mod link;
pub mod disk;
pub mod scenario;
pub mod bench;
pub mod perf;
pub mod doctor;
pub mod tenants;
