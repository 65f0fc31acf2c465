//! The cases, and the clients that can run each: a case that does not report is a failure.

use super::clients::{CLIENTS, Client};

/// One row of the table.
pub struct Case {
    pub name: &'static str,
    /// The clients that support this; others are shown as `-` and listed with `why_not`.
    pub clients: &'static [Client],
    pub why_not: &'static str,
}

const ALL: &[Client] = &CLIENTS;
const JAVA_GO: &[Client] = &[Client::Java, Client::FranzGo];
const NOT_LIBRDKAFKA: &[Client] = &[Client::Java, Client::FranzGo, Client::Ottla];
const OURS: &[Client] = &[Client::Ottla];

const fn all(name: &'static str) -> Case {
    Case {
        name,
        clients: ALL,
        why_not: "",
    }
}

const fn some(name: &'static str, clients: &'static [Client], why_not: &'static str) -> Case {
    Case {
        name,
        clients,
        why_not,
    }
}

pub const CODECS: [&str; 5] = ["none", "gzip", "snappy", "lz4", "zstd"];

pub const CASES: &[Case] = &[
    all("acks 0, 1 and all"),
    all("idempotent producer"),
    all("offsets by time"),
    all("list offsets"),
    all("read committed"),
    all("many partitions"),
    all("small fetch limits"),
    all("long poll"),
    all("record too large"),
    all("unknown topic"),
    all("auto-creation"),
    all("log append time"),
    all("delete and recreate under load"),
    all("describe cluster"),
    all("create and delete topics"),
    all("create partitions"),
    all("delete records"),
    all("topic configs"),
    all("broker configs"),
    some(
        "describe log dirs",
        NOT_LIBRDKAFKA,
        "librdkafka has no DescribeLogDirs",
    ),
    some(
        "describe producers",
        JAVA_GO,
        "librdkafka and ottla have no DescribeProducers",
    ),
    all("group of two, RangeAssignor"),
    all("group of two, CooperativeStickyAssignor"),
    all("static membership"),
    all("commit and fetch offsets"),
    all("group administration"),
    some("seek, pause and resume", OURS, "asked of our client only"),
];
