//! The content of a page, and that no text of a report can inject anything.

use super::*;
use crate::bench::sample;
use crate::report::{Measurement, OnTarget, Point, Second};

#[test]
fn every_chart_is_there() {
    let page = render(&sample::report());
    for title in [
        "Latency over load",
        "Latency over time",
        "Rates over time",
        "Histogram",
        "Percentiles",
        "Stages of the slowest records",
        "Processors",
        "Memory",
        "Disk and network of the whole machine",
    ] {
        assert!(page.contains(&format!("<h4>{title}")), "{title}");
    }
    // Two charts of latency over load; eight for each of three points on two targets.
    assert_eq!(page.matches("role=\"img\"").count(), 2 + 3 * 2 * 8);
}

#[test]
fn points_of_one_load_are_shown_side_by_side() {
    let mut report = sample::report();
    for measurement in report
        .points
        .iter_mut()
        .flat_map(|point| &mut point.on)
        .flat_map(|on| &mut on.measurements)
    {
        measurement
            .figures
            .insert(String::from("records_per_second"), 1_000.0);
    }
    let page = render(&report);
    assert!(page.contains("Latency by point") && !page.contains("<h4>Latency over load"));
    assert!(page.contains("class=\"tick middle\"") && page.contains(">5000/s</text>"));
}

#[test]
fn hostile_texts_are_escaped() {
    let page = render(&sample::report());
    assert_eq!(page.matches("<script").count(), 1, "the report's own JSON");
    assert!(!page.contains("<img"));
    assert!(page.contains("&lt;script&gt;"));
    // No attribute loads anything, because none that could is present.
    for attribute in [" src=\"", " href=\"", "url(", "@import"] {
        assert!(!page.contains(attribute), "{attribute}");
    }
}

#[test]
fn the_page_holds_its_report() {
    let report = sample::report();
    let page = render(&report);
    let (_, rest) = page.split_once("id=\"report\">").unwrap();
    let (json, _) = rest.split_once("</script>").unwrap();
    let back: Report = serde_json::from_str(json).unwrap();
    // The same text, once through the page and once directly: parsing a number may change its last
    // digit.
    let direct: Report = serde_json::from_str(&serde_json::to_string(&report).unwrap()).unwrap();
    assert!(serde_json::to_value(back).unwrap() == serde_json::to_value(direct).unwrap());
}

#[test]
fn the_answer_comes_first_and_the_verdict_next() {
    let mut report = sample::report();
    let page = render(&report);
    let answer = page
        .find("<p class=\"answer\">Not answered: the run is INVALID")
        .unwrap();
    let verdict = page.find("<strong>INVALID").unwrap();
    assert!(answer < verdict);
    assert!(verdict < page.find("Is every chart there?").unwrap());
    assert!(verdict < page.find("<table").unwrap());
    // Older reports have no answer.
    report.answer = None;
    assert!(!render(&report).contains("class=\"answer\""));
}

#[test]
fn latencies_without_a_schedule_are_called_saturated() {
    let mut report = sample::report();
    for on in report.points.iter_mut().flat_map(|point| &mut point.on) {
        on.verdict.reasons.clear();
        for group in on
            .measurements
            .iter_mut()
            .flat_map(|measurement| &mut measurement.producers)
        {
            group.is_saturated = true;
        }
    }
    assert!(render(&report).contains(" saturated</td>"));
}

#[test]
fn an_empty_report_still_gives_a_page() {
    let mut report = sample::report();
    report.points.clear();
    assert!(render(&report).ends_with("</html>\n"));
    report.points.push(Point::default());
    assert!(render(&report).ends_with("</html>\n"));
    report.points[0].on = vec![OnTarget {
        measurements: vec![Measurement::default()],
        ..OnTarget::default()
    }];
    assert!(render(&report).contains("no readers"));
}

#[test]
fn a_run_of_a_day_is_a_small_page() {
    let mut report = sample::report();
    report.points.truncate(1);
    for on in &mut report.points[0].on {
        for measurement in &mut on.measurements {
            measurement.timeline = (0..86_400)
                .map(|second| Second {
                    at: f64::from(second),
                    sent: 1_000,
                    latency_max_ms: f64::from(second % 100),
                    ..Second::default()
                })
                .collect();
        }
    }
    let page = render(&report);
    let (shown, _) = page.split_once("<script").unwrap();
    assert!(shown.len() < 1_000_000, "{}", shown.len());
    assert!(shown.contains("In steps of 720 s"));
}

#[test]
fn nan_and_infinity_do_not_break_the_page() {
    let mut report = sample::report();
    let measurement = &mut report.points[0].on[0].measurements[0];
    for value in measurement.figures.values_mut() {
        *value = f64::NAN;
    }
    measurement.timeline[0].latency_p99_ms = f64::INFINITY;
    measurement.stages.as_mut().unwrap().slowest[0].means_ms = vec![f64::NAN; 9];
    let page = render(&report);
    assert!(
        !page.contains("NaN") && !page.contains("\"inf"),
        "a coordinate is no number"
    );
}
