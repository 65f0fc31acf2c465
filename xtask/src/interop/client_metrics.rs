//! Client metrics with Ottla as broker (KIP-714): subscriptions by Kafka's tools, pushes by three
//! client libraries, and Apache Kafka on the directory afterwards.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::clients::{Client, Clients};
use super::server::{Programs, Server, Site, Target};
use super::table::Table;
use super::toolchain;
use super::tools::{CONFIGS, Tools, contains};

const CLIENT_METRICS: &str = "org.apache.kafka.tools.ClientMetricsCommand";

/// How long each client works: several intervals of the subscription.
const WORK_SECONDS: &str = "4";
const INTERVAL_MS: &str = "500";
const PUSHES_MIN: u64 = 3;

/// The other clients, with the doctor's names of their libraries.
const PUSHERS: [(Client, &str); 3] = [
    (Client::Java, "java"),
    (Client::Librdkafka, "librdkafka"),
    (Client::FranzGo, "franz_go"),
];

/// Runs everything on a broker of its own.
pub fn run(table: &mut Table, programs: &Programs, clients: &Clients) -> Result<()> {
    println!("client metrics: Ottla as their receiver");
    let site = Site::create("client-metrics", &[])?;
    let admin_port = toolchain::free_port()?;
    let listener = format!("ottla.admin.listener=127.0.0.1:{admin_port}");
    let server = site.start_with(programs, Target::Ottla, &[&listener])?;
    let mut add = |name: String, outcome: Result<()>| {
        let outcome = outcome.map_err(|error| format!("{error:#}").replace('\n', " "));
        println!(
            "client metrics: {name}: {}",
            outcome.as_ref().err().map_or("ok", String::as_str)
        );
        table.add_other(format!("client metrics: {name}"), outcome);
    };
    let tools = Tools {
        kafka: &programs.kafka,
        bootstrap: site.bootstrap(),
    };
    add(
        "kafka-client-metrics --alter, --describe, --list, --delete".to_owned(),
        subscriptions(&tools),
    );
    add(
        "kafka-configs --entity-type client-metrics".to_owned(),
        configurations(&tools),
    );
    for (client, library) in PUSHERS {
        let pushed =
            push(programs, clients, client, &server).and_then(|()| heard(admin_port, client, library));
        add(format!("{} pushes", client.name()), pushed);
    }
    add("metrics count pushes in sum".to_owned(), counted(admin_port));
    server.stop()?;
    let server = site
        .start(programs, Target::Kafka)
        .context("Kafka on the directory")?;
    add("Apache Kafka has the subscription".to_owned(), described(&tools));
    server.stop()
}

/// Creates the subscription for all later steps.
fn subscriptions(tools: &Tools<'_>) -> Result<()> {
    let run = |arguments: &[&str]| tools.run(CLIENT_METRICS, arguments, "");
    let alter = [
        "--alter",
        "--name",
        "everything",
        "--metrics",
        "*",
        "--interval",
        INTERVAL_MS,
        "--match",
        "client_id=interop-.*",
    ];
    contains(&run(&alter)?, "everything")?;
    described(tools)?;
    contains(&run(&["--list"])?, "everything")?;
    let generated = run(&[
        "--alter",
        "--generate-name",
        "--metrics",
        "org.apache.kafka.consumer.",
    ])?;
    ensure!(!generated.trim().is_empty(), "no name was generated");
    let names = run(&["--list"])?;
    let names: Vec<&str> = names
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    ensure!(names.len() == 2, "{names:?}");
    let other = names
        .iter()
        .find(|name| **name != "everything")
        .context("the generated name")?;
    run(&["--delete", "--name", other])?;
    let left = run(&["--list"])?;
    ensure!(!left.contains(other) && left.contains("everything"), "{left}");
    let refused = run(&["--alter", "--name", "everything", "--interval", "10"]);
    let refused = refused.err().context("an interval of 10 ms was taken")?;
    contains(
        &format!("{refused:#}"),
        "interval must be between 100 and 3600000",
    )
}

fn described(tools: &Tools<'_>) -> Result<()> {
    let text = tools.run(CLIENT_METRICS, &["--describe", "--name", "everything"], "")?;
    for line in [
        format!("interval.ms={INTERVAL_MS}"),
        "match=client_id=interop-.*".to_owned(),
        "metrics=*".to_owned(),
    ] {
        contains(&text, &line)?;
    }
    Ok(())
}

fn configurations(tools: &Tools<'_>) -> Result<()> {
    let named = ["--entity-type", "client-metrics", "--entity-name", "by-configs"];
    let run = |more: &[&str]| tools.run(CONFIGS, &[more, &named].concat(), "");
    let add = "metrics=[org.apache.kafka.producer.,org.apache.kafka.app.info.],interval.ms=60000,match=[client_id=nobody]";
    contains(
        &run(&["--alter", "--add-config", add])?,
        "Completed updating config",
    )?;
    let text = run(&["--describe"])?;
    for line in [
        "interval.ms=60000",
        "metrics=org.apache.kafka.producer.,org.apache.kafka.app.info.",
    ] {
        contains(&text, line)?;
    }
    run(&["--alter", "--delete-config", "metrics,interval.ms,match"])?;
    let names = tools.run(CLIENT_METRICS, &["--list"], "")?;
    ensure!(!names.contains("by-configs"), "still listed: {names}");
    let refused = run(&["--alter", "--add-config", "match=[colour=red]"]);
    let refused = refused.err().context("an unknown selector was taken")?;
    contains(
        &format!("{refused:#}"),
        "Illegal client matching pattern: colour=red",
    )
}

/// Has the client produce and consume for some seconds, as `interop-NAME-producer` and
/// `interop-NAME-consumer`.
fn push(programs: &Programs, clients: &Clients, client: Client, server: &Server) -> Result<()> {
    let bootstrap = server.bootstrap();
    let arguments = ["push", bootstrap.as_str(), WORK_SECONDS];
    let cases = clients.run(&programs.kafka, client, &arguments, Duration::from_secs(120))?;
    ensure!(!cases.is_empty(), "it reported nothing");
    for (name, outcome) in cases {
        outcome.map_err(|reason| anyhow::anyhow!("{name}: {reason}"))?;
    }
    Ok(())
}

/// Checks that the doctor knows both, from their pushes and from the broker's counts.
fn heard(admin_port: u16, client: Client, library: &str) -> Result<()> {
    let snapshots: Value = serde_json::from_str(&get(admin_port, "/doctor/snapshots")?)?;
    let snapshots = snapshots.as_array().context("no list of snapshots")?;
    for role in ["producer", "consumer"] {
        let name = format!("interop-{}-{role}", client.name());
        let of_client = snapshots
            .iter()
            .filter(|snapshot| snapshot["client"]["client_id"] == name.as_str());
        let pushed = of_client
            .max_by_key(|snapshot| snapshot["telemetry"]["pushes"].as_u64())
            .with_context(|| format!("no snapshot of {name}"))?;
        let (who, telemetry) = (&pushed["client"], &pushed["telemetry"]);
        let pushes = telemetry["pushes"].as_u64().unwrap_or(0);
        ensure!(pushes >= PUSHES_MIN, "{pushes} pushes of {name}");
        ensure!(
            telemetry["empty_pushes"].as_u64().unwrap_or(0) < pushes,
            "only empty pushes of {name}"
        );
        ensure!(
            who["library"] == library && who["role"] == role,
            "{name} is {who}"
        );
        ensure!(
            who["instance_id"].is_string() && who["principal"] == "User:ANONYMOUS",
            "{name} is {who}"
        );
    }
    let examination: Value = serde_json::from_str(&get(admin_port, "/doctor")?)?;
    ensure!(examination["version"] == 1, "version {}", examination["version"]);
    let name = format!("interop-{}-producer", client.name());
    let diagnosed = examination["clients"].as_array().context("no clients")?;
    ensure!(
        diagnosed.iter().any(|one| one["client_id"] == name.as_str()),
        "no word about {name}"
    );
    Ok(())
}

fn counted(admin_port: u16) -> Result<()> {
    let metrics = get(admin_port, "/metrics")?;
    let value = |name: &str| -> Result<u64> {
        let line = metrics
            .lines()
            .find_map(|line| line.strip_prefix(&format!("{name} ")));
        Ok(line.with_context(|| format!("no {name}"))?.parse()?)
    };
    let pushes = value("ottla_telemetry_pushes_total")?;
    ensure!(pushes >= 6 * PUSHES_MIN, "{pushes} pushes");
    for error in [
        "INVALID_REQUEST",
        "INVALID_RECORD",
        "UNSUPPORTED_COMPRESSION_TYPE",
        "TELEMETRY_TOO_LARGE",
    ] {
        let refused = value(&format!("ottla_telemetry_refused_total{{error=\"{error}\"}}"))?;
        ensure!(refused == 0, "{refused} pushes were answered {error}");
    }
    Ok(())
}

pub fn get(port: u16, path: &str) -> Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).context("the admin address")?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").context("no HTTP answer")?;
    ensure!(head.contains(" 200 "), "{path}: {head}");
    Ok(body.to_owned())
}
