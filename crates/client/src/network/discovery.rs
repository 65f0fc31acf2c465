//! Discovers nodes: requests and applies metadata, and falls back to the bootstrap servers.

use ottla_wire::api_key::ApiKey;
use ottla_wire::messages::metadata::MetadataRequest;

use crate::error::Error;
use crate::events;
use crate::metadata::refresh::Outcome;
use crate::metadata::snapshot::NodeId;
use crate::network::cluster::{Cluster, malformed};
use crate::network::connection::Connection;
use crate::network::in_flight::Purpose;
use crate::network::io::Address;
use crate::time::Moment;

impl<T> Cluster<T> {
    /// The nodes that any request can go to.
    pub(super) fn candidates(&self) -> impl Iterator<Item = (NodeId, &Connection<T>)> {
        self.nodes
            .iter()
            .filter(|(_, node)| !node.is_extra && !node.is_retired)
            .map(|(id, node)| (*id, node))
    }

    pub(super) fn ask_for_metadata(&mut self, now: Moment) {
        self.is_waiting_for_node = false;
        if self.refresh.due().is_none_or(|due| due > now) {
            return;
        }
        let Some(node) = self.least_loaded(now) else {
            self.bootstrap_if_lost(now);
            self.wait_for_node();
            return;
        };
        match self.version(node, ApiKey::Metadata, MetadataRequest::MIN_VERSION) {
            Ok(version) => {
                let body = self.refresh.start(now, version);
                self.send_own(now, node, ApiKey::Metadata, version, body, Purpose::Metadata);
            }
            Err(error) => {
                self.refresh.cell().fail(error);
                self.is_waiting_for_node = true;
                self.metadata_not_before = Some(now.after_ms(self.config.reconnect_backoff_ms_max.max(1)));
            }
        }
    }

    pub(super) fn wait_for_node(&mut self) {
        self.is_waiting_for_node = true;
        self.metadata_not_before = if self.candidates().any(|(_, node)| node.is_becoming_ready()) {
            None
        } else {
            self.candidates()
                .map(|(_, node)| {
                    if node.is_idle() {
                        node.not_before
                    } else {
                        node.throttled_until
                    }
                })
                .min()
        };
    }

    pub(super) fn metadata_answered(
        &mut self,
        now: Moment,
        node: NodeId,
        body: &[u8],
        version: i16,
    ) -> Result<(), Error> {
        let flaw = |address: &Address, reason: &str| malformed(address, format!("Metadata: {reason}"));
        match self.refresh.answered(now, body, version) {
            Outcome::Updated => {
                self.metrics.metadata_updated();
                self.is_bootstrapping = false;
                self.adopt();
                Ok(())
            }
            Outcome::Rebootstrap => {
                // The known nodes tell this client to rebootstrap: none of them is asked again.
                self.adopt();
                self.bootstrap();
                Ok(())
            }
            Outcome::Unusable(reason) => {
                let error = flaw(&self.nodes[&node].address, &reason);
                events::metadata_unusable(&self.config.client_id, &error);
                self.refresh.cell().note_trouble(error);
                Ok(())
            }
            Outcome::Malformed(reason) => Err(flaw(&self.nodes[&node].address, &reason)),
        }
    }

    /// Updates `nodes` from the snapshot.
    pub(super) fn adopt(&mut self) {
        let snapshot = self.snapshot();
        if snapshot.version == self.adopted_version {
            return;
        }
        self.adopted_version = snapshot.version;
        for (id, node) in &mut self.nodes {
            node.is_retired = !node.is_extra && !snapshot.nodes.contains_key(id);
        }
        for (id, node) in &snapshot.nodes {
            self.nodes
                .entry(*id)
                .or_insert_with(|| Connection::new(node.address.clone()))
                .address
                .clone_from(&node.address);
        }
    }

    /// Asks the hosts of `bootstrap.servers` when no known node can be asked (KIP-899), or none has
    /// answered for metadata.recovery.rebootstrap.trigger.ms (KIP-1102). The current metadata stays
    /// valid meanwhile.
    pub(super) fn bootstrap_if_lost(&mut self, now: Moment) {
        let Some(limit_ms) = self.config.rebootstrap_after_ms else {
            return;
        };
        if self.is_bootstrapping {
            return;
        }
        let is_any_hopeful = self
            .candidates()
            .any(|(_, node)| !node.is_idle() || node.not_before <= now);
        let is_overdue = self
            .refresh
            .failing_since()
            .is_some_and(|since| now.ms_since(since) >= limit_ms);
        if !is_any_hopeful || is_overdue {
            self.bootstrap();
        }
    }

    pub(super) fn bootstrap(&mut self) {
        self.is_bootstrapping = true;
        for (index, address) in self.config.bootstrap_servers.iter().enumerate() {
            let id = NodeId(-1 - i32::try_from(index).unwrap_or(i32::MAX - 1));
            self.nodes
                .entry(id)
                .or_insert_with(|| Connection::new(address.clone()))
                .is_retired = false;
        }
    }
}
