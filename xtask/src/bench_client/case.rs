//! The cases: each is one row of conditions under which all contenders run.

use super::contender::Contender;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Content {
    Json,
    Random,
}

impl Content {
    pub fn name(self) -> &'static str {
        match self {
            Content::Json => "json",
            Content::Random => "random",
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Settings {
    /// Each client with its defaults.
    Defaults,
    /// The same batch, linger and buffer for all.
    Equal { batch_bytes: u64, linger_ms: u64 },
}

/// 32 MiB: Java's default `buffer.memory`, and that of all clients in cases with equal settings.
pub const BUFFER_BYTES: u64 = 32 * 1024 * 1024;

#[derive(Clone, Debug)]
pub struct Produce {
    pub bytes: usize,
    pub content: Content,
    pub compression: &'static str,
    pub threads: u64,
    /// Whether all threads send to one partition; else each has its own.
    pub is_shared: bool,
    pub settings: Settings,
    pub records: u64,
    pub warmup: u64,
    /// Scheduled rate in records per second; 0: as fast as acknowledgements allow.
    pub rate: u64,
    /// Additional records whose callback sleeps, beside the measured ones.
    pub slow: Option<Slow>,
    pub answers: Answers,
    /// The broker is stopped for this long, shortly after the beginning.
    pub stall_ms: u64,
}

/// How the application learns a record's result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answers {
    /// As the client's own examples do it.
    Usual,
    /// A closure for each record.
    Callbacks,
    /// One function for all records of the producer.
    Handler,
    /// A future for each record, awaited in the order of the records.
    Futures,
}

impl Answers {
    pub fn name(self) -> &'static str {
        match self {
            Answers::Usual => "usual",
            Answers::Callbacks => "callbacks",
            Answers::Handler => "handler",
            Answers::Futures => "futures",
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Slow {
    pub rate: u64,
    pub sleep_ms: u64,
}

#[derive(Clone, Debug)]
pub struct Consume {
    pub bytes: usize,
    pub compression: &'static str,
    pub partitions: u64,
    pub records: u64,
    pub passes: u64,
}

#[derive(Clone, Debug)]
pub enum Kind {
    Produce(Produce),
    Consume(Consume),
}

#[derive(Clone, Debug)]
pub struct Case {
    pub key: String,
    pub title: String,
    pub kind: Kind,
    /// Whether it also runs without `--full`.
    pub is_core: bool,
    pub contenders: Vec<Contender>,
}

/// Numbers of records and seconds; `--quick` only checks that the harness works and is not
/// evidence.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// In thousandths of the full number of records.
    pub permille: u64,
    pub paced_seconds: u64,
    pub paced_warmup_seconds: u64,
}

const KIB: u64 = 1024;
const LARGE: Settings = Settings::Equal {
    batch_bytes: 128 * KIB,
    linger_ms: 5,
};
const SMALL: Settings = Settings::Equal {
    batch_bytes: 16 * KIB,
    linger_ms: 5,
};
const HUGE: Settings = Settings::Equal {
    batch_bytes: 1024 * KIB,
    linger_ms: 5,
};

pub fn all(scale: Scale) -> Vec<Case> {
    let mut cases = Vec::new();
    sizes(&mut cases, scale);
    threads(&mut cases, scale);
    answers(&mut cases, scale);
    special(&mut cases, scale);
    consumers(&mut cases, scale);
    cases
}

fn base(scale: Scale, bytes: usize, compression: &'static str, settings: Settings) -> Produce {
    // About one second at the rates seen so far, for every size and codec.
    let records = match (bytes, compression) {
        (..=100, "none") => 2_000_000,
        (..=100, _) => 1_200_000,
        (..=256, "none") => 1_200_000,
        (..=256, _) => 600_000,
        (_, "none") => 500_000,
        _ => 200_000,
    };
    Produce {
        bytes,
        content: Content::Json,
        compression,
        threads: 1,
        is_shared: true,
        settings,
        records: records * scale.permille / 1000,
        warmup: records * scale.permille / 1000,
        rate: 0,
        slow: None,
        answers: Answers::Usual,
        stall_ms: 0,
    }
}

fn push(cases: &mut Vec<Case>, key: String, title: String, produce: Produce, is_core: bool) {
    cases.push(Case {
        key,
        title,
        kind: Kind::Produce(produce),
        is_core,
        contenders: Contender::ALL.to_vec(),
    });
}

fn name(settings: Settings) -> (&'static str, String) {
    match settings {
        Settings::Defaults => ("defaults", "each client's defaults".to_string()),
        Settings::Equal { batch_bytes, .. } if batch_bytes == 16 * KIB => {
            ("16k", "batches of 16 KiB".to_string())
        }
        Settings::Equal { batch_bytes, .. } if batch_bytes == 128 * KIB => {
            ("128k", "batches of 128 KiB".to_string())
        }
        Settings::Equal { .. } => ("1m", "batches of 1 MiB".to_string()),
    }
}

/// One thread, one partition.
fn sizes(cases: &mut Vec<Case>, scale: Scale) {
    for compression in ["none", "lz4"] {
        for bytes in [256, 100, 1024] {
            for settings in [LARGE, SMALL, HUGE, Settings::Defaults] {
                let (short, long) = name(settings);
                push(
                    cases,
                    format!("{bytes}-{compression}-{short}"),
                    format!("{bytes} B, {compression}, {long}"),
                    base(scale, bytes, compression, settings),
                    settings == LARGE || (bytes == 256 && settings != HUGE),
                );
            }
        }
        let random = Produce {
            content: Content::Random,
            ..base(scale, 256, compression, LARGE)
        };
        push(
            cases,
            format!("256-{compression}-random"),
            format!("256 B of random bytes, {compression}, batches of 128 KiB"),
            random,
            compression == "lz4",
        );
    }
}

/// Several threads on one producer; the case with one thread is among the sizes.
fn threads(cases: &mut Vec<Case>, scale: Scale) {
    for compression in ["none", "lz4"] {
        for (bytes, settings) in [(256, LARGE), (256, SMALL), (100, LARGE), (1024, LARGE)] {
            for threads in [2, 4] {
                for is_shared in [true, false] {
                    let (short, long) = name(settings);
                    let where_to = if is_shared { "shared" } else { "own" };
                    let produce = Produce {
                        threads,
                        is_shared,
                        ..base(scale, bytes, compression, settings)
                    };
                    push(
                        cases,
                        format!("{bytes}-{compression}-{short}-{threads}-{where_to}"),
                        format!(
                            "{bytes} B, {compression}, {long}, {threads} threads, {}",
                            if is_shared {
                                "one shared partition"
                            } else {
                                "a partition each"
                            }
                        ),
                        produce,
                        bytes == 256 && settings == LARGE && (compression == "none" || threads == 4),
                    );
                }
            }
        }
    }
}

/// A schedule, a callback that sleeps, a broker that is stopped.
fn special(cases: &mut Vec<Case>, scale: Scale) {
    let paced = Produce {
        rate: 20_000,
        records: 20_000 * scale.paced_seconds,
        warmup: 20_000 * scale.paced_warmup_seconds,
        ..base(
            scale,
            256,
            "none",
            Settings::Equal {
                batch_bytes: 16 * KIB,
                linger_ms: 0,
            },
        )
    };
    push(
        cases,
        "paced".to_string(),
        "20,000 records/s on a schedule, 256 B, linger 0".to_string(),
        paced,
        true,
    );
    for sleep_ms in [0, 1] {
        cases.push(Case {
            key: format!("callback-{sleep_ms}"),
            title: format!(
                "256 B, none, 128 KiB, beside 500 records/s whose callback {}",
                if sleep_ms == 0 {
                    "returns at once"
                } else {
                    "sleeps 1 ms"
                }
            ),
            kind: Kind::Produce(Produce {
                slow: Some(Slow { rate: 500, sleep_ms }),
                records: 2_000_000 * scale.permille / 1000,
                ..base(scale, 256, "none", LARGE)
            }),
            is_core: true,
            contenders: with_callbacks(),
        });
    }
    push(
        cases,
        "stalled-broker".to_string(),
        "256 B, none, 16 KiB, buffer 32 MiB, own partitions of 4 threads, the broker is stopped for 2 s"
            .to_string(),
        Produce {
            threads: 4,
            is_shared: false,
            stall_ms: 2_000,
            ..base(scale, 256, "none", SMALL)
        },
        true,
    );
}

/// The ways to learn a record's result: like is compared with like.
fn answers(cases: &mut Vec<Case>, scale: Scale) {
    for (answers, what, contenders) in [
        (Answers::Callbacks, "a closure for each record", with_callbacks()),
        (
            Answers::Handler,
            "one handler for all records",
            vec![Contender::Ottla, Contender::Librdkafka, Contender::FranzGo],
        ),
        (
            Answers::Futures,
            "a future for each record",
            vec![
                Contender::Ottla,
                Contender::Librdkafka,
                Contender::FranzGo,
                Contender::Krafka,
            ],
        ),
    ] {
        cases.push(Case {
            key: format!("256-none-128k-{}", answers.name()),
            title: format!("256 B, none, batches of 128 KiB, {what}"),
            kind: Kind::Produce(Produce {
                answers,
                ..base(scale, 256, "none", LARGE)
            }),
            is_core: true,
            contenders,
        });
    }
}

/// The clients with callbacks. krafka has none: there the application's own task would sleep.
fn with_callbacks() -> Vec<Contender> {
    let has = |contender: &Contender| *contender != Contender::Krafka;
    Contender::ALL.into_iter().filter(has).collect()
}

fn consumers(cases: &mut Vec<Case>, scale: Scale) {
    for compression in ["none", "lz4"] {
        cases.push(Case {
            key: format!("consume-{compression}"),
            title: format!("consume 256 B, {compression}, 4 partitions, from the page cache"),
            kind: Kind::Consume(Consume {
                bytes: 256,
                compression,
                partitions: 4,
                records: 2_000_000 * scale.permille / 1000,
                passes: 2,
            }),
            is_core: true,
            contenders: Contender::ALL.to_vec(),
        });
    }
}
