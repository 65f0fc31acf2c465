//! How many connections are open, and how many may be: in total, per address, and waiting to be
//! opened.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use ottla_core::quota::Quotas;
use ottla_core::time::{Clock, Moment};
use ottla_log::disk::os::{ConnectionDescriptor, Descriptors};

/// Accepted connections that wait to be opened in their tenant's turn. Further ones wait in the
/// kernel's backlog, which is bounded too but is one FIFO queue; here an address that opens
/// hundreds of connections at once delays only itself.
const UNOPENED_MAX: usize = 1_024;

/// How many connections may be open in total and per address (`max.connections`,
/// `max.connections.per.ip`).
#[derive(Debug)]
pub struct ConnectionLimits {
    pub connections_max: usize,
    pub connections_max_per_ip: usize,
    /// `max.connections.per.ip.overrides`.
    pub overrides: HashMap<IpAddr, usize>,
}

/// Counts open connections; shared by all listeners.
#[derive(Debug)]
pub struct ConnectionCounts {
    limits: ConnectionLimits,
    descriptors: Arc<Descriptors>,
    /// `connection_creation_rate`
    quotas: Option<(Arc<Quotas>, Arc<dyn Clock>)>,
    counts: Mutex<Counts>,
    freed: Condvar,
    accepted: AtomicU64,
    refused: AtomicU64,
    next_id: AtomicU64,
}

#[derive(Debug, Default)]
struct Counts {
    open: usize,
    /// Accepted, but not yet opened by an event loop.
    unopened: usize,
    by_address: HashMap<IpAddr, usize>,
}

impl Counts {
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
    address: IpAddr,
    is_opened: bool,
    _descriptor: ConnectionDescriptor,
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

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut counts = self.counts.lock();
        let was_full = counts.open >= self.counts.limits.connections_max;
        counts.open -= 1;
        let is_room_new = !self.is_opened && counts.leave_queue();
        if let Some(count) = counts.by_address.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                counts.by_address.remove(&self.address);
            }
        }
        if was_full || is_room_new {
            self.counts.freed.notify_all();
        }
    }
}

impl ConnectionCounts {
    pub fn new(limits: ConnectionLimits, descriptors: Arc<Descriptors>) -> ConnectionCounts {
        ConnectionCounts {
            limits,
            descriptors,
            quotas: None,
            counts: Mutex::default(),
            freed: Condvar::new(),
            accepted: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            next_id: AtomicU64::new(0),
        }
    }

    /// Adds the quotas on connection creation per address.
    pub fn with_quotas(self, quotas: Arc<Quotas>, clock: Arc<dyn Clock>) -> ConnectionCounts {
        ConnectionCounts {
            quotas: Some((quotas, clock)),
            ..self
        }
    }

    /// Until when `address` has to wait before it may open one more connection; `None`: not at all.
    pub fn throttled_until(&self, address: IpAddr) -> Option<Moment> {
        let (quotas, clock) = self.quotas.as_ref()?;
        let now = clock.moment();
        let wait = quotas.connections.admit(address, now).err()?;
        Some(now.after(wait))
    }

    pub fn now(&self) -> Moment {
        self.quotas
            .as_ref()
            .map_or(Moment::from_micros(0), |(_, clock)| clock.moment())
    }

    pub fn open(&self) -> usize {
        self.lock().open
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

    /// Returns a permit; `None` when the address has reached its limit.
    pub fn permit(
        self: &Arc<Self>,
        address: IpAddr,
        descriptor: ConnectionDescriptor,
    ) -> Option<ConnectionPermit> {
        let mut counts = self.lock();
        let limit = self
            .limits
            .overrides
            .get(&address)
            .unwrap_or(&self.limits.connections_max_per_ip);
        let count = counts.by_address.entry(address).or_default();
        if *count >= *limit {
            if *count == 0 {
                counts.by_address.remove(&address);
            }
            self.refused.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        *count += 1;
        counts.open += 1;
        counts.unopened += 1;
        self.accepted.fetch_add(1, Ordering::Relaxed);
        Some(ConnectionPermit {
            counts: self.clone(),
            address,
            is_opened: false,
            _descriptor: descriptor,
        })
    }

    /// Waits until one more connection may be opened, or accepting has ended. Like Apache Kafka,
    /// Ottla does not accept in order to close.
    pub fn wait_for_room(&self, stopped: &AtomicBool) {
        let mut counts = self.lock();
        while !self.has_room_in(&counts) && !stopped.load(Ordering::SeqCst) {
            counts = self.freed.wait(counts).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Whether one more connection may be opened.
    pub fn has_room(&self) -> bool {
        self.has_room_in(&self.lock())
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

    fn has_room_in(&self, counts: &Counts) -> bool {
        counts.open < self.limits.connections_max && counts.unopened < UNOPENED_MAX
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn accepting_is_woken_when_the_place_it_waits_for_is_freed() {
        let limits = ConnectionLimits {
            connections_max: usize::MAX,
            connections_max_per_ip: usize::MAX,
            overrides: HashMap::new(),
        };
        let counts = Arc::new(ConnectionCounts::new(limits, Descriptors::with_limit(10_000)));
        let permit = || {
            let descriptor = counts.descriptor().unwrap();
            counts.permit(Ipv4Addr::LOCALHOST.into(), descriptor).unwrap()
        };
        let mut waiting: Vec<ConnectionPermit> = (0..UNOPENED_MAX).map(|_| permit()).collect();
        assert!(!counts.has_room());
        assert!(waiting[0].opened() && !waiting[0].opened());
        assert_eq!(counts.unopened(), UNOPENED_MAX - 1);
        assert!(counts.has_room());
        waiting.push(permit());
        assert!(!counts.has_room());
        let opener = counts.clone();
        std::thread::scope(|scope| {
            scope.spawn(move || opener.wait_for_room(&AtomicBool::new(false)));
            // The connection is closed before it was opened.
            waiting.pop();
        });
        drop(waiting);
        assert_eq!((counts.open(), counts.unopened()), (0, 0));
    }
}
