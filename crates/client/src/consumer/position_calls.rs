//! Calls that wait until a partition's position is known, without a thread of the application.

use std::sync::Arc;

use super::exchange::ExchangeState;
use super::position::Phase;
use super::topic_partition::TopicPartition;
use crate::error::Error;
use crate::pending::Promise;
use crate::time::Moment;

/// The waiting calls of a consumer.
#[derive(Debug, Default)]
pub struct PositionCalls {
    calls: Vec<Call>,
}

#[derive(Debug)]
struct Call {
    partition: TopicPartition,
    deadline: Moment,
    promise: Promise<i64>,
}

impl PositionCalls {
    pub fn ask(&mut self, partition: TopicPartition, deadline: Moment, promise: Promise<i64>) {
        self.calls.push(Call {
            partition,
            deadline,
            promise,
        });
    }

    /// Answers the calls whose position is known, cannot be known, or is overdue.
    ///
    /// - `limit_ms`: `default.api.timeout.ms`, for the text.
    pub fn turn(&mut self, now: Moment, limit_ms: u64, state: &mut ExchangeState) {
        for call in std::mem::take(&mut self.calls) {
            match known_position(state, &call.partition) {
                Some(result) => call.promise.fulfil(result),
                None if call.deadline <= now => {
                    call.promise.fulfil(Err(timed_out(&call.partition, limit_ms)));
                }
                None => self.calls.push(call),
            }
        }
    }

    pub fn next_deadline(&self) -> Option<Moment> {
        self.calls.iter().map(|call| call.deadline).min()
    }
}

/// The position, or why there will be none; `None` while it is being looked up.
pub fn known_position(state: &mut ExchangeState, partition: &TopicPartition) -> Option<Result<i64, Error>> {
    let Some(found) = state.assignment.get(partition) else {
        let message = format!(
            "you can only check the position for partitions assigned to this consumer, not of {partition}"
        );
        return Some(Err(Error::IllegalState {
            message: message.into(),
        }));
    };
    if let Some(position) = found.valid_position() {
        return Some(Ok(position.offset));
    }
    if found.phase == Phase::Seek {
        return Some(Err(Error::NoOffset {
            topic: Arc::clone(&partition.topic),
            partition: partition.partition,
        }));
    }
    state.take_error().map(Err)
}

pub fn timed_out(partition: &TopicPartition, limit_ms: u64) -> Error {
    Error::Timeout {
        what: format!("looking up the position of {partition}").into(),
        limit_ms,
        setting: "default.api.timeout.ms",
    }
}
