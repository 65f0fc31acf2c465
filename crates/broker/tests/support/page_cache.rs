//! Which threads read from the device, by the kernel's own counts: a broker on real files, some of
//! them not in the page cache.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use ottla_broker::broker::Broker;
use ottla_wire::api_key::ApiKey;
use ottla_wire::error_code::ErrorCode;
use ottla_wire::messages::create_topics::{CreatableTopic, CreateTopicsRequest, CreateTopicsResponse};
use ottla_wire::messages::fetch::{FetchPartition, FetchRequest, FetchResponse, FetchTopic};
use ottla_wire::messages::produce::{
    PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData,
};
use ottla_wire::primitives::Reader;
use ottla_wire::records::batch::batches;
use ottla_wire::records::builder::{BatchBuilder, BatchOptions};
use rustix::fs::Advice;

use super::{Client, frame};

const OLD: &str = "old";
const HOT: &str = "hot";
const RECORD_BYTES: usize = 250_000;
pub const MIB: u64 = 1024 * 1024;

/// Removed when dropped. Not in the temporary directory, which may be on tmpfs, without a device.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Directory {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Directory(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Counts of the kernel for the threads of one name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub threads: u64,
    /// Read from the device on their account.
    pub read_bytes: u64,
    pub major_faults: u64,
}

/// Returns the counts of all current threads by name.
fn counts() -> BTreeMap<String, Counts> {
    let mut by_name = BTreeMap::<String, Counts>::new();
    for entry in std::fs::read_dir("/proc/self/task").unwrap() {
        let task = entry.unwrap().path();
        // A thread may end between the listing and reading its files.
        let read = |file: &str| std::fs::read_to_string(task.join(file)).unwrap_or_default();
        let (name, io, stat) = (read("comm"), read("io"), read("stat"));
        let read_bytes = io.lines().find_map(|line| line.strip_prefix("read_bytes: "));
        // Field 12 of stat(5) is the tenth after the name, which may contain spaces.
        let major_faults = stat
            .rsplit(')')
            .next()
            .and_then(|rest| rest.split_whitespace().nth(9));
        let counts = by_name.entry(name.trim().to_owned()).or_default();
        counts.threads += 1;
        counts.read_bytes += read_bytes.map_or(0, |bytes| bytes.parse::<u64>().unwrap());
        counts.major_faults += major_faults.map_or(0, |faults| faults.parse::<u64>().unwrap());
    }
    by_name
}

fn start(directory: &Directory, durability: &str) -> Broker {
    let path = directory.0.to_string_lossy().into_owned();
    let properties = [
        ("listeners", "PLAINTEXT://127.0.0.1:0"),
        ("log.dirs", path.as_str()),
        ("ottla.admin.listener", ""),
        ("num.network.threads", "2"),
        ("ottla.durability", durability),
    ];
    let properties = properties.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let broker = Broker::start(&properties.into()).unwrap();
    let mut client = Client::connect(broker.address());
    for name in [OLD, HOT] {
        let topic = CreatableTopic {
            name,
            num_partitions: 1,
            replication_factor: 1,
            ..Default::default()
        };
        let request = CreateTopicsRequest {
            topics: vec![topic],
            ..Default::default()
        };
        client.send(&frame(ApiKey::CreateTopics, 5, 1, |bytes| {
            request.encode(bytes, 5)
        }));
        let body = client.receive(ApiKey::CreateTopics, 5, 1);
        let response = CreateTopicsResponse::decode(&mut Reader::new(&body), 5).unwrap();
        assert_eq!(response.topics[0].error_code, ErrorCode::None.code());
    }
    broker
}

fn produce(client: &mut Client, topic: &str, acks: i16) {
    let mut builder = BatchBuilder::new(BatchOptions::default());
    builder.append(1_000, None, Some(&vec![7; RECORD_BYTES]), &[]);
    let records = builder.finish();
    let topic = TopicProduceData {
        name: topic,
        partition_data: vec![PartitionProduceData {
            index: 0,
            records: Some(&records),
        }],
        ..Default::default()
    };
    let request = ProduceRequest {
        acks,
        timeout_ms: 30_000,
        topic_data: vec![topic],
        ..Default::default()
    };
    client.send(&frame(ApiKey::Produce, 9, 1, |bytes| request.encode(bytes, 9)));
    let body = client.receive(ApiKey::Produce, 9, 1);
    let response = ProduceResponse::decode(&mut Reader::new(&body), 9).unwrap();
    let partition = &response.responses[0].partition_responses[0];
    assert_eq!(partition.error_code, ErrorCode::None.code());
}

/// Returns how many records were fetched.
fn fetch(client: &mut Client, topic: &str, fetch_offset: i64) -> i64 {
    let request = FetchRequest {
        max_wait_ms: 1_000,
        min_bytes: 1,
        max_bytes: 50 << 20,
        session_epoch: -1,
        topics: vec![FetchTopic {
            topic,
            partitions: vec![FetchPartition {
                fetch_offset,
                partition_max_bytes: 1 << 20,
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    };
    client.send(&frame(ApiKey::Fetch, 11, 1, |bytes| request.encode(bytes, 11)));
    let body = client.receive(ApiKey::Fetch, 11, 1);
    let response = FetchResponse::decode(&mut Reader::new(&body), 11).unwrap();
    let partition = &response.responses[0].partitions[0];
    assert_eq!(partition.error_code, ErrorCode::None.code());
    // The last one may be truncated.
    let whole = batches(partition.records.unwrap_or_default()).take_while(Result::is_ok);
    whole.count() as i64
}

/// Writes a topic's files back and drops them from memory and the page cache.
fn evict(broker: &Broker, directory: &Directory, topic: &str) {
    if let Some(memory) = broker.log_memory() {
        memory.forget();
    }
    for entry in std::fs::read_dir(directory.0.join(format!("{topic}-0"))).unwrap() {
        let file = File::open(entry.unwrap().path()).unwrap();
        file.sync_all().unwrap();
        rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).unwrap();
    }
}

/// Lets a consumer read `bytes` that are not in the page cache, beside a producer and a consumer
/// that keeps up.
///
/// Returns the counts of each kind of thread for this time.
pub fn catch_up(bytes: u64, durability: &str) -> BTreeMap<String, Counts> {
    let directory = Directory::new(durability);
    let broker = start(&directory, durability);
    let mut client = Client::connect(broker.address());
    let records = (bytes / RECORD_BYTES as u64) as i64;
    for _ in 1..records {
        produce(&mut client, OLD, 1);
    }
    produce(&mut client, OLD, -1);
    produce(&mut client, HOT, -1);
    evict(&broker, &directory, OLD);
    let mut lagging = Client::connect(broker.address());
    let mut tail = Client::connect(broker.address());
    let before = counts();
    let (mut old, mut hot) = (0, 0);
    while old < records {
        old += fetch(&mut lagging, OLD, old);
        produce(&mut client, HOT, -1);
        hot += fetch(&mut tail, HOT, hot);
    }
    let mut after = counts();
    for (name, counts) in &mut after {
        let before = before.get(name).copied().unwrap_or_default();
        counts.read_bytes = counts.read_bytes.saturating_sub(before.read_bytes);
        counts.major_faults = counts.major_faults.saturating_sub(before.major_faults);
    }
    after
}

pub fn check(counts: &BTreeMap<String, Counts>, bytes: u64) {
    let of = |prefix: &str| {
        let named = counts.iter().filter(|(name, _)| name.starts_with(prefix));
        named.map(|(_, counts)| counts.read_bytes).sum::<u64>()
    };
    assert!(
        of("ottla-cold-read") > bytes / 2,
        "nothing was cold: the test proves nothing: {counts:#?}"
    );
    // Reserving space for a log makes the file system read its free block maps: 4 KiB per 128 MiB
    // of disk.
    assert!(of("ottla-loop") <= of("ottla-cold-read") / 256, "{counts:#?}");
}
