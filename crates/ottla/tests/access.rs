//! A secured broker as a process, and the commands that reach it with `--command-config` and
//! `--admin-token-file`: who is allowed what, and what the doctor says of a client that is not.

#![allow(clippy::unwrap_used, reason = "a failed step of a test is a failed test")]

mod support;

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use ottla_broker::broker::TemporaryDirectory;
use ottla_client::Error;
use ottla_client::admin::{Acl, Admin, NewTopic};
use ottla_client::config::Config;
use ottla_client::producer::{Producer, Record};
use ottla_wire::acl::{Operation, ResourceType};
use ottla_wire::error_code::ErrorCode;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const HANG: Duration = Duration::from_secs(60);

/// A broker with an authorizer and the users `admin`, who may do everything, and `app`.
struct Server {
    child: Child,
    /// Of the listener with SASL.
    address: String,
    admin: String,
    directory: TemporaryDirectory,
}

impl Server {
    fn start() -> Server {
        let directory = TemporaryDirectory::create().unwrap();
        let jaas = "listener.name.sasl_plaintext.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule \
                    required user_admin=\"admin-secret\" user_app=\"app-secret\";";
        let mut child = Command::new(env!("CARGO_BIN_EXE_ottla"))
            .arg("serve")
            .args([
                "--override",
                &format!("log.dirs={}", directory.path().join("data").display()),
            ])
            .args(["--override", "listeners=SASL_PLAINTEXT://127.0.0.1:0"])
            .args(["--override", "security.inter.broker.protocol=SASL_PLAINTEXT"])
            .args(["--override", "sasl.enabled.mechanisms=PLAIN"])
            .args(["--override", jaas])
            .args([
                "--override",
                "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            ])
            .args(["--override", "super.users=User:admin"])
            .args(["--override", "ottla.admin.listener=127.0.0.1:0"])
            .env("OTTLA_LOG", "info,ottla::authorizer=debug")
            .stdout(Stdio::piped())
            .stderr(File::create(directory.path().join("log")).unwrap())
            .spawn()
            .unwrap();
        let mut ready = String::new();
        BufReader::new(child.stdout.as_mut().unwrap())
            .read_line(&mut ready)
            .unwrap();
        let word = |name: &str| {
            let rest = ready.split(name).nth(1).unwrap_or_else(|| panic!("{ready}"));
            rest.split([' ', ',', '\n']).next().unwrap().to_owned()
        };
        Server {
            address: word("SASL_PLAINTEXT://"),
            admin: word("admin=http://"),
            child,
            directory,
        }
    }

    fn config(&self, user: &str) -> Config {
        Config::new()
            .set("bootstrap.servers", &self.address)
            .set("security.protocol", "SASL_PLAINTEXT")
            .set("sasl.mechanism", "PLAIN")
            .set("sasl.username", user)
            .set("sasl.password", format!("{user}-secret"))
    }

    /// A file of `--command-config`, in Kafka's own words.
    fn command_config(&self, user: &str) -> PathBuf {
        let path = self.directory.path().join(format!("{user}.properties"));
        let text = format!(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n\
             sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \
             username=\"{user}\" password=\"{user}-secret\";\n"
        );
        std::fs::write(&path, text).unwrap();
        path
    }

    fn token_file(&self) -> PathBuf {
        self.directory.path().join("data/ottla.admin.token")
    }

    /// Whether the log has a line with all of these.
    fn has_logged(&self, parts: &[&str]) -> bool {
        let log = std::fs::read_to_string(self.directory.path().join("log")).unwrap();
        log.lines()
            .any(|line| parts.iter().all(|part| line.contains(part)))
    }

    /// Runs a command with the cluster's address and the settings of `user`.
    fn run_as(&self, user: &str, arguments: &[&str]) -> Output {
        let config = self.command_config(user);
        let servers = ["--bootstrap-server", &self.address];
        run(&[arguments, &servers, &["--command-config", text(&config)]].concat())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let _ = self.child.wait();
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ottla"))
        .args(arguments)
        .output()
        .unwrap()
}

/// Returns the standard output of a command that ends with this status.
fn said(output: &Output, status: i32) -> String {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{stderr}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Returns the standard error of a command that gives no answer.
fn refused(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn produce(server: &Server) -> Result<i64, Error> {
    let config = server
        .config("app")
        .set("client.id", "shop")
        .set("enable.idempotence", "false");
    let producer = Producer::new(&config).unwrap();
    let record = Record {
        topic: "orders",
        value: Some(b"one"),
        ..Record::default()
    };
    producer.send(&record)?.wait().map(|sent| sent.offset)
}

fn create_topic(admin: &Admin) {
    let created = admin
        .create_topics(vec![NewTopic::new("orders").partitions(1)])
        .wait();
    created.unwrap()["orders"].as_ref().unwrap();
}

const WRITE: [&str; 8] = [
    "access",
    "explain",
    "--principal",
    "User:app",
    "--operation",
    "write",
    "--topic",
    "orders",
];

#[test]
fn what_explain_says_is_what_the_broker_does() {
    let server = Server::start();
    let admin = Admin::new(&server.config("admin")).unwrap();
    create_topic(&admin);
    let listed = said(&server.run_as("admin", &["access", "list"]), 0);
    assert_eq!(listed.lines().count(), 1, "{listed}");
    let denied = said(&server.run_as("admin", &WRITE), 1);
    let add = format!(
        "kafka-acls.sh --command-config {} --bootstrap-server {} --add --allow-principal User:app --operation Write --topic orders",
        server.command_config("admin").display(),
        server.address
    );
    assert_eq!(
        denied,
        format!(
            "denied: User:app Write Topic orders\nbecause the resource has no ACL\nwhat would allow it:\n  {add}\n"
        )
    );
    assert!(matches!(
        produce(&server),
        Err(Error::Broker {
            code: ErrorCode::TopicAuthorizationFailed,
            ..
        })
    ));
    let write = Acl::allowing(
        "User:app",
        Operation::Write.code(),
        ResourceType::Topic.code(),
        "orders",
    );
    assert_eq!(admin.create_acls(vec![write]).wait(), Ok(vec![Ok(())]));
    let document = said(
        &server.run_as("admin", &[&WRITE[..], &["--format", "json"]].concat()),
        0,
    );
    let document: Value = serde_json::from_str(&document).unwrap();
    assert_eq!(document["allowed"], true);
    assert_eq!(document["reason"], "allowing_acl");
    assert_eq!(document["acl"]["operation"], "Write");
    assert_eq!(document["notes"].as_array().unwrap().len(), 0, "{document}");
    assert_eq!(produce(&server), Ok(0));
    let listed = said(
        &server.run_as("admin", &["access", "list", "--principal", "User:app"]),
        0,
    );
    let row: Vec<&str> = listed.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(
        row,
        ["Topic", "orders", "Literal", "User:app", "*", "Write", "Allow"]
    );
    let super_user = [
        "access",
        "explain",
        "--principal",
        "User:admin",
        "--operation",
        "Alter",
        "--cluster",
    ];
    assert!(said(&server.run_as("admin", &super_user), 0).contains("one of super.users"));
    // A producer that may not describe the topic does not try to write.
    assert!(server.has_logged(&["denied", "User:app", "Describe", "orders", "no ACL"]));
    assert!(server.has_logged(&["allowed", "User:app", "Write", "orders", "is_super_user=false"]));
    // Seeing ACLs needs a permission of its own.
    let error = refused(&server.run_as("app", &WRITE));
    assert!(error.contains("CLUSTER_AUTHORIZATION_FAILED"), "{error}");
    let wrong = [
        "access",
        "explain",
        "--principal",
        "app",
        "--operation",
        "write",
        "--topic",
        "t",
    ];
    assert!(refused(&server.run_as("admin", &wrong)).contains("as in User:app"));
}

#[test]
fn the_consoles_page_explains_as_the_command_does() {
    let server = Server::start();
    create_topic(&Admin::new(&server.config("admin")).unwrap());
    let told = said(
        &server.run_as("admin", &[&WRITE[..], &["--format", "json"]].concat()),
        1,
    );
    let told: Value = serde_json::from_str(&told).unwrap();
    let token = std::fs::read_to_string(server.token_file()).unwrap();
    let authorization = format!("Authorization: Bearer {}\r\n", token.trim());
    let explained = |question: &str| -> Value {
        let path = format!("/access.json?{question}");
        let (head, body) = support::page(server.admin.parse().unwrap(), &path, &authorization);
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        serde_json::from_str(&body).unwrap()
    };
    let page = explained("principal=User:app&operation=Write&type=Topic&name=orders");
    for field in ["allowed", "notes"] {
        assert_eq!(page["explanation"][field], told[field], "{page}");
    }
    // The page does not know with which settings its reader reaches the cluster.
    let option = format!(" --command-config {}", server.command_config("admin").display());
    let commands = told["commands"].as_array().unwrap().iter();
    let commands: Vec<String> = commands
        .map(|command| command.as_str().unwrap().replace(&option, ""))
        .collect();
    assert_eq!(page["explanation"]["commands"], serde_json::json!(commands));
    assert_eq!(page["explanation"]["because"], "the resource has no ACL");
    let page = explained("principal=User:admin&operation=Alter&type=Cluster");
    assert_eq!(page["explanation"]["because"], "it is one of super.users");
    let page = explained("principal=app&operation=Write&type=Topic&name=orders");
    let wrong = page["not_explained"].as_str().unwrap();
    assert!(wrong.contains("as in User:app"), "{wrong}");
}

#[test]
fn a_denied_client_gets_a_verdict_with_the_command_that_allows_it() {
    let server = Server::start();
    create_topic(&Admin::new(&server.config("admin")).unwrap());
    // Without the token only health is told.
    let error = refused(&run(&["doctor", "--admin", &server.admin]));
    assert!(error.contains("--admin-token-file"), "{error}");
    let token = server.token_file();
    let with_token = ["--admin", &server.admin, "--admin-token-file", text(&token)];
    let began = Instant::now();
    // Two readings of the broker's counts are needed.
    let client = loop {
        assert!(produce(&server).is_err());
        let output = run(&[&["doctor", "--format", "json"], &with_token[..]].concat());
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        let clients = document["clients"].as_array().unwrap();
        let denied = clients.iter().find(|client| client["verdict"] == "DENIED");
        if let Some(denied) = denied {
            break denied.clone();
        }
        assert!(began.elapsed() < HANG, "{document:#}");
        std::thread::sleep(Duration::from_millis(500));
    };
    assert_eq!(client["client_id"], "shop");
    let summary = client["summary"].as_str().unwrap();
    assert!(summary.contains("User:app may not "), "{summary}");
    assert!(summary.contains(" on Topic orders"), "{summary}");
    let set = client["recommendation"]["set"].as_str().unwrap();
    assert!(
        set.contains("--add --allow-principal User:app --operation "),
        "{set}"
    );
    assert!(set.ends_with(" --topic orders"), "{set}");
}

#[test]
fn every_command_reaches_a_secured_broker() {
    let server = Server::start();
    create_topic(&Admin::new(&server.config("admin")).unwrap());
    let token = server.token_file();
    for command in [&["tenants"][..], &["quota", "show"], &["doctor", "promises"]] {
        let with_token = [command, &["--admin-token-file", text(&token)]].concat();
        said(&run(&[&with_token[..], &["--admin", &server.admin]].concat()), 0);
        let error = refused(&run(&[command, &["--admin", &server.admin]].concat()));
        assert!(error.contains("status 401"), "{command:?}: {error}");
        // Port 0 is a setting that names no address; until there the broker was reached.
        let error = refused(&server.run_as("admin", &with_token));
        assert!(error.contains("has port 0"), "{command:?}: {error}");
    }
    let topic = [
        "--topic",
        "orders",
        "--num-records",
        "10",
        "--record-size",
        "10",
        "--throughput",
        "-1",
    ];
    let perf = server.run_as("admin", &[&["perf", "produce"], &topic[..]].concat());
    assert!(said(&perf, 0).contains("10 records sent"));
}
