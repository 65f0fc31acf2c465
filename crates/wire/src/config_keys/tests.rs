//! Consistency of the tables, and parsing of hostile values.

use super::*;

const SCOPES: [Scope; 4] = [Scope::Broker, Scope::Topic, Scope::Group, Scope::ClientMetrics];

fn all() -> impl Iterator<Item = (Scope, &'static ConfigKey)> {
    SCOPES
        .into_iter()
        .flat_map(|scope| keys(scope).iter().map(move |key| (scope, key)))
}

#[test]
fn tables_are_in_the_order_of_names() {
    for scope in SCOPES {
        for pair in keys(scope).windows(2) {
            assert!(
                pair[0].name < pair[1].name,
                "{} after {}",
                pair[1].name,
                pair[0].name
            );
        }
    }
    assert!(KAFKA_BROKER_NAMES.is_sorted());
}

#[test]
fn every_topic_key_of_kafka_is_there() {
    assert_eq!(TOPIC_KEYS.len(), 34);
}

#[test]
fn broker_keys_are_kafkas_or_ours() {
    for key in BROKER_KEYS {
        let is_kafkas =
            KAFKA_BROKER_NAMES.binary_search(&key.name).is_ok() || KAFKA_AUTHORIZER_NAMES.contains(&key.name);
        assert!(is_kafkas != key.name.starts_with("ottla."), "{}", key.name);
    }
}

#[test]
fn every_default_is_a_value_of_its_key() {
    for (_, key) in all() {
        if let Some(default) = key.default {
            // An empty address switches the admin port off; an empty list is a list.
            parse_value(key, default).unwrap_or_else(|error| panic!("{error}"));
        }
    }
}

#[test]
fn synonyms_are_broker_keys_of_the_same_kind() {
    for (_, key) in all() {
        for synonym in key.synonyms {
            let broker = broker_key(synonym.name).map(|key| key.value_type);
            let is_share_or_streams = ["group.share.", "group.streams."]
                .iter()
                .any(|p| synonym.name.starts_with(p));
            assert!(
                broker == Some(key.value_type)
                    || broker == Some(ValueType::Int) && synonym.factor > 1
                    || is_share_or_streams && KAFKA_BROKER_NAMES.contains(&synonym.name),
                "{} from {}",
                key.name,
                synonym.name
            );
        }
    }
}

#[test]
fn synonyms_agree_on_the_default() {
    for key in TOPIC_KEYS {
        let first_set = key
            .synonyms
            .iter()
            .find_map(|synonym| Some((synonym, broker_key(synonym.name)?.default?)));
        let Some((synonym, default)) = first_set else {
            continue;
        };
        let own = key.default.expect("a topic key with synonyms has a default");
        match own.parse::<i64>() {
            Ok(number) => assert_eq!(
                default.parse::<i64>().unwrap() * synonym.factor,
                number,
                "{}",
                key.name
            ),
            Err(_) => assert_eq!(own, default, "{}", key.name),
        }
    }
}

#[test]
fn honoured_or_not_every_key_is_described() {
    for (_, key) in all() {
        assert!(key.doc.ends_with('.') && key.doc.len() > 15, "{}", key.name);
        assert!(
            !key.doc.contains('|') && !key.cost.is_some_and(|cost| cost.ends_with('.')),
            "{}",
            key.name
        );
    }
}

#[track_caller]
fn check_value(scope: Scope, name: &str, text: &str, expected: ConfigValue) {
    assert_eq!(parse_value(find(scope, name).unwrap(), text), Ok(expected));
}

#[track_caller]
fn check_error(scope: Scope, name: &str, text: &str, expected: &str) {
    assert_eq!(
        parse_value(find(scope, name).unwrap(), text)
            .unwrap_err()
            .to_string(),
        expected
    );
}

#[test]
fn values_are_read_as_kafka_reads_them() {
    check_value(Scope::Topic, "retention.ms", " -1 ", ConfigValue::Long(-1));
    check_value(
        Scope::Topic,
        "segment.bytes",
        "1048576",
        ConfigValue::Int(1 << 20),
    );
    check_value(
        Scope::Topic,
        "min.cleanable.dirty.ratio",
        "0.25",
        ConfigValue::Double(0.25),
    );
    check_value(Scope::Topic, "preallocate", "TRUE", ConfigValue::Boolean(true));
    check_value(Scope::Topic, "compression.gzip.level", "-1", ConfigValue::Int(-1));
    // Stored by an older Kafka; another reading would delete a compacted topic's records.
    check_value(
        Scope::Topic,
        "cleanup.policy",
        "compact,",
        ConfigValue::List(vec!["compact".to_owned()]),
    );
    let both = vec!["compact".to_owned(), "delete".to_owned()];
    check_value(
        Scope::Topic,
        "cleanup.policy",
        "compact, delete",
        ConfigValue::List(both),
    );
    check_value(
        Scope::Broker,
        "log.dirs",
        "/a,/b",
        ConfigValue::List(vec!["/a".to_owned(), "/b".to_owned()]),
    );
    check_value(
        Scope::Broker,
        "ottla.durability",
        "page-cache",
        ConfigValue::String("page-cache".to_owned()),
    );
}

#[test]
fn errors_name_what_is_allowed() {
    let topic = Scope::Topic;
    check_error(
        topic,
        "retention.ms",
        "-2",
        "Invalid value -2 for configuration retention.ms: Value must be at least -1",
    );
    check_error(
        topic,
        "retention.ms",
        "1d",
        "Invalid value 1d for configuration retention.ms: Not a number of type LONG",
    );
    check_error(
        topic,
        "segment.bytes",
        "3000000000",
        "Invalid value 3000000000 for configuration segment.bytes: Not a number of type INT",
    );
    check_error(
        topic,
        "compression.gzip.level",
        "0",
        "Invalid value 0 for configuration compression.gzip.level: Value must be between 1 and 9 or equal to -1",
    );
    check_error(
        topic,
        "min.cleanable.dirty.ratio",
        "1.5",
        "Invalid value 1.5 for configuration min.cleanable.dirty.ratio: Value must be no more than 1.0",
    );
    check_error(
        topic,
        "min.cleanable.dirty.ratio",
        "NaN",
        "Invalid value NaN for configuration min.cleanable.dirty.ratio: Not a number of type DOUBLE",
    );
    check_error(
        topic,
        "preallocate",
        "yes",
        "Invalid value yes for configuration preallocate: Expected value to be either true or false",
    );
    check_error(
        topic,
        "cleanup.policy",
        "purge",
        "Invalid value purge for configuration cleanup.policy: String must be one of: compact, delete",
    );
    check_error(
        topic,
        "cleanup.policy",
        "delete,delete",
        "Invalid value delete,delete for configuration cleanup.policy: 'delete' occurs twice",
    );
}

#[test]
fn unknown_keys_are_told_from_keys_without_effect() {
    assert!(matches!(broker_key_status("log.dirs"), BrokerKeyStatus::Listed(key) if key.is_honoured()));
    assert!(
        matches!(broker_key_status("num.io.threads"), BrokerKeyStatus::Listed(key) if !key.is_honoured())
    );
    for name in ["rsm.config.bucket", "remote.log.storage.system.enable"] {
        assert_eq!(broker_key_status(name), BrokerKeyStatus::KafkaOnly, "{name}");
    }
    for name in [
        "sasl.jaas.config",
        "listener.name.sasl_plain.plain.sasl.jaas.config",
    ] {
        assert!(
            matches!(broker_key_status(name), BrokerKeyStatus::Listed(key) if key.is_sensitive()),
            "{name}"
        );
    }
    let nearest = |name| match broker_key_status(name) {
        BrokerKeyStatus::Unknown { nearest } => nearest,
        status => panic!("{name}: {status:?}"),
    };
    assert_eq!(nearest("log.dri"), Some("log.dir"));
    assert_eq!(nearest("ottla.durabilty"), Some("ottla.durability"));
    assert_eq!(nearest("ssl.keystore.locatoin"), Some("ssl.keystore.location"));
    assert_eq!(nearest("something.else.entirely"), None);
    assert_eq!(nearest_key(Scope::Topic, "retention.sm"), Some("retention.ms"));
}

#[test]
fn every_client_setting_is_described_once_for_each_client() {
    for key in client_keys() {
        assert!(key.doc.ends_with('.') && key.doc.len() > 10, "{}", key.name);
        assert!(
            !key.doc.contains('|') && !key.cost.is_some_and(|cost| cost.ends_with('.')),
            "{}",
            key.name
        );
        for client in key.clients {
            let rows = keys_of(*client).filter(|other| other.name == key.name).count();
            assert_eq!(rows, 1, "{}", key.name);
        }
    }
    let page = render_clients();
    assert!(client_keys().all(|key| page.contains(&format!("`{}`", key.name))));
}

#[test]
fn the_page_names_every_key_in_the_tables() {
    let page = render();
    for (_, key) in all() {
        assert!(page.contains(&format!("`{}`", key.name)), "{}", key.name);
    }
}
