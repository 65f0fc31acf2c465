//! How a producer's requests arrive at its broker: as a stream that a link lets through, or in
//! pieces with a round trip between them.
//!
//! A window that is too small leaves the link idle until an acknowledgement has crossed it: a
//! request then comes in as many pieces as it has windows, and between two of them passes most of a
//! round trip. On a full link bytes of a request are always on the way, and follow each other
//! without a pause, however long the round trip is. Both have the same rate and the same L; only
//! the receiver can tell them apart, by the time between two reads of one request.
//!
//! The kernel tells of a queue on the way: with one the round trip is longer while bytes flow than
//! the shortest one, and a window that is too small makes none. It does so on Ottla, where a shaper
//! that sends in bursts leaves pauses on a full link, too (2.2 ms of 4.4, measured), and where a
//! collector runs beside Apache Kafka, which does not tell how requests arrive.

use super::reading::{Pipe, Reading, positive, reaches};
use super::window;
use crate::doctor::snapshot::BrokerSide;
use crate::model::constants::FULL;

/// Pauses of this share of a round trip are waits for an acknowledgement.
const PAUSE: f64 = 0.2;
/// On shorter ways a pause is no longer than a turn of the broker's loop.
const ROUND_TRIP_MS_MIN: f64 = 1.0;
/// In a pause of a slow link no more than this comes: two packets. No window is as small.
const PACKETS_BYTES: f64 = 3_000.0;
/// A round trip under load that is longer than this has met a queue of more than a few packets.
const QUEUE_RATIO: f64 = 1.3;
const QUEUE_MS: f64 = 1.0;
const QUEUED_BYTES: f64 = 6_000.0;
/// A broker without time reads late what came long ago.
const BROKER_HAS_TIME: f64 = 0.1;

/// What the broker saw of one connection's requests while they arrived.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    /// Of the time, a request was on its way in.
    pub share: f64,
    /// Between two reads of one request.
    pub pause_ms: f64,
    round_trip_ms: f64,
    bytes_per_second: f64,
}

impl Arrival {
    /// None where the broker did not tell, or could not have seen a pause.
    pub(crate) fn of(reading: &Reading<'_>, pipe: &Pipe<'_>) -> Option<Arrival> {
        let sides = &reading.snapshot.brokers;
        let side = match &pipe.broker {
            Some(broker) => broker.side,
            None => sides.iter().find(|side| side.node_id == pipe.node_id)?,
        };
        let round_trip_ms = reading.tcp_ms(pipe).filter(|ms| *ms >= ROUND_TRIP_MS_MIN)?;
        let request = pipe.request_bytes.filter(|bytes| *bytes >= window::REQUEST_MIN)?;
        let has_time = side.network_idle.is_none_or(|idle| idle >= BROKER_HAS_TIME);
        let rate = pipe
            .bytes_per_second
            .unwrap_or(request * pipe.requests_per_second);
        Some(Arrival {
            share: positive(side.arriving_share)?,
            pause_ms: positive(side.arrival_pause_ms)?,
            round_trip_ms,
            bytes_per_second: positive(Some(rate))?,
        })
        .filter(|_| has_time)
    }

    /// Whether bytes of a request follow each other as fast as something on the way lets them.
    pub(crate) fn is_steady(&self) -> bool {
        let rate = self.bytes_per_second / self.share.min(1.0);
        let in_a_pause = rate * self.pause_ms / 1_000.0;
        self.pause_ms < PAUSE * self.round_trip_ms || in_a_pause < PACKETS_BYTES
    }

    /// Whether a request is always on its way in, and its bytes wait for acknowledgements.
    pub(crate) fn is_held(&self) -> bool {
        !self.is_steady() && reaches(self.share, FULL)
    }

    /// Whether they do all of the time: nothing more fits.
    pub(crate) fn fills_link(&self) -> bool {
        self.is_steady() && reaches(self.share, FULL)
    }
}

/// The arrival of requests that fill a link of unknown bandwidth.
pub(crate) fn full_link(reading: &Reading<'_>) -> Option<Arrival> {
    if positive(reading.snapshot.network.bandwidth_bytes_per_second).is_some() {
        return None;
    }
    let mut found = reading.nodes.iter().filter_map(|pipe| Arrival::of(reading, pipe));
    found.find(Arrival::fills_link)
}

/// A queue on the way to the broker.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Queue {
    pub round_trip_ms: f64,
    /// With the queue.
    pub loaded_ms: f64,
}

/// The queue that requests meet on a link of unknown bandwidth.
pub(crate) fn queue(reading: &Reading<'_>) -> Option<Queue> {
    if positive(reading.snapshot.network.bandwidth_bytes_per_second).is_some() {
        return None;
    }
    reading.nodes.iter().find_map(|pipe| queue_of(reading, pipe))
}

fn queue_of(reading: &Reading<'_>, pipe: &Pipe<'_>) -> Option<Queue> {
    let round_trip_ms = reading.tcp_ms(pipe).filter(|ms| *ms >= ROUND_TRIP_MS_MIN)?;
    let sides = reading.snapshot.brokers.iter();
    let mut loaded = sides
        .filter(|side| is_told_of_queues(side))
        .filter_map(|side| positive(side.loaded_round_trip_ms));
    let loaded_ms = loaded.next()?;
    let request_ms = pipe.request_ms?;
    let rate = pipe
        .bytes_per_second
        .or_else(|| Some(pipe.request_bytes? * pipe.requests_per_second))?;
    let queued = rate * (loaded_ms - round_trip_ms) / 1_000.0;
    let is_long = loaded_ms >= QUEUE_RATIO * round_trip_ms + QUEUE_MS && queued >= QUEUED_BYTES;
    // A request passes the queue as well; where it is faster, an acknowledgement was delayed.
    let is_felt = request_ms >= loaded_ms && request_ms >= window::SEVERAL_TRIPS * round_trip_ms;
    let has_time = reading.io_wait.is_none_or(|wait| wait >= window::THREAD_HAS_TIME);
    (is_long && is_felt && has_time).then_some(Queue {
        round_trip_ms,
        loaded_ms,
    })
}

/// A broker that sees requests arrive knows the round trip under load only where they always do.
/// One that tells of requests and not how they arrive has it from elsewhere.
fn is_told_of_queues(side: &BrokerSide) -> bool {
    match side.arriving_share {
        Some(share) => reaches(share, FULL),
        None => side.requests_per_second.is_none(),
    }
}

/// Whether requests arrive all of the time, with the pauses that a window makes.
pub(crate) fn is_held(reading: &Reading<'_>, pipe: &Pipe<'_>) -> bool {
    Arrival::of(reading, pipe).is_some_and(|arrival| arrival.is_held())
}

/// Whether requests arrive without the pauses that a window makes.
pub(crate) fn is_steady(reading: &Reading<'_>, pipe: &Pipe<'_>) -> bool {
    Arrival::of(reading, pipe).is_some_and(|arrival| arrival.is_steady())
}
