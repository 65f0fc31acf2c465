//! Produce and Fetch through a whole node without sockets: what is answered, and what must not be
//! served.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Poll, Wake, Waker};

use ottla_wire::api_key::ApiKey;
use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::fetch::{FetchPartition, FetchRequest, FetchResponse, FetchTopic};
use ottla_wire::messages::produce::{
    PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData,
};
use ottla_wire::records::batch;
use ottla_wire::records::builder::{BatchBuilder, BatchOptions};
use ottla_wire::records::control::{TransactionMarker, TransactionResult};

use super::metadata_tests::{Broker, error, poll, read};
use crate::partition::{Partition, Requests, Traffic};
use crate::pending::{Handled, PendingReply};
use crate::reply::{Ending, ReplyBuffer};
use crate::services::Syncable;

const PRODUCE_VERSION: i16 = 9;
const FETCH_VERSION: i16 = 12;
pub(super) const PAGE_CACHE: [(&str, &str); 1] = [("ottla.durability", "page-cache")];

pub(super) fn batch_of(value_bytes: usize) -> Vec<u8> {
    let mut builder = BatchBuilder::new(BatchOptions::default());
    builder.append(1_790_000_000_000, None, Some(&vec![b'v'; value_bytes]), &[]);
    builder.finish()
}

/// The first batch of a producer with an id, in a transaction.
fn transactional_batch(producer_id: i64, value: &str) -> Vec<u8> {
    let mut builder = BatchBuilder::new(BatchOptions {
        producer_id,
        producer_epoch: 0,
        base_sequence: 0,
        is_transactional: true,
        ..BatchOptions::default()
    });
    builder.append(1_790_000_000_000, None, Some(value.as_bytes()), &[]);
    builder.finish()
}

pub(super) fn partition(broker: &Broker, topic: &str, index: i32) -> Arc<Partition> {
    let topic_id = broker.node.image().topic(topic).unwrap().id;
    broker.node.storage.partition(topic_id, index).unwrap()
}

/// Returns the error code of the answer, or the pending reply.
fn produce(
    broker: &Broker,
    topic: &str,
    acks: i16,
    records: &[u8],
) -> Result<ErrorCode, Box<dyn PendingReply>> {
    match send(broker, topic, acks, records) {
        (Handled::Replied, reply) => Ok(produced(&reply)),
        (Handled::Pending(pending), _) => Err(pending),
        _ => panic!("no answer"),
    }
}

fn send(broker: &Broker, topic: &str, acks: i16, records: &[u8]) -> (Handled, ReplyBuffer) {
    let partition = PartitionProduceData {
        index: 0,
        records: Some(records),
    };
    let request = ProduceRequest {
        transactional_id: None,
        acks,
        timeout_ms: 1_000,
        topic_data: vec![TopicProduceData {
            name: topic,
            partition_data: vec![partition],
            ..Default::default()
        }],
    };
    let (mut body, mut reply) = (Vec::new(), ReplyBuffer::default());
    request.encode(&mut body, PRODUCE_VERSION);
    let handled = broker.send(ApiKey::Produce, PRODUCE_VERSION, &body, &mut reply);
    (handled, reply)
}

fn produced(reply: &ReplyBuffer) -> ErrorCode {
    let response = read(&reply.bytes, |reader| {
        ProduceResponse::decode(reader, PRODUCE_VERSION)
    });
    error(response.responses[0].partition_responses[0].error_code)
}

/// The answer of a fetch for one partition.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Answered {
    pub(super) error: Option<ErrorCode>,
    pub(super) offsets: Vec<i64>,
    diverging: Option<(i32, i64)>,
    aborted: Option<Vec<(i64, i64)>>,
}

#[derive(Default)]
pub(super) struct Fetch {
    pub(super) partitions: Vec<FetchPartition>,
    pub(super) max_bytes: i32,
    pub(super) min_bytes: i32,
    pub(super) max_wait_ms: i32,
    pub(super) isolation_level: i8,
}

pub(super) fn from(offset: i64) -> FetchPartition {
    FetchPartition {
        partition: 0,
        fetch_offset: offset,
        partition_max_bytes: 1_000_000,
        ..Default::default()
    }
}

/// Fetches all from a partition at an isolation level.
fn fetch_at(broker: &Broker, isolation_level: i8) -> Answered {
    let fetch = Fetch {
        partitions: vec![from(0)],
        max_bytes: 1_000_000,
        isolation_level,
        ..Fetch::default()
    };
    fetch_all(broker, fetch).remove(0)
}

fn fetch_one(broker: &Broker, partition: FetchPartition) -> Answered {
    let fetch = Fetch {
        partitions: vec![partition],
        max_bytes: 1_000_000,
        ..Fetch::default()
    };
    fetch_all(broker, fetch).remove(0)
}

/// Fetches from topic `t`, without waiting.
fn fetch_all(broker: &Broker, fetch: Fetch) -> Vec<Answered> {
    let (handled, reply) = send_fetch(broker, fetch);
    assert!(matches!(handled, Handled::Replied));
    answered(&reply)
}

pub(super) fn send_fetch(broker: &Broker, fetch: Fetch) -> (Handled, ReplyBuffer) {
    let request = FetchRequest {
        max_wait_ms: fetch.max_wait_ms,
        min_bytes: fetch.min_bytes,
        max_bytes: fetch.max_bytes,
        isolation_level: fetch.isolation_level,
        session_epoch: -1,
        topics: vec![FetchTopic {
            topic: "t",
            partitions: fetch.partitions,
            ..Default::default()
        }],
        ..Default::default()
    };
    let (mut body, mut reply) = (Vec::new(), ReplyBuffer::default());
    request.encode(&mut body, FETCH_VERSION);
    let handled = broker.send(ApiKey::Fetch, FETCH_VERSION, &body, &mut reply);
    (handled, reply)
}

/// What the answer of a fetch says about its partitions.
pub(super) fn answered(reply: &ReplyBuffer) -> Vec<Answered> {
    let bytes = with_regions(reply);
    let response = read(&bytes, |reader| FetchResponse::decode(reader, FETCH_VERSION));
    let partitions = response.responses[0].partitions.iter();
    let answered = partitions.map(|partition| Answered {
        error: Some(error(partition.error_code)).filter(|error| *error != ErrorCode::None),
        offsets: batch::batches(partition.records.unwrap_or_default())
            .map(|batch| batch.unwrap().header.base_offset)
            .collect(),
        diverging: Some(&partition.diverging_epoch)
            .filter(|end| end.end_offset >= 0)
            .map(|end| (end.epoch, end.end_offset)),
        aborted: partition.aborted_transactions.as_ref().map(|aborted| {
            let aborted = aborted.iter();
            aborted.map(|one| (one.producer_id, one.first_offset)).collect()
        }),
    });
    answered.collect()
}

/// The reply as its client receives it.
pub(super) fn with_regions(reply: &ReplyBuffer) -> Vec<u8> {
    let (mut whole, mut sent) = (Vec::new(), 0);
    for inserted in &reply.regions {
        whole.extend_from_slice(&reply.bytes[sent..inserted.at]);
        sent = inserted.at;
        let region = &inserted.region;
        let mut bytes = vec![0; region.bytes as usize];
        region.file.read_at(&mut bytes, region.position).unwrap();
        whole.extend(bytes);
    }
    whole.extend_from_slice(&reply.bytes[sent..]);
    whole
}

#[test]
fn clients_may_not_write_to_internal_topics() {
    let broker = Broker::new(&PAGE_CACHE);
    for topic in ["__consumer_offsets", "__transaction_state"] {
        broker.create(topic, 1, 7);
        for acks in [1, -1] {
            let refused = produce(&broker, topic, acks, &batch_of(1)).ok();
            assert_eq!(refused, Some(ErrorCode::InvalidTopicException), "{topic}");
        }
        let _ = send(&broker, topic, 0, &batch_of(1));
        assert_eq!(partition(&broker, topic, 0).offsets().end, 0, "{topic}");
    }
}

#[test]
fn acks_1_is_answered_when_a_killed_process_would_lose_nothing() {
    let broker = Broker::new(&[]);
    broker.create("t", 1, 7);
    let Err(mut waiting) = produce(&broker, "t", 1, &batch_of(1)) else {
        panic!("answered although the record is only in memory of the process");
    };
    let mut reply = ReplyBuffer::default();
    assert_eq!(poll(&broker, &mut waiting, &mut reply), Poll::Pending);
    assert!(!waiting.is_alone(), "others may be appended meanwhile");
    partition(&broker, "t", 0).run_sync(broker.node.services());
    assert_eq!(poll(&broker, &mut waiting, &mut reply), Poll::Ready(()));
    assert_eq!(produced(&reply), ErrorCode::None);

    let broker = Broker::new(&PAGE_CACHE);
    broker.create("t", 1, 7);
    assert_eq!(produce(&broker, "t", 1, &batch_of(1)).ok(), Some(ErrorCode::None));
}

#[test]
fn a_producer_without_answers_is_held_once_the_disk_is_16_mib_behind() {
    let broker = Broker::new(&[]);
    broker.create("t", 1, 7);
    let batch = batch_of(1_000_000);
    for _ in 0..16 {
        assert!(matches!(send(&broker, "t", 0, &batch).0, Handled::NoReply));
    }
    let Handled::Pending(mut waiting) = send(&broker, "t", 0, &batch).0 else {
        panic!("served on although 17 MB are not synced");
    };
    assert!(waiting.is_alone());
    let mut reply = ReplyBuffer::default();
    assert_eq!(poll(&broker, &mut waiting, &mut reply), Poll::Pending);
    partition(&broker, "t", 0).run_sync(broker.node.services());
    assert_eq!(poll(&broker, &mut waiting, &mut reply), Poll::Ready(()));
    assert!(matches!(reply.ending, Ending::NoReply) && reply.bytes.is_empty());
    assert!(matches!(send(&broker, "t", 0, &batch).0, Handled::NoReply));
}

#[test]
fn connections_are_held_while_half_of_the_memory_waits_for_the_disk() {
    let broker = Broker::new(&[("ottla.log.memory.bytes", "16777216")]);
    broker.create("t", 1, 7);
    let batch = batch_of(1_000_000);
    let mut waiting: Vec<_> = (0..9)
        .map(|_| produce(&broker, "t", -1, &batch).expect_err("not synced"))
        .collect();
    let alone: Vec<bool> = waiting.iter().map(|pending| pending.is_alone()).collect();
    assert_eq!(alone.iter().position(|is_alone| *is_alone), Some(8), "{alone:?}");
    partition(&broker, "t", 0).run_sync(broker.node.services());
    let mut reply = ReplyBuffer::default();
    assert_eq!(poll(&broker, &mut waiting[8], &mut reply), Poll::Ready(()));
    assert!(
        !produce(&broker, "t", -1, &batch)
            .expect_err("not synced")
            .is_alone()
    );
}

#[test]
fn unsynced_records_are_not_served() {
    let broker = Broker::new(&[]);
    broker.create("t", 1, 7);
    let mut waiting = produce(&broker, "t", 1, &batch_of(1)).expect_err("not synced");
    assert_eq!(fetch_one(&broker, from(0)), Answered::default());
    partition(&broker, "t", 0).run_sync(broker.node.services());
    assert_eq!(fetch_one(&broker, from(0)).offsets, [0]);
    assert_eq!(
        poll(&broker, &mut waiting, &mut ReplyBuffer::default()),
        Poll::Ready(())
    );
}

/// Only a simulation noticed that what was appended during a sync was served when that ended.
#[test]
fn records_appended_while_a_sync_runs_are_served_after_the_next_one() {
    let broker = Broker::new(&[]);
    broker.create("t", 1, 7);
    let partition = partition(&broker, "t", 0);
    let offsets = || [0, 1].map(|isolation_level| fetch_at(&broker, isolation_level).offsets);
    assert!(produce(&broker, "t", 1, &batch_of(1)).is_err(), "not synced");
    let mut commit = partition.clone().begin_commit();
    assert!(produce(&broker, "t", 1, &batch_of(1)).is_err(), "not synced");
    let none: [&[i64]; 2] = [&[]; 2];
    assert_eq!(offsets(), none);
    commit.run();
    assert_eq!(offsets(), none);
    commit.finish(broker.node.services());
    assert_eq!(offsets(), [[0]; 2]);
    partition.run_sync(broker.node.services());
    assert_eq!(offsets(), [[0, 1]; 2]);
}

/// The last stable offset follows the high watermark: a marker counts when it is durable, and an
/// earlier end of the log does not.
#[test]
fn a_transaction_is_committed_for_its_readers_when_its_marker_is_durable() {
    let broker = Broker::new(&[]);
    broker.create("t", 1, 7);
    let (partition, services) = (partition(&broker, "t", 0), broker.node.services());
    let offsets = || [0, 1].map(|isolation_level| fetch_at(&broker, isolation_level).offsets);
    let append = |producer_id| {
        let batch = transactional_batch(producer_id, "of a transaction");
        partition.append_internal(services, &batch).unwrap();
    };
    append(7);
    partition.clone().run_sync(services);
    assert_eq!(offsets(), [vec![0], vec![]]);
    let marker = TransactionMarker {
        producer_id: 7,
        producer_epoch: 0,
        result: TransactionResult::Commit,
        coordinator_epoch: 0,
    };
    partition.append_marker(services, marker, 0).unwrap();
    assert_eq!(offsets(), [vec![0], vec![]]);
    let mut commit = partition.clone().begin_commit();
    append(8);
    assert!(produce(&broker, "t", 1, &batch_of(1)).is_err(), "not synced");
    commit.run();
    assert_eq!(offsets(), [vec![0], vec![]]);
    commit.finish(services);
    assert_eq!(offsets(), [[0, 1]; 2]);
    partition.clone().run_sync(services);
    assert_eq!(offsets(), [vec![0, 1, 2, 3], vec![0, 1]]);
}

#[test]
fn a_fetch_that_names_another_leader_epoch_is_refused() {
    let broker = Broker::new(&PAGE_CACHE);
    broker.create("t", 1, 7);
    produce(&broker, "t", 1, &batch_of(1)).ok().unwrap();
    let epoch = partition(&broker, "t", 0).leader_epoch();
    let with_epoch = |current_leader_epoch| {
        let partition = FetchPartition {
            current_leader_epoch,
            ..from(0)
        };
        fetch_one(&broker, partition)
    };
    for (epoch, refusal) in [
        (-1, None),
        (epoch, None),
        (epoch + 1, Some(ErrorCode::UnknownLeaderEpoch)),
    ] {
        assert_eq!(with_epoch(epoch).error, refusal, "{epoch}");
    }
    let (disk, config) = (broker.disk.clone(), (*broker.node.config()).clone());
    drop(broker);
    let broker = Broker::on(disk, config);
    let newer = partition(&broker, "t", 0).leader_epoch();
    assert!(newer > epoch, "a start begins a new epoch");
    let partition = FetchPartition {
        current_leader_epoch: epoch,
        ..from(0)
    };
    assert_eq!(
        fetch_one(&broker, partition).error,
        Some(ErrorCode::FencedLeaderEpoch)
    );
}

#[test]
fn a_client_past_the_end_of_an_epoch_is_told_where_it_ended() {
    let broker = Broker::new(&PAGE_CACHE);
    broker.create("t", 1, 7);
    for _ in 0..3 {
        produce(&broker, "t", 1, &batch_of(1)).ok().unwrap();
    }
    let epoch = partition(&broker, "t", 0).leader_epoch();
    let has_read = |last_fetched_epoch, fetch_offset| {
        let partition = FetchPartition {
            last_fetched_epoch,
            ..from(fetch_offset)
        };
        fetch_one(&broker, partition)
    };
    assert_eq!(has_read(epoch, 2).offsets, [2]);
    assert_eq!(has_read(epoch, 3), Answered::default());
    let told = Answered {
        diverging: Some((epoch, 3)),
        ..Answered::default()
    };
    assert_eq!(has_read(epoch, 4), told);
    // Without an epoch there is nothing to compare, and an epoch that is not known yet has no end.
    for unknown in [(-1, 4), (epoch + 1, 2)] {
        let error = has_read(unknown.0, unknown.1).error;
        assert_eq!(error, Some(ErrorCode::OffsetOutOfRange), "{unknown:?}");
    }
    let (disk, config) = (broker.disk.clone(), (*broker.node.config()).clone());
    drop(broker);
    let broker = Broker::on(disk, config);
    let partition = FetchPartition {
        last_fetched_epoch: epoch,
        ..from(4)
    };
    assert_eq!(fetch_one(&broker, partition), told);
}

#[test]
fn readers_of_committed_records_stop_at_the_first_open_transaction() {
    let broker = Broker::new(&PAGE_CACHE);
    broker.create("t", 1, 7);
    produce(&broker, "t", 1, &batch_of(1)).ok().unwrap();
    partition(&broker, "t", 0)
        .append_internal(broker.node.services(), &transactional_batch(7, "open"))
        .unwrap();
    produce(&broker, "t", 1, &batch_of(1)).ok().unwrap();
    assert_eq!(fetch_at(&broker, 0).offsets, [0, 1, 2]);
    let committed = fetch_at(&broker, 1);
    assert_eq!((committed.offsets, committed.aborted), (vec![0], Some(vec![])));
}

/// KIP-74.
#[test]
fn only_the_first_batch_of_an_answer_may_exceed_the_limits() {
    let broker = Broker::new(&PAGE_CACHE);
    broker.create("t", 2, 7);
    for index in [0, 1] {
        let partition = partition(&broker, "t", index);
        for _ in 0..2 {
            partition
                .append_internal(broker.node.services(), &batch_of(10_000))
                .unwrap();
        }
    }
    let both = |partition_max_bytes, max_bytes| {
        let partitions = [0, 1].map(|partition| FetchPartition {
            partition,
            partition_max_bytes,
            ..from(0)
        });
        let fetch = Fetch {
            partitions: partitions.to_vec(),
            max_bytes,
            ..Fetch::default()
        };
        let answered = fetch_all(&broker, fetch).into_iter();
        answered.map(|answered| answered.offsets).collect::<Vec<_>>()
    };
    assert_eq!(both(100, 1_000_000), [vec![0], vec![]]);
    assert_eq!(both(1_000_000, 100), [vec![0], vec![]]);
    assert_eq!(both(0, 0), [vec![0], vec![]]);
    assert_eq!(both(11_000, 1_000_000), [vec![0], vec![0]]);
    assert_eq!(both(1_000_000, 1_000_000), [vec![0, 1], vec![0, 1]]);
}

/// Counts how often it was woken.
#[derive(Default)]
struct Bell(AtomicUsize);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A fetch that waits, and what it is woken by.
struct Waiting {
    bell: Arc<Bell>,
    pending: Box<dyn PendingReply>,
    reply: ReplyBuffer,
}

impl Waiting {
    fn start(broker: &Broker, fetch: Fetch) -> Waiting {
        let (Handled::Pending(pending), reply) = send_fetch(broker, fetch) else {
            panic!("answered at once");
        };
        let mut waiting = Waiting {
            bell: Arc::default(),
            pending,
            reply,
        };
        assert_eq!(waiting.poll(broker), Poll::Pending);
        waiting
    }

    fn poll(&mut self, broker: &Broker) -> Poll<()> {
        let waker = Waker::from(self.bell.clone());
        self.pending.poll(&broker.node, &waker, &mut self.reply)
    }

    fn was_woken(&self) -> bool {
        self.bell.0.swap(0, Ordering::Relaxed) > 0
    }
}

fn patient(isolation_level: i8, min_bytes: i32) -> Fetch {
    Fetch {
        partitions: vec![from(0)],
        max_bytes: 1_000_000,
        min_bytes,
        max_wait_ms: 1_000,
        isolation_level,
    }
}

#[test]
fn a_waiting_fetch_is_woken_by_records_that_it_may_see() {
    let broker = Broker::new(&PAGE_CACHE);
    broker.create("t", 1, 7);
    let (partition, services) = (partition(&broker, "t", 0), broker.node.services());
    let append = |batch: &[u8]| partition.append_internal(services, batch).unwrap();
    let batch = transactional_batch(7, "open");
    let mut of_all = Waiting::start(&broker, patient(0, 2 * batch.len() as i32));
    let mut of_committed = Waiting::start(&broker, patient(1, batch.len() as i32));
    append(&batch);
    assert!(!of_all.was_woken() && !of_committed.was_woken());
    append(&transactional_batch(8, "open"));
    assert!(of_all.was_woken() && !of_committed.was_woken());
    assert_eq!(of_all.poll(&broker), Poll::Ready(()));
    assert_eq!(answered(&of_all.reply)[0].offsets, [0, 1]);
    assert_eq!(of_committed.poll(&broker), Poll::Pending);
    let marker = TransactionMarker {
        producer_id: 7,
        producer_epoch: 0,
        result: TransactionResult::Abort,
        coordinator_epoch: 0,
    };
    partition.append_marker(services, marker, 0).unwrap();
    assert!(of_committed.was_woken());
    assert_eq!(of_committed.poll(&broker), Poll::Ready(()));
    let committed = answered(&of_committed.reply).remove(0);
    assert_eq!(committed.aborted, Some(vec![(7, 0)]));
}

#[test]
fn a_waiting_fetch_is_told_that_its_topic_is_gone() {
    let broker = Broker::new(&PAGE_CACHE);
    broker.create("t", 1, 7);
    let mut waiting = Waiting::start(&broker, patient(0, 1));
    partition(&broker, "t", 0).delete();
    assert!(waiting.was_woken());
    assert_eq!(waiting.poll(&broker), Poll::Ready(()));
    let error = answered(&waiting.reply)[0].error;
    assert_eq!(error, Some(ErrorCode::UnknownTopicOrPartition));
    assert!(partition(&broker, "t", 0).hold_directory_name().is_none());
}

#[test]
fn a_fetch_that_is_given_up_leaves_nothing_behind() {
    let broker = Broker::new(&PAGE_CACHE);
    broker.create("t", 1, 7);
    let Waiting { bell, pending, .. } = Waiting::start(&broker, patient(0, 1));
    let other = Waiting::start(&broker, patient(0, 1));
    drop(pending);
    assert_eq!(Arc::strong_count(&bell), 1);
    produce(&broker, "t", 1, &batch_of(1)).ok().unwrap();
    assert!(other.was_woken() && bell.0.load(Ordering::Relaxed) == 0);
}

#[test]
fn an_error_is_answered_without_delay_and_counted() {
    let broker = Broker::new(&PAGE_CACHE);
    broker.create("t", 1, 7);
    produce(&broker, "t", 1, &batch_of(1)).ok().unwrap();
    let beyond = Fetch {
        partitions: vec![from(5)],
        ..patient(0, 1)
    };
    let (handled, reply) = send_fetch(&broker, beyond);
    assert!(matches!(handled, Handled::Replied));
    assert_eq!(answered(&reply)[0].error, Some(ErrorCode::OffsetOutOfRange));
    let (_, reply) = send_fetch(&broker, patient(0, 1));
    let bytes = batch_of(1).len() as u64;
    assert_eq!(reply.seen.fetched_bytes, bytes);
    let traffic = partition(&broker, "t", 0).traffic();
    let expected = Traffic {
        records_in: 1,
        bytes_in: bytes,
        bytes_out: bytes,
        requests: Requests {
            produce: 1,
            produce_failed: 0,
            fetch: 2,
            fetch_failed: 1,
        },
    };
    assert_eq!(traffic, expected);
    let mut damaged = batch_of(1);
    *damaged.last_mut().unwrap() ^= 1;
    assert_eq!(
        produce(&broker, "t", 1, &damaged).ok(),
        Some(ErrorCode::CorruptMessage)
    );
    let requests = partition(&broker, "t", 0).traffic().requests;
    assert_eq!((requests.produce, requests.produce_failed), (2, 1));
}

/// More would hold up the event loop.
#[test]
fn at_most_256_partitions_of_an_answer_carry_records() {
    let broker = Broker::new(&PAGE_CACHE);
    broker.create("t", 260, 7);
    for index in 3..260 {
        partition(&broker, "t", index)
            .append_internal(broker.node.services(), &batch_of(1))
            .unwrap();
    }
    let partitions = (0..260).map(|partition| FetchPartition { partition, ..from(0) });
    let fetch = Fetch {
        partitions: partitions.collect(),
        max_bytes: 1_000_000,
        ..Fetch::default()
    };
    let answered = fetch_all(&broker, fetch);
    let counts: Vec<usize> = answered.iter().map(|answered| answered.offsets.len()).collect();
    assert_eq!(
        (&counts[..3], &counts[3..259], counts[259]),
        (&[0; 3][..], &[1; 256][..], 0)
    );
}

/// The next sync covers what is appended before it begins.
#[test]
fn a_partition_asks_for_one_sync_at_a_time() {
    let broker = Broker::new(&[]);
    broker.create("t", 1, 7);
    broker.sync();
    for _ in 0..3 {
        assert!(produce(&broker, "t", 1, &batch_of(1)).is_err(), "not synced");
    }
    assert_eq!(broker.sync(), 1);
    assert_eq!(fetch_one(&broker, from(0)).offsets, [0, 1, 2]);
}

#[test]
fn an_epoch_that_the_log_has_skipped_diverges_where_the_one_before_ended() {
    let mut broker = Broker::new(&PAGE_CACHE);
    broker.create("t", 1, 7);
    let epoch = partition(&broker, "t", 0).leader_epoch();
    for restart in 0..3 {
        if restart > 0 {
            let (disk, config) = (broker.disk.clone(), (*broker.node.config()).clone());
            drop(broker);
            broker = Broker::on(disk, config);
        }
        if restart != 1 {
            produce(&broker, "t", 1, &batch_of(1)).ok().unwrap();
        }
    }
    let (log, newest) = (
        partition(&broker, "t", 0),
        partition(&broker, "t", 0).leader_epoch(),
    );
    assert_eq!(
        [0, 1, 2].map(|offset| log.epoch_at(offset)),
        [epoch, newest, newest]
    );
    let partition = FetchPartition {
        last_fetched_epoch: epoch + 1,
        ..from(1)
    };
    assert_eq!(fetch_one(&broker, partition).diverging, Some((epoch, 1)));
}
