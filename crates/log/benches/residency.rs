//! Ways to query page cache residency and to fill the page cache, and their effect on the pages
//! already there: `cargo bench -p ottla-log --bench residency`.
//!
//! The last part (alone with `-- catch-up`) is meaningful only where the page cache is smaller than
//! the 2 GiB that are read, say in a memory control group of 256 MiB. Real files in the temporary
//! directory (`TMPDIR`), which must not be on tmpfs.

#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "a benchmark measures time with threads of its own"
)]

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ottla_log::disk::cold_cache::ColdCache;
use ottla_log::disk::os::{OsDisk, TemporaryDirectory};
use ottla_log::disk::{Disk, DiskFile, FileRegion, OpenMode};

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;
const COLD_BYTES: u64 = 2048 * MIB;
const HOT_BYTES: u64 = 64 * MIB;
const READ_BYTES: u64 = 512 * KIB;

fn main() {
    let directory = TemporaryDirectory::new("residency").expect("temporary directory");
    if !std::env::args().any(|argument| argument == "catch-up") {
        look_at_all(directory.path());
    }
    println!(
        "catching up: read {} MiB beside {} MiB that were written last",
        COLD_BYTES / MIB,
        HOT_BYTES / MIB
    );
    for way in [Way::Kernel, Way::Load, Way::LoadAndForget, Way::Direct] {
        catch_up(directory.path(), way);
    }
}

fn look_at_all(directory: &Path) {
    let looked_at = file(directory, "looked-at", 128 * MIB);
    println!("looking at what is resident, a look at");
    for bytes in [4 * KIB, 64 * KIB, MIB, 128 * MIB] {
        look(&*looked_at, bytes);
    }
    OsDisk::default()
        .remove_file(&directory.join("looked-at"))
        .expect("removed");
    look_ahead_of_the_kernel(directory);
}

/// Creates a file that is written, synced and resident.
fn file(directory: &Path, name: &str, bytes: u64) -> Arc<dyn DiskFile> {
    let file = OsDisk::default()
        .open(&directory.join(name), OpenMode::Create)
        .expect("created");
    let block = vec![b'x'; MIB as usize];
    for position in (0..bytes).step_by(MIB as usize) {
        file.write_at(&[io::IoSlice::new(&block)], position)
            .expect("written");
    }
    file.sync().expect("synced");
    file
}

fn look(file: &dyn DiskFile, bytes: u64) {
    let mut buffer = vec![0; bytes as usize];
    let probe = |step: u64| {
        for position in (0..bytes).step_by(step as usize) {
            file.read_at_resident(&mut [0], position).expect("resident");
        }
    };
    let mut times = [Duration::ZERO; 4];
    // About a second of copying for the largest.
    let rounds = (4 * KIB * MIB / bytes).clamp(20, 2_000) as u32;
    for _ in 0..rounds {
        times[0] += time(|| assert!(file.is_resident(0, bytes)));
        times[1] += time(|| probe(64 * KIB));
        times[2] += time(|| probe(4 * KIB));
        times[3] += time(|| {
            file.read_at_resident(&mut buffer, 0).expect("resident");
        });
    }
    let [counted, probed, every_page, copied] =
        times.map(|time| time.as_nanos() as f64 / f64::from(rounds) / 1e3);
    println!(
        "{:>5} KiB: cachestat {counted:.2} us, preadv2 each 64 KiB {probed:.2} us, each page {every_page:.2} us, all of it {copied:.2} us",
        bytes / KIB
    );
}

/// How often pages count as resident while they are still being read from the device: the kernel
/// reads ahead of a reader, and this looks ahead of the kernel.
fn look_ahead_of_the_kernel(directory: &Path) {
    const BYTES: u64 = 256 * MIB;
    const LOOK_BYTES: u64 = 64 * KIB;
    let looked_at = file(directory, "ahead", BYTES);
    looked_at.forget(0, BYTES);
    let read_to = AtomicU64::new(0);
    let (mut looks, mut counted, mut on_their_way) = (0, 0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let file = File::open(directory.join("ahead")).expect("exists");
            let mut buffer = vec![0; LOOK_BYTES as usize];
            for position in (0..BYTES).step_by(LOOK_BYTES as usize) {
                file.read_exact_at(&mut buffer, position).expect("read");
                read_to.store(position + LOOK_BYTES, Ordering::Relaxed);
            }
        });
        loop {
            let position = read_to.load(Ordering::Relaxed);
            if position + LOOK_BYTES > BYTES {
                break;
            }
            looks += 1;
            if looked_at.is_resident(position, LOOK_BYTES) {
                counted += 1;
                let mut pages = (position..position + LOOK_BYTES).step_by(4 * KIB as usize);
                let is_missing = |page| looked_at.read_at_resident(&mut [0], page).is_err();
                on_their_way += u32::from(pages.any(is_missing));
            }
        }
    });
    println!(
        "64 KiB ahead of a reader: {looks} looks, cachestat {counted} times resident, of these {on_their_way} with pages that \
         preadv2 would wait for"
    );
    OsDisk::default()
        .remove_file(&directory.join("ahead"))
        .expect("removed");
}

fn time(work: impl FnOnce()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}

#[derive(Clone, Copy, Debug)]
enum Way {
    /// Plain reads: the kernel decides about read-ahead and eviction.
    Kernel,
    Load,
    LoadAndForget,
    /// Bypassing the page cache, through this process's memory.
    Direct,
}

fn catch_up(directory: &Path, way: Way) {
    let cold = file(directory, "cold", COLD_BYTES);
    cold.forget(0, COLD_BYTES);
    let hot = file(directory, "hot", HOT_BYTES);
    let hot_path = directory.join("hot");
    // Read by the consumer that keeps up.
    read_plainly(&File::open(&hot_path).expect("exists"), HOT_BYTES);
    let path = directory.join("cold");
    let (start, cpu, read) = (Instant::now(), cpu_time(), device_bytes());
    match way {
        Way::Kernel => read_plainly(&File::open(&path).expect("exists"), COLD_BYTES),
        Way::Load => load(&cold, &ColdCache::new(u64::MAX)),
        Way::LoadAndForget => load(&cold, &ColdCache::new(64 * MIB)),
        Way::Direct => read_directly(&path),
    }
    let (elapsed, cpu, read) = (
        start.elapsed(),
        cpu_time().saturating_sub(cpu),
        device_bytes() - read,
    );
    let pieces = HOT_BYTES / (64 * KIB);
    let left = (0..pieces)
        .filter(|index| hot.is_resident(index * 64 * KIB, 64 * KIB))
        .count();
    let before = device_bytes();
    read_plainly(&File::open(&hot_path).expect("exists"), HOT_BYTES);
    println!(
        "{:<14} {:>5} MiB read, {:>5.0} MiB/s, {:>5.0} ms of processor; of the hot file {:>3.0} % left, {:>3} MiB read again",
        format!("{way:?}"),
        read / MIB,
        COLD_BYTES as f64 / MIB as f64 / elapsed.as_secs_f64(),
        cpu.as_secs_f64() * 1e3,
        left as f64 * 100.0 / pieces as f64,
        (device_bytes() - before) / MIB
    );
    for name in ["cold", "hot"] {
        OsDisk::default()
            .remove_file(&directory.join(name))
            .expect("removed");
    }
}

/// Bytes that this process has made the device read.
fn device_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/io").expect("Linux with task accounting");
    let bytes = text.lines().find_map(|line| line.strip_prefix("read_bytes: "));
    bytes.and_then(|bytes| bytes.parse().ok()).expect("a number")
}

fn read_plainly(file: &File, bytes: u64) {
    let mut buffer = vec![0; READ_BYTES as usize];
    for position in (0..bytes).step_by(READ_BYTES as usize) {
        file.read_exact_at(&mut buffer, position).expect("read");
    }
}

fn load(file: &Arc<dyn DiskFile>, cache: &ColdCache) {
    for position in (0..COLD_BYTES).step_by(READ_BYTES as usize) {
        let region = FileRegion {
            file: file.clone(),
            position,
            bytes: READ_BYTES,
        };
        cache.load(&region).expect("loaded");
    }
}

fn read_directly(path: &Path) {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_DIRECT)
        .open(path)
        .expect("opened");
    // The device requires block alignment in memory, too.
    let mut memory = vec![0; (READ_BYTES + 4 * KIB) as usize];
    let start = memory.as_ptr().align_offset(4096);
    let buffer = &mut memory[start..start + READ_BYTES as usize];
    for position in (0..COLD_BYTES).step_by(READ_BYTES as usize) {
        file.read_exact_at(buffer, position).expect("read");
    }
}

fn cpu_time() -> Duration {
    let text = std::fs::read_to_string("/proc/self/stat").expect("Linux");
    let fields: Vec<&str> = text
        .rsplit(')')
        .next()
        .expect("a name in parentheses")
        .split_whitespace()
        .collect();
    let ticks = |index: usize| fields[index].parse::<u64>().expect("a number");
    // utime and stime, in hundredths of a second.
    Duration::from_millis((ticks(11) + ticks(12)) * 10)
}
