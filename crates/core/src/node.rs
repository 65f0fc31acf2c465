//! Everything a running broker is made of, minus threads and sockets.

/// The broker as a value.
pub struct Node {}
