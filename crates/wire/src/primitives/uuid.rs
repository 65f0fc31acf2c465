//! Kafka's UUID and its text.

use std::fmt;
use std::str::FromStr;

/// A 16-byte id of a topic, a directory or an incarnation; as text, URL-safe base64 without
/// padding.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uuid(pub [u8; 16]);

const BASE64_URL: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
/// 16 bytes are 128 bits: 21 full digits of 6 bits and a last one of 2 bits.
const UUID_TEXT_BYTES: usize = 22;

impl Uuid {
    pub const ZERO: Uuid = Uuid([0; 16]);
    /// The topic id reserved for `__cluster_metadata`.
    pub const METADATA_TOPIC_ID: Uuid = Uuid([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);

    pub fn is_zero(&self) -> bool {
        *self == Uuid::ZERO
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = u128::from_be_bytes(self.0);
        let mut text = [0u8; UUID_TEXT_BYTES];
        for (index, digit) in text.iter_mut().enumerate() {
            let shift = 122 - 6 * index as i32;
            let value = if shift >= 0 { bits >> shift } else { bits << -shift };
            *digit = BASE64_URL[(value & 63) as usize];
        }
        formatter.write_str(std::str::from_utf8(&text).expect("base64 digits are ascii"))
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

/// A text that is not a Kafka UUID: 22 digits of URL-safe base64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseUuidError;

impl fmt::Display for ParseUuidError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "not a uuid: expected {UUID_TEXT_BYTES} digits of url-safe base64"
        )
    }
}

impl std::error::Error for ParseUuidError {}

impl FromStr for Uuid {
    type Err = ParseUuidError;

    fn from_str(text: &str) -> std::result::Result<Uuid, ParseUuidError> {
        // Kafka accepts padding when reading and never writes it.
        let digits = text.strip_suffix("==").unwrap_or(text).as_bytes();
        if digits.len() != UUID_TEXT_BYTES {
            return Err(ParseUuidError);
        }
        let mut bits: u128 = 0;
        for (index, digit) in digits.iter().enumerate() {
            let value = BASE64_URL
                .iter()
                .position(|known| known == digit)
                .ok_or(ParseUuidError)? as u128;
            let shift = 122 - 6 * index as i32;
            bits |= if shift >= 0 {
                value << shift
            } else {
                value >> -shift
            };
        }
        Ok(Uuid(bits.to_be_bytes()))
    }
}
