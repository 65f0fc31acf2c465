//! A scenario as a value. Field names are the keys of the YAML; `docs/guides/scenarios.md`
//! describes them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Scenario {
    pub name: String,
    /// Ends with a question mark.
    pub question: String,
    /// The document that the experiment is taken from.
    pub source: Option<String>,
    pub topics: Vec<TopicSpec>,
    pub producers: Vec<ProducerSpec>,
    pub consumers: Vec<ConsumerSpec>,
    /// Connections that send bare requests, without a client library: floods, storms, bursts.
    pub requests: Vec<RequestSpec>,
    /// Between all clients and the broker; `None`: no link.
    pub link: Option<LinkSpec>,
    /// The broker's disk, if the broker runs on this machine; `None`: unchanged.
    pub disk: Option<DiskSpec>,
    /// Settings of the embedded broker; with `--bootstrap-server` the report names them as not
    /// applied.
    pub broker: BTreeMap<String, String>,
    /// How clients reach the embedded broker; a cluster of `--bootstrap-server` is reached as
    /// `--command-config` says.
    pub security: Security,
    pub warmup_seconds: f64,
    pub duration_seconds: f64,
    /// How often every point is run, in turn.
    pub rounds: u32,
    pub scale: Option<Scale>,
    /// Every combination of these values is a point.
    pub sweep: BTreeMap<String, Vec<Scalar>>,
    /// Named points, with what the source reported; instead of `sweep` or in addition.
    pub points: Vec<PointSpec>,
    /// Sentences such as `latency_p99_ms < 20` or `lost == 0`.
    pub expect: Vec<String>,
}

/// What lies between clients and the embedded broker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Security {
    #[default]
    Plaintext,
    /// TLS; the broker alone shows a certificate.
    Ssl,
    /// TLS, and clients authenticate with a password.
    SaslSsl,
    /// TLS, and clients show a certificate too.
    Mtls,
}

/// The numbers of the file are those of the source; this scales them to a small machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scale {
    /// The factor without `--scale`; 1 is the source's size.
    pub default: f64,
    /// Paths whose values are multiplied: `producers.load.rate`.
    pub of: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TopicSpec {
    pub name: String,
    pub partitions: u32,
    /// −1: the broker's default.
    pub replication_factor: i16,
    pub settings: BTreeMap<String, Scalar>,
    /// Records written before anything is measured, for scenarios that only read.
    pub prefilled_records: u64,
    pub prefilled_record_bytes: u32,
    /// Its files are dropped from the page cache before the clients begin; only where the broker
    /// runs on this machine.
    pub cold: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ProducerSpec {
    pub name: String,
    /// Names of `topics`; empty: all.
    pub topics: Vec<String>,
    pub clients: u32,
    pub threads: u32,
    /// Records per second of the whole group; if absent, as fast as possible.
    pub rate: Option<f64>,
    /// The scenario is meant to show a rate that cannot be sustained: falling behind the schedule
    /// then does not make the measurement invalid.
    pub may_fall_behind: bool,
    pub records: u64,
    pub record_bytes: u32,
    /// `random`, `json`, `letters` or `file:PATH`.
    pub contents: String,
    /// `none`, `sequential:N` or `random:N`.
    pub keys: String,
    /// `client`, `round-robin` or `own`.
    pub partitioning: String,
    pub synchronous: bool,
    pub callback_micros: u64,
    /// The number of threads that callbacks hand their work to; 0: the callback does it itself.
    pub callback_threads: u32,
    pub settings: BTreeMap<String, Scalar>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ConsumerSpec {
    pub name: String,
    pub topics: Vec<String>,
    pub clients: u32,
    pub rate: Option<f64>,
    pub from_beginning: bool,
    /// A neighbour, whose threads run only when no other client's thread wants to.
    pub gives_way: bool,
    pub settings: BTreeMap<String, Scalar>,
}

/// Connections of one client id, or of many, that send the same small request again and again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RequestSpec {
    /// The prefix of the client ids.
    pub name: String,
    /// Names of `topics`; empty: all.
    pub topics: Vec<String>,
    /// `produce`, `metadata` or `api-versions`.
    pub api: String,
    /// The size of the value of the one record in a produce request, which is sent with acks=1.
    pub record_bytes: u32,
    pub connections: u32,
    /// The maximum number of unanswered requests on each connection.
    pub in_flight: u32,
    /// The number of different client ids, used in turn, connection by connection.
    pub client_ids: u32,
    /// Requests per second of the whole group; if absent, as fast as they are answered.
    pub rate: Option<f64>,
    /// All requests of an interval of this length are due at its start; 0: evenly.
    pub burst_every_ms: u64,
    /// Every request has its own connection, which is closed after the answer.
    pub reconnect: bool,
}

/// The link between clients and broker; 0 and absent: no limit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LinkSpec {
    pub round_trip_ms: f64,
    /// Bandwidth of all connections together, in each direction.
    pub bytes_per_second: u64,
    /// For each connection: the most bytes under way that were not taken in at the other end.
    pub window_bytes: u64,
    /// At this interval nothing passes...
    pub stall_every_ms: u64,
    /// ...for this long.
    pub stall_ms: u64,
}

/// Limits on the broker's disk; 0 and absent: no limit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DiskSpec {
    /// For reads that miss the page cache; by a control group, where the system allows it.
    pub read_bytes_per_second: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PointSpec {
    pub name: String,
    /// Groups that do not take part.
    pub without: Vec<String>,
    /// By path: `producers.load.settings.batch.size`, `topics.t.partitions`, `link.round_trip_ms`.
    /// `none` removes a rate.
    pub set: BTreeMap<String, Scalar>,
    /// What the source reported, by the names of `Measurement::figures`.
    pub reported: BTreeMap<String, f64>,
    /// The verdict that the rules give, for the report.
    pub diagnosis: Option<String>,
    /// In addition to those of the scenario.
    pub expect: Vec<String>,
}

/// A YAML scalar: a number, a text or a boolean.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Scalar {
    Truth(bool),
    Whole(i64),
    Number(f64),
    Text(String),
}

impl Scalar {
    /// Parses a value from behind `=` on a command line, as YAML would.
    pub fn from_text(text: &str) -> Scalar {
        match (text.parse(), text.parse(), text.parse::<f64>()) {
            (Ok(truth), _, _) => Scalar::Truth(truth),
            (_, Ok(whole), _) => Scalar::Whole(whole),
            (_, _, Ok(number)) if number.is_finite() => Scalar::Number(number),
            _ => Scalar::Text(text.to_owned()),
        }
    }
}

impl std::fmt::Display for Scalar {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Scalar::Truth(value) => value.fmt(f),
            Scalar::Whole(value) => value.fmt(f),
            Scalar::Number(value) => value.fmt(f),
            Scalar::Text(value) => f.write_str(value),
        }
    }
}

impl Default for Scenario {
    fn default() -> Scenario {
        Scenario {
            name: String::new(),
            question: String::new(),
            source: None,
            topics: Vec::new(),
            producers: Vec::new(),
            consumers: Vec::new(),
            requests: Vec::new(),
            link: None,
            disk: None,
            broker: BTreeMap::new(),
            security: Security::Plaintext,
            warmup_seconds: 2.0,
            duration_seconds: 10.0,
            rounds: 1,
            scale: None,
            sweep: BTreeMap::new(),
            points: Vec::new(),
            expect: Vec::new(),
        }
    }
}

impl Default for TopicSpec {
    fn default() -> TopicSpec {
        TopicSpec {
            name: String::new(),
            partitions: 1,
            replication_factor: -1,
            settings: BTreeMap::new(),
            prefilled_records: 0,
            prefilled_record_bytes: 256,
            cold: false,
        }
    }
}

impl Default for ProducerSpec {
    fn default() -> ProducerSpec {
        ProducerSpec {
            name: String::from("load"),
            topics: Vec::new(),
            clients: 1,
            threads: 1,
            rate: None,
            may_fall_behind: false,
            records: 0,
            record_bytes: 256,
            contents: String::from("random"),
            keys: String::from("none"),
            partitioning: String::from("client"),
            synchronous: false,
            callback_micros: 0,
            callback_threads: 0,
            settings: BTreeMap::new(),
        }
    }
}

impl Default for ConsumerSpec {
    fn default() -> ConsumerSpec {
        ConsumerSpec {
            name: String::from("readers"),
            topics: Vec::new(),
            clients: 1,
            rate: None,
            from_beginning: false,
            gives_way: false,
            settings: BTreeMap::new(),
        }
    }
}

impl Default for RequestSpec {
    fn default() -> RequestSpec {
        RequestSpec {
            name: String::from("requests"),
            topics: Vec::new(),
            api: String::from("produce"),
            record_bytes: 32,
            connections: 1,
            in_flight: 1,
            client_ids: 1,
            rate: None,
            burst_every_ms: 0,
            reconnect: false,
        }
    }
}
