//! Many files with few descriptors: transparent to everything above the disk.

use std::io::IoSlice;
use std::path::PathBuf;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::disk::is_shortage;
use crate::disk::memory::Random;

/// Limits are small: 40 descriptors leave 8 for files and connections, of which files keep at least
/// 2.
fn disk(limit: usize) -> (TemporaryDirectory, Arc<Descriptors>, OsDisk) {
    let directory = TemporaryDirectory::new("descriptors").expect("created");
    let descriptors = Descriptors::with_limit(limit);
    let disk = OsDisk::with_descriptors(Arc::clone(&descriptors));
    (directory, descriptors, disk)
}

fn create(disk: &OsDisk, path: &Path, text: &str) -> Arc<dyn DiskFile> {
    let file = disk.open(path, OpenMode::Create).expect("created");
    write(&*file, text);
    file
}

fn write(file: &dyn DiskFile, text: &str) {
    file.write_at(&[IoSlice::new(text.as_bytes())], 0)
        .expect("written");
}

fn read(file: &dyn DiskFile) -> String {
    let mut buffer = [0; 64];
    let read = file.read_at(&mut buffer, 0).expect("readable");
    String::from_utf8_lossy(&buffer[..read]).into_owned()
}

/// Opens and uses enough other files that every idle one is closed.
fn push_out(disk: &OsDisk, directory: &Path, descriptors: &Descriptors) {
    for index in 0..=descriptors.now().limit {
        let path = directory.join(format!("other-{index}"));
        create(disk, &path, "other").sync().expect("synced");
    }
    while descriptors.close_idle_file() {}
}

/// What others may still read is never cut.
#[test]
fn a_large_file_is_freed_in_steps_unless_another_name_or_descriptor_needs_it() {
    let directory = TemporaryDirectory::beside_the_program("removal").expect("created");
    let path = directory.path().join("large");
    let bytes = vec![7; 5 * removal::STEP_BYTES as usize / 2];
    let steps = |keep: &dyn Fn() -> Option<fs::File>| {
        fs::write(&path, &bytes).expect("written");
        let large = LargeFile::open(&path).expect("there").expect("large");
        let kept = keep();
        fs::remove_file(&path).expect("removed");
        let steps = large.free().expect("freed");
        (steps, kept)
    };
    assert_eq!(steps(&|| None).0, 3);
    let (freed, kept) = steps(&|| fs::File::open(&path).ok());
    assert_eq!(
        (freed, kept.expect("open").metadata().expect("there").len()),
        (0, bytes.len() as u64)
    );
    let link = directory.path().join("link");
    let (freed, _) = steps(&|| fs::hard_link(&path, &link).map(|()| None).expect("linked"));
    assert_eq!((freed, fs::read(&link).expect("there").len()), (0, bytes.len()));
    let (freed, _) = steps(&|| None);
    assert_eq!(freed, 3, "the rest of the file system does not matter");
    fs::write(&path, b"small").expect("written");
    assert!(LargeFile::open(&path).expect("there").is_none());
}

#[test]
fn any_number_of_files_is_used_with_a_few_descriptors() {
    let (directory, descriptors, disk) = disk(40);
    let path = |index: usize| directory.path().join(format!("file-{index}"));
    let files: Vec<Arc<dyn DiskFile>> = (0..100)
        .map(|index| create(&disk, &path(index), &format!("this is {index}")))
        .collect();
    for round in 0..3 {
        for (index, file) in files.iter().enumerate() {
            assert_eq!(read(&**file), format!("this is {index}"), "round {round}");
            assert!(descriptors.now().files <= 8);
        }
    }
    assert!(descriptors.now().reopened >= 276);
    drop(files);
    assert_eq!(descriptors.now().files, 0);
}

#[test]
fn a_frequently_used_file_stays_open() {
    let (directory, descriptors, disk) = disk(40);
    let favourite = create(&disk, &directory.path().join("favourite"), "x");
    read(&*favourite);
    let others: Vec<Arc<dyn DiskFile>> = (0..50)
        .map(|index| create(&disk, &directory.path().join(index.to_string()), "y"))
        .collect();
    let before = descriptors.now().reopened;
    read(&*favourite);
    for other in &others {
        read(&**other);
        read(&*favourite);
    }
    let reopened = descriptors.now().reopened - before;
    assert!(
        (43..=52).contains(&reopened),
        "{reopened} instead of the others alone"
    );
}

#[test]
fn closed_files_follow_their_names() {
    let (directory, descriptors, disk) = disk(40);
    let (old, new) = (directory.path().join("old"), directory.path().join("new"));
    disk.create_directories(&old).expect("created");
    let file = create(&disk, &old.join("a"), "the first");
    let other = create(&disk, &old.join("b"), "the second");
    push_out(&disk, directory.path(), &descriptors);
    disk.rename(&old.join("a"), &old.join("a.deleted"))
        .expect("renamed");
    assert_eq!(read(&*file), "the first");
    push_out(&disk, directory.path(), &descriptors);
    disk.rename(&old, &new).expect("renamed");
    assert_eq!(
        (read(&*file), read(&*other)),
        ("the first".into(), "the second".into())
    );
    // The file is known under its new name, and the old name is gone.
    push_out(&disk, directory.path(), &descriptors);
    let again = disk.open(&new.join("a.deleted"), OpenMode::Read).expect("there");
    assert!(disk.open(&old.join("a.deleted"), OpenMode::Read).is_err());
    disk.rename(&new.join("a.deleted"), &new.join("c"))
        .expect("renamed");
    push_out(&disk, directory.path(), &descriptors);
    assert_eq!(
        (read(&*again), read(&*file)),
        ("the first".into(), "the first".into())
    );
}

#[test]
fn a_closed_file_is_readable_after_its_name_is_gone() {
    let (directory, descriptors, disk) = disk(40);
    let path = |name: &str| directory.path().join(name);
    let removed = create(&disk, &path("removed"), "removed");
    let replaced = create(&disk, &path("replaced"), "replaced");
    create(&disk, &path("replacement"), "replacement");
    push_out(&disk, directory.path(), &descriptors);
    disk.remove_file(&path("removed")).expect("removed");
    disk.rename(&path("replacement"), &path("replaced"))
        .expect("renamed");
    push_out(&disk, directory.path(), &descriptors);
    assert_eq!(
        (read(&*removed), read(&*replaced)),
        ("removed".into(), "replaced".into())
    );
    // A new file with the old name is a different file.
    create(&disk, &path("removed"), "new");
    disk.rename(&path("removed"), &path("moved")).expect("renamed");
    push_out(&disk, directory.path(), &descriptors);
    assert_eq!(read(&*removed), "removed");
    drop((removed, replaced));
    while descriptors.close_idle_file() {}
    assert_eq!(descriptors.now().files, 0);
}

#[test]
fn a_name_that_could_not_be_removed_is_kept() {
    let (directory, descriptors, disk) = disk(40);
    let path = directory.path().join("kept");
    let file = create(&disk, &path, "kept");
    disk.rename(&directory.path().join("nothing"), &path)
        .expect_err("nothing is there");
    push_out(&disk, directory.path(), &descriptors);
    assert_eq!(descriptors.now().files, 0, "it was closed like any other");
    assert_eq!(read(&*file), "kept");
}

#[test]
fn another_file_under_the_name_is_an_error_that_names_it() {
    let (directory, descriptors, disk) = disk(40);
    let path = directory.path().join("mine");
    let file = create(&disk, &path, "mine");
    push_out(&disk, directory.path(), &descriptors);
    fs::write(directory.path().join("theirs"), "theirs").expect("written");
    fs::rename(directory.path().join("theirs"), &path).expect("from outside");
    let error = file.read_at(&mut [0; 8], 0).expect_err("not ours");
    assert!(error.to_string().contains("mine is another file"), "{error}");
    assert!(!is_shortage(&error));
    fs::remove_file(&path).expect("from outside");
    let error = file.read_at(&mut [0; 8], 0).expect_err("gone");
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
    assert_eq!(descriptors.now().files, 0);
}

#[test]
fn a_descriptor_that_is_used_for_sending_is_not_closed() {
    let (directory, descriptors, disk) = disk(40);
    let file = create(&disk, &directory.path().join("sent"), "sent");
    let descriptor = file.descriptor().expect("open");
    push_out(&disk, directory.path(), &descriptors);
    assert_eq!(descriptors.now().files, 1);
    assert_eq!(rustix::io::pread(&descriptor, &mut [0; 8], 0), Ok(4));
    drop(descriptor);
    assert!(descriptors.close_idle_file());
    // Its name and inode are in memory, so reopening it does not wait for the device.
    assert!(file.descriptor().is_some() && file.is_resident(0, 4));
    assert_eq!(file.read_at_resident(&mut [0; 8], 0).expect("resident"), 4);
}

#[test]
fn when_no_file_can_be_closed_the_shortage_is_reported_with_the_numbers() {
    let (directory, _, disk) = disk(40);
    let path = |index: usize| directory.path().join(index.to_string());
    // A file without a name is reachable only through its descriptor.
    let pinned: Vec<Arc<dyn DiskFile>> = (0..8)
        .map(|index| {
            let file = create(&disk, &path(index), "x");
            disk.remove_file(&path(index)).expect("removed");
            file
        })
        .collect();
    let error = disk.open(&path(9), OpenMode::Create).expect_err("full");
    assert!(is_shortage(&error), "{error}");
    assert!(
        error.to_string().contains("8 files") && error.to_string().contains("40 descriptors"),
        "{error}"
    );
    assert!(!disk.exists(&path(9)));
    // The sync of a directory uses the reserve.
    disk.sync_directory(directory.path()).expect("synced");
    drop(pinned);
    disk.open(&path(9), OpenMode::Create)
        .expect("there is room again");
}

#[test]
fn connections_take_descriptors_from_files_but_not_all() {
    let (directory, descriptors, disk) = disk(40);
    let files: Vec<Arc<dyn DiskFile>> = (0..8)
        .map(|index| create(&disk, &directory.path().join(index.to_string()), "x"))
        .collect();
    assert_eq!(descriptors.now().files, 8);
    let connections: Vec<ConnectionDescriptor> = std::iter::from_fn(|| descriptors.admit()).collect();
    assert_eq!((connections.len(), descriptors.connections_max()), (6, 6));
    assert_eq!(descriptors.now().files, 2);
    for file in &files {
        assert_eq!(read(&**file), "x");
    }
    assert_eq!(descriptors.now().files, 2);
    drop(connections);
    files.iter().for_each(|file| drop(read(&**file)));
    assert_eq!(descriptors.now().files, 8);
    assert!(descriptors.admit().is_some());
}

#[test]
fn a_file_closed_between_write_and_sync_is_held_until_the_sync() {
    let (directory, descriptors, disk) = disk(40);
    let path = directory.path().join("dirty");
    let file = create(&disk, &path, "dirty");
    push_out(&disk, directory.path(), &descriptors);
    assert_eq!(descriptors.now().files, 0);
    let mappings = || {
        let maps = fs::read_to_string("/proc/self/maps").expect("Linux");
        maps.lines()
            .filter(|line| line.ends_with("/dirty") && line.contains("descriptors"))
            .count()
    };
    assert_eq!(mappings(), 1, "its inode stays in memory");
    file.sync().expect("synced");
    assert_eq!(mappings(), 0);
    push_out(&disk, directory.path(), &descriptors);
    assert_eq!(mappings(), 0, "nothing could be lost any more");
    write(&*file, "again");
    push_out(&disk, directory.path(), &descriptors);
    assert_eq!(mappings(), 1);
    drop(file);
    assert_eq!(mappings(), 0);
}

#[test]
fn what_is_synced_together_counts_as_synced() {
    let (directory, descriptors, disk) = disk(40);
    let _lock = disk.lock(&directory.path().join(".lock")).expect("free");
    let files: Vec<Arc<dyn DiskFile>> = (0..20)
        .map(|index| create(&disk, &directory.path().join(format!("together-{index}")), "x"))
        .collect();
    let mappings = || {
        let maps = fs::read_to_string("/proc/self/maps").expect("Linux");
        maps.lines().filter(|line| line.contains("/together-")).count()
    };
    while descriptors.close_idle_file() {}
    assert_eq!(mappings(), 20);
    disk.sync_all(&files, &[directory.path()]).expect("synced");
    assert_eq!(mappings(), 0);
}

/// Threads read, write, sync, rename and remove a hundred files with eight descriptors; every file
/// always has its own contents.
#[test]
#[expect(clippy::disallowed_methods, reason = "the real disk is used by many threads")]
fn no_handle_reaches_another_file_under_concurrency() {
    const FILES: usize = 100;
    let (directory, descriptors, disk) = disk(40);
    let home = directory.path().join("home");
    disk.create_directories(&home).expect("created");
    let files: Vec<Arc<dyn DiskFile>> = (0..FILES)
        .map(|index| {
            create(
                &disk,
                &home.join(format!("file-{index}")),
                &format!("this is {index:05}"),
            )
        })
        .collect();
    let is_over = AtomicBool::new(false);
    let start = Barrier::new(5);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (files, is_over, start) = (&files, &is_over, &start);
            scope.spawn(move || {
                let mut random = Random::new(thread);
                start.wait();
                while !is_over.load(Ordering::Relaxed) {
                    let index = random.below(FILES as u64) as usize;
                    let file = &*files[index];
                    let text = format!("this is {index:05}");
                    match random.below(8) {
                        0 => write(file, &text),
                        1 => file.sync().expect("synced"),
                        2 => assert!(file.bytes().expect("known") == 13),
                        3 => {
                            let _ = file.is_resident(0, 13);
                        }
                        _ => assert_eq!(read(file), text),
                    }
                }
            });
        }
        start.wait();
        let mut home = home;
        let mut names: Vec<PathBuf> = (0..FILES).map(|index| format!("file-{index}").into()).collect();
        let mut random = Random::new(99);
        for round in 0..600 {
            let index = random.below(FILES as u64 / 2) as usize;
            let name = PathBuf::from(format!("{index}-{round}"));
            disk.rename(&home.join(&names[index]), &home.join(&name))
                .expect("renamed");
            names[index] = name;
            if round % 50 == 0 {
                let moved = directory.path().join(format!("home-{round}"));
                disk.rename(&home, &moved).expect("renamed");
                home = moved;
            }
        }
        for name in &names[..3] {
            disk.remove_file(&home.join(name)).expect("removed");
        }
        for _ in 0..200 {
            let name = PathBuf::from("again");
            create(&disk, &home.join(&name), "somebody else");
            disk.remove_file(&home.join(&name)).expect("removed");
        }
        is_over.store(true, Ordering::Relaxed);
    });
    for (index, file) in files.iter().enumerate() {
        assert_eq!(read(&**file), format!("this is {index:05}"));
    }
    drop(files);
    assert_eq!(descriptors.now().files, 0);
}

#[test]
fn a_file_system_without_direct_access_is_told_apart() {
    let (_directory, _descriptors, disk) = disk(40);
    assert!(!disk.is_direct(Path::new("/proc/self/status")));
    assert!(!disk.is_direct(Path::new("/proc/self/none")));
}

#[test]
fn direct_access_is_offered_where_the_kernel_grants_it() {
    use std::os::unix::fs::OpenOptionsExt;
    let (directory, _, disk) = disk(40);
    let path = directory.path().join("file");
    create(&disk, &path, "x");
    let opened = fs::OpenOptions::new()
        .read(true)
        .custom_flags(OFlags::DIRECT.bits() as i32)
        .open(&path);
    assert_eq!(disk.is_direct(&path), opened.is_ok());
    // Files of a system without it are opened all the same.
    let status = disk
        .open_direct(Path::new("/proc/self/status"), OpenMode::Read)
        .expect("through the page cache");
    assert!(read(&*status).starts_with("Name:"));
}

#[test]
fn names_and_directories_that_are_gone_are_told_from_those_that_are_there() {
    let temporary = TemporaryDirectory::new("gone").expect("created");
    let disk = OsDisk::default();
    let directory = temporary.path().join("directory");
    disk.create_directories(&directory).expect("created");
    disk.sync_directory(&directory).expect("there");
    fs::write(directory.join("file"), "text").expect("written");
    let entry = entry_at(directory.join("file")).expect("listed").expect("there");
    assert_eq!((entry.kind, entry.bytes), (EntryKind::File, 4));
    assert_eq!(entry_at(directory.join("nothing")).expect("vanished"), None);
    entry_at(directory.join("file/below")).expect_err("a file has nothing below it");
    disk.remove_directory(&directory).expect_err("it holds a file");
    disk.remove_file(&directory.join("file")).expect("removed");
    disk.remove_directory(&directory).expect("removed");
    assert!(!disk.exists(&directory));
    let error = disk.sync_directory(&directory).expect_err("gone");
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
    let path = temporary.path().to_owned();
    drop(temporary);
    assert!(!path.exists());
}

/// A second removal failed, which gave the file back a name that it no longer had: it was closed,
/// and could not be opened again.
#[test]
fn a_removed_file_stays_open_although_its_name_is_removed_once_more() {
    let (directory, descriptors, disk) = disk(40);
    let path = |name: &str| directory.path().join(name);
    let files = ["a", "m", "z"].map(|name| create(&disk, &path(name), name));
    disk.remove_file(&path("m")).expect("removed");
    let error = disk.remove_file(&path("m")).expect_err("removed before");
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
    push_out(&disk, directory.path(), &descriptors);
    assert_eq!(descriptors.now().files, 1, "the one without a name");
    assert_eq!(files.each_ref().map(|file| read(&**file)), ["a", "m", "z"]);
}
