//! The laboratory: load, measurement and prediction. It returns values; the binary prints them.
//!
//! It knows a broker only through the wire protocol, so that everything here runs against Apache
//! Kafka too.
//!
//! Reading order: the modules below, from the entry point down to the foundations.

pub mod bench;
pub mod perf;
pub mod doctor;
pub mod tenants;
pub mod link;
pub mod scenario;
pub mod load;
pub mod machine;
pub mod process;
pub mod disk;
pub mod ask;
pub mod report;
pub mod markup;
pub mod model;
pub mod formulas;
pub mod numbers;
