//! Consumers with a bottleneck.

use super::{
    ALL, Around, BOTH, Client, Feed, Figure, JAVA, JAVA_LIBRDKAFKA, OTTLA, Pairs, Regime, Remedy, Way,
};

/// Clients that take Java's fetch settings.
const NOT_OTTLA: &[Client] = &[Client::Java, Client::Librdkafka, Client::FranzGo];

fn consumer(
    name: &'static str,
    construction: &'static str,
    way: Way,
    (partitions, feed): (i32, Feed),
    set: Pairs,
    truth: &'static [&'static str],
) -> Regime {
    Regime {
        name,
        construction,
        way,
        around: Around::Nothing,
        partitions,
        set,
        feed: Some(feed),
        truth,
        unknowable: &[],
        remedy: None,
        figure: Figure::Rate,
        clients: JAVA,
        brokers: BOTH,
        is_starting: false,
    }
}

fn remedied(regime: Regime, set: Pairs, names: &'static [&'static str]) -> Regime {
    let remedy = Some(Remedy {
        set,
        names,
        lifts: set.is_empty(),
    });
    Regime { remedy, ..regime }
}

fn evenly(records_per_second: u32, record_bytes: usize) -> Feed {
    Feed {
        records_per_second,
        record_bytes,
        is_skewed: false,
        stored: 0,
        is_held: false,
    }
}

pub fn all() -> Vec<Regime> {
    let mut all = fetches();
    all.extend(work());
    all
}

fn fetches() -> Vec<Regime> {
    vec![
        Regime {
            clients: NOT_OTTLA,
            ..remedied(
                consumer(
                    "partition-fetch-16k",
                    "max.partition.fetch.bytes=16384, 2,000 records/s of 1,000 bytes in one partition across 40 ms",
                    Way::Far,
                    (1, evenly(2_000, 1_000)),
                    &[("max.partition.fetch.bytes", "16384")],
                    &["FETCH_SIZE"],
                ),
                &[("max.partition.fetch.bytes", "1048576")],
                &[],
            )
        },
        remedied(
            consumer(
                "partition-fetch-40k",
                "max.partition.fetch.bytes=40000, 6,000 records/s of 1,000 bytes in two partitions across 40 ms",
                Way::Far,
                (2, evenly(6_000, 1_000)),
                &[("max.partition.fetch.bytes", "40000")],
                &["FETCH_SIZE"],
            ),
            &[("max.partition.fetch.bytes", "1048576")],
            &[],
        ),
        remedied(
            consumer(
                "fetch-max-20k",
                "fetch.max.bytes=20000, 3,000 records/s of 1,000 bytes in four partitions across 40 ms",
                Way::Far,
                (4, evenly(3_000, 1_000)),
                &[("fetch.max.bytes", "20000")],
                &["FETCH_SIZE"],
            ),
            &[("fetch.max.bytes", "52428800")],
            &[],
        ),
        Regime {
            figure: Figure::Latency,
            clients: NOT_OTTLA,
            ..remedied(
                consumer(
                    "min-bytes-1m",
                    "fetch.min.bytes=1000000 and fetch.max.wait.ms=1500, 50 records/s of 100 bytes",
                    Way::Loopback,
                    (1, evenly(50, 100)),
                    &[("fetch.min.bytes", "1000000"), ("fetch.max.wait.ms", "1500")],
                    &["FETCH_WAIT"],
                ),
                &[("fetch.min.bytes", "1")],
                &[],
            )
        },
        Regime {
            clients: JAVA_LIBRDKAFKA,
            ..remedied(
                consumer(
                    "receive-buffer-16k",
                    "receive.buffer.bytes=16384, 3,000 records/s of 1,000 bytes in one partition across 40 ms",
                    Way::Far,
                    (1, evenly(3_000, 1_000)),
                    &[("receive.buffer.bytes", "16384")],
                    &["NETWORK_WINDOW"],
                ),
                &[("receive.buffer.bytes", "2097152")],
                &[],
            )
        },
        Regime {
            clients: JAVA_LIBRDKAFKA,
            ..remedied(
                consumer(
                    "receive-buffer-32k",
                    "receive.buffer.bytes=32768, 6,000 records/s of 1,000 bytes in two partitions across 40 ms",
                    Way::Far,
                    (2, evenly(6_000, 1_000)),
                    &[("receive.buffer.bytes", "32768")],
                    &["NETWORK_WINDOW"],
                ),
                &[("receive.buffer.bytes", "2097152")],
                &[],
            )
        },
        Regime {
            clients: JAVA_LIBRDKAFKA,
            ..remedied(
                consumer(
                    "receive-buffer-small",
                    "receive.buffer.bytes=32768, 9,000 records/s of 150 bytes in one partition across 40 ms: a fetch has records for many polls",
                    Way::Far,
                    (1, evenly(9_000, 150)),
                    &[("receive.buffer.bytes", "32768")],
                    &["NETWORK_WINDOW"],
                ),
                &[("receive.buffer.bytes", "2097152")],
                &[],
            )
        },
        Regime {
            figure: Figure::Latency,
            clients: NOT_OTTLA,
            ..remedied(
                consumer(
                    "min-bytes-far",
                    "fetch.min.bytes=200000, 100 records/s of 200 bytes in three partitions across 40 ms",
                    Way::Far,
                    (3, evenly(100, 200)),
                    &[("fetch.min.bytes", "200000"), ("fetch.max.wait.ms", "900")],
                    &["FETCH_WAIT"],
                ),
                &[("fetch.min.bytes", "1")],
                &[],
            )
        },
        // A fetch is answered when so much is there, and the client waits less for it.
        Regime {
            figure: Figure::Latency,
            ..remedied(
                consumer(
                    "request-timeout-400",
                    "request.timeout.ms=400 and fetch.min.bytes=20000, 50 records/s of 100 bytes",
                    Way::Loopback,
                    (1, evenly(50, 100)),
                    &[("request.timeout.ms", "400"), ("fetch.min.bytes", "20000")],
                    &["FAILING", "FETCH_WAIT"],
                ),
                &[("request.timeout.ms", "30000")],
                &[],
            )
        },
        remedied(
            consumer(
                "narrow-fetch",
                "a link of 1 MB/s, 2,500 records/s of 1,000 bytes",
                Way::Narrow,
                (2, evenly(2_500, 1_000)),
                &[],
                &["NETWORK_BANDWIDTH"],
            ),
            &[],
            &[],
        ),
        Regime {
            around: Around::ColdDisk(200_000),
            brokers: OTTLA,
            ..remedied(
                consumer(
                    "cold-read",
                    "reads 80,000 stored records of 2,000 bytes that are not in the page cache, from a disk of 0.2 MB/s",
                    Way::Loopback,
                    (
                        1,
                        Feed {
                            stored: 80_000,
                            ..evenly(1, 2_000)
                        },
                    ),
                    &[("load.processing.micros", "200")],
                    &["COLD_READ"],
                ),
                &[],
                &[],
            )
        },
        Regime {
            clients: JAVA_LIBRDKAFKA,
            brokers: OTTLA,
            ..remedied(
                consumer(
                    "open-transaction",
                    "isolation.level=read_committed, 500 records/s in one partition behind a transaction that stays open",
                    Way::Loopback,
                    (
                        1,
                        Feed {
                            is_held: true,
                            ..evenly(500, 200)
                        },
                    ),
                    &[("isolation.level", "read_committed")],
                    &["TRANSACTION"],
                ),
                &[("isolation.level", "read_uncommitted")],
                &[],
            )
        },
        Regime {
            around: Around::Quota("consumer_byte_rate", 500_000.0),
            clients: ALL,
            ..remedied(
                consumer(
                    "fetch-quota",
                    "consumer_byte_rate of 500 kB/s, 2,000 records/s of 1,000 bytes",
                    Way::Loopback,
                    (2, evenly(2_000, 1_000)),
                    &[],
                    &["QUOTA"],
                ),
                &[],
                &["consumer_byte_rate"],
            )
        },
    ]
}

fn work() -> Vec<Regime> {
    let none: Pairs = &[("load.processing.micros", "0")];
    vec![
        Regime {
            clients: ALL,
            ..remedied(
                consumer(
                    "processing-4ms",
                    "4 ms for each of 400 records/s in six even partitions",
                    Way::Loopback,
                    (6, evenly(400, 500)),
                    &[("load.processing.micros", "4000")],
                    &["PROCESSING"],
                ),
                none,
                &["more consumers"],
            )
        },
        Regime {
            clients: JAVA_LIBRDKAFKA,
            ..remedied(
                consumer(
                    "commit-each",
                    "a synchronous commit after each of 200 records/s across 40 ms",
                    Way::Far,
                    (1, evenly(200, 500)),
                    &[("load.commit", "record")],
                    &["PROCESSING"],
                ),
                &[("load.commit", "none")],
                &[],
            )
        },
        Regime {
            clients: JAVA_LIBRDKAFKA,
            ..remedied(
                consumer(
                    "commit-each-near",
                    "a synchronous commit after each of 600 records/s in three partitions across 4 ms",
                    Way::Near,
                    (3, evenly(600, 300)),
                    &[("load.commit", "record")],
                    &["PROCESSING"],
                ),
                &[("load.commit", "none")],
                &[],
            )
        },
        remedied(
            consumer(
                "poll-1",
                "max.poll.records=1, 1.5 ms for each of 900 records/s in two partitions",
                Way::Loopback,
                (2, evenly(900, 200)),
                &[("max.poll.records", "1"), ("load.processing.micros", "1500")],
                &["PROCESSING"],
            ),
            none,
            &["more consumers"],
        ),
        remedied(
            consumer(
                "processing-two",
                "two consumers take 3 ms for each of 1,200 records/s in four even partitions",
                Way::Loopback,
                (4, evenly(1_200, 200)),
                &[("load.processing.micros", "3000"), ("load.members", "2")],
                &["PROCESSING"],
            ),
            none,
            &["more consumers"],
        ),
        remedied(
            consumer(
                "processing-1ms",
                "1 ms for each of 2,000 records/s in one partition",
                Way::Loopback,
                (1, evenly(2_000, 200)),
                &[("load.processing.micros", "1000")],
                &["PROCESSING"],
            ),
            none,
            &[],
        ),
        remedied(
            consumer(
                "processing-far",
                "2 ms for each of 1,000 records/s in three partitions across 40 ms",
                Way::Far,
                (3, evenly(1_000, 300)),
                &[("load.processing.micros", "2000")],
                &["PROCESSING"],
            ),
            none,
            &["more consumers"],
        ),
        // More consumers of the group gain nothing: the hot partition has one of its own already.
        remedied(
            consumer(
                "skewed",
                "two consumers take 1 ms for each of 1,500 records/s, nine of ten in one of six partitions",
                Way::Loopback,
                (
                    6,
                    Feed {
                        is_skewed: true,
                        ..evenly(1_500, 300)
                    },
                ),
                &[("load.processing.micros", "1000"), ("load.members", "2")],
                &["SKEW"],
            ),
            &[],
            &[],
        ),
        // Neither another consumer for the one partition nor work that is a third faster ends it.
        remedied(
            consumer(
                "poll-interval",
                "max.poll.interval.ms=6000, a poll of 500 records takes 10 s, and 40 records/s come after a backlog of 2,000: less than the 50/s that the work allows",
                Way::Loopback,
                (
                    1,
                    Feed {
                        stored: 2_000,
                        ..evenly(40, 200)
                    },
                ),
                &[
                    ("max.poll.interval.ms", "6000"),
                    ("session.timeout.ms", "6000"),
                    ("load.processing.micros", "20000"),
                ],
                &["REBALANCING"],
            ),
            &[("max.poll.records", "50")],
            &[],
        ),
    ]
}
