//! Keys that only producers have.

use super::super::key::{Allowed, ClientKind, ConfigKey, Unit, boolean, class, int, long, string};

const PRODUCER: &[ClientKind] = &[ClientKind::Producer];
const BYTES: &str = "records are bytes here; what makes them is the caller's";

pub(super) const PRODUCER_KEYS: &[ConfigKey] = &[
    string("acks", "all", "Which replicas must have a batch before it counts as sent: all in sync, the leader, or none.")
        .one_of(&["all", "-1", "0", "1"])
        .costs("anything but all loses records when a leader fails, and switches idempotence off")
        .of(PRODUCER),
    boolean("enable.idempotence", "true", "Whether retries neither repeat nor reorder records.").of(PRODUCER),
    int("batch.size", "16384", "At what size a batch is closed and waits no longer.")
        .bytes()
        .at_least(0)
        .costs("memory: this for every partition written to; lower: more requests for the same records")
        .of(PRODUCER),
    long("linger.ms", "5", "How long a batch that is not full waits for more records.")
        .ms()
        .at_least(0)
        .costs("latency: up to this for every record, unless its batch fills up first")
        .of(PRODUCER),
    long("buffer.memory", "33554432", "How much memory records that are not sent may take; then send waits.")
        .bytes()
        .at_least(0)
        .costs("memory, when the brokers are slower than the application: up to this")
        .of(PRODUCER),
    long("max.block.ms", "60000", "How long a send may wait for metadata or memory.").ms().at_least(0).of(PRODUCER),
    int("max.request.size", "1048576", "The largest request, and the largest record before compression.")
        .bytes()
        .at_least(0)
        .of(PRODUCER),
    int("delivery.timeout.ms", "120000", "How long after its send a record is either stored or reported as failed.")
        .ms()
        .at_least(0)
        .of(PRODUCER),
    int("retries", "2147483647", "How often a batch is tried again before delivery.timeout.ms ends it.")
        .between(0, 2_147_483_647)
        .of(PRODUCER),
    int(
        "max.in.flight.requests.per.connection",
        "5",
        "How many requests a broker may have unanswered; idempotent producers at most 5.",
    )
    .at_least(1)
    .costs("more than 1 without idempotence: a retry can change the order of records")
    .of(PRODUCER),
    string("compression.type", "none", "The codec of batches.")
        .one_of(&["none", "gzip", "snappy", "lz4", "zstd"])
        .costs("processor time here and in every consumer, for less network and disk")
        .of(PRODUCER),
    int("compression.gzip.level", "-1", "How hard gzip tries; -1 is its usual level, 6.")
        .allowed(Allowed::BetweenOrMinusOne(1, 9))
        .of(PRODUCER),
    int("compression.lz4.level", "9", "How hard lz4 tries.")
        .between(1, 17)
        .no_effect("the lz4 encoder has only the fast mode")
        .of(PRODUCER),
    int("compression.zstd.level", "3", "How hard zstd tries.").between(-131_072, 22).of(PRODUCER),
    class(
        "partitioner.class",
        "",
        "What chooses a partition: not set for Kafka's own way (KIP-794), or org.apache.kafka.clients.producer.RoundRobinPartitioner.",
    )
    .unset()
    .of(PRODUCER),
    boolean("partitioner.ignore.keys", "false", "Whether records with a key are spread like records without.").of(PRODUCER),
    boolean("partitioner.adaptive.partitioning.enable", "true", "Whether records without a key prefer partitions of faster brokers.")
        .of(PRODUCER),
    long(
        "partitioner.availability.timeout.ms",
        "0",
        "After how long with unsent batches a partition gets no more records without a key; 0: never.",
    )
    .ms()
    .at_least(0)
    .of(PRODUCER),
    string("transactional.id", "", "The name under which transactions outlive this producer.")
        .unset()
        .allowed(Allowed::NotEmpty)
        .of(PRODUCER),
    int("transaction.timeout.ms", "60000", "After how long the coordinator aborts a transaction; without transactional.id without effect.")
        .unit(Unit::Milliseconds)
        .costs("higher: readers with read_committed wait for longer behind a producer that died")
        .of(PRODUCER),
    boolean("transaction.two.phase.commit.enable", "false", "Whether transactions take part in an outer one.")
        .refused("transactions that are part of an outer one are not supported")
        .of(PRODUCER),
    class("key.serializer", "", "What makes bytes of keys.").required().no_effect(BYTES).of(PRODUCER),
    class("value.serializer", "", "What makes bytes of values.").required().no_effect(BYTES).of(PRODUCER),
];
