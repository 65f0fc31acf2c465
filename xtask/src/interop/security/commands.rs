//! Ottla's commands with `--command-config`: a file that Kafka's tools take, too, with the stores
//! that `keytool` makes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::admin_commands;
use super::broker::{Broker, PASSWORD, USER, escaped};
use super::foreign::create;
use crate::interop::server::{Programs, Site, Target};
use crate::interop::table::Table;
use crate::interop::toolchain::{need, run_quietly};
use crate::interop::tools::{TOPICS, Tools, contains};

pub const TOPIC: &str = "commands";
const STORE_PASSWORD: &str = "changeit";

/// Arguments of a command between its name and the connection, and what it must print.
pub type Step = (&'static [&'static str], &'static str);

pub const PRODUCE: Step = (
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
        "-1",
        "--command-property",
        "acks=all",
    ],
    "2000 records sent",
);
pub const CONSUME: Step = (
    &["perf", "consume", "--topic", TOPIC, "--num-records", "2000"],
    "2000",
);
pub const LIST_ACLS: Step = (&["access", "list"], "");

const STEPS: [Step; 6] = [
    PRODUCE,
    CONSUME,
    (
        &[
            "perf",
            "e2e",
            "--topic",
            TOPIC,
            "--num-records",
            "100",
            "--producer-acks",
            "all",
            "--record-size",
            "100",
        ],
        "Avg latency",
    ),
    LIST_ACLS,
    (&["transactions", "list"], ""),
    (&["bench", "run", "SCENARIO"], "throughput, records/s"),
];

/// Every command over SASL and TLS, and over TLS with a certificate of its own.
pub fn run(table: &mut Table, programs: &Programs, broker: &Broker, target: Target) -> Result<()> {
    need("keytool", &["-help"], "a JDK (Debian: openjdk-17-jdk-headless)")?;
    need("openssl", &["version"], "OpenSSL 3 (Debian: openssl)")?;
    create(&broker.site, TOPIC)?;
    let connections = connections(broker)?;
    for connection in &connections {
        let outcome = kafkas_tool(programs, connection);
        let name = format!("kafka-topics on {}: {}", target.name(), connection.name);
        super::add(table, &name, outcome.map_err(shown));
        run_steps(table, programs, &broker.site, target, connection, &STEPS);
    }
    admin_commands::run(table, programs, broker, target, &connections)
}

/// Runs our commands over one connection.
pub fn run_steps(
    table: &mut Table,
    programs: &Programs,
    site: &Site,
    target: Target,
    connection: &Connection,
    steps: &[Step],
) {
    for (arguments, wanted) in steps {
        let outcome =
            command(programs, site, connection, arguments).and_then(|output| contains(&output, wanted));
        let words = &arguments[..arguments.len().min(2)];
        let name = format!(
            "ottla {} on {}: {}",
            words.join(" "),
            target.name(),
            connection.name
        );
        super::add(table, &name, outcome.map_err(shown));
    }
}

pub fn shown(error: anyhow::Error) -> String {
    format!("{error:#}").replace('\n', " ")
}

/// A way to a broker, and the file of `--command-config`.
pub struct Connection {
    pub name: &'static str,
    /// The name of its principal.
    pub user: &'static str,
    pub address: String,
    pub properties: PathBuf,
}

fn connections(broker: &Broker) -> Result<Vec<Connection>> {
    let folder = broker.site.home();
    let [jks, pkcs12] = ["JKS", "PKCS12"].map(|kind| trust_store(folder, &broker.authority.file, kind));
    let key_store = key_store(folder, &broker.client_store)?;
    // The type is Java's default, JKS, for both: the file's content decides.
    let trusting = |store: &Path| {
        format!(
            "ssl.truststore.location={}\nssl.truststore.password={STORE_PASSWORD}\n",
            store.display()
        )
    };
    let of_sasl = format!(
        "security.protocol=SASL_SSL\n{}sasl.mechanism=SCRAM-SHA-512\n{}\n",
        trusting(&jks?),
        of_scram(USER, PASSWORD)
    );
    let of_certificate = format!(
        "security.protocol=SSL\n{}ssl.keystore.location={}\nssl.keystore.password={STORE_PASSWORD}\n",
        trusting(&pkcs12?),
        key_store.display()
    );
    let kinds = [
        ("SASL_SSL, trust store JKS", USER, "SASLSSL", of_sasl),
        ("mutual TLS, stores PKCS12", "CN=client", "MUTUAL", of_certificate),
    ];
    let made = kinds.into_iter().map(|(name, user, listener, text)| {
        let properties = folder.join(format!("commands-{listener}.properties"));
        fs::write(&properties, text)?;
        Ok(Connection {
            name,
            user,
            address: broker.address(listener),
            properties,
        })
    });
    made.collect()
}

/// The line of a client's file with its user.
pub fn of_scram(user: &str, password: &str) -> String {
    let quoted = password.replace('\\', "\\\\").replace('"', "\\\"");
    let jaas = format!(
        "org.apache.kafka.common.security.scram.ScramLoginModule required username=\"{user}\" password=\"{quoted}\";"
    );
    format!("sasl.jaas.config={}", escaped(&jaas))
}

/// Imports the authority's certificate.
fn trust_store(folder: &Path, certificate: &Path, kind: &str) -> Result<PathBuf> {
    let store = folder.join(format!("trust.{}", kind.to_lowercase()));
    let mut keytool = Command::new("keytool");
    keytool
        .args(["-importcert", "-noprompt", "-alias", "authority", "-file"])
        .arg(certificate)
        .arg("-keystore")
        .arg(&store)
        .args(["-storetype", kind, "-storepass", STORE_PASSWORD]);
    run_quietly(&mut keytool).context("keytool -importcert")?;
    Ok(store)
}

fn key_store(folder: &Path, pem: &Path) -> Result<PathBuf> {
    let store = folder.join("client.p12");
    let mut openssl = Command::new("openssl");
    openssl
        .args(["pkcs12", "-export", "-name", "client", "-in"])
        .arg(pem)
        .arg("-out")
        .arg(&store);
    openssl.args(["-passout", &format!("pass:{STORE_PASSWORD}")]);
    run_quietly(&mut openssl).context("openssl pkcs12 -export")?;
    Ok(store)
}

/// The same file with a tool of Kafka's.
fn kafkas_tool(programs: &Programs, connection: &Connection) -> Result<()> {
    let tools = Tools {
        kafka: &programs.kafka,
        bootstrap: connection.address.clone(),
    };
    let file = connection.properties.to_str().context("a path in UTF-8")?;
    let (is_done, output) = tools.run_for_all(TOPICS, &["--list", "--command-config", file], "")?;
    ensure!(is_done, "{output}");
    contains(&output, TOPIC)
}

fn command(programs: &Programs, site: &Site, connection: &Connection, arguments: &[&str]) -> Result<String> {
    let ottla = programs
        .ottla
        .as_ref()
        .context("the ottla binary was not built")?;
    let scenario = site.home().join("commands.yaml");
    fs::write(&scenario, SCENARIO)?;
    let mut command = Command::new(ottla);
    for argument in arguments {
        match *argument {
            "SCENARIO" => command.arg(&scenario),
            argument => command.arg(argument),
        };
    }
    command.args(["--bootstrap-server", &connection.address, "--command-config"]);
    command.arg(&connection.properties);
    command.current_dir(site.home());
    let output = command
        .stdin(Stdio::null())
        .output()
        .context("cannot start ottla")?;
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    // A run that a busy machine makes INVALID has reached the cluster all the same.
    ensure!(
        output.status.success() || text.contains("INVALID"),
        "{}: {text}",
        output.status
    );
    Ok(text)
}

/// Short, and without an expectation of speed.
const SCENARIO: &str = "\
name: commands
question: Do benchmarks reach a secured cluster?
topics:
  - name: commands-bench
    partitions: 2
producers:
  - name: load
    clients: 1
    rate: 500
    record_bytes: 100
warmup_seconds: 1
duration_seconds: 2
";
