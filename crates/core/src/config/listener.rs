//! Listeners: the addresses that clients connect to, and the advertised ones.

use std::fmt;
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
    fn from_name(name: &str) -> Option<SecurityProtocol> {
        match name.to_ascii_uppercase().as_str() {
            "PLAINTEXT" => Some(SecurityProtocol::Plaintext),
            "SSL" => Some(SecurityProtocol::Ssl),
            "SASL_PLAINTEXT" => Some(SecurityProtocol::SaslPlaintext),
            "SASL_SSL" => Some(SecurityProtocol::SaslSsl),
            _ => None,
        }
    }

    /// Returns the number used in registrations.
    pub fn code(self) -> i16 {
        self as i16
    }
}

/// `NAME://host:port`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
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
}

const LISTENERS: &str = "listeners";
const ADVERTISED: &str = "advertised.listeners";
const PROTOCOL_MAP: &str = "listener.security.protocol.map";
const DEFAULT_CONTROLLER_NAME: &str = "CONTROLLER";
const DEFAULT_CONTROLLER_PORT: u16 = 9093;

impl Listeners {
    pub(super) fn read(read: &Properties<'_>) -> Result<Listeners, ConfigError> {
        let controller_names: Vec<&str> = read
            .text("controller.listener.names")
            .map(words)
            .into_iter()
            .flatten()
            .collect();
        let controller_name = controller_names
            .first()
            .copied()
            .unwrap_or(DEFAULT_CONTROLLER_NAME);
        let protocols = protocol_map(read, &controller_names)?;
        let all = parse_list(read, LISTENERS, default_text(LISTENERS), &protocols)?;
        let is_controller = |listener: &Listener| controller_names.contains(&&*listener.name);
        let (controllers, served): (Vec<Listener>, Vec<Listener>) = all.into_iter().partition(is_controller);
        let value = read.text(LISTENERS).unwrap_or(default_text(LISTENERS));
        if served.is_empty() {
            return Err(ConfigError::new(
                LISTENERS,
                value,
                "names no listener for clients",
            ));
        }
        for (index, listener) in served.iter().enumerate() {
            if served[..index]
                .iter()
                .any(|earlier| earlier.name == listener.name)
            {
                return Err(ConfigError::new(
                    LISTENERS,
                    value,
                    format!("listener name {} twice", listener.name),
                ));
            }
            if !matches!(
                listener.security_protocol,
                SecurityProtocol::Plaintext | SecurityProtocol::Ssl
            ) {
                let problem = format!("listener {}: SASL is not supported so far", listener.name);
                return Err(ConfigError::new(LISTENERS, value, problem));
            }
        }
        let advertised = advertised(read, &served, &protocols, &controller_names)?;
        let inter_broker_name = read
            .text("inter.broker.listener.name")
            .map_or_else(|| served[0].name.clone(), Arc::from);
        let controller = controllers.into_iter().next().unwrap_or_else(|| Listener {
            name: controller_name.into(),
            host: served[0].host.clone(),
            port: DEFAULT_CONTROLLER_PORT,
            security_protocol: SecurityProtocol::Plaintext,
        });
        Ok(Listeners {
            served,
            advertised,
            controller,
            inter_broker_name,
        })
    }
}

fn advertised(
    read: &Properties<'_>,
    served: &[Listener],
    protocols: &[(String, SecurityProtocol)],
    controller_names: &[&str],
) -> Result<Vec<Listener>, ConfigError> {
    let Some(value) = read.text(ADVERTISED) else {
        return Ok(served.to_vec());
    };
    let given = parse_list(read, ADVERTISED, "", protocols)?;
    let mut advertised = Vec::with_capacity(served.len());
    for listener in served {
        let found = given.iter().find(|candidate| candidate.name == listener.name);
        advertised.push(found.unwrap_or(listener).clone());
    }
    let unknown = given.iter().find(|candidate| {
        !served.iter().any(|listener| listener.name == candidate.name)
            && !controller_names.contains(&&*candidate.name)
    });
    match unknown {
        Some(listener) => Err(ConfigError::new(
            ADVERTISED,
            value,
            format!("{} is not the name of a listener", listener.name),
        )),
        None => Ok(advertised),
    }
}

fn protocol_map(
    read: &Properties<'_>,
    controller_names: &[&str],
) -> Result<Vec<(String, SecurityProtocol)>, ConfigError> {
    let Some(value) = read.text(PROTOCOL_MAP) else {
        return Ok(controller_names
            .iter()
            .map(|name| ((*name).to_owned(), SecurityProtocol::Plaintext))
            .collect());
    };
    words(value)
        .map(|pair| {
            let (name, protocol) = pair.split_once(':').ok_or_else(|| {
                ConfigError::new(PROTOCOL_MAP, value, format!("{pair} is not name:protocol"))
            })?;
            let protocol = SecurityProtocol::from_name(protocol.trim()).ok_or_else(|| {
                ConfigError::new(PROTOCOL_MAP, value, format!("no security protocol {protocol}"))
            })?;
            Ok((name.trim().to_owned(), protocol))
        })
        .collect()
}

fn parse_list(
    read: &Properties<'_>,
    key: &str,
    default: &str,
    protocols: &[(String, SecurityProtocol)],
) -> Result<Vec<Listener>, ConfigError> {
    let value = read.text(key).unwrap_or(default);
    words(value)
        .map(|text| parse(text, protocols).map_err(|problem| ConfigError::new(key, value, problem)))
        .collect()
}

fn parse(text: &str, protocols: &[(String, SecurityProtocol)]) -> Result<Listener, String> {
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
    let mapped = protocols
        .iter()
        .find(|(known, _)| known == name)
        .map(|(_, protocol)| *protocol);
    let security_protocol = mapped
        .or_else(|| SecurityProtocol::from_name(name))
        .ok_or_else(|| format!("{name} is no security protocol and not in {PROTOCOL_MAP}"))?;
    Ok(Listener {
        name: name.into(),
        host: host.into(),
        port,
        security_protocol,
    })
}
