//! Clients that only push their metrics, in any number: measures what they cost a broker's other
//! clients.
//!
//! `cargo run --release -p ottla-lab --example pushers BOOTSTRAP [CLIENTS] [SECONDS]`. Asks for
//! subscriptions and pushes at the given interval (KIP-714), spread evenly; eight instances share a
//! connection, the most that Ottla accepts. Run it beside `ottla perf produce` or a scenario; it
//! prints the answers that it got.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ottla_wire::api_key::ApiKey;
use ottla_wire::frame::{RequestHeader, decode_response_header};
use ottla_wire::messages::get_telemetry_subscriptions::{
    GetTelemetrySubscriptionsRequest, GetTelemetrySubscriptionsResponse,
};
use ottla_wire::messages::push_telemetry::{PushTelemetryRequest, PushTelemetryResponse};
use ottla_wire::primitives::{Reader, Uuid};

mod pushes;

const PER_CONNECTION: usize = 8;

struct Connection {
    socket: TcpStream,
    client_id: String,
    is_awaiting: bool,
}

struct Instance {
    id: Uuid,
    subscription_id: i32,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let bootstrap = arguments.first().expect("an address: host:port");
    let number = |index: usize, default: usize| {
        arguments
            .get(index)
            .map_or(default, |text| text.parse().expect("a number"))
    };
    let (clients, seconds) = (number(1, 10_000), number(2, 30));
    let mut connections: Vec<Connection> = (0..clients.div_ceil(PER_CONNECTION))
        .map(|index| Connection::open(bootstrap, index))
        .collect();
    let mut interval_ms = 0;
    let instances: Vec<Instance> = (0..clients)
        .map(|index| {
            let (instance, told_ms) = connections[index / PER_CONNECTION].subscribe();
            interval_ms = told_ms;
            instance
        })
        .collect();
    println!(
        "{clients} instances on {} connections push every {interval_ms} ms",
        connections.len()
    );
    // A little slower, because clocks differ: a push before its time is refused.
    let gap = Duration::from_secs_f64(1.02 * f64::from(interval_ms) / 1_000.0 / clients as f64);
    let payload = pushes::payload(now_ms());
    let (begin, mut answers) = (Instant::now(), BTreeMap::new());
    let mut pushed = 0_u32;
    while begin.elapsed() < Duration::from_secs(seconds as u64) {
        let index = pushed as usize % clients;
        let connection = &mut connections[index / PER_CONNECTION];
        if connection.is_awaiting {
            *answers.entry(connection.answered()).or_insert(0_u64) += 1;
        }
        connection.push(&instances[index], &payload);
        pushed += 1;
        let due = begin + gap * pushed;
        thread::sleep(due.saturating_duration_since(Instant::now()));
    }
    let rate = f64::from(pushed) / begin.elapsed().as_secs_f64();
    println!(
        "{pushed} pushes of {} bytes, {rate:.0} a second; answers by error code: {answers:?}",
        payload.len()
    );
}

impl Connection {
    fn open(bootstrap: &str, index: usize) -> Connection {
        let socket = TcpStream::connect(bootstrap).expect("the broker listens");
        socket.set_nodelay(true).expect("a socket takes TCP_NODELAY");
        Connection {
            socket,
            client_id: format!("pusher-{index}"),
            is_awaiting: false,
        }
    }

    fn subscribe(&mut self) -> (Instance, i32) {
        let request = GetTelemetrySubscriptionsRequest::default();
        self.send(ApiKey::GetTelemetrySubscriptions, |buffer| {
            request.encode(buffer, 0)
        });
        let answer = self.receive();
        let mut reader = body(&answer, ApiKey::GetTelemetrySubscriptions);
        let told = GetTelemetrySubscriptionsResponse::decode(&mut reader, 0).expect("an answer");
        assert_eq!(told.error_code, 0, "the broker refuses subscriptions");
        let instance = Instance {
            id: told.client_instance_id,
            subscription_id: told.subscription_id,
        };
        (instance, told.push_interval_ms)
    }

    fn push(&mut self, instance: &Instance, payload: &[u8]) {
        let request = PushTelemetryRequest {
            client_instance_id: instance.id,
            subscription_id: instance.subscription_id,
            metrics: payload,
            ..PushTelemetryRequest::default()
        };
        self.send(ApiKey::PushTelemetry, |buffer| request.encode(buffer, 0));
        self.is_awaiting = true;
    }

    /// The error code of the last push.
    fn answered(&mut self) -> i16 {
        let answer = self.receive();
        self.is_awaiting = false;
        let mut reader = body(&answer, ApiKey::PushTelemetry);
        PushTelemetryResponse::decode(&mut reader, 0)
            .expect("an answer")
            .error_code
    }

    fn send(&mut self, api_key: ApiKey, encode: impl FnOnce(&mut Vec<u8>)) {
        let mut frame = vec![0; 4];
        let header = RequestHeader {
            api_key,
            api_version: 0,
            correlation_id: 0,
            client_id: Some(&self.client_id),
        };
        header.encode(&mut frame);
        encode(&mut frame);
        let length = (frame.len() - 4) as i32;
        frame[..4].copy_from_slice(&length.to_be_bytes());
        self.socket.write_all(&frame).expect("the broker takes requests");
    }

    fn receive(&mut self) -> Vec<u8> {
        let mut length = [0; 4];
        self.socket.read_exact(&mut length).expect("the broker answers");
        let mut answer = vec![0; u32::from_be_bytes(length) as usize];
        self.socket.read_exact(&mut answer).expect("the broker answers");
        answer
    }
}

fn body(answer: &[u8], api_key: ApiKey) -> Reader<'_> {
    let mut reader = Reader::new(answer);
    decode_response_header(&mut reader, api_key, 0).expect("a header");
    reader
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as i64)
}
