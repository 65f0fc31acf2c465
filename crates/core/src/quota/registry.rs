//! All known users and client ids, and the buckets they share.
//!
//! Names come from the network, so both maps are bounded. When there is no room, or the name is too
//! long, a client shares one entry with all others of that kind; a quota set for that very name
//! still applies.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::QuotaConfig;
use super::client::ClientQuota;
use super::connection_rate::ConnectionRates;
use super::kind::{KIND_COUNT, QuotaKind};
use super::limits::{ClientQuotas, Limits, SetFor, Sharers, limits_of};
use super::token_bucket::TokenBucket;
use super::usage::{Rates, Sums, Usage};
use crate::time::{Clock, Moment};

/// At most this many pairs of user and client id are told apart.
pub const CLIENTS_MAX: usize = 10_000;

/// The name under which the others are shown and share their limits.
pub const OTHERS: &str = "other";

/// Longer names are not kept.
const NAME_BYTES_MAX: usize = 255;

/// Kafka also drops its sensors after an hour.
const IDLE_MICROS: u64 = 3_600_000_000;

/// When there is no room, clients that have been away for this long are evicted; checked once per
/// `EVICTION_INTERVAL_MICROS` at most.
const AWAY_MICROS: u64 = 60_000_000;
const EVICTION_INTERVAL_MICROS: u64 = 1_000_000;

/// The quotas, their use, and the clients over them.
#[derive(Debug)]
pub struct Quotas {
    config: QuotaConfig,
    is_dry_run: AtomicBool,
    /// A client without a tenant of its own has made up too many names, so its name is not kept
    /// here either.
    is_crowd_shared: bool,
    clock: Option<Arc<dyn Clock>>,
    /// Incremented by every change of the quotas, so that a connection can check cheaply whether
    /// its own are current.
    version: AtomicU64,
    state: Mutex<RegistryState>,
    pub connections: ConnectionRates,
}

#[derive(Debug, Default)]
struct RegistryState {
    quotas: Arc<ClientQuotas>,
    /// By user, then by client id.
    clients: BTreeMap<Arc<str>, BTreeMap<Arc<str>, Arc<ClientQuota>>>,
    client_count: usize,
    /// The shared entry of clients without one of their own.
    others: Option<Arc<ClientQuota>>,
    buckets: BTreeMap<(QuotaKind, Sharers), SharedBucket>,
    next_eviction: Moment,
}

#[derive(Debug)]
struct SharedBucket {
    per_second: f64,
    bucket: Arc<TokenBucket>,
}

/// The report on one user and client id.
#[derive(Clone, Debug)]
pub struct ClientReport {
    pub user: Arc<str>,
    pub client_id: Arc<str>,
    /// In the unit of each key; `None` is without limit.
    pub limits: [Option<f64>; KIND_COUNT],
    /// The entity that each limit was set for.
    pub set_for: [Option<SetFor>; KIND_COUNT],
    pub sums: Sums,
    pub rates: Rates,
    /// At least one connection holds it.
    pub is_connected: bool,
}

impl Quotas {
    /// Creates the registry.
    ///
    /// - `quotas`: of the first image; later ones arrive through [`Quotas::follow`].
    /// - `is_crowd_shared`: tenants are told apart by client id, so a client without a tenant of
    ///   its own has made up too many names.
    pub fn new(
        config: QuotaConfig,
        quotas: Arc<ClientQuotas>,
        clock: Arc<dyn Clock>,
        is_crowd_shared: bool,
    ) -> Quotas {
        Quotas {
            connections: ConnectionRates::new(config, &quotas),
            config,
            is_dry_run: AtomicBool::new(config.is_dry_run),
            is_crowd_shared,
            clock: Some(clock),
            version: AtomicU64::new(0),
            state: Mutex::new(RegistryState {
                quotas,
                ..RegistryState::default()
            }),
        }
    }

    /// Returns quotas without limits, for use without a broker.
    pub fn none() -> Quotas {
        Quotas {
            connections: ConnectionRates::new(QuotaConfig::default(), &ClientQuotas::new()),
            config: QuotaConfig::default(),
            is_dry_run: AtomicBool::new(false),
            is_crowd_shared: false,
            clock: None,
            version: AtomicU64::new(0),
            state: Mutex::default(),
        }
    }

    pub fn is_dry_run(&self) -> bool {
        self.is_dry_run.load(Ordering::Relaxed)
    }

    /// Replaces the quotas. Buckets of unchanged limits keep their contents.
    pub fn follow(&self, quotas: &Arc<ClientQuotas>, is_dry_run: bool) {
        let mut state = self.lock();
        let is_other_run = self.is_dry_run.swap(is_dry_run, Ordering::Relaxed) != is_dry_run;
        let is_same = Arc::ptr_eq(&state.quotas, quotas) || state.quotas == *quotas;
        if is_same && !is_other_run {
            return;
        }
        state.quotas = quotas.clone();
        self.version.fetch_add(1, Ordering::Relaxed);
        drop(state);
        self.connections.follow(quotas, is_dry_run);
    }

    /// Returns the quotas of a user and client id, unless `held` are these.
    ///
    /// - `is_other`: the client belongs to the tenants that are not told apart.
    pub fn newer(
        &self,
        held: Option<&Arc<ClientQuota>>,
        principal: &str,
        is_other: bool,
        client_id: Option<&str>,
    ) -> Option<Arc<ClientQuota>> {
        let client_id = client_id.unwrap_or_default();
        let is_crowd = self.is_crowd_shared && is_other && !client_id.is_empty();
        let version = self.version.load(Ordering::Relaxed);
        if held.is_some_and(|held| held.is_current(client_id, version, is_crowd)) {
            return None;
        }
        let user = user_of(principal);
        Some(if is_crowd {
            self.one_of_many(user, client_id)
        } else {
            self.client(user, client_id)
        })
    }

    /// Whether the quotas have not changed since `held` was made.
    pub fn is_newest(&self, held: &ClientQuota) -> bool {
        held.version == self.version.load(Ordering::Relaxed)
    }

    /// Returns the quotas of a user and client id.
    #[cold]
    pub fn client(&self, user: &str, client_id: &str) -> Arc<ClientQuota> {
        let now = self.now();
        let mut state = self.lock();
        let version = self.version.load(Ordering::Relaxed);
        let known = state
            .clients
            .get(user)
            .and_then(|clients| clients.get(client_id))
            .cloned();
        if let Some(known) = known.as_ref().filter(|known| known.version == version) {
            return known.clone();
        }
        let (user, client_id): (Arc<str>, Arc<str>) = (user.into(), client_id.into());
        let has_room = known.is_some() || self.has_room(&mut state, now);
        if !has_room || user.len() > NAME_BYTES_MAX || client_id.len() > NAME_BYTES_MAX {
            return Arc::new(self.other(&mut state, (&user, &client_id), now));
        }
        let limits = limits_of(&state.quotas, (&user, &client_id), (&user, &client_id));
        let usage = known.map_or_else(Arc::default, |known| known.usage.clone());
        let client = Arc::new(self.make(&mut state, (&user, &client_id), limits, usage, now));
        let clients = state.clients.entry(user).or_default();
        let is_new = clients.insert(client_id, client.clone()).is_none();
        state.client_count += usize::from(is_new);
        client
    }

    /// Returns the quotas of a client whose name is not kept: default limits are shared with all
    /// such clients.
    #[cold]
    pub fn one_of_many(&self, user: &str, client_id: &str) -> Arc<ClientQuota> {
        let names = (&user.into(), &client_id.into());
        let mut state = self.lock();
        Arc::new(ClientQuota {
            is_crowd: true,
            ..self.other(&mut state, names, self.now())
        })
    }

    /// Reports all known clients: those with limits, connected or not, and those with use.
    pub fn report(&self) -> Vec<ClientReport> {
        let quotas = self.lock().quotas.clone();
        self.all().iter().map(|client| report(client, &quotas)).collect()
    }

    /// Returns the limits of a user and client id, without adding them to the registry.
    pub fn limits(&self, user: &str, client_id: &str) -> [Option<f64>; KIND_COUNT] {
        let quotas = self.lock().quotas.clone();
        let (user, client_id) = (user.into(), client_id.into());
        values(&limits_of(&quotas, (&user, &client_id), (&user, &client_id)))
    }

    /// Takes samples and drops clients that have long been away; call about once a second.
    pub fn maintain(&self) {
        let now = self.now();
        for client in self.all() {
            client.usage.sample(now);
        }
        let mut state = self.lock();
        state.forget_clients(now, IDLE_MICROS);
        // A full bucket without other holders can be dropped: a new one is the same.
        state
            .buckets
            .retain(|_, shared| Arc::strong_count(&shared.bucket) > 1 || !shared.bucket.is_full(now));
        drop(state);
        self.connections.forget(now);
    }

    fn all(&self) -> Vec<Arc<ClientQuota>> {
        let state = self.lock();
        let known = state.clients.values().flat_map(BTreeMap::values);
        known.chain(&state.others).cloned().collect()
    }

    fn has_room(&self, state: &mut RegistryState, now: Moment) -> bool {
        if state.client_count < CLIENTS_MAX {
            return true;
        }
        if now >= state.next_eviction {
            state.next_eviction = Moment::from_micros(now.micros().saturating_add(EVICTION_INTERVAL_MICROS));
            state.forget_clients(now, AWAY_MICROS);
        }
        state.client_count < CLIENTS_MAX
    }

    /// Makes a handle of the shared entry; it has the client's names, so that its connection
    /// recognises it.
    fn other(&self, state: &mut RegistryState, names: (&Arc<str>, &Arc<str>), now: Moment) -> ClientQuota {
        let others: Arc<str> = OTHERS.into();
        if state.others.is_none() {
            let common = limits_of(&state.quotas, (&others, &others), (&others, &others));
            let common = self.make(state, (&others, &others), common, Arc::default(), now);
            state.others = Some(Arc::new(common));
        }
        let usage = state.others.as_ref().expect("made above").usage.clone();
        let limits = limits_of(&state.quotas, names, (&others, &others));
        self.make(state, names, limits, usage, now)
    }

    fn make(
        &self,
        state: &mut RegistryState,
        (user, client_id): (&Arc<str>, &Arc<str>),
        limits: Limits,
        usage: Arc<Usage>,
        now: Moment,
    ) -> ClientQuota {
        let buckets = QuotaKind::ALL.map(|kind| {
            let limit = limits[kind as usize].as_ref()?;
            let burst = match kind {
                QuotaKind::ControllerMutation => self.config.controller_window,
                QuotaKind::Produce | QuotaKind::Fetch | QuotaKind::Request => self.config.window,
            };
            let fresh = || SharedBucket {
                per_second: limit.per_second,
                bucket: Arc::new(TokenBucket::new(limit.per_second, burst, now)),
            };
            let key = (kind, limit.sharers.clone());
            let shared = state.buckets.entry(key).or_insert_with(fresh);
            // A debt at another rate is void: a client with a higher limit need not pay it.
            if shared.per_second != limit.per_second {
                *shared = fresh();
            }
            Some(shared.bucket.clone())
        });
        ClientQuota {
            user: user.clone(),
            client_id: client_id.clone(),
            version: self.version.load(Ordering::Relaxed),
            limits,
            buckets,
            usage,
            window: self.config.window,
            is_dry_run: self.is_dry_run(),
            is_crowd: false,
        }
    }

    fn now(&self) -> Moment {
        self.clock
            .as_ref()
            .map_or(Moment::from_micros(0), |clock| clock.moment())
    }

    fn lock(&self) -> MutexGuard<'_, RegistryState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RegistryState {
    /// Drops clients without a connection that have used nothing for `idle_micros`.
    fn forget_clients(&mut self, now: Moment, idle_micros: u64) {
        for clients in self.clients.values_mut() {
            clients.retain(|_, client| {
                Arc::strong_count(client) > 1 || now.micros_since(client.usage.idle_since()) < idle_micros
            });
        }
        self.clients.retain(|_, clients| !clients.is_empty());
        self.client_count = self.clients.values().map(BTreeMap::len).sum();
    }
}

/// Returns the user of a principal: `alice` for `User:alice`.
pub fn user_of(principal: &str) -> &str {
    principal.strip_prefix("User:").unwrap_or(principal)
}

fn values(limits: &Limits) -> [Option<f64>; KIND_COUNT] {
    QuotaKind::ALL.map(|kind| limits[kind as usize].as_ref().map(|limit| limit.per_second))
}

fn report(client: &Arc<ClientQuota>, quotas: &ClientQuotas) -> ClientReport {
    // Looked up again, because the stored limits date from its last connection.
    let names = (&client.user, &client.client_id);
    let limits = limits_of(quotas, names, names);
    ClientReport {
        user: client.user.clone(),
        client_id: client.client_id.clone(),
        limits: values(&limits),
        set_for: limits.map(|limit| limit.map(|limit| limit.set_for)),
        sums: client.usage.sums(),
        rates: client.usage.rates(),
        // One reference is the registry's, one the list's that this is made from.
        is_connected: Arc::strong_count(client) > 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quota::limits::CLIENT_ID;

    #[derive(Debug)]
    struct At(AtomicU64);

    impl Clock for At {
        fn moment(&self) -> Moment {
            Moment::from_micros(self.0.load(Ordering::Relaxed))
        }

        fn timestamp(&self) -> crate::time::Timestamp {
            panic!("quotas do not ask the wall clock")
        }
    }

    #[test]
    fn the_buckets_of_forgotten_clients_are_given_back() {
        let limit = BTreeMap::from([("producer_byte_rate".into(), 1.0)]);
        let limits = ClientQuotas::from([(vec![(CLIENT_ID.into(), None)], limit)]);
        let clock = Arc::new(At(AtomicU64::new(0)));
        let quotas = Quotas::new(QuotaConfig::default(), Arc::new(limits), clock.clone(), true);
        let buckets = || quotas.lock().buckets.len();
        let held = quotas.client("u", "a");
        quotas.client("u", "b");
        quotas.maintain();
        assert_eq!(buckets(), 2);
        clock.0.store(2 * IDLE_MICROS, Ordering::Relaxed);
        quotas.maintain();
        assert_eq!(buckets(), 1);
        drop(held);
        quotas.maintain();
        assert_eq!(buckets(), 0);
    }
}
