//! The wheel: installed by pip into a new environment, used by pytest.

use super::Place;
use crate::dist::wheel;
use crate::interop::toolchain::{need, output_of, run_quietly};
use anyhow::{Context, Result};
use std::process::Command;

pub fn check(place: &Place) -> Result<String> {
    need(
        "python3",
        &["--version"],
        "Python 3.10 or newer (Debian: python3, python3-venv)",
    )?;
    let environment = place.home.join("python");
    run_quietly(Command::new("python3").args(["-m", "venv"]).arg(&environment))
        .context("python3 -m venv failed (Debian: python3-venv)")?;
    let programs = environment.join("bin");
    let source = place.source("python");
    let mut install = Command::new(programs.join("python"));
    install
        .args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--requirement",
        ])
        .arg(source.join("requirements.txt"))
        .arg(place.package(&wheel::name())?);
    run_quietly(&mut install).context("pip install")?;
    // What a developer's shell names would be used in place of what the wheel installed.
    let mut pytest = Command::new(programs.join("python"));
    pytest
        .args(["-m", "pytest", "-q", "-p", "no:cacheprovider"])
        .arg(&source)
        .env_remove("OTTLA_BINARY")
        .env("PATH", path_with(&programs)?)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .current_dir(&place.home);
    let output = output_of(&mut pytest).context("pytest")?;
    let summary = output.lines().last().unwrap_or_default().trim_matches(['=', ' ']);
    Ok(format!("pip, pytest, librdkafka: {summary}"))
}

/// PATH with `directory` first.
fn path_with(directory: &std::path::Path) -> Result<std::ffi::OsString> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let paths = std::iter::once(directory.to_owned()).chain(std::env::split_paths(&path));
    std::env::join_paths(paths).context("PATH")
}
