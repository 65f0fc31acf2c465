//! What the client of each connection does, in sums since its connection was opened: evidence for
//! the doctor, above all about clients that push no metrics.
//!
//! Each event loop keeps the sums of its own connections together with its other counts; loops
//! share nothing until a reader asks.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;

use ottla_core::request::ClientIdentity;
use ottla_core::seen::{CodecsSeen, FetchLimits, FetchedPartition, Position, Seen, WrittenBatch};
use ottla_core::time::Moment;
use ottla_wire::api_key::ApiKey;
use slab::Slab;

use super::recent::Recent;
use super::stage::{STAGE_COUNT, Stage, StageTimes};
use super::written::WrittenPartitions;
use crate::tls::spoken::Spoken;

/// Closed connections whose sums wait for the next reading; further ones closed between two
/// readings are not reported.
const DEPARTED_MAX: usize = 1024;

/// How long they wait: several times the interval of readers.
const DEPARTED_KEPT_MICROS: u64 = 60_000_000;

/// From this version on an EndTxn names its transaction by an epoch of its own (KIP-890).
const NAMING_END_VERSION: i16 = 5;

/// Different error codes of one client that are counted separately.
const ERRORS_MAX: usize = 8;

/// Connections read at a time before the event loop gets its counts back.
const READ_AT_ONCE: usize = 256;

/// The reaction time of a client, on top of 1.3 network round trips (rule S4).
const TURN_MICROS: u64 = 1_000;

/// The identity of a connection's client.
#[derive(Clone, Debug)]
pub struct Who {
    pub connection_id: u64,
    /// The client id of the first request that moved records.
    pub client_id: Arc<str>,
    pub principal: Arc<str>,
    /// `None`: the connection is without TLS.
    pub spoken: Option<Spoken>,
    pub listener_name: Arc<str>,
    pub address: IpAddr,
    pub port: u16,
    /// Whether the client runs on this machine.
    pub is_local: bool,
    /// Software and instance id, as far as the client sent them.
    pub identity: Arc<ClientIdentity>,
}

/// The time between the answers before a request and the request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Gap {
    /// It was the first request, or came beside a request of another kind.
    #[default]
    Unknown,
    /// An earlier request that moves records was not answered yet: the client has more than one in
    /// flight.
    Overlap,
    /// From the last byte written to the first byte of the request.
    Micros(u64),
}

/// Sums over requests of one API. Times are microseconds.
#[derive(Clone, Debug, Default)]
pub struct ApiActivity {
    /// When the first request was answered.
    pub began: Option<Moment>,
    pub requests: u64,
    pub request_bytes: u64,
    pub reply_bytes: u64,
    pub stage_micros: [u64; STAGE_COUNT],
    pub batches: u64,
    /// Records produced, or by how many offsets the client's fetches advanced.
    pub records: u64,
    pub batch_bytes: u64,
    pub codecs: CodecsSeen,
    pub recompressed: CodecsSeen,
    /// Requests with acks all, 0 and 1.
    pub acks: [u64; 3],
    pub producer_id: Option<i64>,
    /// Requests that came after all earlier ones were answered, and how long after.
    pub gaps: u64,
    pub gap_micros: u64,
    /// The shortest gap.
    pub gap_micros_min: Option<u64>,
    /// Gaps that could be compared with a round trip, and those of requests that came at once.
    pub gaps_judged: u64,
    pub back_to_back: u64,
    /// Requests that came while an earlier one was not answered.
    pub overlaps: u64,
    /// The squares of the times between the reads of one request: with the time in which requests
    /// arrived, the pause that most of that time was spent in.
    pub pause_squares: u64,
    pub largest: Recent<Largest>,
    /// Of the last fetch.
    pub fetch_limits: Option<FetchLimits>,
    /// Answers that waited for the device, how long they waited, and their bytes.
    pub cold_reads: u64,
    pub cold_bytes: u64,
    /// By error code: the number of partitions.
    pub errors: [(i16, u64); ERRORS_MAX],
    position: Option<Position>,
}

/// The largest values of a while.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Largest {
    pub request_bytes: u32,
    pub batch_bytes: u32,
    /// Requests of the connection that were under way at the same time, as far as the broker can
    /// tell: see [`Exchange::in_flight`].
    pub in_flight: u16,
}

impl Largest {
    #[must_use]
    pub fn or(self, other: Largest) -> Largest {
        Largest {
            request_bytes: self.request_bytes.max(other.request_bytes),
            batch_bytes: self.batch_bytes.max(other.batch_bytes),
            in_flight: self.in_flight.max(other.in_flight),
        }
    }
}

/// One request and its answer, as the connection saw them.
#[derive(Clone, Copy, Debug)]
pub struct Exchange<'a> {
    pub api_key: ApiKey,
    pub api_version: i16,
    pub request_bytes: u32,
    pub reply_bytes: u64,
    pub times: &'a StageTimes,
    pub seen: &'a Seen,
    pub gap: Gap,
    /// Requests that move records and were under way when this one came, with it: those that were
    /// not answered yet, and those whose answer cannot have reached the client before it sent this
    /// one. The client may have sent more that had not arrived.
    pub in_flight: u16,
    /// The squares of the times between its reads, in microseconds.
    pub pause_squares: u64,
    /// Batches that were appended since the connection's last exchange.
    pub written: &'a [WrittenBatch],
    pub finished: Moment,
    /// Ranges of files that had to be read from the device while the answer was sent, and their
    /// bytes.
    pub cold_regions: u32,
    pub cold_bytes: u64,
}

impl ApiActivity {
    fn add(&mut self, exchange: &Exchange<'_>, round_trip_micros: Option<u32>) {
        self.began.get_or_insert(exchange.finished);
        self.requests += 1;
        self.request_bytes += u64::from(exchange.request_bytes);
        self.reply_bytes += exchange.reply_bytes;
        for stage in Stage::ALL {
            self.stage_micros[stage as usize] += u64::from(exchange.times.get(stage));
        }
        self.add_gap(exchange.gap, round_trip_micros);
        self.pause_squares = self.pause_squares.saturating_add(exchange.pause_squares);
        self.add_seen(exchange.seen);
        let largest = self.largest.at(exchange.finished);
        *largest = largest.or(Largest {
            request_bytes: exchange.request_bytes,
            batch_bytes: exchange.seen.batch_bytes_max,
            in_flight: exchange.in_flight,
        });
        let read_cold = exchange.times.get(Stage::ColdRead) > 0;
        self.cold_reads += u64::from(exchange.cold_regions) + u64::from(read_cold);
        self.cold_bytes += exchange.cold_bytes;
        if read_cold {
            self.cold_bytes += exchange.seen.fetched_bytes;
        }
    }

    fn count_error(&mut self, code: i16, count: u64) {
        let mut entries = self.errors.iter_mut();
        if let Some(entry) = entries.find(|entry| entry.0 == code || entry.1 == 0) {
            *entry = (code, entry.1 + count);
        }
    }

    fn add_gap(&mut self, gap: Gap, round_trip_micros: Option<u32>) {
        match gap {
            Gap::Unknown => {}
            Gap::Overlap => self.overlaps += 1,
            Gap::Micros(micros) => {
                self.gaps += 1;
                self.gap_micros += micros;
                self.gap_micros_min = Some(self.gap_micros_min.map_or(micros, |min| min.min(micros)));
                if let Some(round_trip) = round_trip_micros.map(u64::from) {
                    self.gaps_judged += 1;
                    // 1.3 round trips and a millisecond.
                    let at_once = round_trip + 3 * round_trip / 10 + TURN_MICROS;
                    self.back_to_back += u64::from(micros <= at_once);
                }
            }
        }
    }

    fn add_seen(&mut self, seen: &Seen) {
        self.batches += u64::from(seen.batches);
        self.records += seen.records;
        self.batch_bytes += seen.batch_bytes + seen.fetched_bytes;
        self.codecs.add(seen.codecs);
        self.recompressed.add(seen.recompressed);
        self.producer_id = seen.producer_id.or(self.producer_id);
        self.fetch_limits = seen.fetch_limits.or(self.fetch_limits);
        if let Some(kind) = seen
            .acks
            .and_then(|acks| usize::try_from(i32::from(acks) + 1).ok())
            && let Some(count) = self.acks.get_mut(kind)
        {
            *count += 1;
        }
        if let Some(position) = seen.position {
            let earlier = self.position.replace(position);
            self.records += earlier
                .and_then(|earlier| position.progress_since(&earlier))
                .unwrap_or(0);
        }
        for (code, count) in seen.errors.iter() {
            self.count_error(code, count.into());
        }
    }
}

/// What the kernel knows of a connection's path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Path {
    /// The round trip, in microseconds: the minimum, because the smoothed value contains the forty
    /// milliseconds by which an idle peer delays its acknowledgement.
    pub round_trip_micros: u32,
    /// The smoothed value. While the broker is sending it contains what queues on the way.
    pub smoothed_micros: u32,
    /// Time since the connection was opened in which bytes of the broker were not acknowledged.
    pub sending_micros: u64,
}

/// The activity of one connection's client.
#[derive(Clone, Debug)]
pub struct Activity {
    pub who: Who,
    pub produce: Option<Box<ApiActivity>>,
    pub fetch: Option<Box<ApiActivity>>,
    pub written: Option<Box<WrittenPartitions>>,
    /// All other requests: their number and their time in handlers.
    pub other_requests: u64,
    pub other_micros: u64,
    /// Commits of offsets among them, and how long they took from their first byte to the last of
    /// their answers.
    pub commits: u64,
    pub commit_micros: u64,
    /// Ends of transactions among them, by versions of EndTxn that do not say which transaction.
    pub nameless_ends: u64,
    /// As the kernel measured it last.
    pub path: Option<Path>,
    /// The positions of its fetches when they were last noted, and when that was.
    pub fetched: Option<(Moment, Vec<FetchedPartition>)>,
    /// It was closed before the first answer can have reached the client.
    pub is_unheard: bool,
    pub is_closed: bool,
}

impl Activity {
    fn add(&mut self, exchange: &Exchange<'_>) {
        for batch in exchange.written {
            let written = self.written.get_or_insert_default();
            written.add(batch, exchange.finished);
        }
        let side = match exchange.api_key {
            ApiKey::Produce => &mut self.produce,
            ApiKey::Fetch => &mut self.fetch,
            _ => {
                self.other_requests += 1;
                self.other_micros += u64::from(exchange.times.get(Stage::Handled));
                if exchange.api_key == ApiKey::OffsetCommit {
                    self.commits += 1;
                    self.commit_micros += exchange.times.total();
                }
                let is_end = exchange.api_key == ApiKey::EndTxn;
                self.nameless_ends += u64::from(is_end && exchange.api_version < NAMING_END_VERSION);
                return;
            }
        };
        let round_trip_micros = self.path.map(|path| path.round_trip_micros);
        side.get_or_insert_default().add(exchange, round_trip_micros);
    }
}

/// A connection's number in one [`Activities`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActivityIndex(usize);

/// The connections of one event loop of which the doctor can tell something.
#[derive(Debug, Default)]
pub struct Activities {
    open: Slab<Activity>,
    /// Oldest first, each with the moment it was closed.
    departed: VecDeque<(Moment, Activity)>,
    /// How many have departed in total.
    departed_count: u64,
}

impl Activities {
    pub fn open(&mut self, who: Who) -> ActivityIndex {
        ActivityIndex(self.open.insert(Activity {
            who,
            produce: None,
            fetch: None,
            written: None,
            other_requests: 0,
            other_micros: 0,
            commits: 0,
            commit_micros: 0,
            nameless_ends: 0,
            path: None,
            fetched: None,
            is_unheard: false,
            is_closed: false,
        }))
    }

    pub fn add(&mut self, index: ActivityIndex, exchange: &Exchange<'_>) {
        self.open[index.0].add(exchange);
    }

    pub fn set_path(&mut self, index: ActivityIndex, path: Option<Path>) {
        self.open[index.0].path = path;
    }

    pub fn set_fetched(&mut self, index: ActivityIndex, at: Moment, partitions: Vec<FetchedPartition>) {
        self.open[index.0].fetched = Some((at, partitions));
    }

    /// The client has gone before the first answer can have reached it.
    pub fn set_unheard(&mut self, index: ActivityIndex, path: Path) {
        self.open[index.0].path = Some(path);
        self.open[index.0].is_unheard = true;
    }

    pub fn close(&mut self, index: ActivityIndex, now: Moment) {
        let mut activity = self.open.remove(index.0);
        activity.is_closed = true;
        if self.departed.len() >= DEPARTED_MAX {
            self.departed.pop_front();
        }
        self.departed.push_back((now, activity));
        self.departed_count += 1;
    }

    /// Returns whose connections are open.
    pub fn clients(&self) -> impl Iterator<Item = &Who> {
        self.open.iter().map(|(_, activity)| &activity.who)
    }

    /// Copies the next few open connections from `from` on; returns where to continue, `None` after
    /// the last.
    pub fn read(&self, from: usize, into: &mut Vec<Activity>) -> Option<usize> {
        let end = from + READ_AT_ONCE;
        into.extend((from..end).filter_map(|index| self.open.get(index)).cloned());
        // Indexes are reused, so the slab is as long as it has ever been.
        (end < self.open.capacity()).then_some(end)
    }

    /// Copies the closed connections after the first `seen`; returns how many have been seen
    /// including them.
    pub fn read_departed(&mut self, seen: u64, now: Moment, into: &mut Vec<Activity>) -> u64 {
        while let Some((closed, _)) = self.departed.front()
            && now.micros_since(*closed) > DEPARTED_KEPT_MICROS
        {
            self.departed.pop_front();
        }
        let unseen = usize::try_from(self.departed_count - seen).unwrap_or(usize::MAX);
        let skipped = self.departed.len().saturating_sub(unseen);
        into.extend(
            self.departed
                .iter()
                .skip(skipped)
                .map(|(_, activity)| activity.clone()),
        );
        self.departed_count
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ottla_wire::error_code::ErrorCode;
    use std::net::Ipv4Addr;

    fn who(connection_id: u64) -> Who {
        Who {
            connection_id,
            client_id: "c".into(),
            principal: "User:ANONYMOUS".into(),
            spoken: None,
            listener_name: "PLAINTEXT".into(),
            address: Ipv4Addr::LOCALHOST.into(),
            port: 1,
            is_local: false,
            identity: Arc::default(),
        }
    }

    fn exchange<'a>(api_key: ApiKey, times: &'a StageTimes, seen: &'a Seen, gap: Gap) -> Exchange<'a> {
        Exchange {
            api_key,
            api_version: 4,
            request_bytes: 100,
            reply_bytes: 50,
            times,
            seen,
            gap,
            in_flight: 1,
            pause_squares: 9,
            written: &[],
            finished: Moment::from_micros(0),
            cold_regions: 0,
            cold_bytes: 0,
        }
    }

    fn read_all(activities: &Activities) -> Vec<Activity> {
        let mut read = Vec::new();
        let mut from = Some(0);
        while let Some(at) = from {
            from = activities.read(at, &mut read);
        }
        read
    }

    #[test]
    fn ends_of_transactions_count_by_versions_that_do_not_say_which() {
        let mut activities = Activities::default();
        let index = activities.open(who(1));
        let (times, seen) = (StageTimes::default(), Seen::default());
        for (api_key, api_version) in [
            (ApiKey::EndTxn, 3),
            (ApiKey::EndTxn, 4),
            (ApiKey::EndTxn, 5),
            (ApiKey::Metadata, 4),
        ] {
            let exchange = exchange(api_key, &times, &seen, Gap::Unknown);
            activities.add(
                index,
                &Exchange {
                    api_version,
                    ..exchange
                },
            );
        }
        assert_eq!(read_all(&activities)[0].nameless_ends, 2);
    }

    #[test]
    fn requests_add_up_by_api() {
        let mut activities = Activities::default();
        let index = activities.open(who(1));
        let mut times = StageTimes::default();
        times.add(Stage::Synced, 700);
        times.add(Stage::Handled, 30);
        let seen = Seen {
            acks: Some(-1),
            batches: 2,
            records: 10,
            batch_bytes: 900,
            ..Seen::default()
        };
        for _ in 0..3 {
            activities.add(index, &exchange(ApiKey::Produce, &times, &seen, Gap::Overlap));
        }
        activities.add(
            index,
            &exchange(ApiKey::Metadata, &times, &Seen::default(), Gap::Unknown),
        );
        let [read] = &read_all(&activities)[..] else {
            panic!("one connection")
        };
        let produce = read.produce.as_deref().unwrap();
        assert_eq!((produce.requests, produce.records, produce.batches), (3, 30, 6));
        assert_eq!(
            (produce.request_bytes, produce.reply_bytes, produce.batch_bytes),
            (300, 150, 2700)
        );
        assert_eq!(produce.stage_micros[Stage::Synced as usize], 2100);
        assert_eq!((produce.overlaps, produce.gaps, produce.acks), (3, 0, [3, 0, 0]));
        assert_eq!(produce.pause_squares, 27);
        assert!(read.fetch.is_none());
        assert_eq!((read.other_requests, read.other_micros), (1, 30));
    }

    #[test]
    fn a_request_within_a_round_trip_and_a_third_and_a_millisecond_came_at_once() {
        let mut activities = Activities::default();
        let index = activities.open(who(1));
        let (times, seen) = (StageTimes::default(), Seen::default());
        let add = |activities: &mut Activities, micros| {
            activities.add(
                index,
                &exchange(ApiKey::Produce, &times, &seen, Gap::Micros(micros)),
            );
        };
        add(&mut activities, 500);
        let path = Path {
            round_trip_micros: 10_000,
            ..Path::default()
        };
        activities.set_path(index, Some(path));
        add(&mut activities, 14_000);
        add(&mut activities, 14_001);
        let read = read_all(&activities);
        let produce = read[0].produce.as_deref().unwrap();
        assert_eq!(
            (produce.gaps, produce.gaps_judged, produce.back_to_back),
            (3, 2, 1)
        );
        assert_eq!((produce.gap_micros, produce.gap_micros_min), (28_501, Some(500)));
    }

    #[test]
    fn requests_and_what_they_carried_add_up() {
        let mut activities = Activities::default();
        let index = activities.open(who(1));
        let mut times = StageTimes::default();
        times.add(Stage::Appended, 10);
        let mut seen = Seen {
            acks: Some(1),
            records: 5,
            ..Seen::default()
        };
        seen.errors.see(ErrorCode::NotLeaderOrFollower);
        let add = |activities: &mut Activities, count: usize| {
            for _ in 0..count {
                activities.add(index, &exchange(ApiKey::Produce, &times, &seen, Gap::Micros(7)));
            }
        };
        add(&mut activities, 5);
        let sums = read_all(&activities).remove(0).produce.unwrap();
        assert_eq!((sums.requests, sums.records, sums.acks), (5, 25, [0, 0, 5]));
        assert_eq!(
            (sums.stage_micros[Stage::Appended as usize], sums.gap_micros),
            (50, 35)
        );
        assert_eq!(sums.errors[0], (ErrorCode::NotLeaderOrFollower.code(), 5));
    }

    #[test]
    fn a_consumers_records_are_the_offsets_it_advanced() {
        let mut activities = Activities::default();
        let index = activities.open(who(1));
        let times = StageTimes::default();
        for offset in [100, 150, 150, 175] {
            let mut position = Position::default();
            position.by_name("t", 0, offset);
            let seen = Seen {
                position: Some(position),
                fetched_bytes: 10,
                ..Seen::default()
            };
            activities.add(index, &exchange(ApiKey::Fetch, &times, &seen, Gap::Unknown));
        }
        let read = read_all(&activities);
        let fetch = read[0].fetch.as_deref().unwrap();
        assert_eq!((fetch.records, fetch.batch_bytes), (75, 40));
    }

    #[test]
    fn ten_thousand_connections_are_read_and_closed_ones_once() {
        let mut activities = Activities::default();
        let indexes: Vec<ActivityIndex> = (0..10_000).map(|id| activities.open(who(id))).collect();
        assert_eq!(read_all(&activities).len(), 10_000);
        for index in &indexes[..5_000] {
            activities.close(*index, Moment::from_micros(0));
        }
        assert_eq!(read_all(&activities).len(), 5_000);
        let mut departed = Vec::new();
        let seen = activities.read_departed(0, Moment::from_micros(1), &mut departed);
        assert_eq!((seen, departed.len()), (5_000, DEPARTED_MAX));
        assert!(departed.iter().all(|activity| activity.is_closed));
        assert_eq!(
            activities.read_departed(seen, Moment::from_micros(1), &mut departed),
            seen
        );
        assert_eq!(departed.len(), DEPARTED_MAX);
    }

    #[test]
    fn every_reader_sees_a_closed_connection_for_a_minute() {
        let mut activities = Activities::default();
        let [first, second] = [1, 2].map(|id| activities.open(who(id)));
        let told = |activities: &mut Activities, seen, at| {
            let mut departed = Vec::new();
            let now_seen = activities.read_departed(seen, Moment::from_micros(at), &mut departed);
            let ids: Vec<u64> = departed
                .iter()
                .map(|activity| activity.who.connection_id)
                .collect();
            (now_seen, ids)
        };
        activities.close(first, Moment::from_micros(1_000_000));
        assert_eq!(told(&mut activities, 0, 2_000_000), (1, vec![1]));
        activities.close(second, Moment::from_micros(50_000_000));
        assert_eq!(told(&mut activities, 1, 51_000_000), (2, vec![2]));
        assert_eq!(
            told(&mut activities, 0, 51_000_000),
            (2, vec![1, 2]),
            "another reader"
        );
        assert_eq!(told(&mut activities, 0, 61_000_001), (2, vec![2]), "a late one");
    }
}
