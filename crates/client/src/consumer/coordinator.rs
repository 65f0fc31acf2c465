//! The coordinator of a group or of a transactional id: looked up when needed, forgotten when it
//! says that it is not the coordinator, or is gone.

use std::sync::Arc;

use ottla_wire::api_key::ApiKey;
use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::find_coordinator::{FindCoordinatorRequest, FindCoordinatorResponse};
use ottla_wire::primitives::Reader;

use super::group::GroupTicket;
use super::group_network::GroupNetwork;
use crate::error::Error;
use crate::metadata::snapshot::NodeId;
use crate::network::backoff::{Backoff, Random};
use crate::network::cluster::{Readiness, Reply, Request};
use crate::network::io::Address;
use crate::time::Moment;

/// From this version on the request has a list of keys (KIP-699).
const BATCHED_FROM_VERSION: i16 = 4;

/// What is coordinated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CoordinatorKind {
    Group,
    Transaction,
}

impl CoordinatorKind {
    /// The number in the request, and the first version that has it.
    fn key_type(self) -> (i8, i16) {
        match self {
            CoordinatorKind::Group => (0, 0),
            CoordinatorKind::Transaction => (1, 1),
        }
    }
}

#[derive(Debug)]
pub struct Coordinator {
    kind: CoordinatorKind,
    /// The group, or the transactional id.
    key: Arc<str>,
    request_timeout_ms: u64,
    backoff: Backoff,
    random: Random,
    state: CoordinatorState,
    /// Consecutive failed attempts.
    failures: u32,
    must_disconnect: Option<NodeId>,
    /// No node can be asked: wait for a connection event instead of a timer.
    has_no_node: bool,
}

#[derive(Debug)]
enum CoordinatorState {
    Unknown {
        not_before: Moment,
    },
    Asking,
    Known {
        node: NodeId,
        address: Address,
        is_added: bool,
    },
}

/// The outcome of a FindCoordinator, or of the connection.
#[derive(Debug, PartialEq)]
pub enum CoordinatorLookup {
    Yes,
    /// It is retried.
    No(Error),
    /// Retrying does not help before something is changed.
    Refused(Error),
}

impl Coordinator {
    pub fn new(
        kind: CoordinatorKind,
        key: Arc<str>,
        request_timeout_ms: u64,
        backoff: Backoff,
        seed: u64,
    ) -> Coordinator {
        Coordinator {
            kind,
            key,
            request_timeout_ms,
            backoff,
            random: Random::new(seed),
            state: CoordinatorState::Unknown {
                not_before: Moment::from_nanos(0),
            },
            failures: 0,
            must_disconnect: None,
            has_no_node: false,
        }
    }

    pub fn is_known(&self) -> bool {
        matches!(self.state, CoordinatorState::Known { .. })
    }

    /// A lookup is in flight.
    pub fn is_asking(&self) -> bool {
        matches!(self.state, CoordinatorState::Asking)
    }

    /// When the next lookup is due; `None` while it is known, or while a connection must be made
    /// first.
    pub fn due(&self) -> Option<Moment> {
        match self.state {
            CoordinatorState::Unknown { not_before } if !self.has_no_node => Some(not_before),
            _ => None,
        }
    }

    /// The coordinator's node if a request can be sent now. Looks the coordinator up and connects
    /// to it as needed.
    ///
    /// - Errors: authentication failed; the caller reports it.
    pub fn ready(&mut self, now: Moment, network: &mut dyn GroupNetwork) -> Result<Option<NodeId>, Error> {
        if let Some(node) = self.must_disconnect.take() {
            network.disconnect(now, node);
        }
        match &mut self.state {
            CoordinatorState::Unknown { not_before } if *not_before <= now => {
                self.ask(now, network)?;
                Ok(None)
            }
            CoordinatorState::Unknown { .. } | CoordinatorState::Asking => Ok(None),
            CoordinatorState::Known {
                node,
                address,
                is_added,
            } => {
                if !*is_added {
                    network.add_node(*node, address.clone());
                    *is_added = true;
                }
                match network.readiness(now, *node) {
                    Readiness::Ready => Ok(Some(*node)),
                    Readiness::Connecting => Ok(None),
                    Readiness::BackingOff(_) => {
                        // It may have moved; a lookup does not need the connection to it.
                        self.state = CoordinatorState::Unknown { not_before: now };
                        self.retry_later(now);
                        Ok(None)
                    }
                    Readiness::Impossible(error) => {
                        self.state = CoordinatorState::Unknown { not_before: now };
                        self.retry_later(now);
                        Err(error)
                    }
                }
            }
        }
    }

    fn ask(&mut self, now: Moment, network: &mut dyn GroupNetwork) -> Result<(), Error> {
        let node = network.least_loaded(now);
        self.has_no_node = node.is_none();
        let Some(node) = node else {
            return Ok(());
        };
        let (key_type, needed_min) = self.kind.key_type();
        let api_version = network.version(node, ApiKey::FindCoordinator, needed_min)?;
        let is_batched = api_version >= BATCHED_FROM_VERSION;
        let message = FindCoordinatorRequest {
            key: if is_batched { "" } else { &self.key },
            key_type,
            coordinator_keys: if is_batched { vec![&self.key] } else { Vec::new() },
        };
        let mut body = Vec::new();
        message.encode(&mut body, api_version);
        let request = Request {
            api_key: ApiKey::FindCoordinator,
            api_version,
            body: vec![body.into()],
            timeout_ms: self.request_timeout_ms,
            expects_answer: true,
        };
        network.send(now, node, request, GroupTicket::FindCoordinator);
        self.state = CoordinatorState::Asking;
        Ok(())
    }

    pub fn answered(&mut self, now: Moment, reply: &Reply<GroupTicket>) -> CoordinatorLookup {
        if !matches!(self.state, CoordinatorState::Asking) {
            return CoordinatorLookup::Yes;
        }
        let found = match &reply.result {
            Ok(body) => decode(body, reply.api_version, &self.key),
            Err(error) => Err(error.clone()),
        };
        match found {
            Ok((broker_id, address)) => {
                self.failures = 0;
                // Head-of-line blocking: a JoinGroup that waits would hold up fetches, so the
                // coordinator gets a connection of its own.
                let node = NodeId(i32::MAX - broker_id);
                self.state = CoordinatorState::Known {
                    node,
                    address,
                    is_added: false,
                };
                CoordinatorLookup::Yes
            }
            Err(error) => {
                self.state = CoordinatorState::Unknown { not_before: now };
                self.retry_later(now);
                if error.is_retriable() {
                    CoordinatorLookup::No(error)
                } else {
                    CoordinatorLookup::Refused(error)
                }
            }
        }
    }

    /// Another broker coordinates the group, or none does. With `must_disconnect`, requests in
    /// flight to it fail at once.
    pub fn forget(&mut self, now: Moment, must_disconnect: bool) {
        if let CoordinatorState::Known { node, .. } = self.state {
            self.must_disconnect = must_disconnect.then_some(node);
            self.state = CoordinatorState::Unknown { not_before: now };
            self.retry_later(now);
        }
    }

    /// The connection to this node was lost.
    pub fn lost(&mut self, now: Moment, lost: NodeId) {
        if matches!(self.state, CoordinatorState::Known { node, .. } if node == lost) {
            self.forget(now, false);
        }
    }

    fn retry_later(&mut self, now: Moment) {
        let not_before = Moment::from_nanos(
            now.nanos()
                .saturating_add(self.backoff.nanos(self.failures, &mut self.random)),
        );
        self.failures = self.failures.saturating_add(1);
        self.state = CoordinatorState::Unknown { not_before };
    }
}

fn decode(body: &[u8], version: i16, key: &Arc<str>) -> Result<(i32, Address), Error> {
    let malformed = |reason: String| Error::Malformed {
        address: "coordinator lookup".into(),
        reason: reason.into(),
    };
    let response = FindCoordinatorResponse::decode(&mut Reader::new(body), version)
        .map_err(|error| malformed(error.to_string()))?;
    let (code, id, host, port) = if version >= BATCHED_FROM_VERSION {
        let of_key = response.coordinators.iter().find(|found| found.key == &**key);
        let found = of_key.ok_or_else(|| malformed(format!("no coordinator of {key} in the answer")))?;
        (found.error_code, found.node_id, found.host, found.port)
    } else {
        (
            response.error_code,
            response.node_id,
            response.host,
            response.port,
        )
    };
    if let Some(error) = Error::from_code(code, || key.clone()) {
        return Err(error);
    }
    let port = u16::try_from(port).map_err(|_| malformed(format!("port {port}")))?;
    if id < 0 {
        return Err(Error::broker(ErrorCode::CoordinatorNotAvailable, key.clone()));
    }
    let address = Address {
        host: host.into(),
        port,
    };
    Ok((id, address))
}
