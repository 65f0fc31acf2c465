//! A broker's counters at one moment, as a plain value that the broker's program fills in.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use crate::doctor::snapshot::Codec;
use crate::machine::host::HostCounts;

/// All clients' counters at one moment. Two of them make a window.
#[derive(Clone, Debug, Default)]
pub struct BrokerCounts {
    pub node_id: i32,
    /// The wall clock, in milliseconds since 1970.
    pub at_ms: i64,
    /// A clock that does not jump.
    pub moment_micros: u64,
    /// Event loops, and the time they have worked in total.
    pub loop_count: usize,
    pub busy_micros: u64,
    /// Processors of the machine, and the time the broker has used them in total.
    pub processor_count: usize,
    pub processor_micros: u64,
    /// The machine's processors.
    pub host: Option<HostCounts>,
    pub connections: Vec<ConnectionCounts>,
    /// The finalized `transaction.version`.
    pub transaction_version: Option<i16>,
    pub groups: Vec<GroupCounts>,
    /// The oldest open transaction of partitions in which a reader is behind.
    pub open_transactions: Vec<OpenTransactionCounts>,
}

/// One connection's sums since it was opened.
#[derive(Clone, Debug)]
pub struct ConnectionCounts {
    pub connection_id: u64,
    pub client_id: Arc<str>,
    pub principal: Arc<str>,
    /// Version and cipher suite; `None`: without TLS.
    pub tls: Option<Arc<str>>,
    pub address: IpAddr,
    /// Whether the client runs on the broker's machine.
    pub is_local: bool,
    /// KIP-714's client instance id, if the client has asked for a subscription.
    pub instance_id: Option<String>,
    /// How often it was told to push.
    pub push_interval_ms: Option<u32>,
    /// The broker asks this client for no metrics.
    pub is_off_at_broker: bool,
    /// Name and version, if the client sent them (KIP-511).
    pub software: Option<(Arc<str>, Arc<str>)>,
    pub produce: Option<RequestCounts>,
    pub fetch: Option<RequestCounts>,
    pub written: Option<WrittenCounts>,
    /// All other requests: their time in handlers.
    pub other_micros: u64,
    /// Commits of offsets among them, and how long they took from their first byte to the last of
    /// their answers.
    pub commits: u64,
    pub commit_micros: u64,
    /// Ends of transactions among them that do not say which transaction: EndTxn before version 5.
    pub nameless_ends: u64,
    /// The last different operations that it was denied.
    pub denied: Vec<DeniedCounts>,
    /// The last different topics that it asked for, and that do not exist, with how often.
    pub unknown_topics: Vec<(Arc<str>, u64)>,
    /// The path's round trip as measured by the kernel.
    pub round_trip_micros: Option<u32>,
    /// The same with what queues on the way, where the broker is sending; and the time in which it
    /// was: bytes were not acknowledged.
    pub smoothed_micros: Option<u32>,
    pub sending_micros: u64,
    /// The positions of its fetches when they were last noted, and when that was, in
    /// `moment_micros`.
    pub fetched: Option<(u64, Vec<FetchCounts>)>,
    /// It was closed before the first answer can have reached the client.
    pub is_unheard: bool,
    pub is_closed: bool,
}

/// How often an operation was denied, since it is among the last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeniedCounts {
    pub what: DeniedWhat,
    pub count: u64,
}

/// In the words of Kafka's tools.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeniedWhat {
    pub operation: &'static str,
    pub resource_type: &'static str,
    pub resource: Arc<str>,
    /// An ACL denies it; otherwise none allows it.
    pub is_by_acl: bool,
}

/// The number of partitions is counted in this many bits, one for each partition by a hash.
pub const PARTITION_BITS: usize = 1_024;

pub type PartitionBits = [u64; PARTITION_BITS / 64];

/// The partitions that a connection's client writes to.
#[derive(Clone, Debug, Default)]
pub struct WrittenCounts {
    /// The heaviest, in sums since their entry was made.
    pub partitions: Vec<PartitionCounts>,
    /// All that were written to lately.
    pub bits: PartitionBits,
}

#[derive(Clone, Debug)]
pub struct PartitionCounts {
    pub topic: Arc<str>,
    pub partition: i32,
    /// A partition that was displaced by heavier ones and came back has another number, and counts
    /// from zero.
    pub entry: u32,
    pub batches: u64,
    pub records: u64,
    pub bytes: u64,
}

/// The limits that a fetch request names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FetchLimits {
    pub min_bytes: i32,
    pub max_wait_ms: i32,
    pub max_bytes: i32,
    pub partition_bytes_max: Option<i32>,
}

#[derive(Clone, Debug)]
pub struct FetchCounts {
    pub topic: Arc<str>,
    pub partition: i32,
    /// The offset that was asked from, and the high watermark.
    pub offset: i64,
    pub end: i64,
}

/// A transaction that is not ended: readers of committed records read no further than to its first
/// one.
#[derive(Clone, Debug)]
pub struct OpenTransactionCounts {
    pub topic: Arc<str>,
    pub partition: i32,
    pub first_offset: i64,
    pub producer_id: i64,
    /// `None`: no coordinator on this broker knows it.
    pub transactional_id: Option<Arc<str>>,
    /// When its producer last wrote to the partition, in milliseconds since 1970.
    pub written_ms: i64,
}

/// Sums over a connection's requests of one API. Times are microseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestCounts {
    /// When the first request was answered, in `moment_micros`; `None`: not known.
    pub began_micros: Option<u64>,
    pub requests: u64,
    pub request_bytes: u64,
    pub reply_bytes: u64,
    pub batches: u64,
    /// Records produced, or by how many offsets the fetches advanced.
    pub records: u64,
    pub batch_bytes: u64,
    pub codecs: BTreeSet<Codec>,
    pub recompressed: BTreeSet<Codec>,
    /// Requests with acks all, 0 and 1.
    pub acks: [u64; 3],
    /// Requests that came after all earlier ones were answered, and how long after.
    pub gaps: u64,
    pub gap_micros: u64,
    /// Gaps that could be compared with a round trip, and those of requests that came at once.
    pub gaps_judged: u64,
    pub back_to_back: u64,
    /// Requests that came while an earlier one was not answered.
    pub overlaps: u64,
    /// From a request's first byte to its last, and the squares of the times between its reads.
    pub read_micros: u64,
    pub pause_squares: u64,
    /// Lately: the largest request and batch, and the most requests of one connection that were
    /// under way at the same time as far as the broker can tell.
    pub request_bytes_max: u32,
    pub batch_bytes_max: u32,
    pub in_flight_max: u16,
    /// Of the last fetch.
    pub fetch_limits: Option<FetchLimits>,
    /// Answers that waited for the device, and their bytes.
    pub cold_reads: u64,
    pub cold_bytes: u64,
    /// Partitions by the name of their error.
    pub errors: BTreeMap<String, u64>,
    /// Complete, while other requests are served first.
    pub queued_micros: u64,
    /// On the event loop: in the handler and in the append.
    pub handled_micros: u64,
    /// Waiting for the group commit.
    pub synced_micros: u64,
    /// Waiting for the device to read.
    pub cold_read_micros: u64,
    /// Waiting for what the client asked for: data (`fetch.max.wait.ms`), other members.
    pub asked_wait_micros: u64,
    pub controller_micros: u64,
    /// Answered, while an earlier request of the connection is not.
    pub behind_micros: u64,
    /// Until the socket took the last byte of the answer.
    pub written_micros: u64,
    /// Answered, while the connection is muted because its client is over a quota.
    pub throttled_micros: u64,
}

impl RequestCounts {
    /// Adds what happened elsewhere, or later.
    pub fn merge(&mut self, other: &RequestCounts) {
        for (into, from) in self.sums().into_iter().zip(other.clone().sums()) {
            *into += *from;
        }
        self.request_bytes_max = self.request_bytes_max.max(other.request_bytes_max);
        self.batch_bytes_max = self.batch_bytes_max.max(other.batch_bytes_max);
        self.in_flight_max = self.in_flight_max.max(other.in_flight_max);
        self.fetch_limits = other.fetch_limits.or(self.fetch_limits);
        self.codecs.extend(&other.codecs);
        self.recompressed.extend(&other.recompressed);
        for (error, count) in &other.errors {
            *self.errors.entry(error.clone()).or_default() += count;
        }
    }

    /// Returns what happened since `earlier`, an older value of the same connection. What is not a
    /// sum stays as it is.
    pub fn since(&self, earlier: &RequestCounts) -> RequestCounts {
        let mut later = self.clone();
        for (into, from) in later.sums().into_iter().zip(earlier.clone().sums()) {
            *into = into.saturating_sub(*from);
        }
        for (error, count) in &mut later.errors {
            *count = count.saturating_sub(earlier.errors.get(error).copied().unwrap_or(0));
        }
        later
    }

    fn sums(&mut self) -> Vec<&mut u64> {
        let mut sums = vec![
            &mut self.requests,
            &mut self.request_bytes,
            &mut self.reply_bytes,
            &mut self.batches,
            &mut self.records,
            &mut self.batch_bytes,
            &mut self.gaps,
            &mut self.gap_micros,
            &mut self.gaps_judged,
            &mut self.back_to_back,
            &mut self.overlaps,
            &mut self.read_micros,
            &mut self.pause_squares,
            &mut self.cold_reads,
            &mut self.cold_bytes,
            &mut self.queued_micros,
            &mut self.handled_micros,
            &mut self.synced_micros,
            &mut self.cold_read_micros,
            &mut self.asked_wait_micros,
            &mut self.controller_micros,
            &mut self.behind_micros,
            &mut self.written_micros,
            &mut self.throttled_micros,
        ];
        sums.extend(&mut self.acks);
        sums
    }

    /// Kafka's LocalTimeMs. One machine has no followers, so waiting for the disk, to write or to
    /// read, is part of it.
    pub fn local_micros(&self) -> u64 {
        self.handled_micros + self.synced_micros + self.cold_read_micros
    }

    /// Kafka's RemoteTimeMs.
    pub fn remote_micros(&self) -> u64 {
        self.asked_wait_micros + self.controller_micros
    }

    pub fn total_micros(&self) -> u64 {
        self.queued_micros
            + self.local_micros()
            + self.remote_micros()
            + self.behind_micros
            + self.written_micros
    }

    /// Time on the broker without the waits that the client asked for.
    pub fn own_micros(&self) -> u64 {
        self.total_micros() - self.asked_wait_micros
    }
}

/// A consumer group.
#[derive(Clone, Debug)]
pub struct GroupCounts {
    pub group_id: Arc<str>,
    pub members: Vec<MemberCounts>,
    /// Partitions of all topics that its members subscribe to.
    pub partition_count: usize,
    /// Members that were removed because they polled too late (`max.poll.interval.ms`), and when,
    /// in milliseconds since 1970.
    pub late: Vec<(i64, MemberCounts)>,
    /// Its committed offsets, each with the partition's end at the reading's moment.
    pub committed: Vec<FetchCounts>,
}

#[derive(Clone, Debug)]
pub struct MemberCounts {
    pub member_id: Arc<str>,
    pub client_id: Arc<str>,
    /// As Kafka writes it: Java's form, with a leading slash.
    pub client_host: Arc<str>,
    pub rebalance_timeout_ms: i32,
    pub session_timeout_ms: i32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happened_since_is_the_difference_of_every_sum() {
        let mut early = RequestCounts::default();
        for (value, sum) in early.sums().into_iter().zip(1..) {
            *value = sum;
        }
        early.errors.insert("NOT_LEADER".to_owned(), 2);
        let mut late = early.clone();
        late.merge(&early);
        assert_eq!(late.errors["NOT_LEADER"], 4);
        assert_eq!(late.since(&early), early);
    }
}
