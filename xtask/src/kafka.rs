//! Apache Kafka 4.3.0 for tests and benchmarks: the jars, a formatted directory, a node, the tools.

use crate::interop::toolchain::{self, run_quietly};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

pub const VERSION: &str = "4.3.0";

/// The first brokers that support client metrics (KIP-714).
const FIRST_WITH_TELEMETRY: &str = "3.7.2";

/// The jars of Apache Kafka, and the Java programs of `tests/interop/java` compiled against them.
#[derive(Clone)]
pub struct Kafka {
    home: PathBuf,
    /// Additional jars, before Kafka's own.
    jars: Vec<PathBuf>,
    /// Brokers before 3.9 know their controllers only from the configuration (KIP-853).
    has_static_voters: bool,
}

impl Kafka {
    /// Fetches and compiles with Maven, unless an earlier run did so and no source is newer.
    pub fn prepare() -> Result<Kafka> {
        toolchain::need(
            "java",
            &["-version"],
            "a Java runtime, 17 or newer (Debian: openjdk-17-jdk-headless)",
        )?;
        toolchain::need("mvn", &["--version"], "Maven (Debian: maven)")?;
        let home = toolchain::target_directory().join("java");
        let source = toolchain::root().join("tests/interop/java");
        let stamp = home.join("prepared");
        let what = format!("maven: Apache Kafka {VERSION} and the Java client programs");
        toolchain::build_once(&what, &stamp, &source, || {
            let mut command = Command::new("mvn");
            command
                .args(["-q", "-B", "package"])
                .arg(format!("-Doutput.directory={}", home.display()));
            run_quietly(command.current_dir(&source)).context("maven could not build tests/interop/java")?;
            fs::write(home.join("log4j2.properties"), LOG4J).context("writing log4j2.properties")
        })?;
        let jar = home.join(format!("jars/kafka_2.13-{VERSION}.jar"));
        ensure!(jar.exists(), "maven did not bring {}", jar.display());
        Ok(Kafka {
            home,
            jars: Vec::new(),
            has_static_voters: false,
        })
    }

    /// Apache Kafka 3.7, the first with client telemetry: the jars alone.
    pub fn prepare_3_7() -> Result<Kafka> {
        let version = FIRST_WITH_TELEMETRY;
        let kafka = fetch(
            version,
            "kafka-3.7",
            &toolchain::target_directory().join("kafka-3.7"),
        )?;
        Ok(kafka.with_static_voters())
    }

    /// The jars of a version 4.x: its broker and `kafka-storage`.
    pub fn prepare_version(version: &str) -> Result<Kafka> {
        let home = toolchain::target_directory().join(format!("kafka-{version}"));
        fetch(version, "kafka-4", &home)
    }

    /// The same with `controller.quorum.voters` in every configuration that it formats a directory
    /// for.
    pub fn with_static_voters(&self) -> Kafka {
        Kafka {
            has_static_voters: true,
            ..self.clone()
        }
    }

    /// The same with one more jar, or directory of classes, on the class path.
    pub fn with_jar(&self, jar: &Path) -> Kafka {
        let mut with = self.clone();
        with.jars.push(jar.to_owned());
        with
    }

    /// Kafka's jars and the programs of `tests/interop/java`.
    pub fn class_path(&self) -> String {
        let own = format!("{0}/classes:{0}/jars/*", self.home.display());
        let more = self.jars.iter().map(|jar| jar.display().to_string());
        more.chain([own]).collect::<Vec<_>>().join(":")
    }

    /// The JVM flag with the log configuration.
    pub fn log_configuration(&self) -> String {
        format!(
            "-Dlog4j2.configurationFile={}",
            self.home.join("log4j2.properties").display()
        )
    }

    /// A JVM that runs `class` with a heap of at most `heap_mib`.
    pub fn java(&self, heap_mib: u32, class: &str) -> Command {
        let mut command = Command::new("java");
        command
            .arg(format!("-Xmx{heap_mib}m"))
            .arg(self.log_configuration())
            .arg("-cp")
            .arg(self.class_path())
            .arg(class);
        command
    }

    /// The broker, with the JVM flags of Kafka's own start script.
    pub fn broker(&self) -> Command {
        let mut command = Command::new("java");
        command
            .args([
                "-Xmx1G",
                "-Xms1G",
                "-server",
                "-XX:+UseG1GC",
                "-XX:MaxGCPauseMillis=20",
            ])
            .args([
                "-XX:InitiatingHeapOccupancyPercent=35",
                "-XX:+ExplicitGCInvokesConcurrent",
            ])
            .arg(self.log_configuration())
            .arg("-cp")
            .arg(self.class_path())
            .arg("kafka.Kafka");
        command
    }

    /// A short-lived tool: only the first JIT tier, because the second would keep two cores busy.
    pub fn tool(&self, class: &str) -> Command {
        let mut command = Command::new("java");
        command
            .args([
                "-Xmx256m",
                "-XX:TieredStopAtLevel=1",
                "-XX:+UseSerialGC",
                "-Xshare:auto",
            ])
            .arg(self.log_configuration())
            .arg("-cp")
            .arg(self.class_path())
            .arg(class);
        command
    }

    /// Formats `log.dirs` for a single voter, a dynamic one if the version supports it: writes the
    /// identity
    /// and the first metadata records.
    pub fn format(&self, properties: &Path) -> Result<()> {
        self.format_with(properties, &[])
    }

    /// The same with more arguments.
    pub fn format_with(&self, properties: &Path, more: &[&str]) -> Result<()> {
        let mut command = self.tool("kafka.tools.StorageTool");
        command.arg("format");
        if self.has_static_voters {
            name_voter(properties)?;
        } else {
            command.arg("--standalone");
        }
        command.args(["--cluster-id", "b3R0bGEtaW50ZXJvcC10ZQ", "--config"]);
        run_quietly(command.arg(properties).args(more)).context("kafka-storage format")
    }

    /// Writes the identity of a node that joins a cluster.
    pub fn format_member(&self, properties: &Path, cluster_id: &str) -> Result<()> {
        let mut command = self.tool("kafka.tools.StorageTool");
        command.args(["format", "--cluster-id", cluster_id, "--config"]);
        run_quietly(command.arg(properties)).context("kafka-storage format")
    }
}

/// The jars of one version, by the build file in `tests/interop/<source>`, unless an earlier run
/// fetched them.
fn fetch(version: &str, source: &str, home: &Path) -> Result<Kafka> {
    let source = toolchain::root().join("tests/interop").join(source);
    let stamp = home.join("prepared");
    toolchain::build_once(&format!("maven: Apache Kafka {version}"), &stamp, &source, || {
        let mut command = Command::new("mvn");
        command
            .args(["-q", "-B", "package"])
            .arg(format!("-Dkafka.version={version}"))
            .arg(format!("-Doutput.directory={}", home.display()));
        run_quietly(command.current_dir(&source))
            .with_context(|| format!("maven could not fetch the jars of Apache Kafka {version}"))?;
        fs::write(home.join("log4j2.properties"), LOG4J).context("writing log4j2.properties")
    })?;
    let jar = home.join(format!("jars/kafka_2.13-{version}.jar"));
    ensure!(jar.exists(), "maven did not bring {}", jar.display());
    Ok(Kafka {
        home: home.to_owned(),
        jars: Vec::new(),
        has_static_voters: false,
    })
}

/// Names node 1 as the controller in the configuration; later versions keep that in the metadata
/// log.
fn name_voter(properties: &Path) -> Result<()> {
    let text = fs::read_to_string(properties).context("reading server.properties")?;
    let controller = text
        .lines()
        .find_map(|line| line.strip_prefix("controller.quorum.bootstrap.servers="))
        .context("server.properties names no controller")?;
    let with_voter = format!("{text}controller.quorum.voters=1@{controller}\n");
    fs::write(properties, with_voter).context("writing server.properties")
}

/// The `server.properties` of a combined node; both brokers read this same file.
pub fn server_properties(directory: &Path, port: u16, controller_port: u16, more: &[(&str, &str)]) -> String {
    let mut text = format!(
        "process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
controller.quorum.bootstrap.servers=127.0.0.1:{controller_port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=PLAINTEXT
log.dirs={}
num.partitions=1
offsets.topic.replication.factor=1
offsets.topic.num.partitions=5
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
",
        directory.display()
    );
    for (key, value) in more {
        text.push_str(&format!("{key}={value}\n"));
    }
    text
}

const LOG4J: &str = "rootLogger.level = WARN
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = [%d] %p %m (%c{1})%n
";
