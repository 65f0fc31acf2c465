//! Kafka Streams with `processing.guarantee=exactly_once_v2`: a word count whose application and
//! whose broker are killed while lines arrive.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::application::Application;
use super::clients::{Client, Clients};
use super::committed::Committed;
use super::server::{Programs, Server, Site, Target};
use super::table::Table;

const LINES: &str = "streams-lines";
const COUNTS: &str = "streams-counts";
const PARTITIONS: i32 = 4;

/// Counts that must be committed between two of the kills.
const COUNTS_MIN: usize = 2_000;

/// A killed member of a group, and a transaction whose producer does not return, are gone soon.
const SETTINGS: [(&str, &str); 2] = [
    ("group.min.session.timeout.ms", "1000"),
    (
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        "1000",
    ),
];

pub fn run(table: &mut Table, programs: &Programs, clients: &Clients, target: Target) -> Result<()> {
    let name = "streams: exactly_once_v2 while the application and the broker are killed";
    let outcome = count_words(programs, clients, target).map_err(|error| format!("{error:#}"));
    println!("{name}: {}", outcome.as_ref().err().map_or("ok", String::as_str));
    table.add_other(name, outcome);
    Ok(())
}

struct Bench<'a> {
    programs: &'a Programs,
    clients: &'a Clients,
    site: Site,
}

impl Bench<'_> {
    fn java(&self, arguments: &[&str]) -> Command {
        let mut command = self.programs.kafka.java(256, "interop.Main");
        command.args([&[arguments[0], &self.site.bootstrap()], &arguments[1..]].concat());
        command
    }

    /// - `state`: the name of its state directory; with another one it is a new process for Kafka
    ///   Streams, with other transactional ids.
    fn application(&self, life: u32, state: &str) -> Result<Application> {
        let state = self.site.home().join(state);
        let state = state.to_str().context("a path that is not UTF-8")?;
        let mut command = self.java(&["word-count", LINES, COUNTS, state]);
        Application::start(&format!("streams-{life}"), &mut command)
    }

    /// Runs a phase that ends by itself.
    fn phase(&self, arguments: &[&str]) -> Result<()> {
        let bootstrap = self.site.bootstrap();
        let arguments = [&[arguments[0], &bootstrap], &arguments[1..]].concat();
        let limit = Duration::from_secs(120);
        let cases = self
            .clients
            .run(&self.programs.kafka, Client::Java, &arguments, limit)?;
        ensure!(!cases.is_empty(), "{} reported nothing", arguments[0]);
        for (name, outcome) in cases {
            outcome.map_err(|reason| anyhow::anyhow!("{name}: {reason}"))?;
        }
        Ok(())
    }
}

fn count_words(programs: &Programs, clients: &Clients, target: Target) -> Result<()> {
    let bench = Bench {
        programs,
        clients,
        site: Site::create("streams", &SETTINGS)?,
    };
    let started = Instant::now();
    let mut server = bench.site.start(programs, target)?;
    bench.phase(&["word-count-topics", LINES, COUNTS])?;
    let mut writer = Application::start("streams-lines", &mut bench.java(&["word-count-lines", LINES]))?;
    let mut counted = Committed::open(&bench.site.bootstrap(), COUNTS, PARTITIONS)?;
    let mut go_on = |writer: &mut Application, application: &mut Application, server: &mut Server| {
        counted.wait_for(COUNTS_MIN, || {
            writer.check_alive()?;
            application.check_alive()?;
            server.check_alive()
        })
    };

    let mut application = bench.application(1, "state")?;
    go_on(&mut writer, &mut application, &mut server)?;
    application.kill()?;
    // It fences the producers of its earlier life.
    let mut application = bench.application(2, "state")?;
    go_on(&mut writer, &mut application, &mut server)?;
    server.kill()?;
    let mut server = bench.site.start(programs, target)?;
    go_on(&mut writer, &mut application, &mut server)?;
    application.kill()?;
    // What the killed one left open times out, and until then its offsets are pending.
    let mut application = bench.application(3, "other-state")?;
    go_on(&mut writer, &mut application, &mut server)?;

    let printed = writer.close()?;
    let lines = printed
        .lines()
        .find_map(|line| line.strip_prefix("lines: "))
        .with_context(|| format!("no number of lines in {printed}"))?;
    bench.phase(&["word-count-check", LINES, COUNTS, lines])?;
    println!(
        "streams: {lines} lines, two kills of the application and one of the broker, {} s",
        started.elapsed().as_secs()
    );
    application.close()?;
    server.stop()
}
