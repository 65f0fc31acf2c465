//! Transactional produce, markers, and what readers of committed records get, through a whole node
//! without sockets.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Wake, Waker};

use ottla_wire::api_key::ApiKey;
use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::fetch::{FetchPartition, FetchRequest, FetchResponse, FetchTopic};
use ottla_wire::messages::produce::{
    PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData,
};
use ottla_wire::messages::write_txn_markers::{
    WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest, WriteTxnMarkersResponse,
};
use ottla_wire::records::builder::{BatchBuilder, BatchOptions};
use ottla_wire::records::control::{TransactionMarker, TransactionResult};

use super::metadata_tests::{Broker, error, poll, read};
use super::record_tests::with_regions;
use crate::partition::{Partition, Threshold};
use crate::pending::{Handled, PendingReply};
use crate::refusal::Refusal;
use crate::reply::{ReplyBuffer, WaitKind};
use crate::services::{Services, Syncable};
use crate::storage::Storage;
use crate::transaction::admission::{Admission, Question, TransactionalWrite, WriteGate};

const PAGE_CACHE: [(&str, &str); 1] = [("ottla.durability", "page-cache")];
const PRODUCER: i64 = 77;
/// The last version that verifies, and the first that adds.
const VERIFYING: i16 = 11;
const ADDING: i16 = 12;

/// A coordinator that decides when the test says so.
#[derive(Default)]
struct TestGate {
    asked: Mutex<Vec<TransactionalWrite>>,
    decision: Mutex<Option<ErrorCode>>,
}

impl TestGate {
    fn decide(&self, code: ErrorCode) {
        *self.decision.lock().unwrap() = Some(code);
    }

    fn questions(&self) -> usize {
        self.asked.lock().unwrap().len()
    }
}

struct TestAdmission(Arc<TestGate>, usize);

struct SharedGate(Arc<TestGate>);

impl WriteGate for SharedGate {
    fn admit(&self, _: &Storage, write: TransactionalWrite) -> Box<dyn Admission> {
        let count = write.partitions.len();
        self.0.asked.lock().unwrap().push(write);
        Box::new(TestAdmission(self.0.clone(), count))
    }
}

impl Admission for TestAdmission {
    fn poll(&mut self, _: &Services, _: &Waker) -> Poll<Vec<Result<(), Refusal>>> {
        match *self.0.decision.lock().unwrap() {
            None => Poll::Pending,
            Some(ErrorCode::None) => Poll::Ready(vec![Ok(()); self.1]),
            Some(code) => Poll::Ready(vec![Err(Refusal::plain(code)); self.1]),
        }
    }
}

fn broker(lines: &[(&str, &str)]) -> (Broker, Arc<TestGate>) {
    let mut broker = Broker::new(lines);
    let gate = Arc::new(TestGate::default());
    broker.node.write_gate = Arc::new(SharedGate(gate.clone()));
    broker.create("t", 2, 7);
    (broker, gate)
}

fn partition(broker: &Broker, index: i32) -> Arc<Partition> {
    broker.node.storage.partition_by_name("t", index).unwrap()
}

fn batch(producer_epoch: i16, base_sequence: i32) -> Vec<u8> {
    batch_of(PRODUCER, producer_epoch, base_sequence, 10)
}

fn batch_of(producer_id: i64, producer_epoch: i16, base_sequence: i32, bytes: usize) -> Vec<u8> {
    let mut builder = BatchBuilder::new(BatchOptions {
        producer_id,
        producer_epoch,
        base_sequence,
        is_transactional: true,
        ..BatchOptions::default()
    });
    builder.append(1_790_000_000_000, None, Some(&vec![b'v'; bytes]), &[]);
    builder.finish()
}

/// Sends one batch for each partition from 0 on.
fn send(broker: &Broker, version: i16, batches: &[&[u8]]) -> Result<Vec<ErrorCode>, Box<dyn PendingReply>> {
    let data = batches
        .iter()
        .zip(0..)
        .map(|(records, index)| PartitionProduceData {
            index,
            records: Some(records),
        });
    let request = ProduceRequest {
        transactional_id: Some("id"),
        acks: -1,
        timeout_ms: 1_000,
        topic_data: vec![TopicProduceData {
            name: "t",
            partition_data: data.collect(),
            ..Default::default()
        }],
    };
    let (mut body, mut reply) = (Vec::new(), ReplyBuffer::default());
    request.encode(&mut body, version);
    match broker.send(ApiKey::Produce, version, &body, &mut reply) {
        Handled::Replied => Ok(produced(&reply, version)),
        Handled::Pending(pending) => Err(pending),
        _ => panic!("no answer"),
    }
}

fn produced(reply: &ReplyBuffer, version: i16) -> Vec<ErrorCode> {
    let response = read(&reply.bytes, |reader| ProduceResponse::decode(reader, version));
    let partitions = &response.responses[0].partition_responses;
    partitions.iter().map(|one| error(one.error_code)).collect()
}

fn marker(result: TransactionResult, producer_epoch: i16) -> TransactionMarker {
    TransactionMarker {
        producer_id: PRODUCER,
        producer_epoch,
        result,
        coordinator_epoch: 0,
    }
}

fn end(broker: &Broker, result: TransactionResult, producer_epoch: i16, version: i8) -> i64 {
    let marker = marker(result, producer_epoch);
    let appended = partition(broker, 0).append_marker(broker.node.services(), marker, version);
    appended.unwrap().last_offset
}

#[test]
fn a_transactional_batch_waits_for_the_coordinator_with_its_bytes_and_its_order() {
    let (broker, gate) = broker(&PAGE_CACHE);
    let first = batch(0, 0);
    let Err(mut parked) = send(&broker, VERIFYING, &[&first]) else {
        panic!("appended without asking");
    };
    let mut reply = ReplyBuffer::default();
    assert_eq!(poll(&broker, &mut parked, &mut reply), Poll::Pending);
    assert_eq!(partition(&broker, 0).offsets().end, 0);
    assert!(parked.is_alone(), "a later batch must not overtake this one");
    assert!(parked.kept_bytes() >= first.len());
    assert_eq!(parked.waits_for(), WaitKind::Transaction);
    gate.decide(ErrorCode::None);
    assert_eq!(poll(&broker, &mut parked, &mut reply), Poll::Ready(()));
    assert_eq!(produced(&reply, VERIFYING), [ErrorCode::None]);
    let offsets = partition(&broker, 0).offsets();
    assert_eq!((offsets.last_stable, offsets.high_watermark), (0, 1));
    let asked = gate.asked.lock().unwrap()[0].clone();
    assert_eq!(
        (
            &**asked.transactional_id.name(),
            asked.producer_id,
            asked.producer_epoch
        ),
        ("id", PRODUCER, 0)
    );
    assert_eq!(asked.partitions, [("t".into(), 0)]);
}

#[test]
fn only_partitions_without_an_open_transaction_are_asked_about() {
    let (broker, gate) = broker(&PAGE_CACHE);
    gate.decide(ErrorCode::None);
    assert_eq!(
        send(&broker, ADDING, &[&batch(0, 0)]).ok(),
        Some(vec![ErrorCode::None])
    );
    assert_eq!(
        send(&broker, ADDING, &[&batch(0, 1)]).ok(),
        Some(vec![ErrorCode::None])
    );
    assert_eq!(gate.questions(), 1);
    let both = send(&broker, ADDING, &[&batch(0, 2), &batch(0, 0)]).ok();
    assert_eq!(both, Some(vec![ErrorCode::None; 2]));
    let asked = gate.asked.lock().unwrap()[1].clone();
    assert_eq!(
        (asked.partitions, asked.question),
        (vec![("t".into(), 1)], Question::Add)
    );
    end(&broker, TransactionResult::Commit, 0, 1);
    send(&broker, VERIFYING, &[&batch(0, 3)]).ok().unwrap();
    assert_eq!(gate.asked.lock().unwrap()[2].question, Question::Verify);
}

#[test]
fn a_refused_partition_gets_its_code_and_the_others_are_appended() {
    let (broker, gate) = broker(&PAGE_CACHE);
    gate.decide(ErrorCode::None);
    send(&broker, VERIFYING, &[&batch(0, 0)]).ok().unwrap();
    gate.decide(ErrorCode::TransactionAbortable);
    let answer = send(&broker, VERIFYING, &[&batch(0, 1), &batch(0, 0)]).ok();
    assert_eq!(
        answer,
        Some(vec![ErrorCode::None, ErrorCode::TransactionAbortable])
    );
    assert_eq!(partition(&broker, 1).offsets().end, 0);
}

#[test]
fn producers_get_codes_that_their_version_knows_how_to_take() {
    use ErrorCode::*;
    let (broker, gate) = broker(&PAGE_CACHE);
    for (version, decided, answered) in [
        (10, TransactionAbortable, InvalidTxnState),
        (11, TransactionAbortable, TransactionAbortable),
        (11, ProducerFenced, InvalidProducerEpoch),
        (12, InvalidProducerIdMapping, InvalidProducerIdMapping),
        (11, ConcurrentTransactions, NotEnoughReplicas),
        (12, ConcurrentTransactions, ConcurrentTransactions),
        (12, CoordinatorLoadInProgress, NotEnoughReplicas),
        (12, NotCoordinator, NotEnoughReplicas),
    ] {
        gate.decide(decided);
        let answer = send(&broker, version, &[&batch(0, 0)]).ok();
        assert_eq!(answer, Some(vec![answered]), "{decided:?} in version {version}");
    }
}

#[test]
fn a_request_of_two_producers_is_refused_as_a_whole() {
    let (broker, gate) = broker(&PAGE_CACHE);
    gate.decide(ErrorCode::None);
    let other = batch_of(PRODUCER + 1, 0, 0, 1);
    let answer = send(&broker, ADDING, &[&batch(0, 0), &other]).ok();
    assert_eq!(answer, Some(vec![ErrorCode::InvalidProducerIdMapping; 2]));
    let nobody = batch_of(-1, -1, -1, 1);
    let answer = send(&broker, ADDING, &[&nobody]).ok();
    assert_eq!(answer, Some(vec![ErrorCode::InvalidTxnState]));
    assert_eq!((gate.questions(), partition(&broker, 0).offsets().end), (0, 0));
}

/// KAFKA-9144, KIP-890: otherwise the late batch would begin a transaction that nothing ends.
#[test]
fn a_batch_that_arrives_behind_its_marker_begins_no_transaction() {
    let (broker, gate) = broker(&PAGE_CACHE);
    let Err(mut parked) = send(&broker, VERIFYING, &[&batch(0, 0)]) else {
        panic!("appended without asking");
    };
    end(&broker, TransactionResult::Abort, 0, 1);
    gate.decide(ErrorCode::None);
    let mut reply = ReplyBuffer::default();
    assert_eq!(poll(&broker, &mut parked, &mut reply), Poll::Ready(()));
    assert_eq!(produced(&reply, VERIFYING), [ErrorCode::InvalidTxnState]);
    let offsets = partition(&broker, 0).offsets();
    assert_eq!((offsets.last_stable, offsets.end), (1, 1));
}

/// The first batch of the next transaction may arrive before the marker of the one before.
#[test]
fn a_marker_with_an_epoch_of_its_own_lets_the_next_transaction_begin_and_fences_the_last() {
    let (broker, gate) = broker(&PAGE_CACHE);
    gate.decide(ErrorCode::None);
    send(&broker, ADDING, &[&batch(0, 0)]).ok().unwrap();
    *gate.decision.lock().unwrap() = None;
    let Err(mut next) = send(&broker, ADDING, &[&batch(1, 0)]) else {
        panic!("appended without asking");
    };
    end(&broker, TransactionResult::Commit, 1, 2);
    gate.decide(ErrorCode::None);
    let mut reply = ReplyBuffer::default();
    assert_eq!(poll(&broker, &mut next, &mut reply), Poll::Ready(()));
    assert_eq!(produced(&reply, ADDING), [ErrorCode::None]);
    let late = send(&broker, ADDING, &[&batch(0, 1)]).ok();
    assert_eq!(late, Some(vec![ErrorCode::InvalidProducerEpoch]));
    let marker = marker(TransactionResult::Abort, 1);
    let ended = partition(&broker, 0).append_marker(broker.node.services(), marker, 2);
    assert_eq!(
        ended.unwrap_err(),
        ErrorCode::InvalidProducerEpoch,
        "not its transaction"
    );
    assert!(partition(&broker, 0).has_open_transaction(PRODUCER, 1));
}

#[test]
fn a_producer_of_version_2_begins_at_sequence_0_and_an_older_one_anywhere() {
    let (broker, gate) = broker(&PAGE_CACHE);
    gate.decide(ErrorCode::None);
    let answer = send(&broker, ADDING, &[&batch(0, 5)]).ok();
    assert_eq!(answer, Some(vec![ErrorCode::OutOfOrderSequenceNumber]));
    let answer = send(&broker, VERIFYING, &[&batch(0, 5)]).ok();
    assert_eq!(answer, Some(vec![ErrorCode::None]));
}

#[test]
fn transactional_batches_are_acknowledged_when_they_are_durable() {
    let (broker, gate) = broker(&[]);
    gate.decide(ErrorCode::None);
    let Err(mut waiting) = send(&broker, ADDING, &[&batch(0, 0)]) else {
        panic!("acknowledged from memory");
    };
    let mut reply = ReplyBuffer::default();
    assert_eq!(poll(&broker, &mut waiting, &mut reply), Poll::Pending);
    partition(&broker, 0).run_sync(broker.node.services());
    assert_eq!(poll(&broker, &mut waiting, &mut reply), Poll::Ready(()));
    assert_eq!(produced(&reply, ADDING), [ErrorCode::None]);
}

#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn readers_of_committed_records_are_woken_by_the_marker_and_not_before() {
    let (broker, gate) = broker(&PAGE_CACHE);
    gate.decide(ErrorCode::None);
    let partition = partition(&broker, 0);
    let wakes = Arc::new(Wakes::default());
    let threshold = Threshold {
        stable_bytes: 1,
        ..Threshold::default()
    };
    let _token = partition.wait(threshold, &Waker::from(wakes.clone()));
    for sequence in 0..3 {
        send(&broker, ADDING, &[&batch(0, sequence)]).ok().unwrap();
    }
    assert_eq!(
        (partition.stable_bytes(), wakes.0.load(Ordering::Relaxed)),
        (0, 0)
    );
    assert!(partition.visible_bytes() > 0);
    end(&broker, TransactionResult::Commit, 0, 1);
    assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
    assert_eq!(partition.stable_bytes(), partition.visible_bytes());
}

/// The base offsets of what is fetched as committed, and the aborted transactions that it lists.
fn fetch(broker: &Broker, offset: i64, bytes_max: i32) -> (i64, Vec<i64>) {
    let request = FetchRequest {
        max_bytes: bytes_max,
        isolation_level: 1,
        session_epoch: -1,
        topics: vec![FetchTopic {
            topic: "t",
            partitions: vec![FetchPartition {
                fetch_offset: offset,
                partition_max_bytes: bytes_max,
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    };
    let mut body = Vec::new();
    request.encode(&mut body, 12);
    let mut reply = ReplyBuffer::default();
    let handled = broker.send(ApiKey::Fetch, 12, &body, &mut reply);
    assert!(matches!(handled, Handled::Replied));
    let whole = with_regions(&reply);
    let response = read(&whole, |reader| FetchResponse::decode(reader, 12));
    let answered = &response.responses[0].partitions[0];
    let aborted = answered.aborted_transactions.as_deref().unwrap();
    (
        answered.last_stable_offset,
        aborted.iter().map(|one| one.first_offset).collect(),
    )
}

#[test]
fn an_answer_lists_the_aborted_transactions_of_what_it_carries() {
    let (broker, gate) = broker(&PAGE_CACHE);
    gate.decide(ErrorCode::None);
    // Pairs of a batch and its marker: aborted transactions begin at 0, 2, 4, …
    for sequence in 0..20 {
        let batch = batch_of(PRODUCER, 0, sequence, 500);
        send(&broker, VERIFYING, &[&batch]).ok().unwrap();
        end(&broker, TransactionResult::Abort, 0, 1);
    }
    let all: Vec<i64> = (0..20).map(|index| index * 2).collect();
    assert_eq!(fetch(&broker, 0, 1_000_000), (40, all.clone()));
    let (_, some) = fetch(&broker, 4, 2_000);
    assert_eq!(some, all[2..2 + some.len()]);
    assert!((2..5).contains(&some.len()), "{some:?}");
    let (_, one) = fetch(&broker, 6, 1);
    assert_eq!(one, [6], "one batch is always sent");
}

fn write_markers(broker: &Broker, version: i16, markers: Vec<WritableTxnMarker<'_>>) -> Written {
    let (mut body, mut reply) = (Vec::new(), ReplyBuffer::default());
    WriteTxnMarkersRequest { markers }.encode(&mut body, version);
    match broker.send(ApiKey::WriteTxnMarkers, version, &body, &mut reply) {
        Handled::Replied => Ok(written(&reply, version)),
        Handled::Pending(pending) => Err(pending),
        _ => panic!("no answer"),
    }
}

type Written = Result<Vec<ErrorCode>, Box<dyn PendingReply>>;

fn written(reply: &ReplyBuffer, version: i16) -> Vec<ErrorCode> {
    let response = read(&reply.bytes, |reader| {
        WriteTxnMarkersResponse::decode(reader, version)
    });
    let topics = response.markers.iter().flat_map(|marker| &marker.topics);
    let partitions = topics.flat_map(|topic| &topic.partitions);
    partitions.map(|one| error(one.error_code)).collect()
}

fn abort<'a>(topic: &'a str, partitions: &[i32], transaction_version: i8) -> WritableTxnMarker<'a> {
    WritableTxnMarker {
        producer_id: PRODUCER,
        producer_epoch: 0,
        transaction_result: false,
        topics: vec![WritableTxnMarkerTopic {
            name: topic,
            partition_indexes: partitions.to_vec(),
        }],
        coordinator_epoch: 0,
        transaction_version,
    }
}

#[test]
fn an_administrator_ends_a_transaction_and_is_answered_when_that_is_durable() {
    let (broker, gate) = broker(&[]);
    gate.decide(ErrorCode::None);
    let Err(_open) = send(&broker, VERIFYING, &[&batch(0, 0)]) else {
        panic!("acknowledged from memory");
    };
    let partition = partition(&broker, 0);
    partition.clone().run_sync(broker.node.services());
    assert_eq!(partition.offsets().last_stable, 0);
    let Err(mut waiting) = write_markers(&broker, 1, vec![abort("t", &[0, 9], 0)]) else {
        panic!("answered from memory");
    };
    let mut reply = ReplyBuffer::default();
    assert_eq!(poll(&broker, &mut waiting, &mut reply), Poll::Pending);
    assert_eq!(
        partition.offsets().last_stable,
        0,
        "the marker could still be lost"
    );
    partition.clone().run_sync(broker.node.services());
    assert_eq!(poll(&broker, &mut waiting, &mut reply), Poll::Ready(()));
    let expected = [ErrorCode::None, ErrorCode::UnknownTopicOrPartition];
    assert_eq!(written(&reply, 1), expected);
    assert_eq!(partition.offsets().last_stable, 2);
}

#[test]
fn markers_of_old_producers_and_coordinators_are_refused() {
    let (broker, gate) = broker(&PAGE_CACHE);
    gate.decide(ErrorCode::None);
    send(&broker, VERIFYING, &[&batch(3, 0)]).ok().unwrap();
    let write = |producer_epoch, coordinator_epoch, transaction_version| {
        let marker = WritableTxnMarker {
            producer_epoch,
            coordinator_epoch,
            ..abort("t", &[0], transaction_version)
        };
        write_markers(&broker, 2, vec![marker]).ok().unwrap()[0]
    };
    assert_eq!(write(2, 5, 0), ErrorCode::InvalidProducerEpoch);
    assert_eq!(write(3, 5, 2), ErrorCode::InvalidProducerEpoch, "not raised");
    assert_eq!(write(4, 5, 2), ErrorCode::None);
    assert_eq!(write(4, 4, 2), ErrorCode::TransactionCoordinatorFenced);
    assert_eq!(write(4, 5, 2), ErrorCode::None, "written again");
    assert_eq!(write(-1, 5, 0), ErrorCode::InvalidProducerIdMapping);
    assert_eq!(partition(&broker, 0).offsets().end, 3);
}
