//! The files of a partition's directory by name, as they will be once interrupted deletions and
//! replacements are completed. This module changes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::repair::Repair;
use super::{Finding, FindingKind};
use crate::batch_scanner::{BatchScanner, Expected, Scanned, Trust};
use crate::disk::{DirectoryEntry, Disk, EntryKind, OpenMode};
use crate::error::LogError;
use crate::segment::{FileKind, file_path};

/// What the names in a partition's directory mean.
#[derive(Debug, Default)]
pub(crate) struct DirectoryFiles {
    /// Each file by base offset and kind.
    files: BTreeMap<(i64, FileKind), SegmentFile>,
    /// Bytes that earlier recoveries cut off and kept.
    pub kept_bytes: u64,
    pub findings: Vec<Finding>,
}

#[derive(Debug)]
struct SegmentFile {
    bytes: u64,
    /// Its current path: a replacement still has its temporary name.
    path: PathBuf,
}

pub(crate) const DELETED_SUFFIX: &str = ".deleted";
const CLEANED_SUFFIX: &str = ".cleaned";
const SWAP_SUFFIX: &str = ".swap";
const CUT_SUFFIX: &str = ".cut-";
const WHOLE_CUT_SUFFIX: &str = ".cut-0";
/// A further one: see `kept_path`.
const OTHER_WHOLE_CUT_PREFIX: &str = ".cut-0-";

/// A complete replacement of closed segments that compaction wrote.
struct Swap {
    base_offset: i64,
    kind: FileKind,
    path: PathBuf,
    bytes: u64,
}

/// File names found, sorted by meaning.
#[derive(Default)]
struct Names {
    swaps: Vec<Swap>,
    lowest_cleaned: Option<i64>,
    /// Segments whose removal has begun, so that some of their files may still have their old
    /// names.
    deleted: BTreeSet<i64>,
    leftovers: Vec<PathBuf>,
}

/// Parses a segment file's name into base offset, kind, and the rest.
fn parse_file_name(name: &str) -> Option<(i64, FileKind, &str)> {
    let (digits, rest) = name.split_at_checked(20)?;
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let base_offset = digits.parse().ok()?;
    // None of the suffixes is a prefix of another.
    FileKind::ALL.into_iter().find_map(|kind| {
        rest.strip_prefix(kind.suffix())
            .map(|tail| (base_offset, kind, tail))
    })
}

/// Returns the base offset in the name of a log file.
pub(crate) fn segment_base_offset(name: &str) -> Option<i64> {
    match parse_file_name(name) {
        Some((base_offset, FileKind::Log, "")) => Some(base_offset),
        _ => None,
    }
}

/// Whether the name is that of a producer snapshot.
pub(crate) fn is_snapshot(name: &str) -> bool {
    matches!(parse_file_name(name), Some((_, FileKind::Snapshot, "")))
}

/// Returns where bytes that recovery cuts off a file at `position` are kept: in a new file, with a
/// further number where an earlier recovery has cut at the same position.
pub(super) fn kept_path(disk: &dyn Disk, cut: &Path, position: u64) -> PathBuf {
    let with_suffix = |suffix: String| {
        let mut path = cut.as_os_str().to_os_string();
        path.push(suffix);
        PathBuf::from(path)
    };
    let first = with_suffix(format!("{CUT_SUFFIX}{position}"));
    let further = (1..).map(|number| with_suffix(format!("{CUT_SUFFIX}{position}-{number}")));
    let mut paths = std::iter::once(first).chain(further);
    paths
        .find(|path| !disk.exists(path))
        .expect("there is no last one")
}

impl DirectoryFiles {
    /// - Shape: the result describes the directory after the repairs.
    /// - Errors: `Corrupt` for what only damage can explain, unless `accept_loss`.
    pub fn survey(
        disk: &dyn Disk,
        directory: &Path,
        accept_loss: bool,
    ) -> Result<(DirectoryFiles, Vec<Repair>), LogError> {
        let mut found = DirectoryFiles::default();
        let mut names = Names::default();
        let failed = |source| LogError::io("list", directory, source);
        for entry in disk.list(directory).map_err(failed)? {
            found.sort(entry, &mut names)?;
        }
        let mut repairs = Vec::new();
        found.settle_swaps(disk, directory, &mut names, accept_loss, &mut repairs)?;
        found.settle_orphans(directory, &names, accept_loss, &mut repairs)?;
        // A process that set a segment aside may have been killed before the rename was durable.
        // Once the file with the new name is removed, nothing would show that a power cut has
        // brought back the old one.
        if !names.deleted.is_empty() {
            repairs.push(Repair::SyncDirectory);
        }
        // Last: while a `.deleted` file exists, it shows that the others of its segment are
        // obsolete.
        repairs.extend(names.leftovers.into_iter().map(Repair::Remove));
        Ok((found, repairs))
    }

    fn sort(&mut self, entry: DirectoryEntry, names: &mut Names) -> Result<(), LogError> {
        let Some(name) = entry.path.file_name().and_then(|name| name.to_str()) else {
            return Ok(());
        };
        let parsed = parse_file_name(name);
        if entry.kind != EntryKind::File {
            // Unknown names may be of any kind.
            return match parsed {
                Some((_, _, "" | SWAP_SUFFIX)) => {
                    Err(LogError::corrupt(&entry.path, 0, "not a regular file"))
                }
                _ => Ok(()),
            };
        }
        match parsed {
            Some((base_offset, kind, "")) => {
                self.insert(base_offset, kind, entry.path, entry.bytes);
            }
            Some((base_offset, _, CLEANED_SUFFIX)) => {
                let lowest = names.lowest_cleaned.get_or_insert(base_offset);
                *lowest = base_offset.min(*lowest);
                names.leftovers.push(entry.path);
            }
            Some((base_offset, kind, SWAP_SUFFIX)) => names.swaps.push(Swap {
                base_offset,
                kind,
                path: entry.path,
                bytes: entry.bytes,
            }),
            Some((base_offset, _, DELETED_SUFFIX)) => {
                names.deleted.insert(base_offset);
                names.leftovers.push(entry.path);
            }
            // Also of a `.swap` file.
            Some((base_offset, _, tail)) if tail.contains(CUT_SUFFIX) => {
                self.kept_bytes += entry.bytes;
                // The whole segment was cut off.
                if tail == WHOLE_CUT_SUFFIX || tail.starts_with(OTHER_WHOLE_CUT_PREFIX) {
                    names.deleted.insert(base_offset);
                }
            }
            _ if name.ends_with(DELETED_SUFFIX) || name.ends_with(".tmp") => names.leftovers.push(entry.path),
            _ => {}
        }
        Ok(())
    }

    fn insert(&mut self, base_offset: i64, kind: FileKind, path: PathBuf, bytes: u64) {
        self.files
            .insert((base_offset, kind), SegmentFile { bytes, path });
    }

    /// A `.swap` file is a complete replacement unless a `.cleaned` file at or below it shows that
    /// renaming from one to the other was interrupted.
    fn settle_swaps(
        &mut self,
        disk: &dyn Disk,
        directory: &Path,
        names: &mut Names,
        accept_loss: bool,
        repairs: &mut Vec<Repair>,
    ) -> Result<(), LogError> {
        for swap in std::mem::take(&mut names.swaps) {
            // Indexes are rebuilt from the log: that is simpler than proving that they belong to
            // it.
            let is_wanted = swap.kind == FileKind::Log
                && names
                    .lowest_cleaned
                    .is_none_or(|cleaned| swap.base_offset < cleaned);
            if !is_wanted {
                names.leftovers.push(swap.path);
                continue;
            }
            match last_offset_in(disk, &swap) {
                Ok(covered_end) => self.replace(directory, swap, covered_end, repairs),
                Err(LogError::Corrupt { position, reason, .. }) if accept_loss => {
                    self.give_up(swap, position, &reason, repairs);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn replace(&mut self, directory: &Path, swap: Swap, covered_end: i64, repairs: &mut Vec<Repair>) {
        let base_offset = swap.base_offset;
        let covered: Vec<(i64, FileKind)> = self
            .files
            .keys()
            .filter(|(base, kind)| {
                (base_offset..=covered_end).contains(base)
                    && !(*base == base_offset && *kind == FileKind::Snapshot)
            })
            .copied()
            .collect();
        for key in covered {
            let old = self.files.remove(&key).expect("listed above");
            // The segment with the same name is replaced by the rename below.
            if key != (base_offset, FileKind::Log) {
                repairs.push(Repair::Remove(old.path));
            }
        }
        repairs.push(Repair::Rename {
            from: swap.path.clone(),
            to: file_path(directory, base_offset, FileKind::Log),
        });
        repairs.push(Repair::SyncDirectory);
        self.insert(base_offset, FileKind::Log, swap.path, swap.bytes);
    }

    /// The log is served from those of the replaced segments that still exist. A damaged
    /// replacement may hold the only copy of the others' records, so it is kept whatever its size.
    fn give_up(&mut self, swap: Swap, position: u64, reason: &str, repairs: &mut Vec<Repair>) {
        self.findings.push(Finding {
            kind: FindingKind::Lost,
            path: swap.path.clone(),
            position,
            detail: format!("{reason}: the segments that it replaced are served as far as they exist"),
        });
        self.kept_bytes += swap.bytes;
        repairs.push(Repair::Keep {
            path: swap.path,
            base_offset: swap.base_offset,
        });
        repairs.push(Repair::SyncDirectory);
    }

    /// Indexes without a segment are leftovers of an interrupted deletion, as `.deleted` files
    /// show, or all that is left of a lost segment.
    fn settle_orphans(
        &mut self,
        directory: &Path,
        names: &Names,
        accept_loss: bool,
        repairs: &mut Vec<Repair>,
    ) -> Result<(), LogError> {
        let bases: BTreeSet<i64> = self.base_offsets().into_iter().collect();
        let is_orphan = |(base, kind): &(i64, FileKind)| *kind != FileKind::Snapshot && !bases.contains(base);
        let orphans: Vec<(i64, FileKind)> = self.files.keys().copied().filter(is_orphan).collect();
        for key in orphans {
            let (base, kind) = key;
            let orphan = self.files.remove(&key).expect("listed above");
            if orphan.bytes > 0 && !names.deleted.contains(&base) && !accept_loss {
                let path = file_path(directory, base, FileKind::Log);
                let reason = format!("missing, although its {} is there", kind.suffix());
                return Err(LogError::corrupt(&path, 0, reason));
            }
            repairs.push(Repair::Remove(orphan.path));
        }
        Ok(())
    }

    pub fn base_offsets(&self) -> Vec<i64> {
        self.files
            .keys()
            .filter(|(_, kind)| *kind == FileKind::Log)
            .map(|(base, _)| *base)
            .collect()
    }

    pub fn bytes(&self, base_offset: i64, kind: FileKind) -> Option<u64> {
        self.files.get(&(base_offset, kind)).map(|file| file.bytes)
    }

    /// Returns the path of a file before the repairs.
    pub fn path(&self, base_offset: i64, kind: FileKind) -> Option<&Path> {
        self.files.get(&(base_offset, kind)).map(|file| &*file.path)
    }

    pub fn snapshots(&self) -> impl DoubleEndedIterator<Item = i64> {
        self.files
            .keys()
            .filter(|(_, kind)| *kind == FileKind::Snapshot)
            .map(|(offset, _)| *offset)
    }
}

/// - Errors: `Corrupt` for an incomplete replacement.
fn last_offset_in(disk: &dyn Disk, swap: &Swap) -> Result<i64, LogError> {
    let failed = |source| LogError::io("read", &swap.path, source);
    let file = disk.open(&swap.path, OpenMode::Read).map_err(failed)?;
    let expected = Expected {
        offset: swap.base_offset,
        gaps_below: i64::MAX,
    };
    let mut scanner = BatchScanner::new(&*file, 0, swap.bytes, Trust::Checksums).expecting(expected);
    let mut last = None;
    loop {
        match scanner.next().map_err(failed)? {
            Scanned::Batch { header, .. } => last = Some(header.last_offset()),
            Scanned::End => break,
            Scanned::Invalid { reason } => {
                return Err(LogError::corrupt(&swap.path, scanner.position(), reason));
            }
        }
    }
    // Compaction always keeps the last batch of what it replaces.
    last.ok_or_else(|| LogError::corrupt(&swap.path, 0, "empty, although it replaces a segment"))
}
