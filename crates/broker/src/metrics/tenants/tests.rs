//! The history of accounts over a minute and an hour.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU64, Ordering};

use ottla_core::tenant::{TenantClaim, TenantConfig, TenantLease, TenantLimits};
use ottla_core::time::Timestamp;

use super::*;
use crate::metrics::accounts::AccountBook;

#[derive(Debug, Default)]
struct TestClock(AtomicU64);

impl Clock for TestClock {
    fn moment(&self) -> Moment {
        Moment::from_micros(self.0.load(Ordering::Relaxed))
    }

    fn timestamp(&self) -> Timestamp {
        Timestamp(0)
    }
}

struct Shop {
    books: TenantBooks,
    loops: Vec<AccountBook>,
    tenants: Arc<Tenants>,
    clock: Arc<TestClock>,
}

impl Shop {
    fn open(known_max: usize) -> Shop {
        let tenants = Arc::new(Tenants::new(TenantConfig {
            limits: TenantLimits {
                known_max,
                new_per_minute: u32::MAX,
            },
            ..TenantConfig::default()
        }));
        let accounts: Vec<Arc<Accounts>> = (0..2).map(|_| Accounts::new(tenants.id_limit())).collect();
        let clock = Arc::new(TestClock::default());
        let records = Records((0..2).map(|_| Arc::default()).collect());
        Shop {
            books: TenantBooks::new(tenants.clone(), accounts.clone(), records, clock.clone()),
            loops: accounts.into_iter().map(AccountBook::new).collect(),
            tenants,
            clock,
        }
    }

    fn lease(&mut self, client_id: &str) -> TenantLease {
        let claim = TenantClaim {
            principal: "User:ANONYMOUS",
            client_id: Some(client_id),
            address: Ipv4Addr::LOCALHOST.into(),
        };
        let lease = self.tenants.admit(&claim, self.clock.moment());
        self.loops.iter_mut().for_each(|book| book.open(&lease));
        lease
    }

    /// Lets time pass in which each tenant takes its share of both loops.
    fn pass(&mut self, seconds: u64, shares: &[(&TenantLease, f64)]) {
        for _ in 0..seconds / 15 {
            self.clock.0.fetch_add(15_000_000, Ordering::Relaxed);
            for (lease, share) in shares {
                let micros = (15_000_000.0 * share) as u64;
                for book in &mut self.loops {
                    let amounts = [
                        (Sum::HandlingMicros, micros / 2),
                        (Sum::SendingMicros, micros / 2),
                    ];
                    book.add(lease.id(), amounts);
                }
            }
            self.books.look();
        }
    }
}

#[test]
fn a_window_is_a_minute_and_the_heaviest_comes_first() {
    let mut shop = Shop::open(100);
    let (light, heavy) = (shop.lease("light"), shop.lease("heavy"));
    shop.pass(600, &[(&light, 0.3), (&heavy, 0.01)]);
    shop.pass(60, &[(&light, 0.05), (&heavy, 0.4)]);
    let reading = shop.books.read();
    assert_eq!(reading.window_micros, 60_000_000);
    assert_eq!(reading.available_micros(), 120_000_000);
    let names: Vec<&str> = reading.tenants.iter().map(|row| &*row.name.name).collect();
    assert_eq!(names, ["heavy", "light"]);
    assert_eq!(reading.tenants[0].window.loop_micros(), 48_000_000);
    assert_eq!(reading.charged_micros(), 54_000_000);
    let (heaviest, other) = reading.heaviest(1);
    assert_eq!(&*heaviest[0].name.name, "light");
    assert_eq!(other.loop_micros(), 48_000_000 + 12_000_000);
}

/// Regression: idle gauges once covered the time since the last scrape, so two scrapers halved each
/// other's window.
#[test]
fn a_frequent_reader_does_not_change_the_window_of_others() {
    let mut shop = Shop::open(100);
    shop.pass(600, &[]);
    for _ in 0..4 {
        shop.books.records.0[0].lock().unwrap().busy_micros += 3_000_000;
        shop.pass(15, &[]);
        shop.books.read();
    }
    let reading = shop.books.read();
    assert_eq!(
        (reading.busy_micros, reading.available_micros()),
        (12_000_000, 120_000_000)
    );
    assert_eq!(shop.books.read(), reading);
}

#[test]
fn an_hour_is_remembered_minute_by_minute() {
    let mut shop = Shop::open(100);
    let tenant = shop.lease("t");
    shop.pass(3_600, &[(&tenant, 0.06)]);
    shop.pass(180, &[(&tenant, 0.41)]);
    let reading = shop.books.read();
    assert_eq!(reading.past_minutes, 60);
    let past = &reading.tenants[0].past_shares;
    assert_eq!(past.len(), 60);
    assert!(
        (past[0] - 0.41).abs() < 0.001 && (past[2] - 0.41).abs() < 0.001,
        "{past:?}"
    );
    assert!(
        (past[3] - 0.06).abs() < 0.001 && (past[59] - 0.06).abs() < 0.001,
        "{past:?}"
    );
}

#[test]
fn the_cost_of_a_forgotten_tenant_stays_in_the_sum_and_its_history_is_not_inherited() {
    let mut shop = Shop::open(1);
    let first = shop.lease("first");
    shop.pass(120, &[(&first, 0.5)]);
    drop(first);
    let second = shop.lease("second");
    let before = shop.books.read();
    assert_eq!(before.tenants.len(), 1);
    assert_eq!(before.tenants[0].total.loop_micros(), 0);
    shop.pass(60, &[(&second, 0.1)]);
    let reading = shop.books.read();
    assert_eq!(reading.tenants.len(), 1);
    assert_eq!(&*reading.tenants[0].name.name, "second");
    assert_eq!(reading.tenants[0].total.loop_micros(), 12_000_000);
    assert_eq!(reading.tenants[0].past_shares.len(), 1);
    assert_eq!(reading.departed.loop_micros(), 120_000_000);
    assert_eq!(
        reading.total(Sum::HandlingMicros) + reading.total(Sum::SendingMicros),
        132_000_000
    );
}

#[test]
fn transient_tenants_do_not_fill_the_memory() {
    let mut shop = Shop::open(50);
    for number in 0..500 {
        let lease = shop.lease(&format!("n{number}"));
        shop.pass(15, &[(&lease, 0.5)]);
    }
    let history = shop.books.lock();
    assert!(history.looks.iter().all(|look| look.sums.len() <= 51));
    assert!(history.minutes.iter().all(|minute| minute.len() <= 51));
}

#[test]
fn readings_stay_sane_when_the_clock_jumps() {
    let mut shop = Shop::open(10);
    let lease = shop.lease("orders");
    for now in [
        0,
        86_400_000_000,
        u64::MAX,
        0,
        15_000_000,
        30_000_000,
        120_000_000,
    ] {
        shop.clock.0.store(now, Ordering::Relaxed);
        shop.loops[0].add(lease.id(), [(Sum::HandlingMicros, 1_000)]);
        shop.books.look();
        let reading = shop.books.read();
        assert!(reading.available_micros() >= reading.window_micros);
        let shares = reading.tenants.iter().flat_map(|row| &row.past_shares);
        assert!(
            shares.clone().all(|share| share.is_finite() && *share >= 0.0),
            "{reading:?}"
        );
    }
    let reading = shop.books.read();
    assert_eq!(reading.total(Sum::HandlingMicros), 7_000);
}
