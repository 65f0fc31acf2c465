//! The record loop of a producer, and the counting of answers.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::arguments::Arguments;
use crate::handshake::{Report, say_and_wait};

/// The options of a run. Sizes that are `None` keep the client's default.
#[derive(Debug)]
pub struct Load {
    pub bootstrap: String,
    pub topic: String,
    /// Topic of the records whose callback sleeps; empty: none.
    pub slow_topic: String,
    pub slow_rate: f64,
    pub callback_sleep: Duration,
    pub threads: u64,
    /// 1: all threads send to partition 0; else thread i to partition i.
    pub partitions: u64,
    pub records: u64,
    pub warmup: u64,
    /// Records per second; 0: as fast as acknowledgements allow.
    pub rate: f64,
    pub compression: String,
    pub batch_bytes: Option<usize>,
    pub linger_ms: Option<u64>,
    pub buffer_bytes: Option<usize>,
    pub latency_file: Option<String>,
    pub null: bool,
    /// `answers=`: how the application learns a record's result; empty: as usual for the client.
    pub answers: String,
    payloads: Payloads,
}

/// Consecutive records of equal size, read from a file so that every contender sends the same
/// bytes.
#[derive(Debug, Clone, Copy)]
pub struct Payloads {
    all: &'static [u8],
    bytes: usize,
    count: usize,
}

impl Payloads {
    fn read(path: &str, bytes: usize) -> Payloads {
        let all = std::fs::read(path).unwrap_or_else(|error| panic!("{path}: {error}"));
        let count = all.len() / bytes;
        assert!(
            count.is_power_of_two(),
            "{path} holds {count} records of {bytes} bytes"
        );
        Payloads {
            all: all.leak(),
            bytes,
            count,
        }
    }

    pub fn get(&self, number: u64) -> &'static [u8] {
        let at = (number as usize & (self.count - 1)) * self.bytes;
        &self.all[at..at + self.bytes]
    }
}

impl Load {
    pub fn from(arguments: &Arguments) -> Load {
        let optional = |key: &str| arguments.optional(key).map(|_| arguments.number(key));
        Load {
            bootstrap: arguments.text("bootstrap").to_string(),
            topic: arguments.text("topic").to_string(),
            slow_topic: arguments.optional("slow_topic").unwrap_or_default().to_string(),
            slow_rate: arguments.number_or("slow_rate", 0.0),
            callback_sleep: Duration::from_millis(arguments.number_or("callback_sleep_ms", 0)),
            threads: arguments.number("threads"),
            partitions: arguments.number("partitions"),
            records: arguments.number("records"),
            warmup: arguments.number("warmup"),
            rate: arguments.number_or("rate", 0.0),
            compression: arguments.text("compression").to_string(),
            batch_bytes: optional("batch"),
            linger_ms: optional("linger").map(|linger| linger as u64),
            buffer_bytes: optional("buffer"),
            latency_file: arguments.optional("latency_file").map(String::from),
            null: arguments.number_or("null", 0) == 1,
            answers: arguments.optional("answers").unwrap_or_default().to_string(),
            payloads: Payloads::read(arguments.text("payloads"), arguments.number("bytes")),
        }
    }
}

/// One record of the loop.
#[derive(Clone, Copy, Debug)]
pub struct Item {
    /// The record with the callback that sleeps.
    pub slow: bool,
    pub partition: i32,
    pub value: &'static [u8],
    /// Passed back with the answer.
    pub slot: u64,
}

/// The outcomes of the records; callbacks on any thread write here.
#[derive(Debug)]
pub struct Answers {
    acknowledged: AtomicU64,
    slow_acknowledged: AtomicU64,
    failed: AtomicU64,
    first_error: Mutex<Option<String>>,
    begun: Instant,
    /// Nanoseconds from `begun` to the answer, by slot; 0: none. Empty unless latencies are
    /// requested.
    answered_at: Vec<AtomicU64>,
    answered_twice: AtomicU64,
    callback_sleep: Duration,
}

/// The slot of records whose callback sleeps.
pub const SLOW: u64 = u64::MAX;

impl Answers {
    fn new(load: &Load, slots: u64) -> Answers {
        let slots = if load.latency_file.is_some() { slots } else { 0 };
        Answers {
            acknowledged: AtomicU64::new(0),
            slow_acknowledged: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            first_error: Mutex::new(None),
            begun: Instant::now(),
            answered_at: (0..slots).map(|_| AtomicU64::new(0)).collect(),
            answered_twice: AtomicU64::new(0),
            callback_sleep: load.callback_sleep,
        }
    }

    /// The record in `slot` is in the log.
    #[inline]
    pub fn acknowledged(&self, slot: u64) {
        if slot == SLOW {
            if !self.callback_sleep.is_zero() {
                thread::sleep(self.callback_sleep);
            }
            self.slow_acknowledged.fetch_add(1, Ordering::Relaxed);
            return;
        }
        if let Some(answered_at) = self.answered_at.get(slot as usize) {
            let nanos = self.begun.elapsed().as_nanos() as u64;
            if answered_at.swap(nanos.max(1), Ordering::Relaxed) != 0 {
                self.answered_twice.fetch_add(1, Ordering::Relaxed);
            }
        }
        self.acknowledged.fetch_add(1, Ordering::Relaxed);
    }

    #[cold]
    pub fn failed(&self, error: &dyn std::fmt::Display) {
        self.failed.fetch_add(1, Ordering::Relaxed);
        let mut first = self.first_error.lock().expect("no holder panics");
        first.get_or_insert_with(|| error.to_string());
    }

    fn fast_answers(&self) -> u64 {
        self.acknowledged.load(Ordering::Relaxed) + self.failed.load(Ordering::Relaxed)
    }
}

/// The work of one sending thread: an iterator of records that sleeps until the next one is due.
#[derive(Debug)]
pub struct Job {
    payloads: Payloads,
    partition: i32,
    next: u64,
    end: u64,
    step: u64,
    pace: Option<Pace>,
    slow: bool,
}

#[derive(Debug)]
struct Pace {
    start: Instant,
    nanos_per_record: f64,
    /// Nanoseconds between the due time and the call, by record.
    late: Vec<u64>,
}

impl Job {
    /// The next record; `None` after the last.
    #[inline]
    pub fn next(&mut self) -> Option<Item> {
        if self.next >= self.end {
            return None;
        }
        let number = self.next;
        self.next += self.step;
        if let Some(pace) = &mut self.pace {
            let due = pace.start + Duration::from_nanos((number as f64 * pace.nanos_per_record) as u64);
            let now = Instant::now();
            if due > now {
                thread::sleep(due - now);
            }
            pace.late.push(due.elapsed().as_nanos() as u64);
        }
        Some(Item {
            slow: self.slow,
            partition: self.partition,
            value: self.payloads.get(number),
            slot: if self.slow { SLOW } else { number },
        })
    }

    /// Its callbacks sleep.
    pub fn is_slow(&self) -> bool {
        self.slow
    }

    pub fn is_paced(&self) -> bool {
        self.pace.is_some()
    }
}

/// A client under test.
pub trait Contender: Sync {
    /// The library and its version, for the report.
    fn version(&self) -> String;
    /// Sends the records of `job` in order; waits while the client's buffer is full. Every answer
    /// goes to `answers`.
    fn send_all(&self, job: &mut Job, answers: &'static Answers);
    /// Sends waiting records, and returns when all records were answered.
    fn flush(&self);
}

/// Warm-up, the measured part and the report.
pub fn run(load: &Load, contender: &dyn Contender) {
    let warm = Load::answers(load, load.warmup);
    phase(load, contender, load.warmup, warm);
    say_and_wait("ready");
    let answers = Load::answers(load, load.records);
    let (seconds, late, slow_sent) = phase(load, contender, load.records, answers);
    say_and_wait("done");
    if let Some(path) = &load.latency_file {
        write_latencies(path, load, answers, &late);
    }
    let errors: Vec<String> = [warm, answers]
        .iter()
        .filter_map(|answers| answers.first_error.lock().expect("no holder panics").clone())
        .collect();
    Report::default()
        .number("seconds", seconds)
        .number("sent", load.records)
        .number("acknowledged", answers.acknowledged.load(Ordering::Relaxed))
        .number("failed", answers.failed.load(Ordering::Relaxed))
        .number("answered_twice", answers.answered_twice.load(Ordering::Relaxed))
        .number("warmup_acknowledged", warm.acknowledged.load(Ordering::Relaxed))
        .number("slow_sent", slow_sent)
        .text("first_error", errors.first().map_or("", String::as_str))
        .text("version", &contender.version())
        .print();
}

impl Load {
    fn answers(&self, slots: u64) -> &'static Answers {
        Box::leak(Box::new(Answers::new(self, slots)))
    }
}

/// Sends `records` with all threads; returns the seconds until the last answer, the delay of each
/// send, and the number of slow records sent.
fn phase(
    load: &Load,
    contender: &dyn Contender,
    records: u64,
    answers: &'static Answers,
) -> (f64, Vec<u64>, u64) {
    let begun = answers.begun;
    let mut late = Vec::new();
    let mut slow_sent = 0;
    let job = |thread: u64| Job {
        payloads: load.payloads,
        partition: (thread % load.partitions) as i32,
        next: thread,
        end: records,
        step: load.threads,
        pace: (load.rate > 0.0).then(|| Pace {
            start: begun,
            nanos_per_record: 1e9 / load.rate,
            late: Vec::with_capacity((records / load.threads) as usize + 1),
        }),
        slow: false,
    };
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let mut seconds = 0.0;
    thread::scope(|scope| {
        let slow = (!load.slow_topic.is_empty())
            .then(|| scope.spawn(|| send_slow(load, contender, answers, &is_over)));
        let threads: Vec<_> = (0..load.threads)
            .map(|thread| {
                let mut job = job(thread);
                scope.spawn(move || {
                    send_or_count(load, contender, &mut job, answers);
                    job.pace.map(|pace| pace.late).unwrap_or_default()
                })
            })
            .collect();
        for thread in threads {
            late.extend(thread.join().expect("a sending thread panicked"));
        }
        contender.flush();
        while answers.fast_answers() < records {
            thread::sleep(Duration::from_micros(100));
        }
        seconds = begun.elapsed().as_secs_f64();
        is_over.store(true, Ordering::Relaxed);
        if let Some(slow) = slow {
            slow_sent = slow.join().expect("the slow thread panicked");
        }
    });
    contender.flush();
    while answers.slow_acknowledged.load(Ordering::Relaxed) < slow_sent {
        thread::sleep(Duration::from_millis(1));
    }
    (seconds, late, slow_sent)
}

/// With `null=1` no client is used: measures the cost of the loop and the counting alone.
fn send_or_count(load: &Load, contender: &dyn Contender, job: &mut Job, answers: &'static Answers) {
    if !load.null {
        return contender.send_all(job, answers);
    }
    while let Some(item) = job.next() {
        std::hint::black_box(item.value);
        answers.acknowledged(item.slot);
    }
}

/// Sends to the slow topic at its rate, in steps of 10 ms, until the other threads are done.
fn send_slow(
    load: &Load,
    contender: &dyn Contender,
    answers: &'static Answers,
    is_over: &std::sync::atomic::AtomicBool,
) -> u64 {
    let mut sent = 0;
    let slice = (load.slow_rate / 100.0).max(1.0) as u64;
    while !is_over.load(Ordering::Relaxed) {
        let mut job = Job {
            payloads: load.payloads,
            partition: 0,
            next: sent,
            end: sent + slice,
            step: 1,
            pace: Some(Pace {
                start: answers.begun,
                nanos_per_record: 1e9 / load.slow_rate,
                late: Vec::new(),
            }),
            slow: true,
        };
        send_or_count(load, contender, &mut job, answers);
        sent += slice;
    }
    sent
}

/// For each record: nanoseconds from the due time to the answer; then, for each: from the due time
/// to the call. Little-endian.
fn write_latencies(path: &str, load: &Load, answers: &Answers, late: &[u64]) {
    let mut bytes = Vec::with_capacity(answers.answered_at.len() * 16);
    for (number, answered_at) in answers.answered_at.iter().enumerate() {
        let due = (number as f64 * 1e9 / load.rate) as u64;
        let nanos = answered_at.load(Ordering::Relaxed).saturating_sub(due);
        bytes.extend_from_slice(&nanos.to_le_bytes());
    }
    for nanos in late {
        bytes.extend_from_slice(&nanos.to_le_bytes());
    }
    std::fs::write(path, bytes).unwrap_or_else(|error| panic!("{path}: {error}"));
}
