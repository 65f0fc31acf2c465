//! `--only settings`: every setting of a broker that Apache Kafka's own table calls dynamic, with
//! right and wrong values, for one broker and for all, validated only and set, on Ottla and on
//! Apache Kafka.
//!
//! Both run on copies of a directory of Apache Kafka, with its feature levels. The error codes
//! count, and afterwards what DescribeConfigs shows: the value, where it is from, whether it is
//! secret, and whether it can be changed.

use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use ottla_wire::api_key::ApiKey;
use ottla_wire::frame::decode_response_header;
use ottla_wire::messages::describe_configs::{
    DescribeConfigsRequest, DescribeConfigsResource, DescribeConfigsResponse,
};
use ottla_wire::messages::incremental_alter_configs::{
    AlterConfigsResource, AlterableConfig, IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse,
};
use ottla_wire::primitives::Reader;

use super::refusals::{Ask, answer};
use super::server::{Programs, Server, Site, Target, copy_directory};
use super::table::Table;

/// Apache Kafka's definitions: scope, name, type, default, range, and when it can be changed.
const DEFINITIONS: &str = include_str!("../../../crates/wire/tests/golden/config_keys.tsv");
/// Far more than Apache Kafka needs until its broker follows its controller.
const PATIENCE: Duration = Duration::from_secs(20);

const BROKER: i8 = 4;
const SET: i8 = 0;
const DELETE: i8 = 1;
/// The broker's own settings, and those of all brokers.
const RESOURCES: [&str; 2] = ["1", ""];

const NOT_SERVED: &str = "Ottla does not serve it: a value would have no effect";
const NO_CLASSES: &str = "Ottla has no Java classes, and takes any name";
const NO_TIERS: &str =
    "Ottla has no tiered storage, and compares local with total retention only at the topic";
const ONE_LISTENER: &str = "Ottla's TLS is set for one listener at a time: \
    a general setting would change every listener at once";
const ALWAYS_SHOWN: &str = "Ottla shows the default, too; Apache Kafka shows the key only where it is set";

/// The settings that differ on purpose, and why.
const DIFFERENCES: [(&str, &str); 17] = [
    ("config.providers", NOT_SERVED),
    ("cordoned.log.dirs", NOT_SERVED),
    ("metric.reporters", NO_CLASSES),
    ("principal.builder.class", NO_CLASSES),
    ("log.local.retention.ms", NO_TIERS),
    ("follower.replication.throttled.rate", ALWAYS_SHOWN),
    ("leader.replication.throttled.rate", ALWAYS_SHOWN),
    ("replica.alter.log.dirs.io.max.bytes.per.second", ALWAYS_SHOWN),
    ("ssl.cipher.suites", ONE_LISTENER),
    ("ssl.client.auth", ONE_LISTENER),
    ("ssl.enabled.protocols", ONE_LISTENER),
    ("ssl.endpoint.identification.algorithm", ONE_LISTENER),
    ("ssl.keymanager.algorithm", ONE_LISTENER),
    ("ssl.protocol", ONE_LISTENER),
    ("ssl.provider", ONE_LISTENER),
    ("ssl.secure.random.implementation", ONE_LISTENER),
    ("ssl.trustmanager.algorithm", ONE_LISTENER),
];

/// A setting as Apache Kafka defines it.
struct Setting {
    name: &'static str,
    value_type: &'static str,
    /// `None`: null.
    default: Option<&'static str>,
    range: &'static str,
}

pub fn run(table: &mut Table, programs: &Programs) -> Result<()> {
    let (ottla, kafka) = (
        Site::create("settings-ottla", &[])?,
        Site::create("settings-kafka", &[])?,
    );
    kafka.start(programs, Target::Kafka)?.stop()?;
    copy_directory(&kafka.directory, &ottla.directory)?;
    let servers = [
        ottla.start(programs, Target::Ottla)?,
        kafka.start(programs, Target::Kafka)?,
    ];
    let settings = settings()?;
    println!("settings: {} on both brokers", settings.len());
    let mut used = BTreeSet::new();
    for setting in &settings {
        let differences = compare([ottla.port, kafka.port], setting).with_context(|| setting.name)?;
        let known = DIFFERENCES.iter().find(|(name, _)| *name == setting.name);
        let outcome = match (known, differences.is_empty()) {
            (_, true) => Ok(()),
            (Some((name, _)), false) => {
                used.insert(*name);
                Ok(())
            }
            (None, false) => Err(differences.join("; ")),
        };
        println!(
            "settings: {}: {}",
            setting.name,
            outcome.as_ref().err().map_or("ok", String::as_str)
        );
        table.add_other(format!("settings: {}", setting.name), outcome);
    }
    for (name, why) in DIFFERENCES.iter().filter(|(name, _)| !used.contains(name)) {
        let outcome = Err(format!("is not there any more: {why}"));
        table.add_other(format!("settings: the difference in {name}"), outcome);
    }
    servers.into_iter().try_for_each(Server::stop)
}

/// Every dynamic setting of a broker.
fn settings() -> Result<Vec<Setting>> {
    let mut settings = Vec::new();
    for line in DEFINITIONS.lines() {
        let columns: Vec<&str> = line.split('\t').collect();
        let [scope, name, value_type, default, range, update, ..] = columns[..] else {
            continue;
        };
        if scope == "broker" && update != "read-only" {
            settings.push(Setting {
                name,
                value_type,
                default: default.strip_prefix('='),
                range,
            });
        }
    }
    ensure!(settings.len() > 90, "{} dynamic settings", settings.len());
    Ok(settings)
}

impl Setting {
    /// Lowest and highest number, or the words of a list.
    fn bounds(&self) -> Vec<&'static str> {
        let inner = self
            .range
            .strip_prefix('[')
            .and_then(|rest| rest.split(']').next());
        inner.map_or_else(Vec::new, |inner| inner.split(',').map(str::trim).collect())
    }

    /// A right value that is not the default, and wrong ones.
    fn values(&self) -> Vec<String> {
        let mut values = match self.value_type {
            "BOOLEAN" => vec![(self.default != Some("true")).to_string(), "maybe".to_owned()],
            "SHORT" | "INT" | "LONG" => self.numbers(),
            // Apache Kafka shows a number as Java writes it: a whole one would be shown as 1.0.
            "DOUBLE" => vec!["0.7".to_owned(), "many".to_owned(), "-0.5".to_owned()],
            _ => {
                let other = self.bounds().into_iter().find(|word| Some(*word) != self.default);
                let mut words = vec![other.unwrap_or("some.value").to_owned()];
                words.extend(other.map(|_| "nonsense".to_owned()));
                words
            }
        };
        values.push(String::new());
        values
    }

    fn numbers(&self) -> Vec<String> {
        let bounds: Vec<Option<i64>> = self.bounds().iter().map(|bound| bound.parse().ok()).collect();
        let lowest = bounds.first().copied().flatten();
        let highest = bounds.last().copied().flatten();
        let default: i64 = self
            .default
            .and_then(|text| text.parse().ok())
            .unwrap_or(1_000_000);
        let right = match default {
            1_000_000_000.. => default - 1,
            -1 => lowest.unwrap_or(1).max(1) + 1,
            _ if highest.is_some_and(|highest| default >= highest) => default - 1,
            _ => default + 1,
        };
        let mut values = vec![right.to_string(), "many".to_owned()];
        values.extend(lowest.map(|lowest| (lowest - 1).to_string()));
        values.extend(highest.map(|highest| (highest + 1).to_string()));
        values
    }
}

/// Sets and removes every value on both brokers, Ottla first; returns what differs.
fn compare(ports: [u16; 2], setting: &Setting) -> Result<Vec<String>> {
    let mut differences = Vec::new();
    for resource in RESOURCES {
        for value in setting.values() {
            for is_validated_only in [true, false] {
                let alter = |port| alter(port, resource, setting.name, Some(&value), is_validated_only);
                let [ottla, kafka] = [alter(ports[0])?, alter(ports[1])?];
                if ottla != kafka {
                    let step = if is_validated_only { "validated" } else { "set" };
                    differences.push(format!(
                        "{value:?} {step} for {resource:?}: Kafka: {kafka}; Ottla: {ottla}"
                    ));
                }
            }
            let step = format!("{value:?} for {resource:?}");
            differences.extend(described(ports, setting.name, &step, differences.is_empty())?);
        }
        let remove = |port| alter(port, resource, setting.name, None, false);
        let [ottla, kafka] = [remove(ports[0])?, remove(ports[1])?];
        if ottla != kafka {
            differences.push(format!(
                "removed for {resource:?}: Kafka: {kafka}; Ottla: {ottla}"
            ));
        }
        let step = format!("removed for {resource:?}");
        differences.extend(described(ports, setting.name, &step, differences.is_empty())?);
    }
    Ok(differences)
}

/// Waits until both brokers show the same, for long only where nothing has differed yet; returns
/// what differs.
fn described(ports: [u16; 2], name: &str, step: &str, is_patient: bool) -> Result<Option<String>> {
    let began = Instant::now();
    let patience = if is_patient { PATIENCE } else { Duration::ZERO };
    loop {
        let [ottla, kafka] = [describe(ports[0], name)?, describe(ports[1], name)?];
        if ottla == kafka {
            return Ok(None);
        }
        if began.elapsed() > patience {
            return Ok(Some(format!("{step}: Kafka shows {kafka}; Ottla shows {ottla}")));
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// Returns the error code.
fn alter(port: u16, resource: &str, name: &str, value: Option<&str>, validate_only: bool) -> Result<i16> {
    let request = IncrementalAlterConfigsRequest {
        resources: vec![AlterConfigsResource {
            resource_type: BROKER,
            resource_name: resource,
            configs: vec![AlterableConfig {
                name,
                config_operation: if value.is_some() { SET } else { DELETE },
                value,
            }],
        }],
        validate_only,
    };
    let mut body = Vec::new();
    request.encode(&mut body, 1);
    let frame = answer(port, &Ask::new(ApiKey::IncrementalAlterConfigs, 1, body))?;
    let mut reader = Reader::new(&frame);
    decode_response_header(&mut reader, ApiKey::IncrementalAlterConfigs, 1)?;
    let response = IncrementalAlterConfigsResponse::decode(&mut reader, 1)?;
    let result = response.responses.first().context("an answer without a result")?;
    Ok(result.error_code)
}

/// Returns what both resources show of a setting; ports are left out, as each broker has its own.
fn describe(port: u16, name: &str) -> Result<String> {
    let request = DescribeConfigsRequest {
        resources: RESOURCES
            .map(|resource_name| DescribeConfigsResource {
                resource_type: BROKER,
                resource_name,
                configuration_keys: Some(vec![name]),
            })
            .into(),
        ..Default::default()
    };
    let mut body = Vec::new();
    request.encode(&mut body, 4);
    let frame = answer(port, &Ask::new(ApiKey::DescribeConfigs, 4, body))?;
    let mut reader = Reader::new(&frame);
    decode_response_header(&mut reader, ApiKey::DescribeConfigs, 4)?;
    let response = DescribeConfigsResponse::decode(&mut reader, 4)?;
    let mut shown = Vec::new();
    for result in &response.results {
        ensure!(result.error_code == 0, "{name}: {:?}", result.error_message);
        for config in &result.configs {
            let value = config.value.map(without_digits);
            shown.push(format!(
                "{:?} {value:?} from {}, secret {}, read-only {}",
                result.resource_name, config.config_source, config.is_sensitive, config.read_only
            ));
        }
    }
    Ok(shown.join(" and "))
}

/// Leaves the ports out of addresses.
fn without_digits(value: &str) -> String {
    match value.contains("://") {
        true => value.chars().filter(|letter| !letter.is_ascii_digit()).collect(),
        false => value.to_owned(),
    }
}
