//! A group of producers on a schedule.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use ottla_client::Error;
use ottla_client::producer::{Producer, Record};

use super::answers::{Answers, Counted, Sent, Topic};
use super::callback_work::CallbackWork;
use super::clock::{Span, now_nanos, thread_cpu_nanos};
use super::contents::{KeySource, Source, Values};
use super::measured::{self, Snapshot};
use super::outcome::ProduceOutcome;
use super::schedule::{Schedule, be_punctual, wait_until};
use super::stamp::{self, Stamp};
use super::timeline::Current;
use super::{Course, Live, Partitioning, ProduceLoad};
use crate::report::histogram::Latencies;

/// Records that were due before the end are still sent until then, because the last threads wake up
/// a little late. A thread that is later still could not hold the schedule.
const GRACE_NANOS: u64 = 200_000_000;

/// After the end, or a stop, requests under way are awaited for this long; then they fail.
const DRAIN: Duration = Duration::from_secs(30);
const DRAIN_WHEN_STOPPED: Duration = Duration::from_secs(3);

/// The interval of progress reports.
const TICK: Duration = Duration::from_millis(20);

/// A thread without a schedule waits this long after a refused record.
const REFUSED_NANOS: u64 = 5_000_000;

/// A sending thread keeps little on its stack, and there may be a thousand.
const STACK_BYTES: usize = 512 << 10;

/// Runs a group of producers through a course; ends when everything that was sent is acknowledged
/// or given up.
///
/// - Errors: invalid settings, a topic that cannot be reached; later errors are counted instead.
pub fn run(load: &ProduceLoad, course: &Course, live: &Live) -> Result<ProduceOutcome, Error> {
    check(load)?;
    let span = Span::of(course);
    let config = measured::config(&load.settings, course.duration);
    let producers = (0..load.clients)
        .map(|client| {
            let config = match config.get("client.id") {
                Some(_) => config.clone(),
                None => config.clone().set("client.id", format!("{}-{client}", load.name)),
            };
            Producer::new(&config)
        })
        .collect::<Result<Vec<Producer>, Error>>()?;
    let topics = load.topics.iter().map(|topic| Topic {
        name: topic.name.clone(),
        acknowledged: live.topic(&topic.name),
    });
    let group = Group {
        load,
        stop: &course.stop,
        source: Source::new(&load.contents, load.record_bytes),
        answers: Arc::new(Answers::new(
            span,
            load.rate.is_some(),
            counted(load),
            topics.collect(),
            producers.len(),
        )),
        work: CallbackWork::start(load.callback, load.callback_threads).map_err(|error| {
            let threads = load.callback_threads;
            let message = format!("{threads} threads for callbacks cannot be started: {error}").into();
            Error::IllegalState { message }
        })?,
        sent: AtomicU64::new(0),
        is_cut_off: AtomicBool::new(false),
        failure: OnceLock::new(),
    };
    let progress = Progress::new(&group, live);
    let Conducted {
        threads,
        before,
        at_end,
        ended_nanos,
    } = group.conduct(&producers, progress, course)?;
    if let Some(error) = group.failure.into_inner() {
        return Err(error);
    }
    // Without a warm-up, the requests of the last records belong to those that are counted.
    let after = match course.warmup.is_zero() {
        true => snapshots(&producers),
        false => at_end,
    };
    drop(producers);
    let sent = threads.iter().map(|thread| thread.sent).sum();
    let mut outcome = group.answers.outcome(&load.name, load.rate, sent, ended_nanos);
    outcome.metrics = measured::combine(&before, &after);
    add_threads(&mut outcome, &threads);
    Ok(outcome)
}

fn check(load: &ProduceLoad) -> Result<(), Error> {
    let problem = if load.clients == 0 || load.threads == 0 {
        "it has no producers or no threads"
    } else if load.topics.is_empty() || load.topics.iter().any(|topic| topic.partitions == 0) {
        "it has no topic, or one without partitions"
    } else if load.rate.is_some_and(|rate| !(rate.is_finite() && rate > 0.0)) {
        "its rate is not above 0"
    } else {
        return Ok(());
    };
    Err(Error::InvalidArgument {
        message: format!("load {}: {problem}", load.name).into(),
    })
}

fn snapshots(producers: &[Producer]) -> Vec<Snapshot> {
    producers
        .iter()
        .map(|producer| measured::snapshot(producer.metrics()))
        .collect()
}

fn add_threads(outcome: &mut ProduceOutcome, threads: &[ThreadOutcome]) {
    let mut send_nanos = 0.0;
    for thread in threads {
        outcome.schedule_error.add(&thread.schedule_error);
        outcome.busiest_thread = outcome.busiest_thread.max(thread.busy);
        send_nanos += thread.send_nanos as f64;
    }
    if outcome.sent > 0 {
        outcome.send_nanos_mean = send_nanos / outcome.sent as f64;
    }
}

/// State that the threads of a group share.
struct Group<'a> {
    load: &'a ProduceLoad,
    stop: &'a AtomicBool,
    source: Source,
    answers: Arc<Answers>,
    work: CallbackWork,
    /// Over the whole course.
    sent: AtomicU64,
    /// Producers were closed because their time was over.
    is_cut_off: AtomicBool,
    /// The error of the first thread that could not start.
    failure: OnceLock<Error>,
}

/// The threads' results, and the producers' metrics before and after the measured part.
struct Conducted {
    threads: Vec<ThreadOutcome>,
    before: Vec<Snapshot>,
    at_end: Vec<Snapshot>,
    /// When the last thread stopped sending.
    ended_nanos: u64,
}

fn counted(load: &ProduceLoad) -> Counted {
    match load.rate.is_none() && load.records == 0 {
        true => Counted::WhenAnswered,
        false => Counted::WhenDue,
    }
}

impl Group<'_> {
    /// Starts the threads, watches them, and waits for the answers.
    fn conduct(
        &self,
        producers: &[Producer],
        mut progress: Progress<'_>,
        course: &Course,
    ) -> Result<Conducted, Error> {
        let threads = u64::from(self.load.threads);
        let all = threads * producers.len() as u64;
        let (mut before, mut at_end, mut ended_nanos) = (Vec::new(), Vec::new(), 0);
        let threads_outcomes = thread::scope(|scope| {
            let mut started = Vec::new();
            for number in 0..all {
                let client = (number / threads) as usize;
                let sender = Sender::new(self, &producers[client], client, number, all);
                let spawned = thread::Builder::new()
                    .name(String::from("ottla-load"))
                    .stack_size(STACK_BYTES)
                    .spawn_scoped(scope, move || sender.run());
                match spawned {
                    Ok(thread) => started.push(thread),
                    Err(error) => {
                        let message = format!("thread {number} of {all} cannot be started: {error}").into();
                        self.fail(Error::IllegalState { message });
                        break;
                    }
                }
            }
            let mut deadline = Deadline::new(course);
            while started.iter().any(|thread| !thread.is_finished()) {
                if before.is_empty() && now_nanos() >= self.answers.span.measured_nanos {
                    before = snapshots(producers);
                }
                progress.tell();
                thread::sleep(TICK);
                let is_time_up = self.answers.counted == Counted::WhenAnswered
                    && now_nanos() >= self.answers.span.end_nanos;
                if is_time_up && at_end.is_empty() {
                    at_end = snapshots(producers);
                    // A thread may wait in `send` for room that would take an hour to come free.
                    self.give_up(producers);
                } else if deadline.is_over(course, self.failure.get().is_some()) {
                    self.cut_off(producers);
                }
            }
            if at_end.is_empty() {
                at_end = snapshots(producers);
            }
            ended_nanos = now_nanos();
            if self.answers.counted == Counted::WhenAnswered {
                self.give_up(producers);
            }
            for producer in producers {
                while producer.flush_timeout(TICK).is_err() && !deadline.is_over(course, false) {
                    progress.tell();
                }
            }
            if deadline.is_over(course, false) {
                self.cut_off(producers);
            }
            started
                .into_iter()
                .map(|thread| thread.join().expect("a sending thread does not panic"))
                .collect::<Vec<ThreadOutcome>>()
        });
        for producer in producers {
            // Everything has been answered, or is given up by this close; its callbacks report it.
            let _ = producer.close(Duration::from_millis(100));
        }
        progress.tell();
        Ok(Conducted {
            threads: threads_outcomes,
            before,
            at_end,
            ended_nanos,
        })
    }

    fn fail(&self, error: Error) {
        let _ = self.failure.set(error);
    }

    fn give_up(&self, producers: &[Producer]) {
        self.answers.is_given_up.store(true, Ordering::Relaxed);
        self.cut_off(producers);
    }

    fn cut_off(&self, producers: &[Producer]) {
        if !self.is_cut_off.swap(true, Ordering::Relaxed) {
            for producer in producers {
                let _ = producer.close(Duration::ZERO);
            }
        }
    }

    fn must_stop(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.failure.get().is_some()
    }
}

/// Until when a course's threads and answers are waited for.
struct Deadline {
    at: Instant,
    was_stopped: bool,
}

impl Deadline {
    fn new(course: &Course) -> Deadline {
        Deadline {
            at: course.begin + course.warmup + course.duration + DRAIN,
            was_stopped: false,
        }
    }

    fn is_over(&mut self, course: &Course, has_failed: bool) -> bool {
        let now = Instant::now();
        if !self.was_stopped && (has_failed || course.stop.load(Ordering::Relaxed)) {
            self.was_stopped = true;
            self.at = self.at.min(now + DRAIN_WHEN_STOPPED);
        }
        now >= self.at
    }
}

/// Adds a group's progress since the last call to the course's counts.
struct Progress<'a> {
    group: &'a Group<'a>,
    live: &'a Live,
    told: [u64; 3],
}

impl<'a> Progress<'a> {
    fn new(group: &'a Group<'a>, live: &'a Live) -> Progress<'a> {
        Progress {
            group,
            live,
            told: [0; 3],
        }
    }

    fn tell(&mut self) {
        let (group, live) = (self.group, self.live);
        let counts = [
            (&group.sent, &live.sent),
            (&group.answers.acknowledged, &live.acknowledged),
            (&group.answers.failed, &live.failed),
        ];
        for ((from, into), told) in counts.into_iter().zip(&mut self.told) {
            let count = from.load(Ordering::Relaxed);
            into.fetch_add(count - *told, Ordering::Relaxed);
            *told = count;
        }
    }
}

/// One thread's measurements.
#[derive(Default)]
struct ThreadOutcome {
    /// Of the measured part, like the other fields.
    sent: u64,
    send_nanos: u64,
    schedule_error: Latencies,
    busy: f64,
}

/// One sending thread.
struct Sender<'a> {
    group: &'a Group<'a>,
    producer: &'a Producer,
    client: usize,
    schedule: Option<Schedule>,
    /// 0: no limit.
    records: u64,
    values: Values,
    keys: KeySource,
    places: Places,
    stamp_producer: u32,
    current: Current,
    outcome: ThreadOutcome,
    /// Not yet in the group's count.
    untold: u64,
}

impl<'a> Sender<'a> {
    /// - Shape: `number` of `all` threads of the group.
    fn new(group: &'a Group<'a>, producer: &'a Producer, client: usize, number: u64, all: u64) -> Sender<'a> {
        let load = group.load;
        let begin_nanos = group.answers.span.begin_nanos;
        Sender {
            group,
            producer,
            client,
            schedule: load
                .rate
                .map(|rate| Schedule::new(begin_nanos, rate, number, all)),
            records: match load.records {
                0 => u64::MAX,
                records => records / all + u64::from(number < records % all),
            },
            values: group.source.values(),
            keys: KeySource::new(load.keys, number, all),
            places: Places::new(load, number as usize, all as usize),
            stamp_producer: stamp::new_producer(),
            current: Current::default(),
            outcome: ThreadOutcome {
                schedule_error: Latencies::with_room(),
                ..ThreadOutcome::default()
            },
            untold: 0,
        }
    }

    fn run(mut self) -> ThreadOutcome {
        be_punctual();
        if let Err(error) = self.look_up_topics() {
            self.group.fail(error);
            return self.outcome;
        }
        let span = self.group.answers.span;
        let mut busy = Busy::default();
        let mut now = now_nanos();
        for sequence in 0..self.records {
            let due = self.schedule.map_or_else(
                || now.max(span.begin_nanos),
                |schedule| schedule.due_nanos(sequence),
            );
            if now < due {
                self.tell();
                now = wait_until(due, now, self.group.stop);
            }
            let last_nanos = span.end_nanos + if self.schedule.is_some() { GRACE_NANOS } else { 0 };
            if due >= span.end_nanos || now >= last_nanos || self.group.must_stop() {
                break;
            }
            if now >= span.measured_nanos {
                busy.begin(now);
            }
            // Without a schedule a record is due when its turn comes, which is known only now.
            let due = if self.schedule.is_some() { due } else { now };
            now = self.send(sequence, due, now);
        }
        self.tell();
        self.current.leave(&self.group.answers.timeline);
        self.outcome.busy = busy.share(now_nanos().min(span.end_nanos + GRACE_NANOS));
        self.outcome
    }

    fn look_up_topics(&self) -> Result<(), Error> {
        for topic in &self.group.load.topics {
            let partition_count = self.producer.partitions_for(&topic.name)?.partitions.len();
            if partition_count < topic.partitions as usize {
                return Err(Error::InvalidArgument {
                    message: format!(
                        "topic {} has {partition_count} partitions, {} were expected",
                        topic.name, topic.partitions
                    )
                    .into(),
                });
            }
        }
        Ok(())
    }

    /// Sends a record; returns the time afterwards.
    fn send(&mut self, sequence: u64, due_nanos: u64, now: u64) -> u64 {
        let group = self.group;
        let key = self.keys.next_key();
        let value = self.values.next_value();
        let stamp = Stamp {
            producer: self.stamp_producer,
            sequence,
            due_nanos,
            sent_nanos: now,
        };
        stamp.write(value);
        let (topic, partition) = self.places.next();
        let sent = Sent {
            due_nanos,
            sent_nanos: now,
            bytes: (value.len() + key.map_or(0, <[u8]>::len)) as u32,
            topic: topic as u32,
        };
        let record = Record {
            topic: &group.load.topics[topic].name,
            partition,
            key,
            value: Some(value),
            ..Record::default()
        };
        let result = match group.load.is_synchronous {
            false => self
                .producer
                .send_with(&record, on_answer(group, self.client, sent)),
            true => self.producer.send(&record).map(|future| {
                group.answers.take(self.client, sent, future.wait());
            }),
        };
        let after = now_nanos();
        self.count(due_nanos, now, after);
        if let Err(error) = result {
            group.answers.refused(self.client, due_nanos, &error);
            if self.schedule.is_none() {
                return wait_until(after + REFUSED_NANOS, after, group.stop);
            }
        }
        after
    }

    fn count(&mut self, due_nanos: u64, sent_nanos: u64, after: u64) {
        self.untold += 1;
        if self.untold >= 64 {
            self.tell();
        }
        self.current.sent(&self.group.answers.timeline, sent_nanos);
        if self.group.answers.span.is_measured(due_nanos) {
            self.outcome.sent += 1;
            self.outcome.send_nanos += after.saturating_sub(sent_nanos);
            if self.schedule.is_some() {
                let late_micros = sent_nanos.saturating_sub(due_nanos) / 1_000;
                self.outcome.schedule_error.record(late_micros);
            }
        }
    }

    fn tell(&mut self) {
        self.group
            .sent
            .fetch_add(std::mem::take(&mut self.untold), Ordering::Relaxed);
    }
}

fn on_answer(
    group: &Group<'_>,
    client: usize,
    sent: Sent,
) -> impl FnOnce(Result<ottla_client::producer::RecordMetadata, Error>) + Send + 'static {
    let answers = Arc::clone(&group.answers);
    let work = group.work.clone();
    move |result| {
        answers.take(client, sent, result);
        work.run();
    }
}

/// The targets of a thread's records, in turn.
#[derive(Debug)]
struct Places {
    /// Topic and, unless the client's partitioner chooses, partition.
    places: Vec<(usize, Option<i32>)>,
    next: usize,
}

impl Places {
    fn new(load: &ProduceLoad, thread: usize, threads: usize) -> Places {
        let pairs = || {
            let topics = load.topics.iter().enumerate();
            topics.flat_map(|(topic, spec)| (0..spec.partitions).map(move |p| (topic, Some(p.cast_signed()))))
        };
        let places: Vec<(usize, Option<i32>)> = match load.partitioning {
            Partitioning::Client => (0..load.topics.len()).map(|topic| (topic, None)).collect(),
            Partitioning::RoundRobin => pairs().collect(),
            Partitioning::OwnPerThread => {
                let count = pairs().count();
                // With more threads than partitions, several threads share one.
                let first = thread % threads.min(count);
                pairs().skip(first).step_by(threads.min(count)).collect()
            }
        };
        Places {
            next: thread % places.len(),
            places,
        }
    }

    #[inline]
    fn next(&mut self) -> (usize, Option<i32>) {
        let place = self.places[self.next];
        self.next += 1;
        if self.next == self.places.len() {
            self.next = 0;
        }
        place
    }
}

/// The share of a processor that the thread uses in the measured part.
#[derive(Debug, Default)]
struct Busy {
    /// Start time and processor time.
    began: Option<(u64, u64)>,
}

impl Busy {
    #[inline]
    fn begin(&mut self, now: u64) {
        if self.began.is_none() {
            self.began = Some((now, thread_cpu_nanos()));
        }
    }

    fn share(&self, now: u64) -> f64 {
        let Some((began, cpu)) = self.began else {
            return 0.0;
        };
        let used = thread_cpu_nanos().saturating_sub(cpu);
        // The two clocks have different granularity.
        (used as f64 / now.saturating_sub(began).max(1) as f64).min(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::TopicLoad;

    fn load(partitioning: Partitioning, topics: &[(&str, u32)]) -> ProduceLoad {
        let topic = |(name, partitions): &(&str, u32)| TopicLoad {
            name: (*name).to_owned(),
            partitions: *partitions,
        };
        ProduceLoad {
            topics: topics.iter().map(topic).collect(),
            partitioning,
            ..ProduceLoad::example()
        }
    }

    fn first(load: &ProduceLoad, thread: usize, threads: usize, count: usize) -> Vec<(usize, Option<i32>)> {
        let mut places = Places::new(load, thread, threads);
        (0..count).map(|_| places.next()).collect()
    }

    #[test]
    fn round_robin_goes_through_every_partition_of_every_topic() {
        let load = load(Partitioning::RoundRobin, &[("a", 2), ("b", 1)]);
        let expected = [(0, Some(0)), (0, Some(1)), (1, Some(0)), (0, Some(0))];
        assert_eq!(first(&load, 0, 1, 4), expected);
        assert_eq!(first(&load, 1, 2, 3), expected[1..]);
    }

    #[test]
    fn threads_with_their_own_partitions_share_none() {
        let load = load(Partitioning::OwnPerThread, &[("a", 5)]);
        let mut of_one = first(&load, 0, 2, 3);
        let of_other = first(&load, 1, 2, 3);
        assert_eq!(of_one.len() + of_other.len() - 1, 5);
        of_one.retain(|place| of_other.contains(place));
        assert!(of_one.is_empty(), "{of_one:?}");
        // More threads than partitions.
        assert_eq!(first(&load, 7, 8, 1), [(0, Some(2))]);
    }

    #[test]
    fn the_clients_partitioner_gets_topics_in_turn() {
        let load = load(Partitioning::Client, &[("a", 2), ("b", 1)]);
        assert_eq!(first(&load, 0, 1, 3), [(0, None), (1, None), (0, None)]);
    }

    #[test]
    fn impossible_loads_are_refused() {
        let good = load(Partitioning::Client, &[("a", 1)]);
        let bad = [
            ProduceLoad {
                clients: 0,
                ..good.clone()
            },
            ProduceLoad {
                rate: Some(0.0),
                ..good.clone()
            },
            ProduceLoad {
                rate: Some(f64::NAN),
                ..good.clone()
            },
            ProduceLoad {
                topics: Vec::new(),
                ..good.clone()
            },
        ];
        assert!(check(&good).is_ok());
        assert!(bad.iter().all(|load| check(load).is_err()));
    }

    impl ProduceLoad {
        fn example() -> ProduceLoad {
            ProduceLoad {
                name: String::from("load"),
                settings: std::collections::BTreeMap::new(),
                topics: Vec::new(),
                clients: 1,
                threads: 1,
                rate: None,
                records: 0,
                record_bytes: 100,
                contents: crate::load::Contents::Random,
                keys: crate::load::Keys::None,
                partitioning: Partitioning::Client,
                is_synchronous: false,
                callback: Duration::ZERO,
                callback_threads: 0,
            }
        }
    }
}
