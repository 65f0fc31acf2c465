//! The other tool chains, and their build directory under `target/`.

use anyhow::{Context, Result, bail, ensure};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::SystemTime;

/// The variable that names another directory for [`logs`]: parts that run at once write files of
/// the same names.
pub const LOGS: &str = "OTTLA_INTEROP_LOGS";

/// The repository's root.
pub fn root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest
        .parent()
        .expect("xtask lies in the repository's root")
        .to_path_buf()
}

/// Cargo's target directory.
pub fn cargo_target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// The directory of other tool chains' builds and of the data of tests' brokers.
pub fn target_directory() -> PathBuf {
    cargo_target().join("interop")
}

/// The directory of the output of clients and applications.
pub fn logs() -> PathBuf {
    match std::env::var_os(LOGS) {
        Some(folder) => PathBuf::from(folder),
        None => target_directory().join("logs"),
    }
}

/// Fails with one line that names `program` if it cannot be started.
pub fn need(program: &str, arguments: &[&str], what: &str) -> Result<()> {
    let started = Command::new(program)
        .args(arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    match started {
        Ok(status) if status.success() => Ok(()),
        _ => bail!("`{program}` is missing: this task needs {what}"),
    }
}

/// Runs a command to its end, silent unless it fails; the error has its output.
pub fn run_quietly(command: &mut Command) -> Result<()> {
    output_of(command).map(drop)
}

/// Runs a command to its end and returns standard output; on failure the error has both streams.
pub fn output_of(command: &mut Command) -> Result<String> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot start {}", command.get_program().to_string_lossy()))?;
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "{}\n{}\n{}",
        output.status,
        end_of(&stdout),
        end_of(&stderr)
    );
    Ok(stdout)
}

/// Returns about the last 2,000 bytes, so that an error does not quote megabytes of output.
pub fn end_of(text: &str) -> &str {
    let from = text.len().saturating_sub(2000);
    let from = (from..text.len())
        .find(|at| text.is_char_boundary(*at))
        .unwrap_or(text.len());
    &text[from..]
}

/// Runs `build` unless an earlier run did and no file below `source` is newer than its `stamp`.
/// Several processes may ask at once: one builds, the others wait for it.
///
/// - `what`: what is built and by which program; printed if it is.
pub fn build_once(what: &str, stamp: &Path, source: &Path, build: impl FnOnce() -> Result<()>) -> Result<()> {
    let folder = target_directory();
    fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
    let lock = File::create(folder.join("build.lock")).context("creating build.lock")?;
    lock.lock().context("locking build.lock")?;
    if is_fresh(stamp, source)? {
        return Ok(());
    }
    println!("{what}");
    build()?;
    fs::write(stamp, "").with_context(|| format!("writing {}", stamp.display()))
}

/// Whether `stamp` is newer than every file below `source`.
fn is_fresh(stamp: &Path, source: &Path) -> Result<bool> {
    let Ok(stamped) = fs::metadata(stamp).and_then(|metadata| metadata.modified()) else {
        return Ok(false);
    };
    Ok(newest(source)? <= stamped)
}

fn newest(path: &Path) -> Result<SystemTime> {
    let metadata = fs::metadata(path).with_context(|| format!("reading {}", path.display()))?;
    let mut time = metadata.modified()?;
    if metadata.is_dir() {
        for entry in fs::read_dir(path)? {
            time = time.max(newest(&entry?.path())?);
        }
    }
    Ok(time)
}

/// Builds the release binary of Ottla and returns its path; `OTTLA_BINARY` names an existing
/// binary.
pub fn build_ottla() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("OTTLA_BINARY") {
        println!("OTTLA_BINARY: {}", path.to_string_lossy());
        return Ok(PathBuf::from(path));
    }
    println!("cargo: ottla (release)");
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command
        .args(["build", "--quiet", "--release", "--package", "ottla"])
        .current_dir(root());
    let status = command.status().context("cannot start cargo")?;
    ensure!(status.success(), "cargo build --release --package ottla failed");
    Ok(cargo_target().join("release/ottla"))
}

/// Returns a free port below the ephemeral range (32,768 and up), in which an outgoing connection
/// could take the port between this check and its use.
pub fn free_port() -> Result<u16> {
    let seed = u64::from(std::process::id()) * 7919
        + SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)?
            .subsec_nanos() as u64;
    for attempt in 0..2000_u64 {
        let port = 15_000 + u16::try_from((seed + attempt * 37) % 17_000)?;
        if std::net::TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return Ok(port);
        }
    }
    bail!("no free port between 15,000 and 32,000")
}
