//! Real files: past the page cache, and what is in it.

use std::any::Any;
use std::fs;
use std::io::{IoSlice, IoSliceMut};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use super::super::{Descriptors, OsDisk, TemporaryDirectory};
use super::*;
use crate::disk::Disk;

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;

/// A read that does not wait begins to bring what is missing, and now and then has it at once.
const ATTEMPTS: usize = 20;

struct Home {
    directory: TemporaryDirectory,
    descriptors: Arc<Descriptors>,
    disk: OsDisk,
}

impl Home {
    fn new() -> Home {
        let descriptors = Descriptors::with_limit(40);
        Home {
            directory: on_a_disk(),
            disk: OsDisk::with_descriptors(Arc::clone(&descriptors)),
            descriptors,
        }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("file")
    }

    fn create(&self, bytes: u64) -> Arc<OsFile> {
        let file = self.disk.open(&self.path(), OpenMode::Create).expect("created");
        file.write_at(&[IoSlice::new(&text(bytes))], 0).expect("written");
        file.sync().expect("synced");
        os_file(file)
    }

    /// Says so where the file system of the temporary directory has no direct access.
    fn open_direct(&self) -> Arc<OsFile> {
        let file = self.disk.open_direct(&self.path(), OpenMode::Create);
        let file = os_file(file.expect("opened"));
        if !file.is_direct() {
            eprintln!("{} is not read directly", self.path().display());
        }
        file
    }
}

fn os_file(file: Arc<dyn DiskFile>) -> Arc<OsFile> {
    let file: Arc<dyn Any + Send + Sync> = file;
    file.downcast().expect("a file of the operating system")
}

fn text(bytes: u64) -> Vec<u8> {
    (0..bytes)
        .map(|at| (at.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8)
        .collect()
}

/// In memory alone pages stay, and any direct write is taken: these tests would show nothing.
fn on_a_disk() -> TemporaryDirectory {
    const TMPFS: u64 = 0x0102_1994;
    let directory = TemporaryDirectory::beside_the_program("file").expect("created");
    let kind = rustix::fs::statfs(directory.path()).expect("there").f_type as u64;
    let shown = directory.path().display();
    assert_ne!(kind, TMPFS, "{shown} is in memory alone; these tests need a disk");
    directory
}

/// Lets all pages go.
fn let_go(file: &OsFile) {
    // A page that is just being read cannot go.
    file.read_at(&mut [0], 0).expect("read");
    file.forget(0, file.bytes().expect("known"));
    assert!(!file.is_resident(0, 1));
}

#[test]
fn pages_that_were_let_go_come_back_as_they_are_wanted() {
    let home = Home::new();
    let file = home.create(MIB);
    assert!(file.is_resident(0, MIB) && file.is_resident(0, 0) && file.is_sendable());
    let_go(&file);
    assert!(!file.is_resident(0, MIB));
    let refusal = || {
        let_go(&file);
        file.read_at_resident(&mut [0; 10], 0).err()
    };
    let error = (0..ATTEMPTS).find_map(|_| refusal()).expect("gone");
    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    let_go(&file);

    file.load(512 * KIB, 64 * KIB).expect("loaded");
    assert!(file.is_resident(512 * KIB, 64 * KIB));
    assert!(!file.is_resident(256 * KIB, 4 * KIB) && !file.is_resident(768 * KIB, 4 * KIB));
    file.load(1_000 * KIB, MIB).expect("the end of the file ends it");
    assert!(file.is_resident(1_000 * KIB, 24 * KIB));
    file.load(2 * MIB, 1).expect("nothing is there");
    assert_eq!(file.loads.load(Ordering::SeqCst), 0);

    // A file that was loaded once is read ahead by loads alone, not by the kernel.
    let_go(&file);
    file.read_at(&mut [0; 4_096], 0).expect("read");
    assert!(file.is_resident(0, 4 * KIB) && !file.is_resident(4 * KIB, 4 * KIB));
    file.keep_resident(32 * KIB + 5).expect("read");
    assert!(file.is_resident(32 * KIB, 4 * KIB) && !file.is_resident(36 * KIB, 4 * KIB));
}

#[test]
fn a_page_is_kept_in_the_cache_although_its_file_stays_closed() {
    let home = Home::new();
    let file = home.create(MIB);
    let_go(&file);
    while home.descriptors.close_idle_file() {}
    file.keep_resident(512 * KIB).expect("read");
    let now = home.descriptors.now();
    assert_eq!((now.files, now.reopened), (0, 0));
    assert!(file.is_resident(512 * KIB, 1) && !file.is_resident(0, 1));
}

/// Single pages are in the page cache; probes hit them, or what lies between.
#[test]
fn a_probe_looks_at_the_beginning_each_step_and_the_end() {
    let home = Home::new();
    let file = home.create(MIB);
    let_go(&file);
    file.load(0, 4 * KIB).expect("no read-ahead from now on");
    let probe = |pages: &[u64], position: u64, bytes: u64| {
        let_go(&file);
        for page in pages {
            file.read_at(&mut [0], page * 4 * KIB).expect("read");
        }
        file.probe_resident(position, bytes, 64 * KIB)
    };
    let misses =
        |pages: &[u64], position: u64, bytes: u64| (0..ATTEMPTS).any(|_| !probe(pages, position, bytes));
    // From page 1 to the end of page 40: what lies between pages 1, 16, 32 and 40 is not seen.
    let range = (5_000, 41 * 4 * KIB - 5_000);
    assert!(probe(&[1, 16, 32, 40], range.0, range.1));
    for missing in [1, 16, 32, 40] {
        let pages = [1, 16, 32, 40].into_iter().filter(|page| *page != missing);
        let with_next: Vec<u64> = pages.chain([0, 2, 41, 48]).collect();
        assert!(misses(&with_next, range.0, range.1), "page {missing}");
    }
    assert!(probe(&[0, 16, 31], 0, 128 * KIB), "nothing behind the range");
    assert!(misses(&[0, 16], 0, 128 * KIB));
    assert!(probe(&[], 64 * KIB, 0), "an empty range");
    assert!(misses(&[], 0, 1));
}

#[test]
fn space_is_reserved_beyond_the_length_and_given_back() {
    let home = Home::new();
    let file = home.create(MIB);
    let allocated = || {
        let metadata = fs::metadata(home.path()).expect("there");
        assert_eq!(metadata.len(), MIB, "the length is as before");
        metadata.blocks() * 512
    };
    for bytes in [0, 1_000, MIB] {
        file.reserve(bytes).expect("it is there");
        assert!(allocated() < 3 * MIB / 2);
    }
    file.reserve(2 * MIB).expect("reserved");
    assert!((2 * MIB..2 * MIB + 256 * KIB).contains(&allocated()));
    file.set_bytes(MIB).expect("cut off");
    assert!(allocated() < 3 * MIB / 2);
}

#[test]
fn writing_begins_before_the_sync() {
    let home = Home::new();
    let file = home.create(0);
    file.write_at(&[IoSlice::new(&text(MIB))], 0).expect("written");
    file.start_writeback(0, MIB).expect("begun");
    assert!(!calls::is_dirty(file.descriptor().expect("open"), 0, MIB));
    file.start_writeback(u64::MAX, 1).expect_err("no such place");
}

#[test]
fn direct_reads_give_any_range_in_pieces_that_memory_can_take() {
    let home = Home::new();
    let bytes = text(MIB + 5_000);
    home.create(bytes.len() as u64);
    let file = home.open_direct();
    let read = |position: u64, length: usize| {
        let mut buffer = vec![0; length];
        let count = file.read_at(&mut buffer, position).expect("read");
        let from = (position as usize).min(bytes.len());
        assert_eq!(buffer[..count], bytes[from..from + count], "{position}");
        count
    };
    assert_eq!(read(5, 1_000), 1_000);
    assert_eq!(read(4_090, 10_000), 10_000);
    assert_eq!(read(MIB + 4_990, 1_000), 10, "up to the end");
    assert_eq!(read(MIB + 5_000, 1_000), 0);
    assert_eq!(read(3 * MIB, 1_000), 0);
    if file.is_direct() {
        let error = file.read_at_resident(&mut [0; 8], 0).expect_err("never");
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        assert!(!file.is_resident(0, 1));
        // 256 KiB from the block of the first byte on.
        assert_eq!(read(300_000, 400_000), 256 * 1024 - 992);
    }
    // Aligned memory is filled with one request.
    let mut buffer = AlignedBuffer::of(MIB as usize);
    assert_eq!(
        file.read_at(buffer.bytes_mut(), 4 * KIB).expect("read"),
        MIB as usize
    );
    assert!(buffer.bytes_mut()[..] == bytes[4_096..4_096 + MIB as usize]);
    let (mut first, mut second) = (AlignedBuffer::of(8_192), AlignedBuffer::of(4_096));
    let mut parts = [first.bytes_mut(), second.bytes_mut()].map(IoSliceMut::new);
    assert_eq!(file.read_parts_at(&mut parts, 8 * KIB).expect("read"), 12_288);
    assert_eq!(first.bytes_mut()[..], bytes[8_192..16_384]);
    assert_eq!(second.bytes_mut()[..], bytes[16_384..20_480]);
}

/// As with a device whose blocks are larger than ours: it opens the file and refuses the transfer.
#[test]
fn a_file_that_refuses_a_direct_write_is_written_through_the_page_cache_from_then_on() {
    let home = Home::new();
    let file = home.open_direct();
    let mut block = AlignedBuffer::of(4_096);
    block.bytes_mut().fill(7);
    file.write_durably(&[IoSlice::new(block.bytes_mut())], 0)
        .expect("whole blocks");
    assert_eq!(file.is_direct(), home.disk.is_direct(&home.path()));
    file.write_durably(&[IoSlice::new(b"a few bytes")], 4_096)
        .expect("written all the same");
    assert!(!file.is_direct());
    assert!(!calls::is_dirty(file.descriptor().expect("open"), 0, 8 * KIB));
    let written = fs::read(home.path()).expect("read");
    assert_eq!(
        (&written[..4_096], &written[4_096..]),
        (&[7; 4_096][..], &b"a few bytes"[..])
    );
    assert_eq!(file.read_at_resident(&mut [0; 20], 4_096).expect("cached"), 11);
}
