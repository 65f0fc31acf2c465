//! The network as the group's machine needs it: a cluster's connections, or a simulation of them.

use std::sync::Arc;

use ottla_wire::api_key::ApiKey;

use super::group::GroupTicket;
use crate::error::Error;
use crate::metadata::snapshot::{NodeId, Snapshot};
use crate::network::cluster::{Cluster, Readiness, Reply, Request};
use crate::network::io::{Action, Address};
use crate::time::Moment;

/// Requests to nodes by id; the methods are those of [`Cluster`].
pub trait GroupNetwork {
    fn readiness(&mut self, now: Moment, node: NodeId) -> Readiness;
    fn version(&self, node: NodeId, api_key: ApiKey, needed_min: i16) -> Result<i16, Error>;
    fn version_within(
        &self,
        node: NodeId,
        api_key: ApiKey,
        needed_min: i16,
        wanted_max: i16,
    ) -> Result<i16, Error>;
    fn send(&mut self, now: Moment, node: NodeId, request: Request, ticket: GroupTicket);
    fn least_loaded(&mut self, now: Moment) -> Option<NodeId>;
    fn add_node(&mut self, id: NodeId, address: Address);
    /// The requests in flight come back as `Disconnected` in a later turn.
    fn disconnect(&mut self, now: Moment, node: NodeId);
    fn snapshot(&self) -> Arc<Snapshot>;
    /// A topic is not in the metadata yet.
    fn request_metadata(&mut self) {}
}

/// A cluster as the group sees it, for one turn of the consumer's machine.
pub struct ClusterLink<'a, T> {
    pub cluster: &'a mut Cluster<T>,
    pub replies: &'a mut Vec<Reply<T>>,
    pub actions: &'a mut Vec<Action>,
}

impl<T: From<GroupTicket>> GroupNetwork for ClusterLink<'_, T> {
    fn readiness(&mut self, now: Moment, node: NodeId) -> Readiness {
        self.cluster.readiness(now, node)
    }

    fn version(&self, node: NodeId, api_key: ApiKey, needed_min: i16) -> Result<i16, Error> {
        self.cluster.version(node, api_key, needed_min)
    }

    fn version_within(
        &self,
        node: NodeId,
        api_key: ApiKey,
        needed_min: i16,
        wanted_max: i16,
    ) -> Result<i16, Error> {
        self.cluster.version_within(node, api_key, needed_min, wanted_max)
    }

    fn send(&mut self, now: Moment, node: NodeId, request: Request, ticket: GroupTicket) {
        self.cluster.send(now, node, request, ticket.into(), self.actions);
    }

    fn least_loaded(&mut self, now: Moment) -> Option<NodeId> {
        self.cluster.least_loaded(now)
    }

    fn add_node(&mut self, id: NodeId, address: Address) {
        self.cluster.add_node(id, address);
    }

    fn disconnect(&mut self, now: Moment, node: NodeId) {
        self.cluster.disconnect(now, node, self.replies, self.actions);
    }

    fn snapshot(&self) -> Arc<Snapshot> {
        self.cluster.snapshot()
    }

    fn request_metadata(&mut self) {
        self.cluster.request_metadata();
    }
}
