//! The stamp that every value begins with: its producer and sequence number, when it was due and
//! when it was sent.

use std::sync::atomic::{AtomicU32, Ordering};

/// Magic 2, check 2, producer 4, sequence 8, due 8, sent 8.
pub const BYTES: usize = 2 + 2 + 4 + 8 + 8 + 8;

const MAGIC: u16 = 0x077A;

/// Times are nanoseconds of `clock::now_nanos`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// A sending thread of some group; see `new_producer`.
    pub producer: u32,
    /// Ascending from 0 in the order of sending.
    pub sequence: u64,
    /// The actual time if there was no schedule.
    pub due_nanos: u64,
    pub sent_nanos: u64,
}

impl Stamp {
    /// Writes the stamp over the beginning of a value.
    ///
    /// - Panics: when `value` is shorter than `BYTES`.
    pub fn write(&self, value: &mut [u8]) {
        value[..2].copy_from_slice(&MAGIC.to_be_bytes());
        value[2..4].copy_from_slice(&self.check().to_be_bytes());
        value[4..8].copy_from_slice(&self.producer.to_be_bytes());
        value[8..16].copy_from_slice(&self.sequence.to_be_bytes());
        value[16..24].copy_from_slice(&self.due_nanos.to_be_bytes());
        value[24..BYTES].copy_from_slice(&self.sent_nanos.to_be_bytes());
    }

    /// Returns `None` for bytes that are not a stamp, or a damaged one.
    pub fn read(value: &[u8]) -> Option<Stamp> {
        let bytes: &[u8; BYTES] = value.first_chunk()?;
        let long = |at: usize| {
            let bytes = bytes[at..].first_chunk().expect("the fields end at BYTES");
            u64::from_be_bytes(*bytes)
        };
        let stamp = Stamp {
            producer: u32::from_be_bytes(*bytes[4..].first_chunk().expect("as above")),
            sequence: long(8),
            due_nanos: long(16),
            sent_nanos: long(24),
        };
        let magic = u16::from_be_bytes([bytes[0], bytes[1]]);
        let check = u16::from_be_bytes([bytes[2], bytes[3]]);
        (magic == MAGIC && check == stamp.check()).then_some(stamp)
    }

    /// Enough to tell damage and foreign bytes from a stamp; the record's batch has a real
    /// checksum.
    fn check(&self) -> u16 {
        let mut mixed = u64::from(self.producer);
        for field in [self.sequence, self.due_nanos, self.sent_nanos] {
            mixed = (mixed ^ field)
                .wrapping_mul(0x9E37_79B9_7F4A_7C15)
                .rotate_left(29);
        }
        // The last field's high bits have not been mixed yet.
        mixed ^= mixed >> 32;
        (mixed.wrapping_mul(0xD6E8_FEB8_6659_FD93) >> 48) as u16
    }
}

/// Returns a number that no other live sending thread of this machine has: the process id is in the
/// upper half.
pub fn new_producer() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed) & 0xFFFF;
    (std::process::id() << 16) | number
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAMP: Stamp = Stamp {
        producer: 7,
        sequence: 1 << 40,
        due_nanos: 123_456_789,
        sent_nanos: 123_456_999,
    };

    #[test]
    fn what_is_written_is_read() {
        let mut value = [0xAA; 100];
        STAMP.write(&mut value);
        assert_eq!(Stamp::read(&value), Some(STAMP));
        assert_eq!(value[BYTES], 0xAA);
    }

    #[test]
    fn damage_and_foreign_values_are_noticed() {
        let mut value = [0; BYTES];
        STAMP.write(&mut value);
        for at in 0..BYTES {
            let mut damaged = value;
            damaged[at] ^= 1;
            assert_eq!(Stamp::read(&damaged), None, "byte {at}");
        }
        assert_eq!(Stamp::read(&value[1..]), None);
        assert_eq!(Stamp::read(b""), None);
        assert_eq!(Stamp::read(&[0; 100]), None);
    }

    #[test]
    fn no_two_threads_share_a_number() {
        assert_ne!(new_producer(), new_producer());
    }
}
