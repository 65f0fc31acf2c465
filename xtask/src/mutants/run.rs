//! Builds the tests once, and runs those that reach a mutant for each of them.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::rewrite::Mutant;

/// A mutant may make a test wait for ever: this long, and three times what the test takes.
const PATIENCE: Duration = Duration::from_secs(6);

/// A program of tests, and the folder of its crate, where it runs.
#[derive(Clone)]
pub struct Program {
    path: PathBuf,
    directory: PathBuf,
}

/// One test, what it reaches and how long it takes.
struct Test {
    program: Program,
    name: String,
    takes: Duration,
    reaches: BTreeSet<u32>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Passed,
    Failed,
    TimedOut,
}

/// The test programs of the packages. Some optimization is worth its time: tests run often.
pub fn build(source: &Path, target: &Path, packages: &[String]) -> Result<Vec<Program>> {
    let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["test", "--no-run", "--message-format=json"])
        .args(packages.iter().flat_map(|package| ["--package", package]))
        .current_dir(source)
        .env("CARGO_TARGET_DIR", target)
        .env("CARGO_PROFILE_DEV_OPT_LEVEL", "1")
        .env("CARGO_PROFILE_DEV_DEBUG", "false")
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
        let path = PathBuf::from(message["executable"].as_str().filter(|_| is_test)?);
        let manifest = Path::new(message["manifest_path"].as_str()?);
        let directory = manifest.parent()?.to_owned();
        Some(Program { path, directory })
    });
    Ok(programs.collect())
}

/// Runs all mutants that have no result in the file yet, adds theirs, and prints a summary.
pub fn all(
    programs: &[Program],
    skipped: &[String],
    mutants: &[Mutant],
    jobs: usize,
    results: &Path,
) -> Result<()> {
    let tests = trace_all(programs, skipped, jobs)?;
    let before = fs::read_to_string(results).unwrap_or_default();
    let done: BTreeSet<&str> = before
        .lines()
        .filter_map(|line| line.split('\t').next())
        .collect();
    let left = mutants
        .iter()
        .filter(|mutant| !done.contains(&*mutant.id.to_string()));
    let file = Mutex::new(OpenOptions::new().create(true).append(true).open(results)?);
    in_parallel(jobs, left, |mutant| {
        let line = line(mutant, outcome(&tests, mutant.id)?);
        writeln!(file.lock().expect("no job panics"), "{line}").context("results")
    })?;
    summary(&fs::read_to_string(results)?);
    Ok(())
}

/// Does something with each item, several at a time; what it gives comes in any order.
fn in_parallel<T: Send, R: Send>(
    jobs: usize,
    items: impl Iterator<Item = T> + Send,
    act: impl Fn(T) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let items = Mutex::new(items);
    let results = Mutex::new(Vec::new());
    let work = || -> Result<()> {
        loop {
            let next = items.lock().expect("no job panics").next();
            let Some(item) = next else { return Ok(()) };
            let result = act(item)?;
            results.lock().expect("no job panics").push(result);
        }
    };
    thread::scope(|scope| {
        let running: Vec<_> = (0..jobs).map(|_| scope.spawn(work)).collect();
        running
            .into_iter()
            .try_for_each(|job| job.join().expect("no job panics"))
    })?;
    Ok(results.into_inner().expect("no job panics"))
}

fn line(mutant: &Mutant, outcome: &str) -> String {
    format!("{}\t{outcome}", place(mutant))
}

fn place(mutant: &Mutant) -> String {
    let Mutant {
        id,
        file,
        line,
        function,
        change,
    } = mutant;
    format!("{id}\t{file}\t{line}\t{function}\t{change}")
}

fn is_noticed(line: &str) -> bool {
    line.ends_with("\tcaught") || line.ends_with("\ttimed out")
}

/// Leaves the results of those that a test noticed, if the sources are still those of that run.
pub fn keep_noticed(results: &Path, mutants: &[Mutant]) -> Result<()> {
    let text = fs::read_to_string(results).context("no results to go on with")?;
    let places: BTreeSet<String> = mutants.iter().map(place).collect();
    let mut kept = String::new();
    for line in text.lines() {
        let place = line.rsplit_once('\t').map_or(line, |(place, _)| place);
        ensure!(places.contains(place), "the sources have changed since: {line}");
        if is_noticed(line) {
            kept.push_str(line);
            kept.push('\n');
        }
    }
    fs::write(results, kept).context("results")
}

fn summary(text: &str) {
    for line in text.lines().filter(|line| !is_noticed(line)) {
        println!("{line}");
    }
    let survivors = text.lines().filter(|line| !is_noticed(line)).count();
    println!("{survivors} of {} mutants survive", text.lines().count());
}

/// Runs the unchanged tests, each by itself. The quickest come first.
fn trace_all(programs: &[Program], skipped: &[String], jobs: usize) -> Result<Vec<Test>> {
    let mut names = Vec::new();
    for program in programs {
        let wanted = |name: &String| !skipped.iter().any(|part| name.contains(part.as_str()));
        names.extend(
            program
                .tests()?
                .into_iter()
                .filter(wanted)
                .map(|name| (program, name)),
        );
    }
    let known = in_parallel(jobs, names.iter(), |(program, name)| program.trace(name))?;
    let mut known: Vec<Test> = known
        .into_iter()
        .filter(|test| !test.reaches.is_empty())
        .collect();
    known.sort_by_key(|test| test.takes);
    let time: Duration = known.iter().map(|test| test.takes).sum();
    println!(
        "{} of {} tests reach a mutant, {time:.1?} in all",
        known.len(),
        names.len()
    );
    Ok(known)
}

/// Tests end at the first one that fails.
fn outcome(tests: &[Test], id: u32) -> Result<&'static str> {
    let mut outcome = "not reached";
    for test in tests.iter().filter(|test| test.reaches.contains(&id)) {
        match test.run(id)? {
            End::Failed => return Ok("caught"),
            End::TimedOut => return Ok("timed out"),
            End::Passed => outcome = "survives",
        }
    }
    Ok(outcome)
}

impl Program {
    /// The names of its tests, without those that only run on demand.
    fn tests(&self) -> Result<Vec<String>> {
        let ignored = self.listed(&["--ignored"])?;
        let mut names = self.listed(&[])?;
        names.retain(|name| !ignored.contains(name));
        Ok(names)
    }

    fn listed(&self, more: &[&str]) -> Result<Vec<String>> {
        let output = Command::new(&self.path)
            .args(["--list", "--format=terse"])
            .args(more)
            .current_dir(&self.directory)
            .output()?;
        let text = String::from_utf8(output.stdout)?;
        let names = text.lines().filter_map(|line| line.strip_suffix(": test"));
        Ok(names.map(str::to_owned).collect())
    }

    fn trace(&self, name: &str) -> Result<Test> {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let trace = self.path.with_extension(format!("{number}.reached"));
        let began = Instant::now();
        let mut command = self.command(name);
        let status = command.env("OTTLA_MUTANT_TRACE", &trace).status()?;
        let takes = began.elapsed();
        ensure!(
            status.success(),
            "{name} of {} fails without any change",
            self.path.display()
        );
        // A test that reaches no mutant writes no file.
        let reached = match fs::read_to_string(&trace) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            reached => {
                fs::remove_file(&trace).context("the trace of a test")?;
                reached.context("the trace of a test")?
            }
        };
        Ok(Test {
            program: self.clone(),
            name: name.to_owned(),
            takes,
            reaches: reached.lines().filter_map(|id| id.parse().ok()).collect(),
        })
    }

    fn command(&self, name: &str) -> Command {
        let mut command = Command::new(&self.path);
        command
            .args(["--test-threads=1", "--quiet", "--exact", name])
            .current_dir(&self.directory)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command
    }
}

impl Test {
    fn run(&self, id: u32) -> Result<End> {
        let mut command = self.program.command(&self.name);
        let mut child = command.env("OTTLA_MUTANT", id.to_string()).spawn()?;
        let until = Instant::now() + PATIENCE + 3 * self.takes;
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(end(status));
            }
            if Instant::now() > until {
                child.kill()?;
                child.wait()?;
                return Ok(End::TimedOut);
            }
            thread::sleep(Duration::from_millis(2));
        }
    }
}

fn end(status: ExitStatus) -> End {
    if status.success() {
        End::Passed
    } else {
        End::Failed
    }
}
