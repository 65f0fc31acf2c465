//! CRC-32C (Castagnoli, iSCSI): the checksum of batches, producer snapshots and some checkpoints.

use crc_fast::{CrcAlgorithm, Digest};

/// The CRC-32C of `bytes`.
pub fn checksum(bytes: &[u8]) -> u32 {
    narrow(crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, bytes))
}

/// The CRC-32C of `first` followed by `second`, without joining them.
///
/// Continuing one checksum over both is cheaper than combining two.
pub fn checksum_of_two(first: &[u8], second: &[u8]) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    digest.update(first);
    digest.update(second);
    narrow(digest.finalize())
}

/// The CRC-32C of a message whose first part has checksum `first` and whose second part,
/// `second_bytes` long, has checksum `second`.
pub fn combine(first: u32, second: u32, second_bytes: usize) -> u32 {
    carry(first, second_bytes) ^ second
}

/// The checksum of a message after its beginning changed: `whole` is the message's old checksum,
/// `old_beginning` and `new_beginning` are checksums of its first part before and after, and
/// `rest_bytes` follow that part unchanged.
///
/// CRCs are linear: the unchanged part contributes the same to both, so only the difference of the
/// beginnings must be carried over `rest_bytes`, in time proportional to the logarithm of the
/// length.
pub fn replace_beginning(whole: u32, old_beginning: u32, new_beginning: u32, rest_bytes: usize) -> u32 {
    whole ^ carry(old_beginning ^ new_beginning, rest_bytes)
}

/// Returns the contribution of `checksum` to the checksum of a message that continues for `bytes`:
/// its product with x^(8 bytes).
///
/// It takes one product for every bit that is set in the length. The checksum crate squares
/// matrices instead, which takes 20 to 70 µs, as long as the checksum of a megabyte.
fn carry(checksum: u32, bytes: usize) -> u32 {
    let mut carried = checksum;
    let mut rest = bytes;
    let mut power = &POWERS[BITS_PER_BYTE_LOG2..];
    while rest != 0 {
        if rest & 1 != 0 {
            carried = product(carried, power[0]);
        }
        rest >>= 1;
        power = &power[1..];
    }
    carried
}

/// The polynomial without its highest term; the lowest bit is the highest power, as in checksums.
const POLYNOMIAL: u32 = 0x82F6_3B78;
const BITS_PER_BYTE_LOG2: usize = 3;

/// x^(2^i) for every bit of a length in bits, and one more, which the last step of `carry` reads.
const POWERS: [u32; usize::BITS as usize + BITS_PER_BYTE_LOG2 + 1] = {
    let mut powers = [1 << 30; usize::BITS as usize + BITS_PER_BYTE_LOG2 + 1];
    let mut i = 1;
    while i < powers.len() {
        powers[i] = product(powers[i - 1], powers[i - 1]);
        i += 1;
    }
    powers
};

/// The product of two polynomials modulo `POLYNOMIAL`.
const fn product(first: u32, second: u32) -> u32 {
    let mut sum = 0;
    let mut shifted = second;
    let mut bit = u32::BITS;
    while bit > 0 {
        bit -= 1;
        // Masks instead of branches: checksums are random bits.
        sum ^= shifted & ((first >> bit) & 1).wrapping_neg();
        shifted = (shifted >> 1) ^ (POLYNOMIAL & (shifted & 1).wrapping_neg());
    }
    sum
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
    fn combining_agrees_with_the_checksum_crate_over_any_length() {
        let lengths = (0..40)
            .map(|bit| (1usize << bit) + (bit * 7))
            .chain([0, 1, 3, 16_323, 1_000_000]);
        for bytes in lengths {
            let (first, second) = (0xDEAD_BEEF ^ bytes as u32, 0x1234_5678);
            let theirs = crc_fast::checksum_combine(
                CrcAlgorithm::Crc32Iscsi,
                first.into(),
                second.into(),
                bytes as u64,
            );
            assert_eq!(u64::from(combine(first, second, bytes)), theirs, "{bytes} bytes");
        }
    }

    #[test]
    fn a_changed_beginning_needs_no_second_pass_over_the_rest() {
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
