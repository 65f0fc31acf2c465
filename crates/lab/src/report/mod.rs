//! The result of running a scenario: the report as a value. Its JSON is stable;
//! `docs/guides/bench-report.md` describes it.

pub mod histogram;
pub mod label;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize, Serializer};

use histogram::Latencies;

/// Changes when a reader of the JSON would have to change.
pub const SCHEMA: &str = "ottla.bench.report/1";

/// A whole report.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// `SCHEMA`.
    pub schema: String,
    /// To the scenario's question. Missing in older reports.
    #[serde(default)]
    pub answer: Option<Answer>,
    pub scenario: ScenarioHead,
    pub verdict: Verdict,
    pub manifest: Manifest,
    /// The generator's capacity against a broker that stores nothing.
    pub calibration: Vec<Calibration>,
    pub points: Vec<Point>,
    /// A signal ended it: the remaining points were not measured.
    pub was_interrupted: bool,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ScenarioHead {
    pub name: String,
    /// The question that the run answers.
    pub question: String,
    /// The document that the experiment is taken from, if any.
    pub source: Option<String>,
}

/// One sentence, from the measured figures; `bench::answer` makes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// Otherwise the sentence says why there is no answer.
    pub is_answered: bool,
    pub sentence: String,
}

/// VALID or INVALID, with every reason that makes it invalid and every caveat that does not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// Empty if valid.
    pub reasons: Vec<String>,
    /// What a reader must know even so: loopback, a sync that is not a disk's, saturated.
    pub caveats: Vec<String>,
}

impl Verdict {
    pub fn is_valid(&self) -> bool {
        self.reasons.is_empty()
    }

    pub fn word(&self) -> &'static str {
        if self.is_valid() { "VALID" } else { "INVALID" }
    }
}

/// Everything needed to reproduce the run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Manifest {
    /// The exact command.
    pub command: String,
    /// Seconds since the epoch.
    pub started_at: u64,
    pub ottla_version: String,
    /// Commit of the build, with `-dirty` if it had local changes.
    pub commit: Option<String>,
    pub machine: Machine,
    /// One target, or those that are compared.
    pub targets: Vec<Target>,
    /// The scenario that was run, after `--scale` and `--set`, as YAML.
    pub scenario_text: String,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Machine {
    pub kernel: String,
    pub processor: String,
    pub processors: u32,
    pub memory_bytes: u64,
    pub governor: Option<String>,
    pub load_average: [f64; 3],
    /// Share of all processors that was busy in the second before the run.
    pub busy_before: f64,
    pub filesystem: String,
    /// For the data directory, or for the working directory if the broker is elsewhere.
    pub sync_micros: Percentiles,
    /// One byte there and back over the loopback; for a remote broker the time of a `connect`,
    /// which is one round trip.
    pub network_round_trip_micros: Percentiles,
}

/// The cluster that is measured.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Target {
    /// `Ottla 0.1.0, embedded`, `Apache Kafka 4.3 (by its API versions)`.
    pub name: String,
    pub bootstrap: String,
    pub brokers: u32,
    pub is_loopback: bool,
    pub is_embedded: bool,
    /// acks, replicas, min.insync.replicas, and when an acknowledged record is on the disk.
    pub durability: String,
}

/// The generator's results against a sink that answers without storing.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Calibration {
    pub record_bytes: u32,
    pub records_per_second: f64,
    pub cpu_seconds_per_million: f64,
    /// p99 of how late records were sent at `scheduled_rate`.
    pub schedule_error_p99_micros: f64,
    pub scheduled_rate: f64,
}

/// One combination of the swept settings.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Point {
    /// What distinguishes it from other points: `I`, `linger.ms=5`.
    pub name: String,
    /// Only the swept settings.
    pub settings: BTreeMap<String, String>,
    /// The numbers that the source reported, at its size.
    pub source: BTreeMap<String, f64>,
    /// The source's own verdict.
    pub diagnosis: Option<String>,
    /// One per target, in the order of `Manifest::targets`; measured in turn, round by round.
    pub on: Vec<OnTarget>,
}

/// The results of a point on one broker.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct OnTarget {
    pub prediction: Option<Prediction>,
    /// One per round.
    pub measurements: Vec<Measurement>,
    pub verdict: Verdict,
    /// The scenario's expectations, and whether they held.
    pub expectations: Vec<Expectation>,
}

impl OnTarget {
    /// The median of every figure.
    pub fn figures(&self) -> BTreeMap<String, f64> {
        self.measurements
            .iter()
            .flat_map(|measurement| measurement.figures.keys())
            .filter_map(|name| Some((name.clone(), self.figure(name)?)))
            .collect()
    }

    /// The median over the rounds; `None` if no round has the figure.
    pub fn figure(&self, name: &str) -> Option<f64> {
        let mut values: Vec<f64> = self
            .measurements
            .iter()
            .filter_map(|measurement| measurement.figures.get(name).copied())
            .collect();
        values.sort_by(f64::total_cmp);
        let middle = values.len() / 2;
        match values.len() {
            0 => None,
            count if count % 2 == 1 => Some(values[middle]),
            _ => Some((values[middle - 1] + values[middle]) / 2.0),
        }
    }
}

/// A formula's predicted numbers; keys are those of `Measurement::figures`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Prediction {
    pub figures: BTreeMap<String, Range>,
    /// The formula with its numbers filled in, one line each.
    pub arithmetic: Vec<String>,
    /// The ceiling that decides, as one of the doctor's verdicts: `NETWORK_RTT`, `KEEPS_UP`...
    pub limit: Option<String>,
}

/// `low == high` where a formula gives a single number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Range {
    pub low: f64,
    pub high: f64,
}

impl Range {
    pub fn exactly(value: f64) -> Range {
        Range {
            low: value,
            high: value,
        }
    }

    /// How far `measured` lies outside, in percent of the nearer bound; 0 inside. Positive: more
    /// was measured.
    pub fn error_percent(&self, measured: f64) -> f64 {
        let nearest = measured.clamp(self.low, self.high);
        if nearest == 0.0 {
            0.0
        } else {
            100.0 * (measured - nearest) / nearest
        }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Expectation {
    pub text: String,
    pub measured: f64,
    pub holds: bool,
}

/// One run of one point. The warm-up is separate: `warmup_seconds` passed before anything here was
/// counted.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Measurement {
    pub seconds: f64,
    pub warmup_seconds: f64,
    /// Every number that may be predicted, compared or expected, by name: `records_per_second`,
    /// `mib_per_second`, `latency_p99_ms`, `send_micros`, `requests_per_second`, `queue_ms`,
    /// `request_latency_ms`, `batch_bytes`...
    #[serde(serialize_with = "finite")]
    pub figures: BTreeMap<String, f64>,
    pub producers: Vec<GroupResult>,
    pub consumers: Vec<GroupResult>,
    /// Groups of bare requests: `records` are answers, `clients` connections. Missing in older
    /// reports.
    #[serde(default)]
    pub requests: Vec<GroupResult>,
    /// From the intended time of a record to its arrival at a consumer.
    pub end_to_end: Option<LatencyResult>,
    pub stages: Option<Stages>,
    pub processes: Vec<ProcessResult>,
    pub integrity: Integrity,
    pub generator: GeneratorCheck,
    pub drift: Drift,
    /// One entry per second of the measured part.
    pub timeline: Vec<Second>,
    pub verdict: Verdict,
}

/// A group of producers or consumers of the scenario.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct GroupResult {
    pub name: String,
    pub clients: u32,
    pub threads: u32,
    pub records: u64,
    /// Bytes of keys and values.
    pub bytes: u64,
    pub records_per_second: f64,
    pub errors: u64,
    /// By text, at most the first few kinds.
    pub error_kinds: BTreeMap<String, u64>,
    pub retries: u64,
    /// From the intended time; `None` without a schedule, where it would be a queue's length.
    pub latency: Option<LatencyResult>,
    /// From the actual send; never used in place of `latency`.
    pub service: Option<LatencyResult>,
    /// Without a rate: latencies are those of a full queue.
    pub is_saturated: bool,
    /// By Kafka's metric names, mean over the group's clients, of the measured part.
    #[serde(serialize_with = "finite")]
    pub metrics: BTreeMap<String, f64>,
}

/// JSON cannot represent the mean of nothing: numbers that are not finite are left out.
fn finite<S: Serializer>(numbers: &BTreeMap<String, f64>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(numbers.iter().filter(|(_, number)| number.is_finite()))
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LatencyResult {
    pub percentiles: Percentiles,
    /// Not clipped, in microseconds: an HDR histogram, V2 in base64.
    pub histogram: Latencies,
}

/// In the unit that the field's name gives; `max` is exact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Percentiles {
    pub p50: f64,
    pub p95: f64,
    pub p99: f64,
    pub p99_9: f64,
    pub max: f64,
    pub mean: f64,
    pub count: u64,
}

/// Where the time of a record is spent: produce, publish, commit, catch-up, fetch.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Stages {
    /// In order; stages that a broker does not tell apart share one name: `publish + commit`.
    pub names: Vec<String>,
    /// Means of the records around each percentile: percentiles of stages do not add up, means do.
    pub slowest: Vec<StageMeans>,
    /// What was merged, and why.
    pub notes: Vec<String>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct StageMeans {
    /// 50 for the median records, 99 for the slowest hundredth.
    pub percentile: f64,
    pub end_to_end_ms: f64,
    /// In the order of `Stages::names`; they add up to `end_to_end_ms`.
    pub means_ms: Vec<f64>,
}

/// A process, or the threads of this process with one role (`broker`, `generator`).
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ProcessResult {
    pub name: String,
    pub cpu_seconds: f64,
    pub cpu_seconds_per_million: f64,
    /// `None` for threads, which share their process's memory.
    pub peak_memory_bytes: Option<u64>,
    /// From and to the storage layer; `None`: it may not be read.
    pub read_bytes: Option<u64>,
    pub written_bytes: Option<u64>,
    /// Only where the process has the machine's loopback or network to itself.
    pub network_bytes: Option<u64>,
}

/// Whether sent = acknowledged = received, checked by what the records carry.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Integrity {
    pub sent: u64,
    pub acknowledged: u64,
    pub failed: u64,
    /// `None`: there were no readers.
    pub received: Option<u64>,
    pub lost: u64,
    pub duplicated: u64,
    pub disordered: u64,
}

/// Whether the generator was the limit.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct GeneratorCheck {
    /// How late records were sent, in microseconds.
    pub schedule_error: Option<LatencyResult>,
    /// The busiest sending thread's share of a processor.
    pub busiest_thread: f64,
    /// Seconds that sending threads waited for buffer memory.
    pub buffer_wait_seconds: f64,
    /// Reached rate over calibrated rate.
    pub share_of_calibration: f64,
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Drift {
    /// Change of the rate over the run, in percent of its mean (least squares).
    pub slope_percent: f64,
    /// Rate of the last third over that of the first.
    pub last_to_first: f64,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Second {
    /// Seconds since the measured part began.
    pub at: f64,
    pub sent: u64,
    pub acknowledged: u64,
    pub received: u64,
    /// Of the records acknowledged in this second, from their intended time.
    pub latency_p50_ms: f64,
    pub latency_p99_ms: f64,
    pub latency_max_ms: f64,
    /// Share of all processors, by process name.
    pub cpu: BTreeMap<String, f64>,
    pub memory_bytes: BTreeMap<String, u64>,
    pub disk_written_bytes: u64,
    pub network_bytes: u64,
}
