//! Passes a batch's result to the futures of its records: one allocation per batch, none per
//! record.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::incomplete::Incomplete;
use super::record::RecordMetadata;
use crate::error::Error;
use crate::wait;

/// Where the broker stored a batch.
#[derive(Clone, Debug, PartialEq)]
pub struct Placed {
    /// −1 with acks=0.
    pub base_offset: i64,
    /// The broker's append time where it stamps records.
    pub log_append_time: Option<i64>,
}

/// Shared by a batch and the futures of its records.
#[derive(Debug)]
pub struct BatchCompletion {
    partition: i32,
    /// The order of creation among the producer's batches.
    id: u64,
    /// The result of all records at once: the usual case, read without the lock.
    whole: OnceLock<Result<Placed, Error>>,
    state: Mutex<CompletionState>,
    /// `None` for a completion created on its own, without a producer that flushes.
    incomplete: Option<Arc<Incomplete>>,
}

#[derive(Debug, Default)]
struct CompletionState {
    /// Known when the batch is closed.
    record_count: Option<u32>,
    decided_count: u32,
    /// Results for parts of a split batch; ascending, without overlap.
    ranges: Vec<Range>,
    waiting: Vec<(u32, Waker)>,
}

#[derive(Debug)]
struct Range {
    first: u32,
    count: u32,
    result: Result<Placed, Error>,
}

impl BatchCompletion {
    /// For a batch that is open.
    pub fn new(partition: i32) -> Arc<BatchCompletion> {
        Arc::new(BatchCompletion::with(partition, 0, None))
    }

    pub(super) fn tracked(partition: i32, incomplete: &Arc<Incomplete>) -> Arc<BatchCompletion> {
        let id = incomplete.add();
        Arc::new(BatchCompletion::with(partition, id, Some(Arc::clone(incomplete))))
    }

    fn with(partition: i32, id: u64, incomplete: Option<Arc<Incomplete>>) -> BatchCompletion {
        BatchCompletion {
            partition,
            id,
            whole: OnceLock::new(),
            state: Mutex::default(),
            incomplete,
        }
    }

    fn lock(&self) -> MutexGuard<'_, CompletionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn id(&self) -> u64 {
        self.id
    }

    /// Closes the batch with this many records: from now on one `complete` can decide all of them.
    pub(super) fn seal(&self, record_count: u32) {
        self.lock().record_count = Some(record_count);
    }

    /// Decides records `first..first + count` of the batch and wakes their waiters. Panics if one
    /// is already decided: that is a bug.
    ///
    /// - `result`: its base offset is that of record `first`.
    pub fn complete(&self, first: u32, count: u32, result: Result<Placed, Error>) {
        let is_cut_short = result
            .as_ref()
            .is_err_and(|error| *error.cause() == Error::Closed);
        if is_cut_short && let Some(incomplete) = &self.incomplete {
            incomplete.cut_short();
        }
        let (woken, is_done) = {
            let mut state = self.lock();
            assert!(self.whole.get().is_none(), "a batch was completed twice");
            state.decided_count += count;
            let is_whole = first == 0 && state.record_count == Some(count);
            if is_whole && state.ranges.is_empty() {
                let is_first = self.whole.set(result).is_ok();
                debug_assert!(is_first, "checked above");
            } else {
                state.insert(Range { first, count, result });
            }
            let is_done = state.record_count == Some(state.decided_count);
            let mut woken = Vec::new();
            if is_whole {
                woken = std::mem::take(&mut state.waiting);
            } else {
                state.waiting.retain(|(index, waker)| {
                    let is_decided = (first..first + count).contains(index);
                    if is_decided {
                        woken.push((*index, waker.clone()));
                    }
                    !is_decided
                });
            }
            (woken, is_done)
        };
        if is_done && let Some(incomplete) = &self.incomplete {
            incomplete.remove(self.id);
        }
        woken.into_iter().for_each(|(_, waker)| waker.wake());
    }

    /// Decides those of `first..first + count` that are still undecided.
    pub(super) fn abandon(&self, first: u32, count: u32, error: &Error) {
        for (first, count) in self.undecided(first, count) {
            self.complete(first, count, Err(error.clone()));
        }
    }

    fn undecided(&self, first: u32, count: u32) -> Vec<(u32, u32)> {
        let state = self.lock();
        if self.whole.get().is_some() {
            return Vec::new();
        }
        let end = first + count;
        let mut next = first;
        let mut gaps = Vec::new();
        for range in &state.ranges {
            let range_first = range.first.clamp(next, end);
            if range_first > next {
                gaps.push((next, range_first - next));
            }
            next = next.max((range.first + range.count).min(end));
        }
        if next < end {
            gaps.push((next, end - next));
        }
        gaps
    }

    /// Returns the result of a record, if it is known.
    pub fn outcome(&self, index: u32, timestamp: i64) -> Option<Result<RecordMetadata, Error>> {
        if let Some(result) = self.whole.get() {
            return Some(self.of_record(result, index, timestamp));
        }
        let state = self.lock();
        match self.whole.get() {
            Some(result) => Some(self.of_record(result, index, timestamp)),
            None => self.outcome_in(&state, index, timestamp),
        }
    }

    fn outcome_in(
        &self,
        state: &CompletionState,
        index: u32,
        timestamp: i64,
    ) -> Option<Result<RecordMetadata, Error>> {
        let after = state.ranges.partition_point(|range| range.first <= index);
        let range = &state.ranges[after.checked_sub(1)?];
        let place = index - range.first;
        (place < range.count).then(|| self.of_record(&range.result, place, timestamp))
    }

    fn of_record(
        &self,
        result: &Result<Placed, Error>,
        place: u32,
        timestamp: i64,
    ) -> Result<RecordMetadata, Error> {
        let placed = result.as_ref().map_err(Error::clone)?;
        Ok(placed.record(self.partition, place, timestamp))
    }

    /// Registers `waker` for the record unless it is decided. `slot` is the caller's slot from an
    /// earlier call.
    fn poll(
        &self,
        index: u32,
        timestamp: i64,
        slot: &mut Option<u32>,
        waker: &Waker,
    ) -> Poll<Result<RecordMetadata, Error>> {
        if let Some(result) = self.whole.get() {
            return Poll::Ready(self.of_record(result, index, timestamp));
        }
        let mut state = self.lock();
        if let Some(result) = self.whole.get() {
            return Poll::Ready(self.of_record(result, index, timestamp));
        }
        if let Some(outcome) = self.outcome_in(&state, index, timestamp) {
            return Poll::Ready(outcome);
        }
        let known = slot
            .and_then(|slot| state.waiting.get_mut(slot as usize))
            .filter(|(owner, _)| *owner == index);
        match known {
            Some((_, registered)) => registered.clone_from(waker),
            None => {
                *slot = u32::try_from(state.waiting.len()).ok();
                state.waiting.push((index, waker.clone()));
            }
        }
        Poll::Pending
    }
}

impl CompletionState {
    fn insert(&mut self, range: Range) {
        let at = self.ranges.partition_point(|known| known.first < range.first);
        let is_after_last = at == 0 || self.ranges[at - 1].first + self.ranges[at - 1].count <= range.first;
        let is_before_next = self
            .ranges
            .get(at)
            .is_none_or(|next| range.first + range.count <= next.first);
        assert!(is_after_last && is_before_next, "a record was completed twice");
        self.ranges.insert(at, range);
    }
}

impl Placed {
    /// The metadata of the record at index `place` of a batch stored here.
    pub(super) fn record(&self, partition: i32, place: u32, timestamp: i64) -> RecordMetadata {
        RecordMetadata {
            partition,
            offset: if self.base_offset < 0 {
                self.base_offset
            } else {
                self.base_offset.saturating_add(i64::from(place))
            },
            timestamp: self.log_append_time.unwrap_or(timestamp),
        }
    }
}

/// The result of a `send`. It need not be awaited: dropping it cancels nothing.
///
/// Works in every async runtime; `wait` is for threads without one.
#[derive(Debug)]
#[must_use = "await this to learn whether the broker stored the record, or drop it explicitly to ignore the result"]
pub struct SendFuture {
    completion: Arc<BatchCompletion>,
    timestamp: i64,
    index: u32,
    /// The slot in which `completion` keeps this future's waker.
    slot: Option<u32>,
}

impl SendFuture {
    pub(super) fn new(completion: Arc<BatchCompletion>, index: u32, timestamp: i64) -> SendFuture {
        SendFuture {
            completion,
            timestamp,
            index,
            slot: None,
        }
    }

    /// Blocks until the record is acknowledged or given up, at most delivery.timeout.ms after
    /// `send`.
    pub fn wait(self) -> Result<RecordMetadata, Error> {
        match self.outcome() {
            Some(outcome) => outcome,
            None => wait::block_on(self),
        }
    }

    /// Like `wait`, for at most `limit`; `None` when there is no result by then. The record stays
    /// on its way.
    pub fn wait_timeout(&mut self, limit: Duration) -> Option<Result<RecordMetadata, Error>> {
        let known = self.outcome();
        known.or_else(|| wait::block_on_until(self, wait::deadline_after(limit), None))
    }

    /// Returns the record's result, if it is known by now.
    pub fn outcome(&self) -> Option<Result<RecordMetadata, Error>> {
        self.completion.outcome(self.index, self.timestamp)
    }

    /// Whether `wait` returns at once.
    pub fn is_done(&self) -> bool {
        self.outcome().is_some()
    }

    /// The partition that the record was assigned to.
    pub fn partition(&self) -> i32 {
        self.completion.partition
    }
}

impl Future for SendFuture {
    type Output = Result<RecordMetadata, Error>;

    fn poll(self: Pin<&mut SendFuture>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        this.completion
            .poll(this.index, this.timestamp, &mut this.slot, context.waker())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn placed(base_offset: i64) -> Result<Placed, Error> {
        Ok(Placed {
            base_offset,
            log_append_time: None,
        })
    }

    fn future(completion: &Arc<BatchCompletion>, index: u32) -> SendFuture {
        SendFuture::new(Arc::clone(completion), index, 1_000 + i64::from(index))
    }

    fn metadata(offset: i64, timestamp: i64) -> Result<RecordMetadata, Error> {
        Ok(RecordMetadata {
            partition: 3,
            offset,
            timestamp,
        })
    }

    #[test]
    fn one_answer_decides_every_record() {
        let completion = BatchCompletion::new(3);
        completion.seal(10);
        let (first, last) = (future(&completion, 0), future(&completion, 9));
        assert!(!first.is_done());
        completion.complete(0, 10, placed(500));
        assert_eq!(first.wait(), metadata(500, 1_000));
        assert_eq!(last.wait(), metadata(509, 1_009));
    }

    #[test]
    fn acks_0_gives_no_offset_to_any_record() {
        let completion = BatchCompletion::new(3);
        completion.seal(2);
        completion.complete(0, 2, placed(-1));
        assert_eq!(future(&completion, 1).wait(), metadata(-1, 1_001));
    }

    #[test]
    fn the_brokers_timestamp_replaces_the_records_own() {
        let completion = BatchCompletion::new(3);
        completion.seal(1);
        let result = Placed {
            base_offset: 7,
            log_append_time: Some(99),
        };
        completion.complete(0, 1, Ok(result));
        assert_eq!(future(&completion, 0).wait(), metadata(7, 99));
    }

    #[test]
    fn parts_of_a_split_batch_have_their_own_results() {
        let incomplete = Arc::new(Incomplete::default());
        let completion = BatchCompletion::tracked(3, &incomplete);
        completion.seal(10);
        completion.complete(6, 4, Err(Error::Closed));
        assert!(!future(&completion, 5).is_done());
        assert_eq!(future(&completion, 6).wait(), Err(Error::Closed));
        assert_eq!(incomplete.count(), 1);
        completion.complete(0, 6, placed(20));
        assert_eq!(future(&completion, 5).wait(), metadata(25, 1_005));
        assert_eq!(incomplete.count(), 0);
    }

    #[test]
    #[should_panic(expected = "completed twice")]
    fn deciding_twice_is_a_bug() {
        let completion = BatchCompletion::new(3);
        completion.seal(10);
        completion.complete(0, 10, placed(1));
        completion.complete(0, 10, placed(2));
    }

    #[test]
    #[should_panic(expected = "completed twice")]
    fn deciding_a_part_twice_is_a_bug() {
        let completion = BatchCompletion::new(3);
        completion.seal(10);
        completion.complete(0, 5, placed(1));
        completion.complete(4, 6, placed(2));
    }

    #[test]
    fn abandoning_decides_only_what_is_open() {
        let completion = BatchCompletion::new(3);
        completion.seal(10);
        completion.complete(2, 3, placed(7));
        completion.abandon(0, 8, &Error::Closed);
        let fates: Vec<_> = (0..10)
            .map(|index| {
                future(&completion, index)
                    .outcome()
                    .map(|outcome| outcome.is_ok())
            })
            .collect();
        let (lost, kept, open) = (Some(false), Some(true), None);
        assert_eq!(
            fates,
            [lost, lost, kept, kept, kept, lost, lost, lost, open, open]
        );
        completion.abandon(0, 10, &Error::Closed);
        assert!(future(&completion, 9).is_done());
        completion.abandon(0, 10, &Error::Closed);
    }

    #[derive(Default)]
    struct Counter(AtomicUsize);

    impl std::task::Wake for Counter {
        fn wake(self: Arc<Counter>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn polling_again_does_not_register_again() {
        let completion = BatchCompletion::new(3);
        completion.seal(2);
        let counter = Arc::new(Counter::default());
        let waker = Waker::from(Arc::clone(&counter));
        let mut context = Context::from_waker(&waker);
        let mut waiting = future(&completion, 1);
        for _ in 0..100 {
            assert!(Pin::new(&mut waiting).poll(&mut context).is_pending());
        }
        assert_eq!(completion.lock().waiting.len(), 1);
        completion.complete(0, 2, placed(0));
        assert_eq!(counter.0.load(Ordering::Relaxed), 1);
        assert!(Pin::new(&mut waiting).poll(&mut context).is_ready());
    }

    #[test]
    fn a_part_wakes_only_its_own_waiters() {
        let completion = BatchCompletion::new(3);
        completion.seal(2);
        let counters = [Arc::new(Counter::default()), Arc::new(Counter::default())];
        let mut futures = [future(&completion, 0), future(&completion, 1)];
        for (future, counter) in futures.iter_mut().zip(&counters) {
            let waker = Waker::from(Arc::clone(counter));
            assert!(
                Pin::new(future)
                    .poll(&mut Context::from_waker(&waker))
                    .is_pending()
            );
        }
        completion.complete(1, 1, placed(0));
        assert_eq!(counters[0].0.load(Ordering::Relaxed), 0);
        assert_eq!(counters[1].0.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_blocked_thread_gets_the_answer() {
        let completion = BatchCompletion::new(3);
        completion.seal(1);
        let mut waiting = future(&completion, 0);
        assert_eq!(waiting.wait_timeout(Duration::from_millis(1)), None);
        let answering = Arc::clone(&completion);
        let thread = std::thread::spawn(move || {
            while answering.lock().waiting.is_empty() {
                std::thread::yield_now();
            }
            answering.complete(0, 1, placed(5));
        });
        assert_eq!(waiting.wait(), metadata(5, 1_000));
        thread.join().unwrap();
    }
}
