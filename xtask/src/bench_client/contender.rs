//! The compared clients, each a program of its own: how it is built and started.

use crate::interop::clients::build_go;
use crate::interop::toolchain::{self, run_quietly};
use crate::kafka::Kafka;
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Contender {
    Ottla,
    Java,
    Librdkafka,
    FranzGo,
    Krafka,
    Confluent,
}

impl Contender {
    pub const ALL: [Contender; 6] = [
        Contender::Ottla,
        Contender::Java,
        Contender::Librdkafka,
        Contender::FranzGo,
        Contender::Krafka,
        Contender::Confluent,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Contender::Ottla => "ottla",
            Contender::Java => "java",
            Contender::Librdkafka => "librdkafka",
            Contender::FranzGo => "franz-go",
            Contender::Krafka => "krafka",
            Contender::Confluent => "confluent-kafka",
        }
    }

    pub fn parse(name: &str) -> Result<Contender> {
        let found = Contender::ALL
            .into_iter()
            .find(|contender| contender.name() == name);
        found.with_context(|| {
            let names = Contender::ALL.map(Contender::name).join(", ");
            format!("--clients knows {names}, not {name}")
        })
    }

    /// For contenders in Rust: the workspace below `tests/bench-client` and the package in it.
    fn rust_package(self) -> Option<(&'static str, &'static str)> {
        match self {
            Contender::Ottla => Some(("ottla", "bench-ottla")),
            Contender::Librdkafka => Some(("rust", "bench-librdkafka")),
            Contender::Krafka => Some(("rust", "bench-krafka")),
            Contender::Confluent => Some(("rust", "bench-confluent")),
            Contender::Java | Contender::FranzGo => None,
        }
    }
}

/// The contenders that could be built, and the reasons why others could not.
pub struct Programs {
    kafka: Kafka,
    java_classes: PathBuf,
    go: PathBuf,
    pub failures: BTreeMap<Contender, String>,
}

fn home() -> PathBuf {
    toolchain::cargo_target().join("bench-client")
}

impl Programs {
    /// - Errors: the tool chains and the Go program (which also does the errands) must be there; a
    ///   contender that cannot be built is noted in `failures` and left out.
    /// - `is_built`: the Rust programs are used without a build.
    pub fn prepare(wanted: &[Contender], is_built: bool) -> Result<Programs> {
        let mut programs = Programs {
            kafka: Kafka::prepare()?,
            java_classes: home().join("java"),
            go: build_go("bench-client", "tests/bench-client/go", "the franz-go contender")?,
            failures: BTreeMap::new(),
        };
        let mut workspaces = BTreeMap::new();
        for &contender in wanted {
            if is_built && contender != Contender::Java {
                continue;
            }
            let built = match contender.rust_package() {
                Some((workspace, package)) => match workspaces.entry(workspace) {
                    Entry::Occupied(built) => built.into_mut(),
                    Entry::Vacant(place) => place.insert(build_rust(workspace)?),
                }
                .check(package),
                None if contender == Contender::Java => programs.build_java(),
                None => Ok(()),
            };
            if let Err(error) = built {
                println!("{} cannot be built: {error:#}", contender.name());
                programs.failures.insert(contender, format!("{error:#}"));
            }
        }
        Ok(programs)
    }

    fn build_java(&self) -> Result<()> {
        let source = toolchain::root().join("tests/bench-client/java");
        let stamp = self.java_classes.join("prepared");
        toolchain::build_once("javac: the Java contender", &stamp, &source, || {
            toolchain::need(
                "javac",
                &["-version"],
                "a JDK, 17 or newer (Debian: openjdk-17-jdk-headless)",
            )?;
            fs::create_dir_all(&self.java_classes)?;
            let mut command = Command::new("javac");
            command
                .args(["--release", "17", "-cp"])
                .arg(self.kafka.class_path());
            command.arg("-d").arg(&self.java_classes);
            for file in fs::read_dir(source.join("benchclient"))? {
                command.arg(file?.path());
            }
            run_quietly(&mut command).context("javac could not build tests/bench-client/java")
        })
    }

    /// The program of `contender`, without arguments.
    pub fn command(&self, contender: Contender) -> Command {
        match contender.rust_package() {
            Some((workspace, package)) => Command::new(home().join(workspace).join("release").join(package)),
            None if contender == Contender::Java => {
                let mut command = Command::new("java");
                // The flags of Kafka's own kafka-producer-perf-test.sh and kafka-run-class.sh.
                command
                    .args(["-Xmx512M", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"])
                    .args([
                        "-XX:InitiatingHeapOccupancyPercent=35",
                        "-XX:+ExplicitGCInvokesConcurrent",
                    ])
                    .arg(self.kafka.log_configuration())
                    .arg("-cp")
                    .arg(format!(
                        "{}:{}",
                        self.java_classes.display(),
                        self.kafka.class_path()
                    ))
                    .arg("benchclient.Main");
                command
            }
            None => Command::new(&self.go),
        }
    }

    /// Creates and deletes topics and looks up their ends, with the Go program for all contenders.
    pub fn errand(&self, what: &str, bootstrap: &str, topics: &str, partitions: u64) -> Result<String> {
        let mut command = Command::new(&self.go);
        command
            .arg(what)
            .arg(format!("bootstrap={bootstrap}"))
            .arg(format!("topics={topics}"));
        toolchain::output_of(command.arg(format!("partitions={partitions}")))
            .with_context(|| format!("{what} {topics}"))
    }
}

/// The result of a cargo build: the programs that are up to date, and its errors.
struct RustBuild {
    programs: Vec<String>,
    complaints: String,
}

impl RustBuild {
    fn check(&self, package: &str) -> Result<()> {
        let is_there = self.programs.iter().any(|program| program == package);
        ensure!(is_there, "{}", toolchain::end_of(&self.complaints).trim());
        Ok(())
    }
}

/// Builds a workspace with one command: features are unified over all packages of a build, so
/// separate builds would each rebuild the common dependencies.
fn build_rust(workspace: &str) -> Result<RustBuild> {
    println!("cargo: tests/bench-client/{workspace}");
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let output = command
        .args([
            "build",
            "--quiet",
            "--release",
            "--locked",
            "--keep-going",
            "--message-format=json",
        ])
        .current_dir(toolchain::root().join("tests/bench-client").join(workspace))
        .env("CARGO_TARGET_DIR", home().join(workspace))
        .output()
        .context("cannot start cargo")?;
    let lines = String::from_utf8_lossy(&output.stdout);
    let mut complaints = String::from_utf8_lossy(&output.stderr).into_owned();
    let mut programs = Vec::new();
    for message in lines
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
    {
        if message["executable"].is_string() {
            programs.extend(message["target"]["name"].as_str().map(String::from));
        }
        if message["message"]["level"] == "error" {
            complaints.push_str(message["message"]["rendered"].as_str().unwrap_or_default());
        }
    }
    Ok(RustBuild { programs, complaints })
}
