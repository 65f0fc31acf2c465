//! Which requests leave the event loop: decided here and nowhere else.
//!
//! An event loop holds up all its connections while it serves a request (head-of-line blocking), so
//! it serves only what is done in about a fifth of a millisecond; a long-answer thread serves the
//! rest. A handler is not told where it runs. What a request costs is measured at the cheapest
//! point where it is known:
//!
//! 1. before its body is decoded, by API and size: [`is_long`];
//! 2. decoded, by the number of things that serving it touches, for the APIs with which a few bytes
//!    ask for many. `dispatch.rs` names the measure beside the API; [`ENTRIES_MAX`] is the limit;
//! 3. during a produce, by how much its batches decompress to, which nothing tells in advance:
//!    [`Unfolding`].

use ottla_wire::api_key::ApiKey;
use ottla_wire::records::compression::unfold::UnfoldingBudget;
use ottla_wire::records::validate::{ProduceError, ProduceRules, ValidBatch, validate};

use crate::request::{ENTRIES_MAX, Request};

/// A body of at most this size is decoded by the event loop: four thousand partition numbers, or
/// three hundred topic names.
const BODY_BYTES_MAX: usize = 16 * 1024;

/// The measure of a request that always leaves the event loop.
pub(crate) const ENTRIES_UNBOUNDED: u64 = ENTRIES_MAX + 1;

/// At most this many decompressed bytes per request on an event loop: a millisecond with the
/// slowest codec.
const LOOP_UNFOLDED_BYTES_MAX: usize = 512 * 1024;

/// Compressing takes up to eight times as long as decompressing.
const LOOP_PACKING_WEIGHT: usize = 8;

/// A batch is moved off the event loop at once if it would exceed the limit at this compression
/// ratio.
const EXPECTED_RATIO: usize = 3;

/// At most this many decompressed bytes per request on any thread: the default size limit of a
/// request (`socket.request.max.bytes`), and slightly more than what librdkafka decompresses by
/// default (`receive.message.max.bytes`).
const UNFOLDED_BYTES_MAX: usize = 100 * 1024 * 1024;

/// Larger requests may decompress to more: few records compress below a sixteenth.
const UNFOLDED_RATIO_MAX: usize = 16;

/// Whether such a request would hold up an event loop; asked before its body is decoded.
pub fn is_long(api_key: ApiKey, body_bytes: usize) -> bool {
    match api_key {
        // Most of it is records; its partitions are counted.
        ApiKey::Produce => false,
        // The telemetry thread reads the payload.
        ApiKey::PushTelemetry => false,
        // A few bytes ask for much, and administrative tools are not latency-sensitive.
        ApiKey::DescribeClientQuotas
        | ApiKey::DescribeConfigs
        | ApiKey::DescribeGroups
        | ApiKey::DescribeLogDirs
        | ApiKey::DescribeProducers
        | ApiKey::ListConfigResources
        | ApiKey::ListGroups => true,
        _ => body_bytes > BODY_BYTES_MAX,
    }
}

/// Adds up entries; stops once the sum says that the request leaves the event loop.
pub(crate) fn count(entries: impl Iterator<Item = u64>) -> u64 {
    let mut sum = 0;
    for more in entries {
        sum += more;
        if sum > ENTRIES_MAX {
            break;
        }
    }
    sum
}

/// Where a request is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    EventLoop,
    /// Takes every request, however long.
    LongAnswerThread,
}

impl Place {
    /// Whether the body may be decoded here.
    pub fn may_decode(self, request: &Request<'_>) -> bool {
        self == Place::LongAnswerThread || !is_long(request.api_key, request.body.len())
    }

    /// Returns the entries of a decoded request if they are too many for this place.
    pub fn exceeded_by(self, entries: impl FnOnce() -> u64) -> Option<u64> {
        match self {
            Place::LongAnswerThread => None,
            Place::EventLoop => Some(entries()).filter(|entries| *entries > ENTRIES_MAX),
        }
    }

    /// - `body_bytes`: of the whole request.
    pub fn unfolding(self, body_bytes: usize) -> Unfolding {
        let budget = match self {
            Place::LongAnswerThread => {
                UnfoldingBudget::new(UNFOLDED_BYTES_MAX.max(UNFOLDED_RATIO_MAX * body_bytes))
            }
            Place::EventLoop => {
                UnfoldingBudget::new(LOOP_UNFOLDED_BYTES_MAX).with_packing(LOOP_PACKING_WEIGHT)
            }
        };
        Unfolding { budget, place: self }
    }
}

/// One bound for all batches of a produce: for each of its partitions, a few kilobytes can
/// decompress to a hundred megabytes.
pub(crate) struct Unfolding {
    budget: UnfoldingBudget,
    place: Place,
}

/// Why a batch was not accepted.
pub(crate) enum NotValid {
    Refused(ProduceError),
    /// It decompresses to more than this place should handle: the request continues with it on a
    /// long-answer thread.
    MovesOn,
}

impl Unfolding {
    /// Checks that every client can read the batch, and that it may be appended.
    pub fn validate<'a>(
        &mut self,
        records: &'a [u8],
        is_compressed: bool,
        rules: &ProduceRules,
    ) -> Result<ValidBatch<'a>, NotValid> {
        let may_move = self.place == Place::EventLoop;
        if may_move && is_compressed && records.len() * EXPECTED_RATIO > self.budget.left_bytes() {
            return Err(NotValid::MovesOn);
        }
        validate(records, rules, &mut self.budget).map_err(|error| match error {
            ProduceError::UnfoldsTooMuch { .. } if may_move => NotValid::MovesOn,
            error => NotValid::Refused(error),
        })
    }
}
