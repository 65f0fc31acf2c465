//! `cargo xtask memory-pressure`: a broker in a small control group with peers that send half a
//! request and peers that read no answers. The task fails unless the broker survives, stays within
//! its memory limit, and serves all other clients.

mod group;
mod peer;

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use self::group::ControlGroup;
use self::peer::Peer;
use crate::interop::toolchain;

const MIB: u64 = 1 << 20;

const TOPIC: &str = "pressure";

/// An answer copies up to 256 small file ranges: with this many partitions, 4.7 MiB.
const PARTITIONS: i32 = 300;
const RECORD_BYTES: usize = 18_000;

/// The size announced by peers that send only half of it.
const REQUEST_BYTES: usize = 1 << 20;

/// Consecutive requests of peers that read no answers, as far as the broker reads them.
const REQUESTS_IN_A_ROW: usize = 64;

/// The requests of peers that read no answers, in turn.
const KINDS: [&str; 4] = ["fetch", "metadata", "versions", "polls"];

struct Options {
    limit_bytes: u64,
    half: usize,
    unread: usize,
    kinds: Vec<&'static str>,
    seconds: u64,
    more: Vec<String>,
}

fn parse(arguments: &[String]) -> Result<Options> {
    let mut options = Options {
        limit_bytes: 256 * MIB,
        half: 1_000,
        unread: 500,
        kinds: KINDS.to_vec(),
        seconds: 20,
        more: Vec::new(),
    };
    for pair in arguments.chunks(2) {
        let [name, value] = pair else {
            bail!("{} wants a value", pair[0])
        };
        match name.as_str() {
            "--limit-mib" => options.limit_bytes = value.parse::<u64>().context("--limit-mib")? * MIB,
            "--half" => options.half = value.parse().context("--half")?,
            "--unread" => options.unread = value.parse().context("--unread")?,
            "--seconds" => options.seconds = value.parse().context("--seconds")?,
            "--override" => options.more.push(value.clone()),
            "--kinds" => {
                let known = |word: &str| KINDS.into_iter().find(|kind| *kind == word);
                let kinds = value
                    .split(',')
                    .map(|word| known(word).with_context(|| format!("no kind {word}")));
                options.kinds = kinds.collect::<Result<_>>()?;
            }
            _ => bail!("unknown argument {name}"),
        }
    }
    Ok(options)
}

/// A broker, killed when dropped, before its group is removed.
struct Broker {
    child: Child,
    address: SocketAddr,
    admin: String,
    directory: PathBuf,
    group: Option<ControlGroup>,
}

impl Broker {
    fn start(options: &Options) -> Result<Broker> {
        let group = match ControlGroup::make(options.limit_bytes) {
            Ok(group) => Some(group),
            Err(error) => {
                println!(
                    "no control group ({error:#}): the bound is set by queued.max.request.bytes instead, and not enforced"
                );
                None
            }
        };
        let directory = toolchain::target_directory().join("memory-pressure");
        let _ = std::fs::remove_dir_all(&directory);
        std::fs::create_dir_all(&directory)?;
        let ottla = toolchain::build_ottla()?;
        let mut command = match &group {
            Some(group) => group.command(&ottla),
            None => Command::new(ottla),
        };
        command.arg("serve").args([
            "--override",
            &format!("log.dirs={}", directory.join("logs").display()),
        ]);
        for setting in [
            "listeners=PLAINTEXT://127.0.0.1:0",
            "ottla.admin.listener=127.0.0.1:0",
        ] {
            command.args(["--override", setting]);
        }
        if group.is_none() {
            let bytes = options.limit_bytes / 4;
            command.args(["--override", &format!("queued.max.request.bytes={bytes}")]);
            command.args(["--override", &format!("socket.request.max.bytes={}", bytes / 2)]);
        }
        for setting in &options.more {
            command.args(["--override", setting]);
        }
        let log = std::fs::File::create(directory.join("broker.log"))?;
        let mut child = command.stdout(Stdio::piped()).stderr(log).spawn()?;
        let output = child.stdout.take().context("standard output is piped")?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        let word = |start: &str| {
            let rest = line.split(start).nth(1)?;
            rest.split_whitespace().next()
        };
        let mut broker = Broker {
            child,
            address: ([127, 0, 0, 1], 0).into(),
            admin: String::new(),
            directory,
            group,
        };
        broker.address = word("PLAINTEXT://")
            .with_context(|| format!("no ready line: {line:?}"))?
            .parse()?;
        broker.admin = word("admin=http://").context("no admin address")?.to_owned();
        Ok(broker)
    }

    fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// A line of `/proc/<pid>/status`, in bytes.
    fn status_bytes(&self, name: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let kib = line.and_then(|rest| {
            rest.trim_start_matches(':')
                .split_whitespace()
                .next()?
                .parse::<u64>()
                .ok()
        });
        kib.unwrap_or(0) * 1_024
    }

    fn metrics(&self) -> Vec<(String, f64)> {
        let page = ottla_lab::ask::ask(&self.admin, "GET", "/metrics", 64 * MIB).unwrap_or_default();
        let lines = page.lines().filter(|line| {
            [
                "ottla_request_memory",
                "ottla_connections_closed",
                "kafka_server_socketservermetrics_connection_count",
            ]
            .iter()
            .any(|name| line.starts_with(name))
        });
        let value = |line: &str| {
            let (name, value) = line.rsplit_once(' ')?;
            Some((name.to_owned(), value.parse().ok()?))
        };
        lines.filter_map(value).collect()
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(self.directory.join("logs"));
    }
}

/// Durations in microseconds.
#[derive(Clone, Default)]
struct Times(Vec<u64>);

impl Times {
    fn line(&self, name: &str) -> String {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let at = |share: f64| {
            sorted
                .get((sorted.len() as f64 * share) as usize)
                .or(sorted.last())
        };
        let ms = |micros: Option<&u64>| micros.map_or(f64::NAN, |micros| *micros as f64 / 1_000.0);
        format!(
            "{name:28} {:8} times  p50 {:8.2} ms  p99 {:8.2} ms  max {:8.2} ms",
            sorted.len(),
            ms(at(0.5)),
            ms(at(0.99)),
            ms(sorted.last())
        )
    }
}

/// A well-behaved client that repeats its requests until it is stopped.
struct Polite {
    name: &'static str,
    times: Arc<Mutex<[Times; 3]>>,
    stop: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<Result<()>>,
}

const DONE: [&str; 3] = ["produce", "fetch", "connect and ask"];

impl Polite {
    fn start(name: &'static str, address: SocketAddr) -> Polite {
        let times: Arc<Mutex<[Times; 3]>> = Arc::default();
        let stop = Arc::new(AtomicBool::new(false));
        let (noted, stopped) = (times.clone(), stop.clone());
        let thread = std::thread::spawn(move || {
            let mut peer = Peer::connect(address, name)?;
            let (produce, fetch) = (peer.produce("polite", 0..1, 1_000), peer.fetch("polite", 0..1, 0));
            while !stopped.load(Ordering::Relaxed) {
                let began = Instant::now();
                let mut newcomer = Peer::connect(address, name)?;
                let versions = newcomer.versions();
                newcomer.timed(&versions)?;
                let took = [peer.timed(&produce)?, peer.timed(&fetch)?, began.elapsed()];
                let mut times = noted.lock().unwrap_or_else(PoisonError::into_inner);
                for (times, took) in times.iter_mut().zip(took) {
                    times.0.push(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
                }
                drop(times);
                std::thread::sleep(Duration::from_millis(5));
            }
            Ok(())
        });
        Polite {
            name,
            times,
            stop,
            thread,
        }
    }

    /// Prints the durations since the last call.
    fn tell(&self) -> usize {
        let times = std::mem::take(&mut *self.times.lock().unwrap_or_else(PoisonError::into_inner));
        for (what, times) in DONE.iter().zip(&times) {
            println!("  {}", times.line(&format!("{} {what}", self.name)));
        }
        times[0].0.len()
    }

    fn finish(self) -> Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        let outcome = self.thread.join();
        outcome.map_or_else(
            |_| bail!("{} panicked", self.name),
            |outcome| outcome.with_context(|| self.name.to_owned()),
        )
    }
}

pub fn run(arguments: &[String]) -> Result<()> {
    let options = parse(arguments)?;
    let mut broker = Broker::start(&options)?;
    match &broker.group {
        Some(group) => println!(
            "control group of version {}: {} MiB",
            group.version(),
            options.limit_bytes / MIB
        ),
        None => println!("no control group"),
    }
    fill(broker.address)?;
    let polite = ["polite", "hog"].map(|name| Polite::start(name, broker.address));
    tell("before", &mut broker, &polite)?;
    let half = half_sent(&broker, options.half)?;
    tell(
        &format!("{} half-sent requests", half.len()),
        &mut broker,
        &polite,
    )?;
    let unread = unread(&broker, &options)?;
    tell(
        &format!("and {} that read nothing", unread.len()),
        &mut broker,
        &polite,
    )?;
    for _ in 0..options.seconds.div_ceil(5) {
        std::thread::sleep(Duration::from_secs(5));
        tell("five seconds later", &mut broker, &polite)?;
    }
    drop((half, unread));
    std::thread::sleep(Duration::from_secs(2));
    tell("two seconds after all of them left", &mut broker, &polite)?;
    polite.into_iter().try_for_each(Polite::finish)?;
    check_memory(&broker, options.limit_bytes)
}

fn check_memory(broker: &Broker, limit_bytes: u64) -> Result<()> {
    let most = broker.status_bytes("VmHWM");
    ensure!(most < limit_bytes, "the broker took {} MiB", most / MIB);
    let Some(group) = &broker.group else { return Ok(()) };
    if let Some(peak) = group.peak_bytes() {
        println!(
            "the group used {} MiB at most, the page cache among it",
            peak / MIB
        );
    }
    ensure!(
        group.kills().unwrap_or(0) == 0,
        "something in the group was killed because memory was short"
    );
    Ok(())
}

/// Fills two topics: one for well-behaved clients, one whose fetch answers have megabytes.
fn fill(address: SocketAddr) -> Result<()> {
    let mut peer = Peer::connect(address, "setup")?;
    peer.create_topic("polite", 1)?;
    peer.create_topic(TOPIC, PARTITIONS)?;
    for first in (0..PARTITIONS).step_by(20) {
        let frame = peer.produce(TOPIC, first..(first + 20).min(PARTITIONS), RECORD_BYTES);
        peer.send(&frame)?;
        peer.receive()?;
    }
    Ok(())
}

fn half_sent(broker: &Broker, count: usize) -> Result<Vec<Peer>> {
    let start = [
        &(REQUEST_BYTES as u32).to_be_bytes()[..],
        &vec![0; REQUEST_BYTES / 2],
    ]
    .concat();
    let peers = (0..count).map(|_| {
        let mut peer = Peer::connect(broker.address, "hog")?;
        peer.send_some(&start)?;
        Ok(peer)
    });
    peers.collect()
}

fn unread(broker: &Broker, options: &Options) -> Result<Vec<Peer>> {
    let peers = (0..options.unread).map(|number| {
        let mut peer = Peer::connect(broker.address, "hog")?;
        let request = match options.kinds[number % options.kinds.len()] {
            "fetch" => peer.fetch(TOPIC, 0..PARTITIONS, 0),
            "metadata" => peer.metadata(),
            "versions" => peer.versions().repeat(100),
            _ => peer.fetch(TOPIC, 0..PARTITIONS, 600_000),
        };
        peer.send_some(&request.repeat(REQUESTS_IN_A_ROW))?;
        Ok(peer)
    });
    peers.collect()
}

/// Prints the state after a second, in which every well-behaved client must have been served.
fn tell(what: &str, broker: &mut Broker, polite: &[Polite; 2]) -> Result<()> {
    std::thread::sleep(Duration::from_secs(1));
    println!("{what}:");
    ensure!(
        broker.is_alive(),
        "the broker is gone; {}",
        broker.directory.join("broker.log").display()
    );
    let [now, most] = ["VmRSS", "VmHWM"].map(|name| broker.status_bytes(name) / MIB);
    println!("  resident {now} MiB, {most} MiB at most");
    for (name, value) in broker.metrics() {
        println!("  {name} {value}");
    }
    for one in polite {
        let times = one.tell();
        ensure!(times > 0, "{} was not served", one.name);
    }
    // An unrelated client can still connect.
    ensure!(
        TcpStream::connect(broker.address).is_ok(),
        "no connection is taken"
    );
    Ok(())
}
