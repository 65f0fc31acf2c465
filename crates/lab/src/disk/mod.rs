//! What is done to the disk of a broker on this machine, so that a small experiment meets what a large cluster meets: data that
//! the page cache does not hold, and a disk that is slower than the network.

pub mod cold;
pub mod read_limit;
