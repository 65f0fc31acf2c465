//! The laboratory: it loads, measures and predicts, and returns values; who prints them is the binary.
//!
//! What it is not: it knows a broker only through the wire, so that everything here runs against Apache Kafka too.
//!
//! Reading order: the modules below, top to bottom.

pub mod formulas;
pub mod machine;
pub mod process;
pub mod histogram;
pub mod ask;
pub mod load;
pub mod link;
pub mod disk;
pub mod scenario;
pub mod bench;
pub mod perf;
pub mod doctor;
