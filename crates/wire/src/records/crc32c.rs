//! CRC-32C (Castagnoli, iSCSI): the checksum of batches, producer snapshots and some checkpoints.

use crc_fast::{CrcAlgorithm, Digest};

/// The CRC-32C of `bytes`.
pub fn checksum(bytes: &[u8]) -> u32 {
    narrow(crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, bytes))
}

/// The CRC-32C of `first` followed by `second`, without joining them.
///
/// One checksum goes on over both: to combine two costs some 60 µs whatever their lengths.
pub fn checksum_of_two(first: &[u8], second: &[u8]) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    digest.update(first);
    digest.update(second);
    narrow(digest.finalize())
}

/// The CRC-32C of a message whose first part has checksum `first` and whose second part, `second_bytes` long, has checksum
/// `second`.
pub fn combine(first: u32, second: u32, second_bytes: usize) -> u32 {
    let combined = crc_fast::checksum_combine(
        CrcAlgorithm::Crc32Iscsi,
        first.into(),
        second.into(),
        second_bytes as u64,
    );
    narrow(combined)
}

/// The checksum of a message after its beginning changed: `whole` is the message's old checksum, `old_beginning` and
/// `new_beginning` are checksums of its first part before and after, and `rest_bytes` follow that part unchanged.
///
/// CRCs are linear: the part that follows contributes the same to both, so only the difference of the beginnings has to be
/// carried over `rest_bytes`, in time proportional to the logarithm of the length.
pub fn replace_beginning(whole: u32, old_beginning: u32, new_beginning: u32, rest_bytes: usize) -> u32 {
    whole ^ combine(old_beginning, 0, rest_bytes) ^ combine(new_beginning, 0, rest_bytes)
}

fn narrow(checksum: u64) -> u32 {
    u32::try_from(checksum).expect("a CRC-32 has 32 bits")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_value_of_the_catalogue() {
        assert_eq!(checksum(b"123456789"), 0xE306_9283);
        assert_eq!(checksum(b""), 0);
    }

    #[test]
    fn parts_combine_to_the_whole() {
        let bytes: Vec<u8> = (0..2000u32).map(|i| (i * 31 + 7) as u8).collect();
        for cut in [0, 1, 40, 61, 999, 1999, 2000] {
            let (first, second) = bytes.split_at(cut);
            assert_eq!(checksum_of_two(first, second), checksum(&bytes), "cut at {cut}");
        }
    }

    #[test]
    fn a_changed_beginning_needs_no_second_look_at_the_rest() {
        let mut bytes: Vec<u8> = (0..5000u32).map(|i| (i * 17 + 3) as u8).collect();
        let whole = checksum(&bytes);
        let old_beginning = checksum(&bytes[..40]);
        for byte in &mut bytes[..40] {
            *byte = byte.wrapping_add(91);
        }
        let new_beginning = checksum(&bytes[..40]);
        let replaced = replace_beginning(whole, old_beginning, new_beginning, bytes.len() - 40);
        assert_eq!(replaced, checksum(&bytes));
    }
}
