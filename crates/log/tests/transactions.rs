//! Transactions in a log that is killed, or loses its power, at any time: what readers of committed
//! records may see, which transactions are open, and which are listed as aborted, compared with a
//! model.
//!
//! Every test prints the seed it fails with. `OTTLA_TRANSACTION_SEEDS=from..to` runs other seeds.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use ottla_log::disk::Disk;
use ottla_log::disk::memory::{MemoryDisk, Random};
use ottla_log::disk::owned::{LogMemory, OwnedDisk};
use ottla_log::{
    AppendError, Appended, BatchToAppend, Bound, LogConfig, OpenOptions, Origin, PartitionLog, Read,
    ReadMode, Ticket, Visible,
};
use ottla_wire::primitives::Uuid;
use ottla_wire::records::batch::{Batch, BatchHeader, HEADER_BYTES};
use ottla_wire::records::builder::{BatchBuilder, BatchOptions};
use ottla_wire::records::control::{TransactionMarker, TransactionResult};

const DIRECTORY: &str = "data/topic-0";
const START_MS: i64 = 1_700_000_000_000;
const PRODUCERS: i64 = 4;

/// One batch of the log.
#[derive(Clone, Copy, Debug)]
struct Event {
    base_offset: i64,
    last_offset: i64,
    bytes: u64,
    kind: Kind,
    /// It was appended since the log was opened.
    is_new: bool,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Plain,
    Data {
        producer_id: i64,
        producer_epoch: i16,
    },
    Marker {
        producer_id: i64,
        producer_epoch: i16,
        is_commit: bool,
    },
}

/// A transaction of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Transaction {
    first_offset: i64,
    producer_id: i64,
    /// The marker's offset.
    end: Option<i64>,
    is_commit: bool,
}

/// A producer as the log must know it.
#[derive(Clone, Copy, Debug, Default)]
struct Producer {
    epoch: i16,
    next_sequence: i32,
}

struct World {
    seed: u64,
    random: Random,
    disk: MemoryDisk,
    has_memory: bool,
    config: LogConfig,
    log: PartitionLog,
    events: Vec<Event>,
    visible: Visible,
    stable: Visible,
    recovery_point: i64,
    start_offset: i64,
    /// Bytes appended since the log was opened.
    appended_bytes: u64,
    /// Tickets that are out, and whether a marker has withdrawn them.
    tickets: BTreeMap<i64, (Ticket, bool)>,
    crashes: u32,
    refused: u32,
    /// Aborted transactions that readers were told of.
    listed: u32,
}

fn disk_of(disk: &MemoryDisk, has_memory: bool) -> Arc<dyn Disk> {
    match has_memory {
        true => Arc::new(OwnedDisk::new(
            disk.shared(),
            LogMemory::new(16 * 1024, 128 * 1024),
        )),
        false => disk.shared(),
    }
}

impl World {
    fn new(seed: u64) -> World {
        let mut random = Random::new(seed);
        let config = LogConfig {
            segment_bytes: 1_000 + random.below(4_000) as u32,
            index_interval_bytes: random.below(500) as u32,
            retention_ms: -1,
            ..LogConfig::default()
        };
        let disk = MemoryDisk::new(random.next());
        let has_memory = seed % 2 == 1;
        let log = PartitionLog::create(
            disk_of(&disk, has_memory),
            Path::new(DIRECTORY),
            Uuid([9; 16]),
            config.clone(),
            0,
            START_MS,
        );
        disk.sync_directory(Path::new("")).expect("there is power");
        let mut log = log.expect("an empty disk takes a log");
        let visible = Visible {
            bound: log.end(),
            bytes: 0,
        };
        let stable = log.high_watermark_moved(visible);
        World {
            seed,
            random,
            disk,
            has_memory,
            config,
            log,
            events: Vec::new(),
            visible,
            stable,
            recovery_point: 0,
            start_offset: 0,
            appended_bytes: 0,
            tickets: BTreeMap::new(),
            crashes: 0,
            refused: 0,
            listed: 0,
        }
    }

    fn run(&mut self, steps: u32) {
        for _ in 0..steps {
            match self.random.below(100) {
                0..15 => self.append_plain(),
                15..50 => self.append_data(),
                50..58 => self.take_ticket(),
                58..78 => self.append_marker(),
                78..92 => self.sync(),
                92..94 => self.delete_records(),
                94..96 => self.checkpoint(),
                _ => self.crash(),
            }
            self.check();
        }
    }

    fn transactions(&self) -> Vec<Transaction> {
        let mut open: BTreeMap<i64, i64> = BTreeMap::new();
        let mut all = Vec::new();
        for event in &self.events {
            match event.kind {
                Kind::Plain => {}
                Kind::Data { producer_id, .. } => {
                    open.entry(producer_id).or_insert(event.base_offset);
                }
                Kind::Marker {
                    producer_id,
                    is_commit,
                    ..
                } => {
                    if let Some(first_offset) = open.remove(&producer_id) {
                        all.push(Transaction {
                            first_offset,
                            producer_id,
                            end: Some(event.base_offset),
                            is_commit,
                        });
                    }
                }
            }
        }
        all.extend(open.into_iter().map(|(producer_id, first_offset)| Transaction {
            first_offset,
            producer_id,
            end: None,
            is_commit: false,
        }));
        all
    }

    fn producer(&self, id: i64) -> Producer {
        let mut producer = Producer::default();
        for event in &self.events {
            match event.kind {
                Kind::Data {
                    producer_id,
                    producer_epoch,
                } if producer_id == id => {
                    if producer_epoch != producer.epoch {
                        producer.next_sequence = 0;
                    }
                    producer.epoch = producer_epoch;
                    producer.next_sequence += (event.last_offset - event.base_offset + 1) as i32;
                }
                Kind::Marker {
                    producer_id,
                    producer_epoch,
                    ..
                } if producer_id == id && producer_epoch != producer.epoch => {
                    producer = Producer {
                        epoch: producer_epoch,
                        next_sequence: 0,
                    };
                }
                _ => {}
            }
        }
        producer
    }

    fn is_open(&self, producer_id: i64) -> bool {
        let mut all = self.transactions().into_iter();
        all.any(|one| one.producer_id == producer_id && one.end.is_none())
    }

    fn append(&mut self, origin: Origin, bytes: &[u8]) -> Result<Appended, AppendError> {
        let batch = BatchToAppend::from(Batch::parse(bytes).expect("built"));
        self.log.append_from(origin, &[batch], 0, START_MS)
    }

    fn note(&mut self, appended: Appended, bytes: &[u8], kind: Kind) {
        assert!(!appended.duplicate, "seed {}", self.seed);
        self.appended_bytes += bytes.len() as u64;
        self.events.push(Event {
            base_offset: appended.base_offset,
            last_offset: appended.last_offset,
            bytes: bytes.len() as u64,
            kind,
            is_new: true,
        });
    }

    fn append_plain(&mut self) {
        let bytes = self.build(BatchOptions::default());
        let appended = self
            .append(Origin::Client(None), &bytes)
            .expect("nothing to refuse");
        self.note(appended, &bytes, Kind::Plain);
    }

    fn build(&mut self, options: BatchOptions) -> Vec<u8> {
        let mut builder = BatchBuilder::new(options);
        for _ in 0..=self.random.below(3) {
            let value = vec![b'v'; self.random.below(200) as usize];
            builder.append(START_MS, Some(b"k"), Some(&value), &[]);
        }
        builder.finish()
    }

    fn some_producer(&mut self) -> i64 {
        1 + self.random.below(PRODUCERS as u64) as i64
    }

    fn append_data(&mut self) {
        let producer_id = self.some_producer();
        let known = self.producer(producer_id);
        let bytes = self.build(BatchOptions {
            producer_id,
            producer_epoch: known.epoch,
            base_sequence: known.next_sequence,
            is_transactional: true,
            ..BatchOptions::default()
        });
        let is_open = self.is_open(producer_id);
        if !is_open {
            self.check_refused(Origin::Client(None), &bytes, "without a ticket");
        }
        let mut origin = Origin::Client(None);
        if let Some((ticket, is_withdrawn)) = self.tickets.remove(&producer_id)
            && !is_open
        {
            origin = Origin::Client(Some(ticket));
            if is_withdrawn {
                self.check_refused(origin, &bytes, "with a ticket from before a marker");
                return;
            }
        } else if !is_open {
            origin = Origin::Client(Some(self.log.ticket(true)));
        }
        let appended = self.append(origin, &bytes);
        let appended = match appended {
            // What tells the sequence was deleted before a restart.
            Err(AppendError::OutOfOrderSequence { .. }) if self.start_offset > 0 && self.crashes > 0 => {
                return;
            }
            appended => appended.unwrap_or_else(|error| panic!("seed {}: {error}", self.seed)),
        };
        let kind = Kind::Data {
            producer_id,
            producer_epoch: known.epoch,
        };
        self.note(appended, &bytes, kind);
    }

    fn check_refused(&mut self, origin: Origin, bytes: &[u8], why: &str) {
        let end = self.log.end_offset();
        let refused = self.append(origin, bytes);
        let is_refused = matches!(refused, Err(AppendError::InvalidTransactionState { .. }));
        assert!(is_refused, "seed {}, {why}: {refused:?}", self.seed);
        assert_eq!(self.log.end_offset(), end);
        self.refused += 1;
    }

    fn take_ticket(&mut self) {
        let producer_id = self.some_producer();
        let ticket = self.log.ticket(true);
        self.tickets.insert(producer_id, (ticket, false));
    }

    /// Half of the markers have an epoch of their own.
    fn append_marker(&mut self) {
        let producer_id = self.some_producer();
        let raises = self.random.one_in(2);
        let is_commit = self.random.one_in(2);
        let producer_epoch = self.producer(producer_id).epoch + i16::from(raises);
        let marker = TransactionMarker {
            producer_id,
            producer_epoch,
            result: match is_commit {
                true => TransactionResult::Commit,
                false => TransactionResult::Abort,
            },
            coordinator_epoch: 3,
        };
        let bytes = marker.to_batch(0, 0, START_MS);
        let origin = Origin::TransactionCoordinator {
            transaction_version: if raises { 2 } else { 1 },
        };
        let appended = self.append(origin, &bytes).expect("of the current epoch");
        if let Some((_, is_withdrawn)) = self.tickets.get_mut(&producer_id) {
            *is_withdrawn |= !raises;
        }
        let kind = Kind::Marker {
            producer_id,
            producer_epoch,
            is_commit,
        };
        self.note(appended, &bytes, kind);
    }

    fn sync(&mut self) {
        let bytes = self.appended_bytes;
        let Some(job) = self.log.begin_sync() else { return };
        // The high watermark moves to where the sync began, not to the end.
        match self.random.below(3) {
            0 => self.append_data(),
            1 => self.append_marker(),
            _ => {}
        }
        let result = job.run();
        let bound = self.log.finish_sync(job, result).expect("there is power");
        self.move_high_watermark(Visible { bound, bytes });
    }

    fn move_high_watermark(&mut self, visible: Visible) {
        let before = self.stable.bound.offset;
        self.visible = visible;
        self.stable = self.log.high_watermark_moved(visible);
        assert!(
            self.stable.bound.offset >= before,
            "seed {}: it went back",
            self.seed
        );
    }

    fn checkpoint(&mut self) {
        self.log.request_checkpoint();
        self.sync();
        if let Some(job) = self.log.take_checkpoint() {
            let result = job.run();
            self.log.finish_checkpoint(job, result).expect("written");
            self.recovery_point = self.log.recovery_point();
        }
    }

    fn delete_records(&mut self) {
        // Not into an open transaction: what a restart knows of its removed part depends on
        // snapshots.
        let stable = self.stable.bound.offset;
        if stable > self.start_offset && self.random.one_in(3) {
            let count = (stable - self.start_offset) as u64;
            self.start_offset += self.random.below(count + 1) as i64;
            self.log.delete_records_before(self.start_offset);
        }
    }

    fn crash(&mut self) {
        self.crashes += 1;
        match self.random.one_in(2) {
            true => self.disk.kill(),
            false => self.disk.power_cut(),
        }
        let options = OpenOptions {
            clean_shutdown: false,
            recovery_point: self.recovery_point,
            log_start_offset: self.start_offset,
            now_ms: START_MS,
            ..OpenOptions::default()
        };
        let disk = disk_of(&self.disk, self.has_memory);
        let opened = PartitionLog::open(disk, Path::new(DIRECTORY), self.config.clone(), options);
        let (log, _) = opened.unwrap_or_else(|error| panic!("seed {}: {error}", self.seed));
        let kept = self.visible.bound.offset;
        assert!(
            log.end_offset() >= kept,
            "seed {}: acknowledged records are gone",
            self.seed
        );
        self.log = log;
        self.events
            .retain(|event| event.last_offset < self.log.end_offset());
        self.events.iter_mut().for_each(|event| event.is_new = false);
        self.appended_bytes = 0;
        self.tickets.clear();
        self.recovery_point = self.log.recovery_point().min(self.recovery_point);
        self.stable.bound.offset = 0;
        let bound = self.log.end();
        self.move_high_watermark(Visible { bound, bytes: 0 });
    }

    fn check(&mut self) {
        let seed = self.seed;
        let high_watermark = self.visible.bound.offset;
        let transactions = self.transactions();
        let is_unstable = |one: &&Transaction| one.end.is_none_or(|end| end >= high_watermark);
        let unstable = transactions.iter().filter(is_unstable);
        let expected = unstable
            .map(|one| one.first_offset)
            .fold(high_watermark, i64::min);
        assert_eq!(
            self.stable.bound.offset, expected,
            "seed {seed}: {transactions:?}"
        );
        let below = |event: &&Event| event.is_new && event.base_offset < expected;
        let bytes: u64 = self.events.iter().filter(below).map(|event| event.bytes).sum();
        assert_eq!(self.stable.bytes, bytes, "seed {seed}");
        self.check_open(&transactions);
        let stable = expected.max(self.start_offset);
        let from = self.start_offset + self.random.below((stable - self.start_offset + 1) as u64) as i64;
        self.check_region(from, &transactions);
    }

    fn check_open(&self, transactions: &[Transaction]) {
        let open = transactions.iter().filter(|one| one.end.is_none());
        let mut expected: Vec<(i64, i64)> = open.map(|one| (one.producer_id, one.first_offset)).collect();
        expected.sort_unstable();
        let producers = self.log.active_producers();
        let found: Vec<(i64, i64)> = producers
            .filter(|producer| producer.transaction_first_offset >= 0)
            .map(|producer| (producer.producer_id, producer.transaction_first_offset))
            .collect();
        assert_eq!(found, expected, "seed {}", self.seed);
    }

    /// Reads as a consumer of committed records does.
    fn check_region(&mut self, from: i64, transactions: &[Transaction]) {
        let seed = self.seed;
        let bytes_max = 1 + self.random.below(1_500) as u32;
        let read_to = |bound| {
            self.log
                .reader()
                .read(from, bytes_max, true, bound, ReadMode::Blocking)
        };
        let Ok(Read::Region(read)) = read_to(self.stable.bound) else {
            assert_eq!(from, self.stable.bound.offset, "seed {seed}: nothing to read");
            return;
        };
        let searched = Bound {
            position: None,
            ..self.stable.bound
        };
        let Ok(Read::Region(again)) = read_to(searched) else {
            panic!("seed {seed}: nothing found without the position");
        };
        assert_eq!(read.region.bytes, again.region.bytes, "seed {seed}");
        let mut buffer = vec![0; read.region.bytes as usize];
        read.region
            .file
            .read_at(&mut buffer, read.region.position)
            .expect("readable");
        let mut rest = &buffer[..];
        let mut last_offset = from;
        while rest.len() >= HEADER_BYTES {
            let header = BatchHeader::parse(rest).expect("whole batches");
            last_offset = header.last_offset();
            rest = &rest[header.total_bytes()..];
        }
        assert!(last_offset < read.end_offset, "seed {seed}");
        assert!(read.end_offset <= self.stable.bound.offset, "seed {seed}");
        let listed = self.log.reader().aborted_transactions(from, read.end_offset);
        let mut listed: Vec<i64> = listed.iter().map(|one| one.last_offset).collect();
        listed.sort_unstable();
        let aborted = transactions.iter().filter(|one| !one.is_commit);
        for (one, end) in aborted.filter_map(|one| Some((one, one.end?))) {
            let begins_before = |first_offset| end >= from && first_offset < read.end_offset;
            // Of a transaction whose first records were deleted a restart may know the rest only.
            let must = begins_before(self.first_kept_offset(one));
            let may = begins_before(one.first_offset);
            let is_listed = listed.binary_search(&end).is_ok();
            let range = from..read.end_offset;
            assert!(is_listed || !must, "seed {seed}, {range:?}: {one:?} is missing");
            assert!(may || !is_listed, "seed {seed}, {range:?}: {one:?} is listed");
            self.listed += u32::from(is_listed);
        }
    }

    /// The first batch of a transaction that is not below the log's start.
    fn first_kept_offset(&self, transaction: &Transaction) -> i64 {
        let span = transaction.first_offset..transaction.end.unwrap_or(i64::MAX);
        let of_transaction = |event: &&Event| {
            let is_data = matches!(event.kind, Kind::Data { producer_id, .. } if producer_id == transaction.producer_id);
            is_data && span.contains(&event.base_offset) && event.last_offset >= self.start_offset
        };
        let kept = self.events.iter().find(of_transaction);
        kept.map_or(i64::MAX, |event| event.base_offset)
    }
}

fn seeds(default: Range<u64>) -> Range<u64> {
    let Ok(range) = std::env::var("OTTLA_TRANSACTION_SEEDS") else {
        return default;
    };
    let (from, to) = range.split_once("..").expect("from..to");
    from.parse().expect("a number")..to.parse().expect("a number")
}

#[test]
fn committed_reads_agree_with_a_model_through_kills_and_power_cuts() {
    let (mut crashes, mut refused, mut listed) = (0, 0, 0);
    for seed in seeds(0..60) {
        let mut world = World::new(seed);
        world.run(150);
        crashes += world.crashes;
        refused += world.refused;
        listed += world.listed;
    }
    assert!(
        crashes > 100 && refused > 100 && listed > 500,
        "{crashes} {refused} {listed}"
    );
}
