//! The release archive: unpacked by `tar`, its program run in a directory that has nothing else.

use super::served::Served;
use super::{Place, round_trip};
use crate::dist::{VERSION, release_archive};
use crate::interop::toolchain::{free_port, output_of, run_quietly};
use anyhow::{Context, Result, ensure};
use std::path::Path;
use std::process::Command;

pub fn check(place: &Place) -> Result<String> {
    let home = place.home.join("archive");
    std::fs::create_dir_all(&home)?;
    let archive = place.package(&release_archive::name())?;
    run_quietly(Command::new("tar").arg("-xzf").arg(archive).arg("-C").arg(&home)).context("tar")?;
    let folder = home.join(release_archive::folder());
    for file in ["LICENSE", "README.md", "THIRD-PARTY.txt"] {
        ensure!(folder.join(file).exists(), "{file} is missing");
    }
    let program = folder.join("ottla");
    let version = output_of(Command::new(&program).arg("--version"))?;
    ensure!(
        version.starts_with(&format!("ottla {VERSION} (")),
        "--version: {version}"
    );
    check_plugin(&program, &home)?;
    let port = free_port()?;
    let mut serve = Command::new(&program);
    serve
        .args([
            "serve",
            "--override",
            &format!("listeners=PLAINTEXT://127.0.0.1:{port}"),
        ])
        .args(["--override", "ottla.admin.listener="])
        .current_dir(&home);
    let served = Served::start(&mut serve, &home)?;
    round_trip(place, &format!("127.0.0.1:{port}"))?;
    served.stop()?;
    ensure!(
        home.join("ottla-data").exists(),
        "the data is not in ./ottla-data"
    );
    Ok(format!("{}; librdkafka", version.trim()))
}

/// The program writes the jar that a broker of Apache Kafka loads.
fn check_plugin(program: &Path, home: &Path) -> Result<()> {
    let mut write = Command::new(program);
    write.args(["doctor", "plugin", "--output"]).arg(home);
    run_quietly(&mut write)?;
    let jar = std::fs::File::open(home.join("ottla-kafka-telemetry.jar"))?;
    let mut jar = zip::ZipArchive::new(jar).context("the plug-in is no jar")?;
    for class in ["TelemetryExporter", "TelemetryReceiver"] {
        jar.by_name(&format!("ottla/telemetry/{class}.class"))
            .with_context(|| format!("{class} is not in the plug-in"))?;
    }
    Ok(())
}
