//! Queries about partitions: their first and last offsets, this consumer's lag, which topics exist.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::exchange::{Command, TopicDescription};
use super::front::Consumer;
use super::offsets_by_time::{EARLIEST, FoundOffsets, LATEST};
use super::position_calls::{known_position, timed_out};
use super::topic_partition::{OffsetAndTimestamp, TopicPartition};
use crate::error::Error;
use crate::metadata::snapshot::Topic;
use crate::pending::{Pending, pending};

impl Consumer {
    /// Returns the offset of the next record that `poll` will return; waits if it must be looked
    /// up.
    ///
    /// - Errors: `IllegalState` for a partition that is not assigned; `NoOffset`; `Timeout` with
    ///   `default.api.timeout.ms`; other errors that keep the position from being known.
    pub fn position(&mut self, partition: &TopicPartition) -> Result<i64, Error> {
        self.check_open()?;
        let deadline = self.api_deadline();
        loop {
            self.run_calls();
            let mut state = self.exchange.lock();
            if let Some(known) = known_position(&mut state, partition) {
                return known;
            }
            let left_nanos = deadline.nanos_since(self.now());
            if left_nanos == 0 {
                return Err(timed_out(partition, self.config.default_api_timeout_ms));
            }
            drop(self.exchange.wait(state, Duration::from_nanos(left_nanos)));
        }
    }

    /// Like `position`, as a future for any async runtime; [`Pending::wait`] blocks. It completes
    /// without a `poll`.
    ///
    /// - Errors: as `position`.
    pub fn position_async(&mut self, partition: &TopicPartition) -> Pending<i64> {
        if let Err(error) = self.check_open() {
            return Pending::decided(Err(error));
        }
        let known = known_position(&mut self.exchange.lock(), partition);
        if let Some(known) = known {
            return Pending::decided(known);
        }
        let (promise, pending) = pending();
        self.exchange.command(Command::Position {
            partition: partition.clone(),
            deadline: self.api_deadline(),
            promise,
        });
        pending
    }

    /// Records of a partition that this consumer could read and has not; `None` until both ends are
    /// known (KIP-695).
    pub fn current_lag(&self, partition: &TopicPartition) -> Option<u64> {
        self.exchange.lock().assignment.get(partition)?.lag()
    }

    /// `current_lag` of every assigned partition where it is known.
    pub fn lag(&self) -> BTreeMap<TopicPartition, u64> {
        let state = self.exchange.lock();
        let lags = state
            .assignment
            .iter()
            .filter_map(|(name, partition)| Some((name.clone(), partition.lag()?)));
        lags.collect()
    }

    /// Returns the offset of the first record of each partition.
    ///
    /// - Errors: `Timeout` with `default.api.timeout.ms`; a broker's refusal.
    pub fn beginning_offsets(
        &mut self,
        partitions: impl IntoIterator<Item = TopicPartition>,
    ) -> Result<BTreeMap<TopicPartition, i64>, Error> {
        self.log_ends(partitions, EARLIEST)
    }

    /// Returns the end offset of each partition; with `read_committed` the last stable offset.
    ///
    /// - Errors: as `beginning_offsets`.
    pub fn end_offsets(
        &mut self,
        partitions: impl IntoIterator<Item = TopicPartition>,
    ) -> Result<BTreeMap<TopicPartition, i64>, Error> {
        self.log_ends(partitions, LATEST)
    }

    fn log_ends(
        &mut self,
        partitions: impl IntoIterator<Item = TopicPartition>,
        which: i64,
    ) -> Result<BTreeMap<TopicPartition, i64>, Error> {
        let targets = partitions.into_iter().map(|name| (name, which)).collect();
        let found = self.list_offsets(targets)?;
        Ok(found
            .into_iter()
            .map(|(name, found)| (name, found.offset))
            .collect())
    }

    /// Returns the first record of each partition at or after its time, in milliseconds since the
    /// Unix epoch; partitions without one are left out.
    ///
    /// - Errors: as `beginning_offsets`; `InvalidArgument` for a negative time.
    pub fn offsets_for_times(
        &mut self,
        times: impl IntoIterator<Item = (TopicPartition, i64)>,
    ) -> Result<BTreeMap<TopicPartition, OffsetAndTimestamp>, Error> {
        let targets: BTreeMap<TopicPartition, i64> = times.into_iter().collect();
        if let Some((name, time)) = targets.iter().find(|(_, time)| **time < 0) {
            return Err(Error::InvalidArgument {
                message: format!("the target time for partition {name} is {time}, it cannot be negative")
                    .into(),
            });
        }
        self.list_offsets(targets)
    }

    fn list_offsets(&mut self, targets: BTreeMap<TopicPartition, i64>) -> Result<FoundOffsets, Error> {
        self.check_open()?;
        if targets.is_empty() {
            return Ok(FoundOffsets::new());
        }
        let (promise, pending) = pending();
        self.exchange.command(Command::ListOffsets {
            targets,
            deadline: self.api_deadline(),
            promise,
        });
        pending.wait()
    }

    /// Returns the topic with its partitions, their leaders and replicas.
    ///
    /// - Errors: `TopicNotPresent` after `default.api.timeout.ms`; a broker's refusal.
    pub fn partitions_for(&mut self, topic: &str) -> Result<Arc<Topic>, Error> {
        self.check_open()?;
        let name: Arc<str> = topic.into();
        self.exchange.lock().asked_topics.insert(Arc::clone(&name));
        let result = self
            .metadata
            .wait_for_topic(topic, self.config.default_api_timeout_ms);
        self.exchange.lock().asked_topics.remove(&name);
        result
    }

    /// Returns all topics that this client may see.
    ///
    /// - Errors: `Timeout` with `default.api.timeout.ms`.
    pub fn list_topics(&mut self) -> Result<Vec<TopicDescription>, Error> {
        self.check_open()?;
        let (promise, pending) = pending();
        self.exchange.command(Command::ListTopics {
            deadline: self.api_deadline(),
            promise,
        });
        pending.wait()
    }
}
