//! Our own dashboard, `packaging/grafana/ottla.json`: its queries are asked like those of others.

use std::fs;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::questions::{Dashboard, Panel};
use crate::tidy;

pub const PATH: &str = "packaging/grafana/ottla.json";

pub fn dashboard() -> Result<Dashboard> {
    let text = fs::read_to_string(tidy::repository().join(PATH)).context(PATH)?;
    let document: Value = serde_json::from_str(&text).context(PATH)?;
    let panels: Vec<Panel> = (document["panels"].as_array().context("no panels")?)
        .iter()
        .filter(|panel| panel["type"] != "row")
        .map(panel)
        .collect::<Result<_>>()?;
    ensure!(!panels.is_empty(), "{PATH} has no panels");
    Ok(Dashboard {
        name: "Ottla",
        source: "packaging/grafana/ottla.json",
        selectors: Vec::new(),
        panels,
    })
}

fn panel(panel: &Value) -> Result<Panel> {
    let shows = panel["title"].as_str().context("a panel without a title")?;
    let targets = panel["targets"].as_array().context("a panel without targets")?;
    let query = |target: &Value| -> Result<String> {
        let query = target["expr"].as_str().context("a target without a query")?;
        Ok(with_values(query))
    };
    Ok(Panel {
        shows: shows.to_owned(),
        queries: targets.iter().map(query).collect::<Result<_>>()?,
        never: None,
    })
}

/// Puts values for Grafana's variables.
fn with_values(query: &str) -> String {
    query
        .replace("$job", "kafka-exporter")
        .replace("$instance", ".*")
        .replace("$__rate_interval", "1m")
}
