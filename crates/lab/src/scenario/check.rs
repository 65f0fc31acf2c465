//! What can be checked about a scenario before it is run: names, ranges, contradictory settings.

use std::collections::{BTreeMap, BTreeSet};

use ottla_client::config::{ClientKind, Config, ConsumerConfig, ProducerConfig};
use ottla_wire::config_keys::{
    BrokerKeyStatus, Scope, broker_key_status, client_keys, nearest_key, parse_value, topic_key,
};

use super::error::hint;
use super::model::{ConsumerSpec, ProducerSpec, RequestSpec, Scalar, Scenario, Security, TopicSpec};
use super::{expect, path, sweep, words};
use crate::load::stamp;

/// The size of a value's stamp, without which a consumer cannot check what it reads.
pub const RECORD_BYTES_MIN: u32 = stamp::BYTES as u32;
/// The largest record that Kafka takes without changing the broker's settings.
const RECORD_BYTES_MAX: u32 = 100 << 20;
/// Each client is a connection and a thread or two.
const CLIENTS_MAX: u32 = 2_000;
const THREADS_MAX: u32 = 256;
/// Sockets of this process, all served by one thread.
const CONNECTIONS_MAX: u32 = 10_000;
const IN_FLIGHT_MAX: u32 = 10_000;
const BURST_MS_MAX: u64 = 60_000;
const PARTITIONS_MAX: u32 = 20_000;
const SECONDS_MAX: f64 = 24.0 * 3_600.0;

/// An error, and the path of the value.
#[derive(Debug)]
pub struct Problem {
    pub path: Vec<String>,
    pub message: String,
}

impl Problem {
    fn new(path: &[&str], message: impl Into<String>) -> Problem {
        Problem {
            path: path.iter().map(|part| (*part).to_owned()).collect(),
            message: message.into(),
        }
    }
}

type Checked = Result<(), Problem>;

/// Checks the whole scenario, including every point.
pub fn check(scenario: &Scenario) -> Checked {
    check_head(scenario)?;
    check_run(scenario)?;
    check_scale(scenario)?;
    for (index, sentence) in scenario.expect.iter().enumerate() {
        expect::parse(sentence).map_err(|why| Problem::new(&["expect", &index.to_string()], why))?;
    }
    for point in &scenario.points {
        for figure in point.reported.keys() {
            expect::check_figure(figure)
                .map_err(|why| Problem::new(&["points", &point.name, "reported", figure], why))?;
        }
    }
    for scenario in [scenario, &sweep::scaled(scenario, None)] {
        let points = sweep::points(scenario).map_err(|error| {
            let place = error.key.unwrap_or_default();
            let place: Vec<&str> = place.split('.').collect();
            Problem::new(&place, error.message)
        })?;
        let names: Vec<&str> = points.iter().map(|point| point.name.as_str()).collect();
        for point in &points {
            check_expectations(point, &names)?;
        }
        for point in points {
            check_run(&point.scenario).map_err(|problem| Problem {
                message: format!("at the point {}: {}", point.name, problem.message),
                path: problem.path,
            })?;
        }
    }
    Ok(())
}

fn check_expectations(point: &sweep::ConcretePoint, names: &[&str]) -> Checked {
    for sentence in &point.scenario.expect {
        let parsed = expect::parse(sentence);
        let parsed = parsed.map_err(|why| Problem::new(&["points", &point.name, "expect"], why))?;
        if let Some(other) = parsed.of_point
            && !names.contains(&other.as_str())
        {
            let near = hint(&other, names.iter().copied());
            let message = format!("`{sentence}`: there is no point {other}{near}");
            return Err(Problem::new(&["points", &point.name, "expect"], message));
        }
    }
    Ok(())
}

fn check_head(scenario: &Scenario) -> Checked {
    if !scenario.question.is_empty() && !scenario.question.ends_with('?') {
        return Err(Problem::new(&["question"], "does not end with a question mark"));
    }
    if scenario.name.is_empty()
        || scenario
            .name
            .contains(|c: char| !c.is_ascii_alphanumeric() && !"-_.".contains(c))
    {
        let message = format!(
            "{:?} is not made of letters, digits, dots, dashes and underscores; topics are named after it",
            scenario.name
        );
        return Err(Problem::new(&["name"], message));
    }
    Ok(())
}

fn check_scale(scenario: &Scenario) -> Checked {
    let Some(scale) = &scenario.scale else {
        return Ok(());
    };
    if !(scale.default > 0.0 && scale.default.is_finite()) {
        let message = format!("{} is not above 0", scale.default);
        return Err(Problem::new(&["scale", "default"], message));
    }
    for place in &scale.of {
        path::with_scaled(scenario, place, 1.0).map_err(|why| Problem::new(&["scale", "of"], why))?;
    }
    Ok(())
}

fn check_run(scenario: &Scenario) -> Checked {
    for (name, seconds, least) in [
        ("duration_seconds", scenario.duration_seconds, 0.1),
        ("warmup_seconds", scenario.warmup_seconds, 0.0),
    ] {
        if !(least..=SECONDS_MAX).contains(&seconds) {
            return Err(Problem::new(
                &[name],
                format!("{seconds} is not between {least} and {SECONDS_MAX}"),
            ));
        }
    }
    if !(1..=100).contains(&scenario.rounds) {
        return Err(Problem::new(
            &["rounds"],
            format!("{} is not between 1 and 100", scenario.rounds),
        ));
    }
    check_topics(&scenario.topics)?;
    check_link(scenario)?;
    check_security(scenario)?;
    check_broker(&scenario.broker)?;
    if scenario.producers.is_empty() && scenario.consumers.is_empty() && scenario.requests.is_empty() {
        return Err(Problem::new(
            &["producers"],
            "there is neither a producer nor a consumer",
        ));
    }
    let groups = (scenario
        .producers
        .iter()
        .map(|group| ("producers", &group.name, &group.topics)))
    .chain(
        scenario
            .consumers
            .iter()
            .map(|group| ("consumers", &group.name, &group.topics)),
    )
    .chain(
        scenario
            .requests
            .iter()
            .map(|group| ("requests", &group.name, &group.topics)),
    );
    let mut names = BTreeSet::new();
    for (kind, name, topics) in groups {
        if name.is_empty() || !names.insert(name) {
            let message = if name.is_empty() {
                "has no name"
            } else {
                "two groups have this name"
            };
            return Err(Problem::new(&[kind, name, "name"], message));
        }
        let known = || scenario.topics.iter().map(|topic| topic.name.as_str());
        if let Some(unknown) = topics
            .iter()
            .find(|topic| known().all(|known| known != topic.as_str()))
        {
            let message = format!(
                "{unknown} is not among the scenario's topics{}",
                hint(unknown, known())
            );
            return Err(Problem::new(&[kind, name, "topics"], message));
        }
    }
    scenario.producers.iter().try_for_each(check_producer)?;
    scenario.consumers.iter().try_for_each(check_consumer)?;
    scenario.requests.iter().try_for_each(check_requests)?;
    check_readers_have_records(scenario)
}

/// Topics are new: another group must write what is read.
fn check_readers_have_records(scenario: &Scenario) -> Checked {
    let is_read = !scenario.consumers.is_empty();
    if !is_read
        || !scenario.producers.is_empty()
        || scenario.topics.iter().any(|topic| topic.prefilled_records > 0)
    {
        return Ok(());
    }
    let message =
        "no producer writes what the consumers are to read: add producers, or prefilled_records to a topic";
    Err(Problem::new(&["consumers"], message))
}

fn check_topics(topics: &[TopicSpec]) -> Checked {
    if topics.is_empty() {
        return Err(Problem::new(&["topics"], "there is no topic"));
    }
    let mut names = BTreeSet::new();
    for topic in topics {
        let wrong =
            |field: &str, message: String| Err(Problem::new(&["topics", &topic.name, field], message));
        let is_letter = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        // The name on the cluster is longer by a prefix; Kafka allows 249 letters.
        if topic.name.is_empty() || topic.name.len() > 100 || !topic.name.chars().all(is_letter) {
            let message = format!(
                "{:?} is not a topic's name: 1 to 100 letters, digits, dots, dashes and underscores",
                topic.name
            );
            return wrong("name", message);
        }
        if !names.insert(&topic.name) {
            return wrong("name", String::from("two topics have this name"));
        }
        if !(1..=PARTITIONS_MAX).contains(&topic.partitions) {
            return wrong(
                "partitions",
                format!("{} is not between 1 and {PARTITIONS_MAX}", topic.partitions),
            );
        }
        if topic.replication_factor == 0 || topic.replication_factor < -1 {
            let message = format!(
                "{} is neither -1 (the broker's default) nor at least 1",
                topic.replication_factor
            );
            return wrong("replication_factor", message);
        }
        if topic.prefilled_records > 0 {
            check_record_bytes(topic.prefilled_record_bytes)
                .map_err(|why| Problem::new(&["topics", &topic.name, "prefilled_record_bytes"], why))?;
        }
        for (key, value) in &topic.settings {
            check_topic_setting(key, &value.to_string())
                .map_err(|why| Problem::new(&["topics", &topic.name, "settings", key], why))?;
        }
    }
    Ok(())
}

fn check_topic_setting(key: &str, value: &str) -> Result<(), String> {
    let Some(row) = topic_key(key) else {
        let near = match nearest_key(Scope::Topic, key) {
            Some(near) => format!("; {near} may be meant"),
            None => String::new(),
        };
        return Err(format!("is no setting of a topic{near}"));
    };
    parse_value(row, value).map(drop).map_err(|error| error.why)
}

fn check_broker(settings: &BTreeMap<String, String>) -> Checked {
    for key in settings.keys() {
        if let BrokerKeyStatus::Unknown { nearest } = broker_key_status(key) {
            let near = nearest.map_or(String::new(), |near| format!("; {near} may be meant"));
            return Err(Problem::new(
                &["broker", key],
                format!("is no setting of a broker{near}"),
            ));
        }
    }
    Ok(())
}

fn check_link(scenario: &Scenario) -> Checked {
    let Some(link) = &scenario.link else { return Ok(()) };
    if !(0.0..=60_000.0).contains(&link.round_trip_ms) {
        let message = format!("{} is not between 0 and 60000", link.round_trip_ms);
        return Err(Problem::new(&["link", "round_trip_ms"], message));
    }
    if (link.stall_every_ms == 0) != (link.stall_ms == 0) {
        return Err(Problem::new(
            &["link", "stall_ms"],
            "stall_every_ms and stall_ms belong together",
        ));
    }
    if link.stall_ms > 0 && link.stall_ms >= link.stall_every_ms {
        let message = format!(
            "{} ms every {} ms lets nothing pass",
            link.stall_ms, link.stall_every_ms
        );
        return Err(Problem::new(&["link", "stall_ms"], message));
    }
    Ok(())
}

/// What reads or writes bytes between client and broker cannot do so with TLS.
fn check_security(scenario: &Scenario) -> Checked {
    if scenario.security == Security::Plaintext {
        return Ok(());
    }
    let wrong = |why: &str| Err(Problem::new(&[path::SECURITY], why));
    if !scenario.requests.is_empty() {
        return wrong("bare connections (requests) speak plaintext only");
    }
    if scenario.link.is_some() {
        return wrong("the link replaces the addresses in answers, which it cannot read behind TLS");
    }
    Ok(())
}

fn check_count(count: u32, most: u32) -> Result<(), String> {
    match (1..=most).contains(&count) {
        true => Ok(()),
        false => Err(format!("{count} is not between 1 and {most}")),
    }
}

fn check_rate(rate: Option<f64>) -> Result<(), String> {
    match rate {
        Some(rate) if !(rate > 0.0 && rate.is_finite()) => Err(format!(
            "{rate} is not above 0; leave it out to go as fast as possible"
        )),
        _ => Ok(()),
    }
}

fn check_record_bytes(bytes: u32) -> Result<(), String> {
    match bytes {
        0..RECORD_BYTES_MIN => Err(format!(
            "{bytes} is less than the {RECORD_BYTES_MIN} bytes of the stamp that every record carries"
        )),
        RECORD_BYTES_MIN..=RECORD_BYTES_MAX => Ok(()),
        _ => Err(format!("{bytes} is more than {RECORD_BYTES_MAX}")),
    }
}

fn check_producer(group: &ProducerSpec) -> Checked {
    let fields = [
        ("clients", check_count(group.clients, CLIENTS_MAX)),
        ("threads", check_count(group.threads, THREADS_MAX)),
        ("rate", check_rate(group.rate)),
        ("record_bytes", check_record_bytes(group.record_bytes)),
        ("contents", words::contents(&group.contents).map(drop)),
        ("keys", words::keys(&group.keys).map(drop)),
        ("partitioning", words::partitioning(&group.partitioning).map(drop)),
    ];
    for (field, checked) in fields {
        checked.map_err(|why| Problem::new(&["producers", &group.name, field], why))?;
    }
    if group.keys != "none" && group.partitioning != "client" {
        let message = format!("with {}, keys do not choose the partition", group.partitioning);
        return Err(Problem::new(&["producers", &group.name, "keys"], message));
    }
    check_settings(ClientKind::Producer, "producers", &group.name, &group.settings)
}

fn check_consumer(group: &ConsumerSpec) -> Checked {
    let fields = [
        ("clients", check_count(group.clients, CLIENTS_MAX)),
        ("rate", check_rate(group.rate)),
    ];
    for (field, checked) in fields {
        checked.map_err(|why| Problem::new(&["consumers", &group.name, field], why))?;
    }
    check_settings(ClientKind::Consumer, "consumers", &group.name, &group.settings)
}

fn check_requests(group: &RequestSpec) -> Checked {
    let fields = [
        ("api", words::api(&group.api).map(drop)),
        ("record_bytes", check_record_bytes(group.record_bytes)),
        ("connections", check_count(group.connections, CONNECTIONS_MAX)),
        ("in_flight", check_count(group.in_flight, IN_FLIGHT_MAX)),
        ("client_ids", check_count(group.client_ids, u32::MAX)),
        ("rate", check_rate(group.rate)),
        ("burst_every_ms", check_burst(group)),
    ];
    for (field, checked) in fields {
        checked.map_err(|why| Problem::new(&["requests", &group.name, field], why))?;
    }
    if group.reconnect && group.in_flight > 1 {
        let message = "with reconnect every connection has one request";
        return Err(Problem::new(&["requests", &group.name, "in_flight"], message));
    }
    Ok(())
}

fn check_burst(group: &RequestSpec) -> Result<(), String> {
    match (group.burst_every_ms, group.rate) {
        (0, _) => Ok(()),
        (1..=BURST_MS_MAX, Some(_)) => Ok(()),
        (1..=BURST_MS_MAX, None) => Err(String::from("a burst is made of a rate: set one")),
        (long, _) => Err(format!("{long} is more than {BURST_MS_MAX}")),
    }
}

/// Checks settings as the client itself will, and more strictly: a key that has no effect would
/// change the meaning of a number.
fn check_settings(
    client: ClientKind,
    kind: &str,
    name: &str,
    settings: &BTreeMap<String, Scalar>,
) -> Checked {
    let wrong = |key: &str, message: String| Problem::new(&[kind, name, "settings", key], message);
    for key in settings.keys() {
        let known = || client_keys().filter(|row| row.is_of(client)).map(|row| row.name);
        if known().all(|known| known != key) {
            let message = format!("is no setting of a {}{}", client.name(), hint(key, known()));
            return Err(wrong(key, message));
        }
        if key == "bootstrap.servers" {
            return Err(wrong(
                key,
                String::from("the cluster is named on the command line"),
            ));
        }
    }
    let config = settings
        .iter()
        .fold(
            Config::new().set("bootstrap.servers", "localhost:9092"),
            |config, (key, value)| config.set(key, value),
        )
        // The check must not use up one of the numbers that clients without a name get.
        .set("client.id", "checked");
    let checked = match client {
        ClientKind::Producer => ProducerConfig::from_config(&config).map(drop),
        ClientKind::Consumer | ClientKind::Admin => ConsumerConfig::from_config(&config).map(drop),
    };
    checked.map_err(|error| match error {
        ottla_client::Error::Config { key, message } => wrong(&key, message.to_string()),
        other => wrong("", other.to_string()),
    })
}
