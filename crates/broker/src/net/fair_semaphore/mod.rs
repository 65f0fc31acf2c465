//! A semaphore that counts bytes and shares them fairly between tenants: decisions only, without
//! threads, sockets or time.
//!
//! **No deadlock.** Memory is granted for a whole request or not at all, so a waiter uses none of
//! it, and a request that has its memory needs no more: it is completed by bytes from its own
//! sender, or its connection is closed. An answer exists before its memory is counted, so it takes
//! it without waiting, from what the tenant may have next. It leaves when the client reads it or
//! its connection is closed; an answer that another thread writes comes after the connection's
//! earlier ones, which have deadlines. So waiters cannot form a cycle. While any request waits,
//! another uses memory: what is released last makes room for the next waiter, because no request is
//! larger than the limit.
//!
//! **Fairness.** Tenants take turns (round robin); within a tenant, requests are served in order of
//! arrival. A tenant that uses memory may have at most as much as is then left free (the "dynamic
//! thresholds" by which switches share their buffers): one alone gets half of the limit, two get a
//! third each, and there is always room for a newcomer. A tenant that uses none may have all that
//! is free. The first tenant that lacks only free room is *starving*: smaller requests of others
//! may overtake its request until they add up to the limit, and then none may.

use std::collections::{BTreeMap, HashMap};

use ottla_core::tenant::TenantId;

/// Tenants that are looked at without success per release of memory: with thousands of them
/// waiting, the rest are looked at in the next one.
const FAILED_LOOKS_MAX: usize = 64;

/// A place in the queue of a tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lack {
    Nothing,
    /// There is not enough free memory.
    Room,
    /// The tenant has its share.
    Share,
}

/// `W` is handed back for each waiter when it is granted its bytes.
#[derive(Debug)]
pub struct FairSemaphore<W> {
    limit_bytes: usize,
    used_bytes: usize,
    /// Only tenants that use some.
    used_by: HashMap<TenantId, usize>,
    /// The bytes that each request needs, by tenant and in order of arrival.
    waiting: BTreeMap<(TenantId, Ticket), (usize, W)>,
    next_ticket: u64,
    /// The tenant that had the last turn.
    last_turn: TenantId,
    starving: Option<TenantId>,
    /// Bytes granted to others while this tenant was starving.
    overtaken_bytes: usize,
}

impl<W> FairSemaphore<W> {
    pub fn new(limit_bytes: usize) -> FairSemaphore<W> {
        FairSemaphore {
            limit_bytes,
            used_bytes: 0,
            used_by: HashMap::new(),
            waiting: BTreeMap::new(),
            next_ticket: 0,
            last_turn: TenantId(0),
            starving: None,
            overtaken_bytes: 0,
        }
    }

    pub fn used_bytes(&self) -> usize {
        self.used_bytes
    }

    /// The number of waiting requests.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// How many requests have had to wait so far.
    pub fn waits(&self) -> u64 {
        self.next_ticket
    }

    pub fn is_waiting(&self, id: TenantId, ticket: Ticket) -> bool {
        self.waiting.contains_key(&(id, ticket))
    }

    /// Takes memory for one request: `None` when it is granted at once. Otherwise `waiter` is
    /// handed back when it is.
    pub fn acquire(&mut self, id: TenantId, bytes: usize, waiter: impl FnOnce() -> W) -> Option<Ticket> {
        let lack = self.lack(id, bytes);
        let is_first = self.first_of(id).is_none();
        if is_first && lack == Lack::Nothing && self.may_overtake(bytes) {
            self.grant(id, bytes);
            return None;
        }
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        self.waiting.insert((id, ticket), (bytes, waiter()));
        if is_first && lack == Lack::Room {
            self.note_starving(id);
        }
        Some(ticket)
    }

    /// Takes memory that is already in use: others wait while the total exceeds the limit.
    pub fn acquire_unconditionally(&mut self, id: TenantId, bytes: usize) {
        *self.used_by.entry(id).or_default() += bytes;
        self.used_bytes += bytes;
    }

    /// Returns the memory of a request that was served, of an answer that was sent, or of a closed
    /// connection. Waiters that get it are added to `granted`.
    pub fn release(&mut self, id: TenantId, bytes: usize, granted: &mut Vec<W>) {
        self.used_bytes -= bytes;
        if let Some(used_bytes) = self.used_by.get_mut(&id) {
            *used_bytes -= bytes;
            if *used_bytes == 0 {
                self.used_by.remove(&id);
            }
        }
        self.admit(granted);
    }

    /// Takes a waiter out of the queue; false when it had already been granted its memory.
    pub fn cancel(&mut self, id: TenantId, ticket: Ticket, granted: &mut Vec<W>) -> bool {
        if self.waiting.remove(&(id, ticket)).is_none() {
            return false;
        }
        self.admit(granted);
        true
    }

    fn lack(&self, id: TenantId, bytes: usize) -> Lack {
        if self.used_bytes == 0 {
            return Lack::Nothing;
        }
        let used_by_it = self.used_by.get(&id).copied().unwrap_or(0);
        let left_bytes = self.limit_bytes.saturating_sub(self.used_bytes + bytes);
        if used_by_it > 0 && used_by_it + bytes > left_bytes {
            Lack::Share
        } else if self.used_bytes + bytes > self.limit_bytes {
            Lack::Room
        } else {
            Lack::Nothing
        }
    }

    /// Whether `bytes` may be granted to another tenant than the starving one.
    fn may_overtake(&self, bytes: usize) -> bool {
        self.starving.is_none() || self.overtaken_bytes + bytes <= self.limit_bytes
    }

    fn note_starving(&mut self, id: TenantId) {
        if self.starving.is_none() {
            (self.starving, self.overtaken_bytes) = (Some(id), 0);
        }
    }

    fn grant(&mut self, id: TenantId, bytes: usize) {
        self.acquire_unconditionally(id, bytes);
        if self.starving.is_some() {
            self.overtaken_bytes += bytes;
        }
    }

    /// Grants free memory to waiters: to the starving tenant first, then in turns, until each was
    /// looked at without success.
    fn admit(&mut self, granted: &mut Vec<W>) {
        self.admit_starving(granted);
        let mut first_failed = None;
        let mut failed_looks = 0;
        while failed_looks < FAILED_LOOKS_MAX {
            let Some((id, ticket, bytes)) = self.next_turn() else {
                return;
            };
            if first_failed == Some(id) {
                return;
            }
            self.last_turn = id;
            let lack = self.lack(id, bytes);
            if self.starving != Some(id) && lack == Lack::Nothing && self.may_overtake(bytes) {
                self.grant_waiting(id, ticket, granted);
                (first_failed, failed_looks) = (None, 0);
                continue;
            }
            if lack == Lack::Room {
                self.note_starving(id);
            }
            first_failed = first_failed.or(Some(id));
            failed_looks += 1;
        }
    }

    fn admit_starving(&mut self, granted: &mut Vec<W>) {
        let Some(id) = self.starving else {
            return;
        };
        let first = self.first_of(id);
        if first.is_some_and(|(_, bytes)| self.lack(id, bytes) != Lack::Nothing) {
            return;
        }
        self.starving = None;
        if let Some((ticket, _)) = first {
            self.grant_waiting(id, ticket, granted);
        }
    }

    fn grant_waiting(&mut self, id: TenantId, ticket: Ticket, granted: &mut Vec<W>) {
        if let Some((bytes, waiter)) = self.waiting.remove(&(id, ticket)) {
            self.grant(id, bytes);
            granted.push(waiter);
        }
    }

    /// The first request of a tenant, and its bytes.
    fn first_of(&self, id: TenantId) -> Option<(Ticket, usize)> {
        let mut of_tenant = self.waiting.range((id, Ticket(0))..=(id, Ticket(u64::MAX)));
        of_tenant
            .next()
            .map(|((_, ticket), (bytes, _))| (*ticket, *bytes))
    }

    /// The first request of the tenant whose turn is next.
    fn next_turn(&self) -> Option<(TenantId, Ticket, usize)> {
        let mut after = self.waiting.range((self.last_turn, Ticket(u64::MAX))..);
        let next = after.next().or_else(|| self.waiting.first_key_value());
        next.map(|((id, ticket), (bytes, _))| (*id, *ticket, *bytes))
    }
}

#[cfg(test)]
mod tests;
