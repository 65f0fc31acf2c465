//! What a check gives: leave to use one resource.
//!
//! The ways to logs, groups and transactional ids (`node.rs`, `group/groups.rs`,
//! `transaction/transactions.rs`), and what the controller changes in topics and settings, take it,
//! and only a [`Caller`](super::Caller) gives it: a handler that forgets to ask is not compiled.
//! Which operation to ask for is the handler's part, and watched over by the tests of every API
//! with and without each permission. What concerns the whole cluster is asked for in the table of
//! APIs.

use std::marker::PhantomData;
use std::sync::Arc;

use crate::config::ConfigResource;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topic {}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionalId {}

pub type GrantedTopic<'a> = Granted<'a, Topic>;
pub type GrantedGroup<'a> = Granted<'a, Group>;
pub type GrantedTransactionalId<'a> = Granted<'a, TransactionalId>;

/// A resource that the caller may use as it asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granted<'a, R> {
    name: &'a str,
    resource: PhantomData<R>,
}

impl<'a, R> Granted<'a, R> {
    pub(super) fn new(name: &'a str) -> Granted<'a, R> {
        Granted {
            name,
            resource: PhantomData,
        }
    }

    pub fn name(&self) -> &'a str {
        self.name
    }

    /// A copy that outlives the request.
    pub fn keep(&self) -> OwnedGrant<R> {
        OwnedGrant {
            name: self.name.into(),
            resource: PhantomData,
        }
    }
}

/// A grant that outlives its request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedGrant<R> {
    name: Arc<str>,
    resource: PhantomData<R>,
}

impl<R> OwnedGrant<R> {
    /// What the broker does by itself: a name from a request is never `'static`.
    pub fn own(name: &'static str) -> OwnedGrant<R> {
        Granted::new(name).keep()
    }

    #[cfg(test)]
    pub fn of(name: &str) -> OwnedGrant<R> {
        Granted::new(name).keep()
    }

    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    pub fn borrow(&self) -> Granted<'_, R> {
        Granted::new(&self.name)
    }
}

/// The cluster: its brokers use every topic and transactional id (KIP-11).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrantedCluster(());

impl GrantedCluster {
    pub(super) fn new() -> GrantedCluster {
        GrantedCluster(())
    }

    pub fn topic(self, name: &str) -> GrantedTopic<'_> {
        Granted::new(name)
    }

    pub fn transactional_id(self, id: &str) -> GrantedTransactionalId<'_> {
        Granted::new(id)
    }
}

/// A resource whose settings the caller may use as it asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantedConfig(ConfigResource);

impl GrantedConfig {
    pub(super) fn new(resource: ConfigResource) -> GrantedConfig {
        GrantedConfig(resource)
    }

    #[cfg(test)]
    pub fn of(resource: ConfigResource) -> GrantedConfig {
        GrantedConfig(resource)
    }

    pub fn resource(&self) -> &ConfigResource {
        &self.0
    }
}
