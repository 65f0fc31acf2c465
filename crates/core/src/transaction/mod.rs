//! Transactions (KIP-98, KIP-890).

pub mod admission;
