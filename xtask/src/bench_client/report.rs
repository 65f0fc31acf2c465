//! Renders docs/measurements/client-benchmarks.md.

use super::case::{Case, Kind, Produce};
use super::contender::Contender;
use super::measure::Run;
use super::{Plan, Sample};
use crate::bench_kafka::metrics::median;
use ottla_lab::numbers::{number, percent};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Returns the progress line of a run.
pub fn line(contender: Contender, run: &Run) -> String {
    let mut text = format!("{:16}", contender.name());
    if run.rate > 0.0 {
        let _ = write!(
            text,
            "{:>9} records/s, CPU s per million {} (broker {}), peak {} MiB",
            number(run.rate),
            number(run.client_cpu),
            number(run.broker_cpu),
            number(run.peak_mib)
        );
    }
    if let Some(latencies) = run.latencies {
        let _ = write!(
            text,
            ", ms p50 {} p99 {} max {}",
            number(latencies.p50),
            number(latencies.p99),
            number(latencies.max)
        );
    }
    for reason in &run.invalid {
        let _ = write!(text, "; INVALID {reason}");
    }
    text
}

pub fn render(
    plan: &Plan,
    machine: &[(String, String)],
    cases: &[Case],
    samples: &[Sample],
    failures: &BTreeMap<Contender, String>,
    busy: &[f64],
) -> String {
    let mut text = String::from(
        "# Benchmarks: the client beside others\n\n\
         Written by `cargo xtask bench-client`; do not edit. Every number was measured in one run on the machine below, one \
         broker for all, client and broker sharing the machine over the loopback interface. Compare the ratios; \
         absolute times depend on the machine.\n\n",
    );
    manifest(&mut text, plan, machine, samples);
    let results = Results { cases, samples };
    aims(&mut text, &results);
    produce_tables(&mut text, &results);
    paced_table(&mut text, &results);
    consume_tables(&mut text, &results);
    invalid(&mut text, &results, failures, busy);
    text
}

struct Results<'a> {
    cases: &'a [Case],
    samples: &'a [Sample],
}

impl Results<'_> {
    fn find(&self, key: &str, contender: Contender) -> Option<&Sample> {
        let found = |sample: &&Sample| self.cases[sample.case].key == key && sample.contender == contender;
        self.samples.iter().find(found)
    }

    fn of_case(&self, index: usize) -> impl Iterator<Item = &Sample> {
        self.samples.iter().filter(move |sample| sample.case == index)
    }
}

impl Sample {
    /// The values of the valid runs.
    fn values(&self, of: impl Fn(&Run) -> f64) -> Vec<f64> {
        self.runs
            .iter()
            .filter(|run| run.invalid.is_empty())
            .map(of)
            .collect()
    }

    fn median(&self, of: impl Fn(&Run) -> f64) -> f64 {
        median(&self.values(of)).unwrap_or(f64::NAN)
    }
}

/// `ours / theirs` of each round in which both runs are valid.
fn ratios(ours: &Sample, theirs: &Sample, of: impl Fn(&Run) -> f64) -> Vec<f64> {
    let pairs = ours.runs.iter().zip(&theirs.runs);
    pairs
        .filter(|(ours, theirs)| ours.invalid.is_empty() && theirs.invalid.is_empty())
        .map(|(ours, theirs)| of(ours) / of(theirs))
        .collect()
}

fn spread(ratios: &[f64]) -> String {
    let Some(middle) = median(ratios) else {
        return String::from("-");
    };
    let smallest = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    let largest = ratios.iter().copied().fold(0.0, f64::max);
    format!("{} [{}, {}]", number(middle), number(smallest), number(largest))
}

fn manifest(text: &mut String, plan: &Plan, machine: &[(String, String)], samples: &[Sample]) {
    text.push_str("## Manifest\n\n| | |\n|---|---|\n");
    for (name, value) in machine
        .iter()
        .filter(|(name, _)| !matches!(name.as_str(), "generator" | "JVM" | "Apache Kafka"))
    {
        let _ = writeln!(text, "| {name} | {value} |");
    }
    for contender in Contender::ALL {
        let found = samples.iter().filter(|sample| sample.contender == contender);
        let version = found
            .flat_map(|sample| &sample.runs)
            .map(|run| &run.version)
            .find(|version| !version.is_empty());
        if let Some(version) = version {
            let _ = writeln!(text, "| {} | {version} |", contender.name());
        }
    }
    let _ = writeln!(
        text,
        "| broker | {}, one node, acknowledged from the page cache, data on {} |\n\
         | command | `{}` |\n\
         | rounds | {}, order of the clients reversed in every second |",
        plan.target.name(),
        if plan.data.starts_with("/dev/shm") {
            "tmpfs"
        } else {
            "disk"
        },
        plan.command.trim(),
        plan.pairs,
    );
    text.push_str(
        "| producers | acks=all, idempotence on (librdkafka: switched on; all others: by default), explicit partitions, no keys, \
         one producer instance shared by all threads, every record's answer counted (callbacks; krafka has none: its handles are \
         awaited in order; ottla: its futures likewise, and callbacks where latency is measured), values taken from 4,096 prepared records |\n\
         | cases that name the answers | a closure for each record: librdkafka has none, its one delivery callback with the message's opaque stands \
         in. One handler: ottla's `with_delivery` with a tag, librdkafka's delivery callback with an opaque, one promise for all records in franz-go. \
         A future for each record, awaited in order: ottla's own, krafka's handles; librdkafka and franz-go have none, so the \
         program makes one of the opaque (an atomic and an unpark) or the promise (a channel) |\n\
         | equal settings | batch as named, linger 5 ms, buffer 32 MiB. librdkafka: `batch.num.messages` and \
         `queue.buffering.max.messages` raised, so that bytes are the limit; franz-go: `MaxBufferedRecords` raised |\n\
         | defaults | batch, linger and buffer by each client's defaults; Java, confluent-kafka, krafka and ottla: 16 KiB, 5 ms, 32 MiB; librdkafka: \
         1 MB, 5 ms, 100,000 records; franz-go: 1 MB, 10 ms, 10,000 records |\n\
         | consumers | assigned partitions from the beginning, defaults except librdkafka's `fetch.queue.backoff.ms` (10 instead of 1,000, \
         with which it starves); one warm-up pass, then back to the beginning with the same consumer for the measured passes, so \
         that no client's start is counted |\n\
         | warm-up | as many records as are measured, in the same process, not counted |\n\
         | Java | flags of Kafka's own `kafka-producer-perf-test.sh` (-Xmx512M, G1) |\n\n\
         Rate: acknowledged records over the time from the first `send` to the last answer. CPU: user and system seconds of the whole process \
         per million records, read from outside when the measured part begins and ends. Memory: the peak resident set of the process \
         since its start. At the end of every run the partition's end must equal the acknowledged records: no loss, no duplicate. Saturated \
         runs share two cores with the broker: a rate is that of the pair, the CPU seconds are the client's own; their latency is not reported.\n\n",
    );
}

fn aims(text: &mut String, results: &Results<'_>) {
    text.push_str("## Aims\n\n| aim | measured | |\n|---|---|---|\n");
    let mut row = |aim: &str, measured: Option<(f64, String)>, is_met: &dyn Fn(f64) -> bool| {
        let (value, shown) = measured.unwrap_or((f64::NAN, "not measured".to_string()));
        let verdict = match value.is_nan() {
            true => "",
            false if is_met(value) => "met",
            false => "**falls short**",
        };
        let _ = writeln!(text, "| {aim} | {shown} | {verdict} |");
    };
    for compression in ["none", "lz4"] {
        let key = format!("256-{compression}-128k");
        row(
            &format!("client CPU, 256 B, {compression}: at most half of the best other client's"),
            against_best(results, &key, |run| run.client_cpu),
            &|ratio| ratio <= 0.5,
        );
        // The best result of other clients before this client was written: franz-go and librdkafka
        // against Apache Kafka.
        let limit = if compression == "none" {
            0.78 / 2.0
        } else {
            1.9 / 2.0
        };
        let ours = results.find(&key, Contender::Ottla).map(|sample| {
            let seconds = sample.median(|run| run.client_cpu);
            (seconds, format!("{} s", number(seconds)))
        });
        row(
            &format!(
                "the same against the best result at the time the aim was set: at most {} s per million",
                number(limit)
            ),
            ours,
            &|seconds| seconds <= limit,
        );
    }
    for (key, what) in [
        ("callbacks", "closures"),
        ("handler", "one handler"),
        ("futures", "futures"),
    ] {
        let key = format!("256-none-128k-{key}");
        row(
            &format!(
                "client CPU, 256 B, none, {what} on both sides: at most half of the best other client's"
            ),
            against_best(results, &key, |run| run.client_cpu),
            &|ratio| ratio <= 0.5,
        );
    }
    let handled = results
        .find("256-none-128k-handler", Contender::Ottla)
        .map(|sample| {
            let seconds = sample.median(|run| run.client_cpu);
            (seconds, format!("{seconds:.3} s"))
        });
    row(
        "client CPU, 256 B, none, one handler: at most 0.35 s per million",
        handled,
        &|seconds| seconds <= 0.35,
    );
    for (key, what) in [("256-none-128k", "none"), ("256-lz4-128k", "lz4")] {
        let ratio = results.find(key, Contender::Ottla).and_then(|one| {
            let four = results.find(&format!("{key}-4-shared"), Contender::Ottla)?;
            let found = ratios(four, one, |run| run.rate);
            Some((median(&found)?, spread(&found)))
        });
        row(
            &format!(
                "total rate of four threads on one partition over that of one, 256 B, {what}: at least 1"
            ),
            ratio,
            &|ratio| ratio >= 1.0,
        );
    }
    let callbacks = |contender| {
        let asleep = results.find("callback-1", contender)?;
        let found = ratios(asleep, results.find("callback-0", contender)?, |run| run.rate);
        Some((median(&found)?, spread(&found)))
    };
    row(
        "rate beside a callback that sleeps 1 ms over the rate without the sleep: at least 0.95",
        callbacks(Contender::Ottla),
        &|ratio| ratio >= 0.95,
    );
    let java = callbacks(Contender::Java);
    row("the same, Java", java, &|ratio| ratio >= 0.95);
    let peak = results.find("stalled-broker", Contender::Ottla).map(|sample| {
        let peak = sample
            .values(|run| run.peak_mib)
            .into_iter()
            .fold(f64::NAN, f64::max);
        (peak, format!("{} MiB at most", number(peak)))
    });
    row(
        "memory while the broker is stopped: at most buffer.memory (32 MiB) + 32 MiB",
        peak,
        &|mib| mib <= 64.0,
    );
    for compression in ["none", "lz4"] {
        let key = format!("consume-{compression}");
        let ratio = results.find(&key, Contender::Ottla).and_then(|ours| {
            // Records per CPU second is the inverse of CPU seconds per record.
            let found = ratios(ours, results.find(&key, Contender::FranzGo)?, |run| {
                1.0 / run.client_cpu
            });
            Some((median(&found)?, spread(&found)))
        });
        row(
            &format!("consumed records per CPU second over franz-go's, {compression}: at least 1.2"),
            ratio,
            &|ratio| ratio >= 1.2,
        );
    }
    text.push('\n');
}

/// Our value over that of the contender with the smallest median.
fn against_best(results: &Results<'_>, key: &str, of: impl Fn(&Run) -> f64 + Copy) -> Option<(f64, String)> {
    let ours = results.find(key, Contender::Ottla)?;
    let others = Contender::ALL
        .into_iter()
        .filter(|contender| *contender != Contender::Ottla);
    let best = others
        .filter_map(|contender| results.find(key, contender))
        .filter(|sample| sample.median(of).is_finite())
        .min_by(|a, b| a.median(of).total_cmp(&b.median(of)))?;
    let found = ratios(ours, best, of);
    Some((
        median(&found)?,
        format!("{} of {}'s", spread(&found), best.contender.name()),
    ))
}

fn produce_tables(text: &mut String, results: &Results<'_>) {
    text.push_str(
        "## Producers\n\nMedians of the rounds; in brackets the smallest and the largest. Ratios: ours over theirs in the same \
         round.\n\n",
    );
    for (index, case) in results.cases.iter().enumerate() {
        let Kind::Produce(produce) = &case.kind else {
            continue;
        };
        if produce.rate == 0 {
            table(text, results, index, &heading(case, produce));
        }
    }
}

fn heading(case: &Case, produce: &Produce) -> String {
    format!("{} ({} records; `{}`)", case.title, produce.records, case.key)
}

fn consume_tables(text: &mut String, results: &Results<'_>) {
    text.push_str("## Consumers\n\n");
    for (index, case) in results.cases.iter().enumerate() {
        if let Kind::Consume(consume) = &case.kind {
            let title = format!(
                "{} ({} records, {} times; `{}`)",
                case.title, consume.records, consume.passes, case.key
            );
            table(text, results, index, &title);
        }
    }
}

fn table(text: &mut String, results: &Results<'_>, index: usize, title: &str) {
    if results.of_case(index).next().is_none() {
        return;
    }
    let _ = writeln!(
        text,
        "### {title}\n\n| client | records/s | CPU s per million | of the broker | peak MiB | our CPU / theirs | our rate / theirs |\n\
         |---|---|---|---|---|---|---|"
    );
    let ours = results
        .of_case(index)
        .find(|sample| sample.contender == Contender::Ottla);
    for sample in results.of_case(index) {
        let range = |of: fn(&Run) -> f64| {
            let values = sample.values(of);
            let Some(middle) = median(&values) else {
                return String::from("-");
            };
            let smallest = values.iter().copied().fold(f64::INFINITY, f64::min);
            let largest = values.iter().copied().fold(0.0, f64::max);
            format!("{} [{}, {}]", number(middle), number(smallest), number(largest))
        };
        let against = |of: fn(&Run) -> f64| match ours {
            Some(ours) if sample.contender != Contender::Ottla => spread(&ratios(ours, sample, of)),
            _ => String::new(),
        };
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} |",
            sample.contender.name(),
            range(|run| run.rate),
            range(|run| run.client_cpu),
            number(sample.median(|run| run.broker_cpu)),
            number(
                sample
                    .values(|run| run.peak_mib)
                    .into_iter()
                    .fold(f64::NAN, f64::max)
            ),
            against(|run| run.client_cpu),
            against(|run| run.rate),
        );
    }
    text.push('\n');
}

fn paced_table(text: &mut String, results: &Results<'_>) {
    for (index, case) in results.cases.iter().enumerate() {
        let Kind::Produce(produce) = &case.kind else {
            continue;
        };
        if produce.rate == 0 || results.of_case(index).next().is_none() {
            continue;
        }
        let _ = writeln!(
            text,
            "## Latency\n\n{} ({} records; `{}`). Milliseconds from the moment a record was due to its acknowledgement, every \
             record counted; medians of the rounds, the largest of the maxima.\n\n\
             | client | p50 | p95 | p99 | p99.9 | max | CPU s per million | of the broker | sent late, p99 |\n|---|---|---|---|---|---|---|---|---|",
            case.title, produce.records, case.key
        );
        for sample in results.of_case(index) {
            let of = |pick: fn(&super::latency::Latencies) -> f64| {
                sample.values(|run| run.latencies.as_ref().map_or(f64::NAN, pick))
            };
            let middle = |pick| number(median(&of(pick)).unwrap_or(f64::NAN));
            let _ = writeln!(
                text,
                "| {} | {} | {} | {} | {} | {} | {} | {} | {} |",
                sample.contender.name(),
                middle(|found| found.p50),
                middle(|found| found.p95),
                middle(|found| found.p99),
                middle(|found| found.p999),
                number(of(|found| found.max).into_iter().fold(f64::NAN, f64::max)),
                number(sample.median(|run| run.client_cpu)),
                number(sample.median(|run| run.broker_cpu)),
                middle(|found| found.late_p99_ms),
            );
        }
        text.push('\n');
    }
}

fn invalid(text: &mut String, results: &Results<'_>, failures: &BTreeMap<Contender, String>, busy: &[f64]) {
    text.push_str("## INVALID\n\n");
    let mut reasons = Vec::new();
    for (contender, reason) in failures {
        reasons.push(format!(
            "{} could not be built and is missing: {reason}",
            contender.name()
        ));
    }
    for sample in results.samples {
        for (round, run) in sample.runs.iter().enumerate() {
            for reason in &run.invalid {
                reasons.push(format!(
                    "{}, {}, round {}: {}",
                    results.cases[sample.case].key,
                    sample.contender.name(),
                    round + 1,
                    reason.replace('\n', " ")
                ));
            }
        }
    }
    let busiest = busy.iter().copied().fold(0.0, f64::max);
    if busiest > 0.05 {
        reasons.push(format!(
            "the machine was shared: before the cases, other programs kept {} (median; at most {}) of its \
             processors busy. Rates and latencies are those of a contended machine; CPU seconds are affected less",
            percent(median(busy).unwrap_or(0.0)),
            percent(busiest)
        ));
    }
    if reasons.is_empty() {
        text.push_str("No run: sent = acknowledged = in the log, every schedule was held, no errors.\n");
    } else {
        text.push_str("Runs that are not counted above, and caveats about those that are.\n\n");
    }
    for reason in reasons {
        let _ = writeln!(text, "- {reason}");
    }
}
