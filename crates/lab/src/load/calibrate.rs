//! Measures what the generator can do alone: without that, it is unknown whether a measurement is
//! of the broker or of the generator.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use ottla_client::Error;
use rustix::time::{ClockId, clock_gettime};

use super::null_sink::NullSink;
use super::outcome::ProduceOutcome;
use super::{Contents, Course, Keys, Live, Partitioning, ProduceLoad, TopicLoad, produce};
use crate::report::Calibration;

const WARMUP: Duration = Duration::from_millis(500);
const DURATION: Duration = Duration::from_millis(1_500);

/// Measures one producer with one thread against an endpoint in this process that stores nothing:
/// at full speed and, if there is one, at a scheduled rate. Takes two seconds each.
///
/// - Shape: `settings` are those of the producers to be measured; the broker's address and security
///   settings are ignored.
/// - Units: `record_bytes` of the value, at least those of a stamp; `scheduled_rate` in records per
///   second.
/// - Errors: invalid settings; no socket or thread available.
pub fn calibrate(
    record_bytes: u32,
    settings: &BTreeMap<String, String>,
    scheduled_rate: Option<f64>,
) -> Result<Calibration, Error> {
    let sink = NullSink::start().map_err(|error| Error::IllegalState {
        message: format!("no endpoint for the calibration: {error}").into(),
    })?;
    let load = load(record_bytes, settings, &sink);
    let before = generator_cpu_nanos(&sink);
    let full = run(&load)?;
    let cpu_nanos = generator_cpu_nanos(&sink).saturating_sub(before) as f64;
    let mut calibration = Calibration {
        record_bytes,
        records_per_second: full.acknowledged as f64 / full.seconds.max(f64::MIN_POSITIVE),
        // The warm-up took its share of both.
        cpu_seconds_per_million: cpu_nanos / 1e3 / (full.acknowledged_in_all as f64).max(1.0),
        ..Calibration::default()
    };
    if let Some(rate) = scheduled_rate {
        let held = run(&ProduceLoad {
            rate: Some(rate),
            ..load
        })?;
        calibration.scheduled_rate = rate;
        calibration.schedule_error_p99_micros = held.schedule_error.at(99.0) as f64;
    }
    Ok(calibration)
}

fn load(record_bytes: u32, settings: &BTreeMap<String, String>, sink: &NullSink) -> ProduceLoad {
    let is_of_the_broker = |key: &str| {
        let address = ["bootstrap.servers", "client.dns.lookup", "security.protocol"];
        address.contains(&key) || key.starts_with("ssl.") || key.starts_with("sasl.")
    };
    let mut settings = settings.clone();
    settings.retain(|key, _| !is_of_the_broker(key));
    settings.insert(String::from("bootstrap.servers"), sink.address().to_string());
    ProduceLoad {
        name: String::from("calibration"),
        settings,
        topics: vec![TopicLoad {
            name: String::from("calibration"),
            partitions: 1,
        }],
        clients: 1,
        threads: 1,
        rate: None,
        records: 0,
        record_bytes,
        contents: Contents::Random,
        keys: Keys::None,
        partitioning: Partitioning::Client,
        is_synchronous: false,
        callback: Duration::ZERO,
        callback_threads: 0,
    }
}

fn run(load: &ProduceLoad) -> Result<ProduceOutcome, Error> {
    let course = Course {
        begin: Instant::now(),
        warmup: WARMUP,
        duration: DURATION,
        stop: Arc::new(AtomicBool::new(false)),
    };
    produce::run(load, &course, &Live::default())
}

/// Processor time of this process, excluding the endpoint.
fn generator_cpu_nanos(sink: &NullSink) -> u64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let process = time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned();
    process.saturating_sub(sink.cpu_nanos())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_calibration_has_all_its_numbers() {
        let settings = BTreeMap::from([
            (String::from("linger.ms"), String::from("1")),
            // Concerns a broker, which is not used here.
            (String::from("security.protocol"), String::from("SSL")),
        ]);
        let calibration = calibrate(100, &settings, Some(1_000.0)).unwrap();
        assert_eq!(calibration.record_bytes, 100);
        assert!(calibration.records_per_second > 0.0);
        assert!(calibration.cpu_seconds_per_million > 0.0);
        assert_eq!(calibration.scheduled_rate, 1_000.0);
    }

    #[test]
    fn wrong_settings_are_reported() {
        let settings = BTreeMap::from([(String::from("acks"), String::from("perhaps"))]);
        assert!(calibrate(100, &settings, None).is_err());
    }
}
