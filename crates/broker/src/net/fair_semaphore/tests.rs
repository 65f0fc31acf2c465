//! Turns and bounds by hand, and a seeded crowd: no deadlock, no leak, no starvation, the limit
//! holds.

use std::collections::BTreeSet;

use ottla_core::random::Random;

use super::*;

const A: TenantId = TenantId(1);
const B: TenantId = TenantId(2);
const C: TenantId = TenantId(3);

fn is_idle<W>(semaphore: &FairSemaphore<W>) -> bool {
    semaphore.used_by.is_empty() && semaphore.waiting.is_empty() && semaphore.starving.is_none()
}

/// Takes memory; true when it is granted at once.
fn acquire(
    semaphore: &mut FairSemaphore<&'static str>,
    tenant: TenantId,
    bytes: usize,
    name: &'static str,
) -> bool {
    semaphore.acquire(tenant, bytes, || name).is_none()
}

fn release(semaphore: &mut FairSemaphore<&'static str>, tenant: TenantId, bytes: usize) -> Vec<&'static str> {
    let mut granted = Vec::new();
    semaphore.release(tenant, bytes, &mut granted);
    granted
}

#[test]
fn one_tenant_comes_to_half_and_the_next_finds_room() {
    let mut semaphore = FairSemaphore::new(1_000);
    let held = (0..20).filter(|_| acquire(&mut semaphore, A, 100, "a")).count();
    assert_eq!(held, 5);
    let held = (0..20).filter(|_| acquire(&mut semaphore, B, 100, "b")).count();
    assert_eq!(held, 2, "as much as is then left free");
    assert!(acquire(&mut semaphore, C, 100, "c"));
    assert_eq!((semaphore.used_bytes(), semaphore.waiting()), (800, 33));
}

#[test]
fn a_tenant_that_holds_nothing_may_have_all_that_is_free() {
    let mut semaphore = FairSemaphore::new(1_000);
    assert!(acquire(&mut semaphore, A, 1_000, "all of it"));
    assert!(!acquire(&mut semaphore, A, 1, "its own next"));
    assert!(!acquire(&mut semaphore, B, 1, "another's"));
    assert_eq!(release(&mut semaphore, A, 1_000), ["another's", "its own next"]);
}

#[test]
fn tenants_take_turns_and_the_order_within_a_tenant_holds() {
    let mut semaphore = FairSemaphore::new(100);
    assert!(acquire(&mut semaphore, C, 100, "first"));
    for name in ["a1", "a2", "a3"] {
        acquire(&mut semaphore, A, 100, name);
    }
    acquire(&mut semaphore, B, 100, "b1");
    let mut order = release(&mut semaphore, C, 100);
    for tenant in [A, B, A] {
        order.extend(release(&mut semaphore, tenant, 100));
    }
    assert_eq!(order, ["a1", "b1", "a2", "a3"]);
    assert_eq!(release(&mut semaphore, A, 100), [""; 0]);
    assert!(is_idle(&semaphore));
}

#[test]
fn a_tenant_that_waits_for_its_own_requests_blocks_no_other() {
    let mut semaphore = FairSemaphore::new(1_000);
    for _ in 0..1_000 {
        acquire(&mut semaphore, A, 400, "giant");
    }
    assert_eq!(semaphore.used_bytes(), 400);
    for _ in 0..10_000 {
        assert!(acquire(&mut semaphore, B, 100, "b"));
        assert_eq!(release(&mut semaphore, B, 100), [""; 0]);
    }
}

#[test]
fn a_large_request_is_overtaken_by_at_most_the_limit() {
    let mut semaphore = FairSemaphore::new(1_000);
    assert!(acquire(&mut semaphore, A, 300, "a"));
    assert!(!acquire(&mut semaphore, B, 800, "large"));
    let mut passed = 0;
    while acquire(&mut semaphore, C, 100, "small") {
        passed += 100;
        assert_eq!(release(&mut semaphore, C, 100), [""; 0]);
    }
    assert_eq!(passed, 1_000);
    assert_eq!(release(&mut semaphore, A, 300), ["large", "small"]);
}

#[test]
fn a_waiter_that_leaves_makes_room_for_those_behind_it() {
    let mut semaphore = FairSemaphore::new(1_000);
    assert!(acquire(&mut semaphore, A, 500, "a"));
    let large = semaphore.acquire(B, 900, || "large").unwrap();
    assert!(acquire(&mut semaphore, C, 300, "c"));
    let next = semaphore.acquire(B, 200, || "next").unwrap();
    let mut granted = Vec::new();
    assert!(semaphore.cancel(B, large, &mut granted));
    assert_eq!(granted, ["next"]);
    assert!(!semaphore.cancel(B, next, &mut granted), "granted before");
    assert!(!semaphore.cancel(B, large, &mut granted), "gone");
}

/// Requests that ask, wait, arrive, are served, or vanish, in an order drawn from the seed.
struct Crowd {
    semaphore: FairSemaphore<usize>,
    random: Random,
    limit_bytes: usize,
    /// By number: tenant and bytes.
    requests: Vec<(TenantId, usize)>,
    waiting: BTreeMap<usize, Ticket>,
    held: BTreeSet<usize>,
}

impl Crowd {
    fn new(seed: u64) -> Crowd {
        let limit_bytes = 10_000;
        Crowd {
            semaphore: FairSemaphore::new(limit_bytes),
            random: Random::new([seed, 7, 7, 7]),
            limit_bytes,
            requests: Vec::new(),
            waiting: BTreeMap::new(),
            held: BTreeSet::new(),
        }
    }

    fn below(&self, bound: u64) -> u64 {
        self.random.next() % bound
    }

    fn come(&mut self, tenants: u64) {
        // Some tenants send only large requests.
        let tenant = TenantId(self.below(tenants) as u32);
        let bytes_max = if tenant.0.is_multiple_of(3) {
            self.limit_bytes
        } else {
            self.limit_bytes / 50
        };
        let bytes = 1 + self.below(bytes_max as u64) as usize;
        let number = self.requests.len();
        self.requests.push((tenant, bytes));
        match self.semaphore.acquire(tenant, bytes, || number) {
            Some(ticket) => drop(self.waiting.insert(number, ticket)),
            None => drop(self.held.insert(number)),
        }
    }

    /// The held request with this number becomes whole and is served, or its connection closes.
    fn finish(&mut self, number: usize) {
        let (tenant, bytes) = self.requests[number];
        let mut granted = Vec::new();
        if let Some(ticket) = self.waiting.remove(&number) {
            assert!(self.semaphore.cancel(tenant, ticket, &mut granted));
        } else {
            assert!(self.held.remove(&number));
            self.semaphore.release(tenant, bytes, &mut granted);
        }
        for number in granted {
            assert!(self.waiting.remove(&number).is_some());
            self.held.insert(number);
        }
    }

    fn some(&mut self, of: &[usize]) -> Option<usize> {
        (!of.is_empty()).then(|| of[self.below(of.len() as u64) as usize])
    }

    fn check(&self) {
        let sum: usize = self.held.iter().map(|number| self.requests[*number].1).sum();
        assert_eq!(self.semaphore.used_bytes(), sum);
        assert!(sum <= self.limit_bytes);
        assert_eq!(self.semaphore.waiting(), self.waiting.len());
        assert!(
            self.waiting.is_empty() || sum > 0,
            "a request waits while none holds memory"
        );
    }
}

#[test]
fn no_request_waits_for_ever_and_no_memory_leaks() {
    for seed in 0..200 {
        let mut crowd = Crowd::new(seed);
        let tenants = 1 + seed % 120;
        for _ in 0..600 {
            let held: Vec<usize> = crowd.held.iter().copied().collect();
            let waiting: Vec<usize> = crowd.waiting.keys().copied().collect();
            match crowd.below(10) {
                0..=4 => crowd.come(tenants),
                5..=8 => {
                    if let Some(number) = crowd.some(&held) {
                        crowd.finish(number);
                    }
                }
                _ => {
                    if let Some(number) = crowd.some(&waiting) {
                        crowd.finish(number);
                    }
                }
            }
            crowd.check();
        }
        // Now only holders finish, while others keep coming: each waiter gets its turn in bounded
        // time.
        let waiters: Vec<usize> = crowd.waiting.keys().copied().collect();
        let mut steps = 0;
        while waiters.iter().any(|number| crowd.waiting.contains_key(number)) {
            let oldest = *crowd.held.first().unwrap();
            crowd.finish(oldest);
            crowd.come(tenants);
            crowd.check();
            steps += 1;
            assert!(steps < 20_000, "seed {seed}: a waiter starves");
        }
        while let Some(number) = crowd.held.first().copied() {
            crowd.finish(number);
            crowd.check();
        }
        assert!(crowd.waiting.is_empty());
        assert!(is_idle(&crowd.semaphore), "seed {seed}: {:?}", crowd.semaphore);
    }
}

#[test]
fn ten_thousand_waiters_cost_one_look_and_no_search() {
    let mut semaphore = FairSemaphore::new(1_000);
    assert!(acquire(&mut semaphore, A, 1_000, "a"));
    let tickets: Vec<(TenantId, Ticket)> = (10..10_010)
        .map(|id| {
            (
                TenantId(id),
                semaphore.acquire(TenantId(id), 1_000, || "w").unwrap(),
            )
        })
        .collect();
    for (id, ticket) in tickets.into_iter().rev() {
        let mut granted = Vec::new();
        assert!(semaphore.cancel(id, ticket, &mut granted) && granted.is_empty());
    }
    assert_eq!(release(&mut semaphore, A, 1_000), [""; 0]);
    assert!(is_idle(&semaphore));
}
