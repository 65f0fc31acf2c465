//! The files of a partition's directory by name, as they will be once interrupted deletions and replacements are settled.
//! Looking changes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::repair::Repair;
use crate::batch_scanner::{BatchScanner, Expected, Scanned, Trust};
use crate::disk::{DirectoryEntry, Disk, EntryKind, OpenMode};
use crate::error::LogError;
use crate::segment::{FileKind, file_path};

/// What the names in a partition's directory come to.
#[derive(Debug, Default)]
pub(crate) struct DirectoryFiles {
    /// Each file by base offset and kind.
    files: BTreeMap<(i64, FileKind), SegmentFile>,
    /// Bytes that earlier recoveries cut off and kept.
    pub kept_bytes: u64,
}

#[derive(Debug)]
struct SegmentFile {
    bytes: u64,
    /// Where it lies now: a replacement still has its temporary name.
    path: PathBuf,
}

pub(crate) const DELETED_SUFFIX: &str = ".deleted";
const CLEANED_SUFFIX: &str = ".cleaned";
const SWAP_SUFFIX: &str = ".swap";
const CUT_SUFFIX: &str = ".cut-";
const WHOLE_CUT_SUFFIX: &str = ".cut-0";

/// A complete replacement of closed segments that compaction wrote.
struct Swap {
    base_offset: i64,
    kind: FileKind,
    path: PathBuf,
    bytes: u64,
}

/// Names as they were found, sorted by what they mean.
#[derive(Default)]
struct Names {
    swaps: Vec<Swap>,
    lowest_cleaned: Option<i64>,
    /// Segments whose removal had begun, so that some of their files may still have their old names.
    deleted: BTreeSet<i64>,
    leftovers: Vec<PathBuf>,
}

/// Base offset and kind of a segment file's name, and what follows it.
fn parse_file_name(name: &str) -> Option<(i64, FileKind, &str)> {
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

/// The base offset in the name of a file of batches.
pub(crate) fn segment_base_offset(name: &str) -> Option<i64> {
    match parse_file_name(name) {
        Some((base_offset, FileKind::Log, "")) => Some(base_offset),
        _ => None,
    }
}

/// Where bytes that recovery cut off a segment at `position` are kept.
pub(super) fn kept_path(directory: &Path, base_offset: i64, position: u64) -> PathBuf {
    let mut path = file_path(directory, base_offset, FileKind::Log).into_os_string();
    path.push(format!("{CUT_SUFFIX}{position}"));
    PathBuf::from(path)
}

impl DirectoryFiles {
    /// - Shape: the repairs make the directory what the result says.
    /// - Errors: `Corrupt` for what only damage explains, unless `accept_loss`.
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
        // Whoever set a segment aside may have been killed before that was durable. Once the file under the new name is gone,
        // nothing would tell that a power cut has brought back the old one.
        if !names.deleted.is_empty() {
            repairs.push(Repair::SyncDirectory);
        }
        // Only then: while a `.deleted` file is there, the others of its segment are known not to be wanted.
        repairs.extend(names.leftovers.into_iter().map(Repair::Remove));
        Ok((found, repairs))
    }

    fn sort(&mut self, entry: DirectoryEntry, names: &mut Names) -> Result<(), LogError> {
        let Some(name) = entry.path.file_name().and_then(|name| name.to_str()) else {
            return Ok(());
        };
        let parsed = parse_file_name(name);
        if entry.kind != EntryKind::File {
            // What is none of ours may be anything.
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
            Some((base_offset, _, tail)) if tail.starts_with(CUT_SUFFIX) => {
                self.kept_bytes += entry.bytes;
                // All of a segment was cut off.
                if tail == WHOLE_CUT_SUFFIX {
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

    /// A `.swap` file is a complete replacement unless a `.cleaned` one at or below it shows that the renaming from one to
    /// the other was not finished.
    fn settle_swaps(
        &mut self,
        disk: &dyn Disk,
        directory: &Path,
        names: &mut Names,
        accept_loss: bool,
        repairs: &mut Vec<Repair>,
    ) -> Result<(), LogError> {
        for swap in std::mem::take(&mut names.swaps) {
            // Indexes are rebuilt from the log: that is simpler than proving that they belong to it.
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
                // What it should have replaced may still be there.
                Err(LogError::Corrupt { .. }) if accept_loss => names.leftovers.push(swap.path),
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
            // The segment of the same name is replaced by the rename below.
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

    /// Indexes without a segment are leftovers of an interrupted deletion, which shows at `.deleted` files, or all that is
    /// left of it.
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

    /// Where a file lies before the repairs.
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

/// - Errors: `Corrupt` for a replacement that is not whole.
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
