//! Passes the commit to the build, for `--version` and the manifests of reports; without a
//! repository nothing is passed. Also passes the plug-in for Apache Kafka, where it was built.

use std::process::Command;

fn main() {
    // A change of any source file, or of the commit, can change the result.
    for path in ["../../crates", "../../Cargo.lock"] {
        println!("cargo:rerun-if-changed={path}");
    }
    if let Some(head) = git(&["rev-parse", "--git-path", "logs/HEAD"]) {
        println!("cargo:rerun-if-changed={head}");
    }
    let mut version = std::env::var("CARGO_PKG_VERSION").expect("cargo sets it");
    if let Some(commit) = commit() {
        println!("cargo:rustc-env=OTTLA_COMMIT={commit}");
        version = format!("{version} ({commit})");
    }
    println!("cargo:rustc-env=OTTLA_VERSION={version}");
    pass_plugin();
}

/// The packages' program carries the jar; a build without it has an empty file in its place.
fn pass_plugin() {
    const JAR: &str = "OTTLA_KAFKA_PLUGIN";
    println!("cargo:rerun-if-env-changed={JAR}");
    let jar = match std::env::var_os(JAR) {
        None => Vec::new(),
        Some(path) => std::fs::read(&path).expect("OTTLA_KAFKA_PLUGIN names a file"),
    };
    let output = std::env::var_os("OUT_DIR").expect("cargo sets it");
    let copy = std::path::Path::new(&output).join("kafka-plugin.jar");
    std::fs::write(copy, jar).expect("OUT_DIR can be written");
}

/// Returns the abbreviated commit, with `-dirty` appended if tracked files were changed.
fn commit() -> Option<String> {
    let commit = git(&["rev-parse", "--short=12", "HEAD"])?;
    let is_dirty =
        git(&["status", "--porcelain", "--untracked-files=no"]).is_some_and(|text| !text.is_empty());
    let suffix = if is_dirty { "-dirty" } else { "" };
    Some(format!("{commit}{suffix}"))
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
