//! Damage to files as caused by disks, operators and other programs' bugs: chosen by a seed, the
//! same on every kind of disk. For tests.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use super::memory::Random;
use super::{Disk, EntryKind, OpenMode};
use crate::checkpoint::read_file;

mod chosen;

/// What happens to a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DamageKind {
    FlippedBit {
        position: u64,
        bit: u8,
    },
    Truncated {
        bytes: u64,
    },
    Emptied,
    /// The file is removed.
    Missing,
    /// A range is overwritten with zeros.
    Zeroed {
        position: u64,
        bytes: u64,
    },
    /// Garbage is appended.
    Grown {
        bytes: u64,
    },
    /// Two files are swapped.
    Swapped {
        with: PathBuf,
    },
    /// Replaced by random bytes of the same length.
    Noise,
    /// Replaced by a directory of the same name.
    Directory,
    /// The directory is removed with all files in it.
    DirectoryMissing,
    /// Replaced by the contents of another file, which stays as it is.
    Foreign {
        of: PathBuf,
    },
    /// One digit of a text file is changed.
    OtherNumber {
        position: u64,
    },
    /// Replaced by a named pipe. [`Disk`] cannot make one: the caller does.
    Pipe,
    /// Replaced by a symbolic link to nowhere. [`Disk`] cannot make one: the caller does.
    DanglingLink,
}

/// One damage to one file or directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    pub path: PathBuf,
    pub kind: DamageKind,
    seed: u64,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {:?}", self.path.display(), self.kind)
    }
}

impl DamageKind {
    /// Whether the file is still one that can be opened and read, so that a message about it can
    /// name a position.
    pub fn leaves_a_file(&self) -> bool {
        !matches!(
            self,
            DamageKind::Missing
                | DamageKind::Directory
                | DamageKind::DirectoryMissing
                | DamageKind::Pipe
                | DamageKind::DanglingLink
        )
    }
}

/// All files below `root`, in order.
pub fn files_below(disk: &dyn Disk, root: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in disk.list(root)? {
        match entry.kind {
            EntryKind::Directory => files.extend(files_below(disk, &entry.path)?),
            _ => files.push(entry.path),
        }
    }
    Ok(files)
}

impl Damage {
    /// Chooses a file below `root` and a kind of damage. Small and large files are equally likely.
    pub fn choose(disk: &dyn Disk, root: &Path, seed: u64) -> io::Result<Damage> {
        let mut random = Random::new(seed);
        let files = files_below(disk, root)?;
        let path = files[random.below(files.len() as u64) as usize].clone();
        let bytes = file_bytes(disk, &path);
        let kind = match random.below(20) {
            _ if bytes == 0 => match random.below(3) {
                0 => DamageKind::Missing,
                1 => DamageKind::Directory,
                _ => DamageKind::Grown {
                    bytes: 1 + random.below(200),
                },
            },
            0..8 => DamageKind::FlippedBit {
                position: random.below(bytes),
                bit: random.below(8) as u8,
            },
            8..11 => DamageKind::Truncated {
                bytes: random.below(bytes),
            },
            11 => DamageKind::Emptied,
            12..14 => DamageKind::Missing,
            14 => {
                let position = random.below(bytes);
                let bytes = (1 + random.below(600)).min(bytes - position);
                DamageKind::Zeroed { position, bytes }
            }
            15 => DamageKind::Grown {
                bytes: 1 + random.below(200),
            },
            16 => DamageKind::Swapped {
                with: partner(&files, &path, &mut random),
            },
            17 => DamageKind::Noise,
            18 => DamageKind::Directory,
            _ if path.parent() == Some(root) => DamageKind::Missing,
            _ => DamageKind::DirectoryMissing,
        };
        let path = match (&kind, path.parent()) {
            (DamageKind::DirectoryMissing, Some(directory)) => directory.to_path_buf(),
            _ => path,
        };
        let seed = random.next();
        Ok(Damage { path, kind, seed })
    }

    /// Applies the damage; it is durable on return.
    pub fn apply(&self, disk: &dyn Disk) -> io::Result<()> {
        match &self.kind {
            DamageKind::Missing => disk.remove_file(&self.path)?,
            DamageKind::Directory => {
                disk.remove_file(&self.path)?;
                disk.create_directories(&self.path)?;
            }
            DamageKind::DirectoryMissing => remove_all(disk, &self.path)?,
            DamageKind::Swapped { with } => {
                let (one, other) = (contents(disk, &self.path)?, contents(disk, with)?);
                replace(disk, &self.path, &other)?;
                replace(disk, with, &one)?;
            }
            DamageKind::Foreign { of } => replace(disk, &self.path, &contents(disk, of)?)?,
            DamageKind::Pipe | DamageKind::DanglingLink => return Err(io::ErrorKind::Unsupported.into()),
            _ => {
                let damaged = self.changed(contents(disk, &self.path)?);
                replace(disk, &self.path, &damaged)?;
            }
        }
        match self.path.parent() {
            Some(parent) => disk.sync_directory(parent),
            None => Ok(()),
        }
    }

    fn changed(&self, mut bytes: Vec<u8>) -> Vec<u8> {
        let mut random = Random::new(self.seed);
        match &self.kind {
            DamageKind::FlippedBit { position, bit } => {
                if let Some(byte) = bytes.get_mut(*position as usize) {
                    *byte ^= 1 << bit;
                }
            }
            DamageKind::Truncated { bytes: kept } => bytes.truncate(*kept as usize),
            DamageKind::Emptied => bytes.clear(),
            DamageKind::Zeroed {
                position,
                bytes: count,
            } => {
                let from = (*position as usize).min(bytes.len());
                let to = (from + *count as usize).min(bytes.len());
                bytes[from..to].fill(0);
            }
            DamageKind::Grown { bytes: more } => {
                bytes.extend((0..*more).map(|_| random.next() as u8));
            }
            DamageKind::OtherNumber { position } => {
                if let Some(digit) = bytes.get_mut(*position as usize) {
                    *digit = b'0' + (*digit - b'0' + 1) % 10;
                }
            }
            DamageKind::Noise => bytes.iter_mut().for_each(|byte| *byte = random.next() as u8),
            DamageKind::Missing
            | DamageKind::Directory
            | DamageKind::DirectoryMissing
            | DamageKind::Swapped { .. }
            | DamageKind::Foreign { .. }
            | DamageKind::Pipe
            | DamageKind::DanglingLink => {}
        }
        bytes
    }
}

/// Usually a file of the same kind, which does subtler harm. But batches do not say which log they
/// belong to: two swapped batches with the same offsets cannot be told from what was written.
fn partner(files: &[PathBuf], path: &Path, random: &mut Random) -> PathBuf {
    let is_log = path.extension().is_some_and(|kind| kind == "log");
    let others: Vec<&PathBuf> = files
        .iter()
        .filter(|other| !(is_log && other.file_name() == path.file_name()))
        .collect();
    let is_same_kind = |other: &&&PathBuf| other.extension() == path.extension() && **other != path;
    let same_kind: Vec<&PathBuf> = others.iter().filter(is_same_kind).copied().collect();
    let among = if same_kind.is_empty() || random.one_in(5) {
        others
    } else {
        same_kind
    };
    among[random.below(among.len() as u64) as usize].clone()
}

fn file_bytes(disk: &dyn Disk, path: &Path) -> u64 {
    let file = disk.open(path, OpenMode::Read);
    file.and_then(|file| file.bytes()).unwrap_or(0)
}

fn contents(disk: &dyn Disk, path: &Path) -> io::Result<Vec<u8>> {
    let read = read_file(disk, path).map_err(io::Error::other)?;
    Ok(read.unwrap_or_default())
}

fn replace(disk: &dyn Disk, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let file = disk.open(path, OpenMode::Create)?;
    file.set_bytes(0)?;
    file.write_at(&[io::IoSlice::new(bytes)], 0)?;
    file.sync()
}

fn remove_all(disk: &dyn Disk, directory: &Path) -> io::Result<()> {
    for entry in disk.list(directory)? {
        match entry.kind {
            EntryKind::Directory => remove_all(disk, &entry.path)?,
            _ => disk.remove_file(&entry.path)?,
        }
    }
    disk.remove_directory(directory)
}
