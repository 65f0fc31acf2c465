//! The driver over real sockets, against a scripted broker.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use bytes::Bytes;
use ottla_wire::api_key::ApiKey;
use ottla_wire::frame::{RequestHeader, encode_response_header};
use ottla_wire::messages::api_versions::{ApiVersion, ApiVersionsResponse};
use ottla_wire::messages::metadata::{MetadataResponse, MetadataResponseBroker, MetadataResponseTopic};
use ottla_wire::primitives::Reader;

use super::*;
use crate::config::{ClientConfig, Config, ProducerConfig};
use crate::metadata::snapshot::NodeId;
use crate::metadata::{Interest, MetadataCell};
use crate::network::cluster::{Cluster, Readiness, Reply, Request};
use crate::network::io::{Action, Address, ConnectionId, Event, Frame};
use crate::network::testing::client_config;
use crate::time::{Moment, Timestamp};

/// Sends `requests` heartbeats of `body_bytes` to broker 1 and reports every reply.
struct Probe {
    cluster: Cluster<usize>,
    requests: usize,
    body_bytes: usize,
    sent: usize,
    answered: usize,
    replies: Vec<Reply<usize>>,
    report: Sender<Result<Bytes, Error>>,
}

impl Machine for Probe {
    fn handle(&mut self, now: Moment, event: Event) {
        self.cluster.handle(now, event, &mut self.replies);
    }

    fn turn(&mut self, now: Moment, wall: Timestamp, actions: &mut Vec<Action>) {
        self.cluster.turn(now, wall, &mut self.replies, actions);
        let node = NodeId(1);
        while self.sent < self.requests && self.cluster.readiness(now, node) == Readiness::Ready {
            let request = Request {
                api_key: ApiKey::Heartbeat,
                api_version: self.cluster.version(node, ApiKey::Heartbeat, 0).unwrap(),
                body: vec![Bytes::from(vec![7; self.body_bytes]), Bytes::new()],
                timeout_ms: 60_000,
                expects_answer: true,
            };
            self.cluster.send(now, node, request, self.sent, actions);
            self.sent += 1;
        }
        for reply in self.replies.drain(..) {
            assert!(reply.result.is_err() || reply.ticket == self.answered);
            self.answered += 1;
            self.report.send(reply.result).unwrap();
        }
    }

    fn next_deadline(&self) -> Option<Moment> {
        self.cluster.next_deadline()
    }

    fn is_finished(&self) -> bool {
        self.answered >= self.requests
    }
}

fn start(
    config: ClientConfig,
    requests: usize,
    body_bytes: usize,
) -> (Driver, Receiver<Result<Bytes, Error>>) {
    let config = Arc::new(config);
    let metrics = Arc::new(NetworkMetrics::default());
    let setup = DriverSetup::new(&config, &metrics).unwrap();
    let metadata = Arc::new(MetadataCell::new(Interest::Nodes));
    let (report, reports) = channel();
    let probe = Probe {
        cluster: Cluster::new(config, metadata, metrics, 1),
        requests,
        body_bytes,
        sent: 0,
        answered: 0,
        replies: Vec::new(),
        report,
    };
    (setup.start("probe", Box::new(probe)).unwrap(), reports)
}

fn local(listener: &TcpListener) -> Address {
    Address {
        host: "127.0.0.1".into(),
        port: listener.local_addr().unwrap().port(),
    }
}

fn read_frame(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut length = [0; 4];
    stream.read_exact(&mut length).ok()?;
    let mut frame = vec![0; u32::from_be_bytes(length) as usize];
    stream.read_exact(&mut frame).ok()?;
    Some(frame)
}

/// Answers ApiVersions and Metadata; `answer` makes the frames (length included) for everything
/// else.
fn serve(stream: &mut TcpStream, port: u16, mut answer: impl FnMut(i32, &[u8]) -> Vec<u8>) {
    while let Some(frame) = read_frame(stream) {
        let mut reader = Reader::new(&frame);
        let header = RequestHeader::decode(&mut reader).unwrap();
        let mut out = vec![0; 4];
        encode_response_header(
            &mut out,
            header.api_key,
            header.api_version,
            header.correlation_id,
        );
        match header.api_key {
            ApiKey::ApiVersions => ApiVersionsResponse {
                api_keys: [ApiKey::Metadata, ApiKey::Heartbeat, ApiKey::ApiVersions]
                    .map(|api_key| ApiVersion {
                        api_key: api_key.code(),
                        min_version: 0,
                        max_version: api_key.known_versions().max,
                    })
                    .into(),
                ..Default::default()
            }
            .encode(&mut out, header.api_version),
            ApiKey::Metadata => MetadataResponse {
                brokers: vec![MetadataResponseBroker {
                    node_id: 1,
                    host: "127.0.0.1",
                    port: port.into(),
                    rack: None,
                }],
                topics: vec![MetadataResponseTopic::default()],
                ..Default::default()
            }
            .encode(&mut out, header.api_version),
            _ => {
                out = answer(header.correlation_id, reader.rest());
                stream.write_all(&out).unwrap();
                continue;
            }
        }
        let length = (out.len() as u32 - 4).to_be_bytes();
        out[..4].copy_from_slice(&length);
        stream.write_all(&out).unwrap();
    }
}

/// A whole response with this body to a flexible request.
fn framed(correlation_id: i32, body: &[u8]) -> Vec<u8> {
    let mut out = (4 + 1 + body.len() as u32).to_be_bytes().to_vec();
    out.extend(correlation_id.to_be_bytes());
    out.push(0);
    out.extend_from_slice(body);
    out
}

/// Serves every connection with `answer` until the listener's thread is dropped with the process.
fn broker(answer: impl Fn(i32, &[u8]) -> Vec<u8> + Send + Sync + Clone + 'static) -> Address {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = local(&listener);
    let port = address.port;
    thread::spawn(move || {
        for stream in listener.incoming() {
            let answer = answer.clone();
            thread::spawn(move || serve(&mut stream.unwrap(), port, answer));
        }
    });
    address
}

fn join(mut driver: Driver) {
    assert!(driver.join(Duration::from_secs(60)));
}

#[test]
fn requests_go_out_and_answers_come_back_in_order() {
    let address = broker(framed);
    let (driver, reports) = start(client_config(address), 200, 100);
    for _ in 0..200 {
        assert_eq!(reports.recv().unwrap(), Ok(Bytes::from(vec![7; 100])));
    }
    join(driver);
}

#[test]
fn answers_larger_than_every_buffer_arrive_whole() {
    let large: Vec<u8> = (0..5_000_000u32).map(|index| (index % 251) as u8).collect();
    let expected = Bytes::from(large.clone());
    let address = broker(move |id, _| framed(id, &large));
    let (driver, reports) = start(client_config(address), 3, 3_000_000);
    for _ in 0..3 {
        assert!(reports.recv().unwrap() == Ok(expected.clone()));
    }
    join(driver);
}

#[test]
fn a_broker_that_closes_in_the_middle_of_an_answer_fails_the_request() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = local(&listener);
    let port = address.port;
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut other = stream.try_clone().unwrap();
            thread::spawn(move || {
                serve(&mut stream, port, |id, body| {
                    other.write_all(&framed(id, body)[..20]).unwrap();
                    other.shutdown(std::net::Shutdown::Both).unwrap();
                    Vec::new()
                });
            });
        }
    });
    let (driver, reports) = start(client_config(address), 1, 100);
    assert!(matches!(reports.recv().unwrap(), Err(Error::Disconnected { .. })));
    join(driver);
}

#[test]
fn impossible_lengths_and_wrong_ids_close_the_connection_as_malformed() {
    for bad in [
        (-1i32).to_be_bytes().to_vec(),
        i32::MAX.to_be_bytes().to_vec(),
        b"HTTP/1.1 400 Bad Request\r\n".to_vec(),
        framed(-5, b"x"),
        vec![0, 0, 0, 2, 1, 1],
        vec![0, 0, 0, 0],
    ] {
        let address = broker(move |_, _| bad.clone());
        let (driver, reports) = start(client_config(address), 1, 10);
        assert!(matches!(reports.recv().unwrap(), Err(Error::Malformed { .. })));
        join(driver);
    }
}

/// Panics in its first turn.
struct Broken;

impl Machine for Broken {
    fn handle(&mut self, _now: Moment, _event: Event) {}

    fn turn(&mut self, _now: Moment, _wall: Timestamp, _actions: &mut Vec<Action>) {
        panic!("the machine is broken");
    }

    fn next_deadline(&self) -> Option<Moment> {
        None
    }

    fn is_finished(&self) -> bool {
        false
    }
}

#[test]
fn a_panic_of_the_machine_is_reported_at_the_end() {
    let config = Arc::new(client_config(Address {
        host: "127.0.0.1".into(),
        port: 1,
    }));
    let mut setup = DriverSetup::new(&config, &Arc::default()).unwrap();
    let (told, hears) = channel();
    setup.at_end(move |error| told.send(error).unwrap());
    let driver = setup.start("broken", Box::new(Broken)).unwrap();
    assert_eq!(
        hears.recv().unwrap(),
        Some(Error::IllegalState {
            message: "the client's thread panicked: the machine is broken".into()
        })
    );
    join(driver);
}

/// Finishes once it was woken.
struct Sleeper(std::sync::Arc<std::sync::atomic::AtomicBool>);

impl Machine for Sleeper {
    fn handle(&mut self, _now: Moment, _event: Event) {}

    fn turn(&mut self, _now: Moment, _wall: Timestamp, _actions: &mut Vec<Action>) {}

    fn next_deadline(&self) -> Option<Moment> {
        None
    }

    fn is_finished(&self) -> bool {
        self.0.load(std::sync::atomic::Ordering::SeqCst)
    }
}

#[test]
fn a_sleeping_driver_is_woken_and_a_finished_one_ends() {
    let config = Arc::new(client_config(Address {
        host: "127.0.0.1".into(),
        port: 1,
    }));
    let setup = DriverSetup::new(&config, &Arc::default()).unwrap();
    let waker = setup.waker();
    let flag = Arc::default();
    let mut driver = setup
        .start("sleeper", Box::new(Sleeper(Arc::clone(&flag))))
        .unwrap();
    assert!(!driver.join(Duration::from_millis(1)));
    flag.store(true, std::sync::atomic::Ordering::SeqCst);
    waker.wake();
    join(driver);
}

/// Connects once, sends these bytes and reports every event until `Closed` or `enough` events.
struct Dialer {
    address: Option<Address>,
    hello: Option<Bytes>,
    events: usize,
    enough: usize,
    report: Sender<Event>,
}

impl Machine for Dialer {
    fn handle(&mut self, _now: Moment, event: Event) {
        self.events += 1;
        if matches!(event, Event::Closed { .. }) {
            self.events = self.enough;
        }
        self.report.send(event).unwrap();
    }

    fn turn(&mut self, _now: Moment, _wall: Timestamp, actions: &mut Vec<Action>) {
        let connection = ConnectionId(5);
        if let Some(address) = self.address.take() {
            actions.push(Action::Connect { connection, address });
        }
        if self.events > 0
            && let Some(hello) = self.hello.take()
        {
            let frame = Frame { parts: vec![hello] };
            actions.push(Action::Send { connection, frame });
        }
    }

    fn next_deadline(&self) -> Option<Moment> {
        None
    }

    fn is_finished(&self) -> bool {
        self.events >= self.enough
    }
}

fn dial(host: &str, port: u16, hello: Option<&'static [u8]>, enough: usize) -> Vec<Event> {
    let address = Address {
        host: host.into(),
        port,
    };
    let (report, reports) = channel();
    let dialer = Dialer {
        address: Some(address.clone()),
        hello: hello.map(Bytes::from_static),
        events: 0,
        enough,
        report,
    };
    let setup = DriverSetup::new(&Arc::new(client_config(address)), &Arc::default()).unwrap();
    join(setup.start("dialer", Box::new(dialer)).unwrap());
    reports.iter().collect()
}

#[test]
fn a_host_without_an_address_is_named() {
    // RFC 6761: names under `invalid` never exist.
    let events = dial("nobody.invalid", 9, None, 1);
    let [Event::Closed { reason, .. }] = &events[..] else {
        panic!("{events:?}");
    };
    assert!(
        reason
            .to_string()
            .starts_with("host nobody.invalid cannot be resolved: "),
        "{reason}"
    );
}

#[test]
fn a_port_without_a_listener_is_refused() {
    // Bound but never listened on, so that no other process gets the port meanwhile.
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    let any: std::net::SocketAddr = "127.0.0.1:0".parse().unwrap();
    socket.bind(&any.into()).unwrap();
    let bound = socket.local_addr().unwrap().as_socket().unwrap();
    let events = dial("127.0.0.1", bound.port(), None, 1);
    let [Event::Closed { reason, .. }] = &events[..] else {
        panic!("{events:?}");
    };
    assert!(matches!(reason, Error::Disconnected { .. }), "{reason}");
    assert!(reason.to_string().contains("refused"), "{reason}");
}

#[test]
fn every_address_of_a_host_is_tried() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    // Where localhost is also ::1, nothing listens there.
    let events = dial("localhost", listener.local_addr().unwrap().port(), None, 1);
    assert!(matches!(events[..], [Event::Connected { .. }]), "{events:?}");
}

#[test]
fn a_broker_that_closes_at_once_is_noticed() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let closer = thread::spawn(move || drop(listener.accept().unwrap()));
    let events = dial("127.0.0.1", port, None, 3);
    assert!(matches!(events[1], Event::Closed { .. }), "{events:?}");
    closer.join().unwrap();
}

#[test]
fn a_used_connection_reports_its_round_trip() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let echo = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut bytes = [0; 6];
        stream.read_exact(&mut bytes).unwrap();
        stream.write_all(&bytes).unwrap();
        // Held open until the client closes.
        let _ = stream.read(&mut bytes);
    });
    let enough = if cfg!(target_os = "linux") { 3 } else { 2 };
    let events = dial("127.0.0.1", port, Some(b"\0\0\0\x02hi"), enough);
    assert!(
        matches!(&events[1], Event::Received { frame, .. } if frame == "hi"),
        "{events:?}"
    );
    if cfg!(target_os = "linux") {
        assert!(
            matches!(events[2], Event::RoundTrip { nanos: 1000.., .. }),
            "{events:?}"
        );
    }
    echo.join().unwrap();
}

/// Connects, sends `parts` of a mebibyte and finishes without waiting.
struct Thrower {
    address: Option<Address>,
    parts: usize,
    is_finished: bool,
}

impl Machine for Thrower {
    fn handle(&mut self, _now: Moment, event: Event) {
        assert!(matches!(event, Event::Connected { .. }), "{event:?}");
        self.is_finished = true;
    }

    fn turn(&mut self, _now: Moment, _wall: Timestamp, actions: &mut Vec<Action>) {
        let connection = ConnectionId(5);
        if let Some(address) = self.address.take() {
            actions.push(Action::Connect { connection, address });
        }
        if self.is_finished {
            let parts = vec![Bytes::from(vec![7; 1 << 20]); self.parts];
            actions.push(Action::Send {
                connection,
                frame: Frame { parts },
            });
        }
    }

    fn next_deadline(&self) -> Option<Moment> {
        None
    }

    fn is_finished(&self) -> bool {
        self.is_finished
    }
}

#[test]
fn the_last_bytes_of_a_finished_machine_are_written() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = local(&listener);
    let reader = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        std::io::copy(&mut stream, &mut std::io::sink()).unwrap()
    });
    let setup = DriverSetup::new(&Arc::new(client_config(address.clone())), &Arc::default()).unwrap();
    let thrower = Thrower {
        address: Some(address),
        parts: 32,
        is_finished: false,
    };
    join(setup.start("thrower", Box::new(thrower)).unwrap());
    assert_eq!(reader.join().unwrap(), 32 << 20);
}

#[test]
fn settings_without_effect_are_told_when_a_client_is_created() {
    let config = Config::new()
        .set("bootstrap.servers", "localhost:9092")
        .set("client.id", "c")
        .set("linger.msec", "5");
    let config = ProducerConfig::from_config(&config).unwrap().client;
    let events = crate::events::told(|| drop(DriverSetup::new(&config, &Arc::default()).unwrap()));
    assert_eq!(
        events,
        [
            r#"WARN ottla_client: configuration client_id="c" key="linger.msec" reason="linger.msec is no setting of Kafka; linger.ms may be meant""#
        ]
    );
}
