//! Builds the tests once, and runs those that reach a mutant for each of them.

use std::collections::{BTreeSet, VecDeque};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::rewrite::Mutant;

/// A mutant may make a test wait for ever: this long, and three times what the test takes.
const PATIENCE: Duration = Duration::from_secs(6);

/// The tests of one crate.
pub struct Tests {
    /// Where they run: that of the crate.
    pub directory: PathBuf,
    pub programs: Vec<PathBuf>,
    /// For every program, for instance `--skip`.
    pub arguments: Vec<String>,
}

/// A program, what it reaches and how long it takes.
struct Known {
    program: PathBuf,
    takes: Duration,
    reaches: BTreeSet<u32>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Passed,
    Failed,
    TimedOut,
}

pub fn build(source: &Path, target: &Path, package: &str) -> Result<Vec<PathBuf>> {
    let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["test", "--no-run", "--message-format=json", "--package", package])
        .current_dir(source)
        .env("CARGO_TARGET_DIR", target)
        .env("RUSTFLAGS", "-Awarnings")
        .stderr(Stdio::inherit())
        .output()
        .context("cargo does not start")?;
    ensure!(
        output.status.success(),
        "the changed crate does not compile: leave a file out with --except"
    );
    let text = String::from_utf8(output.stdout)?;
    let messages = text
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let programs = messages.filter_map(|message| {
        let is_test = message["profile"]["test"] == true;
        Some(PathBuf::from(message["executable"].as_str()?)).filter(|_| is_test)
    });
    Ok(programs.collect())
}

/// Runs all mutants that have no result in the file yet, adds theirs, and prints a summary.
pub fn all(tests: &Tests, mutants: &[Mutant], jobs: usize, results: &Path) -> Result<()> {
    let known = tests.trace()?;
    let before = fs::read_to_string(results).unwrap_or_default();
    let done: BTreeSet<&str> = before
        .lines()
        .filter_map(|line| line.split('\t').next())
        .collect();
    let left = mutants
        .iter()
        .filter(|mutant| !done.contains(&*mutant.id.to_string()));
    let waiting: Mutex<VecDeque<&Mutant>> = Mutex::new(left.collect());
    let file = Mutex::new(OpenOptions::new().create(true).append(true).open(results)?);
    thread::scope(|scope| {
        let work = || -> Result<()> {
            loop {
                let next = waiting.lock().expect("no job panics").pop_front();
                let Some(mutant) = next else { return Ok(()) };
                let outcome = tests.outcome(&known, mutant.id)?;
                let line = line(mutant, outcome);
                writeln!(file.lock().expect("no job panics"), "{line}")?;
            }
        };
        let running: Vec<_> = (0..jobs).map(|_| scope.spawn(work)).collect();
        running
            .into_iter()
            .try_for_each(|job| job.join().expect("no job panics"))
    })?;
    summary(&fs::read_to_string(results)?);
    Ok(())
}

fn line(mutant: &Mutant, outcome: &str) -> String {
    let Mutant {
        id,
        file,
        line,
        function,
        change,
    } = mutant;
    format!("{id}\t{file}\t{line}\t{function}\t{change}\t{outcome}")
}

fn summary(text: &str) {
    let survives = |line: &&str| !line.ends_with("\tcaught") && !line.ends_with("\ttimed out");
    for line in text.lines().filter(survives) {
        println!("{line}");
    }
    let survivors = text.lines().filter(survives).count();
    println!("{survivors} of {} mutants survive", text.lines().count());
}

impl Tests {
    /// Runs the unchanged tests. The quickest come first.
    fn trace(&self) -> Result<Vec<Known>> {
        let mut known = Vec::new();
        for program in &self.programs {
            let trace = program.with_extension("reached");
            if trace.exists() {
                fs::remove_file(&trace)?;
            }
            let began = Instant::now();
            let mut command = self.command(program);
            let status = command.env("OTTLA_MUTANT_TRACE", &trace).status()?;
            ensure!(status.success(), "{} fails without any change", program.display());
            let reached = fs::read_to_string(&trace).unwrap_or_default();
            known.push(Known {
                program: program.clone(),
                takes: began.elapsed(),
                reaches: reached.lines().filter_map(|id| id.parse().ok()).collect(),
            });
        }
        known.sort_by_key(|known| known.takes);
        Ok(known)
    }

    fn outcome(&self, known: &[Known], id: u32) -> Result<&'static str> {
        let mut outcome = "not reached";
        for known in known.iter().filter(|known| known.reaches.contains(&id)) {
            match self.run(known, id)? {
                End::Failed => return Ok("caught"),
                End::TimedOut => return Ok("timed out"),
                End::Passed => outcome = "survives",
            }
        }
        Ok(outcome)
    }

    fn run(&self, known: &Known, id: u32) -> Result<End> {
        let mut command = self.command(&known.program);
        let mut child = command.env("OTTLA_MUTANT", id.to_string()).spawn()?;
        let until = Instant::now() + PATIENCE + 3 * known.takes;
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(end(status));
            }
            if Instant::now() > until {
                child.kill()?;
                child.wait()?;
                return Ok(End::TimedOut);
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .args(["--test-threads=1", "--quiet"])
            .args(&self.arguments)
            .current_dir(&self.directory)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command
    }
}

fn end(status: ExitStatus) -> End {
    if status.success() {
        End::Passed
    } else {
        End::Failed
    }
}
