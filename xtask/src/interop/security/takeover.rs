//! A secured directory changes hands, from Apache Kafka to Ottla and back, and the other way round:
//! users, ACLs and listeners mean the same to both.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};

use super::broker::Broker;
use super::commands::shown;
use super::foreign::{self, Connection};
use super::many;
use crate::interop::clients::Clients;
use crate::interop::server::{Programs, Target};
use crate::interop::table::Table;
use crate::interop::tools::{Tools, contains};

const ACLS: &str = "org.apache.kafka.tools.AclCommand";
const OF_BOB: &str = "bob's; \"pass\\word\"";
const OF_CAROL: &str = "carol's";

/// Runs both directions.
pub fn run(table: &mut Table, programs: &Programs, clients: &Clients) -> Result<()> {
    for (first, second) in [(Target::Kafka, Target::Ottla), (Target::Ottla, Target::Kafka)] {
        let broker = Broker::create(&format!("secured-by-{}", short(first)))?;
        let dora = broker.authority.sign("dora", &["dora"], |_| {})?;
        let takeover = Takeover {
            programs,
            clients,
            broker,
            dora,
        };
        if let Err(error) = takeover.run(table, first, second) {
            let name = format!("{} to {}", first.name(), second.name());
            super::add(table, &name, Err(format!("{error:#}").replace('\n', " ")));
        }
    }
    Ok(())
}

struct Takeover<'a> {
    programs: &'a Programs,
    clients: &'a Clients,
    broker: Broker,
    /// The key store of a client whose principal is its certificate's.
    dora: std::path::PathBuf,
}

impl Takeover<'_> {
    fn run(&self, table: &mut Table, first: Target, second: Target) -> Result<()> {
        let way = format!("{} to {} and back", short(first), short(second));
        let server = self.broker.start(self.programs, first)?;
        self.broker.add_user("bob", OF_BOB)?;
        foreign::create(&self.broker.site, "orders")?;
        foreign::create(&self.broker.site, "invoices")?;
        self.allow("User:bob", "orders")?;
        self.allow("User:CN=dora", "invoices")?;
        let before = self.before();
        self.check(table, &format!("{way}, {} at first", short(first)), &before)?;
        many::create(&self.broker)?;
        let listed_at_first = self.list()?;
        server.stop()?;

        let server = self.broker.site.start(self.programs, second)?;
        self.check(table, &format!("{way}, then {}", short(second)), &before)?;
        let same = self.has_many(&listed_at_first).map_err(shown);
        super::add(
            table,
            &format!("{way}, {} has 200 ACLs and 20 users", short(second)),
            same,
        );
        many::remove(&self.broker)?;
        self.broker.add_user("carol", OF_CAROL)?;
        self.broker.add_user("bob", "changed")?;
        self.allow("User:carol", "orders")?;
        self.acl(&[
            "--add",
            "--deny-principal",
            "User:bob",
            "--operation",
            "Write",
            "--topic",
            "orders",
        ])?;
        let after = self.after();
        self.check(table, &format!("{way}, {} after changes", short(second)), &after)?;
        let listed = self.list()?;
        server.stop()?;

        let server = self.broker.site.start(self.programs, first)?;
        self.check(table, &format!("{way}, {} again", short(first)), &after)?;
        let same = self.has_same(&listed).map_err(shown);
        super::add(table, &format!("{way}, the same ACLs are listed"), same);
        let gone = many::check_gone(&self.broker).map_err(shown);
        super::add(
            table,
            &format!("{way}, none of 200 ACLs and 20 users is left"),
            gone,
        );
        server.stop()
    }

    fn has_many(&self, listed_at_first: &BTreeSet<String>) -> Result<()> {
        self.has_same(listed_at_first)?;
        many::check(&self.broker, listed_at_first)
    }

    fn has_same(&self, listed: &BTreeSet<String>) -> Result<()> {
        let now = self.list()?;
        let differing: Vec<&String> = now.symmetric_difference(listed).collect();
        ensure!(differing.is_empty(), "only one of the two lists {differing:?}");
        contains(&Vec::from_iter(now).join("\n"), "principal=User:CN=dora")
    }

    /// What users and ACLs of the first broker mean.
    fn before(&self) -> Vec<(Connection, &'static str)> {
        vec![
            (self.bob(OF_BOB, "SCRAM-SHA-256"), "orders"),
            (self.bob(OF_BOB, "SCRAM-SHA-512"), "orders"),
            (self.bob(OF_BOB, "SCRAM-SHA-512").fails("denied"), "invoices"),
            (self.bob("wrong", "SCRAM-SHA-512").fails("password"), "orders"),
            (self.user("carol", OF_CAROL).fails("password"), "orders"),
            (self.certificate(), "invoices"),
            (self.certificate().fails("denied"), "orders"),
        ]
    }

    /// And after the second broker has changed some.
    fn after(&self) -> Vec<(Connection, &'static str)> {
        vec![
            (self.user("carol", OF_CAROL), "orders"),
            (self.user("carol", OF_CAROL).fails("denied"), "invoices"),
            (self.bob("changed", "SCRAM-SHA-256").fails("denied"), "orders"),
            (self.bob(OF_BOB, "SCRAM-SHA-256").fails("password"), "orders"),
            (self.certificate(), "invoices"),
        ]
    }

    fn bob(&self, password: &str, mechanism: &'static str) -> Connection {
        self.over_tls("bob", password, mechanism)
    }

    fn user(&self, user: &str, password: &str) -> Connection {
        self.over_tls(user, password, "SCRAM-SHA-512")
    }

    fn over_tls(&self, user: &str, password: &str, mechanism: &'static str) -> Connection {
        let name = format!("{user} by {mechanism}");
        Connection::new(&self.broker, &name, "SASLSSL", "SASL_SSL").login(mechanism, user, password)
    }

    fn certificate(&self) -> Connection {
        Connection::new(&self.broker, "dora by certificate", "MUTUAL", "SSL").key(&self.dora)
    }

    fn check(&self, table: &mut Table, when: &str, connections: &[(Connection, &'static str)]) -> Result<()> {
        let numbered: Vec<(Connection, &str)> = connections
            .iter()
            .enumerate()
            .map(|(number, (connection, topic))| {
                let name = format!("{number}: {}, {topic}, {}", connection.name, connection.expected);
                let connection = Connection {
                    name,
                    ..connection.clone()
                };
                (connection, *topic)
            })
            .collect();
        let outcomes =
            foreign::outcomes_with_topics(self.programs, self.clients, &self.broker.site, &numbered)?;
        for (connection, _) in numbered {
            let outcome = outcomes.get(&connection.name).cloned();
            let outcome = outcome.unwrap_or_else(|| Err("did not run".to_owned()));
            super::add(table, &format!("{when}: {}", connection.name), outcome);
        }
        Ok(())
    }

    /// Allows writing, reading, and committing in the group of the topic's name.
    fn allow(&self, principal: &str, topic: &str) -> Result<()> {
        let to_produce = ["--producer", "--topic", topic];
        let to_consume = ["--consumer", "--topic", topic, "--group", topic];
        for what in [&to_produce[..], &to_consume] {
            let arguments = [&["--add", "--allow-principal", principal], what].concat();
            contains(&self.acl(&arguments)?, "permissionType=ALLOW")?;
        }
        Ok(())
    }

    /// What kafka-acls lists: each ACL behind its resource.
    fn list(&self) -> Result<BTreeSet<String>> {
        let text = self.acl(&["--list"])?;
        let mut resource = "";
        let mut listed = BTreeSet::new();
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
            match line.starts_with('(') {
                true => drop(listed.insert(format!("{resource} {line}"))),
                false => resource = line,
            }
        }
        Ok(listed)
    }

    /// Runs kafka-acls through the listener without security.
    fn acl(&self, arguments: &[&str]) -> Result<String> {
        let tools = Tools {
            kafka: &self.programs.kafka,
            bootstrap: self.broker.site.bootstrap(),
        };
        tools.run(ACLS, arguments, "").context("kafka-acls")
    }
}

fn short(target: Target) -> &'static str {
    match target {
        Target::Ottla => "Ottla",
        Target::Kafka => "Kafka",
    }
}
