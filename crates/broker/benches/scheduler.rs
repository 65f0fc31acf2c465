//! The cost of the scheduler and the accounts per turn: `cargo bench -p ottla-broker`.
//!
//! No sockets and no requests, only scheduling, charging and accounting. Times are CPU times of the
//! thread, so that other load on the machine does not matter; minimum of several rounds.

use std::hint::black_box;

use ottla_broker::metrics::accounts::{AccountBook, Accounts, Sum};
use ottla_broker::net::scheduler::Scheduler;
use ottla_core::tenant::TenantId;

const TURNS: u64 = 2_000_000;
const ROUNDS: usize = 7;

fn main() {
    println!("ready tenants  known tenants  turn costs     ns/turn");
    for (ready, known, micros) in [
        (1, 10, 20),
        (1, 10_000, 20),
        (10, 10, 20),
        (10, 10_000, 20),
        (10, 10_000, 400),
        (1_000, 10_000, 20),
        (1_000, 10_000, 400),
    ] {
        let nanos = (0..ROUNDS)
            .map(|_| nanos_per_turn(ready, known, micros))
            .fold(f64::INFINITY, f64::min);
        println!("{ready:>13}  {known:>13}  {micros:>7} us  {nanos:>9.1}");
    }
}

/// `ready` tenants that always have work, out of `known` tenants in all.
fn nanos_per_turn(ready: u32, known: u32, micros: u64) -> f64 {
    let mut scheduler = Scheduler::default();
    let mut book = AccountBook::new(Accounts::new(known as usize + 1));
    for tenant in 1..=known {
        scheduler.push(TenantId(tenant), tenant);
    }
    while let Some(_once) = scheduler.next_ready() {
        scheduler.charge(micros);
    }
    // Spread over the known ids, as in practice.
    for number in 0..ready {
        let tenant = 1 + number * (known / ready).max(1);
        scheduler.push(TenantId(tenant), tenant);
    }
    let start = cpu_nanos();
    for _ in 0..TURNS {
        let ready = scheduler.next_ready().expect("a tenant is always ready");
        let waiting = scheduler.charge(black_box(micros));
        let amounts = [
            (Sum::HandlingMicros, micros),
            (Sum::SendingMicros, 1),
            (Sum::InflictedMicros, waiting.inflicted_micros),
            (Sum::SufferedMicros, waiting.suffered_micros),
        ];
        book.add(ready.tenant, amounts);
        scheduler.push(ready.tenant, ready.connection);
    }
    (cpu_nanos() - start) as f64 / TURNS as f64
}

fn cpu_nanos() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
