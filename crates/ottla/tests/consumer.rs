//! The consumer against a broker: records are read exactly once, in order, from the requested
//! offset.

#![expect(clippy::unwrap_used, reason = "a failed step of a test is a failed test")]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use ottla_broker::Broker;
use ottla_client::Error;
use ottla_client::config::Config;
use ottla_client::consumer::{Consumer, OffsetAndTimestamp, RebalanceListener, TopicPartition};
use ottla_wire::records::builder::{BatchBuilder, BatchOptions};
use ottla_wire::records::compression::Codec;
use support::Writer;

/// Long enough that only a hang reaches it.
const HANG: Duration = Duration::from_secs(60);

fn consumer(broker: &Broker, more: &[(&str, &str)]) -> Consumer {
    let mut config = Config::new()
        .set("bootstrap.servers", broker.address())
        .set("auto.offset.reset", "earliest");
    for (key, value) in more {
        config = config.set(*key, *value);
    }
    Consumer::new(&config).unwrap()
}

fn batch(codec: Codec, first: i64, count: i64) -> Vec<u8> {
    let mut builder = BatchBuilder::new(BatchOptions {
        compression: codec.into(),
        ..BatchOptions::default()
    });
    for number in first..first + count {
        let value = format!("value {number}");
        builder.append(1_000 + number, None, Some(value.as_bytes()), &[]);
    }
    builder.finish()
}

/// Reads the offset and value of the next `count` records.
fn read(consumer: &mut Consumer, count: usize) -> Vec<(i64, String)> {
    let begun = Instant::now();
    let mut found = Vec::new();
    while found.len() < count {
        assert!(begun.elapsed() < HANG, "{} of {count} records came", found.len());
        for record in &consumer.poll(Duration::from_secs(1)).unwrap() {
            let value = String::from_utf8(record.value.unwrap().to_vec()).unwrap();
            found.push((record.offset, value));
        }
    }
    found
}

fn expected(numbers: std::ops::Range<i64>) -> Vec<(i64, String)> {
    numbers
        .map(|number| (number, format!("value {number}")))
        .collect()
}

#[test]
fn every_codec_is_read_in_order() {
    let broker = Broker::start_temporary(&[]).unwrap();
    let mut writer = Writer::connect(broker.address());
    writer.create_topic("t", 1);
    for (index, codec) in Codec::ALL.into_iter().enumerate() {
        writer.append("t", 0, &batch(codec, index as i64 * 1000, 1000));
    }
    let mut consumer = consumer(&broker, &[("max.poll.records", "300")]);
    consumer.assign([TopicPartition::new("t", 0)]).unwrap();
    assert_eq!(read(&mut consumer, 5000), expected(0..5000));
    assert_eq!(consumer.position(&TopicPartition::new("t", 0)), Ok(5000));
    assert_eq!(consumer.current_lag(&TopicPartition::new("t", 0)), Some(0));
    consumer.close(Duration::from_secs(10)).unwrap();
    assert_eq!(consumer.poll(Duration::ZERO).unwrap_err(), Error::Closed);
}

#[test]
fn a_single_member_gets_all_partitions_and_resumes_at_its_commit() {
    let broker = Broker::start_temporary(&[("group.initial.rebalance.delay.ms", "0")]).unwrap();
    let mut writer = Writer::connect(broker.address());
    writer.create_topic("t", 3);
    for partition in 0..3 {
        writer.append("t", partition, &batch(Codec::None, 0, 100));
    }
    let settings = [("group.id", "g"), ("enable.auto.commit", "false")];
    let mut first = consumer(&broker, &settings);
    first.subscribe(["t"]).unwrap();
    assert_eq!(read(&mut first, 300).len(), 300);
    first.commit_sync().unwrap();
    first.close(Duration::from_secs(10)).unwrap();

    for partition in 0..3 {
        writer.append("t", partition, &batch(Codec::None, 100, 10));
    }
    let mut second = consumer(&broker, &settings);
    second.subscribe_pattern("t|nothing").unwrap();
    let mut found = read(&mut second, 30);
    found.sort();
    let mut wanted: Vec<_> = (0..3).flat_map(|_| expected(100..110)).collect();
    wanted.sort();
    assert_eq!(found, wanted);
    let committed = second
        .committed((0..3).map(|partition| TopicPartition::new("t", partition)))
        .unwrap();
    assert!(
        committed.values().all(|offset| offset.offset == 100),
        "{committed:?}"
    );
    second.close(Duration::from_secs(10)).unwrap();
}

fn partition(index: i32) -> TopicPartition {
    TopicPartition::new("t", index)
}

/// Starts a broker with topic `t`; each of its partitions has 100 records, timestamps 1000 to 1099.
fn filled(partition_count: i32) -> (Broker, Writer) {
    let broker = Broker::start_temporary(&[("group.initial.rebalance.delay.ms", "0")]).unwrap();
    let mut writer = Writer::connect(broker.address());
    writer.create_topic("t", partition_count);
    for index in 0..partition_count {
        writer.append("t", index, &batch(Codec::None, 0, 100));
    }
    (broker, writer)
}

#[test]
fn offsets_are_found_by_end_and_by_time() {
    let (broker, _writer) = filled(2);
    let mut consumer = consumer(&broker, &[]);
    let both = [partition(0), partition(1)];
    let of_both = |offset: i64| BTreeMap::from(both.clone().map(|name| (name, offset)));
    assert_eq!(consumer.beginning_offsets(both.clone()), Ok(of_both(0)));
    assert_eq!(consumer.end_offsets(both.clone()), Ok(of_both(100)));
    let found = consumer
        .offsets_for_times([(partition(0), 1_040), (partition(1), 9_999)])
        .unwrap();
    let first = OffsetAndTimestamp {
        offset: 40,
        timestamp: 1_040,
        leader_epoch: Some(0),
    };
    assert_eq!(found, BTreeMap::from([(partition(0), first)]));

    consumer.assign(both.clone()).unwrap();
    consumer.seek_to_time(&both[..1], 1_090).unwrap();
    consumer.seek_to_end(&both[1..]).unwrap();
    assert_eq!(read(&mut consumer, 10), expected(90..100));
    assert_eq!(consumer.position(&partition(1)), Ok(100));
    consumer.seek(&partition(1), 95).unwrap();
    assert_eq!(read(&mut consumer, 5), expected(95..100));
    consumer.seek_to_beginning(&both[1..]).unwrap();
    assert_eq!(consumer.position(&partition(1)), Ok(0));
    assert!(matches!(
        consumer.seek(&partition(5), 0),
        Err(Error::IllegalState { .. })
    ));
    consumer.close(Duration::from_secs(10)).unwrap();
}

#[test]
fn topics_are_listed_and_described() {
    let (broker, _writer) = filled(3);
    let mut consumer = consumer(&broker, &[]);
    let topics = consumer.list_topics().unwrap();
    let found = topics.iter().find(|topic| &*topic.name == "t").unwrap();
    assert_eq!((found.partition_count, found.is_internal), (3, false));
    assert_eq!(consumer.partitions_for("t").unwrap().partitions.len(), 3);
    consumer.close(Duration::from_secs(10)).unwrap();
}

#[test]
fn a_paused_partition_waits_and_the_others_go_on() {
    let (broker, mut writer) = filled(2);
    let mut consumer = consumer(&broker, &[("max.poll.records", "10")]);
    consumer.assign([partition(0), partition(1)]).unwrap();
    consumer.pause(&[partition(0)]).unwrap();
    assert_eq!(consumer.paused(), BTreeSet::from([partition(0)]));
    assert_eq!(read(&mut consumer, 100), expected(0..100));
    writer.append("t", 1, &batch(Codec::None, 100, 5));
    assert_eq!(read(&mut consumer, 5), expected(100..105));
    consumer.resume(&[partition(0)]).unwrap();
    assert_eq!(read(&mut consumer, 100), expected(0..100));
    assert_eq!(
        consumer.lag(),
        BTreeMap::from([(partition(0), 0), (partition(1), 0)])
    );
    consumer.close(Duration::from_secs(10)).unwrap();
}

#[test]
fn another_thread_wakes_a_poll() {
    let (broker, _writer) = filled(1);
    let mut consumer = consumer(&broker, &[("auto.offset.reset", "latest")]);
    consumer.assign([partition(0)]).unwrap();
    assert_eq!(consumer.position(&partition(0)), Ok(100));
    let handle = consumer.wakeup_handle();
    let waking = thread::spawn(move || {
        thread::sleep(Duration::from_millis(50));
        handle.wakeup();
    });
    assert_eq!(consumer.poll(HANG).unwrap_err(), Error::Wakeup);
    waking.join().unwrap();
    // One wakeup ends one poll.
    assert!(consumer.poll(Duration::from_millis(10)).unwrap().is_empty());
    consumer.close(Duration::from_secs(10)).unwrap();
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Unpark>) {
        self.0.unpark();
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park_timeout(HANG),
        }
    }
}

#[test]
fn records_can_be_awaited() {
    let (broker, mut writer) = filled(1);
    let mut consumer = consumer(&broker, &[("auto.offset.reset", "latest"), ("group.id", "g")]);
    consumer.subscribe(["t"]).unwrap();
    assert!(consumer.poll(Duration::from_millis(1)).unwrap().is_empty());
    let writing = thread::spawn(move || {
        thread::sleep(Duration::from_millis(1_000));
        writer.append("t", 0, &batch(Codec::None, 100, 3));
    });
    let records = block_on(consumer.recv()).unwrap();
    let offsets: Vec<i64> = records.iter().map(|record| record.offset).collect();
    assert_eq!(offsets, [100, 101, 102]);
    writing.join().unwrap();
    consumer.close(Duration::from_secs(10)).unwrap();
}

#[test]
fn read_records_are_committed_automatically() {
    let (broker, _writer) = filled(1);
    let settings = [("group.id", "g"), ("max.poll.records", "40")];
    let mut first = consumer(&broker, &settings);
    first.subscribe(["t"]).unwrap();
    assert_eq!(read(&mut first, 40), expected(0..40));
    first.close(Duration::from_secs(10)).unwrap();
    let mut second = consumer(&broker, &settings);
    second.subscribe(["t"]).unwrap();
    assert_eq!(read(&mut second, 60), expected(40..100));
    let group = second.group_metadata().unwrap();
    assert_eq!(&*group.group_id, "g");
    assert!(group.generation_id > 0);
    second.close(Duration::from_secs(10)).unwrap();
}

/// `assigned` or `revoked`, and the partitions.
type Change = (&'static str, BTreeSet<TopicPartition>);

/// Records the calls of a rebalance listener.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<Change>>>);

impl RebalanceListener for Told {
    fn partitions_assigned(&mut self, consumer: &mut Consumer, partitions: &BTreeSet<TopicPartition>) {
        for name in partitions {
            consumer.seek(name, 90).unwrap();
        }
        self.0.lock().unwrap().push(("assigned", partitions.clone()));
    }

    fn partitions_revoked(&mut self, consumer: &mut Consumer, partitions: &BTreeSet<TopicPartition>) {
        consumer.commit_sync().unwrap();
        self.0.lock().unwrap().push(("revoked", partitions.clone()));
    }
}

#[test]
fn a_listener_seeks_before_the_first_record_and_commits_before_the_end() {
    let (broker, _writer) = filled(1);
    let settings = [("group.id", "g"), ("enable.auto.commit", "false")];
    let told = Told::default();
    let mut first = consumer(&broker, &settings);
    first.set_rebalance_listener(told.clone());
    first.subscribe(["t"]).unwrap();
    assert_eq!(read(&mut first, 10), expected(90..100));
    first.close(Duration::from_secs(10)).unwrap();
    let all = BTreeSet::from([partition(0)]);
    assert_eq!(
        *told.0.lock().unwrap(),
        [("assigned", all.clone()), ("revoked", all)]
    );
    let mut second = consumer(&broker, &settings);
    let committed = second.committed([partition(0)]).unwrap();
    assert_eq!(committed[&partition(0)].offset, 100);
    second.close(Duration::from_secs(10)).unwrap();
}

#[test]
fn two_members_share_and_the_one_that_stays_takes_over() {
    let (broker, mut writer) = filled(4);
    let settings = [
        ("group.id", "g"),
        ("partition.assignment.strategy", "cooperative-sticky"),
        ("heartbeat.interval.ms", "100"),
        ("auto.commit.interval.ms", "100"),
    ];
    let mut first = consumer(&broker, &settings);
    let mut second = consumer(&broker, &settings);
    first.subscribe(["t"]).unwrap();
    assert_eq!(read(&mut first, 400).len(), 400);
    second.subscribe(["t"]).unwrap();
    let begun = Instant::now();
    while first.assignment().len() != 2 || second.assignment().len() != 2 {
        assert!(begun.elapsed() < HANG);
        for consumer in [&mut first, &mut second] {
            let records = consumer.poll(Duration::from_millis(50)).unwrap();
            assert!(records.is_empty(), "read before and committed: {records:?}");
        }
    }
    for index in 0..4 {
        writer.append("t", index, &batch(Codec::None, 100, 10));
    }
    assert_eq!(read(&mut first, 20).len(), 20);
    assert_eq!(read(&mut second, 20).len(), 20);
    second.close(Duration::from_secs(10)).unwrap();
    while first.assignment().len() != 4 {
        assert!(begun.elapsed() < HANG);
        assert!(first.poll(Duration::from_millis(50)).unwrap().is_empty());
    }
    first.close(Duration::from_secs(10)).unwrap();
}

#[test]
fn futures_of_a_consumer_complete_without_a_poll() {
    let (broker, _writer) = filled(1);
    let settings = [("group.id", "g"), ("enable.auto.commit", "false")];
    let mut consumer = consumer(&broker, &settings);
    consumer.assign([partition(0)]).unwrap();
    assert_eq!(block_on(consumer.position_async(&partition(0))), Ok(0));
    assert_eq!(read(&mut consumer, 100).len(), 100);
    let committed = block_on(consumer.commit()).unwrap();
    assert_eq!(committed[&partition(0)].offset, 100);
    assert_eq!(consumer.commit_async(None).unwrap().wait().unwrap(), committed);
    assert_eq!(
        consumer.committed_async([partition(0)]).wait().unwrap(),
        committed
    );
    consumer.seek_to_beginning(&[]).unwrap();
    assert_eq!(consumer.position_async(&partition(0)).wait(), Ok(0));
    assert!(matches!(
        consumer.position_async(&partition(1)).wait(),
        Err(Error::IllegalState { .. })
    ));
    assert_eq!(block_on(consumer.close_async()), Ok(()));
    assert_eq!(consumer.commit().wait(), Err(Error::Closed));
    assert_eq!(
        consumer.committed_async([partition(0)]).wait(),
        Err(Error::Closed)
    );
    assert_eq!(consumer.position_async(&partition(0)).wait(), Err(Error::Closed));
    assert_eq!(block_on(consumer.close_async()), Ok(()), "closing again");
}

#[test]
fn an_async_close_commits_calls_the_listener_and_leaves_the_group() {
    let (broker, _writer) = filled(1);
    let settings = [("group.id", "g"), ("session.timeout.ms", "300000")];
    let told = Told::default();
    let mut first = consumer(&broker, &settings);
    first.set_rebalance_listener(told.clone());
    first.subscribe(["t"]).unwrap();
    assert_eq!(read(&mut first, 10), expected(90..100));
    assert_eq!(block_on(first.close_async()), Ok(()));
    assert_eq!(told.0.lock().unwrap().last().unwrap().0, "revoked");
    // The session of a member that has not left would outlast the test.
    let mut second = consumer(&broker, &settings);
    second.subscribe(["t"]).unwrap();
    until_assigned(&mut second);
    assert_eq!(second.position(&partition(0)), Ok(100));
    second.close(Duration::from_secs(10)).unwrap();
}

/// A dropped member with automatic commits waited for its application, which was gone, and ended
/// without leaving: the others got its partitions only when its session timed out.
#[test]
fn a_member_that_is_dropped_leaves_the_group_and_commits_nothing() {
    let (broker, _writer) = filled(1);
    let settings = [("group.id", "g"), ("session.timeout.ms", "300000")];
    let mut first = consumer(&broker, &settings);
    first.subscribe(["t"]).unwrap();
    assert_eq!(read(&mut first, 100).len(), 100);
    drop(first);
    let mut second = consumer(&broker, &settings);
    second.subscribe(["t"]).unwrap();
    until_assigned(&mut second);
    assert_eq!(read(&mut second, 100), expected(0..100));
    second.close(Duration::from_secs(10)).unwrap();
}

fn until_assigned(consumer: &mut Consumer) {
    let begun = Instant::now();
    while consumer.assignment().is_empty() {
        assert!(begun.elapsed() < HANG);
        // Records that come with the assignment are read again.
        let records = consumer.poll(Duration::from_millis(1)).unwrap();
        if !records.is_empty() {
            drop(records);
            consumer.seek_to_beginning(&[]).unwrap();
        }
    }
}

#[test]
fn without_a_broker_nothing_hangs() {
    let closed_port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let config = Config::new()
        .set("bootstrap.servers", closed_port)
        .set("group.id", "g")
        .set("default.api.timeout.ms", "300");
    let mut consumer = Consumer::new(&config).unwrap();
    let is_timeout = |error: Error| matches!(error, Error::Timeout { limit_ms: 300, .. });
    assert!(is_timeout(consumer.end_offsets([partition(0)]).unwrap_err()));
    assert!(is_timeout(consumer.list_topics().unwrap_err()));
    assert!(is_timeout(consumer.committed([partition(0)]).unwrap_err()));
    assert!(matches!(
        consumer.partitions_for("t"),
        Err(Error::TopicNotPresent { limit_ms: 300, .. })
    ));
    consumer.assign([partition(0)]).unwrap();
    assert!(consumer.poll(Duration::from_millis(50)).unwrap().is_empty());
    assert!(is_timeout(consumer.position(&partition(0)).unwrap_err()));
    consumer.seek(&partition(0), 5).unwrap();
    assert!(is_timeout(consumer.commit_sync().unwrap_err()));
    // The last commit is retried until the close times out.
    let _ = consumer.close(Duration::from_millis(300));
    assert_eq!(consumer.commit_sync(), Err(Error::Closed));
    assert_eq!(consumer.list_topics().unwrap_err(), Error::Closed);
}

#[test]
fn calls_that_do_not_fit_are_refused() {
    let (broker, _writer) = filled(1);
    let mut loner = consumer(&broker, &[]);
    assert!(matches!(
        loner.poll(Duration::ZERO),
        Err(Error::IllegalState { .. })
    ));
    assert!(matches!(
        loner.subscribe(["t"]),
        Err(Error::InvalidArgument { .. })
    ));
    assert!(matches!(loner.commit_sync(), Err(Error::InvalidArgument { .. })));
    loner.assign([partition(0)]).unwrap();
    assert!(matches!(
        loner.seek(&partition(0), -1),
        Err(Error::InvalidArgument { .. })
    ));
    loner.close(Duration::from_secs(10)).unwrap();
    let mut member = consumer(&broker, &[("group.id", "g")]);
    member.subscribe(["t"]).unwrap();
    assert!(matches!(
        member.assign([partition(0)]),
        Err(Error::IllegalState { .. })
    ));
    member.close(Duration::from_secs(10)).unwrap();
}

/// A temporary directory that outlives the broker and is removed at the end of the test.
struct Directory(std::path::PathBuf);

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_consumer_continues_after_a_broker_restart() {
    let directory = Directory(std::env::temp_dir().join(format!("ottla-consumer-{}", std::process::id())));
    let path = directory.0.to_str().unwrap().to_owned();
    let first = Broker::start_temporary(&[("log.dirs", &path)]).unwrap();
    let address = first.address();
    let mut writer = Writer::connect(address);
    writer.create_topic("t", 1);
    writer.append("t", 0, &batch(Codec::None, 0, 100));
    let mut consumer = consumer(&first, &[("max.poll.records", "60")]);
    consumer.assign([partition(0)]).unwrap();
    assert_eq!(read(&mut consumer, 60), expected(0..60));
    drop(writer);
    drop(first);
    // What was fetched before is still there.
    assert_eq!(read(&mut consumer, 40), expected(60..100));

    let listeners = format!("PLAINTEXT://{address}");
    let second = Broker::start_temporary(&[("log.dirs", &path), ("listeners", &listeners)]).unwrap();
    let mut writer = Writer::connect(second.address());
    writer.append("t", 0, &batch(Codec::None, 100, 10));
    assert_eq!(read(&mut consumer, 10), expected(100..110));
    consumer.close(Duration::from_secs(10)).unwrap();
}
