//! Keys of one listener: `listener.name.<listener>.[<mechanism>.]<key>`, in lower case (KIP-103,
//! KIP-85).

use super::broker::BROKER_KEYS;
use super::key::ConfigKey;

pub const LISTENER_PREFIX: &str = "listener.name.";

/// The parts of a key that is set for one listener.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ListenerKey<'a> {
    /// As written; Kafka looks it up in lower case.
    pub listener: &'a str,
    /// The SASL mechanism that the value is for, as written.
    pub mechanism: Option<&'a str>,
    pub key: &'static ConfigKey,
}

impl ListenerKey<'_> {
    /// Splits a name; `None` if it is not one of a listener's own keys.
    pub fn parse(name: &str) -> Option<ListenerKey<'_>> {
        let rest = name.strip_prefix(LISTENER_PREFIX)?;
        // The name of a listener has no dot, but the names of keys do: the longest key counts.
        let dots = rest.match_indices('.').map(|(dot, _)| dot);
        let (prefix, key) = dots
            .filter_map(|dot| Some((&rest[..dot], of_listener(&rest[dot + 1..])?)))
            .next()?;
        let (listener, mechanism) = match prefix.split_once('.') {
            Some((listener, mechanism)) => (listener, Some(mechanism)),
            None => (prefix, None),
        };
        let is_whole = !listener.is_empty() && mechanism != Some("");
        is_whole.then_some(ListenerKey {
            listener,
            mechanism,
            key,
        })
    }
}

/// Keys that a listener can have beside those of TLS and SASL, in the order of their names.
const OTHERS: [&str; 4] = [
    "connections.max.reauth.ms",
    "max.connection.creation.rate",
    "max.connections",
    "principal.builder.class",
];

/// The row of a key that a listener can have its own value of.
fn of_listener(name: &str) -> Option<&'static ConfigKey> {
    let is_security = ["ssl.", "sasl."].iter().any(|prefix| name.starts_with(prefix));
    if !is_security && OTHERS.binary_search(&name).is_err() {
        return None;
    }
    let row = BROKER_KEYS.binary_search_by(|key| key.name.cmp(name)).ok()?;
    Some(&BROKER_KEYS[row])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, expected: Option<(&str, Option<&str>, &str)>) {
        let parsed = ListenerKey::parse(name);
        let parts = parsed.map(|found| (found.listener, found.mechanism, found.key.name));
        assert_eq!(parts, expected, "{name}");
    }

    #[test]
    fn a_listeners_key_is_split_into_listener_mechanism_and_key() {
        check(
            "listener.name.outside.sasl.enabled.mechanisms",
            Some(("outside", None, "sasl.enabled.mechanisms")),
        );
        check(
            "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config",
            Some(("sasl_plaintext", Some("scram-sha-256"), "sasl.jaas.config")),
        );
        check(
            "listener.name.a.plain.connections.max.reauth.ms",
            Some(("a", Some("plain"), "connections.max.reauth.ms")),
        );
        check(
            "listener.name.a.max.connections",
            Some(("a", None, "max.connections")),
        );
        // Not a listener's own.
        check("listener.name.a.max.connections.per.ip", None);
        check("listener.name.a.num.partitions", None);
        check("listener.name.sasl.jaas.config", None);
        check("listener.name..plain.sasl.jaas.config", None);
        check("listener.name.a..sasl.jaas.config", None);
        check("sasl.jaas.config", None);
        check("listener.name.", None);
    }
}
