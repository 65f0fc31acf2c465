//! The parts of the suite, in the order in which they run in one process.

use super::clients::{CLIENTS, Clients};
use super::own_client::Broker;
use super::server::{Programs, Site, Target};
use super::table::Table;
use super::{
    Options, acls, client_admin, client_metrics, connect, console, consumer_protocol, directories, doctor,
    doctor_consumers, doctor_secured, event_loops, everyday, franz_go, groups, grow, matrix, mirror, oracle,
    perf, promises, quotas, refusals, sasl, security, sequences, settings, streams, takeover, telemetry,
    toolchain, tools, transactions,
};
use anyhow::{Result, ensure};
use std::time::{Duration, Instant};

/// One part of the suite.
pub struct Part {
    pub name: &'static str,
    needs: Needs,
    run: Run,
}

/// Which brokers a part runs against.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Needs {
    /// Apache Kafka, whatever the target.
    Kafka,
    /// An Ottla too, whatever the target.
    Ottla,
    /// The target alone.
    Target,
}

enum Run {
    /// No foreign clients but Java's.
    Java(fn(&mut Table, &Programs, &Options) -> Result<()>),
    /// Clients of all languages.
    Clients(fn(&mut Table, &Programs, &Clients, &Options) -> Result<()>),
}

const fn java(
    name: &'static str,
    needs: Needs,
    run: fn(&mut Table, &Programs, &Options) -> Result<()>,
) -> Part {
    let run = Run::Java(run);
    Part { name, needs, run }
}

const fn clients(
    name: &'static str,
    needs: Needs,
    run: fn(&mut Table, &Programs, &Clients, &Options) -> Result<()>,
) -> Part {
    let run = Run::Clients(run);
    Part { name, needs, run }
}

pub const PARTS: [Part; 31] = [
    java("telemetry", Needs::Kafka, |table, programs, _| {
        telemetry::run(table, programs)
    }),
    java("oracle", Needs::Kafka, |table, programs, _| {
        oracle::run(table, &programs.kafka)
    }),
    java("admin", Needs::Target, |table, programs, options| {
        let server = Site::create("admin", &[])?.start(programs, options.target)?;
        client_admin::run(table, programs, &server.bootstrap(), options.target)?;
        server.stop()
    }),
    java("groups", Needs::Target, |table, programs, options| {
        let server = Site::create("groups", &[])?.start(programs, options.target)?;
        groups::run(table, programs, &server.bootstrap())?;
        server.stop()
    }),
    java("tools", Needs::Target, kafka_tools),
    java("everyday", Needs::Target, |table, programs, options| {
        everyday::run(table, programs, options.target)
    }),
    java("franz-go", Needs::Target, |table, programs, options| {
        franz_go::run(table, programs, options.target)
    }),
    java("connect", Needs::Target, |table, programs, options| {
        connect::run(table, programs, options.target)
    }),
    java("mirror", Needs::Target, |table, programs, options| {
        mirror::run(table, programs, options.target)
    }),
    java("perf", Needs::Ottla, |table, programs, _| {
        perf::run(table, programs)
    }),
    java("acls", Needs::Ottla, |table, programs, _| {
        acls::run(table, programs)
    }),
    java("matrix", Needs::Ottla, |table, programs, _| {
        matrix::run(table, programs)
    }),
    java("sequences", Needs::Ottla, |table, programs, options| {
        sequences::run(table, programs, options.seeds.clone())
    }),
    java("settings", Needs::Ottla, |table, programs, _| {
        settings::run(table, programs)
    }),
    java("console", Needs::Ottla, |table, programs, _| {
        console::run(table, programs)
    }),
    java("event-loops", Needs::Ottla, |table, programs, _| {
        event_loops::run(table, programs)
    }),
    java("grow", Needs::Ottla, |table, programs, _| {
        grow::run(table, programs)
    }),
    java("doctor", Needs::Ottla, |table, programs, _| {
        doctor::run(table, programs)?;
        doctor_consumers::run(table, programs);
        doctor_secured::run(table, programs)
    }),
    java("promises", Needs::Ottla, |table, programs, _| {
        promises::run(table, programs)
    }),
    clients("clients", Needs::Target, all_clients),
    clients("takeover", Needs::Target, |table, programs, clients, options| {
        takeover::run(table, programs, clients, options.target)
    }),
    clients(
        "consumer-protocol",
        Needs::Target,
        |table, programs, clients, options| consumer_protocol::run(table, programs, clients, options.target),
    ),
    clients(
        "transactions",
        Needs::Target,
        |table, programs, clients, options| transactions::run(table, programs, clients, options.target),
    ),
    clients("streams", Needs::Target, |table, programs, clients, options| {
        streams::run(table, programs, clients, options.target)
    }),
    clients(
        "directories",
        Needs::Ottla,
        |table, programs, clients, options| directories::run(table, programs, clients, options.all_versions),
    ),
    clients("client-metrics", Needs::Ottla, |table, programs, clients, _| {
        client_metrics::run(table, programs, clients)
    }),
    clients("refusals", Needs::Ottla, |table, programs, clients, _| {
        refusals::run(table, programs, clients)
    }),
    clients("security", Needs::Ottla, |table, programs, clients, options| {
        security::run(table, programs, clients, options.target)
    }),
    clients("sasl", Needs::Ottla, |table, programs, clients, _| {
        sasl::run(table, programs, clients)
    }),
    clients("quotas", Needs::Ottla, |table, programs, clients, _| {
        quotas::run(table, programs, clients)
    }),
    clients("client", Needs::Ottla, own_client),
];

/// Runs the parts that `options` names, and prints what they found.
pub fn run(options: &Options) -> Result<()> {
    let started = Instant::now();
    let chosen = PARTS.iter().filter(|part| options.has(part.name));
    let chosen: Vec<&Part> = chosen.collect();
    let with_ottla = chosen.iter().any(|part| match part.needs {
        Needs::Kafka => false,
        Needs::Ottla => true,
        Needs::Target => options.target == Target::Ottla,
    });
    let programs = Programs::prepare(with_ottla)?;
    let mut prepared = None;
    let mut table = Table::default();
    for part in chosen {
        match part.run {
            Run::Java(run) => run(&mut table, &programs, options)?,
            Run::Clients(run) => {
                let clients = match prepared.take() {
                    Some(clients) => clients,
                    None => Clients::prepare()?,
                };
                run(&mut table, &programs, &clients, options)?;
                prepared = Some(clients);
            }
        }
    }
    report(&table, options.target, started)
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

fn kafka_tools(table: &mut Table, programs: &Programs, options: &Options) -> Result<()> {
    let site = Site::create("tools", &[])?;
    let mut server = site.start(programs, options.target)?;
    tools::run(table, &programs.kafka, &site)?;
    let alive = server.check_alive().and_then(|()| server.stop());
    table.add_other("clean stop", alive.map_err(|error| format!("{error:#}")));
    Ok(())
}

/// Each client writes with every codec, each reads what all have written, and all cases of each.
fn all_clients(table: &mut Table, programs: &Programs, clients: &Clients, options: &Options) -> Result<()> {
    let mut server = Site::create("interop", &[])?.start(programs, options.target)?;
    let bootstrap = server.bootstrap();
    println!("{} on {bootstrap}", options.target.name());
    let mut read = vec!["read", &bootstrap];
    read.extend(CLIENTS.map(|client| client.name()));
    let rounds: [(&str, &[&str], u64); 3] = [
        ("write with every codec", &["write", &bootstrap], 120),
        ("read what all have written", &read, 180),
        ("cases", &["cases", &bootstrap], 400),
    ];
    for (round, arguments, seconds) in rounds {
        for client in CLIENTS {
            println!("{}: {round}", client.name());
            let timeout = Duration::from_secs(seconds);
            table.add(client, clients.run(&programs.kafka, client, arguments, timeout)?);
        }
    }
    table.expect_cases();
    let alive = server.check_alive().and_then(|()| server.stop());
    table.add_other("clean stop", alive.map_err(|error| format!("{error:#}")));
    Ok(())
}

/// Runs our client against every supported broker; each has a table of its own.
fn own_client(table: &mut Table, programs: &Programs, clients: &Clients, options: &Options) -> Result<()> {
    for (broker, name, target) in [
        (Broker::Ottla, "Ottla", Some(Target::Ottla)),
        (Broker::Kafka, "Apache Kafka 4.3.0", Some(Target::Kafka)),
        (Broker::OldKafka, "Apache Kafka 2.1.1", None),
    ] {
        println!("our client against {name}");
        let is_known = options.has("clients") && target == Some(options.target);
        let (text, failed) = super::own_client::run(programs, clients, broker, is_known)?.render();
        println!("\nour client against {name}\n\n{text}");
        let outcome = match failed {
            0 => Ok(()),
            _ => Err(format!("{failed} cases, see the table above")),
        };
        table.add_other(format!("our client against {name}"), outcome);
    }
    Ok(())
}
