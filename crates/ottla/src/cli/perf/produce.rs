//! `ottla perf produce`: the flags and output lines of kafka-producer-perf-test.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use clap::{ArgGroup, Args};
use ottla_client::config::ClientKind;
use ottla_lab::load::clock::now_nanos;
use ottla_lab::perf::produce::{self, Observer, Payload, ProduceEvent, ProducePerf, ProducePerfOutcome};
use ottla_lab::perf::stats::{Interval, Total};

use super::java::fixed;
use super::{Failure, Format, config, metrics_json, metrics_text, print, stop_on_signal, warn_of};
use crate::cli::doctor::text::clean;

/// As in Kafka's tool.
const TRANSACTION_MS: u64 = 3_000;

/// Kinds of errors printed separately; the rest is summed up.
const ERRORS_TOLD: usize = 10;

/// Send records at a given rate and measure their latency (kafka-producer-perf-test.sh)
///
/// With a rate, latency counts from the time a record was due on the schedule, not from the time it
/// was sent, so that a delay in this tool is included (no coordinated omission). Without a rate the
/// producer is saturated and the latency is that of its full queue.
#[derive(Args)]
#[command(group(ArgGroup::new("payload").required(true).args(["record_size", "payload_file", "payload_monotonic"])))]
#[command(group(ArgGroup::new("properties").args(["producer_props", "command_property"])))]
#[command(group(ArgGroup::new("file").args(["producer_config", "command_config"])))]
pub struct Produce {
    /// Brokers to connect to first; overrides bootstrap.servers of the settings
    #[arg(long, value_name = "host:port,...")]
    bootstrap_server: Option<String>,

    /// Topic to write to
    #[arg(long)]
    topic: String,

    /// Number of records to send
    #[arg(long, value_name = "count", value_parser = clap::value_parser!(u64).range(1..))]
    num_records: u64,

    /// Target rate in records per second; -1 sends as fast as the producer accepts records
    #[arg(long, value_name = "rate", allow_negative_numbers = true)]
    throughput: f64,

    /// Size of a record's value; it is filled with random letters
    #[arg(long, value_name = "bytes", value_parser = clap::value_parser!(u32).range(1..))]
    record_size: Option<u32>,

    /// File with values; one is chosen at random for every record
    #[arg(long, value_name = "file")]
    payload_file: Option<String>,

    /// Separator between the values of --payload-file
    #[arg(long, value_name = "text", default_value = "\\n", allow_hyphen_values = true)]
    payload_delimiter: String,

    /// The value of each record is its number
    #[arg(long)]
    payload_monotonic: bool,

    /// Producer settings; they override the file
    #[arg(long, value_name = "name=value", num_args = 1..)]
    command_property: Vec<String>,

    /// Deprecated name of --command-property
    #[arg(long, value_name = "name=value", num_args = 1..)]
    producer_props: Vec<String>,

    /// File with producer settings
    #[arg(long, value_name = "file")]
    command_config: Option<String>,

    /// Deprecated name of --command-config
    #[arg(long = "producer.config", value_name = "file")]
    producer_config: Option<String>,

    /// Print the producer's metrics at the end
    #[arg(long)]
    print_metrics: bool,

    /// Send in transactions of this transactional.id; with --transaction-duration-ms alone the id
    /// is made up. A commit waits for its records, and what is due meanwhile is sent late, which
    /// counts
    #[arg(long, value_name = "id")]
    transactional_id: Option<String>,

    /// Time after which a transaction is committed and the next one begun; 3000 where the settings
    /// or --transactional-id name an id
    #[arg(long, value_name = "ms", value_parser = clap::value_parser!(u64).range(1..))]
    transaction_duration_ms: Option<u64>,

    /// Number of first records that a second, steady-state summary leaves out
    #[arg(long, value_name = "count", default_value_t = 0)]
    warmup_records: u64,

    /// Time between progress lines
    #[arg(long, value_name = "ms", default_value_t = 5_000, value_parser = clap::value_parser!(u64).range(1..))]
    reporting_interval: u64,

    /// Output: the lines of Kafka's tool, or one JSON object at the end, with progress on standard
    /// error
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

impl Produce {
    /// Returns true if every record was acknowledged.
    pub fn run(self) -> Result<bool, Failure> {
        let perf = self.perf()?;
        let stop = stop_on_signal()?;
        match perf.rate {
            Some(rate) => eprintln!(
                "latency counts from when records are due at {rate} records/s, not from when they are sent"
            ),
            None => {
                eprintln!("without a rate the producer is saturated: latencies are those of a full queue")
            }
        }
        if perf.warmup_records > 0 {
            let count = perf.warmup_records;
            self.print(&format!(
                "Warmup first {count} records. Steady state results will print after the complete test summary."
            ));
        }
        let errors = Arc::new(Mutex::new(BTreeMap::new()));
        let outcome = produce::run(&perf, &stop, &observer(self.format, &errors))?;
        tell_errors(&errors);
        if perf.transaction.is_some() {
            eprintln!("{} transactions were committed", outcome.transactions);
        }
        if outcome.was_interrupted {
            eprintln!("interrupted: not all records were sent");
        }
        match self.format {
            Format::Text => self.print_text(&outcome),
            Format::Json => println!("{:#}", self.json(&perf, &outcome)),
        }
        Ok(outcome.failed == 0 && !outcome.was_interrupted)
    }

    fn perf(&self) -> Result<ProducePerf, Failure> {
        self.check()?;
        let properties = match self.producer_props.is_empty() {
            true => &self.command_property,
            false => {
                self.print("Option --producer-props has been deprecated and will be removed in a future version. Use --command-property instead.");
                &self.producer_props
            }
        };
        if self.producer_config.is_some() {
            self.print("Option --producer.config has been deprecated and will be removed in a future version. Use --command-config instead.");
        }
        let file = self.producer_config.as_deref().or(self.command_config.as_deref());
        let mut config = config(file, properties)?;
        if let Some(address) = &self.bootstrap_server {
            config = config.set("bootstrap.servers", address);
        }
        if config.get("client.id").is_none() {
            config = config.set("client.id", "perf-producer-client");
        }
        let transaction = self.transaction(config.get("transactional.id"));
        if let Some((id, _)) = &transaction {
            config = config.set("transactional.id", id);
        }
        warn_of(&config, ClientKind::Producer)?;
        Ok(ProducePerf {
            config,
            transaction: transaction.map(|(_, duration)| duration),
            topic: self.topic.clone(),
            records: self.num_records,
            rate: (self.throughput > 0.0).then_some(self.throughput),
            payload: self.payload()?,
            warmup_records: self.warmup_records,
            reporting_interval: Duration::from_millis(self.reporting_interval),
        })
    }

    /// Returns the transactional id and how long a transaction is; `None`: nothing asks for any.
    ///
    /// - `set`: the id of the settings.
    fn transaction(&self, set: Option<&str>) -> Option<(String, Duration)> {
        let named = self.transactional_id.as_deref().or(set);
        if named.is_none() && self.transaction_duration_ms.is_none() {
            return None;
        }
        let id = match named {
            Some(id) => id.to_owned(),
            None => format!("performance-producer-{}-{}", std::process::id(), now_nanos()),
        };
        let duration_ms = self.transaction_duration_ms.unwrap_or(TRANSACTION_MS);
        Some((id, Duration::from_millis(duration_ms)))
    }

    fn check(&self) -> Result<(), Failure> {
        let usage = |text: &str| Err(Failure::usage(text.to_owned()));
        if self.throughput == 0.0 || !self.throughput.is_finite() {
            return usage("--throughput must be above 0, or below 0 for no limit");
        }
        if self.warmup_records >= self.num_records {
            return usage("--warmup-records must be less than --num-records");
        }
        let sources = [
            &self.bootstrap_server,
            &self.producer_config,
            &self.command_config,
        ];
        let has_properties = !(self.command_property.is_empty() && self.producer_props.is_empty());
        if sources.iter().all(|source| source.is_none()) && !has_properties {
            return usage(
                "one of --bootstrap-server, --command-property, --producer-props, --command-config and --producer.config is needed",
            );
        }
        Ok(())
    }

    fn payload(&self) -> Result<Payload, Failure> {
        if let Some(bytes) = self.record_size {
            return Ok(Payload::Size(bytes as usize));
        }
        let Some(file) = &self.payload_file else {
            return Ok(Payload::Monotonic);
        };
        self.print(&format!("Reading payloads from: {}", absolute(file)));
        let text =
            std::fs::read_to_string(file).map_err(|error| Failure::usage(format!("{file}: {error}")))?;
        let payloads = split(&text, &self.payload_delimiter);
        if payloads.is_empty() {
            return Err(Failure::usage(format!("{file}: the file is empty")));
        }
        self.print(&format!("Number of records read: {}", payloads.len()));
        Ok(Payload::Given(payloads))
    }

    /// Prints a line that is not the JSON result.
    fn print(&self, line: &str) {
        print(self.format, line);
    }

    fn print_text(&self, outcome: &ProducePerfOutcome) {
        self.print(&total_line(&outcome.total, ""));
        if let Some(steady) = &outcome.steady {
            self.print(&total_line(steady, " steady state"));
        }
        if self.print_metrics {
            self.print(&metrics_text(&outcome.metrics));
        }
    }

    fn json(&self, perf: &ProducePerf, outcome: &ProducePerfOutcome) -> serde_json::Value {
        let mut json = total_json(&outcome.total, perf.rate);
        json["tool"] = "produce".into();
        json["topic"] = perf.topic.clone().into();
        json["throughput"] = self.throughput.into();
        json["failed"] = outcome.failed.into();
        if perf.transaction.is_some() {
            json["transactions"] = outcome.transactions.into();
        }
        json["was_interrupted"] = outcome.was_interrupted.into();
        if let Some(steady) = &outcome.steady {
            json["steady_state"] = total_json(steady, perf.rate);
        }
        if self.print_metrics {
            json["metrics"] = metrics_json(&outcome.metrics);
        }
        json
    }
}

fn absolute(file: &str) -> String {
    match std::path::absolute(file) {
        Ok(path) => path.display().to_string(),
        Err(_) => file.to_owned(),
    }
}

/// Splits like Java's `Scanner`: a separator at the beginning or the end makes no empty payload.
fn split(text: &str, delimiter: &str) -> Vec<Vec<u8>> {
    let delimiter = delimiter
        .replace("\\n", "\n")
        .replace("\\t", "\t")
        .replace("\\r", "\r");
    if delimiter.is_empty() {
        return text
            .chars()
            .map(|letter| letter.to_string().into_bytes())
            .collect();
    }
    let text = text.strip_prefix(&delimiter).unwrap_or(text);
    let text = text.strip_suffix(&delimiter).unwrap_or(text);
    if text.is_empty() {
        return Vec::new();
    }
    text.split(&delimiter)
        .map(|payload| payload.as_bytes().to_vec())
        .collect()
}

type Errors = Arc<Mutex<BTreeMap<String, u64>>>;

fn observer(format: Format, errors: &Errors) -> Observer {
    let errors = Arc::clone(errors);
    Arc::new(move |event| match event {
        ProduceEvent::SteadyState => print(format, "In steady state."),
        ProduceEvent::Interval(interval) => print(format, &interval_line(&interval)),
        ProduceEvent::Failed(error) => {
            let mut errors = errors.lock().unwrap_or_else(PoisonError::into_inner);
            // The error may quote text from a broker.
            let text = clean(&error.to_string());
            let is_new = !errors.contains_key(&text) && errors.len() < ERRORS_TOLD;
            if is_new {
                eprintln!("a record failed: {text}");
            }
            let kind = if is_new || errors.contains_key(&text) {
                text
            } else {
                String::from("other errors")
            };
            *errors.entry(kind).or_default() += 1;
        }
    })
}

fn tell_errors(errors: &Errors) {
    for (text, count) in &*errors.lock().unwrap_or_else(PoisonError::into_inner) {
        eprintln!("{count} records failed: {text}");
    }
}

fn interval_line(interval: &Interval) -> String {
    format!(
        "{} records sent, {} records/sec ({} MB/sec), {} ms avg latency, {} ms max latency.",
        interval.records,
        fixed(interval.records_per_second(), 1),
        fixed(interval.mib_per_second(), 2),
        fixed(interval.latency_mean_ms(), 1),
        fixed(interval.latency_max_ms(), 1),
    )
}

fn total_line(total: &Total, what: &str) -> String {
    let interval = &total.interval;
    let at = |percentile: f64| total.latencies.at(percentile) / 1_000;
    format!(
        "{}{what} records sent, {} records/sec ({} MB/sec), {} ms avg latency, {} ms max latency, {} ms 50th, {} ms 95th, {} ms 99th, {} ms 99.9th.",
        interval.records,
        fixed(interval.records_per_second(), 6),
        fixed(interval.mib_per_second(), 2),
        fixed(interval.latency_mean_ms(), 2),
        fixed(interval.latency_max_ms(), 2),
        at(50.0),
        at(95.0),
        at(99.0),
        at(99.9),
    )
}

fn total_json(total: &Total, rate: Option<f64>) -> serde_json::Value {
    let interval = &total.interval;
    serde_json::json!({
        "records": interval.records,
        "bytes": interval.bytes,
        "seconds": interval.seconds,
        "records_per_second": interval.records_per_second(),
        "mib_per_second": interval.mib_per_second(),
        "latency_ms": {
            "counts_from": if rate.is_some() { "intended time" } else { "send" },
            "state": if rate.is_some() { "scheduled" } else { "saturated" },
            "percentiles": total.latencies.percentiles(1_000.0),
            "histogram_micros": total.latencies,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use ottla_lab::report::histogram::Latencies;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        produce: Produce,
    }

    const NEEDED: [&str; 9] = [
        "perf",
        "--topic",
        "t",
        "--num-records",
        "10",
        "--throughput",
        "-1",
        "--bootstrap-server",
        "b:1",
    ];

    fn parse(more: &[&str]) -> Result<Produce, clap::Error> {
        Line::try_parse_from(NEEDED.iter().chain(more)).map(|line| line.produce)
    }

    #[test]
    fn the_flags_are_kafkas() {
        let old = parse(&[
            "--record-size",
            "100",
            "--producer-props",
            "acks=1",
            "linger.ms=5",
            "--producer.config",
            "f",
        ]);
        let old = old.unwrap();
        assert_eq!(old.producer_props, ["acks=1", "linger.ms=5"]);
        assert_eq!((old.throughput, old.reporting_interval), (-1.0, 5_000));
        let new = parse(&[
            "--payload-monotonic",
            "--command-property",
            "acks=1",
            "--command-config",
            "f",
            "--print-metrics",
        ]);
        assert!(new.unwrap().print_metrics);
    }

    #[test]
    fn contradictions_are_refused() {
        assert!(parse(&[]).is_err());
        assert!(parse(&["--record-size", "1", "--payload-monotonic"]).is_err());
        assert!(
            parse(&[
                "--record-size",
                "1",
                "--producer-props",
                "a=1",
                "--command-property",
                "b=1"
            ])
            .is_err()
        );
        assert!(parse(&["--record-size", "0"]).is_err());
        assert!(parse(&["--record-size", "1", "--transaction-duration-ms", "0"]).is_err());
        let produce = parse(&["--record-size", "1", "--warmup-records", "10"]).unwrap();
        assert!(produce.check().is_err());
    }

    #[test]
    fn an_id_or_a_duration_means_transactions() {
        let of = |more: &[&str], set| {
            let produce = parse(&[&["--record-size", "1"], more].concat()).unwrap();
            produce.transaction(set)
        };
        let named = |id: &str, ms| Some((id.to_owned(), Duration::from_millis(ms)));
        let both = ["--transactional-id", "t", "--transaction-duration-ms", "5"];
        assert_eq!(of(&[], None), None);
        assert_eq!(of(&[], Some("set")), named("set", 3_000));
        assert_eq!(of(&both[..2], Some("set")), named("t", 3_000));
        assert_eq!(of(&both, None), named("t", 5));
        let (made_up, duration) = of(&both[2..], None).unwrap();
        assert!(made_up.starts_with("performance-producer-"), "{made_up}");
        assert_eq!(duration, Duration::from_millis(5));
    }

    #[test]
    fn lines_are_kafkas() {
        let mut latencies = Latencies::default();
        latencies.record(1_500);
        let interval = Interval {
            records: 1,
            bytes: 1 << 20,
            seconds: 0.5,
            latency_sum_micros: 1_500,
            latency_max_micros: 1_500,
        };
        assert_eq!(
            interval_line(&interval),
            "1 records sent, 2.0 records/sec (2.00 MB/sec), 1.5 ms avg latency, 1.5 ms max latency."
        );
        assert_eq!(
            total_line(&Total { interval, latencies }, " steady state"),
            "1 steady state records sent, 2.000000 records/sec (2.00 MB/sec), 1.50 ms avg latency, 1.50 ms max latency, 1 ms 50th, 1 ms 95th, 1 ms 99th, 1 ms 99.9th."
        );
    }

    #[test]
    fn saturated_stands_by_the_percentiles() {
        let json = total_json(&Total::default(), None);
        assert_eq!(json["latency_ms"]["state"], "saturated");
        assert_eq!(
            total_json(&Total::default(), Some(1.0))["latency_ms"]["counts_from"],
            "intended time"
        );
    }

    #[test]
    fn payload_files_are_split_as_java_splits_them() {
        let check = |text: &str, delimiter: &str, expected: &[&str]| {
            let expected: Vec<Vec<u8>> = expected
                .iter()
                .map(|payload| payload.as_bytes().to_vec())
                .collect();
            assert_eq!(split(text, delimiter), expected, "{text:?}");
        };
        check("a\nb\n", "\\n", &["a", "b"]);
        check("\na\n\nb", "\\n", &["a", "", "b"]);
        check("a;b", ";", &["a", "b"]);
        check("", "\\n", &[]);
    }
}
