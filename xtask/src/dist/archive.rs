//! Archives whose bytes depend on their contents alone: entries are sorted, and have the commit's
//! time and no owner.

use anyhow::{Context, Result, ensure};
use flate2::write::GzEncoder;
use flate2::{Compression, GzBuilder};
use std::fs;
use std::io::{Cursor, Write};
use std::path::Path;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, DateTime, ZipWriter};

pub const PROGRAM: u32 = 0o755;
pub const FILE: u32 = 0o644;

/// What an entry is.
pub enum Content {
    File(Vec<u8>),
    Directory,
}

/// An entry of an archive.
pub struct Entry {
    /// Relative to the archive's root, without `./` and without a slash at the end.
    pub path: String,
    pub mode: u32,
    /// User and group; images alone need another one than root.
    pub owner: u64,
    pub content: Content,
}

impl Entry {
    pub fn file(path: impl Into<String>, mode: u32, bytes: impl Into<Vec<u8>>) -> Entry {
        Entry {
            path: path.into(),
            mode,
            owner: 0,
            content: Content::File(bytes.into()),
        }
    }

    pub fn directory(path: impl Into<String>, mode: u32) -> Entry {
        Entry {
            path: path.into(),
            mode,
            owner: 0,
            content: Content::Directory,
        }
    }

    pub fn owned_by(self, owner: u64) -> Entry {
        Entry { owner, ..self }
    }
}

/// Returns the files below `folder` as entries below `prefix`; what tools leave behind is not
/// packaged.
pub fn folder(folder: &Path, prefix: &str) -> Result<Vec<Entry>> {
    let mut entries = Vec::new();
    let listed = fs::read_dir(folder).with_context(|| format!("listing {}", folder.display()))?;
    for entry in listed {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with('.') || name == "__pycache__" || name == "node_modules" {
            continue;
        }
        let inside = format!("{prefix}{name}");
        if path.is_dir() {
            entries.extend(self::folder(&path, &format!("{inside}/"))?);
        } else {
            let bytes = fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
            let is_script = bytes.starts_with(b"#!");
            entries.push(Entry::file(inside, if is_script { PROGRAM } else { FILE }, bytes));
        }
    }
    ensure!(!entries.is_empty(), "{} is empty", folder.display());
    Ok(entries)
}

/// A tar archive whose paths begin with `prefix`, a directory with a slash or nothing.
pub fn tar(mut entries: Vec<Entry>, prefix: &str, modified_s: u64) -> Result<Vec<u8>> {
    entries.sort_by(|left, right| left.path.cmp(&right.path));
    let mut builder = tar::Builder::new(Vec::new());
    for entry in entries {
        let mut header = tar::Header::new_ustar();
        header.set_mode(entry.mode);
        header.set_mtime(modified_s);
        header.set_uid(entry.owner);
        header.set_gid(entry.owner);
        let path = format!("{prefix}{}", entry.path);
        match entry.content {
            Content::File(bytes) => {
                header.set_entry_type(tar::EntryType::Regular);
                header.set_size(bytes.len() as u64);
                builder.append_data(&mut header, path, Cursor::new(bytes))?;
            }
            Content::Directory => {
                header.set_entry_type(tar::EntryType::Directory);
                header.set_size(0);
                builder.append_data(&mut header, format!("{path}/"), std::io::empty())?;
            }
        }
    }
    Ok(builder.into_inner()?)
}

pub fn gzip(bytes: &[u8]) -> Result<Vec<u8>> {
    // Without a time and a name in the header.
    let builder = GzBuilder::new().mtime(0);
    let mut encoder: GzEncoder<Vec<u8>> = builder.write(Vec::new(), Compression::best());
    encoder.write_all(bytes)?;
    Ok(encoder.finish()?)
}

/// A zip archive. The caller's order is kept: a wheel's RECORD stands last.
pub fn zip(entries: Vec<Entry>) -> Result<Vec<u8>> {
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    for entry in entries {
        let options = SimpleFileOptions::default()
            .compression_method(CompressionMethod::Deflated)
            .compression_level(Some(9))
            // The beginning of time in a zip, which has no time zone: the commit's time would
            // differ between machines.
            .last_modified_time(DateTime::default())
            .unix_permissions(entry.mode);
        if let Content::File(bytes) = entry.content {
            writer.start_file(entry.path, options)?;
            writer.write_all(&bytes)?;
        }
    }
    Ok(writer.finish()?.into_inner())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries() -> [Entry; 3] {
        [
            Entry::directory("a", 0o755),
            Entry::file("a/one", FILE, "1"),
            Entry::file("b", PROGRAM, "2"),
        ]
    }

    #[test]
    fn the_order_in_which_a_file_system_lists_does_not_change_an_archive() {
        let forward = tar(entries().into(), "p/", 1_790_000_000).unwrap();
        let backward = tar(entries().into_iter().rev().collect(), "p/", 1_790_000_000).unwrap();
        assert_eq!(forward, backward);
        let mut archive = tar::Archive::new(forward.as_slice());
        let paths: Vec<String> = archive
            .entries()
            .unwrap()
            .map(|entry| entry.unwrap().path().unwrap().display().to_string())
            .collect();
        assert_eq!(paths, ["p/a/", "p/a/one", "p/b"]);
    }

    #[test]
    fn an_archive_has_neither_the_time_nor_the_user_of_its_making() {
        let bytes = tar(entries().into(), "", 1_790_000_000).unwrap();
        let mut archive = tar::Archive::new(bytes.as_slice());
        for entry in archive.entries().unwrap() {
            let header = entry.unwrap().header().clone();
            assert_eq!(header.mtime().unwrap(), 1_790_000_000);
            assert_eq!((header.uid().unwrap(), header.gid().unwrap()), (0, 0));
        }
        // The header's time, and the flag for a name.
        let packed = gzip(&bytes).unwrap();
        assert_eq!((packed[3], &packed[4..8]), (0, [0; 4].as_slice()));
    }
}
