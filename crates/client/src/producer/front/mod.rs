//! `Producer`, the API for applications. First stop in the life of a record: from `send` into a
//! batch.

mod attempt;
mod waiting;
mod closing;
mod transactional;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use self::attempt::Attempt;
use self::closing::Leftovers;
pub use self::transactional::{CommitError, Transaction, TransactionalProducer};
use super::accumulator::Accumulator;
use super::callbacks::CallbackQueue;
use super::commands::Commands;
use super::completion::SendFuture;
use super::partitioner::Partitioner;
use super::record::{Callback, DeliveryHandler, Record, RecordMetadata};
use super::sender::{ProducerMachine, SenderParts};
use super::wall_clock::WallClock;
use crate::config::{Config, ProducerConfig};
use crate::driver::timers::Timers;
use crate::driver::{Driver, DriverSetup};
use crate::error::Error;
use crate::metadata::snapshot::Topic;
use crate::metadata::{Interest, MetadataCell};
use crate::metrics::{ClientKind, ClientMetrics, ProducerMetrics, Telemetry};
use crate::network::io::{Machine, Wake};
use crate::time::{Clock, SystemClock};

/// Sends records to a Kafka cluster. One per process is enough: threads share it by reference, and
/// it has one connection per broker.
///
/// `send` copies the record into a batch and returns; a thread of the producer sends the batches.
///
/// Dropping the producer returns at once, also inside an async runtime. Its threads go on without
/// it: accepted records are sent without lingering until each is acknowledged or has reached
/// delivery.timeout.ms, their futures and callbacks get the results, then the connections are
/// closed. This lasts as long as the process: records that were not acknowledged when the process
/// ends are lost, and nothing says so. To know that all of them arrived, call [`Producer::close`],
/// [`Producer::close_async`] or [`Producer::flush`] before.
///
/// ```no_run
/// use ottla_client::config::Config;
/// use ottla_client::producer::{Producer, Record};
///
/// # fn main() -> Result<(), ottla_client::Error> {
/// let producer = Producer::new(&Config::new().set("bootstrap.servers", "localhost:9092"))?;
/// let sent = producer.send(&Record::new("greetings").key(b"world").value(b"hello"))?;
/// println!("at offset {}", sent.wait()?.offset);
/// # Ok(())
/// # }
/// ```
pub struct Producer {
    /// Tells producers apart in the threads' cached routes.
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
    timers: Arc<Timers>,
    driver: Mutex<Option<Driver>>,
    callback_thread: Mutex<Option<JoinHandle<()>>>,
}

impl Producer {
    /// - Errors: `Config` with Kafka's text for wrong settings, and for `transactional.id`, which
    ///   needs a [`TransactionalProducer`]; whatever the operating system refuses (descriptors,
    ///   threads).
    pub fn new(config: &Config) -> Result<Producer, Error> {
        Producer::start(config, None, None, |parts| Box::new(ProducerMachine::new(parts)))
    }

    /// Like `new`; `handler` gets the result of every record of `send_tagged`, with its tag.
    ///
    /// It runs on the producer's callback thread, one call at a time, as the callbacks of
    /// `send_with` do, and needs no allocation per record. A panic of it is caught and ends that
    /// call only.
    ///
    /// ```no_run
    /// use ottla_client::config::Config;
    /// use ottla_client::producer::{Producer, Record};
    ///
    /// # fn main() -> Result<(), ottla_client::Error> {
    /// let config = Config::new().set("bootstrap.servers", "localhost:9092");
    /// let producer = Producer::with_delivery(&config, |tag, outcome| match outcome {
    ///     Ok(metadata) => println!("order {tag} is at offset {}", metadata.offset),
    ///     Err(error) => eprintln!("order {tag}: {error}"),
    /// })?;
    /// for order in 0..1000 {
    ///     producer.send_tagged(&Record::new("orders").value(b"..."), order)?;
    /// }
    /// producer.flush()
    /// # }
    /// ```
    ///
    /// - Errors: as `new`.
    pub fn with_delivery(
        config: &Config,
        handler: impl FnMut(u64, Result<RecordMetadata, Error>) + Send + 'static,
    ) -> Result<Producer, Error> {
        let handler: DeliveryHandler = Box::new(handler);
        Producer::start(config, None, Some(handler), |parts| {
            Box::new(ProducerMachine::new(parts))
        })
    }

    /// Like `new`; `partitioner` chooses for records that name no partition.
    pub fn with_partitioner(
        config: &Config,
        partitioner: impl Partitioner + 'static,
    ) -> Result<Producer, Error> {
        let partitioner: Box<dyn Partitioner> = Box::new(partitioner);
        Producer::start(config, Some(partitioner), None, |parts| {
            Box::new(ProducerMachine::new(parts))
        })
    }

    /// A producer with another machine in place of the sender, to measure the stages in front of
    /// it.
    #[doc(hidden)]
    pub fn with_machine(
        config: &Config,
        delivery: Option<DeliveryHandler>,
        machine: impl FnOnce(SenderParts) -> Box<dyn Machine>,
    ) -> Result<Producer, Error> {
        Producer::start(config, None, delivery, machine)
    }

    fn start(
        config: &Config,
        partitioner: Option<Box<dyn Partitioner>>,
        delivery: Option<DeliveryHandler>,
        machine: impl FnOnce(SenderParts) -> Box<dyn Machine>,
    ) -> Result<Producer, Error> {
        let config = ProducerConfig::from_config(config)?;
        if config.transactional_id.is_some() {
            return Err(Error::Config {
                key: "transactional.id".into(),
                message:
                    "transactional.id needs a TransactionalProducer: a Producer sends outside of transactions"
                        .into(),
            });
        }
        Producer::run(config, partitioner, delivery, machine)
    }

    fn run(
        config: ProducerConfig,
        partitioner: Option<Box<dyn Partitioner>>,
        delivery: Option<DeliveryHandler>,
        machine: impl FnOnce(SenderParts) -> Box<dyn Machine>,
    ) -> Result<Producer, Error> {
        static NEXT_ID: AtomicU64 = AtomicU64::new(0);
        let config = Arc::new(config);
        let metrics_clock = Arc::new(SystemClock::default());
        let client_metrics = ClientMetrics::new(ClientKind::Producer, &config.client, metrics_clock);
        client_metrics.tell_producer(&config);
        let metrics = Arc::clone(client_metrics.producer());
        let mut setup = DriverSetup::new(&config.client, client_metrics.network())?;
        let (clock, waker, timers) = (setup.clock(), setup.waker(), setup.timers());
        let metadata = Arc::new(MetadataCell::new(Interest::Named));
        metadata.attach(Arc::clone(&waker));
        let seed = seed();
        let callbacks = CallbackQueue::new(Arc::clone(&metrics), Arc::clone(&clock));
        let callbacks = Arc::new(match delivery {
            Some(handler) => callbacks.with_delivery(handler),
            None => callbacks,
        });
        let accumulator = Arc::new(Accumulator::seeded(
            Arc::clone(&config),
            Arc::clone(&metrics),
            seed,
            Some(Arc::clone(&callbacks)),
        ));
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
            timers,
            driver: Mutex::new(Some(driver)),
            callback_thread: Mutex::new(Some(callback_thread)),
        })
    }

    /// Copies the record into a batch. The future resolves when the record is acknowledged or given
    /// up.
    ///
    /// Waits up to max.block.ms in total, for the topic's metadata and for room in buffer.memory;
    /// otherwise it takes a few hundred nanoseconds.
    ///
    /// - Errors: the record was not accepted. `TopicNotPresent`, `PartitionNotPresent`,
    ///   `BufferExhausted` after max.block.ms; immediately `RecordTooLarge`, `InvalidArgument`, and
    ///   the broker's refusal of the topic; `Closed`; after a fatal error of the sender, that
    ///   error.
    pub fn send(&self, record: &Record<'_>) -> Result<SendFuture, Error> {
        let accepted = self
            .send_or_wait(record, None, true)
            .map_err(|(error, _)| error)?;
        Ok(accepted.future())
    }

    /// Like `send`; `callback` runs on the producer's callback thread once the record's result is
    /// known. Callbacks of one partition run in the order of its records.
    ///
    /// A slow callback delays other callbacks, not records. Back pressure: while more than
    /// `callbacks::BACKLOG_MAX` callbacks wait to run, this call waits too, within max.block.ms.
    ///
    /// - Errors: as `send`; the callback is dropped without running. `Timeout` when too many
    ///   callbacks are waiting.
    pub fn send_with(
        &self,
        record: &Record<'_>,
        callback: impl FnOnce(Result<RecordMetadata, Error>) + Send + 'static,
    ) -> Result<(), Error> {
        if self.callbacks.is_over_limit() {
            self.wait_for_callbacks()?;
        }
        let callback = Callback::Once(Box::new(callback));
        self.send_or_wait(record, Some(callback), false)
            .map_err(|(error, _)| error)?;
        Ok(())
    }

    /// Like `send_with`; the result goes to the handler of `with_delivery`, with this tag. Tags
    /// need not be unique.
    ///
    /// - Errors: as `send_with`; the handler is not called for this record. `IllegalState` for a
    ///   producer without a handler.
    pub fn send_tagged(&self, record: &Record<'_>, tag: u64) -> Result<(), Error> {
        if !self.callbacks.has_delivery() {
            return Err(Error::IllegalState {
                message: "a record can be tagged if its producer was made by with_delivery".into(),
            });
        }
        if self.callbacks.is_over_limit() {
            self.wait_for_callbacks()?;
        }
        self.send_or_wait(record, Some(Callback::Tag(tag)), false)
            .map_err(|(error, _)| error)?;
        Ok(())
    }

    /// Like `send`, but never waits.
    ///
    /// - Errors: as `send`; `TopicNotPresent` when the topic's metadata is not known yet (it is
    ///   requested: try again), `BufferExhausted` when there is no room now.
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

    /// Like `send`, but waits without blocking the thread, in any async runtime. A future dropped
    /// before it completes has sent nothing.
    ///
    /// The future ends by itself after max.block.ms, without a timer of the runtime: its error says
    /// what was missing. An outer time limit below max.block.ms hides that.
    ///
    /// - Errors: as `send`.
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
        let deadline = attempt.now.after_ms(self.config.max_block_ms);
        loop {
            match self.attempt(&mut attempt) {
                Ok(accepted) => return Ok(accepted.future()),
                Err(obstacle) => self.remove_async(&mut attempt, obstacle, deadline).await?,
            }
            attempt.now = self.clock.moment();
        }
    }

    /// Returns the topic's partitions; waits up to max.block.ms while its metadata is not known.
    ///
    /// - Errors: as `send`.
    pub fn partitions_for(&self, topic: &str) -> Result<Arc<Topic>, Error> {
        check_topic_name(topic)?;
        self.metadata.wait_for_topic(topic, self.config.max_block_ms)
    }

    /// The producer's metrics.
    pub fn metrics(&self) -> &Arc<ClientMetrics> {
        &self.client_metrics
    }

    /// The settings in effect.
    pub fn config(&self) -> &ProducerConfig {
        &self.config
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

/// - Errors: `InvalidArgument` for a topic name that no broker accepts.
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

fn whole_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// A different seed for every producer, so that producers do not make the same random choices.
fn seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::process::id())
}

#[cfg(test)]
mod tests;
