//! Reads other tools' files as scenarios: which kind a file is, and which of its fields have no
//! effect here.

mod openmessaging;
mod trogdor;

use std::collections::BTreeMap;

use crate::scenario::error::ScenarioError;
use crate::scenario::model::{Scalar, Scenario};
use crate::scenario::parse::{checked, parse};

/// A scenario made of files that may be another tool's.
#[derive(Clone, Debug, PartialEq)]
pub struct Converted {
    pub scenario: Scenario,
    /// Fields that were read and have no effect, with the reason: for people.
    pub without_effect: Vec<String>,
}

/// A file's text and its name.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    pub text: &'a str,
    pub origin: &'a str,
}

/// Reads a scenario, a Trogdor specification, or an OpenMessaging workload with or without its
/// Kafka driver, in any order.
///
/// - Errors: those of `parse`; a driver without a workload; more files than belong together.
pub fn read(files: &[Source<'_>]) -> Result<Converted, ScenarioError> {
    let converted = match files {
        [only] if is_driver(only) => {
            let message = "a driver of the OpenMessaging Benchmark has no load: name a workload too";
            return Err(ScenarioError::new(only.origin, message));
        }
        [only] if is_trogdor(only) => trogdor::convert(only.text, only.origin)?,
        [only] if is_workload(only) => openmessaging::convert(*only, None)?,
        [only] => {
            return Ok(Converted {
                scenario: parse(only.text, only.origin)?,
                without_effect: Vec::new(),
            });
        }
        [workload, driver] | [driver, workload] if is_driver(driver) && is_workload(workload) => {
            openmessaging::convert(*workload, Some(*driver))?
        }
        [] => return Err(ScenarioError::new("scenario", "no file was named")),
        [first, ..] => {
            let message =
                "several files belong together only if they are an OpenMessaging workload and its driver";
            return Err(ScenarioError::new(first.origin, message));
        }
    };
    // What a file asks for must be possible; errors use the file's own words.
    let origin = files[0].origin;
    Ok(Converted {
        scenario: checked(converted.scenario, origin)?,
        ..converted
    })
}

fn has_key(file: &Source<'_>, key: &str) -> bool {
    file.text.lines().any(|line| {
        line.strip_prefix(key)
            .is_some_and(|rest| rest.trim_start().starts_with(':'))
    })
}

fn is_driver(file: &Source<'_>) -> bool {
    has_key(file, "driverClass")
}

fn is_workload(file: &Source<'_>) -> bool {
    has_key(file, "partitionsPerTopic")
}

fn is_trogdor(file: &Source<'_>) -> bool {
    let first = file
        .text
        .lines()
        .map(str::trim)
        .find(|line| !line.is_empty() && !line.starts_with("//"));
    first.is_some_and(|line| line.starts_with('{')) && file.text.contains("\"class\"")
}

/// Makes a name that topics can be called after.
pub(super) fn name(text: &str) -> String {
    let letters: String = text
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || "-_.".contains(c) {
                c
            } else {
                '-'
            }
        })
        .collect();
    let parts: Vec<&str> = letters.split('-').filter(|part| !part.is_empty()).collect();
    parts.join("-")
}

/// Settings without the cluster's address, which is given on the command line.
pub(super) fn settings(
    of: &[&BTreeMap<String, String>],
    field: &str,
    without_effect: &mut Vec<String>,
) -> BTreeMap<String, Scalar> {
    let mut settings = BTreeMap::new();
    for (key, value) in of.iter().copied().flatten() {
        if key == "bootstrap.servers" {
            without_effect.push(format!(
                "{field}: {key}: the cluster is named on the command line"
            ));
        } else {
            settings.insert(key.clone(), Scalar::Text(value.clone()));
        }
    }
    settings
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORKLOAD: &str = "name: w\ntopics: 1\npartitionsPerTopic: 3\nmessageSize: 100\nsubscriptionsPerTopic: 1\n\
                            producersPerTopic: 1\nconsumerPerSubscription: 1\nproducerRate: 10\ntestDurationMinutes: 1\n";
    const DRIVER: &str =
        "name: Kafka\ndriverClass: io.openmessaging.benchmark.driver.kafka.KafkaBenchmarkDriver\n";

    fn file<'a>(text: &'a str, origin: &'a str) -> Source<'a> {
        Source { text, origin }
    }

    #[test]
    fn every_kind_of_file_is_recognised() {
        let (workload, driver) = (file(WORKLOAD, "w.yaml"), file(DRIVER, "d.yaml"));
        assert_eq!(
            read(&[workload, driver]).unwrap(),
            read(&[driver, workload]).unwrap()
        );
        assert_eq!(read(&[workload]).unwrap().scenario.topics[0].partitions, 3);
        let own = file("topics: [{name: t}]\nproducers: [{rate: 5}]\n", "own.yaml");
        assert_eq!(read(&[own]).unwrap().scenario.name, "own");
        let trogdor = "// a comment\n{\"class\": \"org.apache.kafka.trogdor.workload.RoundTripWorkloadSpec\", \
                       \"durationMs\": 1000, \"targetMessagesPerSec\": 5, \"maxMessages\": 5, \"activeTopics\": {\"t\": {}}}";
        assert_eq!(
            read(&[file(trogdor, "t.json")]).unwrap().scenario.producers[0].rate,
            Some(5.0)
        );
    }

    #[test]
    fn files_that_do_not_belong_together_are_refused() {
        let (workload, driver) = (file(WORKLOAD, "w.yaml"), file(DRIVER, "d.yaml"));
        let why = |files: &[Source<'_>]| read(files).unwrap_err().to_string();
        assert!(why(&[driver]).contains("name a workload too"));
        assert!(why(&[workload, workload]).contains("belong together only"));
        assert!(why(&[]).contains("no file"));
    }

    #[test]
    fn names_are_made_fit_for_topics() {
        assert_eq!(
            name("1 producer / 1 consumers on 1 topic"),
            "1-producer-1-consumers-on-1-topic"
        );
    }
}
