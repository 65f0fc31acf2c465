//! Commits: synchronous, asynchronous, automatic.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::exchange::Command;
use super::front::Consumer;
use super::group::{CommitKind, Offsets};
use super::topic_partition::{OffsetAndMetadata, TopicPartition};
use crate::error::Error;
use crate::pending::{Pending, pending};

/// The callback of `commit_async`, called with the commit's result.
pub type CommitCallback = Box<dyn FnOnce(Result<Offsets, Error>) + Send>;

/// A `commit_async` in progress.
pub(super) struct AsyncCommit {
    pending: Pending<Offsets>,
    callback: CommitCallback,
}

impl fmt::Debug for AsyncCommit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AsyncCommit")
    }
}

impl Consumer {
    /// Commits every position that `poll` has reached, and waits for the result.
    ///
    /// - Errors: `Timeout` with `default.api.timeout.ms`; the group's refusal, e.g.
    ///   `RebalanceInProgress` or `IllegalGeneration` when the partitions are no longer this
    ///   member's.
    pub fn commit_sync(&mut self) -> Result<(), Error> {
        let consumed = self.exchange.lock().assignment.consumed();
        self.commit_sync_offsets(consumed)
    }

    /// Commits these offsets (each that of the next record to read), and waits for the result.
    ///
    /// - Errors: as `commit_sync`; `InvalidArgument` for a negative offset.
    pub fn commit_sync_offsets(&mut self, offsets: Offsets) -> Result<(), Error> {
        let started = self.now();
        let result = self.commit_offsets(offsets).wait();
        self.metrics
            .consumer()
            .commit_sync_waited(self.now().nanos_since(started));
        // Commits are answered in order, so the results of earlier ones are known, too.
        self.finish_async_commits();
        result.map(|_| ())
    }

    /// Commits every position that `poll` has reached, with retries like `commit_sync`. The future
    /// works in every async runtime, [`Pending::wait`] blocks; it completes with the offsets when
    /// the group has answered, without a later `poll`. Dropping it cancels nothing.
    ///
    /// - Errors: as `commit_sync`.
    ///
    /// ```no_run
    /// # use ottla_client::consumer::Consumer;
    /// # async fn example(consumer: &mut Consumer) -> Result<(), ottla_client::Error> {
    /// let records = consumer.recv().await?;
    /// println!("{} records", records.len());
    /// consumer.commit().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn commit(&mut self) -> Pending<Offsets> {
        let consumed = self.exchange.lock().assignment.consumed();
        self.commit_offsets(consumed)
    }

    /// Like `commit`, for these offsets (each that of the next record to read).
    ///
    /// - Errors: as `commit_sync_offsets`.
    pub fn commit_offsets(&mut self, offsets: Offsets) -> Pending<Offsets> {
        let deadline = self.api_deadline();
        self.begin_commit(offsets, CommitKind::Sync { deadline }, None)
            .unwrap_or_else(|error| Pending::decided(Err(error)))
    }

    /// Commits every position that `poll` has reached, without waiting and without a retry. The
    /// future completes when the group has answered, without a later `poll`; it need not be
    /// awaited. The callback is called inside a later `poll`, `commit_sync` or `close`.
    ///
    /// - Errors: as `commit_async_offsets`.
    pub fn commit_async(&mut self, callback: Option<CommitCallback>) -> Result<Pending<Offsets>, Error> {
        let consumed = self.exchange.lock().assignment.consumed();
        self.commit_async_offsets(consumed, callback)
    }

    /// Like `commit_async`, for these offsets.
    ///
    /// - Errors: `InvalidArgument` for a negative offset or without `group.id`; all others go to
    ///   the future and to the callback.
    pub fn commit_async_offsets(
        &mut self,
        offsets: Offsets,
        callback: Option<CommitCallback>,
    ) -> Result<Pending<Offsets>, Error> {
        self.finish_async_commits();
        self.begin_commit(offsets, CommitKind::Async, callback)
    }

    fn begin_commit(
        &mut self,
        offsets: Offsets,
        kind: CommitKind,
        callback: Option<CommitCallback>,
    ) -> Result<Pending<Offsets>, Error> {
        self.check_open()?;
        self.check_group()?;
        if let Some((name, invalid)) = offsets.iter().find(|(_, offset)| offset.offset < 0) {
            return Err(Error::InvalidArgument {
                message: format!("invalid negative offset {} for {name}", invalid.offset).into(),
            });
        }
        let (promise, result) = pending();
        let mut promises = vec![promise];
        if let Some(callback) = callback {
            let (promise, pending) = pending();
            promises.push(promise);
            self.async_commits.push(AsyncCommit { pending, callback });
        }
        if offsets.is_empty() {
            for promise in promises {
                promise.fulfil(Ok(Offsets::new()));
            }
            return Ok(result);
        }
        self.exchange.command(Command::Commit {
            offsets,
            kind,
            promises,
        });
        Ok(result)
    }

    /// Calls the callbacks of finished commits, in the order of the calls.
    pub(super) fn finish_async_commits(&mut self) {
        let mut known = 0;
        let mut results = Vec::new();
        for commit in &mut self.async_commits {
            let Some(result) = commit.pending.try_take() else {
                break;
            };
            known += 1;
            results.push(result);
        }
        for (commit, result) in self.async_commits.drain(..known).zip(results) {
            (commit.callback)(result);
        }
    }

    /// `enable.auto.commit`: a new poll means that the records of earlier polls have been
    /// processed.
    pub(super) fn auto_commit(&self) {
        if self.activity.auto_commit_due() <= self.now() {
            let consumed = self.exchange.lock().assignment.consumed();
            self.exchange.command(Command::AutoCommit { consumed });
        }
    }

    /// Returns the group's committed offsets; partitions without one are left out.
    ///
    /// - Errors: `Timeout` with `default.api.timeout.ms`; `InvalidArgument` without `group.id`.
    pub fn committed(
        &mut self,
        partitions: impl IntoIterator<Item = TopicPartition>,
    ) -> Result<BTreeMap<TopicPartition, OffsetAndMetadata>, Error> {
        let started = self.now();
        let result = self.committed_async(partitions).wait();
        self.metrics
            .consumer()
            .committed_waited(self.now().nanos_since(started));
        result
    }

    /// Like `committed`, as a future for any async runtime; [`Pending::wait`] blocks.
    ///
    /// - Errors: as `committed`.
    pub fn committed_async(
        &mut self,
        partitions: impl IntoIterator<Item = TopicPartition>,
    ) -> Pending<BTreeMap<TopicPartition, OffsetAndMetadata>> {
        if let Err(error) = self.check_open().and_then(|()| self.check_group()) {
            return Pending::decided(Err(error));
        }
        let partitions: BTreeSet<TopicPartition> = partitions.into_iter().collect();
        if partitions.is_empty() {
            return Pending::decided(Ok(BTreeMap::new()));
        }
        let (promise, pending) = pending();
        self.exchange.command(Command::Committed {
            partitions,
            deadline: self.api_deadline(),
            promise,
        });
        pending
    }

    /// Triggers a rebalance of the group (KIP-568), e.g. because this member's weight in the
    /// application's own assignment scheme has changed.
    pub fn enforce_rebalance(&mut self, reason: &str) -> Result<(), Error> {
        self.check_open()?;
        self.check_group()?;
        self.exchange.command(Command::Rejoin {
            reason: reason.into(),
        });
        Ok(())
    }
}
