//! Ottla's admin address: named, or asked of a broker.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::Args;
use ottla_client::admin::{Admin, ConfigResource, ConfigResourceKind};
use ottla_lab::ask::Door;

use super::command_config::CommandConfig;
use super::output::Failure;

/// Ottla's own default (`ottla.admin.listener`).
const ADMIN_ADDRESS: &str = "127.0.0.1:9644";

/// The broker's setting that names the admin address.
const ADMIN_KEY: &str = "ottla.admin.listener";

/// Longer than any token of an admin address.
const TOKEN_BYTES_MAX: usize = 1_024;

#[derive(Args, Clone, Debug, Default)]
pub struct AdminAddress {
    /// A Kafka address of the cluster, `host:port`: an Ottla broker is asked for its admin address
    #[arg(long, value_name = "SERVERS", conflicts_with = "admin")]
    pub bootstrap_server: Option<String>,

    #[command(flatten)]
    pub client: CommandConfig,

    /// Ottla's admin address (ottla.admin.listener), `host:port` [default: 127.0.0.1:9644]
    #[arg(long, value_name = "ADDRESS")]
    pub admin: Option<String>,

    #[command(flatten)]
    pub token: TokenFile,
}

#[derive(Args, Clone, Debug, Default)]
pub struct TokenFile {
    /// File with the token of the admin address (the broker's ottla.admin.token.file; with an
    /// authorizer by default ottla.admin.token in the first of its log.dirs)
    #[arg(long, value_name = "FILE")]
    admin_token_file: Option<PathBuf>,
}

impl TokenFile {
    pub fn read(&self) -> Result<Option<String>, Failure> {
        let Some(path) = &self.admin_token_file else {
            return Ok(None);
        };
        let text = std::fs::read_to_string(path).map_err(|error| Failure::of_file(path, error))?;
        let token = text.trim_ascii();
        let is_token = !token.is_empty()
            && token.len() <= TOKEN_BYTES_MAX
            && token.bytes().all(|byte| byte.is_ascii_graphic());
        if !is_token {
            return Err(Failure::of_file(
                path,
                "this is not the token of an admin address",
            ));
        }
        Ok(Some(token.to_owned()))
    }
}

impl AdminAddress {
    /// Returns the admin address of an Ottla.
    ///
    /// - Errors: the cluster cannot be asked, is not Ottla, or its admin address cannot be reached
    ///   from here.
    pub fn door(&self) -> Result<Door, Failure> {
        self.door_of_ottla()?.ok_or_else(|| {
            let servers = self.bootstrap_server.as_deref().unwrap_or_default();
            Failure::unanswered(format!("{servers} is not Ottla: it has no {ADMIN_KEY}"))
        })
    }

    /// As [`AdminAddress::door`]; `None` if the cluster is not Ottla.
    pub fn door_of_ottla(&self) -> Result<Option<Door>, Failure> {
        // First: a file that cannot be read must not wait for a cluster.
        let token = self.token.read()?;
        let address = match (&self.admin, &self.bootstrap_server) {
            (Some(address), _) => Some(without_scheme(address).to_owned()),
            (None, Some(servers)) => self.of_cluster(servers)?,
            (None, None) => Some(ADMIN_ADDRESS.to_owned()),
        };
        Ok(address.map(|address| Door::new(address).with_token(token)))
    }

    /// Returns the admin address; `None` if the cluster is not Ottla.
    fn of_cluster(&self, servers: &str) -> Result<Option<String>, Failure> {
        let config = self.client.read()?;
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
pub fn without_scheme(address: &str) -> &str {
    address.trim_start_matches("http://").trim_end_matches('/')
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn a_file_that_holds_no_token_is_not_sent() {
        let path = std::env::temp_dir().join(format!("ottla-token-{}", std::process::id()));
        let read = |text: &[u8]| {
            std::fs::write(&path, text).unwrap();
            let token = TokenFile {
                admin_token_file: Some(path.clone()),
            };
            token.read().map_err(|failure| failure.text)
        };
        assert_eq!(
            read(b"0123456789abcdef\n"),
            Ok(Some("0123456789abcdef".to_owned()))
        );
        for text in [&b""[..], b"a b", b"a\r\nHost: evil", b"\xc3\xa4", &[b'a'; 2_000]] {
            assert!(read(text).is_err(), "{text:?}");
        }
        std::fs::remove_file(&path).unwrap();
    }
}
