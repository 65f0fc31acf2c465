//! Integers, strings, arrays, varints and tagged fields: the building blocks of every Kafka
//! message.

mod error;
mod uuid;
pub(crate) mod varint;
mod reader;
mod writer;

pub use self::error::DecodeError;
pub use self::reader::Reader;
pub use self::uuid::{ParseUuidError, Uuid};
pub use self::writer::*;

/// The longest string in any version: a plain string's length is a signed 16-bit number, and Kafka
/// limits compact strings to the same length.
pub const STRING_BYTES_MAX: usize = i16::MAX as usize;

#[cfg(test)]
mod tests;
