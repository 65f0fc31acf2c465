//! The hot path of `send`: a record's way into a batch when there is nothing to wait for.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use super::Producer;
use crate::config::PartitionerKind;
use crate::error::Error;
use crate::metadata::snapshot::Topic;
use crate::producer::accumulator::{AppendRefusal, Stickiness, Taken, TopicQueues};
use crate::producer::batch::Draft;
use crate::producer::buffer_pool::Memory;
use crate::producer::completion::SendFuture;
use crate::producer::partitioner::partition_of_key;
use crate::producer::record::{Callback, Record};
use crate::time::Moment;

/// A thread's cache between sends, so that most sends need no lookup.
struct Local {
    route: RefCell<Option<Route>>,
    /// Sends since the last measured one.
    unmeasured: Cell<u32>,
}

/// The route of the topic that this thread last sent to.
struct Route {
    producer: u64,
    /// Version of the metadata that `topic` is from.
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

/// Sampling: one send in this many is measured, because two clock readings cost half as much as a
/// `send`.
const MEASURED_EVERY: u32 = 16;

/// A record on its way into a batch.
pub(super) struct Attempt<'a> {
    pub(super) record: &'a Record<'a>,
    pub(super) now: Moment,
    /// Memory that the caller waited for, in case a new batch must be opened.
    pub(super) memory: Option<Memory>,
    pub(super) callback: Option<Callback>,
    pub(super) wants_completion: bool,
}

/// Why an attempt did not get into a batch.
pub(super) enum Obstacle {
    UnknownTopic,
    UnknownPartition(i32),
    NoMemory { wanted_bytes: usize },
    Final(Error),
}

pub(super) struct Accepted {
    taken: Taken,
    timestamp: i64,
}

impl<'a> Attempt<'a> {
    pub(super) fn new(record: &'a Record<'a>, now: Moment) -> Attempt<'a> {
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
    pub(super) fn future(self) -> SendFuture {
        let completion = self.taken.completion.expect("it was asked for");
        SendFuture::new(completion, self.taken.index, self.timestamp)
    }
}

impl Producer {
    /// Records the time since `started` for this send and for the unmeasured ones before it.
    #[inline]
    pub(super) fn measure(&self, started: Moment) {
        // A thread that is ending has no locals; its last sends are not measured.
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

    /// Puts the record into a batch if there is nothing to wait for.
    pub(super) fn attempt(&self, attempt: &mut Attempt<'_>) -> Result<Accepted, Obstacle> {
        if let Some(error) = self.commands.fatal() {
            return Err(Obstacle::Final(error.clone()));
        }
        // Taken, not borrowed: code that runs in between (serializers, partitioners) may send with
        // this producer too.
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
                Err(AppendRefusal::Moved { sender_must_wake }) => must_wake |= sender_must_wake,
                Err(AppendRefusal::NoMemory { wanted_bytes }) => {
                    must_wake = true;
                    break Err(Obstacle::NoMemory { wanted_bytes });
                }
                Err(AppendRefusal::Closed) => break Err(Obstacle::Final(Error::Closed)),
            }
        };
        if must_wake {
            self.waker.wake();
        }
        result
    }

    /// The record's partition; `None`: the current sticky partition of records without a key.
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
}

fn invalid(message: String) -> Obstacle {
    Obstacle::Final(Error::InvalidArgument {
        message: message.into(),
    })
}
