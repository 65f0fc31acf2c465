//! What owners of clients state of their settings, for a client or a pattern of clients: no client
//! pushes its settings, and what is stated is stronger than what was seen or inferred.
//!
//! A key is one of Kafka's (`wire/src/config_keys`), or the name that librdkafka or franz-go has
//! for the same setting (`../names.rs`).

use std::fmt;

use ottla_wire::config_keys::{self, Allowed, ClientKind, ConfigKey, nearest};
use ottla_wire::properties;
use serde_json::{Map, Value};

use super::names::{self, KEYS};
use super::replay::settings::settings;
use super::snapshot::{Settings, Snapshot};

/// Statements in the order in which they were made; a later one wins over an earlier one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Statements(Vec<Statement>);

#[derive(Clone, Debug, PartialEq)]
struct Statement {
    /// A client id, in which `*` stands for any text.
    pattern: String,
    settings: Settings,
}

/// Why a statement is refused: names the key, and what it allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused(String);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refused {}

impl Statements {
    /// Adds one setting.
    ///
    /// - `text`: `CLIENT.key=value`, or `key=value` for all clients.
    /// - Errors: an unknown key, one that the doctor does not use, a value that the key does not
    ///   allow.
    pub fn set(&mut self, text: &str) -> Result<(), Refused> {
        let Some((pattern, key, value)) = split(text) else {
            return Err(of_unknown_key(text));
        };
        let mut stated = Map::new();
        add(&mut stated, key, value)?;
        self.push(pattern.unwrap_or("*"), &stated)
    }

    /// Adds the settings of a client's properties file.
    ///
    /// - `pattern`: the clients that it is of.
    /// - Shape: the keys that are unknown, each with the most similar known one; a client's file
    ///   may hold settings of its application.
    /// - Errors: the file is malformed, a value is none that its key allows.
    pub fn file(&mut self, pattern: &str, text: &str) -> Result<Vec<String>, Refused> {
        let entries = properties::parse(text).map_err(|error| Refused(error.to_string()))?;
        let mut stated = Map::new();
        let mut unknown = Vec::new();
        for (key, value) in &entries {
            if names::is_used(key) {
                add(&mut stated, key, value)?;
            } else if !is_of_kafka(key) {
                unknown.push(format!("{key} is unknown{}", hint(key)));
            }
        }
        self.push(pattern, &stated)?;
        Ok(unknown)
    }

    fn push(&mut self, pattern: &str, stated: &Map<String, Value>) -> Result<(), Refused> {
        self.0.push(Statement {
            pattern: pattern.to_owned(),
            settings: settings(stated).map_err(|error| Refused(error.to_string()))?,
        });
        Ok(())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Replaces what is known of a client's settings by what is stated.
    pub fn apply(&self, snapshot: &mut Snapshot) {
        let of_client = |statement: &&Statement| matches(&statement.pattern, &snapshot.client.client_id);
        let mut stated = Settings::default();
        for statement in self.0.iter().rev().filter(of_client) {
            stated.merge(&statement.settings);
        }
        stated.merge(&snapshot.settings);
        snapshot.settings = stated;
    }
}

/// Splits `CLIENT.key=value`: client ids may hold dots and equals signs themselves, so the key is
/// the longest known one that ends before an equals sign.
fn split(text: &str) -> Option<(Option<&str>, &str, &str)> {
    text.match_indices('=').find_map(|(equals, _)| {
        let (left, value) = (&text[..equals], &text[equals + 1..]);
        let key = names::longest_at_end(left).or_else(|| kafka_key_at_end(left))?;
        let client = left[..left.len() - key.len()].strip_suffix('.');
        Some((client.filter(|client| !client.is_empty()), key, value.trim()))
    })
}

fn kafka_key_at_end(left: &str) -> Option<&str> {
    let keys = config_keys::client_keys().map(|key| key.name);
    let key = keys
        .filter(|key| names::ends_with_key(left, key))
        .max_by_key(|key| key.len())?;
    Some(&left[left.len() - key.len()..])
}

fn of_unknown_key(text: &str) -> Refused {
    let Some((left, _)) = text.split_once('=') else {
        return Refused(format!("{text:?} is not of the form CLIENT.key=value"));
    };
    // The client id may have dots: every tail could be meant as the key.
    let tails = left.match_indices('.').map(|(dot, _)| &left[dot + 1..]);
    let near = std::iter::once(left)
        .chain(tails)
        .find_map(|tail| nearest(tail, names::all()))
        .map_or(String::new(), |near| format!("; {near} may be meant"));
    Refused(format!(
        "{left} does not end with a setting of Kafka's clients{near}"
    ))
}

fn hint(key: &str) -> String {
    let known = config_keys::client_keys().map(|key| key.name);
    match nearest(key, names::all().chain(known)) {
        Some(near) => format!("; {near} may be meant"),
        None => String::new(),
    }
}

fn is_of_kafka(key: &str) -> bool {
    config_keys::client_keys().any(|known| known.name == key)
}

/// Checks a value as its key demands, and adds it by Kafka's name.
fn add(stated: &mut Map<String, Value>, given: &str, value: &str) -> Result<(), Refused> {
    let (name, value) = names::in_kafkas_words(given, value.trim()).map_err(Refused)?;
    if !KEYS.contains(&name) {
        let all = KEYS.join(", ");
        return Err(Refused(format!(
            "{given} is a setting that the doctor does not use; it uses {all}"
        )));
    }
    let key = row(name);
    // librdkafka takes fractions of a millisecond.
    let is_fraction =
        name == "linger.ms" && value.parse().is_ok_and(|ms: f64| (0.0..900_000.0).contains(&ms));
    if !is_fraction {
        config_keys::parse_value(key, &value).map_err(|error| {
            let named = if given == name {
                String::new()
            } else {
                format!("{given}: ")
            };
            let allowed = match key.allowed {
                Allowed::Any => String::new(),
                allowed => format!(" (allowed: {allowed})"),
            };
            Refused(format!("{named}{error}{allowed}"))
        })?;
    }
    stated.insert(name.to_owned(), Value::String(value));
    Ok(())
}

fn row(name: &'static str) -> &'static ConfigKey {
    let of = |kind| config_keys::client_key(kind, name);
    of(ClientKind::Producer)
        .or_else(|| of(ClientKind::Consumer))
        .expect("a test checks that every key has a row")
}

/// Whether the text is the pattern's, in which `*` stands for any text.
fn matches(pattern: &str, text: &str) -> bool {
    let Some((begin, rest)) = pattern.split_once('*') else {
        return pattern == text;
    };
    let Some(mut text) = text.strip_prefix(begin) else {
        return false;
    };
    let mut parts: Vec<&str> = rest.split('*').collect();
    let end = parts.pop().unwrap_or_default();
    for part in parts {
        match text.find(part) {
            Some(at) => text = &text[at + part.len()..],
            None => return false,
        }
    }
    text.ends_with(end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::snapshot::{Codec, Origin, Setting};

    fn stated(texts: &[&str], client_id: &str) -> Settings {
        let mut statements = Statements::default();
        for text in texts {
            statements.set(text).unwrap();
        }
        let mut snapshot = Snapshot::default();
        snapshot.client.client_id = client_id.to_owned();
        snapshot.settings.batch_bytes = Some(Setting {
            value: 16_384.0,
            origin: Origin::Seen,
        });
        statements.apply(&mut snapshot);
        snapshot.settings
    }

    fn value(setting: Option<Setting<f64>>) -> Option<f64> {
        setting.map(|setting| setting.value)
    }

    fn refusal(text: &str) -> String {
        Statements::default().set(text).unwrap_err().to_string()
    }

    #[test]
    fn every_key_that_is_used_has_a_row_and_gives_a_setting() {
        for name in KEYS {
            let key = row(name);
            let value = match (*name, key.allowed) {
                ("partitioner.class", _) => "org.apache.kafka.clients.producer.RoundRobinPartitioner",
                ("compression.type", _) => "lz4",
                ("acks", _) => "1",
                _ => "1000",
            };
            let settings = stated(&[&format!("{name}={value}")], "any");
            let before = stated(&[], "any");
            assert_ne!(settings, before, "{name}");
        }
    }

    #[test]
    fn a_client_id_may_have_dots_and_equals_signs() {
        let settings = stated(&["orders.v1=a.batch.size=4096"], "orders.v1=a");
        assert_eq!(
            settings.batch_bytes,
            Some(Setting {
                value: 4_096.0,
                origin: Origin::Stated
            })
        );
        let other = stated(&["orders.v1=a.batch.size=4096"], "orders.v1");
        assert_eq!(
            other.batch_bytes.map(|setting| setting.origin),
            Some(Origin::Seen)
        );
    }

    #[test]
    fn a_pattern_is_of_many_clients_and_the_last_statement_wins() {
        let texts = ["linger.ms=0.5", "order*-*.linger.ms=5", "orders-7.acks=all"];
        let settings = stated(&texts, "orders-7");
        assert_eq!(value(settings.linger_ms), Some(5.0));
        assert_eq!(settings.acks.map(|acks| acks.value), Some(-1));
        let settings = stated(&texts, "audit");
        assert_eq!((value(settings.linger_ms), settings.acks), (Some(0.5), None));
        for (pattern, text, expected) in [
            ("*", "", true),
            ("a*", "abc", true),
            ("*c", "abc", true),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c", false),
            ("ab*ba", "aba", false),
            ("abc", "abcd", false),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn the_names_of_other_libraries_are_understood() {
        let texts = [
            "queue.buffering.max.kbytes=2048",
            "compression.codec=zstd",
            "fetch.wait.max.ms=250",
            "c.MaxProduceRequestsInflightPerBroker=3",
            "c.ProducerLinger=10ms",
            "c.RequiredAcks=LeaderAck",
        ];
        let settings = stated(&texts, "c");
        assert_eq!(value(settings.buffer_bytes), Some(2.0 * 1_048_576.0));
        assert_eq!(settings.compression.map(|codec| codec.value), Some(Codec::Zstd));
        assert_eq!(value(settings.fetch_max_wait_ms), Some(250.0));
        assert_eq!(
            (value(settings.in_flight), value(settings.linger_ms)),
            (Some(3.0), Some(10.0))
        );
        assert_eq!(settings.acks.map(|acks| acks.value), Some(1));
    }

    #[test]
    fn what_cannot_be_is_refused_with_the_key_and_its_limit() {
        for (text, parts) in [
            ("c.batch.siez=1", ["batch.siez", "batch.size may be meant"]),
            ("c.batch.size=-2", ["batch.size", "at least 0"]),
            ("c.batch.size=much", ["batch.size", "Not a number"]),
            ("c.acks=2", ["acks", "all"]),
            ("c.retries=5", ["retries", "does not use"]),
            ("c.fetch.wait.max.ms=-1", ["fetch.wait.max.ms", "at least 0"]),
            ("c.batch.size", ["c.batch.size", "CLIENT.key=value"]),
            ("c.ProducerLinger=soon", ["ProducerLinger", "soon"]),
        ] {
            let found = refusal(text);
            assert!(parts.iter().all(|part| found.contains(part)), "{text}: {found}");
        }
    }

    #[test]
    fn a_file_holds_other_settings_too() {
        let mut statements = Statements::default();
        let text = "bootstrap.servers=h:1\nretries = 3\nbatch.size=4096\nlinger.mss=5\nour.own=1\n";
        let unknown = statements.file("o*", text).unwrap();
        assert!(
            unknown.len() == 2 && unknown[0].contains("linger.ms may be meant"),
            "{unknown:?}"
        );
        let mut snapshot = Snapshot::default();
        snapshot.client.client_id = "orders".to_owned();
        statements.apply(&mut snapshot);
        assert_eq!(value(snapshot.settings.batch_bytes), Some(4_096.0));
        let refused = statements.file("o*", "max.poll.records=0").unwrap_err();
        assert!(refused.to_string().contains("max.poll.records"), "{refused}");
    }
}
