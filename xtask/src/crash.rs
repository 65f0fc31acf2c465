//! `cargo xtask crash`: repeated kill -9 under load, then a check of the log.
//!
//! Two idempotent producers write with acks=all, and our transactional one commits and aborts,
//! while the broker is killed at random moments and restarted on the same directory and port. Each
//! keeps a list of what was acknowledged. At the end a reader compares the log with the lists: no
//! acknowledged record is missing, none is duplicated, and the records of each key are in order. A
//! reader of committed records sees every acknowledged transaction, none that was aborted, and no
//! part of one. `--transactional-clients` adds other transactional producers.

use crate::interop::clients::{CLIENTS, Client, Clients};
use crate::interop::server::{Programs, Server, Site, Target};
use crate::interop::toolchain;
use anyhow::{Context, Result, bail, ensure};
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant, SystemTime};

const PARTITIONS: &str = "4";

struct Options {
    rounds: u32,
    target: Target,
    seed: u64,
    /// Those with transactions.
    transactional: Vec<Client>,
}

fn parse(arguments: &[String]) -> Result<Options> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
    let mut options = Options {
        rounds: 50,
        target: Target::Ottla,
        seed: u64::from(now.subsec_nanos()),
        transactional: vec![Client::Ottla],
    };
    for pair in arguments.chunks(2) {
        let [name, value] = pair else {
            bail!("{} wants a value", pair[0])
        };
        match name.as_str() {
            "--rounds" => options.rounds = value.parse().context("--rounds")?,
            "--target" => options.target = Target::parse(value)?,
            "--seed" => options.seed = value.parse().context("--seed")?,
            "--transactional-clients" => {
                for name in value.split(',') {
                    let found = CLIENTS.into_iter().find(|client| client.name() == name);
                    options
                        .transactional
                        .push(found.with_context(|| format!("unknown client {name}"))?);
                }
            }
            _ => bail!("unknown argument {name}"),
        }
    }
    ensure!(options.rounds > 0, "--rounds must be at least 1");
    options.transactional.sort_unstable();
    options.transactional.dedup();
    Ok(options)
}

/// What a producer writes, and so what is checked.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Records,
    Transactions,
}

impl Kind {
    /// The phase of the clients that writes.
    fn load(self) -> &'static str {
        match self {
            Kind::Records => "crash-load",
            Kind::Transactions => "crash-transactions",
        }
    }

    /// The phase of franz-go's client that checks.
    fn check(self) -> &'static str {
        match self {
            Kind::Records => "crash-check",
            Kind::Transactions => "crash-transactions-check",
        }
    }

    /// By how much a list grows between two kills: about 100 records, or 8 transactions.
    fn progress_bytes(self) -> u64 {
        match self {
            Kind::Records => 2000,
            Kind::Transactions => 200,
        }
    }
}

/// A producer that runs through all rounds, ended by closing its standard input.
struct Load {
    name: String,
    kind: Kind,
    child: Child,
    acknowledged: PathBuf,
}

impl Load {
    fn start(
        programs: &Programs,
        clients: &Clients,
        (client, kind): (Client, Kind),
        site: &Site,
    ) -> Result<Load> {
        let name = name_of(client, kind);
        let file = |kind: &str| site.directory.with_file_name(format!("{name}.{kind}"));
        let mut command = clients.command(&programs.kafka, client);
        let topic = topic_of(client, kind);
        let acknowledged = file("acknowledged");
        command
            .args([kind.load(), &site.bootstrap(), &topic, PARTITIONS])
            .arg(&acknowledged);
        command
            .stdin(Stdio::piped())
            .stdout(File::create(file("out"))?)
            .stderr(File::create(file("err"))?);
        let child = command
            .spawn()
            .with_context(|| format!("cannot start the {name} load"))?;
        Ok(Load {
            name,
            kind,
            child,
            acknowledged,
        })
    }

    fn check_running(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("the {} load ended early with {status}", self.name),
        }
    }

    /// The size of its list in bytes; the list has one line for each acknowledged record, or two
    /// for each transaction.
    fn acknowledged_bytes(&self) -> u64 {
        fs::metadata(&self.acknowledged).map_or(0, |metadata| metadata.len())
    }

    fn finish(&mut self) -> Result<()> {
        drop(self.child.stdin.take());
        let asked = Instant::now();
        while asked.elapsed() < Duration::from_secs(120) {
            if let Some(status) = self.child.try_wait()? {
                ensure!(status.success(), "the {} load ended with {status}", self.name);
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        bail!("the {} load does not end", self.name)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn name_of(client: Client, kind: Kind) -> String {
    match kind {
        Kind::Records => client.name().to_owned(),
        Kind::Transactions => format!("{}-transactions", client.name()),
    }
}

fn topic_of(client: Client, kind: Kind) -> String {
    format!("crash-{}", name_of(client, kind))
}

pub fn run(arguments: &[String]) -> Result<()> {
    let options = parse(arguments)?;
    let programs = Programs::prepare(options.target == Target::Ottla)?;
    let clients = Clients::prepare()?;
    // Small segments, so that crashes also happen during rolls and affect indexes of closed
    // segments.
    let site = Site::create(
        "crash",
        &[
            ("log.segment.bytes", "2097152"),
            ("auto.create.topics.enable", "false"),
        ],
    )?;
    println!(
        "{} rounds against {}, seed {}",
        options.rounds,
        options.target.name(),
        options.seed
    );

    let mut producers = vec![(Client::FranzGo, Kind::Records), (Client::Java, Kind::Records)];
    producers.extend(
        options
            .transactional
            .iter()
            .map(|client| (*client, Kind::Transactions)),
    );
    let mut server = site.start(&programs, options.target)?;
    for &(client, kind) in &producers {
        let topic = topic_of(client, kind);
        let create = ["crash-create", &server.bootstrap(), &topic, PARTITIONS];
        let cases = clients.run(&programs.kafka, Client::FranzGo, &create, Duration::from_secs(60))?;
        ensure!(
            cases.values().all(|outcome| outcome.is_ok()) && !cases.is_empty(),
            "creating topics: {cases:?}"
        );
    }
    let mut loads = Vec::new();
    for &producer in &producers {
        loads.push(Load::start(&programs, &clients, producer, &site)?);
    }
    let mut random = options.seed | 1;
    for round in 1..=options.rounds {
        // The moment is random, but each round first waits for new acknowledgements.
        for load in &mut loads {
            wait_for_progress(load, &mut server)?;
        }
        random = xorshift(random);
        std::thread::sleep(Duration::from_millis(random % 700));
        server.kill()?;
        let killed = Instant::now();
        server = site
            .start(&programs, options.target)
            .with_context(|| format!("restart {round}"))?;
        if round % 10 == 0 || round == options.rounds {
            let bytes: Vec<u64> = loads.iter().map(Load::acknowledged_bytes).collect();
            println!(
                "round {round}: up again {} ms after kill -9; bytes of acknowledgement lists {bytes:?}",
                killed.elapsed().as_millis()
            );
        }
    }
    for load in &mut loads {
        wait_for_progress(load, &mut server)?;
        load.finish()?;
    }
    let mut failed = false;
    for (&(client, kind), load) in producers.iter().zip(&loads) {
        let list = load.acknowledged.to_str().context("a path that is not UTF-8")?;
        let topic = topic_of(client, kind);
        let check = [kind.check(), &server.bootstrap(), &topic, PARTITIONS, list];
        let cases = clients.run(&programs.kafka, Client::FranzGo, &check, Duration::from_secs(300))?;
        ensure!(!cases.is_empty(), "the check reported nothing");
        for (name, outcome) in cases {
            failed |= outcome.is_err();
            println!(
                "{}: {name}: {}",
                load.name,
                outcome.err().unwrap_or_else(|| "ok".to_string())
            );
        }
        let details = toolchain::target_directory().join(format!("logs/franz-go-{}.err", kind.check()));
        print!("{}", fs::read_to_string(details).unwrap_or_default());
    }
    server.stop()?;
    ensure!(
        !failed,
        "acknowledged records were lost, duplicated or reordered, or transactions torn (data: {})",
        site.directory.display()
    );
    println!(
        "{} rounds of kill -9: no acknowledged record was lost, none is duplicated, no transaction is torn",
        options.rounds
    );
    Ok(())
}

fn wait_for_progress(load: &mut Load, server: &mut Server) -> Result<()> {
    let before = load.acknowledged_bytes();
    let started = Instant::now();
    while load.acknowledged_bytes() < before + load.kind.progress_bytes() {
        load.check_running()?;
        server.check_alive()?;
        ensure!(
            started.elapsed() < Duration::from_secs(90),
            "the {} load gets no acknowledgements any more",
            load.name
        );
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

fn xorshift(mut state: u64) -> u64 {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    state
}
