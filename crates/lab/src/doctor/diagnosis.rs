//! The doctor's diagnosis of one client: the stable, versioned form that commands print and other
//! programs read.

use std::borrow::Cow;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::snapshot::Snapshot;
use super::used::UsedNumbers;
use crate::numbers::number;

/// Version of the JSON; it changes when a field is removed or changes its meaning.
pub const VERSION: u32 = 1;

/// Words of a rule that are mostly the same for every client: they are not copied for each.
pub type Words = Cow<'static, str>;

/// The diagnoses of all clients at one time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Examination {
    pub version: u32,
    /// Milliseconds since 1970.
    pub at_ms: i64,
    /// Shared with the collector, which keeps a verdict until something changes.
    pub clients: Vec<Arc<Diagnosis>>,
    /// Missing where the clients are from files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<Seen>,
}

impl Examination {
    pub fn of<C: Into<Arc<Diagnosis>>>(at_ms: i64, clients: Vec<C>) -> Examination {
        Examination {
            version: VERSION,
            at_ms,
            clients: clients.into_iter().map(C::into).collect(),
            seen: None,
        }
    }
}

/// How much of the clients is visible: who pushes nothing is judged by what brokers saw.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Seen {
    pub clients: u64,
    /// Clients that pushed metrics in their window.
    pub pushing: u64,
    /// Connections of these clients, as brokers count them; missing where no broker does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connections: Option<u64>,
}

impl Seen {
    pub fn of(snapshot: &Snapshot) -> Seen {
        let connections = snapshot.brokers.iter().filter_map(|side| side.connections);
        Seen {
            clients: 1,
            pushing: u64::from(snapshot.telemetry.pushes.is_some_and(|pushes| pushes > 0)),
            connections: connections.reduce(|one, other| one + other).map(|sum| sum as u64),
        }
    }

    pub fn add(&mut self, other: &Seen) {
        self.clients += other.clients;
        self.pushing += other.pushing;
        let both = self.connections.into_iter().chain(other.connections);
        self.connections = both.reduce(|one, other| one + other);
    }
}

/// One client's verdict with everything that led to it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Diagnosis {
    pub client_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_id: Option<String>,
    pub role: super::snapshot::Role,
    pub verdict: Verdict,
    pub confidence: Confidence,
    /// One sentence for people: the verdict with its decisive number.
    pub summary: String,
    /// Where the time of a record, or of one iteration of a consumer's loop, goes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub time: Vec<super::time::TimeShare>,
    /// Findings of section "Findings" of the manual: the bottleneck's own first, then contributing
    /// causes.
    pub findings: Vec<Finding>,
    pub evidence: Vec<Evidence>,
    pub recommendation: Option<Recommendation>,
    pub refused: Vec<Refusal>,
    /// What is missing for certainty, in words.
    pub missing: Vec<String>,
    /// The questions that were asked, in order, with the numbers that they used: what
    /// `explain` prints.
    pub reasoning: Vec<Step>,
    /// Remarks that change nothing: inferred settings, doubts, consistency checks.
    pub notes: Vec<String>,
}

/// The bottleneck. The JSON uses the same names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Verdict {
    #[default]
    NotEnoughData,
    Denied,
    Quota,
    Failing,
    Skew,
    Host,
    // producers
    SenderThread,
    SenderRate,
    NetworkRtt,
    NetworkWindow,
    NetworkBandwidth,
    Broker,
    Worker,
    Application,
    Synchronous,
    SmallRequests,
    // consumers
    Rebalancing,
    Processing,
    FetchWait,
    FetchSize,
    ColdRead,
    Transaction,
    CatchingUp,
    // both
    KeepsUp,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Confidence {
    #[default]
    Low,
    Medium,
    High,
}

/// One finding: `N2`, `E1`, `B7`, ...
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    pub id: FindingId,
    /// A sentence with the numbers of this client.
    pub text: String,
    /// It is not the bottleneck itself.
    pub is_contributing: bool,
}

/// The findings of the manual.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum FindingId {
    W1,
    W2,
    W3,
    N1,
    N2,
    N3,
    N4,
    N5,
    N6,
    E1,
    E2,
    E3,
    E4,
    E5,
    B1,
    B2,
    B3,
    B4,
    B5,
    B6,
    B7,
    Q1,
    T1,
    C1,
    C2,
    C3,
    O1,
    O2,
    A1,
    X1,
}

/// One line of arithmetic: `R_max = 1000 / L * M * N = 1000 / 9.8 * 5 * 3 = 1531 requests/s`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    /// `F8`, or the name of a comparison.
    pub formula: Words,
    /// The formula in symbols: `1000 / L * M * N`.
    pub expression: Words,
    pub symbols: Vec<Symbol>,
    /// The symbol of the result: `R_max`.
    pub name: Words,
    pub result: f64,
    pub unit: Words,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Symbol {
    pub name: Words,
    pub value: f64,
    pub unit: Words,
    /// Measured, stated, inferred or default.
    pub origin: Words,
}

/// The one recommended change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Recommendation {
    /// `batch.size=32768`; an action in words where no setting does it.
    pub set: String,
    pub why: String,
    pub promise: Promise,
    /// The next limit, with its number.
    pub next_ceiling: String,
    /// What the change costs or risks (order, durability, memory); empty if nothing.
    pub cost: String,
}

/// The promised effect, always at unchanged latency unless `assumption` says otherwise.
///
/// A promise can fail: its range lies wholly on the better side of `now`, and is no wider than a
/// factor of two. Where that cannot be said, `unknown` tells what is not known, and the range is
/// only what is possible.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Promise {
    /// The quantity that is promised: `records_per_second`, `sender_latency_ms`,
    /// `requests_per_second`, ...
    pub figure: String,
    pub now: Option<f64>,
    pub low: f64,
    pub high: f64,
    pub unit: String,
    pub assumption: String,
    /// What is not known, where the effect cannot be promised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unknown: Option<String>,
}

impl Promise {
    /// `100,000 to 166,000`, or what is not known.
    pub fn range(&self) -> String {
        let (low, high) = (number(self.low), number(self.high));
        match &self.unknown {
            Some(what) => format!("not known: {what}"),
            None if low == high => low,
            None => format!("{low} to {high}"),
        }
    }
}

/// A change that would not help.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Refusal {
    /// `linger.ms`, `send.buffer.bytes`, `max.in.flight.requests.per.connection`, `partitions`, ...
    pub set: Words,
    pub why: Words,
}

/// One step of the decision tree.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// `producer 8`; `consumer 5`.
    pub rule: Words,
    pub question: Words,
    pub numbers: UsedNumbers,
    pub answer: Words,
}
