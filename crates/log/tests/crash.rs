//! Interrupts a log in every disk operation, by a kill or by a power cut, reopens it, and compares
//! it with what had been acknowledged.
//!
//! Every test prints the seed it fails with. `OTTLA_CRASH_SEEDS=from..to` runs other seeds.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use ottla_log::disk::Disk;
use ottla_log::disk::memory::{MemoryDisk, Random};
use ottla_log::disk::owned::{LogMemory, OwnedDisk};
use ottla_log::{
    AppendError, BatchToAppend, Bound, LogConfig, LogError, OpenOptions, PartitionLog, Read, ReadMode,
    RecoveryReport,
};
use ottla_wire::primitives::Uuid;
use ottla_wire::records::batch::{Batch, batches};
use ottla_wire::records::builder::{BatchBuilder, BatchOptions};

const DIRECTORY: &str = "data/topic-0";
const START_MS: i64 = 1_700_000_000_000;

/// One record as appended.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Expected {
    value: Vec<u8>,
    timestamp: i64,
    leader_epoch: i32,
}

#[derive(Clone, Debug, Default)]
struct Producer {
    next_sequence: i32,
    /// Sequence, base offset and bytes of its batches, newest last.
    batches: Vec<(i32, i64, Vec<u8>)>,
}

/// The log under test, and its expected contents.
struct World {
    seed: u64,
    random: Random,
    disk: MemoryDisk,
    /// Half of the worlds keep the newest bytes in memory of the log's own, a small one.
    has_memory: bool,
    config: LogConfig,
    log: Option<PartitionLog>,
    now_ms: i64,
    /// Every record from `start_offset` on, acknowledged or not.
    records: BTreeMap<i64, Expected>,
    start_offset: i64,
    /// Acknowledged: no crash may lose records below this offset.
    durable_offset: i64,
    /// The contents of the checkpoint files that a broker would keep.
    recovery_point: i64,
    leader_epoch: i32,
    producers: BTreeMap<i64, Producer>,
    crashes: u32,
    /// Appends refused because of a full disk or a lack of descriptors.
    refused: u32,
    /// Syncs that found no descriptor and were retried.
    retried: u32,
}

impl World {
    fn new(seed: u64) -> World {
        let mut random = Random::new(seed);
        let config = LogConfig {
            segment_bytes: 1_000 + random.below(8_000) as u32,
            index_interval_bytes: random.below(700) as u32,
            retention_bytes: 4_000 + random.below(20_000) as i64,
            retention_ms: -1,
            ..LogConfig::default()
        };
        let disk = MemoryDisk::new(random.next());
        disk.set_short_reads(random.one_in(4));
        disk.set_ignores_reservations(random.one_in(2));
        let mut world = World {
            seed,
            random,
            disk,
            has_memory: seed % 2 == 1,
            config,
            log: None,
            now_ms: START_MS,
            records: BTreeMap::new(),
            start_offset: 0,
            durable_offset: 0,
            recovery_point: 0,
            leader_epoch: 0,
            producers: BTreeMap::new(),
            crashes: 0,
            refused: 0,
            retried: 0,
        };
        let log = PartitionLog::create(
            world.disk(),
            Path::new(DIRECTORY),
            Uuid([9; 16]),
            world.config.clone(),
            0,
            world.now_ms,
        );
        world.disk.sync_directory(Path::new("")).expect("there is power");
        world.log = Some(log.expect("an empty disk takes a log"));
        world
    }

    fn disk(&self) -> Arc<dyn Disk> {
        let disk = self.disk.shared();
        match self.has_memory {
            true => Arc::new(OwnedDisk::new(disk, LogMemory::new(16 * 1024, 128 * 1024))),
            false => disk,
        }
    }

    fn log(&mut self) -> &mut PartitionLog {
        self.log.as_mut().expect("open between crashes")
    }

    fn end_offset(&self) -> i64 {
        self.records
            .last_key_value()
            .map_or(self.start_offset, |(offset, _)| offset + 1)
            .max(self.start_offset)
    }

    /// Performs one random step. `Err` when the power was cut in it.
    fn step(&mut self) -> Result<(), LogError> {
        match self.random.below(100) {
            0..55 => self.append(),
            55..60 => self.repeat_batch(),
            60..80 => self.sync(),
            80..88 => self.checkpoint(),
            88..91 => self.retain(),
            91..94 => self.delete_records(),
            94..96 => self.restart_cleanly(),
            _ => {
                self.leader_epoch += 1;
                Ok(())
            }
        }
    }

    fn append(&mut self) -> Result<(), LogError> {
        let count = 1 + self.random.below(5) as i64;
        let first = self.end_offset();
        self.now_ms += self.random.below(50) as i64;
        let timestamp = self.now_ms - self.random.below(100) as i64;
        let values: Vec<Vec<u8>> = (first..first + count)
            .map(|offset| {
                let padding = self.random.below(300) as usize;
                format!("{offset} {} {}", self.random.next(), "x".repeat(padding)).into_bytes()
            })
            .collect();
        let producer_id = self.random.below(6) as i64 - 2;
        let mut options = BatchOptions::default();
        if producer_id >= 0 {
            let next_sequence = self.producers.entry(producer_id).or_default().next_sequence;
            options = BatchOptions {
                producer_id,
                producer_epoch: 0,
                base_sequence: next_sequence,
                ..options
            };
        }
        let mut builder = BatchBuilder::new(options);
        values.iter().for_each(|value| {
            builder.append(timestamp, None, Some(value), &[]);
        });
        let bytes = builder.finish();
        let leader_epoch = self.leader_epoch;
        // Recovery may find a batch whose append failed half-way complete, so it is expected before
        // the attempt.
        for (offset, value) in (first..).zip(values) {
            self.records.insert(
                offset,
                Expected {
                    value,
                    timestamp,
                    leader_epoch,
                },
            );
        }
        let producers_before = self.producers.clone();
        if producer_id >= 0 {
            let producer = self.producers.get_mut(&producer_id).expect("inserted above");
            producer
                .batches
                .push((producer.next_sequence, first, bytes.clone()));
            producer.next_sequence += count as i32;
        }
        if self.random.one_in(8) {
            // For this one append the disk is full or nearly full.
            let used = self.disk.used_bytes();
            self.disk.set_capacity(Some(used + self.random.below(3) * 4096));
        }
        self.begin_shortage();
        let appended = self.append_bytes(&bytes);
        self.disk.set_capacity(None);
        self.disk.end_shortage();
        if appended.as_ref().is_err_and(LogError::is_lack) {
            self.records.split_off(&first);
            self.producers = producers_before;
            self.refused += 1;
            assert_eq!(self.log().end_offset(), first, "seed {}", self.seed);
            return Ok(());
        }
        let appended = appended?;
        let offsets = (appended.base_offset, appended.last_offset, appended.duplicate);
        assert_eq!(offsets, (first, first + count - 1, false), "seed {}", self.seed);
        Ok(())
    }

    fn append_bytes(&mut self, bytes: &[u8]) -> Result<ottla_log::Appended, LogError> {
        let batch = BatchToAppend::from(Batch::parse(bytes).expect("well built"));
        let (leader_epoch, now_ms, seed) = (self.leader_epoch, self.now_ms, self.seed);
        self.log()
            .append(&[batch], leader_epoch, now_ms)
            .map_err(|error| match error {
                AppendError::Log(error) => error,
                other => panic!("seed {seed}: {other}"),
            })
    }

    /// A client that did not get the answer sends its newest batch again.
    fn repeat_batch(&mut self) -> Result<(), LogError> {
        let producer_id = self.random.below(4) as i64;
        let Some((_, base_offset, bytes)) = self
            .producers
            .get(&producer_id)
            .and_then(|producer| producer.batches.last())
            .cloned()
        else {
            return Ok(());
        };
        if base_offset < self.start_offset {
            // Retention may have removed the producer's history along with its records.
            return Ok(());
        }
        let appended = self.append_bytes(&bytes)?;
        assert_eq!(
            (appended.duplicate, appended.base_offset),
            (true, base_offset),
            "seed {}",
            self.seed
        );
        Ok(())
    }

    /// Occasionally makes the next operations find no descriptor.
    fn begin_shortage(&mut self) {
        if self.random.one_in(8) {
            self.disk.begin_shortage(0, 1 + self.random.below(3));
        }
    }

    fn sync(&mut self) -> Result<(), LogError> {
        let Some(job) = self.log().begin_sync() else {
            return Ok(());
        };
        // Batches may be appended while a sync is under way; it does not cover them.
        if self.random.one_in(3) {
            self.append()?;
        }
        let covered = job.end().offset;
        self.begin_shortage();
        let result = job.run();
        self.disk.end_shortage();
        if self.random.one_in(3) {
            self.append()?;
        }
        let finished = self.log().finish_sync(job, result);
        if finished.as_ref().is_err_and(LogError::is_shortage) {
            self.retried += 1;
            return self.sync();
        }
        let durable = finished?;
        assert_eq!(durable.offset, covered);
        self.durable_offset = self.durable_offset.max(covered);
        Ok(())
    }

    fn checkpoint(&mut self) -> Result<(), LogError> {
        self.log().request_checkpoint();
        self.sync()?;
        let Some(job) = self.log().take_checkpoint() else {
            return Ok(());
        };
        if self.random.one_in(3) {
            self.append()?;
        }
        self.begin_shortage();
        let result = job.run();
        self.disk.end_shortage();
        if self.random.one_in(3) {
            self.append()?;
        }
        let finished = self.log().finish_checkpoint(job, result);
        if finished.as_ref().is_err_and(LogError::is_shortage) {
            // The next checkpoint does all of it.
            return Ok(());
        }
        let recovery_point = finished?;
        // The broker writes its checkpoint file a little later, or crashes first.
        if !self.random.one_in(5) {
            self.recovery_point = recovery_point;
        }
        Ok(())
    }

    fn retain(&mut self) -> Result<(), LogError> {
        let (now_ms, high_watermark) = (self.now_ms, self.durable_offset);
        let Some(mut removal) = self.log().retain(now_ms, high_watermark)? else {
            return Ok(());
        };
        let start_offset = self.log().start_offset();
        assert!(start_offset <= self.durable_offset, "seed {}", self.seed);
        self.forget_before(start_offset);
        self.begin_shortage();
        let mut renamed = removal.rename();
        while renamed.as_ref().is_err_and(LogError::is_shortage) {
            renamed = removal.rename();
        }
        self.disk.end_shortage();
        renamed?;
        removal.purge()
    }

    fn forget_before(&mut self, start_offset: i64) {
        self.start_offset = self.start_offset.max(start_offset);
        self.records = self.records.split_off(&self.start_offset);
    }

    fn delete_records(&mut self) -> Result<(), LogError> {
        let span = (self.durable_offset - self.start_offset).max(0) as u64;
        let offset = self.start_offset + self.random.below(span + 1) as i64;
        let start_offset = self.log().delete_records_before(offset);
        // The broker writes `log-start-offset-checkpoint` before it answers.
        self.forget_before(start_offset);
        Ok(())
    }

    fn forget_from(&mut self, end_offset: i64) {
        self.records.split_off(&end_offset.max(self.start_offset));
        for producer in self.producers.values_mut() {
            producer
                .batches
                .retain(|(_, base_offset, _)| *base_offset < end_offset);
            producer.next_sequence = producer.batches.last().map_or(0, |(sequence, _, bytes)| {
                sequence + Batch::parse(bytes).expect("well built").header.record_count
            });
        }
    }

    fn restart_cleanly(&mut self) -> Result<(), LogError> {
        self.begin_shortage();
        let mut closed = self.log().close();
        while closed.as_ref().is_err_and(LogError::is_shortage) {
            closed = self.log().close();
        }
        self.disk.end_shortage();
        let recovery_point = closed?;
        assert_eq!(recovery_point, self.end_offset());
        // A closed log has nothing left to close.
        let operations = self.disk.operations();
        assert_eq!(self.log().close()?, recovery_point);
        assert_eq!(self.disk.operations(), operations, "seed {}", self.seed);
        self.durable_offset = self.end_offset();
        self.recovery_point = recovery_point;
        self.log = None;
        let report = self.open(true)?;
        assert_eq!(
            (report.cut_bytes, report.rebuilt_indexes),
            (0, 0),
            "seed {}: {report:?}",
            self.seed
        );
        self.check(report);
        Ok(())
    }

    fn open(&mut self, clean_shutdown: bool) -> Result<RecoveryReport, LogError> {
        let options = OpenOptions {
            clean_shutdown,
            recovery_point: self.recovery_point,
            log_start_offset: self.start_offset,
            now_ms: self.now_ms,
            ..OpenOptions::default()
        };
        let disk = self.disk();
        let (log, report) = PartitionLog::open(disk, Path::new(DIRECTORY), self.config.clone(), options)?;
        self.log = Some(log);
        Ok(report)
    }

    /// Reopens the log after a crash, possibly crashing again during recovery.
    fn recover(&mut self) {
        loop {
            self.crashes += 1;
            self.log = None;
            if self.random.one_in(3) {
                self.disk.kill()
            } else {
                self.disk.power_cut()
            }
            if self.random.one_in(4) {
                let at = self.disk.operations() + 1 + self.random.below(6);
                self.disk.cut_power_at(at);
            }
            match self.open(false) {
                Ok(report) => {
                    // A power cut that was armed for later may still happen in the following steps.
                    self.check(report);
                    return;
                }
                Err(error) => assert!(!self.disk.has_power(), "seed {}: {error}", self.seed),
            }
        }
    }

    /// Compares the reopened log with what was appended, and adopts what the crash left.
    fn check(&mut self, report: RecoveryReport) {
        let seed = self.seed;
        let log = self.log.as_ref().expect("just opened");
        let (start_offset, end_offset) = (log.start_offset(), log.end_offset());
        let context = format!(
            "seed {seed}, crash {}: {start_offset}..{end_offset}, expected {}..{} durable {}, {report:?}",
            self.crashes,
            self.start_offset,
            self.end_offset(),
            self.durable_offset,
        );
        assert_eq!(start_offset, self.start_offset, "{context}");
        assert!(
            end_offset >= self.durable_offset && end_offset <= self.end_offset(),
            "{context}"
        );
        assert_eq!(log.durable_offset(), end_offset, "{context}");
        let found = read_all(log, start_offset, &context);
        let expected: BTreeMap<i64, Expected> = self
            .records
            .range(start_offset..end_offset)
            .map(|(o, e)| (*o, e.clone()))
            .collect();
        assert_eq!(found, expected, "{context}");
        let epochs = log.leader_epochs();
        for (offset, expected) in &expected {
            assert_eq!(
                epochs.epoch_at(*offset),
                Some(expected.leader_epoch),
                "offset {offset}, {context}"
            );
        }
        self.durable_offset = end_offset;
        self.forget_from(end_offset);
        self.check_producers(&context);
    }

    /// The newest batches of every producer, and no others, must be detected as duplicates.
    fn check_producers(&mut self, context: &str) {
        let start_offset = self.start_offset;
        for (producer_id, producer) in self.producers.clone() {
            let Some((_, base_offset, bytes)) = producer.batches.last() else {
                continue;
            };
            if *base_offset < start_offset {
                continue;
            }
            let before = self.log().end_offset();
            let batch = BatchToAppend::from(Batch::parse(bytes).expect("well built"));
            let again = self.log().append(&[batch], i32::MAX, START_MS);
            let again = again.unwrap_or_else(|error| panic!("producer {producer_id}: {error}, {context}"));
            assert_eq!(
                (again.duplicate, again.base_offset),
                (true, *base_offset),
                "{context}"
            );
            assert_eq!(self.log().end_offset(), before);
        }
    }
}

fn read_all(log: &PartitionLog, start_offset: i64, context: &str) -> BTreeMap<i64, Expected> {
    let mut records = BTreeMap::new();
    let mut offset = start_offset;
    let bound = Bound {
        offset: log.end_offset(),
        position: None,
    };
    while offset < log.end_offset() {
        let read = log.reader().read(offset, 3_000, true, bound, ReadMode::Blocking);
        let read = read.unwrap_or_else(|error| panic!("{error}, {context}"));
        let Read::Region(read) = read else {
            panic!("nothing at {offset}, {context}")
        };
        let mut bytes = vec![0; read.region.bytes as usize];
        let mut done = 0;
        while done < bytes.len() {
            done += read
                .region
                .file
                .read_at(&mut bytes[done..], read.region.position + done as u64)
                .expect("readable");
        }
        let before = offset;
        for batch in batches(&bytes).map_while(Result::ok) {
            batch
                .verify_checksum()
                .unwrap_or_else(|error| panic!("{error}, {context}"));
            for record in batch.records().map(|record| record.expect("well formed")) {
                if record.offset < offset {
                    continue;
                }
                assert_eq!(record.offset, offset, "{context}");
                let expected = Expected {
                    value: record.value.expect("has a value").to_vec(),
                    timestamp: record.timestamp,
                    leader_epoch: batch.header.leader_epoch,
                };
                records.insert(offset, expected);
                offset += 1;
            }
        }
        assert!(offset > before, "no progress at {offset}, {context}");
    }
    records
}

/// Runs `steps` steps with occasional crashes in random disk operations.
fn live(seed: u64, steps: u32, operations_between_crashes: u64) -> World {
    let mut world = World::new(seed);
    let arm = |world: &mut World| {
        let at = world.disk.operations() + 1 + world.random.below(operations_between_crashes);
        world.disk.cut_power_at(at);
    };
    arm(&mut world);
    for _ in 0..steps {
        if let Err(error) = world.step() {
            assert!(!world.disk.has_power(), "seed {seed}: {error}");
            world.recover();
            if world.disk.has_power() {
                arm(&mut world);
            }
        }
    }
    world
}

fn seeds(default: Range<u64>) -> Range<u64> {
    let Ok(range) = std::env::var("OTTLA_CRASH_SEEDS") else {
        return default;
    };
    let (from, to) = range.split_once("..").expect("OTTLA_CRASH_SEEDS is from..to");
    from.parse().expect("a number")..to.parse().expect("a number")
}

#[test]
fn no_acknowledged_record_is_lost_in_a_thousand_runs_with_crashes() {
    let (mut crashes, mut refused, mut retried) = (0, 0, 0);
    for seed in seeds(0..1_000) {
        let world = live(seed, 120, 60);
        crashes += world.crashes;
        refused += world.refused;
        retried += world.retried;
    }
    let chosen = std::env::var("OTTLA_CRASH_SEEDS").is_ok();
    assert!(
        chosen || crashes > 1_000 && refused > 300 && retried > 300,
        "only {crashes} crashes, {refused} refusals, {retried} syncs retried"
    );
}

#[test]
fn a_crash_at_every_single_operation_is_survived() {
    for seed in 0..3 {
        let mut world = World::new(seed);
        let first = world.disk.operations() + 1;
        for _ in 0..80 {
            world.step().expect("there is power");
        }
        let last = world.disk.operations();
        assert!(last > first + 60, "{first}..{last}");
        for operation in first..=last {
            let mut world = World::new(seed);
            world.disk.cut_power_at(operation);
            let crashed = (0..80).any(|_| world.step().is_err());
            assert!(crashed, "seed {seed}: operation {operation} happens again");
            world.recover();
        }
    }
}
