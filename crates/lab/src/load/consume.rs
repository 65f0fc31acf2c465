//! A group of consumers that check what they receive.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use ottla_client::Error;
use ottla_client::consumer::{Consumer, ConsumerRecord, ConsumerRecords, TopicPartition};
use ottla_wire::records::batch::TimestampType;

use super::clock::{Span, now_nanos};
use super::errors::Errors;
use super::ledger::Ledger;
use super::measured::{self, Snapshot};
use super::outcome::{ConsumeOutcome, ReceivedRecord, RecordPlace};
use super::samples::Samples;
use super::schedule::{Schedule, be_punctual, wait_until};
use super::stamp::Stamp;
use super::timeline::{Current, Timeline};
use super::{ConsumeLoad, Course, Live, lock};
use crate::report::histogram::Latencies;

/// If nothing has arrived for this long after the end, missing records are lost.
const QUIET: Duration = Duration::from_secs(10);
/// Readers wait at most this long after the end, even while records arrive.
const AFTER_END_MAX: Duration = Duration::from_secs(120);
const AFTER_STOP_MAX: Duration = Duration::from_secs(5);

const TICK: Duration = Duration::from_millis(20);
/// The interval at which a consumer checks whether it should end.
const POLL: Duration = Duration::from_millis(50);
const AFTER_ERROR: Duration = Duration::from_millis(100);
const CLOSE: Duration = Duration::from_secs(3);

/// Runs a group of consumers through a course. Ends when everything that was acknowledged has
/// arrived, when nothing has arrived for 10 s after the end, or at the end if nothing is produced.
///
/// - Errors: invalid settings, a topic that cannot be reached; later errors are counted instead.
pub fn run(load: &ConsumeLoad, course: &Course, live: &Live) -> Result<ConsumeOutcome, Error> {
    check(load)?;
    let consumers = (0..load.clients)
        .map(|client| open(load, course, client))
        .collect::<Result<Vec<Consumer>, Error>>()?;
    let metrics: Vec<_> = consumers
        .iter()
        .map(|consumer| Arc::clone(consumer.metrics()))
        .collect();
    let snapshots = || -> Vec<Snapshot> {
        metrics
            .iter()
            .map(|metrics| measured::snapshot(metrics))
            .collect()
    };
    let group = Group::new(load, course);
    let reader = live.join_readers();
    let (mut before, mut at_end) = (Vec::new(), None);
    let mut watch = Watch::new(&group, course, live);
    let parts: Vec<Part> = thread::scope(|scope| {
        let group = &group;
        let started: Vec<_> = consumers
            .into_iter()
            .enumerate()
            .map(|(client, consumer)| {
                thread::Builder::new()
                    .name(String::from("ottla-load"))
                    .spawn_scoped(scope, move || read(group, consumer, client))
            })
            .collect();
        loop {
            let now = now_nanos();
            if before.is_empty() && now >= group.span.measured_nanos {
                before = snapshots();
            }
            if at_end.is_none() && now >= group.span.end_nanos {
                at_end = Some(snapshots());
            }
            let received = group.received.load(Ordering::Relaxed);
            live.received_more(&reader, received - reader.load(Ordering::Relaxed));
            if watch.is_over() || started.iter().any(Result::is_err) {
                break;
            }
            thread::sleep(TICK);
        }
        at_end.get_or_insert_with(snapshots);
        group.is_over.store(true, Ordering::Relaxed);
        let joined = started.into_iter().map(|started| match started {
            Ok(thread) => Ok(thread.join().expect("a consuming thread does not panic")),
            Err(error) => Err(Error::IllegalState {
                message: format!("a thread for a consumer cannot be started: {error}").into(),
            }),
        });
        joined.collect::<Result<Vec<Part>, Error>>()
    })?;
    let mut outcome = group.outcome(parts);
    outcome.acknowledged_in_its_topics = watch.expected();
    outcome.metrics = measured::combine(&before, &at_end.unwrap_or_default());
    Ok(outcome)
}

fn check(load: &ConsumeLoad) -> Result<(), Error> {
    let problem = if load.clients == 0 {
        "it has no consumers"
    } else if load.topics.is_empty() {
        "it has no topic"
    } else if load.rate.is_some_and(|rate| !(rate.is_finite() && rate > 0.0)) {
        "its rate is not above 0"
    } else {
        return Ok(());
    };
    Err(Error::InvalidArgument {
        message: format!("load {}: {problem}", load.name).into(),
    })
}

/// Opens a consumer at its start position.
fn open(load: &ConsumeLoad, course: &Course, client: u32) -> Result<Consumer, Error> {
    let mut config = measured::config(&load.settings, course.duration);
    if config.get("client.id").is_none() {
        config = config.set("client.id", format!("{}-{client}", load.name));
    }
    if config.get("auto.offset.reset").is_none() {
        config = config.set(
            "auto.offset.reset",
            if load.from_beginning { "earliest" } else { "latest" },
        );
    }
    let is_member = config.get("group.id").is_some();
    let mut consumer = Consumer::new(&config)?;
    if is_member {
        consumer.subscribe(load.topics.iter().map(|topic| topic.name.as_str()))?;
        return Ok(consumer);
    }
    let partitions = partitions(load)
        .into_iter()
        .skip(client as usize)
        .step_by(load.clients as usize);
    let own: Vec<TopicPartition> = partitions.collect();
    if own.is_empty() {
        return Err(Error::InvalidArgument {
            message: format!(
                "load {}: {} consumers share fewer partitions",
                load.name, load.clients
            )
            .into(),
        });
    }
    consumer.assign(own.iter().cloned())?;
    if !load.from_beginning {
        // What "from now on" means must be determined before the producers begin.
        for partition in &own {
            consumer.position(partition)?;
        }
    }
    Ok(consumer)
}

fn partitions(load: &ConsumeLoad) -> Vec<TopicPartition> {
    let topics = load.topics.iter();
    topics
        .flat_map(|topic| {
            let name: Arc<str> = topic.name.as_str().into();
            (0..topic.partitions).map(move |p| TopicPartition::new(Arc::clone(&name), p.cast_signed()))
        })
        .collect()
}

/// State that the consumers of a group share.
struct Group<'a> {
    load: &'a ConsumeLoad,
    stop: &'a AtomicBool,
    span: Span,
    timeline: Timeline,
    ledger: Mutex<Ledger>,
    /// Records with a stamp, over the whole course.
    received: AtomicU64,
    duplicated: AtomicU64,
    last_arrival_nanos: AtomicU64,
    is_over: AtomicBool,
}

/// The numbers of one consumer.
struct Part {
    records: u64,
    bytes: u64,
    foreign: u64,
    first: Option<Arrival>,
    last_nanos: u64,
    errors: Errors,
    end_to_end: Latencies,
    current: Current,
    samples: Samples<ReceivedRecord>,
}

/// The first records of the measured part.
#[derive(Clone, Copy)]
struct Arrival {
    nanos: u64,
    records: u64,
}

impl<'a> Group<'a> {
    fn new(load: &'a ConsumeLoad, course: &'a Course) -> Group<'a> {
        let span = Span::of(course);
        Group {
            load,
            stop: &course.stop,
            span,
            timeline: Timeline::new(span),
            ledger: Mutex::default(),
            received: AtomicU64::new(0),
            duplicated: AtomicU64::new(0),
            last_arrival_nanos: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
        }
    }

    fn outcome(&self, parts: Vec<Part>) -> ConsumeOutcome {
        let ledger = lock(&self.ledger);
        let mut outcome = ConsumeOutcome {
            name: self.load.name.clone(),
            records_in_all: self.received.load(Ordering::Relaxed),
            duplicated: ledger.duplicated,
            disordered: ledger.disordered,
            ..ConsumeOutcome::default()
        };
        let mut errors = Errors::default();
        let first = parts
            .iter()
            .filter_map(|part| part.first)
            .min_by_key(|first| first.nanos);
        let last = parts.iter().map(|part| part.last_nanos).max().unwrap_or(0);
        let mut samples = Vec::new();
        for mut part in parts {
            part.current.leave(&self.timeline);
            outcome.records += part.records;
            outcome.bytes += part.bytes;
            outcome.foreign += part.foreign;
            outcome.end_to_end.add(&part.end_to_end);
            errors.merge(&part.errors);
            samples.push(part.samples);
        }
        outcome.seconds = self.seconds(outcome.records, first, last);
        outcome.errors = errors.into_map();
        outcome.timeline = self.timeline.take();
        outcome.samples = Samples::merge(samples);
        outcome
    }

    /// The first records' own time is before their arrival and unknown: the others arrived between
    /// then and the last.
    fn seconds(&self, records: u64, first: Option<Arrival>, last_nanos: u64) -> f64 {
        let Some(first) = first else {
            return 0.0;
        };
        let later = records.saturating_sub(first.records);
        let between = last_nanos.saturating_sub(first.nanos) as f64 / 1e9;
        if later == 0 || between == 0.0 {
            return self.span.end_nanos.saturating_sub(self.span.measured_nanos) as f64 / 1e9;
        }
        between * records as f64 / later as f64
    }
}

/// Decides when a group has read everything that it will get.
struct Watch<'a> {
    group: &'a Group<'a>,
    course: &'a Course,
    live: &'a Live,
    topics: Vec<Arc<AtomicU64>>,
    end: Instant,
    stopped_at: Option<Instant>,
}

impl<'a> Watch<'a> {
    fn new(group: &'a Group<'a>, course: &'a Course, live: &'a Live) -> Watch<'a> {
        Watch {
            group,
            course,
            live,
            topics: group
                .load
                .topics
                .iter()
                .map(|topic| live.topic(&topic.name))
                .collect(),
            end: course.begin + course.warmup + course.duration,
            stopped_at: None,
        }
    }

    /// The number of records that the group's topics have received so far.
    fn expected(&self) -> u64 {
        let topics = self.topics.iter();
        topics.map(|topic| topic.load(Ordering::Relaxed)).sum()
    }

    fn is_over(&mut self) -> bool {
        let now = Instant::now();
        if self.course.stop.load(Ordering::Relaxed) {
            self.stopped_at.get_or_insert(now);
        }
        let is_after_end = now >= self.end || self.stopped_at.is_some();
        // Nothing is produced in this run: what is there was there before.
        if is_after_end && self.live.sent.load(Ordering::Relaxed) == 0 {
            return true;
        }
        let is_produced = self.live.is_produced.load(Ordering::Acquire);
        let expected = self.expected();
        // Others produce, but not what this group reads.
        if is_produced && is_after_end && expected == 0 {
            return true;
        }
        let received = self.group.received.load(Ordering::Acquire);
        let received = received.saturating_sub(self.group.duplicated.load(Ordering::Relaxed));
        if is_produced && expected > 0 && received >= expected {
            return true;
        }
        if self.stopped_at.is_some_and(|at| now >= at + AFTER_STOP_MAX) || now >= self.end + AFTER_END_MAX {
            return true;
        }
        let last_arrival = self.group.last_arrival_nanos.load(Ordering::Relaxed);
        let since = last_arrival.max(self.group.span.end_nanos);
        is_produced && is_after_end && now_nanos() >= since + super::clock::as_nanos(QUIET)
    }
}

fn read(group: &Group<'_>, mut consumer: Consumer, client: usize) -> Part {
    be_punctual();
    let clients = u64::from(group.load.clients);
    let schedule = group
        .load
        .rate
        .map(|rate| Schedule::new(group.span.begin_nanos, rate, client as u64, clients));
    let mut reader = Reader {
        group,
        schedule,
        index: 0,
        stamped: 0,
        part: Part {
            records: 0,
            bytes: 0,
            foreign: 0,
            first: None,
            last_nanos: 0,
            errors: Errors::default(),
            end_to_end: Latencies::with_room(),
            current: Current::default(),
            samples: Samples::share_of(clients as usize),
        },
    };
    while !group.is_over.load(Ordering::Relaxed) {
        match consumer.poll(POLL) {
            Ok(records) => reader.take(&records),
            Err(error) => {
                reader.part.errors.add(&error.to_string(), 1);
                if error.is_fatal() {
                    break;
                }
                thread::sleep(AFTER_ERROR);
            }
        }
    }
    if let Err(error) = consumer.close(CLOSE) {
        reader.part.errors.add(&error.to_string(), 1);
    }
    reader.part
}

struct Reader<'a> {
    group: &'a Group<'a>,
    schedule: Option<Schedule>,
    /// Records so far.
    index: u64,
    /// Records with a stamp that are not yet in the group's count.
    stamped: u64,
    part: Part,
}

impl Reader<'_> {
    fn take(&mut self, records: &ConsumerRecords) {
        let measured_before = self.part.records;
        let arrived = now_nanos();
        for partition in records.partitions() {
            let Some(number) = self.number(partition.topic_partition()) else {
                continue;
            };
            match self.schedule {
                None => {
                    let now = now_nanos();
                    let mut ledger = lock(&self.group.ledger);
                    for record in partition {
                        self.take_record(&mut ledger, number, now, &record);
                    }
                    self.publish(&ledger, now);
                }
                Some(schedule) => {
                    for record in partition {
                        let due = schedule.due_nanos(self.index);
                        let now = wait_until(due, now_nanos(), self.group.stop);
                        self.index += 1;
                        let mut ledger = lock(&self.group.ledger);
                        self.take_record(&mut ledger, number, now, &record);
                        self.publish(&ledger, now);
                    }
                }
            }
        }
        let count = self.part.records - measured_before;
        if count > 0 {
            self.part.first.get_or_insert(Arrival {
                nanos: arrived,
                records: count,
            });
        }
    }

    /// A number for the ledger; `None` for an unknown topic, which a consumer never returns.
    fn number(&self, partition: &TopicPartition) -> Option<u32> {
        let topics = &self.group.load.topics;
        let topic = topics.iter().position(|topic| *topic.name == *partition.topic)?;
        // Topics have fewer than a million partitions.
        Some(((topic as u32) << 20) | partition.partition.cast_unsigned())
    }

    /// Publishes what the watch reads; once for many records.
    fn publish(&mut self, ledger: &Ledger, now: u64) {
        let group = self.group;
        // Before the received ones, so that duplicates do not stand in for missing records.
        group.duplicated.store(ledger.duplicated, Ordering::Release);
        if self.stamped > 0 {
            group
                .received
                .fetch_add(std::mem::take(&mut self.stamped), Ordering::Release);
            group.last_arrival_nanos.store(now, Ordering::Relaxed);
        }
    }

    #[inline]
    fn take_record(&mut self, ledger: &mut Ledger, partition: u32, now: u64, record: &ConsumerRecord<'_>) {
        let group = self.group;
        let bytes = record.value.map_or(0, <[u8]>::len) + record.key.map_or(0, <[u8]>::len);
        let Some(stamp) = record.value.and_then(Stamp::read) else {
            self.part.foreign += 1;
            return;
        };
        self.stamped += 1;
        ledger.enter(partition, &stamp);
        let latency = now.saturating_sub(stamp.due_nanos) / 1_000;
        let is_sampled = group.span.is_measured(stamp.due_nanos);
        self.part
            .current
            .done(&group.timeline, now, is_sampled.then_some(latency));
        if group.span.is_measured(now) {
            self.part.records += 1;
            self.part.bytes += bytes as u64;
            self.part.last_nanos = now;
        }
        if is_sampled {
            self.part.end_to_end.record(latency);
            self.part
                .samples
                .offer(record.partition, record.offset, || ReceivedRecord {
                    place: RecordPlace {
                        topic: record.topic.to_owned(),
                        partition: record.partition,
                        offset: record.offset,
                    },
                    due_nanos: stamp.due_nanos,
                    sent_nanos: stamp.sent_nanos,
                    received_nanos: now,
                    log_append_ms: (record.timestamp_type == TimestampType::LogAppendTime)
                        .then_some(record.timestamp),
                });
        }
    }
}
