//! Compaction keeps the last record of each key, and a crash during it loses nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use ottla_log::disk::Disk;
use ottla_log::disk::memory::{MemoryDisk, Random};
use ottla_log::{
    BatchToAppend, CompactionJob, CompactionStatistics, LogConfig, LogError, Lookup, OpenOptions,
    PartitionLog, Read, ReadError, ReadMode, RecoveryReport,
};
use ottla_wire::primitives::Uuid;
use ottla_wire::records::batch::{Batch, BatchHeader, batches, seal};
use ottla_wire::records::builder::{BatchBuilder, BatchOptions};
use ottla_wire::records::compression::{Codec, Compression, decompress};
use ottla_wire::records::record::Records;

const DIRECTORY: &str = "data/compacted-0";
const START_MS: i64 = 1_700_000_000_000;
const DAY_MS: i64 = 24 * 60 * 60 * 1000;
const MAP_BYTES: usize = 1 << 20;

/// Offset, key (without one: empty) and value.
type Record = (i64, Vec<u8>, Option<Vec<u8>>);

struct World {
    disk: MemoryDisk,
    log: PartitionLog,
    now_ms: i64,
    recovery_point: i64,
    first_dirty_offset: i64,
    /// Of the last compaction.
    statistics: CompactionStatistics,
}

fn config() -> LogConfig {
    LogConfig {
        segment_bytes: 4_000,
        index_interval_bytes: 300,
        compact: true,
        delete: false,
        min_cleanable_dirty_ratio: 0.01,
        ..LogConfig::default()
    }
}

impl World {
    fn new(seed: u64) -> World {
        let disk = MemoryDisk::new(seed);
        let log = PartitionLog::create(
            disk.shared(),
            Path::new(DIRECTORY),
            Uuid([1; 16]),
            config(),
            0,
            START_MS,
        )
        .expect("created");
        disk.sync_directory(Path::new("")).expect("synced");
        World {
            disk,
            log,
            now_ms: START_MS,
            recovery_point: 0,
            first_dirty_offset: 0,
            statistics: CompactionStatistics::default(),
        }
    }

    fn configure(&mut self, change: impl FnOnce(&mut LogConfig)) {
        let mut config = self.log.config().clone();
        change(&mut config);
        self.log.set_config(config);
    }

    fn append(&mut self, options: BatchOptions, records: &[(Vec<u8>, Option<Vec<u8>>)]) {
        self.now_ms += 1;
        let mut builder = BatchBuilder::new(options);
        for (key, value) in records {
            builder.append(self.now_ms, Some(key), value.as_deref(), &[]);
        }
        self.append_bytes(&builder.finish());
    }

    fn append_bytes(&mut self, bytes: &[u8]) {
        let batch = BatchToAppend::from(Batch::parse(bytes).expect("built"));
        self.log.append(&[batch], 1, self.now_ms).expect("appended");
    }

    fn append_one(&mut self, key: &str, value: Option<&str>) {
        let record = (
            key.as_bytes().to_vec(),
            value.map(|value| value.as_bytes().to_vec()),
        );
        self.append(BatchOptions::default(), &[record]);
    }

    /// Appends a record with this timestamp, at the present time.
    fn append_at(&mut self, timestamp: i64) {
        let mut builder = BatchBuilder::new(BatchOptions::default());
        builder.append(timestamp, Some(b"key"), Some(b"value"), &[]);
        self.append_bytes(&builder.finish());
    }

    /// Closes the active segment, although it is not full.
    fn roll(&mut self) {
        let config = self.log.config().clone();
        self.configure(|config| config.max_compaction_lag_ms = -1);
        self.log.roll_if_overdue(self.now_ms + DAY_MS).expect("rolled");
        self.log.set_config(config);
    }

    /// Closes the active segment and makes everything compactable.
    fn roll_and_checkpoint(&mut self) {
        self.roll();
        self.checkpoint().expect("checkpoint");
        assert_eq!(self.recovery_point, self.log.end_offset());
    }

    fn marker(&mut self, producer_id: i64, committed: bool) {
        self.marker_of_epoch(producer_id, 0, committed);
    }

    fn marker_of_epoch(&mut self, producer_id: i64, producer_epoch: i16, committed: bool) {
        let options = BatchOptions {
            producer_id,
            producer_epoch,
            is_transactional: true,
            is_control: true,
            ..BatchOptions::default()
        };
        let mut builder = BatchBuilder::new(options);
        builder.append(
            self.now_ms,
            Some(&[0, 0, 0, u8::from(committed)]),
            Some(&[0, 0, 0, 0, 0, 9]),
            &[],
        );
        self.append_bytes(&builder.finish());
    }

    fn checkpoint(&mut self) -> Result<(), LogError> {
        self.log.request_checkpoint();
        if let Some(job) = self.log.begin_sync() {
            let result = job.run();
            self.log.finish_sync(job, result)?;
        }
        if let Some(job) = self.log.take_checkpoint() {
            let result = job.run();
            self.recovery_point = self.log.finish_checkpoint(job, result)?;
        }
        Ok(())
    }

    /// Returns true if there was something to do.
    fn compact(&mut self, map_bytes: usize) -> Result<bool, LogError> {
        let Some(mut job) = self.plan() else {
            return Ok(false);
        };
        let result = job.run(map_bytes).and_then(|()| {
            self.log.install_compaction(&job);
            job.replace_files()
        });
        self.statistics = job.statistics;
        self.first_dirty_offset = self.log.finish_compaction(job);
        result.map(|()| true)
    }

    fn plan(&mut self) -> Option<CompactionJob> {
        let reader = self.log.reader();
        // Damage does not keep a compaction from being tried.
        match reader.load_compaction_times(self.first_dirty_offset) {
            Err(ReadError::Log(LogError::Corrupt { .. })) => {}
            loaded => loaded.expect("readable"),
        }
        self.log
            .plan_compaction(self.now_ms, self.first_dirty_offset, self.log.durable_offset())
    }

    /// Whether a compaction would begin now.
    fn is_due(&mut self) -> bool {
        let job = self.plan();
        job.map(|job| self.log.finish_compaction(job)).is_some()
    }

    fn must_move_recovery_point(&self) -> bool {
        let high_watermark = self.log.durable_offset();
        self.log
            .must_move_recovery_point(self.now_ms, self.first_dirty_offset, high_watermark)
    }

    fn reopen(&mut self, clean_shutdown: bool) -> Result<RecoveryReport, LogError> {
        let options = OpenOptions {
            clean_shutdown,
            recovery_point: self.recovery_point,
            log_start_offset: 0,
            now_ms: self.now_ms,
            ..OpenOptions::default()
        };
        let config = self.log.config().clone();
        let (log, report) = PartitionLog::open(self.disk.shared(), Path::new(DIRECTORY), config, options)?;
        self.log = log;
        Ok(report)
    }

    /// The names of the files that end with `suffix`, without it.
    fn files(&self, suffix: &str) -> BTreeSet<String> {
        let listed = self.disk.list(Path::new(DIRECTORY)).expect("listed");
        let names = listed.iter().filter_map(|entry| entry.path.file_name()?.to_str());
        names
            .filter_map(|name| name.strip_suffix(suffix).map(str::to_owned))
            .collect()
    }

    fn read_file(&self, name: &str) -> Vec<u8> {
        self.disk
            .read_file(&Path::new(DIRECTORY).join(name))
            .expect("there")
    }

    /// The base offsets of the segments' files.
    fn bases(&self) -> Vec<i64> {
        let names = self.files(".log");
        names
            .iter()
            .map(|name| name.parse().expect("an offset"))
            .collect()
    }

    /// Bytes of the closed segments' files.
    fn closed_bytes(&self) -> u64 {
        let names = self.files(".log");
        let lengths = names
            .iter()
            .map(|name| self.read_file(&format!("{name}.log")).len() as u64);
        let all: Vec<u64> = lengths.collect();
        all[..all.len() - 1].iter().sum()
    }

    /// Checks that the directory holds the log's segments, their indexes, and nothing else of
    /// segments; and that the index entries tell where batches are.
    fn check_files(&self) {
        let segments = self.files(".log");
        for suffix in [".cleaned", ".swap"] {
            assert_eq!(self.files(suffix), BTreeSet::new(), "{suffix}");
        }
        for suffix in [".index", ".timeindex", ".txnindex"] {
            let indexes = self.files(suffix);
            assert!(
                indexes.is_subset(&segments),
                "{suffix}: {indexes:?} of {segments:?}"
            );
        }
        let bytes: usize = segments
            .iter()
            .map(|name| self.read_file(&format!("{name}.log")).len())
            .sum();
        assert_eq!(bytes as u64, self.log.bytes());
        for name in self.files(".index") {
            let base_offset: i64 = name.parse().expect("an offset");
            let segment = self.read_file(&format!("{name}.log"));
            for entry in self.read_file(&format!("{name}.index")).chunks_exact(8) {
                let word = |at: usize| u32::from_be_bytes(entry[at..at + 4].try_into().expect("four bytes"));
                let header = BatchHeader::parse(&segment[word(4) as usize..]).expect("a batch is there");
                assert_eq!(header.last_offset(), base_offset + i64::from(word(0)), "{name}");
            }
        }
    }

    fn batches(&self) -> Vec<(BatchHeader, Vec<Record>)> {
        let reader = self.log.reader();
        let mut found = Vec::new();
        let mut offset = 0;
        while let Ok(Read::Region(read)) = reader.read(offset, 1, true, self.log.end(), ReadMode::Blocking) {
            let mut bytes = vec![0; read.region.bytes as usize];
            read.region
                .file
                .read_at(&mut bytes, read.region.position)
                .expect("readable");
            for batch in batches(&bytes) {
                let batch = batch.expect("one whole batch");
                batch.verify_checksum().expect("intact");
                let mut records = Vec::new();
                let codec = batch.header.compression().expect("known");
                if batch.header.record_count > 0 {
                    decompress(codec, batch.record_bytes(), 1 << 20, &mut records).expect("intact");
                }
                let records = Records::new(&batch.header, &records).map(|record| {
                    let record = record.expect("well formed");
                    let key = record.key.unwrap_or_default().to_vec();
                    (record.offset, key, record.value.map(<[u8]>::to_vec))
                });
                let records = if batch.header.record_count > 0 {
                    records.collect()
                } else {
                    Vec::new()
                };
                offset = batch.header.next_offset();
                found.push((batch.header, records));
            }
        }
        found
    }

    fn records(&self) -> Vec<Record> {
        let data = self
            .batches()
            .into_iter()
            .filter(|(header, _)| !header.is_control());
        data.flat_map(|(_, records)| records).collect()
    }

    /// Returns the last value of each key, without tombstones.
    fn table(&self) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let mut table = BTreeMap::new();
        for (_, key, value) in self.records() {
            match value {
                Some(value) => table.insert(key, value),
                None => table.remove(&key),
            };
        }
        table
    }
}

fn fill(world: &mut World, random: &mut Random, batch_count: u32, key_count: u64) {
    for _ in 0..batch_count {
        let codec = [Codec::None, Codec::Lz4, Codec::Zstd][random.below(3) as usize];
        let options = BatchOptions {
            compression: codec.into(),
            ..BatchOptions::default()
        };
        let records: Vec<(Vec<u8>, Option<Vec<u8>>)> = (0..1 + random.below(4))
            .map(|_| {
                let key = format!("key {}", random.below(key_count)).into_bytes();
                let value = (!random.one_in(5)).then(|| format!("{:>60}", random.next()).into_bytes());
                (key, value)
            })
            .collect();
        world.append(options, &records);
    }
}

#[test]
fn only_the_last_record_of_a_key_is_kept_and_offsets_do_not_change() {
    let mut world = World::new(1);
    fill(&mut world, &mut Random::new(7), 400, 40);
    let (before, table, end_offset) = (world.records(), world.table(), world.log.end_offset());
    world.checkpoint().expect("checkpoint");
    let bytes_read = world.closed_bytes();
    assert!(world.compact(MAP_BYTES).expect("compacted"));
    let first_dirty_offset = world.first_dirty_offset;
    let after = world.records();
    assert_eq!(world.table(), table);
    world.check_files();
    let count = |records: &[Record]| {
        let clean = records.iter().filter(|record| record.0 < first_dirty_offset);
        clean.count() as u64
    };
    let expected = CompactionStatistics {
        bytes_read,
        bytes_written: world.closed_bytes(),
        records_read: count(&before),
        records_kept: count(&after),
    };
    assert_eq!(world.statistics, expected);
    assert!(world.bases().len() > 2, "several are written");
    assert!(after.iter().all(|record| before.contains(record)));
    let clean: Vec<&Record> = after
        .iter()
        .filter(|record| record.0 < first_dirty_offset)
        .collect();
    let keys: BTreeSet<&[u8]> = clean.iter().map(|record| record.1.as_slice()).collect();
    assert!(
        clean.len() <= 40 && keys.len() == clean.len(),
        "{} records",
        clean.len()
    );
    assert_eq!(world.log.end_offset(), end_offset);
    assert!(!world.compact(MAP_BYTES).expect("nothing new"));
    world.recovery_point = world.log.close().expect("closed");
    let report = world.reopen(true).expect("opens");
    assert_eq!((report.rebuilt_indexes, report.findings), (0, Vec::new()));
    assert_eq!(world.records(), after);
}

#[test]
fn a_batch_that_keeps_all_of_its_records_stays_as_it_is() {
    let packed = |level| {
        let mut builder = BatchBuilder::new(BatchOptions {
            compression: Compression {
                codec: Codec::Gzip,
                level,
            },
            ..BatchOptions::default()
        });
        let value = (0..200).fold(String::new(), |text, number| {
            text + &(number * number).to_string()
        });
        builder.append(START_MS, Some(b"a"), Some(value.as_bytes()), &[]);
        builder.append(START_MS, Some(b"b"), Some(value.as_bytes()), &[]);
        builder.finish()
    };
    assert_ne!(
        packed(Some(1)),
        packed(None),
        "it is not packed as we would pack it"
    );
    let mut world = World::new(1);
    world.append_bytes(&packed(Some(1)));
    world.append_one("c", Some("replaced"));
    world.append_one("c", Some("last"));
    world.roll_and_checkpoint();
    assert!(world.compact(MAP_BYTES).expect("compacted"));
    let after = world.read_file("00000000000000000000.log");
    // From the checksum on: offset and leader epoch are the log's.
    assert_eq!(after[17..packed(Some(1)).len()], packed(Some(1))[17..]);
    assert_eq!(world.records().len(), 3);
}

/// A segment that was closed just behind the last record can be compacted to its end.
#[test]
fn every_record_of_a_closed_segment_counts_up_to_the_first_dirty_one() {
    let mut world = World::new(1);
    world.append_one("a", Some("1"));
    world.append_one("b", Some("1"));
    world.roll_and_checkpoint();
    assert!(world.compact(MAP_BYTES).expect("compacted"));
    assert_eq!((world.first_dirty_offset, world.log.end_offset()), (2, 2));
    // Only the first dirty record replaces anything.
    world.append_one("a", Some("2"));
    world.append_one("c", Some("1"));
    world.roll_and_checkpoint();
    assert!(world.compact(MAP_BYTES).expect("compacted"));
    let offsets: Vec<i64> = world.records().iter().map(|record| record.0).collect();
    assert_eq!((offsets, world.first_dirty_offset), (vec![1, 2, 3], 4));
}

/// Such records are from a time before the topic was compacted.
#[test]
fn records_without_a_key_are_dropped_even_at_the_end() {
    let mut world = World::new(1);
    for _ in 0..2 {
        let mut builder = BatchBuilder::new(BatchOptions::default());
        builder.append(START_MS, None, Some(b"without"), &[]);
        world.append_bytes(&builder.finish());
        world.append_one("key", Some("value"));
    }
    let mut builder = BatchBuilder::new(BatchOptions::default());
    builder.append(START_MS, Some(b"other"), Some(b"value"), &[]);
    builder.append(START_MS, None, Some(b"without"), &[]);
    world.append_bytes(&builder.finish());
    world.roll_and_checkpoint();
    assert!(world.compact(MAP_BYTES).expect("compacted"));
    let offsets: Vec<i64> = world.records().iter().map(|record| record.0).collect();
    assert_eq!(offsets, [3, 4]);
}

#[test]
fn closed_segments_are_merged_up_to_the_size_of_a_segment() {
    for (fitting, missing_bytes, bases) in [
        (3, 0, &[0, 3, 6][..]),
        (3, 1, &[0, 2, 4, 6]),
        (1, 0, &[0, 1, 2, 3, 4, 5, 6]),
    ] {
        let mut world = World::new(1);
        for number in 0..6 {
            world.append_one(&format!("key {number}"), Some("value"));
            world.roll();
        }
        world.checkpoint().expect("checkpoint");
        assert_eq!(world.bases(), [0, 1, 2, 3, 4, 5, 6]);
        let (table, one) = (
            world.table(),
            world.read_file("00000000000000000000.log").len() as u32,
        );
        world.configure(|config| config.segment_bytes = fitting * one - missing_bytes);
        assert!(world.compact(MAP_BYTES).expect("compacted"));
        assert_eq!(
            world.bases(),
            bases,
            "{fitting} fit, but for {missing_bytes} bytes"
        );
        assert_eq!(world.table(), table);
        world.check_files();
        world.recovery_point = world.log.close().expect("closed");
        world.reopen(true).expect("opens");
        assert_eq!(world.table(), table);
    }
}

/// Index entries have 31 bits for an offset.
#[test]
fn segments_whose_offsets_are_too_far_apart_are_not_merged() {
    const FAR: i64 = i32::MAX as i64;
    let mut world = World::new(1);
    for (number, offsets) in [FAR - 1, 1, 1, FAR - 1, 1].into_iter().enumerate() {
        let mut builder = BatchBuilder::new(BatchOptions::default());
        builder.append(
            START_MS,
            Some(format!("key {number}").as_bytes()),
            Some(b"value"),
            &[],
        );
        let narrow = builder.finish();
        let batch = Batch::parse(&narrow).expect("built");
        let wide = BatchHeader {
            last_offset_delta: (offsets - 1) as i32,
            ..batch.header
        };
        let mut builder = BatchBuilder::replacing(&wide, Vec::new(), None);
        let record = batch.records().next().expect("one").expect("intact");
        builder.append_record(&record).expect("in order");
        world.append_bytes(&builder.finish());
        world.roll();
    }
    world.checkpoint().expect("checkpoint");
    assert_eq!(world.bases(), [0, FAR - 1, FAR, FAR + 1, 2 * FAR, 2 * FAR + 1]);
    let table = world.table();
    assert!(world.compact(MAP_BYTES).expect("compacted"));
    assert_eq!(world.bases(), [0, FAR, 2 * FAR, 2 * FAR + 1]);
    assert_eq!(world.table(), table);
}

#[test]
fn nothing_is_due_where_compaction_is_off_under_way_or_the_log_is_poisoned() {
    let mut world = World::new(1);
    fill(&mut world, &mut Random::new(7), 100, 10);
    let job = world.log.begin_sync().expect("something to sync");
    let result = job.run();
    world.log.finish_sync(job, result).expect("synced");
    assert!(world.must_move_recovery_point() && !world.is_due());
    world.checkpoint().expect("checkpoint");
    assert!(world.is_due());
    world.configure(|config| config.compact = false);
    let segment_count = world.bases().len();
    world.roll();
    assert_eq!(world.bases().len(), segment_count, "nothing is closed early");
    assert!(!world.is_due());
    world.configure(|config| config.compact = true);
    let job = world.plan().expect("due");
    assert!(world.plan().is_none(), "one is under way");
    world.log.finish_compaction(job);
    assert!(world.is_due());
    world.disk.fail_next_write();
    let mut builder = BatchBuilder::new(BatchOptions::default());
    builder.append(START_MS, Some(b"key"), Some(b"value"), &[]);
    let bytes = builder.finish();
    let batch = BatchToAppend::from(Batch::parse(&bytes).expect("built"));
    world
        .log
        .append(&[batch], 1, START_MS)
        .expect_err("the disk fails");
    assert!(!world.is_due() && world.log.poison().is_some());
    world.roll();
    assert_eq!(world.bases().len(), segment_count, "nothing is written");
}

#[test]
fn the_recovery_point_must_move_only_where_more_could_be_compacted() {
    let mut world = World::new(1);
    assert!(!world.must_move_recovery_point());
    world.append_one("key", Some("1"));
    world.roll();
    world.append_one("key", Some("2"));
    let job = world.log.begin_sync().expect("something to sync");
    let result = job.run();
    world.log.finish_sync(job, result).expect("synced");
    assert!(world.must_move_recovery_point());
    world.checkpoint().expect("checkpoint");
    assert!(!world.must_move_recovery_point(), "it is beyond");
    world.roll_and_checkpoint();
    assert!(!world.must_move_recovery_point(), "it is where compaction ends");
    assert!(world.is_due());
}

#[test]
fn an_active_segment_is_closed_when_its_first_record_has_waited_too_long() {
    for (first, waits) in [(START_MS, true), (0, true), (-1, false)] {
        let mut world = World::new(1);
        world.configure(|config| (config.max_compaction_lag_ms, config.segment_ms) = (1_000, i64::MAX));
        let bases_at = |world: &mut World, now_ms| {
            world.log.roll_if_overdue(now_ms).expect("rolled");
            world.bases()
        };
        assert_eq!(bases_at(&mut world, START_MS + DAY_MS), [0], "it is empty");
        world.append_at(first);
        assert_eq!(bases_at(&mut world, first + 1_000), [0], "{first}");
        let closed: &[i64] = if waits { &[0, 1] } else { &[0] };
        assert_eq!(bases_at(&mut world, first + 1_001), closed, "{first}");
        assert_eq!(bases_at(&mut world, START_MS + DAY_MS), closed, "{first}");
    }
}

#[test]
fn records_stay_uncompacted_for_the_min_compaction_lag() {
    let mut world = World::new(1);
    world.append_at(START_MS + 500);
    world.append_at(START_MS + 100);
    world.roll_and_checkpoint();
    world.now_ms = START_MS;
    assert!(world.is_due(), "without a lag even records from the future");
    world.configure(|config| config.min_compaction_lag_ms = 1_000);
    world.now_ms = START_MS + 1_500;
    assert!(!world.is_due());
    world.now_ms += 1;
    assert!(world.is_due());
    // The newest timestamp of a segment must be known.
    world.recovery_point = world.log.close().expect("closed");
    world.reopen(true).expect("opens");
    let blind = world
        .log
        .plan_compaction(START_MS + DAY_MS, 0, world.log.end_offset());
    assert!(blind.is_none(), "{blind:?}");
    assert!(world.is_due());
}

#[test]
fn a_record_that_has_waited_for_the_max_compaction_lag_is_due_whatever_the_ratio() {
    for (first, waits) in [(START_MS, true), (0, true), (-1, false)] {
        let mut world = World::new(1);
        world.configure(|config| {
            config.min_cleanable_dirty_ratio = 1.0;
            (config.max_compaction_lag_ms, config.segment_ms) = (1_000, i64::MAX);
        });
        world.append_at(first);
        world.append_at(first.max(0) + 400);
        world.configure(|config| config.segment_bytes = 1);
        world.append_at(START_MS);
        assert_eq!(world.bases(), [0, 2]);
        world.checkpoint().expect("checkpoint");
        world.now_ms = first + 1_000;
        assert!(!world.is_due(), "{first}");
        world.now_ms += 1;
        assert_eq!(world.is_due(), waits, "{first}");
        // The largest timestamp is known earlier than the first.
        let end_offset = world.log.end_offset();
        world.recovery_point = world.log.close().expect("closed");
        world.reopen(true).expect("opens");
        world.log.reader().load_timestamps().expect("readable");
        let mut is_due_at = |now_ms| {
            let job = world.log.plan_compaction(now_ms, 0, end_offset);
            job.map(|job| world.log.finish_compaction(job)).is_some()
        };
        let largest = first.max(0) + 400;
        assert_eq!(
            (is_due_at(largest + 1_000), is_due_at(largest + 1_001)),
            (false, true)
        );
        assert_eq!(world.is_due(), waits, "{first}");
    }
}

#[test]
fn a_log_is_due_when_more_than_the_ratio_is_dirty() {
    let mut world = World::new(1);
    fill(&mut world, &mut Random::new(7), 200, 1_000);
    world.roll_and_checkpoint();
    assert!(world.compact(MAP_BYTES).expect("compacted"));
    assert!(!world.is_due(), "nothing is dirty");
    let clean_bytes = world.closed_bytes();
    fill(&mut world, &mut Random::new(8), 20, 1_000);
    world.roll_and_checkpoint();
    let all_bytes = world.closed_bytes();
    let ratio = (all_bytes - clean_bytes) as f64 / all_bytes as f64;
    assert!(ratio < 0.5, "{ratio}");
    world.configure(|config| config.min_cleanable_dirty_ratio = ratio);
    assert!(!world.is_due());
    world.configure(|config| config.min_cleanable_dirty_ratio = ratio * 0.999);
    assert!(world.is_due());
}

#[test]
fn a_small_map_needs_several_runs_for_the_same_result() {
    let mut tables = Vec::new();
    for map_bytes in [MAP_BYTES, 16 * 24] {
        let mut world = World::new(1);
        fill(&mut world, &mut Random::new(9), 300, 60);
        world.checkpoint().expect("checkpoint");
        let mut runs = 0;
        while world.compact(map_bytes).expect("compacted") {
            runs += 1;
            assert!(runs < 200, "no progress at {}", world.first_dirty_offset);
        }
        assert!(runs > 5 || map_bytes == MAP_BYTES, "{runs} runs");
        tables.push((world.table(), world.first_dirty_offset));
    }
    assert!(
        tables[0] == tables[1],
        "stopped at {} and {}",
        tables[0].1,
        tables[1].1
    );
}

/// Above the recovery point a start reads every segment again, and a gap left by compaction would
/// look like a loss.
#[test]
fn nothing_beyond_the_recovery_point_is_compacted() {
    let mut world = World::new(1);
    fill(&mut world, &mut Random::new(3), 100, 10);
    world.checkpoint().expect("checkpoint");
    let before = world.batches();
    let checked_to = world.recovery_point;
    fill(&mut world, &mut Random::new(4), 200, 10);
    let job = world.log.begin_sync().expect("something to sync");
    let result = job.run();
    world.log.finish_sync(job, result).expect("synced");
    assert!(world.log.durable_offset() > checked_to);
    let appended = world.batches();
    assert!(world.compact(MAP_BYTES).expect("compacted"));
    let after = world.batches();
    assert!(
        after
            .iter()
            .filter(|(header, _)| header.base_offset < checked_to)
            .count()
            < before.len()
    );
    let beyond = |batches: &[(BatchHeader, Vec<Record>)]| -> Vec<i64> {
        let offsets = batches.iter().map(|(header, _)| header.base_offset);
        offsets.filter(|offset| *offset >= checked_to).collect()
    };
    assert_eq!(beyond(&after), beyond(&appended));
    world.checkpoint().expect("checkpoint");
    assert!(world.compact(MAP_BYTES).expect("compacted"));
    assert!(beyond(&world.batches()).len() < beyond(&appended).len());
}

#[test]
fn tombstones_outlive_their_keys_by_the_delete_retention() {
    let mut world = World::new(1);
    world.append(
        BatchOptions::default(),
        &[(b"gone".to_vec(), Some(b"value".to_vec()))],
    );
    world.append(BatchOptions::default(), &[(b"gone".to_vec(), None)]);
    fill(&mut world, &mut Random::new(3), 100, 10);
    world.checkpoint().expect("checkpoint");
    assert!(world.compact(MAP_BYTES).expect("compacted"));
    let tombstone = |world: &World| {
        let all = world.batches();
        all.into_iter()
            .find(|(_, records)| records.iter().any(|record| record.1 == b"gone"))
    };
    let (header, records) = tombstone(&world).expect("kept at first");
    assert_eq!((records.len(), &records[0].2), (1, &None));
    assert_eq!(header.delete_horizon_ms(), Some(world.now_ms + DAY_MS));
    world.now_ms += DAY_MS + 1;
    fill(&mut world, &mut Random::new(4), 100, 10);
    world.checkpoint().expect("checkpoint");
    assert!(world.compact(MAP_BYTES).expect("compacted"));
    assert!(tombstone(&world).is_none());
}

/// One batch holds a tombstone and the last value of another key.
#[test]
fn a_horizon_is_set_once_and_concerns_tombstones_only() {
    let mut world = World::new(1);
    let record = |key: &[u8], value: Option<&[u8]>| (key.to_vec(), value.map(<[u8]>::to_vec));
    world.append_one("gone", Some("value"));
    world.append(
        BatchOptions::default(),
        &[record(b"gone", None), record(b"stays", Some(b"value"))],
    );
    world.append_one("other", Some("value"));
    let compact_at = |world: &mut World, now_ms: Option<i64>| {
        world.append_one("more", Some("value"));
        world.roll_and_checkpoint();
        world.now_ms = now_ms.unwrap_or(world.now_ms);
        assert!(world.compact(MAP_BYTES).expect("compacted"));
        let all = world.batches();
        let (with, without): (Vec<_>, Vec<_>) = all
            .into_iter()
            .partition(|(header, _)| header.has_delete_horizon());
        assert_eq!(without.len(), 2, "other and more");
        let [(header, records)] = &with[..] else {
            panic!("{with:?}")
        };
        let keys: Vec<String> = records
            .iter()
            .map(|record| String::from_utf8_lossy(&record.1).into_owned())
            .collect();
        (header.delete_horizon_ms().expect("it has one"), keys)
    };
    let (horizon, keys) = compact_at(&mut world, None);
    assert_eq!((horizon, keys.len()), (world.now_ms + DAY_MS, 2));
    assert_eq!(compact_at(&mut world, Some(horizon - 1)), (horizon, keys));
    let (horizon_at_end, keys) = compact_at(&mut world, Some(horizon));
    assert_eq!((horizon_at_end, keys), (horizon, vec!["stays".to_owned()]));
    assert_eq!(world.table().get(b"stays".as_slice()), Some(&b"value".to_vec()));
}

#[test]
fn a_producers_last_batch_is_kept_without_its_records() {
    let mut world = World::new(1);
    let produced = |sequence| BatchOptions {
        producer_id: 5,
        producer_epoch: 0,
        base_sequence: sequence,
        ..BatchOptions::default()
    };
    world.append(produced(0), &[(b"k".to_vec(), Some(b"1".to_vec()))]);
    world.append(produced(1), &[(b"k".to_vec(), Some(b"2".to_vec()))]);
    world.append(BatchOptions::default(), &[(b"k".to_vec(), Some(b"3".to_vec()))]);
    fill(&mut world, &mut Random::new(3), 100, 10);
    world.checkpoint().expect("checkpoint");
    assert!(world.compact(MAP_BYTES).expect("compacted"));
    let all = world.batches();
    let of_producer: Vec<_> = all.iter().filter(|(header, _)| header.producer_id == 5).collect();
    let [(header, records)] = of_producer[..] else {
        panic!("{} batches", of_producer.len())
    };
    assert_eq!(
        (header.base_sequence, header.record_count, records.len()),
        (1, 0, 0)
    );
    // The timestamp of the emptied batch belongs to no record any more.
    let emptied_at = header.max_timestamp;
    let newest = world
        .log
        .reader()
        .offset_for_timestamp(emptied_at, world.log.end(), ReadMode::Blocking);
    assert!(matches!(newest, Ok(Lookup::Found(found)) if found.offset > header.last_offset()));
    // Without any snapshot the batch alone must restore the producer's state.
    for entry in world.disk.list(Path::new(DIRECTORY)).expect("listed") {
        if entry
            .path
            .extension()
            .is_some_and(|extension| extension == "snapshot")
        {
            world.disk.remove_file(&entry.path).expect("removed");
        }
    }
    world.disk.kill();
    world.recovery_point = 0;
    world.reopen(false).expect("opens");
    let again = {
        let mut builder = BatchBuilder::new(produced(1));
        builder.append(START_MS, Some(b"k"), Some(b"2"), &[]);
        let bytes = builder.finish();
        let batch = BatchToAppend::from(Batch::parse(&bytes).expect("built"));
        world.log.append(&[batch], 1, START_MS).expect("known")
    };
    assert!(again.duplicate);
}

#[test]
fn aborted_records_replace_nothing_and_are_removed() {
    let mut world = World::new(1);
    let in_transaction = |sequence| BatchOptions {
        producer_id: 8,
        producer_epoch: 0,
        base_sequence: sequence,
        is_transactional: true,
        ..BatchOptions::default()
    };
    world.append(
        BatchOptions::default(),
        &[(b"k".to_vec(), Some(b"committed".to_vec()))],
    );
    world.append(in_transaction(0), &[(b"k".to_vec(), Some(b"aborted".to_vec()))]);
    // The marker comes much later, in a segment that is not compacted yet.
    fill(&mut world, &mut Random::new(3), 60, 10);
    world.marker(8, false);
    world.checkpoint().expect("checkpoint");
    assert!(world.compact(MAP_BYTES).expect("compacted"));
    let value = world.table().get(b"k".as_slice()).cloned();
    assert_eq!(value.as_deref(), Some(b"committed".as_slice()));
    world.append(in_transaction(1), &[(b"t".to_vec(), Some(b"in".to_vec()))]);
    world.marker(8, true);
    fill(&mut world, &mut Random::new(3), 60, 10);
    world.checkpoint().expect("checkpoint");
    let aborted = world.log.reader().aborted_transactions(0, world.log.end_offset());
    assert_eq!(aborted.len(), 1);
    assert_eq!((aborted[0].first_offset, aborted[0].producer_id), (1, 8));
    assert!(world.compact(MAP_BYTES).expect("compacted"));
    let table = world.table();
    assert_eq!(
        table.get(b"k".as_slice()).map(Vec::as_slice),
        Some(b"committed".as_slice())
    );
    assert_eq!(
        table.get(b"t".as_slice()).map(Vec::as_slice),
        Some(b"in".as_slice())
    );
    // Both markers stay until their data is gone and a day has passed; the committed one as long as
    // its data exists.
    let markers = |world: &World| {
        world
            .batches()
            .iter()
            .filter(|(header, _)| header.is_control())
            .count()
    };
    assert_eq!(markers(&world), 2);
    for _ in 0..2 {
        world.now_ms += DAY_MS + 1;
        fill(&mut world, &mut Random::new(5), 60, 10);
        world.checkpoint().expect("checkpoint");
        assert!(world.compact(MAP_BYTES).expect("compacted"));
    }
    let left: Vec<_> = world
        .batches()
        .into_iter()
        .filter(|(header, _)| header.is_control())
        .collect();
    assert_eq!(
        left.iter().filter(|(_, records)| !records.is_empty()).count(),
        1,
        "{left:?}"
    );
    assert_eq!(
        world.log.reader().aborted_transactions(0, world.log.end_offset()),
        []
    );
}

#[test]
fn of_one_producer_committed_records_stay_and_aborted_ones_go() {
    let mut world = World::new(1);
    for (sequence, committed) in [(0, true), (1, false), (2, true)] {
        let options = BatchOptions {
            producer_id: 8,
            producer_epoch: 0,
            base_sequence: sequence,
            is_transactional: true,
            ..BatchOptions::default()
        };
        let key = format!("of {sequence}").into_bytes();
        world.append(options, &[(key, Some(b"value".to_vec()))]);
        world.marker(8, committed);
    }
    let markers_with_horizon = |world: &World| -> Vec<i64> {
        let all = world.batches();
        let markers = all
            .iter()
            .filter(|(header, _)| header.is_control() && header.has_delete_horizon());
        markers.map(|(header, _)| header.base_offset).collect()
    };
    // At first each marker has data; later that of the aborted one has gone.
    for expected in [&[][..], &[3]] {
        world.append_one("more", Some("value"));
        world.roll_and_checkpoint();
        assert!(world.compact(MAP_BYTES).expect("compacted"));
        let keys: Vec<Vec<u8>> = world.table().into_keys().collect();
        assert_eq!(keys, [&b"more"[..], b"of 0", b"of 2"]);
        assert_eq!(markers_with_horizon(&world), expected);
    }
}

/// A marker with a higher epoch fences the producer. It must stay known, although no record is left
/// of it.
#[test]
fn the_marker_that_holds_a_producers_epoch_is_kept_empty() {
    let mut world = World::new(1);
    world.marker_of_epoch(8, 0, true);
    world.marker_of_epoch(8, 1, true);
    world.append_one("key", Some("value"));
    let markers = |world: &World| -> Vec<(i64, usize)> {
        let all = world.batches();
        let markers = all.iter().filter(|(header, _)| header.is_control());
        markers
            .map(|(header, records)| (header.base_offset, records.len()))
            .collect()
    };
    for expected in [&[(0, 1), (1, 1)][..], &[(1, 0)], &[(1, 0)]] {
        world.append_one("more", Some("value"));
        world.roll_and_checkpoint();
        assert!(world.compact(MAP_BYTES).expect("compacted"));
        assert_eq!(markers(&world), expected);
        world.now_ms += DAY_MS;
    }
    // Another one takes its place.
    world.marker_of_epoch(8, 2, true);
    world.roll_and_checkpoint();
    assert!(world.compact(MAP_BYTES).expect("compacted"));
    assert_eq!(markers(&world), [(6, 1)]);
}

/// Of the metadata log, for example.
#[test]
fn control_records_of_no_producer_are_kept() {
    let mut world = World::new(1);
    let mut builder = BatchBuilder::new(BatchOptions {
        is_control: true,
        ..BatchOptions::default()
    });
    builder.append(START_MS, Some(&[0, 0, 0, 2]), Some(&[0, 0]), &[]);
    world.append_bytes(&builder.finish());
    for _ in 0..3 {
        world.append_one("key", Some("value"));
        world.roll_and_checkpoint();
        assert!(world.compact(MAP_BYTES).expect("compacted"));
        let first = world.batches().swap_remove(0).0;
        assert_eq!((first.base_offset, first.record_count), (0, 1));
        assert!(first.is_control() && !first.has_delete_horizon());
        world.now_ms += DAY_MS;
    }
}

#[test]
fn what_a_compaction_wrote_is_removed_when_the_disk_is_full() {
    let mut world = World::new(1);
    fill(&mut world, &mut Random::new(7), 200, 1_000);
    world.checkpoint().expect("checkpoint");
    let (table, segments) = (world.table(), world.files(".log"));
    // Three of many segments fit.
    let used_bytes = world.disk.used_bytes();
    world.disk.set_capacity(Some(used_bytes + 3 * 4_096));
    world.compact(MAP_BYTES).expect_err("the disk is full");
    assert_eq!(
        (world.disk.used_bytes(), world.files(".log")),
        (used_bytes, segments)
    );
    world.check_files();
    assert_eq!((world.first_dirty_offset, world.log.poison()), (0, None));
    world.disk.set_capacity(None);
    assert!(world.compact(MAP_BYTES).expect("compacted"));
    assert_eq!(world.table(), table);
    world.check_files();
}

#[test]
fn output_is_written_in_pieces_of_a_mebibyte_and_synced_once() {
    // Created, emptied, cut, synced and named; then the directory is synced.
    const OTHERS: u64 = 6;
    for (batch_count, value_bytes, pieces) in [(100, 100, 1), (36, 100_000, 4)] {
        let mut world = World::new(1);
        world.configure(|config| config.segment_bytes = 1 << 30);
        let value = "x".repeat(value_bytes);
        for number in 0..batch_count {
            world.append_one(&format!("key {number}"), Some(&value));
        }
        world.roll_and_checkpoint();
        let mut job = world.plan().expect("due");
        let before = world.disk.operations();
        job.run(MAP_BYTES).expect("runs");
        assert_eq!(world.disk.operations() - before, OTHERS + pieces);
        world.log.finish_compaction(job);
    }
}

/// Old files are removed as soon as it has run.
#[test]
fn a_power_cut_keeps_the_output_of_a_compaction_that_has_run() {
    for seed in 0..20 {
        let mut world = World::new(seed);
        fill(&mut world, &mut Random::new(seed), 100, 30);
        world.checkpoint().expect("checkpoint");
        let (table, bytes) = (world.table(), world.log.bytes());
        let mut job = world.plan().expect("due");
        job.run(MAP_BYTES).expect("runs");
        world.disk.power_cut();
        assert_eq!(world.files(".cleaned"), BTreeSet::new(), "seed {seed}");
        assert!(!world.files(".swap").is_empty(), "seed {seed}");
        world.reopen(false).expect("opens");
        assert_eq!(world.table(), table, "seed {seed}");
        assert!(world.log.bytes() < bytes, "seed {seed}");
    }
}

#[test]
fn a_crash_at_every_operation_of_a_compaction_keeps_the_table() {
    let build = |seed| {
        let mut world = World::new(seed);
        fill(&mut world, &mut Random::new(seed), 100, 30);
        world.checkpoint().expect("checkpoint");
        world
    };
    for seed in 0..3 {
        let mut world = build(seed);
        let (table, end_offset) = (world.table(), world.log.end_offset());
        let first = world.disk.operations() + 1;
        assert!(world.compact(MAP_BYTES).expect("compacted"));
        let last = world.disk.operations();
        assert!(last > first + 10);
        for operation in first..=last {
            let mut world = build(seed);
            world.disk.cut_power_at(operation);
            assert!(
                world.compact(MAP_BYTES).is_err(),
                "seed {seed}: operation {operation} happens"
            );
            if operation % 2 == 0 {
                world.disk.kill()
            } else {
                world.disk.power_cut()
            }
            world
                .reopen(false)
                .unwrap_or_else(|error| panic!("seed {seed}, operation {operation}: {error}"));
            assert_eq!(world.table(), table, "seed {seed}, operation {operation}");
            assert_eq!(
                world.log.end_offset(),
                end_offset,
                "seed {seed}, operation {operation}"
            );
            let listed = world.disk.list(Path::new(DIRECTORY)).expect("listed");
            let leftover = |name: &str| name.ends_with(".swap") || name.ends_with(".cleaned");
            assert!(!listed.iter().any(|entry| leftover(&entry.path.to_string_lossy())));
            world.first_dirty_offset = 0;
            assert!(
                world.compact(MAP_BYTES).expect("compacted"),
                "seed {seed}, operation {operation}"
            );
            assert_eq!(world.table(), table, "seed {seed}, operation {operation}");
        }
    }
}

fn path_of(base_offset: i64) -> PathBuf {
    Path::new(DIRECTORY).join(format!("{base_offset:020}.log"))
}

/// Contents of every file, by path.
fn contents(world: &World) -> BTreeMap<PathBuf, Vec<u8>> {
    let listed = world.disk.list(Path::new(DIRECTORY)).expect("listed");
    let contents = |path: &Path| world.disk.read_file(path).expect("there");
    let paths = listed.into_iter().map(|entry| entry.path);
    paths.map(|path| (path.clone(), contents(&path))).collect()
}

/// Checks that a compaction names the damage in the segment that begins at 0, and changes no file.
fn check_ends_at(world: &mut World, position: u64, case: &str) {
    let before = contents(world);
    let Err(error) = world.compact(MAP_BYTES) else {
        panic!("{case}: it was compacted")
    };
    let LogError::Corrupt {
        path, position: at, ..
    } = &error
    else {
        panic!("{case}: {error}")
    };
    assert_eq!((path, *at), (&path_of(0), position), "{case}: {error}");
    assert!(contents(world) == before, "{case}: a file was changed");
    assert!(world.is_due(), "{case}: it would not be tried again");
}

/// Two closed segments of six batches each, compacted up to the second one. The third batch of the
/// first holds the newest value of its key. Returns the bytes of a batch, too.
fn with_batches_of_one_length(seed: u64) -> (World, u64) {
    let mut world = World::new(seed);
    world.configure(|config| config.segment_bytes = 1 << 20);
    let value = "x".repeat(5_000);
    for key in ["a", "b", "n", "c", "d", "e", "f", "g", "h", "i", "j", "k"] {
        world.append_one(key, Some(&value));
        if world.log.end_offset() == 6 {
            world.roll();
        }
    }
    world.roll_and_checkpoint();
    let bytes = world.read_file("00000000000000000000.log").len() as u64 / 6;
    (world, bytes)
}

/// No checksum covers a base offset. A bit more and the offset did not fit into an index, a bit
/// less and the newest value of a key counted as an older one.
#[test]
fn a_changed_base_offset_ends_a_compaction_and_nothing_is_removed() {
    for (nth, bit) in [0, 2, 5]
        .into_iter()
        .flat_map(|nth| (0..64).map(move |bit| (nth, bit)))
    {
        // Where a log was opened, compaction may have left gaps.
        for opened in ["never", "before", "after"] {
            let (mut world, one) = with_batches_of_one_length(1);
            if opened == "before" {
                world.reopen(true).expect("opens");
            }
            world
                .disk
                .corrupt(&path_of(0), nth * one + 7 - bit / 8, 1 << (bit % 8));
            // Some changes of a segment's last batch refuse the log.
            if opened == "after" && world.reopen(true).is_err() {
                assert_eq!(nth, 5);
                continue;
            }
            let case = format!("batch {nth}, bit {bit}, opened again: {opened}");
            check_ends_at(&mut world, nth * one, &case);
        }
    }
}

#[test]
fn a_damaged_or_undecodable_batch_ends_a_compaction_where_it_is() {
    // In the part whose keys are collected, and in the one that was compacted before.
    for first_dirty_offset in [0, 6] {
        let (mut world, one) = with_batches_of_one_length(1);
        world.first_dirty_offset = first_dirty_offset;
        world.disk.corrupt(&path_of(0), 3 * one + 80, 1);
        check_ends_at(
            &mut world,
            3 * one,
            &format!("dirty from {first_dirty_offset} on"),
        );
    }

    let mut world = World::new(1);
    world.append_one("a", Some("1"));
    let one = world.read_file("00000000000000000000.log").len() as u64;
    let mut builder = BatchBuilder::new(BatchOptions::default());
    builder.append(START_MS, Some(b"key"), Some(b"value"), &[]);
    let mut undecodable = builder.finish();
    // The length of the first record.
    undecodable[61] ^= 0x40;
    seal(&mut undecodable);
    world.append_bytes(&undecodable);
    world.roll_and_checkpoint();
    check_ends_at(&mut world, one, "its checksum is right");
}

/// A gap that was given up is none, also where the topic is compacted only afterwards.
#[test]
fn records_missing_at_a_segments_end_end_a_compaction_unless_they_were_given_up() {
    let (mut world, one) = with_batches_of_one_length(1);
    let bytes = world.read_file("00000000000000000000.log");
    world.disk.write_file(&path_of(0), &bytes[..4 * one as usize]);
    world.configure(|config| config.compact = false);
    world.reopen(true).expect("opens");
    world.configure(|config| config.compact = true);
    check_ends_at(&mut world, 4 * one, "two batches are gone");

    let (mut world, one) = with_batches_of_one_length(1);
    let bytes = world.read_file("00000000000000000006.log");
    world.disk.write_file(&path_of(6), &bytes[..4 * one as usize]);
    world.disk.remove_file(&path_of(12)).expect("removed");
    let config = LogConfig {
        compact: false,
        ..world.log.config().clone()
    };
    let options = OpenOptions {
        clean_shutdown: true,
        recovery_point: 12,
        proven_end: 12,
        accept_loss: true,
        now_ms: world.now_ms,
        ..OpenOptions::default()
    };
    let opened = PartitionLog::open(world.disk.shared(), Path::new(DIRECTORY), config, options);
    let (log, report) = opened.expect("opens");
    assert_eq!(report.gap_end, Some(12));
    world.log = log;
    world.configure(|config| config.compact = true);
    world.append_one("n", Some("value"));
    world.roll_and_checkpoint();
    assert!(world.compact(MAP_BYTES).expect("compacted"));
    let offsets: Vec<i64> = world.records().iter().map(|record| record.0).collect();
    assert_eq!(offsets, [0, 1, 3, 4, 5, 6, 7, 8, 9, 12]);
}

#[test]
fn a_job_that_ends_in_a_panic_keeps_the_log_from_nothing() {
    let (mut world, _) = with_batches_of_one_length(1);
    world.configure(|config| (config.delete, config.retention_bytes) = (true, 0));
    let job = world.plan().expect("due");
    let retained = world.log.retain(world.now_ms, world.log.end_offset());
    assert!(retained.expect("readable").is_none(), "a job is under way");
    drop(job);
    // It has left files behind.
    let leftover = path_of(6).with_extension("log.cleaned");
    world.disk.write_file(&leftover, b"unfinished");
    let mut job = world.plan().expect("due again");
    job.run(MAP_BYTES).expect("runs");
    assert_eq!(world.files(".cleaned"), BTreeSet::new());
    drop(job);
    let retained = world.log.retain(world.now_ms, world.log.end_offset());
    assert_eq!(retained.expect("readable").expect("too large").segment_count(), 2);
}
