//! A recommended change, as far as it is one setting: `batch.size=32768`.

use super::super::names::in_kafkas_words;
use super::super::snapshot::{Codec, Origin, Setting, Settings};
use crate::numbers::plain;

/// One setting and its new value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    pub key: String,
    pub value: String,
}

/// The setting that a change is about, as it is known of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    pub value: String,
    pub origin: Origin,
    /// It has the value of the change.
    pub agrees: bool,
}

impl Change {
    /// Reads `key=value`, in Kafka's words or in a library's; advice in words is no setting.
    pub fn parse(set: &str) -> Option<Change> {
        let (key, value) = set.trim().split_once('=')?;
        let is_key = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '.';
        let is_value = |letter: char| letter.is_ascii_alphanumeric() || "-._".contains(letter);
        let is_whole = !key.is_empty()
            && !value.is_empty()
            && key.starts_with(|letter: char| letter.is_ascii_lowercase())
            && key.chars().all(is_key)
            && value.chars().all(is_value);
        let (kafkas, in_kafkas) = in_kafkas_words(key, value).ok()?;
        let (key, value) = match kafkas {
            "" => (key, value.to_owned()),
            key => (key, in_kafkas),
        };
        is_whole.then(|| Change {
            key: key.to_owned(),
            value,
        })
    }

    pub fn number(&self) -> Option<f64> {
        self.value.parse().ok().filter(|value: &f64| value.is_finite())
    }

    /// The client's own value, where it is stated or was seen on the wire: a guess proves nothing.
    pub fn known(&self, settings: &Settings) -> Option<Known> {
        let known = match self.key.as_str() {
            "compression.type" => {
                let name = settings.compression?;
                self.text(codec(name.value), name.origin)
            }
            "acks" => {
                let acks = settings.acks?;
                let wanted = match self.value.as_str() {
                    "all" => "-1",
                    value => value,
                };
                Known {
                    value: acks.value.to_string(),
                    origin: acks.origin,
                    agrees: acks.value.to_string() == wanted,
                }
            }
            key => {
                let setting = numeric(key, settings)?;
                Known {
                    value: plain(setting.value),
                    origin: setting.origin,
                    agrees: self
                        .number()
                        .is_some_and(|wanted| (wanted - setting.value).abs() < 0.5),
                }
            }
        };
        known.origin.is_known().then_some(known)
    }

    fn text(&self, value: &str, origin: Origin) -> Known {
        Known {
            value: value.to_owned(),
            origin,
            agrees: value == self.value,
        }
    }
}

fn codec(codec: Codec) -> &'static str {
    match codec {
        Codec::None => "none",
        Codec::Gzip => "gzip",
        Codec::Snappy => "snappy",
        Codec::Lz4 => "lz4",
        Codec::Zstd => "zstd",
    }
}

fn numeric(key: &str, settings: &Settings) -> Option<Setting<f64>> {
    match key {
        "batch.size" => settings.batch_bytes,
        "linger.ms" => settings.linger_ms,
        "max.in.flight.requests.per.connection" => settings.in_flight,
        "send.buffer.bytes" => settings.send_buffer_bytes,
        "receive.buffer.bytes" => settings.receive_buffer_bytes,
        "max.request.size" => settings.max_request_bytes,
        "buffer.memory" => settings.buffer_bytes,
        "max.block.ms" => settings.max_block_ms,
        "delivery.timeout.ms" => settings.delivery_timeout_ms,
        "fetch.max.wait.ms" => settings.fetch_max_wait_ms,
        "fetch.min.bytes" => settings.fetch_min_bytes,
        "fetch.max.bytes" => settings.fetch_max_bytes,
        "max.partition.fetch.bytes" => settings.max_partition_fetch_bytes,
        "max.poll.interval.ms" => settings.max_poll_interval_ms,
        "max.poll.records" => settings.max_poll_records,
        "session.timeout.ms" => settings.session_timeout_ms,
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_in_words_is_no_setting() {
        let change = Change::parse("batch.size=32768").unwrap();
        assert_eq!(
            (change.key.as_str(), change.number()),
            ("batch.size", Some(32_768.0))
        );
        assert_eq!(Change::parse("compression.type=zstd").unwrap().value, "zstd");
        for words in [
            "",
            "=5",
            "batch.size=",
            "hand the callback's work over to another thread",
            "threads=5, each with partitions of its own",
            "compression.type=producer on the topic",
            "fewer, larger requests: linger.ms and batch.size; then a larger request quota",
        ] {
            assert_eq!(Change::parse(words), None, "{words}");
        }
    }

    #[test]
    fn a_guess_is_not_a_known_setting() {
        let change = Change::parse("batch.size=32768").unwrap();
        let known = |value, origin| {
            change.known(&Settings {
                batch_bytes: Some(Setting { value, origin }),
                ..Settings::default()
            })
        };
        assert_eq!(known(32_768.0, Origin::Inferred), None);
        assert_eq!(known(32_768.0, Origin::Default), None);
        assert!(known(32_768.0, Origin::Stated).unwrap().agrees);
        assert!(!known(16_384.0, Origin::Seen).unwrap().agrees);
    }

    #[test]
    fn codecs_and_acks_are_compared_by_name() {
        let settings = Settings {
            compression: Some(Setting {
                value: Codec::Zstd,
                origin: Origin::Seen,
            }),
            acks: Some(Setting {
                value: -1,
                origin: Origin::Seen,
            }),
            ..Settings::default()
        };
        let agrees = |set: &str| Change::parse(set).unwrap().known(&settings).unwrap().agrees;
        assert!(agrees("compression.type=zstd") && !agrees("compression.type=lz4"));
        assert!(agrees("acks=all") && agrees("acks=-1") && !agrees("acks=1"));
    }
}
