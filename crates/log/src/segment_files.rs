//! The files of a partition's directory by name, once interrupted deletions and replacements are settled.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::batch_scanner::{BatchScanner, Scanned, Trust};
use crate::disk::{Disk, OpenMode};
use crate::error::LogError;
use crate::segment::{FileKind, file_path};

/// The names that count in a partition's directory, once interrupted deletions and swaps are settled.
#[derive(Debug, Default)]
pub(crate) struct DirectoryFiles {
    /// Bytes of each file by base offset and kind.
    pub files: BTreeMap<(i64, FileKind), u64>,
}

pub(crate) const DELETED_SUFFIX: &str = ".deleted";
const CLEANED_SUFFIX: &str = ".cleaned";
const SWAP_SUFFIX: &str = ".swap";

/// Base offset and kind of a segment file's name, and what follows it.
pub(crate) fn parse_file_name(name: &str) -> Option<(i64, FileKind, &str)> {
    let (digits, rest) = name.split_at_checked(20)?;
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let base_offset = digits.parse().ok()?;
    // `.log` is no prefix of another suffix, and neither is any of the others.
    FileKind::ALL.into_iter().find_map(|kind| {
        rest.strip_prefix(kind.suffix())
            .map(|tail| (base_offset, kind, tail))
    })
}

impl DirectoryFiles {
    pub fn load(disk: &Arc<dyn Disk>, directory: &Path) -> Result<DirectoryFiles, LogError> {
        let failed = |source| LogError::io("list", directory, source);
        let mut found = DirectoryFiles::default();
        let mut swaps = Vec::new();
        let mut lowest_cleaned = i64::MAX;
        let mut unwanted = Vec::new();
        for entry in disk.list(directory).map_err(failed)? {
            let Some(name) = entry.path.file_name().and_then(|name| name.to_str()) else {
                continue;
            };
            if name.ends_with(DELETED_SUFFIX) || name.ends_with(".tmp") {
                unwanted.push(entry.path.clone());
                continue;
            }
            let Some((base_offset, kind, tail)) = parse_file_name(name) else {
                continue;
            };
            match tail {
                "" => {
                    found.files.insert((base_offset, kind), entry.bytes);
                }
                CLEANED_SUFFIX => {
                    lowest_cleaned = lowest_cleaned.min(base_offset);
                    unwanted.push(entry.path.clone());
                }
                SWAP_SUFFIX => swaps.push((base_offset, kind, entry.path.clone(), entry.bytes)),
                _ => {}
            }
        }
        for path in unwanted {
            disk.remove_file(&path)
                .map_err(|source| LogError::io("remove", &path, source))?;
        }
        found.finish_swaps(disk, directory, swaps, lowest_cleaned)?;
        Ok(found)
    }

    /// A `.swap` file is a complete replacement unless a `.cleaned` one at or below it shows that the renaming from one to
    /// the other was not finished.
    fn finish_swaps(
        &mut self,
        disk: &Arc<dyn Disk>,
        directory: &Path,
        swaps: Vec<(i64, FileKind, PathBuf, u64)>,
        lowest_cleaned: i64,
    ) -> Result<(), LogError> {
        if swaps.is_empty() {
            return Ok(());
        }
        let io_failed = |doing, path: &Path, source| LogError::io(doing, path, source);
        for (base_offset, kind, path, bytes) in swaps {
            // Indexes are rebuilt from the log: that is simpler than proving that they belong to it.
            if base_offset >= lowest_cleaned || kind != FileKind::Log {
                disk.remove_file(&path)
                    .map_err(|source| io_failed("remove", &path, source))?;
                continue;
            }
            let covered_end = last_offset_in(&**disk, &path, bytes)?.unwrap_or(base_offset);
            let covered: Vec<(i64, FileKind)> = self
                .files
                .keys()
                .filter(|(base, kind)| {
                    (base_offset..=covered_end).contains(base)
                        && !(*base == base_offset && *kind == FileKind::Snapshot)
                })
                .copied()
                .collect();
            for (base, kind) in covered {
                self.files.remove(&(base, kind));
                let old = file_path(directory, base, kind);
                // The segment of the same name is replaced by the rename below.
                if (base, kind) != (base_offset, FileKind::Log) {
                    disk.remove_file(&old)
                        .map_err(|source| io_failed("remove", &old, source))?;
                }
            }
            let final_path = file_path(directory, base_offset, FileKind::Log);
            disk.rename(&path, &final_path)
                .map_err(|source| io_failed("rename", &path, source))?;
            self.files.insert((base_offset, FileKind::Log), bytes);
        }
        disk.sync_directory(directory)
            .map_err(|source| io_failed("sync", directory, source))
    }

    pub fn base_offsets(&self) -> Vec<i64> {
        self.files
            .keys()
            .filter(|(_, kind)| *kind == FileKind::Log)
            .map(|(base, _)| *base)
            .collect()
    }

    pub fn bytes(&self, base_offset: i64, kind: FileKind) -> Option<u64> {
        self.files.get(&(base_offset, kind)).copied()
    }

    pub fn snapshots(&self) -> impl DoubleEndedIterator<Item = i64> {
        self.files
            .keys()
            .filter(|(_, kind)| *kind == FileKind::Snapshot)
            .map(|(offset, _)| *offset)
    }
}

fn last_offset_in(disk: &dyn Disk, path: &Path, bytes: u64) -> Result<Option<i64>, LogError> {
    let failed = |source| LogError::io("read", path, source);
    let file = disk.open(path, OpenMode::Read).map_err(failed)?;
    let mut scanner = BatchScanner::new(&*file, 0, bytes, Trust::Headers);
    let mut last = None;
    while let Scanned::Batch { header, .. } = scanner.next().map_err(failed)? {
        last = Some(header.last_offset());
    }
    Ok(last)
}
