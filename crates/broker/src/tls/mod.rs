//! TLS on listeners: from the `ssl.*` settings of one listener to what a handshake needs, and to
//! the principal of a client's certificate.
//!
//! Reading order: the modules below, top to bottom. Sockets are in `net/handshake/mod.rs` and
//! `net/tls_session/mod.rs`.

pub mod settings;
pub mod stores;
pub mod certificate;
pub mod distinguished_name;
mod java_regex;
pub mod principal_rules;
pub mod config;
pub mod spoken;
pub(crate) mod file_stamp;
pub mod listener;
pub mod reload;
pub mod listeners;

#[cfg(test)]
pub(crate) mod testing;
