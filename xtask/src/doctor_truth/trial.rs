//! One regime on one broker with one client: the doctor's verdict, then what its change and what
//! the true remedy bring.

use std::cell::Cell;
use std::ops::RangeInclusive;
use std::time::Instant;

use anyhow::Result;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::feed::Feeder;
use super::load::{Load, Second, mean, merged};
use super::regimes::{Around, Figure, Pairs, Regime, Remedy, Way};
use super::stage::Stage;
use crate::interop::clients::{Client, Clients};
use crate::interop::server::{Programs, Target};
use ottla_lab::machine::host::HostCounts;
use ottla_lab::machine::others::{OTHERS_MAX, Others};
use ottla_lab::numbers::percent;

/// Seconds before the doctor is asked for the first time, and at most.
const FIRST_ASKED: usize = 15;
const LAST_ASKED: usize = 75;
/// At most, about one of which it cannot know more later.
const UNKNOWABLE_ASKED: usize = 40;
/// Seconds before it is asked about one that a transaction holds: it tells ordinary ones apart by
/// their length.
const HELD_ASKED: usize = 45;
/// Seconds before it is asked about a client that is starting.
const STARTED: usize = 3;
/// A verdict counts when it was given at two moments this far apart.
const STABLE_SECONDS: usize = 6;
/// Seconds of a measurement that are left out, and those that count.
const WARM_UP: usize = 6;
const MEASURED: usize = 10;
/// Above this share of waiting for a processor, clients that run side by side are judged by what
/// they leave each other.
const WAITED_MAX: f64 = 0.6;
/// The true remedy must gain this much, or the construction did not hold.
const GAIN: f64 = 1.1;
/// A promise is kept when the measurement is in its range, give or take this share.
const TOLERANCE: f64 = 0.15;
/// The verdict of a client that the doctor does not name.
const NOT_LISTED: &str = "NOT_LISTED";
/// The verdict of a doctor that does not say why it has no metrics, or what would tell.
const UNEXPLAINED: &str = "UNEXPLAINED";
/// What it says where the broker takes none.
const TAKES_NO_METRICS: &str = "does not take metrics";
/// The highest figure of a promise is at most this many times its lowest.
const WIDEST: f64 = 2.0;

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Row {
    pub commit: String,
    pub regime: String,
    pub construction: String,
    pub broker: String,
    pub client: String,
    pub is_healthy: bool,
    pub truth: Vec<String>,
    pub verdict: String,
    pub confidence: String,
    pub summary: String,
    /// The recommended change.
    pub advice: Option<String>,
    pub promise: Option<Promise>,
    /// The true remedy's settings that the doctor called useless.
    pub false_refusals: Vec<String>,
    /// Records per second, or milliseconds.
    pub unit: String,
    pub first: f64,
    pub advised: Option<f64>,
    pub remedied: Option<f64>,
    /// Whether the advised change gained as much as the true remedy must; `None`: it was not tried.
    #[serde(default)]
    pub has_helped: Option<bool>,
    /// What was measured of the promised figure after the advised change.
    pub promised_figure: Option<f64>,
    /// Records per second that the client offers, which no change can exceed.
    #[serde(default)]
    pub offered: Option<f64>,
    /// The largest share of all processors' time that processes outside the run used, of the phases
    /// of this row; `None`: not known.
    #[serde(default)]
    pub others: Option<f64>,
    /// The largest share of time in which something that could run waited for a processor (PSI), of
    /// the phases of a row that is measured side by side with others.
    #[serde(default)]
    pub waited: Option<f64>,
    /// All that the doctor said, for those who look into the row.
    #[serde(default)]
    pub diagnosis: Value,
    /// Why the row says nothing about the doctor.
    pub invalid: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Promise {
    pub figure: String,
    pub low: f64,
    pub high: f64,
    pub unknown: Option<String>,
}

impl Promise {
    /// A range so wide that hardly a measurement is outside says nothing; it is no promise that was
    /// kept.
    pub fn is_empty(&self) -> bool {
        self.high > WIDEST * self.low
    }

    fn tolerated(&self) -> RangeInclusive<f64> {
        self.low * (1.0 - TOLERANCE)..=self.high * (1.0 + TOLERANCE)
    }
}

impl Row {
    pub fn key(&self) -> (String, String, String) {
        (self.regime.clone(), self.broker.clone(), self.client.clone())
    }

    pub fn is_right(&self) -> bool {
        self.truth.contains(&self.verdict) && !self.is_false_alarm()
    }

    pub fn is_false_alarm(&self) -> bool {
        self.is_healthy && self.advice.is_some()
    }

    /// Processes outside the run used much of the processors, or it is not known, or the rows that
    /// were measured at the same time left each other too little.
    pub fn is_disturbed(&self) -> bool {
        self.others.is_none_or(|share| share > OTHERS_MAX) || self.is_starved()
    }

    fn is_starved(&self) -> bool {
        self.waited.is_some_and(|share| share > WAITED_MAX)
    }

    /// Nothing is gained by measuring it again.
    pub fn is_final(&self) -> bool {
        self.invalid.is_none() && !self.is_disturbed()
    }

    /// The promise that was made and what was measured of it.
    fn tried(&self) -> Option<(&Promise, f64)> {
        let promise = self.promise.as_ref()?;
        promise
            .unknown
            .is_none()
            .then_some(promise)
            .zip(self.promised_figure)
    }

    /// Whether a promise was kept; `None`: none was made, or it was not tried.
    pub fn is_promise_kept(&self) -> Option<bool> {
        let (promise, measured) = self.tried().filter(|_| !self.is_above_offer())?;
        Some(!promise.is_empty() && promise.tolerated().contains(&measured))
    }

    /// A client that offers less than was promised, and carries all of it, does not try it.
    pub fn is_above_offer(&self) -> bool {
        self.tried().is_some_and(|(promise, measured)| {
            let is_all = promise.figure == "records_per_second"
                && self.offered.is_some_and(|offered| measured >= 0.97 * offered);
            is_all && !promise.is_empty() && measured < *promise.tolerated().start()
        })
    }

    /// How far a promise that counts is from the measurement, as a share of it: from the nearer end
    /// of its range.
    pub fn promise_error(&self) -> Option<f64> {
        self.is_promise_kept()?;
        let (promise, measured) = self.tried()?;
        let distance = (promise.low - measured).max(measured - promise.high).max(0.0);
        Some(if distance > 0.0 { distance / measured } else { 0.0 })
    }

    pub fn line(&self) -> String {
        let word = match &self.invalid {
            Some(why) => format!("INVALID ({why})"),
            None if self.is_right() => "right".to_owned(),
            None => format!("WRONG, is {}", self.truth.join(" or ")),
        };
        let beside = match self.others {
            Some(share) => format!("others used {}", percent(share)),
            None => "not known what others used".to_owned(),
        };
        let waited = self
            .waited
            .map_or_else(String::new, |share| format!(", waited {}", percent(share)));
        let mark = if self.is_disturbed() { "DISTURBED: " } else { "" };
        format!(
            "{} {} {}: {} ({}) {word}; {mark}{beside}{waited}; advice {:?}, promise {:?}; {:.0} -> advised {:?} / remedy {:?} {}; refused falsely {:?}",
            self.broker,
            self.regime,
            self.client,
            self.verdict,
            self.confidence,
            self.advice,
            self.promise.as_ref().map(|promise| (
                promise.low.round(),
                promise.high.round(),
                &promise.unknown
            )),
            self.first,
            self.advised.map(f64::round),
            self.remedied.map(f64::round),
            self.unit,
            self.false_refusals,
        )
    }
}

/// Everything that a client's run needs to know.
struct Trial<'a> {
    stage: &'a Stage,
    clients: &'a Clients,
    programs: &'a Programs,
    regime: &'a Regime,
    client: Client,
    topic: String,
    others: Cell<Option<f64>>,
    waited: Cell<Option<f64>>,
}

pub fn run(
    stage: &mut Stage,
    clients: &Clients,
    programs: &Programs,
    regime: &Regime,
    client: Client,
    commit: &str,
) -> Row {
    let mut row = Row {
        commit: commit.to_owned(),
        regime: regime.name.to_owned(),
        construction: regime.construction.to_owned(),
        broker: broker(stage.target).to_owned(),
        client: client.name().to_owned(),
        is_healthy: regime.remedy.is_none(),
        truth: regime.truth(stage.target, client),
        unit: match regime.figure {
            Figure::Rate => "records/s".to_owned(),
            Figure::Latency => "ms".to_owned(),
        },
        offered: offered(regime),
        ..Row::default()
    };
    let trial = Trial {
        stage,
        clients,
        programs,
        regime,
        client,
        topic: format!("{}-{}", regime.name, client.name()),
        others: Cell::new(None),
        waited: Cell::new(None),
    };
    if let Err(error) = trial.fill(&mut row) {
        row.invalid = Some(format!("{error:#}").replace('\n', " "));
    }
    row.others = trial.others.get();
    row.waited = trial.waited.get().filter(|_| !regime.needs_the_machine());
    stage.delete_topic(&trial.topic);
    row
}

pub fn broker(target: Target) -> &'static str {
    match target {
        Target::Ottla => "ottla",
        Target::Kafka => "kafka",
    }
}

/// The key of the row that `run` gives.
pub fn key(regime: &Regime, target: Target, client: Client) -> (String, String, String) {
    (
        regime.name.to_owned(),
        broker(target).to_owned(),
        client.name().to_owned(),
    )
}

fn offered(regime: &Regime) -> Option<f64> {
    let rate = regime.set.iter().find(|(key, _)| *key == "load.rate");
    match regime.feed {
        // What is stored can be read as fast as it goes.
        Some(feed) if feed.stored > 0 => None,
        Some(feed) => Some(f64::from(feed.records_per_second)),
        None => rate?.1.parse().ok(),
    }
}

impl Trial<'_> {
    fn fill(&self, row: &mut Row) -> Result<()> {
        self.stage.create_topic(&self.topic, self.regime.partitions)?;
        let feeder = self
            .regime
            .feed
            .map(|feed| Feeder::start(&self.stage.local(), &self.topic, self.regime.partitions, feed))
            .transpose()?;
        let (diagnosis, seconds) = self.beside(|| self.diagnosed())?;
        let first = mean(&seconds);
        row.first = self.figure(&first);
        self.note(row, &diagnosis);
        if let Some(remedy) = &self.regime.remedy {
            let cured = self.beside(|| self.remedied(remedy, feeder.as_ref()))?;
            row.remedied = Some(self.figure(&cured));
            let (before, after) = (row.first, self.figure(&cured));
            if !is_gain(self.regime.figure, before, after) {
                row.invalid = Some(format!(
                    "the remedy brings {after:.0} after {before:.0} {}",
                    row.unit
                ));
            }
            let refused = diagnosis["refused"].as_array().into_iter().flatten();
            row.false_refusals = refused
                .filter_map(|refusal| refusal["set"].as_str())
                .filter(|set| remedy.is_refused_by(set))
                .map(str::to_owned)
                .collect();
        }
        // Also after a wrong verdict: its promise is as much a promise as any.
        if let Some((key, value)) = row.advice.as_deref().and_then(setting) {
            let (around, change) = match quota(&key, &value) {
                Some(quota) => (quota, Vec::new()),
                None => (self.regime.around, vec![(key, value)]),
            };
            let advised =
                self.beside(|| self.measured("advised", (self.regime.way, around), &[], &change))?;
            row.advised = Some(self.figure(&advised));
            row.has_helped = self
                .regime
                .remedy
                .is_some()
                .then(|| is_gain(self.regime.figure, row.first, self.figure(&advised)));
            row.promised_figure = row
                .promise
                .as_ref()
                .and_then(|promise| match promise.figure.as_str() {
                    "records_per_second" => Some(advised.records),
                    figure if figure.ends_with("latency_ms") => Some(advised.mean_ms),
                    "members_that_poll_late" => expulsions(&first, &advised),
                    _ => None,
                });
        }
        drop(feeder);
        Ok(())
    }

    /// Runs one phase and notes how much of the processors others used meanwhile, and how long
    /// something waited for one.
    fn beside<T>(&self, phase: impl FnOnce() -> Result<T>) -> Result<T> {
        let others = Others::watch([]);
        let (began, waited_before) = (Instant::now(), waiting_micros());
        let outcome = phase();
        let passed = began.elapsed().as_micros().max(1) as f64;
        let waited = waited_before.zip(waiting_micros());
        let waited = waited.map(|(before, now)| now.saturating_sub(before) as f64 / passed);
        note_largest(&self.others, others.foreign().map(|foreign| foreign.share));
        note_largest(&self.waited, waited);
        outcome
    }

    fn note(&self, row: &mut Row, diagnosis: &Value) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let is_knowable = self.regime.is_knowable(self.stage.target, self.client);
        row.verdict = verdict(self.regime, is_knowable, diagnosis);
        row.diagnosis = diagnosis.clone();
        row.confidence = text(&diagnosis["confidence"]);
        row.summary = text(&diagnosis["summary"]);
        let advice = &diagnosis["recommendation"];
        row.advice = advice["set"].as_str().map(str::to_owned);
        row.promise = advice["promise"]["figure"].as_str().map(|figure| Promise {
            figure: figure.to_owned(),
            low: advice["promise"]["low"].as_f64().unwrap_or(0.0),
            high: advice["promise"]["high"].as_f64().unwrap_or(0.0),
            unknown: advice["promise"]["unknown"].as_str().map(str::to_owned),
        });
    }

    fn figure(&self, second: &Second) -> f64 {
        match self.regime.figure {
            Figure::Rate => second.records,
            Figure::Latency => second.mean_ms,
        }
    }

    fn role(&self) -> &'static str {
        if self.regime.is_producer() {
            "producer"
        } else {
            "consumer"
        }
    }

    /// Where a consumer begins: with a lag, which the bottleneck keeps it from making up. With the
    /// change that was advised it is promised to carry what is written; what it carries while it
    /// makes up a lag would be another figure.
    fn beginning(&self, phase: &str) -> &'static str {
        let feed = self.regime.feed;
        let is_steady = phase == "advised" && feed.is_some_and(|feed| feed.stored == 0);
        // What was written while the keys were uneven stays uneven.
        let is_skewed = feed.is_some_and(|feed| feed.is_skewed);
        match self.regime.figure {
            Figure::Rate if !is_skewed && !is_steady => "earliest",
            Figure::Rate | Figure::Latency => "latest",
        }
    }

    fn start(
        &self,
        phase: &str,
        way: Way,
        layers: &[Pairs],
        more: &[(String, String)],
    ) -> Result<(String, Load)> {
        let id = format!("{}-{phase}", self.topic);
        let mut pairs = merged(&[&[self.regime.set], layers].concat());
        pairs.extend(more.iter().cloned());
        let mut own = vec![("load.role", self.role()), ("client.id", &*id)];
        if !pairs.iter().any(|(key, _)| key == "load.topic") {
            own.push(("load.topic", &*self.topic));
        }
        if !self.regime.is_producer() {
            own.push(("auto.offset.reset", self.beginning(phase)));
            own.push(("group.id", &*id));
        }
        pairs.extend(
            own.into_iter()
                .map(|(key, value)| (key.to_owned(), value.to_owned())),
        );
        let file = self.stage.home().join(format!("{id}.properties"));
        let program = self.clients.command(&self.programs.kafka, self.client);
        let (bootstrap, program) = self.stage.client(way, program);
        Ok((id.clone(), Load::start(program, &bootstrap, &file, &pairs)?))
    }

    /// Runs the client as it was built until the doctor's verdict is stable.
    fn diagnosed(&self) -> Result<(Value, Vec<Second>)> {
        let id = format!("{}-first", self.topic);
        let _around = self.stage.surround(self.regime.around, &self.topic, &id)?;
        let (id, mut load) = self.start("first", self.regime.way, &[], &[])?;
        if self.regime.is_starting {
            let seconds = load.watch(STARTED)?;
            let diagnosis = self.stage.diagnosis(&id, self.role(), &self.topic)?;
            return Ok((diagnosis.unwrap_or_default(), seconds));
        }
        load.watch(first_asked(self.regime))?;
        let mut stable = 0;
        let mut last: Option<Value> = None;
        let patience = match self.regime.is_knowable(self.stage.target, self.client) {
            true => LAST_ASKED,
            false => UNKNOWABLE_ASKED,
        };
        let give_up = load.seconds().len() + patience;
        loop {
            let found = self.stage.diagnosis(&id, self.role(), &self.topic)?;
            let is_same = found.is_some()
                && found.as_ref().map(|now| &now["verdict"]) == last.as_ref().map(|last| &last["verdict"]);
            let is_known = found
                .as_ref()
                .is_some_and(|now| now["verdict"] != "NOT_ENOUGH_DATA");
            stable = if is_same && is_known { stable + 2 } else { 0 };
            last = found.or(last);
            let seconds = load.seconds();
            if stable >= STABLE_SECONDS || seconds.len() >= give_up {
                let diagnosis = last.unwrap_or_default();
                let counted = seconds[seconds.len().saturating_sub(measured_seconds(self.regime))..].to_vec();
                return Ok((diagnosis, counted));
            }
            load.watch(2)?;
        }
    }

    /// Runs the client with the true remedy; what is lifted for it comes back afterwards.
    fn remedied(&self, remedy: &Remedy, feeder: Option<&Feeder>) -> Result<Second> {
        let skew = |is_skewed: bool| {
            let feed = self.regime.feed.is_some_and(|feed| feed.is_skewed);
            feeder.inspect(|feeder| feeder.skew(feed && is_skewed));
        };
        let place = match (remedy.lifts, self.regime.way) {
            (false, way) => (way, self.regime.around),
            (true, way) => (way.widened(), Around::Nothing),
        };
        skew(!remedy.lifts);
        let cured = self.measured("remedied", place, &[remedy.set], &[]);
        skew(true);
        cured
    }

    /// Runs a changed client and returns the mean of its seconds.
    fn measured(
        &self,
        phase: &str,
        (way, around): (Way, Around),
        layers: &[Pairs],
        more: &[(String, String)],
    ) -> Result<Second> {
        let id = format!("{}-{phase}", self.topic);
        let _around = self.stage.surround(around, &self.topic, &id)?;
        let (_, mut load) = self.start(phase, way, layers, more)?;
        load.watch(WARM_UP)?;
        Ok(mean(&load.watch(measured_seconds(self.regime))?))
    }
}

fn waiting_micros() -> Option<u64> {
    HostCounts::read()?.waiting_micros
}

fn note_largest(share: &Cell<Option<f64>>, now: Option<f64>) {
    share.set(match (share.get(), now) {
        (Some(before), Some(now)) => Some(before.max(now)),
        (before, now) => now.or(before),
    });
}

/// Nothing at all is no gain over nothing.
fn is_gain(figure: Figure, before: f64, after: f64) -> bool {
    match figure {
        Figure::Rate => after > 0.0 && after >= GAIN * before,
        Figure::Latency => after * GAIN <= before,
    }
}

fn first_asked(regime: &Regime) -> usize {
    match regime.feed {
        Some(feed) if feed.is_held => HELD_ASKED,
        _ => FIRST_ASKED,
    }
}

/// A member is expelled at most once for each of its polls, which take longer than the interval.
fn measured_seconds(regime: &Regime) -> usize {
    let has_interval = regime.set.iter().any(|(key, _)| *key == "max.poll.interval.ms");
    if has_interval { 3 * MEASURED } else { MEASURED }
}

/// How often the group went on without the advised client; `None` where it did not before either,
/// so that the promise of none could not be broken.
fn expulsions(first: &Second, advised: &Second) -> Option<f64> {
    advised.lost.filter(|_| first.lost.is_some_and(|lost| lost > 0.0))
}

/// That the doctor does not list a client is its error, not one of the construction.
fn verdict(regime: &Regime, is_knowable: bool, diagnosis: &Value) -> String {
    let Some(verdict) = diagnosis["verdict"].as_str() else {
        return if regime.is_starting {
            "NOT_ENOUGH_DATA".to_owned()
        } else {
            NOT_LISTED.to_owned()
        };
    };
    let tells = diagnosis["missing"]
        .as_array()
        .is_some_and(|missing| !missing.is_empty());
    match regime.around {
        _ if !is_knowable && verdict == "NOT_ENOUGH_DATA" && !tells => UNEXPLAINED.to_owned(),
        Around::NoMetrics if !diagnosis.to_string().contains(TAKES_NO_METRICS) => UNEXPLAINED.to_owned(),
        _ => verdict.to_owned(),
    }
}

/// `batch.size=32768` as a pair; `None` for an action in words.
fn setting(set: &str) -> Option<(String, String)> {
    let (key, value) = set.split_once('=')?;
    let is_plain = |text: &str| !text.is_empty() && !text.contains(' ');
    (is_plain(key) && is_plain(value)).then(|| (key.to_owned(), value.to_owned()))
}

/// A setting of the broker for the client: the quota that it will have.
fn quota(key: &str, value: &str) -> Option<Around> {
    let key = ["producer_byte_rate", "consumer_byte_rate", "request_percentage"]
        .into_iter()
        .find(|quota| *quota == key)?;
    Some(Around::Quota(key, value.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_key_and_a_value_are_a_setting() {
        assert_eq!(
            setting("batch.size=32768"),
            Some(("batch.size".into(), "32768".into()))
        );
        assert_eq!(setting("fewer producers, linger.ms = 5"), None);
        assert_eq!(setting("a larger byte quota"), None);
    }

    #[test]
    fn expulsions_are_compared_where_there_were_some_before() {
        let second = |lost| Second {
            lost,
            ..Second::default()
        };
        let (none, some) = (second(Some(0.0)), second(Some(2.0)));
        assert_eq!(expulsions(&some, &none), Some(0.0));
        assert_eq!(expulsions(&some, &some), Some(2.0));
        assert_eq!(expulsions(&none, &none), None);
        assert_eq!(expulsions(&some, &second(None)), None);
        let all = super::super::regimes::all();
        let seconds = |name| {
            let regime = all.iter().find(|regime| regime.name == name);
            measured_seconds(regime.expect("a regime"))
        };
        assert!(seconds("poll-interval") > seconds("processing-1ms"));
    }

    #[test]
    fn a_doctor_is_asked_about_a_held_consumer_when_it_can_know() {
        let all = super::super::regimes::all();
        let asked = |name| {
            let regime = all.iter().find(|regime| regime.name == name);
            first_asked(regime.expect("a regime"))
        };
        // Its rule wants a transaction of half a minute.
        assert!(asked("open-transaction") > 30);
        assert_eq!(asked("healthy-consumer"), FIRST_ASKED);
    }

    #[test]
    fn a_verdict_without_metrics_counts_with_its_reason_only() {
        let all = super::super::regimes::all();
        let regime = |name| all.iter().find(|regime| regime.name == name).expect("a regime");
        let verdict = |regime: &Regime, diagnosis: &Value| super::verdict(regime, true, diagnosis);
        let bare = serde_json::json!({"verdict": "NETWORK_RTT"});
        let reason = "The broker does not take metrics from clients.";
        let explained = serde_json::json!({"verdict": "NETWORK_RTT", "missing": [reason]});
        assert_eq!(verdict(regime("telemetry-off"), &bare), UNEXPLAINED);
        assert_eq!(verdict(regime("telemetry-off"), &explained), "NETWORK_RTT");
        assert_eq!(verdict(regime("batch-4096"), &bare), "NETWORK_RTT");
        assert_eq!(verdict(regime("batch-4096"), &Value::Null), NOT_LISTED);
        assert_eq!(
            verdict(regime("starting-producer"), &Value::Null),
            "NOT_ENOUGH_DATA"
        );
    }

    #[test]
    fn that_it_cannot_be_known_counts_with_what_would_tell() {
        let all = super::super::regimes::all();
        let silent = all
            .iter()
            .find(|regime| regime.name == "batch-4096-silent")
            .expect("a regime");
        let bare = serde_json::json!({"verdict": "NOT_ENOUGH_DATA", "missing": []});
        let told = serde_json::json!({"verdict": "NOT_ENOUGH_DATA", "missing": ["its metrics"]});
        assert_eq!(verdict(silent, false, &bare), UNEXPLAINED);
        assert_eq!(verdict(silent, false, &told), "NOT_ENOUGH_DATA");
        assert_eq!(verdict(silent, true, &bare), "NOT_ENOUGH_DATA");
        assert_eq!(verdict(silent, false, &Value::Null), NOT_LISTED);
    }

    #[test]
    fn a_row_is_disturbed_unless_it_is_known_that_it_was_not() {
        let row = |others| Row {
            others,
            ..Row::default()
        };
        assert!(row(None).is_disturbed());
        assert!(row(Some(0.5)).is_disturbed());
        assert!(!row(Some(0.05)).is_disturbed());
        let waited = |share| Row {
            waited: Some(share),
            ..row(Some(0.05))
        };
        assert!(waited(WAITED_MAX + 0.01).is_disturbed());
        assert!(!waited(WAITED_MAX - 0.01).is_disturbed());
        // What `--resume` does not repeat.
        assert!(row(Some(0.05)).is_final() && !row(Some(0.5)).is_final());
        let broken = Row {
            invalid: Some("no gain".into()),
            ..row(Some(0.05))
        };
        assert!(!broken.is_final());
    }

    #[test]
    fn the_error_of_a_promise_is_its_distance_in_shares_of_the_measurement() {
        let row = |low: f64, high: f64, measured: f64| Row {
            promise: Some(Promise {
                figure: "records_per_second".into(),
                low,
                high,
                unknown: None,
            }),
            promised_figure: Some(measured),
            ..Row::default()
        };
        assert_eq!(row(1_000.0, 1_500.0, 1_200.0).promise_error(), Some(0.0));
        assert_eq!(row(1_000.0, 1_500.0, 2_000.0).promise_error(), Some(0.25));
        assert_eq!(row(1_000.0, 1_500.0, 800.0).promise_error(), Some(0.25));
        assert_eq!(row(1_000.0, 1_000.0, 0.0).promise_error(), Some(f64::INFINITY));
        assert_eq!(row(0.0, 0.0, 0.0).promise_error(), Some(0.0));
        let offered = Row {
            offered: Some(800.0),
            ..row(1_000.0, 1_500.0, 800.0)
        };
        assert_eq!(offered.promise_error(), None);
        assert_eq!(Row::default().promise_error(), None);
    }

    #[test]
    fn a_change_gains_a_tenth_or_it_is_no_gain() {
        assert!(is_gain(Figure::Rate, 100.0, 110.1));
        assert!(!is_gain(Figure::Rate, 100.0, 109.0));
        assert!(is_gain(Figure::Rate, 0.0, 1.0));
        assert!(!is_gain(Figure::Rate, 0.0, 0.0));
        assert!(is_gain(Figure::Latency, 110.1, 100.0));
        assert!(!is_gain(Figure::Latency, 109.0, 100.0));
    }

    #[test]
    fn a_promise_is_kept_within_its_range_and_fifteen_percent() {
        let row = |measured: f64, unknown: Option<&str>| Row {
            promise: Some(Promise {
                figure: "records_per_second".into(),
                low: 1_000.0,
                high: 1_500.0,
                unknown: unknown.map(str::to_owned),
            }),
            promised_figure: Some(measured),
            ..Row::default()
        };
        assert_eq!(row(860.0, None).is_promise_kept(), Some(true));
        assert_eq!(row(840.0, None).is_promise_kept(), Some(false));
        assert_eq!(row(1_800.0, None).is_promise_kept(), Some(false));
        assert_eq!(row(840.0, Some("the disk")).is_promise_kept(), None);
        let wide = |low, high| Promise {
            figure: "records_per_second".into(),
            low,
            high,
            unknown: None,
        };
        for promise in [wide(0.0, 900.0), wide(800.0, 1_700.0)] {
            let empty = Row {
                promise: Some(promise),
                ..row(850.0, None)
            };
            assert_eq!(empty.is_promise_kept(), Some(false));
        }
        // It can fail: a single rebalance is too much.
        assert!(!wide(0.0, 0.0).is_empty());
        let expelled = |lost| Row {
            promise: Some(Promise {
                figure: "members_that_poll_late".into(),
                ..wide(0.0, 0.0)
            }),
            ..row(lost, None)
        };
        assert_eq!(expelled(0.0).is_promise_kept(), Some(true));
        assert_eq!(expelled(1.0).is_promise_kept(), Some(false));
        let modest = Row {
            offered: Some(700.0),
            ..row(700.0, None)
        };
        assert_eq!(modest.is_promise_kept(), None);
        assert!(modest.is_above_offer());
        // A range that says nothing is broken whatever is offered.
        let vague = Row {
            promise: Some(wide(1_000.0, 2_500.0)),
            ..modest
        };
        assert_eq!(vague.is_promise_kept(), Some(false));
        assert!(!vague.is_above_offer());
    }
}
