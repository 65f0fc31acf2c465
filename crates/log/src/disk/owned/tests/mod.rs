//! The memory of log files over real and simulated disks.

mod device;
mod requests;
mod memory;

use std::io::IoSlice;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::disk::is_shortage;
use crate::disk::memory::{MemoryDisk, Random};
use crate::disk::os::{OsDisk, TemporaryDirectory};

const MIB: u64 = 1024 * 1024;

fn over(disk: &MemoryDisk, tail_max: u64) -> (OwnedDisk, Arc<LogMemory>) {
    let memory = LogMemory::new(tail_max, MIB);
    (OwnedDisk::new(disk.shared(), Arc::clone(&memory)), memory)
}

fn open(disk: &dyn Disk, name: &str) -> Arc<dyn DiskFile> {
    disk.open_log(Path::new(name), OpenMode::Create).expect("opened")
}

fn append(file: &Arc<dyn DiskFile>, bytes: &[u8]) {
    let end = file.bytes().expect("known");
    let (first, second) = bytes.split_at(bytes.len() / 3);
    file.write_at(&[IoSlice::new(first), IoSlice::new(second)], end)
        .expect("appended");
}

/// Bytes that differ at all positions of a file, for practical purposes.
fn text(from: u64, bytes: usize) -> Vec<u8> {
    (from..from + bytes as u64)
        .map(|at| (at.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8)
        .collect()
}

fn read(file: &Arc<dyn DiskFile>, position: u64, bytes: usize) -> Vec<u8> {
    let mut buffer = vec![0; bytes];
    let mut done = 0;
    while done < bytes {
        match file
            .read_at(&mut buffer[done..], position + done as u64)
            .expect("read")
        {
            0 => break,
            read => done += read,
        }
    }
    buffer.truncate(done);
    buffer
}

#[test]
fn what_is_appended_is_read_from_memory_and_reaches_the_device_with_the_sync() {
    let disk = MemoryDisk::new(1);
    let (owned, memory) = over(&disk, MIB);
    let file = open(&owned, "a.log");
    append(&file, &text(0, 5_000));
    assert_eq!(disk.read_file(Path::new("a.log")).expect("there"), b"");
    assert_eq!(memory.now().unwritten, 5_000);
    assert!(file.is_resident(0, 5_000) && file.descriptor().is_none());
    let pinned = file.pinned(10, 4_000).expect("in memory");
    assert_eq!(
        pinned.slices().flatten().copied().collect::<Vec<u8>>(),
        text(10, 4_000)
    );

    file.sync().expect("synced");
    let below = disk.read_file(Path::new("a.log")).expect("there");
    assert_eq!((&below[..5_000], below.len()), (&text(0, 5_000)[..], 8_192));
    assert!(
        below[5_000..].iter().all(|byte| *byte == 0),
        "the last block is padded"
    );
    assert_eq!(memory.now().unwritten, 0);
    assert_eq!(file.bytes().expect("known"), 5_000);
    assert_eq!(read(&file, 4_990, 100), text(4_990, 10));
}

#[test]
fn a_final_length_leaves_neither_padding_nor_reserved_space() {
    let disk = MemoryDisk::new(1);
    let (owned, _) = over(&disk, MIB);
    let file = open(&owned, "a.log");
    append(&file, &text(0, 5_000));
    file.set_bytes(5_000).expect("noted");
    file.sync().expect("synced");
    assert_eq!(disk.read_file(Path::new("a.log")).expect("there"), text(0, 5_000));
    assert_eq!(disk.used_bytes(), 8_192);
    disk.sync_directory(Path::new("")).expect("synced");
    disk.power_cut();
    assert_eq!(disk.read_file(Path::new("a.log")).expect("there"), text(0, 5_000));
}

/// The need of a sync was forgotten when it had only begun: a retry after a shortage of descriptors
/// said that the length was durable, and after a power cut a middle segment ended in padding.
#[test]
fn an_exact_length_is_durable_although_the_sync_found_no_descriptor_at_first() {
    let synced_alone = |_: &OwnedDisk, file: &Arc<dyn DiskFile>| file.sync();
    let synced_together = |owned: &OwnedDisk, file: &Arc<dyn DiskFile>| {
        let other = owned.open(Path::new("a.index"), OpenMode::Create)?;
        owned.sync_all(&[Arc::clone(file), other], &[])
    };
    let mut refused = 0;
    for grants in 0..8 {
        for seed in 0..20 {
            let disk = MemoryDisk::new(seed);
            let (owned, _) = over(&disk, MIB);
            let file = open(&owned, "a.log");
            append(&file, &text(0, 5_000));
            file.set_bytes(5_000).expect("noted");
            disk.sync_directory(Path::new("")).expect("synced");
            disk.begin_shortage(grants, 1);
            let sync = || match seed % 2 {
                0 => synced_alone(&owned, &file),
                _ => synced_together(&owned, &file),
            };
            while let Err(error) = sync() {
                assert!(is_shortage(&error), "{error}");
                refused += 1;
            }
            disk.power_cut();
            let found = disk.read_file(Path::new("a.log")).expect("there");
            assert!(
                found == text(0, 5_000),
                "seed {seed}, {grants} grants: {} bytes",
                found.len()
            );
        }
    }
    assert!(refused > 60, "{refused}");
}

/// Two threads that needed the file at once both created it, and the slower one emptied it.
#[test]
#[expect(clippy::disallowed_methods, reason = "a race between the threads of a broker")]
fn a_file_that_two_threads_create_at_once_keeps_what_one_of_them_has_written() {
    for round in 0..2_000 {
        let disk = MemoryDisk::new(round);
        let (owned, _) = over(&disk, MIB);
        let file = owned.create_log(Path::new("a.log")).expect("begun");
        append(&file, &text(0, 5_000));
        let start = std::sync::Barrier::new(3);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    start.wait();
                    file.create().expect("created");
                });
            }
            start.wait();
            file.sync().expect("synced");
        });
        let below = disk.read_file(Path::new("a.log")).expect("there");
        assert_eq!(below.get(..5_000), Some(&text(0, 5_000)[..]), "round {round}");
    }
}

#[test]
fn a_file_that_ends_within_a_block_is_appended_to() {
    let disk = MemoryDisk::new(1);
    disk.write_file(Path::new("a.log"), &text(0, 5_000));
    let (owned, _) = over(&disk, MIB);
    let file = open(&owned, "a.log");
    append(&file, &text(5_000, 100));
    assert_eq!(
        read(&file, 4_990, 60),
        text(4_990, 60),
        "both sides of the old end"
    );
    file.sync().expect("synced");
    append(&file, &text(5_100, 10_000));
    file.sync().expect("synced");
    file.set_bytes(15_100).expect("trimmed");
    assert_eq!(
        disk.read_file(Path::new("a.log")).expect("there"),
        text(0, 15_100)
    );
}

#[test]
fn any_order_of_appends_syncs_reads_and_rests_gives_back_the_same_bytes() {
    for seed in 0..60 {
        let mut random = Random::new(seed);
        let disk = MemoryDisk::new(seed);
        disk.set_short_reads(seed % 2 == 0);
        let (owned, memory) = over(&disk, if seed % 3 == 0 { 16 * MIB } else { 32 * 1024 });
        let mut file = open(&owned, "a.log");
        let other = open(&owned, "b.log");
        let (mut end, mut synced) = (0, 0);
        for _ in 0..120 {
            match random.below(12) {
                0..5 => {
                    let sizes = [1, 61, 700, 4_096, 9_000, 300_000];
                    let largest = sizes[random.below(6) as usize];
                    let bytes = 1 + random.below(largest) as usize;
                    append(&file, &text(end, bytes));
                    end += bytes as u64;
                }
                5..8 => {
                    file.sync().expect("synced");
                    synced = end;
                }
                8 => {
                    append(&other, &text(0, 1 + random.below(100_000) as usize));
                    other.sync().expect("synced");
                }
                9 => memory.tick(),
                10 if synced == end => {
                    file.set_bytes(end).expect("trimmed");
                    file = open(&owned, "a.log");
                    assert_eq!(file.bytes().expect("known"), end);
                }
                _ => {
                    let from = random.below(end + 1);
                    let bytes = random.below(200_000) as usize;
                    let there = bytes.min((end - from) as usize);
                    assert_eq!(read(&file, from, bytes), text(from, there), "seed {seed}");
                    file.load(from, bytes as u64).expect("loaded");
                }
            }
        }
        file.sync().expect("synced");
        let below = disk.read_file(Path::new("a.log")).expect("there");
        assert_eq!(below[..end as usize], text(0, end as usize), "seed {seed}");
        // A recovery takes more than this for the remains of a batch.
        assert!(below.len() as u64 - end <= padding_bytes_max(end), "seed {seed}");
        drop((file, other));
        memory.tick();
        let now = memory.now();
        assert_eq!(
            (now.unwritten, now.held - now.loaded),
            (0, 0),
            "seed {seed}: {now:?}"
        );
    }
}

/// What was not synced may be torn and arrive in any order: the tests would prove little otherwise.
#[test]
fn a_power_cut_loses_nothing_that_was_synced() {
    let mut torn = 0;
    for seed in 0..300 {
        let mut random = Random::new(seed);
        let disk = MemoryDisk::new(seed);
        let (owned, _) = over(&disk, MIB);
        let file = open(&owned, "a.log");
        disk.sync_directory(Path::new("")).expect("synced");
        disk.cut_power_at(disk.operations() + 1 + random.below(30));
        let (mut end, mut synced) = (0, 0);
        while disk.has_power() {
            let bytes = 1 + random.below(9_000) as usize;
            append(&file, &text(end, bytes));
            end += bytes as u64;
            if random.one_in(2) && file.sync().is_ok() {
                synced = end as usize;
            }
        }
        disk.power_cut();
        let bytes = disk.read_file(Path::new("a.log")).expect("its name was synced");
        assert_eq!(bytes[..synced], text(0, synced), "seed {seed}");
        let written = text(0, end as usize);
        let (mut run, mut was_lost, mut is_torn) = ((true, 0), false, false);
        for (found, written) in bytes[synced..].iter().zip(&written[synced..]) {
            let arrived = found == written;
            assert!(arrived || *found == 0, "seed {seed}: neither old nor new");
            run = if run.0 == arrived {
                (arrived, run.1 + 1)
            } else {
                (arrived, 1)
            };
            // Most of a sector, since a byte that is lost may have been zero.
            was_lost |= run.1 > 100 && !arrived;
            is_torn |= run.1 > 400 && arrived && was_lost;
        }
        torn += u32::from(is_torn);
    }
    assert!(torn > 10, "{torn}");
}

#[test]
fn a_full_disk_refuses_appends_and_goes_on_when_there_is_room() {
    let disk = MemoryDisk::new(1);
    let (owned, _) = over(&disk, MIB);
    let file = open(&owned, "a.log");
    disk.set_capacity(Some(64 * 1024));
    append(&file, &text(0, 100_000));
    assert!(is_shortage(&file.sync().expect_err("no room")));
    let refused = file
        .write_at(&[IoSlice::new(b"x")], 100_000)
        .expect_err("no room");
    assert_eq!(refused.kind(), io::ErrorKind::StorageFull);
    assert_eq!(read(&file, 0, 100_000), text(0, 100_000));

    disk.set_capacity(None);
    file.sync().expect("there is room");
    append(&file, &text(100_000, 10));
    file.sync().expect("there is room");
    let below = disk.read_file(Path::new("a.log")).expect("there");
    assert_eq!(below[..100_010], text(0, 100_010));
}

#[test]
fn a_failed_write_is_reported_and_what_it_covered_is_not_called_durable() {
    let disk = MemoryDisk::new(1);
    let (owned, memory) = over(&disk, MIB);
    let file = open(&owned, "a.log");
    append(&file, &text(0, 5_000));
    disk.fail_next_write();
    let error = file.sync().expect_err("the device failed");
    assert!(!is_shortage(&error));
    assert_eq!(memory.now().unwritten, 5_000);
}

#[test]
fn memory_for_written_bytes_has_a_bound_and_grows_for_readers_that_come_too_late() {
    let disk = MemoryDisk::new(1);
    let (owned, memory) = over(&disk, 256 * MIB);
    let files: Vec<_> = (0..3)
        .map(|index| open(&owned, &format!("{index}.log")))
        .collect();
    for step in 0..150 {
        for file in &files {
            append(file, &text(step * MIB, MIB as usize));
            file.sync().expect("synced");
        }
    }
    let now = memory.now();
    assert!(now.held <= 66 * MIB, "{now:?}");
    assert!(!files[0].is_resident(100 * MIB, 1) && files[0].is_resident(149 * MIB, MIB));

    files[0].load(100 * MIB, MIB).expect("loaded");
    assert_eq!(
        read(&files[0], 100 * MIB, MIB as usize),
        text(100 * MIB, MIB as usize)
    );
    assert!(
        files[0].is_resident(100 * MIB + 1_000, 1_000),
        "it was read a moment ago"
    );
    for step in 150..200 {
        for file in &files {
            append(file, &text(step * MIB, MIB as usize));
            file.sync().expect("synced");
        }
    }
    let grown = memory.now();
    assert!(
        grown.held - grown.loaded > 64 * MIB && grown.held <= 68 * MIB,
        "{grown:?}"
    );
    for _ in 0..100 {
        memory.tick();
    }
    assert!(memory.now().held <= 6 * MIB, "{:?}", memory.now());
}

#[test]
fn what_lagging_readers_load_has_a_bound_of_its_own() {
    let disk = MemoryDisk::new(1);
    let (owned, memory) = over(&disk, MIB);
    disk.write_file(Path::new("a.log"), &text(0, 4 * MIB as usize));
    let file = open(&owned, "a.log");
    file.load(0, MIB / 2).expect("loaded");
    assert!(file.is_resident(0, MIB / 2));
    file.load(MIB, 3 * MIB).expect("loaded");
    assert!(!file.is_resident(0, 1));
    assert!(file.is_resident(3 * MIB + 1, MIB - 1));
    assert!(memory.now().loaded <= MIB, "{:?}", memory.now());
}

#[test]
fn idle_files_keep_no_memory_and_go_on_within_their_last_block() {
    let disk = MemoryDisk::new(1);
    let (owned, memory) = over(&disk, 64 * 1024);
    let files: Vec<_> = (0..50)
        .map(|index| open(&owned, &format!("{index}.log")))
        .collect();
    for round in 0..3 {
        for file in &files {
            append(file, &text(round * 1_000, 1_000));
            file.sync().expect("synced");
        }
        (0..40).for_each(|_| memory.tick());
        assert!(memory.now().held <= 64 * 1024, "{:?}", memory.now());
    }
    for (index, file) in files.iter().enumerate() {
        assert_eq!(read(file, 0, 3_000), text(0, 3_000));
        let below = disk.read_file(Path::new(&format!("{index}.log"))).expect("there");
        assert_eq!(below[..3_000], text(0, 3_000));
    }
}

#[test]
fn unwritten_bytes_beyond_half_of_the_memory_are_a_shortage() {
    let disk = MemoryDisk::new(1);
    let (owned, memory) = over(&disk, MIB);
    let file = open(&owned, "a.log");
    append(&file, &text(0, (MIB / 2) as usize));
    assert!(!memory.is_short());
    append(&file, b"x");
    assert!(memory.is_short());
    file.sync().expect("synced");
    assert!(!memory.is_short());
    append(&file, &text(MIB / 2 + 1, MIB as usize));
    drop(file);
    assert!(!memory.is_short(), "a file that is gone waits for nothing");
}

#[test]
fn real_files_are_written_and_read_past_the_page_cache() {
    let directory = TemporaryDirectory::new("owned").expect("created");
    let memory = LogMemory::new(32 * 1024, 256 * 1024);
    let owned = OwnedDisk::new(OsDisk::shared(), memory);
    let path = directory.path().join("a.log");
    let file = owned.open_log(&path, OpenMode::Create).expect("opened");
    let mut end = 0;
    for bytes in [1, 5_000, 300_000, 4_096, 17, 1_000_000] {
        append(&file, &text(end, bytes));
        end += bytes as u64;
        file.sync().expect("synced");
    }
    assert_eq!(read(&file, 0, end as usize), text(0, end as usize));
    assert_eq!(read(&file, 123, 1_000), text(123, 1_000));
    let seen = std::fs::read(&path).expect("read");
    assert_eq!(seen[..end as usize], text(0, end as usize));
    assert_eq!(seen.len() as u64, end.next_multiple_of(4_096));
    file.set_bytes(end).expect("trimmed");
    file.sync().expect("synced");
    drop(file);

    let file = owned.open_log(&path, OpenMode::Write).expect("opened");
    append(&file, &text(end, 1_000));
    file.set_bytes(end + 1_000).expect("noted");
    file.sync().expect("synced");
    assert_eq!(std::fs::read(&path).expect("read"), text(0, end as usize + 1_000));
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the memory is used by many threads")]
fn readers_and_a_writer_to_the_device_see_whole_bytes_while_others_are_appended() {
    let directory = TemporaryDirectory::new("owned").expect("created");
    let memory = LogMemory::new(MIB, MIB);
    let owned = OwnedDisk::new(OsDisk::shared(), Arc::clone(&memory));
    let file = owned
        .open_log(&directory.path().join("a.log"), OpenMode::Create)
        .expect("opened");
    let appended = AtomicU64::new(0);
    let total = 6 * MIB;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut end = 0;
            while end < total {
                append(&file, &text(end, 7_001));
                end += 7_001;
                appended.store(end, Ordering::Release);
            }
        });
        scope.spawn(|| {
            while file.bytes().expect("known") < total {
                file.sync().expect("synced");
                memory.tick();
            }
        });
        for seed in 0..2 {
            let (file, appended) = (&file, &appended);
            scope.spawn(move || {
                let mut random = Random::new(seed);
                while appended.load(Ordering::Acquire) < total {
                    let end = appended.load(Ordering::Acquire);
                    let from = end.saturating_sub(random.below(3 * MIB));
                    let bytes = random.below(end - from + 1) as usize;
                    assert_eq!(read(file, from, bytes), text(from, bytes));
                }
            });
        }
    });
    file.sync().expect("synced");
    let end = appended.load(Ordering::Acquire);
    assert_eq!(read(&file, 0, end as usize), text(0, end as usize));
}
