//! The npm packages: installed by npm into an empty project, used by node:test and by TypeScript.

use super::Place;
use crate::dist::npm;
use crate::interop::toolchain::{need, output_of, run_quietly};
use anyhow::{Context, Result};
use std::fs;
use std::process::Command;

pub fn check(place: &Place) -> Result<String> {
    need("node", &["--version"], "Node.js 18.18 or newer (Debian: nodejs)")?;
    need("npm", &["--version"], "npm (Debian: npm)")?;
    let project = place.home.join("node");
    fs::create_dir_all(&project)?;
    for file in ["package.json", "broker.test.mjs", "types.ts"] {
        fs::copy(place.source("node").join(file), project.join(file))?;
    }
    let mut install = Command::new("npm");
    install
        .args([
            "install",
            "--no-audit",
            "--no-fund",
            "--no-package-lock",
            "--loglevel=error",
        ])
        .arg(place.package(&npm::platform_name())?)
        .arg(place.package(&npm::main_name())?)
        .current_dir(&project);
    run_quietly(&mut install).context("npm install")?;
    let mut types = Command::new("npx");
    types
        .args([
            "--no-install",
            "tsc",
            "--noEmit",
            "--strict",
            "--target",
            "es2022",
        ])
        .args(["--lib", "es2022,esnext.disposable", "--types", "node"])
        .args(["--module", "nodenext", "types.ts"])
        .current_dir(&project);
    run_quietly(&mut types).context("tsc")?;
    let mut tests = Command::new("node");
    tests
        .args(["--test", "--test-reporter=tap", "broker.test.mjs"])
        .env_remove("OTTLA_BINARY")
        .current_dir(&project);
    let output = output_of(&mut tests).context("node --test")?;
    let passed = output.lines().find_map(|line| line.strip_prefix("# pass "));
    let passed = passed.context("node --test printed no count")?;
    Ok(format!("npm, npx, tsc, node:test, kafkajs: {passed} passed"))
}
