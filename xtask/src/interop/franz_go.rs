//! franz-go's own tests of groups and transactions: chains of consumers that produce what they read
//! to the next topic, while members come and go.

use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, bail};

use super::server::{Programs, Site, Target};
use super::table::Table;
use super::toolchain;

const PACKAGE: &str = "github.com/twmb/franz-go/pkg/kgo";

/// With range, sticky and cooperative assignors, static members, and the consumer protocol.
const TESTS: &str = "^(TestGroupETL|TestTxnEtl)$";

/// A chain has three topics; the tests' own default is ten times as many.
const RECORDS: &str = "50000";

const LIMIT: &str = "-timeout=10m";

pub fn run(table: &mut Table, programs: &Programs, target: Target) -> Result<()> {
    toolchain::need("go", &["version"], "Go, the version in its go.mod or newer")?;
    let server = Site::create("franz-go", &[])?.start(programs, target)?;
    let output = Command::new("go")
        .args(["test", PACKAGE, "-run", TESTS, "-count=1", LIMIT, "-v"])
        .current_dir(toolchain::root().join("tests/interop/go"))
        .env("KGO_SEEDS", server.bootstrap())
        .env("KGO_TEST_RECORDS", RECORDS)
        .env("KGO_TEST_RF", "1")
        .stdin(Stdio::null())
        .output()
        .context("cannot start go")?;
    for (name, outcome) in outcomes(&output)? {
        let words = outcome.as_ref().err().map_or("ok", String::as_str);
        println!("franz-go: {name}: {words}");
        table.add_other(format!("franz-go: {name}"), outcome);
    }
    server.stop()
}

/// Reads what `go test -v` printed of each test: `--- PASS: NAME (1.50s)`, then its messages.
fn outcomes(output: &Output) -> Result<Vec<(String, Result<(), String>)>> {
    let text = String::from_utf8_lossy(&output.stdout);
    let mut outcomes: Vec<(String, Result<(), String>)> = Vec::new();
    for line in text.lines() {
        let told = line.trim_start();
        if let Some((verdict, rest)) = told.strip_prefix("--- ").and_then(|told| told.split_once(": ")) {
            let name = rest.split(" (").next().unwrap_or(rest).to_owned();
            let outcome = match verdict {
                "PASS" => Ok(()),
                "SKIP" => Err(String::from("skipped:")),
                _ => Err(String::from("failed:")),
            };
            outcomes.push((name, outcome));
        } else if let Some((_, Err(words))) = outcomes.last_mut()
            && line.starts_with("    ")
        {
            words.push(' ');
            words.push_str(told);
        }
    }
    let has_failed = text.lines().any(|line| line.trim_start().starts_with("--- FAIL"));
    if outcomes.is_empty() || has_failed == output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        bail!("go test ended with {}: {text}{errors}", output.status);
    }
    Ok(outcomes)
}
