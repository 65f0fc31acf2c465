//! SASL listeners: users made by Kafka's kafka-configs, every mechanism with every client, Kafka's
//! tools through an authenticated connection, and the users after a takeover in both directions.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::clients::{CLIENTS, Client, Clients};
use super::server::{Programs, Site, Target};
use super::table::Table;
use super::toolchain;
use super::tools::{CONFIGS, TOPICS, Tools, contains};

const MECHANISMS: [&str; 3] = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"];
const USER: &str = "alice";
/// With characters that parsers of JAAS and of kafka-configs could get wrong.
const PASSWORD: &str = "it's; \"x\\y";
/// Sessions that the clients have to extend while they work (KIP-368).
const SESSION_MS: &str = "2000";

/// Runs everything on a broker of its own, Ottla and Apache Kafka in turn on one directory.
pub fn run(table: &mut Table, programs: &Programs, clients: &Clients) -> Result<()> {
    println!("sasl: all clients and Kafka's tools against Ottla's listener with SASL");
    let port = toolchain::free_port()?;
    let site = Site::create("sasl", &[])?;
    add_listener(&site, port)?;
    let address = format!("127.0.0.1:{port}");
    let mut add = |name: String, outcome: Result<()>| {
        let outcome = outcome.map_err(|error| format!("{error:#}").replace('\n', " "));
        println!(
            "sasl: {name}: {}",
            outcome.as_ref().err().map_or("ok", String::as_str)
        );
        table.add_other(format!("sasl: {name}"), outcome);
    };
    let tools = Tools {
        kafka: &programs.kafka,
        bootstrap: site.bootstrap(),
    };
    let server = site.start(programs, Target::Ottla)?;
    add("kafka-configs makes and shows users".to_owned(), users(&tools));
    for client in CLIENTS.into_iter().filter(|client| *client != Client::Ottla) {
        for mechanism in MECHANISMS {
            let arguments = ["login", &tools.bootstrap, &address, mechanism, USER, PASSWORD];
            let cases = clients.run(&programs.kafka, client, &arguments, Duration::from_secs(120))?;
            for (case, outcome) in cases {
                let outcome = outcome.map_err(anyhow::Error::msg);
                add(format!("{}, {mechanism}: {case}", client.name()), outcome);
            }
        }
    }
    for mechanism in MECHANISMS {
        add(
            format!("kafka-topics, {mechanism}"),
            tool(&site, programs, &address, mechanism, PASSWORD),
        );
    }
    server.stop()?;
    let server = site
        .start(programs, Target::Kafka)
        .context("Kafka on the directory")?;
    for mechanism in MECHANISMS {
        add(
            format!("Apache Kafka has the user for {mechanism}"),
            tool(&site, programs, &address, mechanism, PASSWORD),
        );
    }
    add(
        "Apache Kafka changes a password".to_owned(),
        set_password(&tools, "SCRAM-SHA-512", "changed"),
    );
    server.stop()?;
    let server = site.start(programs, Target::Ottla).context("Ottla after Kafka")?;
    add(
        "the password that Apache Kafka set counts".to_owned(),
        tool(&site, programs, &address, "SCRAM-SHA-512", "changed"),
    );
    let old = tool(&site, programs, &address, "SCRAM-SHA-512", PASSWORD);
    add(
        "the password before does not count".to_owned(),
        match old {
            Ok(()) => Err(anyhow::anyhow!("the old password is accepted")),
            Err(error) => contains(&format!("{error:#}"), "Authentication failed"),
        },
    );
    add("kafka-configs removes users".to_owned(), remove(&tools));
    server.stop()
}

/// A listener with all mechanisms, in a file that both brokers take.
fn add_listener(site: &Site, port: u16) -> Result<()> {
    let text = fs::read_to_string(site.properties())?;
    let value = |key: &str| {
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        line.with_context(|| format!("{key} in {}", site.properties().display()))
    };
    let quoted = quoted(PASSWORD).replace('\\', "\\\\");
    let scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;";
    let added = format!(
        "listeners={},CLIENTS://127.0.0.1:{port}
advertised.listeners={},CLIENTS://127.0.0.1:{port}
listener.security.protocol.map={},CLIENTS:SASL_PLAINTEXT
listener.name.clients.sasl.enabled.mechanisms={}
listener.name.clients.connections.max.reauth.ms={SESSION_MS}
listener.name.clients.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \
user_{USER}={quoted};
listener.name.clients.scram-sha-256.sasl.jaas.config={scram}
listener.name.clients.scram-sha-512.sasl.jaas.config={scram}
",
        value("listeners")?,
        value("advertised.listeners")?,
        value("listener.security.protocol.map")?,
        MECHANISMS.join(","),
    );
    fs::write(site.properties(), text.clone() + &added)?;
    Ok(())
}

/// A value of JAAS.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

fn set_password(tools: &Tools<'_>, mechanism: &str, password: &str) -> Result<()> {
    let credential = format!("{mechanism}=[iterations=8192,password={password}]");
    let arguments = [
        "--alter",
        "--entity-type",
        "users",
        "--entity-name",
        USER,
        "--add-config",
    ];
    let output = tools.run(CONFIGS, &[&arguments[..], &[&credential]].concat(), "")?;
    contains(&output, "Completed updating config for user alice.")
}

fn users(tools: &Tools<'_>) -> Result<()> {
    for mechanism in &MECHANISMS[1..] {
        set_password(tools, mechanism, PASSWORD)?;
    }
    let described = tools.run(CONFIGS, &["--describe", "--entity-type", "users"], "")?;
    contains(
        &described,
        "SCRAM credential configs for user-principal 'alice' are SCRAM-SHA-256=iterations=8192, \
         SCRAM-SHA-512=iterations=8192",
    )?;
    let weak = [
        "--alter",
        "--entity-type",
        "users",
        "--entity-name",
        "bob",
        "--add-config",
    ];
    let weak = [&weak[..], &["SCRAM-SHA-256=[iterations=4095,password=x]"]].concat();
    ensure!(
        tools.run(CONFIGS, &weak, "").is_err(),
        "4095 iterations were accepted"
    );
    Ok(())
}

fn remove(tools: &Tools<'_>) -> Result<()> {
    let delete = [
        "--alter",
        "--entity-type",
        "users",
        "--entity-name",
        USER,
        "--delete-config",
    ];
    let delete = |mechanism| tools.run(CONFIGS, &[&delete[..], &[mechanism]].concat(), "");
    delete("SCRAM-SHA-256")?;
    let again = delete("SCRAM-SHA-256");
    ensure!(again.is_err(), "a credential was deleted twice");
    delete("SCRAM-SHA-512")?;
    let described = tools.run(CONFIGS, &["--describe", "--entity-type", "users"], "")?;
    ensure!(
        !described.contains("SCRAM"),
        "there still are credentials: {described}"
    );
    Ok(())
}

/// Lists topics through an authenticated connection.
fn tool(site: &Site, programs: &Programs, address: &str, mechanism: &str, password: &str) -> Result<()> {
    let module = match mechanism {
        "PLAIN" => "plain.PlainLoginModule",
        _ => "scram.ScramLoginModule",
    };
    let jaas = format!(
        "org.apache.kafka.common.security.{module} required username=\"{USER}\" password={};",
        quoted(password)
    );
    let file = site.home().join("client.properties");
    let text = format!(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\nsasl.jaas.config={}\n",
        jaas.replace('\\', "\\\\")
    );
    fs::write(&file, text)?;
    let tools = Tools {
        kafka: &programs.kafka,
        bootstrap: address.to_owned(),
    };
    let file = file.to_string_lossy();
    tools
        .run(TOPICS, &["--list", "--command-config", &file], "")
        .map(drop)
}
