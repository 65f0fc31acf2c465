//! One broker's turn in a pair.

use super::machine::{self, cpu_seconds, device_reads_mib, memory_mib};
use super::metrics::Samples;
use super::{Durability, Lab, Plan};
use crate::interop::server::{Server, Site, Target};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::time::{Duration, SystemTime};

const PARTITIONS: &str = "6";
pub const MILLION: f64 = 1_000_000.0;
/// 256 MB: they are read again before a machine that reclaims its page cache could take them away.
pub const CONSUMED_RECORDS: u32 = 1_000_000;

/// Runs the generator and returns its JSON line.
pub fn generate(lab: &Lab, kind: &str, server: &Server, topic: &str, more: &[&str]) -> Result<Value> {
    generate_at(lab, kind, &server.bootstrap(), server.pid(), topic, more)
}

pub fn generate_at(
    lab: &Lab,
    kind: &str,
    bootstrap: &str,
    pid: u32,
    topic: &str,
    more: &[&str],
) -> Result<Value> {
    let mut command = lab.generator();
    command.args([
        kind,
        bootstrap,
        "-topic",
        topic,
        "-partitions",
        PARTITIONS,
        "-pid",
        &pid.to_string(),
    ]);
    let output = command
        .args(more)
        .stdin(Stdio::null())
        .output()
        .context("cannot start the generator")?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "the generator ended with {}: {stderr}",
        output.status
    );
    let text = String::from_utf8_lossy(&output.stdout);
    if text.trim().is_empty() {
        Ok(Value::Null)
    } else {
        Ok(serde_json::from_str(&text)?)
    }
}

pub fn figure(result: &Value, path: &str) -> f64 {
    result.pointer(path).and_then(Value::as_f64).unwrap_or(f64::NAN)
}

pub fn site(target: Target, durability: Durability, more: &[(&str, &str)]) -> Result<Site> {
    let mut settings = more.to_vec();
    if target == Target::Kafka {
        settings.extend_from_slice(durability.kafka());
    }
    Site::create("bench", &settings)
}

/// Removes the data, and waits until the file system has done so: freeing many gigabytes would
/// delay the syncs of what is measured next.
pub fn clear(site: &Site) {
    site.remove();
    rustix::fs::sync();
}

pub fn start(lab: &Lab, site: &Site, target: Target, durability: Durability) -> Result<Server> {
    site.start_with(&lab.programs, target, &[durability.ottla()])
}

/// Starts a phase of the generator that listens; returns its process and its address.
pub fn listening(lab: &Lab, arguments: &[&str]) -> Result<(Child, String)> {
    let mut child = lab
        .generator()
        .args(arguments)
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start the generator")?;
    let mut line = String::new();
    BufReader::new(child.stdout.take().context("the generator's output")?).read_line(&mut line)?;
    Ok((child, line.trim().to_owned()))
}

/// Measures the generator's own limit against a broker that discards all records.
pub fn calibrate(lab: &Lab, plan: &Plan, samples: &mut Samples) -> Result<()> {
    let (mut sink, line) = listening(lab, &["null-sink", "unused", PARTITIONS])?;
    let outcome = (|| -> Result<()> {
        let records = plan.records.to_string();
        let full = ["-records", &records, "-linger", "5"];
        let result = generate_at(lab, "bench-saturate", &line, sink.id(), "null", &full)?;
        samples
            .calibration
            .insert("full batches, records/s", figure(&result, "/rate_per_s"));
        let paced = ["-rate", "40000", "-seconds", "5", "-warmup", "1"];
        let result = generate_at(lab, "bench-paced", &line, sink.id(), "null", &paced)?;
        samples.calibration.insert(
            "asked for 40,000 records/s at linger 0, sent",
            figure(&result, "/rate_per_s"),
        );
        samples
            .calibration
            .insert("p99 at that rate, ms", figure(&result, "/intended/p99"));
        Ok(())
    })();
    let _ = sink.kill();
    sink.wait()?;
    outcome
}

/// Start-up, idle time, full batches, consuming and tiny requests, acknowledged from the page
/// cache.
pub fn page_cache(lab: &Lab, plan: &Plan, target: Target, samples: &mut Samples) -> Result<()> {
    let durability = Durability::PageCache;
    let site = site(target, durability, &[])?;
    let server = start(lab, &site, target, durability)?;
    generate(lab, "bench-create", &server, "first", &[])?;
    generate(lab, "bench-create", &server, "load", &[])?;
    generate(lab, "bench-create", &server, "paced", &[])?;
    generate(lab, "bench-create", &server, "java", &[])?;
    server.stop()?;

    let (server, milliseconds) = first_record(lab, &site, target)?;
    samples.add(target, "start", milliseconds);
    generate(
        lab,
        "bench-saturate",
        &server,
        "first",
        &["-records", "200000", "-linger", "5"],
    )?;
    server.kill()?;
    let (mut server, milliseconds) = first_record(lab, &site, target)?;
    samples.add(target, "start_kill", milliseconds);

    std::thread::sleep(Duration::from_secs(3));
    let before = cpu_seconds(server.pid())?;
    std::thread::sleep(Duration::from_secs(plan.idle_seconds.into()));
    let used = cpu_seconds(server.pid())? - before;
    samples.add(target, "idle_cpu", used / f64::from(plan.idle_seconds) * 100.0);
    samples.add(target, "idle_rss", memory_mib(server.pid(), "VmRSS")?);

    let records = plan.records.to_string();
    let warmup = (plan.warmup_seconds * 2).to_string();
    // The warm-up is 100,000 records per second of `-warmup`; a JVM needs about 20 times as much.
    let warm = (plan.warmup_seconds * 20).to_string();
    let result = generate(
        lab,
        "bench-saturate",
        &server,
        "load",
        &["-records", &records, "-linger", "5", "-warmup", &warm],
    )?;
    samples.keep(target, "full batches", &result);
    let millions = figure(&result, "/acknowledged") / MILLION;
    samples.add(target, "full_cpu", figure(&result, "/broker_cpu_s") / millions);
    samples.add(target, "full_rate", figure(&result, "/rate_per_s"));
    samples.add(
        target,
        "full_generator",
        figure(&result, "/generator_cpu_s") / millions,
    );

    compressed(lab, plan, target, &server, samples)?;

    consume(lab, plan, target, &server, samples)?;

    let seconds = plan.paced_seconds.to_string();
    let result = generate(
        lab,
        "bench-paced",
        &server,
        "paced",
        &["-rate", "20000", "-seconds", &seconds, "-warmup", &warmup],
    )?;
    samples.keep(target, "20,000 records/s", &result);
    let millions = figure(&result, "/acknowledged") / MILLION;
    samples.add(target, "paced_cpu", figure(&result, "/broker_cpu_s") / millions);
    for (key, path) in [
        ("paced_p50", "/intended/p50"),
        ("paced_p99", "/intended/p99"),
        ("paced_p999", "/intended/p999"),
        ("paced_max", "/intended/max"),
        ("paced_service_p99", "/service/p99"),
    ] {
        samples.add(target, key, figure(&result, path));
    }
    java_paced(lab, plan, target, &server, samples)?;
    samples.add(target, "peak_rss", memory_mib(server.pid(), "VmHWM")?);
    server.check_alive()?;
    server.stop()?;
    clear(&site);
    Ok(())
}

/// Reads what was just written, again and again. A topic of its own: what was written minutes ago
/// may have left the page cache, which Apache Kafka fills again when it reads and Ottla does not.
fn consume(lab: &Lab, plan: &Plan, target: Target, server: &Server, samples: &mut Samples) -> Result<()> {
    let records = CONSUMED_RECORDS.to_string();
    let passes = plan.consume_passes.to_string();
    generate(lab, "bench-create", server, "consume", &[])?;
    let fill = ["-records", &records, "-linger", "5", "-warmup", "0"];
    generate(lab, "bench-saturate", server, "consume", &fill)?;
    generate(lab, "bench-consume", server, "consume", &["-records", &records])?;
    let before = device_reads_mib(server.pid())?;
    let read = ["-records", &records, "-passes", &passes];
    let result = generate(lab, "bench-consume", server, "consume", &read)?;
    let device_mib = device_reads_mib(server.pid())? - before;
    samples.keep(target, "consume", &result);
    let millions = figure(&result, "/received") / MILLION;
    samples.add(target, "consume_cpu", figure(&result, "/broker_cpu_s") / millions);
    samples.add(target, "consume_rate", figure(&result, "/rate_per_s"));
    samples.add(target, "consume_device", device_mib);
    Ok(())
}

/// Full batches in every codec: both brokers decompress them. The generator compresses, so it
/// limits the rate.
fn compressed(lab: &Lab, plan: &Plan, target: Target, server: &Server, samples: &mut Samples) -> Result<()> {
    const METRICS: [(&str, &str); 4] = [
        ("gzip", "full_cpu_gzip"),
        ("snappy", "full_cpu_snappy"),
        ("lz4", "full_cpu_lz4"),
        ("zstd", "full_cpu_zstd"),
    ];
    let records = plan.records.to_string();
    let warm = (plan.warmup_seconds * 5).to_string();
    for (codec, metric) in METRICS {
        let topic = format!("load-{codec}");
        generate(lab, "bench-create", server, &topic, &[])?;
        let load = [
            "-records",
            &records,
            "-linger",
            "5",
            "-warmup",
            &warm,
            "-compression",
            codec,
        ];
        let result = generate(lab, "bench-saturate", server, &topic, &load)?;
        samples.keep(target, &format!("full batches, {codec}"), &result);
        let millions = figure(&result, "/acknowledged") / MILLION;
        samples.add(target, metric, figure(&result, "/broker_cpu_s") / millions);
    }
    Ok(())
}

/// Starts the broker on a directory with the topic; returns the milliseconds to the first
/// acknowledgement.
fn first_record(lab: &Lab, site: &Site, target: Target) -> Result<(Server, f64)> {
    let mut probe = lab.generator();
    probe
        .args(["first-record", &site.bootstrap(), "first"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    let mut probe = probe.spawn().context("cannot start the probe")?;
    std::thread::sleep(Duration::from_millis(100));
    let started = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
    let mut server = site.spawn(&lab.programs, target, &[Durability::PageCache.ottla()])?;
    let mut line = String::new();
    BufReader::new(probe.stdout.take().context("the probe's output")?).read_line(&mut line)?;
    probe.wait()?;
    server.check_alive()?;
    let at: u128 = line.trim().parse().context("the probe printed no time")?;
    Ok((server, (at - started.as_nanos()) as f64 / MILLION))
}

/// kafka-producer-perf-test as second generator. It counts from the moment of sending, so its own
/// delays are missing (coordinated omission).
fn java_paced(lab: &Lab, plan: &Plan, target: Target, server: &Server, samples: &mut Samples) -> Result<()> {
    let run = |seconds: u32| -> Result<String> {
        let mut command = lab
            .programs
            .kafka
            .java(512, "org.apache.kafka.tools.ProducerPerformance");
        let records = (20_000 * seconds).to_string();
        command.args([
            "--topic",
            "java",
            "--record-size",
            "256",
            "--throughput",
            "20000",
            "--num-records",
            &records,
        ]);
        command
            .arg("--producer-props")
            .arg(format!("bootstrap.servers={}", server.bootstrap()));
        crate::interop::toolchain::output_of(command.args(["acks=all", "linger.ms=0"]))
    };
    run(plan.warmup_seconds)?;
    let before = cpu_seconds(server.pid())?;
    let output = run(plan.paced_seconds)?;
    let used = cpu_seconds(server.pid())? - before;
    let last = output.lines().last().unwrap_or_default();
    let p99 = last.split(", ").find_map(|part| part.strip_suffix(" ms 99th"));
    let p99: f64 = p99.with_context(|| format!("no 99th in: {last}"))?.parse()?;
    samples.add(
        target,
        "java_cpu",
        used / (20_000.0 * f64::from(plan.paced_seconds) / MILLION),
    );
    samples.add(target, "java_p99", p99);
    Ok(())
}

/// Tiny requests, each synced to disk before its acknowledgement, compared with the disk's own sync
/// time.
pub fn disk(lab: &Lab, plan: &Plan, target: Target, samples: &mut Samples) -> Result<()> {
    let site = site(target, Durability::Disk, &[])?;
    let mut server = start(lab, &site, target, Durability::Disk)?;
    generate(lab, "bench-create", &server, "synced", &[])?;
    let sync = machine::probe_sync(Duration::from_secs(u64::from(plan.paced_seconds / 4).max(2)))?;
    let at = |share: f64| sync[((sync.len() - 1) as f64 * share) as usize];
    samples.add(target, "sync_p50", at(0.5));
    samples.add(target, "sync_p99", at(0.99));
    samples.add(target, "sync_max", at(1.0));
    let (seconds, warmup) = (plan.paced_seconds.to_string(), plan.warmup_seconds.to_string());
    let result = generate(
        lab,
        "bench-paced",
        &server,
        "synced",
        &["-rate", "20000", "-seconds", &seconds, "-warmup", &warmup],
    )?;
    samples.keep(target, "20,000 records/s on disk", &result);
    samples.add(
        target,
        "disk_cpu",
        figure(&result, "/broker_cpu_s") / (figure(&result, "/acknowledged") / MILLION),
    );
    for (key, path) in [
        ("disk_p50", "/intended/p50"),
        ("disk_p99", "/intended/p99"),
        ("disk_max", "/intended/max"),
    ] {
        samples.add(target, key, figure(&result, path));
    }
    server.check_alive()?;
    server.stop()?;
    clear(&site);
    Ok(())
}

/// A log that grows: records of 1 KiB as fast as acknowledgements allow, nothing deleted.
pub fn sustained(
    lab: &Lab,
    plan: &Plan,
    target: Target,
    durability: Durability,
    samples: &mut Samples,
) -> Result<()> {
    let site = site(target, durability, &[])?;
    let mut server = start(lab, &site, target, durability)?;
    generate(lab, "bench-create", &server, "sustained", &[])?;
    let seconds = plan.sustained_seconds.to_string();
    let records = (u64::from(plan.sustained_gigabytes) * 1_000_000_000 / 1_024).to_string();
    let load = [
        "-bytes", "1024", "-linger", "5", "-warmup", "0", "-seconds", &seconds, "-records", &records,
    ];
    let result = generate(lab, "bench-sustained", &server, "sustained", &load)?;
    server.check_alive()?;
    server.stop()?;
    clear(&site);
    samples.keep(target, &format!("sustained, {}", durability.name()), &result);
    let millions = figure(&result, "/acknowledged") / MILLION;
    let rate = figure(&result, "/rate_per_s");
    let cpu = figure(&result, "/broker_cpu_s") / millions;
    let (rate_key, cpu_key, drift_key) = match durability {
        Durability::PageCache => ("sustained_rate", "sustained_cpu", "sustained_drift"),
        Durability::Disk => (
            "sustained_disk_rate",
            "sustained_disk_cpu",
            "sustained_disk_drift",
        ),
    };
    samples.add(target, rate_key, rate);
    samples.add(target, cpu_key, cpu);
    samples.add(target, drift_key, drift(&result));
    if durability == default_of(target) {
        samples.add(target, "sustained_default_rate", rate);
        samples.add(target, "sustained_default_cpu", cpu);
    }
    Ok(())
}

/// What an acknowledgement means by default.
pub fn default_of(target: Target) -> Durability {
    match target {
        Target::Kafka => Durability::PageCache,
        Target::Ottla => Durability::Disk,
    }
}

/// Broker CPU per record in the last whole interval over that in the first.
fn drift(result: &Value) -> f64 {
    let intervals = result["intervals"].as_array().map_or(&[][..], Vec::as_slice);
    let whole: Vec<f64> = intervals
        .iter()
        .filter(|interval| figure(interval, "/seconds") > 5.0)
        .map(|interval| figure(interval, "/broker_cpu_s") / figure(interval, "/acknowledged"))
        .collect();
    match (whole.first(), whole.last()) {
        (Some(first), Some(last)) => last / first,
        _ => f64::NAN,
    }
}
