//! The JUnit 5 extension: put into an empty Maven repository of its own, used by a Maven project.

use super::Place;
use crate::dist::{VERSION, jar};
use crate::interop::toolchain::{need, output_of, run_quietly};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::Path;
use std::process::Command;

pub fn check(place: &Place) -> Result<String> {
    need("mvn", &["--version"], "Maven (Debian: maven)")?;
    let home = place.home.join("java");
    let package = place.package(&jar::name())?;
    install(&package, &home)?;
    let project = home.join("project");
    copy(&place.source("java"), &project)?;
    let reports = home.join("build/surefire-reports");
    let mut tests = Command::new("mvn");
    tests
        .args(["-q", "-B", "test", &format!("-Dottla.version={VERSION}")])
        .arg(format!("-Doutput.directory={}", home.join("build").display()))
        .env_remove("OTTLA_BINARY")
        .current_dir(&project);
    output_of(&mut tests).context("mvn test")?;
    let count = passed(&reports)?;
    Ok(format!("Maven, JUnit 5, kafka-clients: {count} passed"))
}

/// Installs the jar into the local repository, where a project finds it as one from a registry.
fn install(package: &Path, home: &Path) -> Result<()> {
    fs::create_dir_all(home)?;
    let mut command = Command::new("mvn");
    command
        .args([
            "-q",
            "-B",
            "org.apache.maven.plugins:maven-install-plugin:3.1.1:install-file",
        ])
        .arg(format!("-Dfile={}", package.display()))
        .args([
            "-DgroupId=io.github.ottla",
            "-DartifactId=ottla-junit",
            "-Dpackaging=jar",
        ])
        .arg(format!("-Dversion={VERSION}"))
        .current_dir(home);
    run_quietly(&mut command).context("mvn install-file")
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from).with_context(|| format!("listing {}", from.display()))? {
        let path = entry?.path();
        let name = path.file_name().context("an entry has a name")?;
        if path.is_dir() {
            copy(&path, &to.join(name))?;
        } else {
            fs::copy(&path, to.join(name))?;
        }
    }
    Ok(())
}

/// The number of tests in Surefire's reports, which fails when there is none.
fn passed(reports: &Path) -> Result<usize> {
    let mut count = 0;
    for entry in fs::read_dir(reports).with_context(|| format!("listing {}", reports.display()))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "xml") {
            count += fs::read_to_string(&path)?.matches("<testcase ").count();
        }
    }
    ensure!(count > 0, "no test ran");
    Ok(count)
}
