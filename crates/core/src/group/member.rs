//! One member of a classic group.

use std::sync::Arc;

use super::consumer::member::{ClassicMember, MemberMetadata};
use super::overview::MemberOverview;
use super::record::StoredMember;
use super::request::{JoinRequest, Ticket};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Protocol {
    pub name: Arc<str>,
    /// Input of the assignor; opaque to the broker.
    pub metadata: Arc<[u8]>,
}

#[derive(Clone, Debug)]
pub struct Member {
    pub member_id: Arc<str>,
    pub group_instance_id: Option<Arc<str>>,
    pub client_id: Arc<str>,
    pub client_host: Arc<str>,
    pub rebalance_timeout_ms: i32,
    pub session_timeout_ms: i32,
    /// In the member's order of preference. After a replay only the elected one is known.
    pub protocols: Vec<Protocol>,
    pub assignment: Arc<[u8]>,
    /// Has not seen the answer to its first join, so it cannot be expected to send heartbeats.
    pub is_new: bool,
    pub awaiting_join: Option<Ticket>,
    pub awaiting_sync: Option<Ticket>,
    /// The connection that waited is closed: waiting no longer counts as a sign of life.
    pub is_abandoned: bool,
    /// Restored from a record and not heard of since: the next record replaces all of it.
    pub is_restored: bool,
}

impl Member {
    pub fn new(member_id: Arc<str>, request: &JoinRequest<'_>) -> Member {
        Member {
            member_id,
            group_instance_id: request.group_instance_id.map(Arc::from),
            client_id: request.client_id.into(),
            client_host: request.client_host.into(),
            rebalance_timeout_ms: request.rebalance_timeout_ms,
            session_timeout_ms: request.session_timeout_ms,
            protocols: protocols_of(request),
            assignment: Arc::from([]),
            is_new: true,
            awaiting_join: None,
            awaiting_sync: None,
            is_abandoned: false,
            is_restored: false,
        }
    }

    pub fn from_stored(stored: &StoredMember, protocol: Option<&Arc<str>>) -> Member {
        Member {
            member_id: stored.member_id.clone(),
            group_instance_id: stored.group_instance_id.clone(),
            client_id: stored.client_id.clone(),
            client_host: stored.client_host.clone(),
            rebalance_timeout_ms: stored.rebalance_timeout_ms,
            session_timeout_ms: stored.session_timeout_ms,
            protocols: protocol
                .map(|name| Protocol {
                    name: name.clone(),
                    metadata: stored.subscription.clone(),
                })
                .into_iter()
                .collect(),
            assignment: stored.assignment.clone(),
            is_new: false,
            awaiting_join: None,
            awaiting_sync: None,
            is_abandoned: false,
            is_restored: true,
        }
    }

    /// Returns a classic member of a consumer group, without an assignment.
    pub fn from_consumer(member_id: &Arc<str>, metadata: &MemberMetadata, classic: &ClassicMember) -> Member {
        let protocols = classic.protocols.iter();
        Member {
            member_id: member_id.clone(),
            group_instance_id: metadata.instance_id.clone(),
            client_id: metadata.client_id.clone(),
            client_host: metadata.client_host.clone(),
            rebalance_timeout_ms: metadata.rebalance_timeout_ms,
            session_timeout_ms: classic.session_timeout_ms,
            protocols: protocols
                .map(|(name, metadata)| Protocol {
                    name: name.clone(),
                    metadata: metadata.clone(),
                })
                .collect(),
            assignment: Arc::from([]),
            is_new: false,
            awaiting_join: None,
            awaiting_sync: None,
            is_abandoned: false,
            is_restored: false,
        }
    }

    /// Updates the member with the request of another join.
    pub fn update(&mut self, request: &JoinRequest<'_>) {
        self.protocols = protocols_of(request);
        self.rebalance_timeout_ms = request.rebalance_timeout_ms;
        self.session_timeout_ms = request.session_timeout_ms;
        self.is_abandoned = false;
        self.is_restored = false;
    }

    pub fn overview(&self) -> MemberOverview {
        MemberOverview {
            member_id: self.member_id.clone(),
            client_id: self.client_id.clone(),
            client_host: self.client_host.clone(),
            rebalance_timeout_ms: self.rebalance_timeout_ms,
            session_timeout_ms: self.session_timeout_ms,
        }
    }

    pub fn is_static(&self) -> bool {
        self.group_instance_id.is_some()
    }

    pub fn supports(&self, protocol: &str) -> bool {
        self.protocols.iter().any(|own| &*own.name == protocol)
    }

    /// Whether a join with `request` would change nothing.
    pub fn matches(&self, request: &JoinRequest<'_>) -> bool {
        self.protocols.len() == request.protocols.len()
            && self
                .protocols
                .iter()
                .zip(&request.protocols)
                .all(|(own, (name, metadata))| *own.name == **name && *own.metadata == **metadata)
    }

    pub fn metadata(&self, protocol: Option<&str>) -> Arc<[u8]> {
        self.protocols
            .iter()
            .find(|own| Some(&*own.name) == protocol)
            .map_or_else(|| Arc::from([]), |own| own.metadata.clone())
    }

    /// Returns the bytes that the largest of its protocols would take in a group record.
    pub fn subscription_bytes_max(&self) -> usize {
        self.protocols
            .iter()
            .map(|protocol| protocol.metadata.len())
            .max()
            .unwrap_or(0)
    }

    /// Whether the member is exempt from heartbeats: while it waits for the others, it cannot send
    /// any.
    pub fn is_excused(&self) -> bool {
        !self.is_new && !self.is_abandoned && (self.awaiting_join.is_some() || self.awaiting_sync.is_some())
    }
}

fn protocols_of(request: &JoinRequest<'_>) -> Vec<Protocol> {
    request
        .protocols
        .iter()
        .map(|(name, metadata)| Protocol {
            name: (*name).into(),
            metadata: (*metadata).into(),
        })
        .collect()
}
