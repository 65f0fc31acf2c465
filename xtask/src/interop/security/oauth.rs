//! OAUTHBEARER: tokens of an identity provider that the suite runs itself, from files and from its
//! server, valid and invalid, with clients that renew them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::broker::{add_listeners, authorizer_settings};
use super::certificates::Authority;
use super::foreign::{Connection, PROGRAMS, run_program};
use super::tokens::{self, Stage};
use crate::interop::clients::{Client, Clients};
use crate::interop::server::{Programs, Site, Target};
use crate::interop::table::Table;
use crate::interop::toolchain;

/// Tokens that are refused, as the provider names them, and by which clients: Java's and
/// librdkafka's libraries refuse some themselves.
pub const INVALID: [&str; 7] = [
    "stranger",
    "unknown-key",
    "expired",
    "another-issuer",
    "another-audience",
    "no-user",
    "unsigned",
];

/// The identity provider; killed when dropped.
pub struct Provider {
    process: Child,
    url: String,
    keys: PathBuf,
}

impl Provider {
    fn start(programs: &Programs, clients: &Clients, folder: &Path) -> Result<Provider> {
        let keys = folder.join("keys.json");
        if keys.exists() {
            fs::remove_file(&keys)?;
        }
        let port = toolchain::free_port()?;
        let process = clients
            .command(&programs.kafka, Client::Java)
            .args(["issuer", &port.to_string()])
            .arg(&keys)
            .stdin(Stdio::null())
            .spawn()
            .context("cannot start the identity provider")?;
        let provider = Provider {
            process,
            url: format!("http://127.0.0.1:{port}"),
            keys,
        };
        let began = Instant::now();
        while !provider.keys.exists() {
            ensure!(
                began.elapsed() < Duration::from_secs(60),
                "the identity provider does not start"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(provider)
    }

    /// Where a token of this kind is; a number is its lifetime in seconds.
    fn token(&self, kind: &str) -> String {
        format!("{}/token/{kind}", self.url)
    }

    /// The same for the id and the secret of a client alone.
    pub fn login(&self, kind: &str) -> String {
        format!("{}/login/{kind}", self.url)
    }

    pub fn file(&self, kind: &str) -> String {
        format!("file://{}.{kind}", self.keys.display())
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Runs everything against Ottla. Apache Kafka takes URLs only with a system property for each.
pub fn run(table: &mut Table, programs: &Programs, clients: &Clients) -> Result<()> {
    let folder = toolchain::target_directory().join("data/oauth-certificates");
    fs::create_dir_all(&folder)?;
    let authority = Authority::create(&folder, "authority")?;
    let own = authority.sign("broker", &["localhost", "127.0.0.1"], |_| {})?;
    let provider = Provider::start(programs, clients, &folder)?;
    let (site, addresses) = site(&own, &provider)?;
    let server = site.start(programs, Target::Ottla)?;
    for (name, program) in PROGRAMS {
        // Its tokens come from a class that each application writes.
        if name == "kafka-python" {
            continue;
        }
        let connections = connections(name, &addresses, &provider, &authority.file);
        run_program(table, programs, clients, &site, (name, program), &connections)?;
    }
    let stage = Stage {
        site: &site,
        addresses: &addresses,
        provider: &provider,
        authority: &authority.file,
    };
    tokens::run(table, programs, &stage)?;
    server.stop()
}

/// What a client tries: on a listener that has the keys from a file, and on one that fetches them.
fn connections(
    client: &str,
    addresses: &[String; 2],
    provider: &Provider,
    authority: &Path,
) -> Vec<Connection> {
    let [of_file, of_server] = addresses;
    let to = |name: &str, address: &String, token: &str| {
        let name = format!("OAUTHBEARER, {name}");
        Connection::to(&name, address.clone(), "SASL_SSL", authority).login("OAUTHBEARER", "alice", token)
    };
    // Java's client logs in with an id and a secret; the others' programs only ask for a token.
    let served = |kind: &str| match client {
        "java" => provider.login(kind),
        _ => provider.token(kind),
    };
    let mut all = vec![
        to("RS256, keys of a file", of_file, &served("RS256")),
        to("RS256, keys of a server", of_server, &served("RS256")),
    ];
    // librdkafka gets a new token in the last fifth of the old one's time, which must leave it more
    // than the second that lies at least between two authentications (KIP-368).
    let (short, seconds) = match client {
        "librdkafka" => ("tokens of ten seconds", "10"),
        _ => ("tokens of four seconds", "4"),
    };
    all.push(to(short, of_file, &served(seconds)).fails("renewed"));
    if client == "java" {
        all.push(to("RS256 from a file", of_file, &provider.file("RS256")));
        all.push(to("ES256 from a file", of_server, &provider.file("ES256")));
        all.push(to("without a signature", of_file, "unsecured").fails("token"));
        for kind in ["stranger", "unknown-key", "another-issuer", "another-audience"] {
            all.push(to(kind, of_file, &served(kind)).fails("token"));
        }
    } else {
        all.push(to("ES256, keys of a server", of_server, &served("ES256")));
        for kind in INVALID {
            all.push(to(kind, of_file, &served(kind)).fails("token"));
        }
    }
    all
}

/// A directory with two listeners that take tokens, and their addresses.
fn site(own: &Path, provider: &Provider) -> Result<(Site, [String; 2])> {
    let ports = [toolchain::free_port()?, toolchain::free_port()?];
    let urls = [
        format!("file://{}", provider.keys.display()),
        format!("{}/keys", provider.url),
    ];
    let mut settings = Vec::new();
    for (name, url) in ["filed", "served"].into_iter().zip(&urls) {
        let mut put = |key: &str, value: &str| {
            settings.push((format!("listener.name.{name}.{key}"), value.to_owned()));
        };
        put("ssl.keystore.type", "PEM");
        put("ssl.keystore.location", own.to_str().context("a path in UTF-8")?);
        put("sasl.enabled.mechanisms", "OAUTHBEARER");
        put(
            "oauthbearer.sasl.server.callback.handler.class",
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler",
        );
        put(
            "oauthbearer.sasl.jaas.config",
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;",
        );
        put("oauthbearer.sasl.oauthbearer.jwks.endpoint.url", url);
        put("oauthbearer.sasl.oauthbearer.expected.audience", "kafka");
        put(
            "oauthbearer.sasl.oauthbearer.expected.issuer",
            "https://issuer.example",
        );
        // Tokens of a few seconds are to count no longer.
        put("oauthbearer.sasl.oauthbearer.clock.skew.seconds", "1");
    }
    settings.extend(authorizer_settings());
    let settings: Vec<(&str, &str)> = settings.iter().map(|(key, value)| (&**key, &**value)).collect();
    let site = Site::create("oauth", &settings)?;
    let listeners = [("FILED", "SASL_SSL", ports[0]), ("SERVED", "SASL_SSL", ports[1])];
    add_listeners(&site, listeners)?;
    Ok((site, ports.map(|port| format!("localhost:{port}"))))
}
