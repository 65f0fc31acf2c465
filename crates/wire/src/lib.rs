//! Kafka's wire format: bytes to values and back. It is stateless: every function depends only on
//! its arguments.
//!
//! Not here: sockets, files, clocks (only their type), and decisions about the content of answers.
//!
//! Reading order: the modules below, from the entry point down to the foundations.

pub mod frame;
pub mod api_key;
pub mod messages;
pub mod produce;
pub mod records;
pub mod metadata_records;
pub mod coordinator_records;
pub mod throttle_time;
pub mod deviations;
pub mod acl;
pub mod error_code;
pub mod config_keys;
pub mod properties;
pub mod primitives;
pub mod random;
pub mod time;
pub mod text;
