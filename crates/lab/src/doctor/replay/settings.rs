//! The settings that a case's owner states, of the client and of its load.

use serde_json::{Map, Value};

use super::super::snapshot::{Application, Codec, Origin, Partitioner, Setting, Settings};
use super::ReplayError;
use super::field::number_in;

/// Their path in the document.
const PATH: &str = "settings";

type Stated = Map<String, Value>;

/// Reads settings by their Kafka names; keys that the doctor does not use are ignored.
pub fn settings(stated: &Stated) -> Result<Settings, ReplayError> {
    let first = |names: &[&str]| -> Result<Option<Setting<f64>>, ReplayError> {
        for name in names {
            if let Some(value) = number_in(stated, PATH, name)? {
                return Ok(Some(stated_as(value)));
            }
        }
        Ok(None)
    };
    let number = |name: &str| first(&[name]);
    Ok(Settings {
        batch_bytes: number("batch.size")?,
        linger_ms: number("linger.ms")?,
        acks: acks(stated)?,
        in_flight: number("max.in.flight.requests.per.connection")?,
        send_buffer_bytes: number("send.buffer.bytes")?.filter(|bytes| bytes.value > 0.0),
        max_request_bytes: number("max.request.size")?,
        buffer_bytes: number("buffer.memory")?,
        max_block_ms: number("max.block.ms")?,
        delivery_timeout_ms: number("delivery.timeout.ms")?,
        compression: codec(stated, "compression.type"),
        partitioner: partitioner(stated).map(stated_as),
        topic_compression: codec(stated, "topic.compression.type"),
        replication_factor: first(&["replication.factor", "bench.replication", "bench.rf"])?,
        fetch_max_wait_ms: number("fetch.max.wait.ms")?,
        fetch_min_bytes: number("fetch.min.bytes")?,
        fetch_max_bytes: number("fetch.max.bytes")?,
        max_partition_fetch_bytes: number("max.partition.fetch.bytes")?,
        max_poll_interval_ms: number("max.poll.interval.ms")?,
        max_poll_records: number("max.poll.records")?,
        session_timeout_ms: number("session.timeout.ms")?,
        receive_buffer_bytes: number("receive.buffer.bytes")?,
        retention_ms: number("retention.ms")?,
    })
}

/// The requested load: threads, records per second.
pub fn load(stated: &Stated) -> Result<Application, ReplayError> {
    let mut offered = None;
    for name in ["bench.rate", "throughput"] {
        offered = offered.or(number_in(stated, PATH, name)?);
    }
    Ok(Application {
        threads: number_in(stated, PATH, "bench.threads")?.filter(|threads| *threads > 0.0),
        // -1 means "without a limit".
        offered_records_per_second: offered.filter(|rate| *rate > 0.0),
        ..Application::default()
    })
}

/// How far averages reach back, where the sample windows are stated.
pub fn samples_seconds(stated: &Stated) -> Result<Option<f64>, ReplayError> {
    const SAMPLES: f64 = 2.0;
    let window_ms = number_in(stated, PATH, "metrics.sample.window.ms")?;
    let samples = number_in(stated, PATH, "metrics.num.samples")?.unwrap_or(SAMPLES);
    Ok(window_ms.map(|window_ms| window_ms * samples / 1000.0))
}

fn stated_as<T>(value: T) -> Setting<T> {
    Setting {
        value,
        origin: Origin::Stated,
    }
}

fn acks(stated: &Stated) -> Result<Option<Setting<i16>>, ReplayError> {
    if stated.get("acks").and_then(Value::as_str) == Some("all") {
        return Ok(Some(stated_as(-1)));
    }
    Ok(number_in(stated, PATH, "acks")?.map(|acks| stated_as(acks as i16)))
}

fn codec(stated: &Stated, name: &str) -> Option<Setting<Codec>> {
    codec_named(stated.get(name)?.as_str()?).map(stated_as)
}

/// Also returns `None` for `producer`, the topic's setting for keeping the producer's codec.
pub fn codec_named(name: &str) -> Option<Codec> {
    match name.to_ascii_lowercase().as_str() {
        "none" | "uncompressed" => Some(Codec::None),
        "gzip" => Some(Codec::Gzip),
        "snappy" => Some(Codec::Snappy),
        "lz4" => Some(Codec::Lz4),
        "zstd" => Some(Codec::Zstd),
        _ => None,
    }
}

fn partitioner(stated: &Stated) -> Option<Partitioner> {
    let is_on =
        |value: &Value| !matches!(value, Value::Null | Value::Bool(false)) && value.as_f64() != Some(0.0);
    for (key, value) in stated.iter().filter(|(_, value)| is_on(value)) {
        let key = key.to_ascii_lowercase();
        let text = value.as_str().unwrap_or_default().to_ascii_lowercase();
        if key == "partitioner.class" && text.contains("roundrobin") {
            return Some(Partitioner::RoundRobin);
        }
        if key == "partitioner.class" && text.contains("sticky") {
            return Some(Partitioner::Sticky);
        }
        if key.starts_with("bench.")
            && key.contains("part")
            && (key.contains("own") || key.contains("perthread"))
        {
            return Some(Partitioner::PerThread);
        }
        if key == "bench.keyed" || key == "bench.keys" {
            return Some(Partitioner::Keyed);
        }
    }
    None
}
