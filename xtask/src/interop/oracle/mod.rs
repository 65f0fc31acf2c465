//! `--only oracle`: what our group coordinator decides, beside what classes of Apache Kafka's
//! decide about the same input: assignors, and the regular expressions of RE2/J. No broker takes
//! part.

mod assignors;
mod expressions;
mod patterns;

use std::fs::{self, File};

use anyhow::{Context, Result, ensure};

use super::table::Table;
use super::toolchain::{self, end_of};
use crate::kafka::Kafka;

pub fn run(table: &mut Table, kafka: &Kafka) -> Result<()> {
    assignors::run(table, kafka)?;
    patterns::run(table, kafka)
}

/// Runs a program of `xtask/java` with Kafka's jars and `input`, and returns what it prints. The
/// input stays beside the logs.
fn ask(kafka: &Kafka, program: &str, input: &str) -> Result<String> {
    fs::create_dir_all(toolchain::logs())?;
    let file = toolchain::logs().join(format!("{program}.input"));
    fs::write(&file, input).with_context(|| format!("writing {}", file.display()))?;
    let source = toolchain::root().join(format!("xtask/java/{program}.java"));
    let mut command = kafka.tool(source.to_str().context("a path in UTF-8")?);
    let output = command.stdin(File::open(&file)?).output();
    let output = output.context("cannot start java")?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "{program}: {} {}",
        output.status,
        end_of(&errors)
    );
    String::from_utf8(output.stdout).with_context(|| format!("{program} prints UTF-8"))
}
