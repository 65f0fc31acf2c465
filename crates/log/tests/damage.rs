//! Damage to a log's files: what is served, what is refused, and what is reported.

mod support;

use std::path::{Path, PathBuf};

use ottla_log::disk::Disk;
use ottla_log::disk::memory::MemoryDisk;
use ottla_log::inspection::largest_producer_id;
use ottla_log::{
    BatchToAppend, Bound, FindingKind, LogError, Lookup, OpenOptions, Read, ReadError, ReadMode,
};
use ottla_wire::records::batch::Batch;
use ottla_wire::records::builder::{BatchBuilder, BatchOptions};
use support::numbered::*;
use support::opening::*;

/// Regression: an operator changed one byte of the batch at the last index entry below the recovery
/// point; the log seemed empty, and new records took offsets of old ones.
#[test]
fn a_damaged_batch_below_the_recovery_point_hides_no_other() {
    let disk = closed(100);
    let segment = &files(&disk, ".log")[0];
    for nth in [0, 1, 50, 97, 98] {
        let disk = disk.fork(1);
        disk.corrupt(segment, position_of(&disk, segment, nth) + 70, 1);
        let (mut log, report) = try_open(&disk, unclean(100)).expect("opens");
        assert_eq!((log.start_offset(), log.end_offset()), (0, 100), "batch {nth}");
        assert_eq!(append(&mut log).expect("takes records"), 100);
        for offset in 0..101 {
            let read = read_code(&log, offset);
            if offset as u64 == nth {
                assert!(
                    matches!(read, Err(ReadError::Log(LogError::Corrupt { .. }))),
                    "{read:?}"
                )
            } else {
                assert_eq!(read.expect("intact"), Some(offset))
            }
        }
        // Damage that recovery did not read, because an index entry follows it, is found when it is
        // read.
        let is_told = report
            .findings
            .iter()
            .any(|finding| finding.kind == FindingKind::Damaged);
        assert_eq!(is_told, nth == 98, "batch {nth}: {report:?}");
    }
}

#[test]
fn unchecked_bytes_are_served_up_to_the_damage_and_refused_at_it() {
    let disk = closed(300);
    let segment = &files(&disk, ".log")[0];
    let one = position_of(&disk, segment, 1);
    let check = |damaged: Option<u64>| {
        let disk = disk.fork(1);
        if let Some(nth) = damaged {
            disk.corrupt(segment, nth * one + 70, 1);
        }
        let (log, _) = open(&disk, true, 300);
        disk.evict();
        let read = log.reader().read(0, 10_000, true, log.end(), ReadMode::Blocking);
        let Read::Region(found) = read.expect("found") else {
            panic!("nothing was found");
        };
        let unchecked = found.unchecked.expect("written before the start");
        (unchecked.check(5 * one), unchecked.check(one / 2))
    };
    let (whole, part) = check(None);
    assert_eq!(whole.expect("intact"), 5 * one);
    assert!(matches!(part, Err(LogError::Corrupt { .. })), "{part:?}");
    let (before, _) = check(Some(3));
    assert_eq!(before.expect("three are intact"), 3 * one);
}

#[test]
fn a_damaged_header_loses_only_its_batch() {
    // Offset, length, magic, last offset delta: fields that a walk along headers relies on, some
    // without a checksum.
    for (byte, flip) in [
        (3, 0x80),
        (7, 4),
        (8, 0x40),
        (11, 1),
        (16, 1),
        (23, 0x40),
        (26, 1),
        (57, 0x80),
    ] {
        let disk = closed(100);
        let segment = &files(&disk, ".log")[0];
        disk.corrupt(segment, position_of(&disk, segment, 40) + byte, flip);
        let (log, _) = try_open(&disk, unclean(100)).expect("opens");
        assert_eq!(log.end_offset(), 100, "byte {byte}");
        for offset in (0..100).rev() {
            match read_code(&log, offset) {
                Ok(found) => assert!(
                    found == Some(offset) && offset != 40,
                    "byte {byte}: {found:?} at {offset}"
                ),
                Err(error) => assert_eq!(offset, 40, "byte {byte}: {error}"),
            }
        }
    }
}

/// Regression: a batch at a segment's end that claimed offsets of later segments was damage at one
/// start, and at the next one, after a kill, it refused the partition.
#[test]
fn a_last_offset_beyond_the_next_segment_loses_only_its_batch() {
    const LAST_OFFSET_DELTA: u64 = 23;
    let intact = closed(300);
    let segment = &files(&intact, ".log")[0];
    let count = intact.read_file(segment).expect("there").len() as u64 / position_of(&intact, segment, 1);
    let options = [
        unclean(300),
        clean(),
        OpenOptions {
            recovery_point: 300,
            ..clean()
        },
    ];
    for (options, nth) in options
        .into_iter()
        .flat_map(|options| [3, 2, 1].map(|back| (options, count - back)))
    {
        // Beyond the log's end, and within the next segment.
        for (byte, flip) in [(1, 8), (3, 16)] {
            let disk = intact.fork(1);
            let position = position_of(&disk, segment, nth);
            disk.corrupt(segment, position + LAST_OFFSET_DELTA + byte, flip);
            let (log, report) = try_open(&disk, options).expect("opens");
            assert_eq!(log.end_offset(), 300);
            check_readable_except(&log, &[nth as i64]);
            // Where an index entry follows it, the start does not read it.
            assert!(nth < count - 1 || !report.findings.is_empty());
            for (kind, path, at) in found(&report) {
                assert_eq!(
                    (kind, path, at),
                    (FindingKind::Damaged, segment.clone(), position)
                );
            }
        }
    }
}

/// Regression: a batch whose base offset became that of its predecessor was served in its place.
#[test]
fn a_changed_base_offset_takes_no_other_batch_its_place() {
    let intact = closed(100);
    let segment = &files(&intact, ".log")[0];
    for options in [unclean(100), clean()] {
        for offset in (0..100).filter(|offset| *offset != 40) {
            let disk = intact.fork(1);
            let mut bytes = disk.read_file(segment).expect("there");
            let at = position_of(&disk, segment, 40) as usize;
            bytes[at..at + 8].copy_from_slice(&i64::to_be_bytes(offset));
            disk.write_file(segment, &bytes);
            let (log, _) = try_open(&disk, options).expect("opens");
            // Few and many bytes at a time.
            for (wanted, max_bytes) in (0..100).flat_map(|wanted| [(wanted, 600), (wanted, 5_000)]) {
                let read = log
                    .reader()
                    .read(wanted, max_bytes, true, log.end(), ReadMode::Blocking);
                match read {
                    Ok(Read::Region(found)) => {
                        let from = position_of(&disk, segment, wanted as u64);
                        assert_eq!(found.at.position, from, "offset {offset} at 40, read of {wanted}");
                        let served = found.unchecked.map_or(Ok(found.region.bytes), |unchecked| {
                            unchecked.check(found.region.bytes)
                        });
                        let end = from + served.expect("the first batch is intact");
                        assert!(wanted > 40 || end <= at as u64, "offset {offset} at 40 is served");
                    }
                    Ok(read) => panic!("{read:?}"),
                    Err(error) => assert_eq!(wanted, 40, "offset {offset} at 40: {error}"),
                }
            }
        }
    }
}

#[test]
fn whole_batches_behind_a_cut_are_kept_beside_the_segment() {
    let disk = closed(300);
    let segment = &files(&disk, ".log")[1];
    let name = segment
        .file_name()
        .and_then(|name| name.to_str())
        .expect("text")
        .to_owned();
    let cut_at = position_of(&disk, segment, 9);
    let before = disk.read_file(segment).expect("there");
    disk.corrupt(segment, cut_at + 70, 1);
    let (log, report) = try_open(&disk, unclean(0)).expect("opens");
    let end_offset = log.end_offset();
    check_records(&log, 0, end_offset);
    let kept = disk.read_file(&Path::new(DIRECTORY).join(format!("{name}.cut-{cut_at}")));
    assert_eq!(kept.expect("kept").len() as u64, before.len() as u64 - cut_at);
    let kinds: Vec<FindingKind> = report.findings.iter().map(|finding| finding.kind).collect();
    assert_eq!(
        kinds,
        [FindingKind::CutBatches, FindingKind::Kept, FindingKind::Kept]
    );
    assert_eq!(
        (&report.findings[0].path, report.findings[0].position),
        (segment, cut_at)
    );
    assert_eq!(report.segments_set_aside, 1);
}

#[test]
fn kept_bytes_are_bounded() {
    let disk = closed(300);
    disk.write_file(
        &Path::new(DIRECTORY).join("00000000000000000000.log.cut-1"),
        &vec![1; 64 << 20],
    );
    disk.corrupt(&files(&disk, ".log")[1], 5_000, 1);
    let (_, report) = try_open(&disk, unclean(0)).expect("opens");
    assert!(
        report
            .findings
            .iter()
            .any(|finding| finding.kind == FindingKind::NotKept),
        "{report:?}"
    );
    assert_eq!(files(&disk, ".cut-0"), Vec::<PathBuf>::new());
}

#[test]
fn an_unfinished_end_after_a_crash_is_cut_and_not_kept() {
    let disk = closed(300);
    let segment = files(&disk, ".log").pop().expect("there");
    let mut bytes = disk.read_file(&segment).expect("there");
    bytes.truncate(bytes.len() - 10);
    disk.write_file(&segment, &bytes);
    let (log, report) = try_open(&disk, unclean(200)).expect("opens");
    check_records(&log, 0, 299);
    let kinds: Vec<FindingKind> = report.findings.iter().map(|finding| finding.kind).collect();
    assert_eq!(kinds, [FindingKind::CutEnd]);
}

/// Zeros of any length up to half a megabyte were cut without a line. Only as many as direct writes
/// leave behind an end there cannot be told from space that was never used.
#[test]
fn batches_that_became_zeros_are_reported_unless_they_look_like_padding() {
    for (kept, kinds) in [(5, &[FindingKind::CutEnd][..]), (19, &[])] {
        let disk = closed(20);
        let segment = files(&disk, ".log").pop().expect("there");
        let from = position_of(&disk, &segment, kept) as usize;
        let mut bytes = disk.read_file(&segment).expect("there");
        bytes[from..].fill(0);
        bytes.resize(bytes.len().next_multiple_of(4_096), 0);
        disk.write_file(&segment, &bytes);
        let (log, report) = try_open(&disk, unclean(0)).expect("opens");
        check_records(&log, 0, kept as i64);
        let found: Vec<FindingKind> = report.findings.iter().map(|finding| finding.kind).collect();
        assert_eq!(found, kinds, "{kept} batches are left");
    }
}

#[test]
fn records_proven_by_a_checkpoint_but_missing_refuse_the_log() {
    let lost_end = closed(300);
    let last = files(&lost_end, ".log").pop().expect("there");
    lost_end.write_file(&last, b"");
    let last_name = last.file_name().and_then(|name| name.to_str()).expect("text");
    check_refused(
        &lost_end,
        unclean(300),
        last_name,
        "everything below 300 was durable",
    );
    let clean = OpenOptions {
        clean_shutdown: true,
        proven_end: 300,
        ..OpenOptions::default()
    };
    check_refused(&lost_end, clean, last_name, "everything below 300 was durable");

    let missing = closed(300);
    missing.remove_file(&last).expect("removed");
    check_refused(
        &missing,
        unclean(0),
        last_name,
        "missing, although its .index is there",
    );

    let beyond = closed(300);
    let options = OpenOptions {
        log_start_offset: 5_000,
        proven_end: 5_000,
        ..clean
    };
    // The first leader epoch says that the log starts at 0.
    check_refused(&beyond, options, last_name, "everything below 5000 was durable");
}

/// Regression: with the checkpoint of recovery points lost, too, everything from the damage on was
/// cut.
#[test]
fn after_a_clean_stop_nothing_intact_is_cut_although_the_recovery_point_is_unknown() {
    let intact = closed(100);
    let segment = &files(&intact, ".log")[0];
    let disk = intact.fork(1);
    // Without index entries the whole segment is walked.
    for suffix in [".index", ".timeindex"] {
        disk.write_file(&file(0, suffix), b"");
    }
    let damaged = position_of(&disk, segment, 40);
    disk.corrupt(segment, damaged + 16, 1);
    let (log, report) = try_open(&disk, clean()).expect("opens");
    assert_eq!(found(&report), [(FindingKind::Damaged, segment.clone(), damaged)]);
    assert_eq!(log.end_offset(), 100);
    check_readable_except(&log, &[40]);

    let (first, name) = (closed(1), "00000000000000000000.log");
    for (disk, nth, reason) in [
        (intact.fork(1), 99, "offset 120, expected 99"),
        (first, 0, "it begins with offset 120"),
    ] {
        let mut bytes = disk.read_file(segment).expect("there");
        let at = position_of(&disk, segment, nth) as usize;
        bytes[at..at + 8].copy_from_slice(&i64::to_be_bytes(120));
        disk.write_file(segment, &bytes);
        check_refused(&disk, clean(), name, reason);
    }
    // An unfinished batch at the end may be cut.
    let disk = intact.fork(1);
    disk.corrupt(segment, position_of(&disk, segment, 99) + 70, 1);
    let (log, report) = try_open(&disk, clean()).expect("opens");
    assert_eq!(
        (log.end_offset(), report.findings[0].kind),
        (99, FindingKind::CutEnd)
    );
}

#[test]
fn a_missing_first_segment_refuses_the_log_where_its_start_is_known() {
    let disk = closed(300);
    for path in files(&disk, "")
        .iter()
        .filter(|path| path.to_string_lossy().contains("/00000000000000000000."))
    {
        disk.remove_file(path).expect("removed");
    }
    let first = "00000000000000000000.log";
    let options = OpenOptions {
        is_start_proven: true,
        ..unclean(300)
    };
    check_refused(&disk, options, first, "no segment holds offsets 0 to 113");
    let clean = OpenOptions {
        clean_shutdown: true,
        ..OpenOptions::default()
    };
    check_refused(&disk, clean, first, "no segment holds offsets 0 to 113");
    // After a crash of Apache Kafka, retention may have removed it.
    let (log, _) = try_open(&disk, unclean(300)).expect("opens");
    assert_eq!((log.start_offset(), log.end_offset()), (114, 300));
}

/// The leader epochs of another partition refused a log whose records were all there, until the
/// next crash: after that the epochs prove nothing.
#[test]
fn epochs_from_before_the_first_segment_refuse_no_log_that_its_checkpoint_confirms() {
    let disk = closed(300);
    for path in files(&disk, "")
        .iter()
        .filter(|path| path.to_string_lossy().contains("/00000000000000000000."))
    {
        disk.remove_file(path).expect("removed");
    }
    let deleted_below = |log_start_offset| OpenOptions {
        clean_shutdown: true,
        log_start_offset,
        ..OpenOptions::default()
    };
    let (log, report) = try_open(&disk.fork(1), deleted_below(120)).expect("opens");
    assert_eq!((log.start_offset(), log.end_offset()), (120, 300));
    let detail = &report.findings[0].detail;
    assert!(
        detail.contains("first leader epoch begins at offset 0"),
        "{detail}"
    );
    // The checkpoint's start is in the missing segment, too.
    let first = "00000000000000000000.log";
    check_refused(
        &disk,
        deleted_below(113),
        first,
        "no segment holds offsets 0 to 113",
    );
}

#[test]
fn a_hole_between_segments_is_reported_and_reads_of_it_fail() {
    let disk = closed(300);
    let segment = &files(&disk, ".log")[0];
    let mut bytes = disk.read_file(segment).expect("there");
    bytes.truncate(position_of(&disk, segment, 100) as usize);
    disk.write_file(segment, &bytes);
    for options in [
        unclean(300),
        OpenOptions {
            clean_shutdown: true,
            ..OpenOptions::default()
        },
    ] {
        let (log, report) = try_open(&disk.fork(1), options).expect("opens");
        assert_eq!(report.findings[0].kind, FindingKind::Damaged);
        assert!(
            report.findings[0].detail.contains("offsets 100 to 113"),
            "{report:?}"
        );
        for offset in [0, 99, 114, 299] {
            assert_eq!(read_code(&log, offset).expect("intact"), Some(offset));
        }
        for offset in [100, 113] {
            assert!(matches!(
                read_code(&log, offset),
                Err(ReadError::Log(LogError::Corrupt { .. }))
            ));
        }
    }
}

#[test]
fn a_file_of_another_log_refuses_the_log() {
    let disk = closed(300);
    let logs = files(&disk, ".log");
    let other = disk.read_file(&logs[0]).expect("there");
    disk.write_file(&logs[1], &other);
    check_refused(
        &disk,
        unclean(300),
        "00000000000000000114.log",
        "the file is not this log's",
    );
    let empty_swap = closed(300);
    empty_swap.write_file(&Path::new(DIRECTORY).join("00000000000000000000.log.swap"), b"");
    check_refused(
        &empty_swap,
        unclean(300),
        "00000000000000000000.log.swap",
        "empty",
    );
    let directory = closed(300);
    directory.remove_file(&logs[1]).expect("removed");
    directory.create_directories(&logs[1]).expect("created");
    check_refused(
        &directory,
        unclean(300),
        "00000000000000000114.log",
        "not a regular file",
    );
}

#[test]
fn accepted_losses_leave_a_gap_whose_offsets_are_not_reused() {
    let disk = closed(300);
    let last = files(&disk, ".log").pop().expect("there");
    disk.write_file(&last, b"");
    let options = OpenOptions {
        accept_loss: true,
        ..unclean(300)
    };
    let (mut log, report) = try_open(&disk, options).expect("opens");
    assert_eq!(report.findings[0].kind, FindingKind::Lost);
    assert_eq!((log.end_offset(), report.gap_end), (300, Some(300)));
    assert_eq!(append(&mut log).expect("takes records"), 300);
    // Readers skip the gap.
    assert_eq!(read_code(&log, 250).expect("a gap"), Some(300));
    let recovery_point = log.close().expect("closed");
    let options = OpenOptions {
        gaps_below: 300,
        ..unclean(recovery_point)
    };
    let (log, report) = try_open(&disk, options).expect("opens");
    assert_eq!((log.end_offset(), report.findings), (301, Vec::new()));
}

/// Regression: one flipped bit in an index made a reader skip the batches before the entry.
#[test]
fn a_wrong_index_entry_is_not_trusted() {
    let disk = closed(300);
    for suffix in [".index", ".timeindex"] {
        let index = &files(&disk, suffix)[0];
        let bytes = disk.read_file(index).expect("there").len() as u64;
        for position in 0..bytes {
            let disk = disk.fork(1);
            disk.corrupt(index, position, 1 << (position % 8));
            let (log, report) = try_open(&disk, unclean(300)).expect("opens");
            assert_eq!(report.findings, Vec::new());
            for offset in (0..114).step_by(3) {
                assert_eq!(
                    read_code(&log, offset).expect("intact"),
                    Some(offset),
                    "{suffix} {position}"
                );
            }
            let bound = Bound {
                offset: 300,
                position: None,
            };
            let search = |timestamp| {
                let found = log
                    .reader()
                    .offset_for_timestamp(timestamp, bound, ReadMode::Blocking);
                matches!(found, Ok(Lookup::Found(found)) if found.timestamp == timestamp)
            };
            assert!(
                search(START_MS + 77) && search(START_MS + 113),
                "{suffix} {position}"
            );
        }
    }
}

#[test]
fn a_truncated_time_index_does_not_make_retention_remove_a_segment_early() {
    let disk = closed(300);
    let index = &files(&disk, ".timeindex")[0];
    let bytes = disk.read_file(index).expect("there");
    disk.write_file(index, &bytes[..24]);
    let (mut log, _) = try_open(&disk, unclean(300)).expect("opens");
    log.reader().load_timestamps().expect("readable");
    let mut keeps = config();
    keeps.retention_ms = 1_000;
    log.set_config(keeps);
    // The largest timestamp of the first segment is START_MS + 113.
    let removal = log.retain(START_MS + 1_100, 300).expect("retained");
    assert!(removal.is_none(), "{removal:?}");
    let removal = log.retain(START_MS + 1_114, 300).expect("retained");
    assert_eq!(removal.expect("expired").segment_count(), 1);
}

/// Regression: Apache Kafka's directory, stopped cleanly; the last batch of a compacted log said
/// that it began 2,048 offsets later, and the start reported nothing.
#[test]
fn an_end_beyond_the_recovery_point_of_a_clean_stop_is_reported() {
    let disk = closed(30);
    let segment = files(&disk, ".log").remove(0);
    let stopped = OpenOptions {
        clean_shutdown: true,
        gaps_below: i64::MAX,
        ..unclean(30)
    };
    let (_, report) = try_open(&disk.fork(1), stopped).expect("opens");
    assert_eq!(report.findings, Vec::new());
    disk.corrupt(&segment, position_of(&disk, &segment, 29) + 6, 8);
    let (log, report) = try_open(&disk, stopped).expect("opens");
    let [finding] = &report.findings[..] else {
        panic!("{:?}", report.findings)
    };
    assert_eq!(
        (finding.kind, &finding.path),
        (FindingKind::Contradiction, &segment)
    );
    assert!(
        finding.detail.contains("ends at offset 2078"),
        "{}",
        finding.detail
    );
    assert_eq!(log.end_offset(), 2_078);
}

#[test]
fn the_largest_producer_id_is_found_in_batches_and_snapshots_and_not_in_damage() {
    let disk = MemoryDisk::new(5);
    let mut log = create(&disk);
    for producer_id in [7, 900, 31] {
        let mut builder = BatchBuilder::new(BatchOptions {
            producer_id,
            producer_epoch: 0,
            base_sequence: 0,
            ..BatchOptions::default()
        });
        builder.append(START_MS, None, Some(b"value"), &[]);
        let bytes = builder.finish();
        let batch = BatchToAppend::from(Batch::parse(&bytes).expect("built"));
        log.append(&[batch], 0, START_MS).expect("appended");
    }
    log.close().expect("closed");
    let below = |disk: &MemoryDisk, limit: i64| {
        largest_producer_id(disk, Path::new(DIRECTORY), limit).expect("readable")
    };
    let found = |disk: &MemoryDisk| below(disk, i64::MAX);
    let without = |suffix: &str| {
        let disk = disk.fork(1);
        for path in files(&disk, suffix) {
            disk.remove_file(&path).expect("removed");
        }
        disk
    };
    assert_eq!(found(&without("-none")), Some(900));
    assert_eq!(below(&without(".log"), 900), Some(31));
    assert_eq!(below(&without(".snapshot"), 900), Some(31));
    assert_eq!(
        found(&without(".log")),
        Some(900),
        "retention removed the batches"
    );
    let renamed = without(".log");
    let snapshot = &files(&renamed, ".snapshot")[0];
    renamed
        .rename(snapshot, &snapshot.with_extension("old"))
        .expect("renamed");
    assert_eq!(found(&renamed), None, "it is no snapshot any more");
    let batches_only = without(".snapshot");
    assert_eq!(found(&batches_only), Some(900));
    let segment = &files(&disk, ".log")[0];
    // The third one's id becomes the largest, but its checksum is wrong.
    let id_at = 43;
    batches_only.corrupt(segment, position_of(&disk, segment, 2) + id_at, 0x40);
    assert_eq!(found(&batches_only), Some(900));
    batches_only.corrupt(segment, position_of(&disk, segment, 1) + 70, 1);
    assert_eq!(found(&batches_only), Some(7));
    assert_eq!(found(&closed(3)), None, "no producer has an id");
}
