//! Subscriptions to client metrics: configurations of type CLIENT_METRICS, parsed once and merged
//! for each client.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ottla_wire::config_keys::{self, ConfigValue, Scope, parse_value};
use ottla_wire::primitives::Uuid;
use regex::{Regex, RegexBuilder};
use tracing::warn;

use crate::config::{ConfigResource, ConfigResourceType, ConfigValues};
use crate::request::Request;

/// Kafka's word for all metrics.
pub const ALL_METRICS: &str = "*";

/// The metrics requested without a subscription: all that the doctor reads.
const DEFAULT_METRICS: [&str; 4] = [
    "org.apache.kafka.app.info.",
    "org.apache.kafka.consumer.",
    "org.apache.kafka.producer.",
    // From Ottla's own client: durations of send() and callbacks, which no other client reports.
    "ottla.",
];

/// After this time a client without requested metrics asks again: Kafka's default.
const IDLE_INTERVAL_MS: u32 = 300_000;

/// A compiled pattern is small; a larger one would be an attempt to exhaust the memory.
const PATTERN_BYTES_MAX: usize = 1024 * 1024;

/// The fact about a client that a pattern is matched against.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Selector {
    InstanceId,
    ClientId,
    SoftwareName,
    SoftwareVersion,
    SourceAddress,
    SourcePort,
}

impl Selector {
    fn from_name(name: &str) -> Option<Selector> {
        Some(match name {
            "client_instance_id" => Selector::InstanceId,
            "client_id" => Selector::ClientId,
            "client_software_name" => Selector::SoftwareName,
            "client_software_version" => Selector::SoftwareVersion,
            "client_source_address" => Selector::SourceAddress,
            "client_source_port" => Selector::SourcePort,
            _ => return None,
        })
    }
}

/// The facts about a client that selectors use.
#[derive(Clone, Debug)]
pub struct MatchedClient {
    pub instance_id: String,
    pub client_id: String,
    pub software_name: String,
    pub software_version: String,
    pub source_address: String,
    pub source_port: String,
}

/// Kafka's word for clients whose ApiVersions did not name their software.
const UNKNOWN_SOFTWARE: &str = "unknown";

impl MatchedClient {
    pub fn new(instance_id: Uuid, request: &Request<'_>) -> MatchedClient {
        let connection = request.connection;
        let software = connection.identity.software();
        MatchedClient {
            instance_id: instance_id.to_string(),
            client_id: request.client_id.unwrap_or_default().to_owned(),
            software_name: software.map_or(UNKNOWN_SOFTWARE, |known| &known.name).to_owned(),
            software_version: software
                .map_or(UNKNOWN_SOFTWARE, |known| &known.version)
                .to_owned(),
            source_address: connection.peer_address.to_string(),
            source_port: connection.peer_port.to_string(),
        }
    }

    fn fact(&self, selector: Selector) -> &str {
        match selector {
            Selector::InstanceId => &self.instance_id,
            Selector::ClientId => &self.client_id,
            Selector::SoftwareName => &self.software_name,
            Selector::SoftwareVersion => &self.software_version,
            Selector::SourceAddress => &self.source_address,
            Selector::SourcePort => &self.source_port,
        }
    }
}

/// The metrics requested from one client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Name prefixes; `*` alone means all, an empty set none.
    pub metrics: BTreeSet<Arc<str>>,
    pub interval_ms: u32,
}

#[derive(Clone, Debug)]
struct Subscription {
    metrics: BTreeSet<Arc<str>>,
    interval_ms: u32,
    /// All must match; of a repeated selector the last counts, as in Apache Kafka.
    matches: BTreeMap<Selector, Regex>,
}

/// Splits a list as written in Kafka's configurations.
fn words(list: &str) -> impl Iterator<Item = &str> {
    let is_empty = list.trim().is_empty();
    list.split(',').map(str::trim).filter(move |_| !is_empty)
}

/// Parses `selector=pattern` elements.
///
/// - Errors: the first invalid element.
fn parse_matches(list: &str) -> Result<BTreeMap<Selector, Regex>, &str> {
    let mut matches = BTreeMap::new();
    for element in words(list) {
        let Some((selector, pattern)) = element
            .split_once('=')
            .map(|(name, pattern)| (name.trim(), pattern.trim()))
            .filter(|(_, pattern)| !pattern.is_empty() && !pattern.contains('='))
        else {
            return Err(element);
        };
        let (Some(selector), Some(pattern)) = (Selector::from_name(selector), whole(pattern)) else {
            return Err(element);
        };
        matches.insert(selector, pattern);
    }
    Ok(matches)
}

/// Compiles a pattern so that it matches whole values only.
fn whole(pattern: &str) -> Option<Regex> {
    let build = |text: &str| RegexBuilder::new(text).size_limit(PATTERN_BYTES_MAX).build().ok();
    // Compiled alone first: `a)|(b` is a valid pattern only within our parentheses.
    build(pattern)?;
    build(&format!(r"\A(?:{pattern})\z"))
}

/// Why these values cannot be a subscription.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SubscriptionError {
    /// Kafka answers INVALID_REQUEST.
    Request(String),
    /// Kafka answers INVALID_CONFIG.
    Config(String),
}

const INTERVAL: &str = "interval.ms";
const INTERVAL_MS_MIN: i64 = 100;
const INTERVAL_MS_MAX: i64 = 3_600_000;

/// Checks the values of a subscription, in Kafka's order and words.
pub fn check(values: &ConfigValues) -> Result<(), SubscriptionError> {
    if let Some(name) = values
        .keys()
        .find(|name| config_keys::find(Scope::ClientMetrics, name).is_none())
    {
        return Err(SubscriptionError::Request(format!(
            "Unknown client metrics configuration: {name}"
        )));
    }
    if let Some(text) = values.get(INTERVAL) {
        let Ok(interval_ms) = text.trim().parse::<i32>() else {
            return Err(SubscriptionError::Config(format!(
                "Invalid value {text} for configuration {INTERVAL}: Not a number of type INT"
            )));
        };
        if !(INTERVAL_MS_MIN..=INTERVAL_MS_MAX).contains(&i64::from(interval_ms)) {
            return Err(SubscriptionError::Request(format!(
                "Invalid value {interval_ms} for {INTERVAL}, interval must be between 100 and 3600000 (1 hour)"
            )));
        }
    }
    match values.get("match").map(|list| parse_matches(list)) {
        Some(Err(element)) => Err(SubscriptionError::Config(format!(
            "Illegal client matching pattern: {element}"
        ))),
        _ => Ok(()),
    }
}

impl Subscription {
    /// Reads a subscription.
    ///
    /// - Errors: values that `check` refuses. Apache Kafka may have stored a pattern that is
    ///   invalid here: its syntax has look-ahead and back references.
    fn read(values: &ConfigValues) -> Result<Subscription, String> {
        let text = |name: &str| {
            let key = config_keys::find(Scope::ClientMetrics, name).expect("the three keys are in the table");
            (
                key,
                values
                    .get(name)
                    .map_or(key.default.unwrap_or_default(), |value| value),
            )
        };
        let (key, interval) = text(INTERVAL);
        let interval_ms = parse_value(key, interval)
            .ok()
            .as_ref()
            .and_then(ConfigValue::as_i64)
            .and_then(|ms| u32::try_from(ms).ok())
            .ok_or_else(|| format!("{INTERVAL}={interval}"))?;
        let matches = parse_matches(text("match").1).map_err(|element| format!("match={element}"))?;
        Ok(Subscription {
            metrics: words(text("metrics").1).map(Arc::from).collect(),
            interval_ms,
            matches,
        })
    }

    fn is_for(&self, client: &MatchedClient) -> bool {
        self.matches
            .iter()
            .all(|(selector, pattern)| pattern.is_match(client.fact(*selector)))
    }
}

/// All subscriptions.
#[derive(Debug)]
pub struct Subscriptions {
    /// Used where no subscription matches.
    otherwise: Arc<Wanted>,
    /// The configurations that `list` was read from.
    configs: Arc<BTreeMap<ConfigResource, Arc<ConfigValues>>>,
    values: Vec<Arc<ConfigValues>>,
    list: Vec<Subscription>,
    generation: u64,
}

impl Subscriptions {
    /// Creates an empty set.
    ///
    /// - `default_interval_ms`: interval of the default metrics where no subscription matches; 0:
    ///   none are requested.
    pub fn new(default_interval_ms: u32) -> Subscriptions {
        let otherwise = match default_interval_ms {
            0 => Wanted {
                metrics: BTreeSet::new(),
                interval_ms: IDLE_INTERVAL_MS,
            },
            interval_ms => Wanted {
                metrics: DEFAULT_METRICS.map(Arc::from).into(),
                interval_ms,
            },
        };
        Subscriptions {
            otherwise: Arc::new(otherwise),
            configs: Arc::default(),
            values: Vec::new(),
            list: Vec::new(),
            generation: 0,
        }
    }

    /// Incremented by every change.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Reads the subscriptions of the metadata. Costs a comparison of two pointers unless some
    /// configuration has changed.
    pub fn follow(&mut self, configs: &Arc<BTreeMap<ConfigResource, Arc<ConfigValues>>>) {
        if Arc::ptr_eq(&self.configs, configs) {
            return;
        }
        self.configs = configs.clone();
        let of_clients = configs
            .iter()
            .filter(|(resource, _)| resource.resource_type == ConfigResourceType::ClientMetrics);
        let values: Vec<_> = of_clients.clone().map(|(_, values)| values.clone()).collect();
        if values == self.values {
            return;
        }
        self.list = of_clients
            .filter_map(|(resource, values)| match Subscription::read(values) {
                Ok(subscription) => Some(subscription),
                Err(problem) => {
                    warn!(
                        subscription = &*resource.name,
                        problem, "subscription matches no client"
                    );
                    None
                }
            })
            .collect();
        self.values = values;
        self.generation += 1;
    }

    /// Whether any client may be asked for metrics.
    pub fn may_ask(&self) -> bool {
        !self.otherwise.metrics.is_empty() || !self.list.is_empty()
    }

    /// Returns the metrics to request from `client`: all matching subscriptions merged, with the
    /// shortest interval; the default where none matches.
    pub fn wanted(&self, client: &MatchedClient) -> Arc<Wanted> {
        let mut matching = self
            .list
            .iter()
            .filter(|subscription| subscription.is_for(client));
        let Some(first) = matching.next() else {
            return self.otherwise.clone();
        };
        let mut wanted = Wanted {
            metrics: first.metrics.clone(),
            interval_ms: first.interval_ms,
        };
        for subscription in matching {
            wanted.metrics.extend(subscription.metrics.iter().cloned());
            wanted.interval_ms = wanted.interval_ms.min(subscription.interval_ms);
        }
        if wanted.metrics.contains(ALL_METRICS) {
            wanted.metrics = BTreeSet::from([Arc::from(ALL_METRICS)]);
        }
        Arc::new(wanted)
    }
}
