//! The release archive: one folder with the binary, README and licences.

use super::archive::{self, Entry, FILE, PROGRAM};
use super::{Release, VERSION, static_binary};
use crate::interop::toolchain;
use anyhow::Result;

/// The folder in the archive; its file has the same name.
pub fn folder() -> String {
    format!("ottla-{VERSION}-{}", static_binary::TARGET)
}

pub fn name() -> String {
    format!("{}.tar.gz", folder())
}

pub fn build(release: &Release) -> Result<Vec<u8>> {
    let readme = std::fs::read(toolchain::root().join("README.md"))?;
    let entries = vec![
        Entry::file("LICENSE", FILE, release.license.clone()),
        Entry::file("README.md", FILE, readme),
        Entry::file("THIRD-PARTY.txt", FILE, release.notices.clone()),
        Entry::file("ottla", PROGRAM, release.binary.clone()),
    ];
    let prefix = format!("{}/", folder());
    archive::gzip(&archive::tar(entries, &prefix, release.commit_time_s)?)
}
