//! A cluster under measurement: what it is, and the topics that a point needs on it.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use ottla_client::Error;
use ottla_client::admin::{Admin, ConfigEntries, ConfigResource, ConfigResourceKind, NewTopic};
use ottla_client::config::Config;
use ottla_wire::error_code::ErrorCode;

use super::error::BenchError;
use crate::ask::Door;
use crate::report::Target;
use crate::scenario::model::{Security, TopicSpec};

/// How a cluster is reached, and what is known by whatever started it.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// For people: `Ottla 0.1.0, embedded`.
    pub name: String,
    pub bootstrap: String,
    /// Kafka's keys for security and the like, for every client.
    pub settings: Vec<(String, String)>,
    /// Other listeners of the same broker, for the points of a scenario that ask for them.
    pub listeners: BTreeMap<Security, Listener>,
    /// Ottla's admin address.
    pub admin: Option<Door>,
    pub is_embedded: bool,
    /// A broker process on this machine that may be observed.
    pub process: Option<u32>,
}

/// One listener of a broker, and Kafka's keys for its clients.
#[derive(Clone, Debug, Default)]
pub struct Listener {
    pub bootstrap: String,
    pub settings: Vec<(String, String)>,
}

impl Access {
    /// The same cluster by its listener with this security, if it has one.
    pub fn at(&self, security: Security) -> Access {
        let mut access = self.clone();
        if let Some(listener) = self.listeners.get(&security) {
            access.bootstrap.clone_from(&listener.bootstrap);
            access.settings.clone_from(&listener.settings);
        }
        access
    }

    /// Whether every process of the run on this machine is known: a broker here whose process is
    /// not would count as a foreign program.
    pub fn is_seen_whole(&self) -> bool {
        self.is_embedded || self.process.is_some() || !self.is_loopback()
    }

    fn is_loopback(&self) -> bool {
        let hosts: Vec<IpAddr> = self.socket_address().iter().map(SocketAddr::ip).collect();
        !hosts.is_empty() && hosts.iter().all(IpAddr::is_loopback)
    }
}

/// New topics must have leaders within this time.
const READY_WITHIN: Duration = Duration::from_secs(30);

/// The topics of one point, deleted when this is dropped.
#[derive(Debug)]
pub struct Topics {
    admin: Admin,
    /// The scenario's name of each topic, and its name on the cluster.
    names: Vec<(String, String)>,
}

impl Topics {
    /// Creates topics of these shapes under unique names, and waits until every partition has a
    /// leader.
    ///
    /// - `label`: becomes part of the names, so that what a crash leaves behind can be told from an
    ///   application's topics.
    pub fn create(access: &Access, specs: &[TopicSpec], label: &str) -> Result<Topics, BenchError> {
        let admin = Admin::new(&access.admin_config())?;
        let mut topics = Topics {
            admin,
            names: Vec::new(),
        };
        let mut wanted = Vec::new();
        for spec in specs {
            let name = format!("ottla-bench-{label}-{}", spec.name);
            let mut topic = NewTopic::new(&name).partitions(spec.partitions.cast_signed());
            if spec.replication_factor > 0 {
                topic = topic.replicas(spec.replication_factor);
            }
            for (key, value) in &spec.settings {
                topic = topic.config(key, value);
            }
            wanted.push(topic);
            topics.names.push((spec.name.clone(), name));
        }
        for (name, outcome) in topics.admin.create_topics(wanted).wait()? {
            match outcome {
                // The names are unique to this run: the client retried, and its first request was
                // merely late.
                Err(Error::Broker {
                    code: ErrorCode::TopicAlreadyExists,
                    ..
                }) => {}
                outcome => {
                    outcome.map_err(|error| BenchError::Broker(format!("creating topic {name}: {error}")))?;
                }
            }
        }
        topics.await_leaders(specs)?;
        Ok(topics)
    }

    fn await_leaders(&self, specs: &[TopicSpec]) -> Result<(), BenchError> {
        let names: Vec<String> = self.names.iter().map(|(_, name)| name.clone()).collect();
        let deadline = Instant::now() + READY_WITHIN;
        loop {
            let described = self.admin.describe_topics(names.clone()).wait()?;
            let led: usize = described
                .values()
                .flatten()
                .map(|topic| {
                    topic
                        .partitions
                        .values()
                        .filter(|partition| partition.leader.is_some())
                        .count()
                })
                .sum();
            let wanted: usize = specs.iter().map(|spec| spec.partitions as usize).sum();
            if led == wanted {
                return Ok(());
            }
            if Instant::now() > deadline {
                let limit = READY_WITHIN.as_secs();
                return Err(BenchError::Broker(format!(
                    "{led} of {wanted} partitions have a leader after {limit} s"
                )));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// The name on the cluster of the scenario's topic.
    pub fn name(&self, spec: &str) -> Option<&str> {
        let found = self.names.iter().find(|(known, _)| known == spec);
        found.map(|(_, name)| name.as_str())
    }

    /// The directories that the broker reports for the partitions of the scenario's topic.
    ///
    /// - Shape: directories on the broker's machine, which need not be this one.
    /// - Errors: the broker cannot be asked, or does not report them.
    pub fn directories(&self, spec: &str) -> Result<Vec<PathBuf>, BenchError> {
        let name = self.name(spec).unwrap_or_default();
        let mut directories = Vec::new();
        for (_, described) in self.admin.describe_log_dirs(Vec::new()).wait()? {
            for (path, directory) in described? {
                let partitions = directory?.replicas.into_keys();
                let own = partitions.filter(|partition| *partition.topic == *name);
                directories
                    .extend(own.map(|own| PathBuf::from(&path).join(format!("{name}-{}", own.partition))));
            }
        }
        Ok(directories)
    }
}

impl Drop for Topics {
    fn drop(&mut self) {
        let names = self.names.iter().map(|(_, name)| name.clone()).collect();
        // Topics that stay behind cost space but do not affect correctness.
        let _ = self.admin.delete_topics(names).wait();
        self.admin.close(Duration::from_secs(5));
    }
}

impl Access {
    /// Kafka's keys for a client of this cluster.
    pub fn config(&self) -> Config {
        let config = Config::new().set("bootstrap.servers", &self.bootstrap);
        self.settings
            .iter()
            .fold(config, |config, (key, value)| config.set(key, value))
    }

    /// As `config`, with shorter timeouts: a broker that does not answer within them cannot be
    /// measured.
    fn admin_config(&self) -> Config {
        let patience = [
            ("request.timeout.ms", "5000"),
            ("default.api.timeout.ms", "15000"),
        ];
        let own = |key: &str| self.settings.iter().any(|(known, _)| known == key);
        patience
            .iter()
            .filter(|(key, _)| !own(key))
            .fold(self.config(), |config, (key, value)| config.set(*key, value))
    }

    /// The address of the first bootstrap server, if its name can be resolved.
    pub fn socket_address(&self) -> Option<SocketAddr> {
        self.bootstrap.split(',').next()?.to_socket_addrs().ok()?.next()
    }
}

/// Asks a cluster for its properties.
///
/// - Errors: it cannot be reached within the client's timeout, or refuses to describe itself.
pub fn describe(access: &Access) -> Result<Target, BenchError> {
    let admin = Admin::new(&access.admin_config())?;
    let cluster = admin.describe_cluster().wait()?;
    let mut entries = ConfigEntries::new();
    if let Some(node) = cluster.nodes.keys().next() {
        let resource = ConfigResource::new(ConfigResourceKind::Broker, node.0.to_string());
        // Without permission to see settings the report has less detail, but measuring is still
        // possible.
        if let Ok(described) = admin.describe_configs(vec![resource]).wait() {
            entries = described.into_values().flatten().next().unwrap_or_default();
        }
    }
    admin.close(Duration::from_secs(5));
    let durability = durability(&entries);
    let is_ottla = entries.contains_key("ottla.durability");
    Ok(Target {
        name: match access.name.as_str() {
            "" if is_ottla => String::from("Ottla"),
            // The protocol does not identify a broker's software.
            "" => String::from("Apache Kafka"),
            name => name.to_owned(),
        },
        bootstrap: access.bootstrap.clone(),
        brokers: u32::try_from(cluster.nodes.len()).unwrap_or(u32::MAX),
        is_loopback: access.is_loopback(),
        is_embedded: access.is_embedded,
        durability,
    })
}

/// When an acknowledged record is on the disk, from the broker's own settings.
fn durability(entries: &ConfigEntries) -> String {
    let value = |key: &str| entries.get(key).and_then(|entry| entry.value.as_deref());
    match (value("ottla.durability"), value("log.flush.interval.messages")) {
        (Some("page-cache"), _) => String::from("acknowledged from the page cache"),
        (Some(_), _) => String::from("acks=all after fdatasync; acks=1 from the page cache"),
        (None, Some("1")) => String::from("every append synced (log.flush.interval.messages=1)"),
        (None, Some(_)) => String::from("acknowledged from the page cache of the in-sync replicas"),
        (None, None) => String::from("unknown: the broker does not show its settings"),
    }
}
