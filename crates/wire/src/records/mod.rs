//! Record batches: Kafka's unit of storage, of compression and of checksumming.
//!
//! Written by hand, because this is the hot path between socket and file: the header is patched in
//! place, record bytes are borrowed, and no step allocates per record.

pub mod batch;
pub mod builder;
pub mod compression;
pub mod crc32c;
pub mod record;
pub mod validate;
pub mod control;
mod walk;
