//! `cargo xtask tidy`: style rules that no compiler checks. Each is a function from the repository
//! to complaints.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use regex::Regex;

use crate::{docs, module_circles};

/// The complete list of allowed dependencies between crates. A new edge is a design decision: draw
/// it first, in docs/decisions.
const EDGES: &[(&str, &[&str])] = &[
    ("wire", &[]),
    ("log", &["wire"]),
    ("core", &["log", "wire"]),
    ("keystore", &[]),
    ("broker", &["core", "keystore", "log", "wire"]),
    ("client", &["keystore", "wire"]),
    ("lab", &["client", "wire"]),
    ("console", &["lab", "wire"]),
    ("ottla", &["broker", "client", "console", "lab"]),
    ("sim", &["client", "core", "log", "wire"]),
];

/// Markers of unfinished work.
const UNFINISHED: &[&str] = &["FIXME", "TODO", "XXX", "todo!(", "unimplemented!(", "#[ignore"];

const FUNCTION_LINES_MAX: usize = 70;

const COMMENT_COLUMNS_MAX: usize = 100;

/// Words of translated English (CONTRIBUTING.md, "English"). Each has a plain replacement: a noun
/// that the code knows, "this many", "again", "without effect".
const BANNED: &str = r"(?i)\b(so many|so often|for so long|in vain|for want of|anew|whoever|whomever|whom|nobody|somebody|himself|his|him|he|it is looked|thereof)\b";

/// A finding; `Warning`s are printed and do not fail.
#[derive(Debug)]
pub enum Complaint {
    Error(String),
    Warning(String),
}

pub fn run(root: &Path) -> Result<()> {
    let complaints = check(root)?;
    let mut errors = 0;
    for complaint in &complaints {
        match complaint {
            Complaint::Error(text) => {
                errors += 1;
                println!("error: {text}");
            }
            Complaint::Warning(text) => println!("warning: {text}"),
        }
    }
    if errors > 0 {
        bail!("{errors} violations of the style rules");
    }
    println!("tidy: no violations");
    Ok(())
}

/// The root of this repository.
pub fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask is in the repository")
}

pub fn check(root: &Path) -> Result<Vec<Complaint>> {
    let sources = sources(root)?;
    let mut complaints = edges(root)?;
    complaints.extend(trail(&sources, "produce"));
    complaints.extend(trail(&sources, "fetch"));
    complaints.extend(unfinished(&sources));
    complaints.extend(heads(&sources));
    complaints.extend(folders(&sources));
    complaints.extend(long_functions(&sources));
    complaints.extend(comments(&sources));
    complaints.extend(ungranted(&sources));
    complaints.extend(pages(root)?);
    complaints.extend(module_circles::find(&sources).into_iter().map(Complaint::Error));
    complaints.extend(machine_paths(root)?);
    complaints.extend(
        docs::stale_pages()
            .into_iter()
            .map(|page| Complaint::Error(format!("{page} is stale: run cargo xtask docs"))),
    );
    Ok(complaints)
}

pub struct Source {
    /// Relative to the repository.
    pub path: String,
    pub text: String,
}

impl Source {
    /// Written by `cargo xtask codegen`.
    fn is_generated(&self) -> bool {
        let text = self.text.trim_start_matches(['/', '!', ' ']);
        text.starts_with("Generated")
    }
}

fn sources(root: &Path) -> Result<Vec<Source>> {
    let mut found = Vec::new();
    for folder in ["crates", "xtask"] {
        collect(root, &root.join(folder), "rs", &mut found)?;
    }
    Ok(found)
}

fn collect(root: &Path, folder: &Path, extension: &str, found: &mut Vec<Source>) -> Result<()> {
    let mut entries: Vec<PathBuf> = fs::read_dir(folder)
        .with_context(|| format!("cannot list {}", folder.display()))?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<std::io::Result<_>>()?;
    entries.sort();
    for path in entries {
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if path.is_dir() {
            if !matches!(name.as_str(), "target" | ".git" | "node_modules" | "venv") {
                collect(root, &path, extension, found)?;
            }
        } else if path.extension().is_some_and(|found| found == extension) {
            let text =
                fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
            let relative = path
                .strip_prefix(root)
                .unwrap_or(&path)
                .to_string_lossy()
                .into_owned();
            found.push(Source { path: relative, text });
        }
    }
    Ok(())
}

fn edges(root: &Path) -> Result<Vec<Complaint>> {
    let allowed: BTreeMap<&str, &[&str]> = EDGES.iter().copied().collect();
    let mut complaints = Vec::new();
    for (name, may_use) in &allowed {
        let manifest = root.join("crates").join(name).join("Cargo.toml");
        let text =
            fs::read_to_string(&manifest).with_context(|| format!("cannot read {}", manifest.display()))?;
        for used in ottla_dependencies(&text) {
            if !may_use.contains(&used.as_str()) {
                complaints.push(Complaint::Error(format!(
                    "crate {name} depends on {used}; allowed: {may_use:?} (a new edge is a design decision)"
                )));
            }
        }
    }
    for entry in fs::read_dir(root.join("crates"))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if !allowed.contains_key(name.as_str()) {
            complaints.push(Complaint::Error(format!(
                "crate {name} is not in the picture (xtask/src/tidy.rs, EDGES)"
            )));
        }
    }
    Ok(complaints)
}

/// The `ottla-*` names in a manifest's `[dependencies]`; development dependencies are free.
fn ottla_dependencies(manifest: &str) -> Vec<String> {
    let mut in_dependencies = false;
    let mut names = Vec::new();
    for line in manifest.lines() {
        if line.starts_with('[') {
            in_dependencies = line.trim() == "[dependencies]" || line.starts_with("[target");
        } else if in_dependencies && let Some(rest) = line.strip_prefix("ottla-") {
            names.push(rest.split(['.', ' ', '=']).next().unwrap_or_default().to_string());
        }
    }
    names
}

/// Checks a trail: every file on a request's path begins with `//! Life of a <what>, 2 of 6. …`,
/// and the numbers must be complete.
fn trail(sources: &[Source], what: &str) -> Vec<Complaint> {
    let marker = format!("//! Life of a {what}, ");
    let mut stops: BTreeMap<usize, &str> = BTreeMap::new();
    let mut lengths = Vec::new();
    for source in sources {
        for line in source.text.lines().take_while(|line| line.starts_with("//!")) {
            let Some(rest) = line.strip_prefix(&marker) else {
                continue;
            };
            let numbers = rest.split('.').next().unwrap_or_default();
            let Some((at, of)) = numbers.split_once(" of ") else {
                continue;
            };
            if let (Ok(at), Ok(of)) = (at.parse(), of.parse::<usize>()) {
                stops.insert(at, &source.path);
                lengths.push(of);
            }
        }
    }
    let expected = lengths.first().copied().unwrap_or(0);
    let complete = expected > 0
        && lengths.iter().all(|length| *length == expected)
        && stops.keys().copied().eq(1..=expected)
        && lengths.len() == expected;
    if complete {
        return Vec::new();
    }
    vec![Complaint::Error(format!(
        "the trail «Life of a {what}» is not complete: {stops:?}"
    ))]
}

fn unfinished(sources: &[Source]) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for source in sources.iter().filter(|source| source.path != "xtask/src/tidy.rs") {
        for (number, line) in source.text.lines().enumerate() {
            if let Some(word) = UNFINISHED.iter().find(|word| line.contains(**word)) {
                complaints.push(Complaint::Error(format!(
                    "{}:{}: {word}",
                    source.path,
                    number + 1
                )));
            }
        }
    }
    complaints
}

fn heads(sources: &[Source]) -> Vec<Complaint> {
    sources
        .iter()
        .filter(|source| !source.text.starts_with("//"))
        .map(|source| {
            Complaint::Error(format!(
                "{} has no comment on its purpose in the first line",
                source.path
            ))
        })
        .collect()
}

/// A folder's own file is its `mod.rs`.
fn folders(sources: &[Source]) -> Vec<Complaint> {
    let has_folder = |path: &str| {
        let folder = format!("{}/", path.trim_end_matches(".rs"));
        sources.iter().any(|source| source.path.starts_with(&folder))
    };
    sources
        .iter()
        .map(|source| source.path.as_str())
        .filter(|path| path.contains("/src/") && has_folder(path))
        .map(|path| Complaint::Error(format!("{path} lies beside its folder: name it mod.rs in there")))
        .collect()
}

/// Handlers get logs from `Node`, which asks for the grant of a check
/// (`core/src/access/granted.rs`).
fn ungranted(sources: &[Source]) -> Vec<Complaint> {
    const HANDLERS: &str = "crates/core/src/handlers/";
    // Dispatch asks for its operation on the cluster.
    const CHECKED_BEFORE: &str = "alter_replica_log_dirs.rs";
    let handlers = sources.iter().filter(|source| {
        let name = source.path.strip_prefix(HANDLERS);
        name.is_some_and(|name| name != CHECKED_BEFORE && !name.ends_with("_tests.rs"))
    });
    let ways = ["storage.partition(", "storage.partition_by_name("];
    handlers
        .filter(|source| ways.iter().any(|way| source.text.contains(way)))
        .map(|source| {
            let path = &source.path;
            Complaint::Error(format!(
                "{path} takes a log from the storage: Node::partition asks for a grant"
            ))
        })
        .collect()
}

fn long_functions(sources: &[Source]) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for source in sources.iter().filter(|source| !source.is_generated()) {
        let mut open: Option<(usize, &str, String)> = None;
        for (number, line) in source.text.lines().enumerate() {
            let indent = line.len() - line.trim_start().len();
            if let Some((start, name, closing)) = &open {
                if line == closing {
                    if number - start > FUNCTION_LINES_MAX {
                        complaints.push(Complaint::Warning(format!(
                            "{}:{}: {} has {} lines",
                            source.path,
                            start + 1,
                            name,
                            number - start
                        )));
                    }
                    open = None;
                }
            } else if line.contains("fn ") && line.ends_with('{') {
                let name = line
                    .split("fn ")
                    .nth(1)
                    .and_then(|rest| rest.split(['(', '<']).next());
                open = Some((number, name.unwrap_or("?"), format!("{}}}", " ".repeat(indent))));
            }
        }
    }
    complaints
}

/// Width and words of comments. The words of generated files are Apache Kafka's.
fn comments(sources: &[Source]) -> Vec<Complaint> {
    let banned = Regex::new(BANNED).expect("the pattern is valid");
    let mut complaints = Vec::new();
    for source in sources
        .iter()
        .filter(|source| !source.is_generated() && source.path != "xtask/src/tidy.rs")
    {
        for (number, line) in source.text.lines().enumerate() {
            let Some(comment) = comment_of(line) else {
                continue;
            };
            let place = format!("{}:{}", source.path, number + 1);
            let is_whole = line.trim_start().starts_with("//");
            let columns = line.chars().count();
            // A row of a table has no place to break.
            let is_text = comment.contains(' ') && !comment.starts_with('|');
            if is_whole && is_text && columns > COMMENT_COLUMNS_MAX {
                complaints.push(Complaint::Error(format!(
                    "{place}: a comment of {columns} columns; at most {COMMENT_COLUMNS_MAX}"
                )));
            }
            if let Some(word) = banned.find(comment) {
                complaints.push(Complaint::Error(format!("{place}: «{}»", word.as_str())));
            }
        }
    }
    complaints
}

/// Returns the text after the slashes.
fn comment_of(line: &str) -> Option<&str> {
    let start = match line.trim_start().starts_with("//") {
        true => line.find("//")?,
        false => line.find(" // ")?,
    };
    Some(line[start..].trim_start_matches(['/', '!', ' ']))
}

/// Words of pages, and links between them.
fn pages(root: &Path) -> Result<Vec<Complaint>> {
    let banned = Regex::new(BANNED).expect("the pattern is valid");
    let link = Regex::new(r"\]\(([^)#\s:]+)(#[^)]*)?\)").expect("the pattern is valid");
    let mut found = Vec::new();
    collect(root, root, "md", &mut found)?;
    let mut complaints = Vec::new();
    for page in &found {
        let folder = root.join(&page.path);
        let folder = folder.parent().unwrap_or(root);
        for (number, line) in page.text.lines().enumerate() {
            let place = format!("{}:{}", page.path, number + 1);
            // CONTRIBUTING shows the words that it bans.
            if let Some(word) = banned.find(line)
                && page.path != "CONTRIBUTING.md"
            {
                complaints.push(Complaint::Error(format!("{place}: «{}»", word.as_str())));
            }
            for target in link.captures_iter(line) {
                if !folder.join(&target[1]).exists() {
                    complaints.push(Complaint::Error(format!("{place}: no such page: {}", &target[1])));
                }
            }
        }
    }
    Ok(complaints)
}

/// Finds paths of a developer's machine, which must not be in the repository.
fn machine_paths(root: &Path) -> Result<Vec<Complaint>> {
    let mut found = Vec::new();
    for extension in [
        "rs", "md", "toml", "sh", "py", "go", "java", "xml", "yml", "js", "mjs", "ts",
    ] {
        for folder in ["crates", "xtask", "docs", "tests", "fuzz", "packaging"] {
            let folder = root.join(folder);
            if folder.is_dir() {
                collect(root, &folder, extension, &mut found)?;
            }
        }
    }
    let needles = [
        ["/wo", "rk/"].concat(),
        ["/ro", "ot/"].concat(),
        ["/ho", "me/"].concat(),
    ];
    let mut complaints = Vec::new();
    for source in &found {
        for (number, line) in source.text.lines().enumerate() {
            if let Some(needle) = needles.iter().find(|needle| line.contains(needle.as_str())) {
                complaints.push(Complaint::Error(format!(
                    "{}:{}: {needle}…",
                    source.path,
                    number + 1
                )));
            }
        }
    }
    Ok(complaints)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, text: &str) -> Source {
        Source {
            path: path.into(),
            text: text.into(),
        }
    }

    #[test]
    fn the_repository_keeps_its_own_rules() {
        let complaints = check(repository()).unwrap();
        let errors: Vec<_> = complaints
            .iter()
            .filter(|found| matches!(found, Complaint::Error(_)))
            .collect();
        assert!(errors.is_empty(), "{errors:#?}");
    }

    #[test]
    fn a_trail_with_a_gap_is_found() {
        let whole = [
            source("a", "//! Life of a walk, 1 of 2. x"),
            source("b", "//! Life of a walk, 2 of 2. x"),
        ];
        assert!(trail(&whole, "walk").is_empty());
        assert_eq!(trail(&whole[..1], "walk").len(), 1);
        assert_eq!(trail(&[], "walk").len(), 1);
    }

    #[test]
    fn a_module_beside_its_folder_is_found() {
        let beside = [
            source("crates/x/src/a.rs", "// a"),
            source("crates/x/src/a/b.rs", "// b"),
        ];
        assert_eq!(folders(&beside).len(), 1);
        let inside = [
            source("crates/x/src/a/mod.rs", "// a"),
            source("crates/x/src/a/b.rs", "// b"),
            source("crates/x/src/ab.rs", "// ab"),
            source("crates/x/tests/a.rs", "// a"),
            source("crates/x/tests/a/b.rs", "// b"),
        ];
        assert!(folders(&inside).is_empty());
    }

    #[test]
    fn a_handler_that_goes_past_the_grant_is_found() {
        let handler = |name: &str, text| source(&format!("crates/core/src/handlers/{name}"), text);
        let past = "node.storage.partition_by_name(topic, index)";
        assert_eq!(ungranted(&[handler("fetch.rs", past)]).len(), 1);
        let allowed = [
            handler("fetch.rs", "node.partition_by_name(granted, index)"),
            handler("fetch_tests.rs", past),
            handler("alter_replica_log_dirs.rs", past),
            source("crates/broker/src/admin/lag.rs", past),
        ];
        assert!(ungranted(&allowed).is_empty());
    }

    #[test]
    fn edges_are_read_from_dependencies_only() {
        let manifest =
            "[dependencies]\nottla-wire.workspace = true\n[dev-dependencies]\nottla-core = \"1\"\n";
        assert_eq!(ottla_dependencies(manifest), ["wire"]);
    }

    #[test]
    fn a_wide_comment_and_a_banned_word_are_found() {
        let wide = format!("// {}", "word ".repeat(20));
        assert_eq!(comments(&[source("a", &wide)]).len(), 1);
        assert_eq!(
            comments(&[source("a", "let x = 1; // for want of a name")]).len(),
            1
        );
        assert!(comments(&[source("a", "// the history of his_name")]).is_empty());
        assert!(comments(&[source("a", "let x = \"nobody\";")]).is_empty());
    }

    #[test]
    fn unfinished_work_is_found() {
        assert_eq!(unfinished(&[source("a", "// TODO later")]).len(), 1);
    }
}
