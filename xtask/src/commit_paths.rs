//! `cargo xtask commit-paths`: what a group commit costs, by the way in which its bytes reach the
//! disk.
//!
//! One thread on one processor appends commits of one size to a file and makes each durable, as a
//! log does. Every way is measured in every round, in turn. Processor time is the thread's own and,
//! beside it, that of the whole machine, because kernel threads write pages back.

use std::fs::{self, File, OpenOptions};
use std::io::IoSlice;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use ottla_lab::machine::host::HostCounts;
use ottla_lab::numbers::number;
use rustix::fs::{FallocateFlags, OFlags};
use rustix::io::ReadWriteFlags;
use rustix::thread::{CpuSet, Pid};

use crate::bench_kafka::machine;
use crate::interop::toolchain;

/// Direct writes begin at, and have lengths of, multiples of this.
const BLOCK_BYTES: usize = 4096;
/// What a log reserves ahead of its end, at most.
const RESERVED_BYTES: u64 = 8 << 20;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Bytes {
    /// Through the page cache.
    Cached,
    /// From memory of the program's own (`O_DIRECT`).
    Direct,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Blocks {
    /// Reserved some MiB ahead beyond the visible length, as the log does today.
    Ahead,
    /// None yet: each commit makes the file longer.
    New,
    /// Reserved for the whole file, within its length, and never written.
    Unwritten,
    /// Written before: a segment that is used again.
    Written,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Durable {
    /// A system call after the write.
    Fdatasync,
    /// The write itself (`RWF_DSYNC`).
    Dsync,
    No,
}

#[derive(Clone, Copy, Debug)]
struct Way {
    name: &'static str,
    bytes: Bytes,
    blocks: Blocks,
    durable: Durable,
}

const fn way(name: &'static str, bytes: Bytes, blocks: Blocks, durable: Durable) -> Way {
    Way {
        name,
        bytes,
        blocks,
        durable,
    }
}

const WAYS: [Way; 10] = [
    way(
        "page cache, fdatasync (today)",
        Bytes::Cached,
        Blocks::Ahead,
        Durable::Fdatasync,
    ),
    way(
        "page cache over written blocks, fdatasync",
        Bytes::Cached,
        Blocks::Written,
        Durable::Fdatasync,
    ),
    way(
        "direct, RWF_DSYNC, new blocks",
        Bytes::Direct,
        Blocks::New,
        Durable::Dsync,
    ),
    way(
        "direct, RWF_DSYNC, reserved ahead",
        Bytes::Direct,
        Blocks::Ahead,
        Durable::Dsync,
    ),
    way(
        "direct, RWF_DSYNC, unwritten blocks",
        Bytes::Direct,
        Blocks::Unwritten,
        Durable::Dsync,
    ),
    way(
        "direct, RWF_DSYNC, written blocks",
        Bytes::Direct,
        Blocks::Written,
        Durable::Dsync,
    ),
    way(
        "direct, then fdatasync, written blocks",
        Bytes::Direct,
        Blocks::Written,
        Durable::Fdatasync,
    ),
    way("page cache, no sync", Bytes::Cached, Blocks::Ahead, Durable::No),
    way(
        "direct, no sync, unwritten blocks",
        Bytes::Direct,
        Blocks::Unwritten,
        Durable::No,
    ),
    way(
        "direct, no sync, written blocks",
        Bytes::Direct,
        Blocks::Written,
        Durable::No,
    ),
];

/// Sizes of a commit, and how many of them a measurement makes.
const SIZES: [(usize, usize); 3] = [(4 << 10, 4_000), (64 << 10, 2_000), (1 << 20, 512)];
/// The same for a log that grows without end: pages that the machine has not touched yet, or not
/// for long, are part of the cost.
const SUSTAINED: (usize, usize) = (1 << 20, 8_192);
const SUSTAINED_ROUNDS_MAX: usize = 2;
/// Ways that are measured so: today's, and the two that a log could take.
const SUSTAINED_WAYS: [usize; 3] = [0, 3, 5];

struct Options {
    rounds: usize,
    directory: PathBuf,
    processor: usize,
}

fn parse(arguments: &[String]) -> Result<Options> {
    let mut options = Options {
        rounds: 5,
        directory: toolchain::target_directory().join("data/commit-paths"),
        processor: 1,
    };
    for pair in arguments.chunks(2) {
        let [name, value] = pair else {
            bail!("{} wants a value", pair[0])
        };
        match name.as_str() {
            "--rounds" => options.rounds = value.parse().context("--rounds")?,
            "--directory" => options.directory = value.into(),
            "--processor" => options.processor = value.parse().context("--processor")?,
            _ => bail!("unknown argument {name}"),
        }
    }
    ensure!(options.rounds > 0, "--rounds must be at least 1");
    Ok(options)
}

pub fn run(arguments: &[String]) -> Result<()> {
    let options = parse(arguments)?;
    fs::create_dir_all(&options.directory)?;
    let mut processors = CpuSet::new();
    processors.set(options.processor);
    rustix::thread::sched_setaffinity(None::<Pid>, &processors).context("pinning the thread")?;
    println!(
        "commit {}, {} rounds, one thread on processor {}; {}",
        machine::commit(),
        options.rounds,
        options.processor,
        options.directory.display()
    );
    for (name, value) in machine::describe()? {
        println!("{name}: {value}");
    }
    for (bytes, count) in SIZES {
        let mut measured: Vec<Vec<Measured>> = WAYS.iter().map(|_| Vec::new()).collect();
        for _ in 0..options.rounds {
            for (way, measured) in WAYS.iter().zip(&mut measured) {
                measured.push(measure(&options.directory, *way, bytes, count)?);
            }
        }
        print(bytes, WAYS.iter().zip(&measured));
    }
    let (bytes, count) = SUSTAINED;
    let mut measured: Vec<Vec<Measured>> = SUSTAINED_WAYS.iter().map(|_| Vec::new()).collect();
    for _ in 0..options.rounds.min(SUSTAINED_ROUNDS_MAX) {
        for (way, measured) in SUSTAINED_WAYS.iter().zip(&mut measured) {
            measured.push(measure(&options.directory, WAYS[*way], bytes, count)?);
        }
    }
    println!("\nSustained, {} GiB each:", (bytes * count) >> 30);
    print(bytes, SUSTAINED_WAYS.iter().map(|way| &WAYS[*way]).zip(&measured));
    fs::remove_dir_all(&options.directory)?;
    Ok(())
}

/// One way's figures of one round.
struct Measured {
    /// Processor seconds a GB: the thread's own, and the machine's.
    own: f64,
    machine: f64,
    megabytes_per_second: f64,
    /// Sorted, in milliseconds.
    latencies_ms: Vec<f64>,
}

fn measure(directory: &Path, way: Way, bytes: usize, count: usize) -> Result<Measured> {
    let path = directory.join("segment");
    let total = (bytes * count) as u64;
    prepare(&path, way, total)?;
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false);
    if way.bytes == Bytes::Direct {
        options.custom_flags(OFlags::DIRECT.bits().cast_signed());
    }
    let file = options
        .open(&path)
        .with_context(|| format!("opening {}", path.display()))?;
    // What a socket delivered: it is copied into the memory that is written from.
    let received: Vec<u8> = (0..bytes).map(|index| (index * 31 % 251) as u8).collect();
    let mut room = vec![0; bytes + BLOCK_BYTES];
    let start = room.as_ptr().align_offset(BLOCK_BYTES);
    let room = &mut room[start..start + bytes];
    let mut latencies_ms = Vec::with_capacity(count);
    let (processor, host, began) = (thread_time(), HostCounts::read(), Instant::now());
    let mut reserved = 0;
    for index in 0..count {
        let before = Instant::now();
        let position = (index * bytes) as u64;
        if way.blocks == Blocks::Ahead && position + bytes as u64 > reserved {
            let length = RESERVED_BYTES.max(bytes as u64);
            rustix::fs::fallocate(&file, FallocateFlags::KEEP_SIZE, reserved, length)?;
            reserved += length;
        }
        commit(&file, way, &received, room, position)?;
        latencies_ms.push(before.elapsed().as_secs_f64() * 1e3);
    }
    let elapsed = began.elapsed();
    let own = thread_time() - processor;
    let machine = host
        .zip(HostCounts::read())
        .map_or(0, |(before, after)| after.busy - before.busy);
    drop(file);
    fs::remove_file(&path)?;
    latencies_ms.sort_by(f64::total_cmp);
    let gigabytes = total as f64 / 1e9;
    Ok(Measured {
        own: own.as_secs_f64() / gigabytes,
        // Ticks of 10 ms.
        machine: machine as f64 / 100.0 / gigabytes,
        megabytes_per_second: total as f64 / 1e6 / elapsed.as_secs_f64(),
        latencies_ms,
    })
}

/// Makes the blocks that the way finds, and leaves nothing of that to be written back.
fn prepare(path: &Path, way: Way, total: u64) -> Result<()> {
    let file = File::create(path)?;
    match way.blocks {
        Blocks::Ahead | Blocks::New => {}
        Blocks::Unwritten => rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, total)?,
        Blocks::Written => {
            let zeros = vec![0; 1 << 20];
            for position in (0..total).step_by(zeros.len()) {
                let length = zeros.len().min((total - position) as usize);
                file.write_all_at(&zeros[..length], position)?;
            }
        }
    }
    file.sync_all()?;
    // A reused segment is not in the page cache either.
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
    Ok(())
}

fn commit(file: &File, way: Way, received: &[u8], room: &mut [u8], position: u64) -> Result<()> {
    match way.bytes {
        Bytes::Cached => file.write_all_at(received, position)?,
        Bytes::Direct => {
            room.copy_from_slice(received);
            let flags = match way.durable {
                Durable::Dsync => ReadWriteFlags::DSYNC,
                Durable::Fdatasync | Durable::No => ReadWriteFlags::empty(),
            };
            let written = rustix::io::pwritev2(file, &[IoSlice::new(room)], position, flags)?;
            ensure!(
                written == room.len(),
                "a write of {written} of {} bytes",
                room.len()
            );
        }
    }
    if way.durable == Durable::Fdatasync {
        rustix::fs::fdatasync(file)?;
    }
    Ok(())
}

/// Processor time of this thread.
fn thread_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn print<'a>(bytes: usize, measured: impl Iterator<Item = (&'a Way, &'a Vec<Measured>)>) {
    println!(
        "\n| a commit of {} KiB | processor s/GB, thread | machine | MB/s | p50 ms | p99 ms | max ms |\n|---|---|---|---|---|---|---|",
        bytes >> 10
    );
    for (way, rounds) in measured {
        let of = |figure: &dyn Fn(&Measured) -> f64| {
            let mut all: Vec<f64> = rounds.iter().map(figure).collect();
            all.sort_by(f64::total_cmp);
            let (least, most) = (all[0], all[all.len() - 1]);
            format!(
                "{} ({} to {})",
                number(all[all.len() / 2]),
                number(least),
                number(most)
            )
        };
        let at = |share: f64| {
            move |one: &Measured| one.latencies_ms[((one.latencies_ms.len() - 1) as f64 * share) as usize]
        };
        println!(
            "| {} | {} | {} | {} | {} | {} | {} |",
            way.name,
            of(&|one| one.own),
            of(&|one| one.machine),
            of(&|one| one.megabytes_per_second),
            of(&at(0.5)),
            of(&at(0.99)),
            of(&at(1.0))
        );
    }
}
