//! `kafka-delegation-tokens` on both brokers, without authentication and with it: neither hands out
//! tokens, and the tool says why in the same words.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};

use super::{PASSWORD, Stand};
use crate::interop::server::Programs;
use crate::interop::table::Table;
use crate::interop::tools::{Tools, contains};

const TOOL: &str = "org.apache.kafka.tools.DelegationTokenCommand";

/// The tool's arguments, each for one of the four APIs.
const STEPS: [&[&str]; 4] = [
    &["--create", "--max-life-time-period", "-1"],
    &["--renew", "--renew-time-period", "-1", "--hmac", "dG9rZW4="],
    &["--expire", "--expiry-time-period", "-1", "--hmac", "dG9rZW4="],
    &["--describe"],
];

/// Where a client connects: the name of the way, whether it authenticates, and what it is told.
const WAYS: [(&str, bool, &str); 2] = [
    (
        "without authentication",
        false,
        "UnsupportedByAuthenticationException",
    ),
    ("authenticated", true, "DelegationTokenDisabledException"),
];

/// - `stands`: Ottla, then Apache Kafka.
pub fn run(table: &mut Table, programs: &Programs, stands: [&Stand; 2]) {
    for (way, is_authenticated, expected) in WAYS {
        for arguments in STEPS {
            let told = |stand: &Stand| told(programs, stand, is_authenticated, arguments, expected);
            let outcome = told(stands[0])
                .context("Ottla")
                .and_then(|ottla| Ok((ottla, told(stands[1]).context("Apache Kafka")?)))
                .and_then(|(ottla, kafka)| {
                    ensure!(ottla == kafka, "Kafka: {kafka:?}; Ottla: {ottla:?}");
                    Ok(())
                });
            let name = format!("matrix: kafka-delegation-tokens {} {way}", arguments[0]);
            let outcome = outcome.map_err(|error| format!("{error:#}").replace('\n', " "));
            println!("{name}: {}", outcome.as_ref().err().map_or("ok", String::as_str));
            table.add_other(name, outcome);
        }
    }
}

/// Returns whether the tool succeeded, and the line with its error.
fn told(
    programs: &Programs,
    stand: &Stand,
    is_authenticated: bool,
    arguments: &[&str],
    expected: &str,
) -> Result<(bool, String)> {
    let file = config(stand, is_authenticated)?;
    let port = if is_authenticated {
        stand.login_port
    } else {
        stand.site.port
    };
    let tools = Tools {
        kafka: &programs.kafka,
        bootstrap: format!("localhost:{port}"),
    };
    let file = file.display().to_string();
    let (has_succeeded, text) =
        tools.run_for_all(TOOL, &[arguments, &["--command-config", &file]].concat(), "")?;
    contains(&text, expected)?;
    let line = text.lines().find(|line| line.contains(expected));
    Ok((has_succeeded, line.unwrap_or_default().to_owned()))
}

/// Writes the file of `--command-config`, without which the tool does not start.
fn config(stand: &Stand, is_authenticated: bool) -> Result<PathBuf> {
    let module = "org.apache.kafka.common.security.plain.PlainLoginModule";
    let (name, text) = match is_authenticated {
        false => ("plaintext.properties", "security.protocol=PLAINTEXT\n".to_owned()),
        true => (
            "login.properties",
            format!(
                "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n\
                 sasl.jaas.config={module} required username=\"nothing\" password=\"{PASSWORD}\";\n"
            ),
        ),
    };
    let file = stand.site.home().join(name);
    fs::write(&file, text).with_context(|| file.display().to_string())?;
    Ok(file)
}
