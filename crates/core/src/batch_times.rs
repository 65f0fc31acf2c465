//! When batches passed through the broker: received, appended, visible, sent to a consumer.
//! Recorded only while a reader asks for it, for the stages of end-to-end latency.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ottla_log::{Bound, SegmentPosition};
use ottla_wire::primitives::Uuid;

use crate::time::Moment;

/// At most this many batches are kept in memory, some 100 bytes each. At the limit every second one
/// is dropped, and of new batches only every second one is kept; the stride doubles each time.
pub const BATCHES_MAX: usize = 1 << 16;

/// The recorded times of one batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchTime {
    pub base_offset: i64,
    pub last_offset: i64,
    /// The last byte of the request was read.
    pub received: Moment,
    pub appended: Moment,
    /// The high watermark passed the batch.
    pub visible: Option<Moment>,
    /// The batch first appeared in the answer to a fetch, which was then on its way to the socket.
    pub fetched: Option<Moment>,
    end: SegmentPosition,
}

/// Topic id and partition number.
pub type Key = (Uuid, i32);

/// The recorded batches of one partition.
#[derive(Clone, Debug)]
pub struct PartitionTimes {
    pub topic: Arc<str>,
    pub index: i32,
    /// Ascending by offset.
    pub batches: VecDeque<BatchTime>,
}

/// An append of a producer's batch.
#[derive(Clone, Copy, Debug)]
pub struct NewBatch {
    pub base_offset: i64,
    pub last_offset: i64,
    /// The log end after it.
    pub end: Bound,
    pub received: Moment,
    pub appended: Moment,
}

/// A range of a partition's log that is sent to a consumer.
#[derive(Clone, Copy, Debug)]
pub struct Given {
    pub at: SegmentPosition,
    pub bytes: u64,
}

/// At most this many readers at the same time. Each sees what was recorded since it began; ending
/// one does not affect the others.
const READERS_MAX: usize = 16;

/// One reader of batch times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReaderId(pub u64);

/// Recorder of batch times. It is on while there are readers: each from `begin` until its time has
/// passed, or `end`.
#[derive(Debug, Default)]
pub struct BatchTimes {
    is_on: AtomicBool,
    state: Mutex<TimesState>,
}

#[derive(Debug)]
struct TimesState {
    /// Start and end moment of each reader.
    readers: BTreeMap<ReaderId, (Moment, Moment)>,
    next_reader: u64,
    count: usize,
    /// A power of two: one of this many batches is kept.
    stride: u64,
    partitions: BTreeMap<Key, PartitionTimes>,
}

impl Default for TimesState {
    fn default() -> TimesState {
        TimesState {
            readers: BTreeMap::new(),
            next_reader: 1,
            count: 0,
            stride: 1,
            partitions: BTreeMap::new(),
        }
    }
}

impl BatchTimes {
    /// Starts a reader from `now` until `until`; `None` when there are too many.
    pub fn begin(&self, now: Moment, until: Moment) -> Option<ReaderId> {
        let mut state = self.lock();
        state.readers.retain(|_, (_, until)| *until >= now);
        state.forget_if_unread();
        if state.readers.len() >= READERS_MAX {
            return None;
        }
        let id = ReaderId(state.next_reader);
        state.next_reader += 1;
        state.readers.insert(id, (now, until));
        self.is_on.store(true, Ordering::Relaxed);
        Some(id)
    }

    /// Ends reader `id`; false when it is unknown. Batches are dropped with the last reader.
    pub fn end(&self, id: ReaderId) -> bool {
        let mut state = self.lock();
        let was_known = state.readers.remove(&id).is_some();
        state.forget_if_unread();
        self.is_on.fetch_and(!state.readers.is_empty(), Ordering::Relaxed);
        was_known
    }

    /// Whether times are recorded: the only cost while there are no readers.
    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Returns what was recorded since `id` began (without an id: everything), and the stride: one
    /// of this many batches was kept. Reading consumes nothing.
    ///
    /// - `None`: the reader is unknown.
    pub fn read(&self, id: Option<ReaderId>) -> Option<(Vec<PartitionTimes>, u64)> {
        let state = self.lock();
        let began = match id {
            Some(id) => state.readers.get(&id)?.0,
            None => Moment::from_micros(0),
        };
        let mut partitions: Vec<PartitionTimes> = state.partitions.values().cloned().collect();
        for partition in &mut partitions {
            partition.batches.retain(|batch| batch.appended >= began);
        }
        partitions.retain(|partition| !partition.batches.is_empty());
        Some((partitions, state.stride))
    }

    /// Records an appended batch of partition `key` of `topic`.
    pub fn appended(&self, key: Key, topic: &Arc<str>, batch: NewBatch) {
        // A duplicate, which was in the log already, was recorded the first time.
        let Some(end) = batch
            .end
            .position
            .filter(|_| batch.end.offset == batch.last_offset + 1)
        else {
            return;
        };
        let mut state = self.lock();
        if state.readers.values().all(|(_, until)| *until < batch.appended) {
            self.is_on.store(false, Ordering::Relaxed);
            return;
        }
        let time = BatchTime {
            base_offset: batch.base_offset,
            last_offset: batch.last_offset,
            received: batch.received,
            appended: batch.appended,
            visible: None,
            fetched: None,
            end,
        };
        state.add(key, topic, time);
    }

    /// Records that the high watermark of partition `key` is `high_watermark` as of `now`.
    pub fn moved(&self, key: Key, high_watermark: i64, now: Moment) {
        self.lock().moved(key, high_watermark, now);
    }

    /// Records that these bytes are sent to a consumer.
    pub fn given(&self, key: Key, given: Given, now: Moment) {
        self.lock().given(key, given, now);
    }

    fn lock(&self) -> MutexGuard<'_, TimesState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TimesState {
    fn forget_if_unread(&mut self) {
        if self.readers.is_empty() {
            (self.count, self.stride) = (0, 1);
            self.partitions.clear();
        }
    }

    fn add(&mut self, key: Key, topic: &Arc<str>, batch: BatchTime) {
        if !is_kept(batch.base_offset, self.stride) {
            return;
        }
        if self.count >= BATCHES_MAX {
            self.stride *= 2;
            self.count = 0;
            for times in self.partitions.values_mut() {
                times
                    .batches
                    .retain(|batch| is_kept(batch.base_offset, self.stride));
                self.count += times.batches.len();
            }
            if self.count >= BATCHES_MAX || !is_kept(batch.base_offset, self.stride) {
                return;
            }
        }
        let times = self.partitions.entry(key).or_insert_with(|| PartitionTimes {
            topic: topic.clone(),
            index: key.1,
            batches: VecDeque::new(),
        });
        // Two appends to one partition may be recorded out of order.
        let place = times
            .batches
            .partition_point(|before| before.base_offset < batch.base_offset);
        times.batches.insert(place, batch);
        self.count += 1;
    }

    fn moved(&mut self, key: Key, high_watermark: i64, now: Moment) {
        let Some(times) = self.partitions.get_mut(&key) else {
            return;
        };
        let unseen = times
            .batches
            .iter_mut()
            .rev()
            .take_while(|batch| batch.visible.is_none());
        for batch in unseen.filter(|batch| batch.last_offset < high_watermark) {
            batch.visible = Some(now);
        }
    }

    fn given(&mut self, key: Key, given: Given, now: Moment) {
        let Some(times) = self.partitions.get_mut(&key) else {
            return;
        };
        let place = |position: SegmentPosition| (position.segment_base_offset, position.position);
        let begin = place(given.at);
        let end = (begin.0, begin.1.saturating_add(given.bytes));
        let first = times.batches.partition_point(|batch| place(batch.end) <= begin);
        // A batch that the range cuts off will be fetched again.
        let whole = times
            .batches
            .range_mut(first..)
            .take_while(|batch| place(batch.end) <= end);
        for batch in whole {
            batch.fetched.get_or_insert(now);
        }
    }
}

/// Hashes the offset, since batches may all begin at multiples of a power of two.
fn is_kept(base_offset: i64, stride: u64) -> bool {
    let mixed = base_offset.cast_unsigned().wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed >> 32).is_multiple_of(stride)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: Key = (Uuid::ZERO, 0);

    fn position(position: u64) -> SegmentPosition {
        SegmentPosition {
            segment_base_offset: 0,
            position,
        }
    }

    /// Ten records and 100 bytes each.
    fn batch(base_offset: i64) -> BatchTime {
        BatchTime {
            base_offset,
            last_offset: base_offset + 9,
            received: Moment::from_micros(base_offset as u64),
            appended: Moment::from_micros(base_offset as u64 + 1),
            visible: None,
            fetched: None,
            end: position((base_offset as u64 + 10) * 10),
        }
    }

    fn filled(base_offsets: impl Iterator<Item = i64>) -> TimesState {
        let mut state = TimesState::default();
        let topic = Arc::from("topic");
        base_offsets.for_each(|base_offset| state.add(KEY, &topic, batch(base_offset)));
        state
    }

    fn check(state: &TimesState, of: impl Fn(&BatchTime) -> Option<Moment>, expected: &[Option<u64>]) {
        let found: Vec<Option<u64>> = state.partitions[&KEY]
            .batches
            .iter()
            .map(|batch| of(batch).map(Moment::micros))
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn batches_become_visible_when_the_watermark_passes_their_last_record() {
        let mut state = filled([0, 20, 10].into_iter());
        state.moved(KEY, 19, Moment::from_micros(100));
        check(&state, |batch| batch.visible, &[Some(100), None, None]);
        state.moved(KEY, 30, Moment::from_micros(200));
        check(&state, |batch| batch.visible, &[Some(100), Some(200), Some(200)]);
        state.moved((Uuid::ZERO, 7), 30, Moment::from_micros(300));
    }

    #[test]
    fn a_batch_is_fetched_when_it_is_first_sent_whole() {
        let mut state = filled([0, 10, 20].into_iter());
        let given = |at, bytes| Given {
            at: position(at),
            bytes,
        };
        state.given(KEY, given(0, 150), Moment::from_micros(100));
        check(&state, |batch| batch.fetched, &[Some(100), None, None]);
        state.given(KEY, given(100, 200), Moment::from_micros(200));
        state.given(KEY, given(0, 300), Moment::from_micros(300));
        check(&state, |batch| batch.fetched, &[Some(100), Some(200), Some(200)]);
    }

    #[test]
    fn a_flood_of_batches_is_sampled_evenly_over_its_whole_duration() {
        let state = filled((0..1_000_000).map(|number| number * 10));
        let kept = &state.partitions[&KEY].batches;
        assert!(
            (BATCHES_MAX / 4..=BATCHES_MAX).contains(&kept.len()),
            "{}",
            kept.len()
        );
        assert_eq!(kept.len(), state.count);
        let late = kept.iter().filter(|batch| batch.base_offset >= 9_000_000).count();
        assert!(late > kept.len() / 20, "{late}");
    }

    #[test]
    fn recording_is_off_until_a_reader_begins_and_batches_go_with_the_last_reader() {
        let times = BatchTimes::default();
        assert!(!times.is_on());
        let reader = times
            .begin(Moment::from_micros(0), Moment::from_micros(10))
            .expect("there is room");
        times.lock().add(KEY, &Arc::from("topic"), batch(0));
        assert!(times.is_on());
        for _ in 0..2 {
            assert_eq!(times.read(Some(reader)).expect("known").0.len(), 1, "again");
        }
        assert!(times.end(reader) && !times.end(reader));
        assert!(!times.is_on() && times.read(Some(reader)).is_none());
        assert!(times.read(None).expect("all there is").0.is_empty());
    }

    #[test]
    fn readers_do_not_disturb_each_other() {
        let times = BatchTimes::default();
        let offsets = |reader| -> Vec<i64> {
            let (partitions, _) = times.read(Some(reader)).expect("known");
            let batches = partitions.iter().flat_map(|partition| &partition.batches);
            batches.map(|batch| batch.base_offset).collect()
        };
        let first = times
            .begin(Moment::from_micros(0), Moment::from_micros(100))
            .expect("there is room");
        times.lock().add(KEY, &Arc::from("topic"), batch(0));
        let second = times
            .begin(Moment::from_micros(5), Moment::from_micros(50))
            .expect("there is room");
        times.lock().add(KEY, &Arc::from("topic"), batch(10));
        assert_eq!((offsets(first), offsets(second)), (vec![0, 10], vec![10]));
        assert!(times.end(second) && times.is_on());
        times.lock().add(KEY, &Arc::from("topic"), batch(20));
        assert_eq!(offsets(first), [0, 10, 20]);
        // A reader that never ended is dropped when another begins after its time.
        let third = times
            .begin(Moment::from_micros(101), Moment::from_micros(200))
            .expect("there is room");
        assert!(times.read(Some(first)).is_none() && offsets(third).is_empty());
        let all: Vec<_> = (1..READERS_MAX)
            .map(|_| times.begin(Moment::from_micros(101), Moment::from_micros(200)))
            .collect();
        assert!(all.iter().all(Option::is_some));
        assert_eq!(
            times.begin(Moment::from_micros(101), Moment::from_micros(200)),
            None
        );
    }
}
