//! The points are those of the built-in scenarios; only their figures are made up.

use super::*;
use crate::bench::sample;
use crate::report::{Expectation, GroupResult, Measurement, OnTarget, Point, Target, Verdict};
use crate::scenario::model::{Scalar, Scenario};
use crate::scenario::{catalog, path, sweep};

/// Rounds of one figure each.
type Rounds<'a> = &'a [f64];

const RATE: &str = "records_per_second";
const P99: &str = "latency_p99_ms";

fn catalog(name: &str) -> Vec<ConcretePoint> {
    sweep::points(&catalog::find(name).unwrap()).unwrap()
}

fn on(figures: &[(&str, Rounds<'_>)]) -> OnTarget {
    let rounds = figures.iter().map(|(_, rounds)| rounds.len()).max().unwrap_or(0);
    let round = |round: usize| {
        let known = figures
            .iter()
            .filter_map(|(name, rounds)| Some((*name, *rounds.get(round)?)));
        Measurement {
            figures: known.map(|(name, value)| (name.to_owned(), value)).collect(),
            ..Measurement::default()
        }
    };
    OnTarget {
        measurements: (0..rounds).map(round).collect(),
        ..OnTarget::default()
    }
}

/// - `measured`: by point, on one cluster.
fn report(name: &str, points: &[ConcretePoint], measured: Vec<OnTarget>) -> Report {
    assert_eq!(points.len(), measured.len(), "{name}");
    let mut report = sample::report();
    report.verdict = Verdict::default();
    report.was_interrupted = false;
    report.manifest.targets.truncate(1);
    let question = catalog::find(name).map(|scenario| scenario.question);
    report.scenario.question = question.unwrap_or_default();
    let all = points.iter().zip(measured).map(|(point, on)| Point {
        name: point.name.clone(),
        settings: point.settings.clone(),
        on: vec![on],
        ..Point::default()
    });
    report.points = all.collect();
    report
}

fn check(name: &str, measured: Vec<OnTarget>, expected: &str) {
    let points = catalog(name);
    let answer = of(&points, &report(name, &points, measured));
    assert_eq!(answer.sentence, expected);
    assert_eq!(
        answer.is_answered,
        !expected.starts_with("Not answered"),
        "{answer:?}"
    );
}

/// Points that held one rate, by the rounds of their p99.
fn at_one_rate(p99: &[Rounds<'_>]) -> Vec<OnTarget> {
    let held = [17_580.0; 5];
    p99.iter()
        .map(|rounds| on(&[(RATE, &held[..rounds.len()]), (P99, rounds)]))
        .collect()
}

fn rates(rates: &[Rounds<'_>]) -> Vec<OnTarget> {
    rates.iter().map(|rounds| on(&[(RATE, rounds)])).collect()
}

#[test]
fn points_of_one_rate_are_compared_by_their_latency() {
    let p99: [Rounds<'_>; 4] = [
        &[28.0, 27.5, 28.4],
        &[12.0, 12.1, 11.9],
        &[15.0, 15.5, 14.8],
        &[55.0, 56.0, 54.0],
    ];
    check(
        "linger",
        at_one_rate(&p99),
        "linger.ms=5 is best: linger.ms=50 has 4.58 times the latency p99 of linger.ms=5 (55 against 12 ms).",
    );
}

#[test]
fn points_without_a_rate_are_compared_by_throughput() {
    check(
        "asynchronous",
        rates(&[
            &[180_000.0, 181_000.0],
            &[412_000.0, 410_000.0],
            &[405_000.0, 409_000.0],
        ]),
        "3 producers is best: 2.28 times the throughput of 1 producer (411,000 against 180,500 records/s).",
    );
}

#[test]
fn a_spread_wider_than_the_difference_is_no_answer() {
    let p99: [Rounds<'_>; 4] = [
        &[10.0, 11.0, 11.8],
        &[11.1, 11.2, 11.2],
        &[11.3, 11.3, 11.3],
        &[11.7, 11.7, 11.7],
    ];
    check(
        "batch_size",
        at_one_rate(&p99),
        "Not answered: the rounds of batch.size=16384 spread by 16.4 % in latency p99, more than the 6.4 % between \
         batch.size=131072 and batch.size=16384.",
    );
    // The medians are further apart than each spreads, but one round of the faster was slower.
    let p99: [Rounds<'_>; 2] = [&[10.0, 10.0, 11.1], &[11.0, 11.5, 11.5]];
    check(
        "many_producers",
        at_one_rate(&p99),
        "Not answered: some rounds of 90 producers have a higher latency p99 than some of 900 producers, although the \
         medians differ by 15 %.",
    );
}

#[test]
fn one_round_answers_only_with_a_large_difference() {
    check(
        "many_producers",
        at_one_rate(&[&[10.0], &[10.9]]),
        "Not answered: one round of each does not confirm the 9 % between 900 producers and 90 producers in latency \
         p99; --rounds 5 measures the spread.",
    );
    check(
        "many_producers",
        at_one_rate(&[&[10.0], &[12.0]]),
        "90 producers is better: 900 producers has 20 % more latency p99 than 90 producers (12 against 10 ms, one \
         round of each).",
    );
}

#[test]
fn equal_medians_are_no_answer() {
    check(
        "many_producers",
        at_one_rate(&[&[10.0, 10.0], &[10.0, 10.0]]),
        "Not answered: there is no difference in latency p99 between 900 producers and 90 producers.",
    );
}

#[test]
fn an_invalid_run_answers_nothing() {
    let points = catalog("asynchronous");
    let mut report = report("asynchronous", &points, rates(&[&[1e5], &[2e5], &[3e5]]));
    assert!(of(&points, &report).is_answered);
    report.verdict.reasons = vec![String::from("java used 40 % of the processors")];
    let expected = "Not answered: the run is INVALID: java used 40 % of the processors.";
    assert_eq!(of(&points, &report).sentence, expected);
    report
        .verdict
        .reasons
        .extend([String::from("more"), String::from("still more")]);
    let answer = of(&points, &report);
    assert!(
        !answer.is_answered && answer.sentence.ends_with("reasons not repeated here: 2."),
        "{answer:?}"
    );
}

#[test]
fn larger_records_are_compared_by_their_bytes() {
    let mib = [0.13, 0.6, 1.2, 2.3, 9.0];
    let measured = mib
        .iter()
        .map(|mib| on(&[(RATE, &[13.0 / mib]), ("mib_per_second", &[*mib])]));
    check(
        "record_size",
        measured.collect(),
        "900 kB is best: 69.2 times the throughput of 10 kB (9 against 0.13 MiB/s, one round of each).",
    );
}

#[test]
fn of_several_settings_the_single_change_with_the_largest_effect_is_named() {
    let carried = [13.0, 13.1, 13.0, 2.6, 5.9, 12.0, 0.8, 1.9, 3.9];
    let measured = carried
        .iter()
        .map(|rate| on(&[(RATE, &[*rate]), ("mib_per_second", &[1.0])]));
    // The window of the link changes with the buffer and is not another setting.
    check(
        "send_buffer",
        measured.collect(),
        "Of single changes, send.buffer.bytes matters most: 600 kB, buffer 1024000 has 4.88 times the throughput of \
         600 kB, buffer 102400 (3.9 against 0.8 records/s, one round of each).",
    );
}

#[test]
fn a_setting_of_the_question_comes_before_others_and_load_is_no_setting() {
    let held: &[f64] = &[20_000.0, 20_000.0];
    let measured = vec![
        on(&[(RATE, &[400_000.0, 401_000.0])]),
        on(&[(RATE, &[300_000.0, 301_000.0])]),
        on(&[(RATE, &[900_000.0, 901_000.0])]),
        on(&[(RATE, held), (P99, &[4.0, 4.1])]),
        on(&[(RATE, held), (P99, &[7.0, 7.1])]),
    ];
    check(
        "acks",
        measured,
        "Of single changes, acks matters most: acks=all at a rate has 1.74 times the latency p99 of acks=1 at a rate \
         (7.05 against 4.05 ms).",
    );
}

#[test]
fn what_another_load_does_to_the_rate_is_no_finding() {
    let measured = catalog("kontur").into_iter().map(|point| {
        let due: f64 = point.settings["producers.load.rate"].parse().unwrap_or(1e6);
        let rate = if point.name == "II" { 2.0 * due } else { due };
        on(&[(RATE, &[rate])])
    });
    let points = catalog("kontur");
    let answer = of(&points, &report("kontur", &points, measured.collect()));
    let expected = "Of single changes, batch.size matters most: II has 2 times the throughput of I (";
    assert!(answer.sentence.starts_with(expected), "{answer:?}");
}

#[test]
fn the_knee_is_where_latency_doubles() {
    let points = catalog("load_up_to_the_knee");
    let measured = |p99: &[f64]| {
        let mut all = vec![on(&[(RATE, &[500_000.0])])];
        all.extend(p99.iter().map(|p99| on(&[(RATE, &[1.0]), (P99, &[*p99])])));
        all
    };
    check(
        "load_up_to_the_knee",
        measured(&[4.9, 2.2, 2.0, 2.1, 2.6, 3.1, 41.0, 95.0]),
        "The knee is between 120000 records/s and 160000 records/s: 160000 records/s has 13.2 times the latency p99 of \
         120000 records/s (41 against 3.1 ms, one round of each).",
    );
    check(
        "load_up_to_the_knee",
        measured(&[2.2, 2.2, 2.0, 2.1, 2.6, 3.1, 3.2, 3.3]),
        "There is no knee up to 200000 records/s: the latency p99 stays between 2 and 3.3 ms.",
    );
    let mut report = report("load_up_to_the_knee", &points, measured(&[1.0; 8]));
    report.points[3].on[0].measurements[0].figures.remove(P99);
    let expected = "Not answered: the latency p99 of 20000 records/s was not measured.";
    assert_eq!(of(&points, &report).sentence, expected);
}

#[test]
fn one_rate_beside_the_capacity_has_both_numbers() {
    check(
        "canonical",
        vec![
            on(&[(RATE, &[412_000.0])]),
            on(&[(RATE, &[50_000.0]), (P99, &[3.1])]),
        ],
        "capacity carries 412,000 records/s, and the latency p99 of 50000 records/s is 3.1 ms.",
    );
}

#[test]
fn a_point_that_expects_something_of_another_is_compared_with_it() {
    let mut measured: Vec<OnTarget> = Vec::new();
    for point in catalog("noisy_neighbour") {
        let p99: Rounds<'_> = match point.name.as_str() {
            "alone" => &[4.0, 4.1, 3.9],
            "beside storm" => &[9.0, 9.1, 8.8],
            name if name.starts_with("beside") => &[4.5, 4.6, 4.7],
            _ => &[],
        };
        measured.push(on(&[("answered_per_second", &[7.0; 3]), (P99, p99)]));
    }
    check(
        "noisy_neighbour",
        measured,
        "beside storm has 2.25 times the latency p99 of alone (9 against 4 ms), the worst of 3.",
    );
}

#[test]
fn a_single_point_has_nothing_to_be_compared_with() {
    let mut counted = on(&[(RATE, &[27_000.0])]);
    let expectation = |text: &str, measured: f64, holds| Expectation {
        text: text.to_owned(),
        measured,
        holds,
    };
    counted.expectations = vec![
        expectation("lost == 0", 0.0, true),
        expectation("errors == 0", 0.0, true),
    ];
    check(
        "nothing_lost",
        vec![counted.clone()],
        "counted had 27,000 records/s; lost == 0, errors == 0 held; nothing was measured to compare it with.",
    );
    counted
        .expectations
        .push(expectation("records_per_second > 1e5", 27_000.0, false));
    check(
        "nothing_lost",
        vec![counted],
        "No: records_per_second > 1e5 does not hold, 27,000 was measured.",
    );
}

#[test]
fn several_clusters_have_a_part_each_and_one_point_compares_them() {
    let points = catalog("many_producers");
    let mut both = report(
        "many_producers",
        &points,
        at_one_rate(&[&[10.0, 10.0], &[20.0, 20.0]]),
    );
    both.manifest.targets = sample::report().manifest.targets;
    for (point, p99) in both.points.iter_mut().zip([[5.0, 9.0], [6.0, 6.0]]) {
        point.on.extend(at_one_rate(&[&p99]));
    }
    assert_eq!(
        of(&points, &both).sentence,
        "Not answered: on Ottla 0.1.0, embedded: 90 producers is better: 900 producers has 2 times the latency p99 of \
         90 producers (20 against 10 ms); on Apache Kafka 4.3: no answer, the rounds of 90 producers spread by 57.1 % \
         in latency p99, more than the 16.7 % between 90 producers and 900 producers."
    );
    both.points.truncate(1);
    both.points[0].on[1] = at_one_rate(&[&[5.0, 5.0]]).remove(0);
    assert_eq!(
        of(&points[..1], &both).sentence,
        "Apache Kafka 4.3 is better: Ottla 0.1.0, embedded has 2 times the latency p99 of Apache Kafka 4.3 (10 against \
         5 ms)."
    );
    both.manifest.targets.push(Target::default());
    assert!(
        of(&points[..1], &both).is_answered,
        "a cluster without results is left out"
    );
}

#[test]
fn saturated_latencies_are_not_compared() {
    let mut measured = at_one_rate(&[&[10.0], &[20.0]]);
    for on in &mut measured {
        on.measurements[0].producers.push(GroupResult {
            is_saturated: true,
            ..GroupResult::default()
        });
    }
    check(
        "many_producers",
        measured,
        "Not answered: there is no difference in throughput between 900 producers and 90 producers.",
    );
}

#[test]
fn every_built_in_scenario_has_an_answer_whatever_was_measured() {
    for (name, _) in catalog::all() {
        let points = catalog(name);
        for value in [0.0, 1.0, f64::NAN] {
            let same = || {
                on(&[
                    (RATE, &[value; 2]),
                    (P99, &[value; 2]),
                    ("mib_per_second", &[value; 2]),
                ])
            };
            let answer = of(
                &points,
                &report(name, &points, points.iter().map(|_| same()).collect()),
            );
            let words = answer.sentence.trim_start_matches("Not answered: ");
            assert!(words.len() > 20 && words.ends_with('.'), "{name}: {answer:?}");
            assert!(
                !words.contains("unknown") && !words.contains("1 times"),
                "{name}: {answer:?}"
            );
        }
        let nothing = points.iter().map(|_| OnTarget::default()).collect();
        let answer = of(&points, &report(name, &points, nothing));
        assert!(!answer.is_answered, "{name}: {answer:?}");
    }
    assert!(!of(&[], &report("", &[], Vec::new())).is_answered);
}

#[test]
fn a_value_that_a_point_takes_from_the_scenario_is_no_other_value() {
    let mut scenario = Scenario {
        producers: vec![Default::default()],
        ..Scenario::default()
    };
    scenario = path::with(&scenario, "producers.load.rate", &Scalar::Whole(5_000)).unwrap();
    let point = |name: &str, place: &str, value| crate::scenario::model::PointSpec {
        name: name.to_owned(),
        set: [(place.to_owned(), Scalar::Whole(value))].into(),
        ..Default::default()
    };
    scenario.points = vec![
        point("a", "producers.load.rate", 5_000),
        point("b", "producers.load.threads", 2),
    ];
    let points = sweep::points(&scenario).unwrap();
    let found = axes::of(&points, "");
    let names: Vec<&str> = found.iter().map(|axis| axis.name.as_str()).collect();
    assert_eq!(names, ["load.threads"]);
}
