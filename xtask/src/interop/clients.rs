//! The clients, three others and ours: how each is built and started, and their result lines.

use super::toolchain::{self, run_quietly};
use crate::kafka::Kafka;
use anyhow::{Context, Result, ensure};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Client {
    Java,
    Librdkafka,
    FranzGo,
    Ottla,
}

pub const CLIENTS: [Client; 4] = [Client::Java, Client::Librdkafka, Client::FranzGo, Client::Ottla];

impl Client {
    /// The name in topic names and in tables.
    pub fn name(self) -> &'static str {
        match self {
            Client::Java => "java",
            Client::Librdkafka => "librdkafka",
            Client::FranzGo => "franz-go",
            Client::Ottla => "ottla",
        }
    }
}

/// The outcome of a case: the text of the failure, if it failed.
pub type Outcome = std::result::Result<(), String>;

/// The clients, ready to run.
pub struct Clients {
    python: PathBuf,
    go: PathBuf,
    ourselves: PathBuf,
}

impl Clients {
    pub fn prepare() -> Result<Clients> {
        Ok(Clients {
            python: prepare_python()?,
            go: prepare_go()?,
            ourselves: std::env::current_exe().context("the path of this program")?,
        })
    }

    /// The program of `client`, without arguments.
    pub fn command(&self, kafka: &Kafka, client: Client) -> Command {
        match client {
            Client::Java => kafka.tool("interop.Main"),
            Client::Librdkafka => {
                let mut command = Command::new(&self.python);
                command.arg(toolchain::root().join("tests/interop/python/main.py"));
                command
            }
            Client::FranzGo => Command::new(&self.go),
            // This same program: see `ours`.
            Client::Ottla => {
                let mut command = Command::new(&self.ourselves);
                command.arg("interop-client");
                command
            }
        }
    }

    /// Runs one phase and collects its cases; `Err` if the program itself cannot be started.
    pub fn run(
        &self,
        kafka: &Kafka,
        client: Client,
        arguments: &[&str],
        limit: Duration,
    ) -> Result<BTreeMap<String, Outcome>> {
        let name = format!("{}-{}", client.name(), arguments.first().unwrap_or(&"run"));
        let mut command = self.command(kafka, client);
        run_cases(&name, command.args(arguments), limit)
    }
}

/// Runs a program that prints cases, and collects them; one that ends badly without a failed case
/// is a failed case.
///
/// - `name`: of the log files, which an earlier run's are replaced by.
/// - Errors: the program cannot be started.
pub(super) fn run_cases(
    name: &str,
    command: &mut Command,
    limit: Duration,
) -> Result<BTreeMap<String, Outcome>> {
    let logs = toolchain::logs();
    fs::create_dir_all(&logs)?;
    let (out, err) = (logs.join(format!("{name}.out")), logs.join(format!("{name}.err")));
    command.stdin(Stdio::null());
    command.stdout(File::create(&out)?).stderr(File::create(&err)?);
    let mut child = command.spawn().with_context(|| format!("cannot start {name}"))?;
    let started = Instant::now();
    let ended = loop {
        if let Some(status) = child.try_wait()? {
            break Some(status);
        }
        if started.elapsed() > limit {
            let _ = child.kill();
            child.wait()?;
            break None;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let mut cases = parse(&fs::read_to_string(&out)?);
    let failed = cases.values().any(|outcome| outcome.is_err());
    let log = err.display();
    match ended {
        None => {
            let text = format!("still running after {} s (log: {log})", limit.as_secs());
            cases.insert(format!("({name})"), Err(text));
        }
        Some(status) if !status.success() && !failed => {
            cases.insert(format!("({name})"), Err(format!("{status} (log: {log})")));
        }
        Some(_) => {}
    }
    Ok(cases)
}

/// Reads the lines `CASE<tab>name<tab>ok|fail<tab>detail`.
pub(super) fn parse(text: &str) -> BTreeMap<String, Outcome> {
    let mut cases = BTreeMap::new();
    for line in text.lines() {
        let mut fields = line.splitn(4, '\t');
        if fields.next() != Some("CASE") {
            continue;
        }
        let (Some(name), Some(outcome)) = (fields.next(), fields.next()) else {
            continue;
        };
        let outcome = match outcome {
            "ok" => Ok(()),
            _ => Err(fields.next().unwrap_or("no reason given").to_string()),
        };
        cases.insert(name.to_string(), outcome);
    }
    cases
}

pub fn prepare_python() -> Result<PathBuf> {
    toolchain::need(
        "python3",
        &["--version"],
        "Python 3.9 or newer (Debian: python3, python3-venv)",
    )?;
    let home = toolchain::target_directory().join("python");
    let requirements = toolchain::root().join("tests/interop/python/requirements.txt");
    let python = home.join("bin/python");
    let stamp = home.join("prepared");
    let what = "pip: confluent-kafka, kafka-python, aiokafka";
    toolchain::build_once(what, &stamp, &requirements, || {
        run_quietly(Command::new("python3").args(["-m", "venv"]).arg(&home))
            .context("python3 -m venv failed (Debian: python3-venv)")?;
        let mut install = Command::new(&python);
        install.args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "-r",
        ]);
        run_quietly(install.arg(&requirements))
            .context("pip could not install tests/interop/python/requirements.txt")
    })?;
    Ok(python)
}

fn prepare_go() -> Result<PathBuf> {
    build_go("interop", "tests/interop/go", "franz-go")
}

/// Builds the Go program in `source` and returns its path.
pub(crate) fn build_go(program: &str, source: &str, clients: &str) -> Result<PathBuf> {
    toolchain::need("go", &["version"], "Go, the version in its go.mod or newer")?;
    let directory = toolchain::root().join(source);
    let programs = toolchain::target_directory().join("go");
    let stamp = programs.join(format!("{program}.prepared"));
    let program = programs.join(program);
    toolchain::build_once(&format!("go: {clients}"), &stamp, &directory, || {
        let mut build = Command::new("go");
        build
            .args(["build", "-o"])
            .arg(&program)
            .arg(".")
            .current_dir(&directory);
        run_quietly(&mut build).with_context(|| format!("go could not build {source}"))
    })?;
    ensure!(program.exists(), "go did not write {}", program.display());
    Ok(program)
}
