//! Connection rate limit: connections that an address may open per second (KIP-612).

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::QuotaConfig;
use super::kind::CONNECTION_CREATION_RATE;
use super::limits::{ClientQuotas, IP};
use super::token_bucket::TokenBucket;
use crate::time::Moment;

/// At most this many addresses are told apart; the others share one address's limit.
const ADDRESSES_MAX: usize = 10_000;

/// The rates of all addresses that have a limit.
#[derive(Debug)]
pub struct ConnectionRates {
    window: Duration,
    is_dry_run: AtomicBool,
    throttled: AtomicU64,
    state: Mutex<RateState>,
}

#[derive(Debug, Default)]
struct RateState {
    /// Connections per second, of addresses with a quota; `default` is for all others.
    named: BTreeMap<IpAddr, f64>,
    default: Option<f64>,
    /// `None` stands for all addresses beyond `ADDRESSES_MAX`.
    buckets: BTreeMap<Option<IpAddr>, (f64, TokenBucket)>,
}

impl ConnectionRates {
    pub(super) fn new(config: QuotaConfig, quotas: &ClientQuotas) -> ConnectionRates {
        let rates = ConnectionRates {
            window: config.window,
            is_dry_run: AtomicBool::new(config.is_dry_run),
            throttled: AtomicU64::new(0),
            state: Mutex::default(),
        };
        rates.follow(quotas, config.is_dry_run);
        rates
    }

    pub(super) fn follow(&self, quotas: &ClientQuotas, is_dry_run: bool) {
        self.is_dry_run.store(is_dry_run, Ordering::Relaxed);
        let mut state = self.lock();
        (state.named, state.default) = (BTreeMap::new(), None);
        for (entity, values) in quotas {
            let rate = values
                .get(CONNECTION_CREATION_RATE)
                .copied()
                .filter(|rate| *rate > 0.0);
            let ([(entity_type, name)], Some(rate)) = (&entity[..], rate) else {
                continue;
            };
            match name.as_deref().map(str::parse) {
                _ if &**entity_type != IP => {}
                None => state.default = Some(rate),
                // Parsed, because an address has more than one spelling.
                Some(Ok(address)) => drop(state.named.insert(address, rate)),
                // A host name from a directory of Apache Kafka, which resolves names; here it is
                // ignored.
                Some(Err(_)) => {}
            }
        }
    }

    /// Decides whether `address` may open a connection now.
    ///
    /// - Errors: the time until it may, at most one window. The connection is not counted.
    pub fn admit(&self, address: IpAddr, now: Moment) -> Result<(), Duration> {
        let mut state = self.lock();
        let Some(rate) = state.named.get(&address).copied().or(state.default) else {
            return Ok(());
        };
        let has_room = state.buckets.len() < ADDRESSES_MAX || state.buckets.contains_key(&Some(address));
        let key = has_room.then_some(address);
        // With less than one connection per window none would ever be admitted.
        let burst = self.window.max(Duration::from_secs_f64((1.0 / rate).min(1e6)));
        let fresh = || (rate, TokenBucket::new(rate, burst, now));
        let (known_rate, bucket) = state.buckets.entry(key).or_insert_with(fresh);
        if *known_rate != rate {
            (*known_rate, *bucket) = fresh();
        }
        let Err(lacking_micros) = bucket.try_take(1.0, now) else {
            return Ok(());
        };
        self.throttled.fetch_add(1, Ordering::Relaxed);
        if self.is_dry_run.load(Ordering::Relaxed) {
            Ok(())
        } else {
            Err(Duration::from_micros(lacking_micros).min(self.window))
        }
    }

    /// Returns the number of connections above the rate; in a dry run they were served.
    pub fn throttled(&self) -> u64 {
        self.throttled.load(Ordering::Relaxed)
    }

    pub(super) fn forget(&self, now: Moment) {
        self.lock().buckets.retain(|_, (_, bucket)| !bucket.is_full(now));
    }

    fn lock(&self) -> MutexGuard<'_, RateState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
