//! THIRD-PARTY.txt: the licences of the libraries that are linked into the binary, which ask to be
//! passed on with it.

use crate::interop::toolchain;
use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Library>,
    resolve: Resolve,
}

#[derive(Deserialize)]
struct Library {
    id: String,
    name: String,
    version: String,
    license: Option<String>,
    license_file: Option<String>,
    manifest_path: String,
    /// None for this repository's own crates.
    source: Option<String>,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    deps: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    pkg: String,
    dep_kinds: Vec<Kind>,
}

#[derive(Deserialize)]
struct Kind {
    /// None: linked; otherwise `dev` or `build`.
    kind: Option<String>,
}

const HEAD: &str =
    "Ottla's program contains the libraries below, each under its own licence, and the GNU C Library
(LGPL-2.1-or-later), to which it is linked statically; Ottla's sources and `cargo xtask dist` link it
to another version of that library.
";

/// Returns the text: a list of libraries, then each licence text once.
pub fn collect() -> Result<String> {
    let metadata = metadata()?;
    let linked = linked(&metadata)?;
    let mut list = String::new();
    // The same text is shared by many libraries.
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for library in metadata
        .packages
        .iter()
        .filter(|library| linked.contains(&library.id))
    {
        let Library {
            name,
            version,
            license,
            ..
        } = library;
        let license = license.as_deref().unwrap_or("see below");
        list.push_str(&format!("{name} {version}: {license}\n"));
        for text in license_texts(library)? {
            texts.entry(text).or_default().push(format!("{name} {version}"));
        }
    }
    let rule = "-".repeat(80);
    let texts = texts
        .iter()
        .map(|(text, users)| format!("\n{rule}\n{}\n{rule}\n\n{text}\n", users.join(", ")));
    Ok(format!("{HEAD}\n{list}{}", texts.collect::<String>()))
}

fn metadata() -> Result<Metadata> {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command
        .args(["metadata", "--format-version=1", "--locked"])
        .args(["--filter-platform", super::static_binary::TARGET])
        .current_dir(toolchain::root());
    let text = toolchain::output_of(&mut command).context("cargo metadata")?;
    serde_json::from_str(&text).context("what cargo metadata printed")
}

/// The libraries of others that the program is linked with.
fn linked(metadata: &Metadata) -> Result<BTreeSet<String>> {
    let edges: BTreeMap<&str, &Node> = metadata
        .resolve
        .nodes
        .iter()
        .map(|node| (node.id.as_str(), node))
        .collect();
    let program = metadata.packages.iter().find(|library| library.name == "ottla");
    let mut open = vec![program.context("no package is named ottla")?.id.as_str()];
    let mut reached = BTreeSet::new();
    while let Some(id) = open.pop() {
        if !reached.insert(id.to_owned()) {
            continue;
        }
        let node = edges
            .get(id)
            .with_context(|| format!("cargo metadata has no node {id}"))?;
        let used = node.deps.iter().filter(|used| used.is_linked());
        open.extend(used.map(|used| used.pkg.as_str()));
    }
    let own = metadata
        .packages
        .iter()
        .filter(|library| library.source.is_none());
    own.for_each(|library| {
        reached.remove(&library.id);
    });
    ensure!(!reached.is_empty(), "the program is linked with no library");
    Ok(reached)
}

impl Dependency {
    fn is_linked(&self) -> bool {
        self.dep_kinds.iter().any(|kind| kind.kind.is_none())
    }
}

/// The licence files in a library's sources.
fn license_texts(library: &Library) -> Result<Vec<String>> {
    let folder = Path::new(&library.manifest_path)
        .parent()
        .unwrap_or(Path::new("/"));
    let mut texts = Vec::new();
    let mut names: Vec<String> = fs::read_dir(folder)
        .with_context(|| format!("listing {}", folder.display()))?
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| is_license(name) || library.license_file.as_ref() == Some(name))
        .collect();
    names.sort();
    for name in names {
        let path = folder.join(&name);
        if path.is_file() {
            let bytes = fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
            texts.push(String::from_utf8_lossy(&bytes).trim_end().to_owned());
        }
    }
    Ok(texts)
}

fn is_license(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    [
        "LICENSE",
        "LICENCE",
        "COPYING",
        "NOTICE",
        "COPYRIGHT",
        "UNLICENSE",
    ]
    .iter()
    .any(|start| name.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::collect;

    /// Of a library that is linked, of one that only builds, and of one that only tests.
    #[test]
    fn what_is_linked_is_named_and_nothing_else() {
        let text = collect().unwrap();
        assert!(text.contains("\nrustix 1."), "{text}");
        assert!(
            text.contains("Permission is hereby granted, free of charge"),
            "{text}"
        );
        assert!(!text.contains("\ncc 1."), "{text}");
        assert!(!text.contains("\nvt100 0."), "{text}");
        assert!(!text.contains("\nottla-broker"), "{text}");
    }
}
