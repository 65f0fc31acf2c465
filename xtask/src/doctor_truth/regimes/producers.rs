//! Producers with a bottleneck.

use super::{
    ALL, Around, BOTH, Client, Figure, JAVA, JAVA_LIBRDKAFKA, KAFKA, NOT_PUSHED, OTTLA, Pairs, Regime,
    Remedy, Way,
};

/// The rate of a client across a round trip, batches full.
const REQUEST_RATE: &[&str] = &["NETWORK_RTT", "SENDER_RATE"];
const JAVA_OTTLA: &[Client] = &[Client::Java, Client::Ottla];

fn producer(
    name: &'static str,
    construction: &'static str,
    way: Way,
    set: Pairs,
    truth: &'static [&'static str],
) -> Regime {
    Regime {
        name,
        construction,
        way,
        around: Around::Nothing,
        partitions: 1,
        set,
        feed: None,
        truth,
        unknowable: &[],
        remedy: None,
        figure: Figure::Rate,
        clients: JAVA,
        brokers: BOTH,
        is_starting: false,
    }
}

impl Regime {
    fn clients(self, clients: &'static [Client]) -> Regime {
        Regime { clients, ..self }
    }

    fn partitions(self, partitions: i32) -> Regime {
        Regime { partitions, ..self }
    }

    fn around(self, around: Around) -> Regime {
        Regime { around, ..self }
    }

    fn remedy(self, set: Pairs) -> Regime {
        let remedy = Some(Remedy {
            set,
            names: &[],
            lifts: false,
        });
        Regime { remedy, ..self }
    }

    fn not_pushed(self) -> Regime {
        Regime {
            unknowable: NOT_PUSHED,
            ..self
        }
    }

    /// The remedy is that what is around the client ends.
    fn lifted(self, names: &'static [&'static str]) -> Regime {
        let remedy = Some(Remedy {
            set: &[],
            names,
            lifts: true,
        });
        Regime { remedy, ..self }
    }
}

pub fn all() -> Vec<Regime> {
    let mut all = batches();
    all.extend(network());
    all.extend(threads());
    all.extend(limits());
    all
}

fn batches() -> Vec<Regime> {
    let larger = |regime: Regime| regime.remedy(&[("batch.size", "131072")]);
    vec![
        larger(producer(
            "batch-4096",
            "batch.size=4096, five requests in flight, 2,000 records/s of 1,000 bytes across 40 ms",
            Way::Far,
            &[
                ("batch.size", "4096"),
                // librdkafka's default has no limit.
                ("max.in.flight.requests.per.connection", "5"),
                ("load.rate", "2000"),
                ("load.record.bytes", "1000"),
            ],
            REQUEST_RATE,
        ))
        .clients(ALL),
        larger(producer(
            "batch-4000",
            "batch.size=4000, 2,000 records/s of 500 bytes across 40 ms",
            Way::Far,
            &[
                ("batch.size", "4000"),
                ("load.rate", "2000"),
                ("load.record.bytes", "500"),
            ],
            REQUEST_RATE,
        )),
        larger(producer(
            "batch-8192",
            "batch.size=8192, 3,000 records/s of 700 bytes across 40 ms",
            Way::Far,
            &[
                ("batch.size", "8192"),
                ("load.rate", "3000"),
                ("load.record.bytes", "700"),
            ],
            REQUEST_RATE,
        ))
        .clients(JAVA_OTTLA),
        larger(producer(
            "batch-20000",
            "batch.size=20000, 6,000 records/s of 1,000 bytes across 40 ms",
            Way::Far,
            &[
                ("batch.size", "20000"),
                ("load.rate", "6000"),
                ("load.record.bytes", "1000"),
            ],
            REQUEST_RATE,
        )),
        larger(producer(
            "batch-16384",
            "the default batch.size, 6,000 records/s of 1,000 bytes across 40 ms",
            Way::Far,
            &[("load.rate", "6000"), ("load.record.bytes", "1000")],
            REQUEST_RATE,
        )),
        larger(producer(
            "batch-4096-silent",
            "batch.size=4096 across 40 ms, and the client pushes nothing",
            Way::Far,
            &[
                ("batch.size", "4096"),
                ("load.rate", "2000"),
                ("load.record.bytes", "1000"),
                ("enable.metrics.push", "false"),
            ],
            REQUEST_RATE,
        ))
        .not_pushed(),
        larger(producer(
            "hot-key",
            "nine of ten records on one key of six partitions, batch.size=4096, across 40 ms",
            Way::Far,
            &[
                ("batch.size", "4096"),
                ("load.rate", "2000"),
                ("load.record.bytes", "1000"),
                ("load.keys", "hot"),
            ],
            &["SKEW"],
        ))
        .partitions(6),
        producer(
            "hot-partition",
            "the application chooses one of six partitions for nine of ten records, batch.size=4096, across 40 ms",
            Way::Far,
            &[
                ("batch.size", "4096"),
                ("load.rate", "2000"),
                ("load.record.bytes", "1000"),
                ("load.partitioner", "hot"),
            ],
            &["SKEW"],
        )
        .remedy(&[("load.partitioner", "turn")])
        .partitions(6),
        producer(
            "large-partition",
            "as many records to each of six partitions, those to one 20 times as large, batch.size=4096 and a buffer of 1 MB across 40 ms",
            Way::Far,
            &[
                ("batch.size", "4096"),
                ("buffer.memory", "1000000"),
                ("load.rate", "1200"),
                ("load.record.bytes", "200"),
                ("load.large.bytes", "4000"),
                ("load.partitioner", "turn"),
            ],
            &["SKEW"],
        )
        .remedy(&[("load.partitioner", "even")])
        .partitions(6),
        Regime {
            brokers: OTTLA,
            ..larger(producer(
                "telemetry-off",
                "batch.size=4096, 2,000 records/s of 1,000 bytes across 40 ms, and the broker asks no client for metrics",
                Way::Far,
                &[
                    ("batch.size", "4096"),
                    ("load.rate", "2000"),
                    ("load.record.bytes", "1000"),
                ],
                REQUEST_RATE,
            ))
            .around(Around::NoMetrics)
        },
        larger(producer(
            "batch-1",
            "a batch for each record, 800 records/s of 300 bytes across 40 ms",
            Way::Far,
            &[
                ("batch.size", "0"),
                ("load.rate", "800"),
                ("load.record.bytes", "300"),
            ],
            REQUEST_RATE,
        )),
        larger(producer(
            "batch-600",
            "batch.size=600, linger.ms=50, 6,000 records/s of 280 bytes across 4 ms",
            Way::Near,
            &[
                ("batch.size", "600"),
                ("linger.ms", "50"),
                ("load.rate", "6000"),
                ("load.record.bytes", "280"),
            ],
            REQUEST_RATE,
        ))
        .clients(JAVA_OTTLA),
        larger(producer(
            "batch-2000-text",
            "batch.size=2000 with lz4, 2,500 records/s of 900 bytes of text across 40 ms",
            Way::Far,
            &[
                ("batch.size", "2000"),
                ("compression.type", "lz4"),
                ("load.rate", "2500"),
                ("load.record.bytes", "900"),
                ("load.values", "text"),
            ],
            REQUEST_RATE,
        )),
        larger(producer(
            "queue-full",
            "batch.size=4000, five requests in flight and a queue of 1,000 records across 40 ms",
            Way::Far,
            &[
                ("batch.size", "4000"),
                ("max.in.flight.requests.per.connection", "5"),
                ("load.rate", "2000"),
                ("load.record.bytes", "1000"),
                ("queue.buffering.max.messages", "1000"),
            ],
            REQUEST_RATE,
        ))
        .clients(&[Client::Librdkafka]),
    ]
}

fn network() -> Vec<Regime> {
    vec![
        producer(
            "request-40k",
            "max.request.size=40000, 12,000 records/s of 1,000 bytes with keys over twelve partitions across 40 ms",
            Way::Far,
            &[
                ("max.request.size", "40000"),
                ("load.rate", "12000"),
                ("load.record.bytes", "1000"),
                ("load.keys", "spread"),
            ],
            REQUEST_RATE,
        )
        .partitions(12)
        .remedy(&[("max.request.size", "1048576")]),
        producer(
            "small-buffer",
            "buffer.memory=65536, 4,000 records/s of 1,000 bytes across 40 ms",
            Way::Far,
            &[
                ("buffer.memory", "65536"),
                ("load.rate", "4000"),
                ("load.record.bytes", "1000"),
            ],
            &["SENDER_RATE"],
        )
        .remedy(&[("buffer.memory", "33554432")]),
        producer(
            "send-buffer-16k",
            "send.buffer.bytes=16384, requests of 64 KiB, 3,000 records/s of 1,000 bytes across 40 ms",
            Way::Far,
            &[
                ("send.buffer.bytes", "16384"),
                ("batch.size", "65536"),
                ("load.rate", "3000"),
                ("load.record.bytes", "1000"),
            ],
            &["NETWORK_WINDOW"],
        )
        .remedy(&[("send.buffer.bytes", "524288")])
        .clients(JAVA_LIBRDKAFKA),
        producer(
            "send-buffer-8k",
            "send.buffer.bytes=8192, requests of 128 KiB, 2,000 records/s of 1,000 bytes across 40 ms",
            Way::Far,
            &[
                ("send.buffer.bytes", "8192"),
                ("batch.size", "131072"),
                ("load.rate", "2000"),
                ("load.record.bytes", "1000"),
            ],
            &["NETWORK_WINDOW"],
        )
        .remedy(&[("send.buffer.bytes", "524288")]),
        producer(
            "in-flight-1",
            "one request in flight, default batches, 2,000 records/s of 1,000 bytes across 40 ms",
            Way::Far,
            &[
                ("max.in.flight.requests.per.connection", "1"),
                ("load.rate", "1500"),
                ("load.record.bytes", "1000"),
                ("batch.size", "16384"),
            ],
            REQUEST_RATE,
        )
        .not_pushed()
        .remedy(&[("max.in.flight.requests.per.connection", "5")])
        .clients(ALL),
        producer(
            "in-flight-1-silent",
            "one request in flight across 40 ms, and the client pushes nothing",
            Way::Far,
            &[
                ("max.in.flight.requests.per.connection", "1"),
                ("load.rate", "1500"),
                ("load.record.bytes", "1000"),
                ("enable.metrics.push", "false"),
            ],
            REQUEST_RATE,
        )
        .not_pushed()
        .remedy(&[("max.in.flight.requests.per.connection", "5")]),
        producer(
            "narrow-link",
            "a link of 1 MB/s, 3,000 records/s of 1,000 bytes of text",
            Way::Narrow,
            &[
                ("load.rate", "2500"),
                ("load.record.bytes", "1000"),
                ("load.values", "text"),
                ("batch.size", "65536"),
            ],
            &["NETWORK_BANDWIDTH"],
        )
        .remedy(&[("compression.type", "lz4")]),
        producer(
            "narrow-noise",
            "a link of 1 MB/s, 2,500 records/s of 1,000 bytes that do not compress, zstd",
            Way::Narrow,
            &[
                ("compression.type", "zstd"),
                ("load.rate", "2500"),
                ("load.record.bytes", "1000"),
                ("batch.size", "65536"),
            ],
            &["NETWORK_BANDWIDTH"],
        )
        .lifted(&[]),
        producer(
            "in-flight-1-partitions",
            "one request in flight, 3,000 records/s of 2,000 bytes with keys over twelve partitions and batch.size=8192 across 40 ms",
            Way::Far,
            &[
                ("max.in.flight.requests.per.connection", "1"),
                ("batch.size", "8192"),
                ("load.rate", "3000"),
                ("load.record.bytes", "2000"),
                ("load.keys", "spread"),
            ],
            REQUEST_RATE,
        )
        .not_pushed()
        .partitions(12)
        .remedy(&[("max.in.flight.requests.per.connection", "5")])
        .clients(JAVA_OTTLA),
        // Ottla leaves the size of that buffer to the kernel.
        Regime {
            brokers: KAFKA,
            ..producer(
                "brokers-receive-buffer",
                "batch.size=65536, 8,000 records/s of 900 bytes of text across 40 ms: more than the broker's socket.receive.buffer.bytes",
                Way::Far,
                &[
                    ("batch.size", "65536"),
                    ("send.buffer.bytes", "1048576"),
                    ("load.rate", "8000"),
                    ("load.record.bytes", "900"),
                    ("load.values", "text"),
                ],
                &["NETWORK_WINDOW"],
            )
        }
        .remedy(&[("compression.type", "lz4")]),
        producer(
            "full-link",
            "batch.size=262144, 3,000 records/s of 5,000 bytes over a link of 10 MB/s across 4 ms",
            Way::Broad,
            &[
                ("batch.size", "262144"),
                ("load.rate", "3000"),
                ("load.record.bytes", "5000"),
            ],
            &["NETWORK_BANDWIDTH"],
        )
        .lifted(&[])
        .clients(JAVA_LIBRDKAFKA),
        producer(
            "full-link-far",
            "batch.size=131072, 2,000 records/s of 1,000 bytes over a link of 1 MB/s across 40 ms",
            Way::FarNarrow,
            &[
                ("batch.size", "131072"),
                ("load.rate", "2000"),
                ("load.record.bytes", "1000"),
            ],
            &["NETWORK_BANDWIDTH"],
        )
        .lifted(&[])
        .clients(JAVA_LIBRDKAFKA),
    ]
}

fn threads() -> Vec<Regime> {
    vec![
        producer(
            "callbacks-2ms",
            "each callback takes 2 ms, 1,000 records/s",
            Way::Loopback,
            &[
                ("load.callback.micros", "2000"),
                ("load.rate", "1000"),
                ("load.record.bytes", "500"),
            ],
            &["SENDER_THREAD"],
        )
        .not_pushed()
        .remedy(&[("load.callback.micros", "0")])
        .clients(JAVA_OTTLA),
        producer(
            "callbacks-5ms",
            "each callback takes 5 ms, 400 records/s across 4 ms",
            Way::Near,
            &[
                ("load.callback.micros", "5000"),
                ("load.rate", "400"),
                ("load.record.bytes", "2000"),
            ],
            &["SENDER_THREAD"],
        )
        .not_pushed()
        .remedy(&[("load.callback.micros", "0")]),
        producer(
            "zstd-19",
            "zstd at level 19, 20,000 records/s of 1,000 bytes of text",
            Way::Loopback,
            &[
                ("compression.type", "zstd"),
                ("compression.zstd.level", "19"),
                ("load.rate", "20000"),
                ("load.record.bytes", "1000"),
                ("load.values", "text"),
            ],
            &["SENDER_THREAD", "WORKER"],
        )
        .remedy(&[("compression.type", "lz4")]),
        producer(
            "synchronous",
            "every send waits for its result across 4 ms",
            Way::Near,
            &[
                ("load.synchronous", "true"),
                ("load.rate", "1000"),
                ("load.record.bytes", "500"),
            ],
            &["SYNCHRONOUS"],
        )
        .remedy(&[("load.synchronous", "false")])
        .clients(ALL),
        producer(
            "flush-10",
            "flush() after every 10 of 6,000 records/s across 4 ms",
            Way::Near,
            &[
                ("load.flush.records", "10"),
                ("load.rate", "6000"),
                ("load.record.bytes", "500"),
            ],
            &["SYNCHRONOUS"],
        )
        .remedy(&[("load.flush.records", "0")]),
        producer(
            "transaction-10",
            "a transaction of every 10 of 3,000 records/s across 4 ms",
            Way::Near,
            &[
                ("transactional.id", "transaction-10"),
                ("load.transaction.records", "10"),
                ("load.rate", "3000"),
                ("load.record.bytes", "500"),
            ],
            &["SYNCHRONOUS"],
        )
        .remedy(&[("load.transaction.records", "1000")]),
        producer(
            "transaction-far",
            "a transaction of every 200 of 4,000 records/s across 40 ms",
            Way::Far,
            &[
                ("transactional.id", "transaction-far"),
                ("load.transaction.records", "200"),
                ("load.rate", "4000"),
                ("load.record.bytes", "300"),
            ],
            &["SYNCHRONOUS"],
        )
        .remedy(&[("load.transaction.records", "4000")]),
        producer(
            "synchronous-threads",
            "three threads of which every send waits for its result, 3,000 records/s across 4 ms",
            Way::Near,
            &[
                ("load.synchronous", "true"),
                ("load.threads", "3"),
                ("load.rate", "3000"),
                ("load.record.bytes", "500"),
            ],
            &["SYNCHRONOUS"],
        )
        .remedy(&[("load.synchronous", "false")]),
        // librdkafka tells neither its linger nor the time in its queue: nothing tells this pace
        // from one of the application's own.
        producer(
            "synchronous-linger",
            "every send waits for its result, linger.ms=20, 400 records/s on loopback",
            Way::Loopback,
            &[
                ("load.synchronous", "true"),
                ("linger.ms", "20"),
                ("load.rate", "400"),
                ("load.record.bytes", "500"),
            ],
            &["SYNCHRONOUS"],
        )
        .remedy(&[("load.synchronous", "false")]),
        // Not on loopback: where hardly any of the pipe is used, a thread without time left looks
        // like one that is given no more.
        producer(
            "worker",
            "one sending thread works 0.9 ms for each of 1,500 records/s across 40 ms",
            Way::Far,
            &[
                ("load.work.micros", "900"),
                ("load.rate", "1500"),
                ("load.record.bytes", "500"),
            ],
            &["APPLICATION"],
        )
        .remedy(&[("load.threads", "2")]),
        producer(
            "busy-host",
            "processes that take all processors, 100,000 records/s of 500 bytes",
            Way::Loopback,
            &[("load.rate", "100000"), ("load.record.bytes", "500")],
            &["HOST"],
        )
        .around(Around::BusyHost)
        .lifted(&[]),
    ]
}

fn limits() -> Vec<Regime> {
    let rate: Pairs = &[("load.rate", "2000"), ("load.record.bytes", "1000")];
    vec![
        producer(
            "byte-quota",
            "producer_byte_rate of 500 kB/s, 2 MB/s offered",
            Way::Loopback,
            rate,
            &["QUOTA"],
        )
        .around(Around::Quota("producer_byte_rate", 500_000.0))
        .lifted(&["producer_byte_rate"])
        .clients(ALL),
        producer(
            "request-quota",
            "request_percentage of 1, 50,000 small records/s in small batches",
            Way::Loopback,
            &[
                ("load.rate", "50000"),
                ("load.record.bytes", "100"),
                ("batch.size", "1000"),
                ("linger.ms", "0"),
            ],
            &["QUOTA"],
        )
        .around(Around::Quota("request_percentage", 1.0))
        .lifted(&["request_percentage"]),
        producer(
            "byte-quota-far",
            "producer_byte_rate of 200 kB/s across 40 ms",
            Way::Far,
            rate,
            &["QUOTA"],
        )
        .around(Around::Quota("producer_byte_rate", 200_000.0))
        .lifted(&["producer_byte_rate"]),
        Regime {
            brokers: OTTLA,
            ..producer(
                "denied",
                "ACLs of the topic let another principal write to it, 200 records/s",
                Way::Loopback,
                &[("load.rate", "200"), ("load.record.bytes", "500")],
                &["DENIED"],
            )
        }
        .around(Around::Denied)
        .lifted(&[])
        .clients(JAVA_LIBRDKAFKA),
        producer(
            "unknown-topic",
            "100 records/s to a topic that does not exist, and max.block.ms=2000",
            Way::Loopback,
            &[
                ("load.topic", "does-not-exist"),
                ("max.block.ms", "2000"),
                ("load.rate", "100"),
                ("load.record.bytes", "500"),
            ],
            &["FAILING"],
        )
        .remedy(&[("load.topic", "")]),
        producer(
            "too-large",
            "20 records/s of 1,200,000 bytes, max.request.size=4000000: more than the topic takes",
            Way::Loopback,
            &[
                ("max.request.size", "4000000"),
                ("load.rate", "20"),
                ("load.record.bytes", "1200000"),
            ],
            &["FAILING"],
        )
        .remedy(&[("load.record.bytes", "900000")]),
        // Beside Apache Kafka there is nothing to know it by: it is gone before it is answered.
        Regime {
            brokers: OTTLA,
            ..producer(
                "request-timeout-30",
                "request.timeout.ms=30 and delivery.timeout.ms=2000 across 40 ms, 200 records/s",
                Way::Far,
                &[
                    ("request.timeout.ms", "30"),
                    ("delivery.timeout.ms", "2000"),
                    ("load.rate", "200"),
                    ("load.record.bytes", "500"),
                ],
                &["FAILING"],
            )
        }
        .remedy(&[("request.timeout.ms", "1500")]),
    ]
}
