//! host: has the machine processor time left?
//!
//! **Asks**, where a client is slow, whether its machine or its broker's has any processor time
//! left: without it threads are late, requests take long and queues grow, whatever the settings.
//!
//! - Numbers: use of the processors, but for processes that give way to others (`nice`), the share
//!   of time in which something that could run waited for one (PSI), and what a hypervisor gave to
//!   others; of the client's machine where it is known, and of every broker's.
//! - Thresholds: processors used at least 0.95, and something waiting at least 0.2 of the time; or
//!   at least 0.1 stolen (which counts as used, too) and 0.95 used.
//! - Says: "The broker's machine has no processor time left: 99 % is used, and something waits for
//!   a processor 80 % of the time."
//!
//! It is the verdict where nothing that is independent of processors explains the wait: a round
//! trip, a window, a quota take as long on an idle machine. It also is the verdict of a client that
//! sends records, was asked to push and does not come to it for 2.5 of its intervals, or pushes
//! nothing while the broker has at least one of its requests in hand all the time: a Java client
//! whose requests are all under way does not come to ask for a subscription either. Beside Apache
//! Kafka it is one of low confidence where the collector is on the machine of all brokers, and
//! producers write to a topic and push nothing. Every other
//! verdict's confidence falls while a machine is full, because means of such a window hold the wait
//! for a processor; so it does while at least 0.1 is stolen, whatever is left.

use super::super::diagnosis::{Confidence, Diagnosis, Promise, Recommendation, Verdict};
use super::super::snapshot::{Host, Snapshot};
use super::found::Found;
use crate::numbers::percent;

const USED: f64 = 0.95;
const WAITING: f64 = 0.2;
const STOLEN: f64 = 0.1;
/// From this rate on a client's own requests may be a notable part of what fills the machine; the
/// number is a guess, and only withholds a refusal.
const REQUESTS_MANY: f64 = 1_000.0;

/// A machine without processor time.
struct Full<'a> {
    whose: String,
    host: &'a Host,
}

fn full(snapshot: &Snapshot) -> Option<Full<'_>> {
    find(snapshot, is_full)
}

fn find(snapshot: &Snapshot, is_wanted: fn(&Host) -> bool) -> Option<Full<'_>> {
    let own = snapshot
        .host
        .iter()
        .map(|host| (String::from("The client's"), host));
    let brokers = snapshot.brokers.iter().filter_map(|side| {
        let whose = match side.node_id {
            Some(id) if snapshot.brokers.len() > 1 => format!("Broker {id}'s"),
            _ => String::from("The broker's"),
        };
        Some((whose, side.host.as_ref()?))
    });
    own.chain(brokers)
        .find(|(_, host)| is_wanted(host))
        .map(|(whose, host)| Full { whose, host })
}

/// Whether the client's machine, or one of its brokers', is known to have no processor time left.
pub(crate) fn is_exhausted(snapshot: &Snapshot) -> bool {
    full(snapshot).is_some()
}

/// What a hypervisor takes slows down a client only where the rest is used up.
fn is_full(host: &Host) -> bool {
    let reaches = |value: Option<f64>, threshold: f64| value.is_some_and(|value| value >= threshold);
    let is_waited_for = reaches(host.used, USED) && reaches(host.waiting, WAITING);
    is_waited_for || is_robbed(host) && host.used.is_none_or(|used| used >= USED)
}

fn is_robbed(host: &Host) -> bool {
    host.stolen.is_some_and(|stolen| stolen >= STOLEN)
}

fn words(full: &Full<'_>) -> String {
    let whose = &full.whose;
    let host = full.host;
    match host.stolen.filter(|stolen| *stolen >= STOLEN) {
        Some(stolen) => format!(
            "{whose} machine loses processor time: {} of it goes to other virtual machines.",
            percent(stolen.min(1.0))
        ),
        None => format!(
            "{whose} machine has no processor time left: {} is used, and something waits for a processor {} of the time.",
            percent(host.used.unwrap_or(1.0).min(1.0)),
            percent(host.waiting.unwrap_or(0.0).min(1.0))
        ),
    }
}

/// The verdict of either role.
///
/// - `is_slow`: something waits that a faster machine would serve sooner.
pub(crate) fn ask(snapshot: &Snapshot, is_slow: bool) -> Found {
    let numbers = "use of processors, wait for processors".to_owned();
    match full(snapshot) {
        None if snapshot.host.is_none() && snapshot.brokers.iter().all(|side| side.host.is_none()) => {
            Found::nothing(numbers, "not known")
        }
        None => Found::nothing(numbers, "yes"),
        Some(full) if !is_slow => Found::nothing(numbers, words(&full)),
        Some(full) => {
            let found = Found::verdict(numbers, Verdict::Host, Confidence::Medium, words(&full))
                .recommend(Some(recommend()))
                .refuse("threads", "they share the same processors");
            match makes_many_requests(snapshot) {
                true => found,
                false => found.refuse(
                    "batch.size",
                    "it takes fewer requests, not less work on each record",
                ),
            }
        }
    }
}

fn makes_many_requests(snapshot: &Snapshot) -> bool {
    let own = snapshot.producer.as_ref().and_then(|own| own.requests_per_second);
    let seen = snapshot
        .brokers
        .iter()
        .filter_map(|side| side.requests_per_second);
    own.unwrap_or(0.0).max(seen.sum()) >= REQUESTS_MANY
}

fn recommend() -> Recommendation {
    Recommendation {
        set: "stop what else runs on that machine, or give it more processors".to_owned(),
        why: "every thread waits for a processor; nothing else can be judged before that".to_owned(),
        promise: Promise {
            figure: "records_per_second".to_owned(),
            unit: "records/s".to_owned(),
            unknown: Some("how much of the machine's time others take".to_owned()),
            ..Promise::default()
        },
        next_ceiling: "not known while the machine is full".to_owned(),
        cost: "hardware, or other programs' time".to_owned(),
    }
}

/// Lowers the confidence of any verdict while a machine is full, or a hypervisor takes a part of
/// it.
pub(crate) fn doubt(diagnosis: &mut Diagnosis, snapshot: &Snapshot) {
    let disturbed = find(snapshot, |host| is_full(host) || is_robbed(host));
    let Some(full) = disturbed.filter(|_| diagnosis.verdict != Verdict::Host) else {
        return;
    };
    diagnosis.confidence = diagnosis.confidence.min(Confidence::Low);
    diagnosis.notes.push(words(&full));
}

#[cfg(test)]
mod tests {
    use super::super::super::snapshot::BrokerSide;
    use super::*;

    fn machine(used: f64, waiting: f64) -> Host {
        Host {
            used: Some(used),
            waiting: Some(waiting),
            ..Host::default()
        }
    }

    #[test]
    fn a_busy_machine_is_full_only_if_something_waits_for_it() {
        assert!(is_full(&machine(0.99, 0.8)));
        assert!(!is_full(&machine(0.99, 0.05)));
        assert!(!is_full(&machine(0.7, 0.8)));
        let stolen = |used: Option<f64>| Host {
            used,
            stolen: Some(0.3),
            ..Host::default()
        };
        assert!(is_full(&stolen(None)));
        assert!(is_full(&stolen(Some(0.96))));
        assert!(!is_full(&stolen(Some(0.8))), "a fifth is idle");
    }

    /// A client of a small window was told that its machine is full, because an eighth of the
    /// processors was taken.
    #[test]
    fn a_hypervisor_that_takes_what_is_not_needed_is_a_doubt_and_no_verdict() {
        let robbed = Snapshot {
            host: Some(Host {
                stolen: Some(0.122),
                ..machine(0.6, 0.28)
            }),
            ..Snapshot::default()
        };
        assert!(ask(&robbed, true).verdict.is_none());
        let mut sure = Diagnosis {
            verdict: Verdict::NetworkWindow,
            confidence: Confidence::High,
            ..Diagnosis::default()
        };
        doubt(&mut sure, &robbed);
        assert_eq!((sure.confidence, sure.notes.len()), (Confidence::Low, 1));
    }

    #[test]
    fn both_roles_ask_for_their_machine() {
        use super::super::super::snapshot::{ConsumedPartition, Consumer, Role};
        let mut behind = Snapshot {
            seconds: 60.0,
            host: Some(machine(0.99, 0.8)),
            consumer: Some(Consumer {
                records_per_second: Some(1_000.0),
                fetches_per_second: Some(50.0),
                poll_idle_share: Some(0.05),
                fetch_ms: Some(5.0),
                partitions: vec![ConsumedPartition {
                    lag: Some(500_000.0),
                    lag_slope: Some(400.0),
                    consumed_per_second: Some(1_000.0),
                    produced_per_second: Some(1_400.0),
                    ..ConsumedPartition::default()
                }],
                ..Consumer::default()
            }),
            ..Snapshot::default()
        };
        behind.client.role = Role::Consumer;
        assert_eq!(super::super::examine(&behind).verdict, Verdict::Host);
        behind.host = Some(machine(0.6, 0.1));
        assert_eq!(super::super::examine(&behind).verdict, Verdict::Processing);

        use super::super::producer::tests::rows::{ROW, Row};
        let busy = Row {
            records: 9_000.0,
            requests: 40.0,
            latency: 30.0,
            batch: 16_000.0,
            request_bytes: 16_000.0,
            queue: Some(3_000.0),
            thread: Some((0.02, 0.1)),
            ..ROW
        };
        let mut busy = busy.snapshot();
        assert_eq!(super::super::examine(&busy).verdict, Verdict::SenderThread);
        busy.host = Some(machine(0.99, 0.8));
        assert_eq!(super::super::examine(&busy).verdict, Verdict::Host);
        // A round trip takes as long on an idle machine.
        busy.network.round_trip_ms = Some(29.0);
        assert_ne!(super::super::examine(&busy).verdict, Verdict::Host);
    }

    #[test]
    fn a_full_machine_is_the_verdict_of_a_slow_client_and_a_doubt_of_any_other() {
        let snapshot = Snapshot {
            brokers: vec![BrokerSide {
                host: Some(machine(0.99, 0.8)),
                ..BrokerSide::default()
            }],
            ..Snapshot::default()
        };
        let found = ask(&snapshot, true);
        assert_eq!(found.verdict.map(|(verdict, _)| verdict), Some(Verdict::Host));
        assert!(ask(&snapshot, false).verdict.is_none());
        // What fills the machine may be the client's own small requests.
        let refused = |per_second| {
            let mut snapshot = snapshot.clone();
            snapshot.brokers[0].requests_per_second = Some(per_second);
            let found = ask(&snapshot, true);
            found.refused.iter().any(|refusal| refusal.set == "batch.size")
        };
        assert!(refused(40.0) && !refused(5_000.0));
        let mut sure = Diagnosis {
            verdict: Verdict::KeepsUp,
            confidence: Confidence::High,
            ..Diagnosis::default()
        };
        doubt(&mut sure, &snapshot);
        assert_eq!((sure.confidence, sure.notes.len()), (Confidence::Low, 1));
    }

    /// A Java client whose thread comes to push once and then no more.
    #[test]
    fn a_client_that_has_no_time_to_push_is_on_a_full_machine() {
        use super::super::super::snapshot::Library;
        use super::super::producer::tests::rows::{ROW, Row};
        let row = Row {
            records: 9_000.0,
            requests: 200.0,
            ..ROW
        };
        let mut starved = row.snapshot();
        starved.producer = None;
        starved.client.library = Library::FranzGo;
        starved.telemetry.pushes = Some(1);
        starved.telemetry.is_silent = true;
        starved.telemetry.push_interval_ms = Some(10_000.0);
        starved.brokers = vec![BrokerSide {
            node_id: Some(1),
            requests_per_second: Some(200.0),
            total_micros: Some(300.0),
            host: Some(machine(0.99, 0.8)),
            ..BrokerSide::default()
        }];
        assert_eq!(super::super::examine(&starved).verdict, Verdict::Host);
        starved.telemetry.is_silent = false;
        assert_eq!(super::super::examine(&starved).verdict, Verdict::NotEnoughData);
        starved.telemetry.is_silent = true;
        starved.brokers[0].host = Some(machine(0.6, 0.1));
        assert_eq!(super::super::examine(&starved).verdict, Verdict::NotEnoughData);
        // One that was never asked, with 200 requests/s of 10 ms: the broker has two in hand.
        starved.telemetry.is_silent = false;
        starved.telemetry.pushes = Some(0);
        starved.telemetry.push_interval_ms = None;
        starved.brokers[0].total_micros = Some(10_000.0);
        assert_eq!(super::super::examine(&starved).verdict, Verdict::NotEnoughData);
        starved.brokers[0].host = Some(machine(0.99, 0.8));
        assert_eq!(super::super::examine(&starved).verdict, Verdict::Host);
        starved.brokers[0].total_micros = Some(3_000.0);
        assert_eq!(super::super::examine(&starved).verdict, Verdict::NotEnoughData);
    }
}
