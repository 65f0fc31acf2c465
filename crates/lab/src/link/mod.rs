//! A link between clients and brokers: round-trip time, bandwidth, window and stalls, without
//! privileges.
//!
//! A relay inside this process sits between them. It delays bytes, not packets: what it cannot
//! emulate (loss, reordering, a window that grows) is listed in `docs/guides/link.md`.

pub mod relay;
pub mod overhead;
mod line;
mod path;
mod conversation;
mod addresses;
mod exchange;
mod doors;
pub mod namespace;
mod carrier;
mod timer;
