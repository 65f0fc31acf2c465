//! Access control: which principal may do what (KIP-11).
//!
//! Without `authorizer.class.name` everyone may do everything, which costs one branch. Handlers ask
//! through the [`Caller`] of their request; `dispatch.rs` says for every API whether a handler
//! asks, or dispatch itself, or neither.
//!
//! Reading order: the modules below, top to bottom.

pub mod host;
pub mod index;
pub mod decide;
pub mod filter;
pub mod denials;

pub use ottla_wire::acl;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use ottla_wire::api_key::ApiKey;
use ottla_wire::error_code::ErrorCode;
use ottla_wire::primitives::Uuid;
use tracing::{info, warn};

use crate::config::AuthorizerConfig;
use crate::denied::DeniedOperation;
use crate::image::access::AclImage;
use crate::request::{ClientIdentity, Request};
use crate::time::Moment;
use acl::{CLUSTER_NAME, Operation, ResourceType};
use decide::{Asker, Decision};
use denials::{DenialCount, Denials};
use index::AclIndex;

/// The authorizer, if one is configured.
#[derive(Debug, Default)]
pub struct Access {
    authorizer: Option<Arc<Authorizer>>,
}

#[derive(Debug)]
struct Authorizer {
    config: AuthorizerConfig,
    index: ArcSwap<AclIndex>,
    denials: Denials,
}

impl Access {
    pub fn new(config: Option<&AuthorizerConfig>, acls: &BTreeMap<Uuid, AclImage>) -> Access {
        let authorizer = config.map(|config| {
            Arc::new(Authorizer {
                config: config.clone(),
                index: ArcSwap::from_pointee(AclIndex::new(acls)),
                denials: Denials::new(),
            })
        });
        if authorizer.is_none() && !acls.is_empty() {
            let acls = acls.len();
            warn!(
                acls,
                "the directory has ACLs, but there is no authorizer.class.name: they have no effect"
            );
        }
        Access { authorizer }
    }

    /// Whether an authorizer is configured.
    pub fn is_on(&self) -> bool {
        self.authorizer.is_some()
    }

    /// Takes over changed ACLs; requests that ask afterwards are decided by them.
    pub fn follow(&self, acls: &BTreeMap<Uuid, AclImage>) {
        if let Some(authorizer) = &self.authorizer {
            authorizer.index.store(Arc::new(AclIndex::new(acls)));
        }
    }

    /// Returns who sends `request`, to ask what it may do.
    pub fn caller(&self, request: &Request<'_>) -> Caller {
        let Some(authorizer) = &self.authorizer else {
            return Caller::unlimited();
        };
        let connection = request.connection;
        if authorizer.config.super_users.contains(&*connection.principal) {
            return Caller::unlimited();
        }
        Caller {
            limited: Some(Limited {
                authorizer: authorizer.clone(),
                principal: connection.principal.clone(),
                address: connection.peer_address.to_canonical(),
                identity: connection.identity.clone(),
                api_key: request.api_key,
                received: request.received,
            }),
        }
    }

    /// Returns the denials so far, by type of resource; `None` without an authorizer.
    pub fn denials(&self) -> Option<Vec<(&'static str, u64)>> {
        Some(self.authorizer.as_ref()?.denials.by_type())
    }

    /// Returns the denials so far, by principal and operation.
    pub fn denials_by_principal(&self) -> Vec<DenialCount> {
        let authorizer = self.authorizer.as_ref();
        authorizer.map_or_else(Vec::new, |authorizer| authorizer.denials.counts())
    }
}

/// Who sent a request. It can be kept for as long as the answer takes, and always decides by the
/// ACLs of the moment when it is asked.
#[derive(Clone, Debug)]
pub struct Caller {
    /// `None`: a super user, or there is no authorizer.
    limited: Option<Limited>,
}

#[derive(Clone, Debug)]
struct Limited {
    authorizer: Arc<Authorizer>,
    principal: Arc<str>,
    address: IpAddr,
    identity: Arc<ClientIdentity>,
    api_key: ApiKey,
    received: Moment,
}

impl Caller {
    /// A caller that may do everything.
    pub fn unlimited() -> Caller {
        Caller { limited: None }
    }

    /// Whether nothing has to be asked.
    pub fn is_unlimited(&self) -> bool {
        self.limited.is_none()
    }

    pub fn topic(&self, operation: Operation, name: &str) -> Result<(), ErrorCode> {
        self.check(operation, ResourceType::Topic, name)
    }

    pub fn group(&self, operation: Operation, name: &str) -> Result<(), ErrorCode> {
        self.check(operation, ResourceType::Group, name)
    }

    pub fn transactional_id(&self, operation: Operation, name: &str) -> Result<(), ErrorCode> {
        self.check(operation, ResourceType::TransactionalId, name)
    }

    pub fn cluster(&self, operation: Operation) -> Result<(), ErrorCode> {
        self.check(operation, ResourceType::Cluster, CLUSTER_NAME)
    }

    /// Whether the client may know of the topic. A denial is no event: the topic is left out of a
    /// list, or the client has another way.
    pub fn may(&self, operation: Operation, resource_type: ResourceType, name: &str) -> bool {
        self.limited
            .as_ref()
            .is_none_or(|limited| limited.allows(operation, resource_type, name))
    }

    pub fn may_on_topic(&self, operation: Operation, name: &str) -> bool {
        self.may(operation, ResourceType::Topic, name)
    }

    pub fn may_on_cluster(&self, operation: Operation) -> bool {
        self.may(operation, ResourceType::Cluster, CLUSTER_NAME)
    }

    /// KIP-679: an idempotent producer may write to the cluster, or to any topic.
    pub fn idempotent_write(&self) -> Result<(), ErrorCode> {
        let Some(limited) = &self.limited else {
            return Ok(());
        };
        if limited.allows(Operation::IdempotentWrite, ResourceType::Cluster, CLUSTER_NAME)
            || limited.allows_somewhere(Operation::Write, ResourceType::Topic)
        {
            return Ok(());
        }
        limited.note_denial(Operation::IdempotentWrite, ResourceType::Cluster, CLUSTER_NAME);
        Err(ResourceType::Cluster.denial())
    }

    /// Returns the allowed ones among `operations` as bits, one per code (KIP-430).
    pub fn authorized(&self, operations: i32, resource_type: ResourceType, name: &str) -> i32 {
        let Some(limited) = &self.limited else {
            return operations;
        };
        let asked = Operation::ALL
            .iter()
            .map(|operation| (operation, 1 << operation.code()));
        let allowed = asked.filter(|(operation, bit)| {
            operations & bit != 0 && limited.allows(**operation, resource_type, name)
        });
        allowed.fold(0, |bits, (_, bit)| bits | bit)
    }

    fn check(&self, operation: Operation, resource_type: ResourceType, name: &str) -> Result<(), ErrorCode> {
        match &self.limited {
            None => Ok(()),
            Some(limited) if limited.allows(operation, resource_type, name) => Ok(()),
            Some(limited) => {
                limited.note_denial(operation, resource_type, name);
                Err(resource_type.denial())
            }
        }
    }
}

impl Limited {
    fn asker(&self) -> Asker<'_> {
        Asker {
            principal: &self.principal,
            address: self.address,
        }
    }

    fn allows(&self, operation: Operation, resource_type: ResourceType, name: &str) -> bool {
        let without_acl = self.authorizer.config.allow_without_acl;
        self.decide(operation, resource_type, name)
            .is_allowed(without_acl)
    }

    fn decide(&self, operation: Operation, resource_type: ResourceType, name: &str) -> Decision {
        let index = self.authorizer.index.load();
        index.decide(self.asker(), operation, resource_type, name)
    }

    fn allows_somewhere(&self, operation: Operation, resource_type: ResourceType) -> bool {
        let without_acl = self.authorizer.config.allow_without_acl;
        let index = self.authorizer.index.load();
        index.allows_somewhere(self.asker(), operation, resource_type, without_acl)
    }

    fn note_denial(&self, operation: Operation, resource_type: ResourceType, name: &str) {
        let is_by_acl = matches!(self.decide(operation, resource_type, name), Decision::Denied(_));
        let denied = DeniedOperation::new(operation.name(), resource_type.name(), name, is_by_acl);
        let line = self
            .authorizer
            .denials
            .see(&self.principal, &denied, self.received);
        self.identity.denied().see(denied);
        if let Some(suppressed) = line {
            info!(
                target: "ottla::authorizer",
                principal = &*self.principal,
                host = %self.address,
                api = %self.api_key,
                operation = operation.name(),
                resource_type = resource_type.name(),
                resource = name,
                suppressed,
                "denied"
            );
        }
    }
}
