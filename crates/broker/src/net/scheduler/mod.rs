//! Fair scheduling of the connections of an event loop: deficit round robin over tenants (Shreedhar
//! and Varghese 1995). Ready connections wait in one queue per tenant, and tenants are served in
//! proportion to the measured cost of their turns.
//!
//! A tenant's credit is the time, in microseconds, that it may still use; it is negative while the
//! tenant is in debt. A turn may overrun the credit once, and the tenant pays that back before it
//! is served again. A tenant that becomes ready without debt is served ahead of the others until
//! its credit is used (the sparse flows of RFC 8290), so a heartbeat does not wait behind a flood.
//! The tenants ahead get at most as much of the loop as those behind, so a client that keeps
//! inventing names wins at most half of it.
//!
//! Cost: O(1) per turn, however many tenants are known. Only tenants with ready connections are in
//! a ring.

use std::collections::VecDeque;

use ottla_core::tenant::TenantId;

/// How long a tenant is served before the next one. Longer than most requests, so switching tenants
/// costs little; short compared with the milliseconds that a client would notice.
pub const QUANTUM_MICROS: i64 = 250;

/// The most that one turn is charged: a loop that stood still for longer was suspended, not
/// working.
pub const CHARGE_MICROS_MAX: i64 = 1_000_000;

/// Bounds the lead: one long request of a newcomer must not block all later newcomers until it is
/// paid back. Its own tenant owes it.
const LEAD_MICROS_MAX: i64 = 4 * QUANTUM_MICROS;

/// Free capacity that an empty queue keeps.
const SPARE_PLACES_MAX: usize = 64;

const QUANTUM_NANOS: u64 = QUANTUM_MICROS as u64 * 1_000;

/// A connection to serve now. [`Scheduler::charge`] reports what its turn cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready<C> {
    pub tenant: TenantId,
    pub connection: C,
    /// Time after which it should yield; it may always finish one request.
    pub budget_micros: u64,
}

/// How long a turn made tenants wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    /// How long the tenant has waited since its last turn while others were served.
    pub suffered_micros: u64,
    /// The waiting that the turn caused: its duration times the number of waiting tenants.
    pub inflicted_micros: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum TurnPlace {
    #[default]
    Nowhere,
    Ahead,
    Behind,
    /// Being served; in no ring.
    Served,
}

#[derive(Debug)]
struct Queue<C> {
    ready: VecDeque<C>,
    place: TurnPlace,
    credit_micros: i64,
    /// `idle_periods` and `share_nanos` of the scheduler when the tenant last ran out of work.
    left: Option<(u64, u64)>,
    /// The value of `Scheduler::served_micros` up to which its waiting is counted.
    counted_micros: u64,
}

impl<C> Default for Queue<C> {
    fn default() -> Queue<C> {
        Queue {
            ready: VecDeque::new(),
            place: TurnPlace::Nowhere,
            credit_micros: 0,
            left: None,
            counted_micros: 0,
        }
    }
}

/// The tenant being served.
#[derive(Clone, Copy, Debug)]
struct Visit {
    tenant: TenantId,
    is_ahead: bool,
    suffered_micros: u64,
}

/// The ready connections of one event loop.
#[derive(Debug)]
pub struct Scheduler<C> {
    /// By tenant; as long as the highest id that has been ready.
    queues: Vec<Queue<C>>,
    ahead: VecDeque<TenantId>,
    behind: VecDeque<TenantId>,
    visit: Option<Visit>,
    /// By how much tenants ahead were served more than those behind while both were waiting.
    lead_micros: i64,
    /// The service that each tenant behind has been granted so far.
    share_nanos: u64,
    /// How often no tenant was ready. Debt from before an idle period is cancelled: no other tenant
    /// wanted the time.
    idle_periods: u64,
    /// Total duration of all turns.
    served_micros: u64,
}

impl<C> Default for Scheduler<C> {
    fn default() -> Scheduler<C> {
        Scheduler {
            queues: Vec::new(),
            ahead: VecDeque::new(),
            behind: VecDeque::new(),
            visit: None,
            lead_micros: 0,
            share_nanos: 0,
            idle_periods: 0,
            served_micros: 0,
        }
    }
}

impl<C> Scheduler<C> {
    /// Queues a connection that has work. It must not be queued already.
    pub fn push(&mut self, tenant: TenantId, connection: C) {
        if tenant.index() >= self.queues.len() {
            self.queues.resize_with(tenant.index() + 1, Queue::default);
        }
        let queue = &mut self.queues[tenant.index()];
        queue.ready.push_back(connection);
        if queue.place == TurnPlace::Nowhere {
            self.join(tenant);
        }
    }

    /// False when the loop may sleep.
    pub fn has_ready(&mut self) -> bool {
        self.end_visit();
        let has_ready = self.visit.is_some() || !self.ahead.is_empty() || !self.behind.is_empty();
        if !has_ready {
            self.idle_periods += 1;
            self.lead_micros = 0;
        }
        has_ready
    }

    /// Returns the connection to serve now; its turn ends with [`Scheduler::charge`].
    pub fn next_ready(&mut self) -> Option<Ready<C>> {
        if !self.has_ready() {
            return None;
        }
        if self.visit.is_none() {
            self.visit = self.choose();
        }
        let visit = self.visit.as_mut()?;
        let queue = &mut self.queues[visit.tenant.index()];
        queue.place = TurnPlace::Served;
        visit.suffered_micros = self.served_micros - queue.counted_micros;
        let connection = queue
            .ready
            .pop_front()
            .expect("a tenant in a ring has a ready connection");
        Some(Ready {
            tenant: visit.tenant,
            connection,
            budget_micros: queue.credit_micros.clamp(1, QUANTUM_MICROS) as u64,
        })
    }

    /// Ends the visit if it is over: the tenant leaves the rings when it has no work, and goes to
    /// the end of `behind` when its credit is used.
    fn end_visit(&mut self) {
        let Some(visit) = self.visit else { return };
        let queue = &mut self.queues[visit.tenant.index()];
        if queue.ready.is_empty() {
            queue.place = TurnPlace::Nowhere;
            queue.left = Some((self.idle_periods, self.share_nanos));
            if queue.ready.capacity() > SPARE_PLACES_MAX {
                queue.ready.shrink_to(SPARE_PLACES_MAX);
            }
        } else if queue.credit_micros > 0 {
            return;
        } else {
            queue.place = TurnPlace::Behind;
            self.behind.push_back(visit.tenant);
        }
        self.visit = None;
    }

    /// Charges the turn that [`Scheduler::next_ready`] began with its duration.
    pub fn charge(&mut self, micros: u64) -> Waiting {
        let Some(visit) = &mut self.visit else {
            return Waiting::default();
        };
        // A turn too short to be measured still counts.
        let micros = micros.clamp(1, CHARGE_MICROS_MAX as u64);
        let cost_micros = micros as i64;
        if visit.is_ahead && !self.behind.is_empty() {
            self.lead_micros += cost_micros;
        } else if !visit.is_ahead {
            self.lead_micros -= cost_micros;
            // With no tenant ahead there is none that could be owed time.
            if self.ahead.is_empty() {
                self.lead_micros = self.lead_micros.max(0);
            }
        }
        self.lead_micros = self.lead_micros.clamp(-LEAD_MICROS_MAX, LEAD_MICROS_MAX);
        self.served_micros += micros;
        let queue = &mut self.queues[visit.tenant.index()];
        queue.credit_micros -= cost_micros;
        queue.counted_micros = self.served_micros;
        // The tenants in the rings are exactly those that wait.
        let waiting = (self.ahead.len() + self.behind.len()) as u64;
        Waiting {
            suffered_micros: std::mem::take(&mut visit.suffered_micros),
            inflicted_micros: micros * waiting,
        }
    }

    /// Charges work of this duration that was done for the tenant outside its turns.
    pub fn owe(&mut self, tenant: TenantId, micros: u64) {
        if let Some(queue) = self.queues.get_mut(tenant.index()) {
            queue.credit_micros -= micros.min(CHARGE_MICROS_MAX as u64) as i64;
        }
    }

    /// Puts a tenant that had no work into a ring.
    fn join(&mut self, tenant: TenantId) {
        let queue = &mut self.queues[tenant.index()];
        queue.credit_micros = match queue.left {
            Some((idle_periods, share_nanos)) if idle_periods == self.idle_periods => {
                let share_micros = ((self.share_nanos - share_nanos) / 1_000) as i64;
                (queue.credit_micros + share_micros).min(QUANTUM_MICROS)
            }
            _ => QUANTUM_MICROS,
        };
        queue.counted_micros = self.served_micros;
        let (place, ring) = match queue.credit_micros > 0 {
            true => (TurnPlace::Ahead, &mut self.ahead),
            false => (TurnPlace::Behind, &mut self.behind),
        };
        queue.place = place;
        ring.push_back(tenant);
    }

    /// Chooses the tenant to visit next.
    fn choose(&mut self) -> Option<Visit> {
        let is_ahead = self.lead_micros < QUANTUM_MICROS || self.behind.is_empty();
        let tenant = match is_ahead {
            true => self.ahead.pop_front(),
            false => None,
        };
        let visit = |tenant, is_ahead| Visit {
            tenant,
            is_ahead,
            suffered_micros: 0,
        };
        if let Some(tenant) = tenant {
            return Some(visit(tenant, true));
        }
        // Each round gives every tenant a quantum, so this ends; amortized, it visits one tenant
        // per quantum of work done.
        loop {
            let tenant = self.behind.pop_front()?;
            self.share_nanos += QUANTUM_NANOS / (self.behind.len() + 1) as u64;
            let queue = &mut self.queues[tenant.index()];
            queue.credit_micros += QUANTUM_MICROS;
            if self.behind.is_empty() && self.ahead.is_empty() {
                // The only ready tenant: its debt is cancelled, since no other tenant waits.
                queue.credit_micros = QUANTUM_MICROS;
            }
            if queue.credit_micros > 0 {
                return Some(visit(tenant, false));
            }
            self.behind.push_back(tenant);
        }
    }
}

#[cfg(test)]
mod tests;
