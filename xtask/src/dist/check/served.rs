//! A broker that was started by a command: its ready line, and its end.

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

pub struct Served {
    child: Child,
    log: PathBuf,
}

impl Served {
    /// Starts `command`, with its log in `home`, and waits for its first line.
    pub fn start(command: &mut Command, home: &Path) -> Result<Served> {
        let log = home.join("broker.log");
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(File::create(&log)?);
        let program = command.get_program().to_string_lossy().into_owned();
        let mut child = command
            .spawn()
            .with_context(|| format!("cannot start {program}"))?;
        let mut line = String::new();
        let output = child.stdout.take().context("standard output is a pipe")?;
        BufReader::new(output).read_line(&mut line)?;
        if !line.starts_with("ottla ready ") {
            let status = child.wait()?;
            bail!("no ready line, {status}: {}", fs::read_to_string(&log)?);
        }
        Ok(Served { child, log })
    }

    /// Stops as a supervisor would; the status must be 0.
    pub fn stop(self) -> Result<()> {
        let process = Pid::from_child(&self.child);
        self.stop_process(process)
    }

    /// The same for the process in a sandbox, whose status the sandbox passes on, but not signals.
    pub fn stop_inside(self) -> Result<()> {
        let sandbox = self.child.id();
        let children = fs::read_to_string(format!("/proc/{sandbox}/task/{sandbox}/children"))?;
        let first = children.split(' ').next().unwrap_or_default();
        let process = first.parse().ok().and_then(Pid::from_raw);
        self.stop_process(process.context("the sandbox has no process")?)
    }

    fn stop_process(mut self, process: Pid) -> Result<()> {
        kill_process(process, Signal::TERM)?;
        let status = self.child.wait()?;
        ensure!(
            status.success(),
            "{status} at the stop: {}",
            fs::read_to_string(&self.log)?
        );
        Ok(())
    }
}

impl Drop for Served {
    /// After a failed check.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
