//! Opens the log of `numbered` again, and reads it.

use std::path::{Path, PathBuf};

use ottla_log::disk::memory::MemoryDisk;
use ottla_log::{
    FindingKind, LogError, OpenOptions, PartitionLog, Read, ReadError, ReadMode, RecoveryReport,
};

use super::numbered::*;

pub fn try_open(disk: &MemoryDisk, options: OpenOptions) -> Result<(PartitionLog, RecoveryReport), LogError> {
    let now_ms = START_MS;
    PartitionLog::open(
        disk.shared(),
        Path::new(DIRECTORY),
        config(),
        OpenOptions { now_ms, ..options },
    )
}

pub fn unclean(recovery_point: i64) -> OpenOptions {
    OpenOptions {
        recovery_point,
        ..OpenOptions::default()
    }
}

pub fn clean() -> OpenOptions {
    OpenOptions {
        clean_shutdown: true,
        ..OpenOptions::default()
    }
}

/// Compaction may have left gaps anywhere.
pub fn with_gaps(options: OpenOptions) -> OpenOptions {
    OpenOptions {
        gaps_below: i64::MAX,
        ..options
    }
}

pub fn contents(disk: &MemoryDisk) -> Vec<(PathBuf, Option<Vec<u8>>)> {
    let paths = files(disk, "").into_iter();
    paths.map(|path| (path.clone(), disk.read_file(&path))).collect()
}

/// Checks that the log is refused because of `file`, with `reason`, and that no byte is changed.
pub fn check_refused(disk: &MemoryDisk, options: OpenOptions, file: &str, reason: &str) {
    let before = contents(disk);
    let Err(error) = try_open(disk, options) else {
        panic!("{file}: the log opens")
    };
    let LogError::Corrupt { path, .. } = &error else {
        panic!("{error}")
    };
    assert!(path.ends_with(file), "{error}");
    assert!(error.to_string().contains(reason), "{error}");
    assert!(contents(disk) == before, "{file}: a refused log was changed");
}

pub fn read_code(log: &PartitionLog, offset: i64) -> Result<Option<i64>, ReadError> {
    let read = log
        .reader()
        .read(offset, 600, true, log.end(), ReadMode::Blocking)?;
    let Read::Region(found) = read else {
        return Ok(None);
    };
    if let Some(unchecked) = &found.unchecked {
        unchecked.check(found.region.bytes).map_err(ReadError::Log)?;
    }
    Ok(Some(found.base_offset))
}

/// Returns the position of a batch: all batches of the test have the same length.
pub fn position_of(disk: &MemoryDisk, segment: &Path, nth: u64) -> u64 {
    let bytes = disk.read_file(segment).expect("there");
    let length = u64::from(u32::from_be_bytes(bytes[8..12].try_into().expect("four bytes"))) + 12;
    nth * length
}

/// One of the files of the segment that begins at `base_offset`.
pub fn file(base_offset: i64, suffix: &str) -> PathBuf {
    Path::new(DIRECTORY).join(format!("{base_offset:020}{suffix}"))
}

/// The names of all files, in order.
pub fn names(disk: &MemoryDisk) -> Vec<String> {
    let name = |path: PathBuf| path.file_name().expect("a file").to_string_lossy().into_owned();
    let mut names: Vec<String> = files(disk, "").into_iter().map(name).collect();
    names.sort();
    names
}

/// Kind, file and position of each finding.
pub fn found(report: &RecoveryReport) -> Vec<(FindingKind, PathBuf, u64)> {
    let findings = report.findings.iter();
    findings
        .map(|finding| (finding.kind, finding.path.clone(), finding.position))
        .collect()
}

/// Checks that exactly the records of `offsets` cannot be read, and the others can.
pub fn check_readable_except(log: &PartitionLog, offsets: &[i64]) {
    for offset in log.start_offset()..log.end_offset() {
        match read_code(log, offset) {
            Ok(found) => assert!(
                found == Some(offset) && !offsets.contains(&offset),
                "{found:?} at {offset}"
            ),
            Err(error) => assert!(offsets.contains(&offset), "{offset}: {error}"),
        }
    }
}
