//! What each tenant costs the broker: sums over all event loops, with the parts that fell into the
//! last minute and hour.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ottla_core::tenant::{TenantId, TenantName, Tenants};
use ottla_core::time::{Clock, Moment, Timestamp};

use super::accounts::{Accounts, Sum, Sums};
use super::recorder::Records;

/// The interval at which [`TenantBooks::look`] must be called.
pub const LOOK_INTERVAL_MS: u64 = 15_000;

/// The looks that make up a minute.
const LOOKS_MAX: usize = 4;

/// Minutes of history that are kept.
const MINUTES_MAX: usize = 60;

/// Tenants with less than this share of the loops' time in a minute are left out of that minute's
/// history.
const REMEMBERED_SHARE_MIN: f32 = 0.001;

/// Identifies a tenant while it keeps its id: id and generation.
type Who = (TenantId, u32);

/// One tenant at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct TenantRow {
    pub name: TenantName,
    pub connections: usize,
    /// Since the broker started, or the tenant became known.
    pub total: Sums,
    /// Since the beginning of the window.
    pub window: Sums,
    /// Shares of the time of all event loops, one per minute, latest first; up to an hour.
    pub past_shares: Vec<f32>,
}

/// All tenants at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TenantReading {
    pub loop_count: usize,
    pub at: Moment,
    /// Total time in which the event loops were not waiting, since the broker started.
    pub busy_micros_total: u64,
    /// Length of the window; at most a minute.
    pub window_micros: u64,
    /// Time in which the event loops were not waiting within the window.
    pub busy_micros: u64,
    /// Minutes of history before the window.
    pub past_minutes: usize,
    /// Ordered by event loop time in the window, heaviest first.
    pub tenants: Vec<TenantRow>,
    /// The sum over tenants that were forgotten.
    pub departed: Sums,
}

#[derive(Clone, Debug, Default)]
struct Look {
    at: Moment,
    busy_micros: u64,
    sums: HashMap<Who, Sums>,
}

#[derive(Debug, Default)]
struct History {
    /// Oldest first.
    looks: VecDeque<Arc<Look>>,
    /// The shares of each minute, latest first.
    minutes: VecDeque<HashMap<Who, f32>>,
    /// The look at which the current minute began.
    minute_began: Option<Arc<Look>>,
}

/// The accounts of all event loops, and their past.
#[derive(Debug)]
pub struct TenantBooks {
    tenants: Arc<Tenants>,
    accounts: Vec<Arc<Accounts>>,
    records: Records,
    clock: Arc<dyn Clock>,
    history: Mutex<History>,
}

impl TenantBooks {
    pub fn new(
        tenants: Arc<Tenants>,
        accounts: Vec<Arc<Accounts>>,
        records: Records,
        clock: Arc<dyn Clock>,
    ) -> TenantBooks {
        let books = TenantBooks {
            tenants,
            accounts,
            records,
            clock,
            history: Mutex::default(),
        };
        books.look();
        books
    }

    /// The wall-clock time.
    pub fn timestamp(&self) -> Timestamp {
        self.clock.timestamp()
    }

    pub fn tenants(&self) -> &Tenants {
        &self.tenants
    }

    /// Records the current sums for later readings.
    pub fn look(&self) {
        let now = Arc::new(self.look_now());
        let mut history = self.lock();
        history.looks.push_back(now.clone());
        while history.looks.len() > LOOKS_MAX + 1 {
            history.looks.pop_front();
        }
        let began = history.minute_began.get_or_insert_with(|| now.clone()).clone();
        let micros = now.at.micros_since(began.at);
        if micros >= LOOK_INTERVAL_MS * 1_000 * LOOKS_MAX as u64 {
            let shares = shares(&began, &now, micros.saturating_mul(self.accounts.len() as u64));
            history.minutes.push_front(shares);
            history.minutes.truncate(MINUTES_MAX);
            history.minute_began = Some(now);
        }
    }

    /// Reads every tenant that has been served or is connected.
    pub fn read(&self) -> TenantReading {
        let now = self.look_now();
        let known = self.tenants.known();
        let history = self.lock();
        let none = Arc::default();
        let before = history.looks.front().unwrap_or(&none);
        let mut tenants: Vec<TenantRow> = (known.into_iter())
            .filter_map(|known| {
                let who = (known.id, known.generation);
                let total = now.sums.get(&who).copied().unwrap_or_default();
                let is_there = known.connections > 0 || !total.is_zero();
                is_there.then(|| TenantRow {
                    name: known.name,
                    connections: known.connections,
                    total,
                    window: total.since(&before.sums.get(&who).copied().unwrap_or_default()),
                    past_shares: past_shares(&history.minutes, &who),
                })
            })
            .collect();
        let weight = |row: &TenantRow| (row.window.loop_micros(), row.total.loop_micros());
        tenants.sort_by(|a, b| weight(b).cmp(&weight(a)).then_with(|| a.name.cmp(&b.name)));
        TenantReading {
            loop_count: self.accounts.len(),
            at: now.at,
            busy_micros_total: now.busy_micros,
            window_micros: now.at.micros_since(before.at),
            busy_micros: now.busy_micros.saturating_sub(before.busy_micros),
            past_minutes: history.minutes.len(),
            tenants,
            departed: self.departed(&now),
        }
    }

    /// Sums of tenants that are no longer known, including those of loops that have not noticed it
    /// yet.
    fn departed(&self, now: &Look) -> Sums {
        let generations: BTreeMap<TenantId, u32> = (self.tenants.known().iter())
            .map(|known| (known.id, known.generation))
            .collect();
        let mut departed = Sums::default();
        for accounts in &self.accounts {
            departed.add(&accounts.departed());
        }
        for ((id, generation), sums) in &now.sums {
            if generations.get(id) != Some(generation) {
                departed.add(sums);
            }
        }
        departed
    }

    fn look_now(&self) -> Look {
        let mut sums = HashMap::<Who, Sums>::new();
        for accounts in &self.accounts {
            accounts.read(|id, generation, of_loop| sums.entry((id, generation)).or_default().add(&of_loop));
        }
        Look {
            at: self.clock.moment(),
            busy_micros: self.records.busy_micros(),
            sums,
        }
    }

    fn lock(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns each tenant's share of `available_micros` between two looks.
fn shares(before: &Look, after: &Look, available_micros: u64) -> HashMap<Who, f32> {
    let of_tenant = |(who, sums): (&Who, &Sums)| {
        let earlier = before.sums.get(who).copied().unwrap_or_default();
        let share = sums.since(&earlier).loop_micros() as f32 / available_micros.max(1) as f32;
        (share >= REMEMBERED_SHARE_MIN).then_some((*who, share))
    };
    after.sums.iter().filter_map(of_tenant).collect()
}

/// Returns a tenant's shares; zero for minutes without it, except that zeros at the far end are
/// left out.
fn past_shares(minutes: &VecDeque<HashMap<Who, f32>>, who: &Who) -> Vec<f32> {
    let mut shares: Vec<f32> = minutes
        .iter()
        .map(|minute| minute.get(who).copied().unwrap_or(0.0))
        .collect();
    while shares.last() == Some(&0.0) {
        shares.pop();
    }
    shares
}

impl TenantReading {
    /// The time that all event loops together had in the window.
    pub fn available_micros(&self) -> u64 {
        self.window_micros.saturating_mul(self.loop_count as u64)
    }

    /// Returns the `count` tenants with the highest total cost, and the sum of all others: a fixed
    /// number of metrics.
    ///
    /// - Shape: ranked by totals rather than by the window, so that the order of `/metrics` does
    ///   not change every minute.
    pub fn heaviest(&self, count: usize) -> (Vec<&TenantRow>, Sums) {
        let mut rows: Vec<&TenantRow> = self.tenants.iter().collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.total.loop_micros()));
        let rest = rows.split_off(count.min(rows.len()));
        let mut other = self.departed;
        for row in rest {
            other.add(&row.total);
        }
        (rows, other)
    }

    /// Event loop time charged to all tenants in the window.
    pub fn charged_micros(&self) -> u64 {
        self.tenants.iter().map(|row| row.window.loop_micros()).sum()
    }

    pub fn total(&self, sum: Sum) -> u64 {
        self.tenants.iter().map(|row| row.total.get(sum)).sum::<u64>() + self.departed.get(sum)
    }
}

#[cfg(test)]
mod tests;
