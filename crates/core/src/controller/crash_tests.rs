//! The metadata log on a disk that loses power, fills up and fails.

use std::collections::BTreeMap;

use ottla_log::disk::memory::MemoryDisk;
use ottla_wire::error_code::ErrorCode;

use super::configs::ConfigOperation;
use super::topics::*;
use super::*;
use crate::config::ConfigResource;

const NOW: Timestamp = Timestamp(1_700_000_000_000);

fn open(disk: &MemoryDisk, seed: u64) -> Result<Controller, ControllerError> {
    let properties = BTreeMap::from([("log.dirs".to_owned(), "/data".to_owned())]);
    let mut config = NodeConfig::from_properties(&properties, [seed, 1, 1, 1]).unwrap();
    // Small enough that snapshots and their cleanup happen within the scenario.
    config.storage.metadata_segment_bytes = 1_000;
    config.storage.metadata_bytes_between_snapshots = 2_000;
    let config = Arc::new(config);
    let random = Arc::new(Random::new(config.seed));
    let disk = disk.shared();
    crate::start::take_over(&disk, &config, &random, NOW).map(|taken| taken.controller)
}

fn topic(name: &str) -> NewTopic {
    NewTopic {
        name: name.to_owned(),
        partition_count: 3,
        replication_factor: 1,
        ..NewTopic::default()
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
            resource: ConfigResource::topic(&name),
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
