//! Prepares a target before a point is measured: fills topics, and determines the broker's time per
//! request.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ottla_client::Error;

use super::error::BenchError;
use super::predict::Observed;
use super::target::{Access, Topics};
use crate::load::outcome::ProduceOutcome;
use crate::load::{Contents, Course, Keys, Live, Partitioning, ProduceLoad, TopicLoad, produce};
use crate::scenario::model::{Scenario, TopicSpec};
use crate::scenario::sweep::ConcretePoint;

/// Filling a topic is given up after this time.
const FILL_MAX: Duration = Duration::from_secs(600);
/// Long enough for some hundred requests to a broker on this machine, and for a handful across 72
/// ms.
const PROBE: Duration = Duration::from_millis(500);
const SMALL_BYTES: u32 = 100;
/// Below 1 MiB, the limit of max.request.size and message.max.bytes.
const LARGE_BYTES: u32 = 500_000;

/// Writes this many records into a topic, alternating over its partitions.
///
/// - Shape: `settings` are Kafka's keys, including `bootstrap.servers`; records carry stamps, so
///   that readers can check them.
/// - Errors: the topic cannot be reached, or not every record was acknowledged. A stop leaves the
///   topic partly filled.
pub fn fill(
    topic: &TopicLoad,
    records: u64,
    record_bytes: u32,
    settings: &BTreeMap<String, String>,
    stop: &Arc<AtomicBool>,
) -> Result<(), Error> {
    if records == 0 {
        return Ok(());
    }
    let mut settings = settings.clone();
    for (key, value) in [("batch.size", "131072"), ("linger.ms", "5")] {
        settings.insert(key.to_owned(), value.to_owned());
    }
    let load = ProduceLoad {
        records,
        record_bytes,
        partitioning: Partitioning::RoundRobin,
        ..load("fill", topic, settings)
    };
    let outcome = run(&load, FILL_MAX, stop)?;
    let written = outcome.acknowledged_in_all;
    if written == records || stop.load(Ordering::Relaxed) {
        return Ok(());
    }
    let first = outcome.errors.keys().next().map_or("", String::as_str);
    Err(Error::IllegalState {
        message: format!(
            "{written} of {records} records were written to {} beforehand: {first}",
            topic.name
        )
        .into(),
    })
}

/// Measures what a request costs on the broker, by sending records one at a time: small ones and
/// large ones.
///
/// - Shape: sets `broker_ms_per_request` and `broker_ms_per_mb` of `observed`. `round_trip_ms` is
///   that of the path to `bootstrap.servers` and is subtracted; the broker's time does not depend
///   on a link, so probe past it. For acks=0, which is not answered, acks=1 is measured: the broker
///   does the same work.
/// - Units: takes a second.
/// - Errors: the topic cannot be reached. If records are refused, or a busy cluster tells of its
///   topic only after the probe's time, the values stay unknown.
pub fn probe(
    topic: &TopicLoad,
    settings: &BTreeMap<String, String>,
    round_trip_ms: f64,
    stop: &Arc<AtomicBool>,
    observed: &mut Observed,
) -> Result<(), Error> {
    let mut settings = settings.clone();
    if settings.get("acks").is_some_and(|acks| acks == "0") {
        settings.insert(String::from("acks"), String::from("1"));
    }
    settings.insert(String::from("linger.ms"), String::from("0"));
    let one = TopicLoad {
        partitions: 1,
        ..topic.clone()
    };
    let median_ms = |record_bytes: u32| -> Result<Option<f64>, Error> {
        let load = ProduceLoad {
            record_bytes,
            is_synchronous: true,
            ..load("probe", &one, settings.clone())
        };
        let outcome = match run(&load, PROBE, stop) {
            // The producer was closed at the end of its time, when it still waited for metadata.
            Err(Error::Closed) => return Ok(None),
            outcome => outcome?,
        };
        Ok((outcome.service.count() > 0).then(|| outcome.service.at(50.0) as f64 / 1_000.0))
    };
    let Some(small_ms) = median_ms(SMALL_BYTES)? else {
        return Ok(());
    };
    observed.broker_ms_per_request = Some((small_ms - round_trip_ms).max(0.0));
    if let Some(large_ms) = median_ms(LARGE_BYTES)? {
        let megabytes = f64::from(LARGE_BYTES - SMALL_BYTES) / 1e6;
        observed.broker_ms_per_mb = (large_ms - small_ms).max(0.0) / megabytes;
    }
    Ok(())
}

/// Measures the cost of a request for each `acks` value of the points, on one cluster.
///
/// - Errors: the cluster cannot be reached, or refuses a topic.
pub fn probes(
    access: &Access,
    points: &[ConcretePoint],
    round_trip_ms: f64,
    stop: &Arc<AtomicBool>,
) -> Result<BTreeMap<String, Observed>, BenchError> {
    let mut found: BTreeMap<String, Observed> = points
        .iter()
        .filter_map(|point| Some((acks(&point.scenario)?, Observed::default())))
        .collect();
    let Some(first) = points.first().filter(|_| !found.is_empty()) else {
        return Ok(found);
    };
    let access = &access.at(first.scenario.security);
    let spec = TopicSpec {
        name: String::from("probe"),
        ..TopicSpec::default()
    };
    let topics = Topics::create(
        access,
        std::slice::from_ref(&spec),
        &std::process::id().to_string(),
    )?;
    let topic = topic_load(&topics, &spec)?;
    for (acks, observed) in &mut found {
        let mut settings = access_settings(access);
        settings.insert(String::from("acks"), acks.clone());
        probe(&topic, &settings, round_trip_ms, stop, observed)?;
    }
    Ok(found)
}

/// The `acks` of the first group of producers, in the notation of `probes`.
pub fn acks(scenario: &Scenario) -> Option<String> {
    let group = scenario.producers.first()?;
    let written = group.settings.get("acks").map(ToString::to_string);
    Some(match written.as_deref() {
        None | Some("-1") => String::from("all"),
        Some(acks) => acks.to_owned(),
    })
}

/// Fills every topic of a scenario that asks for it.
///
/// - Errors: those of `fill`.
pub fn fill_all(
    scenario: &Scenario,
    access: &Access,
    topics: &Topics,
    stop: &Arc<AtomicBool>,
) -> Result<(), BenchError> {
    let settings = access_settings(access);
    for spec in scenario.topics.iter().filter(|spec| spec.prefilled_records > 0) {
        let topic = topic_load(topics, spec)?;
        fill(
            &topic,
            spec.prefilled_records,
            spec.prefilled_record_bytes,
            &settings,
            stop,
        )?;
    }
    Ok(())
}

fn topic_load(topics: &Topics, spec: &TopicSpec) -> Result<TopicLoad, BenchError> {
    let name = topics.name(&spec.name);
    let name = name.ok_or_else(|| BenchError::Scenario(format!("topic {} was not created", spec.name)))?;
    Ok(TopicLoad {
        name: name.to_owned(),
        partitions: spec.partitions,
    })
}

/// Settings that bypass any link.
fn access_settings(access: &Access) -> BTreeMap<String, String> {
    let mut settings: BTreeMap<String, String> = access.settings.iter().cloned().collect();
    settings.insert(String::from("bootstrap.servers"), access.bootstrap.clone());
    settings
}

fn run(load: &ProduceLoad, duration: Duration, stop: &Arc<AtomicBool>) -> Result<ProduceOutcome, Error> {
    let course = Course {
        begin: Instant::now(),
        warmup: Duration::ZERO,
        duration,
        stop: Arc::clone(stop),
    };
    produce::run(load, &course, &Live::default())
}

fn load(name: &str, topic: &TopicLoad, settings: BTreeMap<String, String>) -> ProduceLoad {
    ProduceLoad {
        name: name.to_owned(),
        settings,
        topics: vec![topic.clone()],
        clients: 1,
        threads: 1,
        rate: None,
        records: 0,
        record_bytes: SMALL_BYTES,
        contents: Contents::Random,
        keys: Keys::None,
        partitioning: Partitioning::Client,
        is_synchronous: false,
        callback: Duration::ZERO,
        callback_threads: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::null_sink::NullSink;

    fn topic() -> TopicLoad {
        TopicLoad {
            name: String::from("t"),
            partitions: 1,
        }
    }

    fn settings(sink: &NullSink) -> BTreeMap<String, String> {
        BTreeMap::from([(String::from("bootstrap.servers"), sink.address().to_string())])
    }

    #[test]
    fn a_topic_is_filled_with_the_requested_number_of_records() {
        let sink = NullSink::start().unwrap();
        let stop = Arc::default();
        fill(&topic(), 1_001, 100, &settings(&sink), &stop).unwrap();
        assert_eq!(sink.record_count(), 1_001);
        fill(&topic(), 0, 100, &settings(&sink), &stop).unwrap();
        assert_eq!(sink.record_count(), 1_001);
    }

    #[test]
    fn the_broker_s_time_is_what_the_round_trip_does_not_explain() {
        let sink = NullSink::start().unwrap();
        let stop = Arc::default();
        let mut observed = Observed::default();
        probe(&topic(), &settings(&sink), 0.0, &stop, &mut observed).unwrap();
        assert!(observed.broker_ms_per_request.unwrap() > 0.0);
        let mut far = Observed::default();
        probe(&topic(), &settings(&sink), 1e9, &stop, &mut far).unwrap();
        assert_eq!(far.broker_ms_per_request, Some(0.0));
    }

    /// A cluster over TLS on a busy machine ended benchmarks with "the client is closed".
    #[test]
    fn a_cluster_that_is_slower_than_the_probe_leaves_its_time_unknown() {
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = silent.local_addr().unwrap().to_string();
        let settings = BTreeMap::from([(String::from("bootstrap.servers"), address)]);
        let mut observed = Observed::default();
        probe(&topic(), &settings, 0.0, &Arc::default(), &mut observed).unwrap();
        assert_eq!(observed.broker_ms_per_request, None);
    }

    #[test]
    fn the_default_of_acks_is_all() {
        let acks = |settings: &str| {
            let text = format!("topics: [{{name: t}}]\nproducers: [{{settings: {{{settings}}}}}]\n");
            super::acks(&crate::scenario::parse::parse(&text, "x.yaml").unwrap())
        };
        assert_eq!(acks("").as_deref(), Some("all"));
        assert_eq!(acks("acks: -1").as_deref(), Some("all"));
        assert_eq!(acks("acks: 1").as_deref(), Some("1"));
        assert_eq!(super::acks(&Scenario::default()), None);
    }
}
