//! The four acts: each measures a bottleneck, applies the doctor's change and measures again.

use std::collections::BTreeMap;
use std::time::Duration;

use ottla_client::machine::config::client_keys;
use ottla_lab::doctor::diagnosis::{Promise, Recommendation};
use ottla_lab::doctor::snapshot::{Application, Network};
use ottla_lab::load::{Contents, Keys, Partitioning, ProduceLoad, TopicLoad};
use ottla_lab::numbers::number;
use ottla_lab::scenario::model::LinkSpec;

use super::ActName;
use super::proof::Proof;
use super::stage::{Performance, Role, Stage, Told, settings};

pub struct Act {
    pub name: ActName,
    pub title: &'static str,
    pub play: fn(&Stage, Say<'_>) -> Result<Proof, String>,
}

/// Shows the current step in the progress line.
pub type Say<'a> = &'a dyn Fn(&str);

pub const ACTS: &[Act] = &[
    Act {
        name: ActName::RequestRate,
        title: "1. The sender's requests (experiment I of the Kontur talk)",
        play: request_rate,
    },
    Act {
        name: ActName::Callback,
        title: "2. A callback that blocks",
        play: callback,
    },
    Act {
        name: ActName::Window,
        title: "3. A TCP window that is too small for the round trip",
        play: window,
    },
    Act {
        name: ActName::Neighbour,
        title: "4. A noisy neighbour",
        play: neighbour,
    },
];

const ROUND_TRIP_MS: f64 = 10.0;
const FAR_ROUND_TRIP_MS: f64 = 50.0;
const CALLBACK: Duration = Duration::from_millis(1);
/// Threads that do the work which the callback did before.
const CALLBACK_THREADS: u32 = 4;

fn request_rate(stage: &Stage, say: Say<'_>) -> Result<Proof, String> {
    let topic = stage.topic("demo-requests", 1)?;
    let wanted = 40_000.0;
    let own = settings(&[
        ("acks", "all"),
        ("compression.type", "lz4"),
        ("linger.ms", "5"),
        ("batch.size", "16384"),
        ("buffer.memory", "134217728"),
    ]);
    let role = |name: &str, settings: BTreeMap<String, String>| Role {
        load: ProduceLoad {
            settings,
            rate: Some(wanted),
            ..producer(name, &topic)
        },
        link: Some(link(ROUND_TRIP_MS, 0)),
        told: Told {
            application: application(wanted),
            ..Told::default()
        },
    };
    say("as it is");
    let before = one(stage, role("requests-before", own.clone()))?;
    let change = recommended(&before)?;
    say(&change.set);
    let after = one(stage, role("requests-after", with(own, &change)?))?;
    let question = format!(
        "One thread wants to send {} records/s of 256 bytes over a round trip of {ROUND_TRIP_MS} ms. Why does it not?",
        number(wanted)
    );
    let applied = change.set.clone();
    Ok(proof(question, before, change, applied, &after))
}

fn callback(stage: &Stage, say: Say<'_>) -> Result<Proof, String> {
    let topic = stage.topic("demo-callback", 3)?;
    let wanted = 2_000.0;
    let role = |name: &str, callback_threads: u32| Role {
        load: ProduceLoad {
            settings: settings(&[("acks", "all"), ("linger.ms", "5")]),
            rate: Some(wanted),
            callback: CALLBACK,
            callback_threads,
            ..producer(name, &topic)
        },
        link: None,
        told: Told {
            application: application(wanted),
            ..Told::default()
        },
    };
    say("as it is");
    let before = one(stage, role("callback-before", 0))?;
    let change = recommended(&before)?;
    say("with callbacks that hand their work to other threads");
    let after = one(stage, role("callback-after", CALLBACK_THREADS))?;
    let question = format!(
        "{} records/s, and every callback writes to a database for {} ms. Why are acknowledgements so late?",
        number(wanted),
        CALLBACK.as_millis()
    );
    let applied = format!("{} ({CALLBACK_THREADS} threads here)", change.set);
    Ok(proof(question, before, change, applied, &after))
}

fn window(stage: &Stage, say: Say<'_>) -> Result<Proof, String> {
    let topic = stage.topic("demo-window", 1)?;
    let wanted = 100.0;
    let own = settings(&[
        ("acks", "all"),
        ("linger.ms", "0"),
        ("send.buffer.bytes", "51200"),
        ("buffer.memory", "134217728"),
    ]);
    let role = |name: &str, settings: BTreeMap<String, String>| {
        let buffer_bytes: u64 = settings["send.buffer.bytes"].parse().map_err(|_| {
            format!(
                "send.buffer.bytes={} is not a number",
                settings["send.buffer.bytes"]
            )
        })?;
        Ok::<_, String>(Role {
            load: ProduceLoad {
                settings,
                rate: Some(wanted),
                record_bytes: 60_000,
                ..producer(name, &topic)
            },
            // Linux doubles the value of SO_SNDBUF.
            link: Some(link(FAR_ROUND_TRIP_MS, 2 * buffer_bytes)),
            told: Told {
                application: application(wanted),
                network: Network {
                    round_trip_ms: Some(FAR_ROUND_TRIP_MS),
                    window_bytes: Some(2.0 * buffer_bytes as f64),
                    ..Network::default()
                },
            },
        })
    };
    say("as it is");
    let before = one(stage, role("window-before", own.clone())?)?;
    let change = recommended(&before)?;
    say(&change.set);
    let after = one(stage, role("window-after", with(own, &change)?)?)?;
    let question = format!(
        "{} records/s of 60 kB to another data centre with a round trip of {FAR_ROUND_TRIP_MS} ms. Why is it so slow?",
        number(wanted)
    );
    let applied = change.set.clone();
    Ok(proof(question, before, change, applied, &after))
}

fn neighbour(stage: &Stage, say: Say<'_>) -> Result<Proof, String> {
    let (topic, noise) = (stage.topic("demo-victim", 3)?, stage.topic("demo-noise", 12)?);
    let wanted = 5_000.0;
    let victim = |name: &str| Role {
        load: ProduceLoad {
            settings: settings(&[("acks", "all"), ("linger.ms", "5")]),
            rate: Some(wanted),
            ..producer(name, &topic)
        },
        link: None,
        told: Told::default(),
    };
    let own = settings(&[("acks", "1"), ("enable.idempotence", "false"), ("linger.ms", "0")]);
    let noisy = |name: &str, settings: BTreeMap<String, String>| Role {
        load: ProduceLoad {
            settings,
            clients: 3,
            rate: Some(60_000.0),
            record_bytes: 64,
            partitioning: Partitioning::RoundRobin,
            ..producer(name, &noise)
        },
        link: None,
        told: Told::default(),
    };
    say("the victim alone");
    let alone = one(stage, victim("victim-alone"))?;
    say("with the neighbour");
    let [disturbed, guilty] = two(
        stage,
        victim("victim-disturbed"),
        noisy("noisy-before", own.clone()),
    )?;
    let change = recommended(&guilty)?;
    let changed = with(own.clone(), &change)?;
    say(&change.set);
    let [calm, batched] = two(
        stage,
        victim("victim-calm"),
        noisy("noisy-after", changed.clone()),
    )?;
    // Once more, in turn: a machine that changed meanwhile must not decide.
    say("with the neighbour, again");
    let [disturbed_again, _] = two(stage, victim("victim-disturbed-2"), noisy("noisy-before-2", own))?;
    say(&format!("{}, again", change.set));
    let [calm_again, _] = two(stage, victim("victim-calm-2"), noisy("noisy-after-2", changed))?;
    let mean = |one: &Performance, other: &Performance| (one.latency_p99_ms + other.latency_p99_ms) / 2.0;
    let (disturbed, calm) = (mean(&disturbed, &disturbed_again), mean(&calm, &calm_again));
    Ok(Proof {
        question: format!(
            "{} records/s have a p99 of {} ms; then another client floods the broker. Which client suffers, and what should the other one change?",
            number(wanted),
            number(alone.latency_p99_ms)
        ),
        before: format!(
            "the victim's p99 is {} ms; the neighbour sends {} requests/s",
            number(disturbed),
            number(requests_per_second(&guilty))
        ),
        after: format!(
            "the victim's p99 is {} ms; the neighbour sends {} requests/s",
            number(calm),
            number(requests_per_second(&batched))
        ),
        applied: format!("{} for the neighbour", change.set),
        result: calm,
        promised: victims_promise(alone.latency_p99_ms, disturbed),
        diagnosis: guilty.diagnosis,
    })
}

/// The share of its p99 that the victim loses before it counts as a loss.
const LOSS: f64 = 0.1;

/// At least half of what the neighbour costs the victim comes back; where that is nothing, nothing
/// gets worse.
fn victims_promise(alone_ms: f64, disturbed_ms: f64) -> Promise {
    let is_lost = disturbed_ms > (1.0 + LOSS) * alone_ms;
    let (high, assumption) = if is_lost {
        (
            (alone_ms + disturbed_ms) / 2.0,
            "half of what the neighbour costs comes back",
        )
    } else {
        (
            alone_ms.max(disturbed_ms),
            "the neighbour costs the victim nothing, and its change costs nothing either",
        )
    };
    Promise {
        figure: String::from("victim_p99_ms"),
        now: Some(disturbed_ms),
        low: alone_ms.min(disturbed_ms),
        high,
        unit: String::from("ms"),
        assumption: format!("the victim's p99, means of two windows in turn: {assumption}"),
        unknown: None,
    }
}

fn producer(name: &str, topic: &TopicLoad) -> ProduceLoad {
    ProduceLoad {
        name: name.to_owned(),
        settings: BTreeMap::new(),
        topics: vec![topic.clone()],
        clients: 1,
        threads: 1,
        rate: None,
        records: 0,
        record_bytes: 256,
        contents: Contents::Random,
        keys: Keys::None,
        partitioning: Partitioning::Client,
        is_synchronous: false,
        callback: Duration::ZERO,
        callback_threads: 0,
    }
}

fn link(round_trip_ms: f64, window_bytes: u64) -> LinkSpec {
    LinkSpec {
        round_trip_ms,
        window_bytes,
        ..LinkSpec::default()
    }
}

fn application(wanted: f64) -> Application {
    Application {
        threads: Some(1.0),
        offered_records_per_second: Some(wanted),
        ..Application::default()
    }
}

fn one(stage: &Stage, role: Role) -> Result<Performance, String> {
    let mut all = stage.perform(vec![role])?;
    Ok(all.remove(0))
}

fn two(stage: &Stage, one: Role, other: Role) -> Result<[Performance; 2], String> {
    let all = stage.perform(vec![one, other])?;
    all.try_into()
        .map_err(|_| String::from("two producers have two performances"))
}

fn recommended(performance: &Performance) -> Result<Recommendation, String> {
    let diagnosis = &performance.diagnosis;
    diagnosis.recommendation.clone().ok_or_else(|| {
        format!(
            "the doctor has nothing to recommend to {}: {}",
            diagnosis.client_id, diagnosis.summary
        )
    })
}

/// Returns the settings with the change, `key=value, key=value`, applied.
fn with(
    mut own: BTreeMap<String, String>,
    change: &Recommendation,
) -> Result<BTreeMap<String, String>, String> {
    for part in change.set.split(", ") {
        let setting = part
            .split_once('=')
            .filter(|(key, _)| client_keys().any(|known| known.name == *key));
        let Some((key, value)) = setting else {
            return Err(format!("the doctor's change is not a producer setting: {part}"));
        };
        own.insert(key.to_owned(), value.to_owned());
    }
    Ok(own)
}

/// Compares one producer before and after the doctor's change.
fn proof(
    question: String,
    before: Performance,
    change: Recommendation,
    applied: String,
    after: &Performance,
) -> Proof {
    Proof {
        question,
        before: rate_and_answer(&before),
        after: rate_and_answer(after),
        applied,
        result: figure(&change.promise, after),
        promised: change.promise,
        diagnosis: before.diagnosis,
    }
}

fn rate_and_answer(performance: &Performance) -> String {
    format!(
        "{} records/s, {} ms from send() to the answer",
        number(performance.records_per_second()),
        number(performance.answered_ms)
    )
}

fn requests_per_second(performance: &Performance) -> f64 {
    let total = performance
        .outcome
        .metrics
        .get("request-total")
        .copied()
        .unwrap_or(0.0);
    total / performance.outcome.seconds.max(f64::MIN_POSITIVE)
}

/// Returns the measured value of the promised figure.
fn figure(promise: &Promise, performance: &Performance) -> f64 {
    match promise.figure.as_str() {
        "requests_per_second" => requests_per_second(performance),
        "sender_latency_ms" => performance.answered_ms,
        _ => performance.records_per_second(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(set: &str) -> Recommendation {
        Recommendation {
            set: set.to_owned(),
            why: String::new(),
            promise: Promise {
                figure: String::from("records_per_second"),
                now: None,
                low: 1.0,
                high: 1.0,
                unit: String::from("records/s"),
                assumption: String::new(),
                unknown: None,
            },
            next_ceiling: String::new(),
            cost: String::new(),
        }
    }

    #[test]
    fn the_victims_promise_fails_where_less_than_half_comes_back() {
        let promise = victims_promise(4.0, 20.0);
        assert_eq!((promise.low, promise.high), (4.0, 12.0));
        let nothing = victims_promise(6.0, 6.1);
        assert_eq!((nothing.low, nothing.high), (6.0, 6.1));
        assert!(nothing.assumption.contains("costs the victim nothing"));
    }

    #[test]
    fn a_change_is_applied_key_by_key() {
        let own = settings(&[("linger.ms", "0"), ("acks", "all")]);
        let changed = with(own.clone(), &change("linger.ms=5, batch.size=65536")).unwrap();
        assert_eq!(
            changed,
            settings(&[("linger.ms", "5"), ("acks", "all"), ("batch.size", "65536")])
        );
        let error = with(own, &change("hand the work over")).unwrap_err();
        assert!(error.contains("hand the work over"), "{error}");
    }
}
