//! Feature levels: which a directory may have, those it was formatted with, and how they change.

use ottla_log::disk::os::OsDisk;
use ottla_wire::error_code::ErrorCode;
use ottla_wire::metadata_records::feature_level::FeatureLevelRecord;

use super::bootstrap_file::BOOTSTRAP_FILE;
use super::features::UpgradeType;
use super::metadata_log::METADATA_DIRECTORY;
use super::snapshot_file::SnapshotId;
use super::tests::{NOW, World, create, files, new_topic};
use super::*;
use crate::access::granted::GrantedConfig;
use crate::config::ConfigResource;
use crate::image::access::ScramKey;
use crate::image::features::{KRAFT_VERSION, METADATA_VERSION, TRANSACTION_VERSION};

fn levels(levels: &[(&str, i16)]) -> RecordList {
    let mut records = RecordList::default();
    for (name, feature_level) in levels {
        let record = FeatureLevelRecord {
            name,
            feature_level: *feature_level,
        };
        records.push(MetadataRecord::FeatureLevel(record), 0);
    }
    records
}

/// Writes levels to the log that this controller would not write.
fn append_levels(controller: &mut Controller, wanted: &[(&str, i16)]) {
    for level in wanted {
        let batches = controller.log.batches(&levels(&[*level]), NOW);
        controller.log.append(&batches, NOW).unwrap();
        controller.log.sync().unwrap();
    }
}

/// A directory formatted by `kafka-storage format` of Apache Kafka 4.3.0, with a user in it.
pub(super) fn formatted(name: &str) -> World {
    let world = World::new(name);
    let golden = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/formatted-4.3.0");
    let snapshot = SnapshotId::BOOTSTRAP.path(std::path::Path::new(METADATA_DIRECTORY));
    std::fs::create_dir_all(world.path().join(METADATA_DIRECTORY)).unwrap();
    for file in ["meta.properties".into(), BOOTSTRAP_FILE.into(), snapshot] {
        std::fs::copy(golden.join(&file), world.path().join(&file)).unwrap();
    }
    world
}

/// As `formatted`, with other levels, and as for `controller.quorum.voters`: without voters.
pub(super) fn formatted_for(name: &str, wanted: &[(&str, i16)]) -> World {
    let world = formatted(name);
    let directory = world.path().join(METADATA_DIRECTORY);
    let written = SnapshotId::BOOTSTRAP;
    snapshot_file::write(
        &OsDisk::default(),
        &world.path(),
        written,
        None,
        &levels(wanted),
        0,
    )
    .unwrap();
    let bootstrap = world.path().join(BOOTSTRAP_FILE);
    std::fs::rename(written.path(&world.path()), bootstrap).unwrap();
    std::fs::remove_dir_all(directory).unwrap();
    world
}

fn refusal(world: &mut World) -> String {
    world.try_start().unwrap_err().to_string()
}

fn update(name: &str, level: i16, upgrade_type: UpgradeType) -> FeatureUpdate {
    FeatureUpdate {
        name: name.to_owned(),
        level,
        upgrade_type,
    }
}

#[test]
fn a_level_that_a_later_record_lowered_does_not_count() {
    let mut world = World::new("taken-back");
    let mut controller = world.start();
    append_levels(
        &mut controller,
        &[
            ("share.version", 2),
            ("share.version", 1),
            ("from.the.future", 1),
            ("from.the.future", 0),
        ],
    );
    drop(controller);
    let controller = world.start();
    assert_eq!(controller.image().features.level("share.version"), 1);
    assert_eq!(controller.image().features.level("from.the.future"), 0);
}

#[test]
fn an_unsupported_level_is_refused_with_the_way_out() {
    for (name, level, way_out) in [
        ("share.version", 2, "downgrade --feature share.version=1"),
        ("from.the.future", 1, "downgrade --feature from.the.future=0"),
        (METADATA_VERSION, 22, "upgrade --release-version 4.0"),
        (METADATA_VERSION, 31, "downgrade --release-version 4.3"),
    ] {
        let mut world = World::new("unkept");
        append_levels(&mut world.start(), &[(name, level)]);
        let said = refusal(&mut world);
        for part in ["__cluster_metadata-0", &format!("{name}={level}"), way_out] {
            assert!(said.contains(part), "no `{part}` in: {said}");
        }
    }
}

#[test]
fn an_unsupported_level_is_reported_before_a_record_that_it_introduced() {
    let mut world = World::new("brought");
    let mut controller = world.start();
    append_levels(&mut controller, &[(METADATA_VERSION, 31)]);
    // Type 29 has not been assigned yet.
    let unknown = RecordList {
        values: vec![vec![1, 29, 0, 0]],
    };
    let batches = controller.log.batches(&unknown, NOW);
    controller.log.append(&batches, NOW).unwrap();
    drop(controller);
    let said = refusal(&mut world);
    assert!(said.contains("metadata.version=31"), "{said}");
}

#[test]
fn a_formatted_directory_gets_the_levels_and_users_it_was_formatted_with() {
    let mut world = formatted("formatted");
    let controller = world.start();
    let image = controller.image();
    for (name, level) in [
        (METADATA_VERSION, 30),
        (KRAFT_VERSION, 1),
        (TRANSACTION_VERSION, 2),
        ("group.version", 1),
        ("share.version", 1),
        ("streams.version", 1),
        ("eligible.leader.replicas.version", 1),
    ] {
        assert_eq!(image.features.level(name), level, "{name}");
    }
    let alice = ScramKey {
        mechanism: 1,
        user: "alice".into(),
    };
    assert_eq!(image.scram_credentials[&alice].iterations, 4096);
    // Written by Apache Kafka together with the first level of eligible.leader.replicas.version.
    let defaults = &image.configs[&ConfigResource::cluster_default()];
    assert_eq!(&*defaults["min.insync.replicas"], "1");
    assert_eq!(image.brokers[&1].cordoned_log_directories, None);
}

#[test]
fn a_directory_formatted_for_a_static_quorum_stays_one() {
    let mut world = formatted_for("static", &[(METADATA_VERSION, 25)]);
    let mut controller = world.start();
    create(&mut controller, new_topic("t", 1)).unwrap();
    assert_eq!(
        controller.replay.quorum(),
        &crate::image::replay::QuorumImage::default()
    );
    assert_eq!(controller.image().features.metadata_version(), 25);
    controller.close(NOW).unwrap();
    let controller = world.start();
    assert!(controller.image().topic("t").is_some());
    let names = files(&world.path().join(METADATA_DIRECTORY));
    assert!(
        !names.iter().any(|name| name.ends_with(".checkpoint")),
        "{names:?}"
    );
}

#[test]
fn a_directory_formatted_with_unsupported_levels_is_refused_untouched() {
    for (wanted, parts) in [
        (
            &[(METADATA_VERSION, 21)][..],
            ["metadata.version=21", "--release-version 4.0"],
        ),
        (
            &[(METADATA_VERSION, 31)],
            ["metadata.version=31", "--release-version 4.3"],
        ),
        (
            &[(METADATA_VERSION, 30), ("share.version", 2)],
            ["share.version=2", "--feature share.version=1"],
        ),
        (&[("share.version", 1)], ["metadata.version", "format it again"]),
    ] {
        let mut world = formatted_for("refused", wanted);
        let before = files(&world.path());
        let said = refusal(&mut world);
        for part in [&parts[..], &[BOOTSTRAP_FILE]].concat() {
            assert!(said.contains(part), "no `{part}` in: {said}");
        }
        assert_eq!(files(&world.path()), before);
    }
}

#[test]
fn a_damaged_bootstrap_file_is_refused_while_it_counts_and_ignored_when_the_log_has_levels() {
    let damage = |world: &World| {
        let path = world.path().join(BOOTSTRAP_FILE);
        let mut bytes = std::fs::read(&path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        bytes
    };
    let mut world = formatted("damaged");
    let bytes = damage(&world);
    let said = refusal(&mut world);
    assert!(
        said.contains(BOOTSTRAP_FILE) && said.contains("cannot be read"),
        "{said}"
    );
    std::fs::write(world.path().join(BOOTSTRAP_FILE), &bytes[..100]).unwrap();
    let said = refusal(&mut world);
    assert!(said.contains("cannot be read"), "{said}");

    let mut world = formatted("relic");
    drop(world.start());
    damage(&world);
    assert_eq!(world.start().image().features.level("share.version"), 1);
}

#[test]
fn levels_are_raised_and_lowered_by_kafkas_rules() {
    use UpgradeType::{SafeDowngrade, Unknown, UnsafeDowngrade, Upgrade};
    let mut world = formatted("rules");
    let mut controller = world.start();
    let mut check = |name: &str, level: i16, upgrade_type: UpgradeType, is_taken: bool| {
        let updates = [update(name, level, upgrade_type)];
        let result = controller.update_features(&updates, true, NOW).unwrap();
        let code = result.map_err(|refusal| refusal.code);
        let expected = is_taken.then_some(()).ok_or(ErrorCode::InvalidUpdateVersion);
        assert_eq!(code, expected, "{name} {level} {upgrade_type:?}");
    };
    // Answers of an Apache Kafka 4.3.0 that was formatted with defaults.
    for (name, level, upgrade_type, is_taken) in [
        (METADATA_VERSION, 31, Upgrade, false),
        (METADATA_VERSION, 30, Upgrade, true),
        (METADATA_VERSION, 29, Upgrade, false),
        (METADATA_VERSION, 29, SafeDowngrade, false),
        (METADATA_VERSION, 29, UnsafeDowngrade, false),
        (METADATA_VERSION, 0, SafeDowngrade, false),
        ("share.version", 1, Upgrade, true),
        ("share.version", 1, SafeDowngrade, true),
        ("share.version", 1, Unknown, false),
        ("share.version", 0, Upgrade, false),
        ("share.version", 0, SafeDowngrade, true),
        ("share.version", 0, UnsafeDowngrade, true),
        ("share.version", 2, Upgrade, false),
        ("share.version", -1, SafeDowngrade, false),
        (KRAFT_VERSION, 1, Upgrade, true),
        (KRAFT_VERSION, 0, SafeDowngrade, false),
        (KRAFT_VERSION, 0, UnsafeDowngrade, false),
        (KRAFT_VERSION, 2, Upgrade, false),
        ("nope.version", 0, SafeDowngrade, false),
        ("nope.version", 1, Upgrade, false),
        (TRANSACTION_VERSION, 0, SafeDowngrade, true),
        (TRANSACTION_VERSION, 3, Upgrade, false),
        ("group.version", 0, SafeDowngrade, true),
        ("eligible.leader.replicas.version", 0, SafeDowngrade, true),
        ("streams.version", 0, SafeDowngrade, true),
    ] {
        check(name, level, upgrade_type, is_taken);
    }
    assert_eq!(controller.image().features.level("share.version"), 1);
}

#[test]
fn the_metadata_version_can_be_lowered_where_no_record_changes_its_format() {
    let mut world = formatted_for("down", &[(METADATA_VERSION, 29)]);
    let mut controller = world.start();
    let mut change = |level, upgrade_type| {
        let updates = [update(METADATA_VERSION, level, upgrade_type)];
        controller.update_features(&updates, false, NOW).unwrap().is_ok()
    };
    assert!(change(23, UpgradeType::SafeDowngrade));
    assert!(!change(22, UpgradeType::SafeDowngrade));
    assert!(change(30, UpgradeType::Upgrade));
    assert!(!change(29, UpgradeType::SafeDowngrade));
    drop(controller);
    assert_eq!(world.start().image().features.metadata_version(), 30);
}

#[test]
fn one_bad_update_leaves_all_levels_as_they_are() {
    let mut world = formatted("all-or-none");
    let mut controller = world.start();
    let updates = [
        update("share.version", 0, UpgradeType::SafeDowngrade),
        update("nope.version", 1, UpgradeType::Upgrade),
    ];
    let refused = controller
        .update_features(&updates, false, NOW)
        .unwrap()
        .unwrap_err();
    assert!(refused.message.contains("nope.version"), "{}", refused.message);
    assert_eq!(controller.image().features.level("share.version"), 1);
    // Of two updates of one feature the later counts.
    let updates = [
        update("share.version", 7, UpgradeType::Upgrade),
        update("share.version", 0, UpgradeType::SafeDowngrade),
    ];
    assert_eq!(controller.update_features(&updates, false, NOW).unwrap(), Ok(()));
    drop(controller);
    assert_eq!(world.start().image().features.level("share.version"), 0);
}

#[test]
fn raising_kraft_version_puts_the_voter_into_the_log() {
    let mut world = formatted_for("raise", &[(METADATA_VERSION, 29)]);
    let mut controller = world.start();
    let voter = (1, controller.directories().metadata.id);
    let updates = [update(KRAFT_VERSION, 1, UpgradeType::Upgrade)];
    assert_eq!(controller.update_features(&updates, true, NOW).unwrap(), Ok(()));
    assert_eq!(controller.replay.quorum().voters, []);
    assert_eq!(controller.update_features(&updates, false, NOW).unwrap(), Ok(()));
    assert_eq!(controller.replay.quorum().voters, [voter]);
    create(&mut controller, new_topic("t", 1)).unwrap();
    drop(controller);
    let controller = world.start();
    assert_eq!(controller.replay.quorum().voters, [voter]);
    assert_eq!(controller.image().features.level(KRAFT_VERSION), 1);
    assert!(controller.image().topic("t").is_some());
}

#[test]
fn the_first_level_of_eligible_replicas_fixes_min_insync_replicas() {
    let mut world = formatted_for("elr", &[(METADATA_VERSION, 30)]);
    world.lines.push(("min.insync.replicas", "2".to_owned()));
    let mut controller = world.start();
    let own = ConfigChange {
        resource: GrantedConfig::of(ConfigResource::broker(1)),
        operations: vec![(
            "min.insync.replicas".to_owned(),
            configs::ConfigOperation::Set("3".to_owned()),
        )],
    };
    assert_eq!(
        controller
            .alter_configs_incrementally(&[own], false, NOW)
            .unwrap(),
        [Ok(())]
    );
    let updates = [update(
        "eligible.leader.replicas.version",
        1,
        UpgradeType::Upgrade,
    )];
    assert_eq!(controller.update_features(&updates, false, NOW).unwrap(), Ok(()));
    let configs = &controller.image().configs;
    assert_eq!(
        &*configs[&ConfigResource::cluster_default()]["min.insync.replicas"],
        "2"
    );
    assert!(!configs.contains_key(&ConfigResource::broker(1)));
}

#[test]
fn a_partition_stays_where_it_is_and_keeps_its_leader() {
    let mut world = World::new("reassign");
    let mut controller = world.start();
    create(&mut controller, new_topic("t", 1)).unwrap();
    let codes = |results: Vec<Result<(), Refusal>>| -> Vec<ErrorCode> {
        let code = |result: Result<(), Refusal>| result.err().map_or(ErrorCode::None, |refusal| refusal.code);
        results.into_iter().map(code).collect()
    };
    let reassignment = |topic: &str, partition, replicas: Option<&[i32]>| Reassignment {
        topic: topic.to_owned(),
        partition,
        replicas: replicas.map(<[i32]>::to_vec),
    };
    let results = controller.reassign_partitions(&[
        reassignment("t", 0, Some(&[1])),
        reassignment("t", 0, Some(&[2])),
        reassignment("t", 0, Some(&[1, 2])),
        reassignment("t", 0, Some(&[1, 1])),
        reassignment("t", 0, Some(&[])),
        reassignment("t", 0, None),
        reassignment("t", 1, Some(&[1])),
        reassignment("u", 0, None),
    ]);
    let said = results[1].as_ref().unwrap_err().message.clone();
    assert!(said.contains("one node, 1"), "{said}");
    let bad = ErrorCode::InvalidReplicaAssignment;
    let unknown = ErrorCode::UnknownTopicOrPartition;
    assert_eq!(
        codes(results),
        [
            ErrorCode::None,
            bad,
            bad,
            bad,
            bad,
            ErrorCode::NoReassignmentInProgress,
            unknown,
            unknown
        ]
    );
    let elections = [("t".to_owned(), 0), ("t".to_owned(), 1), ("u".to_owned(), 0)];
    assert_eq!(
        codes(controller.elect_leaders(&elections)),
        [ErrorCode::ElectionNotNeeded, unknown, unknown]
    );
}
