//! The page for made-up reports.

use std::collections::BTreeMap;

use ottla_lab::report::{ProcessResult, SCHEMA, ScenarioHead, Target, Verdict};

use super::*;

fn measurement(p99: Option<f64>, flood: Option<f64>, broker_cores: f64) -> Measurement {
    let process = |name: &str, cpu_seconds| ProcessResult {
        name: name.to_owned(),
        cpu_seconds,
        ..ProcessResult::default()
    };
    Measurement {
        seconds: 10.0,
        figures: p99
            .map(|p99| (String::from("latency_p99_ms"), p99))
            .into_iter()
            .collect(),
        requests: (flood.into_iter())
            .map(|rate| GroupResult {
                name: String::from("flood"),
                records_per_second: rate,
                ..GroupResult::default()
            })
            .collect(),
        processes: vec![process("broker", 10.0 * broker_cores), process("generator", 1.0)],
        ..Measurement::default()
    }
}

fn point(name: &str, measurements: Vec<Measurement>) -> Point {
    Point {
        name: name.to_owned(),
        on: vec![OnTarget {
            measurements,
            ..OnTarget::default()
        }],
        ..Point::default()
    }
}

fn report() -> Report {
    Report {
        schema: SCHEMA.to_owned(),
        answer: None,
        scenario: ScenarioHead {
            name: String::from("noisy_neighbour"),
            question: String::from("What?"),
            source: None,
        },
        verdict: Verdict::default(),
        manifest: ottla_lab::report::Manifest {
            targets: vec![Target {
                name: String::from("Ottla"),
                ..Target::default()
            }],
            ..Default::default()
        },
        calibration: Vec::new(),
        points: vec![
            point(
                "alone",
                vec![
                    measurement(Some(10.0), None, 0.4),
                    measurement(Some(5.0), None, 0.4),
                    measurement(Some(10.0), None, 0.4),
                ],
            ),
            point("flood alone", vec![measurement(None, Some(1_000.0), 0.8)]),
            point(
                "beside flood",
                vec![
                    measurement(Some(11.0), Some(700.0), 1.0),
                    measurement(Some(6.5), Some(600.0), 1.0),
                    measurement(Some(30.0), Some(600.0), 1.0),
                ],
            ),
        ],
        was_interrupted: false,
    }
}

fn processors(brokers: &[usize], clients: &[usize]) -> Processors {
    Processors {
        brokers: brokers.to_vec(),
        clients: clients.to_vec(),
    }
}

#[test]
fn a_victim_is_compared_within_its_own_round() {
    let report = report();
    // 11/10, 6.5/5 and 30/10.
    let ratios = ratios(&report, &report.points[2], 0);
    assert_eq!(ratios, [1.1, 1.3, 3.0]);
    assert_eq!(ratio_cell(&ratios), "**1.3** [1.1, 3]");
    assert_eq!(ratio_cell(&[1.1]), "1.1");
    assert_eq!(ratio_cell(&[]), "-");
}

#[test]
fn the_rest_is_what_the_victim_does_not_use() {
    let report = report();
    let (victim, disturber) = (&report.points[0].on[0], &report.points[1].on[0]);
    // 0.6 of the 0.8 processors that the flood takes alone; the clients' processors are nearly
    // idle.
    let left = left_over(victim, disturber, &processors(&[0], &[1])).unwrap();
    assert!((left - 0.75).abs() < 1e-9, "{left}");
    // Two processors for all programs, 0.5 of them used by the victim.
    assert_eq!(
        left_over(victim, disturber, &processors(&[0, 1], &[0, 1])),
        Some(1.0)
    );
    let row = disturber_row(
        &report,
        "flood",
        &report.points[1],
        &report.points[2],
        0,
        &processors(&[0], &[1]),
    );
    // Only the first round has a measurement of the victim alone.
    assert_eq!(row[..5], ["1,000", "600", "70 %", "75 %", "93.3 %"]);
}

#[test]
fn the_page_has_a_row_for_each_point_with_a_victim_and_marks_invalid_ones() {
    let mut report = report();
    report.points[2].on[0].verdict.reasons = vec![String::from("7 records were not acknowledged")];
    for point in &mut report.points {
        point.on[0].verdict.caveats = vec![String::from("a loopback run")];
    }
    let page = write(&[report], &processors(&[0], &[1]));
    let rows: BTreeMap<&str, &str> = page.lines().filter_map(|line| line.split_once(" | ")).collect();
    assert!(rows["| alone"].starts_with("Ottla | - | 10 [5, 10]"), "{page}");
    assert!(rows["| beside flood"].contains("~~**1.3**"), "{page}");
    assert!(rows["| flood"].contains("| 1,000 | 600 |"), "{page}");
    assert!(
        page.contains("- beside flood (Ottla): INVALID: 7 records were not acknowledged"),
        "{page}"
    );
    assert!(page.contains("- everywhere: a loopback run"), "{page}");
}
