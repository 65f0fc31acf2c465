//! What the event loops of Ottla ask of the kernel, traced with strace. While clients write, and
//! read at the end, while topics come and go, and segments are begun, closed and deleted, no call
//! of a loop concerns a file. Of `ottla.durability=disk`, the default.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};

use super::server::{Programs, Site, Target};
use super::table::Table;
use super::toolchain::output_of;

/// Segments of 1 MiB, of which six stay.
const SETTINGS: [(&str, &str); 5] = [
    ("log.segment.bytes", "1048576"),
    ("log.retention.bytes", "6000000"),
    ("log.retention.check.interval.ms", "500"),
    ("log.segment.delete.delay.ms", "500"),
    ("num.partitions", "1"),
];
const WRITTEN: &str = "written";
const PATIENCE: Duration = Duration::from_secs(60);
/// What strace 6.1 calls `cachestat`.
const CACHESTAT: &str = "syscall_0x1c3";

pub fn run(table: &mut Table, programs: &Programs) -> Result<()> {
    let outcome = traced(programs).map_err(|error| format!("{error:#}"));
    table.add_other("no event loop calls a file system", outcome);
    Ok(())
}

fn traced(programs: &Programs) -> Result<()> {
    let site = Site::create("event-loops", &SETTINGS)?;
    let mut server = site.start(programs, Target::Ottla)?;
    let threads = threads(server.pid())?;
    let prefix = site.home().join("trace");
    let strace = attach(server.pid(), &prefix, threads.len())?;
    let load = load(programs, &server.bootstrap(), &site.directory);
    detach(strace)?;
    load?;
    server.check_alive()?;
    server.stop()?;
    judge(&prefix, &threads, &site.directory)?;
    site.remove();
    Ok(())
}

/// Thread numbers and their names.
fn threads(pid: u32) -> Result<BTreeMap<u32, String>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(format!("/proc/{pid}/task"))? {
        let path = entry?.path();
        let number = path.file_name().and_then(|name| name.to_str()?.parse().ok());
        let name = fs::read_to_string(path.join("comm"))?;
        found.insert(number.context("a thread's number")?, name.trim().to_owned());
    }
    Ok(found)
}

/// Returns when all threads are traced.
fn attach(pid: u32, prefix: &Path, threads: usize) -> Result<Child> {
    let mut strace = Command::new("strace")
        .args(["-f", "-ff", "-y", "-qq", "-o"])
        .arg(prefix)
        .args(["-p", &pid.to_string()])
        .stdin(Stdio::null())
        .spawn()
        .context("strace does not start: install it")?;
    let until = Instant::now() + PATIENCE;
    while traces(prefix)?.len() < threads {
        if let Some(status) = strace.try_wait()? {
            bail!("strace ended with {status}: it must be allowed to trace other processes");
        }
        if Instant::now() > until {
            detach(strace)?;
            bail!("strace does not attach to all threads");
        }
        thread::sleep(Duration::from_millis(50));
    }
    Ok(strace)
}

fn detach(mut strace: Child) -> Result<()> {
    let pid = Pid::from_raw(strace.id().try_into()?).context("a process id")?;
    kill_process(pid, Signal::INT)?;
    strace.wait()?;
    Ok(())
}

/// The files that strace writes: one a thread.
fn traces(prefix: &Path) -> Result<Vec<PathBuf>> {
    let home = prefix.parent().expect("in the site's folder");
    let files = fs::read_dir(home)?.map(|entry| Ok(entry?.path()));
    let files: Vec<PathBuf> = files.collect::<Result<_>>()?;
    let is_trace = |path: &PathBuf| path.file_stem() == prefix.file_name();
    Ok(files.into_iter().filter(is_trace).collect())
}

/// Ten segments are written while another client waits for each of its records, a topic is deleted,
/// and so is the first segment.
fn load(programs: &Programs, bootstrap: &str, directory: &Path) -> Result<()> {
    let ottla = programs
        .ottla
        .as_ref()
        .context("the ottla binary was not built")?;
    let perf = |words: &[&str]| {
        Command::new(ottla)
            .args(["perf", words[0], "--bootstrap-server", bootstrap])
            .args(&words[1..])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .context("cannot start ottla perf")
    };
    let size = ["--record-size", "1024"];
    let written = [
        "produce",
        "--topic",
        WRITTEN,
        "--num-records",
        "10000",
        "--throughput",
        "2000",
    ];
    let echoed = [
        "e2e",
        "--topic",
        "echoed",
        "--num-records",
        "500",
        "--producer-acks",
        "all",
    ];
    let mut running = [
        perf(&[&written[..], &size[..]].concat())?,
        perf(&[&echoed[..], &size[..]].concat())?,
    ];
    for child in &mut running {
        let status = child.wait()?;
        ensure!(status.success(), "ottla perf ended with {status}");
    }
    let mut topics = programs.kafka.java(256, "org.apache.kafka.tools.TopicCommand");
    topics.args(["--bootstrap-server", bootstrap, "--delete", "--topic", "echoed"]);
    output_of(&mut topics)?;
    let first = directory.join(format!("{WRITTEN}-0/{:020}.log", 0));
    let deleted = first.with_extension("log.deleted");
    let until = Instant::now() + PATIENCE;
    while first.exists() || deleted.exists() {
        ensure!(Instant::now() < until, "the first segment is not deleted");
        thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

fn judge(prefix: &Path, threads: &BTreeMap<u32, String>, directory: &Path) -> Result<()> {
    let directory = directory.to_string_lossy().into_owned();
    let (mut loops, mut others) = (0, 0);
    for path in traces(prefix)? {
        let number = path.extension().and_then(|number| number.to_str()?.parse().ok());
        let name = number.and_then(|number: u32| threads.get(&number));
        let text = fs::read_to_string(&path)?;
        let of_files = |line: &&str| line.contains(&directory) || line.starts_with(CACHESTAT);
        let of_files: Vec<&str> = text.lines().filter(of_files).collect();
        if name.is_some_and(|name| name.starts_with("ottla-loop")) {
            loops += 1;
            ensure!(text.contains("epoll"), "{} shows nothing", path.display());
            if let Some(line) = of_files.first() {
                bail!("an event loop called {line} ({})", path.display());
            }
        } else {
            others += of_files.len();
        }
    }
    ensure!(loops > 0, "no event loop was traced");
    // Other threads have written, synced and deleted.
    ensure!(others > 100, "only {others} calls of other threads concern files");
    Ok(())
}
