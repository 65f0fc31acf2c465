//! `cargo xtask doctor-truth`: is the doctor right? Clients with a bottleneck that was built, on
//! Ottla and on Apache Kafka; what the doctor says of each, what its change brings, and what the
//! true remedy brings.
//!
//! Results are added to `target/doctor-truth/results.jsonl` as they come, so that an interrupted
//! run keeps what it has and `--resume` measures only what is missing; `--publish` writes
//! docs/measurements/doctor-truth.md from the undisturbed results of one clean commit. With
//! `--strict` it fails when a verdict, a refusal or an alarm of the rows asked for was wrong. With
//! `--lanes 2` each of the brokers is there twice, and all of them are used side by side; of
//! clients in a JVM a broker has as many at a time as the processors have room for.
//!
//! Reading order: the modules below, top to bottom.

mod regimes;
mod stage;
mod trial;
mod score;
mod page;
pub mod feed;
pub mod load;

use std::collections::VecDeque;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, RwLock};
use std::thread;

use anyhow::{Context, Result, bail, ensure};

use crate::bench_kafka::machine;
use crate::interop::clients::{CLIENTS, Client, Clients};
use crate::interop::server::{Programs, Target};
use crate::interop::toolchain;
use regimes::Regime;
use stage::Stage;
use trial::Row;

struct Options {
    only: Vec<String>,
    brokers: Vec<Target>,
    clients: Vec<Client>,
    publish: bool,
    page_only: bool,
    resume: bool,
    strict: bool,
    /// How many of each broker are used side by side.
    lanes: usize,
    command: String,
}

impl Options {
    fn asks_for(&self, row: &Row) -> bool {
        is_wanted(&self.only, &row.regime)
            && self
                .brokers
                .iter()
                .any(|target| trial::broker(*target) == row.broker)
            && self.clients.iter().any(|client| client.name() == row.client)
    }
}

fn parse(arguments: &[String]) -> Result<Options> {
    let mut options = Options {
        only: Vec::new(),
        brokers: vec![Target::Ottla, Target::Kafka],
        clients: CLIENTS.to_vec(),
        publish: false,
        page_only: false,
        resume: false,
        strict: false,
        lanes: 1,
        command: format!("cargo xtask doctor-truth {}", arguments.join(" ")),
    };
    let mut arguments = arguments.iter();
    while let Some(name) = arguments.next() {
        let mut list = || -> Result<Vec<String>> {
            let value = arguments
                .next()
                .with_context(|| format!("{name} wants a value"))?;
            Ok(value.split(',').map(str::to_owned).collect())
        };
        match name.as_str() {
            "--only" => options.only = list()?,
            "--brokers" => {
                options.brokers = list()?
                    .iter()
                    .map(|name| Target::parse(name))
                    .collect::<Result<_>>()?;
            }
            "--clients" => {
                options.clients = list()?.iter().map(|name| client(name)).collect::<Result<_>>()?
            }
            "--lanes" => options.lanes = list()?.concat().parse().context("--lanes")?,
            "--publish" => options.publish = true,
            "--resume" => options.resume = true,
            "--strict" => options.strict = true,
            "--page" => options.page_only = true,
            _ => bail!("unknown argument {name}"),
        }
    }
    Ok(options)
}

fn client(name: &str) -> Result<Client> {
    let found = CLIENTS.into_iter().find(|client| client.name() == name);
    found.with_context(|| format!("--clients knows java, librdkafka, franz-go and ottla, not {name}"))
}

/// `batch*` names all that begin with `batch`.
fn is_wanted(only: &[String], name: &str) -> bool {
    only.is_empty()
        || only.iter().any(|pattern| match pattern.strip_suffix('*') {
            Some(beginning) => name.starts_with(beginning),
            None => name == pattern,
        })
}

fn home() -> PathBuf {
    toolchain::cargo_target().join("doctor-truth")
}

fn page_path() -> PathBuf {
    toolchain::root().join("docs/measurements/doctor-truth.md")
}

pub fn run(arguments: &[String]) -> Result<()> {
    let options = parse(arguments)?;
    let commit = machine::measured_commit()?;
    if options.publish {
        machine::check_publishing(&page_path())?;
    }
    if !options.page_only {
        measure(&options, &commit)?;
    }
    let rows = results(&commit)?;
    ensure!(!rows.is_empty(), "there is no result of commit {commit}");
    println!("{}", score::Score::of(&rows));
    if options.publish {
        ensure!(
            rows.iter().all(|row| !row.is_disturbed()),
            "not published: rows lacked processors; --resume repeats them, with fewer --lanes if they took them from each other"
        );
        let page = page::write(&rows, &commit, &options.command, &machine::describe()?);
        let path = page_path();
        fs::write(&path, &page).with_context(|| format!("writing {}", path.display()))?;
    }
    if options.strict {
        let asked: Vec<Row> = rows.iter().filter(|row| options.asks_for(row)).cloned().collect();
        score::Score::of(&asked).check().context("--strict")?;
    }
    Ok(())
}

fn measure(options: &Options, commit: &str) -> Result<()> {
    let regimes: Vec<Regime> = regimes::all()
        .into_iter()
        .filter(|regime| is_wanted(&options.only, regime.name))
        .collect();
    ensure!(!regimes.is_empty(), "--only names no regime");
    let programs = Programs::prepare(true)?;
    let clients = Clients::prepare()?;
    fs::create_dir_all(home())?;
    let kept: Vec<_> = match options.resume {
        true => results(commit)?
            .iter()
            .filter(|row| row.is_final())
            .map(Row::key)
            .collect(),
        false => Vec::new(),
    };
    let mut lanes = Vec::new();
    for target in &options.brokers {
        let jobs = jobs(options, &regimes, *target, &kept);
        let stages = jobs.len().min(options.lanes);
        let waiting = Arc::new(Mutex::new(Waiting { jobs, jvms: 0 }));
        for number in 0..stages {
            lanes.push((Stage::build(&programs, *target, number)?, Arc::clone(&waiting)));
        }
    }
    let machine = Machine {
        programs: &programs,
        clients: &clients,
        commit,
        jvms_max: jvms_max(options.brokers.len()),
        whole: RwLock::new(()),
        results: Mutex::new(()),
    };
    let machine = &machine;
    thread::scope(|scope| {
        let running: Vec<_> = lanes
            .into_iter()
            .map(|(stage, waiting)| scope.spawn(move || machine.run(stage, &waiting)))
            .collect();
        running
            .into_iter()
            .try_for_each(|lane| lane.join().expect("a lane does not panic"))
    })
}

/// A regime and a client that are to be measured on one broker.
type Job<'a> = (&'a Regime, Client);

fn jobs<'a>(
    options: &Options,
    regimes: &'a [Regime],
    target: Target,
    kept: &[(String, String, String)],
) -> VecDeque<Job<'a>> {
    let here = regimes.iter().filter(|regime| regime.brokers.contains(&target));
    let clients = |regime: &'a Regime| regime.clients.iter().map(move |client| (regime, *client));
    here.flat_map(clients)
        .filter(|(_, client)| options.clients.contains(client))
        .filter(|(regime, client)| !kept.contains(&trial::key(regime, target, *client)))
        .collect()
}

/// What is to be measured on one broker.
struct Waiting<'a> {
    jobs: VecDeque<Job<'a>>,
    /// Clients in a JVM that run now.
    jvms: usize,
}

impl<'a> Waiting<'a> {
    /// Takes the first job that may run beside those that run now.
    fn next(&mut self, jvms_max: usize) -> Option<Job<'a>> {
        let has_room = self.jvms < jvms_max;
        let may_run = |(_, client): &Job<'_>| has_room || !is_in_jvm(*client);
        let job = self.jobs.remove(self.jobs.iter().position(may_run)?)?;
        self.jvms += usize::from(is_in_jvm(job.1));
        Some(job)
    }

    fn done(&mut self, client: Client) {
        self.jvms -= usize::from(is_in_jvm(client));
    }
}

fn is_in_jvm(client: Client) -> bool {
    client == Client::Java
}

/// Clients in a JVM that each of `brokers` has at a time: one for every processor.
fn jvms_max(brokers: usize) -> usize {
    thread::available_parallelism().map_or(1, |processors| (processors.get() / brokers).max(1))
}

/// What the lanes share.
struct Machine<'a> {
    programs: &'a Programs,
    clients: &'a Clients,
    commit: &'a str,
    jvms_max: usize,
    /// Locked for one lane alone by a regime that needs the processors or the disk for itself.
    whole: RwLock<()>,
    results: Mutex<()>,
}

impl Machine<'_> {
    fn run(&self, mut stage: Stage, waiting: &Mutex<Waiting<'_>>) -> Result<()> {
        loop {
            let next = waiting.lock().expect("no lane panics").next(self.jvms_max);
            let Some((regime, client)) = next else {
                return stage.end();
            };
            let mut measure = || {
                trial::run(
                    &mut stage,
                    self.clients,
                    self.programs,
                    regime,
                    client,
                    self.commit,
                )
            };
            let row = if regime.needs_the_machine() {
                let _alone = self.whole.write().expect("no lane panics");
                measure()
            } else {
                let _together = self.whole.read().expect("no lane panics");
                measure()
            };
            waiting.lock().expect("no lane panics").done(client);
            let _one_at_a_time = self.results.lock().expect("no lane panics");
            println!("{}", row.line());
            add(&row)?;
        }
    }
}

fn add(row: &Row) -> Result<()> {
    let path = home().join("results.jsonl");
    let mut file = OpenOptions::new().create(true).append(true).open(path)?;
    writeln!(file, "{}", serde_json::to_string(row)?)?;
    Ok(())
}

/// The newest result of every regime, broker and client of one commit, in the order of the regimes.
fn results(commit: &str) -> Result<Vec<Row>> {
    let path = home().join("results.jsonl");
    let text = match fs::read_to_string(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        read => read.with_context(|| format!("reading {}", path.display()))?,
    };
    let mut newest = std::collections::BTreeMap::new();
    for line in text.lines() {
        let row: Row = serde_json::from_str(line).context("a result")?;
        if row.commit == commit {
            newest.insert(row.key(), row);
        }
    }
    let order: Vec<&str> = regimes::all().iter().map(|regime| regime.name).collect();
    let mut rows: Vec<Row> = newest.into_values().collect();
    rows.sort_by_key(|row| order.iter().position(|name| *name == row.regime));
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_jvm_waits_and_other_clients_do_not() {
        let regimes = regimes::all();
        let regime = &regimes[0];
        let clients = [Client::Java, Client::Java, Client::Ottla];
        let mut waiting = Waiting {
            jobs: clients.map(|client| (regime, client)).into(),
            jvms: 0,
        };
        let mut next = || waiting.next(1).map(|(_, client)| client);
        assert_eq!(
            (next(), next(), next()),
            (Some(Client::Java), Some(Client::Ottla), None)
        );
        waiting.done(Client::Ottla);
        assert!(waiting.next(1).is_none());
        waiting.done(Client::Java);
        assert!(waiting.next(1).is_some());
    }

    #[test]
    fn a_strict_run_judges_the_rows_that_it_was_asked_for() {
        let words = [
            "--strict",
            "--only",
            "batch*",
            "--brokers",
            "ottla",
            "--clients",
            "java",
        ];
        let options = parse(&words.map(str::to_owned)).expect("options");
        assert!(options.strict);
        let row = |regime: &str, broker: &str, client: &str| Row {
            regime: regime.into(),
            broker: broker.into(),
            client: client.into(),
            ..Row::default()
        };
        assert!(options.asks_for(&row("batch-4096", "ottla", "java")));
        assert!(!options.asks_for(&row("skewed", "ottla", "java")));
        assert!(!options.asks_for(&row("batch-4096", "kafka", "java")));
        assert!(!options.asks_for(&row("batch-4096", "ottla", "librdkafka")));
    }
}
