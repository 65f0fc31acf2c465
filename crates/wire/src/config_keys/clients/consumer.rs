//! Keys that only consumers have.

use super::super::key::{Allowed, ClientKind, ConfigKey, boolean, class, int, list, string};

const CONSUMER: &[ClientKind] = &[ClientKind::Consumer];
const BYTES: &str = "records are bytes here; what reads them is the caller's";
const SHARE: &str = "only for share groups, which are not supported";

pub(super) const CONSUMER_KEYS: &[ConfigKey] = &[
    string("group.id", "", "The group that shares the partitions and keeps the offsets; not set: no group.").unset().of(CONSUMER),
    string(
        "group.instance.id",
        "",
        "A name that outlives this consumer, so that a restart within the session moves no partitions (KIP-345).",
    )
    .unset()
    .allowed(Allowed::NotEmpty)
    .of(CONSUMER),
    string("group.protocol", "classic", "Whether members (classic) or the broker (consumer, KIP-848) assign partitions.")
        .allowed(Allowed::OneOfIgnoringCase(&["CONSUMER", "CLASSIC"]))
        .of(CONSUMER),
    string("group.remote.assignor", "", "How the broker assigns partitions with group.protocol=consumer: uniform, range; not set: as the broker prefers.")
        .unset()
        .of(CONSUMER),
    list(
        "partition.assignment.strategy",
        "org.apache.kafka.clients.consumer.RangeAssignor,org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
        "How members assign partitions, in order of preference: Kafka's class names, or range, roundrobin, sticky, cooperative-sticky.",
    )
    .of(CONSUMER),
    int("session.timeout.ms", "45000", "After how long without a heartbeat the group goes on without this consumer.")
        .ms()
        .costs("higher: the partitions of a consumer that died stand still for longer")
        .of(CONSUMER),
    int("heartbeat.interval.ms", "3000", "How often this consumer says that it is alive; less than session.timeout.ms.")
        .ms()
        .of(CONSUMER),
    int("max.poll.interval.ms", "300000", "How long between two polls until this consumer leaves its group.")
        .ms()
        .at_least(1)
        .costs("higher: partitions of an application that hangs stand still for longer, and rebalances wait for it")
        .of(CONSUMER),
    int("max.poll.records", "500", "The most records that one poll returns; says nothing about what is fetched.")
        .at_least(1)
        .of(CONSUMER),
    boolean("enable.auto.commit", "true", "Whether positions are committed by themselves; false without a group.").of(CONSUMER),
    int("auto.commit.interval.ms", "5000", "How often positions are committed by themselves.")
        .ms()
        .at_least(0)
        .costs("higher: more records are seen twice after a crash")
        .of(CONSUMER),
    string("auto.offset.reset", "latest", "Where to start without a committed offset: earliest, latest, by_duration:PT1H, or none for an error.")
        .allowed(Allowed::OffsetReset)
        .of(CONSUMER),
    string("isolation.level", "read_uncommitted", "Whether records of open and aborted transactions are returned.")
        .one_of(&["read_committed", "read_uncommitted"])
        .costs("read_committed: records wait until their transaction, and every older one in the partition, has ended")
        .of(CONSUMER),
    int("fetch.min.bytes", "1", "How much must be there before the broker answers a fetch.")
        .bytes()
        .at_least(0)
        .costs("latency: up to fetch.max.wait.ms while less arrives")
        .of(CONSUMER),
    int("fetch.max.wait.ms", "500", "How long the broker may wait for fetch.min.bytes.").ms().at_least(0).of(CONSUMER),
    int("fetch.max.bytes", "52428800", "The most that one fetch brings, beyond its first batch.")
        .bytes()
        .at_least(0)
        .costs("memory: this for every broker that is fetched from")
        .of(CONSUMER),
    int("max.partition.fetch.bytes", "1048576", "The most that one fetch brings of one partition, beyond its first batch.")
        .bytes()
        .at_least(0)
        .of(CONSUMER),
    boolean("check.crcs", "true", "Whether the checksum of every batch is checked.").of(CONSUMER),
    boolean("exclude.internal.topics", "true", "Whether a pattern matches Kafka's own topics.").of(CONSUMER),
    boolean("allow.auto.create.topics", "true", "Whether the broker may create a topic because this consumer subscribes to it.")
        .of(CONSUMER),
    string("share.acknowledgement.mode", "implicit", "How records of a share group are acknowledged.")
        .allowed(Allowed::Either("implicit", "explicit"))
        .no_effect(SHARE)
        .of(CONSUMER),
    string("share.acquire.mode", "BATCH_OPTIMIZED", "How records of a share group are handed out.")
        .allowed(Allowed::Either("batch_optimized", "record_limit"))
        .no_effect(SHARE)
        .of(CONSUMER),
    class("key.deserializer", "", "What reads the bytes of keys.").required().no_effect(BYTES).of(CONSUMER),
    class("value.deserializer", "", "What reads the bytes of values.").required().no_effect(BYTES).of(CONSUMER),
];
