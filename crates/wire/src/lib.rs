//! Bytes to values and back. Knows no state: every function here depends on its arguments alone.
//!
//! What it is not: no sockets, no files, no clock, no decision about what an answer should say.
//!
//! Reading order: the modules below, top to bottom.

pub mod text;
pub mod primitives;
pub mod frame;
pub mod api_key;
pub mod deviations;
pub mod error_code;
pub mod config_keys;
pub mod properties;
pub mod messages;
pub mod produce;
pub mod throttle_time;
pub mod metadata_records;
pub mod coordinator_records;
pub mod records;
