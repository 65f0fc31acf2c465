//! The changes that a recovery makes to a directory: decided first, applied once it is certain that
//! the log opens.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::files::{DELETED_SUFFIX, kept_path};
use super::{Finding, FindingKind, Opening};
use crate::disk::{Disk, DiskFile, OpenMode};
use crate::error::{LogError, is_full};
use crate::read_mode::ReadMode;
use crate::segment::{FileKind, Segment};

/// A partition keeps at most this much of what recoveries have cut off, for inspection.
const KEPT_BYTES_MAX: u64 = 64 * 1024 * 1024;
const COPY_BYTES: usize = 256 * 1024;

#[derive(Debug)]
pub(crate) enum Repair {
    Remove(PathBuf),
    Rename {
        from: PathBuf,
        to: PathBuf,
    },
    SyncDirectory,
    /// Gives a file that is no part of the log a name by which it is kept.
    Keep {
        path: PathBuf,
        base_offset: i64,
    },
    /// Truncates an index file, or creates it.
    TrimIndex {
        segment: Arc<Segment>,
        kind: FileKind,
        bytes: u64,
    },
    WriteIndexes(Arc<Segment>),
    /// Removes a segment from the log.
    SetAside {
        segment: Arc<Segment>,
        keep: Keep,
    },
    Cut {
        segment: Arc<Segment>,
        position: u64,
        file_bytes: u64,
        keep: bool,
    },
    /// The log goes on over what direct writes have left behind its end.
    EndBeforePadding {
        segment: Arc<Segment>,
        position: u64,
    },
}

/// What stays of a segment that is set aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keep {
    Nothing,
    /// As long as no more than `KEPT_BYTES_MAX` are kept.
    UpToLimit,
    Everything,
}

impl Opening {
    /// Applies the repairs in order. Waits for the device.
    pub(super) fn repair(&mut self) -> Result<(), LogError> {
        for repair in std::mem::take(&mut self.repairs) {
            match repair {
                Repair::Remove(path) => remove(&*self.disk, &path)?,
                Repair::Rename { from, to } => rename(&*self.disk, &from, &to)?,
                Repair::SyncDirectory => self.sync_directory()?,
                Repair::Keep { path, base_offset } => self.keep_whole(&path, base_offset)?,
                Repair::TrimIndex { segment, kind, bytes } => trim_index(&segment, kind, bytes)?,
                Repair::WriteIndexes(segment) => {
                    let write = crate::sync::IndexWrite::of(&segment, false);
                    write.run(&*self.disk)?;
                    write.finish();
                }
                Repair::SetAside { segment, keep } => self.set_aside(&segment, keep)?,
                Repair::Cut {
                    segment,
                    position,
                    file_bytes,
                    keep,
                } => self.cut(&segment, position, file_bytes, keep)?,
                Repair::EndBeforePadding { segment, position } => segment
                    .file
                    .end_before_zeros(position)
                    .map_err(|source| LogError::io("cut", &segment.path(FileKind::Log), source))?,
            }
        }
        Ok(())
    }

    /// Renames the log file, to be kept or removed later, and removes the files derived from it.
    fn set_aside(&mut self, segment: &Segment, keep: Keep) -> Result<(), LogError> {
        let path = segment.path(FileKind::Log);
        let is_kept = match keep {
            Keep::Nothing => false,
            Keep::UpToLimit => self.may_keep(segment.bytes()),
            Keep::Everything => true,
        };
        if is_kept {
            self.keep_whole(&path, segment.base_offset)?;
        } else {
            let mut deleted = path.as_os_str().to_os_string();
            deleted.push(DELETED_SUFFIX);
            rename(&*self.disk, &path, Path::new(&deleted))?;
        }
        for kind in FileKind::ALL {
            if kind != FileKind::Log {
                remove(&*self.disk, &segment.path(kind))?;
            }
        }
        Ok(())
    }

    fn keep_whole(&mut self, path: &Path, base_offset: i64) -> Result<(), LogError> {
        let kept = kept_path(&*self.disk, path, 0);
        rename(&*self.disk, path, &kept)?;
        self.note_kept(&kept, base_offset);
        Ok(())
    }

    fn cut(&mut self, segment: &Segment, position: u64, bytes: u64, keep: bool) -> Result<(), LogError> {
        if keep && self.may_keep(bytes - position) {
            self.keep_range(segment, position, bytes)?;
        }
        let path = segment.path(FileKind::Log);
        segment
            .file
            .set_bytes(position)
            .map_err(|source| LogError::io("cut", &path, source))?;
        segment
            .file
            .sync()
            .map_err(|source| LogError::io("sync", &path, source))
    }

    fn keep_range(&mut self, segment: &Segment, position: u64, end: u64) -> Result<(), LogError> {
        let kept = kept_path(&*self.disk, &segment.path(FileKind::Log), position);
        match copy(&*self.disk, &*segment.file, position, end, &kept) {
            Ok(()) => {
                self.sync_directory()?;
                self.note_kept(&kept, segment.base_offset);
                Ok(())
            }
            // A full disk is no reason not to serve intact records.
            Err(error) if is_full(&error) => {
                remove(&*self.disk, &kept)?;
                self.note_not_kept(end - position, "the disk is full");
                Ok(())
            }
            Err(source) => Err(LogError::io("write", &kept, source)),
        }
    }

    fn may_keep(&mut self, bytes: u64) -> bool {
        let fits = self.files.kept_bytes + bytes <= KEPT_BYTES_MAX;
        if fits {
            self.files.kept_bytes += bytes;
        } else {
            let limit = format!("files named .cut- would take more than {KEPT_BYTES_MAX} bytes");
            self.note_not_kept(bytes, &limit);
        }
        fits
    }

    fn note_not_kept(&mut self, bytes: u64, reason: &str) {
        self.report.findings.push(Finding {
            kind: FindingKind::NotKept,
            path: self.directory.to_path_buf(),
            position: 0,
            detail: format!("{bytes} bytes: {reason}"),
        });
    }

    fn note_kept(&mut self, path: &Path, base_offset: i64) {
        self.report.findings.push(Finding {
            kind: FindingKind::Kept,
            path: path.to_path_buf(),
            position: 0,
            detail: format!("batches of segment {base_offset} that are no longer part of the log"),
        });
    }
}

fn copy(disk: &dyn Disk, from: &dyn DiskFile, start: u64, end: u64, to: &Path) -> io::Result<()> {
    let file = disk.open(to, OpenMode::Create)?;
    file.set_bytes(0)?;
    let mut buffer = vec![0; COPY_BYTES];
    let mut position = start;
    while position < end {
        let wanted = usize::try_from(end - position).map_or(COPY_BYTES, |left| left.min(COPY_BYTES));
        let read = from.read_at(&mut buffer[..wanted], position)?;
        if read == 0 {
            break;
        }
        file.write_at(&[io::IoSlice::new(&buffer[..read])], position - start)?;
        position += read as u64;
    }
    file.sync()
}

fn trim_index(segment: &Segment, kind: FileKind, bytes: u64) -> Result<(), LogError> {
    let trim = || {
        let file = segment.index_file(kind, ReadMode::Blocking)?;
        if file.bytes()? == bytes {
            return Ok(());
        }
        file.set_bytes(bytes)
    };
    trim().map_err(|source| LogError::io("cut", &segment.path(kind), source))
}

/// Removes a file; one that no longer exists is no error.
pub(super) fn remove(disk: &dyn Disk, path: &Path) -> Result<(), LogError> {
    match disk.remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(LogError::io("remove", path, error)),
        _ => Ok(()),
    }
}

fn rename(disk: &dyn Disk, from: &Path, to: &Path) -> Result<(), LogError> {
    disk.rename(from, to)
        .map_err(|source| LogError::io("rename", from, source))
}
