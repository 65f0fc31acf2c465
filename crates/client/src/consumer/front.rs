//! The consumer API for applications: Kafka's blocking calls, over a machine on its own thread.

use std::collections::BTreeSet;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::assignment::Assignment;
use super::committing::AsyncCommit;
use super::exchange::{Command, Exchange, ExchangeState};
use super::group::GroupMetadata;
use super::listener::RebalanceListener;
use super::machine::ConsumerMachine;
use super::poll_activity::PollActivity;
use super::position::{Position, ResetTo};
use super::reader::Reader;
use super::records::ConsumerRecords;
use super::subscription::{Subscription, TopicPattern};
use super::topic_partition::{OffsetAndMetadata, TopicPartition};
use crate::config::{Config, ConsumerConfig, GroupProtocol};
use crate::driver::{Driver, DriverSetup};
use crate::error::Error;
use crate::metadata::{Interest, MetadataCell};
use crate::metrics::{ClientKind, ClientMetrics};
use crate::time::{Clock, Moment};

/// Reads records from partitions assigned by the application or by a consumer group.
///
/// One thread at a time uses a consumer, as in Kafka; a thread of its own prefetches records, sends
/// heartbeats and commits. Only [`WakeupHandle`] is for other threads.
///
/// Dropping the consumer returns at once, also inside an async runtime. Its thread then leaves the
/// group by itself, for at most a second and as long as the process lives; it commits nothing and
/// calls no rebalance listener. [`Consumer::close`] and [`Consumer::close_async`] do both.
///
/// ```no_run
/// use ottla_client::config::Config;
/// use ottla_client::consumer::Consumer;
/// # fn main() -> Result<(), ottla_client::Error> {
/// let config = Config::new()
///     .set("bootstrap.servers", "localhost:9092")
///     .set("group.id", "readers");
/// let mut consumer = Consumer::new(&config)?;
/// consumer.subscribe(["orders"])?;
/// for record in &consumer.poll(std::time::Duration::from_secs(1))? {
///     println!("{}-{} @ {}: {:?}", record.topic, record.partition, record.offset, record.value);
/// }
/// # consumer.close(std::time::Duration::from_secs(30))
/// # }
/// ```
pub struct Consumer {
    pub(super) config: Arc<ConsumerConfig>,
    pub(super) exchange: Arc<Exchange>,
    pub(super) metadata: Arc<MetadataCell>,
    pub(super) metrics: Arc<ClientMetrics>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) activity: Arc<PollActivity>,
    pub(super) listener: Option<Box<dyn RebalanceListener>>,
    pub(super) is_in_listener: bool,
    pub(super) async_commits: Vec<AsyncCommit>,
    reader: Reader,
    pub(super) source: Source,
    pub(super) driver: Driver,
    pub(super) is_closed: bool,
}

/// Where the assignment comes from.
#[derive(Clone, Debug)]
pub(super) enum Source {
    Nowhere,
    Application,
    Group(Subscription),
}

/// Interrupts a `poll` from another thread.
#[derive(Clone, Debug)]
pub struct WakeupHandle {
    exchange: Arc<Exchange>,
}

impl WakeupHandle {
    /// Makes the waiting `poll`, or else the next one, return `Error::Wakeup`.
    pub fn wakeup(&self) {
        self.exchange.wake_up();
    }
}

/// A number that differs between clients and between runs.
fn seed() -> u64 {
    RandomState::new().hash_one(std::process::id())
}

impl Consumer {
    /// Starts the consumer's thread; connections are made when they are first needed.
    ///
    /// - Errors: `Config` with Kafka's text.
    pub fn new(config: &Config) -> Result<Consumer, Error> {
        let config = Arc::new(ConsumerConfig::from_config(config)?);
        let metrics = ClientMetrics::new(
            ClientKind::Consumer,
            &config.client,
            Arc::new(crate::time::SystemClock::default()),
        );
        if let Some(group_id) = &config.group_id {
            metrics.set_label("group_id", Arc::clone(group_id));
        }
        if let Some(instance_id) = &config.group_instance_id {
            metrics.set_label("group_instance_id", Arc::clone(instance_id));
        }
        let mut setup = DriverSetup::new(&config.client, metrics.network())?;
        let clock = setup.clock();
        let assignment = Assignment::new(config.group_id.is_some(), config.auto_offset_reset);
        let exchange = Exchange::new(assignment, setup.waker());
        let metadata = Arc::new(MetadataCell::new(Interest::Named));
        metadata.attach(setup.waker());
        let activity = Arc::new(PollActivity::default());
        let machine = ConsumerMachine::new(
            Arc::clone(&config),
            Arc::clone(&exchange),
            Arc::clone(&metadata),
            Arc::clone(&activity),
            &metrics,
            seed(),
        );
        let (ended_exchange, ended_metadata) = (Arc::clone(&exchange), Arc::clone(&metadata));
        setup.at_end(move |error| {
            ended_metadata.close();
            ended_exchange.close(error.unwrap_or(Error::Closed));
        });
        let driver = setup.start("ottla-consumer", Box::new(machine))?;
        let reader = Reader::new(
            Arc::clone(&exchange),
            Arc::clone(metrics.consumer()),
            config.max_poll_records,
        );
        Ok(Consumer {
            config,
            exchange,
            metadata,
            metrics,
            clock,
            activity,
            listener: None,
            is_in_listener: false,
            async_commits: Vec::new(),
            reader,
            source: Source::Nowhere,
            driver,
            is_closed: false,
        })
    }

    pub(super) fn check_open(&self) -> Result<(), Error> {
        if self.is_closed {
            return Err(Error::Closed);
        }
        Ok(())
    }

    pub(super) fn now(&self) -> Moment {
        self.clock.moment()
    }

    /// The deadline of a call without a limit of its own: `default.api.timeout.ms`.
    pub(super) fn api_deadline(&self) -> Moment {
        self.now().after_ms(self.config.default_api_timeout_ms)
    }

    pub(super) fn api_timeout(&self, what: impl Into<Arc<str>>) -> Error {
        Error::Timeout {
            what: what.into(),
            limit_ms: self.config.default_api_timeout_ms,
            setting: "default.api.timeout.ms",
        }
    }

    /// Assigns exactly these partitions; the group, if there is one, only stores offsets. An empty
    /// assignment is `unsubscribe`.
    ///
    /// - Errors: `IllegalState` while subscribed; `InvalidArgument` for an empty topic or a
    ///   negative partition.
    pub fn assign(&mut self, partitions: impl IntoIterator<Item = TopicPartition>) -> Result<(), Error> {
        self.check_open()?;
        let partitions: BTreeSet<TopicPartition> = partitions.into_iter().collect();
        if let Source::Group(_) = self.source {
            return Err(mutually_exclusive());
        }
        if partitions.is_empty() {
            return self.unsubscribe();
        }
        let invalid = partitions
            .iter()
            .find(|name| name.topic.is_empty() || name.partition < 0);
        if let Some(name) = invalid {
            return Err(Error::InvalidArgument {
                message: format!("{name} is not the name of a partition").into(),
            });
        }
        let mut state = self.exchange.lock();
        if self.config.auto_commit_enabled && self.config.group_id.is_some() {
            let consumed = state.assignment.consumed();
            if !consumed.is_empty() {
                state.commands.push_back(Command::AutoCommit { consumed });
            }
        }
        state.forget_errors();
        state.assignment.replace(partitions, false);
        self.note_assignment(&state);
        drop(state);
        self.source = Source::Application;
        self.exchange.command(Command::Look);
        Ok(())
    }

    fn note_assignment(&self, state: &ExchangeState) {
        let names = state.assignment.names();
        let consumer = self.metrics.consumer();
        consumer.assignment_changed(names.map(|name| (&name.topic, name.partition)));
        consumer.assigned_partitions(state.assignment.len());
    }

    /// Joins the group `group.id`, which assigns partitions of these topics. Without topics:
    /// `unsubscribe`.
    ///
    /// - Errors: `IllegalState` after `assign`; `InvalidArgument` without `group.id`.
    pub fn subscribe<T: Into<Arc<str>>>(&mut self, topics: impl IntoIterator<Item = T>) -> Result<(), Error> {
        let topics: BTreeSet<Arc<str>> = topics.into_iter().map(Into::into).collect();
        if topics.is_empty() {
            return self.unsubscribe();
        }
        if topics.iter().any(|topic| topic.trim().is_empty()) {
            return Err(Error::InvalidArgument {
                message: "topic collection to subscribe to cannot contain an empty topic".into(),
            });
        }
        self.subscribe_to(Subscription::Topics(topics))
    }

    /// Like `subscribe`, for every topic whose whole name matches; new topics are added when the
    /// metadata shows them (`metadata.max.age.ms`). With `group.protocol=consumer` the broker
    /// matches, by the syntax of RE2/J.
    ///
    /// - Errors: as `subscribe`, and `InvalidArgument` for an invalid pattern, see
    ///   [`TopicPattern::parse`]; with `group.protocol=consumer` a `poll` has the broker's
    ///   INVALID_REGULAR_EXPRESSION instead.
    pub fn subscribe_pattern(&mut self, pattern: &str) -> Result<(), Error> {
        if pattern.is_empty() {
            return Err(Error::InvalidArgument {
                message: "topic pattern to subscribe to cannot be empty".into(),
            });
        }
        let pattern = match self.config.group_protocol {
            GroupProtocol::Classic => TopicPattern::parse(pattern)?,
            GroupProtocol::Consumer => TopicPattern::of_broker(pattern),
        };
        self.subscribe_to(Subscription::Pattern(pattern))
    }

    /// Sets the listener that is called when partitions are assigned or revoked, from the next
    /// rebalance on.
    pub fn set_rebalance_listener(&mut self, listener: impl RebalanceListener + 'static) {
        self.listener = Some(Box::new(listener));
    }

    fn subscribe_to(&mut self, subscription: Subscription) -> Result<(), Error> {
        self.check_open()?;
        self.check_group()?;
        if let Source::Application = self.source {
            return Err(mutually_exclusive());
        }
        self.source = Source::Group(subscription.clone());
        self.exchange.lock().forget_errors();
        self.exchange.command(Command::Subscribe(subscription));
        Ok(())
    }

    /// - Errors: `InvalidArgument` without `group.id`.
    pub(super) fn check_group(&self) -> Result<(), Error> {
        if self.config.group_id.is_some() {
            return Ok(());
        }
        Err(Error::InvalidArgument {
            message: "to use the group management or offset commit APIs, you must provide a valid group.id in the consumer configuration".into(),
        })
    }

    /// Gives up all partitions, and leaves the group if it was joined.
    ///
    /// - Errors: `Timeout` when the group does not answer; the partitions are given up
    ///   nevertheless.
    pub fn unsubscribe(&mut self) -> Result<(), Error> {
        self.check_open()?;
        let was_member = matches!(self.source, Source::Group(_));
        self.source = Source::Nowhere;
        let mut result = Ok(());
        if was_member {
            self.exchange.lock().has_left = false;
            self.exchange.command(Command::Subscribe(Subscription::None));
            if !self.run_calls_until_left(self.api_deadline()) {
                result = Err(self.api_timeout("leaving the group"));
            }
        }
        let mut state = self.exchange.lock();
        state.forget_errors();
        state.assignment.replace(BTreeSet::new(), false);
        self.note_assignment(&state);
        drop(state);
        self.exchange.command(Command::Look);
        result
    }

    /// The partitions assigned to this consumer, by the group or by `assign`.
    pub fn assignment(&self) -> BTreeSet<TopicPartition> {
        self.exchange.lock().assignment.names().cloned().collect()
    }

    /// The current subscription.
    pub fn subscription(&self) -> Subscription {
        match &self.source {
            Source::Group(subscription) => subscription.clone(),
            _ => Subscription::None,
        }
    }

    /// Waits up to `timeout` for records and returns at most `max.poll.records` of them, possibly
    /// none.
    ///
    /// The records point into the fetched memory. Besides what the application keeps, a consumer
    /// holds at most two responses of every node, 2 × `fetch.max.bytes` × nodes, and one
    /// decompressed batch.
    ///
    /// - Errors: `IllegalState` when there is nothing to read from; `Wakeup`; `CorruptBatch`,
    ///   repeated until the application seeks beyond that batch, while other partitions continue;
    ///   `NoOffset`; a refusal by the group or a broker.
    pub fn poll(&mut self, timeout: Duration) -> Result<ConsumerRecords, Error> {
        self.begin_poll()?;
        let result = self.poll_until(Instant::now().checked_add(timeout));
        self.end_poll();
        result
    }

    pub(super) fn begin_poll(&mut self) -> Result<(), Error> {
        self.check_open()?;
        if self.is_in_listener {
            return Err(Error::IllegalState {
                message: "a rebalance listener cannot poll".into(),
            });
        }
        if let Source::Nowhere = self.source {
            return Err(Error::IllegalState {
                message: "consumer is not subscribed to any topics or assigned any partitions".into(),
            });
        }
        self.metrics.consumer().poll_started();
        if self.activity.enter(self.now()) {
            self.exchange.wake_driver();
        }
        Ok(())
    }

    pub(super) fn end_poll(&self) {
        self.activity.leave(self.now());
        self.metrics.consumer().poll_ended();
    }

    /// - `end`: `None` means no deadline.
    fn poll_until(&mut self, end: Option<Instant>) -> Result<ConsumerRecords, Error> {
        loop {
            let records = self.take_ready()?;
            if !records.is_empty() {
                return Ok(records);
            }
            let left = end.map_or(Duration::MAX, |end| end.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return Ok(records);
            }
            let commit_nanos = self.activity.auto_commit_due().nanos_since(self.now());
            let limit = left.min(Duration::from_nanos(commit_nanos));
            let state = self.exchange.lock();
            // `wake_up` sets its flag under this lock.
            if !has_news(&state) && !self.exchange.is_woken_up() {
                drop(self.exchange.wait(state, limit));
            }
        }
    }

    /// All of a poll except the waiting.
    pub(super) fn take_ready(&mut self) -> Result<ConsumerRecords, Error> {
        if self.exchange.take_wake_up() {
            return Err(Error::Wakeup);
        }
        self.run_calls();
        self.auto_commit();
        self.finish_async_commits();
        self.reader.take()
    }

    /// Moves the position to this offset.
    ///
    /// - Errors: `IllegalState` for a partition that is not assigned; `InvalidArgument` for a
    ///   negative offset.
    pub fn seek(&mut self, partition: &TopicPartition, offset: i64) -> Result<(), Error> {
        self.seek_to(partition, Position::at(offset))
    }

    /// Like `seek`, with the leader epoch of the preceding record, so that log truncation is
    /// detected (KIP-320).
    pub fn seek_with_metadata(
        &mut self,
        partition: &TopicPartition,
        offset: &OffsetAndMetadata,
    ) -> Result<(), Error> {
        let position = Position {
            offset: offset.offset,
            leader_epoch: offset.leader_epoch,
        };
        self.seek_to(partition, position)
    }

    fn seek_to(&mut self, partition: &TopicPartition, position: Position) -> Result<(), Error> {
        self.check_open()?;
        if position.offset < 0 {
            return Err(Error::InvalidArgument {
                message: "seek offset must not be a negative number".into(),
            });
        }
        self.exchange.lock().assignment.seek(partition, position)?;
        self.exchange.command(Command::Look);
        Ok(())
    }

    /// Moves the position to the first record; an empty list means all assigned partitions. The
    /// offset is looked up in the background.
    pub fn seek_to_beginning(&mut self, partitions: &[TopicPartition]) -> Result<(), Error> {
        self.reset_to(partitions, ResetTo::Earliest)
    }

    /// Moves the position to the end, or to the last stable offset with `read_committed`; otherwise
    /// like `seek_to_beginning`.
    pub fn seek_to_end(&mut self, partitions: &[TopicPartition]) -> Result<(), Error> {
        self.reset_to(partitions, ResetTo::Latest)
    }

    /// Moves the position to the first record at or after a time in milliseconds since the Unix
    /// epoch, or to the end if there is none.
    pub fn seek_to_time(&mut self, partitions: &[TopicPartition], timestamp: i64) -> Result<(), Error> {
        if timestamp < 0 {
            return Err(Error::InvalidArgument {
                message: format!("timestamp {timestamp} is negative").into(),
            });
        }
        self.reset_to(partitions, ResetTo::Timestamp(timestamp))
    }

    fn reset_to(&mut self, partitions: &[TopicPartition], to: ResetTo) -> Result<(), Error> {
        self.check_open()?;
        let mut state = self.exchange.lock();
        let names: Vec<TopicPartition> = if partitions.is_empty() {
            state.assignment.names().cloned().collect()
        } else {
            partitions.to_vec()
        };
        for name in &names {
            state.assignment.reset(name, to)?;
        }
        drop(state);
        self.exchange.command(Command::Look);
        Ok(())
    }

    /// Stops reading these partitions until `resume`; records fetched already are kept.
    ///
    /// - Errors: `IllegalState` for a partition that is not assigned; then none is paused.
    pub fn pause(&mut self, partitions: &[TopicPartition]) -> Result<(), Error> {
        self.set_paused(partitions, true)
    }

    /// Continues reading these partitions after `pause`.
    ///
    /// - Errors: as `pause`.
    pub fn resume(&mut self, partitions: &[TopicPartition]) -> Result<(), Error> {
        self.set_paused(partitions, false)
    }

    fn set_paused(&mut self, partitions: &[TopicPartition], is_paused: bool) -> Result<(), Error> {
        self.check_open()?;
        self.exchange
            .lock()
            .assignment
            .set_paused(partitions, is_paused)?;
        self.exchange.command(Command::Look);
        Ok(())
    }

    /// The partitions that `pause` holds back.
    pub fn paused(&self) -> BTreeSet<TopicPartition> {
        self.exchange.lock().assignment.paused()
    }

    /// Returns a handle for other threads, such as signal handling threads.
    pub fn wakeup_handle(&self) -> WakeupHandle {
        WakeupHandle {
            exchange: Arc::clone(&self.exchange),
        }
    }

    /// The consumer's metrics, under Kafka's names.
    pub fn metrics(&self) -> &Arc<ClientMetrics> {
        &self.metrics
    }

    /// The group metadata with which a transactional producer commits offsets; `None` without
    /// `group.id`.
    pub fn group_metadata(&self) -> Option<GroupMetadata> {
        self.exchange.lock().group_metadata.clone()
    }

    /// The settings in effect.
    pub fn config(&self) -> &Arc<ConsumerConfig> {
        &self.config
    }
}

/// Whether a poll has anything to do other than wait.
pub(super) fn has_news(state: &ExchangeState) -> bool {
    state.has_error() || !state.calls.is_empty() || state.assignment.has_readable()
}

fn mutually_exclusive() -> Error {
    Error::IllegalState {
        message: "subscription to topics, partitions and pattern are mutually exclusive".into(),
    }
}

impl fmt::Debug for Consumer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer")
            .field("client_id", &self.config.client.client_id)
            .field("source", &self.source)
            .finish_non_exhaustive()
    }
}
