//! Passes the commit to the build, for `--version` and the manifests of reports; without a
//! repository nothing is passed.

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
