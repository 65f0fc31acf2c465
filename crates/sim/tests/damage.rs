//! Any file of a directory is damaged in any way; then the broker starts, everything is read, records are written, the
//! process is killed, and it starts again.
//!
//! Allowed are: everything is as it was; something is said to be damaged, file and all, and only that cannot be read; the
//! start is refused, and no byte was changed. Not allowed: silence, and a loss that comes later.
//!
//! `OTTLA_DAMAGE_SEED=n` runs one seed, `OTTLA_DAMAGE_SEEDS=n` the first n. A failure names its seed.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use ottla_core::config::RecoveryConfig;
use ottla_log::disk::damage::{Damage, files_below};
use ottla_log::disk::memory::MemoryDisk;
use ottla_sim::inhabited::{Expected, Found, GROUPS, PLACES, Place, USERS, committed, fill, produce, read};
use ottla_sim::world::{LOG_DIRECTORY, World};
use ottla_wire::error_code::ErrorCode;

const SEEDS_BY_DEFAULT: u64 = 600;

/// How the broker stopped before the damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    Cleanly,
    Killed,
}

/// The lines that the broker logged.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("no panic under it").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Lines {
    fn capture<T>(&self, work: impl FnOnce() -> T) -> T {
        let lines = self.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(move || lines.clone())
            .with_ansi(false)
            .without_time()
            .with_target(false)
            .finish();
        tracing::subscriber::with_default(subscriber, work)
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().expect("no panic under it")).into_owned()
    }

    /// Lines of warnings and errors that contain all of `words`.
    fn tell(&self, words: &[&str]) -> bool {
        let text = self.text();
        let mut loud = text
            .lines()
            .filter(|line| line.trim_start().starts_with("ERROR") || line.trim_start().starts_with("WARN"));
        loud.any(|line| words.iter().all(|word| line.contains(word)))
    }
}

/// One directory, as it was before the damage.
struct Base {
    world: World,
    expected: Expected,
    stop: Stop,
}

fn base(stop: Stop, durability: &str) -> Base {
    let properties = [
        ("ottla.durability", durability),
        ("offsets.topic.num.partitions", "2"),
        ("offsets.topic.segment.bytes", "1048576"),
        ("auto.create.topics.enable", "false"),
    ];
    let mut world = World::new(7, &properties);
    assert!(world.start());
    let expected = fill(&mut world);
    match stop {
        Stop::Cleanly => world.stop(),
        Stop::Killed => world.kill(),
    }
    Base {
        world,
        expected,
        stop,
    }
}

fn contents(disk: &MemoryDisk) -> BTreeMap<PathBuf, Option<Vec<u8>>> {
    let files = files_below(disk, Path::new(LOG_DIRECTORY)).expect("listed");
    let content = |path: PathBuf| (path.clone(), disk.read_file(&path));
    files.into_iter().map(content).collect()
}

/// What one damage led to.
struct Trial<'a> {
    base: &'a Base,
    world: World,
    lines: Lines,
    context: String,
}

impl Trial<'_> {
    fn run(&mut self) -> &'static str {
        let before = contents(&self.world.disk);
        let lines = self.lines.clone();
        let started = lines.capture(|| self.world.try_start(RecoveryConfig::default()));
        if let Err(error) = started {
            let error = error.to_string();
            assert!(
                error.contains(LOG_DIRECTORY),
                "{}: no file named: {error}",
                self.context
            );
            assert!(
                contents(&self.world.disk) == before,
                "{}: changed by a refused start: {error}",
                self.context
            );
            return "start refused";
        }
        let first = lines.capture(|| self.read_all());
        let mut excused = false;
        for (place, found) in &first {
            excused |= self.judge(*place, found);
        }
        excused |= lines.capture(|| self.judge_groups());
        let written = lines.capture(|| self.write(&first));
        self.world.kill();
        let started = lines.capture(|| self.world.try_start(RecoveryConfig::default()));
        assert!(
            started.is_ok(),
            "{}: the second start fails: {started:?}",
            self.context
        );
        let second = lines.capture(|| self.read_all());
        for (place, found) in &first {
            self.compare(*place, found, &second[place], written.get(place));
        }
        match excused {
            true => "said",
            false => "as it was",
        }
    }

    fn read_all(&mut self) -> BTreeMap<Place, Found> {
        PLACES
            .into_iter()
            .map(|place| (place, read(&mut self.world, place)))
            .collect()
    }

    /// True if something is missing, and said to be.
    fn judge(&self, place: Place, found: &Found) -> bool {
        let context = format!("{} {place:?}", self.context);
        let (topic, partition) = (format!("topic=\"{}\"", place.0), format!("partition={}", place.1));
        let said = |words: &[&str]| {
            let all: Vec<&str> = words.iter().copied().chain([&*topic, &*partition]).collect();
            self.lines.tell(&all)
        };
        if let Some(refusal) = found.refusal {
            assert_eq!(
                refusal,
                ErrorCode::KafkaStorageError,
                "{context}\n{}",
                self.lines.text()
            );
            assert!(
                said(&["partition refused"]),
                "{context}: silent refusal\n{}",
                self.lines.text()
            );
            return true;
        }
        let nothing = BTreeMap::new();
        let expected = self.base.expected.records.get(&place).unwrap_or(&nothing);
        if !found.unreadable.is_empty() {
            assert!(
                said(&["cannot read records"]) || said(&["records are damaged"]),
                "{context}: unreadable in silence\n{}",
                self.lines.text()
            );
        }
        let is_cut = said(&["cut an unfinished end"]) || said(&["cut a log"]);
        let is_damaged = said(&["records are damaged"]);
        let mut excused = !found.unreadable.is_empty();
        for (offset, value) in expected {
            match found.records.get(offset) {
                Some(known) => assert_eq!(known, value, "{context}: offset {offset}"),
                None if found.unreadable.contains_key(offset) => {}
                // Compacted logs have gaps anyway, so that readers pass over damage that the start has named.
                None if is_damaged && place.0 == USERS => excused = true,
                None => {
                    assert!(
                        is_cut && self.base.stop == Stop::Killed,
                        "{context}: offset {offset} is missing\n{}",
                        self.lines.text()
                    );
                    excused = true;
                }
            }
        }
        let deleted = self.base.expected.deleted.get(&place);
        for (offset, value) in &found.records {
            let is_known = expected.contains_key(offset) || place.0 == USERS;
            let was_deleted = deleted.is_some_and(|deleted| deleted.contains(offset));
            assert!(
                is_known || was_deleted,
                "{context}: offset {offset} holds {value}"
            );
            if was_deleted {
                let says_so = self.lines.tell(&["checkpoint is damaged"]) || said(&["contradict"]);
                assert!(
                    says_so,
                    "{context}: deleted records are back\n{}",
                    self.lines.text()
                );
                excused = true;
            }
        }
        excused
    }

    fn judge_groups(&mut self) -> bool {
        let mut excused = false;
        for group in GROUPS {
            let expected = self.base.expected.commits.get(group).copied();
            let found = committed(&mut self.world, group);
            if found == Ok(expected) {
                continue;
            }
            let is_said = self.lines.tell(&["__consumer_offsets"]) || self.lines.tell(&["offsets topic"]);
            assert!(
                is_said,
                "{}: group {group} has {found:?} instead of {expected:?}\n{}",
                self.context,
                self.lines.text()
            );
            excused = true;
        }
        excused
    }

    /// Writes to every partition that takes records; offsets that were given before are not given again.
    fn write(&mut self, first: &BTreeMap<Place, Found>) -> BTreeMap<Place, i64> {
        let mut written = BTreeMap::new();
        for (place, found) in first.iter().filter(|(_, found)| found.refusal.is_none()) {
            let value = [("new".to_owned(), format!("after the damage in {place:?}"))];
            let offset = produce(&mut self.world, *place, &value);
            let offset =
                offset.unwrap_or_else(|error| panic!("{}: {place:?} answers {error:?}", self.context));
            let known: BTreeSet<i64> = found
                .records
                .keys()
                .chain(found.unreadable.keys())
                .copied()
                .collect();
            let is_new = known.last().is_none_or(|last| offset > *last);
            assert!(is_new, "{}: {place:?} gave offset {offset} again", self.context);
            written.insert(*place, offset);
        }
        written
    }

    fn compare(&self, place: Place, first: &Found, second: &Found, written: Option<&i64>) {
        let context = format!("{} {place:?}\n{}", self.context, self.lines.text());
        assert_eq!(second.refusal, first.refusal, "{context}");
        for (offset, value) in &first.records {
            // Compaction may have had its turn.
            let is_there = second.records.get(offset) == Some(value) || place.0 == USERS;
            assert!(is_there, "offset {offset} is lost later: {context}");
        }
        if let Some(offset) = written {
            assert!(
                second.records.contains_key(offset),
                "the new record is lost: {context}"
            );
        }
    }
}

fn seeds() -> Vec<u64> {
    let number = |name: &str| {
        std::env::var(name)
            .ok()
            .map(|text| text.parse().expect("a number"))
    };
    match number("OTTLA_DAMAGE_SEED") {
        Some(seed) => vec![seed],
        None => (0..number("OTTLA_DAMAGE_SEEDS").unwrap_or(SEEDS_BY_DEFAULT)).collect(),
    }
}

#[test]
fn no_damage_is_silent_and_none_costs_more_later() {
    let bases = [
        base(Stop::Cleanly, "disk"),
        base(Stop::Killed, "disk"),
        base(Stop::Killed, "page-cache"),
    ];
    let mut outcomes: BTreeMap<&str, u32> = BTreeMap::new();
    let mut failed = Vec::new();
    for seed in seeds() {
        let base = &bases[(seed % bases.len() as u64) as usize];
        let world = base.world.fork(seed);
        let damage = Damage::choose(&world.disk, Path::new(LOG_DIRECTORY), seed).expect("listed");
        damage.apply(&world.disk).expect("the disk works");
        let mut trial = Trial {
            base,
            world,
            lines: Lines::default(),
            context: format!("seed {seed}, {:?}, {damage}", base.stop),
        };
        // All seeds are tried: which kinds of damage fail says more than the first one does.
        match catch_unwind(AssertUnwindSafe(|| trial.run())) {
            Ok(outcome) => *outcomes.entry(outcome).or_default() += 1,
            Err(_) => failed.push(trial.context),
        }
    }
    println!("{outcomes:?}");
    assert!(
        failed.is_empty(),
        "{} seeds failed:\n{}",
        failed.len(),
        failed.join("\n")
    );
}
