//! `controller_mutation_rate` (KIP-599): limits the partitions that a client creates and deletes.

use std::sync::Arc;

use ottla_wire::error_code::ErrorCode;

use super::client::ClientQuota;
use crate::refusal::Refusal;
use crate::time::Moment;

/// The quota that one request may still use for changes.
///
/// A strict request is refused as soon as its client is in debt; only versions that know the error
/// code are strict. An older request is served, and its client is throttled afterwards.
#[derive(Debug)]
pub struct MutationQuota {
    client: Option<Arc<ClientQuota>>,
    is_strict: bool,
    now: Moment,
    throttle_ms: u32,
}

impl MutationQuota {
    /// - `is_strict`: the request may be answered THROTTLING_QUOTA_EXCEEDED.
    pub fn new(client: Option<Arc<ClientQuota>>, is_strict: bool, now: Moment) -> MutationQuota {
        MutationQuota {
            client,
            is_strict,
            now,
            throttle_ms: 0,
        }
    }

    /// Returns a quota without limit, for the broker's own changes and for validation.
    pub fn unlimited() -> MutationQuota {
        MutationQuota {
            client: None,
            is_strict: false,
            now: Moment::from_micros(0),
            throttle_ms: 0,
        }
    }

    /// Books this many partitions.
    ///
    /// - Errors: `ThrottlingQuotaExceeded`: nothing was booked.
    pub fn take(&mut self, partitions: usize) -> Result<(), Refusal> {
        let Some(client) = &self.client else { return Ok(()) };
        if self.is_strict {
            let debt_ms = client.mutation_debt_ms(self.now);
            if debt_ms > 0 {
                self.throttle_ms = self.throttle_ms.max(debt_ms);
                // Kafka's words: its tools print them.
                let message = "The throttling quota has been exceeded.";
                return Err(Refusal::new(ErrorCode::ThrottlingQuotaExceeded, message));
            }
        }
        let throttle_ms = client.take_mutations(u32::try_from(partitions).unwrap_or(u32::MAX), self.now);
        if !self.is_strict {
            self.throttle_ms = self.throttle_ms.max(throttle_ms);
        }
        Ok(())
    }

    /// Returns the throttle time for the answer. A strict request is throttled only when part of it
    /// was refused: until then its client may continue, and it retries by itself.
    pub fn throttle_ms(&self) -> u32 {
        self.throttle_ms
    }
}
