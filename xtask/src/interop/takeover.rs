//! Apache Kafka opens the directory of a stopped Ottla in place, and Ottla opens it again.

use super::clients::{CLIENTS, Client, Clients};
use super::server::{Programs, Server, Site, Target};
use super::table::Table;
use super::toolchain::output_of;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

struct Takeover<'a> {
    programs: &'a Programs,
    clients: &'a Clients,
    site: Site,
}

/// Writes with `first`, reads with Kafka, writes with Kafka, reads with `first` again.
pub fn run(table: &mut Table, programs: &Programs, clients: &Clients, first: Target) -> Result<()> {
    // Small segments, so that there are closed ones with their indexes.
    let site = Site::create("takeover", &[("log.segment.bytes", "1048576")])?;
    let takeover = Takeover {
        programs,
        clients,
        site,
    };
    let outcome = takeover.steps(first, &mut |name, result: Result<()>| {
        println!("takeover: {name}");
        let failed = result.is_err();
        table.add_other(
            format!("takeover: {name}"),
            result.map_err(|error| format!("{error:#}").replace('\n', " ")),
        );
        !failed
    });
    outcome.unwrap_or_else(|error| table.add_other("takeover", Err(format!("{error:#}").replace('\n', " "))));
    Ok(())
}

impl Takeover<'_> {
    fn steps(&self, first: Target, report: &mut dyn FnMut(&str, Result<()>) -> bool) -> Result<()> {
        let kept = self.site.directory.with_file_name("kept");
        let server = self.site.start(self.programs, first)?;
        self.write_everything(&server)
            .context("writing with the first broker")?;
        self.client(
            &server,
            Client::Java,
            &["keep", &server.bootstrap(), path(&kept)?],
        )?;
        let written = fs::read_to_string(&kept)?;
        let records = written.lines().filter(|line| line.starts_with("record ")).count();
        report(
            &format!("{} wrote {records} records, then stopped", first.name()),
            server.stop(),
        );
        report("kafka-dump-log reads every segment and index", self.dump(true));

        let server = self
            .site
            .start(self.programs, Target::Kafka)
            .context("Kafka on the directory")?;
        let checked = self.client(
            &server,
            Client::Java,
            &["check", &server.bootstrap(), path(&kept)?],
        );
        report(
            "Kafka serves every record, topic id, config and committed offset",
            checked,
        );
        let more = self.client(&server, Client::FranzGo, &["more", &server.bootstrap()]);
        report(
            "Kafka takes new records and offsets, a new topic, and deletes one",
            more,
        );
        self.client(
            &server,
            Client::Java,
            &["keep", &server.bootstrap(), path(&kept)?],
        )?;
        report("Kafka stops", server.stop());
        report(
            "kafka-dump-log reads every segment and index again",
            self.dump(false),
        );

        let server = self
            .site
            .start(self.programs, first)
            .context("the first broker, again")?;
        let checked = self.client(
            &server,
            Client::Java,
            &["check", &server.bootstrap(), path(&kept)?],
        );
        report(&format!("{} serves all of it again", first.name()), checked);
        let more = self.client(&server, Client::FranzGo, &["again", &server.bootstrap()]);
        report(
            &format!("{} takes new records, and groups go on", first.name()),
            more,
        );
        report(&format!("{} stops", first.name()), server.stop());
        Ok(())
    }

    fn write_everything(&self, server: &Server) -> Result<()> {
        for client in CLIENTS {
            self.client(server, client, &["write", &server.bootstrap()])?;
        }
        self.client(server, Client::FranzGo, &["fill", &server.bootstrap()])
    }

    fn client(&self, server: &Server, client: Client, arguments: &[&str]) -> Result<()> {
        let cases = self
            .clients
            .run(&self.programs.kafka, client, arguments, Duration::from_secs(180))?;
        ensure!(
            !cases.is_empty(),
            "{} {} reported nothing",
            client.name(),
            arguments[0]
        );
        for (name, outcome) in cases {
            if let Err(reason) = outcome {
                anyhow::bail!(
                    "{} {name}: {reason}; the broker printed: {}",
                    client.name(),
                    last_lines(&server.printed())
                );
            }
        }
        Ok(())
    }

    /// Runs Kafka's own reader over all files of all partitions: batches, CRC, index entries
    /// against the log.
    fn dump(&self, expect_codecs: bool) -> Result<()> {
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.site.directory)? {
            let entry = entry?.path();
            // A deleted topic keeps this name for a minute; its files were never closed.
            let deleted = entry.to_string_lossy().ends_with("-delete");
            if entry.is_dir() && !deleted {
                for file in fs::read_dir(&entry)? {
                    let file = file?.path();
                    let kind = file
                        .extension()
                        .and_then(|kind| kind.to_str())
                        .unwrap_or_default()
                        .to_string();
                    if ["log", "index", "timeindex", "snapshot"].contains(&kind.as_str()) {
                        files.push(file);
                    }
                }
            }
        }
        ensure!(
            files.len() > 20,
            "only {} files under {}",
            files.len(),
            self.site.directory.display()
        );
        files.sort();
        let text = self.dump_files(&files)?;
        for complaint in [
            "Mismatches in",
            "Non-monotonic",
            "out of order",
            "isvalid: false",
            "could not",
            "Found timestamp mismatch",
        ] {
            ensure!(
                !text.contains(complaint),
                "kafka-dump-log says `{complaint}`: {}",
                around(&text, complaint)
            );
        }
        if expect_codecs {
            for codec in super::cases::CODECS {
                ensure!(
                    text.contains(&format!("compresscodec: {codec}")),
                    "no batch with compresscodec {codec}"
                );
            }
        }
        Ok(())
    }

    fn dump_files(&self, files: &[PathBuf]) -> Result<String> {
        let is_index = |file: &&PathBuf| {
            file.extension()
                .is_some_and(|kind| kind == "index" || kind == "timeindex")
        };
        let (indexes, others): (Vec<&PathBuf>, Vec<&PathBuf>) = files.iter().partition(is_index);
        let mut text = String::new();
        for (option, files) in [("--verify-index-only", indexes), ("--deep-iteration", others)] {
            let names: Vec<&str> = files.into_iter().map(|file| path(file)).collect::<Result<_>>()?;
            let mut command = self.programs.kafka.tool("org.apache.kafka.tools.DumpLogSegments");
            command.args([option, "--files", &names.join(",")]);
            text.push_str(&output_of(&mut command).with_context(|| format!("kafka-dump-log {option}"))?);
        }
        Ok(text)
    }
}

fn path(path: &Path) -> Result<&str> {
    path.to_str()
        .with_context(|| format!("{} is not UTF-8", path.display()))
}

fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(8)..].join(" / ")
}

fn around(text: &str, wanted: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let at = lines.iter().position(|line| line.contains(wanted)).unwrap_or(0);
    lines[at.saturating_sub(3)..(at + 3).min(lines.len())].join(" / ")
}
