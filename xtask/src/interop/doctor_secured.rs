//! `ottla doctor collect` behind a secured Apache Kafka with the plug-in: clients authenticate over
//! TLS, ACLs decide, and the collector asks the cluster as a user of its own with the rights that
//! `docs/guides/doctor.md` names, and no others.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use ottla_client::admin::Acl;
use ottla_wire::acl::{CLUSTER_NAME, Operation, ResourceType, WILDCARD};

use super::doctor::{CLIENT, Collector, Plugin, Producer, TOPIC, subscribe, verdict};
use super::security::broker::{Broker, admin};
use super::security::{create_topic, of_scram};
use super::server::{Programs, Target};
use super::table::Table;
use super::toolchain;

/// The one that writes, the one that collects, and one without rights.
const USERS: [&str; 3] = ["writer", "collector", "stranger"];
const PASSWORD: &str = "secret";
const LISTENER: &str = "SASLSSL";
/// What a collector says before anything that it does not get.
const COMPLAINT: &str = "ottla doctor collect: the cluster: ";
/// Longer than the collector's interval of ten seconds, twice: everything has been asked.
const ASKED: Duration = Duration::from_secs(25);
const HANG: Duration = Duration::from_secs(120);

pub fn run(table: &mut Table, programs: &Programs) -> Result<()> {
    println!("doctor: a secured Apache Kafka");
    let plugin = Plugin::prepare()?;
    let programs = Programs {
        kafka: programs.kafka.with_jar(&plugin.jar),
        ottla: programs.ottla.clone(),
    };
    let stage = Stage::set()?;
    let server = stage.broker.start(&programs, Target::Kafka)?;
    stage.permit()?;
    subscribe(&programs.kafka, &stage.broker.site.bootstrap())?;
    let mut add = |name: &str, outcome: Result<()>| {
        let outcome = outcome.map_err(|error| format!("{error:#}"));
        println!(
            "doctor: {name}: {}",
            outcome.as_ref().err().map_or("ok", String::as_str)
        );
        table.add_other(format!("doctor: {name}"), outcome);
    };
    let ottla = programs
        .ottla
        .as_deref()
        .context("the ottla binary was not built")?;
    let address = stage.broker.address(LISTENER);
    let mut producer = Producer::start_with(&programs.kafka, &address, &stage.file("writer"))?;
    add("a client of a secured Apache Kafka writes", writes(&mut producer));
    add(
        "a client of a secured Apache Kafka gets a verdict, and its collector all it asks for",
        stage.collected(ottla),
    );
    add(
        "a collector without rights says what it may not see",
        stage.complaint(ottla, "stranger", "AUTHORIZATION_FAILED"),
    );
    add(
        "a collector with a wrong password says so",
        stage.complaint(ottla, "wrong", "invalid credentials"),
    );
    server.stop()
}

fn writes(producer: &mut Producer) -> Result<()> {
    let (records_per_second, _) = producer.next_report()?;
    ensure!(records_per_second > 0.0, "it stands still");
    Ok(())
}

/// A secured site whose brokers report to a collector.
struct Stage {
    broker: Broker,
    collector_port: u16,
}

impl Stage {
    fn set() -> Result<Stage> {
        let stage = Stage {
            broker: Broker::create("doctor-secured")?,
            collector_port: toolchain::free_port()?,
        };
        let mut properties = OpenOptions::new()
            .append(true)
            .open(stage.broker.site.properties())?;
        writeln!(
            properties,
            "metric.reporters=ottla.telemetry.TelemetryExporter\n\
             ottla.telemetry.collector=http://127.0.0.1:{}",
            stage.collector_port
        )?;
        for user in USERS {
            stage.write_config(user, user, PASSWORD)?;
        }
        stage.write_config("wrong", "collector", "wrong")?;
        Ok(stage)
    }

    /// The file of `--command-config`, for our commands and for Kafka's.
    fn file(&self, name: &str) -> PathBuf {
        self.broker.site.home().join(format!("{name}.properties"))
    }

    fn write_config(&self, name: &str, user: &str, password: &str) -> Result<()> {
        let text = format!(
            "security.protocol=SASL_SSL\nssl.truststore.type=PEM\nssl.truststore.location={}\n\
             sasl.mechanism=SCRAM-SHA-512\n{}\n",
            self.broker.authority.file.display(),
            of_scram(user, password)
        );
        fs::write(self.file(name), text).with_context(|| self.file(name).display().to_string())
    }

    fn permit(&self) -> Result<()> {
        for user in USERS {
            self.broker.add_user(user, PASSWORD)?;
        }
        create_topic(&self.broker.site, TOPIC)?;
        let allow = |user: &str, operation: Operation, resource_type: ResourceType, name: &str| {
            let (operation, resource_type) = (operation.code(), resource_type.code());
            Acl::allowing(format!("User:{user}"), operation, resource_type, name)
        };
        let acls = vec![
            allow("writer", Operation::Write, ResourceType::Topic, TOPIC),
            // Reading includes describing.
            allow("collector", Operation::Read, ResourceType::Topic, WILDCARD),
            allow("collector", Operation::Describe, ResourceType::Group, WILDCARD),
            allow(
                "collector",
                Operation::Describe,
                ResourceType::Cluster,
                CLUSTER_NAME,
            ),
            allow(
                "collector",
                Operation::DescribeConfigs,
                ResourceType::Cluster,
                CLUSTER_NAME,
            ),
        ];
        for result in admin(&self.broker.site)?.create_acls(acls).wait()? {
            result.context("an ACL")?;
        }
        Ok(())
    }

    /// Starts a collector as a user; what it says goes to a file.
    fn collector(&self, ottla: &Path, port: u16, user: &str) -> Result<(Collector, PathBuf)> {
        let said = self.broker.site.home().join(format!("{user}.stderr"));
        let more = [
            "--bootstrap-server",
            &self.broker.address(LISTENER),
            "--command-config",
            &self.file(user).display().to_string(),
        ];
        Ok((Collector::start_with(ottla, port, &more, Some(&said))?, said))
    }

    fn collected(&self, ottla: &Path) -> Result<()> {
        let began = Instant::now();
        let (collector, said) = self.collector(ottla, self.collector_port, "collector")?;
        verdict(&collector)?;
        let snapshot = collector.snapshot(CLIENT, &self.broker.site.home().join("case.json"))?;
        ensure!(
            snapshot["client"]["principal"] == "User:writer",
            "{}",
            snapshot["client"]
        );
        std::thread::sleep(ASKED.saturating_sub(began.elapsed()));
        let said = fs::read_to_string(said)?;
        ensure!(!said.contains(COMPLAINT), "it says: {said}");
        Ok(())
    }

    /// Waits until a collector with the user's file has said `expected`.
    fn complaint(&self, ottla: &Path, user: &str, expected: &str) -> Result<()> {
        let port = toolchain::free_port()?;
        let (_collector, said) = self.collector(ottla, port, user)?;
        let began = Instant::now();
        while began.elapsed() < HANG {
            let text = fs::read_to_string(&said)?;
            let mut complaints = text.lines().filter(|line| line.starts_with(COMPLAINT));
            if complaints.any(|line| line.contains(expected)) {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        bail!("no {expected:?} in: {}", fs::read_to_string(&said)?)
    }
}
