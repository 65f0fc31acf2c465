//! One producer, one thread: does what Kafka's producer performance tool does, with latencies
//! measured from when records were due.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ottla_client::Error;
use ottla_client::config::Config;
use ottla_client::metrics::ClientMetrics;
use ottla_client::producer::{Producer, Record, RecordMetadata, Transaction, TransactionalProducer};

use super::stats::{Interval, Stats, Total};
use super::{MetricLine, metric_lines};
use crate::load::clock::now_nanos;
use crate::load::contents::Noise;
use crate::load::schedule::{Schedule, be_punctual, wait_until};

#[derive(Clone, Debug)]
pub struct ProducePerf {
    pub config: Config,
    pub topic: String,
    pub records: u64,
    /// Records per second; `None`: without a limit.
    pub rate: Option<f64>,
    pub payload: Payload,
    /// This many records at the start count only into the total.
    pub warmup_records: u64,
    pub reporting_interval: Duration,
    /// Transactions are committed after this long, one after the other; the settings have a
    /// `transactional.id` then. `None`: outside of transactions.
    pub transaction: Option<Duration>,
}

/// The content of records.
#[derive(Clone, Debug)]
pub enum Payload {
    /// This many random letters.
    Size(usize),
    /// One of these, at random; not empty.
    Given(Vec<Vec<u8>>),
    /// The record's number.
    Monotonic,
}

/// Events reported while records are answered.
#[derive(Clone, Debug)]
pub enum ProduceEvent {
    /// Comes before the first interval after the warm-up.
    SteadyState,
    Interval(Interval),
    /// A record was not acknowledged.
    Failed(Error),
}

/// Called on the producer's callback thread.
pub type Observer = Arc<dyn Fn(ProduceEvent) + Send + Sync>;

#[derive(Clone, Debug, Default)]
pub struct ProducePerfOutcome {
    /// Acknowledged records.
    pub total: Total,
    /// Excludes the warm-up; `None` if there was none.
    pub steady: Option<Total>,
    pub failed: u64,
    /// Committed ones.
    pub transactions: u64,
    /// A signal ended it before all records were sent.
    pub was_interrupted: bool,
    pub metrics: Vec<MetricLine>,
}

/// Sends the records and waits for their answers. `stop` ends the sending.
///
/// - Errors: invalid settings, a missing topic, a transaction that cannot be begun or committed;
///   failed records are counted instead.
pub fn run(perf: &ProducePerf, stop: &AtomicBool, observer: &Observer) -> Result<ProducePerfOutcome, Error> {
    let answers = Arc::new(Answers::new(perf, observer));
    let mut outcome = match perf.transaction {
        None => {
            let own = Arc::clone(&answers);
            let deliver = move |tag, result| own.answered(Sent::of_tag(tag), result);
            let producer = Producer::with_delivery(&perf.config, deliver)?;
            // The wait for metadata must not count as latency of the first record.
            producer.partitions_for(&perf.topic)?;
            let mut sender = Alone(&producer);
            let sent = send_all(perf, &mut sender, &answers, stop)?;
            perf.outcome(sent, 0, producer.metrics())
        }
        Some(duration) => {
            let producer = TransactionalProducer::new(&perf.config)?;
            producer.partitions_for(&perf.topic)?;
            producer.init()?;
            let mut sender = Transacting::new(&producer, duration);
            let sent = send_all(perf, &mut sender, &answers, stop)?;
            perf.outcome(sent, sender.committed, producer.metrics())
        }
    };
    let end = now_nanos();
    let counts = crate::load::lock(&answers.counts);
    outcome.total = counts.stats.total(end);
    outcome.steady = counts.steady.as_ref().map(|steady| steady.total(end));
    outcome.failed = counts.failed;
    Ok(outcome)
}

impl ProducePerf {
    /// Without what the answers count.
    fn outcome(&self, sent: u64, transactions: u64, metrics: &Arc<ClientMetrics>) -> ProducePerfOutcome {
        ProducePerfOutcome {
            transactions,
            was_interrupted: sent < self.records,
            metrics: metric_lines(metrics),
            ..ProducePerfOutcome::default()
        }
    }
}

/// Takes the records, in transactions or without.
trait Sender {
    /// - Errors: nothing more can be sent.
    fn prepare(&mut self) -> Result<(), Error>;

    /// - Errors: this record was not sent.
    fn send(&mut self, record: &Record<'_>, sent: Sent, answers: &Arc<Answers>) -> Result<(), Error>;

    /// Waits for the answers to all records.
    ///
    /// - Errors: as `prepare`.
    fn end(&mut self) -> Result<(), Error>;
}

struct Alone<'a>(&'a Producer);

impl Sender for Alone<'_> {
    fn prepare(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn send(&mut self, record: &Record<'_>, sent: Sent, answers: &Arc<Answers>) -> Result<(), Error> {
        match sent.tag() {
            Some(tag) => self.0.send_tagged(record, tag),
            None => self.0.send_with(record, answers.callback(sent)),
        }
    }

    fn end(&mut self) -> Result<(), Error> {
        self.0.flush()
    }
}

struct Transacting<'a> {
    producer: &'a TransactionalProducer,
    nanos: u64,
    /// With the time at which it was begun.
    open: Option<(Transaction<'a>, u64)>,
    committed: u64,
}

impl<'a> Transacting<'a> {
    fn new(producer: &'a TransactionalProducer, duration: Duration) -> Transacting<'a> {
        Transacting {
            producer,
            nanos: u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX),
            open: None,
            committed: 0,
        }
    }
}

impl Sender for Transacting<'_> {
    fn prepare(&mut self) -> Result<(), Error> {
        if self
            .open
            .as_ref()
            .is_some_and(|(_, began)| now_nanos().saturating_sub(*began) >= self.nanos)
        {
            self.end()?;
        }
        if self.open.is_none() {
            self.open = Some((self.producer.begin()?, now_nanos()));
        }
        Ok(())
    }

    fn send(&mut self, record: &Record<'_>, sent: Sent, answers: &Arc<Answers>) -> Result<(), Error> {
        let (transaction, _) = self.open.as_ref().expect("begun before");
        transaction.send_with(record, answers.callback(sent))
    }

    fn end(&mut self) -> Result<(), Error> {
        if let Some((transaction, _)) = self.open.take() {
            transaction.commit()?;
            self.committed += 1;
        }
        Ok(())
    }
}

/// Returns how many records were handed over.
fn send_all(
    perf: &ProducePerf,
    sender: &mut impl Sender,
    answers: &Arc<Answers>,
    stop: &AtomicBool,
) -> Result<u64, Error> {
    be_punctual();
    let begin = now_nanos();
    crate::load::lock(&answers.counts).stats = Stats::new(begin, perf.reporting_interval);
    let schedule = perf.rate.map(|rate| Schedule::new(begin, rate, 0, 1));
    let mut payloads = Payloads::new(&perf.payload);
    for number in 0..perf.records {
        let mut now = now_nanos();
        let mut due = now;
        if let Some(schedule) = schedule {
            due = schedule.due_nanos(number);
            now = wait_until(due, now, stop);
        }
        if stop.load(Ordering::Relaxed) {
            sender.end()?;
            return Ok(number);
        }
        sender.prepare()?;
        let is_steady = perf.warmup_records > 0 && number >= perf.warmup_records;
        if is_steady && number == perf.warmup_records {
            let steady = Stats::new(now, perf.reporting_interval);
            crate::load::lock(&answers.counts).steady = Some(steady);
        }
        let value = payloads.next(number);
        let sent = Sent {
            due_micros: due.saturating_sub(answers.origin_nanos) / 1_000,
            bytes: value.len() as u64,
            is_steady,
        };
        if let Err(error) = sender.send(&Record::new(&perf.topic).value(value), sent, answers) {
            answers.failed(error);
        }
        debug_assert!(
            now >= due || stop.load(Ordering::Relaxed),
            "sent before it was due"
        );
    }
    sender.end()?;
    Ok(perf.records)
}

/// What is to be known about a record when it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sent {
    /// Since the origin of `Answers`.
    due_micros: u64,
    bytes: u64,
    is_steady: bool,
}

impl Sent {
    const BYTES_BITS: u32 = 25;
    const DUE_BITS: u32 = 64 - 1 - Self::BYTES_BITS;

    /// All of it in one number; `None` from 32 MiB or 76 hours on.
    fn tag(self) -> Option<u64> {
        let fits = self.bytes >> Self::BYTES_BITS == 0 && self.due_micros >> Self::DUE_BITS == 0;
        fits.then_some((self.due_micros << 1 | u64::from(self.is_steady)) << Self::BYTES_BITS | self.bytes)
    }

    fn of_tag(tag: u64) -> Sent {
        Sent {
            due_micros: tag >> (Self::BYTES_BITS + 1),
            bytes: tag & ((1 << Self::BYTES_BITS) - 1),
            is_steady: tag >> Self::BYTES_BITS & 1 == 1,
        }
    }
}

struct Answers {
    origin_nanos: u64,
    counts: Mutex<Counts>,
    observer: Observer,
}

struct Counts {
    stats: Stats,
    steady: Option<Stats>,
    failed: u64,
}

impl Answers {
    fn new(perf: &ProducePerf, observer: &Observer) -> Answers {
        let origin_nanos = now_nanos();
        Answers {
            origin_nanos,
            counts: Mutex::new(Counts {
                stats: Stats::new(origin_nanos, perf.reporting_interval),
                steady: None,
                failed: 0,
            }),
            observer: Arc::clone(observer),
        }
    }

    fn callback(
        self: &Arc<Answers>,
        sent: Sent,
    ) -> impl FnOnce(Result<RecordMetadata, Error>) + Send + 'static {
        let own = Arc::clone(self);
        move |result| own.answered(sent, result)
    }

    fn answered(&self, sent: Sent, result: Result<RecordMetadata, Error>) {
        match result {
            Ok(_) => self.acknowledged(sent),
            Err(error) => self.failed(error),
        }
    }

    fn acknowledged(&self, sent: Sent) {
        let now = now_nanos();
        let micros = (now.saturating_sub(self.origin_nanos) / 1_000).saturating_sub(sent.due_micros);
        let mut counts = crate::load::lock(&self.counts);
        let window = counts.stats.record(now, sent.bytes, micros);
        let is_warm = counts.steady.is_some();
        let steady = counts
            .steady
            .as_mut()
            .filter(|_| sent.is_steady)
            .and_then(|steady| steady.record(now, sent.bytes, micros));
        drop(counts);
        // As in Kafka's tool: after the warm-up, only records sent after it are reported.
        if let Some((window, _)) = window
            && !is_warm
        {
            (self.observer)(ProduceEvent::Interval(window));
        }
        if let Some((window, is_first)) = steady {
            if is_first {
                (self.observer)(ProduceEvent::SteadyState);
            }
            (self.observer)(ProduceEvent::Interval(window));
        }
    }

    fn failed(&self, error: Error) {
        crate::load::lock(&self.counts).failed += 1;
        (self.observer)(ProduceEvent::Failed(error));
    }
}

impl fmt::Debug for Answers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Answers")
    }
}

/// Generates one value after the other, in one buffer.
struct Payloads<'a> {
    payload: &'a Payload,
    noise: Noise,
    value: Vec<u8>,
}

impl<'a> Payloads<'a> {
    fn new(payload: &'a Payload) -> Payloads<'a> {
        let bytes = match payload {
            Payload::Size(bytes) => *bytes,
            _ => 0,
        };
        Payloads {
            payload,
            // The same records in every run, as in Kafka's tool.
            noise: Noise::new(0),
            value: vec![0; bytes],
        }
    }

    fn next(&mut self, number: u64) -> &[u8] {
        match self.payload {
            Payload::Size(_) => {
                self.noise.fill_letters(&mut self.value);
                &self.value
            }
            Payload::Given(values) => &values[self.noise.below(values.len() as u64) as usize],
            Payload::Monotonic => {
                self.value.clear();
                self.value.extend_from_slice(number.to_string().as_bytes());
                &self.value
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::null_sink::NullSink;

    fn perf(sink: &NullSink, rate: Option<f64>) -> ProducePerf {
        ProducePerf {
            config: Config::new().set("bootstrap.servers", sink.address()),
            topic: String::from("t"),
            records: 500,
            rate,
            payload: Payload::Size(100),
            warmup_records: 0,
            reporting_interval: Duration::from_millis(1),
            transaction: None,
        }
    }

    fn observer() -> (Observer, Arc<Mutex<Vec<ProduceEvent>>>) {
        let events: Arc<Mutex<Vec<ProduceEvent>>> = Arc::default();
        let own = Arc::clone(&events);
        (Arc::new(move |event| own.lock().unwrap().push(event)), events)
    }

    #[test]
    fn every_record_is_counted_once() {
        let sink = NullSink::start().unwrap();
        let (observer, events) = observer();
        let outcome = run(&perf(&sink, Some(5_000.0)), &AtomicBool::new(false), &observer).unwrap();
        assert_eq!((outcome.total.interval.records, outcome.failed), (500, 0));
        assert_eq!(outcome.total.interval.bytes, 50_000);
        assert_eq!(sink.record_count(), 500);
        assert!(outcome.steady.is_none() && !outcome.was_interrupted);
        assert!(outcome.metrics.iter().any(|line| {
            line.name
                .starts_with("producer-metrics:request-total:{client-id=")
        }));
        let reported: u64 = events
            .lock()
            .unwrap()
            .iter()
            .map(|event| match event {
                ProduceEvent::Interval(interval) => interval.records,
                other => panic!("{other:?}"),
            })
            .sum();
        assert!((1..=500).contains(&reported), "{reported}");
    }

    #[test]
    fn the_steady_state_is_what_follows_the_warm_up() {
        let sink = NullSink::start().unwrap();
        let (observer, events) = observer();
        let perf = ProducePerf {
            warmup_records: 100,
            ..perf(&sink, Some(5_000.0))
        };
        let outcome = run(&perf, &AtomicBool::new(false), &observer).unwrap();
        assert_eq!(outcome.total.interval.records, 500);
        assert_eq!(outcome.steady.unwrap().interval.records, 400);
        let events = events.lock().unwrap();
        let steady = events
            .iter()
            .filter(|event| matches!(event, ProduceEvent::SteadyState));
        assert_eq!(steady.count(), 1);
    }

    #[test]
    fn a_stop_ends_the_sending_and_sent_records_count() {
        let sink = NullSink::start().unwrap();
        let (observer, _) = observer();
        let outcome = run(&perf(&sink, None), &AtomicBool::new(true), &observer).unwrap();
        assert!(outcome.was_interrupted);
        assert_eq!(outcome.total.interval.records, 0);
    }

    #[test]
    fn a_tag_holds_what_was_sent_or_there_is_none() {
        let sent = |due_micros, bytes, is_steady| Sent {
            due_micros,
            bytes,
            is_steady,
        };
        for whole in [
            sent(0, 0, false),
            sent(7, 256, true),
            sent((1 << 38) - 1, (1 << 25) - 1, false),
            sent((1 << 38) - 1, (1 << 25) - 1, true),
        ] {
            assert_eq!(whole.tag().map(Sent::of_tag), Some(whole));
        }
        assert_eq!(sent(1 << 38, 0, false).tag(), None);
        assert_eq!(sent(0, 1 << 25, false).tag(), None);
    }

    /// Those have no tag.
    #[test]
    fn records_of_more_than_32_mib_are_counted_too() {
        let sink = NullSink::start().unwrap();
        let (observer, _) = observer();
        let mut perf = perf(&sink, None);
        let bytes = (1 << 25) + 1;
        (perf.records, perf.payload) = (2, Payload::Size(bytes));
        for (name, value) in [("max.request.size", "50000000"), ("buffer.memory", "100000000")] {
            perf.config = perf.config.set(name, value);
        }
        let outcome = run(&perf, &AtomicBool::new(false), &observer).unwrap();
        assert_eq!((outcome.total.interval.records, outcome.failed), (2, 0));
        assert_eq!(outcome.total.interval.bytes, 2 * bytes as u64);
    }

    #[test]
    fn payloads_are_as_requested() {
        let given = Payload::Given(vec![b"a".to_vec(), b"b".to_vec()]);
        let mut payloads = Payloads::new(&given);
        let drawn: Vec<Vec<u8>> = (0..50).map(|number| payloads.next(number).to_vec()).collect();
        assert!(drawn.contains(&b"a".to_vec()) && drawn.contains(&b"b".to_vec()));
        assert_eq!(Payloads::new(&Payload::Monotonic).next(1_234), b"1234");
        assert!(
            Payloads::new(&Payload::Size(64))
                .next(0)
                .iter()
                .all(u8::is_ascii_uppercase)
        );
    }
}
