//! One partition on disk, in Apache Kafka's directory format.
//!
//! What it is not: it knows no request, no client and no other partition, and it starts no thread.
//!
//! Reading order: the modules below, top to bottom.

pub mod disk;
