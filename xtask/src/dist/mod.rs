//! `cargo xtask dist`: what people install without a compiler, made from one static binary, and a
//! test of each package in an empty place.
//!
//! Reading order: the binary, how archives are written, one file a package, the tests.

mod static_binary;
mod notices;
mod archive;
mod release_archive;
mod wheel;
mod npm;
mod deb;
mod image;
mod jar;
mod check;

use crate::bench_kafka::machine;
use crate::interop::toolchain;
use anyhow::{Context, Result, bail, ensure};
use sha2::{Digest, Sha256};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What every package is made of.
pub struct Release {
    pub binary: Vec<u8>,
    pub license: Vec<u8>,
    /// The licences of the libraries in the binary.
    pub notices: Vec<u8>,
    /// The time of the commit, the time of every file in every archive.
    pub commit_time_s: u64,
}

impl Release {
    /// A folder of the packages' sources.
    pub fn packaging(&self, folder: &str) -> PathBuf {
        toolchain::root().join("packaging").join(folder)
    }
}

/// A package: its file and what makes its bytes.
struct Package {
    name: &'static str,
    file: fn() -> String,
    build: fn(&Release) -> Result<Vec<u8>>,
}

const PACKAGES: [Package; 7] = [
    Package {
        name: "archive",
        file: release_archive::name,
        build: release_archive::build,
    },
    Package {
        name: "wheel",
        file: wheel::name,
        build: wheel::build,
    },
    Package {
        name: "npm",
        file: npm::platform_name,
        build: npm::build_platform,
    },
    Package {
        name: "npm",
        file: npm::main_name,
        build: npm::build_main,
    },
    Package {
        name: "deb",
        file: deb::name,
        build: deb::build,
    },
    Package {
        name: "image",
        file: image::name,
        build: image::build,
    },
    Package {
        name: "jar",
        file: jar::name,
        build: jar::build,
    },
];

const USAGE: &str =
    "usage: cargo xtask dist [--binary FILE] [--only archive,wheel,npm,deb,image,jar] [--check | --no-check]";

#[derive(Default)]
struct Options {
    /// An existing binary, instead of the static one.
    binary: Option<PathBuf>,
    /// Empty: all.
    only: Vec<String>,
    without_build: bool,
    without_check: bool,
}

impl Options {
    fn parse(arguments: &[String]) -> Result<Options> {
        let mut options = Options::default();
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--binary" => options.binary = Some(arguments.next().context(USAGE)?.into()),
                "--only" => {
                    let names = arguments.next().context(USAGE)?;
                    options.only = names.split(',').map(str::to_owned).collect();
                }
                "--check" => options.without_build = true,
                "--no-check" => options.without_check = true,
                _ => bail!(USAGE),
            }
        }
        for name in &options.only {
            let is_known = PACKAGES.iter().any(|package| package.name == name);
            ensure!(is_known, "no package is named {name}; {USAGE}");
        }
        Ok(options)
    }

    fn wants(&self, package: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|name| name == package)
    }
}

/// Packages, then checks; `--check` checks what an earlier run packaged.
pub fn run(arguments: &[String]) -> Result<()> {
    let options = Options::parse(arguments)?;
    let output = output();
    if !options.without_build {
        package(&options, &output)?;
    }
    if options.without_check {
        return Ok(());
    }
    check::run(&output, |package| options.wants(package))
}

/// The directory of the packages.
fn output() -> PathBuf {
    toolchain::cargo_target().join("dist")
}

fn package(options: &Options, output: &Path) -> Result<()> {
    let started = Instant::now();
    let binary = match &options.binary {
        Some(path) => fs::read(path).with_context(|| format!("reading {}", path.display()))?,
        None => static_binary::build()?,
    };
    report("binary", binary.len(), started);
    let release = Release {
        binary,
        license: fs::read(toolchain::root().join("LICENSE"))?,
        notices: notices::collect()?.into_bytes(),
        commit_time_s: commit_time_s()?,
    };
    fs::create_dir_all(output)?;
    for package in PACKAGES.iter().filter(|package| options.wants(package.name)) {
        let started = Instant::now();
        let file = (package.file)();
        let bytes = (package.build)(&release).with_context(|| format!("packaging {file}"))?;
        fs::write(output.join(&file), &bytes).with_context(|| format!("writing {file}"))?;
        report(&file, bytes.len(), started);
    }
    write_sums(output)?;
    println!("{}: {}", machine::commit(), output.display());
    Ok(())
}

fn report(what: &str, bytes: usize, started: Instant) {
    let mib = bytes as f64 / f64::from(1 << 20);
    println!("{mib:7.2} MiB {:6.1} s  {what}", started.elapsed().as_secs_f64());
}

/// Writes SHA256SUMS, as `sha256sum --check` reads it.
fn write_sums(output: &Path) -> Result<()> {
    let mut files: Vec<String> = PACKAGES.iter().map(|package| (package.file)()).collect();
    files.retain(|file| output.join(file).exists());
    files.sort();
    let mut sums = String::new();
    for file in files {
        let sum = Sha256::digest(fs::read(output.join(&file))?);
        sums.push_str(&format!("{}  {file}\n", hexadecimal(&sum)));
    }
    fs::write(output.join("SHA256SUMS"), sums).context("writing SHA256SUMS")
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn commit_time_s() -> Result<u64> {
    let mut command = Command::new("git");
    command
        .args(["log", "-1", "--format=%ct"])
        .current_dir(toolchain::root());
    let text = toolchain::output_of(&mut command).context("git log")?;
    text.trim().parse().context("the time of the commit")
}
