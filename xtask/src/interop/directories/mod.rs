//! Directories that Apache Kafka 4.x formats by default: filled with every kind of data, stopped or
//! killed, opened and served by Ottla, and opened by Apache Kafka again.
//!
//! Kafka's admin client must get the same answers before and after, and every record of groups that
//! Ottla does not serve must be unchanged, even after Ottla has compacted the offsets topic.

mod formatted;
mod latest;

use super::clients::{Client, Clients};
use super::server::{Programs, Server, Site, Target};
use super::table::Table;
use super::tools::{CONFIGS, Tools};
use crate::kafka::Kafka;
use anyhow::{Context, Result, ensure};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A version, and its kinds of groups besides classic and consumer groups.
struct Version {
    number: &'static str,
    kinds: &'static [&'static str],
}

const KINDS: &[&str] = &["share", "streams"];

/// The newest patch of each minor version; of 4.3 the one that the rest of the suite uses.
const VERSIONS: [Version; 4] = [
    Version {
        number: "4.0.2",
        kinds: &[],
    },
    Version {
        number: "4.1.2",
        kinds: &[],
    },
    Version {
        number: "4.2.1",
        kinds: KINDS,
    },
    Version {
        number: crate::kafka::VERSION,
        kinds: KINDS,
    },
];

/// The oldest and the newest: versions between them differ only in levels.
const IN_EVERY_RUN: [&str; 2] = ["4.0.2", crate::kafka::VERSION];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stop {
    Clean,
    Kill,
}

impl Stop {
    fn name(self) -> &'static str {
        match self {
            Stop::Clean => "stopped",
            Stop::Kill => "killed",
        }
    }

    fn stop(self, server: Server) -> Result<()> {
        match self {
            Stop::Clean => server.stop(),
            Stop::Kill => server.kill().map(drop),
        }
    }
}

/// Share groups keep their state in a topic whose defaults need three brokers. Members of a killed
/// process block others until their session expires.
const SETTINGS: [(&str, &str); 5] = [
    ("share.coordinator.state.topic.replication.factor", "1"),
    ("share.coordinator.state.topic.min.isr", "1"),
    ("share.coordinator.state.topic.num.partitions", "5"),
    ("group.consumer.min.session.timeout.ms", "30000"),
    ("group.consumer.session.timeout.ms", "30000"),
];

/// Lets Ottla compact recent records.
const COMPACT_SOON: [&str; 2] = [
    "log.cleaner.backoff.ms=100",
    "log.flush.offset.checkpoint.interval.ms=200",
];

pub fn run(table: &mut Table, programs: &Programs, clients: &Clients, all_versions: bool) -> Result<()> {
    let started = Instant::now();
    let is_wanted = |version: &&Version| all_versions || IN_EVERY_RUN.contains(&version.number);
    for version in VERSIONS.iter().filter(is_wanted) {
        let kafka = match version.number {
            crate::kafka::VERSION => programs.kafka.clone(),
            number => Kafka::prepare_version(number)?,
        };
        for stop in [Stop::Clean, Stop::Kill] {
            // A static quorum (kraft.version 0) in one of the two directories of the oldest
            // version.
            let is_oldest = version.number == IN_EVERY_RUN[0];
            let kafka = match stop {
                Stop::Kill if is_oldest => kafka.with_static_voters(),
                _ => kafka.clone(),
            };
            // To save time, of the oldest version only the one with the static quorum is run.
            if all_versions || !is_oldest || stop == Stop::Kill {
                Journey::begin(programs, clients, kafka, version, stop)?.run(table);
            }
        }
        formatted::never_started(table, programs, &kafka, version, all_versions);
    }
    formatted::refusals(table, programs)?;
    println!("directories: {} s", started.elapsed().as_secs());
    Ok(())
}

/// One directory on its way from Kafka to Ottla and back.
struct Journey<'a> {
    programs: &'a Programs,
    clients: &'a Clients,
    /// The version that formats the directory and opens it again at the end; clients and tools are
    /// the
    /// suite's.
    owner: Programs,
    kinds: &'a [&'static str],
    stop: Stop,
    site: Site,
    name: String,
}

/// The state before Ottla opened the directory.
struct Before {
    facts: Vec<String>,
    offsets: latest::Latest,
    /// Files of topics that Ottla must not write.
    foreign_topics: BTreeMap<PathBuf, Vec<u8>>,
}

impl<'a> Journey<'a> {
    fn begin(
        programs: &'a Programs,
        clients: &'a Clients,
        owner: Kafka,
        version: &'a Version,
        stop: Stop,
    ) -> Result<Journey<'a>> {
        let name = format!("{} {}", version.number, stop.name());
        Ok(Journey {
            programs,
            clients,
            owner: Programs {
                kafka: owner,
                ottla: None,
            },
            kinds: version.kinds,
            stop,
            site: Site::create(&format!("directory-{}", name.replace(' ', "-")), &SETTINGS)?,
            name,
        })
    }

    fn run(&self, table: &mut Table) {
        let mut report = |name: &str, outcome: Result<()>| {
            println!("directories: {}: {name}", self.name);
            let outcome = outcome.map_err(|error| format!("{error:#}").replace('\n', " "));
            table.add_other(format!("directory of {}: {name}", self.name), outcome);
        };
        if let Err(error) = self.steps(&mut report) {
            report("every step", Err(error));
        }
    }

    fn steps(&self, report: &mut dyn FnMut(&str, Result<()>)) -> Result<()> {
        let before = self.use_by_kafka().context("using it with Kafka")?;
        let server = self
            .site
            .start_with(self.programs, Target::Ottla, &COMPACT_SOON)
            .context("Ottla on the directory")?;
        report("Ottla names what is open", self.check_warnings(&server));
        report(
            "Ottla shows what Kafka showed",
            self.same_facts(&server, &before, Target::Ottla),
        );
        self.clients_do(&server, "visit", self.kinds)
            .into_iter()
            .for_each(|(name, outcome)| report(&format!("Ottla: {name}"), outcome));
        report("Ottla compacts the offsets topic", self.compact(&server));
        self.stop.stop(server)?;
        report(
            "records of other protocols are what they were",
            self.check_records(&before),
        );

        let server = self
            .site
            .start(&self.owner, Target::Kafka)
            .context("Kafka on the directory")?;
        report(
            "Kafka shows what it showed",
            self.same_facts(&server, &before, Target::Kafka),
        );
        self.clients_do(&server, "go-on", self.kinds)
            .into_iter()
            .for_each(|(name, outcome)| report(&format!("Kafka: {name}"), outcome));
        server.stop()
    }

    fn use_by_kafka(&self) -> Result<Before> {
        let server = self.site.start(&self.owner, Target::Kafka)?;
        for (name, outcome) in self.clients_do(&server, "use", self.kinds) {
            outcome.context(name)?;
        }
        let facts = self.facts(&server, "before", self.kinds)?;
        self.stop.stop(server)?;
        let offsets = latest::latest(&self.site.directory, "__consumer_offsets")?;
        let left = latest::left_to_compact(&self.site.directory, "__consumer_offsets")?;
        ensure!(left > 0, "Kafka has left nothing to compact");
        let mut types: Vec<i16> = offsets.keys().map(|key| latest::record_type(key)).collect();
        types.dedup();
        for (is_there, wanted) in [
            (true, &[1, 2, 3, 5, 6, 7, 8, 16][..]),
            (self.kinds.contains(&"share"), &[10, 11, 12, 13, 14, 15]),
            (self.kinds.contains(&"streams"), &[17, 19, 20, 21, 22, 23]),
        ] {
            for record_type in wanted.iter().filter(|_| is_there) {
                ensure!(types.contains(record_type), "no record of type {record_type}");
            }
        }
        Ok(Before {
            facts,
            offsets,
            foreign_topics: self.foreign_topics()?,
        })
    }

    fn foreign_topics(&self) -> Result<BTreeMap<PathBuf, Vec<u8>>> {
        let mut contents = BTreeMap::new();
        for segment in latest::segments(&self.site.directory, "__share_group_state")? {
            contents.insert(segment.clone(), fs::read(&segment)?);
        }
        // Versions without share groups by default have nothing of them to keep.
        ensure!(
            !self.kinds.contains(&"share") || contents.values().any(|bytes| !bytes.is_empty()),
            "__share_group_state is empty: there is nothing to keep"
        );
        Ok(contents)
    }

    /// Runs one phase of the Java client and returns its cases.
    fn clients_do(&self, server: &Server, phase: &str, more: &[&str]) -> Vec<(String, Result<()>)> {
        self.client_does(Client::Java, server, phase, more)
    }

    fn client_does(
        &self,
        client: Client,
        server: &Server,
        phase: &str,
        more: &[&str],
    ) -> Vec<(String, Result<()>)> {
        let bootstrap = server.bootstrap();
        let arguments = [&[phase, &bootstrap], more].concat();
        let limit = Duration::from_secs(180);
        let cases = self.clients.run(&self.programs.kafka, client, &arguments, limit);
        match cases {
            Err(error) => vec![(phase.to_owned(), Err(error))],
            Ok(cases) if cases.is_empty() => {
                let silent = anyhow::anyhow!("it reported nothing; the broker printed: {}", server.printed());
                vec![(phase.to_owned(), Err(silent))]
            }
            Ok(cases) => cases
                .into_iter()
                .map(|(name, outcome)| (name, outcome.map_err(anyhow::Error::msg)))
                .collect(),
        }
    }

    /// The answers to an admin client, without the changes made by this journey itself.
    fn facts(&self, server: &Server, name: &str, kinds: &[&str]) -> Result<Vec<String>> {
        let file = self.site.directory.with_file_name(format!("facts-{name}"));
        let file = file.to_str().context("the target directory is not UTF-8")?;
        for (name, outcome) in self.clients_do(server, "facts", &[&[file], kinds].concat()) {
            outcome.context(name)?;
        }
        let text = fs::read_to_string(file)?;
        let is_ours = |line: &&str| !line.contains("visit") && !line.contains("-gone");
        // The setting that makes Ottla compact soon stays.
        let is_kept =
            |line: &&str| !line.contains("segment.ms=") && !line.contains("min.cleanable.dirty.ratio=");
        Ok(text
            .lines()
            .filter(is_ours)
            .filter(is_kept)
            .map(str::to_owned)
            .collect())
    }

    fn same_facts(&self, server: &Server, before: &Before, target: Target) -> Result<()> {
        let kinds = match target {
            Target::Ottla => &[][..],
            Target::Kafka => self.kinds,
        };
        // Ottla does not report share groups, and shows unknown settings without their values.
        let is_kafkas =
            |line: &str| line.starts_with("share ") || line.contains(" remote.fetch.max.wait.ms=");
        let is_compared = |line: &&String| target == Target::Kafka || !is_kafkas(line);
        let facts = self.facts(server, "after", kinds)?;
        let facts: Vec<&String> = facts.iter().filter(is_compared).collect();
        let expected: Vec<&String> = before.facts.iter().filter(is_compared).collect();
        for line in &expected {
            ensure!(facts.contains(line), "no longer: {line}");
        }
        for line in &facts {
            ensure!(expected.contains(line), "was not there before: {line}");
        }
        Ok(())
    }

    fn check_warnings(&self, server: &Server) -> Result<()> {
        let printed = server.printed();
        for (topic, words) in [
            ("topic=transactional partition=0", "first_offset=28"),
            ("topic=__consumer_offsets ", "first_offset="),
        ] {
            let is_named = |line: &str| {
                [
                    "a transaction is open",
                    "producer_id=",
                    "since_unix_ms=",
                    topic,
                    words,
                ]
                .iter()
                .all(|part| line.contains(part))
            };
            ensure!(
                printed.lines().any(is_named),
                "no warning about {topic} in: {printed}"
            );
        }
        Ok(())
    }

    /// Closes the segments of the offsets topic by age and waits until Ottla has compacted them.
    fn compact(&self, server: &Server) -> Result<()> {
        let tools = Tools {
            kafka: &self.programs.kafka,
            bootstrap: server.bootstrap(),
        };
        let settings = "segment.ms=100,min.cleanable.dirty.ratio=0";
        let offsets = ["--entity-type", "topics", "--entity-name", "__consumer_offsets"];
        tools.run(
            CONFIGS,
            &[&["--alter", "--add-config", settings], &offsets[..]].concat(),
            "",
        )?;
        for (name, outcome) in self.clients_do(server, "commit-everywhere", &[]) {
            outcome.context(name)?;
        }
        let asked = Instant::now();
        loop {
            let left = latest::left_to_compact(&self.site.directory, "__consumer_offsets")?;
            if left == 0 {
                return Ok(());
            }
            ensure!(
                asked.elapsed() < Duration::from_secs(100),
                "{left} superseded records or partitions without a closed segment"
            );
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    fn check_records(&self, before: &Before) -> Result<()> {
        let mut deleted = vec!["modern-gone"];
        if self.kinds.contains(&"streams") {
            deleted.push("streams-gone");
        }
        let after = latest::latest(&self.site.directory, "__consumer_offsets")?;
        latest::check_kept(&before.offsets, &after, &deleted)?;
        let topics = self.foreign_topics()?;
        for (segment, bytes) in &before.foreign_topics {
            ensure!(
                topics.get(segment) == Some(bytes),
                "{} was changed",
                segment.display()
            );
        }
        ensure!(
            topics.len() == before.foreign_topics.len(),
            "there are segments that were not there before"
        );
        Ok(())
    }
}

/// Returns every file below a directory with its contents, except files that exist only while a
/// process uses the directory.
pub(super) fn contents(directory: &Path) -> Result<BTreeMap<PathBuf, Vec<u8>>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(contents(&path)?);
        } else if path.file_name().is_some_and(|name| name != ".lock") {
            found.insert(path.clone(), fs::read(&path)?);
        }
    }
    Ok(found)
}
