//! The Debian package: unpacked by dpkg, read by lintian, its unit verified by systemd, and the
//! program run as the unit does.

use super::served::Served;
use super::{Place, round_trip};
use crate::dist::{VERSION, deb};
use crate::interop::toolchain::{free_port, need, output_of, run_quietly};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::Path;
use std::process::Command;

/// systemd's score of exposure, 0.0 to 10.0, in tenths; below 2.0 it says OK.
const EXPOSURE_TENTHS_MAX: &str = "20";

pub fn check(place: &Place) -> Result<String> {
    need("dpkg-deb", &["--version"], "Debian's tools (Debian: dpkg)")?;
    need("lintian", &["--version"], "lintian (Debian: lintian)")?;
    need(
        "systemd-analyze",
        &["--version"],
        "systemd-analyze (Debian: systemd)",
    )?;
    let package = place.package(&deb::name())?;
    let root = place.home.join("deb");
    run_quietly(Command::new("dpkg-deb").arg("-x").arg(&package).arg(&root)).context("dpkg-deb -x")?;
    let version = output_of(Command::new("dpkg-deb").arg("-f").arg(&package).arg("Version"))?;
    ensure!(version.trim() == VERSION, "the package has version {version}");
    let mut lintian = Command::new("lintian");
    lintian
        .args(["--allow-root", "--fail-on", "error,warning"])
        .arg(&package);
    output_of(&mut lintian).context("lintian")?;
    let exposure = verify_unit(&root)?;
    serve(place, &root)?;
    Ok(format!(
        "dpkg-deb, lintian, systemd-analyze (exposure {exposure}); librdkafka"
    ))
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
        .args(["--override", &format!("log.dirs={}", root.join("data").display())])
        .args(["--override", "ottla.admin.listener="]);
    let served = Served::start(&mut serve, root)?;
    round_trip(place, &format!("127.0.0.1:{port}"))?;
    served.stop()
}
