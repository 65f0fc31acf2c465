//! The meanings of verdicts and symbols, for readers who do not know the inside of a Kafka client.

use super::diagnosis::{Confidence, Verdict};
use super::snapshot::Role;

impl Verdict {
    /// The name used in the JSON.
    pub fn name(self) -> &'static str {
        self.words().0
    }

    /// The meaning as one sentence without numbers.
    pub fn meaning(self) -> &'static str {
        self.words().1
    }

    fn words(self) -> (&'static str, &'static str) {
        match self {
            Verdict::NotEnoughData => (
                "NOT_ENOUGH_DATA",
                "Too little has been seen of this client to say anything.",
            ),
            Verdict::Denied => (
                "DENIED",
                "The broker's ACLs do not allow what this client asks for.",
            ),
            Verdict::Quota => (
                "QUOTA",
                "The broker slows this client down on purpose: it is above its quota.",
            ),
            Verdict::Failing => (
                "FAILING",
                "Its requests fail: the topic is missing or not allowed, its leader cannot be reached, its records are refused, or its connections end unanswered.",
            ),
            Verdict::Host => (
                "HOST",
                "The client's or the broker's machine has no processor time left, so everything on it is late.",
            ),
            Verdict::Skew => (
                "SKEW",
                "One broker or partition gets far more than the others, and the client waits for that one.",
            ),
            Verdict::SenderThread => (
                "SENDER_THREAD",
                "The client's one I/O thread is busy with other things, callbacks or compressing batches, and does not get to send.",
            ),
            Verdict::SenderRate => (
                "SENDER_RATE",
                "The client sends as many requests as answers come back; only bigger requests carry more.",
            ),
            Verdict::NetworkRtt => (
                "NETWORK_RTT",
                "The client waits for the way there and back with too little under way at a time.",
            ),
            Verdict::NetworkWindow => (
                "NETWORK_WINDOW",
                "The connection lets fewer bytes be on the way than its requests have, so each takes several round trips.",
            ),
            Verdict::NetworkBandwidth => ("NETWORK_BANDWIDTH", "The link is full."),
            Verdict::Broker => (
                "BROKER",
                "Most of the time of each request passes inside the broker.",
            ),
            Verdict::Worker => (
                "WORKER",
                "The threads that call send() are busy all the time; everything behind them has room.",
            ),
            Verdict::Application => (
                "APPLICATION",
                "The client keeps up with what it is given; the application, or its threads that call send(), set the pace.",
            ),
            Verdict::Synchronous => (
                "SYNCHRONOUS",
                "The application waits for the answer to each record before it sends the next one.",
            ),
            Verdict::SmallRequests => (
                "SMALL_REQUESTS",
                "Nothing is slow, but many small requests take time that a broker or the client is seen to be short of.",
            ),
            Verdict::Rebalancing => (
                "REBALANCING",
                "The group rebalances again and again and reads little meanwhile.",
            ),
            Verdict::Processing => (
                "PROCESSING",
                "The consumer is busy with what it has read: its own work on each record sets the pace.",
            ),
            Verdict::FetchWait => (
                "FETCH_WAIT",
                "Fetches wait at the broker for more bytes although there is something to read.",
            ),
            Verdict::FetchSize => (
                "FETCH_SIZE",
                "Every fetch brings all that its settings allow, and that is too little.",
            ),
            Verdict::ColdRead => (
                "COLD_READ",
                "What is read is no longer in memory: fetches wait for the broker's disk.",
            ),
            Verdict::Transaction => (
                "TRANSACTION",
                "The consumer reads committed records only, and stands still before a transaction that is not ended.",
            ),
            Verdict::CatchingUp => (
                "CATCHING_UP",
                "The consumer is behind and reads faster than is written.",
            ),
            Verdict::KeepsUp => ("KEEPS_UP", "The client does all that is asked of it."),
        }
    }
}

impl Confidence {
    pub fn name(self) -> &'static str {
        match self {
            Confidence::Low => "low",
            Confidence::Medium => "medium",
            Confidence::High => "high",
        }
    }
}

impl Role {
    pub fn name(self) -> &'static str {
        match self {
            Role::Producer => "producer",
            Role::Consumer => "consumer",
        }
    }
}

/// Symbols of the formulas, as evidence uses them.
const SYMBOLS: &[(&str, &str)] = &[
    ("X_r", "records sent per second"),
    ("X_b", "bytes per second on the wire"),
    ("X_p", "bytes of records per second, before compression"),
    ("R", "requests per second"),
    ("R_n", "requests per second to this broker"),
    ("R_max", "requests per second that the round trips allow"),
    ("S", "bytes of a request"),
    ("S_max", "bytes that a request may have"),
    ("b", "bytes of a batch"),
    ("batch.size", "bytes that a batch may have"),
    ("linger", "how long a batch may wait for more records"),
    ("n_req", "records in a request"),
    ("c", "compressed size over uncompressed size"),
    ("s_rec", "bytes of a record"),
    ("q", "mean time that a batch waits until it is sent"),
    ("q_max", "longest time that a batch waited"),
    ("L", "mean time from a request to its answer"),
    ("L_max", "longest time from a request to its answer"),
    ("L_n", "mean time from a request to this broker to its answer"),
    ("Ls", "time from send() to the answer"),
    ("Ls_lo", "time from send() to the answer, at least"),
    ("Ls_hi", "time from send() to the answer, at most"),
    ("F", "requests under way"),
    ("M", "requests that may be under way on a connection"),
    ("M_eff", "requests that really fit on a connection"),
    ("N", "brokers that are written to"),
    ("P_n", "partitions written on this broker"),
    ("w_buf", "seconds per second that threads wait for buffer memory"),
    ("B", "buffer memory, bytes"),
    ("B_free", "free buffer memory, bytes"),
    ("T_wait", "threads that wait for buffer memory"),
    ("i_wait", "share of time that the I/O thread has nothing to do"),
    (
        "i_io",
        "share of time that the I/O thread reads and writes sockets",
    ),
    (
        "i_oth",
        "share of time that the I/O thread does something else, mostly callbacks",
    ),
    ("th", "delay that the broker imposes"),
    ("e", "failed records"),
    ("rt", "repeated records"),
    ("md", "seconds per second that send() waits to learn the leader"),
    ("bx", "records dropped because buffer memory was full"),
    ("W", "time inside one send()"),
    ("W_own", "time inside one send() without waiting for memory"),
    ("C", "time inside one callback"),
    ("T", "threads that call send()"),
    ("RTT", "time there and back on the network"),
    ("D", "time of a request inside the broker"),
    ("D_n", "time of a request inside this broker"),
    (
        "U",
        "share of the requests that may be under way that are: 1 is a full pipe",
    ),
    ("U_n", "the same for this broker"),
    ("Z", "share of what full requests could carry"),
    ("phi", "how full batches are"),
    ("kappa", "how much slower send() is than with one thread"),
    ("G", "gain in records per second"),
    ("k", "records that come together within linger"),
    ("rho", "share of time that the broker's threads are busy"),
    ("Weff", "bytes that may be under way unacknowledged"),
];

/// The meaning of a symbol of the arithmetic; `None` for unknown ones.
pub fn symbol(name: &str) -> Option<&'static str> {
    SYMBOLS
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, meaning)| *meaning)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Verdict; 24] = [
        Verdict::NotEnoughData,
        Verdict::Denied,
        Verdict::Quota,
        Verdict::Failing,
        Verdict::Skew,
        Verdict::Host,
        Verdict::SenderThread,
        Verdict::SenderRate,
        Verdict::NetworkRtt,
        Verdict::NetworkWindow,
        Verdict::NetworkBandwidth,
        Verdict::Broker,
        Verdict::Worker,
        Verdict::Application,
        Verdict::Synchronous,
        Verdict::SmallRequests,
        Verdict::Rebalancing,
        Verdict::Processing,
        Verdict::FetchWait,
        Verdict::FetchSize,
        Verdict::ColdRead,
        Verdict::Transaction,
        Verdict::CatchingUp,
        Verdict::KeepsUp,
    ];

    #[test]
    fn people_and_programs_read_the_same_names() {
        for verdict in ALL {
            let json = serde_json::to_string(&verdict).unwrap();
            assert_eq!(json, format!("{:?}", verdict.name()));
            assert!(verdict.meaning().ends_with('.'));
        }
        for confidence in [Confidence::Low, Confidence::Medium, Confidence::High] {
            assert_eq!(
                serde_json::to_string(&confidence).unwrap(),
                format!("{:?}", confidence.name())
            );
        }
    }

    const PAGE: &str = include_str!("../../../../docs/guides/doctor.md");

    #[test]
    fn the_page_lists_every_verdict_in_the_same_words() {
        for verdict in ALL {
            let row = format!("| `{}` | {} |", verdict.name(), verdict.meaning());
            assert!(PAGE.contains(&row), "docs/guides/doctor.md lacks: {row}");
        }
    }

    #[test]
    fn a_symbol_has_one_meaning() {
        for (index, (name, _)) in SYMBOLS.iter().enumerate() {
            assert!(
                SYMBOLS[..index].iter().all(|(earlier, _)| earlier != name),
                "{name}"
            );
        }
        assert_eq!(symbol("L"), Some("mean time from a request to its answer"));
        assert_eq!(symbol("nothing"), None);
    }
}
