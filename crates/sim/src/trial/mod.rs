//! Tests a broker on one damaged directory: start, read everything, write, kill, start, read again.
//!
//! Allowed outcomes: everything is as before; damage is reported with its file and position, and
//! only the damaged part cannot be read; the start is refused in the same way, and no byte was
//! changed. Not allowed: silent loss, and a loss that appears only later.

use std::collections::BTreeMap;
use std::path::PathBuf;

use ottla_log::disk::damage::Damage;
use ottla_wire::error_code::ErrorCode;

use crate::inhabited::{
    Caller, Expected, Found, GROUPS, Isolation, PLACES, Place, USERS, access, committed, members, produce,
    read, read_as,
};

mod producing;

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
    pub damage: &'a Damage,
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
            ensure(self.is_located(&refusal), || {
                format!("the start is refused without file and position: {refusal}")
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
        self.judge_access()?;
        is_said |= self.judge_transactions(&first)?;
        let mut written = self.write(&first)?;
        is_said |= self.write_to_ledger(&first, &mut written)?;
        let transaction = self.transact(&first, &mut written)?;
        self.judge_lines()?;
        self.machine.kill();
        self.machine
            .start()
            .map_err(|refusal| format!("the second start is refused: {refusal}"))?;
        let second = self.read_all()?;
        for (place, found) in &first {
            compare(*place, found, &second[place], &written)?;
        }
        is_said |= self.judge_transactions(&second)?;
        is_said |= self.judge_new_transaction(transaction)?;
        self.judge_lines()?;
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
        let is_cut = self.is_cut(place);
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

    fn is_cut(&self, place: Place) -> bool {
        self.stop == Stop::Killed
            && (self.said_of(place, "cut an unfinished end")
                || self.said_of(place, "cut a log")
                || self.said_of(place, "records that were visible are gone"))
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
            let is_told = self.said(&["checkpoint is damaged"])
                || self.said(&["checkpoint is missing"])
                || self.said_of(place, "contradict");
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
        let found = members::described(self.machine);
        if found.as_ref() != Ok(&self.expected.members) {
            is_said = self.said(&["__consumer_offsets"]) || self.said(&["offsets topic"]);
            ensure(is_said, || {
                format!("the members are {found:?} instead of {}", self.expected.members)
            })?;
        }
        Ok(is_said)
    }

    /// Every rule, quota and user is in the metadata log, and damage to it refuses the start.
    fn judge_access(&mut self) -> Verdict<()> {
        let found = access::described(self.machine);
        ensure(found == self.expected.access, || {
            format!(
                "rules, quotas and users are {found:?} instead of {:?}",
                self.expected.access
            )
        })
    }

    /// Whether a message names a file, and a position if there is a file to have one.
    fn is_located(&self, message: &str) -> bool {
        let position = [" position ", "position="];
        message.contains(&self.machine.directory())
            && (position.iter().any(|words| message.contains(words)) || !self.damage.kind.leaves_a_file())
    }

    /// Checks that every error line about a partition's log names file and position.
    fn judge_lines(&self) -> Verdict<()> {
        const ABOUT_LOGS: [&str; 4] = [
            "partition refused",
            "records are damaged",
            "cannot read records",
            "cut a log",
        ];
        let lines = self.machine.loud_lines();
        let is_about_a_log = |line: &&String| ABOUT_LOGS.iter().any(|words| line.contains(words));
        let wrong = lines
            .iter()
            .filter(is_about_a_log)
            .find(|line| !line.contains("ERROR") || !self.is_located(line));
        match wrong {
            Some(line) => Err(format!("an error without file and position: {line}")),
            None => Ok(()),
        }
    }

    /// Writes to every partition that accepts records, and checks that no offset is assigned twice.
    fn write(&mut self, first: &BTreeMap<Place, Found>) -> Verdict<Written> {
        let mut written = Written::new();
        for (place, found) in first.iter().filter(|(_, found)| found.refusal.is_none()) {
            let value = [("new".to_owned(), format!("after the damage in {place:?}"))];
            let offset = produce(self.machine, *place, &value)
                .map_err(|error| format!("{place:?} answers {error:?} to a produce"))?;
            note_new(&mut written, *place, found, offset, &value)?;
        }
        Ok(written)
    }
}

/// What was acknowledged after the damage.
type Written = BTreeMap<Place, BTreeMap<i64, String>>;

/// Notes acknowledged records, whose offsets no earlier record may have.
fn note_new(
    written: &mut Written,
    place: Place,
    first: &Found,
    offset: i64,
    values: &[(String, String)],
) -> Verdict<()> {
    let before = first.records.keys().chain(first.unreadable.keys());
    let noted = written.entry(place).or_default();
    let last = before.chain(noted.keys()).max();
    let is_new = last.is_none_or(|last| offset > *last);
    ensure(is_new, || format!("{place:?} gives offset {offset} again"))?;
    let lines = values.iter().map(|(key, value)| format!("{key}={value}"));
    noted.extend((offset..).zip(lines));
    Ok(())
}

fn compare(place: Place, first: &Found, second: &Found, written: &Written) -> Verdict<()> {
    let (before, after) = (first.refusal, second.refusal);
    ensure(before == after, || {
        format!("{place:?} answers {after:?} after {before:?}")
    })?;
    for (offset, value) in &first.records {
        // Compaction may have removed it.
        let is_there = second.records.get(offset) == Some(value) || place.0 == USERS;
        ensure(is_there, || format!("{place:?} offset {offset} is lost later"))?;
    }
    for (offset, value) in written.get(&place).into_iter().flatten() {
        let is_kept = second.records.get(offset) == Some(value);
        ensure(is_kept, || {
            format!("{place:?}: offset {offset}, written after the damage, is lost")
        })?;
    }
    Ok(())
}
