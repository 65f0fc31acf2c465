//! The console: what a broker and its clients do, as pages for a browser and as JSON.
//!
//! A page is a pure function of values that a [`source::Source`] returns; it does not know whether
//! they come from a broker in this process or over the wire. [`site::Site`] answers paths,
//! [`server`] speaks HTTP.
//!
//! Reading order: the modules below, from the entry point down to the foundations.

pub mod server;
pub mod events;
pub mod site;
pub mod page;
mod shell;
pub mod asset;
pub mod draw;
pub mod series;
pub mod trend;
pub mod worst;
pub mod tail;
pub mod source;
pub mod reports;
pub mod stage;
pub mod sample;
pub mod reference;
