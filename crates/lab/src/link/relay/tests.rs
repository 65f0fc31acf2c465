//! Real sockets on free ports, against servers whose answers the test determines. No test asserts
//! how fast the machine is.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::{Duration, Instant};

use ottla_wire::api_key::ApiKey;
use ottla_wire::frame::{RequestHeader, decode_response_header, encode_response_header};
use ottla_wire::messages::metadata::{MetadataResponse, MetadataResponseBroker};
use ottla_wire::primitives::Reader;

use super::*;

const METADATA_VERSION: i16 = 12;

/// Answers Metadata with `brokers`, and everything else with the number of bytes in the request's
/// last four. Its threads end with their connections.
struct Server {
    port: u16,
}

impl Server {
    fn start(brokers: Arc<Mutex<Vec<u16>>>) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            while let Ok((socket, _)) = listener.accept() {
                let brokers = brokers.clone();
                std::thread::spawn(move || serve(socket, &brokers));
            }
        });
        Server { port }
    }

    fn alone() -> Server {
        let brokers = Arc::new(Mutex::new(Vec::new()));
        let server = Server::start(brokers.clone());
        brokers.lock().unwrap().push(server.port);
        server
    }

    fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }
}

fn serve(mut socket: TcpStream, brokers: &Mutex<Vec<u16>>) -> Option<()> {
    socket.set_nodelay(true).ok()?;
    loop {
        let request = read_frame(&mut socket)?;
        let mut reader = Reader::new(&request);
        let header = RequestHeader::decode(&mut reader).ok()?;
        let mut answer = vec![0; 4];
        encode_response_header(
            &mut answer,
            header.api_key,
            header.api_version,
            header.correlation_id,
        );
        if header.api_key == ApiKey::Metadata {
            metadata(&brokers.lock().unwrap()).encode(&mut answer, header.api_version);
        } else {
            let wanted = u32::from_be_bytes(request[request.len() - 4..].try_into().unwrap());
            answer.resize(answer.len() + wanted as usize, 0xaa);
        }
        let length = answer.len() as i32 - 4;
        answer[..4].copy_from_slice(&length.to_be_bytes());
        socket.write_all(&answer).ok()?;
    }
}

fn metadata(ports: &[u16]) -> MetadataResponse<'static> {
    let broker = |(node_id, port): (usize, &u16)| MetadataResponseBroker {
        node_id: node_id as i32,
        host: "127.0.0.1",
        port: i32::from(*port),
        ..Default::default()
    };
    MetadataResponse {
        brokers: ports.iter().enumerate().map(broker).collect(),
        ..Default::default()
    }
}

fn read_frame(socket: &mut TcpStream) -> Option<Vec<u8>> {
    let mut length = [0; 4];
    socket.read_exact(&mut length).ok()?;
    let mut frame = vec![0; i32::from_be_bytes(length) as usize];
    socket.read_exact(&mut frame).ok()?;
    Some(frame)
}

struct Client {
    socket: TcpStream,
    correlation_id: i32,
}

impl Client {
    fn connect(address: &str) -> Client {
        let socket = TcpStream::connect(address).unwrap();
        socket.set_nodelay(true).unwrap();
        Client {
            socket,
            correlation_id: 0,
        }
    }

    fn send(&mut self, api_key: ApiKey, api_version: i16, padding: usize, wanted: u32) {
        self.correlation_id += 1;
        let mut frame = vec![0; 4];
        let client_id = Some("test");
        RequestHeader {
            api_key,
            api_version,
            correlation_id: self.correlation_id,
            client_id,
        }
        .encode(&mut frame);
        frame.resize(frame.len() + padding, 0x55);
        frame.extend(wanted.to_be_bytes());
        let length = frame.len() as i32 - 4;
        frame[..4].copy_from_slice(&length.to_be_bytes());
        self.socket.write_all(&frame).unwrap();
    }

    fn heartbeat(&mut self, padding: usize, wanted: u32) -> usize {
        self.send(ApiKey::Heartbeat, 3, padding, wanted);
        let answer = read_frame(&mut self.socket).expect("an answer");
        let mut reader = Reader::new(&answer);
        assert_eq!(
            decode_response_header(&mut reader, ApiKey::Heartbeat, 3),
            Ok(self.correlation_id)
        );
        assert_eq!(reader.remaining(), wanted as usize);
        answer.len()
    }

    fn ports(&mut self) -> Vec<u16> {
        self.send(ApiKey::Metadata, METADATA_VERSION, 0, 0);
        let answer = read_frame(&mut self.socket).expect("an answer");
        let mut reader = Reader::new(&answer);
        decode_response_header(&mut reader, ApiKey::Metadata, METADATA_VERSION).unwrap();
        let body = MetadataResponse::decode(&mut reader, METADATA_VERSION).unwrap();
        assert!(body.brokers.iter().all(|broker| broker.host == RELAY_HOST));
        body.brokers.iter().map(|broker| broker.port as u16).collect()
    }
}

fn relay(server: &Server, spec: LinkSpec) -> Relay {
    Relay::start(&server.address(), &spec).unwrap()
}

#[test]
fn a_client_is_led_to_the_relay_for_every_broker_and_new_brokers_get_a_listener() {
    let brokers = Arc::new(Mutex::new(Vec::new()));
    let (one, two) = (Server::start(brokers.clone()), Server::start(brokers.clone()));
    brokers.lock().unwrap().push(one.port);
    let relay = relay(&one, LinkSpec::default());
    let mut client = Client::connect(&relay.bootstrap());
    let first = client.ports();
    assert_eq!(relay.bootstrap(), format!("127.0.0.1:{}", first[0]));
    brokers.lock().unwrap().push(two.port);
    let ports = client.ports();
    assert_eq!((ports.len(), ports[0]), (2, first[0]));
    assert!(ports[1] != two.port && ports[1] != ports[0]);
    // The other broker answers there, and leads back to the same listeners.
    let mut other = Client::connect(&format!("127.0.0.1:{}", ports[1]));
    assert_eq!(other.ports(), ports);
    assert_eq!(relay.problems(), Vec::<String>::new());
}

#[test]
fn a_round_trip_takes_at_least_the_links_and_connecting_one_more() {
    let server = Server::alone();
    let spec = LinkSpec {
        round_trip_ms: 20.0,
        ..LinkSpec::default()
    };
    let relay = relay(&server, spec);
    let began = Instant::now();
    let mut client = Client::connect(&relay.bootstrap());
    client.heartbeat(10, 10);
    assert!(began.elapsed() >= Duration::from_millis(40));
    for _ in 0..3 {
        let began = Instant::now();
        client.heartbeat(10, 10);
        assert!(began.elapsed() >= Duration::from_millis(20));
    }
    assert!(relay.told().lateness.count() >= 8);
}

#[test]
fn bytes_come_through_whole_and_in_order_whatever_the_link() {
    let server = Server::alone();
    let specs = [
        LinkSpec::default(),
        LinkSpec {
            window_bytes: 1_000,
            ..LinkSpec::default()
        },
        LinkSpec {
            round_trip_ms: 0.4,
            window_bytes: 20_000,
            ..LinkSpec::default()
        },
        LinkSpec {
            bytes_per_second: 20_000_000,
            ..LinkSpec::default()
        },
        LinkSpec {
            round_trip_ms: 0.3,
            stall_every_ms: 20,
            stall_ms: 5,
            ..LinkSpec::default()
        },
    ];
    for spec in specs {
        let relay = relay(&server, spec.clone());
        let clients = (0..3).map(|number| {
            let mut client = Client::connect(&relay.bootstrap());
            std::thread::spawn(move || {
                for size in [0, 1, 5_000, 300_000, 70_000 + number] {
                    client.heartbeat(size as usize, size);
                    assert_eq!(client.ports().len(), 1);
                }
            })
        });
        let clients: Vec<_> = clients.collect();
        for client in clients {
            client.join().unwrap_or_else(|_| panic!("with {spec:?}"));
        }
    }
}

#[test]
fn all_connections_together_stay_below_the_bandwidth() {
    let server = Server::alone();
    let spec = LinkSpec {
        bytes_per_second: 4_000_000,
        ..LinkSpec::default()
    };
    let relay = relay(&server, spec);
    let began = Instant::now();
    let clients: Vec<_> = (0..4)
        .map(|_| {
            let mut client = Client::connect(&relay.bootstrap());
            std::thread::spawn(move || client.heartbeat(100_000, 100_000))
        })
        .collect();
    for client in clients {
        client.join().unwrap();
    }
    // 400 kB each way, and an answer begins when its request has arrived.
    assert!(began.elapsed() >= Duration::from_millis(100));
}

#[test]
fn a_window_costs_round_trips() {
    let server = Server::alone();
    let spec = LinkSpec {
        round_trip_ms: 10.0,
        window_bytes: 10_000,
        ..LinkSpec::default()
    };
    let relay = relay(&server, spec);
    let mut client = Client::connect(&relay.bootstrap());
    client.heartbeat(0, 0);
    // Five windows and a bit: the sixth begins after five round trips.
    let began = Instant::now();
    client.heartbeat(50_100, 0);
    assert!(began.elapsed() >= Duration::from_millis(60));
    // The same for answers.
    let began = Instant::now();
    client.heartbeat(0, 50_100);
    assert!(began.elapsed() >= Duration::from_millis(60));
}

#[test]
fn a_full_window_makes_the_client_wait() {
    // The other end does not read.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let spec = LinkSpec {
        round_trip_ms: 1.0,
        window_bytes: 100_000,
        ..LinkSpec::default()
    };
    let relay = Relay::start(&listener.local_addr().unwrap().to_string(), &spec).unwrap();
    let mut client = TcpStream::connect(relay.bootstrap()).unwrap();
    client
        .set_write_timeout(Some(Duration::from_millis(300)))
        .unwrap();
    let mut head = 200_000_000i32.to_be_bytes().to_vec();
    head.extend([0, 12, 0, 3, 0, 0, 0, 1]);
    client.write_all(&head).unwrap();
    // Far more than all sockets on the way can hold.
    assert!(client.write_all(&vec![0; 100 << 20]).is_err());
}

#[test]
fn the_end_of_either_side_reaches_the_other() {
    let server = Server::alone();
    let relay = relay(
        &server,
        LinkSpec {
            round_trip_ms: 2.0,
            ..LinkSpec::default()
        },
    );
    let mut client = Client::connect(&relay.bootstrap());
    client.send(ApiKey::Heartbeat, 3, 10, 1_000);
    client.socket.shutdown(std::net::Shutdown::Write).unwrap();
    // The earlier request is answered, then the server closes.
    assert!(read_frame(&mut client.socket).is_some());
    assert_eq!(client.socket.read(&mut [0; 10]).unwrap(), 0);
}

#[test]
fn a_broker_that_is_down_closes_connections_and_not_the_relay() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let relay = Relay::start(&address.to_string(), &LinkSpec::default()).unwrap();
    for _ in 0..3 {
        let mut client = TcpStream::connect(relay.bootstrap()).unwrap();
        // End of stream or a reset, whichever comes first.
        assert_eq!(client.read(&mut [0; 10]).unwrap_or(0), 0);
    }
}

#[test]
fn invalid_frames_and_tls_are_reported() {
    let server = Server::alone();
    let relay = relay(&server, LinkSpec::default());
    let mut client = TcpStream::connect(relay.bootstrap()).unwrap();
    client.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    assert_eq!(client.read(&mut [0; 10]).unwrap_or(0), 0);
    assert!(
        relay.problems()[0].contains("1195725856 is no frame's length"),
        "{:?}",
        relay.problems()
    );

    let sink = TcpListener::bind("127.0.0.1:0").unwrap();
    let relay = Relay::start(&sink.local_addr().unwrap().to_string(), &LinkSpec::default()).unwrap();
    let mut client = TcpStream::connect(relay.bootstrap()).unwrap();
    client.write_all(&[0x16, 3, 1, 0, 5]).unwrap();
    let mut received = [0; 5];
    sink.accept().unwrap().0.read_exact(&mut received).unwrap();
    assert_eq!(received, [0x16, 3, 1, 0, 5]);
    // Bytes are forwarded before the caveat is recorded.
    while relay.problems().is_empty() {
        std::thread::yield_now();
    }
    assert!(
        relay.problems()[0].starts_with("TLS passed"),
        "{:?}",
        relay.problems()
    );
}

#[test]
fn impossible_addresses_and_links_are_refused_by_name() {
    let refused = |bootstrap: &str, spec: LinkSpec| {
        let error = Relay::start(bootstrap, &spec).expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        error.to_string()
    };
    for bootstrap in [
        "",
        "kafka",
        "kafka:",
        ":9092",
        "kafka:0",
        "kafka:70000",
        "a:1,,b:2",
    ] {
        assert!(
            refused(bootstrap, LinkSpec::default()).contains("host:port"),
            "{bootstrap}"
        );
    }
    let link = |spec| refused("127.0.0.1:9", spec);
    assert!(
        link(LinkSpec {
            round_trip_ms: -1.0,
            ..LinkSpec::default()
        })
        .contains("round_trip_ms")
    );
    assert!(
        link(LinkSpec {
            round_trip_ms: f64::NAN,
            ..LinkSpec::default()
        })
        .contains("round_trip_ms")
    );
    assert!(
        link(LinkSpec {
            stall_ms: 5,
            ..LinkSpec::default()
        })
        .contains("stall_every_ms")
    );
    assert!(
        link(LinkSpec {
            stall_ms: 5,
            stall_every_ms: 5,
            ..LinkSpec::default()
        })
        .contains("nothing ever passes")
    );
    assert_eq!(
        brokers("[::1]:9092, b:1").unwrap(),
        [("::1".into(), 9092), ("b".into(), 1)]
    );
}

#[test]
fn the_relays_own_cost_is_measured() {
    let server = Server::alone();
    let relay = relay(&server, LinkSpec::default());
    let overhead = relay.overhead().unwrap();
    assert_eq!(
        overhead.direct_round_trip_micros.count,
        overhead.relayed_round_trip_micros.count
    );
    assert!(overhead.direct_bytes_per_second > 0.0 && overhead.relayed_bytes_per_second > 0.0);
    assert!(overhead.to_string().starts_with("the relay adds"), "{overhead}");
    let caveats = relay.caveats();
    assert!(
        caveats[0].contains("relay on this machine: round trip 0 ms; the relay adds"),
        "{caveats:?}"
    );
    assert_eq!(caveats.len(), 1);
}
