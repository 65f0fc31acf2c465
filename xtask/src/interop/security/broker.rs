//! A broker with a listener for every kind of connection, and for every misconfiguration.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use ottla_client::admin::{Admin, ScramCredential, ScramMechanism};
use ottla_client::config::{Config, Password};
use rcgen::{KeyPair, PKCS_RSA_SHA256};

use super::certificates::{Authority, expired};
use crate::interop::server::{Programs, Server, Site, Target};
use crate::interop::toolchain;

pub const USER: &str = "alice";
/// A password with all characters that a parser of JAAS could get wrong.
pub const PASSWORD: &str = "it's; = \"x\\y\" käse";

/// The listeners with security, by their names in `server.properties`.
pub const LISTENERS: [(&str, &str); 8] = [
    ("SSL", "SSL"),
    ("RSA", "SSL"),
    ("REQUESTED", "SSL"),
    ("MUTUAL", "SSL"),
    ("EXPIRED", "SSL"),
    ("MISNAMED", "SSL"),
    ("SASLSSL", "SASL_SSL"),
    ("SASL", "SASL_PLAINTEXT"),
];

/// Its directory, certificates and ports, whichever broker runs on them.
pub struct Broker {
    pub site: Site,
    ports: Vec<(&'static str, u16)>,
    /// Of Ottla's admin address.
    admin_port: u16,
    pub authority: Authority,
    /// Another authority, which is not trusted.
    pub stranger: Authority,
    pub client_store: PathBuf,
    pub stranger_store: PathBuf,
}

impl Broker {
    /// - `name`: of its directory, which is created empty.
    pub fn create(name: &str) -> Result<Broker> {
        let folder = toolchain::target_directory().join(format!("data/{name}-certificates"));
        fs::create_dir_all(&folder)?;
        let authority = Authority::create(&folder, "authority")?;
        let stranger = Authority::create(&folder, "stranger")?;
        let local = ["localhost", "127.0.0.1"];
        let good = authority.sign("broker", &local, |_| {})?;
        let rsa = KeyPair::generate_for(&PKCS_RSA_SHA256).context("an RSA key")?;
        let of_rsa = authority.sign_key("broker-rsa", &rsa, &local, |_| {})?;
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
            ("rsa", &of_rsa),
            ("requested", &good),
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
        for (name, whether) in [("mutual", "required"), ("requested", "requested")] {
            let key = format!("listener.name.{name}.ssl.client.auth");
            more.push((key, whether.to_owned()));
        }
        more.extend(sasl_settings());
        more.extend(authorizer_settings());
        let more: Vec<(&str, &str)> = more.iter().map(|(key, value)| (&**key, &**value)).collect();
        let site = Site::create(name, &more)?;
        let protocols = LISTENERS.iter().zip(&ports);
        add_listeners(
            &site,
            protocols.map(|((name, protocol), (_, port))| (*name, *protocol, *port)),
        )?;
        Ok(Broker {
            site,
            ports,
            admin_port: toolchain::free_port()?,
            authority,
            stranger,
            client_store,
            stranger_store,
        })
    }

    /// Starts a broker on it that has the user alice.
    pub fn start(&self, programs: &Programs, target: Target) -> Result<Server> {
        let listener = format!("ottla.admin.listener=127.0.0.1:{}", self.admin_port);
        let server = self.site.start_with(programs, target, &[&listener])?;
        self.add_user(USER, PASSWORD)?;
        Ok(server)
    }

    /// The token of Ottla's admin address, which a broker with an authorizer makes.
    pub fn admin_token(&self) -> PathBuf {
        self.site.directory.join("ottla.admin.token")
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

    pub fn add_user(&self, user: &str, password: &str) -> Result<()> {
        let admin = admin(&self.site)?;
        let set = |mechanism| {
            let credential = ScramCredential::Set {
                mechanism,
                password: Password::new(password),
                rounds: None,
            };
            (user.to_owned(), credential)
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

/// A client of the listener without security.
pub fn admin(site: &Site) -> Result<Admin> {
    Ok(Admin::new(
        &Config::new().set("bootstrap.servers", site.bootstrap()),
    )?)
}

/// Super users: clients without authentication, alice, and the certificate of `client_store`.
pub fn authorizer_settings() -> [(String, String); 2] {
    [
        (
            "authorizer.class.name",
            "org.apache.kafka.metadata.authorizer.StandardAuthorizer".to_owned(),
        ),
        (
            "super.users",
            format!("User:ANONYMOUS;User:{USER};User:CN=client"),
        ),
    ]
    .map(|(key, value)| (key.to_owned(), value))
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
pub fn escaped(text: &str) -> String {
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

/// Appends listeners (name, protocol, port): Java takes the last value of a repeated key.
pub fn add_listeners<'a>(
    site: &Site,
    added: impl IntoIterator<Item = (&'a str, &'a str, u16)>,
) -> Result<()> {
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
    for (name, protocol, port) in added {
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
