//! Which cases exist, and which client can run which: a case that does not report is a failure.

use super::clients::Client;

/// One row of the table.
pub struct Case {
    pub name: &'static str,
    /// The clients that offer this; an absent one is shown as `-` and listed with `why_not`.
    pub clients: &'static [Client],
    pub why_not: &'static str,
}

const ALL: &[Client] = &[Client::Java, Client::Librdkafka, Client::FranzGo];
const JAVA_GO: &[Client] = &[Client::Java, Client::FranzGo];

const fn all(name: &'static str) -> Case {
    Case {
        name,
        clients: ALL,
        why_not: "",
    }
}

const fn java_go(name: &'static str, why_not: &'static str) -> Case {
    Case {
        name,
        clients: JAVA_GO,
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
    java_go("describe log dirs", "librdkafka has no DescribeLogDirs"),
    java_go("describe producers", "librdkafka has no DescribeProducers"),
    all("group of two, RangeAssignor"),
    all("group of two, CooperativeStickyAssignor"),
    all("static membership"),
    all("commit and fetch offsets"),
    all("group administration"),
];
