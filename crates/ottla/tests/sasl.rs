//! The clients against a broker in this process that asks who they are: every mechanism, wrong
//! credentials, and sessions that end while records flow.

#![allow(clippy::unwrap_used, reason = "a failed step of a test is a failed test")]

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use ottla_broker::broker::TemporaryDirectory;
use ottla_broker::{Additions, Broker};
use ottla_client::Error;
use ottla_client::admin::{
    Admin, AlterConfig, ConfigResource, ConfigResourceKind, NewTopic, ScramCredential, ScramMechanism,
};
use ottla_client::config::{Config, Password};
use ottla_client::consumer::{Consumer, TopicPartition};
use ottla_client::producer::{Producer, Record};
use ottla_wire::error_code::ErrorCode;

const USER: &str = "alice, = \"queen\"";
/// With the characters that a parser of JAAS could get wrong.
const PASSWORD: &str = "it's; = \"x\\y\" käse";
const MECHANISMS: [&str; 3] = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"];
const HANG: Duration = Duration::from_secs(60);

/// A broker with an open listener, on which the admin makes the user's credentials, and one with
/// all mechanisms.
fn start(properties: &[(&str, &str)]) -> (Broker, Admin) {
    let quoted = PASSWORD.replace('\\', "\\\\").replace('"', "\\\"");
    let jaas =
        format!("org.apache.kafka.common.security.plain.PlainLoginModule required user_alice=\"{quoted}\";");
    let own = [
        (
            "listeners",
            "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
        ),
        ("sasl.enabled.mechanisms", "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"),
        (
            "listener.name.sasl_plaintext.plain.sasl.jaas.config",
            jaas.as_str(),
        ),
        ("connection.failed.authentication.delay.ms", "10"),
    ];
    let broker = Broker::start_temporary(&[&own, properties].concat()).unwrap();
    let admin = Admin::new(&Config::new().set("bootstrap.servers", broker.address())).unwrap();
    for mechanism in [ScramMechanism::Sha256, ScramMechanism::Sha512] {
        set_password(&admin, mechanism, PASSWORD);
    }
    let created = admin.create_topics(vec![NewTopic::new("t").partitions(1)]).wait();
    created.unwrap()["t"].as_ref().unwrap();
    (broker, admin)
}

fn set_password(admin: &Admin, mechanism: ScramMechanism, password: &str) {
    let credential = ScramCredential::Set {
        mechanism,
        password: Password::new(password),
        rounds: None,
    };
    let results = admin.alter_scram_credentials(vec![(USER.to_owned(), credential)]);
    assert_eq!(results.wait().unwrap()[USER], Ok(()));
}

fn config(broker: &Broker, mechanism: &str, password: &str) -> Config {
    // Names of options, which JAAS has for users of PLAIN, have no blanks.
    let user = if mechanism == "PLAIN" { "alice" } else { USER };
    Config::new()
        .set("bootstrap.servers", broker.address_of("SASL_PLAINTEXT").unwrap())
        .set("security.protocol", "SASL_PLAINTEXT")
        .set("sasl.mechanism", mechanism)
        .set("sasl.username", user)
        .set("sasl.password", password)
}

fn produce(producer: &Producer, value: &[u8]) -> Result<i64, Error> {
    let record = Record {
        topic: "t",
        value: Some(value),
        ..Record::default()
    };
    producer.send(&record)?.wait().map(|sent| sent.offset)
}

#[test]
fn records_flow_with_every_mechanism() {
    let (broker, _admin) = start(&[]);
    for (number, mechanism) in MECHANISMS.into_iter().enumerate() {
        let config = config(&broker, mechanism, PASSWORD);
        let producer = Producer::new(&config).unwrap();
        assert_eq!(produce(&producer, mechanism.as_bytes()).unwrap(), number as i64);
        let mut consumer = Consumer::new(&config).unwrap();
        consumer.assign([TopicPartition::new("t", 0)]).unwrap();
        consumer
            .seek(&TopicPartition::new("t", 0), number as i64)
            .unwrap();
        let records = consumer.poll(HANG).unwrap();
        let values: Vec<&[u8]> = records.iter().filter_map(|record| record.value).collect();
        assert_eq!(values, [mechanism.as_bytes()]);
    }
}

#[test]
fn a_wrong_password_is_an_error_that_says_so() {
    let (broker, _admin) = start(&[]);
    for mechanism in MECHANISMS {
        let admin = Admin::new(&config(&broker, mechanism, "wrong")).unwrap();
        let error = admin.list_topics().wait().unwrap_err();
        assert!(
            matches!(error, Error::Authentication { .. }),
            "{mechanism}: {error:?}"
        );
        assert!(error.to_string().contains("Authentication failed"), "{error}");
    }
    let unknown = config(&broker, "SCRAM-SHA-256", PASSWORD).set("sasl.username", "mallory");
    let error = Admin::new(&unknown).unwrap().list_topics().wait().unwrap_err();
    assert!(matches!(error, Error::Authentication { .. }), "{error:?}");
}

#[test]
fn a_changed_password_counts_for_new_connections() {
    let (broker, admin) = start(&[]);
    let mechanism = "SCRAM-SHA-256";
    set_password(&admin, ScramMechanism::Sha256, "new");
    let connect = |password| Admin::new(&config(&broker, mechanism, password)).unwrap();
    assert!(connect(PASSWORD).list_topics().wait().is_err());
    connect("new").list_topics().wait().unwrap();
    let delete = ScramCredential::Delete {
        mechanism: ScramMechanism::Sha256,
    };
    let deleted = admin.alter_scram_credentials(vec![(USER.to_owned(), delete.clone())]);
    assert_eq!(deleted.wait().unwrap()[USER], Ok(()));
    assert!(connect("new").list_topics().wait().is_err());
    let again = admin
        .alter_scram_credentials(vec![(USER.to_owned(), delete)])
        .wait()
        .unwrap();
    assert!(
        matches!(
            again[USER],
            Err(Error::Broker {
                code: ErrorCode::ResourceNotFound,
                ..
            })
        ),
        "{again:?}"
    );
    let described = admin.describe_scram_credentials(Vec::new()).wait().unwrap();
    let mechanisms = described[USER].as_ref().unwrap();
    assert_eq!(
        mechanisms.iter().collect::<Vec<_>>(),
        [(&ScramMechanism::Sha512, &8_192)]
    );
}

#[test]
fn credentials_survive_a_restart() {
    let directory = ottla_broker::broker::TemporaryDirectory::create().unwrap();
    let path = directory.path().to_string_lossy().into_owned();
    let properties: ottla_broker::properties::Properties = [
        (
            "listeners",
            "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
        ),
        ("sasl.enabled.mechanisms", "SCRAM-SHA-512"),
        ("log.dirs", path.as_str()),
        ("ottla.admin.listener", ""),
    ]
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .into();
    let broker = Broker::start(&properties).unwrap();
    let admin = Admin::new(&Config::new().set("bootstrap.servers", broker.address())).unwrap();
    set_password(&admin, ScramMechanism::Sha512, PASSWORD);
    drop((admin, broker));
    let broker = Broker::start(&properties).unwrap();
    let config = config(&broker, "SCRAM-SHA-512", PASSWORD);
    Admin::new(&config).unwrap().list_topics().wait().unwrap();
}

#[test]
fn sessions_are_extended_while_records_flow() {
    let (broker, _admin) = start(&[("connections.max.reauth.ms", "1500")]);
    for mechanism in MECHANISMS {
        let producer = Producer::new(&config(&broker, mechanism, PASSWORD)).unwrap();
        let total = |name: &str| {
            let metrics = producer.metrics().snapshot();
            let found = metrics
                .iter()
                .find(|metric| metric.name == name && metric.group == "producer-metrics");
            found.unwrap().number().unwrap()
        };
        produce(&producer, b"first").unwrap();
        let connections = total("connection-creation-total");
        while total("successful-reauthentication-total") < 2.0 {
            produce(&producer, b"more").unwrap();
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(total("connection-creation-total"), connections);
    }
}

#[test]
fn an_empty_directory_begins_with_the_users_that_it_is_given() {
    let directory = ottla_broker::broker::TemporaryDirectory::create().unwrap();
    let (data, file) = (directory.path().join("data"), directory.path().join("users"));
    std::fs::write(
        &file,
        "# the first\nSCRAM-SHA-256=[name=bob,password=builder]\n\n",
    )
    .unwrap();
    let properties: ottla_broker::properties::Properties = [
        ("listeners", "SASL_PLAINTEXT://127.0.0.1:0"),
        ("security.inter.broker.protocol", "SASL_PLAINTEXT"),
        ("sasl.enabled.mechanisms", "SCRAM-SHA-256,SCRAM-SHA-512"),
        ("connection.failed.authentication.delay.ms", "10"),
        ("log.dirs", data.to_str().unwrap()),
        ("ottla.bootstrap.scram.file", file.to_str().unwrap()),
        ("ottla.admin.listener", ""),
    ]
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .into();
    let with = |user: &str| Additions {
        add_scram: vec![user.to_owned()],
        ..Additions::default()
    };
    let log_in = |broker: &Broker, mechanism: &str, user: &str, password: &str| {
        let config = config(broker, mechanism, password).set("sasl.username", user);
        Admin::new(&config).unwrap().list_topics().wait().is_ok()
    };
    let broken = Broker::start_with(&properties, with("SCRAM-SHA-256=[name=x]"));
    let problem = broken.err().unwrap().to_string();
    assert!(problem.starts_with("--add-scram=[hidden]: must be"), "{problem}");
    let alice = "SCRAM-SHA-512=[name=alice,password=wonderland]";
    let broker = Broker::start_with(&properties, with(alice)).unwrap();
    assert!(log_in(&broker, "SCRAM-SHA-512", "alice", "wonderland"));
    assert!(log_in(&broker, "SCRAM-SHA-256", "bob", "builder"));
    drop(broker);
    // Later the file is not needed, and the option changes nothing.
    std::fs::remove_file(&file).unwrap();
    let other = "SCRAM-SHA-512=[name=alice,password=looking-glass]";
    let broker = Broker::start_with(&properties, with(other)).unwrap();
    assert!(log_in(&broker, "SCRAM-SHA-512", "alice", "wonderland"));
    assert!(!log_in(&broker, "SCRAM-SHA-512", "alice", "looking-glass"));
    drop(broker);
    // An empty directory is not begun without them.
    std::fs::remove_dir_all(&data).unwrap();
    let problem = Broker::start(&properties).err().unwrap().to_string();
    assert!(problem.contains("ottla.bootstrap.scram.file"), "{problem}");
}

/// The broker went on with what the file alone says, where a user that was removed at run time may
/// still be.
#[test]
fn a_setting_of_run_time_that_the_file_no_longer_fits_refuses_the_start_and_changes_nothing() {
    const JAAS: &str = "org.apache.kafka.common.security.plain.PlainLoginModule required user_a=\"b\";";
    const USERS: &str = "listener.name.sasl_plaintext.plain.sasl.jaas.config";
    let directory = TemporaryDirectory::create().unwrap();
    let start = |more: &[(&str, &str)]| {
        let own = [
            (
                "listeners",
                "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
            ),
            ("sasl.enabled.mechanisms", "SCRAM-SHA-256"),
            ("ottla.admin.listener", ""),
            ("log.dirs", directory.path().to_str().unwrap()),
        ];
        let lines = own.iter().chain(more);
        let lines = lines.map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        Broker::start(&lines.collect())
    };
    let broker = start(&[(USERS, JAAS)]).unwrap();
    let admin = Admin::new(&Config::new().set("bootstrap.servers", broker.address())).unwrap();
    let resource = ConfigResource::new(ConfigResourceKind::Broker, "1");
    let change = AlterConfig::set("listener.name.sasl_plaintext.sasl.enabled.mechanisms", "PLAIN");
    let altered = admin.incremental_alter_configs([(resource.clone(), vec![change])].into());
    assert_eq!(altered.wait().unwrap()[&resource], Ok(()));
    drop((admin, broker));
    let mark = directory.path().join(".kafka_cleanshutdown");
    let before = std::fs::read(&mark).unwrap();
    let refused = start(&[]).err().unwrap().to_string();
    assert!(
        refused.contains(USERS) && refused.contains("--entity-type brokers"),
        "{refused}"
    );
    assert_eq!(std::fs::read(&mark).unwrap(), before);
    start(&[(USERS, JAAS)]).unwrap();
}

/// An identity provider with one key, and the directory of its keys and of the client's token.
struct Provider {
    key: EcdsaKeyPair,
    directory: PathBuf,
}

impl Provider {
    fn new(name: &str) -> Provider {
        let directory = std::env::temp_dir().join(format!("ottla-token-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let key = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap();
        let point = key.public_key().as_ref();
        let [x, y] = [&point[1..33], &point[33..]].map(|field| BASE64.encode(field));
        let keys = serde_json::json!({"keys": [{"kty": "EC", "kid": "1", "crv": "P-256", "x": x, "y": y}]});
        std::fs::write(directory.join("keys.json"), keys.to_string()).unwrap();
        Provider { key, directory }
    }

    /// A token of `user` that expires after `seconds`.
    fn token(&self, user: &str, seconds: u64) -> String {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let parts = [
            serde_json::json!({"alg": "ES256", "kid": "1"}),
            serde_json::json!({"sub": user, "iat": now, "exp": now + seconds}),
        ];
        let signed = parts.map(|part| BASE64.encode(part.to_string())).join(".");
        let signature = self.key.sign(&SystemRandom::new(), signed.as_bytes()).unwrap();
        format!("{signed}.{}", BASE64.encode(signature))
    }

    fn file(&self) -> PathBuf {
        self.directory.join("token")
    }

    /// As a job that renews the token would: half of one is never seen.
    fn put(&self, token: &str) {
        let new = self.directory.join("new");
        std::fs::write(&new, format!("{token}\n")).unwrap();
        std::fs::rename(new, self.file()).unwrap();
    }

    fn start(&self, properties: &[(&str, &str)]) -> Broker {
        const OF_LISTENER: &str = "listener.name.sasl_plaintext.oauthbearer.sasl";
        const CLASSES: &str = "org.apache.kafka.common.security.oauthbearer";
        let keys = self.directory.join("keys.json");
        let own = [
            ("listeners".to_owned(), "SASL_PLAINTEXT://127.0.0.1:0".to_owned()),
            ("sasl.enabled.mechanisms".to_owned(), "OAUTHBEARER".to_owned()),
            (
                format!("{OF_LISTENER}.server.callback.handler.class"),
                format!("{CLASSES}.OAuthBearerValidatorCallbackHandler"),
            ),
            (
                format!("{OF_LISTENER}.jaas.config"),
                format!("{CLASSES}.OAuthBearerLoginModule required;"),
            ),
            (
                format!("{OF_LISTENER}.oauthbearer.jwks.endpoint.url"),
                format!("file://{}", keys.display()),
            ),
            (
                "connection.failed.authentication.delay.ms".to_owned(),
                "10".to_owned(),
            ),
        ];
        let own = own.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        let lines: Vec<(&str, &str)> = own.chain(properties.iter().copied()).collect();
        Broker::start_temporary(&lines).unwrap()
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

fn with_token(broker: &Broker, file: &Path) -> Config {
    Config::new()
        .set("bootstrap.servers", broker.address())
        .set("security.protocol", "SASL_PLAINTEXT")
        .set("sasl.mechanism", "OAUTHBEARER")
        .set(
            "sasl.oauthbearer.token.endpoint.url",
            format!("file://{}", file.display()),
        )
}

#[test]
fn a_token_of_a_file_or_of_the_settings_lets_the_client_in_and_one_of_a_stranger_does_not() {
    let provider = Provider::new("one");
    let broker = provider.start(&[]);
    provider.put(&provider.token("alice", 600));
    let of_file = with_token(&broker, &provider.file());
    let admin = Admin::new(&of_file).unwrap();
    let created = admin.create_topics(vec![NewTopic::new("t").partitions(1)]).wait();
    created.unwrap()["t"].as_ref().unwrap();
    assert_eq!(produce(&Producer::new(&of_file).unwrap(), b"x").unwrap(), 0);

    let base = Config::new()
        .set("bootstrap.servers", broker.address())
        .set("security.protocol", "SASL_PLAINTEXT")
        .set("sasl.mechanism", "OAUTHBEARER");
    let of_settings = base.set("sasl.oauthbearer.token", provider.token("bob", 600));
    Admin::new(&of_settings).unwrap().list_topics().wait().unwrap();

    let stranger = Provider::new("stranger");
    for token in [stranger.token("alice", 600), "a.b.c".to_owned()] {
        let config = of_settings.clone().set("sasl.oauthbearer.token", &token);
        let error = Admin::new(&config).unwrap().list_topics().wait().unwrap_err();
        assert!(matches!(error, Error::Authentication { .. }), "{error:?}");
        let said = error.to_string();
        assert!(said.contains("invalid_token") && !said.contains(&token), "{said}");
    }
    std::fs::remove_file(provider.file()).unwrap();
    let error = Admin::new(&of_file).unwrap().list_topics().wait().unwrap_err();
    assert!(error.to_string().contains("cannot be read"), "{error}");
}

/// A server gives a token of four seconds, which the client replaces, and with it the session.
#[test]
fn tokens_of_a_server_are_replaced_as_long_as_the_client_lives() {
    let provider = Provider::new("served");
    let broker = provider.start(&[(
        "listener.name.sasl_plaintext.oauthbearer.sasl.oauthbearer.clock.skew.seconds",
        "0",
    )]);
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let config = Config::new()
        .set("bootstrap.servers", broker.address())
        .set("security.protocol", "SASL_PLAINTEXT")
        .set("sasl.mechanism", "OAUTHBEARER")
        .set(
            "sasl.oauthbearer.token.endpoint.url",
            format!("http://{}/token", server.local_addr().unwrap()),
        )
        .set("sasl.oauthbearer.client.credentials.client.id", "alice")
        .set(
            "sasl.oauthbearer.client.credentials.client.secret",
            "alice-secret",
        )
        .set("sasl.login.refresh.min.period.seconds", "0")
        .set("sasl.login.refresh.buffer.seconds", "0")
        .set("sasl.login.refresh.window.factor", "0.5");
    let tokens = [provider.token("alice", 4), provider.token("alice", 600)];
    let serving = std::thread::spawn(move || {
        for (token, seconds) in tokens.iter().zip([4, 600]) {
            let (mut socket, _) = server.accept().unwrap();
            let asked = socket.read(&mut [0; 4096]).unwrap();
            assert!(asked > 0);
            let body = serde_json::json!({"access_token": token, "expires_in": seconds}).to_string();
            let length = body.len();
            write!(
                socket,
                "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}"
            )
            .unwrap();
        }
    });
    let producer = Producer::new(&config).unwrap();
    assert_eq!(produce(&producer, b"x").unwrap(), 0);
    serving.join().unwrap();
    // Until the first token has certainly ended.
    std::thread::sleep(Duration::from_secs(5));
    assert_eq!(produce(&producer, b"y").unwrap(), 1);
}

/// The session ends with the token: the file's next one is shown in time, on the same connection.
#[test]
fn a_renewed_token_renews_the_session() {
    let provider = Provider::new("renewed");
    let broker = provider.start(&[(
        "listener.name.sasl_plaintext.oauthbearer.sasl.oauthbearer.clock.skew.seconds",
        "0",
    )]);
    provider.put(&provider.token("alice", 4));
    let config = with_token(&broker, &provider.file());
    let admin = Admin::new(&config).unwrap();
    let created = admin.create_topics(vec![NewTopic::new("t").partitions(1)]).wait();
    created.unwrap()["t"].as_ref().unwrap();
    let producer = Producer::new(&config).unwrap();
    assert_eq!(produce(&producer, b"x").unwrap(), 0);
    provider.put(&provider.token("alice", 600));
    // Until the first token has certainly ended.
    std::thread::sleep(Duration::from_secs(5));
    assert_eq!(produce(&producer, b"y").unwrap(), 1);
}
