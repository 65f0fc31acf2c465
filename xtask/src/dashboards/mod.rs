//! `cargo xtask dashboards [--publish]`: asks the questions of existing dashboards of a real
//! Prometheus that scrapes an Ottla under a little load.
//!
//! - `questions.rs`: what the dashboards ask; facts about them, not copies.
//! - A panel that should have an answer and has none fails the run, and so does the opposite.
//! - `--publish` writes `docs/measurements/dashboards.md`.

mod load;
mod own;
mod prometheus;
mod questions;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};

use crate::console::Served;
use crate::interop::toolchain;
use crate::tidy;
use load::Load;
use prometheus::Prometheus;
use questions::{Dashboard, Panel};

const PAGE: &str = "docs/measurements/dashboards.md";

/// Rates need two scrapes; a slow machine gets this long until the last panel has an answer.
const WAIT_MAX: Duration = Duration::from_secs(120);

pub fn run(arguments: &[String]) -> Result<()> {
    let is_published = match arguments {
        [] => false,
        [one] if one == "--publish" => true,
        _ => bail!("usage: cargo xtask dashboards [--publish]"),
    };
    let version = prometheus::version()?;
    let home = toolchain::target_directory().join("dashboards");
    if home.exists() {
        fs::remove_dir_all(&home)?;
    }
    fs::create_dir_all(&home)?;
    let mut dashboards = questions::dashboards();
    dashboards.push(own::dashboard()?);
    let ottla = toolchain::build_ottla()?;
    let broker = Served::start(&ottla, &home)?;
    let load = Load::start(&broker.bootstrap)?;
    let admin = broker.console.trim_start_matches("http://");
    let prometheus = Prometheus::start(&home, admin)?;
    let answers = ask(&prometheus, &dashboards)?;
    load.stop()?;
    let page = page(&version, &dashboards, &answers);
    println!("{}", summary(&dashboards, &answers));
    if is_published {
        fs::write(tidy::repository().join(PAGE), page)?;
    }
    check(&dashboards, &answers)
}

/// Whether a query had an answer.
type Answers = BTreeMap<String, bool>;

/// Asks until all that should have an answer have one, or the time is over.
fn ask(prometheus: &Prometheus, dashboards: &[Dashboard]) -> Result<Answers> {
    let started = Instant::now();
    let mut answers = Answers::new();
    loop {
        let mut missing = 0;
        for (panel, query) in all(dashboards) {
            if answers.get(query) != Some(&true) {
                let is_answered = prometheus.is_answered(query)?;
                answers.insert(query.to_owned(), is_answered);
                missing += usize::from(panel.never.is_none() && !is_answered);
            }
        }
        if missing == 0 || started.elapsed() > WAIT_MAX {
            return Ok(answers);
        }
        std::thread::sleep(Duration::from_millis(500));
    }
}

fn all(dashboards: &[Dashboard]) -> impl Iterator<Item = (&Panel, &str)> {
    let panels = dashboards
        .iter()
        .flat_map(|dashboard| dashboard.selectors.iter().chain(&dashboard.panels));
    panels.flat_map(|panel| panel.queries.iter().map(move |query| (panel, query.as_str())))
}

fn is_answered(panel: &Panel, answers: &Answers) -> bool {
    panel.queries.iter().all(|query| answers[query])
}

fn check(dashboards: &[Dashboard], answers: &Answers) -> Result<()> {
    let wrong: Vec<String> = all(dashboards)
        .filter(|(panel, query)| panel.never.is_none() != answers[*query])
        .map(|(panel, query)| match panel.never {
            None => format!("no answer: {}: {query}", panel.shows),
            Some(why) => format!("answered, but said never to be ({why}): {query}"),
        })
        .collect();
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

fn count(dashboard: &Dashboard, answers: &Answers) -> usize {
    let panels = dashboard.panels.iter();
    panels.filter(|panel| is_answered(panel, answers)).count()
}

fn summary(dashboards: &[Dashboard], answers: &Answers) -> String {
    let mut text = String::from("| dashboard | panels | with an answer | without |\n|---|---|---|---|\n");
    for dashboard in dashboards {
        let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
        for panel in &dashboard.panels {
            if !is_answered(panel, answers) {
                *reasons.entry(panel.never.unwrap_or("?")).or_default() += 1;
            }
        }
        let reasons: Vec<String> = reasons
            .iter()
            .map(|(why, count)| format!("{count}: {why}"))
            .collect();
        let (panels, answered) = (dashboard.panels.len(), count(dashboard, answers));
        let _ = writeln!(
            text,
            "| {} | {panels} | {answered} | {} |",
            dashboard.name,
            reasons.join("; ")
        );
    }
    text
}

fn page(version: &str, dashboards: &[Dashboard], answers: &Answers) -> String {
    let mut text = String::from(
        "# Dashboards on Ottla

<!-- Written by `cargo xtask dashboards --publish`. -->

Which panels of existing dashboards show something on an Ottla, asked of a real Prometheus that scrapes one under a little load:
the queries of each panel, with the labels that [the scrape configuration](../guides/dashboards.md) gives. A panel counts when each of
its queries returns a number; Grafana itself was not run. The dashboards are not part of this project.

",
    );
    let _ = writeln!(
        text,
        "Measured with `cargo xtask dashboards --publish`; {version}.\n\n{}",
        summary(dashboards, answers)
    );
    for dashboard in dashboards {
        let _ = writeln!(text, "## {}\n\nSource: {}.\n", dashboard.name, dashboard.source);
        text.push_str("| panel | answered |\n|---|---|\n");
        for panel in &dashboard.panels {
            let answered = match (is_answered(panel, answers), panel.never) {
                (true, _) => "yes".to_owned(),
                (false, why) => format!("no: {}", why.unwrap_or("?")),
            };
            let _ = writeln!(text, "| {} | {answered} |", panel.shows);
        }
        text.push('\n');
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}
