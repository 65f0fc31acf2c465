//! Transactions: three clients, Kafka's tools, and a broker that is killed in the middle.

use std::process::{Child, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::clients::{CLIENTS, Client, Clients};
use super::committed::Committed;
use super::server::{Programs, Server, Site, Target};
use super::table::Table;
use super::tools::{PRODUCER_PERF, TOPICS, Tools, contains};
use crate::kafka::Kafka;

pub(super) const TRANSACTIONS: &str = "org.apache.kafka.tools.TransactionsCommand";
const LIMIT: Duration = Duration::from_secs(240);

/// Its brokers write TV2's markers, too, and open a directory that they have formatted.
const OLDER: &str = "4.2.1";
/// Takeovers from it and to it.
const OLDER_ROUNDS: u32 = 3;

/// Transactions of a tenth of a second each.
const RECORDS: &str = "2000";
const RATE: &str = "1000";

pub fn run(table: &mut Table, programs: &Programs, clients: &Clients, target: Target) -> Result<()> {
    let site = Site::create("transactions", &[])?;
    let server = site.start(programs, target)?;
    for client in CLIENTS {
        let phase = match client {
            Client::Java => "transaction-cases",
            _ => "transactions",
        };
        let arguments = [phase, &server.bootstrap()];
        for (name, outcome) in clients.run(&programs.kafka, client, &arguments, LIMIT)? {
            report(table, &format!("{}: {name}", client.name()), outcome);
        }
    }
    let tools = Tools {
        kafka: &programs.kafka,
        bootstrap: server.bootstrap(),
    };
    let outcome = measured(&tools);
    report(
        table,
        "kafka-producer-perf-test --transactional-id",
        said(outcome),
    );
    report(
        table,
        "kafka-transactions lists, describes and aborts",
        said(use_tools(&tools)),
    );
    report(
        table,
        "kafka-transactions finds and aborts a hanging one",
        said(super::hanging::find_and_abort(programs, target)),
    );
    super::old_clients::run(table, programs, target)?;
    let mut server = server;
    for (name, topic, next) in lives(target) {
        match survive(programs, programs, &site, server, topic, next) {
            Ok(next) => {
                report(table, name, Ok(()));
                server = next;
            }
            Err(error) => {
                report(table, name, Err(format!("{error:#}")));
                return Ok(());
            }
        }
    }
    report(table, "clean stop", said(server.stop()));
    if target == Target::Ottla {
        let name = format!("Apache Kafka {OLDER} and Ottla take over in the middle of transactions");
        report(table, &name, said(between_older(programs)));
    }
    Ok(())
}

/// On a directory that the older Apache Kafka has formatted, it and Ottla take over from each other
/// after kill -9, so each finishes what the other has begun, and writes markers again that the
/// other wrote before it was killed (KAFKA-19999).
fn between_older(programs: &Programs) -> Result<()> {
    let older = Programs {
        kafka: Kafka::prepare_version(OLDER)?,
        ottla: programs.ottla.clone(),
    };
    let site = Site::create("transactions-older", &[])?;
    let mut server = site.start(&older, Target::Kafka)?;
    for round in 0..OLDER_ROUNDS {
        for next in [Target::Ottla, Target::Kafka] {
            let topic = format!("to-{}-{round}", next.argument());
            server = survive(programs, &older, &site, server, &topic, next).context(topic)?;
        }
    }
    server.stop()
}

/// The broker is killed in the middle of transactions once for each of these, and the next one
/// started on the same directory: the case, its topic, the next broker.
fn lives(target: Target) -> Vec<(&'static str, &'static str, Target)> {
    let name = "a broker that is killed in the middle of a transaction";
    let mut lives = vec![(name, "killed", target)];
    if target == Target::Ottla {
        lives.push((
            "Apache Kafka takes over in the middle of a transaction",
            "taken-over",
            Target::Kafka,
        ));
        lives.push((
            "Ottla takes over again in the middle of a transaction",
            "taken-back",
            Target::Ottla,
        ));
    }
    lives
}

fn said(outcome: Result<()>) -> Result<(), String> {
    outcome.map_err(|error| format!("{error:#}"))
}

fn report(table: &mut Table, name: &str, outcome: Result<(), String>) {
    let words = outcome.as_ref().err().map_or("ok", String::as_str);
    println!("transactions: {name}: {words}");
    table.add_other(format!("transactions: {name}"), outcome);
}

/// Kafka's own tool in the background; killed when dropped.
struct Load(Child);

impl Load {
    fn start(tools: &Tools<'_>, topic: &str, records: &str, duration_ms: &str) -> Result<Load> {
        let mut command = tools.kafka.tool(PRODUCER_PERF);
        command.args(["--bootstrap-server", &tools.bootstrap, "--topic", topic]);
        command.args([
            "--num-records",
            records,
            "--throughput",
            RATE,
            "--record-size",
            "10",
        ]);
        command.args([
            "--transactional-id",
            topic,
            "--transaction-duration-ms",
            duration_ms,
        ]);
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot start ProducerPerformance")?;
        Ok(Load(child))
    }

    fn check_running(&mut self) -> Result<()> {
        let ended = self.0.try_wait()?;
        ensure!(ended.is_none(), "ProducerPerformance has ended: {ended:?}");
        Ok(())
    }

    fn wait(mut self) -> Result<()> {
        let status = self.0.wait()?;
        ensure!(status.success(), "ProducerPerformance: {status}");
        Ok(())
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Succeeds if a reader of committed records finds exactly `expected` ones.
pub(super) fn committed(tools: &Tools<'_>, topic: &str, expected: usize) -> Result<()> {
    let found = tools.read_committed(topic, expected)?.len();
    ensure!(found == expected, "{found} of {expected} records are committed");
    Ok(())
}

fn measured(tools: &Tools<'_>) -> Result<()> {
    tools.run(TOPICS, &["--create", "--topic", "perf", "--partitions", "3"], "")?;
    Load::start(tools, "perf", RECORDS, "100")?.wait()?;
    committed(tools, "perf", RECORDS.parse()?)
}

fn use_tools(tools: &Tools<'_>) -> Result<()> {
    tools.run(TOPICS, &["--create", "--topic", "held", "--partitions", "1"], "")?;
    let load = Load::start(tools, "held", "1000000", "600000")?;
    let mut listed = String::new();
    for _ in 0..20 {
        listed = tools.run(TRANSACTIONS, &["list"], "")?;
        if listed
            .lines()
            .any(|line| line.starts_with("held") && line.contains("Ongoing"))
        {
            break;
        }
    }
    contains(&listed, "held")?;
    contains(&listed, "Ongoing")?;
    let described = tools.run(TRANSACTIONS, &["describe", "--transactional-id", "held"], "")?;
    contains(&described, "held-0")?;
    let producers = ["describe-producers", "--topic", "held", "--partition", "0"];
    contains(
        &tools.run(TRANSACTIONS, &producers, "")?,
        "CurrentTransactionStartOffset",
    )?;
    drop(load);
    let force = ["forceTerminateTransaction", "--transactionalId", "held"];
    tools.run(TRANSACTIONS, &force, "")?;
    committed(tools, "held", 0).context("an aborted transaction")?;
    let after = tools.run(TRANSACTIONS, &["describe", "--transactional-id", "held"], "")?;
    ensure!(!after.contains("held-0"), "still open: {after}");
    Ok(())
}

/// What was decided is finished after the start, and the producer goes on with what was open: no
/// reader sees a part of a transaction.
///
/// - `programs`: the tools.
/// - `brokers`: the next broker.
fn survive(
    programs: &Programs,
    brokers: &Programs,
    site: &Site,
    server: Server,
    topic: &str,
    next: Target,
) -> Result<Server> {
    let tools = Tools {
        kafka: &programs.kafka,
        bootstrap: server.bootstrap(),
    };
    tools.run(TOPICS, &["--create", "--topic", topic, "--partitions", "3"], "")?;
    let mut load = Load::start(&tools, topic, "6000", "50")?;
    Committed::open(&tools.bootstrap, topic, 3)?.wait_for(500, || load.check_running())?;
    server.kill()?;
    let server = site.start(brokers, next)?;
    let tools = Tools {
        kafka: &programs.kafka,
        bootstrap: server.bootstrap(),
    };
    // The same producer goes on; none of its records is lost, none is twice.
    load.wait()?;
    committed(&tools, topic, 6_000)?;
    Ok(server)
}
