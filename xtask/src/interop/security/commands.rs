//! Ottla's commands with `--command-config`: a file that Kafka's tools take, too, with the stores
//! that `keytool` makes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::broker::{Broker, PASSWORD, USER, escaped};
use super::foreign::create;
use crate::interop::server::{Programs, Target};
use crate::interop::table::Table;
use crate::interop::toolchain::{need, output_of, run_quietly};
use crate::interop::tools::{TOPICS, Tools, contains};

const TOPIC: &str = "commands";
const STORE_PASSWORD: &str = "changeit";

/// Arguments of a command between its name and the connection, and what it must print.
type Step = (&'static [&'static str], &'static str);

const STEPS: [Step; 6] = [
    (
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
    ),
    (
        &["perf", "consume", "--topic", TOPIC, "--num-records", "2000"],
        "2000",
    ),
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
    (&["access", "list"], ""),
    (&["transactions", "list"], ""),
    (&["bench", "run", "SCENARIO"], ""),
];

/// Every command over SASL and TLS, and over TLS with a certificate of its own.
pub fn run(table: &mut Table, programs: &Programs, broker: &Broker, target: Target) -> Result<()> {
    need("keytool", &["-help"], "a JDK (Debian: openjdk-17-jdk-headless)")?;
    need("openssl", &["version"], "OpenSSL 3 (Debian: openssl)")?;
    create(&broker.site, TOPIC)?;
    for connection in connections(broker)? {
        let outcome = kafkas_tool(programs, &connection);
        let name = format!("kafka-topics on {}: {}", target.name(), connection.name);
        super::add(table, &name, outcome.map_err(shown));
        for (arguments, wanted) in STEPS {
            let outcome = command(programs, broker, &connection, arguments)
                .and_then(|output| contains(&output, wanted));
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
    Ok(())
}

fn shown(error: anyhow::Error) -> String {
    format!("{error:#}").replace('\n', " ")
}

struct Connection {
    name: &'static str,
    address: String,
    properties: PathBuf,
}

fn connections(broker: &Broker) -> Result<Vec<Connection>> {
    let folder = broker.site.home();
    let [jks, pkcs12] = ["JKS", "PKCS12"].map(|kind| trust_store(folder, &broker.authority.file, kind));
    let key_store = key_store(folder, &broker.client_store)?;
    let quoted = PASSWORD.replace('\\', "\\\\").replace('"', "\\\"");
    let jaas = format!(
        "org.apache.kafka.common.security.scram.ScramLoginModule required username=\"{USER}\" password=\"{quoted}\";"
    );
    // The type is Java's default, JKS, for both: the file's content decides.
    let trusting = |store: &Path| {
        format!(
            "ssl.truststore.location={}\nssl.truststore.password={STORE_PASSWORD}\n",
            store.display()
        )
    };
    let of_sasl = format!(
        "security.protocol=SASL_SSL\n{}sasl.mechanism=SCRAM-SHA-512\nsasl.jaas.config={}\n",
        trusting(&jks?),
        escaped(&jaas)
    );
    let of_certificate = format!(
        "security.protocol=SSL\n{}ssl.keystore.location={}\nssl.keystore.password={STORE_PASSWORD}\n",
        trusting(&pkcs12?),
        key_store.display()
    );
    let kinds = [
        ("SASL_SSL, trust store JKS", "SASLSSL", of_sasl),
        ("mutual TLS, stores PKCS12", "MUTUAL", of_certificate),
    ];
    let made = kinds.into_iter().map(|(name, listener, text)| {
        let properties = folder.join(format!("commands-{listener}.properties"));
        fs::write(&properties, text)?;
        Ok(Connection {
            name,
            address: broker.address(listener),
            properties,
        })
    });
    made.collect()
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

fn command(
    programs: &Programs,
    broker: &Broker,
    connection: &Connection,
    arguments: &[&str],
) -> Result<String> {
    let ottla = programs
        .ottla
        .as_ref()
        .context("the ottla binary was not built")?;
    let scenario = broker.site.home().join("commands.yaml");
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
    command.current_dir(broker.site.home());
    output_of(&mut command)
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
