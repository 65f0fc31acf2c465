//! Where the time of requests goes: stage times per API and per client id, costs per tenant, kept
//! per event loop, merged when read.

pub mod stage;
pub mod histogram;
pub mod recent;
pub mod written;
pub mod activity;
pub mod accounts;
pub mod tenants;
pub mod recorder;
