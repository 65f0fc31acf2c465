//! The consumer's machine against scripted brokers, without sockets, threads and clocks.

mod world;
mod fetching;
mod positions;
mod hostile;
mod closing;
