//! `ottla perf e2e`: the flags and output lines of kafka-e2e-latency.

use clap::Args;
use ottla_client::config::ClientKind;
use ottla_lab::perf::e2e::{self, EndToEndEvent, EndToEndOutcome, EndToEndPerf, HeaderShape};

use super::java::fixed;
use super::{Failure, Format, config, stop_on_signal, warn_of};

/// Send one record at a time, wait until a consumer reads it, and measure the latency
/// (kafka-e2e-latency.sh)
///
/// This is a closed loop: a record is sent only after the previous one was read, so the latency is
/// that of an idle broker and says nothing about load.
#[derive(Args)]
pub struct EndToEnd {
    /// Brokers to connect to first (bootstrap.servers)
    #[arg(long, value_name = "host:port,...")]
    bootstrap_server: Option<String>,

    /// Topic to write and read; created with one partition if missing. No other client should write
    /// to it
    #[arg(long)]
    topic: Option<String>,

    /// Number of records to send
    #[arg(long, value_name = "count")]
    num_records: Option<u64>,

    /// Acknowledgements to wait for (acks): 1 or all
    #[arg(long, value_name = "acks")]
    producer_acks: Option<String>,

    /// Size of a record's value
    #[arg(long, value_name = "bytes")]
    record_size: Option<usize>,

    /// Size of a record's key
    #[arg(long, value_name = "bytes", default_value_t = 0, num_args = 0..=1, default_missing_value = "0")]
    record_key_size: usize,

    /// Number of headers per record
    #[arg(long, value_name = "count", default_value_t = 0, num_args = 0..=1, default_missing_value = "0")]
    num_headers: usize,

    /// Size of a header's key
    #[arg(long, value_name = "bytes", default_value_t = 0, num_args = 0..=1, default_missing_value = "0")]
    record_header_key_size: usize,

    /// Size of a header's value; -1 sends a null value
    #[arg(long, value_name = "bytes", default_value_t = 0, num_args = 0..=1, default_missing_value = "0",
          allow_negative_numbers = true, value_parser = clap::value_parser!(i64).range(-1..))]
    record_header_size: i64,

    /// File with settings for the producer, the consumer and the admin client
    #[arg(long, value_name = "file")]
    command_config: Option<String>,

    /// Output: the lines of Kafka's tool, or one JSON object at the end, with progress on standard
    /// error
    #[arg(long, value_enum, default_value = "text")]
    format: Format,

    /// Deprecated form: bootstrap-server topic num-records producer-acks record-size
    /// [command-config]
    #[arg(hide = true, num_args = 0..)]
    positional: Vec<String>,
}

impl EndToEnd {
    /// Returns false if the run was interrupted.
    pub fn run(mut self) -> Result<bool, Failure> {
        self.take_positional()?;
        let perf = self.perf()?;
        let stop = stop_on_signal()?;
        let topic = perf.topic.clone();
        let outcome = e2e::run(&perf, &stop, |event| {
            match event {
            EndToEndEvent::CreatesTopic => self.print(&format!(
                "Topic \"{topic}\" does not exist. Will create topic with 1 partition(s) and replication factor = 1"
            )),
            EndToEndEvent::Record { number, nanos } => self.print(&record_line(number, nanos)),
        }
        })?;
        match self.format {
            Format::Text => result_lines(&outcome).iter().for_each(|line| self.print(line)),
            Format::Json => println!("{:#}", json(&outcome)),
        }
        Ok(!outcome.was_interrupted)
    }

    fn take_positional(&mut self) -> Result<(), Failure> {
        let is_named = self.bootstrap_server.is_some()
            || self.topic.is_some()
            || self.num_records.is_some()
            || self.producer_acks.is_some()
            || self.record_size.is_some();
        let count = self.positional.len();
        if count == 0 {
            return Ok(());
        }
        let usage = "bootstrap-server topic num-records producer-acks record-size [command-config]";
        if is_named || !(5..=6).contains(&count) {
            return Err(Failure::usage(format!(
                "{count} positional arguments; expected none or {usage}"
            )));
        }
        let mut arguments = std::mem::take(&mut self.positional).into_iter();
        self.bootstrap_server = arguments.next();
        self.topic = arguments.next();
        self.num_records = Some(number(arguments.next(), "num-records")?);
        self.producer_acks = arguments.next();
        self.record_size = Some(number(arguments.next(), "record-size")? as usize);
        self.command_config = arguments.next().or(self.command_config.take());
        self.print(&format!(
            "WARNING: Positional argument usage is deprecated and will be removed in Apache Kafka 5.0. {}",
            "Please use named arguments instead: --bootstrap-server, --topic, --num-records, --producer-acks, --record-size, --command-config"
        ));
        Ok(())
    }

    fn perf(&self) -> Result<EndToEndPerf, Failure> {
        let acks = needed(&self.producer_acks, "--producer-acks")?;
        if !["1", "all"].contains(&acks.as_str()) {
            return Err(Failure::usage(format!(
                "--producer-acks {acks}: 1 or all, so that there is an answer to wait for"
            )));
        }
        let records = needed(&self.num_records, "--num-records")?;
        if records == 0 {
            return Err(Failure::usage(String::from("--num-records must be at least 1")));
        }
        let bootstrap = needed(&self.bootstrap_server, "--bootstrap-server")?;
        let config = config(self.command_config.as_deref(), &[])?.set("bootstrap.servers", bootstrap);
        warn_of(&config, ClientKind::Admin)?;
        Ok(EndToEndPerf {
            config,
            topic: needed(&self.topic, "--topic")?,
            records,
            acks,
            value_bytes: needed(&self.record_size, "--record-size")?,
            key_bytes: self.record_key_size,
            headers: HeaderShape {
                count: self.num_headers,
                key_bytes: self.record_header_key_size,
                value_bytes: usize::try_from(self.record_header_size).ok(),
            },
        })
    }

    fn print(&self, line: &str) {
        super::print(self.format, line);
    }
}

fn needed<T: Clone>(value: &Option<T>, name: &str) -> Result<T, Failure> {
    value
        .clone()
        .ok_or_else(|| Failure::usage(format!("{name} is needed")))
}

fn number(text: Option<String>, name: &str) -> Result<u64, Failure> {
    let text = text.unwrap_or_default();
    text.parse()
        .map_err(|_| Failure::usage(format!("{name}: {text:?} is not a number")))
}

fn record_line(number: u64, nanos: u64) -> String {
    format!("{number}\t{:?}", nanos as f64 / 1_000.0 / 1_000.0)
}

fn result_lines(outcome: &EndToEndOutcome) -> [String; 2] {
    let at = |percentile: f64| outcome.latencies.at(percentile) / 1_000;
    [
        format!("Avg latency: {} ms", fixed(outcome.mean_ms(), 4)),
        format!(
            "Percentiles: 50th = {}, 99th = {}, 99.9th = {}",
            at(50.0),
            at(99.0),
            at(99.9)
        ),
    ]
}

fn json(outcome: &EndToEndOutcome) -> serde_json::Value {
    serde_json::json!({
        "tool": "e2e",
        "records": outcome.records,
        "was_interrupted": outcome.was_interrupted,
        "mean_ms": outcome.mean_ms(),
        "latency_ms": {
            "counts_from": "send",
            "state": "one record at a time",
            "percentiles": outcome.latencies.percentiles(1_000.0),
            "histogram_micros": outcome.latencies,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        e2e: EndToEnd,
    }

    fn parse(arguments: &[&str]) -> EndToEnd {
        Line::try_parse_from(["perf"].iter().chain(arguments))
            .unwrap()
            .e2e
    }

    #[test]
    fn positional_arguments_mean_the_same_as_named_ones() {
        let mut old = parse(&["b:1", "t", "1000", "all", "512"]);
        old.take_positional().unwrap();
        let new = parse(&[
            "--bootstrap-server",
            "b:1",
            "--topic",
            "t",
            "--num-records",
            "1000",
            "--producer-acks",
            "all",
            "--record-size",
            "512",
        ]);
        let (old, new) = (old.perf().unwrap(), new.perf().unwrap());
        assert_eq!(
            (old.topic, old.records, old.acks, old.value_bytes),
            (new.topic, new.records, new.acks, new.value_bytes)
        );
    }

    #[test]
    fn what_cannot_be_measured_is_refused() {
        assert!(parse(&["b:1", "t", "1000"]).take_positional().is_err());
        assert!(
            parse(&["b:1", "t", "many", "all", "512"])
                .take_positional()
                .is_err()
        );
        let mut unanswered = parse(&["b:1", "t", "1000", "0", "512"]);
        unanswered.take_positional().unwrap();
        assert!(unanswered.perf().is_err());
    }

    #[test]
    fn lines_are_kafkas() {
        let mut outcome = EndToEndOutcome {
            records: 2,
            nanos_in_all: 5_000_000,
            ..EndToEndOutcome::default()
        };
        outcome.latencies.record(1_999);
        outcome.latencies.record(3_001);
        assert_eq!(record_line(1_000, 2_500_000), "1000\t2.5");
        assert_eq!(record_line(0, 3_000_000), "0\t3.0");
        assert_eq!(
            result_lines(&outcome),
            [
                "Avg latency: 2.5000 ms",
                "Percentiles: 50th = 1, 99th = 3, 99.9th = 3"
            ]
        );
    }
}
