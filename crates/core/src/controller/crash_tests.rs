//! The metadata log on a disk that loses power, fills up and fails.

use std::collections::{BTreeMap, BTreeSet};

use ottla_log::directory::write_clean_shutdown;
use ottla_log::disk::damage::files_below;
use ottla_log::disk::memory::MemoryDisk;
use ottla_wire::error_code::ErrorCode;
use ottla_wire::records::batch::batches;

use super::configs::ConfigOperation;
use super::snapshot_file::SnapshotId;
use super::topics::*;
use super::*;
use crate::access::granted::{GrantedConfig, OwnedGrant};
use crate::config::ConfigResource;

const NOW: Timestamp = Timestamp(1_700_000_000_000);

fn open(disk: &MemoryDisk, seed: u64) -> Result<Controller, ControllerError> {
    open_and(disk, seed, false)
}

fn recover(disk: &MemoryDisk, seed: u64) -> Result<Controller, ControllerError> {
    open_and(disk, seed, true)
}

fn open_and(disk: &MemoryDisk, seed: u64, recover_metadata: bool) -> Result<Controller, ControllerError> {
    let properties = BTreeMap::from([("log.dirs".to_owned(), "/data".to_owned())]);
    let mut config = NodeConfig::from_properties(&properties, [seed, 1, 1, 1]).unwrap();
    // Small enough that snapshots and their cleanup happen within the scenario.
    config.storage.metadata_segment_bytes = 1_000;
    config.storage.metadata_bytes_between_snapshots = 2_000;
    config.recovery.recover_metadata = recover_metadata;
    let config = Arc::new(config);
    let random = Arc::new(Random::new(config.seed));
    let disk = disk.shared();
    // Each start has a moment of its own.
    let now = Timestamp(NOW.0 + seed as i64);
    crate::start::take_over(&disk, &config, &random, now).map(|taken| taken.controller)
}

fn topic(name: &str) -> NewTopic {
    NewTopic {
        name: OwnedGrant::of(name),
        partition_count: 3,
        replication_factor: 1,
        assignments: Vec::new(),
        configs: Vec::new(),
    }
}

/// The names of topics that must exist, and of one that may.
#[derive(Debug, Default)]
struct Expected {
    acknowledged: Vec<String>,
    deleted: Vec<String>,
}

/// Creates, changes and deletes topics, and stops, until the power fails.
fn run(disk: &MemoryDisk, seed: u64, expected: &mut Expected) -> Result<(), ControllerError> {
    let mut controller = open(disk, seed)?;
    for round in 0..6 {
        let name = format!("t{seed}-{round}");
        controller
            .create_topics(&mut MutationQuota::unlimited(), &[topic(&name)], false, NOW)?
            .remove(0)
            .unwrap();
        expected.acknowledged.push(name.clone());
        let operations = vec![("retention.ms".to_owned(), ConfigOperation::Set(round.to_string()))];
        let change = ConfigChange {
            resource: GrantedConfig::of(ConfigResource::topic(&name)),
            operations,
        };
        controller
            .alter_configs_incrementally(&[change], false, NOW)?
            .remove(0)
            .unwrap();
        if round == 3 {
            let victim = expected.acknowledged.remove(0);
            // Until the answer arrives, the topic may or may not exist.
            expected.deleted.push(victim.clone());
            let delete = TopicToDelete {
                granted: Some(OwnedGrant::of(&victim)),
                name: Some(victim),
                id: Uuid::ZERO,
            };
            assert_eq!(
                controller.delete_topics(&mut MutationQuota::unlimited(), &[delete], NOW)?[0].refusal,
                None
            );
        }
    }
    controller.close(NOW)
}

#[test]
fn acknowledged_changes_survive_a_power_cut_at_any_moment() {
    let whole = MemoryDisk::new(1);
    run(&whole, 1, &mut Expected::default()).unwrap();
    let operations = whole.operations();
    assert!(operations > 60, "{operations}");
    for cut in 0..operations {
        let disk = MemoryDisk::new(cut);
        disk.cut_power_at(cut);
        let mut expected = Expected::default();
        assert!(run(&disk, 1, &mut expected).is_err(), "cut at {cut}");
        disk.power_cut();
        let mut controller = open(&disk, 2).unwrap_or_else(|error| panic!("cut at {cut}: {error}"));
        for name in &expected.acknowledged {
            let topic = controller
                .image()
                .topic(name)
                .unwrap_or_else(|| panic!("cut at {cut}: {name} is gone"));
            assert_eq!(
                (topic.partitions.len(), topic.partitions[2].leader),
                (3, 1),
                "cut at {cut}"
            );
        }
        let extra = controller.image().topics.len() - expected.acknowledged.len();
        assert!(
            extra <= 1 + expected.deleted.len(),
            "cut at {cut}: {extra} topics that were never created"
        );
        // The directory can be written to as well as read.
        controller
            .create_topics(&mut MutationQuota::unlimited(), &[topic("after")], false, NOW)
            .unwrap()
            .remove(0)
            .unwrap();
        drop(controller);
        assert!(
            open(&disk, 3).unwrap().image().topic("after").is_some(),
            "cut at {cut}"
        );
    }
}

#[test]
fn a_full_disk_refuses_changes_until_there_is_space() {
    let disk = MemoryDisk::new(7);
    let mut controller = open(&disk, 1).unwrap();
    controller
        .create_topics(&mut MutationQuota::unlimited(), &[topic("before")], false, NOW)
        .unwrap()
        .remove(0)
        .unwrap();
    disk.set_capacity(Some(disk.used_bytes()));
    let mut failed = 0;
    // Space that was reserved in advance is used up first.
    for round in 0..2_000 {
        let result = controller.create_topics(
            &mut MutationQuota::unlimited(),
            &[topic(&format!("t{round}"))],
            false,
            NOW,
        );
        if let Err(error) = result {
            assert!(
                matches!(error, ControllerError::Log(LogError::NoSpace { .. })),
                "{error}"
            );
            assert!(controller.image().topic(&format!("t{round}")).is_none());
            failed += 1;
            if failed == 3 {
                break;
            }
        }
    }
    assert_eq!(failed, 3);
    disk.set_capacity(None);
    controller
        .create_topics(&mut MutationQuota::unlimited(), &[topic("after")], false, NOW)
        .unwrap()
        .remove(0)
        .unwrap();
    let names: Vec<String> = controller
        .image()
        .topics
        .iter()
        .map(|topic| topic.name.to_string())
        .collect();
    drop(controller);
    let controller = open(&disk, 2).unwrap();
    assert_eq!(
        controller
            .image()
            .topics
            .iter()
            .map(|topic| topic.name.to_string())
            .collect::<Vec<_>>(),
        names
    );
}

#[test]
fn after_a_failed_sync_nothing_more_is_written() {
    let disk = MemoryDisk::new(9);
    let mut controller = open(&disk, 1).unwrap();
    controller
        .create_topics(&mut MutationQuota::unlimited(), &[topic("before")], false, NOW)
        .unwrap()
        .remove(0)
        .unwrap();
    disk.fail_next_sync();
    assert!(
        controller
            .create_topics(&mut MutationQuota::unlimited(), &[topic("lost")], false, NOW)
            .is_err()
    );
    assert!(controller.image().topic("lost").is_none());
    let error = controller
        .create_topics(&mut MutationQuota::unlimited(), &[topic("later")], false, NOW)
        .unwrap_err();
    assert!(
        matches!(error, ControllerError::Log(LogError::Poisoned { .. })),
        "{error}"
    );
    drop(controller);
    disk.power_cut();
    let controller = open(&disk, 2).unwrap();
    assert!(controller.image().topic("before").is_some() && controller.image().topic("later").is_none());
}

#[test]
fn a_validation_leaves_no_trace() {
    let disk = MemoryDisk::new(3);
    let mut controller = open(&disk, 1).unwrap();
    let operations = disk.operations();
    controller
        .create_topics(&mut MutationQuota::unlimited(), &[topic("a")], true, NOW)
        .unwrap()
        .remove(0)
        .unwrap();
    let refused = controller
        .create_topics(&mut MutationQuota::unlimited(), &[topic("../x")], false, NOW)
        .unwrap()
        .remove(0)
        .unwrap_err();
    assert_eq!(refused.code, ErrorCode::InvalidTopicException);
    assert_eq!(disk.operations(), operations);
}

fn contents(disk: &MemoryDisk) -> BTreeMap<PathBuf, Vec<u8>> {
    let files = files_below(disk, Path::new("/data")).unwrap();
    let content = |path: PathBuf| (path.clone(), disk.read_file(&path).unwrap_or_default());
    files.into_iter().map(content).collect()
}

fn topic_names(controller: &Controller) -> BTreeSet<String> {
    let topics = controller.image().topics.iter();
    topics.map(|topic| topic.name.to_string()).collect()
}

fn create(controller: &mut Controller, name: &str) {
    let mut quota = MutationQuota::unlimited();
    let results = controller.create_topics(&mut quota, &[topic(name)], false, NOW);
    results.unwrap().remove(0).unwrap();
}

const PAGE_BYTES: u64 = 4_096;
const METADATA_LOG: &str = "/data/__cluster_metadata-0";

/// The old log was moved away before the new one was written: what came after an interruption was
/// empty.
#[test]
fn an_interrupted_recovery_of_the_metadata_log_loses_nothing() {
    let damaged = MemoryDisk::new(1);
    let mut controller = open(&damaged, 1).unwrap();
    for name in ["first", "second", "third"] {
        create(&mut controller, name);
    }
    drop(controller);
    damaged.kill();
    let logs = files_below(&damaged, Path::new(METADATA_LOG)).unwrap();
    let place = logs.iter().find_map(|path| {
        let bytes = damaged.read_file(path)?;
        Some((path, bytes.windows(6).position(|name| name == b"second")? as u64))
    });
    let (log, position) = place.unwrap();
    damaged.corrupt(log, position, 1);
    open(&damaged, 2).unwrap_err();
    let before = damaged.operations();

    let whole = damaged.fork(1);
    let intact = topic_names(&recover(&whole, 2).unwrap());
    assert_eq!(intact, ["first", "third"].map(str::to_owned).into());
    for cut in before + 1..=whole.operations() {
        let disk = damaged.fork(cut);
        disk.cut_power_at(cut);
        recover(&disk, 2).expect_err("the power failed");
        disk.power_cut();
        if let Ok(controller) = open(&disk.fork(cut), 3) {
            assert_eq!(topic_names(&controller), intact, "cut at {cut}");
        }
        let controller = recover(&disk, 3).unwrap_or_else(|error| panic!("cut at {cut}: {error}"));
        assert_eq!(topic_names(&controller), intact, "cut at {cut}");
        drop(controller);
        assert_eq!(topic_names(&open(&disk, 4).unwrap()), intact, "cut at {cut}");
        assert!(!disk.exists(&Path::new("/data").join(super::salvage::UNFINISHED)));
    }
    for pages in 0..20 {
        let disk = damaged.fork(pages);
        disk.set_capacity(Some(disk.used_bytes() + pages * PAGE_BYTES));
        if recover(&disk, 2).is_ok() {
            assert!(pages > 1);
            return;
        }
        disk.set_capacity(None);
        assert_eq!(
            topic_names(&recover(&disk, 3).unwrap()),
            intact,
            "{pages} pages free"
        );
    }
    panic!("a recovery needs more space than that");
}

/// What an interrupted recovery left is not read once the log was restored from a copy.
#[test]
fn a_restored_metadata_log_outlives_an_interrupted_recovery() {
    let disk = MemoryDisk::new(1);
    create(&mut open(&disk, 1).unwrap(), "a");
    disk.kill();
    let unfinished = Path::new("/data").join(super::salvage::UNFINISHED);
    disk.create_directories(&unfinished).unwrap();
    let id = SnapshotId {
        end_offset: 1_000,
        epoch: 9,
    };
    let old = RecordList::default();
    snapshot_file::write(&disk, &unfinished, id, None, &old, 0).unwrap();
    assert_eq!(topic_names(&recover(&disk.fork(1), 2).unwrap()).len(), 1);
    assert_eq!(topic_names(&open(&disk, 2).unwrap()).len(), 1);
    assert!(!disk.exists(&unfinished));
}

#[test]
fn a_recovery_skips_damaged_batches_of_a_snapshot_and_takes_the_others() {
    const ACLS: usize = 16_000;
    let base = MemoryDisk::new(1);
    let mut controller = open(&base, 1).unwrap();
    let acls = (0..ACLS).map(|number| NewAcl {
        resource_type: 2,
        resource_name: format!("topic-{number}"),
        pattern_type: 3,
        principal: "User:someone-with-a-long-name".to_owned(),
        host: "*".to_owned(),
        operation: 3,
        permission_type: 3,
    });
    for some in acls.collect::<Vec<_>>().chunks(8_000) {
        let results = controller.create_acls(some, NOW).unwrap();
        assert!(results.iter().all(Result::is_ok));
    }
    drop(controller);
    base.kill();
    let snapshots = snapshot_file::list(&base, Path::new(METADATA_LOG)).unwrap();
    let snapshot = snapshots.last().unwrap().path(Path::new(METADATA_LOG));
    let bytes = base.read_file(&snapshot).unwrap();
    let mut start = 0;
    let found: Vec<(u64, usize)> = batches(&bytes)
        .map(|batch| {
            let batch = batch.unwrap();
            let at = start;
            start += batch.bytes.len() as u64;
            let records = if batch.header.is_control() {
                0
            } else {
                batch.header.record_count
            };
            (at, records as usize)
        })
        .collect();
    assert_eq!(found.len(), 4, "{found:?}");
    // In the length of a batch, its checksum, and its records.
    for (position, damaged_index) in [(9, 1), (18, 1), (500, 1), (10, 2), (500, 2)] {
        let disk = base.fork(1);
        let (at, records) = found[damaged_index];
        disk.corrupt(&snapshot, at + position, 4);
        open(&disk, 2).unwrap_err();
        let controller = recover(&disk, 2).unwrap();
        let left = controller.image().acls.len();
        assert!(
            left < ACLS && left >= ACLS - records,
            "byte {position} of batch {damaged_index} with {records} records: {left} are left"
        );
    }
}

/// A disk that was full at a start cost the proof that the logs were complete.
#[test]
fn a_start_that_fails_for_lack_of_space_keeps_the_mark_of_a_clean_stop() {
    let base = MemoryDisk::new(1);
    let mut controller = open(&base, 1).unwrap();
    create(&mut controller, "a");
    controller.close(NOW).unwrap();
    write_clean_shutdown(&base, Path::new("/data"), controller.broker_epoch()).unwrap();
    drop(controller);
    base.kill();
    let mark = Path::new("/data/.kafka_cleanshutdown");
    let expected = base.read_file(mark);
    let least_bytes = base.used_bytes().saturating_sub(8 * PAGE_BYTES);
    for pages in 0..20 {
        let disk = base.fork(pages);
        disk.set_capacity(Some(least_bytes + pages * PAGE_BYTES));
        if open(&disk, 2).is_ok() {
            assert_eq!(disk.read_file(mark), None);
            assert!(pages > 0, "it failed with less");
            return;
        }
        assert_eq!(disk.read_file(mark), expected, "{pages} pages");
        disk.power_cut();
        disk.set_capacity(None);
        assert_eq!(disk.read_file(mark), expected, "{pages} pages");
        let controller = open(&disk, 3).unwrap_or_else(|error| panic!("{pages} pages: {error}"));
        assert_eq!(topic_names(&controller).len(), 1);
    }
    panic!("a start needs more space than that");
}

#[test]
fn a_directory_in_the_place_of_a_temporary_file_refuses_the_start_before_anything_changes() {
    let base = MemoryDisk::new(1);
    let mut controller = open(&base, 1).unwrap();
    controller.close(NOW).unwrap();
    write_clean_shutdown(&base, Path::new("/data"), controller.broker_epoch()).unwrap();
    drop(controller);
    base.kill();
    for name in [
        "__cluster_metadata-0/quorum-state",
        "recovery-point-offset-checkpoint",
        "replication-offset-checkpoint",
        "log-start-offset-checkpoint",
        "cleaner-offset-checkpoint",
        ".ottla-owner",
        ".kafka_cleanshutdown",
    ] {
        let disk = base.fork(1);
        disk.create_directories(&Path::new("/data").join(format!("{name}.tmp")))
            .unwrap();
        let before = contents(&disk);
        let refused = open(&disk, 2).expect_err(name).to_string();
        assert!(
            refused.contains(&format!("{name}.tmp")) && refused.contains("not a regular file"),
            "{refused}"
        );
        assert!(contents(&disk) == before, "{name}");
    }
}

/// Such a directory was taken for a new one: it started without its access rules.
#[test]
fn a_used_directory_without_its_metadata_log_and_without_topics_is_refused() {
    let formatted = MemoryDisk::new(1);
    drop(open(&formatted, 1).unwrap());
    for path in files_below(&formatted, Path::new(METADATA_LOG)).unwrap() {
        formatted.remove_file(&path).unwrap();
    }
    formatted.remove_directory(Path::new(METADATA_LOG)).unwrap();
    for (trace, text) in [
        (".kafka_cleanshutdown", ""),
        (".kafka_cleanshutdown", "{\"version\":0,\"brokerEpoch\":7}"),
        ("cleaner-offset-checkpoint", "0\n0\n"),
        (".ottla-owner", "version=0"),
        ("a-0.0123456789abcdef0123456789abcdef-stray/x", "x"),
        (
            "__cluster_metadata-0.0123456789abcdef0123456789abcdef-stray/x",
            "x",
        ),
    ] {
        let disk = formatted.fork(1);
        let path = Path::new("/data").join(trace);
        disk.create_directories(path.parent().unwrap()).unwrap();
        disk.write_file(&path, text.as_bytes());
        let before = contents(&disk);
        let refused = open(&disk, 2).expect_err(trace).to_string();
        let name = trace.split('/').next().unwrap();
        assert!(
            refused.contains(&format!("there is no metadata log, but there is {name}")),
            "{refused}"
        );
        assert!(contents(&disk) == before, "{trace}");
        recover(&disk, 2).unwrap();
    }
    // As Apache Kafka leaves a directory whose first start was interrupted.
    formatted.write_file(Path::new("/data/cleaner-offset-checkpoint"), b"");
    open(&formatted, 2).unwrap();
}
