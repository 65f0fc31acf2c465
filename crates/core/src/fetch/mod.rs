//! Serving consumers: which partitions a fetch is about (`session`), what is read from them (`read`) and what is done
//! when that is on the device (`cold`), and how the answer looks (`response`).

pub mod read;
pub mod cold;
pub mod response;
pub mod session;
