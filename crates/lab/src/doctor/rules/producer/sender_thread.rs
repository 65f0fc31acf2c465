//! producer 5: has the client's own sending thread time?
//!
//! **Asks** which of four things takes that thread, because each has its own lever: callbacks,
//! compressing and closing batches, reading and writing its sockets (encryption, many small
//! requests), or a machine without processors (`host`, asked before).
//!
//! | test | then |
//! |---|---|
//! | X_r × C ≥ 0.8, C measured by the client or its owner | callbacks (N1), whether or not records wait |
//! | records wait, the I/O thread waits < 10 % | the thread is busy |
//! | the pipe is full, i_oth ≥ 0.5 and i_wait < 0.10 | the same: answers are read late, so L is inflated |
//! | busy, more with its sockets (i_io) than with anything else | sockets: a second producer has a thread of its own |
//! | busy, batches compressed with zstd or gzip | compressing (W3); lz4 is the lever |
//! | busy, batches not compressed, or with lz4 or snappy | callbacks (N1) |
//!
//! Where the codec is not known and batches are compressed, nothing tells callbacks from the codec,
//! and the codec is asked for.
//!
//! **The promise**: behind a busy thread L is no measurement of the pipe, so nothing that follows
//! from L is a ceiling. Measured: callbacks of 2 ms confirmed 439 records/s; without them the same
//! connection carried all 1,000.

use crate::doctor::diagnosis::{Confidence, FindingId, Recommendation, Verdict};
use crate::doctor::snapshot::Codec;
use crate::doctor::used::UsedNumbers;
use crate::formulas::latency;

use super::super::found::Found;
use super::super::words::known;
use super::evidence::confidence;
use super::promise::{self, Kind};
use super::reading::{Bound, Reading, positive, reaches};
use super::sender_rate::second_producer;
use super::{COMPRESSION, Rule, refusals, rule};
use crate::model::ceilings::{Ceiling, lowest, next};
use crate::numbers::{number, percent};

pub(crate) const RULE: Rule = rule("producer 5", "Has the client's sending thread time?", ask);

const HALF: f64 = 0.5;
const BUSY: f64 = 0.1;

/// What takes the thread's time.
#[derive(Clone, Copy, PartialEq)]
enum Work {
    /// Callbacks whose time is measured, in microseconds each.
    Measured(f64),
    Callbacks,
    Compressing(Codec),
    /// Reading and writing its sockets, with this share of its time.
    Sockets(f64),
    /// Callbacks or compression: the codec is not known.
    Either,
}

fn ask(reading: &Reading<'_>) -> Found {
    let numbers = [
        known("i_wait", reading.io_wait, ""),
        known("i_io", reading.io, ""),
        known("i_oth", reading.io_other, ""),
        known("X_r × C", reading.callback_use(), ""),
    ];
    let is_late = reading.bound == Bound::Pipe
        && reading.io_other.is_some_and(|other| reaches(other, HALF))
        && reading.io_wait.is_some_and(|wait| wait < BUSY);
    if !(reading.has_slow_callbacks() || reading.bound == Bound::Thread || is_late) {
        return Found::nothing(numbers, "yes");
    }
    let work = work(reading);
    let text = sentence(reading, work);
    let found = Found::verdict(
        numbers,
        Verdict::SenderThread,
        confidence(reading, Verdict::SenderThread, work == Work::Either),
        text.clone(),
    );
    let found = match work {
        Work::Sockets(_) => found,
        _ => found.finding(finding(work), text),
    }
    .recommend(recommend(reading, work))
    .refusals(refusals::linger(reading))
    .refusals(refusals::of_memory(reading))
    .refusals(refusals::acks(reading, reading.hottest()));
    match work {
        Work::Either => found.missing(
            "what the callback of send() does, and compression.type: either can take the thread's time",
        ),
        _ => found,
    }
}

/// Of a client that pushes nothing because all of its requests are under way.
///
/// - `under_way`: requests between the client's socket and the broker's answer.
pub(crate) fn seen_by_broker(reading: &Reading<'_>, numbers: UsedNumbers, under_way: f64) -> Found {
    let work = work(reading);
    let text = format!(
        "All requests that may be in flight are, and {} of one is with the network and the broker: answers wait in the client for its \
         sending thread, which {} keeps busy.",
        percent(under_way),
        match work {
            Work::Compressing(codec) => format!("compressing with {}", name(codec)),
            _ => "a callback of send()".to_owned(),
        }
    );
    let id = finding(work);
    Found::verdict(numbers, Verdict::SenderThread, Confidence::Low, text.clone())
        .finding(id, text)
        .recommend(recommend(reading, work))
        .missing(
            "what the callback of send() does: nothing else that runs on that thread is seen by a broker",
        )
}

fn finding(work: Work) -> FindingId {
    match work {
        Work::Compressing(_) => FindingId::W3,
        _ => FindingId::N1,
    }
}

fn work(reading: &Reading<'_>) -> Work {
    if let Some(micros) = reading.callback_micros.filter(|_| reading.has_slow_callbacks()) {
        return Work::Measured(micros);
    }
    let most = reading.io.filter(|io| *io > reading.io_other.unwrap_or(1.0));
    if let Some(share) = most {
        return Work::Sockets(share);
    }
    let is_compressed = reading.compression_rate < 0.97;
    match reading.snapshot.settings.compression.map(|setting| setting.value) {
        Some(codec @ (Codec::Zstd | Codec::Gzip)) => Work::Compressing(codec),
        Some(_) => Work::Callbacks,
        None if is_compressed => Work::Either,
        None => Work::Callbacks,
    }
}

fn sentence(reading: &Reading<'_>, work: Work) -> String {
    let busy = percent(1.0 - reading.io_wait.unwrap_or(0.0));
    match work {
        Work::Measured(micros) => format!(
            "Callbacks take {} µs for each record, one after another: no more than {} records/s are confirmed.",
            number(micros),
            number(1e6 / micros)
        ),
        Work::Compressing(codec) => format!(
            "Compressing batches with {} keeps the client's sending thread {busy} busy: requests leave late.",
            name(codec)
        ),
        Work::Sockets(share) => format!(
            "The client's sending thread is {busy} busy, {} of the time with reading and writing its sockets: requests leave late.",
            percent(share)
        ),
        Work::Callbacks => format!(
            "The client's sending thread is {busy} busy with callbacks, so requests leave and answers are read late."
        ),
        Work::Either => format!(
            "The client's sending thread is {busy} busy with callbacks or with compressing batches: requests leave late."
        ),
    }
}

fn name(codec: Codec) -> &'static str {
    match codec {
        Codec::None => "none",
        Codec::Gzip => "gzip",
        Codec::Snappy => "snappy",
        Codec::Lz4 => "lz4",
        Codec::Zstd => "zstd",
    }
}

fn recommend(reading: &Reading<'_>, work: Work) -> Option<Recommendation> {
    if matches!(work, Work::Sockets(_)) {
        return second_producer(reading);
    }
    let now = positive(reading.records_per_second)?;
    // Slow callbacks hold back confirmations, not sending.
    let now = match work {
        Work::Measured(micros) => now.min(1e6 / micros),
        _ => now,
    };
    let kinds: &[Kind] = match work {
        // Java compresses in send(): another codec moves the ceiling of its threads, too.
        Work::Compressing(_) => &[Kind::Offered, Kind::Link],
        _ => &[Kind::Offered, Kind::Worker, Kind::Link],
    };
    let mut ceilings = promise::ceilings(reading, 1.0, kinds);
    if let Some(work) = positive(reading.io) {
        let records = now / work.max(0.01);
        ceilings.push(Ceiling {
            records_per_second: records,
            text: format!("the I/O thread's own work: {} records/s", number(records)),
        });
    }
    let high = lowest(&ceilings).map_or(now, |ceiling| ceiling.records_per_second.max(now));
    let mut promise = promise::records(now, (0.8 * high).max(now), high);
    if reading.offered.is_none() {
        promise.unknown = Some(
            "how much the application offers, and how long requests take without a busy thread".to_owned(),
        );
    }
    let (set, why, cost) = match work {
        Work::Compressing(codec) => (
            format!("{COMPRESSION}=lz4"),
            format!(
                "{} takes several times the processor time of lz4 for each byte, most of all at a high level (W3)",
                name(codec)
            ),
            "lz4 compresses less: more bytes on the link and on the disk",
        ),
        _ => {
            let micros = match work {
                Work::Measured(micros) => micros,
                _ => latency::callback_micros_max(reading.io_other.unwrap_or(1.0), now),
            };
            (
                "hand the callback's work over to another thread".to_owned(),
                format!(
                    "callbacks run one after another on one thread and take up to {} µs each (F7)",
                    number(micros)
                ),
                "the handed-over work needs a bounded queue of its own",
            )
        }
    };
    Some(Recommendation {
        set,
        why,
        promise,
        next_ceiling: next(&ceilings),
        cost: cost.to_owned(),
    })
}

/// The I/O thread neither waits nor works on sockets, and callbacks are cheap: it may be starved of
/// processor time.
pub(crate) fn is_short_of_cpu(reading: &Reading<'_>) -> bool {
    let (Some(other), Some(wait)) = (reading.io_other, reading.io_wait) else {
        return false;
    };
    let is_between = (0.3..=0.8).contains(&other) && (0.3..=0.6).contains(&wait);
    is_between && reading.callback_use().is_none_or(|used| used < 0.3)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::diagnosis::Finding;
    use crate::doctor::rules::examine;
    use crate::doctor::rules::producer::tests::rows::{ROW, Row};

    /// A thread without time: 261 records/s at zstd's level 19.
    const BUSY_THREAD: Row = Row {
        records: 261.0,
        requests: 20.0,
        request_bytes: 9_000.0,
        batch: 9_000.0,
        latency: 60.0,
        queue: Some(4_000.0),
        buffer_wait: Some(0.6),
        thread: Some((0.01, 0.01)),
        compression_rate: 0.6,
        ..ROW
    };

    fn of(codec: Option<Codec>) -> (Verdict, String) {
        let row = Row { codec, ..BUSY_THREAD };
        let diagnosis = examine(&row.snapshot());
        let set = diagnosis
            .recommendation
            .map_or(String::new(), |change| change.set);
        (diagnosis.verdict, set)
    }

    #[test]
    fn an_expensive_codec_and_callbacks_have_different_levers() {
        assert_eq!(
            of(Some(Codec::Zstd)),
            (Verdict::SenderThread, "compression.type=lz4".to_owned())
        );
        assert!(of(Some(Codec::None)).1.starts_with("hand the callback"));
        assert!(of(Some(Codec::Lz4)).1.starts_with("hand the callback"));
    }

    /// The cost of a record in send() held the compression that the change takes away, so a client
    /// of 168 records/s was told of 134 to 168.
    #[test]
    fn another_codec_promises_no_less_than_today() {
        let mut snapshot = Row {
            codec: Some(Codec::Zstd),
            ..BUSY_THREAD
        }
        .snapshot();
        snapshot.application.threads = Some(1.0);
        snapshot.application.send_micros = Some(10_000.0);
        let change = examine(&snapshot).recommendation.unwrap();
        assert_eq!(change.set, "compression.type=lz4");
        let promise = change.promise;
        assert!(promise.low >= 261.0 && promise.high > 1_000.0, "{promise:?}");
        assert!(promise.unknown.is_some());
    }

    #[test]
    fn behind_callbacks_the_pipe_is_no_ceiling() {
        let mut snapshot = Row {
            codec: Some(Codec::None),
            offered: 1_000.0,
            ..BUSY_THREAD
        }
        .snapshot();
        snapshot.application.callback_micros = Some(2_000.0);
        snapshot.producer.as_mut().unwrap().records_per_second = Some(439.0);
        let promise = examine(&snapshot).recommendation.unwrap().promise;
        assert_eq!((promise.low, promise.high), (800.0, 1_000.0));
    }

    /// Our own client runs callbacks on a thread of their own, so that nothing else waits.
    #[test]
    fn measured_callbacks_are_the_limit_although_no_record_waits() {
        let row = Row {
            records: 1_000.0,
            requests: 150.0,
            request_bytes: 3_700.0,
            batch: 3_600.0,
            records_per_request: 6.7,
            latency: 1.1,
            queue: Some(5.3),
            buffer_wait: Some(0.0),
            thread: Some((0.98, 0.01)),
            ..ROW
        };
        let mut snapshot = row.snapshot();
        snapshot.client.library = crate::doctor::snapshot::Library::Ottla;
        snapshot.application.callback_micros = Some(2_060.0);
        let diagnosis = examine(&snapshot);
        assert_eq!(diagnosis.verdict, Verdict::SenderThread, "{diagnosis:#?}");
        let change = diagnosis.recommendation.unwrap();
        assert!(change.set.starts_with("hand the callback"), "{change:?}");
        snapshot.application.callback_micros = Some(20.0);
        assert_eq!(examine(&snapshot).verdict, Verdict::KeepsUp);
    }
    #[test]
    fn a_thread_that_reads_and_writes_its_sockets_has_no_slow_callback() {
        let row = Row {
            thread: Some((0.03, 0.8)),
            ..BUSY_THREAD
        };
        for codec in [None, Some(Codec::None), Some(Codec::Zstd)] {
            let diagnosis = examine(&Row { codec, ..row }.snapshot());
            assert_eq!(diagnosis.verdict, Verdict::SenderThread, "{diagnosis:#?}");
            assert!(diagnosis.summary.contains("sockets"), "{}", diagnosis.summary);
            let callbacks = |finding: &Finding| finding.id == FindingId::N1;
            assert!(!diagnosis.findings.iter().any(callbacks));
            let change = diagnosis.recommendation.unwrap();
            assert!(change.set.starts_with("a second producer"), "{change:?}");
        }
        // What its owner measured is known.
        let mut measured = row.snapshot();
        measured.application.callback_micros = Some(3_500.0);
        assert!(examine(&measured).summary.starts_with("Callbacks take"));
    }
}
