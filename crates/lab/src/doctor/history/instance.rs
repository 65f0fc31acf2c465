//! One client instance: its last pushes, in as few numbers as the window needs.

use std::collections::VecDeque;

use super::super::adapters::{Fold, Measure, Reading, Software, Subject, Unsampled, Value};
use super::super::otlp::Kind;
use super::super::snapshot::{Client, Library, Role};
use super::PushedFrom;
use super::kept::Kept;
use super::point::{Point, Subjects, merged};
use super::window::Window;

/// The window of a verdict: the last complete 60 s, or the last 3 pushes if they span more.
pub(super) const WINDOW_SECONDS: f64 = 60.0;
pub(super) const WINDOW_PUSHES: u32 = 3;

/// Intervals are jittered and clocks drift: a sixth push at an interval of ten seconds still
/// belongs to the minute.
const WINDOW_SLACK: f64 = 1.1;

/// Pushes that together span at most this long are joined: the window has at most twelve slots.
const SLOT_SECONDS: f64 = 11.0;

/// The most that is kept for one client; the oldest slots are dropped first.
pub const BYTES_MAX: usize = 64 << 10;

/// Kept per push. Of more, those with the most requests, bytes or lag.
const NODES_MAX: usize = 48;
const TOPICS_MAX: usize = 32;
const PARTITIONS_MAX: usize = 160;
const POINTS_MAX: usize = 600;

/// Cumulative sums that are tracked; no Kafka client sends such sums.
const COUNTERS_MAX: usize = 256;

/// The longest client id, principal and so on that is kept.
const TEXT_BYTES_MAX: usize = 255;

/// q_max is remembered for this many pushes.
const COURSE_MAX: usize = 6;

/// Intervals are jittered by less than this.
const SAME_LENGTH: f32 = 0.1;

/// Of a multiplicative hash (Fx): 2^64 over pi, odd.
const HASH_FACTOR: u64 = 0x517c_c1b7_2722_0a95;

/// A client's first join shows as a rebalance until its counts begin this much later than its
/// start.
const BIRTH_MS: i64 = 10_000;

/// One push, or several short ones.
#[derive(Clone, Debug, Default)]
pub(super) struct Slot {
    /// By the receiver's clock.
    pub received_ms: i64,
    pub seconds: f64,
    pub pushes: u32,
    pub empty_pushes: u32,
    /// The number of pushes that found threads waiting for buffer memory.
    pub waiting_pushes: u32,
    /// Sorted by key.
    pub points: Vec<Point>,
}

/// A cumulative sum, as last pushed.
#[derive(Clone, Copy, Debug)]
struct Counter {
    key: (Measure, u16),
    value: f64,
    received_ms: i64,
}

/// Everything that is kept for one client instance.
#[derive(Clone, Debug, Default)]
pub struct Instance {
    pub client: Client,
    pub software: Software,
    pub push_interval_ms: Option<f64>,
    /// When the last push arrived, by the receiver's clock.
    pub heard_ms: Option<i64>,
    /// How many pushes changed what its window says.
    pub(super) news: u64,
    /// A hash of the last push's numbers and its seconds, and how many pushes in a row have had the
    /// same.
    values: (u64, f32),
    alike: u32,
    /// Its last verdict.
    pub(super) kept: Option<Kept>,
    pub terminated_ms: Option<i64>,
    pub(super) slots: VecDeque<Slot>,
    pub(super) subjects: Subjects,
    pub(super) without_sample: Unsampled,
    /// q_max of the last pushes, oldest first.
    pub(super) queue_max_course: VecDeque<f32>,
    /// The client restarted, and so did the count of its pushes.
    is_restarted: bool,
    /// A consumer has not joined its group since it started.
    awaits_join: bool,
    /// By the client's own clock.
    pub(super) client_started_ms: Option<i64>,
    counters: Vec<Counter>,
    /// Partitions in the last push with any; more than are kept where a consumer has many.
    pub(super) partitions_pushed: Option<usize>,
}

impl Instance {
    pub fn new(client: Client) -> Instance {
        Instance {
            client,
            ..Instance::default()
        }
    }

    /// Takes a push that arrived at `at_ms`, in milliseconds since 1970 by the receiver's clock.
    pub fn push(&mut self, from: &PushedFrom<'_>, reading: &Reading<'_>, at_ms: i64) {
        let is_known = self.introduce(from, reading);
        self.begin_again_if_restarted(reading);
        let is_first = self.heard_ms.is_none();
        let (seconds, has_sums) = self.seconds(reading, at_ms);
        let mut slot = Slot {
            received_ms: at_ms,
            seconds,
            pushes: 1,
            empty_pushes: u32::from(reading.points == 0),
            ..Slot::default()
        };
        self.take_values(reading, seconds, has_sums, at_ms, &mut slot);
        if is_first {
            self.awaits_join = is_from_birth(reading);
        }
        if self.awaits_join {
            self.awaits_join = !forget_first_join(&mut slot.points);
        }
        slot.points.sort_by_key(Point::key);
        let waiting = find(&slot.points, Measure::WaitingThreads);
        slot.waiting_pushes = u32::from(waiting.is_some_and(|threads| threads > 0.0));
        if let Some(queue_ms) = find(&slot.points, Measure::QueueTimeMax) {
            if self.queue_max_course.len() == COURSE_MAX {
                self.queue_max_course.pop_front();
            }
            self.queue_max_course.push_back(queue_ms as f32);
        }
        let is_told = is_known && !from.is_terminating && self.terminated_ms.is_none();
        let is_alike = self.is_alike(&slot, reading) && is_told;
        let pushes = self.window_pushes();
        self.keep(slot);
        self.without_sample = reading.without_sample;
        self.heard_ms = Some(at_ms);
        self.terminated_ms = from.is_terminating.then_some(at_ms);
        // All pushes of the window said the same, and so did the one that it displaced.
        let is_old = is_alike && self.alike > pushes.max(COURSE_MAX as u32) && pushes == self.window_pushes();
        self.news += u64::from(!is_old);
    }

    /// Whether the push has the numbers of the one before, over as long a time.
    fn is_alike(&mut self, slot: &Slot, reading: &Reading<'_>) -> bool {
        let mut hash =
            reading.without_sample.hashed() ^ self.partitions_pushed.map_or(0, |count| count as u64);
        for point in &slot.points {
            let key = u64::from(point.subject) << 8 | point.measure as u64;
            for word in [key, point.value.to_bits()] {
                hash = (hash.rotate_left(5) ^ word).wrapping_mul(HASH_FACTOR);
            }
        }
        let values = (hash, slot.seconds as f32);
        let before = std::mem::replace(&mut self.values, values);
        let is_as_long = (values.1 - before.1).abs() <= SAME_LENGTH * before.1;
        let is_same = values.0 == before.0 && is_as_long && self.heard_ms.is_some();
        self.alike = if is_same { self.alike.saturating_add(1) } else { 1 };
        is_same
    }

    fn window_pushes(&self) -> u32 {
        self.slots.iter().map(|slot| slot.pushes).sum()
    }

    /// Keeps a complete single reading, with its weights unchanged.
    pub fn keep_only(&mut self, reading: &Reading<'_>, seconds: f64) {
        let mut slot = Slot {
            seconds,
            ..Slot::default()
        };
        for value in &reading.values {
            if let Some(subject) = self.subjects.place(value.subject) {
                slot.points.push(point(value, subject));
            }
        }
        slot.points.sort_by_key(Point::key);
        self.partitions_pushed = partitions_of(reading);
        self.software = reading.software;
        self.client.library = reading.software.library;
        self.client.role = reading.role.unwrap_or_default();
        self.without_sample = reading.without_sample;
        self.slots = VecDeque::from([slot]);
    }

    /// Returns whether it is who it was.
    fn introduce(&mut self, from: &PushedFrom<'_>, reading: &Reading<'_>) -> bool {
        let before = (self.client.role, self.software, self.push_interval_ms);
        let client = &mut self.client;
        let texts = [
            keep_text(&mut client.software_name, from.software_name),
            keep_text(&mut client.software_version, from.software_version),
            keep_text(&mut client.principal, from.principal),
            keep_text(&mut client.address, from.address),
            keep_text(&mut client.group_id, reading.group_id),
            keep_text(&mut client.member_id, reading.member_id),
        ];
        client.role = reading.role.unwrap_or(client.role);
        // A push without a node's metrics may hide the library that an earlier push showed.
        if reading.software.library != Library::Unknown || self.heard_ms.is_none() {
            self.software = reading.software;
            client.library = reading.software.library;
        }
        self.push_interval_ms = from
            .push_interval_ms
            .filter(|ms| *ms > 0.0)
            .or(self.push_interval_ms);
        let now = (self.client.role, self.software, self.push_interval_ms);
        before == now && texts.iter().all(|is_kept| *is_kept)
    }

    fn begin_again_if_restarted(&mut self, reading: &Reading<'_>) {
        let Some(started_ms) = reading.client_started_ms else {
            return;
        };
        if self.client_started_ms.is_some_and(|before| before != started_ms) {
            self.is_restarted = true;
            self.awaits_join = true;
            self.alike = 0;
            self.slots.clear();
            self.counters.clear();
            self.queue_max_course.clear();
        }
        self.client_started_ms = Some(started_ms);
    }

    /// Returns the seconds over which this push counts, and whether its sums can be used.
    ///
    /// They are the client's own interval (reading rule 2), unless its clock was set in between:
    /// then the receiver's. The first push after a long silence counts since the client's start,
    /// possibly for hours, and says nothing about the present.
    fn seconds(&self, reading: &Reading<'_>, at_ms: i64) -> (f64, bool) {
        let own = reading.span_seconds().filter(|seconds| *seconds > 0.0);
        let expected = self.push_interval_ms.map(|ms| ms / 1000.0);
        let gap = self.heard_ms.map(|before| (at_ms - before) as f64 / 1000.0);
        let gap = gap.filter(|seconds| *seconds > 0.0);
        match (own, gap) {
            (Some(own), Some(gap)) => {
                let is_regular = expected.is_some_and(|expected| (gap / expected - 1.0).abs() < 0.3);
                let is_off = own > 2.0 * gap + 1.0 || (is_regular && own < 0.5 * gap);
                (if is_off { gap } else { own }, true)
            }
            (Some(own), None) => {
                let longest = 3.0 * expected.unwrap_or(0.0).max(WINDOW_SECONDS / 2.0);
                if own > longest { (0.0, false) } else { (own, true) }
            }
            (None, Some(gap)) => (gap, true),
            (None, None) => (expected.unwrap_or(0.0), expected.is_some()),
        }
    }

    fn take_values(
        &mut self,
        reading: &Reading<'_>,
        seconds: f64,
        has_sums: bool,
        at_ms: i64,
        slot: &mut Slot,
    ) {
        let own = reading.span_seconds().unwrap_or(0.0);
        self.partitions_pushed = partitions_of(reading).or(self.partitions_pushed);
        let chosen = Chosen::of(reading);
        if self.subjects.is_half_full() {
            self.forget_old_subjects(slot);
        }
        for value in &reading.values {
            if slot.points.len() == POINTS_MAX {
                break;
            }
            if value.measure.is_of_one_reading() || !chosen.has(value.subject) {
                continue;
            }
            let Some(subject) = self.place(value.subject, slot) else {
                continue;
            };
            let mut point = point(value, subject);
            if value.measure.fold() == Fold::Sum {
                let is_of_push = value.weight <= 0.0 || (value.weight / own - 1.0).abs() < 0.01;
                if is_of_push {
                    point.weight = seconds as f32;
                }
                let is_known = match value.kind {
                    Kind::Cumulative => self.delta(&mut point, at_ms),
                    Kind::Delta | Kind::Gauge => has_sums,
                };
                if !is_known || point.weight <= 0.0 {
                    continue;
                }
            }
            slot.points.push(point);
        }
    }

    /// Turns a cumulative sum into one since the last push; returns false for the first, and after
    /// a restart.
    fn delta(&mut self, point: &mut Point, at_ms: i64) -> bool {
        let now = Counter {
            key: point.key(),
            value: point.value,
            received_ms: at_ms,
        };
        let place = self
            .counters
            .binary_search_by_key(&now.key, |counter| counter.key);
        let place = match place {
            Ok(place) => place,
            Err(place) => {
                if self.counters.len() < COUNTERS_MAX {
                    self.counters.insert(place, now);
                }
                return false;
            }
        };
        let before = std::mem::replace(&mut self.counters[place], now);
        self.is_restarted |= now.value < before.value;
        point.value = now.value - before.value;
        point.weight = (at_ms - before.received_ms) as f32 / 1000.0;
        point.value >= 0.0
    }

    fn keep(&mut self, slot: Slot) {
        match self.slots.back_mut() {
            Some(last) if last.seconds + slot.seconds <= SLOT_SECONDS => {
                last.points = merged(&last.points, &slot.points);
                last.received_ms = slot.received_ms;
                last.seconds += slot.seconds;
                last.pushes += slot.pushes;
                last.empty_pushes += slot.empty_pushes;
                last.waiting_pushes += slot.waiting_pushes;
            }
            _ => self.slots.push_back(slot),
        }
        let in_window = self.window_slots();
        self.slots.drain(..self.slots.len() - in_window);
        while self.slots.len() > 1 && self.bytes() > BYTES_MAX {
            self.slots.pop_front();
            self.forget_old_subjects(&mut Slot::default());
        }
        if let Some(last) = self.slots.back_mut() {
            last.points.shrink_to_fit();
        }
    }

    /// The number of newest slots that make up the window.
    fn window_slots(&self) -> usize {
        let Some(newest) = self.slots.back() else { return 0 };
        let (mut seconds, mut pushes, mut count) = (0.0, 0, 0);
        for slot in self.slots.iter().rev() {
            let age = (newest.received_ms - slot.received_ms) as f64 / 1000.0 + slot.seconds;
            let is_recent = (seconds + slot.seconds).max(age) <= WINDOW_SECONDS * WINDOW_SLACK;
            if count > 0 && !is_recent && pushes >= WINDOW_PUSHES {
                break;
            }
            seconds += slot.seconds;
            pushes += slot.pushes;
            count += 1;
        }
        count
    }

    /// Returns the numbers of the window.
    pub fn window(&self) -> Window<'_> {
        Window::of(self)
    }

    /// Bytes that a producer sent, or a consumer read, in each second since its push before the
    /// last.
    pub(super) fn bytes_per_second(&self) -> Option<f64> {
        let measure = match self.client.role {
            Role::Producer => Measure::BytesOut,
            Role::Consumer => Measure::ConsumedBytes,
        };
        let points = &self.slots.back()?.points;
        let key = (measure, super::point::CLIENT);
        let place = points.binary_search_by_key(&key, Point::key).ok()?;
        points[place].rate()
    }

    /// The client restarted and has not sent two pushes since.
    pub fn is_restarted(&self) -> bool {
        self.is_restarted && self.slots.iter().map(|slot| slot.pushes).sum::<u32>() < 2
    }

    /// When the client is considered gone: after 60 s, or three intervals if longer.
    pub fn expires_ms(&self) -> Option<i64> {
        const EXPIRY_MS: f64 = 60_000.0;
        let longest = (3.0 * self.push_interval_ms.unwrap_or(0.0)).max(EXPIRY_MS);
        self.heard_ms.map(|heard| heard.saturating_add(longest as i64))
    }

    /// The index of a name. Where there is no room, new names displace old ones.
    fn place(&mut self, subject: Subject<'_>, newest: &mut Slot) -> Option<u16> {
        if let Some(place) = self.subjects.place(subject) {
            return Some(place);
        }
        if self.slots.len() < 2 {
            return None;
        }
        self.slots.drain(..self.slots.len() - 1);
        self.forget_old_subjects(newest);
        self.subjects.place(subject)
    }

    /// Drops names that neither `newest` nor any slot mentions: a client may keep naming new
    /// topics.
    fn forget_old_subjects(&mut self, newest: &mut Slot) {
        self.alike = 0;
        let old = std::mem::take(&mut self.subjects);
        for slot in std::iter::once(newest).chain(self.slots.iter_mut().rev()) {
            slot.points
                .retain_mut(|point| match self.subjects.place(old.get(point.subject)) {
                    Some(place) => {
                        point.subject = place;
                        true
                    }
                    None => false,
                });
            slot.points.sort_by_key(Point::key);
        }
        let newest_ms = self.heard_ms;
        self.counters.retain_mut(|counter| {
            let is_live = Some(counter.received_ms) == newest_ms;
            let place = is_live
                .then(|| self.subjects.place(old.get(counter.key.1)))
                .flatten();
            counter.key.1 = place.unwrap_or_default();
            place.is_some()
        });
        self.counters.sort_by_key(|counter| counter.key);
    }

    /// Bytes that it takes, on the heap and inline.
    pub fn bytes(&self) -> usize {
        let client = &self.client;
        let texts = [
            &client.instance_id,
            &client.software_name,
            &client.software_version,
            &client.principal,
            &client.address,
            &client.group_id,
            &client.member_id,
        ];
        let texts: usize = texts.into_iter().flatten().map(String::capacity).sum();
        let points: usize = self.slots.iter().map(|slot| slot.points.capacity()).sum();
        size_of::<Instance>()
            + client.client_id.capacity()
            + texts
            + self.subjects.bytes()
            + self.slots.capacity() * size_of::<Slot>()
            + points * size_of::<Point>()
            + self.queue_max_course.capacity() * size_of::<f32>()
            + self.counters.capacity() * size_of::<Counter>()
    }
}

fn point(value: &Value<'_>, subject: u16) -> Point {
    Point {
        value: value.value,
        weight: value.weight as f32,
        subject,
        measure: value.measure,
    }
}

pub(super) fn find(points: &[Point], measure: Measure) -> Option<f64> {
    let key = (measure, super::point::CLIENT);
    let place = points.binary_search_by_key(&key, Point::key).ok()?;
    Some(points[place].value)
}

/// Whether its counts begin at the client's start; assumed of a first push that does not say.
fn is_from_birth(reading: &Reading<'_>) -> bool {
    match (reading.client_started_ms, reading.span_nanos) {
        (Some(started_ms), Some((start_nanos, _))) => {
            (start_nanos / 1_000_000) as i64 - started_ms < BIRTH_MS
        }
        _ => true,
    }
}

/// A consumer's first join, including the attempts that only fetched its member id, is no rebalance
/// of the window. Returns whether it has joined: a slow one pushes before that.
fn forget_first_join(points: &mut [Point]) -> bool {
    let mut has_joined = false;
    for point in points {
        let joined = point.value > 0.0;
        match point.measure {
            Measure::Rebalances => point.value = (point.value - 1.0).max(0.0),
            Measure::RebalanceTimeTotal => point.value = 0.0,
            Measure::FailedRebalances => {
                point.value = 0.0;
                continue;
            }
            _ => continue,
        }
        has_joined |= joined;
    }
    has_joined
}

/// Replaces the text if a new one is given, cut to `TEXT_BYTES_MAX`; returns whether it stays as it
/// was.
fn keep_text(kept: &mut Option<String>, text: Option<&str>) -> bool {
    let text = text.filter(|text| !text.is_empty()).map(cut);
    let is_same = text.is_none() || kept.as_deref() == text;
    if !is_same {
        *kept = text.map(str::to_owned);
    }
    is_same
}

pub(super) fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(TEXT_BYTES_MAX)]
}

fn partitions_of(reading: &Reading<'_>) -> Option<usize> {
    let lags = reading
        .values
        .iter()
        .filter(|value| value.measure == Measure::Lag);
    Some(lags.count()).filter(|count| *count > 0)
}

/// The nodes, topics and partitions of a push that are kept; `None`: all of them.
struct Chosen<'a> {
    nodes: Option<Vec<Subject<'a>>>,
    topics: Option<Vec<Subject<'a>>>,
    partitions: Option<Vec<Subject<'a>>>,
}

impl<'a> Chosen<'a> {
    fn of(reading: &Reading<'a>) -> Chosen<'a> {
        let choose = |rank: Measure, count_max: usize| {
            let values = reading.values.iter().filter(|value| value.measure == rank);
            let mut ranked: Vec<_> = values.map(|value| (value.value, value.subject)).collect();
            if ranked.len() <= count_max {
                return None;
            }
            ranked.sort_by(|one, other| other.0.total_cmp(&one.0));
            ranked.truncate(count_max);
            let mut subjects: Vec<_> = ranked.into_iter().map(|(_, subject)| subject).collect();
            subjects.sort();
            Some(subjects)
        };
        Chosen {
            nodes: choose(Measure::NodeRequests, NODES_MAX)
                .or_else(|| choose(Measure::NodeLatencyMax, NODES_MAX)),
            topics: choose(Measure::TopicBytes, TOPICS_MAX),
            partitions: choose(Measure::Lag, PARTITIONS_MAX),
        }
    }

    fn has(&self, subject: Subject<'_>) -> bool {
        let chosen = match subject {
            Subject::Client => return true,
            Subject::Node(_) => &self.nodes,
            Subject::Topic(_) => &self.topics,
            Subject::Partition(..) => &self.partitions,
        };
        chosen
            .as_ref()
            .is_none_or(|chosen| chosen.binary_search(&subject).is_ok())
    }
}
