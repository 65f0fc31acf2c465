//! A program of another project that runs beside the cases until it is killed or closed.

use super::toolchain::{end_of, logs};
use anyhow::{Context, Result, bail, ensure};
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Killed when dropped. Its output is in two files under `logs`.
pub struct Application {
    name: String,
    child: Child,
    out: PathBuf,
    err: PathBuf,
}

impl Application {
    /// - `name`: of the log files, which an earlier run's are replaced by.
    pub fn start(name: &str, command: &mut Command) -> Result<Application> {
        let logs = logs();
        fs::create_dir_all(&logs)?;
        let (out, err) = (logs.join(format!("{name}.out")), logs.join(format!("{name}.err")));
        let child = command
            .stdin(Stdio::piped())
            .stdout(File::create(&out)?)
            .stderr(File::create(&err)?)
            .spawn()
            .with_context(|| format!("cannot start {name}"))?;
        Ok(Application {
            name: name.to_owned(),
            child,
            out,
            err,
        })
    }

    /// An early end is an error with the end of its log.
    pub fn check_alive(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("{} ended with {status}: {}", self.name, self.log_tail()),
        }
    }

    /// Sends SIGKILL.
    pub fn kill(mut self) -> Result<()> {
        self.check_alive()?;
        self.child.kill().context("kill -9")?;
        self.child.wait()?;
        Ok(())
    }

    /// Closes its standard input and waits for its end; returns its standard output.
    pub fn close(mut self) -> Result<String> {
        drop(self.child.stdin.take());
        let asked = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait()? {
                break status;
            }
            ensure!(
                asked.elapsed() < Duration::from_secs(120),
                "{} does not end",
                self.name
            );
            std::thread::sleep(Duration::from_millis(20));
        };
        ensure!(
            status.success(),
            "{} ended with {status}: {}",
            self.name,
            self.log_tail()
        );
        Ok(fs::read_to_string(&self.out)?)
    }

    fn log_tail(&self) -> String {
        let text = fs::read(&self.err).unwrap_or_default();
        end_of(&String::from_utf8_lossy(&text)).to_owned()
    }
}

impl Drop for Application {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
