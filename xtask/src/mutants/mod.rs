//! `cargo xtask mutants`: which changes of a crate's code no test of the crate notices.
//!
//! `cargo-mutants` builds the crate again for each change, which takes five to ten seconds each.
//! Here one build holds all changes, and an environment variable chooses one of them. A run of the
//! unchanged tests tells which changes each test reaches; for a change, the tests that reach it are
//! run one by one, the quickest first, up to the first that fails. `--with` adds the tests of other
//! packages, which use the crate. What changes is as there: a body is replaced by a plain value, an
//! operator by another one.
//!
//! The sources are those of the last commit, copied to `target/mutants`. Results are added to
//! `target/mutants/PACKAGE.tsv` as they come; `--resume` goes on with it. `--again` keeps what was
//! noticed and runs the others once more, with new tests or those of more packages.
//!
//! Reading order: the modules below, top to bottom.

mod run;
mod rewrite;
mod values;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::interop::toolchain::{self, run_quietly};

const USAGE: &str = "usage: cargo xtask mutants --package NAME [--only FILE,FOLDER] [--except FILE,FOLDER] [--with NAME,NAME] [--skip TEST,TEST] [--jobs N] [--resume] [--again]";

/// What is added to the crate: whether a change is the one that was chosen. Without a choice it
/// notes which ones are reached.
const RUNTIME: &str = include_str!("runtime.txt");

struct Options {
    package: String,
    /// Files and folders below `src`; empty: all.
    only: Vec<String>,
    except: Vec<String>,
    /// Other packages whose tests are run as well.
    with: Vec<String>,
    /// Parts of names of tests.
    skip: Vec<String>,
    jobs: usize,
    resume: bool,
    again: bool,
}

fn parse(arguments: &[String]) -> Result<Options> {
    let mut options = Options {
        package: String::new(),
        only: Vec::new(),
        except: Vec::new(),
        with: Vec::new(),
        skip: Vec::new(),
        jobs: 2,
        resume: false,
        again: false,
    };
    let mut arguments = arguments.iter().cloned();
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().context(USAGE);
        let list = |text: String| text.split(',').map(str::to_owned).collect();
        match argument.as_str() {
            "--package" => options.package = value()?,
            "--only" => options.only = list(value()?),
            "--except" => options.except = list(value()?),
            "--with" => options.with = list(value()?),
            "--skip" => options.skip = list(value()?),
            "--jobs" => options.jobs = value()?.parse().context("--jobs")?,
            "--resume" => options.resume = true,
            "--again" => options.again = true,
            _ => bail!(USAGE),
        }
    }
    ensure!(!options.package.is_empty() && options.jobs > 0, USAGE);
    Ok(options)
}

pub fn run(arguments: &[String]) -> Result<()> {
    let options = parse(arguments)?;
    let folder = options.package.strip_prefix("ottla-").unwrap_or(&options.package);
    let home = toolchain::cargo_target().join("mutants");
    let source = home.join("source");
    copy_commit(&source)?;
    let home_of_crate = source.join("crates").join(folder);
    let mutants = rewrite_crate(&home_of_crate, &options)?;
    println!("{} mutants of {}", mutants.len(), options.package);
    let mut packages = options.with;
    packages.push(options.package.clone());
    let programs = run::build(&source, &home.join("build"), &packages)?;
    let results = home.join(format!("{}.tsv", options.package));
    if options.again {
        run::keep_noticed(&results, &mutants)?;
    } else if !options.resume && results.exists() {
        fs::remove_file(&results)?;
    }
    run::all(&programs, &options.skip, &mutants, options.jobs, &results)
}

/// Unpacks the last commit.
fn copy_commit(source: &Path) -> Result<()> {
    if source.exists() {
        fs::remove_dir_all(source)?;
    }
    fs::create_dir_all(source)?;
    let archive = source.with_extension("tar");
    let mut git = Command::new("git");
    git.args(["archive", "--format=tar", "--output"])
        .arg(&archive)
        .arg("HEAD");
    run_quietly(git.current_dir(toolchain::root())).context("git archive")?;
    run_quietly(Command::new("tar").arg("-xf").arg(&archive).arg("-C").arg(source)).context("tar")
}

fn rewrite_crate(home: &Path, options: &Options) -> Result<Vec<rewrite::Mutant>> {
    let source = home.join("src");
    let mut mutants = Vec::new();
    for path in rust_files(&source)? {
        let name = path.strip_prefix(&source)?.to_string_lossy().into_owned();
        if !is_wanted(&name, options) {
            continue;
        }
        let text = fs::read_to_string(&path)?;
        let changed = rewrite::rewrite(&name, &text, &mut mutants).with_context(|| name.clone())?;
        fs::write(&path, changed)?;
    }
    let library = source.join("lib.rs");
    let text = fs::read_to_string(&library).context("only libraries have mutants here")?;
    // The compiler refuses constants that cannot be computed, and some changes make such.
    let mut text = format!("#![allow(arithmetic_overflow, unconditional_panic)] {text}");
    text.push_str(&RUNTIME.replace("COUNT", &(mutants.len() + 1).to_string()));
    fs::write(&library, text)?;
    Ok(mutants)
}

/// Tests are not changed, nor is a file that only they use.
fn is_wanted(name: &str, options: &Options) -> bool {
    let is_in = |list: &[String]| {
        list.iter().any(|entry| {
            name.strip_prefix(entry.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    };
    let is_test = name
        .split(['/', '.'])
        .any(|part| part == "tests" || part.ends_with("_tests") || part == "simulation");
    !is_test && (options.only.is_empty() || is_in(&options.only)) && !is_in(&options.except)
}

fn rust_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(rust_files(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_chosen_by_name_and_folder_and_tests_never() {
        let words = [
            "--package",
            "ottla-log",
            "--only",
            "disk,reader.rs",
            "--except",
            "disk/os",
        ];
        let options = parse(&words.map(str::to_owned)).expect("options");
        for (name, expected) in [
            ("reader.rs", true),
            ("disk/owned/tail.rs", true),
            ("disk/os/calls.rs", false),
            ("disk/owned/tests/mod.rs", false),
            ("disk_usage.rs", false),
            ("segment.rs", false),
        ] {
            assert_eq!(is_wanted(name, &options), expected, "{name}");
        }
    }
}
