//! `.txnindex`: which transactions of a segment were aborted, for readers of committed records.

/// - Units: all but the producer id are offsets; `last_offset` is the marker's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AbortedTransaction {
    pub producer_id: i64,
    pub first_offset: i64,
    pub last_offset: i64,
    /// The last stable offset when the marker was written: no earlier abort can concern a reader beyond it.
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

    /// All whole entries of a file; a torn one at the end is left out.
    pub(crate) fn decode_all(bytes: &[u8]) -> Vec<AbortedTransaction> {
        bytes
            .chunks_exact(AbortedTransaction::BYTES)
            .map_while(AbortedTransaction::decode)
            .collect()
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
    fn entries_are_34_bytes_and_a_torn_one_is_left_out() {
        let entry = AbortedTransaction {
            producer_id: 1,
            first_offset: 2,
            last_offset: 300,
            last_stable_offset: 301,
        };
        let mut bytes = Vec::new();
        entry.encode(&mut bytes);
        assert_eq!(bytes.len(), 34);
        entry.encode(&mut bytes);
        assert_eq!(AbortedTransaction::decode_all(&bytes), [entry, entry]);
        assert_eq!(AbortedTransaction::decode_all(&bytes[..67]), [entry]);
        bytes[1] = 9;
        assert_eq!(AbortedTransaction::decode_all(&bytes), []);
    }
}
