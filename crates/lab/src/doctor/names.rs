//! The settings that the doctor uses, by Kafka's names; and the names that librdkafka and franz-go
//! have for them, with their units.

use super::calculator::quantity::Dimension;

/// The settings of a client that the doctor uses, by their Kafka names.
pub const KEYS: &[&str] = &[
    "batch.size",
    "linger.ms",
    "acks",
    "max.in.flight.requests.per.connection",
    "send.buffer.bytes",
    "max.request.size",
    "buffer.memory",
    "max.block.ms",
    "delivery.timeout.ms",
    "compression.type",
    "partitioner.class",
    "fetch.max.wait.ms",
    "fetch.min.bytes",
    "fetch.max.bytes",
    "max.partition.fetch.bytes",
    "max.poll.interval.ms",
    "max.poll.records",
    "session.timeout.ms",
    "receive.buffer.bytes",
];

/// A name, Kafka's name, and how the value is written.
struct Synonym {
    name: &'static str,
    kafka: &'static str,
    value: Written,
}

enum Written {
    /// As Kafka's.
    Same,
    Kibibytes,
    /// A Go duration: `10ms`.
    Duration,
    /// franz-go's names of its constants.
    Acks,
    Codec,
}

const fn same(name: &'static str, kafka: &'static str) -> Synonym {
    written(name, kafka, Written::Same)
}

const fn written(name: &'static str, kafka: &'static str, value: Written) -> Synonym {
    Synonym { name, kafka, value }
}

const SYNONYMS: [Synonym; 24] = [
    // librdkafka
    same("queue.buffering.max.ms", "linger.ms"),
    written("queue.buffering.max.kbytes", "buffer.memory", Written::Kibibytes),
    same("max.in.flight", "max.in.flight.requests.per.connection"),
    same("request.required.acks", "acks"),
    same("compression.codec", "compression.type"),
    same("message.timeout.ms", "delivery.timeout.ms"),
    same("message.max.bytes", "max.request.size"),
    same("socket.send.buffer.bytes", "send.buffer.bytes"),
    same("socket.receive.buffer.bytes", "receive.buffer.bytes"),
    same("fetch.wait.max.ms", "fetch.max.wait.ms"),
    same("fetch.message.max.bytes", "max.partition.fetch.bytes"),
    // franz-go
    same("ProducerBatchMaxBytes", "batch.size"),
    written("ProducerLinger", "linger.ms", Written::Duration),
    same("MaxBufferedBytes", "buffer.memory"),
    same(
        "MaxProduceRequestsInflightPerBroker",
        "max.in.flight.requests.per.connection",
    ),
    written("RequiredAcks", "acks", Written::Acks),
    written("ProducerBatchCompression", "compression.type", Written::Codec),
    written("RecordDeliveryTimeout", "delivery.timeout.ms", Written::Duration),
    same("BrokerMaxWriteBytes", "max.request.size"),
    written("FetchMaxWait", "fetch.max.wait.ms", Written::Duration),
    same("FetchMinBytes", "fetch.min.bytes"),
    same("FetchMaxBytes", "fetch.max.bytes"),
    same("FetchMaxPartitionBytes", "max.partition.fetch.bytes"),
    written("SessionTimeout", "session.timeout.ms", Written::Duration),
];

/// Every name of a setting that the doctor uses.
pub fn all() -> impl Iterator<Item = &'static str> {
    KEYS.iter()
        .copied()
        .chain(SYNONYMS.iter().map(|synonym| synonym.name))
}

pub fn is_used(name: &str) -> bool {
    all().any(|known| known == name)
}

/// The longest name that ends `left`, alone or after a dot.
pub fn longest_at_end(left: &str) -> Option<&str> {
    let name = all()
        .filter(|name| ends_with_key(left, name))
        .max_by_key(|name| name.len())?;
    Some(&left[left.len() - name.len()..])
}

pub fn ends_with_key(left: &str, key: &str) -> bool {
    left.strip_suffix(key)
        .is_some_and(|client| client.is_empty() || client.ends_with('.'))
}

/// Returns Kafka's name of the setting, and the value as Kafka writes it.
///
/// - Errors: names the setting and what it takes.
pub fn in_kafkas_words(name: &str, value: &str) -> Result<(&'static str, String), String> {
    if let Some(name) = KEYS.iter().find(|known| **known == name) {
        return Ok((name, value.to_owned()));
    }
    let Some(synonym) = SYNONYMS.iter().find(|synonym| synonym.name == name) else {
        return Ok(("", value.to_owned()));
    };
    let number = |dimension: Dimension| {
        dimension
            .parse(value)
            .map_err(|problem| format!("{name}: {problem}"))
    };
    let value = match synonym.value {
        Written::Same => value.to_owned(),
        Written::Kibibytes => {
            let kibibytes: i64 = value
                .parse()
                .map_err(|_| format!("{name}: {value} is no whole number of KiB"))?;
            kibibytes.saturating_mul(1_024).to_string()
        }
        Written::Duration => number(Dimension::Milliseconds)?.to_string(),
        Written::Acks => acks(name, value)?.to_owned(),
        Written::Codec => value.trim_end_matches("Compression").to_ascii_lowercase(),
    };
    Ok((synonym.kafka, value))
}

/// Settings that librdkafka does not know by Kafka's name.
const ONLY_OF_LIBRDKAFKA: [&str; 5] = [
    "queue.buffering.max.kbytes",
    "message.max.bytes",
    "socket.send.buffer.bytes",
    "socket.receive.buffer.bytes",
    "fetch.wait.max.ms",
];

/// Returns a setting of Kafka's, `key` or `key=value`, as librdkafka writes it.
pub fn in_librdkafkas_words(set: &str) -> String {
    let (key, value) = set.split_once('=').unwrap_or((set, ""));
    let mut only = SYNONYMS
        .iter()
        .filter(|synonym| ONLY_OF_LIBRDKAFKA.contains(&synonym.name));
    let Some(synonym) = only.find(|synonym| synonym.kafka == key) else {
        return set.to_owned();
    };
    match (&synonym.value, value.parse::<u64>()) {
        _ if value.is_empty() => synonym.name.to_owned(),
        (Written::Kibibytes, Ok(bytes)) => format!("{}={}", synonym.name, bytes.div_ceil(1_024)),
        _ => format!("{}={value}", synonym.name),
    }
}

fn acks(name: &str, value: &str) -> Result<&'static str, String> {
    match value {
        "AllISRAcks" => Ok("all"),
        "LeaderAck" => Ok("1"),
        "NoAck" => Ok("0"),
        _ => Err(format!("{name}: {value} is none of AllISRAcks, LeaderAck, NoAck")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn librdkafka_is_told_the_names_and_units_that_it_knows() {
        for (kafkas, librdkafkas) in [
            ("send.buffer.bytes=524288", "socket.send.buffer.bytes=524288"),
            ("buffer.memory=33554432", "queue.buffering.max.kbytes=32768"),
            ("fetch.max.wait.ms", "fetch.wait.max.ms"),
            ("batch.size=65536", "batch.size=65536"),
            ("linger.ms", "linger.ms"),
            ("another thread", "another thread"),
        ] {
            assert_eq!(in_librdkafkas_words(kafkas), librdkafkas);
            let (key, value) = librdkafkas.split_once('=').unwrap_or((librdkafkas, "1"));
            let (back, value) = in_kafkas_words(key, value).unwrap();
            let known = kafkas.split_once('=');
            assert!(
                back.is_empty() || known.is_none_or(|known| known == (back, &*value)),
                "{kafkas}"
            );
        }
    }

    #[test]
    fn every_synonym_is_of_a_setting_that_is_used() {
        for synonym in &SYNONYMS {
            assert!(KEYS.contains(&synonym.kafka), "{}", synonym.kafka);
            assert!(!KEYS.contains(&synonym.name), "{}", synonym.name);
        }
    }
}
