//! The jar of the JUnit 5 extension, built by Maven, with the binary inside.

use super::archive::{self, Content};
use super::{Release, VERSION};
use crate::interop::toolchain::{self, run_quietly};
use anyhow::{Context, Result};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
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
    let project = write_project(release)?;
    // The permissions of compiled classes go into the jar.
    let mut command = Command::new("sh");
    command
        .args(["-c", "umask 022 && exec \"$@\"", "sh"])
        .args(["mvn", "-q", "-B", "package"])
        .arg(format!(
            "-Dproject.build.outputTimestamp={}",
            release.commit_time_s
        ))
        .current_dir(&project);
    run_quietly(&mut command).context("maven could not build packaging/java")?;
    let jar = project.join("target").join(name());
    fs::read(&jar).with_context(|| format!("reading {}", jar.display()))
}

/// Writes `packaging/java` with this release's version in place of `0.0.0`, and the program and the
/// licences among its resources.
fn write_project(release: &Release) -> Result<PathBuf> {
    let project = toolchain::cargo_target().join("dist-java");
    if project.exists() {
        fs::remove_dir_all(&project).with_context(|| format!("removing {}", project.display()))?;
    }
    for entry in archive::folder(&release.packaging("java"), "")? {
        if let Content::File(mut bytes) = entry.content {
            if entry.path == "pom.xml" {
                let text = String::from_utf8(bytes)?;
                bytes = text.replace(">0.0.0<", &format!(">{VERSION}<")).into_bytes();
            }
            write(&project.join(entry.path), &bytes)?;
        }
    }
    let resources = project.join("src/main/resources");
    let program = "io/github/ottla/junit/ottla-linux-x86_64";
    write(&resources.join(program), &release.binary)?;
    write(&resources.join("META-INF/LICENSE"), &release.license)?;
    write(&resources.join("META-INF/THIRD-PARTY.txt"), &release.notices)?;
    Ok(project)
}

/// Writes a file that everyone can read: the umask of the machine that builds would be in the jar
/// otherwise.
fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let folder = path.parent().context("a file lies in a folder")?;
    fs::create_dir_all(folder)?;
    fs::write(path, bytes).with_context(|| format!("writing {}", path.display()))?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o644))?;
    Ok(())
}
