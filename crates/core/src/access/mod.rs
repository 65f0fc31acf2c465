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
pub mod granted;
pub mod filter;
pub mod denials;

pub use ottla_wire::acl;

#[cfg(test)]
mod caller_tests;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::{ArcSwap, Guard};
use ottla_wire::api_key::ApiKey;
use ottla_wire::error_code::ErrorCode;
use ottla_wire::primitives::Uuid;
use tracing::{debug, info, warn};

use crate::config::{AuthorizerConfig, ConfigResource, ConfigResourceType};
use crate::denied::DeniedOperation;
use crate::image::access::AclImage;
use crate::permitted::{Asked, Holder};
use crate::request::{ConnectionContext, Request};
use crate::time::Moment;
use acl::{CLUSTER_NAME, Operation, ResourceType};
use decide::{Asker, Decision};
use denials::{DenialCount, Denials};
use granted::{Granted, GrantedCluster, GrantedConfig, GrantedGroup, GrantedTopic, GrantedTransactionalId};
use index::AclIndex;

/// The authorizer, if one is configured.
#[derive(Debug, Default)]
pub struct Access {
    authorizer: Option<Arc<Authorizer>>,
}

#[derive(Debug)]
struct Authorizer {
    /// Super users and the rest cannot be changed while the broker runs, as in Apache Kafka.
    config: AuthorizerConfig,
    acls: ArcSwap<VersionedIndex>,
    /// The version of `acls`: one load instead of the index itself. A check that sees it later than
    /// the index, or earlier, only decides once more.
    version: AtomicU64,
    denials: Denials,
}

/// The ACLs since a change of them.
#[derive(Debug)]
struct VersionedIndex {
    version: u64,
    index: AclIndex,
}

impl Access {
    pub fn new(config: Option<&AuthorizerConfig>, acls: &BTreeMap<Uuid, AclImage>) -> Access {
        let authorizer = config.map(|config| {
            let version = 0;
            Arc::new(Authorizer {
                config: config.clone(),
                acls: ArcSwap::from_pointee(VersionedIndex {
                    version,
                    index: AclIndex::new(acls),
                }),
                version: AtomicU64::new(version),
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

    /// Takes over changed ACLs; requests that ask afterwards are decided by them. Called by one
    /// thread at a time.
    pub fn follow(&self, acls: &BTreeMap<Uuid, AclImage>) {
        let Some(authorizer) = &self.authorizer else {
            return;
        };
        let version = authorizer.version.load(Ordering::Relaxed) + 1;
        let index = AclIndex::new(acls);
        authorizer.acls.store(Arc::new(VersionedIndex { version, index }));
        authorizer.version.store(version, Ordering::Release);
    }

    /// Returns who sends `request`, to ask what it may do.
    pub fn caller<'a>(&'a self, request: &Request<'a>) -> Caller<'a> {
        Caller {
            limited: self.authorizer.as_ref().map(|authorizer| Limited {
                authorizer,
                connection: request.connection,
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

/// Who sent a request. It always decides by the ACLs of the moment when it is asked.
#[derive(Clone, Copy, Debug)]
pub struct Caller<'a> {
    /// `None`: there is no authorizer.
    limited: Option<Limited<'a>>,
}

#[derive(Clone, Copy, Debug)]
struct Limited<'a> {
    authorizer: &'a Arc<Authorizer>,
    connection: &'a ConnectionContext,
    api_key: ApiKey,
    received: Moment,
}

/// A caller that outlives its request, for as long as the answer takes.
#[derive(Clone, Debug)]
pub struct OwnedCaller {
    limited: Option<OwnedLimited>,
}

#[derive(Clone, Debug)]
struct OwnedLimited {
    authorizer: Arc<Authorizer>,
    connection: ConnectionContext,
    api_key: ApiKey,
    received: Moment,
}

impl OwnedCaller {
    pub fn borrow(&self) -> Caller<'_> {
        Caller {
            limited: self.limited.as_ref().map(|limited| Limited {
                authorizer: &limited.authorizer,
                connection: &limited.connection,
                api_key: limited.api_key,
                received: limited.received,
            }),
        }
    }
}

impl<'a> Caller<'a> {
    /// A caller that may do everything.
    #[cfg(test)]
    pub(crate) fn unlimited() -> Caller<'a> {
        Caller { limited: None }
    }

    pub fn keep(&self) -> OwnedCaller {
        OwnedCaller {
            limited: self.limited.map(|limited| OwnedLimited {
                authorizer: limited.authorizer.clone(),
                connection: limited.connection.clone(),
                api_key: limited.api_key,
                received: limited.received,
            }),
        }
    }

    /// Whether nothing has to be asked: a super user, or there is no authorizer.
    pub fn is_unlimited(&self) -> bool {
        self.limited.is_none_or(|limited| limited.is_super_user())
    }

    pub fn topic<'n>(&self, operation: Operation, name: &'n str) -> Result<GrantedTopic<'n>, ErrorCode> {
        self.check(operation, ResourceType::Topic, name)
            .map(|()| Granted::new(name))
    }

    pub fn group<'n>(&self, operation: Operation, name: &'n str) -> Result<GrantedGroup<'n>, ErrorCode> {
        self.check(operation, ResourceType::Group, name)
            .map(|()| Granted::new(name))
    }

    pub fn transactional_id<'n>(
        &self,
        operation: Operation,
        name: &'n str,
    ) -> Result<GrantedTransactionalId<'n>, ErrorCode> {
        self.check(operation, ResourceType::TransactionalId, name)
            .map(|()| Granted::new(name))
    }

    pub fn cluster(&self, operation: Operation) -> Result<GrantedCluster, ErrorCode> {
        self.check(operation, ResourceType::Cluster, CLUSTER_NAME)
            .map(|()| GrantedCluster::new())
    }

    /// KIP-373: a delegation token for `owner`, another principal, e.g. `User:bob`.
    pub fn token_for(&self, owner: &str) -> Result<(), ErrorCode> {
        self.check(Operation::CreateTokens, ResourceType::User, owner)
            .map_err(|_| ResourceType::DelegationToken.denial())
    }

    /// An operation on the settings of a resource: those of brokers and of client metrics are the
    /// cluster's.
    pub fn config(&self, operation: Operation, resource: ConfigResource) -> Result<GrantedConfig, ErrorCode> {
        let name = &*resource.name;
        match resource.resource_type {
            ConfigResourceType::Topic => self.topic(operation, name).map(drop),
            ConfigResourceType::Group => self.group(operation, name).map(drop),
            ConfigResourceType::Broker | ConfigResourceType::ClientMetrics => {
                self.cluster(operation).map(drop)
            }
        }
        .map(|()| GrantedConfig::new(resource))
    }

    /// Whether the client may know of the resource. A denial is no event: the resource is left out
    /// of a list, or the client has another way.
    pub fn may(&self, operation: Operation, resource_type: ResourceType, name: &str) -> bool {
        let asked = Asked {
            operation,
            resource_type,
            name,
        };
        self.limited
            .is_none_or(|limited| limited.was_permitted(asked) || limited.allows(asked))
    }

    pub fn may_on_topic(&self, operation: Operation, name: &str) -> bool {
        self.may(operation, ResourceType::Topic, name)
    }

    pub fn may_on_cluster(&self, operation: Operation) -> bool {
        self.may(operation, ResourceType::Cluster, CLUSTER_NAME)
    }

    /// As `topic`, where a denial is no event.
    pub fn topic_if_allowed<'n>(&self, operation: Operation, name: &'n str) -> Option<GrantedTopic<'n>> {
        self.may_on_topic(operation, name).then(|| Granted::new(name))
    }

    /// As `cluster`, where a denial is no event.
    pub fn cluster_if_allowed(&self, operation: Operation) -> Option<GrantedCluster> {
        self.may_on_cluster(operation).then(GrantedCluster::new)
    }

    /// KIP-679: an idempotent producer may write to the cluster, or to any topic.
    pub fn idempotent_write(&self) -> Result<(), ErrorCode> {
        let Some(limited) = &self.limited else {
            return Ok(());
        };
        let asked = Asked {
            operation: Operation::IdempotentWrite,
            resource_type: ResourceType::Cluster,
            name: CLUSTER_NAME,
        };
        if limited.allows(asked) || limited.allows_somewhere(Operation::Write, ResourceType::Topic) {
            return Ok(());
        }
        limited.note_denial(asked);
        Err(ResourceType::Cluster.denial())
    }

    /// Returns the allowed ones among `operations` as bits, one per code (KIP-430).
    pub fn authorized(&self, operations: i32, resource_type: ResourceType, name: &str) -> i32 {
        let asked = Operation::ALL
            .iter()
            .map(|operation| (operation, 1 << operation.code()));
        let allowed = asked
            .filter(|(operation, bit)| operations & bit != 0 && self.may(**operation, resource_type, name));
        allowed.fold(0, |bits, (_, bit)| bits | bit)
    }

    fn check(&self, operation: Operation, resource_type: ResourceType, name: &str) -> Result<(), ErrorCode> {
        let asked = Asked {
            operation,
            resource_type,
            name,
        };
        match &self.limited {
            None => Ok(()),
            Some(limited) => limited.check(asked),
        }
    }
}

impl<'a> Limited<'a> {
    fn asker(&self) -> Asker<'a> {
        Asker {
            principal: &self.connection.principal,
            address: self.address(),
        }
    }

    fn address(&self) -> IpAddr {
        self.connection.peer_address.to_canonical()
    }

    fn is_super_user(&self) -> bool {
        let super_users = &self.authorizer.config.super_users;
        super_users.contains(&*self.connection.principal)
    }

    fn check(&self, asked: Asked<'_>) -> Result<(), ErrorCode> {
        if self.was_permitted(asked) {
            return Ok(());
        }
        let acls = self.acls();
        if self.is_allowed_by(&acls.index, asked) {
            // By the version that has decided: a newer one may have come meanwhile.
            let permitted = &self.connection.permitted;
            permitted.remember(self.holder(acls.version), asked);
            self.tell_permission(&acls.index, asked);
            return Ok(());
        }
        self.note_denial(asked);
        Err(asked.resource_type.denial())
    }

    fn was_permitted(&self, asked: Asked<'_>) -> bool {
        let version = self.authorizer.version.load(Ordering::Acquire);
        self.connection.permitted.has(self.holder(version), asked)
    }

    fn holder(&self, version: u64) -> Holder<'a> {
        let Asker { principal, address } = self.asker();
        Holder {
            principal,
            address,
            version,
        }
    }

    fn allows(&self, asked: Asked<'_>) -> bool {
        self.is_allowed_by(&self.acls().index, asked)
    }

    fn is_allowed_by(&self, index: &AclIndex, asked: Asked<'_>) -> bool {
        let without_acl = self.authorizer.config.allow_without_acl;
        self.is_super_user() || self.decide(index, asked).is_allowed(without_acl)
    }

    fn decide(&self, index: &AclIndex, asked: Asked<'_>) -> Decision {
        index.decide(self.asker(), asked.operation, asked.resource_type, asked.name)
    }

    fn allows_somewhere(&self, operation: Operation, resource_type: ResourceType) -> bool {
        let without_acl = self.authorizer.config.allow_without_acl;
        let acls = self.acls();
        acls.index
            .allows_somewhere(self.asker(), operation, resource_type, without_acl)
    }

    fn acls(&self) -> Guard<Arc<VersionedIndex>> {
        self.authorizer.acls.load()
    }

    /// Once for what the connection remembers: not for every request.
    fn tell_permission(&self, index: &AclIndex, asked: Asked<'_>) {
        debug!(
            target: "ottla::authorizer",
            principal = &*self.connection.principal,
            host = %self.address(),
            api = %self.api_key,
            operation = asked.operation.name(),
            resource_type = asked.resource_type.name(),
            resource = asked.name,
            is_super_user = self.is_super_user(),
            rule = %self.decide(index, asked),
            "allowed"
        );
    }

    fn note_denial(&self, asked: Asked<'_>) {
        let (operation, resource_type) = (asked.operation.name(), asked.resource_type.name());
        let decision = self.decide(&self.acls().index, asked);
        let is_by_acl = matches!(decision, Decision::Denied(_));
        let denied = DeniedOperation::new(operation, resource_type, asked.name, is_by_acl);
        let principal = &self.connection.principal;
        let line = self.authorizer.denials.see(principal, &denied, self.received);
        self.connection.identity.denied().see(denied);
        if let Some(suppressed) = line {
            info!(
                target: "ottla::authorizer",
                principal = &**principal,
                host = %self.address(),
                api = %self.api_key,
                operation,
                resource_type,
                resource = asked.name,
                rule = %decision,
                suppressed,
                "denied"
            );
        }
    }
}
