//! The tables of configuration keys against Apache Kafka's own definitions, which `cargo xtask
//! golden` fetches.

use std::collections::BTreeMap;

use ottla_wire::config_keys::{
    Allowed, ConfigKey, KAFKA_AUTHORIZER_NAMES, KAFKA_BROKER_NAMES, Scope, Update, find, keys,
};

/// Different defaults, with which a first start works without a file and is not open to the
/// network.
const OTHER_DEFAULTS: [&str; 4] = ["listeners", "log.dir", "node.id", "process.roles"];

/// Keys with values that Apache Kafka refuses only after parsing, or that fail when used.
const NARROWER_RANGES: [&str; 5] = [
    "default.replication.factor",
    "interval.ms",
    "offsets.topic.compression.codec",
    "socket.receive.buffer.bytes",
    "socket.send.buffer.bytes",
];

/// Keys whose ranges Kafka describes only as text; the users of these values check them.
const OTHER_WORDS: [&str; 7] = [
    "authorizer.class.name",
    "controller.quorum.bootstrap.servers",
    "controller.quorum.voters",
    "follower.replication.throttled.replicas",
    "leader.replication.throttled.replicas",
    "match",
    "share.auto.offset.reset",
];

struct Definition {
    value_type: String,
    default: String,
    range: String,
    update: String,
    synonyms: String,
}

fn definitions() -> BTreeMap<(String, String), Definition> {
    let lines = include_str!("golden/config_keys.tsv").lines();
    lines
        .map(|line| {
            let fields: Vec<String> = line.split('\t').map(str::to_owned).collect();
            let [scope, name, value_type, default, range, update, synonyms] =
                <[String; 7]>::try_from(fields).expect("seven fields");
            (
                (scope, name),
                Definition {
                    value_type,
                    default,
                    range,
                    update,
                    synonyms,
                },
            )
        })
        .collect()
}

fn kafka_scope(scope: Scope) -> &'static str {
    match scope {
        Scope::Broker => "broker",
        Scope::Topic => "topic",
        Scope::Group => "group",
        Scope::ClientMetrics => "client-metrics",
    }
}

const SCOPES: [Scope; 4] = [Scope::Broker, Scope::Topic, Scope::Group, Scope::ClientMetrics];

/// Calls `check` for every row that Apache Kafka defines too.
fn check_each(check: impl Fn(&ConfigKey, &Definition)) {
    let definitions = definitions();
    for scope in SCOPES {
        let is_defined =
            |key: &&ConfigKey| !key.name.starts_with("ottla.") && !KAFKA_AUTHORIZER_NAMES.contains(&key.name);
        for key in keys(scope).iter().filter(is_defined) {
            let id = (kafka_scope(scope).to_owned(), key.name.to_owned());
            check(
                key,
                definitions
                    .get(&id)
                    .unwrap_or_else(|| panic!("{} is not Kafka's", key.name)),
            );
        }
    }
}

#[test]
fn names_are_complete() {
    let definitions = definitions();
    let names = |scope: &str| -> Vec<String> {
        definitions
            .keys()
            .filter(|(of, _)| of == scope)
            .map(|(_, name)| name.clone())
            .collect()
    };
    assert_eq!(names("broker"), KAFKA_BROKER_NAMES);
    for scope in [Scope::Topic, Scope::Group, Scope::ClientMetrics] {
        let ours: Vec<&str> = keys(scope).iter().map(|key| key.name).collect();
        assert_eq!(names(kafka_scope(scope)), ours);
    }
}

#[test]
fn types_are_kafkas() {
    check_each(|key, definition| {
        assert_eq!(
            key.value_type.name(),
            definition.value_type.to_lowercase(),
            "{}",
            key.name
        );
    });
}

#[test]
fn defaults_are_kafkas_except_those_for_a_first_start() {
    check_each(|key, definition| {
        let ours = match key.default {
            None => "null".to_owned(),
            Some(text) => format!("={text}"),
        };
        let required_or_other = definition.default == "required" || OTHER_DEFAULTS.contains(&key.name);
        // Without a default or with another one in Kafka: the keys of OTHER_DEFAULTS, and the
        // controller's listener.
        if required_or_other && key.name != "controller.listener.names" {
            assert!(
                OTHER_DEFAULTS.contains(&key.name) && ours != definition.default,
                "{}",
                key.name
            );
        } else if definition.default != "required" {
            assert_eq!(ours, definition.default, "{}", key.name);
        }
    });
}

#[test]
fn ranges_are_kafkas() {
    check_each(|key, definition| {
        if OTHER_WORDS.contains(&key.name) {
            assert!(
                key.allowed == Allowed::Any && !definition.range.is_empty() || key.name == "match",
                "{}",
                key.name
            );
            return;
        }
        let ours = match key.allowed {
            Allowed::Any => String::new(),
            Allowed::AtLeast(minimum) => format!("[{minimum},...]"),
            Allowed::Between(minimum, maximum) => format!("[{minimum},...,{maximum}]"),
            Allowed::BetweenOrMinusOne(minimum, maximum) => format!("[{minimum},...,{maximum}] or -1"),
            Allowed::Within(minimum, maximum) => format!("[{minimum},...,{maximum}]"),
            Allowed::OneOf(words) => format!("[{}]", words.join(", ")),
            Allowed::OneOfIgnoringCase(words) => format!("(case insensitive) [{}]", words.join(", ")),
            other => panic!("{}: {other:?} is for clients", key.name),
        };
        if NARROWER_RANGES.contains(&key.name) {
            assert!(definition.range.is_empty() && !ours.is_empty(), "{}", key.name);
        } else {
            assert_eq!(ours, definition.range, "{}", key.name);
        }
    });
}

#[test]
fn keys_are_dynamic_if_kafkas_are() {
    check_each(|key, definition| {
        let ours = match key.update {
            Update::ReadOnly => "read-only",
            Update::PerBroker => "per-broker",
            Update::ClusterWide => "cluster-wide",
            Update::Dynamic => "",
        };
        assert_eq!(ours, definition.update, "{}", key.name);
    });
}

/// Refused at run time rather than taken without effect: an operator who sets one relies on it.
const REFUSED_AT_RUN_TIME: [&str; 2] = ["config.providers", "cordoned.log.dirs"];

#[test]
fn what_kafka_changes_at_run_time_can_be_changed() {
    let definitions = definitions();
    let dynamic = definitions.iter().filter(|((scope, _), definition)| {
        scope == "broker" && matches!(&*definition.update, "per-broker" | "cluster-wide")
    });
    let unlisted = dynamic
        .map(|((_, name), _)| name.as_str())
        .filter(|name| find(Scope::Broker, name).is_none());
    assert_eq!(unlisted.collect::<Vec<_>>(), REFUSED_AT_RUN_TIME);
}

#[test]
fn synonyms_are_kafkas() {
    check_each(|key, definition| {
        if key.update == Update::Dynamic {
            let ours: Vec<String> = key
                .synonyms
                .iter()
                .map(|synonym| format!("{}={}", synonym.name, synonym.factor))
                .collect();
            assert_eq!(ours.join(","), definition.synonyms, "{}", key.name);
        }
    });
}
