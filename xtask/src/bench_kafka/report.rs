//! Renders docs/measurements/benchmarks.md, transactions.md, security.md and tails.md.

use super::Plan;
use super::metrics::{METRICS, Metric, Samples, median};
use super::session::{CONSUMED_RECORDS, figure};
use super::tails::{Curve, LOADS};
use super::transactions::{GROUP_PARTITIONS, LINES_PER_SECOND, MEMBERS, QUIET_SECONDS};
use crate::interop::server::Target;
use ottla_lab::numbers::{number, percent};
use serde_json::Value;
use std::fmt::Write;

pub fn pairs(plan: &Plan, machine: &[(String, String)], samples: &Samples) -> String {
    let mut text = String::from(
        "# Benchmarks: Ottla beside Apache Kafka 4.3\n\n\
         Written by `cargo xtask bench-kafka`; do not edit. Every number was measured in one run on the machine below, \
         broker, generator and consumer sharing it over the loopback interface. Compare the ratios; \
         absolute times depend on the machine.\n\n",
    );
    manifest(&mut text, plan, machine);
    loads(&mut text, plan);
    table(&mut text, plan, samples);
    let short = durable(&mut text, samples);
    calibration(&mut text, samples);
    conclude(&mut text, samples, short);
    text
}

pub fn transactions(plan: &Plan, machine: &[(String, String)], samples: &Samples) -> String {
    let mut text = String::from(
        "# Transactions and groups: Ottla beside Apache Kafka 4.3\n\n\
         Written by `cargo xtask bench-kafka --only-transactions`; do not edit. Both brokers with their defaults: Ottla answers a \
         commit when it and its markers are on disk, Apache Kafka when they are in the page cache. Broker and generator share the \
         machine below.\n\n",
    );
    manifest(&mut text, plan, machine);
    let _ = writeln!(
        text,
        "| pairs | {}, order alternated (Kafka first in odd pairs) |\n\
         | load | franz-go, records of 256 B over 6 partitions, linger 0; each transactional id begins the next transaction when \
         the one before is committed; {} s after a warm-up of {} s |\n\
         | commit | from the call, when every record is acknowledged, to its answer |\n\
         | word count | Kafka Streams 4.3 with the defaults of `exactly_once_v2` (a commit every 100 ms), two threads, no cache: \
         {} lines/s of five words over 4 partitions, a record in the repartition topic, the changelog and the output for each word; \
         writer, application and reader (`read_committed`) are one JVM |\n\
         | group | {} consumers of franz-go with the consumer protocol in one process, {} partitions without records; a partition \
         changes hands when the member is told; settled: every partition has an owner, the shares are even, and nothing changed for {} s \
         (not counted) |\n\n\
         Apache Kafka answers CONCURRENT_TRANSACTIONS to a producer that begins while the markers of its last transaction are \
         being written, and the client tries again when its own backoff is over (franz-go's here); Ottla lets the request wait. \
         That is part of the time of a transaction and of the commits per second, not of the commit's latency.\n",
        plan.pairs,
        plan.transaction_seconds,
        plan.warmup_seconds,
        number(LINES_PER_SECOND.into()),
        MEMBERS,
        number(GROUP_PARTITIONS.into()),
        QUIET_SECONDS,
    );
    table(&mut text, plan, samples);
    conclude(&mut text, samples, Vec::new());
    text
}

pub fn security(plan: &Plan, machine: &[(String, String)], samples: &Samples) -> String {
    let mut text = String::from(
        "# Security: Ottla beside Apache Kafka 4.3\n\n\
         Written by `cargo xtask bench-kafka --only-security`; do not edit. Both brokers acknowledge from the page cache. Broker and \
         generator share the machine below.\n\n",
    );
    manifest(&mut text, plan, machine);
    let _ = writeln!(
        text,
        "| pairs | {}, order alternated (Kafka first in odd pairs) |\n\
         | load | franz-go (Go's TLS), TLS 1.3, certificates of P-256 and RSA-2048, no client certificates, records of 256 B over 6 \
         partitions, `acks=all`; {} s after a warm-up of {} s; {} records of full batches after a warm-up of {} |\n\
         | new connections | eight at a time: TCP, a full handshake without session tickets, one ApiVersions, and a reset |\n\
         | idle connections | 1,000 of each kind at the same time, each after one ApiVersions; what the broker's resident memory grew by |\n\
         | half hellos | connections that send half a ClientHello and nothing more, at most 4,096 of them at a time; meanwhile one producer |\n\
         | connections elsewhere | as many a second, from one address, to a process that accepts and closes them; the same producer at the untouched broker |\n",
        plan.pairs,
        plan.security_seconds,
        plan.warmup_seconds,
        plan.records,
        plan.warmup_seconds * 1_000_000,
    );
    table(&mut text, plan, samples);
    beside_security(&mut text, samples);
    let short = own_aims(&mut text, samples);
    conclude(&mut text, samples, short);
    text
}

/// What security costs those that do not use it: Ottla alone.
fn beside_security(text: &mut String, samples: &Samples) {
    text.push_str(
        "## Clients without security\n\nA producer without TLS and SASL at two Ottlas that run side by side and are loaded in turn: \
         one without any security; one with an authorizer, 1,000 ACLs of others and two that permit this producer, and listeners \
         with TLS and with TLS and SASL. Medians, and in brackets the smallest and the largest of the pairs.\n\n\
         | | unit | Ottla |\n|---|---|---|\n",
    );
    for metric in super::beside_security::metrics() {
        let found = ratio(samples.of(metric.key, Target::Ottla));
        let _ = writeln!(text, "| {} | {} | {found} |", metric.title, metric.unit);
    }
    text.push('\n');
}

/// Aims that compare Ottla with itself; returns those that are missed.
fn own_aims(text: &mut String, samples: &Samples) -> Vec<String> {
    let mut short = Vec::new();
    let ottla = |key| samples.median(key, Target::Ottla).unwrap_or(f64::NAN);
    let beyond = ottla("idle_tls_kib") - ottla("idle_plain_kib");
    for (what, found, aim) in [
        ("Ottla's p99 over TLS to without", ottla("tls_paced_ratio"), 1.25),
        ("KiB of an idle TLS connection beyond a plain one", beyond, 8.0),
        (
            "Ottla's p99 beside 10,000 half hellos/s from one address to without",
            ottla("flood_1_ratio"),
            1.5,
        ),
        ("The same from 200 addresses", ottla("flood_200_ratio"), 1.5),
    ] {
        let figures = format!("{what}: {}; the aim is {}", number(found), number(aim));
        let _ = writeln!(
            text,
            "{figures}: {}.\n",
            own_verdict(found <= aim, &figures, &mut short)
        );
    }
    short
}

/// Keeps `figures` if the aim is missed.
fn own_verdict(is_met: bool, figures: &str, short: &mut Vec<String>) -> &'static str {
    if is_met {
        return "met";
    }
    short.push(figures.to_owned());
    "**falls short**"
}

/// What is invalid, and which aims are missed.
///
/// - `own`: those of Ottla alone.
fn conclude(text: &mut String, samples: &Samples, own: Vec<String>) {
    invalid(text, samples.invalid.clone(), &samples.busy);
    let short = METRICS
        .iter()
        .filter(|metric| verdict(metric, samples) == "**falls short**");
    let lines = short.map(|metric| {
        let middle = median(&samples.ratios(metric.key)).unwrap_or(f64::NAN);
        let aim = metric.aim.unwrap_or(f64::NAN);
        format!("{}: ratio {}, aim {}", metric.title, number(middle), number(aim))
    });
    shortfalls(text, lines.chain(own));
}

pub fn tails(plan: &Plan, machine: &[(String, String)], curves: &[Curve], busy: &[f64]) -> String {
    let mut text = String::from(
        "# Tails over time: Ottla beside Apache Kafka 4.3\n\n\
         Written by `cargo xtask bench-kafka --only-tails`; do not edit. Every record is on disk before it is acknowledged: \
         Ottla with its default, Apache Kafka with `log.flush.interval.messages=1`.\n\n",
    );
    manifest(&mut text, plan, machine);
    text.push('\n');
    over_time(&mut text, plan, curves);
    let reasons = curves.iter().flat_map(|curve| {
        let reasons = curve.result["invalid"].as_array().into_iter().flatten();
        reasons.map(|reason| {
            let reason = reason.as_str().unwrap_or("no reason");
            format!(
                "{}, {} records/s: {reason}",
                curve.target.name(),
                number(curve.load.into())
            )
        })
    });
    invalid(&mut text, reasons.collect(), busy);
    shortfalls(&mut text, too_long(curves).into_iter());
    text
}

/// What the aims forbid: p99 above 5 ms, p99.9 above 15 ms, anything above 50 ms, and an interval
/// whose p99 is above 10 ms.
fn too_long(curves: &[Curve]) -> Vec<String> {
    let mut lines = Vec::new();
    for curve in curves.iter().filter(|curve| curve.target == Target::Ottla) {
        let at = |path: &str| figure(&curve.result, path);
        for (what, found, aim) in [
            ("p99", at("/intended/p99"), 5.0),
            ("p99.9", at("/intended/p999"), 15.0),
            ("the largest", at("/intended/max"), 50.0),
            ("the worst p99 of an interval", worst(&curve.result, "/p99"), 10.0),
        ] {
            if found > aim {
                let (load, found, aim) = (number(curve.load.into()), number(found), number(aim));
                lines.push(format!(
                    "{load} records/s: {what} is {found} ms, aim at most {aim}"
                ));
            }
        }
    }
    lines
}

fn manifest(text: &mut String, plan: &Plan, machine: &[(String, String)]) {
    text.push_str("## Manifest\n\n| | |\n|---|---|\n");
    for (name, value) in machine {
        let _ = writeln!(text, "| {name} | {value} |");
    }
    let _ = writeln!(text, "| command | `{}` |", plan.command.trim());
}

fn loads(text: &mut String, plan: &Plan) {
    let _ = writeln!(
        text,
        "| pairs | {}, order alternated (Kafka first in odd pairs) |\n\
         | records | 256 B, JSON-like, no compression unless a codec is named, no keys, 6 partitions, one idempotent producer, acks=all |\n\
         | full batches | {} records as fast as acknowledgements allow, linger 5 ms, batches up to 1 MB; warm-up {} |\n\
         | tiny requests | 20,000 records/s for {} s on a schedule, linger 0; warm-up {} s |\n\
         | consume | {} records that were just written, {} times over, after one pass to warm up |\n\
         | sustained | records of 1 KiB for {} s or {} GB, linger 5 ms, no warm-up |\n\
         | a reader far behind | {} GB of records of 1 KiB, let go from the page cache before; beside it 20,000 records/s of 256 B, linger 1 ms |\n\
         | idle | {} s |",
        plan.pairs,
        plan.records,
        plan.warmup_seconds * 2_000_000,
        plan.paced_seconds,
        plan.warmup_seconds * 2,
        CONSUMED_RECORDS,
        plan.consume_passes,
        plan.sustained_seconds,
        plan.sustained_gigabytes,
        plan.behind_gigabytes,
        plan.idle_seconds,
    );
    text.push_str(
        "| configuration | the same server.properties for both, all defaults except addresses, directory and 5 partitions of \
         `__consumer_offsets`; the JVM with the flags of Kafka's start script (-Xms1G -Xmx1G, G1, 20 ms pause goal) |\n\
         | page cache | Ottla `ottla.durability=page-cache`, Kafka with its defaults |\n\
         | disk | Ottla `ottla.durability=disk` (its default), Kafka `log.flush.interval.messages=1` |\n\n\
         Latency counts from the moment a record was due, so a generator that waits does not hide it; service time counts from \
         the call. Memory is the process's resident set; CPU is user and system time of all its threads, read when the measured \
         part begins and ends.\n\n",
    );
}

fn table(text: &mut String, plan: &Plan, samples: &Samples) {
    text.push_str(
        "## Side by side\n\nMedians. Ratio: Ottla / Kafka, the median of the pairs and in brackets the smallest and the largest.\n\n\
         | | unit | Kafka | Ottla | ratio | aim | |\n|---|---|---|---|---|---|---|\n",
    );
    for metric in METRICS {
        let (Some(kafka), Some(ottla)) = (
            samples.median(metric.key, Target::Kafka),
            samples.median(metric.key, Target::Ottla),
        ) else {
            continue;
        };
        let aim = metric
            .aim
            .map_or(String::new(), |aim| format!("≤ {}", number(aim)));
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {aim} | {} |",
            metric.title,
            metric.unit,
            number(kafka),
            number(ottla),
            ratio(&samples.ratios(metric.key)),
            verdict(metric, samples),
        );
    }
    if plan.pairs < 5 {
        let _ = writeln!(text, "\nOnly {} pair(s): too few to be evidence.", plan.pairs);
    }
    text.push('\n');
}

fn ratio(ratios: &[f64]) -> String {
    let Some(middle) = median(ratios) else {
        return String::from("-");
    };
    let smallest = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    let largest = ratios.iter().copied().fold(0.0, f64::max);
    format!("{} [{}, {}]", number(middle), number(smallest), number(largest))
}

fn verdict(metric: &Metric, samples: &Samples) -> &'static str {
    let (Some(aim), Some(middle)) = (metric.aim, median(&samples.ratios(metric.key))) else {
        return "";
    };
    if middle <= aim { "met" } else { "**falls short**" }
}

/// Aims that a row of the table cannot say; returns those that are missed.
fn durable(text: &mut String, samples: &Samples) -> Vec<String> {
    let mut short = Vec::new();
    let (Some(p99), Some(sync)) = (
        samples.median("disk_p99", Target::Ottla),
        samples.median("sync_p99", Target::Ottla),
    ) else {
        return short;
    };
    let figures = format!(
        "`acks=all` on disk: Ottla's p99 is {} ms; the aim is the disk's own p99 ({} ms, measured before each run) plus 1 ms",
        number(p99),
        number(sync),
    );
    let verdict = own_verdict(p99 <= sync + 1.0, &figures, &mut short);
    let _ = writeln!(text, "{figures}: {verdict}.");
    if samples
        .median("sync_p50", Target::Ottla)
        .is_some_and(|p50| p50 < 0.1)
    {
        text.push_str("A sync of less than 0.1 ms measures the host's cache, not the disk.\n");
    }
    if let Some(idle) = samples.median("idle_cpu", Target::Ottla) {
        let figures = format!("Idle CPU: {} % of a core; the aim is below 0.2 %", number(idle));
        let verdict = own_verdict(idle < 0.2, &figures, &mut short);
        let _ = writeln!(text, "\n{figures}: {verdict}.");
    }
    text.push('\n');
    short
}

fn calibration(text: &mut String, samples: &Samples) {
    text.push_str("## The generator against a null sink\n\nA process that answers and discards everything.\n\n| | |\n|---|---|\n");
    for (name, value) in &samples.calibration {
        let _ = writeln!(text, "| {name} | {} |", number(*value));
    }
    let null = samples
        .calibration
        .get("full batches, records/s")
        .copied()
        .unwrap_or(0.0);
    for target in [Target::Kafka, Target::Ottla] {
        if let Some(rate) = samples.median("full_rate", target)
            && null < 2.0 * rate
        {
            let _ = writeln!(
                text,
                "\nINVALID as a measurement of {}'s capacity: the generator alone reaches {} times the rate; 2 is required. \
                 The CPU per million records is valid.",
                target.name(),
                number(null / rate),
            );
        }
    }
    text.push('\n');
}

fn over_time(text: &mut String, plan: &Plan, curves: &[Curve]) {
    let _ = writeln!(
        text,
        "## Both brokers\n\nRecords of 1 KiB for {} s, linger 1 ms, 6 partitions, one producer and one consumer in one process, which has one half of the \
         processors; the broker has the other. From the moment a record was due to its arrival at the consumer. Retention 1 GB a partition, segments of 250 MB.\n",
        plan.tail_seconds
    );
    text.push_str("| records/s | broker | p50 | p95 | p99 | p99.9 | max | worst p99 of an interval | rate, last third / first | broker CPU s per million |\n|---|---|---|---|---|---|---|---|---|---|\n");
    for curve in curves {
        let at = |path: &str| number(figure(&curve.result, path));
        let millions = figure(&curve.result, "/received") / 1e6;
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            number(curve.load.into()),
            curve.target.name(),
            at("/intended/p50"),
            at("/intended/p95"),
            at("/intended/p99"),
            at("/intended/p999"),
            at("/intended/max"),
            number(worst(&curve.result, "/p99")),
            at("/rate_last_third_over_first"),
            number(figure(&curve.result, "/broker_cpu_s") / millions),
        );
    }
    for load in LOADS {
        let find = |target| {
            curves
                .iter()
                .find(|curve| curve.load == load && curve.target == target)
        };
        let (Some(kafka), Some(ottla)) = (find(Target::Kafka), find(Target::Ottla)) else {
            continue;
        };
        let _ = writeln!(
            text,
            "\n## {} records/s: p99 and max of each interval, ms\n\n| from s | Kafka p99 | Kafka max | Ottla p99 | Ottla max |\n|---|---|---|---|---|",
            number(load.into()),
        );
        for (from, [kafka_p99, kafka_max, ottla_p99, ottla_max]) in merge(&kafka.result, &ottla.result) {
            let _ = writeln!(
                text,
                "| {from} | {} | {} | {} | {} |",
                number(kafka_p99),
                number(kafka_max),
                number(ottla_p99),
                number(ottla_max)
            );
        }
    }
    text.push('\n');
}

/// The largest of the values that the intervals of a run have.
fn worst(result: &Value, name: &str) -> f64 {
    let points = result["curve"].as_array().map_or(&[][..], Vec::as_slice);
    points
        .iter()
        .map(|point| figure(point, name))
        .fold(f64::NAN, f64::max)
}

/// Merges both curves into at most 40 rows; a row shows the worst of its points.
fn merge(kafka: &Value, ottla: &Value) -> Vec<(f64, [f64; 4])> {
    let points = |result: &Value| result["curve"].as_array().cloned().unwrap_or_default();
    let (kafka, ottla) = (points(kafka), points(ottla));
    let longest = kafka.len().max(ottla.len());
    let step = longest.div_ceil(40).max(1);
    let worst =
        |points: &[Value], name: &str| points.iter().map(|p| figure(p, name)).fold(f64::NAN, f64::max);
    (0..longest)
        .step_by(step)
        .map(|at| {
            let kafka = &kafka[at.min(kafka.len())..(at + step).min(kafka.len())];
            let ottla = &ottla[at.min(ottla.len())..(at + step).min(ottla.len())];
            let from = kafka
                .first()
                .or(ottla.first())
                .map_or(0.0, |point| figure(point, "/from_s"));
            (
                from,
                [
                    worst(kafka, "/p99"),
                    worst(kafka, "/max"),
                    worst(ottla, "/p99"),
                    worst(ottla, "/max"),
                ],
            )
        })
        .collect()
}

fn invalid(text: &mut String, mut reasons: Vec<String>, busy: &[f64]) {
    let busiest = busy.iter().copied().fold(0.0, f64::max);
    if busiest > 0.05 {
        reasons.push(format!(
            "the machine was shared: before the brokers' turns, other programs kept {} (median; at most \
             {}) of its processors busy. This hardly affects CPU seconds and memory; latencies, above all p99 and \
             higher, are those of a contended machine and prove nothing",
            percent(median(busy).unwrap_or(0.0)),
            percent(busiest)
        ));
    }
    text.push_str("## INVALID\n\n");
    if reasons.is_empty() {
        text.push_str(
            "No run: every schedule was held, sent = acknowledged = received, no errors, no duplicates.\n\n",
        );
    } else {
        text.push_str("Runs that the generator marks INVALID. The broker may or may not be the cause.\n\n");
        for reason in reasons {
            let _ = writeln!(text, "- {reason}");
        }
        text.push('\n');
    }
}

fn shortfalls(text: &mut String, lines: impl Iterator<Item = String>) {
    text.push_str("## What falls short\n\n");
    let mut lines = lines.peekable();
    if lines.peek().is_none() {
        text.push_str("All aims of this run are met.\n");
    }
    for line in lines {
        let _ = writeln!(text, "- {line}");
    }
}
