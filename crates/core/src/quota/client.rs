//! What a connection holds of its quotas: its limits' buckets, and where its use is counted.

use std::sync::Arc;
use std::time::Duration;

use ottla_wire::api_key::ApiKey;

use super::kind::{KIND_COUNT, QuotaKind};
use super::limits::Limits;
use super::token_bucket::TokenBucket;
use super::usage::Usage;
use crate::time::Moment;

/// No step of a request is booked as longer: a clock that has jumped was stopped, and nobody worked.
const STEP_MICROS_MAX: u64 = 10_000_000;

/// One user and client id under one version of the quotas. Shared by all their connections.
#[derive(Debug)]
pub struct ClientQuota {
    pub user: Arc<str>,
    pub client_id: Arc<str>,
    /// Of the quotas that this was made from.
    pub(super) version: u64,
    pub(super) limits: Limits,
    pub(super) buckets: [Option<Arc<TokenBucket>>; KIND_COUNT],
    pub(super) usage: Arc<Usage>,
    pub(super) window: Duration,
    pub(super) is_dry_run: bool,
    /// Of somebody whose name is not kept.
    pub(super) is_crowd: bool,
}

impl ClientQuota {
    /// Books a request that was handled within `micros`; returns for how many milliseconds its connection is held back.
    ///
    /// - `request_bytes`: as it came, with its length.
    pub fn handled(&self, api_key: ApiKey, request_bytes: u64, micros: u64, now: Moment) -> u32 {
        let of_time = self.take(QuotaKind::Request, micros.min(STEP_MICROS_MAX), now);
        if api_key != ApiKey::Produce {
            return of_time;
        }
        of_time.max(self.take(QuotaKind::Produce, request_bytes, now))
    }

    /// Books an answer of so many bytes; returns for how many milliseconds its connection is held back.
    pub fn answered(&self, api_key: ApiKey, reply_bytes: u64, now: Moment) -> u32 {
        match api_key {
            ApiKey::Fetch => self.take(QuotaKind::Fetch, reply_bytes, now),
            _ => 0,
        }
    }

    /// Books time of an event loop that no answer waits for any more. The next request pays.
    pub fn worked(&self, micros: u64, now: Moment) {
        let micros = micros.min(STEP_MICROS_MAX);
        self.usage.add(QuotaKind::Request, micros);
        if let Some(bucket) = self.bucket(QuotaKind::Request).filter(|_| !self.is_dry_run) {
            bucket.take(micros as f64 * QuotaKind::Request.scale(), now);
        }
    }

    /// For how many milliseconds a fetch gets nothing, because others who share its quota have used it up; 0: it may read.
    pub fn fetch_debt_ms(&self, now: Moment) -> u32 {
        let bucket = self.bucket(QuotaKind::Fetch).filter(|_| !self.is_dry_run);
        let debt_micros = bucket.map_or(0, |bucket| bucket.debt_micros(now));
        self.throttle(QuotaKind::Fetch, debt_micros)
    }

    /// What one fetch may take at most: what the quota allows in one window.
    pub fn fetch_bytes_max(&self) -> u64 {
        match &self.limits[QuotaKind::Fetch as usize] {
            // Saturates; at least one byte, and the first batch comes whatever the limit is.
            Some(limit) if !self.is_dry_run => (limit.per_second * self.window.as_secs_f64()).max(1.0) as u64,
            _ => u64::MAX,
        }
    }

    /// Books partitions created or deleted; returns for how many milliseconds the client is told to wait.
    pub(super) fn take_mutations(&self, partitions: u32, now: Moment) -> u32 {
        self.take(QuotaKind::ControllerMutation, partitions.into(), now)
    }

    /// For how many milliseconds no partition may be created or deleted; 0: some may.
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
        // Kafka holds a client back for its request time by one window at most, and again if that was not enough.
        let micros_max = match kind {
            QuotaKind::Request => u64::try_from(self.window.as_micros()).unwrap_or(u64::MAX),
            _ => u64::MAX,
        };
        // Less than a millisecond cannot be told; it is owed all the same.
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
