//! Measures what the relay itself costs: a small request there and back, and bytes per second, with
//! it and without it.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::OnceLock;
use std::thread::JoinHandle;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::namespace::Namespace;
use super::relay::Relay;
use crate::numbers::{mib, number};
use crate::report::Percentiles;
use crate::report::histogram::Latencies;
use crate::scenario::model::LinkSpec;

/// Rounds in which the two ways are measured alternately, so that a change of the machine's speed
/// affects both.
const ROUNDS: usize = 5;
const ROUND_TRIPS_PER_ROUND: usize = 400;
const BULK_FRAMES_PER_ROUND: usize = 16;
const BULK_BYTES: usize = 1024 * 1024;

/// The size of a measured request: length, key, version, correlation id, and as much as a small
/// heartbeat.
const SMALL_BYTES: usize = 64;
/// Length, correlation id.
const ANSWER_BYTES: usize = 8;

/// The relay's own cost, on a link without delay or limit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RelayOverhead {
    /// 64 bytes there, 8 bytes back, over loopback: directly, and through a relay.
    pub direct_round_trip_micros: Percentiles,
    pub relayed_round_trip_micros: Percentiles,
    /// One connection, requests of 1 MiB one after another without waiting: the best of the rounds.
    pub direct_bytes_per_second: f64,
    pub relayed_bytes_per_second: f64,
    /// How much later than the link specifies this relay has handed bytes over so far.
    pub late_micros: Percentiles,
}

impl RelayOverhead {
    /// The median time that the relay adds to a round trip.
    pub fn added_micros(&self) -> f64 {
        self.relayed_round_trip_micros.p50 - self.direct_round_trip_micros.p50
    }
}

/// A line for the report.
impl fmt::Display for RelayOverhead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the relay adds {} µs to a round trip (p50; {} instead of {}; p99 {} instead of {}) and moves \
             {} MiB/s instead of {}",
            number(self.added_micros()),
            number(self.relayed_round_trip_micros.p50),
            number(self.direct_round_trip_micros.p50),
            number(self.relayed_round_trip_micros.p99),
            number(self.direct_round_trip_micros.p99),
            mib(self.relayed_bytes_per_second),
            mib(self.direct_bytes_per_second),
        )?;
        if self.late_micros.count > 0 {
            write!(
                f,
                "; bytes came {} µs later than the link says (p99 {}, max {})",
                number(self.late_micros.p50),
                number(self.late_micros.p99),
                number(self.late_micros.max)
            )?;
        }
        Ok(())
    }
}

/// Returns the overhead, measured once per process.
pub fn measured() -> io::Result<RelayOverhead> {
    static MEASURED: OnceLock<RelayOverhead> = OnceLock::new();
    if let Some(known) = MEASURED.get() {
        return Ok(known.clone());
    }
    let overhead = measure()?;
    Ok(MEASURED.get_or_init(|| overhead).clone())
}

fn measure() -> io::Result<RelayOverhead> {
    let sink = Sink::start()?;
    let relay = Relay::start(&sink.address.to_string(), &LinkSpec::default())?;
    let mut ways = [
        Measured::connect(&sink.address.to_string())?,
        Measured::connect(&relay.bootstrap())?,
    ];
    for _ in 0..ROUNDS {
        for way in &mut ways {
            way.round()?;
        }
    }
    let [direct, relayed] = ways;
    Ok(RelayOverhead {
        direct_round_trip_micros: direct.percentiles(),
        relayed_round_trip_micros: relayed.percentiles(),
        direct_bytes_per_second: direct.bytes_per_second,
        relayed_bytes_per_second: relayed.bytes_per_second,
        late_micros: Percentiles::default(),
    })
}

/// Returns the seconds that each request takes over a link with one in flight, against a server
/// that answers at once; and how late the relay was.
///
/// - Units: `request_bytes` at most one MiB.
pub fn request_seconds(
    spec: &LinkSpec,
    request_bytes: usize,
    requests: u32,
) -> io::Result<(f64, Percentiles)> {
    let sink = Sink::start()?;
    let relay = Relay::start(&sink.address.to_string(), spec)?;
    let mut client = Measured::connect(&relay.bootstrap())?;
    // Connecting takes a round trip of its own.
    client.send(SMALL_BYTES)?;
    client.receive()?;
    let began = Instant::now();
    for _ in 0..requests {
        client.send(request_bytes.clamp(SMALL_BYTES, BULK_BYTES))?;
        client.receive()?;
    }
    let seconds = began.elapsed().as_secs_f64() / f64::from(requests);
    Ok((seconds, relay.late_micros()))
}

/// The same with real packets: a client whose socket has this send buffer, and a server in the
/// namespace. The first four requests do not count, because the window has to grow.
pub fn real_request_seconds(
    namespace: &Namespace,
    send_buffer_bytes: usize,
    request_bytes: usize,
    requests: u32,
) -> io::Result<f64> {
    let sink = namespace.inside(|| Sink::start_at(namespace.broker_address()))??;
    let mut client = Measured::connect(&sink.address.to_string())?;
    rustix::net::sockopt::set_socket_send_buffer_size(&client.socket, send_buffer_bytes)?;
    let mut began = Instant::now();
    for request in 0..requests + 4 {
        if request == 4 {
            began = Instant::now();
        }
        client.send(request_bytes.clamp(SMALL_BYTES, BULK_BYTES))?;
        client.receive()?;
    }
    Ok(began.elapsed().as_secs_f64() / f64::from(requests))
}

/// One of the two ways, and its measurements.
struct Measured {
    socket: TcpStream,
    round_trip_nanos: Latencies,
    bytes_per_second: f64,
    correlation_id: i32,
    bulk: Vec<u8>,
}

impl Measured {
    fn connect(address: &str) -> io::Result<Measured> {
        let socket = TcpStream::connect(address)?;
        socket.set_nodelay(true)?;
        Ok(Measured {
            socket,
            round_trip_nanos: Latencies::default(),
            bytes_per_second: 0.0,
            correlation_id: 0,
            bulk: vec![0; BULK_BYTES],
        })
    }

    fn round(&mut self) -> io::Result<()> {
        for _ in 0..ROUND_TRIPS_PER_ROUND {
            let began = Instant::now();
            self.send(SMALL_BYTES)?;
            self.receive()?;
            self.round_trip_nanos.record(began.elapsed().as_nanos() as u64);
        }
        let began = Instant::now();
        for _ in 0..BULK_FRAMES_PER_ROUND {
            self.send(BULK_BYTES)?;
        }
        for _ in 0..BULK_FRAMES_PER_ROUND {
            self.receive()?;
        }
        let bytes = (BULK_FRAMES_PER_ROUND * BULK_BYTES) as f64;
        self.bytes_per_second = self.bytes_per_second.max(bytes / began.elapsed().as_secs_f64());
        Ok(())
    }

    fn send(&mut self, bytes: usize) -> io::Result<()> {
        let frame = &mut self.bulk[..bytes];
        self.correlation_id += 1;
        frame[..4].copy_from_slice(&((bytes - 4) as i32).to_be_bytes());
        // An API whose answers the relay inspects would be another measurement: this is Heartbeat
        // 4.
        frame[4..8].copy_from_slice(&[0, 12, 0, 4]);
        frame[8..12].copy_from_slice(&self.correlation_id.to_be_bytes());
        self.socket.write_all(frame)
    }

    fn receive(&mut self) -> io::Result<()> {
        self.socket.read_exact(&mut [0; ANSWER_BYTES])
    }

    fn percentiles(&self) -> Percentiles {
        let nanos = self.round_trip_nanos.percentiles(1_000.0);
        Percentiles {
            count: self.round_trip_nanos.count(),
            ..nanos
        }
    }
}

/// Reads frames and answers each with its correlation id, until its two connections are closed.
struct Sink {
    address: SocketAddr,
    thread: Option<JoinHandle<()>>,
}

impl Sink {
    fn start() -> io::Result<Sink> {
        Sink::start_at(Ipv4Addr::LOCALHOST.into())
    }

    fn start_at(address: IpAddr) -> io::Result<Sink> {
        let listener = TcpListener::bind((address, 0))?;
        let address = listener.local_addr()?;
        let thread = std::thread::Builder::new()
            .name("ottla-sink".into())
            .spawn(move || {
                let serve = |_| {
                    let (socket, _) = listener.accept().ok()?;
                    std::thread::Builder::new().spawn(move || serve(socket)).ok()
                };
                let serving: Vec<_> = (0..2).filter_map(serve).collect();
                for connection in serving {
                    // It ends with its client.
                    let _ = connection.join();
                }
            })?;
        Ok(Sink {
            address,
            thread: Some(thread),
        })
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        // accept would wait for connections that were never made.
        let spare: Vec<_> = (0..2).map(|_| TcpStream::connect(self.address)).collect();
        drop(spare);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve(mut socket: TcpStream) -> io::Result<()> {
    socket.set_nodelay(true)?;
    let mut head = [0; 12];
    let mut body = vec![0; BULK_BYTES];
    loop {
        socket.read_exact(&mut head)?;
        let length = i32::from_be_bytes([head[0], head[1], head[2], head[3]]);
        let left = usize::try_from(length)
            .unwrap_or(0)
            .saturating_sub(8)
            .min(body.len());
        socket.read_exact(&mut body[..left])?;
        let mut answer = [0; ANSWER_BYTES];
        answer[..4].copy_from_slice(&4i32.to_be_bytes());
        answer[4..].copy_from_slice(&head[8..12]);
        socket.write_all(&answer)?;
    }
}
