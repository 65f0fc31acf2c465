//! Our clients' metrics with Apache Kafka as broker (KIP-714): pushed by a saturated producer and
//! by a consumer, decoded by Kafka's own classes.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use ottla_client::admin::{Admin, ClientMetricsSubscription, NewTopic};
use ottla_client::config::Config;
use ottla_client::consumer::Consumer;
use ottla_client::producer::{Producer, Record};

use super::server::{Programs, Site, Target};
use super::table::Table;
use super::toolchain;

const TOPIC: &str = "telemetry";
const PRODUCER: &str = "telemetry-producer";
const CONSUMER: &str = "telemetry-consumer";
const GROUP: &str = "telemetry-group";
const INTERVAL_MS: u32 = 500;
/// Pushes in addition to the terminating one.
const PUSHES_MIN: usize = 4;
const HANG: Duration = Duration::from_secs(60);

/// The receiver's record of one push.
struct Push {
    client: String,
    instance: String,
    is_terminating: bool,
    /// Key and value of the resource's attributes.
    labels: Vec<(String, String)>,
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
    let pushes = read(&file, PRODUCER)?;
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
            let read_back = consume(&server.bootstrap(), &file, sent);
            let pushes = read(&file, CONSUMER)?;
            add(
                "a consumer's deltas add up to the records that were read",
                read_back.and_then(|()| consumed(&pushes, sent)),
            );
        }
    }
    server.stop()
}

/// Sends without a pause until there are enough pushes; returns the number of records and the
/// client's instance id.
fn produce(bootstrap: &str, file: &Path) -> Result<(u64, String)> {
    let admin = Admin::new(&Config::new().set("bootstrap.servers", bootstrap))?;
    let subscription = ClientMetricsSubscription::new(["*"])
        .interval_ms(INTERVAL_MS)
        .matching("client_id=telemetry-.*");
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
        .set("client.id", PRODUCER)
        .set("max.in.flight.requests.per.connection", 1)
        .set("batch.size", 1000)
        .set("buffer.memory", 256 * 1024)
        .set("linger.ms", 0);
    let producer = Producer::new(&config)?;
    let value = [7; 100];
    let record = Record {
        topic: TOPIC,
        value: Some(&value),
        ..Record::default()
    };
    let (started, mut sent) = (Instant::now(), 0);
    while count(file, PRODUCER) < PUSHES_MIN {
        ensure!(
            started.elapsed() < HANG,
            "{} pushes in {HANG:?}, {sent} records sent",
            count(file, PRODUCER)
        );
        for _ in 0..1000 {
            // Failures are counted in record.error.total.
            drop(producer.send(&record)?);
            sent += 1;
        }
    }
    producer.close(HANG)?;
    let instance = await_last_push(file, PRODUCER)?;
    Ok((sent, instance))
}

/// Returns the client's instance id. The receiver writes a push while it serves the request, so the
/// file may be complete only a moment later.
fn await_last_push(file: &Path, client: &str) -> Result<String> {
    let started = Instant::now();
    loop {
        let pushes = read(file, client)?;
        if let Some(last) = pushes.last().filter(|push| push.is_terminating) {
            return Ok(last.instance.clone());
        }
        ensure!(
            started.elapsed() < HANG,
            "no terminating push of {client} among {}",
            pushes.len()
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Reads the producer's records as a member of a group.
fn consume(bootstrap: &str, file: &Path, sent: u64) -> Result<()> {
    let config = Config::new()
        .set("bootstrap.servers", bootstrap)
        .set("client.id", CONSUMER)
        .set("group.id", GROUP)
        .set("auto.offset.reset", "earliest");
    let mut consumer = Consumer::new(&config)?;
    consumer.subscribe([TOPIC])?;
    let (started, mut read) = (Instant::now(), 0);
    while read < sent {
        ensure!(started.elapsed() < HANG, "{read} of {sent} records in {HANG:?}");
        read += consumer.poll(Duration::from_millis(500))?.len() as u64;
    }
    // Closed before its first push, it would only push when it terminates; after an interval there
    // is a
    // regular push too.
    while count(file, CONSUMER) < 2 {
        ensure!(
            started.elapsed() < 2 * HANG,
            "{} pushes of the consumer",
            count(file, CONSUMER)
        );
        consumer.poll(Duration::from_millis(100))?;
    }
    consumer.close(HANG)?;
    await_last_push(file, CONSUMER)?;
    Ok(())
}

fn consumed(pushes: &[Push], sent: u64) -> Result<()> {
    let name = "org.apache.kafka.consumer.fetch.manager.records.consumed.total";
    for attributes in ["", "topic=telemetry"] {
        let points = points(pushes, name).filter(|point| point.attributes == attributes);
        let counted: f64 = points.map(|point| point.value).sum();
        ensure!(
            counted == sent as f64,
            "{name} {attributes:?}: {counted} for {sent} records"
        );
    }
    let lag = points(pushes, "org.apache.kafka.consumer.fetch.manager.records.lag")
        .last()
        .context("no lag")?;
    ensure!(
        lag.value == 0.0 && lag.attributes.contains("partition=0"),
        "{} {}",
        lag.value,
        lag.attributes
    );
    let last = pushes.last().context("no push")?;
    let label = |key: &str| {
        last.labels
            .iter()
            .find(|(found, _)| found == key)
            .map(|(_, value)| value.as_str())
    };
    ensure!(label("group_id") == Some(GROUP), "{:?}", last.labels);
    ensure!(
        label("group_member_id").is_some_and(|id| !id.is_empty()),
        "{:?}",
        last.labels
    );
    Ok(())
}

fn count(file: &Path, client: &str) -> usize {
    fs::read_to_string(file).map_or(0, |text| {
        let begin = format!("push\t{client}\t");
        text.lines().filter(|line| line.starts_with(&begin)).count()
    })
}

fn read(file: &Path, client: &str) -> Result<Vec<Push>> {
    let text = fs::read_to_string(file).unwrap_or_default();
    let mut pushes: Vec<Push> = Vec::new();
    for line in text.lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        match fields.as_slice() {
            ["push", client, instance, is_terminating, _] => {
                pushes.push(Push {
                    client: (*client).to_owned(),
                    instance: (*instance).to_owned(),
                    is_terminating: *is_terminating == "true",
                    labels: Vec::new(),
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
            ["resource", key, value] => {
                let push = pushes.last_mut().context("a label without a push")?;
                push.labels.push(((*key).to_owned(), (*value).to_owned()));
            }
            _ => bail!("the receiver wrote {line:?}"),
        }
    }
    pushes.retain(|push| push.client == client);
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
