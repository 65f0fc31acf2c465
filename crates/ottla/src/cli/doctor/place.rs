//! The address at which the doctor is asked: Ottla's admin address, or a collector's.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use clap::Args;
use ottla_client::admin::{Admin, ConfigResource, ConfigResourceKind};
use ottla_client::config::Config;
use ottla_lab::ask;
use ottla_lab::doctor::Snapshot;
use ottla_lab::doctor::diagnosis::{Examination, VERSION};
use ottla_lab::doctor::statements::Statements;

use super::stated::{self, Stated};
use super::{Failure, replay};

/// Ottla's own default (`ottla.admin.listener`).
const ADMIN_ADDRESS: &str = "127.0.0.1:9644";

/// The default address of `ottla doctor collect`.
pub const COLLECTOR_ADDRESS: &str = "127.0.0.1:9645";

/// The broker's setting that names the admin address.
const ADMIN_KEY: &str = "ottla.admin.listener";

/// The limit of an answer: ten thousand clients with all their reasoning are about 100 MB.
const ANSWER_BYTES_MAX: u64 = 256 << 20;

#[derive(Args, Debug, Default)]
pub struct Place {
    /// A Kafka address of the cluster, `host:port`: an Ottla broker is asked for its admin address;
    /// for Apache Kafka the collector at its default address is used
    #[arg(long, value_name = "SERVERS", conflicts_with_all = ["admin", "collector"])]
    pub bootstrap_server: Option<String>,

    /// File with client settings for --bootstrap-server, e.g. for TLS and SASL (as in Kafka's
    /// tools)
    #[arg(long, value_name = "FILE", requires = "bootstrap_server")]
    pub command_config: Option<PathBuf>,

    /// Ottla's admin address (ottla.admin.listener), `host:port` [default: 127.0.0.1:9644]
    #[arg(long, value_name = "ADDRESS", conflicts_with = "collector")]
    pub admin: Option<String>,

    /// Address of a running `ottla doctor collect`, `host:port`
    #[arg(long, value_name = "ADDRESS")]
    pub collector: Option<String>,
}

impl Place {
    /// Returns the host and port that serve /doctor.
    ///
    /// - Errors: the cluster cannot be asked, or its admin address cannot be reached from here.
    pub fn address(&self) -> Result<String, Failure> {
        let named = self.admin.as_ref().or(self.collector.as_ref());
        match (named, &self.bootstrap_server) {
            (Some(address), _) => Ok(without_scheme(address).to_owned()),
            (None, Some(servers)) => self.of_cluster(servers),
            (None, None) => Ok(ADMIN_ADDRESS.to_owned()),
        }
    }

    /// Returns the doctor at that address, with statements about its clients.
    ///
    /// - Errors: as of [`Place::address`], and for a statement that is refused.
    pub fn source(&self, stated: &Stated) -> Result<Source, Failure> {
        // First: a refusal must not wait for a cluster.
        let statements = stated.read()?;
        let address = self.address()?;
        Ok(Source { address, statements })
    }

    /// Returns the address for pages that only Ottla serves.
    ///
    /// - Errors: also if the cluster is not Ottla.
    pub fn address_of_ottla(&self) -> Result<String, Failure> {
        match (&self.admin, &self.bootstrap_server) {
            (None, Some(servers)) => self
                .admin_of_cluster(servers)?
                .ok_or_else(|| Failure::unanswered(format!("{servers} is not Ottla: it has no {ADMIN_KEY}"))),
            _ => self.address(),
        }
    }

    fn of_cluster(&self, servers: &str) -> Result<String, Failure> {
        if let Some(address) = self.admin_of_cluster(servers)? {
            return Ok(address);
        }
        eprintln!("ottla doctor: {servers} is not Ottla: asking the collector at {COLLECTOR_ADDRESS}");
        Ok(COLLECTOR_ADDRESS.to_owned())
    }

    /// Returns the admin address; `None` if the cluster is not Ottla.
    fn admin_of_cluster(&self, servers: &str) -> Result<Option<String>, Failure> {
        let config = client_config(self.command_config.as_deref())?;
        let admin = Admin::new(&config.set("bootstrap.servers", servers)).map_err(Failure::unanswered)?;
        let of_servers = |error| Failure::unanswered(format!("{servers}: {error}"));
        let cluster = admin.describe_cluster().wait().map_err(of_servers)?;
        let Some((id, node)) = cluster.nodes.iter().next() else {
            return Err(Failure::unanswered(format!(
                "{servers}: the cluster names no broker"
            )));
        };
        let resource = ConfigResource::new(ConfigResourceKind::Broker, id.0.to_string());
        let answers = admin
            .describe_configs(vec![resource])
            .wait()
            .map_err(of_servers)?;
        let mut listener = None;
        for entries in answers.into_values() {
            let entries = entries.map_err(of_servers)?;
            listener = entries
                .get(ADMIN_KEY)
                .map(|entry| entry.value.clone().unwrap_or_default());
        }
        listener
            .map(|listener| reachable(&listener, &node.address.host))
            .transpose()
    }
}

/// Reads the settings of a client for a cluster.
pub fn client_config(file: Option<&Path>) -> Result<Config, Failure> {
    match file {
        Some(path) => Config::from_file(path).map_err(Failure::unanswered),
        None => Ok(Config::new()),
    }
}

/// Returns the admin address as reachable from this machine.
///
/// - `listener`: the setting's value; `host`: the broker's host as it is reached from here.
fn reachable(listener: &str, host: &str) -> Result<String, Failure> {
    let tell = |problem: &str| Err(Failure::unanswered(format!("{ADMIN_KEY} of {host} {problem}")));
    let Some((bound, port)) = listener.rsplit_once(':') else {
        return tell("is empty: its admin address is switched off");
    };
    if port == "0" {
        return tell("has port 0, any free port; the broker's ready line names it: use --admin");
    }
    let bound = bound.trim_start_matches('[').trim_end_matches(']');
    let is = |test: fn(&IpAddr) -> bool| bound.parse().is_ok_and(|address: IpAddr| test(&address));
    if bound.is_empty() || is(IpAddr::is_unspecified) {
        let host = match host.contains(':') {
            true => format!("[{host}]"),
            false => host.to_owned(),
        };
        return Ok(format!("{host}:{port}"));
    }
    let is_here = host == "localhost" || host.parse().is_ok_and(|address: IpAddr| address.is_loopback());
    if is(IpAddr::is_loopback) && !is_here {
        return tell(&format!(
            "is {listener}, which is reachable only from its own machine: run ottla doctor there, or use --admin with a tunnel"
        ));
    }
    Ok(listener.to_owned())
}

/// Removes `http://`: addresses are pasted from ready lines, which print URLs.
fn without_scheme(address: &str) -> &str {
    address.trim_start_matches("http://").trim_end_matches('/')
}

/// A running doctor, and what is stated here of its clients: the doctor does not learn of it.
#[derive(Clone)]
pub struct Source {
    pub address: String,
    pub statements: Statements,
}

impl Source {
    /// Returns the diagnoses of all clients, the worst first.
    ///
    /// - Errors: no answer, or one of another version.
    pub fn examination(&self) -> Result<Examination, Failure> {
        let address = &self.address;
        let text = ask::ask(address, "GET", "/doctor", ANSWER_BYTES_MAX)
            .map_err(|error| unreachable(address, &error))?;
        let mut examination = read_examination(&text)
            .map_err(|problem| Failure::unanswered(format!("{address}: {problem}")))?;
        if !self.statements.is_empty() {
            let examined = replay::examined(&self.snapshots()?, examination.at_ms);
            examination.clients = examined.clients;
        }
        Ok(examination)
    }

    /// Returns the readings on which the diagnoses are based.
    pub fn snapshots(&self) -> Result<Vec<Snapshot>, Failure> {
        let address = &self.address;
        let text = ask::ask(address, "GET", "/doctor/snapshots", ANSWER_BYTES_MAX)
            .map_err(|error| unreachable(address, &error))?;
        let snapshots = serde_json::from_str(&text)
            .map_err(|error| Failure::unanswered(format!("{address}: /doctor/snapshots: {error}")))?;
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

pub fn unreachable(address: &str, error: &std::io::Error) -> Failure {
    let hint = match error.kind() {
        std::io::ErrorKind::ConnectionRefused => {
            "; is ottla serve or ottla doctor collect running there? --admin, --collector or --bootstrap-server select another address"
        }
        _ => "",
    };
    Failure::unanswered(format!("{address}: {error}{hint}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::doctor::sample;

    #[test]
    fn an_admin_address_is_resolved_relative_to_the_brokers_host() {
        let check = |listener: &str, host: &str, expected: &str| {
            let found = reachable(listener, host).map_err(|failure| failure.text);
            match expected.strip_prefix("error: ") {
                Some(part) => assert!(found.as_ref().is_err_and(|text| text.contains(part)), "{found:?}"),
                None => assert_eq!(found.as_deref(), Ok(expected)),
            }
        };
        check("127.0.0.1:9644", "127.0.0.1", "127.0.0.1:9644");
        check("127.0.0.1:9644", "localhost", "127.0.0.1:9644");
        check(
            "127.0.0.1:9644",
            "10.0.0.7",
            "error: reachable only from its own machine",
        );
        check("0.0.0.0:9644", "10.0.0.7", "10.0.0.7:9644");
        check("[::]:9644", "fd00::7", "[fd00::7]:9644");
        check(":9644", "kafka", "kafka:9644");
        check("kafka:9644", "10.0.0.7", "kafka:9644");
        check("", "kafka", "error: switched off");
        check("127.0.0.1:0", "127.0.0.1", "error: --admin");
    }

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
