//! Ottla's commands about a running broker, `doctor`, `tenants` and `quota`, at a secured cluster:
//! they ask it for the admin address over TLS and SASL, and show the token there.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::broker::{Broker, USER};
use super::commands::{Connection, of_scram, shown};
use crate::interop::server::{Programs, Target};
use crate::interop::table::Table;
use crate::interop::tools::contains;

/// A user without permissions.
const STRANGER: &str = "bob";
const OF_STRANGER: &str = "bob-secret";

/// The arguments of a command before the connection.
type Words = &'static [&'static str];

const DOCTOR: Words = &["doctor"];
const TENANTS: Words = &["tenants"];
const SHOW: Words = &["quota", "show"];
const SUGGEST: Words = &["quota", "suggest"];

/// What a command must print, on any of its two streams, and its exit status.
struct Expected {
    statuses: &'static [i32],
    text: String,
}

impl Expected {
    /// A doctor ends with 1 if it has found a client to help.
    fn shown(text: &str) -> Expected {
        Expected {
            statuses: &[0, 1],
            text: text.to_owned(),
        }
    }

    fn refused(text: impl Into<String>) -> Expected {
        Expected {
            statuses: &[2],
            text: text.into(),
        }
    }
}

/// Every command over each connection, after other commands have loaded the broker over it.
pub fn run(
    table: &mut Table,
    programs: &Programs,
    broker: &Broker,
    target: Target,
    connections: &[Connection],
) -> Result<()> {
    let mut stage = Stage {
        table,
        programs,
        target,
    };
    for connection in connections {
        match target {
            Target::Ottla => stage.of_ottla(broker, connection),
            Target::Kafka => stage.of_kafka(connection),
        }
    }
    if target == Target::Ottla {
        stage.mistakes(broker, &connections[0])?;
    }
    Ok(())
}

struct Stage<'a> {
    table: &'a mut Table,
    programs: &'a Programs,
    target: Target,
}

impl Stage<'_> {
    fn of_ottla(&mut self, broker: &Broker, connection: &Connection) {
        let token = broker.admin_token();
        let steps = [
            (DOCTOR, "perf-"),
            // The user of either connection has loaded the broker in the last minute.
            (TENANTS, connection.user),
            (SHOW, connection.user),
            (SUGGEST, connection.user),
        ];
        for (words, text) in steps {
            self.check("", words, connection, Some(&token), &Expected::shown(text));
        }
    }

    /// Of Apache Kafka a doctor asks a collector, where there may be none; the others have nothing
    /// to ask.
    fn of_kafka(&mut self, connection: &Connection) {
        let no_ottla = format!("{} is not Ottla", connection.address);
        let asks = Expected {
            statuses: &[0, 1, 2],
            text: format!("{no_ottla}: asking the collector at 127.0.0.1:9645"),
        };
        self.check("", DOCTOR, connection, None, &asks);
        let refused = Expected::refused(format!("{no_ottla}: it has no ottla.admin.listener"));
        for words in [TENANTS, SHOW, SUGGEST] {
            self.check("", words, connection, None, &refused);
        }
    }

    fn mistakes(&mut self, broker: &Broker, connection: &Connection) -> Result<()> {
        let folder = broker.site.home();
        let token = broker.admin_token();
        let wrong_token = folder.join("wrong-token");
        fs::write(&wrong_token, "0123456789abcdef0123456789abcdef")?;
        broker.add_user(STRANGER, OF_STRANGER)?;
        let settings = fs::read_to_string(&connection.properties)?;
        let with = |user: &str, password: &str| -> Result<Connection> {
            let properties = folder.join(format!("commands-{user}-{}.properties", password.len()));
            let jaas = of_scram(user, password);
            let others = settings
                .lines()
                .filter(|line| !line.starts_with("sasl.jaas.config="));
            let lines: Vec<&str> = others.chain([&*jaas]).collect();
            fs::write(&properties, lines.join("\n") + "\n")?;
            Ok(Connection {
                properties,
                address: connection.address.clone(),
                ..*connection
            })
        };
        let wrong_password = with(USER, "wrong")?;
        let stranger = with(STRANGER, OF_STRANGER)?;
        let unauthorized = Expected::refused("401");
        let denied = Expected::refused("authorization");
        for words in [DOCTOR, TENANTS, SHOW] {
            self.check("without the token, ", words, connection, None, &unauthorized);
            self.check(
                "another token, ",
                words,
                connection,
                Some(&wrong_token),
                &unauthorized,
            );
            let refused = Expected::refused("invalid credentials");
            self.check("wrong password, ", words, &wrong_password, Some(&token), &refused);
            self.check(
                "a user without permissions, ",
                words,
                &stranger,
                Some(&token),
                &denied,
            );
        }
        Ok(())
    }

    fn check(
        &mut self,
        how: &str,
        words: Words,
        connection: &Connection,
        token: Option<&Path>,
        expected: &Expected,
    ) {
        let outcome = self.attempt(words, connection, token, expected);
        let (words, on, over) = (words.join(" "), self.target.name(), connection.name);
        super::add(
            self.table,
            &format!("ottla {words} on {on}: {how}{over}"),
            outcome.map_err(shown),
        );
    }

    fn attempt(
        &self,
        words: Words,
        connection: &Connection,
        token: Option<&Path>,
        expected: &Expected,
    ) -> Result<()> {
        let ottla = self
            .programs
            .ottla
            .as_ref()
            .context("the ottla binary was not built")?;
        let mut command = Command::new(ottla);
        command
            .args(words)
            .args(["--bootstrap-server", &connection.address]);
        command.arg("--command-config").arg(&connection.properties);
        if let Some(token) = token {
            command.arg("--admin-token-file").arg(token);
        }
        let output = command
            .stdin(Stdio::null())
            .output()
            .context("cannot start ottla")?;
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        let status = output.status.code().context("it was killed")?;
        ensure!(expected.statuses.contains(&status), "status {status}: {text}");
        contains(&text, &expected.text)
    }
}
