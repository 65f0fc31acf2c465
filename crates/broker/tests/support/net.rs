//! The network layer with a scripted service behind it.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use ottla_broker::clock::SystemClock;
use ottla_broker::executor::cold_reads::ColdReads;
use ottla_broker::metrics::recorder::Records;
use ottla_broker::net::event_loop::{EventLoop, LoopParts, NetSettings};
use ottla_broker::net::listener::{ConnectionCounts, ConnectionLimits, Listener};
use ottla_broker::net::service::Service;
use ottla_core::reply::{Handled, PendingReply, ReplyBuffer};
use ottla_core::request::Request;
use ottla_wire::api_key::ApiKey;

use super::{Client, frame};

/// Answers a request with its own body, but for a few scripted ones.
struct Echo;

pub const PANIC: &[u8] = b"panic";
pub const SILENCE: &[u8] = b"silence";
pub const LARGE: &[u8] = b"large";
pub const LARGE_BYTES: usize = 10_000_000;

impl Service for Echo {
    fn handle(&self, request: &Request<'_>, reply: &mut ReplyBuffer) -> Handled {
        match request.body {
            PANIC => panic!("on purpose"),
            SILENCE => return Handled::NoReply,
            LARGE => reply.bytes.resize(LARGE_BYTES, 7),
            body => reply.bytes.extend_from_slice(body),
        }
        Handled::Replied
    }

    fn poll(&self, _: &mut dyn PendingReply, _: &Waker, _: &mut ReplyBuffer) -> Poll<()> {
        unreachable!("the echo never waits")
    }
}

pub struct Net {
    listener: Listener,
    _loops: Vec<EventLoop>,
    pub counts: Arc<ConnectionCounts>,
    pub records: Records,
}

impl Net {
    pub fn start() -> Net {
        Net::start_with(Duration::from_secs(600), usize::MAX)
    }

    pub fn start_with(idle_max: Duration, connections_max_per_ip: usize) -> Net {
        let records = Records((0..2).map(|_| Arc::default()).collect());
        let settings = Arc::new(NetSettings {
            request_bytes_max: 100 << 20,
            idle_max: Some(idle_max),
            send_buffer_bytes: None,
            receive_buffer_bytes: None,
            slow_request: None,
        });
        let clock = Arc::new(SystemClock::default());
        let start_loop = |index: usize| {
            let parts = LoopParts {
                service: Arc::new(Echo),
                clock: clock.clone(),
                settings: settings.clone(),
                cold_reads: Arc::new(ColdReads::default()),
                records: records.0[index].clone(),
            };
            EventLoop::start(index, parts).unwrap()
        };
        let loops = vec![start_loop(0), start_loop(1)];
        let limits =
            ConnectionLimits { connections_max: usize::MAX, connections_max_per_ip, overrides: Default::default() };
        let counts = Arc::new(ConnectionCounts::new(limits));
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        rustix::net::listen(&socket, 4096).unwrap();
        let mailboxes = loops.iter().map(|event_loop| event_loop.mailbox().clone()).collect();
        let listener = Listener::start("PLAINTEXT".into(), socket, counts.clone(), mailboxes).unwrap();
        Net { listener, _loops: loops, counts, records }
    }

    pub fn address(&self) -> SocketAddr {
        self.listener.address()
    }

    pub fn client(&self) -> Client {
        Client::connect(self.address())
    }

    pub fn wait_for_open(&self, count: usize) {
        while self.counts.open() != count {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// A request of an API whose header is not flexible, with any bytes as its body.
pub fn echo(correlation_id: i32, body: &[u8]) -> Vec<u8> {
    frame(ApiKey::Metadata, 1, correlation_id, |bytes| bytes.extend_from_slice(body))
}

pub fn check_answer(client: &mut Client, correlation_id: i32, body: &[u8]) {
    assert!(client.receive(ApiKey::Metadata, 1, correlation_id) == body, "reply {correlation_id} differs");
}

