//! A link between clients and brokers: round-trip time, bandwidth, window and stalls, without
//! privileges.
//!
//! A relay inside this process sits between them. It delays bytes, not packets: what it cannot
//! emulate (loss, reordering, a window that grows) is listed in `docs/guides/link.md`.
//!
//! Reading order: the modules below, from the entry point down to the foundations.

pub mod overhead;
pub mod namespace;
mod carrier;
pub mod relay;
mod timer;
mod doors;
mod exchange;
mod conversation;
mod addresses;
mod path;
mod line;
