//! What the memory holds, keeps and gives back, to the byte.

use super::super::memory::CHUNK_BYTES_MAX;
use super::device::Device;
use super::*;
use crate::disk::FileRegion;

const KIB: u64 = 1024;

/// Sixteen KiB on the device and in memory.
fn written(owned: &OwnedDisk, name: &str) -> Arc<dyn DiskFile> {
    let file = open(owned, name);
    append(&file, &text(0, 16 * KIB as usize));
    file.sync().expect("synced");
    file
}

fn held(memory: &LogMemory) -> (u64, u64) {
    (memory.now().held, memory.now().free)
}

#[test]
fn chunks_are_as_large_as_what_is_appended_and_double() {
    let device = Device::new();
    let held_after = |sizes: &[usize]| {
        let (owned, memory) = device.below(MIB, MIB);
        let file = owned.create_log(Path::new("a.log")).expect("begun");
        sizes.iter().for_each(|bytes| append(&file, &vec![1; *bytes]));
        memory.now().held
    };
    assert_eq!(held_after(&[1; 100]), 4 * KIB, "the room there is is used");
    assert_eq!(held_after(&[4_096, 1]), 12 * KIB);
    assert_eq!(held_after(&[4_000, 8_200]), 12 * KIB, "96 went into the first");
    assert_eq!(held_after(&[4_096, 20_000]), 36 * KIB);
    assert_eq!(held_after(&[300_000]), 512 * KIB);
}

#[test]
fn what_is_written_stays_up_to_the_bound_and_the_oldest_goes_first() {
    let device = Device::new();
    let (owned, memory) = device.below(64 * KIB, 32 * KIB);
    assert_eq!(memory.now().limit, 96 * KIB);
    let mut files: Vec<_> = (0..4).map(|index| written(&owned, &index.to_string())).collect();
    let resident = |files: &[Arc<dyn DiskFile>]| -> Vec<bool> {
        files.iter().map(|file| file.is_resident(0, 16 * KIB)).collect()
    };
    assert_eq!(held(&memory), (64 * KIB, 0));
    assert_eq!(resident(&files), [true; 4], "exactly the bound");
    // The memory is no smaller than the bound although nothing is appended.
    (0..30).for_each(|_| memory.tick());
    assert_eq!(resident(&files), [true; 4]);

    files.push(written(&owned, "4"));
    assert_eq!(held(&memory), (64 * KIB, 0), "its memory was used again");
    assert_eq!(resident(&files), [false, true, true, true, true]);
    files.pop();
    assert_eq!(held(&memory), (64 * KIB, 16 * KIB));
    let small = open(&owned, "small");
    append(&small, &text(0, 100));
    assert_eq!(
        held(&memory),
        (52 * KIB, 0),
        "free memory goes before what can be read"
    );
    assert_eq!(resident(&files), [false, true, true, true]);

    memory.forget();
    assert_eq!(resident(&files), [false; 4]);
    assert_eq!(held(&memory), (52 * KIB, 48 * KIB));
    let file = open(&owned, "again");
    append(&file, &text(0, 16 * KIB as usize));
    assert_eq!(held(&memory), (52 * KIB, 32 * KIB), "free memory is used first");
    memory.tick();
    assert_eq!(held(&memory), (20 * KIB, 0));
    memory.forget();
    assert!(file.is_resident(0, 16 * KIB), "it is not on the device yet");
    drop(file);
    assert_eq!(held(&memory), (20 * KIB, 16 * KIB));
    append(&open(&owned, "once more"), &text(0, 16 * KIB as usize));
    assert_eq!(memory.now().held, 20 * KIB, "also where more might be held");
}

/// A full chunk was counted as given back while its writer still held it, and others went for it.
#[test]
fn full_chunks_that_are_written_are_used_again_before_their_files_rest() {
    let device = Device::new();
    let (owned, memory) = device.below(64 * KIB, 32 * KIB);
    let files: Vec<_> = (0..5).map(|index| written(&owned, &index.to_string())).collect();
    assert_eq!(held(&memory), (64 * KIB, 0));
    let resident: Vec<bool> = files.iter().map(|file| file.is_resident(0, 16 * KIB)).collect();
    assert_eq!(resident, [false, true, true, true, true]);
    // The next chunk is twice as large as the last one all the same.
    append(&files[4], &text(16 * KIB, 100));
    assert_eq!(held(&memory), (64 * KIB, 0));
    assert!(!files[2].is_resident(0, 1) && files[3].is_resident(0, 16 * KIB));
    assert_eq!(read(&files[4], 0, 100_000), text(0, 16 * KIB as usize + 100));
}

/// A place of a chunk that a truncation ended has the name of one that came after it.
#[test]
fn what_is_not_on_the_device_stays_whatever_the_memory_wants_back() {
    let device = Device::new();
    let (owned, memory) = device.below(64 * KIB, 32 * KIB);
    let file = written(&owned, "a.log");
    file.set_bytes(0).expect("truncated");
    append(&file, &text(7, 16 * KIB as usize));
    memory.forget();
    assert!(file.is_resident(0, 16 * KIB));
    file.sync().expect("synced");
    assert_eq!(
        device.contents("a.log")[..16 * KIB as usize],
        text(7, 16 * KIB as usize)
    );

    let file = written(&owned, "b.log");
    append(&file, &text(16 * KIB, 16 * KIB as usize));
    file.set_bytes(8 * KIB).expect("truncated");
    append(&file, &text(8 * KIB, 16 * KIB as usize));
    file.sync().expect("synced");
    append(&file, &text(24 * KIB, 64 * KIB as usize));
    memory.forget();
    assert!(file.is_resident(24 * KIB, 64 * KIB));
    assert_eq!(read(&file, 0, 100_000), text(0, 88 * KIB as usize));
}

#[test]
fn what_is_loaded_has_an_exact_bound_and_the_newest_granule_stays_in_any_case() {
    let device = Device::new();
    device
        .disk
        .write_file(Path::new("a.log"), &text(0, 3 * MIB as usize));
    let (owned, memory) = device.below(MIB, 256 * KIB);
    let file = open(&owned, "a.log");
    device.calls();
    file.load(0, 2 * MIB).expect("loaded");
    let expected = ["read 0..1048576 into 8", "read 1048576..2097152 into 8"];
    assert_eq!(device.calls(), expected);
    assert!(file.is_resident(2 * MIB - 256 * KIB, 256 * KIB));
    assert!(!file.is_resident(2 * MIB - 257 * KIB, 1));
    assert_eq!(memory.now().loaded, 256 * KIB);
    memory.forget();
    assert!(!file.is_resident(2 * MIB - 1, 1));
    assert_eq!(memory.now().loaded, 0);

    let (owned, memory) = device.below(MIB, 64 * KIB);
    let file = open(&owned, "a.log");
    assert_eq!(read(&file, 5, 1_000), text(5, 1_000));
    assert!(file.is_resident(0, 128 * KIB), "larger than the bound, but alone");
    assert_eq!(read(&file, MIB, 1_000), text(MIB, 1_000));
    assert!(file.is_resident(MIB, 128 * KIB) && !file.is_resident(0, 1));
    assert_eq!(memory.now().loaded, 128 * KIB);
}

/// Up to what is held by written bytes: more chunks than that are given back, of which the next one
/// of another size leaves as many as it may.
fn kept_at_most(memory: &Arc<LogMemory>) -> u64 {
    let chunks: Vec<_> = (0..400).map(|_| memory.take(CHUNK_BYTES_MAX)).collect();
    drop(chunks);
    let small = memory.take(1);
    let held = memory.now().held - memory.now().loaded;
    drop(small);
    held - 4 * KIB + 256 * KIB
}

#[test]
fn more_is_kept_when_readers_come_too_late_and_less_when_none_does() {
    let memory = LogMemory::new(96 * MIB, MIB);
    assert_eq!(kept_at_most(&memory), 64 * MIB);
    memory.note_missed(16 * MIB);
    assert_eq!(kept_at_most(&memory), 80 * MIB);
    memory.tick();
    assert_eq!(kept_at_most(&memory), 80 * MIB, "one came too late");
    memory.tick();
    assert_eq!(kept_at_most(&memory), 80 * MIB - 5 * MIB / 4, "a 64th less");
    memory.note_missed(1024 * MIB);
    assert_eq!(kept_at_most(&memory), 96 * MIB);
}

#[test]
fn a_reader_is_too_late_for_what_was_in_memory_and_not_for_what_never_was() {
    let device = Device::new();
    device
        .disk
        .write_file(Path::new("old.log"), &text(0, 2 * MIB as usize));
    let (owned, memory) = device.below(96 * MIB, 8 * MIB);
    let old = open(&owned, "old.log");
    old.load(0, MIB).expect("loaded");
    assert_eq!(kept_at_most(&memory), 64 * MIB);

    let new = open(&owned, "new.log");
    append(&new, &text(0, 2 * MIB as usize));
    new.sync().expect("synced");
    memory.forget();
    new.load(0, MIB).expect("loaded");
    assert_eq!(kept_at_most(&memory), 65 * MIB);
}

/// Between two requests of the reader more is appended than one request of it would gain.
#[test]
fn a_reader_gets_past_the_beginning_of_what_is_in_memory() {
    let disk = MemoryDisk::new(1);
    let memory = LogMemory::new(4 * MIB, 8 * MIB);
    let owned = OwnedDisk::new(disk.shared(), Arc::clone(&memory));
    let file = open(&owned, "a.log");
    let grow = |bytes: u64| {
        append(&file, &vec![7; bytes as usize]);
        file.sync().expect("synced");
    };
    (0..16).for_each(|_| grow(MIB));
    let mut at = 10 * MIB;
    let mut is_in_memory = false;
    for _ in 0..300 {
        if !file.stays_resident(at, MIB) {
            file.load(at, MIB).expect("loaded");
        }
        grow(MIB - MIB / 32);
        let wanted = MIB.min(file.bytes().expect("known") - at);
        let region = FileRegion {
            file: Arc::clone(&file),
            position: at,
            bytes: wanted,
        };
        at += region.resident_bytes(wanted);
        is_in_memory = file.is_resident(at, file.bytes().expect("known") - at);
    }
    assert!(is_in_memory, "{at} of {}", file.bytes().expect("known"));
}

#[test]
fn the_part_of_a_range_that_is_in_memory_is_known_to_the_byte() {
    let disk = MemoryDisk::new(1);
    let memory = LogMemory::new(MIB, MIB);
    let owned = OwnedDisk::new(disk.shared(), Arc::clone(&memory));
    let file = open(&owned, "a.log");
    append(&file, &vec![7; 700 * KIB as usize]);
    file.sync().expect("synced");
    memory.tick();
    memory.forget();
    assert_eq!(file.resident_bytes(0, MIB), 0);
    file.load(0, 300 * KIB).expect("loaded");
    assert_eq!(
        file.resident_bytes(1, MIB),
        384 * KIB - 1,
        "whole granules are loaded"
    );
    file.load(0, MIB).expect("loaded");
    assert_eq!(
        file.resident_bytes(1, MIB),
        MIB,
        "what is behind the end is not waited for"
    );
}
