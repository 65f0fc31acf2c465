//! Tenants: the name that a client's work is charged under, and its small number for arrays.
//!
//! Names come from the network, so everything is bounded: the number of known tenants, new names
//! per address and minute, and name changes per connection. Beyond a bound clients share one
//! tenant, [`TenantId::OTHERS`].

mod registry;

use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::time::Moment;
use registry::Registry;

/// Longer names are cut, because they become labels and table rows.
const NAME_CHARACTERS_MAX: usize = 128;

/// A tenant's number: dense, at most [`TenantLimits::known_max`], so that it can be an index. It is
/// reused when its tenant is gone and the place is needed; [`TenantLease::generation`] tells the
/// tenants apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TenantId(pub u32);

impl TenantId {
    /// The shared tenant of all clients that are not told apart.
    pub const OTHERS: TenantId = TenantId(0);

    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// What can name a tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TenantKind {
    /// The authenticated user; `User:ANONYMOUS` is not one.
    User,
    ClientId,
    Address,
    /// [`TenantId::OTHERS`].
    Others,
}

impl TenantKind {
    /// The name used in `ottla.tenant.key`, labels and JSON.
    pub fn name(self) -> &'static str {
        match self {
            TenantKind::User => "user",
            TenantKind::ClientId => "client-id",
            TenantKind::Address => "address",
            TenantKind::Others => "others",
        }
    }

    /// Parses a word of `ottla.tenant.key`; `None` for any other.
    pub fn from_key(word: &str) -> Option<TenantKind> {
        [TenantKind::User, TenantKind::ClientId, TenantKind::Address]
            .into_iter()
            .find(|kind| kind.name() == word)
    }
}

/// A tenant's name. A user and a client id that are spelt alike are two tenants.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TenantName {
    pub kind: TenantKind,
    pub name: Arc<str>,
}

impl TenantName {
    fn new(kind: TenantKind, name: &str) -> TenantName {
        TenantName {
            kind,
            name: bounded(name).into(),
        }
    }

    fn others() -> TenantName {
        TenantName::new(TenantKind::Others, "others")
    }
}

fn bounded(name: &str) -> &str {
    let end = name
        .char_indices()
        .nth(NAME_CHARACTERS_MAX)
        .map(|(start, _)| start);
    &name[..end.unwrap_or(name.len())]
}

/// What is known of a client when its tenant is determined.
#[derive(Clone, Copy, Debug)]
pub struct TenantClaim<'a> {
    /// In Kafka's form, e.g. `User:alice`.
    pub principal: &'a str,
    /// `None` before the first request, and for a client without one.
    pub client_id: Option<&'a str>,
    pub address: IpAddr,
}

/// How tenants are told apart, and the limits on their number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantConfig {
    /// `ottla.tenant.key`: the first kind that a client has names its tenant.
    pub key: Arc<[TenantKind]>,
    pub limits: TenantLimits,
    /// `ottla.tenant.metrics.max`: how many tenants, the heaviest, have metrics of their own.
    pub metrics_max: usize,
}

impl Default for TenantConfig {
    fn default() -> TenantConfig {
        TenantConfig {
            key: Arc::new([TenantKind::User, TenantKind::ClientId, TenantKind::Address]),
            limits: TenantLimits::default(),
            metrics_max: 20,
        }
    }
}

/// Bounds on names, which any client can make up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TenantLimits {
    /// `ottla.tenant.known.max`: beyond it the tenant that has been without connections longest is
    /// forgotten.
    pub known_max: usize,
    /// `ottla.tenant.new.per.minute`: new names from one address (one /64 network for IPv6).
    pub new_per_minute: u32,
}

impl Default for TenantLimits {
    fn default() -> TenantLimits {
        TenantLimits {
            known_max: 10_000,
            new_per_minute: 100,
        }
    }
}

/// All tenants, shared by the event loops. Used when a connection is opened, tells its client id,
/// or is closed; never per request.
#[derive(Debug)]
pub struct Tenants {
    config: TenantConfig,
    registry: Mutex<Registry>,
}

impl Default for Tenants {
    fn default() -> Tenants {
        Tenants::new(TenantConfig::default())
    }
}

/// A snapshot of one tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownTenant {
    pub id: TenantId,
    pub generation: u32,
    pub name: TenantName,
    /// Open connections.
    pub connections: usize,
}

impl Tenants {
    pub fn new(config: TenantConfig) -> Tenants {
        let registry = Mutex::new(Registry::new(config.limits));
        Tenants { config, registry }
    }

    pub fn config(&self) -> &TenantConfig {
        &self.config
    }

    /// Returns the upper bound of ids: every id is smaller.
    pub fn id_limit(&self) -> usize {
        self.config.limits.known_max + 1
    }

    /// Returns the tenant of a connection; it holds as long as the lease.
    pub fn admit(self: &Arc<Self>, claim: &TenantClaim<'_>, now: Moment) -> TenantLease {
        let network = network(claim.address);
        let (id, generation) = match self.name_of(claim) {
            Some(name) => self.lock().admit(name, network, now),
            None => self.lock().admit_to_others(),
        };
        TenantLease {
            tenants: self.clone(),
            id,
            generation,
        }
    }

    /// Returns the name of the tenant that clients of this user and client id belong to, unless
    /// they share one; `None` where addresses name it.
    pub fn name_of_clients(&self, user: &str, client_id: &str) -> Option<TenantName> {
        let claim = TenantClaim {
            principal: user,
            client_id: Some(client_id),
            address: Ipv6Addr::UNSPECIFIED.into(),
        };
        self.name_of(&claim)
            .filter(|name| name.kind != TenantKind::Address)
    }

    fn name_of(&self, claim: &TenantClaim<'_>) -> Option<TenantName> {
        self.config.key.iter().find_map(|kind| match kind {
            TenantKind::User => {
                let user = claim.principal.strip_prefix("User:").unwrap_or(claim.principal);
                let is_named = !user.is_empty() && user != "ANONYMOUS";
                is_named.then(|| TenantName::new(*kind, user))
            }
            TenantKind::ClientId => {
                let client_id = claim.client_id.filter(|client_id| !client_id.is_empty())?;
                Some(TenantName::new(*kind, client_id))
            }
            TenantKind::Address => Some(TenantName::new(*kind, &claim.address.to_string())),
            TenantKind::Others => None,
        })
    }

    /// Returns all known tenants in order of their ids, the shared one first.
    pub fn known(&self) -> Vec<KnownTenant> {
        self.lock().known()
    }

    /// Returns a tenant's name; `None` when no tenant has this id.
    pub fn name(&self, id: TenantId) -> Option<TenantName> {
        self.lock().name(id)
    }

    fn lock(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Maps addresses that one host can choose freely to one: IPv6 to its /64 network.
pub fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(v6) => {
            let [a, b, c, d, ..] = v6.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
    }
}

/// A connection's place in its tenant; dropped with the connection.
#[derive(Debug)]
pub struct TenantLease {
    tenants: Arc<Tenants>,
    id: TenantId,
    generation: u32,
}

impl TenantLease {
    pub fn id(&self) -> TenantId {
        self.id
    }

    /// Differs between two tenants that have the same id one after the other.
    pub fn generation(&self) -> u32 {
        self.generation
    }
}

impl Drop for TenantLease {
    fn drop(&mut self) {
        self.tenants.lock().release(self.id);
    }
}

#[cfg(test)]
mod tests;
