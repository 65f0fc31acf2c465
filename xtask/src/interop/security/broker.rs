//! An Apache Kafka with a listener for every kind of connection, and for every misconfiguration.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use ottla_client::admin::{Admin, ScramCredential, ScramMechanism};
use ottla_client::config::{Config, Password};

use super::certificates::{Authority, expired};
use crate::interop::server::{Programs, Server, Site, Target};
use crate::interop::toolchain;

pub const USER: &str = "alice";
/// A password with all characters that a parser of JAAS could get wrong.
pub const PASSWORD: &str = "it's; = \"x\\y\" käse";

/// The listeners with security, by their names in `server.properties`.
pub const LISTENERS: [(&str, &str); 6] = [
    ("SSL", "SSL"),
    ("MUTUAL", "SSL"),
    ("EXPIRED", "SSL"),
    ("MISNAMED", "SSL"),
    ("SASLSSL", "SASL_SSL"),
    ("SASL", "SASL_PLAINTEXT"),
];

pub struct Broker {
    pub server: Server,
    ports: Vec<(&'static str, u16)>,
    pub authority: Authority,
    /// Another authority, which is not trusted.
    pub stranger: Authority,
    pub client_store: PathBuf,
    pub stranger_store: PathBuf,
}

impl Broker {
    pub fn start(programs: &Programs) -> Result<Broker> {
        let folder = toolchain::target_directory().join("data/security-certificates");
        fs::create_dir_all(&folder)?;
        let authority = Authority::create(&folder, "authority")?;
        let stranger = Authority::create(&folder, "stranger")?;
        let local = ["localhost", "127.0.0.1"];
        let good = authority.sign("broker", &local, |_| {})?;
        let old = authority.sign("broker-expired", &local, expired)?;
        let misnamed = authority.sign("broker-misnamed", &["kafka.example"], |_| {})?;
        let client_store = authority.sign("client", &["client"], |_| {})?;
        let stranger_store = stranger.sign("client-stranger", &["client"], |_| {})?;

        let mut ports = Vec::new();
        for (name, _) in LISTENERS {
            ports.push((name, toolchain::free_port()?));
        }
        let mut more = Vec::new();
        for (name, store) in [
            ("ssl", &good),
            ("mutual", &good),
            ("saslssl", &good),
            ("expired", &old),
            ("misnamed", &misnamed),
        ] {
            let mut put =
                |key: &str, value: String| more.push((format!("listener.name.{name}.{key}"), value));
            put("ssl.keystore.type", "PEM".to_owned());
            put("ssl.keystore.location", store.display().to_string());
            put("ssl.truststore.type", "PEM".to_owned());
            put("ssl.truststore.location", authority.file.display().to_string());
        }
        more.push((
            "listener.name.mutual.ssl.client.auth".to_owned(),
            "required".to_owned(),
        ));
        more.extend(sasl_settings());
        let more: Vec<(&str, &str)> = more.iter().map(|(key, value)| (&**key, &**value)).collect();
        let site = Site::create("security", &more)?;
        add_listeners(&site, &ports)?;
        let server = site.start(programs, Target::Kafka)?;
        let broker = Broker {
            server,
            ports,
            authority,
            stranger,
            client_store,
            stranger_store,
        };
        broker.add_user()?;
        Ok(broker)
    }

    /// `NAME` as in `LISTENERS`.
    pub fn address(&self, name: &str) -> String {
        let port = self
            .ports
            .iter()
            .find(|(known, _)| *known == name)
            .expect("a listener of this broker")
            .1;
        format!("localhost:{port}")
    }

    fn add_user(&self) -> Result<()> {
        let admin = Admin::new(&Config::new().set("bootstrap.servers", self.server.bootstrap()))?;
        let set = |mechanism| {
            let credential = ScramCredential::Set {
                mechanism,
                password: Password::new(PASSWORD),
                rounds: None,
            };
            (USER.to_owned(), credential)
        };
        for mechanism in [ScramMechanism::Sha256, ScramMechanism::Sha512] {
            let results = admin.alter_scram_credentials(vec![set(mechanism)]).wait()?;
            for result in results.into_values() {
                result.context("the SCRAM credential of the test's user")?;
            }
        }
        Ok(())
    }
}

fn sasl_settings() -> Vec<(String, String)> {
    let quoted = PASSWORD.replace('\\', "\\\\").replace('"', "\\\"");
    let plain =
        format!("org.apache.kafka.common.security.plain.PlainLoginModule required user_{USER}=\"{quoted}\";");
    let scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;".to_owned();
    let mut settings = Vec::new();
    for listener in ["saslssl", "sasl"] {
        let mut put = |key: &str, value: &str| {
            settings.push((format!("listener.name.{listener}.{key}"), value.to_owned()));
        };
        let mechanisms = match listener {
            "sasl" => "SCRAM-SHA-256",
            _ => "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        };
        put("sasl.enabled.mechanisms", mechanisms);
        // The backslash is an escape character of properties files.
        put("plain.sasl.jaas.config", &escaped(&plain));
        put("scram-sha-256.sasl.jaas.config", &scram);
        put("scram-sha-512.sasl.jaas.config", &scram);
    }
    // Sessions of a few seconds: the client must re-authenticate while it works (KIP-368).
    settings.push((
        "listener.name.saslssl.connections.max.reauth.ms".to_owned(),
        "3000".to_owned(),
    ));
    settings
}

/// Escapes for `java.util.Properties`: Latin-1 bytes, and a backslash before special characters.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for unit in text.encode_utf16() {
        match char::from_u32(unit.into()) {
            Some('\\') => out.push_str("\\\\"),
            Some(letter) if letter.is_ascii() => out.push(letter),
            _ => write!(out, "\\u{unit:04x}").expect("a string takes every write"),
        }
    }
    out
}

/// Appends settings: Java takes the last value of a repeated key.
fn add_listeners(site: &Site, ports: &[(&str, u16)]) -> Result<()> {
    let text = fs::read_to_string(site.properties())?;
    let value = |key: &str| {
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        line.with_context(|| format!("{key} in {}", site.properties().display()))
            .map(str::to_owned)
    };
    let (mut listeners, mut advertised) = (value("listeners")?, value("advertised.listeners")?);
    let mut protocols = value("listener.security.protocol.map")?;
    for ((name, port), (_, protocol)) in ports.iter().zip(LISTENERS) {
        write!(listeners, ",{name}://127.0.0.1:{port}")?;
        write!(advertised, ",{name}://localhost:{port}")?;
        write!(protocols, ",{name}:{protocol}")?;
    }
    let added = format!(
        "listeners={listeners}\nadvertised.listeners={advertised}\nlistener.security.protocol.map={protocols}\n"
    );
    fs::write(site.properties(), text + &added)?;
    Ok(())
}
