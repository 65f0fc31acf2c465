//! One batch read back from a segment, records decompressed.

use std::io;

use ottla_wire::records::batch::{BatchHeader, HEADER_BYTES};
use ottla_wire::records::compression::{Codec, CompressionError, decompress};
use ottla_wire::records::record::Records;

use crate::read_mode::{ReadMode, read_up_to};
use crate::segment::{BatchPlace, Segment};

/// A batch that decompresses to more is not decoded: the memory bound of one compaction or
/// timestamp look-up. Requests are limited to 100 MiB (`socket.request.max.bytes`), and few batches
/// decompress to more than that.
const UNCOMPRESSED_BYTES_MAX: usize = 128 * 1024 * 1024;

/// The most that an event loop decompresses itself: half a millisecond's work.
const RESIDENT_BYTES_MAX: usize = 512 * 1024;

#[derive(Debug, Default)]
pub(crate) struct StoredBatch {
    /// The batch as stored in the file.
    bytes: Vec<u8>,
    uncompressed: Vec<u8>,
    header: Option<BatchHeader>,
}

impl StoredBatch {
    /// Reads the batch at `place` into the buffers of `self`.
    ///
    /// - Errors: `WouldBlock` in `ReadMode::Resident`, also for a batch that is too large to
    ///   decompress there; `InvalidData` when it is not what its header says.
    pub fn load(&mut self, segment: &Segment, place: &BatchPlace, mode: ReadMode) -> io::Result<()> {
        self.header = None;
        let length = usize::try_from(place.bytes).expect("a batch is shorter than 2 GiB");
        self.bytes.resize(length, 0);
        if read_up_to(&*segment.file, &mut self.bytes, place.position, mode)? < length {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let invalid = |reason: String| io::Error::new(io::ErrorKind::InvalidData, reason);
        let header = BatchHeader::parse(&self.bytes).map_err(|error| invalid(error.to_string()))?;
        let codec = header
            .compression()
            .ok_or_else(|| invalid("unknown codec".to_string()))?;
        self.uncompressed.clear();
        if codec != Codec::None && header.record_count > 0 {
            let limit_bytes = match mode {
                ReadMode::Resident => RESIDENT_BYTES_MAX,
                ReadMode::Blocking => UNCOMPRESSED_BYTES_MAX,
            };
            let packed = &self.bytes[HEADER_BYTES..];
            match decompress(codec, packed, limit_bytes, &mut self.uncompressed) {
                Ok(()) => {}
                Err(CompressionError::LimitExceeded { .. }) if mode == ReadMode::Resident => {
                    return Err(io::ErrorKind::WouldBlock.into());
                }
                Err(error) => return Err(invalid(error.to_string())),
            }
        }
        self.header = Some(header);
        Ok(())
    }

    pub fn header(&self) -> &BatchHeader {
        self.header.as_ref().expect("loaded before")
    }

    /// Header and records as stored.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub fn records(&self) -> Records<'_> {
        let header = self.header();
        let compressed = header.compression() != Some(Codec::None) && header.record_count > 0;
        let records = if compressed {
            &self.uncompressed
        } else {
            &self.bytes[HEADER_BYTES..]
        };
        Records::new(header, records)
    }
}
