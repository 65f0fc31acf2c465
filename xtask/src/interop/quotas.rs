//! Client quotas: set by Kafka's kafka-configs, enforced for the Java client and librdkafka, found
//! by the doctor, and taken over by Apache Kafka.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ottla_lab::numbers::{number, percent_change};
use serde_json::Value;

use super::client_metrics::get;
use super::clients::{Client, Clients};
use super::server::{Programs, Site, Target};
use super::table::Table;
use super::toolchain;
use super::tools::{CONFIGS, CONSUMER_PERF, PRODUCER_PERF, TOPICS, Tools, contains};

const TOPIC: &str = "quotas";
/// Large, so that headers of batches and requests are less than one percent of the counted bytes.
const RECORD_BYTES: &str = "10000";

/// Small enough for every machine, large enough that one fetch is worth a fraction of a second.
const PRODUCER_BYTE_RATE: f64 = 1_000_000.0;
const CONSUMER_BYTE_RATE: f64 = 4_000_000.0;
const REQUEST_PERCENTAGE: f64 = 2.0;

/// Accepted relative difference between a rate and its quota.
const TOLERANCE: f64 = 0.05;

/// Runs everything on a broker of its own.
pub fn run(table: &mut Table, programs: &Programs, clients: &Clients) -> Result<()> {
    println!("quotas: Kafka's tools, the Java client and librdkafka against Ottla");
    let site = Site::create("quotas", &[])?;
    let admin_port = toolchain::free_port()?;
    let listener = format!("ottla.admin.listener=127.0.0.1:{admin_port}");
    let server = site.start_with(programs, Target::Ottla, &[&listener])?;
    let mut add = |name: &str, outcome: Result<String>| {
        let outcome = outcome.map_err(|error| format!("{error:#}").replace('\n', " "));
        println!(
            "quotas: {name}: {}",
            outcome.as_ref().unwrap_or_else(|error| error)
        );
        table.add_other(format!("quotas: {name}"), outcome.map(drop));
    };
    let tools = Tools {
        kafka: &programs.kafka,
        bootstrap: site.bootstrap(),
    };
    add(
        "kafka-configs for users, clients, ips and defaults",
        configurations(&tools),
    );
    add("kafka-configs is refused what is no quota", refusals(&tools));
    add(
        "the Java producer keeps producer_byte_rate",
        java_producer(&tools),
    );
    add("the doctor says QUOTA", doctor(admin_port));
    add(
        "the Java consumer keeps consumer_byte_rate",
        java_consumer(&tools),
    );
    for (role, key, quota) in [
        ("producer", "producer_byte_rate", PRODUCER_BYTE_RATE),
        ("consumer", "consumer_byte_rate", CONSUMER_BYTE_RATE),
        ("requests", "request_percentage", REQUEST_PERCENTAGE),
    ] {
        let outcome = librdkafka(programs, clients, &tools, role, (key, quota));
        let outcome = match (role, outcome) {
            ("requests", Ok(words)) => request_time(admin_port).map(|rate| format!("{rate}; {words}")),
            (_, outcome) => outcome,
        };
        add(&format!("librdkafka keeps {key}"), outcome);
    }
    add("kafka-topics over controller_mutation_rate", mutations(&tools));
    server.stop()?;
    let server = site
        .start(programs, Target::Kafka)
        .context("Kafka on the directory")?;
    add("Apache Kafka has the quotas", kept(&tools));
    server.stop()
}

fn entity<'a>(tools: &'a Tools<'_>, entity: &'a [&'a str]) -> impl Fn(&[&str]) -> Result<String> + 'a {
    move |more| tools.run(CONFIGS, &[more, entity].concat(), "")
}

fn configurations(tools: &Tools<'_>) -> Result<String> {
    let entities: [(&[&str], &str, &str); 6] = [
        (
            &["--entity-type", "users", "--entity-name", "alice"],
            "request_percentage=150.5",
            "user-principal 'alice'",
        ),
        (
            &["--entity-type", "users", "--entity-default"],
            "controller_mutation_rate=500",
            "default user-principal",
        ),
        (
            &["--entity-type", "clients", "--entity-name", "etl"],
            "consumer_byte_rate=2048,producer_byte_rate=1024",
            "client-id 'etl'",
        ),
        (
            &["--entity-type", "clients", "--entity-default"],
            "producer_byte_rate=9000000",
            "default client-id",
        ),
        (
            &[
                "--entity-type",
                "users",
                "--entity-name",
                "alice",
                "--entity-type",
                "clients",
                "--entity-name",
                "etl",
            ],
            "producer_byte_rate=512",
            "user-principal 'alice', client-id 'etl'",
        ),
        (
            &["--entity-type", "ips", "--entity-name", "10.0.0.1"],
            "connection_creation_rate=10",
            "ip '10.0.0.1'",
        ),
    ];
    for (parts, values, name) in entities {
        let run = entity(tools, parts);
        contains(&run(&["--alter", "--add-config", values])?, "Completed updating")?;
        let text = run(&["--describe"])?;
        contains(&text, name)?;
        for value in values.split(',') {
            contains(&text, value)?;
        }
    }
    let etl = entity(tools, entities[2].0);
    etl(&["--alter", "--delete-config", "consumer_byte_rate"])?;
    let text = etl(&["--describe"])?;
    ensure!(!text.contains("consumer_byte_rate"), "still there: {text}");
    contains(&text, "producer_byte_rate=1024")?;
    Ok(format!("{} kinds of entity", entities.len()))
}

/// Checks what must also hold after the restart.
fn kept(tools: &Tools<'_>) -> Result<String> {
    let etl = entity(tools, &["--entity-type", "clients", "--entity-name", "etl"]);
    contains(&etl(&["--describe"])?, "producer_byte_rate=1024")?;
    let address = entity(tools, &["--entity-type", "ips", "--entity-name", "10.0.0.1"]);
    contains(&address(&["--describe"])?, "connection_creation_rate=10")?;
    let alice = entity(tools, &["--entity-type", "users", "--entity-name", "alice"]);
    contains(&alice(&["--describe"])?, "request_percentage=150.5")?;
    Ok("described".to_owned())
}

fn refusals(tools: &Tools<'_>) -> Result<String> {
    let etl = entity(tools, &["--entity-type", "clients", "--entity-name", "etl"]);
    for (value, words) in [
        ("producer_byte_rate=0", "greater than 0"),
        ("request_percentage=-5", "greater than 0"),
        ("producer_byte_rate=10.5", "Long"),
    ] {
        let refused = etl(&["--alter", "--add-config", value]);
        let refused = refused.err().with_context(|| format!("{value} was taken"))?;
        contains(&format!("{refused:#}"), words)?;
    }
    contains(&etl(&["--describe"])?, "producer_byte_rate=1024")?;
    Ok("zero, negative and broken values".to_owned())
}

fn set(tools: &Tools<'_>, client_id: &str, value: &str) -> Result<()> {
    let named = ["--entity-type", "clients", "--entity-name", client_id];
    let of_client = entity(tools, &named);
    contains(
        &of_client(&["--alter", "--add-config", value])?,
        "Completed updating",
    )
}

/// Runs kafka-producer-perf-test; returns records per second in each interval of five seconds
/// except the first.
fn produce(tools: &Tools<'_>, client_id: &str, records: u32) -> Result<(Vec<f64>, String)> {
    let servers = format!("bootstrap.servers={}", tools.bootstrap);
    let (records, client_id) = (records.to_string(), format!("client.id={client_id}"));
    let arguments = [
        "--topic",
        TOPIC,
        "--num-records",
        &records,
        "--record-size",
        RECORD_BYTES,
        "--throughput",
        "-1",
        "--print-metrics",
        "--producer-props",
        &servers,
        &client_id,
        "batch.size=65536",
    ];
    let output = tools.run(PRODUCER_PERF, &arguments, "")?;
    // The last such line is about the whole run and has percentiles.
    let lines = output
        .lines()
        .filter(|line| line.contains("records/sec") && !line.contains("50th"));
    let rates = lines.filter_map(|line| line.split(", ").nth(1)?.split(' ').next()?.parse().ok());
    Ok((rates.skip(1).collect(), output))
}

/// Checks that the mean is within the tolerance of the quota.
fn check_rate(rates: &[f64], quota: f64) -> Result<String> {
    ensure!(rates.len() >= 2, "{} intervals measured", rates.len());
    let rate = rates.iter().sum::<f64>() / rates.len() as f64 * RECORD_BYTES.parse::<f64>()?;
    let off = rate / quota - 1.0;
    let words = format!(
        "{} bytes/s of {} allowed, {}",
        number(rate),
        number(quota),
        percent_change(off)
    );
    ensure!(off.abs() <= TOLERANCE, "{words}");
    Ok(words)
}

fn java_producer(tools: &Tools<'_>) -> Result<String> {
    tools.run(TOPICS, &["--create", "--topic", TOPIC, "--partitions", "1"], "")?;
    set(
        tools,
        "java-producer",
        &format!("producer_byte_rate={PRODUCER_BYTE_RATE}"),
    )?;
    let (rates, output) = produce(tools, "java-producer", 2_300)?;
    let throttle = metric(&output, "producer-metrics:produce-throttle-time-avg")?;
    ensure!(
        throttle >= 1.0,
        "the client was told of {throttle} ms of throttle"
    );
    Ok(format!(
        "{}, told {throttle} ms on average",
        check_rate(&rates, PRODUCER_BYTE_RATE)?
    ))
}

/// A line of --print-metrics: name, tags in braces, value.
fn metric(output: &str, name: &str) -> Result<f64> {
    let line = output.lines().find(|line| line.starts_with(name));
    let line = line.with_context(|| format!("no {name} in {}", toolchain::end_of(output)))?;
    let (_, value) = line.rsplit_once(':').context("no value")?;
    value.trim().parse().with_context(|| line.to_owned())
}

fn doctor(admin_port: u16) -> Result<String> {
    let examination: Value = serde_json::from_str(&get(admin_port, "/doctor")?)?;
    let clients = examination["clients"].as_array().context("no clients")?;
    let producer = clients
        .iter()
        .find(|client| client["client_id"] == "java-producer");
    let producer = producer.context("no word about java-producer")?;
    ensure!(
        producer["verdict"] == "QUOTA",
        "{} {}",
        producer["verdict"],
        producer["summary"]
    );
    Ok(producer["summary"].as_str().unwrap_or_default().to_owned())
}

fn java_consumer(tools: &Tools<'_>) -> Result<String> {
    let (_, output) = produce(tools, "filler", 10_000)?;
    contains(&output, "10000 records sent")?;
    // The tool has no option for a client id that works in all versions: a client without a quota
    // of its
    // own has the default quota.
    let default = entity(tools, &["--entity-type", "clients", "--entity-default"]);
    default(&[
        "--alter",
        "--add-config",
        &format!("consumer_byte_rate={CONSUMER_BYTE_RATE}"),
    ])?;
    let arguments = [
        "--topic",
        TOPIC,
        "--num-records",
        "10000",
        "--show-detailed-stats",
        "--reporting-interval",
        "5000",
        "--timeout",
        "60000",
    ];
    let output = tools.run(CONSUMER_PERF, &arguments, "")?;
    default(&["--alter", "--delete-config", "consumer_byte_rate"])?;
    // Date, thread, MB, MB/s, records, records/s and more: one line per interval.
    let lines = output.lines().filter(|line| {
        line.split(", ").count() >= 8 && line.starts_with(|first: char| first.is_ascii_digit())
    });
    let rates: Vec<f64> = lines
        .filter_map(|line| line.split(", ").nth(5)?.trim().parse().ok())
        .collect();
    ensure!(rates.len() >= 3, "{output}");
    check_rate(&rates[1..], CONSUMER_BYTE_RATE)
}

/// The broker's measurement of the client that sends single records.
fn request_time(admin_port: u16) -> Result<String> {
    let page: Value = serde_json::from_str(&get(admin_port, "/quotas")?)?;
    let clients = page["clients"].as_array().context("no clients")?;
    let tiny = clients
        .iter()
        .find(|client| client["client_id"] == "librdkafka-requests");
    let used = &tiny.context("librdkafka-requests is not known")?["quotas"]["request_percentage"];
    ensure!(
        used["throttles"].as_u64() > Some(0),
        "no request was throttled: {used}"
    );
    let rate = used["rate_max"].as_f64().context("no rate")?;
    // The busiest ten seconds include the burst of the first second: at most a tenth more.
    ensure!(
        rate <= REQUEST_PERCENTAGE * (1.1 + TOLERANCE),
        "{rate} % of a loop, {REQUEST_PERCENTAGE} allowed"
    );
    ensure!(
        rate >= REQUEST_PERCENTAGE * (1.0 - TOLERANCE),
        "{rate} % of a loop, {REQUEST_PERCENTAGE} allowed"
    );
    Ok(format!(
        "{} % of a loop in its busiest ten seconds, {REQUEST_PERCENTAGE} allowed",
        number(rate)
    ))
}

fn librdkafka(
    programs: &Programs,
    clients: &Clients,
    tools: &Tools<'_>,
    role: &str,
    (key, quota): (&str, f64),
) -> Result<String> {
    let client_id = format!("librdkafka-{role}");
    set(tools, &client_id, &format!("{key}={quota}"))?;
    let quota = quota.to_string();
    let arguments = ["quota", tools.bootstrap.as_str(), role, TOPIC, &client_id, &quota];
    let cases = clients.run(
        &programs.kafka,
        Client::Librdkafka,
        &arguments,
        Duration::from_secs(120),
    )?;
    ensure!(!cases.is_empty(), "it reported nothing");
    let mut words = Vec::new();
    for (name, outcome) in cases {
        outcome.map_err(|reason| anyhow::anyhow!("{name}: {reason}"))?;
        words.push(name);
    }
    Ok(words.join(", "))
}

fn mutations(tools: &Tools<'_>) -> Result<String> {
    let anonymous = entity(tools, &["--entity-type", "users", "--entity-name", "ANONYMOUS"]);
    anonymous(&["--alter", "--add-config", "controller_mutation_rate=0.1"])?;
    // Eleven windows of a tenth are the burst, the rest is a debt of a minute and a half.
    tools.run(
        TOPICS,
        &["--create", "--topic", "first", "--partitions", "10"],
        "",
    )?;
    let refused = tools.run(
        TOPICS,
        &["--create", "--topic", "second", "--partitions", "1"],
        "",
    );
    let refused = refused.err().context("a second topic was created")?;
    contains(&format!("{refused:#}"), "throttling quota has been exceeded")?;
    anonymous(&["--alter", "--delete-config", "controller_mutation_rate"])?;
    tools.run(
        TOPICS,
        &["--create", "--topic", "second", "--partitions", "1"],
        "",
    )?;
    Ok("refused with THROTTLING_QUOTA_EXCEEDED, and created without the quota".to_owned())
}
