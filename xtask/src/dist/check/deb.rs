//! The Debian package: read by lintian, installed by dpkg into an empty root, its unit verified by
//! systemd, the program run as the unit does, then removed and purged.

use super::served::Served;
use super::{Place, round_trip};
use crate::dist::{VERSION, deb};
use crate::interop::toolchain::{free_port, need, output_of, run_quietly};
use anyhow::{Context, Result, ensure};
use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::Command;

/// systemd's score of exposure, 0.0 to 10.0, in tenths; below 2.0 it says OK.
const EXPOSURE_TENTHS_MAX: &str = "20";

pub fn check(place: &Place) -> Result<String> {
    need("dpkg", &["--version"], "Debian's tools (Debian: dpkg)")?;
    need("bwrap", &["--version"], "bubblewrap (Debian: bubblewrap)")?;
    need("lintian", &["--version"], "lintian (Debian: lintian)")?;
    need(
        "systemd-analyze",
        &["--version"],
        "systemd-analyze (Debian: systemd)",
    )?;
    let package = place.package(&deb::name())?;
    let root = place.home.join("deb");
    lint(&package)?;
    install(&root, &package)?;
    let exposure = verify_unit(&root)?;
    serve(place, &root)?;
    remove(&root)?;
    Ok(format!(
        "lintian, dpkg, systemd-analyze (exposure {exposure}), removed, purged; librdkafka"
    ))
}

fn lint(package: &Path) -> Result<()> {
    let version = output_of(Command::new("dpkg-deb").arg("-f").arg(package).arg("Version"))?;
    ensure!(version.trim() == VERSION, "the package has version {version}");
    let mut lintian = Command::new("lintian");
    lintian.args(["--allow-root", "--fail-on", "error,warning"]);
    output_of(lintian.arg(package)).context("lintian").map(drop)
}

fn install(root: &Path, package: &Path) -> Result<()> {
    prepare(root)?;
    dpkg(root, "--install", package.as_os_str())?;
    let users = fs::read_to_string(root.join("etc/passwd"))?;
    let has_user = users.lines().any(|line| line.starts_with("ottla:"));
    ensure!(has_user, "the user ottla is missing");
    Ok(())
}

/// A removal leaves the configuration, a purge the data.
fn remove(root: &Path) -> Result<()> {
    let exists = |path: &str| root.join(path).exists();
    dpkg(root, "--remove", "ottla".as_ref())?;
    ensure!(!exists("usr/bin/ottla"), "a removal leaves the program");
    ensure!(exists(deb::PROPERTIES), "a removal takes the configuration");
    dpkg(root, "--purge", "ottla".as_ref())?;
    ensure!(!exists(deb::PROPERTIES), "a purge leaves the configuration");
    ensure!(
        exists(&format!("{DATA}/meta.properties")),
        "a purge takes the data"
    );
    Ok(())
}

/// The data of the service, below the root.
const DATA: &str = "var/lib/ottla";

/// What dpkg and the package's scripts expect of a system.
fn prepare(root: &Path) -> Result<()> {
    for folder in ["var/lib/dpkg/info", "var/lib/dpkg/updates", "etc", "run", "tmp"] {
        fs::create_dir_all(root.join(folder))?;
    }
    for file in ["var/lib/dpkg/status", "var/lib/dpkg/available"] {
        fs::write(root.join(file), "")?;
    }
    Ok(())
}

/// Runs dpkg as root of a namespace in which nothing but `root` can be written; the package's
/// scripts run outside of `root`, which has no shell, with its path in DPKG_ROOT.
fn dpkg(root: &Path, action: &str, what: &OsStr) -> Result<()> {
    let mut command = Command::new("bwrap");
    command
        .args([
            "--unshare-user",
            "--uid",
            "0",
            "--gid",
            "0",
            "--ro-bind",
            "/",
            "/",
        ])
        .args(["--dev", "/dev", "--proc", "/proc", "--bind"])
        .args([root, root])
        .arg("--setenv")
        .arg("TMPDIR")
        .arg(root.join("tmp"))
        .args([
            "dpkg",
            "--force-script-chrootless",
            "--force-depends",
            "--log=/dev/null",
        ])
        .arg(format!("--root={}", root.display()))
        .args([action.as_ref(), what]);
    run_quietly(&mut command).with_context(|| format!("dpkg {action}"))
}

/// Verifies the unit inside `root`, and returns systemd's score of exposure.
fn verify_unit(root: &Path) -> Result<String> {
    let unit = root.join(deb::UNIT);
    let mut security = Command::new("systemd-analyze");
    security
        .args([
            "security",
            "--offline=true",
            "--no-pager",
            "--threshold",
            EXPOSURE_TENTHS_MAX,
        ])
        .arg(&unit);
    let text = output_of(&mut security).context("systemd-analyze security")?;
    let overall = text.lines().find(|line| line.contains("Overall exposure level"));
    let exposure = overall.and_then(|line| line.split(": ").nth(1));
    let exposure = exposure.context("systemd-analyze printed no exposure")?;
    verify(&unit, root)?;
    Ok(exposure.split(' ').next().unwrap_or(exposure).to_owned())
}

/// systemd looks for the program on this machine, so the unit names the unpacked one for that.
fn verify(unit: &Path, root: &Path) -> Result<()> {
    let text = fs::read_to_string(unit)?;
    let text = text.replace("=/usr/bin/ottla ", &format!("={}/usr/bin/ottla ", root.display()));
    let copy = root.join("ottla.service");
    fs::write(&copy, text)?;
    let mut command = Command::new("systemd-analyze");
    command.args(["verify", "--man=no"]).arg(&copy);
    let output = command.output().context("cannot start systemd-analyze")?;
    let complaints = String::from_utf8_lossy(&output.stderr);
    // Other units of the machine are none of ours.
    let own: Vec<&str> = complaints
        .lines()
        .filter(|line| line.contains("ottla.service"))
        .collect();
    ensure!(own.is_empty(), "systemd-analyze verify: {}", own.join("\n"));
    ensure!(output.status.success(), "systemd-analyze verify: {complaints}");
    Ok(())
}

/// Runs the unit's command with the paths of `root`.
fn serve(place: &Place, root: &Path) -> Result<()> {
    let unit = fs::read_to_string(root.join(deb::UNIT))?;
    let command = unit.lines().find_map(|line| line.strip_prefix("ExecStart="));
    let command = command.context("the unit has no ExecStart")?;
    let mut words = command.split(' ');
    let inside = |path: &str| root.join(path.trim_start_matches('/'));
    let mut serve = Command::new(inside(words.next().context("ExecStart is empty")?));
    for word in words {
        match word.starts_with('/') {
            true => serve.arg(inside(word)),
            false => serve.arg(word),
        };
    }
    let port = free_port()?;
    serve
        .args(["--override", &format!("listeners=PLAINTEXT://127.0.0.1:{port}")])
        .args(["--override", &format!("log.dirs={}", root.join(DATA).display())])
        .args(["--override", "ottla.admin.listener="]);
    let served = Served::start(&mut serve, root)?;
    round_trip(place, &format!("127.0.0.1:{port}"))?;
    served.stop()
}
