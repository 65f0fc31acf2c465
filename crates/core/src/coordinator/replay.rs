//! Replays the log of a coordinator into its machine.

use std::fmt;
use std::io;
use std::path::PathBuf;

use ottla_log::disk::DiskFile;
use ottla_log::{Bound, LogError, LogReader, Read, ReadError, ReadMode};
use ottla_wire::records::batch::{Batch, BatchError, BatchHeader, batches};
use ottla_wire::records::compression::{self, Codec, CompressionError};
use ottla_wire::records::control::ControlError;
use ottla_wire::records::record::{Record, RecordError, Records};

/// A machine that is rebuilt from its log.
pub trait Replay {
    /// What follows from an intact batch that cannot be decoded.
    const UNREADABLE: Unreadable;

    /// Takes a record of an intact batch, control records included.
    ///
    /// - Errors: the record cannot be used.
    fn take(&mut self, header: &BatchHeader, record: &Record<'_>) -> Result<Taken, ContentError>;
}

/// What to do about contents that are intact and cannot be decoded: those of a later version, or of
/// a faulty writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// They are passed over, as damaged ones are.
    Skip,
    /// The machine is not used: what it decides without them cannot be taken back.
    Refuse,
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

/// At most this many damages of a log are told one by one.
const DAMAGES_MAX: usize = 100;

/// The result of a replay.
#[derive(Clone, Debug, Default)]
pub struct Replayed {
    pub records: u64,
    /// Records of unknown types. They stay in the log.
    pub skipped: u64,
    /// Batches and records that cannot be read, with file and position. Their contents are lost.
    pub damages: Vec<LogError>,
    /// The number of further ones.
    pub more_damages: u64,
}

impl Replayed {
    /// Whether every record was read and understood.
    pub fn is_whole(&self) -> bool {
        self.damages.is_empty() && self.more_damages == 0 && self.skipped == 0
    }

    fn note(&mut self, damage: LogError) {
        if self.damages.len() < DAMAGES_MAX {
            self.damages.push(damage);
        } else {
            self.more_damages += 1;
        }
    }
}

/// Where bytes of a log are in its files.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub path: PathBuf,
    pub position: u64,
}

/// Replays the log below `bound`, skipping damaged batches. Waits for the disk.
pub fn replay(reader: &LogReader, bound: Bound, into: &mut impl Replay) -> Result<Replayed, LoadError> {
    let mut replayed = Replayed::default();
    let mut offset = reader.start_offset();
    loop {
        let stopped = match reader.read(offset, READ_BYTES, true, bound, ReadMode::Blocking) {
            Ok(Read::Region(read)) => {
                let (file, position) = (&*read.region.file, read.region.position);
                let buffer = read_region(file, position, read.region.bytes).map_err(LoadError::Io)?;
                let path = reader.log_path(read.at.segment_base_offset);
                replay_batches(&buffer, &Place { path, position }, offset, into, &mut replayed)?
            }
            Ok(_) => return Ok(replayed),
            Err(ReadError::Log(damage @ LogError::Corrupt { .. })) => Stopped {
                offset,
                damage: Some(damage),
            },
            Err(error) => return Err(LoadError::Read(error)),
        };
        offset = match stopped.damage {
            Some(damage) => {
                replayed.note(damage);
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
    pub damage: Option<LogError>,
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
pub(crate) fn replay_batches<R: Replay>(
    bytes: &[u8],
    place: &Place,
    from: i64,
    into: &mut R,
    replayed: &mut Replayed,
) -> Result<Stopped, LoadError> {
    let mut stopped = Stopped {
        offset: from,
        damage: None,
    };
    let mut position = place.position;
    for batch in batches(bytes) {
        let intact = match batch {
            Err(BatchError::Truncated { .. }) => break,
            Ok(batch) => batch.verify_checksum().map(|()| batch),
            Err(error) => Err(error),
        };
        match intact {
            Ok(batch) => {
                let mut unreadable = Vec::new();
                replay_batch(&batch, into, replayed, &mut unreadable);
                for error in unreadable {
                    let damage = LogError::corrupt(&place.path, position, error.to_string());
                    match R::UNREADABLE {
                        Unreadable::Skip => replayed.note(damage),
                        Unreadable::Refuse => return Err(LoadError::Unreadable(damage)),
                    }
                }
                position += batch.bytes.len() as u64;
                stopped.offset = batch.header.next_offset();
            }
            Err(error) => {
                let reason = format!("batch at offset {}: {error}", stopped.offset);
                stopped.damage = Some(LogError::corrupt(&place.path, position, reason));
                break;
            }
        }
    }
    Ok(stopped)
}

/// Replays what can be read of an intact batch, and adds what cannot.
fn replay_batch(
    batch: &Batch<'_>,
    into: &mut impl Replay,
    replayed: &mut Replayed,
    unreadable: &mut Vec<ContentError>,
) {
    let header = &batch.header;
    let offset = header.base_offset;
    let mut plain = Vec::new();
    let records = match records_of(batch, &mut plain) {
        Ok(records) => records,
        Err(error) => return unreadable.push(error),
    };
    for record in records {
        let taken = match record {
            Ok(record) => into.take(header, &record),
            // The length is part of what cannot be read: no record behind it can be found.
            Err(error) => return unreadable.push(ContentError::Record { offset, error }),
        };
        match taken {
            Ok(Taken::Applied) => replayed.records += 1,
            Ok(Taken::Skipped) => replayed.skipped += 1,
            Ok(Taken::Control) => {}
            Err(error) => unreadable.push(error),
        }
    }
}

fn records_of<'a>(batch: &Batch<'a>, plain: &'a mut Vec<u8>) -> Result<Records<'a>, ContentError> {
    let header = &batch.header;
    let offset = header.base_offset;
    let codec = header
        .compression()
        .ok_or(ContentError::UnknownCodec { offset })?;
    if codec == Codec::None {
        return Ok(batch.records());
    }
    compression::decompress(codec, batch.record_bytes(), DECOMPRESSED_BYTES_MAX, plain)
        .map_err(|error| ContentError::Compression { offset, error })?;
    Ok(Records::new(header, plain))
}

/// Why contents of an intact batch cannot be used.
#[derive(Debug)]
pub enum ContentError {
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
    /// A record that cannot be decoded.
    Content {
        offset: i64,
        problem: String,
    },
}

impl fmt::Display for ContentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ContentError::UnknownCodec { offset } => {
                write!(f, "unknown compression of the batch at offset {offset}")
            }
            ContentError::Compression { offset, error } => write!(f, "batch at offset {offset}: {error}"),
            ContentError::Record { offset, error } => {
                write!(f, "record in the batch at offset {offset}: {error}")
            }
            ContentError::Control { offset, error } => {
                write!(f, "control batch at offset {offset}: {error}")
            }
            ContentError::Content { offset, problem } => {
                write!(f, "unreadable record at offset {offset}: {problem}")
            }
        }
    }
}

/// Why a partition has no coordinator.
#[derive(Debug)]
pub enum LoadError {
    Read(ReadError),
    Io(io::Error),
    /// Intact contents that cannot be decoded, and must not be skipped.
    Unreadable(LogError),
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
            LoadError::Unreadable(error) => write!(f, "{error}"),
            LoadError::Incomplete { offset } => write!(f, "no whole batch at offset {offset}"),
        }
    }
}

impl std::error::Error for LoadError {}
