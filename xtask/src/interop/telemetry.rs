//! Our client's metrics as Apache Kafka receives them (KIP-714): pushed by a saturated producer, decoded by Kafka's own classes.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use ottla_client::admin::{Admin, ClientMetricsSubscription, NewTopic};
use ottla_client::config::Config;
use ottla_client::producer::{Producer, Record};

use super::server::{Programs, Site, Target};
use super::table::Table;
use super::toolchain;

const TOPIC: &str = "telemetry";
const CLIENT: &str = "telemetry-producer";
const INTERVAL_MS: u32 = 500;
/// Besides the terminating one.
const PUSHES_MIN: usize = 4;
const HANG: Duration = Duration::from_secs(60);

/// What the receiver wrote of one push.
struct Push {
    instance: String,
    is_terminating: bool,
    points: Vec<Point>,
}

struct Point {
    name: String,
    kind: String,
    start: u64,
    end: u64,
    value: f64,
    attributes: String,
}

pub fn run(table: &mut Table, programs: &Programs) -> Result<()> {
    println!("telemetry: Apache Kafka with a receiver of client metrics");
    let file = toolchain::target_directory()
        .join("data")
        .join("telemetry.pushes");
    let _ = fs::remove_file(&file);
    let text = file.display().to_string();
    let settings = [
        ("metric.reporters", "interop.TelemetryReceiver"),
        ("ottla.telemetry.file", text.as_str()),
    ];
    let site = Site::create("telemetry", &settings)?;
    let server = site.start(programs, Target::Kafka)?;
    let mut add = |name: &str, outcome: Result<()>| {
        let outcome = outcome.map_err(|error| format!("{error:#}"));
        println!(
            "telemetry: {name}: {}",
            outcome.as_ref().err().map_or("ok", String::as_str)
        );
        table.add_other(format!("telemetry: {name}"), outcome);
    };
    let produced = produce(&server.bootstrap(), &file);
    let pushes = read(&file)?;
    match produced {
        Err(error) => add(
            "a producer with a full pipe and one request in flight pushes",
            Err(error),
        ),
        Ok((sent, instance)) => {
            add(
                "a producer with a full pipe and one request in flight pushes",
                enough(&pushes, &instance),
            );
            add(
                "deltas add up to the records that were sent",
                deltas(&pushes, sent),
            );
            add("intervals follow each other without a gap", intervals(&pushes));
            add("names and attributes are Kafka's", names(&pushes));
            add("what Kafka does not measure arrives, too", own(&pushes));
        }
    }
    server.stop()
}

/// Sends without a pause until there are enough pushes; how many records it was, and the client's instance id.
fn produce(bootstrap: &str, file: &Path) -> Result<(u64, String)> {
    let admin = Admin::new(&Config::new().set("bootstrap.servers", bootstrap))?;
    let subscription = ClientMetricsSubscription {
        metrics: vec!["*".to_owned()],
        interval_ms: Some(INTERVAL_MS),
        matches: vec![format!("client_id={CLIENT}")],
    };
    for result in admin
        .set_client_metrics_subscription("all", &subscription)
        .wait()?
        .into_values()
    {
        result?;
    }
    for result in admin
        .create_topics(vec![NewTopic::new(TOPIC).partitions(1)])
        .wait()?
        .into_values()
    {
        result?;
    }
    let config = Config::new()
        .set("bootstrap.servers", bootstrap)
        .set("client.id", CLIENT)
        .set("max.in.flight.requests.per.connection", 1)
        .set("batch.size", 1000)
        .set("buffer.memory", 256 * 1024)
        .set("linger.ms", 0);
    let producer = Producer::new(config)?;
    let value = [7; 100];
    let record = Record {
        topic: TOPIC,
        value: Some(&value),
        ..Record::default()
    };
    let (started, mut sent) = (Instant::now(), 0);
    while count(file) < PUSHES_MIN {
        ensure!(
            started.elapsed() < HANG,
            "{} pushes in {HANG:?}, {sent} records sent",
            count(file)
        );
        for _ in 0..1000 {
            // What fails is in record.error.total.
            let _ = producer.send(&record)?;
            sent += 1;
        }
    }
    producer.close(HANG)?;
    // The receiver writes while it serves the last push's request; the file is complete once that is answered, or a moment later.
    while !read(file)?.iter().any(|push| push.is_terminating) {
        ensure!(started.elapsed() < 2 * HANG, "no terminating push");
        std::thread::sleep(Duration::from_millis(50));
    }
    let instance = read(file)?.first().map(|push| push.instance.clone());
    Ok((sent, instance.context("no push")?))
}

fn count(file: &Path) -> usize {
    fs::read_to_string(file).map_or(0, |text| {
        text.lines().filter(|line| line.starts_with("push\t")).count()
    })
}

fn read(file: &Path) -> Result<Vec<Push>> {
    let text = fs::read_to_string(file).unwrap_or_default();
    let mut pushes: Vec<Push> = Vec::new();
    for line in text.lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        match fields.as_slice() {
            ["push", client, instance, is_terminating, _] => {
                ensure!(*client == CLIENT, "a push of {client}");
                pushes.push(Push {
                    instance: (*instance).to_owned(),
                    is_terminating: *is_terminating == "true",
                    points: Vec::new(),
                });
            }
            ["point", name, kind, start, end, value, attributes] => {
                let point = Point {
                    name: (*name).to_owned(),
                    kind: (*kind).to_owned(),
                    start: start.parse()?,
                    end: end.parse()?,
                    value: value.parse()?,
                    attributes: (*attributes).to_owned(),
                };
                pushes
                    .last_mut()
                    .context("a point without a push")?
                    .points
                    .push(point);
            }
            ["resource", ..] => {}
            _ => bail!("the receiver wrote {line:?}"),
        }
    }
    Ok(pushes)
}

fn enough(pushes: &[Push], instance: &str) -> Result<()> {
    let ordinary = pushes.iter().filter(|push| !push.is_terminating).count();
    ensure!(ordinary >= PUSHES_MIN, "{ordinary} pushes");
    ensure!(
        pushes.last().is_some_and(|push| push.is_terminating),
        "the last push is not the terminating one"
    );
    ensure!(
        pushes.iter().all(|push| push.instance == instance),
        "the instance id changed"
    );
    let waited: f64 = points(pushes, "org.apache.kafka.producer.bufferpool.wait.time.ns.total")
        .map(|point| point.value)
        .sum();
    ensure!(
        waited > 0.0,
        "the buffer was never full: the producer was not saturated"
    );
    Ok(())
}

fn points<'a>(pushes: &'a [Push], name: &'a str) -> impl Iterator<Item = &'a Point> {
    pushes
        .iter()
        .flat_map(move |push| push.points.iter().filter(move |point| point.name == name))
}

/// Kinds: `sum`, temporality (1 is delta), monotonic.
fn deltas(pushes: &[Push], sent: u64) -> Result<()> {
    let total = |name| -> f64 { points(pushes, name).map(|point| point.value).sum() };
    let retried = total("org.apache.kafka.producer.record.retry.total");
    let failed = total("org.apache.kafka.producer.record.error.total");
    ensure!(failed == 0.0, "{failed} records failed");
    for name in [
        "org.apache.kafka.producer.record.send.total",
        "org.apache.kafka.producer.topic.record.send.total",
    ] {
        ensure!(
            points(pushes, name).all(|point| point.kind == "sum:1:true"),
            "{name} is no delta sum"
        );
        let counted = total(name);
        ensure!(
            counted == sent as f64 + retried,
            "{name}: {counted} for {sent} records and {retried} retries"
        );
    }
    Ok(())
}

fn intervals(pushes: &[Push]) -> Result<()> {
    let name = "org.apache.kafka.producer.request.total";
    let mut before: Option<u64> = None;
    for point in points(pushes, name) {
        ensure!(point.start < point.end, "{} to {}", point.start, point.end);
        if let Some(end) = before {
            ensure!(point.start == end, "{} after {end}", point.start);
        }
        before = Some(point.end);
    }
    ensure!(before.is_some(), "no {name}");
    Ok(())
}

fn names(pushes: &[Push]) -> Result<()> {
    let last = pushes.last().context("no push")?;
    let have: BTreeSet<(&str, &str)> = last
        .points
        .iter()
        .map(|point| (point.name.as_str(), point.attributes.as_str()))
        .collect();
    for expected in [
        ("org.apache.kafka.producer.record.queue.time.avg", ""),
        ("org.apache.kafka.producer.buffer.available.bytes", ""),
        (
            "org.apache.kafka.producer.node.request.latency.avg",
            "node_id=node-1",
        ),
        ("org.apache.kafka.producer.topic.byte.total", "topic=telemetry"),
        ("org.apache.kafka.app.info.start.time.ms", ""),
    ] {
        ensure!(
            have.contains(&expected),
            "{expected:?} is not among {} points",
            have.len()
        );
    }
    ensure!(
        last.points.iter().all(|point| !point.value.is_nan()),
        "NaN was pushed"
    );
    Ok(())
}

fn own(pushes: &[Push]) -> Result<()> {
    for name in ["send.time.avg", "sending.threads", "batch.fill.time.avg"] {
        let name = format!("ottla.producer.{name}");
        let last = points(pushes, &name).last().with_context(|| name.clone())?;
        ensure!(last.value > 0.0, "{name} is {}", last.value);
    }
    Ok(())
}
