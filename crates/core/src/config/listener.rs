//! Listeners: the addresses that clients connect to, and the advertised ones.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use super::{ConfigError, Properties, default_text, words};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecurityProtocol {
    Plaintext = 0,
    Ssl = 1,
    SaslPlaintext = 2,
    SaslSsl = 3,
}

impl SecurityProtocol {
    const ALL: [SecurityProtocol; 4] = [
        SecurityProtocol::Plaintext,
        SecurityProtocol::Ssl,
        SecurityProtocol::SaslPlaintext,
        SecurityProtocol::SaslSsl,
    ];

    pub fn name(self) -> &'static str {
        match self {
            SecurityProtocol::Plaintext => "PLAINTEXT",
            SecurityProtocol::Ssl => "SSL",
            SecurityProtocol::SaslPlaintext => "SASL_PLAINTEXT",
            SecurityProtocol::SaslSsl => "SASL_SSL",
        }
    }

    fn from_name(name: &str) -> Option<SecurityProtocol> {
        SecurityProtocol::ALL
            .into_iter()
            .find(|protocol| protocol.name().eq_ignore_ascii_case(name))
    }

    /// Returns the number used in registrations.
    pub fn code(self) -> i16 {
        self as i16
    }

    pub fn has_sasl(self) -> bool {
        matches!(self, SecurityProtocol::SaslPlaintext | SecurityProtocol::SaslSsl)
    }

    pub fn has_tls(self) -> bool {
        matches!(self, SecurityProtocol::Ssl | SecurityProtocol::SaslSsl)
    }
}

/// `NAME://host:port`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// In upper case, as Kafka compares and registers names of listeners.
    pub name: Arc<str>,
    /// Empty: all addresses of this machine.
    pub host: Arc<str>,
    /// 0: any free port.
    pub port: u16,
    pub security_protocol: SecurityProtocol,
}

impl fmt::Display for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "{}://[{}]:{}", self.name, self.host, self.port)
        } else {
            write!(f, "{}://{}:{}", self.name, self.host, self.port)
        }
    }
}

/// The combined result of the keys about listeners.
pub(super) struct Listeners {
    pub served: Vec<Listener>,
    pub advertised: Vec<Listener>,
    pub controller: Listener,
    pub inter_broker_name: Arc<str>,
    /// Problems to log at the start.
    pub warnings: Vec<String>,
}

const LISTENERS: &str = "listeners";
const ADVERTISED: &str = "advertised.listeners";
const PROTOCOL_MAP: &str = "listener.security.protocol.map";
const CONTROLLER_NAMES: &str = "controller.listener.names";
const INTER_BROKER_NAME: &str = "inter.broker.listener.name";
const INTER_BROKER_PROTOCOL: &str = "security.inter.broker.protocol";
/// What Apache Kafka can change while it runs.
pub(super) const DYNAMIC: [&str; 2] = [LISTENERS, PROTOCOL_MAP];
const DEFAULT_CONTROLLER_NAME: &str = "CONTROLLER";
const DEFAULT_CONTROLLER_PORT: u16 = 9093;

impl Listeners {
    pub(super) fn read(read: &Properties<'_>) -> Result<Listeners, ConfigError> {
        let controller_names: Vec<String> = read
            .text(CONTROLLER_NAMES)
            .map(words)
            .into_iter()
            .flatten()
            .map(normalised)
            .collect();
        let protocols = Protocols::read(read, &controller_names)?;
        let all = parse_list(read, LISTENERS, default_text(LISTENERS), &protocols)?;
        let is_controller =
            |listener: &Listener| controller_names.iter().any(|name| **name == *listener.name);
        let (controllers, served): (Vec<Listener>, Vec<Listener>) = all.into_iter().partition(is_controller);
        check_served(read, &served)?;
        let advertised = advertised(read, &served, &protocols, &controller_names)?;
        let mut warnings = Vec::new();
        let inter_broker_name = inter_broker_name(read, &served, &mut warnings)?;
        let controller = match controllers.into_iter().next() {
            Some(controller) => controller,
            None => unbound_controller(read, &controller_names, &protocols, &served)?,
        };
        Ok(Listeners {
            served,
            advertised,
            controller,
            inter_broker_name,
            warnings,
        })
    }
}

/// Checks the addresses of a next start.
///
/// - Errors: also an empty value, with which Apache Kafka does not start.
pub(super) fn check_dynamic(read: &Properties<'_>) -> Result<(), ConfigError> {
    for key in DYNAMIC {
        if let Some(value) = read.values.get(key).filter(|value| value.trim().is_empty()) {
            return Err(ConfigError::new(key, value, "it names no listener"));
        }
    }
    Listeners::read(read).map(drop)
}

/// KIP-103: names of listeners are the same in any case.
fn normalised(name: &str) -> String {
    name.to_uppercase()
}

fn check_served(read: &Properties<'_>, served: &[Listener]) -> Result<(), ConfigError> {
    let value = read.text(LISTENERS).unwrap_or(default_text(LISTENERS));
    let refuse = |problem: String| Err(ConfigError::new(LISTENERS, value, problem));
    if served.is_empty() {
        return refuse("names no listener for clients".to_owned());
    }
    for (index, listener) in served.iter().enumerate() {
        let name = &listener.name;
        if served[..index].iter().any(|earlier| earlier.name == *name) {
            return refuse(format!("listener name {name} twice"));
        }
        if let Some(earlier) = served[..index]
            .iter()
            .find(|earlier| shares_port(earlier, listener))
        {
            let port = listener.port;
            return refuse(format!("{} and {name} have the same port, {port}", earlier.name));
        }
    }
    Ok(())
}

/// As in Kafka, listeners have different ports, except that an IPv4 and an IPv6 address may share
/// one (KIP-797).
fn shares_port(one: &Listener, other: &Listener) -> bool {
    let is_v4 = |listener: &Listener| listener.host.parse::<IpAddr>().ok().map(|ip| ip.is_ipv4());
    let is_pair = matches!(
        (is_v4(one), is_v4(other)),
        (Some(true), Some(false)) | (Some(false), Some(true))
    );
    one.port != 0 && one.port == other.port && !is_pair
}

/// A controller's listener that is named, but not in `listeners`.
fn unbound_controller(
    read: &Properties<'_>,
    controller_names: &[String],
    protocols: &Protocols,
    served: &[Listener],
) -> Result<Listener, ConfigError> {
    let (name, security_protocol) = match controller_names.first() {
        Some(name) => {
            let given = read.text(CONTROLLER_NAMES).unwrap_or_default();
            let protocol = protocols
                .of(name)
                .map_err(|problem| ConfigError::new(CONTROLLER_NAMES, given, problem))?;
            (name.as_str(), protocol)
        }
        None => (DEFAULT_CONTROLLER_NAME, SecurityProtocol::Plaintext),
    };
    Ok(Listener {
        name: name.into(),
        host: served[0].host.clone(),
        port: DEFAULT_CONTROLLER_PORT,
        security_protocol,
    })
}

/// The listener for traffic between brokers, which Ottla registers and never uses.
fn inter_broker_name(
    read: &Properties<'_>,
    served: &[Listener],
    warnings: &mut Vec<String>,
) -> Result<Arc<str>, ConfigError> {
    let find = |name: &str| served.iter().find(|listener| *listener.name == *normalised(name));
    let named = read.text(INTER_BROKER_NAME);
    let protocol = read.text(INTER_BROKER_PROTOCOL);
    if let (Some(named), Some(_)) = (named, protocol) {
        let problem = format!("cannot be set together with {INTER_BROKER_PROTOCOL}");
        return Err(ConfigError::new(INTER_BROKER_NAME, named, problem));
    }
    if let Some(named) = named {
        let listener = find(named)
            .ok_or_else(|| ConfigError::new(INTER_BROKER_NAME, named, "is not the name of a listener"))?;
        return Ok(listener.name.clone());
    }
    let name = protocol.unwrap_or(default_text(INTER_BROKER_PROTOCOL));
    if let Some(listener) = find(name) {
        return Ok(listener.name.clone());
    }
    let first = &served[0].name;
    warnings.push(format!(
        "no listener is named {name}, which {INTER_BROKER_PROTOCOL} asks for: {first} stands in; \
         Apache Kafka will not start with this file unless {INTER_BROKER_NAME} names a listener"
    ));
    Ok(first.clone())
}

fn advertised(
    read: &Properties<'_>,
    served: &[Listener],
    protocols: &Protocols,
    controller_names: &[String],
) -> Result<Vec<Listener>, ConfigError> {
    let Some(value) = read.text(ADVERTISED) else {
        let value = read.text(LISTENERS).unwrap_or(default_text(LISTENERS));
        check_reachable(LISTENERS, value, served)?;
        return Ok(served.to_vec());
    };
    let given = parse_list(read, ADVERTISED, "", protocols)?;
    let mut advertised = Vec::with_capacity(served.len());
    for listener in served {
        let found = given.iter().find(|candidate| candidate.name == listener.name);
        let mut listener = found.unwrap_or(listener).clone();
        // One that is left out is served all the same, and its clients are sent to this machine.
        if found.is_none() && &*listener.host == "0.0.0.0" {
            listener.host = "".into();
        }
        advertised.push(listener);
    }
    let unknown = given.iter().find(|candidate| {
        !served.iter().any(|listener| listener.name == candidate.name)
            && !controller_names.iter().any(|name| **name == *candidate.name)
    });
    if let Some(listener) = unknown {
        let problem = format!("{} is not the name of a listener", listener.name);
        return Err(ConfigError::new(ADVERTISED, value, problem));
    }
    check_reachable(ADVERTISED, value, &advertised)?;
    Ok(advertised)
}

/// Clients are sent to the advertised addresses. Kafka refuses 0.0.0.0 as well: a client that is
/// sent there would connect to its own machine.
fn check_reachable(key: &str, value: &str, advertised: &[Listener]) -> Result<(), ConfigError> {
    let Some(listener) = advertised.iter().find(|listener| &*listener.host == "0.0.0.0") else {
        return Ok(());
    };
    let (name, port) = (&listener.name, listener.port);
    let problem = format!(
        "cannot use the nonroutable meta-address 0.0.0.0: clients are sent to the address that a listener advertises; \
         set {ADVERTISED}={name}://HOST:{port}, or leave the host out ({LISTENERS}={name}://:{port}) to listen on \
         all addresses and advertise this machine's name"
    );
    Err(ConfigError::new(key, value, problem))
}

/// `listener.security.protocol.map`. If it is set, nothing else counts, not even a listener named
/// like a protocol.
struct Protocols {
    /// Names in upper case.
    by_name: Vec<(String, SecurityProtocol)>,
    is_given: bool,
}

impl Protocols {
    fn read(read: &Properties<'_>, controller_names: &[String]) -> Result<Protocols, ConfigError> {
        let Some(value) = read.text(PROTOCOL_MAP) else {
            return Ok(Protocols::default_of(read, controller_names));
        };
        let pairs = words(value).map(|pair| {
            let (name, protocol) = pair.rsplit_once(':').ok_or_else(|| {
                ConfigError::new(PROTOCOL_MAP, value, format!("{pair} is not name:protocol"))
            })?;
            let protocol = SecurityProtocol::from_name(protocol.trim()).ok_or_else(|| {
                ConfigError::new(PROTOCOL_MAP, value, format!("no security protocol {protocol}"))
            })?;
            Ok((normalised(name.trim()), protocol))
        });
        let by_name = pairs.collect::<Result<Vec<_>, ConfigError>>()?;
        for (index, (name, protocol)) in by_name.iter().enumerate() {
            let is_other =
                |(earlier, other): &(String, SecurityProtocol)| earlier == name && other != protocol;
            if by_name[..index].iter().any(is_other) {
                let problem = format!("gives {name} two protocols");
                return Err(ConfigError::new(PROTOCOL_MAP, value, problem));
            }
        }
        Ok(Protocols {
            by_name,
            is_given: true,
        })
    }

    /// Each protocol is the name of a listener that speaks it; a controller's listener speaks
    /// PLAINTEXT, unless a listener is secured: then Kafka asks for an explicit map.
    fn default_of(read: &Properties<'_>, controller_names: &[String]) -> Protocols {
        let listeners = words(read.text(LISTENERS).unwrap_or(default_text(LISTENERS)))
            .filter_map(|listener| listener.split_once("://"))
            .map(|(name, _)| name);
        let is_secured = |name: &str| {
            SecurityProtocol::from_name(name).is_some_and(|found| found != SecurityProtocol::Plaintext)
        };
        let names = controller_names.iter().map(String::as_str);
        let is_any_secured = listeners.chain(names).any(is_secured);
        let own = SecurityProtocol::ALL.map(|protocol| (protocol.name().to_owned(), protocol));
        let controllers = controller_names
            .iter()
            .filter(|name| !is_any_secured && SecurityProtocol::from_name(name).is_none())
            .map(|name| (name.clone(), SecurityProtocol::Plaintext));
        Protocols {
            by_name: own.into_iter().chain(controllers).collect(),
            is_given: false,
        }
    }

    /// - Errors: says where the protocol of `name` is missing.
    fn of(&self, name: &str) -> Result<SecurityProtocol, String> {
        let mapped = self.by_name.iter().find(|(known, _)| known == name);
        mapped.map(|(_, protocol)| *protocol).ok_or_else(|| {
            if self.is_given {
                format!("{name} is not in {PROTOCOL_MAP}")
            } else {
                format!("{name} is no security protocol: {PROTOCOL_MAP} must name its protocol")
            }
        })
    }
}

fn parse_list(
    read: &Properties<'_>,
    key: &str,
    default: &str,
    protocols: &Protocols,
) -> Result<Vec<Listener>, ConfigError> {
    let value = read.text(key).unwrap_or(default);
    words(value)
        .map(|text| parse(text, protocols).map_err(|problem| ConfigError::new(key, value, problem)))
        .collect()
}

fn parse(text: &str, protocols: &Protocols) -> Result<Listener, String> {
    let (name, address) = text
        .split_once("://")
        .ok_or_else(|| format!("{text} is not NAME://host:port"))?;
    let (host, port) = address
        .rsplit_once(':')
        .ok_or_else(|| format!("{text} has no port"))?;
    let port = port
        .parse()
        .map_err(|_| format!("{text}: port is not a number from 0 to 65535"))?;
    let host = host
        .strip_prefix('[')
        .and_then(|inner| inner.strip_suffix(']'))
        .unwrap_or(host);
    let name = normalised(name);
    Ok(Listener {
        security_protocol: protocols.of(&name)?,
        name: name.into(),
        host: host.into(),
        port,
    })
}
