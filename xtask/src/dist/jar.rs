//! The jar of the JUnit 5 extension, built by Maven, with the binary inside.

use super::{Release, VERSION};
use crate::interop::toolchain::{self, run_quietly};
use anyhow::{Context, Result};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

pub fn name() -> String {
    format!("ottla-junit-{VERSION}.jar")
}

pub fn build(release: &Release) -> Result<Vec<u8>> {
    toolchain::need(
        "javac",
        &["-version"],
        "a Java compiler, 17 or newer (Debian: openjdk-17-jdk-headless)",
    )?;
    toolchain::need("mvn", &["--version"], "Maven (Debian: maven)")?;
    let home = home();
    let resources = home.join("resources/io/github/ottla/junit");
    fs::create_dir_all(&resources)?;
    fs::write(resources.join("ottla-linux-x86_64"), &release.binary)?;
    let license = home.join("resources/META-INF");
    fs::create_dir_all(&license)?;
    fs::write(license.join("LICENSE"), &release.license)?;
    fs::write(license.join("THIRD-PARTY.txt"), &release.notices)?;
    make_readable(&home.join("resources"))?;
    let mut command = Command::new("mvn");
    command
        .args(["-q", "-B", "package", &format!("-Drevision={VERSION}")])
        .arg(format!("-Doutput.directory={}", home.join("build").display()))
        .arg(format!(
            "-Dresource.directory={}",
            home.join("resources").display()
        ))
        // An earlier time than 1980 has no place in a zip, and Maven refuses it.
        .arg(format!(
            "-Dproject.build.outputTimestamp={}",
            release.commit_time_s
        ))
        .current_dir(release.packaging("java"));
    run_quietly(&mut command).context("maven could not build packaging/java")?;
    let jar = home.join("build").join(name());
    fs::read(&jar).with_context(|| format!("reading {}", jar.display()))
}

/// Where Maven builds.
fn home() -> PathBuf {
    toolchain::cargo_target().join("dist-java")
}

/// The umask of the machine that builds would be in the jar otherwise.
fn make_readable(folder: &std::path::Path) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let is_folder = path.is_dir();
        let mode = if is_folder { 0o755 } else { 0o644 };
        fs::set_permissions(&path, fs::Permissions::from_mode(mode))?;
        if is_folder {
            make_readable(&path)?;
        }
    }
    Ok(())
}
