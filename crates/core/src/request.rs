//! What the shell hands to the core: one request and facts about its sender.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use ottla_wire::api_key::ApiKey;
use ottla_wire::primitives::Uuid;

use crate::denied::{DeniedOperation, cut};
use crate::last::Last;
use crate::permitted::Permitted;
use crate::quota::mutation::MutationQuota;
use crate::quota::registry::user_of;
use crate::quota::{ClientQuota, Quotas};
use crate::tenant::TenantId;
use crate::time::Moment;

/// At most this many entries are handled on an event loop: about a fifth of a millisecond of work.
pub const ENTRIES_MAX: u64 = 1_000;

/// Facts about a connection that rarely change between requests.
#[derive(Clone, Debug)]
pub struct ConnectionContext {
    pub connection_id: u64,
    pub peer_address: IpAddr,
    pub peer_port: u16,
    /// Name of the listener that accepted the connection, e.g. `PLAINTEXT`.
    pub listener_name: Arc<str>,
    /// In Kafka's form, e.g. `User:ANONYMOUS`.
    pub principal: Arc<str>,
    pub identity: Arc<ClientIdentity>,
    /// What ACLs permitted it lately.
    pub permitted: Arc<Permitted>,
    /// The tenant that is charged; until the first request tells the client id, the address stands
    /// for it.
    pub tenant: TenantId,
    /// Quota of the user and client id of the request served last; `None` before the first, and
    /// without limits.
    pub quota: Option<Arc<ClientQuota>>,
}

impl ConnectionContext {
    /// The name without its type: `alice` of `User:alice`.
    pub fn user_name(&self) -> &str {
        user_of(&self.principal)
    }

    /// Gives the connection the quotas of its user and `client_id`, unless it has the current ones.
    pub fn refresh_quota(&mut self, quotas: &Quotas, client_id: Option<&str>) {
        let is_other = self.tenant == TenantId::OTHERS;
        let newer = quotas.newer(self.quota.as_ref(), &self.principal, is_other, client_id);
        if newer.is_some() {
            self.quota = newer;
        }
    }
}

/// Name and version of a client's library (KIP-511).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientSoftware {
    pub name: Arc<str>,
    pub version: Arc<str>,
}

/// What a client has said about itself on this connection so far, what it was denied and what it
/// asked for that does not exist. The first statement counts.
#[derive(Debug, Default)]
pub struct ClientIdentity {
    software: OnceLock<ClientSoftware>,
    instance_id: OnceLock<Uuid>,
    /// The last subscription that it was given asks for no metric.
    is_unasked: AtomicBool,
    /// Its interval; 0: it was given none.
    push_interval_ms: AtomicU32,
    denied: Last<DeniedOperation>,
    unknown_topics: Last<Arc<str>>,
}

impl ClientIdentity {
    /// `None` before an ApiVersions request of version 3 or later.
    pub fn software(&self) -> Option<&ClientSoftware> {
        self.software.get()
    }

    /// KIP-714's client instance id; `None` for a client that has not asked for a subscription on
    /// this connection.
    pub fn instance_id(&self) -> Option<Uuid> {
        self.instance_id.get().copied()
    }

    /// The operations that this connection was denied.
    pub fn denied(&self) -> &Last<DeniedOperation> {
        &self.denied
    }

    /// The topics whose metadata this connection asked for, and which do not exist.
    pub fn unknown_topics(&self) -> &Last<Arc<str>> {
        &self.unknown_topics
    }

    pub(crate) fn see_unknown_topic(&self, name: &str) {
        self.unknown_topics.see(cut(name));
    }

    pub(crate) fn set_software(&self, name: &str, version: &str) {
        self.software.get_or_init(|| ClientSoftware {
            name: name.into(),
            version: version.into(),
        });
    }

    pub fn set_instance_id(&self, id: Uuid) {
        self.instance_id.get_or_init(|| id);
    }

    /// Whether it asked for a subscription, and was asked for no metric: it pushes nothing.
    pub fn is_unasked(&self) -> bool {
        self.is_unasked.load(Ordering::Relaxed)
    }

    /// How often it was told to push, in the last subscription that it was given on this
    /// connection.
    pub fn push_interval_ms(&self) -> Option<u32> {
        let interval_ms = self.push_interval_ms.load(Ordering::Relaxed);
        (interval_ms > 0 && !self.is_unasked()).then_some(interval_ms)
    }

    pub(crate) fn set_subscription(&self, interval_ms: u32, is_unasked: bool) {
        self.is_unasked.store(is_unasked, Ordering::Relaxed);
        self.push_interval_ms.store(interval_ms, Ordering::Relaxed);
    }
}

/// One request as cut from the connection: header decoded, body not.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    pub connection: &'a ConnectionContext,
    pub api_key: ApiKey,
    pub api_version: i16,
    pub correlation_id: i32,
    pub client_id: Option<&'a str>,
    /// The bytes after the request header.
    pub body: &'a [u8],
    /// When the last byte of the request was read.
    pub received: Moment,
}

/// A copy of a request, which outlives its frame.
#[derive(Clone, Debug)]
pub(crate) struct OwnedRequest {
    connection: ConnectionContext,
    api_key: ApiKey,
    api_version: i16,
    correlation_id: i32,
    client_id: Option<String>,
    body: Vec<u8>,
    received: Moment,
}

impl OwnedRequest {
    pub fn of(request: &Request<'_>) -> OwnedRequest {
        OwnedRequest {
            connection: request.connection.clone(),
            api_key: request.api_key,
            api_version: request.api_version,
            correlation_id: request.correlation_id,
            client_id: request.client_id.map(str::to_owned),
            body: request.body.to_vec(),
            received: request.received,
        }
    }

    pub fn body_bytes(&self) -> usize {
        self.body.len()
    }

    pub fn borrow(&self) -> Request<'_> {
        Request {
            connection: &self.connection,
            api_key: self.api_key,
            api_version: self.api_version,
            correlation_id: self.correlation_id,
            client_id: self.client_id.as_deref(),
            body: &self.body,
            received: self.received,
        }
    }
}

impl Request<'_> {
    /// What the request may still change under `controller_mutation_rate`.
    ///
    /// - `first_strict_version`: the first that may be answered THROTTLING_QUOTA_EXCEEDED.
    pub(crate) fn mutation_quota(&self, first_strict_version: i16) -> MutationQuota {
        let is_strict = self.api_version >= first_strict_version;
        MutationQuota::new(self.connection.quota.clone(), is_strict, self.received)
    }
}
