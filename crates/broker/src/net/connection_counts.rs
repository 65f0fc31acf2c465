//! How many connections are open, and how many may be: in total, of one listener, per address, and
//! waiting to be opened; and how fast they may be made.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use ottla_core::config::ConnectionLimit;
use ottla_core::connection_limits::LiveConnectionLimits;
use ottla_core::quota::Quotas;
use ottla_core::quota::token_bucket::TokenBucket;
use ottla_core::tenant::network;
use ottla_core::time::{Clock, Moment};
use ottla_log::disk::os::{ConnectionDescriptor, Descriptors};

use super::authentication_counts::{AuthenticationCounts, End, Means};

/// Accepted connections that wait to be opened in their tenant's turn. Further ones wait in the
/// kernel's backlog, which is bounded too but is one FIFO queue; here an address that opens
/// hundreds of connections at once delays only itself.
const UNOPENED_MAX: usize = 1_024;

/// Of the connections that may be open, one in this many may be of clients that are not
/// authenticated yet: a flood without passwords cannot keep out clients that have one.
const UNAUTHENTICATED_DIVISOR: usize = 10;

/// How many of them there may be even where few connections are allowed.
const UNAUTHENTICATED_MIN: usize = 8;

/// A listener that waits for room looks again after this time, because the limits may have been
/// raised.
const LOOK_PAUSE: Duration = Duration::from_secs(1);

/// Connections that were not made in this time may be made at once
/// (`max.connection.creation.rate`).
const CREATION_BURST: Duration = Duration::from_secs(1);

/// Counts open connections; shared by all listeners.
#[derive(Debug)]
pub struct ConnectionCounts {
    limits: Arc<LiveConnectionLimits>,
    descriptors: Arc<Descriptors>,
    clock: Arc<dyn Clock>,
    /// `connection_creation_rate`
    quotas: Option<Arc<Quotas>>,
    counts: Mutex<Counts>,
    freed: Condvar,
    accepted: AtomicU64,
    refused: AtomicU64,
    next_id: AtomicU64,
}

/// Connections of one listener.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListenerConnections {
    pub open: usize,
    /// Since the start.
    pub accepted: u64,
}

impl ListenerConnections {
    /// How many have ended since the start.
    pub fn closed(&self) -> u64 {
        self.accepted - self.open as u64
    }
}

#[derive(Debug, Default)]
struct Counts {
    open: usize,
    by_listener: BTreeMap<Arc<str>, ListenerConnections>,
    created: Created,
    created_by_listener: BTreeMap<Arc<str>, Created>,
    /// Accepted, but not yet opened by an event loop.
    unopened: usize,
    by_address: HashMap<IpAddr, usize>,
    /// Of clients that must be authenticated and are not.
    unauthenticated: usize,
    /// By address; by /64 network for IPv6, whose host can choose any address of it.
    unauthenticated_by_network: HashMap<IpAddr, usize>,
    authentications: AuthenticationCounts,
}

/// The connections that were made, measured by a rate.
#[derive(Debug, Default)]
struct Created(Option<(u32, TokenBucket)>);

impl Created {
    /// How long no further connection may be made; `None`: one may be made now.
    fn wait(&mut self, per_second: u32, now: Moment) -> Option<Duration> {
        match per_second {
            u32::MAX => {
                self.0 = None;
                return None;
            }
            0 => return Some(LOOK_PAUSE),
            _ => {}
        }
        let fresh = || TokenBucket::new(per_second.into(), CREATION_BURST, now);
        let (rate, bucket) = self.0.get_or_insert_with(|| (per_second, fresh()));
        if *rate != per_second {
            (*rate, *bucket) = (per_second, fresh());
        }
        Some(Duration::from_micros(bucket.debt_micros(now))).filter(|wait| !wait.is_zero())
    }

    fn count(&self, now: Moment) {
        if let Some((_, bucket)) = &self.0 {
            bucket.take(1.0, now);
        }
    }
}

impl Counts {
    /// How long the listener can make no further connection, or until it is to look again; `None`:
    /// it can now.
    fn wait(
        &mut self,
        listener: &str,
        all: ConnectionLimit,
        own: ConnectionLimit,
        now: Moment,
    ) -> Option<Duration> {
        let open = self.by_listener.get(listener).map_or(0, |listener| listener.open);
        if self.open >= all.open_max || open >= own.open_max || self.unopened >= UNOPENED_MAX {
            return Some(LOOK_PAUSE);
        }
        let of_listener = self.created_by_listener.get_mut(listener);
        let own_wait = of_listener.and_then(|created| created.wait(own.per_second, now));
        self.created.wait(all.per_second, now).max(own_wait)
    }

    /// Whether one more client of a network may be on its way through authentication. From half of
    /// the limit on, a network gets no more than its share of that half.
    fn may_authenticate(&self, address: IpAddr, unauthenticated_max: usize) -> bool {
        let half = unauthenticated_max / 2;
        if self.unauthenticated < half {
            return true;
        }
        let own = self.unauthenticated_by_network.get(&network(address)).copied();
        let networks = self.unauthenticated_by_network.len() + usize::from(own.is_none());
        let share = (half / networks).max(1);
        self.unauthenticated < unauthenticated_max && own.unwrap_or(0) < share
    }

    /// Counts a connection that was made, for the rates that limit them.
    fn count_created(&mut self, listener: &Arc<str>, now: Moment) {
        self.created.count(now);
        self.created_by_listener
            .entry(listener.clone())
            .or_default()
            .count(now);
    }

    fn leave_authentication(&mut self, address: IpAddr) {
        self.unauthenticated -= 1;
        decrement(&mut self.unauthenticated_by_network, network(address));
    }

    /// Counts one less waiting to be opened; returns whether that frees the place that accepting
    /// waits for.
    fn leave_queue(&mut self) -> bool {
        self.unopened -= 1;
        self.unopened == UNOPENED_MAX - 1
    }
}

/// The permission for one open connection; dropped with the connection.
#[derive(Debug)]
pub struct ConnectionPermit {
    counts: Arc<ConnectionCounts>,
    listener: Arc<str>,
    address: IpAddr,
    is_opened: bool,
    must_authenticate: bool,
    _descriptor: ConnectionDescriptor,
}

/// Why an address gets no further connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// `max.connections.per.ip`
    PerAddress,
    /// Too many clients are not authenticated yet.
    Unauthenticated,
}

impl ConnectionPermit {
    /// Notes that the connection has been opened; false when it already was.
    pub fn opened(&mut self) -> bool {
        let is_first = !std::mem::replace(&mut self.is_opened, true);
        if is_first {
            let is_room_new = self.counts.lock().leave_queue();
            if is_room_new {
                self.counts.freed.notify_all();
            }
        }
        is_first
    }
}

impl ConnectionPermit {
    /// Notes that the client is authenticated, or is so again.
    pub fn authenticated(&mut self, means: Means) {
        let is_first = std::mem::replace(&mut self.must_authenticate, false);
        let mut counts = self.counts.lock();
        if is_first {
            counts.leave_authentication(self.address);
        }
        let end = if is_first {
            End::Successful
        } else {
            End::SuccessfulAgain
        };
        counts.authentications.add(&self.listener, means, end);
    }

    /// Notes that the client could not be authenticated, or not again.
    pub fn not_authenticated(&self, means: Means) {
        let end = if self.must_authenticate {
            End::Failed
        } else {
            End::FailedAgain
        };
        self.counts.lock().authentications.add(&self.listener, means, end);
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut counts = self.counts.lock();
        let limits = self.counts.limits.now();
        let mut was_full = counts.open >= limits.all.open_max;
        counts.open -= 1;
        if let Some(listener) = counts.by_listener.get_mut(&self.listener) {
            was_full |= listener.open >= limits.of_listener(&self.listener).open_max;
            listener.open -= 1;
        }
        let is_room_new = !self.is_opened && counts.leave_queue();
        decrement(&mut counts.by_address, self.address);
        if self.must_authenticate {
            counts.leave_authentication(self.address);
        }
        if was_full || is_room_new {
            self.counts.freed.notify_all();
        }
    }
}

impl ConnectionCounts {
    pub fn new(
        limits: Arc<LiveConnectionLimits>,
        descriptors: Arc<Descriptors>,
        clock: Arc<dyn Clock>,
    ) -> ConnectionCounts {
        ConnectionCounts {
            limits,
            descriptors,
            clock,
            quotas: None,
            counts: Mutex::default(),
            freed: Condvar::new(),
            accepted: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            next_id: AtomicU64::new(0),
        }
    }

    /// Adds the quotas on connection creation per address.
    pub fn with_quotas(self, quotas: Arc<Quotas>) -> ConnectionCounts {
        ConnectionCounts {
            quotas: Some(quotas),
            ..self
        }
    }

    /// Until when `address` has to wait before it may open one more connection; `None`: not at all.
    pub fn throttled_until(&self, address: IpAddr) -> Option<Moment> {
        let now = self.now();
        let wait = self.quotas.as_ref()?.connections.admit(address, now).err()?;
        Some(now.after(wait))
    }

    pub fn now(&self) -> Moment {
        self.clock.moment()
    }

    pub fn open(&self) -> usize {
        self.lock().open
    }

    /// The listeners that have had connections.
    pub fn by_listener(&self) -> BTreeMap<Arc<str>, ListenerConnections> {
        self.lock().by_listener.clone()
    }

    /// The authentications that have ended.
    pub fn authentications(&self) -> AuthenticationCounts {
        self.lock().authentications.clone()
    }

    /// The number of accepted connections that wait to be opened.
    pub fn unopened(&self) -> usize {
        self.lock().unopened
    }

    pub fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }

    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    pub fn descriptors(&self) -> &Descriptors {
        &self.descriptors
    }

    /// Reserves a descriptor for one more connection; `None` when all descriptors for connections
    /// are in use.
    pub fn descriptor(&self) -> Option<ConnectionDescriptor> {
        let admitted = self.descriptors.admit();
        if admitted.is_none() {
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
        admitted
    }

    /// - `must_authenticate`: the client has to shake hands or to authenticate before it is served.
    pub fn permit(
        self: &Arc<Self>,
        listener: &Arc<str>,
        address: IpAddr,
        descriptor: ConnectionDescriptor,
        must_authenticate: bool,
    ) -> Result<ConnectionPermit, Refused> {
        let mut counts = self.lock();
        if must_authenticate && !counts.may_authenticate(address, self.unauthenticated_max()) {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return Err(Refused::Unauthenticated);
        }
        let limit = self.limits.now().of_address(address);
        let count = counts.by_address.entry(address).or_default();
        if *count >= limit {
            if *count == 0 {
                counts.by_address.remove(&address);
            }
            self.refused.fetch_add(1, Ordering::Relaxed);
            return Err(Refused::PerAddress);
        }
        *count += 1;
        counts.open += 1;
        let of_listener = counts.by_listener.entry(listener.clone()).or_default();
        of_listener.open += 1;
        of_listener.accepted += 1;
        counts.unopened += 1;
        counts.count_created(listener, self.now());
        if must_authenticate {
            counts.unauthenticated += 1;
            let of_network = counts.unauthenticated_by_network.entry(network(address));
            *of_network.or_default() += 1;
        }
        self.accepted.fetch_add(1, Ordering::Relaxed);
        Ok(ConnectionPermit {
            counts: self.clone(),
            listener: listener.clone(),
            address,
            is_opened: false,
            must_authenticate,
            _descriptor: descriptor,
        })
    }

    /// The number of clients that must be authenticated and are not.
    pub fn unauthenticated(&self) -> usize {
        self.lock().unauthenticated
    }

    fn unauthenticated_max(&self) -> usize {
        let all = self
            .limits
            .now()
            .all
            .open_max
            .min(self.descriptors.connections_max());
        (all / UNAUTHENTICATED_DIVISOR).max(UNAUTHENTICATED_MIN)
    }

    /// Waits until a listener may make one more connection, or accepting has ended. Like Apache
    /// Kafka, Ottla does not accept in order to close.
    pub fn wait_for_room(&self, listener: &str, stopped: &AtomicBool) {
        let mut counts = self.lock();
        while !stopped.load(Ordering::SeqCst) {
            let Some(wait) = self.wait_in(&mut counts, listener) else {
                return;
            };
            let woken = self.freed.wait_timeout(counts, wait);
            counts = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Whether a listener may make one more connection.
    pub fn has_room(&self, listener: &str) -> bool {
        self.wait_in(&mut self.lock(), listener).is_none()
    }

    /// Wakes a thread that waits for room, so that it sees that accepting has ended.
    pub fn wake_accepting(&self) {
        let _counts = self.lock();
        self.freed.notify_all();
    }

    /// Returns the id of the next connection.
    pub fn next_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    fn wait_in(&self, counts: &mut Counts, listener: &str) -> Option<Duration> {
        let limits = self.limits.now();
        counts.wait(listener, limits.all, limits.of_listener(listener), self.now())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes the entry with its last count, so that the map has only addresses with connections.
fn decrement(counts: &mut HashMap<IpAddr, usize>, address: IpAddr) {
    if let Some(count) = counts.get_mut(&address) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SystemClock;
    use ottla_core::config::{ConnectionLimits, SaslMechanism};
    use ottla_core::time::Timestamp;
    use std::net::{Ipv4Addr, Ipv6Addr};

    fn counts_with(limits: ConnectionLimits, clock: Arc<dyn Clock>) -> Arc<ConnectionCounts> {
        let limits = Arc::new(LiveConnectionLimits::new(limits));
        let descriptors = Descriptors::with_limit(10_000);
        Arc::new(ConnectionCounts::new(limits, descriptors, clock))
    }

    fn counts(open_max: usize, per_address: usize) -> Arc<ConnectionCounts> {
        let mut limits = ConnectionLimits::none();
        (limits.all.open_max, limits.per_address) = (open_max, per_address);
        counts_with(limits, Arc::new(SystemClock::default()))
    }

    fn connect(counts: &Arc<ConnectionCounts>, listener: &str) -> ConnectionPermit {
        let descriptor = counts.descriptor().unwrap();
        let mut permit = counts
            .permit(&listener.into(), Ipv4Addr::LOCALHOST.into(), descriptor, false)
            .unwrap();
        permit.opened();
        permit
    }

    /// Stands still until a test moves it.
    #[derive(Debug)]
    struct HandClock(AtomicU64);

    impl Clock for HandClock {
        fn moment(&self) -> Moment {
            Moment::from_micros(self.0.load(Ordering::Relaxed))
        }

        fn timestamp(&self) -> Timestamp {
            panic!("the network layer does not ask for the time of day")
        }
    }

    #[test]
    fn a_listener_has_limits_of_its_own_beside_those_of_all() {
        let mut limits = ConnectionLimits::none();
        limits.all.open_max = 4;
        let own = ConnectionLimit {
            open_max: 2,
            ..ConnectionLimit::NONE
        };
        limits.by_listener.insert("INSIDE".into(), own);
        let counts = counts_with(limits, Arc::new(SystemClock::default()));
        let mut inside = vec![connect(&counts, "INSIDE"), connect(&counts, "INSIDE")];
        assert!(!counts.has_room("INSIDE") && counts.has_room("OUTSIDE"));
        let outside = vec![connect(&counts, "OUTSIDE"), connect(&counts, "OUTSIDE")];
        assert!(!counts.has_room("OUTSIDE"));
        drop(outside);
        assert!(!counts.has_room("INSIDE"));
        std::thread::scope(|scope| {
            let waiting = counts.clone();
            scope.spawn(move || waiting.wait_for_room("INSIDE", &AtomicBool::new(false)));
            inside.pop();
        });
        assert!(counts.has_room("INSIDE"));
    }

    #[test]
    fn no_more_connections_are_made_per_second_than_the_rates_allow() {
        let mut limits = ConnectionLimits::none();
        limits.all.per_second = 100;
        let own = ConnectionLimit {
            per_second: 10,
            ..ConnectionLimit::NONE
        };
        limits.by_listener.insert("INSIDE".into(), own);
        let clock = Arc::new(HandClock(AtomicU64::new(3_600_000_000)));
        let counts = counts_with(limits, clock.clone());
        let made = |listener: &str, seconds: u64| {
            let mut made = 0;
            for _ in 0..seconds * 1_000 {
                while counts.has_room(listener) {
                    drop(connect(&counts, listener));
                    made += 1;
                }
                clock.0.fetch_add(1_000, Ordering::Relaxed);
            }
            made
        };
        // One second's worth may be made at once; the first connection begins the count.
        assert_eq!(made("INSIDE", 10), 10 * 10 + 10 + 1);
        assert_eq!(made("OUTSIDE", 10), 100 * 10 + 100);
    }

    #[test]
    fn accepting_is_woken_when_the_place_it_waits_for_is_freed() {
        let counts = counts(usize::MAX, usize::MAX);
        let permit = || {
            let descriptor = counts.descriptor().unwrap();
            counts
                .permit(&"PLAIN".into(), Ipv4Addr::LOCALHOST.into(), descriptor, false)
                .unwrap()
        };
        let mut waiting: Vec<ConnectionPermit> = (0..UNOPENED_MAX).map(|_| permit()).collect();
        assert!(!counts.has_room("PLAIN"));
        assert!(waiting[0].opened() && !waiting[0].opened());
        assert_eq!(counts.unopened(), UNOPENED_MAX - 1);
        assert!(counts.has_room("PLAIN"));
        waiting.push(permit());
        assert!(!counts.has_room("PLAIN"));
        let opener = counts.clone();
        std::thread::scope(|scope| {
            scope.spawn(move || opener.wait_for_room("PLAIN", &AtomicBool::new(false)));
            // The connection is closed before it was opened.
            waiting.pop();
        });
        drop(waiting);
        assert_eq!((counts.open(), counts.unopened()), (0, 0));
    }

    #[test]
    fn clients_that_are_not_authenticated_have_a_tenth_and_an_address_its_share_of_half_of_it() {
        let counts = counts(400, usize::MAX);
        let permit = |host: u8, must_authenticate: bool| {
            let descriptor = counts.descriptor().unwrap();
            counts.permit(
                &"SASL".into(),
                Ipv4Addr::new(10, 0, 0, host).into(),
                descriptor,
                must_authenticate,
            )
        };
        let flood =
            |host: u8| -> Vec<ConnectionPermit> { (0..100).map_while(|_| permit(host, true).ok()).collect() };
        let mut first = flood(1);
        assert_eq!(first.len(), 20);
        assert_eq!(permit(1, true).err(), Some(Refused::Unauthenticated));
        // Others get in meanwhile, and open listeners do not ask.
        let (second, third) = (flood(2), flood(3));
        assert_eq!((second.len(), third.len()), (10, 6));
        let open: Vec<_> = (0..100).map(|_| permit(1, false).unwrap()).collect();
        let many: Vec<_> = (4..100).map_while(|host| permit(host, true).ok()).collect();
        assert_eq!((many.len(), counts.unauthenticated()), (4, 40));
        // The tenth is for those that are not authenticated, not for all.
        for _ in 0..2 {
            for permit in &mut first {
                permit.authenticated(Means::Sasl(SaslMechanism::Plain));
            }
        }
        assert_eq!((counts.unauthenticated(), counts.open()), (20, 140));
        let of_listener = counts.by_listener()["SASL"];
        assert_eq!((of_listener.open, of_listener.closed()), (140, 0));
        let again = permit(1, true);
        assert!(again.is_ok());
        drop((first, second, third, open, many, again));
        assert_eq!((counts.unauthenticated(), counts.open()), (0, 0));
        assert!(counts.lock().unauthenticated_by_network.is_empty());
        let of_listener = counts.by_listener()["SASL"];
        assert_eq!((of_listener.open, of_listener.closed()), (0, 141));
    }

    #[test]
    fn addresses_of_one_ipv6_network_share_one_part_of_authentication() {
        let counts = counts(400, 1);
        // As many addresses as are asked for, all of one /64 network.
        let flood = |network: u16| -> Vec<ConnectionPermit> {
            let address = |host| Ipv6Addr::new(0x2001, 0xdb8, 0, network, 0, 0, 0, host);
            (0..100)
                .map_while(|host| {
                    let descriptor = counts.descriptor().unwrap();
                    let permit = counts.permit(&"SASL".into(), address(host).into(), descriptor, true);
                    permit.ok()
                })
                .collect()
        };
        let (first, again, second) = (flood(1), flood(1), flood(2));
        assert_eq!((first.len(), again.len(), second.len()), (20, 0, 10));
        drop((first, second));
        assert_eq!((counts.unauthenticated(), flood(1).len()), (0, 20));
    }
}
