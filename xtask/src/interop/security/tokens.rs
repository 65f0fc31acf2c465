//! Our client and our commands with OAUTHBEARER: tokens from files and by client credentials,
//! tokens that end and are renewed, and every token and login that must be refused.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use ottla_client::config::Config;

use super::commands::{CONSUME, Connection, LIST_ACLS, PRODUCE, Step, TOPIC, run_steps, shown};
use super::exchange::{self, Caller};
use super::foreign::create;
use super::oauth::{INVALID, Provider};
use super::{CALL_MS, check, guarded, trusting};
use crate::interop::clients::Outcome;
use crate::interop::server::{Programs, Site, Target};
use crate::interop::table::Table;
use crate::interop::toolchain;

const MODULE: &str = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule";
const TOKEN: &str = "sasl.oauthbearer.token";
const URL: &str = "sasl.oauthbearer.token.endpoint.url";
const ID: &str = "sasl.oauthbearer.client.credentials.client.id";
const SECRET: &str = "sasl.oauthbearer.client.credentials.client.secret";
const SCOPE: &str = "sasl.oauthbearer.scope";

/// A token of four seconds is replaced after two, so that a session never begins at a token's end.
const EARLY: [(&str, &str); 3] = [
    ("sasl.login.refresh.window.factor", "0.5"),
    ("sasl.login.refresh.min.period.seconds", "0"),
    ("sasl.login.refresh.buffer.seconds", "0"),
];

/// 2,000 records in eight seconds, the time of two tokens.
const PRODUCE_LONG: Step = (
    &[
        "perf",
        "produce",
        "--topic",
        TOPIC,
        "--num-records",
        "2000",
        "--record-size",
        "100",
        "--throughput",
        "250",
    ],
    "2000 records sent",
);

/// A broker whose listeners take tokens of the provider.
pub struct Stage<'a> {
    pub site: &'a Site,
    /// Of the listener with the keys of a file, and of the one with those of a server.
    pub addresses: &'a [String; 2],
    pub provider: &'a Provider,
    pub authority: &'a Path,
}

/// Runs everything.
pub fn run(table: &mut Table, programs: &Programs, stage: &Stage<'_>) -> Result<()> {
    let ways_in = stage.ways_in()?.into_iter().enumerate();
    for (number, (name, config)) in ways_in {
        let topic = format!("tokens-{number}");
        let outcome = guarded(move || exchange::run(&config, &topic));
        add(table, name, outcome.and_then(|result| result));
    }
    // Each takes the time of three tokens.
    std::thread::scope(|scope| {
        let renewals = stage.renewals().map(|(name, config)| {
            let run = || guarded(move || exchange::outlive_sessions(&config, "tokens-0"));
            (name, scope.spawn(run))
        });
        for (name, renewal) in renewals {
            let outcome = renewal.join().expect("a panic ends in an error before");
            add(table, name, outcome.and_then(|result| result));
        }
    });
    for (name, config, expected) in stage.mistakes()? {
        add(table, &name, refused(&config, expected));
    }
    commands(table, programs, stage)
}

fn add(table: &mut Table, name: &str, outcome: Result<()>) {
    let outcome: Outcome = outcome.map_err(shown);
    super::add(table, &format!("ottla: OAUTHBEARER, {name}"), outcome);
}

fn refused(config: &Config, expected: &'static str) -> Result<()> {
    Caller::ALL.into_iter().try_for_each(|caller| {
        let config = config.clone();
        let result = guarded(move || caller.attempt(&config, Duration::from_millis(CALL_MS)))?;
        check(caller, result, expected).with_context(|| format!("{caller:?}"))
    })
}

impl Stage<'_> {
    fn base(&self, address: &str) -> Config {
        let config = Config::new()
            .set("bootstrap.servers", address)
            .set("security.protocol", "SASL_SSL")
            .set("sasl.mechanism", "OAUTHBEARER")
            .set("default.api.timeout.ms", CALL_MS)
            .set("max.block.ms", CALL_MS)
            // How long a login is tried in all.
            .set("sasl.login.retry.backoff.max.ms", 500);
        trusting(config, self.authority)
    }

    fn of_file(&self, kind: &str) -> Config {
        self.base(&self.addresses[0]).set(URL, self.provider.file(kind))
    }

    fn of_server(&self, kind: &str) -> Config {
        self.base(&self.addresses[1])
            .set(URL, self.provider.login(kind))
            .set(ID, "alice")
            .set(SECRET, "alice-secret")
            .set(SCOPE, "kafka")
    }

    fn ways_in(&self) -> Result<Vec<(&'static str, Config)>> {
        let jaas =
            format!("{MODULE} required clientId=\"alice\" clientSecret=\"alice-secret\" scope=\"kafka\";");
        let of_jaas = self.base(&self.addresses[0]).set("sasl.jaas.config", jaas);
        let inline = self.base(&self.addresses[1]).set(TOKEN, self.token("RS256")?);
        Ok(vec![
            ("RS256 from a file", self.of_file("RS256")),
            ("ES256 from a file", self.of_file("ES256")),
            ("the token itself", inline),
            ("client credentials, RS256", self.of_server("RS256")),
            ("client credentials, ES256", self.of_server("ES256")),
            (
                "client credentials from JAAS",
                of_jaas.set(URL, self.provider.login("RS256")),
            ),
        ])
    }

    fn renewals(&self) -> [(&'static str, Config); 2] {
        let of_server = EARLY.iter().fold(self.of_server("4"), |config, (key, value)| {
            config.set(*key, *value)
        });
        [
            (
                "a file whose token is replaced every second",
                self.of_file("renewed"),
            ),
            ("client credentials, tokens of four seconds", of_server),
        ]
    }

    /// What must fail: its name, the client's configuration, and text that its error must contain.
    fn mistakes(&self) -> Result<Vec<(String, Config, &'static str)>> {
        let unserved = format!("http://127.0.0.1:{}/token", toolchain::free_port()?);
        let password = self
            .base(&self.addresses[0])
            .set("sasl.mechanism", "PLAIN")
            .set("sasl.username", "alice")
            .set("sasl.password", "secret");
        let unlike = self.base(&self.addresses[0]).set(TOKEN, "no token");
        let of_server = |key, value: &str| self.of_server("RS256").set(key, value);
        let mut mistakes = vec![
            (
                "an expired token of a server",
                self.of_server("expired"),
                "invalid_token",
            ),
            (
                "the secret of another client",
                of_server(SECRET, "wrong"),
                "invalid_client",
            ),
            (
                "a scope that is not given",
                of_server(SCOPE, "other"),
                "invalid_scope",
            ),
            (
                "no identity provider",
                of_server(URL, &unserved),
                "Connection refused",
            ),
            ("no file", self.of_file("absent"), "cannot be read"),
            ("text that is no token", unlike, "characters that no token has"),
            (
                "a password",
                password,
                "does not accept PLAIN; it accepts OAUTHBEARER",
            ),
        ]
        .into_iter()
        .map(|(name, config, expected)| (name.to_owned(), config, expected))
        .collect::<Vec<_>>();
        for kind in INVALID {
            let expected = "the broker refused the token: {\"status\":\"invalid_token\"}";
            mistakes.push((format!("a token: {kind}"), self.of_file(kind), expected));
        }
        Ok(mistakes)
    }

    fn token(&self, kind: &str) -> Result<String> {
        let url = self.provider.file(kind);
        let file = url.strip_prefix("file://").unwrap_or(&url);
        fs::read_to_string(file).with_context(|| format!("reading {file}"))
    }
}

/// The same settings in the file of `--command-config`.
fn commands(table: &mut Table, programs: &Programs, stage: &Stage<'_>) -> Result<()> {
    create(stage.site, TOPIC)?;
    let provider = stage.provider;
    let of_server = format!("{ID}=alice\n{SECRET}=alice-secret\n{SCOPE}=kafka\n{URL}=");
    let early: String = EARLY
        .iter()
        .map(|(key, value)| format!("{key}={value}\n"))
        .collect();
    for (name, source, steps) in [
        (
            "a token from a file",
            format!("{URL}={}\n", provider.file("RS256")),
            &[PRODUCE, CONSUME, LIST_ACLS][..],
        ),
        (
            "client credentials",
            format!("{of_server}{}\n", provider.login("ES256")),
            &[PRODUCE, CONSUME, LIST_ACLS],
        ),
        (
            "client credentials, tokens of four seconds",
            format!("{of_server}{}\n{early}", provider.login("4")),
            &[PRODUCE_LONG],
        ),
    ] {
        let properties = stage.site.home().join("tokens.properties");
        let text = format!(
            "security.protocol=SASL_SSL\nssl.truststore.type=PEM\nssl.truststore.location={}\nsasl.mechanism=OAUTHBEARER\n{source}",
            stage.authority.display()
        );
        fs::write(&properties, text)?;
        let connection = Connection {
            name,
            user: "alice",
            address: stage.addresses[0].clone(),
            properties,
        };
        run_steps(table, programs, stage.site, Target::Ottla, &connection, steps);
    }
    Ok(())
}
