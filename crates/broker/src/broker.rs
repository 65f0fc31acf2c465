//! A running broker as a value: started from properties, stopped by dropping it.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ottla_core::config::{
    ConfigError, FirstUser, Listener as ListenerConfig, NodeConfig, RecoveryConfig, oauth_settings,
};
use ottla_core::node::Node;
use ottla_core::random::{SecretSeed, Seed};
use ottla_core::telemetry::receiver::ClientTelemetryReceiver;
use ottla_core::time::Clock;
use ottla_log::directory::META_PROPERTIES_FILE;
use ottla_log::disk::Disk;
use ottla_log::disk::os::{Descriptors, OsDisk};
use ottla_log::disk::owned::LogMemory;
use tracing::{error, info, warn};

use crate::activity::ActivityView;
use crate::admin::gate::Gate;
use crate::admin::tls::TlsView;
use crate::admin::{Added, AddedMetrics, Admin, AdminView, Console, Page};
use crate::clock::SystemClock;
use crate::executor::crew::ThreadCrew;
use crate::executor::{Queues, Workers};
use crate::first_users;
use crate::http::guard::Names;
use crate::metrics::accounts::Accounts;
use crate::metrics::recorder::Records;
use crate::metrics::tenants::TenantBooks;
use crate::net::connection_counts::ConnectionCounts;
use crate::net::event_loop::EventLoop;
use crate::net::handshake::{HANDSHAKES_MAX, Handshakes};
use crate::net::listener::{Door, Listener, TlsDoor};
use crate::net::loop_context::LoopParts;
use crate::net::memory_budget::MemoryBudget;
use crate::properties::Properties;
use crate::random_bytes;
use crate::settings::Settings;
use crate::tls::listener::TlsListener;
use crate::tls::listeners::TlsListeners;
use crate::tls::reload::Reloader;
use crate::token_keys::{Sources, TokenKeyReader};

/// A stop waits at most this long for markers of decided transactions.
const MARKERS_TIMEOUT: Duration = Duration::from_secs(5);
const MARKERS_PAUSE: Duration = Duration::from_millis(2);

/// Why a broker did not start. `Display` is one line for the operator.
#[derive(Debug)]
pub enum StartError {
    Config(ConfigError),
    Listener { listener: String, error: io::Error },
    Admin { address: String, error: io::Error },
    AdminToken(String),
    Node(ottla_core::node::StartError),
    Threads(io::Error),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::Config(error) => write!(f, "{error}"),
            StartError::Listener { listener, error } => write!(f, "cannot listen on {listener}: {error}"),
            StartError::Admin { address, error } => {
                write!(f, "cannot listen on the admin address {address}: {error}")?;
                match error.kind() {
                    // Redpanda's admin API has the same port by default.
                    io::ErrorKind::AddrInUse => f.write_str(
                        "; another program has it: set ottla.admin.listener to another address, or to nothing for none",
                    ),
                    _ => Ok(()),
                }
            }
            StartError::AdminToken(problem) => write!(f, "{problem}"),
            StartError::Node(error) => write!(f, "{error}"),
            StartError::Threads(error) => write!(f, "cannot start threads: {error}"),
        }
    }
}

impl std::error::Error for StartError {}

/// What the embedding program adds to a broker.
#[derive(Default)]
pub struct Additions {
    /// Takes the metrics that clients push (KIP-714); without one, clients are not offered a
    /// subscription.
    pub telemetry: Option<Arc<dyn ClientTelemetryReceiver>>,
    /// Pages that the admin address serves beside the broker's own.
    pub pages: Vec<Page>,
    /// Write metrics at the end of `/metrics`.
    pub metrics: Vec<AddedMetrics>,
    /// The console that the admin address serves to browsers.
    pub console: Option<Console>,
    /// The disk that holds the logs; `None`: the operating system's files.
    pub disk: Option<Arc<dyn Disk>>,
    /// Damage that the operator accepts: the start goes on without what is lost.
    pub recovery: RecoveryConfig,
    /// SCRAM users that an empty directory begins with: `MECHANISM=[name=NAME,password=PASSWORD]`.
    pub add_scram: Vec<String>,
}

/// One broker. Several may run in a process. Dropping it stops it cleanly: it answers what is due,
/// closes all connections, then syncs and closes the logs.
pub struct Broker {
    // Fields are dropped in this order.
    admin: Option<Admin>,
    listeners: Vec<(ListenerConfig, Listener)>,
    tls: Option<Tls>,
    loops: Vec<EventLoop>,
    token_keys: Option<TokenKeyReader>,
    workers: Option<Workers>,
    node: Arc<Node>,
    activity: ActivityView,
    _directory: Option<TemporaryDirectory>,
}

impl Broker {
    /// Starts a broker with the keys of Kafka's server.properties and Ottla's own; missing keys
    /// have their defaults.
    ///
    /// It accepts connections when this returns.
    pub fn start(properties: &Properties) -> Result<Broker, StartError> {
        Broker::start_with(properties, Additions::default())
    }

    /// Like [`Broker::start`], with what the embedding program adds.
    pub fn start_with(properties: &Properties, additions: Additions) -> Result<Broker, StartError> {
        let mut settings = read_settings(properties, additions.recovery, &additions.add_scram)?;
        let tls_listeners = open_tls(&mut settings).map_err(StartError::Config)?;
        let sockets = bind_all(&mut settings)?;
        let admin_socket = bind_admin(&settings)?;
        let gate = gate_of(&settings, admin_socket.as_ref())?;
        let key_sources =
            Sources::read(oauth_settings(&settings.node.security)).map_err(StartError::Config)?;
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
        // Before the first file is opened, and with the descriptor limit as it is now.
        let descriptors = Descriptors::of_process();
        let node = open_node(&settings, additions.disk, &clock)?;
        if let Some(receiver) = additions.telemetry {
            node.telemetry.set_receiver(receiver);
        }
        if !tls_listeners.all().is_empty() {
            node.set_key_stores(Arc::new(tls_listeners.clone()));
        }
        let node = Arc::new(node);
        let token_keys = TokenKeyReader::start(key_sources, &node).map_err(StartError::Config)?;
        let queues = Arc::new(Queues::default());
        queues.bind(&node);
        // The first jobs start here: loading the known groups.
        node.set_executor(queues.clone());
        let workers = Workers::start(&node, queues.clone(), clock.clone()).map_err(StartError::Threads)?;
        let counts = ConnectionCounts::new(node.connection_limits.clone(), descriptors, clock.clone());
        let counts = Arc::new(counts.with_quotas(node.quotas.clone()));
        let loops = Loops::start(&settings, &node, &queues, &clock).map_err(StartError::Threads)?;
        let activity = ActivityView::new(&node, loops.records.clone(), clock.clone());
        let mut broker = Broker {
            admin: None,
            listeners: Vec::new(),
            tls: Tls::start(tls_listeners, settings.authentication_timeout).map_err(StartError::Threads)?,
            loops: loops.loops,
            token_keys,
            workers: Some(workers),
            activity,
            node,
            _directory: None,
        };
        broker.listen(sockets, &counts).map_err(StartError::Threads)?;
        if let Some(socket) = admin_socket {
            let tenants = TenantBooks::new(
                broker.node.tenants.clone(),
                loops.accounts,
                loops.records.clone(),
                clock.clone(),
            );
            let view = AdminView {
                node: broker.node.clone(),
                connections: counts,
                rates: Arc::default(),
                queues,
                memory: loops.memory,
                tenants: Arc::new(tenants),
                tls: broker.tls.as_ref().map(Tls::view),
                added: additions.metrics.into(),
                records: loops.records,
                clock,
            };
            let added = Added {
                pages: additions.pages,
                console: additions.console,
            };
            broker.serve_admin(socket, view, added, gate)?;
        }
        info!(ready = %broker.ready_line(), "started");
        Ok(broker)
    }

    /// Accepts connections from here on.
    fn listen(
        &mut self,
        sockets: Vec<(ListenerConfig, TcpListener)>,
        counts: &Arc<ConnectionCounts>,
    ) -> io::Result<()> {
        let mailboxes: Vec<_> = self.loops.iter().map(|one| one.mailbox().clone()).collect();
        for (config, socket) in sockets {
            let door = Door {
                tls: self.tls.as_ref().and_then(|tls| tls.door(&config.name)),
                has_sasl: config.security_protocol.has_sasl(),
            };
            let (name, counts) = (config.name.clone(), counts.clone());
            let listener = Listener::start(name, socket, counts, mailboxes.clone(), door)?;
            self.listeners.push((config, listener));
        }
        Ok(())
    }

    /// - `gate`: `None` if the log directory holds the token.
    fn serve_admin(
        &mut self,
        socket: TcpListener,
        view: AdminView,
        added: Added,
        gate: Option<Gate>,
    ) -> Result<(), StartError> {
        let config = self.node.config();
        let gate = gate
            .map_or_else(|| Gate::made(config), Ok)
            .map_err(StartError::AdminToken)?;
        let admin = Admin::start(socket, view, added, admin_names(config), gate);
        self.admin = Some(admin.map_err(StartError::Threads)?);
        Ok(())
    }

    /// Starts a broker on a free port of 127.0.0.1 in a temporary directory that is removed with
    /// it.
    ///
    /// `properties` override the defaults; the admin address is off unless they name one.
    pub fn start_temporary(properties: &[(&str, &str)]) -> Result<Broker, StartError> {
        Broker::start_temporary_with(properties, Additions::default())
    }

    /// Like [`Broker::start_temporary`], with what the embedding program adds.
    pub fn start_temporary_with(
        properties: &[(&str, &str)],
        additions: Additions,
    ) -> Result<Broker, StartError> {
        let directory = TemporaryDirectory::create().map_err(StartError::Threads)?;
        let path = directory.path.to_string_lossy().into_owned();
        let defaults = [
            ("listeners", "PLAINTEXT://127.0.0.1:0"),
            ("log.dirs", path.as_str()),
            ("ottla.admin.listener", ""),
        ];
        let all = defaults.iter().chain(properties);
        let properties: Properties = all
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect();
        let mut broker = Broker::start_with(&properties, additions)?;
        broker._directory = Some(directory);
        Ok(broker)
    }

    /// The address on which the first listener accepts connections.
    pub fn address(&self) -> SocketAddr {
        self.listeners[0].1.address()
    }

    /// The memory of the logs, unless they live in the page cache.
    pub fn log_memory(&self) -> Option<&Arc<LogMemory>> {
        self.node.storage.disk.memory()
    }

    /// The address of the listener of this name, in upper case.
    pub fn address_of(&self, listener_name: &str) -> Option<SocketAddr> {
        let mut listeners = self.listeners.iter();
        let found = listeners.find(|(config, _)| &*config.name == listener_name);
        found.map(|(_, listener)| listener.address())
    }

    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin.as_ref().map(Admin::address)
    }

    /// A view of what clients do, to be read repeatedly. It may outlive the broker and then reports
    /// nothing new.
    pub fn activity(&self) -> ActivityView {
        self.activity.clone()
    }

    pub fn node(&self) -> &Arc<Node> {
        &self.node
    }

    /// Has all listeners read their key stores and trust stores again, for new connections. One
    /// that cannot keeps what it has, and the log says why. Waits for the disk.
    pub fn reload_tls(&self) {
        if let Some(tls) = &self.tls {
            tls.listeners.reload();
        }
    }

    /// What `ottla serve` writes to standard output once connections are accepted.
    pub fn ready_line(&self) -> String {
        let listeners: Vec<String> = self
            .listeners
            .iter()
            .map(|(config, _)| config.to_string())
            .collect();
        let directories: Vec<String> = self
            .node
            .config()
            .log_directories
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        let admin = self
            .admin_address()
            .map_or_else(String::new, |address| format!(" admin=http://{address}"));
        format!(
            "ottla ready listeners={} cluster.id={} log.dirs={}{admin}",
            listeners.join(","),
            self.node.cluster_id(),
            directories.join(",")
        )
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.node.begin_stop();
        self.admin = None;
        self.listeners.clear();
        self.tls = None;
        // Tell all loops to stop before waiting for the first.
        self.loops.iter().for_each(EventLoop::stop);
        self.loops.clear();
        self.token_keys = None;
        finish_transactions(&self.node);
        self.workers = None;
        if let Err(error) = self.node.close() {
            error!(%error, "not stopped cleanly; the next start will check the logs");
        }
    }
}

/// Waits until the markers of decided transactions are written, so that the next owner of the
/// directory finds them complete. A partition that takes no marker holds up the stop no longer than
/// `MARKERS_TIMEOUT`; the next start goes on with it.
fn finish_transactions(node: &Node) {
    let decided = || node.transactions.decided();
    if let Err(transactions) = wait_for_none(decided, MARKERS_TIMEOUT) {
        warn!(
            transactions,
            "stopped before all markers were written: the next start writes them"
        );
    }
}

/// - Errors: as many were left when the time was over.
fn wait_for_none(mut count: impl FnMut() -> usize, timeout: Duration) -> Result<(), usize> {
    let deadline = Instant::now() + timeout;
    loop {
        match count() {
            0 => return Ok(()),
            left if Instant::now() >= deadline => return Err(left),
            _ => std::thread::sleep(MARKERS_PAUSE),
        }
    }
}

/// Reads the settings, and says what in them is worth a warning.
fn read_settings(
    properties: &Properties,
    recovery: RecoveryConfig,
    add_scram: &[String],
) -> Result<Settings, StartError> {
    let mut settings = Settings::read(properties, seed()).map_err(StartError::Config)?;
    settings.node.recovery = recovery;
    settings.node.secret_seed = SecretSeed(seed());
    settings.node.first_users = first_users(properties, add_scram, settings.node.secret_seed)?;
    for warning in &settings.node.warnings {
        warn!("{warning}");
    }
    if let Some(file) = &settings.memory.limited_by {
        let (file, bytes) = (file.display(), settings.memory.bytes);
        info!(bytes, %file, "memory is limited by a control group");
    }
    Ok(settings)
}

fn open_node(
    settings: &Settings,
    disk: Option<Arc<dyn Disk>>,
    clock: &Arc<dyn Clock>,
) -> Result<Node, StartError> {
    let disk = disk.unwrap_or_else(OsDisk::shared);
    let crew = Arc::new(ThreadCrew::new(settings.recovery_threads));
    let node = Node::open_with(settings.node.clone(), disk, clock.clone(), crew).map_err(StartError::Node)?;
    report_way_to_disk(&node, &settings.node);
    Ok(node)
}

/// The event loops, and what they share with the admin address.
struct Loops {
    loops: Vec<EventLoop>,
    /// One for each loop, as are the accounts.
    records: Records,
    accounts: Vec<Arc<Accounts>>,
    memory: Arc<MemoryBudget>,
}

impl Loops {
    fn start(
        settings: &Settings,
        node: &Arc<Node>,
        queues: &Queues,
        clock: &Arc<dyn Clock>,
    ) -> io::Result<Loops> {
        let set = set_at_run_time(node, "num.network.threads");
        let count = settings.loops_with(set);
        let request_bytes_max = usize::try_from(settings.net.request_bytes_max).unwrap_or(0);
        let memory = MemoryBudget::new(settings.request_memory_bytes_max, count, request_bytes_max);
        let mut started = Loops {
            loops: Vec::with_capacity(count),
            records: Records((0..count).map(|_| Arc::default()).collect()),
            accounts: (0..count)
                .map(|_| Accounts::new(node.tenants.id_limit()))
                .collect(),
            memory: Arc::new(memory),
        };
        for (index, records) in started.records.0.iter().enumerate() {
            let parts = LoopParts {
                service: node.clone(),
                clock: clock.clone(),
                settings: settings.net.clone(),
                cold_reads: queues.cold_reads().clone(),
                quotas: node.quotas.clone(),
                memory: started.memory.clone(),
                records: records.clone(),
                tenants: node.tenants.clone(),
                accounts: started.accounts[index].clone(),
            };
            started.loops.push(EventLoop::start(index, parts)?);
        }
        Ok(started)
    }
}

/// Returns a setting that was made before this start with AlterConfigs.
fn set_at_run_time(node: &Node, key: &str) -> Option<i64> {
    let image = node.image();
    let value = image.dynamic_broker_value(node.config().node_id, key)?;
    value.trim().parse().ok()
}

/// Says once how the logs reach the device.
fn report_way_to_disk(node: &Node, config: &NodeConfig) {
    let disk = &node.storage.disk;
    if disk.memory().is_none() {
        return;
    }
    for directory in &config.log_directories {
        let directory_name = directory.display();
        if disk.is_direct(&directory.join(META_PROPERTIES_FILE)) {
            info!(directory = %directory_name, "logs are written past the page cache");
        } else {
            warn!(
                directory = %directory_name,
                "its file system refuses direct access (O_DIRECT): logs are written through the page cache, each \
                 commit with fdatasync"
            );
        }
    }
}

/// A mistake in an argument is one at every start; the file is needed at the first one only.
fn first_users(
    properties: &Properties,
    arguments: &[String],
    seed: SecretSeed,
) -> Result<Result<Vec<FirstUser>, ConfigError>, StartError> {
    let of_arguments = first_users::of_arguments(arguments, seed).map_err(StartError::Config)?;
    Ok(first_users::of_file(properties, seed).map(|of_file| [of_file, of_arguments].concat()))
}

/// What listeners with TLS need besides event loops.
struct Tls {
    listeners: TlsListeners,
    handshakes: Handshakes,
    _reloader: Reloader,
}

impl Tls {
    /// `None` when no listener has TLS.
    fn start(listeners: TlsListeners, timeout: Duration) -> io::Result<Option<Tls>> {
        if listeners.all().is_empty() {
            return Ok(None);
        }
        Ok(Some(Tls {
            handshakes: Handshakes::start(timeout, HANDSHAKES_MAX)?,
            _reloader: Reloader::start(listeners.all())?,
            listeners,
        }))
    }

    fn view(&self) -> TlsView {
        TlsView {
            listeners: self.listeners.all().to_vec(),
            handshakes: self.handshakes.entrance().counts().clone(),
        }
    }

    fn door(&self, name: &str) -> Option<TlsDoor> {
        let listener = self
            .listeners
            .all()
            .iter()
            .find(|listener| **listener.name() == *name)?;
        Some(TlsDoor {
            listener: listener.clone(),
            entrance: self.handshakes.entrance().clone(),
        })
    }
}

fn open_tls(settings: &mut Settings) -> Result<TlsListeners, ConfigError> {
    let all = std::mem::take(&mut settings.tls).into_iter();
    let opened = all.map(|settings| Ok(Arc::new(TlsListener::open(settings)?)));
    Ok(TlsListeners::new(opened.collect::<Result<_, _>>()?))
}

pub(crate) fn seed() -> Seed {
    let mut seed = Seed::default();
    for word in &mut seed {
        let mut bytes = [0; 8];
        random_bytes::fill(&mut bytes);
        *word = u64::from_ne_bytes(bytes);
    }
    seed
}

fn bind_all(settings: &mut Settings) -> Result<Vec<(ListenerConfig, TcpListener)>, StartError> {
    let hostname = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let mut sockets = Vec::new();
    for mut config in settings.node.listeners.clone() {
        let error = |error| StartError::Listener {
            listener: config.to_string(),
            error,
        };
        let socket = bind(&config.host, config.port).map_err(error)?;
        let backlog = settings.backlog.unwrap_or(4096);
        rustix::net::listen(&socket, backlog).map_err(|errno| error(errno.into()))?;
        config.port = socket.local_addr().map_err(error)?.port();
        settings.node.bound(&config.name, config.port, &hostname);
        sockets.push((config, socket));
    }
    Ok(sockets)
}

fn bind_admin(settings: &Settings) -> Result<Option<TcpListener>, StartError> {
    let Some((host, port)) = &settings.node.admin_listener else {
        return Ok(None);
    };
    match bind(host, *port) {
        Ok(socket) => Ok(Some(socket)),
        Err(error) => Err(StartError::Admin {
            address: format!("{host}:{port}"),
            error,
        }),
    }
}

/// - Returns: `None` if the log directory holds the token.
fn gate_of(settings: &Settings, socket: Option<&TcpListener>) -> Result<Option<Gate>, StartError> {
    let Some(socket) = socket else {
        return Ok(Some(Gate::open()));
    };
    let address = socket.local_addr().map_err(StartError::Threads)?;
    Gate::of(&settings.node, address.ip()).map_err(StartError::AdminToken)
}

/// The names under which the admin address may be asked: the operator's, and those of the
/// listeners, which Ottla's own commands use.
fn admin_names(config: &NodeConfig) -> Names {
    let own = config.admin_listener.iter().map(|(host, _)| host.to_string());
    let listeners = config.listeners.iter().chain(&config.advertised_listeners);
    let of_listeners = listeners.map(|listener| listener.host.to_string());
    Names::new(own.chain(of_listeners).chain(config.admin_hosts.iter().cloned()))
}

/// An empty host means all addresses, IPv6 and IPv4 where both exist.
fn bind(host: &str, port: u16) -> io::Result<TcpListener> {
    if host.is_empty() {
        return TcpListener::bind(("::", port)).or_else(|_| TcpListener::bind(("0.0.0.0", port)));
    }
    let addresses: Vec<SocketAddr> = (host, port).to_socket_addrs()?.collect();
    TcpListener::bind(&addresses[..])
}

/// A directory that is removed when the value is dropped.
pub struct TemporaryDirectory {
    path: PathBuf,
}

impl TemporaryDirectory {
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn create() -> io::Result<TemporaryDirectory> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let mut bytes = [0; 8];
        random_bytes::fill(&mut bytes);
        let name = format!(
            "ottla-{}-{number}-{:016x}",
            std::process::id(),
            u64::from_ne_bytes(bytes)
        );
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path)?;
        Ok(TemporaryDirectory { path })
    }
}

impl Drop for TemporaryDirectory {
    fn drop(&mut self) {
        remove(&self.path);
    }
}

fn remove(path: &Path) {
    if let Err(error) = std::fs::remove_dir_all(path) {
        warn!(path = %path.display(), %error, "temporary directory cannot be removed");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_waits_for_decided_transactions_and_not_for_ever() {
        let mut left = 3;
        let mut countdown = || {
            left -= 1;
            left
        };
        assert_eq!(wait_for_none(&mut countdown, Duration::from_secs(3_600)), Ok(()));
        assert_eq!(left, 0);
        assert_eq!(wait_for_none(|| 2, Duration::ZERO), Err(2));
    }
}
