//! Compaction keeps the last record of each key, and a crash during it loses nothing.

use std::collections::BTreeMap;
use std::path::Path;

use ottla_log::disk::Disk;
use ottla_log::disk::memory::{MemoryDisk, Random};
use ottla_log::{BatchToAppend, LogConfig, LogError, Lookup, OpenOptions, PartitionLog, Read, ReadMode};
use ottla_wire::primitives::Uuid;
use ottla_wire::records::batch::{Batch, BatchHeader, batches};
use ottla_wire::records::builder::{BatchBuilder, BatchOptions};
use ottla_wire::records::compression::{Codec, decompress};
use ottla_wire::records::record::Records;

const DIRECTORY: &str = "data/compacted-0";
const START_MS: i64 = 1_700_000_000_000;
const DAY_MS: i64 = 24 * 60 * 60 * 1000;
const MAP_BYTES: usize = 1 << 20;

type Record = (i64, Vec<u8>, Option<Vec<u8>>);

struct World {
    disk: MemoryDisk,
    log: PartitionLog,
    now_ms: i64,
    recovery_point: i64,
    first_dirty_offset: i64,
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
        }
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

    fn marker(&mut self, producer_id: i64, committed: bool) {
        let options = BatchOptions {
            producer_id,
            producer_epoch: 0,
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
        self.log.reader().load_timestamps().expect("readable");
        let high_watermark = self.log.durable_offset();
        let Some(mut job) = self
            .log
            .plan_compaction(self.now_ms, self.first_dirty_offset, high_watermark)
        else {
            return Ok(false);
        };
        let result = job.run(map_bytes).and_then(|()| {
            self.log.install_compaction(&job);
            job.replace_files()
        });
        self.first_dirty_offset = self.log.finish_compaction(job);
        result.map(|()| true)
    }

    fn reopen(&mut self, clean_shutdown: bool) -> Result<(), LogError> {
        let options = OpenOptions {
            clean_shutdown,
            recovery_point: self.recovery_point,
            log_start_offset: 0,
            now_ms: self.now_ms,
            ..OpenOptions::default()
        };
        let opened = PartitionLog::open(self.disk.shared(), Path::new(DIRECTORY), config(), options)?;
        self.log = opened.0;
        Ok(())
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
                    let key = record.key.expect("all have one").to_vec();
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
    assert!(world.compact(MAP_BYTES).expect("compacted"));
    let first_dirty_offset = world.first_dirty_offset;
    let after = world.records();
    assert_eq!(world.table(), table);
    assert!(after.iter().all(|record| before.contains(record)));
    let clean: Vec<&Record> = after
        .iter()
        .filter(|record| record.0 < first_dirty_offset)
        .collect();
    let keys: std::collections::BTreeSet<&[u8]> = clean.iter().map(|record| record.1.as_slice()).collect();
    assert!(
        clean.len() <= 40 && keys.len() == clean.len(),
        "{} records",
        clean.len()
    );
    assert_eq!(world.log.end_offset(), end_offset);
    assert!(!world.compact(MAP_BYTES).expect("nothing new"));
    world.recovery_point = world.log.close().expect("closed");
    world.reopen(true).expect("opens");
    assert_eq!(world.records(), after);
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
