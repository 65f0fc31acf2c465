//! Clients with which nothing is wrong: any advice is a false alarm.

use super::{ALL, Around, BOTH, Feed, Figure, JAVA, JAVA_LIBRDKAFKA, NOT_PUSHED, Pairs, Regime, Way};

const FINE: &[&str] = &["KEEPS_UP", "APPLICATION"];

fn healthy(
    name: &'static str,
    construction: &'static str,
    way: Way,
    partitions: i32,
    set: Pairs,
    feed: Option<Feed>,
) -> Regime {
    Regime {
        name,
        construction,
        way,
        around: Around::Nothing,
        partitions,
        set,
        feed,
        truth: FINE,
        unknowable: &[],
        remedy: None,
        figure: Figure::Latency,
        clients: ALL,
        brokers: BOTH,
        is_starting: false,
    }
}

fn feed(records_per_second: u32, record_bytes: usize) -> Option<Feed> {
    Some(Feed {
        records_per_second,
        record_bytes,
        is_skewed: false,
        stored: 0,
        is_held: false,
    })
}

/// One broker acknowledges `all` as soon as `1`.
fn acks(name: &'static str, construction: &'static str, set: Pairs) -> Regime {
    Regime {
        clients: JAVA_LIBRDKAFKA,
        ..healthy(name, construction, Way::Near, 3, set, None)
    }
}

/// A long linger that the application has chosen: batches wait, and nothing gathers.
fn linger(name: &'static str, construction: &'static str, set: Pairs) -> Regime {
    healthy(name, construction, Way::Loopback, 3, set, None)
}

/// Too little is known of it, so that no judgement is right too.
fn starting(regime: Regime) -> Regime {
    Regime {
        is_starting: true,
        truth: &["NOT_ENOUGH_DATA", "KEEPS_UP", "APPLICATION"],
        ..regime
    }
}

pub fn all() -> Vec<Regime> {
    let small: Pairs = &[("load.rate", "150"), ("load.record.bytes", "200")];
    vec![
        healthy(
            "healthy-small",
            "150 records/s with default settings",
            Way::Loopback,
            3,
            small,
            None,
        ),
        healthy(
            "healthy-near",
            "150 records/s with default settings across 4 ms",
            Way::Near,
            3,
            small,
            None,
        ),
        healthy(
            "healthy-far",
            "150 records/s with default settings across 40 ms",
            Way::Far,
            3,
            small,
            None,
        ),
        Regime {
            clients: JAVA,
            ..healthy(
                "healthy-large",
                "20,000 records/s of 500 bytes with default settings",
                Way::Loopback,
                6,
                &[("load.rate", "20000"), ("load.record.bytes", "500")],
                None,
            )
        },
        Regime {
            clients: JAVA,
            ..healthy(
                "healthy-partitions",
                "1,000 keyed records/s over 60 partitions",
                Way::Near,
                60,
                &[
                    ("load.rate", "1000"),
                    ("load.record.bytes", "200"),
                    ("load.keys", "spread"),
                ],
                None,
            )
        },
        acks(
            "acks-all",
            "acks=all, 2,000 records/s of 500 bytes across 4 ms",
            &[
                ("acks", "all"),
                ("load.rate", "2000"),
                ("load.record.bytes", "500"),
            ],
        ),
        acks(
            "acks-1",
            "acks=1, 2,000 records/s of 500 bytes across 4 ms",
            &[("acks", "1"), ("load.rate", "2000"), ("load.record.bytes", "500")],
        ),
        linger(
            "linger-200",
            "linger.ms=200, 150 records/s of 200 bytes",
            &[
                ("linger.ms", "200"),
                ("load.rate", "150"),
                ("load.record.bytes", "200"),
            ],
        ),
        linger(
            "linger-1500",
            "linger.ms=1500, 100 records/s of 100 bytes",
            &[
                ("linger.ms", "1500"),
                ("load.rate", "100"),
                ("load.record.bytes", "100"),
            ],
        ),
        Regime {
            clients: JAVA_LIBRDKAFKA,
            ..healthy(
                "acks-0",
                "acks=0, 1,000 records/s of 500 bytes across 40 ms",
                Way::Far,
                3,
                &[("acks", "0"), ("load.rate", "1000"), ("load.record.bytes", "500")],
                None,
            )
        },
        Regime {
            clients: JAVA,
            unknowable: NOT_PUSHED,
            ..healthy(
                "healthy-in-flight-1",
                "one request in flight, 300 records/s of 500 bytes across 40 ms",
                Way::Far,
                3,
                &[
                    ("max.in.flight.requests.per.connection", "1"),
                    ("load.rate", "300"),
                    ("load.record.bytes", "500"),
                ],
                None,
            )
        },
        Regime {
            clients: JAVA,
            ..healthy(
                "healthy-synchronous",
                "ten records/s, of which every send waits for its result, across 4 ms",
                Way::Near,
                1,
                &[
                    ("load.synchronous", "true"),
                    ("load.rate", "10"),
                    ("load.record.bytes", "500"),
                ],
                None,
            )
        },
        Regime {
            clients: JAVA,
            ..healthy(
                "healthy-transactions",
                "a transaction of every 500 of 500 records/s across 4 ms",
                Way::Near,
                3,
                &[
                    ("transactional.id", "healthy-transactions"),
                    ("load.transaction.records", "500"),
                    ("load.rate", "500"),
                    ("load.record.bytes", "300"),
                ],
                None,
            )
        },
        Regime {
            clients: JAVA,
            ..healthy(
                "healthy-processing",
                "two consumers take 2 ms for each of 300 records/s in four partitions",
                Way::Loopback,
                4,
                &[("load.processing.micros", "2000"), ("load.members", "2")],
                feed(300, 200),
            )
        },
        Regime {
            clients: JAVA,
            ..healthy(
                "healthy-committed",
                "reads 100 records/s with isolation.level=read_committed and a commit after each across 4 ms",
                Way::Near,
                3,
                &[("isolation.level", "read_committed"), ("load.commit", "record")],
                feed(100, 200),
            )
        },
        healthy(
            "healthy-consumer",
            "reads 1,000 records/s",
            Way::Loopback,
            3,
            &[],
            feed(1_000, 200),
        ),
        healthy(
            "healthy-consumer-far",
            "reads 500 records/s across 40 ms",
            Way::Far,
            3,
            &[],
            feed(500, 200),
        ),
        healthy(
            "idle-consumer",
            "reads one record per second",
            Way::Near,
            3,
            &[],
            feed(1, 100),
        ),
        starting(healthy(
            "starting-producer",
            "150 records/s with default settings, begun three seconds ago",
            Way::Loopback,
            3,
            small,
            None,
        )),
        starting(healthy(
            "starting-consumer",
            "reads 1,000 records/s, begun three seconds ago",
            Way::Loopback,
            3,
            &[],
            feed(1_000, 200),
        )),
    ]
}
