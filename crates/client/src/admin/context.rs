//! The view that an admin call has of the machine: it sends requests to nodes, waits, and learns
//! when its time is over.
//!
//! Every call is an async function that the machine polls on its own thread; no async runtime is
//! needed. A call names its destination (`Destination`); the machine finds the node, connects, and
//! hands back the answer.

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use bytes::Bytes;
use ottla_wire::api_key::ApiKey;
use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::find_coordinator::{FindCoordinatorRequest, FindCoordinatorResponse};
use ottla_wire::primitives::Reader;

use crate::error::Error;
use crate::metadata::snapshot::{NodeId, Snapshot};
use crate::network::backoff::{Backoff, Random};
use crate::time::Moment;

/// Which node must answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    Any,
    Controller,
    Node(NodeId),
    /// The coordinator of this group.
    Coordinator(Arc<str>),
    /// The coordinator of this transactional id.
    TransactionCoordinator(Arc<str>),
}

/// What a coordinator is asked for (KIP-98).
#[derive(Clone, Copy, Debug)]
enum KeyType {
    Group = 0,
    Transaction = 1,
}

/// One request without its node. It is encoded again for every attempt, since nodes differ in
/// supported version.
pub struct Ask {
    pub id: u64,
    /// Never a coordinator: `Context` resolves it to a node first.
    pub destination: Destination,
    pub api_key: ApiKey,
    pub version_min: i16,
    pub version_max: i16,
    pub encode: Encode,
}

pub type Encode = Arc<dyn Fn(i16) -> Vec<u8> + Send + Sync>;

/// A node's answer.
#[derive(Debug)]
pub struct AdminAnswer {
    pub version: i16,
    pub body: Bytes,
}

/// The channel between one call and the machine; both run on the machine's thread.
pub struct Mailbox {
    pub now: Moment,
    pub deadline: Moment,
    pub limit_ms: u64,
    /// The call's time is over: everything it waits for fails with `Timeout`.
    pub is_expired: bool,
    pub what: &'static str,
    pub snapshot: Arc<Snapshot>,
    pub wants_metadata: bool,
    /// Asks that the machine has not yet taken.
    pub asks: Vec<Ask>,
    pub answers: BTreeMap<u64, Result<AdminAnswer, Error>>,
    pub sleeps: BTreeMap<u64, Moment>,
    pub backoff: Backoff,
    pub random: Random,
    pub attempts_max: u32,
    pub last_error: Option<Error>,
    pub next_id: u64,
}

impl Mailbox {
    /// The error of a call whose time is over.
    pub fn timeout(&self) -> Error {
        let what = match &self.last_error {
            Some(error) => format!("{}: {error}:", self.what),
            None => self.what.to_owned(),
        };
        Error::Timeout {
            what: what.into(),
            limit_ms: self.limit_ms,
            setting: "default.api.timeout.ms",
        }
    }
}

/// The call's side of its mailbox.
#[derive(Clone)]
pub struct Context {
    pub mailbox: Arc<Mutex<Mailbox>>,
}

/// The versions of an API that a call can use: from the lowest with the features it needs to the
/// highest it understands.
#[derive(Clone, Copy, Debug)]
pub struct Versions {
    pub min: i16,
    pub max: i16,
}

impl Versions {
    pub const ALL: Versions = Versions {
        min: 0,
        max: i16::MAX,
    };

    pub fn from(min: i16) -> Versions {
        Versions { min, max: i16::MAX }
    }
}

impl Context {
    fn lock(&self) -> MutexGuard<'_, Mailbox> {
        self.mailbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The rest of the call's time, sent to brokers as a request's `timeout_ms`.
    pub fn remaining_ms(&self) -> i32 {
        let mailbox = self.lock();
        i32::try_from(mailbox.deadline.ms_since(mailbox.now)).unwrap_or(i32::MAX)
    }

    /// Asks until `decode` accepts an answer, an error is final, or the time is over.
    ///
    /// - `decode` gets the version and the body; a retriable error from it leads to another
    ///   attempt, and an error that means "wrong node" also to a metadata refresh.
    pub async fn ask<T>(
        &self,
        destination: Destination,
        api_key: ApiKey,
        versions: Versions,
        encode: impl Fn(i16) -> Vec<u8> + Send + Sync + 'static,
        decode: impl Fn(&AdminAnswer) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let encode: Encode = Arc::new(encode);
        let mut failures = 0;
        loop {
            let asked = self
                .attempt(&destination, api_key, versions, encode.clone())
                .await;
            let error = match asked.and_then(|answer| decode(&answer)) {
                Ok(value) => return Ok(value),
                Err(error) => error,
            };
            self.back_off(error, &mut failures).await?;
        }
    }

    async fn attempt(
        &self,
        destination: &Destination,
        api_key: ApiKey,
        versions: Versions,
        encode: Encode,
    ) -> Result<AdminAnswer, Error> {
        let destination = match destination {
            Destination::Coordinator(group) => self.find_coordinator(KeyType::Group, group).await?,
            Destination::TransactionCoordinator(id) => {
                self.find_coordinator(KeyType::Transaction, id).await?
            }
            other => other.clone(),
        };
        self.ask_once(destination, api_key, versions, encode).await
    }

    /// Makes one attempt; connection errors are included in the result.
    async fn ask_once(
        &self,
        destination: Destination,
        api_key: ApiKey,
        versions: Versions,
        encode: Encode,
    ) -> Result<AdminAnswer, Error> {
        let id = {
            let mut mailbox = self.lock();
            if mailbox.is_expired {
                return Err(mailbox.timeout());
            }
            let id = mailbox.next_id;
            mailbox.next_id += 1;
            mailbox.asks.push(Ask {
                id,
                destination,
                api_key,
                version_min: versions.min,
                version_max: versions.max,
                encode,
            });
            id
        };
        poll_fn(|_| match self.lock().answers.remove(&id) {
            Some(answer) => Poll::Ready(answer),
            None => Poll::Pending,
        })
        .await
    }

    async fn find_coordinator(&self, key_type: KeyType, name: &Arc<str>) -> Result<Destination, Error> {
        let key = name.clone();
        let encode = move |version| {
            let mut body = Vec::new();
            let coordinator_keys = if version >= 4 {
                vec![key.as_ref()]
            } else {
                Vec::new()
            };
            let key = if version >= 4 { "" } else { key.as_ref() };
            let request = FindCoordinatorRequest {
                key,
                key_type: key_type as i8,
                coordinator_keys,
            };
            request.encode(&mut body, version);
            body
        };
        // Version 0 knows groups only.
        let versions = Versions::from(key_type as i16);
        let answer = self
            .ask_once(
                Destination::Any,
                ApiKey::FindCoordinator,
                versions,
                Arc::new(encode),
            )
            .await?;
        let response = decode_with(&answer, FindCoordinatorResponse::decode)?;
        let (code, node) = match response.coordinators.first() {
            Some(coordinator) => (coordinator.error_code, coordinator.node_id),
            None => (response.error_code, response.node_id),
        };
        match Error::from_code(code, || format!("coordinator of {name}").into()) {
            Some(error) => Err(error),
            None => Ok(Destination::Node(NodeId(node))),
        }
    }

    /// Waits before the next attempt after `error`; returns the error when there is to be no
    /// further attempt.
    pub async fn back_off(&self, error: Error, failures: &mut u32) -> Result<(), Error> {
        let id = {
            let mut mailbox = self.lock();
            if mailbox.is_expired || !error.is_retriable() || *failures >= mailbox.attempts_max {
                return Err(error);
            }
            mailbox.wants_metadata |= says_metadata_is_old(&error);
            mailbox.last_error = Some(error);
            let Mailbox { backoff, random, .. } = &mut *mailbox;
            let nanos = backoff.nanos(*failures, random);
            *failures = failures.saturating_add(1);
            let id = mailbox.next_id;
            mailbox.next_id += 1;
            let until = Moment::from_nanos(mailbox.now.nanos().saturating_add(nanos));
            mailbox.sleeps.insert(id, until);
            id
        };
        poll_fn(|_| {
            let mut mailbox = self.lock();
            let until = mailbox.sleeps.get(&id).copied().unwrap_or(mailbox.now);
            if mailbox.is_expired {
                mailbox.sleeps.remove(&id);
                Poll::Ready(Err(mailbox.timeout()))
            } else if until <= mailbox.now {
                mailbox.sleeps.remove(&id);
                Poll::Ready(Ok(()))
            } else {
                Poll::Pending
            }
        })
        .await
    }
}

/// Whether the error means that the metadata's leaders, controller or nodes are outdated.
fn says_metadata_is_old(error: &Error) -> bool {
    match error {
        Error::Broker { code, .. } => matches!(
            code,
            ErrorCode::NotController
                | ErrorCode::NotLeaderOrFollower
                | ErrorCode::LeaderNotAvailable
                | ErrorCode::FencedLeaderEpoch
                | ErrorCode::UnknownLeaderEpoch
        ),
        Error::Disconnected { .. } => true,
        _ => false,
    }
}

/// Decodes an answer with one of the wire's message types.
pub fn decode_with<'a, T>(
    answer: &'a AdminAnswer,
    decode: impl FnOnce(&mut Reader<'a>, i16) -> Result<T, ottla_wire::primitives::DecodeError>,
) -> Result<T, Error> {
    decode(&mut Reader::new(&answer.body), answer.version).map_err(|error| Error::Malformed {
        address: "the broker".into(),
        reason: error.to_string().into(),
    })
}

/// Runs all futures concurrently; returns the results in their order.
pub async fn join_all<F: Future>(futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    let mut waiting: Vec<Option<Pin<Box<F>>>> =
        futures.into_iter().map(|future| Some(Box::pin(future))).collect();
    let mut results: Vec<Option<F::Output>> = waiting.iter().map(|_| None).collect();
    poll_fn(move |context| {
        for (slot, result) in waiting.iter_mut().zip(&mut results) {
            if let Some(future) = slot
                && let Poll::Ready(value) = future.as_mut().poll(context)
            {
                *result = Some(value);
                *slot = None;
            }
        }
        if waiting.iter().all(Option::is_none) {
            Poll::Ready(results.iter_mut().filter_map(Option::take).collect())
        } else {
            Poll::Pending
        }
    })
    .await
}
