//! Tests a broker on one damaged directory: start, read everything, write, kill, start, read again.
//!
//! Allowed outcomes: everything is as before; damage is reported with its file, and only the
//! damaged part cannot be read; the start is refused, and no byte was changed. Not allowed: silent
//! loss, and a loss that appears only later.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use ottla_wire::error_code::ErrorCode;

use crate::inhabited::{Caller, Expected, Found, GROUPS, PLACES, Place, USERS, committed, produce, read};

/// A broker on a directory.
pub trait Machine: Caller {
    /// Starts the broker.
    ///
    /// - Errors: the message with which the broker refused to start.
    fn start(&mut self) -> Result<(), String>;
    /// Kills the broker, as `kill -9` does.
    fn kill(&mut self);
    /// All warnings and errors that it has logged, line by line.
    fn loud_lines(&self) -> Vec<String>;
    /// Every file with its contents, as far as a comparison needs them.
    fn contents(&self) -> BTreeMap<PathBuf, Vec<u8>>;
    /// The directory's path as in messages.
    fn directory(&self) -> String;
}

/// How the broker that wrote the directory stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    Cleanly,
    Killed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// No data is missing.
    AsItWas,
    /// Data is missing, which was reported.
    Said,
    /// The broker did not start, reported the reason, and changed nothing.
    StartRefused,
}

pub struct Trial<'a, M> {
    pub machine: &'a mut M,
    pub expected: &'a Expected,
    pub stop: Stop,
}

/// - Errors: the violated rule.
type Verdict<T> = Result<T, String>;

fn ensure(holds: bool, otherwise: impl FnOnce() -> String) -> Verdict<()> {
    if holds { Ok(()) } else { Err(otherwise()) }
}

impl<M: Machine> Trial<'_, M> {
    pub fn run(&mut self) -> Verdict<Outcome> {
        let before = self.contents();
        if let Err(refusal) = self.machine.start() {
            let names_a_file = refusal.contains(&self.machine.directory());
            ensure(names_a_file, || {
                format!("the start is refused and no file named: {refusal}")
            })?;
            let is_unchanged = self.contents() == before;
            ensure(is_unchanged, || {
                format!("a refused start changed something: {refusal}")
            })?;
            return Ok(Outcome::StartRefused);
        }
        let first = self.read_all()?;
        let mut is_said = false;
        for (place, found) in &first {
            is_said |= self.judge(*place, found)?;
        }
        is_said |= self.judge_groups()?;
        let written = self.write(&first)?;
        self.machine.kill();
        self.machine
            .start()
            .map_err(|refusal| format!("the second start is refused: {refusal}"))?;
        let second = self.read_all()?;
        for (place, found) in &first {
            compare(*place, found, &second[place], written.get(place))?;
        }
        self.machine.kill();
        Ok(if is_said { Outcome::Said } else { Outcome::AsItWas })
    }

    /// All files without the empty lock file, which Apache Kafka deletes when it stops.
    fn contents(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut contents = self.machine.contents();
        contents.retain(|path, bytes| !(path.ends_with(".lock") && bytes.is_empty()));
        contents
    }

    fn read_all(&mut self) -> Verdict<BTreeMap<Place, Found>> {
        let mut all = BTreeMap::new();
        for place in PLACES {
            let found = read(self.machine, place)?;
            all.insert(place, found);
        }
        Ok(all)
    }

    /// Whether a warning or error contains all of `words`.
    fn said(&self, words: &[&str]) -> bool {
        let lines = self.machine.loud_lines();
        lines
            .iter()
            .any(|line| words.iter().all(|word| line.contains(word)))
    }

    fn said_of(&self, place: Place, words: &str) -> bool {
        let (topic, partition) = (format!("topic={} ", place.0), format!("partition={}", place.1));
        let lines = self.machine.loud_lines();
        // Names are quoted if the lines are not written in the binary's log format.
        lines.iter().map(|line| line.replace('"', "")).any(|line| {
            let mut words = [words, &topic, &partition].into_iter();
            words.all(|word| line.contains(word))
        })
    }

    /// Returns true if data is missing and that was reported.
    fn judge(&self, place: Place, found: &Found) -> Verdict<bool> {
        if let Some(refusal) = found.refusal {
            let is_right =
                refusal == ErrorCode::KafkaStorageError && self.said_of(place, "partition refused");
            ensure(is_right, || format!("{place:?} answers {refusal:?} in silence"))?;
            return Ok(true);
        }
        let mut is_said = !found.unreadable.is_empty();
        let is_damaged = self.said_of(place, "records are damaged");
        let is_told = !is_said || is_damaged || self.said_of(place, "cannot read records");
        ensure(is_told, || format!("{place:?} has unreadable offsets in silence"))?;
        let is_displaced = self.said_of(place, "records may be behind their offsets");
        let is_cut = self.stop == Stop::Killed
            && (self.said_of(place, "cut an unfinished end")
                || self.said_of(place, "cut a log")
                || self.said_of(place, "records that were visible are gone"));
        for (offset, value) in self.expected.records.get(&place).into_iter().flatten() {
            match found.records.get(offset) {
                Some(known) => ensure(known == value, || {
                    format!("{place:?} offset {offset} holds {known:?} instead of {value:?}")
                })?,
                None if found.unreadable.contains_key(offset) => {}
                // Compacted logs have gaps anyway, so readers skip damage that the start has
                // reported.
                None if is_cut || (is_damaged || is_displaced) && place.0 == USERS => is_said = true,
                None => return Err(format!("{place:?} offset {offset} is missing in silence")),
            }
        }
        Ok(is_said | self.judge_more(place, found)?)
    }

    /// Checks records that were found beyond the expected ones.
    fn judge_more(&self, place: Place, found: &Found) -> Verdict<bool> {
        let nothing = BTreeMap::new();
        let expected = self.expected.records.get(&place).unwrap_or(&nothing);
        let deleted = self.expected.deleted.get(&place);
        for (offset, value) in &found.records {
            if expected.contains_key(offset) || place.0 == USERS {
                continue;
            }
            let was_deleted = deleted.is_some_and(|deleted| deleted.contains(offset));
            ensure(was_deleted, || {
                format!("{place:?} offset {offset} has {value:?}, which was never written")
            })?;
            let is_told = self.said(&["checkpoint is damaged"]) || self.said_of(place, "contradict");
            ensure(is_told, || {
                format!("{place:?}: deleted records are back in silence")
            })?;
            return Ok(true);
        }
        Ok(false)
    }

    fn judge_groups(&mut self) -> Verdict<bool> {
        let mut is_said = false;
        for group in GROUPS {
            let expected = self.expected.commits.get(group).copied();
            let found = committed(self.machine, group);
            if found != Ok(expected) {
                is_said = self.said(&["__consumer_offsets"]) || self.said(&["offsets topic"]);
                ensure(is_said, || {
                    format!("group {group} has {found:?} instead of {expected:?} in silence")
                })?;
            }
        }
        Ok(is_said)
    }

    /// Writes to every partition that accepts records, and checks that no offset is assigned twice.
    fn write(&mut self, first: &BTreeMap<Place, Found>) -> Verdict<BTreeMap<Place, i64>> {
        let mut written = BTreeMap::new();
        for (place, found) in first.iter().filter(|(_, found)| found.refusal.is_none()) {
            let value = [("new".to_owned(), format!("after the damage in {place:?}"))];
            let offset = produce(self.machine, *place, &value)
                .map_err(|error| format!("{place:?} answers {error:?} to a produce"))?;
            let known: BTreeSet<i64> = found
                .records
                .keys()
                .chain(found.unreadable.keys())
                .copied()
                .collect();
            let is_new = known.last().is_none_or(|last| offset > *last);
            ensure(is_new, || format!("{place:?} gives offset {offset} again"))?;
            written.insert(*place, offset);
        }
        Ok(written)
    }
}

fn compare(place: Place, first: &Found, second: &Found, written: Option<&i64>) -> Verdict<()> {
    let (before, after) = (first.refusal, second.refusal);
    ensure(before == after, || {
        format!("{place:?} answers {after:?} after {before:?}")
    })?;
    for (offset, value) in &first.records {
        // Compaction may have removed it.
        let is_there = second.records.get(offset) == Some(value) || place.0 == USERS;
        ensure(is_there, || format!("{place:?} offset {offset} is lost later"))?;
    }
    let is_kept = written.is_none_or(|offset| second.records.contains_key(offset));
    ensure(is_kept, || {
        format!("{place:?}: what was written after the damage is lost")
    })
}
