//! Serving consumers: the partitions of a fetch (`session`), reading them from the page cache
//! (`read`) or the device (`cold`), and encoding the answer (`response`).

pub mod read;
pub mod cold;
pub mod response;
pub mod session;
