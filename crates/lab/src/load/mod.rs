//! The generator: producers and consumers on a schedule, which measure themselves as strictly as
//! the broker.
//!
//! Load is open-loop: records are due on a schedule, whatever the broker does, and their latency
//! counts from their due time.
//!
//! Reading order: the modules below, from the entry point down to the foundations.

pub mod calibrate;
pub mod produce;
pub mod consume;
pub mod requests;
pub mod schedule;
mod answers;
mod timeline;
pub mod contents;
mod ledger;
pub mod outcome;
mod measured;
mod errors;
mod samples;
pub mod stamp;
pub mod null_sink;
mod callback_work;
pub mod priority;
pub mod clock;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// When a measurement warms up, counts and ends; shared by all participants.
#[derive(Debug)]
pub struct Course {
    /// Schedules begin here.
    pub begin: Instant,
    /// Records that were due before the end of this belong to the warm-up.
    pub warmup: Duration,
    /// The measured part.
    pub duration: Duration,
    /// Set by Ctrl-C, or when continuing is useless: load stops, what was measured is kept.
    pub stop: Arc<AtomicBool>,
}

/// How far a course is, for the progress bar and for consumers that must know when they have
/// everything.
#[derive(Debug, Default)]
pub struct Live {
    pub sent: AtomicU64,
    /// Includes the warm-up.
    pub acknowledged: AtomicU64,
    pub failed: AtomicU64,
    /// Of the slowest group of consumers.
    pub received: AtomicU64,
    /// All producers have ended: `acknowledged` is final. Set by the code that started them.
    pub is_produced: AtomicBool,
    /// The parts of `acknowledged`, by topic.
    by_topic: Mutex<BTreeMap<String, Arc<AtomicU64>>>,
    /// What each group of consumers has received.
    by_reader: Mutex<Vec<Arc<AtomicU64>>>,
}

impl Live {
    /// Counts the acknowledged records of a topic.
    fn topic(&self, name: &str) -> Arc<AtomicU64> {
        let mut topics = lock(&self.by_topic);
        Arc::clone(topics.entry(name.to_owned()).or_default())
    }

    /// Adds a group of consumers, and returns the counter of what it has received.
    fn join_readers(&self) -> Arc<AtomicU64> {
        let counter = Arc::default();
        lock(&self.by_reader).push(Arc::clone(&counter));
        counter
    }

    fn received_more(&self, reader: &AtomicU64, count: u64) {
        reader.fetch_add(count, Ordering::Relaxed);
        let readers = lock(&self.by_reader);
        let fewest = readers.iter().map(|reader| reader.load(Ordering::Relaxed)).min();
        self.received.store(fewest.unwrap_or(0), Ordering::Relaxed);
    }
}

/// Ignores poisoning: no panic leaves data under these locks half updated.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What fills the values of records, after the stamp that every value begins with.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Contents {
    /// Bytes that no codec compresses.
    #[default]
    Random,
    /// Fields and numbers as applications write them.
    Json,
    /// `A` to `Z`, as Kafka's own tool generates them.
    Letters,
    /// One of these, in turn.
    Given(Arc<[Vec<u8>]>),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keys {
    #[default]
    None,
    /// This many different keys, in turn.
    Sequential(u64),
    /// This many different keys, at random.
    Random(u64),
}

/// What chooses a record's partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Partitioning {
    /// The client's partitioner, by its settings.
    #[default]
    Client,
    /// Record by record, as before sticky partitioners.
    RoundRobin,
    /// Every sending thread has its own partitions.
    OwnPerThread,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicLoad {
    pub name: String,
    pub partitions: u32,
}

/// A group of identical producers.
#[derive(Clone, Debug)]
pub struct ProduceLoad {
    pub name: String,
    /// Kafka's keys, including `bootstrap.servers`.
    pub settings: BTreeMap<String, String>,
    pub topics: Vec<TopicLoad>,
    /// Producer instances, each with its own connections and sender thread.
    pub clients: u32,
    /// Sending threads of each instance.
    pub threads: u32,
    /// Records per second of the whole group. `None`: as fast as `send` allows, and every latency
    /// is marked "saturated".
    pub rate: Option<f64>,
    /// Ends early after this many records; 0: limited by time only.
    pub records: u64,
    /// The size of the value, including the stamp; at least `stamp::BYTES`.
    pub record_bytes: u32,
    pub contents: Contents,
    pub keys: Keys,
    pub partitioning: Partitioning,
    /// Every thread waits for the answer before it sends again.
    pub is_synchronous: bool,
    /// How long each callback keeps the callback thread: an application's work.
    pub callback: Duration,
    /// The number of threads that callbacks hand their work to; 0: the callback does it itself.
    pub callback_threads: u32,
}

/// A group of identical consumers.
#[derive(Clone, Debug)]
pub struct ConsumeLoad {
    pub name: String,
    /// Kafka's keys, including `bootstrap.servers`; with `group.id` they subscribe, otherwise
    /// partitions are assigned in turn.
    pub settings: BTreeMap<String, String>,
    pub topics: Vec<TopicLoad>,
    pub clients: u32,
    /// Records per second of the whole group, if the application is to be slower than the broker.
    pub rate: Option<f64>,
    /// From the beginning of the topic, or only new records.
    pub from_beginning: bool,
    /// Its threads must not take the processor from those whose latency is measured: the group
    /// stands for another machine.
    pub gives_way: bool,
}
