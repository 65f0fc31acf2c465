//! Transactions (KIP-98, KIP-360, KIP-447, KIP-890): the calls of the application (calls.rs), the
//! state machine that decides about them (state.rs), its requests (requests.rs), and how the
//! sender sends them and holds batches back (sending.rs).

pub(super) mod calls;
mod requests;
pub(super) mod sending;
mod state;
