//! Each broker as it is delivered, beyond what a page cache shows: many partitions, full batches
//! that are on disk, and a reader that is far behind beside a steady producer.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::machine::{cpu_seconds, memory_mib};
use super::metrics::Samples;
use super::session::{self, MILLION, figure, generate};
use super::{Durability, Lab, Plan};
use crate::interop::server::{Server, Target};

const MANY_PARTITIONS: &str = "1000";
const BEHIND: &str = "behind";
/// The steady producer beside the reader: 5 MB/s.
const STEADY: [&str; 6] = ["-rate", "20000", "-linger", "1", "-warmup", "2"];

pub fn run(lab: &Lab, plan: &Plan, target: Target, samples: &mut Samples) -> Result<()> {
    let site = session::site(target, Durability::Disk, &[])?;
    let mut server = session::start(lab, &site, target, Durability::Disk)?;
    full_batches(lab, plan, target, &server, samples)?;
    consume_with_librdkafka(target, &server, samples)?;
    catch_up(lab, plan, target, &server, &site.directory, samples)?;
    server.check_alive()?;
    server.stop()?;
    session::clear(&site);
    idle_partitions(lab, plan, target, samples)
}

fn idle_partitions(lab: &Lab, plan: &Plan, target: Target, samples: &mut Samples) -> Result<()> {
    let site = session::site(target, Durability::Disk, &[])?;
    let mut server = session::start(lab, &site, target, Durability::Disk)?;
    generate(
        lab,
        "bench-create",
        &server,
        "many",
        &["-partitions", MANY_PARTITIONS],
    )?;
    thread::sleep(Duration::from_secs(plan.idle_seconds.into()));
    samples.add(target, "many_rss", memory_mib(server.pid(), "VmRSS")?);
    server.check_alive()?;
    server.stop()?;
    session::clear(&site);
    Ok(())
}

fn full_batches(
    lab: &Lab,
    plan: &Plan,
    target: Target,
    server: &Server,
    samples: &mut Samples,
) -> Result<()> {
    generate(lab, "bench-create", server, "full", &[])?;
    let records = plan.records.to_string();
    let warm = (plan.warmup_seconds * 20).to_string();
    let load = ["-records", &records, "-linger", "5", "-warmup", &warm];
    let result = generate(lab, "bench-saturate", server, "full", &load)?;
    samples.keep(target, "full batches on disk", &result);
    let millions = figure(&result, "/acknowledged") / MILLION;
    samples.add(
        target,
        "full_disk_cpu",
        figure(&result, "/broker_cpu_s") / millions,
    );
    samples.add(target, "full_disk_rate", figure(&result, "/rate_per_s"));
    Ok(())
}

/// Before minutes have been spent on what comes before it.
pub fn find_kcat() -> Result<()> {
    let asked = Command::new("kcat")
        .arg("-V")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    ensure!(asked.is_ok(), "kcat is needed (apt-get install kcat)");
    Ok(())
}

/// kcat reads the newest million of the full batches, after one pass to warm up.
fn consume_with_librdkafka(target: Target, server: &Server, samples: &mut Samples) -> Result<()> {
    const EACH: u32 = session::CONSUMED_RECORDS / 6;
    let pass = || -> Result<()> {
        let from = format!("-{EACH}");
        let status = Command::new("kcat")
            .args([
                "-C",
                "-q",
                "-e",
                "-b",
                &server.bootstrap(),
                "-t",
                "full",
                "-o",
                &from,
                "-f",
                "",
            ])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .status()
            .context("kcat does not start")?;
        ensure!(status.success(), "kcat ended with {status}");
        Ok(())
    };
    pass()?;
    let before = cpu_seconds(server.pid())?;
    const PASSES: u32 = 3;
    for _ in 0..PASSES {
        pass()?;
    }
    let used = cpu_seconds(server.pid())? - before;
    let millions = f64::from(EACH * 6 * PASSES) / MILLION;
    samples.add(target, "consume_librdkafka_cpu", used / millions);
    Ok(())
}

/// A consumer reads everything of a large topic from its beginning while a producer writes to
/// another one.
fn catch_up(
    lab: &Lab,
    plan: &Plan,
    target: Target,
    server: &Server,
    data: &Path,
    samples: &mut Samples,
) -> Result<()> {
    let bytes = u64::from(plan.behind_gigabytes) * 1_000_000_000;
    let records = (bytes / 1024).to_string();
    generate(lab, "bench-create", server, BEHIND, &[])?;
    generate(lab, "bench-create", server, "steady", &[])?;
    let fill = [
        "-bytes", "1024", "-linger", "5", "-warmup", "0", "-seconds", "600", "-records", &records,
    ];
    let filled = generate(lab, "bench-sustained", server, BEHIND, &fill)?;
    let written = figure(&filled, "/acknowledged");
    forget_page_cache(data)?;
    samples.add(target, "device_rate", device_rate(data)?);

    let seconds = plan.paced_seconds.to_string();
    let steady = [&STEADY[..], &["-seconds", &seconds]].concat();
    let alone = generate(lab, "bench-paced", server, "steady", &steady)?;
    samples.keep(target, "steady producer alone", &alone);

    let records = (written as u64).to_string();
    let mut reader = lab
        .generator()
        .args(["bench-consume", &server.bootstrap(), "-topic", BEHIND])
        .args(["-pid", &server.pid().to_string(), "-records", &records])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start the reader")?;
    let beside = generate(lab, "bench-paced", server, "steady", &steady)?;
    if reader.try_wait()?.is_some() {
        let name = target.name();
        samples.invalid.push(format!(
            "{name} steady producer: the reader beside it had read everything before the end"
        ));
    }
    let output = reader.wait_with_output()?;
    ensure!(
        output.status.success(),
        "the reader that is far behind does not read everything"
    );
    let read: Value = serde_json::from_slice(&output.stdout)?;
    let rate = figure(&read, "/rate_per_s") * 1024.0 / MILLION;
    samples.keep(target, "reader that is far behind", &read);
    samples.keep(target, "steady producer beside the reader", &beside);
    samples.add(target, "catch_up_rate", rate);
    samples.add(target, "steady_alone_p99", figure(&alone, "/intended/p99"));
    samples.add(target, "steady_beside_p99", figure(&beside, "/intended/p99"));
    let ratio = figure(&beside, "/intended/p99") / figure(&alone, "/intended/p99");
    samples.add(target, "steady_ratio", ratio);
    Ok(())
}

fn segments(data: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(data).with_context(|| format!("listing {}", data.display()))? {
        let path = entry?.path();
        let is_wanted = path
            .file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with(BEHIND));
        if !is_wanted {
            continue;
        }
        for file in fs::read_dir(&path)? {
            let file = file?.path();
            if file.extension().is_some_and(|extension| extension == "log") {
                found.push(file);
            }
        }
    }
    Ok(found)
}

/// So that both brokers read from the device.
fn forget_page_cache(data: &Path) -> Result<()> {
    for path in segments(data)? {
        let file = File::open(&path)?;
        file.sync_all()?;
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
    }
    Ok(())
}

/// MB/s of the device for one reader of the same files, one MiB at a time, past the page cache.
fn device_rate(data: &Path) -> Result<f64> {
    const CHUNK: usize = 1 << 20;
    const ALIGNED: usize = 4096;
    let mut memory = vec![0; CHUNK + ALIGNED];
    let start = memory.as_ptr().align_offset(ALIGNED);
    let began = Instant::now();
    let mut read = 0;
    for path in segments(data)? {
        let direct = i32::try_from(rustix::fs::OFlags::DIRECT.bits()).expect("a flag");
        let file = OpenOptions::new().read(true).custom_flags(direct).open(&path)?;
        let whole = file.metadata()?.len() / CHUNK as u64;
        for chunk in 0..whole {
            file.read_exact_at(&mut memory[start..start + CHUNK], chunk * CHUNK as u64)
                .with_context(|| format!("reading {}", path.display()))?;
            read += CHUNK;
        }
        if began.elapsed() > Duration::from_secs(5) {
            break;
        }
    }
    Ok(read as f64 / MILLION / began.elapsed().as_secs_f64())
}
