//! The report as one HTML file: no script, no requests, readable in light and dark mode, on a phone
//! and on paper.
//!
//! Reading order: the modules below, from the entry point down to the foundations.

mod load;
mod run;
mod stages;
mod chart;
mod summary;
mod manifest;
mod table;

mod axis;

use crate::markup::Markup;
use crate::report::Report;

const STYLE: &str = include_str!("style.css");
/// Nothing may be loaded from anywhere, whatever a report's texts contain.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

/// Renders the whole page.
///
/// - Shape: the report's JSON is in the element `script#report`, so that one file is enough to read
///   and compare it.
pub fn render(report: &Report) -> String {
    let mut page = Markup::default();
    page.literal("<!DOCTYPE html>\n");
    page.nest("html", &[("lang", &"en")], |page| {
        page.nest("head", &[], |page| head(report, page));
        page.nest("body", &[], |page| body(report, page));
    });
    page.into_string()
}

fn head(report: &Report, page: &mut Markup) {
    page.shape("meta", &[("charset", &"utf-8")]);
    page.shape(
        "meta",
        &[
            ("name", &"viewport"),
            ("content", &"width=device-width, initial-scale=1"),
        ],
    );
    page.shape(
        "meta",
        &[("http-equiv", &"Content-Security-Policy"), ("content", &POLICY)],
    );
    let title = format!("{}: {}", report.scenario.name, report.verdict.word());
    page.leaf("title", &[], title);
    page.open("style", &[]);
    page.literal(STYLE);
    page.close("style");
}

fn body(report: &Report, page: &mut Markup) {
    page.nest("main", &[], |page| {
        summary::draw(report, page);
        load::draw(report, page);
        page.leaf("h2", &[], "Point by point");
        let is_only = report.points.len() == 1;
        for point in &report.points {
            run::draw(report, point, is_only, page);
        }
        manifest::draw(report, page);
    });
    page.open("script", &[("type", &"application/json"), ("id", &"report")]);
    // A value of maps and numbers always has a JSON form; without it the page is still useful.
    page.json(&serde_json::to_string(report).unwrap_or_default());
    page.close("script");
}

/// The target's name. Reports of a single target do not repeat it on every line.
fn target_name(report: &Report, index: usize) -> String {
    let target = report.manifest.targets.get(index);
    target.map_or_else(|| format!("target {}", index + 1), |target| target.name.clone())
}

#[cfg(test)]
mod tests;
