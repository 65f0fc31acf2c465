//! The memory that one connection holds: for bytes read and not served, and for answers that its
//! client has not taken.

use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use ottla_core::tenant::TenantId;
use ottla_core::time::Moment;

use super::memory_budget::{Claim, MemoryBudget, Pocket};

/// A holder of memory that others wait for gets this grace period; after it, its bytes must come,
/// or go, at least this fast. Half a megabit per second is slower than any line that carries
/// requests and answers of this size.
const STALL_GRACE: Duration = Duration::from_secs(10);
const BYTES_PER_SECOND_MIN: u64 = 64 * 1024;

/// What serving a request may leave behind even without room: no more than a connection costs by
/// itself.
const UNASKED_BYTES_MAX: usize = 4 * 1024;

/// Answers that shrink by less keep their memory: each change takes a lock.
const ANSWERS_STEP_BYTES: usize = 64 * 1024;

/// How often to check whether others wait.
const STALL_LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// The memory that a connection needs for reading.
#[derive(Clone, Copy, Debug)]
pub struct Need {
    /// The size of its current buffer.
    pub buffer_bytes: usize,
    /// The size of the buffer for the whole request; 0 when no more bytes are expected.
    pub request_bytes: usize,
}

/// The memory that one connection holds; usually none.
#[derive(Debug, Default)]
pub struct Holding {
    pocket_bytes: usize,
    /// For one incomplete request, the first that is not served.
    claim: Option<Claim>,
    /// Since when `claim` is granted rather than waiting.
    given: Option<Moment>,
    is_served: bool,
    /// Answers: what is not in `answers` is in the pocket.
    answers_in_pocket: usize,
    answers: Option<Claim>,
}

impl Holding {
    /// Whether it must not be read because memory for its request is not granted yet.
    pub fn is_waiting(&self) -> bool {
        self.claim.is_some() && self.given.is_none()
    }

    /// Whether it holds memory, granted for one request, that others may wait for: nothing must
    /// keep it from reading and serving that request.
    pub fn is_entitled(&self) -> bool {
        self.given.is_some() && !self.is_served
    }

    /// Whether the awaited memory has been granted since the last look. With `is_for_buffer` it
    /// covers the connection's buffer; otherwise it is for a request that will leave the buffer,
    /// which stays counted.
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
        self.is_served = self.given.is_some();
    }

    /// Whether a request must get memory of the common part before it is served, given that serving
    /// it may leave `bytes` behind, with another thread or as its answer: what does not fit into
    /// the pocket goes there.
    pub fn must_ask_before_serving(&self, pocket: &Pocket, bytes: usize) -> bool {
        bytes > UNASKED_BYTES_MAX && !self.is_entitled() && !fits_as_answer(pocket, bytes, bytes)
    }

    /// Sets the memory of the connection's answers, including what it keeps until they are ready.
    pub fn keep_answers(
        &mut self,
        bytes: usize,
        (budget, pocket): (&Arc<MemoryBudget>, &Pocket),
        tenant: TenantId,
    ) {
        let more_bytes = bytes.saturating_sub(self.answers_in_pocket);
        let is_small = fits_as_answer(pocket, bytes, more_bytes);
        let in_pocket = if is_small { bytes } else { 0 };
        if in_pocket != self.answers_in_pocket {
            pocket.exchange(self.answers_in_pocket, in_pocket);
            self.answers_in_pocket = in_pocket;
        }
        let in_common = bytes - in_pocket;
        let held_bytes = self.answers.as_ref().map_or(0, Claim::bytes);
        let is_near = in_common > 0
            && held_bytes
                .checked_sub(in_common)
                .is_some_and(|less| less < ANSWERS_STEP_BYTES);
        if in_common != held_bytes && !is_near {
            // Take the new claim before giving the old one back, so that no waiter is granted
            // memory in use.
            let claim = (in_common > 0).then(|| budget.take_unasked(tenant, in_common));
            self.answers = claim;
        }
    }

    /// Nothing is left over; a connection that waits, or has been granted memory and not read yet,
    /// keeps its place.
    pub fn keep_nothing(&mut self, pocket: &Pocket) {
        self.release_served();
        if self.pocket_bytes > 0 {
            self.keep_in_pocket(pocket, 0);
        }
    }

    /// Takes memory for what is left over. What is already in the buffer comes from the pocket,
    /// which had room before it was read.
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

    /// Asks the common part for `bytes`, for a request that is whole and not served.
    pub fn ask(
        &mut self,
        bytes: usize,
        budget: &Arc<MemoryBudget>,
        who: (TenantId, Moment),
        waker: impl FnOnce() -> Waker,
    ) {
        self.release_served();
        self.claim(budget, who, bytes, waker);
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

    /// Gives everything back when the connection is closed. Claims are given back when dropped.
    pub fn leave(&self, pocket: &Pocket) {
        pocket.exchange(self.pocket_bytes + self.answers_in_pocket, 0);
    }

    /// By when a request with `arrived_bytes` must have progressed if others wait for its memory.
    pub fn stalls_at(&self, arrived_bytes: usize) -> Option<Moment> {
        let given = self.given.filter(|_| !self.is_served)?;
        Some(stalls_at(given, arrived_bytes as u64))
    }

    /// By when a client that has been stuck since `stuck`, and has taken `taken_bytes` since, must
    /// have taken more if others wait.
    pub fn reader_stalls_at(&self, stuck: Moment, taken_bytes: u64) -> Option<Moment> {
        self.answers.as_ref().map(|_| stalls_at(stuck, taken_bytes))
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

/// Whether an answer fits into the pocket, where it stays until a client reads it; `more_bytes` of
/// it are not counted yet.
fn fits_as_answer(pocket: &Pocket, bytes: usize, more_bytes: usize) -> bool {
    bytes <= pocket.request_bytes_max() && (more_bytes == 0 || pocket.has_room_for_answers(more_bytes))
}

fn stalls_at(since: Moment, moved_bytes: u64) -> Moment {
    let earned_ms = moved_bytes * 1_000 / BYTES_PER_SECOND_MIN;
    since.after(STALL_GRACE).after_ms(earned_ms)
}

/// When to check whether a holder that stalls at `stalls_at` blocks others.
pub fn next_look(stalls_at: Moment, now: Moment) -> Moment {
    stalls_at.max(now.after(STALL_LOOK_INTERVAL))
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
                (TenantId(1), Moment::from_micros(0)),
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
    fn a_waiter_keeps_what_has_arrived_and_goes_on_when_memory_is_given() {
        let fixture = fixture();
        let (mut first, mut second) = (Holding::default(), Holding::default());
        fixture.keep(&mut first, 4_096, 4 * MIB);
        fixture.keep(&mut second, 200_000, 4 * MIB);
        assert!(second.is_waiting() && !second.is_entitled());
        assert_eq!(fixture.pocket.used_bytes(), 200_000);
        assert!(!second.look(&fixture.pocket, Moment::from_micros(1), true));
        drop(first);
        assert!(
            second.look(&fixture.pocket, Moment::from_micros(1), true)
                && !second.look(&fixture.pocket, Moment::from_micros(1), true)
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
    fn a_request_asks_for_what_serving_it_may_leave_behind_when_the_pocket_is_full() {
        let fixture = fixture();
        let mut holding = Holding::default();
        let must_ask = |holding: &Holding, bytes| holding.must_ask_before_serving(&fixture.pocket, bytes);
        assert!(!must_ask(&holding, 65_536));
        assert!(must_ask(&holding, 65_537), "too large for a pocket");
        fixture.pocket.exchange(0, MIB / 2 - 50_000);
        assert!(!must_ask(&holding, 50_000) && must_ask(&holding, 50_001));
        fixture.pocket.exchange(0, 50_000);
        assert!(must_ask(&holding, 4_097), "the other half is for requests");
        assert!(!must_ask(&holding, 4_096), "it costs less than its connection");
        fixture.keep(&mut holding, 0, 4 * MIB);
        assert!(!must_ask(&holding, 50_000), "memory was granted");
        holding.request_served();
        assert!(must_ask(&holding, 50_000), "not for the next request");
    }

    #[test]
    fn answers_count_until_they_are_taken_wherever_they_fit() {
        let fixture = fixture();
        let keep = |holding: &mut Holding, bytes| {
            let memory = (&fixture.budget, &*fixture.pocket);
            holding.keep_answers(bytes, memory, TenantId(1));
        };
        let common_bytes = || fixture.budget.used_bytes() - fixture.pocket.used_bytes();
        let [mut small, mut large] = [(); 2].map(|()| Holding::default());
        keep(&mut small, 60_000);
        keep(&mut large, 70_000);
        assert_eq!((fixture.pocket.used_bytes(), common_bytes()), (60_000, 70_000));
        assert_eq!(
            small.reader_stalls_at(Moment::from_micros(0), 0),
            None,
            "blocks no other"
        );
        assert_eq!(
            large.reader_stalls_at(Moment::from_micros(0), 0),
            Some(Moment::from_micros(10_000_000))
        );
        assert_eq!(
            large.reader_stalls_at(Moment::from_micros(0), MIB as u64),
            Some(Moment::from_micros(26_000_000))
        );
        // It grows out of the pocket, and shrinks back into it.
        keep(&mut small, 5 * MIB);
        assert_eq!(
            (fixture.pocket.used_bytes(), common_bytes()),
            (0, 70_000 + 5 * MIB)
        );
        keep(&mut small, 60_000);
        assert_eq!((fixture.pocket.used_bytes(), common_bytes()), (60_000, 70_000));
        // Shrinking a little is not worth a lock; shrinking much is.
        keep(&mut large, 69_000);
        assert_eq!(common_bytes(), 70_000);
        keep(&mut large, 3 * MIB);
        keep(&mut large, 2 * MIB);
        assert_eq!(common_bytes(), 2 * MIB);
        // Half of the pocket is for requests.
        fixture.pocket.exchange(0, MIB / 2 - 70_000);
        let mut other = Holding::default();
        keep(&mut other, 20_000);
        assert_eq!(common_bytes(), 2 * MIB + 20_000);
        keep(&mut small, 50_000);
        assert_eq!(common_bytes(), 2 * MIB + 20_000, "stays in the pocket");
        fixture.pocket.exchange(MIB / 2 - 70_000, 0);
        for mut holding in [small, large, other] {
            keep(&mut holding, 7_000);
            holding.leave(&fixture.pocket);
        }
        assert_eq!(fixture.budget.used_bytes(), 0);
    }

    #[test]
    fn answers_never_wait_but_requests_wait_for_what_they_take() {
        let fixture = fixture();
        let (mut answers, mut request) = (Holding::default(), Holding::default());
        let memory = || (&fixture.budget, &*fixture.pocket);
        answers.keep_answers(20 * MIB, memory(), TenantId(1));
        assert_eq!(fixture.budget.used_bytes(), 20 * MIB, "more than there is");
        assert!(fixture.budget.is_tight());
        fixture.keep(&mut request, 4_096, 4 * MIB);
        assert!(request.is_waiting());
        answers.keep_answers(0, memory(), TenantId(1));
        assert!(request.look(&fixture.pocket, Moment::from_micros(1), true));
    }

    #[test]
    fn bytes_that_come_buy_time() {
        let fixture = fixture();
        let mut holding = Holding::default();
        assert_eq!(holding.stalls_at(1), None);
        fixture.keep(&mut holding, 4_096, 4 * MIB);
        assert_eq!(holding.stalls_at(0), Some(Moment::from_micros(10_000_000)));
        assert_eq!(holding.stalls_at(MIB), Some(Moment::from_micros(26_000_000)));
        assert_eq!(
            next_look(Moment::from_micros(10_000_000), Moment::from_micros(0)),
            Moment::from_micros(10_000_000)
        );
        assert_eq!(
            next_look(Moment::from_micros(10_000_000), Moment::from_micros(60_000_000)),
            Moment::from_micros(61_000_000)
        );
    }
}
