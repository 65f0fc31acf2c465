//! Clients beyond those of the other parts, as applications use them every day: topics, records
//! with every codec, groups, transactions, settings and deletions.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::clients::{build_go, prepare_python, run_cases};
use super::server::{Programs, Site, Target};
use super::table::Table;
use super::toolchain::{self, run_quietly};

const LIMIT: Duration = Duration::from_secs(240);

pub fn run(table: &mut Table, programs: &Programs, target: Target) -> Result<()> {
    let (python, go, node) = (prepare_python()?, prepare_go()?, prepare_node()?);
    let site = Site::create("everyday", &[])?;
    let mut server = site.start(programs, target)?;
    let bootstrap = server.bootstrap();
    let in_python = |client: &str| {
        let mut command = Command::new(&python);
        command.arg(toolchain::root().join("tests/interop/python/main.py"));
        command.args(["everyday", &bootstrap, client]);
        command
    };
    let in_go = |client: &str| {
        let mut command = Command::new(&go);
        command.args([client, &bootstrap]);
        command
    };
    let mut in_node = Command::new("node");
    in_node.arg(node).arg(&bootstrap);
    for (name, mut command) in [
        ("KafkaJS", in_node),
        ("Sarama", in_go("sarama")),
        ("kafka-go", in_go("kafka-go")),
        ("aiokafka", in_python("aiokafka")),
        ("kafka-python", in_python("kafka-python")),
    ] {
        let started = Instant::now();
        let mut cases = run_cases(&format!("everyday-{name}"), &mut command, LIMIT)?;
        println!("{name}: {} cases, {} s", cases.len(), started.elapsed().as_secs());
        if cases.is_empty() {
            cases.insert("everything".to_owned(), Err("it reported nothing".to_owned()));
        }
        for (case, outcome) in cases {
            table.add_other(format!("{name}: {case}"), outcome);
        }
        server.check_alive()?;
    }
    server.stop()?;
    site.remove();
    Ok(())
}

/// Builds the program of Sarama and kafka-go.
pub(super) fn prepare_go() -> Result<PathBuf> {
    build_go("others", "tests/interop/go-others", "Sarama, kafka-go")
}

/// Returns the program, beside the packages that it imports.
fn prepare_node() -> Result<PathBuf> {
    toolchain::need("node", &["--version"], "Node 18 or newer (Debian: nodejs, npm)")?;
    let source = toolchain::root().join("tests/interop/node");
    let home = toolchain::target_directory().join("node");
    let stamp = home.join("prepared");
    let program = home.join("main.mjs");
    toolchain::build_once("npm: KafkaJS", &stamp, &source, || {
        fs::create_dir_all(&home)?;
        for file in ["package.json", "main.mjs"] {
            fs::copy(source.join(file), home.join(file)).with_context(|| format!("copying {file}"))?;
        }
        let mut install = Command::new("npm");
        install.args(["install", "--silent", "--no-audit", "--no-fund"]);
        run_quietly(install.current_dir(&home)).context("npm could not install KafkaJS")
    })?;
    Ok(program)
}
