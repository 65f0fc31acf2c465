//! A request that was served and is not answered completely yet.

use ottla_core::seen::Seen;
use ottla_core::time::Moment;
use ottla_wire::api_key::ApiKey;

use crate::metrics::activity::Gap;
use crate::metrics::recorder::ClientIndex;
use crate::metrics::stage::{Stage, StageTimes};

/// A request without its body: what is needed to answer it and to account for its time.
#[derive(Debug)]
pub(super) struct ServedRequest {
    pub api_key: ApiKey,
    pub api_version: i16,
    pub correlation_id: i32,
    /// Whether the answer has a header; a token without a request around it is answered alike.
    pub has_header: bool,
    pub client: ClientIndex,
    pub request_bytes: u32,
    pub times: StageTimes,
    /// The moment up to which its time is accounted for.
    pub booked: Moment,
    pub seen: Seen,
    pub gap: Gap,
    /// As in [`Exchange`](crate::metrics::activity::Exchange).
    pub in_flight: u16,
    pub pause_squares: u64,
    /// The throttle time that the answer tells the client.
    pub throttle_ms: u32,
    /// Whether another thread makes the answer.
    pub is_of_thread: bool,
}

impl ServedRequest {
    pub fn moves_records(&self) -> bool {
        matches!(self.api_key, ApiKey::Produce | ApiKey::Fetch)
    }

    /// Books the time since the last booking to a stage.
    pub fn book(&mut self, stage: Stage, now: Moment) {
        self.times.add(stage, now.micros_since(self.booked));
        self.booked = now;
    }
}
