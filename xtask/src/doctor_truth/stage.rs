//! A broker with its ways to clients, and its doctor.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use ottla_client::admin::{
    Acl, Admin, AlterConfig, ConfigResource, ConfigResourceKind, NewTopic, QuotaAlteration, QuotaEntity,
};
use ottla_client::config::Config;
use ottla_lab::disk::cold::drop_from_cache;
use ottla_lab::disk::read_limit::ReadLimit;
use ottla_lab::doctor::observe::writers::silent_name;
use ottla_lab::link::namespace::Namespace;
use ottla_lab::scenario::model::LinkSpec;
use serde_json::Value;

use super::regimes::{Around, Way};
use crate::interop::doctor::{Collector, Plugin};
use crate::interop::server::{Programs, Server, Site, Target};
use crate::interop::toolchain;

/// With the shortest interval that both brokers accept and clients keep to.
const SUBSCRIPTION: [(&str, &str); 2] = [
    ("interval.ms", "1000"),
    (
        "metrics",
        "org.apache.kafka.producer.,org.apache.kafka.consumer.,ottla.",
    ),
];

/// The principal of all clients here.
const CLIENTS: &str = "User:ANONYMOUS";
/// A resource type and operations of ACLs.
const TOPIC: i8 = 2;
const ALL: i8 = 2;
const DESCRIBE: i8 = 8;

struct Distance {
    way: Way,
    namespace: Namespace,
    port: u16,
}

pub struct Stage {
    pub target: Target,
    pub admin: Admin,
    site: Site,
    server: Server,
    distances: Vec<Distance>,
    ottla: PathBuf,
    doctor_port: u16,
    /// Beside Apache Kafka.
    collector: Option<Collector>,
}

impl Stage {
    /// - `number`: tells it apart from other stages of the same broker.
    pub fn build(programs: &Programs, target: Target, number: usize) -> Result<Stage> {
        let link = |round_trip_ms, bytes_per_second| LinkSpec {
            round_trip_ms,
            bytes_per_second,
            ..LinkSpec::default()
        };
        let mut distances = Vec::new();
        for (way, spec) in [
            (Way::Near, link(4.0, 0)),
            (Way::Far, link(40.0, 0)),
            (Way::Narrow, link(4.0, 1_000_000)),
            (Way::Broad, link(4.0, 10_000_000)),
            (Way::FarNarrow, link(40.0, 1_000_000)),
        ] {
            let namespace =
                Namespace::create(&spec).context("a network namespace (needs root, ip and /dev/net/tun)")?;
            distances.push(Distance {
                way,
                namespace,
                port: toolchain::free_port()?,
            });
        }
        let doctor_port = toolchain::free_port()?;
        let ottla = programs.ottla.clone().context("the ottla binary was not built")?;
        let kafka = match target {
            Target::Kafka => programs.kafka.with_jar(&Plugin::prepare()?.jar),
            Target::Ottla => programs.kafka.clone(),
        };
        let with_plugin = Programs {
            kafka,
            ottla: Some(ottla.clone()),
        };
        let site = site(target, number, &distances, &settings(target, doctor_port))?;
        let listener = format!("ottla.admin.listener=127.0.0.1:{doctor_port}");
        let server = site.start_with(&with_plugin, target, &[&listener])?;
        // It asks Kafka for members, lag and quotas, which no client pushes.
        let bootstrap = server.bootstrap();
        let collector = match target {
            Target::Kafka => Some(Collector::start(&ottla, doctor_port, Some(&bootstrap))?),
            Target::Ottla => None,
        };
        let admin = Admin::new(&Config::new().set("bootstrap.servers", &bootstrap))?;
        let stage = Stage {
            target,
            admin,
            site,
            server,
            distances,
            ottla,
            doctor_port,
            collector,
        };
        stage.ask_for_metrics(true)?;
        Ok(stage)
    }

    /// Makes or removes the only subscription to clients' metrics.
    fn ask_for_metrics(&self, is_wanted: bool) -> Result<()> {
        let change = |(key, value): (&str, &str)| match is_wanted {
            true => AlterConfig::set(key, value),
            false => AlterConfig::delete(key),
        };
        let subscription = ConfigResource::new(ConfigResourceKind::ClientMetrics, "doctor");
        let changes = BTreeMap::from([(subscription, SUBSCRIPTION.map(change).to_vec())]);
        for result in self
            .admin
            .incremental_alter_configs(changes)
            .wait()?
            .into_values()
        {
            result.context("the subscription to clients' metrics")?;
        }
        Ok(())
    }

    pub fn end(self) -> Result<()> {
        self.server.stop()?;
        drop(self.collector);
        self.site.remove();
        Ok(())
    }

    pub fn home(&self) -> PathBuf {
        self.site.home().to_owned()
    }

    pub fn local(&self) -> String {
        self.server.bootstrap()
    }

    /// The address by which clients reach the broker on this way, and their program in its place.
    pub fn client(&self, way: Way, program: Command) -> (String, Command) {
        let Some(distance) = self.distances.iter().find(|distance| distance.way == way) else {
            return (self.local(), program);
        };
        let inside = distance.namespace.client_address();
        let mut command = distance
            .namespace
            .command(&program.get_program().to_string_lossy());
        command.args(program.get_args());
        (format!("{inside}:{}", distance.port), command)
    }

    pub fn create_topic(&self, name: &str, partitions: i32) -> Result<()> {
        let topic = NewTopic::new(name).partitions(partitions);
        for result in self.admin.create_topics(vec![topic]).wait()?.into_values() {
            result?;
        }
        Ok(())
    }

    pub fn delete_topic(&self, name: &str) {
        // The directory goes with the stage in any case.
        let _ = self.admin.delete_topics(vec![name.to_owned()]).wait();
    }

    /// Puts around a client what its regime says, until the returned value is dropped.
    pub fn surround(&self, around: Around, topic: &str, client_id: &str) -> Result<Surroundings<'_>> {
        let (mut burners, mut limit) = (Vec::new(), None);
        let partition = self.site.directory.join(format!("{topic}-0"));
        match around {
            Around::Nothing => {}
            Around::Quota(key, value) => self.alter_quota(client_id, key, Some(value))?,
            Around::NoMetrics => self.ask_for_metrics(false)?,
            Around::Denied => self.allow(topic, &[("User:other", ALL), (CLIENTS, DESCRIBE)])?,
            Around::ColdDisk(bytes_per_second) => {
                let why = |why| anyhow::anyhow!("this machine cannot limit what a process reads: {why}");
                limit = Some(ReadLimit::begin(self.server.pid(), &partition, bytes_per_second).map_err(why)?);
                ensure!(drop_from_cache(&partition)? > 0, "nothing is stored");
            }
            Around::BusyHost => {
                let processors = std::thread::available_parallelism()?.get();
                for _ in 0..2 * processors {
                    let mut command = Command::new("sh");
                    burners.push(command.args(["-c", "while :; do :; done"]).spawn()?);
                }
            }
        }
        Ok(Surroundings {
            stage: self,
            around,
            topic: topic.to_owned(),
            client_id: client_id.to_owned(),
            burners,
            limit,
            partition,
        })
    }

    /// Adds ACLs of a topic. The first one closes it to all that none of them names.
    fn allow(&self, topic: &str, principals: &[(&str, i8)]) -> Result<()> {
        let acl = |&(principal, operation): &(&str, i8)| Acl::allowing(principal, operation, TOPIC, topic);
        for result in self
            .admin
            .create_acls(principals.iter().map(acl).collect())
            .wait()?
        {
            result.context("an ACL of the topic")?;
        }
        Ok(())
    }

    fn alter_quota(&self, client_id: &str, key: &str, value: Option<f64>) -> Result<()> {
        let entity = QuotaEntity::from([("client-id".to_owned(), Some(client_id.to_owned()))]);
        let change = QuotaAlteration::new(entity);
        let change = match value {
            Some(value) => change.set(key, value),
            None => change.remove(key),
        };
        for result in self.admin.alter_client_quotas(vec![change]).wait()?.into_values() {
            result?;
        }
        Ok(())
    }

    /// What the doctor says of a client, or of the producers of `topic` that push nothing: beside
    /// Apache Kafka their client ids are not known.
    pub fn diagnosis(&self, client_id: &str, role: &str, topic: &str) -> Result<Option<Value>> {
        let mut command = Command::new(&self.ottla);
        let place = if self.collector.is_some() {
            "--collector"
        } else {
            "--admin"
        };
        command.args([
            "doctor",
            place,
            &format!("127.0.0.1:{}", self.doctor_port),
            "--format",
            "json",
        ]);
        if self.collector.is_none() {
            // Made by the broker, because it has an authorizer.
            command.arg("--admin-token-file");
            command.arg(self.site.directory.join("ottla.admin.token"));
        }
        let output = command.output().context("cannot start ottla doctor")?;
        ensure!(
            matches!(output.status.code(), Some(0 | 1)),
            "ottla doctor: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        let examination: Value = serde_json::from_slice(&output.stdout)?;
        let clients = examination["clients"].as_array().context("clients")?;
        let named = |name: &str| {
            let is_it = |client: &&Value| client["client_id"] == name && client["role"] == role;
            clients.iter().find(is_it)
        };
        let found = named(client_id).or_else(|| named(&silent_name(topic)));
        Ok(found.cloned())
    }
}

/// The regime's surroundings; undone when dropped.
pub struct Surroundings<'a> {
    stage: &'a Stage,
    around: Around,
    topic: String,
    client_id: String,
    burners: Vec<std::process::Child>,
    limit: Option<ReadLimit>,
    partition: PathBuf,
}

impl Drop for Surroundings<'_> {
    fn drop(&mut self) {
        for burner in &mut self.burners {
            let _ = burner.kill();
            let _ = burner.wait();
        }
        match self.around {
            Around::Quota(key, _) => {
                let _ = self.stage.alter_quota(&self.client_id, key, None);
            }
            Around::NoMetrics => {
                let asked = self.stage.ask_for_metrics(true);
                asked.expect("the clients that follow are asked again");
            }
            Around::Denied => {
                let opened = self.stage.allow(&self.topic, &[(CLIENTS, ALL)]);
                opened.expect("the topic is open to the clients that follow");
            }
            Around::ColdDisk(_) => {
                drop(self.limit.take());
                read_into_cache(&self.partition);
            }
            Around::Nothing | Around::BusyHost => {}
        }
    }
}

/// Reads a partition's files, so that the page cache has them.
fn read_into_cache(partition: &Path) {
    for entry in std::fs::read_dir(partition).into_iter().flatten().flatten() {
        let file = std::fs::File::open(entry.path());
        // What cannot be read stays cold, and the remedy does not hold.
        let _ = file.and_then(|mut file| std::io::copy(&mut file, &mut std::io::sink()));
    }
}

/// What is particular to the brokers here.
fn settings(target: Target, doctor_port: u16) -> Vec<(&'static str, String)> {
    let more = match target {
        Target::Kafka => vec![
            ("metric.reporters", "ottla.telemetry.TelemetryExporter".to_owned()),
            (
                "ottla.telemetry.collector",
                format!("http://127.0.0.1:{doctor_port}"),
            ),
        ],
        Target::Ottla => vec![
            // A topic without ACLs is open to all, as it is without an authorizer.
            (
                "authorizer.class.name",
                "org.apache.kafka.metadata.authorizer.StandardAuthorizer".to_owned(),
            ),
            ("allow.everyone.if.no.acl.found", "true".to_owned()),
            // It asks by subscription alone, as Apache Kafka does.
            ("ottla.telemetry.default.interval.ms", "0".to_owned()),
        ],
    };
    // A regime's topics are created; the one that does not exist stays so.
    [vec![("auto.create.topics.enable", "false".to_owned())], more].concat()
}

/// A directory whose broker listens on loopback and at the near end of every distance.
fn site(target: Target, number: usize, distances: &[Distance], more: &[(&str, String)]) -> Result<Site> {
    let name = match target {
        Target::Ottla => "doctor-truth-ottla",
        Target::Kafka => "doctor-truth-kafka",
    };
    let site = Site::create(&format!("{name}-{number}"), &[])?;
    let plain = std::fs::read_to_string(site.properties())?;
    let listeners: String = distances
        .iter()
        .map(|distance| {
            let address = distance.namespace.client_address();
            format!(",{:?}://{address}:{}", distance.way, distance.port).to_uppercase()
        })
        .collect();
    let protocols: String = distances
        .iter()
        .map(|distance| format!(",{:?}:PLAINTEXT", distance.way).to_uppercase())
        .collect();
    let mut properties = String::new();
    for line in plain.lines() {
        properties.push_str(line);
        if line.starts_with("listeners=") || line.starts_with("advertised.listeners=") {
            properties.push_str(&listeners);
        } else if line.starts_with("listener.security.protocol.map=") {
            properties.push_str(&protocols);
        }
        properties.push('\n');
    }
    for (key, value) in more {
        properties.push_str(&format!("{key}={value}\n"));
    }
    site.beside("truth", &site.directory, site.port, &properties)
}
