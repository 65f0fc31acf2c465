//! The consumer's machine against brokers that answer what a test says, without sockets, threads and clocks.

mod world;
mod fetching;
mod positions;
mod hostile;
