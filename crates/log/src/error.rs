//! The errors of a log, with the numbers needed to understand them.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::disk::{is_shortage, shortage};

/// The disk failed, or the bytes on it are damaged.
#[derive(Clone, Debug)]
pub enum LogError {
    /// An operation on a file failed, or did not begin for lack of a descriptor (`is_shortage`).
    Io {
        doing: &'static str,
        path: PathBuf,
        source: Arc<io::Error>,
    },
    /// The disk is full. The log is unchanged and accepts writes again once there is space.
    NoSpace { path: PathBuf, needed_bytes: u64 },
    /// An earlier write or sync failed; writes are refused until the log is opened again.
    Poisoned { reason: Arc<str> },
    /// A file does not contain what it should.
    Corrupt {
        path: PathBuf,
        position: u64,
        reason: String,
    },
}

impl LogError {
    /// An operation on a file failed. If its error wraps what is known of damage
    /// (`into_invalid_data`), that is the error: damage is not tried again as a failing disk is.
    pub fn io(doing: &'static str, path: &Path, source: io::Error) -> LogError {
        let inner = source
            .get_ref()
            .and_then(|inner| inner.downcast_ref::<LogError>());
        if let Some(error) = inner {
            return error.clone();
        }
        LogError::Io {
            doing,
            path: path.to_path_buf(),
            source: Arc::new(source),
        }
    }

    /// Whether it failed for lack of a descriptor. Nothing was done, and it may be retried.
    pub fn is_shortage(&self) -> bool {
        matches!(self, LogError::Io { source, .. } if is_shortage(source))
    }

    /// Whether it failed for lack of something that may be available later: descriptors or space.
    pub fn is_lack(&self) -> bool {
        self.is_shortage() || matches!(self, LogError::NoSpace { .. })
    }

    pub(crate) fn as_io(&self) -> io::Error {
        if self.is_shortage() {
            shortage(self.to_string())
        } else {
            io::Error::other(self.to_string())
        }
    }

    /// Wraps the error for code that returns I/O errors; `io` unwraps it.
    pub(crate) fn into_invalid_data(self) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidData, self)
    }

    pub fn corrupt(path: &Path, position: u64, reason: impl Into<String>) -> LogError {
        LogError::Corrupt {
            path: path.to_path_buf(),
            position,
            reason: reason.into(),
        }
    }
}

impl fmt::Display for LogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LogError::Io { doing, path, source } => write!(f, "cannot {doing} {}: {source}", path.display()),
            LogError::NoSpace { path, needed_bytes } => {
                let path = path.display();
                write!(
                    f,
                    "no space for {needed_bytes} bytes in {path}: the disk, a quota or RLIMIT_FSIZE is at its limit"
                )
            }
            LogError::Poisoned { reason } => write!(f, "log refuses writes: {reason}"),
            LogError::Corrupt {
                path,
                position,
                reason,
            } => {
                write!(
                    f,
                    "{} is corrupt at position {position}: {reason}",
                    path.display()
                )
            }
        }
    }
}

impl std::error::Error for LogError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            LogError::Io { source, .. } => Some(&**source),
            _ => None,
        }
    }
}

/// Whether there is no space: on the disk, in the quota of the user that runs the broker, or in the
/// largest file that the process may write (RLIMIT_FSIZE).
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    )
}

/// Why an append was refused. The log is unchanged, except that `Log` may have poisoned it.
#[derive(Clone, Debug)]
pub enum AppendError {
    Log(LogError),
    /// KIP-98: a producer skipped a sequence number.
    OutOfOrderSequence {
        producer_id: i64,
        last_sequence: i32,
        base_sequence: i32,
    },
    /// A newer instance of the producer has already written: this one is a zombie and is fenced.
    InvalidProducerEpoch {
        producer_id: i64,
        known_epoch: i16,
        epoch: i16,
    },
    /// A non-transactional batch of a producer that has an open transaction, a transactional one
    /// that was not admitted or comes after the end of its transaction, or a marker without
    /// its type.
    InvalidTransactionState {
        producer_id: i64,
    },
    /// A marker of an older transaction coordinator.
    CoordinatorFenced {
        producer_id: i64,
        known_epoch: i32,
        epoch: i32,
    },
    /// The batches cannot be appended as given.
    InvalidBatch {
        reason: &'static str,
    },
}

impl From<LogError> for AppendError {
    fn from(error: LogError) -> AppendError {
        AppendError::Log(error)
    }
}

impl fmt::Display for AppendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AppendError::Log(error) => error.fmt(f),
            AppendError::OutOfOrderSequence {
                producer_id,
                last_sequence,
                base_sequence,
            } => write!(
                f,
                "producer {producer_id} sent sequence {base_sequence} after sequence {last_sequence}"
            ),
            AppendError::InvalidProducerEpoch {
                producer_id,
                known_epoch,
                epoch,
            } => {
                write!(
                    f,
                    "producer {producer_id} has epoch {epoch} but epoch {known_epoch} has written already"
                )
            }
            AppendError::InvalidTransactionState { producer_id } => {
                write!(f, "producer {producer_id} wrote outside a transaction of its own")
            }
            AppendError::CoordinatorFenced {
                producer_id,
                known_epoch,
                epoch,
            } => write!(
                f,
                "marker for producer {producer_id} from coordinator epoch {epoch}, but {known_epoch} is known"
            ),
            AppendError::InvalidBatch { reason } => write!(f, "batch cannot be appended: {reason}"),
        }
    }
}

impl std::error::Error for AppendError {}

/// Why a read returned nothing.
#[derive(Clone, Debug)]
pub enum ReadError {
    /// The log holds `start_offset..end_offset`.
    OffsetOutOfRange {
        offset: i64,
        start_offset: i64,
        end_offset: i64,
    },
    Log(LogError),
}

impl From<LogError> for ReadError {
    fn from(error: LogError) -> ReadError {
        ReadError::Log(error)
    }
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReadError::OffsetOutOfRange {
                offset,
                start_offset,
                end_offset,
            } => {
                write!(f, "offset {offset} is outside {start_offset}..{end_offset}")
            }
            ReadError::Log(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ReadError {}

#[cfg(test)]
mod tests {
    use super::*;

    /// A log whose newest batch has a wrong length was said to be unreadable, and opened again and
    /// again, instead of being refused as damaged.
    #[test]
    fn damage_that_was_found_while_reading_stays_damage() {
        let path = Path::new("orders-0/1.log");
        let damage = LogError::corrupt(path, 7, "batch length 2").into_invalid_data();
        let error = LogError::io("read", path, damage);
        assert!(
            matches!(error, LogError::Corrupt { position: 7, .. }),
            "{error:?}"
        );
        let error = LogError::io("read", path, io::ErrorKind::UnexpectedEof.into());
        assert!(matches!(error, LogError::Io { .. }), "{error:?}");
    }
}
