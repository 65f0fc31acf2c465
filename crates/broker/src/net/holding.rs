//! The memory that one connection holds for what it has read and not served.

use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use ottla_core::tenant::TenantId;
use ottla_core::time::Moment;

use super::memory_budget::{Claim, MemoryBudget, Pocket};

/// Whoever holds memory that others wait for gets this long, and his bytes must come this fast then. Half a megabit per second is
/// slower than any line that carries requests of this size.
const STALL_GRACE: Duration = Duration::from_secs(10);
const ARRIVAL_BYTES_PER_SECOND_MIN: u64 = 64 * 1024;

/// What another thread may keep of a connection's request although there is no room: no more than a connection costs by itself.
const UNASKED_BYTES_MAX: usize = 4 * 1024;

/// How often it is looked whether others wait.
const STALL_LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// What a connection needs memory for.
#[derive(Clone, Copy, Debug)]
pub struct Need {
    /// The buffer that it has.
    pub buffer_bytes: usize,
    /// The buffer that its request will have when it is whole; 0 when nothing more is awaited.
    pub request_bytes: usize,
}

/// Usually nothing.
#[derive(Debug, Default)]
pub struct Holding {
    pocket_bytes: usize,
    /// For one request that has not arrived whole, the first one that is not served.
    claim: Option<Claim>,
    /// Since when `claim` is more than a place among those who wait.
    given: Option<Moment>,
    is_served: bool,
    held: Option<Held>,
}

/// Where the memory of a request comes from that was handed to another thread and not begun by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    Pocket(usize),
    Claim,
}

impl Holding {
    /// It must not read: the memory for its request is not there.
    pub fn is_waiting(&self) -> bool {
        self.claim.is_some() && self.given.is_none()
    }

    /// It holds what others may wait for, until one request is served: nothing must keep it from reading and serving that one.
    pub fn is_entitled(&self) -> bool {
        self.given.is_some() && !self.is_served && !self.holds_claim()
    }

    /// Whether the memory that it waited for was given since the last look. It is for what the connection's buffer has, or for a
    /// request that will leave that: then the buffer counts on.
    pub fn look(&mut self, pocket: &Pocket, now: Moment, is_for_buffer: bool) -> bool {
        let is_given = self.is_waiting() && self.claim.as_ref().is_some_and(Claim::is_given);
        if is_given {
            self.given = Some(now);
            if is_for_buffer {
                self.keep_in_pocket(pocket, 0);
            }
        }
        is_given
    }

    pub fn request_served(&mut self) {
        self.is_served = self.given.is_some() && !self.holds_claim();
    }

    /// The request that is being served outlives its buffer: its `bytes` count until [`Holding::release_held`].
    pub fn hold(&mut self, pocket: &Pocket, bytes: usize) {
        // What the request before it had.
        self.release_served();
        self.held = Some(if self.given.is_some() {
            Held::Claim
        } else {
            // There is room: see `must_ask_before_serving`. Who is small enough not to be asked may exceed it.
            pocket.exchange(0, bytes);
            Held::Pocket(bytes)
        });
    }

    /// Whether a request of so many bytes must get memory of the common part before it is served, because another thread may keep it.
    pub fn must_ask_before_serving(&self, pocket: &Pocket, bytes: usize) -> bool {
        bytes > UNASKED_BYTES_MAX && !self.is_entitled() && !pocket.has_room(bytes)
    }

    pub fn release_held(&mut self, pocket: &Pocket) {
        match self.held.take() {
            Some(Held::Pocket(bytes)) => pocket.exchange(bytes, 0),
            Some(Held::Claim) => (self.claim, self.given) = (None, None),
            None => {}
        }
    }

    fn holds_claim(&self) -> bool {
        self.held == Some(Held::Claim)
    }

    /// Nothing is left over; who waits, or was given memory and has read nothing yet, keeps his place.
    pub fn keep_nothing(&mut self, pocket: &Pocket) {
        self.release_served();
        if self.pocket_bytes > 0 {
            self.keep_in_pocket(pocket, 0);
        }
    }

    /// Takes memory for what is left over. What is in the buffer already comes from the pocket, which had room before it was read.
    pub fn keep(
        &mut self,
        need: Need,
        (budget, pocket): (&Arc<MemoryBudget>, &Pocket),
        (tenant, now): (TenantId, Moment),
        waker: impl FnOnce() -> Waker,
    ) {
        self.release_served();
        if self.is_entitled() {
            return;
        }
        if self.holds_claim() {
            self.keep_in_pocket(pocket, need.buffer_bytes);
            return;
        }
        let more_bytes = need.request_bytes.saturating_sub(self.pocket_bytes);
        if need.request_bytes <= need.buffer_bytes || self.is_waiting() {
            self.keep_in_pocket(pocket, need.buffer_bytes);
        } else if need.request_bytes <= pocket.request_bytes_max() && pocket.has_room(more_bytes) {
            self.keep_in_pocket(pocket, need.request_bytes);
        } else {
            self.claim(budget, (tenant, now), need.request_bytes, waker);
            let in_pocket = match self.given {
                Some(_) => 0,
                None => need.buffer_bytes,
            };
            self.keep_in_pocket(pocket, in_pocket);
        }
    }

    /// Asks the common part for a request of so many bytes that is whole and not served.
    pub fn ask(
        &mut self,
        request_bytes: usize,
        budget: &Arc<MemoryBudget>,
        who: (TenantId, Moment),
        waker: impl FnOnce() -> Waker,
    ) {
        self.release_served();
        self.claim(budget, who, request_bytes, waker);
    }

    fn claim(
        &mut self,
        budget: &Arc<MemoryBudget>,
        (tenant, now): (TenantId, Moment),
        request_bytes: usize,
        waker: impl FnOnce() -> Waker,
    ) {
        let claim = budget.claim(tenant, request_bytes, waker);
        self.given = claim.is_given().then_some(now);
        self.claim = Some(claim);
    }

    /// The connection is gone. The claim goes with it.
    pub fn leave(&self, pocket: &Pocket) {
        let held = match self.held {
            Some(Held::Pocket(bytes)) => bytes,
            _ => 0,
        };
        pocket.exchange(self.pocket_bytes + held, 0);
    }

    /// By when a request of which so much has arrived must have come further if others wait for its memory.
    pub fn stalls_at(&self, arrived_bytes: usize) -> Option<Moment> {
        let given = self.given.filter(|_| !self.is_served && self.held.is_none())?;
        let earned_ms = arrived_bytes as u64 * 1_000 / ARRIVAL_BYTES_PER_SECOND_MIN;
        Some(given.after(STALL_GRACE).after_ms(earned_ms))
    }

    /// When to look whether it is in the way of others.
    pub fn next_look(&self, arrived_bytes: usize, now: Moment) -> Option<Moment> {
        let stalls_at = self.stalls_at(arrived_bytes)?;
        Some(stalls_at.max(now.after(STALL_LOOK_INTERVAL)))
    }

    fn keep_in_pocket(&mut self, pocket: &Pocket, bytes: usize) {
        pocket.exchange(self.pocket_bytes, bytes);
        self.pocket_bytes = bytes;
    }

    fn release_served(&mut self) {
        if std::mem::take(&mut self.is_served) {
            (self.claim, self.given) = (None, None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    struct Fixture {
        budget: Arc<MemoryBudget>,
        pocket: Arc<Pocket>,
    }

    fn fixture() -> Fixture {
        let budget = Arc::new(MemoryBudget::new(8 * MIB, 2, 4 * MIB));
        let pocket = budget.pocket(0);
        Fixture { budget, pocket }
    }

    impl Fixture {
        fn keep(&self, holding: &mut Holding, buffer_bytes: usize, request_bytes: usize) {
            let need = Need {
                buffer_bytes,
                request_bytes,
            };
            holding.keep(
                need,
                (&self.budget, &self.pocket),
                (TenantId(1), Moment(0)),
                || Waker::noop().clone(),
            );
        }
    }

    #[test]
    fn small_requests_come_out_of_the_pocket_and_large_ones_out_of_the_common_part() {
        let fixture = fixture();
        let mut small = Holding::default();
        fixture.keep(&mut small, 4_096, 65_536);
        assert!(!small.is_entitled() && !small.is_waiting());
        assert_eq!(fixture.pocket.used_bytes(), 65_536);
        let mut large = Holding::default();
        fixture.keep(&mut large, 4_096, 4 * MIB);
        assert!(large.is_entitled());
        assert_eq!(
            (fixture.pocket.used_bytes(), fixture.budget.used_bytes()),
            (65_536, 65_536 + 4 * MIB)
        );
        small.keep_nothing(&fixture.pocket);
        large.request_served();
        large.keep_nothing(&fixture.pocket);
        assert_eq!(fixture.budget.used_bytes(), 0);
    }

    #[test]
    fn who_waits_keeps_what_has_arrived_and_goes_on_when_it_is_given() {
        let fixture = fixture();
        let (mut first, mut second) = (Holding::default(), Holding::default());
        fixture.keep(&mut first, 4_096, 4 * MIB);
        fixture.keep(&mut second, 200_000, 4 * MIB);
        assert!(second.is_waiting() && !second.is_entitled());
        assert_eq!(fixture.pocket.used_bytes(), 200_000);
        assert!(!second.look(&fixture.pocket, Moment(1), true));
        drop(first);
        assert!(
            second.look(&fixture.pocket, Moment(1), true) && !second.look(&fixture.pocket, Moment(1), true)
        );
        assert!(second.is_entitled());
        assert_eq!(
            (fixture.pocket.used_bytes(), fixture.budget.used_bytes()),
            (0, 4 * MIB)
        );
        second.leave(&fixture.pocket);
        drop(second);
        assert_eq!(fixture.budget.used_bytes(), 0);
    }

    #[test]
    fn what_is_left_over_of_served_requests_is_counted_as_it_shrinks() {
        let fixture = fixture();
        let mut holding = Holding::default();
        fixture.keep(&mut holding, 262_144, 0);
        fixture.keep(&mut holding, 262_144, 100_000);
        assert_eq!(fixture.pocket.used_bytes(), 262_144);
        fixture.keep(&mut holding, 4_096, 0);
        assert_eq!(fixture.pocket.used_bytes(), 4_096);
        holding.leave(&fixture.pocket);
        assert_eq!(fixture.pocket.used_bytes(), 0);
    }

    #[test]
    fn what_was_handed_on_counts_until_it_is_begun() {
        let fixture = fixture();
        let mut large = Holding::default();
        fixture.keep(&mut large, 4_096, 4 * MIB);
        large.hold(&fixture.pocket, 4 * MIB);
        large.request_served();
        large.keep_nothing(&fixture.pocket);
        fixture.keep(&mut large, 131_072, 262_144);
        assert_eq!(fixture.budget.used_bytes(), 4 * MIB + 131_072);
        assert!(!large.is_entitled() && !large.is_waiting() && large.stalls_at(0).is_none());
        large.release_held(&fixture.pocket);
        assert_eq!(fixture.budget.used_bytes(), 131_072);
        large.keep_nothing(&fixture.pocket);
        assert_eq!(fixture.budget.used_bytes(), 0);

        let mut small = Holding::default();
        small.hold(&fixture.pocket, 50_000);
        small.request_served();
        small.keep_nothing(&fixture.pocket);
        assert_eq!(fixture.pocket.used_bytes(), 50_000);
        small.release_held(&fixture.pocket);
        small.hold(&fixture.pocket, 60_000);
        small.leave(&fixture.pocket);
        assert_eq!(fixture.pocket.used_bytes(), 0);
    }

    #[test]
    fn what_may_be_handed_on_asks_when_the_pocket_is_full() {
        let fixture = fixture();
        let mut holding = Holding::default();
        assert!(!holding.must_ask_before_serving(&fixture.pocket, 200_000));
        fixture.pocket.exchange(0, MIB - 100_000);
        assert!(holding.must_ask_before_serving(&fixture.pocket, 200_000));
        assert!(
            !holding.must_ask_before_serving(&fixture.pocket, 4_096),
            "it costs less than its connection"
        );
        fixture.keep(&mut holding, 0, 262_144);
        assert!(
            !holding.must_ask_before_serving(&fixture.pocket, 200_000),
            "it has"
        );
        holding.request_served();
        assert!(
            holding.must_ask_before_serving(&fixture.pocket, 200_000),
            "the next has not"
        );
    }

    #[test]
    fn bytes_that_come_buy_time() {
        let fixture = fixture();
        let mut holding = Holding::default();
        assert_eq!(holding.stalls_at(1), None);
        fixture.keep(&mut holding, 4_096, 4 * MIB);
        assert_eq!(holding.stalls_at(0), Some(Moment(10_000_000)));
        assert_eq!(holding.stalls_at(MIB), Some(Moment(26_000_000)));
        assert_eq!(holding.next_look(0, Moment(0)), Some(Moment(10_000_000)));
        assert_eq!(holding.next_look(0, Moment(60_000_000)), Some(Moment(61_000_000)));
    }
}
