//! What a stopped node exports for separate controllers, and when the export is refused.

use std::path::PathBuf;

use ottla_log::checkpoint::{RECOVERY_POINT_FILE, write_offsets};
use ottla_log::directory::{
    CLEAN_SHUTDOWN_FILE, LOCK_FILE, META_PROPERTIES_FILE, write_clean_shutdown, write_partition_metadata,
};
use ottla_log::disk::os::OsDisk;
use ottla_wire::records::control::ControlRecord;

use super::metadata_log::METADATA_DIRECTORY;
use super::snapshot_file::{SnapshotId, each_batch};
use super::tests::{NOW, World, create, files, new_topic};
use super::*;
use crate::access::granted::OwnedGrant;
use crate::config::{Listener, SecurityProtocol};
use crate::growth::{Growth, NewController};
use crate::image::features::{KRAFT_VERSION, METADATA_VERSION};
use crate::image::snapshot::records_of;
use crate::start::StartError;

/// A cleanly stopped node with a topic of two partitions and a deleted one.
struct Stopped {
    world: World,
    image: Arc<MetadataImage>,
}

impl Stopped {
    fn new(name: &str) -> Stopped {
        let mut world = World::new(name);
        let mut controller = world.start();
        create(&mut controller, new_topic("orders", 2)).unwrap();
        let gone = create(&mut controller, new_topic("gone", 1)).unwrap();
        let gone = TopicToDelete {
            name: None,
            id: gone.id,
            granted: Some(OwnedGrant::of("gone")),
        };
        assert_eq!(
            controller
                .delete_topics(&mut MutationQuota::unlimited(), &[gone], NOW)
                .unwrap()[0]
                .refusal,
            None
        );
        controller.allocate_producer_ids(NOW).unwrap();
        Stopped::by(world, controller)
    }

    fn by(world: World, mut controller: Controller) -> Stopped {
        controller.close(NOW).unwrap();
        let image = controller.image().clone();
        write_clean_shutdown(&OsDisk::default(), &world.path(), controller.broker_epoch()).unwrap();
        Stopped { world, image }
    }

    fn metadata_log(&self) -> PathBuf {
        self.world.path().join(METADATA_DIRECTORY)
    }

    fn out(&self) -> PathBuf {
        self.world.path().with_file_name("out")
    }

    fn read(&self, controller_id: i32) -> Result<Growth, StartError> {
        let controller = NewController {
            node_id: controller_id,
            listener: Listener {
                name: "CONTROLLER".into(),
                host: "10.0.0.9".into(),
                port: 9093,
                security_protocol: SecurityProtocol::Plaintext,
            },
        };
        let config = self.world.config();
        Growth::read(Arc::new(OsDisk::default()), &config, controller, &random(), NOW)
    }

    /// Checks that it is refused with all of these words, and that nothing was changed.
    fn check_refused(&self, words: &[&str]) {
        let before = contents(&self.world.path());
        let Err(problem) = self.read(3001) else {
            panic!("it is not refused")
        };
        let problem = problem.to_string();
        for word in words {
            assert!(problem.contains(word), "no '{word}' in: {problem}");
        }
        assert_eq!(contents(&self.world.path()), before);
    }
}

fn random() -> Random {
    Random::new([9, 9, 9, 9])
}

/// Returns every file below, except for the lock that a read takes.
fn contents(directory: &Path) -> std::collections::BTreeMap<PathBuf, Vec<u8>> {
    let mut found = std::collections::BTreeMap::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(contents(&path));
        } else if !path.ends_with(LOCK_FILE) {
            found.insert(path.clone(), std::fs::read(&path).unwrap());
        }
    }
    found
}

#[test]
fn the_new_directory_has_the_contents_of_the_log_without_the_old_controller() {
    let stopped = Stopped::new("grown");
    let before = contents(&stopped.world.path());
    let growth = stopped.read(3001).unwrap();
    let out = stopped.out();
    growth.check_out(&out).unwrap();
    assert!(!out.exists());
    growth.write(&out, &random()).unwrap();
    drop(growth);
    assert_eq!(contents(&stopped.world.path()), before);

    let id = SnapshotId {
        end_offset: stopped.image.provenance.last_offset + 1,
        epoch: 1,
    };
    let directory = out.join(METADATA_DIRECTORY);
    let name = id.path(Path::new("")).display().to_string();
    assert_eq!(files(&out), [METADATA_DIRECTORY, META_PROPERTIES_FILE]);
    assert_eq!(files(&directory), [name, "quorum-state".to_owned()]);

    let mut replay = Replay::new(Arc::new(MetadataImage::empty(
        stopped.image.static_config.clone(),
    )));
    snapshot_file::replay(&OsDisk::default(), &directory, id, &mut replay).unwrap();
    let mut expected = MetadataImage::clone(&stopped.image);
    assert!(expected.controllers.contains_key(&1));
    expected.controllers = Arc::default();
    let found = replay.image();
    assert_eq!(records_of(found).values, records_of(&expected).values);
    assert_eq!(found.features.level(METADATA_VERSION), 27);
    assert_eq!(found.features.level(KRAFT_VERSION), 1);
    assert_eq!(found.topic("orders").unwrap().partitions[1].leader, -1);
    assert!(found.brokers[&1].fenced && found.topic("gone").is_none());
    assert_eq!(found.next_producer_id, 1000);
}

#[test]
fn the_new_controller_is_the_only_voter_with_its_address_and_directory() {
    let stopped = Stopped::new("voter");
    stopped
        .read(3001)
        .unwrap()
        .write(&stopped.out(), &random())
        .unwrap();
    let meta = std::fs::read_to_string(stopped.out().join(META_PROPERTIES_FILE)).unwrap();
    let directory_id = random().uuid();
    let own = std::fs::read_to_string(stopped.world.path().join(META_PROPERTIES_FILE)).unwrap();
    let cluster_line = own.lines().find(|line| line.starts_with("cluster.id=")).unwrap();
    assert!(!own.contains(&directory_id.to_string()));
    assert_eq!(
        meta,
        format!("#\n{cluster_line}\ndirectory.id={directory_id}\nnode.id=3001\nversion=1\n")
    );
    let directory = stopped.out().join(METADATA_DIRECTORY);
    let state = std::fs::read_to_string(directory.join("quorum-state")).unwrap();
    assert_eq!(
        state,
        "{\"leaderId\":-1,\"leaderEpoch\":1,\"votedId\":-1,\"votedDirectoryId\":\"AAAAAAAAAAAAAAAAAAAAAA\",\"data_version\":1}"
    );
    let mut controls = Vec::new();
    let id = snapshot_file::list(&OsDisk::default(), &directory).unwrap()[0];
    each_batch(&OsDisk::default(), &directory, id, |batch| {
        for record in batch.records().filter(|_| batch.header.is_control()) {
            controls.push(format!("{:?}", ControlRecord::decode(&record.unwrap()).unwrap()));
        }
        Ok(())
    })
    .unwrap();
    assert!(controls[0].starts_with("SnapshotHeader"), "{controls:?}");
    assert_eq!(controls[1], "KRaftVersion { kraft_version: 1 }");
    for part in [
        "voter_id: 3001".to_owned(),
        format!("{directory_id:?}"),
        "name: \"CONTROLLER\", host: \"10.0.0.9\", port: 9093".to_owned(),
        "min_supported_version: 0, max_supported_version: 1".to_owned(),
    ] {
        assert!(controls[2].contains(&part), "no {part} in {}", controls[2]);
    }
    assert_eq!(controls[2].matches("voter_id").count(), 1);
    assert_eq!(controls[3..], ["SnapshotFooter"]);
}

#[test]
fn the_epoch_never_goes_back() {
    let mut stopped = Stopped::new("epoch");
    for _ in 0..3 {
        let controller = stopped.world.start();
        stopped = Stopped::by(stopped.world, controller);
    }
    let growth = stopped.read(3001).unwrap();
    assert_eq!(growth.last_epoch(), 4);
    growth.write(&stopped.out(), &random()).unwrap();
    let directory = stopped.out().join(METADATA_DIRECTORY);
    let state = quorum_state::QuorumState::read(&OsDisk::default(), &directory)
        .unwrap()
        .unwrap();
    assert_eq!((state.leader_id, state.leader_epoch), (-1, 4));
}

#[test]
fn the_node_itself_starts_again_after_it() {
    let mut stopped = Stopped::new("undo");
    stopped
        .read(3001)
        .unwrap()
        .write(&stopped.out(), &random())
        .unwrap();
    assert!(stopped.world.start().image().topic("orders").is_some());
}

#[test]
fn the_brokers_own_id_is_refused() {
    let stopped = Stopped::new("own-id");
    let problem = stopped.read(1).err().unwrap().to_string();
    assert!(problem.contains("is that of broker 1"), "{problem}");
}

#[test]
fn a_directory_in_use_is_refused() {
    let stopped = Stopped::new("in-use");
    let _lock = OsDisk::default()
        .lock(&stopped.world.path().join(LOCK_FILE))
        .unwrap();
    stopped.check_refused(&["another process uses it"]);
}

#[test]
fn a_node_that_was_not_stopped_cleanly_is_refused() {
    let mark = |stopped: &Stopped| stopped.world.path().join(CLEAN_SHUTDOWN_FILE);
    let stopped = Stopped::new("killed");
    std::fs::remove_file(mark(&stopped)).unwrap();
    stopped.check_refused(&["was not left by a clean stop"]);
    // A mark of an earlier run.
    write_clean_shutdown(&OsDisk::default(), &stopped.world.path(), 0).unwrap();
    stopped.check_refused(&["was not left by a clean stop"]);
}

#[test]
fn a_directory_that_no_broker_has_used_is_refused() {
    let stopped = Stopped::new("unused");
    std::fs::remove_dir_all(stopped.world.path()).unwrap();
    let problem = stopped.read(3001).err().unwrap().to_string();
    assert!(problem.contains("it has no meta.properties"), "{problem}");
    assert!(!stopped.world.path().exists());
    let formatted = Stopped {
        world: level_tests::formatted("formatted"),
        image: stopped.image,
    };
    formatted.check_refused(&["was never served"]);
}

#[test]
fn a_quorum_of_kraft_version_0_is_refused_with_the_way_out() {
    let mut world = level_tests::formatted_for("kraft-0", &[(METADATA_VERSION, 25)]);
    let controller = world.start();
    assert_eq!(controller.image().features.level(KRAFT_VERSION), 0);
    let stopped = Stopped::by(world, controller);
    stopped.check_refused(&["is of kraft.version 0", "upgrade --feature kraft.version=1"]);
}

#[test]
fn an_unfinished_change_of_the_metadata_is_refused() {
    let mut world = World::new("transaction");
    let mut controller = world.start();
    let mut records = RecordList::default();
    let begin = BeginTransactionRecord { name: Some("cut") };
    records.push(MetadataRecord::BeginTransaction(begin), 0);
    let batches = controller.log.batches(&records, NOW);
    controller.log.append(&batches, NOW).unwrap();
    controller.log.close().unwrap();
    write_clean_shutdown(&OsDisk::default(), &world.path(), controller.broker_epoch()).unwrap();
    let image = controller.image().clone();
    Stopped { world, image }.check_refused(&["ends within a change of the metadata"]);
}

#[test]
fn a_damaged_metadata_log_is_refused() {
    let stopped = Stopped::new("damaged");
    let segment = stopped.metadata_log().join("00000000000000000000.log");
    let mut bytes = std::fs::read(&segment).unwrap();
    // A byte after the header of the first batch.
    bytes[80] ^= 1;
    std::fs::write(&segment, bytes).unwrap();
    stopped.check_refused(&[
        "00000000000000000000.log is corrupt at position",
        "intact records follow",
    ]);
}

#[test]
fn a_log_that_no_topic_knows_is_refused() {
    let stopped = Stopped::new("unknown");
    let directory = stopped.world.path().join("strange-0");
    std::fs::create_dir(&directory).unwrap();
    let topic_id = Uuid([5; 16]);
    write_partition_metadata(&OsDisk::default(), &directory, topic_id).unwrap();
    stopped.check_refused(&["strange-0", "belongs to no topic", &topic_id.to_string()]);
}

#[test]
fn a_log_of_another_topic_under_a_known_name_is_refused() {
    let stopped = Stopped::new("other-id");
    let directory = stopped.world.path().join("orders-1");
    std::fs::create_dir(&directory).unwrap();
    write_partition_metadata(&OsDisk::default(), &directory, Uuid([5; 16])).unwrap();
    stopped.check_refused(&["orders-1 is damaged", "the directory belongs to topic id"]);
}

#[test]
fn a_missing_partition_is_refused() {
    let stopped = Stopped::new("gone");
    let path = stopped.world.path().join(RECOVERY_POINT_FILE);
    write_offsets(&OsDisk::default(), &path, &[(("orders".to_owned(), 1), 7)].into()).unwrap();
    stopped.check_refused(&[
        "orders-1 is damaged",
        "lists it with offset 7",
        "--accept-loss orders-1",
    ]);
}

#[test]
fn a_log_whose_records_are_gone_is_refused() {
    let stopped = Stopped::new("records-gone");
    let topic = stopped.image.topic("orders").unwrap().id;
    let directory = stopped.world.path().join("orders-0");
    std::fs::create_dir(&directory).unwrap();
    write_partition_metadata(&OsDisk::default(), &directory, topic).unwrap();
    std::fs::write(directory.join("00000000000000000000.log"), b"").unwrap();
    let path = stopped.world.path().join(RECOVERY_POINT_FILE);
    write_offsets(&OsDisk::default(), &path, &[(("orders".to_owned(), 0), 7)].into()).unwrap();
    stopped.check_refused(&["orders-0 is damaged", "everything below 7 was durable"]);
}

#[test]
fn nothing_is_overwritten() {
    let stopped = Stopped::new("out");
    let growth = stopped.read(3001).unwrap();
    let refused = |out: &Path| growth.write(out, &random()).unwrap_err().to_string();
    std::fs::write(stopped.out(), "mine").unwrap();
    assert!(refused(&stopped.out()).contains("is not a directory"));
    std::fs::remove_file(stopped.out()).unwrap();
    std::fs::create_dir(stopped.out()).unwrap();
    std::fs::write(stopped.out().join("notes"), "mine").unwrap();
    assert!(refused(&stopped.out()).contains("is not empty, there is notes in it"));
    assert_eq!(files(&stopped.out()), ["notes"]);
    std::fs::remove_file(stopped.out().join("notes")).unwrap();
    growth.write(&stopped.out(), &random()).unwrap();
    assert!(refused(&stopped.out()).contains("is not empty"));
}
