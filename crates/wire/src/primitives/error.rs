//! Errors of decoding.

use std::fmt;

use super::STRING_BYTES_MAX;

/// Why bytes cannot be decoded as a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// A value needs more bytes than are left.
    Truncated { needed: usize, remaining: usize },
    /// An array announces more elements than the remaining bytes can hold.
    CountTooLarge { count: u64, remaining: usize },
    /// A length or count below -1, or -1 where null is not allowed.
    NegativeLength { length: i64 },
    /// A null where the schema has none.
    UnexpectedNull,
    /// The marker before a nullable struct is neither "present" nor "null".
    PresenceMarker { marker: i64 },
    /// A string longer than Kafka allows: the maximum of a plain string's 16-bit length.
    StringTooLong { length: usize },
    /// A string that is not UTF-8 after `valid_bytes` bytes.
    NotUtf8 { valid_bytes: usize },
    /// A varint that does not fit its type.
    VarintTooLong,
    /// Decoded, the message would exceed [`Reader`](super::Reader)'s memory budget.
    MemoryBudget { needed: usize, left: usize },
    /// A tagged field whose value does not fill its announced size; `excess` is negative when it is
    /// larger.
    TaggedFieldSize { excess: isize },
    /// A version the schema does not have.
    UnsupportedVersion { version: i16 },
    /// An unknown API key or record type.
    UnknownKey { key: i64 },
    /// Bytes after the end of the message.
    TrailingBytes { count: usize },
}

impl fmt::Display for DecodeError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            DecodeError::Truncated { needed, remaining } => {
                write!(formatter, "truncated: {needed} bytes needed, {remaining} left")
            }
            DecodeError::CountTooLarge { count, remaining } => {
                write!(
                    formatter,
                    "array of {count} elements in {remaining} remaining bytes"
                )
            }
            DecodeError::NegativeLength { length } => write!(formatter, "negative length {length}"),
            DecodeError::UnexpectedNull => write!(formatter, "null where the schema has none"),
            DecodeError::PresenceMarker { marker } => write!(formatter, "presence marker {marker}"),
            DecodeError::StringTooLong { length } => {
                write!(
                    formatter,
                    "string of {length} bytes, at most {STRING_BYTES_MAX} are allowed"
                )
            }
            DecodeError::NotUtf8 { valid_bytes } => {
                write!(formatter, "string is not utf-8 after {valid_bytes} bytes")
            }
            DecodeError::VarintTooLong => write!(formatter, "varint too long"),
            DecodeError::MemoryBudget { needed, left } => {
                write!(
                    formatter,
                    "decoding needs {needed} more bytes of memory, {left} are left for this message"
                )
            }
            DecodeError::TaggedFieldSize { excess } => {
                write!(formatter, "tagged field is {excess} bytes longer than its value")
            }
            DecodeError::UnsupportedVersion { version } => write!(formatter, "unsupported version {version}"),
            DecodeError::UnknownKey { key } => write!(formatter, "unknown key {key}"),
            DecodeError::TrailingBytes { count } => write!(formatter, "{count} bytes after the message"),
        }
    }
}

impl std::error::Error for DecodeError {}
