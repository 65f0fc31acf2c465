//! `cargo xtask golden`: sample messages written by Apache Kafka, and ours read by Apache Kafka.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::codegen::{self, kafka_jars};

/// The samples that `cargo test -p ottla-wire` compares with, below the root.
const SAMPLES: &str = "crates/wire/tests/golden/samples.bin.gz";

pub fn run(arguments: &[String]) -> Result<()> {
    match arguments {
        [] => write(),
        [flag] if flag == "--verify" => verify(),
        _ => bail!("usage: cargo xtask golden [--verify]"),
    }
}

/// Apache Kafka's error codes and header versions, below the root.
const FACTS: &str = "crates/wire/tests/golden/facts.tsv";

/// Apache Kafka's definitions of configuration keys, below the root.
const CONFIG_KEYS: &str = "crates/wire/tests/golden/config_keys.tsv";

/// The settings of Apache Kafka's clients and their error texts for wrong ones, below the root.
const CLIENT_CONFIG: [(&str, &str); 2] = [
    ("keys", "crates/client/tests/golden/config_keys.tsv"),
    ("texts", "crates/client/tests/golden/config_texts.tsv"),
];

/// Record batches written by Apache Kafka, below the root.
const BATCHES: &str = "crates/wire/tests/batches";

/// Assignments of Apache Kafka's assignors for random groups, below the root.
const ASSIGNMENTS: &str = "crates/client/tests/golden/assignments.tsv.gz";

/// Records of Apache Kafka's transaction coordinator in every state, below the root.
const TRANSACTION_STATES: &str = "crates/core/src/transaction/golden";

/// Has Apache Kafka's classes write a sample of every message in every version.
fn write() -> Result<()> {
    let plain = kafka_jars::root().join("target/golden-java.bin");
    println!("{}", samples("write", &plain)?);
    write_packed(SAMPLES, &fs::read(&plain)?)?;
    write_packed(ASSIGNMENTS, &java("Assignments.java", &[])?)?;
    fs::write(kafka_jars::root().join(FACTS), java("Facts.java", &[])?)?;
    fs::write(
        kafka_jars::root().join(CONFIG_KEYS),
        java("ConfigKeys.java", &[])?,
    )?;
    for (what, path) in CLIENT_CONFIG {
        fs::write(
            kafka_jars::root().join(path),
            java("ClientConfig.java", &[what.as_ref()])?,
        )?;
    }
    java(
        "Batches.java",
        &["write".as_ref(), kafka_jars::root().join(BATCHES).as_ref()],
    )?;
    java(
        "TransactionStates.java",
        &[kafka_jars::root().join(TRANSACTION_STATES).as_ref()],
    )?;
    Ok(())
}

/// - `path`: below the root.
fn write_packed(path: &str, bytes: &[u8]) -> Result<()> {
    let mut packed = Vec::new();
    let mut encoder = flate2::GzBuilder::new().write(&mut packed, flate2::Compression::best());
    encoder.write_all(bytes)?;
    encoder.finish()?;
    fs::write(kafka_jars::root().join(path), packed)?;
    Ok(())
}

/// Has our own code write the same samples, and Apache Kafka's classes read them and compare every
/// value.
pub fn verify() -> Result<()> {
    let ours = kafka_jars::root().join("target/golden-ours.bin");
    let mut test = Command::new(env!("CARGO"));
    test.current_dir(kafka_jars::root())
        .args([
            "test",
            "--quiet",
            "--package",
            "ottla-wire",
            "--test",
            "golden",
            "every_sample_reads_and_writes",
        ])
        .env("OTTLA_GOLDEN_OUT", &ours);
    kafka_jars::run_tool(&mut test, "writes our samples")?;
    println!("{}", samples("verify", &ours)?);
    verify_batches()
}

/// Has our builder write batches in every codec, and Apache Kafka's classes read them.
fn verify_batches() -> Result<()> {
    let ours = kafka_jars::root().join("target/batches-ours");
    fs::create_dir_all(&ours)?;
    let mut test = Command::new(env!("CARGO"));
    test.current_dir(kafka_jars::root())
        .args(["test", "--quiet", "--package", "ottla-wire", "--test", "batches"])
        .env("OTTLA_BATCHES_OUT", &ours);
    kafka_jars::run_tool(&mut test, "writes our batches")?;
    let output = java("Batches.java", &["verify".as_ref(), ours.as_ref()])?;
    println!("{}", String::from_utf8_lossy(&output).trim_end());
    Ok(())
}

fn samples(task: &str, file: &Path) -> Result<String> {
    let manifest = manifest()?;
    let output = java("Golden.java", &[task.as_ref(), manifest.as_ref(), file.as_ref()])?;
    Ok(String::from_utf8_lossy(&output).trim_end().to_owned())
}

/// Runs a program of `xtask/java` with Apache Kafka's jars and returns what it printed.
fn java(program: &str, arguments: &[&OsStr]) -> Result<Vec<u8>> {
    let jars = kafka_jars::fetch()?;
    let program = kafka_jars::root().join("xtask/java").join(program);
    let mut command = Command::new("java");
    command
        .arg("--class-path")
        .arg(jars.join("*"))
        .arg(program)
        .args(arguments);
    kafka_jars::run_tool(&mut command, "runs Apache Kafka's message classes")
}

/// A line for each message: class, schema, lowest and highest version.
fn manifest() -> Result<PathBuf> {
    let mut lines = String::new();
    for source in codegen::messages()? {
        let schema = source.schema_path.to_str().context("a path that is not UTF-8")?;
        let versions = source.message.versions;
        writeln!(
            lines,
            "{}\t{schema}\t{}\t{}",
            source.java_class, versions.min, versions.max
        )?;
    }
    let path = kafka_jars::root().join("target/golden-manifest.tsv");
    fs::write(&path, lines)?;
    Ok(path)
}
