//! From a scenario to its points, each a scenario of its own, which are measured one after the
//! other.

use std::collections::{BTreeMap, BTreeSet};

use super::error::{ScenarioError, hint};
use super::model::{PointSpec, Scalar, Scenario, Security};
use super::path;

/// More points would run for hours and fill an unreadable report.
const POINTS_MAX: usize = 200;
/// A table has two dimensions.
const SWEPT_MAX: usize = 2;

/// One combination of settings, ready to be run.
#[derive(Clone, Debug, PartialEq)]
pub struct ConcretePoint {
    /// Unique among the points of the scenario.
    pub name: String,
    /// With the point's values set, without points and sweep.
    pub scenario: Scenario,
    /// What distinguishes it from other points, by path.
    pub settings: BTreeMap<String, String>,
    /// What the source reported, at the source's size.
    pub reported: BTreeMap<String, f64>,
    /// The source's verdict.
    pub diagnosis: Option<String>,
}

/// Returns every combination of `sweep`, then all of `points`; the scenario itself if there is
/// neither.
///
/// - Errors: an unknown path, a value of the wrong kind, two points of one name, too many points.
pub fn points(scenario: &Scenario) -> Result<Vec<ConcretePoint>, ScenarioError> {
    let mut specs = combinations(scenario)?;
    specs.extend(scenario.points.iter().cloned());
    if specs.len() > POINTS_MAX {
        let message = format!("{} points; at most {POINTS_MAX} are run", specs.len());
        return Err(ScenarioError::new(&scenario.name, message));
    }
    if specs.is_empty() {
        specs.push(PointSpec {
            name: scenario.name.clone(),
            ..PointSpec::default()
        });
    }
    let mut names = BTreeSet::new();
    let mut points = Vec::new();
    for spec in specs {
        if spec.name.is_empty() {
            return Err(ScenarioError::new(&scenario.name, "a point has no name").at("points"));
        }
        if !names.insert(spec.name.clone()) {
            let message = format!("two points have the name {}", spec.name);
            return Err(ScenarioError::new(&scenario.name, message).at("points"));
        }
        points.push(concrete(scenario, spec)?);
    }
    Ok(points)
}

/// Removes what says how the embedded broker is reached; returns whether there was any.
pub fn without_security(scenario: &mut Scenario) -> bool {
    let is_swept = scenario.sweep.remove(path::SECURITY).is_some();
    let points = scenario.points.iter_mut();
    let set = points
        .filter_map(|point| point.set.remove(path::SECURITY))
        .count();
    let was = std::mem::take(&mut scenario.security);
    is_swept || set > 0 || was != Security::default()
}

fn concrete(scenario: &Scenario, spec: PointSpec) -> Result<ConcretePoint, ScenarioError> {
    let mut own = Scenario {
        sweep: BTreeMap::new(),
        points: Vec::new(),
        ..scenario.clone()
    };
    for (place, value) in &spec.set {
        own = path::with(&own, place, value)
            .map_err(|why| ScenarioError::new(&scenario.name, why).at(format!("points.{}.set", spec.name)))?;
    }
    for group in &spec.without {
        take_out(&mut own, group).map_err(|why| {
            ScenarioError::new(&scenario.name, why).at(format!("points.{}.without", spec.name))
        })?;
    }
    own.expect.extend(spec.expect);
    let mut settings: BTreeMap<String, String> = (spec.set.iter())
        .map(|(place, value)| (place.clone(), value.to_string()))
        .collect();
    if !spec.without.is_empty() {
        settings.insert(String::from("without"), spec.without.join(", "));
    }
    Ok(ConcretePoint {
        name: spec.name,
        scenario: own,
        settings,
        reported: spec.reported,
        diagnosis: spec.diagnosis,
    })
}

/// Removes one of the scenario's groups; the topics stay, so that every point is prepared in the
/// same way.
///
/// - Errors: no group has this name; names the nearest one.
fn take_out(scenario: &mut Scenario, group: &str) -> Result<(), String> {
    let names = |scenario: &Scenario| -> Vec<String> {
        let producers = scenario.producers.iter().map(|group| &group.name);
        let consumers = scenario.consumers.iter().map(|group| &group.name);
        let requests = scenario.requests.iter().map(|group| &group.name);
        producers.chain(consumers).chain(requests).cloned().collect()
    };
    let before = names(scenario);
    if before.iter().all(|name| name != group) {
        let near = hint(group, before.iter().map(String::as_str));
        return Err(format!(
            "{group} is none of the groups {}{near}",
            before.join(", ")
        ));
    }
    scenario.producers.retain(|spec| spec.name != group);
    scenario.consumers.retain(|spec| spec.name != group);
    scenario.requests.retain(|spec| spec.name != group);
    Ok(())
}

/// The last path of the sweep changes fastest.
fn combinations(scenario: &Scenario) -> Result<Vec<PointSpec>, ScenarioError> {
    let wrong = |message: String| ScenarioError::new(&scenario.name, message).at("sweep");
    let swept = scenario.sweep.len();
    if swept > SWEPT_MAX {
        return Err(wrong(format!(
            "{swept} settings are swept; at most {SWEPT_MAX} can be"
        )));
    }
    if let Some((place, _)) = scenario.sweep.iter().find(|(_, values)| values.is_empty()) {
        return Err(wrong(format!("{place} has no values")));
    }
    let count: usize = scenario.sweep.values().map(Vec::len).product();
    if swept == 0 {
        return Ok(Vec::new());
    }
    if count > POINTS_MAX {
        return Err(wrong(format!(
            "{count} combinations; at most {POINTS_MAX} are run"
        )));
    }
    let mut sets: Vec<BTreeMap<String, Scalar>> = vec![BTreeMap::new()];
    for (place, values) in &scenario.sweep {
        sets = sets
            .iter()
            .flat_map(|set| {
                values.iter().map(move |value| {
                    let mut longer = set.clone();
                    longer.insert(place.clone(), value.clone());
                    longer
                })
            })
            .collect();
    }
    Ok(sets
        .into_iter()
        .map(|set| PointSpec {
            name: name(&set),
            set,
            ..PointSpec::default()
        })
        .collect())
}

fn name(set: &BTreeMap<String, Scalar>) -> String {
    let parts: Vec<String> = set
        .iter()
        .map(|(place, value)| format!("{}={value}", path::short(place)))
        .collect();
    parts.join(" ")
}

/// The scenario at another size: everything named in `scale.of` is multiplied, in points and sweep
/// as well.
///
/// - `factor`: of the source's size; `None`: `scale.default`, which suits a small machine.
/// - Shape: the result has no `scale`, so that its text can be run again unchanged. Reported
///   figures stay the source's.
pub fn scaled(scenario: &Scenario, factor: Option<f64>) -> Scenario {
    let Some(scale) = scenario.scale.clone() else {
        return scenario.clone();
    };
    let factor = factor.unwrap_or(scale.default);
    let mut sized = Scenario {
        scale: None,
        ..scenario.clone()
    };
    for place in &scale.of {
        // The check of the scenario has ensured that there is a number at every path.
        if let Ok(changed) = path::with_scaled(&sized, place, factor) {
            sized = changed;
        }
        let times = |value: &mut Scalar| {
            if let Some(scaled) = path::times(value, factor) {
                *value = scaled;
            }
        };
        sized.sweep.get_mut(place).into_iter().flatten().for_each(times);
        sized
            .points
            .iter_mut()
            .filter_map(|point| point.set.get_mut(place))
            .for_each(times);
    }
    sized
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::model::{ProducerSpec, RequestSpec, Scale, TopicSpec};

    fn scenario() -> Scenario {
        Scenario {
            name: String::from("example"),
            topics: vec![TopicSpec {
                name: String::from("t"),
                partitions: 100,
                ..TopicSpec::default()
            }],
            producers: vec![ProducerSpec::default()],
            ..Scenario::default()
        }
    }

    fn whole(numbers: &[i64]) -> Vec<Scalar> {
        numbers.iter().copied().map(Scalar::Whole).collect()
    }

    #[test]
    fn a_scenario_without_sweep_is_one_point() {
        let points = points(&scenario()).unwrap();
        assert_eq!((points.len(), points[0].name.as_str()), (1, "example"));
    }

    #[test]
    fn every_combination_of_two_settings_is_a_point() {
        let mut scenario = scenario();
        scenario.sweep = BTreeMap::from([
            (String::from("producers.load.settings.linger.ms"), whole(&[0, 5])),
            (String::from("topics.t.partitions"), whole(&[1, 3, 9])),
        ]);
        let points = points(&scenario).unwrap();
        let names: Vec<&str> = points.iter().map(|point| point.name.as_str()).collect();
        assert_eq!(names.len(), 6);
        assert_eq!(names[1], "linger.ms=0 t.partitions=3");
        assert_eq!(points[5].scenario.topics[0].partitions, 9);
        assert_eq!(
            points[5].scenario.producers[0].settings["linger.ms"],
            Scalar::Whole(5)
        );
        assert_eq!(points[5].settings["topics.t.partitions"], "9");
        assert!(points[5].scenario.sweep.is_empty());
    }

    #[test]
    fn points_keep_what_the_source_reported() {
        let mut scenario = scenario();
        scenario.points = vec![PointSpec {
            name: String::from("I"),
            set: BTreeMap::from([(String::from("producers.load.threads"), Scalar::Whole(3))]),
            reported: BTreeMap::from([(String::from("records_per_second"), 83_550.0)]),
            diagnosis: Some(String::from("SENDER")),
            ..PointSpec::default()
        }];
        let points = points(&scenario).unwrap();
        assert_eq!(points[0].scenario.producers[0].threads, 3);
        assert_eq!(points[0].reported["records_per_second"], 83_550.0);
        scenario.points.push(scenario.points[0].clone());
        assert!(
            super::points(&scenario)
                .unwrap_err()
                .to_string()
                .contains("two points have the name I")
        );
    }

    #[test]
    fn security_is_left_out_for_a_cluster_that_is_reached_otherwise() {
        let mut scenario = crate::scenario::catalog::find("tls").unwrap();
        let securities = |scenario: &Scenario| -> Vec<Security> {
            let points = points(scenario).unwrap();
            points.iter().map(|point| point.scenario.security).collect()
        };
        use Security::{Mtls, Plaintext, SaslSsl, Ssl};
        assert_eq!(securities(&scenario), [Plaintext, Ssl, SaslSsl, Mtls]);
        assert!(without_security(&mut scenario));
        assert_eq!(securities(&scenario), [Plaintext]);
        assert!(!without_security(&mut scenario));
        scenario.security = Ssl;
        assert!(without_security(&mut scenario));
        assert_eq!(scenario.security, Plaintext);
    }

    #[test]
    fn a_point_may_leave_groups_out() {
        let mut scenario = scenario();
        scenario.requests = vec![RequestSpec {
            name: String::from("flood"),
            ..RequestSpec::default()
        }];
        scenario.expect = vec![String::from("lost == 0")];
        scenario.points = vec![
            PointSpec {
                name: String::from("alone"),
                without: vec![String::from("flood")],
                ..PointSpec::default()
            },
            PointSpec {
                name: String::from("beside"),
                expect: vec![String::from("latency_p99_ms <= 1.2 * alone")],
                ..PointSpec::default()
            },
        ];
        let made = points(&scenario).unwrap();
        assert!(made[0].scenario.requests.is_empty());
        assert_eq!(made[0].scenario.producers.len(), 1);
        assert_eq!(made[0].settings["without"], "flood");
        assert_eq!(made[1].scenario.requests.len(), 1);
        assert_eq!(
            made[1].scenario.expect,
            ["lost == 0", "latency_p99_ms <= 1.2 * alone"]
        );
        scenario.points[0].without = vec![String::from("floods")];
        let why = points(&scenario).unwrap_err().to_string();
        assert!(why.contains("flood may be meant"), "{why}");
    }

    #[test]
    fn a_sweep_that_cannot_be_run_is_refused() {
        let mut scenario = scenario();
        let check = |scenario: &Scenario, words: &str| {
            let why = points(scenario).unwrap_err().to_string();
            assert!(why.contains(words), "{why}");
        };
        scenario.sweep = BTreeMap::from([(String::from("producers.load.thread"), whole(&[1]))]);
        check(&scenario, "threads may be meant");
        scenario.sweep = BTreeMap::from([(String::from("producers.load.threads"), Vec::new())]);
        check(&scenario, "has no values");
        scenario.sweep = BTreeMap::from([(
            String::from("producers.load.rate"),
            whole(&(1..=201).collect::<Vec<_>>()),
        )]);
        check(&scenario, "at most 200");
        scenario.sweep = ["a", "b", "c"]
            .map(|place| (String::from(place), whole(&[1])))
            .into();
        check(&scenario, "at most 2");
    }

    #[test]
    fn scale_reaches_points_and_sweep() {
        let mut scenario = scenario();
        let place = String::from("topics.t.partitions");
        scenario.sweep = BTreeMap::from([(place.clone(), whole(&[10, 800]))]);
        scenario.points = vec![PointSpec {
            name: String::from("most"),
            set: BTreeMap::from([(place.clone(), Scalar::Whole(7_200))]),
            ..PointSpec::default()
        }];
        scenario.scale = Some(Scale {
            default: 0.1,
            of: vec![place.clone()],
        });
        let small = scaled(&scenario, None);
        assert_eq!(small.topics[0].partitions, 10);
        assert_eq!(small.sweep[&place], whole(&[1, 80]));
        assert_eq!(small.points[0].set[&place], Scalar::Whole(720));
        assert_eq!(scaled(&scenario, Some(1.0)).points, scenario.points);
        assert_eq!(scaled(&small, Some(0.1)), small, "scaled once");
    }
}
