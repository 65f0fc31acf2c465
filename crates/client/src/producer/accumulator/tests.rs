//! Whatever goes into the accumulator comes out in order, once, and with all memory returned.

use bytes::Bytes;
use ottla_wire::records::batch::{BatchHeader, MAGIC};
use ottla_wire::records::compression::decompress;
use ottla_wire::records::record::Records;

use super::*;
use crate::config::Config;
use crate::metadata::snapshot::{NodeId, Partition};
use crate::network::io::Frame;
use crate::producer::callbacks::CallbackQueue;
use crate::producer::completion::{Placed, SendFuture};
use crate::time::SystemClock;

const NOW: Moment = Moment::from_nanos(1_000);

fn config(settings: &[(&str, &str)]) -> Arc<ProducerConfig> {
    let base = Config::new().set("bootstrap.servers", "localhost:9092");
    let config = settings
        .iter()
        .fold(base, |config, (key, value)| config.set(*key, *value));
    Arc::new(ProducerConfig::from_config(&config).unwrap())
}

fn accumulator(settings: &[(&str, &str)]) -> Accumulator {
    Accumulator::new(config(settings), Arc::default())
}

fn topic(partitions: usize) -> Arc<Topic> {
    Arc::new(Topic {
        name: Arc::from("orders"),
        partitions: vec![Partition::default(); partitions],
        ..Topic::default()
    })
}

fn value(value: &[u8]) -> Record<'_> {
    Record {
        topic: "orders",
        value: Some(value),
        ..Record::default()
    }
}

fn append(accumulator: &Accumulator, topic: &Arc<Topic>, partition: i32, bytes: &[u8]) -> Appended {
    accumulator
        .append(NOW, topic, partition, &value(bytes), 5_000, None)
        .unwrap()
}

fn activated(accumulator: &Accumulator) -> Vec<Arc<PartitionQueue>> {
    let mut queues = Vec::new();
    accumulator.take_activated(&mut queues);
    queues
}

fn header(batch: &SealedBatch) -> BatchHeader {
    BatchHeader {
        base_offset: 0,
        batch_length: 0,
        leader_epoch: 0,
        magic: MAGIC,
        crc: 0,
        attributes: 0,
        last_offset_delta: batch.record_count as i32 - 1,
        base_timestamp: batch.base_timestamp,
        max_timestamp: batch.max_timestamp,
        producer_id: 0,
        producer_epoch: 0,
        base_sequence: 0,
        record_count: batch.record_count as i32,
    }
}

/// The values of a batch's records, decoded as a broker would.
pub(in crate::producer) fn values(batch: &SealedBatch) -> Vec<Vec<u8>> {
    let header = header(batch);
    let mut plain = Vec::new();
    decompress(batch.codec, &batch.records, 1 << 26, &mut plain).unwrap();
    let mut values = Vec::new();
    for (index, record) in Records::new(&header, &plain).enumerate() {
        let record = record.unwrap();
        assert_eq!(record.offset, index as i64);
        values.push(record.value.unwrap().to_vec());
    }
    values
}

fn acknowledge(batch: SealedBatch) {
    let placed = Placed {
        base_offset: 0,
        log_append_time: None,
    };
    batch
        .completion
        .complete(batch.completion_first, batch.record_count, Ok(placed));
}

#[test]
fn the_first_record_wakes_the_sender_and_the_next_does_not() {
    let accumulator = accumulator(&[]);
    let topic = topic(2);
    let first = append(&accumulator, &topic, 1, b"a");
    let second = append(&accumulator, &topic, 1, b"b");
    assert!(first.sender_must_wake && !second.sender_must_wake);
    assert_eq!((first.index, second.index, second.partition), (0, 1, 1));
    let queues = activated(&accumulator);
    assert_eq!(queues.len(), 1);
    let queue = &queues[0];
    assert_eq!(
        queue.state(),
        QueueState {
            oldest_created_at: Some(NOW),
            open_since: Some(NOW),
            ..QueueState::default()
        }
    );
    assert!(!queue.deactivate_if_empty());
    assert!(queue.take(NOW, false).is_none());
    let batch = queue.take(NOW, true).unwrap();
    assert_eq!(values(&batch), [b"a", b"b"]);
    assert_eq!(queue.state(), QueueState::default());
    assert!(queue.deactivate_if_empty());
    assert!(activated(&accumulator).is_empty());
    append(&accumulator, &topic, 1, b"c");
    assert_eq!(activated(&accumulator).len(), 1);
    acknowledge(batch);
}

#[test]
fn a_batch_takes_as_many_records_as_batch_size_allows() {
    let accumulator = accumulator(&[("batch.size", "1000")]);
    let topic = topic(1);
    // 100 of value, 2 of its length, 5 for length 2, attributes, deltas; 1 + 1 for key and headers:
    // 109 + 61 < 1000.
    let closing = (0..20).position(|_| {
        append(&accumulator, &topic, 0, &[7; 100]).index == 0 && accumulator.incomplete_batches() == 2
    });
    assert_eq!(closing, Some(8));
    let queue = &activated(&accumulator)[0];
    let state = queue.state();
    assert_eq!(state.sealed_batches, 1);
    let batch = queue.take(NOW, false).unwrap();
    assert_eq!(batch.wire_bytes(), state.first_bytes);
    assert!(batch.wire_bytes() <= 1000 && batch.wire_bytes() + 109 > 1000);
}

#[test]
fn a_record_above_batch_size_is_alone_and_closed_at_once() {
    let accumulator = accumulator(&[("batch.size", "1000")]);
    let topic = topic(1);
    append(&accumulator, &topic, 0, b"small");
    let large = append(&accumulator, &topic, 0, &[1; 5_000]);
    assert!(large.sender_must_wake);
    append(&accumulator, &topic, 0, b"next");
    let queue = &activated(&accumulator)[0];
    let batches: Vec<_> = std::iter::from_fn(|| queue.take(NOW, true)).collect();
    let sizes: Vec<_> = batches.iter().map(|batch| batch.record_count).collect();
    assert_eq!(sizes, [1, 1, 1]);
    assert_eq!(values(&batches[1])[0].len(), 5_000);
    drop(batches);
    assert_eq!(
        accumulator.pool().available_bytes(),
        accumulator.pool().total_bytes()
    );
}

#[test]
fn too_large_records_name_the_setting() {
    let accumulator = accumulator(&[("max.request.size", "2000"), ("buffer.memory", "1000000")]);
    let topic = topic(1);
    let (error, _) = accumulator
        .append(NOW, &topic, 0, &value(&[0; 2_000]), 0, None)
        .unwrap_err();
    assert!(
        matches!(
            error,
            Error::RecordTooLarge {
                limit_bytes: 2_000,
                setting: "max.request.size",
                ..
            }
        ),
        "{error}"
    );
    let (error, _) = self::accumulator(&[("buffer.memory", "100000")])
        .append(NOW, &topic, 0, &value(&[0; 200_000]), 0, None)
        .unwrap_err();
    assert!(
        matches!(
            error,
            Error::RecordTooLarge {
                setting: "buffer.memory",
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn a_full_pool_refuses_and_hands_the_callback_back() {
    let accumulator = accumulator(&[("batch.size", "1000"), ("buffer.memory", "2000")]);
    let topic = topic(3);
    append(&accumulator, &topic, 0, b"a");
    append(&accumulator, &topic, 1, b"b");
    let callback = Callback::Once(Box::new(|_| ()));
    let (error, callback) = accumulator
        .append(NOW, &topic, 2, &value(b"c"), 0, Some(callback))
        .unwrap_err();
    assert!(
        matches!(
            error,
            Error::BufferExhausted {
                wanted_bytes: 1_000,
                buffer_bytes: 2_000,
                ..
            }
        ),
        "{error}"
    );
    assert!(callback.is_some());
    drop(activated(&accumulator)[0].take(NOW, true));
    assert!(
        accumulator
            .append(NOW, &topic, 2, &value(b"c"), 0, callback)
            .is_ok()
    );
}

#[test]
fn after_close_nothing_is_accepted() {
    let accumulator = accumulator(&[]);
    accumulator.close();
    let (error, _) = accumulator
        .append(NOW, &topic(1), 0, &value(b"a"), 0, None)
        .unwrap_err();
    assert_eq!(error, Error::Closed);
}

#[test]
fn a_retry_goes_back_before_what_was_opened_later() {
    let accumulator = accumulator(&[("batch.size", "100")]);
    let topic = topic(1);
    for name in [b"0", b"1", b"2", b"3"] {
        append(&accumulator, &topic, 0, name);
        accumulator.seal_all(NOW);
    }
    let queue = Arc::clone(&activated(&accumulator)[0]);
    let first = queue.take(NOW, false).unwrap();
    let second = queue.take(NOW, false).unwrap();
    let third = queue.take(NOW, false).unwrap();
    queue.put_back(third);
    queue.put_back(first);
    queue.put_back(second);
    let order: Vec<_> = std::iter::from_fn(|| queue.take(NOW, false)).collect();
    let order: Vec<_> = order.iter().flat_map(values).collect();
    assert_eq!(order, [b"0", b"1", b"2", b"3"]);
    assert!(queue.deactivate_if_empty());
}

#[test]
fn a_retry_activates_a_queue_that_had_become_empty() {
    let accumulator = accumulator(&[]);
    append(&accumulator, &topic(1), 0, b"a");
    let queue = Arc::clone(&activated(&accumulator)[0]);
    let batch = queue.take(NOW, true).unwrap();
    assert!(queue.deactivate_if_empty());
    queue.put_back(batch);
    assert_eq!(activated(&accumulator).len(), 1);
}

#[test]
fn expired_batches_come_out_even_if_open() {
    for codec in ["none", "lz4"] {
        let accumulator = accumulator(&[("compression.type", codec)]);
        let topic = topic(1);
        append(&accumulator, &topic, 0, b"old");
        accumulator.seal_all(NOW);
        accumulator
            .append(Moment::from_nanos(2_000), &topic, 0, &value(b"open"), 0, None)
            .unwrap();
        let queue = &activated(&accumulator)[0];
        assert!(queue.take_expired(Moment::from_nanos(999)).is_empty());
        let expired = queue.take_expired(Moment::from_nanos(1_999));
        assert_eq!(expired.iter().flat_map(values).collect::<Vec<_>>(), [b"old"]);
        let expired = queue.take_expired(Moment::from_nanos(2_000));
        assert_eq!(expired.iter().flat_map(values).collect::<Vec<_>>(), [b"open"]);
        assert!(queue.deactivate_if_empty());
    }
}

#[test]
fn compressed_batches_hold_more_once_the_ratio_is_learned() {
    let accumulator = accumulator(&[("compression.type", "lz4"), ("batch.size", "4096")]);
    let topic = topic(1);
    let mut counts = Vec::new();
    let mut queues = Vec::new();
    for _ in 0..60_000 {
        append(&accumulator, &topic, 0, &[b'x'; 100]);
        accumulator.take_activated(&mut queues);
        while let Some(batch) = queues
            .first()
            .and_then(|queue: &Arc<PartitionQueue>| queue.take(NOW, false))
        {
            assert!(batch.wire_bytes() <= 4_096);
            assert!(batch.uncompressed_bytes <= 16 * 4_096);
            counts.push(batch.record_count);
        }
    }
    assert_eq!(counts[0], 35, "the first estimate is that nothing can be gained");
    let last = *counts.last().unwrap();
    assert!(last > 500, "{last}");
    drop(queues[0].take(NOW, true));
    assert_eq!(
        accumulator.pool().available_bytes(),
        accumulator.pool().total_bytes()
    );
}

#[test]
fn a_split_keeps_every_record_with_its_future_and_callback() {
    for codec in ["none", "gzip", "snappy", "lz4", "zstd"] {
        let accumulator = accumulator(&[("compression.type", codec), ("batch.size", "100000")]);
        let topic = topic(1);
        let ran = Arc::new(Mutex::new(Vec::new()));
        let mut futures = Vec::new();
        for number in 0..100u8 {
            let callback = (number % 3 == 0).then(|| {
                let ran = Arc::clone(&ran);
                Callback::Once(Box::new(move |result| {
                    ran.lock().unwrap().push((number, result.unwrap().offset));
                }))
            });
            let bytes = vec![number; 10 + usize::from(number)];
            let appended = accumulator
                .append(NOW, &topic, 0, &value(&bytes), i64::from(number), callback)
                .unwrap();
            futures.push(SendFuture::new(
                appended.completion,
                appended.index,
                appended.timestamp,
            ));
        }
        let whole = activated(&accumulator)[0].take(NOW, true).unwrap();
        let all = values(&whole);
        let parts = whole.split(1_000);
        assert!(parts.len() >= 7 && parts.iter().all(|part| part.uncompressed_bytes <= 1_000));
        assert_eq!(parts.iter().flat_map(values).collect::<Vec<_>>(), all);
        // Parts of a part.
        let mut parts: Vec<_> = parts.into_iter().flat_map(|part| part.split(1_000)).collect();
        assert_eq!(parts.iter().flat_map(values).collect::<Vec<_>>(), all);
        let metrics = Arc::default();
        let callbacks = CallbackQueue::new(metrics, Arc::new(SystemClock::default()));
        // The broker may answer the parts in any order.
        parts.reverse();
        for part in parts {
            let base_offset = 1_000 + i64::from(part.completion_first);
            part.finish(
                Ok(Placed {
                    base_offset,
                    log_append_time: None,
                }),
                &callbacks,
            );
        }
        while callbacks.run_arrived() {}
        for (number, future) in futures.into_iter().enumerate() {
            let metadata = future.outcome().unwrap().unwrap();
            assert_eq!(
                (metadata.offset, metadata.timestamp),
                (1_000 + number as i64, number as i64)
            );
        }
        let mut ran = std::mem::take(&mut *ran.lock().unwrap());
        ran.sort_unstable();
        let expected: Vec<_> = (0..100u8)
            .step_by(3)
            .map(|number| (number, 1_000 + i64::from(number)))
            .collect();
        assert_eq!(ran, expected);
        assert_eq!(accumulator.incomplete_batches(), 0);
        assert_eq!(
            accumulator.pool().available_bytes(),
            accumulator.pool().total_bytes()
        );
    }
}

#[test]
fn two_records_can_always_be_split_and_one_never() {
    let accumulator = accumulator(&[("batch.size", "100000")]);
    let topic = topic(1);
    append(&accumulator, &topic, 0, &[1; 9_000]);
    append(&accumulator, &topic, 0, &[2; 10]);
    let parts = activated(&accumulator)[0].take(NOW, true).unwrap().split(1 << 20);
    let counts: Vec<_> = parts.iter().map(|part| part.record_count).collect();
    assert_eq!(counts, [1, 1]);
    assert_eq!(parts.into_iter().next().unwrap().split(1).len(), 1);
}

/// CVE-2026-35554: a batch expired while its request was still being written; its buffer went back
/// to the pool and was filled with other records, which the broker then found under the first
/// batch's header.
#[test]
fn memory_that_a_socket_still_reads_is_not_reused_after_its_batch_ends() {
    let accumulator = accumulator(&[("batch.size", "1000"), ("buffer.memory", "3000")]);
    let topic = topic(1);
    append(&accumulator, &topic, 0, &[b'a'; 500]);
    let queue = Arc::clone(&activated(&accumulator)[0]);
    let batch = queue.take(NOW, true).unwrap();
    let mut frame = Frame::default();
    frame.parts.push(Bytes::from_static(b"header"));
    frame.parts.push(batch.records.clone());
    let sent = batch.records.to_vec();
    let address = sent_address(&frame);

    let callbacks = CallbackQueue::new(Arc::default(), Arc::new(SystemClock::default()));
    let expired = Error::Timeout {
        what: "delivery".into(),
        limit_ms: 1,
        setting: "delivery.timeout.ms",
    };
    batch.finish(Err(expired), &callbacks);
    assert_eq!(accumulator.incomplete_batches(), 0);
    assert_eq!(
        accumulator.pool().available_bytes(),
        2_000,
        "the frame still holds its part"
    );

    // Fill all remaining memory with other records, several times.
    for _ in 0..10 {
        let mut batches = Vec::new();
        while accumulator
            .append(NOW, &topic, 0, &value(&[b'b'; 500]), 0, None)
            .is_ok()
        {
            batches.extend(queue.take(NOW, true));
        }
        assert_eq!(batches.len(), 2);
        assert!(batches.iter().all(|batch| batch.records.as_ptr() != address));
        assert_eq!(frame.parts[1], sent);
        batches.into_iter().for_each(acknowledge);
    }

    // The socket has written it, or the connection is gone: now it may be reused.
    drop(frame);
    assert_eq!(accumulator.pool().available_bytes(), 3_000);
    append(&accumulator, &topic, 0, &[b'c'; 500]);
    assert_eq!(queue.take(NOW, true).unwrap().records.as_ptr(), address);
}

fn sent_address(frame: &Frame) -> *const u8 {
    frame.parts[1].as_ptr()
}

fn append_sticky(accumulator: &Accumulator, topic: &Arc<Topic>, bytes: &[u8]) -> i32 {
    let record = value(bytes);
    let draft = Draft::new(&record, 0);
    let queues = accumulator.topic_queues(topic);
    loop {
        let stuck = queues.stuck(topic);
        let stickiness = Stickiness {
            queues: &queues,
            topic,
            stuck,
        };
        let queue = queues.partition(stuck.partition()).unwrap();
        match queue.append(NOW, &draft, Some(stickiness), &mut None, &mut None, false) {
            Ok(_) => return stuck.partition(),
            Err(refusal) => assert!(matches!(refusal, AppendRefusal::Moved { .. }), "{refusal:?}"),
        }
    }
}

fn topic_with_leaders(leaders: &[i32]) -> Arc<Topic> {
    Arc::new(Topic {
        name: Arc::from("orders"),
        partitions: leaders
            .iter()
            .map(|leader| Partition {
                leader: (*leader >= 0).then_some(NodeId(*leader)),
                ..Partition::default()
            })
            .collect(),
        ..Topic::default()
    })
}

#[test]
fn records_without_a_key_change_partition_when_a_batch_is_full_and_not_before() {
    let accumulator = accumulator(&[("batch.size", "1000"), ("compression.type", "none")]);
    let topic = topic_with_leaders(&[0; 50]);
    let partitions: Vec<_> = (0..400)
        .map(|_| append_sticky(&accumulator, &topic, &[1; 100]))
        .collect();
    let runs: Vec<_> = partitions
        .chunk_by(|one, other| one == other)
        .map(<[i32]>::len)
        .collect();
    // 8 records fill a batch; the same partition may be chosen twice in a row.
    assert!(runs.iter().all(|run| run % 8 == 0), "{runs:?}");
    assert!(runs.len() > 40, "{runs:?}");
}

#[test]
fn records_without_a_key_change_partition_even_if_every_batch_leaves_early() {
    let accumulator = accumulator(&[("batch.size", "1000")]);
    let topic = topic_with_leaders(&[0; 50]);
    let mut queues = Vec::new();
    let mut partitions = Vec::new();
    for _ in 0..400 {
        partitions.push(append_sticky(&accumulator, &topic, &[1; 100]));
        accumulator.take_activated(&mut queues);
        for queue in &queues {
            drop(queue.take(NOW, true));
        }
    }
    let runs = partitions.chunk_by(|one, other| one == other).count();
    assert!((30..=60).contains(&runs), "{runs}");
}

#[test]
fn partitions_without_leader_or_of_a_stuck_broker_get_no_records_without_a_key() {
    let accumulator = accumulator(&[
        ("batch.size", "200"),
        ("partitioner.availability.timeout.ms", "100"),
    ]);
    accumulator.note_node(NodeId(2), Moment::from_nanos(0), false);
    accumulator.note_node(NodeId(2), Moment::from_nanos(0).after_ms(101), false);
    let topic = topic_with_leaders(&[1, -1, 2, 1]);
    let used: std::collections::BTreeSet<_> = (0..200)
        .map(|_| append_sticky(&accumulator, &topic, &[1; 100]))
        .collect();
    assert_eq!(used, [0, 3].into());
    accumulator.note_node(NodeId(2), Moment::from_nanos(0).after_ms(102), true);
    let used: std::collections::BTreeSet<_> = (0..200)
        .map(|_| append_sticky(&accumulator, &topic, &[1; 100]))
        .collect();
    assert_eq!(used, [0, 2, 3].into());
}

#[test]
fn a_batch_that_is_lost_leaves_no_call_waiting() {
    let callbacks = CallbackQueue::new(Arc::default(), Arc::new(SystemClock::default()));
    let callbacks = Arc::new(callbacks);
    let lost = Some(Arc::clone(&callbacks));
    let accumulator = Accumulator::seeded(config(&[]), Arc::default(), 0, lost);
    let (sender, answers) = std::sync::mpsc::channel();
    let callback = Callback::Once(Box::new(move |result| sender.send(result).unwrap()));
    let appended = accumulator
        .append(NOW, &topic(1), 0, &value(b"a"), 0, Some(callback))
        .unwrap();
    drop(activated(&accumulator)[0].take(NOW, true));
    assert!(callbacks.run_arrived());
    let future = SendFuture::new(appended.completion, 0, 0);
    assert_eq!(future.outcome(), Some(Err(Error::Closed)));
    assert_eq!(answers.recv(), Ok(Err(Error::Closed)));
    assert_eq!(accumulator.incomplete_batches(), 0);
}

#[test]
fn when_the_sender_is_gone_everything_that_waits_fails() {
    let accumulator = accumulator(&[("compression.type", "lz4")]);
    let topic = topic(2);
    let first = append(&accumulator, &topic, 0, b"a");
    accumulator.seal_all(NOW);
    let second = append(&accumulator, &topic, 0, b"b");
    let other = append(&accumulator, &topic, 1, b"c");
    let callbacks = CallbackQueue::new(Arc::default(), Arc::new(SystemClock::default()));
    accumulator.fail_all(&Error::Wakeup, &callbacks);
    for appended in [first, second, other] {
        let future = SendFuture::new(appended.completion, appended.index, 0);
        assert_eq!(future.outcome(), Some(Err(Error::Wakeup)));
    }
    assert_eq!(accumulator.incomplete_batches(), 0);
}

/// Threads append numbered records to shared partitions while one thread takes batches out, with
/// little memory.
fn race(settings: &[(&str, &str)], partitions: i32) {
    const THREADS: u32 = 4;
    const RECORDS: u32 = 4_000;
    let accumulator = accumulator(settings);
    let topic = topic(partitions as usize);
    let mut seen = vec![vec![0u32; THREADS as usize]; partitions as usize];
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (accumulator, topic) = (&accumulator, &topic);
            scope.spawn(move || {
                for number in 0..RECORDS {
                    let partition = (number % partitions as u32) as i32;
                    let mut bytes = [0; 100];
                    bytes[..4].copy_from_slice(&thread.to_be_bytes());
                    bytes[4..8].copy_from_slice(&(number / partitions as u32 + 1).to_be_bytes());
                    while let Err((error, _)) =
                        accumulator.append(NOW, topic, partition, &value(&bytes), 0, None)
                    {
                        assert!(matches!(error, Error::BufferExhausted { .. }), "{error}");
                        std::thread::yield_now();
                    }
                }
            });
        }
        let mut total = 0;
        let mut queues = Vec::new();
        while total < THREADS * RECORDS {
            accumulator.take_activated(&mut queues);
            for queue in &queues {
                while let Some(batch) = queue.take(NOW, true) {
                    total += batch.record_count;
                    for bytes in values(&batch) {
                        let thread = u32::from_be_bytes(bytes[..4].try_into().unwrap()) as usize;
                        let number = u32::from_be_bytes(bytes[4..8].try_into().unwrap());
                        let last = &mut seen[queue.partition as usize][thread];
                        assert_eq!(number, *last + 1, "thread {thread}");
                        *last = number;
                    }
                    acknowledge(batch);
                }
            }
            queues.retain(|queue| !queue.deactivate_if_empty());
        }
    });
    let per_partition = RECORDS / partitions as u32;
    assert!(seen.iter().flatten().all(|last| *last == per_partition));
    assert_eq!(accumulator.incomplete_batches(), 0);
    assert_eq!(
        accumulator.pool().available_bytes(),
        accumulator.pool().total_bytes()
    );
}

#[test]
fn threads_keep_their_order_in_one_partition() {
    race(&[("batch.size", "2000"), ("buffer.memory", "10000")], 1);
}

#[test]
fn threads_keep_their_order_in_many_partitions() {
    race(&[("batch.size", "2000"), ("buffer.memory", "20000")], 8);
}

#[test]
fn threads_keep_their_order_while_batches_are_compressed() {
    race(
        &[
            ("batch.size", "2000"),
            ("buffer.memory", "40000"),
            ("compression.type", "zstd"),
        ],
        2,
    );
}

mod properties {
    use proptest::collection::vec;
    use proptest::option;
    use proptest::prelude::*;

    use super::*;

    type Bytes = Vec<u8>;
    /// Timestamp, key, value, headers.
    type Fields = (i64, Option<Bytes>, Option<Bytes>, Vec<(String, Option<Bytes>)>);

    fn bytes() -> impl Strategy<Value = Bytes> {
        prop_oneof![
            vec(any::<u8>(), 0..20),
            vec(any::<u8>(), 120..140),
            vec(any::<u8>(), 0..5_000)
        ]
    }

    fn fields() -> impl Strategy<Value = Fields> {
        let timestamp = prop_oneof![0..10i64, 1_700_000_000_000..1_700_000_100_000i64, Just(i64::MAX)];
        let header = ("[a-zé]{0,8}", option::of(vec(any::<u8>(), 0..100)));
        (
            timestamp,
            option::of(bytes()),
            option::of(bytes()),
            vec(header, 0..4),
        )
    }

    fn decode(batch: &SealedBatch) -> Vec<Fields> {
        let mut plain = Vec::new();
        decompress(batch.codec, &batch.records, 1 << 26, &mut plain).unwrap();
        assert_eq!(plain.len(), batch.uncompressed_bytes);
        Records::new(&header(batch), &plain)
            .map(|record| {
                let record = record.unwrap();
                let headers = record.headers.iter().map(|header| {
                    let key = String::from_utf8(header.key.to_vec()).unwrap();
                    (key, header.value.map(<[u8]>::to_vec))
                });
                (
                    record.timestamp,
                    record.key.map(<[u8]>::to_vec),
                    record.value.map(<[u8]>::to_vec),
                    headers.collect(),
                )
            })
            .collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn records_of_any_shape_come_back_as_they_went_in(
            all in vec(fields(), 1..60),
            batch_bytes in prop_oneof![Just(1usize), 100..20_000usize],
            codec in prop_oneof![Just("none"), Just("gzip"), Just("snappy"), Just("lz4"), Just("zstd")],
            split_bytes in 1..20_000usize,
        ) {
            let accumulator = accumulator(&[("batch.size", &batch_bytes.to_string()), ("compression.type", codec)]);
            let topic = topic(1);
            for (timestamp, key, value, headers) in &all {
                let headers: Vec<_> = headers.iter().map(|(key, value)| (key.as_str(), value.as_deref())).collect();
                let record = Record {
                    topic: "orders",
                    key: key.as_deref(),
                    value: value.as_deref(),
                    headers: &headers,
                    ..Record::default()
                };
                accumulator.append(NOW, &topic, 0, &record, *timestamp, None).unwrap();
            }
            let queue = Arc::clone(&activated(&accumulator)[0]);
            let mut back = Vec::new();
            let mut back_in_parts = Vec::new();
            while let Some(batch) = queue.take(NOW, true) {
                let own = decode(&batch);
                prop_assert_eq!(own.iter().map(|fields| fields.0).max(), Some(batch.max_timestamp));
                back.extend(own);
                back_in_parts.extend(batch.split(split_bytes).iter().flat_map(decode));
            }
            prop_assert_eq!(&back, &all);
            prop_assert_eq!(&back_in_parts, &all);
            prop_assert_eq!(accumulator.pool().available_bytes(), accumulator.pool().total_bytes());
            prop_assert_eq!(accumulator.incomplete_batches(), 0);
        }
    }
}
