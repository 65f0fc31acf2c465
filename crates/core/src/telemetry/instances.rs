//! State per client instance, and the answers that follow from it (KIP-714).
//!
//! Order of refusals and conditions are Apache Kafka's. There are two differences: a push right
//! after *any* answered GetTelemetrySubscriptions is accepted (Kafka forgets the one that followed
//! an unknown subscription id), which helps the client; and no push is accepted after the
//! terminating one until the connection ends (Kafka accepts every second one), which helps the
//! broker.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ottla_wire::error_code::ErrorCode;
use ottla_wire::primitives::Uuid;
use ottla_wire::records::compression::Codec;
use ottla_wire::records::crc32c;

use super::subscription::Wanted;
use crate::time::Moment;

/// At most this many instances are known; beyond it, the one closest to expiry is evicted. Apache
/// Kafka's limit.
pub const INSTANCES_MAX: usize = 16_384;

/// At most this many instances per connection. A client has one; a client that makes up a new id
/// for every push evicts only its own.
const PER_CONNECTION_MAX: usize = 8;

/// A silent instance expires after this time, or after three of its intervals, whichever is longer.
const EXPIRY_MS_MIN: u64 = 60_000;

/// What a client is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Granted {
    pub wanted: Arc<Wanted>,
    pub subscription_id: i32,
}

/// The fields of a push.
#[derive(Clone, Copy, Debug)]
pub struct Push {
    pub id: Uuid,
    pub subscription_id: i32,
    pub is_terminating: bool,
    pub compression_type: i8,
    /// Size of the payload as received.
    pub payload_bytes: usize,
}

impl Push {
    pub fn codec(&self) -> Option<Codec> {
        Codec::from_id(self.compression_type.into())
    }
}

#[derive(Debug)]
struct Instance {
    connection_id: u64,
    /// Generation of the subscriptions that `granted` was made from.
    generation: u64,
    granted: Granted,
    last_asked: Option<Moment>,
    last_pushed: Option<Moment>,
    /// It asked after its last push: the first push comes after half to one and a half intervals.
    may_push_now: bool,
    is_terminated: bool,
    /// Why the last push was refused.
    refused: Option<ErrorCode>,
    expires: Moment,
}

impl Instance {
    fn interval_ms(&self) -> u64 {
        self.granted.wanted.interval_ms.into()
    }

    fn is_interval_over(&self, since: Option<Moment>, now: Moment) -> bool {
        since.is_none_or(|since| now >= since.after_ms(self.interval_ms()))
    }

    fn ask(&mut self, now: Moment) -> Result<Granted, ErrorCode> {
        let must_ask = matches!(
            self.refused,
            Some(ErrorCode::UnknownSubscriptionId | ErrorCode::UnsupportedCompressionType)
        );
        if !must_ask && !self.is_interval_over(self.last_asked.max(self.last_pushed), now) {
            return Err(ErrorCode::ThrottlingQuotaExceeded);
        }
        self.last_asked = Some(now);
        self.may_push_now = true;
        self.refused = None;
        Ok(self.granted.clone())
    }

    fn push(&mut self, now: Moment, push: &Push, bytes_max: usize) -> Result<u32, ErrorCode> {
        if self.is_terminated {
            return Err(ErrorCode::InvalidRequest);
        }
        self.is_terminated = push.is_terminating;
        let is_in_time = self.may_push_now || self.is_interval_over(self.last_pushed, now);
        if is_in_time {
            self.last_pushed = Some(now);
            self.may_push_now = false;
        } else if !push.is_terminating {
            return Err(ErrorCode::ThrottlingQuotaExceeded);
        }
        if push.subscription_id != self.granted.subscription_id {
            return Err(ErrorCode::UnknownSubscriptionId);
        }
        if push.codec().is_none() {
            return Err(ErrorCode::UnsupportedCompressionType);
        }
        if push.payload_bytes > bytes_max {
            return Err(ErrorCode::TelemetryTooLarge);
        }
        Ok(self.granted.wanted.interval_ms)
    }
}

/// All instances, as a state machine: time is passed in, and it only answers.
#[derive(Debug, Default)]
pub struct Instances {
    by_id: BTreeMap<Uuid, Instance>,
    by_expiry: BTreeSet<(Moment, Uuid)>,
    /// Oldest first.
    by_connection: BTreeMap<u64, Vec<Uuid>>,
}

impl Instances {
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// Handles GetTelemetrySubscriptions. `wanted` is called when the instance is new or
    /// subscriptions have changed.
    pub fn ask(
        &mut self,
        now: Moment,
        id: Uuid,
        connection_id: u64,
        generation: u64,
        wanted: impl FnOnce() -> Arc<Wanted>,
    ) -> Result<Granted, ErrorCode> {
        self.touch(now, id, connection_id, generation, wanted).ask(now)
    }

    /// Handles a push; returns its interval in milliseconds if the payload may be read.
    pub fn push(
        &mut self,
        now: Moment,
        push: &Push,
        bytes_max: usize,
        connection_id: u64,
        generation: u64,
        wanted: impl FnOnce() -> Arc<Wanted>,
    ) -> Result<u32, ErrorCode> {
        if push.id.is_zero() || push.id == Uuid::METADATA_TOPIC_ID {
            return Err(ErrorCode::InvalidRequest);
        }
        let instance = self.touch(now, push.id, connection_id, generation, wanted);
        let result = instance.push(now, push, bytes_max);
        instance.refused = result.err();
        result
    }

    /// Returns the instance, new or known, with its expiry renewed and its subscription up to date.
    fn touch(
        &mut self,
        now: Moment,
        id: Uuid,
        connection_id: u64,
        generation: u64,
        wanted: impl FnOnce() -> Arc<Wanted>,
    ) -> &mut Instance {
        self.expire(now);
        let before = self.remove(id);
        let is_terminated = before.as_ref().is_some_and(|before| before.is_terminated);
        // A changed subscription resets the state: the client may ask, and its next push is
        // answered with an error that makes it ask.
        let known = before.filter(|before| before.generation == generation);
        let mut instance = known.unwrap_or_else(|| Instance {
            connection_id,
            generation,
            granted: grant(id, wanted()),
            last_asked: None,
            last_pushed: None,
            may_push_now: false,
            is_terminated,
            refused: None,
            expires: now,
        });
        self.make_room(connection_id);
        instance.connection_id = connection_id;
        instance.expires = now.after_ms(EXPIRY_MS_MIN.max(3 * instance.interval_ms()));
        self.by_expiry.insert((instance.expires, id));
        self.by_connection.entry(connection_id).or_default().push(id);
        self.by_id.entry(id).insert_entry(instance).into_mut()
    }

    fn make_room(&mut self, connection_id: u64) {
        let of_connection = self.by_connection.get(&connection_id);
        if let Some(ids) = of_connection.filter(|ids| ids.len() >= PER_CONNECTION_MAX) {
            self.remove(ids[0]);
        }
        if self.by_id.len() >= INSTANCES_MAX
            && let Some((_, id)) = self.by_expiry.first().copied()
        {
            self.remove(id);
        }
    }

    fn remove(&mut self, id: Uuid) -> Option<Instance> {
        let instance = self.by_id.remove(&id)?;
        self.by_expiry.remove(&(instance.expires, id));
        if let Some(ids) = self.by_connection.get_mut(&instance.connection_id) {
            ids.retain(|other| *other != id);
            if ids.is_empty() {
                self.by_connection.remove(&instance.connection_id);
            }
        }
        Some(instance)
    }

    /// Removes the instances of a closed connection.
    pub fn disconnected(&mut self, connection_id: u64) {
        for id in self
            .by_connection
            .get(&connection_id)
            .cloned()
            .unwrap_or_default()
        {
            self.remove(id);
        }
    }

    pub fn expire(&mut self, now: Moment) {
        while let Some((_, id)) = self
            .by_expiry
            .first()
            .filter(|(expires, _)| *expires <= now)
            .copied()
        {
            self.remove(id);
        }
    }
}

fn grant(id: Uuid, wanted: Arc<Wanted>) -> Granted {
    Granted {
        subscription_id: subscription_id(id, &wanted),
        wanted,
    }
}

/// KIP-714: CRC32C of the metrics and the interval, XOR the instance id (as Java hashes it).
fn subscription_id(id: Uuid, wanted: &Wanted) -> i32 {
    let metrics: Vec<&str> = wanted.metrics.iter().map(|metric| &**metric).collect();
    let text = format!("[{}]{}", metrics.join(", "), wanted.interval_ms);
    let bits = u128::from_be_bytes(id.0);
    let folded = (bits >> 64) as u64 ^ bits as u64;
    (crc32c::checksum(text.as_bytes()) ^ (folded >> 32) as u32 ^ folded as u32) as i32
}
