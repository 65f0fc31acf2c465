//! `ottla perf consume`: the flags and output lines of kafka-consumer-perf-test.

use std::time::Duration;

use clap::{ArgGroup, Args};
use ottla_client::config::{ClientKind, Config};
use ottla_lab::load::contents::Noise;
use ottla_lab::perf::consume::{self, ConsumeInterval, ConsumePerf, ConsumePerfOutcome, Topics};

use super::java::{DateFormat, fixed};
use super::{Failure, Format, config, metrics_json, metrics_text, stop_on_signal, warn_of};

const MIB: f64 = 1_048_576.0;

/// Read records as one member of a consumer group and measure the rate
/// (kafka-consumer-perf-test.sh)
#[derive(Args)]
#[command(group(ArgGroup::new("topics").required(true).args(["topic", "include"])))]
#[command(group(ArgGroup::new("count").required(true).args(["num_records", "messages"])))]
#[command(group(ArgGroup::new("file").args(["command_config", "consumer_config"])))]
pub struct Consume {
    /// Brokers to connect to first (bootstrap.servers)
    #[arg(long, value_name = "host:port,...")]
    bootstrap_server: String,

    /// Topic to read
    #[arg(long)]
    topic: Option<String>,

    /// Read every topic whose whole name matches this regular expression
    #[arg(long, value_name = "regex")]
    include: Option<String>,

    /// Number of records to read
    #[arg(long, value_name = "count")]
    num_records: Option<u64>,

    /// Deprecated name of --num-records
    #[arg(long, value_name = "count")]
    messages: Option<u64>,

    /// Consumer group (group.id) [default: perf-consumer- and a random number]
    #[arg(long, value_name = "group")]
    group: Option<String>,

    /// Maximum bytes of one partition in one fetch response (max.partition.fetch.bytes)
    #[arg(long, value_name = "bytes", default_value_t = 1 << 20)]
    fetch_size: u32,

    /// A consumer setting; overrides the file; may be repeated
    #[arg(long, value_name = "name=value")]
    command_property: Vec<String>,

    /// File with consumer settings
    #[arg(long, value_name = "file")]
    command_config: Option<String>,

    /// Deprecated name of --command-config
    #[arg(long = "consumer.config", value_name = "file")]
    consumer_config: Option<String>,

    /// Start at the end of partitions without a committed offset (auto.offset.reset=latest), not at
    /// their beginning
    #[arg(long)]
    from_latest: bool,

    /// Size of the TCP receive buffer (receive.buffer.bytes)
    #[arg(long, value_name = "bytes", default_value_t = 2 << 20)]
    socket_buffer_size: u32,

    /// Print the consumer's metrics at the end
    #[arg(long)]
    print_metrics: bool,

    /// Print one line per --reporting-interval instead of one line at the end
    #[arg(long)]
    show_detailed_stats: bool,

    /// Exit when no record has arrived for this long
    #[arg(long, value_name = "ms", default_value_t = 10_000, num_args = 0..=1, default_missing_value = "10000")]
    timeout: u64,

    /// Time between the lines of --show-detailed-stats
    #[arg(long, value_name = "ms", default_value_t = 5_000, value_parser = clap::value_parser!(u64).range(1..))]
    reporting_interval: u64,

    /// Format of times, as in java.text.SimpleDateFormat
    #[arg(long, value_name = "pattern", default_value = "yyyy-MM-dd HH:mm:ss:SSS")]
    date_format: String,

    /// Omit the line with the column names
    #[arg(long)]
    hide_header: bool,

    /// Output: the lines of Kafka's tool, or one JSON object at the end, with progress on standard
    /// error
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

impl Consume {
    /// Returns false if the run was interrupted.
    pub fn run(self) -> Result<bool, Failure> {
        let dates = DateFormat::parse(&self.date_format).map_err(Failure::usage)?;
        if self.messages.is_some() {
            self.print("Warning: --messages is deprecated. Use --num-records instead.");
        }
        if self.consumer_config.is_some() {
            self.print("Warning: --consumer.config is deprecated. Use --command-config instead.");
        }
        let perf = self.perf()?;
        let stop = stop_on_signal()?;
        if !self.hide_header && self.format == Format::Text {
            self.print(header(self.show_detailed_stats));
        }
        let outcome = consume::run(&perf, &stop, |interval| {
            if self.show_detailed_stats {
                self.print(&interval_line(&interval, &dates));
            }
        })?;
        if outcome.has_timed_out {
            let timeout_ms = self.timeout;
            self.print(&format!(
                "WARNING: Exiting before consuming the expected number of records: timeout ({timeout_ms} ms) exceeded. You can use the --timeout option to increase the timeout."
            ));
        }
        match self.format {
            Format::Text => {
                if !self.show_detailed_stats {
                    self.print(&total_line(&outcome, &dates));
                }
                if self.print_metrics {
                    self.print(&metrics_text(&outcome.metrics));
                }
            }
            Format::Json => println!("{:#}", self.json(&outcome)),
        }
        Ok(!outcome.was_interrupted)
    }

    fn perf(&self) -> Result<ConsumePerf, Failure> {
        let config = self.config()?;
        warn_of(&config, ClientKind::Consumer)?;
        let topics = match (&self.topic, &self.include) {
            (Some(topic), _) => Topics::Named(topic.clone()),
            (None, Some(pattern)) => Topics::Matching(pattern.clone()),
            (None, None) => return Err(Failure::usage(String::from("--topic or --include is needed"))),
        };
        Ok(ConsumePerf {
            config,
            topics,
            records: self.num_records.or(self.messages).unwrap_or(0),
            timeout: Duration::from_millis(self.timeout),
            reporting_interval: Duration::from_millis(self.reporting_interval),
        })
    }

    fn config(&self) -> Result<Config, Failure> {
        let file = self.consumer_config.as_deref().or(self.command_config.as_deref());
        let mut config = config(file, &self.command_property)?;
        if config.get("client.id").is_none() {
            config = config.set("client.id", "perf-consumer-client");
        }
        let group = match &self.group {
            Some(group) => group.clone(),
            None => format!("perf-consumer-{}", Noise::fresh().below(100_000)),
        };
        Ok(config
            .set("bootstrap.servers", &self.bootstrap_server)
            .set("group.id", group)
            .set("receive.buffer.bytes", self.socket_buffer_size)
            .set("max.partition.fetch.bytes", self.fetch_size)
            .set(
                "auto.offset.reset",
                if self.from_latest { "latest" } else { "earliest" },
            )
            .set("check.crcs", "false"))
    }

    fn print(&self, line: &str) {
        super::print(self.format, line);
    }

    fn json(&self, outcome: &ConsumePerfOutcome) -> serde_json::Value {
        let fetching = outcome.seconds - outcome.rebalance.as_secs_f64();
        let mib = outcome.bytes as f64 / MIB;
        let mut json = serde_json::json!({
            "tool": "consume",
            "records": outcome.records,
            "bytes": outcome.bytes,
            "seconds": outcome.seconds,
            "records_per_second": outcome.records as f64 / outcome.seconds,
            "mib_per_second": mib / outcome.seconds,
            "rebalance_seconds": outcome.rebalance.as_secs_f64(),
            "fetch_seconds": fetching,
            "fetch_records_per_second": outcome.records as f64 / fetching,
            "fetch_mib_per_second": mib / fetching,
            "has_timed_out": outcome.has_timed_out,
            "was_interrupted": outcome.was_interrupted,
        });
        if self.print_metrics {
            json["metrics"] = metrics_json(&outcome.metrics);
        }
        json
    }
}

fn header(is_detailed: bool) -> &'static str {
    match is_detailed {
        false => {
            "start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"
        }
        true => {
            "time, threadId, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"
        }
    }
}

fn total_line(outcome: &ConsumePerfOutcome, dates: &DateFormat) -> String {
    let mib = outcome.bytes as f64 / MIB;
    let rebalance_ms = outcome.rebalance.as_millis();
    let fetch_ms = (outcome.seconds * 1_000.0) as i128 - rebalance_ms.cast_signed();
    let fetch_seconds = fetch_ms as f64 / 1_000.0;
    [
        dates.format(outcome.start),
        dates.format(outcome.end),
        fixed(mib, 4),
        fixed(mib / outcome.seconds, 4),
        outcome.records.to_string(),
        fixed(outcome.records as f64 / outcome.seconds, 4),
        rebalance_ms.to_string(),
        fetch_ms.to_string(),
        fixed(mib / fetch_seconds, 4),
        fixed(outcome.records as f64 / fetch_seconds, 4),
    ]
    .join(", ")
}

fn interval_line(interval: &ConsumeInterval, dates: &DateFormat) -> String {
    // Kafka's tool has one thread, with id 0.
    const THREAD: u32 = 0;
    let mib = interval.bytes as f64 / MIB;
    let rebalance_ms = interval.rebalance.as_millis();
    let fetch_ms = (interval.seconds * 1_000.0) as i128 - rebalance_ms.cast_signed();
    let per_second = |count: f64| match fetch_ms {
        ..=0 => 0.0,
        _ => 1_000.0 * count / fetch_ms as f64,
    };
    [
        dates.format(interval.end),
        THREAD.to_string(),
        fixed(interval.bytes_in_all as f64 / MIB, 4),
        fixed(mib / interval.seconds, 4),
        interval.records_in_all.to_string(),
        fixed(interval.records as f64 / interval.seconds, 4),
        rebalance_ms.to_string(),
        fetch_ms.to_string(),
        fixed(per_second(mib), 4),
        fixed(per_second(interval.records as f64), 4),
    ]
    .join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use std::time::SystemTime;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        consume: Consume,
    }

    fn parse(arguments: &[&str]) -> Result<Consume, clap::Error> {
        let needed = ["perf", "--bootstrap-server", "b:1"];
        Line::try_parse_from(needed.iter().chain(arguments)).map(|line| line.consume)
    }

    #[test]
    fn the_flags_are_kafkas() {
        let consume = parse(&[
            "--topic",
            "t",
            "--messages",
            "5",
            "--timeout",
            "--from-latest",
            "--fetch-size",
            "9",
        ])
        .unwrap();
        assert_eq!((consume.messages, consume.timeout), (Some(5), 10_000));
        let config = consume.config().unwrap();
        assert_eq!(config.get("auto.offset.reset"), Some("latest"));
        assert_eq!(config.get("max.partition.fetch.bytes"), Some("9"));
        assert!(config.get("group.id").unwrap().starts_with("perf-consumer-"));
    }

    #[test]
    fn contradictions_are_refused() {
        assert!(parse(&["--topic", "t"]).is_err());
        assert!(parse(&["--num-records", "5"]).is_err());
        assert!(parse(&["--topic", "t", "--include", "t", "--num-records", "5"]).is_err());
        assert!(parse(&["--topic", "t", "--num-records", "5", "--messages", "5"]).is_err());
    }

    #[test]
    fn lines_have_as_many_columns_as_the_header() {
        let dates = DateFormat::parse("HH:mm:ss:SSS").unwrap();
        let interval = ConsumeInterval {
            end: SystemTime::UNIX_EPOCH,
            seconds: 2.0,
            records_in_all: 30,
            bytes_in_all: 3 << 20,
            records: 20,
            bytes: 2 << 20,
            rebalance: Duration::from_secs(1),
        };
        let line = interval_line(&interval, &dates);
        assert!(
            line.ends_with(", 0, 3.0000, 1.0000, 30, 10.0000, 1000, 1000, 2.0000, 20.0000"),
            "{line}"
        );
        assert_eq!(line.split(", ").count(), header(true).split(", ").count());
        let outcome = ConsumePerfOutcome {
            start: SystemTime::UNIX_EPOCH,
            end: SystemTime::UNIX_EPOCH,
            seconds: 2.0,
            records: 20,
            bytes: 2 << 20,
            rebalance: Duration::from_secs(1),
            has_timed_out: false,
            was_interrupted: false,
            metrics: Vec::new(),
        };
        let line = total_line(&outcome, &dates);
        assert!(
            line.ends_with(", 2.0000, 1.0000, 20, 10.0000, 1000, 1000, 2.0000, 20.0000"),
            "{line}"
        );
        assert_eq!(line.split(", ").count(), header(false).split(", ").count());
    }
}
