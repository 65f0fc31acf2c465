//! The listeners of the embedded broker, and what a client needs to reach each of them. Keys and
//! certificates are made for one run, and known to this process only.

use std::collections::{BTreeMap, BTreeSet};

use ottla_broker::Broker;
use ottla_lab::bench::target::Listener;
use ottla_lab::scenario::model::Security;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

type Settings = Vec<(String, String)>;

const HOST: &str = "127.0.0.1";
const USER: &str = "bench";
const LOGIN_MODULE: &str = "org.apache.kafka.common.security.plain.PlainLoginModule";

/// What the broker and its clients show each other.
pub struct Listeners {
    wanted: BTreeSet<Security>,
    authority: String,
    broker: Identity,
    client: Identity,
    password: String,
}

/// A private key and its certificate, as PEM.
struct Identity {
    key: String,
    chain: String,
}

impl Listeners {
    /// - `wanted`: what the points of a scenario ask for.
    /// - Errors: of the random number generator.
    pub fn new(wanted: BTreeSet<Security>) -> Result<Listeners, rcgen::Error> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "ottla bench");
        let key = KeyPair::generate()?;
        let authority = params.self_signed(&key)?.pem();
        let issuer = Issuer::new(params, key);
        let (broker, client) = (Identity::new(&issuer)?, Identity::new(&issuer)?);
        Ok(Listeners {
            // As hard to guess as the key that it is made of.
            password: broker.key.chars().filter(char::is_ascii_alphanumeric).collect(),
            wanted,
            authority,
            broker,
            client,
        })
    }

    /// The settings of the broker.
    pub fn of_broker(&self) -> Settings {
        let names = |entry: fn(Security) -> String| {
            let secured = self
                .wanted
                .iter()
                .copied()
                .filter(|own| *own != Security::Plaintext);
            let all = [Security::Plaintext].into_iter().chain(secured);
            all.map(entry).collect::<Vec<String>>()
        };
        let listeners = names(|security| format!("{}://{HOST}:0", name(security))).join(",");
        let mut map = names(|security| format!("{}:{}", name(security), protocol(security)));
        map.push("CONTROLLER:PLAINTEXT".to_owned());
        let mut settings = settings(&[
            ("listeners", &listeners),
            ("listener.security.protocol.map", &map.join(",")),
        ]);
        if self
            .wanted
            .iter()
            .any(|security| *security != Security::Plaintext)
        {
            settings.extend(self.stores(&self.broker));
            let jaas = format!("{LOGIN_MODULE} required user_{USER}=\"{}\";", self.password);
            settings.extend(self::settings(&[
                ("sasl.enabled.mechanisms", "PLAIN"),
                ("listener.name.sasl_ssl.plain.sasl.jaas.config", &jaas),
                ("listener.name.mutual.ssl.client.auth", "required"),
            ]));
        }
        settings
    }

    /// Where clients reach a broker that was started with these settings, and how.
    pub fn of_clients(&self, broker: &Broker) -> BTreeMap<Security, Listener> {
        let listener = |security: &Security| {
            let address = broker.address_of(name(*security))?;
            let listener = Listener {
                bootstrap: address.to_string(),
                settings: self.of_client(*security),
            };
            Some((*security, listener))
        };
        self.wanted.iter().filter_map(listener).collect()
    }

    fn of_client(&self, security: Security) -> Settings {
        let mut settings = settings(&[("security.protocol", protocol(security))]);
        let trust = || settings_of_trust(&self.authority);
        match security {
            Security::Plaintext => {}
            Security::Ssl => settings.extend(trust()),
            Security::Mtls => settings.extend(self.stores(&self.client)),
            Security::SaslSsl => {
                settings.extend(trust());
                settings.extend(self::settings(&[
                    ("sasl.mechanism", "PLAIN"),
                    ("sasl.username", USER),
                    ("sasl.password", &self.password),
                ]));
            }
        }
        settings
    }

    fn stores(&self, own: &Identity) -> Settings {
        let mut settings = settings_of_trust(&self.authority);
        settings.extend(self::settings(&[
            ("ssl.keystore.type", "PEM"),
            ("ssl.keystore.key", &own.key),
            ("ssl.keystore.certificate.chain", &own.chain),
        ]));
        settings
    }
}

impl Identity {
    fn new(issuer: &Issuer<'_, KeyPair>) -> Result<Identity, rcgen::Error> {
        let key = KeyPair::generate()?;
        let certificate = CertificateParams::new(vec![HOST.to_owned()])?.signed_by(&key, issuer)?;
        Ok(Identity {
            chain: certificate.pem(),
            key: key.serialize_pem(),
        })
    }
}

fn settings_of_trust(authority: &str) -> Settings {
    settings(&[
        ("ssl.truststore.type", "PEM"),
        ("ssl.truststore.certificates", authority),
    ])
}

fn settings(pairs: &[(&str, &str)]) -> Settings {
    let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
    pairs.iter().map(owned).collect()
}

/// The name of the broker's listener.
fn name(security: Security) -> &'static str {
    match security {
        Security::Mtls => "MUTUAL",
        _ => protocol(security),
    }
}

fn protocol(security: Security) -> &'static str {
    match security {
        Security::Plaintext => "PLAINTEXT",
        Security::Ssl | Security::Mtls => "SSL",
        Security::SaslSsl => "SASL_SSL",
    }
}
