//! The JUnit 5 extension: put into an empty Maven repository of its own, used by a Maven project.

use super::Place;
use crate::dist::{VERSION, jar};
use crate::interop::toolchain::{need, run_quietly};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::Path;
use std::process::Command;

pub fn check(place: &Place) -> Result<String> {
    need("mvn", &["--version"], "Maven (Debian: maven)")?;
    let home = place.home.join("java");
    fs::create_dir_all(&home)?;
    let package = place.package(&jar::name())?;
    // The coordinates are those of the pom in the jar.
    let mut install = maven(&home);
    install
        .arg("org.apache.maven.plugins:maven-install-plugin:3.1.1:install-file")
        .arg(format!("-Dfile={}", package.display()))
        .current_dir(&home);
    run_quietly(&mut install).context("mvn install-file")?;
    let mut tests = maven(&home);
    tests
        .args(["test", &format!("-Dottla.version={VERSION}")])
        .arg(format!("-Doutput.directory={}", home.join("build").display()))
        .env_remove("OTTLA_BINARY")
        .current_dir(place.source("java"));
    run_quietly(&mut tests).context("mvn test")?;
    let count = passed(&home.join("build/surefire-reports"))?;
    Ok(format!("Maven, JUnit 5, kafka-clients: {count} passed"))
}

/// Maven with a local repository of its own, so that the developer's has no package from here.
fn maven(home: &Path) -> Command {
    let mut command = Command::new("mvn");
    command.args(["-q", "-B"]).arg(format!(
        "-Dmaven.repo.local={}",
        home.join("repository").display()
    ));
    command
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
