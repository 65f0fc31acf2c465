//! Turns fetched chunks into records: the part of `poll` that runs on the application's thread and
//! never waits.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::chunk::{Chunk, FetchAnswer};
use super::exchange::{Exchange, ExchangeState};
use super::position::PartitionState;
use super::records::{ConsumerRecords, Run};
use crate::error::Error;
use crate::metrics::ConsumerMetrics;

/// Takes records out of the exchange.
#[derive(Debug)]
pub struct Reader {
    exchange: Arc<Exchange>,
    metrics: Arc<ConsumerMetrics>,
    /// `max.poll.records`.
    record_count_max: usize,
}

impl Reader {
    pub fn new(exchange: Arc<Exchange>, metrics: Arc<ConsumerMetrics>, record_count_max: usize) -> Reader {
        Reader {
            exchange,
            metrics,
            record_count_max,
        }
    }

    /// Returns the available records, at most `max.poll.records`, possibly none. The positions move
    /// past them.
    ///
    /// - Errors: errors that the machine reported; `CorruptBatch`, repeated until the application
    ///   seeks, while the other partitions continue.
    pub fn take(&self) -> Result<ConsumerRecords, Error> {
        let mut records = ConsumerRecords::default();
        let mut runs = Vec::new();
        while records.len() < self.record_count_max {
            let mut state = self.exchange.lock();
            if state.has_error() {
                if !records.is_empty() {
                    break;
                }
                if let Some(error) = state.take_error() {
                    return Err(error);
                }
            }
            let Some(mut chunk) = state.assignment.take_chunk() else {
                break;
            };
            // Checksums and decompression take long; the machine must not be locked out meanwhile.
            drop(state);
            let outcome = chunk.take(self.record_count_max - records.len(), &mut runs);
            let state = self.exchange.lock();
            if let Err(error) = self.settle(state, chunk, outcome, &mut runs, &mut records) {
                if records.is_empty() {
                    return Err(error);
                }
                break;
            }
        }
        Ok(records)
    }

    /// Moves the position and returns the chunk to its place, unless a seek or a rebalance has made
    /// it void.
    fn settle(
        &self,
        mut state: std::sync::MutexGuard<'_, ExchangeState>,
        mut chunk: Chunk,
        outcome: Result<usize, Error>,
        runs: &mut Vec<Run>,
        records: &mut ConsumerRecords,
    ) -> Result<(), Error> {
        if !state.assignment.advance(&chunk) {
            runs.clear();
            drop(state);
            self.finish_chunk(chunk);
            return Ok(());
        }
        if let Err(error) = outcome {
            state.assignment.stop_at(&chunk);
            let answer = chunk.answer.take();
            // An error that this poll can no longer return comes first in the next one; one that it
            // returns lets other partitions go first.
            let is_next = !records.is_empty();
            state.assignment.give_back(chunk, is_next);
            drop(state);
            if let Some(answer) = answer {
                self.finish(answer);
            }
            return Err(error);
        }
        let taken = records.push(&chunk.topic_partition, std::mem::take(runs));
        if let Some(answer) = &chunk.answer {
            answer.records.fetch_add(taken.records, Ordering::Relaxed);
            answer.bytes.fetch_add(taken.bytes, Ordering::Relaxed);
        }
        let name = chunk.topic_partition.clone();
        let partition = state.assignment.get(&name);
        let (lag, lead) = partition.map_or((None, None), |partition| (partition.lag(), lead(partition)));
        if chunk.is_exhausted() {
            drop(state);
            self.finish_chunk(chunk);
        } else {
            state.assignment.give_back(chunk, true);
            drop(state);
        }
        if taken.records > 0 {
            self.metrics
                .topic_consumed(&name.topic, taken.records, taken.bytes);
            if let Some(lag) = lag {
                let lag = i64::try_from(lag).unwrap_or(i64::MAX);
                self.metrics
                    .position_moved(&name.topic, name.partition, lag, lead);
            }
        }
        Ok(())
    }

    fn finish_chunk(&self, chunk: Chunk) {
        match chunk.answer {
            Some(answer) => self.finish(answer),
            // A copy that waited while its partition was paused.
            None => self.exchange.wake_driver(),
        }
    }

    /// The last chunk of a response makes room for the next fetch.
    fn finish(&self, answer: Arc<FetchAnswer>) {
        if let Some(FetchAnswer { records, bytes, .. }) = Arc::into_inner(answer) {
            self.exchange.wake_driver();
            self.metrics
                .fetch_consumed(records.into_inner(), bytes.into_inner());
        }
    }
}

/// Records between the log's start and the position.
fn lead(partition: &PartitionState) -> Option<i64> {
    let position = partition.valid_position()?;
    (partition.log_start_offset >= 0).then(|| (position.offset - partition.log_start_offset).max(0))
}
