//! FindCoordinator, versions 0 to 6. 1: transactions. 4: KIP-699, many keys. 6: KIP-932, share
//! groups.
//!
//! Deviation: the answer waits until the coordinator is loaded, and until its topic exists, instead
//! of making the client retry. There is no coordinator for share groups; the error message says so.

use std::sync::Arc;
use std::task::{Poll, Waker};

use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::find_coordinator::{Coordinator, FindCoordinatorRequest, FindCoordinatorResponse};

use crate::access::Caller;
use crate::access::acl::Operation;
use crate::coordinator::registry::Preparation;
use crate::node::Node;
use crate::pending::{Handled, PendingReply};
use crate::reply::{ReplyBuffer, WaitKind};
use crate::request::Request;
use crate::slot::Slot;
use crate::submit::{InternalTopic, ensure_internal_topic};
use crate::time::Moment;

const FIRST_BATCH_VERSION: i16 = 4;
const GROUP_KEY: i8 = 0;
const TRANSACTION_KEY: i8 = 1;
const SHARE_KEY: i8 = 2;

/// Creating the topic or loading a coordinator normally takes milliseconds; after this time the
/// client must retry.
const WAIT_MS: u64 = 5_000;

pub(crate) fn handle(
    node: &Node,
    request: &Request<'_>,
    caller: Caller<'_>,
    body: FindCoordinatorRequest<'_>,
    reply: &mut ReplyBuffer,
) -> Handled {
    let keys = match request.api_version {
        FIRST_BATCH_VERSION.. => body
            .coordinator_keys
            .iter()
            .map(|key| (*key).to_owned())
            .collect(),
        _ => vec![body.key.to_owned()],
    };
    let denied = keys
        .iter()
        .map(|key| check(&caller, body.key_type, key).err())
        .collect();
    let mut search = Search {
        version: request.api_version,
        key_type: body.key_type,
        keys,
        denied,
        listener_name: request.connection.listener_name.clone(),
        creation: None,
        deadline: node.clock().moment().after_ms(WAIT_MS),
    };
    match search.poll(node, Waker::noop(), reply) {
        Poll::Ready(()) => Handled::Replied,
        Poll::Pending => Handled::Pending(Box::new(search)),
    }
}

fn check(caller: &Caller<'_>, key_type: i8, key: &str) -> Result<(), ErrorCode> {
    match key_type {
        GROUP_KEY => caller.group(Operation::Describe, key).map(drop),
        TRANSACTION_KEY => caller.transactional_id(Operation::Describe, key).map(drop),
        SHARE_KEY => caller.cluster(Operation::ClusterAction).map(drop),
        _ => Ok(()),
    }
}

struct Search {
    version: i16,
    key_type: i8,
    keys: Vec<String>,
    /// Parallel to `keys`: what the client may not ask for. Nothing is prepared for these.
    denied: Vec<Option<ErrorCode>>,
    listener_name: Arc<str>,
    /// The controller's answer to the request for the coordinators' topic.
    creation: Option<Arc<Slot<Result<(), ErrorCode>>>>,
    deadline: Moment,
}

struct FoundCoordinator {
    error: ErrorCode,
    message: Option<&'static str>,
}

impl FoundCoordinator {
    const HERE: FoundCoordinator = FoundCoordinator {
        error: ErrorCode::None,
        message: None,
    };

    fn error(error: ErrorCode) -> FoundCoordinator {
        FoundCoordinator {
            error,
            message: Some(error.description()),
        }
    }
}

impl PendingReply for Search {
    fn poll(&mut self, node: &Node, waker: &Waker, reply: &mut ReplyBuffer) -> Poll<()> {
        if matches!(self.key_type, GROUP_KEY | TRANSACTION_KEY)
            && !self.is_prepared(node, waker)
            && node.clock().moment() < self.deadline
        {
            return Poll::Pending;
        }
        let asked = self.keys.iter().zip(&self.denied);
        let found = asked.map(|(key, denied)| match denied {
            Some(error) => FoundCoordinator::error(*error),
            None => self.find(node, key),
        });
        let found: Vec<FoundCoordinator> = found.collect();
        self.encode(node, &found, reply);
        Poll::Ready(())
    }

    fn deadline(&self) -> Option<Moment> {
        Some(self.deadline)
    }

    fn waits_for(&self) -> WaitKind {
        if self.creation.is_some() {
            WaitKind::Controller
        } else {
            WaitKind::ColdRead
        }
    }
}

impl Search {
    /// True when there is nothing left to wait for.
    fn is_prepared(&mut self, node: &Node, waker: &Waker) -> bool {
        if let Some(creation) = &self.creation {
            match creation.take_or_register(waker) {
                None => return false,
                Some(Ok(())) => self.creation = None,
                Some(Err(_)) => {
                    self.creation = None;
                    return true;
                }
            }
        }
        let preparations: Vec<Preparation> = self
            .keys
            .iter()
            .zip(&self.denied)
            .filter(|(_, denied)| denied.is_none())
            .map(|(key, _)| self.prepare(node, key, waker))
            .collect();
        if preparations.contains(&Preparation::NoTopic) {
            let topic = match self.key_type {
                TRANSACTION_KEY => InternalTopic::TransactionState,
                _ => InternalTopic::ConsumerOffsets,
            };
            let creation = ensure_internal_topic(node, topic);
            let is_done = creation.take_or_register(waker).is_some();
            if !is_done {
                self.creation = Some(creation);
                return false;
            }
        }
        !preparations.contains(&Preparation::Loading)
    }

    fn prepare(&self, node: &Node, key: &str, waker: &Waker) -> Preparation {
        match self.key_type {
            TRANSACTION_KEY => node.transactions.prepare(&node.storage, key, waker),
            _ => node.groups.prepare(&node.storage, key, waker),
        }
    }

    fn find(&self, node: &Node, key: &str) -> FoundCoordinator {
        match self.key_type {
            GROUP_KEY | TRANSACTION_KEY => match self.prepare(node, key, Waker::noop()) {
                Preparation::Ready => FoundCoordinator::HERE,
                Preparation::Loading => FoundCoordinator::error(ErrorCode::CoordinatorLoadInProgress),
                Preparation::NoTopic | Preparation::Failed => {
                    FoundCoordinator::error(ErrorCode::CoordinatorNotAvailable)
                }
            },
            _ => FoundCoordinator {
                error: ErrorCode::InvalidRequest,
                message: Some("this broker coordinates no keys of this type"),
            },
        }
    }

    fn encode(&self, node: &Node, found: &[FoundCoordinator], reply: &mut ReplyBuffer) {
        let image = node.image();
        let node_id = node.config().node_id;
        let endpoint = image
            .brokers
            .get(&node_id)
            .and_then(|broker| broker.endpoint(&self.listener_name));
        let coordinator = |(key, found): (&'_ String, &FoundCoordinator)| {
            let address = endpoint.filter(|_| found.error == ErrorCode::None);
            (
                key.clone(),
                address.map(|endpoint| (endpoint.host.clone(), i32::from(endpoint.port))),
            )
        };
        let addresses: Vec<_> = self.keys.iter().zip(found).map(coordinator).collect();
        let coordinators = addresses.iter().zip(found).map(|((key, address), found)| {
            let is_unreachable = address.is_none() && found.error == ErrorCode::None;
            let error = if is_unreachable {
                ErrorCode::CoordinatorNotAvailable
            } else {
                found.error
            };
            Coordinator {
                key,
                node_id: if address.is_some() { node_id } else { -1 },
                host: address.as_ref().map_or("", |(host, _)| host),
                port: address.as_ref().map_or(-1, |(_, port)| *port),
                error_code: error.code(),
                error_message: found.message,
            }
        });
        let coordinators: Vec<Coordinator<'_>> = coordinators.collect();
        let response = match (self.version, coordinators.first()) {
            (..FIRST_BATCH_VERSION, Some(only)) => FindCoordinatorResponse {
                error_code: only.error_code,
                error_message: only.error_message,
                node_id: only.node_id,
                host: only.host,
                port: only.port,
                ..FindCoordinatorResponse::default()
            },
            _ => FindCoordinatorResponse {
                coordinators,
                ..FindCoordinatorResponse::default()
            },
        };
        response.encode(&mut reply.bytes, self.version);
    }
}
