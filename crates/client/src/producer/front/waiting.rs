//! What `send` waits for: the topic, the partition, room in buffer.memory, the callback backlog.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::attempt::{Accepted, Attempt, Obstacle};
use super::{Producer, check_topic_name, whole_ms};
use crate::error::Error;
use crate::metadata::snapshot::Topic;
use crate::producer::buffer_pool::{Memory, RECHECK};
use crate::producer::record::{Callback, Record};
use crate::time::Moment;
use crate::wait;

impl Producer {
    pub(super) fn send_or_wait(
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

    /// Waits for what is missing, within max.block.ms in total, and tries again.
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

    /// Like `remove`, without a thread: the driver's thread ends the wait at `deadline`.
    pub(super) async fn remove_async(
        &self,
        attempt: &mut Attempt<'_>,
        obstacle: Obstacle,
        deadline: Moment,
    ) -> Result<(), Error> {
        let name = attempt.record.topic;
        match obstacle {
            Obstacle::Final(error) => Err(error),
            Obstacle::UnknownTopic => {
                check_topic_name(name)?;
                self.metadata_by(name, None, deadline).await
            }
            Obstacle::UnknownPartition(partition) => self.metadata_by(name, Some(partition), deadline).await,
            Obstacle::NoMemory { wanted_bytes } => {
                let started = self.clock.moment();
                let turn = self.memory_in_turn(wanted_bytes, false);
                let memory = self.timers.limit(deadline, turn).await;
                attempt.memory = Some(self.note_memory(wanted_bytes, started, memory)?);
                Ok(())
            }
        }
    }

    async fn metadata_by(&self, name: &str, partition: Option<i32>, deadline: Moment) -> Result<(), Error> {
        let started = self.clock.moment();
        let known = self
            .timers
            .limit(deadline, self.metadata.known(name, partition))
            .await;
        self.metrics
            .metadata_waited(self.clock.moment().nanos_since(started));
        let limit_ms = self.config.max_block_ms;
        known
            .unwrap_or_else(|| Err(self.metadata.timed_out(name, partition, limit_ms)))
            .map(drop)
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
        self.note_memory(wanted_bytes, started, memory)
    }

    /// Measures a wait for memory; `None` is the error that there was none in time.
    fn note_memory(
        &self,
        wanted_bytes: usize,
        started: Moment,
        memory: Option<Memory>,
    ) -> Result<Memory, Error> {
        let waited_nanos = self.clock.moment().nanos_since(started);
        self.metrics.buffer_waited(waited_nanos);
        memory.ok_or_else(|| {
            self.metrics.buffer_exhausted();
            self.accumulator
                .pool()
                .exhausted(wanted_bytes, waited_nanos / 1_000_000)
        })
    }

    /// Waits in turn for memory; the sender is woken after this waiter is queued and so visible to
    /// it.
    pub(super) fn memory_in_turn(
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
    pub(super) fn wait_for_callbacks(&self) -> Result<(), Error> {
        // Deadlock otherwise: a callback that sends must not wait for callbacks.
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
    pub(super) fn refuse(&self, record: &Record<'_>, obstacle: Obstacle) -> Error {
        let name = record.topic;
        match obstacle {
            Obstacle::Final(error) => error,
            Obstacle::UnknownTopic => {
                if let Err(error) = check_topic_name(name) {
                    return error;
                }
                self.metadata.want([name]);
                let refused = self.metadata.load().refused.get(name).cloned();
                refused.unwrap_or_else(|| self.metadata.timed_out(name, None, 0))
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
