//! Directories that were formatted but never started, and refused ones: the advice of a refusal
//! must work.

use super::super::server::{Programs, Site, Target};
use super::super::table::Table;
use super::super::tools::{FEATURES, Tools};
use super::{SETTINGS, VERSIONS, Version, contents};
use crate::kafka::Kafka;
use anyhow::{Context, Result, ensure};
use std::fs;

const ADD_ALICE: [&str; 2] = ["--add-scram", "SCRAM-SHA-256=[name=alice,password=alice-secret]"];

fn add(table: &mut Table, name: &str, outcome: Result<()>) {
    println!("directories: {name}");
    let outcome = outcome.map_err(|error| format!("{error:#}").replace('\n', " "));
    table.add_other(format!("directory {name}"), outcome);
}

/// Ottla on a formatted directory shows the same levels and user as Kafka on an equal one.
pub(super) fn never_started(
    table: &mut Table,
    programs: &Programs,
    kafka: &Kafka,
    version: &Version,
    all_quorums: bool,
) {
    // For the newest version a static quorum, which the journeys do not cover.
    let is_newest = version.number == crate::kafka::VERSION;
    for is_static in [false, true] {
        if !all_quorums && is_static != is_newest {
            continue;
        }
        let kafka = if is_static {
            kafka.with_static_voters()
        } else {
            kafka.clone()
        };
        let quorum = if is_static { " for a static quorum" } else { "" };
        let outcome = serves_as_formatted(programs, &kafka);
        let name = format!("formatted by {}{quorum}, never started", version.number);
        add(table, &name, outcome);
    }
}

fn serves_as_formatted(programs: &Programs, kafka: &Kafka) -> Result<()> {
    let mut shown = Vec::new();
    for target in [Target::Kafka, Target::Ottla] {
        let site = Site::create("directory-formatted", &SETTINGS)?;
        kafka.format_with(site.properties(), &ADD_ALICE)?;
        let owner = Programs {
            kafka: kafka.clone(),
            ottla: programs.ottla.clone(),
        };
        shown.push(levels_and_users(&owner, programs, &site, target)?);
        // And back: the version that formatted the directory opens what Ottla wrote.
        if target == Target::Ottla {
            shown.push(levels_and_users(&owner, programs, &site, Target::Kafka)?);
        }
        site.remove();
    }
    ensure!(
        shown[0].iter().any(|line| line.contains("alice")),
        "no user: {:?}",
        shown[0]
    );
    ensure!(
        shown.windows(2).all(|pair| pair[0] == pair[1]),
        "Kafka, Ottla and Kafka again show {shown:#?}"
    );
    Ok(())
}

fn levels_and_users(
    owner: &Programs,
    programs: &Programs,
    site: &Site,
    target: Target,
) -> Result<Vec<String>> {
    let server = site.start(owner, target)?;
    let tools = Tools {
        kafka: &programs.kafka,
        bootstrap: server.bootstrap(),
    };
    let features = tools.run(FEATURES, &["describe"], "")?;
    let finalized = |line: &str| {
        let (name, rest) = line.split_once("SupportedMinVersion")?;
        let (_, level) = rest.split_once("FinalizedVersionLevel:")?;
        let level = level.split("Epoch").next()?;
        // Level 0 is shown only by versions that know the feature.
        (level.trim() != "0").then(|| format!("{} {}", name.trim(), level.trim()))
    };
    let mut lines: Vec<String> = features.lines().filter_map(finalized).collect();
    let users = ["--describe", "--entity-type", "users"];
    lines.extend(tools.run(super::CONFIGS, &users, "")?.lines().map(str::to_owned));
    server.stop()?;
    Ok(lines)
}

/// An unsupported level, how a directory gets it, and its name in a refusal.
struct Unkept {
    name: &'static str,
    version: &'static str,
    release: &'static str,
    level: &'static str,
    settings: &'static [(&'static str, &'static str)],
}

const UNKEPT: [Unkept; 2] = [
    Unkept {
        name: "below",
        version: VERSIONS[0].number,
        release: "3.9",
        level: "metadata.version=21",
        settings: &[],
    },
    Unkept {
        name: "above",
        version: crate::kafka::VERSION,
        release: "4.4-IV0",
        level: "metadata.version=31",
        settings: &[("unstable.feature.versions.enable", "true")],
    },
];

/// Unsupported levels: refused with a message, nothing is changed, and the message's advice works.
pub(super) fn refusals(table: &mut Table, programs: &Programs) -> Result<()> {
    for unkept in &UNKEPT {
        let owner = Programs {
            kafka: match unkept.version {
                crate::kafka::VERSION => programs.kafka.clone(),
                number => Kafka::prepare_version(number)?,
            },
            ottla: programs.ottla.clone(),
        };
        add(
            table,
            &format!(
                "formatted for a level {}: refused, untouched, and formatted again",
                unkept.name
            ),
            refuse_formatted(&owner, unkept),
        );
        add(
            table,
            &format!(
                "at a level {}: refused, untouched, and moved as the refusal says",
                unkept.name
            ),
            refuse_used(&owner, programs, unkept),
        );
    }
    Ok(())
}

/// A directory formatted for an unsupported level.
fn site_of(owner: &Programs, unkept: &Unkept) -> Result<Site> {
    let settings = [&SETTINGS[..], unkept.settings].concat();
    let site = Site::create(&format!("directory-{}", unkept.name), &settings)?;
    let release = ["--release-version", unkept.release];
    owner.kafka.format_with(site.properties(), &release)?;
    Ok(site)
}

/// Starts Ottla, which must exit by itself; returns its output.
fn refusal(programs: &Programs, site: &Site) -> Result<String> {
    let before = contents(&site.directory)?;
    let mut server = site.spawn(programs, Target::Ottla, &[])?;
    let ended = server.wait_ready();
    let said = server.printed();
    ensure!(ended.is_err(), "it was served: {said}");
    let after = contents(&site.directory)?;
    for (path, bytes) in &before {
        ensure!(after.get(path) == Some(bytes), "{} was changed", path.display());
    }
    let new: Vec<_> = after.keys().filter(|path| !before.contains_key(*path)).collect();
    ensure!(new.is_empty(), "{new:?} were written");
    Ok(said)
}

/// Returns the words between the backquotes after `command`.
fn remedy(said: &str, command: &str) -> Result<Vec<String>> {
    let opening = format!("`{command} ");
    let (_, rest) = said
        .split_once(&opening)
        .with_context(|| format!("no {command} in: {said}"))?;
    let (words, _) = rest.split_once('`').context("an open quote")?;
    Ok(words.split(' ').map(str::to_owned).collect())
}

fn refuse_formatted(owner: &Programs, unkept: &Unkept) -> Result<()> {
    let site = site_of(owner, unkept)?;
    let said = refusal(owner, &site)?;
    for part in ["bootstrap.checkpoint", unkept.level] {
        ensure!(said.contains(part), "no `{part}` in: {said}");
    }
    // "empty it, and format it again with ..."
    let words = remedy(&said, "kafka-storage format")?;
    fs::remove_dir_all(&site.directory)?;
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    owner.kafka.format_with(site.properties(), &words)?;
    site.start(owner, Target::Ottla)?.stop()
}

fn refuse_used(owner: &Programs, programs: &Programs, unkept: &Unkept) -> Result<()> {
    let site = site_of(owner, unkept)?;
    site.start(owner, Target::Kafka)?.stop()?;
    let said = refusal(owner, &site)?;
    for part in ["__cluster_metadata-0", unkept.level] {
        ensure!(said.contains(part), "no `{part}` in: {said}");
    }
    // "start apache kafka on it, raise (or try) ..., and stop it with SIGTERM"
    let server = site.start(owner, Target::Kafka)?;
    let words = remedy(&said, "kafka-features --bootstrap-server HOST:PORT")?;
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let tools = Tools {
        kafka: &programs.kafka,
        bootstrap: server.bootstrap(),
    };
    tools.run(FEATURES, &words, "")?;
    server.stop()?;
    site.start(owner, Target::Ottla)?.stop()
}
