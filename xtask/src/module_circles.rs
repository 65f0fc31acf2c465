//! Modules of one crate that import each other in a circle: none of them can then be read, tested
//! or moved alone.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use regex::Regex;

/// Crates without a circle; the others have some between parts of one thing.
const WITHOUT_CIRCLES: &[&str] = &["wire", "core", "broker", "lab", "ottla"];

/// What each module imports: names below `crate::`.
type Graph = BTreeMap<String, BTreeSet<String>>;

/// Returns one circle of each crate that must not have any.
pub fn find(root: &Path) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for name in WITHOUT_CIRCLES {
        let source = root.join("crates").join(name).join("src");
        if let Some(circle) = circle_in(&graph_of(&source)?) {
            found.push(format!(
                "crate {name}: modules in a circle: {}",
                circle.join(" -> ")
            ));
        }
    }
    Ok(found)
}

fn graph_of(source: &Path) -> Result<Graph> {
    let mut texts: BTreeMap<String, String> = BTreeMap::new();
    for entry in fs::read_dir(source).with_context(|| format!("cannot list {}", source.display()))? {
        let path = entry?.path();
        let module = path
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if !matches!(module.as_str(), "lib" | "main") {
            read_into(&path, texts.entry(module).or_default())?;
        }
    }
    let modules: BTreeSet<&String> = texts.keys().collect();
    let imports = |(module, text): (&String, &String)| {
        let named = imports_of(text).into_iter();
        let others = named.filter(|name| name != module && modules.contains(name));
        (module.clone(), others.collect())
    };
    Ok(texts.iter().map(imports).collect())
}

/// Appends the code of a file, or of all files of a folder, without tests.
fn read_into(path: &Path, text: &mut String) -> Result<()> {
    let name = path
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    if path.is_dir() {
        for entry in fs::read_dir(path)? {
            read_into(&entry?.path(), text)?;
        }
    } else if name.ends_with(".rs") && !name.contains("tests") && name != "simulation.rs" {
        let code = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let tests = code.find("#[cfg(test)]\nmod tests {").unwrap_or(code.len());
        let lines = code[..tests]
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"));
        lines.for_each(|line| {
            text.push_str(line);
            text.push('\n');
        });
    }
    Ok(())
}

/// Names that follow `crate::`, alone or in braces.
fn imports_of(text: &str) -> BTreeSet<String> {
    let single = Regex::new(r"\bcrate::(\w+)").expect("the pattern is valid");
    let group = Regex::new(r"\buse crate::\{([^;]*)\};").expect("the pattern is valid");
    let inner = Regex::new(r"(?:^|,)\s*(\w+)").expect("the pattern is valid");
    let mut names: BTreeSet<String> = single
        .captures_iter(text)
        .map(|found| found[1].to_owned())
        .collect();
    for found in group.captures_iter(text) {
        names.extend(inner.captures_iter(&found[1]).map(|name| name[1].to_owned()));
    }
    names
}

fn circle_in(graph: &Graph) -> Option<Vec<String>> {
    let mut done = BTreeSet::new();
    graph
        .keys()
        .find_map(|module| walk(graph, module, &mut Vec::new(), &mut done))
}

fn walk<'a>(
    graph: &'a Graph,
    module: &'a str,
    path: &mut Vec<&'a str>,
    done: &mut BTreeSet<&'a str>,
) -> Option<Vec<String>> {
    if let Some(start) = path.iter().position(|above| *above == module) {
        let mut circle: Vec<String> = path[start..].iter().map(|name| (*name).to_owned()).collect();
        circle.push(module.to_owned());
        return Some(circle);
    }
    if !done.contains(module) {
        path.push(module);
        for imported in &graph[module] {
            if let Some(circle) = walk(graph, imported, path, done) {
                return Some(circle);
            }
        }
        path.pop();
        done.insert(module);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(edges: &[(&str, &[&str])]) -> Graph {
        let names = |list: &[&str]| list.iter().map(|name| (*name).to_owned()).collect();
        edges
            .iter()
            .map(|(module, imports)| ((*module).to_owned(), names(imports)))
            .collect()
    }

    #[test]
    fn a_circle_is_named_from_its_first_module_to_the_same() {
        let circle = circle_in(&graph(&[("a", &["b"]), ("b", &["c"]), ("c", &["b"]), ("d", &[])]));
        assert_eq!(circle.unwrap(), ["b", "c", "b"]);
        assert_eq!(
            circle_in(&graph(&[("a", &["b", "c"]), ("b", &["c"]), ("c", &[])])),
            None
        );
    }

    #[test]
    fn imports_are_found_alone_and_in_braces() {
        let found = imports_of("use crate::{node::Node, time};\nlet x = crate::quota::of();\n");
        assert_eq!(found.into_iter().collect::<Vec<_>>(), ["node", "quota", "time"]);
    }
}
