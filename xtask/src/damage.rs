//! `cargo xtask damage`: damages files of directories written by brokers, and starts Ottla on them
//! as a process.
//!
//! Four directories are filled once: by Ottla and by Apache Kafka, each stopped cleanly and killed
//! with signal 9. They hold plain, numbered and transactional records, groups of both protocols,
//! access rules, quotas and users. Each seed copies one of them, damages one file in one way, and
//! runs `ottla_sim`'s trial of a broker: start, read everything, write, kill -9, start, read again.
//! Every second damage is random; the others are chosen ones, each once for every kind of file. The
//! simulation
//! does the same thousands of times faster on a disk in memory (`crates/sim/tests/damage.rs`); this
//! task adds real files, the binary, pipes in place of files, and directories of Apache Kafka.

use crate::interop::server::{Programs, Server, Site, Target};
use anyhow::{Context, Result, bail, ensure};
use ottla_log::disk::damage::{Damage, DamageKind, files_below};
use ottla_log::disk::os::OsDisk;
use ottla_sim::inhabited::{Caller, Expected, access, fill};
use ottla_sim::trial::{Machine, Outcome, Stop, Trial};
use ottla_wire::api_key::ApiKey;
use ottla_wire::frame::{LENGTH_BYTES, RequestHeader};
use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

/// Short housekeeping intervals for the test.
const SETTINGS: &[(&str, &str)] = &[
    ("auto.create.topics.enable", "false"),
    ("offsets.topic.num.partitions", "2"),
    ("log.flush.offset.checkpoint.interval.ms", "300"),
    ("log.flush.start.offset.checkpoint.interval.ms", "300"),
    ("replica.high.watermark.checkpoint.interval.ms", "300"),
    ("log.cleaner.backoff.ms", "300"),
    ("log.retention.check.interval.ms", "1000"),
    ("transaction.state.log.num.partitions", "2"),
    access::SETTINGS[0],
    access::SETTINGS[1],
];

struct Options {
    seeds: u64,
    first: u64,
    written_by: Vec<Target>,
}

fn parse(arguments: &[String]) -> Result<Options> {
    let mut options = Options {
        seeds: 200,
        first: 0,
        written_by: vec![Target::Ottla, Target::Kafka],
    };
    for pair in arguments.chunks(2) {
        let [name, value] = pair else {
            bail!("{} wants a value", pair[0])
        };
        match name.as_str() {
            "--seeds" => options.seeds = value.parse().context("--seeds")?,
            "--from" => options.first = value.parse().context("--from")?,
            "--written-by" => options.written_by = vec![Target::parse(value)?],
            _ => bail!("unknown argument {name}"),
        }
    }
    Ok(options)
}

pub fn run(arguments: &[String]) -> Result<()> {
    let options = parse(arguments)?;
    let programs = Programs::prepare(true)?;
    let mut bases = Vec::new();
    for target in &options.written_by {
        for stop in [Stop::Cleanly, Stop::Killed] {
            println!("filling a directory with {}, stopped {stop:?}", target.name());
            bases.push(Base::fill(&programs, *target, stop)?);
        }
    }
    let mut outcomes: BTreeMap<Outcome, u32> = BTreeMap::new();
    let mut failed = Vec::new();
    let mut unnoticed = 0;
    let started = Instant::now();
    for seed in options.first..options.first + options.seeds {
        // Random damages in the even seeds, chosen ones in the odd ones, each in every directory.
        let (turn, directories) = (seed / 2, bases.len() as u64);
        let base = &bases[(turn % directories) as usize];
        let choice = if seed.is_multiple_of(2) {
            Choice::Random(seed)
        } else {
            Choice::Chosen(turn / directories)
        };
        let trial = base
            .try_damage(&programs, choice)
            .with_context(|| format!("seed {seed}"))?;
        match trial.verdict {
            Ok(outcome) => *outcomes.entry(outcome).or_default() += 1,
            Err(_) if trial.cannot_be_noticed => unnoticed += 1,
            Err(problem) => {
                println!("seed {seed}, {}: {problem}", trial.damage);
                failed.push(seed);
            }
        }
        if (seed + 1) % 100 == 0 {
            println!(
                "{} s, up to seed {seed}: {outcomes:?}",
                started.elapsed().as_secs()
            );
        }
    }
    println!("{outcomes:?}");
    println!("{unnoticed} cannot be noticed: no other file contradicts them (docs/guides/damage.md)");
    ensure!(failed.is_empty(), "{} seeds failed: {failed:?}", failed.len());
    println!(
        "{} damages: none was silent, and none caused a later loss",
        options.seeds
    );
    Ok(())
}

/// Which damage.
#[derive(Clone, Copy)]
enum Choice {
    Random(u64),
    /// By its number among the chosen ones.
    Chosen(u64),
}

/// A directory to be copied and damaged.
struct Base {
    site: Site,
    written_by: Target,
    expected: Expected,
    stop: Stop,
}

/// The outcome of one damage.
struct Tried {
    damage: String,
    /// The damaged files are indistinguishable from files that a broker could have written.
    cannot_be_noticed: bool,
    verdict: Result<Outcome, String>,
}

impl Base {
    fn fill(programs: &Programs, target: Target, stop: Stop) -> Result<Base> {
        let name = format!("damage-{}-{stop:?}", target.name().replace(' ', "-")).to_lowercase();
        let site = Site::create(&name, SETTINGS)?;
        let mut process = Process::new(&site, programs, target);
        process.start().map_err(anyhow::Error::msg)?;
        let expected = fill(&mut process);
        let server = process.server.take().context("it runs")?;
        match stop {
            Stop::Cleanly => server.stop()?,
            Stop::Killed => drop(server.kill()?),
        }
        Ok(Base {
            site,
            written_by: target,
            expected,
            stop,
        })
    }

    fn try_damage(&self, programs: &Programs, choice: Choice) -> Result<Tried> {
        let site = self.site.copy("damaged")?;
        let damage = damage(&site.directory, choice)?;
        let mut process = Process::new(&site, programs, Target::Ottla);
        let verdict = Trial {
            machine: &mut process,
            expected: &self.expected,
            stop: self.stop,
            damage: &damage,
        }
        .run();
        let (by, stop) = (self.written_by.name(), self.stop);
        let by_kafka = self.written_by == Target::Kafka;
        let checkpoint = damage.path.to_string_lossy().ends_with("-offset-checkpoint");
        Ok(Tried {
            // Apache Kafka's checkpoints have no checksum, and after a kill no other file has the
            // log start.
            cannot_be_noticed: checkpoint && by_kafka && self.stop == Stop::Killed,
            damage: format!("written by {by}, stopped {stop:?}, {damage}"),
            verdict,
        })
    }
}

/// Damages a file below `directory`.
fn damage(directory: &Path, choice: Choice) -> Result<Damage> {
    let disk = OsDisk::default();
    let mut damage = match choice {
        Choice::Random(seed) => Damage::choose(&disk, directory, seed)?,
        Choice::Chosen(nth) => Damage::nth_chosen(&disk, directory, nth)?,
    };
    // In place of a regular file there may also be a pipe without a writer.
    if let (Choice::Random(seed), DamageKind::Directory) = (choice, &damage.kind)
        && seed.is_multiple_of(4)
    {
        damage.kind = DamageKind::Pipe;
    }
    match &damage.kind {
        DamageKind::Pipe => {
            fs::remove_file(&damage.path)?;
            let mode = rustix::fs::Mode::from_raw_mode(0o600);
            rustix::fs::mknodat(rustix::fs::CWD, &damage.path, rustix::fs::FileType::Fifo, mode, 0)?;
        }
        DamageKind::DanglingLink => {
            fs::remove_file(&damage.path)?;
            std::os::unix::fs::symlink(directory.join("nowhere"), &damage.path)?;
        }
        _ => damage.apply(&disk)?,
    }
    Ok(damage)
}

/// A broker process, with one connection for all requests.
struct Process<'a> {
    site: &'a Site,
    programs: &'a Programs,
    target: Target,
    server: Option<Server>,
    connection: Option<TcpStream>,
    /// Output of earlier processes.
    printed: String,
}

impl<'a> Process<'a> {
    fn new(site: &'a Site, programs: &'a Programs, target: Target) -> Process<'a> {
        Process {
            site,
            programs,
            target,
            server: None,
            connection: None,
            printed: String::new(),
        }
    }

    fn exchange(&mut self, frame: &[u8]) -> std::io::Result<Vec<u8>> {
        let stream = match &mut self.connection {
            Some(stream) => stream,
            None => {
                let stream = TcpStream::connect(("127.0.0.1", self.site.port))?;
                stream.set_read_timeout(Some(Duration::from_secs(60)))?;
                stream.set_nodelay(true)?;
                self.connection.insert(stream)
            }
        };
        stream.write_all(frame)?;
        let mut length = [0; 4];
        stream.read_exact(&mut length)?;
        let mut answer = vec![0; u32::from_be_bytes(length) as usize];
        stream.read_exact(&mut answer)?;
        Ok(answer)
    }

    fn end(&mut self) {
        self.connection = None;
        if let Some(server) = self.server.take() {
            self.printed.push_str(&server.printed());
            if let Err(error) = server.kill() {
                println!("cannot kill a broker: {error:#}");
            }
        }
    }
}

impl Caller for Process<'_> {
    fn answer(&mut self, api_key: ApiKey, version: i16, body: &[u8]) -> Vec<u8> {
        let (frame, header_bytes) = request_frame(api_key, version, body);
        let answer = self.exchange(&frame);
        let answer = answer.unwrap_or_else(|error| panic!("{api_key} was not answered: {error}"));
        answer[header_bytes..].to_vec()
    }

    fn settle(&mut self) {
        std::thread::sleep(Duration::from_millis(2_500));
    }

    fn pause(&mut self) {
        std::thread::sleep(Duration::from_millis(5));
    }

    fn now_ms(&self) -> i64 {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        now.map_or(0, |now| now.as_millis() as i64)
    }
}

/// Returns the frame, and the length of its answer's header.
fn request_frame(api_key: ApiKey, api_version: i16, body: &[u8]) -> (Vec<u8>, usize) {
    let header = RequestHeader {
        api_key,
        api_version,
        correlation_id: 1,
        client_id: Some("damage"),
    };
    let mut frame = vec![0; LENGTH_BYTES];
    header.encode(&mut frame);
    frame.extend_from_slice(body);
    let length = (frame.len() - LENGTH_BYTES) as u32;
    frame[..LENGTH_BYTES].copy_from_slice(&length.to_be_bytes());
    // A correlation id, and in flexible versions an empty tag section.
    (frame, 4 + usize::from(api_key.is_flexible(api_version)))
}

impl Machine for Process<'_> {
    fn start(&mut self) -> Result<(), String> {
        self.end();
        let spawned = match self.target {
            // Starting Kafka also formats its directory.
            Target::Kafka => self.site.start(self.programs, self.target),
            Target::Ottla => self.site.spawn(self.programs, self.target, &[]),
        };
        let mut server = spawned.map_err(|error| format!("{error:#}"))?;
        let ready = server.wait_ready();
        let printed = server.printed();
        self.server = Some(server);
        ready.map_err(|_| printed)
    }

    fn kill(&mut self) {
        self.end();
    }

    fn loud_lines(&self) -> Vec<String> {
        let now = self.server.as_ref().map(Server::printed).unwrap_or_default();
        let is_loud = |line: &&str| line.contains(" ERROR ") || line.contains(" WARN ");
        let lines = self.printed.lines().chain(now.lines());
        lines.filter(is_loud).map(str::to_owned).collect()
    }

    fn contents(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let files = files_below(&OsDisk::default(), &self.site.directory).unwrap_or_default();
        let read = |path: PathBuf| {
            let is_file = fs::metadata(&path).is_ok_and(|metadata| metadata.is_file());
            let bytes = if is_file {
                fs::read(&path).unwrap_or_default()
            } else {
                Vec::new()
            };
            (path, bytes)
        };
        files.into_iter().map(read).collect()
    }

    fn directory(&self) -> String {
        self.site.directory.display().to_string()
    }
}
