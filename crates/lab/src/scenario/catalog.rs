//! The scenarios that come with Ottla; the first line of each file is its question.

use super::error::{ScenarioError, hint};
use super::model::Scenario;
use super::parse::parse;

macro_rules! scenarios {
    ($($name:literal)*) => {
        &[$(($name, include_str!(concat!("../../scenarios/", $name, ".yaml"))),)*]
    };
}

/// By source, in the order of the sources.
const SCENARIOS: &[(&str, &str)] = scenarios! {
    "canonical"
    "kontur"
    "rtt_by_acks"
    "same_datacentre"
    "send_buffer"
    "in_flight_and_partitions"
    "record_size"
    "brokers"
    "top_speed"
    "acks"
    "linger"
    "batch_size"
    "many_producers"
    "partitions"
    "tls"
    "load_up_to_the_knee"
    "asynchronous"
    "synchronous"
    "consume_by_one_and_three"
    "nothing_lost"
    "cold_reader"
    "noisy_neighbour"
};

/// Name and YAML of each.
pub fn all() -> Vec<(&'static str, &'static str)> {
    SCENARIOS.to_vec()
}

/// - Errors: no scenario has this name; names the nearest one.
pub fn find(name: &str) -> Result<Scenario, ScenarioError> {
    match SCENARIOS.iter().find(|(known, _)| *known == name) {
        Some((name, text)) => parse(text, &format!("{name}.yaml")),
        None => {
            let near = hint(name, SCENARIOS.iter().map(|(known, _)| *known));
            let message = format!(
                "there is no scenario and no file of this name{near}; `ottla bench list` shows them all"
            );
            Err(ScenarioError::new(name, message))
        }
    }
}

/// The question of a scenario, from the first line of its text.
pub fn question(text: &str) -> Option<&str> {
    text.lines().next()?.strip_prefix("# ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::model::{DiskSpec, PointSpec, RequestSpec};
    use crate::scenario::sweep;

    #[test]
    fn every_scenario_asks_a_question_and_can_be_run_at_both_sizes() {
        for (name, text) in all() {
            let scenario = find(name).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(scenario.name, name);
            assert_eq!(question(text), Some(scenario.question.as_str()), "{name}");
            for factor in [None, Some(1.0)] {
                let points = sweep::points(&sweep::scaled(&scenario, factor)).unwrap();
                assert!(!points.is_empty(), "{name}");
            }
        }
    }

    const PAGE: &str = include_str!("../../../../docs/guides/scenarios.md");

    /// First and second cell of the rows of the table below a heading.
    fn table(heading: &str) -> Vec<(&'static str, &'static str)> {
        let (_, below) = PAGE.split_once(heading).unwrap();
        let section = below.split("\n## ").next().unwrap();
        section
            .lines()
            .filter_map(|line| {
                let mut cells = line.strip_prefix("| `")?.split(" | ");
                Some((
                    cells.next()?.strip_suffix('`')?,
                    cells.next()?.trim_end_matches(" |"),
                ))
            })
            .collect()
    }

    #[test]
    fn the_page_lists_every_scenario_and_every_figure() {
        let scenarios: Vec<(&str, &str)> = all()
            .into_iter()
            .map(|(name, text)| (name, question(text).unwrap()))
            .collect();
        assert_eq!(table("\n## The scenarios\n"), scenarios);
        assert_eq!(table("\n## Figures\n"), crate::scenario::expect::FIGURES);
    }

    #[test]
    fn the_page_s_example_can_be_run() {
        let (_, below) = PAGE.split_once("```yaml\n").unwrap();
        let (example, _) = below.split_once("```").unwrap();
        let scenario = parse(example, "docs/guides/scenarios.md").unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(sweep::points(&scenario).unwrap().len(), 3);
        let keys = serde_json::to_value(&scenario).unwrap();
        let requests = serde_json::to_value(RequestSpec::default()).unwrap();
        let disk = serde_json::to_value(DiskSpec::default()).unwrap();
        let point = serde_json::to_value(PointSpec::default()).unwrap();
        for group in [
            &keys,
            &keys["topics"][0],
            &keys["producers"][0],
            &keys["consumers"][0],
            &keys["link"],
            &requests,
            &disk,
            &point,
        ] {
            for key in group.as_object().unwrap().keys() {
                assert!(
                    PAGE.contains(&format!("{key}:")) || PAGE.contains(&format!("`{key}`")),
                    "{key} is not described"
                );
            }
        }
    }

    #[test]
    fn a_misspelt_scenario_is_reported_with_the_nearest_one() {
        let told = find("kontour").unwrap_err().to_string();
        assert!(
            told.starts_with("kontour: there is no scenario") && told.contains("kontur may be meant"),
            "{told}"
        );
    }
}
