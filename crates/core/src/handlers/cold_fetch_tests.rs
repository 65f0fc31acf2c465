//! Fetches of what is on the device only: how much of it one answer carries, how much is read ahead
//! for the next one, and what is compared with its checksums.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::Poll;

use ottla_wire::api_key::ApiKey;
use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::fetch::FetchPartition;

use super::metadata_tests::{Broker, DoneRead, poll};
use super::record_tests::{Answered, Fetch, PAGE_CACHE, answered, batch_of, from, partition, send_fetch};
use crate::pending::Handled;
use crate::quota::limits::{ClientQuotas, USER};
use crate::reply::{ReplyBuffer, WaitKind};

const KIB: usize = 1_024;
const BATCH: usize = 64 * KIB;

/// A batch of exactly this size.
fn batch_of_bytes(bytes: usize) -> Vec<u8> {
    let batch = batch_of(bytes - (batch_of(bytes).len() - bytes));
    assert_eq!(batch.len(), bytes);
    batch
}

fn append(broker: &Broker, index: i32, batches: &[usize]) {
    let partition = partition(broker, "t", index);
    for bytes in batches {
        let batch = batch_of_bytes(*bytes);
        partition.append_internal(broker.node.services(), &batch).unwrap();
    }
}

/// Makes everything durable, and empties the page cache.
fn evict(broker: &Broker, partitions: i32) {
    for index in 0..partitions {
        let job = partition(broker, "t", index).begin_checkpoint(broker.node.services());
        assert!(job.is_none(), "not before the sync");
    }
    broker.sync();
    broker.disk.evict();
}

/// A broker whose topic `t` is on the device only.
fn cold(partitions: i32, batches: &[usize]) -> Broker {
    let broker = Broker::new(&PAGE_CACHE);
    broker.create("t", partitions, 7);
    for index in 0..partitions {
        append(&broker, index, batches);
    }
    evict(&broker, partitions);
    broker
}

fn at(partition: i32, fetch_offset: i64) -> FetchPartition {
    FetchPartition {
        partition,
        partition_max_bytes: 1 << 20,
        ..from(fetch_offset)
    }
}

fn fetch_of(partitions: Vec<FetchPartition>) -> Fetch {
    Fetch {
        partitions,
        max_bytes: 16 << 20,
        ..Fetch::default()
    }
}

/// The answer of a fetch that waits for the device.
fn after_load(broker: &Broker, fetch: Fetch) -> (Vec<Answered>, ReplyBuffer) {
    after_load_while(broker, fetch, || assert_eq!(broker.settle(), 1))
}

fn after_load_while(broker: &Broker, fetch: Fetch, load: impl FnOnce()) -> (Vec<Answered>, ReplyBuffer) {
    let (handled, mut reply) = send_fetch(broker, fetch);
    let Handled::Pending(mut pending) = handled else {
        panic!("answered although nothing is in memory");
    };
    assert_eq!(poll(broker, &mut pending, &mut reply), Poll::Pending);
    assert_eq!(pending.waits_for(), WaitKind::ColdRead);
    load();
    assert_eq!(poll(broker, &mut pending, &mut reply), Poll::Ready(()));
    (answered(&reply), reply)
}

fn offsets(answered: Vec<Answered>) -> Vec<Vec<i64>> {
    let answered = answered.into_iter();
    answered
        .map(|one| {
            assert_eq!(one.error, None);
            one.offsets
        })
        .collect()
}

fn loaded(broker: &Broker, partitions: Vec<FetchPartition>) -> Vec<Vec<i64>> {
    offsets(after_load(broker, fetch_of(partitions)).0)
}

/// The answer of a fetch that does not wait.
fn at_once(broker: &Broker, partitions: Vec<FetchPartition>) -> Vec<Vec<i64>> {
    let (handled, reply) = send_fetch(broker, fetch_of(partitions));
    assert!(matches!(handled, Handled::Replied));
    offsets(answered(&reply))
}

/// Checks the only cold read since the last call, and that the cache has loaded so much.
fn check_read(broker: &Broker, bytes: usize) {
    let reads = broker.cold_reads();
    let read: Vec<u64> = reads.iter().map(|done| done.bytes).collect();
    assert_eq!(read, [bytes as u64]);
}

/// The client's limit of 1 MiB is what is read ahead, and what ends each later answer.
#[test]
fn an_answer_carries_512_kib_from_the_device_and_what_the_next_can_hold_is_read_ahead() {
    let broker = cold(1, &[BATCH; 56]);
    let read_bytes = || broker.node.cold_cache.read_bytes();
    assert_eq!(loaded(&broker, vec![at(0, 0)]), [(0..8).collect::<Vec<_>>()]);
    check_read(&broker, 1536 * KIB);
    assert_eq!(read_bytes(), 3 << 19);
    for next in [8, 24] {
        assert_eq!(
            at_once(&broker, vec![at(0, next)]),
            [(next..next + 16).collect::<Vec<_>>()]
        );
        at_once(&broker, vec![at(0, next)]);
        assert_eq!(broker.settle(), 1, "one read-ahead of a connection at a time");
        check_read(&broker, 1024 * KIB);
    }
    assert_eq!(at_once(&broker, vec![at(0, 40)])[0], (40..56).collect::<Vec<_>>());
    assert_eq!(broker.settle(), 0, "everything is in memory");
}

/// Such fetches never wait, so that the speed of the device is not known. A consumer that needs
/// its time for each fetch would fall behind ever more if they carried little.
#[test]
fn a_partition_that_lags_beside_new_records_gets_what_an_answer_can_hold() {
    let broker = cold(3, &[BATCH; 48]);
    append(&broker, 2, &[BATCH]);
    let from = |offset| vec![at(0, offset), at(1, offset), at(2, 48)];
    assert_eq!(at_once(&broker, from(0)), [vec![], vec![], vec![48]]);
    for offset in [0, 16] {
        assert_eq!(broker.settle(), 1);
        check_read(&broker, 2048 * KIB);
        let expected = (offset..offset + 16).collect::<Vec<_>>();
        let found = at_once(&broker, from(offset));
        assert_eq!(found, [expected.clone(), expected, vec![48]]);
    }
}

/// The kernel takes pages back when it likes.
#[test]
fn a_partition_whose_read_ahead_is_lost_makes_the_next_fetch_wait_for_the_device() {
    let broker = cold(2, &[BATCH; 24]);
    let lose = || {
        broker.sync();
        broker.disk.evict();
    };
    let mut newest = 24;
    for offset in [0, 8, 16] {
        append(&broker, 1, &[BATCH]);
        let both = || vec![at(0, offset), at(1, newest)];
        assert_eq!(at_once(&broker, both()), [vec![], vec![newest]]);
        assert_eq!(broker.settle(), 1);
        lose();
        append(&broker, 1, &[BATCH]);
        let expected = (offset..offset + 8).collect::<Vec<_>>();
        assert_eq!(loaded(&broker, both()), [expected, vec![newest, newest + 1]]);
        lose();
        newest += 2;
    }
}

#[test]
fn a_partition_that_cannot_be_read_is_an_error_beside_new_records_of_another() {
    let broker = cold(2, &[BATCH; 4]);
    let (disk, config) = (broker.disk.clone(), (*broker.node.config()).clone());
    broker.node.close().unwrap();
    drop(broker);
    let broker = Broker::on(disk, config);
    let log = std::path::Path::new("/data/t-0/00000000000000000000.log");
    broker.disk.corrupt(log, BATCH as u64 + 1_000, 1);
    append(&broker, 1, &[BATCH]);
    let both = || vec![at(0, 1), at(1, 4)];
    assert_eq!(at_once(&broker, both()), [vec![], vec![4]]);
    assert_eq!(broker.settle(), 1);
    let (answer, _) = after_load(&broker, fetch_of(both()));
    assert_eq!(answer[0].error, Some(ErrorCode::CorruptMessage));
    assert_eq!(answer[1].offsets, [4]);
}

/// As much as it gives in 4 ms; the client's limit of 1 MiB is what ends each answer.
#[test]
fn a_fast_device_gives_more_at_once_and_no_later_fetch_waits() {
    let broker = cold(1, &[BATCH; 80]);
    broker.node.cold_cache.note_speed(1 << 20, 2_000);
    assert_eq!(loaded(&broker, vec![at(0, 0)]), [(0..16).collect::<Vec<_>>()]);
    let done = |bytes: usize| DoneRead {
        estimated_bytes: 4 << 20,
        bytes: bytes as u64,
    };
    assert_eq!(broker.cold_reads(), [done(3072 * KIB)], "2 MiB are read ahead");
    for (first, settled) in [(16, 0), (32, 1), (48, 0)] {
        let expected = (first..first + 16).collect::<Vec<_>>();
        assert_eq!(at_once(&broker, vec![at(0, first)]), [expected]);
        assert_eq!(broker.settle(), settled, "after offset {first}");
    }
    assert_eq!(at_once(&broker, vec![at(0, 64)])[0].len(), 16);
    assert_eq!(broker.settle(), 0, "everything is in memory");
}

/// So that the loads of many readers stay in memory until they are sent.
#[test]
fn a_small_cache_bounds_what_is_loaded_at_once() {
    let mut settings = PAGE_CACHE.to_vec();
    settings.push(("ottla.cold.read.cache.bytes", "20971520"));
    let broker = Broker::new(&settings);
    broker.create("t", 1, 7);
    append(&broker, 0, &[BATCH; 40]);
    evict(&broker, 1);
    broker.node.cold_cache.note_speed(1 << 30, 1_000);
    let batches = 20_971_520 / 32 / BATCH;
    assert_eq!(loaded(&broker, vec![at(0, 0)])[0].len(), batches);
}

#[test]
fn partitions_on_the_device_share_what_is_loaded_and_read_ahead() {
    let broker = cold(4, &[BATCH; 4]);
    let from = |offset| (0..4).map(|index| at(index, offset)).collect::<Vec<_>>();
    assert_eq!(loaded(&broker, from(0)), [[0, 1]; 4]);
    check_read(&broker, 1024 * KIB);
    assert_eq!(at_once(&broker, from(2)), [[2, 3]; 4]);
    assert_eq!(broker.settle(), 0);
}

#[test]
fn partitions_that_find_no_room_in_a_load_come_with_the_next_answer() {
    let broker = cold(9, &[BATCH]);
    let all = || (0..9).map(|index| at(index, 0)).collect::<Vec<_>>();
    let mut expected = vec![vec![0]; 8];
    expected.push(vec![]);
    assert_eq!(loaded(&broker, all()), expected);
    check_read(&broker, 512 * KIB);
    assert_eq!(at_once(&broker, all()), expected);
    assert_eq!(broker.settle(), 1);
    check_read(&broker, 64 * KIB);
    assert_eq!(at_once(&broker, all()), [[0]; 9]);
    assert_eq!(broker.settle(), 0);

    for bytes in [300 * KIB, 700 * KIB] {
        let broker = cold(2, &[bytes]);
        let both = vec![at(0, 0), at(1, 0)];
        assert_eq!(loaded(&broker, both), [vec![0], vec![]], "{bytes}");
        check_read(&broker, bytes);
    }
}

#[test]
fn what_is_in_memory_takes_nothing_from_the_share_of_the_rest() {
    let broker = cold(2, &[BATCH; 16]);
    let newest = 16;
    append(&broker, 0, &[BATCH; 10]);
    let fetch = Fetch {
        min_bytes: 8 << 20,
        max_wait_ms: 1_000,
        ..fetch_of(vec![at(0, newest), at(1, 0)])
    };
    let (answer, reply) = after_load(&broker, fetch);
    assert_eq!(
        offsets(answer),
        [(16..26).collect::<Vec<_>>(), (0..8).collect::<Vec<_>>()]
    );
    assert_eq!(reply.seen.fetched_bytes, 18 * BATCH as u64);
}

#[test]
fn not_more_is_loaded_than_the_client_asked_for() {
    let broker = cold(1, &[BATCH; 4]);
    let first = FetchPartition {
        partition_max_bytes: BATCH as i32,
        ..at(0, 0)
    };
    assert_eq!(loaded(&broker, vec![first]), [[0]]);
    check_read(&broker, BATCH);
}

/// Behind each of very many regions only little could be read, and one disk read takes its time.
#[test]
fn at_most_64_partitions_are_read_ahead() {
    let broker = cold(65, &[BATCH; 2]);
    for index in 0..65 {
        let first = FetchPartition {
            partition_max_bytes: BATCH as i32,
            ..at(index, 0)
        };
        assert_eq!(loaded(&broker, vec![first]), [[0]]);
    }
    broker.cold_reads();
    let from = |offset| (0..65).map(|index| at(index, offset)).collect::<Vec<_>>();
    assert_eq!(at_once(&broker, from(0)), [[0]; 65]);
    assert_eq!(broker.settle(), 1);
    check_read(&broker, 4096 * KIB);
    let mut expected = vec![vec![1]; 64];
    expected.push(vec![]);
    assert_eq!(at_once(&broker, from(1)), expected);
}

#[test]
fn what_an_answer_left_out_is_loaded_beside_what_follows_its_records() {
    let broker = Broker::new(&PAGE_CACHE);
    broker.create("t", 11, 7);
    append(&broker, 0, &[BATCH; 16]);
    (1..11).for_each(|index| append(&broker, index, &[BATCH / 2]));
    evict(&broker, 11);
    let first = FetchPartition {
        partition_max_bytes: BATCH as i32,
        ..at(0, 0)
    };
    assert_eq!(loaded(&broker, vec![first]), [[0]]);
    broker.cold_reads();
    let all = || (0..11).map(|index| at(index, 0)).collect::<Vec<_>>();
    let mut expected = vec![vec![]; 11];
    expected[0] = vec![0];
    assert_eq!(at_once(&broker, all()), expected);
    assert_eq!(broker.settle(), 1);
    check_read(&broker, 15 * BATCH + 10 * BATCH / 2);
    let mut expected = vec![vec![0]; 11];
    expected[0] = (0..16).collect();
    assert_eq!(at_once(&broker, all()), expected);
}

#[test]
fn records_of_an_earlier_process_are_served_up_to_the_first_damaged_one() {
    let broker = cold(2, &[BATCH; 4]);
    let (disk, config) = (broker.disk.clone(), (*broker.node.config()).clone());
    broker.node.close().unwrap();
    drop(broker);
    let broker = Broker::on(disk, config);
    broker.disk.evict();
    let part = FetchPartition {
        partition_max_bytes: BATCH as i32,
        ..at(1, 0)
    };
    assert_eq!(loaded(&broker, vec![part]), [[0]]);
    check_read(&broker, BATCH);

    let log = std::path::Path::new("/data/t-0/00000000000000000000.log");
    broker.disk.corrupt(log, BATCH as u64 + 1_000, 1);
    assert_eq!(loaded(&broker, vec![at(0, 0)]), [[0]]);
    let (answer, reply) = after_load(&broker, fetch_of(vec![at(0, 1), at(1, 1)]));
    assert_eq!(answer[0].error, Some(ErrorCode::CorruptMessage));
    assert_eq!(
        (&answer[0].offsets[..], &answer[1].offsets[..]),
        (&[][..], &[1, 2, 3][..])
    );
    assert_eq!(reply.seen.fetched_bytes, 3 * BATCH as u64);
    assert_eq!(loaded(&broker, vec![at(0, 2)]), [[2, 3]]);
}

/// The device refuses one call of the load; the first, or a later one.
#[test]
fn what_cannot_be_loaded_is_an_error_without_records_until_it_can() {
    let mut refused = Vec::new();
    for grants in 0..4 {
        let broker = cold(1, &[BATCH; 2]);
        let (answer, _) = after_load_while(&broker, fetch_of(vec![at(0, 0)]), || {
            broker.disk.begin_shortage(grants, 1);
            assert_eq!(broker.settle(), 1);
            refused.push(broker.disk.end_shortage() == 0);
        });
        let is_refused = refused.last() == Some(&true);
        assert_eq!(answer[0].error.is_some(), is_refused, "after {grants} calls");
        assert_eq!(answer[0].offsets.is_empty(), is_refused, "after {grants} calls");
        broker.disk.evict();
        assert_eq!(loaded(&broker, vec![at(0, 0)]), [[0, 1]]);
    }
    assert!(
        refused.contains(&true),
        "the load makes no call that can be refused"
    );
}

/// Other clients may have used up a shared quota meanwhile.
#[test]
fn what_the_device_returned_is_held_back_while_the_quota_is_in_debt() {
    let mut broker = cold(1, &[BATCH]);
    let limit = BTreeMap::from([("consumer_byte_rate".into(), 1_000_000.0)]);
    let limits = ClientQuotas::from([(vec![(USER.into(), None)], limit)]);
    broker.node.quotas.follow(&Arc::new(limits), false);
    let quota = broker.node.quotas.client("u", "c");
    broker.connect_with(Some(quota.clone()));
    let (handled, mut reply) = send_fetch(&broker, fetch_of(vec![at(0, 0)]));
    let Handled::Pending(mut pending) = handled else {
        panic!("answered although nothing is in memory");
    };
    assert_eq!(poll(&broker, &mut pending, &mut reply), Poll::Pending);
    quota.answered(ApiKey::Fetch, 3_000_000, broker.node.clock().moment());
    broker.settle();
    assert_eq!(poll(&broker, &mut pending, &mut reply), Poll::Ready(()));
    assert_eq!((reply.throttle_ms, reply.regions.len()), (2_000, 0));
}
