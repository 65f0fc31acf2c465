//! The manual of findings: what each means, when it is found, what to do, what that gains.

use super::diagnosis::FindingId;

/// The manual's entry for one finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FindingPage {
    pub id: FindingId,
    pub name: &'static str,
    pub trigger: &'static str,
    pub fix: &'static str,
    pub promise: &'static str,
}

const fn page(
    id: FindingId,
    name: &'static str,
    trigger: &'static str,
    fix: &'static str,
    promise: &'static str,
) -> FindingPage {
    FindingPage {
        id,
        name,
        trigger,
        fix,
        promise,
    }
}

/// In the order of the manual.
pub const FINDINGS: [FindingPage; 30] = [
    page(
        FindingId::W1,
        "a sending thread has no time left",
        "`X_r * W / T` >= 0.8 without a backlog",
        "more threads with partitions of their own; a faster serialiser or codec",
        "`X_r * (T + 1) / T * 0.9` until contention rises",
    ),
    page(
        FindingId::W2,
        "sending threads wait for each other's lock",
        "W grows at least as fast as the threads, throughput by less than 5 %",
        "fewer threads, partitions of their own, or several producers in the process",
        "back to the best rate that was seen",
    ),
    page(
        FindingId::W3,
        "compression takes the client's time",
        "W falls by more than 30 % with another codec; or the sender thread has no time left while batches are compressed with zstd or gzip",
        "lz4, or a lower level",
        "the share of W that the codec took",
    ),
    page(
        FindingId::N1,
        "callbacks occupy the sender thread",
        "it spends half of its time outside its selector, callbacks can account for that (F7), and no expensive codec does",
        "hand the work over to another thread",
        "from 1 / C to the next ceiling",
    ),
    page(
        FindingId::N2,
        "request ceiling, batches full",
        "U >= 0.85 and batches at least 0.85 full",
        "batch.size two to four times as large",
        "F30 with g = 2",
    ),
    page(
        FindingId::N3,
        "request ceiling, batches not full",
        "U >= 0.85 and batches less than half full, with a linger that collects little",
        "linger.ms up to the latency that is allowed; fewer partitions per producer; a sticky partitioner",
        "F20, F30",
    ),
    page(
        FindingId::N4,
        "too little in flight for the round trip",
        "RTT >= D and M < 1 + RTT / D",
        "max.in.flight.requests.per.connection, up to 5 in order with idempotence",
        "`X_r * M' / M` until the window",
    ),
    page(
        FindingId::N5,
        "the window is too small",
        "bytes under way are what send.buffer.bytes allows, or a request takes 1.8 round trips or more of the kernel's own measurement (F12, F13)",
        "send.buffer.bytes and the receiver's of bandwidth * RTT",
        "`min(M * request, 2 * buffer) / RTT`",
    ),
    page(
        FindingId::N6,
        "the link is full",
        "F15: 0.92 of the bandwidth is what requests can have",
        "a better codec, a faster link",
        "`link * 0.92 / c`",
    ),
    page(
        FindingId::E1,
        "the buffer is exhausted",
        "no buffer.memory came free for records within max.block.ms",
        "remove the ceiling first; then buffer.memory for the longest pause to bridge",
        "time until full, wait per batch (F17)",
    ),
    page(
        FindingId::E2,
        "records expire before they are sent",
        "records fail by timeout, the queue is as old as delivery.timeout.ms",
        "remove the ceiling; a longer delivery.timeout.ms only hides it",
        "none until the drain reaches the offered rate",
    ),
    page(
        FindingId::E3,
        "topic or leader unknown",
        "`send()` waits for metadata",
        "create the topic, allow access, correct the addresses",
        "-",
    ),
    page(
        FindingId::E4,
        "requests are repeated",
        "more than one record in a thousand is retried",
        "by the broker's error: leader moved, too few replicas, timeouts",
        "-",
    ),
    page(
        FindingId::E5,
        "connections do not last",
        "a connection is made again every five seconds or more often, in each push, or ends as often before its first answer can have arrived",
        "request.timeout.ms above fetch.max.wait.ms, the round trip and the slowest answer",
        "no connection is made again",
    ),
    page(
        FindingId::B1,
        "many small requests",
        "fewer than 5 records in a request or batches a tenth full, at more than 100 requests/s, where a broker's or the client's thread is seen to pay for it",
        "linger.ms of 5 to 10, a sticky partitioner, fewer producers",
        "requests saved (F20)",
    ),
    page(
        FindingId::B2,
        "uneven leaders, keys or partitions",
        "the pipe to one broker is full and another's half empty; one partition gets half of the bytes; one partition alone falls behind",
        "move leaders; keys that spread; a larger batch.size for a hot key; set aside a record that stops its reader",
        "the largest becomes the mean",
    ),
    page(
        FindingId::B3,
        "the broker's handlers or processor are busy",
        "request queue at least 0.3 of D, handlers idle below 0.3",
        "fewer requests; more handlers; more brokers",
        "Kingman: rho / (1 - rho) (F24)",
    ),
    page(
        FindingId::B4,
        "the broker's log is slow",
        "local time at least 0.5 of D",
        "disks, page cache, fewer partitions; the topic's compression.type=producer",
        "D without its local part, at best",
    ),
    page(
        FindingId::B5,
        "replication is slow",
        "remote time at least 0.5 of D",
        "num.replica.fetchers, even leaders, the slow follower, fewer partitions per broker",
        "D without its remote part, at best",
    ),
    page(
        FindingId::B6,
        "network threads are busy or blocked",
        "response queue and send at least 0.3 of D, network threads idle below 0.3",
        "cold reads elsewhere (F26); more network threads",
        "waiting times (1 - rho)",
    ),
    page(
        FindingId::B7,
        "the broker compresses again",
        "the topic's codec is not the producer's",
        "compression.type=producer at the topic",
        "the local part falls to what appending costs",
    ),
    page(
        FindingId::Q1,
        "a quota delays requests",
        "throttle time above 0; of a producer, that holds a connection back for a twentieth of the time",
        "fewer requests where it is the request quota; a larger quota",
        "twice the rate with twice the byte quota, as far as the application offers it",
    ),
    page(
        FindingId::T1,
        "another client takes the brokers' time",
        "this client's D doubled, another's cost grew by more than half of all growth",
        "a request quota for it, larger batches there",
        "Kingman on the utilisation that is freed",
    ),
    page(
        FindingId::C1,
        "the consumer's application is the limit",
        "polls wait less than 0.2 of the time",
        "more consumers, up to the partitions; a faster handler",
        "consumers * rate, time to catch up (F29)",
    ),
    page(
        FindingId::C2,
        "fetches are the limit",
        "polls wait more than 0.8 of the time though there is a lag",
        "fetch sizes, fetch.min.bytes, more consumers",
        "size / latency (F29)",
    ),
    page(
        FindingId::C3,
        "fetches read the broker's disk",
        "local or send time of fetches high, records old",
        "page cache, a throttle for readers that catch up",
        "F26",
    ),
    page(
        FindingId::O1,
        "synchronous sending",
        "`T * 1000 / (linger + L)` within 15 % of the rate (F28)",
        "callbacks; linger.ms=0 where it must stay synchronous",
        "`(linger + L) / L`",
    ),
    page(
        FindingId::O2,
        "nothing is wrong",
        "no other finding",
        "none",
        "headroom: 1 / U, 1 / (1 - idle)",
    ),
    page(
        FindingId::A1,
        "the broker denies what it asks for",
        "one denial by an ACL in the window",
        "the ACL that is missing, as kafka-acls.sh adds it; or without the one that denies",
        "not known before records flow",
    ),
    page(
        FindingId::X1,
        "a delayed EndTxn may end the next transaction",
        "one EndTxn before version 5 in the window",
        "a client that sends version 5 (Java from 4.0 on), and transaction.version 2",
        "each transaction has an epoch of its own",
    ),
];

impl FindingId {
    pub fn page(self) -> &'static FindingPage {
        FINDINGS
            .iter()
            .find(|page| page.id == self)
            .expect("every finding has its page")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_finding_has_one_page() {
        let mut ids: Vec<FindingId> = FINDINGS.iter().map(|page| page.id).collect();
        assert!(ids.iter().all(|id| id.page().id == *id));
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), FINDINGS.len());
        // The number of the last variant is the count of all others.
        assert_eq!(FindingId::X1 as usize + 1, FINDINGS.len());
    }
}
