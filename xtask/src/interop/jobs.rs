//! `--jobs N`: every part in a process of its own, `N` at a time.

use super::Options;
use super::clients::Clients;
use super::server::Programs;
use super::toolchain::{self, LOGS};
use anyhow::{Context, Result, ensure};
use std::collections::VecDeque;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Begun before the others, so that none of them runs alone at the end: roughly the longest first,
/// as they took while three ran at once.
const LONG: [&str; 10] = [
    "security",
    "client",
    "directories",
    "groups",
    "takeover",
    "clients",
    "consumer-protocol",
    "transactions",
    "grow",
    "sasl",
];

/// They judge how busy the machine is, or hold rates against limits: each runs when all others have
/// ended.
const ALONE: [&str; 3] = ["doctor", "promises", "quotas"];

struct Job {
    part: String,
    child: Child,
    /// Both of its output streams.
    output: PathBuf,
    started: Instant,
}

/// Runs the parts of `options`; an error names those that failed.
pub fn run(options: &Options, jobs: usize) -> Result<()> {
    let started = Instant::now();
    // What several parts need is built before they begin.
    let programs = Programs::prepare(true)?;
    Clients::prepare()?;
    let binary = programs.ottla.context("Ottla was just built")?;
    let mut waiting = ordered(&options.parts);
    let mut running: Vec<Job> = Vec::new();
    let mut failed = Vec::new();
    while !waiting.is_empty() || !running.is_empty() {
        while running.len() < jobs
            && let Some(part) = waiting.pop_front_if(|part| running.is_empty() || !is_alone(part))
        {
            running.push(Job::start(part, options, &binary)?);
        }
        thread::sleep(Duration::from_millis(200));
        for mut job in std::mem::take(&mut running) {
            match job.child.try_wait()? {
                None => running.push(job),
                Some(status) => {
                    job.tell(status)?;
                    if !status.success() {
                        failed.push(job.part);
                    }
                }
            }
        }
    }
    println!("interop: {} s", started.elapsed().as_secs());
    ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
    Ok(())
}

/// The order in which parts begin: those that run alone are the last.
fn ordered(parts: &[String]) -> VecDeque<String> {
    let mut ordered = parts.to_vec();
    ordered.sort_by_key(|part| {
        let long = LONG.iter().position(|long| long == part);
        (is_alone(part), long.unwrap_or(LONG.len()))
    });
    VecDeque::from(ordered)
}

fn is_alone(part: &str) -> bool {
    ALONE.contains(&part)
}

impl Job {
    fn start(part: String, options: &Options, binary: &Path) -> Result<Job> {
        let logs = toolchain::logs().join(&part);
        fs::create_dir_all(&logs)?;
        let output = logs.join("output");
        let file = File::create(&output).with_context(|| format!("creating {}", output.display()))?;
        let mut command = Command::new(std::env::current_exe().context("the path of this program")?);
        command
            .args(["interop", "--only", &part, "--target", options.target.argument()])
            .args(options.all_versions.then_some("--all-versions"))
            .env("OTTLA_BINARY", binary)
            .env(LOGS, &logs)
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file);
        Ok(Job {
            child: command.spawn().with_context(|| format!("cannot start {part}"))?,
            part,
            output,
            started: Instant::now(),
        })
    }

    /// A line about a part that passed, everything about one that failed.
    fn tell(&self, status: ExitStatus) -> Result<()> {
        let seconds = self.started.elapsed().as_secs();
        if status.success() {
            println!("{}: passed, {seconds} s", self.part);
            return Ok(());
        }
        let output = fs::read(&self.output).with_context(|| format!("reading {}", self.output.display()))?;
        println!(
            "{}: FAILED, {seconds} s\n{}",
            self.part,
            String::from_utf8_lossy(&output)
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::ordered;

    #[test]
    fn long_parts_begin_first_and_those_that_run_alone_last() {
        let parts = ["doctor", "clients", "takeover", "grow", "perf"].map(String::from);
        assert_eq!(ordered(&parts), ["takeover", "clients", "grow", "perf", "doctor"]);
    }
}
