//! producer 14: does it send all that it is given?
//!
//! **Asks**, where nothing waits and nothing before matched, whether the application has what it
//! wants, or sets the pace itself.
//!
//! | test | verdict |
//! |---|---|
//! | the application's own rate is known and met, within a tenth | KEEPS_UP (O2) |
//! | neither the offered rate nor W and T tell whether the application is the limit, and at least four times as many requests would fit, or eight times as much with larger batches | KEEPS_UP |
//! | else | APPLICATION: the application or its threads, which cannot be observed from here |
//!
//! **How much would fit**: a full pipe of small requests is no load, because batches grow with the
//! rate: 1 / Z (F9) where batch.size is known, otherwise at least 1 / U; the share of time that the
//! sending thread works bounds both. Measured: 500 records/s with U near 1 over a long round
//! trip; 6,010 with the same settings.
//!
//! **A broker that takes long**: a tenth of a second and most of L, at any rate, is told beside the
//! verdict with the broker's own finding. A client that may have many requests under way keeps up
//! with it, and its records arrive late.
//!
//! **Why two**: without W, T and an offered rate it is not known whether the application wants to
//! send more. Far from every ceiling the question is idle, and an operator's screen full of
//! "limited by the application" would hide the clients that really are. Measured: 2,000 records/s
//! at U = 0.04 (keeps up), and 777,700 records/s at U = 0.5 through one thread that was not
//! reported (its own work was the limit).

use crate::doctor::diagnosis::{FindingId, Verdict};

use super::super::broker::blame;
use super::super::found::Found;
use super::super::words::known;
use super::backlog::Backlog;
use super::evidence::confidence;
use super::reading::{Bound, Pipe, Reading, clean, reaches};
use super::{Rule, refusals, rule, worker};
use crate::numbers::{number, percent};

pub(crate) const RULE: Rule = rule("producer 14", "Does it send all that it is given?", ask);

const SPARE: f64 = 4.0;
/// Less room than this is not worth a number.
const TOLD: f64 = 1.5;
/// A broker that takes this long for a request is worth a word although nothing waits.
const LONG_MS: f64 = 100.0;
/// The same where batches would have to grow for it.
const SPARE_BY_BATCHES: f64 = 8.0;

fn ask(reading: &Reading<'_>) -> Found {
    let spare = spare(reading, true);
    let by_requests = self::spare(reading, false);
    let numbers = [
        known("X_r", reading.records_per_second, "records/s"),
        known("offered", reading.offered, "records/s"),
        known("would fit at least", spare, "times"),
    ];
    if reading.bound != Bound::Source {
        return Found::nothing(numbers, "no");
    }
    let fits = spare
        .filter(|spare| *spare >= TOLD)
        .map(|spare| format!(" At least {} times as much would fit.", number(spare)));
    let is_idle = worker::used(reading).is_none_or(|used| !reaches(used, 0.8))
        && reading.offered.is_none()
        && !(reading.send_micros.is_some() && reading.threads.is_some())
        && (spare.is_none_or(|spare| spare >= SPARE_BY_BATCHES)
            || by_requests.is_none_or(|least| least >= SPARE));
    let (verdict, text) = if reading.is_offer_met() == Some(true) {
        (Verdict::KeepsUp, offer_met(reading, fits))
    } else if is_idle || reading.records_per_second == Some(0.0) {
        let text = match reading.records_per_second {
            Some(rate) if rate <= 0.0 => "Nothing was sent in the window.".to_owned(),
            _ => format!("It sends all that it is given.{}", fits.unwrap_or_default()),
        };
        (Verdict::KeepsUp, text)
    } else {
        let text = format!(
            "The application sets the pace at {} records/s: nothing waits in the client.{}",
            number(reading.records_per_second.unwrap_or(0.0)),
            fits.unwrap_or_default()
        );
        (Verdict::Application, text)
    };
    let mut found = Found::verdict(
        numbers,
        verdict,
        confidence(reading, verdict, false),
        text.clone(),
    )
    .refusals(refusals::batch(reading))
    .refusals(refusals::unused_in_flight(reading))
    .refusals(refusals::partitions(reading));
    if verdict == Verdict::KeepsUp {
        found = found.finding(FindingId::O2, text);
    } else if reading.threads.is_none() || reading.send_micros.is_none() {
        found = found.missing("how many threads call send(), and how long one call takes");
    }
    if let Some((pipe, broker_ms)) = slow_broker(reading) {
        let blamed = pipe.broker.as_ref().and_then(|broker| blame(broker.side));
        found = found.contributing(blamed).note(format!(
            "the broker takes {} of the {} ms until an answer",
            number(broker_ms),
            number(pipe.request_ms.unwrap_or(broker_ms))
        ));
    }
    if reading.backlog == Backlog::None && reading.settings.linger_ms.value >= 20.0 {
        let linger = number(reading.settings.linger_ms.value);
        found = found.note(format!("latency is linger: {linger} ms of it"));
    }
    found
}

/// A broker that takes most of the time of requests, and long, whether or not anything waits.
fn slow_broker<'r, 'a>(reading: &'r Reading<'a>) -> Option<(&'r Pipe<'a>, f64)> {
    let timed = reading
        .nodes
        .iter()
        .filter_map(|pipe| Some((pipe, reading.broker_ms(pipe)?)));
    timed
        .filter(|(pipe, ms)| *ms >= LONG_MS && pipe.request_ms.is_some_and(|all| *ms >= 0.5 * all))
        .max_by(|one, other| one.1.total_cmp(&other.1))
}

fn offer_met(reading: &Reading<'_>, fits: Option<String>) -> String {
    let offered = number(reading.offered.unwrap_or(0.0));
    match reading.backlog {
        Backlog::Soft => {
            let load = reading
                .load()
                .map_or_else(String::new, |load| format!(" (load {})", percent(load)));
            format!(
                "It sends the {offered} records/s it is given, but is near its ceiling{load}: latency already rises."
            )
        }
        _ => format!(
            "It sends all {offered} records/s that it is given.{}",
            fits.unwrap_or_default()
        ),
    }
}

/// At least how many times the rate the sender could carry; none where nothing says so.
fn spare(reading: &Reading<'_>, may_grow: bool) -> Option<f64> {
    let pipe = match reading.load().filter(|_| may_grow && reading.knows_fill()) {
        Some(load) => Some(load),
        None => reading.used(),
    };
    let busy = reading.io_wait.map(|wait| 1.0 - wait);
    let used = pipe.into_iter().chain(busy).reduce(f64::max)?;
    clean(Some((1.0 / used.max(1e-3)).max(1.0)))
}

#[cfg(test)]
mod tests {
    use crate::doctor::Snapshot;
    use crate::doctor::diagnosis::{Finding, FindingId, Verdict};
    use crate::doctor::rules::examine;
    use crate::doctor::rules::producer::tests::rows::{ROW, Row};
    use crate::doctor::snapshot::{BrokerSide, Library};

    #[test]
    fn batches_that_can_grow_leave_room_in_a_full_pipe() {
        let row = Row {
            records: 500.0,
            requests: 120.0,
            request_bytes: 4_300.0,
            batch: 4_200.0,
            batch_size: 65_536.0,
            latency: 41.0,
            queue: Some(5.2),
            linger: Some(5.0),
            in_flight: 5.0,
            thread: Some((0.97, 0.01)),
            ..ROW
        };
        let diagnosis = examine(&row.snapshot());
        assert_eq!(diagnosis.verdict, Verdict::KeepsUp, "{diagnosis:#?}");
        assert!(diagnosis.summary.contains("15.5 times"), "{}", diagnosis.summary);
    }
    /// librdkafka may have a million requests under way, so that none waits in it.
    #[test]
    fn a_broker_that_takes_most_of_a_long_time_is_told_beside_the_verdict() {
        let row = Row {
            records: 2_500.0,
            requests: 25.0,
            request_bytes: 100_000.0,
            batch: 99_000.0,
            records_per_request: 100.0,
            latency: 800.0,
            ..ROW
        };
        let mut snapshot = row.snapshot();
        snapshot.client.library = Library::Librdkafka;
        snapshot.brokers = vec![BrokerSide {
            node_id: Some(1),
            requests_per_second: Some(25.0),
            local_micros: Some(1_000.0),
            remote_micros: Some(779_000.0),
            flush_micros: Some(779_000.0),
            round_trip_ms: Some(0.1),
            has_overlap: Some(true),
            ..BrokerSide::default()
        }];
        let told = |snapshot: &Snapshot| {
            let diagnosis = examine(snapshot);
            assert_eq!(diagnosis.verdict, Verdict::KeepsUp, "{diagnosis:#?}");
            let is_told = |note: &String| note.starts_with("the broker takes");
            let is_blamed = |finding: &Finding| finding.id == FindingId::B4;
            (
                diagnosis.notes.iter().any(is_told),
                diagnosis.findings.iter().any(is_blamed),
            )
        };
        assert_eq!(told(&snapshot), (true, true));
        // Most of a time that is short, and little of a long one.
        snapshot.brokers[0].remote_micros = Some(9_000.0);
        assert_eq!(told(&snapshot), (false, false));
        snapshot.producer.as_mut().unwrap().nodes[0].request_ms = Some(10.0);
        assert_eq!(told(&snapshot), (false, false));
    }
}
