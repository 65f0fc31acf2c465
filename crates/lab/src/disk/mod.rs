//! Manipulates the disk of a broker on this machine, so that a small experiment meets the
//! conditions of a large cluster: data that is not in the page cache, and a disk that is slower
//! than the network.

pub mod cold;
pub mod read_limit;
