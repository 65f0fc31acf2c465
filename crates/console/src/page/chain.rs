//! The chain of a client: stations from the application to its callback, or from the log to the
//! application, and which one is the limit.

use ottla_lab::doctor::Snapshot;
use ottla_lab::doctor::diagnosis::{Diagnosis, Verdict};
use ottla_lab::doctor::snapshot::Role;
use ottla_lab::doctor::time::TimePart;
use ottla_lab::markup::Markup;
use ottla_lab::numbers::percent;

use crate::draw::parts;
use crate::draw::text::rate;

struct Station {
    name: &'static str,
    /// A figure with its unit.
    figure: Option<(String, &'static str)>,
    words: String,
}

/// Draws the stations; the limit is marked by colour, edge and word.
pub fn draw(client: &Diagnosis, snapshot: Option<&Snapshot>, page: &mut Markup) {
    let stations = match client.role {
        Role::Producer => of_producer(client, snapshot),
        Role::Consumer => of_consumer(client, snapshot),
    };
    let limit = limit(client.role, client.verdict);
    page.nest("ol", &[("class", &"ch")], |page| {
        for (index, station) in stations.iter().enumerate() {
            let is_limit = limit == Some(index);
            page.nest("li", &[("class", &if is_limit { "lim" } else { "" })], |page| {
                page.nest("div", &[("class", &"nm")], |page| {
                    page.text(station.name);
                    if is_limit {
                        page.inline("b", &[], "the limit");
                    }
                });
                page.nest("div", &[("class", &"v")], |page| match &station.figure {
                    None => page.text("–"),
                    Some((value, unit)) => {
                        page.text(value);
                        page.inline("small", &[], format_args!(" {unit}"));
                    }
                });
                page.leaf("div", &[("class", &"w")], &station.words);
            });
        }
    });
}

/// The station that a verdict points at.
fn limit(role: Role, verdict: Verdict) -> Option<usize> {
    let of_producer = match verdict {
        Verdict::Application | Verdict::Synchronous => Some(0),
        Verdict::Worker => Some(1),
        Verdict::SenderRate | Verdict::SenderThread | Verdict::SmallRequests => Some(3),
        Verdict::NetworkRtt | Verdict::NetworkWindow | Verdict::NetworkBandwidth => Some(4),
        Verdict::Broker | Verdict::Quota | Verdict::Skew | Verdict::Failing => Some(5),
        _ => None,
    };
    let of_consumer = match verdict {
        Verdict::ColdRead => Some(0),
        Verdict::Broker | Verdict::Quota | Verdict::FetchWait | Verdict::Failing => Some(1),
        Verdict::NetworkRtt | Verdict::NetworkWindow | Verdict::NetworkBandwidth => Some(2),
        Verdict::FetchSize => Some(3),
        Verdict::Rebalancing | Verdict::Skew => Some(4),
        Verdict::Processing | Verdict::Synchronous => Some(5),
        _ => None,
    };
    match role {
        Role::Producer => of_producer,
        Role::Consumer => of_consumer,
    }
}

/// Milliseconds of a part, rounded as in the sum below the chain.
fn ms(client: &Diagnosis, part: TimePart) -> Option<(String, &'static str)> {
    let index = client.time.iter().position(|share| share.part == part)?;
    let shown = parts::of_ms(&client.time.iter().map(|share| share.ms).collect::<Vec<f64>>());
    let text = shown.parts[index].clone();
    Some((if text.is_empty() { String::from("0") } else { text }, "ms"))
}

fn per_second(value: Option<f64>) -> Option<(String, &'static str)> {
    value
        .filter(|value| value.is_finite())
        .map(|value| (rate(value), "/s"))
}

fn share(value: Option<f64>, words: &str) -> String {
    value.map_or_else(String::new, |value| format!("{} {words}", percent(value)))
}

fn of_producer(client: &Diagnosis, snapshot: Option<&Snapshot>) -> Vec<Station> {
    let producer = snapshot.and_then(|snapshot| snapshot.producer.as_ref());
    let of = |value: fn(&ottla_lab::doctor::snapshot::Producer) -> Option<f64>| producer.and_then(value);
    let offered = snapshot.and_then(|snapshot| snapshot.application.offered_records_per_second);
    let seen = snapshot.and_then(|snapshot| snapshot.brokers.iter().find_map(|side| side.records_per_second));
    let sent = of(|producer| producer.records_per_second).or(seen);
    let fill = of(|producer| producer.batch_bytes);
    let callback = snapshot.and_then(|snapshot| snapshot.application.callback_micros);
    let synced = snapshot.and_then(|snapshot| snapshot.brokers.iter().find_map(|side| side.flush_micros));
    vec![
        Station {
            name: "application",
            figure: per_second(offered.or(sent)),
            words: String::from(if offered.is_some() {
                "wants to send"
            } else {
                "records sent"
            }),
        },
        Station {
            name: "send()",
            figure: ms(client, TimePart::Worker),
            words: match of(|producer| producer.buffer_wait) {
                Some(wait) if wait > 0.0 => format!("waits {} of the time for memory", percent(wait)),
                Some(_) => String::from("does not wait for memory"),
                None => String::new(),
            },
        },
        Station {
            name: "accumulator",
            figure: ms(client, TimePart::Queue),
            words: fill.map_or_else(String::new, |size| {
                format!("batches of {}", ottla_lab::numbers::bytes(size))
            }),
        },
        Station {
            name: "sender",
            figure: per_second(of(|producer| producer.requests_per_second)),
            words: match of(|producer| producer.in_flight) {
                Some(in_flight) => format!("requests; {} on the way", ottla_lab::numbers::number(in_flight)),
                None => String::from("requests"),
            },
        },
        Station {
            name: "network",
            figure: ms(client, TimePart::Request),
            words: String::from("there and back"),
        },
        Station {
            name: "broker",
            figure: ms(client, TimePart::Broker),
            words: synced.map_or_else(String::new, |micros| {
                format!("of it {} synced", parts::one_ms(micros / 1e3))
            }),
        },
        Station {
            name: "callback",
            figure: callback.map(|micros| (parts::one_ms(micros / 1e3), "ms")),
            words: match callback {
                Some(_) => String::new(),
                None => String::from("no client but Ottla’s tells"),
            },
        },
    ]
}

fn of_consumer(client: &Diagnosis, snapshot: Option<&Snapshot>) -> Vec<Station> {
    let consumer = snapshot.and_then(|snapshot| snapshot.consumer.as_ref());
    let of = |value: fn(&ottla_lab::doctor::snapshot::Consumer) -> Option<f64>| consumer.and_then(value);
    let side = snapshot.and_then(|snapshot| snapshot.brokers.first());
    let cold = side.and_then(|side| side.cold_reads_per_second);
    let lag = of(|consumer| consumer.lag_max);
    vec![
        Station {
            name: "log",
            figure: lag.map(|lag| (rate(lag), "behind")),
            words: match cold {
                Some(cold) if cold > 0.0 => format!("{} cold reads/s", rate(cold)),
                Some(_) => String::from("read from memory"),
                None => String::new(),
            },
        },
        Station {
            name: "broker",
            figure: ms(client, TimePart::Broker),
            words: String::from("serves a fetch"),
        },
        Station {
            name: "network",
            figure: ms(client, TimePart::Fetch),
            words: String::from("waiting, there and back"),
        },
        Station {
            name: "fetcher",
            figure: per_second(of(|consumer| consumer.fetches_per_second)),
            words: of(|consumer| consumer.fetch_bytes).map_or_else(
                || String::from("fetches"),
                |size| format!("fetches of {}", ottla_lab::numbers::bytes(size)),
            ),
        },
        Station {
            name: "group",
            figure: of(|consumer| consumer.assigned_partitions).map(|count| (rate(count), "partitions")),
            words: of(|consumer| consumer.rebalances)
                .filter(|count| *count > 0.0)
                .map_or_else(String::new, |count| format!("{} rebalances", rate(count))),
        },
        Station {
            name: "application",
            figure: ms(client, TimePart::Processing),
            words: share(
                of(|consumer| consumer.poll_idle_share).map(|idle| 1.0 - idle),
                "busy with its records",
            ),
        },
        Station {
            name: "records",
            figure: per_second(of(|consumer| consumer.records_per_second)),
            words: String::from("read"),
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_limit_is_a_station_of_its_chain() {
        let client = |role| Diagnosis {
            role,
            ..Diagnosis::default()
        };
        for role in [Role::Producer, Role::Consumer] {
            let stations = match role {
                Role::Producer => of_producer(&client(role), None),
                Role::Consumer => of_consumer(&client(role), None),
            };
            assert_eq!(stations.len(), 7);
            for verdict in [
                Verdict::SenderRate,
                Verdict::ColdRead,
                Verdict::Processing,
                Verdict::NetworkRtt,
            ] {
                assert!(limit(role, verdict).is_none_or(|index| index < stations.len()));
            }
            assert_eq!(limit(role, Verdict::KeepsUp), None);
        }
        assert_eq!(limit(Role::Producer, Verdict::SenderRate), Some(3));
    }
}
