//! Brokers with TLS and SASL, for every client, with every mistake of an operator: each must end in
//! an error that names the mistake. Here is our client; the others are in the modules.

mod admin_commands;
pub mod broker;
pub mod certificates;
mod commands;
mod exchange;
mod foreign;
mod many;
mod names;
mod oauth;
mod takeover;
mod tls_matrix;
mod tokens;

use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use ottla_client::Error;
use ottla_client::config::Config;

use super::clients::{Clients, Outcome};
use super::server::{Programs, Target};
use super::table::Table;
pub(super) use broker::add_listeners;
use broker::{Broker, PASSWORD, USER};
pub(super) use commands::of_scram;
use exchange::Caller;
pub(super) use foreign::create as create_topic;

/// Timeout of a call that cannot succeed; its error usually comes immediately.
const CALL_MS: u64 = 4_000;
/// The error texts for a wrong protocol on a port.
const PORT_MISTAKES: [&str; 4] = [
    "the port speaks TLS",
    "may be one without TLS",
    "the port may want SASL",
    "closed by the broker",
];
/// Longer than any call: a call that takes this long counts as hung.
const HANG: Duration = Duration::from_secs(60);

/// Our client against both brokers, the other clients against `target`; then names, and takeovers
/// between the two.
pub fn run(table: &mut Table, programs: &Programs, clients: &Clients, target: Target) -> Result<()> {
    for of_ours in [Target::Kafka, Target::Ottla] {
        println!("security: our client against {}", of_ours.name());
        let broker = Broker::create("security")?;
        let server = broker.start(programs, of_ours)?;
        for (name, outcome) in ways_in(&broker).into_iter().chain(mistakes(&broker, of_ours)) {
            add(table, &format!("ottla on {}: {name}", of_ours.name()), outcome);
        }
        commands::run(table, programs, &broker, of_ours)?;
        tls_matrix::run(table, &broker, of_ours)?;
        if of_ours == target {
            foreign::run(table, programs, clients, &broker)?;
        }
        server.stop()?;
    }
    names::run(table, programs, clients, target)?;
    takeover::run(table, programs, clients)?;
    oauth::run(table, programs, clients)
}

fn add(table: &mut Table, name: &str, outcome: Outcome) {
    println!(
        "security: {name}: {}",
        outcome.as_ref().err().map_or("ok", String::as_str)
    );
    table.add_other(format!("security: {name}"), outcome);
}

fn trusting(config: Config, authority: &Path) -> Config {
    config
        .set("ssl.truststore.type", "PEM")
        .set("ssl.truststore.location", authority.display())
}

fn showing(config: Config, store: &Path) -> Config {
    config
        .set("ssl.keystore.type", "PEM")
        .set("ssl.keystore.location", store.display())
}

fn at(broker: &Broker, listener: &str, protocol: &str) -> Config {
    Config::new()
        .set("bootstrap.servers", broker.address(listener))
        .set("security.protocol", protocol)
        .set("default.api.timeout.ms", CALL_MS)
        .set("max.block.ms", CALL_MS)
}

fn tls(broker: &Broker, listener: &str) -> Config {
    trusting(at(broker, listener, "SSL"), &broker.authority.file)
}

fn sasl(config: Config, mechanism: &str, password: &str) -> Config {
    sasl_as(config, mechanism, USER, password)
}

fn sasl_as(config: Config, mechanism: &str, user: &str, password: &str) -> Config {
    config
        .set("sasl.mechanism", mechanism)
        .set("sasl.username", user)
        .set("sasl.password", password)
}

fn sasl_tls(broker: &Broker, mechanism: &str, password: &str) -> Config {
    let config = trusting(at(broker, "SASLSSL", "SASL_SSL"), &broker.authority.file);
    sasl(config, mechanism, password)
}

/// The same as a line of JAAS.
fn jaas(broker: &Broker, mechanism: &str, module: &str) -> Config {
    let quoted = PASSWORD.replace('\\', "\\\\").replace('"', "\\\"");
    trusting(at(broker, "SASLSSL", "SASL_SSL"), &broker.authority.file)
        .set("sasl.mechanism", mechanism)
        .set(
            "sasl.jaas.config",
            format!("{module} required username=\"{USER}\" password=\"{quoted}\";"),
        )
}

/// All kinds of connection that must work: records are produced and consumed.
fn ways_in(broker: &Broker) -> Vec<(String, Outcome)> {
    let scram = "org.apache.kafka.common.security.scram.ScramLoginModule";
    let plain = "org.apache.kafka.common.security.plain.PlainLoginModule";
    let mut no_name = tls(broker, "MISNAMED").set("ssl.endpoint.identification.algorithm", "");
    no_name = no_name.set("client.id", "any-name");
    let cases = [
        (
            "TLS 1.3",
            tls(broker, "SSL").set("ssl.enabled.protocols", "TLSv1.3"),
        ),
        (
            "TLS 1.2",
            tls(broker, "SSL").set("ssl.enabled.protocols", "TLSv1.2"),
        ),
        ("TLS, name not checked", no_name),
        ("mutual TLS", showing(tls(broker, "MUTUAL"), &broker.client_store)),
        ("PLAIN over TLS", sasl_tls(broker, "PLAIN", PASSWORD)),
        (
            "SCRAM-SHA-256 over TLS",
            sasl_tls(broker, "SCRAM-SHA-256", PASSWORD),
        ),
        (
            "SCRAM-SHA-512 over TLS",
            sasl_tls(broker, "SCRAM-SHA-512", PASSWORD),
        ),
        ("SCRAM-SHA-512 from JAAS", jaas(broker, "SCRAM-SHA-512", scram)),
        ("PLAIN from JAAS", jaas(broker, "PLAIN", plain)),
        (
            "SCRAM-SHA-256 without TLS",
            sasl(at(broker, "SASL", "SASL_PLAINTEXT"), "SCRAM-SHA-256", PASSWORD),
        ),
    ];
    let run = |(number, (name, config)): (usize, (&str, Config))| {
        let topic = format!("secured-{number}");
        let outcome = guarded(move || exchange::run(&config, &topic)).and_then(|result| result);
        (name.to_owned(), outcome.map_err(|error| format!("{error:#}")))
    };
    let mut outcomes: Vec<(String, Outcome)> = cases.into_iter().enumerate().map(run).collect();
    let config = sasl_tls(broker, "SCRAM-SHA-512", PASSWORD);
    let outcome = guarded(move || exchange::outlive_sessions(&config, "secured-0")).and_then(|result| result);
    outcomes.push((
        "sessions are renewed".to_owned(),
        outcome.map_err(|error| format!("{error:#}")),
    ));
    outcomes
}

/// A mistake: its name, the client's configuration, and text that its error must contain.
type Mistake = (&'static str, Config, &'static str);

fn wrong_certificates(broker: &Broker) -> Vec<Mistake> {
    let stranger = |listener| trusting(at(broker, listener, "SSL"), &broker.stranger.file);
    vec![
        (
            "expired certificate",
            tls(broker, "EXPIRED"),
            "certificate has expired",
        ),
        (
            "wrong host name",
            tls(broker, "MISNAMED"),
            "certificate is for another name",
        ),
        (
            "unknown authority",
            stranger("SSL"),
            "an issuer that this client trusts",
        ),
        (
            "only the system's authorities",
            at(broker, "SSL", "SSL"),
            "an issuer that this client trusts",
        ),
        (
            "missing client certificate",
            tls(broker, "MUTUAL"),
            "requires a client certificate",
        ),
        (
            "client certificate of a stranger",
            showing(tls(broker, "MUTUAL"), &broker.stranger_store),
            "does not accept this client's certificate",
        ),
    ]
}

fn wrong_passwords(broker: &Broker) -> Vec<Mistake> {
    vec![
        (
            "wrong password, PLAIN",
            sasl_tls(broker, "PLAIN", "wrong"),
            "Invalid username or password",
        ),
        (
            "wrong password, SCRAM-SHA-256",
            sasl_tls(broker, "SCRAM-SHA-256", "wrong"),
            "invalid credentials",
        ),
        (
            "wrong password, SCRAM-SHA-512",
            sasl_tls(broker, "SCRAM-SHA-512", "wrong"),
            "invalid credentials",
        ),
        (
            "mechanism that is not enabled",
            sasl(at(broker, "SASL", "SASL_PLAINTEXT"), "PLAIN", PASSWORD),
            "does not accept PLAIN; it accepts SCRAM-SHA-256",
        ),
    ]
}

fn wrong_ports(broker: &Broker, target: Target) -> Vec<Mistake> {
    // Ottla sends no alert to a client that does not speak TLS.
    let to_tls_port = match target {
        Target::Kafka => PORT_MISTAKES[0],
        Target::Ottla => PORT_MISTAKES[3],
    };
    let plaintext = Config::new()
        .set("default.api.timeout.ms", CALL_MS)
        .set("max.block.ms", CALL_MS);
    vec![
        (
            "without TLS to a TLS port",
            plaintext.clone().set("bootstrap.servers", broker.address("SSL")),
            to_tls_port,
        ),
        (
            "TLS to a port without",
            trusting(
                plaintext.clone().set("security.protocol", "SSL"),
                &broker.authority.file,
            )
            .set("bootstrap.servers", broker.site.bootstrap()),
            PORT_MISTAKES[1],
        ),
        (
            "without SASL to a SASL port",
            plaintext.clone().set("bootstrap.servers", broker.address("SASL")),
            PORT_MISTAKES[2],
        ),
        (
            "SASL to a port without",
            sasl(
                plaintext.set("security.protocol", "SASL_PLAINTEXT"),
                "PLAIN",
                PASSWORD,
            )
            .set("bootstrap.servers", broker.site.bootstrap()),
            "the port wants no SASL",
        ),
    ]
}

/// Everything that must fail, with every client.
fn mistakes(broker: &Broker, target: Target) -> Vec<(String, Outcome)> {
    let cases = [
        wrong_certificates(broker),
        wrong_passwords(broker),
        wrong_ports(broker, target),
    ];
    let run = |(name, config, expected): Mistake| {
        let outcome = Caller::ALL.into_iter().try_for_each(|caller| {
            let config = config.clone();
            let result = guarded(move || caller.attempt(&config, Duration::from_millis(CALL_MS)))?;
            check(caller, result, expected).with_context(|| format!("{caller:?}"))
        });
        (name.to_owned(), outcome.map_err(|error| format!("{error:#}")))
    };
    cases.into_iter().flatten().map(run).collect()
}

fn check(caller: Caller, result: Result<(), Error>, expected: &str) -> Result<()> {
    let error = match (caller, result) {
        // As in Java, a poll ends without records if brokers are unreachable: they may come back.
        (Caller::Consumer, Ok(())) if !is_lasting(expected) => return Ok(()),
        (_, Ok(())) => bail!("it worked"),
        (_, Err(error)) => error,
    };
    ensure!(error.to_string().contains(expected), "{error}");
    Ok(())
}

/// Whether the mistake is in certificates or passwords; a wrong port may be corrected before a
/// retry.
fn is_lasting(expected: &str) -> bool {
    !PORT_MISTAKES.contains(&expected)
}

/// Runs `work` on a separate thread and abandons it if it hangs.
fn guarded<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        // The receiver is gone if the work took too long.
        let _ = sender.send(work());
    });
    match receiver.recv_timeout(HANG) {
        Ok(value) => Ok(value),
        Err(RecvTimeoutError::Timeout) => bail!("hangs: no end after {} s", HANG.as_secs()),
        Err(RecvTimeoutError::Disconnected) => bail!("panicked"),
    }
}
