//! Paths in a scenario by name: `producers.load.settings.linger.ms`, `topics.t.partitions`,
//! `link.round_trip_ms`.

use serde_json::Value;

use super::error::hint;
use super::model::{DiskSpec, LinkSpec, Scalar, Scenario};

/// Values of the scenario itself that a point may change.
const OF_SCENARIO: [&str; 4] = ["duration_seconds", "warmup_seconds", "rounds", SECURITY];
/// How clients reach the embedded broker.
pub const SECURITY: &str = "security";
const GROUPS: [&str; 4] = ["topics", "producers", "consumers", "requests"];

/// Returns the same scenario with another value at `path`.
///
/// - Shape: `none` removes a limit (`producers.load.rate`).
/// - Errors: no such path (names the nearest one), or a value of the wrong kind.
pub fn with(scenario: &Scenario, path: &str, value: &Scalar) -> Result<Scenario, String> {
    change(scenario, path, |place| {
        *place = match value {
            Scalar::Text(word) if word == "none" && is_optional(path) => Value::Null,
            _ => json(value),
        };
        Ok(())
    })
}

/// Returns the value at `path` as text, numbers in one form; `None` if it is not set or there is no
/// such path.
pub fn text(scenario: &Scenario, path: &str) -> Option<String> {
    let mut document = serde_json::to_value(scenario).ok()?;
    match place(&mut document, path).ok()? {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        // A rate of 5000 is 5000.0 in JSON.
        Value::Number(number) => Some(number.as_f64()?.to_string()),
        other => Some(other.to_string()),
    }
}

/// Returns the same scenario with the number at `path` multiplied; whole numbers stay whole and do
/// not fall below 1.
///
/// - Errors: no such path, or its value is not a number. A value that is not set stays unset.
pub fn with_scaled(scenario: &Scenario, path: &str, factor: f64) -> Result<Scenario, String> {
    change(scenario, path, |place| {
        if place.is_null() {
            return Ok(());
        }
        let scalar: Scalar =
            serde_json::from_value(place.clone()).map_err(|_| format!("{path} is no number"))?;
        *place = json(&times(&scalar, factor).ok_or_else(|| format!("{path} is no number"))?);
        Ok(())
    })
}

/// Returns `None` for values that are not numbers.
pub fn times(scalar: &Scalar, factor: f64) -> Option<Scalar> {
    match scalar {
        Scalar::Whole(number) => {
            // Sizes and counts are far below 2^53.
            let scaled = (*number as f64 * factor).round().max(1.0);
            Some(Scalar::Whole(scaled as i64))
        }
        Scalar::Number(number) => Some(Scalar::Number(number * factor)),
        Scalar::Text(word) if word == "none" => Some(scalar.clone()),
        Scalar::Truth(_) | Scalar::Text(_) => None,
    }
}

/// The part of a path that a reader needs to tell it from others: a setting's key, or `load.rate`.
pub fn short(path: &str) -> &str {
    if let Some((_, key)) = path.split_once(".settings.") {
        return key;
    }
    match path.split_once('.') {
        Some((head, rest)) if GROUPS.contains(&head) || head == "broker" => rest,
        _ => path,
    }
}

fn is_optional(path: &str) -> bool {
    path.ends_with(".rate")
}

fn json(scalar: &Scalar) -> Value {
    serde_json::to_value(scalar).expect("a scalar is JSON: YAML's infinities are refused when a file is read")
}

fn change(
    scenario: &Scenario,
    path: &str,
    change: impl FnOnce(&mut Value) -> Result<(), String>,
) -> Result<Scenario, String> {
    let mut document = serde_json::to_value(scenario).map_err(|error| error.to_string())?;
    change(place(&mut document, path)?)?;
    serde_json::from_value(document).map_err(|error| format!("{path}: {error}"))
}

fn place<'a>(document: &'a mut Value, path: &str) -> Result<&'a mut Value, String> {
    if OF_SCENARIO.contains(&path) {
        return Ok(&mut document[path]);
    }
    let (head, rest) = path.split_once('.').unwrap_or((path, ""));
    let place = match head {
        "broker" if !rest.is_empty() => &mut document["broker"][rest],
        "link" => {
            if document["link"].is_null() {
                document["link"] =
                    serde_json::to_value(LinkSpec::default()).map_err(|error| error.to_string())?;
            }
            field(&mut document["link"], path, rest)?
        }
        "disk" => {
            if document["disk"].is_null() {
                document["disk"] =
                    serde_json::to_value(DiskSpec::default()).map_err(|error| error.to_string())?;
            }
            field(&mut document["disk"], path, rest)?
        }
        _ if GROUPS.contains(&head) => {
            let (member, rest) = member(&mut document[head], path, head, rest)?;
            match rest.strip_prefix("settings.") {
                Some(key) if !key.is_empty() && head != "requests" => &mut member["settings"][key],
                _ => field(member, path, rest)?,
            }
        }
        _ => {
            let known = OF_SCENARIO
                .iter()
                .chain(&GROUPS)
                .chain(&["link", "disk", "broker"]);
            let near = hint(head, known.copied());
            return Err(format!("{path} is no place in a scenario{near}"));
        }
    };
    Ok(place)
}

/// The group of that name, and the rest of the path. Names may contain dots: the longest match
/// wins.
fn member<'a, 'p>(
    groups: &'a mut Value,
    path: &str,
    head: &str,
    rest: &'p str,
) -> Result<(&'a mut Value, &'p str), String> {
    let groups = groups
        .as_array_mut()
        .expect("topics, producers, consumers and requests are lists");
    let name = |group: &Value| group["name"].as_str().unwrap_or_default().to_owned();
    let names: Vec<String> = groups.iter().map(name).collect();
    let fits = |name: &String| {
        rest.strip_prefix(name.as_str())
            .is_some_and(|rest| rest.starts_with('.'))
    };
    let Some(longest) = names
        .iter()
        .filter(|name| fits(name))
        .max_by_key(|name| name.len())
    else {
        let wanted = rest.split('.').next().unwrap_or_default();
        let near = hint(wanted, names.iter().map(String::as_str));
        return Err(format!(
            "{path}: none of the {head} has the name {wanted}; there is {}{near}",
            names.join(", ")
        ));
    };
    let index = names
        .iter()
        .position(|name| name == longest)
        .expect("it is one of them");
    Ok((&mut groups[index], &rest[longest.len() + 1..]))
}

fn field<'a>(object: &'a mut Value, path: &str, name: &str) -> Result<&'a mut Value, String> {
    let fields = object.as_object_mut().expect("groups and links are objects");
    if !fields.contains_key(name) {
        let near = hint(name, fields.keys().map(String::as_str));
        let known: Vec<&str> = fields.keys().map(String::as_str).collect();
        return Err(format!("{path}: {name} is none of {}{near}", known.join(", ")));
    }
    Ok(&mut fields[name])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::model::{ProducerSpec, RequestSpec, TopicSpec};

    fn scenario() -> Scenario {
        Scenario {
            topics: vec![TopicSpec {
                name: String::from("t.1"),
                ..TopicSpec::default()
            }],
            producers: vec![ProducerSpec {
                rate: Some(10_000.0),
                ..ProducerSpec::default()
            }],
            requests: vec![RequestSpec {
                name: String::from("flood"),
                ..RequestSpec::default()
            }],
            ..Scenario::default()
        }
    }

    fn set(path: &str, value: Scalar) -> Result<Scenario, String> {
        with(&scenario(), path, &value)
    }

    #[test]
    fn every_kind_of_place_can_be_set() {
        assert_eq!(
            set("producers.load.rate", Scalar::Whole(5)).unwrap().producers[0].rate,
            Some(5.0)
        );
        assert_eq!(
            set("producers.load.rate", Scalar::Text(String::from("none")))
                .unwrap()
                .producers[0]
                .rate,
            None
        );
        assert_eq!(
            set("topics.t.1.partitions", Scalar::Whole(9)).unwrap().topics[0].partitions,
            9
        );
        let linger = set("producers.load.settings.linger.ms", Scalar::Whole(5)).unwrap();
        assert_eq!(linger.producers[0].settings["linger.ms"], Scalar::Whole(5));
        let link = set("link.round_trip_ms", Scalar::Number(72.5))
            .unwrap()
            .link
            .unwrap();
        assert_eq!(link.round_trip_ms, 72.5);
        let flood = set("requests.flood.connections", Scalar::Whole(9)).unwrap();
        assert_eq!(flood.requests[0].connections, 9);
        let disk = set("disk.read_bytes_per_second", Scalar::Whole(5)).unwrap();
        assert_eq!(disk.disk.unwrap().read_bytes_per_second, 5);
        let broker = set("broker.num.io.threads", Scalar::Text(String::from("4"))).unwrap();
        assert_eq!(broker.broker["num.io.threads"], "4");
        assert_eq!(
            set("duration_seconds", Scalar::Whole(3))
                .unwrap()
                .duration_seconds,
            3.0
        );
    }

    #[test]
    fn a_wrong_path_is_reported_with_the_nearest_one() {
        let check = |path: &str, words: &str| {
            let why = set(path, Scalar::Whole(1)).unwrap_err();
            assert!(why.contains(words), "{why}");
        };
        check("producers.laod.rate", "load may be meant");
        check("producers.load.rat", "rate may be meant");
        check("producer.load.rate", "producers may be meant");
        check("link.roundtrip_ms", "round_trip_ms may be meant");
        check("topics.t.1", "there is t.1");
        check("requests.flood.settings.acks", "settings.acks is none of");
        check("disk.read_byte_per_second", "read_bytes_per_second may be meant");
    }

    #[test]
    fn a_value_of_the_wrong_kind_is_refused() {
        let why = set("producers.load.threads", Scalar::Number(1.5)).unwrap_err();
        assert!(
            why.starts_with("producers.load.threads: ") && why.contains("u32"),
            "{why}"
        );
    }

    #[test]
    fn scaling_keeps_whole_numbers_whole() {
        let scaled = with_scaled(&scenario(), "topics.t.1.partitions", 0.01).unwrap();
        assert_eq!(scaled.topics[0].partitions, 1);
        let scaled = with_scaled(&scenario(), "producers.load.rate", 0.1).unwrap();
        assert_eq!(scaled.producers[0].rate, Some(1_000.0));
        assert!(
            with_scaled(&scenario(), "producers.load.contents", 2.0)
                .unwrap_err()
                .contains("no number")
        );
    }

    #[test]
    fn short_names_leave_out_what_paths_share() {
        assert_eq!(short("producers.load.settings.linger.ms"), "linger.ms");
        assert_eq!(short("topics.t.partitions"), "t.partitions");
        assert_eq!(short("link.round_trip_ms"), "link.round_trip_ms");
    }
}
