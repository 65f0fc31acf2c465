//! Counts the results of records, on the callback threads of a group's producers.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use ottla_client::Error;
use ottla_client::producer::RecordMetadata;

use super::clock::{Span, now_nanos};
use super::errors::Errors;
use super::lock;
use super::outcome::{ProduceOutcome, RecordPlace, SentRecord};
use super::samples::Samples;
use super::timeline::{Current, Timeline};
use crate::report::histogram::Latencies;

/// Clients share at most this many parts: histograms of hundreds of clients would take hundreds of
/// megabytes.
const PARTS_MAX: usize = 16;

/// A topic of the group, and the course's count of its acknowledged records.
#[derive(Debug)]
pub struct Topic {
    pub name: String,
    pub acknowledged: Arc<AtomicU64>,
}

/// A record under way.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    pub due_nanos: u64,
    pub sent_nanos: u64,
    /// The size of key and value.
    pub bytes: u32,
    pub topic: u32,
}

/// Which records belong to the measured part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// Those that were due in it, whenever they are answered: for a schedule, or a number of
    /// records.
    WhenDue,
    /// Those that were answered in it: for the highest rate over a time. What is in the producer's
    /// buffer at the end, possibly an hour's worth across a slow link, says nothing and is given
    /// up.
    WhenAnswered,
}

/// The counts of one group.
#[derive(Debug)]
pub struct Answers {
    pub span: Span,
    pub has_schedule: bool,
    pub counted: Counted,
    /// From here on nothing is counted: the time of [`Counted::WhenAnswered`] is over.
    pub is_given_up: AtomicBool,
    pub timeline: Timeline,
    /// Of the whole course, for the progress bar.
    pub acknowledged: AtomicU64,
    pub failed: AtomicU64,
    topics: Vec<Topic>,
    parts: Vec<Mutex<Part>>,
}

#[derive(Debug)]
struct Part {
    acknowledged: u64,
    failed: u64,
    bytes: u64,
    latency: Latencies,
    service: Latencies,
    first_nanos: u64,
    last_nanos: u64,
    errors: Errors,
    current: Current,
    samples: Samples<Sample>,
}

#[derive(Debug)]
struct Sample {
    sent: Sent,
    partition: i32,
    offset: i64,
    acknowledged_nanos: u64,
}

impl Answers {
    pub fn new(
        span: Span,
        has_schedule: bool,
        counted: Counted,
        topics: Vec<Topic>,
        clients: usize,
    ) -> Answers {
        let parts = clients.clamp(1, PARTS_MAX);
        Answers {
            span,
            has_schedule,
            counted,
            is_given_up: AtomicBool::new(false),
            timeline: Timeline::new(span),
            acknowledged: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            topics,
            parts: (0..parts).map(|_| Mutex::new(Part::new(parts))).collect(),
        }
    }

    /// Counts the answer to a record of client `client`, at the current time.
    pub fn take(&self, client: usize, sent: Sent, result: Result<RecordMetadata, Error>) {
        let now = now_nanos();
        let mut part = lock(&self.parts[client % self.parts.len()]);
        let is_measured = self.span.is_measured(match self.counted {
            Counted::WhenDue => sent.due_nanos,
            Counted::WhenAnswered => now,
        });
        match result {
            Ok(place) => {
                self.acknowledged.fetch_add(1, Ordering::Relaxed);
                self.topics[sent.topic as usize]
                    .acknowledged
                    .fetch_add(1, Ordering::Relaxed);
                let latency = now.saturating_sub(sent.due_nanos) / 1_000;
                part.current
                    .done(&self.timeline, now, self.has_schedule.then_some(latency));
                if is_measured {
                    part.acknowledged(now, sent, self.has_schedule);
                    part.samples.offer(place.partition, place.offset, || Sample {
                        sent,
                        partition: place.partition,
                        offset: place.offset,
                        acknowledged_nanos: now,
                    });
                }
            }
            Err(error) => self.count_failed(&mut part, is_measured, &error),
        }
    }

    /// Counts a record that `send` refused.
    pub fn refused(&self, client: usize, due_nanos: u64, error: &Error) {
        let mut part = lock(&self.parts[client % self.parts.len()]);
        self.count_failed(&mut part, self.span.is_measured(due_nanos), error);
    }

    fn count_failed(&self, part: &mut Part, is_measured: bool, error: &Error) {
        if self.is_given_up.load(Ordering::Relaxed) {
            return;
        }
        self.failed.fetch_add(1, Ordering::Relaxed);
        part.failed += u64::from(is_measured);
        // Errors of the warm-up count too: a run with errors is not a good run.
        part.errors.add(&error.to_string(), 1);
    }

    /// Combines all parts, once no callback runs any more.
    ///
    /// - `ended_nanos`: when the last thread stopped sending.
    pub fn outcome(&self, name: &str, rate: Option<f64>, sent: u64, ended_nanos: u64) -> ProduceOutcome {
        let mut outcome = ProduceOutcome {
            name: name.to_owned(),
            sent,
            acknowledged_in_all: self.acknowledged.load(Ordering::Relaxed),
            ..ProduceOutcome::default()
        };
        let mut errors = Errors::default();
        let (mut first, mut last) = (u64::MAX, 0);
        let mut samples = Vec::new();
        for part in &self.parts {
            let mut part = lock(part);
            part.current.leave(&self.timeline);
            outcome.acknowledged += part.acknowledged;
            outcome.failed += part.failed;
            outcome.bytes += part.bytes;
            outcome.latency.add(&part.latency);
            outcome.service.add(&part.service);
            errors.merge(&part.errors);
            first = first.min(part.first_nanos);
            last = last.max(part.last_nanos);
            samples.push(std::mem::replace(&mut part.samples, Samples::share_of(1)));
        }
        let answering = last.saturating_sub(first) as f64 / 1e9;
        // Records that were due over two seconds and arrived in two batches have answers less than
        // two seconds apart.
        let scheduled = rate.map_or(0.0, |rate| sent as f64 / rate);
        outcome.seconds = match self.counted {
            Counted::WhenDue => answering.max(scheduled),
            Counted::WhenAnswered => {
                let ended = ended_nanos.min(self.span.end_nanos);
                ended.saturating_sub(self.span.measured_nanos) as f64 / 1e9
            }
        };
        outcome.errors = errors.into_map();
        outcome.timeline = self.timeline.take();
        outcome.samples = Samples::merge(samples)
            .into_iter()
            .map(|sample| self.place(sample))
            .collect();
        outcome
    }

    fn place(&self, sample: Sample) -> SentRecord {
        SentRecord {
            place: RecordPlace {
                topic: self.topics[sample.sent.topic as usize].name.clone(),
                partition: sample.partition,
                offset: sample.offset,
            },
            due_nanos: sample.sent.due_nanos,
            sent_nanos: sample.sent.sent_nanos,
            acknowledged_nanos: sample.acknowledged_nanos,
        }
    }
}

impl Part {
    fn new(parts: usize) -> Part {
        Part {
            acknowledged: 0,
            failed: 0,
            bytes: 0,
            latency: Latencies::with_room(),
            service: Latencies::with_room(),
            first_nanos: u64::MAX,
            last_nanos: 0,
            errors: Errors::default(),
            current: Current::default(),
            samples: Samples::share_of(parts),
        }
    }

    fn acknowledged(&mut self, now: u64, sent: Sent, has_schedule: bool) {
        self.acknowledged += 1;
        self.bytes += u64::from(sent.bytes);
        if has_schedule {
            self.latency.record(now.saturating_sub(sent.due_nanos) / 1_000);
        }
        self.service.record(now.saturating_sub(sent.sent_nanos) / 1_000);
        self.first_nanos = self.first_nanos.min(now);
        self.last_nanos = self.last_nanos.max(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers(has_schedule: bool) -> Answers {
        let now = now_nanos();
        let span = Span {
            begin_nanos: now - 5_000_000_000,
            measured_nanos: now - 4_000_000_000,
            end_nanos: now + 60_000_000_000,
        };
        let topic = Topic {
            name: String::from("t"),
            acknowledged: Arc::default(),
        };
        Answers::new(span, has_schedule, Counted::WhenDue, vec![topic], 2)
    }

    fn sent(answers: &Answers, after_begin_nanos: u64, late_nanos: u64) -> Sent {
        Sent {
            due_nanos: answers.span.begin_nanos + after_begin_nanos,
            sent_nanos: answers.span.begin_nanos + after_begin_nanos + late_nanos,
            bytes: 100,
            topic: 0,
        }
    }

    fn at(offset: i64) -> Result<RecordMetadata, Error> {
        Ok(RecordMetadata {
            partition: 0,
            offset,
            timestamp: 0,
        })
    }

    #[test]
    fn latency_counts_from_when_a_record_was_due() {
        let answers = answers(true);
        // Due three seconds ago, sent two seconds late.
        let sent = sent(&answers, 2_000_000_000, 2_000_000_000);
        answers.take(0, sent, at(0));
        let outcome = answers.outcome("g", Some(1.0), 1, now_nanos());
        assert!(outcome.latency.max() >= 3_000_000);
        assert!(
            (1_000_000..2_900_000).contains(&outcome.service.max()),
            "{}",
            outcome.service.max()
        );
    }

    #[test]
    fn the_warm_up_counts_for_readers_only() {
        let answers = answers(true);
        answers.take(0, sent(&answers, 0, 0), at(0));
        answers.take(1, sent(&answers, 1_000_000_000, 0), at(1));
        let outcome = answers.outcome("g", Some(1.0), 1, now_nanos());
        assert_eq!((outcome.acknowledged, outcome.acknowledged_in_all), (1, 2));
        assert_eq!(outcome.bytes, 100);
        assert_eq!(outcome.latency.count(), 1);
        assert_eq!(answers.topics[0].acknowledged.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn without_a_schedule_there_is_no_latency() {
        let answers = answers(false);
        answers.take(0, sent(&answers, 1_000_000_000, 0), at(0));
        let outcome = answers.outcome("g", None, 1, now_nanos());
        assert_eq!((outcome.latency.count(), outcome.service.count()), (0, 1));
    }

    #[test]
    fn without_a_schedule_the_time_of_the_answer_decides() {
        let mut answers = answers(false);
        answers.counted = Counted::WhenAnswered;
        // Sent in the warm-up and answered in the measured part, and vice versa.
        answers.take(0, sent(&answers, 0, 0), at(0));
        let measured_nanos = answers.span.measured_nanos;
        let outcome = answers.outcome("g", None, 0, now_nanos());
        assert_eq!((outcome.acknowledged, outcome.acknowledged_in_all), (1, 1));
        // The whole part, not the time between its first and its last answer.
        assert!(outcome.seconds >= 4.0, "{}", outcome.seconds);
        answers.span.end_nanos = measured_nanos + 1_000_000_000;
        answers.take(0, sent(&answers, 1_500_000_000, 0), at(1));
        let outcome = answers.outcome("g", None, 1, now_nanos());
        assert_eq!((outcome.acknowledged, outcome.acknowledged_in_all), (1, 2));
        assert_eq!(outcome.seconds, 1.0);
    }

    #[test]
    fn what_is_given_up_has_not_failed() {
        let answers = answers(false);
        answers.is_given_up.store(true, Ordering::Relaxed);
        answers.take(0, sent(&answers, 1_000_000_000, 0), Err(Error::Closed));
        let outcome = answers.outcome("g", None, 1, now_nanos());
        assert_eq!(outcome.failed, 0);
        assert!(outcome.errors.is_empty());
    }

    #[test]
    fn failures_are_counted_by_their_text() {
        let answers = answers(true);
        answers.take(0, sent(&answers, 1_000_000_000, 0), Err(Error::Closed));
        answers.refused(1, answers.span.measured_nanos, &Error::Closed);
        let outcome = answers.outcome("g", Some(1.0), 2, now_nanos());
        assert_eq!((outcome.acknowledged, outcome.failed), (0, 2));
        assert_eq!(outcome.errors.values().sum::<u64>(), 2);
        assert_eq!(outcome.errors.len(), 1);
    }

    #[test]
    fn a_sample_has_its_partition_and_offset() {
        let answers = answers(true);
        for offset in 0..10 {
            answers.take(0, sent(&answers, 1_000_000_000, 7), at(offset));
        }
        let outcome = answers.outcome("g", Some(1.0), 10, now_nanos());
        assert_eq!(outcome.samples.len(), 10);
        assert_eq!(outcome.samples[3].place.topic, "t");
        assert_eq!(outcome.samples[3].sent_nanos - outcome.samples[3].due_nanos, 7);
    }
}
