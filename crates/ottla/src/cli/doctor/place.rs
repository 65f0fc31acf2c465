//! The address at which the doctor is asked: Ottla's admin address, or a collector's.

use clap::Args;
use ottla_lab::ask::Door;
use ottla_lab::doctor::Snapshot;
use ottla_lab::doctor::diagnosis::{Examination, VERSION};
use ottla_lab::doctor::statements::Statements;

use super::stated::{self, Stated};
use super::{Failure, replay};
use crate::cli::admin_address::{AdminAddress, without_scheme};

/// The default address of `ottla doctor collect`.
pub const COLLECTOR_ADDRESS: &str = "127.0.0.1:9645";

/// The limit of an answer: ten thousand clients with all their reasoning are about 100 MB.
const ANSWER_BYTES_MAX: u64 = 256 << 20;

#[derive(Args, Debug, Default)]
pub struct Place {
    #[command(flatten)]
    pub broker: AdminAddress,

    /// Address of a running `ottla doctor collect`, `host:port` [default for Apache Kafka:
    /// 127.0.0.1:9645]
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["admin", "bootstrap_server"])]
    pub collector: Option<String>,
}

impl Place {
    /// Returns what serves /doctor.
    ///
    /// - Errors: the cluster cannot be asked, or its admin address cannot be reached from here.
    pub fn door(&self) -> Result<Door, Failure> {
        if let Some(collector) = &self.collector {
            return Ok(Door::new(without_scheme(collector)));
        }
        if let Some(door) = self.broker.door_of_ottla()? {
            return Ok(door);
        }
        let servers = self.broker.bootstrap_server.as_deref().unwrap_or_default();
        eprintln!("ottla doctor: {servers} is not Ottla: asking the collector at {COLLECTOR_ADDRESS}");
        Ok(Door::new(COLLECTOR_ADDRESS))
    }

    /// Returns the doctor at that address, with statements about its clients.
    ///
    /// - Errors: as of [`Place::door`], and for a statement that is refused.
    pub fn source(&self, stated: &Stated) -> Result<Source, Failure> {
        // First: a refusal must not wait for a cluster.
        let statements = stated.read()?;
        let door = self.door()?;
        Ok(Source { door, statements })
    }
}

/// A running doctor, and what is stated here of its clients: the doctor does not learn of it.
#[derive(Clone)]
pub struct Source {
    pub door: Door,
    pub statements: Statements,
}

impl Source {
    /// Returns the diagnoses of all clients, the worst first.
    ///
    /// - Errors: no answer, or one of another version.
    pub fn examination(&self) -> Result<Examination, Failure> {
        let door = &self.door;
        let text = door
            .ask("GET", "/doctor", ANSWER_BYTES_MAX)
            .map_err(|error| unreachable(door, &error))?;
        let mut examination =
            read_examination(&text).map_err(|problem| Failure::unanswered(format!("{door}: {problem}")))?;
        if !self.statements.is_empty() {
            let examined = replay::examined(&self.snapshots()?, examination.at_ms);
            examination.clients = examined.clients;
        }
        Ok(examination)
    }

    /// Returns the readings on which the diagnoses are based.
    pub fn snapshots(&self) -> Result<Vec<Snapshot>, Failure> {
        let door = &self.door;
        let text = door
            .ask("GET", "/doctor/snapshots", ANSWER_BYTES_MAX)
            .map_err(|error| unreachable(door, &error))?;
        let snapshots = serde_json::from_str(&text)
            .map_err(|error| Failure::unanswered(format!("{door}: /doctor/snapshots: {error}")))?;
        Ok(stated::apply(&self.statements, snapshots))
    }
}

fn read_examination(text: &str) -> Result<Examination, String> {
    let parsed: Result<Examination, serde_json::Error> = serde_json::from_str(text);
    // The version is checked first: another version may lack some fields.
    let value: serde_json::Value =
        serde_json::from_str(text).map_err(|error| format!("/doctor is not JSON: {error}"))?;
    match value.get("version").and_then(serde_json::Value::as_u64) {
        Some(version) if version == u64::from(VERSION) => {}
        Some(version) => {
            return Err(format!(
                "/doctor has version {version}; this program reads version {VERSION}"
            ));
        }
        None => return Err(String::from("/doctor has no version: this is not a doctor")),
    }
    let mut examination = parsed.map_err(|error| format!("/doctor: {error}"))?;
    examination.sort();
    Ok(examination)
}

pub fn unreachable(door: &Door, error: &std::io::Error) -> Failure {
    let hint = match error.kind() {
        std::io::ErrorKind::ConnectionRefused => {
            "; is ottla serve or ottla doctor collect running there? --admin, --collector or --bootstrap-server select another address"
        }
        _ => "",
    };
    Failure::unanswered(format!("{door}: {error}{hint}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::doctor::sample;

    #[test]
    fn another_version_is_refused_by_number() {
        let text = serde_json::to_string(&sample::examination()).unwrap();
        assert_eq!(read_examination(&text).unwrap(), sample::examination());
        let error = read_examination(&text.replace("\"version\":1", "\"version\":2")).unwrap_err();
        assert_eq!(error, "/doctor has version 2; this program reads version 1");
        assert!(read_examination("[]").unwrap_err().contains("not a doctor"));
        assert!(read_examination("<html>").unwrap_err().contains("not JSON"));
    }
}
