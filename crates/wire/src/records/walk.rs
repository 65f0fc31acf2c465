//! Walks over a batch's records to check that they are what the batch announces, and finds their
//! bounds.
//!
//! It reads lengths and deltas and skips keys and values, so a record costs a few nanoseconds
//! whatever its length. Records arrive in pieces of any size from a decompressor and are not
//! reassembled. Records that pass the walk can be decoded by [`super::record::Records`].

use std::fmt;

use super::compression::CompressionError;
use super::compression::unfold::Pieces;
use super::record::{RawRecord, RecordError};
use crate::primitives::varint::{self, ExcessBits, unzigzag_i32, unzigzag_i64};

/// The fields of a record that the walk reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    pub timestamp_delta: i64,
    pub offset_delta: i32,
    pub has_key: bool,
}

impl Seen {
    #[inline(always)]
    fn of(record: &RawRecord<'_>) -> Seen {
        Seen {
            timestamp_delta: record.timestamp_delta,
            offset_delta: record.offset_delta,
            has_key: record.key.is_some(),
        }
    }
}

/// A visitor of the records, in order.
pub trait Visit {
    fn record(&mut self, index: i32, seen: Seen);
}

/// Why bytes are not the records that a batch announces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WalkError {
    Codec(CompressionError),
    /// `index` counts from 0; for bytes after the last record it is the number of records.
    Record {
        index: i32,
        error: RecordError,
    },
}

impl fmt::Display for WalkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WalkError::Codec(error) => error.fmt(f),
            WalkError::Record { index, error } => write!(f, "record {index}: {error}"),
        }
    }
}

impl std::error::Error for WalkError {}

/// Checks that the pieces have exactly `record_count` records and no trailing bytes.
///
/// - Shape: every record is visited once, in order, before the walk fails at a later one.
/// - Returns the number of bytes of all pieces.
pub fn walk<V: Visit>(record_count: i32, pieces: &mut dyn Pieces, visit: &mut V) -> Result<usize, WalkError> {
    let mut walker = Walker {
        pieces,
        position: 0,
        before: 0,
    };
    let mut index = 0;
    while index < record_count {
        // A piece often ends with a record: the next record is again tried on the fast path.
        walker.has_byte().map_err(WalkError::Codec)?;
        index = walker.walk_whole(index, record_count, visit);
        if index < record_count {
            let seen = walker.walk_slowly().map_err(|stop| stop.at(index))?;
            visit.record(index, seen);
            index += 1;
        }
    }
    walker.end().map_err(|stop| stop.at(index))
}

/// Why a record ends the walk.
enum Stop {
    Codec(CompressionError),
    Record(RecordError),
}

impl Stop {
    fn at(self, index: i32) -> WalkError {
        match self {
            Stop::Codec(error) => WalkError::Codec(error),
            Stop::Record(error) => WalkError::Record { index, error },
        }
    }
}

impl From<CompressionError> for Stop {
    fn from(error: CompressionError) -> Stop {
        Stop::Codec(error)
    }
}

impl From<RecordError> for Stop {
    fn from(error: RecordError) -> Stop {
        Stop::Record(error)
    }
}

struct Walker<'a> {
    pieces: &'a mut dyn Pieces,
    /// In the current piece.
    position: usize,
    /// Bytes of all pieces before it.
    before: usize,
}

impl Walker<'_> {
    /// Walks the records that are complete in the current piece; returns the index of the first
    /// that is incomplete or invalid.
    fn walk_whole<V: Visit>(&mut self, first: i32, record_count: i32, visit: &mut V) -> i32 {
        let piece = self.pieces.piece();
        let mut index = first;
        while index < record_count {
            let decoded = RawRecord::decode_with(piece, self.position, ExcessBits::Refused);
            let Ok((record, end)) = decoded else {
                break;
            };
            visit.record(index, Seen::of(&record));
            self.position = end;
            index += 1;
        }
        index
    }

    /// Walks one record byte by byte: it continues in the next piece, or it is invalid.
    #[cold]
    fn walk_slowly(&mut self) -> Result<Seen, Stop> {
        let position = self.position();
        let mut unbounded = usize::MAX;
        let length = self.varint(&mut unbounded)?;
        let Ok(announced) = usize::try_from(length) else {
            return Err(invalid_length(position, length));
        };
        let mut left = announced;
        // The attributes are unassigned so far.
        self.byte(&mut left)?;
        let timestamp_delta = self.varlong(&mut left)?;
        let offset_delta = self.varint(&mut left)?;
        let has_key = self.skip_nullable(&mut left)?;
        self.skip_nullable(&mut left)?;
        let header_count = self.length(&mut left)?;
        for _ in 0..header_count {
            let key_bytes = self.length(&mut left)?;
            self.skip(key_bytes, &mut left)?;
            self.skip_nullable(&mut left)?;
        }
        if left > 0 {
            let actual = announced - left;
            return Err(Stop::Record(RecordError::LengthMismatch {
                position,
                announced,
                actual,
            }));
        }
        Ok(Seen {
            timestamp_delta,
            offset_delta,
            has_key,
        })
    }

    /// Checks that nothing follows.
    fn end(&mut self) -> Result<usize, Stop> {
        // Even after the last record the end of the compressed data must be checked.
        if self.has_byte()? {
            return Err(Stop::Record(RecordError::TrailingBytes {
                position: self.position(),
                trailing: self.pieces.piece().len() - self.position,
            }));
        }
        Ok(self.position())
    }

    fn position(&self) -> usize {
        self.before + self.position
    }

    /// Fetches the next piece if this one is used up; false at the end.
    fn has_byte(&mut self) -> Result<bool, CompressionError> {
        let bytes = self.pieces.piece().len();
        if self.position < bytes {
            return Ok(true);
        }
        self.before += bytes;
        self.position = 0;
        self.pieces.next()
    }

    /// Reads a byte.
    ///
    /// - `left`: bytes of the record that are not read yet.
    fn byte(&mut self, left: &mut usize) -> Result<u8, Stop> {
        let position = self.position();
        if *left == 0 {
            return Err(Stop::Record(RecordError::Truncated { position }));
        }
        if !self.has_byte()? {
            return Err(Stop::Record(RecordError::Truncated { position }));
        }
        let byte = self.pieces.piece()[self.position];
        self.position += 1;
        *left -= 1;
        Ok(byte)
    }

    fn varint(&mut self, left: &mut usize) -> Result<i32, Stop> {
        match varint::read::<32, _>(ExcessBits::Refused, || self.byte(left))? {
            Some(value) => Ok(unzigzag_i32(value)),
            None => Err(self.too_long()),
        }
    }

    fn varlong(&mut self, left: &mut usize) -> Result<i64, Stop> {
        match varint::read::<64, _>(ExcessBits::Refused, || self.byte(left))? {
            Some(value) => Ok(unzigzag_i64(value)),
            None => Err(self.too_long()),
        }
    }

    fn too_long(&self) -> Stop {
        let position = self.position();
        Stop::Record(RecordError::VarintTooLong { position })
    }

    /// A length that must not be negative.
    fn length(&mut self, left: &mut usize) -> Result<usize, Stop> {
        let length = self.varint(left)?;
        usize::try_from(length).map_err(|_| invalid_length(self.position(), length))
    }

    /// Skips nullable bytes; returns false if they are null.
    fn skip_nullable(&mut self, left: &mut usize) -> Result<bool, Stop> {
        let length = self.varint(left)?;
        if length == -1 {
            return Ok(false);
        }
        let bytes = usize::try_from(length).map_err(|_| invalid_length(self.position(), length))?;
        self.skip(bytes, left)?;
        Ok(true)
    }

    fn skip(&mut self, bytes: usize, left: &mut usize) -> Result<(), Stop> {
        if bytes > *left {
            let length = i32::try_from(bytes).expect("it was read as an i32");
            return Err(invalid_length(self.position(), length));
        }
        *left -= bytes;
        let mut missing = bytes;
        while missing > 0 {
            if !self.has_byte()? {
                let position = self.position();
                return Err(Stop::Record(RecordError::Truncated { position }));
            }
            let step = missing.min(self.pieces.piece().len() - self.position);
            self.position += step;
            missing -= step;
        }
        Ok(())
    }
}

fn invalid_length(position: usize, length: i32) -> Stop {
    let length = length.into();
    Stop::Record(RecordError::InvalidLength { position, length })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::batch::BatchHeader;
    use crate::records::builder::{BatchBuilder, BatchOptions};
    use crate::records::record::{Header, Records};

    /// Bytes cut into pieces of a few lengths, in turn.
    struct Cut<'a> {
        piece: &'a [u8],
        rest: &'a [u8],
        lengths: Vec<usize>,
    }

    impl Pieces for Cut<'_> {
        fn piece(&self) -> &[u8] {
            self.piece
        }

        fn next(&mut self) -> Result<bool, CompressionError> {
            self.lengths.rotate_left(1);
            (self.piece, self.rest) = self.rest.split_at(self.lengths[0].min(self.rest.len()));
            Ok(!self.piece.is_empty())
        }
    }

    #[derive(Debug, Default, PartialEq)]
    struct All(Vec<Seen>);

    impl Visit for All {
        fn record(&mut self, index: i32, seen: Seen) {
            assert_eq!(index, self.0.len() as i32);
            self.0.push(seen);
        }
    }

    fn walk_cut(count: i32, bytes: &[u8], lengths: &[usize]) -> (All, Result<usize, WalkError>) {
        let mut all = All::default();
        let mut pieces = Cut {
            piece: &[],
            rest: bytes,
            lengths: lengths.to_vec(),
        };
        let outcome = walk(count, &mut pieces, &mut all);
        (all, outcome)
    }

    /// Records with and without key, value and headers, some longer than a piece, with lengths
    /// encoded in one, two and three bytes.
    fn sample() -> (BatchHeader, Vec<u8>) {
        let mut builder = BatchBuilder::new(BatchOptions::default());
        let headers = [
            Header {
                key: b"trace",
                value: Some(&[7; 90]),
            },
            Header {
                key: b"",
                value: None,
            },
        ];
        builder.append(1_700_000_000_000, None, None, &[]);
        builder.append(1_700_000_100_000, Some(b"key"), Some(&[1; 40]), &headers);
        builder.append(1_600_000_000_000, Some(&[2; 70]), None, &headers[..1]);
        builder.append(1_700_000_000_001, None, Some(&[3; 9_000]), &[]);
        builder.append(1_700_000_000_002, Some(b""), Some(b""), &[]);
        let bytes = builder.finish();
        let header = BatchHeader::parse(&bytes).unwrap();
        (header, bytes[crate::records::batch::HEADER_BYTES..].to_vec())
    }

    const LENGTHS: [&[usize]; 6] = [&[usize::MAX], &[1], &[2, 3], &[7], &[64, 1], &[300, 5]];

    #[test]
    fn however_the_bytes_are_cut_the_records_are_the_same() {
        let (header, bytes) = sample();
        let records: Vec<_> = Records::new(&header, &bytes).map(Result::unwrap).collect();
        for lengths in LENGTHS {
            let (all, outcome) = walk_cut(header.record_count, &bytes, lengths);
            assert_eq!(outcome, Ok(bytes.len()), "{lengths:?}");
            assert_eq!(all.0.len(), records.len());
            for (seen, record) in all.0.iter().zip(&records) {
                assert_eq!(header.base_timestamp + seen.timestamp_delta, record.timestamp);
                assert_eq!(i64::from(seen.offset_delta), record.offset);
                assert_eq!(seen.has_key, record.key.is_some());
            }
        }
    }

    #[test]
    fn the_error_does_not_depend_on_how_the_bytes_are_cut() {
        let (header, bytes) = sample();
        let mut refused = 0;
        // The rest is one long value.
        for position in 0..300 {
            for value in [0x00, 0x01, 0x7F, 0x80, 0xFF] {
                let mut harmed = bytes.clone();
                harmed[position] = value;
                let whole = walk_cut(header.record_count, &harmed, LENGTHS[0]);
                let reads = Records::new(&header, &harmed).all(|record| record.is_ok());
                assert!(reads || whole.1.is_err(), "byte {position} = {value}: {whole:?}");
                refused += usize::from(whole.1.is_err());
                for lengths in &LENGTHS[1..] {
                    let cut = walk_cut(header.record_count, &harmed, lengths);
                    assert_eq!(cut.0, whole.0, "byte {position} = {value}, cut {lengths:?}");
                    assert_eq!(index_of(&cut.1), index_of(&whole.1));
                }
            }
        }
        assert!(refused > 100, "{refused}");
    }

    fn index_of(outcome: &Result<usize, WalkError>) -> Result<usize, i32> {
        match outcome {
            Ok(bytes) => Ok(*bytes),
            Err(WalkError::Record { index, .. }) => Err(*index),
            Err(WalkError::Codec(error)) => panic!("{error}"),
        }
    }

    #[test]
    fn every_truncation_is_noticed_and_names_the_record() {
        let (header, bytes) = sample();
        let mut boundaries = vec![];
        let mut records = Records::new(&header, &bytes);
        while records.next().is_some() {
            boundaries.push(records.position());
        }
        for end in (0..400).chain([bytes.len() - 1]) {
            let (_, outcome) = walk_cut(header.record_count, &bytes[..end], &[50]);
            let index = boundaries.iter().filter(|boundary| **boundary <= end).count() as i32;
            assert_eq!(
                outcome,
                Err(WalkError::Record {
                    index,
                    error: RecordError::Truncated { position: end }
                }),
                "{end}"
            );
        }
    }

    #[test]
    fn trailing_bytes_are_noticed_in_any_piece() {
        let (header, mut bytes) = sample();
        let position = bytes.len();
        bytes.extend_from_slice(b"more");
        for lengths in [&[usize::MAX][..], &[position], &[1]] {
            let (_, outcome) = walk_cut(header.record_count, &bytes, lengths);
            assert!(
                matches!(
                    outcome,
                    Err(WalkError::Record {
                        index: 5,
                        error: RecordError::TrailingBytes { position: at, .. }
                    }) if at == position
                ),
                "{outcome:?}"
            );
        }
    }

    #[test]
    fn integers_that_clients_read_differently_are_refused() {
        // A record of ten bytes; five of them are its value's length, the last one with the upper
        // four bits.
        let record = |last| [20, 0, 0, 0, 1, 0x80, 0x80, 0x80, 0x80, last, 0];
        for (last, is_sound) in [(0x00, true), (0x10, false), (0x70, false)] {
            for lengths in [&[usize::MAX][..], &[1]] {
                let (_, outcome) = walk_cut(1, &record(last), lengths);
                let too_long = matches!(
                    outcome,
                    Err(WalkError::Record {
                        error: RecordError::VarintTooLong { .. },
                        ..
                    })
                );
                assert_eq!(outcome.is_ok(), is_sound, "{last}: {outcome:?}");
                assert_eq!(too_long, !is_sound);
            }
        }
    }
}
