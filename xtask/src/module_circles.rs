//! Modules of one crate that import each other in a circle: none of them can then be read, tested
//! or moved alone.

use std::collections::{BTreeMap, BTreeSet};

use regex::Regex;

use crate::tidy::Source;

/// Crates without a circle; the others have some between parts of one thing.
const WITHOUT_CIRCLES: &[&str] = &["wire", "core", "broker", "lab", "ottla"];

/// What each module imports: names below `crate::`.
type Graph = BTreeMap<String, BTreeSet<String>>;

/// Returns one circle of each crate that must not have any.
pub fn find(sources: &[Source]) -> Vec<String> {
    let circle_of = |name: &&str| {
        let circle = circle_in(&graph_of(sources, &format!("crates/{name}/src/")))?;
        Some(format!(
            "crate {name}: modules in a circle: {}",
            circle.join(" -> ")
        ))
    };
    WITHOUT_CIRCLES.iter().filter_map(circle_of).collect()
}

fn graph_of(sources: &[Source], folder: &str) -> Graph {
    let mut texts: BTreeMap<&str, String> = BTreeMap::new();
    for source in sources {
        let Some(path) = source.path.strip_prefix(folder) else {
            continue;
        };
        let module = path.split(['/', '.']).next().unwrap_or(path);
        let name = path.rsplit('/').next().unwrap_or(path);
        if !matches!(module, "lib" | "main") && !name.contains("tests") && name != "simulation.rs" {
            push_code(&source.text, texts.entry(module).or_default());
        }
    }
    let imports = |(module, text): (&&str, &String)| {
        let named = imports_of(text).into_iter();
        let others = named.filter(|name| name != module && texts.contains_key(name.as_str()));
        ((*module).to_owned(), others.collect())
    };
    texts.iter().map(imports).collect()
}

/// Appends the code of a file without its comments and tests.
fn push_code(code: &str, text: &mut String) {
    let tests = code.find("#[cfg(test)]\nmod tests {").unwrap_or(code.len());
    let lines = code[..tests]
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"));
    lines.for_each(|line| {
        text.push_str(line);
        text.push('\n');
    });
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
