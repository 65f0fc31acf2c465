//! One producer of the client over a simulated network and simulated brokers, with invariants for
//! every record.
//!
//! The code is the real client: accumulator, sender, cluster, callbacks. Only threads, sockets and
//! brokers are simulated.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use ottla_client::Error;
use ottla_client::config::{Config, ProducerConfig};
use ottla_client::machine::metadata::{Interest, MetadataCell};
use ottla_client::machine::metrics::Telemetry;
use ottla_client::machine::network::io::{Action, Event, Machine};
use ottla_client::machine::producer::Accumulator;
use ottla_client::machine::producer::BatchCompletion;
use ottla_client::machine::producer::Commands;
use ottla_client::machine::producer::{Callback, CallbackQueue};
use ottla_client::machine::producer::{ProducerMachine, SenderParts};
use ottla_client::machine::time::{Clock, Moment, Timestamp};
use ottla_client::metrics::{ClientKind, ClientMetrics};
use ottla_client::producer::{DeliveryStatus, Record, RecordMetadata};
use ottla_log::disk::memory::Random;

use crate::brokers::{Played, REFUSED_PREFIX, TOPIC};
use crate::network::{Network, Server, Troubles};

/// A day in 2026, so that timestamps are plausible.
const EPOCH_MS: i64 = 1_790_000_000_000;
const NANOS_PER_MS: u64 = 1_000_000;
/// More turns than this at one moment are a livelock: the machine asks to be called forever.
const TURNS_AT_ONCE_MAX: u32 = 10_000;

#[derive(Debug, Default)]
struct SharedClock(AtomicU64);

impl Clock for SharedClock {
    fn moment(&self) -> Moment {
        Moment::from_nanos(self.0.load(Ordering::Relaxed))
    }

    fn timestamp(&self) -> Timestamp {
        Timestamp(EPOCH_MS + (self.moment().nanos() / NANOS_PER_MS) as i64)
    }
}

/// The brokers of a run.
pub trait Backend: Server {
    /// `bootstrap.servers`
    fn addresses(&self) -> String;

    fn partition_count(&self) -> usize;

    /// The values of a partition in order of offset; offsets have no gaps.
    fn values(&mut self, partition: usize) -> Vec<String>;

    /// Called at every step: may change leaders, and stop and start brokers.
    fn shake(&mut self, now: Moment, network: &mut Network<Self::Work>, events: &mut Vec<Event>);

    /// Ends all faults.
    fn calm_down(&mut self);

    fn played(&self) -> Played {
        Played::default()
    }
}

/// The settings of a run.
#[derive(Clone, Debug)]
pub struct Scenario {
    pub settings: Vec<(&'static str, String)>,
    pub thread_count: u64,
    pub troubles: Troubles,
    /// Records per thread.
    pub record_count: u64,
    /// The mean time between two sends of a thread, in microseconds.
    pub pause_micros: u64,
    pub value_bytes_max: u64,
    /// Epochs run out; after a change of the producer id late requests are not fenced.
    pub changes_producer_id: bool,
    /// The scripted brokers refuse one in this many records.
    pub refused_records: u64,
    /// If set, `close` is called right after the last record with this timeout, while faults
    /// continue.
    pub close_within_ms: Option<u64>,
    /// Whether records may fail for other reasons than a timeout: brokers refuse some, or `retries`
    /// is small.
    pub may_refuse: bool,
}

/// The arguments of all calls of a record's callback.
type Calls = Mutex<Vec<Result<RecordMetadata, Error>>>;

/// A record and its outcome.
#[derive(Debug)]
struct Sent {
    partition: i32,
    value: String,
    sent_at: Moment,
    completion: Arc<BatchCompletion>,
    index: u32,
    timestamp: i64,
    outcome: Option<Result<RecordMetadata, Error>>,
    called_back: Option<Arc<Calls>>,
}

/// The totals of a run, so that a test can check that faults were injected.
#[derive(Clone, Copy, Debug, Default)]
pub struct Report {
    pub acknowledged: u64,
    pub failed: u64,
    pub failed_but_stored: u64,
    /// Failed records by `delivery_status`.
    pub not_written: u64,
    pub maybe_written: u64,
    pub stored_twice: u64,
    pub broken_connections: u64,
    pub late_requests: u64,
    pub played: Played,
}

pub struct Producing<B: Backend> {
    seed: u64,
    scenario: Scenario,
    config: Arc<ProducerConfig>,
    clock: Arc<SharedClock>,
    random: Random,
    network: Network<B::Work>,
    brokers: B,
    metadata: Arc<MetadataCell>,
    accumulator: Arc<Accumulator>,
    commands: Arc<Commands>,
    callbacks: Arc<CallbackQueue>,
    machine: ProducerMachine,
    sent: Vec<Sent>,
    /// Records without an outcome at the last check, by index in `sent`.
    open: Vec<usize>,
    next_number: Vec<u64>,
    next_send: Vec<Moment>,
    is_woken: bool,
    is_quiet: bool,
    turns_at_once: u32,
}

impl<B: Backend> Producing<B> {
    pub fn new(seed: u64, scenario: Scenario, brokers: B) -> Producing<B> {
        let mut random = Random::new(seed ^ 0x70AD);
        let mut config = Config::new().set("bootstrap.servers", brokers.addresses());
        for (key, value) in &scenario.settings {
            config = config.set(*key, value);
        }
        let config = Arc::new(ProducerConfig::from_config(&config).expect("the settings are valid"));
        let clock = Arc::new(SharedClock(AtomicU64::new(1_000 * NANOS_PER_MS)));
        let metrics = ClientMetrics::new(ClientKind::Producer, &config.client, clock.clone());
        let metadata = Arc::new(MetadataCell::new(Interest::Named));
        let accumulator = Arc::new(Accumulator::new(config.clone(), metrics.producer().clone()));
        let commands = Arc::new(Commands::default());
        let callbacks = Arc::new(CallbackQueue::new(metrics.producer().clone(), clock.clone()));
        let machine = ProducerMachine::new(SenderParts {
            config: config.clone(),
            metadata: metadata.clone(),
            accumulator: accumulator.clone(),
            commands: commands.clone(),
            callbacks: callbacks.clone(),
            metrics: metrics.producer().clone(),
            network_metrics: metrics.network().clone(),
            telemetry: Telemetry::new(&config.client, metrics.clone(), random.next()),
            seed: random.next(),
        });
        metadata.want([TOPIC]);
        let threads = scenario.thread_count as usize;
        Producing {
            seed,
            network: Network::new(random.next(), scenario.troubles),
            config,
            brokers,
            metadata,
            accumulator,
            commands,
            callbacks,
            machine,
            sent: Vec::new(),
            open: Vec::new(),
            next_number: vec![0; threads],
            next_send: vec![clock.moment(); threads],
            is_woken: true,
            is_quiet: false,
            turns_at_once: 0,
            clock,
            random,
            scenario,
        }
    }

    /// Sends everything, waits for all answers, closes, and checks every record.
    pub fn run(mut self) -> Report {
        while self
            .next_number
            .iter()
            .any(|number| *number < self.scenario.record_count)
        {
            self.step();
        }
        match self.scenario.close_within_ms {
            Some(limit_ms) => self.close(limit_ms),
            None => self.calm_down(),
        }
        self.check()
    }

    /// Ends the faults; every record must have an outcome within the delivery timeout.
    fn calm_down(&mut self) {
        // In half of the runs the faults continue until every record has an outcome.
        if self.random.one_in(2) {
            self.is_quiet = true;
            self.network.troubles = Troubles::NONE;
            self.brokers.calm_down();
        }
        while self.accumulator.incomplete_batches() > 0 {
            self.step();
        }
        self.close(u64::MAX);
    }

    fn close(&mut self, limit_ms: u64) {
        let deadline = self.clock.moment().after_ms(limit_ms);
        self.accumulator.close();
        self.accumulator.seal_all(self.clock.moment());
        self.commands.close(deadline);
        self.is_woken = true;
        let slack = deadline.after_ms(1);
        while !self.machine.is_finished() {
            self.step();
            assert!(
                self.clock.moment() <= slack,
                "seed {}: not closed after {limit_ms} ms, {} batches are left",
                self.seed,
                self.accumulator.incomplete_batches()
            );
        }
    }

    /// Advances the time to the next event.
    fn step(&mut self) {
        let now = self.next_moment();
        if now == self.clock.moment() {
            self.turns_at_once += 1;
            assert!(
                self.turns_at_once < TURNS_AT_ONCE_MAX,
                "seed {}: the machine wants to be called at {now:?} for ever",
                self.seed
            );
        } else {
            self.turns_at_once = 0;
        }
        self.clock.0.store(now.nanos(), Ordering::Relaxed);
        let mut events = Vec::new();
        self.network.step(now, &mut self.brokers, &mut events);
        if !self.is_quiet {
            self.brokers.shake(now, &mut self.network, &mut events);
        }
        self.send_records(now);
        let has_turned = self.drive(now, events);
        if self.random.one_in(3) {
            while self.callbacks.run_arrived() {}
        }
        // Outcomes change only in turns; the occasional check notices a machine that is never
        // called.
        if has_turned || self.random.one_in(64) {
            self.look_at_outcomes(now);
        }
    }

    fn next_moment(&mut self) -> Moment {
        let now = self.clock.moment();
        let threads = self
            .next_send
            .iter()
            .zip(&self.next_number)
            .filter(|(_, number)| **number < self.scenario.record_count)
            .map(|(at, _)| *at);
        let woken = self.is_woken.then_some(now);
        [self.machine.next_deadline(), self.network.next_at(), woken]
            .into_iter()
            .flatten()
            .chain(threads)
            .min()
            // There is no further event: something waits forever, which the checks will report.
            .unwrap_or(now.after_ms(1_000))
            .max(now)
    }

    fn drive(&mut self, now: Moment, events: Vec<Event>) -> bool {
        let is_due = self
            .machine
            .next_deadline()
            .is_some_and(|deadline| deadline <= now);
        if events.is_empty() && !is_due && !self.is_woken {
            return false;
        }
        self.is_woken = false;
        for event in events {
            self.machine.handle(now, event);
        }
        let mut actions: Vec<Action> = Vec::new();
        self.machine.turn(now, self.clock.timestamp(), &mut actions);
        for action in actions {
            self.network.act(now, action);
        }
        true
    }

    fn send_records(&mut self, now: Moment) {
        for thread in 0..self.scenario.thread_count {
            let index = thread as usize;
            if self.next_send[index] > now || self.next_number[index] >= self.scenario.record_count {
                continue;
            }
            // A thread that found no buffer memory retries soon, as if the pool had woken it.
            let pause_micros = match self.send(now, thread) {
                true => self.random.below(2 * self.scenario.pause_micros + 1),
                false => 1_000,
            };
            self.next_send[index] = Moment::from_nanos(now.nanos() + pause_micros * 1_000);
        }
    }

    fn send(&mut self, now: Moment, thread: u64) -> bool {
        let Some(topic) = self.metadata.topic(TOPIC) else {
            return false;
        };
        let partition = self.random.below(topic.partitions.len() as u64) as i32;
        let number = self.next_number[thread as usize];
        let prefix = match self.random.one_in(self.scenario.refused_records) {
            true => REFUSED_PREFIX,
            false => "",
        };
        let padding = self.random.below(self.scenario.value_bytes_max + 1) as usize;
        let value = format!("{prefix}{thread}:{number}:{}", "x".repeat(padding));
        let record = Record {
            topic: TOPIC,
            value: Some(value.as_bytes()),
            ..Record::default()
        };
        let called_back = self.random.one_in(2).then(Arc::default);
        let callback = called_back.clone().map(recording);
        let timestamp = self.clock.timestamp().0;
        let appended = self
            .accumulator
            .append(now, &topic, partition, &record, timestamp, callback);
        let appended = match appended {
            Ok(appended) => appended,
            Err((Error::BufferExhausted { .. }, _)) => return false,
            Err((error, _)) => panic!("seed {}: {error}", self.seed),
        };
        self.is_woken |= appended.sender_must_wake;
        self.next_number[thread as usize] += 1;
        self.open.push(self.sent.len());
        self.sent.push(Sent {
            partition,
            value,
            sent_at: now,
            completion: appended.completion,
            index: appended.index,
            timestamp,
            outcome: None,
            called_back,
        });
        true
    }

    /// Checks that no record takes longer than the delivery timeout.
    fn look_at_outcomes(&mut self, now: Moment) {
        let limit_ms = self.config.delivery_timeout_ms;
        let sent = &mut self.sent;
        let seed = self.seed;
        self.open.retain(|index| {
            let sent = &mut sent[*index];
            sent.outcome = sent.completion.outcome(sent.index, sent.timestamp);
            assert!(
                sent.outcome.is_some() || now <= sent.sent_at.after_ms(limit_ms),
                "seed {seed}: {} of {} ms ago is not decided",
                sent.value,
                now.ms_since(sent.sent_at)
            );
            sent.outcome.is_none()
        });
    }

    fn check(mut self) -> Report {
        let seed = self.seed;
        while self.callbacks.run_arrived() {}
        assert_eq!(self.callbacks.panicked(), 0, "seed {seed}");
        self.look_at_outcomes(self.clock.moment());
        assert!(
            self.open.is_empty(),
            "seed {seed}: {} records undecided",
            self.open.len()
        );
        let stored: Vec<Vec<String>> = (0..self.brokers.partition_count())
            .map(|partition| self.brokers.values(partition))
            .collect();
        let mut report = Report {
            broken_connections: self.network.broken_connections,
            late_requests: self.network.late_requests,
            played: self.brokers.played(),
            ..Report::default()
        };
        if self.config.enable_idempotence {
            assert_eq!(report.played.without_producer_id, 0, "seed {seed}");
        }
        let places = places(&stored);
        for sent in &self.sent {
            self.check_record(sent, &stored, &places, &mut report);
        }
        for (partition, values) in stored.iter().enumerate() {
            self.check_order(partition, values);
        }
        let Producing {
            machine,
            network,
            accumulator,
            sent,
            ..
        } = self;
        drop((machine, network, sent));
        let pool = accumulator.pool();
        assert_eq!(
            pool.available_bytes(),
            pool.total_bytes(),
            "seed {seed}: memory of batches was not given back"
        );
        report
    }

    fn check_record(
        &self,
        sent: &Sent,
        stored: &[Vec<String>],
        places: &BTreeMap<(usize, &str), Vec<usize>>,
        report: &mut Report,
    ) {
        let seed = self.seed;
        let partition = sent.partition as usize;
        let found = places.get(&(partition, sent.value.as_str())).map_or(0, Vec::len) as u64;
        let outcome = sent.outcome.as_ref().expect("all are decided");
        if self.config.enable_idempotence {
            assert!(found <= 1, "seed {seed}: {} is stored {found} times", sent.value);
        }
        report.stored_twice += found.saturating_sub(1);
        match outcome {
            Ok(metadata) => {
                report.acknowledged += 1;
                assert_eq!(metadata.partition, sent.partition, "seed {seed}");
                assert_eq!(metadata.timestamp, sent.timestamp, "seed {seed}");
                assert_eq!(DeliveryStatus::of(outcome), DeliveryStatus::Written);
                let is_offset_unknown = metadata.offset == -1 && report.played.refused_duplicates > 0;
                if is_offset_unknown {
                    assert_eq!(found, 1, "seed {seed}: {}", sent.value);
                } else if self.config.acks.code() == 0 {
                    assert_eq!(metadata.offset, -1, "seed {seed}");
                } else {
                    let there = stored[partition].get(metadata.offset as usize);
                    assert_eq!(
                        there,
                        Some(&sent.value),
                        "seed {seed}: {partition} at offset {}",
                        metadata.offset
                    );
                }
            }
            Err(error) => {
                report.failed += 1;
                report.failed_but_stored += found;
                match error.delivery_status() {
                    DeliveryStatus::NotWritten => {
                        report.not_written += 1;
                        assert_eq!(found, 0, "seed {seed}: {} is stored: {error}", sent.value);
                    }
                    _ => {
                        report.maybe_written += 1;
                        assert!(!error.is_retriable(), "seed {seed}: {error}");
                    }
                }
                let may_fail = self.scenario.may_refuse
                    || matches!(error.cause(), Error::Timeout { .. } | Error::Closed);
                assert!(may_fail, "seed {seed}: {} failed: {error}", sent.value);
            }
        }
        if let Some(calls) = &sent.called_back {
            let calls = calls.lock().expect("no callback panics");
            assert_eq!(calls.len(), 1, "seed {seed}: {} was called back", sent.value);
            assert_eq!(&calls[0], outcome, "seed {seed}: future and callback differ");
        }
    }

    /// Checks that records of one thread are in the order in which it sent them; duplicates of an
    /// earlier one do not count.
    fn check_order(&self, partition: usize, values: &[String]) {
        let keeps_order =
            self.config.enable_idempotence || self.config.max_in_flight_requests_per_connection == 1;
        if !keeps_order {
            return;
        }
        let acknowledged: BTreeMap<&str, bool> = self
            .sent
            .iter()
            .map(|sent| (sent.value.as_str(), matches!(sent.outcome, Some(Ok(_)))))
            .collect();
        let mut last: BTreeMap<u64, u64> = BTreeMap::new();
        let mut seen = std::collections::BTreeSet::new();
        for value in values {
            if !seen.insert(value) || !self.counts_for_order(acknowledged[value.as_str()]) {
                continue;
            }
            let mut parts = value.trim_start_matches(REFUSED_PREFIX).split(':');
            let mut number = || -> u64 {
                let text = parts.next().expect("values begin with two numbers");
                text.parse().expect("a number")
            };
            let (thread, number) = (number(), number());
            let before = last.insert(thread, number);
            assert!(
                before.is_none_or(|before| before < number),
                "seed {}: partition {partition}: {thread}:{number} lies behind {before:?}",
                self.seed
            );
        }
    }

    /// Whether the record must be in order. A failed record may be stored late if nothing fences
    /// it: without idempotence, or after the producer id changed.
    fn counts_for_order(&self, is_acknowledged: bool) -> bool {
        is_acknowledged || self.config.enable_idempotence && !self.scenario.changes_producer_id
    }
}

fn recording(calls: Arc<Calls>) -> Callback {
    Callback::Once(Box::new(move |outcome| {
        calls.lock().expect("no callback panics").push(outcome);
    }))
}

fn places(stored: &[Vec<String>]) -> BTreeMap<(usize, &str), Vec<usize>> {
    let mut places: BTreeMap<(usize, &str), Vec<usize>> = BTreeMap::new();
    for (partition, values) in stored.iter().enumerate() {
        for (offset, value) in values.iter().enumerate() {
            places
                .entry((partition, value.as_str()))
                .or_default()
                .push(offset);
        }
    }
    places
}
