//! Compares settings with Apache Kafka 4.3's own clients: names, defaults, ranges and errors for
//! wrong values.
//! `cargo xtask golden` fetches both files.

use std::collections::BTreeMap;

use ottla_client::config::{AdminConfig, ClientKind, Config, ConsumerConfig, ProducerConfig};
use ottla_wire::config_keys::{Allowed, ConfigKey, client_keys};

fn client(name: &str) -> ClientKind {
    ClientKind::ALL
        .into_iter()
        .find(|client| client.name() == name)
        .unwrap_or_else(|| panic!("{name} is not a client"))
}

/// In the form in which Apache Kafka prints its validators.
fn range(key: &ConfigKey) -> String {
    match key.allowed {
        Allowed::Any | Allowed::NotEmptyList => String::new(),
        Allowed::AtLeast(minimum) => format!("[{minimum},...]"),
        Allowed::Between(minimum, maximum) => format!("[{minimum},...,{maximum}]"),
        Allowed::BetweenOrMinusOne(minimum, maximum) => format!("[{minimum},...,{maximum}] or -1"),
        Allowed::Within(minimum, maximum) => format!("[{minimum:?},...,{maximum:?}]"),
        Allowed::OneOf(words) => format!("[{}]", words.join(", ")),
        Allowed::Either(one, other) => format!("[{one}, {other}]"),
        Allowed::OneOfIgnoringCase(words) => format!("(case insensitive) [{}]", words.join(", ")),
        Allowed::NotEmpty => "non-empty string".to_owned(),
        Allowed::OffsetReset => "[latest, earliest, none, by_duration:PnDTnHnMn.nS]".to_owned(),
    }
}

fn default(key: &ConfigKey) -> String {
    match key.default {
        _ if key.is_required => "required".to_owned(),
        None => "null".to_owned(),
        Some(text) => format!("={text}"),
    }
}

#[test]
fn every_key_has_kafkas_type_default_and_range() {
    let mut theirs = BTreeMap::new();
    for line in include_str!("golden/config_keys.tsv").lines() {
        let columns: Vec<&str> = line.split('\t').collect();
        // Java prints the classes of a list with the word before them.
        let facts = [columns[2], columns[3], columns[4]]
            .join("\t")
            .replace("class org.", "org.");
        theirs.insert((client(columns[0]), columns[1]), facts);
    }
    let mut ours = BTreeMap::new();
    for key in client_keys().filter(|key| !key.is_ours) {
        for client in key.clients {
            let value_type = key.value_type.name().to_uppercase();
            let facts = [value_type, default(key), range(key)].join("\t");
            assert!(
                ours.insert((*client, key.name), facts).is_none(),
                "{} occurs twice",
                key.name
            );
        }
    }
    for (name, facts) in &theirs {
        assert_eq!(ours.get(name), Some(facts), "{name:?}");
    }
    assert_eq!(ours.len(), theirs.len());
}

/// What Apache Kafka does and this client does not, or does later: it resolves host names when it
/// reads the settings, and it has the group protocol `consumer`.
const OTHERWISE: [&str; 1] = ["No resolvable bootstrap urls given in bootstrap.servers"];

#[test]
fn wrong_values_give_kafkas_errors() {
    let mut compared = 0;
    for line in include_str!("golden/config_texts.tsv").lines() {
        let columns: Vec<&str> = line.split('\t').collect();
        let (client, expected, settings) = (client(columns[0]), columns[1], &columns[2..]);
        if OTHERWISE.contains(&expected) {
            continue;
        }
        let mut config = Config::new();
        for setting in settings {
            let (key, value) = setting.split_once('=').expect("key=value");
            config = config.set(key, value);
        }
        let made = match client {
            ClientKind::Producer => ProducerConfig::from_config(&config).err(),
            ClientKind::Consumer => ConsumerConfig::from_config(&config).err(),
            ClientKind::Admin => AdminConfig::from_config(&config).err(),
        };
        let said = made.map_or("ok".to_owned(), |error| error.to_string());
        assert_eq!(said, expected, "{settings:?}");
        compared += 1;
    }
    assert!(compared > 100, "{compared}");
}
