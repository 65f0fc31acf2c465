//! The generator: producers and consumers under a schedule, which measure themselves as strictly as the broker.
//!
//! Load is open: records are due on a schedule, whatever the broker does, and their latency counts from when they were due.

pub mod outcome;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
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
    /// All producers have ended: `acknowledged` is final.
    pub is_produced: AtomicBool,
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
}
