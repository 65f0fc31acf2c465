//! `openssl s_client` with one version and one cipher suite at a time, with and without a client
//! certificate: what each listener serves, and the alert by which it refuses the rest.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::broker::Broker;
use super::certificates::expired;
use super::commands::shown;
use crate::interop::server::Target;
use crate::interop::table::Table;
use crate::interop::toolchain::need;

/// Far above the usual time of a handshake.
const LIMIT: Duration = Duration::from_secs(20);

/// ApiVersions version 0: length, key, version, correlation id, a null client id.
const API_VERSIONS: [u8; 14] = [0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 1, 0xff, 0xff];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Seen {
    Served,
    Alert(u8),
    /// The end of the connection without an alert.
    Closed,
}

use Seen::{Alert, Closed, Served};

const BAD_CERTIFICATE: Seen = Alert(42);
const CERTIFICATE_EXPIRED: Seen = Alert(45);
const CERTIFICATE_UNKNOWN: Seen = Alert(46);
const HANDSHAKE_FAILURE: Seen = Alert(40);
const UNKNOWN_CA: Seen = Alert(48);
const PROTOCOL_VERSION: Seen = Alert(70);
const CERTIFICATE_REQUIRED: Seen = Alert(116);

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Certificate {
    None,
    Good,
    OfAStranger,
    Expired,
}

/// One handshake, and what must come of it.
struct Row {
    listener: &'static str,
    version: &'static str,
    /// As OpenSSL names it.
    suite: &'static str,
    certificate: Certificate,
    ottla: Seen,
    kafka: Seen,
}

/// The versions, as `s_client` takes and prints them.
const TLS_1_0: &str = "TLSv1";
const TLS_1_1: &str = "TLSv1.1";
const TLS_1_2: &str = "TLSv1.2";
const TLS_1_3: &str = "TLSv1.3";

/// Suites of TLS 1.3, and whether both brokers have them.
const OF_TLS_1_3: [(&str, bool); 4] = [
    ("TLS_AES_128_GCM_SHA256", true),
    ("TLS_AES_256_GCM_SHA384", true),
    ("TLS_CHACHA20_POLY1305_SHA256", true),
    ("TLS_AES_128_CCM_SHA256", false),
];

/// Suites of TLS 1.2 with AEAD and ephemeral keys: the listener with such a certificate has them.
const OF_TLS_1_2: [(&str, &str); 6] = [
    ("SSL", "ECDHE-ECDSA-AES128-GCM-SHA256"),
    ("SSL", "ECDHE-ECDSA-AES256-GCM-SHA384"),
    ("SSL", "ECDHE-ECDSA-CHACHA20-POLY1305"),
    ("RSA", "ECDHE-RSA-AES128-GCM-SHA256"),
    ("RSA", "ECDHE-RSA-AES256-GCM-SHA384"),
    ("RSA", "ECDHE-RSA-CHACHA20-POLY1305"),
];

/// Suites that Java has for old clients and rustls leaves out: CBC, whose padding has been attacked
/// again and again; Diffie-Hellman without curves; and no forward secrecy.
const OF_JAVA: [(&str, &str); 9] = [
    ("SSL", "ECDHE-ECDSA-AES128-SHA256"),
    ("SSL", "ECDHE-ECDSA-AES256-SHA384"),
    ("SSL", "ECDHE-ECDSA-AES128-SHA"),
    ("RSA", "ECDHE-RSA-AES128-SHA256"),
    ("RSA", "ECDHE-RSA-AES256-SHA"),
    ("RSA", "DHE-RSA-AES128-GCM-SHA256"),
    ("RSA", "DHE-RSA-AES256-SHA256"),
    ("RSA", "AES128-GCM-SHA256"),
    ("RSA", "AES256-SHA"),
];

/// Suites of no broker: without authentication or encryption, of other ciphers, or for a key of
/// another kind than the listener's.
const OF_NONE: [(&str, &str); 7] = [
    ("SSL", "AECDH-AES128-SHA"),
    ("SSL", "ECDHE-ECDSA-NULL-SHA"),
    ("SSL", "ECDHE-ECDSA-AES128-CCM"),
    ("SSL", "ECDHE-ECDSA-CAMELLIA128-SHA256"),
    ("SSL", "ECDHE-RSA-AES128-GCM-SHA256"),
    ("RSA", "ECDHE-ECDSA-AES128-GCM-SHA256"),
    ("RSA", "NULL-SHA256"),
];

/// What clients before TLS 1.2 offer.
const OF_OLD_VERSIONS: [(&str, &str); 4] = [
    ("SSL", "ECDHE-ECDSA-AES128-SHA"),
    ("RSA", "ECDHE-RSA-AES128-SHA"),
    ("RSA", "DHE-RSA-AES128-SHA"),
    ("RSA", "AES128-SHA"),
];

fn rows() -> Vec<Row> {
    let row = |(listener, suite), version, ottla, kafka| Row {
        listener,
        version,
        suite,
        certificate: Certificate::None,
        ottla,
        kafka,
    };
    let mut rows = Vec::new();
    for listener in ["SSL", "RSA"] {
        rows.extend(OF_TLS_1_3.map(|(suite, is_served)| {
            let seen = if is_served { Served } else { HANDSHAKE_FAILURE };
            row((listener, suite), TLS_1_3, seen, seen)
        }));
    }
    rows.extend(OF_TLS_1_2.map(|suite| row(suite, TLS_1_2, Served, Served)));
    rows.extend(OF_JAVA.map(|suite| row(suite, TLS_1_2, HANDSHAKE_FAILURE, Served)));
    rows.extend(OF_NONE.map(|suite| row(suite, TLS_1_2, HANDSHAKE_FAILURE, HANDSHAKE_FAILURE)));
    for version in [TLS_1_0, TLS_1_1] {
        // rustls wants a list of signature algorithms, which such a hello cannot have (RFC 5246,
        // 7.4.1.4.1), before it looks at the version.
        rows.extend(OF_OLD_VERSIONS.map(|suite| row(suite, version, HANDSHAKE_FAILURE, PROTOCOL_VERSION)));
    }
    rows.extend(certificates());
    rows
}

/// Client certificates at listeners that ask for none, request one, and require one. Java names
/// most reasons by one alert.
fn certificates() -> impl Iterator<Item = Row> {
    use Certificate::{Expired, Good, None, OfAStranger};
    let judged = [
        ("SSL", Good, Served, Served),
        ("SSL", OfAStranger, Served, Served),
        ("SSL", Expired, Served, Served),
        ("REQUESTED", None, Served, Served),
        ("REQUESTED", Good, Served, Served),
        ("REQUESTED", OfAStranger, UNKNOWN_CA, CERTIFICATE_UNKNOWN),
        ("REQUESTED", Expired, CERTIFICATE_EXPIRED, CERTIFICATE_UNKNOWN),
        ("MUTUAL", None, CERTIFICATE_REQUIRED, BAD_CERTIFICATE),
        ("MUTUAL", Good, Served, Served),
        ("MUTUAL", OfAStranger, UNKNOWN_CA, CERTIFICATE_UNKNOWN),
        ("MUTUAL", Expired, CERTIFICATE_EXPIRED, CERTIFICATE_UNKNOWN),
    ];
    let versions = [
        (TLS_1_2, "ECDHE-ECDSA-AES128-GCM-SHA256"),
        (TLS_1_3, "TLS_AES_128_GCM_SHA256"),
    ];
    versions.into_iter().flat_map(move |(version, suite)| {
        judged.map(|(listener, certificate, ottla, kafka)| Row {
            listener,
            version,
            suite,
            certificate,
            ottla,
            kafka,
        })
    })
}

/// Tries every row on one broker; each of its listeners is a line of the table.
pub fn run(table: &mut Table, broker: &Broker, target: Target) -> Result<()> {
    need("openssl", &["version"], "OpenSSL 3 (Debian: openssl)")?;
    let authority = &broker.authority;
    let expired = authority.sign("client-expired", &["client"], expired)?;
    let mut outcomes: BTreeMap<&str, Vec<Result<()>>> = BTreeMap::new();
    for row in rows() {
        let store = match row.certificate {
            Certificate::None => None,
            Certificate::Good => Some(&broker.client_store),
            Certificate::OfAStranger => Some(&broker.stranger_store),
            Certificate::Expired => Some(&expired),
        };
        let outcome = row.check(&broker.address(row.listener), store, target);
        outcomes.entry(row.listener).or_default().push(outcome);
    }
    for (listener, outcomes) in outcomes {
        let name = format!(
            "openssl s_client on {}, {listener}: all of {}",
            target.name(),
            outcomes.len()
        );
        let failures: Vec<String> = outcomes
            .into_iter()
            .filter_map(|outcome| outcome.err().map(shown))
            .collect();
        let outcome = match failures.is_empty() {
            true => Ok(()),
            false => Err(failures.join("; ")),
        };
        super::add(table, &name, outcome);
    }
    Ok(())
}

impl Row {
    fn check(&self, address: &str, store: Option<&PathBuf>, target: Target) -> Result<()> {
        let expected = match target {
            Target::Ottla => self.ottla,
            Target::Kafka => self.kafka,
        };
        let (version, suite) = (self.version, self.suite);
        let certificate = match self.certificate {
            Certificate::None => "no certificate",
            Certificate::Good => "a certificate",
            Certificate::OfAStranger => "a stranger's certificate",
            Certificate::Expired => "an expired certificate",
        };
        let what = format!("{version}, {suite}, {certificate}");
        let seen = self
            .handshake(address, store.map(PathBuf::as_path))
            .with_context(|| what.clone())?;
        ensure!(seen == expected, "{what}: {seen:?} instead of {expected:?}");
        Ok(())
    }

    /// Served means that a request is answered: with TLS 1.3 a client learns only from its first
    /// read whether its certificate was accepted.
    fn handshake(&self, address: &str, store: Option<&Path>) -> Result<Seen> {
        let mut child = self
            .command(address, store)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("cannot start openssl")?;
        let mut input = child.stdin.take().context("its input")?;
        let mut output = child.stdout.take().context("its output")?;
        // It ends when it is refused, and may have ended already.
        let _ = input.write_all(&API_VERSIONS);
        let (sender, receiver) = channel();
        let reading = thread::spawn(move || {
            // No receiver is left after the time limit.
            let _ = sender.send(output.read_exact(&mut [0; 4]).is_ok());
        });
        let answered = receiver.recv_timeout(LIMIT);
        let _ = child.kill();
        let said = child.wait_with_output()?.stderr;
        reading.join().expect("reading does not panic");
        let said = String::from_utf8_lossy(&said);
        match answered {
            Err(_) => bail!("no end within {} s: {said}", LIMIT.as_secs()),
            Ok(true) => {
                let version = format!("Protocol version: {}\n", self.version);
                let suite = format!("Ciphersuite: {}\n", self.suite);
                ensure!(said.contains(&version) && said.contains(&suite), "{said}");
                Ok(Served)
            }
            Ok(false) => refusal(&said),
        }
    }

    fn command(&self, address: &str, store: Option<&Path>) -> Command {
        let mut command = Command::new("openssl");
        // The machine's own settings forbid old versions and suites.
        command.env("OPENSSL_CONF", "/dev/null");
        command.args(["s_client", "-brief", "-connect", address]);
        match self.version {
            TLS_1_3 => command.args(["-tls1_3", "-ciphersuites", self.suite]),
            version => command.args([
                &version.to_lowercase().replace("tlsv", "-tls").replace('.', "_"),
                "-cipher",
                &format!("{}:@SECLEVEL=0", self.suite),
            ]),
        };
        if let Some(store) = store {
            command.arg("-cert").arg(store).arg("-key").arg(store);
        }
        command
    }
}

/// What `s_client` says at its end.
fn refusal(said: &str) -> Result<Seen> {
    let number = said.split("SSL alert number ").nth(1);
    if let Some(number) = number.and_then(|text| text.split_whitespace().next()) {
        return Ok(Alert(number.parse()?));
    }
    let is_closed = ["unexpected eof", "errno=", "CONNECTION ESTABLISHED"]
        .iter()
        .any(|word| said.contains(word));
    ensure!(is_closed, "{said}");
    Ok(Closed)
}
