//! `cargo xtask features`: ottla-client compiles with every set of its cargo features and refuses
//! with the feature's name what a build lacks. `cargo xtask features --targets`: it compiles for
//! the other systems, whose standard libraries `rustup target add` installs.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

const FEATURES: [&str; 4] = ["tls", "zstd", "telemetry", "oauth"];

/// Checked without the features that compile C for the target.
const TARGETS: [&str; 2] = ["x86_64-pc-windows-gnu", "aarch64-apple-darwin"];

pub fn run(root: &Path, arguments: &[String]) -> Result<()> {
    match arguments {
        [] => every_set(root),
        [flag] if flag == "--targets" => every_target(root),
        _ => bail!("usage: cargo xtask features [--targets]"),
    }
}

fn every_set(root: &Path) -> Result<()> {
    for set in 0..1 << FEATURES.len() {
        let names: Vec<&str> = (0..FEATURES.len())
            .filter(|index| set & (1 << index) != 0)
            .map(|index| FEATURES[index])
            .collect();
        cargo(root, "clippy", &names, &["--", "-D", "warnings"])?;
    }
    cargo(root, "test", &[], &["--lib", "without_features"])?;
    println!("features: every set of {FEATURES:?} compiles");
    Ok(())
}

fn every_target(root: &Path) -> Result<()> {
    for target in TARGETS {
        cargo(root, "check", &["telemetry"], &["--target", target])
            .with_context(|| format!("`rustup target add {target}` if the target is missing"))?;
    }
    println!("features: compiles for {TARGETS:?}");
    Ok(())
}

fn cargo(root: &Path, command: &str, features: &[&str], rest: &[&str]) -> Result<()> {
    let features = features.join(",");
    println!("cargo {command} with features [{features}] {}", rest.join(" "));
    let status = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .current_dir(root)
        .args([command, "--quiet", "-p", "ottla-client", "--no-default-features"])
        .args(["--features", &features])
        .args(rest)
        .status()
        .context("cargo does not start")?;
    if !status.success() {
        bail!("cargo {command} with features [{features}] failed");
    }
    Ok(())
}
