//! `cargo xtask fuzz TARGET`: one fuzz target for some minutes, with the compiler of the project.
//!
//! The flags are those of cargo-fuzz, which wants a nightly compiler for an address sanitizer. The
//! targets look for panics, hangs and memory that grows, and need none. What is found is kept in
//! `fuzz/corpus/TARGET`, and the next run begins with it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::interop::toolchain;

/// Named even where it is the machine's own: the flags are then not those of build scripts.
const PLATFORM: &str = "x86_64-unknown-linux-gnu";

const FLAGS: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
                     -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
                     -Cllvm-args=-sanitizer-coverage-pc-table \
                     -Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing -Cdebug-assertions";

struct Plan {
    target: String,
    seconds: u64,
    /// Files that the first inputs are taken from.
    seeds: Option<PathBuf>,
}

fn parse(arguments: &[String]) -> Result<Plan> {
    let usage = "usage: cargo xtask fuzz TARGET [--minutes N] [--seeds DIRECTORY]";
    let Some((target, rest)) = arguments
        .split_first()
        .filter(|(target, _)| !target.starts_with('-'))
    else {
        bail!("{usage}; targets: {}", targets()?.join(", "));
    };
    let mut plan = Plan {
        target: target.clone(),
        seconds: 600,
        seeds: None,
    };
    for pair in rest.chunks(2) {
        match pair {
            [name, value] if name == "--minutes" => {
                plan.seconds = 60 * value.parse::<u64>().context("--minutes")?;
            }
            [name, value] if name == "--seeds" => plan.seeds = Some(value.into()),
            _ => bail!("{usage}"),
        }
    }
    ensure!(plan.seconds > 0, "--minutes must be at least 1");
    ensure!(
        targets()?.contains(&plan.target),
        "there is no target {}; targets: {}",
        plan.target,
        targets()?.join(", ")
    );
    Ok(plan)
}

fn folder() -> PathBuf {
    toolchain::root().join("fuzz")
}

fn targets() -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder().join("fuzz_targets"))? {
        let path = entry?.path();
        names.extend(path.file_stem().map(|name| name.to_string_lossy().into_owned()));
    }
    names.sort();
    Ok(names)
}

pub fn run(arguments: &[String]) -> Result<()> {
    let plan = parse(arguments)?;
    let built = toolchain::root().join("target/fuzz");
    build(&plan, &built)?;
    let corpus = folder().join("corpus").join(&plan.target);
    let artifacts = folder().join("artifacts").join(&plan.target);
    for directory in [&corpus, &artifacts] {
        fs::create_dir_all(directory).with_context(|| format!("{}", directory.display()))?;
    }
    let program = built.join(PLATFORM).join("release").join(&plan.target);
    let status = Command::new(&program)
        .arg(format!("-max_total_time={}", plan.seconds))
        .args(["-timeout=10", "-rss_limit_mb=2048", "-max_len=65536"])
        .arg(format!("-artifact_prefix={}/", artifacts.display()))
        .arg(&corpus)
        .args(&plan.seeds)
        .status()
        .with_context(|| format!("{} does not start", program.display()))?;
    ensure!(
        status.success(),
        "{} found something: {status}; the input is in {}",
        plan.target,
        artifacts.display()
    );
    Ok(())
}

fn build(plan: &Plan, built: &Path) -> Result<()> {
    let status = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .current_dir(folder())
        .args(["build", "--release", "--target", PLATFORM, "--bin", &plan.target])
        .arg("--target-dir")
        .arg(built)
        .env("RUSTFLAGS", FLAGS)
        .status()
        .context("cargo does not start")?;
    ensure!(status.success(), "{} does not compile", plan.target);
    Ok(())
}
