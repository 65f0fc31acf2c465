//! Fair sharing of memory for large requests: decisions only, without threads, sockets or time.
//!
//! **No deadlock.** Memory is granted for a whole request or not at all, so a waiter holds none of
//! it, and a holder needs no more of it: a request is completed by bytes from its own sender, or
//! its connection is closed. An answer exists before its memory is accounted for, so it takes it
//! without waiting, from what the tenant may have next. It leaves when the client reads it or its
//! connection is closed; an answer that another thread writes comes after the connection's earlier
//! ones, which have deadlines. So waiters cannot form a cycle. While any request waits, another
//! holds memory: what is given back last makes room for the first waiter, because no request is
//! larger than the limit.
//!
//! **Who is next.** Tenants take turns; within a tenant, requests are served in order of arrival. A
//! tenant that holds memory may have at most as much as is then left free (the "dynamic thresholds"
//! by which switches share their buffers): one alone gets half of the limit, two get a third each,
//! and there is always room for a newcomer. A tenant that holds nothing may have all that is free.
//! A request that lacks only free room is *due*: smaller ones may overtake it until they add up to
//! the limit, and then none may, so it does not starve.

use std::collections::{BTreeMap, HashMap, VecDeque};

use ottla_core::tenant::TenantId;

/// Unsuccessful tries per release of memory: with thousands of tenants waiting, the rest are tried
/// at the next one.
const VAIN_LOOKS_MAX: usize = 64;

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

#[derive(Debug)]
struct Tenant<W> {
    held_bytes: usize,
    /// The bytes that each request needs, in order of arrival.
    waiting: BTreeMap<Ticket, (usize, W)>,
    is_in_ring: bool,
}

impl<W> Default for Tenant<W> {
    fn default() -> Tenant<W> {
        Tenant {
            held_bytes: 0,
            waiting: BTreeMap::new(),
            is_in_ring: false,
        }
    }
}

impl<W> Tenant<W> {
    fn first_bytes(&self) -> Option<usize> {
        self.waiting.first_key_value().map(|(_, (bytes, _))| *bytes)
    }
}

/// Memory for large requests. `W` is handed back for each waiter that has been given memory.
#[derive(Debug)]
pub struct Shares<W> {
    limit_bytes: usize,
    used_bytes: usize,
    /// Only tenants that hold memory or wait.
    tenants: HashMap<TenantId, Tenant<W>>,
    /// Waiting tenants, the next one first, without the one that is due. May still name some that
    /// no longer wait.
    ring: VecDeque<TenantId>,
    due: Option<TenantId>,
    /// Bytes granted to others while this tenant was due.
    overtaken_bytes: usize,
    waiting: usize,
    next_ticket: u64,
}

impl<W> Shares<W> {
    pub fn new(limit_bytes: usize) -> Shares<W> {
        Shares {
            limit_bytes,
            used_bytes: 0,
            tenants: HashMap::new(),
            ring: VecDeque::new(),
            due: None,
            overtaken_bytes: 0,
            waiting: 0,
            next_ticket: 0,
        }
    }

    pub fn used_bytes(&self) -> usize {
        self.used_bytes
    }

    /// The number of waiting requests.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Asks for memory for one request: `None` when it is granted at once. Otherwise `waiter` is
    /// handed back when it is.
    pub fn ask(&mut self, id: TenantId, bytes: usize, waiter: impl FnOnce() -> W) -> Option<Ticket> {
        let lack = self.lack(id, bytes);
        let may_pass = self.may_pass(bytes);
        let tenant = self.tenants.entry(id).or_default();
        let is_first = tenant.waiting.is_empty();
        if is_first && lack == Lack::Nothing && may_pass {
            tenant.held_bytes += bytes;
            self.take(bytes);
            return None;
        }
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        tenant.waiting.insert(ticket, (bytes, waiter()));
        self.waiting += 1;
        if is_first && lack == Lack::Room && self.due.is_none() {
            (self.due, self.overtaken_bytes) = (Some(id), 0);
        } else if !tenant.is_in_ring && self.due != Some(id) {
            tenant.is_in_ring = true;
            self.ring.push_back(id);
        }
        Some(ticket)
    }

    /// Takes memory that is already in use: others wait while the total exceeds the limit.
    pub fn take_unasked(&mut self, id: TenantId, bytes: usize) {
        self.tenants.entry(id).or_default().held_bytes += bytes;
        self.used_bytes += bytes;
    }

    /// Gives back the memory of a request that was served, of an answer that was sent, or of a
    /// closed connection. Waiters that get it are added to `given`.
    pub fn give_back(&mut self, id: TenantId, bytes: usize, given: &mut Vec<W>) {
        self.used_bytes -= bytes;
        if let Some(tenant) = self.tenants.get_mut(&id) {
            tenant.held_bytes -= bytes;
        }
        self.forget_if_idle(id);
        self.admit(given);
    }

    /// Takes a waiter out of the queue; false when it had already been given memory.
    pub fn withdraw(&mut self, id: TenantId, ticket: Ticket, given: &mut Vec<W>) -> bool {
        let Some(tenant) = self.tenants.get_mut(&id) else {
            return false;
        };
        if tenant.waiting.remove(&ticket).is_none() {
            return false;
        }
        self.waiting -= 1;
        if self.due == Some(id) && tenant.waiting.is_empty() {
            self.due = None;
        }
        self.forget_if_idle(id);
        self.admit(given);
        true
    }

    fn lack(&self, id: TenantId, bytes: usize) -> Lack {
        if self.used_bytes == 0 {
            return Lack::Nothing;
        }
        let held_bytes = self.tenants.get(&id).map_or(0, |tenant| tenant.held_bytes);
        let left_bytes = self.limit_bytes.saturating_sub(self.used_bytes + bytes);
        if held_bytes > 0 && held_bytes + bytes > left_bytes {
            Lack::Share
        } else if self.used_bytes + bytes > self.limit_bytes {
            Lack::Room
        } else {
            Lack::Nothing
        }
    }

    /// Whether `bytes` may be granted to another tenant than the one that is due.
    fn may_pass(&self, bytes: usize) -> bool {
        self.due.is_none() || self.overtaken_bytes + bytes <= self.limit_bytes
    }

    fn take(&mut self, bytes: usize) {
        self.used_bytes += bytes;
        if self.due.is_some() {
            self.overtaken_bytes += bytes;
        }
    }

    /// Grants free memory to waiters.
    fn admit(&mut self, given: &mut Vec<W>) {
        let mut vain_looks = 0;
        loop {
            while let Some(id) = self.due {
                let bytes = self.tenants.get(&id).and_then(Tenant::first_bytes);
                if bytes.is_some_and(|bytes| self.lack(id, bytes) != Lack::Nothing) {
                    break;
                }
                self.due = None;
                self.give_to_first(id, given);
            }
            // Each tenant once, and again as long as a round granted anything.
            let mut was_given = false;
            for _ in 0..self.ring.len() {
                let Some(id) = self.ring.pop_front() else { break };
                let tenant = self.tenants.get_mut(&id);
                let first = tenant.and_then(|tenant| {
                    tenant.is_in_ring = false;
                    tenant.first_bytes()
                });
                let Some(bytes) = first else {
                    self.forget_if_idle(id);
                    continue;
                };
                let lack = self.lack(id, bytes);
                if lack == Lack::Nothing && self.may_pass(bytes) {
                    self.give_to_first(id, given);
                    was_given = true;
                    continue;
                }
                if lack == Lack::Room && self.due.is_none() {
                    (self.due, self.overtaken_bytes) = (Some(id), 0);
                } else {
                    self.line_up(id);
                }
                vain_looks += 1;
                if vain_looks == VAIN_LOOKS_MAX {
                    return;
                }
            }
            if !was_given {
                return;
            }
        }
    }

    /// Grants a tenant's first request its memory; the tenant goes to the end of the ring if it has
    /// more.
    fn give_to_first(&mut self, id: TenantId, given: &mut Vec<W>) {
        let Some(tenant) = self.tenants.get_mut(&id) else {
            return;
        };
        let Some((_, (bytes, waiter))) = tenant.waiting.pop_first() else {
            return;
        };
        tenant.held_bytes += bytes;
        self.waiting -= 1;
        self.take(bytes);
        given.push(waiter);
        self.line_up(id);
    }

    fn line_up(&mut self, id: TenantId) {
        if let Some(tenant) = self.tenants.get_mut(&id)
            && !tenant.waiting.is_empty()
            && !tenant.is_in_ring
        {
            tenant.is_in_ring = true;
            self.ring.push_back(id);
        }
    }

    fn forget_if_idle(&mut self, id: TenantId) {
        let is_idle = self
            .tenants
            .get(&id)
            .is_some_and(|tenant| tenant.held_bytes == 0 && tenant.waiting.is_empty() && !tenant.is_in_ring);
        if is_idle {
            self.tenants.remove(&id);
        }
    }
}

#[cfg(test)]
mod tests;
