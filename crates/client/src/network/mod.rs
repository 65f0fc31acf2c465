//! The connections of one client: who is connected, who is authenticated, which answer belongs to which request.
//!
//! `Cluster` is what the machines of producer, consumer and admin client are built on.

pub mod io;
pub mod cluster;
