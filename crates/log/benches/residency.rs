//! How to find out what is in the page cache, how to fill it, and what that does to the pages that were there:
//! `cargo bench -p ottla-log --bench residency`.
//!
//! The last part shows something only where the cache is smaller than the 1 GiB that is read: in a memory control group of,
//! say, 256 MiB. Real files in the temporary directory (`TMPDIR`), which must not be a memory file system.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ottla_log::disk::cold_cache::ColdCache;
use ottla_log::disk::os::{OsDisk, TemporaryDirectory};
use ottla_log::disk::{Disk, DiskFile, FileRegion, OpenMode};

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;
const COLD_BYTES: u64 = 1024 * MIB;
const HOT_BYTES: u64 = 64 * MIB;
const READ_BYTES: u64 = 512 * KIB;

fn main() {
    let directory = TemporaryDirectory::new("residency").expect("temporary directory");
    let looked_at = file(directory.path(), "looked-at", 64 * MIB);
    println!("looking at what is resident, a look at");
    for bytes in [4 * KIB, 64 * KIB, 1024 * KIB] {
        look(&*looked_at, bytes);
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

/// A file that is written, synced and resident.
fn file(directory: &Path, name: &str, bytes: u64) -> Arc<dyn DiskFile> {
    let file = OsDisk
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
    let rounds = 2_000;
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

fn time(work: impl FnOnce()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}

#[derive(Clone, Copy, Debug)]
enum Way {
    /// Plain reads: the kernel reads ahead and decides what leaves.
    Kernel,
    Load,
    LoadAndForget,
    /// Past the page cache, through our memory.
    Direct,
}

fn catch_up(directory: &Path, way: Way) {
    let cold = file(directory, "cold", COLD_BYTES);
    cold.forget(0, COLD_BYTES);
    let hot = file(directory, "hot", HOT_BYTES);
    let path = directory.join("cold");
    let (start, cpu) = (Instant::now(), cpu_time());
    match way {
        Way::Kernel => read_plainly(&File::open(&path).expect("exists")),
        Way::Load => load(&cold, &ColdCache::new(u64::MAX)),
        Way::LoadAndForget => load(&cold, &ColdCache::new(64 * MIB)),
        Way::Direct => read_directly(&path),
    }
    let (elapsed, cpu) = (start.elapsed(), cpu_time().saturating_sub(cpu));
    let pieces = HOT_BYTES / (64 * KIB);
    let left = (0..pieces)
        .filter(|index| hot.is_resident(index * 64 * KIB, 64 * KIB))
        .count();
    println!(
        "{:<14} {:>6.0} MiB/s, {:>5.0} ms of processor, {:>3.0} % of the hot file left",
        format!("{way:?}"),
        COLD_BYTES as f64 / MIB as f64 / elapsed.as_secs_f64(),
        cpu.as_secs_f64() * 1e3,
        left as f64 * 100.0 / pieces as f64
    );
    for name in ["cold", "hot"] {
        OsDisk.remove_file(&directory.join(name)).expect("removed");
    }
}

fn read_plainly(file: &File) {
    let mut buffer = vec![0; READ_BYTES as usize];
    for position in (0..COLD_BYTES).step_by(READ_BYTES as usize) {
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
    // The device wants whole blocks in memory, too.
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
