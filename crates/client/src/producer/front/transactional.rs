//! `TransactionalProducer` and `Transaction`, the API of transactions.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::Producer;
use crate::config::{Config, ProducerConfig};
use crate::consumer::{GroupMetadata, OffsetAndMetadata, TopicPartition};
use crate::error::Error;
use crate::metadata::snapshot::Topic;
use crate::metrics::{ClientMetrics, TransactionCall};
use crate::pending::{Pending, pending};
use crate::producer::completion::SendFuture;
use crate::producer::partitioner::Partitioner;
use crate::producer::record::{Record, RecordMetadata};
use crate::producer::sender::ProducerMachine;
use crate::producer::transaction::calls::{Call, OffsetsToCommit, Outcome, Waiter};
use crate::wait;

/// Sends records in transactions (KIP-98): consumers with `isolation.level=read_committed` see all
/// records of a transaction or none, across topics and partitions, and the offsets that a group has
/// consumed can be part of it.
///
/// It needs `transactional.id`: of the producers with the same one, the last that called `init` is
/// the only one whose transactions succeed. `acks=all` and idempotence are implied. The
/// coordinator aborts a transaction that is open for longer than `transaction.timeout.ms`.
///
/// One transaction is open at a time; threads can share it. `max.block.ms` limits every call. A
/// call that has reached it goes on in the background; the next one of its kind joins it.
///
/// Both protocols of transactions are spoken, that of `transaction.version` 2 (KIP-890) when the
/// cluster has finalized it. A producer notices a change of it between two transactions.
///
/// ```no_run
/// use ottla_client::config::Config;
/// use ottla_client::producer::{CommitError, Record, TransactionalProducer};
///
/// # fn main() -> Result<(), ottla_client::Error> {
/// let config = Config::new()
///     .set("bootstrap.servers", "localhost:9092")
///     .set("transactional.id", "payments-1");
/// let producer = TransactionalProducer::new(&config)?;
/// producer.init()?;
/// let transaction = producer.begin()?;
/// drop(transaction.send(&Record::new("debits").key("alice").value("-5"))?);
/// drop(transaction.send(&Record::new("credits").key("bob").value("+5"))?);
/// match transaction.commit() {
///     Ok(()) => println!("both or none: both"),
///     Err(CommitError::Abortable(transaction, reason)) => {
///         println!("none, try again: {reason}");
///         transaction.abort()?;
///     }
///     Err(CommitError::Unfinished(transaction, _)) => transaction.commit()?,
///     Err(CommitError::Recoverable(_)) => producer.init()?,
///     Err(fatal) => return Err(fatal.into()),
/// }
/// # Ok(())
/// # }
/// ```
pub struct TransactionalProducer {
    producer: Producer,
    is_open: AtomicBool,
}

/// An open transaction; dropped without `commit`, it is aborted in the background, for which the
/// next [`TransactionalProducer::begin`] waits.
pub struct Transaction<'a> {
    producer: &'a TransactionalProducer,
    is_ended: bool,
}

/// Why a transaction was not committed. Where it is still the caller's, it is handed back.
#[non_exhaustive]
pub enum CommitError<'a> {
    /// A send or a request of the transaction failed. It can only be aborted; then its records can
    /// be sent again in another one. Positions of consumers: see [`Transaction::abort`].
    Abortable(Transaction<'a>, Error),
    /// max.block.ms has passed, and the outcome is not known yet. Call `commit` again. It cannot be
    /// aborted any more.
    Unfinished(Transaction<'a>, Error),
    /// Another producer has taken the transactional id, or the coordinator has aborted the
    /// transaction after transaction.timeout.ms, or does not know this producer any
    /// more. Nothing of the transaction is seen, unless an earlier `commit` of it was `Unfinished`.
    /// [`TransactionalProducer::init`] is the way back; positions of consumers whose offsets were
    /// part of it must be reset to the committed ones.
    Recoverable(Error),
    /// No transaction of this producer can succeed.
    Fatal(Error),
}

impl CommitError<'_> {
    /// The cause.
    pub fn error(&self) -> &Error {
        match self {
            CommitError::Abortable(_, error)
            | CommitError::Unfinished(_, error)
            | CommitError::Recoverable(error)
            | CommitError::Fatal(error) => error,
        }
    }
}

/// The transaction is dropped, hence aborted where it still can be.
impl From<CommitError<'_>> for Error {
    fn from(error: CommitError<'_>) -> Error {
        error.error().clone()
    }
}

impl fmt::Display for CommitError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, error) = match self {
            CommitError::Abortable(_, error) => ("must be aborted", error),
            CommitError::Unfinished(_, error) => ("is not finished", error),
            CommitError::Recoverable(error) => ("is lost", error),
            CommitError::Fatal(error) => ("failed for good", error),
        };
        write!(f, "the transaction {what}: {error}")
    }
}

impl fmt::Debug for CommitError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            CommitError::Abortable(..) => "Abortable",
            CommitError::Unfinished(..) => "Unfinished",
            CommitError::Recoverable(_) => "Recoverable",
            CommitError::Fatal(_) => "Fatal",
        };
        f.debug_tuple(name).field(self.error()).finish()
    }
}

impl std::error::Error for CommitError<'_> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(self.error())
    }
}

impl TransactionalProducer {
    /// - Errors: `Config` for wrong settings and without `transactional.id`; whatever the operating
    ///   system refuses (descriptors, threads).
    pub fn new(config: &Config) -> Result<TransactionalProducer, Error> {
        TransactionalProducer::start(config, None)
    }

    /// Like `new`; `partitioner` chooses for records that name no partition.
    ///
    /// - Errors: as `new`.
    pub fn with_partitioner(
        config: &Config,
        partitioner: impl Partitioner + 'static,
    ) -> Result<TransactionalProducer, Error> {
        TransactionalProducer::start(config, Some(Box::new(partitioner)))
    }

    fn start(
        config: &Config,
        partitioner: Option<Box<dyn Partitioner>>,
    ) -> Result<TransactionalProducer, Error> {
        let config = ProducerConfig::from_config(config)?;
        if config.transactional_id.is_none() {
            return Err(Error::Config {
                key: "transactional.id".into(),
                message: "Missing required configuration \"transactional.id\" which has no default value."
                    .into(),
            });
        }
        let producer = Producer::run(config, partitioner, None, |parts| {
            Box::new(ProducerMachine::new(parts))
        })?;
        Ok(TransactionalProducer {
            producer,
            is_open: AtomicBool::new(false),
        })
    }

    /// Takes over the transactional id: producers that had it before are fenced, and a transaction
    /// that one of them left open is aborted. Call it once before the first `begin`, and again
    /// after [`CommitError::Recoverable`].
    ///
    /// - Errors: `Timeout` with max.block.ms; calling it again joins the attempt. A broker's
    ///   refusal, for instance of the id or of `transaction.timeout.ms`. `IllegalState` while a
    ///   transaction is open.
    pub fn init(&self) -> Result<(), Error> {
        wait::block_on(self.init_async())
    }

    /// Like `init`, as a future for any async runtime. It starts with the first poll.
    ///
    /// - Errors: as `init`.
    pub async fn init_async(&self) -> Result<(), Error> {
        let outcome = self.call(TransactionCall::Init, Call::Init).await?;
        outcome.into_result()
    }

    /// Opens a transaction; waits until the one before is ended.
    ///
    /// - Errors: `IllegalState` while a transaction is open, and before `init`; `Timeout` with
    ///   max.block.ms; why the producer can begin none, where
    ///   [`Error::needs_new_producer`] tells whether `init` helps.
    pub fn begin(&self) -> Result<Transaction<'_>, Error> {
        wait::block_on(self.begin_async())
    }

    /// Like `begin`, as a future for any async runtime. It starts with the first poll.
    ///
    /// - Errors: as `begin`.
    pub async fn begin_async(&self) -> Result<Transaction<'_>, Error> {
        if self.is_open.swap(true, Ordering::AcqRel) {
            return Err(Error::IllegalState {
                message: "begin: a transaction is open".into(),
            });
        }
        // Made before the wait: dropped with this future, it takes the call back.
        let transaction = Transaction {
            producer: self,
            is_ended: false,
        };
        let outcome = self.call(TransactionCall::Begin, Call::Begin).await?;
        outcome.into_result()?;
        Ok(transaction)
    }

    /// As [`Producer::close`]. A transaction that is being ended in the background is ended first.
    ///
    /// - Errors: as [`Producer::close`].
    pub fn close(&self, limit: Duration) -> Result<(), Error> {
        self.producer.close(limit)
    }

    /// As [`Producer::close_async`].
    ///
    /// - Errors: as [`Producer::close_async`].
    pub async fn close_async(&self) -> Result<(), Error> {
        self.producer.close_async().await
    }

    /// As [`Producer::partitions_for`].
    ///
    /// - Errors: as [`Producer::partitions_for`].
    pub fn partitions_for(&self, topic: &str) -> Result<Arc<Topic>, Error> {
        self.producer.partitions_for(topic)
    }

    /// The producer's metrics.
    pub fn metrics(&self) -> &Arc<ClientMetrics> {
        self.producer.metrics()
    }

    /// The settings in effect.
    pub fn config(&self) -> &ProducerConfig {
        self.producer.config()
    }

    async fn call(&self, name: TransactionCall, call: impl FnOnce(Waiter) -> Call) -> Result<Outcome, Error> {
        let started = self.producer.clock.moment();
        let pending = self.push(call);
        let outcome = pending.await;
        let nanos = self.producer.clock.moment().nanos_since(started);
        self.producer.metrics.transaction_called(name, nanos);
        // The sender has ended, with this error if not with `close`.
        outcome.map_err(|error| self.producer.commands.fatal().cloned().unwrap_or(error))
    }

    fn push(&self, call: impl FnOnce(Waiter) -> Call) -> Pending<Outcome> {
        let (promise, pending) = pending();
        let now = self.producer.clock.moment();
        let deadline = now.after_ms(self.producer.config.max_block_ms);
        self.producer
            .commands
            .transactions
            .push(call(Waiter { deadline, promise }));
        self.producer.waker.wake();
        pending
    }

    /// A transaction that lacks a record must not be committed.
    fn check_sent<T>(&self, result: Result<T, Error>) -> Result<T, Error> {
        if let Err(error) = &result {
            self.producer.commands.transactions.set_trouble(error);
        }
        result
    }
}

impl fmt::Debug for TransactionalProducer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TransactionalProducer")
            .field("transactional_id", &self.producer.config.transactional_id)
            .field("is_open", &self.is_open.load(Ordering::Relaxed))
            .finish_non_exhaustive()
    }
}

impl Transaction<'_> {
    /// As [`Producer::send`]. The future resolves when the record is acknowledged or given up, not
    /// when the transaction is committed.
    ///
    /// - Errors: as [`Producer::send`]; after the first failure in the transaction, that error at
    ///   once. Whatever fails, this call or the record later, only `abort` can end the
    ///   transaction then.
    pub fn send(&self, record: &Record<'_>) -> Result<SendFuture, Error> {
        self.check()?;
        self.producer.check_sent(self.producer.producer.send(record))
    }

    /// As [`Producer::send_with`].
    ///
    /// - Errors: as `send`.
    pub fn send_with(
        &self,
        record: &Record<'_>,
        callback: impl FnOnce(Result<RecordMetadata, Error>) + Send + 'static,
    ) -> Result<(), Error> {
        self.check()?;
        let sent = self.producer.producer.send_with(record, callback);
        self.producer.check_sent(sent)
    }

    /// As [`Producer::try_send`]. A refusal because there is no room or no metadata now does not
    /// fail the transaction.
    ///
    /// - Errors: as [`Producer::try_send`]; after the first failure in the transaction, that error.
    pub fn try_send(&self, record: &Record<'_>) -> Result<SendFuture, Error> {
        self.check()?;
        match self.producer.producer.try_send(record) {
            Err(error) if error.is_retriable() => Err(error),
            result => self.producer.check_sent(result),
        }
    }

    /// As [`Producer::send_async`].
    ///
    /// - Errors: as `send`.
    pub async fn send_async(&self, record: &Record<'_>) -> Result<SendFuture, Error> {
        self.check()?;
        let sent = self.producer.producer.send_async(record).await;
        self.producer.check_sent(sent)
    }

    /// Makes offsets part of the transaction (KIP-447): they become the group's if it is committed.
    /// Returns when the group's coordinator has them. The consumer must not commit them itself:
    /// `enable.auto.commit=false`.
    ///
    /// - `group`: of [`Consumer::group_metadata`](crate::consumer::Consumer::group_metadata), so
    ///   that a member that has lost its partitions is refused.
    /// - Errors: the group's refusal, for instance ILLEGAL_GENERATION; `Timeout` with max.block.ms.
    ///   Only `abort` can end the transaction then.
    ///
    /// ```no_run
    /// # use std::collections::BTreeMap;
    /// # use std::time::Duration;
    /// # use ottla_client::Error;
    /// # use ottla_client::consumer::{Consumer, OffsetAndMetadata, TopicPartition};
    /// # use ottla_client::producer::{Record, TransactionalProducer};
    /// # type Producer = TransactionalProducer;
    /// # fn transform(consumer: &mut Consumer, producer: &Producer) -> Result<(), Error> {
    /// let records = consumer.poll(Duration::from_secs(1))?;
    /// let transaction = producer.begin()?;
    /// let mut offsets = BTreeMap::new();
    /// for record in &records {
    ///     drop(transaction.send(&Record::new("out").value(record.value.unwrap_or_default()))?);
    ///     let partition = TopicPartition::new(record.topic, record.partition);
    ///     offsets.insert(partition, OffsetAndMetadata::new(record.offset + 1));
    /// }
    /// drop(records);
    /// let group = consumer.group_metadata().expect("group.id is set");
    /// transaction.send_offsets(&offsets, &group)?;
    /// transaction.commit()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn send_offsets(
        &self,
        offsets: &BTreeMap<TopicPartition, OffsetAndMetadata>,
        group: &GroupMetadata,
    ) -> Result<(), Error> {
        wait::block_on(self.send_offsets_async(offsets, group))
    }

    /// Like `send_offsets`, as a future for any async runtime. It starts with the first poll.
    ///
    /// - Errors: as `send_offsets`.
    pub async fn send_offsets_async(
        &self,
        offsets: &BTreeMap<TopicPartition, OffsetAndMetadata>,
        group: &GroupMetadata,
    ) -> Result<(), Error> {
        self.check()?;
        if group.group_id.is_empty() {
            return Err(Error::InvalidArgument {
                message: "send_offsets needs the id of a group".into(),
            });
        }
        if offsets.is_empty() {
            return Ok(());
        }
        let offsets = Arc::new(OffsetsToCommit {
            group: group.clone(),
            offsets: offsets.clone(),
        });
        let outcome = self
            .producer
            .call(TransactionCall::SendOffsets, |waiter| {
                Call::Offsets(offsets, waiter)
            })
            .await?;
        outcome.into_result()
    }

    /// Why this transaction can only be aborted.
    fn check(&self) -> Result<(), Error> {
        let trouble = self.producer.producer.commands.transactions.trouble();
        trouble.map_or(Ok(()), Err)
    }
}

impl<'a> Transaction<'a> {
    /// Sends what is buffered, waits until every record is acknowledged, and commits.
    ///
    /// Callbacks of the records may still be running when it returns.
    ///
    /// - Errors: see [`CommitError`].
    pub fn commit(self) -> Result<(), CommitError<'a>> {
        wait::block_on(self.commit_async())
    }

    /// Like `commit`, as a future for any async runtime. It starts with the first poll; dropped
    /// after that, the commit goes on, and the next `begin` waits for it.
    ///
    /// - Errors: as `commit`.
    pub async fn commit_async(mut self) -> Result<(), CommitError<'a>> {
        let inner = &self.producer.producer;
        inner.accumulator.seal_all(inner.clock.moment());
        let outcome = match self.producer.call(TransactionCall::Commit, Call::Commit).await {
            Ok(outcome) => outcome,
            Err(error) => Outcome::Fatal(error),
        };
        match outcome {
            Outcome::Abortable(error) => return Err(CommitError::Abortable(self, error)),
            Outcome::Unfinished(error) => return Err(CommitError::Unfinished(self, error)),
            _ => {}
        }
        self.is_ended = true;
        match outcome {
            Outcome::Done => Ok(()),
            Outcome::Lost(error) => Err(CommitError::Recoverable(error)),
            Outcome::Abortable(error)
            | Outcome::Unfinished(error)
            | Outcome::Fatal(error)
            | Outcome::Refused(error) => Err(CommitError::Fatal(error)),
        }
    }

    /// Drops the records that are not sent, whose futures fail with `TransactionAborted`, waits for
    /// those on their way, and aborts: no `read_committed` consumer sees a record of it.
    ///
    /// A consumer whose offsets were part of it stands behind the records that it has read. Before
    /// it polls again, seek it to the committed offsets, or the input of this transaction is never
    /// processed (KAFKA-17582).
    ///
    /// - Errors: `Timeout` with max.block.ms: the abort goes on, and the next `begin` waits for it;
    ///   `IllegalState` after a `commit` that is `Unfinished`; else the producer has lost its
    ///   transactional id ([`Error::needs_new_producer`]) or failed, and the coordinator aborts.
    pub fn abort(self) -> Result<(), Error> {
        wait::block_on(self.abort_async())
    }

    /// Like `abort`, as a future for any async runtime. Dropped at any time, the abort goes on.
    ///
    /// - Errors: as `abort`.
    pub async fn abort_async(mut self) -> Result<(), Error> {
        let abort = |waiter| Call::Abort(Some(waiter));
        let outcome = self.producer.call(TransactionCall::Abort, abort).await?;
        // After a refusal the drop of this guard lets the commit end by itself.
        self.is_ended = !matches!(outcome, Outcome::Refused(_));
        outcome.into_result()
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        let inner = &self.producer.producer;
        if !self.is_ended {
            inner.commands.transactions.push(Call::Abort(None));
            inner.waker.wake();
        }
        self.producer.is_open.store(false, Ordering::Release);
    }
}

impl fmt::Debug for Transaction<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transaction")
            .field("producer", self.producer)
            .finish_non_exhaustive()
    }
}
