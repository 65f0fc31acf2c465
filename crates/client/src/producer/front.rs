//! `Producer`: what an application holds. Life of a record, first stop: from `send` into a batch.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::accumulator::{Accumulator, Refusal, Stickiness, Taken, TopicQueues};
use super::batch::Draft;
use super::buffer_pool::{Memory, RECHECK};
use super::callbacks::CallbackQueue;
use super::commands::Commands;
use super::completion::SendFuture;
use super::partitioner::{Partitioner, partition_of_key};
use super::record::{Callback, Record, RecordMetadata};
use super::sender::{ProducerMachine, SenderParts};
use super::wall_clock::WallClock;
use crate::config::{Config, PartitionerKind, ProducerConfig};
use crate::driver::{Driver, DriverSetup};
use crate::error::Error;
use crate::metadata::snapshot::Topic;
use crate::metadata::{Interest, MetadataCell};
use crate::metrics::{ClientKind, ClientMetrics, ProducerMetrics, Telemetry};
use crate::network::io::{Machine, Wake};
use crate::time::{Clock, Moment, SystemClock};
use crate::wait;

/// Sends records to a Kafka cluster. One for a program is enough: threads share it by reference, and it has one
/// connection per broker.
///
/// `send` copies the record into a batch and returns; a thread of the producer sends the batches. Dropping the producer
/// waits for what it accepted, as `close` with delivery.timeout.ms does.
///
/// ```no_run
/// use ottla_client::config::Config;
/// use ottla_client::producer::{Producer, Record};
///
/// # fn main() -> Result<(), ottla_client::Error> {
/// let producer = Producer::new(Config::new().set("bootstrap.servers", "localhost:9092"))?;
/// let sent = producer.send(&Record::new("greetings").key(b"world").value(b"hello"))?;
/// println!("at offset {}", sent.wait()?.offset);
/// # Ok(())
/// # }
/// ```
pub struct Producer {
    /// Tells producers apart in what threads remember of them.
    id: u64,
    config: Arc<ProducerConfig>,
    accumulator: Arc<Accumulator>,
    metadata: Arc<MetadataCell>,
    commands: Arc<Commands>,
    callbacks: Arc<CallbackQueue>,
    waker: Arc<dyn Wake>,
    clock: Arc<dyn Clock>,
    wall_clock: WallClock,
    partitioner: Option<Box<dyn Partitioner>>,
    client_metrics: Arc<ClientMetrics>,
    metrics: Arc<ProducerMetrics>,
    driver: Mutex<Option<Driver>>,
    callback_thread: Mutex<Option<JoinHandle<()>>>,
}

/// What a thread remembers between sends, so that most of them look nothing up.
struct Local {
    route: RefCell<Option<Route>>,
    /// Sends since one was measured.
    unmeasured: Cell<u32>,
}

/// Where the records of the topic go that this thread sent to last.
struct Route {
    producer: u64,
    /// Of the metadata that `topic` is from.
    version: u64,
    topic: Arc<Topic>,
    queues: Arc<TopicQueues>,
}

thread_local! {
    static LOCAL: Local = const {
        Local {
            route: RefCell::new(None),
            unmeasured: Cell::new(0),
        }
    };
}

/// Two readings of the clock cost as much as half of a `send`: so many sends are represented by one that is measured.
const MEASURED_EVERY: u32 = 16;

/// After the limit given to `close`, for the sender to fail what is left.
const CLOSE_GRACE: Duration = Duration::from_millis(500);

/// A record on its way into a batch.
struct Attempt<'a> {
    record: &'a Record<'a>,
    now: Moment,
    /// Got by waiting, for a batch that may have to be opened.
    memory: Option<Memory>,
    callback: Option<Callback>,
    wants_completion: bool,
}

/// Why an attempt did not get into a batch.
enum Obstacle {
    UnknownTopic,
    UnknownPartition(i32),
    NoMemory { wanted_bytes: usize },
    Final(Error),
}

struct Accepted {
    taken: Taken,
    timestamp: i64,
}

impl Producer {
    /// - Errors: `Config` with Kafka's text for settings that are wrong; what the system refuses (descriptors, threads).
    pub fn new(config: Config) -> Result<Producer, Error> {
        Producer::start(config, None, |parts| Box::new(ProducerMachine::new(parts)))
    }

    /// Like `new`; `partitioner` chooses for the records that name no partition.
    pub fn with_partitioner(
        config: Config,
        partitioner: impl Partitioner + 'static,
    ) -> Result<Producer, Error> {
        let partitioner: Box<dyn Partitioner> = Box::new(partitioner);
        Producer::start(config, Some(partitioner), |parts| {
            Box::new(ProducerMachine::new(parts))
        })
    }

    /// A producer with another machine in the sender's place: for measuring what comes before it.
    #[doc(hidden)]
    pub fn with_machine(
        config: Config,
        machine: impl FnOnce(SenderParts) -> Box<dyn Machine>,
    ) -> Result<Producer, Error> {
        Producer::start(config, None, machine)
    }

    fn start(
        config: Config,
        partitioner: Option<Box<dyn Partitioner>>,
        machine: impl FnOnce(SenderParts) -> Box<dyn Machine>,
    ) -> Result<Producer, Error> {
        static NEXT_ID: AtomicU64 = AtomicU64::new(0);
        let config = Arc::new(ProducerConfig::from_config(&config)?);
        let metrics_clock = Arc::new(SystemClock::default());
        let client_metrics = ClientMetrics::new(ClientKind::Producer, &config.client, metrics_clock);
        let metrics = Arc::clone(client_metrics.producer());
        let mut setup = DriverSetup::new(&config.client, client_metrics.network())?;
        let (clock, waker) = (setup.clock(), setup.waker());
        let metadata = Arc::new(MetadataCell::new(Interest::Named));
        metadata.attach(Arc::clone(&waker));
        let seed = seed();
        let accumulator = Arc::new(Accumulator::seeded(
            Arc::clone(&config),
            Arc::clone(&metrics),
            seed,
        ));
        let callbacks = Arc::new(CallbackQueue::new(Arc::clone(&metrics), Arc::clone(&clock)));
        let commands = Arc::new(Commands::default());
        let parts = SenderParts {
            config: Arc::clone(&config),
            metadata: Arc::clone(&metadata),
            accumulator: Arc::clone(&accumulator),
            commands: Arc::clone(&commands),
            callbacks: Arc::clone(&callbacks),
            metrics: Arc::clone(&metrics),
            network_metrics: Arc::clone(client_metrics.network()),
            telemetry: Telemetry::new(&config.client, Arc::clone(&client_metrics), seed),
            seed,
        };
        let leftovers = Leftovers {
            metadata: Arc::clone(&metadata),
            accumulator: Arc::clone(&accumulator),
            commands: Arc::clone(&commands),
            callbacks: Arc::clone(&callbacks),
        };
        setup.at_end(move |error| leftovers.clear(error));
        let callback_thread = callbacks
            .start("ottla-callbacks")
            .map_err(|error| Error::IllegalState {
                message: format!("no thread for callbacks: {error}").into(),
            })?;
        let driver = match setup.start("ottla-producer", machine(parts)) {
            Ok(driver) => driver,
            Err(error) => {
                callbacks.close();
                return Err(error);
            }
        };
        Ok(Producer {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            config,
            accumulator,
            metadata,
            commands,
            callbacks,
            waker,
            wall_clock: WallClock::new(&*clock),
            clock,
            partitioner,
            client_metrics,
            metrics,
            driver: Mutex::new(Some(driver)),
            callback_thread: Mutex::new(Some(callback_thread)),
        })
    }

    /// Copies the record into a batch. What becomes of it, the future says.
    ///
    /// Waits up to max.block.ms in all, for the topic to be known and for room in buffer.memory; else takes some hundred
    /// nanoseconds.
    ///
    /// - Errors: nothing was taken. `TopicNotPresent`, `PartitionNotPresent`, `BufferExhausted` after max.block.ms;
    ///   `RecordTooLarge`, `InvalidArgument`, and the broker's refusal of the topic at once; `Closed`; after a fatal
    ///   error of the sender that error.
    pub fn send(&self, record: &Record<'_>) -> Result<SendFuture, Error> {
        let accepted = self
            .send_or_wait(record, None, true)
            .map_err(|(error, _)| error)?;
        Ok(accepted.future())
    }

    /// Like `send`; `callback` runs on the producer's callback thread when the record's fate is known, in the order of the
    /// records of a partition.
    ///
    /// A callback may take its time: it delays other callbacks, not records. When more than `callbacks::BACKLOG_MAX` of them
    /// wait to be run, this waits too, within max.block.ms.
    ///
    /// - Errors: as of `send`; the callback is dropped and does not run. `Timeout` when callbacks pile up.
    pub fn send_with(
        &self,
        record: &Record<'_>,
        callback: impl FnOnce(Result<RecordMetadata, Error>) + Send + 'static,
    ) -> Result<(), Error> {
        if self.callbacks.is_over_limit() {
            self.wait_for_callbacks()?;
        }
        let callback = Callback(Box::new(callback));
        self.send_or_wait(record, Some(callback), false)
            .map_err(|(error, _)| error)?;
        Ok(())
    }

    /// Like `send`, without ever waiting.
    ///
    /// - Errors: as of `send`; `TopicNotPresent` when the topic is not known yet (it is asked for: try again),
    ///   `BufferExhausted` when there is no room now.
    pub fn try_send(&self, record: &Record<'_>) -> Result<SendFuture, Error> {
        let mut attempt = Attempt::new(record, self.clock.moment());
        attempt.wants_completion = true;
        match self.attempt(&mut attempt) {
            Ok(accepted) => {
                self.measure(attempt.now);
                Ok(accepted.future())
            }
            Err(obstacle) => Err(self.refuse(record, obstacle)),
        }
    }

    /// Like `send`, waiting without blocking the thread, in every async runtime. It waits as long as it takes: put your
    /// runtime's timeout around it. Dropped before its end, it has sent nothing.
    ///
    /// ```no_run
    /// # use ottla_client::producer::{Producer, Record};
    /// # async fn example(producer: &Producer) -> Result<(), ottla_client::Error> {
    /// let metadata = producer.send_async(&Record::new("greetings").value(b"hello")).await?.await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn send_async(&self, record: &Record<'_>) -> Result<SendFuture, Error> {
        let mut attempt = Attempt::new(record, self.clock.moment());
        attempt.wants_completion = true;
        loop {
            match self.attempt(&mut attempt) {
                Ok(accepted) => return Ok(accepted.future()),
                Err(Obstacle::UnknownTopic) => {
                    check_topic_name(record.topic)?;
                    let known = |context: &mut std::task::Context<'_>| match self
                        .metadata
                        .poll_topic(record.topic, context.waker())
                    {
                        Some(verdict) => Poll::Ready(verdict),
                        None => Poll::Pending,
                    };
                    poll_fn(known).await?;
                }
                Err(Obstacle::NoMemory { wanted_bytes }) => {
                    attempt.memory = Some(self.memory_in_turn(wanted_bytes, false).await);
                }
                Err(obstacle) => return Err(self.refuse(record, obstacle)),
            }
            attempt.now = self.clock.moment();
        }
    }

    /// Sends what is there without lingering and waits until all of it is acknowledged or given up, and its callbacks have
    /// run. Records that others send meanwhile are not waited for.
    ///
    /// - Errors: `IllegalState` on the callback thread, where it would wait for itself.
    pub fn flush(&self) -> Result<(), Error> {
        wait::block_on(self.flush_async())
    }

    /// Like `flush`, for at most `limit`.
    ///
    /// - Errors: `Timeout`; the records go on.
    pub fn flush_timeout(&self, limit: Duration) -> Result<(), Error> {
        let deadline = wait::deadline_after(limit);
        match wait::block_on_until(self.flush_async(), deadline, None) {
            Some(result) => result,
            None => Err(Error::Timeout {
                what: format!(
                    "flush: {} batches, {} callbacks",
                    self.accumulator.incomplete_batches(),
                    self.callbacks.backlog()
                )
                .into(),
                limit_ms: whole_ms(limit),
                setting: "the limit of flush",
            }),
        }
    }

    /// Like `flush`, as a future. It begins with the first poll.
    pub async fn flush_async(&self) -> Result<(), Error> {
        if self.callbacks.is_own_thread() {
            return Err(Error::IllegalState {
                message: "flush on the callback thread would wait for the callback that calls it".into(),
            });
        }
        let started = self.clock.moment();
        let all_done = self.accumulator.incomplete().all_done();
        self.accumulator.seal_all(started);
        self.waker.wake();
        all_done.await;
        self.callbacks.all_run().await;
        self.metrics.flushed(self.clock.moment().nanos_since(started));
        Ok(())
    }

    /// The topic's partitions as far as the cluster has told, waiting up to max.block.ms when it has not yet.
    ///
    /// - Errors: as of `send`.
    pub fn partitions_for(&self, topic: &str) -> Result<Arc<Topic>, Error> {
        check_topic_name(topic)?;
        self.metadata.wait_for_topic(topic, self.config.max_block_ms)
    }

    /// What the producer has measured of itself.
    pub fn metrics(&self) -> &Arc<ClientMetrics> {
        &self.client_metrics
    }

    /// The settings that count.
    pub fn config(&self) -> &ProducerConfig {
        &self.config
    }

    /// Takes no more records, waits until those that it took are acknowledged or given up and their callbacks have run, and
    /// closes the connections. What is not done after `limit` fails with `Closed`. Further calls wait for the first.
    ///
    /// On the callback thread it does not wait: the closing goes on.
    ///
    /// - Errors: `Timeout` when something was not done.
    pub fn close(&self, limit: Duration) -> Result<(), Error> {
        let now = self.clock.moment();
        self.accumulator.close();
        let all_done = self.accumulator.incomplete().all_done();
        self.accumulator.seal_all(now);
        self.commands.close(now.after(limit));
        self.waker.wake();
        self.metadata.close();
        if self.callbacks.is_own_thread() {
            return Ok(());
        }
        let deadline = wait::deadline_after(limit);
        let mut is_done = wait::block_on_until(all_done, deadline, None).is_some();
        let left = deadline.map_or(limit, |deadline| {
            deadline.saturating_duration_since(Instant::now())
        });
        let limit_with_grace = left.saturating_add(CLOSE_GRACE);
        let mut driver = self.driver.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(running) = &mut *driver {
            if running.join(limit_with_grace) {
                *driver = None;
            } else {
                is_done = false;
            }
        }
        drop(driver);
        is_done &= self.join_callbacks(limit_with_grace);
        if is_done {
            return Ok(());
        }
        Err(Error::Timeout {
            what: "close of the producer".into(),
            limit_ms: whole_ms(limit),
            setting: "the limit of close",
        })
    }

    fn join_callbacks(&self, limit: Duration) -> bool {
        let deadline = wait::deadline_after(limit);
        if wait::block_on_until(self.callbacks.all_run(), deadline, None).is_none() {
            return false;
        }
        let mut thread = self
            .callback_thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if self.callbacks.is_closed()
            && let Some(thread) = thread.take()
        {
            // Panics of callbacks are caught where they run.
            let _ = thread.join();
        }
        true
    }

    fn send_or_wait(
        &self,
        record: &Record<'_>,
        callback: Option<Callback>,
        wants_completion: bool,
    ) -> Result<Accepted, (Error, Option<Callback>)> {
        let mut attempt = Attempt {
            callback,
            wants_completion,
            ..Attempt::new(record, self.clock.moment())
        };
        match self.attempt(&mut attempt) {
            Ok(accepted) => {
                self.measure(attempt.now);
                Ok(accepted)
            }
            Err(obstacle) => {
                let accepted = self.wait_and_send(&mut attempt, obstacle);
                accepted.map_err(|error| (error, attempt.callback))
            }
        }
    }

    /// Counts the time since `started` for this send and for those before it that were not measured.
    #[inline]
    fn measure(&self, started: Moment) {
        // A thread that is ending has no locals; its last sends go unmeasured.
        let _ = LOCAL.try_with(|local| {
            let count = local.unmeasured.get() + 1;
            if count < MEASURED_EVERY {
                local.unmeasured.set(count);
                return;
            }
            local.unmeasured.set(0);
            self.metrics
                .send_called(self.clock.moment().nanos_since(started), count);
        });
    }

    /// Puts the record into a batch if nothing has to be waited for.
    fn attempt(&self, attempt: &mut Attempt<'_>) -> Result<Accepted, Obstacle> {
        if let Some(error) = self.commands.fatal() {
            return Err(Obstacle::Final(error.clone()));
        }
        // Taken out, not borrowed: what runs in between may send with this producer too.
        let remembered = LOCAL.try_with(|local| local.route.take()).ok().flatten();
        let version = self.metadata.load().version;
        let route = match remembered {
            Some(route)
                if route.producer == self.id
                    && route.version == version
                    && *route.topic.name == *attempt.record.topic =>
            {
                route
            }
            _ => self.look_up(attempt.record.topic).ok_or(Obstacle::UnknownTopic)?,
        };
        route.topic.usage.note();
        let result = self.append(attempt, &route);
        let _ = LOCAL.try_with(|local| local.route.replace(Some(route)));
        result
    }

    #[cold]
    fn look_up(&self, name: &str) -> Option<Route> {
        let snapshot = self.metadata.load();
        let topic = Arc::clone(snapshot.topic(name)?);
        if topic.partitions.is_empty() {
            return None;
        }
        Some(Route {
            producer: self.id,
            version: snapshot.version,
            queues: self.accumulator.topic_queues(&topic),
            topic,
        })
    }

    fn append(&self, attempt: &mut Attempt<'_>, route: &Route) -> Result<Accepted, Obstacle> {
        let record = attempt.record;
        let timestamp = match record.timestamp {
            None => self.wall_clock.timestamp(&*self.clock, attempt.now),
            Some(timestamp) if timestamp >= 0 => timestamp,
            Some(timestamp) => {
                return Err(invalid(format!("the timestamp {timestamp} is negative")));
            }
        };
        let draft = Draft::new(record, timestamp);
        self.accumulator.check_size(&draft).map_err(Obstacle::Final)?;
        let chosen = self.choose(record, route)?;
        let mut must_wake = false;
        let result = loop {
            let stickiness = chosen.is_none().then(|| Stickiness {
                queues: &route.queues,
                topic: &route.topic,
                stuck: route.queues.stuck(&route.topic),
            });
            let partition = match (chosen, stickiness) {
                (Some(partition), _) => partition,
                (None, stickiness) => stickiness.map_or(0, |stickiness| stickiness.stuck.partition()),
            };
            let Some(queue) = route.queues.partition(partition) else {
                break Err(Obstacle::UnknownPartition(partition));
            };
            let appended = queue.append(
                attempt.now,
                &draft,
                stickiness,
                &mut attempt.memory,
                &mut attempt.callback,
                attempt.wants_completion,
            );
            match appended {
                Ok(taken) => {
                    must_wake |= taken.sender_must_wake;
                    break Ok(Accepted { taken, timestamp });
                }
                Err(Refusal::Moved { sender_must_wake }) => must_wake |= sender_must_wake,
                Err(Refusal::NoMemory { wanted_bytes }) => {
                    must_wake = true;
                    break Err(Obstacle::NoMemory { wanted_bytes });
                }
                Err(Refusal::Closed) => break Err(Obstacle::Final(Error::Closed)),
            }
        };
        if must_wake {
            self.waker.wake();
        }
        result
    }

    /// The record's partition; `None`: where the topic's records without a key go.
    fn choose(&self, record: &Record<'_>, route: &Route) -> Result<Option<i32>, Obstacle> {
        let partition_count = route.topic.partitions.len();
        let explicit = match (record.partition, &self.partitioner) {
            (Some(partition), _) => Some(partition),
            (None, Some(partitioner)) => partitioner.partition(record, &route.topic),
            (None, None) => None,
        };
        if let Some(partition) = explicit {
            return match usize::try_from(partition) {
                Ok(index) if index < partition_count => Ok(Some(partition)),
                Ok(_) => Err(Obstacle::UnknownPartition(partition)),
                Err(_) => Err(invalid(format!("the partition {partition} is negative"))),
            };
        }
        Ok(match (self.config.partitioner, record.key) {
            (PartitionerKind::RoundRobin, _) => Some(route.queues.round_robin.next(&route.topic)),
            (PartitionerKind::Default, Some(key)) if !self.config.partitioner_ignore_keys => {
                Some(partition_of_key(key, partition_count))
            }
            (PartitionerKind::Default, _) => None,
        })
    }

    /// Waits for what is missing, within max.block.ms in all, and tries again.
    #[cold]
    fn wait_and_send(&self, attempt: &mut Attempt<'_>, mut obstacle: Obstacle) -> Result<Accepted, Error> {
        let started = attempt.now;
        let deadline = wait::deadline_after(Duration::from_millis(self.config.max_block_ms));
        let result = loop {
            if let Err(error) = self.remove(attempt, obstacle, deadline) {
                break Err(error);
            }
            attempt.now = self.clock.moment();
            match self.attempt(attempt) {
                Ok(accepted) => break Ok(accepted),
                Err(next) => obstacle = next,
            }
        };
        self.metrics
            .send_called(self.clock.moment().nanos_since(started), 1);
        result
    }

    fn remove(
        &self,
        attempt: &mut Attempt<'_>,
        obstacle: Obstacle,
        deadline: Option<Instant>,
    ) -> Result<(), Error> {
        let name = attempt.record.topic;
        let left = || {
            deadline.map_or(self.config.max_block_ms, |deadline| {
                whole_ms(deadline.saturating_duration_since(Instant::now()))
            })
        };
        match obstacle {
            Obstacle::Final(error) => Err(error),
            Obstacle::UnknownTopic => {
                check_topic_name(name)?;
                self.wait_for_metadata(|| self.metadata.wait_for_topic(name, left()))
            }
            Obstacle::UnknownPartition(partition) => {
                self.wait_for_metadata(|| self.metadata.wait_for_partition(name, partition, left()))
            }
            Obstacle::NoMemory { wanted_bytes } => {
                attempt.memory = Some(self.wait_for_memory(wanted_bytes, deadline)?);
                Ok(())
            }
        }
    }

    fn wait_for_metadata(&self, wait: impl FnOnce() -> Result<Arc<Topic>, Error>) -> Result<(), Error> {
        let started = self.clock.moment();
        let result = wait();
        self.metrics
            .metadata_waited(self.clock.moment().nanos_since(started));
        result.map(drop)
    }

    fn wait_for_memory(&self, wanted_bytes: usize, deadline: Option<Instant>) -> Result<Memory, Error> {
        let started = self.clock.moment();
        let turn = self.memory_in_turn(wanted_bytes, true);
        let memory = wait::block_on_until(turn, deadline, Some(RECHECK));
        let waited_nanos = self.clock.moment().nanos_since(started);
        self.metrics.buffer_waited(waited_nanos);
        memory.ok_or_else(|| {
            self.metrics.buffer_exhausted();
            self.accumulator
                .pool()
                .exhausted(wanted_bytes, waited_nanos / 1_000_000)
        })
    }

    /// Memory in turn; the sender hears that somebody waits, once it can see it.
    fn memory_in_turn(
        &self,
        wanted_bytes: usize,
        is_thread: bool,
    ) -> impl Future<Output = Memory> + Send + use<> {
        let mut turn = self.accumulator.pool().take_in_turn(wanted_bytes, is_thread);
        let waker = Arc::clone(&self.waker);
        let mut is_announced = false;
        poll_fn(move |context| {
            let memory = Pin::new(&mut turn).poll(context);
            if memory.is_pending() && !is_announced {
                is_announced = true;
                waker.wake();
            }
            memory
        })
    }

    #[cold]
    fn wait_for_callbacks(&self) -> Result<(), Error> {
        // A callback that sends must not wait for callbacks.
        if self.callbacks.is_own_thread() {
            return Ok(());
        }
        let deadline = wait::deadline_after(Duration::from_millis(self.config.max_block_ms));
        while self.callbacks.is_over_limit() {
            if wait::block_on_until(self.callbacks.one_run(), deadline, None).is_none() {
                return Err(Error::Timeout {
                    what: format!("callbacks: {} wait to be run", self.callbacks.backlog()).into(),
                    limit_ms: self.config.max_block_ms,
                    setting: "max.block.ms",
                });
            }
        }
        Ok(())
    }

    /// The error of a call that does not wait.
    fn refuse(&self, record: &Record<'_>, obstacle: Obstacle) -> Error {
        let name = record.topic;
        match obstacle {
            Obstacle::Final(error) => error,
            Obstacle::UnknownTopic => {
                if let Err(error) = check_topic_name(name) {
                    return error;
                }
                self.metadata.want([name]);
                let refused = self.metadata.load().refused.get(name).cloned();
                refused.unwrap_or_else(|| self.metadata.topic_timeout(name, 0))
            }
            Obstacle::UnknownPartition(partition) => {
                self.metadata.request_update();
                let topic = self.metadata.topic(name);
                Error::PartitionNotPresent {
                    topic: name.into(),
                    partition,
                    partition_count: topic.map_or(0, |topic| topic.partitions.len()),
                    limit_ms: 0,
                }
            }
            Obstacle::NoMemory { wanted_bytes } => self.accumulator.pool().exhausted(wanted_bytes, 0),
        }
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        // By then everything is decided; who does not want to wait calls `close` before.
        let _ = self.close(Duration::from_millis(self.config.delivery_timeout_ms));
    }
}

impl fmt::Debug for Producer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Producer")
            .field("client_id", &self.config.client.client_id)
            .field("incomplete_batches", &self.accumulator.incomplete_batches())
            .finish_non_exhaustive()
    }
}

impl<'a> Attempt<'a> {
    fn new(record: &'a Record<'a>, now: Moment) -> Attempt<'a> {
        Attempt {
            record,
            now,
            memory: None,
            callback: None,
            wants_completion: false,
        }
    }
}

impl Accepted {
    fn future(self) -> SendFuture {
        let completion = self.taken.completion.expect("it was asked for");
        SendFuture::new(completion, self.taken.index, self.timestamp)
    }
}

/// What is left when the driver's thread ends: nobody may wait for it.
struct Leftovers {
    metadata: Arc<MetadataCell>,
    accumulator: Arc<Accumulator>,
    commands: Arc<Commands>,
    callbacks: Arc<CallbackQueue>,
}

impl Leftovers {
    fn clear(self, error: Option<Error>) {
        if let Some(error) = &error {
            self.commands.set_fatal(error.clone());
        }
        self.accumulator.close();
        self.accumulator
            .fail_all(&error.unwrap_or(Error::Closed), &self.callbacks);
        self.metadata.close();
        self.callbacks.close();
    }
}

/// - Errors: `InvalidArgument` for what no broker takes as a topic's name.
/// - Source: Kafka's `Topic.validate`.
pub fn check_topic_name(name: &str) -> Result<(), Error> {
    const BYTES_MAX: usize = 249;
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let problem = if name.is_empty() {
        "is empty".to_owned()
    } else if name == "." || name == ".." {
        "cannot be . or ..".to_owned()
    } else if name.len() > BYTES_MAX {
        format!("has {} characters, {BYTES_MAX} are allowed", name.len())
    } else if let Some(character) = name.chars().find(|c| !is_allowed(*c)) {
        format!("contains {character:?}; allowed are ASCII letters, digits, '.', '_' and '-'")
    } else {
        return Ok(());
    };
    Err(Error::InvalidArgument {
        message: format!("the topic name {name:?} {problem}").into(),
    })
}

fn invalid(message: String) -> Obstacle {
    Obstacle::Final(Error::InvalidArgument {
        message: message.into(),
    })
}

fn whole_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Different for every producer: what is chosen at random should not be chosen alike by all of them.
fn seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::process::id())
}

#[cfg(test)]
mod tests;
