//! Whose turn it is on an event loop: ready connections wait in a queue per tenant, and tenants are served in proportion to what
//! their turns have cost, measured, not guessed (deficit round robin, Shreedhar and Varghese 1995).
//!
//! A tenant may be given more than its share only once per turn, and pays it back before it is served again: what it still may
//! take is its credit, in microseconds, which is below zero while it owes. A tenant that comes back without owing anything is
//! served ahead of the others, until its credit is used (the sparse flows of RFC 8290), so that a heartbeat does not wait behind a
//! flood. Those ahead get at most as much of the loop as those behind, so that names made up anew win half of it at worst.
//!
//! Cost: O(1) for a turn, whatever number of tenants is known. Only tenants with ready connections are in a ring.

use std::collections::VecDeque;

use ottla_core::tenant::TenantId;

/// How long a tenant is served before another has its turn. Longer than most requests, so that changing tenants costs little; short
/// beside the milliseconds that a client would notice.
pub const QUANTUM_MICROS: i64 = 250;

/// No turn is charged for more: a loop that stood still for longer was stopped, and did not work.
pub const CHARGE_MICROS_MAX: i64 = 1_000_000;

/// One long request of a newcomer must not keep all later newcomers waiting until it is made up for: its own tenant owes it.
const LEAD_MICROS_MAX: i64 = 4 * QUANTUM_MICROS;

/// Free places that an empty queue keeps.
const SPARE_PLACES_MAX: usize = 64;

const QUANTUM_NANOS: u64 = QUANTUM_MICROS as u64 * 1_000;

/// A connection whose turn it is. [`Scheduler::charge`] says what it cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready<C> {
    pub tenant: TenantId,
    pub connection: C,
    /// After this it should let others go on; one request it may always finish.
    pub budget_micros: u64,
}

/// What a turn meant for those who waited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    /// How long the tenant has waited while others were served, since its last turn.
    pub suffered_micros: u64,
    /// What the turn cost the others: its duration, as often as tenants were waiting.
    pub inflicted_micros: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
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
    place: Place,
    credit_micros: i64,
    /// Where the loop stood when the tenant had nothing more to do: its idle periods, and its share.
    left: Option<(u64, u64)>,
    /// `Scheduler::served_micros` up to which its waiting is counted.
    counted_micros: u64,
}

impl<C> Default for Queue<C> {
    fn default() -> Queue<C> {
        Queue {
            ready: VecDeque::new(),
            place: Place::Nowhere,
            credit_micros: 0,
            left: None,
            counted_micros: 0,
        }
    }
}

/// The tenant whose visit it is.
#[derive(Clone, Copy, Debug)]
struct Visit {
    tenant: TenantId,
    is_ahead: bool,
    suffered_micros: u64,
}

/// The ready connections of one event loop.
#[derive(Debug)]
pub struct Scheduler<C> {
    /// By tenant; as long as the highest id that was ever ready.
    queues: Vec<Queue<C>>,
    ahead: VecDeque<TenantId>,
    behind: VecDeque<TenantId>,
    visit: Option<Visit>,
    /// By how much tenants ahead were served more than those behind while both waited.
    lead_micros: i64,
    /// What each tenant behind has been given by now.
    share_nanos: u64,
    /// How often nobody was ready: nobody owes anything to somebody who does not want it.
    idle_periods: u64,
    /// Duration of all turns.
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
    /// A connection has something to do. It must not be in here already.
    pub fn push(&mut self, tenant: TenantId, connection: C) {
        if tenant.index() >= self.queues.len() {
            self.queues.resize_with(tenant.index() + 1, Queue::default);
        }
        let queue = &mut self.queues[tenant.index()];
        queue.ready.push_back(connection);
        if queue.place == Place::Nowhere {
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

    /// The connection to serve now; its turn ends with [`Scheduler::charge`].
    pub fn next_ready(&mut self) -> Option<Ready<C>> {
        if !self.has_ready() {
            return None;
        }
        if self.visit.is_none() {
            self.visit = self.choose();
        }
        let visit = self.visit.as_mut()?;
        let queue = &mut self.queues[visit.tenant.index()];
        queue.place = Place::Served;
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

    /// Lets the tenant go whose visit is over: away when it has nothing to do, to the end of the ring when its credit is used.
    fn end_visit(&mut self) {
        let Some(visit) = self.visit else { return };
        let queue = &mut self.queues[visit.tenant.index()];
        if queue.ready.is_empty() {
            queue.place = Place::Nowhere;
            queue.left = Some((self.idle_periods, self.share_nanos));
            if queue.ready.capacity() > SPARE_PLACES_MAX {
                queue.ready.shrink_to(SPARE_PLACES_MAX);
            }
        } else if queue.credit_micros > 0 {
            return;
        } else {
            queue.place = Place::Behind;
            self.behind.push_back(visit.tenant);
        }
        self.visit = None;
    }

    /// The turn that [`Scheduler::next_ready`] gave took so long.
    pub fn charge(&mut self, micros: u64) -> Waiting {
        let Some(visit) = &mut self.visit else {
            return Waiting::default();
        };
        // A turn too short to be measured was one all the same.
        let micros = micros.clamp(1, CHARGE_MICROS_MAX as u64);
        let cost_micros = micros as i64;
        if visit.is_ahead && !self.behind.is_empty() {
            self.lead_micros += cost_micros;
        } else if !visit.is_ahead {
            self.lead_micros -= cost_micros;
            // Who was not there has missed nothing.
            if self.ahead.is_empty() {
                self.lead_micros = self.lead_micros.max(0);
            }
        }
        self.lead_micros = self.lead_micros.clamp(-LEAD_MICROS_MAX, LEAD_MICROS_MAX);
        self.served_micros += micros;
        let queue = &mut self.queues[visit.tenant.index()];
        queue.credit_micros -= cost_micros;
        queue.counted_micros = self.served_micros;
        // Everyone in a ring is waiting, and nobody else is.
        let waiting = (self.ahead.len() + self.behind.len()) as u64;
        Waiting {
            suffered_micros: std::mem::take(&mut visit.suffered_micros),
            inflicted_micros: micros * waiting,
        }
    }

    /// Something was done for the tenant outside its turns, and took so long: it has that much less of the next ones.
    pub fn owe(&mut self, tenant: TenantId, micros: u64) {
        if let Some(queue) = self.queues.get_mut(tenant.index()) {
            queue.credit_micros -= micros.min(CHARGE_MICROS_MAX as u64) as i64;
        }
    }

    /// A tenant that had nothing to do takes its place.
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
            true => (Place::Ahead, &mut self.ahead),
            false => (Place::Behind, &mut self.behind),
        };
        queue.place = place;
        ring.push_back(tenant);
    }

    /// The tenant to visit next.
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
        // Each round gives a quantum to everyone, so this ends; in sum it looks at one tenant per quantum of work done.
        loop {
            let tenant = self.behind.pop_front()?;
            self.share_nanos += QUANTUM_NANOS / (self.behind.len() + 1) as u64;
            let queue = &mut self.queues[tenant.index()];
            queue.credit_micros += QUANTUM_MICROS;
            if self.behind.is_empty() && self.ahead.is_empty() {
                // Alone: what it owes, it owes to nobody.
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
