//! Installs each package into an empty place and uses it there: records of a real client go to the
//! broker that it starts, and come back.

mod served;
mod release_archive;
mod wheel;
mod npm;
mod deb;
mod image;
mod jar;

use super::{PACKAGES, hexadecimal};
use crate::interop::clients;
use crate::interop::toolchain::{self, output_of};
use anyhow::{Context, Result, bail, ensure};
use sha2::{Digest, Sha256};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// Where packages are and where they are installed.
struct Place {
    packages: PathBuf,
    /// Empty at the start.
    home: PathBuf,
}

impl Place {
    fn package(&self, name: &str) -> Result<PathBuf> {
        let path = self.packages.join(name);
        ensure!(
            path.exists(),
            "{} is missing: cargo xtask dist makes it",
            path.display()
        );
        Ok(path)
    }

    /// A folder of `packaging/checks`.
    fn source(&self, folder: &str) -> PathBuf {
        toolchain::root().join("packaging/checks").join(folder)
    }
}

/// Returns what was proved, in a few words.
type Check = fn(&Place) -> Result<String>;

const CHECKS: [(&str, Check); 6] = [
    ("archive", release_archive::check),
    ("wheel", wheel::check),
    ("npm", npm::check),
    ("deb", deb::check),
    ("image", image::check),
    ("jar", jar::check),
];

/// Runs every check that is wanted, also after one has failed.
pub fn run(packages: &Path, wants: impl Fn(&str) -> bool) -> Result<()> {
    compare_sums(packages)?;
    let home = toolchain::cargo_target().join("dist-check");
    if home.exists() {
        fs::remove_dir_all(&home).with_context(|| format!("removing {}", home.display()))?;
    }
    fs::create_dir_all(&home)?;
    let place = Place {
        packages: packages.to_owned(),
        home,
    };
    let started = Instant::now();
    let mut failed = Vec::new();
    for (name, check) in CHECKS.iter().filter(|(name, _)| wants(name)) {
        let started = Instant::now();
        let outcome = check(&place);
        let seconds = started.elapsed().as_secs_f64();
        match outcome {
            Ok(proved) => println!("ok     {seconds:6.1} s  {name}: {proved}"),
            Err(error) => {
                println!("FAILED {seconds:6.1} s  {name}: {error:#}");
                failed.push(*name);
            }
        }
    }
    if !failed.is_empty() {
        bail!("not usable as installed: {}", failed.join(", "));
    }
    println!(
        "every package was installed and used, in {:.0} s",
        started.elapsed().as_secs_f64()
    );
    Ok(())
}

/// Compares the packages with SHA256SUMS, which no other file may be missing from.
fn compare_sums(packages: &Path) -> Result<()> {
    let path = packages.join("SHA256SUMS");
    let sums = fs::read_to_string(&path)
        .with_context(|| format!("{} is missing: cargo xtask dist makes it", path.display()))?;
    for line in sums.lines() {
        let (sum, file) = line
            .split_once("  ")
            .with_context(|| format!("SHA256SUMS: {line}"))?;
        let bytes = fs::read(packages.join(file)).with_context(|| format!("reading {file}"))?;
        let found = hexadecimal(&Sha256::digest(&bytes));
        ensure!(found == sum, "{file} is not what SHA256SUMS says");
    }
    for package in &PACKAGES {
        let file = (package.file)();
        let is_listed = sums.lines().any(|line| line.ends_with(&file));
        ensure!(
            is_listed || !packages.join(&file).exists(),
            "SHA256SUMS lacks {file}"
        );
    }
    Ok(())
}

/// Produces to a broker and consumes from it with librdkafka, from the environment of `interop`.
fn round_trip(place: &Place, bootstrap: &str) -> Result<()> {
    let mut command = Command::new(clients::prepare_python()?);
    command.arg(place.source("python").join("round_trip.py"));
    output_of(command.arg(bootstrap))
        .context("records there and back")
        .map(drop)
}
