//! The numbers that the consumer tests read from a snapshot, derived once.

use super::super::super::arithmetic::setting;
use super::super::super::diagnosis::Confidence;
use super::super::super::snapshot::{
    BrokerSide, ConsumedPartition, Consumer, Library, Origin, Role, Setting, Snapshot,
};
use super::super::broker::{
    self,
    parts::{Part, Parts},
};
use super::super::words;
use crate::formulas::consumer::{LAG_SMALL_RECORDS, is_lag_changing};

/// A lag of less than this many seconds of records is small: a group's clocks are no finer.
const LAG_SMALL_S: f64 = 1.0;

/// Two waits of a fetch: what arrives while one fetch waits is fetched only by the next.
const LAG_SMALL_WAITS: f64 = 2.0;

/// What one fetch waits for, and what the one before has brought and is not committed yet.
const LAG_SMALL_FETCHES: f64 = 2.0;

/// The mean size of fetches that are cut at a limit lies below it, because a fetch holds whole
/// batches.
pub const SIZE_AT_LIMIT: f64 = 0.85;

/// Polls that wait for more than this share of time wait for records.
pub const IDLE_HIGH: f64 = 0.8;

/// Polls that wait for less than this share of time: the application is busy.
pub const IDLE_LOW: f64 = 0.2;

/// A client that never waits has a fetch under way for at least this share of the time only where
/// fetches are what it waits for: one that is busy asks again late.
const FETCH_USE_HIGH: f64 = 0.8;

/// The next fetch comes at once if it comes within this many round trips of the answer to the last:
/// an answer of 15 kB over 40 ms took 52. On shorter ways as much may be work.
const AT_ONCE: f64 = 1.4;
const AT_ONCE_MS_MIN: f64 = 5.0;

/// A broker that answers with less than this share of what is unread was not allowed to send more.
const UNREAD_MIN: f64 = 4.0;

/// A fetch of records that are there takes as long only on a slow way, or from a slow disk.
pub const FETCH_SLOW_MS: f64 = 300.0;

/// An application that takes this share of what is fetched takes all of it: it commits later.
const TAKES: f64 = 0.6;

/// Polls of a fetch that wait, where one does. Of a client whose fetches no broker counts, more
/// would be the polls of several fetches.
const ONE_WAITS: (f64, f64) = (0.5, 3.0);

/// A growing lag of this many fetches is more than what one of them waits for.
const GROWN: f64 = 1.5;

/// Two sums of the same records differ by less than this where both are right.
const RATES_AGREE: f64 = 0.25;

/// A poll hands over this many records at most (`max.poll.records` of Java and Ottla's client).
const POLL_RECORDS: f64 = 500.0;

/// Where a fetch has records for this many polls, most hand over what an earlier one waited for.
const POLLS_OF_A_FETCH: f64 = 1.5;

/// A window with this many polls shows whether the lag moves from poll to poll.
const POLLS_SEEN: f64 = 5.0;

/// Polls this many fetches apart, each of a second at least, do not wait for them.
const POLLS_APART: f64 = 5.0;
const FETCH_MS_MIN: f64 = 1_000.0;

/// Measured numbers and those derived from them. Values that are not finite are absent.
pub struct Reading<'a> {
    pub snapshot: &'a Snapshot,
    pub consumer: &'a Consumer,
    /// Share of time that polls waited for records ([`idle`]).
    pub idle: Option<f64>,
    /// Its polls may all have waited but those that take what one has brought.
    pub may_wait: bool,
    /// Records consumed per second.
    pub consumed: Option<f64>,
    pub produced: Option<f64>,
    /// Records behind the end, over all partitions of this member.
    pub lag: Option<f64>,
    /// Growth of the lag, in records per second.
    pub lag_slope: Option<f64>,
    /// The lag is old for some partitions: it is a lower bound, and its course is not known.
    pub is_lag_stale: bool,
    pub fetch_ms: Option<f64>,
    pub fetch_bytes: Option<f64>,
    /// The bytes of a fetch are worked out, of a client whose polls wait for one all the time.
    pub is_fetch_size_worked_out: bool,
    /// Share of time that a fetch is under way; above 1 with several brokers.
    pub fetch_use: Option<f64>,
    /// Number of partitions of this member.
    pub partitions: Option<f64>,
    pub round_trip_ms: Option<f64>,
    /// Settings with their origin. [`is_known`]: whether a refusal or a promise may rest on them.
    pub wait_ms: (f64, &'static str),
    pub min_bytes: (f64, &'static str),
    pub max_bytes: (f64, &'static str),
    pub partition_bytes: (f64, &'static str),
}

impl<'a> Reading<'a> {
    pub fn of(snapshot: &'a Snapshot, consumer: &'a Consumer) -> Reading<'a> {
        let partitions = &consumer.partitions;
        let consumed = consumed(snapshot, consumer);
        let fetches = sane(consumer.fetches_per_second);
        let fetch_use = fetches
            .zip(sane(consumer.fetch_ms))
            .map(|(rate, ms)| rate * ms / 1_000.0)
            .or_else(|| fetch_use_at_brokers(snapshot));
        let lag = sum(partitions, |partition| sane(partition.lag)).or(sane(consumer.lag_max));
        let fetch_ms = sane(consumer.fetch_ms)
            .filter(|ms| *ms > 0.0)
            .or_else(|| fetch_ms_at_brokers(snapshot));
        let is_untold = is_mean_of_untold_polls(snapshot, consumer, (lag, consumed, fetch_ms));
        let idle = idle(snapshot, consumer, consumed, fetch_use)
            .filter(|_| !is_untold)
            .map(|idle| match idle < IDLE_LOW {
                true => idle,
                false => idle.min(waited_at_most(lag, consumed, fetch_use)),
            });
        let is_lag_stale = is_stale(consumer, idle);
        let lag_slope = slope(partitions).filter(|_| !is_lag_stale);
        let produced = produced(consumer, consumed, lag_slope).filter(|_| !is_lag_stale);
        let default_wait_ms = match snapshot.client.library {
            Library::FranzGo => 5_000.0,
            _ => 500.0,
        };
        let settings = &snapshot.settings;
        let fetch_bytes = sane(consumer.fetch_bytes).or_else(|| fetch_bytes_at_brokers(snapshot));
        let always_waits = is_untold || idle.is_some_and(|idle| idle > IDLE_HIGH);
        let worked_out = || fetch_bytes_of_all(snapshot, consumed?, fetch_ms?).filter(|_| always_waits);
        Reading {
            snapshot,
            consumer,
            idle,
            may_wait: is_untold,
            consumed,
            produced,
            lag,
            lag_slope,
            is_lag_stale,
            fetch_ms,
            fetch_bytes: fetch_bytes.or_else(worked_out),
            is_fetch_size_worked_out: fetch_bytes.is_none(),
            fetch_use,
            partitions: sane(consumer.assigned_partitions)
                .or_else(|| (!partitions.is_empty()).then_some(partitions.len() as f64)),
            round_trip_ms: sane(snapshot.network.round_trip_ms).filter(|ms| *ms > 0.0),
            wait_ms: setting(usable(settings.fetch_max_wait_ms), default_wait_ms),
            min_bytes: setting(usable(settings.fetch_min_bytes), 1.0),
            max_bytes: setting(usable(settings.fetch_max_bytes), 52_428_800.0),
            partition_bytes: setting(usable(settings.max_partition_fetch_bytes), 1_048_576.0),
        }
    }

    /// Whether the lag is too small to count as one. `None`: it is not known.
    pub fn is_lag_small(&self) -> Option<bool> {
        let lag = self.lag?;
        let is_small = self.is_small(lag, self.flow())
            || self.is_less_than_a_fetch_wants()
            || (lag <= self.between_polls() && self.is_growing() == Some(false));
        // An old lag can only have grown.
        (!is_small || !self.is_lag_stale).then_some(is_small)
    }

    /// Whether no more is unread than fetches wait for, by a fetch.min.bytes that is known.
    pub fn is_less_than_a_fetch_wants(&self) -> bool {
        let least = self.min_bytes;
        let unread = self.unread_bytes();
        is_known(least) && least.0 > 1.0 && unread.is_some_and(|unread| unread <= LAG_SMALL_FETCHES * least.0)
    }

    /// Whether this number of records is a small lag at this rate.
    pub fn is_small(&self, lag: f64, records_per_second: f64) -> bool {
        let is_moving = records_per_second > 0.0 && lag <= LAG_SMALL_RECORDS;
        is_moving || lag <= 0.0 || lag <= records_per_second * self.lag_small_seconds()
    }

    pub fn lag_small_seconds(&self) -> f64 {
        if self.min_bytes.0 > 1.0 {
            LAG_SMALL_S.max(LAG_SMALL_WAITS * self.wait_ms.0 / 1_000.0)
        } else {
            LAG_SMALL_S
        }
    }

    pub fn is_behind(&self) -> bool {
        self.is_lag_small() == Some(false)
    }

    /// Records per second that it reads, or that come where that is more.
    pub fn flow(&self) -> f64 {
        self.consumed.unwrap_or(0.0).max(self.produced.unwrap_or(0.0))
    }

    /// Records that come between two polls: a client that polls every few seconds and reads all
    /// that is there has a lag that rises and falls by them. 0 where the window has few polls.
    fn between_polls(&self) -> f64 {
        let seconds = sane(self.consumer.ms_between_polls).unwrap_or(0.0) / 1_000.0;
        match POLLS_SEEN * seconds <= self.snapshot.seconds {
            true => self.flow() * seconds,
            false => 0.0,
        }
    }

    /// Whether the lag grows by more than rates vary from second to second, and within the window
    /// by more than it varies from poll to poll: a few records, or those that come between two.
    pub fn is_growing(&self) -> Option<bool> {
        let slope = self.lag_slope?;
        let (flow, noise) = (self.flow(), self.between_polls());
        Some(slope > 0.0 && is_lag_changing(slope, flow, self.snapshot.seconds, noise))
    }

    pub fn is_shrinking(&self) -> Option<bool> {
        self.lag_slope.map(|slope| slope < 0.0)
    }

    /// Whether polls wait for fetches: nearly always, or at least half of the time while the
    /// consumer falls behind. Java has no sample of the idle share where polls follow each other
    /// within a millisecond; then the next fetch that comes as soon as the last one is answered
    /// says the same.
    pub fn waits_for_fetches(&self) -> Option<Confidence> {
        if self.was_elsewhere() {
            return None;
        }
        if let Some(idle) = self.idle {
            if idle > IDLE_HIGH {
                return Some(Confidence::High);
            }
            return match idle >= 0.5 {
                true if self.asks_at_once() == Some(true) => Some(Confidence::Medium),
                true if self.is_growing() == Some(true) => Some(Confidence::Low),
                _ => None,
            };
        }
        // Between two polls that are much further apart than fetches the application does something
        // else.
        let fetch_ms = self.fetch_ms.unwrap_or(0.0).max(FETCH_MS_MIN);
        let is_elsewhere =
            sane(self.consumer.ms_between_polls).is_some_and(|ms| ms >= POLLS_APART * fetch_ms);
        let asks_at_once = self.asks_at_once() == Some(true) && !is_elsewhere;
        asks_at_once
            .then_some(Confidence::Medium)
            .or(self.may_wait.then_some(Confidence::Low))
    }

    /// Whether the application did something else between two polls although records were there.
    /// Java's idle share counts each poll alike, and many short ones before the first records hide
    /// one that came much later.
    fn was_elsewhere(&self) -> bool {
        let longest = [self.consumer.fetch_ms_max, self.fetch_ms];
        let fetch_ms = longest.into_iter().filter_map(sane).fold(FETCH_MS_MIN, f64::max);
        let between = sane(self.consumer.ms_between_polls_max);
        self.is_behind() && between.is_some_and(|ms| ms >= POLLS_APART * fetch_ms)
    }

    /// Bytes behind the end, over all partitions.
    pub fn unread_bytes(&self) -> Option<f64> {
        Some(self.lag? * self.record_bytes()?).filter(|bytes| bytes.is_finite())
    }

    /// Whether so much is unread that fetches bring what they may, and do not wait for more.
    pub fn has_more_than_fetches_bring(&self) -> bool {
        self.unread_fetches().is_some_and(|fetches| fetches >= UNREAD_MIN)
    }

    /// How many fetches would bring what is unread; where nothing tells their bytes, by records.
    fn unread_fetches(&self) -> Option<f64> {
        let by_bytes = || Some(self.unread_bytes()? / self.fetch_bytes?);
        let by_records = || Some(self.lag? / (self.consumed? * self.fetch_ms? / 1_000.0));
        by_bytes()
            .or_else(by_records)
            .filter(|fetches| fetches.is_finite())
    }

    /// The same where no broker says how long it held fetches back, and fetches do not take as long
    /// as they would wait by default; or where the lag grows beyond what one brings.
    pub fn are_records_there(&self) -> bool {
        let wait_ms = self.wait_ms.0;
        let is_wait = |ms: f64| (0.9 * wait_ms..=1.2 * wait_ms).contains(&ms);
        let is_told = self.asked_wait_ms().is_some();
        let outgrows = || {
            let is_more = self.unread_fetches().is_some_and(|fetches| fetches >= GROWN);
            is_more && self.is_growing() == Some(true)
        };
        let has_more = self.has_more_than_fetches_bring() || outgrows();
        !is_told && !self.fetch_ms.is_some_and(is_wait) && has_more
    }

    /// Whether a fetch is under way nearly always, or each follows its answer by one round trip.
    pub fn asks_at_once(&self) -> Option<bool> {
        let is_next = |side: &BrokerSide| {
            let share = sane(side.back_to_back_share)?;
            Some(share >= FETCH_USE_HIGH || is_asked_at_once(side))
        };
        let back_to_back = self.sides().filter_map(is_next).reduce(|one, other| one && other);
        let brokers = self.snapshot.brokers.len().max(1) as f64;
        let under_way = self.fetch_use.map(|share| share >= FETCH_USE_HIGH * brokers);
        match (under_way, back_to_back) {
            (Some(one), Some(other)) => Some(one || other),
            (one, other) => one.or(other),
        }
    }

    /// Whether fetches take as long as they may wait for records.
    pub fn is_fetch_waiting(&self) -> Option<bool> {
        let fetch_ms = self.fetch_ms?;
        let wait = self.wait_ms.0;
        // With fetch.min.bytes of one, a broker that has records answers at once.
        if is_known(self.min_bytes) && self.min_bytes.0 <= 1.0 && self.is_behind() {
            return Some(false);
        }
        // A fetch that returns as much as it may does not wait for more, however long it takes.
        let limit = self.partition_bytes.0.min(self.max_bytes.0);
        if self
            .fetch_bytes
            .is_some_and(|size| size >= SIZE_AT_LIMIT * limit && size >= self.min_bytes.0)
        {
            return Some(false);
        }
        if let Some(asked) = self.asked_wait_ms()
            && asked < 0.5 * fetch_ms
        {
            return Some(false);
        }
        let round_trip = self.round_trip_ms.unwrap_or(0.0);
        // Anything longer than the wait and the round trip has another cause than waiting for
        // records.
        Some(fetch_ms >= 0.9 * wait && fetch_ms <= 1.5 * wait + 2.0 * round_trip + 5.0)
    }

    /// Whether it is certain that fetches are not held back until fetch.min.bytes are there: the
    /// broker counted no such wait, or they bring more than a value that is known, or far more is
    /// unread than they bring.
    pub fn is_surely_not_held(&self) -> bool {
        let by_broker = self
            .asked_wait_ms()
            .zip(self.fetch_ms)
            .is_some_and(|(asked, fetch)| asked < 0.5 * fetch);
        let by_size = self
            .fetch_bytes
            .is_some_and(|size| is_known(self.min_bytes) && size >= self.min_bytes.0);
        by_broker
            || by_size
            || self.are_records_there()
            || (is_known(self.min_bytes) && self.min_bytes.0 <= 1.0)
    }

    /// How long brokers held a fetch back because records were missing, mean.
    pub fn asked_wait_ms(&self) -> Option<f64> {
        let waits = self
            .sides()
            .filter(|side| Parts::of(side).is_some())
            .filter_map(|side| sane(side.remote_micros));
        waits.reduce(f64::max).map(|micros| micros / 1_000.0)
    }

    /// The brokers' numbers of this client alone.
    pub fn sides(&self) -> impl Iterator<Item = &'a BrokerSide> + use<'a> {
        sides(self.snapshot)
    }

    /// The broker's time of a fetch without the wait for records, in ms, at the slowest broker.
    pub fn broker_ms(&self) -> Option<f64> {
        let parts = self.snapshot.brokers.iter().filter_map(Parts::of);
        parts
            .map(|parts| parts.without_remote().total_ms())
            .reduce(f64::max)
    }

    pub fn judgement(&self) -> Option<broker::Judgement> {
        broker::judge_all(&self.snapshot.brokers, Role::Consumer)
    }

    pub fn throttle_ms(&self) -> Option<f64> {
        let of_brokers = self.sides().filter_map(|side| sane(side.throttle_ms));
        of_brokers.chain(sane(self.consumer.throttle_ms)).reduce(f64::max)
    }

    /// Bytes read per second, by the client's count, by the brokers', or by what a record has on
    /// disk.
    pub fn bytes_per_second(&self) -> Option<f64> {
        let by_size = || Some(self.consumed? * record_bytes_on_disk(self.snapshot)?);
        sane(self.consumer.bytes_per_second)
            .or_else(|| of_brokers(self.snapshot, |side| sane(side.bytes_per_second)))
            .or_else(by_size)
    }

    /// The mean size of a record on the wire, in bytes.
    pub fn record_bytes(&self) -> Option<f64> {
        let bytes = self.bytes_per_second()?;
        // Java counts bytes and records of a fetch together.
        let records = sane(self.consumer.records_per_second)
            .or(self.consumed)
            .filter(|records| *records > 0.0)?;
        Some(bytes / records).filter(|size| *size > 0.0)
    }

    pub fn origin_of_fetch_size(&self) -> &'static str {
        match self.is_fetch_size_worked_out {
            true => "worked out",
            false => "measured",
        }
    }

    /// The age of the oldest record to be read next, in ms.
    pub fn age_ms(&self) -> Option<f64> {
        let ages = self
            .consumer
            .partitions
            .iter()
            .filter_map(|partition| sane(partition.lag_ms));
        ages.reduce(f64::max)
    }

    /// The value of max.poll.interval.ms, where it is known.
    pub fn poll_interval_ms(&self) -> Option<f64> {
        let setting = self.snapshot.settings.max_poll_interval_ms?;
        let is_known = setting.origin.is_known();
        sane(Some(setting.value)).filter(|ms| is_known && *ms > 0.0)
    }

    /// Records per second that the application would work on if fetches brought them.
    pub fn work_limit(&self) -> Option<f64> {
        let (idle, consumed) = (self.idle?, self.consumed?);
        let limit = consumed / (1.0 - idle);
        (idle < 1.0 && limit.is_finite() && limit > 0.0).then_some(limit)
    }

    /// The sum of the partitions' rates is not the consumer's own rate.
    pub fn do_rates_disagree(&self) -> bool {
        let by_partition = sum(&self.consumer.partitions, |partition| {
            sane(partition.consumed_per_second)
        });
        let own = sane(self.consumer.records_per_second);
        own.zip(by_partition)
            .is_some_and(|(own, sum)| !do_agree(own, sum))
    }

    /// The name of this member.
    pub fn name(&self) -> &str {
        match &self.snapshot.client.member_id {
            Some(member) => member,
            None => &self.snapshot.client.client_id,
        }
    }
}

/// The share of time that polls waited for records. Clients push the mean over polls of each one's
/// own share; where a fetch has records for several polls, one of them waits and the others do not,
/// however long that one takes.
fn idle(
    snapshot: &Snapshot,
    consumer: &Consumer,
    consumed: Option<f64>,
    fetch_use: Option<f64>,
) -> Option<f64> {
    let of_polls = sane(consumer.poll_idle_share)?.min(1.0);
    let over_time = || {
        let between = sane(consumer.ms_between_polls).filter(|ms| *ms > 0.0)?;
        let fetches = sane(consumer.fetches_per_second).filter(|rate| *rate > 0.0)?;
        let most = usable(snapshot.settings.max_poll_records).map_or(POLL_RECORDS, |setting| setting.value);
        let bring = consumed? / fetches / most;
        if bring < POLLS_OF_A_FETCH {
            return None;
        }
        // Java asks for a partition's next records when it has handed over all that it has of it.
        if snapshot.client.library == Library::Java && sane(consumer.assigned_partitions) == Some(1.0) {
            return fetch_use;
        }
        let polls = (1_000.0 / between / fetches).max(bring);
        // One that brings records waits, and all that bring none.
        let wait = polls - bring + 1.0;
        let own = (of_polls * polls / wait).min(1.0);
        if own < 0.5 {
            // Polls that bring nothing wait: as many that do not wait bring less than is assumed.
            let waited = wait * own / (1.0 - own);
            return (wait <= 2.0).then(|| waited / (waited + bring));
        }
        // The longest waited for a fetch, so that the others share what is left of a fetch's time.
        let longest = sane(consumer.ms_between_polls_max)?.max(between);
        let work = (polls * between - wait * longest).max(0.0) / (bring - 1.0);
        Some((1.0 - bring * work / (polls * between)).max(0.0))
    };
    let share = over_time().unwrap_or(of_polls);
    // Nothing is waited for while no fetch is under way.
    Some(share.min(fetch_use.unwrap_or(1.0)).max(of_polls).min(1.0))
}

/// Where records are there, a consumer waits for none while no fetch is under way. Java's ratio
/// knows only polls that have ended, and counts each alike: of one that works for twenty seconds it
/// says what the short ones before were. A consumer that fetches nothing at all has paused.
fn waited_at_most(lag: Option<f64>, consumed: Option<f64>, fetch_use: Option<f64>) -> f64 {
    let under_way = fetch_use.filter(|share| is_behind(lag, consumed) && *share > 0.0);
    under_way.unwrap_or(1.0)
}

fn is_behind(lag: Option<f64>, consumed: Option<f64>) -> bool {
    let small = LAG_SMALL_RECORDS.max(2.0 * LAG_SMALL_S * consumed.unwrap_or(0.0));
    lag.is_some_and(|lag| lag > small)
}

/// Whether the client's share of idle polls says nothing of its time: librdkafka's is a mean of an
/// unknown number of polls, each of which counts alike. Where a fetch has records for many, one of
/// them waits, and the mean says that hardly any does: 0.12 was pushed by an application that took
/// each record at once. An application that never waits pushes less than one such poll in a fetch.
fn is_mean_of_untold_polls(
    snapshot: &Snapshot,
    consumer: &Consumer,
    (lag, consumed, fetch_ms): (Option<f64>, Option<f64>, Option<f64>),
) -> bool {
    let is_counted = sane(consumer.ms_between_polls).is_some();
    let idle = sane(consumer.poll_idle_share).filter(|idle| !is_counted && *idle <= IDLE_HIGH);
    let Some(idle) = idle else {
        return false;
    };
    let consumed = consumed.unwrap_or(0.0);
    if let Some(fetched) = Fetched::of(snapshot) {
        // One that is slower lets records gather until its client fetches no more.
        let takes_all = consumed >= TAKES * fetched.records_per_second;
        let is_slow = fetched.is_held && is_behind(lag, Some(consumed));
        return fetched.is_always && takes_all && !is_slow && idle * fetched.records >= ONE_WAITS.0;
    }
    let waits = |fetch_ms: f64| {
        let of_a_fetch = idle * consumed * fetch_ms / 1_000.0;
        fetch_ms >= FETCH_SLOW_MS || (ONE_WAITS.0..=ONE_WAITS.1).contains(&of_a_fetch)
    };
    fetch_ms.is_some_and(waits)
}

/// Whether the next fetch comes as soon as an answer can have been read.
fn is_asked_at_once(side: &BrokerSide) -> bool {
    let trip_ms = side.round_trip_ms.filter(|ms| *ms >= AT_ONCE_MS_MIN);
    sane(side.gap_ms)
        .zip(trip_ms)
        .is_some_and(|(gap_ms, trip_ms)| gap_ms <= AT_ONCE * trip_ms)
}

/// What brokers tell of a client's fetches.
struct Fetched {
    records_per_second: f64,
    /// In a fetch.
    records: f64,
    /// One is always under way.
    is_always: bool,
    /// They wait for records.
    is_held: bool,
}

impl Fetched {
    fn of(snapshot: &Snapshot) -> Option<Fetched> {
        let (mut count, mut fetches, mut under_way, mut records) = (0.0, 0.0, 0.0, 0.0);
        let (mut is_held, mut is_next) = (false, true);
        for side in sides(snapshot) {
            let fetch_ms = side_fetch_ms(side).filter(|ms| ms.is_finite())?;
            let rate = sane(side.requests_per_second)?;
            is_held |= Parts::of(side).is_none_or(|parts| parts.ms(Part::Remote) >= 0.5 * fetch_ms);
            is_next &= is_asked_at_once(side);
            count += 1.0;
            fetches += rate;
            under_way += rate * fetch_ms / 1_000.0;
            records += sane(side.records_per_second)?;
        }
        (count > 0.0 && fetches > 0.0).then_some(Fetched {
            records_per_second: records,
            records: records / fetches,
            is_always: is_next || under_way >= FETCH_USE_HIGH * count,
            is_held,
        })
    }
}

/// Whether a refusal or a promise may rest on this setting: its owner stated it, or the broker saw
/// it.
pub fn is_known(setting: (f64, &'static str)) -> bool {
    Origin::KNOWN.map(words::origin).contains(&setting.1)
}

/// Keeps only plausible measurements: finite and not negative.
pub fn sane(value: Option<f64>) -> Option<f64> {
    value.filter(|value| value.is_finite() && *value >= 0.0)
}

fn usable(setting: Option<Setting<f64>>) -> Option<Setting<f64>> {
    setting.filter(|setting| setting.value.is_finite() && setting.value >= 0.0)
}

fn do_agree(one: f64, other: f64) -> bool {
    (one - other).abs() <= RATES_AGREE * one.max(other)
}

/// A busy client has records of several partitions at hand and hands over one after the other: the
/// gauges of those whose turn has not come are as old as their last turn. One whose polls wait has
/// handed over everything, and its gauges are as old as the last fetch.
fn is_stale(consumer: &Consumer, idle: Option<f64>) -> bool {
    let partitions = &consumer.partitions;
    let has_own = partitions.iter().any(|partition| partition.is_own_gauge);
    let is_busy = idle.is_none_or(|idle| idle < IDLE_LOW);
    if !has_own || !is_busy || partitions.len() < 2 {
        return false;
    }
    let has_moved =
        |partition: &ConsumedPartition| sane(partition.consumed_per_second).is_some_and(|rate| rate > 0.0);
    let by_partition = sum(partitions, |partition| sane(partition.consumed_per_second));
    let own = sane(consumer.records_per_second);
    let agrees = own.zip(by_partition).is_none_or(|(own, sum)| do_agree(own, sum));
    !agrees || !partitions.iter().all(has_moved)
}

/// Java counts the records of a fetch when the last of them has been handed over, which a slow
/// consumer does once in many seconds; positions move with every poll. So where the two differ, the
/// partitions' rates are right.
fn consumed(snapshot: &Snapshot, consumer: &Consumer) -> Option<f64> {
    let own = sane(consumer.records_per_second);
    let by_partition = sum(&consumer.partitions, |partition| {
        sane(partition.consumed_per_second)
    });
    let are_all = sane(consumer.assigned_partitions)
        .is_none_or(|assigned| assigned <= consumer.partitions.len() as f64);
    match (own, by_partition) {
        (Some(own), Some(sum)) if are_all && sum > 0.0 && !do_agree(own, sum) => Some(sum),
        (own, sum) => own
            .or(sum)
            .or_else(|| of_brokers(snapshot, |side| sane(side.records_per_second))),
    }
}

fn produced(consumer: &Consumer, consumed: Option<f64>, lag_slope: Option<f64>) -> Option<f64> {
    let rate = sum(&consumer.partitions, |partition| {
        sane(partition.produced_per_second)
    })
    .or_else(|| Some((consumed? + lag_slope?).max(0.0)))?;
    // The difference of two large rates is not a meaningful rate.
    let is_rest = rate < 0.001 * consumed.unwrap_or(0.0);
    Some(if is_rest { 0.0 } else { rate })
}

/// The sum over the partitions; `None` unless all of them have the number, because a partial sum is
/// misleading.
fn sum(partitions: &[ConsumedPartition], of: impl Fn(&ConsumedPartition) -> Option<f64>) -> Option<f64> {
    if partitions.is_empty() {
        return None;
    }
    partitions
        .iter()
        .map(of)
        .sum::<Option<f64>>()
        .filter(|sum| sum.is_finite())
}

fn slope(partitions: &[ConsumedPartition]) -> Option<f64> {
    let of = |partition: &ConsumedPartition| {
        partition
            .lag_slope
            .or_else(|| Some(partition.produced_per_second? - partition.consumed_per_second?))
            .filter(|slope| slope.is_finite())
    };
    sum(partitions, of)
}

fn sides(snapshot: &Snapshot) -> impl Iterator<Item = &BrokerSide> {
    snapshot.brokers.iter().filter(|side| !side.is_of_all_clients)
}

fn of_brokers(snapshot: &Snapshot, of: impl Fn(&BrokerSide) -> Option<f64>) -> Option<f64> {
    sides(snapshot)
        .filter_map(of)
        .reduce(|one, other| one + other)
        .filter(|sum| sum.is_finite())
}

/// The time of one fetch as the broker sees it, and one round trip.
fn side_fetch_ms(side: &BrokerSide) -> Option<f64> {
    let total_ms = match Parts::of(side) {
        Some(parts) => parts.total_ms(),
        None => sane(side.total_micros)? / 1_000.0,
    };
    Some(total_ms + sane(side.round_trip_ms).unwrap_or(0.0))
}

fn fetch_ms_at_brokers(snapshot: &Snapshot) -> Option<f64> {
    let times = sides(snapshot).filter_map(side_fetch_ms);
    times.filter(|ms| ms.is_finite() && *ms > 0.0).reduce(f64::max)
}

fn fetch_bytes_at_brokers(snapshot: &Snapshot) -> Option<f64> {
    let sizes = sides(snapshot).filter_map(|side| {
        let requests = sane(side.requests_per_second).filter(|rate| *rate > 0.0)?;
        Some(sane(side.bytes_per_second)? / requests)
    });
    sizes.filter(|size| size.is_finite()).reduce(f64::max)
}

fn record_bytes_on_disk(snapshot: &Snapshot) -> Option<f64> {
    sane(snapshot.cluster.as_ref()?.record_bytes).filter(|bytes| *bytes > 0.0)
}

/// What a fetch brings of records whose size on disk is known, where one is always under way at
/// each broker that has some of them.
fn fetch_bytes_of_all(snapshot: &Snapshot, consumed: f64, fetch_ms: f64) -> Option<f64> {
    let partitions = snapshot.consumer.as_ref()?.partitions.len() as f64;
    let senders = snapshot
        .cluster
        .as_ref()?
        .sockets
        .brokers
        .min(partitions)
        .max(1.0);
    let bytes = consumed / senders * fetch_ms / 1_000.0 * record_bytes_on_disk(snapshot)?;
    Some(bytes).filter(|bytes| bytes.is_finite() && *bytes > 0.0)
}

/// Fetches per second times the time of each.
fn fetch_use_at_brokers(snapshot: &Snapshot) -> Option<f64> {
    of_brokers(snapshot, |side| {
        Some(sane(side.requests_per_second)? * side_fetch_ms(side)? / 1_000.0)
    })
}

#[cfg(test)]
mod tests {
    use super::super::samples;
    use super::*;
    use crate::doctor::diagnosis::Verdict;
    use crate::doctor::rules::examine;
    use crate::doctor::snapshot::ClusterSide;

    /// What a consumer of several partitions pushes whose fetches have records for `polls`, each of
    /// which works, and the first of which waits: the share that is found, and the true one.
    fn share(polls: f64, work_ms: f64, waits_ms: f64, longest: f64) -> (f64, f64) {
        let cycle_ms = polls * work_ms + waits_ms;
        let own = waits_ms / (waits_ms + work_ms);
        let consumer = Consumer {
            poll_idle_share: Some(own / polls),
            ms_between_polls: Some(cycle_ms / polls),
            ms_between_polls_max: Some(longest * (work_ms + waits_ms)),
            fetches_per_second: Some(1_000.0 / cycle_ms),
            records_per_second: Some(POLL_RECORDS * polls * 1_000.0 / cycle_ms),
            ..Consumer::default()
        };
        let snapshot = Snapshot::default();
        let found = idle(&snapshot, &consumer, consumer.records_per_second, Some(1.0));
        (found.expect("a share"), waits_ms / cycle_ms)
    }

    #[test]
    fn one_of_many_polls_waits_for_all_of_them() {
        for (polls, work_ms, waits_ms) in [
            (2.0, 5.0, 400.0),
            (2.0, 100.0, 100.0),
            (14.0, 1.0, 700.0),
            (14.0, 50.0, 700.0),
            (14.0, 50.0, 20.0),
            (7.0, 1_000.0, 40.0),
        ] {
            let (found, truth) = share(polls, work_ms, waits_ms, 1.0);
            let case = format!("{polls} polls of {work_ms} and {waits_ms} ms: {found}, is {truth}");
            assert!((found - truth).abs() < 0.01, "{case}");
        }
    }

    /// 9,000 records/s of 150 bytes through a receive buffer of 32 KiB over 40 ms, as librdkafka
    /// pushed it and the broker saw it.
    #[test]
    fn a_mean_of_polls_whose_number_is_untold_is_no_share_of_the_time() {
        let mut snapshot = samples::of(Consumer {
            poll_idle_share: Some(0.119),
            assigned_partitions: Some(1.0),
            partitions: samples::partitions(&[(95_965.0, 5_058.0, 4_460.0)]),
            ..Consumer::default()
        });
        snapshot.client.library = Library::Librdkafka;
        snapshot.network.round_trip_ms = Some(40.1);
        snapshot.brokers = vec![BrokerSide {
            requests_per_second: Some(1.0),
            records_per_second: Some(5_900.0),
            bytes_per_second: Some(1_042_545.0),
            queue_micros: Some(6.0),
            local_micros: Some(60.0),
            remote_micros: Some(0.0),
            response_queue_micros: Some(0.0),
            send_micros: Some(1_017_000.0),
            round_trip_ms: Some(40.1),
            ..BrokerSide::default()
        }];
        let idle = |snapshot: &Snapshot| Reading::of(snapshot, snapshot.consumer.as_ref().unwrap()).idle;
        assert_eq!(idle(&snapshot), None);
        // More is fetched than it takes: it works, and the records gather.
        let mut gathers = snapshot.clone();
        gathers.brokers[0].records_per_second = Some(9_000.0);
        assert_eq!(idle(&gathers), Some(0.119));
        // A fetch that waits for the next record says nothing of those that are there.
        let mut waits = snapshot.clone();
        waits.brokers[0].remote_micros = Some(900_000.0);
        waits.brokers[0].send_micros = Some(100.0);
        assert_eq!(idle(&waits), Some(0.119));
        // Records that are late and few: no other poll can wait.
        waits.consumer.as_mut().unwrap().partitions[0].lag = Some(100.0);
        assert_eq!(idle(&waits), None);
        // A poll of one that works takes a thousandth of its time.
        let mut works = snapshot.clone();
        works.brokers[0].requests_per_second = Some(1_000.0);
        works.brokers[0].send_micros = Some(0.0);
        works.consumer.as_mut().unwrap().poll_idle_share = Some(0.001);
        assert_eq!(idle(&works), Some(0.001));
        // Apache Kafka tells nothing of it.
        let mut untold = snapshot.clone();
        untold.brokers.clear();
        untold.consumer.as_mut().unwrap().fetch_ms = Some(1_100.0);
        assert_eq!(idle(&untold), None);
        untold.consumer.as_mut().unwrap().fetch_ms = Some(41.0);
        assert_eq!(idle(&untold), Some(0.119));
        // 14 records in each fetch, and one poll for each record.
        let own = untold.consumer.as_mut().unwrap();
        (own.fetch_ms, own.poll_idle_share) = (Some(55.0), Some(0.07));
        own.partitions[0].consumed_per_second = Some(264.0);
        assert_eq!(idle(&untold), None);
        snapshot.consumer.as_mut().unwrap().ms_between_polls = Some(0.2);
        assert!(idle(&snapshot).is_some(), "its polls are counted");
    }

    /// librdkafka beside Apache Kafka, which tells nothing of its fetches: what a record has on
    /// disk says what they bring.
    #[test]
    fn fetches_of_which_nothing_tells_bring_what_the_log_s_size_says() {
        let with = |fetch_ms: f64, rate: f64| {
            let mut snapshot = samples::of(Consumer {
                poll_idle_share: Some(0.968),
                assigned_partitions: Some(1.0),
                fetch_ms: Some(fetch_ms),
                partitions: samples::partitions(&[(147_039.0, 1_745.0, rate)]),
                ..Consumer::default()
            });
            snapshot.client.library = Library::Librdkafka;
            snapshot
        };
        let judged_with = |mut snapshot: Snapshot, record_bytes: f64| {
            snapshot.cluster = Some(ClusterSide {
                record_bytes: Some(record_bytes),
                ..ClusterSide::default()
            });
            examine(&snapshot)
        };
        let judged = |snapshot: Snapshot| judged_with(snapshot, 1_070.0);
        // max.partition.fetch.bytes of 16 KiB and receive.buffer.bytes of 16 KiB, over 40 ms.
        let small = judged(with(55.1, 255.0));
        assert_eq!(small.verdict, Verdict::FetchSize, "{small:#?}");
        let size = small.evidence.iter().flat_map(|line| &line.symbols);
        let size = size
            .filter(|symbol| symbol.name == "size")
            .map(|symbol| &symbol.origin);
        assert_eq!(size.collect::<Vec<_>>(), ["worked out"]);
        assert_eq!(judged(with(2_475.0, 305.0)).verdict, Verdict::NetworkWindow);
        // A group that has not committed yet has no rate.
        let mut first = with(1_504.0, 0.0);
        let own = first.consumer.as_mut().unwrap();
        own.poll_idle_share = Some(0.249);
        let partition = &mut own.partitions[0];
        (partition.lag, partition.lag_slope) = (Some(0.0), None);
        (partition.consumed_per_second, partition.produced_per_second) = (None, Some(49.9));
        assert_eq!(examine(&first).verdict, Verdict::FetchWait);
        // A lag that has just begun to grow is more than a fetch waits for.
        let mut begun = with(1_100.0, 5_900.0);
        let own = begun.consumer.as_mut().unwrap();
        own.poll_idle_share = Some(0.1);
        (own.partitions[0].lag, own.partitions[0].lag_slope) = (Some(15_000.0), Some(3_000.0));
        assert_eq!(judged_with(begun, 170.0).verdict, Verdict::NetworkWindow);
        assert_eq!(examine(&with(55.1, 255.0)).verdict, Verdict::NotEnoughData);
    }

    #[test]
    fn a_longest_poll_of_another_time_makes_a_busy_consumer_no_idle_one() {
        let (found, truth) = share(7.0, 1_000.0, 40.0, 5.0);
        assert!((found - truth).abs() < 0.01, "{found}, is {truth}");
        // One that waits stays one.
        let (found, _) = share(14.0, 1.0, 700.0, 1.5);
        assert!(found > IDLE_HIGH);
    }

    /// 9,000 records/s of 150 bytes through a receive buffer of 32 KiB over 40 ms, as pushed.
    #[test]
    fn one_partition_waits_while_its_fetch_is_under_way() {
        let consumer = Consumer {
            poll_idle_share: Some(0.35),
            ms_between_polls: Some(113.5),
            ms_between_polls_max: Some(558.0),
            fetches_per_second: Some(0.766),
            assigned_partitions: Some(1.0),
            ..Consumer::default()
        };
        let mut snapshot = Snapshot::default();
        snapshot.client.library = Library::Java;
        assert_eq!(
            idle(&snapshot, &consumer, Some(4_984.0), Some(0.912)),
            Some(0.912)
        );
        // A busy one has no fetch under way.
        assert_eq!(idle(&snapshot, &consumer, Some(4_984.0), Some(0.01)), Some(0.35));
    }

    /// `max.poll.records=1`, which nothing tells, and 1.5 ms of work for each.
    #[test]
    fn many_polls_that_do_not_wait_are_those_of_a_busy_application() {
        let consumer = Consumer {
            poll_idle_share: Some(0.02),
            ms_between_polls: Some(1.8),
            ms_between_polls_max: Some(60.0),
            fetches_per_second: Some(0.1),
            ..Consumer::default()
        };
        let found = idle(&Snapshot::default(), &consumer, Some(550.0), Some(0.9));
        assert_eq!(found, Some(0.02));
    }

    /// 1,600 records in each fetch of two seconds, and a poll that gives up after 0.8.
    #[test]
    fn polls_that_bring_nothing_wait_too() {
        let consumer = Consumer {
            poll_idle_share: Some(0.67),
            ms_between_polls: Some(330.0),
            ms_between_polls_max: Some(813.0),
            fetches_per_second: Some(0.5),
            ..Consumer::default()
        };
        let found = idle(&Snapshot::default(), &consumer, Some(800.0), Some(1.19));
        assert!(found.expect("a share") > 0.95, "{found:?}");
    }

    #[test]
    fn polls_that_bring_few_records_wait_each_for_itself() {
        let consumer = Consumer {
            poll_idle_share: Some(0.3),
            ms_between_polls: Some(10.0),
            ms_between_polls_max: Some(90.0),
            fetches_per_second: Some(10.0),
            ..Consumer::default()
        };
        let of = |consumed| idle(&Snapshot::default(), &consumer, consumed, Some(1.0));
        assert_eq!(of(Some(1_000.0)), Some(0.3));
        assert_eq!(of(None), Some(0.3));
        let full = of(Some(50_000.0)).expect("a share");
        assert!(full > IDLE_HIGH, "{full}");
    }
}
