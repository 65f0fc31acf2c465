//! The producer's numbers that its rules read, from any source: derived once, cleaned, each finite
//! or absent.

use crate::doctor::snapshot::{BrokerSide, Codec, Library, Origin, Producer, Snapshot};
use crate::formulas::{batching, ceiling};
use crate::model::constants::FULL;

use super::super::inference::{self, InferredSettings, is_guess};
use super::backlog::{self, Backlog};
use super::failing::Failing;
pub(crate) use super::pipes::{Pipe, RoundTrip};
use super::pipes::{ROUNDED_MS, leaders, partitions_per_broker, pipes};

/// Larger than any rate, size or time of a real machine; anything above is broken input.
const ABSURD: f64 = 1e15;
/// The share of their thread that callbacks take when they are the limit (F7).
const CALLBACKS: f64 = 0.8;
/// One request of up to this many bytes crosses in one round trip, without noticeable transfer
/// time.
const ONE_TRIP_BYTES: f64 = 65_536.0;

/// A producer in numbers. The symbols are those of the manual.
#[derive(Debug)]
pub(crate) struct Reading<'a> {
    pub snapshot: &'a Snapshot,
    pub settings: InferredSettings,
    pub seconds: f64,
    /// X_r.
    pub records_per_second: Option<f64>,
    /// X_b.
    pub bytes_per_second: Option<f64>,
    /// R, without the bootstrap connection where brokers are known apart.
    pub requests_per_second: Option<f64>,
    pub requests: Option<f64>,
    /// S.
    pub request_bytes: Option<f64>,
    /// b.
    pub batch_bytes: Option<f64>,
    /// n_req.
    pub records_per_request: Option<f64>,
    /// c.
    pub compression_rate: f64,
    /// q and q_max: from the batch's creation to its drain.
    pub queue_ms: Option<f64>,
    pub queue_ms_max: Option<f64>,
    /// Of librdkafka: until the socket has taken a request.
    pub transmit_queue_ms: Option<f64>,
    /// L.
    pub request_ms: Option<f64>,
    pub buffer_wait: Option<f64>,
    pub buffer_free_share: Option<f64>,
    pub io_wait: Option<f64>,
    pub io: Option<f64>,
    /// i_oth.
    pub io_other: Option<f64>,
    pub throttle_ms: Option<f64>,
    /// T, W and C, where reported.
    pub threads: Option<f64>,
    pub send_micros: Option<f64>,
    pub callback_micros: Option<f64>,
    pub offered: Option<f64>,
    /// Brokers that lead partitions of this producer; at least one if anything is sent.
    pub nodes: Vec<Pipe<'a>>,
    /// P_n, mean over brokers.
    pub partitions_per_broker: f64,
    /// What fails: errors, retries, records that expire.
    pub failing: Failing,
    /// Whether records wait in the client.
    pub backlog: Backlog,
    /// What they wait for.
    pub bound: Bound,
}

/// What a producer's records wait for, before its cause is known.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum Bound {
    /// Nothing: the application sets the pace.
    #[default]
    Source,
    /// Requests, which leave as fast as answers come back.
    Pipe,
    /// The client's own sending thread.
    Thread,
    /// Something else, although requests could leave: in words.
    Blocked(String),
}

pub(crate) fn clean(value: Option<f64>) -> Option<f64> {
    value.filter(|value| value.is_finite() && (0.0..=ABSURD).contains(value))
}

pub(crate) fn positive(value: Option<f64>) -> Option<f64> {
    clean(value).filter(|value| *value > 1e-9)
}

/// Returns `a / b` where both are known and b is not zero.
pub(crate) fn ratio(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    clean(Some(clean(a)? / positive(b)?))
}

/// Whether a number has reached a threshold, compared at the two digits that tables print: a U of
/// 0.8499 is 0.85.
pub(crate) fn reaches(value: f64, threshold: f64) -> bool {
    value >= threshold - 0.005
}

fn sum(brokers: &[BrokerSide], of: impl Fn(&BrokerSide) -> Option<f64>) -> Option<f64> {
    let known: Vec<f64> = brokers.iter().filter_map(|side| clean(of(side))).collect();
    (!known.is_empty()).then(|| known.iter().sum())
}

/// Mean over brokers, weighted by requests.
fn mean(brokers: &[BrokerSide], of: impl Fn(&BrokerSide) -> Option<f64>) -> Option<f64> {
    let known: Vec<(f64, f64)> = brokers
        .iter()
        .filter_map(|side| Some((clean(of(side))?, clean(side.requests_per_second).unwrap_or(1.0))))
        .collect();
    let weight: f64 = known.iter().map(|(_, weight)| weight).sum();
    if weight > 0.0 {
        clean(Some(
            known.iter().map(|(value, weight)| value * weight).sum::<f64>() / weight,
        ))
    } else {
        known.first().map(|(value, _)| *value)
    }
}

impl<'a> Reading<'a> {
    pub(crate) fn of(snapshot: &'a Snapshot) -> Self {
        let none = Producer::default();
        let own = snapshot.producer.as_ref().unwrap_or(&none);
        let brokers = &snapshot.brokers[..];
        let settings = inference::settings(snapshot);
        let records_per_second =
            clean(own.records_per_second).or_else(|| sum(brokers, |side| side.records_per_second));
        let nodes_requests: f64 = leaders(own)
            .iter()
            .filter_map(|node| clean(node.requests_per_second))
            .sum();
        let requests_per_second = Some(nodes_requests)
            .filter(|rate| *rate > 0.0)
            .or(clean(own.requests_per_second))
            .or_else(|| sum(brokers, |side| side.requests_per_second));
        let bytes_per_second =
            positive(own.bytes_per_second).or_else(|| sum(brokers, |side| side.bytes_per_second));
        let request_bytes = positive(own.request_bytes)
            .or_else(|| mean(brokers, |side| side.request_bytes))
            .or_else(|| ratio(bytes_per_second, requests_per_second));
        let bytes_per_second =
            bytes_per_second.or_else(|| clean(Some(request_bytes? * requests_per_second?)));
        let records_per_request = positive(own.records_per_request)
            .or_else(|| mean(brokers, |side| side.records_per_request))
            .or_else(|| ratio(records_per_second, requests_per_second));
        let batch_bytes = positive(own.batch_bytes).or_else(|| mean(brokers, |side| side.batch_bytes));
        let queue_ms = match snapshot.client.library {
            Library::Librdkafka | Library::FranzGo => None,
            _ => clean(own.queue_ms),
        };
        let io_wait = clean(own.io_wait).map(|share| share.min(1.0));
        let io = clean(own.io).map(|share| share.min(1.0));
        let application = &snapshot.application;
        let mut reading = Self {
            snapshot,
            settings,
            seconds: clean(Some(snapshot.seconds)).unwrap_or(0.0),
            records_per_second,
            bytes_per_second,
            requests_per_second,
            requests: clean(own.requests)
                .or_else(|| clean(Some(requests_per_second? * clean(Some(snapshot.seconds))?))),
            request_bytes,
            batch_bytes,
            records_per_request,
            compression_rate: positive(own.compression_rate).unwrap_or(1.0),
            queue_ms,
            queue_ms_max: queue_ms.and(clean(own.queue_ms_max)),
            transmit_queue_ms: clean(own.transmit_queue_ms),
            request_ms: latency(snapshot, own.request_ms),
            buffer_wait: clean(own.buffer_wait),
            buffer_free_share: ratio(own.buffer_available_bytes, own.buffer_bytes),
            io_wait,
            io,
            io_other: io_wait.zip(io).map(|(wait, work)| (1.0 - wait - work).max(0.0)),
            throttle_ms: clean(own.throttle_ms),
            threads: positive(application.threads),
            send_micros: positive(application.send_micros),
            callback_micros: positive(application.callback_micros),
            offered: positive(application.offered_records_per_second),
            nodes: Vec::new(),
            partitions_per_broker: 1.0,
            failing: Failing::default(),
            backlog: Backlog::None,
            bound: Bound::Source,
        };
        reading.nodes = pipes(&reading, own, brokers);
        let leaders = reading.nodes.len().max(1) as f64;
        reading.partitions_per_broker = partitions_per_broker(own, &reading.nodes, leaders);
        if reading.request_ms.is_none() {
            reading.request_ms = reading.hottest().and_then(|pipe| pipe.request_ms);
        }
        reading.failing = Failing::of(&reading);
        reading.backlog = backlog::of(&reading);
        reading.bound = backlog::bound(&reading);
        reading
    }

    pub(crate) fn library(&self) -> Library {
        self.snapshot.client.library
    }

    /// Whether the numbers were read in one go, from a file or an exported case; pushes are then
    /// not counted.
    pub(crate) fn is_complete_reading(&self) -> bool {
        let telemetry = &self.snapshot.telemetry;
        match telemetry.pushes {
            None => self.snapshot.producer.is_some(),
            // Nothing was pushed, so these numbers have another source.
            Some(0) => telemetry.empty_pushes == 0 && self.has_own_numbers(),
            Some(_) => false,
        }
    }

    pub(crate) fn has_own_numbers(&self) -> bool {
        self.snapshot.producer.as_ref().is_some_and(|own| {
            own.records_per_second.is_some() || own.requests_per_second.is_some() || own.request_ms.is_some()
        })
    }

    /// The broker whose pipe is fullest.
    pub(crate) fn hottest(&self) -> Option<&Pipe<'a>> {
        self.nodes.iter().max_by(|a, b| {
            let of = |pipe: &Pipe<'_>| pipe.used.unwrap_or(0.0);
            of(a).total_cmp(&of(b))
        })
    }

    /// U: the highest U_n.
    pub(crate) fn used(&self) -> Option<f64> {
        self.hottest()?.used
    }

    /// S_max (F9).
    pub(crate) fn request_bytes_max(&self) -> f64 {
        let partitions = match self.library() {
            Library::Librdkafka => 1.0,
            _ => self.partitions_per_broker,
        };
        // A record larger than batch.size travels alone, in a batch of its own size.
        let batch = self
            .settings
            .batch_bytes
            .value
            .max(self.batch_bytes.unwrap_or(0.0));
        ceiling::request_bytes_max(
            self.settings.max_request_bytes.value.max(batch),
            partitions,
            batch,
        )
    }

    /// Z (F9).
    pub(crate) fn load(&self) -> Option<f64> {
        let pipe = self.hottest()?;
        clean(Some(ceiling::load(
            pipe.used?,
            pipe.request_bytes?,
            self.request_bytes_max(),
        )))
    }

    /// phi (F18).
    pub(crate) fn fill(&self) -> Option<f64> {
        clean(Some(batching::fill_share(
            self.counted_batch_bytes()?,
            self.settings.batch_bytes.value,
        )))
    }

    /// b as batch.size counts it. Java compresses a batch while it fills; librdkafka and franz-go
    /// fill it first, and tell nothing of how much smaller it became.
    fn counted_batch_bytes(&self) -> Option<f64> {
        if !matches!(self.library(), Library::Librdkafka | Library::FranzGo) {
            return self.batch_bytes;
        }
        let codec = self.snapshot.settings.compression.map(|setting| setting.value);
        let is_compressed = codec.is_some_and(|codec| codec != Codec::None);
        let own = self.snapshot.producer.as_ref();
        match own.and_then(|own| positive(own.compression_rate)) {
            Some(rate) => ratio(self.batch_bytes, Some(rate)),
            None => self.batch_bytes.filter(|_| !is_compressed),
        }
    }

    /// Whether a batch.size that is known leaves no room for one more record.
    pub(crate) fn has_no_room(&self) -> bool {
        let size = self.settings.batch_bytes;
        let needed = self.batch_bytes.zip(self.record_bytes());
        !is_guess(size.origin) && needed.is_some_and(|(held, record)| held + record > size.value)
    }

    /// Whether how full batches are rests on more than a guess of batch.size.
    pub(crate) fn knows_fill(&self) -> bool {
        self.settings.has_full_batches || !is_guess(self.settings.batch_bytes.origin)
    }

    /// How full batches are at most: batch.size is no smaller than the largest batch that was seen.
    pub(crate) fn fill_at_most(&self) -> f64 {
        if self.knows_fill() {
            return self.fill().unwrap_or(1.0);
        }
        ratio(self.batch_bytes, inference::largest_batch(self.snapshot)).map_or(1.0, |share| share.min(1.0))
    }

    /// Whether batches are limited by batch.size (F18).
    pub(crate) fn has_full_batches(&self) -> bool {
        self.settings.has_full_batches || self.fill().is_some_and(|fill| reaches(fill, FULL))
    }

    /// Whether the broker's numbers alone speak, and show one request after another without a
    /// pause.
    pub(crate) fn is_back_to_back(&self) -> bool {
        inference::is_back_to_back(self.snapshot)
    }

    /// Whether as many requests are under way all the time as may be, by the numbers alone.
    pub(crate) fn is_pinned(&self) -> bool {
        self.settings.in_flight.origin == Origin::Inferred
    }

    /// The same of a client that cannot push because of it.
    pub(crate) fn is_always_full(&self) -> bool {
        inference::is_always_full(self.snapshot)
    }

    /// Partitions that the producer writes to.
    pub(crate) fn partitions(&self) -> f64 {
        (self.partitions_per_broker * self.nodes.len().max(1) as f64).max(1.0)
    }

    /// Bytes that one record takes on the wire.
    pub(crate) fn record_bytes(&self) -> Option<f64> {
        ratio(self.bytes_per_second, self.records_per_second)
            .filter(|bytes| *bytes > 0.0)
            .or_else(|| {
                self.snapshot
                    .producer
                    .as_ref()
                    .and_then(|own| positive(own.record_bytes))
            })
    }

    /// D of a pipe, where it is measured reliably enough to blame the broker with.
    pub(crate) fn broker_ms(&self, pipe: &Pipe<'_>) -> Option<f64> {
        pipe.broker.as_ref()?.ms
    }

    /// A measured RTT: stated by the owner, the broker's TCP_INFO, or one request at a time (F10).
    pub(crate) fn round_trip(&self, pipe: &Pipe<'_>) -> Option<RoundTrip> {
        let by_tcp = self.round_trip_of_tcp(pipe);
        if let Some(ms) =
            positive(self.snapshot.network.round_trip_ms).filter(|ms| Some(*ms) != self.tcp_ms(pipe))
        {
            return Some(RoundTrip {
                ms,
                origin: "measured",
                is_end_to_end: true,
            });
        }
        if by_tcp.is_some() {
            return by_tcp;
        }
        let broker = pipe.broker.as_ref();
        // With one request at a time nothing queues: what is not the broker is the path (F10c).
        let request_ms = pipe.request_ms?;
        let broker_ms = broker?.ms_at_most;
        let is_alone = self.settings.in_flight.value <= 1.0 && pipe.request_bytes? <= ONE_TRIP_BYTES;
        let is_clear = request_ms >= 4.0 * broker_ms.max(ROUNDED_MS);
        (is_alone && is_clear).then_some(RoundTrip {
            ms: request_ms - broker_ms,
            origin: "F10: L - D of one request at a time",
            is_end_to_end: true,
        })
    }

    /// The broker's own measurement of the connection; a collector records the largest of them as
    /// the network's.
    pub(crate) fn tcp_ms(&self, pipe: &Pipe<'_>) -> Option<f64> {
        let own = pipe
            .broker
            .as_ref()
            .and_then(|broker| positive(broker.side.round_trip_ms));
        let sides = &self.snapshot.brokers;
        let most = || {
            sides
                .iter()
                .filter_map(|side| positive(side.round_trip_ms))
                .reduce(f64::max)
        };
        let network = positive(self.snapshot.network.round_trip_ms);
        // The network's value stands for TCP's only where it is the same number.
        if network.is_some() && network == most() {
            most()
        } else {
            own.or_else(most)
        }
    }

    /// TCP may end at a proxy: a round trip that explains less than half of the time outside the
    /// broker is of another path, or each request takes several of them (`window.rs`).
    fn round_trip_of_tcp(&self, pipe: &Pipe<'_>) -> Option<RoundTrip> {
        let ms = self.tcp_ms(pipe)?;
        let outside = self.round_trip_at_most(pipe);
        outside
            .is_none_or(|outside| ms >= 0.5 * outside)
            .then_some(RoundTrip {
                ms,
                origin: "TCP_INFO of the broker",
                is_end_to_end: false,
            })
    }

    /// Returns `L - D`, an upper bound of the round trip.
    pub(crate) fn round_trip_at_most(&self, pipe: &Pipe<'_>) -> Option<f64> {
        let broker_ms = pipe.broker.as_ref().and_then(|broker| broker.ms).unwrap_or(0.0);
        clean(Some((pipe.request_ms? - broker_ms).max(0.0)))
    }

    /// Returns `X_r * C` (F7), where C is measured: from 0.8 on, callbacks, which run one after
    /// another, leave their thread no time.
    pub(crate) fn callback_use(&self) -> Option<f64> {
        clean(Some(self.records_per_second? * self.callback_micros? / 1e6))
    }

    pub(crate) fn has_slow_callbacks(&self) -> bool {
        self.callback_use().is_some_and(|used| reaches(used, CALLBACKS))
    }

    /// Whether the application sends what it wants to send, within a tenth: means and totals are
    /// from slightly different windows.
    pub(crate) fn is_offer_met(&self) -> Option<bool> {
        Some(self.records_per_second? >= 0.9 * self.offered?)
    }
}

/// franz-go before 1.21.4 divides the sum of latencies by the interval: that is requests in flight,
/// not a latency.
pub(crate) fn latency(snapshot: &Snapshot, value: Option<f64>) -> Option<f64> {
    if has_false_latency(snapshot) {
        None
    } else {
        positive(value)
    }
}

pub(crate) fn has_false_latency(snapshot: &Snapshot) -> bool {
    snapshot.client.library == Library::FranzGo
        && inference::version(snapshot).is_some_and(|version| version < (1, 21, 4))
}
