//! Serving consumers: which partitions a fetch is about (`session`), what is read from them (`read`), and how the
//! answer looks (`response`).

pub mod read;
pub mod response;
pub mod session;
