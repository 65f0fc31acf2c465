//! In what the points of a scenario differ.

use std::collections::{BTreeMap, BTreeSet};

use crate::scenario::path;
use crate::scenario::sweep::ConcretePoint;

/// A setting that differs between points, or several that always change together.
#[derive(Clone, Debug)]
pub(super) struct Axis {
    /// As in the names of points: `linger.ms`.
    pub(super) name: String,
    paths: Vec<String>,
    /// One for each point; `None`: not set.
    pub(super) values: Vec<Option<String>>,
    pub(super) is_in_question: bool,
}

impl Axis {
    /// The rate at which records or requests are due.
    pub(super) fn is_load(&self) -> bool {
        self.paths.iter().all(|path| path.ends_with(".rate"))
    }

    /// Larger records are fewer for the same bytes.
    pub(super) fn is_record_size(&self) -> bool {
        self.paths.iter().any(|path| path.ends_with(".record_bytes"))
    }
}

pub(super) fn of(points: &[ConcretePoint], question: &str) -> Vec<Axis> {
    let paths: BTreeSet<&String> = points.iter().flat_map(|point| point.settings.keys()).collect();
    // By which points have equal values: settings that change together are one axis.
    let mut groups: BTreeMap<Vec<usize>, Axis> = BTreeMap::new();
    for path in paths {
        let values: Vec<Option<String>> = points.iter().map(|point| value(point, path)).collect();
        let first_with = |value| values.iter().position(|other| other == value).unwrap_or(0);
        let pattern: Vec<usize> = values.iter().map(first_with).collect();
        if pattern.iter().all(|first| *first == 0) {
            continue;
        }
        let axis = groups.entry(pattern).or_insert_with(|| Axis {
            name: String::new(),
            paths: Vec::new(),
            values: values.clone(),
            is_in_question: false,
        });
        axis.paths.push(path.clone());
    }
    let mut axes: Vec<Axis> = groups.into_values().collect();
    for axis in &mut axes {
        let named = |path: &&String| question.contains(path::short(path));
        let setting = |path: &&String| path.contains(".settings.");
        let chosen = (axis.paths.iter().find(named))
            .or_else(|| axis.paths.iter().find(setting))
            .unwrap_or(&axis.paths[0]);
        axis.is_in_question = named(&chosen);
        axis.name = path::short(chosen).to_owned();
    }
    axes
}

/// In one form for a value that the point sets and one that it takes from the scenario.
fn value(point: &ConcretePoint, path: &str) -> Option<String> {
    let text = path::text(&point.scenario, path).or_else(|| point.settings.get(path).cloned())?;
    match text.parse::<f64>() {
        Ok(number) => Some(number.to_string()),
        Err(_) => Some(text).filter(|text| text != "none"),
    }
}
