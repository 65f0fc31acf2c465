//! `.txnindex`: the aborted transactions of a segment, for readers of committed records.

use std::ops::Range;

/// - Units: everything but the producer id is an offset; `last_offset` is the marker's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AbortedTransaction {
    pub producer_id: i64,
    pub first_offset: i64,
    pub last_offset: i64,
    /// The last stable offset when the marker was written: no earlier abort can concern a reader
    /// beyond it.
    pub last_stable_offset: i64,
}

impl AbortedTransaction {
    /// Version 2, producer id 8, first offset 8, last offset 8, last stable offset 8.
    pub(crate) const BYTES: usize = 2 + 8 + 8 + 8 + 8;

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&0i16.to_be_bytes());
        for field in [
            self.producer_id,
            self.first_offset,
            self.last_offset,
            self.last_stable_offset,
        ] {
            out.extend_from_slice(&field.to_be_bytes());
        }
    }

    /// Decodes the entries of a segment's file; `None` if it is damaged.
    ///
    /// - Shape: markers lie within `offsets`, in order, each after the transaction it ends.
    pub(crate) fn decode_all(bytes: &[u8], offsets: Range<i64>) -> Option<Vec<AbortedTransaction>> {
        let (entries, rest) = bytes.as_chunks::<{ AbortedTransaction::BYTES }>();
        let entries: Vec<AbortedTransaction> = entries
            .iter()
            .map(|entry| AbortedTransaction::decode(entry))
            .collect::<Option<_>>()?;
        let makes_sense = |entry: &AbortedTransaction| {
            entry.producer_id >= 0
                && entry.first_offset >= 0
                && entry.first_offset < entry.last_offset
                && entry.last_stable_offset <= entry.last_offset + 1
                && offsets.contains(&entry.last_offset)
        };
        let is_whole = rest.is_empty()
            && entries.iter().all(makes_sense)
            && entries.is_sorted_by(|one, next| one.last_offset < next.last_offset);
        is_whole.then_some(entries)
    }

    fn decode(entry: &[u8]) -> Option<AbortedTransaction> {
        let (version, fields) = entry.split_first_chunk::<2>()?;
        if *version != [0, 0] {
            return None;
        }
        let mut fields = fields
            .chunks_exact(8)
            .filter_map(|field| field.first_chunk().copied().map(i64::from_be_bytes));
        Some(AbortedTransaction {
            producer_id: fields.next()?,
            first_offset: fields.next()?,
            last_offset: fields.next()?,
            last_stable_offset: fields.next()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_34_bytes_and_a_damaged_file_is_none() {
        let entry = AbortedTransaction {
            producer_id: 1,
            first_offset: 2,
            last_offset: 300,
            last_stable_offset: 301,
        };
        let later = AbortedTransaction {
            last_offset: 400,
            ..entry
        };
        let mut bytes = Vec::new();
        entry.encode(&mut bytes);
        assert_eq!(bytes.len(), 34);
        later.encode(&mut bytes);
        let decode = |bytes: &[u8], end| AbortedTransaction::decode_all(bytes, 0..end);
        assert_eq!(decode(&bytes, 500), Some(vec![entry, later]));
        assert_eq!(decode(&bytes[..67], 500), None, "torn");
        assert_eq!(decode(&bytes, 400), None, "of another segment");
        bytes[1] = 9;
        assert_eq!(decode(&bytes, 500), None, "of another version");
    }

    #[test]
    fn an_entry_that_no_marker_can_have_written_is_damage() {
        // Producer id, first, last and last stable offset.
        let decode = |entries: &[[i64; 4]]| {
            let mut bytes = Vec::new();
            for [producer_id, first_offset, last_offset, last_stable_offset] in entries.iter().copied() {
                let entry = AbortedTransaction {
                    producer_id,
                    first_offset,
                    last_offset,
                    last_stable_offset,
                };
                entry.encode(&mut bytes);
            }
            AbortedTransaction::decode_all(&bytes, 0..500).map(|entries| entries.len())
        };
        assert_eq!(decode(&[[0, 0, 1, 2], [0, 0, 2, 0]]), Some(2));
        for wrong in [[-1, 0, 1, 2], [0, -1, 1, 2], [0, 1, 1, 2], [0, 0, 1, 3]] {
            assert_eq!(decode(&[wrong]), None, "{wrong:?}");
        }
        assert_eq!(decode(&[[1, 0, 9, 10], [2, 0, 9, 10]]), None, "two at one offset");
    }
}
