//! The generator: producers and consumers under a schedule, which measure themselves as strictly as the broker.
//!
//! Load is open: records are due on a schedule, whatever the broker does, and their latency counts from when they were due.

pub mod clock;
pub mod stamp;
pub mod schedule;
pub mod priority;
pub mod contents;
pub mod outcome;
mod errors;
mod samples;
mod timeline;
mod measured;
mod answers;
mod callback_work;
pub mod produce;
mod ledger;
pub mod consume;
pub mod requests;
pub mod null_sink;
pub mod calibrate;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// When a measurement warms up, counts and ends; shared by everybody who takes part.
#[derive(Debug)]
pub struct Course {
    /// Schedules begin here.
    pub begin: Instant,
    /// What was due before belongs to the warm-up.
    pub warmup: Duration,
    /// The measured part.
    pub duration: Duration,
    /// Set by Ctrl-C and by whoever finds that going on is no use: load stops, what was measured is kept.
    pub stop: Arc<AtomicBool>,
}

/// How far a course is, for the progress bar and for consumers that must know when they have everything.
#[derive(Debug, Default)]
pub struct Live {
    pub sent: AtomicU64,
    /// Warm-up included.
    pub acknowledged: AtomicU64,
    pub failed: AtomicU64,
    /// Of the slowest group of consumers.
    pub received: AtomicU64,
    /// All producers have ended: `acknowledged` is final. Set by whoever started them.
    pub is_produced: AtomicBool,
    /// Of `acknowledged`, by topic.
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

    /// Counts what one group of consumers has received.
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

/// Nothing that is kept under these locks is left half done by a panic.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What fills the values of records, behind the stamp that every value begins with.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Contents {
    /// Bytes that no codec makes smaller.
    #[default]
    Random,
    /// Fields and numbers as applications write them.
    Json,
    /// `A` to `Z`, as Kafka's own tool fills them.
    Letters,
    /// One of these, in turn.
    Given(Arc<[Vec<u8>]>),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keys {
    #[default]
    None,
    /// So many different ones, in turn.
    Sequential(u64),
    /// So many different ones, at random.
    Random(u64),
}

/// Who chooses a record's partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Partitioning {
    /// The client's partitioner, as its settings say.
    #[default]
    Client,
    /// Record by record, as before sticky partitioners.
    RoundRobin,
    /// Every sending thread has partitions of its own.
    OwnPerThread,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicLoad {
    pub name: String,
    pub partitions: u32,
}

/// A group of equal producers.
#[derive(Clone, Debug)]
pub struct ProduceLoad {
    pub name: String,
    /// Kafka's keys, `bootstrap.servers` among them.
    pub settings: BTreeMap<String, String>,
    pub topics: Vec<TopicLoad>,
    /// Producer instances, each with a connection and a sender thread of its own.
    pub clients: u32,
    /// Sending threads of each instance.
    pub threads: u32,
    /// Of the whole group, a second. `None`: as fast as `send` allows, and no latency is given without the word "saturated".
    pub rate: Option<f64>,
    /// Ends early after so many; 0: by time only.
    pub records: u64,
    /// Of the value, the stamp included; at least `stamp::BYTES`.
    pub record_bytes: u32,
    pub contents: Contents,
    pub keys: Keys,
    pub partitioning: Partitioning,
    /// Every thread waits for the answer before it sends again.
    pub is_synchronous: bool,
    /// How long each callback keeps the callback thread: an application's work.
    pub callback: Duration,
    /// That work is handed to so many threads; 0: the callback does it itself.
    pub callback_threads: u32,
}

/// A group of equal consumers.
#[derive(Clone, Debug)]
pub struct ConsumeLoad {
    pub name: String,
    /// Kafka's keys, `bootstrap.servers` among them; with `group.id` they subscribe, else partitions are dealt out.
    pub settings: BTreeMap<String, String>,
    pub topics: Vec<TopicLoad>,
    pub clients: u32,
    /// Of the whole group, a second, if the application is to be slower than the broker.
    pub rate: Option<f64>,
    /// From the beginning of the topic, or only what comes.
    pub from_beginning: bool,
    /// Its threads are not to take the processor from those whose latency is measured: it stands for another machine.
    pub gives_way: bool,
}
