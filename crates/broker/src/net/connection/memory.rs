//! The memory that one connection uses: for bytes read and not served, and for answers that its
//! client has not taken. Released when dropped.

use std::sync::Arc;
use std::time::Duration;

use ottla_core::tenant::TenantId;
use ottla_core::time::Moment;

use super::super::mailbox::OwnWaker;
use super::super::memory_budget::{LoopMemory, MemoryBudget, Permit};

/// A connection whose memory others wait for gets this grace period; after it, its bytes must come,
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

/// The memory for what was read and is not served.
#[derive(Clone, Copy, Debug)]
pub(super) struct InputBytes {
    /// The size of the connection's buffer.
    pub buffer: usize,
    /// The size of the buffer for the whole request; 0 when no more bytes are expected.
    pub request: usize,
}

/// A connection that asks for memory.
pub(super) struct Asker<'a> {
    pub tenant: TenantId,
    pub now: Moment,
    /// Called when the memory is granted later rather than at once.
    pub waker: &'a mut OwnWaker,
}

/// Shared memory for the first request that is not served.
#[derive(Debug, Default)]
enum RequestPermit {
    #[default]
    None,
    Waiting(Permit),
    GrantedAt(Moment, Permit),
    /// The request has been served. Released when memory is counted next, after that of its answer,
    /// so that no other connection gets it in between.
    Served(#[expect(dead_code, reason = "held for its drop, which releases it")] Permit),
}

/// The memory that one connection uses; usually none.
#[derive(Debug)]
pub(super) struct ConnectionMemory {
    budget: Arc<MemoryBudget>,
    of_loop: Arc<LoopMemory>,
    /// In the part of the event loop.
    input_bytes: usize,
    transport_bytes: usize,
    answer_bytes: usize,
    request: RequestPermit,
    /// For answers that do not fit into the loop's part.
    answers: Option<Permit>,
}

impl ConnectionMemory {
    pub fn new(budget: Arc<MemoryBudget>, of_loop: Arc<LoopMemory>) -> ConnectionMemory {
        ConnectionMemory {
            budget,
            of_loop,
            input_bytes: 0,
            transport_bytes: 0,
            answer_bytes: 0,
            request: RequestPermit::None,
            answers: None,
        }
    }

    /// Whether it must not be read because memory for its request is not granted yet.
    pub fn is_waiting(&self) -> bool {
        matches!(self.request, RequestPermit::Waiting(_))
    }

    /// Whether it has shared memory for one request, which others may wait for: nothing must keep
    /// it from reading and serving that request.
    pub fn has_permit(&self) -> bool {
        matches!(self.request, RequestPermit::GrantedAt(..))
    }

    /// Whether the awaited memory has been granted since the last look. With `is_for_buffer` it
    /// covers the connection's buffer; otherwise it is for a request that will leave the buffer,
    /// which stays counted.
    pub fn look(&mut self, now: Moment, is_for_buffer: bool) -> bool {
        match std::mem::take(&mut self.request) {
            RequestPermit::Waiting(permit) if permit.is_granted() => {
                self.request = RequestPermit::GrantedAt(now, permit);
                if is_for_buffer {
                    self.set_input(0);
                }
                true
            }
            unchanged => {
                self.request = unchanged;
                false
            }
        }
    }

    pub fn request_served(&mut self) {
        self.request = match std::mem::take(&mut self.request) {
            RequestPermit::GrantedAt(_, permit) => RequestPermit::Served(permit),
            unchanged => unchanged,
        };
    }

    /// Whether a request must get shared memory before it is served, given that serving it may
    /// leave `bytes` behind, with another thread or as its answer: what does not fit into the
    /// loop's part is shared memory.
    pub fn must_ask_before_serving(&self, bytes: usize) -> bool {
        bytes > UNASKED_BYTES_MAX && !self.has_permit() && !self.fits_as_answer(bytes, bytes)
    }

    /// Counts the connection's answers, including what it keeps until they are ready.
    pub fn count_answers(&mut self, bytes: usize, tenant: TenantId) {
        let more_bytes = bytes.saturating_sub(self.answer_bytes);
        let is_small = self.fits_as_answer(bytes, more_bytes);
        let of_loop = if is_small { bytes } else { 0 };
        if of_loop != self.answer_bytes {
            self.of_loop.exchange(self.answer_bytes, of_loop);
            self.answer_bytes = of_loop;
        }
        let shared = bytes - of_loop;
        let shared_before = self.answers.as_ref().map_or(0, Permit::bytes);
        let is_near = shared > 0 && (shared..shared + ANSWERS_STEP_BYTES).contains(&shared_before);
        if shared != shared_before && !is_near {
            // Take the new permit before releasing the old one, so that no waiter is granted memory
            // in use.
            let permit = (shared > 0).then(|| self.budget.acquire_unconditionally(tenant, shared));
            self.answers = permit;
        }
    }

    /// Nothing is left over; a connection that waits, or has been granted memory and not read yet,
    /// keeps its place.
    pub fn count_no_input(&mut self) {
        self.release_served();
        self.set_input(0);
    }

    /// Takes memory for what is left over. What is already in the buffer is counted in the loop's
    /// part, which had room before it was read.
    pub fn count_input(&mut self, input: InputBytes, asker: Asker<'_>) {
        self.release_served();
        if self.has_permit() {
            return;
        }
        let more_bytes = input.request.saturating_sub(self.input_bytes);
        if input.request <= input.buffer || self.is_waiting() {
            self.set_input(input.buffer);
        } else if input.request <= self.of_loop.item_bytes_max() && self.of_loop.has_room(more_bytes) {
            self.set_input(input.request);
        } else {
            self.acquire(input.request, asker);
            self.set_input(if self.has_permit() { 0 } else { input.buffer });
        }
    }

    /// Asks for `bytes` of shared memory, for a request that is whole and not served.
    pub fn ask(&mut self, bytes: usize, asker: Asker<'_>) {
        self.release_served();
        self.acquire(bytes, asker);
    }

    fn acquire(&mut self, bytes: usize, asker: Asker<'_>) {
        let permit = self
            .budget
            .acquire(asker.tenant, bytes, || asker.waker.get().clone());
        self.request = if permit.is_granted() {
            RequestPermit::GrantedAt(asker.now, permit)
        } else {
            RequestPermit::Waiting(permit)
        };
    }

    /// By when a request with `arrived_bytes` must have progressed if others wait for its memory.
    pub fn stalls_at(&self, arrived_bytes: usize) -> Option<Moment> {
        match self.request {
            RequestPermit::GrantedAt(granted, _) => Some(stalls_at(granted, arrived_bytes as u64)),
            _ => None,
        }
    }

    /// By when a client that has been stuck since `stuck`, and has taken `taken_bytes` since, must
    /// have taken more if others wait.
    pub fn reader_stalls_at(&self, stuck: Moment, taken_bytes: u64) -> Option<Moment> {
        self.answers.as_ref().map(|_| stalls_at(stuck, taken_bytes))
    }

    /// Whether an answer fits into the loop's part, where it stays until a client reads it;
    /// `more_bytes` of it are not counted yet.
    fn fits_as_answer(&self, bytes: usize, more_bytes: usize) -> bool {
        bytes <= self.of_loop.item_bytes_max()
            && (more_bytes == 0 || self.of_loop.has_room_for_answers(more_bytes))
    }

    /// Counts what TLS keeps between two reads: part of a record, and of what it contained.
    pub fn count_transport(&mut self, bytes: usize) {
        if bytes != self.transport_bytes {
            self.of_loop.exchange(self.transport_bytes, bytes);
            self.transport_bytes = bytes;
        }
    }

    fn set_input(&mut self, bytes: usize) {
        if bytes != self.input_bytes {
            self.of_loop.exchange(self.input_bytes, bytes);
            self.input_bytes = bytes;
        }
    }

    fn release_served(&mut self) {
        if let RequestPermit::Served(_) = self.request {
            self.request = RequestPermit::None;
        }
    }
}

impl Drop for ConnectionMemory {
    fn drop(&mut self) {
        let bytes = self.input_bytes + self.transport_bytes + self.answer_bytes;
        self.of_loop.exchange(bytes, 0);
    }
}

fn stalls_at(since: Moment, moved_bytes: u64) -> Moment {
    let earned_ms = moved_bytes * 1_000 / BYTES_PER_SECOND_MIN;
    since.after(STALL_GRACE).after_ms(earned_ms)
}

/// When to check whether a connection that stalls at `stalls_at` blocks others.
pub(super) fn next_look(stalls_at: Moment, now: Moment) -> Moment {
    stalls_at.max(now.after(STALL_LOOK_INTERVAL))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::mailbox::{Mailbox, Token};

    const MIB: usize = 1 << 20;

    struct Fixture {
        budget: Arc<MemoryBudget>,
        of_loop: Arc<LoopMemory>,
        waker: OwnWaker,
    }

    fn fixture() -> Fixture {
        let budget = Arc::new(MemoryBudget::new(8 * MIB, 2, 4 * MIB));
        let token = Token {
            index: 0,
            generation: 0,
        };
        Fixture {
            of_loop: budget.of_loop(0),
            budget,
            waker: OwnWaker::new(Arc::new(Mailbox::new().unwrap()), token),
        }
    }

    impl Fixture {
        fn connection(&self) -> ConnectionMemory {
            ConnectionMemory::new(self.budget.clone(), self.of_loop.clone())
        }

        fn count(&mut self, memory: &mut ConnectionMemory, buffer: usize, request: usize) {
            let asker = Asker {
                tenant: TenantId(1),
                now: Moment::from_micros(0),
                waker: &mut self.waker,
            };
            memory.count_input(InputBytes { buffer, request }, asker);
        }
    }

    #[test]
    fn small_requests_use_the_loops_part_and_large_ones_the_shared_part() {
        let mut fixture = fixture();
        let mut small = fixture.connection();
        fixture.count(&mut small, 4_096, 65_536);
        assert!(!small.has_permit() && !small.is_waiting());
        assert_eq!(fixture.of_loop.used_bytes(), 65_536);
        let mut large = fixture.connection();
        fixture.count(&mut large, 4_096, 4 * MIB);
        assert!(large.has_permit());
        assert_eq!(
            (fixture.of_loop.used_bytes(), fixture.budget.used_bytes()),
            (65_536, 65_536 + 4 * MIB)
        );
        small.count_no_input();
        large.request_served();
        large.count_no_input();
        assert_eq!(fixture.budget.used_bytes(), 0);
    }

    #[test]
    fn a_waiter_keeps_what_has_arrived_and_goes_on_when_memory_is_granted() {
        let mut fixture = fixture();
        let (mut first, mut second) = (fixture.connection(), fixture.connection());
        fixture.count(&mut first, 4_096, 4 * MIB);
        fixture.count(&mut second, 200_000, 4 * MIB);
        assert!(second.is_waiting() && !second.has_permit());
        assert_eq!(fixture.of_loop.used_bytes(), 200_000);
        assert!(!second.look(Moment::from_micros(1), true));
        drop(first);
        assert!(second.look(Moment::from_micros(1), true) && !second.look(Moment::from_micros(1), true));
        assert!(second.has_permit());
        assert_eq!(
            (fixture.of_loop.used_bytes(), fixture.budget.used_bytes()),
            (0, 4 * MIB)
        );
        drop(second);
        assert_eq!(fixture.budget.used_bytes(), 0);
    }

    #[test]
    fn what_is_left_over_of_served_requests_is_counted_as_it_shrinks() {
        let mut fixture = fixture();
        let mut memory = fixture.connection();
        fixture.count(&mut memory, 262_144, 0);
        fixture.count(&mut memory, 262_144, 100_000);
        assert_eq!(fixture.of_loop.used_bytes(), 262_144);
        fixture.count(&mut memory, 4_096, 0);
        assert_eq!(fixture.of_loop.used_bytes(), 4_096);
        drop(memory);
        assert_eq!(fixture.of_loop.used_bytes(), 0);
    }

    #[test]
    fn a_request_asks_for_what_serving_it_may_leave_behind_when_the_loops_part_is_full() {
        let mut fixture = fixture();
        let mut memory = fixture.connection();
        let must_ask = |memory: &ConnectionMemory, bytes| memory.must_ask_before_serving(bytes);
        assert!(!must_ask(&memory, 65_536));
        assert!(must_ask(&memory, 65_537), "too large for a part of the loop");
        fixture.of_loop.exchange(0, MIB / 2 - 50_000);
        assert!(!must_ask(&memory, 50_000) && must_ask(&memory, 50_001));
        fixture.of_loop.exchange(0, 50_000);
        assert!(must_ask(&memory, 4_097), "the other half is for requests");
        assert!(!must_ask(&memory, 4_096), "it costs less than its connection");
        fixture.count(&mut memory, 0, 4 * MIB);
        assert!(!must_ask(&memory, 50_000), "memory was granted");
        memory.request_served();
        assert!(must_ask(&memory, 50_000), "not for the next request");
    }

    #[test]
    fn answers_count_until_they_are_taken_wherever_they_fit() {
        let fixture = fixture();
        let keep = |memory: &mut ConnectionMemory, bytes| {
            memory.count_answers(bytes, TenantId(1));
        };
        let shared_bytes = || fixture.budget.used_bytes() - fixture.of_loop.used_bytes();
        let [mut small, mut large] = [(); 2].map(|()| fixture.connection());
        keep(&mut small, 60_000);
        keep(&mut large, 70_000);
        assert_eq!((fixture.of_loop.used_bytes(), shared_bytes()), (60_000, 70_000));
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
        // It grows out of the part of the loop, and shrinks back into it.
        keep(&mut small, 5 * MIB);
        assert_eq!(
            (fixture.of_loop.used_bytes(), shared_bytes()),
            (0, 70_000 + 5 * MIB)
        );
        keep(&mut small, 60_000);
        assert_eq!((fixture.of_loop.used_bytes(), shared_bytes()), (60_000, 70_000));
        // Shrinking a little is not worth a lock; shrinking much is.
        keep(&mut large, 69_000);
        assert_eq!(shared_bytes(), 70_000);
        keep(&mut large, 3 * MIB);
        keep(&mut large, 2 * MIB);
        assert_eq!(shared_bytes(), 2 * MIB);
        // Half of the part of the loop is for requests.
        fixture.of_loop.exchange(0, MIB / 2 - 70_000);
        let mut other = fixture.connection();
        keep(&mut other, 20_000);
        assert_eq!(shared_bytes(), 2 * MIB + 20_000);
        keep(&mut small, 50_000);
        assert_eq!(shared_bytes(), 2 * MIB + 20_000, "stays in the part of the loop");
        fixture.of_loop.exchange(MIB / 2 - 70_000, 0);
        for mut memory in [small, large, other] {
            keep(&mut memory, 7_000);
            drop(memory);
        }
        assert_eq!(fixture.budget.used_bytes(), 0);
    }

    #[test]
    fn answers_never_wait_but_requests_wait_for_what_they_take() {
        let mut fixture = fixture();
        let (mut answers, mut request) = (fixture.connection(), fixture.connection());
        answers.count_answers(20 * MIB, TenantId(1));
        assert_eq!(fixture.budget.used_bytes(), 20 * MIB, "more than there is");
        assert!(fixture.budget.is_tight());
        fixture.count(&mut request, 4_096, 4 * MIB);
        assert!(request.is_waiting());
        answers.count_answers(0, TenantId(1));
        assert!(request.look(Moment::from_micros(1), true));
    }

    #[test]
    fn bytes_that_come_buy_time() {
        let mut fixture = fixture();
        let mut memory = fixture.connection();
        assert_eq!(memory.stalls_at(1), None);
        fixture.count(&mut memory, 4_096, 4 * MIB);
        assert_eq!(memory.stalls_at(0), Some(Moment::from_micros(10_000_000)));
        assert_eq!(memory.stalls_at(MIB), Some(Moment::from_micros(26_000_000)));
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
