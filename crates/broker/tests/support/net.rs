//! The network layer with a scripted service behind it.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Poll, Waker};
use std::time::Duration;

use ottla_broker::clock::SystemClock;
use ottla_broker::executor::cold_reads::ColdReads;
use ottla_broker::metrics::accounts::Accounts;
use ottla_broker::metrics::recorder::Records;
use ottla_broker::net::connection_counts::ConnectionCounts;
use ottla_broker::net::event_loop::EventLoop;
use ottla_broker::net::listener::{Door, Listener, TlsDoor};
use ottla_broker::net::loop_context::{AuthenticationSettings, LoopParts, NetSettings};
use ottla_broker::net::memory_budget::MemoryBudget;
use ottla_broker::net::service::Service;
use ottla_core::config::ConnectionLimits;
use ottla_core::connection_limits::LiveConnectionLimits;
use ottla_core::node::Node;
use ottla_core::pending::{Handled, PendingReply};
use ottla_core::quota::Quotas;
use ottla_core::reply::{InsertedRegion, ReplyBuffer, WaitKind};
use ottla_core::request::Request;
use ottla_core::tenant::Tenants;
use ottla_core::time::{Clock, Moment, Timestamp};
use ottla_log::disk::memory::MemoryDisk;
use ottla_log::disk::os::Descriptors;
use ottla_log::disk::{Disk, FileRegion, OpenMode};
use ottla_wire::api_key::ApiKey;

use super::{Client, frame_of};

/// Answers a request with its own body, except for a few scripted ones.
#[derive(Default)]
pub struct Echo {
    pub promises: Mutex<Promises>,
    /// Requests answered to [`SLOW`].
    pub slow: AtomicUsize,
    /// Requests answered to [`OF_BYTES`].
    pub large: AtomicUsize,
    /// How many event loops [`HOLD`] holds, and whether they may go on.
    held: Mutex<(usize, bool)>,
    let_go: Condvar,
}

#[derive(Default)]
pub struct Promises {
    waiting: usize,
    is_kept: bool,
    wakers: Vec<Waker>,
}

impl Echo {
    /// How many replies are waiting.
    pub fn waiting(&self) -> usize {
        self.promises.lock().unwrap().waiting
    }

    /// How many event loops have been held.
    pub fn held(&self) -> usize {
        self.held.lock().unwrap().0
    }

    /// Lets event loops go on, and holds none from now on.
    pub fn let_go(&self) {
        self.held.lock().unwrap().1 = true;
        self.let_go.notify_all();
    }

    fn hold(&self) {
        let mut held = self.held.lock().unwrap();
        held.0 += 1;
        drop(self.let_go.wait_while(held, |(_, may_go)| !*may_go).unwrap());
    }

    /// Makes every waiting reply, and all later ones, ready.
    pub fn keep_promises(&self) {
        let wakers = {
            let mut promises = self.promises.lock().unwrap();
            promises.is_kept = true;
            std::mem::take(&mut promises.wakers)
        };
        wakers.into_iter().for_each(Waker::wake);
    }
}

pub const PANIC: &[u8] = b"panic";
pub const SILENCE: &[u8] = b"silence";
/// Answered only after [`Echo::keep_promises`].
pub const WAIT: &[u8] = b"wait";
/// Bytes, a range of a file that can only be read where waiting is allowed, and bytes again.
pub const COLD: &[u8] = b"cold";
pub const COLD_BYTES: usize = 1_000_000;
/// Like [`COLD`], but the file is shorter than the range.
pub const TORN: &[u8] = b"torn";
/// Occupies its event loop for a millisecond.
pub const SLOW: &[u8] = b"slow";
/// Blocks its event loop until [`Echo::let_go`].
pub const HOLD: &[u8] = b"hold";
/// Answered with the principal of the connection.
pub const PRINCIPAL: &[u8] = b"principal";
pub const LARGE: &[u8] = b"large";
pub const LARGE_BYTES: usize = 10_000_000;
/// A body with this prefix is answered with its length.
pub const COUNT: &[u8] = b"count";
/// A body with this prefix is answered with as many bytes as the number after it.
pub const OF_BYTES: &[u8] = b"of bytes ";

/// A request for an answer of `bytes`.
pub fn of_bytes(bytes: usize) -> Vec<u8> {
    [OF_BYTES, bytes.to_string().as_bytes()].concat()
}

struct Promise {
    echo: Arc<EchoService>,
}

impl PendingReply for Promise {
    fn poll(&mut self, _: &Node, _: &Waker, _: &mut ReplyBuffer) -> Poll<()> {
        unreachable!("the service polls")
    }

    fn waits_for(&self) -> WaitKind {
        WaitKind::Data
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        self.echo.0.promises.lock().unwrap().waiting -= 1;
    }
}

fn reply_with_region(reply: &mut ReplyBuffer, bytes: u64) {
    let disk = MemoryDisk::new(1);
    let file = disk.open(Path::new("/log"), OpenMode::Create).unwrap();
    let content: Vec<u8> = (0..COLD_BYTES).map(|index| (index % 253) as u8).collect();
    file.write_at(&[std::io::IoSlice::new(&content)], 0).unwrap();
    reply.bytes.extend_from_slice(b"<>");
    reply.regions.push(InsertedRegion {
        at: 1,
        region: FileRegion {
            file,
            position: 0,
            bytes,
        },
    });
}

struct EchoService(Arc<Echo>);

impl Service for EchoService {
    fn handle(&self, request: &Request<'_>, reply: &mut ReplyBuffer) -> Handled {
        match request.body {
            PANIC => panic!("on purpose"),
            SILENCE => return Handled::NoReply,
            WAIT => {
                self.0.promises.lock().unwrap().waiting += 1;
                return Handled::Pending(Box::new(Promise {
                    echo: Arc::new(EchoService(self.0.clone())),
                }));
            }
            COLD => reply_with_region(reply, COLD_BYTES as u64),
            TORN => reply_with_region(reply, COLD_BYTES as u64 + 1),
            SLOW => {
                std::thread::sleep(Duration::from_millis(1));
                self.0.slow.fetch_add(1, Ordering::SeqCst);
                reply.bytes.extend_from_slice(SLOW);
            }
            HOLD => {
                self.0.hold();
                reply.bytes.extend_from_slice(HOLD);
            }
            PRINCIPAL => reply
                .bytes
                .extend_from_slice(request.connection.principal.as_bytes()),
            LARGE => reply.bytes.resize(LARGE_BYTES, 7),
            body if body.starts_with(COUNT) => {
                reply.bytes.extend_from_slice(body.len().to_string().as_bytes())
            }
            body if body.starts_with(OF_BYTES) => {
                let bytes = std::str::from_utf8(&body[OF_BYTES.len()..]).unwrap();
                reply.bytes.resize(bytes.parse().unwrap(), 7);
                self.0.large.fetch_add(1, Ordering::SeqCst);
            }
            body => reply.bytes.extend_from_slice(body),
        }
        Handled::Replied
    }

    fn poll(&self, _: &mut dyn PendingReply, waker: &Waker, reply: &mut ReplyBuffer) -> Poll<()> {
        let mut promises = self.0.promises.lock().unwrap();
        if promises.is_kept {
            reply.bytes.extend_from_slice(WAIT);
            return Poll::Ready(());
        }
        promises.wakers.push(waker.clone());
        Poll::Pending
    }
}

/// The system's clock, which tests may set forward and back.
#[derive(Debug)]
pub struct JumpingClock {
    system: SystemClock,
    offset_micros: AtomicI64,
}

impl JumpingClock {
    /// Microseconds since its start when a test begins: enough to be set back.
    const START_MICROS: i64 = 3_600_000_000;

    pub fn jump(&self, micros: i64) {
        self.offset_micros.fetch_add(micros, Ordering::SeqCst);
    }
}

impl Default for JumpingClock {
    fn default() -> JumpingClock {
        JumpingClock {
            system: SystemClock::default(),
            offset_micros: AtomicI64::new(JumpingClock::START_MICROS),
        }
    }
}

impl Clock for JumpingClock {
    fn moment(&self) -> Moment {
        let offset_micros = self.offset_micros.load(Ordering::SeqCst);
        Moment::from_micros(self.system.moment().micros().saturating_add_signed(offset_micros))
    }

    fn timestamp(&self) -> Timestamp {
        panic!("the wall clock may be set to anything; the network layer must not ask it")
    }
}

/// Long enough that only a hang reaches it.
const HANG: Duration = Duration::from_secs(60);

/// Waits until `condition` holds.
pub fn until(what: &str, condition: impl Fn() -> bool) {
    let began = std::time::Instant::now();
    while !condition() {
        assert!(began.elapsed() < HANG, "never: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

pub struct Net {
    listener: Listener,
    pub echo: Arc<Echo>,
    _loops: Vec<EventLoop>,
    pub counts: Arc<ConnectionCounts>,
    pub records: Records,
    pub tenants: Arc<Tenants>,
    pub accounts: [Arc<Accounts>; 2],
    pub memory: Arc<MemoryBudget>,
    pub clock: Arc<JumpingClock>,
}

/// `socket.request.max.bytes` of a network without an explicit limit.
pub const REQUEST_BYTES_MAX: usize = 100 << 20;

impl Net {
    pub fn start() -> Net {
        Net::start_with(Duration::from_secs(600), usize::MAX)
    }

    pub fn start_with(idle_max: Duration, connections_max_per_ip: usize) -> Net {
        Net::start_within(
            (10 * REQUEST_BYTES_MAX, REQUEST_BYTES_MAX),
            idle_max,
            connections_max_per_ip,
        )
    }

    /// Starts with these limits on the memory for requests of all connections together, and of one
    /// request.
    pub fn start_within(memory: (usize, usize), idle_max: Duration, connections_max_per_ip: usize) -> Net {
        Net::start_behind(None, memory, idle_max, connections_max_per_ip)
    }

    /// Like [`Net::start_within`], with TLS.
    pub fn start_behind(
        tls: Option<TlsDoor>,
        (memory_bytes_max, request_bytes_max): (usize, usize),
        idle_max: Duration,
        connections_max_per_ip: usize,
    ) -> Net {
        let echo = Arc::new(Echo::default());
        let records = Records((0..2).map(|_| Arc::default()).collect());
        let settings = Arc::new(NetSettings {
            request_bytes_max: request_bytes_max as i32,
            idle_max: Some(idle_max),
            send_buffer_bytes: None,
            receive_buffer_bytes: None,
            slow_request: None,
            authentication: AuthenticationSettings::default(),
        });
        let clock = Arc::new(JumpingClock::default());
        let tenants = Arc::new(Tenants::default());
        let accounts = [(); 2].map(|()| Accounts::new(tenants.id_limit()));
        let memory = Arc::new(MemoryBudget::new(memory_bytes_max, 2, request_bytes_max));
        let start_loop = |index: usize| {
            let parts = LoopParts {
                service: Arc::new(EchoService(echo.clone())),
                clock: clock.clone(),
                settings: settings.clone(),
                cold_reads: Arc::new(ColdReads::default()),
                quotas: Arc::new(Quotas::none()),
                memory: memory.clone(),
                records: records.0[index].clone(),
                tenants: tenants.clone(),
                accounts: accounts[index].clone(),
            };
            EventLoop::start(index, parts).unwrap()
        };
        let loops = vec![start_loop(0), start_loop(1)];
        let mut limits = ConnectionLimits::none();
        limits.per_address = connections_max_per_ip;
        let limits = Arc::new(LiveConnectionLimits::new(limits));
        let counts = ConnectionCounts::new(limits, Descriptors::of_process(), clock.clone());
        let counts = Arc::new(counts);
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        rustix::net::listen(&socket, 4096).unwrap();
        let mailboxes = loops
            .iter()
            .map(|event_loop| event_loop.mailbox().clone())
            .collect();
        let listener = Listener::start(
            "PLAINTEXT".into(),
            socket,
            counts.clone(),
            mailboxes,
            Door { tls, has_sasl: false },
        )
        .unwrap();
        Net {
            listener,
            echo,
            _loops: loops,
            counts,
            records,
            tenants,
            accounts,
            memory,
            clock,
        }
    }

    pub fn address(&self) -> SocketAddr {
        self.listener.address()
    }

    pub fn client(&self) -> Client {
        Client::connect(self.address())
    }

    pub fn wait_for_open(&self, count: usize) {
        until(&format!("{count} connections are open"), || {
            self.counts.open() == count
        });
    }
}

/// A request of an API whose header is not flexible, with any bytes as its body.
pub fn echo(correlation_id: i32, body: &[u8]) -> Vec<u8> {
    echo_of("test", correlation_id, body)
}

/// Like [`echo`], with another client id.
pub fn echo_of(client_id: &str, correlation_id: i32, body: &[u8]) -> Vec<u8> {
    frame_of(client_id, ApiKey::Metadata, 1, correlation_id, |bytes| {
        bytes.extend_from_slice(body)
    })
}

pub fn check_answer(client: &mut Client, correlation_id: i32, body: &[u8]) {
    assert!(
        client.receive(ApiKey::Metadata, 1, correlation_id) == body,
        "reply {correlation_id} differs"
    );
}
