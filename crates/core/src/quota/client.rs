//! A connection's quotas: the token buckets of its limits, and the counters of its use.

use std::sync::Arc;
use std::time::Duration;

use ottla_wire::api_key::ApiKey;

use super::kind::{KIND_COUNT, QuotaKind};
use super::limits::Limits;
use super::token_bucket::TokenBucket;
use super::usage::Usage;
use crate::time::Moment;

/// At most this much is booked for one step of a request: more means that the clock jumped or the
/// machine slept.
const STEP_MICROS_MAX: u64 = 10_000_000;

/// The quotas of one user and client id, under one version of the settings. Shared by all their
/// connections.
#[derive(Debug)]
pub struct ClientQuota {
    pub user: Arc<str>,
    pub client_id: Arc<str>,
    /// Version of the quotas that this was made from.
    pub(super) version: u64,
    pub(super) limits: Limits,
    pub(super) buckets: [Option<Arc<TokenBucket>>; KIND_COUNT],
    pub(super) usage: Arc<Usage>,
    pub(super) window: Duration,
    pub(super) is_dry_run: bool,
    /// Belongs to a client whose name is not kept.
    pub(super) is_crowd: bool,
}

impl ClientQuota {
    /// Books a request that took `micros` to handle; returns the throttle time of its connection in
    /// milliseconds.
    ///
    /// - `request_bytes`: as received, with the length field.
    pub fn handled(&self, api_key: ApiKey, request_bytes: u64, micros: u64, now: Moment) -> u32 {
        let of_time = self.take(QuotaKind::Request, micros.min(STEP_MICROS_MAX), now);
        if api_key != ApiKey::Produce {
            return of_time;
        }
        of_time.max(self.take(QuotaKind::Produce, request_bytes, now))
    }

    /// Books an answer of `reply_bytes`; returns the throttle time of its connection in
    /// milliseconds.
    pub fn answered(&self, api_key: ApiKey, reply_bytes: u64, now: Moment) -> u32 {
        match api_key {
            ApiKey::Fetch => self.take(QuotaKind::Fetch, reply_bytes, now),
            _ => 0,
        }
    }

    /// Books time of an event loop that no answer waits for any more. It throttles the next
    /// request.
    pub fn worked(&self, micros: u64, now: Moment) {
        let micros = micros.min(STEP_MICROS_MAX);
        self.usage.add(QuotaKind::Request, micros);
        if let Some(bucket) = self.bucket(QuotaKind::Request).filter(|_| !self.is_dry_run) {
            bucket.take(micros as f64 * QuotaKind::Request.scale(), now);
        }
    }

    /// Returns for how many milliseconds a fetch gets no data, because others have exceeded the
    /// shared quota; 0: it may read.
    pub fn fetch_debt_ms(&self, now: Moment) -> u32 {
        let bucket = self.bucket(QuotaKind::Fetch).filter(|_| !self.is_dry_run);
        let debt_micros = bucket.map_or(0, |bucket| bucket.debt_micros(now));
        self.throttle(QuotaKind::Fetch, debt_micros)
    }

    /// Returns the most that one fetch may read: what the quota allows in one window.
    pub fn fetch_bytes_max(&self) -> u64 {
        match &self.limits[QuotaKind::Fetch as usize] {
            // The cast saturates; at least one byte, since the first batch is returned whatever the
            // limit.
            Some(limit) if !self.is_dry_run => (limit.per_second * self.window.as_secs_f64()).max(1.0) as u64,
            _ => u64::MAX,
        }
    }

    /// Books partitions created or deleted; returns the throttle time in milliseconds.
    pub(super) fn take_mutations(&self, partitions: u32, now: Moment) -> u32 {
        self.take(QuotaKind::ControllerMutation, partitions.into(), now)
    }

    /// Returns for how many milliseconds no partition may be created or deleted; 0: some may.
    pub(super) fn mutation_debt_ms(&self, now: Moment) -> u32 {
        let bucket = self.bucket(QuotaKind::ControllerMutation);
        let debt_micros = bucket
            .filter(|_| !self.is_dry_run)
            .map_or(0, |bucket| bucket.debt_micros(now));
        self.throttle(QuotaKind::ControllerMutation, debt_micros)
    }

    pub(super) fn is_current(&self, client_id: &str, version: u64, is_crowd: bool) -> bool {
        self.version == version && self.is_crowd == is_crowd && &*self.client_id == client_id
    }

    fn bucket(&self, kind: QuotaKind) -> Option<&Arc<TokenBucket>> {
        self.buckets[kind as usize].as_ref()
    }

    fn take(&self, kind: QuotaKind, amount: u64, now: Moment) -> u32 {
        self.usage.add(kind, amount);
        let Some(bucket) = self.bucket(kind) else { return 0 };
        let tokens = amount as f64 * kind.scale();
        if self.is_dry_run {
            self.throttle(kind, bucket.take_available(tokens, now));
            return 0;
        }
        self.throttle(kind, bucket.take(tokens, now))
    }

    fn throttle(&self, kind: QuotaKind, debt_micros: u64) -> u32 {
        // As in Kafka, one throttle time for request time is at most one window; the rest of the
        // debt throttles later requests.
        let micros_max = match kind {
            QuotaKind::Request => u64::try_from(self.window.as_micros()).unwrap_or(u64::MAX),
            _ => u64::MAX,
        };
        // A throttle time below a millisecond cannot be sent; the debt stays.
        if debt_micros < 1_000 {
            return 0;
        }
        let debt_ms = debt_micros.min(micros_max).div_ceil(1_000);
        self.usage.count_throttle(kind, debt_ms.saturating_mul(1_000));
        u32::try_from(debt_ms)
            .unwrap_or(i32::MAX as u32)
            .min(i32::MAX as u32)
    }
}
