//! Key stores of a listener that are set, or read again, while the broker runs (KIP-226).

#![allow(clippy::unwrap_used, reason = "a failed step of a test is a failed test")]

mod support;

use std::sync::atomic::{AtomicBool, Ordering};

use ottla_broker::Broker;
use ottla_broker::broker::TemporaryDirectory;
use ottla_wire::api_key::ApiKey;
use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::alter_configs::{self, AlterConfigsRequest, AlterConfigsResponse};
use ottla_wire::messages::incremental_alter_configs::{
    AlterConfigsResource, AlterableConfig, IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse,
};
use ottla_wire::primitives::Reader;
use support::sasl::{metadata, throttle_ms};
use support::tls::{Authority, Signed, TlsClient};
use support::{Client, frame};

const LOCATION: &str = "listener.name.ssl.ssl.keystore.location";
const SET: i8 = 0;
const DELETE: i8 = 1;

/// A broker with an open listener and one with TLS, and the directory of its stores and logs.
struct Bench {
    broker: Option<Broker>,
    authority: Authority,
    stores: [(&'static str, String); 4],
    directory: TemporaryDirectory,
}

impl Bench {
    fn start() -> Bench {
        let authority = Authority::named("authority");
        let directory = TemporaryDirectory::create().unwrap();
        let mut bench = Bench {
            broker: None,
            stores: authority.write_stores(directory.path()),
            authority,
            directory,
        };
        bench.restart();
        bench
    }

    fn restart(&mut self) {
        self.broker = None;
        let logs = self.path("logs");
        let own = [
            ("listeners", "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0"),
            ("ottla.admin.listener", ""),
            ("log.dirs", logs.as_str()),
        ];
        let stores = self.stores.iter().map(|(key, value)| (*key, value.as_str()));
        let lines = own.into_iter().chain(stores);
        let lines = lines.map(|(key, value)| (key.to_owned(), value.to_owned()));
        self.broker = Some(Broker::start(&lines.collect()).unwrap());
    }

    fn broker(&self) -> &Broker {
        self.broker.as_ref().unwrap()
    }

    fn path(&self, name: &str) -> String {
        self.directory.path().join(name).to_str().unwrap().to_owned()
    }

    /// Writes a key store with a new certificate of `name`.
    fn write(&self, file: &str, name: &str) -> Signed {
        let signed = self.authority.sign(name, |_| {});
        let text = signed.key.serialize_pem() + &signed.certificate.pem();
        std::fs::write(self.path(file), text).unwrap();
        signed
    }

    fn connect(&self) -> TlsClient {
        let config = self.authority.client_config(rustls::ALL_VERSIONS, None);
        let address = self.broker().address_of("SSL").unwrap();
        let mut client = TlsClient::connect(address, &config);
        check_served(&mut client);
        client
    }

    /// Whether a new connection is shown this certificate.
    #[track_caller]
    fn check_shows(&self, signed: &Signed) {
        let client = self.connect();
        let shown = client.stream.conn.peer_certificates().unwrap();
        assert!(
            shown[0] == *signed.certificate.der(),
            "another certificate is shown"
        );
    }

    /// Sends IncrementalAlterConfigs for the broker.
    fn alter(&self, changes: &[(&str, i8, &str)], validate_only: bool) -> Result<(), (ErrorCode, String)> {
        let configs = changes
            .iter()
            .map(|(name, config_operation, value)| AlterableConfig {
                name,
                config_operation: *config_operation,
                value: Some(*value).filter(|_| *config_operation == SET),
            });
        let request = IncrementalAlterConfigsRequest {
            resources: vec![AlterConfigsResource {
                resource_type: 4,
                resource_name: "1",
                configs: configs.collect(),
            }],
            validate_only,
        };
        let body = self.ask(ApiKey::IncrementalAlterConfigs, 1, |bytes| {
            request.encode(bytes, 1)
        });
        let answer = IncrementalAlterConfigsResponse::decode(&mut Reader::new(&body), 1).unwrap();
        result(answer.responses[0].error_code, answer.responses[0].error_message)
    }

    /// Sends AlterConfigs for the broker, which leaves it with this setting alone.
    fn replace(&self, name: &str, value: &str) -> Result<(), (ErrorCode, String)> {
        let request = AlterConfigsRequest {
            resources: vec![alter_configs::AlterConfigsResource {
                resource_type: 4,
                resource_name: "1",
                configs: vec![alter_configs::AlterableConfig {
                    name,
                    value: Some(value),
                }],
            }],
            validate_only: false,
        };
        let body = self.ask(ApiKey::AlterConfigs, 2, |bytes| request.encode(bytes, 2));
        let answer = AlterConfigsResponse::decode(&mut Reader::new(&body), 2).unwrap();
        result(answer.responses[0].error_code, answer.responses[0].error_message)
    }

    fn ask(&self, api_key: ApiKey, version: i16, encode: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut admin = Client::connect(self.broker().address_of("PLAINTEXT").unwrap());
        admin.send(&frame(api_key, version, 1, encode));
        admin.receive(api_key, version, 1)
    }
}

fn result(code: i16, message: Option<&str>) -> Result<(), (ErrorCode, String)> {
    match code {
        0 => Ok(()),
        code => Err((
            ErrorCode::from_i16(code).unwrap(),
            message.unwrap_or_default().to_owned(),
        )),
    }
}

fn check_served(client: &mut TlsClient) {
    client.send(&metadata(7));
    assert_eq!(throttle_ms(&mut client.stream, 7), 0);
}

#[test]
fn a_listener_takes_another_key_store_while_the_broker_runs_and_refuses_a_bad_one() {
    let bench = Bench::start();
    let mut before = bench.connect();
    let second = bench.write("second.pem", "broker");
    bench.write("other.pem", "another");
    let alter = |name: &str, validate_only: bool| {
        let path = bench.path(name);
        bench.alter(&[(LOCATION, SET, path.as_str())], validate_only)
    };
    assert_eq!(alter("second.pem", false), Ok(()));
    bench.check_shows(&second);
    check_served(&mut before);

    for (name, part) in [
        ("gone.pem", "cannot be read"),
        ("other.pem", "not of CN=broker as before"),
        ("trust.pem", "has no"),
    ] {
        let path = bench.path(name);
        for refused in [
            alter(name, false),
            alter(name, true),
            bench.replace(LOCATION, &path),
        ] {
            let (code, message) = refused.unwrap_err();
            assert_eq!(code, ErrorCode::InvalidRequest, "{message}");
            assert!(
                message.contains(part) && message.contains(LOCATION) && message.contains(&path),
                "{message}"
            );
        }
        bench.check_shows(&second);
    }

    let third = bench.write("third.pem", "broker");
    assert_eq!(alter("third.pem", true), Ok(()));
    bench.check_shows(&second);
    assert_eq!(bench.replace(LOCATION, &bench.path("third.pem")), Ok(()));
    bench.check_shows(&third);
}

/// KIP-226, and KAFKA-14136 for a broker of the metadata log: the tools have no other word for it.
/// One client keeps its connection, another one connects again and again.
#[test]
fn no_request_and_no_handshake_fails_while_key_stores_are_swapped() {
    let bench = Bench::start();
    let is_over = AtomicBool::new(false);
    let until_over = |mut work: Box<dyn FnMut() + '_>| {
        let mut count = 0;
        while !is_over.load(Ordering::Relaxed) {
            work();
            count += 1;
        }
        count
    };
    std::thread::scope(|scope| {
        let steady = scope.spawn(|| {
            let mut client = bench.connect();
            until_over(Box::new(|| check_served(&mut client)))
        });
        let fresh = scope.spawn(|| until_over(Box::new(|| drop(bench.connect()))));
        let swapped: Vec<_> = (0..20)
            .map(|number| {
                let name = format!("{number}.pem");
                bench.write(&name, "broker");
                bench.alter(&[(LOCATION, SET, bench.path(&name).as_str())], false)
            })
            .collect();
        is_over.store(true, Ordering::Relaxed);
        let (requests, handshakes): (u32, u32) = (steady.join().unwrap(), fresh.join().unwrap());
        assert!(
            requests > 0 && handshakes > 0,
            "{requests} requests, {handshakes} handshakes"
        );
        assert!(swapped.iter().all(Result::is_ok), "{swapped:?}");
    });
}

#[test]
fn a_location_that_is_set_once_more_is_read_again() {
    let bench = Bench::start();
    let path = bench.path("own.pem");
    let set = || bench.alter(&[(LOCATION, SET, path.as_str())], false);
    bench.write("own.pem", "broker");
    assert_eq!(set(), Ok(()));
    let renewed = bench.write("own.pem", "broker");
    assert_eq!(set(), Ok(()));
    bench.check_shows(&renewed);
    std::fs::write(&path, "nothing").unwrap();
    assert_eq!(set().unwrap_err().0, ErrorCode::InvalidRequest);
    bench.check_shows(&renewed);
}

#[test]
fn a_store_in_the_settings_themselves_is_taken() {
    let bench = Bench::start();
    let signed = bench.authority.sign("broker", |_| {});
    let (key, chain) = (signed.key.serialize_pem(), signed.certificate.pem());
    let changes = [
        ("listener.name.ssl.ssl.keystore.key", SET, key.as_str()),
        (
            "listener.name.ssl.ssl.keystore.certificate.chain",
            SET,
            chain.as_str(),
        ),
        (LOCATION, SET, ""),
    ];
    assert_eq!(bench.alter(&changes, false), Ok(()));
    bench.check_shows(&signed);
    let (_, message) = bench
        .alter(
            &[("listener.name.ssl.ssl.keystore.key", SET, "secret-key")],
            false,
        )
        .unwrap_err();
    assert!(!message.contains("secret-key"), "{message}");
    let without_prefix = bench.alter(&[("ssl.keystore.location", SET, "x")], false);
    let (code, message) = without_prefix.unwrap_err();
    assert_eq!(code, ErrorCode::InvalidRequest);
    assert!(message.contains("listener prefix"), "{message}");
    bench.check_shows(&signed);
}

#[test]
fn what_was_set_at_run_time_outlives_a_restart_and_the_files_store_stands_in_for_a_lost_one() {
    let mut bench = Bench::start();
    let second = bench.write("second.pem", "broker");
    let path = bench.path("second.pem");
    assert_eq!(bench.alter(&[(LOCATION, SET, path.as_str())], false), Ok(()));
    bench.restart();
    bench.check_shows(&second);

    std::fs::remove_file(&path).unwrap();
    let of_file = bench.write("key.pem", "broker");
    bench.restart();
    bench.check_shows(&of_file);
    // When it is there again, it is read.
    let found = bench.write("second.pem", "broker");
    bench.broker().reload_tls();
    bench.check_shows(&found);

    assert_eq!(bench.alter(&[(LOCATION, DELETE, "")], false), Ok(()));
    bench.check_shows(&of_file);
}

#[test]
fn the_operator_can_have_the_files_read_at_once() {
    let bench = Bench::start();
    let renewed = bench.write("key.pem", "broker");
    bench.broker().reload_tls();
    bench.check_shows(&renewed);
    std::fs::write(bench.path("key.pem"), "nothing").unwrap();
    bench.broker().reload_tls();
    bench.check_shows(&renewed);
}
