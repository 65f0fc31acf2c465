//! `cargo xtask interop`: unmodified clients and tools of other projects, and our own client,
//! against a running broker.
//!
//! The default broker is Ottla. With `--target kafka` the same cases run against Apache Kafka
//! 4.3.0, which proves that they expect Kafka's behaviour and not ours.

mod acls;
mod application;
pub mod cases;
mod client_admin;
pub mod client_metrics;
pub mod clients;
mod committed;
mod connect;
mod console;
mod consumer_protocol;
mod directories;
pub mod doctor;
mod doctor_consumers;
mod event_loops;
mod everyday;
mod franz_go;
mod groups;
mod grow;
mod hanging;
mod jobs;
mod matrix;
mod mirror;
mod old_clients;
mod old_kafka;
mod oracle;
pub mod ours;
mod own_client;
mod perf;
mod promises;
mod quotas;
mod refusals;
mod sasl;
pub mod security;
pub mod server;
mod streams;
pub mod table;
pub mod takeover;
mod telemetry;
pub mod toolchain;
pub mod tools;
mod transactions;

use anyhow::{Context, Result, bail, ensure};
use clients::{CLIENTS, Clients};
use own_client::Broker;
use server::{Programs, Site, Target};
use std::time::{Duration, Instant};
use table::Table;

const PARTS: [&str; 30] = [
    "clients",
    "tools",
    "takeover",
    "directories",
    "grow",
    "records",
    "security",
    "telemetry",
    "admin",
    "groups",
    "consumer-protocol",
    "oracle",
    "client",
    "perf",
    "doctor",
    "promises",
    "client-metrics",
    "quotas",
    "refusals",
    "sasl",
    "acls",
    "matrix",
    "console",
    "event-loops",
    "everyday",
    "transactions",
    "franz-go",
    "streams",
    "connect",
    "mirror",
];

/// Parts about our clients, which of the other clients need only Java's.
const OWN_PARTS: [&str; 12] = [
    "oracle",
    "console",
    "event-loops",
    "acls",
    "matrix",
    "telemetry",
    "admin",
    "groups",
    "grow",
    "perf",
    "doctor",
    "promises",
];

struct Options {
    target: Target,
    parts: Vec<String>,
    /// Tests directories of every version instead of only the oldest and the newest.
    all_versions: bool,
    /// How many parts run at once, each in a process of its own; without, all in this one.
    jobs: Option<usize>,
}

fn parse(arguments: &[String]) -> Result<Options> {
    let mut options = Options {
        target: Target::Ottla,
        parts: PARTS.map(String::from).to_vec(),
        all_versions: false,
        jobs: None,
    };
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        if argument == "--all-versions" {
            options.all_versions = true;
            continue;
        }
        let value = arguments.next();
        match (argument.as_str(), value) {
            ("--target", Some(name)) => options.target = Target::parse(name)?,
            ("--jobs", Some(jobs)) => {
                let jobs = jobs.parse().ok().filter(|jobs| *jobs > 0);
                options.jobs = Some(jobs.context("--jobs takes a number from 1 on")?);
            }
            ("--only", Some(parts)) => {
                options.parts = known(parts)?.into_iter().map(String::from).collect();
            }
            ("--except", Some(parts)) => {
                let except = known(parts)?;
                options.parts.retain(|part| !except.contains(&part.as_str()));
            }
            _ => bail!("unknown or incomplete argument {argument}"),
        }
    }
    Ok(options)
}

fn known(parts: &str) -> Result<Vec<&str>> {
    let parts: Vec<&str> = parts.split(',').collect();
    for part in &parts {
        ensure!(
            PARTS.contains(part),
            "the parts are {}, not {part}",
            PARTS.join(", ")
        );
    }
    Ok(parts)
}

/// Runs the suite; an error if any case failed.
pub fn run(arguments: &[String]) -> Result<()> {
    let options = parse(arguments)?;
    if let Some(jobs) = options.jobs {
        return jobs::run(&options, jobs);
    }
    let has = |part: &str| options.parts.iter().any(|named| named == part);
    let started = Instant::now();
    let needs_ottla = options
        .parts
        .iter()
        .any(|part| !["telemetry", "oracle"].contains(&part.as_str()));
    let own = [
        "client",
        "perf",
        "doctor",
        "promises",
        "client-metrics",
        "quotas",
        "directories",
        "refusals",
        "sasl",
        "acls",
        "matrix",
        "grow",
        "security",
        "console",
        "event-loops",
    ];
    let with_ottla = (options.target == Target::Ottla && needs_ottla) || own.into_iter().any(has);
    let programs = Programs::prepare(with_ottla)?;
    let mut table = Table::default();
    // Our client's pushes are decoded by Kafka's classes: here the target is always Apache Kafka.
    if has("telemetry") {
        telemetry::run(&mut table, &programs)?;
    }
    if has("admin") {
        let server = Site::create("admin", &[])?.start(&programs, options.target)?;
        client_admin::run(&mut table, &programs, &server.bootstrap(), options.target)?;
        server.stop()?;
    }
    if has("groups") {
        let server = Site::create("groups", &[])?.start(&programs, options.target)?;
        groups::run(&mut table, &programs, &server.bootstrap())?;
        server.stop()?;
    }
    // Kafka's tools and ours on one Apache Kafka, for every target.
    if has("perf") {
        perf::run(&mut table, &programs)?;
    }
    // Kafka's tools on both, for every target.
    if has("acls") {
        acls::run(&mut table, &programs)?;
    }
    // The same requests to both, for every target.
    if has("matrix") {
        matrix::run(&mut table, &programs)?;
    }
    // Our pages and tools on Apache Kafka, for every target.
    if has("console") {
        console::run(&mut table, &programs)?;
    }
    if has("event-loops") {
        event_loops::run(&mut table, &programs)?;
    }
    // Classes of both in one process each, for every target.
    if has("oracle") {
        oracle::run(&mut table, &programs.kafka)?;
    }
    // From Ottla to Apache Kafka, for every target.
    if has("grow") {
        grow::run(&mut table, &programs)?;
    }
    // The plug-in is for Apache Kafka, for every target.
    if has("doctor") {
        doctor::run(&mut table, &programs)?;
        doctor_consumers::run(&mut table, &programs);
    }
    // The doctor inside Ottla, for every target.
    if has("promises") {
        promises::run(&mut table, &programs)?;
    }
    if options
        .parts
        .iter()
        .all(|part| OWN_PARTS.contains(&part.as_str()))
    {
        let target = if has("admin") || has("groups") {
            options.target
        } else {
            Target::Kafka
        };
        return report(&table, target, started);
    }
    let clients = Clients::prepare()?;

    if has("clients") || has("tools") || has("records") {
        let site = Site::create("interop", &[])?;
        let mut server = site.start(&programs, options.target)?;
        println!("{} on {}", options.target.name(), server.bootstrap());
        if has("records") || has("clients") {
            exchange_records(&mut table, &programs, &clients, &server.bootstrap())?;
        }
        if has("clients") {
            run_cases(&mut table, &programs, &clients, &server.bootstrap())?;
        }
        if has("records") || has("clients") {
            table.expect_cases(has("clients"));
        }
        if has("tools") {
            tools::run(&mut table, &programs.kafka, &site)?;
        }
        let alive = server.check_alive().and_then(|()| server.stop());
        table.add_other("clean stop", alive.map_err(|error| format!("{error:#}")));
    }
    if has("everyday") {
        everyday::run(&mut table, &programs, options.target)?;
    }
    if has("takeover") {
        takeover::run(&mut table, &programs, &clients, options.target)?;
    }

    // Between Apache Kafka and Ottla, for every target.
    if has("directories") {
        directories::run(&mut table, &programs, &clients, options.all_versions)?;
    }

    if has("consumer-protocol") {
        consumer_protocol::run(&mut table, &programs, &clients, options.target)?;
    }

    if has("transactions") {
        transactions::run(&mut table, &programs, &clients, options.target)?;
    }

    if has("franz-go") {
        franz_go::run(&mut table, &programs, options.target)?;
    }

    if has("streams") {
        streams::run(&mut table, &programs, &clients, options.target)?;
    }

    if has("connect") {
        connect::run(&mut table, &programs, options.target)?;
    }

    if has("mirror") {
        mirror::run(&mut table, &programs, options.target)?;
    }

    if has("client-metrics") {
        client_metrics::run(&mut table, &programs, &clients)?;
    }

    if has("refusals") {
        refusals::run(&mut table, &programs, &clients)?;
    }

    if has("security") {
        security::run(&mut table, &programs, &clients, options.target)?;
    }

    if has("sasl") {
        sasl::run(&mut table, &programs, &clients)?;
    }

    if has("quotas") {
        quotas::run(&mut table, &programs, &clients)?;
    }

    if has("client") {
        own_client(&mut table, &programs, &clients, &options)?;
    }

    report(&table, options.target, started)
}

/// Runs our client against every supported broker; each has a table of its own.
fn own_client(table: &mut Table, programs: &Programs, clients: &Clients, options: &Options) -> Result<()> {
    let did_cases = options.parts.iter().any(|part| part == "clients");
    for (broker, name, target) in [
        (Broker::Ottla, "Ottla", Some(Target::Ottla)),
        (Broker::Kafka, "Apache Kafka 4.3.0", Some(Target::Kafka)),
        (Broker::OldKafka, "Apache Kafka 2.1.1", None),
    ] {
        println!("our client against {name}");
        let is_known = did_cases && target == Some(options.target);
        let (text, failed) = own_client::run(programs, clients, broker, is_known)?.render();
        println!("\nour client against {name}\n\n{text}");
        let outcome = match failed {
            0 => Ok(()),
            _ => Err(format!("{failed} cases, see the table above")),
        };
        table.add_other(format!("our client against {name}"), outcome);
    }
    Ok(())
}

fn report(table: &Table, target: Target, started: Instant) -> Result<()> {
    let (text, failed) = table.render();
    println!("\ninterop against {}\n\n{text}", target.name());
    println!("{failed} failed, {} s", started.elapsed().as_secs());
    ensure!(
        failed == 0,
        "{failed} cases failed (logs: {})",
        toolchain::logs().display()
    );
    Ok(())
}

/// Each client writes with every codec, then each reads all clients' records.
fn exchange_records(
    table: &mut Table,
    programs: &Programs,
    clients: &Clients,
    bootstrap: &str,
) -> Result<()> {
    for client in CLIENTS {
        println!("{}: write with every codec", client.name());
        table.add(
            client,
            clients.run(
                &programs.kafka,
                client,
                &["write", bootstrap],
                Duration::from_secs(120),
            )?,
        );
    }
    let mut arguments = vec!["read", bootstrap];
    arguments.extend(CLIENTS.map(|client| client.name()));
    for client in CLIENTS {
        println!("{}: read what all have written", client.name());
        table.add(
            client,
            clients.run(&programs.kafka, client, &arguments, Duration::from_secs(180))?,
        );
    }
    Ok(())
}

fn run_cases(table: &mut Table, programs: &Programs, clients: &Clients, bootstrap: &str) -> Result<()> {
    for client in CLIENTS {
        println!("{}: cases", client.name());
        table.add(
            client,
            clients.run(
                &programs.kafka,
                client,
                &["cases", bootstrap],
                Duration::from_secs(400),
            )?,
        );
    }
    Ok(())
}
