//! The scenario's requirements on the broker's disk: cold topics and slow reads; and which of them
//! could be met.

use std::path::PathBuf;

use super::error::BenchError;
use super::target::{Access, Topics};
use crate::disk::cold;
use crate::disk::read_limit::ReadLimit;
use crate::numbers::{self, number};
use crate::scenario::model::Scenario;

/// In force as long as this lives.
#[derive(Debug, Default)]
pub struct Disk {
    /// The limit ends when this is dropped.
    _limit: Option<ReadLimit>,
    caveats: Vec<String>,
    /// Topics that should be cold and are not.
    reasons: Vec<String>,
}

impl Disk {
    /// Drops the files of cold topics from the page cache, and throttles the broker's reads.
    ///
    /// What this machine does not allow is reported by `caveats` and `reasons`.
    pub fn prepare(scenario: &Scenario, access: &Access, topics: &Topics) -> Disk {
        let mut disk = Disk::default();
        let mut directories = Vec::new();
        for spec in scenario.topics.iter().filter(|spec| spec.cold) {
            match directories_of(&spec.name, access, topics) {
                Ok(found) if found.is_empty() => disk.reasons.push(format!(
                    "{} is not cold: the broker does not say where its files are",
                    spec.name
                )),
                Ok(found) => {
                    disk.drop_from_cache(&spec.name, &found);
                    directories.extend(found);
                }
                Err(error) => disk.reasons.push(format!("{} is not cold: {error}", spec.name)),
            }
        }
        if let Some(bytes_per_second) = scenario.disk.as_ref().map(|disk| disk.read_bytes_per_second)
            && bytes_per_second > 0
        {
            disk.slow_down(scenario, access, topics, directories, bytes_per_second);
        }
        disk
    }

    fn drop_from_cache(&mut self, topic: &str, directories: &[PathBuf]) {
        let bytes: Result<u64, String> = (directories.iter())
            .map(|directory| {
                cold::drop_from_cache(directory).map_err(|error| format!("{}: {error}", directory.display()))
            })
            .sum();
        match bytes {
            Ok(bytes) => self.caveats.push(format!(
                "{topic} is cold: {} were written and dropped from the page cache before the clients began",
                numbers::bytes(bytes as f64)
            )),
            Err(why) => self.reasons.push(format!("{topic} is not cold: {why}")),
        }
    }

    fn slow_down(
        &mut self,
        scenario: &Scenario,
        access: &Access,
        topics: &Topics,
        mut directories: Vec<PathBuf>,
        bytes_per_second: u64,
    ) {
        for spec in &scenario.topics {
            if directories.is_empty() {
                directories = directories_of(&spec.name, access, topics).unwrap_or_default();
            }
        }
        let limited = match (
            process(access),
            directories.first().and_then(|path| path.parent()),
        ) {
            (Some(process), Some(directory)) => ReadLimit::begin(process, directory, bytes_per_second),
            (None, _) => Err(String::from("the broker's process is not known (--broker-pid)")),
            (_, None) => Err(String::from("the broker does not say where its data is")),
        };
        match limited {
            Ok(limit) => {
                self._limit = Some(limit);
                self.caveats.push(format!(
                    "the broker reads at most {} MB/s from its disk, by a control group",
                    number(bytes_per_second as f64 / 1e6)
                ));
            }
            Err(why) => self
                .caveats
                .push(format!("the disk's speed is not limited: {why}")),
        }
    }

    pub fn caveats(&self) -> &[String] {
        &self.caveats
    }

    /// Why the measured setup is not the one that the scenario asks for.
    pub fn reasons(&self) -> &[String] {
        &self.reasons
    }
}

fn process(access: &Access) -> Option<u32> {
    access.process.or(access.is_embedded.then(std::process::id))
}

/// Paths that this process can open: a broker's relative paths are relative to its own working
/// directory.
fn directories_of(topic: &str, access: &Access, topics: &Topics) -> Result<Vec<PathBuf>, BenchError> {
    let from = process(access).map(|process| PathBuf::from(format!("/proc/{process}/cwd")));
    let told = topics.directories(topic)?.into_iter();
    let resolved = told.map(|path| match &from {
        Some(from) => from.join(path),
        None => path,
    });
    Ok(resolved.collect())
}
