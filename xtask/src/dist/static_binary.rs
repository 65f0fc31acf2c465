//! The static binary: the C library is linked in, so that it runs on every distribution and in an
//! image without any.
//!
//! The flags are set only for this target, so build scripts and procedural macros, which are shared
//! libraries, are built as usual.

use crate::interop::doctor::Plugin;
use crate::interop::toolchain;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

pub const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Above this the packages would be a burden to fetch in every run of a CI.
const BYTES_MAX: usize = 30_000_000;

/// Builds with the profile `packaged`, with the plug-in for Apache Kafka inside, and returns the
/// binary.
pub fn build() -> Result<Vec<u8>> {
    let plugin = Plugin::prepare()?;
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command
        .args(["build", "--quiet", "--profile", "packaged", "--package", "ottla"])
        .args(["--target", TARGET])
        .env("CARGO_ENCODED_RUSTFLAGS", flags()?)
        .env("OTTLA_KAFKA_PLUGIN", &plugin.jar)
        .current_dir(toolchain::root());
    let status = command.status().context("cannot start cargo")?;
    ensure!(status.success(), "cargo could not build the static binary");
    let path = toolchain::cargo_target().join(TARGET).join("packaged/ottla");
    let binary = fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
    ensure!(
        binary.len() <= BYTES_MAX,
        "the binary has {} bytes; at most {BYTES_MAX}",
        binary.len()
    );
    ensure!(!names_interpreter(&binary), "{} is not static", path.display());
    Ok(binary)
}

/// Static, stripped, and without paths of the machine that builds.
fn flags() -> Result<String> {
    let cargo_home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = std::env::home_dir().map(|home| home.join(".cargo"));
    let cargo_home = cargo_home
        .or(home)
        .context("neither CARGO_HOME nor HOME is set")?;
    let flags = [
        "-Ctarget-feature=+crt-static".to_owned(),
        "-Cstrip=symbols".to_owned(),
        // A megabyte less: a start relocates by a bitmap of addresses instead of a list.
        "-Clink-arg=-Wl,-z,pack-relative-relocs".to_owned(),
        format!("--remap-path-prefix={}=/cargo", cargo_home.display()),
        format!("--remap-path-prefix={}=/ottla", toolchain::root().display()),
    ];
    // Cargo's separator, with which a path may have spaces.
    Ok(flags.join("\x1f"))
}

/// Whether an ELF file of 64 bits names a dynamic loader (a program header PT_INTERP), without
/// which a binary that is not static cannot start.
fn names_interpreter(elf: &[u8]) -> bool {
    const PT_INTERP: u32 = 3;
    let half = |at: usize| {
        Some(usize::from(u16::from_le_bytes(
            elf.get(at..at + 2)?.try_into().ok()?,
        )))
    };
    let headers = || {
        let start = u64::from_le_bytes(elf.get(32..40)?.try_into().ok()?);
        Some((usize::try_from(start).ok()?, half(54)?, half(56)?))
    };
    let Some((start, size, count)) = headers() else {
        return true;
    };
    (0..count)
        .map(|index| start + index * size)
        .any(|at| elf.get(at..at + 4) == Some(PT_INTERP.to_le_bytes().as_slice()))
}

#[cfg(test)]
mod tests {
    use super::names_interpreter;

    #[test]
    fn this_program_is_not_static() {
        let this = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert!(names_interpreter(&this));
    }

    #[test]
    fn without_program_headers_there_is_no_interpreter() {
        let mut elf = vec![0; 64];
        elf[32] = 64;
        elf[54] = 56;
        assert!(!names_interpreter(&elf));
        // One header, of type PT_INTERP.
        elf[56] = 1;
        elf.extend([3, 0, 0, 0]);
        assert!(names_interpreter(&elf));
    }
}
