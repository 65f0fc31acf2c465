//! When one `syncfs` takes the place of many syncs. The files are closed before: whatever syncs one
//! of them by itself has to open it again.

use std::io::IoSlice;
use std::path::PathBuf;

use super::super::{Descriptors, OsDisk, TemporaryDirectory, calls};
use super::*;
use crate::disk::memory::MemoryDisk;
use crate::disk::{Disk, OpenMode};

/// On another device than any temporary directory.
const ELSEWHERE: &str = "/dev";

struct Closed {
    directory: TemporaryDirectory,
    descriptors: Arc<Descriptors>,
    disk: OsDisk,
    files: Vec<Arc<dyn DiskFile>>,
}

impl Closed {
    fn files(count: usize) -> Closed {
        let directory = TemporaryDirectory::new("batch").expect("created");
        let descriptors = Descriptors::with_limit(40);
        let disk = OsDisk::with_descriptors(Arc::clone(&descriptors));
        let open = |index: usize| {
            let path = directory.path().join(format!("file-{index}"));
            disk.open(&path, OpenMode::Create).expect("created")
        };
        Closed {
            files: (0..count).map(open).collect(),
            directory,
            descriptors,
            disk,
        }
    }

    fn watch(&self) {
        self.disk.0.file_systems.watch(&self.path(".lock"));
    }

    fn watched(&self) -> usize {
        let watched = self.disk.0.file_systems.watched.lock();
        watched.unwrap_or_else(PoisonError::into_inner).len()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// How many files `act` had to open.
    fn opened_by(&self, act: impl FnOnce()) -> u64 {
        while self.descriptors.close_idle_file() {}
        assert_eq!(self.descriptors.now().files, 0);
        let before = self.descriptors.now().reopened;
        act();
        self.descriptors.now().reopened - before
    }

    /// Writes to the first `count` files and syncs them together; returns how many were opened for
    /// that. All of them are on the device then.
    fn opened_by_sync(&self, count: usize, directories: &[&Path]) -> u64 {
        let files = &self.files[..count];
        for file in files {
            file.write_at(&[IoSlice::new(&[1; 5_000])], 0).expect("written");
        }
        let opened = self.opened_by(|| self.disk.sync_all(files, directories).expect("synced"));
        for file in files {
            let descriptor = file.descriptor().expect("opened");
            assert!(!calls::is_dirty(&descriptor, 0, 5_000));
        }
        opened
    }

    /// Whether the temporary directory is on a file system whose `syncfs` is relied on: on others
    /// the same tests show that every file is synced by itself.
    fn is_known(&self) -> bool {
        let kind = rustix::fs::statfs(self.directory.path()).expect("there").f_type as u64;
        let is_known = KNOWN_TYPES.contains(&kind) && kernel() >= KERNEL_MIN;
        if !is_known {
            eprintln!("no syncfs for a file system of type {kind:#x}");
        }
        is_known
    }
}

#[test]
fn sixteen_files_and_directories_of_a_watched_file_system_are_synced_at_once() {
    let closed = Closed::files(20);
    assert_eq!(closed.opened_by_sync(20, &[]), 20, "not watched");
    closed.watch();
    let home = closed.directory.path();
    let cases: [(usize, &[&Path], bool); 8] = [
        (16, &[], true),
        (15, &[], false),
        (15, &[home], true),
        (14, &[home], false),
        (20, &[home], true),
        (2, &[], false),
        (20, &[home, Path::new(ELSEWHERE)], false),
        (20, &[], true),
    ];
    for (count, directories, is_at_once) in cases {
        let opened = closed.opened_by_sync(count, directories);
        // A file's own sync flushes the device's cache in any case.
        let expected = if is_at_once && closed.is_known() {
            1
        } else {
            count as u64
        };
        assert_eq!(opened, expected, "{count} files and {directories:?}");
    }
}

#[test]
fn a_file_of_another_disk_and_a_failure_before_make_each_file_sync_itself() {
    let mut closed = Closed::files(20);
    closed.watch();
    let file_systems = &closed.disk.0.file_systems;
    assert!(file_systems.sync(&closed.files, &[]) == closed.is_known());
    file_systems.is_distrusted.store(true, Ordering::SeqCst);
    assert_eq!(closed.opened_by_sync(20, &[]), 20);
    let file_systems = &closed.disk.0.file_systems;
    file_systems.is_distrusted.store(false, Ordering::SeqCst);
    let other = MemoryDisk::new(1).open(Path::new("other"), OpenMode::Create);
    closed.files.push(other.expect("opened"));
    let opened = closed.opened_by(|| closed.disk.sync_all(&closed.files, &[]).expect("synced"));
    assert_eq!(opened, 20);
}

#[test]
fn a_file_system_is_watched_once_and_only_if_it_is_known() {
    let closed = Closed::files(0);
    for _ in 0..3 {
        closed.watch();
        assert_eq!(closed.watched(), usize::from(closed.is_known()));
    }
    for path in ["/proc/self/.lock", "/dev/.lock", "/nowhere/.lock"] {
        closed.disk.0.file_systems.watch(Path::new(path));
    }
    assert_eq!(closed.watched(), usize::from(closed.is_known()));
}

#[test]
fn the_kernel_is_known_by_its_first_two_numbers() {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").expect("Linux");
    let (major, minor) = kernel();
    assert!(release.starts_with(&format!("{major}.{minor}")), "{release}");
}

#[test]
fn a_file_need_not_settle_what_its_file_system_has_settled() {
    let closed = Closed::files(1);
    let opened_by_settle = || closed.opened_by(|| closed.files[0].settle().expect("settled"));
    closed.disk.settle(closed.directory.path());
    assert_eq!(opened_by_settle(), 1, "not watched");
    closed.watch();
    assert_eq!(opened_by_settle(), 1);
    for directory in [ELSEWHERE, "/nowhere"] {
        closed.disk.settle(Path::new(directory));
        assert_eq!(opened_by_settle(), 1, "{directory}");
    }
    closed.disk.settle(closed.directory.path());
    assert_eq!(opened_by_settle(), u64::from(!closed.is_known()));
}
