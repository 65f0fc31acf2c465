//! What the device is asked for, and when: each write, read, reservation and sync.

use super::device::Device;
use super::*;

const KIB: u64 = 1024;

#[test]
fn the_first_sync_creates_a_file_and_empties_a_leftover_of_its_name() {
    let device = Device::new();
    let (owned, _) = device.below(MIB, MIB);
    let file = owned.create_log(Path::new("a.log")).expect("begun");
    append(&file, &text(0, 5_000));
    assert!(!device.disk.exists(Path::new("a.log")));
    let named = owned.create_log(Path::new("named.log")).expect("begun");
    named.create().expect("created");
    assert!(device.disk.exists(Path::new("named.log")));
    assert_eq!(device.calls(), ["length"]);
    named.settle().expect("settled");
    assert_eq!(device.calls(), ["sync"]);
    file.sync().expect("synced");
    // Space is reserved ahead; the length is not changed, so no sync is needed.
    assert_eq!(device.calls(), ["length", "reserve 73728", "write 0..8192"]);
    file.sync().expect("nothing is to be done");
    assert_eq!(device.calls(), [""; 0]);
    append(&file, &text(5_000, 10));
    file.sync().expect("synced");
    assert_eq!(device.calls(), ["write 4096..8192"], "the last block again");

    device.disk.write_file(Path::new("b.log"), &[7; 100_000]);
    let file = owned.create_log(Path::new("b.log")).expect("begun");
    append(&file, &text(0, 5_000));
    file.sync().expect("synced");
    let expected = ["length", "set length 0", "reserve 73728", "write 0..8192"];
    assert_eq!(device.calls(), expected);
    let below = device.contents("b.log");
    assert_eq!((&below[..5_000], below.len()), (&text(0, 5_000)[..], 8_192));
    assert!(below[5_000..].iter().all(|byte| *byte == 0));
}

#[test]
fn zeros_are_written_ahead_of_small_writes_and_space_is_reserved_ahead_of_all() {
    let device = Device::new();
    let (owned, _) = device.below(8 * MIB, MIB);
    let file = open(&owned, "a.log");
    let mut end = 0;
    device.calls();
    let mut write_up_to = |to: u64| {
        append(&file, &text(end, (to - end) as usize));
        end = to;
        file.sync().expect("synced");
        let below = device.contents("a.log");
        assert_eq!(below[..to as usize], text(0, to as usize));
        assert!(below[to as usize..].iter().all(|byte| *byte == 0));
        // A recovery takes more than this for the remains of a batch.
        assert!(below.len() as u64 - to <= padding_bytes_max(to));
        device.calls()
    };
    // The beginning of a file has none, a large write neither; nor is anything reserved twice.
    assert_eq!(write_up_to(4_096), ["reserve 69632", "write 0..4096"]);
    assert_eq!(write_up_to(69_632), ["write 4096..69632"], "all that is reserved");
    assert_eq!(write_up_to(69_633), ["reserve 212992", "write 69632..106496"]);
    assert_eq!(write_up_to(106_000), ["write 69632..106496"]);
    assert_eq!(
        write_up_to(106_496),
        ["write 102400..106496"],
        "all that is zeroed"
    );
    // 64 KiB are small, one byte more is not.
    assert_eq!(
        write_up_to(106_496 + 64 * KIB),
        ["reserve 450560", "write 106496..225280"]
    );
    assert_eq!(write_up_to(225_280), ["write 172032..225280"]);
    assert_eq!(
        write_up_to(225_281 + 64 * KIB),
        ["write 225280..294912"],
        "padded to the block"
    );
    // Never more than 256 KiB of zeros, nor 8 MiB of reserved space.
    assert_eq!(write_up_to(MIB), ["reserve 2097152", "write 290816..1048576"]);
    assert_eq!(write_up_to(MIB + 1), ["write 1048576..1314816"]);
    assert_eq!(
        write_up_to(9 * MIB),
        ["reserve 17825792", "write 1048576..9437184"]
    );
    assert_eq!(padding_bytes_max(100_000), 2_400 + 12 * 4_096);
    assert_eq!(padding_bytes_max(5_000), 3_192);
}

/// Otherwise a producer that never rests would make a sync last for ever.
#[test]
fn a_sync_ends_with_what_was_there_when_it_began() {
    let device = Device::new();
    let (owned, memory) = device.below(MIB, MIB);
    let file = open(&owned, "a.log");
    append(&file, &text(0, 5_000));
    let (appender, mut left) = (Arc::clone(&file), 5);
    device.during_writes(Some(Box::new(move || {
        if left > 0 {
            left -= 1;
            append(&appender, &[8; 1_000]);
        }
    })));
    file.sync().expect("synced");
    device.during_writes(None);
    assert_eq!(memory.now().unwritten, 1_000);
    assert_eq!(device.calls(), ["length", "reserve 73728", "write 0..8192"]);
    file.sync().expect("synced");
    assert_eq!(device.calls(), ["write 4096..8192"]);
    assert_eq!(memory.now().unwritten, 0);
}

/// After a kill each log that was written ends so: truncating them would take most of a start.
#[test]
fn zeros_behind_an_end_stay_until_they_are_written_over_or_trimmed() {
    let device = Device::new();
    let (owned, _) = device.below(MIB, MIB);
    let padded = [text(0, 5_000), vec![0; 3_192]].concat();
    for more in [0, 10] {
        device.disk.write_file(Path::new("a.log"), &padded);
        let file = open(&owned, "a.log");
        assert_eq!(read(&file, 0, 9_000), padded);
        device.calls();
        file.end_before_zeros(5_000).expect("noted");
        assert_eq!(device.calls(), [""; 0]);
        assert_eq!(file.bytes().expect("known"), 5_000);
        assert_eq!(read(&file, 0, 9_000), text(0, 5_000));
        device.calls();
        let end = 5_000 + more;
        append(&file, &text(5_000, more as usize));
        file.set_bytes(end).expect("noted or set");
        file.sync().expect("synced");
        let calls = device.calls();
        assert_eq!(
            calls[calls.len() - 2..],
            [format!("set length {end}"), "sync".to_owned()]
        );
        assert_eq!(device.contents("a.log"), text(0, end as usize));
    }
}

#[test]
fn an_exact_length_is_set_and_synced_once() {
    let device = Device::new();
    let (owned, _) = device.below(MIB, MIB);
    let file = open(&owned, "a.log");
    append(&file, &text(0, 5_000));
    device.calls();
    file.set_bytes(5_000).expect("noted");
    assert_eq!(device.calls(), [""; 0]);
    file.sync().expect("synced");
    assert_eq!(
        device.calls(),
        ["reserve 73728", "write 0..8192", "set length 5000", "sync"]
    );
    file.set_bytes(5_000).expect("it is");
    file.sync().expect("it is");
    assert_eq!(device.calls(), [""; 0]);
    append(&file, &text(5_000, 10));
    file.sync().expect("synced");
    assert_eq!(device.calls(), ["reserve 73728", "write 4096..8192"]);
    file.set_bytes(5_010).expect("written already");
    file.set_bytes(4_000).expect("shorter");
    file.sync().expect("synced");
    assert_eq!(device.calls(), ["set length 5010", "set length 4000", "sync"]);
    assert_eq!(file.bytes().expect("known"), 4_000);
    assert_eq!(device.contents("a.log"), text(0, 4_000));
}

/// What was appended and not yet on the device was lost: zeros took its place.
#[test]
fn a_truncation_keeps_what_is_before_it_although_that_was_not_written() {
    let device = Device::new();
    let (owned, memory) = device.below(MIB, MIB);
    for (length, kept) in [(3_000, 3_000), (7_000, 7_000), (12_000, 10_000)] {
        let name = format!("{length}.log");
        let file = open(&owned, &name);
        append(&file, &text(0, 5_000));
        file.sync().expect("synced");
        append(&file, &text(5_000, 5_000));
        file.set_bytes(length).expect("set");
        assert_eq!(memory.now().unwritten, 0, "{length}");
        let mut expected = text(0, kept);
        expected.resize(length as usize, 0);
        assert_eq!(read(&file, 0, 20_000), expected);
        file.sync().expect("synced");
        assert_eq!(device.contents(&name), expected);
    }
}

/// The remains of the block were written from one chunk and the rest from the next: the device
/// takes whole blocks only.
#[test]
fn a_file_that_rested_within_a_block_goes_on_in_one_piece() {
    let device = Device::new();
    let (owned, memory) = device.below(MIB, MIB);
    let file = open(&owned, "a.log");
    append(&file, &text(0, 5_000));
    file.sync().expect("synced");
    (0..2).for_each(|_| memory.tick());
    append(&file, &text(5_000, 5_000));
    assert!(file.is_resident(0, 10_000), "nothing was let go");
    device.calls();
    file.sync().expect("synced");
    assert_eq!(device.calls(), ["write 4096..12288"]);
    assert_eq!(device.contents("a.log")[..10_000], text(0, 10_000));
}

#[test]
fn what_is_not_written_waits_for_a_sync_however_long_nothing_is_appended() {
    let device = Device::new();
    let (owned, memory) = device.below(MIB, MIB);
    let file = open(&owned, "a.log");
    append(&file, &text(0, 5_000));
    (0..3).for_each(|_| memory.tick());
    memory.forget();
    assert_eq!(memory.now().unwritten, 5_000);
    assert_eq!(read(&file, 0, 10_000), text(0, 5_000));
    file.sync().expect("synced");
    assert_eq!(device.contents("a.log")[..5_000], text(0, 5_000));
}

#[test]
fn whole_granules_are_loaded_up_to_eight_at_once() {
    let device = Device::new();
    let end = 3 * MIB + 5_000;
    device.disk.write_file(Path::new("a.log"), &text(0, end as usize));
    let (owned, memory) = device.below(MIB, 8 * MIB);
    let file = open(&owned, "a.log");
    device.calls();
    let load = |from: u64, to: u64| {
        file.load(from, to - from).expect("loaded");
        assert!(file.is_resident(from, to - from));
        device.calls()
    };
    assert_eq!(load(0, 128 * KIB), ["read 0..131072 into 1"]);
    assert_eq!(load(0, 128 * KIB), [""; 0]);
    assert_eq!(load(0, 200_000), ["read 131072..262144 into 1"]);
    let expected = [
        "read 262144..1310720 into 8",
        "read 1310720..2359296 into 8",
        "read 2359296..3145728 into 6",
    ];
    assert_eq!(load(0, 3 * MIB), expected);
    assert_eq!(load(0, end), ["read 3145728..3150728"], "within a block");
    assert_eq!(memory.now().loaded, 3 * MIB + 8 * KIB);
    assert_eq!(read(&file, 0, 4 * MIB as usize), text(0, end as usize));
    assert_eq!(device.calls(), [""; 0]);
}

#[test]
fn a_small_read_loads_its_granule_and_a_large_one_leaves_nothing_behind() {
    let device = Device::new();
    device
        .disk
        .write_file(Path::new("a.log"), &text(0, 2 * MIB as usize));
    let (owned, _) = device.below(MIB, MIB);
    let file = open(&owned, "a.log");
    device.calls();
    assert_eq!(read(&file, 5, 1_000), text(5, 1_000));
    assert_eq!(device.calls(), ["read 0..131072 into 1"]);
    assert!(file.is_resident(0, 128 * KIB) && !file.is_resident(128 * KIB, 1));
    let from = 128 * KIB + 5;
    assert_eq!(
        read(&file, from, 128 * KIB as usize),
        text(from, 128 * KIB as usize)
    );
    assert_eq!(device.calls(), ["read 131077..262149"]);
    assert!(!file.is_resident(from, 1));
    let last = 128 * KIB as usize - 1;
    assert_eq!(read(&file, from, last), text(from, last));
    let expected = ["read 131072..262144 into 1", "read 262144..393216 into 1"];
    assert_eq!(device.calls(), expected, "one granule after the other");
}

#[test]
fn a_short_read_is_gone_on_with() {
    let device = Device::new();
    device.disk.set_short_reads(true);
    let end = MIB + 5_000;
    device.disk.write_file(Path::new("a.log"), &text(0, end as usize));
    let (owned, _) = device.below(MIB, 2 * MIB);
    for _ in 0..20 {
        let file = open(&owned, "a.log");
        file.load(0, end).expect("loaded");
        assert!(file.is_resident(0, end));
        assert_eq!(read(&file, 0, 2 * MIB as usize), text(0, end as usize));
        drop(file);
        // The beginning of the last block is read back before it is written.
        let file = open(&owned, "a.log");
        append(&file, &text(end, 10));
        file.sync().expect("synced");
        file.set_bytes(end).expect("cut off again");
        assert!(device.contents("a.log") == text(0, end as usize));
    }
}

#[test]
fn a_file_ends_where_it_ends() {
    let device = Device::new();
    device.disk.write_file(Path::new("a.log"), &text(0, 200_000));
    let (owned, _) = device.below(MIB, MIB);
    let file = open(&owned, "a.log");
    let mut buffer = [0; 100];
    assert!(file.pinned(0, 1_000).is_none(), "it is not in memory");
    let error = file.read_at_resident(&mut buffer, 0).expect_err("nor to be had");
    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    assert_eq!(file.read_at_resident(&mut buffer, 200_000).expect("the end"), 0);
    assert_eq!(file.read_at(&mut buffer, 200_000).expect("the end"), 0);
    append(&file, &text(200_000, 50));
    assert_eq!(file.read_at_resident(&mut buffer, 200_000).expect("there"), 50);
    assert_eq!(file.pinned(200_000, 1_000).expect("there").bytes(), 50);
    assert!(file.pinned(200_050, 1).is_none());
    assert!(file.is_sendable() && file.descriptor().is_none());

    // Another program has cut it: what is gone ends the read, and is no reason to try again.
    device.disk.write_file(Path::new("a.log"), b"");
    assert_eq!(file.read_at(&mut buffer, 0).expect("the end"), 0);
}

/// The granule at the old end holds less than it could by now.
#[test]
fn a_granule_that_was_loaded_at_the_end_is_read_again_when_the_file_has_grown() {
    let device = Device::new();
    let (owned, memory) = device.below(MIB, MIB);
    let file = open(&owned, "a.log");
    let mut end = 0;
    for bytes in [128 * KIB, 12 * KIB, 5_000, 70_000, 3] {
        append(&file, &text(end, bytes as usize));
        end += bytes;
        file.sync().expect("synced");
        (0..2).for_each(|_| memory.tick());
        memory.forget();
        assert!(!file.is_resident(0, end));
        file.load(0, end).expect("loaded");
        assert!(file.is_resident(0, end));
        assert_eq!(read(&file, 0, end as usize), text(0, end as usize));
    }
}

#[test]
fn log_files_are_written_one_by_one_and_all_else_is_synced_together() {
    let device = Device::new();
    let (owned, memory) = device.below(MIB, MIB);
    let logs = [open(&owned, "a.log"), open(&owned, "b.log")];
    logs.iter().for_each(|log| append(log, &text(0, 5_000)));
    logs[1].set_bytes(5_000).expect("noted");
    let index = owned
        .open(Path::new("a.index"), OpenMode::Create)
        .expect("opened");
    device.calls();
    let [first, second] = logs;
    let files = [first, second, index];
    owned.sync_all(&files, &[Path::new("home")]).expect("synced");
    let expected = [
        "reserve 73728",
        "write 0..8192",
        "reserve 73728",
        "write 0..8192",
        "set length 5000",
        "sync together a.index, b.log, home/",
    ];
    assert_eq!(device.calls(), expected);
    assert_eq!(memory.now().unwritten, 0);
    owned.sync_all(&files[..2], &[]).expect("synced");
    assert_eq!(device.calls(), ["sync together "], "the length is durable");
}

#[test]
fn what_is_no_log_file_is_left_to_the_disk_below() {
    let device = Device::new();
    let (owned, _) = device.below(MIB, MIB);
    owned.settle(Path::new("home"));
    owned.pause();
    assert_eq!(device.calls(), ["settle home/", "pause"]);
    assert!(owned.is_direct(Path::new("direct")) && !owned.is_direct(Path::new("other")));
    assert!(owned.memory().is_some() && owned.below().is_some());
    owned.create_directories(Path::new("home")).expect("created");
    owned.open(Path::new("home/a"), OpenMode::Create).expect("opened");
    owned
        .rename(Path::new("home/a"), Path::new("home/b"))
        .expect("renamed");
    let listed = owned.list(Path::new("home")).expect("listed");
    assert_eq!(listed.len(), 1);
    assert!(owned.exists(Path::new("home/b")) && !owned.exists(Path::new("home/a")));
    owned.remove_file(Path::new("home/b")).expect("removed");
    owned.remove_directory(Path::new("home")).expect("removed");
    assert!(!device.disk.exists(Path::new("home")));
    owned.sync_directory(Path::new("home")).expect_err("it is gone");
}
