//! Sockets: from accepted connections to requests, and from replies back to bytes.
//!
//! Reading order: the modules below, top to bottom.

pub mod service;
pub mod listener;
pub mod handshake;
pub mod connection_counts;
pub mod authentication_counts;
pub mod event_loop;
pub mod loop_context;
pub mod scheduler;
pub mod mailbox;
pub mod connection;
pub mod tenancy;
pub mod frame;
pub mod input;
pub mod expected_answers;
pub mod memory_budget;
pub mod fair_semaphore;
pub mod transport;
pub mod tls_session;
pub mod output;
mod encrypted_output;
pub mod cold_region;
pub mod unsent;
pub mod round_trip;
pub mod refusal;
