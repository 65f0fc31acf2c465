//! The clusters on which a scenario runs: those named by the user, and an embedded broker.

use std::path::{Path, PathBuf};

use ottla_broker::Broker;
use ottla_client::config::Config;
use ottla_lab::ask::Door;
use ottla_lab::bench::target::Access;
use ottla_lab::scenario::model::Scenario;
use ottla_lab::scenario::sweep;

use super::Failure;
use super::arguments::Run;
use super::listeners::Listeners;
use crate::cli::admin_address::without_scheme;

/// The clusters of a run; dropping this stops the embedded broker.
pub struct Clusters {
    accesses: Vec<Access>,
    embedded: Option<Broker>,
    data: PathBuf,
}

impl Clusters {
    /// Prepares access to the clusters and starts the embedded broker if there is one.
    ///
    /// - Errors: settings that cannot be read, a broker that cannot be started.
    pub fn reach(arguments: &Run, scenario: &Scenario) -> Result<Clusters, Failure> {
        let settings = settings(&arguments.client.read()?);
        let token = arguments.token.read()?;
        let admin = arguments.admin.as_deref();
        let admin = admin.map(|address| Door::new(without_scheme(address)).with_token(token));
        let mut accesses: Vec<Access> = arguments
            .bootstrap_servers
            .iter()
            .enumerate()
            .map(|(index, bootstrap)| Access {
                bootstrap: bootstrap.clone(),
                settings: settings.clone(),
                admin: admin.clone().filter(|_| index == 0),
                process: arguments.broker_pid.get(index).copied(),
                ..Access::default()
            })
            .collect();
        let mut clusters = Clusters {
            accesses: Vec::new(),
            embedded: None,
            data: std::env::current_dir().unwrap_or_default(),
        };
        if accesses.is_empty() || arguments.embedded {
            let (broker, access) = embed(scenario)?;
            clusters.data = std::env::temp_dir();
            clusters.embedded = Some(broker);
            accesses.push(access);
        } else if !scenario.broker.is_empty() {
            let keys: Vec<&str> = scenario.broker.keys().map(String::as_str).collect();
            eprintln!(
                "ottla bench: the scenario's broker settings are not applied to {}: {}",
                arguments.bootstrap_servers.join(" and "),
                keys.join(", ")
            );
        }
        clusters.accesses = accesses;
        Ok(clusters)
    }

    pub fn accesses(&self) -> &[Access] {
        &self.accesses
    }

    /// The directory whose disk is probed.
    pub fn data(&self) -> &Path {
        &self.data
    }
}

/// Starts a broker in this process, in a temporary directory that is removed with it.
pub fn embed(scenario: &Scenario) -> Result<(Broker, Access), Failure> {
    let points = sweep::points(scenario).map_err(Failure::usage)?;
    let wanted = points.iter().map(|point| point.scenario.security).collect();
    let listeners = Listeners::new(wanted).map_err(Failure::failed)?;
    let of_broker = listeners.of_broker();
    let mut properties = vec![("ottla.admin.listener", "127.0.0.1:0")];
    properties.extend(
        of_broker
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_str())),
    );
    properties.extend(
        scenario
            .broker
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_str())),
    );
    let broker = Broker::start_temporary(&properties).map_err(Failure::failed)?;
    let access = Access {
        name: format!("Ottla {}, embedded", env!("CARGO_PKG_VERSION")),
        bootstrap: broker.address().to_string(),
        admin: (broker.admin_address()).map(|address| Door::new(address.to_string())),
        is_embedded: true,
        listeners: listeners.of_clients(&broker),
        ..Access::default()
    };
    Ok((broker, access))
}

fn settings(config: &Config) -> Vec<(String, String)> {
    let pair = |key: &str| Some((key.to_owned(), config.get(key)?.to_owned()));
    config.keys().filter_map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ottla_client::Error;
    use ottla_client::admin::Admin;
    use ottla_lab::scenario::catalog;
    use ottla_lab::scenario::model::Security;

    fn reach(access: &Access) -> Result<usize, Error> {
        let config = access.config().set("default.api.timeout.ms", "5000");
        let admin = Admin::new(&config.set("request.timeout.ms", "5000"))?;
        admin.describe_cluster().wait().map(|cluster| cluster.nodes.len())
    }

    #[test]
    fn the_embedded_broker_has_a_listener_for_each_point() {
        let (_broker, access) = embed(&catalog::find("tls").unwrap()).unwrap();
        let all = [
            Security::Plaintext,
            Security::Ssl,
            Security::SaslSsl,
            Security::Mtls,
        ];
        let mut addresses: Vec<String> = all.map(|security| access.at(security).bootstrap).into();
        for security in all {
            assert_eq!(reach(&access.at(security)).unwrap(), 1, "{security:?}");
        }
        // Each asks for what its name says.
        for (listener, client) in [
            (Security::Ssl, Security::Plaintext),
            (Security::SaslSsl, Security::Ssl),
            (Security::Mtls, Security::Ssl),
        ] {
            let mut lacking = access.at(client);
            lacking.bootstrap = access.at(listener).bootstrap;
            assert!(reach(&lacking).is_err(), "{client:?} at {listener:?}");
        }
        addresses.sort_unstable();
        addresses.dedup();
        assert_eq!(addresses.len(), all.len());
    }

    #[test]
    fn a_scenario_without_tls_has_one_listener() {
        let (broker, access) = embed(&catalog::find("canonical").unwrap()).unwrap();
        assert_eq!(access.bootstrap, broker.address().to_string());
        assert_eq!(access.listeners.len(), 1);
        assert_eq!(broker.address_of("SSL"), None);
    }
}
