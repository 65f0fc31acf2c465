//! KIP-219: a request over a quota is answered at once, with the throttle time in the answer; then
//! the connection is muted, that is not read, for that time.

use std::time::Duration;

use ottla_core::quota::{ClientQuota, Quotas};
use ottla_core::time::Moment;

use super::served_request::ServedRequest;
use crate::metrics::stage::Stage;

/// How often a muted connection checks whether its quota has changed.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Until when a connection is muted.
#[derive(Debug, Default)]
pub(super) struct Muting {
    until: Option<Moment>,
}

impl Muting {
    pub fn is_muted(&self) -> bool {
        self.until.is_some()
    }

    /// Mutes the connection from `now` on; the answer to the request will tell the throttle time.
    pub fn mute(&mut self, request: &mut ServedRequest, throttle_ms: u32, now: Moment) {
        if throttle_ms <= request.throttle_ms {
            return;
        }
        let more_ms = u64::from(throttle_ms - request.throttle_ms);
        request.times.add(Stage::Throttled, more_ms * 1_000);
        request.throttle_ms = throttle_ms;
        self.until = self.until.max(Some(now.after_ms(throttle_ms.into())));
    }

    /// Ends the muting when its time is over, when the quotas have changed, or when the client has
    /// closed, so that its end of stream is read. Returns whether it has ended just now.
    pub fn end_if_due(
        &mut self,
        quotas: &Quotas,
        quota: Option<&ClientQuota>,
        has_peer_closed: bool,
        now: Moment,
    ) -> bool {
        let Some(until) = self.until else {
            return false;
        };
        let is_newest = quota.is_some_and(|quota| quotas.is_newest(quota));
        if now < until && is_newest && !has_peer_closed {
            return false;
        }
        self.until = None;
        true
    }

    /// When to check whether it is due.
    pub fn look_at(&self, now: Moment) -> Option<Moment> {
        self.until.map(|until| until.min(now.after(LOOK_INTERVAL)))
    }
}
