//! Which client instance a connection belongs to that has named none.
//!
//! A Java client asks for its subscription on the connection to a bootstrap address and produces on
//! another, which names the instance only with the first push. One that never pushes would look
//! like a client that was never asked to.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use super::counts::ConnectionCounts;

/// What connections of one client have in common.
type Owner = (Arc<str>, Arc<str>, IpAddr);

/// An instance, and the index of a connection that names it.
type Named = HashMap<String, usize>;

/// The connections of one owner.
#[derive(Default)]
struct Group {
    /// Named by connections that neither produce nor fetch.
    idle: Named,
    working: HashSet<String>,
    /// Connections that produce or fetch and name no instance.
    nameless: Vec<usize>,
}

/// Names the instance of each connection that produces or fetches, names none, and can only belong
/// to one: of its client id, principal and address it is the only such connection, and one instance
/// has no other. It keeps its name when the connection that told it is closed.
///
/// - `before`: the connections of the reading before this one.
pub(super) fn name(connections: &mut [ConnectionCounts], before: &[ConnectionCounts]) {
    let known = before
        .iter()
        .filter(|connection| connection.instance_id.is_some());
    let known: HashMap<u64, &ConnectionCounts> = known
        .map(|connection| (connection.connection_id, connection))
        .collect();
    for connection in connections.iter_mut() {
        if let (None, Some(before)) = (&connection.instance_id, known.get(&connection.connection_id)) {
            told(connection, before);
        }
    }
    let mut groups: HashMap<Owner, Group> = HashMap::new();
    for (index, connection) in connections.iter().enumerate() {
        let owner = (
            connection.client_id.clone(),
            connection.principal.clone(),
            connection.address,
        );
        let group = groups.entry(owner).or_default();
        let is_working = connection.produce.is_some() || connection.fetch.is_some();
        match &connection.instance_id {
            Some(instance) if is_working => _ = group.working.insert(instance.clone()),
            Some(instance) => _ = group.idle.insert(instance.clone(), index),
            None if is_working => group.nameless.push(index),
            None => {}
        }
    }
    for mut group in groups.into_values() {
        group.idle.retain(|instance, _| !group.working.contains(instance));
        let idle: Vec<usize> = group.idle.into_values().collect();
        if let ([index], [idle]) = (&group.nameless[..], &idle[..]) {
            let idle = connections[*idle].clone();
            told(&mut connections[*index], &idle);
        }
    }
}

/// Takes over what the client was told on another connection.
fn told(connection: &mut ConnectionCounts, other: &ConnectionCounts) {
    connection.instance_id.clone_from(&other.instance_id);
    connection.push_interval_ms = other.push_interval_ms;
    connection.is_off_at_broker |= other.is_off_at_broker;
}
