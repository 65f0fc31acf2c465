//! Small files that are replaced as a whole, and Kafka's text format for them.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ottla_wire::records::crc32c;

use crate::disk::{Disk, DiskFile, OpenMode};
use crate::error::{LogError, is_full};

/// The offsets of one of the `*-offset-checkpoint` files, by topic and partition.
pub type OffsetCheckpoint = BTreeMap<(String, i32), i64>;

pub const RECOVERY_POINT_FILE: &str = "recovery-point-offset-checkpoint";
pub const HIGH_WATERMARK_FILE: &str = "replication-offset-checkpoint";
pub const LOG_START_FILE: &str = "log-start-offset-checkpoint";
pub const CLEANER_FILE: &str = "cleaner-offset-checkpoint";

/// The largest file that is read whole: no checkpoint of a sane directory comes near it.
const WHOLE_FILE_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// The topic of a pseudo entry whose offset is a checksum over the file's name and the other lines.
/// Apache Kafka takes the line for a partition that it does not have, and omits it when it rewrites
/// the file; a file without it is trusted.
const CHECKSUM_TOPIC: &str = "__ottla_checksum";

/// Reads a checkpoint file; a missing or zero-length file counts as empty.
///
/// - Errors: `Corrupt` when it is not in Kafka's format, or not what was written. Callers treat
///   that as empty where a rescan can replace it.
pub fn read_offsets(disk: &dyn Disk, path: &Path) -> Result<OffsetCheckpoint, LogError> {
    let Some(bytes) = read_file(disk, path)? else {
        return Ok(OffsetCheckpoint::new());
    };
    decode_offsets(&file_name(path), &bytes).map_err(|reason| LogError::corrupt(path, 0, reason))
}

pub fn write_offsets(disk: &dyn Disk, path: &Path, offsets: &OffsetCheckpoint) -> Result<(), LogError> {
    write_file(disk, path, &encode_offsets(&file_name(path), offsets))
}

fn file_name(path: &Path) -> Cow<'_, str> {
    path.file_name().unwrap_or_default().to_string_lossy()
}

fn encode_offsets(name: &str, offsets: &OffsetCheckpoint) -> Vec<u8> {
    let line = |((topic, partition), offset): (&(String, i32), &i64)| format!("{topic} {partition} {offset}");
    let mut lines: Vec<String> = offsets.iter().map(line).collect();
    lines.push(format!("{CHECKSUM_TOPIC} 0 {}", checksum_of(name, &lines)));
    format!("0\n{}\n{}\n", lines.len(), lines.join("\n")).into_bytes()
}

fn checksum_of(name: &str, lines: &[impl AsRef<str>]) -> u32 {
    let mut text = name.to_owned();
    for line in lines {
        text.push('\n');
        text.push_str(line.as_ref());
    }
    crc32c::checksum(text.as_bytes())
}

fn decode_offsets(name: &str, bytes: &[u8]) -> Result<OffsetCheckpoint, String> {
    let mut offsets = OffsetCheckpoint::new();
    if bytes.is_empty() {
        // Apache Kafka leaves `cleaner-offset-checkpoint` like this where nothing was compacted.
        return Ok(offsets);
    }
    let mut lines = parse_lines(bytes)?;
    let written = lines.iter().position(|line| {
        let topic = line.split(' ').next();
        topic == Some(CHECKSUM_TOPIC)
    });
    if let Some(index) = written {
        let line = lines.remove(index);
        let checksum = checksum_of(name, &lines);
        if line != format!("{CHECKSUM_TOPIC} 0 {checksum}") {
            return Err(format!(
                "its lines have checksum {checksum}, but its checksum line is '{line}'"
            ));
        }
    }
    for line in lines {
        let mut words = line.split(' ');
        let parsed = (|| {
            let topic = words.next()?.to_string();
            let partition = words.next()?.parse().ok()?;
            let offset = words.next()?.parse().ok()?;
            words.next().is_none().then_some(((topic, partition), offset))
        })();
        let (key, offset) = parsed.ok_or_else(|| format!("line '{line}' is not topic, partition, offset"))?;
        offsets.insert(key, offset);
    }
    Ok(offsets)
}

/// Returns the lines after version `0` and the count, which must be right: it reveals a torn file.
pub(crate) fn parse_lines(bytes: &[u8]) -> Result<Vec<&str>, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "not text".to_string())?;
    if !text.ends_with('\n') {
        return Err("last line is truncated".to_string());
    }
    let mut lines = text.lines();
    if lines.next() != Some("0") {
        return Err("version is not 0".to_string());
    }
    let count: usize = lines
        .next()
        .and_then(|line| line.parse().ok())
        .ok_or_else(|| "no entry count".to_string())?;
    let lines: Vec<&str> = lines.collect();
    if lines.len() == count {
        Ok(lines)
    } else {
        Err(format!("{} entries instead of {count}", lines.len()))
    }
}

const IRREGULAR: &str = "not a regular file";

/// Whether a file could not be read because a directory, a pipe or the like is in its place.
pub fn is_irregular(error: &LogError) -> bool {
    matches!(error, LogError::Corrupt { reason, .. } if &**reason == IRREGULAR)
}

/// Reads the whole file; `None` if it does not exist.
pub fn read_file(disk: &dyn Disk, path: &Path) -> Result<Option<Vec<u8>>, LogError> {
    let failed = |source| LogError::io("read", path, source);
    let file = match disk.open(path, OpenMode::Read) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::InvalidInput | io::ErrorKind::IsADirectory
            ) =>
        {
            return Err(LogError::corrupt(path, 0, IRREGULAR));
        }
        Err(error) => return Err(failed(error)),
    };
    let length = file.bytes().map_err(failed)?;
    if length > WHOLE_FILE_BYTES_MAX {
        return Err(LogError::corrupt(
            path,
            0,
            format!("{length} bytes are too many for such a file"),
        ));
    }
    let mut bytes = vec![0; length as usize];
    let mut done = 0;
    while done < bytes.len() {
        match file.read_at(&mut bytes[done..], done as u64).map_err(failed)? {
            0 => break,
            read => done += read,
        }
    }
    bytes.truncate(done);
    Ok(Some(bytes))
}

/// Replaces a file atomically: after a power cut either the old or the new bytes are there.
pub fn write_file(disk: &dyn Disk, path: &Path, bytes: &[u8]) -> Result<(), LogError> {
    let file = write_temporary(disk, path, bytes)?;
    file.sync()
        .and_then(|()| disk.rename(&temporary_path(path), path))
        .map_err(|source| write_error(path, bytes, source))?;
    let directory = path.parent().expect("a file lies in a directory");
    disk.sync_directory(directory)
        .map_err(|source| LogError::io("sync", directory, source))
}

/// Writes the new contents of `path` under a temporary name. Once the file is synced, it may be
/// renamed.
pub(crate) fn write_temporary(
    disk: &dyn Disk,
    path: &Path,
    bytes: &[u8],
) -> Result<Arc<dyn DiskFile>, LogError> {
    let write = || -> io::Result<Arc<dyn DiskFile>> {
        let file = disk.open(&temporary_path(path), OpenMode::Create)?;
        file.set_bytes(0)?;
        file.write_at(&[io::IoSlice::new(bytes)], 0)?;
        Ok(file)
    };
    write().map_err(|source| write_error(path, bytes, source))
}

/// The name under which a small file is written before it gets its own.
pub fn temporary_path(path: &Path) -> PathBuf {
    let mut temporary = path.as_os_str().to_os_string();
    temporary.push(".tmp");
    PathBuf::from(temporary)
}

fn write_error(path: &Path, bytes: &[u8], source: io::Error) -> LogError {
    if is_full(&source) {
        return LogError::NoSpace {
            path: path.to_path_buf(),
            needed_bytes: bytes.len() as u64,
        };
    }
    LogError::io("write", path, source)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::os::{OsDisk, TemporaryDirectory};

    const NAME: &str = "replication-offset-checkpoint";

    fn offsets() -> OffsetCheckpoint {
        OffsetCheckpoint::from([(("a".to_string(), 0), 5), (("b.c".to_string(), 12), 10)])
    }

    /// Its length is all there is of it.
    #[test]
    fn a_file_too_large_for_a_checkpoint_is_not_read() {
        let directory = TemporaryDirectory::new("checkpoint").expect("created");
        let path = directory.path().join(NAME);
        let disk = OsDisk::default();
        let file = disk.open(&path, OpenMode::Create).expect("created");
        file.set_bytes(WHOLE_FILE_BYTES_MAX + 1).expect("sparse");
        let error = read_file(&disk, &path).expect_err("refused");
        assert!(
            error.to_string().contains("268435457 bytes are too many"),
            "{error}"
        );
    }

    #[test]
    fn offsets_have_kafkas_format() {
        let bytes = encode_offsets(NAME, &offsets());
        let text = String::from_utf8(bytes.clone()).expect("text");
        assert!(
            text.starts_with("0\n3\na 0 5\nb.c 12 10\n__ottla_checksum 0 "),
            "{text}"
        );
        assert_eq!(decode_offsets(NAME, &bytes), Ok(offsets()));
        assert_eq!(
            decode_offsets(NAME, b"0\n2\na 0 5\nb.c 12 10\n"),
            Ok(offsets()),
            "Kafka's own"
        );
        assert_eq!(
            decode_offsets(NAME, b""),
            Ok(OffsetCheckpoint::new()),
            "as Kafka leaves it"
        );
    }

    #[test]
    fn a_changed_checkpoint_is_recognised_wherever_it_was_changed() {
        let bytes = encode_offsets(NAME, &offsets());
        for cut in 1..bytes.len() {
            assert!(decode_offsets(NAME, &bytes[..cut]).is_err(), "cut at {cut}");
        }
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut flipped = bytes.clone();
                flipped[at] ^= 1 << bit;
                // Where only the name in the checksum line is hit, it becomes an ordinary line.
                let decoded = decode_offsets(NAME, &flipped).map(|mut decoded| {
                    decoded.retain(|(topic, _), _| offsets().keys().any(|key| key.0 == *topic));
                    decoded
                });
                assert!(
                    decoded.is_err() || decoded == Ok(offsets()),
                    "bit {bit} of byte {at}"
                );
            }
        }
        let other = encode_offsets("recovery-point-offset-checkpoint", &offsets());
        assert!(decode_offsets(NAME, &other).is_err(), "the file of another name");
        assert!(decode_offsets(NAME, b"0\n1\na 0 5 6\n").is_err());
        assert!(decode_offsets(NAME, b"0\n1\n\xff 0 5\n").is_err());
    }
}
