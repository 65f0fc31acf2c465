//! Apache Kafka's published jars, fetched once into `target/kafka-jars`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

pub const KAFKA_VERSION: &str = "4.3.0";

/// A jar with schemas.
pub struct SchemaJar {
    pub artifact: &'static str,
    /// The schemas' folder inside the jar.
    pub folder: &'static str,
    /// The Java package of the classes generated from these schemas.
    pub java_package: &'static str,
}

pub const SCHEMA_JARS: [SchemaJar; 4] = [
    SchemaJar {
        artifact: "kafka-clients",
        folder: "common/message",
        java_package: "org.apache.kafka.common.message",
    },
    SchemaJar {
        artifact: "kafka-metadata",
        folder: "common/metadata",
        java_package: "org.apache.kafka.common.metadata",
    },
    SchemaJar {
        artifact: "kafka-group-coordinator",
        folder: "common/message",
        java_package: "org.apache.kafka.coordinator.group.generated",
    },
    SchemaJar {
        artifact: "kafka-transaction-coordinator",
        folder: "common/message",
        java_package: "org.apache.kafka.coordinator.transaction.generated",
    },
];

/// The jar with the definitions of the broker's configuration keys; it has no schemas.
const CONFIGURATION_ARTIFACT: &str = "kafka-server";

fn artifacts() -> impl Iterator<Item = &'static str> {
    SCHEMA_JARS
        .iter()
        .map(|jar| jar.artifact)
        .chain([CONFIGURATION_ARTIFACT])
}

/// The repository's root directory.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask lies below the root")
        .to_path_buf()
}

/// Runs a tool to completion; a missing tool is reported in one line.
pub fn run_tool(command: &mut Command, why: &str) -> Result<Vec<u8>> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| {
        format!("cannot run `{name}`, which {why}; install a JDK (17 or later) and Maven")
    })?;
    if !output.status.success() {
        bail!(
            "`{name}` failed ({}): {}{}",
            output.status,
            String::from_utf8_lossy(&output.stderr),
            String::from_utf8_lossy(&output.stdout)
        );
    }
    Ok(output.stdout)
}

/// Downloads the jars with their dependencies unless they are there, and returns their directory.
pub fn fetch() -> Result<PathBuf> {
    let directory = root().join("target/kafka-jars");
    let complete = artifacts().all(|artifact| path(&directory, artifact).is_file());
    if complete {
        return Ok(directory);
    }
    fs::create_dir_all(&directory)?;
    fs::write(directory.join("pom.xml"), pom())?;
    run_tool(
        Command::new("mvn").current_dir(&directory).args([
            "--quiet",
            "--batch-mode",
            "dependency:copy-dependencies",
            "-DoutputDirectory=.",
        ]),
        "fetches Apache Kafka's jars",
    )?;
    Ok(directory)
}

fn path(directory: &Path, artifact: &str) -> PathBuf {
    directory.join(format!("{artifact}-{KAFKA_VERSION}.jar"))
}

fn pom() -> String {
    let dependencies: String = artifacts()
        .map(|artifact| {
            format!(
                "    <dependency><groupId>org.apache.kafka</groupId><artifactId>{artifact}</artifactId>\
                 <version>{KAFKA_VERSION}</version></dependency>\n"
            )
        })
        .collect();
    format!(
        "<project xmlns=\"http://maven.apache.org/POM/4.0.0\">\n  <modelVersion>4.0.0</modelVersion>\n  \
         <groupId>ottla</groupId><artifactId>kafka-jars</artifactId><version>1</version>\n  \
         <packaging>pom</packaging>\n  <dependencies>\n{dependencies}  </dependencies>\n</project>\n"
    )
}

/// Unpacks every schema of one jar and returns their paths in file-name order.
pub fn schemas(directory: &Path, jar: &SchemaJar) -> Result<Vec<PathBuf>> {
    let unpacked = directory.join("schemas").join(jar.artifact);
    fs::create_dir_all(&unpacked)?;
    run_tool(
        Command::new("jar")
            .current_dir(&unpacked)
            .arg("xf")
            .arg(path(directory, jar.artifact))
            .arg(jar.folder),
        "unpacks Apache Kafka's jars",
    )?;
    let mut paths = Vec::new();
    for entry in fs::read_dir(unpacked.join(jar.folder))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "json") {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}
