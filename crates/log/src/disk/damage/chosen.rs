//! Damages that are chosen instead of random: the same ones for every kind of file.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use ottla_wire::records::batch;

use super::{Damage, DamageKind, Disk, contents, files_below};
use crate::disk::memory::Random;

/// The fields of a batch header, in bytes from the start of the batch.
const HEADER_FIELDS: [Range<u64>; 13] = [
    0..8,
    8..12,
    12..16,
    16..17,
    17..21,
    21..23,
    23..27,
    27..35,
    35..43,
    43..51,
    51..53,
    53..57,
    57..61,
];

impl Damage {
    /// The `nth` of the chosen damages; after the last one of a round the next round begins.
    pub fn nth_chosen(disk: &dyn Disk, root: &Path, nth: u64) -> io::Result<Damage> {
        let length = Damage::all_chosen(disk, root, 0)?.len() as u64;
        let mut all = Damage::all_chosen(disk, root, nth / length)?;
        let at = (nth % length) as usize % all.len();
        Ok(all.swap_remove(at))
    }

    /// Every chosen damage once for every kind of file below `root`, in an order without a pattern.
    /// Each round takes other files and places of the same kinds.
    ///
    /// Among them are kinds that [`Disk`] cannot make.
    pub fn all_chosen(disk: &dyn Disk, root: &Path, round: u64) -> io::Result<Vec<Damage>> {
        let kinds = by_kind(disk, root)?;
        all_of(disk, &kinds, round)
    }
}

fn all_of(disk: &dyn Disk, kinds: &Kinds, round: u64) -> io::Result<Vec<Damage>> {
    let mut choice = Choice {
        kinds,
        random: Random::new(round),
        chosen: Vec::new(),
    };
    for files in kinds.values() {
        choice.choose_for(disk, files)?;
    }
    // The same order in every round.
    let mut random = Random::new(0);
    let mut all = choice.chosen;
    for at in (1..all.len()).rev() {
        all.swap(at, random.below(at as u64 + 1) as usize);
    }
    Ok(all)
}

/// What distinguishes files for a reader: where they lie, what they are called, and whether a
/// segment is the last one.
type Kind = (&'static str, String);
type Kinds = BTreeMap<Kind, Vec<PathBuf>>;

fn by_kind(disk: &dyn Disk, root: &Path) -> io::Result<Kinds> {
    let mut kinds = Kinds::new();
    let files = files_below(disk, root)?;
    for path in &files {
        kinds
            .entry((place_of(path), name_of(path, &files)))
            .or_default()
            .push(path.clone());
    }
    Ok(kinds)
}

fn place_of(path: &Path) -> &'static str {
    let directory = path.parent().and_then(Path::file_name).unwrap_or_default();
    let directory = directory.to_string_lossy();
    let internal = ["__cluster_metadata", "__consumer_offsets", "__transaction_state"];
    internal
        .into_iter()
        .find(|name| directory.starts_with(name))
        .unwrap_or("")
}

/// The extension of files that are called after an offset, else the whole name.
fn name_of(path: &Path, files: &[PathBuf]) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if !name.starts_with(|first: char| first.is_ascii_digit()) {
        return name.into_owned();
    }
    let extension = name.split_once('.').map_or("", |(_, extension)| extension);
    let is_of_log =
        |other: &&PathBuf| other.parent() == path.parent() && other.extension() == path.extension();
    let last = files.iter().filter(is_of_log).max();
    let which = if last.is_some_and(|last| last == path) {
        "last"
    } else {
        "closed"
    };
    format!("{which} {extension}")
}

struct Choice<'a> {
    kinds: &'a Kinds,
    random: Random,
    chosen: Vec<Damage>,
}

impl Choice<'_> {
    /// Chooses every damage for one of `files`, which are of the same kind.
    fn choose_for(&mut self, disk: &dyn Disk, files: &[PathBuf]) -> io::Result<()> {
        let others = self
            .kinds
            .values()
            .flatten()
            .filter(|other| !files.contains(other));
        let others: Vec<&PathBuf> = others.collect();
        if let Some(of) = any_of(&others, &mut self.random) {
            let of = (*of).clone();
            self.add(files, DamageKind::Foreign { of });
        }
        self.add(files, DamageKind::Missing);
        self.add(files, DamageKind::Directory);
        self.add(files, DamageKind::Pipe);
        self.add(files, DamageKind::DanglingLink);
        let mut with_contents = Vec::new();
        for path in files {
            let bytes = contents(disk, path)?;
            if !bytes.is_empty() {
                with_contents.push((path.clone(), bytes));
            }
        }
        self.change(&with_contents, |_, _, _| Some(DamageKind::Emptied));
        self.change(&with_contents, |_, bytes, _| {
            let bytes = bytes.len() as u64 / 2;
            Some(DamageKind::Truncated { bytes })
        });
        self.change(&with_contents, |path, _, random| swapped(path, files, random));
        self.change(&with_contents, other_number);
        self.change(&with_contents, zeros_over_the_last_batch);
        for field in HEADER_FIELDS {
            self.change(&with_contents, |path, bytes, random| {
                bit_of_a_header(&field, path, bytes, random)
            });
        }
        Ok(())
    }

    fn add(&mut self, files: &[PathBuf], kind: DamageKind) {
        if let Some(path) = any_of(files, &mut self.random) {
            let path = path.clone();
            self.chosen.push(Damage { path, kind, seed: 0 });
        }
    }

    /// Adds a damage that depends on the contents, if it can be done to them.
    fn change(
        &mut self,
        files: &[(PathBuf, Vec<u8>)],
        kind: impl Fn(&Path, &[u8], &mut Random) -> Option<DamageKind>,
    ) {
        let Some((path, bytes)) = any_of(files, &mut self.random) else {
            return;
        };
        if let Some(kind) = kind(path, bytes, &mut self.random) {
            let path = path.clone();
            self.chosen.push(Damage { path, kind, seed: 0 });
        }
    }
}

fn any_of<'a, T>(all: &'a [T], random: &mut Random) -> Option<&'a T> {
    all.get(random.below(all.len() as u64) as usize)
}

/// Another file of the kind. Logs with the same first offset are left out: batches do not say which
/// log they belong to.
fn swapped(path: &Path, files: &[PathBuf], random: &mut Random) -> Option<DamageKind> {
    let is_log = path.extension().is_some_and(|extension| extension == "log");
    let is_partner = |other: &&PathBuf| **other != path && !(is_log && other.file_name() == path.file_name());
    let partners: Vec<&PathBuf> = files.iter().filter(is_partner).collect();
    let with = any_of(&partners, random)?;
    Some(DamageKind::Swapped {
        with: (*with).clone(),
    })
}

/// A digit of a file of numbers in text.
fn other_number(path: &Path, bytes: &[u8], random: &mut Random) -> Option<DamageKind> {
    let name = path.file_name()?.to_string_lossy();
    let is_text = name.ends_with("-checkpoint") || name == "quorum-state" || name.ends_with(".metadata");
    let digits: Vec<u64> = (0..bytes.len() as u64)
        .filter(|at| bytes[*at as usize].is_ascii_digit())
        .collect();
    let position = *any_of(&digits, random)?;
    is_text.then_some(DamageKind::OtherNumber { position })
}

fn bit_of_a_header(field: &Range<u64>, path: &Path, bytes: &[u8], random: &mut Random) -> Option<DamageKind> {
    let (start, _) = *any_of(&batches_of(path, bytes), random)?;
    let position = start + field.start + random.below(field.end - field.start);
    let bit = random.below(8) as u8;
    Some(DamageKind::FlippedBit { position, bit })
}

fn zeros_over_the_last_batch(path: &Path, bytes: &[u8], _: &mut Random) -> Option<DamageKind> {
    let (position, bytes) = *batches_of(path, bytes).last()?;
    Some(DamageKind::Zeroed { position, bytes })
}

/// The position and length of each batch; none if the file is not one of batches.
fn batches_of(path: &Path, bytes: &[u8]) -> Vec<(u64, u64)> {
    let holds_batches = |extension| extension == "log" || extension == "checkpoint";
    if !path.extension().is_some_and(holds_batches) {
        return Vec::new();
    }
    let mut position = 0;
    let mut found = Vec::new();
    for batch in batch::batches(bytes).map_while(Result::ok) {
        let length = batch.bytes.len() as u64;
        found.push((position, length));
        position += length;
    }
    found
}
