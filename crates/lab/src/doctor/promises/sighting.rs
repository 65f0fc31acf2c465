//! One client at one examination: what the ledger reads of its snapshot and its diagnosis.

use super::super::diagnosis::{Diagnosis, Promise, Verdict};
use super::super::snapshot::{Host, Role, Settings, Snapshot};
use super::change::Change;
use super::figures::{Figures, busiest_host};
use super::range::can_fail;

/// Longer texts are cut: client ids come from the network.
const TEXT_BYTES_MAX: usize = 255;

/// The same for the sentence of a verdict.
const SENTENCE_BYTES_MAX: usize = 600;

/// A client as it is recognised after a restart. Where several clients have the same name, their
/// addresses tell them apart.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name {
    pub client_id: String,
    pub principal: String,
    pub role: Role,
}

/// One client instance, and when it started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Incarnation {
    pub instance_id: Option<String>,
    pub started_ms: Option<i64>,
}

impl Incarnation {
    /// Whether `other` is certainly another process, or the same client after a restart.
    pub fn is_other(&self, other: &Incarnation) -> bool {
        let differ =
            |one: Option<i64>, other: Option<i64>| one.zip(other).is_some_and(|(one, other)| one != other);
        let has_ids = self.instance_id.is_some() && other.instance_id.is_some();
        (has_ids && self.instance_id != other.instance_id) || differ(self.started_ms, other.started_ms)
    }
}

/// What the diagnosis recommends, where it is one setting with a promise that can fail.
#[derive(Clone, Debug, PartialEq)]
pub struct Offer {
    pub change: Change,
    pub promise: Promise,
    /// The setting's value when it was recommended, where that was known.
    pub value_before: Option<String>,
}

/// What was promised to a client, and its numbers at that time.
#[derive(Clone, Debug, PartialEq)]
pub struct Terms {
    pub offer: Offer,
    pub before: Figures,
    pub verdict: Verdict,
    pub made_ms: i64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Sighting {
    pub name: Name,
    pub host: Option<String>,
    pub incarnation: Incarnation,
    /// When its last push arrived; `None`: it pushes nothing.
    pub heard_ms: Option<i64>,
    /// The instance restarted within the window.
    pub is_restarted: bool,
    /// It said that it ends; its last numbers are still listed.
    pub has_ended: bool,
    pub figures: Figures,
    pub settings: Settings,
    /// A machine without a processor left, its own or a broker's.
    pub exhausted: Option<Host>,
    pub verdict: Verdict,
    /// Whether the verdict is that nothing limits the client.
    pub is_well: bool,
    pub sentence: String,
    pub offer: Option<Offer>,
}

impl Sighting {
    pub fn of(snapshot: &Snapshot, diagnosis: &Diagnosis) -> Sighting {
        let client = &snapshot.client;
        let telemetry = &snapshot.telemetry;
        let figures = Figures::of(snapshot);
        let pushes = telemetry.pushes.is_some_and(|pushes| pushes > 0);
        Sighting {
            name: Name {
                client_id: text(&client.client_id),
                principal: text(client.principal.as_deref().unwrap_or_default()),
                role: client.role,
            },
            host: client.host().map(text),
            incarnation: Incarnation {
                instance_id: client.instance_id.as_deref().map(text),
                started_ms: telemetry.started_ms,
            },
            heard_ms: telemetry.heard_ms,
            is_restarted: telemetry.restarted,
            has_ended: pushes
                && telemetry.push_interval_ms.is_some()
                && telemetry.seconds_until_next_push.is_none(),
            figures,
            settings: snapshot.settings.clone(),
            exhausted: busiest_host(snapshot),
            verdict: diagnosis.verdict,
            is_well: matches!(diagnosis.verdict, Verdict::KeepsUp | Verdict::Application),
            sentence: cut(&diagnosis.summary, SENTENCE_BYTES_MAX).to_owned(),
            offer: offer(snapshot, &figures, diagnosis),
        }
    }

    /// What would be promised by this examination.
    pub fn terms(&self, at_ms: i64) -> Option<Terms> {
        Some(Terms {
            offer: self.offer.clone()?,
            before: self.figures,
            verdict: self.verdict,
            made_ms: at_ms,
        })
    }
}

fn offer(snapshot: &Snapshot, figures: &Figures, diagnosis: &Diagnosis) -> Option<Offer> {
    let advice = diagnosis.recommendation.as_ref()?;
    let change = Change::parse(&text(&advice.set))?;
    let known = change.known(&snapshot.settings);
    let is_set_already = known.as_ref().is_some_and(|known| known.agrees);
    let promise = &advice.promise;
    // A figure that no window shows could not be measured after the change either.
    let is_measured = figures.named(&promise.figure).is_some();
    if is_set_already || !is_measured || !can_fail(promise) {
        return None;
    }
    Some(Offer {
        change,
        promise: Promise {
            figure: text(&promise.figure),
            unit: text(&promise.unit),
            assumption: text(&promise.assumption),
            ..promise.clone()
        },
        value_before: known.map(|known| known.value),
    })
}

fn text(text: &str) -> String {
    cut(text, TEXT_BYTES_MAX).to_owned()
}

fn cut(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}
