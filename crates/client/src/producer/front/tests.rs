//! `Producer` as an application sees it, with a fake sender that acknowledges when the test allows
//! it.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::mpsc;

use super::super::accumulator::PartitionQueue;
use super::super::batch::SealedBatch;
use super::super::completion::Placed;
use super::super::partitioner::partition_of_key;
use super::*;
use crate::metadata::snapshot::{NodeId, Partition, Snapshot};
use crate::metrics::Value;
use crate::network::io::{Action, Event};
use crate::time::{Moment, Timestamp};
use crate::wait;

/// The switches and counters that tests and the fake sender share.
#[derive(Debug, Default)]
struct Stage {
    is_held: AtomicBool,
    panics: AtomicBool,
    taken_records: AtomicUsize,
}

/// A fake sender: takes every batch at once and acknowledges it, unless it is held.
struct Drain {
    parts: SenderParts,
    stage: Arc<Stage>,
    queues: Vec<Arc<PartitionQueue>>,
    held: Vec<SealedBatch>,
    next_offsets: BTreeMap<(Arc<str>, i32), i64>,
    is_finished: bool,
}

impl Machine for Drain {
    fn handle(&mut self, _now: Moment, _event: Event) {}

    fn turn(&mut self, now: Moment, _wall: Timestamp, _actions: &mut Vec<Action>) {
        assert!(!self.stage.panics.load(Ordering::SeqCst), "told to");
        // Before the queues: what is sent before the producer is closed must be found by the turn
        // that ends.
        let close_by = self.parts.commands.close_deadline();
        self.parts.accumulator.take_activated(&mut self.queues);
        let queues = std::mem::take(&mut self.queues);
        for queue in &queues {
            while let Some(batch) = queue.take(now, true) {
                let records = batch.record_count as usize;
                self.stage.taken_records.fetch_add(records, Ordering::SeqCst);
                self.held.push(batch);
            }
        }
        self.queues = queues
            .into_iter()
            .filter(|queue| !queue.deactivate_if_empty())
            .collect();
        let is_over = close_by.is_some_and(|deadline| deadline <= now);
        if is_over || !self.stage.is_held.load(Ordering::SeqCst) {
            for batch in std::mem::take(&mut self.held) {
                self.decide(batch, is_over);
            }
        }
        self.is_finished = close_by.is_some() && self.held.is_empty() && self.queues.is_empty();
    }

    fn next_deadline(&self) -> Option<Moment> {
        self.parts.commands.close_deadline()
    }

    fn is_finished(&self) -> bool {
        self.is_finished
    }
}

impl Drain {
    fn decide(&mut self, batch: SealedBatch, is_over: bool) {
        if is_over {
            return batch.finish(Err(Error::Closed), &self.parts.callbacks);
        }
        let key = (Arc::clone(&batch.topic), batch.partition);
        let next_offset = self.next_offsets.entry(key).or_default();
        let base_offset = *next_offset;
        *next_offset += i64::from(batch.record_count);
        let placed = Placed {
            base_offset,
            log_append_time: None,
        };
        batch.finish(Ok(placed), &self.parts.callbacks);
    }
}

fn publish(metadata: &MetadataCell, topics: &[(&str, usize)]) {
    let snapshot = Snapshot {
        version: metadata.load().version + 1,
        topics: topics
            .iter()
            .map(|(name, partitions)| {
                let partition = Partition {
                    leader: Some(NodeId(1)),
                    ..Partition::default()
                };
                let topic = Topic {
                    name: Arc::from(*name),
                    partitions: vec![partition; *partitions],
                    ..Topic::default()
                };
                (Arc::clone(&topic.name), Arc::new(topic))
            })
            .collect(),
        ..Snapshot::default()
    };
    metadata.publish(snapshot);
}

fn producer(settings: &[(&str, &str)]) -> (Producer, Arc<Stage>) {
    producer_with(settings, None)
}

fn producer_with(settings: &[(&str, &str)], delivery: Option<DeliveryHandler>) -> (Producer, Arc<Stage>) {
    let base = Config::new().set("bootstrap.servers", "localhost:1");
    let config = settings
        .iter()
        .fold(base, |config, (key, value)| config.set(*key, *value));
    let stage = Arc::new(Stage::default());
    let shared = Arc::clone(&stage);
    let producer = Producer::with_machine(&config, delivery, |parts| {
        Box::new(Drain {
            parts,
            stage: shared,
            queues: Vec::new(),
            held: Vec::new(),
            next_offsets: BTreeMap::new(),
            is_finished: false,
        })
    })
    .unwrap();
    publish(&producer.metadata, &[("one", 1), ("three", 3)]);
    (producer, stage)
}

fn release(producer: &Producer, stage: &Stage) {
    stage.is_held.store(false, Ordering::SeqCst);
    producer.waker.wake();
}

const SOON: Duration = Duration::from_millis(2);

#[test]
fn futures_return_partition_offset_and_timestamp() {
    let (producer, _) = producer(&[]);
    for offset in 0..3 {
        let record = Record::new("three")
            .partition(2)
            .timestamp(77 + offset)
            .value(b"v");
        let metadata = producer.send(&record).unwrap().wait().unwrap();
        let expected = RecordMetadata {
            partition: 2,
            offset,
            timestamp: 77 + offset,
        };
        assert_eq!(metadata, expected);
    }
}

#[test]
fn a_record_without_a_timestamp_gets_the_time() {
    let (producer, _) = producer(&[]);
    let before = producer.clock.timestamp().0;
    let metadata = producer
        .send(&Record::new("one").value(b"v"))
        .unwrap()
        .wait()
        .unwrap();
    let after = producer.clock.timestamp().0;
    assert!((before - 1..=after).contains(&metadata.timestamp));
}

#[test]
fn keys_choose_partitions_as_in_java_and_explicit_ones_come_first() {
    let (producer, _) = producer(&[]);
    let partition = |record: Record<'_>| producer.send(&record).unwrap().wait().unwrap().partition;
    for key in ["key-0", "key-1", "user:42"] {
        let expected = partition_of_key(key.as_bytes(), 3);
        assert_eq!(partition(Record::new("three").key(key)), expected);
        assert_eq!(partition(Record::new("three").key(key).partition(2)), 2);
    }
}

#[test]
fn round_robin_and_custom_partitioners_take_over() {
    let (by_turns, _) = producer(&[(
        "partitioner.class",
        "org.apache.kafka.clients.producer.RoundRobinPartitioner",
    )]);
    let taken: Vec<_> = (0..6)
        .map(|_| {
            by_turns
                .send(&Record::new("three").key("same"))
                .unwrap()
                .partition()
        })
        .collect();
    assert_eq!(taken, [0, 1, 2, 0, 1, 2]);

    struct Last;
    impl Partitioner for Last {
        fn partition(&self, record: &Record<'_>, topic: &Topic) -> Option<i32> {
            record.key.map(|_| topic.partitions.len() as i32 - 1)
        }
    }
    let (mut own, _) = producer(&[]);
    own.partitioner = Some(Box::new(Last));
    assert_eq!(own.send(&Record::new("three").key("k")).unwrap().partition(), 2);
    assert_eq!(own.send(&Record::new("one")).unwrap().partition(), 0);
}

#[test]
fn a_thread_that_sends_to_two_topics_keeps_them_apart() {
    let (producer, _) = producer(&[]);
    for _ in 0..10 {
        assert_eq!(producer.send(&Record::new("one")).unwrap().partition(), 0);
        assert_eq!(
            producer
                .send(&Record::new("three").partition(2))
                .unwrap()
                .partition(),
            2
        );
    }
    let (other, _) = self::producer(&[]);
    publish(&other.metadata, &[("one", 2)]);
    assert_eq!(
        other.send(&Record::new("one").partition(1)).unwrap().partition(),
        1
    );
    assert_eq!(producer.send(&Record::new("one")).unwrap().partition(), 0);
}

#[test]
fn a_topics_sender_serializes_keys_and_values() {
    use crate::producer::serializer::{BigEndian, Bytes, TopicSender};
    let (producer, _) = producer(&[]);
    let sender = TopicSender::new(&producer, "three", BigEndian, Bytes);
    let sent = sender.send(Some(&42i64), Some("v")).unwrap();
    assert_eq!(sent.partition(), partition_of_key(&42i64.to_be_bytes(), 3));
    assert!(sender.send(Some(&42i64), None::<&str>).unwrap().wait().is_ok());
    let refuses = |_: &str, _: &str, _: &mut Vec<u8>| Err(Error::Serialization { message: "no".into() });
    let sender = TopicSender::new(&producer, "three", BigEndian, refuses);
    let error = sender.send(Some(&1i32), Some("v")).unwrap_err();
    assert!(matches!(error, Error::Serialization { .. }), "{error}");
}

#[test]
fn send_waits_for_an_unknown_topic() {
    let (producer, _) = producer(&[]);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| producer.send(&Record::new("new")).unwrap().wait());
        while !producer.metadata.is_wanted("new") {
            std::thread::yield_now();
        }
        publish(&producer.metadata, &[("new", 1)]);
        assert_eq!(waiting.join().unwrap().unwrap().partition, 0);
    });
}

#[test]
fn max_block_ms_limits_the_wait_for_topic_and_partition() {
    let (producer, _) = producer(&[("max.block.ms", "3")]);
    let error = producer.send(&Record::new("unknown")).unwrap_err();
    assert!(
        matches!(error, Error::TopicNotPresent { limit_ms: 1..=3, .. }),
        "{error}"
    );
    let error = producer.send(&Record::new("three").partition(3)).unwrap_err();
    let is_expected = matches!(
        error,
        Error::PartitionNotPresent {
            partition: 3,
            partition_count: 3,
            ..
        }
    );
    assert!(is_expected, "{error}");
}

#[test]
fn max_block_ms_limits_the_wait_for_memory() {
    let settings = [
        ("max.block.ms", "3"),
        ("batch.size", "1000"),
        ("buffer.memory", "2000"),
    ];
    let (producer, stage) = producer(&settings);
    stage.is_held.store(true, Ordering::SeqCst);
    let record = Record::new("one").value(&[1; 900]);
    let first = producer.send(&record).unwrap();
    let _second = producer.send(&record).unwrap();
    let error = producer.send(&record).unwrap_err();
    let is_expected = matches!(
        error,
        Error::BufferExhausted {
            wanted_bytes: 1_000,
            buffer_bytes: 2_000,
            waited_ms: 2..
        }
    );
    assert!(is_expected, "{error}");
    assert!(error.is_retriable());
    release(&producer, &stage);
    assert_eq!(first.wait().unwrap().offset, 0);
    assert_eq!(producer.send(&record).unwrap().wait().unwrap().offset, 2);
}

#[test]
fn all_threads_that_wait_for_memory_continue_when_it_is_freed() {
    let (producer, stage) = producer(&[("batch.size", "1000"), ("buffer.memory", "2000")]);
    stage.is_held.store(true, Ordering::SeqCst);
    std::thread::scope(|scope| {
        let senders: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let record = Record::new("one").value(&[1; 900]);
                    let futures: Vec<_> = (0..50).map(|_| producer.send(&record).unwrap()).collect();
                    futures
                        .into_iter()
                        .map(|future| future.wait().unwrap().offset)
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        while producer.accumulator.pool().waiting_threads() < 4 {
            std::thread::yield_now();
        }
        release(&producer, &stage);
        let mut offsets: Vec<_> = senders
            .into_iter()
            .flat_map(|sender| sender.join().unwrap())
            .collect();
        offsets.sort_unstable();
        assert!(offsets.into_iter().eq(0..200));
    });
    assert_eq!(producer.accumulator.pool().available_bytes(), 2_000);
}

#[test]
fn a_record_that_is_done_has_given_its_memory_back() {
    let (producer, _) = producer(&[("batch.size", "1000"), ("buffer.memory", "1000")]);
    let record = Record::new("one").value(&[1; 900]);
    let mut sent = producer.send(&record).unwrap();
    for _ in 0..500 {
        sent.wait().unwrap();
        sent = producer.try_send(&record).expect("the only batch is done");
    }
    sent.wait().unwrap();
}

#[test]
fn try_send_never_waits() {
    let (producer, stage) = producer(&[("batch.size", "1000"), ("buffer.memory", "1000")]);
    let error = producer.try_send(&Record::new("new")).unwrap_err();
    assert!(
        matches!(error, Error::TopicNotPresent { limit_ms: 0, .. }),
        "{error}"
    );
    assert!(producer.metadata.is_wanted("new"));
    let error = producer.try_send(&Record::new("one").partition(1)).unwrap_err();
    assert!(matches!(error, Error::PartitionNotPresent { .. }), "{error}");
    stage.is_held.store(true, Ordering::SeqCst);
    let record = Record::new("one").value(&[1; 900]);
    let first = producer.try_send(&record).unwrap();
    let error = producer.try_send(&record).unwrap_err();
    assert!(matches!(error, Error::BufferExhausted { .. }), "{error}");
    release(&producer, &stage);
    first.wait().unwrap();
}

#[test]
fn an_async_send_waits_for_topic_and_memory_without_a_thread() {
    let (producer, stage) = producer(&[("batch.size", "1000"), ("buffer.memory", "1000")]);
    stage.is_held.store(true, Ordering::SeqCst);
    let _first = producer.send(&Record::new("one").value(&[1; 900])).unwrap();
    let record = Record::new("new").value(&[1; 900]);
    let mut sending = Box::pin(producer.send_async(&record));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(sending.as_mut().poll(&mut context).is_pending());
    publish(&producer.metadata, &[("new", 1), ("one", 1)]);
    assert!(sending.as_mut().poll(&mut context).is_pending());
    assert_eq!(producer.accumulator.pool().waiting_threads(), 1);
    release(&producer, &stage);
    let metadata = wait::block_on(async { sending.await.unwrap().await }).unwrap();
    assert_eq!(metadata.offset, 0);
}

/// The error of an async send that ends by itself; no other limit is set.
fn refused_async(producer: &Producer, record: &Record<'_>) -> Error {
    wait::block_on(producer.send_async(record)).unwrap_err()
}

#[test]
fn max_block_ms_ends_an_async_send_with_the_cause() {
    let settings = [
        ("max.block.ms", "3"),
        ("batch.size", "1000"),
        ("buffer.memory", "1000"),
    ];
    let (producer, stage) = producer(&settings);
    let error = refused_async(&producer, &Record::new("unknown"));
    assert!(
        matches!(error, Error::TopicNotPresent { limit_ms: 3, .. }),
        "{error}"
    );
    let error = refused_async(&producer, &Record::new("three").partition(3));
    assert!(
        matches!(error, Error::PartitionNotPresent { limit_ms: 3, .. }),
        "{error}"
    );
    stage.is_held.store(true, Ordering::SeqCst);
    let record = Record::new("one").value(&[1; 900]);
    let _first = producer.send(&record).unwrap();
    let error = refused_async(&producer, &record);
    assert!(
        matches!(error, Error::BufferExhausted { waited_ms: 2.., .. }),
        "{error}"
    );
    assert_eq!(producer.accumulator.pool().waiting_threads(), 0);
}

#[test]
fn an_async_send_waits_for_a_partition_that_is_being_added() {
    let (producer, _) = producer(&[]);
    let record = Record::new("one").partition(1);
    let mut sending = Box::pin(producer.send_async(&record));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(sending.as_mut().poll(&mut context).is_pending());
    publish(&producer.metadata, &[("one", 2)]);
    let sent = wait::block_on(sending).unwrap();
    assert_eq!(sent.wait().unwrap().partition, 1);
}

#[test]
fn bad_records_are_refused_at_once_with_the_reason() {
    let (producer, _) = producer(&[("max.request.size", "1000")]);
    let text = |record: Record<'_>| producer.send(&record).unwrap_err().to_string();
    assert_eq!(
        text(Record::new("one").partition(-1)),
        "the partition -1 is negative"
    );
    assert_eq!(
        text(Record::new("one").timestamp(-2)),
        "the timestamp -2 is negative"
    );
    assert!(
        text(Record::new("one").value(&[0; 1_000]))
            .ends_with("more than the 1000 bytes that max.request.size allows")
    );
    for (name, problem) in [
        ("", "is empty"),
        ("..", "cannot be . or .."),
        ("a b", "contains ' '"),
    ] {
        assert!(
            text(Record::new(name)).contains(problem),
            "{}",
            text(Record::new(name))
        );
    }
    assert!(text(Record::new(&"x".repeat(250))).contains("250 characters"));
}

#[test]
fn callbacks_run_in_order_off_the_senders_thread() {
    let (producer, _) = producer(&[]);
    let (sender, answers) = mpsc::channel();
    for _ in 0..1_000 {
        let sender = sender.clone();
        producer
            .send_with(&Record::new("one").value(b"v"), move |result| {
                let name = std::thread::current().name().map(str::to_owned);
                sender.send((result.unwrap().offset, name)).unwrap();
            })
            .unwrap();
    }
    producer.flush().unwrap();
    let answers: Vec<_> = answers.try_iter().collect();
    assert!(answers.iter().map(|(offset, _)| *offset).eq(0..1_000));
    assert!(
        answers
            .iter()
            .all(|(_, name)| name.as_deref() == Some("ottla-callbacks"))
    );
}

#[test]
fn a_callback_that_blocks_stops_neither_records_nor_futures() {
    let (producer, _) = producer(&[]);
    let (unblock, blocked) = mpsc::channel::<()>();
    producer
        .send_with(&Record::new("one"), move |_| blocked.recv().unwrap())
        .unwrap();
    for offset in 1..100 {
        assert_eq!(
            producer.send(&Record::new("one")).unwrap().wait().unwrap().offset,
            offset
        );
    }
    assert!(matches!(producer.flush_timeout(SOON), Err(Error::Timeout { .. })));
    unblock.send(()).unwrap();
    producer.flush().unwrap();
}

#[test]
fn a_callback_that_panics_harms_no_other() {
    let (producer, _) = producer(&[]);
    producer
        .send_with(&Record::new("one"), |_| panic!("a callback's own trouble"))
        .unwrap();
    let (sender, answer) = mpsc::channel();
    producer
        .send_with(&Record::new("one"), move |result| sender.send(result).unwrap())
        .unwrap();
    producer.flush().unwrap();
    assert_eq!(answer.recv().unwrap().unwrap().offset, 1);
    assert_eq!(producer.callbacks.panicked(), 1);
}

#[test]
fn too_many_waiting_callbacks_hold_back_sends_that_add_more() {
    let (producer, _) = producer(&[("max.block.ms", "3")]);
    let (unblock, blocked) = mpsc::channel::<()>();
    producer
        .send_with(&Record::new("one"), move |_| blocked.recv().unwrap())
        .unwrap();
    let mut sent = 1;
    let error = loop {
        match producer.send_with(&Record::new("one"), |_| ()) {
            Ok(()) => sent += 1,
            Err(error) => break error,
        }
        assert!(sent < 10 * crate::producer::callbacks::BACKLOG_MAX);
    };
    assert!(
        matches!(
            error,
            Error::Timeout {
                setting: "max.block.ms",
                ..
            }
        ),
        "{error}"
    );
    assert!(sent > crate::producer::callbacks::BACKLOG_MAX);
    // A send without a callback is not held back.
    producer.send(&Record::new("one")).unwrap().wait().unwrap();
    unblock.send(()).unwrap();
    producer.flush().unwrap();
    producer.send_with(&Record::new("one"), |_| ()).unwrap();
}

type Delivered = mpsc::Receiver<(u64, Result<RecordMetadata, Error>)>;

/// A producer whose handler passes everything on.
fn producer_with_delivery() -> (Producer, Arc<Stage>, Delivered) {
    let (sender, delivered) = mpsc::channel();
    let handler: DeliveryHandler = Box::new(move |tag, outcome| sender.send((tag, outcome)).unwrap());
    let (producer, stage) = producer_with(&[], Some(handler));
    (producer, stage, delivered)
}

#[test]
fn the_delivery_handler_gets_every_tagged_record_once_in_order_beside_callbacks() {
    let (producer, _, delivered) = producer_with_delivery();
    let (sender, called) = mpsc::channel();
    for tag in 0..100 {
        producer.send_tagged(&Record::new("one"), 7 * tag).unwrap();
        let sender = sender.clone();
        let callback = move |outcome: Result<RecordMetadata, Error>| {
            sender.send(outcome.unwrap().offset).unwrap();
        };
        producer.send_with(&Record::new("one"), callback).unwrap();
        drop(producer.send(&Record::new("one")).unwrap());
    }
    producer.flush().unwrap();
    let delivered: Vec<_> = delivered
        .try_iter()
        .map(|(tag, outcome)| (tag, outcome.unwrap().offset))
        .collect();
    let expected: Vec<_> = (0..100).map(|tag| (7 * tag, 3 * tag as i64)).collect();
    assert_eq!(delivered, expected);
    assert!(called.try_iter().eq((0..100).map(|number| 3 * number + 1)));
}

#[test]
fn a_tag_needs_a_delivery_handler() {
    let (producer, _) = producer(&[]);
    let error = producer.send_tagged(&Record::new("one"), 1).unwrap_err();
    assert!(matches!(error, Error::IllegalState { .. }), "{error}");
    assert_eq!(producer.accumulator.incomplete_batches(), 0);
}

#[test]
fn a_delivery_handler_that_panics_gets_the_next_record_nevertheless() {
    let (sender, delivered) = mpsc::channel();
    let handler: DeliveryHandler = Box::new(move |tag, _| {
        assert_ne!(tag, 1, "told to");
        sender.send(tag).unwrap();
    });
    let (producer, _) = producer_with(&[], Some(handler));
    for tag in 0..3 {
        producer.send_tagged(&Record::new("one"), tag).unwrap();
    }
    producer.flush().unwrap();
    assert!(delivered.try_iter().eq([0, 2]));
    assert_eq!(producer.callbacks.panicked(), 1);
}

#[test]
fn tagged_records_of_a_sender_that_panics_are_delivered_as_failed() {
    let (producer, stage, delivered) = producer_with_delivery();
    stage.is_held.store(true, Ordering::SeqCst);
    producer.send_tagged(&Record::new("one"), 5).unwrap();
    while stage.taken_records.load(Ordering::SeqCst) == 0 {
        std::thread::yield_now();
    }
    stage.panics.store(true, Ordering::SeqCst);
    producer.waker.wake();
    assert_eq!(delivered.recv().unwrap(), (5, Err(Error::Closed)));
}

#[test]
fn tagged_records_are_measured_like_callbacks() {
    let (producer, _, delivered) = producer_with_delivery();
    for tag in 0..100 {
        producer.send_tagged(&Record::new("one"), tag).unwrap();
    }
    producer.flush().unwrap();
    assert_eq!(delivered.try_iter().count(), 100);
    assert_eq!(producer.callbacks.backlog(), 0);
    let snapshot = producer.metrics().snapshot();
    let total = snapshot
        .iter()
        .find(|metric| metric.name == "callback-time-total")
        .unwrap();
    assert!(matches!(total.value, Value::Number(ms) if ms > 0.0));
}

#[test]
fn a_producer_tells_its_settings() {
    let (producer, _) = producer(&[("linger.ms", "7"), ("send.buffer.bytes", "-1")]);
    let snapshot = producer.metrics().snapshot();
    let told = |name: &str| snapshot.iter().find(|metric| metric.name == name)?.number();
    assert_eq!(told("setting-linger-ms"), Some(7.0));
    assert_eq!(told("setting-max-in-flight"), Some(5.0));
    assert_eq!(told("setting-send-buffer-bytes"), Some(-1.0));
}

#[test]
fn callbacks_may_send_but_not_flush() {
    let (producer, _) = producer(&[]);
    let producer = Arc::new(producer);
    let (sender, answers) = mpsc::channel();
    let inner = Arc::downgrade(&producer);
    producer
        .send_with(&Record::new("one"), move |_| {
            let producer = inner.upgrade().unwrap();
            let flushed = producer.flush();
            let sent = producer.send(&Record::new("one")).map(|_| ());
            sender.send((flushed, sent)).unwrap();
        })
        .unwrap();
    let (flushed, sent) = answers.recv().unwrap();
    assert!(matches!(flushed, Err(Error::IllegalState { .. })), "{flushed:?}");
    assert_eq!(sent, Ok(()));
}

#[test]
fn the_last_reference_may_be_dropped_in_a_callback() {
    let (producer, _) = producer(&[]);
    let producer = Arc::new(producer);
    let (sender, answer) = mpsc::channel();
    let (go, wait) = mpsc::channel::<()>();
    let own = Arc::clone(&producer);
    producer
        .send_with(&Record::new("one"), move |_| {
            wait.recv().unwrap();
            let future = own.send(&Record::new("one")).unwrap();
            drop(own);
            sender.send(future).unwrap();
        })
        .unwrap();
    drop(producer);
    go.send(()).unwrap();
    assert!(answer.recv().unwrap().wait().is_ok(), "what was accepted is sent");
}

#[test]
fn flush_waits_for_what_was_sent_before() {
    let (producer, stage) = producer(&[("linger.ms", "60000")]);
    stage.is_held.store(true, Ordering::SeqCst);
    let future = producer.send(&Record::new("one")).unwrap();
    let error = producer.flush_timeout(SOON).unwrap_err();
    assert!(matches!(error, Error::Timeout { limit_ms: 2, .. }), "{error}");
    release(&producer, &stage);
    producer.flush().unwrap();
    assert!(future.is_done());
}

#[test]
fn close_finishes_what_was_accepted_and_takes_no_more() {
    let (producer, _) = producer(&[("linger.ms", "60000")]);
    let futures: Vec<_> = (0..100)
        .map(|_| producer.send(&Record::new("one")).unwrap())
        .collect();
    producer.close(Duration::from_secs(60)).unwrap();
    assert!(
        futures
            .iter()
            .all(|future| matches!(future.outcome(), Some(Ok(_))))
    );
    assert_eq!(producer.send(&Record::new("one")).unwrap_err(), Error::Closed);
    assert_eq!(producer.try_send(&Record::new("one")).unwrap_err(), Error::Closed);
    assert_eq!(producer.send(&Record::new("unknown")).unwrap_err(), Error::Closed);
    assert_eq!(
        producer.send_with(&Record::new("one"), |_| ()).unwrap_err(),
        Error::Closed
    );
    assert_eq!(producer.close(Duration::ZERO), Ok(()));
    assert_eq!(
        producer.accumulator.pool().available_bytes(),
        producer.accumulator.pool().total_bytes()
    );
}

#[test]
fn close_gives_up_after_its_limit_and_reports_it() {
    let (producer, stage) = producer(&[]);
    stage.is_held.store(true, Ordering::SeqCst);
    let future = producer.send(&Record::new("one")).unwrap();
    let error = producer.close(SOON).unwrap_err();
    assert!(matches!(error, Error::Timeout { limit_ms: 2, .. }), "{error}");
    assert_eq!(future.wait(), Err(Error::Closed));
}

#[test]
fn close_ends_the_wait_of_other_threads() {
    let (producer, stage) = producer(&[("batch.size", "1000"), ("buffer.memory", "1000")]);
    stage.is_held.store(true, Ordering::SeqCst);
    let record = Record::new("one").value(&[1; 900]);
    let _first = producer.send(&record).unwrap();
    std::thread::scope(|scope| {
        let for_memory = scope.spawn(|| producer.send(&record).map(|_| ()));
        let for_topic = scope.spawn(|| producer.send(&Record::new("unknown")).map(|_| ()));
        while producer.accumulator.pool().waiting_threads() == 0 || !producer.metadata.is_wanted("unknown") {
            std::thread::yield_now();
        }
        let _ = producer.close(SOON);
        assert_eq!(for_memory.join().unwrap(), Err(Error::Closed));
        assert_eq!(for_topic.join().unwrap(), Err(Error::Closed));
    });
}

/// Dropping a producer used to wait for its records, up to delivery.timeout.ms, also on a thread of
/// an async runtime.
#[test]
fn dropping_returns_before_the_records_are_done_and_loses_none() {
    let (producer, stage) = producer(&[("linger.ms", "60000")]);
    stage.is_held.store(true, Ordering::SeqCst);
    let (sender, answers) = mpsc::channel();
    for _ in 0..100 {
        let sender = sender.clone();
        producer
            .send_with(&Record::new("one"), move |result| sender.send(result).unwrap())
            .unwrap();
    }
    let future = producer.send(&Record::new("three")).unwrap();
    let waker = Arc::clone(&producer.waker);
    drop((producer, sender));
    assert!(
        !future.is_done(),
        "the sender is held: only a wait could have decided it"
    );
    stage.is_held.store(false, Ordering::SeqCst);
    waker.wake();
    assert!(future.wait().is_ok());
    // Ends when the callback thread has run the last one.
    let answers: Vec<_> = answers.iter().collect();
    assert_eq!(answers.len(), 100);
    assert!(answers.iter().all(Result::is_ok));
}

#[test]
fn an_async_close_completes_when_every_record_and_callback_is_done() {
    let (producer, stage) = producer(&[("linger.ms", "60000")]);
    stage.is_held.store(true, Ordering::SeqCst);
    let (sender, answers) = mpsc::channel();
    producer
        .send_with(&Record::new("one"), move |result| sender.send(result).unwrap())
        .unwrap();
    let future = producer.send(&Record::new("three")).unwrap();
    let mut closing = Box::pin(producer.close_async());
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(closing.as_mut().poll(&mut context).is_pending());
    assert_eq!(producer.try_send(&Record::new("one")).unwrap_err(), Error::Closed);
    release(&producer, &stage);
    assert_eq!(wait::block_on(closing), Ok(()));
    assert!(matches!(future.outcome(), Some(Ok(_))));
    assert!(answers.try_recv().unwrap().is_ok());
    assert!(producer.driver.lock().unwrap().as_ref().unwrap().is_ended());
    assert_eq!(wait::block_on(producer.close_async()), Ok(()), "closing again");
    assert_eq!(producer.close(Duration::ZERO), Ok(()));
}

#[test]
fn an_async_close_reports_why_the_sender_ended() {
    let (producer, stage) = producer(&[]);
    stage.is_held.store(true, Ordering::SeqCst);
    drop(producer.send(&Record::new("one")).unwrap());
    while stage.taken_records.load(Ordering::SeqCst) == 0 {
        std::thread::yield_now();
    }
    stage.panics.store(true, Ordering::SeqCst);
    producer.waker.wake();
    let error = wait::block_on(producer.close_async()).unwrap_err();
    assert!(error.to_string().contains("told to"), "{error}");
}

#[test]
fn the_futures_of_a_producer_can_move_between_threads() {
    fn check(future: impl Future + Send) {
        drop(future);
    }
    let (producer, _) = producer(&[]);
    check(producer.send_async(&Record::new("one")));
    check(producer.flush_async());
    check(producer.close_async());
}

#[test]
fn a_sender_that_panics_leaves_no_call_waiting() {
    let (producer, stage) = producer(&[]);
    stage.is_held.store(true, Ordering::SeqCst);
    let taken = producer.send(&Record::new("one")).unwrap();
    while stage.taken_records.load(Ordering::SeqCst) == 0 {
        std::thread::yield_now();
    }
    stage.panics.store(true, Ordering::SeqCst);
    let queued = producer.send(&Record::new("one"));
    producer.waker.wake();
    assert_eq!(taken.wait(), Err(Error::Closed));
    let queued = queued.and_then(SendFuture::wait);
    assert!(
        matches!(queued, Err(Error::IllegalState { .. } | Error::Closed)),
        "{queued:?}"
    );
    producer.flush().unwrap();
    let error = producer.send(&Record::new("one")).unwrap_err();
    assert!(error.to_string().contains("told to"), "{error}");
    assert_eq!(
        producer.close(Duration::from_secs(60)),
        Err(error),
        "a record was lost"
    );
}
