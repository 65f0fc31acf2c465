//! Whether a measurement is valid, and if not, why.

use crate::numbers::{self, number};
use crate::report::{GeneratorCheck, GroupResult, Integrity, Measurement, Verdict};

/// Beyond these limits the generator, not the broker, was measured.
const SCHEDULE_ERROR_P99_MICROS: f64 = 5_000.0;
const THREAD_SHARE: f64 = 0.90;
/// A generator that used more than this share of its capacity proves nothing about the broker.
const CALIBRATION_SHARE: f64 = 0.5;
/// Seconds that senders waited for buffer memory, per second.
const BUFFER_WAIT: f64 = 0.05;
/// At least this share of the due records must have been sent.
const SCHEDULE_HELD: f64 = 0.98;

/// What was requested of a group.
#[derive(Clone, Copy, Debug)]
pub struct RequestedLoad {
    pub rate: Option<f64>,
    /// The scenario shows what happens beyond the limit.
    pub may_fall_behind: bool,
}

/// Derives a measurement's verdict from its results.
pub fn judge(measurement: &Measurement, asked: &[RequestedLoad]) -> Verdict {
    let mut verdict = Verdict::default();
    judge_integrity(&measurement.integrity, &mut verdict);
    let is_answered = measurement.requests.iter().any(|group| group.records > 0);
    if has_no_records(&measurement.integrity) && !is_answered {
        verdict
            .reasons
            .push(String::from("nothing was acknowledged, received or answered"));
    }
    for (group, asked) in measurement.producers.iter().zip(asked) {
        judge_group(group, *asked, &mut verdict);
    }
    for group in measurement.producers.iter().chain(&measurement.consumers) {
        if group.errors > 0 {
            // The most frequent kinds; all of them are in the report.
            let mut kinds: Vec<(&String, &u64)> = group.error_kinds.iter().collect();
            kinds.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
            let kinds: Vec<String> = kinds
                .into_iter()
                .take(2)
                .map(|(text, count)| format!("{count} x {text}"))
                .collect();
            verdict.reasons.push(format!(
                "{}: {} errors: {}",
                group.name,
                group.errors,
                kinds.join("; ")
            ));
        }
        if group.retries > 0 {
            verdict.caveats.push(format!(
                "{}: {} records were sent again",
                group.name, group.retries
            ));
        }
    }
    for group in measurement.requests.iter().filter(|group| group.errors > 0) {
        // A broker that protects itself refuses some requests: that is what such a scenario
        // observes.
        let kinds: Vec<String> = (group.error_kinds.iter().take(3))
            .map(|(text, count)| format!("{count} x {text}"))
            .collect();
        verdict.caveats.push(format!(
            "{}: {} errors: {}",
            group.name,
            group.errors,
            kinds.join("; ")
        ));
    }
    let found = shortcomings(&measurement.generator, measurement.seconds);
    let mut rated = asked.iter().filter(|asked| asked.rate.is_some()).peekable();
    // A capacity test is meant to use everything; under a schedule it is the generator's failure.
    if rated.peek().is_some() {
        match rated.all(|asked| asked.may_fall_behind) {
            true => verdict.caveats.extend(found),
            false => verdict.reasons.extend(found),
        }
    }
    let drift = measurement.drift;
    if !(0.9..=1.1).contains(&drift.last_to_first) {
        verdict.caveats.push(format!(
            "the rate of the last third is {} of that of the first",
            number(drift.last_to_first)
        ));
    }
    verdict
}

fn judge_integrity(integrity: &Integrity, verdict: &mut Verdict) {
    for (count, what) in [
        (integrity.lost, "acknowledged records were not received"),
        (integrity.duplicated, "records were received twice"),
        (integrity.disordered, "records were received out of order"),
        (integrity.failed, "records were not acknowledged"),
    ] {
        if count > 0 {
            verdict.reasons.push(format!("{} {what}", numbers::count(count)));
        }
    }
}

fn has_no_records(integrity: &Integrity) -> bool {
    integrity.acknowledged == 0 && integrity.received.unwrap_or(0) == 0
}

fn judge_group(group: &GroupResult, asked: RequestedLoad, verdict: &mut Verdict) {
    let Some(rate) = asked.rate else {
        if group.is_saturated {
            verdict.caveats.push(format!(
                "{}: saturated, so latencies are those of a full queue",
                group.name
            ));
        }
        return;
    };
    if group.records_per_second >= SCHEDULE_HELD * rate {
        return;
    }
    let held = format!(
        "{} of {} records/s",
        number(group.records_per_second),
        number(rate)
    );
    match asked.may_fall_behind {
        true => verdict.caveats.push(format!(
            "{}: more was wanted than can be held, {held}: latencies are those of a growing queue",
            group.name
        )),
        false => (verdict.reasons).push(format!("{}: the schedule was not held: {held}", group.name)),
    }
}

/// What keeps a generator from sending on time.
fn shortcomings(generator: &GeneratorCheck, seconds: f64) -> Vec<String> {
    let mut found = Vec::new();
    let late = generator
        .schedule_error
        .as_ref()
        .map_or(0.0, |error| error.percentiles.p99 * 1_000.0);
    if late > SCHEDULE_ERROR_P99_MICROS {
        found.push(format!(
            "the generator sent 1 % of the records more than {} late",
            numbers::duration(late / 1e6)
        ));
    }
    if generator.busiest_thread > THREAD_SHARE {
        found.push(format!(
            "a sending thread used {} of a processor",
            numbers::percent(generator.busiest_thread)
        ));
    }
    let waiting = generator.buffer_wait_seconds / seconds.max(f64::MIN_POSITIVE);
    if waiting > BUFFER_WAIT {
        found.push(format!(
            "senders waited {} seconds per second for buffer memory",
            number(waiting)
        ));
    }
    if generator.share_of_calibration > CALIBRATION_SHARE {
        found.push(format!(
            "the generator alone reaches only {} times this rate; twice is wanted",
            number(1.0 / generator.share_of_calibration)
        ));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::histogram::Latencies;

    fn good() -> Measurement {
        Measurement {
            seconds: 10.0,
            producers: vec![GroupResult {
                name: String::from("load"),
                records_per_second: 1_000.0,
                ..GroupResult::default()
            }],
            integrity: Integrity {
                sent: 10_000,
                acknowledged: 10_000,
                received: Some(10_000),
                ..Integrity::default()
            },
            drift: crate::bench::drift::of_rates(&[1.0; 9]),
            ..Measurement::default()
        }
    }

    fn verdict(change: impl FnOnce(&mut Measurement)) -> Verdict {
        let mut measurement = good();
        change(&mut measurement);
        let asked = RequestedLoad {
            rate: Some(1_000.0),
            may_fall_behind: false,
        };
        judge(&measurement, &[asked])
    }

    #[test]
    fn a_good_run_is_valid() {
        assert_eq!(verdict(|_| {}), Verdict::default());
    }

    #[test]
    fn everything_that_invalidates_a_run_is_named() {
        type Spoil<'a> = &'a dyn Fn(&mut Measurement);
        let late = |measurement: &mut Measurement| {
            let mut errors = Latencies::default();
            (0..100).for_each(|_| errors.record(9_000));
            measurement.generator.schedule_error = errors.result();
        };
        let spoilers: [(&str, Spoil<'_>); 9] = [
            ("not received", &|m| m.integrity.lost = 1),
            ("twice", &|m| m.integrity.duplicated = 1),
            ("out of order", &|m| m.integrity.disordered = 1),
            ("not acknowledged", &|m| m.integrity.failed = 1),
            ("9.01 ms late", &late),
            ("95 % of a processor", &|m| m.generator.busiest_thread = 0.95),
            ("buffer memory", &|m| m.generator.buffer_wait_seconds = 2.0),
            ("1.25 times", &|m| m.generator.share_of_calibration = 0.8),
            ("schedule was not held", &|m| {
                m.producers[0].records_per_second = 900.0
            }),
        ];
        for (word, spoil) in spoilers {
            let verdict = verdict(spoil);
            assert!(!verdict.is_valid(), "{word}");
            assert!(
                verdict.reasons.iter().any(|reason| reason.contains(word)),
                "{verdict:?}"
            );
        }
    }

    #[test]
    fn a_scenario_may_request_more_than_can_be_sustained() {
        let mut measurement = good();
        measurement.producers[0].records_per_second = 900.0;
        measurement.generator.busiest_thread = 0.95;
        measurement.generator.buffer_wait_seconds = 2.0;
        let asked = RequestedLoad {
            rate: Some(1_000.0),
            may_fall_behind: true,
        };
        let verdict = judge(&measurement, &[asked]);
        assert!(verdict.is_valid(), "{verdict:?}");
        for told in ["900 of 1,000", "95 % of a processor", "buffer memory"] {
            let is_told = verdict.caveats.iter().any(|caveat| caveat.contains(told));
            assert!(is_told, "{told}: {verdict:?}");
        }
        measurement.integrity.lost = 1;
        assert!(!judge(&measurement, &[asked]).is_valid());
    }

    #[test]
    fn refused_background_load_is_valid_and_may_be_the_only_load() {
        let flood = GroupResult {
            name: String::from("flood"),
            records: 5,
            errors: 2,
            error_kinds: [(String::from("the broker closed it"), 2)].into(),
            ..GroupResult::default()
        };
        let alone = |requests| Measurement {
            requests,
            ..Measurement::default()
        };
        let verdict = judge(&alone(vec![flood]), &[]);
        assert!(verdict.is_valid(), "{verdict:?}");
        assert_eq!(verdict.caveats[0], "flood: 2 errors: 2 x the broker closed it");
        assert!(!judge(&alone(Vec::new()), &[]).is_valid());
    }

    #[test]
    fn a_drifting_rate_is_a_caveat() {
        let verdict = verdict(|measurement| measurement.drift.last_to_first = 0.5);
        assert!(verdict.is_valid() && verdict.caveats.len() == 1);
    }
}
