//! Logins at small servers: what is asked, what is understood, and when it is asked again.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread::JoinHandle;

use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::*;
use crate::config::{Config, ProducerConfig};

const GIVEN: &str = r#"{"access_token": "a.b.c", "token_type": "Bearer", "expires_in": 300}"#;

/// The settings of a client whose tokens are at `url`.
fn settings(url: &str, more: &[(&str, &str)]) -> Config {
    let base = Config::new()
        .set("bootstrap.servers", "127.0.0.1:1")
        .set("key.serializer", "x")
        .set("security.protocol", "SASL_SSL")
        .set("sasl.mechanism", "OAUTHBEARER")
        .set("sasl.login.retry.backoff.ms", "1")
        .set("sasl.oauthbearer.token.endpoint.url", url)
        .set("sasl.oauthbearer.client.credentials.client.id", "app 1")
        .set("sasl.oauthbearer.client.credentials.client.secret", "s3cret/ü");
    more.iter()
        .fold(base, |config, (key, value)| config.set(*key, *value))
}

fn client(url: &str, more: &[(&str, &str)]) -> ClientConfig {
    let config = ProducerConfig::from_config(&settings(url, more)).unwrap();
    ClientConfig::clone(&config.client)
}

fn server_of(config: &ClientConfig) -> &TokenServer {
    match &config
        .security
        .sasl
        .as_ref()
        .unwrap()
        .oauth
        .as_ref()
        .unwrap()
        .source
    {
        TokenSource::Server(server) => server,
        other => panic!("{other:?}"),
    }
}

fn shown_token(config: &ClientConfig) -> Option<String> {
    server_of(config)
        .current
        .get()
        .map(|token| token.reveal().to_owned())
}

/// Reads one request, with as many bytes of a body as its head says.
fn request(stream: &mut impl Read) -> String {
    let mut text = Vec::new();
    let mut byte = [0];
    let mut end = usize::MAX;
    while text.len() < end {
        stream.read_exact(&mut byte).unwrap();
        text.push(byte[0]);
        if end == usize::MAX && text.ends_with(b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&text).to_lowercase();
            let length = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length: "));
            end = text.len() + length.map_or(0, |length| length.parse::<usize>().unwrap());
        }
    }
    String::from_utf8(text).unwrap()
}

fn answer(stream: &mut impl Write, status: &str, body: &str) {
    let length = body.len();
    let text = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}");
    stream.write_all(text.as_bytes()).unwrap();
    stream.flush().unwrap();
}

/// Answers requests, one connection each, with these; returns them.
fn answering(answers: Vec<(&'static str, String)>) -> (String, JoinHandle<Vec<String>>) {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/token?x=1", server.local_addr().unwrap());
    let serving = move || {
        let mut requests = Vec::new();
        for (status, body) in answers {
            let (mut stream, _) = server.accept().unwrap();
            requests.push(request(&mut stream));
            answer(&mut stream, status, &body);
        }
        requests
    };
    (url, std::thread::spawn(serving))
}

fn start(config: &ClientConfig) -> Result<Login, String> {
    match Login::start(config) {
        Ok(login) => Ok(login.expect("the settings name a server")),
        Err(Error::Authentication { address, reason }) => {
            assert_eq!(*address, *server_of(config).url);
            assert!(!reason.contains("s3cret"), "{reason}");
            Err(reason.to_string())
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn the_request_is_that_of_kafkas_client_and_the_token_is_what_connections_show() {
    let (url, served) = answering(vec![("200 OK", GIVEN.to_owned())]);
    let config = client(&url, &[("sasl.oauthbearer.scope", "read write&more")]);
    assert_eq!(shown_token(&config), None);
    let login = start(&config).unwrap();
    assert_eq!(shown_token(&config).as_deref(), Some("a.b.c"));
    drop(login);
    let asked = served.join().unwrap().remove(0);
    let (head, body) = asked.split_once("\r\n\r\n").unwrap();
    assert_eq!(head.lines().next(), Some("POST /token?x=1 HTTP/1.1"));
    let head = head.to_lowercase();
    assert!(
        head.contains("content-type: application/x-www-form-urlencoded"),
        "{head}"
    );
    // printf 'app 1:s3cret/ü' | base64
    let authorization = "authorization: Basic YXBwIDE6czNjcmV0L8O8".to_lowercase();
    assert!(head.contains(&authorization), "{head}");
    assert_eq!(body, "grant_type=client_credentials&scope=read+write%26more");
}

#[test]
fn a_password_of_http_is_encoded_where_the_setting_says_so() {
    let plain = client("http://127.0.0.1:1/", &[]);
    assert_eq!(
        credentials(server_of(&plain)),
        format!("Basic {}", STANDARD.encode("app 1:s3cret/ü"))
    );
    let encoded = client(
        "http://127.0.0.1:1/",
        &[("sasl.oauthbearer.header.urlencode", "true")],
    );
    let expected = STANDARD.encode("app%201:s3cret%2F%C3%BC");
    assert_eq!(credentials(server_of(&encoded)), format!("Basic {expected}"));
}

#[test]
fn the_options_of_a_login_module_count_where_no_setting_does() {
    let module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule";
    let jaas = format!("{module} required clientId=\"old\" clientSecret=\"s3cret\" scope=\"kafka\";");
    let base = Config::new()
        .set("bootstrap.servers", "127.0.0.1:1")
        .set("security.protocol", "SASL_SSL")
        .set("sasl.mechanism", "OAUTHBEARER")
        .set(
            "sasl.oauthbearer.token.endpoint.url",
            "https://login.example/token",
        );
    let read = |config: &Config| ProducerConfig::from_config(config).map(|config| config.client);
    let of_login = read(&base.clone().set("sasl.jaas.config", &jaas)).unwrap();
    let server = server_of(&of_login);
    assert_eq!(
        (&*server.client_id, server.client_secret.reveal()),
        ("old", "s3cret")
    );
    assert_eq!(server.scope.as_deref(), Some("kafka"));
    assert_eq!(server.connect_timeout, Duration::from_secs(10));
    assert!(!format!("{of_login:?}").contains("s3cret"));
    let both = base
        .clone()
        .set("sasl.jaas.config", &jaas)
        .set("sasl.oauthbearer.client.credentials.client.id", "new");
    assert_eq!(server_of(&read(&both).unwrap()).client_id, "new");
    let said = read(&base).unwrap_err().to_string();
    assert!(
        said.contains("client.credentials.client.id, or clientId in sasl.jaas.config"),
        "{said}"
    );
}

#[test]
fn what_may_pass_is_asked_again_and_a_refusal_is_not() {
    let busy = || ("503 Service Unavailable", String::new());
    let (url, served) = answering(vec![busy(), busy(), ("200 OK", GIVEN.to_owned())]);
    let config = client(&url, &[]);
    start(&config).unwrap();
    assert_eq!(served.join().unwrap().len(), 3);
    assert_eq!(shown_token(&config).as_deref(), Some("a.b.c"));

    let refused = r#"{"error": "invalid_client", "error_description": "unknown\nclient"}"#;
    let (url, served) = answering(vec![("401 Unauthorized", refused.to_owned())]);
    let why = start(&client(&url, &[])).unwrap_err();
    assert_eq!(
        why,
        "no token: the server answers 401 Unauthorized: invalid_client: unknownclient"
    );
    assert_eq!(served.join().unwrap().len(), 1);

    // Nothing listens: asked until the limit.
    let why = start(&client(
        "http://127.0.0.1:1/",
        &[("sasl.login.retry.backoff.max.ms", "5")],
    ));
    assert!(why.unwrap_err().starts_with("no token: "));
}

#[test]
fn an_answer_without_a_token_or_without_its_end_is_refused() {
    let now = Duration::from_secs(1_000);
    let read = |text: &str| token(text, now);
    let good = |text: &str, seconds| Token {
        text: Password::new(text),
        lifetime: Duration::from_secs(seconds),
    };
    assert_eq!(read(GIVEN), Ok(good("a.b.c", 300)));
    assert_eq!(
        read(r#"{"access_token": "t", "expires_in": "60"}"#),
        Ok(good("t", 60))
    );
    let claims = URL_SAFE_NO_PAD.encode(r#"{"exp": 1234.5}"#);
    let jwt = format!("e30.{claims}.c2ln");
    assert_eq!(
        read(&format!(r#"{{"access_token": "{jwt}"}}"#)),
        Ok(good(&jwt, 234))
    );
    for (text, part) in [
        ("<html>s3cret", "is no JSON"),
        ("[]", "has no access_token"),
        (r#"{"access_token": ""}"#, "has no access_token"),
        (r#"{"access_token": 5}"#, "has no access_token"),
        (r#"{"access_token": "s3cret"}"#, "when the token ends"),
        (
            r#"{"access_token": "s3cret", "expires_in": -1}"#,
            "when the token ends",
        ),
        (r#"{"access_token": "e30.s3cret.x"}"#, "when the token ends"),
    ] {
        let why = read(text).unwrap_err();
        assert!(why.contains(part) && !why.contains("s3cret"), "{why}");
    }
    // A redirection is not followed: it could lead the secret anywhere.
    let (url, served) = answering(vec![(
        "302 Found\r\nLocation: http://127.0.0.1:1/",
        String::new(),
    )]);
    let why = start(&client(&url, &[])).unwrap_err();
    assert!(why.contains("302"), "{why}");
    served.join().unwrap();
    let endless = "x".repeat(1 + usize::try_from(ANSWER_BYTES_MAX).unwrap());
    let (url, served) = answering(vec![("200 OK", endless)]);
    let why = start(&client(&url, &[("sasl.login.retry.backoff.max.ms", "0")])).unwrap_err();
    assert!(why.contains("limit") || why.contains("large"), "{why}");
    drop(served);
}

/// The first token is good for no second: the next one is asked for at once.
#[test]
fn a_token_is_replaced_before_it_ends() {
    let first = r#"{"access_token": "first", "expires_in": 0}"#.to_owned();
    let (url, served) = answering(vec![("200 OK", first), ("200 OK", GIVEN.to_owned())]);
    let config = client(&url, &[]);
    let login = start(&config).unwrap();
    assert_eq!(served.join().unwrap().len(), 2);
    while shown_token(&config).as_deref() != Some("a.b.c") {
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(login);
}

#[test]
fn a_token_is_replaced_when_kafkas_client_would() {
    let refresh = |period: u64, buffer: u64| TokenRefresh {
        factor: 0.8,
        jitter: 0.05,
        period_min: Duration::from_secs(period),
        buffer: Duration::from_secs(buffer),
    };
    for (lifetime, settings, chance, expected) in [
        (3_600, refresh(60, 300), 0.0, 2_880.0),
        (3_600, refresh(60, 300), 1.0, 3_060.0),
        // The buffer begins before.
        (1_000, refresh(60, 300), 0.0, 700.0),
        // Not so soon after the last one.
        (1_000, refresh(900, 0), 0.0, 900.0),
        // No room for both.
        (300, refresh(60, 300), 0.0, 240.0),
        (0, refresh(60, 300), 1.0, 0.0),
    ] {
        let pause = until_refresh(Duration::from_secs(lifetime), &settings, chance);
        assert_eq!(pause.as_secs_f64(), expected, "{lifetime} s");
    }
}

#[test]
fn a_server_of_https_must_have_a_trusted_certificate() {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let certificate = params.self_signed(&key).unwrap().der().clone();
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://localhost:{}/token", server.local_addr().unwrap().port());
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.clone()],
            PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der())),
        );
    let config = Arc::new(config.unwrap());
    let serving = std::thread::spawn(move || {
        let stream = || -> StreamOwned<ServerConnection, TcpStream> {
            let (socket, _) = server.accept().unwrap();
            StreamOwned::new(ServerConnection::new(Arc::clone(&config)).unwrap(), socket)
        };
        let mut trusted = stream();
        request(&mut trusted);
        answer(&mut trusted, "200 OK", GIVEN);
        trusted.conn.send_close_notify();
        trusted.flush().unwrap();
        // The client ends the handshake.
        let _ = stream().read(&mut [0]);
    });
    let client = client(&url, &[("sasl.login.retry.backoff.max.ms", "0")]);
    let fetcher =
        |roots: &[CertificateDer<'static>]| Fetcher::new(server_of(&client), &client.client_id, roots);
    let lifetime = fetcher(&[certificate]).log_in(&Stop::default());
    assert_eq!(lifetime, Ok(Duration::from_secs(300)));
    let why = fetcher(&[]).log_in(&Stop::default()).unwrap_err();
    assert!(why.contains("UnknownIssuer"), "{why}");
    serving.join().unwrap();
}
