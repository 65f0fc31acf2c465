//! The numbers of a measurement that are predicted, compared and expected, by name.

use std::collections::BTreeMap;

use crate::load::outcome::{ConsumeOutcome, ProduceOutcome, RequestOutcome};
use crate::report::histogram::Latencies;

/// The requests that a producer's settings allow under way:
/// `max.in.flight.requests.per.connection`, over all connections.
#[derive(Clone, Copy, Debug)]
pub struct InFlight {
    pub per_connection: f64,
    /// Producer instances times brokers that lead their partitions.
    pub connections: f64,
}

/// Includes latencies only where there was a schedule: without one they measure the length of a
/// queue.
pub fn of(
    producers: &[ProduceOutcome],
    consumers: &[ConsumeOutcome],
    requests: &[RequestOutcome],
    in_flight: InFlight,
) -> BTreeMap<String, f64> {
    let mut figures = BTreeMap::new();
    if producers.is_empty() && !consumers.is_empty() {
        add_consumed(consumers, &mut figures);
    } else if !producers.is_empty() {
        add_produced(producers, in_flight, &mut figures);
    }
    if !consumers.is_empty() {
        figures.insert(
            String::from("received_per_second"),
            received(consumers, |group| group.records),
        );
    }
    add_answered(requests, &mut figures);
    let mut end_to_end = Latencies::default();
    consumers
        .iter()
        .for_each(|group| end_to_end.add(&group.end_to_end));
    let has_schedule = producers.iter().any(|group| group.latency.count() > 0);
    if has_schedule {
        add_percentiles("end_to_end", &end_to_end, &mut figures);
    }
    let errors: u64 = producers
        .iter()
        .flat_map(|group| group.errors.values())
        .chain(consumers.iter().flat_map(|group| group.errors.values()))
        .sum();
    figures.insert(String::from("errors"), errors as f64);
    figures
}

fn add_consumed(consumers: &[ConsumeOutcome], figures: &mut BTreeMap<String, f64>) {
    figures.insert(
        String::from("records_per_second"),
        received(consumers, |group| group.records),
    );
    figures.insert(
        String::from("mib_per_second"),
        received(consumers, |group| group.bytes) / MIB,
    );
}

/// Per second, over all groups.
fn received(consumers: &[ConsumeOutcome], count: fn(&ConsumeOutcome) -> u64) -> f64 {
    let running = consumers.iter().filter(|group| group.seconds > 0.0);
    // The sum over nothing would be -0.
    running.fold(0.0, |sum, group| sum + count(group) as f64 / group.seconds)
}

fn add_answered(requests: &[RequestOutcome], figures: &mut BTreeMap<String, f64>) {
    if requests.is_empty() {
        return;
    }
    let running = requests.iter().filter(|group| group.seconds > 0.0);
    let answered = running.fold(0.0, |sum, group| sum + group.answered as f64 / group.seconds);
    figures.insert(String::from("answered_per_second"), answered);
    let mut latency = Latencies::default();
    for group in requests {
        let has_schedule = group.latency.count() > 0;
        latency.add(if has_schedule {
            &group.latency
        } else {
            &group.service
        });
    }
    if latency.count() > 0 {
        figures.insert(String::from("answer_p99_ms"), latency.at(99.0) as f64 / 1_000.0);
    }
}

const MIB: f64 = 1_048_576.0;

fn add_produced(groups: &[ProduceOutcome], in_flight: InFlight, figures: &mut BTreeMap<String, f64>) {
    let running = || groups.iter().filter(|group| group.seconds > 0.0);
    let records: f64 = running()
        .map(|group| group.acknowledged as f64 / group.seconds)
        .sum();
    let bytes: f64 = running().map(|group| group.bytes as f64 / group.seconds).sum();
    figures.insert(String::from("records_per_second"), records);
    figures.insert(String::from("mib_per_second"), bytes / MIB);
    let (mut latency, mut service) = (Latencies::default(), Latencies::default());
    for group in groups {
        latency.add(&group.latency);
        service.add(&group.service);
    }
    add_percentiles("latency", &latency, figures);
    add_percentiles("service", &service, figures);
    if service.count() > 0 {
        figures.insert(String::from("sender_latency_ms"), service.mean() / 1_000.0);
    }
    let sent: u64 = groups.iter().map(|group| group.sent).sum();
    let send_nanos: f64 = groups
        .iter()
        .map(|group| group.send_nanos_mean * group.sent as f64)
        .sum();
    if sent > 0 {
        figures.insert(String::from("send_micros"), send_nanos / sent as f64 / 1_000.0);
    }
    for (metric, figure) in [
        ("record-queue-time-avg", "queue_ms"),
        ("request-latency-avg", "request_latency_ms"),
        ("batch-size-avg", "batch_bytes"),
        ("request-size-avg", "request_bytes"),
        ("records-per-request-avg", "records_per_request"),
        ("compression-rate-avg", "compression_rate"),
    ] {
        let known: Vec<f64> = groups
            .iter()
            .filter_map(|group| group.metrics.get(metric).copied())
            .filter(|value| value.is_finite())
            .collect();
        if !known.is_empty() {
            figures.insert(figure.to_owned(), known.iter().sum::<f64>() / known.len() as f64);
        }
    }
    let requests: f64 = running()
        .filter_map(|group| Some(group.metrics.get("request-total")? / group.seconds))
        .sum();
    if requests > 0.0 {
        figures.insert(String::from("requests_per_second"), requests);
        if let Some(latency_ms) = figures.get("request_latency_ms") {
            let ceiling = 1_000.0 / latency_ms * in_flight.per_connection * in_flight.connections;
            figures.insert(String::from("in_flight_use"), requests / ceiling);
        }
    }
}

fn add_percentiles(name: &str, latencies: &Latencies, figures: &mut BTreeMap<String, f64>) {
    if latencies.count() == 0 {
        return;
    }
    let percentiles = latencies.percentiles(1_000.0);
    for (short, value) in [
        ("p50", percentiles.p50),
        ("p95", percentiles.p95),
        ("p99", percentiles.p99),
        ("p99_9", percentiles.p99_9),
        ("max", percentiles.max),
    ] {
        figures.insert(format!("{name}_{short}_ms"), value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: InFlight = InFlight {
        per_connection: 5.0,
        connections: 1.0,
    };

    fn group() -> ProduceOutcome {
        let mut service = Latencies::default();
        service.record(2_000);
        ProduceOutcome {
            sent: 100,
            acknowledged: 100,
            bytes: 10 * 1_048_576,
            seconds: 10.0,
            send_nanos_mean: 1_500.0,
            service,
            metrics: BTreeMap::from([
                (String::from("request-total"), 1_000.0),
                (String::from("request-latency-avg"), 20.0),
                (String::from("batch-size-avg"), f64::NAN),
            ]),
            ..ProduceOutcome::default()
        }
    }

    #[test]
    fn rates_add_up_and_means_do_not() {
        let figures = of(&[group(), group()], &[], &[], ONE);
        assert_eq!(figures["records_per_second"], 20.0);
        assert_eq!(figures["mib_per_second"], 2.0);
        assert_eq!(figures["send_micros"], 1.5);
        assert_eq!(figures["request_latency_ms"], 20.0);
        assert_eq!(figures["requests_per_second"], 200.0);
        // 200 of 1000 / 20 * 5 a second.
        assert_eq!(figures["in_flight_use"], 0.8);
    }

    #[test]
    fn without_evidence_there_is_no_number() {
        let figures = of(&[group()], &[], &[], ONE);
        assert!(!figures.contains_key("batch_bytes"));
        // No record was due at a certain time.
        assert!(!figures.contains_key("latency_p99_ms"));
        assert!(figures.contains_key("service_p99_ms"));
    }

    #[test]
    fn bare_requests_have_figures_of_their_own() {
        let mut service = Latencies::default();
        service.record(3_000);
        let flood = RequestOutcome {
            answered: 400,
            seconds: 4.0,
            service: service.clone(),
            ..RequestOutcome::default()
        };
        let mut latency = Latencies::default();
        latency.record(9_000);
        let storm = RequestOutcome {
            latency,
            service,
            ..RequestOutcome::default()
        };
        let figures = of(&[group()], &[], std::slice::from_ref(&flood), ONE);
        assert_eq!(figures["answered_per_second"], 100.0);
        assert_eq!(figures["answer_p99_ms"].floor(), 3.0);
        assert_eq!(figures["records_per_second"], 10.0);
        // With a rate, the time counts from when a request was due.
        assert!(of(&[], &[], &[storm], ONE)["answer_p99_ms"] >= 9.0);
        assert!(!of(&[], &[], &[flood], ONE).contains_key("records_per_second"));
    }

    #[test]
    fn readers_alone_have_a_rate() {
        let reader = ConsumeOutcome {
            records: 50,
            seconds: 5.0,
            ..ConsumeOutcome::default()
        };
        assert_eq!(of(&[], &[reader], &[], ONE)["records_per_second"], 10.0);
    }
}
