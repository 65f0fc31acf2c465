//! The cluster machine against scripted brokers, without sockets and clocks.

mod world;
mod connections;
mod metadata;
mod authentication;
mod storm;
