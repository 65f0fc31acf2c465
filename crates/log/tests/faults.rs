//! A full disk, failing writes and syncs, damaged files, cold pages: what the log reports and what
//! it keeps.

mod support;

use std::path::Path;

use ottla_log::disk::memory::{MemoryDisk, Random};
use ottla_log::disk::{Disk, OpenMode};
use ottla_log::{AppendError, Bound, LogConfig, LogError, Lookup, OpenOptions, PartitionLog, Read, ReadMode};
use ottla_wire::records::batch::batches;
use support::numbered::*;

#[test]
fn a_full_disk_refuses_writes_and_takes_them_again_without_a_restart() {
    let disk = MemoryDisk::new(1);
    let mut log = create(&disk);
    append_many(&mut log, 50);
    disk.set_capacity(Some(300_000));
    let mut refused = 0;
    for _ in 0..2_000 {
        match append(&mut log) {
            Ok(_) => {}
            Err(AppendError::Log(LogError::NoSpace { .. })) => refused += 1,
            Err(other) => panic!("{other}"),
        }
    }
    let full_at = log.end_offset();
    assert!(
        refused > 1_000 && full_at > 300,
        "{refused} refused, full at {full_at}"
    );
    // Existing records can still be made durable and read.
    sync(&mut log).expect("synced");
    check_records(&log, 0, full_at);
    assert_eq!(log.poison(), None);

    disk.set_capacity(Some(2_000_000));
    append_many(&mut log, 500);
    sync(&mut log).expect("synced");
    disk.power_cut();
    let (log, _) = open(&disk, false, 0);
    check_records(&log, 0, full_at + 500);
}

#[test]
fn retention_makes_room_on_a_full_disk() {
    let disk = MemoryDisk::new(1);
    let mut log = create(&disk);
    disk.set_capacity(Some(400_000));
    while append(&mut log).is_ok() {}
    sync(&mut log).expect("synced");
    log.set_config(LogConfig {
        retention_bytes: 100_000,
        ..config()
    });
    let high_watermark = log.durable_offset();
    let mut removal = log
        .retain(START_MS, high_watermark)
        .expect("retained")
        .expect("too large");
    removal.rename().expect("renamed");
    removal.purge().expect("removed");
    let (start, end) = (log.start_offset(), log.end_offset());
    assert!(start > 0);
    append_many(&mut log, 100);
    check_records(&log, start, end + 100);
}

/// Apache Kafka keeps at least `retention.bytes`: a segment is removed when the others still hold
/// that much.
#[test]
fn retention_by_size_removes_no_segment_needed_to_keep_the_limit() {
    let disk = MemoryDisk::new(1);
    let mut log = create(&disk);
    append_many(&mut log, 700);
    sync(&mut log).expect("synced");
    let read = log.reader().read(0, 1, true, log.end(), ReadMode::Blocking);
    let Ok(Read::Region(first)) = read else {
        panic!("{read:?}")
    };
    // All records have the same length.
    let bytes_of = |records: i64| records as u64 * first.region.bytes;
    let mut bases: Vec<i64> = files(&disk, ".log")
        .iter()
        .map(|path| {
            path.file_stem()
                .expect("a name")
                .to_string_lossy()
                .parse()
                .expect("an offset")
        })
        .collect();
    bases.sort_unstable();
    assert!(bases.len() > 4, "{bases:?}");
    let end = log.end_offset();
    let mut retain = |bytes: u64| {
        log.set_config(LogConfig {
            retention_bytes: bytes as i64,
            ..config()
        });
        let removal = log.retain(START_MS, end).expect("retained");
        let start = log.start_offset();
        (removal.is_some(), start)
    };
    assert_eq!(retain(bytes_of(end - bases[1]) + 1), (false, 0));
    assert_eq!(retain(bytes_of(end - bases[1])), (true, bases[1]));
    assert_eq!(retain(bytes_of(end - bases[3]) + 1), (true, bases[2]));
    assert_eq!(retain(bytes_of(end - bases[3])), (true, bases[3]));
}

#[test]
fn a_failed_write_poisons_the_log_until_it_is_opened_again() {
    let disk = MemoryDisk::new(3);
    let mut log = create(&disk);
    append_many(&mut log, 20);
    sync(&mut log).expect("synced");
    disk.fail_next_write();
    assert!(matches!(
        append(&mut log),
        Err(AppendError::Log(LogError::Poisoned { .. }))
    ));
    let Err(AppendError::Log(LogError::Poisoned { reason })) = append(&mut log) else {
        panic!("accepts writes again")
    };
    assert!(reason.contains("injected write error"), "{reason}");
    assert!(log.begin_sync().is_none());
    check_records(&log, 0, 20);
    disk.kill();
    let (mut log, _) = open(&disk, false, 0);
    // The batch whose write failed may be there: no client was told that it is not.
    let end_offset = log.end_offset();
    assert!((20..=21).contains(&end_offset), "{end_offset}");
    append_many(&mut log, 5);
    check_records(&log, 0, end_offset + 5);
}

#[test]
fn a_failed_sync_acknowledges_nothing_and_is_not_retried() {
    let disk = MemoryDisk::new(3);
    let mut log = create(&disk);
    append_many(&mut log, 20);
    sync(&mut log).expect("synced");
    append_many(&mut log, 5);
    disk.fail_next_sync();
    assert!(matches!(sync(&mut log), Err(LogError::Poisoned { .. })));
    assert_eq!(log.durable_offset(), 20);
    assert!(log.begin_sync().is_none(), "a second sync would lie");
    assert!(append(&mut log).is_err());
    assert!(log.close().is_err());
    check_records(&log, 0, 25);
    disk.power_cut();
    let (log, _) = open(&disk, false, 0);
    let end_offset = log.end_offset();
    assert!(end_offset >= 20);
    check_records(&log, 0, end_offset);
}

#[test]
fn a_corrupted_byte_above_the_recovery_point_cuts_the_log_there() {
    for position in [0, 5, 9, 16, 20, 30, 60, 100, 560] {
        let disk = closed(300);
        let segment = &files(&disk, ".log")[1];
        disk.corrupt(segment, 5_000 + position, 0x10);
        let (log, report) = open(&disk, false, 0);
        assert!(
            report.cut_bytes > 0 && report.segments_set_aside > 0,
            "{report:?}"
        );
        assert!(!report.findings.is_empty());
        let end_offset = log.end_offset();
        assert!((110..130).contains(&end_offset), "{end_offset}");
        check_records(&log, 0, end_offset);
        assert!(!files(&disk, ".cut-0").is_empty());
    }
}

#[test]
fn damaged_or_missing_indexes_are_rebuilt() {
    type Damage = fn(&MemoryDisk, &Path);
    let damages: [(&str, Damage); 5] = [
        ("missing", |disk, path| disk.remove_file(path).expect("removed")),
        ("empty", |disk, path| disk.write_file(path, b"")),
        ("torn", |disk, path| {
            let bytes = disk.read_file(path).expect("there");
            disk.write_file(path, &bytes[..bytes.len() - 3]);
        }),
        (
            "zeros behind the entries, as a killed JVM broker leaves them",
            |disk, path| {
                let mut bytes = disk.read_file(path).expect("there");
                bytes.resize(10_000, 0);
                disk.write_file(path, &bytes);
            },
        ),
        ("noise", |disk, path| {
            let mut bytes = disk.read_file(path).expect("there");
            bytes
                .iter_mut()
                .enumerate()
                .for_each(|(index, byte)| *byte ^= index as u8 | 1);
            disk.write_file(path, &bytes);
        }),
    ];
    for (name, damage) in damages {
        for suffix in [".index", ".timeindex"] {
            for clean_shutdown in [true, false] {
                let disk = closed(400);
                files(&disk, suffix).iter().for_each(|path| damage(&disk, path));
                let (mut log, report) = open(&disk, clean_shutdown, 0);
                assert_eq!(report.cut_bytes, 0, "{name} {suffix}");
                check_records(&log, 0, 400);
                // A timestamp look-up may rely on a damaged index below the recovery point, but not
                // after a recovery.
                if !clean_shutdown {
                    let found = log
                        .reader()
                        .offset_for_timestamp(START_MS + 250, log.end(), ReadMode::Blocking)
                        .expect("found");
                    assert!(
                        matches!(found, Lookup::Found(found) if found.offset == 250),
                        "{name}: {found:?}"
                    );
                }
                append_many(&mut log, 10);
                check_records(&log, 0, 410);
            }
        }
    }
}

#[test]
fn damaged_snapshots_and_epoch_files_are_rebuilt() {
    let disk = closed(300);
    for path in files(&disk, ".snapshot") {
        let mut bytes = disk.read_file(&path).expect("there");
        bytes[4] ^= 1;
        disk.write_file(&path, &bytes);
    }
    let epochs = Path::new(DIRECTORY).join(ottla_log::LEADER_EPOCH_FILE);
    disk.write_file(&epochs, b"0\n7\n0 0");
    let (log, _) = open(&disk, true, 300);
    check_records(&log, 0, 300);
    assert_eq!(log.leader_epochs().epoch_at(299), Some(0));
}

#[test]
fn a_directory_with_nothing_but_logs_opens() {
    let disk = closed(400);
    let listed = disk.list(Path::new(DIRECTORY)).expect("listed");
    for entry in listed {
        if entry.path.extension().is_none_or(|extension| extension != "log") {
            disk.remove_file(&entry.path).expect("removed");
        }
    }
    for clean_shutdown in [true, false] {
        let (log, report) = open(&disk, clean_shutdown, 0);
        assert_eq!(report.cut_bytes, 0);
        check_records(&log, 0, 400);
        assert_eq!(log.leader_epochs().epoch_at(0), Some(0));
    }
}

#[test]
fn an_event_loop_never_waits_for_the_device() {
    let disk = closed(1_000);
    let (log, _) = open(&disk, true, 1_000);
    disk.evict();
    let reader = log.reader();
    let bound = Bound {
        offset: 1_000,
        position: None,
    };
    for offset in [0, 100, 500, 990] {
        let read = |mode| reader.read(offset, 5_000, true, bound, mode).expect("in range");
        assert!(
            matches!(read(ReadMode::Resident), Read::WouldBlock),
            "offset {offset}"
        );
        let Read::Region(found) = read(ReadMode::Blocking) else {
            panic!("it is in range")
        };
        found
            .region
            .file
            .load(found.region.position, found.region.bytes)
            .expect("loads");
        let unchecked = found
            .unchecked
            .expect("the bytes are older than the log was opened");
        let checked = unchecked.check(found.region.bytes);
        assert_eq!(checked.expect("intact"), found.region.bytes);
        assert!(
            matches!(read(ReadMode::Resident), Read::Region(_)),
            "offset {offset} was read just now"
        );
    }
    disk.evict();
    let search = |mode| {
        reader
            .offset_for_timestamp(START_MS + 123, bound, mode)
            .expect("works")
    };
    assert_eq!(search(ReadMode::Resident), Lookup::WouldBlock);
    assert!(matches!(search(ReadMode::Blocking), Lookup::Found(found) if found.offset == 123));
}

#[test]
fn the_record_at_an_offset_is_found_in_closed_and_growing_segments_below_the_bound() {
    let disk = MemoryDisk::new(1);
    let mut log = create(&disk);
    append_many(&mut log, 400);
    let reader = log.reader();
    let search = |offset, bound, mode| match reader.first_record_from(offset, bound, mode) {
        Ok(Lookup::Found(found)) => Some((found.timestamp, found.offset)),
        Ok(Lookup::Nothing) => None,
        other => panic!("{other:?}"),
    };
    for offset in [0, 1, 57, 113, 114, 200, 399] {
        let found = search(offset, log.end(), ReadMode::Blocking);
        assert_eq!(found, Some((START_MS + offset, offset)));
    }
    assert_eq!(search(400, log.end(), ReadMode::Blocking), None);
    let bound = Bound {
        offset: 300,
        position: None,
    };
    assert_eq!(
        search(299, bound, ReadMode::Blocking),
        Some((START_MS + 299, 299))
    );
    assert_eq!(search(300, bound, ReadMode::Blocking), None);
}

#[test]
fn offsets_are_found_by_time_in_closed_and_growing_segments() {
    let disk = MemoryDisk::new(1);
    let mut log = create(&disk);
    append_many(&mut log, 400);
    let reader = log.reader();
    let search = |timestamp, bound| match reader.offset_for_timestamp(timestamp, bound, ReadMode::Blocking) {
        Ok(Lookup::Found(found)) => Some((found.timestamp, found.offset)),
        Ok(Lookup::Nothing) => None,
        other => panic!("{other:?}"),
    };
    for offset in [0, 1, 57, 113, 114, 200, 399] {
        assert_eq!(
            search(START_MS + offset, log.end()),
            Some((START_MS + offset, offset))
        );
    }
    assert_eq!(search(0, log.end()), Some((START_MS, 0)));
    assert_eq!(search(START_MS + 400, log.end()), None);
    let bound = Bound {
        offset: 300,
        position: None,
    };
    assert_eq!(search(START_MS + 299, bound), Some((START_MS + 299, 299)));
    assert_eq!(search(START_MS + 300, bound), None);
    let newest = |bound| match reader.offset_for_max_timestamp(bound, ReadMode::Blocking) {
        Ok(Lookup::Found(found)) => found.offset,
        other => panic!("{other:?}"),
    };
    assert_eq!((newest(log.end()), newest(bound)), (399, 299));
    log.delete_records_before(250);
    assert_eq!(search(0, log.end()), Some((START_MS + 250, 250)));
}

#[test]
fn expired_segments_are_removed_including_the_active_one() {
    let disk = MemoryDisk::new(1);
    let mut log = create(&disk);
    append_many(&mut log, 400);
    sync(&mut log).expect("synced");
    log.set_config(LogConfig {
        retention_ms: 1_000,
        ..config()
    });
    let first_gone = log
        .retain(START_MS + 1_120, 400)
        .expect("retained")
        .expect("one expired");
    assert_eq!((first_gone.segment_count(), log.end_offset()), (1, 400));
    assert!(log.retain(START_MS + 1_120, 400).expect("retained").is_none());
    // The high watermark holds back what is not replicated, or here: not synced.
    assert!(log.retain(START_MS + 9_000, 100).expect("retained").is_none());
    log.retain(START_MS + 9_000, 400)
        .expect("retained")
        .expect("all expired");
    assert_eq!((log.start_offset(), log.end_offset()), (400, 400));
    append_many(&mut log, 3);
    check_records(&log, 400, 403);
}

#[test]
fn a_directory_is_locked_once() {
    let disk = MemoryDisk::new(1);
    disk.open(Path::new("x"), OpenMode::Create).expect("created");
    let lock = disk.lock(Path::new(".lock")).expect("free");
    assert!(disk.lock(Path::new(".lock")).is_err());
    drop(lock);
    disk.lock(Path::new(".lock")).expect("free again");
}

/// Flips, cuts and swaps bytes of a whole directory: opening must terminate, and what it returns
/// must be readable.
#[test]
fn opening_any_directory_ends_without_a_panic() {
    for seed in 0..400 {
        let disk = closed(150);
        let mut random = Random::new(seed);
        let listed = disk.list(Path::new(DIRECTORY)).expect("listed");
        for _ in 0..1 + random.below(4) {
            let entry = &listed[random.below(listed.len() as u64) as usize];
            let mut bytes = disk.read_file(&entry.path).expect("there");
            if bytes.is_empty() {
                continue;
            }
            let at = random.below(bytes.len() as u64) as usize;
            match random.below(4) {
                0 => bytes.truncate(at),
                1 => bytes[at] ^= 1 << random.below(8),
                2 => bytes[at..].iter_mut().take(20).for_each(|byte| *byte = 0xff),
                _ => bytes.extend_from_within(at..),
            }
            disk.write_file(&entry.path, &bytes);
        }
        let options = OpenOptions {
            clean_shutdown: random.one_in(2),
            recovery_point: random.below(200) as i64,
            log_start_offset: random.below(3) as i64 * 20,
            now_ms: START_MS,
            ..OpenOptions::default()
        };
        let opened = PartitionLog::open(disk.shared(), Path::new(DIRECTORY), config(), options);
        // Bytes below the recovery point were durable and checked: damage there is an error, not a
        // shorter log.
        let Ok((log, _)) = opened else { continue };
        let mut offset = log.start_offset();
        let mut batch_count = 0;
        while let Ok(Read::Region(read)) = log.reader().read(offset, 1, true, log.end(), ReadMode::Blocking) {
            assert!(read.base_offset <= log.end_offset(), "seed {seed}");
            let mut bytes = vec![0; read.region.bytes as usize];
            let count = read
                .region
                .file
                .read_at(&mut bytes, read.region.position)
                .expect("readable");
            let Some(Ok(batch)) = batches(&bytes[..count]).next() else {
                break;
            };
            assert!(batch.header.next_offset() > offset, "seed {seed}");
            offset = batch.header.next_offset();
            batch_count += 1;
            assert!(batch_count <= 1_000, "seed {seed}");
        }
    }
}

fn checkpoint(log: &mut PartitionLog) -> i64 {
    log.request_checkpoint();
    sync(log).expect("synced");
    let job = log.take_checkpoint().expect("captured");
    let result = job.run();
    log.finish_checkpoint(job, result).expect("written")
}

/// Appends until the next append must begin a new segment, and makes everything durable.
fn filled_to_the_brim(disk: &MemoryDisk) -> (PartitionLog, i64) {
    let mut log = create(disk);
    while log.bytes() + 600 < u64::from(config().segment_bytes) {
        append(&mut log).expect("appended");
    }
    let recovery_point = checkpoint(&mut log);
    assert_eq!(recovery_point, log.end_offset());
    (log, recovery_point)
}

/// Found by a seed of the crash test: the process was killed between creating a segment and the
/// first batch in it. After the restart nothing triggered a sync of the directory, and a power cut
/// removed the segment with acknowledged records.
#[test]
fn a_segment_that_a_killed_process_created_keeps_its_name() {
    for seed in 0..50 {
        let disk = MemoryDisk::new(seed);
        let (mut log, recovery_point) = filled_to_the_brim(&disk);
        disk.cut_power_at(disk.operations() + 2);
        append(&mut log).expect_err("the power goes off behind the creation");
        disk.kill();
        assert_eq!(files(&disk, ".log").len(), 2);
        let (mut log, _) = open(&disk, false, recovery_point);
        append_many(&mut log, 3);
        sync(&mut log).expect("synced");
        disk.power_cut();
        let (log, _) = open(&disk, false, recovery_point);
        check_records(&log, 0, recovery_point + 3);
    }
}

/// Found by a seed of the crash test: a recovery truncated torn bytes but did not sync the
/// truncation. The next segment began at the recovery point, so the truncated one was not examined
/// again after a power cut had restored the bytes.
#[test]
fn truncated_bytes_do_not_come_back_unnoticed() {
    for seed in 0..200 {
        let disk = MemoryDisk::new(seed);
        let (mut log, recovery_point) = filled_to_the_brim(&disk);
        disk.cut_power_at(disk.operations() + 3);
        // Larger segments for a moment: the torn batch goes to the full one.
        log.set_config(LogConfig {
            segment_bytes: 1 << 20,
            ..config()
        });
        while append(&mut log).is_ok() {}
        disk.power_cut();
        let (mut log, _) = open(&disk, false, recovery_point);
        disk.cut_power_at(disk.operations() + 3);
        let _ = append(&mut log);
        disk.power_cut();
        let (log, _) = open(&disk, false, recovery_point);
        check_records(&log, 0, log.end_offset());
    }
}
