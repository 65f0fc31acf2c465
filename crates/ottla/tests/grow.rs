//! `ottla grow` as a process, on the directory of a broker that has stored records.

#![allow(clippy::unwrap_used, reason = "a failed step of a test is a failed test")]

mod support;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use ottla_broker::Broker;
use ottla_broker::properties::Properties;
use ottla_wire::records::builder::{BatchBuilder, BatchOptions};
use support::Writer;

/// A temporary directory, removed when dropped; its `data` is the broker's.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        let path = std::env::temp_dir().join(format!("ottla-grow-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Place(path.canonicalize().unwrap())
    }

    fn data(&self) -> PathBuf {
        self.0.join("data")
    }

    fn serve(&self, node_id: &str) -> Broker {
        let data = self.data();
        let settings = [
            ("node.id", node_id),
            ("listeners", "PLAINTEXT://127.0.0.1:0"),
            ("log.dirs", data.to_str().unwrap()),
            ("ottla.admin.listener", ""),
        ];
        let properties: Properties = settings
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect();
        Broker::start(&properties).unwrap()
    }

    /// Runs a broker with this node id, creates a topic of two partitions and stops it; returns its
    /// address too.
    fn stopped(name: &str, node_id: &str) -> (Place, String) {
        let place = Place::new(name);
        let broker = place.serve(node_id);
        let mut writer = Writer::connect(broker.address());
        writer.create_topic("orders", 2);
        writer.append("orders", 0, &batch());
        let address = broker.address().to_string();
        drop((writer, broker));
        (place, address)
    }

    fn grow(&self, more: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ottla"));
        command.current_dir(&self.0).args(["grow", "--log-dirs", "data"]);
        if !more.contains(&"--controller") {
            command.args(["--controller", "3001@10.0.0.9:9093"]);
        }
        command.args(["--out", "controller"]).args(more).output().unwrap()
    }

    /// Returns the error text of a refused run, and checks that no file was changed.
    fn refused(&self, more: &[&str], status: i32) -> String {
        let before = contents(&self.0);
        let output = self.grow(more);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(status), "{stderr}");
        assert_eq!(output.stdout, b"");
        assert_eq!(contents(&self.0), before);
        stderr
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn batch() -> Vec<u8> {
    let mut builder = BatchBuilder::new(BatchOptions::default());
    for value in [b"a", b"b", b"c"] {
        builder.append(1, None, Some(value), &[]);
    }
    builder.finish()
}

fn contents(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(contents(&path));
        } else {
            found.insert(path.clone(), std::fs::read(&path).unwrap());
        }
    }
    found
}

fn said(output: Output) -> String {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    assert_eq!(stderr, "");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_check_says_what_would_be_written_and_writes_nothing() {
    let (place, address) = Place::stopped("check", "7");
    let before = contents(&place.0);
    let text = said(place.grow(&["--check"]));
    for line in [
        &*format!("broker            7 at PLAINTEXT://{address}"),
        "levels            group.version=1 kraft.version=1 metadata.version=27 transaction.version=2",
        "needs             Apache Kafka 4.1 or newer",
        "would write       controller: controller 3001 at CONTROLLER://10.0.0.9:9093, the only voter",
        "Every check passed, nothing was written.",
    ] {
        assert!(
            text.lines().any(|found| found == line),
            "no line '{line}' in:\n{text}"
        );
    }
    assert!(text.contains("topics: 1, partitions: 2, up to offset"), "{text}");
    assert_eq!(contents(&place.0), before);
}

#[test]
fn the_next_steps_name_every_setting_and_path_and_the_broker_starts_again_before_them() {
    let (place, address) = Place::stopped("steps", "7");
    let before = contents(&place.data());
    let text = said(place.grow(&[]));
    assert_eq!(contents(&place.data()), before);
    let (home, data) = (place.0.display(), place.data());
    let data = data.display();
    for line in [
        "     process.roles=controller".to_owned(),
        "     node.id=3001".to_owned(),
        "     listeners=CONTROLLER://10.0.0.9:9093".to_owned(),
        format!("     log.dirs={home}/controller"),
        format!("   mv {data}/__cluster_metadata-0 {data}.metadata-of-ottla"),
        "     process.roles=broker".to_owned(),
        "     node.id=7".to_owned(),
        format!("     listeners=PLAINTEXT://{address}"),
        "     inter.broker.listener.name=PLAINTEXT".to_owned(),
        "     controller.quorum.bootstrap.servers=10.0.0.9:9093".to_owned(),
        "     listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT".to_owned(),
        format!("     log.dirs={data}"),
        format!("   bin/kafka-metadata-quorum.sh --bootstrap-server {address} describe --replication"),
    ] {
        assert!(
            text.lines().any(|found| found == line),
            "no line '{line}' in:\n{text}"
        );
    }
    let mut written: Vec<PathBuf> = contents(&place.0.join("controller")).into_keys().collect();
    written.retain(|path| path.extension().is_none_or(|extension| extension != "checkpoint"));
    let paths = [
        "controller/__cluster_metadata-0/quorum-state",
        "controller/meta.properties",
    ];
    assert_eq!(written, paths.map(|path| place.0.join(path)));
    assert!(place.refused(&[], 1).contains("controller is not empty"));

    let broker = place.serve("7");
    assert_eq!(Writer::connect(broker.address()).append("orders", 0, &batch()), 3);
}

#[test]
fn the_directory_of_a_running_or_killed_broker_is_refused_with_advice() {
    let place = Place::new("running");
    let broker = place.serve("1");
    let problem = place.refused(&[], 1);
    assert!(
        problem.contains("data: another process uses it; stop the broker with SIGTERM first"),
        "{problem}"
    );
    // A copy made while it runs is what kill -9 would leave.
    let killed = Place::new("killed");
    for (path, bytes) in contents(&place.0) {
        let copy = killed.0.join(path.strip_prefix(&place.0).unwrap());
        std::fs::create_dir_all(copy.parent().unwrap()).unwrap();
        std::fs::write(copy, bytes).unwrap();
    }
    drop(broker);
    let problem = killed.refused(&[], 1);
    assert!(
        problem.contains("data was not left by a clean stop: start ottla serve"),
        "{problem}"
    );
}

#[test]
fn a_partition_that_would_be_refused_at_a_start_is_refused() {
    let (place, _) = Place::stopped("damaged", "1");
    let segment = place.data().join("orders-0/00000000000000000000.log");
    std::fs::remove_file(&segment).unwrap();
    let problem = place.refused(&["--check"], 1);
    for part in [
        "data/orders-0 is damaged",
        "restore the file",
        "--accept-loss orders-0",
    ] {
        assert!(problem.contains(part), "{problem}");
    }
}

#[test]
fn the_controllers_directory_is_not_made_within_the_brokers() {
    let (place, _) = Place::stopped("within", "1");
    std::os::unix::fs::symlink(place.data(), place.0.join("link")).unwrap();
    for out in ["data/controller", "link/a/b", "data"] {
        let output = Command::new(env!("CARGO_BIN_EXE_ottla"))
            .current_dir(&place.0)
            .args([
                "grow",
                "--log-dirs",
                "data",
                "--controller",
                "3001@h:9093",
                "--out",
                out,
            ])
            .output()
            .unwrap();
        let problem = String::from_utf8(output.stderr).unwrap();
        assert!(
            problem.contains("is inside the broker's log directory"),
            "{problem}"
        );
        assert_eq!(output.status.code(), Some(1));
    }
}

#[test]
fn usage_errors_have_status_2_and_an_id_that_is_taken_is_refused() {
    let (place, _) = Place::stopped("usage", "7");
    let problem = place.refused(&["--controller", "7@10.0.0.9:9093"], 1);
    assert!(problem.contains("is that of broker 7"), "{problem}");
    let problem = place.refused(&["--controller", "3001@10.0.0.9"], 2);
    assert!(
        problem.contains("the address '10.0.0.9' has no port"),
        "{problem}"
    );
    let problem = place.refused(&["--override", "node.id=3"], 1);
    assert!(problem.contains("belongs to node 7, this is node 3"), "{problem}");
    let problem = place.refused(&["--override", "num.partitions=many"], 2);
    assert!(problem.contains("num.partitions"), "{problem}");
}
