//! `controller_mutation_rate` (KIP-599): partitions that a client creates and deletes.

use std::sync::Arc;

use ottla_wire::error_code::ErrorCode;

use super::client::ClientQuota;
use crate::controller::topics::Refusal;
use crate::request::Request;
use crate::time::Moment;

/// What one request may still change.
///
/// A strict one is refused as soon as its client is in debt; that may only be told to versions that know the error. An
/// older one is served, and its client waits afterwards.
#[derive(Debug)]
pub struct MutationQuota {
    client: Option<Arc<ClientQuota>>,
    is_strict: bool,
    now: Moment,
    throttle_ms: u32,
}

impl MutationQuota {
    /// - `first_strict_version`: the first that may be answered THROTTLING_QUOTA_EXCEEDED.
    pub fn of(request: &Request<'_>, first_strict_version: i16) -> MutationQuota {
        MutationQuota {
            client: request.connection.quota.clone(),
            is_strict: request.api_version >= first_strict_version,
            now: request.received,
            throttle_ms: 0,
        }
    }

    /// For what the broker does of its own accord, and for what is only asked and not done.
    pub fn unlimited() -> MutationQuota {
        MutationQuota {
            client: None,
            is_strict: false,
            now: Moment(0),
            throttle_ms: 0,
        }
    }

    /// Books so many partitions.
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

    /// What the answer says. A strict request waits only when something of it was refused: its client may go on until
    /// then, and comes back by itself.
    pub fn throttle_ms(&self) -> u32 {
        self.throttle_ms
    }
}
