//! The settings that a prediction knows, and the syntax of their values.

use std::collections::BTreeMap;

use super::super::quantity::Dimension;
use super::super::{Invalid, assignment, hint};
use crate::doctor::names::KEYS;
use crate::doctor::snapshot::Role;

/// A setting whose effect, or lack of one, is known.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    pub name: &'static str,
    pub role: Role,
    kind: Kind,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Number(Dimension),
    /// `0`, `1`, `-1` or `all`.
    Acks,
    Codec,
}

const fn number(name: &'static str, role: Role, dimension: Dimension) -> Known {
    Known {
        name,
        role,
        kind: Kind::Number(dimension),
    }
}

/// Settings by their Kafka names; plain words for what is not a setting: `threads`, `partitions`,
/// `consumers`.
pub const KNOWN: &[Known] = &[
    number("batch.size", Role::Producer, Dimension::Bytes),
    number("linger.ms", Role::Producer, Dimension::Milliseconds),
    number(
        "max.in.flight.requests.per.connection",
        Role::Producer,
        Dimension::Count,
    ),
    number("send.buffer.bytes", Role::Producer, Dimension::Bytes),
    number("max.request.size", Role::Producer, Dimension::Bytes),
    number("buffer.memory", Role::Producer, Dimension::Bytes),
    number("max.block.ms", Role::Producer, Dimension::Milliseconds),
    number("delivery.timeout.ms", Role::Producer, Dimension::Milliseconds),
    Known {
        name: "acks",
        role: Role::Producer,
        kind: Kind::Acks,
    },
    Known {
        name: "compression.type",
        role: Role::Producer,
        kind: Kind::Codec,
    },
    number("compression.rate", Role::Producer, Dimension::Share),
    number("threads", Role::Producer, Dimension::Count),
    number("partitions", Role::Producer, Dimension::Count),
    number("fetch.min.bytes", Role::Consumer, Dimension::Bytes),
    number("fetch.max.wait.ms", Role::Consumer, Dimension::Milliseconds),
    number("fetch.max.bytes", Role::Consumer, Dimension::Bytes),
    number("max.partition.fetch.bytes", Role::Consumer, Dimension::Bytes),
    number("max.poll.records", Role::Consumer, Dimension::Count),
    number("max.poll.interval.ms", Role::Consumer, Dimension::Milliseconds),
    number("consumers", Role::Consumer, Dimension::Count),
    number("partitions", Role::Consumer, Dimension::Count),
];

/// The requested changes, checked.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Wanted {
    /// By name: the text as given, and its numeric value.
    values: BTreeMap<&'static str, (String, f64)>,
}

impl Wanted {
    pub fn read<S: AsRef<str>>(role: Role, changes: &[S]) -> Result<Wanted, Invalid> {
        if changes.is_empty() {
            return Err(Invalid(String::from(
                "nothing to change: give a setting, such as batch.size=65536",
            )));
        }
        let mut values = BTreeMap::new();
        for change in changes {
            let (name, text) = assignment(change.as_ref())?;
            let known = find(role, name)?;
            let value = read(known, text).map_err(|message| Invalid(format!("{name}: {message}")))?;
            if values.insert(known.name, (text.to_owned(), value)).is_some() {
                return Err(Invalid(format!("{name} is given twice")));
            }
        }
        Ok(Wanted { values })
    }

    pub fn get(&self, name: &str) -> Option<f64> {
        self.values.get(name).map(|value| value.1)
    }

    /// The names with the texts that were given.
    pub fn texts(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.values.iter().map(|(name, value)| (*name, value.0.as_str()))
    }
}

/// Returns a change that [`Wanted::read`] takes as Kafka's clients read it: `linger.ms=20ms` is
/// `linger.ms` and `20`.
///
/// - Returns: `None` for what is no setting of a client (`consumers`), and what cannot be read.
pub fn as_kafka_writes(role: Role, change: &str) -> Option<(&'static str, String)> {
    let (name, text) = assignment(change).ok()?;
    let known = find(role, name).ok()?;
    let value = read(known, text).ok()?;
    let written = match known.kind {
        Kind::Number(_) => value.to_string(),
        Kind::Acks | Kind::Codec => text.to_owned(),
    };
    KEYS.contains(&known.name).then_some((known.name, written))
}

fn find(role: Role, name: &str) -> Result<&'static Known, Invalid> {
    if let Some(known) = KNOWN
        .iter()
        .find(|known| known.role == role && known.name == name)
    {
        return Ok(known);
    }
    let (kind, other) = match role {
        Role::Producer => ("producer", "consumer"),
        Role::Consumer => ("consumer", "producer"),
    };
    if KNOWN.iter().any(|known| known.name == name) {
        return Err(Invalid(format!(
            "{name} is a setting of a {other}; this client is a {kind}"
        )));
    }
    let names: Vec<&str> = KNOWN
        .iter()
        .filter(|known| known.role == role)
        .map(|known| known.name)
        .collect();
    let near = hint(name, names.iter().copied());
    Err(Invalid(format!(
        "{name} is no setting whose effect is known{near}; known are {}",
        names.join(", ")
    )))
}

fn read(known: &Known, text: &str) -> Result<f64, String> {
    match known.kind {
        Kind::Number(dimension) => {
            let value = dimension.parse(text)?;
            let may_be_zero = matches!(
                known.name,
                "linger.ms" | "fetch.max.wait.ms" | "fetch.min.bytes" | "max.block.ms"
            );
            if value <= 0.0 && !may_be_zero {
                return Err(format!("{text} is no value: it must be above 0"));
            }
            Ok(value)
        }
        Kind::Acks => match text {
            "all" | "-1" => Ok(-1.0),
            "0" => Ok(0.0),
            "1" => Ok(1.0),
            _ => Err(format!("{text} is none of all, -1, 0, 1")),
        },
        Kind::Codec => {
            const CODECS: [&str; 5] = ["none", "gzip", "snappy", "lz4", "zstd"];
            match CODECS.iter().position(|codec| *codec == text) {
                Some(place) => Ok(place as f64),
                None => {
                    let near = hint(text, CODECS.iter().copied());
                    Err(format!("{text} is none of {}{near}", CODECS.join(", ")))
                }
            }
        }
    }
}
