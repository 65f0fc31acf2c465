//! Damages any file of a directory in any way, on a simulated disk; `trial.rs` judges the outcome.
//!
//! `OTTLA_DAMAGE_SEED=n` runs one seed, `OTTLA_DAMAGE_SEEDS=n` the first n. A failure names its
//! seed.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use ottla_core::config::RecoveryConfig;
use ottla_log::disk::Disk;
use ottla_log::disk::damage::{Damage, DamageKind, files_below};
use ottla_log::disk::memory::MemoryDisk;
use ottla_sim::inhabited::producers::Producer;
use ottla_sim::inhabited::{
    Caller, Expected, ORDERS, access, committed, create_topic, delete_topic, fill, produce, read,
};
use ottla_sim::trial::{Machine, Outcome, Stop, Trial};
use ottla_sim::world::{LOG_DIRECTORY, World};
use ottla_wire::api_key::ApiKey;
use ottla_wire::error_code::ErrorCode;
use ottla_wire::records::batch;
use tracing::Dispatch;

const SEEDS_BY_DEFAULT: u64 = 600;

/// The text of log lines.
#[derive(Clone, Default)]
struct Text(Arc<Mutex<Vec<u8>>>);

impl Write for Text {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("no panic under it").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The broker's log lines.
#[derive(Clone)]
struct Lines {
    text: Text,
    /// Made once: a subscriber reserves room for thousands of threads.
    subscriber: Dispatch,
}

impl Default for Lines {
    fn default() -> Lines {
        let text = Text::default();
        let into = text.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(move || into.clone())
            .with_ansi(false)
            .without_time()
            .with_target(false)
            .finish();
        Lines {
            text,
            subscriber: Dispatch::new(subscriber),
        }
    }
}

impl Lines {
    fn capture<T>(&self, work: impl FnOnce() -> T) -> T {
        tracing::dispatcher::with_default(&self.subscriber, work)
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.text.0.lock().expect("no panic under it")).into_owned()
    }
}

/// One directory before the damage.
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
        ("transaction.state.log.num.partitions", "2"),
        access::SETTINGS[0],
        access::SETTINGS[1],
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

/// A simulated broker with its log lines.
struct Simulated {
    world: World,
    lines: Lines,
    recovery: RecoveryConfig,
}

impl Simulated {
    fn new(world: World) -> Simulated {
        Simulated {
            world,
            lines: Lines::default(),
            recovery: RecoveryConfig::default(),
        }
    }
}

impl Caller for Simulated {
    fn answer(&mut self, api_key: ApiKey, version: i16, body: &[u8]) -> Vec<u8> {
        let world = &mut self.world;
        self.lines.capture(|| world.answer(api_key, version, body))
    }

    fn settle(&mut self) {
        let world = &mut self.world;
        self.lines.capture(|| world.settle());
    }

    fn pause(&mut self) {
        let world = &mut self.world;
        self.lines.capture(|| world.pause());
    }

    fn now_ms(&self) -> i64 {
        self.world.now_ms()
    }
}

impl Machine for Simulated {
    fn start(&mut self) -> Result<(), String> {
        let (world, recovery) = (&mut self.world, self.recovery.clone());
        let started = self.lines.capture(|| world.try_start(recovery));
        started.map_err(|error| error.to_string())
    }

    fn kill(&mut self) {
        self.world.kill();
    }

    fn loud_lines(&self) -> Vec<String> {
        let text = self.lines.text();
        let is_loud = |line: &&str| {
            ["ERROR", "WARN"]
                .iter()
                .any(|level| line.trim_start().starts_with(level))
        };
        text.lines().filter(is_loud).map(str::to_owned).collect()
    }

    fn contents(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let disk = &self.world.disk;
        let files = files_below(disk, Path::new(LOG_DIRECTORY)).expect("listed");
        let content = |path: PathBuf| (path.clone(), disk.read_file(&path).unwrap_or_default());
        files.into_iter().map(content).collect()
    }

    fn directory(&self) -> String {
        LOG_DIRECTORY.to_owned()
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

/// Random and chosen damages in turn. A disk in memory has no pipes and no links.
fn damage_of(world: &World, seed: u64) -> Damage {
    let root = Path::new(LOG_DIRECTORY);
    let random = |seed| Damage::choose(&world.disk, root, seed).expect("listed");
    if seed.is_multiple_of(2) {
        return random(seed);
    }
    let chosen = Damage::nth_chosen(&world.disk, root, seed / 6).expect("listed");
    match chosen.kind {
        DamageKind::Pipe | DamageKind::DanglingLink => random(seed),
        _ => chosen,
    }
}

#[test]
fn the_directories_have_every_kind_of_file_and_each_gets_every_chosen_damage() {
    let base = base(Stop::Cleanly, "disk");
    let disk = &base.world.disk;
    let root = Path::new(LOG_DIRECTORY);
    let files = files_below(disk, root).expect("listed");
    let filled = files
        .iter()
        .filter(|path| !disk.read_file(path).expect("there").is_empty());
    let names: Vec<String> = filled.map(|path| path.display().to_string()).collect();
    let all_damages = Damage::all_chosen(disk, root, 0).expect("listed");
    for (place, extension) in [
        ("", ".txnindex"),
        ("", ".snapshot"),
        ("", ".index"),
        ("", ".log"),
        ("__transaction_state", ".log"),
        ("__consumer_offsets", ".log"),
        ("__cluster_metadata", ".log"),
    ] {
        let is_it = |name: &str| {
            let is_internal = ["__transaction_state", "__consumer_offsets", "__cluster_metadata"]
                .iter()
                .any(|internal| name.contains(internal));
            name.ends_with(extension) && name.contains(place) && is_internal != place.is_empty()
        };
        assert!(
            names.iter().any(|name| is_it(name)),
            "{place}*{extension}: {names:?}"
        );
        let damaged = all_damages
            .iter()
            .filter(|damage| is_it(&damage.path.display().to_string()));
        let kinds: BTreeSet<String> = damaged.map(|damage| kind_name(&damage.kind)).collect();
        let mut wanted = vec![
            "DanglingLink",
            "Directory",
            "Emptied",
            "Foreign",
            "Missing",
            "Pipe",
            "Truncated",
        ];
        if extension == ".log" {
            wanted.extend(["FlippedBit", "Zeroed"]);
        }
        let missing: Vec<&&str> = wanted.iter().filter(|kind| !kinds.contains(**kind)).collect();
        assert!(missing.is_empty(), "{place}*{extension} gets no {missing:?}");
    }
}

fn kind_name(kind: &DamageKind) -> String {
    let text = format!("{kind:?}");
    text.split(' ').next().unwrap_or_default().to_owned()
}

#[test]
fn no_damage_is_silent_or_causes_a_later_loss() {
    let bases = [
        base(Stop::Cleanly, "disk"),
        base(Stop::Killed, "disk"),
        base(Stop::Killed, "page-cache"),
    ];
    let mut outcomes: BTreeMap<Outcome, u32> = BTreeMap::new();
    let mut failed = Vec::new();
    let seeds = seeds();
    for seed in seeds.iter().copied() {
        let base = &bases[(seed % bases.len() as u64) as usize];
        let world = base.world.fork(seed);
        let damage = damage_of(&world, seed);
        damage.apply(&world.disk).expect("the disk works");
        let mut machine = Simulated::new(world);
        let mut trial = Trial {
            machine: &mut machine,
            expected: &base.expected,
            stop: base.stop,
            damage: &damage,
        };
        // All seeds are tried: the kinds of damage that fail tell more than the first failure.
        match catch_unwind(AssertUnwindSafe(|| trial.run())).unwrap_or_else(|_| Err("panic".to_owned())) {
            Ok(outcome) => *outcomes.entry(outcome).or_default() += 1,
            Err(problem) => failed.push(format!("seed {seed}, {:?}, {damage}: {problem}", base.stop)),
        }
        if seeds.len() == 1 {
            println!("{}", machine.lines.text());
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

fn machine(base: &Base) -> Simulated {
    Simulated::new(base.world.fork(1))
}

fn refusal(machine: &mut Simulated) -> String {
    let before = machine.contents();
    let refusal = machine.start().expect_err("the start is refused");
    assert!(machine.contents() == before, "a refused start changed something");
    refusal
}

/// Checks that every record and every committed offset is there.
fn check_all(machine: &mut Simulated, expected: &Expected) {
    for (place, records) in &expected.records {
        let found = read(machine, *place).expect("nothing damaged is given out");
        assert_eq!(
            (found.refusal, &found.unreadable),
            (None, &BTreeMap::new()),
            "{place:?}"
        );
        let is_there = |(offset, value): (&i64, &String)| found.records.get(offset) == Some(value);
        assert!(records.iter().all(is_there), "{place:?}");
    }
    for (group, offset) in &expected.commits {
        assert_eq!(committed(machine, group), Ok(Some(*offset)), "{group}");
    }
}

/// Producer ids are in the metadata log, too. A new producer with the id of an earlier one had its
/// first batch acknowledged as a retry of that one's, and it was not appended.
fn check_new_producers(machine: &mut Simulated, expected: &Expected) {
    for (place, records) in &expected.records {
        let value = [("k".to_owned(), "of a new producer".to_owned())];
        let mut producer = Producer::new(machine, None).expect("producer ids are given out");
        assert!(!expected.producer_ids.contains(&producer.id), "{}", producer.id);
        let offset = producer.send(machine, *place, &value).expect("records are taken");
        let last = records.last_key_value().expect("there are records").0;
        assert!(
            offset > *last,
            "{place:?}: offset {offset} is that of an older record"
        );
        let found = read(machine, *place).expect("nothing damaged is given out");
        assert_eq!(found.records[&offset], "k=of a new producer", "{place:?}");
    }
}

#[test]
fn a_lost_metadata_log_refuses_the_start_and_is_rebuilt_from_the_directories_on_request() {
    let base = base(Stop::Cleanly, "disk");
    let metadata = Path::new(LOG_DIRECTORY).join("__cluster_metadata-0");
    let mut machine = machine(&base);
    for path in files_below(&machine.world.disk, &metadata).expect("listed") {
        machine.world.disk.remove_file(&path).expect("removed");
    }
    let refused = refusal(&mut machine);
    assert!(refused.contains("there is no metadata log"), "{refused}");
    assert!(refused.contains("--recover-metadata"), "{refused}");

    machine.recovery.recover_metadata = true;
    machine.start().expect("made again");
    // Topic settings are lost with the metadata log, but no record and no committed offset.
    check_all(&mut machine, &base.expected);
    check_new_producers(&mut machine, &base.expected);
    machine.world.stop();
    machine.recovery.recover_metadata = false;
    machine.start().expect("the new log is whole");
    let gone = machine.loud_lines().iter().any(|line| line.contains("\"gone\""));
    assert!(!gone, "a deleted topic is not taken back");
}

/// Whether the byte belongs to the leader epoch: the only field of a batch that no checksum covers
/// and that neighbouring batches need not contradict.
fn is_leader_epoch(log: &[u8], position: u64) -> bool {
    let mut start = 0;
    for batch in batch::batches(log) {
        let length = batch.expect("intact").bytes.len() as u64;
        if position < start + length {
            return (12..16).contains(&(position - start));
        }
        start += length;
    }
    false
}

#[test]
fn a_damaged_metadata_record_refuses_the_start_and_alone_is_dropped_on_request() {
    let base = base(Stop::Killed, "disk");
    let log = Path::new(LOG_DIRECTORY).join("__cluster_metadata-0/00000000000000000000.log");
    let bytes = base.world.disk.read_file(&log).expect("there");
    for position in (100..bytes.len() as u64).step_by(97) {
        let mut machine = machine(&base);
        machine.world.disk.corrupt(&log, position, 0x20);
        if is_leader_epoch(&bytes, position) {
            machine.start().expect("no record is damaged");
            let is_said = |line: &String| line.contains("contradict each other");
            assert!(machine.loud_lines().iter().any(is_said), "position {position}");
            check_all(&mut machine, &base.expected);
            continue;
        }
        let refused = refusal(&mut machine);
        assert!(
            refused.contains("00000000000000000000.log is corrupt at position"),
            "{refused}"
        );
        machine.recovery.recover_metadata = true;
        machine.start().expect("made again");
        check_all(&mut machine, &base.expected);
        check_new_producers(&mut machine, &base.expected);
    }
}

#[test]
fn a_partition_whose_directory_is_gone_is_alone_refused_and_given_up_only_on_request() {
    let base = base(Stop::Cleanly, "disk");
    let place = (ORDERS, 0);
    let end = *base.expected.records[&place]
        .last_key_value()
        .expect("there are records")
        .0
        + 1;
    let mut machine = machine(&base);
    let directory = Path::new(LOG_DIRECTORY).join("orders-0");
    for path in files_below(&machine.world.disk, &directory).expect("listed") {
        machine.world.disk.remove_file(&path).expect("removed");
    }
    machine.world.disk.remove_directory(&directory).expect("removed");
    for _ in 0..2 {
        machine.start().expect("the others are served");
        let found = read(&mut machine, place).expect("nothing damaged is given out");
        assert_eq!(found.refusal, Some(ErrorCode::KafkaStorageError));
        let value = [("k".to_owned(), "v".to_owned())];
        assert_eq!(
            produce(&mut machine, place, &value),
            Err(ErrorCode::KafkaStorageError)
        );
        assert_eq!(read(&mut machine, (ORDERS, 1)).expect("intact").refusal, None);
        // The checkpoints still name it.
        machine.settle();
        machine.world.stop();
        assert!(!machine.world.disk.exists(&directory));
    }
    let lines = machine.loud_lines();
    let is_refusal = |line: &&String| line.contains("partition refused") && line.contains("/data/orders-0");
    let refused = lines.iter().find(is_refusal).expect("it is said");
    assert!(refused.contains("--accept-loss orders-0"), "{refused}");

    machine.recovery.accept_loss = ["orders-0".to_owned()].into();
    machine.start().expect("starts");
    let value = [("k".to_owned(), "v".to_owned())];
    let offset = produce(&mut machine, place, &value).expect("records are taken");
    assert!(offset >= end, "offset {offset} was given before");
    machine.world.stop();
    machine.recovery.accept_loss.clear();
    machine.start().expect("starts");
    let found = read(&mut machine, place).expect("nothing damaged is given out");
    assert_eq!(found.records.len(), 1);
}

fn copy_directory(disk: &MemoryDisk, from: &str, to: &str) {
    let (from, to) = (
        Path::new(LOG_DIRECTORY).join(from),
        Path::new(LOG_DIRECTORY).join(to),
    );
    disk.create_directories(&to).expect("created");
    for path in files_below(disk, &from).expect("listed") {
        let bytes = disk.read_file(&path).expect("there");
        disk.write_file(&to.join(path.file_name().expect("a file has a name")), &bytes);
    }
    disk.sync_directory(Path::new(LOG_DIRECTORY)).expect("synced");
}

#[test]
fn a_log_of_an_unknown_topic_is_set_aside_and_can_be_restored_as_the_message_says() {
    let base = base(Stop::Cleanly, "disk");
    let mut machine = machine(&base);
    copy_directory(&machine.world.disk, "orders-0", "lost-0");
    let metadata = Path::new(LOG_DIRECTORY).join("lost-0/partition.metadata");
    let text = b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAZA";
    machine.world.disk.write_file(&metadata, text);
    machine.start().expect("starts");
    machine.world.stop();
    let lines = machine.loud_lines();
    let stray = lines
        .iter()
        .find(|line| line.contains("set aside a log"))
        .expect("it is said");
    let way_back = stray.split("rename ").nth(1).expect("the way back is named");
    let aside = way_back.split(' ').next().expect("a name");
    assert!(
        way_back.contains("to lost-0, start with --recover-metadata"),
        "{stray}"
    );

    let root = Path::new(LOG_DIRECTORY);
    machine
        .world
        .disk
        .rename(&root.join(aside), &root.join("lost-0"))
        .expect("renamed");
    machine.recovery.recover_metadata = true;
    machine.start().expect("starts");
    check_all(&mut machine, &base.expected);
    let found = read(&mut machine, ("lost", 0)).expect("nothing damaged is given out");
    assert_eq!(found.records, base.expected.records[&(ORDERS, 0)]);
}

/// Two starts were refused for ever, after they had removed the mark of the clean stop: one with a
/// directory in place of a small file, one after a stray was copied back and set aside again.
#[test]
fn what_is_wrong_with_an_unknown_log_refuses_no_start() {
    let base = base(Stop::Cleanly, "disk");
    let mut machine = machine(&base);
    let root = Path::new(LOG_DIRECTORY);
    for _ in 0..3 {
        let disk = machine.world.disk.clone();
        copy_directory(&disk, "orders-0", "lost-0");
        let metadata = root.join("lost-0/partition.metadata");
        disk.write_file(&metadata, b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAZA");
        let epochs = root.join("lost-0/leader-epoch-checkpoint");
        if disk.exists(&epochs) {
            disk.remove_file(&epochs).expect("removed");
        }
        disk.create_directories(&epochs).expect("created");
        machine.start().expect("starts");
        machine.world.stop();
        assert!(!disk.exists(&root.join("lost-0")));
    }
    let entries = machine.world.disk.list(root).expect("listed");
    let is_stray = |name: &str| name.starts_with("lost-0.") && name.ends_with("-stray");
    let names = entries
        .iter()
        .filter_map(|entry| entry.path.file_name()?.to_str());
    assert_eq!(names.filter(|name| is_stray(name)).count(), 3);
    machine.start().expect("starts");
    check_all(&mut machine, &base.expected);
}

/// The process was killed between the deletion's record and the renaming of the directory, which
/// then stayed forever.
#[test]
fn a_deletion_that_was_interrupted_by_a_kill_is_finished_at_the_next_start() {
    check_interrupted_deletion(&[]);
    // A snapshot no longer names the deleted topic, and one is due at every change.
    check_interrupted_deletion(&[("metadata.log.max.record.bytes.between.snapshots", "1")]);
}

fn check_interrupted_deletion(properties: &[(&str, &str)]) {
    let mut world = World::new(3, properties);
    assert!(world.start());
    create_topic(&mut world, "gone");
    produce(&mut world, ("gone", 0), &[("k".to_owned(), "v".to_owned())]).expect("taken");
    copy_directory(&world.disk, "gone-0", "copy");
    delete_topic(&mut world, "gone");
    world.kill();
    copy_directory(&world.disk, "copy", "gone-0");
    let mut machine = Simulated::new(world);
    machine.start().expect("starts");
    let left = files_below(&machine.world.disk, Path::new(LOG_DIRECTORY)).expect("listed");
    assert!(
        !left.iter().any(|path| path.to_string_lossy().contains("gone")),
        "{left:?}"
    );
    assert!(!machine.loud_lines().iter().any(|line| line.contains("set aside")));
}

/// The topic id in the file and the name of the directory contradict each other: this directory's
/// topic was not deleted.
#[test]
fn a_directory_that_names_the_id_of_a_deleted_topic_is_refused_and_not_deleted() {
    let mut world = World::new(3, &[]);
    assert!(world.start());
    let value = [("k".to_owned(), "v".to_owned())];
    for topic in ["gone", "kept"] {
        create_topic(&mut world, topic);
        produce(&mut world, (topic, 0), &value).expect("taken");
    }
    let file = |directory: &str| Path::new(LOG_DIRECTORY).join(directory);
    let id_of_gone = world
        .disk
        .read_file(&file("gone-0/partition.metadata"))
        .expect("there");
    delete_topic(&mut world, "gone");
    world.kill();
    world
        .disk
        .write_file(&file("kept-0/partition.metadata"), &id_of_gone);
    let records = world.disk.read_file(&file("kept-0/00000000000000000000.log"));
    let mut machine = Simulated::new(world);
    machine.start().expect("the others are served");
    let found = read(&mut machine, ("kept", 0)).expect("nothing damaged is given out");
    assert_eq!(found.refusal, Some(ErrorCode::KafkaStorageError));
    let left = machine
        .world
        .disk
        .read_file(&file("kept-0/00000000000000000000.log"));
    assert_eq!(left.expect("there"), records.expect("there"));
}

/// One lost small file refused every partition whose first records retention had removed.
#[test]
fn a_lost_checkpoint_of_log_starts_refuses_no_partition() {
    let root = Path::new(LOG_DIRECTORY);
    let file = root.join("log-start-offset-checkpoint");
    let place = (ORDERS, 1);
    for stop in [Stop::Cleanly, Stop::Killed] {
        let base = base(stop, "disk");
        let first_segment = |disk: &MemoryDisk| {
            let files = files_below(disk, &root.join("orders-1")).expect("listed");
            let mut logs = files
                .into_iter()
                .filter(|path| path.extension().is_some_and(|e| e == "log"));
            logs.next().expect("there is a segment")
        };
        assert!(!first_segment(&base.world.disk).ends_with("00000000000000000000.log"));
        for damage in [None, Some(&b""[..]), Some(b"0\n1\n__ottla_checksum 0 7\n")] {
            let mut machine = machine(&base);
            match damage {
                Some(bytes) => machine.world.disk.write_file(&file, bytes),
                None => machine.world.disk.remove_file(&file).expect("removed"),
            }
            machine.start().expect("starts");
            let found = read(&mut machine, place).expect("nothing damaged is given out");
            assert_eq!((found.refusal, &found.unreadable), (None, &BTreeMap::new()));
            let expected = &base.expected.records[&place];
            assert!(
                expected
                    .iter()
                    .all(|(offset, value)| found.records.get(offset) == Some(value))
            );
            let is_said =
                |line: &&String| line.contains("log-start-offset-checkpoint") && line.contains("again");
            assert!(machine.loud_lines().iter().any(|line| is_said(&line)));
            // It is there again.
            machine.world.stop();
            let restored = machine.world.disk.read_file(&file).expect("written");
            assert!(String::from_utf8_lossy(&restored).contains("orders 1 "));
        }
        // An intact one still proves that a segment is gone.
        let mut machine = machine(&base);
        let segment = first_segment(&machine.world.disk);
        machine.world.disk.remove_file(&segment).expect("removed");
        machine.start().expect("the others are served");
        let found = read(&mut machine, place).expect("nothing damaged is given out");
        assert_eq!(found.refusal, Some(ErrorCode::KafkaStorageError));
    }
}

#[test]
fn the_refusal_of_a_partition_without_records_names_the_file_that_is_missing() {
    let mut world = World::new(3, &[]);
    assert!(world.start());
    create_topic(&mut world, "empty");
    world.stop();
    let file = Path::new(LOG_DIRECTORY).join("empty-0/partition.metadata");
    world.disk.remove_file(&file).expect("removed");
    let mut machine = Simulated::new(world);
    machine.start().expect("starts");
    let lines = machine.loud_lines();
    let is_said = |line: &String| line.contains("empty-0/partition.metadata") && line.contains("missing");
    assert!(lines.iter().any(is_said), "{lines:?}");
}
