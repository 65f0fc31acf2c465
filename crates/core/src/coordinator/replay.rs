//! Replays the log of a coordinator into its machine.

use std::fmt;
use std::io;

use ottla_log::disk::DiskFile;
use ottla_log::{Bound, LogError, LogReader, Read, ReadError, ReadMode};
use ottla_wire::records::batch::{Batch, BatchError, BatchHeader, batches};
use ottla_wire::records::compression::{self, Codec, CompressionError};
use ottla_wire::records::control::ControlError;
use ottla_wire::records::record::{Record, RecordError, Records};

/// A machine that is rebuilt from its log.
pub trait Replay {
    /// Takes a record of an intact batch, control records included.
    ///
    /// - Errors: the record cannot be used; to skip it would lose its contents.
    fn take(&mut self, header: &BatchHeader, record: &Record<'_>) -> Result<Taken, LoadError>;
}

/// What became of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    Applied,
    /// It is of an unknown kind, and stays in the log.
    Skipped,
    Control,
}

/// Bytes per read, like `offsets.load.buffer.size`; a larger batch is read whole.
const READ_BYTES: u32 = 5 * 1024 * 1024;
/// Bound of a decompressed batch: `message.max.bytes` bounds a coordinator's batch before
/// compression; this allows for any setting of it.
const DECOMPRESSED_BYTES_MAX: usize = 256 * 1024 * 1024;

/// The result of a replay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    pub records: u64,
    /// Records of unknown types. They stay in the log.
    pub skipped: u64,
    /// Damaged batches. Their contents are lost.
    pub damages: Vec<String>,
}

/// Replays the log below `bound`, skipping damaged batches. Waits for the disk.
pub fn replay(reader: &LogReader, bound: Bound, into: &mut impl Replay) -> Result<Replayed, LoadError> {
    let mut replayed = Replayed::default();
    let mut offset = reader.start_offset();
    loop {
        let stopped = match reader.read(offset, READ_BYTES, true, bound, ReadMode::Blocking) {
            Ok(Read::Region(read)) => {
                let file = &*read.region.file;
                let buffer =
                    read_region(file, read.region.position, read.region.bytes).map_err(LoadError::Io)?;
                replay_batches(&buffer, offset, into, &mut replayed)?
            }
            Ok(_) => return Ok(replayed),
            Err(ReadError::Log(damage @ LogError::Corrupt { .. })) => Stopped {
                offset,
                damage: Some(damage.to_string()),
            },
            Err(error) => return Err(LoadError::Read(error)),
        };
        offset = match stopped.damage {
            Some(damage) => {
                replayed.damages.push(damage);
                let behind = reader.next_batch_behind(stopped.offset);
                match behind.map_err(|error| LoadError::Read(ReadError::Log(error)))? {
                    Some(behind) => behind,
                    None => return Ok(replayed),
                }
            }
            // A region begins with a whole batch, so the replay always advances.
            None if stopped.offset > offset => stopped.offset,
            None => return Err(LoadError::Incomplete { offset }),
        };
    }
}

/// Where the replay of a region ended: after its last whole batch, or at a damaged one.
pub(crate) struct Stopped {
    pub offset: i64,
    pub damage: Option<String>,
}

fn read_region(file: &dyn DiskFile, position: u64, bytes: u64) -> io::Result<Vec<u8>> {
    let mut buffer = vec![0; usize::try_from(bytes).map_err(io::Error::other)?];
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], position + filled as u64)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => filled += count,
        }
    }
    Ok(buffer)
}

/// Replays whole batches; a truncated last one is left for the next read.
pub(crate) fn replay_batches(
    bytes: &[u8],
    from: i64,
    into: &mut impl Replay,
    replayed: &mut Replayed,
) -> Result<Stopped, LoadError> {
    let mut stopped = Stopped {
        offset: from,
        damage: None,
    };
    for batch in batches(bytes) {
        let intact = match batch {
            Err(BatchError::Truncated { .. }) => break,
            Ok(batch) => batch.verify_checksum().map(|()| batch),
            Err(error) => Err(error),
        };
        match intact {
            Ok(batch) => {
                replay_batch(&batch, into, replayed)?;
                stopped.offset = batch.header.next_offset();
            }
            Err(error) => {
                stopped.damage = Some(format!("batch at offset {}: {error}", stopped.offset));
                break;
            }
        }
    }
    Ok(stopped)
}

fn replay_batch(batch: &Batch<'_>, into: &mut impl Replay, replayed: &mut Replayed) -> Result<(), LoadError> {
    let header = &batch.header;
    let offset = header.base_offset;
    let mut plain = Vec::new();
    let records = match header.compression() {
        Some(Codec::None) => batch.records(),
        codec => {
            let codec = codec.ok_or(LoadError::UnknownCodec { offset })?;
            compression::decompress(codec, batch.record_bytes(), DECOMPRESSED_BYTES_MAX, &mut plain)
                .map_err(|error| LoadError::Compression { offset, error })?;
            Records::new(header, &plain)
        }
    };
    for record in records {
        let record = record.map_err(|error| LoadError::Record { offset, error })?;
        match into.take(header, &record)? {
            Taken::Applied => replayed.records += 1,
            Taken::Skipped => replayed.skipped += 1,
            Taken::Control => {}
        }
    }
    Ok(())
}

/// Why a partition has no coordinator.
#[derive(Debug)]
pub enum LoadError {
    Read(ReadError),
    Io(io::Error),
    UnknownCodec {
        offset: i64,
    },
    Compression {
        offset: i64,
        error: CompressionError,
    },
    Record {
        offset: i64,
        error: RecordError,
    },
    Control {
        offset: i64,
        error: ControlError,
    },
    /// A record that cannot be decoded: skipping it would lose its contents.
    Content {
        offset: i64,
        problem: String,
    },
    /// The log has no whole batch where one should begin.
    Incomplete {
        offset: i64,
    },
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoadError::Read(error) => write!(f, "{error}"),
            LoadError::Io(error) => write!(f, "cannot read the log: {error}"),
            LoadError::UnknownCodec { offset } => {
                write!(f, "unknown compression of the batch at offset {offset}")
            }
            LoadError::Compression { offset, error } => write!(f, "batch at offset {offset}: {error}"),
            LoadError::Record { offset, error } => {
                write!(f, "record in the batch at offset {offset}: {error}")
            }
            LoadError::Control { offset, error } => write!(f, "control batch at offset {offset}: {error}"),
            LoadError::Content { offset, problem } => {
                write!(f, "unreadable record at offset {offset}: {problem}")
            }
            LoadError::Incomplete { offset } => write!(f, "no whole batch at offset {offset}"),
        }
    }
}

impl std::error::Error for LoadError {}
