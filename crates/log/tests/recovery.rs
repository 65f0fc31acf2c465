//! What opening a directory makes of its files: which count, which are removed, rebuilt or kept,
//! and what is reported.

mod support;

use std::path::Path;
use std::sync::Arc;

use ottla_log::disk::Disk;
use ottla_log::disk::memory::MemoryDisk;
use ottla_log::disk::owned::{LogMemory, OwnedDisk};
use ottla_log::{BatchToAppend, FindingKind, LogConfig, OpenOptions, PartitionLog, ReadMode, RecoveryReport};
use ottla_wire::primitives::Uuid;
use ottla_wire::records::batch::{Batch, NO_TIMESTAMP};
use ottla_wire::records::builder::{BatchBuilder, BatchOptions};
use support::numbered::*;
use support::opening::*;

/// Where the second and the third segment of `closed(300)` begin.
const SECOND: i64 = 114;
const THIRD: i64 = 228;

fn accepting_loss(recovery_point: i64) -> OpenOptions {
    OpenOptions {
        accept_loss: true,
        ..unclean(recovery_point)
    }
}

fn contents_of(disk: &MemoryDisk, base_offset: i64, suffix: &str) -> Vec<u8> {
    disk.read_file(&file(base_offset, suffix)).expect("there")
}

/// The bytes of one batch: all have the same length.
fn one(disk: &MemoryDisk) -> u64 {
    position_of(disk, &files(disk, ".log")[0], 1)
}

fn damage_checksum(disk: &MemoryDisk, base_offset: i64, nth: u64) {
    disk.corrupt(&file(base_offset, ".log"), nth * one(disk) + 70, 1);
}

fn damage_magic(disk: &MemoryDisk, base_offset: i64, nth: u64) {
    disk.corrupt(&file(base_offset, ".log"), nth * one(disk) + 16, 1);
}

fn truncate(disk: &MemoryDisk, base_offset: i64, suffix: &str, bytes: u64) {
    let path = file(base_offset, suffix);
    let whole = disk.read_file(&path).expect("there");
    disk.write_file(&path, &whole[..bytes as usize]);
}

fn remove(disk: &MemoryDisk, base_offset: i64, suffix: &str) {
    disk.remove_file(&file(base_offset, suffix)).expect("removed");
}

fn open_with(disk: &MemoryDisk, config: LogConfig, options: OpenOptions) -> (PartitionLog, RecoveryReport) {
    let options = OpenOptions {
        now_ms: START_MS,
        ..options
    };
    PartitionLog::open(disk.shared(), Path::new(DIRECTORY), config, options).expect("opens")
}

/// A closed log with other settings.
fn closed_with(config: LogConfig, count: u32) -> MemoryDisk {
    let disk = MemoryDisk::new(5);
    let mut log = create_with(&disk, config, 0);
    append_many(&mut log, count);
    log.close().expect("closed");
    disk
}

fn create_with(disk: &MemoryDisk, config: LogConfig, start_offset: i64) -> PartitionLog {
    let directory = Path::new(DIRECTORY);
    let id = Uuid([1; 16]);
    let log = PartitionLog::create(disk.shared(), directory, id, config, start_offset, START_MS);
    disk.sync_directory(Path::new("")).expect("synced");
    log.expect("created")
}

fn append_at(log: &mut PartitionLog, timestamp: i64) {
    let mut builder = BatchBuilder::new(BatchOptions::default());
    builder.append(timestamp, None, Some(b"value"), &[]);
    let bytes = builder.finish();
    let batch = BatchToAppend::from(Batch::parse(&bytes).expect("built"));
    log.append(&[batch], 0, START_MS).expect("appended");
}

#[test]
fn a_replacement_counts_unless_its_renaming_was_interrupted() {
    let intact = closed(300);
    let mut replacement = contents_of(&intact, SECOND, ".log");
    let length = one(&intact) as usize;
    replacement.drain(length..2 * length);
    for (cleaned, counts) in [
        (None, true),
        (Some(0), false),
        (Some(SECOND), false),
        (Some(THIRD), true),
    ] {
        let disk = intact.fork(1);
        disk.write_file(&file(SECOND, ".log.swap"), &replacement);
        disk.write_file(&file(SECOND, ".index.swap"), b"of no use");
        if let Some(base_offset) = cleaned {
            disk.write_file(&file(base_offset, ".log.cleaned"), b"");
        }
        let (log, report) = try_open(&disk, with_gaps(unclean(300))).expect("opens");
        assert_eq!(report.findings, Vec::new(), "{cleaned:?}");
        let behind = if counts { SECOND + 2 } else { SECOND + 1 };
        let read = read_code(&log, SECOND + 1).expect("intact");
        assert_eq!(read, Some(behind), "{cleaned:?}");
        assert_eq!(names(&disk), names(&intact), "{cleaned:?}");
    }
}

#[test]
fn a_replacement_takes_the_place_of_every_segment_that_it_covers() {
    let disk = closed(300);
    let snapshot = contents_of(&disk, 300, ".snapshot");
    disk.write_file(&file(SECOND, ".snapshot"), &snapshot);
    disk.write_file(&file(200, ".snapshot"), &snapshot);
    let mut both = contents_of(&disk, SECOND, ".log");
    both.extend(contents_of(&disk, THIRD, ".log"));
    disk.write_file(&file(SECOND, ".log.swap"), &both);
    let covered = |name: &String| name.starts_with(&format!("{THIRD:020}")) || name.contains("200.");
    let expected = names(&disk).into_iter();
    let expected: Vec<String> = expected
        .filter(|name| !covered(name) && !name.ends_with(".swap"))
        .collect();
    let (log, _) = try_open(&disk, unclean(300)).expect("opens");
    assert_eq!(names(&disk), expected);
    assert!(expected.contains(&format!("{SECOND:020}.snapshot")));
    check_records(&log, 0, 300);
}

/// Files of a segment without its log file.
#[test]
fn an_index_without_its_segment_is_a_leftover_or_shows_a_loss() {
    let is_third = |name: &String| name.starts_with(&format!("{THIRD:020}"));
    let without_third = closed(300);
    remove(&without_third, THIRD, ".log");

    let empty = without_third.fork(1);
    for suffix in [".index", ".timeindex"] {
        empty.write_file(&file(THIRD, suffix), b"");
    }
    let (log, _) = try_open(&empty, unclean(0)).expect("opens");
    assert_eq!(log.end_offset(), THIRD);
    assert!(!names(&empty).iter().any(is_third), "{:?}", names(&empty));

    // An earlier recovery has begun to set the segment aside.
    for suffix in [".log.cut-0", ".log.cut-0-1"] {
        let set_aside = without_third.fork(1);
        set_aside.write_file(&file(THIRD, suffix), b"kept");
        let (log, _) = try_open(&set_aside, unclean(0)).expect("opens");
        assert_eq!(log.end_offset(), THIRD);
        let left: Vec<String> = names(&set_aside).into_iter().filter(is_third).collect();
        assert_eq!(left, [format!("{THIRD:020}{suffix}")]);
    }

    // Only a part of it was cut off.
    let lost = without_third.fork(1);
    lost.write_file(&file(THIRD, ".log.cut-570"), b"kept");
    let name = format!("{THIRD:020}.log");
    check_refused(&lost, unclean(0), &name, "missing, although its .index is there");
}

#[test]
fn temporary_files_are_removed_and_unknown_ones_are_not() {
    let disk = closed(3);
    let before = names(&disk);
    for name in ["leader-epoch-checkpoint.tmp", "x.deleted", "x.tmp"] {
        disk.write_file(&Path::new(DIRECTORY).join(name), b"x");
    }
    try_open(&disk, unclean(3)).expect("opens");
    assert_eq!(names(&disk), before);
    for name in ["notes.txt", "x.log.old"] {
        disk.write_file(&Path::new(DIRECTORY).join(name), b"x");
    }
    try_open(&disk, unclean(3)).expect("opens");
    assert_eq!(names(&disk).len(), before.len() + 2);
}

#[test]
fn a_power_cut_does_not_bring_back_a_segment_that_was_set_aside() {
    for seed in 0..20 {
        let disk = closed(300).fork(seed);
        // The process was killed before it synced the directory.
        disk.rename(&file(THIRD, ".log"), &file(THIRD, ".log.deleted"))
            .expect("renamed");
        let (mut log, _) = try_open(&disk, unclean(200)).expect("opens");
        assert_eq!(append(&mut log).expect("appended"), THIRD);
        sync(&mut log).expect("synced");
        drop(log);
        disk.power_cut();
        let (log, report) = try_open(&disk, unclean(200)).expect("opens");
        assert_eq!(report.findings, Vec::new(), "seed {seed}");
        check_records(&log, 0, THIRD + 1);
    }
}

#[test]
fn a_power_cut_after_the_opening_does_not_take_the_newest_segment() {
    for seed in 0..20 {
        let disk = MemoryDisk::new(seed);
        let mut log = create(&disk);
        append_many(&mut log, SECOND as u32);
        sync(&mut log).expect("synced");
        append_many(&mut log, 1);
        drop(log);
        // Neither the segment nor its name is durable.
        disk.kill();
        assert!(disk.exists(&file(SECOND, ".log")));
        let (log, _) = try_open(&disk, unclean(SECOND)).expect("opens");
        check_records(&log, 0, SECOND + 1);
        drop(log);
        disk.power_cut();
        let (log, report) = try_open(&disk, unclean(SECOND)).expect("opens");
        assert_eq!(report.findings, Vec::new(), "seed {seed}");
        check_records(&log, 0, SECOND + 1);
    }
}

#[test]
fn opening_changes_and_syncs_no_more_than_it_must() {
    let disk = closed(300);
    // The time index of the last segment ends with its offset index from now on.
    try_open(&disk, clean()).expect("opens");
    let before = disk.operations();
    try_open(&disk, clean()).expect("opens");
    assert_eq!(disk.operations(), before, "after a clean stop");
    // After a crash the log file that is behind the recovery point is synced.
    try_open(&disk, unclean(300)).expect("opens");
    assert_eq!(disk.operations(), before + 1);
}

#[test]
fn the_recovery_point_stays_until_a_checkpoint_unless_the_log_is_new() {
    let (log, _) = try_open(&closed(30), unclean(10)).expect("opens");
    assert_eq!(log.recovery_point(), 10);
    let log = create_with(&MemoryDisk::new(1), config(), 50);
    assert_eq!((log.start_offset(), log.recovery_point()), (50, 50));
}

/// An interrupted recovery has removed files of records that were deleted before.
#[test]
fn a_log_of_deleted_records_continues_at_its_start() {
    let all_deleted = OpenOptions {
        log_start_offset: 300,
        ..unclean(300)
    };
    let disk = closed(300);
    let before = names(&disk);
    let (log, _) = try_open(&disk, all_deleted).expect("opens");
    assert_eq!((log.start_offset(), log.end_offset()), (300, 300));
    assert_eq!(names(&disk), before, "the end is where the log starts");

    disk.write_file(&file(THIRD, ".log"), b"");
    // The kept files are as long as any may be that are not kept for this.
    disk.write_file(&file(0, ".log.cut-1"), &vec![1; 64 << 20]);
    let before: Vec<Vec<u8>> = [0, SECOND].map(|base| contents_of(&disk, base, ".log")).into();
    let (mut log, report) = try_open(&disk, all_deleted).expect("opens");
    assert_eq!((log.start_offset(), log.end_offset()), (300, 300));
    assert_eq!(report.gap_end, None);
    let kept = |base| (FindingKind::Kept, file(base, ".log.cut-0"), 0);
    let cut = (FindingKind::CutBatches, file(0, ".log"), 0);
    assert_eq!(found(&report), [cut, kept(THIRD), kept(SECOND), kept(0)]);
    let after: Vec<Vec<u8>> = [0, SECOND]
        .map(|base| contents_of(&disk, base, ".log.cut-0"))
        .into();
    assert!(after == before, "nothing intact is removed for one number");
    assert_eq!(append(&mut log).expect("takes records"), 300);
    let of_segments: Vec<String> = names(&disk)
        .into_iter()
        .filter(|name| name.starts_with("000") && !name.ends_with(".snapshot"))
        .collect();
    let expected = [
        (0, "log.cut-0"),
        (0, "log.cut-1"),
        (SECOND, "log.cut-0"),
        (THIRD, "log.cut-0"),
        (300, "log"),
    ];
    assert_eq!(
        of_segments,
        expected.map(|(base, suffix)| format!("{base:020}.{suffix}"))
    );
}

#[test]
fn leader_epochs_and_log_start_that_contradict_each_other_are_reported() {
    let epochs = Path::new(DIRECTORY).join("leader-epoch-checkpoint");
    let contradiction = [(FindingKind::Contradiction, epochs.clone(), 0)];
    let deleted_below = |log_start_offset| OpenOptions {
        log_start_offset,
        ..clean()
    };
    // The earlier start hides no record.
    let disk = closed(100);
    let (log, report) = try_open(&disk, deleted_below(50)).expect("opens");
    assert_eq!(found(&report), contradiction);
    check_records(&log, 0, 100);
    assert_eq!(log.start_offset(), 0);

    disk.write_file(&epochs, b"0\n1\n0 50\n");
    let (log, report) = try_open(&disk, clean()).expect("opens");
    assert_eq!(found(&report), contradiction);
    let detail = &report.findings[0].detail;
    assert!(detail.contains("deleted records may be back"), "{detail}");
    check_records(&log, 0, 100);

    // No segment goes back to the epochs' start; the first one begins where the checkpoint says.
    let disk = closed(300);
    for suffix in [".log", ".index", ".timeindex"] {
        remove(&disk, 0, suffix);
    }
    let (log, report) = try_open(&disk, deleted_below(SECOND)).expect("opens");
    assert_eq!(found(&report), contradiction);
    assert_eq!(log.start_offset(), SECOND);

    let (_, report) = try_open(&closed(100), clean()).expect("opens");
    assert_eq!(report.findings, Vec::new(), "a recovery point of 0 says nothing");
}

#[test]
fn an_accepted_loss_keeps_what_is_behind_the_last_record() {
    let disk = closed(300);
    let (position, bytes) = (70 * one(&disk), contents_of(&disk, THIRD, ".log"));
    let damaged = disk.fork(1);
    damage_checksum(&damaged, THIRD, 70);
    damage_checksum(&damaged, THIRD, 71);
    let behind = contents_of(&damaged, THIRD, ".log")[position as usize..].to_vec();
    let (mut log, report) = try_open(&damaged, accepting_loss(300)).expect("opens");
    let kept = file(THIRD, &format!(".log.cut-{position}"));
    let lost = (FindingKind::Lost, file(THIRD, ".log"), position);
    assert_eq!(
        found(&report),
        [lost.clone(), (FindingKind::Kept, kept.clone(), 0)]
    );
    assert_eq!(damaged.read_file(&kept), Some(behind));
    assert_eq!(contents_of(&damaged, THIRD, ".log"), bytes[..position as usize]);
    assert_eq!((log.end_offset(), report.gap_end), (300, Some(300)));
    assert_eq!(append(&mut log).expect("takes records"), 300);
    check_reads_below(&log, 298);

    // Nothing is behind it.
    truncate(&disk, THIRD, ".log", position);
    let (log, report) = try_open(&disk, accepting_loss(300)).expect("opens");
    assert_eq!(found(&report), [lost]);
    assert!(
        !names(&disk).iter().any(|name| name.contains(".cut-")),
        "{:?}",
        names(&disk)
    );
    assert_eq!((log.end_offset(), report.gap_end), (300, Some(300)));
    check_reads_below(&log, 298);
}

fn check_reads_below(log: &PartitionLog, end: i64) {
    for offset in 0..end {
        assert_eq!(read_code(log, offset).expect("intact"), Some(offset));
    }
}

#[test]
fn where_all_records_are_lost_the_log_begins_behind_them() {
    let disk = closed(5);
    disk.write_file(&file(0, ".log"), b"");
    let (log, report) = try_open(&disk, accepting_loss(5)).expect("opens");
    assert_eq!(found(&report), [(FindingKind::Lost, file(0, ".log"), 0)]);
    assert_eq!(
        (log.start_offset(), log.end_offset(), report.gap_end),
        (5, 5, None)
    );
    assert!(!disk.exists(&file(0, ".log")) && disk.exists(&file(5, ".log")));
}

#[test]
fn a_segment_is_closed_by_the_age_of_a_record_from_before_the_start() {
    let disk = closed(3);
    let config = LogConfig {
        segment_ms: 1_000,
        ..config()
    };
    let (mut log, _) = open_with(&disk, config, unclean(3));
    append_at(&mut log, START_MS + 900);
    assert_eq!(files(&disk, ".log").len(), 1);
    append_at(&mut log, START_MS + 1_100);
    assert_eq!(files(&disk, ".log").len(), 2);
}

/// Two segments and the end of a third that a crash has damaged.
fn cut_in_the_second(disk: &MemoryDisk) -> (u64, u64) {
    damage_checksum(disk, SECOND, 9);
    let behind = contents_of(disk, SECOND, ".log").len() as u64 - 9 * one(disk);
    (behind, contents_of(disk, THIRD, ".log").len() as u64)
}

#[test]
fn what_is_cut_off_is_kept_up_to_a_limit() {
    const LIMIT: u64 = 64 << 20;
    for too_many in [0, 1] {
        let disk = closed(300);
        let (behind, third) = cut_in_the_second(&disk);
        let kept_before = vec![1; (LIMIT - behind - third + too_many) as usize];
        disk.write_file(&file(0, ".log.cut-1"), &kept_before);
        let (log, report) = try_open(&disk, unclean(0)).expect("opens");
        check_records(&log, 0, SECOND + 9);
        assert_eq!((report.cut_bytes, report.segments_set_aside), (behind + third, 1));
        let third_is_kept = (FindingKind::Kept, file(THIRD, ".log.cut-0"), 0);
        let cut_at = 9 * one(&disk);
        let cut = (FindingKind::CutBatches, file(SECOND, ".log"), cut_at);
        let rest = if too_many == 0 {
            (FindingKind::Kept, file(SECOND, &format!(".log.cut-{cut_at}")), 0)
        } else {
            (FindingKind::NotKept, Path::new(DIRECTORY).to_owned(), 0)
        };
        assert_eq!(found(&report), [cut, third_is_kept, rest]);
        // The files that are derived from it are gone.
        let third = |name: &&String| name.starts_with(&format!("{THIRD:020}"));
        assert_eq!(names(&disk).iter().filter(third).count(), 1, "{:?}", names(&disk));
    }
}

#[test]
fn a_full_disk_keeps_nothing_and_serves_what_is_intact() {
    let disk = closed(300);
    let (behind, _) = cut_in_the_second(&disk);
    disk.set_capacity(Some(disk.used_bytes()));
    let (log, report) = try_open(&disk, unclean(0)).expect("opens");
    check_records(&log, 0, SECOND + 9);
    let last = report.findings.last().expect("found");
    assert_eq!(last.kind, FindingKind::NotKept);
    assert_eq!(last.detail, format!("{behind} bytes: the disk is full"));
    let kept = file(SECOND, &format!(".log.cut-{}", 9 * one(&disk)));
    assert!(!disk.exists(&kept), "{:?}", names(&disk));
}

#[test]
fn what_follows_an_unfinished_end_decides_what_the_cut_is_called() {
    let unfinished = closed(300);
    let (whole, end) = (100 * one(&unfinished), 100 * one(&unfinished) + 10);
    truncate(&unfinished, SECOND, ".log", end);
    let third = contents_of(&unfinished, THIRD, ".log").len() as u64;
    let cut = |kind| (kind, file(SECOND, ".log"), whole);

    // Batches in the next segment.
    let disk = unfinished.fork(1);
    let (log, report) = try_open(&disk, unclean(0)).expect("opens");
    check_records(&log, 0, SECOND + 100);
    let kept = (FindingKind::Kept, file(THIRD, ".log.cut-0"), 0);
    assert_eq!(found(&report), [cut(FindingKind::CutBatches), kept]);
    assert_eq!(report.cut_bytes, 10 + third);

    // A next segment without batches.
    let disk = unfinished.fork(1);
    disk.write_file(&file(THIRD, ".log"), b"");
    let (log, report) = try_open(&disk, unclean(0)).expect("opens");
    check_records(&log, 0, SECOND + 100);
    assert_eq!(found(&report), [cut(FindingKind::CutEnd)]);
    assert_eq!((report.cut_bytes, report.segments_set_aside), (10, 1));

    // Batches in the same segment only.
    let disk = closed(100);
    damage_checksum(&disk, 0, 90);
    let (log, report) = try_open(&disk, unclean(0)).expect("opens");
    check_records(&log, 0, 90);
    let position = 90 * one(&disk);
    let cut = (FindingKind::CutBatches, file(0, ".log"), position);
    let kept = (FindingKind::Kept, file(0, &format!(".log.cut-{position}")), 0);
    assert_eq!(found(&report), [cut, kept]);
}

#[test]
fn segments_that_do_not_follow_are_set_aside_and_kept_if_they_hold_anything() {
    let intact = closed(300);
    truncate(&intact, 0, ".log", 100 * one(&intact));
    let does_not_follow = |kind| (kind, file(SECOND, ".log"), 0);
    let lengths = [SECOND, THIRD].map(|base| contents_of(&intact, base, ".log").len() as u64);

    let disk = intact.fork(1);
    disk.write_file(&file(300, ".log"), b"");
    let (log, report) = try_open(&disk, unclean(0)).expect("opens");
    check_records(&log, 0, 100);
    let kept = |base| (FindingKind::Kept, file(base, ".log.cut-0"), 0);
    let expected = [
        does_not_follow(FindingKind::CutBatches),
        kept(THIRD),
        kept(SECOND),
    ];
    assert_eq!(found(&report), expected);
    assert_eq!(report.cut_bytes, lengths[0] + lengths[1]);
    assert_eq!(report.segments_set_aside, 3);
    assert!(!disk.exists(&file(300, ".log")) && !disk.exists(&file(300, ".log.cut-0")));

    let disk = intact.fork(1);
    for base in [SECOND, THIRD] {
        disk.write_file(&file(base, ".log"), b"");
    }
    let (log, report) = try_open(&disk, unclean(0)).expect("opens");
    check_records(&log, 0, 100);
    assert_eq!(found(&report), [does_not_follow(FindingKind::CutEnd)]);
    assert_eq!((report.cut_bytes, report.segments_set_aside), (0, 2));
}

/// Blocks that direct writes may have filled with zeros.
#[test]
fn only_as_many_zeros_as_are_written_ahead_count_as_padding() {
    const BLOCK: u64 = 4_096;
    for (too_many, kinds) in [(0, &[][..]), (1, &[FindingKind::CutEnd])] {
        let disk = closed(20);
        let mut bytes = contents_of(&disk, 0, ".log");
        let end = bytes.len() as u64;
        let most = end.next_multiple_of(BLOCK) - end + end / 2 / BLOCK * BLOCK;
        bytes.resize((end + most + too_many) as usize, 0);
        disk.write_file(&file(0, ".log"), &bytes);
        let (log, report) = try_open(&disk, unclean(0)).expect("opens");
        check_records(&log, 0, 20);
        let found: Vec<FindingKind> = report.findings.iter().map(|finding| finding.kind).collect();
        assert_eq!(found, kinds, "{too_many}");
    }
}

/// Where direct writes leave padding, no start truncates a file for it.
#[test]
fn padding_is_written_over_or_stays_until_the_log_is_closed() {
    for more in [0, 2] {
        let disk = closed(20);
        let intact = contents_of(&disk, 0, ".log");
        let mut padded = intact.clone();
        padded.resize(intact.len().next_multiple_of(4_096), 0);
        disk.write_file(&file(0, ".log"), &padded);
        let owned = OwnedDisk::new(disk.shared(), LogMemory::new(64 * 1024, 1024 * 1024));
        let opened = PartitionLog::open(Arc::new(owned), Path::new(DIRECTORY), config(), unclean(0));
        let (mut log, report) = opened.expect("opens");
        assert_eq!(found(&report), []);
        assert_eq!(contents_of(&disk, 0, ".log"), padded);
        append_many(&mut log, more);
        check_records(&log, 0, 20 + i64::from(more));
        log.close().expect("closed");
        let closed = contents_of(&disk, 0, ".log");
        assert!(closed.starts_with(&intact));
        assert_eq!(closed.len(), intact.len() + more as usize * one(&disk) as usize);
        let (log, _) = try_open(&disk, clean()).expect("opens");
        check_records(&log, 0, 20 + i64::from(more));
    }
}

#[test]
fn a_segment_that_reaches_into_the_next_one_refuses_the_log() {
    let disk = closed(300);
    let path = file(0, ".log");
    // The last batch begins 16 offsets later: no checksum covers that.
    disk.corrupt(&path, 113 * one(&disk) + 7, 0x80);
    let reason = format!("its batches end at offset 242, but the next segment begins at {SECOND}");
    let name = "00000000000000000000.log";
    check_refused(&disk, with_gaps(unclean(300)), name, &reason);
    let length = contents_of(&disk, 0, ".log").len() as u64;
    let (log, report) = try_open(&disk, with_gaps(accepting_loss(300))).expect("opens");
    assert_eq!(found(&report), [(FindingKind::Lost, path, length)]);
    assert_eq!(read_code(&log, SECOND).expect("intact"), Some(SECOND));
}

/// The walk to the end finds some of it, the replay of the whole log the same and more.
#[test]
fn each_damaged_batch_is_reported_once() {
    let disk = closed(300);
    for snapshot in files(&disk, ".snapshot") {
        disk.remove_file(&snapshot).expect("removed");
    }
    for (base, nth) in [(0, 40), (0, 60), (SECOND, 40), (THIRD, 40), (THIRD, 70)] {
        damage_magic(&disk, base, nth);
    }
    let (log, report) = try_open(&disk, unclean(300)).expect("opens");
    check_readable_except(&log, &[40, 60, SECOND + 40, THIRD + 40, THIRD + 70]);
    let mut reported = found(&report);
    reported.sort_by_key(|(_, path, position)| (path.clone(), *position));
    let one = one(&disk);
    let damaged = |base, nth| (FindingKind::Damaged, file(base, ".log"), nth * one);
    let expected = [(0, 40), (0, 60), (SECOND, 40), (THIRD, 40), (THIRD, 70)];
    assert_eq!(reported, expected.map(|(base, nth)| damaged(base, nth)));
}

/// Where headers are believed, a wrong length is noticed at the batch behind it.
#[test]
fn the_batch_with_a_wrong_length_is_the_one_that_is_reported() {
    let disk = closed(300);
    disk.corrupt(&file(0, ".log"), 112 * one(&disk) + 11, 1);
    let (log, report) = try_open(&disk, unclean(300)).expect("opens");
    check_readable_except(&log, &[112]);
    let detail = &report.findings[0].detail;
    assert!(detail.ends_with("offsets 112 to 112 cannot be read"), "{detail}");
}

/// The damage may be in the first batch that is verified: what follows it must not count as
/// verified.
#[test]
fn verified_batches_are_not_verified_again_and_damaged_ones_always() {
    let intact = closed(100);
    for nth in 90..100 {
        let disk = intact.fork(1);
        damage_checksum(&disk, 0, nth);
        // Another batch is behind it: the log ends where it did.
        let options = unclean(if nth == 99 { 99 } else { 100 });
        let (log, _) = try_open(&disk, options).expect("opens");
        if nth < 99 {
            check_readable_except(&log, &[nth as i64]);
        }
    }
    // Without indexes everything is verified from the first batch on.
    let disk = intact.fork(1);
    for suffix in [".index", ".timeindex"] {
        remove(&disk, 0, suffix);
    }
    damage_checksum(&disk, 0, 0);
    let (log, _) = try_open(&disk, unclean(100)).expect("opens");
    check_readable_except(&log, &[0]);

    let (log, report) = try_open(&intact, unclean(0)).expect("opens");
    assert_eq!(report.checked_bytes, 100 * one(&intact));
    for offset in 0..100 {
        let read = log
            .reader()
            .read(offset, 5_000, true, log.end(), ReadMode::Resident);
        let Ok(ottla_log::Read::Region(read)) = read else {
            panic!("{read:?} at {offset}")
        };
        assert!(read.unchecked.is_none(), "offset {offset}");
    }
}

#[test]
fn offsets_may_not_be_too_far_from_a_segment_s_first() {
    const FAR: i64 = i32::MAX as i64;
    let intact = closed(4);
    let with_offset = |nth: u64, offset: i64| {
        let disk = intact.fork(1);
        let mut bytes = contents_of(&disk, 0, ".log");
        let set = |bytes: &mut Vec<u8>, nth: u64, offset: i64| {
            let at = (nth * one(&intact)) as usize;
            bytes[at..at + 8].copy_from_slice(&offset.to_be_bytes());
        };
        set(&mut bytes, 2, FAR - 10);
        set(&mut bytes, nth, offset);
        disk.write_file(&file(0, ".log"), &bytes);
        disk
    };
    let disk = with_offset(3, FAR);
    let (log, report) = try_open(&disk, with_gaps(unclean(0))).expect("opens");
    assert_eq!((log.end_offset(), report.findings), (FAR + 1, Vec::new()));
    let disk = with_offset(3, FAR + 1);
    let (log, report) = try_open(&disk, with_gaps(unclean(0))).expect("opens");
    assert_eq!(log.end_offset(), FAR - 9);
    let detail = &report.findings[0].detail;
    assert!(detail.contains("is too far from the segment's first"), "{detail}");

    let disk = MemoryDisk::new(1);
    let mut log = create_with(&disk, config(), 2 * FAR);
    append_many(&mut log, 3);
    log.close().expect("closed");
    for options in [unclean(0), clean()] {
        let (log, report) = try_open(&disk, options).expect("opens");
        check_records(&log, 2 * FAR, 2 * FAR + 3);
        assert_eq!(report.findings, Vec::new());
    }
}

/// Apache Kafka reserves space for its indexes; after a crash zeros are behind their entries.
#[test]
fn zeros_behind_index_entries_are_no_entries() {
    let disk = closed(300);
    let indexes = || files(&disk, "index").into_iter();
    let before: Vec<_> = indexes()
        .map(|path| disk.read_file(&path).expect("there"))
        .collect();
    for path in indexes() {
        let mut bytes = disk.read_file(&path).expect("there");
        bytes.resize(bytes.len() + 240, 0);
        disk.write_file(&path, &bytes);
    }
    let (mut log, report) = try_open(&disk, unclean(300)).expect("opens");
    assert_eq!(report.rebuilt_indexes, 2, "those of the closed segments");
    assert!(report.checked_bytes < 4 * one(&disk), "{report:?}");
    log.close().expect("closed");
    let after: Vec<_> = indexes()
        .map(|path| disk.read_file(&path).expect("there"))
        .collect();
    assert!(after == before, "they are as they were");
}

#[test]
fn a_wrong_last_index_entry_costs_half_of_the_segment() {
    let disk = closed(100);
    let index = contents_of(&disk, 0, ".index");
    disk.corrupt(&file(0, ".index"), index.len() as u64 - 5, 1);
    let (_, report) = try_open(&disk, unclean(100)).expect("opens");
    let checked = report.checked_bytes / one(&disk);
    assert!((45..60).contains(&checked), "{checked} batches");
}

#[test]
fn indexes_of_a_closed_segment_that_are_missing_or_torn_are_rebuilt() {
    let intact = closed(300);
    let check = |suffixes: &[&str], change: &dyn Fn(&MemoryDisk, &Path)| {
        let disk = intact.fork(1);
        for suffix in suffixes {
            change(&disk, &file(0, suffix));
        }
        let (log, report) = try_open(&disk, unclean(300)).expect("opens");
        assert_eq!(report.rebuilt_indexes, 1, "{suffixes:?}");
        for suffix in [".index", ".timeindex"] {
            let (rebuilt, whole) = (contents_of(&disk, 0, suffix), contents_of(&intact, 0, suffix));
            assert!(rebuilt == whole, "{suffixes:?}: {suffix}");
        }
        check_records(&log, 0, 300);
    };
    let both = [".index", ".timeindex"];
    check(&both, &|disk, path| disk.remove_file(path).expect("removed"));
    check(&both, &|disk, path| disk.write_file(path, b""));
    for suffix in both {
        check(&[suffix], &|disk, path| disk.remove_file(path).expect("removed"));
        check(&[suffix], &|disk, path| {
            let bytes = disk.read_file(path).expect("there");
            disk.write_file(path, &[&bytes[..], &[0]].concat());
        });
    }
}

/// Their time index is empty, which looked like a lost one.
#[test]
fn closed_segments_of_records_without_timestamps_are_whole() {
    let disk = MemoryDisk::new(1);
    let mut log = create(&disk);
    (0..2_000).for_each(|_| append_at(&mut log, NO_TIMESTAMP));
    log.close().expect("closed");
    assert!(files(&disk, ".log").len() > 1 && !contents_of(&disk, 0, ".index").is_empty());
    assert!(contents_of(&disk, 0, ".timeindex").is_empty());
    let (_, report) = try_open(&disk, unclean(2_000)).expect("opens");
    assert_eq!(report.rebuilt_indexes, 0);

    let disk = closed(300);
    disk.write_file(&file(0, ".timeindex"), b"");
    let (_, report) = try_open(&disk, unclean(300)).expect("opens");
    assert_eq!(report.rebuilt_indexes, 1, "these records have timestamps");
}

#[test]
fn short_segments_and_such_of_one_batch_need_no_index_entries() {
    let of_four = |index_interval_bytes| LogConfig {
        segment_bytes: 2_400,
        index_interval_bytes,
        ..config()
    };
    let disk = closed_with(of_four(100_000), 5);
    let length = contents_of(&disk, 0, ".log").len() as u32;
    assert!(disk.exists(&file(4, ".log")) && length.is_multiple_of(4));
    for suffix in [".index", ".timeindex"] {
        disk.write_file(&file(0, suffix), b"");
    }
    for (interval, rebuilt) in [(length / 4, 0), (length / 4 - 1, 1)] {
        let (_, report) = open_with(&disk.fork(1), of_four(interval), unclean(5));
        assert_eq!(report.rebuilt_indexes, rebuilt, "an interval of {interval}");
    }

    // One batch is no place for an entry, but its time is one.
    let of_one = LogConfig {
        segment_bytes: 600,
        index_interval_bytes: 100,
        ..config()
    };
    let disk = closed_with(of_one.clone(), 3);
    assert_eq!(
        (
            contents_of(&disk, 0, ".index").len(),
            contents_of(&disk, 0, ".timeindex").len()
        ),
        (0, 12)
    );
    let (_, report) = open_with(&disk, of_one, unclean(3));
    assert_eq!(report.rebuilt_indexes, 0);
}

#[test]
fn a_stop_writes_index_entries_that_the_start_found_missing() {
    let disk = closed(30);
    let whole = disk.fork(1);
    for suffix in [".index", ".timeindex"] {
        remove(&disk, 0, suffix);
    }
    let (mut log, _) = try_open(
        &disk,
        OpenOptions {
            clean_shutdown: true,
            ..unclean(30)
        },
    )
    .expect("opens");
    log.close().expect("closed");
    assert!(contents(&disk) == contents(&whole));

    // All records have one time: only offsets are missing.
    let disk = MemoryDisk::new(1);
    let mut log = create(&disk);
    (0..100).for_each(|_| append_at(&mut log, START_MS));
    let recovery_point = log.close().expect("closed");
    let whole = disk.fork(1);
    let entries = contents_of(&disk, 0, ".index").len() as u64 / 8;
    truncate(&disk, 0, ".index", entries / 2 * 8);
    let stopped = OpenOptions {
        clean_shutdown: true,
        ..unclean(recovery_point)
    };
    let (mut log, _) = try_open(&disk, stopped).expect("opens");
    log.close().expect("closed");
    assert!(contents(&disk) == contents(&whole));
}

/// A kill between the removal of the segments that it replaces and its last renaming, and then
/// damage: it holds the only copy of their records.
#[test]
fn a_damaged_replacement_is_kept_where_its_loss_is_accepted() {
    let disk = closed(300);
    let mut both = contents_of(&disk, SECOND, ".log");
    both.extend(contents_of(&disk, THIRD, ".log"));
    let damaged_at = 130 * one(&disk);
    both[damaged_at as usize + 70] ^= 1;
    let swap = file(SECOND, ".log.swap");
    disk.write_file(&swap, &both);
    for suffix in [".log", ".index", ".timeindex"] {
        remove(&disk, THIRD, suffix);
    }
    let name = format!("{SECOND:020}.log.swap");
    check_refused(&disk, unclean(0), &name, "checksum");

    let (log, report) = try_open(&disk, accepting_loss(0)).expect("opens");
    let kept = file(SECOND, ".log.swap.cut-0");
    assert_eq!(
        found(&report),
        [
            (FindingKind::Lost, swap, damaged_at),
            (FindingKind::Kept, kept.clone(), 0)
        ]
    );
    check_records(&log, 0, THIRD);
    assert_eq!(disk.read_file(&kept).expect("kept"), both);
    let (log, report) = try_open(&disk, unclean(0)).expect("opens without it");
    assert_eq!(found(&report), []);
    check_records(&log, 0, THIRD);
    assert!(disk.exists(&kept));
    // It counts as kept.
    damage_checksum(&disk, SECOND, 9);
    disk.write_file(&file(0, ".log.cut-1"), &vec![1; (64 << 20) - both.len()]);
    let (_, report) = try_open(&disk, unclean(0)).expect("opens");
    let last = report.findings.last().expect("found");
    assert_eq!(last.kind, FindingKind::NotKept);
}

/// The second recovery wrote over what the first one had kept.
#[test]
fn bytes_that_are_cut_at_the_same_position_are_kept_beside_each_other() {
    let disk = closed(300);
    let cut_at = 9 * one(&disk);
    let suffixes = [format!(".log.cut-{cut_at}"), ".log.cut-0".to_owned()];
    let cut = || {
        damage_checksum(&disk, SECOND, 9);
        let behind = contents_of(&disk, SECOND, ".log")[cut_at as usize..].to_vec();
        let third = contents_of(&disk, THIRD, ".log");
        let (log, _) = try_open(&disk, unclean(0)).expect("opens");
        check_records(&log, 0, SECOND + 9);
        (log, [behind, third])
    };
    let kept = |number: &str| {
        let of = |suffix, base| contents_of(&disk, base, &format!("{suffix}{number}"));
        [of(&suffixes[0], SECOND), of(&suffixes[1], THIRD)]
    };
    let (mut log, first) = cut();
    append_many(&mut log, 150);
    log.close().expect("closed");
    let (_, second) = cut();
    assert_ne!(first, second);
    assert_eq!(kept(""), first);
    assert_eq!(kept("-1"), second);
}

/// Only the first entry was compared with anything.
#[test]
fn leader_epochs_that_batches_contradict_are_read_from_the_batches() {
    let disk = MemoryDisk::new(5);
    let mut log = create(&disk);
    for offset in 0..300 {
        let mut builder = BatchBuilder::new(BatchOptions::default());
        let value = format!("{offset:>500}");
        builder.append(START_MS + offset, None, Some(value.as_bytes()), &[]);
        let bytes = builder.finish();
        let batch = BatchToAppend::from(Batch::parse(&bytes).expect("built"));
        let epoch = if offset < 150 { 1 } else { 4 };
        log.append(&[batch], epoch, START_MS).expect("appended");
    }
    log.close().expect("closed");
    let path = Path::new(DIRECTORY).join(ottla_log::LEADER_EPOCH_FILE);
    let intact = disk.read_file(&path).expect("there");
    assert_eq!(intact, b"0\n2\n1 0\n4 150\n");
    let stopped = OpenOptions {
        clean_shutdown: true,
        ..unclean(300)
    };
    for changed in [
        "1 0\n4 100",
        "1 0\n4 250",
        "1 0\n5 150",
        "1 0\n2 150",
        "0 0\n4 150",
    ] {
        for options in [stopped, unclean(300), unclean(280), unclean(0)] {
            let disk = disk.fork(1);
            disk.write_file(&path, format!("0\n2\n{changed}\n").as_bytes());
            let (mut log, report) = try_open(&disk, options).expect("opens");
            let entries = log.leader_epochs().entries().iter();
            let entries: Vec<(i32, i64)> = entries
                .map(|entry| (entry.leader_epoch, entry.start_offset))
                .collect();
            assert_eq!(entries, [(1, 0), (4, 150)], "{changed}");
            assert_eq!(found(&report), [], "{changed}");
            log.close().expect("closed");
            assert_eq!(disk.read_file(&path), Some(intact.clone()), "{changed}");
        }
    }
}
