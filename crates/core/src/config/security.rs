//! How a listener is secured: its protocol, the SASL mechanisms it offers and their users, and its
//! TLS settings.
//!
//! A value is looked up with the listener's prefix and then without (KIP-103); one for a SASL
//! mechanism with the mechanism's name in between first (KIP-85). What cannot be served prevents
//! the start: a listener that accepts fewer checks than its file asks for would be open.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use ottla_wire::config_keys::ListenerKey;

use super::jaas::JaasEntry;
use super::listener::{Listener, SecurityProtocol};
use super::oauth::OauthSettings;
use super::sasl::{MechanismSettings, SaslMechanism, SaslSettings, Secret};
use super::{ConfigError, Properties, listener_prefix, words};

const MECHANISMS: &str = "sasl.enabled.mechanisms";
const JAAS: &str = "sasl.jaas.config";
const REAUTHENTICATION: &str = "connections.max.reauth.ms";
const RECEIVE_SIZE: &str = "sasl.server.max.receive.size";
const CALLBACK_HANDLER: &str = "sasl.server.callback.handler.class";
const PRINCIPAL_BUILDER: &str = "principal.builder.class";
const DEFAULT_PRINCIPAL_BUILDER: &str =
    "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder";

const TOKEN_VALIDATOR: &str = "sasl.oauthbearer.jwt.validator.class";

/// The class that checks signed tokens, in the packages of Kafka 4 and 3.
const TOKEN_HANDLERS: [&str; 2] = [
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler",
    "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerValidatorCallbackHandler",
];

/// What that class uses (KIP-1139).
const TOKEN_VALIDATORS: [&str; 2] = [
    "org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator",
    "org.apache.kafka.common.security.oauthbearer.BrokerJwtValidator",
];

/// Options of PlainLoginModule with this prefix are users.
const USER_OPTION: &str = "user_";

/// The security of one listener. Immutable: a change of settings makes a new value.
#[derive(Clone, PartialEq, Eq)]
pub struct ListenerSecurity {
    pub protocol: SecurityProtocol,
    /// `None` if the protocol is without SASL.
    pub sasl: Option<SaslSettings>,
    /// The `ssl.*` settings that apply: the listener's own, and the general ones it does not have.
    /// Some are secrets.
    pub ssl: BTreeMap<String, String>,
}

impl fmt::Debug for ListenerSecurity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ListenerSecurity")
            .field("protocol", &self.protocol)
            .field("sasl", &self.sasl)
            .field("ssl", &self.ssl.keys())
            .finish()
    }
}

/// The security of all listeners, by name.
pub type SecurityByListener = BTreeMap<Arc<str>, Arc<ListenerSecurity>>;

/// Reads the settings of every listener.
///
/// - Errors: the first setting that cannot be served.
pub(super) fn read(
    properties: &Properties<'_>,
    listeners: &[Listener],
    warnings: &mut Vec<String>,
) -> Result<SecurityByListener, ConfigError> {
    let mut security = SecurityByListener::new();
    for listener in listeners {
        let mut reader = ListenerReader::new(properties, &listener.name, warnings);
        let read = reader.security(listener.security_protocol)?;
        security.insert(listener.name.clone(), Arc::new(read));
    }
    Ok(security)
}

/// Returns the settings for tokens of all listeners that take them.
pub fn oauth_settings(security: &SecurityByListener) -> Vec<OauthSettings> {
    let with_sasl = security.values().filter_map(|security| security.sasl.as_ref());
    let mechanisms = with_sasl.flat_map(|sasl| &sasl.mechanisms);
    mechanisms.filter_map(|offered| offered.oauth.clone()).collect()
}

/// Whether a key may change the security of a listener.
pub fn is_of_security(key: &str) -> bool {
    let key = ListenerKey::parse(key).map_or(key, |own| own.key.name);
    ["sasl.", "ssl."].iter().any(|prefix| key.starts_with(prefix))
        || matches!(key, REAUTHENTICATION | PRINCIPAL_BUILDER)
}

/// A value and the key under which it was found.
struct Found<'a> {
    key: String,
    value: &'a str,
}

/// Looks up the settings of one listener.
struct ListenerReader<'a> {
    properties: &'a Properties<'a>,
    listener: &'a str,
    prefix: String,
    warnings: &'a mut Vec<String>,
}

impl<'a> ListenerReader<'a> {
    fn new(
        properties: &'a Properties<'a>,
        listener: &'a str,
        warnings: &'a mut Vec<String>,
    ) -> ListenerReader<'a> {
        ListenerReader {
            properties,
            listener,
            prefix: listener_prefix(listener),
            warnings,
        }
    }

    fn security(&mut self, protocol: SecurityProtocol) -> Result<ListenerSecurity, ConfigError> {
        if let Some(found) = self.find(PRINCIPAL_BUILDER)
            && found.value != DEFAULT_PRINCIPAL_BUILDER
        {
            return Err(self.error(&found, "classes of a Java program cannot be loaded here"));
        }
        Ok(ListenerSecurity {
            protocol,
            sasl: protocol.has_sasl().then(|| self.sasl(protocol)).transpose()?,
            ssl: self.ssl(),
        })
    }

    fn sasl(&mut self, protocol: SecurityProtocol) -> Result<SaslSettings, ConfigError> {
        let Some(enabled) = self.find(MECHANISMS) else {
            let problem = format!(
                "listener {} has SASL, but this is not set, and its default cannot be served: \
                 name PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER",
                self.listener
            );
            return Err(ConfigError::new(MECHANISMS, "GSSAPI", problem));
        };
        let mut mechanisms = Vec::<MechanismSettings>::new();
        for name in words(enabled.value) {
            let mechanism =
                SaslMechanism::from_name(name).ok_or_else(|| self.error(&enabled, &unserved(name)))?;
            if mechanisms.iter().all(|other| other.mechanism != mechanism) {
                mechanisms.push(self.mechanism(mechanism, protocol)?);
            }
        }
        if mechanisms.is_empty() {
            return Err(self.error(&enabled, "names no mechanism"));
        }
        self.warn_about_jaas_without_mechanism();
        let request_bytes_max = self.number(RECEIVE_SIZE, None)?;
        Ok(SaslSettings {
            mechanisms,
            request_bytes_max: i32::try_from(request_bytes_max).expect("the table says that it is an int"),
        })
    }

    fn mechanism(
        &mut self,
        mechanism: SaslMechanism,
        protocol: SecurityProtocol,
    ) -> Result<MechanismSettings, ConfigError> {
        if let Some(found) = self.find_of(mechanism, CALLBACK_HANDLER)
            && mechanism != SaslMechanism::OauthBearer
        {
            return Err(self.error(&found, "classes of a Java program cannot be loaded here"));
        }
        let users = match mechanism {
            SaslMechanism::Plain => self.plain_users(protocol)?,
            SaslMechanism::ScramSha256 | SaslMechanism::ScramSha512 | SaslMechanism::OauthBearer => {
                self.jaas(mechanism)?;
                BTreeMap::new()
            }
        };
        let has_tokens = mechanism == SaslMechanism::OauthBearer;
        let oauth = has_tokens.then(|| self.oauth(protocol)).transpose()?;
        let session_ms = self.number(REAUTHENTICATION, Some(mechanism))?;
        Ok(MechanismSettings {
            mechanism,
            session_ms: u64::try_from(session_ms).ok().filter(|ms| *ms > 0),
            users,
            oauth,
        })
    }

    fn oauth(&mut self, protocol: SecurityProtocol) -> Result<OauthSettings, ConfigError> {
        const MECHANISM: SaslMechanism = SaslMechanism::OauthBearer;
        self.check_class(CALLBACK_HANDLER, &TOKEN_HANDLERS)?;
        if self.find_of(MECHANISM, TOKEN_VALIDATOR).is_some() {
            self.check_class(TOKEN_VALIDATOR, &TOKEN_VALIDATORS)?;
        }
        let Some(url) = self.find_of(MECHANISM, "sasl.oauthbearer.jwks.endpoint.url") else {
            let key = self.key_of(MECHANISM, "sasl.oauthbearer.jwks.endpoint.url");
            let problem = format!(
                "listener {} offers OAUTHBEARER, but where the public keys of the identity provider are is not set",
                self.listener
            );
            return Err(ConfigError::new(&key, "", problem));
        };
        let text = |key: &str| self.find_of(MECHANISM, key).map(|found| found.value.to_owned());
        let milliseconds = |key| Ok(u64::try_from(self.number(key, Some(MECHANISM))?).unwrap_or(0));
        let audiences = text("sasl.oauthbearer.expected.audience").unwrap_or_default();
        let settings = OauthSettings {
            keys_url: url.value.into(),
            refresh_ms: milliseconds("sasl.oauthbearer.jwks.endpoint.refresh.ms")?,
            retry_ms: (
                milliseconds("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms")?,
                milliseconds("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms")?,
            ),
            audiences: words(&audiences).map(str::to_owned).collect(),
            issuer: text("sasl.oauthbearer.expected.issuer"),
            subject_claim: text("sasl.oauthbearer.sub.claim.name").unwrap_or_else(|| "sub".to_owned()),
            scope_claim: text("sasl.oauthbearer.scope.claim.name").unwrap_or_else(|| "scope".to_owned()),
            skew_seconds: milliseconds("sasl.oauthbearer.clock.skew.seconds")?,
        };
        self.warn_about_tokens(&settings, protocol);
        Ok(settings)
    }

    fn warn_about_tokens(&mut self, settings: &OauthSettings, protocol: SecurityProtocol) {
        let listener = self.listener;
        if settings.audiences.is_empty() {
            self.warnings.push(format!(
                "listener {listener} accepts every token of its identity provider, whatever it was issued for: \
                 set sasl.oauthbearer.expected.audience"
            ));
        }
        if settings.issuer.is_none() {
            self.warnings.push(format!(
                "listener {listener} accepts tokens that name another issuer, if the keys are the same: \
                 set sasl.oauthbearer.expected.issuer"
            ));
        }
        if !protocol.has_tls() {
            self.warnings.push(format!(
                "listener {listener} offers OAUTHBEARER without TLS: tokens are readable on the network"
            ));
        }
    }

    /// Whether a key names one of the classes whose work is done here.
    fn check_class(&self, key: &str, known: &[&str]) -> Result<(), ConfigError> {
        let Some(found) = self.find_of(SaslMechanism::OauthBearer, key) else {
            let key = self.key_of(SaslMechanism::OauthBearer, key);
            let problem = format!(
                "listener {} offers OAUTHBEARER: must be {}, since Apache Kafka's default accepts tokens without a signature",
                self.listener, known[0]
            );
            return Err(ConfigError::new(&key, "", problem));
        };
        if known.contains(&found.value) {
            return Ok(());
        }
        Err(self.error(
            &found,
            &format!("must be {}: other classes cannot be loaded", known[0]),
        ))
    }

    fn plain_users(&mut self, protocol: SecurityProtocol) -> Result<BTreeMap<Arc<str>, Secret>, ConfigError> {
        let key = self.key_of(SaslMechanism::Plain, JAAS);
        let Some(entry) = self.jaas(SaslMechanism::Plain)? else {
            let problem = format!(
                "listener {} offers PLAIN, but its users are not set here; a JAAS file \
                 (java.security.auth.login.config) is not read",
                self.listener
            );
            return Err(ConfigError::new(&key, "", problem));
        };
        let users = entry.options.iter().filter_map(|(option, value)| {
            let user = option.strip_prefix(USER_OPTION)?;
            Some((Arc::from(user), Secret::new(value)))
        });
        let users: BTreeMap<Arc<str>, Secret> = users.collect();
        if users.is_empty() {
            self.warnings.push(format!(
                "{key} has no option {USER_OPTION}<name>: no client can authenticate with PLAIN"
            ));
        }
        if !protocol.has_tls() {
            self.warnings.push(format!(
                "listener {} offers PLAIN without TLS: passwords are readable on the network",
                self.listener
            ));
        }
        Ok(users)
    }

    /// The entry for a mechanism; only a value for this listener and this mechanism counts, as in
    /// Kafka.
    fn jaas(&self, mechanism: SaslMechanism) -> Result<Option<JaasEntry>, ConfigError> {
        let key = self.key_of(mechanism, JAAS);
        let Some(text) = self.properties.text(&key) else {
            return Ok(None);
        };
        let error = |problem: &str| ConfigError::new(&key, text, problem);
        let entry = JaasEntry::parse(text).map_err(error)?;
        if entry.module != mechanism.login_module() {
            return Err(error(&format!("must name {}", mechanism.login_module())));
        }
        Ok(Some(entry))
    }

    fn warn_about_jaas_without_mechanism(&mut self) {
        for key in [format!("{}{JAAS}", self.prefix), JAAS.to_owned()] {
            if self.properties.text(&key).is_some() {
                self.warnings.push(format!(
                    "{key} has no effect: the key must name the listener and the mechanism, as in {}",
                    self.key_of(SaslMechanism::Plain, JAAS)
                ));
            }
        }
    }

    fn ssl(&self) -> BTreeMap<String, String> {
        let own = |key: &str| key.strip_prefix(self.prefix.as_str()).map(str::to_owned);
        let is_ssl = |key: &String| key.starts_with("ssl.");
        let general = self.properties.values.iter();
        let mut settings: BTreeMap<String, String> = general
            .filter(|(key, _)| is_ssl(key))
            .map(|(key, value)| (key.clone(), value.trim().to_owned()))
            .collect();
        for (key, value) in self.properties.values {
            if let Some(key) = own(key).filter(is_ssl) {
                settings.insert(key, value.trim().to_owned());
            }
        }
        settings
    }

    fn number(&self, key: &'static str, mechanism: Option<SaslMechanism>) -> Result<i64, ConfigError> {
        let found = match mechanism {
            Some(mechanism) => self.find_of(mechanism, key),
            None => self.find(key),
        };
        match found {
            Some(found) => self.properties.long_at(&found.key, key),
            None => self.properties.long(key),
        }
    }

    fn find_of(&self, mechanism: SaslMechanism, key: &str) -> Option<Found<'a>> {
        self.look(self.key_of(mechanism, key)).or_else(|| self.find(key))
    }

    fn find(&self, key: &str) -> Option<Found<'a>> {
        self.look(format!("{}{key}", self.prefix))
            .or_else(|| self.look(key.to_owned()))
    }

    fn look(&self, key: String) -> Option<Found<'a>> {
        let value = self.properties.text(&key)?;
        Some(Found { key, value })
    }

    fn key_of(&self, mechanism: SaslMechanism, key: &str) -> String {
        format!("{}{}.{key}", self.prefix, mechanism.name().to_lowercase())
    }

    fn error(&self, found: &Found<'_>, problem: &str) -> ConfigError {
        let problem = format!("listener {}: {problem}", self.listener);
        ConfigError::new(&found.key, found.value, problem)
    }
}

fn unserved(mechanism: &str) -> String {
    let reason = match mechanism {
        "GSSAPI" => "GSSAPI (Kerberos) is not served",
        _ => return format!("no mechanism {mechanism} is served"),
    };
    format!("{reason}; PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 and OAUTHBEARER are")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::NodeConfig;

    const PLAIN: &str = "org.apache.kafka.common.security.plain.PlainLoginModule";
    const SASL: (&str, &str) = ("listeners", "SASL_PLAINTEXT://127.0.0.1:9092");
    const JAAS_OF_PLAIN: &str = "listener.name.sasl_plaintext.plain.sasl.jaas.config";

    fn config(lines: &[(&str, &str)]) -> Result<NodeConfig, ConfigError> {
        let lines = lines
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        NodeConfig::from_properties(&lines.collect(), [0; 4])
    }

    #[track_caller]
    fn sasl(lines: &[(&str, &str)]) -> SaslSettings {
        let config = config(&[&[SASL], lines].concat()).unwrap();
        config.security["SASL_PLAINTEXT"].sasl.clone().unwrap()
    }

    #[track_caller]
    fn check_refused(lines: &[(&str, &str)], key: &str, part: &str) {
        let error = config(&[&[SASL], lines].concat()).unwrap_err();
        assert_eq!(error.key, key);
        assert!(error.to_string().contains(part), "{error}");
        assert!(!error.to_string().contains("wonderland"), "{error}");
    }

    fn jaas(options: &str) -> String {
        format!("{PLAIN} required {options};")
    }

    #[test]
    fn a_listener_without_sasl_needs_no_setting() {
        let config = config(&[]).unwrap();
        let security = &config.security["PLAINTEXT"];
        assert_eq!(
            (security.protocol, &security.sasl),
            (SecurityProtocol::Plaintext, &None)
        );
    }

    #[test]
    fn users_of_plain_are_the_options_of_its_login_module() {
        let text = jaas("username=\"broker\" password=\"x\" user_alice=\"wonderland\" user_=\"e\"");
        let settings = sasl(&[("sasl.enabled.mechanisms", "PLAIN"), (JAAS_OF_PLAIN, &text)]);
        let users: Vec<(&str, &str)> = settings.mechanisms[0]
            .users
            .iter()
            .map(|(user, password)| (&**user, password.reveal()))
            .collect();
        assert_eq!(users, [("", "e"), ("alice", "wonderland")]);
        assert!(!format!("{settings:?}").contains("wonderland"));
    }

    #[test]
    fn secrets_are_in_no_debug_output_of_the_configuration() {
        let text = jaas("user_alice=\"wonderland\"");
        let config = config(&[
            SASL,
            ("sasl.enabled.mechanisms", "PLAIN"),
            (JAAS_OF_PLAIN, &text),
            ("ssl.keystore.password", "wonderland"),
        ]);
        assert!(!format!("{:?}", config.unwrap()).contains("wonderland"));
    }

    #[test]
    fn mechanisms_are_offered_in_the_order_of_the_file() {
        let settings = sasl(&[(
            "sasl.enabled.mechanisms",
            "SCRAM-SHA-512, SCRAM-SHA-256,SCRAM-SHA-512",
        )]);
        let names: Vec<&str> = settings
            .mechanisms
            .iter()
            .map(|offered| offered.mechanism.name())
            .collect();
        assert_eq!(names, ["SCRAM-SHA-512", "SCRAM-SHA-256"]);
        assert_eq!(settings.request_bytes_max, 524_288);
    }

    #[test]
    fn the_value_with_the_longest_prefix_counts() {
        let lines = [
            ("sasl.enabled.mechanisms", "PLAIN"),
            (
                "listener.name.sasl_plaintext.sasl.enabled.mechanisms",
                "SCRAM-SHA-256,SCRAM-SHA-512",
            ),
            ("connections.max.reauth.ms", "1000"),
            ("listener.name.sasl_plaintext.connections.max.reauth.ms", "2000"),
            (
                "listener.name.sasl_plaintext.scram-sha-512.connections.max.reauth.ms",
                "3000",
            ),
            ("listener.name.other.connections.max.reauth.ms", "4000"),
        ];
        let sessions = |lines: &[(&str, &str)]| -> Vec<Option<u64>> {
            sasl(lines)
                .mechanisms
                .iter()
                .map(|offered| offered.session_ms)
                .collect()
        };
        assert_eq!(sessions(&lines), [Some(2_000), Some(3_000)]);
        assert_eq!(sessions(&lines[..3]), [Some(1_000); 2]);
        assert_eq!(sessions(&lines[..2]), [None; 2]);
        let own = [
            ("ssl.client.auth", "none"),
            ("listener.name.sasl_plaintext.ssl.client.auth", "required"),
            ("ssl.protocol", "TLSv1.2"),
            ("listener.name.other.ssl.protocol", "TLSv1.3"),
        ];
        let config = config(&[&[SASL], &lines[..2], &own].concat()).unwrap();
        let ssl = &config.security["SASL_PLAINTEXT"].ssl;
        assert_eq!(
            (&*ssl["ssl.client.auth"], &*ssl["ssl.protocol"]),
            ("required", "TLSv1.2")
        );
        assert_eq!(ssl.len(), 2);
    }

    #[test]
    fn what_cannot_be_served_prevents_the_start() {
        const ENABLED: &str = "sasl.enabled.mechanisms";
        check_refused(&[], ENABLED, "SASL_PLAINTEXT");
        check_refused(&[(ENABLED, "GSSAPI")], ENABLED, "Kerberos");
        check_refused(
            &[(ENABLED, "scram-sha-256")],
            ENABLED,
            "no mechanism scram-sha-256",
        );
        check_refused(&[(ENABLED, ",")], ENABLED, "names no mechanism");
        check_refused(&[(ENABLED, "PLAIN")], JAAS_OF_PLAIN, "JAAS file");
        let class = "listener.name.sasl_plaintext.plain.sasl.server.callback.handler.class";
        check_refused(&[(ENABLED, "PLAIN"), (class, "a.B")], class, "Java");
        check_refused(
            &[(ENABLED, "SCRAM-SHA-256"), ("principal.builder.class", "a.B")],
            "principal.builder.class",
            "Java",
        );
        // A broken value of the listener's own is not replaced by the general one.
        let own = "listener.name.sasl_plaintext.connections.max.reauth.ms";
        check_refused(&[(ENABLED, "SCRAM-SHA-256"), (own, "soon")], own, "soon");
    }

    #[test]
    fn tokens_need_the_class_that_checks_signatures_and_the_place_of_the_keys() {
        const OWN: &str = "listener.name.sasl_plaintext.oauthbearer.";
        let key = |name: &str| format!("{OWN}{name}");
        let (handler, url) = (
            key("sasl.server.callback.handler.class"),
            key("sasl.oauthbearer.jwks.endpoint.url"),
        );
        let enabled = ("sasl.enabled.mechanisms", "OAUTHBEARER");
        // Apache Kafka's default accepts tokens without a signature.
        check_refused(&[enabled], &handler, "without a signature");
        check_refused(&[enabled, (&handler, "a.B")], &handler, "cannot be loaded");
        let right = [enabled, (handler.as_str(), TOKEN_HANDLERS[1])];
        check_refused(&right, &url, "is not set");
        let own_validator = key(TOKEN_VALIDATOR);
        check_refused(
            &[&right[..], &[(&url, "file:///k"), (&own_validator, "a.B")]].concat(),
            &own_validator,
            "cannot be loaded",
        );
        let lines = [
            &right[..],
            &[
                (&url, "file:///k"),
                ("sasl.oauthbearer.expected.audience", "a, b"),
                ("sasl.oauthbearer.sub.claim.name", "email"),
                ("sasl.oauthbearer.clock.skew.seconds", "7"),
            ],
        ];
        let sasl = sasl(&lines.concat());
        let oauth = sasl.mechanisms[0].oauth.as_ref().unwrap();
        assert_eq!((&*oauth.keys_url, oauth.skew_seconds), ("file:///k", 7));
        assert_eq!(oauth.audiences, ["a", "b"]);
        assert_eq!((&*oauth.subject_claim, &oauth.issuer), ("email", &None));
        assert_eq!((oauth.refresh_ms, oauth.retry_ms), (3_600_000, (100, 10_000)));
        let warned = config(&[&[SASL], &lines.concat()[..]].concat()).unwrap().warnings;
        let warned = |about: &str| warned.iter().any(|warning| warning.ends_with(about));
        assert!(warned("set sasl.oauthbearer.expected.issuer"));
        assert!(!warned("set sasl.oauthbearer.expected.audience"));
    }

    #[test]
    fn a_broken_jaas_entry_is_refused_without_its_passwords() {
        let check = |text: &str, part: &str| {
            check_refused(
                &[("sasl.enabled.mechanisms", "PLAIN"), (JAAS_OF_PLAIN, text)],
                JAAS_OF_PLAIN,
                part,
            );
        };
        check("a.B required user_alice=\"wonderland\";", "PlainLoginModule");
        check(&jaas("user_alice=\"wonderland"), "quotation mark");
        let scram = "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config";
        check_refused(
            &[
                ("sasl.enabled.mechanisms", "SCRAM-SHA-256"),
                (scram, &jaas("user_alice=\"wonderland\"")),
            ],
            scram,
            "ScramLoginModule",
        );
    }

    #[test]
    fn what_has_no_effect_or_shows_passwords_is_reported() {
        let text = jaas("");
        let config = config(&[
            SASL,
            ("sasl.enabled.mechanisms", "PLAIN"),
            (JAAS_OF_PLAIN, &text),
            ("sasl.jaas.config", &text),
            ("listener.name.sasl_plaintext.sasl.jaas.config", &text),
        ]);
        let all = config.unwrap().warnings.join("\n");
        for expected in [
            "no client can authenticate with PLAIN",
            "readable on the network",
            "\nsasl.jaas.config has no effect",
            "listener.name.sasl_plaintext.sasl.jaas.config has no effect",
        ] {
            assert!(all.contains(expected), "{expected} is not in {all}");
        }
    }
}
