//! One machine: its disk, its clock, and the broker on it while there is power.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Poll, Wake, Waker};

use ottla_core::config::{NodeConfig, RecoveryConfig};
use ottla_core::node::{Node, StartError};
use ottla_core::pending::{Handled, PendingReply};
use ottla_core::reply::ReplyBuffer;
use ottla_core::request::{ConnectionContext, Request};
use ottla_core::time::Clock;
use ottla_log::disk::memory::{MemoryDisk, Random};
use ottla_wire::api_key::ApiKey;

use crate::clock::SimClock;
use crate::tasks::SimExecutor;

/// Directory of the broker on the simulated disk.
pub const LOG_DIRECTORY: &str = "/data";

pub struct World {
    pub seed: u64,
    pub random: Random,
    pub disk: MemoryDisk,
    pub clock: Arc<SimClock>,
    /// Number of starts of the broker.
    pub starts: u64,
    properties: BTreeMap<String, String>,
    running: Option<Running>,
}

struct Running {
    node: Arc<Node>,
    executor: Arc<SimExecutor>,
    connection: ConnectionContext,
}

/// A request in progress; dropped with its connection.
pub struct Call {
    start: u64,
    state: CallState,
    woken: Arc<Woken>,
}

enum CallState {
    Answered(Vec<u8>),
    Pending(Box<dyn PendingReply>),
    Refused(String),
}

/// The start number of a call that found no running broker.
const NEVER: u64 = 0;

/// The outcome of a call.
pub enum Outcome {
    /// The answer, without its header.
    Answer(Vec<u8>),
    /// The broker closed the connection, or lost power.
    Lost(String),
}

#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }
}

impl World {
    pub fn new(seed: u64, properties: &[(&str, &str)]) -> World {
        let mut all = BTreeMap::new();
        all.insert("log.dirs".to_string(), LOG_DIRECTORY.to_string());
        all.extend(
            properties
                .iter()
                .map(|(key, value)| (key.to_string(), value.to_string())),
        );
        World {
            seed,
            random: Random::new(seed),
            disk: MemoryDisk::new(seed ^ 0x5EED),
            clock: Arc::new(SimClock::default()),
            starts: 0,
            properties: all,
            running: None,
        }
    }

    /// Changes a property of the broker's next start.
    pub fn set(&mut self, key: &str, value: &str) {
        self.properties.insert(key.to_string(), value.to_string());
    }

    pub fn is_running(&self) -> bool {
        self.running.is_some()
    }

    pub fn node(&self) -> Option<&Arc<Node>> {
        self.running.as_ref().map(|running| &running.node)
    }

    /// Returns a copy of this world with a copy of the disk; nothing runs in it.
    pub fn fork(&self, seed: u64) -> World {
        let clock = SimClock::default();
        clock.advance(self.clock.moment().micros());
        World {
            seed,
            random: Random::new(seed),
            disk: self.disk.fork(seed ^ 0x5EED),
            clock: Arc::new(clock),
            starts: 0,
            properties: self.properties.clone(),
            running: None,
        }
    }

    /// Starts the broker; false if the power went off meanwhile.
    pub fn start(&mut self) -> bool {
        match self.try_start(RecoveryConfig::default()) {
            Ok(()) => true,
            Err(error) => {
                assert!(
                    !self.disk.has_power(),
                    "seed {}: the broker does not start: {error}",
                    self.seed
                );
                self.disk.power_cut();
                false
            }
        }
    }

    /// Starts the broker, or returns why it does not start.
    pub fn try_start(&mut self, recovery: RecoveryConfig) -> Result<(), StartError> {
        self.starts += 1;
        let mut config = NodeConfig::from_properties(&self.properties, [(); 4].map(|()| self.random.next()))
            .expect("the test's properties are valid");
        config.recovery = recovery;
        let node = Arc::new(Node::open(config, self.disk.shared(), self.clock.clone())?);
        let executor = Arc::new(SimExecutor::default());
        node.set_executor(executor.clone());
        let connection = ConnectionContext {
            connection_id: self.starts,
            peer_address: IpAddr::V4(Ipv4Addr::LOCALHOST),
            peer_port: 1,
            listener_name: "PLAINTEXT".into(),
            principal: "User:ANONYMOUS".into(),
            identity: Default::default(),
            permitted: Default::default(),
            tenant: Default::default(),
            quota: None,
        };
        self.running = Some(Running {
            node,
            executor,
            connection,
        });
        Ok(())
    }

    /// Runs the maintenance thread once.
    pub fn maintain(&mut self) {
        if let Some(running) = &self.running {
            running.node.maintain();
        }
    }

    /// Cuts the power and restores it.
    pub fn power_cut(&mut self) {
        self.running = None;
        self.disk.power_cut();
    }

    /// Kills the process; the page cache survives.
    pub fn kill(&mut self) {
        self.running = None;
        self.disk.kill();
    }

    /// Stops cleanly, as SIGTERM does.
    pub fn stop(&mut self) {
        if let Some(running) = self.running.take() {
            while running.executor.run_one(&running.node, &mut self.random) {}
            let stopped = running.node.close();
            assert!(
                stopped.is_ok() || !self.disk.has_power(),
                "seed {}: {stopped:?}",
                self.seed
            );
        }
    }

    /// Passes a request to the broker, if it runs.
    pub fn call(&mut self, api_key: ApiKey, api_version: i16, body: &[u8]) -> Call {
        let mut call = Call {
            start: self.starts,
            state: CallState::Answered(Vec::new()),
            woken: Arc::default(),
        };
        let Some(running) = &self.running else {
            call.start = NEVER;
            return call;
        };
        let request = Request {
            connection: &running.connection,
            api_key,
            api_version,
            correlation_id: 1,
            client_id: Some("simulation"),
            body,
            received: self.clock.moment(),
        };
        let mut reply = ReplyBuffer::default();
        call.state = match running.node.handle(&request, &mut reply) {
            Handled::Replied => CallState::Answered(flatten(&reply)),
            Handled::NoReply => CallState::Answered(Vec::new()),
            Handled::Pending(pending) => CallState::Pending(pending),
            Handled::Close(reason) => CallState::Refused(reason),
        };
        call.woken.0.store(true, Ordering::Release);
        call
    }

    /// Polls a call; `None` while it waits.
    pub fn poll(&mut self, call: &mut Call) -> Option<Outcome> {
        let running = match &self.running {
            Some(running) if call.start == self.starts => running,
            _ => return Some(Outcome::Lost("the broker went down".into())),
        };
        match &mut call.state {
            CallState::Answered(answer) => Some(Outcome::Answer(std::mem::take(answer))),
            CallState::Refused(reason) => {
                panic!("seed {}: the broker closed the connection: {reason}", self.seed);
            }
            CallState::Pending(pending) => {
                let is_due = pending
                    .deadline()
                    .is_some_and(|deadline| self.clock.moment() >= deadline);
                if !call.woken.0.swap(false, Ordering::AcqRel) && !is_due {
                    return None;
                }
                let waker = Waker::from(call.woken.clone());
                let mut reply = ReplyBuffer::default();
                match pending.poll(&running.node, &waker, &mut reply) {
                    Poll::Ready(()) => Some(Outcome::Answer(flatten(&reply))),
                    Poll::Pending => None,
                }
            }
        }
    }

    /// Runs one piece of the broker's work and advances time; false if there was no work.
    pub fn step(&mut self) -> bool {
        self.clock.advance(self.random.below(2_000));
        let Some(running) = &self.running else {
            return false;
        };
        if running
            .node
            .next_deadline()
            .is_some_and(|deadline| deadline <= self.clock.moment())
        {
            running.node.on_deadline(self.clock.moment());
        }
        if self.random.one_in(50) {
            running.node.maintain();
        }
        let worked = running.executor.run_one(&running.node, &mut self.random);
        if !self.disk.has_power() {
            self.power_cut();
        }
        worked
    }

    /// Runs a call to its end, with all other work of the broker meanwhile.
    pub fn complete(&mut self, api_key: ApiKey, api_version: i16, body: &[u8]) -> Outcome {
        let mut call = self.call(api_key, api_version, body);
        for _ in 0..1_000_000 {
            if let Some(outcome) = self.poll(&mut call) {
                return outcome;
            }
            self.step();
        }
        panic!("seed {}: {api_key} was never answered", self.seed);
    }
}

/// Returns the reply as a client would receive it: file regions are read.
fn flatten(reply: &ReplyBuffer) -> Vec<u8> {
    let mut out = Vec::new();
    let mut copied = 0;
    for inserted in &reply.regions {
        out.extend_from_slice(&reply.bytes[copied..inserted.at]);
        copied = inserted.at;
        let region = &inserted.region;
        let start = out.len();
        out.resize(start + region.bytes as usize, 0);
        let mut read = 0;
        while read < region.bytes as usize {
            let rest = &mut out[start + read..];
            match region.file.read_at(rest, region.position + read as u64) {
                Ok(0) | Err(_) => break,
                Ok(count) => read += count,
            }
        }
    }
    out.extend_from_slice(&reply.bytes[copied..]);
    out
}
