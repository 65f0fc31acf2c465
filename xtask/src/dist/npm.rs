//! Two npm packages: `ottla`, in JavaScript, and `@ottla/linux-x64`, the binary, which the first
//! names as optional, so that npm installs it where it runs and nowhere else.

use super::archive::{self, Entry, FILE, PROGRAM};
use super::{Release, VERSION};
use anyhow::{Context, Result};
use std::path::Path;

pub fn main_name() -> String {
    format!("ottla-{VERSION}.tgz")
}

pub fn platform_name() -> String {
    format!("ottla-linux-x64-{VERSION}.tgz")
}

pub fn build_main(release: &Release) -> Result<Vec<u8>> {
    let source = release.packaging("node/ottla");
    let mut entries = archive::folder(&source, "")?;
    entries.retain(|entry| entry.path != "package.json");
    entries.push(Entry::file("package.json", FILE, manifest(&source)?));
    entries.push(Entry::file("LICENSE", FILE, release.license.clone()));
    pack(release, entries)
}

pub fn build_platform(release: &Release) -> Result<Vec<u8>> {
    let source = release.packaging("node/linux-x64");
    let readme = std::fs::read(source.join("README.md"))?;
    let entries = vec![
        Entry::file("package.json", FILE, manifest(&source)?),
        Entry::file("README.md", FILE, readme),
        Entry::file("LICENSE", FILE, release.license.clone()),
        Entry::file("THIRD-PARTY.txt", FILE, release.notices.clone()),
        Entry::file("bin/ottla", PROGRAM, release.binary.clone()),
    ];
    pack(release, entries)
}

/// Reads package.json with this release's version in place of `0.0.0`.
fn manifest(source: &Path) -> Result<String> {
    let path = source.join("package.json");
    let text = std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    Ok(text.replace("\"0.0.0\"", &format!("\"{VERSION}\"")))
}

/// What `npm pack` writes: a tar whose paths begin with `package/`.
fn pack(release: &Release, entries: Vec<Entry>) -> Result<Vec<u8>> {
    archive::gzip(&archive::tar(entries, "package/", release.commit_time_s)?)
}
