//! Whole transactions through a node without sockets: what producers are answered, what readers
//! see, and what a restart leaves.

use std::task::Poll;

use ottla_wire::api_key::ApiKey;
use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::add_offsets_to_txn::{AddOffsetsToTxnRequest, AddOffsetsToTxnResponse};
use ottla_wire::messages::add_partitions_to_txn::{
    AddPartitionsToTxnRequest, AddPartitionsToTxnResponse, AddPartitionsToTxnTopic,
};
use ottla_wire::messages::describe_transactions::{
    DescribeTransactionsRequest, DescribeTransactionsResponse,
};
use ottla_wire::messages::end_txn::{EndTxnRequest, EndTxnResponse};
use ottla_wire::messages::find_coordinator::{FindCoordinatorRequest, FindCoordinatorResponse};
use ottla_wire::messages::incremental_alter_configs::{
    AlterConfigsResource, AlterableConfig, IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse,
};
use ottla_wire::messages::init_producer_id::{InitProducerIdRequest, InitProducerIdResponse};
use ottla_wire::messages::list_transactions::{ListTransactionsRequest, ListTransactionsResponse};
use ottla_wire::messages::offset_fetch::{
    OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics, OffsetFetchResponse,
};
use ottla_wire::messages::produce::{
    PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData,
};
use ottla_wire::messages::txn_offset_commit::{
    TxnOffsetCommitRequest, TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
};
use ottla_wire::records::builder::{BatchBuilder, BatchOptions};

use super::metadata_tests::{Broker, error, poll, read};
use crate::node::Node;
use crate::pending::Handled;
use crate::reply::ReplyBuffer;
use crate::time::Moment;

const PAGE_CACHE: [(&str, &str); 1] = [("ottla.durability", "page-cache")];
const ID: &str = "billing";
const GROUP: &str = "readers";
pub(crate) const TIMEOUT_MS: i32 = 10_000;

pub(crate) type Producer = (i64, i16);

/// A client by its versions: of KIP-890, or before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Client {
    New,
    Old,
}

/// A broker with a topic of two partitions and both coordinators.
pub(crate) fn broker() -> Broker {
    broker_with(&PAGE_CACHE)
}

pub(crate) fn broker_with(lines: &[(&str, &str)]) -> Broker {
    let broker = Broker::new(lines);
    broker.create("t", 2, 7);
    for (key_type, key) in [(0, GROUP), (1, ID)] {
        find(&broker, key_type, key);
    }
    broker.sync();
    broker
}

fn find(broker: &Broker, key_type: i8, key: &str) {
    let request = FindCoordinatorRequest {
        key_type,
        coordinator_keys: vec![key],
        ..Default::default()
    };
    let bytes = broker.ask(ApiKey::FindCoordinator, 6, |body| request.encode(body, 6));
    let response = read(&bytes, |reader| FindCoordinatorResponse::decode(reader, 6));
    let found = &response.coordinators[0];
    assert_eq!((error(found.error_code), found.node_id), (ErrorCode::None, 1));
}

/// Sends a request; `None`: it waits.
fn ask(broker: &Broker, api_key: ApiKey, version: i16, encode: impl Fn(&mut Vec<u8>)) -> Option<Vec<u8>> {
    let (mut body, mut reply) = (Vec::new(), ReplyBuffer::default());
    encode(&mut body);
    match broker.send(api_key, version, &body, &mut reply) {
        Handled::Replied => Some(reply.bytes),
        Handled::Pending(mut pending) => {
            // The controller may have something to do, and markers may have to be written.
            for _ in 0..8 {
                broker.settle();
                broker.sync();
                tick(broker);
                if poll(broker, &mut pending, &mut reply) == Poll::Ready(()) {
                    return Some(reply.bytes);
                }
            }
            None
        }
        _ => panic!("{api_key} has no answer"),
    }
}

/// Does what is due.
pub(crate) fn tick(broker: &Broker) {
    while broker.node.next_deadline() == Some(Moment::from_nanos(0)) {
        broker.node.on_deadline(broker.node.clock().moment());
    }
    broker.node.on_deadline(broker.node.clock().moment());
}

pub(crate) fn init(broker: &Broker) -> Producer {
    init_at(broker, None).unwrap()
}

fn init_at(broker: &Broker, expected: Option<Producer>) -> Result<Producer, ErrorCode> {
    let (producer_id, producer_epoch) = expected.unwrap_or((-1, -1));
    let request = InitProducerIdRequest {
        transactional_id: Some(ID),
        transaction_timeout_ms: TIMEOUT_MS,
        producer_id,
        producer_epoch,
    };
    let bytes = ask(broker, ApiKey::InitProducerId, 5, |body| request.encode(body, 5)).unwrap();
    let response = read(&bytes, |reader| InitProducerIdResponse::decode(reader, 5));
    match error(response.error_code) {
        ErrorCode::None => Ok((response.producer_id, response.producer_epoch)),
        error => Err(error),
    }
}

pub(crate) fn add_partition(broker: &Broker, producer: Producer, partition: i32) -> ErrorCode {
    let request = AddPartitionsToTxnRequest {
        v3_and_below_transactional_id: ID,
        v3_and_below_producer_id: producer.0,
        v3_and_below_producer_epoch: producer.1,
        v3_and_below_topics: vec![AddPartitionsToTxnTopic {
            name: "t",
            partitions: vec![partition],
        }],
        ..Default::default()
    };
    let bytes = ask(broker, ApiKey::AddPartitionsToTxn, 3, |body| {
        request.encode(body, 3)
    })
    .unwrap();
    let response = read(&bytes, |reader| AddPartitionsToTxnResponse::decode(reader, 3));
    error(response.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)
}

fn batch(producer: Producer, base_sequence: i32) -> Vec<u8> {
    let mut builder = BatchBuilder::new(BatchOptions {
        producer_id: producer.0,
        producer_epoch: producer.1,
        base_sequence,
        is_transactional: true,
        ..BatchOptions::default()
    });
    builder.append(1_790_000_000_000, None, Some(b"v"), &[]);
    builder.finish()
}

/// Sends one record, after adding the partition as an old client must.
pub(crate) fn send(
    broker: &Broker,
    client: Client,
    producer: Producer,
    partition: i32,
    sequence: i32,
) -> ErrorCode {
    if client == Client::Old {
        let added = add_partition(broker, producer, partition);
        if added != ErrorCode::None {
            return added;
        }
    }
    produce(broker, client, producer, partition, sequence)
}

pub(crate) fn produce(
    broker: &Broker,
    client: Client,
    producer: Producer,
    partition: i32,
    sequence: i32,
) -> ErrorCode {
    produce_to(broker, client, producer, &[partition], sequence)[0].0
}

/// Sends one record to each of some partitions, in one request; returns codes and base offsets.
pub(crate) fn produce_to(
    broker: &Broker,
    client: Client,
    producer: Producer,
    partitions: &[i32],
    sequence: i32,
) -> Vec<(ErrorCode, i64)> {
    let version = if client == Client::New { 12 } else { 9 };
    let records = batch(producer, sequence);
    let data = partitions.iter().map(|index| PartitionProduceData {
        index: *index,
        records: Some(&records),
    });
    let request = ProduceRequest {
        transactional_id: Some(ID),
        acks: -1,
        timeout_ms: 1_000,
        topic_data: vec![TopicProduceData {
            name: "t",
            partition_data: data.collect(),
            ..Default::default()
        }],
    };
    let bytes = ask(broker, ApiKey::Produce, version, |body| {
        request.encode(body, version)
    })
    .unwrap();
    let response = read(&bytes, |reader| ProduceResponse::decode(reader, version));
    let answers = response.responses[0].partition_responses.iter();
    answers
        .map(|answer| (error(answer.error_code), answer.base_offset))
        .collect()
}

pub(crate) fn end(
    broker: &Broker,
    client: Client,
    producer: Producer,
    committed: bool,
) -> Result<Producer, ErrorCode> {
    let version = if client == Client::New { 5 } else { 4 };
    let request = EndTxnRequest {
        transactional_id: ID,
        producer_id: producer.0,
        producer_epoch: producer.1,
        committed,
    };
    let bytes = ask(broker, ApiKey::EndTxn, version, |body| {
        request.encode(body, version)
    })
    .unwrap();
    let response = read(&bytes, |reader| EndTxnResponse::decode(reader, version));
    match (error(response.error_code), client) {
        (ErrorCode::None, Client::New) => Ok((response.producer_id, response.producer_epoch)),
        (ErrorCode::None, Client::Old) => Ok(producer),
        (error, _) => Err(error),
    }
}

/// High watermark, and how far readers of committed records get.
pub(crate) fn readable(node: &Node, partition: i32) -> (i64, i64) {
    let view = node.storage.partition_by_name("t", partition).unwrap().view();
    (view.offsets.high_watermark, view.offsets.last_stable)
}

#[test]
fn a_committed_transaction_becomes_readable_in_all_its_partitions() {
    for client in [Client::New, Client::Old] {
        let broker = broker();
        let producer = init(&broker);
        for partition in [0, 1] {
            assert_eq!(send(&broker, client, producer, partition, 0), ErrorCode::None);
            assert_eq!(readable(&broker.node, partition), (1, 0), "{client:?}");
        }
        let next = end(&broker, client, producer, true).unwrap();
        tick(&broker);
        for partition in [0, 1] {
            assert_eq!(readable(&broker.node, partition), (2, 2), "{client:?}");
        }
        // And so does the next one, which does not wait for its client's patience.
        let sequence = if client == Client::New { 0 } else { 1 };
        assert_eq!(send(&broker, client, next, 1, sequence), ErrorCode::None);
        assert!(end(&broker, client, next, false).is_ok());
        tick(&broker);
        assert_eq!(readable(&broker.node, 1), (4, 4));
        let aborted = broker
            .node
            .storage
            .partition_by_name("t", 1)
            .unwrap()
            .with_log(|log| log.open_transactions().len());
        assert_eq!(aborted, 0);
    }
}

#[test]
fn a_new_producer_of_the_same_id_fences_the_old_one() {
    for client in [Client::New, Client::Old] {
        let broker = broker();
        let old = init(&broker);
        assert_eq!(send(&broker, client, old, 0, 0), ErrorCode::None);
        let new = init(&broker);
        assert!(new.0 == old.0 && new.1 > old.1, "{old:?}, {new:?}");
        // What the old one left open is aborted: readers go on.
        assert_eq!(readable(&broker.node, 0), (2, 2));
        let late = send(&broker, client, old, 1, 0);
        assert!(
            matches!(late, ErrorCode::ProducerFenced | ErrorCode::InvalidProducerEpoch),
            "{late}"
        );
        assert_eq!(end(&broker, client, old, true), Err(ErrorCode::ProducerFenced));
        assert_eq!(send(&broker, client, new, 0, 0), ErrorCode::None);
    }
}

#[test]
fn a_transaction_that_is_left_open_times_out() {
    let broker = broker();
    let producer = init(&broker);
    assert_eq!(send(&broker, Client::New, producer, 0, 0), ErrorCode::None);
    broker.advance_ms(TIMEOUT_MS as u64 - 1);
    tick(&broker);
    assert_eq!(readable(&broker.node, 0), (1, 0));
    broker.advance_ms(1);
    tick(&broker);
    assert_eq!(readable(&broker.node, 0), (2, 2));
    let late = end(&broker, Client::New, producer, true);
    assert!(late.is_err(), "{late:?}");
}

#[test]
fn an_old_client_that_did_not_add_its_partition_is_refused() {
    let broker = broker();
    let producer = init(&broker);
    let code = produce(&broker, Client::Old, producer, 0, 0);
    assert_eq!(code, ErrorCode::InvalidTxnState);
    assert_eq!(readable(&broker.node, 0), (0, 0));
}

#[test]
fn verification_is_switched_off_while_the_broker_runs() {
    let broker = broker();
    let producer = init(&broker);
    assert_eq!(
        produce(&broker, Client::Old, producer, 0, 0),
        ErrorCode::InvalidTxnState
    );
    let request = IncrementalAlterConfigsRequest {
        resources: vec![AlterConfigsResource {
            // All brokers.
            resource_type: 4,
            resource_name: "",
            configs: vec![AlterableConfig {
                name: "transaction.partition.verification.enable",
                config_operation: 0,
                value: Some("false"),
            }],
        }],
        validate_only: false,
    };
    let bytes = broker.ask(ApiKey::IncrementalAlterConfigs, 1, |body| request.encode(body, 1));
    let response = read(&bytes, |reader| {
        IncrementalAlterConfigsResponse::decode(reader, 1)
    });
    assert_eq!(error(response.responses[0].error_code), ErrorCode::None);
    assert_eq!(produce(&broker, Client::Old, producer, 0, 0), ErrorCode::None);
}

fn offset_commit(producer: Producer, offset: i64) -> TxnOffsetCommitRequest<'static> {
    TxnOffsetCommitRequest {
        transactional_id: ID,
        group_id: GROUP,
        producer_id: producer.0,
        producer_epoch: producer.1,
        generation_id: -1,
        topics: vec![TxnOffsetCommitRequestTopic {
            name: "t",
            partitions: vec![TxnOffsetCommitRequestPartition {
                partition_index: 0,
                committed_offset: offset,
                ..Default::default()
            }],
        }],
        ..Default::default()
    }
}

pub(crate) fn commit_offset(broker: &Broker, version: i16, producer: Producer, offset: i64) -> ErrorCode {
    let request = offset_commit(producer, offset);
    let bytes = ask(broker, ApiKey::TxnOffsetCommit, version, |body| {
        request.encode(body, version);
    });
    let bytes = bytes.unwrap();
    let response = read(&bytes, |reader| TxnOffsetCommitResponse::decode(reader, version));
    error(response.topics[0].partitions[0].error_code)
}

fn offset_fetch() -> OffsetFetchRequest<'static> {
    OffsetFetchRequest {
        groups: vec![OffsetFetchRequestGroup {
            group_id: GROUP,
            member_epoch: -1,
            topics: Some(vec![OffsetFetchRequestTopics {
                name: "t",
                partition_indexes: vec![0],
                ..Default::default()
            }]),
            ..Default::default()
        }],
        require_stable: true,
        ..Default::default()
    }
}

/// The committed offset, as a reader that waits for transactions gets it.
pub(crate) fn committed(broker: &Broker) -> Result<i64, ErrorCode> {
    let request = offset_fetch();
    let bytes = ask(broker, ApiKey::OffsetFetch, 9, |body| request.encode(body, 9)).unwrap();
    let response = read(&bytes, |reader| OffsetFetchResponse::decode(reader, 9));
    let found = &response.groups[0].topics[0].partitions[0];
    match error(found.error_code) {
        ErrorCode::None => Ok(found.committed_offset),
        error => Err(error),
    }
}

#[test]
fn offsets_count_when_their_transaction_commits_and_not_before() {
    for (client, version) in [(Client::New, 5), (Client::Old, 3)] {
        let broker = broker();
        let mut producer = init(&broker);
        for (offset, is_commit, expected) in [(7, true, 7), (9, false, 7), (11, true, 11)] {
            if client == Client::Old {
                let request = AddOffsetsToTxnRequest {
                    transactional_id: ID,
                    producer_id: producer.0,
                    producer_epoch: producer.1,
                    group_id: GROUP,
                };
                let bytes = ask(&broker, ApiKey::AddOffsetsToTxn, 3, |body| {
                    request.encode(body, 3)
                });
                let bytes = bytes.unwrap();
                let response = read(&bytes, |reader| AddOffsetsToTxnResponse::decode(reader, 3));
                assert_eq!(error(response.error_code), ErrorCode::None);
            }
            assert_eq!(
                commit_offset(&broker, version, producer, offset),
                ErrorCode::None,
                "{client:?}"
            );
            assert_eq!(committed(&broker), Err(ErrorCode::UnstableOffsetCommit));
            producer = end(&broker, client, producer, is_commit).unwrap();
            tick(&broker);
            assert_eq!(committed(&broker), Ok(expected), "{client:?}");
        }
    }
}

/// Sends a request, and returns how many rounds of syncs its answer waits for.
fn rounds(broker: &Broker, api_key: ApiKey, version: i16, encode: impl Fn(&mut Vec<u8>)) -> usize {
    let (mut body, mut reply) = (Vec::new(), ReplyBuffer::default());
    encode(&mut body);
    let Handled::Pending(mut pending) = broker.send(api_key, version, &body, &mut reply) else {
        return 0;
    };
    let mut rounds = 0;
    while poll(broker, &mut pending, &mut reply) == Poll::Pending {
        broker.settle();
        rounds += usize::from(broker.sync() > 0);
        assert!(rounds < 10);
    }
    rounds
}

#[test]
fn offsets_of_a_transaction_are_answered_when_they_are_durable_and_so_is_their_end() {
    let broker = broker_with(&[]);
    let producer = init(&broker);
    let commit = |offset| {
        rounds(&broker, ApiKey::TxnOffsetCommit, 5, |body| {
            offset_commit(producer, offset).encode(body, 5);
        })
    };
    assert_eq!(commit(7), 2, "the transaction, and the offsets in it");
    assert_eq!(commit(8), 1, "the offsets");
    end(&broker, Client::New, producer, true).unwrap();
    tick(&broker);
    let fetch = rounds(&broker, ApiKey::OffsetFetch, 9, |body| {
        offset_fetch().encode(body, 9);
    });
    assert_eq!(fetch, 1, "a power cut could still take the marker back");
    assert_eq!(committed(&broker), Ok(8));
}

/// Does what is due, and syncs, until there is nothing more to do.
pub(crate) fn finish(broker: &Broker) {
    loop {
        tick(broker);
        if broker.settle() + broker.sync() == 0 {
            return;
        }
    }
}

/// The beginning of the transaction, records in each partition, the decision, a marker in each
/// partition; its end rides on the next beginning.
#[test]
fn a_transaction_alone_costs_two_syncs_and_two_for_each_of_its_partitions() {
    let broker = broker_with(&[("ottla.durability", "disk")]);
    let mut producer = init(&broker);
    finish(&broker);
    for (is_commit, offset) in [(true, 0), (true, 2), (false, 4)] {
        let before = broker.synced();
        let produced = produce_to(&broker, Client::New, producer, &[0, 1], 0);
        assert_eq!(produced, [(ErrorCode::None, offset); 2]);
        producer = end(&broker, Client::New, producer, is_commit).unwrap();
        finish(&broker);
        assert_eq!(broker.synced() - before, 2 * 2 + 2);
        assert_eq!(broker.node.transactions.decided(), 0);
    }
    // Whatever waits for the end to be durable asks for it.
    let before = broker.synced();
    assert_eq!(described(&broker), "CompleteAbort");
    assert_eq!(broker.synced() - before, 1);
    assert_eq!(described(&broker), "CompleteAbort");
    assert_eq!(broker.synced() - before, 1);
}

pub(crate) fn described(broker: &Broker) -> String {
    let request = DescribeTransactionsRequest {
        transactional_ids: vec![ID],
    };
    let bytes = ask(broker, ApiKey::DescribeTransactions, 0, |body| {
        request.encode(body, 0)
    })
    .unwrap();
    let response = read(&bytes, |reader| DescribeTransactionsResponse::decode(reader, 0));
    response.transaction_states[0].transaction_state.to_owned()
}

#[test]
fn offsets_of_a_transaction_that_did_not_add_them_are_refused() {
    let broker = broker();
    let producer = init(&broker);
    assert_eq!(commit_offset(&broker, 3, producer, 7), ErrorCode::InvalidTxnState);
    assert_eq!(
        commit_offset(&broker, 4, producer, 7),
        ErrorCode::TransactionAbortable
    );
    assert_eq!(
        commit_offset(&broker, 5, (producer.0, producer.1 + 1), 7),
        ErrorCode::InvalidProducerEpoch
    );
    assert_eq!(committed(&broker), Ok(-1));
}

#[test]
fn what_was_decided_is_finished_after_a_kill_and_what_was_open_stays_open() {
    for is_decided in [true, false] {
        let first = broker();
        let producer = init(&first);
        assert_eq!(send(&first, Client::New, producer, 0, 0), ErrorCode::None);
        if is_decided {
            // Markers have not been written yet: nothing was due in between.
            end(&first, Client::New, producer, true).unwrap();
            assert_eq!(readable(&first.node, 0), (1, 0));
        }
        let config = (*first.node.storage.config).clone();
        let disk = first.disk.clone();
        disk.kill();
        drop(first);
        let again = Broker::on(disk, config);
        while again.settle() > 0 {}
        tick(&again);
        let expected = if is_decided { (2, 2) } else { (1, 0) };
        assert_eq!(readable(&again.node, 0), expected);
        if !is_decided {
            // Its producer goes on.
            assert_eq!(send(&again, Client::New, producer, 1, 0), ErrorCode::None);
            assert!(end(&again, Client::New, producer, true).is_ok());
            tick(&again);
            assert_eq!(readable(&again.node, 0), (2, 2));
        }
    }
}

#[test]
fn a_deleted_topic_does_not_hold_up_the_end_of_a_transaction() {
    let broker = broker();
    broker.create("gone", 1, 7);
    let producer = init(&broker);
    assert_eq!(send(&broker, Client::New, producer, 0, 0), ErrorCode::None);
    let request = AddPartitionsToTxnRequest {
        v3_and_below_transactional_id: ID,
        v3_and_below_producer_id: producer.0,
        v3_and_below_producer_epoch: producer.1,
        v3_and_below_topics: vec![AddPartitionsToTxnTopic {
            name: "gone",
            partitions: vec![0],
        }],
        ..Default::default()
    };
    ask(&broker, ApiKey::AddPartitionsToTxn, 3, |body| {
        request.encode(body, 3)
    })
    .unwrap();
    let delete = ottla_wire::messages::delete_topics::DeleteTopicsRequest {
        topic_names: vec!["gone"],
        timeout_ms: 1_000,
        ..Default::default()
    };
    broker.ask(ApiKey::DeleteTopics, 5, |body| delete.encode(body, 5));
    let next = end(&broker, Client::New, producer, true).unwrap();
    tick(&broker);
    assert_eq!(readable(&broker.node, 0), (2, 2));
    assert_eq!(send(&broker, Client::New, next, 1, 0), ErrorCode::None);
}

#[test]
fn transactions_are_listed_and_described() {
    let broker = broker();
    let producer = init(&broker);
    assert_eq!(send(&broker, Client::New, producer, 1, 0), ErrorCode::None);
    let list = |version: i16, request: ListTransactionsRequest<'_>| {
        let bytes = ask(&broker, ApiKey::ListTransactions, version, |body| {
            request.encode(body, version);
        });
        let bytes = bytes.unwrap();
        let response = read(&bytes, |reader| ListTransactionsResponse::decode(reader, version));
        let listed = response.transaction_states.iter();
        let ids: Vec<String> = listed.map(|state| state.transactional_id.to_owned()).collect();
        let unknown: Vec<String> = response
            .unknown_state_filters
            .iter()
            .map(|&state| state.to_owned())
            .collect();
        (error(response.error_code), ids, unknown)
    };
    let all = || ListTransactionsRequest {
        duration_filter: -1,
        ..Default::default()
    };
    let found = (ErrorCode::None, vec![ID.to_owned()], Vec::new());
    let nothing = (ErrorCode::None, Vec::new(), Vec::new());
    for version in 0..=2 {
        assert_eq!(list(version, all()), found);
    }
    let filtered = |change: fn(&mut ListTransactionsRequest<'_>)| {
        let mut request = all();
        change(&mut request);
        list(2, request)
    };
    assert_eq!(filtered(|request| request.state_filters = vec!["Ongoing"]), found);
    assert_eq!(filtered(|request| request.state_filters = vec!["Empty"]), nothing);
    assert_eq!(
        filtered(|request| request.state_filters = vec!["Odd"]),
        (ErrorCode::None, Vec::new(), vec!["Odd".to_owned()])
    );
    assert_eq!(
        filtered(|request| request.producer_id_filters = vec![-5]),
        nothing
    );
    assert_eq!(filtered(|request| request.duration_filter = 60_000), nothing);
    let pattern = |pattern| ListTransactionsRequest {
        transactional_id_pattern: Some(pattern),
        ..all()
    };
    assert_eq!(list(2, pattern("bill.*")), found);
    assert_eq!(list(2, pattern("bill")), nothing);
    assert_eq!(list(2, pattern("(")).0, ErrorCode::InvalidRegularExpression);

    let request = DescribeTransactionsRequest {
        transactional_ids: vec![ID, "other"],
    };
    let bytes = ask(&broker, ApiKey::DescribeTransactions, 0, |body| {
        request.encode(body, 0)
    });
    let bytes = bytes.unwrap();
    let response = read(&bytes, |reader| DescribeTransactionsResponse::decode(reader, 0));
    let [known, unknown] = &response.transaction_states[..] else {
        panic!("{response:?}")
    };
    assert_eq!(error(unknown.error_code), ErrorCode::TransactionalIdNotFound);
    assert_eq!(
        (known.transaction_state, known.producer_id),
        ("Ongoing", producer.0)
    );
    assert_eq!(known.transaction_timeout_ms, TIMEOUT_MS);
    assert_eq!(
        (known.topics[0].topic, &known.topics[0].partitions[..]),
        ("t", &[1][..])
    );
}

#[test]
fn a_timeout_beyond_the_limit_and_an_empty_id_are_refused() {
    let broker = broker();
    let refused = |id: &str, timeout_ms: i32| {
        let request = InitProducerIdRequest {
            transactional_id: Some(id),
            transaction_timeout_ms: timeout_ms,
            producer_id: -1,
            producer_epoch: -1,
        };
        let bytes = ask(&broker, ApiKey::InitProducerId, 4, |body| request.encode(body, 4)).unwrap();
        error(read(&bytes, |reader| InitProducerIdResponse::decode(reader, 4)).error_code)
    };
    assert_eq!(refused("", 1), ErrorCode::InvalidRequest);
    assert_eq!(refused("x", 0), ErrorCode::InvalidTransactionTimeout);
    assert_eq!(refused("x", 900_001), ErrorCode::InvalidTransactionTimeout);
    assert_eq!(refused("x", 900_000), ErrorCode::None);
}

/// KIP-360.
#[test]
fn a_producer_that_names_its_epoch_keeps_its_id() {
    let broker = broker();
    let producer = init(&broker);
    let renewed = init_at(&broker, Some(producer)).unwrap();
    assert_eq!(renewed, (producer.0, producer.1 + 1));
    assert_eq!(
        init_at(&broker, Some((producer.0 + 1, 0))),
        Err(ErrorCode::ProducerFenced)
    );
}
