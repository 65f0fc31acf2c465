//! One running broker, Ottla or Apache Kafka, started from the same `server.properties`.

use super::toolchain;
use crate::kafka::{self, Kafka};
use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    Ottla,
    Kafka,
}

impl Target {
    pub fn parse(name: &str) -> Result<Target> {
        match name {
            "ottla" => Ok(Target::Ottla),
            "kafka" => Ok(Target::Kafka),
            other => bail!("--target is ottla or kafka, not {other}"),
        }
    }

    /// What `parse` takes.
    pub fn argument(self) -> &'static str {
        match self {
            Target::Ottla => "ottla",
            Target::Kafka => "kafka",
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Target::Ottla => "Ottla",
            Target::Kafka => "Apache Kafka 4.3.0",
        }
    }
}

/// The programs of both brokers.
pub struct Programs {
    pub kafka: Kafka,
    pub ottla: Option<PathBuf>,
}

impl Programs {
    /// Prepares Kafka always (its tools and Java client are needed in every run), and Ottla on
    /// request.
    pub fn prepare(with_ottla: bool) -> Result<Programs> {
        let ottla = if with_ottla {
            Some(toolchain::build_ottla()?)
        } else {
            None
        };
        Ok(Programs {
            kafka: Kafka::prepare()?,
            ottla,
        })
    }
}

/// A data directory with its configuration file, which outlives its brokers.
pub struct Site {
    pub directory: PathBuf,
    pub port: u16,
    properties: PathBuf,
    log: PathBuf,
}

impl Site {
    /// Creates an empty directory `name` under `target/interop/data`, removing an earlier run's.
    pub fn create(name: &str, more: &[(&str, &str)]) -> Result<Site> {
        Site::create_below(&toolchain::target_directory().join("data"), name, more)
    }

    /// The same in another folder, for instance in a memory file system.
    pub fn create_below(parent: &Path, name: &str, more: &[(&str, &str)]) -> Result<Site> {
        let home = parent.join(name);
        if home.exists() {
            fs::remove_dir_all(&home).with_context(|| format!("removing {}", home.display()))?;
        }
        fs::create_dir_all(&home)?;
        let (port, controller_port) = (toolchain::free_port()?, toolchain::free_port()?);
        let site = Site {
            directory: home.join("logs"),
            port,
            properties: home.join("server.properties"),
            log: home.join("broker.log"),
        };
        fs::write(
            &site.properties,
            kafka::server_properties(&site.directory, port, controller_port, more),
        )?;
        Ok(site)
    }

    /// Copies the site, with the same data and port, while no broker runs on it. Removes an earlier
    /// copy of that name.
    pub fn copy(&self, name: &str) -> Result<Site> {
        let parent = self.home().parent().context("a site lies in a folder")?;
        let home = parent.join(name);
        if home.exists() {
            fs::remove_dir_all(&home).with_context(|| format!("removing {}", home.display()))?;
        }
        let copy = Site {
            directory: home.join("logs"),
            port: self.port,
            properties: home.join("server.properties"),
            log: home.join("broker.log"),
        };
        copy_directory(&self.directory, &copy.directory)?;
        let (from, to) = (
            self.directory.display().to_string(),
            copy.directory.display().to_string(),
        );
        let properties = fs::read_to_string(&self.properties)?.replace(&from, &to);
        fs::write(&copy.properties, properties)?;
        Ok(copy)
    }

    /// Another node with files beside this one's and its own `properties`.
    pub fn beside(&self, name: &str, directory: &Path, port: u16, properties: &str) -> Result<Site> {
        let site = Site {
            directory: directory.to_owned(),
            port,
            properties: self.home().join(format!("{name}.properties")),
            log: self.home().join(format!("{name}.log")),
        };
        fs::write(&site.properties, properties)?;
        Ok(site)
    }

    pub fn home(&self) -> &Path {
        self.directory
            .parent()
            .expect("the logs lie in the site's folder")
    }

    pub fn bootstrap(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The broker's `server.properties`.
    pub fn properties(&self) -> &Path {
        &self.properties
    }

    /// Removes everything. A failed test does not call this, so that its files can be inspected.
    pub fn remove(&self) {
        if let Some(home) = self.directory.parent() {
            let _ = fs::remove_dir_all(home);
        }
    }

    /// Starts `target` on this directory and waits until it answers requests.
    pub fn start(&self, programs: &Programs, target: Target) -> Result<Server> {
        self.start_with(programs, target, &[])
    }

    pub fn start_with(
        &self,
        programs: &Programs,
        target: Target,
        ottla_overrides: &[&str],
    ) -> Result<Server> {
        if target == Target::Kafka && !self.directory.join("meta.properties").exists() {
            programs.kafka.format(&self.properties)?;
        }
        let mut server = self.spawn(programs, target, ottla_overrides)?;
        server.wait_ready()?;
        Ok(server)
    }

    /// Starts the process and returns at once.
    pub fn spawn(&self, programs: &Programs, target: Target, ottla_overrides: &[&str]) -> Result<Server> {
        let mut command = match target {
            Target::Kafka => {
                let mut command = programs.kafka.broker();
                command.arg(&self.properties);
                command
            }
            Target::Ottla => {
                let program = programs
                    .ottla
                    .as_ref()
                    .context("the ottla binary was not built")?;
                let mut command = Command::new(program);
                command
                    .arg("serve")
                    .arg(&self.properties)
                    .args(["--override", "ottla.admin.listener="]);
                for setting in ottla_overrides {
                    command.args(["--override", setting]);
                }
                command
            }
        };
        let log = OpenOptions::new().create(true).append(true).open(&self.log)?;
        // Before the process can write to it.
        let log_from = log.metadata()?.len();
        let child = command
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("cannot start {}", target.name()))?;
        Ok(Server {
            target,
            child,
            port: self.port,
            log: self.log.clone(),
            log_from,
            started: Instant::now(),
        })
    }
}

pub fn copy_directory(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("creating {}", to.display()))?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_directory(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), &target).with_context(|| format!("copying {}", entry.path().display()))?;
        }
    }
    Ok(())
}

/// A running broker; killed when dropped.
pub struct Server {
    target: Target,
    child: Child,
    port: u16,
    log: PathBuf,
    log_from: u64,
    started: Instant,
}

impl Server {
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn bootstrap(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Waits until an ApiVersions request is answered.
    ///
    /// - Errors: the process ended, or two minutes have passed; the error has the end of its log.
    pub fn wait_ready(&mut self) -> Result<()> {
        while !self.answers() {
            if let Some(status) = self.child.try_wait()? {
                bail!(
                    "{} ended with {status} while starting:\n{}",
                    self.target.name(),
                    self.log_tail()
                );
            }
            let limit = Duration::from_secs(120);
            ensure!(
                self.started.elapsed() < limit,
                "{} does not answer:\n{}",
                self.target.name(),
                self.log_tail()
            );
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    fn answers(&self) -> bool {
        // Length 10, then ApiVersions (18) version 0, correlation id 1, a null client id.
        const REQUEST: [u8; 14] = [0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 1, 0xff, 0xff];
        let exchange = || -> std::io::Result<()> {
            let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
            stream.set_read_timeout(Some(Duration::from_secs(10)))?;
            stream.write_all(&REQUEST)?;
            stream.read_exact(&mut [0; 8])
        };
        exchange().is_ok()
    }

    /// Sends SIGTERM and waits for the process to end.
    pub fn stop(mut self) -> Result<()> {
        self.signal(Signal::TERM)?;
        let asked = Instant::now();
        while asked.elapsed() < Duration::from_secs(60) {
            if let Some(status) = self.child.try_wait()? {
                // A JVM exits with 143 (128 + SIGTERM) after a clean shutdown by SIGTERM.
                let clean = status.success() || (self.target == Target::Kafka && status.code() == Some(143));
                ensure!(
                    clean,
                    "{} ended with {status}:\n{}",
                    self.target.name(),
                    self.log_tail()
                );
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        bail!(
            "{} did not stop within a minute of SIGTERM:\n{}",
            self.target.name(),
            self.log_tail()
        )
    }

    /// Sends SIGKILL: data in the process's memory is lost.
    pub fn kill(mut self) -> Result<ExitStatus> {
        self.child.kill().context("kill -9")?;
        Ok(self.child.wait()?)
    }

    /// Checks that the process still runs; an early end is an error with its log.
    pub fn check_alive(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("{} ended with {status}:\n{}", self.target.name(), self.log_tail()),
        }
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let pid = i32::try_from(self.child.id())
            .ok()
            .and_then(Pid::from_raw)
            .context("a process id")?;
        kill_process(pid, signal).context("sending a signal")
    }

    /// The output of this process since its start.
    pub fn printed(&self) -> String {
        let mut text = Vec::new();
        if let Ok(mut file) = File::open(&self.log) {
            let _ = file.read_to_end(&mut text);
        }
        let from = usize::try_from(self.log_from).unwrap_or(0).min(text.len());
        String::from_utf8_lossy(&text[from..]).into_owned()
    }

    fn log_tail(&self) -> String {
        let text = self.printed();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
