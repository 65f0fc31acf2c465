//! `sasl.oauthbearer.*` and `sasl.login.*`: where the token of OAUTHBEARER comes from.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::jaas::Login;
use super::security::{Password, SaslMechanism, login};
use super::settings::{Settings, config_error, invalid};
use crate::error::{Error, Feature};

const JAAS: &str = "sasl.jaas.config";
const TOKEN: &str = "sasl.oauthbearer.token";
const URL: &str = "sasl.oauthbearer.token.endpoint.url";

/// What the client shows with OAUTHBEARER.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct OauthSettings {
    /// Where the token is.
    pub source: TokenSource,
    /// `extension_<name>="<value>"` of `sasl.jaas.config` (KIP-342): names and values.
    pub extensions: Vec<(String, String)>,
}

/// Where a token comes from.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum TokenSource {
    /// `sasl.oauthbearer.token`.
    Inline(Password),
    /// The file of `sasl.oauthbearer.token.endpoint.url`, read at every authentication.
    File(PathBuf),
    /// The server of `sasl.oauthbearer.token.endpoint.url`, asked before the first connection and
    /// again before each token ends.
    Server(Box<TokenServer>),
}

/// A server that gives tokens for the id and the secret of a client (RFC 6749, 4.4; KIP-768 and
/// KIP-1139).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct TokenServer {
    /// `http://` or `https://`.
    pub url: String,
    /// `sasl.oauthbearer.client.credentials.client.id`, or `clientId` of `sasl.jaas.config`.
    pub client_id: String,
    /// `sasl.oauthbearer.client.credentials.client.secret`, or `clientSecret`.
    pub client_secret: Password,
    /// `sasl.oauthbearer.scope`, or `scope`.
    pub scope: Option<String>,
    /// `sasl.oauthbearer.header.urlencode`: whether id and secret are percent-encoded before they
    /// become the password of HTTP, as RFC 6749 asks for.
    pub encodes_header: bool,
    /// `sasl.login.connect.timeout.ms`; 10 s where it is not set.
    pub connect_timeout: Duration,
    /// `sasl.login.read.timeout.ms`, for the whole answer; 10 s where it is not set.
    pub read_timeout: Duration,
    /// `sasl.login.retry.backoff.ms`: before the second attempt; doubled before each further one.
    pub retry_backoff_ms: u64,
    /// `sasl.login.retry.backoff.max.ms`: how long one login is tried in all.
    pub retry_backoff_ms_max: u64,
    /// When a token is replaced.
    pub refresh: TokenRefresh,
    /// The token that the login has got last: no setting, but what the settings led to.
    pub(crate) current: CurrentToken,
}

/// `sasl.login.refresh.*`.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct TokenRefresh {
    /// `sasl.login.refresh.window.factor`: after which part of its life a token is replaced.
    pub factor: f64,
    /// `sasl.login.refresh.window.jitter`: the most that chance adds to it.
    pub jitter: f64,
    /// `sasl.login.refresh.min.period.seconds`.
    pub period_min: Duration,
    /// `sasl.login.refresh.buffer.seconds`: how long before its end a token is replaced at the
    /// latest.
    pub buffer: Duration,
}

/// The token that connections show; written by the login, read at every authentication.
#[derive(Clone, Default)]
pub(crate) struct CurrentToken(Arc<Mutex<Option<Password>>>);

impl CurrentToken {
    #[cfg(feature = "oauth")]
    pub fn put(&self, token: Password) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(token);
    }

    pub fn get(&self) -> Option<Password> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl fmt::Debug for CurrentToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[hidden]")
    }
}

impl PartialEq for CurrentToken {
    /// Settings are equal whatever token they led to.
    fn eq(&self, _other: &CurrentToken) -> bool {
        true
    }
}

/// - Errors: a class of a Java program that has no counterpart here.
pub(super) fn check_classes(settings: &Settings) -> Result<(), Error> {
    const PACKAGE: &str = "org.apache.kafka.common.security.oauthbearer.";
    // The packages of Kafka 4 and 3 (KIP-768).
    let handlers = [
        "OAuthBearerLoginCallbackHandler",
        "secured.OAuthBearerLoginCallbackHandler",
    ];
    // KIP-1139; each follows from the URL.
    let retrievers = [
        "DefaultJwtRetriever",
        "ClientCredentialsJwtRetriever",
        "FileJwtRetriever",
    ];
    for (key, known, why) in [
        (
            "sasl.login.callback.handler.class",
            &handlers[..],
            "classes of a Java program cannot be loaded here",
        ),
        (
            "sasl.oauthbearer.jwt.retriever.class",
            &retrievers[..],
            "this client gets tokens from a file, or from a server by a client's id and secret",
        ),
    ] {
        let is_known = |class: &str| {
            let name = class.strip_prefix(PACKAGE);
            name.is_some_and(|name| known.contains(&name))
        };
        match settings.filled(key) {
            Some(class) if !is_known(class) => return Err(invalid(key, class, why)),
            _ => {}
        }
    }
    Ok(())
}

impl OauthSettings {
    pub(super) fn new(settings: &Settings) -> Result<OauthSettings, Error> {
        for key in ["sasl.username", "sasl.password"] {
            if settings.is_written(key) {
                return Err(config_error(
                    key,
                    format!("{key} is not for OAUTHBEARER: it has a token"),
                ));
            }
        }
        let login = settings
            .filled(JAAS)
            .map(|text| login(text, SaslMechanism::OauthBearer));
        let login = login.transpose()?;
        let source = source(settings, login.as_ref())?;
        let extensions = login.map_or_else(|| Ok(Vec::new()), |login| extensions(&login, &source))?;
        Ok(OauthSettings { source, extensions })
    }
}

fn source(settings: &Settings, login: Option<&Login>) -> Result<TokenSource, Error> {
    match (settings.filled(TOKEN), settings.filled(URL)) {
        (Some(_), Some(_)) => Err(config_error(
            TOKEN,
            format!("{TOKEN} cannot be set together with {URL}"),
        )),
        (Some(token), None) => Ok(TokenSource::Inline(Password::new(token))),
        (None, Some(url)) if url.starts_with("http://") || url.starts_with("https://") => {
            settings.needs(Feature::Oauth, URL, url)?;
            TokenServer::new(settings, login, url).map(|server| TokenSource::Server(Box::new(server)))
        }
        (None, Some(url)) => {
            let path = token_path(url).map_err(|why| invalid(URL, url, why))?;
            Ok(TokenSource::File(path.into()))
        }
        (None, None) => Err(config_error(
            URL,
            format!("OAUTHBEARER needs {URL} (https://…, http://… or file:///PATH), or {TOKEN}"),
        )),
    }
}

/// `file:/path`, `file:///path` and `file://localhost/path`.
fn token_path(url: &str) -> Result<&str, &'static str> {
    let Some(rest) = url.strip_prefix("file:") else {
        return Err("no URL of https://, http:// or file:///");
    };
    let path = match rest.strip_prefix("//") {
        Some(authority) => authority.strip_prefix("localhost").unwrap_or(authority),
        None => rest,
    };
    match path {
        _ if !path.starts_with('/') => Err("the path must be absolute: file:///PATH"),
        _ if path.contains('%') => Err("write the path without percent signs"),
        path => Ok(path),
    }
}

impl TokenServer {
    fn new(settings: &Settings, login: Option<&Login>, url: &str) -> Result<TokenServer, Error> {
        const ID: &str = "sasl.oauthbearer.client.credentials.client.id";
        const SECRET: &str = "sasl.oauthbearer.client.credentials.client.secret";
        // The settings of KIP-1139 count before the options of KIP-768.
        let value = |key: &str, option: &str| {
            let of_login = || login?.options.get(option).map(String::as_str);
            let value = settings.filled(key).or_else(of_login);
            value.filter(|value| !value.is_empty()).map(str::to_owned)
        };
        let needed = |key: &str, option: &str| {
            let missing = || config_error(key, format!("{url} needs {key}, or {option} in {JAAS}"));
            value(key, option).ok_or_else(missing)
        };
        let ms = |key: &str| u64::try_from(settings.number(key)).unwrap_or(0);
        let timeout = |key: &str| match settings.is_filled(key) {
            true => Duration::from_millis(ms(key)),
            false => Duration::from_secs(10),
        };
        let seconds = |key: &str| Duration::from_secs(settings.natural(key));
        Ok(TokenServer {
            url: url.to_owned(),
            client_id: needed(ID, "clientId")?,
            client_secret: Password::new(&needed(SECRET, "clientSecret")?),
            scope: value("sasl.oauthbearer.scope", "scope"),
            encodes_header: settings.boolean("sasl.oauthbearer.header.urlencode"),
            connect_timeout: timeout("sasl.login.connect.timeout.ms"),
            read_timeout: timeout("sasl.login.read.timeout.ms"),
            retry_backoff_ms: ms("sasl.login.retry.backoff.ms"),
            retry_backoff_ms_max: ms("sasl.login.retry.backoff.max.ms"),
            refresh: TokenRefresh {
                factor: settings.fraction("sasl.login.refresh.window.factor"),
                jitter: settings.fraction("sasl.login.refresh.window.jitter"),
                period_min: seconds("sasl.login.refresh.min.period.seconds"),
                buffer: seconds("sasl.login.refresh.buffer.seconds"),
            },
            current: CurrentToken::default(),
        })
    }
}

/// The extensions (KIP-342). Options of Kafka's class that would make another token than `source`
/// are errors, because no such token would be sent.
fn extensions(login: &Login, source: &TokenSource) -> Result<Vec<(String, String)>, Error> {
    let is_fetched = matches!(source, TokenSource::Server(_));
    let mut extensions = Vec::new();
    for (option, value) in &login.options {
        let why = if let Some(name) = option.strip_prefix("extension_") {
            // RFC 7628, 3.1; `auth` is the token itself.
            let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphabetic());
            let is_value = value
                .bytes()
                .all(|byte| matches!(byte, b' '..=b'~' | b'\t' | b'\r' | b'\n'));
            match is_name && is_value && name != "auth" {
                true => {
                    extensions.push((name.to_owned(), value.clone()));
                    continue;
                }
                false => format!("{option} has a name or a value that no extension may have"),
            }
        } else if option.starts_with("unsecuredLogin") {
            format!("{option} asks for tokens without a signature, which this client does not make")
        } else if matches!(option.as_str(), "clientId" | "clientSecret" | "scope") && !is_fetched {
            format!("{option} is for fetching tokens: set {URL} to the server")
        } else if option.starts_with("ssl.") {
            format!(
                "{option} is not used for fetching tokens: their server is trusted as the system, or SSL_CERT_FILE, says"
            )
        } else {
            continue;
        };
        return Err(invalid(JAAS, "[hidden]", &why));
    }
    Ok(extensions)
}
