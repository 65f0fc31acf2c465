//! How many connections may be open, and how fast they may be made: in total, for one listener and
//! for one address.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use super::listener::Listener;
use super::{ConfigError, Properties, listener_prefix};

const CONNECTIONS: &str = "max.connections";
const CREATION_RATE: &str = "max.connection.creation.rate";
const PER_ADDRESS: &str = "max.connections.per.ip";
const OVERRIDES: &str = "max.connections.per.ip.overrides";

/// What `max.connections` and `max.connection.creation.rate` allow all listeners together, or one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimit {
    /// Open at a time.
    pub open_max: usize,
    /// New ones per second.
    pub per_second: u32,
}

impl ConnectionLimit {
    pub const NONE: ConnectionLimit = ConnectionLimit {
        open_max: usize::MAX,
        per_second: u32::MAX,
    };
}

/// The limits of all connections. Immutable: a change of settings makes a new value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    pub all: ConnectionLimit,
    /// Of the listeners with limits of their own (KIP-402, KIP-612).
    pub by_listener: BTreeMap<Arc<str>, ConnectionLimit>,
    /// `max.connections.per.ip`
    pub per_address: usize,
    /// `max.connections.per.ip.overrides`
    pub overrides: BTreeMap<IpAddr, usize>,
}

impl ConnectionLimits {
    /// As without settings.
    pub fn none() -> ConnectionLimits {
        ConnectionLimits {
            all: ConnectionLimit::NONE,
            by_listener: BTreeMap::new(),
            per_address: usize::MAX,
            overrides: BTreeMap::new(),
        }
    }

    /// How many connections of one address may be open.
    pub fn of_address(&self, address: IpAddr) -> usize {
        self.overrides.get(&address).copied().unwrap_or(self.per_address)
    }

    pub fn of_listener(&self, name: &str) -> ConnectionLimit {
        self.by_listener
            .get(name)
            .copied()
            .unwrap_or(ConnectionLimit::NONE)
    }
}

/// Whether a key, without a listener's prefix, limits connections.
pub(super) fn limits_connections(key: &str) -> bool {
    [CONNECTIONS, CREATION_RATE, PER_ADDRESS, OVERRIDES].contains(&key)
}

/// - Errors: the first value that is none.
pub(super) fn read(
    properties: &Properties<'_>,
    listeners: &[Listener],
) -> Result<ConnectionLimits, ConfigError> {
    let mut by_listener = BTreeMap::new();
    for listener in listeners {
        let prefix = listener_prefix(&listener.name);
        let limit = limit_of(properties, |key| {
            let own = format!("{prefix}{key}");
            properties.text(&own).is_some().then_some(own)
        })?;
        if limit != ConnectionLimit::NONE {
            by_listener.insert(listener.name.clone(), limit);
        }
    }
    Ok(ConnectionLimits {
        all: limit_of(properties, |key| Some(key.to_owned()))?,
        by_listener,
        per_address: size(properties.int(PER_ADDRESS)?),
        overrides: overrides(properties)?,
    })
}

/// - `name_of`: under which name a key is read; `None`: there is no limit.
fn limit_of(
    properties: &Properties<'_>,
    name_of: impl Fn(&str) -> Option<String>,
) -> Result<ConnectionLimit, ConfigError> {
    let value = |key| match name_of(key) {
        Some(name) => properties.long_at(&name, key),
        None => Ok(i64::from(i32::MAX)),
    };
    // Kafka's default, the largest int, stands for no limit.
    let limited = |value: i64| u32::try_from(value).ok().filter(|value| *value < i32::MAX as u32);
    Ok(ConnectionLimit {
        open_max: limited(value(CONNECTIONS)?).map_or(usize::MAX, |value| value as usize),
        per_second: limited(value(CREATION_RATE)?).unwrap_or(u32::MAX),
    })
}

/// `host:count`, separated by commas.
fn overrides(properties: &Properties<'_>) -> Result<BTreeMap<IpAddr, usize>, ConfigError> {
    let value = properties.text(OVERRIDES).unwrap_or("");
    let problem = "is not a list of address:count, with addresses as numbers: names are not looked up";
    let parse = |pair: &str| {
        let (address, count) = pair.rsplit_once(':')?;
        let address = address.trim().trim_start_matches('[').trim_end_matches(']');
        Some((address.parse().ok()?, count.trim().parse().ok()?))
    };
    super::words(value)
        .map(|pair| parse(pair).ok_or_else(|| ConfigError::new(OVERRIDES, value, problem)))
        .collect()
}

/// - Shape: the table limits `value` to 0 and more.
fn size(value: i32) -> usize {
    usize::try_from(value).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::NodeConfig;

    fn limits(lines: &[(&str, &str)]) -> Result<ConnectionLimits, ConfigError> {
        let listeners = ("listeners", "INSIDE://127.0.0.1:1,OUTSIDE://127.0.0.1:2");
        let map = (
            "listener.security.protocol.map",
            "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT",
        );
        let lines = [listeners, map].into_iter().chain(lines.iter().copied());
        let lines = lines.chain([("inter.broker.listener.name", "INSIDE")]);
        let properties = lines.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let config = NodeConfig::from_properties(&properties.collect(), [1, 2, 3, 4])?;
        assert_eq!(config.warnings, Vec::<String>::new());
        Ok(config.network.connections)
    }

    #[test]
    fn without_settings_there_is_no_limit() {
        let ConnectionLimits { all, by_listener, .. } = limits(&[]).unwrap();
        assert_eq!((all, by_listener.len()), (ConnectionLimit::NONE, 0));
    }

    #[test]
    fn of_all_and_of_one_listener() {
        let read = limits(&[
            ("max.connections", "1000"),
            ("max.connection.creation.rate", "50"),
            ("listener.name.outside.max.connections", "10"),
        ]);
        let read = read.unwrap();
        assert_eq!((read.all.open_max, read.all.per_second), (1_000, 50));
        assert_eq!(read.of_listener("OUTSIDE").open_max, 10);
        assert_eq!(read.of_listener("OUTSIDE").per_second, u32::MAX);
        assert_eq!(read.of_listener("INSIDE"), ConnectionLimit::NONE);
        let error = limits(&[("listener.name.outside.max.connections", "-1")]).unwrap_err();
        assert_eq!(error.key, "listener.name.outside.max.connections");
    }

    #[test]
    fn of_addresses() {
        let read = limits(&[
            ("max.connections.per.ip", "3"),
            (OVERRIDES, "127.0.0.1:5, [::1]:7"),
        ]);
        let read = read.unwrap();
        let of = |address: &str| read.of_address(address.parse().unwrap());
        assert_eq!((of("127.0.0.1"), of("::1"), of("127.0.0.2")), (5, 7, 3));
        let error = limits(&[(OVERRIDES, "example.com:5")]).unwrap_err();
        assert!(error.problem.contains("names are not looked up"), "{error}");
    }
}
