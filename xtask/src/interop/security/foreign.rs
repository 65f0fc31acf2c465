//! Other clients, and Kafka's tools, on every kind of listener: those that must work, and those
//! that must be refused with the client's own words for it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use ottla_client::admin::NewTopic;

use super::broker::{Broker, PASSWORD, USER, admin, escaped};
use crate::interop::clients::{Client, Clients, Outcome, run_cases};
use crate::interop::everyday;
use crate::interop::server::{Programs, Site};
use crate::interop::table::Table;
use crate::interop::tools::{CONFIGS, TOPICS, Tools, contains};

const ACLS: &str = "org.apache.kafka.tools.AclCommand";

/// How a client connects, and what must come of it: `works`, or the kind of its failure.
#[derive(Clone)]
pub struct Connection {
    pub name: String,
    pub address: String,
    pub protocol: &'static str,
    pub trust: PathBuf,
    pub key: Option<PathBuf>,
    /// Mechanism, user and password.
    pub login: Option<(&'static str, String, String)>,
    pub expected: &'static str,
}

impl Connection {
    pub fn new(broker: &Broker, name: &str, listener: &str, protocol: &'static str) -> Connection {
        Connection::to(name, broker.address(listener), protocol, &broker.authority.file)
    }

    pub fn to(name: &str, address: String, protocol: &'static str, trust: &Path) -> Connection {
        Connection {
            name: name.to_owned(),
            address,
            protocol,
            trust: trust.to_owned(),
            key: None,
            login: None,
            expected: "works",
        }
    }

    pub fn login(self, mechanism: &'static str, user: &str, password: &str) -> Connection {
        Connection {
            login: Some((mechanism, user.to_owned(), password.to_owned())),
            ..self
        }
    }

    pub fn key(self, store: &Path) -> Connection {
        Connection {
            key: Some(store.to_owned()),
            ..self
        }
    }

    fn trust(self, store: &Path) -> Connection {
        Connection {
            trust: store.to_owned(),
            ..self
        }
    }

    pub fn fails(self, expected: &'static str) -> Connection {
        Connection { expected, ..self }
    }

    /// The line that the clients' programs read.
    fn line(&self, topic: &str) -> String {
        let key = self
            .key
            .as_ref()
            .map_or("-".to_owned(), |key| key.display().to_string());
        let (mechanism, user, password) = self
            .login
            .as_ref()
            .map_or(("-", "-", "-"), |(mechanism, user, password)| {
                (*mechanism, user.as_str(), password.as_str())
            });
        [
            self.name.as_str(),
            &self.address,
            self.protocol,
            &self.trust.display().to_string(),
            &key,
            mechanism,
            user,
            password,
            topic,
            self.expected,
        ]
        .join("\t")
    }

    /// The client settings of Kafka's tools.
    fn properties(&self) -> String {
        let mut text = format!(
            "security.protocol={}\nssl.truststore.type=PEM\nssl.truststore.location={}\nrequest.timeout.ms=10000\n",
            self.protocol,
            self.trust.display()
        );
        if let Some(key) = &self.key {
            let _ = write!(
                text,
                "ssl.keystore.type=PEM\nssl.keystore.location={}\n",
                key.display()
            );
        }
        if let Some((mechanism, user, password)) = &self.login {
            let module = match *mechanism {
                "PLAIN" => "plain.PlainLoginModule",
                _ => "scram.ScramLoginModule",
            };
            let quoted = password.replace('\\', "\\\\").replace('"', "\\\"");
            let jaas = format!(
                "org.apache.kafka.common.security.{module} required username=\"{user}\" password=\"{quoted}\";"
            );
            let _ = write!(
                text,
                "sasl.mechanism={mechanism}\nsasl.jaas.config={}\n",
                escaped(&jaas)
            );
        }
        text
    }
}

/// A program that reads lines of connections.
#[derive(Clone, Copy)]
pub enum Program {
    /// Of the suite, with this phase.
    Suite(Client, &'static str),
    Sarama,
}

pub const PROGRAMS: [(&str, Program); 5] = [
    ("java", Program::Suite(Client::Java, "secured")),
    ("librdkafka", Program::Suite(Client::Librdkafka, "secured")),
    ("franz-go", Program::Suite(Client::FranzGo, "secured")),
    ("kafka-python", Program::Suite(Client::Librdkafka, "secured-pure")),
    ("sarama", Program::Sarama),
];

impl Program {
    fn command(self, programs: &Programs, clients: &Clients) -> Result<Command> {
        let (mut command, phase) = match self {
            Program::Suite(client, phase) => (clients.command(&programs.kafka, client), phase),
            Program::Sarama => (Command::new(everyday::prepare_go()?), "sarama-secured"),
        };
        command.arg(phase);
        Ok(command)
    }
}

/// Everything with every client and tool.
pub fn run(table: &mut Table, programs: &Programs, clients: &Clients, broker: &Broker) -> Result<()> {
    let connections: Vec<Connection> = ways_in(broker).into_iter().chain(mistakes(broker)).collect();
    for program in PROGRAMS {
        run_program(table, programs, clients, &broker.site, program, &connections)?;
    }
    tools(table, programs, broker);
    Ok(())
}

fn ways_in(broker: &Broker) -> Vec<Connection> {
    let tls = |name, listener| Connection::new(broker, name, listener, "SSL");
    let both = |name, mechanism| {
        Connection::new(broker, name, "SASLSSL", "SASL_SSL").login(mechanism, USER, PASSWORD)
    };
    vec![
        tls("SSL", "SSL"),
        tls("SSL with a client certificate", "MUTUAL").key(&broker.client_store),
        both("SASL_SSL, PLAIN", "PLAIN"),
        both("SASL_SSL, SCRAM-SHA-256", "SCRAM-SHA-256"),
        both("SASL_SSL, SCRAM-SHA-512", "SCRAM-SHA-512"),
    ]
}

fn mistakes(broker: &Broker) -> Vec<Connection> {
    let tls = |name, listener| Connection::new(broker, name, listener, "SSL");
    let both = |name, mechanism, password| {
        Connection::new(broker, name, "SASLSSL", "SASL_SSL").login(mechanism, USER, password)
    };
    let plain = |name, listener, protocol| Connection::new(broker, name, listener, protocol);
    vec![
        tls("SSL, unknown authority", "SSL")
            .trust(&broker.stranger.file)
            .fails("untrusted"),
        tls("SSL, another host name", "MISNAMED").fails("misnamed"),
        tls("SSL, expired certificate", "EXPIRED").fails("expired"),
        tls("SSL without a client certificate", "MUTUAL").fails("certificate"),
        tls("SSL with a stranger's client certificate", "MUTUAL")
            .key(&broker.stranger_store)
            .fails("certificate"),
        both("SASL_SSL, unknown authority", "PLAIN", PASSWORD)
            .trust(&broker.stranger.file)
            .fails("untrusted"),
        both("SASL_SSL, PLAIN, wrong password", "PLAIN", "wrong").fails("password"),
        both(
            "SASL_SSL, SCRAM-SHA-256, wrong password",
            "SCRAM-SHA-256",
            "wrong",
        )
        .fails("password"),
        both(
            "SASL_SSL, SCRAM-SHA-512, wrong password",
            "SCRAM-SHA-512",
            "wrong",
        )
        .fails("password"),
        plain("plaintext to a port with TLS", "SSL", "PLAINTEXT").fails("unserved"),
        plain("TLS without SASL to a port with both", "SASLSSL", "SSL").fails("unserved"),
        plain(
            "SASL without TLS to a port with both",
            "SASLSSL",
            "SASL_PLAINTEXT",
        )
        .login("PLAIN", USER, PASSWORD)
        .fails("unserved"),
    ]
}

/// Passes connections to one program and adds what it says of each.
pub fn run_program(
    table: &mut Table,
    programs: &Programs,
    clients: &Clients,
    site: &Site,
    (name, program): (&str, Program),
    connections: &[Connection],
) -> Result<()> {
    let topic = format!("secured-{name}");
    create(site, &topic)?;
    let lines = connections.iter().map(|connection| connection.line(&topic));
    let outcomes = outcomes(name, program.command(programs, clients)?, site, lines)?;
    for connection in connections {
        let outcome = outcomes.get(&connection.name).cloned();
        let outcome = outcome.unwrap_or_else(|| Err("did not run".to_owned()));
        super::add(table, &format!("{name}: {}", connection.name), outcome);
    }
    Ok(())
}

/// Creates a topic unless it is there.
pub fn create(site: &Site, topic: &str) -> Result<()> {
    let created = admin(site)?.create_topics(vec![NewTopic::new(topic)]).wait()?;
    for result in created.into_values() {
        if let Err(error) = result {
            ensure!(error.to_string().contains("exists"), "{topic}: {error}");
        }
    }
    Ok(())
}

/// One topic for each of the connections.
pub fn outcomes_with_topics(
    programs: &Programs,
    clients: &Clients,
    site: &Site,
    connections: &[(Connection, &str)],
) -> Result<BTreeMap<String, Outcome>> {
    let lines = connections
        .iter()
        .map(|(connection, topic)| connection.line(topic));
    let (name, java) = PROGRAMS[0];
    outcomes(name, java.command(programs, clients)?, site, lines)
}

/// - `name`: of the program's log files.
fn outcomes(
    name: &str,
    mut command: Command,
    site: &Site,
    lines: impl Iterator<Item = String>,
) -> Result<BTreeMap<String, Outcome>> {
    let file = site.home().join("connections");
    let lines: Vec<String> = lines.collect();
    fs::write(&file, lines.join("\n") + "\n")?;
    command.arg(site.bootstrap()).arg(file);
    run_cases(&format!("{name}-secured"), &mut command, Duration::from_secs(400))
}

/// A tool and what it must print.
type Step = (&'static str, &'static [&'static str], &'static str);

const STEPS: [Step; 3] = [
    (TOPICS, &["--list"], "secured-java"),
    (
        ACLS,
        &[
            "--add",
            "--allow-principal",
            "User:bob",
            "--operation",
            "Read",
            "--topic",
            "secured-java",
        ],
        "principal=User:bob",
    ),
    (
        CONFIGS,
        &["--describe", "--entity-type", "users"],
        "SCRAM credential configs for user-principal 'alice'",
    ),
];

/// Kafka's tools with `--command-config`.
fn tools(table: &mut Table, programs: &Programs, broker: &Broker) {
    for connection in ways_in(broker) {
        for step in STEPS {
            let outcome = tool(programs, broker, &connection, step);
            let name = step.0.rsplit('.').next().unwrap_or(step.0);
            let outcome = outcome.map_err(|error| format!("{error:#}").replace('\n', " "));
            super::add(table, &format!("{name}: {}", connection.name), outcome);
        }
    }
    let words = [
        ("untrusted", "unable to find valid certification path"),
        ("certificate", "Received fatal alert"),
        ("password", "Authentication failed"),
    ];
    for connection in mistakes(broker) {
        let Some((_, wanted)) = words.iter().find(|(kind, _)| *kind == connection.expected) else {
            continue;
        };
        let outcome = match tool(programs, broker, &connection, STEPS[0]) {
            Ok(()) => Err(anyhow::anyhow!("it was served")),
            Err(error) => contains(&format!("{error:#}"), wanted),
        };
        let outcome = outcome.map_err(|error| format!("{error:#}").replace('\n', " "));
        super::add(table, &format!("TopicCommand: {}", connection.name), outcome);
    }
}

fn tool(
    programs: &Programs,
    broker: &Broker,
    connection: &Connection,
    (class, arguments, wanted): Step,
) -> Result<()> {
    let file = broker.site.home().join("client.properties");
    fs::write(&file, connection.properties())?;
    let tools = Tools {
        kafka: &programs.kafka,
        bootstrap: connection.address.clone(),
    };
    let file = file.to_str().context("a path in UTF-8")?;
    let (is_done, output) =
        tools.run_for_all(class, &[arguments, &["--command-config", file]].concat(), "")?;
    if !is_done {
        bail!("{output}");
    }
    contains(&output, wanted)
}
