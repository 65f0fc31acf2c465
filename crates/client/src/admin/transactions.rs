//! Transactions: list, describe, abort (KIP-664).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ottla_wire::api_key::ApiKey;
use ottla_wire::messages::describe_producers::{
    DescribeProducersRequest, DescribeProducersResponse, ProducerState, TopicRequest,
};
use ottla_wire::messages::describe_transactions::{
    DescribeTransactionsRequest, DescribeTransactionsResponse, TransactionState,
};
use ottla_wire::messages::init_producer_id::{InitProducerIdRequest, InitProducerIdResponse};
use ottla_wire::messages::list_transactions::{ListTransactionsRequest, ListTransactionsResponse};
use ottla_wire::messages::write_txn_markers::{
    WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest, WriteTxnMarkersResponse,
};

use super::context::{AdminAnswer, Context, Destination, Versions, decode_with, join_all};
use super::partitions::{PartitionResults, ask_leaders, group_by_topic};
use super::{Admin, Results, body, resource_error, resource_result};
use crate::consumer::topic_partition::TopicPartition;
use crate::error::Error;
use crate::metadata::snapshot::NodeId;
use crate::pending::Pending;

/// The timeout of a producer that is made only to fence another, in milliseconds.
const FENCING_TIMEOUT_MS: i32 = 1;

/// A transactional id in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TransactionListing {
    /// Of the last producer with this id.
    pub producer_id: i64,
    /// Kafka's name, for example `Ongoing` or `CompleteCommit`.
    pub state: String,
}

/// The state of a transactional id.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TransactionDescription {
    /// Kafka's name, for example `Ongoing` or `CompleteCommit`.
    pub state: String,
    /// Of the last producer with this id.
    pub producer_id: i64,
    /// Of the last producer with this id.
    pub producer_epoch: i16,
    /// `transaction.timeout.ms`: the coordinator aborts a transaction that is open for longer.
    pub timeout_ms: i32,
    /// When the open transaction began, milliseconds since the Unix epoch; `None`: none is open.
    pub started_ms: Option<i64>,
    /// The partitions that the open transaction has written to.
    pub partitions: BTreeSet<TopicPartition>,
}

/// A producer as a partition knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ActiveProducer {
    /// Given by the broker.
    pub producer_id: i64,
    /// Of its last batch or marker here.
    pub producer_epoch: i32,
    /// −1: it has only committed offsets, or its last entry is a marker.
    pub last_sequence: i32,
    /// Of its last batch, milliseconds since the Unix epoch.
    pub last_timestamp: i64,
    /// Of the coordinator that wrote its last marker; −1: there was none.
    pub coordinator_epoch: i32,
    /// The first offset of its open transaction; `None`: none is open here.
    pub transaction_start_offset: Option<i64>,
}

impl Admin {
    /// Returns the transactional ids of every broker.
    ///
    /// - Errors: that of the first broker that could not be asked; a partial list would look
    ///   complete.
    pub fn list_transactions(&self) -> Pending<BTreeMap<String, TransactionListing>> {
        self.call("list transactions", |context| async move {
            let nodes = super::cluster::broker_ids(&context).await?;
            let asked = nodes.into_iter().map(|node| list(context.clone(), node));
            let mut all = BTreeMap::new();
            for listed in join_all(asked).await {
                all.extend(listed?);
            }
            Ok(all)
        })
    }

    /// Describes transactional ids. One that does not exist is `Err(TransactionalIdNotFound)`.
    pub fn describe_transactions(
        &self,
        ids: Vec<String>,
    ) -> Pending<Results<String, TransactionDescription>> {
        self.call("describe transactions", |context| async move {
            let asked = ids.iter().map(|id| describe(context.clone(), id.as_str().into()));
            let results = join_all(asked).await;
            Ok(ids.into_iter().zip(results).collect())
        })
    }

    /// Returns the producers that partitions remember, from their leaders.
    pub fn describe_producers(
        &self,
        partitions: Vec<TopicPartition>,
    ) -> Pending<PartitionResults<Vec<ActiveProducer>>> {
        self.call("describe producers", |context| async move {
            let open = partitions.into_iter().map(|partition| (partition, ())).collect();
            ask_leaders(&context, open, |leader, partitions| {
                describe_producers(context.clone(), leader, partitions)
            })
            .await
        })
    }

    /// Aborts the open transaction of a transactional id and fences its producer, whose next call
    /// fails: what a new producer with this id does first. An id that does not exist comes to be.
    pub fn fence_producer(&self, transactional_id: &str) -> Pending<()> {
        let id: Arc<str> = transactional_id.into();
        self.call("fence a producer", |context| fence(context, id))
    }

    /// Writes an abort marker for a producer's open transaction into one partition. Only for a
    /// transaction that its coordinator does not know (a hanging one): for any other the
    /// coordinator's own decision would be contradicted, and `fence_producer` is right.
    pub fn abort_transaction(&self, partition: TopicPartition, producer: &ActiveProducer) -> Pending<()> {
        let producer = producer.clone();
        self.call("abort a transaction", |context| async move {
            let open = BTreeMap::from([(partition.clone(), ())]);
            let results = ask_leaders(&context, open, |leader, partitions| {
                abort(context.clone(), leader, partitions, producer.clone())
            })
            .await?;
            // The leader answers for each partition it is asked about.
            results.into_values().next().unwrap_or(Ok(()))
        })
    }
}

async fn list(context: Context, node: NodeId) -> Result<BTreeMap<String, TransactionListing>, Error> {
    let encode = |version| {
        let request = ListTransactionsRequest {
            duration_filter: -1,
            ..ListTransactionsRequest::default()
        };
        body(|out| request.encode(out, version))
    };
    let decode = |answer: &AdminAnswer| {
        let response = decode_with(answer, ListTransactionsResponse::decode)?;
        let what = || format!("transactions of {node:?}");
        if let Some(error) = resource_error(response.error_code, None, what) {
            return Err(error);
        }
        let listed = response.transaction_states.iter().map(|state| {
            let listing = TransactionListing {
                producer_id: state.producer_id,
                state: state.transaction_state.to_owned(),
            };
            (state.transactional_id.to_owned(), listing)
        });
        Ok(listed.collect())
    };
    let node = Destination::Node(node);
    context
        .ask(node, ApiKey::ListTransactions, Versions::ALL, encode, decode)
        .await
}

async fn describe(context: Context, id: Arc<str>) -> Result<TransactionDescription, Error> {
    let asked = id.clone();
    let encode = move |version| {
        let request = DescribeTransactionsRequest {
            transactional_ids: vec![&asked],
        };
        body(|out| request.encode(out, version))
    };
    let decode = |answer: &AdminAnswer| {
        let response = decode_with(answer, DescribeTransactionsResponse::decode)?;
        let state = response.transaction_states.first();
        let state = state.ok_or_else(|| Error::Malformed {
            address: "the coordinator".into(),
            reason: "no transaction in the answer".into(),
        })?;
        resource_result(description(state), state.error_code, None, || {
            format!("transactional id {id}")
        })
    };
    let coordinator = Destination::TransactionCoordinator(id.clone());
    context
        .ask(
            coordinator,
            ApiKey::DescribeTransactions,
            Versions::ALL,
            encode,
            decode,
        )
        .await
}

fn description(state: &TransactionState<'_>) -> TransactionDescription {
    let partitions = state.topics.iter().flat_map(|topic| {
        let name: Arc<str> = topic.topic.into();
        let indexes = topic.partitions.iter();
        indexes.map(move |index| TopicPartition::new(name.clone(), *index))
    });
    TransactionDescription {
        state: state.transaction_state.to_owned(),
        producer_id: state.producer_id,
        producer_epoch: state.producer_epoch,
        timeout_ms: state.transaction_timeout_ms,
        started_ms: Some(state.transaction_start_time_ms).filter(|ms| *ms >= 0),
        partitions: partitions.collect(),
    }
}

async fn describe_producers(
    context: Context,
    leader: NodeId,
    partitions: BTreeMap<TopicPartition, ()>,
) -> PartitionResults<Vec<ActiveProducer>> {
    let asked = partitions.clone();
    let encode = move |version| {
        let topics = group_by_topic(&asked).into_iter();
        let request = DescribeProducersRequest {
            topics: topics
                .map(|(name, partitions)| TopicRequest {
                    name,
                    partition_indexes: partitions.into_iter().map(|(index, ())| index).collect(),
                })
                .collect(),
        };
        body(|out| request.encode(out, version))
    };
    let decode = |answer: &AdminAnswer| {
        let response = decode_with(answer, DescribeProducersResponse::decode)?;
        let results = response.topics.iter().flat_map(|topic| {
            topic.partitions.iter().map(|partition| {
                let key = TopicPartition::new(topic.name, partition.partition_index);
                let producers = partition.active_producers.iter().map(producer).collect();
                let what = || format!("partition {key}");
                let result = resource_result(producers, partition.error_code, partition.error_message, what);
                (key, result)
            })
        });
        Ok(results.collect())
    };
    let node = Destination::Node(leader);
    let answer = context
        .ask(node, ApiKey::DescribeProducers, Versions::ALL, encode, decode)
        .await;
    of_all(answer, partitions)
}

/// What a leader answered, or for each partition why it did not.
fn of_all<T>(
    answer: Result<PartitionResults<T>, Error>,
    partitions: BTreeMap<TopicPartition, ()>,
) -> PartitionResults<T> {
    answer.unwrap_or_else(|error| {
        let failed = partitions.into_keys().map(|key| (key, Err(error.clone())));
        failed.collect()
    })
}

fn producer(state: &ProducerState) -> ActiveProducer {
    ActiveProducer {
        producer_id: state.producer_id,
        producer_epoch: state.producer_epoch,
        last_sequence: state.last_sequence,
        last_timestamp: state.last_timestamp,
        coordinator_epoch: state.coordinator_epoch,
        transaction_start_offset: Some(state.current_txn_start_offset).filter(|offset| *offset >= 0),
    }
}

async fn fence(context: Context, id: Arc<str>) -> Result<(), Error> {
    let asked = id.clone();
    let encode = move |version| {
        let request = InitProducerIdRequest {
            transactional_id: Some(&asked),
            transaction_timeout_ms: FENCING_TIMEOUT_MS,
            producer_id: -1,
            producer_epoch: -1,
        };
        body(|out| request.encode(out, version))
    };
    let decode = |answer: &AdminAnswer| {
        let response = decode_with(answer, InitProducerIdResponse::decode)?;
        resource_result((), response.error_code, None, || format!("transactional id {id}"))
    };
    let coordinator = Destination::TransactionCoordinator(id.clone());
    context
        .ask(coordinator, ApiKey::InitProducerId, Versions::ALL, encode, decode)
        .await
}

async fn abort(
    context: Context,
    leader: NodeId,
    partitions: BTreeMap<TopicPartition, ()>,
    producer: ActiveProducer,
) -> PartitionResults<()> {
    let asked = partitions.clone();
    let encode = move |version| {
        let topics = group_by_topic(&asked).into_iter();
        let marker = WritableTxnMarker {
            producer_id: producer.producer_id,
            // Epochs are 16 bits wide everywhere else in the protocol.
            producer_epoch: i16::try_from(producer.producer_epoch).unwrap_or(i16::MAX),
            transaction_result: false,
            topics: topics
                .map(|(name, partitions)| WritableTxnMarkerTopic {
                    name,
                    partition_indexes: partitions.into_iter().map(|(index, ())| index).collect(),
                })
                .collect(),
            coordinator_epoch: producer.coordinator_epoch,
            transaction_version: 0,
        };
        let request = WriteTxnMarkersRequest {
            markers: vec![marker],
        };
        body(|out| request.encode(out, version))
    };
    let decode = |answer: &AdminAnswer| {
        let response = decode_with(answer, WriteTxnMarkersResponse::decode)?;
        let topics = response.markers.iter().flat_map(|marker| &marker.topics);
        let results = topics.flat_map(|topic| {
            topic.partitions.iter().map(|partition| {
                let key = TopicPartition::new(topic.name, partition.partition_index);
                let result = resource_result((), partition.error_code, None, || format!("partition {key}"));
                (key, result)
            })
        });
        Ok(results.collect())
    };
    let node = Destination::Node(leader);
    // Version 1: the marker's epoch may equal the producer's, as that of clients before KIP-890.
    let versions = Versions { min: 1, max: 1 };
    let answer = context
        .ask(node, ApiKey::WriteTxnMarkers, versions, encode, decode)
        .await;
    of_all(answer, partitions)
}
