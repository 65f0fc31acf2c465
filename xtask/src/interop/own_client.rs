//! Our own client against Ottla, Apache Kafka 4.3 and Apache Kafka 2.1: records exchanged with
//! other clients, its own cases, its commits as seen by Kafka's tool, and reading Java's
//! transactions.

use super::cases::{CASES, CODECS};
use super::clients::{CLIENTS, Client, Clients};
use super::old_kafka::OldKafka;
use super::server::{Programs, Site, Target};
use super::table::Table;
use super::toolchain::run_quietly;
use anyhow::{Context, Result};
use std::time::Duration;

/// The broker of a run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Broker {
    Ottla,
    Kafka,
    /// 2.1, the oldest that the client supports.
    OldKafka,
}

/// The brokers of the cases with transactions.
const SERVE_TRANSACTIONS: [Broker; 2] = [Broker::Ottla, Broker::Kafka];

/// The levels of `transaction.version` that the transactional producer meets in one run, the
/// first of them as the directory is formatted.
const TRANSACTION_VERSIONS: [u8; 3] = [2, 1, 0];

/// Runs against one broker and returns its table.
///
/// - `is_known`: records and cases already ran against this broker, as part of the clients' table.
pub fn run(programs: &Programs, clients: &Clients, broker: Broker, is_known: bool) -> Result<Table> {
    let mut table = Table::default();
    if broker == Broker::OldKafka {
        let old = OldKafka::start()?;
        let mut against = Against::new(&mut table, programs, clients, old.bootstrap());
        against.records(&[Client::Java, Client::Ottla])?;
        against.phase("old", 300)?;
        return Ok(table);
    }
    let target = if broker == Broker::Ottla {
        Target::Ottla
    } else {
        Target::Kafka
    };
    let site = Site::create("own-client", &[])?;
    let server = site.start(programs, target)?;
    let mut against = Against::new(&mut table, programs, clients, server.bootstrap());
    if !is_known {
        against.records(&CLIENTS)?;
        against.phase("cases", 300)?;
        let offered = CASES.iter().filter(|case| case.clients.contains(&Client::Ottla));
        table.expect(Client::Ottla, offered.map(|case| case.name.to_string()));
    }
    let mut against = Against::new(&mut table, programs, clients, server.bootstrap());
    against.phase("beside-java", 120)?;
    against.phase("consumer-protocol", 300)?;
    if SERVE_TRANSACTIONS.contains(&broker) {
        against.phase("transactions", 120)?;
        against.transactional_producer()?;
    }
    let stopped = server.stop().map_err(|error| format!("{error:#}"));
    table.add_other("clean stop", stopped);
    Ok(table)
}

struct Against<'a> {
    table: &'a mut Table,
    programs: &'a Programs,
    clients: &'a Clients,
    bootstrap: String,
}

impl<'a> Against<'a> {
    fn new(
        table: &'a mut Table,
        programs: &'a Programs,
        clients: &'a Clients,
        bootstrap: String,
    ) -> Against<'a> {
        Against {
            table,
            programs,
            clients,
            bootstrap,
        }
    }

    fn client(&mut self, client: Client, arguments: &[&str], seconds: u64) -> Result<()> {
        println!("{}: {}", client.name(), arguments[0]);
        let limit = Duration::from_secs(seconds);
        let cases = self.clients.run(&self.programs.kafka, client, arguments, limit)?;
        if cases.is_empty() {
            self.table.add(
                client,
                [(format!("(phase {})", arguments[0]), Err("no case".to_string()))].into(),
            );
        }
        self.table.add(client, cases);
        Ok(())
    }

    fn phase(&mut self, phase: &str, seconds: u64) -> Result<()> {
        let bootstrap = self.bootstrap.clone();
        self.client(Client::Ottla, &[phase, &bootstrap], seconds)
    }

    fn transactional_producer(&mut self) -> Result<()> {
        for version in TRANSACTION_VERSIONS {
            let mark = format!("transaction.version {version}");
            if version != TRANSACTION_VERSIONS[0] {
                self.finalize(version)?;
            }
            let bootstrap = self.bootstrap.clone();
            let arguments = ["transactional-producer", bootstrap.as_str(), mark.as_str()];
            self.client(Client::Ottla, &arguments, 300)?;
        }
        Ok(())
    }

    fn finalize(&self, version: u8) -> Result<()> {
        let mut tool = self.programs.kafka.tool("org.apache.kafka.tools.FeatureCommand");
        let feature = format!("transaction.version={version}");
        tool.args([
            "--bootstrap-server",
            &self.bootstrap,
            "downgrade",
            "--feature",
            &feature,
        ]);
        run_quietly(&mut tool).context("kafka-features downgrade")
    }

    /// All clients write; all read our client's records, and ours reads all records.
    fn records(&mut self, who: &[Client]) -> Result<()> {
        let bootstrap = self.bootstrap.clone();
        for &client in who {
            self.client(client, &["write", &bootstrap], 120)?;
        }
        for &client in who {
            let writers: Vec<&str> = match client {
                Client::Ottla => who.iter().map(|writer| writer.name()).collect(),
                _ => vec![Client::Ottla.name()],
            };
            self.client(client, &[&["read", &bootstrap], writers.as_slice()].concat(), 180)?;
            let of_codec = |codec: &&str| -> Vec<String> {
                let reads = writers.iter().map(|writer| format!("read {writer} {codec}"));
                reads.chain([format!("write {codec}")]).collect()
            };
            self.table.expect(client, CODECS.iter().flat_map(of_codec));
        }
        Ok(())
    }
}
