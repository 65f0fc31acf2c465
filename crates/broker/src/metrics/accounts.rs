//! What each tenant has cost an event loop, in sums since the loop started.
//!
//! Only the owning loop writes. Readers take no lock, so counting costs one store and a reader
//! costs the loop nothing. A reading of several sums is of approximately one moment, not of exactly
//! one.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use ottla_core::tenant::{TenantId, TenantLease};

/// What is summed for a tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(usize)]
pub enum Sum {
    /// Time of the event loop for reading and serving requests.
    HandlingMicros,
    /// Time of the event loop for sending answers.
    SendingMicros,
    /// Time that threads of the cold-read pool read from the device.
    DiskMicros,
    Requests,
    /// Records produced, or by how many offsets its fetches advanced.
    Records,
    BytesIn,
    BytesOut,
    /// Bytes read from the device for the tenant.
    ColdBytes,
    /// Time a quota made the tenant wait.
    ThrottledMs,
    /// The loop's time for the tenant, times the number of other tenants waiting meanwhile.
    InflictedMicros,
    /// Time the tenant waited while others were served.
    SufferedMicros,
}

pub const SUM_COUNT: usize = 11;

impl Sum {
    pub const ALL: [Sum; SUM_COUNT] = [
        Sum::HandlingMicros,
        Sum::SendingMicros,
        Sum::DiskMicros,
        Sum::Requests,
        Sum::Records,
        Sum::BytesIn,
        Sum::BytesOut,
        Sum::ColdBytes,
        Sum::ThrottledMs,
        Sum::InflictedMicros,
        Sum::SufferedMicros,
    ];

    /// The name in JSON and in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Sum::HandlingMicros => "handling_micros",
            Sum::SendingMicros => "sending_micros",
            Sum::DiskMicros => "disk_micros",
            Sum::Requests => "requests",
            Sum::Records => "records",
            Sum::BytesIn => "bytes_in",
            Sum::BytesOut => "bytes_out",
            Sum::ColdBytes => "cold_bytes",
            Sum::ThrottledMs => "throttled_ms",
            Sum::InflictedMicros => "inflicted_micros",
            Sum::SufferedMicros => "suffered_micros",
        }
    }
}

/// One reading of a tenant's sums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums([u64; SUM_COUNT]);

impl Sums {
    pub fn get(&self, sum: Sum) -> u64 {
        self.0[sum as usize]
    }

    pub fn add(&mut self, other: &Sums) {
        for (into, from) in self.0.iter_mut().zip(other.0) {
            *into += from;
        }
    }

    /// Returns what was added since `earlier`, an older reading of the same tenant.
    pub fn since(&self, earlier: &Sums) -> Sums {
        let mut later = *self;
        for (into, from) in later.0.iter_mut().zip(earlier.0) {
            *into = into.saturating_sub(from);
        }
        later
    }

    pub fn is_zero(&self) -> bool {
        self.0.iter().all(|sum| *sum == 0)
    }

    /// Event loop time, by which tenants are ranked.
    pub fn loop_micros(&self) -> u64 {
        self.get(Sum::HandlingMicros) + self.get(Sum::SendingMicros)
    }

    #[cfg(test)]
    pub fn with(mut self, sum: Sum, value: u64) -> Sums {
        self.0[sum as usize] = value;
        self
    }
}

#[derive(Debug, Default)]
struct Account {
    generation: AtomicU32,
    sums: [AtomicU64; SUM_COUNT],
}

impl Account {
    fn read(&self) -> Sums {
        Sums(std::array::from_fn(|index| {
            self.sums[index].load(Ordering::Relaxed)
        }))
    }

    /// Only the loop that owns the account may call this: it is not an atomic addition.
    fn add(&self, sum: Sum, amount: u64) {
        let sum = &self.sums[sum as usize];
        sum.store(
            sum.load(Ordering::Relaxed).wrapping_add(amount),
            Ordering::Relaxed,
        );
    }
}

/// Accounts that are allocated together.
const PAGE_ACCOUNTS: usize = 64;

type Page = [Account; PAGE_ACCOUNTS];

/// The accounts of one loop, for all readers.
#[derive(Debug)]
pub struct Accounts {
    /// By tenant. A page is allocated when the first of its tenants comes.
    pages: Box<[OnceLock<Box<Page>>]>,
    /// The sum over tenants whose id has since been given to another.
    departed: Account,
}

impl Accounts {
    /// - `id_limit`: see `Tenants::id_limit`.
    pub fn new(id_limit: usize) -> Arc<Accounts> {
        let pages = id_limit.div_ceil(PAGE_ACCOUNTS);
        Arc::new(Accounts {
            pages: (0..pages).map(|_| OnceLock::new()).collect(),
            departed: Account::default(),
        })
    }

    /// Calls `visit` with the id, generation and sums of every tenant that has been served.
    pub fn read(&self, mut visit: impl FnMut(TenantId, u32, Sums)) {
        for (number, page) in self.pages.iter().enumerate() {
            let Some(page) = page.get() else { continue };
            for (index, account) in page.iter().enumerate() {
                let generation = account.generation.load(Ordering::Acquire);
                let sums = account.read();
                // The id was given to another tenant meanwhile: the next reading includes it.
                let is_whole = account.generation.load(Ordering::Acquire) == generation;
                if is_whole && !sums.is_zero() {
                    let id = TenantId((number * PAGE_ACCOUNTS + index) as u32);
                    visit(id, generation, sums);
                }
            }
        }
    }

    /// The sum over tenants that were forgotten.
    pub fn departed(&self) -> Sums {
        self.departed.read()
    }

    fn account(&self, id: TenantId) -> Option<&Account> {
        let page = self.pages.get(id.index() / PAGE_ACCOUNTS)?;
        let page = page.get_or_init(|| Box::new(std::array::from_fn(|_| Account::default())));
        Some(&page[id.index() % PAGE_ACCOUNTS])
    }
}

/// The exclusive right to write to the accounts of one loop.
#[derive(Debug)]
pub struct AccountBook(Arc<Accounts>);

impl AccountBook {
    pub fn new(accounts: Arc<Accounts>) -> AccountBook {
        AccountBook(accounts)
    }

    /// Opens the account of a tenant whose connection has come; sums of an earlier tenant with this
    /// id move to `departed`.
    pub fn open(&mut self, lease: &TenantLease) {
        let Some(account) = self.0.account(lease.id()) else {
            return;
        };
        if account.generation.load(Ordering::Relaxed) == lease.generation() {
            return;
        }
        for (sum, value) in Sum::ALL.into_iter().zip(account.read().0) {
            self.0.departed.add(sum, value);
            account.sums[sum as usize].store(0, Ordering::Relaxed);
        }
        account.generation.store(lease.generation(), Ordering::Release);
    }

    /// - Shape: few `amounts`; zero amounts cost nothing.
    pub fn add<const N: usize>(&mut self, tenant: TenantId, amounts: [(Sum, u64); N]) {
        if let Some(account) = self.0.account(tenant) {
            for (sum, amount) in amounts {
                if amount > 0 {
                    account.add(sum, amount);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ottla_core::tenant::{TenantClaim, TenantConfig, TenantLimits, Tenants};
    use ottla_core::time::Moment;
    use std::net::Ipv4Addr;

    fn lease(tenants: &Arc<Tenants>, client_id: &str) -> TenantLease {
        let claim = TenantClaim {
            principal: "User:ANONYMOUS",
            client_id: Some(client_id),
            address: Ipv4Addr::LOCALHOST.into(),
        };
        tenants.admit(&claim, Moment::from_micros(0))
    }

    fn read(accounts: &Accounts) -> Vec<(u32, u32, Sums)> {
        let mut all = Vec::new();
        accounts.read(|id, generation, sums| all.push((id.0, generation, sums)));
        all
    }

    #[test]
    fn sums_are_indexed_in_their_order() {
        for (index, sum) in Sum::ALL.into_iter().enumerate() {
            assert_eq!(sum as usize, index);
        }
    }

    #[test]
    fn amounts_add_up_by_tenant() {
        let accounts = Accounts::new(10_001);
        let mut book = AccountBook::new(accounts.clone());
        book.add(TenantId(3), [(Sum::Requests, 1), (Sum::BytesIn, 100)]);
        book.add(TenantId(3), [(Sum::Requests, 1), (Sum::BytesIn, 0)]);
        book.add(TenantId(10_000), [(Sum::SendingMicros, 7)]);
        // No tenant has this id; it must be ignored.
        book.add(TenantId(u32::MAX), [(Sum::Requests, 1)]);
        let expected = [
            (
                3,
                0,
                Sums::default().with(Sum::Requests, 2).with(Sum::BytesIn, 100),
            ),
            (10_000, 0, Sums::default().with(Sum::SendingMicros, 7)),
        ];
        assert_eq!(read(&accounts), expected);
    }

    #[test]
    fn the_next_tenant_of_an_id_begins_at_zero_and_nothing_is_lost() {
        let config = TenantConfig {
            limits: TenantLimits {
                known_max: 1,
                new_per_minute: 100,
            },
            ..TenantConfig::default()
        };
        let tenants = Arc::new(Tenants::new(config));
        let accounts = Accounts::new(tenants.id_limit());
        let mut book = AccountBook::new(accounts.clone());
        let first = lease(&tenants, "first");
        book.open(&first);
        book.add(first.id(), [(Sum::Records, 5)]);
        drop(first);
        let second = lease(&tenants, "second");
        book.open(&second);
        book.open(&second);
        book.add(second.id(), [(Sum::Records, 2)]);
        assert_eq!(read(&accounts), [(1, 1, Sums::default().with(Sum::Records, 2))]);
        assert_eq!(accounts.departed(), Sums::default().with(Sum::Records, 5));
    }

    #[test]
    fn a_reader_beside_the_writer_sees_sums_that_only_grow() {
        let accounts = Accounts::new(100);
        let mut book = AccountBook::new(accounts.clone());
        let reader = std::thread::spawn(move || {
            let mut last = 0;
            while last < 100_000 {
                let now = read(&accounts)
                    .first()
                    .map_or(0, |(_, _, sums)| sums.get(Sum::Requests));
                assert!(now >= last);
                last = now;
            }
        });
        for _ in 0..100_000 {
            book.add(TenantId(1), [(Sum::Requests, 1)]);
        }
        reader.join().unwrap();
    }
}
